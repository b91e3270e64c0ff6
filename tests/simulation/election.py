"""The exactly-once sinks of ``format("pravega")``, whose task attempts elect the transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from itertools import count
from math import inf
from types import MappingProxyType
from typing import Any, ClassVar
from uuid import UUID

import trio
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from pravega_wire.errors import OlderCheckpointError, PravegaError
from pravega_wire.stream.client import PravegaClient
from spark_adapter.exactly_once import election
from spark_adapter.exactly_once.identity import PlannedBatch
from spark_adapter.exactly_once.ledger import is_unnamed
from spark_adapter.options.read import Use
from spark_adapter.options.write import WriteOptions
from spark_adapter.writing import format_writer
from spark_adapter.writing.format_writer import BatchSink, StreamSink, _Plan
from tests.simulation.blocking import Threads, Time, patched, run_blocking
from tests.simulation.cluster import CONTROLLERS
from tests.simulation.events import check_transactions, stored_events
from tests.simulation.machine import Failure
from tests.simulation.sink import (
    KEY,
    LEDGER,
    PROCESS,
    STREAM,
    Attempt,
    Checkpoint,
    HeldClient,
    JobFailed,
    Run,
    Sink,
    TaskContext,
    Write,
    client_of_process,
)
from tests.simulation.world import FAULTS, SCOPE, Process, World

_SCHEMA = StructType([StructField("event", BinaryType()), StructField("key", StringType())])
_MOST_DRIVERS = 30
_COMMITTER: ContextVar[str] = ContextVar("name of the process that commits", default="")


class _Os:
    """In place of the module :mod:`os`: what a process keeps for its next task is its own."""

    @staticmethod
    def getpid() -> str:
        return PROCESS.get().name + _COMMITTER.get()


class Election(Sink):
    """A query that writes batches exactly once by ``format("pravega")``."""

    name: ClassVar[str] = "election"
    # Which of two drivers stops is decided by their clocks.
    faults: ClassVar[tuple[str, ...]] = tuple(each for each in FAULTS if each != "skew")

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.locations: dict[str, Checkpoint] = {}
        self.committers = count(1)

    @contextmanager
    def spark(self) -> Iterator[None]:
        with (
            super().spark(),
            patched(
                (election, "threading", Threads),
                (election, "time", Time),
                (format_writer, "time", Time),
                (format_writer, "os", _Os),
                (format_writer, "TaskContext", TaskContext),
                (format_writer, "HeldClient", HeldClient),
                (format_writer, "client_for", client_of_process),
                (format_writer, "local_entry", self.local_entry),
                (format_writer, "_journals", {}),
                (format_writer, "_KEPT_JOURNALS", inf),
                (format_writer, "_ensured", set()),
            ),
        ):
            yield

    def local_entry(self, location: str | None, batch: int) -> PlannedBatch | None:
        return self.locations[location or ""].entry(batch) if self.readable else None

    def location(self, checkpoint: Checkpoint) -> str:
        for name, each in self.locations.items():
            if each is checkpoint:
                return name
        name = f"/checkpoint-{len(self.locations)}"
        self.locations[name] = checkpoint
        return name

    def plan(self, use: Use, **options: str) -> _Plan:
        parsed = WriteOptions.parse(
            {
                "controller": "tcp://" + ",".join(CONTROLLERS),
                "stream": f"{SCOPE}/{STREAM}",
                "semantic": "exactly_once",
                "ledger_stream": f"{SCOPE}/{LEDGER}",
                "routing_key_col": "key",
                "transaction_timeout_ms": str(round(self.lease * 1000)),
                "read_after_write_consistency": str(self.wait_visible).lower(),
                "compact_after": str(self.compact_after),
                **options,
            },
            use,
        )
        return replace(_Plan.of(parsed, _SCHEMA), hook=self.reached)

    def planned(self, run: Run, batch: int) -> StreamSink:
        """What Spark makes when it plans the batch, and again to commit it."""
        plan = replace(
            self.plan("writeStream", query=KEY.query),
            checkpoint=self.location(run.checkpoint),
            newest=batch if self.readable else None,
            planned=run.checkpoint.entry(batch) if self.readable else None,
        )
        return StreamSink(plan)

    def writing(self, batch: int, run: Run) -> Callable[[int], str]:
        def write(batch: int) -> str:
            properties = {
                "streaming.sql.batchId": str(batch),
                "sql.streaming.queryId": "checkpoint",
                "spark.jobGroup.id": str(run.session),
            }
            try:
                outcomes = self.run_and_commit(
                    run,
                    batch,
                    self.planned(run, batch).write,
                    lambda messages: self.planned(run, batch).commit(messages, batch),
                    lambda messages: self.planned(run, batch).abort(messages, batch),
                    properties,
                )
            except JobFailed as error:
                if isinstance(error.error, OlderCheckpointError):
                    raise error.error from None
                raise
            if run.checkpoint.rows(batch):
                self.returned = max(self.returned, batch + 1)
            return "/".join(sorted(outcomes))

        return write

    def run_and_commit(
        self,
        run: Run,
        number: int,
        write: Write,
        commit: Callable[[list[Any]], None],
        abort: Callable[[list[Any]], None],
        properties: Mapping[str, str] = MappingProxyType({}),
    ) -> set[str]:
        """Do what Spark's driver does with a writer; return what its attempts found.

        :raises JobFailed, PravegaError: the writer was told to abort.
        """
        attempts: list[Attempt] = []
        try:
            attempts = self.run_job(run, number, write, properties)
            outcomes = {each.result.did.outcome for each in attempts}
            if outcomes <= {"written", "empty"}:
                self.elect(number, attempts)
            self.in_new_process()
            commit([each.result for each in attempts])
            for each in attempts:
                self.check_visible(each.result.did.txn)
        except (JobFailed, PravegaError) as error:
            if isinstance(error, JobFailed):
                attempts = error.attempts
            self.in_new_process()
            try:
                abort([each.result for each in attempts])
            except PravegaError as failure:
                self.bear(failure)
            raise
        return outcomes

    def in_new_process(self) -> None:
        """The driver commits and aborts in a process of its own each time."""
        _COMMITTER.set(f".{next(self.committers)}")


class _Job(Checkpoint):
    """In place of a checkpoint: the rows of a job."""

    def __init__(self, rows: range) -> None:
        super().__init__()
        self._rows = rows

    def rows(self, batch: int) -> range:
        return self._rows


class Jobs(Election):
    """Batch jobs that are written exactly once by ``format("pravega")``: some with a name, which are repeated
    until they succeed, and others without, which are run once."""

    name: ClassVar[str] = "jobs"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.names = ("a", "b", "c")[: self.random.randint(1, 3)]
        self.rows = [range(self.random.choice((0, 1, 5, 20))) for _ in self.names]
        self.unnamed = count(len(self.names))
        self.succeeded: set[int] = set()

    async def keep_driver(self) -> None:
        while not self.world.quiet:
            job, number = self.random.randrange(2 * len(self.names)), next(self.numbers)
            await self.run_driver(f"driver-{number}", job, is_last=False)
            with trio.move_on_after(inf if number >= _MOST_DRIVERS else self.world.pause(self.random) + 0.5):
                await self.world.over.wait()

    async def run_driver(self, name: str, number: int, *, is_last: bool) -> None:
        """Run a driver for a named job, or if there is none of this number for a new one without a name."""
        process = self.world.process(name)
        if is_last:
            process.operation_timeout = 120.0
        await process.run(partial(run_blocking, self.drive_job, number, is_last))

    def drive_job(self, number: int, is_last: bool, process: Process) -> None:
        named = number < len(self.names)
        if not named:
            number = next(self.unnamed)
        rows = self.rows[number] if named else range(process.random.choice((1, 5, 20)))
        more = {"job_id": self.names[number]} if named else {}
        with self.connected(process) as client:
            run = Run(process, client, _Job(rows))
            writer = BatchSink(self.plan("write", **more))
            try:
                outcomes = self.run_and_commit(run, number, writer.write, writer.commit, writer.abort)
            except (JobFailed, PravegaError) as error:
                if is_last:
                    raise Failure(f"the last job fails: {type(error).__name__}: {error}") from error
                if isinstance(error, PravegaError):
                    self.bear(error)
                return
            self.world.events.note(f"{process.name}: job {number} was {sorted(outcomes)}")
            self.succeeded.add(number)

    async def end(self) -> None:
        """Each named job has to succeed, and one without a name removes what others have left."""
        await trio.sleep(self.lease + 10.0)
        for number in (*range(len(self.names)), len(self.names)):
            await self.run_driver(f"admin-driver-{next(self.numbers)}", number, is_last=True)
        await trio.sleep(10.0)

    async def check(self, client: PravegaClient) -> None:
        kept: set[UUID] = set()
        for key, sink in (await self.ledger(client)).sinks.items():
            # What a job without a name has committed but not recorded stays until the server forgets it.
            if sink.claim is not None:
                if not is_unnamed(key.query) or sink.claim.prepared is None:
                    raise Failure(f"the ledger ends with {key}: {sink}")
                kept |= sink.claim.staging
        stored = defaultdict(list)
        for segment in await stored_events(client, STREAM):
            for event in segment:
                stored[int(event.split(b"|")[0])].append(event)
        for number in range(next(self.unnamed)):
            found = sorted(stored[number])
            wanted = [sorted(each) for each in self.elected[number]]
            if found not in (wanted if number in self.succeeded else [[], *wanted]):
                raise Failure(f"job {number} is stored as {[event[:30] for event in found]}")
        check_transactions(self.world, kept)
