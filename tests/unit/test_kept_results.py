"""Calls of an event loop: what came for cancelled tasks is kept, and many tasks wait in one call."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import trio

from pravega_wire.aio import ByteStreamReader, TableIterator
from pravega_wire.aio.portal import Line, Portal, Shared
from pravega_wire.errors import ClosedError, InvalidArgumentError
from pravega_wire.stream.key_value_table import TableIterator as AsyncTableIterator
from pravega_wire.stream.key_value_table import _Cursor


@asynccontextmanager
async def opened() -> AsyncIterator[Line]:
    portal = Portal()
    try:
        yield Line(portal)
    finally:
        await portal.stop()


def test_a_kept_result_outlasts_another_cancellation() -> None:
    async def main() -> None:
        async with opened() as line:
            kept = ["kept"]

            async def later() -> str:
                return "later"

            task = asyncio.create_task(line.run_keeping(kept, later))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await line.run_keeping(kept, later) == "kept"
            assert await line.run_keeping(kept, later) == "later"

    asyncio.run(main())


def test_a_kept_result_is_returned_once() -> None:
    async def main() -> None:
        async with opened() as line:
            kept = ["kept"]
            numbers = iter(range(9))

            async def later() -> str:
                return f"later {next(numbers)}"

            found = await asyncio.gather(*(line.run_keeping(kept, later) for _ in range(3)))
            assert sorted(found) == ["kept", "later 0", "later 1"]

    asyncio.run(main())


class Bytes:
    """A byte stream of 1000 bytes. What has begun is done, even if it is cancelled."""

    DATA = bytes(n % 251 for n in range(1000))

    def __init__(self) -> None:
        self.offset = 0
        self.begun = threading.Event()
        self.may_end = threading.Event()
        self.may_end.set()

    async def receive_some(self, max_bytes: int | None) -> bytes:
        await self._begin()
        found = self.DATA[self.offset : self.offset + min(max_bytes or 100, 100)]
        self.offset += len(found)
        return found

    async def seek(self, offset: int) -> None:
        await self._begin()
        if not 0 <= offset <= len(self.DATA):
            raise InvalidArgumentError("no such offset")
        self.offset = offset

    async def _begin(self) -> None:
        with trio.CancelScope(shield=True):
            self.begun.set()
            await trio.to_thread.run_sync(self.may_end.wait)


async def cancelled(source: Bytes, call: Any) -> None:
    """Cancel a call after its work has begun in the client's thread."""
    source.begun.clear()
    source.may_end.clear()
    task = asyncio.ensure_future(call)
    await asyncio.to_thread(source.begun.wait)
    task.cancel()
    source.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task


@asynccontextmanager
async def with_kept_bytes() -> AsyncIterator[tuple[ByteStreamReader, Bytes]]:
    """A reader at offset 50 that keeps the next 100 bytes."""
    async with opened() as line:
        source = Bytes()
        reader = ByteStreamReader(line, cast("Any", source))
        await reader.seek(50)
        await cancelled(source, reader.receive_some())
        assert source.offset == 150
        yield reader, source


def test_kept_bytes_are_not_read_yet() -> None:
    async def main() -> None:
        async with with_kept_bytes() as (reader, _):
            assert reader.offset == 50
            assert await reader.receive_some() == Bytes.DATA[50:150]
            assert reader.offset == 150
            assert await reader.receive_some(7) == Bytes.DATA[150:157]

    asyncio.run(main())


def test_kept_bytes_are_no_more_than_are_asked_for() -> None:
    async def main() -> None:
        async with with_kept_bytes() as (reader, _):
            for wrong in (0, -1, True, "1"):
                with pytest.raises(InvalidArgumentError, match="max_bytes must be"):
                    await reader.receive_some(cast("int", wrong))
            found = b""
            while len(found) < 200:
                assert reader.offset == 50 + len(found)
                more = await reader.receive_some(15)
                assert 1 <= len(more) <= 15
                found += more
            assert found == Bytes.DATA[50 : 50 + len(found)]

    asyncio.run(main())


def test_kept_bytes_stay_unless_the_offset_changes() -> None:
    async def main() -> None:
        async with with_kept_bytes() as (reader, source):
            with pytest.raises(InvalidArgumentError):
                await reader.seek(1001)
            assert reader.offset == 50
            assert await reader.receive_some(10) == Bytes.DATA[50:60]
            # The offset changes although the task does not wait for it.
            await cancelled(source, reader.seek(400))
            assert reader.offset == 400
            assert await reader.receive_some(10) == Bytes.DATA[400:410]

    asyncio.run(main())


def test_a_page_for_a_cancelled_task_is_not_returned_yet() -> None:
    async def main() -> None:
        async with opened() as line:
            source = Bytes()
            left = [[(b"1", 1), (b"2", 2)], [(b"3", 3)], []]

            async def fetch(*wanted: object) -> list[tuple[bytes, int]]:
                await source.seek(0)
                return left.pop(0)

            cursors = [_Cursor(cast("Any", None), b"\xff", b"\0")]
            twin: AsyncTableIterator[int] = AsyncTableIterator("scope/table", cursors, fetch, None)
            items: TableIterator[int] = TableIterator(line, twin)
            await cancelled(source, items.next_page())
            assert items.position is None
            assert await anext(items) == 1
            assert items.position == b"1"
            assert await items.next_page() == [2]
            assert await items.next_page() == [3]
            assert items.position == b"3"
            assert await items.next_page() == []

    asyncio.run(main())


class Waiting:
    """Something to wait for in the client's thread.

    :ivar calls: how many calls have waited for it.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.begun = threading.Event()
        self.over = threading.Event()
        self.error: Exception | None = None

    async def wait(self) -> None:
        self.calls += 1
        self.begun.set()
        await trio.to_thread.run_sync(self.over.wait, abandon_on_cancel=True)
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("error", [None, InvalidArgumentError("refused")])
def test_many_tasks_wait_in_one_call(error: Exception | None) -> None:
    async def main() -> None:
        async with opened() as line:
            waiting = Waiting()
            waiting.error = error
            shared = Shared(line, waiting.wait)
            tasks = [asyncio.create_task(shared.wait()) for _ in range(5)]
            await asyncio.to_thread(waiting.begun.wait)
            tasks[1].cancel()
            waiting.over.set()
            found = await asyncio.gather(*tasks, return_exceptions=True)
            assert [found[0], *found[2:]] == [error] * 4
            assert isinstance(found[1], asyncio.CancelledError)
            assert waiting.calls == 1
            # What has ended is not waited for: another call asks again.
            assert await asyncio.gather(shared.wait(), return_exceptions=True) == [error]
            assert waiting.calls == 2

    asyncio.run(main())


@pytest.mark.parametrize("what", ["object", "client"])
def test_closing_ends_what_many_tasks_wait_for(what: str) -> None:
    async def main() -> None:
        async with opened() as line:
            waiting = Waiting()
            shared = Shared(line, waiting.wait)
            tasks = [asyncio.create_task(shared.wait()) for _ in range(3)]
            await asyncio.to_thread(waiting.begun.wait)
            if what == "object":
                await line.run(line.closing, trio.lowlevel.checkpoint)
            else:
                await line.crossing.stop()
            found = await asyncio.gather(*tasks, return_exceptions=True)
            assert list(map(type, found)) == [ClosedError] * 3

    asyncio.run(main())
