"""``spark_adapter`` and its floors: ``python -m benchmarks.worker_spark URI SCOPE [SETTING=VALUE ...]``.

Requests are those of :mod:`benchmarks.spark_work`. A floor does what a form does without Pravega: it makes
the same rows from memory in the same Python workers, or sends the same rows there and drops them. What a form
takes longer than its floor is what Pravega and its client cost.

==================  ==================================================================================
form, of reads
==================  ==================================================================================
``floor-source``    a Python data source
``floor-map``       a function of ``mapInArrow``, over one row for each partition
``read_df``         :func:`spark_adapter.read_df`
``format``          ``spark.read.format("pravega")``
``read_rdd``        :func:`spark_adapter.read_rdd` (``count`` alone)
==================  ==================================================================================

==================  ==================================================================================
form, of writes     (``exactly_once`` and ``at_least_once`` stand for MODE)
==================  ==================================================================================
``floor``           the rows go to Python workers, which drop them
``sink-MODE``       :class:`spark_adapter.ForeachBatchSink`, called once, or by ``foreachBatch``
``format-MODE``     ``write`` and ``writeStream`` with the format ``pravega``
==================  ==================================================================================
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.streaming import DataStreamWriter
from pyspark.sql.types import StructType

from benchmarks.spark_queries import files, session, stream_files, to_count, to_noop
from benchmarks.spark_work import CYCLE, EVENT, KEY, KINDS, EventKind, slices
from benchmarks.work import Clock, measure, serve
from pravega_wire import PravegaConfig
from spark_adapter import EVENT_SCHEMA, ForeachBatchSink, read_df, read_rdd, register

BATCH_BYTES = 1 << 20
PARTITIONS = 4
LEDGER = "ledger"


class Unavailable(Exception):
    """The version of a package that is installed lacks this form."""


# --- floors ---------------------------------------------------------------------------------------


def made_up(kind: EventKind, start: int, count: int, columns: str) -> Iterator[pa.RecordBatch]:
    """Rows with the schema and about the batches of the real reader.

    :param start, count: which events of the kind.
    """
    whole = max(1, BATCH_BYTES * CYCLE // kind.bytes_of(CYCLE))
    pool = kind.pool()
    # From any place of the cycle on there are as many as a batch has.
    events = pa.array([pool[number % CYCLE] for number in range(CYCLE + whole)], pa.binary())
    rest = [
        pa.repeat(pa.scalar("scope", pa.string()), whole),
        pa.repeat(pa.scalar("stream", pa.string()), whole),
        pa.repeat(pa.scalar(1, pa.int64()), whole),
        pa.array(range(whole), pa.int64()),
    ]
    for first in range(start, start + count, whole):
        size = min(whole, start + count - first)
        arrays = [events.slice(first % CYCLE, size)]
        names = [EVENT]
        if columns == "all":
            arrays += [each.slice(0, size) for each in rest]
            names += ["scope", "stream", "segment_id", "offset"]
        yield pa.RecordBatch.from_arrays(arrays, names=names)


class FloorSource(DataSource):  # type: ignore[misc]  # pyspark is Any to mypy
    """The rows of ``spark_adapter``'s source, from memory."""

    @classmethod
    def name(cls) -> str:
        return "benchmark_floor"

    def schema(self) -> str:
        return EVENT_SCHEMA if self.options["columns"] == "all" else f"{EVENT} binary"

    def reader(self, schema: StructType) -> DataSourceReader:
        return _FloorReader(self.options["kind"], int(self.options["count"]), self.options["columns"])


