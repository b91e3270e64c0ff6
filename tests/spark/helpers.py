"""Batches of rows with known content, and what must hold of the stream they went to."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from uuid import UUID

from pyspark.sql import DataFrame, SparkSession

from pravega_wire.errors import ClosedError, NoSuchSegmentError
from pravega_wire.segment.metadata import SegmentMetadata
from pravega_wire.stream.transaction import transaction_target
from pravega_wire.sync import PravegaClient
from pravega_wire.testing import FaultProxy
from spark_adapter.exactly_once.ledger import Record, Snapshot, Staging, decode_record
from tests.inside import core_of, portal_of


def short_lived_session() -> SparkSession:
    """The session of a driver that is a process of its own."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def rows_of(batch: int, count: int = 200) -> list[tuple[str, str]]:
    """Rows (event, key) of a batch: ten keys, numbered events."""
    return [(f"{batch}:{number}", f"key-{number % 10}") for number in range(count)]


def frame_of(spark: SparkSession, batch: int, partitions: int = 2) -> DataFrame:
    """The rows of a batch as a frame with columns ``event`` and ``key``, in order."""
    rdd = spark.sparkContext.parallelize(rows_of(batch), partitions)
    return spark.createDataFrame(rdd, "event string, key string")


def files_of(spark: SparkSession, folder: Path, batches: int) -> DataFrame:
    """A streaming frame of files, one for each batch."""
    folder.mkdir(exist_ok=True)
    for batch in range(batches):
        lines = "".join(f"{event},{key}\n" for event, key in rows_of(batch))
        (folder / f"{batch}.csv").write_text(lines)
        os.utime(folder / f"{batch}.csv", (batch, batch))  # Spark takes the oldest first
    files = spark.readStream.schema("event string, key string").option("maxFilesPerTrigger", 1)
    return files.csv(str(folder))


def run_query(
    spark: SparkSession,
    sink: Callable[[DataFrame, int], None],
    folder: Path,
    batches: int,
    checkpoint: Path | None,
) -> None:
    """A streaming query over the files of so many batches, from its checkpoint to their end."""
    started = files_of(spark, folder, batches).writeStream.foreachBatch(sink).trigger(availableNow=True)
    if checkpoint is not None:
        started = started.option("checkpointLocation", str(checkpoint))
    started.start().awaitTermination()


def read_all(client: PravegaClient, stream: str) -> list[str]:
    """Every event, in order for each key."""
    return [event.decode() for events in client.read_events(stream) for event in events.to_list()]


def assert_exactly(client: PravegaClient, stream: str, batches: Sequence[int]) -> None:
    """Every row of the batches is there once, and the rows of each key are in order."""
    found = read_all(client, stream)
    wanted = [row for batch in batches for row in rows_of(batch)]
    key_of = dict(wanted)
    assert sorted(found) == sorted(key_of)
    for key in {key for _, key in wanted}:
        assert [e for e in found if key_of[e] == key] == [e for e, k in wanted if k == key]


def ledger_records(client: PravegaClient, ledger: str) -> list[Record]:
    """What is in a ledger now."""
    revisioned = client.revisioned_stream(ledger)
    oldest = revisioned.oldest_revision()
    return [decode_record(data) for _, data in revisioned.read_from(oldest)]


def staging_left(client: PravegaClient, stream: str, ledger: str) -> list[UUID]:
    """Ids in the ledger whose staging segments still exist."""
    left = []
    twin, portal, core = client._twin, portal_of(client), core_of(client)
    name = client.config.resolve(stream)
    for record in ledger_records(client, ledger):
        assert not isinstance(record, Snapshot), "compacted: nothing to check"
        if isinstance(record, Staging) and record.stream == str(name):
            for segment in portal.call(twin._transaction_segments, name, record.txn):
                target = transaction_target(core, name, segment, record.staging)
                try:
                    portal.call(SegmentMetadata(core.stores, target).info)
                except NoSuchSegmentError:
                    continue
                left.append(record.staging)
    return left


def outage(proxy: FaultProxy) -> None:
    """Nothing can be reached until the proxy has turned a connection away."""
    proxy.refuse()
    before = proxy.cuts + proxy.cut_all()

    def back() -> None:
        give_up = time.monotonic() + 60
        while proxy.cuts <= before and time.monotonic() < give_up:
            time.sleep(0.01)  # the proxy has nothing to wait for
        with suppress(ClosedError):  # the test has ended
            proxy.refuse(False)

    threading.Thread(target=back, name="outage", daemon=True).start()
