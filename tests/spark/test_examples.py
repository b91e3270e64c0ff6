"""The example programs, run as a user runs them; and the numbers of a query where users look for them."""

from __future__ import annotations

import json
import threading
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQueryListener

from examples.spark import parquet_to_stream, stream_join, stream_to_parquet, windowed_counts
from pravega_wire import PravegaConfig
from pravega_wire.serializers import JsonSerializer, Utf8Serializer
from pravega_wire.sync import PravegaClient
from spark_adapter import ForeachBatchSink, progress_frame, progress_rows
from spark_adapter.telemetry import query_listener
from tests.otel import Collected
from tests.spark.helpers import read_all

NOON = datetime(2026, 1, 1, 12)


def readings(first: int, count: int) -> list[Row]:
    """Rows with a time of their own: one a minute, of three sensors in turn."""
    return [
        Row(time=NOON + timedelta(minutes=number), key=f"s{number % 3}", number=number)
        for number in range(first, first + count)
    ]


def test_parquet_to_a_stream_to_parquet(
    spark: SparkSession, config: PravegaConfig, client: PravegaClient, tmp_path: Path
) -> None:
    scope = f"examples-{uuid4().hex[:8]}"
    source, sink, state = tmp_path / "source", tmp_path / "sink", tmp_path / "state.json"
    where = ["--controller", config.controller_uri, "--stream", f"{scope}/readings"]
    to_stream = [
        *where,
        "--folder",
        str(source),
        "--key",
        "key",
        "--checkpoint",
        str(tmp_path / "checkpoint"),
    ]
    to_parquet = [*where, "--folder", str(sink), "--state", str(state)]

    ends = []
    for first in (0, 60):
        spark.createDataFrame(readings(first, 60)).coalesce(1).write.mode("append").parquet(str(source))
        parquet_to_stream.main(to_stream)
        stored = [json.loads(event)["number"] for event in read_all(client, f"{scope}/readings")]
        assert sorted(stored) == list(range(first + 60))  # the new file alone was added
        stream_to_parquet.main(to_parquet)
        ends.append(json.loads(state.read_text()))
        found = spark.read.parquet(str(sink)).select("run", F.col("event").cast("string").alias("event"))
        assert sorted(json.loads(row.event)["number"] for row in found.collect()) == list(range(first + 60))
    assert [end["run"] for end in ends] == [0, 1]
    # as if the second run had been killed before it wrote where it ended
    state.write_text(json.dumps(ends[0]))
    stream_to_parquet.main(to_parquet)
    assert json.loads(state.read_text()) == ends[1]
    assert {
        row.run: row["count"] for row in spark.read.parquet(str(sink)).groupBy("run").count().collect()
    } == {
        0: 60,
        1: 60,
    }
    assert {path.name for path in tmp_path.iterdir()} == {"source", "sink", "checkpoint", "state.json"}


def append(client: PravegaClient, stream: str, events: list[dict[str, object]]) -> None:
    with client.event_writer(stream) as writer:
        writer.write_events([json.dumps(each).encode() for each in events], "one key")


