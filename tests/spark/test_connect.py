"""What works over Spark Connect, and what is refused with a sentence: ``connect_driver`` does all of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any
from uuid import uuid4

import pytest

from pravega_wire import PravegaConfig
from pravega_wire.sync import PravegaClient
from tests.spark.cluster import connect_server
from tests.spark.conftest import ROOT
from tests.spark.helpers import read_all, rows_of

EVENTS = sorted(event for event, _ in rows_of(0))


@pytest.fixture(scope="module")
def target(client: PravegaClient) -> str:
    name = f"connect-{uuid4().hex[:12]}"
    client.create_stream(name, 2)
    return name


@pytest.fixture(scope="module")
def found(
    config: PravegaConfig,
    client: PravegaClient,
    target: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Any]:
    """What came out of each call."""
    source = f"{target}-source"
    client.create_stream(source, 2)
    with client.event_writer(source) as writer:
        writer.write_events([event.encode() for event, _ in rows_of(0)])
    place = tmp_path_factory.mktemp("connect")
    with connect_server(place, ROOT) as server:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "tests.spark.connect_driver"),
                *(server, config.controller_uri, source, target, str(place)),
            ],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([ROOT, os.environ.get("PYTHONPATH", "")])},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert lines, done.stdout + done.stderr[-8000:]
    return dict(json.loads(lines[0].removeprefix("FOUND ")))


def test_reads(found: dict[str, Any]) -> None:
    assert found["read_df"] == EVENTS
    assert found["read.format"] == EVENTS


def test_weaker_modes_by_columns(found: dict[str, Any]) -> None:
    assert found["sink called"] == 200
    assert found["sink in foreachBatch"] is None


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        ("read_rdd", "read_rdd needs a SparkContext, not SparkSession: "),
        ("serializer", "a serializer or a router does not work with Spark Connect: "),
        ("router", "a serializer or a router does not work with Spark Connect: "),
        ("exactly_once called", "(mode='exactly_once') does not work with Spark Connect: "),
        ("exactly_once in foreachBatch", "(mode='exactly_once') does not work with Spark Connect: "),
    ],
)
def test_what_cannot_work_is_refused(found: dict[str, Any], call: str, wanted: str) -> None:
    assert "InvalidArgumentError: " in found[call] or "StreamingQueryException" in found[call]
    assert wanted in found[call]


def test_formats_by_name(found: dict[str, Any], client: PravegaClient, target: str) -> None:
    for name in ("readStream.format", "write.format", "writeStream.format"):
        assert found[name] == "works"
    # the sink's two batches, the frame and the query's batch: exactly once each
    assert sorted(read_all(client, target)) == sorted(EVENTS * 4)
