"""The departure board of the demo: a Spark query that reads the stream while the flights arrive.

It computes the delays by airport and hour until it has seen every flight, reports its progress after each
micro-batch, and writes the delays to a file.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from examples.flights_demo.data import COLUMNS
from examples.flights_demo.job import Progress


def main() -> None:
    """Follow the stream until all flights have arrived."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("controller", "stream", "checkpoint", "result"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--flights", type=int, required=True, help="number of flights to expect")
    parser.add_argument("--progress", type=int, required=True, help="file descriptor")
    args = parser.parse_args()
    progress = Progress(args.progress)
    spark = (
        SparkSession.builder.master("local[1]")
        .appName("departure board")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")  # a short life
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")

    flights = (
        spark.readStream.format("pravega").options(controller=args.controller, stream=args.stream).load()
    )
    fields = F.split(F.col("event").cast("string"), ",")

    def column(name: str) -> Column:
        return fields[COLUMNS.index(name)]

    delays = (
        flights.select(
            column("origin").alias("origin"),
            column("hour").cast("int").alias("hour"),
            F.nullif(column("dep_delay"), F.lit("NA")).cast("int").alias("delay"),
        )
        .groupBy("origin", "hour")
        .agg(F.count("*").alias("seen"), F.count("delay").alias("flights"), F.sum("delay").alias("minutes"))
    )
    seen = 0

    def show(board: DataFrame, batch_id: int) -> None:
        nonlocal seen
        rows = board.collect()
        seen = sum(row.seen for row in rows)
        Path(args.result).write_text(
            json.dumps(
                {
                    "seen": seen,
                    "delays": [
                        [row.origin, row.hour, row.flights, row.minutes] for row in rows if row.flights
                    ],
                }
            )
        )
        progress.batch = batch_id
        progress.note("seen", rows=seen)

    query = (
        delays.writeStream.outputMode("complete")
        .foreachBatch(show)
        .option("checkpointLocation", args.checkpoint)
        .start()
    )
    while seen < args.flights and query.isActive:
        query.awaitTermination(1)
    # what came too much would be in one more batch
    query.processAllAvailable()
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
