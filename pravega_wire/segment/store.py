"""Requests to segment stores: finding the store of a segment, one request, retries.

:class:`SegmentStores` is what the writers, readers and metadata calls of a client share.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import trio

from pravega_wire.errors import (
    ConnectionLostError,
    PravegaError,
    RetriesExhaustedError,
    TokenExpiredError,
    TransportError,
)
from pravega_wire.metrics import Counters
from pravega_wire.naming import parse_segment_name
from pravega_wire.protocol import commands as c
from pravega_wire.segment.failures import error_of
from pravega_wire.transport.connection import Flow
from pravega_wire.transport.pool import ConnectionPool

__all__ = ["Backoff", "SegmentStores", "SegmentTarget"]

Endpoint = tuple[str, int]


class TokenSource(Protocol):
    """Gives delegation tokens, and is told when one was refused for its age."""

    async def __call__(self) -> str:
        """A token that is good now; "" without authorization."""

    def expire(self) -> None:
        """The last token was refused."""


R = TypeVar("R", bound=c.Command)

_CACHE_SECONDS = 20.0
_CACHE_ENTRIES = 10_000


class _NoToken:
    """The token of a server without authorization: the empty string."""

    async def __call__(self) -> str:
        await trio.lowlevel.checkpoint()
        return ""

    def expire(self) -> None:
        pass


NO_TOKEN = _NoToken()


@dataclass(frozen=True, slots=True)
class SegmentTarget:
    """A segment, and where its token comes from.

    :param name: full segment name. :param scope, stream, segment_id: what the controller looks
        the store up by; for a transaction or staging segment its parent's.
    """

    name: str
    scope: str
    stream: str
    segment_id: int
    token: TokenSource = NO_TOKEN

    def check_token(self, error: PravegaError, *, set_up: bool) -> None:
        """Take another token next time, if the one of an appender's session may be what ended it.

        A 0.13.0 store answers a set-up whose token has expired by closing the connection.

        :param set_up: whether the session's set-up was answered.
        """
        if isinstance(error, TokenExpiredError) or (isinstance(error, ConnectionLostError) and not set_up):
            self.token.expire()

    @classmethod
    def of(cls, name: str, token: TokenSource = NO_TOKEN) -> SegmentTarget:
        """The target that a segment's own name describes."""
        scope, stream, segment_id, _ = parse_segment_name(name)
        return cls(name, scope, stream, segment_id, token)


class Backoff:
    """Pauses between attempts, until a total time is used up.

    The pause starts at 5 ms and doubles up to ``longest``; the first retry comes at once, because
    most failures are a stale address. Reset it after a success.
    """

    __slots__ = ("_deadline", "_longest", "_pause", "_total", "attempts")

    def __init__(self, total: float, longest: float = 2.0) -> None:
        self._total = total
        self._longest = longest
        self.reset()

    def reset(self) -> None:
        """Forget earlier failures."""
        self.attempts = 0
        self._pause = 0.0
        self._deadline = math.inf

    async def wait(self) -> bool:
        """Pause before the next attempt; False when the total time is used up."""
        now = trio.current_time()
        if self.attempts == 0:
            self._deadline = now + self._total
        self.attempts += 1
        if now >= self._deadline:
            return False
        await trio.sleep(min(self._pause, self._deadline - now))
        self._pause = min(self._longest, self._pause * 2 or 0.005)
        return True


class _Request:
    """The single outstanding request of a flow that lives as long as the request."""

    __slots__ = ("done", "error", "reply", "request_id")

    def __init__(self) -> None:
        self.request_id = -1
        self.reply: c.Command | None = None
        self.error: PravegaError | None = None
        self.done = trio.Event()

    def on_reply(self, reply: c.Command) -> bool:
        if c.reply_request_id(reply) != self.request_id:
            return False
        self.reply = reply
        self.done.set()
        return True

    def on_lost(self, error: PravegaError) -> None:
        self.error = error
        self.done.set()


