"""``spark_adapter`` and its floors: ``python -m benchmarks.worker_spark URI SCOPE``.

``read<TAB>stream`` counts a stream's events and their bytes with Spark SQL; ``read-floor`` does so over a
data source that yields the same Arrow batches from memory. ``write`` sends generated rows through
``ForeachBatchSink``; ``write-floor`` sends the same rows to the same Python workers, which drop them.
The difference between the two of a pair is what Pravega costs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from benchmarks.work import Clock, measure, payload_pool, serve
from pravega_wire import PravegaConfig
from spark_adapter import EVENT_SCHEMA, ForeachBatchSink, read_df

BATCH_BYTES = 1 << 20
CORES = 2


class FloorSource(DataSource):  # type: ignore[misc]  # pyspark is Any to mypy
    """The schema and the batches of ``spark_adapter``'s source, from memory."""

    @classmethod
    def name(cls) -> str:
        return "benchmark_floor"

    def schema(self) -> str:
        return EVENT_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return _FloorReader({key: int(value) for key, value in self.options.items()})


class _FloorReader(DataSourceReader):  # type: ignore[misc]  # pyspark is Any to mypy
    def __init__(self, numbers: dict[str, int]) -> None:
        self.size, self.count = numbers["size"], numbers["count"]
        self.parts = numbers["parts"]

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self.parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        left = self.count // self.parts + (partition.value < self.count % self.parts)
        whole = min(left, max(1, BATCH_BYTES // self.size))
        pool = payload_pool(self.size)
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array([pool[number & 63] for number in range(whole)], pa.binary()),
                pa.repeat(pa.scalar("scope", pa.string()), whole),
                pa.repeat(pa.scalar("stream", pa.string()), whole),
                pa.repeat(pa.scalar(partition.value, pa.int64()), whole),
                pa.array(range(whole), pa.int64()),
            ],
            names=["event", "scope", "stream", "segment_id", "offset"],
        )
        while left:
            yield batch.slice(0, min(left, whole))
            left -= min(left, whole)


def drop(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Take rows in a Python worker and give back how many there were."""
    rows = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_arrays([pa.array([rows], pa.int64())], names=["rows"])


class Peer:
    """One Spark session for all requests."""

    def __init__(self, uri: str, scope: str) -> None:
        self._config = PravegaConfig.from_defaults(controller_uri=uri, scope=scope, env={})
        os.environ["PYSPARK_PYTHON"] = sys.executable
        root = str(Path(__file__).resolve().parent.parent)
        os.environ["PYTHONPATH"] = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
        self._spark: SparkSession = (
            SparkSession.builder.master(f"local[{CORES}]")
            .appName("pravega benchmarks")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.memory", "1g")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .getOrCreate()
        )
        self._spark.sparkContext.setLogLevel("OFF")
        self._spark.dataSource.register(FloorSource)

    def _count(self, frame: DataFrame) -> tuple[int, int]:
        row = frame.agg(F.count("*"), F.sum(F.length("event"))).first()
        assert row is not None
        return row[0], row[1] or 0

    def _rows(self, size: int, count: int) -> DataFrame:
        return self._spark.range(0, count, 1, CORES).select(
            F.lit(bytearray(payload_pool(size)[0])).alias("event"),
            F.concat(F.lit("key-"), (F.col("id") % 1000).cast("string")).alias("key"),
        )

    def handle(self, words: list[str]) -> dict[str, float]:
        """Answer a request. CPU time is left out: the work is in other processes."""
        kind = words[0]
        if kind == "read":
            with measure() as clock:
                events, nbytes = self._count(read_df(self._spark, self._config, words[1]))
            return _answer(clock, events, nbytes)
        size, count, parts = map(int, words[2:5])
        if kind == "read-floor":
            with measure() as clock:
                frame = (
                    self._spark.read.format("benchmark_floor")
                    .options(size=size, count=count, parts=parts)
                    .load()
                )
                events, nbytes = self._count(frame)
            return _answer(clock, events, nbytes)
        rows = self._rows(size, count)
        if kind == "write-floor":
            with measure() as clock:
                found = rows.mapInArrow(drop, "rows long").collect()
                events = sum(row[0] for row in found)
            return _answer(clock, events, events * size)
        mode = kind.removeprefix("write-")
        exactly = mode == "exactly_once"
        sink = ForeachBatchSink(
            self._config,
            words[1],
            mode=mode,  # type: ignore[arg-type]  # one of the two this program is asked for
            event_col="event",
            routing_key_col="key",
            ledger_stream="ledger" if exactly else None,
            query=f"bench-{uuid4()}" if exactly else None,
        )
        with measure() as clock:
            sink(rows, 0)
        return _answer(clock, count, count * size)


def _answer(clock: Clock, events: int, nbytes: int) -> dict[str, float]:
    answer = clock.answer(events, nbytes)
    del answer["cpu_seconds"]
    return answer


def main() -> None:
    uri, scope = sys.argv[1:]
    serve(Peer(uri, scope).handle)


if __name__ == "__main__":
    main()
