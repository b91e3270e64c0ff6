"""Stream to stream with a join: ``python -m examples.spark.stream_join --left SCOPE/STREAM ...``.

The events of two streams are JSON with a time and an id. Those of both that have the same id, and times
within an hour of each other, become one event of a third stream, once, with the id as its routing key. A run
works on what is there and ends; with ``--follow`` it goes on. The checkpoint keeps how far the query has
come, and events that still wait for their partner.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pravega_wire import PravegaConfig
from spark_adapter import ForeachBatchSink, create_if_missing, register


def main(argv: Sequence[str]) -> None:
    """Run it once, or for ever."""
    parser = argparse.ArgumentParser(
        description="Events of two streams that belong together, to a third one."
    )
    parser.add_argument("--controller", default="tcp://localhost:9090")
    parser.add_argument("--left", required=True, help="scope/stream")
    parser.add_argument("--right", required=True, help="scope/stream")
    parser.add_argument("--out", required=True, help="scope/stream; made if it is missing")
    parser.add_argument("--checkpoint", required=True, help="folder; keep it for the next run")
    parser.add_argument("--ledger", help="scope/stream; keep it as well (default: OUT and -ledger)")
    parser.add_argument("--max-bytes", type=int, default=64 << 20, help="of each stream in a batch")
    parser.add_argument("--follow", action="store_true", help="do not end")
    args = parser.parse_args(argv)

    config = PravegaConfig.from_defaults(controller_uri=args.controller)
    create_if_missing(config, args.out, default_num_segments=4)
    spark = SparkSession.builder.appName("stream join").getOrCreate()
    register(spark)

    def events(stream: str, side: str) -> DataFrame:
        """The fields of a stream's events, and up to which time it is complete."""
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
