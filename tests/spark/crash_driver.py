"""A Spark driver that kills itself with ``kill -9`` after a step of its batch."""

from __future__ import annotations

import os
import signal
import sys

from pyspark.sql import SparkSession

from pravega_wire import PravegaConfig
from spark_adapter import ForeachBatchSink
from tests.spark.helpers import frame_of


def main() -> None:
    """Arguments: controller URI, stream, ledger, step, and a second stream if there is one to write as well.

    Of two streams the second one's sink dies.
    """
    controller, stream, ledger, step, *second = sys.argv[1:]
    config = PravegaConfig.from_defaults(controller_uri=controller, scope="spark", env={})

    def crash(reached: str) -> None:
        if reached == step:
            os.kill(os.getpid(), signal.SIGKILL)

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")  # a short life
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    for each in (stream, *second):
        sink = ForeachBatchSink(
            config,
            each,
            mode="exactly_once",
            ledger_stream=ledger,
            query="q",
            router=lambda row: row.key,  # by rows: no pandas to import, a shorter life
            crash_hook=crash if each == (stream, *second)[-1] else None,
        )
        sink(frame_of(spark, 0), 0)


if __name__ == "__main__":
    main()
