"""``kill -9`` of the driver after each step, then the same batch again from a new driver."""

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
from spark_adapter import STEPS, ForeachBatchSink
from tests.spark.helpers import assert_exactly, frame_of, staging_left

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("step", STEPS)
def test_killed_driver_then_replay(
    spark: SparkSession,
    config: PravegaConfig,
    client: PravegaClient,
    stream: str,
    ledger: str,
    step: str,
) -> None:
    driver = subprocess.Popen(
        [
            sys.executable, "-m", "tests.spark.crash_driver",
            config.controller_uri, stream, ledger, step,
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )  # fmt: skip
    try:
        # its JVM and workers hold the pipe too: its end says that they are all gone
        output, _ = driver.communicate(timeout=180)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    assert driver.returncode == -signal.SIGKILL, output.decode(errors="replace")

    def restart() -> ForeachBatchSink:
        return ForeachBatchSink(
            config,
            stream,
            mode="exactly_once",
            ledger_stream=ledger,
            query="q",
            routing_key_col="key",
        )

    sink = restart()
    sink(frame_of(spark, 0), 0)
    assert sink.last_batch is not None
    prepared = STEPS.index(step) >= STEPS.index("prepared")
    expected = "skipped" if step == "done" else "recovered" if prepared else "written"
    assert sink.last_batch.outcome == expected
    sink(frame_of(spark, 1), 1)
    assert_exactly(client, stream, [0, 1])
    assert staging_left(client, stream, ledger) == []
