"""Connections whose bytes take time, and get lost in every way in which they can."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Protocol
from zlib import crc32

import trio

from pravega_wire.errors import ClosedError, ConnectError, ConnectionLostError
from pravega_wire.transport.stream import NetworkStream
from tests.simulation.machine import Events

_WINDOW = 1 << 20
"""Bytes on their way at which a sender has to wait."""


class Peer(Protocol):
    """A server's end of a connection."""

    def receive(self, data: bytes) -> None: ...
    def lost(self) -> None: ...


class Direction:
    """One direction of a connection: bytes arrive in order, late, or not at all.

    :ivar budget: bytes until the connection is cut, or None.
    :ivar swallows: whether bytes vanish, and nobody is told.
    :ivar held: whether bytes wait, as in a network that is divided.
    """

    def __init__(
        self, link: Link, name: str, arrive: Callable[[bytes], None], end: Callable[[], None]
    ) -> None:
        self.link = link
        self.name = name
        self.budget: int | None = None
        self.swallows = False
        self.held = False
        self.under_way = 0
        self.room = trio.Event()
        self._arrive = arrive
        self._end = end
        self._last = 0.0
        # What is under way, in order; the first ones may be held: they are overdue.
        self._queue: deque[tuple[bytes, Callable[[], None]]] = deque()
        self._overdue = 0
        self._holds = 0
        self._closing = False
        self._forgets = False

    def put(self, data: bytes) -> None:
        self.under_way += len(data)
        self._schedule(data, lambda: self._deliver(data))

    def forget_unsent(self) -> None:
        """The sender does not send again what did not arrive."""
        self._forgets = True
        for _ in range(self._overdue):
            data, job = self._queue.popleft()
            if data:
                self._overdue -= 1
            else:
                self._queue.append((data, job))
        self._queue.rotate(self._overdue)

    def close(self) -> None:
        """The sender has closed; the receiver learns of it after what is under way."""
        if not self._closing:
            self._closing = True
            self._schedule(b"", self._closed)

    def _schedule(self, data: bytes, job: Callable[[], None]) -> None:
        self._queue.append((data, job))
        self._at(len(data) / self.link.network.bandwidth, self._next)

    def _at(self, late: float, job: Callable[[], None]) -> None:
        network = self.link.network
        self._last = max(self._last, network.events.now + network.delay() + late)
        network.events.at(self._last, job)

    def _next(self) -> None:
        """The next thing arrives, or would arrive if it were not held."""
        if not self.held:
            self._queue.popleft()[1]()
        elif self._forgets and self._queue[self._overdue][0]:
            del self._queue[self._overdue]
        else:
            self._overdue += 1

    def hold(self) -> None:
        """Hold what arrives from now on."""
        self.held = True
        self._holds += 1

    def release(self, late: float) -> None:
        """Let go what was held, before everything else that is under way.

        :param late: seconds until it is sent again.
        """

        def let_go(holds: int = self._holds) -> None:
            if holds == self._holds:
                self.held = False
                for _ in range(self._overdue):
                    self._overdue -= 1
                    self._queue.popleft()[1]()

        self._at(late, let_go)

    def _closed(self) -> None:
        if not self.link.broken and not self.swallows:
            self.link.network.events.note(f"{self.name} ends")
            self._end()

    def _deliver(self, data: bytes) -> None:
        self.under_way -= len(data)
        if self.under_way < _WINDOW:
            self.room.set()
        if self.link.broken or self.swallows:
            return
        cut = self.budget is not None and self.budget <= len(data)
        if cut:
            data = data[: self.budget]
        elif self.budget is not None:
            self.budget -= len(data)
        self.link.network.events.note(f"{self.name} {len(data)} {crc32(data):08x}")
        if data:
            self._arrive(data)
        if cut:
            self.link.cut("bytes")


class Link:
    """One connection.

    :ivar broken: whether nothing arrives any more on either side.
    """

    def __init__(self, network: Network, client: str, server: str) -> None:
        self.network = network
        self.client = client
        self.server = server
        self.name = f"{client}>{server}#{network.next_number(client, server)}"
        self.broken = False
        self.server_closed = False
        self.stream = SimulatedStream(self, server)
        self.up = Direction(self, f"{self.name} >", self._to_server, self._client_ended)
        self.down = Direction(self, f"{self.name} <", self.stream.arrived, self.stream.ended)
        self.peer: Peer | None = None

    def _to_server(self, data: bytes) -> None:
        if self.peer is not None and not self.server_closed:
            self.peer.receive(data)

    def _client_ended(self) -> None:
        self.drop_peer()
        self.network.forget(self)

    def drop_peer(self) -> None:
        """The server's end is gone."""
        if not self.server_closed:
            self.server_closed = True
            if self.peer is not None:
                self.peer.lost()

    # --- what a server's end calls

    def put(self, parts: list[bytes | memoryview]) -> None:
        data = b"".join(parts)
        if data and not self.server_closed:
            self.down.put(data)

    def end(self) -> None:
        self.server_closed = True
        if self.peer is not None:
            self.peer.lost()
        self.down.close()

    # --- faults

    def cut(self, why: str) -> None:
        """Both sides are told that the connection is lost."""
        if self.broken:
            return
        self.network.events.note(f"{self.name} is cut ({why})")
        self.broken = True
        self.network.disturbed.set()
        self.network.disturbed = trio.Event()
        self.drop_peer()
        self.stream.broke()
        self.network.forget(self)

    def half_open(self) -> None:
        """The server's end is gone, and the client is not told."""
        self.network.events.note(f"{self.name} is half open")
        self.up.swallows = self.down.swallows = True
        self.drop_peer()


