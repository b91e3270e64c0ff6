"""A TCP proxy between a client and a real server that breaks connections on purpose.

It parses the frames of the segment store's protocol just enough to find where a reply begins. So it can cut a
connection after the server has done something and before the client learns of it: the point at which an
incorrect client writes twice or loses data.
"""

from __future__ import annotations

import logging
import math
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Final, Self, TypeVar

import trio

from pravega_wire.errors import ArgumentTypeError, ClosedError, InvalidArgumentError
from pravega_wire.protocol.commands import Command
from pravega_wire.support.checks import check_count, check_seconds, check_text
from pravega_wire.threads.portal import Portal
from pravega_wire.values.types import Endpoint

__all__ = ["FaultProxy"]

log = logging.getLogger(__name__)

R = TypeVar("R")

_CHUNK: Final = 64 * 1024
_HEADER: Final = struct.Struct(">ii")
_RESET: Final = struct.pack("ii", 1, 0)


@dataclass(slots=True, eq=False)
class _Rule:
    """Cut a connection at every ``after + 1``-th reply of a kind, ``times`` times in total."""

    code: int
    times: int
    after: int
    seen: int = 0


class _Cut(Exception):
    """Raised to cut a connection, as a rule demands."""


@dataclass(slots=True, eq=False)
class _Link:
    """One proxied connection."""

    client: trio.SocketStream
    server: trio.SocketStream
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)


class _FrameScanner:
    """Finds the beginnings of frames in a stream of bytes."""

    def __init__(self) -> None:
        self._head = b""
        self._skip = 0

    def starts(self, data: bytes) -> list[tuple[int, int]]:
        """Return ``(offset, command code)`` of each frame whose header ends in ``data``.

        The offset is the start of the frame; it is negative if the frame began in earlier data.
        """
        found = []
        position = 0
        while position < len(data):
            if self._skip:
                step = min(self._skip, len(data) - position)
                self._skip -= step
                position += step
                continue
            missing = _HEADER.size - len(self._head)
            piece = data[position : position + missing]
            self._head += piece
            position += len(piece)
            if len(self._head) == _HEADER.size:
                code, length = _HEADER.unpack(self._head)
                self._head = b""
                self._skip = max(0, length)
                found.append((position - _HEADER.size, code))
        return found


