"""Writers on their way to the successors of a sealed segment: callers give up, clients are closed.

The stream is that of the simulation in ``tests/property``, without its faults.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from typing import Any, TypeVar
from uuid import uuid4

import pytest
import trio
import trio.testing

from pravega_wire.controller.types import Successor, Successors
from pravega_wire.errors import (
    ClosedError,
    RetriesExhaustedError,
    SegmentSealedError,
    UnexpectedReplyError,
)
from pravega_wire.segment.store import SegmentTarget
from pravega_wire.stream import event_writer as event_writer_module
from pravega_wire.stream import routing as routing_module
from pravega_wire.stream.event_writer import EventWriter
from pravega_wire.stream.resumable import ResumableWriter
from tests.cancelling import cancelled_at
from tests.property.append_simulation import STREAM, Process, World

T = TypeVar("T")

LARGE = b"a large one"


class OneSegment(World):
    """A stream that begins with one segment, and whose network and stores work."""

    def __init__(self) -> None:
        super().__init__(random.Random(1))
        self.by_id.clear()
        self.by_name.clear()
        self.current[:] = [self._segment(0, 0.0, 1.0)]
        self.quiet = True

    def split(self) -> None:
        for _ in self.scale():
            pass

    @property
    def stored(self) -> list[bytes]:
        return [event for segment in self.ordered for event, _ in segment.data]


@asynccontextmanager
async def network(world: World) -> AsyncIterator[trio.Nursery]:
    """Everything that is sent arrives."""

    async def deliver() -> None:
        while True:
            await trio.sleep(0.01)
            world.settle()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(deliver)
        yield nursery
        nursery.cancel_scope.cancel()


def run(main: Callable[[], Awaitable[T]]) -> T:
    async def limited() -> T:
        with trio.fail_after(100):
            return await main()

    return trio.run(limited, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.mark.parametrize("going_on", [False, True])
def test_a_large_event_that_found_the_segment_sealed_is_cancelled(
    monkeypatch: pytest.MonkeyPatch, going_on: bool
) -> None:
    async def append(stores: object, target: SegmentTarget, *args: object, **options: object) -> bool:
        await trio.lowlevel.checkpoint()
        segment = world.by_name[target.name]
        if segment.kept.sealed:
            raise SegmentSealedError("it is sealed", segment=target.name)
        segment.data.append((LARGE, next(world.stamps)))
        return True

    monkeypatch.setattr(event_writer_module, "append_large_event", append)
    monkeypatch.setattr(routing_module, "MAX_EVENT_BYTES", len(LARGE) - 1)

    async def main(step: int) -> bool:
        async with network(world) as nursery:
            writer = await EventWriter(Process(world, nursery, "p").core, STREAM, large_events=True)
            await (await writer.write_event(b"first", "key")).wait()
            # Nothing is in flight, so only the large event finds out.
            world.split()
            cancelled = await cancelled_at(step, lambda: writer.write_event(LARGE, "key"), going_on=going_on)
            assert cancelled or LARGE in world.stored
            await (await writer.write_event(b"second", "key")).wait()
            await writer.flush()
            await writer.aclose()
            return cancelled

    for step in count(1):
        world = OneSegment()
        cancelled = run(partial(main, step))
        assert [event for event in world.stored if event != LARGE] == [b"first", b"second"]
        assert world.stored[1:-1] in ([], [LARGE])
        if not cancelled:
            break
    assert step > 3


def writer_of(kind: type[EventWriter], core: Any) -> EventWriter:
    return ResumableWriter(core, STREAM, uuid4(), None) if kind is ResumableWriter else kind(core, STREAM)


@pytest.mark.parametrize(
    ("kind", "question"), [(EventWriter, "get_successors"), (ResumableWriter, "get_segments_between")]
)
def test_the_client_is_closed_on_the_way(kind: type[EventWriter], question: str) -> None:
    """Tasks outside of the client learn of it.

    :param question: what the writer asks the controller at last.
    """
    world = OneSegment()
    answered = 0

    async def main() -> None:
        async def wait(call: Callable[[], Awaitable[None]]) -> None:
            nonlocal answered
            with pytest.raises(ClosedError, match="the client was closed"):
                await call()
            answered += 1

        async with network(world), trio.open_nursery() as outside:
            async with trio.open_nursery() as nursery:
                core = Process(world, nursery, "p").core
                writer = await writer_of(kind, core)
                await (await writer.write_event(b"first", "key")).wait()
                world.split()
                asked = trio.Event()

                async def unanswered(*args: object) -> None:
                    asked.set()
                    await trio.sleep_forever()

                setattr(core.controller, question, unanswered)
                ack = await writer.write_event(b"second", "key")
                outside.start_soon(wait, ack.wait)
                outside.start_soon(wait, writer.flush)
                await asked.wait()
                nursery.cancel_scope.cancel()

    run(main)
    assert answered == 2


@pytest.mark.parametrize("kind", [EventWriter, ResumableWriter])
def test_a_slow_controller_is_not_taken_for_the_end_of_the_stream(kind: type[EventWriter]) -> None:
    world = OneSegment()

    async def main() -> None:
        async with network(world) as nursery:
            core = Process(world, nursery, "p").core
            core.stores.operation_timeout = 20.0
            writer = await writer_of(kind, core)
            await (await writer.write_event(b"first", "key")).wait()
            # Sealed in its store, but the controller does not know it.
            (segment,) = world.current
            world.store.seal(segment.kept)
            ack = await writer.write_event(b"second", "key")
            with pytest.raises(RetriesExhaustedError, match=r"no successors for 20 s"):
                await ack.wait()

    run(main)


@pytest.mark.parametrize("kind", [EventWriter, ResumableWriter])
def test_a_segment_that_is_named_as_its_own_successor_ends_what_waits(kind: type[EventWriter]) -> None:
    world = OneSegment()

    async def main() -> None:
        async with network(world) as nursery:
            core = Process(world, nursery, "p").core
            writer = await writer_of(kind, core)
            await (await writer.write_event(b"first", "key")).wait()
            (segment,) = world.current
            world.split()

            async def circle(*args: object) -> Successors:
                return Successors((Successor(segment.range, (segment.id,)),))

            core.controller.get_successors = circle
            ack = await writer.write_event(b"second", "key")
            for call in (ack.wait, writer.flush):
                with pytest.raises(UnexpectedReplyError, match="as a successor of segment 1") as caught:
                    await call()
                assert (caught.value.scope, caught.value.stream) == ("s", "t")

    run(main)


# --- opening --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [EventWriter, ResumableWriter])
def test_a_closed_writer_is_not_opened(kind: type[EventWriter]) -> None:
    """Whether it is closed before, or while it asks for the segments."""
    world = OneSegment()

    async def main() -> None:
        async with network(world) as nursery:
            core = Process(world, nursery, "p").core
            writer = writer_of(kind, core)
            await writer.aclose()
            with pytest.raises(ClosedError, match="the writer of s/t is closed"):
                await writer
            writer = writer_of(kind, core)
            world.quiet = False
            async with trio.open_nursery() as opening:

                async def open_it() -> None:
                    with pytest.raises(ClosedError, match="the writer of s/t is closed"):
                        await writer

                opening.start_soon(open_it)
                await trio.lowlevel.checkpoint()
                await writer.aclose()
            assert not writer.segments

    run(main)