def test_streams_are_joined_and_counted_over_restarts(
    spark: SparkSession, config: PravegaConfig, client: PravegaClient, tmp_path: Path
) -> None:
    scope = f"examples-{uuid4().hex[:8]}"
    client.create_scope(scope)
    orders, payments, out = f"{scope}/orders", f"{scope}/payments", f"{scope}/paid"
    for name in (orders, payments):
        client.create_stream(name, 2)

    def event(number: int, minutes: int) -> dict[str, object]:
        """One of three keys, so many minutes after its order's number says."""
        time = NOON + timedelta(minutes=number + minutes)
        return {"id": f"{number}", "time": time.isoformat(), "key": f"k{number % 3}"}

    server = ["--controller", config.controller_uri]
    join = [
        *server,
        "--left",
        orders,
        "--right",
        payments,
        "--out",
        out,
        "--checkpoint",
        str(tmp_path / "join"),
    ]
    count = [*server, "--stream", orders, "--table", f"{scope}/counts", "--key-bytes", "2"]
    count += ["--checkpoint", str(tmp_path / "count")]
    # even numbers are paid 30 minutes later, 3 and 9 too late, 7 is paid in the second run
    late = {3, 9}
    append(client, orders, [event(number, 0) for number in range(20)])
    append(
        client, payments, [event(n, 90 if n in late else 30) for n in range(20) if n % 2 == 0 or n in late]
    )
    stream_join.main(join)
    paid = [number for number in range(20) if number % 2 == 0]
    assert sorted(json.loads(each)["left"]["id"] for each in read_all(client, out)) == sorted(map(str, paid))
    windowed_counts.main(count)

    append(client, orders, [event(number, 0) for number in range(20, 30)])
    append(client, payments, [event(number, 30) for number in [7, *range(20, 30)]])
    stream_join.main(join)
    paid += [7, *range(20, 30)]
    pairs = [json.loads(each) for each in read_all(client, out)]
    assert sorted(each["left"]["id"] for each in pairs) == sorted(map(str, paid))
    assert all(each["left"]["id"] == each["right"]["id"] for each in pairs)
    windowed_counts.main(count)
    table = client.key_value_table(
        f"{scope}/counts", JsonSerializer(), primary_keys=Utf8Serializer(), secondary_keys=Utf8Serializer()
    )
    wanted = Counter((f"2026-01-01 12:{number // 10}0", f"k{number % 3}") for number in range(30))
    assert {(each.key.primary, each.key.secondary): each.value for each in table.entries()} == wanted


class Ended(StreamingQueryListener):  # pyspark is Any to mypy
    """Tells when the listeners before it have heard of a query's end."""

    def __init__(self) -> None:
        self.heard = threading.Event()

    def onQueryStarted(self, event: Any) -> None:
        """Nothing to do."""

    def onQueryProgress(self, event: Any) -> None:
        """Nothing to do."""

    def onQueryTerminated(self, event: Any) -> None:
        """It has ended."""
        self.heard.set()


def test_the_numbers_of_a_query_reach_a_notebook_and_opentelemetry(
    spark: SparkSession, config: PravegaConfig, stream: str, tmp_path: Path
) -> None:
    pytest.importorskip("pandas")
    for number in range(3):
        spark.createDataFrame(readings(10 * number, 10)).coalesce(1).write.mode("append").parquet(
            str(tmp_path / "in")
        )
    schema = spark.read.parquet(str(tmp_path / "in")).schema
    frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    sink = ForeachBatchSink(config, stream, routing_key_col="key")
    collected, ended = Collected(), Ended()
    listeners = (query_listener(collected.meter), ended)
    for listener in listeners:
        spark.streams.addListener(listener)
    try:
        query = (
            frame.selectExpr("cast(number as string) as event", "key")
            .writeStream.foreachBatch(sink)
            .queryName("numbers")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert ended.heard.wait(60)
        batches = collected.points("pravega.spark.batches")
        rows_read = collected.points("pravega.spark.rows.read")
        (whole,) = collected.points("pravega.spark.batch.duration")
        phases = {each.attributes["spark.phase"] for each in collected.points("pravega.spark.phase.duration")}
        assert [each.value for each in batches] == [3]
        assert dict(batches[0].attributes) == {"spark.query.id": str(query.id), "spark.query.name": "numbers"}
        assert [(each.attributes["spark.source"], each.value) for each in rows_read] == [(0, 30)]
        assert whole.count == 3
        assert {"addBatch", "queryPlanning", "walCommit"} <= phases
        # foreachBatch does not tell Spark what was written, and a query that has ended has no rates
        assert collected.points("pravega.spark.rows.written") == []
        assert collected.points("pravega.spark.input.rate") == []
        assert collected.points("pravega.spark.queries") == []
    finally:
        for listener in listeners:
            spark.streams.removeListener(listener)
        collected.close()

    rows = progress_rows(query)
    assert [(row["batch"], row["rows_in"], row["rows_out"]) for row in rows] == [
        (0, 10, None), (1, 10, None), (2, 10, None),
    ]  # fmt: skip
    assert whole.sum == pytest.approx(sum(row["seconds"] for row in rows))
    assert list(progress_frame(query)["rows_in"]) == [10, 10, 10]
    assert sink.last_batch is not None
    assert "<th>rows</th><td>10</td>" in sink.last_batch._repr_html_()