class SegmentStores:
    """The segment stores of a cluster, as one client sees them.

    :param locate: asks the controller which store serves a segment:
        ``(scope, stream, segment_id) -> (host, port)``.
    :param operation_timeout: seconds an operation is tried again while its store cannot be
        reached or the segment is moving.
    :param counters: what reading and writing is counted in.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        locate: Callable[[str, str, int], Awaitable[Endpoint]],
        *,
        operation_timeout: float,
        counters: Counters | None = None,
    ) -> None:
        self.counters = Counters() if counters is None else counters
        self.pool = pool
        self.operation_timeout = operation_timeout
        self._locate = locate
        self._endpoints: OrderedDict[tuple[str, str, int], tuple[Endpoint, float]] = OrderedDict()

    # --- where a segment lives ------------------------------------------------------------------

    async def endpoint(self, target: SegmentTarget) -> Endpoint:
        """``(host, port)`` of the store that serves the segment; remembered for 20 s."""
        key = (target.scope, target.stream, target.segment_id)
        cached = self._endpoints.get(key)
        if cached is not None and trio.current_time() - cached[1] < _CACHE_SECONDS:
            return cached[0]
        found = await self._locate(*key)
        self._endpoints[key] = (found, trio.current_time())
        self._endpoints.move_to_end(key)
        if len(self._endpoints) > _CACHE_ENTRIES:
            self._endpoints.popitem(last=False)
        return found

    def forget(self, target: SegmentTarget, failed: Endpoint | None = None) -> None:
        """Drop a remembered address, unless it was replaced since ``failed`` was handed out."""
        key = (target.scope, target.stream, target.segment_id)
        cached = self._endpoints.get(key)
        if cached is not None and (failed is None or cached[0] == failed):
            del self._endpoints[key]

    # --- one request ----------------------------------------------------------------------------

    async def call(
        self,
        target: SegmentTarget,
        build: Callable[[int, str], c.Command],
        *expected: type[R],
        doing: str,
    ) -> R:
        """Send one request and return its reply, trying again after passing failures.

        :param build: makes the command from a request id and a delegation token.
        :param expected: reply classes that mean success; any other becomes an error.
        :param doing: what is being asked, for messages ("truncating").
        :raises SegmentError: a refusal (the subclass says which).
        :raises RetriesExhaustedError: the store could not be reached for ``operation_timeout``.
        """

        async def attempt() -> R:
            return await self.once(target, build, *expected, doing=doing)

        return await self.retrying(attempt, target.name, doing)

    async def once(
        self,
        target: SegmentTarget,
        build: Callable[[int, str], c.Command],
        *expected: type[R],
        doing: str,
    ) -> R:
        """One attempt of :meth:`call`; a retriable failure has cleared the way for the next.

        :param build: is called only when its command is going to be sent: an attempt that fails without that
            has not reached a store.
        :raises TransportError: no connection, or it was lost. :raises SegmentError: a refusal.
        """
        endpoint = await self.endpoint(target)
        try:
            reply, host = await self._ask(endpoint, target, build)
        except TransportError:
            self.forget(target, endpoint)
            raise
        if isinstance(reply, expected):
            return reply
        if isinstance(reply, c.WrongHost):
            self.forget(target, endpoint)
        error = error_of(reply, segment=target.name, host=host, doing=doing)
        if isinstance(error, TokenExpiredError):
            target.token.expire()
        raise error

    async def retrying(self, attempt: Callable[[], Awaitable[T]], segment: str, doing: str) -> T:
        """Run ``attempt`` until it succeeds or fails for good (see :meth:`call`)."""
        backoff = Backoff(self.operation_timeout)
        while True:
            try:
                return await attempt()
            except PravegaError as error:
                if not error.retriable:
                    raise
                last = error
            if not await backoff.wait():
                raise RetriesExhaustedError(
                    f"{doing} {segment}: gave up after {backoff.attempts} attempts in "
                    f"{self.operation_timeout:g} s, the last failed with: {last.message}",
                    segment=segment,
                    host=last.host,
                ) from last

    async def _ask(
        self, endpoint: Endpoint, target: SegmentTarget, build: Callable[[int, str], c.Command]
    ) -> tuple[c.Command, str]:
        token = await target.token()
        request = _Request()
        flow: Flow = await self.pool.flow(endpoint, request)
        try:
            request.request_id = flow.next_request_id()
            flow.send(build(request.request_id, token))
            await request.done.wait()
        finally:
            flow.close()
        if request.reply is None:
            assert request.error is not None
            raise request.error
        return request.reply, flow.connection.host


T = TypeVar("T")
