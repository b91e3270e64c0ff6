"""``write.format("pravega")`` and ``writeStream.format("pravega")`` on a real server."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pravega_wire import PravegaConfig
from pravega_wire.errors import RetriesExhaustedError, StreamNotFoundError
from pravega_wire.sync import PravegaClient
from spark_adapter import ForeachBatchSink, PravegaDataSource, register
from spark_adapter.clients import client_for
from spark_adapter.exactly_once.ledger import Done, Preparing, Staging
from spark_adapter.options.read import config_options
from tests.spark.helpers import (
    assert_exactly,
    frame_of,
    ledger_records,
    read_all,
    rows_of,
    staging_left,
)
from tests.spark.test_crash import run_until_killed


@pytest.fixture
def options(spark: SparkSession, config: PravegaConfig, stream: str, ledger: str) -> dict[str, str]:
    """Options of a write to the test's stream, with its ledger."""
    register(spark)
    return {**config_options(config), "stream": stream, "ledger_stream": ledger, "routing_key_col": "key"}


def test_a_thread_and_a_further_session_find_the_format(
    spark: SparkSession, client: PravegaClient, options: dict[str, str], stream: str
) -> None:
    """Spark looks a format up in the active session of the thread."""
    frame = frame_of(spark, 0)

    def write() -> int:
        register(spark)
        frame.write.format("pravega").options(**options).mode("append").save()
        other = spark.newSession()
        register(other)
        reader = other.read.format("pravega").option("controller", options["controller"])
        return int(reader.option("stream", f"spark/{stream}").load().count())

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(write).result() == len(rows_of(0))
    assert_exactly(client, stream, [0])


class Source:
    """A streaming query over a folder: each of its batches is one file."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.files = folder / "in"
        self.files.mkdir(parents=True, exist_ok=True)
        self.checkpoint = folder / "checkpoint"

    def add(self, *batches: int) -> None:
        """A file for each of these batches (:func:`rows_of`); none has no rows below zero."""
        for batch in batches:
            lines = [json.dumps({"event": event, "key": key}) + "\n" for event, key in rows_of(batch)]
            path = self.files / f"{batch:04}.json"
            path.write_text("".join(lines))
            os.utime(path, (batch, batch))  # Spark takes files in the order of their times

    def frame(self) -> DataFrame:
        """What the query reads."""
        reader = self.spark.readStream.schema("event string, key string").option("maxFilesPerTrigger", 1)
        return reader.json(str(self.files))

    def run(self, options: dict[str, str], frame: DataFrame | None = None) -> Any:
        """Run the query on all there is."""
        writer = (self.frame() if frame is None else frame).writeStream.format("pravega").options(**options)
        query = writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()
        return query


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> Source:
    """An empty folder to read from."""
    return Source(spark, tmp_path)


def test_batches_are_written_once_and_replays_write_nothing(
    client: PravegaClient, source: Source, options: dict[str, str], stream: str, ledger: str
) -> None:
    source.add(0, 1, 2)
    # the first batch has no rows at all, and the second is in two partitions
    frame = source.frame().where(~F.col("event").startswith("0:"))
    query = source.run(options, frame)
    assert [each["sink"]["numOutputRows"] for each in query.recentProgress] == [0, 200, 200]
    assert_exactly(client, stream, [1, 2])
    written = ledger_records(client, ledger)
    assert sum(isinstance(record, Done) for record in written) == 3
    # as if the driver had died between the sink's commit and Spark's
    (source.checkpoint / "commits" / "2").unlink()
    (source.checkpoint / "commits" / ".2.crc").unlink(missing_ok=True)
    source.run(options, frame)
    assert ledger_records(client, ledger) == written
    # more of Spark's commits are lost
    for name in ("1", "2"):
        (source.checkpoint / "commits" / name).unlink()
        (source.checkpoint / "commits" / f".{name}.crc").unlink(missing_ok=True)
    source.add(3)
    source.run(options, frame)
    assert_exactly(client, stream, [1, 2, 3])
    assert staging_left(client, stream, ledger) == []


def test_a_first_write_makes_scope_stream_and_ledger(
    spark: SparkSession, config: PravegaConfig, client: PravegaClient, source: Source, options: dict[str, str]
) -> None:
    # The ledger has its usual name, so it is in the scope that is missing too.
    del options["ledger_stream"]
    batch, query = (f"new-{uuid4().hex[:12]}" for _ in range(2))
    writer = frame_of(spark, 0).write.format("pravega").options(**options | {"stream": f"{batch}/made"})
    writer.option("job_id", "first").mode("append").save()
    source.add(0)
    source.run(options | {"stream": f"{query}/made"})
    for scope in (batch, query):
        assert_exactly(client, f"{scope}/made", [0])
        assert {each.name for each in client.list_streams(scope)} == {"made", "made-spark-ledger"}


def misbehave(
    config: PravegaConfig, ledger: str, folder: Path
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Passes rows through; once, when the sink has begun to stage them, does what a file in a folder says."""

    def until_staging(batch: int) -> list[Any]:
        for _ in range(600):
            with suppress(StreamNotFoundError):
                records = ledger_records(client_for(config), ledger)
                if any(isinstance(each, Staging) and each.batch == batch for each in records):
                    return records
            time.sleep(0.1)  # a ledger tells nobody of a new record
        raise AssertionError(f"nothing of batch {batch} was staged")

    def passing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            for wish in folder.glob("*.once") if number == 8 else ():
                records = until_staging(int(wish.read_text()))
                wish.unlink()
                if wish.stem == "fail":
                    raise ValueError("this attempt fails")
                (*_, claim) = (each for each in records if isinstance(each, Preparing))
                assert claim.stream is not None
                client_for(config).abort_transaction(claim.stream, claim.txn)
            # so large that the rows do not wait in some buffer
            padding = pa.array(["x" * 10_000] * batch.num_rows)
            yield pa.RecordBatch.from_arrays([*batch.columns, padding], ["event", "key", "padding"])

    return passing


