"""Results that arrived for cancelled tasks of an event loop: the next call returns them, and none is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pravega_wire.aio.portal import Line, Portal


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
