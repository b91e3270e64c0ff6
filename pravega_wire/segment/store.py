"""Requests to segment stores: finding the store of a segment, making a request, retrying it.

:class:`SegmentStores` is shared by the writers, readers and metadata calls of a client.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import get_ident
from typing import Protocol, TypeVar

import trio

from pravega_wire.errors import (
    ConnectionLostError,
    PravegaError,
    ProtocolError,
    TokenExpiredError,
    TransportError,
)
from pravega_wire.metrics import Counters
from pravega_wire.protocol import commands as c
from pravega_wire.segment.failures import error_of, named
from pravega_wire.support.nurseries import check_run
from pravega_wire.support.trouble import Trouble
from pravega_wire.transport.connection import Flow
from pravega_wire.transport.limits import Limits, limit, note_failure
from pravega_wire.transport.pool import ConnectionPool
from pravega_wire.values.naming import parse_segment_name
from pravega_wire.values.types import Endpoint, endpoint_text

__all__ = ["Backoff", "SegmentStores", "SegmentTarget"]


class TokenSource(Protocol):
    """Provides delegation tokens, and is notified when a token was refused because it has expired."""

    async def __call__(self) -> str:
        """Return a token that is valid now; "" without authorization."""

    def expire(self) -> None:
        """Record that the last token was refused."""


R = TypeVar("R", bound=c.Command)

_CACHE_SECONDS = 20.0
_SHORTEST_SECONDS = 0.001
"""Too little for another attempt: the clock may not advance during it."""
_CACHE_ENTRIES = 10_000


class _NoToken:
    """Token source for a server without authorization: the empty string."""

    async def __call__(self) -> str:
        await trio.lowlevel.checkpoint()
        return ""

    def expire(self) -> None:
        pass


NO_TOKEN = _NoToken()


@dataclass(frozen=True, slots=True)
class SegmentTarget:
    """A segment, and where its token comes from.

    :param name: full name of the segment.
    :param scope: scope by which the controller finds the segment's store.
    :param stream: stream by which the controller finds the store.
    :param segment_id: segment id by which the controller finds the store; for a transaction or staging
        segment the id of its parent.
    :param token: source of its delegation tokens.
    """

    name: str
    scope: str
    stream: str
    segment_id: int
    token: TokenSource = NO_TOKEN

    def check_token(self, error: PravegaError, *, set_up: bool) -> None:
        """Take another token next time, if an append session may have ended because of its token.

        A 0.13.0 store closes the connection on a set-up whose token has expired
        (``docs/protocol/unforgiving.md``, "Expired tokens").

        :param error: what ended the session.
        :param set_up: whether the session's set-up was answered.
        """
        if isinstance(error, TokenExpiredError) or (isinstance(error, ConnectionLostError) and not set_up):
            self.token.expire()

    @classmethod
    def of(cls, name: str, token: TokenSource = NO_TOKEN) -> SegmentTarget:
        """Return the target that is described by a segment's name alone."""
        scope, stream, segment_id, _ = parse_segment_name(name)
        return cls(name, scope, stream, segment_id, token)


class Backoff:
    """Pauses between attempts, until a total time is used up.

    Where a :func:`limit` ends the attempts, the pauses need no total of their own: progress and the user's
    functions move the limit, and the pauses must go on until then.

    The clock starts when it is first read, or with :meth:`reset`. The first retry is made at once, because
    most failures are a stale address. Later pauses start at 5 ms and double up to ``longest``.

    :param total: total time, seconds; by default any.
    :param longest: longest pause, seconds.
    :param clock: function that returns seconds. Outside of trio pass another one than trio's, and use
        :meth:`next_pause`.
    :ivar attempts: number of failed attempts since the last reset.
    """

    __slots__ = ("_clock", "_longest", "_pause", "_started", "_total", "_trouble", "attempts")

    def __init__(
        self, total: float = math.inf, longest: float = 2.0, *, clock: Callable[[], float] = trio.current_time
    ) -> None:
        self._clock = clock
        self._total = total
        self._longest = longest
        self._pause = 0.0
        self._started: float | None = None
        self._trouble = Trouble()
        self.attempts = 0

    def reset(self, ago: float = 0.0) -> None:
        """Forget earlier failures, and start the clock.

        :param ago: how many seconds ago the failure that is noticed now began.
        """
        self.attempts = 0
        self._trouble.reset()
        self._pause = 0.0
        self._started = self._clock() - ago

    def arriving(self) -> None:
        """Start the clock again, because an answer is arriving: that it is slow is no failure.

        After a failure the time goes on: each connection may bring a part of an answer, never a whole one.
        """
        if not self.attempts:
            self.reset()

    def not_before(self, ago: float) -> None:
        """Move the start of the clock to ``ago`` seconds ago if it started earlier."""
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
        """Remaining seconds of the total; never negative."""
        return max(0.0, self._total - self.taken)

    def attempt_left(self, attempt: float) -> float:
        """Return the seconds for the next attempt: those left, but at least ``attempt`` after one failure."""
        return self.left if self.attempts > 1 else max(self.left, attempt)

    def failed(self, error: PravegaError, doing: str) -> None:
        """Log that an attempt failed and that another one is made, where no operation does that.

        :param error: why the attempt failed.
        :param doing: what is being done.
        """
        self._trouble.note(error, doing, seconds=self._total, setting="operation_timeout", taken=self.taken)

    def next_pause(self) -> float | None:
        """Return the seconds to wait before the next attempt; None if the total time is used up.

        The first failure never uses it up: a process that was suspended may have noticed it late.
        """
        left = self.left
        self.attempts += 1
        if left < _SHORTEST_SECONDS and self.attempts > 1:
            return None
        pause = min(self._pause, left)
        self._pause = min(self._longest, self._pause * 2 or 0.005)
        return pause

    async def wait(self) -> bool:
        """Pause before the next attempt; return False if the total time is used up."""
        pause = self.next_pause()
        if pause is None:
            return False
        await trio.sleep(pause)
        return True


