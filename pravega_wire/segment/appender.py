"""Appending to one segment: blocks, acknowledgements, resending.

A :class:`SegmentAppender` holds one writer id on one segment. Events gather in an open block; a
block is one ``AppendBlockEnd`` frame without an ``AppendBlock`` before it ("end only", wire
protocol v0.13.0, "Append path"), which the server stores whole or not at all. Blocks are numbered
by the events before and in them, and the server keeps the last number of each writer id with the
data, so after a lost connection the set-up reply tells which blocks are stored: those are done, the
others go out again with their old numbers.

How much goes into a block follows the acknowledgements: while few blocks are under way the open
block leaves at once, otherwise it gathers until one comes back or it is large.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import compress
from time import perf_counter
from typing import Final, Protocol
from uuid import UUID, uuid4

import trio

from pravega_wire.errors import (
    AuthError,
    ClosedError,
    ConnectionLostError,
    EventTooLargeError,
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
from pravega_wire.protocol import codec
from pravega_wire.protocol import commands as c
from pravega_wire.segment.failures import error_of
from pravega_wire.segment.metadata import SegmentMetadata
from pravega_wire.segment.store import Backoff, SegmentStores, SegmentTarget
from pravega_wire.transport.connection import Flow

__all__ = [
    "HEADER_BYTES",
    "MAX_EVENT_BYTES",
    "Ack",
    "AppenderOwner",
    "Block",
    "Place",
    "PlaceRun",
    "SegmentAppender",
    "Stored",
    "too_large",
]

MAX_EVENT_BYTES: Final = 8 * 1024 * 1024
"""Largest payload of an ordinary event in bytes (wire protocol v0.13.0, "Sizes")."""

HEADER_BYTES: Final = 8
"""Bytes in front of each event in a segment."""

BLOCK_BYTES: Final = 1 << 20
"""A block that has reached this size takes no more events."""

_SEND_AT_BYTES: Final = 256 * 1024
_SMALL_BLOCKS_UNDER_WAY: Final = 2
_WINDOW_BYTES: Final = 16 * 1024 * 1024
_GARBAGE_ATTEMPTS: Final = 3

_NEW_WRITER: Final = -(2**63)


def too_large(length: int, what: str = "an event", limit: int = MAX_EVENT_BYTES) -> EventTooLargeError:
    """The error for an event, or an atomic batch, over the limit."""
    error = EventTooLargeError(f"{what} of {length} bytes is over the limit of {limit} bytes")
    error.size = length
    error.limit = limit
    return error


class Ack:
    """The promise that some events are stored. Many events may share one.

    ``await ack.wait()`` returns when all of them are durable, and raises when they are not.
    """

    __slots__ = ("_error", "_event", "_pending")

    def __init__(self, pending: int = 1) -> None:
        self._pending = pending
        self._error: PravegaError | None = None
        self._event: trio.Event | None = None

    @property
    def done(self) -> bool:
        """True once the events are stored or have failed."""
        return self._pending <= 0

    @property
    def error(self) -> PravegaError | None:
        """Why the events were not stored, or None."""
        return self._error

    async def wait(self) -> None:
        """Wait until every event is stored. Cancelling this changes nothing for the events.

        :raises PravegaError: the writer failed; whether the events are stored is not known unless
            the error says so.
        """
        if self._pending > 0:
            if self._event is None:
                self._event = trio.Event()
            await self._event.wait()
        else:
            await trio.lowlevel.checkpoint()
        if self._error is not None:
            raise self._error

    def add(self) -> None:
        """One more thing to wait for."""
        self._pending += 1

    def settle(self) -> None:
        """One thing is done."""
        self._pending -= 1
        if self._pending == 0 and self._event is not None:
            self._event.set()

    def fail(self, error: PravegaError) -> None:
        """Nothing more to wait for: it failed."""
        if self._pending > 0:
            self._pending = 0
            self._error = error
            if self._event is not None:
                self._event.set()


Place = float | str | None

Stored = Callable[[int, Place], bool]
"""Whether an event is stored, by its number and what routes it."""


class PlaceRun:
    """The positions in the key space of successive events, without an object for each.

    :ivar positions: one float for each event; not copied.
    """

    __slots__ = ("positions",)

    def __init__(self, positions: Sequence[float]) -> None:
        self.positions = positions


class Block:
    """Events that are appended together.

    :ivar parts: framed events (header and payload), in pieces, until the block is closed.
    :ivar places: what routes each event, for sending it on to a successor segment: its routing key, or a
        position in the key space, or None for anywhere; a :class:`PlaceRun` stands for several events.
        Empty where the writer's segments have no successors.
    :ivar numbers: a number for each event, ascending, where the caller numbers them; else empty.
    :ivar atomic: the events stay in one block, whatever happens.
    """

    __slots__ = (
        "_payload", "ack", "atomic", "count", "extra", "last_number", "numbers", "parts", "places", "sent",
        "size",
    )  # fmt: skip

    def __init__(self) -> None:
        self.parts: list[bytes | memoryview] = []
        self.places: list[Place | PlaceRun] = []
        self.numbers: list[int] = []
        self.size = 0
        self.count = 0
        self.last_number = 0
        self.ack = Ack()
        self.extra: list[Ack] = []
        self.atomic = False
        self.sent = 0.0
        self._payload: memoryview = memoryview(b"")

    def frame(self, writer_id: bytes, request_id: int) -> bytes:
        """The whole frame for a first send; the block is closed by it."""
        before, after = codec.append_block_header(
            writer_id, self.size, self.count, self.last_number, request_id
        )
        frame = b"".join([before, *self.parts, after])
        self._payload = memoryview(frame)[len(before) : len(before) + self.size]
        self.parts = []
        return frame

    @property
    def payload(self) -> memoryview:
        """The framed events, once the block was sent."""
        return self._payload

    def resend_parts(self, writer_id: bytes, request_id: int) -> list[bytes | memoryview]:
        """The frame again, for another connection."""
        before, after = codec.append_block_header(
            writer_id, self.size, self.count, self.last_number, request_id
        )
        return [before, self._payload, after]

    def _each_place(self) -> Iterator[Place]:
        for place in self.places:
            if isinstance(place, PlaceRun):
                yield from place.positions
            else:
                yield place

    def events(self) -> Iterator[tuple[memoryview, Place]]:
        """Each framed event with what routes it, in order."""
        if self.parts:
            payload = memoryview(b"".join(self.parts))
        else:
            payload = self._payload
        start = 0
        for place in self._each_place():
            end = start + HEADER_BYTES + int.from_bytes(payload[start + 4 : start + 8], "big")
            yield payload[start:end], place
            start = end

    def pieces(self) -> Iterator[tuple[memoryview, list[Place], list[int]]]:
        """What has to stay together, in order: each framed event, or all of an atomic block.

        Each with the places and the numbers (none where the caller has none) of its events.
        """
        if self.atomic:
            whole = memoryview(b"".join(framed for framed, _ in self.events()))
            yield whole, list(self._each_place()), self.numbers
            return
        for index, (framed, place) in enumerate(self.events()):
            yield framed, [place], self.numbers[index : index + 1]

    def drop(self, stored: Stored) -> tuple[int, int]:
        """Leave out the numbered events that are stored; returns how many bytes and events that were."""
        places = list(self._each_place())
        keep = [not stored(number, place) for number, place in zip(self.numbers, places, strict=False)]
        dropped = keep.count(False)
        if not dropped:
            return 0, 0
        payload = b"".join(framed for framed, _ in compress(self.events(), keep))
        size = self.size - len(payload)
        if self.parts:
            self.parts = [payload]
        else:
            self._payload = memoryview(payload)
        self.places = list(compress(places, keep))
        self.numbers = list(compress(self.numbers, keep))
        self.size -= size
        self.count -= dropped
        return size, dropped

    def settle(self) -> None:
        """The block's events are stored."""
        self.ack.settle()
        for ack in self.extra:
            ack.settle()

    def fail(self, error: PravegaError) -> None:
        """The block's events will not be stored."""
        self.ack.fail(error)
        for ack in self.extra:
            ack.fail(error)


