"""Reader groups: readers that come, leave and die, checkpoints, resets, and streams that scale meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from operator import itemgetter
from random import Random
from typing import ClassVar
from unittest.mock import patch

import trio

from pravega_wire.errors import (
    CheckpointError,
    CheckpointTimeoutError,
    DataLossError,
    InvalidStreamCutError,
    ReaderGroupError,
    ReinitializationRequiredError,
)
from pravega_wire.protocol import group_algorithm
from pravega_wire.stream import group_link
from pravega_wire.stream.client import PravegaClient
from pravega_wire.stream.event_reader import EventReader
from pravega_wire.stream.reader_group import ReaderGroup
from pravega_wire.values.cuts import OnTruncated
from pravega_wire.values.event_time import WatermarkAssigner
from pravega_wire.values.groups import ReaderGroupConfig, RetentionType
from pravega_wire.values.policies import RetentionPolicy, ScalingPolicy, StreamConfiguration
from pravega_wire.values.positions import Checkpoint, Position
from pravega_wire.values.types import ScopedStream, StreamCut
from tests.simulation.events import Archive, History, Placed, by_key, limited_to, maybe_scale, name_of
from tests.simulation.machine import Failure
from tests.simulation.world import SCOPE, Process, Workload, World

STREAMS, GROUP = ("events", "others", "more"), "group"
_PATIENCE = 900.0
"""Simulated seconds in which a group must have read everything once all is well."""
_END = 3600.0
"""The same for its end; each epoch may take some rounds, and a round up to six minutes."""
_STALE = 150.0
"""Seconds in which the answer to a fetch may be under way, longer than the longest call."""
_MOST_RESETS = 6


@dataclass(eq=False)
class Generation:
    """The group from one reset to the next.

    :ivar starts: where it begins in each stream; None for the head.
    :ivar delivered: what its readers were given.
    :ivar again: how often each event was given back by a reader that failed on it.
    :ivar cuts: cuts of the group: what was delivered when they were asked for, or None if that may lie after
        them; what was delivered when they were known; and the cuts.
    :ivar times: what was said to be the least time of what is still to be read: in which streams, how much
        was delivered by then, and the time.
    """

    starts: Mapping[ScopedStream, StreamCut | None]
    delivered: list[bytes] = field(default_factory=list)
    again: Counter[bytes] = field(default_factory=Counter)
    cuts: list[tuple[int | None, int, tuple[StreamCut, ...]]] = field(default_factory=list)
    times: list[tuple[tuple[str, ...], int, int]] = field(default_factory=list)


@dataclass(eq=False)
class Life:
    """One reader, from joining to leaving.

    :ivar joining: when it began to join; :ivar joined: when it had, or None.
    :ivar generation: that in which it joined; :ivar told: whether it was told that this is over.
    :ivar leaving: when it began to leave, or None; from then on others may see that it has left.
    :ivar ended: when nothing more came from it, or None.
    :ivar left: whether it left by itself.
    :ivar disowned: how much it had been given when somebody decided to declare it dead although it lives, or
        None; :ivar removed: since when all see that.
    :ivar events: what it was given.
    :ivar marks: how many events it had been given at each checkpoint.
    :ivar lowers: the time that it was told of each stream.
    """

    name: str
    joining: float
    joined: float | None = None
    on_truncated: OnTruncated = "raise"
    generation: int = -1
    told: bool = False
    leaving: float | None = None
    ended: float | None = None
    left: bool = False
    disowned: int | None = None
    removed: float = inf
    events: list[bytes] = field(default_factory=list)
    marks: dict[str, int] = field(default_factory=dict)
    lowers: dict[str, int] = field(default_factory=dict)
    assigner: WatermarkAssigner = field(default_factory=lambda: WatermarkAssigner(every=0))
    position: Position | None = None


def _milliseconds() -> int:
    return int(1000 * trio.current_time())


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
        self.generations: dict[int, Generation] = {}
        self.offline: list[Life] = []
        self.checkpoints: list[tuple[str, int, float, float, Checkpoint]] = []
        self.written = trio.Event()
        # How many others change the group or its streams.
        self.disturbers = 0
        # Their own source of chance, so that they change nothing where there are none.
        others = Random(f"{world.settings.seed} {world.settings.workload} resets")
        self.resetting = others.random() < 0.3
        self.resets = others.randint(1, _MOST_RESETS)
        self.archive = Archive(world.cluster, SCOPE)
        self.all: dict[str, Placed] = {}
        self.ended = False
        others = Random(f"{world.settings.seed} {world.settings.workload} truncations")
        # Who truncates the streams: nobody, a process at any cut, or their policy, but for what is unread.
        self.truncates = others.random() < 0.2
        self.retention = RetentionType.NONE
        if not self.truncates and others.random() < 0.25:
            self.retention = others.choice([*RetentionType][1:])
        # Whether readers that live are declared dead, and names are used again; and which may be.
        self.others = Random(f"{world.settings.seed} {world.settings.workload} names")
        self.disowns = self.others.random() < 0.12
        self.names: list[str] = []
        # What readers were given that may not have been in the group any more.
        self.doubtful: set[bytes] = set()
        # Whether resets also change which streams the group reads; and until when no policy may delete data,
        # as what a reset is about to begin at may be released before it is announced.
        others = Random(f"{world.settings.seed} {world.settings.workload} streams")
        self.regroups = others.random() < 0.12
        self.kept = 0.0
        if self.regroups:
            self.streams, self.resetting, self.truncates = STREAMS, True, False
            self.histories = {each: History() for each in self.streams}
            self.retention = others.choice([*RetentionType])
        # Whether the state is compacted all the time.
        self.compacts = others.random() < 0.12
        # Whether some writers report the times of their events, and after which time the controller
        # forgets one that does not.
        self.clock = Random(f"{world.settings.seed} {world.settings.workload} event time")
        self.timed = self.clock.random() < 0.12 and not self.regroups
        self.forgets = self.clock.choice((30.0, 300.0)) * max(1.0, world.seconds / 200) * self.timed
        # The times of events, and their streams; but for those of which the controller did not know.
        self.times: dict[bytes, tuple[int, str]] = {}
        # The newest generation that a reset has returned, and when.
        self.reset_to, self.reset_at = 0, 0.0
        # What is stored and was not delivered so far; None before all is stored.
        self.missing: set[bytes] | None = None
        self.deadline = float("inf")

    async def prepare(self, client: PravegaClient) -> None:
        # Their segments have the same ids.
        segments = self.random.randint(1, 4)
        policy = None if self.retention is RetentionType.NONE else RetentionPolicy.by_size(1)
        config = StreamConfiguration(
            ScalingPolicy.fixed(segments), policy, timestamp_aggregation_timeout=self.forgets
        )
        for stream in self.streams:
            await client.create_stream(stream, config)
        # Rounds are rarer in long runs, as calls are.
        self.every = self.random.choice((1.0, 3.0, 10.0)) * max(1.0, self.world.seconds / 200)
        streams = [f"{SCOPE}/{each}" for each in self.streams]
        await client.create_reader_group(
            GROUP,
            ReaderGroupConfig.of(streams, group_refresh_interval=self.every, retention=self.retention),
        )

    async def work(self) -> None:
        with ExitStack() as stack:
            if self.compacts:
                stack.enter_context(patch.object(group_link, "_COMPACT_BYTES", 300))
                stack.enter_context(patch.object(group_algorithm, "_COMPACTION_PROBABILITY", 0.7))
            await self.work_together()

    async def work_together(self) -> None:
        async with trio.open_nursery() as nursery:
            writer, keeper = self.world.process("admin-writer"), self.world.process("admin-keeper")
            keeper.interrupts = writer.interrupts = False
            nursery.start_soon(writer.run, self.write)
            nursery.start_soon(keeper.run, self.keep)
            for _ in range(self.random.randint(1, 4)):
                nursery.start_soon(self.keep_reading)
            for stream in self.streams:
                maybe_scale(self, nursery, stream, name=f"admin-scaler-{stream}")
            if self.timed:
                nursery.start_soon(self.mark)
                for _ in range(self.clock.randint(1, 3)):
                    nursery.start_soon(self.disturb, "clock", self.tell_time)
            if self.resetting:
                nursery.start_soon(self.disturb, "resetter", self.change)
            if self.truncates:
                nursery.start_soon(self.disturb, "truncater", self.truncate)
            elif self.retention is not RetentionType.NONE:
                nursery.start_soon(self.retain)

    async def disturb(self, name: str, main: Callable[[Process], Awaitable[None]]) -> None:
        self.disturbers += 1
        await self.keep_alive(name, main)
        self.disturbers -= 1

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

    async def tell_time(self, process: Process) -> None:
        """Write events that have a time, and report it now and then."""
        world, rng = self.world, process.random
        pause = max(world.pause(rng), world.seconds / 100)
        keys = [f"k{number}" for number in range(rng.randint(1, 6))]
        async with process.client() as client:
            while not world.quiet:
                with world.bearing():
                    stream = rng.choice(self.streams)
                    async with client.event_writer(stream) as writer:
                        name, last = f"t{next(self.numbers)}", -inf
                        written: dict[bytes, tuple[int, str]] = {}
                        for _ in range(rng.choice((3, 30))):
                            began = trio.current_time()
                            await writer.note_time(_milliseconds())
                            # Otherwise it may have been forgotten meanwhile.
                            if trio.current_time() < last + self.forgets:
                                self.times |= written
                            last, written = began, {}
                            for _ in range(rng.randint(0, 5)):
                                if world.quiet:
                                    return
                                key = rng.choice(keys)
                                event = self.histories[stream].event(name, key)
                                written[event] = _milliseconds(), stream
                                await writer.write_event(event, key)
                                await trio.sleep(pause * rng.random())

    async def mark(self) -> None:
        """Let the controller write watermarks more often than it does."""
        while not self.complete:
            await trio.sleep(self.world.seconds * 0.03 * self.clock.random())
            for stream in self.streams:
                self.world.cluster.controller.mark(SCOPE, stream)

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
                number = next(self.numbers)
                name = f"reader-{number}"
                if self.names and self.others.random() < 0.7:
                    name = self.names.pop()  # whose former reader may be the last one to notice
                life = Life(name, trio.current_time())
                if self.truncates and number % 2:
                    life.on_truncated = "skip_to_head"
                self.lives.append(life)
                try:
                    with self.world.bearing(), suppress(_Leave):
                        await self.live(process, client, life)
                finally:
                    life.ended = trio.current_time()
                    if not life.left and life.disowned is None:
                        self.offline.append(life)
                    elif self.disowns and life.disowned is None:
                        self.names.append(life.name)

    async def live(self, process: Process, client: PravegaClient, life: Life) -> None:
        """Read as one reader."""
        rng = process.random
        delay = rng.choice((0.0, 1.0))

        def reached(name: str) -> None:
            life.marks[name] = len(life.events)

        async with client.reader_group(GROUP) as group:
            async with group.reader(
                life.name, initial_delay=delay, on_truncated=life.on_truncated, on_checkpoint=reached
            ) as reader:
                life.joined = trio.current_time()
                generation = self.generation_of(group, life)
                try:
                    for _ in range(rng.choice((3, 30, 300))):
                        if self.complete:
                            break
                        await process.attempt(partial(self.one_event, process, group, reader, life))
                    if rng.random() < 0.2:
                        raise _Leave
                except BaseException:
                    # The last event is given back, unless nobody is told of this.
                    generation.again.update(life.events[-1:])
                    raise
                finally:
                    life.leaving = trio.current_time()
            life.left = True

    def generation_of(self, group: ReaderGroup, life: Life | None = None) -> Generation:
        """Return the present generation, as far as a group object knows."""
        number, starts = group.config.generation, group.config.starts
        found = self.generations.setdefault(number, Generation(starts))
        if found.starts != starts:
            raise Failure(f"generation {number} begins at {found.starts} and at {starts}")
        if life is not None:
            life.generation = number
        return found

    async def one_event(
        self, process: Process, group: ReaderGroup, reader: EventReader[bytes], life: Life
    ) -> None:
        patience = process.random.choice((0.05, 0.5, 3.0)) * max(1.0, self.world.seconds / 100)
        try:
            event = await reader.read_event(timeout=patience)
        except ReinitializationRequiredError:
            life.told = True
            raise _Leave from None
        except DataLossError as error:
            if self.regroups and life.generation < self.newest:
                return  # what it was about to read may be released
            if not self.truncates or not self.archive.used or life.on_truncated == "skip_to_head":
                raise Failure(f"{life.name} has lost data: {error}") from error
            return
        if event is not None:
            value = bytes(event.value)
            late = trio.current_time() > self.reset_at + self.every + _STALE
            if (late and life.generation < self.reset_to) or life.generation < group.config.generation:
                raise Failure(f"{life.name} has not noticed a reset, and was given {value[:40]!r}")
            if trio.current_time() > life.removed + self.every + _STALE:
                raise Failure(f"{life.name} has not noticed that it is not in the group any more")
            self.generations[life.generation].delivered.append(value)
            life.events.append(value)
            if self.missing and value in self.missing and life.generation == max(self.generations):
                self.missing.discard(value)
                # Each epoch of the stream may take some rounds of the group, which are rare in long runs.
                self.deadline = trio.current_time() + _PATIENCE
            life.position = reader.position
            if self.timed and self.clock.random() < 0.2:
                await self.look_at_time(group, reader, life)

    async def look_at_time(self, group: ReaderGroup, reader: EventReader[bytes], life: Life) -> None:
        """See what time the group has reached, for one of its streams or all."""
        generation = self.generations[life.generation]
        number = len(generation.delivered)
        streams = self.streams
        if self.clock.random() < 0.5:
            streams = (self.clock.choice(self.streams),)
            window = await reader.time_window(f"{SCOPE}/{streams[0]}")
            lower = window.lower
        else:
            lower = await reader.watermark(life.assigner)
        if lower is None or group.config.generation != life.generation:
            return
        generation.times.append((streams, number, lower))
        for stream in streams if len(streams) == 1 else ():
            if lower < life.lowers.get(stream, lower):
                raise Failure(f"the time of {stream} goes from {life.lowers[stream]} back to {lower}")
            life.lowers[stream] = lower

    @property
    def newest(self) -> int:
        """The newest generation that the controller knows."""
        return self.world.cluster.controller.generation_of(SCOPE, GROUP)

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
                            if self.disowns and not world.quiet and self.others.random() < 0.3:
                                self.disown()
                            await self.take_offline(group)
                            if rng.random() < 0.1:
                                await self.checkpoint(process, group)
                            done = world.quiet and self.written.is_set() and not self.disturbers
                            if done and self.missing is None:
                                await self.find_missing(client, group)

    async def take_offline(self, group: ReaderGroup) -> None:
        while self.offline:
            life = self.offline[0]
            with suppress(ReaderGroupError):
                await group.reader_offline(life.name, life.position)
            life.removed = trio.current_time()
            self.offline.pop(0)
            if self.disowns:
                self.names.append(life.name)

    def disown(self) -> None:
        """Take a reader for dead that is not. Others are given what it reads from now on as well."""
        alive = [
            each for each in self.lives if each.joined and each.leaving is None and each.disowned is None
        ]
        if alive:
            life = self.others.choice(alive)
            life.disowned = len(life.events)
            self.offline.append(life)

    async def find_missing(self, client: PravegaClient, group: ReaderGroup) -> None:
        """Find what has to be delivered, once the last reset is over."""
        if self.resetting or self.truncates:
            began = trio.current_time()
            # What is under way arrives, and readers finish what a resetter has begun before its death.
            while True:
                await trio.sleep(10.0)
                await group.refresh()
                if group.config.generation == self.newest:
                    break
                if trio.current_time() > began + _PATIENCE:
                    raise Failure("nobody finishes a reset")
        newest = self.generation_of(group)
        wanted = await self.stored(client, newest.starts)
        self.missing = {*wanted}.difference(newest.delivered)
        if self.truncates:
            self.missing -= self.archive.events
        self.deadline = trio.current_time() + _PATIENCE

    async def checkpoint(self, process: Process, group: ReaderGroup) -> None:
        name = f"c{next(self.numbers)}"
        began, generation = trio.current_time(), group.config.generation
        with suppress(CheckpointTimeoutError, CheckpointError):
            made = await group.checkpoint(name, timeout=process.random.choice((1.0, 30.0)))
            if group.config.generation == generation:
                self.generation_of(group)
                self.checkpoints.append((name, generation, began, trio.current_time(), made))
                if self.retention is RetentionType.MANUAL_RELEASE_AT_USER_STREAM_CUT:
                    # It is being reset, and may not hold the data of the streams of before any more.
                    over = (InvalidStreamCutError,) if self.regroups else ()
                    with suppress(ReaderGroupError, *over):
                        await group.update_retention_stream_cut(made.cuts)

    async def truncate(self, process: Process) -> None:
        """Truncate the streams now and then, wherever the group is."""
        world, rng = self.world, process.random
        cuts: list[StreamCut] = []
        async with process.client() as client:
            while not world.quiet:
                with trio.move_on_after(world.seconds * rng.choice((0.01, 0.1)) * rng.random()):
                    await world.over.wait()
                if world.quiet:
                    return
                # An older cut may lie before an earlier truncation.
                with world.bearing(), suppress(InvalidStreamCutError):
                    cuts.append(await client.tail(rng.choice(self.streams)))
                    cut = cuts[-1 - min(int(rng.expovariate(0.5)), len(cuts) - 1)]
                    await process.attempt(partial(client.truncate_stream, cut.stream, cut))

    async def retain(self) -> None:
        """Let the policies truncate the streams, more often than a controller does."""
        while not self.world.quiet:
            await trio.sleep(self.world.seconds * 0.05 * self.random.random())
            for stream in self.streams:
                if trio.current_time() >= self.kept and self.is_held(stream):
                    self.world.cluster.controller.retain(SCOPE, stream)

    def is_held(self, stream: str) -> bool:
        """Whether the group reads no data of a stream that the controller could delete.

        It does not keep data for a subscriber that has not told a cut.
        """
        subscribers = self.world.cluster.controller.stream(SCOPE, stream).subscribers
        return not self.regroups or subscribers.get(f"{SCOPE}/{GROUP}") != {}

    async def change(self, process: Process) -> None:
        """Reset the group now and then, ask where it is, and leave checkpoints behind."""
        world, rng = self.world, process.random
        async with process.client() as client:
            while not world.quiet:
                with trio.move_on_after(world.seconds * rng.choice((0.01, 0.05, 0.2)) * rng.random()):
                    await world.over.wait()
                if world.quiet:
                    return
                with world.bearing(), suppress(CheckpointError, CheckpointTimeoutError):
                    async with client.reader_group(GROUP) as group:
                        for _ in range(rng.randint(1, 3)):
                            if rng.random() < 0.4 and self.resets:
                                self.resets -= 1
                                # Others have to finish it.
                                steps = rng.choice((20, 60, 200, 10_000))
                                reset = partial(self.reset, process, client, group)
                                await world.interruptions.call(rng.randint(1, steps), reset)
                            else:
                                await process.attempt(partial(self.ask, process, group))

    def limit(self, process: Process) -> float:
        """Seconds that a call may take: each part of the group's state that arrives begins them again."""
        return 2 * process.operation_timeout

    async def reset(self, process: Process, client: PravegaClient, group: ReaderGroup) -> None:
        rng = process.random
        if self.regroups and rng.random() < 0.5:
            with self.keeping():
                await self.begin_at(process, group, await self.choose(process, client))
            return
        to: Checkpoint | ReaderGroupConfig | Iterable[StreamCut] | None = None
        # What was released stays released, and may be gone.
        anywhere = self.retention is RetentionType.NONE
        with self.keeping():
            match rng.randrange(5):
                case 0 if self.checkpoints and anywhere:
                    to = rng.choice(self.checkpoints)[-1]
                case 1:
                    fewest = 1 if anywhere else len(self.streams)
                    some = rng.sample(self.streams, rng.randint(fewest, len(self.streams)))
                    to = [await client.tail(each) for each in some]
                case 2:
                    to = (await group.stream_cuts()).values()
                case 3 if anywhere:
                    to = replace(group.config, starts=dict.fromkeys(group.config.starts))
            if to is not None:
                await self.begin_at(process, group, to)
                return
        await self.begin_at(process, group, None)

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Let no policy delete data in the meantime; nor afterwards, while others may have to finish it."""
        self.kept = inf
        try:
            yield
        except BaseException:
            self.kept = trio.current_time() + _STALE
            raise
        self.kept = 0.0

    async def choose(self, process: Process, client: PravegaClient) -> ReaderGroupConfig:
        """Some of the streams, each from its head or from its tail."""
        rng = process.random
        starts: list[str | StreamCut] = []
        for each in rng.sample(self.streams, rng.randint(1, len(self.streams))):
            # What is released may be gone.
            from_head = self.retention is RetentionType.NONE and rng.random() < 0.5
            starts.append(f"{SCOPE}/{each}" if from_head else await client.tail(each))
        return ReaderGroupConfig.of(starts, group_refresh_interval=self.every, retention=self.retention)

    async def begin_at(
        self,
        process: Process,
        group: ReaderGroup,
        to: Checkpoint | ReaderGroupConfig | Iterable[StreamCut] | None,
    ) -> None:
        before = group.config.generation
        async with limited_to(process, "a reset", self.limit(process)):
            config = await group.reset(to)
        if config.generation <= before:
            raise Failure(f"a reset in generation {before} has ended in generation {config.generation}")
        if isinstance(to, ReaderGroupConfig):
            wanted = dict(to.starts)
        else:
            cuts = to.cuts if isinstance(to, Checkpoint) else to or ()
            wanted = {each.stream: each for each in cuts}
        if wanted and {each: config.starts.get(each) for each in wanted} != wanted:
            raise Failure(f"a reset to {wanted} begins at {config.starts}")
        self.reset_to, self.reset_at = max(self.reset_to, config.generation), trio.current_time()

    async def ask(self, process: Process, group: ReaderGroup) -> None:
        """Ask where the group is, in one of several ways."""
        rng = process.random
        await group.refresh()
        generation, number = self.generation_of(group), group.config.generation
        before: int | None = len(generation.delivered)
        kind = rng.randrange(6)
        found: Mapping[ScopedStream, StreamCut] = {}
        match kind:
            case 0:
                found = await group.generate_stream_cuts(timeout=rng.choice((1.0, 30.0)))
            case 1:
                before, found = None, await group.stream_cuts()
            case 2:
                before, found = None, await group.last_checkpoint() or {}
            case 3:
                async with limited_to(process, "counting unread bytes", self.limit(process)):
                    await group.unread_bytes()
            case 4:
                async with limited_to(process, "cancelling checkpoints", self.limit(process)):
                    await group.cancel_outstanding_checkpoints()
            case _:
                # If this process is killed meanwhile, it is outstanding until the readers reach it.
                await self.checkpoint(process, group)
        if found and group.config.generation == number:
            generation.cuts.append((before, len(generation.delivered), tuple(found.values())))

    # --- checking

    async def stored(
        self, client: PravegaClient, starts: Mapping[ScopedStream, StreamCut | None] | None = None
    ) -> list[bytes]:
        """All events that are stored, or were when they were truncated, from some cuts on."""
        found = []
        for stream, history in self.histories.items():
            placed = await self.placed(client, stream)
            history.check([[event for _, event in each] for _, each in sorted(placed.items())])
            name = ScopedStream(SCOPE, stream)
            if starts is not None and name not in starts:
                continue
            start = None if starts is None else starts[name]
            found += self.archive.between(stream, placed, start, None)
        return found

    async def placed(self, client: PravegaClient, stream: str) -> Placed:
        """All events of a stream, read once after its end."""
        if stream not in self.all:
            found = await self.archive.read(client, stream)
            if not self.ended:
                return found
            self.all[stream] = found
        return self.all[stream]

    async def check(self, client: PravegaClient) -> None:
        await self.end(client)
        self.ended = True
        for life in self.lives:
            self.doubtful.update(life.events[life.disowned :] if life.disowned is not None else ())
        newest = max(self.generations)
        for number, generation in self.generations.items():
            self.check_generation(generation, await self.stored(client, generation.starts), number == newest)
            for before, after, cuts in generation.cuts:
                await self.check_cuts(client, generation, before, after, cuts)
        early = [
            life.name
            for life in self.lives
            if life.told and life.generation == newest and life.disowned is None
        ]
        if early:
            raise Failure(f"{early} had to begin anew, and there was no reset")
        for made in self.checkpoints:
            await self.check_checkpoint(client, *made)

    def check_generation(self, generation: Generation, wanted: list[bytes], last: bool) -> None:
        """Compare what was delivered between two resets with what is stored from its start on."""
        times = Counter(generation.delivered)
        if self.truncates:
            wanted = [event for event in wanted if times[event] or event not in self.archive.events]
        missing = [event for event in wanted if not times[event]]
        if missing and last:
            raise Failure(f"never delivered: {missing[:5]} and {len(missing)} in all")
        unwanted = times.keys() - {*wanted}
        if unwanted:
            raise Failure(f"delivered from before the start: {sorted(unwanted)[:5]}")
        doubled = [
            event
            for event, number in times.items()
            if number > 1 + generation.again[event] + (event in self.archive.twice)
            and event not in self.doubtful
        ]
        if doubled:
            raise Failure(f"delivered twice: {doubled[:5]} and {len(doubled)} in all")
        last_of: dict[bytes, int] = {}
        for event in generation.delivered:
            name = name_of(event)
            before = last_of.get(name, -1)
            if event in self.archive.twice or event in self.doubtful:
                continue
            position = int(event[len(name) + 1 : event.index(b"|", len(name) + 1)])
            if position < before + (event not in generation.again):
                raise Failure(f"{event[:60]!r} was delivered after number {before} of its key")
            last_of[name] = max(before, position)
        exempt = self.archive.twice | self.doubtful
        least = dict.fromkeys(self.streams, inf)
        left = len(generation.delivered)
        for streams, number, lower in sorted(generation.times, key=itemgetter(1), reverse=True):
            for event in generation.delivered[number:left]:
                at, stream = self.times.get(event, (0, ""))
                if stream and event not in generation.again and event not in exempt:
                    least[stream] = min(least[stream], at)
            left = number
            if lower > (oldest := min(least[each] for each in streams)):
                raise Failure(f"an event of time {oldest} was delivered after the group had reached {lower}")
        stored = by_key(wanted)
        for name, events in by_key(dict.fromkeys(generation.delivered)).items():
            if events != stored[name][: len(events)]:
                raise Failure(f"events of {name!r} were left out: {len(events)} were delivered")

    async def check_cuts(
        self,
        client: PravegaClient,
        generation: Generation,
        before: int | None,
        after: int,
        cuts: tuple[StreamCut, ...],
    ) -> None:
        """Before a group's cuts lies what was delivered by then, and all that was when they were begun."""
        found = await self.between(client, generation, cuts) - self.archive.twice
        early = found.difference(generation.delivered[:after], self.archive.events if self.truncates else ())
        if early:
            raise Failure(f"{len(early)} events lie before the group's cut, and were not delivered by then")
        if before is not None:
            late = {*generation.delivered[:before]} - found - generation.again.keys() - self.archive.twice
            late -= self.doubtful
            if late:
                raise Failure(f"{len(late)} events lie after the group's cut, and were delivered before it")

    async def between(
        self, client: PravegaClient, generation: Generation, cuts: Iterable[StreamCut]
    ) -> set[bytes]:
        """Return what lies between the start of a generation and some cuts."""
        found: set[bytes] = set()
        for cut in cuts:
            placed = await self.placed(client, cut.stream.name)
            found.update(self.archive.between(cut.stream.name, placed, generation.starts[cut.stream], cut))
        return found

    async def end(self, client: PravegaClient) -> None:
        """Seal the streams: now the group ends."""
        for stream in self.streams:
            await client.seal_stream(stream)
        async with client.reader_group(GROUP) as group:
            await self.take_offline(group)
            with trio.move_on_after(_END) as scope:
                async with (
                    trio.open_nursery() as nursery,
                    group.reader("last", on_truncated="skip_to_head") as reader,
                ):
                    nursery.start_soon(partial(group.checkpoint, "last", timeout=_PATIENCE))
                    newest = self.generation_of(group)
                    async for event in reader:
                        newest.delivered.append(bytes(event.value))
            if scope.cancelled_caught:
                raise Failure(f"all streams are sealed, and the group has not ended after {_END:g} s")

    async def check_checkpoint(
        self, client: PravegaClient, name: str, number: int, began: float, ended: float, made: Checkpoint
    ) -> None:
        """What was delivered before a checkpoint is what lies before its cut."""
        generation = self.generations[number]
        before: set[bytes] = set()
        for life in self.lives:
            if life.joined is not None and life.generation != number:
                continue
            if name in life.marks:
                before.update(life.events[: life.marks[name]])
            elif life.joined is not None and life.joined < began:
                if (life.leaving is None or life.leaving > ended) and life.disowned is None:
                    raise Failure(f"checkpoint {name} is complete, and {life.name} has not reached it")
                before.update(life.events)
            elif (
                life.events
                and life.joining < ended
                and (life.ended is None or life.ended <= ended or life.disowned is not None)
            ):
                # It joined while the checkpoint was begun, and was gone before its end: either is right.
                return
        found = await self.between(client, generation, made.cuts)
        wrong = (found ^ before) - generation.again.keys() - self.archive.twice - self.doubtful
        if self.truncates:
            wrong -= self.archive.events - before
        if wrong:
            raise Failure(
                f"checkpoint {name}: {len(found - before)} events are before its cut and were not delivered "
                f"before it, {len(before - found)} the other way: {sorted(wrong)[:3]}"
            )
