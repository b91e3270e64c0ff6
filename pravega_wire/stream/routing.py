"""Appending to the segments of a stream by routing key.

The base of the event writer, transactions and staging writers is :class:`RoutedWriter`. It maps routing
positions to segment appenders, applies back-pressure across them and decides what happens when a segment
takes no more events.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from itertools import chain, islice, pairwise
from struct import Struct
from typing import Any, Generic, NamedTuple, TypeVar

import trio

from pravega_wire.errors import (
    ArgumentTypeError,
    ClosedError,
    InvalidArgumentError,
    PravegaError,
)
from pravega_wire.metrics import WriterMetrics
from pravega_wire.protocol.append import (
    BLOCK_BYTES,
    HEADER_BYTES,
    MAX_EVENT_BYTES,
    Appends,
    Place,
    PlaceRun,
    hand_over,
    settle,
    too_large,
)
from pravega_wire.segment.appender import Ack, AppenderOwner, SegmentAppender, flush
from pravega_wire.serializers import Serializer, Value, total
from pravega_wire.stream.arrow import (
    FramedEvents,
    bounded_rows,
    by_segment,
    frame_arrow,
    is_arrow,
    key_column,
    large_rows,
    one_array,
    payload_at,
)
from pravega_wire.stream.core import ClientCore, not_shared
from pravega_wire.support.checks import (
    check_bytes,
    check_payload,
    check_serializer,
    check_several,
    shown,
)
from pravega_wire.support.environment import environment
from pravega_wire.support.nurseries import check_run
from pravega_wire.values.hashing import routing_key_position
from pravega_wire.values.types import ScopedStream

__all__ = ["DEFAULT_MAX_OUTSTANDING_BYTES", "Partitioner", "Route", "RoutedWriter", "WriterMetrics"]

Partitioner = Callable[[str], float]
"""A function from a routing key to its position in the key space, at least 0 and less than 1."""

T = TypeVar("T")

DEFAULT_MAX_OUTSTANDING_BYTES = 32 * 1024 * 1024
"""The number of unacknowledged bytes at which a writer makes the caller wait."""

YIELD_BYTES = 128 * 1024
"""Bytes after which a caller that never waits lets the connection's tasks run."""

YIELD_SECONDS = 0.005
"""The same in seconds, for events that take time to make."""

_UNTIMED_EVENTS = 16
"""The most events of an iterable that are read between two looks at the clock."""

_RUN_EVENTS = 2000
"""The most consecutive events without keys that go to one segment."""

_RUN_BLOCKS = 6
"""The most blocks of a segment that a run of such events goes on for."""

_END = object()

_REMEMBERED_KEYS = 100_000
_KEY_TYPES = {str, type(None)}

_FIRST_BULK_EVENTS = 64
_MAX_BULK_EVENTS = 4096

_header = Struct(">ii").pack


class _Headers(dict[int, bytes]):
    """Event headers by payload length. Most streams have few different lengths."""

    def __missing__(self, length: int) -> bytes:
        if length > MAX_EVENT_BYTES:
            raise too_large(length)
        header = _header(0, length)
        if len(self) < 65536:
            self[length] = header
        return header


class Route:
    """A part of the key space, positions in ``(low, high]``, and the segment that takes it."""

    __slots__ = ("appender", "high", "low")

    def __init__(self, low: float, high: float, appender: SegmentAppender) -> None:
        self.low = low
        self.high = high
        self.appender = appender


class _Chunk(NamedTuple):
    """Events that are in memory, with the length and the routing key of each."""

    events: list[bytes]
    lengths: list[int]
    places: list[str | None]

    @property
    def is_large(self) -> bool:
        """Whether it is one event over the limit."""
        return self.lengths[0] > MAX_EVENT_BYTES


class _Group:
    """The events of one chunk that go to one segment."""

    __slots__ = ("appender", "events", "places")

    def __init__(self, appender: SegmentAppender) -> None:
        self.appender = appender
        self.events: list[bytes] = []
        self.places: list[str | None] = []


class _RowsOfKey(NamedTuple):
    """Rows of an Arrow array with one routing key, or with none: these may go to any segment."""

    key: str | None

    def run(self, writer: RoutedWriter[Any], first: int, last: int) -> tuple[SegmentAppender, int]:
        """Where the rows from ``first`` on go, and the end of those that go there."""
        if self.key is None and writer._only is None:
            appender, count = writer._runs.take(last - first)
            return appender, first + count
        return writer._select(self.key), last

    def places(self, first: int, last: int) -> Sequence[Place | PlaceRun]:
        """What routes these rows to a successor."""
        return [self.key] * (last - first)


