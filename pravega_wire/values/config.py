"""The connection settings of a client: :class:`PravegaConfig`.

Each setting is taken from the first of these sources that has it: an explicit argument; a property (from a
mapping such as Spark's configuration, where keys have the prefix ``spark.``); an environment variable; the
built-in default. Command-line arguments count as explicit arguments.

Not public: :mod:`pravega_wire` exports the names that users need.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import ipaddress
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from pravega_wire.errors import ArgumentTypeError, InvalidArgumentError
from pravega_wire.support.checks import (
    INT32_MAX,
    check_count,
    check_flag,
    check_seconds,
    check_several,
    check_text,
    shown,
)
from pravega_wire.values.naming import validate_scope_name, validate_stream_name
from pravega_wire.values.types import Endpoint, ScopedStream, endpoint_text

if TYPE_CHECKING:
    import ssl

__all__ = [
    "DEFAULT_CONTROLLER_URI",
    "SETTINGS",
    "ControllerUri",
    "Credentials",
    "PravegaConfig",
    "Setting",
    "check_registry_uri",
    "config_of",
    "parse_endpoint",
]

DEFAULT_CONTROLLER_URI = "tcp://localhost:9090"

_PLAIN_SCHEMES = frozenset({"tcp", "pravega"})
_TLS_SCHEMES = frozenset({"tls", "ssl", "pravegas"})
_DISCOVERY_SCHEMES = frozenset({"pravega", "pravegas"})

_METHOD: Final = re.compile(r"[!-~]+")
_TOKEN: Final = re.compile(r"[!-~](?:[ -~]*[!-~])?")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def _is_pair(token: str) -> bool:
    """Return True if the token is base64, with or without padding, of text that contains a colon."""
    try:
        return b":" in base64.b64decode(
            token.rstrip("=") + "=" * (-len(token.rstrip("=")) % 4), validate=True
        )
    except binascii.Error:
        return False


@dataclass(frozen=True, slots=True)
class Credentials:
    """The contents of the ``authorization`` header of each controller call.

    Create one with :meth:`basic` or :meth:`bearer`.

    Error messages and ``repr`` never show the token. They show the method only if it is ``Basic`` or
    ``Bearer``; any other text may be the token, if the two arguments were swapped.

    Example::

        credentials = Credentials.basic("analyst", "password")
        async with open_client("tls://pravega.example:9090", credentials=credentials) as client:
            ...

    :param method: ``Basic`` or ``Bearer`` (the server compares it case-sensitively).
    :param token: the encoded token; for ``Basic``, the base64 of ``user:password``.
    :raises InvalidArgumentError: the method or token cannot be sent in a header (control characters, line
        breaks, non-ASCII characters), or a ``Basic`` token is not the base64 of ``user:password``.
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
                "credentials: the method must be a single word without control characters, such as Basic"
            )
        if not isinstance(self.token, str) or not _TOKEN.fullmatch(self.token):
            name = f"{self.method} token" if self._method_is_known else "token"
            raise InvalidArgumentError(
                f"credentials: the {name} is empty, or has leading or trailing white space, control "
                "characters (perhaps a line break) or non-ASCII characters"
            )
        if self.method == "Basic" and not _is_pair(self.token):
            # A 0.13.0 controller reports such a token as an internal error, which would be retried.
            raise InvalidArgumentError(
                "credentials: the Basic token is not the base64 of user:password; create it with "
                "Credentials.basic(user, password)"
            )
        if self.method == "Bearer" and " " in self.token:
            raise InvalidArgumentError("credentials: the Bearer token contains white space")

    @classmethod
    def basic(cls, username: str, password: str) -> Self:
        """Create credentials from a user name and a password.

        :param username: the user name; it must not contain a colon.
        :param password: the password, unencoded.
        :raises InvalidArgumentError: one of them is not a string or contains control characters, or the user
            name contains a colon.
        """
        for name, value in (("user name", username), ("password", password)):
            if not isinstance(value, str) or _CONTROL.search(value):
                raise InvalidArgumentError(
                    f"credentials: the {name} must be a string without control characters "
                    "(perhaps it ends with a line break)"
                )
        if ":" in username:
            raise InvalidArgumentError(
                "credentials: the user name contains a colon, which would separate it from the password"
            )
        pair = f"{username}:{password}".encode()
        return cls("Basic", base64.b64encode(pair).decode("ascii"))

    @classmethod
    def bearer(cls, token: str) -> Self:
        """Create credentials from a bearer token, which is sent unchanged.

        :param token: the token.
        :raises InvalidArgumentError: the token is empty or contains white space, control characters or
            non-ASCII characters.
        """
        return cls("Bearer", token)

    @property
    def header(self) -> str:
        """The value of the ``authorization`` header; it contains the secret."""
        return f"{self.method} {self.token}"


