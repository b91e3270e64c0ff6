"""Planted defects must be found; a file of its own, as it takes minutes and may run beside the others."""

from __future__ import annotations

import pytest

from tests.simulation.teeth import TEETH, planted
from tests.simulation.workloads import WORKLOADS
from tests.simulation.world import Settings, simulate


@pytest.mark.parametrize(
    "name",
    sorted(n for n, each in TEETH.items() if each.seeds and WORKLOADS.keys() >= {*each.workloads}),
)
def test_a_planted_defect_is_found(name: str) -> None:
    tooth = TEETH[name]
    with planted(name):
        assert any(
            simulate(WORKLOADS[workload], Settings(workload, seed)).failure
            for seed in tooth.seeds
            for workload in tooth.workloads
        ), f"none of the seeds {tooth.seeds} finds it"
