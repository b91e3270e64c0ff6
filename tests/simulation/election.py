"""The exactly-once sink of ``writeStream.format("pravega")``, whose task attempts elect the transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import replace
from itertools import count
from math import inf
from typing import ClassVar
from unittest.mock import patch

from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from pravega_wire.errors import OlderCheckpointError, PravegaError
from spark_adapter.exactly_once import election
from spark_adapter.exactly_once.identity import PlannedBatch
from spark_adapter.options.write import WriteOptions
from spark_adapter.writing import format_writer
from spark_adapter.writing.format_writer import StreamSink, _Plan
from tests.simulation.blocking import Threads, Time
from tests.simulation.cluster import CONTROLLERS
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
    client_of_process,
)
from tests.simulation.world import FAULTS, SCOPE, World

_SCHEMA = StructType([StructField("event", BinaryType()), StructField("key", StringType())])
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
        with ExitStack() as stack:
            stack.enter_context(super().spark())
            for where, name, new in (
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
            ):
                stack.enter_context(patch.object(where, name, new))
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

    def planned(self, run: Run, batch: int) -> StreamSink:
        """What Spark makes when it plans the batch, and again to commit it."""
        options = WriteOptions.parse(
            {
                "controller": "tcp://" + ",".join(CONTROLLERS),
                "stream": f"{SCOPE}/{STREAM}",
                "semantic": "exactly_once",
                "ledger_stream": f"{SCOPE}/{LEDGER}",
                "query": KEY.query,
                "routing_key_col": "key",
                "transaction_timeout_ms": str(round(self.lease * 1000)),
                "read_after_write_consistency": str(self.wait_visible).lower(),
                "compact_after": str(self.compact_after),
            },
            "writeStream",
        )
        plan = replace(
            _Plan.of(options, _SCHEMA),
            hook=self.reached,
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
            attempts: list[Attempt] = []
            try:
                attempts = self.run_job(run, batch, self.planned(run, batch).write, properties)
                outcomes = {each.result.did.outcome for each in attempts}
                if outcomes <= {"written", "empty"}:
                    self.elect(batch, attempts)
                self.in_new_process()
                self.planned(run, batch).commit([each.result for each in attempts], batch)
            except (JobFailed, PravegaError) as error:
                if isinstance(error, JobFailed):
                    attempts = error.attempts
                self.in_new_process()
                self.planned(run, batch).abort([each.result for each in attempts], batch)
                if isinstance(error, JobFailed) and isinstance(error.error, OlderCheckpointError):
                    raise error.error from None
                raise
            if run.checkpoint.rows(batch):
                self.returned = max(self.returned, batch + 1)
            return "/".join(sorted(outcomes))

        return write

    def in_new_process(self) -> None:
        """The driver commits and aborts in a process of its own each time."""
        _COMMITTER.set(f".{next(self.committers)}")
