"""Dividing ranges so that there are partitions enough."""

from __future__ import annotations

from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from pravega_wire import ScopedStream, SegmentRange
from spark_adapter.planning import cut_at, pieces_for


@given(st.lists(st.integers(1, 10_000), max_size=8), st.integers(1, 60))
def test_the_largest_are_divided_first(lengths: list[int], wanted: int) -> None:
    pieces = pieces_for(lengths, wanted)
    assert all(each >= 1 for each in pieces)
    if any(length > 1 for length in lengths):
        assert sum(pieces) == max(len(lengths), wanted)
    # A piece was made where the pieces were the largest: no other range has had larger ones then.
    shares = [length / count for length, count in zip(lengths, pieces, strict=True)]
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