def parse_controller_uri(uri: str) -> tuple[str, tuple[Endpoint, ...]]:
    """Split ``scheme://host:port[,host:port...]`` into its scheme and endpoints.

    :param uri: the URI. Without a scheme, ``tcp`` is assumed. IPv6 addresses go in brackets.
    :returns: the scheme in lower case, and the endpoints in order.
    :raises InvalidArgumentError: the URI is malformed; the message names the wrong part.
    """
    if not isinstance(uri, str):
        raise InvalidArgumentError(
            f"controller URI (setting controller_uri) must be a string, not {shown(uri)}"
        )
    if "@" in uri:
        # The text before the @ may be a password, so the message does not show it.
        raise InvalidArgumentError(
            "controller URI (setting controller_uri) must not contain a user name or password; "
            "pass them as credentials"
        )
    scheme, sep, rest = uri.strip().partition("://")
    if not sep:
        scheme, rest = "tcp", uri.strip()
    scheme = scheme.lower()
    if scheme not in _PLAIN_SCHEMES | _TLS_SCHEMES:
        known = ", ".join(sorted(_PLAIN_SCHEMES | _TLS_SCHEMES))
        raise InvalidArgumentError(
            f"controller URI {shown(uri)}: scheme {shown(scheme)} is not one of {known}"
        )
    what = f"controller URI {shown(uri)}"
    return scheme, tuple(parse_endpoint(part.strip(), what) for part in rest.rstrip("/").split(","))


_HOST: Final = re.compile(r"[^\s\x00-\x1f\x7f\ud800-\udfff/?#\[\]\\:]{1,253}")


_PORT_DIGITS: Final = 20


def parse_endpoint(text: str, what: str) -> Endpoint:
    """Split ``host:port`` into host and port. An IPv6 address goes in brackets.

    :param text: the text.
    :param what: what it is, as a message begins.
    :raises InvalidArgumentError: it is something else.
    """
    host, colon, port_text = text.rpartition(":")
    if not colon or not host or not port_text.isascii() or not port_text.isdigit():
        raise InvalidArgumentError(
            f"{what}: {shown(text)} is not of the form host:port (every address needs a port)"
        )
    # Python does not convert more than some thousand digits.
    port = int(port_text) if len(port_text) <= _PORT_DIGITS else 0
    if not 0 < port < 65536:
        raise InvalidArgumentError(f"{what}: port {shown(port_text)[1:-1]} is not in the range 1 to 65535")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise InvalidArgumentError(f"{what}: {shown(host)} is not an IPv6 address") from None
    elif "://" in host:
        raise InvalidArgumentError(
            f"{what}: write {shown(text)} without the scheme (a controller URI has one, at its beginning)"
        )
    elif ":" in host:
        raise InvalidArgumentError(f"{what}: write an IPv6 address in brackets, as in [::1]:9090")
    elif not _HOST.fullmatch(host):
        raise InvalidArgumentError(f"{what}: {shown(host)} is not a valid host name")
    return host, port


def check_registry_uri(uri: object) -> str:
    """Return the address of a schema registry without a trailing slash.

    :param uri: ``http://host:port`` or ``https://host:port``; a path may follow.
    :raises InvalidArgumentError: the URI is malformed; the message names the wrong part.
    """
    name = "schema registry URI (setting schema_registry_uri)"
    text = check_text(name, uri).strip().rstrip("/")
    scheme, separator, rest = text.partition("://")
    if "@" in rest:
        # The text before the @ may be a password, so the message does not show it.
        raise InvalidArgumentError(
            f"{name} must not contain a user name or password; pass them as credentials"
        )
    if not separator or scheme.lower() not in ("http", "https"):
        raise InvalidArgumentError(f"{name} {shown(uri)}: it must begin with http:// or https://")
    if "?" in rest or "#" in rest:
        raise InvalidArgumentError(f"{name} {shown(uri)}: it must not contain a query or a fragment")
    address = rest.partition("/")[0]
    has_port = ":" in address.rpartition("]")[2]
    default_port = "443" if scheme.lower() == "https" else "80"
    parse_endpoint(address if has_port else f"{address}:{default_port}", f"{name} {shown(text)}")
    return text