class _RowsOfSegment(NamedTuple):
    """Rows of an Arrow array that go to one segment, provided the routes have not changed.

    :ivar positions: the position of each row in the key space, for segments that may have successors.
    """

    routes: Sequence[Route]
    appender: SegmentAppender
    positions: memoryview[float] | None

    def run(self, writer: RoutedWriter[Any], first: int, last: int) -> tuple[SegmentAppender, int]:
        """See :class:`_RowsOfKey`."""
        if self.routes is writer._routes:
            return self.appender, last
        # The segments have changed since the rows were sorted by them.
        assert self.positions is not None
        appender = writer._select(self.positions[first])
        stop = first + 1
        while stop < last and writer._select(self.positions[stop]) is appender:
            stop += 1
        return appender, stop

    def places(self, first: int, last: int) -> Sequence[Place | PlaceRun]:
        """See :class:`_RowsOfKey`."""
        return () if self.positions is None else [PlaceRun(self.positions[first:last])]


class _Runs:
    """Where events without a routing key go: some of them to one segment, some to the next, and so on.

    If each event went to another segment, a few would be in a block of each of them, and a block costs a
    store much more than an event does. So a segment whose turn comes while the one before it has something to
    store gets twice as many events in a row as that one did. As long as each event is stored before the next
    one is written, each goes to another segment.
    """

    __slots__ = ("_ack", "_appender", "_appenders", "_blocks", "_left", "_length", "_turn")

    def __init__(self, appenders: Sequence[SegmentAppender]) -> None:
        self._appenders = appenders
        # Writers that begin together do not all begin with the same segment.
        self._turn = int(environment().random() * len(appenders))
        self._appender: SegmentAppender | None = None
        # Of the open block: each block has its own, and the block itself would be kept after it is sent.
        self._ack: Ack | None = None
        self._blocks = 0
        self._length = 1
        self._left = 0

    def next(self) -> SegmentAppender:
        """Where the next event goes."""
        appender = self._appender
        if appender is None or not self._left or appender.appends.open.ack is not self._ack:
            return self.take(1)[0]
        self._left -= 1
        return appender

    def take(self, most: int) -> tuple[SegmentAppender, int]:
        """Where the next events go, and how many of them.

        :param most: number of events at hand, 1 or more.
        """
        appender = self._appender
        if appender is None or not self._left or self._was_last_block(appender):
            appender = self._begin()
        count = min(most, self._left)
        self._left -= count
        return appender, count

    def _was_last_block(self, appender: SegmentAppender) -> bool:
        if appender.appends.open.ack is not self._ack:
            self._ack = appender.appends.open.ack
            self._blocks += 1
        return self._blocks == _RUN_BLOCKS

    def _begin(self) -> SegmentAppender:
        if not self._appenders:
            raise not_open()
        before = self._appender
        busy = before is not None and before.appends.unacknowledged
        self._length = min(2 * self._length, _RUN_EVENTS) if busy else 1
        self._left = self._length
        self._turn = (self._turn + 1) % len(self._appenders)
        self._appender = appender = self._appenders[self._turn]
        self._ack = appender.appends.open.ack
        self._blocks = 0
        return appender


class _Groups(dict[str, _Group]):
    """The group of each routing key. Keys repeat, so each is hashed only once."""

    def __init__(self, routes: Sequence[Route], highs: Sequence[float], position_of: Partitioner) -> None:
        super().__init__()
        by_appender = {route.appender: _Group(route.appender) for route in routes}
        self.all = list(by_appender.values())
        self.of = by_appender.__getitem__
        self._by_route = [by_appender[route.appender] for route in routes]
        self._highs = highs
        self._position_of = position_of

    def at(self, position: float) -> _Group:
        """The group of a position in the key space."""
        if not self._by_route:
            raise not_open()
        return self._by_route[bisect_left(self._highs, position)]

    def __missing__(self, key: str) -> _Group:
        if not isinstance(key, str):
            raise no_key(key)
        group = self.at(self._position_of(key))
        if len(self) < _REMEMBERED_KEYS:
            self[key] = group
        return group


