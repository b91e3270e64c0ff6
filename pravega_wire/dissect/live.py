"""A proxy between clients and a segment store, which shows what passes through it.

Not public.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import BinaryIO, Final

import trio

from pravega_wire.dissect.capture import CaptureWriter
from pravega_wire.dissect.connections import Dissector
from pravega_wire.dissect.exchange import Address, Connection, Frame, Note

__all__ = ["follow"]

_CHUNK: Final = 64 * 1024


async def follow(
    port: int,
    store: Address,
    show: Callable[[Frame | Note], object],
    *,
    host: str = "127.0.0.1",
    write: BinaryIO | None = None,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Listen, forward every connection to a segment store, and show the frames; runs until it is cancelled.

    Bytes are forwarded as they are, after their frames were shown.

    :param port: local port to listen on; 0 chooses a free one.
    :param store: address of the segment store.
    :param show: called with each frame and note, in the task that forwards: it must not wait.
    :param host: local address to listen on.
    :param write: a file for a capture of everything that passes (pcap).
    :param task_status: reports the port, for ``nursery.start``.
    :raises OSError: the port is in use, or ``write`` fails.
    """
    async with open_listeners(port, host) as listeners:
        await serve(listeners, store, show, write, task_status=task_status)


@asynccontextmanager
async def open_listeners(port: int, host: str = "127.0.0.1") -> AsyncIterator[list[trio.SocketListener]]:
    """Listen as long as the block runs.

    :raises OSError: the port is in use.
    """
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(each) for each in await trio.open_tcp_listeners(port, host=host)
        ]


async def serve(
    listeners: list[trio.SocketListener],
    store: Address,
    show: Callable[[Frame | Note], object],
    write: BinaryIO | None,
    *,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Do what :func:`follow` does, with listeners that are open already."""
    following = _Following(store, show, CaptureWriter(write) if write is not None else None)
    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, following.serve, listeners)
        task_status.started(listeners[0].socket.getsockname()[1])


class _Following:
    """What the connections of one proxy share."""

    def __init__(
        self, store: Address, show: Callable[[Frame | Note], object], writer: CaptureWriter | None
    ) -> None:
        self._store = store
        self._show = show
        self._writer = writer
        self._dissector = Dissector()

    async def serve(self, client: trio.SocketStream) -> None:
        async with client:
            try:
                peer = client.socket.getpeername()[:2]
                server = await trio.open_tcp_stream(*self._store)
            except OSError as error:
                text = f"the segment store at {self._store[0]}:{self._store[1]} cannot be reached: {error}"
                self._show(Note("closed", time.time_ns(), 0, text))
                return
            async with server:
                # The address, where a name was given, as in a capture.
                store: Address = server.socket.getpeername()[:2]
                connection = self._dissector.connect(peer, store)
                now = time.time_ns()
                self._show(Note("opened", now, connection.number, f"connection {connection.name}"))
                if self._writer is not None:
                    self._writer.connected(peer, store, now)
                how = "the connection was closed"
                try:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._forward, connection, client, server, peer, store)
                        nursery.start_soon(self._forward, connection, server, client, store, peer)
                except* (trio.BrokenResourceError, trio.ClosedResourceError):
                    how = "the connection was reset"
                finally:
                    now = time.time_ns()
                    for each in connection.end(now, how):
                        self._show(each)
                    self._show(Note("closed", now, connection.number, how))

    async def _forward(
        self,
        connection: Connection,
        one: trio.SocketStream,
        other: trio.SocketStream,
        source: Address,
        target: Address,
    ) -> None:
        while data := bytes(await one.receive_some(_CHUNK)):
            now = time.time_ns()
            # Shown first: the reply must not come before its request.
            if self._writer is not None:
                self._writer.sent(source, target, now, data)
            for each in connection.feed(source, data, now):
                self._show(each)
            await other.send_all(data)
        if self._writer is not None:
            self._writer.closed(source, target, time.time_ns())
        await other.send_eof()
