"""The queries that all Spark participants run, with PySpark 3.5 and 4."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter

from benchmarks.spark_work import CORES, EVENT, FILES_PER_TRIGGER, PARQUET_SCHEMA
from benchmarks.work import Clock, measure

__all__ = ["files", "session", "stream_files", "to_count", "to_noop"]


def session(name: str, settings: Mapping[str, str]) -> SparkSession:
    """A session of ``CORES`` tasks at once.

    :param settings: more of Spark's settings.
    """
    builder = (
        SparkSession.builder.master(f"local[{CORES}]")
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", str(CORES))
    )
    for key, value in settings.items():
        builder = builder.config(key, value)
    made: SparkSession = builder.getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    return made


def to_noop(frame: DataFrame) -> tuple[int, int]:
    """Read everything to nowhere; how many rows went through, and how many bytes of events."""
    seen = Observation()
    frame = frame.observe(seen, F.count(F.lit(1)).alias("rows"), F.sum(F.length(EVENT)).alias("bytes"))
    frame.write.format("noop").mode("overwrite").save()
    return seen.get["rows"], seen.get["bytes"] or 0


def to_count(frame: DataFrame) -> tuple[int, int]:
    """Count rows, and sum the lengths of their events."""
    row = frame.agg(F.count("*"), F.sum(F.length(EVENT))).first()
    assert row is not None
    return row[0], row[1] or 0


def files(spark: SparkSession, folder: str) -> DataFrame:
    """What there is to write, for a job."""
    return spark.read.schema(PARQUET_SCHEMA).parquet(folder)


def stream_files(
    spark: SparkSession, folder: str, sink: Callable[[DataStreamWriter], DataStreamWriter]
) -> Clock:
    """Write what there is by a streaming query that ends by itself; how long it took from start to end.

    :param sink: gives the query its sink.
    """
    files_of = spark.readStream.schema(PARQUET_SCHEMA).option("maxFilesPerTrigger", FILES_PER_TRIGGER)
    with tempfile.TemporaryDirectory(prefix="bench-checkpoint-") as checkpoint:
        writer = sink(files_of.parquet(folder).writeStream).option("checkpointLocation", checkpoint)
        with measure() as clock:
            writer.trigger(availableNow=True).start().awaitTermination()
    return clock
