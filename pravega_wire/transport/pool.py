"""Connections to segment stores, shared: see :class:`ConnectionPool`."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio

from pravega_wire.errors import (
    ArgumentTypeError,
    ClosedError,
    ConnectError,
    HostNotFoundError,
    InvalidArgumentError,
)
from pravega_wire.support.checks import shown
from pravega_wire.transport.connection import Connection, Flow, FlowHandler
from pravega_wire.transport.limits import DEFAULT_LIMITS, Limits
from pravega_wire.transport.lull import Lull
from pravega_wire.transport.stream import connect, connect_tcp
from pravega_wire.values.types import Endpoint, endpoint_text

__all__ = ["AddressMap", "ConnectionPool"]

AddressMap = Callable[[str, int], Endpoint]
"""Function that translates an address from the controller into the one to connect to (a proxy, a NAT)."""


@contextmanager
def _named_by_controller() -> Iterator[None]:
    """Make an unknown host name retriable: a store that moves may have no name for a while."""
    try:
        yield
    except HostNotFoundError as error:
        raise ConnectError(error.message, host=error.host) from error


class _Store:
    """What the pool knows about one segment store."""

    __slots__ = ("changed", "connections", "dialing")

    def __init__(self) -> None:
        self.connections: list[Connection] = []
        self.dialing = 0
        self.changed = trio.Event()

    def notify(self) -> None:
        self.changed.set()
        self.changed = trio.Event()


class ConnectionPool:
    """A pool of at most ``max_per_store`` connections to each segment store.

    A new flow uses the connection with the fewest flows. Another connection is opened if all have flows and
    the limit allows it. The tasks of connections run in the given nursery.

    :param nursery: runs the tasks of connections.
    :param tls: how connections are secured, None for plain TCP.
    :param max_per_store: largest number of connections to one store.
    :param address_map: translates the addresses that the controller names.
    :param limits: time limits.
    :ivar tls: how connections are secured, or None.
    :ivar lull: when to send what is still being gathered.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        *,
        tls: ssl.SSLContext | None = None,
        max_per_store: int = 10,
        address_map: AddressMap | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._limits = limits
        self._nursery = nursery
        self.lull = Lull(nursery)
        self.tls = tls
        self._max = max_per_store
        self._address_map = address_map
        self._stores: dict[Endpoint, _Store] = {}
        self._closed = False

    def address(self, endpoint: Endpoint) -> Endpoint:
        """Return where to connect for an address that the controller has named.

        :raises InvalidArgumentError: the function that says so has failed, or returned something else.
        """
        if self._address_map is None:
            return endpoint
        try:
            found: object = self._address_map(*endpoint)
        except Exception as error:
            # It is called by tasks of the client, which this would end.
            raise InvalidArgumentError(
                f"address_map failed for {endpoint_text(endpoint)}: {type(error).__name__}: {error}"
            ) from error
        match found:
            # The system would take a larger port for another one, the remainder of 65536.
            case (str() as host, int() as port) if host and port is not True and 1 <= port <= 65535:
                return host, port
        raise ArgumentTypeError(
            f"address_map must return a host and a port for {endpoint_text(endpoint)}, not {shown(found)}"
        )

    async def private_connection(self, endpoint: Endpoint) -> tuple[socket.socket, str]:
        """Open a TCP connection outside of the pool, which belongs to the caller; TLS is left to the caller.

        :returns: the socket, and the ``host:port`` it is connected to.
        :raises ConnectError: the store cannot be reached.
        :raises ClosedError: the pool is closed.
        """
        if self._closed:
            raise ClosedError("the client is closed")
        host, port = self.address(endpoint)
        with _named_by_controller():
            stream = await connect_tcp(host, port, timeout=self._limits.connect)
        return socket.socket(fileno=stream.socket.detach()), endpoint_text((host, port))

    async def flow(self, endpoint: Endpoint, handler: FlowHandler) -> Flow:
        """Open a flow on a connection to ``endpoint``.

        :param endpoint: address of the store, as the controller names it.
        :param handler: receives the flow's replies.
        :raises ConnectError: the store cannot be reached.
        :raises TlsError: the TLS handshake or the check of the certificate failed.
        :raises ClosedError: the pool is closed.
        """
        store = self._stores.setdefault(endpoint, _Store())
        while True:
            if self._closed:
                raise ClosedError("the client is closed")
            connections = store.connections
            best = min(connections, key=lambda each: each.flow_count, default=None)
            total = len(connections) + store.dialing
            if best is not None and (best.flow_count == 0 or total >= self._max):
                await trio.lowlevel.checkpoint()
                if not best.retired:
                    return best.open_flow(handler)
                continue
            if total < self._max:
                connection = await self._dial(endpoint, store)
                if not connection.retired:
                    return connection.open_flow(handler)
                continue
            await store.changed.wait()

    async def _dial(self, endpoint: Endpoint, store: _Store) -> Connection:
        store.dialing += 1
        try:
            with _named_by_controller():
                stream = await connect(*self.address(endpoint), tls=self.tls, timeout=self._limits.connect)
        finally:
            store.dialing -= 1
            store.notify()

        def forget(closed: Connection) -> None:
            if closed in store.connections:
                store.connections.remove(closed)
            store.notify()

        connection = Connection(stream, forget, silence=self._limits.silence)
        if self._closed:
            await stream.aclose()
            raise ClosedError("the client is closed")
        store.connections.append(connection)
        self._nursery.start_soon(connection.run, name=f"pravega connection {connection.host}")
        return connection

    def close(self) -> None:
        """Close every connection; their flows get :class:`ClosedError`."""
        self._closed = True
        for store in self._stores.values():
            for connection in list(store.connections):
                connection.close()
            store.notify()
