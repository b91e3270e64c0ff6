"""The servers' ends of connections, without I/O: bytes in, bytes out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from pravega_wire.errors import DecodeError, EncodeError, ProtocolError
from pravega_wire.protocol import codec
from pravega_wire.protocol.commands import Command
from pravega_wire.protocol.frames import FrameDecoder
from pravega_wire.testing.memory.calls import CallConnection
from pravega_wire.testing.memory.controller import Answer, Controller
from pravega_wire.testing.memory.store import SegmentStore

__all__ = ["CallPeer", "Carrier", "StorePeer"]


class Carrier(Protocol):
    """Carries the bytes of one connection to the client."""

    def put(self, parts: list[bytes | memoryview]) -> None:
        """Send bytes."""

    def end(self) -> None:
        """Close the connection when everything was sent."""


class StorePeer:
    """A store's end of a connection.

    :param serves: whether the containers of this host have a segment of this name.
    :param called: called after commands were carried out.
    """

    def __init__(
        self,
        store: SegmentStore,
        carrier: Carrier,
        serves: Callable[[str], bool] = lambda name: True,
        called: Callable[[], None] = lambda: None,
    ) -> None:
        self._carrier = carrier
        self._called = called
        self._decoder = FrameDecoder()
        self._connection = store.connect(self._send, carrier.end, serves)

    def _send(self, reply: Command) -> None:
        try:
            self._carrier.put(codec.encode_parts(reply))
        except EncodeError:
            # A reply that is larger than a frame: the real one closes the connection too.
            self._carrier.end()

    def receive(self, data: bytes) -> None:
        """Carry out what the client has sent."""
        commands: list[Command] = []
        malformed = False
        try:
            self._decoder.feed(data, commands)
        except DecodeError:
            malformed = True
        # Those before a malformed one count, as in a real store, which takes one after the other.
        for command in commands:
            self._connection.receive(command)
        if malformed:
            self.lost()
            self._carrier.end()
        self._called()

    def lost(self) -> None:
        """The connection has ended."""
        self._connection.lost()


class CallPeer:
    """A controller's end of a connection.

    :param clock: returns seconds.
    :param called: called after calls were carried out.
    """

    def __init__(
        self,
        controller: Controller,
        carrier: Carrier,
        clock: Callable[[], float],
        called: Callable[[], None],
    ) -> None:
        self._controller = controller
        self._carrier = carrier
        self._called = called
        self._calls = CallConnection(clock)
        self._flush()

    def _flush(self) -> None:
        self._carrier.put([self._calls.data_to_send()])
        if self._calls.over:
            self._carrier.end()

    def _answer(self, stream_id: int, found: Answer) -> None:
        self._calls.answer(stream_id, found.message, found.code, found.text, repeat=found.repeats)
        self._flush()

    def receive(self, data: bytes) -> None:
        """Carry out what the client has sent."""
        try:
            found = self._calls.receive_data(data)
        except ProtocolError:
            # A GOAWAY says why.
            self._flush()
            return
        self._flush()
        for each in found:
            answer = partial(self._answer, each.stream_id)
            self._controller.call(each.path, each.message, answer, each.authorization)
        self._called()

    def lost(self) -> None:
        """The connection has ended; what was called is carried out nevertheless."""
