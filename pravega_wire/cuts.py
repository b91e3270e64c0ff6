"""Calculating with stream cuts without asking a server.

A cut names segments and offsets, but not which part of the key space a segment has, what follows it, or
how long it became. :class:`StreamLayout` holds that for all segments of a stream; with it cuts of any epochs
can be compared, joined, and turned into ranges to read.

The key space is divided at every border that any segment has. In each part the segments follow each other
in the order of their epochs (controller facts v0.13.0, "Names, ids, ranges"), so there a cut is a place in a
row of bytes, and places in a row can be compared.

Not public: :mod:`pravega_wire` exports what users need of it.
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
from pravega_wire.naming import epoch_of, segment_name
from pravega_wire.types import SEGMENT_READ, CutOrder, ScopedStream, SegmentRange, StreamCut

__all__ = [
    "Bound", "LayoutSegment", "OnTruncated", "SkippedPart", "StreamLayout", "check_on_truncated",
    "wanted_bytes",
]  # fmt: skip

Bound: TypeAlias = StreamCut | str | None
"""A cut, its text, ``"earliest"``, ``"latest"``, or None for the default of its place."""

OnTruncated: TypeAlias = Literal["raise", "skip_to_head"]
"""What becomes of reading where data was truncated: an error, or it begins with what is left."""

_Place: TypeAlias = tuple[int, int]
"""Number of a segment in its row, and an offset in it (-1: its end)."""

_END = 1 << 63


@dataclass(frozen=True, slots=True)
class LayoutSegment:
    """A segment as it was when its layout was fetched.

    :ivar low, high: its part of the key space, from 0.0 to 1.0. :ivar length: bytes, truncated ones included;
        None when it was deleted (truncated away), so that nobody knows.
    :ivar start_offset: first byte that was not truncated. :ivar sealed: its length is final.
    """

    segment_id: int
    low: float
    high: float
    length: int | None
    start_offset: int = 0
    sealed: bool = True

    @property
    def final_length(self) -> int | None:
        """Bytes that it has for ever, None when that is not known."""
        return self.length if self.sealed else None


@dataclass(frozen=True, slots=True)
class StreamLayout:
    """All segments that a stream has had, fetched once: a value that is pickled and used without a server.

    Made by :meth:`PravegaClient.stream_layout`. What happens to the stream later is not in it: questions
    about newer segments, and about the final length of one that was still open, end with
    :class:`UndecidableCutError`.

    In all cuts, -1 is the end of a segment. Results name the length instead, where it is known.

    :ivar stream: the stream. :ivar segments: ascending by id.
    :raises InvalidArgumentError: the segments do not cover the key space.
    """

    stream: ScopedStream
    segments: tuple[LayoutSegment, ...]
    _by_id: Mapping[int, LayoutSegment] = field(init=False, repr=False, compare=False)
    _rows: tuple[tuple[LayoutSegment, ...], ...] = field(init=False, repr=False, compare=False)
    _spans: Mapping[int, range] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ordered = tuple(sorted(self.segments, key=lambda each: each.segment_id))
        borders = sorted({each.low for each in ordered} | {each.high for each in ordered})
        rows: list[list[LayoutSegment]] = [[] for _ in borders[1:]]
        spans = {}
        for each in ordered:
            span = range(bisect_left(borders, each.low), bisect_left(borders, each.high))
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
                f"the segments {[each.segment_id for each in ordered]} of {self.stream} do not divide "
                "the key space in each epoch"
            )
        object.__setattr__(self, "segments", ordered)
        object.__setattr__(self, "_by_id", {each.segment_id: each for each in ordered})
        object.__setattr__(self, "_rows", tuple(map(tuple, rows)))
        object.__setattr__(self, "_spans", spans)

    def __reduce__(self) -> tuple[object, ...]:
        return StreamLayout, (self.stream, self.segments)

    # --- segments -------------------------------------------------------------------------------

    def segment(self, segment_id: int) -> LayoutSegment:
        """The segment with this id.

        :raises UndecidableCutError: it is newer than the layout.
        :raises InvalidStreamCutError: there is none.
        """
        found = self._by_id.get(segment_id)
        if found is not None:
            return found
        name = self._name(segment_id)
        if epoch_of(segment_id) > epoch_of(self.segments[-1].segment_id):
            raise UndecidableCutError(
                f"segment {name} was made after the layout of {self.stream} was fetched", **self._about(name)
            )
        raise InvalidStreamCutError(f"stream {self.stream} has no segment {name}", **self._about(name))

    def successors(self, segment_id: int) -> tuple[LayoutSegment, ...]:
        """What follows a segment, ascending by id; nothing follows the newest."""
        return self._next_to(segment_id, 1)

    def predecessors(self, segment_id: int) -> tuple[LayoutSegment, ...]:
        """What a segment follows, ascending by id."""
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
        """Whether a cut is a position of this stream.

        For each key it names one segment. Only where segments were merged and split unevenly it may name
        none: where it is behind one, by naming another that follows it, and the next cannot be begun before
        some other segment is read. (Groups of readers have such positions.)

        :raises InvalidStreamCutError: it is of another stream, names a segment that does not exist or an
            offset beyond its end, names none or several for a key, or is behind a segment in one part of its
            keys and not yet behind it in another, where no reader can be.
        :raises UndecidableCutError: it names a segment that is newer than the layout.
        """
        self._places(cut)

    def _places(self, cut: StreamCut) -> list[_Place]:
        """Where the cut is in each row."""
        if cut.stream != self.stream:
            raise InvalidStreamCutError(
                f"the cut {cut} is of stream {cut.stream}, not of {self.stream}", **self._about()
            )
        places: list[_Place | None] = [None] * len(self._rows)
        for segment_id, given in cut.positions.items():
            segment = self.segment(segment_id)
            offset, final = given, segment.final_length
            if final is not None:
                if offset > final:
                    raise InvalidStreamCutError(
                        f"the cut names offset {offset} of segment {self._name(segment_id)}, which is only "
                        f"{final} bytes long",
                        **self._about(self._name(segment_id)),
                    )
                if offset < 0:
                    offset = final
            for number in self._spans[segment_id]:
                if places[number] is not None:
                    raise InvalidStreamCutError(
                        f"the cut {cut} names two segments for the same keys", **self._about()
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
                raise InvalidStreamCutError(f"the cut {cut} does not cover the key space", **self._about())
        reached = {
            each.segment_id for row, place in zip(self._rows, found, strict=True) for each in row[place[0] :]
        }
        if torn := passed & reached:
            name = self._name(min(torn))
            raise InvalidStreamCutError(
                f"the cut {cut} is behind segment {name} for some keys and not for others",
                **self._about(name),
            )
        return found

    def _all_before(self, segments: Iterable[LayoutSegment]) -> set[int]:
        """Ids of these segments and of all that were there before them in any part of their keys."""
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
        """The beginning of the first segment that is not known to be read."""
        number = 0
        while number < len(row) - 1 and row[number].segment_id in passed:
            number += 1
        return (number, 0)

    def _waits(self, number: int, places: list[_Place]) -> bool:
        """Whether the segment at a place cannot be begun, as another one that it follows is not read."""
        segment = self._rows[number][places[number][0]]
        return any(
            self._rows[other].index(segment) > places[other][0] for other in self._spans[segment.segment_id]
        )

    # --- two cuts -------------------------------------------------------------------------------

    def compare(self, a: StreamCut, b: StreamCut) -> CutOrder:
        """How ``a`` lies to ``b``, by what is stored between them; never UNKNOWN.

        So the end of a sealed segment and the beginning of its successors are EQUAL.

        :raises UndecidableCutError: it hangs on a length that is not known. Others as :meth:`check`.
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
                raise self._unknown_length(segment_id, f"how {a} lies to {b} hangs on it")
        return certain.pop() if certain else CutOrder.EQUAL

    def join(self, *cuts: StreamCut) -> StreamCut:
        """The furthest of the cuts for each key: the first position that is after all of them.

        :raises InvalidArgumentError: no cut is given. Others as :meth:`check`.
        """
        return self._combine(cuts, max)

    def meet(self, *cuts: StreamCut) -> StreamCut:
        """The least far of the cuts for each key: the last position that is before all of them.

        :raises InvalidArgumentError: no cut is given. Others as :meth:`check`.
        """
        return self._combine(cuts, min)

    def _combine(
        self, cuts: tuple[StreamCut, ...], pick: Callable[[Iterable[tuple[int, int]]], tuple[int, int]]
    ) -> StreamCut:
        if not cuts:
            raise InvalidArgumentError("no cuts to combine")
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
                # Only the beginning of a segment can be picked for some of its keys (see ``check``).
                waiting.append(number)
        for number in waiting:
            # Said by the one before it, unless what is named follows that one elsewhere.
            before = rows[number][places[number][0] - 1]
            span = self._spans[before.segment_id]
            if all(other in waiting and rows[other][places[other][0] - 1] == before for other in span):
                final = before.final_length
                positions[before.segment_id] = -1 if final is None else final
        return StreamCut(self.stream, positions)

    def ranges_between(
        self, start: StreamCut, end: StreamCut, *, on_truncated: OnTruncated = "raise"
    ) -> list[SegmentRange]:
        """What :meth:`PravegaClient.segment_ranges` gives for two cuts.

        Truncation is judged by what was truncated when the layout was fetched.

        :raises InvalidStreamCutError: ``start`` is not before ``end`` for all keys; or as :meth:`check`.
        :raises DataLossError: data between the cuts was truncated, unless ``on_truncated`` is
            ``"skip_to_head"``.
        :raises UndecidableCutError: the end of a segment that was still open is between them.
        """
        check_on_truncated(on_truncated)
        return self._ranges(start, end, on_truncated)

    def skipped_between(self, start: StreamCut, end: StreamCut) -> list[SkippedPart]:
        """What :meth:`ranges_between` leaves out with ``"skip_to_head"``; errors as there."""
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
                raise InvalidStreamCutError(f"the cut {start} is not before {end}", **self._about())
            if unknown is not None:
                raise self._unknown_length(unknown, f"whether {start} is before {end} hangs on it")
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
        """Bytes to read between two cuts, headers of events included; errors as :meth:`ranges_between`."""
        return sum(each.length for each in self.ranges_between(start, end, on_truncated=on_truncated))

    def _unknown_length(self, segment_id: int, why: str) -> UndecidableCutError:
        name = self._name(segment_id)
        state = "was deleted" if self.segment(segment_id).length is None else "was not sealed yet"
        return UndecidableCutError(
            f"segment {name} {state} when the layout was fetched, so its length is not known, and {why}",
            **self._about(name),
        )


