"""Copies a stream to another one with Spark for a long time: ``python -m benchmarks.spark_soak [--minutes
30]``.

A Pravega cluster and a Spark standalone cluster (a master, two workers) run beside each other. Events are
appended to one stream at a steady rate; a query reads it by ``readStream`` and writes another one by
``writeStream``, exactly once. Meanwhile both streams are scaled, and executors, workers and the driver are
killed with ``kill -9`` and started again. A reader group follows the target all the time: each event must
come once, in order for each key. Printed are the time from the append to when a reader has the event, and
the memory of each kind of process; ``--picture`` draws them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from statistics import median
from uuid import uuid4

import trio

from examples.flights_demo.processes import descendants, kill_tree
from pravega_wire import PravegaClient, PravegaConfig, open_client
from pravega_wire.testing import PravegaCluster, cluster
from tests.faults.support import scale_to
from tests.spark.cluster import StandaloneCluster, standalone_cluster
from tests.spark.kill_hooks import command_of

ROOT = Path(__file__).resolve().parent.parent
KEYS = 64
NO_TIME_TO_CONNECT = "Python worker failed to connect back"
SECONDS_TO_FINISH = 300
FILL = "." * 60
EXECUTOR = "CoarseGrainedExecutorBackend"


# --- the Spark driver: a process of its own -------------------------------------------------------


def drive(uri: str, scope: str, master: str, checkpoint: str) -> None:
    """Copy ``source`` to ``target`` until this process is killed."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    import spark_adapter

    spark = (
        SparkSession.builder.master(master)
        .appName("soak")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.executor.memory", "512m")
        .config("spark.executor.cores", "1")
        .config("spark.executorEnv.PYTHONPATH", str(ROOT))
        .config("spark.cores.max", "2")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.task.maxFailures", "10")
        .config("spark.sql.streaming.minBatchesToRetain", "20")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark_adapter.register(spark)
    where = {"controller": uri, "scope": scope}
    events = spark.readStream.format("pravega").options(**where, stream="source").load()
    rows = events.select("event", F.split(F.col("event").cast("string"), ":")[0].alias("key"))
    query = (
        rows.writeStream.format("pravega")
        .options(**where, stream="target", ledger_stream="ledger", semantic="exactly_once")
        .options(event_col="event", routing_key_col="key", query="soak")
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime="1 second")
        .start()
    )
    query.awaitTermination()


# --- what is watched ------------------------------------------------------------------------------


def _memory(spark: StandaloneCluster, driver: subprocess.Popen[bytes] | None) -> dict[str, int]:
    """Return the resident bytes of the largest process of each kind."""
    found: dict[str, int] = {}
    pids = [pid for worker in spark.workers for pid in descendants(worker.pid)]
    if driver is not None:
        pids += [driver.pid, *descendants(driver.pid)]
    for pid in pids:
        with suppress(OSError, IndexError):  # it ended meanwhile
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            kind = _kind(command_of(pid), driver is not None and pid == driver.pid)
            if kind is not None:
                found[kind] = max(found.get(kind, 0), pages * os.sysconf("SC_PAGE_SIZE"))
    return found


def _kind(line: str, is_driver: bool) -> str | None:
    for mark, kind in (
        (EXECUTOR, "executor (JVM)"),
        ("org.apache.spark.deploy.SparkSubmit", "driver (JVM)"),
        ("python_streaming_source_runner", "planning (Python)"),
        ("pyspark.daemon", "tasks (Python)"),
    ):
        if mark in line:
            return kind
    return "driver (Python)" if is_driver else None


@dataclass
class Story:
    """The state of the run; times are seconds since its start."""

    begun: float = field(default_factory=time.time)
    appended: dict[str, int] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    latencies: list[tuple[float, float]] = field(default_factory=list)
    memory: list[tuple[float, dict[str, int]]] = field(default_factory=list)
    blows: list[tuple[float, str]] = field(default_factory=list)
    lives: int = 0
    given_up: int = 0
    all_appended: bool = False
    complete: trio.Event = field(default_factory=trio.Event)

    @property
    def now(self) -> float:
        """Return the seconds since the start."""
        return time.time() - self.begun

    def say(self, text: str) -> None:
        """Print one line with the time."""
        print(f"[soak {self.now:6.0f} s] {text}", flush=True)


# --- the soak -------------------------------------------------------------------------------------


async def _append(client: PravegaClient, story: Story, rate: int, seconds: float) -> None:
    end, due = trio.current_time() + seconds, trio.current_time()
    async with client.event_writer("source") as writer:
        while (now := trio.current_time()) < end:
            while due <= now:
                key = f"key-{random.randrange(KEYS)}"
                number = story.appended.get(key, 0)
                await writer.write_event(f"{key}:{number}:{time.time():.6f}:{FILL}".encode(), key)
                story.appended[key] = number + 1
                due += 1 / rate
            await trio.sleep(0.02)


