"""The sink in each mode, on a real server, with tasks that fail and leases that run out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext, inheritable_thread_target
from pyspark.errors import PythonException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from pravega_wire import PravegaConfig
from pravega_wire.errors import (
    EncodeError,
    FencedError,
    InvalidArgumentError,
    OlderCheckpointError,
    StreamNotFoundError,
    TransactionAbortedError,
)
from pravega_wire.sync import PravegaClient
from spark_adapter import STEPS, ForeachBatchSink, SinkPerStream, create_if_missing
from spark_adapter.clients import client_for
from spark_adapter.exactly_once.driver import BatchReport
from spark_adapter.exactly_once.ledger import (
    Done,
    Prepared,
    Preparing,
    Snapshot,
)
from tests.spark.helpers import (
    assert_exactly,
    files_of,
    frame_of,
    ledger_records,
    read_all,
    rows_of,
    run_query,
    staging_left,
)

SinkFactory = Callable[..., ForeachBatchSink]


@pytest.fixture
def exactly_once(config: PravegaConfig, stream: str, ledger: str) -> SinkFactory:
    """Makes sinks like those of restarted drivers: the same stream, ledger and query."""

    def make(**more: Any) -> ForeachBatchSink:
        settings = {"stream": stream, "ledger_stream": ledger, "query": "q", "routing_key_col": "key", **more}
        return ForeachBatchSink(config, mode="exactly_once", **settings)

    return make


# --- the weaker modes -----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["best_effort", "at_least_once"])
def test_weaker_modes_store_everything(
    spark: SparkSession, config: PravegaConfig, client: PravegaClient, stream: str, mode: Any
) -> None:
    sink = ForeachBatchSink(config, stream, mode=mode, routing_key_col="key")
    for batch in range(2):
        sink(frame_of(spark, batch, partitions=1), batch)
    assert_exactly(client, stream, [0, 1])
    assert sink.last_batch is not None
    assert (sink.last_batch.rows, sink.last_batch.dropped) == (200, 0)


def test_best_effort_counts_event_by_event(
    spark: SparkSession, config: PravegaConfig, client: PravegaClient, stream: str
) -> None:
    rows = [("small", "a"), ("x" * (8 * 1024 * 1024 + 1), "a"), ("also small", "b")]
    frame = spark.createDataFrame(spark.sparkContext.parallelize(rows, 1), "event string, key string")
    sink = ForeachBatchSink(config, stream, mode="best_effort", routing_key_col="key")
    sink(frame, 0)
    assert sorted(read_all(client, stream)) == ["also small", "small"]
    assert sink.last_batch is not None
    assert (sink.last_batch.rows, sink.last_batch.dropped) == (2, 1)


def test_best_effort_counts_what_was_stored_before_a_failure(
    spark: SparkSession, config: PravegaConfig, client: PravegaClient, stream: str
) -> None:
    before, after = 5000, 3000  # the first chunk of rows, and what is left

    def seal_after_the_first_chunk(row: Row) -> bytes:
        if row.id == before:
            here = client_for(config)
            while sum(each.end_offset for each in here.segment_ranges(stream)) < before * 16:
                pass
            here.seal_stream(stream)
        return b"%08d" % row.id

    frame = spark.range(0, before + after, 1, 1)
    sink = ForeachBatchSink(config, stream, mode="best_effort", serializer=seal_after_the_first_chunk)
    sink(frame, 0)
    assert len(read_all(client, stream)) == before
    assert sink.last_batch is not None
    assert (sink.last_batch.rows, sink.last_batch.nbytes) == (before, before * 8)
    assert sink.last_batch.dropped == after


@pytest.mark.spark_versions
def test_serializer_and_router_see_rows(
    spark: SparkSession, config: PravegaConfig, client: PravegaClient, stream: str
) -> None:
    def serialize(row: Row) -> bytes:
        return json.dumps(row.asDict(), sort_keys=True).encode()

    sink = ForeachBatchSink(config, stream, serializer=serialize, router=lambda row: str(row.event))
    sink(frame_of(spark, 0), 0)
    found = [json.loads(event) for event in read_all(client, stream)]
    assert sorted((each["event"], each["key"]) for each in found) == sorted(rows_of(0))


def test_wrong_columns_are_named(
    spark: SparkSession, config: PravegaConfig, client: PravegaClient, stream: str
) -> None:
    frame = frame_of(spark, 0).withColumn("number", F.lit(1))
    with pytest.raises(InvalidArgumentError, match="no column 'event2'"):
        ForeachBatchSink(config, stream, event_col="event2")(frame, 0)
    with pytest.raises(InvalidArgumentError, match="'number' has type int, not string"):
        ForeachBatchSink(config, stream, routing_key_col="number")(frame, 0)
    twice = frame.select("event", F.col("event"))
    with pytest.raises(InvalidArgumentError, match="several columns 'event'"):
        ForeachBatchSink(config, stream)(twice, 0)
    # Spark would not know which one is meant, and tell it only after the batch was claimed.
    keyed = ForeachBatchSink(config, stream, routing_key_col="key")
    named = SinkPerStream(lambda name: keyed, stream_col="target")
    claiming = ForeachBatchSink(config, stream, mode="exactly_once", query="q")
    alike = frame.selectExpr("event", "'other' AS EVENT", "key", f"'{stream}' AS target", "'x' AS Target")
    alike = alike.coalesce(1)
    with pytest.raises(InvalidArgumentError, match=r"event_col: .*\(event, EVENT\).*caseSensitive"):
        claiming(alike, 0)
    with pytest.raises(InvalidArgumentError, match=r"stream_col: .*\(target, Target\).*caseSensitive"):
        named(alike, 0)
    spark.conf.set("spark.sql.caseSensitive", True)
    try:
        named(alike, 0)
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    assert_exactly(client, stream, [0])


def test_names_of_columns_may_differ_in_case(
    spark: SparkSession, config: PravegaConfig, client: PravegaClient, stream: str
) -> None:
    frame = frame_of(spark, 0, partitions=1)
    ForeachBatchSink(config, stream, event_col="EVENT", routing_key_col="Key")(frame, 0)
    assert_exactly(client, stream, [0])


def test_columns_may_have_any_name_and_large_events_are_named(
    spark: SparkSession, client: PravegaClient, stream: str, exactly_once: SinkFactory
) -> None:
    named = frame_of(spark, 0).toDF("event_time_ms", "key.`").withColumn("at", F.lit(7))
    exactly_once(event_col="event_time_ms", routing_key_col="key.`", event_time_col="at")(named, 0)
    assert_exactly(client, stream, [0])
    named = frame_of(spark, 1).toDF("an `event`.x", "key.`")
    columns = {"event_col": "an `event`.x", "routing_key_col": "key.`"}
    large = F.expr("repeat('x', 8 * 1024 * 1024 + 1)").alias("an `event`.x")
    with pytest.raises(
        PythonException, match=rf"column 'an `event`.x' has an event of 8388609 bytes.*{stream}"
    ):
        exactly_once(**columns)(named.limit(1).select(large, F.lit("k").alias("key.`")), 1)
    exactly_once(**columns)(named, 1)
    assert_exactly(client, stream, [0, 1])


# --- exactly once ---------------------------------------------------------------------------------


def test_batches_are_written_once_and_replays_write_nothing(
    spark: SparkSession,
    client: PravegaClient,
    stream: str,
    ledger: str,
    exactly_once: SinkFactory,
) -> None:
    sink = exactly_once()
    for batch in (0, 1):
        sink(frame_of(spark, batch), batch)
    restarted = exactly_once()
    restarted(frame_of(spark, 1), 1)
    assert restarted.last_batch is not None
    assert restarted.last_batch.outcome == "skipped"
    with pytest.raises(OlderCheckpointError, match="batch 1 was already written"):
        exactly_once()(frame_of(spark, 0), 0)
    restarted = exactly_once()
    for batch in (1, 2):
        restarted(frame_of(spark, batch), batch)
    assert_exactly(client, stream, [0, 1, 2])
    assert staging_left(client, stream, ledger) == []


def test_second_call_for_a_batch_is_refused(
    spark: SparkSession, client: PravegaClient, stream: str, exactly_once: SinkFactory
) -> None:
    sink = exactly_once()
    sink(frame_of(spark, 0), 0)
    with pytest.raises(InvalidArgumentError, match=r"already written batch 0 there: .*sink_name"):
        sink(frame_of(spark, 1), 0)
    sink(frame_of(spark, 1), 1)
    with pytest.raises(InvalidArgumentError, match="already written batch 1 there"):
        sink(frame_of(spark, 2), 0)
    assert_exactly(client, stream, [0, 1])


def test_second_call_during_the_first_is_refused(
    spark: SparkSession, client: PravegaClient, stream: str, exactly_once: SinkFactory
) -> None:
    refused: list[str] = []

    def call_again(reached: str) -> None:
        # once PREPARED is in the ledger, another driver would finish the first call's transaction as its own
        if reached == "prepared" and not refused:
            with ThreadPoolExecutor(1) as threads:
                second = threads.submit(sink, frame_of(spark, 1), 0)
                with pytest.raises(InvalidArgumentError, match=r"still writing there: .*sink_name") as caught:
                    second.result()
            refused.append(str(caught.value))
            raise RuntimeError("the first call fails too")

    sink = exactly_once(crash_hook=call_again)
    with pytest.raises(RuntimeError, match="fails too"):
        sink(frame_of(spark, 0), 0)
    assert refused
    # a call that failed is over: the batch may be given again
    sink(frame_of(spark, 0), 0)
    assert_exactly(client, stream, [0])


def test_ledger_that_does_not_know_the_query_refuses_later_batches(
    spark: SparkSession, client: PravegaClient, stream: str, ledger: str, exactly_once: SinkFactory
) -> None:
    with pytest.raises(InvalidArgumentError, match=f"ledger spark/{ledger} does not exist.*new_ledger=True"):
        exactly_once()(frame_of(spark, 7), 7)
    with pytest.raises(StreamNotFoundError):
        client.revisioned_stream(ledger)
    exactly_once(query="another")(frame_of(spark, 0), 0)
    with pytest.raises(InvalidArgumentError, match=f"ledger spark/{ledger} has no record of query 'q'"):
        exactly_once()(frame_of(spark, 7), 7)
    assert_exactly(client, stream, [0])
    exactly_once(new_ledger=True)(frame_of(spark, 7), 7)
    exactly_once()(frame_of(spark, 8), 8)
    assert_exactly(client, stream, [0, 7, 8])
    client.seal_stream(ledger)
    for batch in (0, 9):
        with pytest.raises(
            InvalidArgumentError, match=f"ledger spark/{ledger} is sealed, so batch {batch} of"
        ):
            exactly_once()(frame_of(spark, batch), batch)


def test_ledger_that_is_deleted_between_two_batches(
    spark: SparkSession, client: PravegaClient, stream: str, ledger: str, exactly_once: SinkFactory
) -> None:
    sink = exactly_once()
    sink(frame_of(spark, 0), 0)
    client.seal_stream(ledger)
    client.delete_stream(ledger)
    with pytest.raises(InvalidArgumentError, match=f"ledger spark/{ledger} was deleted since"):
        sink(frame_of(spark, 1), 1)
    with pytest.raises(InvalidArgumentError, match=f"ledger spark/{ledger} does not exist.*new_ledger=True"):
        sink(frame_of(spark, 1), 1)
    exactly_once(new_ledger=True)(frame_of(spark, 1), 1)
    assert_exactly(client, stream, [0, 1])


def test_order_of_keys_holds_over_partitions(
    spark: SparkSession, client: PravegaClient, stream: str, exactly_once: SinkFactory
) -> None:
    exactly_once()(frame_of(spark, 0, partitions=7), 0)
    assert_exactly(client, stream, [0])


def test_rows_go_through_the_serializer_as_well(
    spark: SparkSession, client: PravegaClient, stream: str, exactly_once: SinkFactory
) -> None:
    sink = exactly_once(
        routing_key_col=None,
        router=lambda row: row.key,
        serializer=lambda row: row.event.encode(),
    )
    sink(frame_of(spark, 0), 0)
    assert_exactly(client, stream, [0])


def test_strings_that_are_not_utf8_beside_a_function(
    spark: SparkSession, client: PravegaClient, stream: str, exactly_once: SinkFactory
) -> None:
    """Spark gives Python other strings for them."""
    frame = spark.range(1).selectExpr("cast(X'61ff' as string) AS event", "'k' AS key")
    exactly_once(routing_key_col=None, router=lambda row: row.key)(frame, 0)
    assert [bytes(event) for events in client.read_events(stream) for event in events] == [b"a\xff"]
    named = exactly_once(routing_key_col="event", serializer=lambda row: row.key.encode(), query="keys")
    with pytest.raises(PythonException, match="EncodeError: column 'event' has a string that is not UTF-8"):
        named(frame, 0)


@pytest.mark.spark_versions
def test_failed_attempts_leave_nothing(
    spark: SparkSession,
    client: PravegaClient,
    stream: str,
    ledger: str,
    exactly_once: SinkFactory,
) -> None:
    def fail_twice(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches
        task = TaskContext.get()
        assert task is not None
        if task.attemptNumber() < 2 and task.partitionId() == 1:
            raise RuntimeError("this attempt fails after all of its rows were written")

    frame = frame_of(spark, 0, partitions=3).mapInArrow(fail_twice, "event string, key string")
    exactly_once()(frame, 0)
    assert_exactly(client, stream, [0])
    assert staging_left(client, stream, ledger) == []


def test_failed_job_leaves_nothing_and_is_written_later(
    spark: SparkSession,
    client: PravegaClient,
    stream: str,
    ledger: str,
    exactly_once: SinkFactory,
) -> None:
    def fail(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches
        raise RuntimeError("always")

    sink = exactly_once()
    with pytest.raises(Exception, match="always"):
        sink(frame_of(spark, 0).mapInArrow(fail, "event string, key string"), 0)
    assert read_all(client, stream) == []
    assert staging_left(client, stream, ledger) == []
    sink(frame_of(spark, 0), 0)
    assert_exactly(client, stream, [0])


def test_nothing_is_visible_before_the_commit(
    spark: SparkSession, client: PravegaClient, stream: str, exactly_once: SinkFactory
) -> None:
    seen: dict[str, int] = {}
    sink = exactly_once(crash_hook=lambda step: seen.update({step: len(read_all(client, stream))}))
    sink(frame_of(spark, 0), 0)
    assert list(seen) == list(STEPS)
    assert [seen[step] for step in STEPS if step != "committed"] == [0] * 7 + [200] * 2


@pytest.mark.parametrize("step", ["tidied", "staged", "merged", "prepared"])
def test_stream_scales_in_the_middle_of_a_batch(
    spark: SparkSession,
    client: PravegaClient,
    stream: str,
    ledger: str,
    exactly_once: SinkFactory,
    step: str,
) -> None:
    def scale(reached: str) -> None:
        if reached == step and len(client.active_segments(stream)) == 2:
            sealed = [each.segment_id for each in client.active_segments(stream)]
            client.scale_stream(stream, sealed, [(0.0, 0.2), (0.2, 0.6), (0.6, 1.0)])

    sink = exactly_once()
    sink(frame_of(spark, 0), 0)
    exactly_once(crash_hook=scale)(frame_of(spark, 1), 1)
    exactly_once()(frame_of(spark, 2), 2)
    assert len(client.active_segments(stream)) == 3
    assert_exactly(client, stream, [0, 1, 2])
    assert staging_left(client, stream, ledger) == []


@pytest.mark.parametrize("step", ["staged", "merged", "prepared"])
def test_lost_transaction_is_loud_and_the_batch_is_written_again(
    spark: SparkSession,
    client: PravegaClient,
    stream: str,
    ledger: str,
    exactly_once: SinkFactory,
    step: str,
) -> None:
    def abort(reached: str) -> None:
        if reached == step:
            begun = [r for r in ledger_records(client, ledger) if isinstance(r, Preparing)]
            client.abort_transaction(stream, begun[-1].txn)

    with pytest.raises(TransactionAbortedError):
        exactly_once(crash_hook=abort)(frame_of(spark, 0), 0)
    assert read_all(client, stream) == []
    exactly_once()(frame_of(spark, 0), 0)
    assert_exactly(client, stream, [0])
    assert staging_left(client, stream, ledger) == []


@pytest.mark.parametrize("step", ["claimed", "staged", "lease-renewed", "prepared", "committed"])
def test_second_driver_takes_over(
    spark: SparkSession,
    client: PravegaClient,
    stream: str,
    ledger: str,
    exactly_once: SinkFactory,
    step: str,
) -> None:
    newer = exactly_once()

    def take_over(reached: str) -> None:
        if reached == step:
            newer(frame_of(spark, 0), 0)

    older = exactly_once(crash_hook=take_over)
    if step in ("prepared", "committed"):
        older(frame_of(spark, 0), 0)
    else:
        with pytest.raises(FencedError):
            older(frame_of(spark, 0), 0)
    with pytest.raises(FencedError):
        older(frame_of(spark, 1), 1)
    newer(frame_of(spark, 1), 1)
    assert_exactly(client, stream, [0, 1])
    assert staging_left(client, stream, ledger) == []


def test_queries_share_a_ledger_which_stays_short(
    spark: SparkSession, client: PravegaClient, stream: str, ledger: str, exactly_once: SinkFactory
) -> None:
    left = exactly_once(query="left", compact_after=5)
    right = exactly_once(query="right", compact_after=5)
    for batch in range(0, 8, 2):
        left(frame_of(spark, batch), batch // 2)
        right(frame_of(spark, batch + 1), batch // 2)
    assert_exactly(client, stream, list(range(8)))
    records = ledger_records(client, ledger)
    assert isinstance(records[0], Snapshot)
    assert len(records) <= 2 * 5
    again = exactly_once(query="left")
    again(frame_of(spark, 6), 3)
    assert again.last_batch is not None
    assert again.last_batch.outcome == "skipped"


def test_event_time_is_noted_with_the_commit(
    spark: SparkSession, client: PravegaClient, stream: str, ledger: str, exactly_once: SinkFactory
) -> None:
    sink, times = exactly_once(event_time_col="at"), list[int]()
    while not (marks := client.watermarks(stream)):
        # The controller looks every few seconds.
        times.append(1_700_000_000_123 + 1000 * len(times))
        frame = frame_of(spark, len(times) - 1).withColumn("at", F.timestamp_millis(F.lit(times[-1])))
        sink(frame, len(times) - 1)
    prepared = [each for each in ledger_records(client, ledger) if isinstance(each, Prepared)]
    assert [each.timestamp for each in prepared][-1] == times[-1]
    assert times[0] <= marks[0].lower <= marks[0].upper <= times[-1]


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        ("columns", "timestamp_ntz"),
        ("serializer", "timestamp_ntz"),
        ("router", "timestamp_ntz"),
        ("serializer", "timestamp"),
        ("serializer", "bigint"),
    ],
)
def test_event_time_is_in_the_zone_of_the_session(
    spark: SparkSession,
    client: PravegaClient,
    stream: str,
    ledger: str,
    exactly_once: SinkFactory,
    made: str,
    kind: str,
) -> None:
    def plain(row: Row) -> bytes:
        assert set(row.asDict()) == {"event", "key", "at"}
        return str(row.event).encode()

    more: dict[str, Any] = {}
    if made == "serializer":
        more["serializer"] = plain
    elif made == "router":
        more |= {"router": lambda row: str(row.key), "routing_key_col": None}
    # Before 1970, and 60 microseconds before a whole millisecond.
    whole = -1_000_000_001
    before = spark.conf.get("spark.sql.session.timeZone")
    # Ahead of the zones of the workers, whichever these are.
    spark.conf.set("spark.sql.session.timeZone", "+17:30")
    try:
        at = F.timestamp_micros(F.lit(whole * 1000 + 940))
        given = F.lit(whole) if kind == "bigint" else at.cast(kind)
        exactly_once(event_time_col="at", **more)(frame_of(spark, 0).withColumn("at", given), 0)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    [prepared] = [each for each in ledger_records(client, ledger) if isinstance(each, Prepared)]
    assert prepared.timestamp == whole
    assert_exactly(client, stream, [0])


# --- under a streaming query ----------------------------------------------------------------------


@pytest.mark.spark_versions
def test_query_id_comes_from_the_checkpoint(
    spark: SparkSession,
    client: PravegaClient,
    stream: str,
    ledger: str,
    exactly_once: SinkFactory,
    tmp_path: Path,
) -> None:
    files, checkpoint = tmp_path / "files", tmp_path / "checkpoint"
    for batch in range(2):
        run_query(spark, exactly_once(query=None), files, batch + 1, checkpoint)
    assert_exactly(client, stream, [0, 1])
    saved = json.loads((checkpoint / "metadata").read_text())["id"]
    done = [each for each in ledger_records(client, ledger) if isinstance(each, Done)]
    assert [(each.query, each.batch) for each in done] == [(saved, 0), (saved, 1)]


@pytest.mark.parametrize("same_sink", [False, True])
def test_batch_is_replayed_when_spark_lost_its_own_record(
    spark: SparkSession,
    client: PravegaClient,
    stream: str,
    exactly_once: SinkFactory,
    tmp_path: Path,
    same_sink: bool,
) -> None:
    files, checkpoint = tmp_path / "files", tmp_path / "checkpoint"
    sink = exactly_once(query=None)

    def write_and_die(frame: DataFrame, batch: int) -> None:
        sink(frame, batch)
        raise RuntimeError("after the sink, before Spark's commit record")

    with pytest.raises(StreamingQueryException):
        run_query(spark, write_and_die, files, 1, checkpoint)
    restarted = sink if same_sink else exactly_once(query=None)
    run_query(spark, restarted, files, 1, checkpoint)
    assert restarted.last_batch is not None
    assert restarted.last_batch.outcome == "skipped"
    assert_exactly(client, stream, [0])


def test_two_streams_and_two_sinks_in_one_batch(
    spark: SparkSession,
    client: PravegaClient,
    stream: str,
    exactly_once: SinkFactory,
    tmp_path: Path,
) -> None:
    other = f"{stream}-other"
    client.create_stream(other, 2)
    files, checkpoint = tmp_path / "files", tmp_path / "checkpoint"
    for batch in range(2):
        sinks = [
            exactly_once(query=None),
            exactly_once(query=None, stream=other),
            exactly_once(query=None, stream=other, sink_name="extra"),
        ]

        def write(frame: DataFrame, number: int, sinks: tuple[ForeachBatchSink, ...] = tuple(sinks)) -> None:
            extra = frame.selectExpr("concat('extra ', event) as event", "key")
            for sink, rows in zip(sinks, (frame, frame, extra), strict=True):
                sink(rows, number)

        run_query(spark, write, files, batch + 1, checkpoint)
        reports = [each.last_batch for each in sinks]
        assert [(each.outcome, each.rows) for each in reports if each] == [("written", 200)] * 3
    assert_exactly(client, stream, [0, 1])
    extra = [event for event in read_all(client, other) if event.startswith("extra ")]
    assert sorted(extra) == sorted(f"extra {event}" for batch in range(2) for event, _ in rows_of(batch))
    assert len(read_all(client, other)) == 2 * len(extra)


def test_each_row_names_its_stream(
    spark: SparkSession,
    client: PravegaClient,
    stream: str,
    exactly_once: SinkFactory,
    tmp_path: Path,
) -> None:
    """The second batch names a stream that is new, and its driver dies between the two streams."""
    new, made = f"{stream}-new", []
    files, checkpoint = tmp_path / "files", tmp_path / "checkpoint"

    def per_stream(*, dies: bool) -> SinkPerStream:
        def sink_of(name: str) -> ForeachBatchSink:
            made.append(name)
            create_if_missing(client.config, name)

            def die(step: str) -> None:
                if dies and name == new:
                    raise RuntimeError("the driver died")

            return exactly_once(query=None, stream=name, crash_hook=die)

        return SinkPerStream(sink_of, stream_col="Target")

    def run(sink: SinkPerStream, batches: int) -> list[str]:
        def write(frame: DataFrame, number: int) -> None:
            is_even = F.substring("event", -1, 1).isin(*"02468")
            name = F.when(is_even | (F.lit(number) == 0), f"spark/{stream}").otherwise(new)
            # One stream may be named in two ways.
            name = F.when(F.col("key") == "key-0", stream).otherwise(name)
            frame = frame.withColumn("target", name).persist()
            sink(frame, number)
            assert frame.storageLevel.useMemory
            frame.unpersist()

        run_query(spark, write, files, batches, checkpoint)
        return [f"{name.name} {each.outcome} {each.rows}" for name, each in sink.last_batches.items()]

    assert run(per_stream(dies=False), 1) == [f"{stream} written 200"]
    with pytest.raises(StreamingQueryException, match="the driver died"):
        run(per_stream(dies=True), 2)
    assert (len(read_all(client, stream)), len(read_all(client, new))) == (300, 0)
    assert run(per_stream(dies=False), 2) == [f"{stream} skipped 0", f"{new} written 100"]
    assert len(made) == len({f"spark/{stream}", stream}) + 2 * len({f"spark/{stream}", stream, new})
    found = read_all(client, stream) + read_all(client, new)
    assert sorted(found) == sorted(event for batch in range(2) for event, _ in rows_of(batch))
    assert sorted(read_all(client, new)) == sorted(e for e, _ in rows_of(1) if e[-1] in "13579")


def test_streams_whose_names_a_collation_takes_for_one(
    spark: SparkSession, client: PravegaClient, stream: str, exactly_once: SinkFactory
) -> None:
    names = [stream, stream.upper()]

    def sink_of(name: str) -> ForeachBatchSink:
        create_if_missing(client.config, name)
        return exactly_once(stream=name)

    name = F.when(F.col("key") == "key-0", names[0]).otherwise(names[1])
    frame = frame_of(spark, 0).withColumn("target", F.collate(name, "UTF8_LCASE"))
    SinkPerStream(sink_of, stream_col="target")(frame, 0)
    assert [len(read_all(client, each)) for each in names] == [20, 180]


def test_rows_without_a_stream_and_streams_that_are_refused(
    spark: SparkSession, config: PravegaConfig, client: PravegaClient, stream: str, exactly_once: SinkFactory
) -> None:
    def write(target: str, sink: SinkPerStream, number: int = 0) -> None:
        sink(frame_of(spark, 0).withColumn("target", F.expr(target)), number)

    plain = SinkPerStream(lambda name: ForeachBatchSink(config, name), stream_col="target", most_streams=2)
    for missing in ("cast(null as string)", "''"):
        with pytest.raises(InvalidArgumentError, match=r"'target' .* in batch 0 is null or empty"):
            write(missing, plain)
    with pytest.raises(InvalidArgumentError, match="batch 0 name more than 2 streams in column 'target'"):
        write("event", plain)
    with pytest.raises(InvalidArgumentError, match="stream_col"):
        write("1", plain)
    # A sink for all other names must not lose it.
    with pytest.raises(EncodeError, match=r"'target' .* in batch 0 is not UTF-8"):
        write("cast(X'ff' as string)", SinkPerStream(lambda name: exactly_once(), stream_col="target"))
    with pytest.raises(InvalidArgumentError, match="must return a ForeachBatchSink, not NoneType"):
        write("'x'", SinkPerStream(lambda name: None, stream_col="target"))  # type: ignore[arg-type, return-value]
    assert read_all(client, stream) == []
    write(f"'{stream}'", plain)
    assert sorted(read_all(client, stream)) == sorted(event for event, _ in rows_of(0))
    # As with one stream: a ledger that does not know the query cannot tell what was written before.
    with pytest.raises(InvalidArgumentError, match=r"does not exist.*new_ledger=True"):
        write(f"'{stream}'", SinkPerStream(lambda name: exactly_once(stream=name), stream_col="target"), 7)


def test_second_write_of_a_batch_to_one_stream_is_refused(
    spark: SparkSession, client: PravegaClient, stream: str, exactly_once: SinkFactory, tmp_path: Path
) -> None:
    first, second = exactly_once(query=None), exactly_once(query=None)

    def write(frame: DataFrame, number: int) -> None:
        first(frame, number)
        frame.sparkSession.sparkContext.setJobGroup(f"a group of ones own {number}", "")
        second(frame.selectExpr("concat('more ', event) as event", "key"), number)

    with pytest.raises(StreamingQueryException, match=r"already written batch 0 there: .*sink_name"):
        run_query(spark, write, tmp_path / "files", 1, tmp_path / "checkpoint")
    assert second.last_batch is None
    # as the message says: a name for the second, which is new to the ledger
    second = exactly_once(query=None, sink_name="second")
    run_query(spark, write, tmp_path / "files", 1, tmp_path / "checkpoint")
    found = read_all(client, stream)
    wanted = [event for event, _ in rows_of(0)]
    assert sorted(found) == sorted(wanted + [f"more {event}" for event in wanted])


@pytest.mark.spark_versions
def test_parallel_write_of_a_batch_to_one_stream_is_refused(
    spark: SparkSession, client: PravegaClient, stream: str, exactly_once: SinkFactory, tmp_path: Path
) -> None:
    second = exactly_once(query=None)
    reports: list[BatchReport | None] = []

    def write(frame: DataFrame, number: int) -> None:
        def write_more() -> None:
            second(frame.selectExpr("concat('more ', event) as event", "key"), number)
            reports.append(second.last_batch)

        inherited = inheritable_thread_target(write_more)

        def start_second(reached: str) -> None:
            if reached == "prepared":
                with ThreadPoolExecutor(1) as threads:
                    threads.submit(inherited).result()

        exactly_once(query=None, crash_hook=start_second)(frame, number)

    with pytest.raises(StreamingQueryException, match=r"still writing there: .*sink_name"):
        run_query(spark, write, tmp_path / "files", 1, tmp_path / "checkpoint")
    assert reports == []
    # As the message says: a name for the second. The restart finishes batch 0 of the first without reaching
    # the step at which it starts the second.
    second = exactly_once(query=None, sink_name="second", new_ledger=True)
    run_query(spark, write, tmp_path / "files", 2, tmp_path / "checkpoint")
    assert [(each.outcome, each.batch) for each in reports if each] == [("written", 1)]
    wanted = [event for batch in range(2) for event, _ in rows_of(batch)]
    wanted += [f"more {event}" for event, _ in rows_of(1)]
    assert sorted(read_all(client, stream)) == sorted(wanted)


def test_query_without_a_checkpoint_is_refused(
    spark: SparkSession,
    client: PravegaClient,
    stream: str,
    exactly_once: SinkFactory,
    tmp_path: Path,
) -> None:
    files = files_of(spark, tmp_path / "files", 1)
    query = files.writeStream.foreachBatch(exactly_once(query=None)).start()
    with pytest.raises(StreamingQueryException, match="checkpointLocation"):
        query.awaitTermination()
    # in the default location, it survives a restart only under a name
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "default"))
    try:
        writer = files.writeStream.foreachBatch(exactly_once(query=None)).trigger(availableNow=True)
        with pytest.raises(StreamingQueryException, match="needs a query with a checkpointLocation or a q"):
            writer.start().awaitTermination()
        assert read_all(client, stream) == []
        writer.queryName("kept").start().awaitTermination()
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert_exactly(client, stream, [0])


def test_new_checkpoint_under_an_old_name_is_refused(
    spark: SparkSession,
    client: PravegaClient,
    stream: str,
    exactly_once: SinkFactory,
    tmp_path: Path,
) -> None:
    sink = exactly_once(query="name")
    run_query(spark, sink, tmp_path / "files", 1, tmp_path / "one")
    for number, again in enumerate((exactly_once(query="name"), sink)):
        with pytest.raises(StreamingQueryException, match="two checkpoints"):
            run_query(spark, again, tmp_path / "files", 1, tmp_path / f"two-{number}")
    assert_exactly(client, stream, [0])
