"""The short form of ``benchmarks/soak.py``: several writing processes, and everything around them fails."""

from __future__ import annotations

from pravega_wire.testing import PravegaCluster
from tests.faults.drive import run_soak


def test_writers_survive_scales_cuts_and_killed_processes(
    pravega_cluster: PravegaCluster,
) -> None:
    total = run_soak(pravega_cluster, seconds=45, processes=3, say=lambda text: None)
    assert total > 1000
