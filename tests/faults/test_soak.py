"""The short forms of ``benchmarks/soak.py``: several processes, and everything around them fails."""

from __future__ import annotations

from pravega_wire.testing import PravegaCluster
from tests.faults.drive import run_soak, run_transaction_soak


def test_writers_survive_scales_cuts_and_killed_processes(
    pravega_cluster: PravegaCluster,
) -> None:
    total = run_soak(pravega_cluster, seconds=30, processes=3, say=lambda text: None, swallow=12.0)
    assert total > 0


def test_transactions_survive_them_too_and_their_own_processes_killed(
    pravega_cluster: PravegaCluster,
) -> None:
    outcome = run_transaction_soak(pravega_cluster, seconds=30, processes=3, say=lambda text: None)
    # How many there are depends on the machine; each kind must have happened.
    assert outcome["committed"] > 0
    assert outcome["aborted"] > 0
    assert outcome["killed"] > 0