_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})


def _boolean(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in _TRUE:
        return True
    if lowered in _FALSE:
        return False
    raise ValueError(f"{text!r} is neither true nor false")


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is not a whole number") from None


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is not a number of seconds") from None


class Setting(NamedTuple):
    """One setting, and the names under which each source provides it.

    :ivar field: field of :class:`PravegaConfig`, or the part of its ``credentials``.
    :ivar property_key: key in ``props``; in Spark's configuration, the key after ``spark.``.
    :ivar variable: name of the environment variable.
    :ivar option: command-line argument. None for secrets: every process of the machine can read command
        lines.
    :ivar default: the default, as the documentation shows it.
    :ivar meaning: a short description, for a program's ``--help``.
    :ivar parse: converts the setting's text to its value; raises ValueError.
    """

    field: str
    property_key: str
    variable: str
    option: str | None
    default: str
    meaning: str
    parse: Callable[[str], Any] = str

    @property
    def argument(self) -> str:
        """The argument of :meth:`PravegaConfig.from_defaults`."""
        return self.field.partition(".")[0]


# The Java client and the Flink connector use the same properties and variables, where they have one.
SETTINGS: Final = (
    Setting(
        "controller_uri",
        "pravega.controller.uri",
        "PRAVEGA_CONTROLLER_URI",
        "--controller",
        f"`{DEFAULT_CONTROLLER_URI}`",
        "scheme://host:port[,host:port...] of the controllers",
    ),
    Setting(
        "scope",
        "pravega.scope",
        "PRAVEGA_SCOPE",
        "--scope",
        "none",
        "scope for stream names without one",
    ),
    Setting(
        "credentials.method",
        "pravega.client.auth.method",
        "pravega_client_auth_method",
        None,
        "none",
        "authentication method: Basic or Bearer",
    ),
    Setting(
        "credentials.token",
        "pravega.client.auth.token",
        "pravega_client_auth_token",
        None,
        "none",
        "token for that method",
    ),
    Setting(
        "trust_store",
        "pravega.client.tls.trust-store",
        "PRAVEGA_TRUST_STORE",
        "--trust-store",
        "the system's certificates",
        "path of a PEM file with the certificates to trust",
    ),
    Setting(
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
        "pravega.client.max-connections-per-store",
        "PRAVEGA_MAX_CONNECTIONS_PER_STORE",
        "--max-connections-per-store",
        "10",
        "largest number of connections to each segment store",
        _whole,
    ),
    Setting(
        "controller_deadline",
        "pravega.client.controller-deadline",
        "PRAVEGA_CONTROLLER_DEADLINE",
        "--controller-deadline",
        "120 s ([time limits](time-limits.md))",
        "time limit in seconds for one controller call, including all retries",
        _seconds,
    ),
    Setting(
        "operation_timeout",
        "pravega.client.operation-timeout",
        "PRAVEGA_OPERATION_TIMEOUT",
        "--operation-timeout",
        "120 s ([time limits](time-limits.md))",
        "time limit in seconds for one operation, including all retries",
        _seconds,
    ),
    Setting(
        "schema_registry_uri",
        "pravega.schema-registry.uri",
        "PRAVEGA_SCHEMA_REGISTRY_URI",
        "--schema-registry",
        "none",
        "http://host:port of the schema registry",
    ),
)
"""The table of all settings. A test compares it with the table in ``docs/configuration.md``."""

_BY_FIELD: Final = {each.field: each for each in SETTINGS}
_AUTH_METHOD: Final = _BY_FIELD["credentials.method"]
_AUTH_TOKEN: Final = _BY_FIELD["credentials.token"]

_METAVARS: Final[Mapping[Callable[[str], Any], str]] = {_whole: "N", _seconds: "SECONDS", _boolean: "BOOL"}


def _destination(setting: Setting) -> str:
    """Return the name of the setting's attribute in parsed command-line arguments."""
    return f"pravega_{setting.field}"


ControllerUri = str | Iterable[str]
"""One URI, which may list several addresses, or several URIs with the same scheme."""


def _one_uri(uri: ControllerUri) -> str:
    """Combine several URIs with the same scheme into one."""
    if isinstance(uri, str):
        return uri
    given: object = uri
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        raise InvalidArgumentError(
            f"controller URI (setting controller_uri) must be a string, not {shown(uri)}"
        )
    uris = list(uri)
    if len(uris) == 1:
        return uris[0]
    if not uris:
        raise InvalidArgumentError("controller URI (setting controller_uri): the list of URIs is empty")
    found = [parse_controller_uri(each) for each in uris]
    schemes = sorted({scheme for scheme, _ in found})
    if len(schemes) != 1:
        raise InvalidArgumentError(
            f"controller URIs (setting controller_uri) must all have the same scheme, not {schemes}: {uris}"
        )
    addresses = ",".join(endpoint_text(each) for _, endpoints in found for each in endpoints)
    return f"{schemes[0]}://{addresses}"


def _found(
    source: Setting, properties: Mapping[str, str], environment: Mapping[str, str]
) -> tuple[str, str] | None:
    """Return the text of a setting and a description of its source; an empty text counts as not set."""
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
    found = method or token
    if found is None:
        return None
    if method is None or token is None:
        missing = _AUTH_METHOD if method is None else _AUTH_TOKEN
        raise InvalidArgumentError(
            f"credentials: {found[1]} is set, and neither property {missing.property_key} nor environment "
            f"variable {missing.variable} is; set both or neither"
        )
    try:
        return Credentials(method[0], token[0])
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{method[1]} and {token[1]}: {error.message}") from None


@dataclass(frozen=True, slots=True)
class PravegaConfig:
    """The connection settings of a client.

    A configuration is immutable and can be pickled, so it can be sent to worker processes. ``repr`` never
    shows a secret. The constructor uses its arguments only; :meth:`from_defaults` also reads properties and
    environment variables.

    Example::

        import trio
        from pravega_wire import Credentials, PravegaConfig, open_client

        config = PravegaConfig(
            "tls://pravega.example:9090",
            scope="demo",
            credentials=Credentials.basic("analyst", "password"),
            trust_store="/etc/pravega/ca.pem",
            operation_timeout=30.0,
        )

        async def main():
            async with open_client(config) as client:
                print(await client.stream_exists("readings"))

        trio.run(main)

    :param controller_uri: ``scheme://host:port[,host:port...]`` with scheme ``tcp``, ``tls``, ``ssl``,
        ``pravega`` (discovery) or ``pravegas`` (discovery over TLS).
    :param scope: scope for stream names without one, or None.
    :param credentials: credentials to send with each controller call, or None.
    :param trust_store: path of a PEM file with CA certificates, or None to use the system's certificates. A
        client reads it when it is opened.
    :param validate_hostname: whether to check the server's name against its certificate (default True).
    :param max_connections_per_store: largest number of pooled connections to each segment store (default 10).
    :param operation_timeout: time limit in seconds for an operation, from the call to its result or error,
        including all retries (default 120). After a segment store was killed, it takes about 35 s until its
        segments are available on another one. One attempt may take a third of the limit, but at most 30 s. A
        connection on which nothing arrives for a third of the limit, but at most 15 s, counts as lost; the
        client then tries the next address or another connection. Appends run in the background: their limit
        counts from the moment the store stopped acknowledging them.
    :param controller_deadline: time limit in seconds for a single controller call within an operation,
        including all retries (default 120). A value below ``operation_timeout`` makes an operation fail early
        when no controller responds; a larger one has no effect.
    :param schema_registry_uri: ``http://host:port`` or ``https://host:port`` of the schema registry
        (:mod:`pravega_wire.schemas`), or None. The client itself does not use it.
    :raises InvalidArgumentError: a value has the wrong type or form; the message names the setting.
    """

    controller_uri: str = DEFAULT_CONTROLLER_URI
    scope: str | None = None
    credentials: Credentials | None = None
    trust_store: str | None = None
    validate_hostname: bool = True
    max_connections_per_store: int = 10
    controller_deadline: float = 120.0
    operation_timeout: float = 120.0
    schema_registry_uri: str | None = None

    def __post_init__(self) -> None:
        parse_controller_uri(self.controller_uri)
        if self.scope is not None:
            validate_scope_name(check_text("setting scope", self.scope))
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
        if self.schema_registry_uri is not None:
            check_registry_uri(self.schema_registry_uri)

    # --- constructors ---------------------------------------------------------------------------

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
        schema_registry_uri: str | None = None,
        props: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Self:
        """Create a configuration from arguments, properties, environment variables and defaults.

        Each setting is taken from the first of these sources that has it.

        An argument of None counts as not given; any other value is used, including False. An empty text in
        ``props`` or ``env`` counts as not set. ``docs/configuration.md`` lists the property and variable
        names.

        Example::

            # PRAVEGA_CONTROLLER_URI=tcp://one.example:9090
            config = PravegaConfig.from_defaults(scope="demo")

        :param controller_uri: as in :class:`PravegaConfig`; or several URIs with the same scheme, which are
            combined into one.
        :param scope: the default scope (field ``scope``).
        :param credentials: as in :class:`PravegaConfig`.
        :param trust_store: as in :class:`PravegaConfig`.
        :param validate_hostname: as in :class:`PravegaConfig`.
        :param max_connections_per_store: as in :class:`PravegaConfig`.
        :param controller_deadline: as in :class:`PravegaConfig`.
        :param operation_timeout: as in :class:`PravegaConfig`.
        :param schema_registry_uri: as in :class:`PravegaConfig`.
        :param props: properties, with the keys of the Java client (``pravega.controller.uri``,
            ``pravega.scope``, ``pravega.client.auth.method``, ...).
        :param env: environment variables; default ``os.environ``. Pass ``{}`` to ignore the environment.
        :raises InvalidArgumentError: a value is malformed; the message names the setting and its source.
        """
        environment = os.environ if env is None else env
        properties = {} if props is None else props
        for name, given in (("props", properties), ("env", environment)):
            if not isinstance(given, Mapping):
                raise ArgumentTypeError(f"{name} must map names to texts, and is {type(given).__name__}")
        arguments = {
            "controller_uri": None if controller_uri is None else _one_uri(controller_uri),
            "scope": scope,
            "trust_store": trust_store,
            "validate_hostname": validate_hostname,
            "max_connections_per_store": max_connections_per_store,
            "controller_deadline": controller_deadline,
            "operation_timeout": operation_timeout,
            "schema_registry_uri": schema_registry_uri,
        }
        values: dict[str, Any] = {name: value for name, value in arguments.items() if value is not None}
        for setting in SETTINGS:
            if setting.argument == "credentials" or setting.field in values:
                continue
            found = _found(setting, properties, environment)
            if found is not None:
                text, where = found
                try:
                    value = setting.parse(text)
                    # Alone, so that the message can say where it comes from.
                    cls(**{setting.field: value})
                    values[setting.field] = value
                except ValueError as error:
                    raise InvalidArgumentError(f"setting {setting.field}, {where}: {error}") from None
        if credentials is None:
            credentials = _credentials(properties, environment)
        return cls(credentials=credentials, **values)

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Add the arguments ``--controller``, ``--scope``, ``--trust-store`` and so on to a parser.

        Credentials get no argument, because every process of the machine can read command lines. Create the
        configuration from the parsed arguments with :meth:`from_namespace`.

        :param parser: the program's argument parser.
        """
        group = parser.add_argument_group(
            "connection",
            "Settings without an argument are read from the environment; credentials always are.",
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
        """Create a configuration from parsed command-line arguments.

        Settings without an argument are resolved as in :meth:`from_defaults`.

        :param arguments: the result of a parser that was passed to :meth:`add_arguments`.
        :param props: as in :meth:`from_defaults`.
        :param env: as in :meth:`from_defaults`.
        :raises InvalidArgumentError: a value is malformed; the message names the setting.
        """
        given: dict[str, Any] = {}
        for setting in SETTINGS:
            try:
                text = None if setting.option is None else getattr(arguments, _destination(setting))
            except AttributeError:
                raise ArgumentTypeError(
                    f"arguments must be the result of a parser that was passed to add_arguments, not "
                    f"{shown(arguments)}"
                ) from None
            if text is not None:
                try:
                    given[setting.argument] = setting.parse(text)
                except ValueError as error:
                    raise InvalidArgumentError(
                        f"setting {setting.field}, command-line argument {setting.option}: {error}"
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
        """Create a configuration from a command line, and return the remaining arguments.

        :param argv: the arguments without the program's name; default ``sys.argv[1:]``.
        :param props: as in :meth:`from_defaults`.
        :param env: as in :meth:`from_defaults`.
        :returns: the configuration, and the arguments that are not connection settings, in order.
        :raises InvalidArgumentError: an argument has no value, or a malformed one.
        """
        if argv is not None:
            check_several("argv", argv)
            for each in argv:
                if not isinstance(each, str):
                    raise ArgumentTypeError(f"argv must have strings, not {shown(each)}")
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
        cls.add_arguments(parser)
        try:
            known, rest = parser.parse_known_args(None if argv is None else list(argv))
        except argparse.ArgumentError as error:
            raise InvalidArgumentError(f"command-line arguments: {error}") from error
        return cls.from_namespace(known, props=props, env=env), rest

    # --- use ------------------------------------------------------------------------------------

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
        """True if the scheme selects TLS (to the controller and to the segment stores)."""
        return self.scheme in _TLS_SCHEMES

    @property
    def discovery(self) -> bool:
        """True if the addresses are used only to look up the list of controllers."""
        return self.scheme in _DISCOVERY_SCHEMES

    def ssl_context(self, *, http2: bool = False) -> ssl.SSLContext | None:
        """Return a TLS context for these settings, or None if the scheme does not select TLS.

        :param http2: whether to offer HTTP/2 in the handshake, as gRPC requires; the wire protocol of segment
            stores offers nothing.
        :raises InvalidArgumentError: the trust store cannot be read.
        """
        if not self.tls_enabled:
            return None
        import ssl

        try:
            context = ssl.create_default_context(cafile=self.trust_store)
        except ssl.SSLError as error:
            raise InvalidArgumentError(
                f"setting trust_store: the file {self.trust_store!r} has no certificate in PEM form"
            ) from error
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise InvalidArgumentError(
                f"setting trust_store: the PEM file {self.trust_store!r} cannot be read: {why}"
            ) from error
        context.check_hostname = self.validate_hostname
        if http2:
            context.set_alpn_protocols(["h2"])
        return context

    def authorization(self) -> Callable[[], str | None]:
        """Return a function that returns the ``authorization`` header, or None without credentials."""
        credentials = self.credentials
        return lambda: None if credentials is None else credentials.header

    def resolve(self, stream: str | ScopedStream, kind: str = "stream") -> ScopedStream:
        """Return the full name of a stream, reader group or key-value table.

        :param stream: ``scope/stream``, or a name in the default scope.
        :param kind: what the name is for, for messages.
        :raises InvalidArgumentError: neither the name nor the configuration has a scope, or a name has
            illegal characters.
        """
        if isinstance(stream, ScopedStream):
            return stream
        if not isinstance(stream, str):
            raise InvalidArgumentError(f"a {kind} name must be a string, not {type(stream).__name__}")
        scope, slash, name = stream.rpartition("/")
        if "/" in scope:
            raise InvalidArgumentError(f"{shown(stream)} is not of the form scope/{kind.split()[-1]}")
        if not slash:
            if self.scope is None:
                raise InvalidArgumentError(
                    f"{kind} {stream!r} has no scope: write 'scope/{stream}' or set a default scope "
                    "(PRAVEGA_SCOPE, --scope, property pravega.scope)"
                )
            scope = self.scope
        validate_scope_name(scope)
        validate_stream_name(name, kind)
        return ScopedStream(scope, name)

    def resolve_scope(self, scope: str | None) -> str:
        """Return ``scope``, or the default scope if it is None or empty.

        :param scope: name of a scope, or None.
        :raises InvalidArgumentError: there is no default scope either, or ``scope`` is not a string.
        """
        if not isinstance(scope, str | None):
            raise ArgumentTypeError(f"the scope name must be a string, not {type(scope).__name__}")
        chosen = scope or self.scope
        if chosen is None:
            raise InvalidArgumentError(
                "no scope given: pass one or set a default scope (PRAVEGA_SCOPE, --scope, property "
                "pravega.scope)"
            )
        return chosen


def config_of(
    config: PravegaConfig | ControllerUri | None,
    scope: str | None = None,
    credentials: Credentials | None = None,
) -> PravegaConfig:
    """Return the configuration that the arguments of ``open_client`` describe."""
    if isinstance(config, PravegaConfig):
        given: dict[str, Any] = {"scope": scope, "credentials": credentials}
        return replace(config, **{name: value for name, value in given.items() if value is not None})
    return PravegaConfig.from_defaults(controller_uri=config, scope=scope, credentials=credentials)
