"""The adapter on a standalone cluster: executors and workers that are lost, or get what is shipped.

Neither the workers nor what they start have this package on their Python path: each session says how its
executors get it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import Row, SparkSession

from pravega_wire import PravegaConfig
from pravega_wire.sync import PravegaClient
from spark_adapter import ForeachBatchSink, read_df, read_rdd
from tests.spark.cluster import (
    SPARK_HOME,
    Gate,
    StandaloneCluster,
    executor_of,
    standalone_cluster,
    wait_at,
)
from tests.spark.conftest import ROOT
from tests.spark.helpers import assert_exactly, frame_of, read_all, rows_of, run_query, staging_left

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "2",
    "spark.cores.max": "2",
    # said aloud: settings of the first session become system properties of the JVM, for all that follow
    "spark.dynamicAllocation.enabled": "false",
}

# Nothing starts before both executors are there, however slow the machine is.
ALL_WORKERS = {
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
}


@pytest.fixture(scope="module")
def standalone_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with standalone_cluster(tmp_path_factory.mktemp("spark-cluster")) as cluster:
        yield cluster


@contextmanager
def session(cluster: StandaloneCluster, **more: str) -> Iterator[SparkSession]:
    builder = SparkSession.builder.master(cluster.uri).appName("pravega cluster tests")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # executors import what is tested from here; the workers themselves know nothing of it
    settings = {**SETTINGS, "spark.executorEnv.PYTHONPATH": ROOT, **more}
    for name, value in settings.items():
        builder = builder.config(name, value)
    opened = builder.getOrCreate()
    opened.sparkContext.setLogLevel("OFF")
    try:
        yield opened
    finally:
        opened.stop()
        for name in settings:  # the next session's builder has them otherwise
            SparkSession.builder._options.pop(name, None)


@pytest.fixture(scope="module")
def spark(standalone_spark: StandaloneCluster) -> Iterator[SparkSession]:
    """A session whose tasks run in executors of two workers, one core each."""
    # both workers take part, from the first task on
    with session(standalone_spark, **ALL_WORKERS) as opened:
        yield opened


@pytest.fixture(scope="module")
def source(client: PravegaClient) -> str:
    """A stream of four segments with the rows of two batches."""
    name = f"cluster-{uuid4().hex[:12]}"
    client.create_stream(name, 4)
    for batch in range(2):
        fill(client, name, batch)
    return name


def fill(client: PravegaClient, stream: str, batch: int) -> None:
    rows = rows_of(batch)
    with client.event_writer(stream) as writer:
        writer.write_events([event.encode() for event, _ in rows], routing_keys=[key for _, key in rows])


def events_of(*batches: int) -> list[str]:
    return sorted(event for batch in batches for event, _ in rows_of(batch))


# --- sessions of their own, before the one that takes both cores for the rest of the module -----------------


def test_executors_come_and_go(
    standalone_spark: StandaloneCluster,
    config: PravegaConfig,
    client: PravegaClient,
    source: str,
    stream: str,
    ledger: str,
) -> None:
    settings = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.minExecutors": "0",
        "spark.dynamicAllocation.maxExecutors": "2",
        "spark.dynamicAllocation.executorIdleTimeout": "1s",
        "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
    }
    with session(standalone_spark, **settings) as spark:
        sink = ForeachBatchSink(
            config, stream, mode="exactly_once", ledger_stream=ledger, query="q", routing_key_col="key"
        )
        generations = []
        for batch in range(2):
            frame = read_df(spark, config, source)
            assert sorted(bytes(row.event).decode() for row in frame.collect()) == events_of(0, 1)
            sink(frame_of(spark, batch), batch)
            pids = spark.sparkContext.range(4, numSlices=4).mapPartitions(
                lambda _: [executor_of(os.getpid())]
            )
            generations.append(set(pids.collect()))
            wait_for_no_executors(spark)
    assert generations[0].isdisjoint(generations[1])
    assert_exactly(client, stream, [0, 1])
    assert staging_left(client, stream, ledger) == []


def wait_for_no_executors(spark: SparkSession) -> None:
    context = spark.sparkContext._jsc.sc()
    deadline = time.monotonic() + 120
    while len(context.statusTracker().getExecutorInfos()) > 1:  # the driver counts as one
        assert time.monotonic() < deadline, "executors that have nothing to do are still there"
        time.sleep(0.2)


ARROW = (
    "pyspark",
    "py4j",
    "numpy",
    "numpy.libs",
    "pandas",
    "pyarrow",
    "pytz",
    "dateutil",
    "six.py",
    "tzdata",
)
"""What a cluster may well have already: Spark itself, pandas, pyarrow and what these need."""

OWN = ("pravega_wire", "spark_adapter")

NEEDED = (
    "trio", "construct", "h2", "hpack", "hyperframe", "google", "attr", "attrs", "outcome", "sniffio",
    "sortedcontainers", "idna",
)  # fmt: skip
"""What the client needs."""


def python_with(directory: Path, *packages: str) -> Path:
    """A Python that has these packages of this environment, and no others."""
    packages_of, place = Path(pytest.__file__).parents[1], directory / "packages"
    place.mkdir(parents=True)
    for name in packages:
        if (packages_of / name).exists():
            (place / name).symlink_to(packages_of / name)
    python = directory / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{place}:$PYTHONPATH" exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    return python


def own_files() -> list[Path]:
    return [file for name in OWN for file in sorted((Path(ROOT) / name).rglob("*")) if file.suffix != ".pyc"]


def submit(
    cluster: StandaloneCluster, options: Sequence[str], pythons: dict[str, str], *arguments: str
) -> dict[str, Any]:
    """Run the driver with ``spark-submit``; what it found."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", cluster.uri]
    for name, value in SETTINGS.items():
        command += ["--conf", f"{name}={value}"]
    driver = str(Path(__file__).parent / "cluster_driver.py")
    done = subprocess.run(
        [*command, *options, driver, *arguments],
        env={**variables, "SPARK_HOME": str(SPARK_HOME), **pythons},
        cwd=cluster.directory,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,  # only for a job that hangs
        check=False,
    )
    found = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert done.returncode == 0 and found, done.stdout + done.stderr[-8000:]  # noqa: PT018
    return dict(json.loads(found[0].removeprefix("FOUND ")))


