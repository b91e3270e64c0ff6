"""Reading a stream on and on without a reader group: see :class:`StreamFollower`."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Self, TypeAlias, TypeVar

import trio

from pravega_wire.controller.tokens import Access
from pravega_wire.errors import (
    ClosedError,
    DataLossError,
    InvalidArgumentError,
    PravegaError,
)
from pravega_wire.protocol.events import EventBatch, EventRows
from pravega_wire.segment.following import FollowingReader
from pravega_wire.segment.handles import OneAtATime, when_dropped
from pravega_wire.segment.reader import CHUNK_BYTES, SMALLEST_CHUNK_BYTES, EventRangeReader
from pravega_wire.serializers import Serializer, preparing, total
from pravega_wire.stream.batch import check_offsets, recorded_successors, successors
from pravega_wire.stream.core import ClientCore, not_shared
from pravega_wire.stream.event_reader import DEFAULT_BUFFERED_BYTES, BareEvent, Event
from pravega_wire.stream.skipping import report_skipped
from pravega_wire.support.checks import check_bytes, check_seconds, check_serializer
from pravega_wire.values.cuts import OnTruncated, SkippedPart, check_on_truncated
from pravega_wire.values.naming import epoch_of
from pravega_wire.values.types import SEGMENT_READ, ScopedStream, StreamCut

__all__ = ["StreamFollower"]

T = TypeVar("T")

_CHUNKS_EACH: Final = 4
# Chunks of a segment: two in flight or received, one being parsed, one with the caller.


# --- what the tasks that read segments send to the caller -------------------------------------------


@dataclass(slots=True, eq=False)
class _Batch:
    """Events of a segment. The caller sets ``used`` when it needs them no more."""

    segment_id: int
    events: EventBatch
    used: trio.Event = field(default_factory=trio.Event)


@dataclass(slots=True, eq=False)
class _Lost:
    """Data that was truncated: up to ``start``, or all of the segment (None)."""

    segment_id: int
    segment: str
    start: int | None
    error: DataLossError


@dataclass(slots=True, eq=False)
class _Ended:
    """A segment was read to its end. What follows it, each with the segments to be read before."""

    segment_id: int
    following: list[tuple[int, frozenset[int]]]


@dataclass(slots=True, eq=False)
class _Failed:
    """Reading a segment has failed, and its task has ended."""

    segment_id: int
    error: PravegaError


_Item: TypeAlias = _Batch | _Lost | _Ended | _Failed


class _Segments:
    """The tasks that read segments. They do not refer to the follower, which may be dropped without closing.

    :param first: the segments of the cut to begin with.
    :param prepare: awaited with the payloads of each batch, before the caller gets it.
    :ivar running: segments whose end the caller has not been told.
    """

    def __init__(
        self,
        core: ClientCore,
        stream: ScopedStream,
        first: Iterable[int],
        max_buffered_bytes: int,
        prepare: Callable[[list[bytes]], Awaitable[None]] | None,
    ) -> None:
        self._core = core
        self._stream = stream
        self._first = frozenset(first)
        self._newest_epoch = max(map(epoch_of, self._first), default=0)
        self._budget = max_buffered_bytes
        self._prepare = prepare
        self._passed: dict[int, bool] = {}
        self._todo: dict[int, int] = {}
        self._nursery: trio.Nursery | None = None
        self._readers: dict[int, FollowingReader] = {}
        self._send, self.items = trio.open_memory_channel[_Item](0)
        self.scope = trio.CancelScope()
        self.running: set[int] = set()
        self.ended = trio.Event()

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Read segments until the scope is cancelled."""
        try:
            with self.scope:
                async with self._send, trio.open_nursery() as nursery:
                    self._nursery = nursery
                    for segment_id, offset in self._todo.items():
                        nursery.start_soon(self._read, segment_id, offset)
                    await trio.sleep_forever()
        finally:
            self.ended.set()

    def begin(self, segment_id: int, offset: int) -> None:
        """Start to read a segment."""
        self.running.add(segment_id)
        if self._nursery is None:
            self._todo[segment_id] = offset
        else:
            self._nursery.start_soon(self._read, segment_id, offset)

    @trio.lowlevel.enable_ki_protection
    async def _read(self, segment_id: int, offset: int) -> None:
        item: _Item
        try:
            if offset != SEGMENT_READ:
                await self._read_events(segment_id, offset)
            item = _Ended(segment_id, await self._what_follows(segment_id))
        except PravegaError as error:
            item = _Failed(segment_id, error)
        await self._send.send(item)

    async def _read_events(self, segment_id: int, offset: int) -> None:
        """Read a segment to its end, beyond what was truncated."""
        target = self._core.target(self._stream, segment_id, Access.READ)
        while True:
            reader = FollowingReader(self._core.stores, target, offset, depth=2)
            self._readers[segment_id] = reader
            self._share_out()
            try:
                async with EventRangeReader(reader) as events:
                    while (batch := await events.next_batch()) is not None:
                        if self._prepare is not None:
                            await self._prepare(batch.to_list())
                        item = _Batch(segment_id, batch)
                        await self._send.send(item)
                        # The caller finds the events while it uses them; to parse more, they would be needed
                        # now.
                        await item.used.wait()
                        offset = batch.next_offset
                return
            except DataLossError as error:
                start = error.start_offset
                lost = _Lost(
                    segment_id, target.name, start if start is not None and start > offset else None, error
                )
            finally:
                del self._readers[segment_id]
                self._share_out()
            await self._send.send(lost)
            if lost.start is None:
                # What follows it may be there.
                return
            offset = lost.start

    def _share_out(self) -> None:
        share = self._budget // (_CHUNKS_EACH * max(1, len(self._readers)))
        for each in self._readers.values():
            each.chunk_bytes = max(SMALLEST_CHUNK_BYTES, min(CHUNK_BYTES, share))

    async def _what_follows(self, segment_id: int) -> list[tuple[int, frozenset[int]]]:
        found = []
        for each in (await successors(self._core, self._stream, segment_id)).successors:
            needed = {
                before
                for before in each.predecessors
                if before != segment_id and not await self._is_passed(before)
            }
            found.append((each.segment.segment_id, frozenset(needed)))
        return found

    async def _is_passed(self, segment_id: int) -> bool:
        """Whether a segment was read before the cut to begin with, because a segment of the cut descends from
        it.

        After an uneven merge, a cut may leave out keys for which the next segment cannot be begun yet
        (:meth:`StreamLayout.check`).
        """
        if segment_id in self._first or epoch_of(segment_id) >= self._newest_epoch:
            return False
        known = self._passed.get(segment_id)
        if known is None:
            known = False
            for each in (await recorded_successors(self._core, self._stream, segment_id)).segments:
                if each.segment_id in self._first or await self._is_passed(each.segment_id):
                    known = True
                    break
            self._passed[segment_id] = known
        return known


