"""Each part of the adapter once, on whatever version of PySpark is installed.

``scripts/spark-versions`` runs this on every version that is supported, and makes a table of what each test
notes: ``works``, or what the refusal says that is needed. The rest of the tests run on the newest one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import spark_adapter
from pravega_wire import PravegaConfig
from pravega_wire.errors import InvalidArgumentError, MissingExtraError
from pravega_wire.serializers import JsonSerializer
from pravega_wire.sync import PravegaClient
from spark_adapter import ForeachBatchSink, bounded, read_df, read_rdd, register
from spark_adapter.schemas import TypedSerializer, from_pravega, to_pravega
from spark_adapter.versions import HAS_DATA_SOURCES
from tests.spark.helpers import (
    assert_exactly,
    files_of,
    frame_of,
    read_all,
    rows_of,
    run_query,
    staging_left,
)

pytestmark = pytest.mark.spark_versions

Note = Callable[[str, str], None]

WORKS = "works"
EVENTS = [event.encode() for event, _ in rows_of(0)]


@pytest.fixture
def note(record_property: Callable[[str, object], None]) -> Note:
    """Writes down a cell of the table: the part, and what came out."""

    def write(part: str, outcome: str) -> None:
        record_property("part", part)
        record_property("outcome", outcome)

    return write


def fill(client: PravegaClient, stream: str) -> None:
    with client.event_writer(stream) as writer:
        writer.write_events(EVENTS, routing_keys=[key for _, key in rows_of(0)])


def options_of(config: PravegaConfig, stream: str) -> dict[str, str]:
    return {"controller": config.controller_uri, "stream": f"spark/{stream}"}


def refused(note: Note, part: str, error: BaseException) -> None:
    """Note a refusal, which has to be a sentence of this package's own."""
    text = str(error)
    if "needs PySpark" in text:
        note(part, text[text.index("needs PySpark") :].split(" or newer")[0])
    else:
        assert "cannot be" in text, text
        assert "yet: " in text, text
        note(part, "not there yet")


@pytest.mark.smoke
def test_read_rdd(
    spark: SparkSession, config: PravegaConfig, client: PravegaClient, stream: str, note: Note
) -> None:
    fill(client, stream)
    assert sorted(read_rdd(spark.sparkContext, config, stream).collect()) == sorted(EVENTS)
    lengths = read_rdd(spark.sparkContext, config, stream, deserializer=len, max_partition_bytes=500)
    assert lengths.getNumPartitions() > 2
    assert lengths.sum() == sum(map(len, EVENTS))
    with pytest.raises(InvalidArgumentError, match=r"a SparkContext, not SparkSession: pass spark\."):
        read_rdd(spark, config, stream)
    note("`read_rdd`", WORKS)


