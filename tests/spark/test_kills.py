"""Streaming queries that are killed, stalled and run twice: a selection of ``benchmarks.spark_kills``."""

from __future__ import annotations

from pathlib import Path

from pravega_wire.sync import PravegaClient
from tests.spark.kill_cases import lease_runs_out, two_drivers
from tests.spark.killing import Job


def test_jvm_killed_then_a_lease_that_runs_out(client: PravegaClient, tmp_path: Path) -> None:
    with Job(client, tmp_path / "job", batches=3, by_rows=True) as job:
        job.run_killed("merged", "jvm")
        lease_runs_out(job, "prepared")
        verdict = job.verdict()
    assert verdict.faults() == {}, verdict
    assert "TransactionAbortedError" in verdict.errors


def test_second_driver_takes_over(client: PravegaClient, tmp_path: Path) -> None:
    with Job(client, tmp_path / "job", batches=3, by_rows=True) as job:
        two_drivers(job, "staged")
        verdict = job.verdict()
    assert verdict.faults() == {}, verdict
    assert verdict.errors == ["FencedError"]