class _Hand:
    """A batch from which events are returned, one by one or all together.

    :ivar whole: whether the caller has got all of it.
    """

    __slots__ = ("item", "rows", "whole")

    def __init__(self, item: _Batch, deserialize: Callable[[bytes], Any] | None) -> None:
        self.item = item
        self.rows: EventRows[Event[Any]] = item.events.rows(BareEvent, deserialize)
        self.whole = False

    @property
    def exhausted(self) -> bool:
        return self.whole or self.rows.exhausted

    @property
    def offset(self) -> int:
        """Segment offset after the last event that was returned."""
        return self.item.events.next_offset if self.whole else self.rows.offset(self.rows.index)


class StreamFollower(Generic[T]):
    """The events of a stream from a position on, and those that will be written::

        async with client.follow_events("demo/readings") as events:
            async for event in events:
                print(event.value)
                saved = events.cut.to_text()

    Made by :meth:`PravegaClient.follow_events`. It follows the stream through scaling, and ends only if the
    stream is sealed. Events of one routing key arrive in the order in which they were written; those of
    different segments in no particular order. It leaves nothing on the server: :attr:`cut` is the position
    after the last event that was returned, and a follower that starts there returns exactly the events after
    it.

    Where it starts is looked up on entering the block, or by the first request if it is not entered. Close it
    (``aclose`` or ``async with``) when you stop; a follower that nobody refers to any more closes itself.

    It is for one caller at a time. Cancelling a call leaves it usable. After an error, the next call
    continues at the same position: behind what was lost after :class:`DataLossError`, and after an event that
    the serializer has rejected."""

    def __init__(
        self,
        core: ClientCore,
        stream: ScopedStream,
        find: Callable[[], Awaitable[StreamCut]],
        serializer: Serializer[T] | None = None,
        *,
        on_truncated: OnTruncated = "raise",
        max_buffered_bytes: int = DEFAULT_BUFFERED_BYTES,
    ) -> None:
        core.check_open()
        check_on_truncated(on_truncated)
        check_bytes("max_buffered_bytes", max_buffered_bytes)
        if serializer is not None:
            check_serializer(f"follower of stream {stream}: serializer", serializer)
        self.stream = stream
        self._core = core
        self._find_start = find
        self._deserialize = None if serializer is None else total(serializer.deserialize)
        self._prepare = preparing(serializer)
        self._skip_truncated = on_truncated == "skip_to_head"
        self._budget = max_buffered_bytes
        self._alone = OneAtATime(f"another call is reading with this follower of stream {stream}")
        self._segments: _Segments | None = None
        # The offset in each segment that is being read; -1 for one that was read to its end, as long as none
        # of the segments after it could be begun.
        self._offsets: dict[int, int] = {}
        self._done: set[int] = set()
        # The segments that wait for others, with those.
        self._waiting: dict[int, frozenset[int]] = {}
        # Segments whose reading has failed.
        self._stopped: list[int] = []
        self._hand: _Hand | None = None
        self._rows: Iterator[Event[T]] = iter(())
        self._closed = False

    __reduce__ = not_shared

    def __repr__(self) -> str:
        if self._closed:
            state = "closed"
        elif self._segments is None:
            state = "not begun"
        else:
            state = "at the end" if self.end_of_data else f"open, {len(self._offsets)} segments"
        return f"<StreamFollower of {self.stream}, {state}>"

    # --- where it is ----------------------------------------------------------------------------

    @property
    def cut(self) -> StreamCut:
        """The position after the last event or batch that was returned; at first where it started.

        :raises InvalidArgumentError: it was neither entered nor asked for an event yet.
        """
        if self._segments is None:
            raise InvalidArgumentError(
                f"the follower of stream {self.stream} has no position yet: it looks up where to start on "
                "entering its block, or with the first event"
            )
        offsets = dict(self._offsets)
        hand = self._hand
        if hand is not None:
            offsets[hand.item.segment_id] = hand.offset
        return StreamCut(self.stream, offsets)

    @property
    def end_of_data(self) -> bool:
        """True once the stream was sealed and everything was read."""
        segments = self._segments
        return segments is not None and not segments.running and not self._stopped

    # --- reading --------------------------------------------------------------------------------

    async def read_event(self, timeout: float | None = None) -> Event[T] | None:
        """Return the next event.

        :param timeout: seconds to wait; default: until there is an event.
        :returns: None after the timeout, or at :attr:`end_of_data`.
        :raises DataLossError: the next events of a segment were truncated.
        :raises DecodeError: the bytes in the segment are not an event, or the serializer rejects the payload.
        :raises RetriesExhaustedError: a segment could not be read within ``operation_timeout``.
        :raises InvalidStreamCutError: (the first call) the start is a cut of another stream, beyond the end
            of a segment, or without a segment for each routing key.
        :raises StreamNotFoundError: the stream does not exist.
        :raises ClosedError: the follower was closed before or during this call.
        :raises ConcurrentUseError: another call is reading.
        """
        event = self.read_event_nowait()
        if event is not None:
            return event
        found = await self._find(timeout)
        return None if found is None else self._first_event(found)

    def read_event_nowait(self) -> Event[T] | None:
        """Return the next event if it is available without waiting, else None.

        After None, call :meth:`read_event`.
        """
        for event in self._rows:
            # Not by next(): an interrupt after that call would lose the event.
            return event
        return None

    def events_nowait(self) -> Iterator[Event[T]]:
        """Iterate over the next events that are available without waiting.

        The iteration ends when :meth:`read_event` is needed.
        """
        rows = self._rows
        for event in rows:
            yield event
            if self._rows is not rows:
                # Another call has gone on.
                return

    async def next_batch(self, timeout: float | None = None) -> EventBatch | None:
        """Return the next events of one segment, as many as have arrived; otherwise as :meth:`read_event`."""
        found = await self._find(timeout)
        return None if found is None else self._all_events(found)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event[T]:
        """Return the next event; the iteration ends at :attr:`end_of_data`."""
        for event in self._rows:
            return event
        found = await self._find()
        if found is None:
            raise StopAsyncIteration
        return self._first_event(found)

    async def batches(self) -> AsyncGenerator[EventBatch, None]:
        """Iterate over all events in batches::

        async for batch in follower.batches():
            print(batch.segment, len(batch))
        """
        while (found := await self.next_batch()) is not None:
            yield found

    def _first_event(self, found: _Hand) -> Event[T]:
        """Return the first event that :meth:`_find` has found; in any thread."""
        self._rows = rows = found.rows.take(sys.maxsize)
        for event in rows:
            return event
        raise AssertionError("what was found has no event")

    def _all_events(self, found: _Hand) -> EventBatch:
        """Return all events that :meth:`_find` has found; in any thread."""
        batch, index = found.item.events, found.rows.index
        found.whole = True
        self._rows = iter(())
        return batch.after(index) if index else batch

    # --- the work of a call ---------------------------------------------------------------------

    async def _begin(self) -> _Segments:
        self._core.check_run()
        self._check_open()
        segments = self._segments
        if segments is None:
            cut = await self._find_start()
            await check_offsets(self._core, cut)
            self._check_open()
            segments = _Segments(self._core, self.stream, cut.positions, self._budget, self._prepare)
            self._offsets = dict(cut.positions)
            for segment_id, offset in cut.positions.items():
                segments.begin(segment_id, offset)
            when_dropped(self, segments.scope.cancel, lambda: not segments.ended.is_set())
            self._core.nursery.start_soon(segments.run)
            self._segments = segments
        return segments

    async def _find(self, timeout: float | None = None) -> _Hand | None:
        """Find the next events; None after the timeout and at the end. For the facades, too."""
        if timeout is not None:
            check_seconds("timeout", timeout, zero=True, infinite=True)
        with self._alone:
            until = float("inf") if timeout is None else trio.current_time() + timeout
            segments = await self._begin()
            while self._stopped:
                segment_id = self._stopped.pop()
                segments.begin(segment_id, self._offsets[segment_id])
            while True:
                hand = self._hand
                if hand is not None and hand.exhausted:
                    self._drop(hand)
                elif hand is not None or self.end_of_data:
                    await trio.lowlevel.checkpoint()
                    self._check_open()
                    return hand
                item = await self._receive(segments, until)
                if item is None:
                    return None
                self._handle(segments, item)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"the follower of stream {self.stream} is closed")
        self._core.check_open()

    async def _receive(self, segments: _Segments, until: float) -> _Item | None:
        try:
            try:
                return segments.items.receive_nowait()
            except trio.WouldBlock:
                pass
            with trio.move_on_at(until):
                return await segments.items.receive()
            return None
        except (trio.ClosedResourceError, trio.EndOfChannel):
            self._check_open()
            raise ClosedError("the client is closed") from None

    def _handle(self, segments: _Segments, item: _Item) -> None:
        match item:
            case _Batch():
                self._hand = _Hand(item, self._deserialize)
            case _Ended(ended, following):
                segments.running.discard(ended)
                self._offsets[ended] = SEGMENT_READ
                self._done.add(ended)
                self._waiting.update(each for each in following if each[0] not in self._offsets)
                self._begin_waiting(segments, ended, [segment_id for segment_id, _ in following])
            case _Lost(segment_id, segment, start, error):
                offset = self._offsets[segment_id]
                self._offsets[segment_id] = SEGMENT_READ if start is None else start
                if not self._skip_truncated:
                    raise error
                size = None if start is None else start - offset
                lost = SkippedPart(segment, offset, self._offsets[segment_id], size)
                report_skipped(self._core, self.stream, lost, "a follower")
            case _Failed(segment_id, error):
                segments.running.discard(segment_id)
                self._stopped.append(segment_id)
                raise error

    def _begin_waiting(self, segments: _Segments, ended: int, following: Iterable[int]) -> None:
        """Begin the segments that waited for this one only."""
        for segment_id, needed in list(self._waiting.items()):
            if segment_id in following and needed <= self._done:
                del self._waiting[segment_id]
                for before in (*needed, ended):
                    self._offsets.pop(before, None)
                self._offsets[segment_id] = 0
                segments.begin(segment_id, 0)

    def _drop(self, hand: _Hand) -> None:
        """Let a batch go that the caller has got."""
        self._offsets[hand.item.segment_id] = hand.item.events.next_offset
        self._rows = iter(())
        self._hand = None
        hand.item.used.set()

    # --- closing --------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Release the connections. A call that is reading gets :class:`ClosedError`."""
        await self._end()
        await trio.lowlevel.checkpoint()

    async def _end(self) -> None:
        self._core.check_run()
        self._closed = True
        self._rows = iter(())
        segments = self._segments
        if segments is not None:
            segments.items.close()
            segments.scope.cancel()
            # The tasks are cancelled and end without waiting.
            with trio.CancelScope(shield=True):
                await segments.ended.wait()

    async def __aenter__(self) -> Self:
        with self._alone:
            await self._begin()
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        await self._end()
        if kind is None:
            # After an exception there is no checkpoint: a cancellation would replace the exception.
            await trio.lowlevel.checkpoint()