@pytest.mark.smoke
def test_read_df(
    spark: SparkSession,
    config: PravegaConfig,
    client: PravegaClient,
    stream: str,
    note: Note,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fill(client, stream)
    frame = read_df(spark, config, stream, min_partitions=3)
    assert frame.rdd.getNumPartitions() == 3
    rows = frame.collect()
    assert sorted(bytes(row.event) for row in rows) == sorted(EVENTS)
    assert {(row.scope, row.stream) for row in rows} == {("spark", stream)}
    assert frame.where("offset > 100").count() < len(EVENTS) == frame.count()
    assert len(read_df(spark, config, stream, columns="event").take(3)) == 3
    monkeypatch.setattr(bounded, "_has_pandas", lambda: False)
    if HAS_DATA_SOURCES:
        assert read_df(spark, config, stream).collect() == rows
    else:
        with pytest.raises(MissingExtraError, match=r"read_df without pandas needs PySpark 4\.0"):
            read_df(spark, config, stream)
    note("`read_df`", WORKS)


@pytest.mark.smoke
def test_typed_columns(spark: SparkSession, note: Note) -> None:
    part = "`from_pravega`, `to_pravega`"
    numbers = TypedSerializer(JsonSerializer(), "struct<n: int>")
    events = spark.range(2).selectExpr("""cast(concat('{"n":', id, '}') as binary) event""")
    try:
        read = events.select(from_pravega("event", numbers).alias("v"))
        again = read.select(to_pravega("v", numbers).alias("event"))
    except MissingExtraError as error:
        refused(note, part, error)
        return
    assert again.collect() == events.collect()
    note(part, WORKS)


@pytest.mark.smoke
def test_format_read(
    spark: SparkSession, config: PravegaConfig, client: PravegaClient, stream: str, note: Note
) -> None:
    part = '`spark.read.format("pravega")`'
    fill(client, stream)
    try:
        register(spark)
    except MissingExtraError as error:
        assert not HAS_DATA_SOURCES
        with pytest.raises(MissingExtraError, match=r"PravegaDataSource needs PySpark 4\.0"):
            _ = spark_adapter.PravegaDataSource
        assert "PravegaDataSource" not in spark_adapter.__all__
        refused(note, part, error)
        return
    # A further session finds the format by itself.
    for session in (spark, spark.newSession()):
        rows = session.read.format("pravega").options(**options_of(config, stream)).load().collect()
        assert sorted(bytes(row.event) for row in rows) == sorted(EVENTS)
    note(part, WORKS)


@pytest.mark.smoke
def test_format_read_stream(
    spark: SparkSession,
    config: PravegaConfig,
    client: PravegaClient,
    stream: str,
    note: Note,
    tmp_path: Path,
) -> None:
    part = '`spark.readStream.format("pravega")`'
    fill(client, stream)
    found: list[bytes] = []

    def keep(frame: DataFrame, number: int) -> None:
        found.extend(bytes(row.event) for row in frame.select("event").collect())

    try:
        register(spark)
        followed = spark.readStream.format("pravega").options(**options_of(config, stream)).load()
        query = (
            followed.writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    except (MissingExtraError, PySparkException) as error:
        refused(note, part, error)
        return
    assert sorted(found) == sorted(EVENTS)
    note(part, WORKS)


@pytest.mark.smoke
def test_format_write(
    spark: SparkSession, config: PravegaConfig, client: PravegaClient, stream: str, note: Note
) -> None:
    part = '`DataFrame.write.format("pravega")`'
    try:
        register(spark)
        for semantic in ("at_least_once", "exactly_once"):
            writer = frame_of(spark, 0).select("event").write.format("pravega").mode("append")
            writer.options(**options_of(config, stream), semantic=semantic).save()
    except (MissingExtraError, PySparkException) as error:
        refused(note, part, error)
        return
    assert sorted(read_all(client, stream)) == sorted(2 * [event.decode() for event in EVENTS])
    note(part, WORKS)


@pytest.mark.smoke
def test_format_write_stream(
    spark: SparkSession,
    config: PravegaConfig,
    client: PravegaClient,
    stream: str,
    note: Note,
    tmp_path: Path,
) -> None:
    part = '`DataFrame.writeStream.format("pravega")`'
    try:
        register(spark)
        for batches in (1, 2):  # the second one goes on from the checkpoint
            query = (
                files_of(spark, tmp_path / "files", batches)
                .writeStream.format("pravega")
                .options(**options_of(config, stream), semantic="exactly_once", routing_key_col="key")
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
    except (MissingExtraError, PySparkException) as error:
        refused(note, part, error)
        return
    assert_exactly(client, stream, [0, 1])
    note(part, WORKS)


@pytest.mark.parametrize("mode", ["best_effort", "at_least_once"])
def test_sink(
    spark: SparkSession,
    config: PravegaConfig,
    client: PravegaClient,
    stream: str,
    note: Note,
    tmp_path: Path,
    mode: Any,
) -> None:
    by_column = ForeachBatchSink(config, stream, mode=mode, routing_key_col="key")
    run_query(spark, by_column, tmp_path / "files", 2, tmp_path / "one")
    assert_exactly(client, stream, [0, 1])
    assert by_column.last_batch is not None
    assert (by_column.last_batch.batch, by_column.last_batch.rows) == (1, 200)
    by_row = ForeachBatchSink(
        config, stream, mode=mode, serializer=lambda row: row.event.encode(), router=lambda row: row.key
    )
    by_row(frame_of(spark, 2, partitions=1), 2)
    assert by_row.last_batch is not None
    assert (by_row.last_batch.rows, by_row.last_batch.dropped) == (200, 0)
    assert_exactly(client, stream, [0, 1, 2])
    note(f"`ForeachBatchSink`, `{mode}`", WORKS)


@pytest.mark.smoke
def test_exactly_once_sink(
    spark: SparkSession,
    config: PravegaConfig,
    client: PravegaClient,
    stream: str,
    ledger: str,
    note: Note,
    tmp_path: Path,
) -> None:
    def sink(crash_at: str = "") -> ForeachBatchSink:
        def crash(step: str) -> None:
            if step == crash_at:
                raise RuntimeError(f"crash at {step}")

        return ForeachBatchSink(
            config,
            stream,
            mode="exactly_once",
            ledger_stream=ledger,
            routing_key_col="key",
            crash_hook=crash,
        )

    files, checkpoint = tmp_path / "files", tmp_path / "checkpoint"
    # Without a checkpoint: what is asked of Spark's own objects is answered by this version as well.
    with pytest.raises(StreamingQueryException, match="checkpointLocation"):
        run_query(spark, sink(), files, 1, None)
    for step in ("staged", "committed"):
        with pytest.raises(StreamingQueryException, match=f"crash at {step}"):
            run_query(spark, sink(step), files, 1, checkpoint)
    last = sink()
    run_query(spark, last, files, 2, checkpoint)
    assert last.last_batch is not None
    assert (last.last_batch.batch, last.last_batch.outcome) == (1, "written")
    assert_exactly(client, stream, [0, 1])
    assert staging_left(client, stream, ledger) == []

    # A second write of one batch is told from a replay by Spark's id of the run.
    def twice(frame: DataFrame, number: int) -> None:
        last(frame, number)
        sink()(frame, number)

    with pytest.raises(StreamingQueryException, match=r"already written batch 2 there"):
        run_query(spark, twice, files, 3, checkpoint)
    assert_exactly(client, stream, [0, 1, 2])
    note("`ForeachBatchSink`, `exactly_once`", WORKS)