class SimulatedStream(NetworkStream):
    """The client's end."""

    __slots__ = ("_arrived", "_buffer", "_failed", "_is_over", "_link", "closed")

    def __init__(self, link: Link, host: str) -> None:
        self.host = host
        self._link = link
        self._buffer = bytearray()
        self._arrived = trio.Event()
        self._is_over = False
        self._failed = False
        self.closed = False

    # --- what the network calls

    def arrived(self, data: bytes) -> None:
        self._buffer += data
        self._arrived.set()

    def ended(self) -> None:
        self._is_over = True
        self._arrived.set()

    def broke(self) -> None:
        self._failed = True
        self._arrived.set()
        self._link.up.room.set()

    # --- what the client calls

    def _check(self) -> None:
        if self.closed:
            raise ClosedError(f"connection to {self.host} is closed", host=self.host)
        if self._failed:
            raise ConnectionLostError(f"connection to {self.host} was lost: reset by peer", host=self.host)

    async def receive_into(self, buffer: memoryview) -> int:
        if self._buffer or self.closed or self._failed or self._is_over:
            await trio.lowlevel.checkpoint()
        while True:
            self._check()
            if self._buffer:
                size = min(len(buffer), len(self._buffer))
                buffer[:size] = self._buffer[:size]
                del self._buffer[:size]
                return size
            if self._is_over:
                return 0
            self._arrived = trio.Event()
            await self._arrived.wait()

    async def receive(self, max_bytes: int = 65536) -> bytes:
        found = bytearray(max_bytes)
        size = await self.receive_into(memoryview(found))
        return bytes(found[:size])

    @property
    def sends_at_once(self) -> bool:
        return True

    def send_nowait(self, data: bytes | memoryview) -> int:
        if self.closed or self._failed:
            return 0
        up = self._link.up
        size = max(0, min(len(data), _WINDOW - up.under_way))
        if size:
            up.put(bytes(data[:size]))
        return size

    async def send_all(self, data: bytes | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        while True:
            self._check()
            data = data[self.send_nowait(data) :]
            if not len(data):
                return
            self._link.up.room = trio.Event()
            await self._link.up.room.wait()

    def forget_unsent(self) -> None:
        self._link.up.forget_unsent()

    async def aclose(self) -> None:
        self.close_nowait()
        await trio.lowlevel.checkpoint()

    def close_nowait(self) -> None:
        if not self.closed:
            self.closed = True
            self._arrived.set()
            self._link.up.room.set()
            self._link.up.close()
            if self._link.broken or self._link.server_closed or self._link.up.swallows:
                self._link.network.forget(self._link)


class Network:
    """All hosts, and the connections between them.

    :ivar latency: least seconds from one side to the other.
    :ivar jitter: most seconds that are added to it.
    :ivar bandwidth: bytes a second.
    :ivar divided: pairs of hosts between which nothing arrives.
    :ivar down: hosts that refuse connections.
    :ivar silent: hosts that answer no attempt to connect.
    :ivar disturbed: set when a connection is cut the next time.
    """

    def __init__(self, events: Events, random: Random) -> None:
        self.events = events
        self.random = random
        self.latency, self.jitter, self.bandwidth = 0.001, 0.001, 1e8
        self.links: dict[Link, None] = {}
        self.divided: set[tuple[str, str]] = set()
        self.down: set[str] = set()
        self.silent: set[str] = set()
        self.disturbed = trio.Event()
        self._servers: dict[str, Callable[[Link], Peer]] = {}
        self._numbers: dict[tuple[str, str], int] = {}

    def delay(self) -> float:
        return self.latency + self.jitter * self.random.random()

    def next_number(self, client: str, server: str) -> int:
        found = self._numbers[client, server] = self._numbers.get((client, server), 0) + 1
        return found

    def listen(self, host: str, peer_of: Callable[[Link], Peer]) -> None:
        self._servers[host] = peer_of

    def forget(self, link: Link) -> None:
        if link.stream.closed:
            self.links.pop(link, None)

    async def dial(self, client: str, host: str, timeout: float) -> NetworkStream:
        """Connect; takes the place of ``transport.stream.connect``."""
        with trio.move_on_after(timeout):
            await trio.sleep(2 * self.delay())
            if host in self.silent or (client, host) in self.divided:
                self.events.note(f"{client} dials {host}: silence")
                await trio.sleep_forever()
            if host in self.down or host not in self._servers:
                self.events.note(f"{client} dials {host}: refused")
                raise ConnectError(f"no connection to {host}: connection refused", host=host)
            link = Link(self, client, host)
            self.events.note(f"{link.name} opened")
            self.links[link] = None
            link.peer = self._servers[host](link)
            return link.stream
        raise ConnectError(f"no connection to {host}: nothing answered within {timeout:g} s", host=host)

    # --- faults

    def divide(self, client: str, server: str) -> None:
        self.divided.add((client, server))
        for link in self.between(client, server):
            link.up.hold()
            link.down.hold()

    def join(self, client: str, server: str, late: float = 0.0) -> None:
        """Two hosts reach each other again; what was held is sent again after some seconds at most."""
        self.divided.discard((client, server))
        for link in self.between(client, server):
            # As TCP does, which waits longer after each attempt. New connections are faster, and what was
            # given to one that its sender has closed arrives nevertheless.
            seconds = late * self.random.random()
            link.up.release(seconds)
            link.down.release(seconds)

    def between(self, client: str, server: str) -> list[Link]:
        return [each for each in self.links if each.client == client and each.server == server]

    def of_server(self, server: str) -> list[Link]:
        return [each for each in self.links if each.server == server]
