"""Planted defects must be found; a file of its own, as it takes minutes and may run beside the others."""

from __future__ import annotations

import inspect
import sys
import warnings

import pytest

from tests.simulation import teeth
from tests.simulation.teeth import TEETH, Tooth, planted
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


OTHERS = range(10_000, 10_400)
"""What is tried if no seed of a defect finds it any more: one request more changes what a seed does."""


def is_found(tooth: Tooth, seed: int) -> bool:
    """Whether a seed fails in one of the workloads while the defect is planted."""
    return any(simulate(WORKLOADS[each], Settings(each, seed)).failure for each in tooth.workloads)


@pytest.mark.parametrize(
    "name",
    sorted(n for n, each in TEETH.items() if each.seeds and WORKLOADS.keys() >= {*each.workloads}),
)
def test_a_planted_defect_is_found(name: str) -> None:
    tooth = TEETH[name]
    before = functions()
    with planted(name):
        found = next((seed for seed in (*tooth.seeds, *OTHERS) if is_found(tooth, seed)), None)
    after = functions()
    assert found is not None, f"none of the seeds {tooth.seeds} and {OTHERS} finds it"
    if found not in tooth.seeds:
        warnings.warn(f"only seed {found} finds {name!r}, which is not one of its seeds", stacklevel=1)
    # Other tests run in this process.
    assert [name for name, value in after.items() if _is_planted(value, before.get(name))] == [], (
        "the defect was left behind"
    )


def _is_planted(value: object, before: object) -> bool:
    """Whether a function is another one than before, or one of a defect that a new module has imported."""
    return value is not (before or value) or getattr(value, "__module__", "") == teeth.__name__
