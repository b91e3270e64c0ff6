"""A stream without a server: stores, a controller and a network that fails in every way, for real writers.

The writers, their appenders and their metadata calls are the product's, and the store is the one in memory;
only connections, the controller's answers and the clock are made here. What a store has received it stores
at some time later, also when the connection is lost by then.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from struct import unpack_from
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch
from uuid import UUID, uuid5

import trio
import trio.testing

from pravega_wire.controller.types import SegmentWithRange, Successor, Successors
from pravega_wire.errors import ClosedError, ConnectionLostError, PravegaError
from pravega_wire.metrics import Counters
from pravega_wire.protocol import codec
from pravega_wire.protocol import commands as c
from pravega_wire.segment.store import SegmentStores, SegmentTarget
from pravega_wire.stream.event_writer import EventWriter
from pravega_wire.stream.resumable import ResumableWriter
from pravega_wire.testing.memory.store import Segment as StoredSegment
from pravega_wire.testing.memory.store import SegmentStore
from pravega_wire.transport.connection import Flow, FlowHandler
from pravega_wire.transport.limits import Leaving
from pravega_wire.transport.lull import Lull
from pravega_wire.values.hashing import routing_key_position
from pravega_wire.values.naming import segment_name
from pravega_wire.values.types import ScopedStream
from tests.inside import surroundings

STREAM = ScopedStream("s", "t")
KEYS = [f"key{number}" for number in range(6)]
_TIMEOUT = 3600.0
_QUIET_STEPS = 150


# --- stores ---------------------------------------------------------------------------------------


@dataclass(eq=False)
class Segment:
    """A segment.

    :ivar kept: what its store has of it.
    :ivar data: the stored events, each with the stamp of its block.
    """

    id: int
    low: float
    high: float
    kept: StoredSegment
    data: list[tuple[bytes, int]] = field(default_factory=list)
    successors: list[Segment] = field(default_factory=list)

    @property
    def range(self) -> SegmentWithRange:
        return SegmentWithRange(self.id, self.low, self.high)


def events_in(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        kind, length = unpack_from(">ii", data, at)
        assert kind == 0
        yield data[at + 8 : at + 8 + length]
        at += 8 + length
    assert at == len(data)


class Link:
    """A connection, both ends of it.

    :ivar closed: the client has lost it; what it has sent may still arrive.
    """

    host = "store:1"
    silent_for = 0.0
    unsent_bytes = 0

    def __init__(self, world: World) -> None:
        self.world = world
        self.closed = False
        self.retired = False
        self.writable = True
        self.flows: dict[int, Flow] = {}
        self.to_store: deque[c.Command] = deque()
        self.to_client: deque[c.Command | None] = deque()
        self.connection = world.store.connect(self.answer, self.cut)
        self.flow_ids = count(1)

    # What the client uses of a Connection.

    def open(self, handler: FlowHandler) -> Flow:
        flow = Flow(cast("Any", self), next(self.flow_ids), handler)
        self.flows[flow.flow_id] = flow
        return flow

    def drop_flow(self, flow: Flow) -> None:
        self.flows.pop(flow.flow_id, None)

    def retire(self) -> None:
        self.retired = True

    def send_parts(self, parts: list[bytes | memoryview]) -> None:
        if self.closed:
            raise ConnectionLostError("the link is closed")
        frame = b"".join(parts)
        code, length = codec.HEADER.unpack_from(frame)
        assert length == len(frame) - codec.HEADER.size
        self.to_store.append(codec.decode_body(code, memoryview(frame)[codec.HEADER.size :]))

    # What the network does.

    def lose(self) -> None:
        """The client loses the connection."""
        if not self.closed:
            self.closed = True
            self.to_client.clear()
            flows, self.flows = list(self.flows.values()), {}
            for flow in flows:
                flow.handler.on_lost(ConnectionLostError("the link was lost"))

    def cut(self) -> None:
        """The store closes the connection: nothing that comes later is taken."""
        self.to_store.clear()
        self.connection.lost()
        if not self.closed:
            self.to_client.append(None)

    def answer(self, reply: c.Command) -> None:
        if self.closed:
            return
        last = self.to_client[-1] if self.to_client else None
        if (
            self.world.joins_acks
            and isinstance(reply, c.DataAppended)
            and isinstance(last, c.DataAppended)
            and last.writer_id == reply.writer_id
        ):
            # One acknowledgement may be that of several blocks.
            self.to_client.pop()
            reply = replace(reply, previous_event_number=last.previous_event_number)
        self.to_client.append(reply)

    def deliver(self, *, twice: bool = False) -> None:
        """The client gets the next reply."""
        reply = self.to_client.popleft()
        if reply is None:
            self.lose()
            return
        flow = self.flows.get(c.reply_request_id(reply) >> 32)
        if flow is not None:
            flow.handler.on_reply(reply)
            if twice and isinstance(reply, c.AppendSetup):
                flow.handler.on_reply(reply)

    def arrive(self) -> None:
        """The store gets the next command."""
        self.connection.receive(self.to_store.popleft())


# --- the controller -------------------------------------------------------------------------------


class Controller:
    """What writers ask of a controller; each answer comes when the network lets it."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def get_current_segments(self, scope: str, stream: str) -> list[SegmentWithRange]:
        await self.world.delay()
        return [each.range for each in self.world.current]

    async def get_successors(self, scope: str, stream: str, segment_id: int) -> Successors:
        await self.world.delay()
        found = self.world.by_id[segment_id].successors
        return Successors(tuple(Successor(each.range, (segment_id,)) for each in found))

    async def get_segments(self, scope: str, stream: str) -> dict[int, int]:
        await self.world.delay()
        return dict.fromkeys((each.id for each in self.world.epochs[0]), 0)

    async def get_segments_between(
        self, scope: str, stream: str, start: Mapping[int, int], end: Mapping[int, int]
    ) -> list[int]:
        await self.world.delay()
        found: dict[int, None] = {}
        left = list(start)
        while left:
            each = left.pop()
            if each not in found:
                found[each] = None
                left += (after.id for after in self.world.by_id[each].successors)
        return list(found)

    async def get_epoch_segments(self, scope: str, stream: str, epoch: int) -> list[SegmentWithRange]:
        await self.world.delay()
        return [each.range for each in self.world.epochs[epoch]]


