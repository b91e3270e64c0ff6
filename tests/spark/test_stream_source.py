"""Streams followed by streaming queries, on a real server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from pravega_wire import PravegaConfig
from pravega_wire.sync import PravegaClient
from spark_adapter import register

Row = tuple[str, int, int, bytes]
"""Stream, segment, offset, event."""


class Followed:
    """A streaming query into memory: what each of its batches had."""

    def __init__(self, spark: SparkSession, config: PravegaConfig, folder: Path) -> None:
        register(spark)
        self.spark = spark
        self.config = config
        self.checkpoint = folder / "checkpoint"
        self.batches: dict[int, list[Row]] = {}
        self.runs: list[dict[int, list[Row]]] = []
        self.progress: list[dict[str, Any]] = []

    def start(self, trigger: Mapping[str, Any] | None = None, **options: object) -> StreamingQuery:
        found: dict[int, list[Row]] = {}
        self.runs.append(found)

        def keep(frame: DataFrame, number: int) -> None:
            rows = [(r.stream, r.segment_id, r.offset, bytes(r.event)) for r in frame.collect()]
            found[number] = self.batches[number] = rows

        reader = self.spark.readStream.format("pravega").option("controller", self.config.controller_uri)
        reader = reader.option("scope", "spark")
        for name, value in options.items():
            reader = reader.option(name, str(value))
        writer = reader.load().writeStream.foreachBatch(keep)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(**(trigger or {"processingTime": "0 seconds"})).start()

    def run(self, **options: object) -> list[Row]:
        """Reads what is there; gives the rows of this run."""
        query = self.start({"availableNow": True}, **options)
        try:
            query.awaitTermination()
        finally:
            self.progress = [json.loads(each.json) for each in query.recentProgress]
            query.stop()
        return [row for _, rows in sorted(self.runs[-1].items()) for row in rows]

    @property
    def rows(self) -> list[Row]:
        """Of all batches, in their order."""
        return [row for _, rows in sorted(self.batches.items()) for row in rows]

    def offset(self, number: int) -> dict[str, Any]:
        """The offset at which a batch ended."""
        found: dict[str, Any] = json.loads(
            (self.checkpoint / "offsets" / str(number)).read_text().split("\n")[2]
        )
        return found


@pytest.fixture
def followed(spark: SparkSession, config: PravegaConfig, tmp_path: Path) -> Followed:
    return Followed(spark, config, tmp_path)


def append(
    client: PravegaClient, stream: str, text: str, count: int, size: int = 0
) -> list[tuple[str, bytes]]:
    """Numbered events of ten keys; gives them with their keys."""
    pairs = [(f"k{n % 10}", f"{text} {n} ".encode().ljust(size, b".")) for n in range(count)]
    with client.event_writer(stream) as writer:
        writer.write_events([event for _, event in pairs], routing_keys=[key for key, _ in pairs])
    return pairs


def check(rows: list[Row], pairs: list[tuple[str, bytes]]) -> None:
    """Every event is there once, and those of each key are in the order in which they were written."""
    key_of = {event: key for key, event in pairs}
    assert sorted(event for *_, event in rows) == sorted(key_of)
    for wanted in set(key_of.values()):
        assert [e for *_, e in rows if key_of[e] == wanted] == [e for key, e in pairs if key == wanted]


def sizes(rows: list[Row]) -> int:
    return sum(8 + len(event) for *_, event in rows)


def split(client: PravegaClient, stream: str) -> None:
    """Two segments become three."""
    low, high = client.active_segments(stream)
    client.scale_stream(stream, [low.segment_id, high.segment_id], [(0.0, 0.3), (0.3, 0.7), (0.7, 1.0)])


def merge(client: PravegaClient, stream: str) -> None:
    """All segments become two, of which the borders are new."""
    ids = [each.segment_id for each in client.active_segments(stream)]
    client.scale_stream(stream, ids, [(0.0, 0.6), (0.6, 1.0)])


def test_follow(followed: Followed, client: PravegaClient, stream: str) -> None:
    pairs = append(client, stream, "a", 500)
    check(followed.run(stream=stream), pairs)
    assert followed.run(stream=stream) == []
    pairs += append(client, stream, "b", 500)
    split(client, stream)
    pairs += append(client, stream, "c", 500)
    merge(client, stream)
    pairs += append(client, stream, "d", 500)
    followed.run(stream=stream, max_bytes_per_trigger=5000)
    check(followed.rows, pairs)
    print(len(followed.runs[-1]), [sizes(each) for each in followed.runs[-1].values()])
    print(json.dumps(followed.progress[-1]["sources"][0], indent=1))
    print(followed.offset(0), followed.offset(3))