async def _follow(client: PravegaClient, story: Story) -> None:
    """Read the target as events become visible; check that each key's events are in order and not
    duplicated."""
    async with client.reader_group("watch") as group, group.reader("one") as reader:
        while True:
            found = await reader.read_event(1.0)
            if story.all_appended and story.seen == story.appended:
                story.complete.set()
            if found is None:
                continue
            key, number, appended, _ = found.value.decode().split(":")
            due = story.seen.get(key, 0)
            if int(number) != due:
                raise AssertionError(f"key {key}: event {number} where {due} is due")
            story.seen[key] = due + 1
            story.latencies.append((story.now, time.time() - float(appended)))


async def _watch_memory(spark: StandaloneCluster, driver: Driver, story: Story) -> None:
    while True:
        story.memory.append((story.now, await trio.to_thread.run_sync(_memory, spark, driver.process)))
        await trio.sleep(5)


class Driver:
    """The process of the Spark driver, which is started again whenever it has ended."""

    def __init__(self, arguments: Sequence[str], folder: Path, story: Story) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self._arguments = arguments
        self._log = folder / "driver.log"
        self._story = story
        self._expected = False

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "benchmarks.spark_soak", "drive", *self._arguments],
                cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
            )  # fmt: skip

    async def keep_alive(self) -> None:
        """Run the process; an unexpected end is an error.

        Except one: Spark gives a Python process 10 s to connect, which are too few on a machine that is busy.
        Whoever runs a query starts it again then, and the report says how often.
        """
        while True:
            said_before = self._log.stat().st_size if self._log.exists() else 0
            self.process = self._start()
            self._story.lives += 1
            code = await trio.to_thread.run_sync(self.process.wait, abandon_on_cancel=True)
            said = self._log.read_bytes()[said_before:].decode(errors="replace")
            tail = "\n".join(said.splitlines()[-40:])
            if not self._expected and NO_TIME_TO_CONNECT in tail:
                self._story.say(f"driver ended: {NO_TIME_TO_CONNECT}")
                self._story.given_up += 1
            elif not self._expected:
                raise AssertionError(f"the driver ended by itself with {code}:\n{tail}")
            self._expected = False

    def kill(self) -> None:
        """End the process with all its descendants."""
        if self.process is not None:
            self._expected = True
            kill_tree(self.process)

    def stop(self) -> None:
        """End the process permanently."""
        self.kill()


async def _strike(
    client: PravegaClient, spark: StandaloneCluster, driver: Driver, story: Story, pause: float
) -> None:
    async def scale(stream: str, count: int) -> None:
        await scale_to(client, stream, count)

    async def kill_executor() -> None:
        found = [pid for worker in spark.workers for pid in descendants(worker.pid)]
        executors = [pid for pid in found if EXECUTOR in command_of(pid)]
        if executors:
            os.kill(random.choice(executors), signal.SIGKILL)

    async def kill_worker() -> None:
        await trio.to_thread.run_sync(spark.lose_worker_of, spark.workers[0].pid)
        await trio.to_thread.run_sync(spark.add_workers, 1)

    async def kill_driver() -> None:
        await trio.to_thread.run_sync(driver.kill)

    blows: list[tuple[str, Callable[[], Awaitable[None]]]] = [
        ("source to 4 segments", lambda: scale("source", 4)),
        ("executor killed", kill_executor),
        ("target to 4 segments", lambda: scale("target", 4)),
        ("driver killed", kill_driver),
        ("source to 2 segments", lambda: scale("source", 2)),
        ("worker killed", kill_worker),
        ("target to 2 segments", lambda: scale("target", 2)),
    ]
    for name, blow in cycle(blows):
        await trio.sleep(pause * random.uniform(0.7, 1.3))
        story.say(name)
        story.blows.append((story.now, name))
        await blow()


async def _soak(
    server: PravegaCluster, spark: StandaloneCluster, story: Story, *, seconds: float, rate: int, pause: float
) -> None:
    scope = f"soak-{uuid4().hex[:8]}"
    config = PravegaConfig.from_defaults(controller_uri=server.controller_uri, scope=scope, env={})
    with tempfile.TemporaryDirectory(prefix="spark-soak-") as folder:
        checkpoint = str(Path(folder) / "checkpoint")
        driver = Driver([server.controller_uri, scope, spark.uri, checkpoint], Path(folder), story)
        async with open_client(config) as client:
            await client.create_scope(scope)
            for stream in ("source", "target"):
                await client.create_stream(stream, 2)
            await client.create_reader_group("watch", ["target"])
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(driver.keep_alive)
                    nursery.start_soon(_follow, client, story)
                    nursery.start_soon(_watch_memory, spark, driver, story)
                    async with trio.open_nursery() as blows:
                        blows.start_soon(_strike, client, spark, driver, story, pause)
                        await _append(client, story, rate, seconds)
                        blows.cancel_scope.cancel()
                    story.say(f"{sum(story.appended.values())} events appended")
                    story.all_appended = True
                    with trio.move_on_after(SECONDS_TO_FINISH):
                        await story.complete.wait()
                    nursery.cancel_scope.cancel()
            finally:
                driver.stop()
            if story.seen != story.appended:
                missing = sum(story.appended.values()) - sum(story.seen.values())
                log = (Path(folder) / "driver.log").read_text(errors="replace").splitlines()[-40:]
                raise AssertionError(f"{missing} events have not arrived:\n" + "\n".join(log))
            await _verify(client, story)


