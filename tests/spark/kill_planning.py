"""The reader of a streaming query, told of at each of its calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from spark_adapter.reading.micro_batches import PravegaStreamReader
from tests.spark.kill_source import here


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
