"""``write.format("pravega")`` and ``writeStream.format("pravega")`` on a real server."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from pravega_wire import PravegaConfig
from pravega_wire.sync import PravegaClient
from spark_adapter import register
from spark_adapter.options import config_options
from tests.spark.helpers import assert_exactly, rows_of, staging_left


@pytest.fixture
def options(spark: SparkSession, config: PravegaConfig, stream: str, ledger: str) -> dict[str, str]:
    """Options of a write to the test's stream, with its ledger."""
    register(spark)
    return {
        **config_options(config),
        "stream": stream,
        "ledger_stream": ledger,
        "routing_key_col": "key",
    }


class Source:
    """Files that a streaming query reads: each batch is one file."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.files = folder / "in"
        self.files.mkdir(parents=True)
        self.checkpoint = folder / "checkpoint"

    def add(self, batch: int, rows: list[tuple[str, str]] | None = None) -> None:
        text = "".join(
            json.dumps({"event": event, "key": key}) + "\n"
            for event, key in (rows_of(batch) if rows is None else rows)
        )
        path = self.files / f"{batch:04}.json"
        path.write_text(text)
        os.utime(path, (batch, batch))  # Spark takes files in the order of their times

    def frame(self) -> DataFrame:
        return (
            self.spark.readStream.schema("event string, key string")
            .option("maxFilesPerTrigger", 1)
            .json(str(self.files))
        )

    def run(self, options: dict[str, str], frame: DataFrame | None = None) -> Any:
        query = (
            (self.frame() if frame is None else frame)
            .writeStream.format("pravega")
            .options(**options)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return query


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> Source:
    """An empty folder to read from."""
    return Source(spark, tmp_path)


def test_stream_batches_are_written_once_and_replays_write_nothing(
    client: PravegaClient, source: Source, options: dict[str, str], stream: str, ledger: str
) -> None:
    for batch in range(2):
        source.add(batch)
    source.run(options)
    assert_exactly(client, stream, [0, 1])
    # as if the driver had died between the sink's commit and Spark's
    for each in (source.checkpoint / "commits").glob("*1*"):
        each.unlink()
    source.add(2)
    source.run(options)
    assert_exactly(client, stream, [0, 1, 2])
    assert staging_left(client, stream, ledger) == []
