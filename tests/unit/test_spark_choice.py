"""Where a read begins by the time that writers have noted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pravega_wire import ScopedStream, StreamCut, Watermark
from pravega_wire.sync import PravegaClient
from pravega_wire.values.cuts import LayoutSegment, StreamLayout
from pravega_wire.values.positions import WatermarkSegment
from spark_adapter.options.streams import StreamChoice, cut_before

STREAM = ScopedStream("a", "b")
LENGTH = 1_000_000


def begin(time: int, marks: list[Watermark]) -> int:
    """The offset at which a read of a stream of one segment begins."""
    client = SimpleNamespace(
        head=lambda _: StreamCut(STREAM, {0: 0}),
        watermarks=lambda _: marks,
        stream_layout=lambda _: StreamLayout(STREAM, (LayoutSegment(0, 0.0, 1.0, LENGTH, 0, False),)),
    )
    return cut_before(cast("PravegaClient", client), STREAM, time, "starting_timestamp").positions[0]


def mark(lower: int, upper: int, offset: int) -> Watermark:
    return Watermark.of(lower, upper, [WatermarkSegment(0, 0.0, 1.0, offset)])


@pytest.mark.parametrize(
    ("time", "offset"), [(5, 0), (10, 0), (11, 0), (20, 0), (21, 100), (30, 100), (31, 200), (99, 200)]
)
def test_a_mark_counts_when_a_later_one_is_its_proof(time: int, offset: int) -> None:
    assert begin(time, [mark(10, 10, 100), mark(20, 20, 200), mark(30, 30, 300)]) == offset


def test_a_mark_whose_upper_has_fallen_is_no_proof() -> None:
    """The writer that had noted 100 has gone: its events lie before the later marks as well."""
    marks = [mark(5, 8, 100), mark(10, 100, 1000), mark(20, 20, 2000), mark(30, 30, 3000)]
    assert begin(50, marks) == 0
    assert begin(101, marks) == 2000


def test_marks_of_writers_that_are_far_apart_prove_nothing() -> None:
    assert begin(500, [mark(n, n + 100, n * 10) for n in range(10, 90, 10)]) == 0
    assert begin(500, [mark(n, n + 100, n) for n in range(10, 190, 10)]) == 70


@given(st.data())
def test_nothing_from_the_time_on_lies_before_the_place(data: Any) -> None:
    """Writers store events of rising times in a segment, and note times; marks are made of these."""
    writers = data.draw(st.integers(1, 3))
    clocks, noted = [0] * writers, [(0, 0)] * writers  # each has noted a time before the first mark
    events: list[int] = []
    marks: list[Watermark] = []
    steps = st.tuples(
        st.sampled_from(["write", "write", "note", "mark"]), st.integers(0, writers - 1), st.integers(0, 9)
    )
    for what, who, more in data.draw(st.lists(steps, max_size=60)):
        if what == "write":
            clocks[who] += more
            events.append(clocks[who])
        elif what == "note":
            clocks[who] += more
            noted[who] = (clocks[who], len(events))
        else:
            times, places = [time for time, _ in noted], [place for _, place in noted]
            found = mark(min(times), max(times), max(places))
            if not marks or found.lower > marks[-1].lower:
                marks.append(found)
    if marks:
        time = data.draw(st.integers(0, max([*events, 1]) + 2))
        place = begin(time, marks)
        assert all(each < time for each in events[:place])


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (".*", ["flights", "flights-spark-ledger-2", "spark-ledger"]),
        ("flights.*", ["flights", "flights-spark-ledger-2"]),
        (".*-spark-ledger", []),
        (r"(?!.*-2$).*", ["flights", "spark-ledger"]),
        ("flights-spark-ledger", ["flights-spark-ledger"]),
        (r"flights\-spark\-ledger", ["flights-spark-ledger"]),
    ],
)
def test_a_pattern_leaves_out_ledgers(pattern: str, found: list[str]) -> None:
    names = ["flights", "flights-spark-ledger", "flights-spark-ledger-2", "spark-ledger"]
    client = SimpleNamespace(list_streams=lambda scope: [ScopedStream(scope, name) for name in names])
    choice = StreamChoice(scope="a", pattern=pattern)
    assert [each.name for each in choice.find(cast("PravegaClient", client))] == found
    # A checkpoint that has one from before is still good.
    assert ScopedStream("a", "flights-spark-ledger") in choice
