"""Rows on their way from Spark to a writer: Arrow columns as they are, and what is no event is named."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import Row

from pravega_wire import PravegaConfig, ScopedStream
from pravega_wire.errors import EventTooLargeError, InvalidArgumentError
from spark_adapter.writing import partition
from spark_adapter.writing.partition import PartitionWriter

CONFIG = PravegaConfig.from_defaults(controller_uri="tcp://h:1", scope="s", env={})


NO_TIME = -(2**63)


@pytest.fixture(autouse=True)
def task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition, "_task", lambda: SimpleNamespace(partitionId=lambda: 5))


def writer_of(**more: Any) -> PartitionWriter:
    return PartitionWriter(config=CONFIG, stream=ScopedStream("s", "t"), mode="at_least_once", **more)


def batch_of(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()], ids=str)
def test_columns_of_batches_become_chunks(kind: pa.DataType) -> None:
    texts = ["a", "", "ccc", "é"]
    whole = batch_of(
        event=pa.array(texts, pa.string()).cast(kind),
        key=pa.array(["k", None, "", "l"], pa.string()),
        at=pa.array([3, None, 9, 2], pa.int64()),
    )
    batches = [
        whole.slice(0, 0),
        whole.slice(1, 2),
        whole,
        batch_of(event=whole["event"][:1], key=pa.array(["k"]), at=pa.nulls(1, pa.int64())),
    ]
    chunks = list(writer_of(routing_key_col="key", event_time_col="at")._chunks_of_batches(batches))
    assert [chunk.listed() for chunk in chunks] == [
        ([b"", b"ccc"], [None, ""]),
        ([b"a", b"", b"ccc", "é".encode()], ["k", None, "", "l"]),
        ([b"a"], ["k"]),
    ]
    assert [chunk.nbytes for chunk in chunks] == [3, 6, 1]
    assert [chunk.timestamp for chunk in chunks] == [9, 9, None]
    without = list(writer_of()._chunks_of_batches([whole]))
    assert (without[0].keys, without[0].timestamp) == (None, None)


def test_a_null_event_is_named_with_its_place() -> None:
    batches = [batch_of(event=pa.array([b"a", b"b"])), batch_of(event=pa.array([b"c", None, None]))]
    chunks = writer_of()._chunks_of_batches(batches)
    assert next(chunks).listed() == ([b"a", b"b"], None)
    with pytest.raises(InvalidArgumentError, match=r"'event' has a null in row 3 of partition 5"):
        next(chunks)
    rows = [Row(event="a")] * 5001 + [Row(event=None)]
    row_chunks = writer_of()._chunks_of_rows(iter(rows))
    assert len(next(row_chunks).events) == 5000
    with pytest.raises(InvalidArgumentError, match=r"'event' has a null in row 5001 of partition 5"):
        next(row_chunks)


def test_what_is_no_event_is_named() -> None:
    with pytest.raises(InvalidArgumentError, match=r"'event' has int64 in row 0 of partition 5"):
        list(writer_of()._chunks_of_batches([batch_of(event=pa.array([1, 2]))]))
    with pytest.raises(InvalidArgumentError, match=r"'event' has int in row 1 of partition 5"):
        list(writer_of()._chunks_of_rows(iter([Row(event="a"), Row(event=1)])))


def test_the_greatest_time_of_a_task_may_be_zero() -> None:
    tally = partition._Tally()
    for timestamp in (0, -5, None):
        tally.add(partition.Chunk([b""], None, 0, timestamp))
    assert tally.result(0).timestamp == 0


@pytest.mark.parametrize(
    ("times", "greatest"),
    [
        ([NO_TIME, NO_TIME], None),
        ([None, NO_TIME], None),
        ([NO_TIME, NO_TIME + 1], NO_TIME + 1),
        ([NO_TIME, 0], 0),
    ],
)
def test_a_time_that_no_commit_can_have_counts_as_none(times: list[int | None], greatest: int | None) -> None:
    writer = writer_of(event_time_col="at")
    batch = batch_of(event=pa.array([b"a", b"b"]), at=pa.array(times, pa.int64()))
    assert [chunk.timestamp for chunk in writer._chunks_of_batches([batch])] == [greatest]
    rows = iter([Row(event="a", at=each) for each in times])
    assert [chunk.timestamp for chunk in writer._chunks_of_rows(rows)] == [greatest]


class Writer:
    """Refuses what is longer than 3 bytes."""

    def write_events(self, events: Any, /, *, routing_keys: Any) -> None:
        for event in events.to_pylist() if isinstance(events, pa.Array) else events:
            if len(event) > 3:
                raise EventTooLargeError("an event", size=len(event), limit=3)


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({}, "column 'event'"),
        ({"serializer": bytes}, "the serializer"),
        ({"event_from": "the row as JSON"}, "the row as JSON"),
    ],
)
@pytest.mark.parametrize("listed", [True, False])
def test_an_event_that_is_too_large_is_named_with_its_place(
    more: dict[str, Any], name: str, listed: bool
) -> None:
    events: Any = [b"abc", b"", b"abcde", b"abcdef"]
    chunk = partition.Chunk(events if listed else pa.array(events), None, 14, None)
    with pytest.raises(EventTooLargeError, match="of 5 bytes in row 12 of partition 5") as caught:
        writer_of(**more)._put(Writer(), chunk, 10)
    assert str(caught.value).startswith(f"{name} has an event")
    assert "stream s/t has at most 3 bytes" in str(caught.value)
    assert (caught.value.size, caught.value.limit, caught.value.stream) == (5, 3, "t")