def test_failed_tasks_aborted_transactions_and_wrong_ledgers(
    spark: SparkSession,
    config: PravegaConfig,
    client: PravegaClient,
    source: Source,
    options: dict[str, str],
    stream: str,
    ledger: str,
    tmp_path: Path,
) -> None:
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "20")
    try:
        frame = source.frame().mapInArrow(
            misbehave(config, ledger, tmp_path), "event string, key string, padding string"
        )
        (tmp_path / "fail.once").write_text("0")
        source.add(0)
        source.run(options, frame)
        assert_exactly(client, stream, [0])
        assert not (tmp_path / "fail.once").exists()
        assert sum(isinstance(each, Staging) for each in ledger_records(client, ledger)) == 2
        (tmp_path / "abort.once").write_text("1")
        source.add(1)
        with pytest.raises(StreamingQueryException, match="its lease of 120 s"):
            source.run(options, frame)
        assert_exactly(client, stream, [0])
        source.run(options, frame)
        assert_exactly(client, stream, [0, 1])
        assert staging_left(client, stream, ledger) == []
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    source.add(2)
    with pytest.raises(StreamingQueryException, match=r"does not exist, but batch 2 .* set new_ledger=True"):
        source.run({**options, "ledger_stream": f"{ledger}-mistyped"})
    assert_exactly(client, stream, [0, 1])


def test_streaming_writes_that_are_refused_and_the_other_semantics(
    spark: SparkSession, client: PravegaClient, source: Source, options: dict[str, str], stream: str
) -> None:
    source.add(0)
    # Spark's own refusal, on which exactly once relies
    with pytest.raises(PySparkException, match="checkpointLocation must be specified"):
        source.frame().writeStream.format("pravega").options(**options).start()
    # and where it would make a new checkpoint at each start
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(source.checkpoint))
    try:
        with pytest.raises(PySparkException, match="needs the option checkpointLocation or a queryName"):
            query = source.frame().writeStream.format("pravega").options(**options).start()
            query.awaitTermination()
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    with pytest.raises(PySparkException, match=r"'routing_key_col': there is no column 'kee'"):
        source.run({**options, "routing_key_col": "kee"})
    # A stream is append-only. Spark asks the data source in the query's own thread, so start() returns.
    counted = source.frame().groupBy("event", "key").count()
    for mode, message in (
        ("complete", "append-only, so format 'pravega' cannot overwrite.*outputMode"),
        ("update", "pravega does not support Update mode"),
    ):
        folder = Path(f"{source.checkpoint}-{mode}")
        given = {**options, "stream": f"{stream}-{mode}", "checkpointLocation": str(folder)}
        writer = counted.writeStream.format("pravega").options(**given).outputMode(mode)
        query = writer.trigger(availableNow=True).start()
        with pytest.raises(StreamingQueryException, match=message):
            query.awaitTermination()
        assert query.exception() is not None
        # Nothing was written, or made.
        assert not list((folder / "commits").iterdir())
        assert not client.stream_exists(f"{stream}-{mode}")
        assert not client.stream_exists(options["ledger_stream"])
    shutil.rmtree(source.checkpoint)
    assert read_all(client, stream) == []
    del options["ledger_stream"]
    source.run({**options, "exactly_once": "false"})
    assert_exactly(client, stream, [0])
    # A batch may be saved by a function of the query.
    source.add(1)

    def save(frame: DataFrame, number: int) -> None:
        append(frame, options, job_id=f"batch-{number}")

    place = str(source.checkpoint) + "-saved"
    query = source.frame().writeStream.foreachBatch(save).option("checkpointLocation", place)
    query.trigger(availableNow=True).start().awaitTermination()
    assert len(read_all(client, stream)) == 3 * len(rows_of(0))
    # A query that reads what it writes
    place = str(source.checkpoint) + "-own"
    given = {name: value for name, value in options.items() if name in ("controller", "scope", "stream")}
    own = spark.readStream.format("pravega").options(**given).load().writeStream.format("pravega")
    own = own.options(**given, semantic="at_least_once", checkpointLocation=place)
    with pytest.raises(PySparkException, match=r"the query reads stream .*allow_same_stream=true"):
        own.trigger(availableNow=True).start().awaitTermination()
    own.option("allow_same_stream", True).trigger(availableNow=True).start().awaitTermination()
    assert len(read_all(client, stream)) == 6 * len(rows_of(0))
    sink = ForeachBatchSink(given["controller"], f"{given['scope']}/{stream}")
    read = spark.readStream.format("pravega").options(**given).load()
    by_function = read.writeStream.foreachBatch(sink).option("checkpointLocation", place + "-function")
    with pytest.raises(StreamingQueryException, match=r"the query reads stream .*allow_same_stream=true"):
        by_function.trigger(availableNow=True).start().awaitTermination()
    assert len(read_all(client, stream)) == 6 * len(rows_of(0))


