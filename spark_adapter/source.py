"""Bounded reads: an RDD or a DataFrame of the events between two cuts.

The bounds are resolved once, on the driver, into segment ranges; each is one partition, or several where a
limit of bytes is given. Events of a segment never change, so a partition that is computed again gives the
same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, overload

from pyspark import RDD, SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.utils import require_minimum_pandas_version

from pravega_wire import PravegaConfig, ScopedStream, SegmentRange
from pravega_wire.cuts import Bound, OnTruncated
from pravega_wire.sync import DirectReader
from spark_adapter.clients import HeldClient
from spark_adapter.options import check_end, columns_of, config_options, encode_ranges, schema_of
from spark_adapter.planning import ranges_to_read
from spark_adapter.surviving import surviving
from spark_adapter.versions import check_context, needs_data_sources

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["EVENT_SCHEMA", "read_df", "read_rdd", "register"]

T = TypeVar("T")

EVENT_SCHEMA = "event binary, scope string, stream string, segment_id long, offset long"
"""Columns of a DataFrame of events."""


# --- RDD ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _ReadEvents:
    """Reads the ranges of a partition in a worker; picklable."""

    config: PravegaConfig
    deserializer: Callable[[bytes], Any] | None
    skip_lost: bool

    def __call__(self, ranges: Iterable[SegmentRange]) -> Iterator[Any]:
        for each in ranges:
            for events in surviving(self._lists, each) if self.skip_lost else self._lists(each):
                if self.deserializer is None:
                    yield from events
                else:
                    yield from map(self.deserializer, events)

    def _lists(self, segment_range: SegmentRange) -> Iterator[list[bytes]]:
        with HeldClient(self.config) as client, DirectReader(client, segment_range) as batches:
            for batch in batches:
                yield batch.to_list()


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
    min_partitions: int | None = ...,
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
    min_partitions: int | None = ...,
) -> RDD[T]: ...


def read_rdd(
    sc: SparkContext,
    config: PravegaConfig,
    stream: str | ScopedStream,
    start: Bound = "earliest",
    end: Bound = "latest",
    deserializer: Callable[[bytes], Any] | None = None,
    *,
    on_truncated: OnTruncated = "raise",
    max_partition_bytes: int | None = None,
    min_partitions: int | None = None,
) -> RDD[Any]:
    """The events between two cuts as an RDD, a partition for each segment range.

    Partitions are in the order of their segments' ids, and events in the order they were stored, so
    the events of one routing key are in order in ``rdd.collect()``.

    :param start, end: resolved now, once: the RDD does not grow. An ``end`` of ``"earliest"`` is refused.
    :param deserializer: function from an event's bytes to an element; sent to the workers. Default:
        the elements are the bytes.
    :param on_truncated: ``raise``, or ``skip_to_head`` if data after ``start`` may be gone, now or before a
        task reads it.
    :param max_partition_bytes: divide what lies in one segment into partitions of at most so many bytes (a
        larger event is one by itself), so that several workers read it. The driver looks for the places now,
        as :meth:`PravegaClient.split_range` does and at its cost.
    :param min_partitions: divide the largest ranges between events until there are so many partitions, or as
        many as there are events; for segments that hold much more than others. Costs the same.
    :raises DataLossError: data between the cuts was truncated (now, or while reading), and ``on_truncated``
        is ``fail``.
    :raises InvalidStreamCutError: a cut is of another stream or beyond its end.
    :raises InvalidArgumentError: ``sc`` is not a Spark context (Spark Connect has none), or an argument makes
        no sense.
    """
    check_context(sc)
    check_end("end", end)
    with HeldClient(config) as client:
        ranges = ranges_to_read(
            client,
            stream,
            start,
            end,
            on_truncated=on_truncated,
            max_partition_bytes=max_partition_bytes,
            min_partitions=min_partitions,
        )
    read = _ReadEvents(config, deserializer, skip_lost=on_truncated == "skip_to_head")
    return sc.parallelize(ranges, max(1, len(ranges))).mapPartitions(read)


# --- DataFrame ------------------------------------------------------------------------------------


def register(spark: SparkSession) -> None:
    """Make ``spark.read.format("pravega")`` known to a session; again is harmless.

    :raises MissingExtraError: PySpark is older than 4.0.
    """
    needs_data_sources('format "pravega"')
    from spark_adapter.datasource import PravegaDataSource

    spark.dataSource.register(PravegaDataSource)


def read_df(
    spark: SparkSession,
    config: PravegaConfig,
    stream: str | ScopedStream,
    start: Bound = "earliest",
    end: Bound = "latest",
    *,
    on_truncated: OnTruncated = "raise",
    max_partition_bytes: int | None = None,
    min_partitions: int | None = None,
    columns: Iterable[str] | str | None = None,
) -> DataFrame:
    """The events between two cuts as a DataFrame, one partition for each segment range.

    Works with PySpark 3.5 too, if pandas is installed (which PySpark asks for).

    Columns: ``event`` (binary), ``scope``, ``stream`` (string), ``segment_id`` and ``offset``
    (long; the offset in bytes of the event's header in its segment). Arguments and errors as
    :func:`read_rdd`.

    :param columns: those to read, in this order: names, or a text with commas. Spark leaves out none by
        itself, and ``columns="event"`` is a good deal faster than all.
    :raises InvalidArgumentError: there is no such column.
    :raises MissingExtraError: PySpark is older than 4.0, and pandas is not installed.
    """
    check_end("end", end)
    chosen = columns_of("columns", columns)
    name = config.resolve(stream)
    skip_lost = on_truncated == "skip_to_head"
    by_map = _has_pandas()
    if not by_map:
        needs_data_sources("read_df without pandas")
    with HeldClient(config) as client:
        ranges = ranges_to_read(
            client,
            name,
            start,
            end,
            on_truncated=on_truncated,
            max_partition_bytes=max_partition_bytes,
            min_partitions=min_partitions,
        )
    if by_map:
        return _mapped(spark, config, name, ranges, chosen, skip_lost)
    register(spark)
    return (
        spark.read.format("pravega")
        .options(
            **config_options(config),
            stream=f"{name.scope}/{name.name}",
            segment_ranges=encode_ranges(ranges),
            columns=",".join(chosen),
            fail_on_data_loss=str(not skip_lost).lower(),
        )
        .load()
    )


def _has_pandas() -> bool:
    """Whether there is a pandas that PySpark takes: ``mapInArrow`` asks for one, and does not use it."""
    try:
        require_minimum_pandas_version()
    except ImportError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _ReadBatches:
    """Reads the ranges whose numbers come in, as Arrow batches, in a worker; picklable."""

    config: PravegaConfig
    ranges: tuple[SegmentRange, ...]
    columns: tuple[str, ...]
    skip_lost: bool

    def batches(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from spark_adapter.arrow_reader import batches_of

        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from batches_of(
                    self.config, self.ranges[number], self.columns, skip_lost=self.skip_lost
                )


def _mapped(
    spark: SparkSession,
    config: PravegaConfig,
    stream: ScopedStream,
    ranges: Sequence[SegmentRange],
    columns: tuple[str, ...],
    skip_lost: bool,
) -> DataFrame:
    """A frame whose tasks each get the number of a range, and read it.

    A data source would do the same with a process of Python for each plan, and with slower rows.
    """
    count = len(ranges)
    # The same for every event: Spark puts them in, and nothing of them has to come from the worker.
    fixed = {"scope": stream.scope, "stream": stream.name}
    shipped = tuple(name for name in columns if name not in fixed) or ("segment_id",)
    read = _ReadBatches(config, tuple(ranges), shipped, skip_lost)
    rows = spark.range(0, count, 1, max(1, count)).mapInArrow(read.batches, schema_of(shipped))
    if shipped == columns:
        return rows
    # No name has a quote in it.
    return rows.selectExpr(
        *(f"'{fixed[name]}' AS `{name}`" if name in fixed else f"`{name}`" for name in columns)
    )
