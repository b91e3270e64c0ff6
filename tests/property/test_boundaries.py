"""Boundaries between events, whatever the sizes of events and of the pieces in which bytes arrive."""

from __future__ import annotations

import pickle
from itertools import accumulate, pairwise
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pravega_wire.errors import ArgumentTypeError, DecodeError, InvalidArgumentError, TruncatedInputError
from pravega_wire.protocol.events import frame_event
from pravega_wire.stream.splitting import BoundaryScan, LeadingScan
from pravega_wire.values.boundaries import BoundaryIndex
from pravega_wire.values.types import ScopedStream, SegmentRange

STREAM = ScopedStream("s", "t")
BASE = 1000

sizes = st.lists(
    st.one_of(st.integers(0, 3), st.integers(0, 60), st.just(7), st.integers(200, 400)), max_size=60
) | st.lists(st.just(5), min_size=30, max_size=200)


def stored(lengths: list[int]) -> tuple[bytes, list[int]]:
    """The bytes of events, and where each begins and the last ends."""
    # payloads that look like headers: nothing may be guessed from them
    data = b"".join(frame_event(bytes(length)) for length in lengths)
    return data, list(accumulate((8 + length for length in lengths), initial=BASE))


def scanned(
    data: bytes, steps: list[int], start: int, end: int, spacing: int, known: BoundaryIndex | None = None
) -> BoundaryIndex:
    """An index made from bytes that come in pieces, jumping over what is not needed."""
    mark = None if known is None else (known.marks[-1] if known.marks else known.start)
    scan = BoundaryScan("s/t/0", start, end, spacing, mark)
    turn = 0
    while scan.at < end:
        at = scan.next_byte
        step = steps[turn % len(steps)]
        turn += 1
        piece = data[at - BASE : min(at + step, end) - BASE]
        scan.feed(memoryview(piece), at)
    if known is None:
        return BoundaryIndex(STREAM, 0, start, end, spacing, tuple(scan.marks))
    return BoundaryIndex(STREAM, 0, known.start, end, spacing, (*known.marks, *scan.marks))


steps = st.lists(st.integers(1, 500), min_size=1, max_size=5)


@given(sizes, steps, st.integers(1, 300), st.integers(0, 400), st.data())
def test_pieces_cover_the_range_and_meet_between_events(
    lengths: list[int], steps: list[int], spacing: int, more: int, data: st.DataObject
) -> None:
    raw, bounds = stored(lengths)
    index = scanned(raw, steps, BASE, bounds[-1], spacing)
    low = data.draw(st.integers(0, len(lengths)))
    high = data.draw(st.integers(low, len(lengths)))
    whole = SegmentRange(STREAM, 0, bounds[low], bounds[high])
    pieces = index.split(whole, spacing + more)
    if low == high:
        assert pieces == []
        return
    assert [pieces[0].start_offset, pieces[-1].end_offset] == [bounds[low], bounds[high]]
    places = {offset: number for number, offset in enumerate(bounds)}
    for each in pieces:
        assert each.length > 0
        first, last = places[each.start_offset], places[each.end_offset]
        assert each.length <= spacing + more or last == first + 1
    for each, following in pairwise(pieces):
        assert each.end_offset == following.start_offset


@given(sizes, steps, st.integers(1, 300))
def test_a_limit_of_the_spacing_gives_the_fewest_pieces(
    lengths: list[int], steps: list[int], spacing: int
) -> None:
    raw, bounds = stored(lengths)
    index = scanned(raw, steps, BASE, bounds[-1], spacing)
    expected, at = [], 0
    while at < len(lengths):
        stop = at + 1
        while stop < len(lengths) and bounds[stop + 1] - bounds[at] <= spacing:
            stop += 1
        expected.append((bounds[at], bounds[stop]))
        at = stop
    pieces = index.split(index.range, spacing)
    assert [(each.start_offset, each.end_offset) for each in pieces] == expected


@given(sizes, steps, steps, st.integers(1, 300), st.data())
def test_an_extended_index_is_that_of_one_pass(
    lengths: list[int], first: list[int], second: list[int], spacing: int, data: st.DataObject
) -> None:
    raw, bounds = stored(lengths)
    middle = bounds[data.draw(st.integers(0, len(lengths)))]
    part = scanned(raw, first, BASE, middle, spacing)
    kept = BoundaryIndex.from_text(part.to_text())
    assert kept == part == pickle.loads(pickle.dumps(part))
    assert scanned(raw, second, middle, bounds[-1], spacing, kept) == scanned(
        raw, first, BASE, bounds[-1], spacing
    )


@given(sizes.filter(bool), steps, st.integers(1, 300), st.data())
def test_an_end_inside_an_event_is_refused(
    lengths: list[int], steps: list[int], spacing: int, data: st.DataObject
) -> None:
    raw, bounds = stored(lengths)
    end = data.draw(st.integers(BASE + 1, bounds[-1] - 1).filter(lambda each: each not in bounds))
    with pytest.raises(TruncatedInputError, match="in the middle of the event"):
        scanned(raw, steps, BASE, end, spacing)


