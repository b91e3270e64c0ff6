"""The Spark driver of the demo: it reads files, and writes an exactly-once micro-batch for each file.

``__main__`` runs it as a separate process, which may be killed at any moment and started again with the same
arguments. It reports its progress to a pipe, as one JSON object in each line.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from examples.flights_demo.data import COLUMNS
from pravega_wire import PravegaConfig
from spark_adapter import ForeachBatchSink


class Progress:
    """Reports progress to the parent process; end of file means that this process has ended."""

    def __init__(self, descriptor: int) -> None:
        self._file = open(descriptor, "w", buffering=1)  # noqa: SIM115  # open until the end
        self.batch = -1

    def note(self, what: str, **more: Any) -> None:
        """Write one line: what happened, when, and in which batch."""
        line = {"time": time.time(), "pid": os.getpid(), "batch": self.batch, "what": what, **more}
        self._file.write(json.dumps(line) + "\n")


def spark_session(name: str, master: str = "local[2]") -> SparkSession:
    """Return a small Spark session of this machine alone.

    :param name: name of the application.
    :param master: the master, with the number of task slots.
    """
    return (
        SparkSession.builder.master(master)
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")  # a short life
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.python.daemon.module", "spark_adapter.daemon")  # workers start with imports done
        .getOrCreate()
    )


def main() -> None:
    """Run the streaming query until every file is stored."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("controller", "stream", "ledger", "files", "checkpoint"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--progress", type=int, required=True, help="file descriptor")
    args = parser.parse_args()
    progress = Progress(args.progress)
    progress.note("started")
    spark = spark_session("flights")
    spark.sparkContext.setLogLevel("ERROR")
    progress.note("spark is up")

    sink = ForeachBatchSink(
        PravegaConfig.from_defaults(controller_uri=args.controller),
        args.stream,
        mode="exactly_once",
        ledger_stream=args.ledger,
        query="flights",
        routing_key_col="carrier",
        crash_hook=progress.note,
    )

    def write(batch: DataFrame, batch_id: int) -> None:
        progress.batch = batch_id
        progress.note("batch")
        # Two tasks write a batch; the sink keeps the order of partitions, and so of the source.
        ordered = batch.repartitionByRange(2, "seq").sortWithinPartitions("seq")
        sink(ordered.select("event", "carrier"), batch_id)
        report = sink.last_batch
        assert report is not None
        progress.note("stored", outcome=report.outcome, rows=report.rows, seconds=round(report.seconds, 3))

    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(args.files)
    fields = F.split("value", ",")
    flights = lines.select(
        F.col("value").alias("event"),
        fields[COLUMNS.index("carrier")].alias("carrier"),
        fields[COLUMNS.index("seq")].cast("int").alias("seq"),
    )
    query = (
        flights.writeStream.foreachBatch(write)
        .option("checkpointLocation", args.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    progress.note("finished")
    spark.stop()


if __name__ == "__main__":
    main()
