"""An event writer that another process can resume: the events are numbered by the caller.

A segment stores, besides its data, the number of the last event that each writer id has appended to it
(``docs/protocol/wire.md``, "Event numbers"). An ordinary writer picks a new id, so no other process can use
that number later. Here the caller chooses the id and the numbers. A process that is started again with the
same id, and repeats the sequence from some earlier event on, stores only the events that are missing.

Each segment gets its own id, made from the writer's id and the segment's name, because within one connection
a segment store identifies a writer by its id alone.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Self
from uuid import UUID, uuid5

import trio

from pravega_wire.controller.tokens import Access
from pravega_wire.controller.types import SegmentWithRange
from pravega_wire.errors import (
    ClosedError,
    InvalidArgumentError,
    NoSuchSegmentError,
    PravegaError,
    SegmentSealedError,
    UnexpectedReplyError,
    WriterHistoryLostError,
)
from pravega_wire.protocol.append import HEADER_BYTES, MAX_EVENT_BYTES, Place, settle, too_large
from pravega_wire.segment.appender import Ack, SegmentAppender
from pravega_wire.segment.metadata import NULL_ATTRIBUTE, SegmentMetadata
from pravega_wire.segment.store import Backoff
from pravega_wire.serializers import Serializer, Value
from pravega_wire.stream.arrow import is_arrow, one_array
from pravega_wire.stream.batch import no_successors, segments_of_epochs, successors
from pravega_wire.stream.core import ClientCore
from pravega_wire.stream.event_writer import EventWriter
from pravega_wire.stream.routing import (
    DEFAULT_MAX_OUTSTANDING_BYTES,
    YIELD_SECONDS,
    Partitioner,
    Route,
    ValueWriter,
    as_bytes,
    batch_of,
    check_lengths,
    fewer_keys,
    more_keys,
    no_key,
    to_bytes,
)
from pravega_wire.support.checks import INT64_MAX, check_count, check_uuid
from pravega_wire.support.environment import environment
from pravega_wire.support.nurseries import look_up_all
from pravega_wire.transport.limits import limited, note_progress
from pravega_wire.values.hashing import routing_key_position
from pravega_wire.values.naming import epoch_of
from pravega_wire.values.types import ScopedStream

__all__ = ["ResumableWriter", "resumable_writer"]

log = logging.getLogger(__name__)

_GOLDEN: Final = 0.6180339887498949
"""Multiples of this, modulo 1, are evenly distributed over 0 to 1."""


@dataclass(frozen=True, slots=True)
class _Stored:
    """The number of the last stored event, by position in the key space; 0 for none.

    :ivar highs: upper ends of pieces of the key space, ascending.
    :ivar numbers: one number for each piece.
    :ivar complete: whether every segment that could hold a number still exists.
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
        """The larger of the two numbers at each position."""
        highs = tuple(sorted({*self.highs, *other.highs}))
        return _Stored(highs, tuple(max(self.at(high), other.at(high)) for high in highs), self.complete)


async def _stored(
    core: ClientCore, stream: ScopedStream, id_on: Callable[[str], UUID], since: Iterable[int] | None = None
) -> _Stored:
    """Find out what the segments of a stream, including sealed ones, have stored of a writer.

    :param id_on: the writer's id on a segment, by the segment's name.
    :param since: only these segments, which were the active ones at some time, and all their successors.
    """
    controller = core.controller
    if since is None:
        oldest = dict(await controller.get_segments(stream.scope, stream.name))
    else:
        oldest = dict.fromkeys(since, 0)
    ids = await controller.get_segments_between(stream.scope, stream.name, oldest, {})
    segments = await segments_of_epochs(core, stream, sorted(set(map(epoch_of, ids))))
    if not ids or not segments.keys() >= set(ids):
        raise UnexpectedReplyError(
            f"the controller reports the segments {sorted(ids)} of stream {stream}, and no key ranges of "
            f"{sorted(set(ids) - segments.keys())}",
            scope=stream.scope,
            stream=stream.name,
        )

    async def number(segment_id: int) -> int:
        target = core.target(stream, segment_id, Access.WRITE)
        try:
            found = await SegmentMetadata(core.stores, target).attribute(id_on(target.name))
        except NoSuchSegmentError:
            return 0
        # A stream may have any number of segments.
        note_progress()
        # Less than 1 is none, as in the reply to a set-up.
        return max(0, found)

    numbers = await look_up_all(number, sorted(ids))
    bounds = sorted({bound for each in ids for bound in (segments[each].low, segments[each].high)})
    highs, best = [], []
    for low, high in pairwise(bounds):
        highs.append(high)
        # Along a chain of successors the numbers only grow, so the largest is the last.
        best.append(
            max(
                (numbers[each] for each in ids if segments[each].low < high and low < segments[each].high),
                default=0,
            )
        )
    return _Stored(tuple(highs), tuple(best), all(epoch_of(each) == 0 for each in oldest))


