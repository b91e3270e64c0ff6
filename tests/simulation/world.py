"""A simulated world: a cluster, a network, the processes of a workload, and what goes wrong.

Everything follows from one number. Each run switches a random part of the faults on, so that rare
combinations of few faults come up as well as all of them together.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any, ClassVar, TextIO
from uuid import UUID

import trio

from pravega_wire.errors import (
    AuthError,
    CorruptedStateError,
    NotFoundError,
    PravegaError,
    ProtocolError,
    StreamSealedError,
)
from pravega_wire.stream.client import PravegaClient, open_client
from pravega_wire.support.environment import ENVIRONMENT, Environment
from pravega_wire.support.nurseries import first_of
from pravega_wire.transport.stream import NetworkStream
from pravega_wire.values.config import PravegaConfig
from tests.simulation.cluster import CONTROLLERS, STORES, Cluster
from tests.simulation.machine import Events, Failure, Interruptions, Trace, run
from tests.simulation.network import Network

_NEVER = AuthError, CorruptedStateError, NotFoundError, ProtocolError, StreamSealedError
"""Errors that nothing that goes wrong in a world explains, as long as nobody seals or deletes its streams."""

_LONGEST = 4 * 3600.0
"""Simulated seconds after which a run that has not ended hangs."""

FAULTS = (
    "cut", "cut bytes", "swallow", "half open", "divide", "silent", "slow", "move", "crash store",
    "crash controller", "misbehave", "kill", "cancel", "skew",
)  # fmt: skip
SCOPE = "s"
LONGEST_STORE_DELAY = 20.0
"""Seconds."""


@dataclass(frozen=True)
class Settings:
    """What a run is made of.

    :ivar seed: the number that everything follows from.
    :ivar without: kinds of faults that are off, in addition to those that the seed switches off.
    :ivar skipped: numbers of the faults that are left out.
    :ivar seconds: simulated seconds until everything heals; None: drawn.
    """

    workload: str
    seed: int
    without: frozenset[str] = frozenset()
    skipped: frozenset[int] = frozenset()
    seconds: float | None = None


@dataclass
class Result:
    """What came of a run.

    :ivar failure: what was wrong, or None.
    :ivar trace: hash of all that happened.
    :ivar seconds: simulated seconds.
    :ivar processor: seconds of the processor.
    :ivar faults: the faults: number, time and what.
    """

    settings: Settings
    failure: str | None
    trace: str
    lines: int
    seconds: float
    processor: float
    faults: list[tuple[int, float, str]]
    error: BaseException | None = None


class Process:
    """A process of the workload: a client with its own connections, ids and clock.

    :ivar name: name of its host.
    :ivar dead: whether it was killed.
    :ivar interrupts: whether its calls are cancelled now and then.
    """

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.dead = False
        self.scope = trio.CancelScope()
        self.random = Random(f"{world.settings.seed} {world.settings.workload} process {name}")
        self.skew = 0.0
        if world.has("skew") and self.random.random() < 0.5:
            self.skew = self.random.choice((-3600.0, -20.0, 20.0, 3600.0)) * self.random.random()
        self.interrupts = world.has("cancel")
        self.operation_timeout = self.random.choice((20.0, 60.0, 120.0))
        world.processes.append(self)

    def environment(self) -> Environment:
        return Environment(
            monotonic=trio.current_time,
            wall=lambda: self.world.events.wall() + self.skew,
            random=self.random.random,
            new_id=lambda: UUID(int=self.random.getrandbits(128), version=4),
            dial=self._dial,
        )

    async def _dial(self, host: str, port: int, timeout: float) -> NetworkStream:
        if self.dead:
            await trio.sleep_forever()
        return await self.world.network.dial(self.name, f"{host}:{port}", timeout)

    @asynccontextmanager
    async def client(self, **changes: Any) -> AsyncIterator[PravegaClient]:
        """Open the process's client."""
        config = PravegaConfig(
            controller_uri="tcp://" + ",".join(CONTROLLERS),
            scope=SCOPE,
            operation_timeout=self.operation_timeout,
        )
        async with open_client(dataclasses.replace(config, **changes)) as client:
            yield client

    async def run(self, main: Callable[[Process], Awaitable[None]]) -> None:
        """Be this process until it ends or is killed."""
        ENVIRONMENT.set(self.environment())
        with self.scope:
            await main(self)

    async def attempt(self, work: Callable[[], Awaitable[object]]) -> bool:
        """Make a call, which may be cancelled at any of its steps; return whether it came to its end."""
        if self.interrupts and not self.world.quiet and self.random.random() < 0.15:
            return await self.world.interruptions.call(self.random.randint(1, 60), work)
        await work()
        return True

    def kill(self) -> None:
        """End the process as the system does: nothing that it does from now on reaches anybody."""
        self.dead = True
        self.world.events.note(f"{self.name} is killed")
        for link in [each for each in self.world.network.links if each.client == self.name]:
            link.up.swallows = link.down.swallows = True
            self.world.events.after(self.world.network.delay(), lambda link=link: link.cut("killed"))
        self.scope.cancel()


