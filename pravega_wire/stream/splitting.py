"""Finding event boundaries in part of a segment, with one pass over the event headers.

A 0.13.0 server cannot help. The wire command LocateOffset (41) and the ``#index`` segments behind it were
added later, with wire version 17. A 0.13.0 server (wire version 16) keeps no index segment, even beside a
segment of 60 MB, and closes the connection when it receives command 41. So it is never sent, because the
connection is shared. Chunk borders of long-term storage do not help either: the store flushes bytes, not
events.

The result of the pass is proven: each boundary is reached from the range's start through the headers of all
events in between.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import trio

from pravega_wire.controller.tokens import Access
from pravega_wire.errors import (
    ArgumentTypeError,
    DataLossError,
    DecodeError,
    InvalidArgumentError,
    NoSuchSegmentError,
    TruncatedInputError,
)
from pravega_wire.protocol.append import HEADER_BYTES
from pravega_wire.protocol.events import EVENT_HEADER, last_boundary
from pravega_wire.segment.failures import beyond_end
from pravega_wire.segment.metadata import SegmentMetadata
from pravega_wire.segment.reader import CHUNK_BYTES, DEPTH, RangeReader
from pravega_wire.segment.store import SegmentStores, SegmentTarget
from pravega_wire.stream.core import ClientCore
from pravega_wire.support.checks import check_bytes, check_count, check_type, shown
from pravega_wire.support.nurseries import look_up_all
from pravega_wire.values.boundaries import DEFAULT_SPACING, BoundaryIndex, LeadingPart
from pravega_wire.values.types import SegmentRange

__all__ = [
    "BoundaryScan", "LeadingScan", "boundary_index", "leading_parts", "range_crc32", "split_range",
    "split_ranges",
]  # fmt: skip

_FIRST_READ = 16 * 1024
_READ_AHEAD = CHUNK_BYTES * DEPTH
_LEG = 32 * CHUNK_BYTES
_CONCURRENT_PASSES = 4


class _Scan:
    """Follows event headers in bytes that are fed to it. Does no I/O.

    :ivar at: the offset of the next header. Bytes before it are not needed.
    """

    def __init__(self, segment: str, start: int, end: int) -> None:
        self.at = start
        self._segment = segment
        self._end = end
        self._carry = b""

    @property
    def next_byte(self) -> int:
        """The first offset that is still needed."""
        return self.at + len(self._carry)

    @property
    def done(self) -> bool:
        """Whether no more bytes are needed."""
        raise NotImplementedError

    def _follow(self, view: memoryview, base: int) -> None:
        raise NotImplementedError

    def feed(self, data: memoryview, offset: int) -> None:
        """Process bytes from ``offset``, which is not after :attr:`next_byte`.

        :raises DecodeError: the bytes are not events.
        :raises TruncatedInputError: the end is in the middle of an event.
        """
        if offset + len(data) <= self.next_byte:
            return
        if self._carry:
            # A header is split across two chunks. Join only the header; the rest is read in place.
            taken = HEADER_BYTES - len(self._carry)
            skip = self.next_byte - offset
            head = self._carry + bytes(data[skip : skip + taken])
            self._carry = b""
            self._follow(memoryview(head), self.at)
        if self.at < offset + len(data) and not self._carry and not self.done:
            self._follow(data, offset)
        if self.at < self._end <= self.next_byte and not self.done:
            raise self._inside()

    def _keep(self, view: memoryview, base: int) -> None:
        """Keep the part of a header at the end of the view."""
        self._carry = bytes(view[max(0, self.at - base) :]) if self.at < base + len(view) else b""

    def _inside(self) -> TruncatedInputError:
        return TruncatedInputError(
            f"{self._segment}: offset {self._end} is in the middle of the event that starts at {self.at}",
            segment=self._segment,
        )


class BoundaryScan(_Scan):
    """Finds marks (boundaries about ``spacing`` bytes apart) in a range.

    :ivar marks: the marks found so far.
    :param mark: the last mark before ``at``, when a pass is continued.
    """

    def __init__(self, segment: str, start: int, end: int, spacing: int, mark: int | None = None) -> None:
        super().__init__(segment, start, end)
        self.marks: list[int] = []
        self._spacing = spacing
        self._mark = start if mark is None else mark

    @property
    def done(self) -> bool:
        """Whether all marks are found."""
        return self.at >= self._end

    def _follow(self, view: memoryview, base: int) -> None:
        while self.at < self._end:
            limit = min(self._end, self._mark + self._spacing)
            at, event_end = last_boundary(view, self.at - base, limit - base, base, segment=self._segment)
            self.at = at + base
            if event_end < 0:
                break
            event_end += base
            if event_end > self._end:
                raise self._inside()
            if self.at == self._mark:
                self.at = event_end  # one event over the spacing
            self._mark = self.at
            self.marks.append(self._mark)
        if self.at < self._end:
            self._keep(view, base)


class LeadingScan(_Scan):
    """Finds the whole events at the beginning of a range, up to a limit of bytes, of events, or of both.

    :ivar events: the number of events found so far; None without a limit of events.
    :ivar next_bytes: see :class:`LeadingPart`.
    """

    def __init__(
        self, segment: str, start: int, end: int, max_bytes: int | None, max_events: int | None
    ) -> None:
        super().__init__(segment, start, end)
        self.events = None if max_events is None else 0
        self.next_bytes: int | None = None
        self._limit = end if max_bytes is None else min(end, start + max_bytes)
        self._max_events = max_events

    @property
    def done(self) -> bool:
        """Whether the end, a limit or the event that exceeds the byte limit was reached."""
        return self.at >= self._end or self.next_bytes is not None or self.events == (self._max_events or -1)

    @property
    def read_end(self) -> int:
        """The offset from which no byte is needed. The header of an event over the limit is before it."""
        return min(self._end, self._limit + HEADER_BYTES)

    def _follow(self, view: memoryview, base: int) -> None:
        limit = self._limit - base
        if self.events is None:
            at, event_end = last_boundary(view, self.at - base, limit, base, segment=self._segment)
        else:
            at, event_end = self._count(view, self.at - base, limit, base)
        self.at = at + base
        if event_end >= 0:
            if event_end + base > self._end:
                raise self._inside()
            self.next_bytes = event_end - at
        elif not self.done:
            self._keep(view, base)

    def _count(self, view: memoryview, at: int, limit: int, base: int) -> tuple[int, int]:
        """Do the work of :func:`last_boundary` one event at a time."""
        assert self.events is not None
        assert self._max_events is not None
        size = len(view) - HEADER_BYTES
        found, left = 0, self._max_events - self.events
        event_end = -1
        while at <= size and found < left:
            kind, length = EVENT_HEADER.unpack_from(view, at)
            if kind != 0 or length < 0:
                raise DecodeError(
                    f"segment {self._segment}: no event begins at offset {base + at} "
                    f"(type {kind}, length {length})",
                    segment=self._segment,
                )
            stop = at + HEADER_BYTES + length
            if stop > limit:
                event_end = stop
                break
            at = stop
            found += 1
        self.events += found
        return at, event_end


async def _scan(stores: SegmentStores, target: SegmentTarget, scan: _Scan, end: int) -> None:
    """Feed a scan up to ``end``: all bytes where events are small, only headers where they are large."""
    length = _FIRST_READ
    while not scan.done:
        start = scan.next_byte
        # After a few reads without a long jump, read everything, several chunks ahead.
        stop = min(end, start + (length if length < CHUNK_BYTES else _LEG))
        reader = RangeReader(stores, target, start, stop, chunk_bytes=min(length, CHUNK_BYTES), depth=DEPTH)
        jumped = 0
        try:
            while not scan.done and (chunk := await reader.receive()) is not None:
                begin = reader.offset - len(chunk)
                jumped += min(max(0, scan.at - begin), len(chunk))
                scan.feed(chunk, begin)
                if scan.at - reader.offset > _READ_AHEAD:
                    # The jump is longer than what is already in flight: request data from behind it.
                    break
        finally:
            reader.close()
        jumped += max(0, scan.at - reader.offset)
        if jumped >= (reader.offset - start) * 3 // 4:
            length = _FIRST_READ
        else:
            length = min(length * 4, CHUNK_BYTES)


async def boundary_index(
    core: ClientCore, segment_range: SegmentRange, spacing: int, known: BoundaryIndex | None
) -> BoundaryIndex:
    """See :meth:`PravegaClient.boundary_index`."""
    check_bytes("spacing", spacing)
    check_type("segment_range", segment_range, SegmentRange)
    if known is not None:
        check_type("known", known, BoundaryIndex)
    core.check_open()
    whole = segment_range
    start = begin = whole.start_offset
    mark: int | None = None
    marks: tuple[int, ...] = ()
    if known is not None:
        if (known.stream, known.segment_id) != (whole.stream, whole.segment_id):
            raise InvalidArgumentError(
                f"the known boundaries belong to segment {known.range.segment}, not to {whole.segment}"
            )
        if known.spacing == spacing and known.start <= start <= known.end:
            begin, start, marks = known.start, known.end, known.marks
            mark = marks[-1] if marks else begin
            if whole.end_offset <= start:
                return known
    target = core.target(whole.stream, whole.segment_id, Access.READ)
    if start < whole.end_offset:
        await _check_end(core, target, whole)
    scan = BoundaryScan(target.name, start, whole.end_offset, spacing, mark)
    await _scan(core.stores, target, scan, whole.end_offset)
    return BoundaryIndex(
        whole.stream, whole.segment_id, begin, whole.end_offset, spacing, (*marks, *scan.marks)
    )


async def _check_end(core: ClientCore, target: SegmentTarget, whole: SegmentRange) -> None:
    """Check that all bytes of a range exist. A read would wait for bytes that do not exist yet.

    :raises DataLossError: the segment was deleted.
    :raises InvalidArgumentError: the range reaches beyond the segment's end.
    """
    try:
        info = await SegmentMetadata(core.stores, target).info()
    except NoSuchSegmentError as error:
        raise DataLossError(
            f"segment {target.name} was deleted",
            segment=target.name,
            start_offset=None,
            offset=whole.start_offset,
        ) from error
    if info.write_offset < whole.end_offset:
        raise beyond_end(target.name, whole.start_offset, whole.end_offset, info.write_offset)


async def range_crc32(core: ClientCore, segment_range: SegmentRange) -> int:
    """See :meth:`PravegaClient.range_crc32`."""
    check_type("segment_range", segment_range, SegmentRange)
    core.check_open()
    target = core.target(segment_range.stream, segment_range.segment_id, Access.READ)
    await _check_end(core, target, segment_range)
    reader = RangeReader(core.stores, target, segment_range.start_offset, segment_range.end_offset)
    crc32 = 0
    try:
        while (chunk := await reader.receive()) is not None:
            crc32 = zlib.crc32(chunk, crc32)
            # Let other tasks run between two chunks that are already received.
            await trio.lowlevel.checkpoint()
    finally:
        reader.close()
    return crc32


async def split_range(
    core: ClientCore, segment_range: SegmentRange, max_bytes: int, index: BoundaryIndex | None = None
) -> list[SegmentRange]:
    """See :meth:`PravegaClient.split_range`."""
    check_bytes("max_bytes", max_bytes)
    check_type("segment_range", segment_range, SegmentRange)
    if index is not None:
        check_type("index", index, BoundaryIndex)
    core.check_open()
    if index is not None and index.covers(segment_range) and index.spacing <= max_bytes:
        return index.split(segment_range, max_bytes)
    if segment_range.length <= max_bytes:
        return [segment_range] if segment_range.length else []
    spacing = min(max_bytes, DEFAULT_SPACING)
    if index is not None and index.spacing <= max_bytes:
        spacing = index.spacing
    else:
        index = None
    found = await boundary_index(core, segment_range, spacing, index)
    return found.split(segment_range, max_bytes)


async def split_ranges(
    core: ClientCore, ranges: Sequence[SegmentRange], max_bytes: int
) -> list[SegmentRange]:
    """Divide ranges, a few at a time. Returns all pieces in the order of the ranges."""

    async def split(place: int) -> list[SegmentRange]:
        return await split_range(core, ranges[place], max_bytes)

    pieces = await look_up_all(split, range(len(ranges)), at_once=_CONCURRENT_PASSES)
    return [piece for place in range(len(ranges)) for piece in pieces[place]]


async def leading_parts(
    core: ClientCore, asked: Sequence[tuple[SegmentRange, int | None, int | None]]
) -> list[LeadingPart]:
    """See :meth:`PravegaClient.leading_parts`."""
    core.check_open()
    for each in asked:
        if not isinstance(each, tuple | list) or len(each) != 3:
            raise ArgumentTypeError(
                "each of asked must be a tuple of a range, its most bytes and its most events, not "
                f"{shown(each)}"
            )
        whole, max_bytes, max_events = each
        check_type("the range of each of asked", whole, SegmentRange)
        if max_bytes is not None:
            check_count("max_bytes", max_bytes, 0)
        if max_events is not None:
            check_count("max_events", max_events, 1)

    async def look(place: int) -> LeadingPart:
        whole, max_bytes, max_events = asked[place]
        target = core.target(whole.stream, whole.segment_id, Access.READ)
        scan = LeadingScan(target.name, whole.start_offset, whole.end_offset, max_bytes, max_events)
        if not scan.done:
            await _check_end(core, target, whole)
            await _scan(core.stores, target, scan, scan.read_end)
        part = SegmentRange(whole.stream, whole.segment_id, whole.start_offset, scan.at)
        return LeadingPart(part, scan.events, scan.next_bytes)

    found = await look_up_all(look, range(len(asked)))
    return [found[place] for place in range(len(asked))]
