"""Computes with stream cuts without calling a server.

A stream cut has segments and offsets, but not the segments' key ranges, successors or lengths.
:class:`StreamLayout` has these for all segments of a stream; with it, cuts of any epochs can be compared,
combined, and converted to ranges.

The key space is divided at every boundary of any segment. In each part, the segments follow each other in the
order of their epochs (``docs/protocol/controller.md``, "Segments and epochs"). So within a part, called a row
here, a cut is a position in a sequence of bytes, and positions can be compared.

Not public: :mod:`pravega_wire` exports the names that users need.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from pravega_wire.errors import (
    DataLossError,
    InvalidArgumentError,
    InvalidStreamCutError,
    UndecidableCutError,
)
from pravega_wire.support.checks import check_count, check_several, check_type, shown
from pravega_wire.values.naming import epoch_of, segment_name
from pravega_wire.values.types import ROUNDING, SEGMENT_READ, CutOrder, ScopedStream, SegmentRange, StreamCut

__all__ = [
    "Bound", "LayoutSegment", "OnTruncated", "SkippedPart", "StreamLayout", "check_on_truncated",
    "wanted_bytes",
]  # fmt: skip

Bound: TypeAlias = StreamCut | str | None
"""A stream cut, its text, ``"earliest"``, ``"latest"``, or None for the argument's default."""

OnTruncated: TypeAlias = Literal["raise", "skip_to_head"]
"""What a read does if data was truncated: raise an error, or continue with the remaining data."""

_Place: TypeAlias = tuple[int, int]
"""The index of a segment in its row, and an offset in the segment (-1: its end)."""

_END = 1 << 63


@dataclass(frozen=True, slots=True)
class LayoutSegment:
    """The state of a segment when its layout was fetched.

    :ivar segment_id: id of the segment.
    :ivar low: start of its part of the key space (inclusive).
    :ivar high: end of its part of the key space (exclusive; 1.0 is the end of the key space).
    :ivar length: length in bytes, including truncated bytes; None if the segment was deleted by truncation.
    :ivar start_offset: offset of the first byte that was not truncated.
    :ivar sealed: True if the segment is sealed, so that its length is final.
    """

    segment_id: int
    low: float
    high: float
    length: int | None
    start_offset: int = 0
    sealed: bool = True

    @property
    def final_length(self) -> int | None:
        """The final length in bytes; None if unknown."""
        return self.length if self.sealed else None


