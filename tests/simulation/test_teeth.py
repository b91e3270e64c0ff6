"""Planted defects must be found; a file of its own, as it takes minutes and may run beside the others."""

from __future__ import annotations

import inspect
import sys

import pytest

from tests.simulation import teeth
from tests.simulation.teeth import TEETH, planted
from tests.simulation.workloads import WORKLOADS
from tests.simulation.world import Settings, simulate


def functions() -> dict[str, object]:
    """The functions and methods of the product."""
    modules = [
        each for name, each in sys.modules.items() if name.startswith(("pravega_wire", "spark_adapter"))
    ]
    classes = [
        value
        for module in modules
        for value in vars(module).values()
        if inspect.isclass(value) and value.__module__ == module.__name__
    ]
    return {
        f"{place}.{name}": value
        for place in (*modules, *classes)
        for name, value in vars(place).items()
        if inspect.isfunction(value)
    }


@pytest.mark.parametrize(
    "name",
    sorted(n for n, each in TEETH.items() if each.seeds and WORKLOADS.keys() >= {*each.workloads}),
)
def test_a_planted_defect_is_found(name: str) -> None:
    tooth = TEETH[name]
    before = functions()
    with planted(name):
        found = any(
            simulate(WORKLOADS[workload], Settings(workload, seed)).failure
            for seed in tooth.seeds
            for workload in tooth.workloads
        )
    after = functions()
    assert found, f"none of the seeds {tooth.seeds} finds it"
    # Other tests run in this process.
    assert [name for name, value in after.items() if _is_planted(value, before.get(name))] == [], (
        "the defect was left behind"
    )


def _is_planted(value: object, before: object) -> bool:
    """Whether a function is another one than before, or one of a defect that a new module has imported."""
    return value is not (before or value) or getattr(value, "__module__", "") == teeth.__name__
