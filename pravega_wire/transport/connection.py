"""One connection to a segment store, shared by many flows.

:class:`pravega_wire.protocol.session.Session` interprets the bytes; here are the tasks and the socket. One
task reads, and another task writes what could not be sent at once. Both belong to the nursery that the
connection was started in.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import trio

from pravega_wire.errors import ClosedError, PravegaError, ProtocolError
from pravega_wire.protocol import codec
from pravega_wire.protocol.commands import Command
from pravega_wire.protocol.session import GREETING, Features, RequestIds, Session, senseless
from pravega_wire.support.nurseries import first_of
from pravega_wire.transport.limits import DEFAULT_LIMITS
from pravega_wire.transport.stream import NetworkStream

__all__ = ["Connection", "Flow", "FlowHandler"]

_NOTED_BYTES = 256 * 1024
_SEND_HIGH_WATER = 4 * 1024 * 1024

Part = bytes | memoryview


class FlowHandler(Protocol):
    """What the owner of a flow implements. Both methods are synchronous and must not block."""

    def on_reply(self, reply: Command) -> bool:
        """Process a reply of this flow; return False if no request of the flow matches it."""

    def on_lost(self, error: PravegaError) -> None:
        """Handle the end of the connection: no more replies will arrive."""


class Flow(RequestIds):
    """One user's share of a connection. Close it when it is no longer needed."""

    __slots__ = ("connection", "handler")

    def __init__(self, connection: Connection, flow_id: int, handler: FlowHandler) -> None:
        super().__init__(flow_id)
        self.connection = connection
        self.handler = handler

    def send(self, command: Command) -> None:
        """Queue a command; see :meth:`Connection.send_parts`."""
        self.connection.send_parts(codec.encode_parts(command))

    def close(self) -> None:
        """Close the flow: later replies to it are dropped. Closing it twice is harmless."""
        self.connection.drop_flow(self)


