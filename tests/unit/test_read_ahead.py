"""Reading ahead for an event loop: its bound, its order, and its end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

import pytest
import trio

from pravega_wire.aio.ahead import AHEAD_BYTES, ReadAhead
from pravega_wire.aio.portal import Line, Portal
from pravega_wire.errors import ClosedError, ConcurrentUseError, DecodeError

SIZE = 1 << 18
FULL = AHEAD_BYTES // SIZE


@dataclass
class Batch:
    """As much of a batch as reading ahead looks at."""

    number: int
    nbytes: int = SIZE


class Source:
    """Batches with numbers, made in the client's thread.

    :param total: None follows so many batches.
    :param blocked_at: this one never comes. :param failing_at: instead of this one an error comes, once.
    """

    def __init__(
        self, total: int = 1000, *, blocked_at: int | None = None, failing_at: int | None = None
    ) -> None:
        self.total = total
        self.blocked_at = blocked_at
        self.failing_at = failing_at
        self.made = 0
        self.cancelled = False
        self.blocking = threading.Event()
        self.at_hand = False

    async def next_batch(self) -> Any:
        # As a chunk does: two batches at once, and a wait after them.
        if self.made % 2 == 0:
            await trio.lowlevel.checkpoint()
        if self.made == self.failing_at:
            self.failing_at = None
            raise DecodeError("no event")
        if self.made == self.blocked_at:
            self.blocking.set()
            try:
                await trio.sleep_forever()
            finally:
                self.cancelled = True
        if self.made == self.total:
            return None
        self.made += 1
        self.at_hand = self.made % 2 == 1
        return Batch(self.made - 1)


@asynccontextmanager
async def reading(source: Source) -> AsyncIterator[tuple[ReadAhead, Line]]:
    portal = Portal()
    line = Line(portal)
    try:
        yield ReadAhead(line, source), line
    finally:
        await portal.stop()


async def number(ahead: ReadAhead) -> int | None:
    batch = await ahead.next_batch()
    return None if batch is None else cast("Batch", batch).number


async def stopped(ahead: ReadAhead) -> None:
    """Wait until it reads no more."""
    while ahead._call is None or not ahead._call.ended:
        await asyncio.sleep(0)


async def closed(ahead: ReadAhead, line: Line) -> None:
    """Close what is read, as its handle does."""
    await line.run(line.closing, trio.lowlevel.checkpoint)
    ahead.drop()


def test_all_batches_in_order_and_then_the_end() -> None:
    async def main() -> None:
        async with reading(Source(100)) as (ahead, _):
            assert [await number(ahead) for _ in range(102)] == [*range(100), None, None]
            assert ahead.held_bytes == 0

    asyncio.run(main())


def test_a_slow_task_has_no_more_read_than_the_bound() -> None:
    async def main() -> None:
        source = Source()
        async with reading(source) as (ahead, _):
            assert source.made == 0
            assert await number(ahead) == 0
            # One was taken, perhaps after the reading had stopped.
            for taken in range(1, 100):
                await stopped(ahead)
                assert FULL // 2 <= source.made - taken <= FULL
                assert ahead.held_bytes <= AHEAD_BYTES
                assert await number(ahead) == taken

    asyncio.run(main())


def test_half_of_the_room_is_free_before_it_reads_on() -> None:
    async def main() -> None:
        source = Source()
        async with reading(source) as (ahead, _):
            await number(ahead)
            await stopped(ahead)
            made = source.made
            while ahead.held_bytes > AHEAD_BYTES // 2 + SIZE:
                await number(ahead)
                await stopped(ahead)
                assert source.made == made
            await number(ahead)
            await stopped(ahead)
            assert ahead.held_bytes == AHEAD_BYTES

    asyncio.run(main())


def test_cancelling_loses_no_batch() -> None:
    async def main() -> None:
        found: list[int] = []
        async with reading(Source(300)) as (ahead, _):
            for turn in range(100_000):
                task = asyncio.create_task(number(ahead))
                for _ in range(turn % 7):
                    await asyncio.sleep(0)
                task.cancel()
                try:
                    got = await task
                except asyncio.CancelledError:
                    continue
                if got is None:
                    break
                found.append(got)
        assert found == list(range(300))

    asyncio.run(main())


def test_closing_ends_the_reading_and_the_task_that_waits() -> None:
    async def main() -> None:
        source = Source(blocked_at=2)
        async with reading(source) as (ahead, line):
            assert await number(ahead) == 0
            assert await number(ahead) == 1
            waiting = asyncio.create_task(number(ahead))
            await asyncio.sleep(0)
            assert not source.cancelled
            await closed(ahead, line)
            assert source.cancelled
            with pytest.raises(ClosedError, match="its object was closed"):
                await waiting
            assert not line.calls

    asyncio.run(main())


def test_closing_forgets_what_was_read() -> None:
    async def main() -> None:
        source = Source()
        async with reading(source) as (ahead, line):
            assert await number(ahead) == 0
            await stopped(ahead)
            made = source.made
            await closed(ahead, line)
            assert ahead.held_bytes == 0
            # What comes next is what is read next: of a closed reader an error.
            assert await number(ahead) == made

    asyncio.run(main())


def test_an_error_comes_after_the_batches_before_it() -> None:
    async def main() -> None:
        async with reading(Source(8, failing_at=5)) as (ahead, _):
            assert await number(ahead) == 0
            await stopped(ahead)
            assert [await number(ahead) for _ in range(4)] == [1, 2, 3, 4]
            with pytest.raises(DecodeError, match="no event"):
                await number(ahead)
            # It is asked again, as without reading ahead.
            assert [await number(ahead) for _ in range(4)] == [5, 6, 7, None]

    asyncio.run(main())


@pytest.mark.parametrize("begun", [True, False])
def test_two_tasks_cannot_read_at_the_same_time(begun: bool) -> None:
    async def main() -> None:
        source = Source(blocked_at=0)
        async with reading(source) as (ahead, line):
            waiting = asyncio.create_task(number(ahead))
            await asyncio.sleep(0)
            if begun:
                await asyncio.to_thread(source.blocking.wait)
            with pytest.raises(ConcurrentUseError, match="another call is reading"):
                await number(ahead)
            await closed(ahead, line)
            with pytest.raises(ClosedError):
                await waiting

    # Which of the two threads comes first is not the test's to choose.
    for _ in range(20):
        asyncio.run(main())


def test_nothing_is_given_out_by_a_closed_client() -> None:
    async def main() -> None:
        async with reading(Source(blocked_at=3)) as (ahead, line):
            assert await number(ahead) == 0
            waiting = asyncio.create_task(number(ahead))
            assert await waiting == 1
            await line.crossing.call(line.crossing.thread.refuse_more)
            with pytest.raises(ClosedError, match="client is closed"):
                await number(ahead)

    asyncio.run(main())


def test_the_end_of_the_thread_ends_the_waiting() -> None:
    async def main() -> None:
        async with reading(Source(blocked_at=0)) as (ahead, line):
            waiting = asyncio.create_task(number(ahead))
            await asyncio.sleep(0)
            await line.crossing.stop()
            with pytest.raises(ClosedError):
                await waiting

    asyncio.run(main())


def test_other_tasks_run_while_batches_are_at_hand() -> None:
    async def main() -> None:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async with reading(Source(20_000)) as (ahead, _):
            counting = asyncio.create_task(count())
            seen = set()
            while await number(ahead) is not None:
                seen.add(turns)
            assert len(seen) > 2
            counting.cancel()

    asyncio.run(main())
