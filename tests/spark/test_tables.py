"""Metadata tables of a real server, and streams that are made by options."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pravega_wire import PravegaConfig, RetentionPolicy, ScalingPolicy, ScopedStream, StreamConfiguration
from pravega_wire.errors import ScopeNotFoundError, StreamNotFoundError
from pravega_wire.sync import PravegaClient, open_client
from spark_adapter import create_if_missing, metadata_df, register
from spark_adapter.options.creating import Creation, ensure_stream
from spark_adapter.tables.metadata import TABLES


def table(spark: SparkSession, config: PravegaConfig, name: str, **options: str) -> DataFrame:
    register(spark)
    given = {"controller": config.controller_uri, "scope": "spark", **options}
    return spark.read.format("pravega").options(metadata=name, **given).load()


def plain(rows: list[Any]) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in rows]


def test_tables_of_a_stream_that_was_scaled_truncated_and_sealed(
    spark: SparkSession, config: PravegaConfig, client: PravegaClient, stream: str
) -> None:
    def append(count: int) -> None:
        with client.event_writer(stream) as writer:
            writer.write_events([b"%d" % n for n in range(count)])

    append(100)
    info = table(spark, config, "streaminfo", stream=stream)
    assert info.columns == ["head_stream_cut", "tail_stream_cut"]
    row = info.head()
    assert (row.head_stream_cut, row.tail_stream_cut) == (
        client.head(stream).to_text(),
        client.tail(stream).to_text(),
    )
    # the scale replaces the lower one; then the upper one is truncated as far as it goes
    low, high = (each.segment_id for each in client.active_segments(stream))
    ends = dict(client.tail(stream).positions)
    client.scale_stream(stream, [low], [(0.0, 0.25), (0.25, 0.5)])
    left, right = sorted({each.segment_id for each in client.active_segments(stream)} - {high})
    client.truncate_stream(stream, client.tail(stream))
    append(100)
    tail = client.tail(stream)

    frame = table(spark, config, "Segments", stream=f"spark/{stream}")
    found = {row.segment_id: row for row in frame.collect()}
    assert list(found) == sorted(found)
    assert [(e.epoch, e.number, e.key_low, e.key_high) for e in found.values()] == [
        (0, 0, 0.0, 0.5),
        (0, 1, 0.5, 1.0),
        (1, 2, 0.0, 0.25),
        (1, 3, 0.25, 0.5),
    ]
    # what was truncated whole is deleted: nobody knows its length any more
    assert (found[low].start_offset, found[low].length, found[low].sealed) == (None, None, True)
    assert (found[high].start_offset, found[high].length) == (ends[high], tail.positions[high])
    assert (found[left].start_offset, found[left].length) == (0, tail.positions[left])
    assert not found[left].sealed
    assert found[left].segment == f"spark/{stream}/2.#epoch.1"
    assert found[low].successors == [left, right]
    assert found[right].predecessors == [low]
    assert found[high].successors == found[high].predecessors == []

    epochs = table(spark, config, "epochs", stream=stream)
    assert plain(epochs.collect()) == [
        (0, [low, high], [low, high], [], False),
        (1, [high, left, right], [left, right], [low], True),
    ]
    client.seal_stream(stream)
    # a frame holds what was so when it was planned
    assert [row.active for row in epochs.collect()] == [False, True]
    assert [row.active for row in metadata_df(spark, config, "epochs", stream).collect()] == [False, False]
    sealed = metadata_df(spark, config, "segments", stream)
    assert sealed.dtypes == frame.dtypes
    assert [row.sealed for row in sealed.collect()] == [True] * 4


def test_tables_of_transactions_groups_and_streams(
    spark: SparkSession, config: PravegaConfig, client: PravegaClient
) -> None:
    scope = f"tables-{uuid4().hex[:8]}"
    client.create_scope(scope)
    assert table(spark, config, "Streams", scope=scope).collect() == []
    names = [f"{scope}/one", f"{scope}/two"]
    for name in names:
        client.create_stream(name, 2)
    streams = table(spark, config, "STREAMS", scope=scope, stream="one")  # the stream changes nothing
    assert streams.columns == ["scope_name", "stream_name"]
    assert sorted(plain(streams.collect())) == [(scope, "one"), (scope, "two")]

    with client.begin_transaction(names[0]) as lost:
        lost.write_event(b"x")
        lost.abort()
    with client.begin_transaction(names[0]) as kept, client.begin_transaction(names[0]):
        kept.write_event(b"12345678")
        kept.commit()
        kept.wait_committed()
        # an open one is not there: the controller does not tell of it
        transactions = table(spark, config, "transactions", stream=names[0])
        ended = dict(client.completed_transactions(names[0]))
        assert ended.keys() == {kept.txn_id, lost.txn_id} or not ended
        assert sorted(plain(transactions.collect())) == sorted(
            (str(txn), 0, status.name) for txn, status in ended.items()
        )

    assert table(spark, config, "groups", scope=scope).count() == 0
    client.create_reader_group(f"{scope}/readers", names)
    client.create_reader_group(f"{scope}/idle", names[1:])
    with client.reader_group(f"{scope}/readers") as group, group.reader("first") as reader:
        event = reader.read_event(timeout=60)
        assert event is not None
        groups = {row.group: row for row in table(spark, config, "groups", scope=scope).collect()}
    assert groups.keys() == {"readers", "idle"}
    assert groups["readers"].online_readers == ["first"]
    assert groups["readers"].segments == 4
    assert sorted(groups["readers"].streams) == names
    assert groups["readers"].outstanding_checkpoints == []
    assert groups["readers"].unread_bytes == 16
    idle = groups["idle"]
    assert (idle.online_readers, idle.segments, idle.unassigned_segments, idle.unread_bytes) == ([], 2, 2, 0)


def test_tables_are_read_where_names_of_their_columns_are_reserved(
    spark: SparkSession, config: PravegaConfig, client: PravegaClient
) -> None:
    scope = f"reserved-{uuid4().hex[:8]}"
    client.create_scope(scope)
    client.create_stream(f"{scope}/one", 1)
    client.create_reader_group(f"{scope}/readers", [f"{scope}/one"])
    settings = ("spark.sql.ansi.enabled", "spark.sql.ansi.enforceReservedKeywords")
    before = {name: spark.conf.get(name) for name in settings}
    try:
        for name in settings:
            spark.conf.set(name, "true")
        for each in TABLES:
            columns = metadata_df(spark, config, each.name, f"{scope}/one").columns
            assert columns == [part.split()[0].strip("`") for part in each.schema.split(", ")]
        row = table(spark, config, "groups", scope=scope).head()
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
    assert (row.scope, row.group) == (scope, "readers")
    reader = spark.read.format("pravega").option("controller", config.controller_uri)
    with pytest.raises(PySparkException, match="'groups' has the columns scope string, group string"):
        reader.options(metadata="groups", scope=scope).schema("event binary").load().collect()


def test_what_is_not_there_is_told_while_planning(
    spark: SparkSession, config: PravegaConfig, client: PravegaClient
) -> None:
    for name in ("StreamInfo", "segments", "epochs", "transactions"):
        frame = table(spark, config, name, stream="nowhere")
        with pytest.raises(PySparkException, match="stream spark/nowhere does not exist") as caught:
            frame.collect()
        assert "Job aborted" not in str(caught.value)  # no task has run
    for name in ("Streams", "groups"):
        with pytest.raises(PySparkException, match="scope nowhere does not exist"):
            table(spark, config, name, scope="nowhere").collect()
    with pytest.raises(PySparkException, match="did you mean 'segments'"):
        table(spark, config, "segmets", stream="a/b")
    with pytest.raises(PySparkException, match="'end_stream_cut' cannot be used with metadata 'groups'"):
        table(spark, config, "groups", end_stream_cut="latest")
    register(spark)
    reader = spark.read.format("pravega").option("controller", config.controller_uri)
    with pytest.raises(PySparkException, match=r"'Streams' has the columns scope_name string"):
        reader.options(metadata="Streams", scope="spark").schema("event binary").load().collect()


def test_a_missing_stream_is_made_by_a_read_only_when_asked(
    spark: SparkSession, config: PravegaConfig, client: PravegaClient
) -> None:
    register(spark)
    scope = f"made-{uuid4().hex[:8]}"
    name = f"{scope}/st"
    reader = spark.read.format("pravega").option("controller", config.controller_uri).option("stream", name)
    with pytest.raises(PySparkException, match=f"stream {name} does not exist; .*allow_create_stream"):
        reader.load().collect()
    reader = reader.option("allow_create_stream", "true")
    with pytest.raises(PySparkException, match=f"scope {scope} does not exist and .*allow_create_scope"):
        reader.option("allow_create_scope", "false").load().collect()
    assert not client.scope_exists(scope)
    wanted = {
        "default_num_segments": "3",
        "default_scale_factor": "2",
        "default_segment_target_rate_bytes_per_sec": "4096",
        "default_retention_duration_milliseconds": "86400000",
    }
    assert reader.option("allow_create_scope", "true").options(**wanted).load().collect() == []
    assert client.stream_config(name) == StreamConfiguration(
        ScalingPolicy.by_data_rate(4096, 2, 3), RetentionPolicy.by_time(86_400)
    )
    with pytest.raises(PySparkException, match="'default_retention_size_bytes' cannot be used together"):
        reader.options(**wanted).option("default_retention_size_bytes", 1).load()


def test_two_jobs_make_one_stream_and_an_existing_one_is_left_alone(
    config: PravegaConfig, client: PravegaClient
) -> None:
    scope = f"race-{uuid4().hex[:8]}"
    wishes = [Creation(stream=True, config=StreamConfiguration(ScalingPolicy.fixed(n))) for n in (2, 3)]
    with open_client(config) as other, ThreadPoolExecutor(2) as threads:
        for number in range(4):
            stream = ScopedStream(scope, f"st{number}")

            def make(job: tuple[PravegaClient, Creation], stream: ScopedStream = stream) -> tuple[bool, int]:
                # whoever comes back finds the stream whole
                return ensure_stream(job[0], stream, job[1]), len(job[0].active_segments(stream))

            results = list(threads.map(make, zip((client, other), wishes, strict=True)))
            made = [made for made, _ in results]
            assert sorted(made) == [False, True]
            assert {count for _, count in results} == {wishes[made.index(True)].config.scaling.min_segments}
    here = replace(config, scope=scope)
    before = client.stream_config(stream)
    assert not create_if_missing(here, stream.name, default_num_segments=7)
    assert client.stream_config(stream) == before
    client.seal_stream(stream)  # it has no active segments now, and exists
    assert not create_if_missing(here, stream.name)
    assert create_if_missing(here, "new", default_num_segments=2, default_retention_size_bytes=10**6)
    assert client.stream_config(f"{scope}/new") == StreamConfiguration(
        ScalingPolicy.fixed(2), RetentionPolicy.by_size(10**6)
    )
    with pytest.raises(StreamNotFoundError, match="allow_create_stream"):
        ensure_stream(client, ScopedStream(scope, "other"), Creation(stream=False))
    with pytest.raises(ScopeNotFoundError, match="allow_create_scope"):
        create_if_missing(here, f"{scope}-/st", allow_create_scope=False)
