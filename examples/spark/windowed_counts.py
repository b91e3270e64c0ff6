"""Counts by event time, in a table: ``python -m examples.spark.windowed_counts --stream SCOPE/STREAM ...``.

The events are JSON with an event time and a key, as ``parquet_to_stream`` writes them; those without are left
out. For each window and key the number of events goes to a key-value table: the primary key is the beginning
of the window, the secondary key the events' key. A later run counts again and puts the new numbers.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pravega_wire import KeyValueTableConfiguration, PravegaConfig
from pravega_wire.serializers import JsonSerializer, Utf8Serializer
from pravega_wire.sync import open_client
from spark_adapter import read_df

START = "yyyy-MM-dd HH:mm"


def main(argv: Sequence[str]) -> None:
    """Run it once."""
    parser = argparse.ArgumentParser(
        description="Events for each window of time and key, into a key-value table."
    )
    parser.add_argument("--controller", default="tcp://localhost:9090")
    parser.add_argument("--stream", required=True, help="scope/stream")
    parser.add_argument("--table", required=True, help="scope/table; made if it is missing")
    parser.add_argument("--time", default="time", help="field with the event time")
    parser.add_argument("--key", default="key", help="field to count by")
    parser.add_argument(
        "--key-bytes", type=int, default=16, help="keys are padded with spaces to this length"
    )
    parser.add_argument("--window", default="10 minutes")
    args = parser.parse_args(argv)

    config = PravegaConfig.from_defaults(controller_uri=args.controller)
    spark = SparkSession.builder.appName("windowed counts").getOrCreate()
    fields = F.from_json(F.col("event").cast("string"), f"`{args.time}` timestamp, `{args.key}` string")
    events = read_df(spark, config, args.stream, columns="event").select(fields.alias("it"))
    events = events.where(f"it.`{args.time}` is not null and it.`{args.key}` is not null")
    counts = (
        events.groupBy(F.window(f"it.`{args.time}`", args.window), f"it.`{args.key}`")
        .count()
        .select(F.date_format("window.start", START).alias("start"), F.col(args.key).alias("key"), "count")
    )

    shape = KeyValueTableConfiguration(4, len(START), args.key_bytes)
    with open_client(config) as client:
        client.create_key_value_table(args.table, shape)
        table = client.key_value_table(
            args.table, JsonSerializer(), primary_keys=Utf8Serializer(), secondary_keys=Utf8Serializer()
        )
        rows = counts.collect()
        table.put_many(((row.start, row.key.ljust(args.key_bytes)), row["count"]) for row in rows)
    print(f"{len(rows)} counts of {sum(row['count'] for row in rows)} events are in {args.table}")


if __name__ == "__main__":
    main(sys.argv[1:])
