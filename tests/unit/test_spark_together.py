"""Blocking calls made at the same time: results, errors, and that none is left behind."""

from __future__ import annotations

import threading

import pytest

from spark_adapter.exactly_once.at_once import at_once


def test_calls_are_made_at_the_same_time_and_give_results_in_order() -> None:
    meeting = threading.Barrier(3)  # nobody leaves before all are there

    def call(number: int) -> int:
        meeting.wait(timeout=60)
        return number

    assert at_once(lambda: call(1), lambda: call(2), lambda: call(3)) == [1, 2, 3]
    assert at_once(lambda: 5) == [5]


@pytest.mark.parametrize("failing", [{0}, {1}, {2}, {0, 2}, {1, 2}, {0, 1, 2}])
def test_the_first_error_is_raised_when_all_have_ended(failing: set[int]) -> None:
    ended = []
    failed = threading.Event()

    def call(number: int) -> None:
        if number in failing:
            failed.set()
            ended.append(number)
            raise ValueError(number)
        failed.wait(timeout=60)
        ended.append(number)

    with pytest.raises(ValueError, match=str(min(failing))):
        at_once(*(lambda number=number: call(number) for number in range(3)))
    assert sorted(ended) == [0, 1, 2]
