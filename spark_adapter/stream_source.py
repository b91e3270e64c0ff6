"""``spark.readStream.format("pravega")``: micro-batches between stream cuts.

Needs a PySpark that has read limits in its data source API (4.2).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pravega_wire import SegmentRange
from pravega_wire.errors import InvalidArgumentError
from spark_adapter.admission import Limit
from spark_adapter.creating import Creation
from spark_adapter.options import ReadOptions
from spark_adapter.planner import StreamPlanner

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PravegaStreamReader"]


class PravegaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]  # Any
    """A run of a query: offsets and partitions in Spark's planning process, rows in the workers."""

    def __init__(self, options: ReadOptions, creation: Creation) -> None:
        self.options = options
        self.creation = creation
        # Spark plans with one object, and sends another one to the workers.
        self._planner: StreamPlanner | None = None

    @property
    def _plan(self) -> StreamPlanner:
        if self._planner is None:
            self._planner = StreamPlanner(self.options, self.creation)
        return self._planner

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options, "creation": self.creation, "_planner": None}

    def prepareForTriggerAvailableNow(self) -> None:
        """The run ends where the streams end now."""
        self._plan.fix_target()

    def getDefaultReadLimit(self) -> ReadLimit:
        """What the options limit a batch to."""
        if self.options.max_bytes is not None:
            return ReadMaxBytes(self.options.max_bytes)
        if self.options.max_events is not None:
            return ReadMaxRows(self.options.max_events)
        return ReadAllAvailable()

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins."""
        return self._plan.initial()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch ends."""
        return self._plan.latest(start, self._limit(limit))

    def _limit(self, limit: ReadLimit) -> Limit:
        # Spark has one limit at a time: where both are given, the events come with the bytes.
        if isinstance(limit, ReadAllAvailable):
            return Limit()
        if isinstance(limit, ReadMaxBytes):
            return Limit(limit.max_bytes, self.options.max_events)
        if isinstance(limit, ReadMaxRows):
            return Limit(self.options.max_bytes, limit.max_rows)
        raise InvalidArgumentError(f"format 'pravega' has limits of bytes and events, not {limit!r}")

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """For the query's progress: where the streams end, and how much is left of them."""
        return self._plan.report()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """What each task of a batch reads."""
        return [InputPartition(each) for each in self._plan.ranges(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition, on a worker."""
        # Spark makes one partition without a value of an empty list.
        if isinstance(getattr(partition, "value", None), SegmentRange):
            # Imported by the workers alone: Spark starts a process for each plan.
            from spark_adapter.arrow_reader import batches_of

            options = self.options
            yield from batches_of(
                options.config, partition.value, options.columns, skip_lost=not options.fail_on_data_loss
            )
