"""Requests to segment stores: finding the store of a segment, one request, retries.

:class:`SegmentStores` is what the writers, readers and metadata calls of a client share.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

import trio

from pravega_wire.errors import (
    ConnectionLostError,
    PravegaError,
    TokenExpiredError,
    TransportError,
)
from pravega_wire.metrics import Counters
from pravega_wire.naming import parse_segment_name
from pravega_wire.protocol import commands as c
from pravega_wire.segment.failures import error_of
from pravega_wire.transport.connection import Flow
from pravega_wire.transport.limits import Limits, limit, note_failure
from pravega_wire.transport.pool import ConnectionPool
from pravega_wire.types import Endpoint

__all__ = ["Backoff", "SegmentStores", "SegmentTarget"]


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

    :param name: full segment name.
    :param scope, stream, segment_id: what the controller looks
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

    The clock starts at the first look at it, or with :meth:`reset`. The pause starts at 5 ms and doubles up
    to ``longest``; the first retry comes at once, because most failures are a stale address.

    :param clock: gives seconds; another than trio's outside of trio, together with :meth:`next_pause`.
    """

    __slots__ = ("_clock", "_longest", "_pause", "_started", "_total", "attempts")

    def __init__(
        self, total: float, longest: float = 2.0, *, clock: Callable[[], float] = trio.current_time
    ) -> None:
        self._clock = clock
        self._total = total
        self._longest = longest
        self._pause = 0.0
        self._started: float | None = None
        self.attempts = 0

    def reset(self, ago: float = 0.0) -> None:
        """Forget earlier failures.

        :param ago: seconds since the trouble began that is noticed now.
        """
        self.attempts = 0
        self._pause = 0.0
        self._started = self._clock() - ago

    def not_before(self, ago: float) -> None:
        """Let the clock have started ``ago`` seconds ago if it started earlier."""
        started = self._clock() - ago
        self._started = started if self._started is None else max(self._started, started)

    @property
    def taken(self) -> float:
        """Seconds since the clock started."""
        if self._started is None:
            self._started = self._clock()
        return self._clock() - self._started

    @property
    def left(self) -> float:
        """Seconds that are left of the total; never negative."""
        return max(0.0, self._total - self.taken)

    def attempt_left(self, attempt: float) -> float:
        """Seconds for the next attempt: what is left, but enough for one after the first failure."""
        return self.left if self.attempts > 1 else max(self.left, attempt)

    def next_pause(self) -> float | None:
        """Seconds to wait before the next attempt; None when the total time is used up.

        It is never used up by the first failure, which a process that was stopped may have noticed late.
        """
        left = self.left
        self.attempts += 1
        if left <= 0 and self.attempts > 1:
            return None
        pause = min(self._pause, left)
        self._pause = min(self._longest, self._pause * 2 or 0.005)
        return pause

    async def wait(self) -> bool:
        """Pause before the next attempt; False when the total time is used up (see :meth:`next_pause`)."""
        pause = self.next_pause()
        if pause is None:
            return False
        await trio.sleep(pause)
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


class Attempt:
    """One attempt to reach a store; its owner notes the flow that it uses."""

    __slots__ = ("flow", "scope")

    def __init__(self, scope: trio.CancelScope) -> None:
        self.flow: Flow | None = None
        self.scope = scope


class SegmentStores:
    """The segment stores of a cluster, as one client sees them.

    :param locate: asks the controller which store serves a segment:
        ``(scope, stream, segment_id) -> (host, port)``.
    :param operation_timeout: seconds an operation may take with all its attempts.
    :ivar limits: the shorter limits that follow from it.
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
        self.limits = Limits.of(operation_timeout)
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
        patient: bool = False,
    ) -> R:
        """Send one request and return its reply, trying again after passing failures.

        :param build: makes the command from a request id and a delegation token.
        :param expected: reply classes that mean success; any other becomes an error.
        :param doing: what is being asked, for messages ("truncating").
        :param patient: see :meth:`once`.
        :raises SegmentError: a refusal (the subclass says which).
        :raises RetriesExhaustedError: no attempt succeeded within ``operation_timeout``.
        :raises PravegaTimeoutError: nothing answered within it.
        """

        async def attempt() -> R:
            return await self.once(target, build, *expected, doing=doing, patient=patient)

        return await self.retrying(attempt, target.name, doing)

    async def once(
        self,
        target: SegmentTarget,
        build: Callable[[int, str], c.Command],
        *expected: type[R],
        doing: str,
        patient: bool = False,
    ) -> R:
        """One attempt of :meth:`call`; a retriable failure has cleared the way for the next.

        :param patient: wait for the answer as long as the connection lives: sending it again while the store
            still works on it would do harm.
        :param build: is called only when its command is going to be sent: an attempt that fails without that
            has not reached a store.
        :raises TransportError: no connection, or it was lost.
        :raises SegmentError: a refusal.
        """
        endpoint = await self.endpoint(target)
        try:
            reply, host = await self._ask(endpoint, target, build, patient=patient)
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
        with limit(self.operation_timeout, f"{doing} {segment}"):
            while True:
                try:
                    return await attempt()
                except PravegaError as error:
                    if not error.retriable:
                        raise
                    note_failure(error)
                await backoff.wait()
        raise AssertionError("not reached")  # the limit raises when it ends the loop

    async def _ask(
        self,
        endpoint: Endpoint,
        target: SegmentTarget,
        build: Callable[[int, str], c.Command],
        *,
        patient: bool,
    ) -> tuple[c.Command, str]:
        token = await target.token()
        request = _Request()
        with self.attempt_limit(f"an answer about {target.name}", endpoint) as attempt:
            flow = attempt.flow = await self.pool.flow(endpoint, request)
            try:
                request.request_id = flow.next_request_id()
                flow.send(build(request.request_id, token))
                if patient:
                    attempt.scope.deadline = math.inf
                await request.done.wait()
            finally:
                flow.close()
        if request.reply is None:
            assert request.error is not None
            raise request.error
        return request.reply, flow.connection.host

    @contextmanager
    def attempt_limit(self, awaited: str, endpoint: Endpoint) -> Iterator[Attempt]:
        """Bound one attempt to reach a store: connecting, asking, the answer.

        When the time is over the connection takes no new flows: the next attempt uses another one.

        :param awaited: what is waited for, for the message.
        :raises ConnectionLostError: the time is over.
        """
        with trio.move_on_after(self.limits.attempt) as scope:
            attempt = Attempt(scope)
            yield attempt
        if scope.cancelled_caught:
            if attempt.flow is not None:
                attempt.flow.connection.retire()
            host = f"{endpoint[0]}:{endpoint[1]}"
            raise ConnectionLostError(
                f"{host} did not give {awaited} in {self.limits.attempt:.3g} s", host=host
            )


T = TypeVar("T")