class Pool:
    """The connections of one process."""

    def __init__(self, world: World, nursery: trio.Nursery) -> None:
        self.world = world
        self.lull = Lull(nursery)
        self.links: list[Link] = []

    async def flow(self, endpoint: object, handler: FlowHandler) -> Flow:
        await trio.lowlevel.checkpoint()
        world = self.world
        if not world.quiet and world.random.random() < 0.1:
            raise ConnectionLostError("nothing answers")
        usable = [each for each in self.links if not each.closed and not each.retired]
        if not usable or world.random.random() < 0.3:
            link = Link(world)
            self.links.append(link)
            world.links.append(link)
            usable.append(link)
        return usable[-1].open(handler)


class World:
    """The stream, its stores, and the network between them and the processes that write."""

    def __init__(self, rng: random.Random) -> None:
        self.random = rng
        self.quiet = False
        self.links: list[Link] = []
        self.store = SegmentStore(lambda: 0.0, rng, received=lambda segment: None)
        self.joins_acks = False
        self.stamps = count()
        self.gates: list[trio.Event] = []
        self.numbers = count()
        self.by_id: dict[int, Segment] = {}
        self.by_name: dict[str, Segment] = {}
        parts = rng.randint(1, 3)
        self.current = [self._segment(0, part / parts, (part + 1) / parts) for part in range(parts)]
        self.epochs = [self.current]
        self.scaling: Iterator[None] | None = None

    def _segment(self, epoch: int, low: float, high: float) -> Segment:
        segment_id = (epoch << 32) | next(self.numbers)
        kept = self.store.create(segment_name("s", "t", segment_id))
        segment = Segment(segment_id, low, high, kept)
        self.by_id[segment_id] = self.by_name[kept.name] = segment
        return segment

    def store_next(self, segment: Segment, *, joins_acks: bool = False) -> None:
        """The store comes to the next block that it has received for a segment."""
        length = len(segment.kept.data)
        self.joins_acks = joins_acks
        self.store.store_next(segment.kept)
        self.joins_acks = False
        stamp = next(self.stamps)
        segment.data += [(event, stamp) for event in events_in(bytes(segment.kept.data[length:]))]

    async def delay(self) -> None:
        """Wait for the network."""
        if self.quiet:
            await trio.lowlevel.checkpoint()
            return
        gate = trio.Event()
        self.gates.append(gate)
        await gate.wait()

    def scale(self) -> Iterator[None]:
        """Split a segment, or merge two; another step of it with each ``next``."""
        old = [self.random.choice(self.current)]
        others = [each for each in self.current if old[0].high == each.low]
        if others and self.random.random() < 0.5:
            old += others
            bounds = [(old[0].low, old[1].high)]
        else:
            middle = (old[0].low + old[0].high) / 2
            bounds = [(old[0].low, middle), (middle, old[0].high)]
        new = [self._segment(len(self.epochs), low, high) for low, high in bounds]
        for each in old:
            each.kept.sealing = True
            yield
        for each in old:
            while any(not waiting.refused for waiting in each.kept.pending):
                yield
            # What is left was refused, and is answered later.
            each.kept.sealed = True
        yield
        for each in old:
            each.successors = new
        self.current = [each for each in self.current if each not in old] + new
        self.epochs.append(self.current)

    def scale_further(self) -> None:
        if self.scaling is None:
            self.scaling = self.scale()
        try:
            next(self.scaling)
        except StopIteration:
            self.scaling = None

    def step(self) -> None:
        """Something happens in the network or in a store."""
        rng = self.random
        choices: list[Callable[[], object]] = []
        for link in self.links:
            if link.to_store:
                choices.append(link.arrive)
            if link.to_client:
                choices.append(partial(link.deliver, twice=rng.random() < 0.1))
        for segment in self.by_id.values():
            if segment.kept.pending:
                choices.append(partial(self.store_next, segment, joins_acks=rng.random() < 0.3))
        if self.gates:
            choices.append(self._open_gate)
        if choices:
            rng.choice(choices)()

    def _open_gate(self) -> None:
        self.gates.pop(self.random.randrange(len(self.gates))).set()

    def disturb(self) -> None:
        """A connection is lost: by the client, by the store, or with everything on its way."""
        open_links = [each for each in self.links if not each.closed or each.to_store]
        if not open_links:
            return
        link = self.random.choice(open_links)
        kind = self.random.randrange(4)
        if kind == 0:
            link.lose()
        elif kind == 1:
            link.cut()
        elif kind == 2:
            # The last frames are lost on their way.
            for _ in range(self.random.randint(0, len(link.to_store))):
                link.to_store.pop()
            link.lose()
        else:
            link.writable = not link.writable

    def settle(self) -> None:
        """Everything that is on its way arrives."""
        self.quiet = True
        self.links = [each for each in self.links if not each.closed or each.to_store]
        while self.gates:
            self.gates.pop().set()
        if self.scaling is not None:
            self.scale_further()
        for link in self.links:
            link.writable = True
            while link.to_store:
                link.arrive()
        for segment in self.by_id.values():
            while segment.kept.pending:
                self.store_next(segment)
        for link in self.links:
            while link.to_client:
                link.deliver()

    @property
    def ordered(self) -> list[Segment]:
        """All segments, those that come before others first."""
        return sorted(self.by_id.values(), key=lambda each: each.id)


