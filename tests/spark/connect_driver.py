"""What a program can do with the adapter over Spark Connect; prints what came out, as JSON.

A process of its own: PySpark is either classic or Connect in one process. Arguments: URL of the server,
controller URI, a stream to read, one to write, a directory.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from pravega_wire import PravegaConfig
from spark_adapter import ForeachBatchSink, read_df, read_rdd, register
from tests.spark.helpers import files_of, rows_of, run_query


def outcome(call: Callable[[], Any]) -> Any:
    """What a call gives, or its error as text."""
    try:
        return call()
    except Exception as error:  # whatever it is, the test looks at it
        return f"{type(error).__name__}: {error}"


def events(frame: Any) -> list[str]:
    return sorted(bytes(row.event).decode() for row in frame.collect())


def main() -> None:
    server, controller, source, target, directory = sys.argv[1:]
    config = PravegaConfig.from_defaults(controller_uri=controller, scope="spark", env={})
    place = Path(directory)
    spark = SparkSession.builder.remote(server).getOrCreate()
    options = {"controller": controller, "stream": f"spark/{source}"}
    frame = spark.createDataFrame(rows_of(0), "event string, key string")
    given: Any = spark

    def sink(mode: Any = "at_least_once", **more: Any) -> ForeachBatchSink:
        return ForeachBatchSink(config, target, mode=mode, **{"routing_key_col": "key", **more})

    exactly_once = sink("exactly_once", ledger_stream="ledger", query="q")

    def written() -> Any:
        at_least_once = sink()
        at_least_once(frame, 0)
        assert at_least_once.last_batch is not None
        return at_least_once.last_batch.rows

    def followed() -> str:
        frame = spark.readStream.format("pravega").options(**options).load()
        query = frame.writeStream.format("noop").option("checkpointLocation", str(place / "follow"))
        query.trigger(availableNow=True).start().awaitTermination()
        return "works"

    def written_by_name() -> str:
        writer = frame.select("event").write.format("pravega").mode("append")
        writer.options(controller=controller, stream=f"spark/{target}").save()
        return "works"

    def streamed_by_name() -> str:
        writer = files_of(spark, place / "files", 1).select("event").writeStream.format("pravega")
        writer = writer.options(controller=controller, stream=f"spark/{target}")
        writer = writer.option("checkpointLocation", str(place / "stream")).trigger(availableNow=True)
        writer.start().awaitTermination()
        return "works"

    def by_format() -> list[str]:
        register(spark)
        return events(spark.read.format("pravega").options(**options).load())

    found = {
        "read_df": outcome(lambda: events(read_df(spark, config, source))),
        "read.format": outcome(by_format),
        "read_rdd": outcome(lambda: read_rdd(given, config, source)),
        "sink called": outcome(written),
        "sink in foreachBatch": outcome(lambda: run_query(spark, sink(), place / "files", 1, place / "a")),
        "serializer": outcome(lambda: sink(serializer=lambda row: row.event.encode())(frame, 0)),
        "router": outcome(lambda: sink(routing_key_col=None, router=lambda row: row.key)(frame, 0)),
        "exactly_once called": outcome(lambda: exactly_once(frame, 0)),
        "exactly_once in foreachBatch": outcome(
            lambda: run_query(spark, exactly_once, place / "files", 1, place / "b")
        ),
        "readStream.format": outcome(followed),
        "write.format": outcome(written_by_name),
        "writeStream.format": outcome(streamed_by_name),
    }
    print(f"\nFOUND {json.dumps(found)}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
