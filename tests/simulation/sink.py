"""The exactly-once sink of Spark: the adapter's code as it is, in a Spark that is played."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from math import inf
from random import Random
from types import TracebackType
from typing import ClassVar
from unittest.mock import patch
from uuid import UUID

import pyarrow as pa
import trio

from pravega_wire import sync
from pravega_wire.errors import (
    CorruptedStateError,
    DataLossError,
    InvalidArgumentError,
    OlderCheckpointError,
    PravegaError,
    TransactionUnknownError,
)
from pravega_wire.stream.client import PravegaClient
from pravega_wire.support.environment import environment
from pravega_wire.values.config import PravegaConfig
from pravega_wire.values.types import ScopedStream
from spark_adapter.exactly_once import at_once, driver
from spark_adapter.exactly_once.contents import AttemptResult
from spark_adapter.exactly_once.driver import BatchCommitter
from spark_adapter.exactly_once.identity import PlannedBatch, planned_batch
from spark_adapter.exactly_once.journal import Journal, open_ledger
from spark_adapter.exactly_once.ledger import LedgerState, SinkKey, decode_record
from spark_adapter.writing import partition
from spark_adapter.writing.partition import PartitionWriter, decode_result
from tests.simulation.blocking import Pool, Time, blocking_world, in_thread, run_blocking, start, wait_for
from tests.simulation.cluster import CONTROLLERS
from tests.simulation.events import check_transactions, maybe_scale, stored_events
from tests.simulation.machine import Failure
from tests.simulation.world import SCOPE, Process, Workload, World

STREAM, LEDGER = "events", "ledger"
KEY = SinkKey("query", f"{SCOPE}/{STREAM}")

_NEVER = CorruptedStateError, DataLossError, InvalidArgumentError, TransactionUnknownError
"""Errors that nothing that goes wrong in a world explains."""

_MOST_BATCHES = 8
_MOST_FAILURES = 3
_IDLE = 5.0


class JobFailed(Exception):
    """Spark gives a job up: a partition has failed too often."""


class _Ended(Exception):
    """Spark ends a query: its checkpoint was changed by another driver."""


class Checkpoint:
    """What Spark keeps of a query.

    :ivar plans: for each batch that was planned, the number of the row after its last one, and a text.
    :ivar done: number of batches that are in the log of commits.
    """

    def __init__(self, plans: Sequence[tuple[int, str]] = (), done: int = 0) -> None:
        self.plans = list(plans)
        self.done = done

    def copy(self, back: int = 0) -> Checkpoint:
        """A copy, as it was some plans ago."""
        plans = self.plans[: max(0, len(self.plans) - back)]
        return Checkpoint(plans, min(self.done, len(plans)))

    def start_of(self, batch: int) -> int:
        return self.plans[batch - 1][0] if batch else 0

    def rows(self, batch: int) -> range:
        return range(self.start_of(batch), self.plans[batch][0])

    def entry(self, batch: int) -> PlannedBatch | None:
        if batch >= len(self.plans):
            return None
        end, planned = self.plans[batch]
        return planned_batch(f"v1\n{planned}\n{json.dumps({'cuts': {'in': str(end)}})}", False)


@dataclass
class Attempt:
    """One attempt to write a partition.

    :ivar ended: set when it has ended, whatever came of it.
    :ivar result: what it has reported.
    """

    plan: PartitionWriter
    partition: int
    number: int
    events: list[tuple[bytes, str]]
    ended: trio.Event = field(default_factory=trio.Event)
    result: AttemptResult | None = None

    # What a task asks Spark for.
    def partitionId(self) -> int:
        return self.partition

    def taskAttemptId(self) -> int:
        return self.number


_TASK: ContextVar[Attempt] = ContextVar("task")
_CLIENT: ContextVar[sync.PravegaClient] = ContextVar("client of the executor")


class _TaskContext:
    """In place of Spark's."""

    get = staticmethod(_TASK.get)


