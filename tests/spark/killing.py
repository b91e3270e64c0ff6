"""Kills Spark drivers and looks at what became of the stream; for tests and ``benchmarks.spark_kills``.

A :class:`Job` is a query with a fixed input, a stream and a ledger; it is run by any number of drivers, each
a process of its own (``kill_driver``). A :class:`Looker` reads the stream all the time. In the end
:meth:`Job.verdict` counts what is lost, doubled, out of order, half or left behind.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self
from uuid import UUID, uuid4

from pravega_wire.sync import PravegaClient, open_client
from spark_adapter.exactly_once.ledger import Done, LedgerState, Prepared, Preparing, SinkKey
from tests.spark.helpers import ledger_records, read_all, staging_left
from tests.spark.kill_hooks import Plan, Victim, command_of, end, session_members

__all__ = ["Driver", "Job", "Looker", "NotShownError", "Program", "Verdict", "batch_of"]

ROOT = Path(__file__).resolve().parents[2]
KEYS = 12
PAUSE = 0.05
DEADLINE = 400.0
"""Seconds for one driver: starting Spark takes most of them on a busy machine."""


class NotShownError(AssertionError):
    """What a case is about did not happen, so it shows nothing."""


def batch_of(event: str) -> int:
    """The number of the batch that an event belongs to."""
    return int(event.partition(",")[0])


def key_of(event: str) -> str:
    """The routing key of an event."""
    return event.split(",", 3)[2]


def number_of(event: str) -> int:
    """The place of an event in the whole input."""
    return int(event.split(",", 2)[1])


# --- processes ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Program:
    """What a driver runs: a module of this project, in some Python, with some environment variables."""

    module: str = "tests.spark.kill_driver"
    python: str = sys.executable
    environment: Mapping[str, str] = field(default_factory=dict)


class Driver:
    """One run of a driver's process and what it tells.

    :ivar heard: every line so far. :ivar process: the Python process; it leads a session of its own.
    """

    def __init__(
        self,
        plan: Plan,
        folder: Path,
        program: Program = Program(),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.plan = plan
        self.heard: list[dict[str, Any]] = []
        self.log = folder / f"driver-{uuid4().hex[:8]}.log"
        self.plan = plan = replace(plan, events=f"{self.log}.events", go=f"{self.log}.go")
        os.mkfifo(plan.events)
        os.mkfifo(plan.go)
        # open for writing too: the end of one writer among several is no end of file
        self._pipe = os.open(plan.events, os.O_RDWR | os.O_NONBLOCK)
        self._left = b""
        file = self.log.with_suffix(".json")
        file.write_text(plan.to_json())
        python_path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        own = {"PYTHONPATH": python_path, "PYSPARK_PYTHON": program.python}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [program.python, "-m", program.module, str(file)],
                cwd=ROOT,
                env={**os.environ, **own, **program.environment, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._end = os.pidfd_open(self.process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill("group")
        self.process.wait()
        os.close(self._pipe)
        os.close(self._end)

    @property
    def output(self) -> str:
        """What it has printed."""
        return self.log.read_text(errors="replace")

    def next(self, timeout: float) -> dict[str, Any] | None:
        """The next line; None when the time is up, or the process has ended and said all."""
        until = time.monotonic() + timeout
        while True:
            line, found, rest = self._left.partition(b"\n")
            if found:
                self._left = rest
                note: dict[str, Any] = json.loads(line)
                self.heard.append(note)
                return note
            ready, _, _ = select.select([self._pipe, self._end], [], [], max(0.0, until - time.monotonic()))
            if self._pipe in ready:
                self._left += os.read(self._pipe, 1 << 16)
            elif self._end in ready or not ready:
                return None

    def until(self, what: str, **fields: Any) -> dict[str, Any]:
        """Wait for a line.

        :raises NotShownError: the process ended, or nothing was heard of it in time.
        """
        until = time.monotonic() + DEADLINE
        while (note := self.next(until - time.monotonic())) is not None:
            if note["what"] == what and all(note.get(name) == value for name, value in fields.items()):
                return note
        raise NotShownError(f"the driver never said {what!r} {fields or ''}:\n{self.output[-3000:]}")

    def go(self) -> None:
        """Let a paused driver go on."""
        with open(self.plan.go, "w", encoding="ascii"):
            pass

    def listen(self, seconds: float) -> None:
        """Take in what it says for so long, or until it ends."""
        until = time.monotonic() + seconds
        while self.next(until - time.monotonic()) is not None:
            pass

    def ended(self) -> int:
        """Wait until the Python process is gone; its exit status."""
        self.listen(DEADLINE)
        try:
            return self.process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            raise NotShownError(f"the driver did not end in {DEADLINE} s:\n{self.output[-3000:]}") from None

    def members(self) -> list[int]:
        """Every process that the driver started, itself included."""
        return session_members(self.process.pid)

    def python_workers(self) -> list[int]:
        """The processes that run Python functions of tasks."""
        return [
            each
            for each in self.members()
            if "pyspark.daemon" in command_of(each) or "pyspark.worker" in command_of(each)
        ]

    def kill(self, victim: Victim) -> None:
        """``kill -9`` of its Python process, its JVM, or everything."""
        end(victim, self.process.pid)


# --- a reader that looks all the time -----------------------------------------------------------------


class Looker(threading.Thread):
    """Reads what came since its last look, again and again, and notes batches of which it saw a part.

    The server merges a committing transaction into one segment after the other, so a look at all segments can
    fall between two of them. Such a part of a batch is ``merging`` if its transaction is PREPARED in the
    ledger and committing or committed, what is there of it in a segment is all that ever comes there, and the
    batch is whole once the commit has ended. Any other part is a half batch.

    :ivar events: all it has read, in order for each key. :ivar looks: how often it has looked.
    :ivar merging: batches of which it saw whole segments while the server merged them.
    :ivar halves: other parts of batches, in words.
    """

    def __init__(self, job: Job) -> None:
        super().__init__(name="looker", daemon=True)
        self.events: list[str] = []
        self.looks = 0
        self.merging: list[int] = []
        self.halves: list[str] = []
        self.error: Exception | None = None
        self.cut = job.start
        self._job = job
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._counts: Counter[int] = Counter()
        self._places: set[tuple[int, int]] = set()

    def run(self) -> None:
        try:
            with open_client(self._job.config) as client:
                while not self._ending.is_set():
                    with self._lock:
                        self._look(client)
                    self._ending.wait(PAUSE)
                with self._lock:
                    self._look(client)
        except Exception as error:
            self.error = error

    def _look(self, client: PravegaClient) -> None:
        """Read up to the tail as it is now."""
        self.looks += 1
        for batch in self._read(client):
            state = self._state_of(client, batch)
            seen = self._counts[batch]
            if state in ("COMMITTING", "COMMITTED"):
                client.wait_committed(self._job.stream, self._txns[batch])
                self._read(client)
                if self._counts[batch] == self._job.rows:
                    self.merging.append(batch)
                    continue
            self.halves.append(f"batch {batch}, {state}: {seen} events, then {self._counts[batch]}")

    def _read(self, client: PravegaClient) -> list[int]:
        """Read what is new; the batches of it that are not whole."""
        stream = self._job.stream
        tail = client.tail(stream)
        touched: Counter[int] = Counter()
        places = set()
        for part in client.segment_ranges(stream, self.cut, tail):
            for events in client.read_range(part):
                for event in (each.decode() for each in events.to_list()):
                    self.events.append(event)
                    touched[batch_of(event)] += 1
                    places.add((batch_of(event), part.segment_id))
        for batch, segment in places & self._places:
            self.halves.append(f"batch {batch} came into segment {segment} in two parts, or twice")
        self._places |= places
        self._counts += touched
        self.cut = tail
        return [batch for batch in touched if self._counts[batch] % self._job.rows]

    def _state_of(self, client: PravegaClient, batch: int) -> str:
        if not self._job.has_ledger:
            return "without a ledger"
        self._txns = {
            record.batch: record.txn
            for record in ledger_records(client, self._job.ledger)
            if isinstance(record, Prepared)
        }
        if batch not in self._txns:
            return "not PREPARED"
        return str(client.transaction_status(self._job.stream, self._txns[batch]).name)

    def finish(self) -> None:
        """Look once more, and end."""
        self._ending.set()
        self.join()
        if self.error is not None:
            raise self.error

    @contextmanager
    def held(self) -> Iterator[None]:
        """It does not look meanwhile."""
        with self._lock:
            yield


# --- a job and what became of it --------------------------------------------------------------------


@dataclass(kw_only=True)
class Verdict:
    """What was found in the end; everything but the first part of it has to be 0 or empty."""

    batches: int = 0
    events: int = 0
    starts: int = 0
    kills: int = 0
    looks: int = 0
    merging: int = 0
    lost: int = 0
    doubled: int = 0
    foreign: int = 0
    disordered_keys: int = 0
    half_batches: int = 0
    staging_left: int = 0
    open_transactions: int = 0
    ledger: str = ""
    errors: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def faults(self) -> dict[str, object]:
        """What is wrong, by name."""
        names = (
            "lost", "doubled", "foreign", "disordered_keys", "half_batches", "staging_left",
            "open_transactions", "ledger",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names if getattr(self, name)}


class Job:
    """A query from files to a stream that is run by drivers that may be killed.

    :param batches: files, each of them a micro-batch. :param rows: events of each.
    :param program: another one than ours keeps no ledger, which is not looked at then.
    """

    def __init__(
        self,
        client: PravegaClient,
        folder: Path,
        *,
        batches: int,
        rows: int = 240,
        segments: int = 2,
        archive: str = "",
        program: Program | None = None,
        **options: Any,
    ) -> None:
        self.client, self.config, self.folder = client, client.config, folder
        self.program = program or Program()
        self.has_ledger = program is None
        self.batches, self.rows = batches, rows
        name = uuid4().hex[:10]
        self.stream, self.ledger = f"data-{name}", f"ledger-{name}"
        client.create_stream(self.stream, segments)
        self.checkpoint = folder / "checkpoint"
        files = folder / "files"
        files.mkdir(parents=True)
        self.input: list[str] = []
        for batch in range(batches):
            lines = [
                f"{batch},{batch * rows + row},key-{(row * 7) % KEYS},{'x' * (row % 50)}"
                for row in range(rows)
            ]
            self.input += lines
            path = files / f"{batch:05}.txt"
            path.write_text("\n".join(lines) + "\n")
            os.utime(path, (1_600_000_000 + batch, 1_600_000_000 + batch))  # Spark takes the oldest first
        self.plan = Plan(
            controller=self.config.controller_uri,
            scope=self.config.scope or "",
            stream=self.stream,
            ledger=self.ledger,
            files=str(files),
            checkpoint=str(self.checkpoint),
            events="",
            go="",
            marker=str(folder / "marker"),
            lease_ms=30000 if options.get("form", "foreachBatch") == "foreachBatch" else 120_000,
            archive=archive or os.environ.get("SPARK_KILLS_ARCHIVE", ""),
            **options,
        )
        self.start = client.head(self.stream)
        self.drivers: list[Driver] = []
        self.kills = 0
        self.errors: list[str] = []
        self.looker = Looker(self)

    def __enter__(self) -> Self:
        self.looker.start()
        return self

    def __exit__(self, *error: object) -> None:
        for driver in self.drivers:
            if driver.process.poll() is None:
                driver.kill("group")
        if self.looker.is_alive():
            with suppress(Exception):
                self.looker.finish()

    @contextmanager
    def driver(self, environment: Mapping[str, str] | None = None, **changes: Any) -> Iterator[Driver]:
        """Start a driver; what is left of it in the end is killed."""
        plan = replace(self.plan, **changes)
        with Driver(plan, self.folder, self.program, environment) as driver:
            self.drivers.append(driver)
            yield driver

    def run_to_end(self, **changes: Any) -> Driver:
        """Run a driver that nobody disturbs."""
        with self.driver(**changes) as driver:
            status = driver.ended()
            if status != 0:
                raise AssertionError(f"an undisturbed driver ended with {status}:\n{driver.output[-6000:]}")
        return driver

    def run_killed(self, step: str, victim: Victim, **changes: Any) -> Driver:
        """Run a driver that is killed at a step.

        :raises NotShownError: it never came there.
        """
        with self.driver(step=step, act=victim, **changes) as driver:
            driver.until("killed", step=step)
            self.kills += 1
            # a Python process without its JVM goes on for a while, with its commit too
            driver.ended()
        return driver

    # --- in the end -------------------------------------------------------------------------------

    def verdict(self) -> Verdict:
        """Compare everything with the input."""
        self.looker.finish()
        found = self.looker.events
        counted, wanted = Counter(found), set(self.input)
        now = read_all(self.client, self.stream)
        verdict = Verdict(
            batches=self.batches,
            events=len(self.input),
            starts=len(self.drivers),
            kills=self.kills,
            looks=self.looker.looks,
            lost=len(wanted - counted.keys()),
            doubled=sum(count - 1 for event, count in counted.items() if event in wanted),
            foreign=len(counted.keys() - wanted),
            merging=len(self.looker.merging),
            half_batches=len(self.looker.halves),
            errors=self.errors,
        )
        by_key: dict[str, list[int]] = {}
        for event in found:
            by_key.setdefault(key_of(event), []).append(number_of(event))
        verdict.disordered_keys = sum(numbers != sorted(numbers) for numbers in by_key.values())
        # what is still in the stream must be what was seen, but for what was truncated
        if Counter(now) - counted:
            verdict.foreign += sum((Counter(now) - counted).values())
        if not self.has_ledger:
            return verdict
        verdict.staging_left = len(staging_left(self.client, self.stream, self.ledger))
        verdict.open_transactions = len(self._open_transactions())
        verdict.ledger = self._ledger_fault()
        if self.looker.halves:
            verdict.notes = self.looker.halves[:5]
        return verdict

    def _open_transactions(self) -> list[UUID]:
        """Our transactions that are still open; those that no ledger knows may first use up their lease."""
        in_ledger = {
            record.txn for record in ledger_records(self.client, self.ledger) if isinstance(record, Preparing)
        }
        begun = {
            UUID(hex=note["txn"])
            for driver in self.drivers
            for note in driver.heard
            if note["what"] == "begun"
        }
        left = [txn for txn in in_ledger if self._is_open(txn)]
        until = time.monotonic() + self.plan.lease_ms / 1000 + 60
        for txn in begun - in_ledger:
            while self._is_open(txn) and time.monotonic() < until:
                time.sleep(0.5)
            if self._is_open(txn):
                left.append(txn)
        return left

    def _is_open(self, txn: UUID) -> bool:
        return self.client.transaction_status(self.stream, txn).name == "OPEN"

    def _ledger_fault(self) -> str:
        state = LedgerState()
        done: Counter[int] = Counter()
        for record in ledger_records(self.client, self.ledger):
            state = state.after(record)  # raises if no correct driver appends it
            if isinstance(record, Done):
                done[record.batch] += 1
                if record.rows != self.rows:
                    return f"batch {record.batch} is DONE with {record.rows} rows"
        if done != Counter(range(self.batches)):
            return f"DONE: {sorted(done.elements())}"
        sink = state.sink(SinkKey(self.plan.query, str(self.config.resolve(self.stream))))
        if sink.claim is not None or sink.last_done != self.batches - 1:
            return f"claim {sink.claim}, last batch {sink.last_done}"
        return ""
