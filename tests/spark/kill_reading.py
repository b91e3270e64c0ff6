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
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from pravega_wire.sync import PravegaClient, open_client
from tests.spark.kill_hooks import Plan, Victim, command_of
from tests.spark.killing import KEYS, Driver, NotShownError, key_of, number_of

__all__ = ["CALLS", "ReadJob", "ReadVerdict", "reading_cases"]

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
    truncations: int
    batches: int
    events: int
    run_again: int
    lost: int
    doubled: int
    foreign: int
    disordered_keys: int
    different: int
    over_limit: int

    def faults(self) -> dict[str, int]:
        """What is wrong, by name."""
        names = ("lost", "doubled", "foreign", "disordered_keys", "different", "over_limit")
        return {name: getattr(self, name) for name in names if getattr(self, name)}


class ReadJob:
    """Streams that somebody appends to, and a query that reads them and may be killed.

    :param streams: how many there are. :param max_bytes: what a batch is limited to. :param max_events: the
        same, 0 for no such limit. :param pause: seconds between two appends of 25 events.
    """

    def __init__(
        self,
        client: PravegaClient,
        folder: Path,
        *,
        streams: int = 1,
        max_bytes: int = 5000,
        max_events: int = 0,
        pause: float = 0.3,
        archive: str = "",
    ) -> None:
        self.client, self.folder = client, folder
        self.streams = [f"source-{uuid4().hex[:10]}" for _ in range(streams)]
        for stream in self.streams:
            client.create_stream(stream, 2)
        self.heads = {stream: client.head(stream) for stream in self.streams}
        self.target = folder / "target"
        self.target.mkdir(parents=True)
        self.plan = Plan(
            controller=client.config.controller_uri,
            scope=client.config.scope or "",
            stream=self.streams[0],
            more_streams=tuple(self.streams[1:]),
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
            max_events=max_events,
            archive=archive or os.environ.get("SPARK_KILLS_ARCHIVE", ""),
        )
        self.pause = pause
        self.written: list[str] = []
        self.drivers: list[Driver] = []
        self.kills = self.scales = self.truncations = 0
        self._turns = cycle(self.streams)
        self._seen: set[Path] = set()
        self._stored: set[str] = set()
        self._last = -1  # the last batch with the limits of the plan
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
            with open_client(self.client.config) as client, ExitStack() as stack:
                writers = [stack.enter_context(client.event_writer(each)) for each in self.streams]
                # a key belongs to one stream, so that its order holds over all of them
                for number, writer in cycle(enumerate(writers)):
                    if self._ending.is_set():
                        break
                    begin = len(self.written)
                    some = [
                        f"0,{n},{number}-key-{n * 7 % KEYS},{'x' * (n % 60)}"
                        for n in range(begin, begin + 25)
                    ]
                    writer.write_events(
                        [each.encode() for each in some], routing_keys=list(map(key_of, some))
                    )
                    writer.flush()
                    self.written += some
                    self._ending.wait(self.pause)
        except Exception as error:
            self.error = error

    def scale(self) -> None:
        """Replace all segments of the next stream by another number of them."""
        count, stream = next(self._counts), next(self._turns)
        seal = [each.segment_id for each in self.client.active_segments(stream)]
        edges = [number / count for number in range(count)] + [1.0]
        self.client.scale_stream(stream, seal, list(pairwise(edges)))
        self.scales += 1

    def truncate_behind(self, driver: Driver) -> None:
        """Truncate every stream where it ends now, when no restart will ask for what was before."""
        cuts = [(stream, self.client.tail(stream)) for stream in self.streams]
        wanted = set(self.written)
        while not wanted <= self._found():
            driver.until("stored")
        for _ in range(2):  # of these Spark may run the second again, whose start is behind the cuts
            driver.until("stored")
        for stream, cut in cuts:
            self.client.truncate_stream(stream, cut)
        self.truncations += 1

    def _found(self) -> set[str]:
        """All events that the target has so far."""
        for path in set(self.target.glob("*.json")) - self._seen:
            self._seen.add(path)
            self._stored.update(row[2] for row in json.loads(path.read_text()))
        return self._stored

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
        self.stop_appending()
        # the rest may be a lot by now
        self._last = max(map(self._number_of, self.target.glob("*.json")), default=-1)
        limits = {"max_bytes": 1_000_000, "max_events": 0}
        self.disturb(lambda driver: driver.until("finished"), trigger="", **limits)

    def stop_appending(self) -> None:
        """Append no more."""
        self._ending.set()
        self._writer.join()
        if self.error is not None:
            raise self.error

    @staticmethod
    def _number_of(path: Path) -> int:
        return int(path.name.partition("-")[0])

    def _is_over_limit(self, rows: list[list[Any]]) -> bool:
        """Whether a batch has more than it may: an event counts with its header of 8 bytes."""
        size = sum(len(row[2].encode()) + 8 for row in rows)
        too_many = 0 < self.plan.max_events < len(rows)
        return too_many or (len(rows) > 1 and size > self.plan.max_bytes)

    def verdict(self) -> ReadVerdict:
        """Compare what was read with what was written, and the attempts of each batch with each other."""
        attempts: dict[int, list[list[list[Any]]]] = {}
        for path in sorted(self.target.glob("*.json")):
            attempts.setdefault(self._number_of(path), []).append(json.loads(path.read_text()))
        found = [row[2] for _, runs in sorted(attempts.items()) for row in runs[-1]]
        counted, wanted = Counter(found), set(self.written)
        by_key: dict[str, list[int]] = {}
        for event in found:
            by_key.setdefault(key_of(event), []).append(number_of(event))
        return ReadVerdict(
            starts=len(self.drivers),
            kills=self.kills,
            scales=self.scales,
            truncations=self.truncations,
            batches=len(attempts),
            events=len(self.written),
            run_again=sum(len(runs) - 1 for runs in attempts.values()),
            lost=len(wanted - counted.keys()),
            doubled=sum(count - 1 for count in counted.values()),
            foreign=len(counted.keys() - wanted),
            disordered_keys=sum(numbers != sorted(numbers) for numbers in by_key.values()),
            different=sum(run != runs[0] for runs in attempts.values() for run in runs[1:]),
            over_limit=sum(
                self._is_over_limit(runs[-1]) for batch, runs in attempts.items() if batch <= self._last
            ),
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


def hundred_triggers(job: ReadJob) -> None:
    """One driver runs a hundred batches under limits; after each quarter of them the stream is scaled."""

    def watched(driver: Driver) -> None:
        for _ in range(4):
            for _ in range(25):
                driver.until("stored")
            job.scale()
        driver.kill("group")
        job.kills += 1

    job.disturb(watched)
    job.finish()


def scaled_and_truncated(job: ReadJob) -> None:
    """Streams are scaled, truncated behind what was read, and their driver is killed; three times."""
    for victim in ("group", "jvm", "python"):

        def disturbed(driver: Driver, victim: Victim = victim) -> None:
            driver.until("stored")
            job.scale()
            job.truncate_behind(driver)
            job.scale()
            driver.until("stored")
            driver.kill(victim)
            job.kills += 1

        job.disturb(disturbed)
    job.finish()
    for stream in job.streams:
        if job.client.head(stream) == job.heads[stream]:
            raise NotShownError(f"stream {stream} was not truncated")


@dataclass(frozen=True)
class ReadCase:
    """A name, what is done, and what the job is made with."""

    name: str
    run: Callable[[ReadJob], None]
    options: dict[str, Any] = field(default_factory=dict)


def reading_cases(seed: int, rounds: int) -> list[ReadCase]:
    """All cases of the source; the random ones with that seed and number of kills."""
    three = {"streams": 3, "max_bytes": 100_000}
    return [
        ReadCase("killed at each call", killed_at_calls),
        ReadCase("killed at random", lambda job: killed_at_random_reading(job, seed, rounds)),
        ReadCase("a hundred triggers, limit in bytes", hundred_triggers, {"max_bytes": 2000}),
        ReadCase(
            "a hundred triggers, limit in events", hundred_triggers, {"max_bytes": 100_000, "max_events": 30}
        ),
        ReadCase("scaled, truncated, killed", scaled_and_truncated, {"max_bytes": 100_000}),
        ReadCase("three streams, scaled, truncated, killed", scaled_and_truncated, three),
        ReadCase("three streams, killed at each call", killed_at_calls, three),
    ]