class _HeldClient:
    """In place of the adapter's: gives the client of the simulated process."""

    def __init__(self, config: PravegaConfig) -> None:
        pass

    def __enter__(self) -> sync.PravegaClient:
        return _CLIENT.get()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


@contextmanager
def _spark() -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(blocking_world())
        stack.enter_context(patch.object(at_once, "ThreadPoolExecutor", Pool))
        stack.enter_context(patch.object(driver, "time", Time))
        stack.enter_context(patch.object(partition, "TaskContext", _TaskContext))
        stack.enter_context(patch.object(partition, "HeldClient", _HeldClient))
        yield


class Executor:
    """A process that runs tasks; without tasks it ends after a while.

    :ivar given: tasks that it has not begun.
    """

    def __init__(self) -> None:
        self.given: list[Attempt] = []
        self.news = trio.Event()

    def give(self, attempt: Attempt) -> None:
        self.given.append(attempt)
        self.news.set()

    async def next(self) -> Attempt | None:
        with trio.move_on_after(_IDLE):
            await self.wait()
            return self.given.pop(0)
        return None

    async def wait(self) -> None:
        while not self.given:
            self.news = trio.Event()
            await self.news.wait()


class Sink(Workload):
    """A query that writes batches exactly once; the adapter's code runs as it is, Spark is played."""

    name: ClassVar[str] = "sink"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        rng = self.random
        self.lease = rng.choice((10.0, 30.0, 120.0))
        self.wait_visible = rng.random() < 0.7
        self.compact_after = rng.choice((10, 40, 1000))
        # Without a readable plan, only its rows identify a batch.
        self.readable = rng.random() < 0.75
        self.keys = [f"k{number}" for number in range(rng.choice((1, 3, 10)))]
        self.size = rng.choice((0, 100, 5000))
        self.speculates = rng.choice((0.0, 0.2, 0.8))
        self.stalls = rng.choice((0.0, 0.1, 0.5))
        self.second = rng.choice((0.0, 0.3))
        self.loses = rng.choice((0.0, 0.3))
        self.checkpoints = [Checkpoint()]
        self.executors = [Executor() for _ in range(rng.randint(1, 3))]
        self.running = 0
        # What was elected for each batch: the events of each try.
        self.elected: dict[int, list[list[bytes]]] = {}
        self.returned = 0

    async def prepare(self, client: PravegaClient) -> None:
        await client.create_stream(STREAM, self.random.randint(1, 3))

    # --- the cluster of Spark

    async def work(self) -> None:
        with _spark():
            async with trio.open_nursery() as executors:
                for number, executor in enumerate(self.executors):
                    executors.start_soon(self.keep_executor, f"executor-{number}", executor)
                async with trio.open_nursery() as drivers:
                    drivers.start_soon(self.keep_driver)
                    if self.second:
                        drivers.start_soon(self.keep_driver)
                    maybe_scale(self, drivers, STREAM, 0.5)
                while self.running:
                    await trio.sleep(1.0)
                await self.end()
                while self.running:
                    await trio.sleep(1.0)
                executors.cancel_scope.cancel()

    async def keep_executor(self, name: str, executor: Executor) -> None:
        while True:
            await executor.wait()
            process = self.world.process(f"{name}.{next(self.numbers)}")
            self.running += 1
            await process.run(partial(run_blocking, self.execute, executor))
            self.running -= 1
            if process.dead:
                # Spark tries the tasks of a lost executor again.
                while executor.given:
                    self.end_attempt(executor.given.pop())

    def execute(self, executor: Executor, process: Process) -> None:
        with sync.open_client(self.config(process)) as client:
            ended: list[trio.Event] = []
            while (attempt := wait_for(executor.next)) is not None:
                ended.append(attempt.ended)
                start(self.attempt, process, client, attempt)
            for each in ended:
                wait_for(each.wait)

    def config(self, process: Process) -> PravegaConfig:
        return PravegaConfig(
            controller_uri="tcp://" + ",".join(CONTROLLERS),
            scope=SCOPE,
            operation_timeout=process.operation_timeout,
        )

    async def attempt(self, process: Process, client: sync.PravegaClient, attempt: Attempt) -> None:
        _CLIENT.set(client)
        _TASK.set(attempt)
        note = self.world.events.note
        name = f"attempt {attempt.number} of partition {attempt.partition}"
        try:
            note(f"{process.name} begins {name}")
            attempt.result = await in_thread(self.write_partition, process, attempt)
            note(f"{process.name} ends {name}")
        except PravegaError as error:
            self.bear(error)
        finally:
            self.end_attempt(attempt)

    def end_attempt(self, attempt: Attempt) -> None:
        self.running -= 1
        attempt.ended.set()

    def write_partition(self, process: Process, attempt: Attempt) -> AttemptResult:
        [found] = attempt.plan.write_arrow(self.batches(process, attempt.events))
        [text] = found.column("result").to_pylist()
        return decode_result(text)

    def batches(self, process: Process, events: list[tuple[bytes, str]]) -> Iterator[pa.RecordBatch]:
        rng = process.random
        left = events
        while left:
            if not self.world.quiet and rng.random() < self.stalls:
                wait_for(trio.sleep, self.lease * rng.choice((0.01, 0.3, 2.0)) * rng.random())
            many = rng.randint(1, len(left))
            some, left = left[:many], left[many:]
            yield pa.RecordBatch.from_pydict(
                {
                    "event": pa.array([event for event, _ in some], pa.binary()),
                    "key": [key for _, key in some],
                }
            )
        if not self.world.quiet and rng.random() < self.stalls:
            wait_for(trio.sleep, self.lease * rng.choice((0.01, 0.3, 2.0)) * rng.random())

    def bear(self, error: PravegaError) -> None:
        self.world.events.note(f"{type(error).__name__}: {error}"[:200])
        if isinstance(error, _NEVER):
            self.world.problem(f"{type(error).__name__}: {error}")

    # --- a driver

    async def keep_driver(self) -> None:
        world, rng = self.world, self.random
        while not world.quiet:
            process = world.process(f"driver-{next(self.numbers)}")
            checkpoint = rng.choice(self.checkpoints)
            if rng.random() < self.loses and len(self.checkpoints) < 3:
                checkpoint = checkpoint.copy(rng.randint(0, 2))
                self.checkpoints.append(checkpoint)
            elif rng.random() < 0.2 and checkpoint.done == len(checkpoint.plans) > 0:
                checkpoint.done -= 1  # the last entry of the log of commits was lost
            await process.run(partial(run_blocking, self.drive, checkpoint, False))
            is_full = any(each.done >= _MOST_BATCHES for each in self.checkpoints)
            with trio.move_on_after(inf if is_full else world.pause(rng) + 0.5):
                await world.over.wait()

    def drive(self, checkpoint: Checkpoint, is_last: bool, process: Process) -> None:
        with sync.open_client(self.config(process)) as client:
            try:
                self.run_query(checkpoint, is_last, process, client)
            except OlderCheckpointError as error:
                self.bear(error)
                if checkpoint in self.checkpoints:
                    self.checkpoints.remove(checkpoint)
                if not self.checkpoints:
                    raise Failure(f"no checkpoint is accepted: {error}") from error
            except PravegaError as error:
                if is_last:
                    raise Failure(f"the last driver fails: {type(error).__name__}: {error}") from error
                self.bear(error)
            except (JobFailed, _Ended) as error:
                if is_last:
                    raise Failure(f"the last driver fails: {error}") from error
                self.world.events.note(f"{process.name}: {error!r}")

    def run_query(
        self, checkpoint: Checkpoint, is_last: bool, process: Process, client: sync.PravegaClient
    ) -> None:
        world, rng = self.world, process.random
        batch = checkpoint.done
        ledger, stream = ScopedStream(SCOPE, LEDGER), ScopedStream(SCOPE, STREAM)
        revisioned = open_ledger(client, ledger, KEY, batch, new_ledger=False)
        committer = BatchCommitter(
            client,
            stream,
            Journal(revisioned, KEY, name=str(ledger), compact_after=self.compact_after),
            lease=self.lease,
            checkpoint="checkpoint",
            wait_visible=self.wait_visible,
            planned=checkpoint.entry if self.readable else lambda batch: None,
            hook=partial(self.reached, process),
        )
        numbers = count(1)
        is_first = True
        last = len(checkpoint.plans) + 1
        while True:
            if len(checkpoint.plans) == batch:
                if is_last and batch > last:
                    return
                if not is_last and (world.quiet or batch == _MOST_BATCHES):
                    return
                end = checkpoint.start_of(batch) + rng.choice((0, 1, 5, 20))
                checkpoint.plans.append((end, json.dumps({"at": environment().wall()})))
            elif not is_first:
                raise _Ended(f"batch {batch} was planned by another driver")
            is_first = False
            plan = PartitionWriter(
                config=self.config(process), stream=stream, mode="exactly_once", ledger=ledger,
                query=KEY.query, batch=batch, session=committer.session, routing_key_col="key",
            )  # fmt: skip

            def write(txn: UUID, plan: PartitionWriter = plan) -> list[AttemptResult]:
                writer = replace(
                    plan,
                    txn=txn,
                    claimed_at=committer.revision,
                    checksummed=committer.identity is None,
                )
                return self.run_job(process, numbers, checkpoint, writer)

            def tally(plan: PartitionWriter = plan) -> list[AttemptResult]:
                return self.run_job(process, numbers, checkpoint, replace(plan, counting=True))

            report = committer.run(batch, write, tally)
            world.events.note(f"{process.name}: batch {batch} was {report.outcome}")
            self.returned = max(self.returned, batch + 1)
            if checkpoint.done != batch:
                raise _Ended(f"batch {batch} was completed by another driver")
            checkpoint.done = batch = batch + 1
            if not world.quiet:
                wait_for(self.rest, world.seconds * rng.choice((0.0, 0.01, 0.1, 0.3)) * rng.random())

    async def rest(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await self.world.over.wait()

    def reached(self, process: Process, step: str) -> None:
        """The driver has done a step: sometimes it is killed there, or stalls."""
        world, rng = self.world, process.random
        world.events.note(f"{process.name}: {step}")
        if world.quiet:
            return
        if world.has("kill") and rng.random() < 0.03:
            process.kill()
        elif rng.random() < 0.1 * self.stalls:
            wait_for(self.rest, self.lease * rng.choice((0.1, 3.0)) * rng.random())

    # --- jobs

    def run_job(
        self, process: Process, numbers: Iterator[int], checkpoint: Checkpoint, plan: PartitionWriter
    ) -> list[AttemptResult]:
        """Run a job of a task for each partition; in the driver."""
        rows = checkpoint.rows(plan.batch)
        many = Random(f"partitions {plan.batch}").randint(1, 3)
        size = -(-len(rows) // many)
        parts = [rows[size * each : size * (each + 1)] for each in range(many)]
        elected: dict[int, tuple[Attempt, AttemptResult]] = {}

        async def run_all() -> None:
            async with trio.open_nursery() as nursery:
                for number, part in enumerate(parts):
                    nursery.start_soon(self.run_partition, process, numbers, plan, number, part, elected)

        wait_for(run_all)
        if len(elected) < many:
            raise JobFailed(f"batch {plan.batch}")
        if not plan.counting:
            events = [event for number in range(many) for event, _ in elected[number][0].events]
            self.elected.setdefault(plan.batch, []).append(events)
        # Spark returns them in any order.
        results = [result for _, result in elected.values()]
        process.random.shuffle(results)
        return results

    async def run_partition(
        self,
        process: Process,
        numbers: Iterator[int],
        plan: PartitionWriter,
        number: int,
        rows: range,
        elected: dict[int, tuple[Attempt, AttemptResult]],
    ) -> None:
        """Run attempts of a partition until one of them succeeds."""
        rng = process.random
        for _ in range(_MOST_FAILURES):
            attempts = [self.submit(process, next(numbers), plan, number, rows)]
            if rng.random() < self.speculates and not self.world.quiet:
                with trio.move_on_after(self.lease * rng.choice((0.001, 0.1)) * rng.random()):
                    await attempts[0].ended.wait()
                attempts.append(self.submit(process, next(numbers), plan, number, rows))
            winner = await self.first_of(attempts)
            if winner is not None:
                elected[number] = winner
                return

    async def first_of(self, attempts: list[Attempt]) -> tuple[Attempt, AttemptResult] | None:
        """Wait for the first attempt that succeeds, or until all have failed."""
        found: list[tuple[Attempt, AttemptResult]] = []
        async with trio.open_nursery() as nursery:

            async def follow(attempt: Attempt) -> None:
                await attempt.ended.wait()
                if attempt.result is not None:
                    found.append((attempt, attempt.result))
                    nursery.cancel_scope.cancel()

            for each in attempts:
                nursery.start_soon(follow, each)
        return found[0] if found else None

    def submit(
        self, process: Process, number: int, plan: PartitionWriter, partition: int, rows: range
    ) -> Attempt:
        tag = f"{process.name}.{number}" if self.readable else ""
        events = []
        for row in rows:
            key = self.keys[row * 7 % len(self.keys)]
            text = f"{plan.batch}|{partition}|{row}|{tag}|"
            events.append((text.encode() + b"x" * (row * 31 % (self.size + 1)), key))
        attempt = Attempt(plan, partition, number, events)
        self.running += 1
        process.random.choice(self.executors).give(attempt)
        return attempt

    # --- the end

    async def end(self) -> None:
        """One driver, which nothing disturbs, has to be able to go on, and removes all that was left."""
        # What a killed driver has sent may be stored for some seconds, and fences whoever has read before.
        for wait in (10.0, self.lease + 10.0):
            await trio.sleep(wait)
            while True:
                checkpoint = self.checkpoints[-1]
                process = self.world.process(f"admin-driver-{next(self.numbers)}")
                process.operation_timeout = 120.0
                await process.run(partial(run_blocking, self.drive, checkpoint, True))
                if checkpoint in self.checkpoints:
                    break
        # Without wait_visible nobody has waited for the last batch.
        await trio.sleep(10.0)

    async def check(self, client: PravegaClient) -> None:
        state = await self.ledger(client)
        sink = state.sink(KEY)
        written = (sink.last_done or 0) + 1
        if sink.claim is not None or sink.leftovers or written < self.returned:
            raise Failure(f"the ledger ends with {sink}, after {self.returned} batches")
        segments = await stored_events(client, STREAM)
        stored = [event for segment in segments for event in segment]
        for segment in segments:
            places = [tuple(map(int, event.split(b"|")[:3])) for event in segment]
            if places != sorted(places):
                raise Failure(f"batches, partitions or rows are not in order: {places}")
        for batch in range(written):
            found = sorted(event for event in stored if int(event.split(b"|")[0]) == batch)
            if found not in [sorted(each) for each in self.elected.get(batch, [])]:
                raise Failure(f"batch {batch} is stored as {[event[:30] for event in found]}")
        rows = sorted(int(event.split(b"|")[2]) for event in stored)
        if rows != list(range(len(rows))):
            raise Failure(f"rows are lost or doubled: {rows}")
        check_transactions(self.world)

    async def ledger(self, client: PravegaClient) -> LedgerState:
        async with await client.revisioned_stream(LEDGER) as ledger:
            found = [value async for _, value in await ledger.read_from(await ledger.oldest_revision())]
        return LedgerState().after(*map(decode_record, found))
