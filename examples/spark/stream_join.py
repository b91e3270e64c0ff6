"""Stream to stream with a join: ``python -m examples.spark.stream_join --left SCOPE/STREAM ...``.

The events of two streams are JSON with a time and an id. Two events with the same id, and with times within
an hour of each other, become one event of a third stream, exactly once, with the id as its routing key. A run
processes the existing events and ends; with ``--follow`` it continues. The checkpoint stores the query's
position, and events that still wait for a match.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pravega_wire import PravegaConfig
from spark_adapter import ForeachBatchSink, create_if_missing


def main(argv: Sequence[str]) -> None:
    """Do one run, or follow the streams."""
    parser = argparse.ArgumentParser(description="Join the events of two streams into a third one.")
    parser.add_argument("--controller", default="tcp://localhost:9090")
    parser.add_argument("--left", required=True, help="scope/stream")
    parser.add_argument("--right", required=True, help="scope/stream")
    parser.add_argument("--out", required=True, help="scope/stream; created if it does not exist")
    parser.add_argument(
        "--checkpoint", required=True, help="folder of the checkpoint; use the same for each run"
    )
    parser.add_argument("--ledger", help="scope/stream; use the same for each run (default: OUT and -ledger)")
    parser.add_argument(
        "--max-bytes", type=int, default=64 << 20, help="largest size of a batch from each stream, in bytes"
    )
    parser.add_argument("--follow", action="store_true", help="keep running")
    args = parser.parse_args(argv)

    config = PravegaConfig.from_defaults(controller_uri=args.controller)
    create_if_missing(config, args.out, default_num_segments=4)
    spark = SparkSession.builder.appName("stream join").getOrCreate()

    def events(stream: str, side: str) -> DataFrame:
        """Return the fields of a stream's events, with a watermark."""
        rows = (
            spark.readStream.format("pravega")
            .option("controller", args.controller)
            .option("stream", stream)
            .option("max_bytes_per_trigger", args.max_bytes)
            .load()
        )
        text = F.col("event").cast("string")
        fields = F.from_json(text, "id string, time timestamp")
        return rows.select(
            fields["id"].alias(f"{side}_id"), fields["time"].alias(f"{side}_time"), text.alias(side)
        ).withWatermark(f"{side}_time", "10 minutes")

    hour = F.expr("interval 1 hour")
    left, right = events(args.left, "left"), events(args.right, "right")
    joined = left.join(
        right,
        (F.col("left_id") == F.col("right_id"))
        & (F.col("right_time") >= F.col("left_time") - hour)
        & (F.col("right_time") <= F.col("left_time") + hour),
    )
    pairs = joined.select(
        F.concat(F.lit('{"left":'), "left", F.lit(',"right":'), "right", F.lit("}")).alias("event"),
        F.col("left_id").alias("id"),
    )
    sink = ForeachBatchSink(
        config,
        args.out,
        mode="exactly_once",
        ledger_stream=args.ledger or f"{args.out}-ledger",
        routing_key_col="id",
    )
    writer = pairs.writeStream.foreachBatch(sink).option("checkpointLocation", args.checkpoint)
    query = (writer if args.follow else writer.trigger(availableNow=True)).start()
    query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1:])
