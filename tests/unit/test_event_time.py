"""Watermarks out of time windows, and events in the order of their times."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pravega_wire import EventTimeOrder, ScopedStream, TimeWindow, WatermarkAssigner
from pravega_wire.errors import ArgumentTypeError, InvalidArgumentError

A, B = ScopedStream("s", "a"), ScopedStream("s", "b")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_slowest_stream_decides() -> None:
    assigner = WatermarkAssigner(allowed_lateness=10)
    assert assigner.watermark is None
    assert assigner.update({A: TimeWindow(None, None), B: TimeWindow(500, None)}) is None
    assert assigner.update({A: TimeWindow(300, 400), B: TimeWindow(500, None)}) == 290
    # It does not move back, nor is the same one told twice.
    assert assigner.update({A: TimeWindow(200, 400), B: TimeWindow(500, None)}) is None
    assert assigner.update({A: TimeWindow(300, 400), B: TimeWindow(500, None)}) is None
    assert assigner.watermark == 290
    assert assigner.update({A: TimeWindow(700, 800), B: TimeWindow(500, None)}) == 490


@pytest.mark.parametrize("lower", [None, 100])
def test_an_idle_stream_holds_the_others_back_for_a_while(lower: int | None) -> None:
    clock = Clock()
    assigner = WatermarkAssigner(idle_after=5, clock=clock)

    def at(now: float, of_a: int, of_b: TimeWindow) -> int | None:
        clock.now = now
        return assigner.update({A: TimeWindow(of_a, of_a + 1), B: of_b})

    standing = TimeWindow(lower, None)
    assert at(0, 200, standing) == lower
    assert at(4.9, 300, standing) is None
    assert at(5, 400, standing) == 400
    # It is back: late perhaps, and it counts again.
    assert at(6, 500, TimeWindow(150, None)) is None
    assert at(7, 600, TimeWindow(550, None)) == 550
    assert assigner.watermark == 550


def test_a_stream_with_more_to_read_is_not_idle() -> None:
    clock = Clock()
    assigner = WatermarkAssigner(idle_after=5, clock=clock)
    for clock.now in range(0, 60, 4):
        moved = assigner.update({A: TimeWindow(1000 + int(clock.now), None), B: TimeWindow(100, 200)})
        assert moved == (100 if clock.now == 0 else None)
    # Without anything to read it is, but not before it has stood still for long enough.
    clock.now = 60
    assert assigner.update({A: TimeWindow(5000, None), B: TimeWindow(100, None)}) is None
    clock.now = 64
    assert assigner.update({A: TimeWindow(5000, 6000), B: TimeWindow(100, None)}) == 5000


def test_a_stream_that_is_being_read_is_not_idle() -> None:
    """Marks come seldom: that there is none ahead does not say that all was read."""
    clock = Clock()
    assigner = WatermarkAssigner(idle_after=5, clock=clock)
    windows = {A: TimeWindow(1000, None), B: TimeWindow(100, None)}
    assert assigner.update(windows, {B: 0}) == 100
    for clock.now in range(4, 60, 4):
        assert assigner.update(windows | {A: TimeWindow(1000 + int(clock.now), None)}, {B: clock.now}) is None
    clock.now = 61
    assert assigner.update(windows | {A: TimeWindow(3000, None)}, {B: 56}) == 3000


def test_when_all_streams_stand_still_time_does_too() -> None:
    clock = Clock()
    assigner = WatermarkAssigner(idle_after=0, clock=clock)
    windows = {A: TimeWindow(100, None), B: TimeWindow(200, None)}
    assert assigner.update(windows) == 100
    clock.now = 100
    assert assigner.update(windows) is None
    assert assigner.watermark == 100


def test_time_windows_are_not_asked_for_all_the_time() -> None:
    clock = Clock()
    assigner = WatermarkAssigner(every=2, clock=clock)
    assert assigner.due
    assigner.update({A: TimeWindow(1, None)})
    assert not assigner.due
    clock.now = 2
    assert assigner.due


@pytest.mark.parametrize("setting", ["allowed_lateness", "idle_after", "every"])
def test_negative_settings(setting: str) -> None:
    with pytest.raises(InvalidArgumentError, match=setting):
        WatermarkAssigner(**{setting: -1})  # type: ignore[arg-type]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("event"), st.integers(0, 50)),
            st.tuples(st.just("watermark"), st.integers(0, 50)),
        )
    )
)
def test_events_come_in_the_order_of_their_times(steps: list[tuple[str, int]]) -> None:
    """Whatever is not late is given once, in order; what is of one time in the order of coming."""
    order: EventTimeOrder[tuple[int, int]] = EventTimeOrder(lambda event: event[0])
    accepted: list[tuple[int, int]] = []
    released: list[tuple[int, int]] = []
    watermark = -1
    for number, (kind, value) in enumerate(steps):
        if kind == "event":
            assert order.add((value, number)) == (value >= watermark)
            if value >= watermark:
                accepted.append((value, number))
        else:
            watermark = max(watermark, value)
            released += order.release(value)
            assert all(each[0] < watermark for each in released)
            held = order.held()
            assert all(each[0] >= watermark for each in held)
            assert len(order) == len(held)
            assert sorted(released + held) == sorted(accepted)
    released += order.drain()
    assert len(order) == 0
    assert released == sorted(accepted)


def test_events_that_cannot_be_compared() -> None:
    order: EventTimeOrder[dict[str, int]] = EventTimeOrder(lambda event: event["at"])
    first, second, third = {"at": 2, "n": 1}, {"at": 1, "n": 2}, {"at": 2, "n": 3}
    for event in (first, second, third):
        assert order.add(event)
    assert order.held() == [second, first, third]
    assert order.release(3) == [second, first, third]


@pytest.mark.parametrize("time", [float("nan"), 1.5, None, "5", True])
def test_times_that_are_no_numbers_are_refused(time: object) -> None:
    """NaN at the front would hold back every event behind it, and None cannot be compared with a number."""
    order: EventTimeOrder[Any] = EventTimeOrder(lambda event: event)
    assert order.add(np.int64(2))
    with pytest.raises(InvalidArgumentError, match="the time of an event must be a whole number"):
        order.add(time)
    with pytest.raises(InvalidArgumentError, match="watermark must be a whole number"):
        order.release(time)  # type: ignore[arg-type]
    assert order.held() == [2]
    assert order.release(3) == [2]


def test_arguments_of_another_kind_are_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="time_of must be a function"):
        EventTimeOrder(5)  # type: ignore[arg-type]
    assigner = WatermarkAssigner()
    with pytest.raises(ArgumentTypeError, match="windows must be of the class Mapping"):
        assigner.update([TimeWindow(1, 2)])  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="places must be of the class Mapping"):
        assigner.update({A: TimeWindow(1, 2)}, "A")  # type: ignore[arg-type]
