"""Kills streaming queries that read a stream while it grows and scales, and compares what each batch gave.

The target of the query keeps the rows of every attempt of every batch in a file of its own, so that a batch
that Spark runs again after a restart can be compared with its first run. For the result the last attempt of
each batch counts.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from pravega_wire.sync import PravegaClient, open_client
from tests.spark.kill_hooks import Plan, command_of
from tests.spark.killing import KEYS, Driver, NotShownError, key_of, number_of

__all__ = ["CALLS", "ReadJob", "ReadVerdict", "killed_at_calls", "killed_at_random_reading"]

CALLS = (
    "before initialOffset",
    "after initialOffset",
    "before latestOffset",
    "after latestOffset",
    "before partitions",
    "after partitions",
    "before read",
    "target",
    "before commit",
)
"""Where a query is killed: ``read`` is in a task, ``target`` in foreachBatch, others while Spark plans."""

PLANNER = "python_streaming_source_runner"
ATTEMPTS = 8


@dataclass(kw_only=True)
class ReadVerdict:
    """What was found in the end; everything but the first part of it has to be 0."""

    starts: int
    kills: int
    scales: int
    batches: int
    events: int
    run_again: int
    lost: int
    doubled: int
    foreign: int
    disordered_keys: int
    different: int

    def faults(self) -> dict[str, int]:
        """What is wrong, by name."""
        names = ("lost", "doubled", "foreign", "disordered_keys", "different")
        return {name: getattr(self, name) for name in names if getattr(self, name)}


class ReadJob:
    """A stream that somebody appends to, and a query that reads it and may be killed.

    :param max_bytes: what a batch is limited to. :param pause: seconds between two appends of 25 events.
    """

    def __init__(
        self,
        client: PravegaClient,
        folder: Path,
        *,
        max_bytes: int = 5000,
        pause: float = 0.3,
        archive: str = "",
    ) -> None:
        self.client, self.folder = client, folder
        self.stream = f"source-{uuid4().hex[:10]}"
        client.create_stream(self.stream, 2)
        self.target = folder / "target"
        self.target.mkdir(parents=True)
        self.plan = Plan(
            controller=client.config.controller_uri,
            scope=client.config.default_scope or "",
            stream=self.stream,
            ledger="",
            files="",
            checkpoint=str(folder / "checkpoint"),
            events="",
            go="",
            marker="",
            form="source",
            target=str(self.target),
            trigger="0 seconds",
            max_bytes=max_bytes,
            archive=archive or os.environ.get("SPARK_KILLS_ARCHIVE", ""),
        )
        self.pause = pause
        self.written: list[str] = []
        self.drivers: list[Driver] = []
        self.kills = self.scales = 0
        self.error: Exception | None = None
        self._counts = cycle((3, 2, 5, 4))
        self._ending = threading.Event()
        self._writer = threading.Thread(target=self._append, daemon=True)

    def __enter__(self) -> Self:
        self._writer.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ending.set()
        self._writer.join()

    def _append(self) -> None:
        try:
            with open_client(self.client.config) as client, client.event_writer(self.stream) as writer:
                while not self._ending.is_set():
                    begin = len(self.written)
                    some = [f"0,{n},key-{n * 7 % KEYS},{'x' * (n % 60)}" for n in range(begin, begin + 25)]
                    writer.write_events(
                        [each.encode() for each in some], routing_keys=list(map(key_of, some))
                    )
                    writer.flush()
                    self.written += some
                    self._ending.wait(self.pause)
        except Exception as error:
            self.error = error

    def scale(self) -> None:
        """Replace all segments by another number of them."""
        count = next(self._counts)
        seal = [each.segment_id for each in self.client.active_segments(self.stream)]
        edges = [number / count for number in range(count)] + [1.0]
        self.client.scale_stream(self.stream, seal, list(pairwise(edges)))
        self.scales += 1

    @contextmanager
    def driver(self, **changes: Any) -> Iterator[Driver]:
        """Start a driver; what is left of it in the end is killed."""
        with Driver(replace(self.plan, **changes), self.folder) as driver:
            self.drivers.append(driver)
            yield driver

    def disturb(self, disturbed: Callable[[Driver], object], **changes: Any) -> None:
        """Start a driver, do something to it, and wait for its end.

        Spark gives its planning process 10 s to start and fails without it. On a busy machine that is no time
        at all, so a driver that ends for this reason is followed by another one.
        """
        for attempt in range(1, ATTEMPTS + 1):
            with self.driver(**changes) as driver:
                try:
                    disturbed(driver)
                    driver.ended()
                    break
                except NotShownError:
                    if attempt == ATTEMPTS or "failed to connect back" not in driver.output:
                        raise

    def finish(self) -> None:
        """Append no more, and let a driver read all that is there."""
        self._ending.set()
        self._writer.join()
        if self.error is not None:
            raise self.error
        # the rest may be a lot by now
        self.disturb(lambda driver: driver.until("finished"), trigger="", max_bytes=1_000_000)

    def verdict(self) -> ReadVerdict:
        """Compare what was read with what was written, and the attempts of each batch with each other."""
        attempts: dict[int, list[list[list[Any]]]] = {}
        for path in sorted(self.target.glob("*.json")):
            attempts.setdefault(int(path.name.partition("-")[0]), []).append(json.loads(path.read_text()))
        found = [row[2] for _, runs in sorted(attempts.items()) for row in runs[-1]]
        counted, wanted = Counter(found), set(self.written)
        by_key: dict[str, list[int]] = {}
        for event in found:
            by_key.setdefault(key_of(event), []).append(number_of(event))
        return ReadVerdict(
            starts=len(self.drivers),
            kills=self.kills,
            scales=self.scales,
            batches=len(attempts),
            events=len(self.written),
            run_again=sum(len(runs) - 1 for runs in attempts.values()),
            lost=len(wanted - counted.keys()),
            doubled=sum(count - 1 for count in counted.values()),
            foreign=len(counted.keys() - wanted),
            disordered_keys=sum(numbers != sorted(numbers) for numbers in by_key.values()),
            different=sum(run != runs[0] for runs in attempts.values() for run in runs[1:]),
        )


def killed_at_calls(job: ReadJob) -> None:
    """Each driver loses the process that makes the next call; a scale comes before every other one."""
    for number, step in enumerate(CALLS):
        if number % 2:
            job.scale()

        def killed(driver: Driver, step: str = step) -> None:
            driver.until("killed", step=step)
            job.kills += 1
            if step == "before read":
                # a task is tried again; the query goes on
                driver.until("stored")
                driver.kill("group")
                job.kills += 1

        job.disturb(killed, step=step, act="self")
    job.finish()
    if not job.verdict().run_again:
        raise NotShownError("no batch ran again")


def killed_at_random_reading(job: ReadJob, seed: int, rounds: int) -> None:
    """Drivers lose their Python, JVM, planning process or all, at random moments; the stream is scaled."""
    dice = random.Random(seed)
    for _ in range(rounds):
        victim = dice.choice(("python", "jvm", "group", "planner"))

        def killed(driver: Driver, victim: str = victim) -> None:
            driver.until("stored")
            driver.listen(dice.uniform(0.0, 3.0))
            job.scale()
            driver.listen(dice.uniform(0.0, 3.0))
            match victim:
                case "planner":
                    pids = [each for each in driver.members() if PLANNER in command_of(each)]
                    if not pids:
                        raise NotShownError("there was no planning process")
                    for pid in pids:
                        os.kill(pid, signal.SIGKILL)
                case "python" | "jvm" | "group":
                    driver.kill(victim)
            job.kills += 1

        job.disturb(killed)
    job.finish()
