"""Format ``pravega``, told of by each process that works for it: the planning of a source, tasks, commits.

Spark sends the class of a data source or writer to those processes by name, so that this module is imported
in each.
"""

from __future__ import annotations

import os
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.types import StructType

from spark_adapter import PravegaDataSource
from spark_adapter.exactly_once.driver import BatchCommitter, BatchReport
from spark_adapter.exactly_once.election import ElectedCommitter
from spark_adapter.writing.format_writer import StreamSink
from tests.spark.kill_hooks import Plan, Scene

_scenes: dict[int, Scene] = {}


def here() -> Scene:
    """The scene of this process: Spark forks its workers."""
    if os.getpid() not in _scenes:
        plan = Plan.of_this_process()
        assert plan is not None, "SPARK_KILLS_PLAN is not set"
        _scenes[os.getpid()] = Scene(plan)
        _scenes[os.getpid()].note_transactions()
    return _scenes[os.getpid()]


def _note_batch(_: ElectedCommitter, batch: int, *args: Any) -> None:
    scene = here()
    if scene.notes.batch != batch:
        scene.notes.batch = batch
        scene.notes("batch")


def _note_report(_: ElectedCommitter, report: BatchReport) -> None:
    here().notes("stored", outcome=report.outcome, rows=report.rows)


def _nothing(*_: Any, **__: Any) -> None:
    pass


def _watch(owner: type, name: str, before: Any, after: Any = _nothing) -> None:
    method = getattr(owner, name)

    def watched(self: Any, *args: Any) -> Any:
        before(self, *args)
        result = method(self, *args)
        after(self, result)
        return result

    setattr(owner, name, watched)


_watch(ElectedCommitter, "claim", _note_batch)
_watch(ElectedCommitter, "settle", _note_batch, _note_report)
_watch(BatchCommitter, "_reach", lambda _, step: here().reached(step))


class WatchedDataSource(PravegaDataSource):
    """Format ``pravega``."""

    def streamWriter(self, schema: StructType, overwrite: bool) -> WatchedSink:
        return WatchedSink(super().streamWriter(schema, overwrite)._plan)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from tests.spark.kill_planning import WatchedReader  # an older PySpark has no such readers

        reader = super().streamReader(schema)
        return WatchedReader(reader.options, reader.creation)


class WatchedSink(StreamSink):
    """Nothing but a reason for tasks to import this module."""
