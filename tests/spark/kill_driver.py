"""A Spark driver that runs a streaming query from files to a stream, and may be killed at any moment.

Run by ``killing`` as a process of its own, again and again with the same checkpoint. Its only argument is a
:class:`Plan` as JSON. What happens is told through a named pipe, one JSON object in a line, by whatever
process of the driver it happens in.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pravega_wire import PravegaConfig
from pravega_wire.sync import PravegaClient
from spark_adapter import ForeachBatchSink

Victim = Literal["python", "jvm", "group"]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a driver does, and what becomes of it.

    :ivar archive: file with Java's shared archive of Spark's classes, which halves the CPU time of a driver's start.
    :ivar step: of :data:`spark_adapter.STEPS`: where something is done, once. :ivar at_batch: only in this batch.
    :ivar act: what: kill a ``python``, ``jvm`` or ``group``; ``stop`` the Python process with SIGSTOP;
        ``pause``: wait until somebody opens the pipe ``go`` for writing, with everything else going on.
    :ivar stall: what a partition does in its middle, in the first attempt of the first batch: "" for nothing, ``wait``
        until the file ``marker`` is there, ``exit`` for the end of its Python worker.
    """

    controller: str
    scope: str
    stream: str
    ledger: str
    files: str
    checkpoint: str
    events: str
    go: str
    marker: str
    form: str = "foreachBatch"
    query: str = "kills"
    master: str = "local[2,4]"
    settings: dict[str, str] = field(default_factory=dict)
    partitions: int = 2
    lease_ms: int = 30_000
    by_rows: bool = False
    archive: str = ""
    step: str | None = None
    at_batch: int | None = None
    act: str = ""
    stall: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        return cls(**json.loads(text))


class Notes:
    """Lines into the named pipe of a harness that listens."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY)
        self.batch = -1

    def __call__(self, what: str, **more: Any) -> None:
        line = {"what": what, "batch": self.batch, "time": time.time(), "pid": os.getpid(), **more}
        # one write below PIPE_BUF: lines of several processes do not mix
        os.write(self._file, (json.dumps(line) + "\n").encode())


def act_at(plan: Plan, notes: Notes, jvm: int, step: str) -> None:
    """Do what the plan says, if this is the step."""
    if step != plan.step or plan.at_batch not in (None, notes.batch):
        return
    match plan.act:
        case "pause":
            notes("paused", step=step)
            with open(plan.go, encoding="ascii"):  # opens when the harness opens it
                pass
        case "stop":
            notes("stopping", step=step)
            os.kill(os.getpid(), signal.SIGSTOP)
        case "jvm":
            notes("killed", step=step)
            os.kill(jvm, signal.SIGKILL)
        case "group":
            notes("killed", step=step)
            os.kill(jvm, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        case "python":
            notes("killed", step=step)
            os.kill(os.getpid(), signal.SIGKILL)


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
            if number == 1 and task.partitionId() == 0 and task.attemptNumber() == 0:
                self._once(task.taskAttemptId())
            yield batch

    def _once(self, attempt: int) -> None:
        try:
            os.close(os.open(f"{self.marker}.begun", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        Notes(self.events)("stalled", attempt=attempt)
        if self.how == "exit":
            os._exit(9)
        while not os.path.exists(self.marker):  # noqa: PTH110  # only the harness knows when
            time.sleep(0.05)


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
    )
    for name, value in plan.settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def note_transactions(notes: Notes) -> None:
    """Tell which transactions this process begins: some never get into a ledger."""
    begin = PravegaClient.begin_transaction

    def noted(self: PravegaClient, *args: Any, **options: Any) -> Any:
        txn = begin(self, *args, **options)
        notes("begun", txn=txn.txn_id.hex)
        return txn

    PravegaClient.begin_transaction = noted  # type: ignore[method-assign]


def run(plan: Plan) -> None:
    """Run the query until every file is stored, or until the end."""
    notes = Notes(plan.events)
    notes("started")
    note_transactions(notes)
    spark = session_for(plan)
    jvm = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
    notes("up", jvm=jvm)

    def reached(step: str) -> None:
        notes("step", step=step)
        act_at(plan, notes, jvm, step)

    def in_order(batch: DataFrame) -> DataFrame:
        # the sink keeps the order of partitions, and in each of them the order of rows
        frame = batch.coalesce(1).sortWithinPartitions("number")
        if plan.partitions > 1:
            frame = batch.repartitionByRange(plan.partitions, "number").sortWithinPartitions("number")
        if plan.stall:
            stall = Stall(plan.stall, plan.marker, plan.events)
            frame = frame.mapInArrow(stall, frame.schema)
        return frame

    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(plan.files)
    fields = F.split("value", ",")
    rows = lines.select(
        F.col("value").alias("event"),
        fields[1].cast("int").alias("number"),
        fields[2].alias("key"),
    )
    sink = ForeachBatchSink(
        PravegaConfig.from_defaults(controller_uri=plan.controller, scope=plan.scope, env={}),
        plan.stream,
        mode="exactly_once",
        ledger_stream=plan.ledger,
        query=plan.query,
        routing_key_col=None if plan.by_rows else "key",
        router=(lambda row: row.key) if plan.by_rows else None,  # no pandas to import: a shorter life
        lease_ms=plan.lease_ms,
        crash_hook=reached,
    )

    def write(batch: DataFrame, number: int) -> None:
        notes.batch = number
        notes("batch")
        sink(in_order(batch), number)
        report = sink.last_batch
        assert report is not None
        notes("stored", outcome=report.outcome, rows=report.rows)

    query = (
        rows.writeStream.foreachBatch(write)
        .option("checkpointLocation", plan.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    notes("finished")
    spark.stop()


def main() -> None:
    run(Plan.from_json(Path(sys.argv[1]).read_text()))


if __name__ == "__main__":
    main()
