"""Reader groups: readers that come, leave and die, checkpoints, and streams that scale meanwhile."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import trio

from pravega_wire.errors import (
    CheckpointError,
    CheckpointTimeoutError,
    ReaderGroupError,
)
from pravega_wire.stream.client import PravegaClient
from pravega_wire.stream.event_reader import EventReader
from pravega_wire.stream.reader_group import ReaderGroup
from pravega_wire.values.groups import ReaderGroupConfig
from pravega_wire.values.positions import Checkpoint, Position
from tests.simulation.events import History, maybe_scale, stored_events
from tests.simulation.machine import Failure
from tests.simulation.world import SCOPE, Process, Workload, World

STREAMS, GROUP = ("events", "others"), "group"
_PATIENCE = 900.0
"""Simulated seconds in which a group must have read everything once all is well."""
_END = 3600.0
"""The same for its end; each epoch may take some rounds, and a round up to six minutes."""


@dataclass(eq=False)
class Life:
    """One reader, from joining to leaving.

    :ivar joining: when it began to join; :ivar joined: when it had, or None.
    :ivar leaving: when it began to leave, or None; from then on others may see that it has left.
    :ivar ended: when nothing more came from it, or None.
    :ivar left: whether it left by itself.
    :ivar events: what it was given.
    :ivar marks: how many events it had been given at each checkpoint.
    """

    name: str
    joining: float
    joined: float | None = None
    leaving: float | None = None
    ended: float | None = None
    left: bool = False
    events: list[bytes] = field(default_factory=list)
    marks: dict[str, int] = field(default_factory=dict)
    position: Position | None = None


class _Leave(Exception):
    """Ends a reader's block."""


