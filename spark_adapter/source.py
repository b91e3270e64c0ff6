"""Bounded reads: an RDD or a DataFrame of the events between two cuts.

The bounds are resolved once, on the driver, into segment ranges; each is one partition, or several where a
limit of bytes is given. Events of a segment never change, so a partition that is computed again gives the
same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias, TypeVar, overload

from pyspark import RDD, SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pravega_wire import PravegaConfig, ScopedStream, SegmentRange, StreamCut
from pravega_wire.errors import InvalidArgumentError
from spark_adapter.clients import client_for
from spark_adapter.options import (
    ReadOptions,
    check_end,
    columns_of,
    config_options,
    encode_ranges,
    schema_of,
)

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["EVENT_SCHEMA", "Bound", "PravegaDataSource", "read_df", "read_rdd", "register"]

T = TypeVar("T")

Bound: TypeAlias = StreamCut | str | None
"""A stream cut, its text, ``"earliest"``, ``"latest"``, or None for the widest."""

OnTruncated: TypeAlias = Literal["fail", "skip_to_head"]

EVENT_SCHEMA = "event binary, scope string, stream string, segment_id long, offset long"
"""Columns of a DataFrame of events."""


# --- RDD ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _ReadEvents:
    """Reads the ranges of a partition in a worker; picklable."""

    config: PravegaConfig
    deserializer: Callable[[bytes], Any] | None

    def __call__(self, ranges: Iterable[SegmentRange]) -> Iterator[Any]:
        client = client_for(self.config)
        for each in ranges:
            with client.read_range(each) as batches:
                for batch in batches:
                    events = batch.to_list()
                    if self.deserializer is None:
                        yield from events
                    else:
                        yield from map(self.deserializer, events)


@overload
def read_rdd(
    sc: SparkContext,
    config: PravegaConfig,
    stream: str | ScopedStream,
    start: Bound = ...,
    end: Bound = ...,
    deserializer: None = None,
    *,
    on_truncated: OnTruncated = ...,
    max_partition_bytes: int | None = ...,
) -> RDD[bytes]: ...


@overload
def read_rdd(
    sc: SparkContext,
    config: PravegaConfig,
    stream: str | ScopedStream,
    start: Bound = ...,
    end: Bound = ...,
    deserializer: Callable[[bytes], T] = ...,
    *,
    on_truncated: OnTruncated = ...,
    max_partition_bytes: int | None = ...,
) -> RDD[T]: ...


def read_rdd(
    sc: SparkContext,
    config: PravegaConfig,
    stream: str | ScopedStream,
    start: Bound = "earliest",
    end: Bound = "latest",
    deserializer: Callable[[bytes], Any] | None = None,
    *,
    on_truncated: OnTruncated = "fail",
    max_partition_bytes: int | None = None,
) -> RDD[Any]:
    """The events between two cuts as an RDD, a partition for each segment range.

    Partitions are in the order of their segments' ids, and events in the order they were stored, so
    the events of one routing key are in order in ``rdd.collect()``.

    :param start, end: resolved now, once: the RDD does not grow. An ``end`` of ``"earliest"`` is refused.
    :param deserializer: function from an event's bytes to an element; sent to the workers. Default:
        the elements are the bytes.
    :param on_truncated: ``fail``, or ``skip_to_head`` if data after ``start`` may be gone.
    :param max_partition_bytes: divide what lies in one segment into partitions of at most so many bytes (a
        larger event is one by itself), so that several workers read it. The driver looks for the places now,
        as :meth:`PravegaClient.split_range` does and at its cost.
    :raises DataLossError: data between the cuts was truncated (now, or while reading).
    :raises InvalidStreamCutError: a cut is of another stream or beyond its end.
    """
    check_end("end", end)
    ranges = client_for(config).segment_ranges(
        stream, start, end, on_truncated=on_truncated, max_range_bytes=max_partition_bytes
    )
    read = _ReadEvents(config, deserializer)
    return sc.parallelize(ranges, max(1, len(ranges))).mapPartitions(read)


# --- DataFrame ------------------------------------------------------------------------------------


class PravegaDataSource(DataSource):  # type: ignore[misc]  # pyspark is Any to mypy
    """``spark.read.format("pravega")``; the options are in :mod:`spark_adapter.options`.

    Without ``segment_ranges`` the bounds are resolved when Spark plans the read. What this format cannot do
    (``write``, ``writeStream``, ``readStream``) ends with an error that says what to use.
    """

    # Options are parsed where they are used: Spark makes this object for what it cannot do as well, with
    # options of its own.

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "pravega"

    def schema(self) -> str:
        """The columns asked for; looks at the options, so that a wrong one is found by ``load()``."""
        return schema_of(self._parsed().columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader, which plans partitions on the driver and reads them on the workers.

        :raises InvalidArgumentError: the user gave another schema than the columns asked for.
        """
        options = self._parsed()
        wanted = schema_of(options.columns)
        given = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)
        if given != wanted:
            raise InvalidArgumentError(
                f"format 'pravega' has the columns {wanted}, not {given}: leave out schema(), and "
                "select or cast columns of the frame (the option 'columns' leaves some out)"
            )
        return _Reader(options)

    def _parsed(self) -> ReadOptions:
        return ReadOptions.parse(dict(self.options))

    def streamReader(self, schema: StructType) -> NoReturn:
        """Refused: there is no ``readStream`` yet."""
        raise InvalidArgumentError(
            "format 'pravega' cannot be read by readStream yet: read what lies between two stream cuts with "
            "read_df or spark.read, and begin the next read at the end of the last; or follow the stream "
            "outside of Spark with a reader group"
        )

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        """Refused: there is no ``DataFrame.write`` yet."""
        raise InvalidArgumentError(
            "format 'pravega' cannot be written by DataFrame.write yet: call a sink, "
            "spark_adapter.ForeachBatchSink(config, stream, ...)(frame, number)"
        )

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:
        """Refused: there is no ``writeStream.format`` yet."""
        raise InvalidArgumentError(
            "format 'pravega' cannot be written by writeStream.format yet: use "
            "writeStream.foreachBatch(spark_adapter.ForeachBatchSink(config, stream, ...))"
        )


