"""A Spark driver with a streaming query of the official Scala connector, which may be killed at any moment.

Runs in the environment of PySpark 3.5 (:mod:`benchmarks.connector_env`), which has nothing else of this
project but the modules that it imports here. Its argument and what it reports are those of ``kill_driver``;
batches are known by their entries in the checkpoint.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.spark.kill_hooks import Notes, Plan

POLL = 0.02


def tell_of_batches(plan: Plan, notes: Notes) -> None:
    """Report each batch when Spark has planned it, and when it is in the commit log."""
    checkpoint, ending = Path(plan.checkpoint), threading.Event()
    seen = {name: newest(checkpoint / name) for name in ("offsets", "commits")}

    def watch() -> None:
        while not ending.wait(POLL):
            for name, what in (("offsets", "batch"), ("commits", "stored")):
                found = newest(checkpoint / name)
                if found > seen[name]:
                    seen[name] = notes.batch = found
                    notes(what)

    threading.Thread(target=watch, daemon=True).start()


def newest(folder: Path) -> int:
    """The highest batch that has an entry in a folder of the checkpoint; -1 if there is none."""
    return max((int(each.name) for each in folder.glob("*") if each.name.isdigit()), default=-1)


def main() -> None:
    plan = Plan.read(sys.argv[1])
    notes = Notes(plan.events)
    notes("started")
    builder = (
        SparkSession.builder.master(plan.master)
        .appName("kills")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.showConsoleProgress", "false")
    )
    for name, value in plan.settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    notes("up")
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(plan.files)
    fields = F.split("value", ",")
    frame = lines.select(
        F.col("value").alias("event"), fields[1].cast("int").alias("number"), fields[2].alias("routing_key")
    )
    frame = frame.coalesce(1) if plan.partitions == 1 else frame.repartitionByRange(plan.partitions, "number")
    tell_of_batches(plan, notes)
    query = (
        frame.select("event", "routing_key")
        .writeStream.format("pravega")
        .option("controller", plan.controller)
        .option("scope", plan.scope)
        .option("stream", plan.stream)
        .option("exactly_once", "true")
        .option("transaction_timeout_ms", str(plan.lease_ms))
        .option("checkpointLocation", plan.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    notes("running")
    query.awaitTermination()
    notes("finished")
    spark.stop()


if __name__ == "__main__":
    main()
