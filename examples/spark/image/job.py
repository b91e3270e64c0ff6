"""Copies what is new in a stream to another stream: ``spark-submit job.py SOURCE TARGET CHECKPOINT``.

The environment of the driver names the controller and holds the credentials. An event begins with its key and
a comma. The checkpoint is a directory that outlives the driver.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pyspark.sql import SparkSession

from pravega_wire import PravegaConfig
from spark_adapter import read_df


def main(argv: Sequence[str]) -> None:
    """Write each event once, and count what is there."""
    source, target, checkpoint = argv
    spark = SparkSession.builder.appName("copy").getOrCreate()
    query = (
        spark.readStream.format("pravega")
        .option("stream", source)
        .load()
        .selectExpr("event", "substring_index(CAST(event AS STRING), ',', 1) AS routing_key")
        .writeStream.format("pravega")
        .option("stream", target)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)  # process what is there, then end
        .start()
    )
    query.awaitTermination()
    by_name = spark.read.format("pravega").option("stream", target).load().count()
    by_function = read_df(spark, PravegaConfig.from_defaults(), target).count()
    print(f"{target}: {by_name} events by the format, {by_function} by read_df", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
