"""Appending to one segment, without I/O: blocks, numbers, acknowledgements, resending, handing over.

:class:`Appends` holds what one writer id appends to one segment. Events gather in its open block. A block is
one ``AppendBlockEnd`` frame without an ``AppendBlock`` before it, which the server stores whole or not at
all. A block's number is the number of events before and in it, and the server keeps the last number of each
writer id with the data. The reply to a set-up therefore tells which blocks are stored: those are done, and
the others are sent again with their old numbers (``docs/protocol/wire.md``, "Resuming an append session").

The owner of the connection reports what happens to it (:meth:`Appends.connect`, :meth:`Appends.disconnect`)
and what arrived (:meth:`Appends.set_up`, :meth:`Appends.acknowledge`), and asks what to send
(:meth:`Appends.next_frame`). Time is a number that is passed in. When a segment is sealed, :func:`hand_over`
moves the events that it does not hold to its successors.

The size of a block follows the acknowledgements and the caller's tasks: with no block in flight the open
block is sent as soon as the tasks have no more events for it; otherwise it gathers events until all are
acknowledged or it is large. A second block that is sent at once would often hold a single event, and cost the
store as much as the block after it with all the others; only if a store is far away, so that waiting for its
acknowledgement takes long, are two small blocks in flight.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress
from typing import Final, Generic, NamedTuple, NoReturn, TypeVar
from uuid import UUID

from pravega_wire.errors import ArgumentTypeError, EventTooLargeError, PravegaError, UnexpectedReplyError
from pravega_wire.protocol import codec
from pravega_wire.protocol.commands import DataAppended

__all__ = [
    "BLOCK_BYTES",
    "HEADER_BYTES",
    "MAX_EVENT_BYTES",
    "Appends",
    "Block",
    "Durable",
    "Place",
    "PlaceRun",
    "Promise",
    "Resumed",
    "Stored",
    "fail",
    "hand_over",
    "not_copied",
    "settle",
    "too_large",
]

MAX_EVENT_BYTES: Final = 8 * 1024 * 1024
"""Largest payload of an ordinary event in bytes."""

HEADER_BYTES: Final = 8
"""Bytes in front of each event in a segment."""

BLOCK_BYTES: Final = 1 << 20
"""Size in bytes above which a block takes no more events."""

_SEND_AT_BYTES: Final = 256 * 1024
_FAR_SECONDS: Final = 0.03
_NEVER: Final = 1 << 62

Part = bytes | memoryview

Place = float | str | None
"""What routes an event: its routing key, a position in the key space, or None for any segment."""

Stored = Callable[[int, Place], bool]
"""Function that tells whether an event is stored, from its number and what routes it."""


def too_large(
    length: int, what: str = "an event", limit: int = MAX_EVENT_BYTES, *, writer: str = ""
) -> EventTooLargeError:
    """Return the error for an event, or an atomic batch, that exceeds a limit.

    :param length: size in bytes.
    :param what: what is too large, for the message.
    :param limit: largest size in bytes.
    :param writer: what is written, for the message.
    """
    whose = writer and f" for the writer of {writer}"
    return EventTooLargeError(
        f"{what} of {length} bytes{whose} is over the limit of {limit} bytes", size=length, limit=limit
    )


def not_copied(promise: object) -> NoReturn:
    """The ``__reduce__`` of acknowledgements: a copy would take the whole client with it."""
    raise ArgumentTypeError(
        f"an acknowledgement belongs to its client and cannot be copied or sent elsewhere: {promise!r}"
    )


class Promise:
    """The promise that some events are stored. Many events may share one.

    A subclass adds a way to wait for it.
    """

    __slots__ = ("_error", "_pending")

    def __init__(self, pending: int = 1) -> None:
        self._pending = pending
        self._error: PravegaError | None = None

    @property
    def done(self) -> bool:
        """True once the events are stored or have failed."""
        return self._pending <= 0

    @property
    def error(self) -> PravegaError | None:
        """Why the events were not stored, or None."""
        return self._error

    __reduce__ = not_copied

    def _on_done(self) -> None:
        """Is called once, when the events are stored or have failed."""


# These are functions, because users hold promises, and only the client keeps them.


def _await_more(promise: Promise) -> None:
    """Let a promise wait for one more thing."""
    promise._pending += 1


def settle(promise: Promise) -> None:
    """Record that one thing is done that a promise waits for."""
    promise._pending -= 1
    if promise._pending == 0:
        promise._on_done()


def fail(promise: Promise, error: PravegaError) -> None:
    """Record a failure, after which nothing more is waited for."""
    if promise._pending > 0:
        promise._pending = 0
        promise._error = error
        promise._on_done()


P = TypeVar("P", bound=Promise)


class PlaceRun:
    """Positions in the key space of successive events, without an object for each.

    :ivar positions: one float for each event; not copied.
    """

    __slots__ = ("positions",)

    def __init__(self, positions: Sequence[float]) -> None:
        self.positions = positions


class Block(Generic[P]):
    """Events that are appended together. :meth:`put` adds them.

    :ivar parts: framed events (header and payload), in pieces, until the block is sent.
    :ivar places: what routes each event, needed to send it to a successor segment; a :class:`PlaceRun` covers
        several events. Empty if the writer's segments have no successors.
    :ivar numbers: a number for each event, ascending, if the caller numbers them; else empty.
    :ivar size: bytes of the framed events.
    :ivar count: number of events.
    :ivar last_number: number of the last event, once the block was sent.
    :ivar ack: promise that is kept when the block's events are stored.
    :ivar extra: other promises that wait for this block, and for others.
    :ivar atomic: whether the events have to stay in one block.
    :ivar sent: when the block was sent for the first time, in seconds of the caller's clock.
    """

    __slots__ = (
        "_payload", "ack", "atomic", "count", "extra", "last_number", "numbers", "parts", "places", "sent",
        "size",
    )  # fmt: skip

    def __init__(self, ack: P) -> None:
        self.parts: list[Part] = []
        self.places: list[Place | PlaceRun] = []
        self.numbers: list[int] = []
        self.size = 0
        self.count = 0
        self.last_number = 0
        self.ack = ack
        self.extra: list[Promise] = []
        self.atomic = False
        self.sent = 0.0
        self._payload: memoryview = memoryview(b"")

    def put(
        self,
        parts: Iterable[Part],
        places: Iterable[Place | PlaceRun],
        size: int,
        count: int,
        numbers: Sequence[int] = (),
        ack: Promise | None = None,
    ) -> None:
        """Add events to a block that was not sent yet.

        :param parts: the framed events, in any pieces.
        :param places: what routes each of them; none if the segment has no successors.
        :param size: bytes of all parts.
        :param count: number of events.
        :param numbers: one for each event, greater than those in the block; none if the caller does not
            number events.
        :param ack: promise that waits for these events as well.
        """
        self.parts += parts
        self.places += places
        self.size += size
        self.count += count
        if numbers:
            self.numbers += numbers
        if ack is not None and (not self.extra or self.extra[-1] is not ack):
            _await_more(ack)
            self.extra.append(ack)

    def adopt(self, old: Iterable[Block[P]]) -> None:
        """Let the promises of other blocks wait for this one as well, because it holds some of their events.

        Each does so once: otherwise they would double whenever a segment is split and merged again.
        """
        known = {*self.extra}
        for each in old:
            acks: tuple[Promise, ...] = (*each.extra, each.ack)
            for ack in acks:
                if ack not in known:
                    known.add(ack)
                    _await_more(ack)
                    self.extra.append(ack)

    def frame(self, writer_id: bytes, request_id: int) -> bytes:
        """Build the whole frame for a first send; this closes the block."""
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

    def resend_parts(self, writer_id: bytes, request_id: int) -> list[Part]:
        """Build the frame again, for another connection."""
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
        """Yield each framed event with what routes it, in order."""
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
        """Yield what has to stay together, in order: each framed event, or all events of an atomic block.

        Each piece comes with the places and the numbers of its events (no numbers if the caller has none).
        """
        if self.atomic:
            whole = memoryview(b"".join(framed for framed, _ in self.events()))
            yield whole, list(self._each_place()), self.numbers
            return
        for index, (framed, place) in enumerate(self.events()):
            yield framed, [place], self.numbers[index : index + 1]

    def drop(self, stored: Stored) -> tuple[int, int]:
        """Drop the numbered events that are stored; return how many bytes and events were dropped."""
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
        """Record that the block's events are stored."""
        settle(self.ack)
        for ack in self.extra:
            settle(ack)

    def fail(self, error: PravegaError) -> None:
        """Record that the block's events will not be stored."""
        fail(self.ack, error)
        for ack in self.extra:
            fail(ack, error)


