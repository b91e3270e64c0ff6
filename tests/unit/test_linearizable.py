"""The check for linearizability finds what is wrong, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Hashable
from itertools import permutations
from random import Random

import pytest

from tests.simulation.linearizable import Call, is_linearizable


def write(value: int, began: int, ended: float = math.inf) -> Call:
    return Call(lambda state: value, began, f"write {value}", ended)


def read(value: int, began: int, ended: float) -> Call:
    return Call(lambda state: state if state == value else None, began, f"read {value}", ended, looks=True)


def swap(old: int, new: int, began: int, ended: float = math.inf) -> Call:
    return Call(lambda state: new if state == old else None, began, f"{old} -> {new}", ended)


@pytest.mark.parametrize(
    ("calls", "right"),
    [
        ([write(1, 0, 1), read(1, 2, 3)], True),
        ([write(1, 0, 1), read(0, 2, 3)], False),
        ([write(1, 0, 3), read(0, 1, 2)], True),
        # Once a read has seen a value, later ones do, too.
        ([write(1, 0, 9), read(1, 1, 2), read(0, 3, 4)], False),
        # What is not known to have happened may have happened late, or never, but not twice.
        ([write(1, 0), read(0, 1, 2), read(1, 3, 4)], True),
        ([write(1, 0), read(0, 1, 2), read(0, 3, 4)], True),
        ([write(1, 0), write(2, 1, 2), read(1, 3, 4), write(2, 5, 6), read(1, 7, 8)], False),
        ([write(1, 5), read(1, 1, 2)], False),
        # Only one of two swaps.
        ([swap(0, 1, 0, 5), swap(0, 2, 1, 6)], False),
        ([swap(0, 1, 0), swap(0, 2, 1, 6)], True),
        ([swap(0, 1, 0), swap(0, 2, 1, 2), read(1, 3, 4)], False),
        ([swap(0, 1, 0, 5), swap(1, 2, 1, 6)], True),
    ],
)
def test_registers(calls: list[Call], right: bool) -> None:
    assert is_linearizable(calls, 0) is right


def by_trying_all(calls: list[Call]) -> bool:
    unsure = [each for each in calls if each.ended == math.inf]
    for chosen in range(1 << len(unsure)):
        kept = [each for each in calls if each.ended < math.inf]
        kept += [each for number, each in enumerate(unsure) if chosen >> number & 1]
        for order in permutations(kept):
            if any(late.ended < early.began for n, early in enumerate(order) for late in order[n + 1 :]):
                continue
            state: Hashable | None = 0
            for call in order:
                state = None if state is None else call.step(state)
            if state is not None:
                return True
    return False


def test_the_search_agrees_with_trying_all_orders() -> None:
    rng = Random(1)
    found = {True: 0, False: 0}
    for _ in range(400):
        calls = []
        for _ in range(5):
            began = rng.randrange(0, 20, 2)
            ended = math.inf if rng.random() < 0.2 else began + rng.randrange(1, 10, 2)
            old, new = rng.sample(range(3), 2)
            calls.append(
                rng.choice((
                    write(new, began, ended), read(new, began, min(ended, 99.0)), swap(old, new, began, ended)
                ))
            )  # fmt: skip
        right = by_trying_all(calls)
        assert is_linearizable(calls, 0) is right, calls
        found[right] += 1
    assert min(found.values()) > 50, found
