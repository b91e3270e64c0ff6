"""Parquet to stream: ``python -m examples.spark.parquet_to_stream --folder DIR --stream SCOPE/STREAM ...``.

Each row becomes an event in JSON, with the text of one column as its routing key. A run writes the files that
were added to the folder since the last run, and ends. Each row is in the stream once, even if a run is killed
and started again: the checkpoint records the files, and the ledger records what was written.
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
    """Do one run."""
    parser = argparse.ArgumentParser(description="Write Parquet files to a stream, each row once.")
    parser.add_argument("--controller", default="tcp://localhost:9090")
    parser.add_argument("--folder", required=True, help="folder with the Parquet files")
    parser.add_argument("--stream", required=True, help="scope/stream; created if it does not exist")
    parser.add_argument("--key", required=True, help="column with the routing key")
    parser.add_argument(
        "--checkpoint", required=True, help="folder of the checkpoint; use the same for each run"
    )
    parser.add_argument(
        "--ledger", help="scope/stream; use the same for each run (default: the stream's name and -ledger)"
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
