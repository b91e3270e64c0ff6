"""Bounded reads: the events between two stream cuts as an RDD or a DataFrame.

The bounds are resolved once, on the driver, into segment ranges. Each range is one partition, or several if a
size limit is given. The events of a segment never change, so a partition that is computed again has the same
rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from pyspark import RDD, SparkContext
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.utils import require_minimum_pandas_version

from pravega_wire import Bound, OnTruncated, PravegaConfig, ScopedStream, SegmentRange
from pravega_wire.support.checks import check_callable
from pravega_wire.sync import DirectReader
from spark_adapter.clients import HeldClient, settings_of
from spark_adapter.options.read import check_end, columns_of, config_options, encode_ranges, schema_of
from spark_adapter.reading.partitions import ranges_to_read
from spark_adapter.reading.skip_lost import surviving
from spark_adapter.versions import check_context, check_session, is_connect, needs_data_sources

__all__ = ["EVENT_SCHEMA", "read_df", "read_rdd", "register"]

T = TypeVar("T")

EVENT_SCHEMA = "event binary, scope string, stream string, segment_id long, offset long"
"""The columns of a DataFrame of events, as a Spark schema text."""


# --- RDD ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _ReadEvents:
    """Reads the ranges of a partition in a worker; can be pickled."""

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
    config: PravegaConfig | str,
    stream: str | ScopedStream,
    start: Bound = ...,
    end: Bound = ...,
    deserializer: None = None,
    *,
    on_truncated: OnTruncated = ...,
    max_partition_bytes: int | None = ...,
    max_partition_events: int | None = ...,
    min_partitions: int | None = ...,
    limit: int | None = ...,
) -> RDD[bytes]: ...


@overload
def read_rdd(
    sc: SparkContext,
    config: PravegaConfig | str,
    stream: str | ScopedStream,
    start: Bound = ...,
    end: Bound = ...,
    deserializer: Callable[[bytes], T] = ...,
    *,
    on_truncated: OnTruncated = ...,
    max_partition_bytes: int | None = ...,
    max_partition_events: int | None = ...,
    min_partitions: int | None = ...,
    limit: int | None = ...,
) -> RDD[T]: ...


def read_rdd(
    sc: SparkContext,
    config: PravegaConfig | str,
    stream: str | ScopedStream,
    start: Bound = "earliest",
    end: Bound = "latest",
    deserializer: Callable[[bytes], Any] | None = None,
    *,
    on_truncated: OnTruncated = "raise",
    max_partition_bytes: int | None = None,
    max_partition_events: int | None = None,
    min_partitions: int | None = None,
    limit: int | None = None,
) -> RDD[Any]:
    """Return the events between two stream cuts as an RDD, with one partition for each segment range.

    Partitions are in the order of their segment ids, and events in the order in which they were stored, so
    the events of one routing key are in order in ``rdd.collect()``.

    Example::

        from pravega_wire import PravegaConfig
        from spark_adapter import read_rdd

        config = PravegaConfig("tcp://localhost:9090", scope="demo")
        readings = read_rdd(spark.sparkContext, config, "readings", deserializer=json.loads)
        print(readings.map(lambda reading: reading["celsius"]).max())

    :param sc: the Spark context.
    :param config: connection settings, or the controller's URI as for ``open_client``; they are sent to the
        workers.
    :param stream: ``scope/stream``, or a name in the default scope.
    :param start: where to start: a stream cut, its text, ``"earliest"`` or ``"latest"``. It is resolved once,
        by this call.
    :param end: where to end: a stream cut, its text or ``"latest"``. It is resolved once, by this call, so
        the RDD does not grow.
    :param deserializer: function from an event's bytes to an element; it is sent to the workers. By default
        the elements are the bytes.
    :param on_truncated: ``"raise"`` fails if data between the cuts is truncated, now or before a task reads
        it; ``"skip_to_head"`` skips that data.
    :param max_partition_bytes: split the data of each segment into partitions of at most this many bytes, so
        that several workers can read it; a single larger event is a partition of its own. The driver finds
        the boundaries now, like :meth:`PravegaClient.split_range` and at the same cost: one pass over the
        data.
    :param max_partition_events: split the data of each segment into partitions of at most this many events,
        with another pass over the data.
    :param min_partitions: split the largest ranges, between events, until there are at least this many
        partitions, or one for each event. Useful if some segments have much more data than others. Costs one
        pass over the ranges that are split.
    :param limit: read at most this many events: the first ones, in the order of partitions. The driver finds
        now where they end, by their headers, and plans no more than the ranges that hold them.
    :raises DataLossError: data between the cuts was truncated, and ``on_truncated`` is ``"raise"``. It is
        raised by this call, or by a task.
    :raises InvalidStreamCutError: a cut belongs to another stream, or is beyond its end.
    :raises InvalidArgumentError: ``sc`` is not a Spark context (Spark Connect has none), or an argument is
        not valid (an ``end`` of ``"earliest"``, for example).
    """
    config = settings_of(config)
    check_context(sc)
    check_end("end", end)
    if deserializer is not None:
        check_callable("deserializer", deserializer)
    with HeldClient(config) as client:
        ranges = ranges_to_read(
            client,
            stream,
            start,
            end,
            on_truncated=on_truncated,
            max_partition_bytes=max_partition_bytes,
            max_partition_events=max_partition_events,
            min_partitions=min_partitions,
            limit=limit,
        )
    read = _ReadEvents(config, deserializer, skip_lost=on_truncated == "skip_to_head")
    return sc.parallelize(ranges, max(1, len(ranges))).mapPartitions(read)


# --- DataFrame ------------------------------------------------------------------------------------


def register(spark: SparkSession) -> None:
    """Register the format ``pravega`` in a Spark session. Calling it again has no effect.

    It is needed only where Spark does not find the format by itself: PySpark 4 looks for ``pyspark_pravega``
    once, and finds it if this package is installed for the Python that it runs then.

    It also makes the session the active one of the calling thread, because Spark looks a format up there:
    call it in each thread that writes by format name, and for each further session
    (``spark.newSession()``).

    Example::

        from spark_adapter import register

        register(spark)
        readings = spark.readStream.format("pravega").option("stream", "demo/readings").load()

    :param spark: the Spark session.
    :raises MissingExtraError: PySpark is older than 4.0.
    :raises InvalidArgumentError: ``spark`` is not a Spark session.
    """
    needs_data_sources('format "pravega"')
    check_session(spark)
    from spark_adapter.datasource import PravegaDataSource

    if not is_connect(spark):
        # Spark looks a format up in the thread's active session, not in this one. This makes it active.
        spark.createDataFrame([], "none int")
    try:
        spark.dataSource.register(PravegaDataSource)
    except AnalysisException as error:
        # Some versions refuse one that they have found by themselves.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def read_df(
    spark: SparkSession,
    config: PravegaConfig | str,
    stream: str | ScopedStream,
    start: Bound = "earliest",
    end: Bound = "latest",
    *,
    on_truncated: OnTruncated = "raise",
    max_partition_bytes: int | None = None,
    max_partition_events: int | None = None,
    min_partitions: int | None = None,
    columns: Iterable[str] | str | None = None,
    limit: int | None = None,
) -> DataFrame:
    """Return the events between two stream cuts as a DataFrame, with one partition for each segment range.

    The columns are ``event`` (binary), ``scope`` and ``stream`` (string), ``segment_id`` and ``offset``
    (long; the offset is that of the event's header in its segment, in bytes).

    This also works with PySpark 3.5 if pandas is installed, which PySpark requires for Arrow.

    Example::

        from pravega_wire import PravegaConfig
        from spark_adapter import read_df

        config = PravegaConfig("tcp://localhost:9090", scope="demo")
        frame = read_df(spark, config, "readings", "earliest", "latest", columns="event")
        frame.selectExpr("cast(event as string)").show()

    :param spark: the Spark session.
    :param config: connection settings, or the controller's URI as for ``open_client``; they are sent to the
        workers.
    :param stream: ``scope/stream``, or a name in the default scope.
    :param start: as for :func:`read_rdd`.
    :param end: as for :func:`read_rdd`.
    :param on_truncated: as for :func:`read_rdd`.
    :param max_partition_bytes: as for :func:`read_rdd`.
    :param max_partition_events: as for :func:`read_rdd`.
    :param min_partitions: as for :func:`read_rdd`.
    :param columns: the columns to read, in this order: names, or one text with names separated by commas.
        Spark does not leave out unused columns automatically, and ``columns="event"`` is much faster than all
        columns.
    :param limit: as for :func:`read_rdd`.
    :raises DataLossError: as for :func:`read_rdd`.
    :raises InvalidStreamCutError: as for :func:`read_rdd`.
    :raises InvalidArgumentError: there is no such column, or an argument is not valid.
    :raises MissingExtraError: PySpark is older than 4.0, and pandas is not installed.
    """
    config = settings_of(config)
    check_session(spark)
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
            max_partition_events=max_partition_events,
            min_partitions=min_partitions,
            limit=limit,
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
    """Return True if a pandas that PySpark accepts is installed.

    ``mapInArrow`` requires it without using it.
    """
    try:
        require_minimum_pandas_version()
    except ImportError:
        return False
    return True


def _mapped(
    spark: SparkSession,
    config: PravegaConfig,
    stream: ScopedStream,
    ranges: Sequence[SegmentRange],
    columns: tuple[str, ...],
    skip_lost: bool,
) -> DataFrame:
    """Return a DataFrame whose tasks each get the number of a range and read it.

    A data source would need a Python process for each plan, and its rows are slower.
    """
    count = len(ranges)
    # These are the same for all events: Spark adds them, so the worker does not have to send them.
    fixed = {"scope": stream.scope, "stream": stream.name}
    shipped = tuple(name for name in columns if name not in fixed) or ("segment_id",)
    # It needs pyarrow, which read_rdd does not.
    from spark_adapter.reading.arrow import ReadRanges

    read = ReadRanges(stream, config, tuple(ranges), shipped, skip_lost)
    rows = spark.range(0, count, 1, max(1, count)).mapInArrow(read, schema_of(shipped))
    if shipped == columns:
        return rows
    # Names of scopes and streams contain no quotes.
    return rows.selectExpr(
        *(f"'{fixed[name]}' AS `{name}`" if name in fixed else f"`{name}`" for name in columns)
    )