def test_a_query_that_finds_the_stream_that_it_writes(
    spark: SparkSession, config: PravegaConfig, client: PravegaClient, tmp_path: Path
) -> None:
    register(spark)
    found = f"found-{uuid4().hex[:12]}"
    client.create_stream(f"{found}-in", 1)

    def feed() -> None:
        with client.event_writer(f"{found}-in") as writer:
            writer.write_events([b"a", b"b"])

    sink = ForeachBatchSink(config, f"{found}-out")

    def write(frame: DataFrame, number: int) -> None:
        if not client.stream_exists(f"{found}-out"):
            client.create_stream(f"{found}-out", 1)
        sink(frame, number)

    source = spark.readStream.format("pravega").options(**config_options(config))
    source = source.option("stream_pattern", f"{found}-.*").option("start_stream_cut", "earliest").load()
    writer = source.writeStream.foreachBatch(write).trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(tmp_path / "found"))
    feed()
    writer.start().awaitTermination()
    feed()
    with pytest.raises(StreamingQueryException, match=r"the query reads stream .*allow_same_stream=true"):
        writer.start().awaitTermination()
    assert len(read_all(client, f"{found}-out")) == 2
    # By format name, with a checkpoint whose place only the session knows
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path))
    try:
        own = spark.readStream.format("pravega").options(**config_options(config))
        own = own.option("stream", f"{found}-in").load().writeStream.format("pravega")
        own = own.options(**config_options(config), stream=f"{found}-in").queryName("own")
        with pytest.raises(PySparkException, match=r"the query reads stream .*allow_same_stream=true"):
            own.trigger(availableNow=True).start().awaitTermination()
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")


def append(frame: DataFrame, options: dict[str, str], **more: str) -> None:
    """Write a frame."""
    frame.write.format("pravega").options(**{**options, **more}).mode("append").save()


def test_strings_with_a_length(
    spark: SparkSession, client: PravegaClient, options: dict[str, str], stream: str
) -> None:
    spark.conf.set("spark.sql.preserveCharVarcharTypeInfo", True)
    try:
        frame = frame_of(spark, 0).selectExpr("cast(event as varchar(9)) event", "cast(key as char(9)) key")
        assert [each.dataType.simpleString() for each in frame.schema] == ["varchar(9)", "char(9)"]
        append(frame, options)
        ForeachBatchSink(options["controller"], f"{options['scope']}/{stream}", routing_key_col="key")(
            frame, 0
        )
    finally:
        spark.conf.unset("spark.sql.preserveCharVarcharTypeInfo")
    assert sorted(read_all(client, stream)) == sorted(event for event, _ in rows_of(0) * 2)


