"""HTTP to a schema registry, by ``httpx``. Requests block their thread; :func:`in_thread` is for the others.

Not public.
"""

from __future__ import annotations

import json
import os
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

from pravega_wire.errors import (
    ArgumentTypeError,
    ClosedError,
    InvalidArgumentError,
    MissingExtraError,
    SchemaRegistryReplyError,
    SchemaRegistryUnreachableError,
    TlsError,
)
from pravega_wire.schemas.calls import Reply, Request, Steps
from pravega_wire.support.checks import check_flag, check_seconds, check_text
from pravega_wire.support.environment import environment
from pravega_wire.support.trouble import tell
from pravega_wire.values.config import Credentials, PravegaConfig, check_registry_uri

if TYPE_CHECKING:
    import httpx
    import outcome

__all__ = ["Settings", "Transport", "in_thread"]

T = TypeVar("T")

_ATTEMPTS: Final = 4
_FIRST_PAUSE: Final = 0.1
_MOST_BYTES: Final = 64 << 20
_BUSY: Final = frozenset({502, 503, 504})


@dataclass(frozen=True, slots=True)
class Settings:
    """How to reach a registry; it can be pickled.

    :ivar uri: its address.
    :ivar namespace: the namespace of its groups, or None.
    :ivar credentials: credentials to send, or None.
    :ivar trust_store: PEM file with the certificates to trust, or None.
    :ivar validate_hostname: whether to check the server's name against its certificate.
    :ivar timeout: time limit in seconds for one call.
    """

    uri: str
    namespace: str | None = None
    credentials: Credentials | None = field(default=None, repr=False)
    trust_store: str | None = None
    validate_hostname: bool = True
    timeout: float = 30.0

    @classmethod
    def of(
        cls,
        registry: str | PravegaConfig,
        *,
        namespace: str | None,
        credentials: Credentials | None,
        trust_store: str | None,
        validate_hostname: bool | None,
        timeout: float,
    ) -> Settings:
        """Return the settings that arguments describe.

        :raises InvalidArgumentError: one of them is malformed, or a configuration has no address.
        """
        uri: object = registry
        if isinstance(registry, PravegaConfig):
            uri = registry.schema_registry_uri
            if uri is None:
                raise InvalidArgumentError(
                    "the configuration has no address of a schema registry: set schema_registry_uri "
                    "(PRAVEGA_SCHEMA_REGISTRY_URI, property pravega.schema-registry.uri)"
                )
            credentials = credentials or registry.credentials
            trust_store = trust_store or registry.trust_store
            if validate_hostname is None:
                validate_hostname = registry.validate_hostname
        if credentials is not None and not isinstance(credentials, Credentials):
            raise ArgumentTypeError(f"credentials must be Credentials, not {type(credentials).__name__}")
        return cls(
            check_registry_uri(uri),
            None if namespace is None else check_text("namespace", namespace),
            credentials,
            None if trust_store is None else check_text("trust_store", trust_store),
            True if validate_hostname is None else check_flag("validate_hostname", validate_hostname),
            check_seconds("timeout", timeout),
        )

    def options(self) -> dict[str, Any]:
        """Return the arguments of an ``httpx`` client."""
        httpx = _httpx()
        headers = {"accept": "application/json"}
        if self.credentials is not None:
            headers["authorization"] = self.credentials.header
        verify: ssl.SSLContext | bool = False
        if self.uri.lower().startswith("https"):
            try:
                verify = ssl.create_default_context(cafile=self.trust_store)
            except (OSError, ValueError) as error:
                raise InvalidArgumentError(
                    f"setting trust_store: the PEM file {self.trust_store!r} cannot be used: {error}"
                ) from error
            verify.check_hostname = self.validate_hostname
        return {
            "base_url": self.uri,
            "headers": headers,
            "verify": verify,
            # Neither proxies nor accounts of the environment: the server is on the same network.
            "trust_env": False,
            "timeout": httpx.Timeout(self.timeout),
        }

    def query(self, request: Request) -> dict[str, str]:
        """Return the parameters of a request's query."""
        return dict(request.query) | ({} if self.namespace is None else {"namespace": self.namespace})

    def check_certificate(self, error: BaseException) -> None:
        """Raise the error for a TLS handshake that failed, which another attempt would not change.

        :raises TlsError: ``error`` is about one.
        """
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, ssl.SSLError):
                raise TlsError(
                    f"the TLS connection to the schema registry at {self.uri} failed: {cause}"
                ) from error
            cause = cause.__cause__ or cause.__context__

    def unreachable(self, error: BaseException | None) -> SchemaRegistryUnreachableError:
        """Return the error for a registry that could not be asked."""
        host = self.uri.partition("://")[2].partition("/")[0]
        why = "it did not answer" if error is None else (str(error) or type(error).__name__)
        return SchemaRegistryUnreachableError(
            f"the schema registry at {self.uri} could not be asked within {self.timeout:g} s: {why}",
            host=host,
        )


