"""Writers of events with keys: plain, in batches, large ones, and numbered ones that are resumed."""

from __future__ import annotations

from functools import partial
from itertools import count
from random import Random
from typing import ClassVar
from uuid import UUID

import pyarrow as pa
import trio

from pravega_wire.protocol.append import MAX_EVENT_BYTES
from pravega_wire.stream.client import PravegaClient
from pravega_wire.stream.event_writer import EventWriter
from pravega_wire.stream.resumable import ResumableWriter
from tests.simulation.events import History, limited_to, maybe_scale, stored_events
from tests.simulation.machine import Failure
from tests.simulation.world import Process, Workload, World

STREAM = "events"


def leaves_unflushed(world: World) -> bool:
    """Whether a run leaves writers without a flush; its own chance, so that others stay as they are."""
    return Random(f"{world.settings.seed} {world.settings.workload} endings").random() < 0.2


class Writers(Workload):
    """Processes that write events; each key belongs to one writer.

    :ivar leaves: whether writers are left without a flush, which has to store the events as well.
    :ivar blocks: how many calls may still write several blocks.
    :ivar large: and how many an event over the limit of a block.
    """

    name: ClassVar[str] = "writers"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.history = History()
        self.leaves = leaves_unflushed(world)
        self.blocks, self.large = 20, 3

    async def prepare(self, client: PravegaClient) -> None:
        await client.create_stream(STREAM, self.random.randint(1, 3))

    async def work(self) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(self.random.randint(1, 3)):
                nursery.start_soon(self.keep_alive, f"writer-{next(self.numbers)}", self.write)
            maybe_scale(self, nursery, STREAM)

    async def write(self, process: Process) -> None:
        world = self.world
        async with process.client() as client:
            for life in count():
                with world.bearing():
                    writer_name = f"{process.name}/{life}"
                    limit = process.random.choice((300, 20_000, 1 << 20))
                    large = process.random.random() < 0.3
                    async with client.event_writer(
                        STREAM, max_outstanding_bytes=limit, large_events=large
                    ) as writer:
                        await self.use(process, writer, writer_name, large=large)
                    self.history.flushed(writer_name)
                if world.quiet:
                    return
                if not world.settled:
                    # The stream may be sealed for long, which a writer is told at once.
                    await trio.sleep(world.seconds * 0.001)

    async def use(
        self, process: Process, writer: EventWriter[bytes], name: str, *, large: bool = False
    ) -> None:
        """Write with one writer, from several tasks."""
        rng = process.random
        async with trio.open_nursery() as nursery:
            for task in range(rng.randint(1, 3)):
                most = rng.randint(5, 200)
                nursery.start_soon(self.calls, process, writer, f"{name}/{task}", most, large)
        if self.leaves:
            return
        async with limited_to(process, "flush", 10 * process.operation_timeout):
            await writer.flush()
        self.history.flushed(name)

    async def calls(
        self, process: Process, writer: EventWriter[bytes], name: str, most: int, large: bool
    ) -> None:
        world, rng = self.world, process.random
        pause = world.pause(rng)
        keys = [f"k{number}" for number in range(rng.randint(1, 4))]
        for _ in range(most):
            if world.quiet:
                return
            if pause:
                await trio.sleep(pause * rng.random())
            await process.attempt(partial(self.one_call, process, writer, name, keys, large))

    async def one_call(
        self, process: Process, writer: EventWriter[bytes], name: str, keys: list[str], large: bool
    ) -> None:
        rng = process.random
        history = self.history
        key = rng.choice(keys)
        kind = rng.randrange(9)
        size = rng.choice((0, 10, 500, 30_000))
        several = rng.randint(1, 20)
        chosen = [key]
        sizes = [size]
        fast = self.world.network.bandwidth > 1e6
        if kind > 2:
            if kind < 8:
                sizes = [size % 1000] * several
            elif large and self.large and fast:
                self.large -= 1
                sizes = [size, MAX_EVENT_BYTES, size]
            elif self.blocks and fast:
                # The first ones decide how many are read ahead.
                self.blocks -= 1
                sizes = [0] * 64 + [30_000] * rng.randint(40, 100)
            chosen = [key] * len(sizes)
            if kind == 4:
                chosen = [rng.choice(keys) for _ in sizes]
            elif kind > 5 and rng.random() < 0.5:
                chosen = [""] * len(sizes)
        events = [history.event(name, *each) for each in zip(chosen, sizes, strict=True)]
        history.doubt(events)
        if kind < 3 or kind == 6:
            acks = [await writer.write_event(event, chosen[0] or None) for event in events]
        elif kind == 5:
            history.batches.append(events)
            acks = [await writer.write_batch(events, key)]
        else:
            given = pa.array(events, pa.binary()) if rng.random() < 0.3 else events
            acks = [await writer.write_events(given, chosen if kind == 4 else chosen[0] or None)]
        history.trust(events)
        if rng.random() < 0.5:
            async with limited_to(process, "an acknowledgement", 10 * process.operation_timeout):
                for ack in acks:
                    await ack.wait()
            history.acknowledge(events)

    async def check(self, client: PravegaClient) -> None:
        self.history.check(await stored_events(client, STREAM))


