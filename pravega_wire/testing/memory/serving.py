"""Carries the controller and the store in memory over sockets, by trio in a thread of its own."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Final

import trio

from pravega_wire.errors import ServerStartError
from pravega_wire.testing.memory.controller import Controller
from pravega_wire.testing.memory.peers import CallPeer, Carrier, StorePeer
from pravega_wire.testing.memory.store import SegmentStore
from pravega_wire.testing.running import PravegaServer
from pravega_wire.threads.portal import Portal

__all__ = ["memory_server"]

_HOST: Final = "127.0.0.1"
_CHUNK: Final = 256 * 1024
_LONG: Final = 3600.0
_LOST = (trio.BrokenResourceError, trio.ClosedResourceError)


@contextmanager
def memory_server(port: int | None = None) -> Iterator[PravegaServer]:
    """Run a Pravega that is made of this package's own code until the context ends.

    :param port: port of the controller on 127.0.0.1; default: a free port.
    :raises ServerStartError: the port is not free.
    """
    portal = Portal("memory server")
    try:
        server = _Server(portal)
        address = portal.call(server.start, port or 0)
        yield PravegaServer("memory", f"tcp://{_HOST}:{address}")
    finally:
        portal.close()


class _Outbox:
    """What one connection has to send. Whoever has something puts it in; one task sends it."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._parts: list[bytes | memoryview] = []
        self._wake = trio.Event()
        self._over = False

    def put(self, parts: list[bytes | memoryview]) -> None:
        self._parts += parts
        self._wake.set()

    def end(self) -> None:
        """Close the connection when everything was sent."""
        self._over = True
        self._wake.set()

    async def send(self) -> None:
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            parts, self._parts = self._parts, []
            if parts:
                await self._stream.send_all(b"".join(parts))
            if self._over and not self._parts:
                return


class _Server:
    def __init__(self, portal: Portal) -> None:
        self._portal = portal
        random = Random()
        self._store = SegmentStore(time.time, random)
        self._controller = Controller(self._store, time.time, random, (_HOST, 0))
        self._due = trio.Event()

    async def start(self, port: int) -> int:
        """Listen; return the port of the controller."""
        host, store_port = self._controller.endpoint[0], await self._listen(0, self._serve_store)
        self._controller.endpoint = host, store_port
        found = await self._listen(port, self._serve_calls)
        self._portal.start_soon(self._keep_time)
        return found

    async def _listen(self, port: int, serve: Callable[[trio.SocketStream], Awaitable[None]]) -> int:
        try:
            listeners = await trio.open_tcp_listeners(port, host=_HOST)
        except OSError as error:
            raise ServerStartError(
                f"port {port} of {_HOST} is not free ({error.strerror}): choose another one, or none to have "
                "a free one found"
            ) from error
        self._portal.start_soon(partial(trio.serve_listeners, serve, listeners))
        found: int = listeners[0].socket.getsockname()[1]
        return found

    async def _keep_time(self) -> None:
        while True:
            self._due = trio.Event()
            due = self._controller.next_due()
            with trio.move_on_after(_LONG if due is None else max(0.0, due - time.time())):
                await self._due.wait()
            self._controller.run()

    async def _serve(
        self, stream: trio.SocketStream, peer_of: Callable[[Carrier], StorePeer | CallPeer]
    ) -> None:
        """Serve one connection until either side ends it."""
        outbox = _Outbox(stream)
        peer = peer_of(outbox)
        try:
            async with stream, trio.open_nursery() as nursery:

                async def send() -> None:
                    await outbox.send()
                    nursery.cancel_scope.cancel()

                nursery.start_soon(send)
                while data := await stream.receive_some(_CHUNK):
                    peer.receive(bytes(data))
                nursery.cancel_scope.cancel()
        except* _LOST:
            pass
        finally:
            peer.lost()

    async def _serve_store(self, stream: trio.SocketStream) -> None:
        await self._serve(stream, lambda carrier: StorePeer(self._store, carrier))

    async def _serve_calls(self, stream: trio.SocketStream) -> None:
        def called() -> None:
            self._due.set()

        await self._serve(stream, lambda carrier: CallPeer(self._controller, carrier, time.monotonic, called))
