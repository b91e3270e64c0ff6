"""The Spark batch job of the demo: read the stream between two cuts, count, check and aggregate.

It writes one JSON object to the given file.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from pyspark.sql import Column
from pyspark.sql import functions as F

from examples.flights_demo.data import COLUMNS, event_checksum
from examples.flights_demo.job import spark_session
from pravega_wire import PravegaConfig
from spark_adapter import read_df, read_rdd


def count_and_check(events: Iterable[bytes]) -> Iterator[tuple[int, int]]:
    """Return the number and checksum of the events of one partition."""
    held = list(events)
    yield len(held), event_checksum(held)


def carrier_and_sequence(event: bytes) -> tuple[str, int]:
    """Return the routing key and line number of an event."""
    fields = event.decode().split(",")
    return fields[COLUMNS.index("carrier")], int(fields[0])


def main() -> None:
    """Read, compute, write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("controller", "stream", "start", "end", "result"):
        parser.add_argument(f"--{name}", required=True)
    args = parser.parse_args()
    config = PravegaConfig.from_defaults(controller_uri=args.controller)
    spark = spark_session("flights report")
    spark.sparkContext.setLogLevel("ERROR")

    events = read_rdd(spark.sparkContext, config, args.stream, args.start, args.end)
    parts = events.mapPartitions(count_and_check).collect()

    # In an RDD, the events of one routing key are in the order in which they were written.
    order = read_rdd(spark.sparkContext, config, args.stream, args.start, args.end, carrier_and_sequence)
    sequences: dict[str, list[int]] = {}
    for carrier, sequence in order.collect():
        sequences.setdefault(carrier, []).append(sequence)

    frame = read_df(spark, config, args.stream, args.start, args.end)
    fields = F.split(F.col("event").cast("string"), ",")

    def column(name: str) -> Column:
        return fields[COLUMNS.index(name)]

    delays = (
        frame.select(
            column("origin").alias("origin"),
            column("hour").cast("int").alias("hour"),
            F.nullif(column("dep_delay"), F.lit("NA")).cast("int").alias("delay"),
        )
        .where("delay is not null")
        .groupBy("origin", "hour")
        .agg(F.count("*").alias("flights"), F.sum("delay").alias("minutes"))
        .collect()
    )
    Path(args.result).write_text(
        json.dumps(
            {
                "partitions": len(parts),
                "count": sum(count for count, _ in parts),
                "checksum": sum(part for _, part in parts) % 2**64,
                "delays": [[row.origin, row.hour, row.flights, row.minutes] for row in delays],
                "sequences": sequences,
            }
        )
    )
    spark.stop()


if __name__ == "__main__":
    main()
