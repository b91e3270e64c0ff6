"""Bounded reads of a real stream."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from uuid import uuid4

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pravega_wire import PravegaConfig, StreamCut
from pravega_wire.errors import DataLossError, InvalidArgumentError
from pravega_wire.protocol.commands import Command, SegmentRead
from pravega_wire.sync import PravegaClient, open_client
from pravega_wire.testing import standalone
from pravega_wire.testing.memory.store import StoreConnection
from spark_adapter import EVENT_SCHEMA, bounded, read_df, read_rdd, register
from spark_adapter.datasource import PravegaDataSource
from spark_adapter.options.read import config_options


@dataclass(frozen=True)
class Written:
    """A stream that was scaled from two segments to three between two halves."""

    name: str
    first: list[tuple[str, bytes]]
    second: list[tuple[str, bytes]]
    middle: StreamCut

    @property
    def events(self) -> list[bytes]:
        return [event for _, event in self.first + self.second]


@pytest.fixture(scope="module")
def written(client: PravegaClient) -> Written:
    name = f"read-{uuid4().hex[:12]}"
    client.create_stream(name, 2)
    first = [(f"k{n % 20}", b"first %d" % n) for n in range(3000)]
    second = [(f"k{n % 20}", b"second %d" % n + b"." * (n % 50)) for n in range(2000)]
    for half in (first, second):
        with client.event_writer(name) as writer:
            writer.write_events([e for _, e in half], routing_keys=[k for k, _ in half])
            writer.flush()
        if half is first:
            middle = client.tail(name)
            low, high = client.active_segments(name)
            client.scale_stream(
                name,
                [low.segment_id, high.segment_id],
                [(0.0, 0.3), (0.3, 0.7), (0.7, 1.0)],
            )
    return Written(name, first, second, middle)


def by_key(pairs: list[tuple[str, bytes]], events: list[bytes]) -> dict[str, list[bytes]]:
    key_of = {event: key for key, event in pairs}
    found: dict[str, list[bytes]] = {}
    for event in events:
        found.setdefault(key_of[event], []).append(event)
    return found


def test_rdd_has_every_event_once_in_order_for_each_key(
    spark: SparkSession, config: PravegaConfig, written: Written
) -> None:
    rdd = read_rdd(spark.sparkContext, config, written.name)
    events = rdd.collect()
    assert sorted(events) == sorted(written.events)
    pairs = written.first + written.second
    assert by_key(pairs, events) == by_key(pairs, written.events)
    assert rdd.getNumPartitions() == 5  # two segments before the scale, three after it


def test_rdd_deserializes_on_the_workers(
    spark: SparkSession, config: PravegaConfig, written: Written
) -> None:
    rdd = read_rdd(spark.sparkContext, config, written.name, deserializer=len)
    assert sorted(rdd.collect()) == sorted(map(len, written.events))


def test_cuts_divide_the_stream_across_the_scale(
    spark: SparkSession, config: PravegaConfig, written: Written
) -> None:
    sc = spark.sparkContext
    before = read_rdd(sc, config, written.name, end=written.middle).collect()
    after = read_rdd(sc, config, written.name, start=written.middle.to_text()).collect()
    assert sorted(before) == sorted(event for _, event in written.first)
    assert sorted(after) == sorted(event for _, event in written.second)
    assert read_rdd(sc, config, written.name, written.middle, written.middle).collect() == []


def test_frame_has_events_with_their_places(
    spark: SparkSession, config: PravegaConfig, client: PravegaClient, written: Written
) -> None:
    frame = read_df(spark, config, written.name)
    assert frame.dtypes == [
        ("event", "binary"),
        ("scope", "string"),
        ("stream", "string"),
        ("segment_id", "bigint"),
        ("offset", "bigint"),
    ]
    rows = frame.collect()
    assert {(row.scope, row.stream) for row in rows} == {("spark", written.name)}
    wanted = [
        (bytes(event), part.segment_id, int(offset))
        for part in client.segment_ranges(written.name)
        for batch in client.read_range(part)
        for event, offset in zip(batch, batch.offsets(), strict=True)
    ]
    assert [(bytes(row.event), row.segment_id, row.offset) for row in rows] == wanted
    assert sorted(event for event, _, _ in wanted) == sorted(written.events)
    assert frame.rdd.getNumPartitions() == 5


def test_bounds_are_fixed_and_recomputing_gives_the_same(
    spark: SparkSession, config: PravegaConfig, client: PravegaClient, stream: str
) -> None:
    def append(text: bytes) -> None:
        with client.event_writer(stream) as writer:
            writer.write_events([text + b" %d" % n for n in range(500)])

    append(b"old")
    rdd = read_rdd(spark.sparkContext, config, stream)
    frame = read_df(spark, config, stream)
    parts, rows = rdd.glom().collect(), frame.collect()
    append(b"new")
    assert rdd.glom().collect() == parts
    assert frame.collect() == rows
    assert frame.where("offset > 100").count() < 500
    assert frame.count() == 500  # a filter of one query must not stay in the frame
    assert read_rdd(spark.sparkContext, config, stream).count() == 1000


def test_empty_stream_gives_no_rows(spark: SparkSession, config: PravegaConfig, stream: str) -> None:
    assert read_rdd(spark.sparkContext, config, stream).collect() == []
    assert read_df(spark, config, stream, min_partitions=3).collect() == []


@pytest.mark.parametrize("pandas", [True, False], ids=["pandas", "without pandas"])
def test_columns_and_partitions_are_chosen(
    spark: SparkSession,
    config: PravegaConfig,
    written: Written,
    monkeypatch: pytest.MonkeyPatch,
    pandas: bool,
) -> None:
    """Without pandas, which PySpark asks for in mapInArrow, a data source gives the same rows."""
    monkeypatch.setattr(bounded, "_has_pandas", lambda: pandas)
    whole = read_df(spark, config, written.name, columns=["offset", "stream", "event", "segment_id"])
    plan = whole._jdf.queryExecution().toString()
    assert (f"MapInArrow pravega {config.scope}/{written.name}: 5 ranges, " in plan) == pandas
    assert ("BatchScan" in plan) == (not pandas)
    rows = whole.collect()
    assert whole.columns == ["offset", "stream", "event", "segment_id"]
    assert {row.stream for row in rows} == {written.name}
    assert sorted(bytes(row.event) for row in rows) == sorted(written.events)
    assert [(row.segment_id, row.offset) for row in rows] == sorted((r.segment_id, r.offset) for r in rows)

    split = read_df(spark, config, written.name, columns="event", min_partitions=9)
    parts = split.rdd.glom().collect()
    assert [row.event for part in parts for row in part] == [row.event for row in rows]
    assert len(parts) == 9
    assert all(parts)
    assert read_df(spark, config, written.name, columns="scope").distinct().collect() == [("spark",)]
    again = split.cache().union(split.repartition(2)).groupBy("event").count().where("count <> 2")
    assert again.count() == 0
    split.unpersist()
    with pytest.raises(InvalidArgumentError, match="did you mean 'offset'"):
        read_df(spark, config, written.name, columns="ofset")
    with pytest.raises(InvalidArgumentError, match="min_partitions must be a whole number from 1 to 1000000"):
        read_df(spark, config, written.name, min_partitions=0)


def test_format_takes_options_and_cuts(spark: SparkSession, config: PravegaConfig, written: Written) -> None:
    register(spark)
    frame = (
        spark.read.format("pravega")
        .option("controller", config.controller_uri)
        .option("scope", "spark")
        .option("stream", written.name)
        .option("endingOffsets", json.dumps({f"spark/{written.name}": written.middle.to_text()}))
        .option("include_metadata", "false")
        .option("minPartitions", 5)
        .load()
    )
    assert frame.rdd.getNumPartitions() == 5
    assert sorted(bytes(row.event) for row in frame.collect()) == sorted(e for _, e in written.first)
    assert frame.dtypes == [("event", "binary")]
    # A data source in Python cannot name itself. If this fails, it can: docs/spark-proposals.md.
    assert "] (Python)" in frame._jdf.queryExecution().toString()


def test_a_limit_reads_the_first_events(spark: SparkSession, config: PravegaConfig, written: Written) -> None:
    register(spark)
    whole = [row.event for row in read_df(spark, config, written.name, columns="event").collect()]
    for limit in (1, 1500, 10_000):
        frame = read_df(spark, config, written.name, columns="event", limit=limit)
        assert [row.event for row in frame.collect()] == whole[:limit]
        # No task for what comes after.
        assert limit > 1 or frame.rdd.getNumPartitions() == 1
        assert read_rdd(spark.sparkContext, config, written.name, limit=limit).collect() == whole[:limit]
    named = spark.read.format("pravega").option("controller", config.controller_uri)
    named = named.option("stream", f"spark/{written.name}").option("limit", 1500)
    divided = named.option("max_partition_bytes", "2k").load()
    assert [row.event for row in divided.collect()] == whole[:1500]
    assert divided.rdd.getNumPartitions() > 4
    with pytest.raises(InvalidArgumentError, match="limit must be a whole number from 1, not 0"):
        read_df(spark, config, written.name, limit=0)


def test_a_few_rows_of_a_long_stream_are_read_from_its_beginning(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two segments of 60 MB. The server in memory is in this process, so what it sends can be counted."""
    sent: Counter[str] = Counter()
    send = StoreConnection.send

    def count_and_send(connection: StoreConnection, reply: Command) -> None:
        if isinstance(reply, SegmentRead):
            sent[reply.segment] += len(reply.data)
        send(connection, reply)

    register(spark)
    with standalone(kind="memory") as server, open_client(server.config("long")) as client:
        client.create_scope("long")
        client.create_stream("st", 2)
        with client.event_writer("st") as writer:
            keys = [str(n) for n in range(120_000)]
            writer.write_events([b"." * 1000] * len(keys), routing_keys=keys)
        named = spark.read.format("pravega").option("controller", server.controller_uri)
        monkeypatch.setattr(StoreConnection, "send", count_and_send)
        for frame in (read_df(spark, client.config, "st"), named.option("stream", "long/st").load()):
            sent.clear()
            assert len(frame.head(21)) == 21
            # The rest of the partition, and the other one, are not read.
            assert len(sent) == 1
            assert sent.total() < 40e6  # mostly ten, but more requests are under way to a slow server
        sent.clear()
        assert read_df(spark, client.config, "st", limit=1000).count() == 1000
        assert len(sent) == 1
        assert sent.total() < 40e6


