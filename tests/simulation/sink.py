"""The exactly-once sink of Spark: the adapter's code as it is, in a Spark that is played."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from math import inf
from random import Random
from types import MappingProxyType, TracebackType
from typing import Any, ClassVar, TypeAlias
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
from tests.simulation.blocking import (
    Pool,
    Time,
    blocking_world,
    in_thread,
    patched,
    run_blocking,
    start,
    wait_for,
)
from tests.simulation.cluster import CONTROLLERS
from tests.simulation.events import check_transactions, maybe_scale, stored_events
from tests.simulation.machine import Failure
from tests.simulation.world import LONGEST_STORE_DELAY, SCOPE, Process, Workload, World

STREAM, LEDGER = "events", "ledger"
KEY = SinkKey("query", f"{SCOPE}/{STREAM}")

_NEVER = CorruptedStateError, DataLossError, InvalidArgumentError, TransactionUnknownError
"""Errors that nothing that goes wrong in a world explains."""

_MOST_BATCHES = 8
_MOST_FAILURES = 3
_IDLE = 5.0


Write: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Any]


class JobFailed(Exception):
    """Spark gives a job up: a partition has failed too often.

    :ivar attempts: those that have succeeded, of other partitions.
    :ivar error: what its last attempt ended with.
    """

    def __init__(self, message: str, attempts: list[Attempt], error: PravegaError | None) -> None:
        super().__init__(f"{message}: {error!r}")
        self.attempts = attempts
        self.error = error


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

    :ivar write: what it does with the partition's rows; returns what it reports.
    :ivar properties: the job's local properties.
    :ivar ended: set when it has ended, whatever came of it.
    :ivar result: what it has reported.
    :ivar error: the error that it ended with.
    """

    write: Write
    partition: int
    number: int
    events: list[tuple[bytes, str]]
    properties: Mapping[str, str]
    ended: trio.Event = field(default_factory=trio.Event)
    result: Any = None
    error: PravegaError | None = None

    # What a task asks Spark for.
    def partitionId(self) -> int:
        return self.partition

    def taskAttemptId(self) -> int:
        return self.number

    def getLocalProperty(self, name: str) -> str | None:
        return self.properties.get(name)


@dataclass
class Run:
    """One start of a query.

    :ivar process: the driver.
    :ivar session: Spark's id of the run.
    :ivar numbers: numbers for its attempts.
    """

    process: Process
    client: sync.PravegaClient
    checkpoint: Checkpoint
    session: UUID = field(default_factory=lambda: environment().new_id())
    numbers: Iterator[int] = field(default_factory=lambda: count(1))


_TASK: ContextVar[Attempt] = ContextVar("task")
CLIENT: ContextVar[sync.PravegaClient] = ContextVar("client of the process")
PROCESS: ContextVar[Process] = ContextVar("process")


class TaskContext:
    """In place of Spark's."""

    get = staticmethod(_TASK.get)


def client_of_process(config: PravegaConfig) -> sync.PravegaClient:
    """In place of the adapter's function."""
    return CLIENT.get()


class HeldClient:
    """In place of the adapter's: gives the client of the simulated process."""

    def __init__(self, config: PravegaConfig) -> None:
        self.client = client_of_process(config)

    def close(self) -> None:
        pass

    def __enter__(self) -> sync.PravegaClient:
        return self.client

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


