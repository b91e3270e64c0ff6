"""Appending to one segment: the session with its store (``docs/protocol/wire.md``, "Append sessions").

A :class:`SegmentAppender` has one writer id on one segment. Its
:class:`~pravega_wire.protocol.append.Appends`, which does no I/O, keeps what is gathered, sent and
acknowledged. This module has the connection, the set-up, the attempts after a failure, and their time limits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from threading import get_ident
from typing import Any, Final
from uuid import UUID

import trio

from pravega_wire.errors import (
    AuthError,
    ClosedError,
    ConnectionLostError,
    IncompatibleVersionError,
    InvalidArgumentError,
    NoSuchSegmentError,
    NotFoundError,
    PravegaError,
    ProtocolError,
    RetriesExhaustedError,
    SegmentSealedError,
    ServerEndedError,
    TlsError,
    TokenExpiredError,
    UnexpectedReplyError,
)
from pravega_wire.protocol import commands as c
from pravega_wire.protocol.append import Appends, Block, Durable, Promise, Stored, settle
from pravega_wire.segment.failures import error_of, named
from pravega_wire.segment.metadata import SegmentMetadata
from pravega_wire.segment.store import Backoff, SegmentStores, SegmentTarget
from pravega_wire.support.environment import environment
from pravega_wire.support.nurseries import check_run
from pravega_wire.transport.connection import Flow

__all__ = ["Ack", "AppenderOwner", "SegmentAppender", "flush"]

_GARBAGE_ATTEMPTS: Final = 3


class Ack(Promise):
    """The acknowledgement of one event, or of several that were written together.

    :meth:`wait` returns when all of them are durable, and raises an error if they are not. Many events may
    share one object.

    Example::

        async with client.event_writer("demo/readings") as writer:
            ack = await writer.write_event(b"22.5", "sensor-1")
            await ack
    """

    __slots__ = ("_event", "_hurry", "_thread")

    def __init__(self, pending: int = 1, hurry: Callable[[], None] | None = None) -> None:
        super().__init__(pending)
        # Makes a writer send what it would keep until a block is full.
        self._hurry = hurry
        self._event: trio.Event | None = None
        self._thread = get_ident()

    def __repr__(self) -> str:
        if self._error is not None:
            return f"<Ack failed: {type(self._error).__name__}>"
        return "<Ack done>" if self.done else "<Ack pending>"

    def __await__(self) -> Generator[Any, Any, None]:
        """``await ack`` is ``await ack.wait()``."""
        return self.wait().__await__()

    async def wait(self) -> None:
        """Wait until every event is stored. Cancelling this has no effect on the events.

        :raises PravegaError: the writer failed. It is unknown whether the events are stored, unless the
            error says so.
        """
        if self._pending > 0:
            check_run(self._thread)
            if self._event is None:
                self._event = trio.Event()
            if self._hurry is not None:
                self._hurry()
            await self._event.wait()
        else:
            await trio.lowlevel.checkpoint()
        if self._error is not None:
            raise self._error

    def _on_done(self) -> None:
        if self._event is not None:
            self._event.set()


@dataclass(frozen=True, slots=True)
class AppenderOwner:
    """What the writer that owns appenders does with their reports.

    :ivar acknowledged: counts events that are stored: bytes with headers, number, seconds since they were
        sent.
    :ivar resent: counts blocks that were sent again: number of blocks, number of events, bytes with headers.
    :ivar reconnecting: counts a session that has failed and is replaced by another one.
    :ivar failed: handles the final failure of an appender; its blocks are still unacknowledged.
    :ivar sealed: handles a segment that takes no more events. Afterwards the appender is finished.
    """

    acknowledged: Callable[[int, int, float], None]
    resent: Callable[[int, int, int], None]
    reconnecting: Callable[[PravegaError], None]
    failed: Callable[[SegmentAppender, PravegaError], None]
    sealed: Callable[[SegmentAppender, PravegaError], Awaitable[None]]


class SegmentAppender:
    """Appends to one segment; :meth:`run` must be running in the owner's nursery.

    All methods except :meth:`run` are synchronous and must be called from the same trio thread.

    :param stores: the segment stores.
    :param target: the segment.
    :param owner: is notified of what happens.
    :param writer_id: writer id on the segment; by default a random one.
    :param new_ack: function that makes the acknowledgement of a block.
    :ivar appends: what is appended. Call :meth:`pump` after putting events into it.
    :ivar on_first_send: function that is called with the framed events of each block when it is sent for the
        first time: once for each block, in the order in which they are stored.
    """

    def __init__(
        self,
        stores: SegmentStores,
        target: SegmentTarget,
        owner: AppenderOwner,
        *,
        writer_id: UUID | None = None,
        new_ack: Callable[[], Ack] = Ack,
    ) -> None:
        self.target = target
        self.appends = Appends(target.name, writer_id or environment().new_id(), new_ack)
        self._stores = stores
        self._owner = owner
        self._clock = environment().monotonic
        self._flow: Flow | None = None
        self._finished = False
        self._progress = False
        self._failure: PravegaError | None = None
        self._trouble_for: float | None = None
        self._last_ack = 0.0
        self._sessions = 0
        self._disrupted = trio.Event()
        self._work = trio.Event()
        self._setup: c.AppendSetup | None = None
        self._setup_done = trio.Event()
        self.on_first_send: Callable[[memoryview], None] | None = None

    # --- what the owner calls -------------------------------------------------------------------

    def pump(self, *, at_lull: bool = False) -> None:
        """Send what may be sent now. Needed once the open block has reached ``appends.due_at``.

        :param at_lull: whether no task is about to append more.
        """
        appends = self.appends
        if not appends.ready:
            if not self._work.is_set():
                self._work.set()
            return
        flow = self._flow
        assert flow is not None
        connection = flow.connection
        if connection.closed:
            return
        request_id = flow.base_request_id
        while (
            sent := appends.next_frame(
                request_id, self._clock(), writable=connection.writable, at_lull=at_lull
            )
        ) is not None:
            frame, payload = sent
            connection.send_parts([frame])
            if self.on_first_send is not None:
                self.on_first_send(payload)
        if appends.awaits_lull and not at_lull:
            self._stores.pool.lull.call(self._pump_at_lull)

    def _pump_at_lull(self) -> None:
        self.pump(at_lull=True)

    def force(self) -> None:
        """Send everything gathered so far, without waiting until a block is full."""
        self.appends.force()
        self.pump()

    def finish(self) -> None:
        """Stop; :meth:`run` returns. Unacknowledged blocks are left as they are."""
        self._finished = True
        self._disrupt(ClosedError(f"writing to {self.target.name} has ended"))
        self._work.set()

    def fail(self, error: PravegaError) -> None:
        """Stop like :meth:`finish`; what is not acknowledged fails with ``error``."""
        self.appends.fail(error)
        self.finish()

    def leave_out(self, stored: Stored) -> None:
        """Drop the events, numbered by the caller, that this process or another one has already stored."""
        self._tell(self.appends.leave_out(stored))

    def _tell(self, durable: Iterable[Durable]) -> None:
        for size, count, seconds in durable:
            self._progress = True
            self._owner.acknowledged(size, count, seconds)

    # --- replies --------------------------------------------------------------------------------

    def on_reply(self, reply: c.Command) -> bool:
        """See :class:`FlowHandler`."""
        if self._finished:
            # Its blocks belong to the owner now.
            return True
        if type(reply) is c.DataAppended:
            now = self._last_ack = self._clock()
            try:
                durable = self.appends.acknowledge(reply, now)
            except UnexpectedReplyError as error:
                self._disrupt(error)
            else:
                self._tell(durable)
                self.pump()
        elif type(reply) is c.AppendSetup:
            self._setup = reply
            self._setup_done.set()
        else:
            host = self._flow.connection.host if self._flow is not None else "?"
            self._disrupt(error_of(reply, segment=self.target.name, host=host, doing="appending"))
        return True

    def on_lost(self, error: PravegaError) -> None:
        """See :class:`FlowHandler`."""
        self._disrupt(error)

    def _disrupt(self, error: PravegaError) -> None:
        if self._failure is None:
            self._failure = error
        self.appends.disconnect()
        self._disrupted.set()
        self._setup_done.set()

    # --- the session ----------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Keep a session with the segment's store until the appender is finished, sealed or failed.

        Cancelling this fails everything that is not acknowledged.
        """
        try:
            await self._run()
        except BaseException:
            if not self._finished:
                # The client is being closed, or ended by an error that nobody expected. Tasks outside of it
                # may wait for these blocks, or for room.
                self._owner.failed(
                    self, ClosedError(f"writing to {self.target.name} has ended: the client was closed")
                )
            raise

    async def _run(self) -> None:
        backoff = Backoff(self._stores.operation_timeout)
        garbage = 0
        failure: PravegaError | None = None
        while True:
            self._trouble_for = None
            sessions = self._sessions
            failure = await self._session(backoff, failure)
            if self._finished:
                return
            if isinstance(failure, SegmentSealedError | NoSuchSegmentError):
                try:
                    await self._settle_sealed()
                except PravegaError as error:
                    self._owner.failed(self, error)
                    return
                if not self._finished:
                    await self._owner.sealed(self, failure)
                return
            if self._progress:
                self._progress = False
                # The limit counts from when the peer became silent, not from when that was noticed.
                backoff.reset(self._trouble_for or 0.0)
                garbage = 0
            elif (oldest := self.appends.oldest) is not None:
                # Before it was sent, nothing was waited for, however long ago the session began.
                backoff.not_before(self._clock() - oldest.sent)
            elif self._sessions > sessions:
                # The session was set up, and nothing had to be sent.
                backoff.reset()
            garbage += isinstance(failure, ProtocolError)
            if _is_final(failure) or garbage >= _GARBAGE_ATTEMPTS:
                self._owner.failed(self, named(failure, self.target.name, "appending to"))
                return
            # No connection is needed while nothing is unacknowledged.
            while not self.appends.unacknowledged and not self._finished:
                self._work = trio.Event()
                await self._work.wait()
                backoff.reset()
            self._owner.reconnecting(failure)
            backoff.failed(failure, f"appending to {self.target.name}")
            if not await backoff.wait():
                exhausted = RetriesExhaustedError(
                    f"appending to {self.target.name}: no success in "
                    f"{backoff.taken:.1f} s (operation_timeout) and {backoff.attempts} attempts, "
                    f"the last failed with: {failure.message}",
                    segment=self.target.name,
                    host=failure.host,
                )
                # Raised later, in the calls of the writer's users.
                exhausted.__cause__ = failure
                self._owner.failed(self, exhausted)
                return

    async def _session(self, backoff: Backoff, before: PravegaError | None) -> PravegaError:
        """Append over one connection; return what ended the session.

        :param backoff: limits the time of the set-up.
        :param before: what ended the previous session.
        """
        stores = self._stores
        self._begin_session()
        if self._finished:
            return ClosedError(f"writing to {self.target.name} has ended")
        endpoint: tuple[str, int] | None = None
        flow: Flow | None = None
        set_up = False
        failure: PravegaError | None = None
        try:
            with trio.move_on_after(backoff.attempt_left(stores.limits.attempt)) as scope:
                endpoint = await stores.endpoint(self.target)
                token = await self.target.token()
                with stores.attempt_limit(
                    f"an answer to the set-up of {self.target.name}", endpoint
                ) as attempt:
                    flow = attempt.flow = self._flow = await stores.pool.flow(endpoint, self)
                    flow.send(
                        c.SetupAppend(
                            request_id=flow.base_request_id,
                            writer_id=self.appends.writer_id,
                            segment=self.target.name,
                            delegation_token=token,
                        )
                    )
                    await self._setup_done.wait()
            if scope.cancelled_caught:
                failure = before or ConnectionLostError(
                    f"appending to {self.target.name}: the session was not set up in time",
                    segment=self.target.name,
                )
            elif self._failure is None:
                assert flow is not None
                set_up = True
                self._resume()
                await self._serve(flow)
        except PravegaError as error:
            failure = error
        finally:
            self.appends.disconnect()
            if flow is not None:
                flow.close()
        if failure is None:
            failure = self._failure
        assert failure is not None
        if endpoint is None:
            return failure
        self.target.check_token(failure, set_up=set_up)
        if not self._finished and not isinstance(failure, SegmentSealedError):
            stores.forget(self.target, endpoint)
        return failure

    async def _serve(self, flow: Flow) -> None:
        """Wait for the end of a session that was set up.

        A store that answers keep-alives but acknowledges nothing also ends the session: the next session
        finds out what is stored and sends the rest again.
        """
        stall = self._stores.limits.stall
        oldest: Block[Ack] | None = None
        while not self._disrupted.is_set():
            with trio.move_on_after(stall / 2):
                await self._disrupted.wait()
            first = self.appends.oldest
            if flow.connection.unsent_bytes:
                # The block may not have been sent yet.
                first = None
            if first is not None and first is oldest and not self._disrupted.is_set():
                flow.connection.retire()
                quiet = self._clock() - max(first.sent, self._last_ack)
                # A process that was suspended for an hour did not listen for an hour.
                self._trouble_for = min(quiet, stall)
                self._disrupt(
                    ConnectionLostError(
                        f"{flow.connection.host} has acknowledged nothing for {stall / 2:.3g} s or more",
                        segment=self.target.name,
                        host=flow.connection.host,
                    )
                )
            oldest = first
        if self._trouble_for is None and flow.connection.closed:
            self._trouble_for = flow.connection.silent_for

    async def _settle_sealed(self) -> None:
        """Find out which blocks a sealed segment holds, before the others go to another segment."""
        if self.appends.in_doubt:
            try:
                number = await SegmentMetadata(self._stores, self.target).final_number(self.appends.writer_id)
            except NoSuchSegmentError:
                # The segment is gone: it was deleted after a truncation, or merged.
                return
            self._tell(self.appends.sealed(number, self._clock()))

    def _begin_session(self) -> None:
        self._failure = None
        self._disrupted = trio.Event()
        self._setup_done = trio.Event()
        self.appends.connect()

    def _resume(self) -> None:
        """Resume after the reply to the set-up: settle what is stored, and send the rest again."""
        assert self._setup is not None
        assert self._flow is not None
        self._sessions += 1
        now = self._last_ack = self._clock()
        resumed = self.appends.set_up(self._setup.last_event_number, self._flow.base_request_id, now)
        self._tell(resumed.durable)
        for parts in resumed.frames:
            self._flow.connection.send_parts(parts)
        if resumed.frames:
            self._owner.resent(len(resumed.frames), resumed.events, resumed.size)
        self.pump()


def flush(appenders: Iterable[SegmentAppender]) -> Ack:
    """Send everything that was put so far.

    :returns: a promise that is kept when all of it is stored.
    """
    ack = Ack()
    for appender in appenders:
        appender.appends.flush(ack)
        appender.pump()
    settle(ack)
    return ack


_FINAL: Final[Sequence[type[PravegaError]]] = (
    AuthError,
    TlsError,
    IncompatibleVersionError,
    ClosedError,
    InvalidArgumentError,
    NotFoundError,
    ServerEndedError,
)


def _is_final(error: PravegaError) -> bool:
    """Return whether another connection would not help."""
    return isinstance(error, tuple(_FINAL)) and not isinstance(error, TokenExpiredError)
