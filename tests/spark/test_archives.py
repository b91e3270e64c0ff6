"""Archives of a stream of three epochs, by Spark's tasks and by the client: there and back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from pravega_wire import PravegaConfig, archive
from pravega_wire.archive import Manifest, Stage, compare_archive
from pravega_wire.errors import ArchiveDamagedError, ArchiveError, InvalidArgumentError, StreamNotFoundError
from pravega_wire.sync import PravegaClient
from spark_adapter.archives import archive_stream, restore_stream, verify_archive
from tests.spark.archive_driver import PART_BYTES, End, Ended, Kill, key_of
from tests.spark.conftest import ROOT

KEYS = 12
PER_EPOCH = 120
EVENTS = 3 * PER_EPOCH


@pytest.fixture(scope="module")
def source(client: PravegaClient) -> str:
    """A stream of 1, 3 and 2 segments; an event is its key, its number and a filler."""
    stream = f"archived-{uuid4().hex[:8]}"
    client.create_stream(stream)
    for epoch, count in enumerate((1, 3, 2)):
        if epoch:
            active = [each.segment_id for each in client.active_segments(stream)]
            client.scale_stream(stream, active, [(at / count, (at + 1) / count) for at in range(count)])
        with client.event_writer(stream) as writer:
            for number in range(epoch * PER_EPOCH, (epoch + 1) * PER_EPOCH):
                key = f"key-{number * 7 % KEYS}"
                writer.write_event(f"{key} {number} {'x' * (number % 150)}".encode(), key)
    return stream


def contents(client: PravegaClient, stream: str) -> dict[tuple[int, float, float], list[bytes]]:
    """The events of each segment, by epoch and key range."""
    layout = client.stream_layout(stream)
    found = {}
    for each in client.segment_ranges(stream):
        segment = layout.segment(each.segment_id)
        events = [event for batch in client.read_range(each) for event in batch]
        found[each.segment_id >> 32, segment.low, segment.high] = events
    return found


def by_key(client: PravegaClient, stream: str) -> dict[str, list[bytes]]:
    """The events of each key, in the order in which a reader gets them."""
    found: dict[str, list[bytes]] = defaultdict(list)
    for batch in client.read_events(stream):
        for event in batch:
            found[key_of(event)].append(event)
    return dict(found)


def check_files(manifest: Manifest, directory: Path) -> None:
    """Nothing is in the directory but the manifest's files."""
    assert manifest.complete
    assert manifest.events == EVENTS
    assert {each.name for _, each in manifest.files()} == {
        each.name for each in (directory / "events").iterdir()
    }
    assert not (directory / "work").exists()
    assert max(each.end_offset - each.start_offset for _, each in manifest.files()) <= PART_BYTES


def test_each_side_restores_what_the_other_wrote(
    spark: SparkSession, config: PravegaConfig, client: PravegaClient, source: str, tmp_path: Path
) -> None:
    directory = tmp_path / "by-spark"
    kill = Kill(Stage.RENAMED, tmp_path / "a task was killed")
    manifest = archive_stream(
        spark, config, source, directory, part_bytes=PART_BYTES, min_partitions=8, observer=kill
    )
    assert kill.marker.exists()
    check_files(manifest, directory)
    assert len(list(manifest.files())) > 8
    # The client finds in it what it would have written itself.
    assert client.run(compare_archive, directory) == manifest
    assert archive_stream(spark, config, source, directory) == manifest
    assert verify_archive(spark, directory, config, compare=True) == manifest

    by_client = f"by-client-{source}"
    assert client.run(archive.restore_stream, directory, by_client).written == EVENTS
    client.run(archive.archive_stream, source, tmp_path / "by-client", part_bytes=PART_BYTES)
    by_spark = f"by-spark-{source}"
    kill = Kill(Stage.STORED, tmp_path / "another was killed")
    restored = restore_stream(spark, config, tmp_path / "by-client", by_spark, observer=kill)
    assert kill.marker.exists()
    assert (str(restored.stream), restored.events) == (f"spark/{by_spark}", EVENTS)
    for each in (by_client, by_spark):
        assert contents(client, each) == contents(client, source)
    assert restore_stream(spark, config, tmp_path / "by-client", by_spark).written == 0
    assert contents(client, by_spark) == contents(client, source)

    # What one side has begun, the other refuses to continue, instead of writing all of it again.
    with pytest.raises(ArchiveError, match="was begun without a key function on Spark"):
        client.run(archive.restore_stream, tmp_path / "by-client", by_spark, append=True)
    with pytest.raises(ArchiveError, match="was begun without a key function: continue"):
        restore_stream(spark, config, directory, by_client, append=True)
    with pytest.raises(ArchiveError, match="is not empty"):
        restore_stream(spark, config, directory, by_spark)


