"""Writers of events with keys: plain, in batches, large ones, and numbered ones that are resumed."""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import ClassVar
from uuid import UUID

import trio

from pravega_wire.stream.client import PravegaClient
from pravega_wire.stream.event_writer import EventWriter
from pravega_wire.stream.resumable import ResumableWriter
from tests.simulation.events import History, limited_to, maybe_scale, stored_events
from tests.simulation.machine import Failure
from tests.simulation.world import Process, Workload, World

STREAM = "events"


class Writers(Workload):
    """Processes that write events with keys; each key belongs to one writer."""

    name: ClassVar[str] = "writers"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.history = History()

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
                        await self.use(process, writer, writer_name)
                if world.quiet:
                    return

    async def use(self, process: Process, writer: EventWriter[bytes], name: str) -> None:
        """Write with one writer, from several tasks."""
        rng = process.random
        async with trio.open_nursery() as nursery:
            for task in range(rng.randint(1, 3)):
                nursery.start_soon(self.calls, process, writer, f"{name}/{task}", rng.randint(5, 200))
        async with limited_to(process, "flush", 10 * process.operation_timeout):
            await writer.flush()

    async def calls(self, process: Process, writer: EventWriter[bytes], name: str, most: int) -> None:
        world, rng = self.world, process.random
        pause = world.pause(rng)
        keys = [f"k{number}" for number in range(rng.randint(1, 4))]
        for _ in range(most):
            if world.quiet:
                return
            if pause:
                await trio.sleep(pause * rng.random())
            await process.attempt(partial(self.one_call, process, writer, name, keys))

    async def one_call(
        self, process: Process, writer: EventWriter[bytes], name: str, keys: list[str]
    ) -> None:
        rng = process.random
        history = self.history
        key = rng.choice(keys)
        kind = rng.randrange(6)
        size = rng.choice((0, 10, 500, 30_000))
        several = rng.randint(1, 20)
        chosen = [key]
        if kind in (3, 5):
            chosen = [key] * several
        elif kind == 4:
            chosen = [rng.choice(keys) for _ in range(several)]
        events = [history.event(name, each, size % 1000 if kind > 2 else size) for each in chosen]
        history.doubt(events)
        if kind < 3:
            ack = await writer.write_event(events[0], key)
        elif kind == 5:
            history.batches.append(events)
            ack = await writer.write_batch(events, key)
        else:
            ack = await writer.write_events(events, key if kind == 3 else chosen)
        history.trust(events)
        if rng.random() < 0.5:
            async with limited_to(process, "an acknowledgement", 10 * process.operation_timeout):
                await ack.wait()
            history.acknowledge(events)

    async def check(self, client: PravegaClient) -> None:
        self.history.check(await stored_events(client, STREAM))


class Resumed(Workload):
    """Processes that write the same numbered events, one after the other and at the same time."""

    name: ClassVar[str] = "resumable"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.id = UUID(int=self.random.getrandbits(128), version=4)
        self.keys = [f"k{number}" for number in range(self.random.randint(1, 5))]
        self.sizes = self.random.choice((0, 20, 3000))
        self.acknowledged = 0
        self.last = 0

    def event(self, number: int) -> tuple[bytes, str]:
        key = self.keys[number * 7 % len(self.keys)]
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
                    async with client.resumable_writer(
                        STREAM, self.id, max_outstanding_bytes=limit
                    ) as writer:
                        if writer.last_stored < self.acknowledged and writer.last_stored + 1 > self.last:
                            raise Failure(f"{writer.last_stored} is said to be the last one stored")
                        await self.use(process, writer)
                if world.quiet:
                    return

    async def use(self, process: Process, writer: ResumableWriter[bytes]) -> None:
        world, rng = self.world, process.random
        pause = world.pause(rng)
        if rng.random() < 0.5:
            async with limited_to(process, "flush", 10 * process.operation_timeout):
                await writer.flush()
        for _ in range(rng.randint(5, 200)):
            if world.quiet:
                break
            if pause:
                await trio.sleep(pause * rng.random())
            await process.attempt(partial(self.one_call, process, writer))
        async with limited_to(process, "flush", 10 * process.operation_timeout):
            await writer.flush()

    async def one_call(self, process: Process, writer: ResumableWriter[bytes]) -> None:
        rng = process.random
        first = writer.next_event_number
        many = [self.event(first + number) for number in range(rng.choice((1, 1, 1, 5, 30)))]
        if len(many) == 1:
            ack = await writer.write_event(*many[0])
        else:
            ack = await writer.write_events([event for event, _ in many], [key for _, key in many])
        self.last = max(self.last, first + len(many) - 1)
        if rng.random() < 0.5:
            async with limited_to(process, "an acknowledgement", 10 * process.operation_timeout):
                await ack.wait()
            self.acknowledged = max(self.acknowledged, first + len(many) - 1)

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
            if each != [n for n in range(1, each[-1] + 1) if self.event(n)[1].encode() == key]:
                raise Failure(f"gaps: {each} of {key!r}")
        lost = sorted(set(range(1, self.acknowledged + 1)).difference(numbers))
        if lost:
            raise Failure(f"acknowledged and lost: {lost[:10]}")
