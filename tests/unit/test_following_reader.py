"""A reader that waits at the end of a segment, with a store that is only made up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import inf
from threading import get_ident
from typing import Any, cast

import pytest
import trio
import trio.testing

from pravega_wire.errors import (
    ConnectionLostError,
    DataLossError,
    InvalidArgumentError,
    NoSuchSegmentError,
    PravegaError,
    RetriesExhaustedError,
)
from pravega_wire.metrics import Counters
from pravega_wire.protocol import commands as c
from pravega_wire.segment.following import FollowingReader
from pravega_wire.segment.reader import RangeReader
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
    received_bytes = 0
    thread = property(lambda self: get_ident())

    def __init__(self) -> None:
        self.pool = self.connection = self
        self.counters = Counters()
        self.requests: list[c.ReadSegment] = []
        self.asked = trio.Event()
        self.token = self._token
        self.info: c.StreamSegmentInfo | PravegaError = ConnectionLostError("nobody there")
        self.retired = False

    async def call(self, *args: object, **names: object) -> c.StreamSegmentInfo:
        if isinstance(self.info, PravegaError):
            raise self.info
        return self.info

    def retire(self) -> None:
        self.retired = True

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


def a_byte(request: c.ReadSegment) -> c.SegmentRead:
    """The answer to a read at the beginning of the segment: one byte."""
    return c.SegmentRead(
        segment=Store.name, offset=0, at_tail=True, end_of_segment=False, data=b"x",
        request_id=request.request_id,
    )  # fmt: skip


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
            reader.on_reply(a_byte(request))

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    return got


@pytest.mark.parametrize("times", [[1.0, 100.0], [50.0, 1000.0, 1001.0, 5000.0]])
def test_failures_far_apart_are_not_one_outage(times: list[float]) -> None:
    assert run(times, back=True) == [b"x"]


def test_an_outage_ends_after_the_operation_timeout() -> None:
    [error] = run([1000.0], back=False)
    assert isinstance(error, RetriesExhaustedError)


def info_of(*, length: int, sealed: bool) -> c.StreamSegmentInfo:
    return c.StreamSegmentInfo(
        request_id=1, segment_name=Store.name, exists=True, is_sealed=sealed, is_deleted=False,
        last_modified=0, write_offset=length, start_offset=0,
    )  # fmt: skip


@pytest.mark.parametrize("sealed", [True, False])
def test_a_read_that_the_store_has_forgotten_does_not_wait_for_ever(sealed: bool) -> None:
    async def main() -> None:
        store = Store()
        reader = FollowingReader(cast("Any", store), cast("Any", store), 0)
        got: list[memoryview | None] = []

        async def read() -> None:
            got.append(await reader.receive())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await store.next_request()
            await trio.sleep(1000)
            # Nothing has come, and the store cannot be asked, or has nothing: it is still one request.
            store.info = info_of(length=0, sealed=False)
            await trio.sleep(1000)
            assert len(store.requests) == 1
            store.info = info_of(length=0 if sealed else 1, sealed=sealed)
            if not sealed:
                request = await store.next_request()
                data = c.SegmentRead(
                    segment=store.name, offset=0, at_tail=True, end_of_segment=False, data=b"x",
                    request_id=request.request_id,
                )  # fmt: skip
                assert reader.on_reply(data)
        assert (got == [None], reader.sealed) == (sealed, sealed)
        if not sealed:
            assert got == [b"x"]

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_connection_that_swallows_the_answers_to_a_read_is_left() -> None:
    """Its keep-alives are answered, so nothing else ends the wait."""

    async def main() -> None:
        store = Store()
        store.info = info_of(length=1, sealed=False)
        reader = FollowingReader(cast("Any", store), cast("Any", store), 0)
        got: list[memoryview | None] = []

        async def read() -> None:
            got.append(await reader.receive())

        with trio.fail_after(1e4):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(read)
                while not store.retired:
                    await trio.sleep(1)
                reader.on_reply(a_byte(await store.next_request()))
        assert got == [b"x"]

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_segment_that_was_deleted_without_an_answer_is_lost_data() -> None:
    async def main() -> None:
        store = Store()
        store.info = NoSuchSegmentError("gone", segment=Store.name, host=Store.host)
        reader = FollowingReader(cast("Any", store), cast("Any", store), 0)
        with trio.fail_after(1e4), pytest.raises(DataLossError, match=Store.name):
            await reader.receive()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_segment_that_is_sealed_while_a_token_is_fetched_ends() -> None:
    """The answer comes in the pause between two chunks, in which nobody waits for it."""

    async def main() -> None:
        store = Store()
        reader = FollowingReader(cast("Any", store), cast("Any", store), 0)
        fetching, fetched = trio.Event(), trio.Event()

        async def token() -> str:
            fetching.set()
            await fetched.wait()
            return ""

        ends: list[memoryview | None] = []

        async def read() -> None:
            assert await reader.receive() == b"x"
            store.token = token
            ends.append(await reader.receive())

        with trio.fail_after(1e6):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(read)
                first = await store.next_request()
                reader.on_reply(a_byte(first))
                last = await store.next_request()
                await fetching.wait()
                reader.on_reply(
                    c.SegmentIsSealed(
                        request_id=last.request_id, segment=store.name, server_stack_trace="", offset=1
                    )
                )
                fetched.set()
        assert ends == [None]
        assert reader.sealed

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_the_end_is_asked_for_again_when_its_bytes_are_taken() -> None:
    """Then one answer has what came meanwhile. In the middle of a segment the next request does not wait."""

    async def main() -> None:
        store = Store()
        reader = FollowingReader(cast("Any", store), cast("Any", store), 0, chunk_bytes=4, depth=2)

        def answer(data: bytes) -> None:
            request = store.requests[-1]
            reader.on_reply(
                c.SegmentRead(
                    segment=Store.name, offset=request.offset, at_tail=False, end_of_segment=False,
                    data=data, request_id=request.request_id,
                )
            )  # fmt: skip

        async with trio.open_nursery() as nursery:
            nursery.start_soon(reader.receive)
            await store.next_request()
            answer(b"0123")
            assert [each.offset for each in store.requests] == [0, 4]
            await trio.testing.wait_all_tasks_blocked()
        answer(b"45")
        assert len(store.requests) == 2
        assert bytes(await reader.receive() or b"") == b"45"
        assert [each.offset for each in store.requests] == [0, 4, 6]

    trio.run(main)


@pytest.mark.parametrize("kind", [RangeReader, FollowingReader])
def test_a_store_that_answers_without_bytes_is_asked_less_and_less_often(kind: type[RangeReader]) -> None:
    """At first at once: so answers a store that unloads a segment."""
    asked: list[float] = []

    class Empty(Store):
        received_bytes = 0
        greeting = 0.0

        def send(self, command: c.ReadSegment) -> None:
            super().send(command)
            asked.append(trio.current_time())
            reply = c.SegmentRead(
                segment=Store.name, offset=0, at_tail=True, end_of_segment=False, data=b"",
                request_id=command.request_id,
            )  # fmt: skip
            trio.lowlevel.spawn_system_task(answer, reply)

    async def answer(reply: c.Command) -> None:
        reader.on_reply(reply)

    async def main() -> None:
        nonlocal reader
        store = cast("Any", Empty())
        reader = kind(store, store, 0, 10)
        with pytest.raises(RetriesExhaustedError, match="without data"):
            await reader.receive()

    reader: RangeReader
    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert asked[0] == asked[1]
    assert len(asked) < TIMEOUT


@pytest.mark.parametrize("greeting", [0.0, inf])
def test_a_store_that_closes_every_connection_is_asked_for_the_end(greeting: float) -> None:
    """So it answers a read that begins after the end of a sealed segment. One that is away greets nobody."""
    lost: list[float] = []

    class Closing(Store):
        def __init__(self) -> None:
            super().__init__()
            self.info = info_of(length=5, sealed=True)
            self.greeting = greeting

        def send(self, command: c.ReadSegment) -> None:
            super().send(command)
            self.closed = True
            lost.append(trio.current_time())
            reader.on_lost(ConnectionLostError("closed"))

        async def flow(self, endpoint: str, handler: object) -> Store:
            self.closed = False
            return self

    async def main() -> None:
        nonlocal reader
        store = cast("Any", Closing())
        reader = RangeReader(store, store, 6, 10)
        await reader.receive()

    reader: RangeReader
    clock = trio.testing.MockClock(autojump_threshold=0)
    if greeting:
        with pytest.raises(RetriesExhaustedError, match="closed"):
            trio.run(main, clock=clock)
    else:
        with pytest.raises(InvalidArgumentError, match=r"6\.\.10 reaches beyond the end of segment .* 5$"):
            trio.run(main, clock=clock)
        assert len(lost) == 3
