"""A Spark job that reads a stream and writes it to another one, for ``spark-submit``; prints what it found.

Arguments: controller URI, stream to read, stream to write, its ledger.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from pyspark.sql import SparkSession

import spark_adapter
from pravega_wire import PravegaConfig
from spark_adapter import ForeachBatchSink, read_rdd


def where(_: Iterable[int]) -> Iterator[tuple[str, str]]:
    import pravega_wire
    import spark_adapter

    yield pravega_wire.__file__, spark_adapter.__file__


def daemon(_: Iterable[int]) -> Iterator[str]:
    """The module of the process that has forked this worker."""
    words = Path(f"/proc/{os.getppid()}/cmdline").read_text().split("\0")
    yield words[words.index("-m") + 1]


def main() -> None:
    controller, source, target, ledger = sys.argv[1:]
    config = PravegaConfig.from_defaults(controller_uri=controller, scope="spark", env={})
    spark = SparkSession.builder.getOrCreate()
    sc = spark.sparkContext
    sc.setLogLevel("ERROR")
    events = read_rdd(sc, config, source, deserializer=bytes.decode)
    frame = spark.createDataFrame(events.map(lambda event: (event,)), "event string")
    sink = ForeachBatchSink(config, target, mode="exactly_once", ledger_stream=ledger, query="job")
    sink(frame, 0)
    assert sink.last_batch is not None
    found = {
        "driver": spark_adapter.__file__,
        "workers": sc.parallelize(range(4), 4).mapPartitions(where).collect(),
        "daemons": sc.parallelize(range(4), 4).mapPartitions(daemon).collect(),
        "read": events.count(),
        "written": sink.last_batch.rows,
    }
    spark.stop()
    print(f"\nFOUND {json.dumps(found)}", flush=True)


if __name__ == "__main__":
    main()
