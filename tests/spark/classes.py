"""Writes an archive of the classes that Spark loads: ``python -m tests.spark.classes FILE``.

A test run starts about a hundred Java processes for Spark. With the archive each takes half the processor
time to start and for its first jobs. Java ignores an archive that does not fit: another Java, or other jars.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader


class Numbers(DataSource):
    """What a Python data source needs, without a server."""

    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return "number bigint"

    def reader(self, schema: Any) -> DataSourceReader:
        return _Reader()


class _Reader(DataSourceReader):
    def read(self, partition: Any) -> Iterator[tuple[int]]:
        yield from ((number,) for number in range(10))


def work(spark: SparkSession, folder: Path) -> None:
    """Do once what tests do: Arrow, Python tasks, files, a join, a streaming query, a Python data source."""
    rows = spark.range(100).withColumn("key", (F.col("id") % 3).cast("string"))
    rows.mapInArrow(lambda batches: batches, rows.schema).write.parquet(str(folder / "rows"))
    files = spark.read.parquet(str(folder / "rows"))
    files.groupBy("key").agg(F.count("*"), F.max("id")).orderBy("key").collect()
    files.join(spark.createDataFrame([("0", 1)], "key string, n int"), "key").toPandas()
    rows.rdd.map(lambda row: row.id).sum()
    spark.dataSource.register(Numbers)
    spark.read.format("numbers").load().count()

    def each(batch: DataFrame, number: int) -> None:
        batch.count()

    stream = spark.readStream.schema(files.schema).parquet(str(folder / "rows"))
    query = stream.writeStream.foreachBatch(each).option("checkpointLocation", str(folder / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()


def main(file: str) -> None:
    """Run that work in a Java process that writes the archive when it ends."""
    # Java would name each class that cannot be in an archive.
    os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:ArchiveClassesAtExit={file} -Xlog:disable -Xlog:all=error:stderr"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder: Any = SparkSession.builder
    session = (
        builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    gateway = session.sparkContext._gateway
    with tempfile.TemporaryDirectory() as folder:
        work(session, Path(folder))
    session.stop()
    # Java ends with its standard input, and writes the archive then.
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    main(sys.argv[1])
