"""A Spark driver with a streaming query that may be killed at any moment.

Run by ``killing`` as a process of its own, again and again with the same checkpoint. Its only argument is a
file with a :class:`~tests.spark.kill_hooks.Plan` as JSON. What happens is told through a named pipe, one JSON
object in a line.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pravega_wire import PravegaConfig
from spark_adapter import ForeachBatchSink
from tests.spark.kill_hooks import PLAN, SESSION, Notes, Plan, Scene, once


@dataclass(frozen=True)
class Stall:
    """Passes rows on, and stalls or dies in the middle of partition 0, the first time of all."""

    how: str
    marker: str
    events: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        for number, batch in enumerate(batches):
            if number == 4 and task.partitionId() == 0:
                self._in_the_middle(task.attemptNumber(), task.taskAttemptId())
            yield batch

    def _in_the_middle(self, number: int, attempt: int) -> None:
        if number > 0 and once(f"{self.marker}.second"):
            Notes(self.events)("second", attempt=attempt)
        if number == 0 and once(f"{self.marker}.begun"):
            Notes(self.events)("stalled", attempt=attempt)
            if self.how == "exit":
                os._exit(9)
            while not os.path.exists(self.marker):
                time.sleep(0.05)  # only the harness knows when


def session_for(plan: Plan) -> SparkSession:
    """A session that starts quickly and listens on the loopback interface only."""
    options = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # a short life
    if plan.archive:
        options += f" -Xlog:cds=off -Xlog:cds+dynamic=off -XX:SharedArchiveFile={plan.archive}"
    builder = (
        SparkSession.builder.master(plan.master)
        .appName("kills")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.extraJavaOptions", options)
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.showConsoleProgress", "false")
        # compiling costs more than it gains for a few hundred rows
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.adaptive.enabled", "false")
    )
    for name in (PLAN, SESSION):
        builder = builder.config(f"spark.executorEnv.{name}", os.environ[name])
    for name, value in plan.settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def in_order(plan: Plan, batch: DataFrame) -> DataFrame:
    """A batch in partitions, in the order of its numbers from one to the next."""
    frame = batch.coalesce(1) if plan.partitions == 1 else batch.repartitionByRange(plan.partitions, "number")
    if plan.form == "foreachBatch":
        # a query refuses to sort, but the shuffle of one file keeps its order
        frame = frame.sortWithinPartitions("number")
    if plan.stall:
        frame = frame.mapInArrow(Stall(plan.stall, plan.marker, plan.events), frame.schema)
    return frame


def input_of(plan: Plan, spark: SparkSession) -> DataFrame:
    """The rows of the files, one file in a batch."""
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(plan.files)
    fields = F.split("value", ",")
    return lines.select(
        F.col("value").alias("event"),
        fields[1].cast("int").alias("number"),
        fields[2].alias("key"),
    )


def by_foreach_batch(plan: Plan, scene: Scene, spark: SparkSession) -> Any:
    """Files to the stream by ``ForeachBatchSink``."""
    notes = scene.notes
    scene.note_transactions()
    sink = ForeachBatchSink(
        PravegaConfig.from_defaults(controller_uri=plan.controller, scope=plan.scope, env={}),
        plan.stream,
        mode="exactly_once",
        ledger_stream=plan.ledger,
        query=plan.query,
        routing_key_col=None if plan.by_rows else "key",
        router=(lambda row: row.key) if plan.by_rows else None,  # no pandas to import: a shorter life
        lease=plan.lease_ms / 1000,
        crash_hook=scene.reached,
    )

    def write(batch: DataFrame, number: int) -> None:
        notes.batch = number
        notes("batch")
        sink(in_order(plan, batch), number)
        report = sink.last_batch
        assert report is not None
        notes("stored", outcome=report.outcome, rows=report.rows)

    return input_of(plan, spark).writeStream.foreachBatch(write)


def by_format(plan: Plan, spark: SparkSession) -> Any:
    """Files to the stream by ``writeStream.format("pravega")``."""
    from tests.spark.kill_source import WatchedDataSource

    spark.dataSource.register(WatchedDataSource)
    # operators before a sink are planned for each batch: a range partitioning works as in foreachBatch
    return (
        in_order(plan, input_of(plan, spark))
        .select("event", "key")
        .writeStream.format("pravega")
        .option("controller", plan.controller)
        .option("scope", plan.scope)
        .option("stream", plan.stream)
        .option("ledger_stream", plan.ledger)
        .option("semantic", "exactly_once")
        .option("event_col", "event")
        .option("routing_key_col", "key")
        .option("transaction_timeout_ms", str(plan.lease_ms))
        .option("query", plan.query)
    )


def by_source(plan: Plan, scene: Scene, spark: SparkSession) -> Any:
    """The stream to files, one for each attempt of each batch."""
    from tests.spark.kill_source import WatchedDataSource

    spark.dataSource.register(WatchedDataSource)
    notes = scene.notes
    reader = (
        spark.readStream.format("pravega")
        .option("controller", plan.controller)
        .option("scope", plan.scope)
        .option("streams", ",".join((plan.stream, *plan.more_streams)))
        .option("max_bytes_per_trigger", str(plan.max_bytes))
    )
    if plan.max_events:
        reader = reader.option("max_events_per_trigger", str(plan.max_events))
    frame = reader.load()

    def keep(batch: DataFrame, number: int) -> None:
        notes.batch = number
        notes("batch")
        rows = [[row.segment_id, row.offset, bytes(row.event).decode()] for row in batch.collect()]
        name = f"{number:06}-{time.time_ns()}-{uuid4().hex[:6]}"
        place = Path(plan.target)
        (place / f"{name}.part").write_text(json.dumps(rows))
        (place / f"{name}.part").rename(place / f"{name}.json")
        notes("stored", outcome="written", rows=len(rows))
        scene.reached("target")

    return frame.writeStream.foreachBatch(keep)


def run(plan: Plan) -> None:
    """Run the query until everything is stored, or until the end."""
    scene = Scene(plan)
    scene.notes("started")
    spark = session_for(plan)
    scene.notes("up")
    match plan.form:
        case "foreachBatch":
            writer = by_foreach_batch(plan, scene, spark)
        case "writeStream":
            writer = by_format(plan, spark)
        case "source":
            writer = by_source(plan, scene, spark)
        case other:
            raise SystemExit(f"no form {other!r}")
    writer = writer.option("checkpointLocation", plan.checkpoint)
    if plan.trigger:
        query = writer.trigger(processingTime=plan.trigger).start()
    else:
        query = writer.trigger(availableNow=True).start()
    scene.notes("running")
    query.awaitTermination()
    scene.notes("finished")
    spark.stop()


def main() -> None:
    # for the Python processes of Spark's, also those of a cluster's executors
    os.environ |= {PLAN: sys.argv[1], SESSION: str(os.getsid(0))}
    run(Plan.read(sys.argv[1]))


if __name__ == "__main__":
    main()