@dataclass(frozen=True, slots=True)
class StreamLayout:
    """All segments that a stream has ever had, fetched once; can be pickled and used without a server.

    It is the result of :meth:`PravegaClient.stream_layout`. It does not change when the stream changes:
    questions about newer segments, or about the final length of a segment that was still open, raise
    :class:`UndecidableCutError`.

    In stream cuts, -1 means the end of a segment. Results have the length instead, if it is known.

    Example::

        layout = await client.stream_layout("readings")
        start, end = await client.head("readings"), await client.tail("readings")
        if layout.compare(start, end) is CutOrder.BEFORE:
            print(layout.bytes_between(start, end))

    :ivar stream: the stream.
    :ivar segments: the segments, in ascending order of ids.
    :raises InvalidArgumentError: the segments do not cover the key space.
    """

    stream: ScopedStream
    segments: tuple[LayoutSegment, ...]
    _by_id: Mapping[int, LayoutSegment] = field(init=False, repr=False, compare=False)
    _rows: tuple[tuple[LayoutSegment, ...], ...] = field(init=False, repr=False, compare=False)
    _spans: Mapping[int, range] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_type("the stream of a layout", self.stream, ScopedStream)
        check_several(f"the segments of the layout of {self.stream}", self.segments)
        given = tuple(self.segments)
        for each in given:
            check_type(f"each segment of the layout of {self.stream}", each, LayoutSegment)
        ordered = tuple(sorted(given, key=lambda each: each.segment_id))
        # What ends a little before the end of the key space, or after it, ends there.
        highs = [1.0 if abs(1.0 - each.high) < ROUNDING else each.high for each in ordered]
        borders = sorted({each.low for each in ordered}.union(highs))
        rows: list[list[LayoutSegment]] = [[] for _ in borders[1:]]
        spans = {}
        for each, high in zip(ordered, highs, strict=True):
            span = range(bisect_left(borders, each.low), bisect_left(borders, high))
            spans[each.segment_id] = span
            for row in span:
                rows[row].append(each)
        if (
            len(spans) < len(ordered)
            or not rows
            or not all(spans.values())
            or (borders[0], borders[-1]) != (0.0, 1.0)
            or any(not row for row in rows)
            or any(
                epoch_of(low.segment_id) >= epoch_of(high.segment_id)
                for row in rows
                for low, high in pairwise(row)
            )
        ):
            raise InvalidArgumentError(
                f"stream layout: the segments {[each.segment_id for each in ordered]} of {self.stream} do "
                "not cover the key space exactly once in each epoch"
            )
        object.__setattr__(self, "segments", ordered)
        object.__setattr__(self, "_by_id", {each.segment_id: each for each in ordered})
        object.__setattr__(self, "_rows", tuple(map(tuple, rows)))
        object.__setattr__(self, "_spans", spans)

    def __reduce__(self) -> tuple[object, ...]:
        return StreamLayout, (self.stream, self.segments)

    # --- segments -------------------------------------------------------------------------------

    def segment(self, segment_id: int) -> LayoutSegment:
        """Return the segment with an id.

        :param segment_id: the id.
        :raises UndecidableCutError: the segment is newer than the layout.
        :raises InvalidStreamCutError: there is no such segment.
        """
        found = self._by_id.get(check_count("segment_id", segment_id, 0))
        if found is not None:
            return found
        name = self._name(segment_id)
        if epoch_of(segment_id) > epoch_of(self.segments[-1].segment_id):
            raise UndecidableCutError(
                f"segment {name} was created after the layout of {self.stream} was fetched; fetch the layout "
                "again",
                **self._about(name),
            )
        raise InvalidStreamCutError(f"stream {self.stream} has no segment {name}", **self._about(name))

    def successors(self, segment_id: int) -> tuple[LayoutSegment, ...]:
        """Return the successors of a segment, in ascending order of ids; the newest segments have none.

        :param segment_id: id of the segment.
        """
        return self._next_to(segment_id, 1)

    def predecessors(self, segment_id: int) -> tuple[LayoutSegment, ...]:
        """Return the predecessors of a segment, in ascending order of ids.

        :param segment_id: id of the segment.
        """
        return self._next_to(segment_id, -1)

    def _next_to(self, segment_id: int, step: int) -> tuple[LayoutSegment, ...]:
        this = self.segment(segment_id)
        found = set()
        for number in self._spans[segment_id]:
            row = self._rows[number]
            place = row.index(this) + step
            if 0 <= place < len(row):
                found.add(row[place])
        return tuple(sorted(found, key=lambda each: each.segment_id))

    def _name(self, segment_id: int) -> str:
        return segment_name(self.stream.scope, self.stream.name, segment_id)

    def _about(self, segment: str | None = None) -> dict[str, Any]:
        about: dict[str, Any] = {"scope": self.stream.scope, "stream": self.stream.name}
        return about if segment is None else {**about, "segment": segment}

    # --- one cut --------------------------------------------------------------------------------

    def check(self, cut: StreamCut) -> None:
        """Check that a cut is a valid position in this stream.

        A valid cut has one segment for each routing key. There is one exception, after segments were merged
        and split unevenly: for some keys it may have no segment, if it is past one segment (because it has a
        successor of it) and the next segment cannot be started before another one has been read. Reader
        groups have such positions.

        :param cut: the cut.
        :raises InvalidStreamCutError: the cut belongs to another stream, has a segment that does not exist or
            an offset beyond its end, has no segment or several for a key, or is past a segment for some of
            its keys but not for others, which is impossible for a reader.
        :raises UndecidableCutError: the cut has a segment that is newer than the layout.
        """
        self._places(cut)

    def _places(self, cut: StreamCut) -> list[_Place]:
        """Return the position of a cut in each row."""
        check_type(f"a cut for the layout of {self.stream}", cut, StreamCut)
        if cut.stream != self.stream:
            raise InvalidStreamCutError(
                f"the stream cut {cut} belongs to stream {cut.stream}, not to {self.stream}", **self._about()
            )
        places: list[_Place | None] = [None] * len(self._rows)
        for segment_id, given in cut.positions.items():
            segment = self.segment(segment_id)
            offset, final = given, segment.final_length
            if final is not None:
                if offset > final:
                    raise InvalidStreamCutError(
                        f"the stream cut has offset {offset} in segment {self._name(segment_id)}, which is "
                        f"only {final} bytes long",
                        **self._about(self._name(segment_id)),
                    )
                if offset < 0:
                    offset = final
            for number in self._spans[segment_id]:
                if places[number] is not None:
                    raise InvalidStreamCutError(
                        f"the stream cut {cut} has two segments for the same keys", **self._about()
                    )
                places[number] = (self._rows[number].index(segment), offset)
        passed = self._all_before(
            each
            for row, place in zip(self._rows, places, strict=True)
            if place is not None
            for each in row[: place[0]]
        )
        found = [
            self._first_left(row, passed) if place is None else place
            for row, place in zip(self._rows, places, strict=True)
        ]
        for number, place in enumerate(places):
            if place is None and not self._waits(number, found):
                raise InvalidStreamCutError(
                    f"the stream cut {cut} does not cover the whole key space", **self._about()
                )
        reached = {
            each.segment_id for row, place in zip(self._rows, found, strict=True) for each in row[place[0] :]
        }
        if torn := passed & reached:
            name = self._name(min(torn))
            raise InvalidStreamCutError(
                f"the stream cut {cut} is past segment {name} for some keys and not for others",
                **self._about(name),
            )
        return found

    def _all_before(self, segments: Iterable[LayoutSegment]) -> set[int]:
        """Return the ids of these segments and of all their direct and indirect predecessors."""
        found: set[int] = set()
        todo = list(segments)
        while todo:
            each = todo.pop()
            if each.segment_id not in found:
                found.add(each.segment_id)
                for number in self._spans[each.segment_id]:
                    row = self._rows[number]
                    todo += row[: row.index(each)]
        return found

    @staticmethod
    def _first_left(row: tuple[LayoutSegment, ...], passed: set[int]) -> _Place:
        """Return the start of the first segment that is not known to have been read."""
        number = 0
        while number < len(row) - 1 and row[number].segment_id in passed:
            number += 1
        return (number, 0)

    def _waits(self, number: int, places: list[_Place]) -> bool:
        """Return True if the segment at a position cannot be started because a predecessor has not been
        read."""
        segment = self._rows[number][places[number][0]]
        return any(
            self._rows[other].index(segment) > places[other][0] for other in self._spans[segment.segment_id]
        )

    # --- two cuts -------------------------------------------------------------------------------

    def compare(self, a: StreamCut, b: StreamCut) -> CutOrder:
        """Compare two cuts by the data between them; the result is never UNKNOWN.

        So the end of a sealed segment and the start of its successors are EQUAL.

        :param a: the first cut.
        :param b: the second cut.
        :returns: how ``a`` relates to ``b``: ``BEFORE`` means that ``a`` is earlier.
        :raises UndecidableCutError: the result depends on a length that is unknown, or as :meth:`check`.
        :raises InvalidStreamCutError: as for :meth:`check`.
        """
        certain: set[CutOrder] = set()
        possible: dict[CutOrder, int] = {}
        for row, start, end in zip(self._rows, self._places(a), self._places(b), strict=True):
            if _key(start) <= _key(end):
                order, (stored, unknown) = CutOrder.BEFORE, _stored(row, start, end)
            else:
                order, (stored, unknown) = CutOrder.AFTER, _stored(row, end, start)
            if stored:
                certain.add(order)
            elif unknown is not None:
                possible[order] = unknown
        if len(certain) == 2:
            return CutOrder.OVERLAPPING
        for order, segment_id in possible.items():
            if order not in certain:
                raise self._unknown_length(segment_id, f"the order of {a} and {b} depends on it")
        return certain.pop() if certain else CutOrder.EQUAL

    def join(self, *cuts: StreamCut) -> StreamCut:
        """Return the first position that is at or after all of the cuts.

        For each key, that is the furthest cut.

        :param cuts: the cuts, at least one.
        :raises InvalidArgumentError: no cut is given.
        :raises InvalidStreamCutError: as for :meth:`check`.
        :raises UndecidableCutError: as for :meth:`check`.
        """
        return self._combine(cuts, max)

    def meet(self, *cuts: StreamCut) -> StreamCut:
        """Return the last position that is at or before all of the cuts.

        For each key, that is the least advanced cut.

        :param cuts: the cuts, at least one.
        :raises InvalidArgumentError: no cut is given.
        :raises InvalidStreamCutError: as for :meth:`check`.
        :raises UndecidableCutError: as for :meth:`check`.
        """
        return self._combine(cuts, min)

    def _combine(
        self, cuts: tuple[StreamCut, ...], pick: Callable[[Iterable[tuple[int, int]]], tuple[int, int]]
    ) -> StreamCut:
        if not cuts:
            raise InvalidArgumentError("pass at least one stream cut")
        places = [pick(map(_key, each)) for each in zip(*map(self._places, cuts), strict=True)]
        rows = self._rows
        picked = [row[number].segment_id for row, (number, _) in zip(rows, places, strict=True)]
        positions: dict[int, int] = {}
        waiting = []
        for number, segment_id in enumerate(picked):
            if all(picked[other] == segment_id for other in self._spans[segment_id]):
                offset = places[number][1]
                positions[segment_id] = -1 if offset == _END else offset
            else:
                # For only some of a segment's keys, only its start can be picked (see ``check``).
                waiting.append(number)
        for number in waiting:
            # Expressed by the end of the segment before it, unless one of that segment's successors is in the
            # cut.
            before = rows[number][places[number][0] - 1]
            span = self._spans[before.segment_id]
            if all(other in waiting and rows[other][places[other][0] - 1] == before for other in span):
                final = before.final_length
                positions[before.segment_id] = -1 if final is None else final
        return StreamCut(self.stream, positions)

    def ranges_between(
        self, start: StreamCut, end: StreamCut, *, on_truncated: OnTruncated = "raise"
    ) -> list[SegmentRange]:
        """Return the ranges between two cuts, like :meth:`PravegaClient.segment_ranges`.

        Only truncations before the layout was fetched are taken into account.

        :param start: the cut to start at.
        :param end: the cut to end at.
        :param on_truncated: what to do if data between the cuts was truncated.
        :raises InvalidStreamCutError: ``start`` is not before ``end`` for all keys, or as for :meth:`check`.
        :raises DataLossError: data between the cuts was truncated, and ``on_truncated`` is ``"raise"``.
        :raises UndecidableCutError: the end of a segment that was still open is between the cuts.
        """
        check_on_truncated(on_truncated)
        return self._ranges(start, end, on_truncated)

    def skipped_between(self, start: StreamCut, end: StreamCut) -> list[SkippedPart]:
        """Return the truncated parts that :meth:`ranges_between` skips with ``"skip_to_head"``.

        :param start: the cut to start at.
        :param end: the cut to end at.
        :raises InvalidStreamCutError: as for :meth:`ranges_between`.
        :raises UndecidableCutError: as for :meth:`ranges_between`.
        """
        skipped: list[SkippedPart] = []
        self._ranges(start, end, "skip_to_head", skipped)
        return skipped

    def _ranges(
        self,
        start: StreamCut,
        end: StreamCut,
        on_truncated: OnTruncated,
        skipped: list[SkippedPart] | None = None,
    ) -> list[SegmentRange]:
        between: set[int] = set()
        for row, low, high in zip(self._rows, self._places(start), self._places(end), strict=True):
            if _key(low) <= _key(high):
                stop = high[0] + (1 if high[1] else 0)
                between.update(each.segment_id for each in row[low[0] : stop])
                continue
            stored, unknown = _stored(row, high, low)
            if stored:
                raise InvalidStreamCutError(f"the stream cut {start} is not before {end}", **self._about())
            if unknown is not None:
                raise self._unknown_length(unknown, f"whether {start} is before {end} depends on it")
        ranges = []
        for segment_id in sorted(between):
            segment = self.segment(segment_id)
            first, last = start.positions.get(segment_id), end.positions.get(segment_id)
            if first is not None and first < 0:
                continue
            extent = None
            if segment.length is not None:
                length = segment.length
                if not segment.sealed:
                    if last is None or last < 0:
                        raise self._unknown_length(segment_id, f"its end is between {start} and {end}")
                    length = max(length, last, first or 0)
                extent = (segment.start_offset, length)
            found = wanted_bytes(self._name(segment_id), extent, first, last, on_truncated, skipped)
            if found is not None:
                ranges.append(SegmentRange(self.stream, segment_id, *found))
        return ranges

    def bytes_between(self, start: StreamCut, end: StreamCut, *, on_truncated: OnTruncated = "raise") -> int:
        """Return the number of bytes to read between two cuts, including event headers.

        :param start: the cut to start at.
        :param end: the cut to end at.
        :param on_truncated: what to do if data between the cuts was truncated.
        :raises InvalidStreamCutError: as for :meth:`ranges_between`.
        :raises DataLossError: as for :meth:`ranges_between`.
        :raises UndecidableCutError: as for :meth:`ranges_between`.
        """
        return sum(each.length for each in self.ranges_between(start, end, on_truncated=on_truncated))

    def _unknown_length(self, segment_id: int, why: str) -> UndecidableCutError:
        name = self._name(segment_id)
        state = "was deleted" if self.segment(segment_id).length is None else "was not sealed yet"
        return UndecidableCutError(
            f"segment {name} {state} when the layout was fetched, so its length is unknown, but {why}",
            **self._about(name),
        )


