"""Dividing a part of a segment between events: one pass over the headers finds where.

A server of 0.13.0 is of no help. The wire command LocateOffset (41) and the ``#index`` segments that answer
it came after it, with wire version 17; a real 0.13.0 server (wire version 16) has no index segment beside one
of 60 MB, and closes the connection when it is asked with 41. So it is never asked, because others share the
connection. Chunk borders of long-term storage are no help either: the store flushes bytes, not events.

What the pass finds is proven: each boundary is reached from the range's start by following the headers of
every event between.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import trio

from pravega_wire.boundaries import DEFAULT_SPACING, BoundaryIndex, LeadingPart, check_bytes
from pravega_wire.checks import check_count
from pravega_wire.controller.tokens import Access
from pravega_wire.errors import (
    DataLossError,
    DecodeError,
    InvalidArgumentError,
    NoSuchSegmentError,
    TruncatedInputError,
)
from pravega_wire.nurseries import look_up_all
from pravega_wire.protocol.append import HEADER_BYTES
from pravega_wire.protocol.events import EVENT_HEADER, last_boundary
from pravega_wire.segment.metadata import SegmentMetadata
from pravega_wire.segment.reader import CHUNK_BYTES, DEPTH, RangeReader
from pravega_wire.segment.store import SegmentStores, SegmentTarget
from pravega_wire.stream.core import ClientCore
from pravega_wire.types import SegmentRange

__all__ = [
    "BoundaryScan", "LeadingScan", "boundary_index", "leading_parts", "range_crc32", "split_range",
    "split_ranges",
]  # fmt: skip

_FIRST_READ = 16 * 1024
_READ_AHEAD = CHUNK_BYTES * DEPTH
_LEG = 32 * CHUNK_BYTES
_CONCURRENT_PASSES = 4


class _Scan:
    """Follows headers in bytes that are fed to it; does no I/O itself.

    :ivar at: where the next header begins; bytes before it are not needed.
    """

    def __init__(self, segment: str, start: int, end: int) -> None:
        self.at = start
        self._segment = segment
        self._end = end
        self._carry = b""

    @property
    def next_byte(self) -> int:
        """First offset that is still needed."""
        return self.at + len(self._carry)

    @property
    def done(self) -> bool:
        """Whether nothing more is needed."""
        raise NotImplementedError

    def _follow(self, view: memoryview, base: int) -> None:
        raise NotImplementedError

    def feed(self, data: memoryview, offset: int) -> None:
        """Bytes from ``offset``, which is not after :attr:`next_byte`.

        :raises DecodeError: they are not events.
        :raises TruncatedInputError: the end is in the middle of an event.
        """
        if offset + len(data) <= self.next_byte:
            return
        if self._carry:
            # A header across two chunks: join just that, the rest is followed where it lies.
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
        """Keep the part of a header that the view ends with."""
        self._carry = bytes(view[max(0, self.at - base) :]) if self.at < base + len(view) else b""

    def _inside(self) -> TruncatedInputError:
        return TruncatedInputError(
            f"{self._segment}: offset {self._end} is in the middle of the event that starts at {self.at}",
            segment=self._segment,
        )


class BoundaryScan(_Scan):
    """Finds marks in a range.

    :ivar marks: what was found so far.

    :param mark: last mark before ``at``, of a pass that is continued.
    """

    def __init__(self, segment: str, start: int, end: int, spacing: int, mark: int | None = None) -> None:
        super().__init__(segment, start, end)
        self.marks: list[int] = []
        self._spacing = spacing
        self._mark = start if mark is None else mark

    @property
    def done(self) -> bool:
        """Whether all boundaries are found."""
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
    """Finds the whole events that a range begins with, up to a limit of bytes, of events, or of both.

    :ivar events: found so far, None without a limit of events. :ivar next_bytes: as in :class:`LeadingPart`.
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
        """Whether the end, a limit or the event that is over it was reached."""
        return self.at >= self._end or self.next_bytes is not None or self.events == (self._max_events or -1)

    @property
    def read_end(self) -> int:
        """No byte from here on is needed: the header of the event over the limit lies before it."""
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
        """As :func:`last_boundary`, one event after the other."""
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
    """Feed a scan up to ``end``: everything where events are small, only headers where they are large."""
    length = _FIRST_READ
    while not scan.done:
        start = scan.next_byte
        # After a few reads without a long jump, everything is read, several chunks ahead.
        stop = min(end, start + (length if length < CHUNK_BYTES else _LEG))
        reader = RangeReader(stores, target, start, stop, chunk_bytes=min(length, CHUNK_BYTES))
        jumped = 0
        try:
            while not scan.done and (chunk := await reader.receive()) is not None:
                begin = reader.offset - len(chunk)
                jumped += min(max(0, scan.at - begin), len(chunk))
                scan.feed(chunk, begin)
                if scan.at - reader.offset > _READ_AHEAD:
                    # More than is under way anyway: ask again behind it.
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
    core.check_open()
    whole = segment_range
    start = begin = whole.start_offset
    mark: int | None = None
    marks: tuple[int, ...] = ()
    if known is not None:
        if (known.stream, known.segment_id) != (whole.stream, whole.segment_id):
            raise InvalidArgumentError(
                f"the known boundaries are of segment {known.range.segment}, not of {whole.segment}"
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
    """Bytes that are not there yet would be waited for."""
    try:
        info = await SegmentMetadata(core.stores, target).info()
    except NoSuchSegmentError as error:
        raise DataLossError(
            f"segment {target.name} is gone",
            segment=target.name,
            start_offset=None,
            offset=whole.start_offset,
        ) from error
    if info.write_offset < whole.end_offset:
        raise InvalidArgumentError(
            f"{whole.start_offset}..{whole.end_offset} of segment {target.name} is beyond its end, "
            f"{info.write_offset}",
            segment=target.name,
        )


async def range_crc32(core: ClientCore, segment_range: SegmentRange) -> int:
    """See :meth:`PravegaClient.range_crc32`."""
    core.check_open()
    target = core.target(segment_range.stream, segment_range.segment_id, Access.READ)
    await _check_end(core, target, segment_range)
    reader = RangeReader(core.stores, target, segment_range.start_offset, segment_range.end_offset)
    crc32 = 0
    try:
        while (chunk := await reader.receive()) is not None:
            crc32 = zlib.crc32(chunk, crc32)
            # Other tasks run between two chunks that are there already.
            await trio.lowlevel.checkpoint()
    finally:
        reader.close()
    return crc32


async def split_range(
    core: ClientCore, segment_range: SegmentRange, max_bytes: int, index: BoundaryIndex | None = None
) -> list[SegmentRange]:
    """See :meth:`PravegaClient.split_range`."""
    check_bytes("max_bytes", max_bytes)
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
    """All ranges divided, in the same order; a few at a time."""

    async def split(place: int) -> list[SegmentRange]:
        return await split_range(core, ranges[place], max_bytes)

    pieces = await look_up_all(split, range(len(ranges)), at_once=_CONCURRENT_PASSES)
    return [piece for place in range(len(ranges)) for piece in pieces[place]]


async def leading_parts(
    core: ClientCore, asked: Sequence[tuple[SegmentRange, int | None, int | None]]
) -> list[LeadingPart]:
    """See :meth:`PravegaClient.leading_parts`."""
    core.check_open()
    for _, max_bytes, max_events in asked:
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