class Connection:
    """A started connection; made by the pool.

    :param stream: the network stream.
    :param on_closed: called once, when the connection takes no new flows.
    :param silence: seconds without any byte in either direction after which the connection is lost.
    :ivar greeting: seconds from the greeting to the store's; infinity until then.
    :ivar received_bytes: number of bytes received.
    :ivar failure: what ended the connection, None while it is open.
    """

    def __init__(
        self,
        stream: NetworkStream,
        on_closed: Callable[[Connection], None],
        *,
        silence: float = DEFAULT_LIMITS.silence,
    ) -> None:
        self._stream = stream
        self._on_closed = on_closed
        self._silence = silence
        self._retired = False
        self._session: Session[Flow] = Session(stream.host, silence)
        self._flows = self._session.flows
        self._out: list[Part] = [GREETING]
        self._out_bytes = len(GREETING)
        self._sending_bytes = 0
        self._out_ready = trio.Event()
        self._out_ready.set()
        self._writable = trio.Event()
        self._writable.set()
        self._greeted = trio.Event()
        self.received_bytes = 0
        self._heard = self._began = trio.current_time()
        self.greeting = math.inf
        self.failure: PravegaError | None = None

    async def features(self) -> Features:
        """Return what the store can do; waits for its greeting.

        :raises ConnectionLostError: the connection has ended before that.
        """
        await self._greeted.wait()
        if self._session.features is None:
            assert self.failure is not None
            raise self.failure
        return self._session.features

    @property
    def host(self) -> str:
        """``host:port`` of the store."""
        return self._stream.host

    @property
    def closed(self) -> bool:
        """Whether the connection has ended."""
        return self.failure is not None

    @property
    def retired(self) -> bool:
        """Whether the connection takes no new flows, or is closed."""
        return self._retired or self.failure is not None

    @property
    def silent_for(self) -> float:
        """Seconds for which nothing was received or sent, accurate to a third of the longest silence allowed.

        It is never more than that limit: a process that was suspended for an hour did not listen for an hour.
        """
        return min(trio.current_time() - self._heard, self._silence)

    @property
    def flow_count(self) -> int:
        """Number of open flows."""
        return len(self._flows)

    @property
    def unsent_bytes(self) -> int:
        """Number of bytes that are queued or being sent."""
        return self._out_bytes + self._sending_bytes

    # --- flows ----------------------------------------------------------------------------------

    def open_flow(self, handler: FlowHandler) -> Flow:
        """Open a new flow.

        :param handler: receives the flow's replies.
        :raises ConnectionLostError: the connection has ended.
        """
        self._check()
        flow_id = self._session.new_flow_id()
        flow = Flow(self, flow_id, handler)
        self._flows[flow_id] = flow
        return flow

    def drop_flow(self, flow: Flow) -> None:
        """Close a flow."""
        if self._flows.get(flow.flow_id) is flow:
            del self._flows[flow.flow_id]
        if self._retired and not self._flows:
            self.close()

    def retire(self) -> None:
        """Take no new flows, and close with the last flow, because a request was not answered in time.

        Other flows may still be served. If the peer is gone, unanswered keep-alives end them.
        """
        if self.failure is None and not self._retired:
            self._retired = True
            self._on_closed(self)
            if not self._flows:
                self.close()

    # --- sending --------------------------------------------------------------------------------

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def send_parts(self, parts: list[Part]) -> None:
        """Queue the pieces of whole frames, without waiting; they are sent in order.

        A caller that sends a lot awaits :meth:`wait_writable` in between.

        :raises ConnectionLostError: the connection has ended.
        """
        self._check()
        if self._stream.sends_at_once and not self._out_bytes and not self._sending_bytes:
            # Nothing is queued, so send at once instead of waiting for the sending task's turn.
            parts = self._send_now(parts)
            if not parts:
                return
        self._out.extend(parts)
        self._out_bytes += sum(map(len, parts))
        self._out_ready.set()
        if self._out_bytes > _SEND_HIGH_WATER and self._writable.is_set():
            self._writable = trio.Event()

    def _send_now(self, parts: list[Part]) -> list[Part]:
        """Send what the socket takes without waiting; return the rest."""
        pieces = _coalesce(parts)
        for index, piece in enumerate(pieces):
            sent = self._stream.send_nowait(piece)
            if sent < len(piece):
                return [memoryview(piece)[sent:], *pieces[index + 1 :]]
        return []

    @property
    def writable(self) -> bool:
        """Whether a sender may go on; False while more than 4 MiB are queued."""
        return self._out_bytes <= _SEND_HIGH_WATER

    async def wait_writable(self) -> None:
        """Wait until the queue is short enough again or the connection has ended."""
        await self._writable.wait()

    @trio.lowlevel.enable_ki_protection
    async def _write_loop(self) -> None:
        while True:
            await self._out_ready.wait()
            parts, self._out = self._out, []
            self._sending_bytes, self._out_bytes = self._out_bytes, 0
            self._out_ready = trio.Event()
            self._writable.set()
            # Large pieces, such as append blocks, are sent without another copy.
            for piece in _coalesce(parts):
                for start in range(0, len(piece), _NOTED_BYTES):
                    await self._stream.send_all(memoryview(piece)[start : start + _NOTED_BYTES])
                    # A peer that keeps taking bytes is alive, even if it can answer only when it has all of
                    # them. (The first piece does not count: the socket's buffer takes it without a peer.)
                    self._session.moved = self._session.moved or start > 0
            self._sending_bytes = 0

    # --- receiving ------------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    async def _read_loop(self) -> None:
        session = self._session
        receive_into = self._stream.receive_into
        while True:
            count = await receive_into(session.get_buffer())
            if count == 0:
                session.ended()
            self.received_bytes += count
            for reply in session.received(count):
                flow = session.flow_of(reply)
                if flow is None or not flow.handler.on_reply(reply):
                    session.check_unclaimed(reply)
            if session.features is not None and not self._greeted.is_set():
                self.greeting = trio.current_time() - self._began
                self._greeted.set()

    @trio.lowlevel.enable_ki_protection
    async def _keepalive_loop(self) -> None:
        session = self._session
        while True:
            session.begin_tick()
            await trio.sleep(session.tick)
            keepalive = session.end_tick(queued=self.unsent_bytes > 0)
            if session.moved:
                self._heard = trio.current_time()
            elif keepalive:
                self.send_parts([keepalive])

    # --- life -----------------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Serve the connection until it ends; return after every flow was notified.

        Cancelling this closes the connection.
        """
        error: PravegaError = ClosedError(f"connection to {self.host} was closed", host=self.host)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write_loop)
                nursery.start_soon(self._keepalive_loop)
                await self._read_loop()
        except* ClosedError:
            pass
        except* ProtocolError as group:
            # Malformed bytes end the connection; every flow gets the reason.
            error = senseless(first_of(group), self.host)
        except* PravegaError as group:
            error = first_of(group)
        finally:
            if not isinstance(error, ClosedError):
                # Before anybody is told, and may send again what was lost.
                self._stream.forget_unsent()
            self._fail(error)
            with trio.CancelScope(shield=True):
                await self._stream.aclose()

    def close(self) -> None:
        """Close the connection; :meth:`run` returns soon afterwards."""
        if self.failure is None:
            self._fail(ClosedError(f"connection to {self.host} was closed", host=self.host))
            self._stream.close_nowait()

    def _fail(self, error: PravegaError) -> None:
        if self.failure is not None:
            return
        self.failure = error
        self._on_closed(self)
        self._out.clear()
        self._out_bytes = 0
        self._writable.set()
        self._greeted.set()
        flows = list(self._flows.values())
        self._flows.clear()
        for flow in flows:
            flow.handler.on_lost(error)


_JOIN_BELOW = 128 * 1024


def _coalesce(parts: list[Part]) -> list[Part]:
    """Join neighbouring small pieces so that one system call sends them."""
    result: list[Part] = []
    small: list[Part] = []
    size = 0
    for part in parts:
        length = len(part)
        if length >= _JOIN_BELOW:
            if small:
                result.append(b"".join(small))
                small = []
                size = 0
            result.append(part)
            continue
        small.append(part)
        size += length
        if size >= _JOIN_BELOW * 8:
            result.append(b"".join(small))
            small = []
            size = 0
    if small:
        result.append(small[0] if len(small) == 1 else b"".join(small))
    return result