class _Reader(DataSourceReader):  # type: ignore[misc]  # pyspark is Any to mypy
    # No pushFilters: in PySpark 4.3 the filter of one query stays in the loaded DataFrame and
    # silently cuts the rows of the next one.

    def __init__(self, options: ReadOptions) -> None:
        self.options = options

    def partitions(self) -> list[InputPartition]:
        ranges: Iterable[SegmentRange] | None = self.options.ranges
        if ranges is None:
            ranges = client_for(self.options.config).segment_ranges(
                self.options.stream,
                self.options.start,
                self.options.end,
                on_truncated="fail" if self.options.fail_on_data_loss else "skip_to_head",
                max_range_bytes=self.options.max_partition_bytes,
            )
        return [InputPartition(each) for each in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark makes one partition without a value of an empty list
        if isinstance(getattr(partition, "value", None), SegmentRange):
            # Imported by the workers alone: Spark starts a process for each plan.
            from spark_adapter.arrow_reader import arrow_batches

            yield from arrow_batches(self.options.config, partition.value, self.options.columns)


def register(spark: SparkSession) -> None:
    """Make ``spark.read.format("pravega")`` known to a session; again is harmless."""
    spark.dataSource.register(PravegaDataSource)


def read_df(
    spark: SparkSession,
    config: PravegaConfig,
    stream: str | ScopedStream,
    start: Bound = "earliest",
    end: Bound = "latest",
    *,
    on_truncated: OnTruncated = "fail",
    max_partition_bytes: int | None = None,
    columns: Iterable[str] | str | None = None,
) -> DataFrame:
    """The events between two cuts as a DataFrame, one partition for each segment range.

    Columns: ``event`` (binary), ``scope``, ``stream`` (string), ``segment_id`` and ``offset``
    (long; the offset in bytes of the event's header in its segment). Arguments and errors as
    :func:`read_rdd`.

    :param columns: those to read, in this order: names, or a text with commas. Spark leaves out none by
        itself, and ``columns="event"`` is a good deal faster than all.
    :raises InvalidArgumentError: there is no such column.
    """
    check_end("end", end)
    chosen = columns_of("columns", columns)
    name = config.resolve(stream)
    ranges = client_for(config).segment_ranges(
        name, start, end, on_truncated=on_truncated, max_range_bytes=max_partition_bytes
    )
    register(spark)
    return (
        spark.read.format(PravegaDataSource.name())
        .options(
            **config_options(config),
            stream=f"{name.scope}/{name.name}",
            segment_ranges=encode_ranges(ranges),
            columns=",".join(chosen),
        )
        .load()
    )
