"""Calculating with cuts, against sets of bytes.

A generated history of scales gives segments over a few cells of the key space. A cut's model is the set of
all bytes that lie before it; cuts come from a reader that takes steps at random, as a group of readers does.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pravega_wire.controller.types import SegmentWithRange
from pravega_wire.errors import (
    DataLossError,
    InvalidArgumentError,
    InvalidStreamCutError,
    UndecidableCutError,
)
from pravega_wire.protocol import group_algorithm
from pravega_wire.stream import batch
from pravega_wire.values.cuts import LayoutSegment, SkippedPart, StreamLayout
from pravega_wire.values.naming import segment_id, segment_name
from pravega_wire.values.types import CutOrder, ScopedStream, SegmentRange, StreamCut

STREAM = ScopedStream("s", "t")
CELLS = 8

Bytes = frozenset[tuple[int, int]]


@dataclass
class History:
    """Segments as sets of cells, with lengths; who follows whom is known from how they were made."""

    cells: dict[int, range] = field(default_factory=dict)
    lengths: dict[int, int] = field(default_factory=dict)
    followers: dict[int, set[int]] = field(default_factory=dict)
    followed: dict[int, set[int]] = field(default_factory=dict)
    active: frozenset[int] = frozenset()

    @property
    def layout(self) -> StreamLayout:
        return StreamLayout(
            STREAM,
            tuple(
                LayoutSegment(
                    each,
                    cells.start / CELLS,
                    cells.stop / CELLS,
                    self.lengths[each],
                    sealed=each not in self.active,
                )
                for each, cells in self.cells.items()
            ),
        )

    def before(self, cut: StreamCut) -> Bytes:
        """The bytes before a cut: those of every segment that came earlier, and of those named."""
        found: set[tuple[int, int]] = set()
        todo: list[Any] = []
        for each, offset in cut.positions.items():
            stop = self.lengths[each] if offset < 0 else offset
            found.update((each, byte) for byte in range(stop))
            todo += self.followed[each]
        while todo:
            each = todo.pop()
            found.update((each, byte) for byte in range(self.lengths[each]))
            todo += self.followed[each]
        return frozenset(found)

    def begun(self, finished: frozenset[int]) -> list[int]:
        """What can be read when these segments are finished."""
        return [each for each in self.cells if self.followed[each] <= finished and each not in finished]

    def named(self, finished: frozenset[int]) -> tuple[list[int], list[int]]:
        """The segments of a cut: those under way, and finished ones that none of these follow."""
        begun = self.begun(finished)
        ends = [each for each in finished if not self.followers[each] & (finished | set(begun))]
        return begun, ends


@st.composite
def histories(draw: st.DrawFn, scales: int = 5) -> History:
    history = History()
    number = 0

    def make(epoch: int, borders: list[int]) -> list[int]:
        nonlocal number
        made = []
        for low, high in pairwise(borders):
            each = segment_id(epoch, number)
            number += 1
            history.cells[each] = range(low, high)
            history.lengths[each] = draw(st.integers(0, 3))
            history.followers[each] = set()
            history.followed[each] = set()
            made.append(each)
        return made

    def borders(low: int, high: int) -> list[int]:
        inner = draw(st.sets(st.integers(low + 1, high - 1), max_size=3)) if high - low > 1 else set()
        return [low, *sorted(inner), high]

    active = make(0, borders(0, CELLS))
    for epoch in range(1, draw(st.integers(0, scales)) + 1):
        low = draw(st.integers(0, len(active) - 1))
        high = draw(st.integers(low + 1, len(active)))
        old = active[low:high]
        new = make(epoch, borders(history.cells[old[0]].start, history.cells[old[-1]].stop))
        for before in old:
            for after in new:
                if set(history.cells[before]) & set(history.cells[after]):
                    history.followers[before].add(after)
                    history.followed[after].add(before)
        active[low:high] = new
    history.active = frozenset(active)
    return history


@st.composite
def cuts(draw: st.DrawFn, history: History) -> StreamCut:
    finished: frozenset[int] = frozenset()
    for _ in range(draw(st.integers(0, 10))):
        ways = [each for each in history.begun(finished) if history.followers[each]]
        if not ways:
            break
        finished |= {draw(st.sampled_from(ways))}
    begun, ends = history.named(finished)
    positions = dict.fromkeys(ends, -1)
    for each in begun:
        offset = draw(st.integers(0, history.lengths[each]))
        ended = offset == history.lengths[each] and each not in history.active
        positions[each] = -1 if ended and draw(st.booleans()) else offset
    return StreamCut(STREAM, positions)


def order(a: Bytes, b: Bytes) -> CutOrder:
    if a == b:
        return CutOrder.EQUAL
    if a < b:
        return CutOrder.BEFORE
    return CutOrder.AFTER if a > b else CutOrder.OVERLAPPING


@given(histories(), st.data())
def test_cuts_against_sets_of_bytes(history: History, data: st.DataObject) -> None:
    layout = pickle.loads(pickle.dumps(history.layout))
    assert layout == history.layout
    a, b, c = (data.draw(cuts(history)) for _ in range(3))
    below, above, third = history.before(a), history.before(b), history.before(c)
    assert layout.compare(a, b) is order(below, above)
    upper, lower = layout.join(a, b, c), layout.meet(a, b, c)
    layout.check(upper)
    layout.check(lower)
    assert history.before(upper) == below | above | third
    assert history.before(lower) == below & above & third
    assert -1 not in upper.positions.values()
    assert layout.join(a, b) == layout.join(b, a)
    assert layout.meet(a, layout.join(a, b)) == layout.join(a)
    if below <= above:
        between = above - below
        ranges = layout.ranges_between(a, b)
        assert sorted(
            (each.segment_id, byte) for each in ranges for byte in range(each.start_offset, each.end_offset)
        ) == sorted(between)
        assert ranges == sorted(ranges)
        assert all(each.length for each in ranges)
        assert layout.bytes_between(a, b) == len(between)
    else:
        with pytest.raises(InvalidStreamCutError, match="is not before"):
            layout.ranges_between(a, b)


@given(histories(), st.data())
def test_what_cuts_tell_by_themselves_is_true(history: History, data: st.DataObject) -> None:
    a, b = data.draw(cuts(history)), data.draw(cuts(history))
    below, above = history.before(a), history.before(b)
    said = a.compare(b)
    if said is CutOrder.EQUAL:
        assert below == above
    elif said is CutOrder.BEFORE:
        assert below <= above
        assert b.compare(a) is CutOrder.AFTER
    elif said is CutOrder.AFTER:
        assert below >= above
    elif said is CutOrder.OVERLAPPING:
        assert order(below, above) is CutOrder.OVERLAPPING
    if a.positions.keys() == b.positions.keys() and -1 not in (*a.positions.values(), *b.positions.values()):
        assert said is order(below, above)


@given(histories(scales=3))
def test_exactly_what_a_reader_can_reach_passes(history: History) -> None:
    reached: set[frozenset[int]] = set()
    seen, todo = set(), [frozenset[int]()]
    while todo:
        finished = todo.pop()
        if finished not in seen:
            seen.add(finished)
            begun, ends = history.named(finished)
            reached.add(frozenset((*begun, *ends)))
            todo += [finished | {each} for each in begun if history.followers[each]]
    layout = history.layout
    for size in range(1, min(CELLS, 4) + 1):
        for chosen in combinations(history.cells, size):
            cut = StreamCut(STREAM, dict.fromkeys(chosen, 0))
            try:
                layout.check(cut)
            except InvalidStreamCutError:
                assert frozenset(chosen) not in reached
            else:
                assert frozenset(chosen) in reached


@given(histories())
def test_neighbours_are_those_of_the_history(history: History) -> None:
    layout = history.layout
    for each in history.cells:
        assert {one.segment_id for one in layout.successors(each)} == history.followers[each]
        assert {one.segment_id for one in layout.predecessors(each)} == history.followed[each]


# --- one case each --------------------------------------------------------------------------------

A, B = segment_id(0, 0), segment_id(0, 1)
C = segment_id(1, 2)
LEFT, RIGHT = segment_id(2, 3), segment_id(2, 4)


def small(**changed: LayoutSegment) -> StreamLayout:
    """Two segments that were merged into one, which was split again and is still open on the right."""
    segments = {
        "a": LayoutSegment(A, 0.0, 0.5, 100),
        "b": LayoutSegment(B, 0.5, 1.0, 50),
        "c": LayoutSegment(C, 0.0, 1.0, 10),
        "left": LayoutSegment(LEFT, 0.0, 0.25, 7, sealed=False),
        "right": LayoutSegment(RIGHT, 0.25, 1.0, 9, sealed=False),
    }
    return StreamLayout(STREAM, tuple({**segments, **changed}.values()))


def cut(positions: dict[int, int]) -> StreamCut:
    return StreamCut(STREAM, positions)


@pytest.mark.parametrize(
    ("positions", "message"),
    [
        ({A: 5}, "does not cover"),
        ({B: 50}, "does not cover"),
        ({}, "does not cover"),
        ({A: 5, B: 5, C: 0}, "two segments for the same keys"),
        ({A: 101, B: 0}, "only 100 bytes long"),
        ({A: 0, segment_id(0, 9): 0}, "has no segment s/t/9.#epoch.0"),
        # 0.0 to 0.25 is behind c, which cannot be before a was read
        ({LEFT: 0, A: 3, B: 4}, "two segments for the same keys"),
    ],
)
def test_a_cut_that_is_no_position_is_refused(positions: dict[int, int], message: str) -> None:
    with pytest.raises(InvalidStreamCutError, match=message):
        small().check(cut(positions))


def test_a_cut_that_no_reader_reaches_is_refused() -> None:
    right = LayoutSegment(RIGHT, 0.5, 1.0, 9, sealed=False)
    layout = small(left=LayoutSegment(LEFT, 0.0, 0.5, 7, sealed=False), right=right)
    layout.check(cut({LEFT: 0, RIGHT: 5}))
    with pytest.raises(InvalidStreamCutError, match=r"past segment s/t/0.#epoch.0 for some keys") as caught:
        layout.check(cut({A: 3, RIGHT: 5}))
    assert caught.value.segment == "s/t/0.#epoch.0"


def test_newer_segments_are_undecided() -> None:
    with pytest.raises(UndecidableCutError, match="created after the layout") as caught:
        small().compare(cut({segment_id(3, 5): 0}), cut({C: 0}))
    assert (caught.value.stream, caught.value.segment) == ("t", "s/t/5.#epoch.3")


def test_the_end_of_an_open_segment_is_decided_only_where_it_can_be() -> None:
    layout = small()
    here, later, end = ({LEFT: n, RIGHT: 9} for n in (3, 7, -1))
    assert layout.compare(cut(here), cut(end)) is CutOrder.BEFORE  # there are 7 bytes at least
    assert layout.compare(cut(end), cut(here)) is CutOrder.AFTER
    assert layout.compare(cut(end), cut(end)) is CutOrder.EQUAL
    for first, second in ((later, end), (end, later)):
        with pytest.raises(UndecidableCutError, match="was not sealed yet") as caught:
            layout.compare(cut(first), cut(second))
        assert caught.value.segment == "s/t/3.#epoch.2"
    # it may be before or overlap
    with pytest.raises(UndecidableCutError):
        layout.compare(cut({LEFT: 7, RIGHT: 9}), cut({LEFT: -1, RIGHT: 8}))
    assert layout.compare(cut({LEFT: 6, RIGHT: 9}), cut({LEFT: -1, RIGHT: 8})) is CutOrder.OVERLAPPING
    assert layout.join(cut(later), cut(end)) == cut(end)
    assert layout.meet(cut(later), cut(end)) == cut(later)
    with pytest.raises(UndecidableCutError, match="its end is between"):
        layout.bytes_between(cut(here), cut(end))
    # offsets after those of the layout's time are good
    assert layout.bytes_between(cut({C: 4}), cut({LEFT: 1000, RIGHT: 9})) == 6 + 1000 + 9


def test_what_was_truncated_away() -> None:
    layout = small(a=LayoutSegment(A, 0.0, 0.5, None), b=LayoutSegment(B, 0.5, 1.0, 50, start_offset=20))
    old, new = cut({A: 60, B: 10}), cut({C: 1})
    assert layout.compare(old, new) is CutOrder.BEFORE
    with pytest.raises(UndecidableCutError, match=r"s/t/0.#epoch.0 was deleted"):
        layout.compare(cut({A: 60, B: 50}), cut({C: 0}))
    with pytest.raises(DataLossError, match="truncated and deleted"):
        layout.ranges_between(old, new)
    assert layout.ranges_between(old, new, on_truncated="skip_to_head") == [
        SegmentRange(STREAM, B, 20, 50),
        SegmentRange(STREAM, C, 0, 1),
    ]
    names = {each: segment_name(STREAM.scope, STREAM.name, each) for each in (A, B)}
    assert layout.skipped_between(old, new) == [
        SkippedPart(names[A], 60, -1, None),
        SkippedPart(names[B], 10, 20, 10),
    ]
    # Where the end says how far it was wanted, the number is known.
    assert layout.skipped_between(cut({A: 60, B: 10}), cut({A: 65, B: 15})) == [
        SkippedPart(names[A], 60, 65, 5),
        SkippedPart(names[B], 10, 15, 5),
    ]
    assert layout.skipped_between(cut({A: 60, B: 20}), cut({A: 60, B: 50})) == []
    # Nothing of a deleted segment is wanted if both cuts are at the same place in it.
    assert layout.ranges_between(cut({A: 60, B: 20}), cut({A: 60, B: 50})) == [
        SegmentRange(STREAM, B, 20, 50)
    ]
    with pytest.raises(DataLossError, match="bytes 10 to 20") as caught:
        layout.ranges_between(cut({A: 0, B: 10}), cut({A: 0, B: 30}))
    assert (caught.value.offset, caught.value.start_offset) == (10, 20)


def test_other_streams_and_nothing_are_refused() -> None:
    other = StreamCut(ScopedStream("s", "u"), {C: 0})
    with pytest.raises(InvalidStreamCutError, match="belongs to stream s/u, not to s/t"):
        small().compare(other, cut({C: 0}))
    with pytest.raises(InvalidStreamCutError, match="cannot compare a stream cut of s/u with one of s/t"):
        other.compare(cut({C: 0}))
    with pytest.raises(InvalidArgumentError, match="at least one stream cut"):
        small().join()
    with pytest.raises(InvalidArgumentError, match="on_truncated"):
        small().ranges_between(cut({C: 0}), cut({C: 0}), on_truncated="x")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "segments",
    [
        (),
        (LayoutSegment(A, 0.0, 0.5, 0),),
        (LayoutSegment(A, 0.0, 0.5, 0), LayoutSegment(B, 0.6, 1.0, 0)),
        (LayoutSegment(A, 0.0, 0.6, 0), LayoutSegment(B, 0.5, 1.0, 0)),
        (LayoutSegment(A, 0.0, 1.0, 0), LayoutSegment(A, 0.0, 1.0, 0)),
        (LayoutSegment(A, 0.0, 1.0, 0), LayoutSegment(C, 0.5, 0.5, 0)),
    ],
)
def test_segments_that_do_not_divide_the_key_space_are_refused(segments: tuple[LayoutSegment, ...]) -> None:
    with pytest.raises(InvalidArgumentError, match="do not cover the key space"):
        StreamLayout(STREAM, segments)


@pytest.mark.parametrize("count", [49, 98, 103, 1000])
def test_segments_whose_last_one_ends_beside_the_key_space(count: int) -> None:
    """A server multiplies with 1/count, and 49 * (1/49) is less than 1."""
    whole = [
        LayoutSegment(segment_id(0, each), each * (1.0 / count), (each + 1) * (1.0 / count), 9)
        for each in range(count)
    ]
    last = whole[-1]
    middle = (last.low + last.high) / 2
    split = [
        LayoutSegment(segment_id(1, count), last.low, middle, 0),
        LayoutSegment(segment_id(1, count + 1), middle, last.high, 0),
    ]
    layout = StreamLayout(STREAM, (*whole, *split))
    assert layout.successors(last.segment_id) == tuple(split)
    start, end = ({each.segment_id: at for each in whole} for at in (0, 9))
    layout.check(cut(start))
    assert layout.bytes_between(cut(start), cut(end)) == 9 * count
    # Nothing else than one epoch is whole.
    ranges = [(each.low, each.high) for each in whole]
    assert group_algorithm._is_whole(ranges)
    assert batch._is_whole([SegmentWithRange(each.segment_id, each.low, each.high) for each in whole])
    assert not group_algorithm._is_whole(ranges[:-1])
    assert not batch._is_whole(
        [SegmentWithRange(each.segment_id, each.low, each.high) for each in whole[:-1]]
    )


def test_unknown_without_a_layout() -> None:
    assert cut({A: 1, B: 2}).compare(cut({A: 2, B: 1})) is CutOrder.OVERLAPPING
    assert cut({A: -1, B: 2}).compare(cut({A: 2, B: 3})) is CutOrder.UNKNOWN
    assert cut({A: 1, B: 2}).compare(cut({C: 0})) is CutOrder.BEFORE
    assert cut({C: 0}).compare(cut({A: 1, B: 2})) is CutOrder.AFTER
    assert cut({A: 1, B: 2}).compare(cut({A: 0, C: 0})) is CutOrder.UNKNOWN
    assert cut({A: 1, RIGHT: 0}).compare(cut({C: 0, B: 0})) is CutOrder.UNKNOWN
    assert cut({A: 1}).compare(cut({A: 1, B: 0})) is CutOrder.UNKNOWN
