"""Parquet to stream: ``python -m examples.spark.parquet_to_stream --folder DIR --stream SCOPE/STREAM ...``.

Each row becomes an event in JSON, with the text of one column as its routing key. A run takes the files that
have come into the folder since the last one and ends. Each row is in the stream once, also if a run is killed
and started again: the checkpoint knows the files, the ledger what was written.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pravega_wire import PravegaConfig
from spark_adapter import ForeachBatchSink, create_if_missing, progress_rows


def main(argv: Sequence[str]) -> None:
    """Run it once."""
    parser = argparse.ArgumentParser(description="Parquet files into a stream, each row once.")
    parser.add_argument("--controller", default="tcp://localhost:9090")
    parser.add_argument("--folder", required=True, help="where the Parquet files are")
    parser.add_argument("--stream", required=True, help="scope/stream; made if it is missing")
    parser.add_argument("--key", required=True, help="column with the routing key")
    parser.add_argument("--checkpoint", required=True, help="folder; keep it for the next run")
    parser.add_argument(
        "--ledger", help="scope/stream; keep it as well (default: the stream's name and -ledger)"
    )
    args = parser.parse_args(argv)

    config = PravegaConfig.from_defaults(controller_uri=args.controller)
    create_if_missing(config, args.stream, default_num_segments=4)
    spark = SparkSession.builder.appName("parquet to stream").getOrCreate()

    rows = spark.readStream.schema(spark.read.parquet(args.folder).schema).parquet(args.folder)
    events = rows.select(F.to_json(F.struct("*")).alias("event"), F.col(args.key).cast("string").alias("key"))
    sink = ForeachBatchSink(
        config,
        args.stream,
        mode="exactly_once",
        ledger_stream=args.ledger or f"{args.stream}-ledger",
        routing_key_col="key",
    )
    query = (
        events.writeStream.foreachBatch(sink)
        .option("checkpointLocation", args.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    for row in progress_rows(query):
        print(f"batch {row['batch']}: {row['rows_in']} rows in {row['seconds']:.1f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