def test_restoring_by_keys(
    spark: SparkSession, config: PravegaConfig, client: PravegaClient, source: str, tmp_path: Path
) -> None:
    client.run(archive.archive_stream, source, tmp_path / "archive", part_bytes=PART_BYTES)
    target = f"by-keys-{source}"
    kill = Kill(Stage.RESTORING, tmp_path / "a task was killed")
    restore_stream(spark, config, tmp_path / "archive", target, routing_key=key_of, observer=kill)
    assert kill.marker.exists()
    assert by_key(client, target) == by_key(client, source)
    assert len(client.active_segments(target)) == 2


def killed(spark: SparkSession, job: dict[str, Any], stage: Stage, marker: Path) -> None:
    """Run a driver until one of its tasks kills it."""
    settings = {
        key: value
        for key, value in spark.sparkContext.getConf().getAll()
        if key in ("spark.ui.enabled", "spark.driver.bindAddress", "spark.driver.host")
    }
    given = {**job, "stage": stage.name, "marker": str(marker), "settings": json.dumps(settings)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.archive_driver", json.dumps(given)],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": ROOT},
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]
    assert marker.exists()


def test_a_driver_that_is_killed_continues(
    spark: SparkSession, config: PravegaConfig, client: PravegaClient, source: str, tmp_path: Path
) -> None:
    directory, target = tmp_path / "archive", f"killed-{source}"
    job = {"uri": config.controller_uri, "scope": "spark", "directory": str(directory)}
    killed(spark, {**job, "what": "archive", "stream": source}, Stage.RECORDED, tmp_path / "archiving")
    with pytest.raises(ArchiveError, match="is not complete"):
        verify_archive(spark, directory, config)
    written = {each.name for each in (directory / "work").glob("*.parquet")}
    assert written

    # The files are moved, and the manifest does not mention them.
    with pytest.raises(Ended):
        archive_stream(spark, config, source, directory, observer=End(Stage.COLLECTED))
    manifest = archive_stream(spark, config, source, directory)
    check_files(manifest, directory)
    # What was whole when the first driver was killed was not written again.
    assert written & {each.name for _, each in manifest.files()}
    assert client.run(compare_archive, directory) == manifest

    killed(spark, {**job, "what": "restore", "stream": target}, Stage.RESTORING, tmp_path / "restoring")
    for stage in (Stage.RESTORED, Stage.SCALED):
        with pytest.raises(Ended):
            restore_stream(spark, config, directory, target, observer=End(stage))
    restore_stream(spark, config, directory, target)
    assert contents(client, target) == contents(client, source)
    assert by_key(client, target) == by_key(client, source)


def test_what_is_wrong_is_said(
    spark: SparkSession, config: PravegaConfig, client: PravegaClient, source: str, tmp_path: Path
) -> None:
    with pytest.raises(StreamNotFoundError, match="absent"):
        archive_stream(spark, config, "absent", tmp_path / "absent")
    with pytest.raises(ArchiveDamagedError, match=r"manifest\.json is missing"):
        verify_archive(spark, tmp_path / "nothing", config)
    with pytest.raises(InvalidArgumentError, match="min_partitions"):
        archive_stream(spark, config, source, tmp_path / "none", min_partitions=0)
    directory = tmp_path / "archive"
    manifest = client.run(archive.archive_stream, source, directory, part_bytes=PART_BYTES)
    *_, (_, file) = manifest.files()
    path = directory / "events" / file.name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ArchiveDamagedError, match="bytes instead of") as caught:
        verify_archive(spark, directory, config)
    assert caught.value.path == str(path)
    assert any("in a Spark task on" in note for note in caught.value.__notes__)

    # An archive of nothing is an archive.
    client.create_stream(f"empty-{source}", 2)
    assert archive_stream(spark, config, f"empty-{source}", tmp_path / "empty").events == 0
    assert restore_stream(spark, config, tmp_path / "empty", f"again-{source}").events == 0
