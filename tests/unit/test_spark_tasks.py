"""Rows on their way from Spark to a writer: Arrow columns as they are, and what is no event is named."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Self

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import Row

from pravega_wire import PravegaConfig, ScopedStream
from pravega_wire.errors import EncodeError, EventTooLargeError, InvalidArgumentError
from spark_adapter.exactly_once.contents import AttemptResult
from spark_adapter.writing import partition
from spark_adapter.writing.partition import PartitionWriter, decode_result

CONFIG = PravegaConfig.from_defaults(controller_uri="tcp://h:1", scope="s", env={})


NO_TIME = -(2**63)


class Writer:
    """Notes what it is given, and refuses what is longer than the limit. It is its own client."""

    def __init__(self, limit: int = 1 << 23) -> None:
        self.limit = limit
        self.given: list[tuple[list[bytes], list[str | None] | None]] = []

    def event_writer(self, stream: ScopedStream) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def write_events(self, events: Any, /, *, routing_keys: Any) -> None:
        if isinstance(events, pa.Array):
            events = events.cast(pa.large_binary()).to_pylist()
            routing_keys = None if routing_keys is None else routing_keys.to_pylist()
        for event in events:
            if len(event) > self.limit:
                raise EventTooLargeError("an event", size=len(event), limit=self.limit)
        self.given.append((events, routing_keys))

    def flush(self) -> None:
        pass

    def metrics(self) -> Any:
        written = [event for events, _ in self.given for event in events]
        return SimpleNamespace(events_acknowledged=len(written), bytes_acknowledged=sum(map(len, written)))


@pytest.fixture(autouse=True)
def target(monkeypatch: pytest.MonkeyPatch) -> Writer:
    """Where the events go in task 5."""
    writer = Writer()
    task = SimpleNamespace(partitionId=lambda: 5)
    monkeypatch.setattr(partition, "TaskContext", SimpleNamespace(get=lambda: task))
    monkeypatch.setattr(partition, "HeldClient", lambda config: nullcontext(writer))
    return writer


def writer_of(**more: Any) -> PartitionWriter:
    return PartitionWriter(config=CONFIG, stream=ScopedStream("s", "t"), mode="at_least_once", **more)


def batch_of(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def of_batches(writer: PartitionWriter, *batches: pa.RecordBatch) -> AttemptResult:
    (result,) = writer.write_arrow(iter(batches))
    return decode_result(result["result"][0].as_py())


def of_rows(writer: PartitionWriter, rows: Iterable[Row]) -> AttemptResult:
    (result,) = writer.write_rows(iter(rows))
    return decode_result(result)


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()], ids=str)
def test_columns_of_batches_become_chunks(target: Writer, kind: pa.DataType) -> None:
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
    writer = writer_of(routing_key_col="key", event_time_col="at")
    of_batches(writer, *batches)
    assert target.given == [
        ([b"", b"ccc"], [None, ""]),
        ([b"a", b"", b"ccc", "é".encode()], ["k", None, "", "l"]),
        ([b"a"], ["k"]),
    ]
    results = [of_batches(writer, each) for each in batches]
    assert [(each.nbytes, each.timestamp) for each in results] == [(0, None), (3, 9), (6, 9), (1, None)]
    assert of_batches(writer_of(), whole).timestamp is None
    assert target.given[-1][1] is None


def test_a_null_event_is_named_with_its_place(target: Writer) -> None:
    batches = [batch_of(event=pa.array([b"a", b"b"])), batch_of(event=pa.array([b"c", None, None]))]
    with pytest.raises(InvalidArgumentError, match=r"'event' has a null in row 3 of partition 5"):
        of_batches(writer_of(), *batches)
    assert target.given == [([b"a", b"b"], None)]
    rows = [Row(event="a")] * 5001 + [Row(event=None)]
    with pytest.raises(InvalidArgumentError, match=r"'event' has a null in row 5001 of partition 5"):
        of_rows(writer_of(), rows)
    assert len(target.given[1][0]) == 5000


def test_what_is_no_event_is_named() -> None:
    with pytest.raises(InvalidArgumentError, match=r"'event' has int64 in row 0 of partition 5"):
        of_batches(writer_of(), batch_of(event=pa.array([1, 2])))
    with pytest.raises(InvalidArgumentError, match=r"'event' has int in row 1 of partition 5"):
        of_rows(writer_of(), [Row(event="a"), Row(event=1)])


def test_a_key_that_is_not_utf8_is_named_with_its_place(target: Writer) -> None:
    wrong = batch_of(event=pa.array(["a", "b", "c"]), key=pa.array([b"k", b"\xff", None]).view(pa.string()))
    right = batch_of(event=pa.array(["d"]), key=pa.array(["k"]))
    writer = writer_of(routing_key_col="key")
    for each in (writer, replace(writer, counting=True)):
        with pytest.raises(EncodeError, match=r"'key' has a string .*not UTF-8 in row 2 of partition 5"):
            of_batches(each, right, wrong)
    with pytest.raises(EncodeError, match=r"^the key has a string"):
        of_batches(replace(writer, key_from="the key"), wrong)
    target.given.clear()
    result = of_batches(replace(writer, mode="best_effort"), wrong, wrong.slice(1, 1), right)
    assert target.given == [([b"a", b"c"], ["k", None]), ([], []), ([b"d"], ["k"])]
    assert (result.rows, result.dropped) == (3, 2)
    rows = [Row(event=event, key=key) for event, key in ((b"a", b"k"), (b"b", b"\xff"), (b"c", None))]
    with pytest.raises(EncodeError, match=r"'key' has a string .*not UTF-8 in row 1 of partition 5"):
        of_rows(writer, rows)
    target.given.clear()
    result = of_rows(replace(writer, mode="best_effort"), rows)
    assert (target.given[-1], result.dropped) == (([b"a", b"c"], ["k", None]), 1)


@pytest.mark.parametrize(
    ("times", "greatest"),
    [
        ([0, -5], 0),
        ([NO_TIME, NO_TIME], None),
        ([None, NO_TIME], None),
        ([NO_TIME, NO_TIME + 1], NO_TIME + 1),
        ([NO_TIME, 0], 0),
    ],
)
def test_a_time_that_no_commit_can_have_counts_as_none(times: list[int | None], greatest: int | None) -> None:
    writer = writer_of(event_time_col="at")
    batches = [batch_of(event=pa.array([b"a"]), at=pa.array([each], pa.int64())) for each in times]
    assert of_batches(writer, *batches).timestamp == greatest
    assert of_batches(writer, pa.concat_batches(batches)).timestamp == greatest
    assert of_rows(writer, [Row(event="a", at=each) for each in times]).timestamp == greatest


@pytest.mark.parametrize(
    ("more", "name", "listed"),
    [
        ({}, "column 'event'", False),
        ({"event_from": "the row as JSON"}, "the row as JSON", False),
        ({}, "column 'event'", True),
        ({"serializer": lambda row: row.event}, "the serializer", True),
    ],
)
def test_an_event_that_is_too_large_is_named_with_its_place(
    target: Writer, more: dict[str, Any], name: str, listed: bool
) -> None:
    target.limit = 3
    whole, events = [b""] * 5000, [b"abc", b"", b"abcde", b"abcdef"]
    with pytest.raises(EventTooLargeError, match="of 5 bytes in row 5002 of partition 5") as caught:
        if listed:
            of_rows(writer_of(**more), [Row(event=each, row=Row(event=each)) for each in whole + events])
        else:
            of_batches(writer_of(**more), batch_of(event=whole), batch_of(event=events))
    assert str(caught.value).startswith(f"{name} has an event")
    assert "stream s/t has at most 3 bytes" in str(caught.value)
    assert (caught.value.size, caught.value.limit, caught.value.stream) == (5, 3, "t")
