"""Streams followed by streaming queries, on a real server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
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
    """Three segments become two: the middle one has both for successors."""
    ids = [each.segment_id for each in client.active_segments(stream)]
    client.scale_stream(stream, ids, [(0.0, 0.6), (0.6, 1.0)])


def test_a_query_has_every_event_once_in_order(
    followed: Followed, client: PravegaClient, stream: str
) -> None:
    """A hundred batches over a split and a merge, with restarts; a batch that is run again is the same."""
    pairs = append(client, stream, "a", 20)
    # Started without a limit, followed while the stream scales.
    query = followed.start(stream=stream)
    try:
        query.processAllAvailable()
        check(followed.rows, pairs)
        pairs += append(client, stream, "b", 20)
        split(client, stream)
        pairs += append(client, stream, "c", 20)
        query.processAllAvailable()
        check(followed.rows, pairs)
        first = query.lastProgress
        assert first is not None
        query.processAllAvailable()  # nothing new
    finally:
        query.stop()
    before = len(followed.batches)
    # Up to now, and no further, in small batches.
    pairs += append(client, stream, "d", 300, 40)
    merge(client, stream)
    pairs += append(client, stream, "e", 300, 40)
    rows = followed.run(stream=stream, max_events_per_trigger=7, max_bytes_per_trigger=336)
    check(followed.rows, pairs)
    batches = [batch for batch in followed.runs[-1].values() if batch]
    assert len(batches) == len(followed.batches) - before > 85
    assert len(rows) == 600
    assert all(len(batch) <= 7 and sizes(batch) <= 336 for batch in batches)
    sources = [each["sources"][0] for each in followed.progress if each["numInputRows"]]
    assert [each["numInputRows"] for each in sources] == [len(batch) for batch in batches][-len(sources) :]
    assert sources[-1]["latestOffset"] == {
        "v": 1,
        "cuts": {f"spark/{stream}": client.tail(stream).to_text()},
        "backlog_bytes": 0,
        "skipped_bytes": 0,
        "skipped_segments_of_unknown_size": 0,
    }
    assert sources[-2]["latestOffset"]["backlog_bytes"] == sizes(batches[-1])
    # A data source in Python cannot name itself. If this fails, it can: docs/spark-proposals.md.
    assert "PythonMicroBatchStream" in sources[-1]["description"]
    assert sources[-1]["endOffset"] == followed.offset(max(followed.batches))
    # The driver died after the sink had written, before Spark noted it: the same rows, and then what is new.
    last = max(followed.batches)
    was = followed.batches[last]
    for name in (str(last), f".{last}.crc"):
        (followed.checkpoint / "commits" / name).unlink()
    pairs += append(client, stream, "f", 20)
    again = followed.run(stream=stream)
    assert followed.runs[-1][last] == was
    assert again[: len(was)] == was
    check(followed.rows, pairs)


def test_a_batch_waits_for_enough_events(followed: Followed, client: PravegaClient, stream: str) -> None:
    """There is no second trigger in this test that the delay begins: it is 15 minutes."""
    pairs = append(client, stream, "a", 10)
    query = followed.start(stream=stream, minOffsetsPerTrigger=50)
    try:
        query.processAllAvailable()
        check(followed.rows, pairs)
        late = append(client, stream, "b", 20)
        query.processAllAvailable()
        split(client, stream)
        late += append(client, stream, "c", 29)
        query.processAllAvailable()
        check(followed.rows, pairs)
        late += append(client, stream, "d", 10)
        query.processAllAvailable()
        assert [len(batch) for batch in followed.runs[-1].values() if batch] == [10, 59]
        pairs += late
    finally:
        query.stop()
    # It goes on waiting after a restart, also in bytes and beside a limit, but a run up to now takes all.
    pairs += append(client, stream, "e", 4)
    given: dict[str, Any] = {"stream": stream, "min_bytes_per_trigger": "10k", "max_bytes_per_trigger": "1m"}
    query = followed.start(**given, max_trigger_delay="1 day")
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert followed.runs[-1] == {}
    assert len(followed.run(**given)) == 4
    check(followed.rows, pairs)
    # So does one that takes everything at once.
    pairs += append(client, stream, "f", 5)
    query = followed.start({"once": True}, stream=stream, minOffsetsPerTrigger=50)
    query.awaitTermination()
    check(followed.rows, pairs)


def test_what_ends_a_query_is_in_its_exception(
    followed: Followed, client: PravegaClient, spark: SparkSession, config: PravegaConfig, stream: str
) -> None:
    append(client, stream, "a", 30)
    followed.run(stream=stream, columns="event,offset,segment_id,stream", max_partition_bytes=100)
    client.truncate_stream(stream, client.tail(stream))
    append(client, stream, "lost", 30)
    client.truncate_stream(stream, client.tail(stream))
    append(client, stream, "b", 30)
    with pytest.raises(PySparkException, match=rf"DataLossError: stream spark/{stream}: .*bytes \d+ to \d+"):
        followed.run(stream=stream)
    # Options are checked by load(), and a schema when the query begins.
    given = {"controller": config.controller_uri, "stream": f"spark/{stream}"}
    with pytest.raises(PySparkException, match="did you mean 'max_bytes_per_trigger'"):
        spark.readStream.format("pravega").options(**given, max_byte_per_trigger="5").load()
    # Spark asks for the columns before it says that it is no batch read, and not at all if it has a schema.
    refused = {
        "option 'limit' is for read, not for readStream": spark.readStream.format("pravega").options(limit=5),
        "remove schema": spark.readStream.format("pravega").schema("event string"),
    }
    for number, (why, reader) in enumerate(refused.items()):
        writer = reader.options(**given).load().writeStream.format("noop")
        query = writer.option("checkpointLocation", f"{followed.checkpoint}-{number}").start()
        with pytest.raises(PySparkException, match=f"InvalidArgumentError: .*{why}") as caught:
            query.awaitTermination()
        assert "UnboundLocalError" not in str(caught.value)
