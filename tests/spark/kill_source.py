"""Format ``pravega``, told of by each process that works for it: the planning of a source, tasks, the commit
of a sink.

Spark sends the class of a data source to those processes by name, so that this module is imported in each.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.types import StructType
from spark_adapter.election import ElectedCommitter
from spark_adapter.stream_source import PravegaStreamReader

from spark_adapter import PravegaDataSource
from spark_adapter.commit import BatchCommitter
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


def _note_batch(_: ElectedCommitter, batch: int, *args: Any, **options: Any) -> None:
    scene = here()
    if scene.notes.batch != batch:
        scene.notes.batch = batch
        scene.notes("batch")


def _watch(owner: type, name: str, act: Any) -> None:
    method = getattr(owner, name)

    def watched(*args: Any, **options: Any) -> Any:
        act(*args, **options)
        return method(*args, **options)

    setattr(owner, name, watched)


_watch(ElectedCommitter, "claim", _note_batch)
_watch(ElectedCommitter, "settle", _note_batch)
_watch(BatchCommitter, "_reach", lambda _, step: here().reached(step))


class WatchedDataSource(PravegaDataSource):
    """Format ``pravega``."""

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        reader = super().streamReader(schema)
        return WatchedReader(reader.options, reader.creation)


class WatchedReader(PravegaStreamReader):
    """Tells of each call before and after it."""

    def initialOffset(self) -> dict[str, Any]:
        here().reached("before initialOffset")
        offset = super().initialOffset()
        here().reached("after initialOffset")
        return offset

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        here().reached("before latestOffset")
        offset = super().latestOffset(start, limit)
        here().reached("after latestOffset")
        return offset

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
        here().reached("before partitions")
        found = super().partitions(start, end)
        here().reached("after partitions")
        return found

    def read(self, partition: Any) -> Iterator[Any]:
        here().reached("before read")
        for batch in super().read(partition):
            yield batch
            here().reached("in read")

    def commit(self, end: dict[str, Any]) -> None:
        here().reached("before commit")
        super().commit(end)
