"""Dividing ranges so that there are partitions enough."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, pairwise
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from pravega_wire import ScopedStream, SegmentRange
from pravega_wire.sync import PravegaClient
from pravega_wire.values.boundaries import BoundaryIndex, LeadingPart
from spark_adapter.reading.partitions import cut_at, divided, pieces_for


@given(st.lists(st.integers(1, 10_000), max_size=8), st.integers(1, 60) | st.integers(10**6, 10**9))
def test_the_largest_are_divided_first(lengths: list[int], wanted: int) -> None:
    pieces = pieces_for(lengths, wanted)
    assert all(each >= 1 for each in pieces)
    if any(length > 1 for length in lengths):
        assert sum(pieces) == max(len(lengths), wanted)
    # A piece was made where the pieces were the largest: no other range has had larger ones then.
    # (What cannot be divided does not count.)
    shares = [length / count for length, count in zip(lengths, pieces, strict=True) if length > 1]
    for length, count in zip(lengths, pieces, strict=True):
        if count > 1:
            assert length / (count - 1) >= max(shares)


def test_a_skewed_stream() -> None:
    assert pieces_for([1000, 10, 10], 8) == [6, 1, 1]
    assert pieces_for([100, 100], 5) == [3, 2]
    assert pieces_for([], 5) == []
    assert pieces_for([5, 5], 1) == [1, 1]


@given(
    lengths=st.lists(st.integers(8, 300), min_size=1, max_size=200),
    pieces=st.integers(1, 20),
    start=st.integers(0, 10**6),
)
def test_pieces_are_the_whole_at_event_boundaries(lengths: list[int], pieces: int, start: int) -> None:
    bounds = [start, *(start + each for each in accumulate(lengths))]
    whole = SegmentRange(ScopedStream("a", "b"), 7, start, bounds[-1])
    found = cut_at(whole, pieces, bounds[1:])
    assert (found[0].start_offset, found[-1].end_offset) == (start, bounds[-1])
    assert all(before.end_offset == after.start_offset for before, after in pairwise(found))
    assert {each.start_offset for each in found} <= set(bounds)
    assert all(each.length for each in found)
    assert len(found) == min(pieces, len(lengths))


@pytest.mark.parametrize("pieces", [2, 3, 7])
def test_pieces_of_small_events_are_alike(pieces: int) -> None:
    whole = SegmentRange(ScopedStream("a", "b"), 7, 500, 500 + 100_000)
    found = cut_at(whole, pieces, range(600, 100_600, 100))
    assert max(each.length for each in found) - min(each.length for each in found) <= 200


class Segments:
    """Segments with events of known sizes.

    :ivar looked_at: the ranges of each pass, in bytes.
    """

    def __init__(self, *sizes: list[int]) -> None:
        self.bounds = [[0, *accumulate(each)] for each in sizes]
        self.looked_at: list[int] = []

    def ranges(self) -> list[SegmentRange]:
        return [SegmentRange(ScopedStream("a", "b"), n, 0, each[-1]) for n, each in enumerate(self.bounds)]

    def boundary_index(self, part: SegmentRange, *, spacing: int) -> BoundaryIndex:
        self.looked_at.append(part.length)
        marks: list[int] = []
        last = part.start_offset
        inside = [
            each for each in self.bounds[part.segment_id] if part.start_offset < each <= part.end_offset
        ]
        for each, after in pairwise([*inside, part.end_offset + spacing + 1]):
            if after - last > spacing:
                marks.append(each)
                last = each
        return BoundaryIndex(
            part.stream, part.segment_id, part.start_offset, part.end_offset, spacing, tuple(marks)
        )

    def leading_parts(self, asked: list[tuple[SegmentRange, int | None, int | None]]) -> list[LeadingPart]:
        found = []
        for part, _, events in asked:
            assert events is not None
            bounds = self.bounds[part.segment_id]
            begin, end = bounds.index(part.start_offset), bounds.index(part.end_offset)
            count = min(events, end - begin)
            found.append(LeadingPart(replace(part, end_offset=bounds[begin + count]), count, None))
        return found

    def divided(self, wanted: int | None, events: int | None = None) -> list[SegmentRange]:
        return divided(cast("PravegaClient", self), self.ranges(), wanted, events)


SIZES = st.lists(st.integers(8, 60) | st.integers(500, 5000), max_size=12)


@given(st.lists(SIZES, max_size=5), st.integers(1, 40))
def test_there_are_partitions_enough_if_there_are_events(sizes: list[list[int]], wanted: int) -> None:
    segments = Segments(*sizes)
    found = segments.divided(wanted)
    most = sum(max(1, len(each)) for each in sizes)
    assert len(found) == max(len(sizes), min(wanted, most))
    assert found == sorted(found)
    for whole, bounds in zip(segments.ranges(), segments.bounds, strict=True):
        parts = [each for each in found if each.segment_id == whole.segment_id]
        assert (parts[0].start_offset, parts[-1].end_offset) == (0, bounds[-1])
        assert all(low.end_offset == high.start_offset for low, high in pairwise(parts))
        assert {each.start_offset for each in parts} <= set(bounds)


@given(st.lists(SIZES, max_size=5), st.integers(1, 5))
def test_no_partition_has_more_events(sizes: list[list[int]], most: int) -> None:
    segments = Segments(*sizes)
    found = segments.divided(None, most)
    for whole, bounds in zip(segments.ranges(), segments.bounds, strict=True):
        parts = [each for each in found if each.segment_id == whole.segment_id]
        assert all(low.end_offset == high.start_offset for low, high in pairwise(parts))
        counts = [bounds.index(each.end_offset) - bounds.index(each.start_offset) for each in parts]
        full, rest = divmod(len(bounds) - 1, most)
        assert counts == ([most] * full + [rest] * (rest > 0) or [0])


def test_what_large_events_cannot_take_goes_to_the_others() -> None:
    segments = Segments([1_000_000] * 2, [100] * 1000)
    assert [each.segment_id for each in segments.divided(8)] == [0] * 2 + [1] * 6
    # The large events are not looked at again.
    assert segments.looked_at == [2_000_000, 100_000]