def test_format_refuses_unknown_options(spark: SparkSession, written: Written) -> None:
    register(spark)
    with pytest.raises(PySparkException, match="did you mean 'start_stream_cut'"):
        spark.read.format("pravega").option("start_stream_cutt", "x").load()


def test_format_refuses_another_schema_while_planning(
    spark: SparkSession, config: PravegaConfig, written: Written
) -> None:
    register(spark)
    reader = spark.read.format("pravega").option("controller", config.controller_uri)
    reader = reader.option("stream", f"spark/{written.name}")
    wrong = reader.schema("event string").load()
    with pytest.raises(PySparkException, match=r"event binary, scope string.*not event string") as caught:
        wrong.collect()
    assert "Job aborted" not in str(caught.value)  # no task has run
    same = reader.schema(EVENT_SCHEMA).load()
    assert same.count() == len(written.events)


def test_columns_are_read_where_their_names_are_reserved(
    spark: SparkSession, config: PravegaConfig, written: Written
) -> None:
    register(spark)
    settings = ("spark.sql.ansi.enabled", "spark.sql.ansi.enforceReservedKeywords")
    before = {name: spark.conf.get(name) for name in settings}
    columns = ["event", "scope", "stream", "segment_id", "offset"]
    try:
        for name in settings:
            spark.conf.set(name, "true")
        frame = read_df(spark, config, written.name)
        reader = spark.read.format("pravega").option("controller", config.controller_uri)
        same = reader.option("stream", f"spark/{written.name}").load()
        for each in (frame, same):
            assert each.columns == columns
            assert each.count() == len(written.events)
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def test_batches_without_a_limit_are_refused_by_spark_for_the_format_alone(
    spark: SparkSession, config: PravegaConfig, written: Written
) -> None:
    register(spark)
    setting = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(setting)
    try:
        spark.conf.set(setting, "0")
        assert read_df(spark, config, written.name).count() == len(written.events)
        reader = spark.read.format("pravega").option("controller", config.controller_uri)
        with pytest.raises(PySparkException, match="maximum arrow batch size should be greater than 0"):
            reader.option("stream", f"spark/{written.name}").load().count()
    finally:
        spark.conf.set(setting, before)