class Durable(NamedTuple):
    """Events that are known to be stored from now on.

    :ivar size: bytes with headers.
    :ivar events: number of events.
    :ivar seconds: time since they were sent for the first time; 0 for events that were dropped from a block.
    """

    size: int
    events: int
    seconds: float


class Resumed(NamedTuple):
    """What follows from the reply to a set-up.

    :ivar durable: events that turned out to be stored.
    :ivar frames: blocks to send again, in this order, each in pieces.
    :ivar events: number of events in these blocks.
    :ivar size: bytes of these events with headers.
    """

    durable: list[Durable]
    frames: list[list[Part]]
    events: int
    size: int


class Appends(Generic[P]):
    """What one writer id appends to one segment, over all of its connections.

    :param segment: full name of the segment, for messages.
    :param writer_id: must not be used for another segment, nor by another instance at the same time.
    :param new_ack: function that makes the promise of a block.
    :ivar open: the block that takes events; use :meth:`room` to get it.
    :ivar due_at: size of the open block in bytes from which :meth:`next_frame` has to be called.
    :ivar ready: whether blocks may be sent: the session is set up and was not disconnected since.
    :ivar last_stored_number: the last event number that the segment is known to hold for this writer id; 0
        for none, None before the first set-up.
    :ivar segment_length: length of the segment in bytes at the last acknowledgement; -1 if not known.
    :ivar patient: send only full blocks before :meth:`force` is called. This gives fewer and larger blocks,
        for callers that do not wait for single acknowledgements. Set it before the first set-up.
    """

    __slots__ = (
        "_forced", "_full", "_in_flight", "_in_flight_before", "_least_seconds", "_new_ack", "_next_number",
        "_writer_bytes", "due_at", "last_stored_number", "open", "patient", "ready", "segment",
        "segment_length", "writer_id",
    )  # fmt: skip

    def __init__(self, segment: str, writer_id: UUID, new_ack: Callable[[], P]) -> None:
        self.segment = segment
        self.writer_id = writer_id
        self.open = Block(new_ack())
        self.due_at = 0
        self.ready = False
        self.last_stored_number: int | None = None
        self.segment_length = -1
        self.patient = False
        self._new_ack = new_ack
        self._writer_bytes = writer_id.bytes
        self._full: deque[Block[P]] = deque()
        self._in_flight: deque[Block[P]] = deque()
        self._least_seconds = float("inf")
        self._next_number = 0
        self._forced = False
        self._in_flight_before = False

    # --- gathering ------------------------------------------------------------------------------

    def room(self, size: int) -> Block[P]:
        """Return the open block, or a new one if ``size`` more bytes do not fit into it."""
        block = self.open
        if block.count and block.size + size > BLOCK_BYTES:
            self.close_block()
            block = self.open
        return block

    def close_block(self) -> None:
        """Close the open block; it takes no more events."""
        if self.open.count:
            self._full.append(self.open)
            self.open = Block(self._new_ack())
            self.due_at = 0

    def put_atomic(
        self,
        parts: Iterable[Part],
        places: Iterable[Place],
        size: int,
        count: int,
        numbers: Sequence[int] = (),
        ack: Promise | None = None,
    ) -> Block[P]:
        """Put events that have to stay together into a block of their own.

        The parameters are those of :meth:`Block.put`.
        """
        self.close_block()
        block = self.open
        block.put(parts, places, size, count, numbers, ack)
        block.atomic = True
        self.close_block()
        return block

    def force(self) -> None:
        """Send everything gathered so far, without waiting until a block is full."""
        self._forced = True
        self.due_at = 0

    def flush(self, ack: Promise) -> None:
        """Let ``ack`` wait for everything put so far, and :meth:`force` it to be sent."""
        for block in self.unacknowledged:
            _await_more(ack)
            block.extra.append(ack)
        self.force()

    @property
    def unacknowledged(self) -> list[Block[P]]:
        """The blocks whose events are not known to be stored, in order."""
        blocks = [*self._in_flight, *self._full]
        if self.open.count:
            blocks.append(self.open)
        return blocks

    @property
    def oldest(self) -> Block[P] | None:
        """The unacknowledged block that was sent first, or None."""
        return self._in_flight[0] if self._in_flight else None

    # --- sending --------------------------------------------------------------------------------

    def next_frame(
        self, request_id: int, now: float, *, writable: bool = True, at_lull: bool = True
    ) -> tuple[bytes, memoryview] | None:
        """Return what to send now; call again until the result is None.

        :param request_id: request id of the set-up.
        :param now: seconds of the caller's clock.
        :param writable: False while the connection has enough to send.
        :param at_lull: False while tasks may be about to put more events into the open block. If it is small
            it then stays open, and :attr:`awaits_lull` tells whether to call this again when they wait.
        :returns: a frame and a view of the framed events in it, which are sent for the first time; or None.
        """
        in_flight = self._in_flight
        if not self.ready or (in_flight and not writable):
            return None
        if self._full:
            block = self._full.popleft()
        elif self.open.count and (
            self._forced or self.open.size >= self._large or (at_lull and self.awaits_lull)
        ):
            block = self.open
            self.open = Block(self._new_ack())
        else:
            self._forced = False
            # Every change after which there may be something to send sets 0.
            self.due_at = 0 if self._small_may_follow and not self.open.count else self._large
            return None
        self._next_number = block.numbers[-1] if block.numbers else self._next_number + block.count
        block.last_number = self._next_number
        block.sent = now
        in_flight.append(block)
        frame = block.frame(self._writer_bytes, request_id)
        return frame, block.payload

    @property
    def awaits_lull(self) -> bool:
        """Whether the open block is to be sent when no task has more events for it."""
        return self.open.count > 0 and self._small_may_follow

    @property
    def _small_may_follow(self) -> bool:
        """Whether a small block may be sent after those in flight."""
        most = 0 if self.patient else 1 if self._least_seconds < _FAR_SECONDS else 2
        return len(self._in_flight) < most

    @property
    def _large(self) -> int:
        """The size in bytes from which the open block is sent in any case."""
        return _NEVER if self.patient else _SEND_AT_BYTES

    # --- what came in ---------------------------------------------------------------------------

    def connect(self) -> None:
        """Record that another session begins, whether its set-up is answered or refused."""
        if self._in_flight:
            self._in_flight_before = True

    def set_up(self, last: int, request_id: int, now: float) -> Resumed:
        """Process the store's reply to a set-up.

        :param last: the last event number that the store holds; less than 1 for none.
        :param request_id: request id of the set-up.
        :param now: seconds of the caller's clock.
        :raises UnexpectedReplyError: more events would be stored than were sent; nothing has changed.
        """
        self._check_sent(last)
        self.last_stored_number = max(last, 0)
        # The reply names no length, and events may have been stored since the last acknowledgement.
        self.segment_length = -1
        durable = self._stored_through(last, now)
        frames = [block.resend_parts(self._writer_bytes, request_id) for block in self._in_flight]
        self.ready = True
        self.due_at = 0
        events = sum(block.count for block in self._in_flight)
        return Resumed(durable, frames, events, sum(block.size for block in self._in_flight))

    def acknowledge(self, reply: DataAppended, now: float) -> list[Durable]:
        """Process an acknowledgement: the store has stored everything up to a number.

        :raises UnexpectedReplyError: it does not match what was sent; nothing has changed.
        """
        number, previous = reply.event_number, reply.previous_event_number
        if (
            not self._in_flight
            or reply.writer_id != self.writer_id
            or number > self._next_number
            or previous >= number
            or previous >= self._in_flight[0].last_number
        ):
            raise UnexpectedReplyError(
                f"{self.segment}: the acknowledgement of event {number} (previous {previous}) "
                f"does not match what was sent (up to event {self._next_number})",
                segment=self.segment,
            )
        self.segment_length = reply.current_segment_write_offset
        self.last_stored_number = number
        self.due_at = 0
        return self._settle_through(number, now)

    def disconnect(self) -> None:
        """Record that the connection is gone: nothing can be sent until the next :meth:`set_up`."""
        self.ready = False
        self.due_at = 0

    @property
    def in_doubt(self) -> bool:
        """Whether the final number of a sealed segment has to be fetched (for :meth:`sealed`).

        Blocks that were sent on a lost connection may have been stored after the next set-up was answered or
        refused, and before the segment was sealed (``docs/protocol/unforgiving.md``, "Moving on from a
        segment while it is being sealed").
        """
        return self._in_flight_before and bool(self._in_flight)

    def sealed(self, last: int, now: float) -> list[Durable]:
        """Process the final number of a sealed segment; parameters and errors are those of :meth:`set_up`."""
        self._check_sent(last)
        return self._stored_through(last, now)

    def _check_sent(self, last: int) -> None:
        # Numbers of the caller may be further on: other processes with this id may have stored events.
        if self._in_flight and not self._in_flight[0].numbers and last > self._next_number:
            raise UnexpectedReplyError(
                f"{self.segment}: the store says that event {last} of the writer is stored, but only events "
                f"up to {self._next_number} were sent",
                segment=self.segment,
            )

    def leave_out(self, stored: Stored) -> list[Durable]:
        """Drop the events, numbered by the caller, that this process or another one has already stored."""
        if self.open.numbers:
            self.close_block()
        durable = []
        for queue in (self._in_flight, self._full):
            for block in [each for each in queue if each.numbers]:
                size, count = block.drop(stored)
                if not count:
                    continue
                self.segment_length = -1
                if not block.count:
                    queue.remove(block)
                    block.settle()
                durable.append(Durable(size, count, 0.0))
        self.due_at = 0
        return durable

    def fail(self, error: PravegaError) -> None:
        """Fail everything that is not acknowledged."""
        for block in self.unacknowledged:
            block.fail(error)

    def _stored_through(self, number: int, now: float) -> list[Durable]:
        durable = self._settle_through(number, now)
        # Another process with this id may have stored a part of a block; the rest of the block remains.
        return durable + self.leave_out(lambda each, _: each <= number)

    def _settle_through(self, number: int, now: float) -> list[Durable]:
        in_flight = self._in_flight
        durable = []
        while in_flight and in_flight[0].last_number <= number:
            block = in_flight.popleft()
            block.settle()
            seconds = now - block.sent
            self._least_seconds = min(self._least_seconds, seconds)
            durable.append(Durable(block.size, block.count, seconds))
        return durable


