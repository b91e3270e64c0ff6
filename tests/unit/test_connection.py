"""A connection over a socket pair: what is sent at once, and what has to wait."""

from __future__ import annotations

import signal
import socket
import struct
from collections.abc import Iterator

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from pravega_wire.errors import ClosedError, ConnectionLostError, PravegaError
from pravega_wire.protocol import codec
from pravega_wire.protocol.commands import (
    WIRE_VERSION_HIGH,
    WIRE_VERSION_LOW,
    Command,
    Hello,
    KeepAlive,
    SegmentSealed,
)
from pravega_wire.transport.connection import Connection
from pravega_wire.transport.stream import NetworkStream, connect, connect_tcp

HELLO = codec.encode(Hello(high_version=WIRE_VERSION_HIGH, low_version=WIRE_VERSION_LOW))

SENDS = st.lists(
    st.one_of(
        # The pieces of one call, by their sizes; ...
        st.lists(st.integers(0, 300_000) | st.integers(0, 50), min_size=1, max_size=4),
        # ... bytes that the peer takes; or the other tasks have a turn.
        st.integers(1, 500_000),
        st.none(),
    ),
    max_size=12,
)


class User:
    """Of a flow: keeps what it is told."""

    def __init__(self) -> None:
        self.lost: list[PravegaError] = []

    def on_reply(self, reply: Command) -> bool:
        raise NotImplementedError

    def on_lost(self, error: PravegaError) -> None:
        self.lost.append(error)


def pair(buffer_bytes: int) -> tuple[Connection, trio.SocketStream]:
    """A connection, not yet running, and its peer."""
    here, there = trio.socket.socketpair()
    here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
    connection = Connection(NetworkStream(trio.SocketStream(here), "peer"), lambda _: None)
    return connection, trio.SocketStream(there)


@given(SENDS, st.sampled_from([4096, 1 << 20]))
def test_everything_arrives_once_and_in_order(sends: list[list[int] | int | None], buffer_bytes: int) -> None:
    async def main() -> None:
        connection, peer = pair(buffer_bytes)
        sent = [HELLO]
        received = bytearray()
        number = 0

        async def take(limit: int) -> None:
            with trio.move_on_after(0):
                while limit > 0:
                    data = await peer.receive_some(min(limit, 65536))
                    received.extend(data)
                    limit -= len(data)

        async with peer, trio.open_nursery() as nursery:
            nursery.start_soon(connection.run)
            for step in sends:
                if step is None:
                    await trio.lowlevel.checkpoint()
                elif isinstance(step, int):
                    await take(step)
                else:
                    parts: list[bytes | memoryview] = []
                    for size in step:
                        number += 1
                        part = bytes([number % 251]) * size
                        sent.append(part)
                        parts.append(memoryview(part) if number % 2 else part)
                    connection.send_parts(parts)
            expected = b"".join(sent)
            while len(received) < len(expected):
                received.extend(await peer.receive_some(1 << 20))
            assert received == expected
            connection.close()

    trio.run(main)


async def test_a_peer_that_is_gone_is_noticed_by_the_next_send() -> None:
    connection, peer = pair(1 << 20)
    user = User()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.run)
        connection.open_flow(user)
        await trio.testing.wait_all_tasks_blocked()
        await peer.aclose()
        # Before the connection has looked: nothing is raised here, and nothing lost without a word.
        connection.send_parts([codec.encode(KeepAlive())])
    [error] = user.lost
    assert isinstance(error, ConnectionLostError)
    assert "peer" in error.message
    with pytest.raises(ConnectionLostError):
        connection.send_parts([b"x"])


@pytest.mark.parametrize("reset", [False, True])
async def test_a_peer_that_dies_in_the_middle_of_a_message_is_lost(reset: bool) -> None:
    """That is no bad input: whoever asked may ask again."""

    listener = trio.socket.socket()
    await listener.bind(("127.0.0.1", 0))
    listener.listen()
    stream = await connect("127.0.0.1", listener.getsockname()[1])
    peer, _ = await listener.accept()
    listener.close()
    connection = Connection(stream, lambda _: None)
    user = User()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.run)
        connection.open_flow(user)
        await peer.send(codec.encode(KeepAlive()) + HELLO[:-1])
        await trio.testing.wait_all_tasks_blocked(0.01)
        if reset:
            # Of a socket with SO_LINGER 0 the other side learns by a reset.
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
        # This takes the reset, before the task that reads has seen it.
        connection.send_parts([codec.encode(KeepAlive())])
    [error] = user.lost
    assert isinstance(error, ConnectionLostError)
    assert error.retriable


@pytest.fixture
def python_s_own_ctrl_c() -> Iterator[None]:
    """PySpark, if its tests ran before in this process, has left a handler of its own."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("python_s_own_ctrl_c")
def test_ctrl_c_while_the_connection_works_interrupts_the_caller_only() -> None:
    """Else the connection would be lost first, and its users would take Ctrl-C for a lost connection."""
    seen: list[PravegaError | BaseException | None] = []

    class Interrupted(User):
        def on_reply(self, reply: Command) -> bool:
            signal.raise_signal(signal.SIGINT)
            return True

    async def main() -> None:
        connection, peer = pair(1 << 20)
        async with peer, trio.open_nursery() as nursery:
            nursery.start_soon(connection.run)
            flow = connection.open_flow(Interrupted())
            await peer.send_all(HELLO + codec.encode(SegmentSealed(flow.flow_id << 32, "s/t/0")))
            try:
                await trio.sleep_forever()
            except KeyboardInterrupt as error:
                seen.extend([connection.failure, error])
            connection.close()

    trio.run(main)
    [failure, interrupt] = seen
    assert failure is None
    assert isinstance(interrupt, KeyboardInterrupt)


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_connection_that_is_closed_before_it_runs(cancelled: bool) -> None:
    for _ in range(2):
        connection, peer = pair(1 << 20)
        async with peer, trio.open_nursery() as nursery:
            nursery.start_soon(connection.run)
            connection.close()
            if cancelled:
                nursery.cancel_scope.cancel()
        assert isinstance(connection.failure, ClosedError)


async def test_closed_by_us() -> None:
    connection, peer = pair(1 << 20)
    user = User()
    async with peer, trio.open_nursery() as nursery:
        nursery.start_soon(connection.run)
        connection.open_flow(user)
        await trio.testing.wait_all_tasks_blocked()
        connection.close()
    [error] = user.lost
    assert isinstance(error, ClosedError)
    with pytest.raises(ClosedError):
        connection.send_parts([b"x"])


async def test_the_kernel_tunes_the_buffers_of_a_connection() -> None:
    """Buffers of a fixed size limit the rate over a distance; with Linux's defaults to 6 MB/s at 50 ms."""
    # SO_BUF_LOCK of Linux 5.14: which of the buffers has been given a size.
    so_buf_lock = 72
    with trio.socket.socket() as listener:
        await listener.bind(("127.0.0.1", 0))
        listener.listen()
        async with await connect_tcp(*listener.getsockname()) as stream:
            try:
                locked = stream.getsockopt(socket.SOL_SOCKET, so_buf_lock)
            except OSError:
                pytest.skip("this kernel does not tell whether it tunes the buffers of a socket")
            assert locked == 0
