"""Peers and processes that are slow, not dead: healthy work goes on, and what is dead is given up in time.

Streams and stores are made up, and time is a mock clock's, so that minutes pass in no time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast
from uuid import uuid4

import pytest
import trio
import trio.testing

from pravega_wire.errors import ConnectionLostError, PravegaError, RetriesExhaustedError
from pravega_wire.protocol import commands as c
from pravega_wire.segment.appender import SegmentAppender
from pravega_wire.segment.metadata import SegmentMetadata
from pravega_wire.segment.reader import RangeReader
from pravega_wire.segment.store import SegmentStores, SegmentTarget
from pravega_wire.transport.connection import Connection, Flow
from pravega_wire.transport.stream import connect
from tests.inside import surroundings

NAME = "scope/stream/0.#epoch.0"


def run(main: Callable[[], Awaitable[None]]) -> None:
    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


# --- connections ----------------------------------------------------------------------------------


class Link:
    """A stream to a peer that takes bytes at some rate and says nothing."""

    host = "store:1"
    sends_at_once = False

    def __init__(self, bytes_per_second: float) -> None:
        self.rate = bytes_per_second
        self.taken = 0
        self.closed = trio.Event()

    async def receive_into(self, buffer: memoryview) -> int:
        await self.closed.wait()
        return 0

    async def send_all(self, data: bytes | memoryview) -> None:
        await trio.sleep(len(data) / self.rate if self.rate else float("inf"))
        self.taken += len(data)

    def forget_unsent(self) -> None:
        pass

    async def aclose(self) -> None:
        self.closed.set()

    def close_nowait(self) -> None:
        self.closed.set()


class User:
    def __init__(self) -> None:
        self.lost: list[tuple[float, PravegaError]] = []

    def on_reply(self, reply: c.Command) -> bool:
        return True

    def on_lost(self, error: PravegaError) -> None:
        self.lost.append((trio.current_time(), error))


@pytest.mark.parametrize(("rate", "ends"), [(100_000.0, 84 + 15), (0.0, 15)])
def test_a_peer_that_takes_what_is_sent_is_not_silent(rate: float, ends: float) -> None:
    """Eight MiB at 100 kB/s take 84 s; only after that may it be asked for a sign of life."""

    async def main() -> None:
        link, user = Link(rate), User()
        connection = Connection(cast("Any", link), lambda _: None, silence=15.0)
        started = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.run)
            connection.open_flow(user)
            connection.send_parts([bytes(8 << 20)])
            while not user.lost:
                await trio.sleep(1.0)
        [(at, error)] = user.lost
        assert isinstance(error, ConnectionLostError)
        assert ends - 5 <= at - started <= ends + 10
        assert (link.taken >= 8 << 20) == bool(rate)

    run(main)


def test_what_was_not_sent_on_a_lost_connection_does_not_arrive_later() -> None:
    """A request that is sent again on another connection must not be carried out once more afterwards."""

    async def main() -> None:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        async with listener:
            _, port, *_ = listener.socket.getsockname()
            stream = await connect("127.0.0.1", port)
            peer, user = await listener.accept(), User()
        connection = Connection(stream, lambda _: None, silence=0.3)
        async with peer, trio.open_nursery() as nursery:
            connection.open_flow(user)
            nursery.start_soon(connection.run)
            # The peer takes nothing, so most of this waits in the buffers of both sides.
            connection.send_parts([bytes(32 << 20)])
            while not user.lost:
                await trio.sleep(0.05)
            # It is told, instead of getting what is left, and then an end.
            with pytest.raises(trio.BrokenResourceError):
                while await peer.receive_some(1 << 20):
                    pass

    trio.run(main)


# --- appenders ------------------------------------------------------------------------------------


class Session:
    """What an appender sees of a connection."""

    host = "store:1"
    closed = False
    writable = True
    silent_for = 0.0

    def __init__(self) -> None:
        self.unsent_bytes = 0
        self.retired = False

    def retire(self) -> None:
        self.retired = True

    def drop_flow(self, flow: Flow) -> None:
        pass

    def send_parts(self, parts: list[bytes | memoryview]) -> None:
        pass


class Pool:
    """Gives sessions whose set-up is answered at once. :ivar stored: the last number that it answers."""

    def __init__(self) -> None:
        self.stored = 0
        self.sessions: list[Session] = []

    async def flow(self, endpoint: object, handler: SegmentAppender) -> Flow:
        await trio.lowlevel.checkpoint()
        session = Session()
        self.sessions.append(session)
        pool = self

        class Answering(Flow):
            def send(self, command: c.Command) -> None:
                assert isinstance(command, c.SetupAppend)
                handler.on_reply(c.AppendSetup(command.request_id, NAME, command.writer_id, pool.stored))

        return Answering(cast("Connection", session), len(self.sessions), handler)


class Owner:
    def __init__(self) -> None:
        self.failures: list[tuple[float, PravegaError]] = []

    def acknowledged(self, size: int, count: int, seconds: float) -> None:
        pass

    def resent(self, blocks: int, count: int, size: int) -> None:
        pass

    def reconnecting(self, error: PravegaError) -> None:
        pass

    def failed(self, appender: SegmentAppender, error: PravegaError) -> None:
        self.failures.append((trio.current_time(), error))


def appending(script: Callable[[SegmentAppender, Pool, Owner], Awaitable[None]]) -> None:
    """Run ``script`` beside an appender whose operations may take 120 s."""

    async def locate(*names: object) -> tuple[str, int]:
        await trio.lowlevel.checkpoint()
        return "store", 1

    async def main() -> None:
        pool, owner = Pool(), Owner()
        stores = SegmentStores(cast("Any", pool), locate, operation_timeout=120.0)
        appender = SegmentAppender(stores, SegmentTarget.of(NAME), cast("Any", owner))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(appender.run)
            await trio.sleep(1.0)
            await script(appender, pool, owner)
            nursery.cancel_scope.cancel()

    with surroundings(monotonic=trio.current_time):
        run(main)


def write(appender: SegmentAppender) -> None:
    appender.appends.open.put([bytes(16)], [None], 16, 1)
    appender.appends.close_block()
    appender.pump()


def acknowledge(appender: SegmentAppender, pool: Pool, number: int) -> None:
    appender.on_reply(
        c.DataAppended(
            writer_id=appender.appends.writer_id, event_number=number, previous_event_number=number - 1,
            request_id=1, current_segment_write_offset=0,
        )
    )  # fmt: skip
    pool.stored = number


def test_the_limit_counts_from_the_last_acknowledgement() -> None:
    """Blocks wait long in the window of a slow store; when it stalls, another session is tried."""

    async def script(appender: SegmentAppender, pool: Pool, owner: Owner) -> None:
        for _ in range(40):
            write(appender)
        for number in range(1, 21):
            await trio.sleep(5.0)
            acknowledge(appender, pool, number)
        last = trio.current_time()
        await trio.sleep(119.0)
        assert len(pool.sessions) > 1
        assert owner.failures == []
        while not owner.failures:
            await trio.sleep(1.0)
        [(at, error)] = owner.failures
        assert isinstance(error, RetriesExhaustedError)
        assert 120.0 <= at - last <= 185.0

    appending(script)


def test_blocks_that_have_not_left_are_not_waited_for() -> None:
    async def script(appender: SegmentAppender, pool: Pool, owner: Owner) -> None:
        write(appender)
        pool.sessions[0].unsent_bytes = 16
        await trio.sleep(600.0)
        assert not pool.sessions[0].retired
        pool.sessions[0].unsent_bytes = 0
        await trio.sleep(61.0)
        assert pool.sessions[0].retired

    appending(script)


@pytest.mark.parametrize("under_way", [True, False])
def test_a_process_that_was_stopped_tries_again(monkeypatch: pytest.MonkeyPatch, under_way: bool) -> None:
    """It finds the connection lost after an hour, and has tried nothing so far."""

    async def script(appender: SegmentAppender, pool: Pool, owner: Owner) -> None:
        if under_way:
            write(appender)
            acknowledge(appender, pool, 1)
            write(appender)
            appender.appends.unacknowledged[0].sent -= 3600
        await trio.sleep(20.0 if under_way else 3600.0)
        pool.sessions[0].closed = True
        appender.on_lost(ConnectionLostError("closed"))
        write(appender)
        await trio.sleep(5.0)
        assert len(pool.sessions) == 2
        assert owner.failures == []

    appending(script)


# --- readers --------------------------------------------------------------------------------------


class Sharing(Session):
    """A connection on which others get their bytes first."""

    def __init__(self) -> None:
        super().__init__()
        self.received_bytes = 0
        self.greeting = 0.0


def test_a_reader_waits_its_turn_on_a_connection_that_is_busy() -> None:
    async def main() -> None:
        connection = Sharing()
        requests: list[c.Command] = []

        class Keeping(Flow):
            def send(self, command: c.Command) -> None:
                requests.append(command)

        class Pool:
            async def flow(self, endpoint: object, handler: object) -> Flow:
                return Keeping(cast("Connection", connection), 1, cast("Any", handler))

        async def locate(*names: object) -> tuple[str, int]:
            return "store", 1

        stores = SegmentStores(cast("Any", Pool()), locate, operation_timeout=120.0)
        reader = RangeReader(stores, SegmentTarget.of(NAME), 0, 10)
        got: list[bytes] = []

        async def read() -> None:
            got.append(bytes(await reader.receive() or b""))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            for _ in range(300):
                await trio.sleep(1.0)
                connection.received_bytes += 100_000
            assert not connection.retired
            request = requests[0]
            assert isinstance(request, c.ReadSegment)
            reader.on_reply(
                c.SegmentRead(
                    segment=NAME, offset=0, at_tail=False, end_of_segment=False, data=b"0123456789",
                    request_id=request.request_id,
                )
            )  # fmt: skip
        assert got == [b"0123456789"]
        assert len(requests) == 1

    run(main)


def test_a_part_of_an_answer_on_each_connection_is_no_success() -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            flows: list[Flow] = []

            async def bring_a_part(connection: Sharing, handler: RangeReader) -> None:
                connection.received_bytes += 100_000
                await trio.sleep(41)
                handler.on_lost(ConnectionLostError("silent"))

            class Pool:
                async def flow(self, endpoint: object, handler: Any) -> Flow:
                    connection = Sharing()
                    flows.append(Asking(cast("Connection", connection), 1, handler))
                    nursery.start_soon(bring_a_part, connection, handler)
                    return flows[-1]

            class Asking(Flow):
                def send(self, command: c.Command) -> None:
                    # So many are too many.
                    assert len(flows) < 20

            async def locate(*names: object) -> tuple[str, int]:
                return "store", 1

            stores = SegmentStores(cast("Any", Pool()), locate, operation_timeout=120.0)
            reader = RangeReader(stores, SegmentTarget.of(NAME), 0, 10)
            with pytest.raises(RetriesExhaustedError, match=NAME):
                await reader.receive()
            nursery.cancel_scope.cancel()

    run(main)


# --- attributes -----------------------------------------------------------------------------------


def test_an_attribute_that_is_being_set_is_waited_for() -> None:
    """The first attempt is on its way into the store, so the second is refused, and the old value is read."""
    values = [5, 5, 7]

    class Stores:
        operation_timeout = 30.0

        async def call(
            self, target: object, build: Any, *expected: Any, doing: str, patient: bool = False
        ) -> c.Command:
            command = build(1, "")
            if isinstance(command, c.UpdateSegmentAttribute):
                build(2, "")  # sent again after a lost connection
                return c.SegmentAttributeUpdated(request_id=2, success=False)
            return c.SegmentAttribute(request_id=3, value=values.pop(0))

    async def main() -> None:
        metadata = SegmentMetadata(cast("Any", Stores()), SegmentTarget.of(NAME))
        assert await metadata.compare_and_set_attribute(uuid4(), 5, 7)
        assert values == []

    run(main)