class Resumed(Workload):
    """Processes that write the same numbered events, one after the other and at the same time.

    :ivar acknowledged: the numbers of the events that were acknowledged, one by one or by a flush, or that a
        writer reported as stored when it was opened. An acknowledged event says nothing about earlier ones,
        which may be on their way to other segments.
    """

    name: ClassVar[str] = "resumable"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.id = UUID(int=self.random.getrandbits(128), version=4)
        self.keys = [f"k{number}" for number in range(self.random.randint(1, 5))]
        self.sizes = self.random.choice((0, 20, 3000, 60_000))
        self.blocks = 10
        self.leaves = leaves_unflushed(world)
        self.acknowledged: set[int] = set()

    def key(self, number: int) -> str:
        return self.keys[number * 7 % len(self.keys)]

    def event(self, number: int) -> tuple[bytes, str]:
        key = self.key(number)
        return b"%d|%s|%s" % (number, key.encode(), b"x" * (number * 31 % (self.sizes + 1))), key

    async def prepare(self, client: PravegaClient) -> None:
        await client.create_stream(STREAM, self.random.randint(1, 3))

    async def work(self) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(self.random.randint(1, 2)):
                nursery.start_soon(self.keep_alive, "writer", self.write)
            maybe_scale(self, nursery, STREAM)

    async def write(self, process: Process) -> None:
        world = self.world
        async with process.client() as client:
            while True:
                with world.bearing():
                    limit = process.random.choice((300, 20_000))
                    before = self.last_acknowledged()
                    async with client.resumable_writer(
                        STREAM, self.id, max_outstanding_bytes=limit
                    ) as writer:
                        for key, number in before.items():
                            found = writer.last_stored_of(key)
                            if found < number:
                                raise Failure(f"{found} is said to be the last of {key}, not {number}")
                        if process.random.random() < 0.3:
                            await self.check_last(client, writer)
                        self.acknowledge_all_before(writer.last_stored + 1)
                        await self.use(process, writer)
                    self.acknowledge_all_before(writer.next_event_number)
                if world.quiet:
                    return

    async def check_last(self, client: PravegaClient, writer: ResumableWriter[bytes]) -> None:
        """What a writer says is stored is stored already, and not only once it was written again."""
        events = [event for segment in await stored_events(client, STREAM) for event in segment]
        stored = {int(event[: event.index(b"|")]) for event in events}
        for key in self.keys:
            last = writer.last_stored_of(key)
            if missing := [n for n in range(1, last + 1) if self.key(n) == key and n not in stored]:
                raise Failure(f"{last} is said to be the last of {key}, but {missing[:10]} are not stored")

    def last_acknowledged(self) -> dict[str, int]:
        """The greatest acknowledged number of each key."""
        return {self.key(number): number for number in sorted(self.acknowledged)}

    def acknowledge_all_before(self, number: int) -> None:
        self.acknowledged.update(range(1, number))

    async def flush(self, process: Process, writer: ResumableWriter[bytes]) -> None:
        async with limited_to(process, "flush", 10 * process.operation_timeout):
            await writer.flush()
        self.acknowledge_all_before(writer.next_event_number)

    async def use(self, process: Process, writer: ResumableWriter[bytes]) -> None:
        world, rng = self.world, process.random
        pause = world.pause(rng)
        if rng.random() < 0.5:
            await self.flush(process, writer)
        for _ in range(rng.randint(5, 200)):
            if world.quiet:
                break
            if pause:
                await trio.sleep(pause * rng.random())
            await process.attempt(partial(self.one_call, process, writer))
        if not self.leaves:
            await self.flush(process, writer)

    async def one_call(self, process: Process, writer: ResumableWriter[bytes]) -> None:
        rng = process.random
        first = writer.next_event_number
        several = rng.choice((1, 1, 1, 5, 30, 150))
        if several == 150:
            # These may be several blocks.
            if self.blocks and self.world.network.bandwidth > 1e6:
                self.blocks -= 1
            else:
                several = 1
        many = [self.event(first + number) for number in range(several)]
        if len(many) == 1:
            ack = await writer.write_event(*many[0])
        else:
            ack = await writer.write_events([event for event, _ in many], [key for _, key in many])
        if rng.random() < 0.5:
            async with limited_to(process, "an acknowledgement", 10 * process.operation_timeout):
                await ack.wait()
            self.acknowledged.update(range(first, first + len(many)))

    async def check(self, client: PravegaClient) -> None:
        found: dict[bytes, list[int]] = {}
        for segment in await stored_events(client, STREAM):
            for event in segment:
                number, key, _ = event.split(b"|")
                if self.event(int(number))[0] != event:
                    raise Failure(f"event {int(number)} is not what was written")
                found.setdefault(key, []).append(int(number))
        numbers = sorted(number for each in found.values() for number in each)
        for key, each in found.items():
            if each != sorted(set(each)):
                raise Failure(f"doubled or out of order: {each} of {key!r}")
            if each != [n for n in range(1, each[-1] + 1) if self.key(n).encode() == key]:
                raise Failure(f"gaps: {each} of {key!r}")
        lost = sorted(self.acknowledged.difference(numbers))
        if lost:
            raise Failure(f"acknowledged and lost: {lost[:10]}")