def test_jobs_are_written_whole_and_a_named_one_once(
    spark: SparkSession, client: PravegaClient, options: dict[str, str], stream: str, ledger: str
) -> None:
    append(frame_of(spark, 0, 16), options, job_id="load-0")
    assert_exactly(client, stream, [0])
    records = ledger_records(client, ledger)
    assert {record.query for record in records if isinstance(record, Done)} == {"(job) load-0"}
    append(frame_of(spark, 0), options, job_id="load-0")
    assert ledger_records(client, ledger) == records
    # without a name, and without any option of where the columns are
    del options["routing_key_col"]
    append(frame_of(spark, 1).withColumnRenamed("key", "routing_key"), options)
    assert_exactly(client, stream, [0, 1])
    failing = frame_of(spark, 2).withColumn(
        "event", F.when(F.col("event") == "2:199", F.raise_error(F.lit("no"))).otherwise(F.col("event"))
    )
    with pytest.raises(PySparkException, match="no"):
        append(failing, options, routing_key_col="key")
    assert_exactly(client, stream, [0, 1])
    assert staging_left(client, stream, ledger) == []


def test_a_ledger_deleted_since_it_was_used_is_made_anew(
    spark: SparkSession, client: PravegaClient, options: dict[str, str], stream: str, ledger: str
) -> None:
    """The processes of a session keep it open."""

    def delete(name: str) -> None:
        client.seal_stream(name)
        client.delete_stream(name)

    append(frame_of(spark, 0), options, job_id="first")
    delete(ledger)
    append(frame_of(spark, 1), options, job_id="second")
    assert_exactly(client, stream, [0, 1])
    delete(ledger)
    delete(stream)
    client.create_stream(stream, 2)
    append(frame_of(spark, 2), options)
    assert_exactly(client, stream, [2])


def test_values_as_json(
    spark: SparkSession, client: PravegaClient, options: dict[str, str], stream: str
) -> None:
    del options["routing_key_col"]
    frame = spark.sql(
        """select 1 as number, cast(0.1 as float) as small, 1.5D as real, 'a"\\u00e9\\n' as text,
           true as flag, cast(12.30 as decimal(9, 2)) as price, date'2024-02-29' as day, X'00ff' as bytes,
           timestamp'1969-12-31 23:59:59.123456Z' as time, array(1, null) as list,
           map('k', named_struct('x', 1L, 'y', cast(null as int))) as map, cast(null as string) as nothing,
           double('NaN') as nan"""
    )
    append(frame, options, value_format="json", event_time_col="time")
    (text,) = read_all(client, stream)
    found = json.loads(text)
    assert found.pop("time") == "1969-12-31T23:59:59.123456Z"
    theirs = frame.drop("time").select(F.to_json(F.struct("*"))).first()
    assert theirs is not None
    assert found == json.loads(theirs[0])
    # what is written can be read by Spark, the time included
    parsed = F.from_json("text", frame.schema).alias("row")
    (back,) = spark.createDataFrame([(text,)], "text string").select(parsed).select("row.*").collect()
    (row,) = frame.collect()
    assert (back.time, back.price, back.bytes) == (row.time, row.price, b"\x00\xff")
    # a column alone, and a null in it
    append(frame.select("map"), options, value_format="json", event_col="map")
    # without keys, either event may lie in either segment
    assert sorted(read_all(client, stream)) == sorted([text, '{"k":{"x":1}}'])
    with pytest.raises(PySparkException, match="column 'nothing': row 0 has a null"):
        append(frame, options, value_format="json", event_col="nothing")


def test_writes_that_are_refused(
    spark: SparkSession, client: PravegaClient, options: dict[str, str], stream: str
) -> None:
    frame = frame_of(spark, 0).withColumn("number", F.lit(1))
    wrong = {
        "'event_col': column 'number' has type int, not binary or string": {"event_col": "number"},
        "'event_time_col': column 'key' has type string, not timestamp or whole": {"event_time_col": "key"},
        "'value_format': map with keys|'value_format': a map with keys": {
            "value_format": "json",
            "event_col": "map",
        },
        "'job_id' needs semantic 'exactly_once'": {"semantic": "best_effort", "job_id": "x"},
    }
    frame = frame.withColumn("map", F.create_map(F.lit(1), F.lit(2)))
    for message, more in wrong.items():
        given = {name: value for name, value in options.items() if name != "ledger_stream"}
        with pytest.raises(PySparkException, match=message):
            append(frame, given, **more)
    with pytest.raises(PySparkException, match="append-only, so format 'pravega' cannot overwrite"):
        frame.write.format("pravega").options(**options).mode("overwrite").save()
    assert read_all(client, stream) == []


