"""Counts by event time, in a table: ``python -m examples.spark.windowed_counts --stream SCOPE/STREAM ...``.

The events are JSON with an event time and a key, as ``parquet_to_stream`` writes them. Events without them,
and events that are more than an hour late, are left out. The number of events for each window and key is
stored in a key-value table: the primary key is the start of the window, the secondary key is the events' key.
A run processes the existing events and ends; with ``--follow`` it continues. The checkpoint stores the counts
of open windows. A repeated batch stores the same numbers again, so the table is correct even if the program
is killed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pravega_wire import KeyValueTableConfiguration, PravegaConfig
from pravega_wire.serializers import JsonSerializer, Utf8Serializer
from pravega_wire.sync import open_client

START = "yyyy-MM-dd HH:mm"


def main(argv: Sequence[str]) -> None:
    """Do one run, or follow the stream."""
    parser = argparse.ArgumentParser(
        description="Count events by time window and key, and store the counts in a key-value table."
    )
    parser.add_argument("--controller", default="tcp://localhost:9090")
    parser.add_argument("--stream", required=True, help="scope/stream")
    parser.add_argument("--table", required=True, help="scope/table; created if it does not exist")
    parser.add_argument(
        "--checkpoint", required=True, help="folder of the checkpoint; use the same for each run"
    )
    parser.add_argument("--time", default="time", help="field with the event time")
    parser.add_argument("--key", default="key", help="field to count by")
    parser.add_argument(
        "--key-bytes", type=int, default=16, help="keys are padded with spaces to this length"
    )
    parser.add_argument("--window", default="10 minutes")
    parser.add_argument("--follow", action="store_true", help="keep running")
    args = parser.parse_args(argv)

    config = PravegaConfig.from_defaults(controller_uri=args.controller)
    spark = SparkSession.builder.appName("windowed counts").getOrCreate()
    events = (
        spark.readStream.format("pravega")
        .option("controller", args.controller)
        .option("stream", args.stream)
        .option("max_bytes_per_trigger", 64 << 20)
        .load()
    )
    fields = F.from_json(F.col("event").cast("string"), f"`{args.time}` timestamp, `{args.key}` string")
    counts = (
        events.select(fields[args.time].alias("time"), fields[args.key].alias("key"))
        .where("time is not null and key is not null")
        .withWatermark("time", "1 hour")
        .groupBy(F.window("time", args.window), "key")
        .count()
        .select(F.date_format("window.start", START).alias("start"), "key", "count")
    )

    with open_client(config) as client:
        shape = KeyValueTableConfiguration(4, len(START), args.key_bytes)
        client.create_key_value_table(args.table, shape)
        table = client.key_value_table(
            args.table, JsonSerializer(), primary_keys=Utf8Serializer(), secondary_keys=Utf8Serializer()
        )

        def store(changed: DataFrame, number: int) -> None:
            """Store the counts that a batch has changed."""
            rows = changed.collect()
            table.put_many(((row.start, row.key.ljust(args.key_bytes)), row["count"]) for row in rows)
            print(f"batch {number}: {len(rows)} counts have changed")

        writer = counts.writeStream.outputMode("update").foreachBatch(store)
        writer = writer.option("checkpointLocation", args.checkpoint)
        query = (writer if args.follow else writer.trigger(availableNow=True)).start()
        query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1:])