class Workload:
    """What processes do in a world, and how to see that it was done right.

    :ivar name: its name.
    :ivar faults: kinds of faults that it bears.
    :ivar numbers: numbers for the names of processes and the like.
    """

    name: ClassVar[str]
    faults: ClassVar[tuple[str, ...]] = FAULTS

    def __init__(self, world: World) -> None:
        self.world = world
        self.random = Random(f"{world.settings.seed} {world.settings.workload} workload")
        self.numbers = count(1)

    async def keep_alive(self, name: str, main: Callable[[Process], Awaitable[None]]) -> None:
        """Run a process until the world is quiet, and another one when it has ended or was killed."""
        while not self.world.quiet:
            process = self.world.process(f"{name}.{next(self.numbers)}")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(process.run, main)

    async def prepare(self, client: PravegaClient) -> None:
        """Create what is needed, while nothing fails."""
        raise NotImplementedError

    async def work(self) -> None:
        """Run the processes until all of them are done. They begin nothing new once the world is quiet."""
        raise NotImplementedError

    async def check(self, client: PravegaClient) -> None:
        """Raise :class:`Failure` if something is wrong. Nothing fails any more."""
        raise NotImplementedError


class World:
    """Everything there is.

    :ivar quiet: whether nothing fails any more.
    :ivar healed_at: since when, if it has gone wrong.
    :ivar settled: whether there is all that the workload needs; it may take that away for a while.
    :ivar seconds: for how long things go wrong.
    :ivar processes: all processes so far.
    """

    def __init__(self, settings: Settings, events: Events, interruptions: Interruptions) -> None:
        self.settings = settings
        self.interruptions = interruptions
        self.quiet = self.settled = True
        self.healed_at = 0.0
        self.over = trio.Event()
        self.processes: list[Process] = []
        self.faults: list[tuple[int, float, str]] = []
        self.problems: list[str] = []
        self.events = events
        base = f"{settings.seed} {settings.workload}"
        self.random = Random(f"{base} faults")
        self.network = Network(self.events, Random(f"{base} network"))
        self.cluster = Cluster(self.network, Random(f"{base} cluster"))
        self.kinds: frozenset[str] = frozenset()
        self.seconds = self.every = 1.0

    def has(self, kind: str) -> bool:
        """Whether a kind of fault is on in this run."""
        return kind in self.kinds

    def choose(self, bears: tuple[str, ...]) -> None:
        """Draw which faults are on, and how often they come."""
        rng = self.random
        part = rng.choice((0.0, 0.15, 0.4, 0.7, 1.0))
        on = [each for each in FAULTS if rng.random() < part]
        self.seconds = self.settings.seconds or rng.choice((5.0, 30.0, 120.0, 600.0, 1800.0, 7200.0))
        self.every = self.seconds / rng.choice((5, 15, 50, 100))
        self.kinds = frozenset(on).intersection(bears) - self.settings.without

    def problem(self, what: str) -> None:
        """Something is wrong, though whoever has found it must go on."""
        self.events.note(f"problem: {what}")
        self.problems.append(what)

    @contextmanager
    def bearing(self) -> Iterator[None]:
        """Bear the errors that a client raises because something went wrong.

        Once everything has healed, only those of calls that had begun before.
        """
        healed = self.quiet and self.settled
        errors: list[BaseException] = []
        try:
            yield
        except PravegaError as error:
            errors.append(error)
        except BaseExceptionGroup as group:
            found, rest = group.split(PravegaError)
            if found is None or rest is not None:
                raise
            errors += leaves(found)
        for error in errors:
            text = f"{type(error).__name__}: {error}"
            self.events.note(text[:200])
            if healed or isinstance(error, _NEVER if self.settled else ProtocolError):
                self.problem(text)

    def pause(self, random: Random) -> float:
        """Draw a usual pause between two calls: long runs have rarer ones, so that all cost about as much."""
        return self.seconds * random.choice((0.0, 0.0003, 0.003, 0.03))

    def process(self, name: str) -> Process:
        return Process(self, name)

    # --- faults

    async def fail(self, seconds: float) -> None:
        """Let things go wrong for some seconds."""
        rng = self.random
        self.quiet = False
        cluster, network = self.cluster, self.network
        cluster.store_delay = rng.choice((0.0, 0.01, 0.3, 3.0, LONGEST_STORE_DELAY))
        network.latency = rng.choice((0.0005, 0.005, 0.05))
        network.jitter = network.latency * rng.choice((0.0, 1.0, 4.0))
        network.bandwidth = rng.choice((1e5, 1e7, 1e8))
        end = trio.current_time() + seconds
        number = 0
        kinds = [each for each in FAULTS if each in self.kinds and each not in ("cancel", "skew")]
        while True:
            pause = rng.expovariate(1 / self.every)
            if trio.current_time() + pause >= end:
                await trio.sleep_until(end)
                break
            await trio.sleep(pause)
            if not kinds:
                continue
            kind = rng.choice(kinds)
            # Its own source of chance: what is left out changes nothing else.
            source = Random(f"{self.settings.seed} fault {number}")
            if number not in self.settings.skipped:
                what = self._fault(kind, source)
                if what:
                    self.faults.append((number, trio.current_time(), what))
                    self.events.note(f"fault {number}: {what}")
            number += 1

    def _fault(self, kind: str, rng: Random) -> str:
        """Let something go wrong; return what, or nothing if it is not possible."""
        network, cluster, events = self.network, self.cluster, self.events
        links = [each for each in network.links if not each.stream.closed and not each.broken]
        seconds = rng.choice((0.3, 3.0, 20.0, 60.0)) * rng.random()
        alive = [each for each in self.processes if not each.dead]
        match kind:
            case "cut" if links:
                link = rng.choice(links)
                link.cut("fault")
                return f"{link.name} is cut"
            case "cut bytes" if links:
                link = rng.choice(links)
                direction = rng.choice((link.up, link.down))
                direction.budget = rng.choice((0, 1, 7, 8, 20, 100, 1000)) + rng.randint(0, 40)
                return f"{direction.name} is cut after {direction.budget} bytes"
            case "swallow" if links:
                link = rng.choice(links)
                direction = rng.choice((link.up, link.down))
                direction.swallows = True
                return f"{direction.name} loses what comes"
            case "half open" if links:
                link = rng.choice(links)
                link.half_open()
                return f"{link.name} is half open"
            case "divide" if alive:
                client, server = rng.choice(alive).name, rng.choice(STORES + CONTROLLERS)
                network.divide(client, server)
                late = seconds * rng.choice((0.0, 0.1, 1.0))
                events.after(seconds, lambda: network.join(client, server, late))
                return f"{client} and {server} are divided for {seconds:.1f} s"
            case "silent":
                host = rng.choice(STORES + CONTROLLERS)
                network.silent.add(host)
                events.after(seconds, lambda: network.silent.discard(host))
                return f"{host} takes no connection for {seconds:.1f} s"
            case "slow":
                before = network.latency, network.jitter
                network.latency, network.jitter = rng.choice(((0.3, 0.0), (0.05, 2.0), (2.0, 0.5)))

                def faster() -> None:
                    if not self.quiet:
                        network.latency, network.jitter = before

                events.after(seconds, faster)
                return f"the network is slow for {seconds:.1f} s"
            case "move":
                container = rng.choice(list(cluster.owners))
                host = rng.choice(STORES)
                cluster.move(container, host)
                return f"container {container} moves to {host}"
            case "crash store":
                up = [each for each in STORES if each not in network.down]
                if up:
                    host = rng.choice(up)
                    cluster.crash(host, seconds)
                    return f"{host} ends for {seconds:.1f} s"
            case "crash controller":
                host = rng.choice(CONTROLLERS)
                network.down.add(host)
                for link in network.of_server(host):
                    link.cut("host ended")
                events.after(seconds, lambda: cluster.restart(host))
                return f"{host} ends for {seconds:.1f} s"
            case "misbehave":
                cluster.misbehaving = rng.choice((0.05, 0.3, 0.8))

                def behave() -> None:
                    cluster.misbehaving = 0.0

                events.after(seconds, behave)
                return f"controllers misbehave for {seconds:.1f} s"
            case "kill":
                victims = [each for each in alive if not each.name.startswith("admin")]
                if victims:
                    process = rng.choice(victims)
                    process.kill()
                    return f"{process.name} is killed"
        return ""

    def heal(self) -> None:
        """Nothing fails any more."""
        self.quiet, self.healed_at = True, trio.current_time()
        self.events.note("everything heals")
        self.cluster.heal()
        self.cluster.store_delay = 0.0
        network = self.network
        network.latency, network.jitter, network.bandwidth = 0.001, 0.001, 1e8
        for link in list(network.links):
            link.up.budget = link.down.budget = None
        self.over.set()

    # --- a run

    async def live(self, workload: Workload) -> None:
        """Prepare, fail, heal, and check."""
        self.choose(workload.faults)
        with trio.fail_after(_LONGEST):
            admin = self.process("admin-0")
            admin.operation_timeout = 120.0
            async with self._as(admin) as client:
                await client.create_scope(SCOPE)
                await workload.prepare(client)
            async with trio.open_nursery() as working:
                working.start_soon(workload.work)
                await self.fail(self.seconds)
                self.heal()
            self._check_problems()
            checker = self.process("admin-1")
            checker.operation_timeout = 120.0
            checker.interrupts = False
            async with self._as(checker) as client:
                await workload.check(client)
            self._check_left()

    @asynccontextmanager
    async def _as(self, process: Process) -> AsyncIterator[PravegaClient]:
        token = ENVIRONMENT.set(process.environment())
        try:
            async with process.client() as client:
                yield client
        finally:
            ENVIRONMENT.reset(token)

    def _check_left(self) -> None:
        open_links = [each.name for each in self.network.links if not each.stream.closed]
        if open_links:
            raise Failure(f"connections are left open: {open_links}")
        self._check_problems()

    def _check_problems(self) -> None:
        if self.problems:
            raise Failure(self.problems[0])


