"""Writers on their way to the successors of a sealed segment: callers give up, clients are closed.

The stream is that of the simulation in ``tests/property``, without its faults.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from typing import TypeVar

import pytest
import trio
import trio.testing

from pravega_wire.errors import SegmentSealedError
from pravega_wire.segment.store import SegmentTarget
from pravega_wire.stream import event_writer as event_writer_module
from pravega_wire.stream import routing as routing_module
from pravega_wire.stream.event_writer import EventWriter
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
        if segment.sealed:
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