def _httpx() -> Any:
    try:
        import httpx
    except ImportError as error:
        raise MissingExtraError(
            "the schema registry needs the package httpx: pip install 'pravega-wire[schemas]'"
        ) from error
    return httpx


class _Attempts:
    """Which failures of a request are followed by another attempt, and after which pause."""

    def __init__(self, settings: Settings, request: Request) -> None:
        self._settings = settings
        self._request = request
        self._made = 0

    def pause(self, failure: Exception | Reply) -> float | None:
        """Return the seconds to wait before the next attempt, or None for no further one."""
        self._made += 1
        if self._made >= _ATTEMPTS:
            return None
        if isinstance(failure, Reply):
            if not self._request.repeatable:
                return None
        elif not (self._request.repeatable or isinstance(failure, _httpx().ConnectError)):
            return None
        # A connection that the registry has closed while it was idle is replaced at once.
        if self._made > 1 or isinstance(failure, Reply | _httpx().ConnectError | _httpx().TimeoutException):
            uri = self._settings.uri
            why = (
                f"it answered with status {failure.status}"
                if isinstance(failure, Reply)
                else str(failure) or type(failure).__name__
            )
            tell(
                f"asking the schema registry at {uri}",
                why,
                f"up to {_ATTEMPTS} times within {self._settings.timeout:g} s (timeout)",
                (Transport, uri),
            )
        return _FIRST_PAUSE * float(3 ** (self._made - 1))


def _body(request: Request) -> dict[str, Any]:
    """Return the arguments of ``httpx`` for a request's body.

    :raises InvalidArgumentError: it has what JSON cannot represent.
    """
    if request.body is None:
        return {"headers": {}, "content": None}
    try:
        data = json.dumps(request.body, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(
            f"what is to be sent to the schema registry cannot be written as JSON: {error}"
        ) from error
    return {"headers": {"content-type": "application/json"}, "content": data}


def _failures() -> tuple[type[Exception], ...]:
    httpx = _httpx()
    return (httpx.TransportError, httpx.DecodingError, httpx.InvalidURL)


class Transport:
    """Makes calls; the thread waits for them. Threads may share it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._client: httpx.Client | None = _httpx().Client(**settings.options())
        self._process = os.getpid()

    def _here(self) -> httpx.Client:
        """Return the client of this process: a fork would get answers to its parent's requests."""
        if self._client is None:
            raise ClosedError("the schema registry's client is closed")
        if self._process != os.getpid():
            self._client, self._process = _httpx().Client(**self.settings.options()), os.getpid()
        return self._client

    def run(self, steps: Steps[T]) -> T:
        """Make a call.

        :raises SchemaRegistryUnreachableError: the registry could not be asked in time.
        """
        deadline = environment().monotonic() + self.settings.timeout
        try:
            request = next(steps)
            while True:
                request = steps.send(self._reply(request, deadline))
        except StopIteration as stop:
            found: T = stop.value
            return found

    def _reply(self, request: Request, deadline: float) -> Reply:
        attempts = _Attempts(self.settings, request)
        while True:
            failure: Exception | Reply
            try:
                failure = self._attempt(request, deadline)
                if failure.status not in _BUSY:
                    return failure
            except _failures() as error:
                self.settings.check_certificate(error)
                failure = error
            pause = attempts.pause(failure)
            if pause is None or environment().monotonic() + pause >= deadline:
                if isinstance(failure, Reply):
                    return failure
                raise self.settings.unreachable(failure) from failure
            time.sleep(pause)

    def _attempt(self, request: Request, deadline: float) -> Reply:
        parts: list[bytes] = []
        with self._here().stream(
            request.method,
            request.path,
            params=self.settings.query(request),
            **_body(request),
            timeout=max(0.001, deadline - environment().monotonic()),
        ) as response:
            received = 0
            for part in response.iter_bytes():
                parts.append(part)
                received += len(part)
                if received > _MOST_BYTES:
                    raise SchemaRegistryReplyError(
                        f"the schema registry's answer is larger than {_MOST_BYTES} bytes"
                    )
                if environment().monotonic() > deadline:
                    raise self.settings.unreachable(None)
            return Reply(response.status_code, b"".join(parts))

    def close(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None and self._process == os.getpid():
            client.close()


async def in_thread(function: Callable[[], T]) -> T:
    """Call a function in a thread, for a task of trio or asyncio. A cancelled one is left to the thread."""
    if trio.lowlevel.in_trio_task():
        return await trio.to_thread.run_sync(function, abandon_on_cancel=True)
    import asyncio

    loop = asyncio.get_running_loop()
    ended: asyncio.Future[outcome.Outcome[T]] = loop.create_future()

    def settle(result: outcome.Outcome[T]) -> None:
        if not ended.done():
            ended.set_result(result)

    def deliver(result: outcome.Outcome[T]) -> None:
        with suppress(RuntimeError):  # the event loop has ended
            loop.call_soon_threadsafe(settle, result)

    # A thread of asyncio's pool would keep a program from ending until the registry has answered.
    trio.lowlevel.start_thread_soon(function, deliver)
    return (await ended).unwrap()