def _key(place: _Place) -> tuple[int, int]:
    """Return a sort key for a position."""
    return (place[0], _END if place[1] < 0 else place[1])


def _stored(row: tuple[LayoutSegment, ...], start: _Place, end: _Place) -> tuple[int, int | None]:
    """Return the smallest possible number of bytes between two positions of a row.

    The second result is the id of a segment whose length is missing, or None.
    """
    (low, first), (high, last) = start, end
    known, unknown = 0, None
    for number in range(low, high + 1):
        segment = row[number]
        begin = first if number == low else 0
        stop: int | None = last if number == high else -1
        if begin < 0:
            continue
        if stop is None or stop < 0:
            stop = segment.final_length
        if stop is None:
            unknown = segment.segment_id
            # The segment has at least the length that it had when the layout was fetched.
            stop = max(begin, segment.length or 0)
        known += stop - begin
    return known, unknown


class SkippedPart(NamedTuple):
    """A truncated part of a segment in the range of a read.

    :ivar segment: full name of the segment.
    :ivar offset: offset of the first truncated byte.
    :ivar new_offset: offset after the last truncated byte; -1 for the unknown end of a deleted segment.
    :ivar size: number of bytes; None for the unknown rest of a deleted segment.
    """

    segment: str
    offset: int
    new_offset: int
    size: int | None