def hand_over(ended: Iterable[Appends[P]], heir_of: Callable[[Place], Appends[P]]) -> None:
    """Move the events of sealed segments to other segments, in order.

    What ``ended`` still lists as unacknowledged must not be stored there, and the other segments must not
    hold anything newer with the same routing key.

    :param ended: appends to the sealed segments.
    :param heir_of: function that returns where an event goes, from what routes it. If it raises, nothing has
        changed.
    """
    pieces = [(*piece, block) for each in ended for block in each.unacknowledged for piece in block.pieces()]
    # Numbered events may come from several segments and go to one, where numbers have to grow. Events without
    # numbers keep their order.
    pieces.sort(key=lambda piece: piece[2])
    heirs = [heir_of(places[0]) for _, places, _, _ in pieces]
    moved: dict[Block[P], dict[Block[P], None]] = {}
    for (framed, places, numbers, old), heir in zip(pieces, heirs, strict=True):
        if old.atomic:
            block = heir.put_atomic([framed], places, len(framed), len(places), numbers)
        else:
            block = heir.room(len(framed))
            block.put([framed], places, len(framed), len(places), numbers)
        moved.setdefault(block, {})[old] = None
    for block, olds in moved.items():
        block.adopt(olds)
    for old in dict.fromkeys(piece[3] for piece in pieces):
        old.settle()