def _only_result(plan: PartitionWriter, rows: Iterator[pa.RecordBatch]) -> AttemptResult:
    [found] = plan.write_arrow(rows)
    [text] = found.column("result").to_pylist()
    return decode_result(text)


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
        # Those that drivers are running with.
        self.in_use: list[Checkpoint] = []
        self.executors = [Executor() for _ in range(rng.randint(1, 3))]
        self.running = 0
        # What was elected for each batch: the events of each try.
        self.elected: dict[int, list[list[bytes]]] = defaultdict(list)
        self.returned = 0

    async def prepare(self, client: PravegaClient) -> None:
        await client.create_stream(STREAM, self.random.randint(1, 3))

    # --- the cluster of Spark

    @contextmanager
    def spark(self) -> Iterator[None]:
        """What is played takes the place of the real one."""
        with (
            blocking_world(),
            patched(
                (at_once, "ThreadPoolExecutor", Pool),
                (driver, "time", Time),
                (partition, "TaskContext", TaskContext),
                (partition, "HeldClient", HeldClient),
            ),
        ):
            yield

    async def work(self) -> None:
        with self.spark():
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
        with self.connected(process):
            ended: list[trio.Event] = []
            while (attempt := wait_for(executor.next)) is not None:
                ended.append(attempt.ended)
                start(self.attempt, process, attempt)
            for each in ended:
                wait_for(each.wait)

    @contextmanager
    def connected(self, process: Process) -> Iterator[sync.PravegaClient]:
        """Open the client of a process, for all that runs in it; in its main thread."""
        with sync.open_client(self.config(process)) as client:
            CLIENT.set(client)
            PROCESS.set(process)
            yield client

    def config(self, process: Process) -> PravegaConfig:
        return PravegaConfig(
            controller_uri="tcp://" + ",".join(CONTROLLERS),
            scope=SCOPE,
            operation_timeout=process.operation_timeout,
        )

    async def attempt(self, process: Process, attempt: Attempt) -> None:
        _TASK.set(attempt)
        note = self.world.events.note
        name = f"attempt {attempt.number} of partition {attempt.partition}"
        try:
            note(f"{process.name} begins {name}")
            attempt.result = await in_thread(lambda: attempt.write(self.batches(process, attempt.events)))
            note(f"{process.name} ends {name}")
        except PravegaError as error:
            attempt.error = error
            self.bear(error)
        finally:
            self.end_attempt(attempt)

    def end_attempt(self, attempt: Attempt) -> None:
        self.running -= 1
        attempt.ended.set()

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
            self.in_use.append(checkpoint)
            await process.run(partial(run_blocking, self.drive, checkpoint, False))
            self.in_use.remove(checkpoint)
            is_full = any(each.done >= _MOST_BATCHES for each in self.checkpoints)
            with trio.move_on_after(inf if is_full else world.pause(rng) + 0.5):
                await world.over.wait()

    def drive(self, checkpoint: Checkpoint, is_last: bool, process: Process) -> None:
        with self.connected(process) as client:
            try:
                self.run_query(is_last, Run(process, client, checkpoint))
            except OlderCheckpointError as error:
                self.bear(error)
                # Another driver may have gone on with the checkpoint, or may do so yet.
                went_on = checkpoint.done > (error.batch or 0) or self.in_use.count(checkpoint) > 1
                if checkpoint in self.checkpoints and not went_on:
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

    def run_query(self, is_last: bool, run: Run) -> None:
        world, checkpoint, rng = self.world, run.checkpoint, run.process.random
        batch = checkpoint.done
        write = self.writing(batch, run)
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
            outcome = write(batch)
            world.events.note(f"{run.process.name}: batch {batch} was {outcome}")
            if checkpoint.done > batch:
                raise _Ended(f"batch {batch} was completed by another driver")
            checkpoint.done = batch = batch + 1
            if not world.quiet:
                wait_for(self.rest, world.seconds * rng.choice((0.0, 0.01, 0.1, 0.3)) * rng.random())

    def writing(self, batch: int, run: Run) -> Callable[[int], str]:
        """Return what writes a batch in a driver that begins with this one, and says what came of it."""
        ledger, stream = ScopedStream(SCOPE, LEDGER), ScopedStream(SCOPE, STREAM)
        revisioned = open_ledger(run.client, ledger, KEY, batch, new_ledger=False)
        committer = BatchCommitter(
            run.client,
            stream,
            Journal(revisioned, KEY, name=str(ledger), compact_after=self.compact_after),
            lease=self.lease,
            checkpoint="checkpoint",
            wait_visible=self.wait_visible,
            planned=run.checkpoint.entry if self.readable else lambda batch: None,
            hook=self.reached,
        )

        def write(batch: int) -> str:
            plan = PartitionWriter(
                config=self.config(run.process), stream=stream, mode="exactly_once", ledger=ledger,
                query=KEY.query, batch=batch, session=committer.session, routing_key_col="key",
            )  # fmt: skip

            def write_rows(txn: UUID) -> list[AttemptResult]:
                writer = replace(
                    plan,
                    txn=txn,
                    claimed_at=committer.revision,
                    checksummed=committer.identity is None,
                )
                found = self.run_job(run, batch, partial(_only_result, writer))
                self.elect(batch, found)
                return [each.result for each in found]

            def tally() -> list[AttemptResult]:
                counter = replace(plan, counting=True)
                return [each.result for each in self.run_job(run, batch, partial(_only_result, counter))]

            report = committer.run(batch, write_rows, tally)
            self.returned = max(self.returned, batch + 1)
            self.check_visible(report.txn)
            return report.outcome

        return write

    def check_visible(self, txn: UUID | None) -> None:
        """Once a batch was waited for, its transaction has no segments any more."""
        left = [each for each in self.world.cluster.store.segments if txn and txn.hex in each]
        if left and self.wait_visible:
            raise Failure(f"transaction {txn} is said to be visible, and there are {left}")

    def elect(self, batch: int, attempts: list[Attempt]) -> None:
        """Remember what a batch may be stored as."""
        in_order = sorted(attempts, key=lambda each: each.partition)
        self.elected[batch].append([event for each in in_order for event, _ in each.events])

    async def rest(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await self.world.over.wait()

    def reached(self, step: str) -> None:
        """A process has done a step: sometimes it is killed there, or stalls."""
        process = PROCESS.get()
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
        self, run: Run, batch: int, write: Write, properties: Mapping[str, str] = MappingProxyType({})
    ) -> list[Attempt]:
        """Run a job of a task for each partition, in the driver; return the attempt of each that counts."""
        rows = run.checkpoint.rows(batch)
        many = Random(f"partitions {batch}").randint(1, 3)
        size = -(-len(rows) // many)
        parts = [rows[size * each : size * (each + 1)] for each in range(many)]
        elected: dict[int, Attempt] = {}
        failed: list[Attempt] = []

        def submit(number: int) -> Attempt:
            attempt = next(run.numbers)
            tag = f"{run.process.name}.{attempt}" if self.readable else ""
            events = [self.event(f"{batch}|{number}|{row}|{tag}|", row) for row in parts[number]]
            return self.submit(run.process, Attempt(write, number, attempt, events, properties))

        async def run_all() -> None:
            async with trio.open_nursery() as nursery:

                async def run_one(number: int) -> None:
                    attempt = await self.run_partition(run.process, partial(submit, number))
                    if attempt.result is None:
                        failed.append(attempt)
                        nursery.cancel_scope.cancel()
                    else:
                        elected[number] = attempt

                for number in range(many):
                    nursery.start_soon(run_one, number)

        wait_for(run_all)
        if failed:
            raise JobFailed(f"batch {batch}", list(elected.values()), failed[0].error)
        # Spark returns them in any order.
        results = list(elected.values())
        run.process.random.shuffle(results)
        return results

    async def run_partition(self, process: Process, submit: Callable[[], Attempt]) -> Attempt:
        """Run attempts of a partition until one of them succeeds; return that, or the last failed one."""
        rng = process.random
        attempts: list[Attempt] = []
        for _ in range(_MOST_FAILURES):
            attempts = [submit()]
            if rng.random() < self.speculates and not self.world.quiet:
                with trio.move_on_after(self.lease * rng.choice((0.001, 0.1)) * rng.random()):
                    await attempts[0].ended.wait()
                attempts.append(submit())
            winner = await self.first_of(attempts)
            if winner is not None:
                return winner
        return attempts[-1]

    async def first_of(self, attempts: list[Attempt]) -> Attempt | None:
        """Wait for the first attempt that succeeds, or until all have failed."""
        found: list[Attempt] = []
        async with trio.open_nursery() as nursery:

            async def follow(attempt: Attempt) -> None:
                await attempt.ended.wait()
                if attempt.result is not None:
                    found.append(attempt)
                    nursery.cancel_scope.cancel()

            for each in attempts:
                nursery.start_soon(follow, each)
        return found[0] if found else None

    def event(self, text: str, row: int) -> tuple[bytes, str]:
        """The event of a row that begins with a text, and its key."""
        return text.encode() + b"x" * (row * 31 % (self.size + 1)), self.keys[row * 7 % len(self.keys)]

    def submit(self, process: Process, attempt: Attempt) -> Attempt:
        self.running += 1
        process.random.choice(self.executors).give(attempt)
        return attempt

    # --- the end

    async def end(self) -> None:
        """One driver, which nothing disturbs, has to be able to go on, and removes all that was left."""
        # What a killed driver has sent may be stored for some seconds, and fences whoever has read before.
        for wait in (LONGEST_STORE_DELAY, self.lease + 10.0):
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
        # A batch without rows removes nothing of what a late task has left.
        if sink.claim is not None or (sink.leftovers and self.returned) or written < self.returned:
            raise Failure(f"the ledger ends with {sink}, after {self.returned} batches")
        segments = await stored_events(client, STREAM)
        stored = [event for segment in segments for event in segment]
        for segment in segments:
            places = [tuple(map(int, event.split(b"|")[:3])) for event in segment]
            if places != sorted(places):
                raise Failure(f"batches, partitions or rows are not in order: {places}")
        for batch in range(written):
            found = sorted(event for event in stored if int(event.split(b"|")[0]) == batch)
            if found not in [sorted(each) for each in self.elected[batch]]:
                raise Failure(f"batch {batch} is stored as {[event[:30] for event in found]}")
        rows = sorted(int(event.split(b"|")[2]) for event in stored)
        if rows != list(range(len(rows))):
            raise Failure(f"rows are lost or doubled: {rows}")
        check_transactions(self.world)

    async def ledger(self, client: PravegaClient) -> LedgerState:
        async with await client.revisioned_stream(LEDGER) as ledger:
            found = [value async for _, value in await ledger.read_from(await ledger.oldest_revision())]
        return LedgerState().after(*map(decode_record, found))
