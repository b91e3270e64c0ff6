"""A proxy between clients and a segment store, which shows what passes through it.

Not public.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from typing import Final

import trio

from pravega_wire.dissect.exchange import Connection, Frame, Note
from pravega_wire.values.types import Endpoint, endpoint_text

__all__ = ["follow"]

_CHUNK: Final = 64 * 1024


async def follow(
    port: int,
    store: Endpoint,
    show: Callable[[Frame | Note], object],
    *,
    host: str = "127.0.0.1",
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Listen, forward every connection to a segment store, and show the frames; runs until it is cancelled.

    Bytes are forwarded as they are, after their frames were shown.

    :param port: local port to listen on; 0 chooses a free one.
    :param store: address of the segment store.
    :param show: called with each frame and note, in the task that forwards: it must not wait.
    :param host: local address to listen on.
    :param task_status: reports the port, for ``nursery.start``.
    :raises OSError: the port is in use.
    """
    # Outside of the nursery, which would put the error into a group.
    listeners = await trio.open_tcp_listeners(port, host=host)
    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, _Following(store, show).serve, listeners)
        task_status.started(listeners[0].socket.getsockname()[1])


class _Following:
    """What the connections of one proxy share."""

    def __init__(self, store: Endpoint, show: Callable[[Frame | Note], object]) -> None:
        self._store = store
        self._show = show
        self._connections = count(1)
        self._frames = count(1)

    async def serve(self, client: trio.SocketStream) -> None:
        async with client:
            try:
                peer = client.socket.getpeername()[:2]
                server = await trio.open_tcp_stream(*self._store)
            except OSError as error:
                text = f"the segment store at {endpoint_text(self._store)} cannot be reached: {error}"
                self._show(Note("closed", time.time_ns(), 0, text))
                return
            async with server:
                # The address, where a name was given.
                store: Endpoint = server.socket.getpeername()[:2]
                connection = Connection(peer, store, next(self._connections), frames=self._frames)
                self._note("opened", connection, f"connection {connection.name}")
                how = "the connection was closed"
                try:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._forward, connection, peer, client, server)
                        nursery.start_soon(self._forward, connection, store, server, client)
                except* (trio.BrokenResourceError, trio.ClosedResourceError):
                    how = "the connection was reset"
                finally:
                    for each in connection.end(time.time_ns(), how):
                        self._show(each)
                    self._note("closed", connection, how)

    def _note(self, kind: str, connection: Connection, text: str) -> None:
        self._show(Note(kind, time.time_ns(), connection.number, text))

    async def _forward(
        self, connection: Connection, source: Endpoint, one: trio.SocketStream, other: trio.SocketStream
    ) -> None:
        while data := bytes(await one.receive_some(_CHUNK)):
            # Shown first: the reply must not come before its request.
            for each in connection.feed(source, data, time.time_ns()):
                self._show(each)
            await other.send_all(data)
        await other.send_eof()
