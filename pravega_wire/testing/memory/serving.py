"""Carries the controller and the store in memory over sockets, by trio in a thread of its own."""

from __future__ import annotations

import logging
import os
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from random import Random
from typing import Final

import trio

from pravega_wire.errors import ServerStartError
from pravega_wire.testing.memory.auth import Auth
from pravega_wire.testing.memory.controller import Controller
from pravega_wire.testing.memory.peers import CallPeer, Carrier, StorePeer
from pravega_wire.testing.memory.store import SegmentStore
from pravega_wire.testing.processes import check_port, data_directory
from pravega_wire.testing.running import PravegaServer
from pravega_wire.testing.security import USER, Certificates, make_certificates, new_password
from pravega_wire.threads.portal import Portal

__all__ = ["memory_server"]

log = logging.getLogger(__name__)

_HOST: Final = "127.0.0.1"
_CHUNK: Final = 256 * 1024
_LONG: Final = 3600.0
_HTTP2: Final = "h2"
_LOST = (trio.BrokenResourceError, trio.ClosedResourceError)


@contextmanager
def memory_server(
    port: int | None = None, *, tls: bool = False, auth: bool = False
) -> Iterator[PravegaServer]:
    """Run a Pravega that is made of this package's own code until the context ends.

    :param port: port of the controller on 127.0.0.1; default: a free port.
    :param tls: whether to use TLS, with new certificates.
    :param auth: whether to require authentication, with a new account.
    :raises ServerStartError: the port is none, or not free, or packages that create certificates are not
        installed.
    """
    check_port(port)
    with ExitStack() as stack:
        made = make_certificates(stack.enter_context(data_directory("memory"))) if tls else None
        password = new_password() if auth else None
        portal = Portal("memory server")
        stack.callback(portal.close)
        server = _Server(portal, None if made is None else _context(made), password)
        address = portal.call(server.start, port or 0)
        yield PravegaServer(
            "memory",
            f"{'tls' if tls else 'tcp'}://{_HOST}:{address}",
            username=USER if auth else None,
            password=password,
            trust_store=None if made is None else made.trust_store,
        )


def _context(made: Certificates) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.certificate, made.key)
    # The store's clients offer no protocol, and then none is chosen.
    context.set_alpn_protocols([_HTTP2])
    return context


def _clock() -> Callable[[], float]:
    """Return a function that returns seconds since 1970, as they pass.

    Neither a machine's clock that is set, nor a test that stops the clock of its process, may stop what a
    server does.
    """
    elapsed = time.monotonic
    start = time.time() - elapsed()
    return lambda: start + elapsed()


class _Outbox:
    """What one connection has to send. Whoever has something puts it in; one task sends it."""

    def __init__(self, stream: trio.abc.Stream) -> None:
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
    def __init__(self, portal: Portal, tls: ssl.SSLContext | None, password: str | None) -> None:
        self._portal = portal
        self._tls = tls
        random = Random()
        self._clock = _clock()
        auth = None if password is None else Auth(self._clock, USER, password, key=os.urandom(64))
        self._store = SegmentStore(self._clock, random, auth=auth)
        self._controller = Controller(self._store, self._clock, random, (_HOST, 0), auth)
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
            dues = self._controller.next_due(), self._store.next_due()
            due = min((each for each in dues if each is not None), default=None)
            with trio.move_on_after(_LONG if due is None else max(0.0, due - self._clock())):
                await self._due.wait()
            self._controller.run()
            self._store.run()

    def _called(self) -> None:
        self._due.set()

    async def _serve(
        self, stream: trio.abc.Stream, peer_of: Callable[[Carrier], StorePeer | CallPeer]
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
        except* Exception:
            # What is not expected ends a connection, not the server.
            log.exception("a connection failed")
        finally:
            peer.lost()

    async def _secured(self, stream: trio.SocketStream, *, http2: bool = False) -> trio.abc.Stream | None:
        """Begin TLS if the server uses it; None if the client speaks anything else."""
        if self._tls is None:
            return stream
        secured = trio.SSLStream(stream, self._tls, server_side=True)
        try:
            await secured.do_handshake()
            if not http2 or secured.selected_alpn_protocol() == _HTTP2:
                return secured
        except _LOST:
            pass
        # Without a word, as a real one.
        await secured.aclose()
        return None

    async def _serve_store(self, connection: trio.SocketStream) -> None:
        stream = await self._secured(connection)
        # A store without tokens waits for nothing.
        called = (lambda: None) if self._store.auth is None else self._called
        if stream is not None:
            await self._serve(stream, lambda carrier: StorePeer(self._store, carrier, called=called))

    async def _serve_calls(self, connection: trio.SocketStream) -> None:
        stream = await self._secured(connection, http2=True)
        if stream is not None:
            await self._serve(
                stream, lambda carrier: CallPeer(self._controller, carrier, time.monotonic, self._called)
            )
