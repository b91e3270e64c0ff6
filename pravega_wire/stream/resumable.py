"""An event writer that another process can take over: events are numbered by the caller.

A segment keeps, with the data, the number of the last event that each writer id has stored in it (wire
protocol v0.13.0, "Append path"). An ordinary writer picks a new id, so that number ends with it. Here the
id and the numbers are the caller's: a process that is started again with the same id, and writes the same
sequence again from some earlier event on, stores only what is not stored yet.

Each segment has an id of its own, made of the writer's and of the segment's name, since a connection of a
segment store knows a writer by its id alone.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Self
from uuid import UUID, uuid5

import trio

from pravega_wire.checks import check_count, check_uuid
from pravega_wire.controller.tokens import Access
from pravega_wire.controller.types import SegmentWithRange
from pravega_wire.errors import (
    NoSuchSegmentError,
    PravegaError,
    SegmentSealedError,
    WriterHistoryLostError,
)
from pravega_wire.hashing import routing_key_position
from pravega_wire.naming import epoch_of
from pravega_wire.nurseries import look_up_all
from pravega_wire.protocol.append import HEADER_BYTES, MAX_EVENT_BYTES, Place, too_large
from pravega_wire.segment.appender import Ack, SegmentAppender
from pravega_wire.segment.metadata import NULL_ATTRIBUTE, SegmentMetadata
from pravega_wire.segment.store import Backoff
from pravega_wire.stream.arrow import is_arrow, one_array
from pravega_wire.stream.batch import segments_of_epochs
from pravega_wire.stream.core import ClientCore
from pravega_wire.stream.event_writer import EventWriter
from pravega_wire.stream.routing import (
    DEFAULT_MAX_OUTSTANDING_BYTES,
    YIELD_SECONDS,
    Partitioner,
    Route,
    as_bytes,
    batch_of,
    check_lengths,
    fewer_keys,
    more_keys,
    no_key,
)
from pravega_wire.types import ScopedStream

__all__ = ["ResumableWriter"]

log = logging.getLogger(__name__)

_GOLDEN: Final = 0.6180339887498949
"""Multiples of it, modulo 1, are spread evenly over 0 to 1."""


@dataclass(frozen=True, slots=True)
class _Stored:
    """The last event number that is stored, by position in the key space; 0 for none.

    :ivar highs: upper ends of pieces of the key space, ascending. :ivar numbers: one for each piece.
    :ivar complete: whether every segment that could know a number still exists.
    """

    highs: tuple[float, ...]
    numbers: tuple[int, ...]
    complete: bool

    def at(self, position: float) -> int:
        """The number at a position."""
        return self.numbers[min(bisect_left(self.highs, position), len(self.numbers) - 1)]

    def between(self, low: float, high: float) -> set[int]:
        """The numbers of the pieces that overlap a range."""
        lows = (0.0, *self.highs)
        return {
            number
            for start, end, number in zip(lows, self.highs, self.numbers, strict=False)
            if start < high and low < end
        }

    def later(self, other: _Stored) -> _Stored:
        """At each position the later of the two numbers."""
        highs = tuple(sorted({*self.highs, *other.highs}))
        return _Stored(highs, tuple(max(self.at(high), other.at(high)) for high in highs), self.complete)


async def _stored(
    core: ClientCore, stream: ScopedStream, id_on: Callable[[str], UUID], since: Iterable[int] | None = None
) -> _Stored:
    """What the segments of a stream, sealed ones as well, know of a writer.

    :param id_on: the writer's id on a segment, by the segment's name.
    :param since: only these segments, which were the current ones at some time, and all after them.
    """
    controller = core.controller
    if since is None:
        oldest = dict(await controller.get_segments(stream.scope, stream.name))
    else:
        oldest = dict.fromkeys(since, 0)
    ids = await controller.get_segments_between(stream.scope, stream.name, oldest, {})
    segments = await segments_of_epochs(core, stream, sorted(set(map(epoch_of, ids))))

    async def number(segment_id: int) -> int:
        target = core.target(stream, segment_id, Access.WRITE)
        try:
            found = await SegmentMetadata(core.stores, target).attribute(id_on(target.name))
        except NoSuchSegmentError:
            return 0
        return 0 if found == NULL_ATTRIBUTE else found

    numbers = await look_up_all(number, sorted(ids))
    bounds = sorted({bound for each in ids for bound in (segments[each].low, segments[each].high)})
    highs, best = [], []
    for low, high in pairwise(bounds):
        highs.append(high)
        # Down a chain of successors numbers only grow, so the largest is the last.
        best.append(
            max(
                (numbers[each] for each in ids if segments[each].low < high and low < segments[each].high),
                default=0,
            )
        )
    return _Stored(tuple(highs), tuple(best), all(epoch_of(each) == 0 for each in oldest))


class ResumableWriter(EventWriter):
    """Appends a numbered sequence of events, across processes.

    Made by :meth:`PravegaClient.resumable_writer`. Event ``n`` of the sequence is stored once, in whatever
    process and however often it is written, as long as every process with this id writes the same events and
    keys under the same numbers. Start again from the event after :attr:`last_stored`, or from any earlier
    one: what is stored already is left out, and its acknowledgement is there at once. Two processes at the
    same time do no harm.

    It writes as :class:`EventWriter` does, but with a Python object for each event also of an Arrow array.
    Events without a key are spread by their numbers. The numbers are kept by the segments; truncating a
    stream so far that whole segments go, while no process with this id runs, may take them away.

    :ivar writer_id: the caller's id.
    :ivar next_event_number: number that the next event gets; the first event of a sequence has number 1.
    :ivar events_skipped: events that were stored already.
    """

    def __init__(
        self,
        core: ClientCore,
        stream: ScopedStream,
        writer_id: UUID,
        first_event_number: int | None,
        *,
        max_outstanding_bytes: int = DEFAULT_MAX_OUTSTANDING_BYTES,
        partitioner: Partitioner = routing_key_position,
        note_time_every: float | None = None,
    ) -> None:
        super().__init__(
            core,
            stream,
            max_outstanding_bytes=max_outstanding_bytes,
            partitioner=partitioner,
            note_time_every=note_time_every,
        )
        check_uuid("writer_id", writer_id)
        if first_event_number is not None:
            check_count("first_event_number", first_event_number)
        self.writer_id: UUID = writer_id
        self.next_event_number: int = first_event_number or 1
        self.events_skipped = 0
        self._first_event_number = first_event_number
        self._found = self._stored = _Stored((1.0,), (0,), complete=True)
        self._stored_highest = 0
        self._moving = trio.Lock()

    async def open(self) -> Self:
        """As :meth:`EventWriter.open`; asks every segment what it has stored of this writer.

        :raises WriterHistoryLostError: no ``first_event_number`` was given, and segments that may have held
            the last number were truncated away.
        """
        if self._opened:
            return self
        # In this order: the segments before these are sealed, so that what they know is the last word;
        # of these the set-up tells.
        segments = await self._current_segments()
        self._found = await self._stored_since()
        self._know(self._found)
        if self._first_event_number is None:
            if not self._found.complete and not all(self._found.numbers):
                raise WriterHistoryLostError(
                    f"segments of {self.stream} were truncated away that may have held the last event "
                    f"number of writer {self.writer_id}: give first_event_number (1 for a new writer)",
                    scope=self.stream.scope,
                    stream=self.stream.name,
                )
            self.next_event_number = self.last_stored + 1
        self._begin(segments)
        return self

    @property
    def last_stored(self) -> int:
        """Every event up to this number was stored when the writer was opened; 0 for none.

        After :meth:`aclose` it is the last one that was written. After a process was killed it is the least
        of the last numbers of the segments: later events may be stored as well, of keys whose segments had
        more.
        """
        return min(self._found.numbers)

    def last_stored_of(self, routing_key: str) -> int:
        """Of this key every event up to this number was stored when the writer was opened, and none after."""
        if not isinstance(routing_key, str):
            raise no_key(routing_key)
        return self._found.at(self._position_of(routing_key))

    # --- writing --------------------------------------------------------------------------------

    def _position(self, number: int, routing_key: str | None) -> float:
        if routing_key is None:
            return number * _GOLDEN % 1.0
        if not isinstance(routing_key, str):
            raise no_key(routing_key)
        return float(self._position_of(routing_key))

    async def write_event(self, event: bytes, routing_key: str | None = None) -> Ack:
        """As :meth:`EventWriter.write_event`; the event gets the next number."""
        self._check()
        event = as_bytes(event)
        if len(event) > MAX_EVENT_BYTES:
            raise too_large(len(event))
        return await self._write_numbered([event], routing_key, atomic=False)

    async def write_batch(self, events: Iterable[bytes], routing_key: str | None = None) -> Ack:
        """As :meth:`EventWriter.write_batch`; each event gets a number."""
        self._check()
        payloads, _ = batch_of(events)
        if not payloads:
            return Ack(0)
        return await self._write_numbered(payloads, routing_key, atomic=True)

    async def write_events(
        self,
        events: Iterable[bytes],
        routing_keys: Iterable[str | None] | str | None = None,
    ) -> Ack:
        """As :meth:`EventWriter.write_events`; each event gets a number, in this order."""
        check_lengths(events, routing_keys)
        if is_arrow(events):
            events = (each.as_py() for each in one_array(events))
        ack = Ack()
        keys = None if routing_keys is None or isinstance(routing_keys, str) else iter(routing_keys)
        missing = object()
        yielded = time.perf_counter()
        try:
            for event in events:
                key: object = routing_keys if keys is None else next(keys, missing)
                if key is missing:
                    raise fewer_keys()
                self._check()
                event = as_bytes(event)
                if len(event) > MAX_EVENT_BYTES:
                    raise too_large(len(event))
                await self._write_numbered([event], key, atomic=False, into=ack)  # type: ignore[arg-type]  # checked there
                if time.perf_counter() - yielded > YIELD_SECONDS:
                    # The events may take long to make.
                    await trio.lowlevel.checkpoint()
                    yielded = time.perf_counter()
            if keys is not None and next(keys, missing) is not missing:
                raise more_keys()
        finally:
            ack.settle()
        return ack

    async def _write_numbered(
        self, payloads: Sequence[bytes], routing_key: str | None, *, atomic: bool, into: Ack | None = None
    ) -> Ack:
        first = self.next_event_number
        position = self._position(first, routing_key)
        appender = self._select(position)
        self.next_event_number = first + len(payloads)
        # Another process with this id may be ahead: what it has stored here is known since the set-up.
        appends = appender.appends
        known = appends.last_stored_number or 0
        if first <= self._stored_highest:
            known = max(known, self._stored.at(position))
        if first <= known:
            payloads = payloads[known - first + 1 :]
            # Where those are that are stored already is not known here.
            appends.segment_length = -1
            self.events_skipped += self.next_event_number - first - len(payloads)
            first = known + 1
            if not payloads:
                # Skipping many must not keep everything else from running.
                await trio.lowlevel.checkpoint()
                return Ack(0)
        size = sum(map(len, payloads)) + HEADER_BYTES * len(payloads)
        count = len(payloads)
        parts: list[bytes] = []
        for payload in payloads:
            parts += (self._headers[len(payload)], payload)
        numbers = range(first, first + count)
        if atomic:
            block = appends.put_atomic(parts, [position] * count, size, count, numbers, into)
        else:
            block = appends.room(size)
            block.put(parts, [position] * count, size, count, numbers, into)
        self.events_written += count
        self.bytes_written += size - HEADER_BYTES * count
        appender.pump()
        await self._accepted(size)
        return block.ack

    # --- segments -------------------------------------------------------------------------------

    def _id_on(self, segment: str) -> UUID:
        return uuid5(self.writer_id, segment)

    async def sealed(self, appender: SegmentAppender, error: PravegaError) -> None:
        """A segment was sealed: move everything to the segments that are there now."""
        async with self._moving:
            if self._by_id.get(appender.target.segment_id) is not appender:
                return
            try:
                segments = await self._segments_without(appender.target.segment_id)
                if not segments:
                    self._fail(self._stream_sealed())
                    return
                now = {each.segment_id for each in segments}
                ended = [each for segment_id, each in self._by_id.items() if segment_id not in now]
                for each in ended:
                    each.finish()
                # The last acknowledgements may be missing, and another process with this id may have
                # written to these segments, and to others that have come and gone. Numbers grow within a
                # segment: nothing may go to a new one before all that is known.
                self._know(self._stored.later(await self._stored_since(self._by_id)))
                for each in ended:
                    each.leave_out(self._is_stored)
                for segment in segments:
                    if segment.segment_id not in self._by_id:
                        await self._hand_over(segment, ended)
            except PravegaError as failure:
                self._fail(failure)
                return
            if self._error is None:
                self._move(ended, segments)

    async def _segments_without(self, segment_id: int) -> list[SegmentWithRange]:
        """The stream's segments, once the controller has recorded what came after a sealed one."""
        backoff = Backoff(self._core.stores.operation_timeout)
        while True:
            segments = await self._core.controller.get_current_segments(self.stream.scope, self.stream.name)
            if all(each.segment_id != segment_id for each in segments):
                return segments
            if not await backoff.wait():
                return []

    async def _stored_since(self, segment_ids: Iterable[int] | None = None) -> _Stored:
        return await _stored(self._core, self.stream, self._id_on, segment_ids)

    def _know(self, stored: _Stored) -> None:
        self._stored = stored
        self._stored_highest = max(stored.numbers)

    def _is_stored(self, number: int, place: Place) -> bool:
        assert isinstance(place, float)
        return number <= self._stored.at(place)

    async def _hand_over(self, segment: SegmentWithRange, ended: Sequence[SegmentAppender]) -> None:
        """Leave word in a new segment of what the sealed ones before it have stored.

        Without it their numbers would be lost when they are truncated before this one gets an event.
        """
        numbers = set()
        for route in self._routes:
            low, high = max(route.low, segment.low), min(route.high, segment.high)
            if low < high and route.appender in ended:
                left = route.appender.appends.unacknowledged
                through = left[0].numbers[0] - 1 if left else self.next_event_number - 1
                numbers |= {max(through, before) for before in self._stored.between(low, high)}
        # Where the parts of the range differ there is no number that is true of all of it.
        if len(numbers) == 1 and (number := numbers.pop()) > 0:
            target = self._core.target(self.stream, segment.segment_id, Access.WRITE)
            try:
                # Where there is a number already, another process with this id was faster.
                await SegmentMetadata(self._core.stores, target).compare_and_set_attribute(
                    self._id_on(target.name), NULL_ATTRIBUTE, number
                )
            except (SegmentSealedError, NoSuchSegmentError) as error:
                # The stream has scaled once more; the sealed segments still know.
                log.debug("%s takes no number any more: %s", target.name, error)

    def _move(self, ended: Sequence[SegmentAppender], segments: Sequence[SegmentWithRange]) -> None:
        """Put what is not stored into the segments that are there now, in the order of numbers."""
        for each in ended:
            del self._by_id[each.target.segment_id]
        self._set_routes([Route(each.low, each.high, self._appender(each.segment_id)) for each in segments])
        self._resend(ended)

    async def aclose(self) -> None:
        """As :meth:`EventWriter.aclose`; leaves word that everything up to here is stored."""
        writing = self._opened and self._error is None
        await super().aclose()
        if not writing:
            return
        last = self.next_event_number - 1
        for route in self._routes:
            known = route.appender.appends.last_stored_number
            if known is None or last <= max(known, *self._stored.between(route.low, route.high)):
                continue
            try:
                await SegmentMetadata(self._core.stores, route.appender.target).compare_and_set_attribute(
                    route.appender.appends.writer_id, known or NULL_ATTRIBUTE, last
                )
            except PravegaError as error:
                # All is stored; the next process only has to start somewhat earlier.
                log.info("%s does not know that all is stored: %s", route.appender.target.name, error)