class _Request:
    """The only request of a flow that is closed when the request ends."""

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
    """One attempt to reach a store; its owner records the flow that it uses."""

    __slots__ = ("flow", "scope")

    def __init__(self, scope: trio.CancelScope) -> None:
        self.flow: Flow | None = None
        self.scope = scope


class SegmentStores:
    """The segment stores of a cluster, as one client sees them.

    :param pool: connections to the stores.
    :param locate: asks the controller which store serves a segment:
        ``(scope, stream, segment_id) -> (host, port)``.
    :param operation_timeout: seconds that an operation may take with all its attempts.
    :param counters: where reads and writes are counted.
    :ivar limits: the shorter limits that follow from ``operation_timeout``.
    :ivar thread: the thread of the client's trio run.
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
        self.thread = get_ident()
        self._endpoints: OrderedDict[tuple[str, str, int], tuple[Endpoint, float]] = OrderedDict()

    # --- where a segment lives ------------------------------------------------------------------

    async def endpoint(self, target: SegmentTarget) -> Endpoint:
        """Return the ``(host, port)`` of the store that serves the segment; it is cached for 20 s.

        :raises InvalidArgumentError: this is not the trio run that opened the client.
        """
        check_run(self.thread)
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
        """Drop a cached address.

        :param target: the segment.
        :param failed: the address that has failed; a newer one that has replaced it is kept. None drops any.
        """
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
        """Send one request and return its reply; retry after failures that can pass.

        :param target: the segment.
        :param build: makes the command from a request id and a delegation token.
        :param expected: reply classes that mean success; any other reply becomes an error.
        :param doing: what is being done, for messages ("truncating").
        :param patient: see :meth:`once`.
        :raises ServerTooOldError: the store does not know the command, which was not sent.
        :raises SegmentError: the store refused the request; the subclass tells why.
        :raises RetriesExhaustedError: no attempt succeeded within ``operation_timeout``.
        :raises PravegaTimeoutError: no answer arrived within ``operation_timeout``, and no attempt had
            failed.
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
        """Make one attempt of :meth:`call`. After a retriable failure another attempt can be made at once.

        :param target: the segment.
        :param build: makes the command from a request id and a delegation token. It is called only when the
            command is about to be sent: an attempt that fails before that has not reached a store.
        :param expected: reply classes that mean success; any other reply becomes an error.
        :param doing: what is being done, for messages.
        :param patient: wait for the answer as long as the connection lasts, because it would be harmful to
            send the request again while the store is still working on it.
        :raises TransportError: there is no connection, or it was lost.
        :raises ServerTooOldError: the store does not know the command, which was not sent.
        :raises SegmentError: the store refused the request.
        """
        endpoint = await self.endpoint(target)
        try:
            reply, host = await self._ask(endpoint, target, build, doing, patient=patient)
        except TransportError:
            self.forget(target, endpoint)
            raise
        except ProtocolError as malformed:
            raise named(malformed, target.name, doing)  # noqa: B904  # it has its cause
        if isinstance(reply, expected):
            return reply
        if isinstance(reply, c.WrongHost):
            self.forget(target, endpoint)
        error = error_of(reply, segment=target.name, host=host, doing=doing)
        if isinstance(error, TokenExpiredError):
            target.token.expire()
        raise error

    async def retrying(self, attempt: Callable[[], Awaitable[T]], segment: str, doing: str) -> T:
        """Run ``attempt`` until it succeeds or fails with an error that is not retriable.

        The errors are those of :meth:`call`.

        :param attempt: makes one attempt.
        :param segment: full name of the segment, for messages.
        :param doing: what is being done, for messages.
        """
        backoff = Backoff()
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
        doing: str,
        *,
        patient: bool,
    ) -> tuple[c.Command, str]:
        token = await target.token()
        request = _Request()
        with self.attempt_limit(f"an answer about {target.name}", endpoint) as attempt:
            flow = attempt.flow = await self.pool.flow(endpoint, request)
            try:
                request.request_id = flow.next_request_id()
                command = build(request.request_id, token)
                if command.SINCE:
                    features = await flow.connection.features()
                    features.check(type(command), f"{doing} {target.name}")
                flow.send(command)
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
        """Limit one attempt to reach a store: connecting, sending and waiting for the answer.

        When the time is over, the connection takes no new flows, so the next attempt uses another one.

        :param awaited: what is waited for, for the message.
        :param endpoint: address of the store, for the message.
        :raises ConnectionLostError: the time is over.
        """
        with trio.move_on_after(self.limits.attempt) as scope:
            attempt = Attempt(scope)
            yield attempt
        if scope.cancelled_caught:
            if attempt.flow is not None:
                attempt.flow.connection.retire()
            host = endpoint_text(endpoint)
            raise ConnectionLostError(
                f"{host} did not provide {awaited} within {self.limits.attempt:.3g} s", host=host
            )


T = TypeVar("T")
