"""What an exactly-once sink does when the checkpoint of its query is restored, damaged or copied."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pravega_wire import PravegaConfig
from pravega_wire.sync import PravegaClient
from spark_adapter import ForeachBatchSink, register
from spark_adapter.exactly_once.identity import local_entry, local_path, newest_entry
from spark_adapter.exactly_once.ledger import Done
from spark_adapter.options.read import config_options
from spark_adapter.writing import foreach_batch
from tests.spark.helpers import files_of, ledger_records, read_all, rows_of

OLDER = r"checkpoint is older than what was written"


class Query:
    """A query over a folder of files, or over a stream, whose checkpoint can be saved and put back.

    :param kind: which sink: ``foreachBatch`` or ``format``.
    :param over: what it reads: ``files`` or ``stream``.
    :param name: the option ``query``, or None.
    """

    def __init__(
        self,
        spark: SparkSession,
        config: PravegaConfig,
        client: PravegaClient,
        folder: Path,
        kind: str,
        over: str,
        name: str | None,
    ) -> None:
        self.spark, self.config, self.client = spark, config, client
        self.kind, self.over, self.name = kind, over, name
        self.stream, self.ledger, self.input = (
            f"{each}-{uuid4().hex[:12]}" for each in ("to", "log", "from")
        )
        self.files, self.checkpoint = folder / "in", folder / "checkpoint"
        self.saved = folder / "saved"
        self.files.mkdir()
        self.written = 0
        self.hidden = False
        self.has_state = False
        client.create_stream(self.stream, 2)
        client.create_stream(self.input, 1)
        register(spark)

    def add(self, *batches: int) -> None:
        """More input: the rows of these batches."""
        for batch in batches:
            if self.over == "files":
                part = self.files / f"{self.written:04}.csv"
                part.write_text("".join(f"{event},{key}\n" for event, key in rows_of(batch)))
            else:
                with self.client.event_writer(self.input) as writer:
                    writer.write_events([f"{event},{key}".encode() for event, key in rows_of(batch)])
            self.written += 1

    def take(self, *batches: int) -> None:
        """More input, and the batch of it."""
        self.add(*batches)
        self.run()

    def frame(self) -> DataFrame:
        if self.over == "files":
            return self.spark.readStream.schema("event string, key string").csv(str(self.files))
        read = self.spark.readStream.format("pravega").options(**config_options(self.config))
        text = read.option("stream", self.input).option("start_stream_cut", "earliest").load()
        parts = F.split(F.col("event").cast("string"), ",")
        return text.select(parts[0].alias("event"), parts[1].alias("key"))

    def run(self, checkpoint: Path | None = None, **more: Any) -> Any:
        """Run the query on all there is, in one batch."""
        frame = self.frame()
        if self.has_state:
            frame = frame.dropDuplicates(["event"])
        if self.kind == "format":
            options = {
                **config_options(self.config), "stream": self.stream, "ledger_stream": self.ledger,
                "routing_key_col": "key", **({} if self.name is None else {"query": self.name}), **more,
            }  # fmt: skip
            writer = frame.writeStream.format("pravega").options(**options)
        else:
            sink = ForeachBatchSink(
                self.config, self.stream, mode="exactly_once", ledger_stream=self.ledger,
                routing_key_col="key", query=self.name, **more,
            )  # fmt: skip
            writer = frame.writeStream.foreachBatch(sink)
        place = checkpoint or self.checkpoint
        if self.hidden and self.kind == "format":
            # Only Spark's configuration has the location, which the sink's processes do not know.
            self.spark.conf.set("spark.sql.streaming.checkpointLocation", str(place.parent))
            writer = writer.queryName(place.name)
        else:
            writer = writer.option("checkpointLocation", str(place))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return query

    def save(self) -> None:
        """A backup of the checkpoint."""
        shutil.copytree(self.checkpoint, self.saved)

    def restore(self) -> None:
        """Put the backup back."""
        shutil.rmtree(self.checkpoint)
        shutil.copytree(self.saved, self.checkpoint)

    def lose(self, batch: int, *logs: str) -> None:
        """Delete entries of a batch in these logs."""
        for log in logs:
            (self.checkpoint / log / str(batch)).unlink()
            (self.checkpoint / log / f".{batch}.crc").unlink(missing_ok=True)

    def stored(self) -> list[str]:
        """All that is in the stream, sorted."""
        return sorted(read_all(self.client, self.stream))

    def batches(self) -> list[int]:
        """The batches that the ledger has as DONE."""
        return [each.batch for each in ledger_records(self.client, self.ledger) if isinstance(each, Done)]


def events(*batches: int) -> list[str]:
    return sorted(event for batch in batches for event, _ in rows_of(batch))


Kind = tuple[str, str, str | None]
SIMPLE: Kind = ("foreachBatch", "files", None)


def kinds(other: Kind) -> pytest.MarkDecorator:
    """The test's queries. A query of a stream or into the format takes several times as long as a simple one,
    for its processes, so each situation has one of these three."""
    both = [SIMPLE, other]
    names = ["-".join(map(str, each)) for each in both]
    return pytest.mark.parametrize("query", both, ids=names, indirect=True)


@pytest.fixture
def query(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    config: PravegaConfig,
    client: PravegaClient,
    tmp_path: Path,
) -> Query:
    """A query of the kind that the test asks for."""
    return Query(spark, config, client, tmp_path, *request.param)


def refused(run: Callable[[], object]) -> str:
    with pytest.raises(PySparkException, match=OLDER) as caught:
        run()
    return str(caught.value)


@kinds(("format", "stream", None))
def test_a_restored_checkpoint_is_refused_and_the_newer_one_goes_on(query: Query, tmp_path: Path) -> None:
    query.take(0)
    query.save()
    query.take(1)
    query.take(2)
    newer = tmp_path / "newer"
    shutil.copytree(query.checkpoint, newer)
    query.restore()
    query.add(3)
    said = refused(query.run)
    assert "batch 1 was not written" in said
    assert "batch 2 was already written" in said
    assert "on_older_checkpoint" in said
    assert query.stored() == events(0, 1, 2)
    query.run(newer)
    assert query.stored() == events(0, 1, 2, 3)
    assert query.batches() == [0, 1, 2, 3]


@kinds(("format", "files", "q"))
def test_a_batch_that_was_planned_again_is_refused(query: Query) -> None:
    query.take(0)
    query.take(1)
    query.lose(1, "offsets", "commits")
    query.add(2)
    said = refused(query.run)
    assert "batch 1 was already written, but" in said
    assert query.stored() == events(0, 1)


@kinds(("format", "stream", None))
def test_a_batch_that_is_repeated_is_skipped(query: Query) -> None:
    query.take(0)
    query.take(1)
    query.lose(1, "commits")
    query.take(2)
    assert query.stored() == events(0, 1, 2)
    assert query.batches() == [0, 1, 2]


@kinds(("format", "stream", None))
def test_a_repeated_batch_of_a_query_with_state_computes_its_state(query: Query) -> None:
    query.has_state = True
    query.take(0)
    query.take(0, 1)
    query.lose(1, "commits")
    query.take(1, 2)
    assert query.stored() == events(0, 1, 2)
    assert query.batches() == [0, 1, 2]


@pytest.mark.parametrize("query", [("foreachBatch", "stream", None)], indirect=True)
def test_entries_that_name_their_sources(query: Query) -> None:
    query.spark.conf.set("spark.sql.streaming.offsetLog.formatVersion", "2")
    try:
        query.take(0)
        assert (query.checkpoint / "offsets" / "0").read_text().startswith("v2\n")
        query.lose(0, "offsets", "commits")
        query.run()
        assert query.stored() == events(0)
        assert query.batches() == [0]
        query.input = query.stream
        with pytest.raises(PySparkException, match="the query reads stream"):
            query.run(query.saved)
    finally:
        query.spark.conf.unset("spark.sql.streaming.offsetLog.formatVersion")


@kinds(("format", "stream", "q"))
def test_a_person_may_go_on_with_an_older_checkpoint(query: Query, tmp_path: Path) -> None:
    query.take(0)
    query.save()
    query.take(1)
    newer = tmp_path / "newer"
    shutil.copytree(query.checkpoint, newer)
    query.restore()
    query.add(2)
    query.run(on_older_checkpoint="continue_at")
    # The rows of batch 1 are there twice, as the person was told; none is missing.
    assert query.stored() == sorted(events(0, 1, 1, 2))
    query.lose(1, "commits")
    query.add(3)
    query.run()  # no option is needed any more
    assert query.stored() == sorted(events(0, 1, 1, 2, 3))
    # What was the newer checkpoint is another one now.
    query.add(4)
    refused(lambda: query.run(newer))
    assert query.stored() == sorted(events(0, 1, 1, 2, 3))
    query.run()
    assert query.stored() == sorted(events(0, 1, 1, 2, 3, 4))


@kinds(("format", "files", None))
def test_a_lost_checkpoint_without_a_name_makes_another_query(query: Query) -> None:
    query.take(0)
    shutil.rmtree(query.checkpoint)
    query.run()
    # Nothing tells the ledger that these are the rows that it has.
    assert query.stored() == events(0, 0)
    assert query.batches() == [0, 0]


@kinds(("format", "files", "q"))
def test_two_copies_of_a_checkpoint(query: Query, tmp_path: Path) -> None:
    query.take(0)
    query.save()
    query.take(1)
    query.add(2)
    refused(lambda: query.run(query.saved))
    assert query.stored() == events(0, 1)
    query.run()
    assert query.stored() == events(0, 1, 2)


@kinds(("foreachBatch", "stream", "q"))
def test_a_checkpoint_that_has_gone_another_way_is_refused_later(query: Query, tmp_path: Path) -> None:
    """Both go on, one without the sink: then the number alone shows nothing."""
    query.take(0)
    query.save()
    query.take(1)
    query.restore()
    # Batch 1 of this checkpoint went elsewhere.
    query.add(2)
    elsewhere = query.frame().writeStream.foreachBatch(lambda frame, batch: None)
    elsewhere.option("checkpointLocation", str(query.checkpoint)).trigger(
        availableNow=True
    ).start().awaitTermination()
    query.add(3)
    assert "has another batch 1" in refused(query.run)
    assert query.stored() == events(0, 1)
    query.run(on_older_checkpoint="continue_at")
    assert query.stored() == events(0, 1, 3)


@kinds(("format", "files", "q"))
def test_a_query_without_a_readable_checkpoint_is_compared_by_its_rows(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows decide: a repeated batch is skipped, another one is refused."""
    monkeypatch.setattr("spark_adapter.writing.foreach_batch._planned", lambda *arguments: None)
    query.hidden = True
    query.take(0)
    query.take(1)
    query.lose(1, "commits")
    query.run()
    assert query.stored() == events(0, 1)
    query.lose(1, "offsets", "commits")
    query.add(2)
    assert "400 with" in refused(query.run)
    assert query.stored() == events(0, 1)


def test_spark_and_the_sinks_agree_where_a_checkpoint_is(spark: SparkSession, tmp_path: Path) -> None:
    source = files_of(spark, tmp_path / "files", 1)
    found = []

    def look(frame: DataFrame, number: int) -> None:
        query = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        planned = foreach_batch._planned(frame.sparkSession, query, number)
        found.append((planned, local_entry(location, number)))

    for number, name in enumerate(["a b", "a%20b", "a#b", "a?b", "a+b", "a\u00fc", "a:b", "no/../c/."]):
        place = f"{tmp_path}/{number}"
        spelt = (
            f"{place}/{name}",
            f"file:{place}/{name}",
            f"FILE://{place}/{name}",
            f"file:///{place}/{name}/",
        )
        location = spelt[number % len(spelt)]
        query = source.writeStream.foreachBatch(look).option("checkpointLocation", location)
        query.trigger(availableNow=True).start().awaitTermination()
        (made,) = (each.parent for each in Path(place).rglob("offsets"))
        assert {local_path(each) for each in spelt} == {made}
        assert newest_entry(location) == 0
    for by_spark, by_path in found:
        assert by_spark is not None
        assert by_spark == by_path
