"""The official Scala connector in PySpark 3.5: ``python -m benchmarks.worker_connector URI SCOPE JAR``.

Runs in an environment of its own (:mod:`benchmarks.connector_env`), which has PySpark and nothing else: all
its work is in the JVM. Requests are those of :mod:`benchmarks.spark_work`; ``form`` is ``exactly_once`` or
``at_least_once`` for writes, and means nothing for reads.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame
from pyspark.sql.streaming import DataStreamWriter

from benchmarks.spark_queries import files, session, stream_files, to_count, to_noop
from benchmarks.spark_work import EVENT, KINDS
from benchmarks.work import measure, serve

FORMAT = "pravega"


class Peer:
    """One Spark session for all requests."""

    def __init__(self, uri: str, scope: str, jar: str) -> None:
        self._options = {"controller": uri, "scope": scope}
        self._spark = session("pravega benchmarks, connector", {"spark.jars": jar})

    def _frame(self, stream: str, columns: str) -> DataFrame:
        frame = self._spark.read.format(FORMAT).options(**self._options, stream=stream).load()
        return frame.select(EVENT) if columns == "event" else frame

    def handle(self, words: list[str]) -> dict[str, float]:
        """Answer a request. CPU time is left out: the work is in other processes."""
        work, form, stream, place, kind, count = words
        if work in ("noop", "count"):
            with measure() as clock:
                events, nbytes = (to_noop if work == "noop" else to_count)(self._frame(stream, place))
            return {"events": events, "bytes": nbytes, "seconds": clock.seconds}
        options = self._options | {"stream": stream, "exactly_once": str(form == "exactly_once").lower()}

        def sink(writer: DataStreamWriter) -> DataStreamWriter:
            return writer.format(FORMAT).options(**options)

        if work == "stream":
            clock = stream_files(self._spark, place, sink)
        else:
            with measure() as clock:
                files(self._spark, place).write.format(FORMAT).mode("append").options(**options).save()
        # How many are stored is what the stream's length tells.
        return {
            "events": int(count),
            "bytes": KINDS[kind].bytes_of(int(count)),
            "seconds": clock.seconds,
        }


def main() -> None:
    uri, scope, jar = sys.argv[1:]
    serve(Peer(uri, scope, jar).handle)


if __name__ == "__main__":
    main()
