"""A reader that waits at the end of a segment, with a store that is only made up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
import trio
import trio.testing

from pravega_wire.errors import ConnectionLostError, PravegaError, RetriesExhaustedError
from pravega_wire.metrics import Counters
from pravega_wire.protocol import commands as c
from pravega_wire.segment.following import FollowingReader
from pravega_wire.segment.store import SegmentStores
from pravega_wire.transport.limits import Limits

TIMEOUT = 30.0


class Store:
    """Stores, pool, flow, connection and target in one. Takes requests and answers none by itself."""

    operation_timeout = TIMEOUT
    limits = Limits.of(TIMEOUT)
    attempt_limit = SegmentStores.attempt_limit
    name = "scope/stream/0.#epoch.0"
    scope = "scope"
    stream = "stream"
    host = "host"
    closed = False
    refuses = False

    def __init__(self) -> None:
        self.pool = self.connection = self
        self.counters = Counters()
        self.requests: list[c.ReadSegment] = []
        self.asked = trio.Event()
        self.token = self._token

    async def _token(self) -> str:
        return ""

    async def endpoint(self, target: object) -> tuple[str, int]:
        if self.refuses:
            raise ConnectionLostError("nobody there")
        return "endpoint", 1

    @property
    def silent_for(self) -> float:
        return 0.0

    async def flow(self, endpoint: str, handler: object) -> Store:
        return self

    def forget(self, *names: object) -> None:
        pass

    def next_request_id(self) -> int:
        return len(self.requests)

    def send(self, command: c.ReadSegment) -> None:
        self.requests.append(command)
        self.asked.set()

    def close(self) -> None:
        pass

    async def next_request(self) -> c.ReadSegment:
        await self.asked.wait()
        self.asked = trio.Event()
        return self.requests[-1]


def run(times: list[float], *, back: bool) -> list[bytes | PravegaError]:
    """What a reader gets whose connection is lost at these times, seconds, and that then gets a byte."""
    got: list[bytes | PravegaError] = []

    async def main() -> None:
        store = Store()
        reader = FollowingReader(cast("Any", store), cast("Any", store), 0)

        async def read() -> None:
            try:
                got.append(bytes(cast("memoryview", await reader.receive())))
            except PravegaError as error:
                got.append(error)

        with trio.fail_after(1e6):
            await go(reader, read, store)

    async def go(reader: FollowingReader, read: Callable[[], Awaitable[None]], store: Store) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            for at in times:
                await store.next_request()
                await trio.sleep_until(at)
                store.refuses = not back
                reader.on_lost(ConnectionLostError("lost"))
                if got or not back:
                    return
            request = await store.next_request()
            reader.on_reply(
                c.SegmentRead(
                    segment=store.name, offset=0, at_tail=True, end_of_segment=False, data=b"x",
                    request_id=request.request_id,
                )
            )  # fmt: skip

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    return got


@pytest.mark.parametrize("times", [[1.0, 100.0], [50.0, 1000.0, 1001.0, 5000.0]])
def test_failures_far_apart_are_not_one_outage(times: list[float]) -> None:
    assert run(times, back=True) == [b"x"]


def test_an_outage_ends_after_the_operation_timeout() -> None:
    [error] = run([1000.0], back=False)
    assert isinstance(error, RetriesExhaustedError)