class FaultProxy:
    """A proxy between a client and the segment stores that it connects to.

    It runs in its own thread. Its methods may be called from any thread, including trio tasks. Pass
    :meth:`address_map` to ``open_client``; for a controller, use :meth:`endpoint`. It is a context manager;
    afterwards its methods raise :class:`~pravega_wire.errors.ClosedError`.

    Example::

        from pravega_wire.protocol.commands import DataAppended

        with (
            FaultProxy() as proxy,
            sync.open_client(config, address_map=proxy.address_map) as client,
        ):
            proxy.cut_before_reply(DataAppended, times=3)
            with client.event_writer("readings") as writer:
                writer.write_event(b"21.5").wait()

    :ivar cuts: number of connections cut so far, for any reason.
    :ivar links_opened: number of connections made through the proxy so far.
    """

    def __init__(self) -> None:
        self.cuts = 0
        self.links_opened = 0
        self._portal = Portal("fault proxy")
        self._ports: dict[Endpoint, int] = {}
        self._links: set[_Link] = set()
        self._rules: list[_Rule] = []
        self._refusing = False
        self._garbage: bytes | None = None
        self._bytes_per_second: float | None = None
        self._delay = 0.0
        self._up = trio.Event()
        self._up.set()
        self._down = trio.Event()
        self._down.set()
        self._changed = trio.Event()

    # --- addresses ------------------------------------------------------------------------------

    def address_map(self, host: str, port: int) -> Endpoint:
        """Return the local address that leads to ``host:port``; each address gets its own listener.

        :param host: host of the server.
        :param port: port of the server.
        """
        return ("127.0.0.1", self.endpoint(host, port))

    def endpoint(self, host: str, port: int) -> int:
        """Return the local port that leads to ``host:port``.

        :param host: host of the server.
        :param port: port of the server.
        :raises InvalidArgumentError: ``host`` is not a name, or ``port`` is not a port.
        """
        check_text("host", host)
        check_count("port", port, highest=65535)
        known = self._ports.get((host, port)) if self._portal.open else None
        if known is None:
            known = self._call(partial(self._listen, (host, port)))
        return known

    async def _listen(self, target: Endpoint) -> int:
        known = self._ports.get(target)
        if known is not None:
            return known
        listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
        port: int = listener.socket.getsockname()[1]
        self._ports[target] = port

        async def serve(client: trio.SocketStream) -> None:
            await self._serve(client, target)

        async def listen() -> None:
            await trio.serve_listeners(serve, [listener])

        self._portal.start_soon(listen)
        return port

    # --- faults ---------------------------------------------------------------------------------

    def cut_before_reply(self, reply: type[Command], *, times: int = 1, after: int = 0) -> None:
        """Cut a connection instead of forwarding a reply of this kind.

        The proxy cannot look into TLS: on such a connection it finds no replies, and cuts nothing.

        :param reply: class of the reply, from :mod:`pravega_wire.protocol.commands`.
        :param times: number of cuts; each ends one connection.
        :param after: number of replies of this kind, on any connection, to forward before each cut.
        :raises InvalidArgumentError: ``reply`` is not a class of replies, or a number is not valid.
        """
        # Only concrete commands have a code, and one that only clients send would never be seen.
        if not (isinstance(reply, type) and issubclass(reply, Command) and hasattr(reply, "CODE")):
            raise ArgumentTypeError(
                f"reply must be a class from pravega_wire.protocol.commands, not {reply!r}"
            )
        if "S" not in reply.DIRECTION:
            raise InvalidArgumentError(
                f"reply must be what a server sends, not {reply.__name__}, which only clients send"
            )
        check_count("times", times)
        check_count("after", after, 0)
        self._do(lambda: self._rules.append(_Rule(reply.CODE, times, after)))

    @property
    def cuts_due(self) -> int:
        """The number of cuts requested with :meth:`cut_before_reply` that have not happened yet."""
        return sum(rule.times for rule in self._rules)

    def clear(self) -> None:
        """Remove all faults: forward everything again."""

        def do() -> None:
            self._rules.clear()
            self._refusing = False
            self._garbage = None
            self._bytes_per_second = None
            self._delay = 0.0
            self._tell()
            self._up.set()
            self._down.set()

        self._do(do)

    def cut_all(self) -> int:
        """Reset every open connection, and return how many there were."""
        count = 0

        def do() -> None:
            nonlocal count
            for link in self._links:
                count += 1
                link.scope.cancel()

        self._do(do)
        return count

    def refuse(self, refusing: bool = True) -> None:
        """Start or stop resetting new connections as soon as they are made.

        :param refusing: whether to reset them.
        """

        def do() -> None:
            self._refusing = refusing

        self._do(do)

    def pause(self, *, up: bool = True, down: bool = True) -> None:
        """Forward nothing until :meth:`resume`; connections stay open, and new ones can be made.

        Data sent in the meantime arrives afterwards, as in a network that drops all packets for a while. That
        includes data that a client sent on a connection that it has since abandoned.

        :param up: whether to hold the data that clients send.
        :param down: whether to hold the data that servers send.
        """

        def do() -> None:
            # A second pause must not replace the event that tasks already wait for.
            if up and self._up.is_set():
                self._up = trio.Event()
            if down and self._down.is_set():
                self._down = trio.Event()

        self._do(do)

    def resume(self) -> None:
        """End a :meth:`pause`."""

        def do() -> None:
            self._up.set()
            self._down.set()

        self._do(do)

    def slow(self, bytes_per_second: float | None) -> None:
        """Limit the rate from client to server on each connection.

        :param bytes_per_second: the limit; None removes it.
        :raises InvalidArgumentError: the limit is not a positive, finite number.
        """
        if bytes_per_second is not None and (
            isinstance(bytes_per_second, bool)
            or not isinstance(bytes_per_second, int | float)
            or not 0 < bytes_per_second < math.inf
        ):
            raise InvalidArgumentError(
                f"bytes_per_second must be a positive, finite number, not {bytes_per_second!r}"
            )

        def do() -> None:
            self._bytes_per_second = bytes_per_second
            self._tell()

        self._do(do)

    def delay(self, seconds: float) -> None:
        """Delay all data from the server.

        :param seconds: the delay; 0 removes it.
        :raises InvalidArgumentError: the delay is negative, or not a finite number.
        """
        check_seconds("seconds", seconds, zero=True)

        def do() -> None:
            self._delay = seconds
            self._tell()

        self._do(do)

    def answer_garbage(self, garbage: bytes) -> None:
        """Replace the next data from the server with other bytes, once.

        :param garbage: the bytes to send instead.
        :raises InvalidArgumentError: ``garbage`` is not bytes.
        """
        if not isinstance(garbage, bytes):
            raise ArgumentTypeError(f"garbage must be bytes, not {type(garbage).__name__}")

        def do() -> None:
            self._garbage = garbage

        self._do(do)

    def _do(self, change: Callable[[], object]) -> None:
        async def run() -> None:
            change()
            await trio.lowlevel.checkpoint()

        self._call(run)

    def _call(self, function: Callable[[], Awaitable[R]]) -> R:
        try:
            return self._portal.call(function)
        except ClosedError as error:
            # The thread speaks of a client, which is what it usually runs.
            why = "belongs to another process" if self._portal.gone else "is closed"
            raise ClosedError(f"the fault proxy {why}: make another one") from error

    def _tell(self) -> None:
        """Let what is held look again how long it has to be."""
        self._changed.set()
        self._changed = trio.Event()

    # --- forwarding -----------------------------------------------------------------------------

    async def _serve(self, client: trio.SocketStream, target: Endpoint) -> None:
        if self._refusing:
            self.cuts += 1
            _reset(client)
            return
        try:
            server = await trio.open_tcp_stream(*target)
        except (OSError, ValueError):
            # A name that cannot be written as one of the DNS is a ValueError.
            _reset(client)
            return
        link = _Link(client, server)
        self._links.add(link)
        self.links_opened += 1
        cut = False
        try:
            with link.scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._upward, link)
                    await self._downward(link)
                    nursery.cancel_scope.cancel()
            cut = link.scope.cancelled_caught
        except* _Cut:
            cut = True
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        except* Exception:
            # It ends this connection only: other tests may use the proxy.
            log.exception("a connection to %s:%d through the fault proxy has failed", *target)
            cut = True
        finally:
            self._links.discard(link)
            if cut:
                self.cuts += 1
                _reset(client)
                _reset(server)
            else:
                with trio.CancelScope(shield=True):
                    await trio.aclose_forcefully(client)
                    await trio.aclose_forcefully(server)

    async def _upward(self, link: _Link) -> None:
        while data := bytes(await link.client.receive_some(_CHUNK)):
            await self._up.wait()
            await self._hold(partial(self._slowed, len(data)))
            await link.server.send_all(data)
        await link.server.send_eof()

    def _slowed(self, size: int) -> float:
        return 0.0 if self._bytes_per_second is None else size / self._bytes_per_second

    async def _hold(self, seconds: Callable[[], float]) -> None:
        """Wait for some seconds from now on, which may become more or fewer meanwhile."""
        began = trio.current_time()
        while (left := began + seconds() - trio.current_time()) > 0:
            with trio.move_on_after(left):
                await self._changed.wait()

    async def _downward(self, link: _Link) -> None:
        scanner = _FrameScanner()
        while data := bytes(await link.server.receive_some(_CHUNK)):
            await self._down.wait()
            await self._hold(lambda: self._delay)
            if self._garbage is not None:
                data, self._garbage = self._garbage, None
                await link.client.send_all(data)
                continue
            for offset, code in scanner.starts(data):
                if self._due(code):
                    # The data before this reply would have arrived in any case.
                    if offset > 0:
                        await link.client.send_all(data[:offset])
                    raise _Cut
            await link.client.send_all(data)

    def _due(self, code: int) -> bool:
        due = False
        for rule in self._rules:
            if rule.code == code and rule.times and not due:
                rule.seen += 1
                if rule.seen > rule.after:
                    rule.seen = 0
                    rule.times -= 1
                    due = True
        return due

    # --- life -----------------------------------------------------------------------------------

    def close(self) -> None:
        """Close every connection and stop listening."""
        self._portal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _reset(stream: trio.SocketStream) -> None:
    """Close a connection with RST, as a crash or a firewall does."""
    try:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    except (OSError, trio.ClosedResourceError):
        return
    stream.socket.close()