def wanted_bytes(
    name: str,
    extent: tuple[int, int] | None,
    start: int | None,
    end: int | None,
    on_truncated: OnTruncated,
    skipped: list[SkippedPart] | None = None,
) -> tuple[int, int] | None:
    """Return the first and last offset to read of a segment between two cuts.

    The result is None if there is nothing to read.

    :param name: full name of the segment.
    :param extent: the segment's first readable offset and its length; None if it was deleted.
    :param start: offset in the start cut; -1 is the end of the segment; None if the cut does not have the
        segment.
    :param end: offset in the end cut; as ``start``.
    :param on_truncated: what to do if data was truncated.
    :param skipped: truncated parts are appended to this list, unless they cause an error.
    :raises DataLossError: data was truncated, and ``on_truncated`` is ``"raise"``.
    :raises InvalidStreamCutError: an offset is beyond the end of the segment.
    """
    if start is not None and start < 0:
        return None
    # A segment that the start cut does not have is after it, so all of it is wanted.
    first = 0 if start is None else start
    if extent is None:
        if end is not None and 0 <= end <= first:
            return None
        if skipped is not None and (end is None or end < 0):
            skipped.append(SkippedPart(name, first, SEGMENT_READ, None))
        elif skipped is not None and end is not None:
            skipped.append(SkippedPart(name, first, end, end - first))
        if on_truncated == "skip_to_head":
            return None
        raise DataLossError(
            f"segment {name} between the two stream cuts was truncated and deleted",
            segment=name,
            start_offset=None,
            offset=first,
        )
    head, length = extent
    for offset in (start, end):
        if offset is not None and offset > length:
            raise InvalidStreamCutError(
                f"the stream cut has offset {offset} in segment {name}, which is only {length} bytes long",
                segment=name,
            )
    last = length if end is None or end < 0 else end
    if first < head and first < last:
        if on_truncated == "raise":
            raise DataLossError(
                f"segment {name} is truncated: bytes {first} to {head} between the two stream cuts are gone",
                segment=name,
                start_offset=head,
                offset=first,
            )
        if skipped is not None:
            lost_to = min(head, last)
            skipped.append(SkippedPart(name, first, lost_to, lost_to - first))
        first = head
    return (first, last) if first < last else None


def check_on_truncated(value: object) -> None:
    """Check that a value is an :data:`OnTruncated`.

    :raises InvalidArgumentError: it is not.
    """
    if not isinstance(value, str) or value not in get_args(OnTruncated):
        raise InvalidArgumentError(f"on_truncated must be 'raise' or 'skip_to_head', not {shown(value)}")