@given(sizes, steps, st.integers(1, 300), st.integers(0, 20))
def test_bytes_that_are_no_events_are_refused(
    lengths: list[int], steps: list[int], spacing: int, rest: int
) -> None:
    raw, bounds = stored(lengths)
    raw += b"\xff" * 8 + bytes(rest)
    with pytest.raises(DecodeError, match=f"no event begins at offset {bounds[-1]}"):
        scanned(raw, steps, BASE, BASE + len(raw), spacing)


def test_an_index_refuses_what_it_does_not_know() -> None:
    index = BoundaryIndex(STREAM, 0, 100, 1000, 200, (250, 450, 600, 790))
    assert index.split(SegmentRange(STREAM, 0, 300, 900), 400) == [
        SegmentRange(STREAM, 0, 300, 600),
        SegmentRange(STREAM, 0, 600, 900),
    ]
    for other in (
        SegmentRange(STREAM, 0, 99, 900),
        SegmentRange(STREAM, 0, 100, 1001),
        SegmentRange(STREAM, 1, 300, 900),
        SegmentRange(ScopedStream("s", "u"), 0, 300, 900),
    ):
        with pytest.raises(InvalidArgumentError, match="does not cover"):
            index.split(other, 400)
    with pytest.raises(InvalidArgumentError, match="every 200 bytes"):
        index.split(index.range, 199)
    for bad in (0, -1, 1.5, True, "9"):
        with pytest.raises(InvalidArgumentError, match="max_bytes"):
            index.split(index.range, bad)  # type: ignore[arg-type]


def test_an_index_of_the_numbers_of_numpy_is_like_others() -> None:
    segment_id, start, end, spacing, mark = (cast("int", np.int64(n)) for n in (0, 100, 1000, 200, 250))
    index = BoundaryIndex(STREAM, segment_id, start, end, spacing, cast("Any", [mark, 450]))
    assert index == BoundaryIndex(STREAM, 0, 100, 1000, 200, (250, 450))
    assert BoundaryIndex.from_text(index.to_text()) == index


@pytest.mark.parametrize("marks", [5, None, "250", b"250", ["250"], [250.0], [True]])
def test_marks_that_are_no_numbers_are_refused(marks: object) -> None:
    with pytest.raises(InvalidArgumentError, match="mark"):
        BoundaryIndex(STREAM, 0, 100, 1000, 200, marks)  # type: ignore[arg-type]


def test_what_is_no_range_is_refused() -> None:
    index = BoundaryIndex(STREAM, 0, 100, 1000, 200)
    for call in (index.covers, lambda each: index.split(each, 200)):
        with pytest.raises(ArgumentTypeError, match="segment_range must be of the class SegmentRange"):
            call("s/t")  # type: ignore[arg-type]


@pytest.mark.parametrize("marks", [(100,), (250, 250), (300, 250), (1001,)])
def test_marks_that_do_not_ascend_are_refused(marks: tuple[int, ...]) -> None:
    with pytest.raises(InvalidArgumentError, match="must ascend"):
        BoundaryIndex(STREAM, 0, 100, 1000, 200, marks)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "null",
        '{"version":2}',
        '{"version":1,"stream":"s/t","segment_id":0,"start":0,"end":9,"spacing":5,"steps":[3,"4"]}',
        '{"version":1,"stream":"s/t","segment_id":0,"start":0,"end":9,"spacing":5,"steps":[3,-1]}',
        '{"version":1,"stream":"st","segment_id":0,"start":0,"end":9,"spacing":5,"steps":[]}',
        '{"version":1,"stream":"s/t","segment_id":0,"start":0.0,"end":9,"spacing":5,"steps":[]}',
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        BoundaryIndex.from_text(text)


@given(
    sizes,
    steps,
    st.one_of(st.none(), st.integers(0, 1500)),
    st.one_of(st.none(), st.integers(1, 70)),
    st.data(),
)
def test_the_leading_part_is_all_that_is_within_the_limits(
    lengths: list[int], steps: list[int], max_bytes: int | None, max_events: int | None, data: st.DataObject
) -> None:
    raw, bounds = stored(lengths)
    first = data.draw(st.integers(0, len(lengths)))
    start, end = bounds[first], bounds[-1]
    scan = LeadingScan("s/t/0", start, end, max_bytes, max_events)
    turn = 0
    while not scan.done:
        at = scan.next_byte
        assert at < scan.read_end  # or it would wait for bytes that are never read
        step = steps[turn % len(steps)]
        turn += 1
        scan.feed(memoryview(raw[at - BASE : min(at + step, scan.read_end) - BASE]), at)
    last = first
    while last < len(lengths) and (max_events is None or last - first < max_events):
        if max_bytes is not None and bounds[last + 1] - start > max_bytes:
            break
        last += 1
    assert scan.at == bounds[last]
    assert scan.events == (None if max_events is None else last - first)
    over = last < len(lengths) and last - first != max_events
    assert scan.next_bytes == (8 + lengths[last] if over else None)


def test_a_leading_part_is_not_taken_from_what_is_no_event() -> None:
    raw, bounds = stored([5, 5, 20])
    for max_events in (None, 9):
        for start, end, error in (
            (BASE + 1, bounds[-1], DecodeError),
            (BASE, bounds[-1] - 1, TruncatedInputError),
        ):
            scan = LeadingScan("s/t/0", start, end, None, max_events)
            with pytest.raises(error):
                scan.feed(memoryview(raw[start - BASE : end - BASE]), start)
