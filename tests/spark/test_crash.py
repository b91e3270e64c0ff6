"""``kill -9`` of the driver between two steps, then the same batch again from a new driver."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pravega_wire import PravegaConfig
from pravega_wire.sync import PravegaClient
from spark_adapter import ForeachBatchSink
from tests.spark.helpers import assert_exactly, frame_of, read_all, staging_left

ROOT = Path(__file__).resolve().parents[2]


def run_until_killed(*arguments: str, module: str = "crash_driver") -> None:
    """Run the driver that kills itself; see its ``main``."""
    driver = subprocess.Popen(
        [sys.executable, "-m", f"tests.spark.{module}", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        # its JVM and workers hold the pipe too: its end says that they are all gone
        output, _ = driver.communicate(timeout=600)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    assert driver.returncode == -signal.SIGKILL, output.decode(errors="replace")


# Each driver is a JVM of its own. All steps: benchmarks.spark_kills, and the simulation.
@pytest.mark.parametrize("step", ["staged", "prepared", "visible"])
def test_driver_killed_between_two_sinks_of_a_batch(
    spark: SparkSession,
    config: PravegaConfig,
    client: PravegaClient,
    stream: str,
    ledger: str,
    step: str,
) -> None:
    other = f"{stream}-other"
    client.create_stream(other, 2)
    # the first sink's batch is done; the second's dies with it
    run_until_killed(config.controller_uri, stream, ledger, step, other)
    assert len(read_all(client, stream)) == 200
    assert len(read_all(client, other)) == (200 if step == "visible" else 0)
    first, second = (
        ForeachBatchSink(
            config, each, mode="exactly_once", ledger_stream=ledger, query="q", routing_key_col="key"
        )
        for each in (stream, other)
    )
    outcomes = []
    for batch in range(2):
        for sink in (first, second):
            sink(frame_of(spark, batch), batch)
            assert sink.last_batch is not None
            outcomes.append(sink.last_batch.outcome)
    replayed = "written" if step == "staged" else "recovered"
    assert outcomes == ["skipped", replayed, "written", "written"]
    for each in (stream, other):
        assert_exactly(client, each, [0, 1])
        assert staging_left(client, each, ledger) == []