async def _verify(client: PravegaClient, story: Story) -> None:
    """Check that the target contains every appended event once, in order for each key."""
    found: dict[str, int] = {}
    async for batch in client.read_events("target"):
        for event in batch:
            key, number, *_ = event.decode().split(":")
            if int(number) != found.get(key, 0):
                raise AssertionError(f"stored: key {key}: event {number} where {found.get(key, 0)} is due")
            found[key] = int(number) + 1
    if found != story.appended:
        raise AssertionError("what is stored differs from what was appended")


# --- the report -----------------------------------------------------------------------------------


def _percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _report(story: Story) -> dict[str, object]:
    values = [value for _, value in story.latencies]
    growth = {}
    for kind in sorted({kind for _, sizes in story.memory for kind in sizes}):
        series = [sizes[kind] for _, sizes in story.memory if kind in sizes]
        third = max(1, len(series) // 3)
        growth[kind] = {
            "early_mb": round(median(series[third : 2 * third] or series) / 1e6),
            "late_mb": round(median(series[-third:]) / 1e6),
            "max_mb": round(max(series) / 1e6),
        }
    return {
        "events": sum(story.seen.values()),
        "latency_seconds": {
            "p50": round(_percentile(values, 0.5), 3),
            "p99": round(_percentile(values, 0.99), 3),
            "max": round(max(values), 3),
        },
        "blows": len(story.blows),
        "drivers": story.lives,
        "drivers that Spark ended, too slow to start": story.given_up,
        "memory": growth,
    }


def _draw(story: Story, picture: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    slots: dict[int, list[float]] = {}
    for moment, value in story.latencies:
        slots.setdefault(int(moment // 5), []).append(value)
    times = [5 * slot / 60 for slot in sorted(slots)]
    figure, (latency, rate, memory) = plt.subplots(3, 1, figsize=(12, 9), sharex=True, layout="constrained")
    for share, name in ((0.5, "median"), (0.99, "99 %"), (1.0, "slowest")):
        latency.plot(times, [_percentile(slots[slot], share) for slot in sorted(slots)], label=name)
    latency.set_yscale("log")
    latency.set_ylabel("append to readable, s")
    rate.plot(times, [len(slots[slot]) / 5 for slot in sorted(slots)])
    rate.set_ylabel("events readable, 1/s")
    for kind in sorted({kind for _, sizes in story.memory for kind in sizes}):
        points = [(moment / 60, sizes[kind] / 1e6) for moment, sizes in story.memory if kind in sizes]
        memory.plot(*zip(*points, strict=True), label=kind)
    memory.set_ylabel("resident, MB")
    memory.set_xlabel("minutes")
    colours = {"driver": "tab:red", "worker": "tab:orange", "executor": "tab:olive"}
    for moment, name in story.blows:
        for axes in (latency, rate):
            axes.axvline(
                moment / 60, color=colours.get(name.split()[0], "tab:gray"), alpha=0.5, linewidth=0.8
            )
    latency.set_title("Killed: driver red, worker orange, executor olive. Grey: a stream is scaled")
    for axes in (latency, memory):
        axes.legend(loc="upper left", fontsize="small")
    figure.savefig(picture, dpi=110)


def main() -> int:
    if sys.argv[1:2] == ["drive"]:
        drive(*sys.argv[2:])
        return 0
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.spark_soak", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=int, default=1000, help="events a second (default: 1000)")
    parser.add_argument("--pause", type=float, default=45.0, help="seconds between blows (default: 45)")
    parser.add_argument("--picture", type=Path, help="PNG file")
    arguments = parser.parse_args()
    # Workers start Python without this environment; what they import has to be found from there.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with (
        tempfile.TemporaryDirectory(prefix="spark-soak-cluster-") as logs,
        cluster() as server,
        standalone_cluster(Path(logs)) as spark,
    ):
        story = Story()
        failed: Sequence[BaseException] = ()
        try:
            trio.run(
                lambda: _soak(
                    server, spark, story,
                    seconds=arguments.minutes * 60, rate=arguments.rate, pause=arguments.pause,
                )
            )  # fmt: skip
        except* AssertionError as group:
            failed = group.exceptions
    if story.latencies:
        print(json.dumps(_report(story)), flush=True)
    if arguments.picture is not None:
        _draw(story, arguments.picture)
    for error in failed:
        print(f"error: {error}", file=sys.stderr)
    if failed:
        return 1
    story.say("each event once and in order")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