class ResumableWriter(EventWriter[Value]):
    """Appends a numbered sequence of events that another process can resume without duplicates.

    Made by :meth:`PravegaClient.resumable_writer`. Event ``n`` of the sequence is stored exactly once, no
    matter which processes write it and how often, as long as every process with this id writes the same
    events and keys under the same numbers. After a restart continue with the event after :attr:`last_stored`,
    or with any earlier one: events that are already stored are skipped, and their acknowledgements are
    complete at once. Two processes that write at the same time do no harm.

    In all else it works like :class:`EventWriter`, except that it creates a Python object for each event even
    of an Arrow array. Events without a key are distributed by their numbers. The segments hold the numbers.
    They may be lost if the stream is truncated so far that whole segments are deleted while no process with
    this id is running.

    Example::

        import uuid

        writer_id = uuid.UUID("6f9619ff-8b86-d011-b42d-00cf4fc964ff")
        async with client.resumable_writer("demo/readings", writer_id) as writer:
            for number in range(writer.last_stored + 1, 101):
                await writer.write_event(b"reading %d" % number, "sensor-7")

    :ivar writer_id: the caller's id.
    :ivar next_event_number: the number of the next event. The first event of a sequence has number 1.
    :ivar events_skipped: the number of events that were skipped because they were already stored.
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

    @limited("opening the writer of {self.stream}")
    async def __aenter__(self) -> Self:
        """Find the stream's segments and what each has stored of this writer.

        :raises WriterHistoryLostError: no ``first_event_number`` was given, and segments that may have held
            the last number were truncated away.
        :raises StreamNotFoundError: the stream does not exist.
        :raises StreamSealedError: the stream is sealed.
        """
        if self._opened:
            return self
        # The order matters. Predecessors of these segments are sealed, so their numbers are final. The
        # numbers of these segments themselves arrive with the set-up of each append session.
        segments = await self._current_segments()
        self._found = await self._stored_since()
        self._know(self._found)
        if self._first_event_number is None:
            if not self._found.complete and not all(self._found.numbers):
                raise WriterHistoryLostError(
                    f"the last event number of writer {self.writer_id} is unknown, because segments of "
                    f"{self.stream} that may have held it were truncated away: pass first_event_number (1 "
                    "for a new writer)",
                    scope=self.stream.scope,
                    stream=self.stream.name,
                )
            self.next_event_number = self.last_stored + 1
        self._begin(segments)
        return self

    @property
    def last_stored(self) -> int:
        """All events up to this number were stored when the writer was opened; 0 for none.

        If the previous process closed its writer, this is the number of the last event it wrote. If that
        process was killed, this is the smallest of the segments' last numbers: later events may also be
        stored, for keys whose segments had got further.
        """
        return min(self._found.numbers)

    def last_stored_of(self, routing_key: str) -> int:
        """The number up to which the events of one key were stored when the writer was opened.

        All events of the key up to this number were stored, and none after it.

        :raises InvalidArgumentError: the key is not a string.
        """
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

    async def write_event(self, event: Value, routing_key: str | None = None) -> Ack:
        """Append one event under the next number; see :meth:`EventWriter.write_event`."""
        self._check()
        payload = as_bytes(event, self._name)
        if len(payload) > MAX_EVENT_BYTES:
            raise too_large(len(payload), writer=self._name)
        return await self._write_numbered([payload], routing_key, atomic=False)

    async def write_batch(self, events: Iterable[Value], routing_key: str | None = None) -> Ack:
        """Append several events atomically, each with its own number; see :meth:`EventWriter.write_batch`."""
        self._check()
        payloads, _ = batch_of(events, self._name)
        if not payloads:
            return Ack(0)
        return await self._write_numbered(payloads, routing_key, atomic=True)

    async def write_events(
        self,
        events: Iterable[Value],
        routing_keys: Iterable[str | None] | str | None = None,
    ) -> Ack:
        """Append many events, numbered in this order; see :meth:`EventWriter.write_events`."""
        check_lengths(events, routing_keys, self._name)
        if is_arrow(events):
            events = (each.as_py() for each in one_array(events))
        ack = Ack()
        keys = None if routing_keys is None or isinstance(routing_keys, str) else iter(routing_keys)
        missing = object()
        yielded = environment().monotonic()
        try:
            for event in events:
                key: object = routing_keys if keys is None else next(keys, missing)
                if key is missing:
                    raise fewer_keys()
                self._check()
                payload = as_bytes(event, self._name)
                if len(payload) > MAX_EVENT_BYTES:
                    raise too_large(len(payload), writer=self._name)
                await self._write_numbered([payload], key, atomic=False, into=ack)  # type: ignore[arg-type]
                if environment().monotonic() - yielded > YIELD_SECONDS:
                    # Making the events may take time.
                    await trio.lowlevel.checkpoint()
                    yielded = environment().monotonic()
            if keys is not None and next(keys, missing) is not missing:
                raise more_keys()
        finally:
            settle(ack)
        return ack

    async def _write_numbered(
        self, payloads: Sequence[bytes], routing_key: str | None, *, atomic: bool, into: Ack | None = None
    ) -> Ack:
        first = self.next_event_number
        if first + len(payloads) - 1 > INT64_MAX:
            raise InvalidArgumentError(
                f"writer {self.writer_id} of {self.stream}: there is no event number after {INT64_MAX}",
                scope=self.stream.scope,
                stream=self.stream.name,
            )
        position = self._position(first, routing_key)
        appender = self._select(position)
        self.next_event_number = first + len(payloads)
        # Another process with this id may be ahead. The set-up reported what it has stored here.
        appends = appender.appends
        known = appends.last_stored_number or 0
        if first <= self._stored_highest:
            known = max(known, self._stored.at(position))
        if first <= known:
            payloads = payloads[known - first + 1 :]
            # The skipped events end at an unknown offset, so the known segment length is outdated.
            appends.segment_length = -1
            self.events_skipped += self.next_event_number - first - len(payloads)
            first = known + 1
            if not payloads:
                # Skipping many events must not block other tasks.
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

    async def _sealed(self, appender: SegmentAppender, error: PravegaError) -> None:
        """A segment was sealed: move its events to the segments that are active now."""
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
                # The last acknowledgements may be missing, and another process with this id may have written
                # to these segments and to others that were created and sealed since. Numbers must grow within
                # a segment, so nothing may go to a new one before all of that is known.
                self._know(self._stored.later(await self._stored_since(self._by_id)))
                for each in ended:
                    each.leave_out(self._is_stored)
                for segment in segments:
                    if segment.segment_id not in self._by_id:
                        await self._hand_over(segment, ended)
            except PravegaError as failure:
                self._fail(failure)
                return
            except BaseException:
                # The client is being closed. The finished appenders no longer end what tasks outside of it
                # wait for.
                self._fail(ClosedError(f"the writer of {self.stream} has ended: the client was closed"))
                raise
            if self._error is None:
                self._move(ended, segments)

    async def _segments_without(self, segment_id: int) -> list[SegmentWithRange]:
        """The stream's active segments, once the controller has recorded the successors of a sealed one.

        There are none if the stream is sealed.
        """
        # The segments of a stream that was created again do not follow it.
        if not (await successors(self._core, self.stream, segment_id)).segments:
            return []
        backoff = Backoff(self._core.stores.operation_timeout)
        while True:
            segments = await self._core.controller.get_current_segments(self.stream.scope, self.stream.name)
            if all(each.segment_id != segment_id for each in segments):
                return segments
            if not await backoff.wait():
                raise no_successors(self._core, self.stream, segment_id)

    async def _stored_since(self, segment_ids: Iterable[int] | None = None) -> _Stored:
        return await _stored(self._core, self.stream, self._id_on, segment_ids)

    def _know(self, stored: _Stored) -> None:
        self._stored = stored
        self._stored_highest = max(stored.numbers)

    def _is_stored(self, number: int, place: Place) -> bool:
        assert isinstance(place, float)
        return number <= self._stored.at(place)

    async def _hand_over(self, segment: SegmentWithRange, ended: Sequence[SegmentAppender]) -> None:
        """Record in a new segment what its sealed predecessors have stored.

        Otherwise the numbers would be lost if the predecessors were truncated before the new segment gets an
        event.
        """
        numbers = set()
        for route in self._routes:
            low, high = max(route.low, segment.low), min(route.high, segment.high)
            if low < high and route.appender in ended:
                left = route.appender.appends.unacknowledged
                through = left[0].numbers[0] - 1 if left else self.next_event_number - 1
                numbers |= {max(through, before) for before in self._stored.between(low, high)}
        # If parts of the range differ, no single number is right for the whole segment.
        if len(numbers) == 1 and (number := numbers.pop()) > 0:
            target = self._core.target(self.stream, segment.segment_id, Access.WRITE)
            try:
                # If the segment already has a number, another process with this id was faster.
                await SegmentMetadata(self._core.stores, target).compare_and_set_attribute(
                    self._id_on(target.name), NULL_ATTRIBUTE, number
                )
            except (SegmentSealedError, NoSuchSegmentError) as error:
                # The stream has scaled again. The sealed segments still hold the numbers.
                log.debug("%s takes no more event numbers: %s", target.name, error)

    def _move(self, ended: Sequence[SegmentAppender], segments: Sequence[SegmentWithRange]) -> None:
        """Put the events that are not stored into the active segments, in the order of their numbers."""
        for each in ended:
            del self._by_id[each.target.segment_id]
        self._set_routes([Route(each.low, each.high, self._appender(each.segment_id)) for each in segments])
        self._resend(ended)

    async def aclose(self) -> None:
        """Flush and close, like :meth:`EventWriter.aclose`.

        Also records in the segments that all events written so far are stored, so that the next process can
        continue there.
        """
        writing = self._opened and self._error is None
        await super().aclose()
        if not writing:
            return
        doing = f"recording on {self.stream} that all events are stored"
        try:
            await self._core.leaving.run(self._record_end, doing)
        except PravegaError as error:
            # All events are stored. The next process only has to start somewhat earlier.
            log.info("not all segments have recorded that all events are stored: %s", error)
        await trio.lowlevel.checkpoint()

    async def _record_end(self) -> None:
        last = self.next_event_number - 1
        for route in self._routes:
            appends = route.appender.appends
            if last <= max(self._stored.between(route.low, route.high)):
                continue
            metadata = SegmentMetadata(self._core.stores, route.appender.target)
            try:
                known = appends.last_stored_number
                if known is None:
                    # Nothing was written to it, and its session was not even set up.
                    known = max(0, await metadata.attribute(appends.writer_id))
                if last > known:
                    await metadata.compare_and_set_attribute(appends.writer_id, known or NULL_ATTRIBUTE, last)
            except PravegaError as error:
                log.info(
                    "could not record in %s that all events are stored: %s", route.appender.target.name, error
                )


class _ResumableWriter(ValueWriter[Value], ResumableWriter[Value]):
    """A resumable writer with a serializer."""


def resumable_writer(
    core: ClientCore,
    stream: ScopedStream,
    writer_id: UUID,
    first_event_number: int | None,
    serializer: Serializer[Any] | None,
    **options: Any,
) -> ResumableWriter[Any]:
    """See :meth:`PravegaClient.resumable_writer`."""
    if serializer is None:
        return ResumableWriter(core, stream, writer_id, first_event_number, **options)
    writer: _ResumableWriter[Any] = _ResumableWriter(core, stream, writer_id, first_event_number, **options)
    writer._to_bytes = to_bytes(serializer, stream)
    return writer