def test_packages_are_shipped_by_py_files(
    standalone_spark: StandaloneCluster,
    config: PravegaConfig,
    client: PravegaClient,
    source: str,
    stream: str,
    ledger: str,
    tmp_path: Path,
) -> None:
    packages = tmp_path / "pravega.zip"
    with zipfile.ZipFile(packages, "w") as archive:
        for file in own_files():
            archive.write(file, file.relative_to(ROOT))
    # the driver and the workers have what the two packages need, but not these themselves
    python = str(python_with(tmp_path, *ARROW, *NEEDED))
    found = submit(
        standalone_spark,
        ["--py-files", str(packages)],
        {"PYSPARK_PYTHON": python},
        *(config.controller_uri, source, stream, ledger),
    )
    for path in [found["driver"], *(path for paths in found["workers"] for path in paths)]:
        assert "/pravega.zip/" in path
    assert set(found["daemons"]) == {"pyspark.daemon"}
    assert (found["read"], found["written"]) == (400, 400)
    assert sorted(read_all(client, stream)) == events_of(0, 1)
    assert staging_left(client, stream, ledger) == []


def test_packages_are_shipped_by_archives(
    standalone_spark: StandaloneCluster,
    config: PravegaConfig,
    client: PravegaClient,
    source: str,
    stream: str,
    ledger: str,
    tmp_path: Path,
) -> None:
    packages = tmp_path / "pravega.tar.gz"
    site = Path(pytest.__file__).parents[1]
    with tarfile.open(packages, "w:gz", compresslevel=1) as archive:
        for name in NEEDED:
            archive.add(site / name, name, filter=without_bytecode)
        for name in OWN:
            archive.add(Path(ROOT) / name, name, filter=without_bytecode)
    python = str(python_with(tmp_path, *ARROW))
    found = submit(
        standalone_spark,
        [
            *("--archives", f"{packages}#pravega", "--conf", "spark.executorEnv.PYTHONPATH=./pravega"),
            *("--conf", "spark.python.daemon.module=spark_adapter.daemon"),
        ],
        # the driver has the packages: archives are for the executors
        {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": sys.executable, "PYTHONPATH": ROOT},
        *(config.controller_uri, source, stream, ledger),
    )
    assert found["driver"] == f"{ROOT}/spark_adapter/__init__.py"
    for path in (path for paths in found["workers"] for path in paths):
        assert path.startswith(str(standalone_spark.directory))
        assert "/pravega/" in path
    assert set(found["daemons"]) == {"spark_adapter.daemon"}
    assert (found["read"], found["written"]) == (400, 400)
    assert sorted(read_all(client, stream)) == events_of(0, 1)


def without_bytecode(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if entry.name.endswith(("__pycache__", ".pyc")) else entry


# --- one session --------------------------------------------------------------------------------------------


def test_reads_and_a_streaming_query_on_two_workers(
    spark: SparkSession,
    config: PravegaConfig,
    client: PravegaClient,
    source: str,
    stream: str,
    ledger: str,
    tmp_path: Path,
) -> None:
    rdd = read_rdd(spark.sparkContext, config, source, deserializer=bytes.decode)
    assert rdd.getNumPartitions() > 2
    assert sorted(rdd.collect()) == events_of(0, 1)
    frame = read_df(spark, config, source)
    assert sorted(bytes(row.event).decode() for row in frame.collect()) == events_of(0, 1)
    hosts = rdd.mapPartitions(lambda _: [executor_of(os.getpid())]).collect()
    assert len(set(hosts)) == 2
    sink = ForeachBatchSink(config, stream, mode="exactly_once", ledger_stream=ledger, routing_key_col="key")
    run_query(spark, sink, tmp_path / "files", 2, tmp_path / "checkpoint")
    restarted = ForeachBatchSink(
        config, stream, mode="exactly_once", ledger_stream=ledger, routing_key_col="key"
    )
    run_query(spark, restarted, tmp_path / "files", 3, tmp_path / "checkpoint")
    assert_exactly(client, stream, [0, 1, 2])
    assert staging_left(client, stream, ledger) == []


def kill_executor(_: StandaloneCluster, task: int) -> None:
    os.kill(executor_of(task), signal.SIGKILL)


def lose_worker(cluster: StandaloneCluster, task: int) -> None:
    cluster.lose_worker_of(task)


@pytest.fixture(params=[kill_executor, lose_worker])
def gate(request: pytest.FixtureRequest, standalone_spark: StandaloneCluster) -> Iterator[Gate]:
    """Where the first task that comes by is lost; there are two workers again at the end."""
    with Gate(lambda task: request.param(standalone_spark, task)) as opened:
        yield opened
    standalone_spark.add_workers(2 - len(standalone_spark.workers))


def test_lost_in_the_middle_of_a_read(
    spark: SparkSession, config: PravegaConfig, source: str, gate: Gate
) -> None:
    port = gate.port

    def decode(event: bytes) -> str:
        if event == b"1:100":
            wait_at(port)
        return event.decode()

    found = read_rdd(spark.sparkContext, config, source, deserializer=decode).collect()
    assert sorted(found) == events_of(0, 1)
    assert len(set(gate.passed)) == len(gate.passed) == 2


def test_lost_in_the_middle_of_a_write(
    spark: SparkSession,
    config: PravegaConfig,
    client: PravegaClient,
    stream: str,
    ledger: str,
    tmp_path: Path,
    gate: Gate,
) -> None:
    port = gate.port

    def serialize(row: Row) -> bytes:
        if row.event == "1:150":
            wait_at(port)
        return str(row.event).encode()

    sink = ForeachBatchSink(
        config,
        stream,
        mode="exactly_once",
        ledger_stream=ledger,
        serializer=serialize,
        routing_key_col="key",
    )
    run_query(spark, sink, tmp_path / "files", 3, tmp_path / "checkpoint")
    assert sink.last_batch is not None
    assert sink.last_batch.batch == 2
    assert_exactly(client, stream, [0, 1, 2])
    assert len(set(gate.passed)) == len(gate.passed) == 2
    assert staging_left(client, stream, ledger) == []