class AppenderOwner(Protocol):
    """What the writer above a set of appenders implements."""

    def acknowledged(self, size: int, count: int, seconds: float) -> None:
        """``count`` events of ``size`` bytes with headers are stored, ``seconds`` after they were sent."""

    def resent(self, blocks: int, count: int, size: int) -> None:
        """So many blocks, ``count`` events of ``size`` bytes with headers, were sent once more."""

    def reconnecting(self, error: PravegaError) -> None:
        """The session with the store has failed, and another is begun."""

    def failed(self, appender: SegmentAppender, error: PravegaError) -> None:
        """The appender has given up; its blocks are still unacknowledged."""

    async def sealed(self, appender: SegmentAppender, error: PravegaError) -> None:
        """The segment takes no more events. Afterwards the appender is finished."""


class SegmentAppender:
    """Appends to one segment; :meth:`run` must be running in the owner's nursery.

    All methods but :meth:`run` are synchronous and are called from the same trio thread.

    :ivar last_stored_number: the last event number that the segment is known to hold of this writer id; 0 for
        none, None before the first set-up.
    :ivar patient: only full blocks leave before :meth:`force`: fewer and larger ones, where nobody waits for
        single acknowledgements.
    :ivar on_first_send: called with the framed events of each block when it is sent for the first time: once
        each, in the order in which they are stored.
    """

    def __init__(
        self,
        stores: SegmentStores,
        target: SegmentTarget,
        owner: AppenderOwner,
        *,
        writer_id: UUID | None = None,
    ) -> None:
        self.target = target
        self.writer_id = writer_id or uuid4()
        self.open = Block()
        self._stores = stores
        self._owner = owner
        self._writer_bytes = self.writer_id.bytes
        self._full: deque[Block] = deque()
        self._under_way: deque[Block] = deque()
        self._under_way_bytes = 0
        self._next_number = 0
        self._flow: Flow | None = None
        self._ready = False
        self._forced = False
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
        self.segment_length = -1
        self.last_stored_number: int | None = None
        self.patient = False
        self.on_first_send: Callable[[memoryview], None] | None = None

    # --- what the owner calls -------------------------------------------------------------------

    @property
    def unacknowledged(self) -> list[Block]:
        """Blocks with events that are not known to be stored, in order."""
        blocks = [*self._under_way, *self._full]
        if self.open.count:
            blocks.append(self.open)
        return blocks

    def close_block(self) -> None:
        """The open block takes no more events."""
        if self.open.count:
            self._full.append(self.open)
            self.open = Block()

    def add_block(self, block: Block) -> None:
        """A whole block after everything written before it."""
        self.close_block()
        self._full.append(block)

    def force(self) -> None:
        """Send everything gathered so far without waiting for more to fill a block."""
        self._forced = True
        self.pump()

    def pump(self) -> None:
        """Send what may be sent now. Call it after events were added to :attr:`open`."""
        if not self._ready:
            if not self._work.is_set():
                self._work.set()
            return
        flow = self._flow
        assert flow is not None
        under_way = self._under_way
        connection = flow.connection
        if connection.closed:
            return
        while True:
            if under_way and (self._under_way_bytes >= _WINDOW_BYTES or not connection.writable):
                return
            if self._full:
                block = self._full.popleft()
            elif self.open.count and (
                self._forced
                or (
                    not self.patient
                    and (len(under_way) < _SMALL_BLOCKS_UNDER_WAY or self.open.size >= _SEND_AT_BYTES)
                )
            ):
                block = self.open
                self.open = Block()
            else:
                self._forced = False
                return
            self._next_number = block.numbers[-1] if block.numbers else self._next_number + block.count
            block.last_number = self._next_number
            block.sent = perf_counter()
            under_way.append(block)
            self._under_way_bytes += block.size
            connection.send_parts([block.frame(self._writer_bytes, flow.base_request_id)])
            if self.on_first_send is not None:
                self.on_first_send(block.payload)

    def finish(self) -> None:
        """Stop for good; :meth:`run` returns. Unacknowledged blocks are left as they are."""
        self._finished = True
        self._disrupt(ClosedError(f"writing to {self.target.name} has ended"))
        self._work.set()

    def leave_out(self, stored: Stored) -> None:
        """Drop events, numbered by the caller, that are stored, by whomever."""
        if self.open.numbers:
            self.close_block()
        for queue in (self._under_way, self._full):
            for block in [each for each in queue if each.numbers]:
                size, count = block.drop(stored)
                if not count:
                    continue
                self._progress = True
                self.segment_length = -1
                if queue is self._under_way:
                    self._under_way_bytes -= size
                if not block.count:
                    queue.remove(block)
                    block.settle()
                self._owner.acknowledged(size, count, 0.0)

    # --- replies --------------------------------------------------------------------------------

    def on_reply(self, reply: c.Command) -> bool:
        """See :class:`FlowHandler`."""
        if self._finished:
            # Its blocks are the owner's now.
            return True
        if type(reply) is c.DataAppended:
            self._acknowledge(reply)
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

    def _acknowledge(self, reply: c.DataAppended) -> None:
        under_way = self._under_way
        number = reply.event_number
        previous = reply.previous_event_number
        if (
            not under_way
            or reply.writer_id != self.writer_id
            or number > self._next_number
            or previous >= number
            or previous >= under_way[0].last_number
        ):
            self._disrupt(
                UnexpectedReplyError(
                    f"{self.target.name}: acknowledgement of event {number} (previous {previous}) "
                    f"does not fit what was sent (up to {self._next_number})",
                    segment=self.target.name,
                )
            )
            return
        self.segment_length = reply.current_segment_write_offset
        self.last_stored_number = number
        self._settle_through(number)
        self.pump()

    def _settle_through(self, number: int) -> None:
        under_way = self._under_way
        now = self._last_ack = perf_counter()
        while under_way and under_way[0].last_number <= number:
            block = under_way.popleft()
            self._progress = True
            self._under_way_bytes -= block.size
            block.settle()
            self._owner.acknowledged(block.size, block.count, now - block.sent)

    def _disrupt(self, error: PravegaError) -> None:
        if self._failure is None:
            self._failure = error
        self._ready = False
        self._disrupted.set()
        self._setup_done.set()

    # --- the session ----------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep a session with the segment's store until finished, sealed or failed.

        Cancelling this fails what is not acknowledged.
        """
        try:
            await self._run()
        except trio.Cancelled:
            if not self._finished:
                # With the client. Tasks outside it may wait for these blocks, or for room.
                self._owner.failed(
                    self, ClosedError(f"writing to {self.target.name} was ended with the client")
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
                # The limit counts from when the peer fell silent, not from when that was noticed.
                backoff.reset(self._trouble_for or 0.0)
                garbage = 0
            elif self._under_way:
                # Until it was sent nobody waited for anything, however long ago the session began.
                backoff.not_before(perf_counter() - self._under_way[0].sent)
            elif self._sessions > sessions:
                # It was set up, and nothing had to be sent.
                backoff.reset()
            garbage += isinstance(failure, ProtocolError)
            if _is_final(failure) or garbage >= _GARBAGE_ATTEMPTS:
                self._owner.failed(self, failure)
                return
            # While nobody waits for anything no connection is needed.
            while not self.unacknowledged and not self._finished:
                self._work = trio.Event()
                await self._work.wait()
                backoff.reset()
            self._owner.reconnecting(failure)
            if not await backoff.wait():
                self._owner.failed(
                    self,
                    RetriesExhaustedError(
                        f"appending to {self.target.name}: no success in "
                        f"{backoff.taken:.1f} s (operation_timeout) and {backoff.attempts} attempts, "
                        f"the last failed with: {failure.message}",
                        segment=self.target.name,
                        host=failure.host,
                    ),
                )
                return

    async def _session(self, backoff: Backoff, before: PravegaError | None) -> PravegaError:
        """One connection's worth of appending; returns what ended it.

        :param before: what ended the one before.
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
                            writer_id=self.writer_id,
                            segment=self.target.name,
                            delegation_token=token,
                        )
                    )
                    await self._setup_done.wait()
            if scope.cancelled_caught:
                failure = before or ConnectionLostError(
                    f"appending to {self.target.name} could not begin in time", segment=self.target.name
                )
            elif self._failure is None:
                assert flow is not None
                set_up = True
                self._resume()
                await self._serve(flow)
        except PravegaError as error:
            failure = error
        finally:
            self._ready = False
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

        A store that answers keep-alives and yet does not acknowledge anything ends it too: another session
        learns what is stored and sends the rest again.
        """
        stall = self._stores.limits.stall
        oldest: Block | None = None
        while not self._disrupted.is_set():
            with trio.move_on_after(stall / 2):
                await self._disrupted.wait()
            first = self._under_way[0] if self._under_way else None
            if flow.connection.unsent_bytes:
                # It may not even have left.
                first = None
            if first is not None and first is oldest and not self._disrupted.is_set():
                flow.connection.retire()
                quiet = perf_counter() - max(first.sent, self._last_ack)
                # A process that was stopped for an hour has not listened for an hour.
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
        """Find out which blocks a segment holds that was sealed, before the others go to another one.

        What was sent on a connection that was lost may have been stored after the next set-up was answered,
        and before the segment was sealed.
        """
        if self._sessions > 1 and self._under_way:
            try:
                number = await SegmentMetadata(self._stores, self.target).final_number(self.writer_id)
            except NoSuchSegmentError:
                # It was truncated away as well, or merged; there is nothing to ask any more.
                return
            self._settle_through(number)
            self.leave_out(lambda each, _: each <= number)

    def _begin_session(self) -> None:
        self._failure = None
        self._disrupted = trio.Event()
        self._setup_done = trio.Event()

    def _resume(self) -> None:
        """Take up after the set-up reply: drop what is stored, send the rest again."""
        assert self._setup is not None
        assert self._flow is not None
        self._sessions += 1
        last = self._setup.last_event_number
        self.last_stored_number = max(last, 0)
        # What was stored meanwhile tells no length.
        self.segment_length = -1
        self._settle_through(last)
        self.leave_out(lambda number, _: number <= last)
        for block in self._under_way:
            self._flow.connection.send_parts(
                list(block.resend_parts(self._writer_bytes, self._flow.base_request_id))
            )
        if self._under_way:
            events = sum(block.count for block in self._under_way)
            self._owner.resent(len(self._under_way), events, self._under_way_bytes)
        self._ready = True
        self.pump()


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
    """Whether another connection would not help."""
    return isinstance(error, tuple(_FINAL)) and not isinstance(error, TokenExpiredError)
