"""The server's side of an HTTP/2 connection that carries unary gRPC calls, without I/O.

:class:`CallConnection` is the counterpart of :class:`pravega_wire.grpc.call.GrpcConnection`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings

from pravega_wire.errors import ProtocolError
from pravega_wire.grpc.silence import silencing_hpack
from pravega_wire.grpc.status import StatusCode

__all__ = ["Call", "CallConnection"]

_WINDOW_BYTES: Final = 4 << 20
_PREFIX_BYTES: Final = 5
_MOST_PINGS: Final = 3
_PING_SECONDS: Final = 300.0
_NOT_METADATA: Final = ("te", "content-type", "user-agent")


@dataclass(frozen=True, slots=True)
class Call:
    """A call that is complete.

    :ivar stream_id: id of its stream.
    :ivar path: path of the method.
    :ivar message: the serialized request.
    :ivar authorization: the metadata ``authorization``, or "".
    """

    stream_id: int
    path: str
    message: bytes = field(repr=False)
    authorization: str = field(repr=False)


class CallConnection:
    """State of one connection.

    :param clock: returns seconds.
    :ivar over: whether the connection is to be closed when the output was sent.
    """

    @silencing_hpack
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(
                client_side=False,
                header_encoding="utf-8",
                # That costs calls a good part of their time here, and the client checks its headers itself.
                validate_inbound_headers=False,
                normalize_inbound_headers=False,
                validate_outbound_headers=False,
            )
        )
        self._h2.local_settings = h2.settings.Settings(
            client=False, initial_values={h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: _WINDOW_BYTES}
        )
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(_WINDOW_BYTES)
        self._headers: dict[int, list[tuple[str, str]]] = {}
        self._received: dict[int, bytearray] = {}
        self._bodies: dict[int, memoryview] = {}
        self._trailers: dict[int, list[tuple[str, str]]] = {}
        self._pings: list[float] = []
        self.over = False

    @silencing_hpack
    def receive_data(self, data: bytes) -> list[Call]:
        """Process bytes from the client; return the calls that are complete.

        :raises ProtocolError: the bytes violate HTTP/2.
        """
        found = []
        try:
            events = self._h2.receive_data(data)
        except (h2.exceptions.ProtocolError, ValueError) as error:
            self.over = True
            raise ProtocolError(f"the client violated HTTP/2: {error}") from error
        for event in events:
            if isinstance(event, h2.events.RequestReceived):
                self._headers[event.stream_id] = event.headers
                self._received[event.stream_id] = bytearray()
            elif isinstance(event, h2.events.DataReceived):
                self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                if event.stream_id in self._received:
                    self._received[event.stream_id] += event.data
            elif isinstance(event, h2.events.StreamEnded) and event.stream_id in self._received:
                messages = _messages(self._received.pop(event.stream_id))
                if messages is None:
                    self._h2.reset_stream(event.stream_id, h2.errors.ErrorCodes.CANCEL)
                    self._forget(event.stream_id)
                elif len(messages) != 1:
                    wrong = "Too many requests" if messages else "Half-closed without a request"
                    self.answer(event.stream_id, b"", StatusCode.INTERNAL, wrong)
                else:
                    headers = dict(self._headers[event.stream_id])
                    authorization = headers.get("authorization", "")
                    path = headers.get(":path", "")
                    found.append(Call(event.stream_id, path, messages[0], authorization))
            elif isinstance(event, h2.events.StreamReset):
                self._forget(event.stream_id)
            elif isinstance(event, h2.events.PingReceived):
                self._count_ping()
            elif isinstance(event, h2.events.ConnectionTerminated):
                self.over = True
        self._send_what_fits()
        return found

    def _count_ping(self) -> None:
        """Close the connection after too many of them, as a controller does."""
        now = self._clock()
        self._pings = [each for each in self._pings if each > now - _PING_SECONDS] + [now]
        if len(self._pings) > _MOST_PINGS and not self.over:
            self._h2.close_connection(
                h2.errors.ErrorCodes.ENHANCE_YOUR_CALM, additional_data=b"too_many_pings"
            )
            self.over = True

    @silencing_hpack
    def answer(
        self, stream_id: int, message: bytes, code: StatusCode, text: str, *, repeat: bool = False
    ) -> None:
        """Answer a call; nothing happens if the client has given it up.

        :param stream_id: id of its stream.
        :param message: the serialized reply, if ``code`` is OK.
        :param code: status of the call.
        :param text: explanation otherwise; none if it is empty.
        :param repeat: whether to repeat the call's metadata before the status.
        """
        asked = self._headers.pop(stream_id, None)
        if asked is None or self.over:
            return
        self._pings.clear()
        headers = [(":status", "200"), ("content-type", "application/grpc")]
        trailers = [("grpc-status", str(code.value))]
        if code is not StatusCode.OK:
            if repeat:
                headers += [each for each in asked if each[0][:1] != ":" and each[0] not in _NOT_METADATA]
            if text:
                trailers.append(("grpc-message", quote(text, safe=" ")))
            self._h2.send_headers(stream_id, headers + trailers, end_stream=True)
            return
        self._h2.send_headers(stream_id, headers)
        self._bodies[stream_id] = memoryview(b"\0" + len(message).to_bytes(4, "big") + message)
        self._trailers[stream_id] = trailers
        self._send_what_fits()

    def _send_what_fits(self) -> None:
        if self.over:
            # h2 sends nothing after a GOAWAY of either side.
            return
        for stream_id, body in list(self._bodies.items()):
            while len(body):
                room = min(
                    self._h2.local_flow_control_window(stream_id), self._h2.max_outbound_frame_size, len(body)
                )
                if room <= 0:
                    break
                self._h2.send_data(stream_id, bytes(body[:room]))
                self._bodies[stream_id] = body = body[room:]
            if not len(body):
                self._h2.send_headers(stream_id, self._trailers[stream_id], end_stream=True)
                self._forget(stream_id)

    def _forget(self, stream_id: int) -> None:
        for each in (self._headers, self._received, self._bodies, self._trailers):
            each.pop(stream_id, None)

    @silencing_hpack
    def data_to_send(self) -> bytes:
        """Return the bytes to send to the client."""
        data: bytes = self._h2.data_to_send()
        return data


def _messages(body: bytearray) -> list[bytes] | None:
    """Return the messages of a request's body; None if the last one is cut off, or one is compressed."""
    found = []
    at = 0
    while at < len(body):
        end = at + _PREFIX_BYTES + int.from_bytes(body[at + 1 : at + _PREFIX_BYTES], "big")
        if body[at] or len(body) < max(end, at + _PREFIX_BYTES):
            return None
        found.append(bytes(body[at + _PREFIX_BYTES : end]))
        at = end
    return found