class _FloorReader(DataSourceReader):  # type: ignore[misc]  # pyspark is Any to mypy
    def __init__(self, kind: str, count: int, columns: str) -> None:
        self.kind, self.count, self.columns = kind, count, columns

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(each) for each in slices(self.count, PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from made_up(KINDS[self.kind], *partition.value, self.columns)


def drop(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Take rows in a Python worker and give back how many rows and bytes of events there were."""
    rows = nbytes = 0
    for batch in batches:
        rows += batch.num_rows
        nbytes += pc.sum(pc.binary_length(batch.column(EVENT))).as_py() or 0
    yield pa.RecordBatch.from_arrays(
        [pa.array([rows], pa.int64()), pa.array([nbytes], pa.int64())], names=["rows", "bytes"]
    )


def dropped(rows: DataFrame) -> tuple[int, int]:
    """The floor of a write; how many rows and bytes went to Python."""
    found = rows.mapInArrow(drop, "rows long, bytes long").collect()
    return sum(each[0] for each in found), sum(each[1] for each in found)


# --- our forms ------------------------------------------------------------------------------------


class Peer:
    """One Spark session for all requests."""

    def __init__(self, uri: str, scope: str, settings: Mapping[str, str]) -> None:
        self._config = PravegaConfig.from_defaults(controller_uri=uri, scope=scope, env={})
        self._options = {"controller": uri, "scope": scope}
        os.environ["PYSPARK_PYTHON"] = sys.executable
        root = str(Path(__file__).resolve().parent.parent)
        os.environ["PYTHONPATH"] = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
        self._spark: SparkSession = session("pravega benchmarks", settings)
        self._spark.dataSource.register(FloorSource)
        register(self._spark)

    def handle(self, words: list[str]) -> dict[str, object]:
        """Answer a request. CPU time is left out: the work is in other processes."""
        work, form, stream, place, kind, count = words
        try:
            if work in ("noop", "count"):
                clock, events, nbytes = self._read(work, form, stream, place, KINDS[kind], int(count))
            elif form == "floor":
                clock, events, nbytes = self._write_floor(work, place)
            else:
                clock = self._write(work, form, stream, place)
                # How many are stored is what the stream's length tells.
                events, nbytes = int(count), KINDS[kind].bytes_of(int(count))
        except Unavailable as error:
            return {"unavailable": str(error)}
        return {"events": events, "bytes": nbytes, "seconds": clock.seconds}

    def _read(
        self, work: str, form: str, stream: str, columns: str, kind: EventKind, count: int
    ) -> tuple[Clock, int, int]:
        if form == "read_rdd":
            with measure() as clock:
                lengths = read_rdd(self._spark.sparkContext, self._config, stream).mapPartitions(_totals)
                found = lengths.collect()
            return clock, sum(each[0] for each in found), sum(each[1] for each in found)
        with measure() as clock:
            frame = self._frame(form, stream, columns, kind, count)
            events, nbytes = (to_noop if work == "noop" else to_count)(frame)
        return clock, events, nbytes

    def _frame(self, form: str, stream: str, columns: str, kind: EventKind, count: int) -> DataFrame:
        if form == "floor-source":
            reader = self._spark.read.format(FloorSource.name())
            return reader.options(kind=kind.name, count=count, columns=columns).load()
        if form == "floor-map":
            shares = list(slices(count, PARTITIONS))

            def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
                for batch in batches:
                    for number in batch.column("id").to_pylist():
                        yield from made_up(kind, *shares[number], columns)

            schema = EVENT_SCHEMA if columns == "all" else f"{EVENT} binary"
            return self._spark.range(0, PARTITIONS, 1, PARTITIONS).mapInArrow(make, schema)
        if form == "read_df":
            chosen: dict[str, Any] = {} if columns == "all" else {"columns": [EVENT]}
            if chosen and "columns" not in inspect.signature(read_df).parameters:
                raise Unavailable("read_df has no parameter columns")
            return read_df(self._spark, self._config, stream, **chosen)
        reader = self._spark.read.format("pravega").options(**self._options, stream=stream)
        if columns == "all":
            return reader.load()
        with _unless_missing("unknown option 'columns'"):
            return reader.option("columns", EVENT).load()

    def _write_floor(self, work: str, folder: str) -> tuple[Clock, int, int]:
        if work == "batch":
            with measure() as clock:
                events, nbytes = dropped(files(self._spark, folder))
            return clock, events, nbytes
        found: list[tuple[int, int]] = []

        def sink(writer: DataStreamWriter) -> DataStreamWriter:
            return writer.foreachBatch(lambda rows, _: found.append(dropped(rows)))

        clock = stream_files(self._spark, folder, sink)
        return clock, sum(each[0] for each in found), sum(each[1] for each in found)

    def _write(self, work: str, form: str, stream: str, folder: str) -> Clock:
        way, _, mode = form.partition("-")
        if way == "format":
            return self._write_format(work, mode == "exactly_once", stream, folder)
        ledger: dict[str, Any] = {}
        if mode == "exactly_once":
            ledger = {"ledger_stream": LEDGER, "query": f"bench-{uuid4()}"}
        target = ForeachBatchSink(
            self._config,
            stream,
            mode=mode,  # type: ignore[arg-type]  # one of the two this program is asked for
            event_col=EVENT,
            routing_key_col=KEY,
            **ledger,
        )
        if work == "stream":
            return stream_files(self._spark, folder, lambda writer: writer.foreachBatch(target))
        with measure() as clock:
            target(files(self._spark, folder), 0)
        return clock

    def _write_format(self, work: str, exactly_once: bool, stream: str, folder: str) -> Clock:
        options = self._options | {
            "stream": stream,
            "event_col": EVENT,
            "routing_key_col": KEY,
            "exactly_once": str(exactly_once).lower(),
        }
        if exactly_once:
            options["ledger_stream"] = LEDGER
            if work == "batch":
                options["job_id"] = f"bench-{uuid4()}"
        with _unless_missing("cannot be written by", "NOT_IMPLEMENTED", "does not support"):
            if work == "stream":
                return stream_files(
                    self._spark, folder, lambda writer: writer.format("pravega").options(**options)
                )
            with measure() as clock:
                rows = files(self._spark, folder)
                rows.write.format("pravega").mode("append").options(**options).save()
        return clock


@contextmanager
def _unless_missing(*phrases: str) -> Iterator[None]:
    """Tells an error that says that there is no such form from one of a form that there is.

    :raises Unavailable: the error has one of the phrases.
    """
    try:
        yield
    except PySparkException as error:
        for line in str(error).splitlines():
            if any(phrase in line for phrase in phrases):
                raise Unavailable(line.strip()[-200:]) from error
        raise


def _totals(events: Iterator[bytes]) -> Iterator[tuple[int, int]]:
    rows = nbytes = 0
    for event in events:
        rows += 1
        nbytes += len(event)
    yield rows, nbytes


def main() -> None:
    uri, scope, *settings = sys.argv[1:]
    serve(Peer(uri, scope, dict(each.split("=", 1) for each in settings)).handle)


if __name__ == "__main__":
    main()