def test_an_end_that_nothing_comes_before_is_refused(
    spark: SparkSession, config: PravegaConfig, written: Written
) -> None:
    with pytest.raises(InvalidArgumentError, match="end must not be 'earliest'"):
        read_rdd(spark.sparkContext, config, written.name, end="earliest")
    with pytest.raises(InvalidArgumentError, match="end must not be 'earliest'"):
        read_df(spark, config, written.name, end="earliest")
    register(spark)
    with pytest.raises(PySparkException, match="'end_stream_cut' must not be 'earliest'"):
        spark.read.format("pravega").option("stream", "a/b").option("end_stream_cut", "earliest").load()


def test_truncated_data_fails_unless_told_otherwise(
    spark: SparkSession,
    config: PravegaConfig,
    client: PravegaClient,
    stream: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    beginning = client.head(stream)
    with client.event_writer(stream) as writer:
        writer.write_events([b"gone %d" % n for n in range(100)])
    middle = client.tail(stream)
    with client.event_writer(stream) as writer:
        writer.write_events([b"left %d" % n for n in range(20)])
    stale = read_rdd(spark.sparkContext, config, stream)
    lenient = {"stream": str(config.resolve(stream)), "fail_on_data_loss": "false"}
    stale_reader = PravegaDataSource({**config_options(config), **lenient}).reader(
        spark.createDataFrame([], EVENT_SCHEMA).schema
    )
    stale_parts = stale_reader.partitions()
    skipping = [
        read_rdd(spark.sparkContext, config, stream, on_truncated="skip_to_head"),
        read_df(spark, config, stream, columns="event", on_truncated="skip_to_head").rdd.map(
            lambda row: bytes(row.event)
        ),
    ]
    client.truncate_stream(stream, middle)
    # Truncated after the plan was made: the tasks skip it where that is allowed.
    for planned in skipping:
        assert sorted(planned.collect()) == sorted(b"left %d" % n for n in range(20))
    assert sum(batch.num_rows for part in stale_parts for batch in stale_reader.read(part)) == 20
    caplog.clear()
    client.truncate_stream(stream, client.tail(stream))
    with client.event_writer(stream) as writer:
        writer.write_events([b"here %d" % n for n in range(50)])
    with pytest.raises(DataLossError):
        read_rdd(spark.sparkContext, config, stream, beginning)
    with pytest.raises(DataLossError):
        read_df(spark, config, stream, beginning)
    assert caplog.records == []
    kept = read_rdd(spark.sparkContext, config, stream, beginning, on_truncated="skip_to_head")
    assert sorted(kept.collect()) == sorted(b"here %d" % n for n in range(50))
    # The driver says what is missing, when it looks for the ranges.
    lost = {
        f"stream {config.resolve(stream)}, segment {config.resolve(stream)}/{segment_id}.#epoch.0: "
        f"{offset} bytes were truncated before a reader between two cuts read them; "
        f"skipping from offset 0 to {offset}"
        for segment_id, offset in client.head(stream).positions.items()
    }
    assert {each.getMessage() for each in caplog.records if "skipping" in each.name} == lost
    assert {each.levelname for each in caplog.records if "skipping" in each.name} == {"WARNING"}
    # The data source says it where Spark plans: a process whose standard error is the driver's.
    caplog.clear()
    options = {**config_options(config), "stream": str(config.resolve(stream)), "failOnDataLoss": "false"}
    source = PravegaDataSource({**options, "start_stream_cut": beginning.to_text()})
    schema = spark.createDataFrame([], EVENT_SCHEMA).schema
    assert len(source.reader(schema).partitions()) == 2
    assert {each.getMessage() for each in caplog.records if "skipping" in each.name} == lost
    with pytest.raises(Exception, match="truncated"):
        stale.count()


def test_events_that_cross_the_chunks_of_a_read_arrive_whole(
    spark: SparkSession, config: PravegaConfig, client: PravegaClient, stream: str
) -> None:
    events = [b"%d:" % n + b"x" * (n % 331) for n in range(60_000)]
    with client.event_writer(stream) as writer:
        writer.write_events(events, routing_keys=[str(n % 7) for n in range(len(events))])
        writer.flush()
    assert sorted(read_rdd(spark.sparkContext, config, stream).collect()) == sorted(events)
    assert read_df(spark, config, stream).count() == len(events)


def test_one_segment_gives_several_partitions_that_are_the_whole_in_order(
    spark: SparkSession, config: PravegaConfig, client: PravegaClient
) -> None:
    name = f"split-{uuid4().hex[:12]}"
    client.create_stream(name, 1)
    events = [b"%d:" % n + b"x" * (n % 500) for n in range(8000)]
    events[4000:4000] = [b"large" * 300_000]
    with client.event_writer(name) as writer:
        writer.write_events(events)
    few = read_rdd(spark.sparkContext, config, name, min_partitions=4).glom().map(len).collect()
    assert (len(few), sum(few)) == (4, len(events))
    limit = 200_000
    rdd = read_rdd(spark.sparkContext, config, name, max_partition_bytes=limit)
    parts = rdd.glom().collect()
    assert sum(parts, []) == events  # noqa: RUF017
    assert len(parts) > 8
    assert all(sum(len(each) + 8 for each in part) <= limit or len(part) == 1 for part in parts)
    assert sum(len(part) == 1 for part in parts) == 1
    counted = read_rdd(spark.sparkContext, config, name, max_partition_events=3000).glom().collect()
    assert [len(part) for part in counted] == [3000, 3000, 2001]
    assert sum(counted, []) == events  # noqa: RUF017
    whole = read_df(spark, config, name)
    split = read_df(spark, config, name, max_partition_bytes=limit)
    register(spark)
    loaded = (
        spark.read.format("pravega")
        .option("controller", config.controller_uri)
        .option("stream", f"spark/{name}")
        .option("max_partition_bytes", limit)
        .load()
    )
    rows = whole.collect()
    assert whole.rdd.getNumPartitions() == 1
    assert [bytes(row.event) for row in rows] == events
    for frame in (split, loaded):
        assert frame.rdd.getNumPartitions() == len(parts)
        assert frame.collect() == rows