class RoutedWriter(Generic[Value]):
    """Routes events to appenders. The base of the public writers; not used directly.

    :ivar events_written: number of events accepted so far.
    :ivar bytes_written: total payload size of the events accepted so far, in bytes.
    """

    # Whether the events of a sealed segment move to its successors. Those of a transaction do not.
    _has_successors = True

    def __init__(
        self,
        core: ClientCore,
        stream: ScopedStream,
        name: str,
        *,
        max_outstanding_bytes: int,
        partitioner: Partitioner = routing_key_position,
    ) -> None:
        check_bytes("max_outstanding_bytes", max_outstanding_bytes)
        self.stream = stream
        self._core = core
        self._thread = core.stores.thread
        self._name = name
        self._counts = counts = core.counters.writing(stream)
        self._owner = AppenderOwner(
            acknowledged=self._acknowledged,
            resent=counts.resent,
            reconnecting=counts.reconnecting,
            failed=self._failed,
            sealed=self._sealed,
        )
        self._limit = max_outstanding_bytes
        self._headers = _Headers()
        self._position_of = checked_partitioner(partitioner, name)
        self._routes: list[Route] = []
        self._highs: list[float] = []
        self._only: SegmentAppender | None = None
        self._groups = _Groups((), (), self._position_of)
        self._runs = _Runs(())
        self._error: PravegaError | None = None
        self._outstanding = 0
        self._since_yield = 0
        self._room = trio.Event()
        self._ended = trio.Event()
        self.events_written = 0
        self.bytes_written = 0

    __reduce__ = not_shared

    # --- routes ---------------------------------------------------------------------------------

    def _set_routes(self, routes: Sequence[Route]) -> None:
        self._routes = sorted(routes, key=lambda route: route.high)
        self._highs = [route.high for route in self._routes]
        if self._highs:
            # Rounding may leave the last range short of 1; every position must have a segment.
            self._highs[-1] = math.inf
        appenders = self._appenders()
        self._only = appenders[0] if len(appenders) == 1 else None
        self._groups = _Groups(self._routes, self._highs, self._position_of)
        self._runs = _Runs(appenders)

    def _new_ack(self) -> Ack:
        return Ack()

    def _start(self, appender: SegmentAppender) -> None:
        self._counts.begin(self._written)
        self._core.nursery.start_soon(appender.run, name=f"appending to {appender.target.name}")

    def _appenders(self) -> list[SegmentAppender]:
        return list(dict.fromkeys(route.appender for route in self._routes))

    def _select(self, place: Place) -> SegmentAppender:
        if self._only is not None:
            return self._only
        if place is None:
            return self._runs.next()
        if type(place) is float:
            return self._groups.at(place).appender
        return self._groups[place].appender  # type: ignore[index]

    def _heir(self, place: Place) -> Appends[Ack]:
        return self._select(place).appends

    @property
    def segments(self) -> list[str]:
        """Full names of the segments being written now, in the order of their key ranges."""
        return [appender.target.name for appender in self._appenders()]

    # --- writing --------------------------------------------------------------------------------

    def _check(self) -> None:
        check_run(self._thread)
        if self._error is not None:
            raise self._error

    async def write_event(self, event: Value, routing_key: str | None = None) -> Ack:
        """Append one event. Returns as soon as the event is accepted for sending.

        Events with the same routing key are stored in the order of these calls. The call waits only while
        more than ``max_outstanding_bytes`` are unacknowledged.

        :param event: the payload, at most 8 MiB, or a value for the writer's serializer. A ``bytearray`` or
            ``memoryview`` is copied.
        :param routing_key: events with the same key keep their order. Events with None have no order, and are
            distributed over the segments, at high rates many in a row to each.
        :returns: an acknowledgement. Its ``wait()`` returns when the event is durable.
        :raises EventTooLargeError: the event is over the limit. Nothing was written.
        :raises PravegaError: the writer has failed, for the reason given in the error.
        """
        if self._error is not None:
            raise self._error
        # With a serializer, ValueWriter has made bytes of it: here nothing asks for that.
        if type(event) is not bytes:
            event = as_bytes(event, self._name)  # type: ignore[assignment]
        length = len(event)  # type: ignore[arg-type]
        if length > MAX_EVENT_BYTES:
            return await self._write_large(event, routing_key)  # type: ignore[arg-type]
        header = self._headers[length]
        if routing_key is not None and not isinstance(routing_key, str):
            raise no_key(routing_key)
        appender = self._only or (
            self._runs.next() if routing_key is None else self._groups[routing_key].appender
        )
        size = length + HEADER_BYTES
        appends = appender.appends
        block = appends.open
        if block.size + size > BLOCK_BYTES:
            block = appends.room(size)
        filled = block.size + size
        is_due = filled >= appends.due_at
        if is_due:
            # Not for each event: the others only gather.
            check_run(self._thread)
        # Block.put() inlined: calling it for each event takes up to a third more processor time.
        block.parts += (header, event)  # type: ignore[arg-type]
        block.places.append(routing_key)
        block.size = filled
        block.count += 1
        self.events_written += 1
        self.bytes_written += length
        self._outstanding += size
        self._since_yield += size
        if is_due:
            appender.pump()
        if self._outstanding > self._limit:
            await self._wait_for_room()
        elif self._since_yield > YIELD_BYTES:
            self._since_yield = 0
            await trio.lowlevel.checkpoint()
        return block.ack

    async def write_events(
        self,
        events: Iterable[Value],
        routing_keys: Iterable[str | None] | str | None = None,
    ) -> Ack:
        """Append many events in one call, in order. Much faster than one call for each event.

        Other work goes on between the items of a slow iterable. If the iterable raises, the events it
        returned before are written and will be stored, and this call raises the same exception.

        :param events: payloads, or values for the writer's serializer, as any iterable (a generator is read
            as needed, and may use one ``bytearray`` for all events). Without a serializer also an Arrow array
            of binary or string values, which is written without creating a Python object for each event.
        :param routing_keys: one key for all events, or one for each event, or None to distribute the events.
        :returns: one acknowledgement for all of them.
        :raises EventTooLargeError: an event is over the limit. Events before it may have been written; events
            after it are not.
        :raises InvalidArgumentError: there are fewer or more keys than events. If both have a length, nothing
            was written. The lengths of iterators are found out only while writing: with more than one block
            of events, at the end.
        """
        if is_arrow(events):
            return await self._write_arrow(events, routing_keys)
        check_lengths(events, routing_keys, self._name)
        ack = self._new_ack()
        try:
            # Payloads: with a serializer, ValueWriter has made them.
            for chunk in _chunks(events, routing_keys, self._name):
                if chunk is None:
                    await trio.lowlevel.checkpoint()
                    continue
                self._check()
                if chunk.is_large:
                    await self._write_large(chunk.events[0], chunk.places[0])
                else:
                    await self._write_chunk(chunk, ack)
        finally:
            settle(ack)
        return ack

    async def _write_large(self, event: bytes, routing_key: str | None) -> Ack:
        """Write an event over the normal limit; this base class cannot."""
        raise too_large(len(event), writer=self._name)

    async def _write_arrow(self, events: Any, routing_keys: Iterable[str | None] | str | None) -> Ack:
        self._check()
        events = one_array(events)
        keys: Any = routing_keys
        one_key = routing_keys is None or isinstance(routing_keys, str)
        if not one_key:
            check_iterable("routing_keys", routing_keys, self._name)
            keys = key_column(keys, len(events))
        ack = self._new_ack()
        first = 0
        try:
            for row in large_rows(events, MAX_EVENT_BYTES):
                before = slice(first, row)
                await self._write_rows(events[before], keys if one_key else keys[before], ack)
                await self._write_large(payload_at(events, row), keys if one_key else keys[row].as_py())
                first = row + 1
            await self._write_rows(events[first:], keys if one_key else keys[first:], ack)
        finally:
            settle(ack)
        return ack

    async def _write_rows(self, events: Any, keys: Any, ack: Ack) -> None:
        """Write an Arrow array without any event over the limit.

        :param keys: one key for all events, or a column of the same length.
        """
        if keys is None or isinstance(keys, str):
            for framed in frame_arrow(events, MAX_EVENT_BYTES, self._name):
                await self._write_framed(framed, slice(0, len(framed)), _RowsOfKey(keys), ack)
            return
        for rows in bounded_rows(events):
            await self._write_keyed(events[rows], keys[rows], ack)

    async def _write_keyed(self, events: Any, keys: Any, ack: Ack) -> None:
        """Write some megabytes of an Arrow array, segment by segment. Each key is hashed once."""
        routes = self._routes
        if not routes:
            raise not_open()
        if self._only is not None and not self._has_successors:
            for framed in frame_arrow(events, MAX_EVENT_BYTES, self._name):
                await self._write_framed(framed, slice(0, len(framed)), _RowsOfKey(None), ack)
            return
        order, counted, positions = by_segment(
            keys, self._position_of, self._highs, positions=self._has_successors
        )
        if order is not None:
            events = events.take(order)
        parts = iter(counted)
        route, last = 0, 0
        for framed in frame_arrow(events, MAX_EVENT_BYTES, self._name):
            first, stop = framed.rows.start, framed.rows.stop
            while first < stop:
                if first == last:
                    route, count = next(parts)
                    last += count
                end = min(last, stop)
                some = slice(first - framed.rows.start, end - framed.rows.start)
                of_these = None if positions is None else positions[first:end]
                routing = _RowsOfSegment(routes, routes[route].appender, of_these)
                await self._write_framed(framed, some, routing, ack)
                first = end

    async def _write_framed(
        self, framed: FramedEvents, rows: slice, routing: _RowsOfKey | _RowsOfSegment, ack: Ack
    ) -> None:
        """Append framed events that are contiguous in memory, one block at a time.

        :param rows: the events to append.
        """
        offsets = framed.offsets[rows.start : rows.stop + 1]
        first, last = 0, len(offsets) - 1
        while first < last:
            appender, stop = routing.run(self, first, last)
            block = appender.appends.open
            begin = offsets[first]
            end = min(stop, bisect_right(offsets, begin + BLOCK_BYTES - block.size) - 1)
            if end <= first:
                if block.count:
                    appender.appends.close_block()
                    appender.pump()
                    continue
                end = first + 1
            count = end - first
            size = offsets[end] - begin
            places = routing.places(first, end) if self._has_successors else ()
            block.put([framed.data[begin : offsets[end]]], places, size, count, ack=ack)
            self.events_written += count
            self.bytes_written += size - HEADER_BYTES * count
            first = end
            appender.pump()
            await self._accepted(size)
            self._check()

    async def write_batch(self, events: Iterable[Value], routing_key: str | None = None) -> Ack:
        """Append several events atomically: they are stored together and consecutively, or not at all.

        :param events: payloads, or values for the writer's serializer. The total size of the payloads, with 8
            bytes of header for each, is at most 8 MiB.
        :param routing_key: one key for all of them. None picks a segment.
        :returns: one acknowledgement for all of them.
        :raises EventTooLargeError: the batch is over the limit. Nothing was written.
        """
        self._check()
        payloads, size = batch_of(events, self._name)
        if not payloads:
            return Ack(0)
        if routing_key is not None and not isinstance(routing_key, str):
            raise no_key(routing_key)
        count = len(payloads)
        headers = map(self._headers.__getitem__, map(len, payloads))
        parts = list(chain.from_iterable(zip(headers, payloads, strict=True)))
        appender = self._select(routing_key)
        block = appender.appends.put_atomic(parts, [routing_key] * count, size, count)
        self.events_written += count
        self.bytes_written += size - HEADER_BYTES * count
        appender.pump()
        await self._accepted(size)
        return block.ack

    async def _accepted(self, size: int) -> None:
        """Count bytes given to an appender, then wait for room or let other tasks run."""
        self._outstanding += size
        self._since_yield += size
        if self._outstanding > self._limit:
            await self._wait_for_room()
        elif self._since_yield > YIELD_BYTES:
            self._since_yield = 0
            await trio.lowlevel.checkpoint()

    async def _write_chunk(self, chunk: _Chunk, ack: Ack) -> None:
        """Append events that are in memory, block by block."""
        keyless = self._only is None and chunk.places.count(None) == len(chunk.places)
        first = 0
        while first < len(chunk.events):
            only = self._only
            if only is not None:
                first = self._fill(only, chunk, first, ack)
            elif keyless:
                appender, count = self._runs.take(len(chunk.events) - first)
                run = slice(first, first + count)
                found = _Chunk(chunk.events[run], chunk.lengths[run], chunk.places[run])
                self._fill(appender, found, 0, ack, whole=True)
                first += count
            else:
                groups, runs = self._groups, self._runs
                try:
                    # The rest, if the events before that went to the only segment there was.
                    for event, place in zip(chunk.events[first:], chunk.places[first:], strict=True):
                        group = groups.of(runs.next()) if place is None else groups[place]
                        group.events.append(event)
                        group.places.append(place)
                except BaseException:
                    # The partitioner failed. The next call must not write the events sorted before that.
                    for group in groups.all:
                        group.events, group.places = [], []
                    raise
                for group in groups.all:
                    if group.events:
                        found = _Chunk(group.events, list(map(len, group.events)), group.places)
                        group.events, group.places = [], []
                        self._fill(group.appender, found, 0, ack, whole=True)
                first = len(chunk.events)
            if self._outstanding > self._limit:
                await self._wait_for_room()
            elif self._since_yield > YIELD_BYTES:
                self._since_yield = 0
                await trio.lowlevel.checkpoint()
            self._check()

    def _fill(
        self, appender: SegmentAppender, chunk: _Chunk, first: int, ack: Ack, *, whole: bool = False
    ) -> int:
        """Put events from ``first`` on into the open block. Returns the index of the first event left over.

        Unless ``whole`` is set, it stops after each full block, so that the caller can wait for room.
        """
        payloads, lengths, places = chunk
        total = len(payloads)
        while first < total:
            block = appender.appends.open
            last = first
            size = block.size
            if (total - first) * (lengths[first] + HEADER_BYTES) + size <= BLOCK_BYTES and len(
                set(lengths)
            ) == 1:
                last = total
                size += (total - first) * (lengths[first] + HEADER_BYTES)
            else:
                while last < total and (
                    size + lengths[last] + HEADER_BYTES <= BLOCK_BYTES or not (size or last > first)
                ):
                    size += lengths[last] + HEADER_BYTES
                    last += 1
            if last == first:
                appender.appends.close_block()
                appender.pump()
                continue
            events = payloads[first:last] if first or last < total else payloads
            added = size - block.size
            length = lengths[first]
            if added == (length + HEADER_BYTES) * len(events) and len(set(lengths[first:last])) == 1:
                header = self._headers[length]
                # All have the same length, so one join in C puts the same header before each of them.
                joined = header + header.join(events)
            else:
                headers = map(self._headers.__getitem__, lengths[first:last])
                joined = b"".join(chain.from_iterable(zip(headers, events, strict=True)))
            block.put([joined], places[first:last], added, len(events), ack=ack)
            # pump() copies it into a frame. Without this reference it can then be freed.
            del joined
            self.events_written += len(events)
            self.bytes_written += added - HEADER_BYTES * len(events)
            self._outstanding += added
            self._since_yield += added
            first = last
            appender.pump()
            if not whole and self._since_yield > YIELD_BYTES:
                break
        return first

    async def _wait_for_room(self) -> None:
        check_run(self._thread)
        while self._outstanding > self._limit and self._error is None:
            if self._room.is_set():
                self._room = trio.Event()
            for appender in self._appenders():
                appender.force()
            await self._room.wait()
        self._check()

    async def flush(self) -> None:
        """Wait until every event written before this call is stored.

        If this call is cancelled, the written events stay queued and may still be stored. Flush again to find
        out.

        :raises PravegaError: the writer failed. The events may or may not be stored.
        """
        self._check()
        await flush(self._appenders()).wait()

    @property
    def outstanding_bytes(self) -> int:
        """Unacknowledged bytes, event headers included."""
        return self._outstanding

    @property
    def failed_or_waiting(self) -> bool:
        """Whether some events may not be stored."""
        return self._error is not None or self._outstanding > 0

    # --- called by the appenders ----------------------------------------------------------------

    def metrics(self) -> WriterMetrics:
        """Return the counters and latencies since the writer was opened."""
        return self._counts.metrics(self._name, *self._written())

    def _written(self) -> tuple[int, int, int]:
        """Number of events, bytes of their payloads, and unacknowledged bytes."""
        return self.events_written, self.bytes_written, self._outstanding

    @property
    def events_acknowledged(self) -> int:
        """Number of events that are known to be stored."""
        return self._counts.events_acknowledged

    def _large_stored(self, length: int, seconds: float) -> None:
        """Count an event that was stored without an appender."""
        self.events_written += 1
        self.bytes_written += length
        self._counts.acknowledged(1, length, seconds)

    def _acknowledged(self, size: int, count: int, seconds: float) -> None:
        self._outstanding -= size
        self._counts.acknowledged(count, size - HEADER_BYTES * count, seconds)
        if self._outstanding <= self._limit and not self._room.is_set():
            self._room.set()

    def _failed(self, appender: SegmentAppender, error: PravegaError) -> None:
        self._fail(error)

    async def _sealed(self, appender: SegmentAppender, error: PravegaError) -> None:
        """Handle a segment that takes no more events: in this base class that is a failure."""
        self._fail(error)
        await trio.lowlevel.checkpoint()

    def _fail(self, error: PravegaError) -> None:
        if self._error is None:
            self._error = error
        for appender in self._appenders():
            appender.fail(self._error)
        self._room.set()

    def _resend(self, ended: Iterable[SegmentAppender]) -> None:
        """Put the events of finished appenders into the appenders of the present routes, in order."""
        ended = list(ended)
        for appender in ended:
            blocks = appender.appends.unacknowledged
            self._counts.succeeded(sum(block.count for block in blocks), sum(block.size for block in blocks))
        try:
            hand_over([appender.appends for appender in ended], self._heir)
        except Exception as error:
            # The partitioner was first called here. Its failure must not affect other writers.
            failure = InvalidArgumentError(f"the partitioner of the writer of {self._name} failed: {error!r}")
            for appender in ended:
                appender.appends.fail(failure)
            self._fail(failure)
            return
        for appender in self._appenders():
            appender.pump()

    def _stop(self) -> None:
        """Close without waiting. Unacknowledged events fail."""
        check_run(self._thread)
        self._fail(ClosedError(f"the writer of {self._name} is closed"))
        self._counts.end()


