"""Where to connect and as whom: :class:`PravegaConfig`.

Each setting is taken from the first place that has it: an explicit argument, a property (a mapping,
for instance Spark's configuration, where keys carry the prefix ``spark.``), an environment
variable, the built-in default. Program arguments count as explicit ones. The object is immutable and
picklable, so it can be shipped to worker processes; ``repr`` never shows a secret.

Not public: :mod:`pravega_wire` exports what users need of it.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import ipaddress
import os
import re
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, Self

from pravega_wire.checks import INT32_MAX, check_count, check_flag, check_seconds, check_text
from pravega_wire.errors import InvalidArgumentError
from pravega_wire.naming import validate_scope_name
from pravega_wire.types import Endpoint, ScopedStream

__all__ = [
    "DEFAULT_CONTROLLER_URI",
    "SETTINGS",
    "ControllerUri",
    "Credentials",
    "PravegaConfig",
    "Setting",
    "config_of",
]

DEFAULT_CONTROLLER_URI = "tcp://localhost:9090"

_PLAIN_SCHEMES = frozenset({"tcp", "pravega"})
_TLS_SCHEMES = frozenset({"tls", "ssl", "pravegas"})
_DISCOVERY_SCHEMES = frozenset({"pravega", "pravegas"})

_METHOD: Final = re.compile(r"[!-~]+")
_TOKEN: Final = re.compile(r"[!-~](?:[ -~]*[!-~])?")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def _is_pair(token: str) -> bool:
    """Whether it is base64, with or without padding, of something with a colon."""
    try:
        return b":" in base64.b64decode(
            token.rstrip("=") + "=" * (-len(token.rstrip("=")) % 4), validate=True
        )
    except binascii.Error:
        return False


@dataclass(frozen=True, slots=True)
class Credentials:
    """What the ``authorization`` header of each controller call says.

    :param method: ``Basic`` or ``Bearer`` (the server compares case-sensitively).
    :param token: the encoded token; for ``Basic`` the base64 of ``user:password``.
    :raises InvalidArgumentError: one of them cannot be sent (control characters, a line end, letters outside
        of ASCII), or a ``Basic`` token is not such a base64. The message does not show the token.

    Neither the message nor ``repr`` shows a method other than these two: it may be the token, if the two
    arguments were exchanged.
    """

    method: str
    token: str

    def __repr__(self) -> str:
        method = repr(self.method) if self._method_is_known else "[hidden]"
        return f"Credentials(method={method})"

    @property
    def _method_is_known(self) -> bool:
        return isinstance(self.method, str) and self.method.lower() in ("basic", "bearer")

    def __post_init__(self) -> None:
        if not isinstance(self.method, str) or not _METHOD.fullmatch(self.method):
            raise InvalidArgumentError(
                "credentials: the method must be one word without control characters, such as Basic"
            )
        if not isinstance(self.token, str) or not _TOKEN.fullmatch(self.token):
            name = f"{self.method} token" if self._method_is_known else "token"
            raise InvalidArgumentError(
                f"credentials: the {name} is empty, or has white space around it, control "
                "characters (a line end?) or characters outside of ASCII"
            )
        if self.method == "Basic" and not _is_pair(self.token):
            # A 0.13.0 controller takes such a token for a fault of its own, which would be tried again.
            raise InvalidArgumentError(
                "credentials: the Basic token is not the base64 of user:password; Credentials.basic makes it"
            )
        if self.method == "Bearer" and " " in self.token:
            raise InvalidArgumentError("credentials: the Bearer token has white space in it")

    @classmethod
    def basic(cls, username: str, password: str) -> Self:
        """Credentials of a user name and password.

        :raises InvalidArgumentError: one of them is not a string or has control characters; or the user name
            has a colon.
        """
        for name, value in (("user name", username), ("password", password)):
            if not isinstance(value, str) or _CONTROL.search(value):
                raise InvalidArgumentError(
                    f"credentials: the {name} must be a string without control characters (a line end?)"
                )
        if ":" in username:
            raise InvalidArgumentError(
                "credentials: the user name has a colon, where the password would begin"
            )
        pair = f"{username}:{password}".encode()
        return cls("Basic", base64.b64encode(pair).decode("ascii"))

    @classmethod
    def bearer(cls, token: str) -> Self:
        """Credentials of a bearer token, used as it is."""
        return cls("Bearer", token)

    @property
    def header(self) -> str:
        """Value of the ``authorization`` metadata entry (str)."""
        return f"{self.method} {self.token}"


def parse_controller_uri(uri: str) -> tuple[str, tuple[Endpoint, ...]]:
    """Split ``scheme://host:port[,host:port...]`` into its scheme and endpoints.

    A missing scheme means ``tcp``. IPv6 literals go in brackets. Raises
    :class:`InvalidArgumentError` naming the part that is wrong.
    """
    if not isinstance(uri, str):
        raise InvalidArgumentError(f"controller URI (setting controller_uri): {uri!r} is not a string")
    if "@" in uri:
        # What is before it may be a password: it is not shown.
        raise InvalidArgumentError(
            "controller URI (setting controller_uri): a user name and password cannot be part of it; "
            "give them as credentials"
        )
    scheme, sep, rest = uri.strip().partition("://")
    if not sep:
        scheme, rest = "tcp", uri.strip()
    scheme = scheme.lower()
    if scheme not in _PLAIN_SCHEMES | _TLS_SCHEMES:
        known = ", ".join(sorted(_PLAIN_SCHEMES | _TLS_SCHEMES))
        raise InvalidArgumentError(f"controller URI {uri!r}: scheme {scheme!r} is not one of {known}")
    return scheme, tuple(_endpoint(uri, part.strip()) for part in rest.rstrip("/").split(","))


_HOST: Final = re.compile(r"[^\s\x00-\x1f\x7f/?#\[\]\\:]+")


def _endpoint(uri: str, part: str) -> Endpoint:
    host, colon, port_text = part.rpartition(":")
    if not colon or not host or not port_text.isascii() or not port_text.isdigit():
        raise InvalidArgumentError(
            f"controller URI {uri!r}: {part!r} is not host:port (every address needs its port)"
        )
    port = int(port_text)
    if not 0 < port < 65536:
        raise InvalidArgumentError(f"controller URI {uri!r}: port {port} is not in 1..65535")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise InvalidArgumentError(f"controller URI {uri!r}: {host!r} is not an IPv6 address") from None
    elif ":" in host:
        raise InvalidArgumentError(
            f"controller URI {uri!r}: an IPv6 address goes in brackets, as in [{host}]:{port}"
        )
    elif not _HOST.fullmatch(host):
        raise InvalidArgumentError(f"controller URI {uri!r}: {host!r} is not the name of a host")
    return host, port


_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})


def _boolean(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in _TRUE:
        return True
    if lowered in _FALSE:
        return False
    raise ValueError(f"{text!r} is neither true nor false")


class Setting(NamedTuple):
    """A setting, and every place where it can be given.

    :ivar field: of :class:`PravegaConfig`, or the part of ``credentials`` that it is.
    :ivar argument: of :meth:`PravegaConfig.from_defaults`.
    :ivar property_key: key in ``props``, and in Spark's configuration after ``spark.``.
    :ivar variable: environment variable.
    :ivar option: program argument, or None: secrets are not given there, as every process of the machine can
        read them.
    :ivar default: as the documents show it.
    :ivar meaning: a few words, for the help of a program.
    :ivar parse: its value from its text; raises ValueError.
    """

    field: str
    argument: str
    property_key: str
    variable: str
    option: str | None
    default: str
    meaning: str
    parse: Callable[[str], Any] = str


# The Java client and the Flink connector use the same properties and variables, where they have one.
SETTINGS: Final = (
    Setting(
        "controller_uri",
        "controller_uri",
        "pravega.controller.uri",
        "PRAVEGA_CONTROLLER_URI",
        "--controller",
        f"`{DEFAULT_CONTROLLER_URI}`",
        "scheme://host:port[,host:port...] of the controllers",
    ),
    Setting(
        "default_scope",
        "scope",
        "pravega.scope",
        "PRAVEGA_SCOPE",
        "--scope",
        "none",
        "scope of stream names that have none",
    ),
    Setting(
        "credentials.method",
        "credentials",
        "pravega.client.auth.method",
        "pravega_client_auth_method",
        None,
        "none",
        "how to authenticate: Basic or Bearer",
    ),
    Setting(
        "credentials.token",
        "credentials",
        "pravega.client.auth.token",
        "pravega_client_auth_token",
        None,
        "none",
        "the token of that method",
    ),
    Setting(
        "trust_store",
        "trust_store",
        "pravega.client.tls.trust-store",
        "PRAVEGA_TRUST_STORE",
        "--trust-store",
        "the system's certificates",
        "path of a PEM file with the certificates to trust",
    ),
    Setting(
        "validate_hostname",
        "validate_hostname",
        "pravega.client.tls.validate-hostname",
        "PRAVEGA_VALIDATE_HOSTNAME",
        "--validate-hostname",
        "`true`",
        "check the server's name against its certificate (true or false)",
        _boolean,
    ),
    Setting(
        "max_connections_per_store",
        "max_connections_per_store",
        "pravega.client.max-connections-per-store",
        "PRAVEGA_MAX_CONNECTIONS_PER_STORE",
        "--max-connections-per-store",
        "10",
        "connections to each segment store",
        int,
    ),
    Setting(
        "controller_deadline",
        "controller_deadline",
        "pravega.client.controller-deadline",
        "PRAVEGA_CONTROLLER_DEADLINE",
        "--controller-deadline",
        "120 s ([Time limits](time-limits.md))",
        "seconds that one controller call may take with all its attempts",
        float,
    ),
    Setting(
        "operation_timeout",
        "operation_timeout",
        "pravega.client.operation-timeout",
        "PRAVEGA_OPERATION_TIMEOUT",
        "--operation-timeout",
        "120 s ([Time limits](time-limits.md))",
        "seconds that an operation may take with all its attempts",
        float,
    ),
)
"""The one table of settings: ``docs/configuration.md`` shows it."""

_BY_FIELD: Final = {each.field: each for each in SETTINGS}
_AUTH_METHOD: Final = _BY_FIELD["credentials.method"]
_AUTH_TOKEN: Final = _BY_FIELD["credentials.token"]

_METAVARS: Final[Mapping[Callable[[str], Any], str]] = {int: "N", float: "SECONDS", _boolean: "BOOL"}


def _destination(setting: Setting) -> str:
    """The attribute of parsed program arguments."""
    return f"pravega_{setting.field}"


ControllerUri = str | Iterable[str]
"""One URI, which may list several addresses, or several URIs of one scheme."""


def _one_uri(uri: ControllerUri) -> str:
    """Several URIs of one scheme as one."""
    if isinstance(uri, str):
        return uri
    given: object = uri
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        raise InvalidArgumentError(f"controller URI (setting controller_uri): {uri!r} is not a string")
    uris = list(uri)
    if len(uris) == 1:
        return uris[0]
    if not uris:
        raise InvalidArgumentError("controller URI (setting controller_uri): the list of URIs is empty")
    found = [parse_controller_uri(each) for each in uris]
    schemes = sorted({scheme for scheme, _ in found})
    if len(schemes) != 1:
        raise InvalidArgumentError(
            f"controller URIs (setting controller_uri) must have one scheme, not {schemes}: {uris}"
        )
    addresses = ",".join(
        f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for _, each in found for host, port in each
    )
    return f"{schemes[0]}://{addresses}"


def _found(
    source: Setting, properties: Mapping[str, str], environment: Mapping[str, str]
) -> tuple[str, str] | None:
    """The text of a setting, and where it was found; an empty text counts as none."""
    for kind, key, values in (
        ("property", source.property_key, properties),
        ("environment variable", source.variable, environment),
    ):
        text = values.get(key)
        if text is None or text == "":
            continue
        if not isinstance(text, str):
            raise InvalidArgumentError(f"{kind} {key} must be a string, not {type(text).__name__}")
        return text, f"{kind} {key}"
    return None


def _credentials(properties: Mapping[str, str], environment: Mapping[str, str]) -> Credentials | None:
    method = _found(_AUTH_METHOD, properties, environment)
    token = _found(_AUTH_TOKEN, properties, environment)
    if method is None and token is None:
        return None
    if method is None or token is None:
        raise InvalidArgumentError(
            "pravega.client.auth.method and pravega.client.auth.token go together; only one of them is set"
        )
    try:
        return Credentials(method[0], token[0])
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{method[1]} and {token[1]}: {error.message}") from None


@dataclass(frozen=True, slots=True)
class PravegaConfig:
    """Connection settings of a client.

    :param controller_uri: ``scheme://host:port[,host:port...]`` with scheme ``tcp``, ``tls``,
        ``ssl``, ``pravega`` (discovery) or ``pravegas`` (discovery over TLS).
    :param default_scope: scope of an unqualified stream name, or None.
    :param credentials: sent with each controller call, or None.
    :param trust_store: path of a PEM file with CA certificates, or None for the system's.
    :param validate_hostname: check the server's name against its certificate (default True).
    :param max_connections_per_store: connections in the pool for each segment store (default 10).
    :param operation_timeout: seconds that an operation may take, from the call to its result or its error,
        with all its attempts (default 120; a segment of a store that was killed moves to another one in about
        35). One attempt gets a third of it, but at most 30. A connection on which nothing arrives for a third
        of it, but at most 15, is given up; the next address or another connection is tried. Appends run in
        the background: their limit counts from when a store stopped acknowledging them.
    :param controller_deadline: seconds that a single call to the controller may take of that, with all its
        attempts (default 120). Smaller than ``operation_timeout`` it makes an operation fail early where no
        controller answers; larger it has no effect.
    """

    controller_uri: str = DEFAULT_CONTROLLER_URI
    default_scope: str | None = None
    credentials: Credentials | None = None
    trust_store: str | None = None
    validate_hostname: bool = True
    max_connections_per_store: int = 10
    controller_deadline: float = 120.0
    operation_timeout: float = 120.0

    def __post_init__(self) -> None:
        parse_controller_uri(self.controller_uri)
        if self.default_scope is not None:
            validate_scope_name(check_text("setting default_scope", self.default_scope))
        if self.credentials is not None and not isinstance(self.credentials, Credentials):
            raise InvalidArgumentError(
                f"setting credentials must be Credentials or None, not {type(self.credentials).__name__}"
            )
        store: object = self.trust_store
        if isinstance(store, os.PathLike):
            object.__setattr__(self, "trust_store", os.fspath(store))
        if self.trust_store is not None:
            check_text("setting trust_store", self.trust_store)
        check_flag("setting validate_hostname", self.validate_hostname)
        check_count("setting max_connections_per_store", self.max_connections_per_store, highest=INT32_MAX)
        for name in ("controller_deadline", "operation_timeout"):
            check_seconds(f"setting {name}", getattr(self, name))

    # --- making one -----------------------------------------------------------------------------

    @classmethod
    def from_defaults(
        cls,
        *,
        controller_uri: ControllerUri | None = None,
        scope: str | None = None,
        credentials: Credentials | None = None,
        trust_store: str | None = None,
        validate_hostname: bool | None = None,
        max_connections_per_store: int | None = None,
        controller_deadline: float | None = None,
        operation_timeout: float | None = None,
        props: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Self:
        """Resolve each setting: argument, then ``props``, then ``env``, then the default.

        An argument of None is one that was not given; any other wins, also False. A text that is empty counts
        as missing in ``props`` and ``env``. ``docs/configuration.md`` lists the names.

        :param controller_uri: as the class; or several URIs of one scheme, whose addresses are put together.
        :param scope: the default scope.
        :param props: keys as in the Java world (``pravega.controller.uri``, ``pravega.scope``,
            ``pravega.client.auth.method``, ...).
        :param env: defaults to ``os.environ``; pass ``{}`` to ignore the environment.
        :raises InvalidArgumentError: a value is malformed; the message names the setting.
        """
        environment = os.environ if env is None else env
        properties = {} if props is None else props
        arguments = {
            "controller_uri": None if controller_uri is None else _one_uri(controller_uri),
            "default_scope": scope,
            "trust_store": trust_store,
            "validate_hostname": validate_hostname,
            "max_connections_per_store": max_connections_per_store,
            "controller_deadline": controller_deadline,
            "operation_timeout": operation_timeout,
        }
        values: dict[str, Any] = {name: value for name, value in arguments.items() if value is not None}
        for setting in SETTINGS:
            if setting.argument == "credentials" or setting.field in values:
                continue
            found = _found(setting, properties, environment)
            if found is not None:
                text, where = found
                try:
                    values[setting.field] = setting.parse(text)
                except ValueError as error:
                    raise InvalidArgumentError(f"setting {setting.field}, {where}: {error}") from None
        if credentials is None:
            credentials = _credentials(properties, environment)
        return cls(credentials=credentials, **values)

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Give a program the arguments ``--controller``, ``--scope``, ``--trust-store`` and so on.

        :meth:`from_namespace` makes a configuration of what was given.
        """
        group = parser.add_argument_group(
            "connection", "What is not given is taken from the environment, and credentials always are."
        )
        for setting in SETTINGS:
            if setting.option is not None:
                group.add_argument(
                    setting.option,
                    dest=_destination(setting),
                    metavar=_METAVARS.get(setting.parse, setting.field.rpartition("_")[2].upper()),
                    help=f"{setting.meaning} (default: {setting.variable}, or "
                    f"{setting.default.partition(' (')[0].strip('`')})",
                )

    @classmethod
    def from_namespace(
        cls,
        arguments: argparse.Namespace,
        *,
        props: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Self:
        """Make a configuration of parsed program arguments; the rest as :meth:`from_defaults`.

        :param arguments: of a parser that :meth:`add_arguments` was called with.
        :raises InvalidArgumentError: a value is malformed; the message names the setting.
        """
        given: dict[str, Any] = {}
        for setting in SETTINGS:
            text = None if setting.option is None else getattr(arguments, _destination(setting))
            if text is not None:
                try:
                    given[setting.argument] = setting.parse(text)
                except ValueError as error:
                    raise InvalidArgumentError(
                        f"setting {setting.field}, program argument {setting.option}: {error}"
                    ) from None
        return cls.from_defaults(**given, props=props, env=env)

    @classmethod
    def from_arguments(
        cls,
        argv: Sequence[str] | None = None,
        *,
        props: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> tuple[Self, list[str]]:
        """Take what is ours from program arguments, and leave the others alone.

        :param argv: without the program's name; default ``sys.argv[1:]``.
        :returns: the configuration, and the arguments that are not ours, in order.
        :raises InvalidArgumentError: an argument has no value, or a malformed one.
        """
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
        cls.add_arguments(parser)
        try:
            known, rest = parser.parse_known_args(None if argv is None else list(argv))
        except argparse.ArgumentError as error:
            raise InvalidArgumentError(f"program arguments: {error}") from error
        return cls.from_namespace(known, props=props, env=env), rest

    @classmethod
    def from_spark(cls, conf: Iterable[tuple[str, str]], *, env: Mapping[str, str] | None = None) -> Self:
        """Take settings from Spark configuration pairs, with or without the ``spark.`` prefix.

        :param conf: for instance ``spark.sparkContext.getConf().getAll()``.
        """
        props: dict[str, str] = {}
        for key, value in conf:
            bare = key.removeprefix("spark.")
            if bare.startswith("pravega."):
                props[bare] = value
        return cls.from_defaults(props=props, env=env)

    def with_controller_uri(self, uri: ControllerUri) -> Self:
        """A copy with another controller URI."""
        return replace(self, controller_uri=_one_uri(uri))

    def with_default_scope(self, scope: str | None) -> Self:
        """A copy with another default scope; it always replaces the one that was set."""
        return replace(self, default_scope=scope)

    def with_credentials(self, credentials: Credentials | None) -> Self:
        """A copy with other credentials."""
        return replace(self, credentials=credentials)

    def with_trust_store(self, path: str | None) -> Self:
        """A copy with another PEM file of trusted certificates (None: the system's)."""
        return replace(self, trust_store=path)

    def with_validate_hostname(self, validate: bool) -> Self:
        """A copy that checks, or does not check, host names of TLS peers."""
        return replace(self, validate_hostname=validate)

    def with_max_connections_per_store(self, count: int) -> Self:
        """A copy with another number of connections to each segment store."""
        return replace(self, max_connections_per_store=count)

    def with_controller_deadline(self, seconds: float) -> Self:
        """A copy with another limit for one controller call."""
        return replace(self, controller_deadline=seconds)

    def with_operation_timeout(self, seconds: float) -> Self:
        """A copy with another limit for one operation."""
        return replace(self, operation_timeout=seconds)

    # --- using it -------------------------------------------------------------------------------

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The controller addresses in the URI: ``(host, port)`` pairs."""
        return parse_controller_uri(self.controller_uri)[1]

    @property
    def scheme(self) -> str:
        """The URI's scheme in lower case."""
        return parse_controller_uri(self.controller_uri)[0]

    @property
    def tls_enabled(self) -> bool:
        """True when the scheme asks for TLS (to the controller and to the segment stores)."""
        return self.scheme in _TLS_SCHEMES

    @property
    def discovery(self) -> bool:
        """True when the addresses only serve to ask for the list of controllers."""
        return self.scheme in _DISCOVERY_SCHEMES

    def ssl_context(self, *, http2: bool = False) -> ssl.SSLContext | None:
        """A TLS context for these settings, or None without TLS.

        :param http2: offer HTTP/2 in the handshake, as gRPC wants; the wire protocol offers nothing.

        :raises InvalidArgumentError: the trust store cannot be read.
        """
        if not self.tls_enabled:
            return None
        try:
            context = ssl.create_default_context(cafile=self.trust_store)
        except (OSError, ValueError) as error:
            raise InvalidArgumentError(f"trust store {self.trust_store!r} cannot be used: {error}") from error
        context.check_hostname = self.validate_hostname
        if http2:
            context.set_alpn_protocols(["h2"])
        return context

    def authorization(self) -> Callable[[], str | None]:
        """A function giving the ``authorization`` header, or None when there are no credentials."""
        credentials = self.credentials
        return lambda: None if credentials is None else credentials.header

    def resolve(self, stream: str | ScopedStream) -> ScopedStream:
        """The full name of a stream: ``scope/stream`` wins over the default scope.

        :raises InvalidArgumentError: neither the name nor the configuration gives a scope, or a
            name has illegal characters.
        """
        if isinstance(stream, ScopedStream):
            return stream
        if not isinstance(stream, str):
            raise InvalidArgumentError(f"a stream is named by a string, not {type(stream).__name__}")
        if "/" in stream:
            return ScopedStream.parse(stream)
        if self.default_scope is None:
            raise InvalidArgumentError(
                f"stream {stream!r} has no scope: write 'scope/{stream}' or set a default scope "
                "(PRAVEGA_SCOPE, property pravega.scope)"
            )
        return ScopedStream(self.default_scope, stream)

    def resolve_scope(self, scope: str | None) -> str:
        """The scope given, or else the default one; :class:`InvalidArgumentError` for neither."""
        chosen = scope or self.default_scope
        if chosen is None:
            raise InvalidArgumentError(
                "no scope given: name one or set a default (PRAVEGA_SCOPE, property pravega.scope)"
            )
        return chosen


def config_of(
    config: PravegaConfig | ControllerUri | None,
    scope: str | None = None,
    credentials: Credentials | None = None,
) -> PravegaConfig:
    """The configuration that the arguments of ``open_client`` mean."""
    if isinstance(config, PravegaConfig):
        given: dict[str, Any] = {"default_scope": scope, "credentials": credentials}
        return replace(config, **{name: value for name, value in given.items() if value is not None})
    return PravegaConfig.from_defaults(controller_uri=config, scope=scope, credentials=credentials)