def _key(place: _Place) -> tuple[int, int]:
    """Something that sorts as the place does."""
    return (place[0], _END if place[1] < 0 else place[1])


def _stored(row: tuple[LayoutSegment, ...], start: _Place, end: _Place) -> tuple[int, int | None]:
    """Bytes between two places of a row (at least so many), and a segment of which the length is missing."""
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
            # what it had at that time it has for ever
            stop = max(begin, segment.length or 0)
        known += stop - begin
    return known, unknown


class SkippedPart(NamedTuple):
    """Truncated bytes of a segment that a reader wanted.

    :ivar segment: full name. :ivar offset: of the first one. :ivar new_offset: after the last one.
    :ivar size: how many; None, with -1 as ``new_offset``, for all up to the unknown end of a segment that
        was deleted.
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
    """Offsets to read of one segment that lies between two cuts; None for nothing.

    :param extent: its first readable offset and its length, None when it was deleted.
    :param start, end: the offsets that the cuts name in it; -1 is its end.
    :param skipped: what is truncated is added to it, unless that fails.
    :raises DataLossError: some of it is gone, and that is to fail.
    :raises InvalidStreamCutError: an offset is beyond its end.
    """
    if start is not None and start < 0:
        return None
    # A segment that the start cut does not name lies after it, so all of it is wanted.
    first = 0 if start is None else start
    if extent is None:
        if skipped is not None and (end is None or end < 0):
            skipped.append(SkippedPart(name, first, SEGMENT_READ, None))
        elif skipped is not None and end is not None and end > first:
            skipped.append(SkippedPart(name, first, end, end - first))
        if on_truncated == "skip_to_head" or end == 0:
            return None
        raise DataLossError(
            f"segment {name} between the two cuts was truncated away and deleted",
            segment=name,
            start_offset=None,
            offset=first,
        )
    head, length = extent
    for offset in (start, end):
        if offset is not None and offset > length:
            raise InvalidStreamCutError(
                f"the cut names offset {offset} of segment {name}, which is only {length} bytes long",
                segment=name,
            )
    last = length if end is None or end < 0 else end
    if first < head and first < last:
        if on_truncated == "raise":
            raise DataLossError(
                f"segment {name} is truncated: bytes {first} to {head} between the two cuts are gone",
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
    """Refuse what is not an :data:`OnTruncated`.

    :raises InvalidArgumentError: it is not.
    """
    if value not in get_args(OnTruncated):
        raise InvalidArgumentError(f"on_truncated is 'raise' or 'skip_to_head', not {value!r}")
