"""The reader of ``spark.readStream.format("pravega")``: micro-batches between stream cuts.

It needs the read limits of the data source API of PySpark 4.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from pravega_wire import SegmentRange
from pravega_wire.errors import InvalidArgumentError, PravegaError
from spark_adapter.options.creating import Creation
from spark_adapter.options.read import ReadOptions
from spark_adapter.reading.admission import Limit
from spark_adapter.reading.stream_planner import StreamPlanner

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PravegaStreamReader", "RefusedStreamReader"]


class PravegaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]  # Any
    """The reader for one run of a query.

    It plans offsets and partitions in Spark's planning process, and reads rows in the workers.
    """

    def __init__(self, options: ReadOptions, creation: Creation) -> None:
        self.options = options
        self.creation = creation
        # Spark uses one object for planning, and sends another one to the workers.
        self._planner: StreamPlanner | None = None

    @property
    def _plan(self) -> StreamPlanner:
        if self._planner is None:
            self._planner = StreamPlanner(self.options, self.creation)
        return self._planner

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options, "creation": self.creation, "_planner": None}

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of this run at the current ends of the streams."""
        self._plan.fix_target()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of a batch that the options set."""
        if self.options.max_bytes is not None:
            return ReadMaxBytes(self.options.max_bytes)
        if self.options.max_events is not None:
            return ReadMaxRows(self.options.max_events)
        if self._waits:
            return ReadMinRows(self.options.min_events or 1)
        return ReadAllAvailable()

    @property
    def _waits(self) -> bool:
        return self.options.min_bytes is not None or self.options.min_events is not None

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset at which a new query starts."""
        return self._plan.initial()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the offset at which the next batch ends."""
        # A trigger that takes everything (once) gets another limit than the options set.
        wait = self._waits and not isinstance(limit, ReadAllAvailable)
        return self._plan.latest(start, self._limit(limit), wait=wait)

    def _limit(self, limit: ReadLimit) -> Limit:
        # Spark passes only one limit: if several options are set, the others are added here.
        if isinstance(limit, ReadAllAvailable | ReadMinRows):
            return Limit()
        if isinstance(limit, ReadMaxBytes):
            return Limit(limit.max_bytes, self.options.max_events)
        if isinstance(limit, ReadMaxRows):
            return Limit(self.options.max_bytes, limit.max_rows)
        raise InvalidArgumentError(
            f"format 'pravega' supports limits in bytes and in events, not {limit!r}: use the options "
            "'max_bytes_per_trigger' and 'max_events_per_trigger'"
        )

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the ends of the streams and the amount of unread data, for the query's progress."""
        return self._plan.report()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the ranges that the tasks of a batch read."""
        return [InputPartition(each) for each in self._plan.ranges(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of a partition, on a worker."""
        # For an empty list Spark creates one partition without a value.
        if isinstance(getattr(partition, "value", None), SegmentRange):
            # Only workers import this: Spark starts a process for each plan.
            from spark_adapter.reading.arrow import batches_of

            options = self.options
            yield from batches_of(
                options.config, partition.value, options.columns, skip_lost=not options.fail_on_data_loss
            )


class RefusedStreamReader(DataSourceStreamReader):  # type: ignore[misc]  # pyspark is Any to mypy
    """Stands for the reader of a query that is refused, and says why when Spark begins to use it.

    Where PySpark's process gets an error instead of a reader, it ends with one of its own, an
    ``UnboundLocalError`` (4.3).

    :param error: why the query is refused.
    """

    def __init__(self, error: PravegaError) -> None:
        self.error = error

    def getDefaultReadLimit(self) -> NoReturn:
        """Refuse the query."""
        raise self.error

    def initialOffset(self) -> NoReturn:
        """Refuse the query."""
        raise self.error

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> NoReturn:
        """Refuse the query."""
        raise self.error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> NoReturn:
        """Refuse a batch that Spark runs again, whose offsets it has."""
        raise self.error

    def read(self, partition: InputPartition) -> NoReturn:
        """Refuse the query."""
        raise self.error