def simulate(make: Callable[[World], Workload], settings: Settings, out: TextIO | None = None) -> Result:
    """Run a workload in a world."""
    trace = Trace(out)
    events = Events(trace)
    worlds: list[World] = []

    async def main(interruptions: Interruptions) -> None:
        world = World(settings, events, interruptions)
        worlds.append(world)
        await world.live(make(world))

    failure: str | None = None
    error: BaseException | None = None
    began = time.process_time()
    try:
        with _server_failures(worlds):
            run(f"{settings.seed} {settings.workload} tasks", events, main)
    except BaseException as raised:
        error = first_of(raised) if isinstance(raised, BaseExceptionGroup) else raised
        if isinstance(error, KeyboardInterrupt):
            raise
        failure = _told(error)
    return Result(
        settings, failure, trace.digest(), trace.lines, events.now, time.process_time() - began,
        worlds[0].faults if worlds else [], error,
    )  # fmt: skip


@contextmanager
def _server_failures(worlds: list[World]) -> Iterator[None]:
    """The servers of the simulation must not fail themselves; of what the client logs nothing is needed."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            worlds[0].problem(f"the simulated server: {record.getMessage()} {self.format(record)[-600:]}")

    handler = Handler(logging.ERROR)
    servers = logging.getLogger("pravega_wire.testing.memory")
    clients = [logging.getLogger(name) for name in ("pravega_wire", "spark_adapter")]
    levels = [each.level for each in clients]
    for each in clients:
        each.setLevel(logging.CRITICAL)
    servers.setLevel(logging.ERROR)
    servers.addHandler(handler)
    try:
        yield
    finally:
        servers.removeHandler(handler)
        servers.setLevel(logging.NOTSET)
        for each, level in zip(clients, levels, strict=True):
            each.setLevel(level)


def leaves(error: BaseException) -> list[BaseException]:
    """Return the errors in a group, or the error itself."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in leaves(each)]
    return [error]


def _told(error: BaseException) -> str:
    if isinstance(error, Failure):
        return str(error)
    if isinstance(error, trio.TooSlowError):
        return f"something hangs: the run has not ended after {_LONGEST:g} simulated seconds"
    if isinstance(error, PravegaError):
        return f"{type(error).__name__}, which the workload does not expect: {error}"
    return f"{type(error).__name__}: {error}"