def _chunks(
    events: Iterable[Any], routing_keys: Iterable[str | None] | str | None, writer: str
) -> Iterator[_Chunk | None]:
    """Read the events of one call and their keys, about one block at a time, and check them.

    An event over the limit is alone in its chunk. None means that other tasks must have a turn before more is
    read. If the iterable raises, so does this, after the events before that.
    """
    # Reading from a list takes no time.
    at_hand = type(events) in (list, tuple)
    source = iter(events) if at_hand else copied(events, writer)
    keys = None if routing_keys is None or isinstance(routing_keys, str) else iter(routing_keys)
    count = _FIRST_BULK_EVENTS
    until = environment().monotonic() + YIELD_SECONDS
    while True:
        failure: Exception | None = None
        if at_hand:
            payloads = list(islice(source, count))
            ended = len(payloads) < count
        else:
            payloads, ended, failure = _read_timely(source, count, until)
        if set(map(type, payloads)) != {bytes}:
            payloads = [as_bytes(each, writer) for each in payloads]
        lengths = list(map(len, payloads))
        if keys is None:
            places: list[str | None] = [routing_keys] * len(payloads)  # type: ignore[list-item]  # one key
        else:
            places = _take_keys(keys, len(payloads), last=ended)
        if payloads:
            chunk = _Chunk(payloads, lengths, places)
            if max(lengths) <= MAX_EVENT_BYTES:
                yield chunk
            else:
                yield from _large_alone(chunk)
        if failure is not None:
            raise failure
        if not at_hand and environment().monotonic() > until:
            yield None
            until = environment().monotonic() + YIELD_SECONDS
        if ended:
            return
        # About one block at a time, so that a generator of large events stays lazy.
        average = sum(lengths) // len(lengths) + HEADER_BYTES
        count = max(1, min(_MAX_BULK_EVENTS, BLOCK_BYTES // average))


def _read_timely(source: Iterator[Any], count: int, until: float) -> tuple[list[Any], bool, Exception | None]:
    """Read up to ``count`` events until the time is over, but at least one.

    :returns: the events; whether the source has ended; and what it raised after these events, or None.
    """
    events: list[Any] = []
    step = 1
    try:
        while len(events) < count:
            wanted = min(len(events) + step, count)
            events.extend(islice(source, wanted - len(events)))
            if len(events) < wanted:
                return events, True, None
            if environment().monotonic() > until:
                break
            step = min(2 * step, _UNTIMED_EVENTS)
    except Exception as error:
        return events, False, error
    return events, False, None


def _take_keys(keys: Iterator[str | None], count: int, *, last: bool) -> list[str | None]:
    """The keys of the next events.

    :param last: whether these are all events, so that no key may be left over.
    """
    taken = list(islice(keys, count))
    if len(taken) < count:
        raise fewer_keys()
    if last and next(keys, _END) is not _END:
        raise more_keys()
    if not set(map(type, taken)) <= _KEY_TYPES:
        for key in taken:
            if key is not None and not isinstance(key, str):
                raise no_key(key)
    return taken


def _large_alone(chunk: _Chunk) -> Iterator[_Chunk]:
    """The same events, divided so that each one over the limit is alone."""
    large = [index for index, length in enumerate(chunk.lengths) if length > MAX_EVENT_BYTES]
    bounds = sorted({0, *large, *(index + 1 for index in large), len(chunk.events)})
    for first, last in pairwise(bounds):
        yield _Chunk(chunk.events[first:last], chunk.lengths[first:last], chunk.places[first:last])


class ValueWriter(RoutedWriter[Value]):
    """A writer with a serializer. It comes before the writer of bytes among the base classes of one."""

    _to_bytes: Callable[[Value], bytes]

    async def write_event(self, event: Value, routing_key: str | None = None) -> Ack:
        """See :class:`RoutedWriter`."""
        return await super().write_event(self._to_bytes(event), routing_key)  # type: ignore[arg-type]

    async def write_events(
        self, events: Iterable[Value], routing_keys: Iterable[str | None] | str | None = None
    ) -> Ack:
        """See :class:`RoutedWriter`."""
        payloads: Any = serialized(events, routing_keys, self._to_bytes, self._name)
        return await super().write_events(payloads, routing_keys)

    async def write_batch(self, events: Iterable[Value], routing_key: str | None = None) -> Ack:
        """See :class:`RoutedWriter`."""
        payloads: Any = serialized(events, None, self._to_bytes, self._name)
        return await super().write_batch(payloads, routing_key)


def to_bytes(serializer: Serializer[T], stream: object) -> Callable[[T], bytes]:
    """The function of a serializer that makes payloads.

    :param stream: what is written, for messages.
    :raises ArgumentTypeError: it is no serializer.
    """
    check_serializer(f"writer of {stream}: serializer", serializer)
    serialize = total(serializer.serialize)

    def convert(value: T) -> bytes:
        data = serialize(value)
        return data if type(data) is bytes else check_payload(f"stream {stream}: an event", data)

    return convert


def serialized(
    events: Iterable[T], routing_keys: object, to_bytes: Callable[[T], bytes], stream: str
) -> Iterator[bytes]:
    """The payloads of values, made as they are read.

    :param routing_keys: those of the events: if both have a length, it is the same.
    :param stream: what is written, for messages.
    """
    if is_arrow(events):
        raise InvalidArgumentError(
            f"the writer of {stream} has a serializer, and an Arrow array holds payloads: use a writer "
            "without a serializer"
        )
    check_lengths(events, routing_keys, stream)
    return map(to_bytes, events)


def as_bytes(event: object, writer: str) -> bytes:
    """Return a payload as bytes.

    :param writer: what is written, for messages.
    :raises InvalidArgumentError: it is not bytes.
    """
    if isinstance(event, bytes | bytearray | memoryview):
        try:
            return bytes(event)
        except ValueError as error:
            raise InvalidArgumentError(
                f"an event for the writer of {writer} is a memoryview that has been released"
            ) from error
    raise InvalidArgumentError(
        f"an event for the writer of {writer} must be bytes, not {type(event).__name__}"
    )


def copied(events: Iterable[object], writer: str) -> Iterator[bytes]:
    """The same payloads as bytes, made when each is read: an iterable may use one buffer for all of them.

    :param writer: what is written, for messages.
    """
    return (each if type(each) is bytes else as_bytes(each, writer) for each in events)


def batch_of(events: Iterable[object], stream: str) -> tuple[list[bytes], int]:
    """The payloads of a batch, and its size with headers.

    :param stream: what is written, for messages.
    :raises EventTooLargeError: the batch is over the limit.
    """
    check_iterable("events", events, stream)
    payloads = list(copied(events, stream))
    size = sum(map(len, payloads)) + HEADER_BYTES * len(payloads)
    if size > MAX_EVENT_BYTES + HEADER_BYTES:
        raise too_large(size, "a batch", writer=stream)
    return payloads, size


def checked_partitioner(partitioner: Partitioner, stream: str) -> Partitioner:
    """The same function, whose results are checked.

    :param stream: what is written, for messages.
    :raises ArgumentTypeError: it is not a function.
    """
    if partitioner is routing_key_position:
        return partitioner
    if not callable(partitioner):
        raise ArgumentTypeError(
            f"the partitioner of the writer of {stream} must be a function from a routing key to its "
            f"position, not {shown(partitioner)}"
        )

    def position_of(key: str) -> float:
        try:
            position = partitioner(key)
        except StopIteration as error:
            # It must not look like the end of the keys.
            raise RuntimeError(f"the partitioner of the writer of {stream} raised StopIteration") from error
        try:
            # Every comparison with NaN is false.
            fits = bool(0 <= position < 1)
        except (TypeError, ValueError):
            fits = False
        if not fits:
            raise InvalidArgumentError(
                f"the partitioner of the writer of {stream} must return a position from 0 to less than 1, "
                f"not {shown(position)}"
            )
        return float(position)

    return position_of


def check_iterable(name: str, value: object, stream: str = "") -> None:
    """Check that ``value`` can be iterated over, and is not one thing such as bytes, without doing so.

    :param name: name of the argument, for the message.
    :param stream: what is written, for the message.
    :raises ArgumentTypeError: it cannot.
    """
    check_several(f"{name} for the writer of {stream}" if stream else name, value)


def check_lengths(events: object, routing_keys: object, stream: str = "") -> None:
    """Check that there are as many keys as events, if both have a length.

    :param stream: what is written, for messages.
    :raises ArgumentTypeError: the events or the keys are not iterable.
    :raises InvalidArgumentError: there are fewer or more keys than events.
    """
    check_iterable("events", events, stream)
    if routing_keys is None or isinstance(routing_keys, str):
        return
    check_iterable("routing_keys", routing_keys, stream)
    if not isinstance(routing_keys, Sized) or not isinstance(events, Sized):
        return
    if len(routing_keys) < len(events):
        raise fewer_keys()
    if len(routing_keys) > len(events):
        raise more_keys()


def fewer_keys() -> InvalidArgumentError:
    return InvalidArgumentError("there are fewer routing keys than events")


def more_keys() -> InvalidArgumentError:
    return InvalidArgumentError("there are more routing keys than events")


def not_open() -> ClosedError:
    return ClosedError("the writer is not open: enter it as a context manager first")


def no_key(key: object) -> InvalidArgumentError:
    return InvalidArgumentError(f"a routing key must be a string or None, not {type(key).__name__}")