# --- processes ------------------------------------------------------------------------------------


class Process:
    """A client with one writer. Calls that were accepted are kept, with what became of them."""

    writer: EventWriter

    def __init__(self, world: World, nursery: trio.Nursery, name: str) -> None:
        self.world = world
        self.name = name
        self.nursery = nursery
        self.pool = Pool(world, nursery)
        self.killed = False
        self.opened = False
        self.calls: list[trio.CancelScope] = []
        self.unfinished = 0
        self.acknowledged: list[bytes] = []
        self.failures: list[PravegaError] = []

        async def locate(*names: object) -> tuple[str, int]:
            await trio.lowlevel.checkpoint()
            return "store", 1

        self.stores = SegmentStores(cast("Any", self.pool), locate, operation_timeout=_TIMEOUT)
        self.core: Any = SimpleNamespace(
            controller=Controller(world),
            stores=self.stores,
            nursery=nursery,
            counters=Counters(),
            check_open=lambda: None,
            check_run=lambda: None,
            config=SimpleNamespace(operation_timeout=_TIMEOUT),
            leaving=Leaving(_TIMEOUT),
            target=lambda stream, segment_id, access: SegmentTarget.of(segment_name("s", "t", segment_id)),
        )

    async def begin(self) -> None:
        await self.writer
        self.opened = True

    def call(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run a call of the user's, which may be cancelled."""
        scope = trio.CancelScope()
        self.calls.append(scope)
        self.unfinished += 1

        async def run() -> None:
            try:
                with scope:
                    await work()
            except ClosedError as error:
                if not self.killed:
                    self.failures.append(error)
            except PravegaError as error:
                self.failures.append(error)
            finally:
                self.unfinished -= 1
                self.calls.remove(scope)

        self.nursery.start_soon(run)

    def write(self) -> None:
        """Make a call of the user's."""
        raise NotImplementedError

    def cancel_one(self) -> None:
        if self.calls:
            self.world.random.choice(self.calls).cancel()

    def kill(self) -> None:
        self.killed = True
        self.nursery.cancel_scope.cancel()
        for link in self.pool.links:
            link.lose()


class Plain(Process):
    """Writes with an ordinary writer.

    :ivar accepted: the events of each key, in the order in which they were accepted.
    :ivar batches: events that have to be next to each other.
    """

    def __init__(self, world: World, nursery: trio.Nursery, name: str) -> None:
        super().__init__(world, nursery, name)
        self.accepted: dict[str, list[bytes]] = {}
        self.batches: list[list[bytes]] = []
        self.numbers = count()
        self.writer = EventWriter(self.core, STREAM, max_outstanding_bytes=world.random.choice([150, 10_000]))
        nursery.start_soon(self.begin)

    def event(self, key: str) -> bytes:
        event = b"%s|%s|%d" % (self.name.encode(), key.encode(), next(self.numbers))
        self.accepted.setdefault(key, []).append(event)
        return event

    def write(self) -> None:
        if not self.opened:
            return
        rng = self.world.random
        kind = rng.randrange(5)
        keys = [rng.choice(KEYS) for _ in range(rng.randint(1, 4))]

        async def write() -> None:
            writer = self.writer
            if kind == 4:
                await writer.flush()
                return
            if kind == 3:
                events = [self.event(keys[0]) for _ in keys]
                self.batches.append(events)
                ack = await writer.write_batch(events, keys[0])
            elif kind == 2:
                events = [self.event(key) for key in keys]
                ack = await writer.write_events(events, keys)
            else:
                events = [self.event(keys[0])]
                ack = await writer.write_event(events[0], keys[0])
            await ack.wait()
            self.acknowledged += events

        self.call(write)

    def check(self, world: World) -> None:
        """Everything is stored once, in order."""
        for key in KEYS:
            position = routing_key_position(key)
            mark = b"%s|%s|" % (self.name.encode(), key.encode())
            stored = [
                event
                for segment in world.ordered
                for event, _ in segment.data
                if event.startswith(mark) and segment.low < position <= segment.high
            ]
            assert stored == self.accepted.get(key, []), f"{self.name}, {key}"
        total = sum(
            event.startswith(self.name.encode() + b"|")
            for segment in world.by_id.values()
            for event, _ in segment.data
        )
        assert total == sum(map(len, self.accepted.values())), f"{self.name}: an event is in a wrong segment"
        for batch in self.batches:
            [stamps] = {
                tuple(stamp for event, stamp in segment.data if event in batch)
                for segment in world.by_id.values()
                if any(event in batch for event, _ in segment.data)
            }
            assert len(set(stamps)) == 1, f"{self.name}: a batch was torn"


class Resuming(Process):
    """Writes a sequence under an id that others have as well; each event's key follows from its number."""

    writer: ResumableWriter

    def __init__(self, world: World, nursery: trio.Nursery, name: str, writer_id: UUID) -> None:
        super().__init__(world, nursery, name)
        self.writer = ResumableWriter(
            self.core, STREAM, writer_id, None, max_outstanding_bytes=world.random.choice([150, 10_000])
        )
        nursery.start_soon(self.begin)

    def event(self, number: int) -> tuple[bytes, str]:
        # Two successive events share a key, for batches.
        key = KEYS[number // 2 * 7 % 11 % len(KEYS)]
        return b"%s|%s|%d" % (self.name.encode(), key.encode(), number), key

    def write(self) -> None:
        if not self.opened:
            return
        rng = self.world.random
        size = rng.randint(1, 4)
        kind = rng.randrange(5)

        async def write() -> None:
            writer = self.writer
            events: list[bytes] = []
            keys: list[str] = []

            def following() -> Iterator[bytes]:
                # What an event is follows from its number, which it has when it is asked for.
                for _ in range(size):
                    event, key = self.event(writer.next_event_number)
                    events.append(event)
                    keys.append(key)
                    yield event

            first = writer.next_event_number
            if kind == 4:
                await writer.flush()
                return
            if kind == 3 and first % 2 == 0:
                found = self.event(first), self.event(first + 1)
                events = [event for event, _ in found]
                ack = await writer.write_batch(events, found[0][1])
            elif kind == 2:
                # The keys come after the events that they belong to.
                ack = await writer.write_events(following(), (keys[at] for at in range(size)))
            else:
                events, keys = [self.event(first)[0]], [self.event(first)[1]]
                ack = await writer.write_event(events[0], keys[0])
            await ack.wait()
            self.acknowledged += events

        self.call(write)


class Sequence:
    """All processes that write under one id, and what has to be stored in the end."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.id = uuid5(UUID(int=0), name)
        self.all: list[Resuming] = []

    def start(self, nursery: trio.Nursery) -> Resuming:
        process = Resuming(self.world, nursery, self.name, self.id)
        self.all.append(process)
        return process

    @property
    def last(self) -> int:
        return max((each.writer.next_event_number - 1 for each in self.all), default=0)

    def check(self, world: World) -> None:
        """Every event is stored once, in order per key."""
        found: dict[str, list[int]] = {}
        for segment in world.ordered:
            for event, _ in segment.data:
                name, key, number = event.decode().split("|")
                if name == self.name:
                    found.setdefault(key, []).append(int(number))
        numbers = sorted(number for each in found.values() for number in each)
        assert numbers == list(range(1, self.last + 1)), f"{self.name}: {numbers}, up to {self.last}"
        for key, each in found.items():
            assert each == sorted(each), f"{self.name}, {key}: {each}"


class Broken(Exception):
    """A run has ended otherwise than it must."""


# --- a run ----------------------------------------------------------------------------------------


@contextmanager
def simulated_time(rng: random.Random) -> Iterator[None]:
    """Nothing depends on the real clock, nor on the order in which trio happens to run its tasks."""
    run = trio._core._run
    with (
        surroundings(monotonic=trio.current_time),
        patch.object(run, "_ALLOW_DETERMINISTIC_SCHEDULING", True),
        patch.object(run, "_r", rng),
    ):
        yield


def live(seed: int, *, steps: int = 80) -> World:
    """A random life of a stream and its writers, and then peace until all callers have their answers.

    :raises Broken: something was lost, stored twice or in another order, or a caller waits for ever.
    """
    rng = random.Random(seed)
    random.seed(seed)
    world = World(rng)
    # Not raised in an except* block: Python 3.11.2 makes a group of what is raised there.
    error: BaseException | None = None
    with simulated_time(random.Random(seed)):
        try:
            trio.run(_live, world, steps, clock=trio.testing.MockClock())
        except* AssertionError as group:
            error = group
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
    if error is not None:
        raise Broken(f"seed {seed}: {error}") from error
    return world


async def _live(world: World, steps: int) -> None:
    rng = world.random
    clock = cast("trio.testing.MockClock", trio.lowlevel.current_clock())
    async with trio.open_nursery() as outer:

        async def process(make: Callable[[trio.Nursery], None]) -> None:
            async with trio.open_nursery() as nursery:
                make(nursery)
                await trio.sleep_forever()

        plain: list[Plain] = []
        sequences = [Sequence(world, f"id{number}") for number in range(rng.randint(0, 2))]
        resuming: list[tuple[Sequence, Resuming]] = []

        def start(sequence: Sequence) -> None:
            outer.start_soon(process, lambda nursery: resuming.append((sequence, sequence.start(nursery))))

        for number in range(rng.randint(0 if sequences else 1, 2)):
            outer.start_soon(
                process,
                lambda nursery, number=number: plain.append(Plain(world, nursery, f"plain{number}")),
            )
        for sequence in sequences:
            start(sequence)
        for _ in range(steps):
            await trio.testing.wait_all_tasks_blocked()
            what = rng.random()
            writers: list[Process] = [*plain, *(each for _, each in resuming)]
            if what < 0.55:
                for _ in range(rng.randint(1, 4)):
                    world.step()
            elif what < 0.8 and writers:
                rng.choice(writers).write()
            elif what < 0.86:
                world.disturb()
            elif what < 0.91:
                world.scale_further()
            elif what < 0.94 and writers:
                rng.choice(writers).cancel_one()
            elif what < 0.96 and sequences and len(resuming) < 4:
                # Perhaps while another process with this id still runs.
                start(rng.choice(sequences))
            elif what < 0.975 and resuming:
                killed = resuming.pop(rng.randrange(len(resuming)))
                killed[1].kill()
                start(killed[0])
            else:
                clock.jump(rng.choice([0.01, 0.5, 3.0, 40.0]))
        await _quiet(world, clock, lambda: [*plain, *(each for _, each in resuming)])
        # The last process of each sequence writes all that any of them has written.
        final: list[Resuming] = []
        for sequence in sequences:
            last = sequence.last
            each = Resuming(world, outer, sequence.name, sequence.id)
            final.append(each)

            async def rewrite(each: Resuming = each, last: int = last) -> None:
                while not each.opened:
                    await trio.sleep(0.01)
                while each.writer.next_event_number <= last:
                    await each.writer.write_event(*each.event(each.writer.next_event_number))
                await each.writer.flush()

            each.call(rewrite)
        for one in plain:
            one.call(one.writer.aclose)
        await _quiet(world, clock, lambda: [*plain, *final])
        stored = {event for segment in world.by_id.values() for event, _ in segment.data}
        everybody: list[Process] = [*plain, *final, *(each for found in sequences for each in found.all)]
        for writing in everybody:
            assert not writing.failures, writing.failures
            assert stored.issuperset(writing.acknowledged), f"{writing.name}: an acknowledged event is lost"
        for one in plain:
            one.check(world)
        for sequence in sequences:
            sequence.check(world)
        outer.cancel_scope.cancel()


async def _quiet(
    world: World, clock: trio.testing.MockClock, processes: Callable[[], Iterable[Process]]
) -> None:
    """Wait until every caller has an answer."""
    for _ in range(_QUIET_STEPS):
        await trio.testing.wait_all_tasks_blocked()
        world.settle()
        await trio.testing.wait_all_tasks_blocked()
        everybody = list(processes())
        if (
            not any(each.unfinished for each in everybody)
            and world.scaling is None
            and all(each.opened for each in everybody)
        ):
            return
        clock.jump(1.0)
    waiting = [f"{each.name} ({each.unfinished} calls, {each.failures})" for each in processes()]
    raise AssertionError(f"a caller waits for ever: {waiting}, {world.scaling}")