class Groups(Workload):
    """One group whose readers come and go."""

    name: ClassVar[str] = "groups"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.streams = STREAMS[: self.random.randint(1, 2)]
        self.histories = {each: History() for each in self.streams}
        self.lives: list[Life] = []
        self.delivered: list[bytes] = []
        # How often each event was given back by a reader that failed on it.
        self.again: Counter[bytes] = Counter()
        self.offline: list[Life] = []
        self.checkpoints: list[tuple[str, float, float, Checkpoint]] = []
        self.written = trio.Event()
        # What is stored and was not delivered so far; None before all is stored.
        self.missing: set[bytes] | None = None
        self.deadline = float("inf")

    async def prepare(self, client: PravegaClient) -> None:
        # Their segments have the same ids.
        segments = self.random.randint(1, 4)
        for stream in self.streams:
            await client.create_stream(stream, segments)
        # Rounds are rarer in long runs, as calls are.
        every = self.random.choice((1.0, 3.0, 10.0)) * max(1.0, self.world.seconds / 200)
        await client.create_reader_group(
            GROUP,
            ReaderGroupConfig.of([f"{SCOPE}/{each}" for each in self.streams], group_refresh_interval=every),
        )

    async def work(self) -> None:
        async with trio.open_nursery() as nursery:
            writer, keeper = self.world.process("admin-writer"), self.world.process("admin-keeper")
            keeper.interrupts = writer.interrupts = False
            nursery.start_soon(writer.run, self.write)
            nursery.start_soon(keeper.run, self.keep)
            for _ in range(self.random.randint(1, 4)):
                nursery.start_soon(self.keep_reading)
            for stream in self.streams:
                maybe_scale(self, nursery, stream, name=f"admin-scaler-{stream}")

    # --- writing

    async def write(self, process: Process) -> None:
        world, rng = self.world, process.random
        keys = [f"k{number}" for number in range(rng.randint(1, 6))]
        # A reader asks for 1 MiB at a time.
        sizes = rng.choice(((0,), (0, 1000), (0, 0, 0, 300_000)))
        pause = max(self.world.pause(rng), world.seconds / 300)
        async with process.client() as client:
            while not world.quiet:
                with world.bearing():
                    stream = rng.choice(self.streams)
                    async with client.event_writer(stream) as writer:
                        name = f"w{next(self.numbers)}"
                        for _ in range(rng.choice((10, 1000))):
                            if world.quiet:
                                break
                            await trio.sleep(pause * rng.random())
                            key = rng.choice(keys)
                            size = rng.choice(sizes) if world.network.bandwidth > 1e6 else 0
                            event = partial(self.histories[stream].event, name, key, size)
                            events = [event() for _ in range(rng.randint(1, 5))]
                            await writer.write_events(events, key)
        self.written.set()

    # --- reading

    @property
    def complete(self) -> bool:
        """Whether the readers have nothing left to do."""
        if self.missing is None:
            return False
        return not self.missing or trio.current_time() > self.deadline

    async def keep_reading(self) -> None:
        while not self.complete:
            process = self.world.process(f"reader.{next(self.numbers)}")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(process.run, self.read)
            if process.dead:
                with trio.CancelScope(shield=True):
                    await trio.sleep(self.world.seconds * 0.01 * process.random.random())

    async def read(self, process: Process) -> None:
        rng = process.random
        async with process.client() as client:
            for _ in range(rng.randint(1, 5)):
                if self.complete:
                    return
                life = Life(f"reader-{next(self.numbers)}", trio.current_time())
                self.lives.append(life)
                try:
                    with self.world.bearing(), suppress(_Leave):
                        await self.live(process, client, life)
                finally:
                    life.ended = trio.current_time()
                    if not life.left:
                        self.offline.append(life)

    async def live(self, process: Process, client: PravegaClient, life: Life) -> None:
        """Read as one reader."""
        rng = process.random
        delay = rng.choice((0.0, 1.0))

        def reached(name: str) -> None:
            life.marks[name] = len(life.events)

        async with client.reader_group(GROUP) as group:
            async with group.reader(life.name, initial_delay=delay, on_checkpoint=reached) as reader:
                life.joined = trio.current_time()
                try:
                    for _ in range(rng.choice((3, 30, 300))):
                        if self.complete:
                            break
                        await process.attempt(partial(self.one_event, process, reader, life))
                    if rng.random() < 0.2:
                        raise _Leave
                except BaseException:
                    # The last event is given back, unless nobody is told of this.
                    self.again.update(life.events[-1:])
                    raise
                finally:
                    life.leaving = trio.current_time()
            life.left = True

    async def one_event(self, process: Process, reader: EventReader[bytes], life: Life) -> None:
        patience = process.random.choice((0.05, 0.5, 3.0)) * max(1.0, self.world.seconds / 100)
        event = await reader.read_event(timeout=patience)
        if event is not None:
            value = bytes(event.value)
            self.delivered.append(value)
            life.events.append(value)
            if self.missing is not None and value in self.missing:
                self.missing.discard(value)
                # Each epoch of the stream may take some rounds of the group, which are rare in long runs.
                self.deadline = trio.current_time() + _PATIENCE
            life.position = reader.position

    # --- what takes care of the group

    async def keep(self, process: Process) -> None:
        """Declare dead readers dead, make checkpoints, and see when all is read."""
        world, rng = self.world, process.random
        async with process.client() as client:
            while not self.complete:
                with world.bearing():
                    async with client.reader_group(GROUP) as group:
                        while not self.complete:
                            await trio.sleep(max(0.5, world.seconds * 0.01) * rng.random())
                            await self.take_offline(group)
                            if rng.random() < 0.1:
                                await self.checkpoint(process, group)
                            if world.quiet and self.written.is_set() and self.missing is None:
                                self.missing = {*await self.stored(client)}.difference(self.delivered)
                                self.deadline = trio.current_time() + _PATIENCE

    async def take_offline(self, group: ReaderGroup) -> None:
        while self.offline:
            life = self.offline[0]
            with suppress(ReaderGroupError):
                await group.reader_offline(life.name, life.position)
            self.offline.pop(0)

    async def checkpoint(self, process: Process, group: ReaderGroup) -> None:
        name = f"c{next(self.numbers)}"
        began = trio.current_time()
        with suppress(CheckpointTimeoutError, CheckpointError):
            made = await group.checkpoint(name, timeout=process.random.choice((1.0, 30.0)))
            self.checkpoints.append((name, began, trio.current_time(), made))

    # --- checking

    async def stored(self, client: PravegaClient) -> list[bytes]:
        """All events that are stored."""
        found = []
        for stream, history in self.histories.items():
            segments = await stored_events(client, stream)
            history.check(segments)
            found += [event for segment in segments for event in segment]
        return found

    async def check(self, client: PravegaClient) -> None:
        await self.end(client)
        wanted = await self.stored(client)
        times = Counter(self.delivered)
        missing = [event for event in wanted if not times[event]]
        if missing:
            raise Failure(f"never delivered: {missing[:5]} and {len(missing)} in all")
        doubled = [event for event, number in times.items() if number > 1 + self.again[event]]
        if doubled:
            raise Failure(f"delivered twice: {doubled[:5]} and {len(doubled)} in all")
        last: dict[tuple[bytes, ...], int] = {}
        for event in self.delivered:
            *key, number, _ = event.split(b"|")
            before = last.get(tuple(key), -1)
            if int(number) < before + (event not in self.again):
                raise Failure(f"{event!r} was delivered after number {before} of its key")
            last[tuple(key)] = max(before, int(number))
        for name, began, ended, made in self.checkpoints:
            await self.check_checkpoint(client, name, began, ended, made)

    async def end(self, client: PravegaClient) -> None:
        """Seal the streams: now the group ends."""
        for stream in self.streams:
            await client.seal_stream(stream)
        async with client.reader_group(GROUP) as group:
            await self.take_offline(group)
            with trio.move_on_after(_END) as scope:
                async with group.reader("last") as reader:
                    async for event in reader:
                        self.delivered.append(bytes(event.value))
            if scope.cancelled_caught:
                raise Failure(f"all streams are sealed, and the group has not ended after {_END:g} s")

    async def check_checkpoint(
        self, client: PravegaClient, name: str, began: float, ended: float, made: Checkpoint
    ) -> None:
        """What was delivered before a checkpoint is what lies before its cut."""
        before: set[bytes] = set()
        for life in self.lives:
            if name in life.marks:
                before.update(life.events[: life.marks[name]])
            elif life.joined is not None and life.joined < began:
                if life.leaving is None or life.leaving > ended:
                    raise Failure(f"checkpoint {name} is complete, and {life.name} has not reached it")
                before.update(life.events)
            elif life.events and life.joining < ended and (life.ended is None or life.ended <= ended):
                # It joined while the checkpoint was begun, and was gone before its end: either is right.
                return
        found: set[bytes] = set()
        for cut in made.cuts:
            async with client.read_events(cut.stream, "earliest", cut) as reader:
                async for batch in reader:
                    found.update(bytes(event) for event in batch)
        wrong = (found ^ before) - self.again.keys()
        if wrong:
            raise Failure(
                f"checkpoint {name}: {len(found - before)} events are before its cut and were not delivered "
                f"before it, {len(before - found)} the other way: {sorted(wrong)[:3]}"
            )