def test_best_effort_counts_and_at_least_once_makes_the_stream(
    spark: SparkSession, client: PravegaClient, options: dict[str, str], stream: str, ledger: str
) -> None:
    del options["ledger_stream"], options["routing_key_col"]
    frame = spark.range(3).select(
        F.when(F.col("id") == 1, F.repeat(F.lit("x"), 9 << 20)).otherwise("small").alias("event")
    )
    append(frame, options, semantic="best_effort")
    assert read_all(client, stream) == ["small", "small"]
    append(frame.where("id != 1"), options, semantic="at_least_once", stream=f"{stream}-new")
    assert read_all(client, f"{stream}-new") == ["small", "small"]


def test_killed_drivers(
    spark: SparkSession,
    config: PravegaConfig,
    client: PravegaClient,
    options: dict[str, str],
    stream: str,
    ledger: str,
    tmp_path: Path,
) -> None:
    source = Source(spark, tmp_path)
    source.add(0)
    # the last one dies in a task, which has found the batch PREPARED
    for step in ("claimed", "merged", "prepared", "committed"):
        run_until_killed(
            config.controller_uri, stream, ledger, step, str(tmp_path), module="format_crash_driver"
        )
        assert len(read_all(client, stream)) in (0, 200)
    source.add(1)
    source.run(options)
    assert_exactly(client, stream, [0, 1])
    assert staging_left(client, stream, ledger) == []


def test_each_row_names_its_stream(
    spark: SparkSession, client: PravegaClient, source: Source, options: dict[str, str], stream: str
) -> None:
    other = f"{stream}-other"
    del options["stream"], options["ledger_stream"]
    options |= {"stream_col": "To", "semantic": "at_least_once"}
    # One stream is named in two ways.
    to = F.expr(
        f"case when event like '%0' then '{other}' when key = 'key-1' then '{stream}' "
        f"else 'spark/{stream}' end"
    )
    evens, rest = [e for e, _ in rows_of(0) if e[-1] == "0"], [e for e, _ in rows_of(0) if e[-1] != "0"]

    def written(times: int) -> None:
        assert sorted(read_all(client, other)) == sorted(times * evens)
        assert sorted(read_all(client, stream)) == sorted(times * rest)

    frame = frame_of(spark, 0, 4).withColumn("to", to)
    with pytest.raises(PySparkException, match=f"stream spark/{other} does not exist"):
        append(frame.where("to like '%other'"), options, allow_create_stream="false")
    append(frame, options, default_num_segments="3")
    written(1)
    assert len(client.active_segments(other)) == 3
    append(frame, options, semantic="best_effort")
    written(2)
    source.add(0)
    source.run(options, source.frame().withColumn("to", to))
    written(3)
    for bad, message in (
        ("cast(null as string)", r"column 'to' \(stream_col\) of a row in partition \d+ is null or empty"),
        ("key", "name more than 2 streams in column 'to'"),
        ("concat(key, '!')", r"'key-\d+!'"),
    ):
        with pytest.raises(PySparkException, match=message):
            append(
                frame.withColumn("to", F.expr(bad)), options, most_streams="2", allow_create_stream="false"
            )
    # A query that reads what it writes, as the rows of its first batch show.
    given = {name: value for name, value in options.items() if name in ("controller", "scope")}
    own = spark.readStream.format("pravega").options(**given, stream=stream).load()
    own = own.withColumn("to", F.lit(stream)).writeStream.format("pravega").options(**options)
    own = own.option("routing_key_col", "scope").option("checkpointLocation", f"{source.checkpoint}-own")
    with pytest.raises(StreamingQueryException, match=r"the query reads stream .*allow_same_stream=true"):
        own.trigger(availableNow=True).start().awaitTermination()
    written(3)


def test_what_a_user_sees_of_a_job_that_fails_when_it_may_be_visible(
    spark: SparkSession, client: PravegaClient, options: dict[str, str], stream: str
) -> None:
    def fail(reached: str) -> None:
        if reached == "committed":
            raise RetriesExhaustedError("no answer")

    class Failing(PravegaDataSource):
        @classmethod
        def name(cls) -> str:
            return "failing"

        def writer(self, schema: Any, overwrite: bool) -> Any:
            sink = super().writer(schema, overwrite)
            sink._plan = replace(sink._plan, hook=fail)
            return sink

    spark.dataSource.register(Failing)
    frame = frame_of(spark, 0)
    with pytest.raises(PySparkException) as failed:
        frame.write.format("failing").options(**options).mode("append").save()
    seen = str(failed.value)
    assert "no answer" in seen
    assert f"on stream spark/{stream}, which is COMMITT" in seen
    assert "A job without job_id that is run again writes all its rows again" in seen
    found = re.search(r"The job's rows are in transaction ([0-9a-f-]{36})", seen)
    assert found is not None
    client.wait_committed(stream, UUID(found[1]))
    assert_exactly(client, stream, [0])
