"""The client's side of one HTTP/2 connection that carries unary gRPC calls.

:class:`GrpcConnection` owns the ``h2`` state. Pass it the bytes that arrive, send the bytes that
:meth:`~GrpcConnection.data_to_send` returns, and take finished calls from
:meth:`~GrpcConnection.receive_data`. It handles flow control in both directions, the peer's limit on
concurrent streams, GOAWAY and resets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote_to_bytes

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings

from pravega_wire.errors import ConnectionLostError, ProtocolError, WrongProtocolError
from pravega_wire.grpc.diagnosis import ENOUGH_BYTES, diagnose_first_bytes
from pravega_wire.grpc.silence import silencing_hpack
from pravega_wire.grpc.status import StatusCode, status_from_http, status_from_reset

__all__ = ["CallResult", "GrpcConnection"]

Header = tuple[str, str]

MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
_WINDOW_BYTES: Final = 4 * 1024 * 1024
_LAST_STREAM_ID: Final = 2**31 - 1
_FRAME_HEADER_BYTES: Final = 9
_GOAWAY: Final = 7
_PREFIX_BYTES: Final = 5
# For each new stream h2 looks at all open ones: thousands at once would take time in the square of that.
_MOST_STREAMS: Final = 128
# Acknowledgements and the like, which a peer could cause faster than it takes them. A reply of 64 MiB needs
# about 100 KiB of them.
_MOST_ANSWERS: Final = 1024 * 1024


@dataclass(slots=True)
class CallResult:
    """How a call ended.

    :ivar call_id: id that :meth:`GrpcConnection.start_call` returned.
    :ivar code: gRPC status of the call.
    :ivar message: the serialized reply, if ``code`` is OK.
    :ivar text: the peer's explanation otherwise.
    :ivar unprocessed: whether the peer has declared that it did not process the call, so it may be sent
        again.
    """

    call_id: int
    code: StatusCode
    message: bytes = b""
    text: str = ""
    unprocessed: bool = False


@dataclass(slots=True)
class _Call:
    call_id: int
    headers: list[Header]
    body: memoryview
    stream_id: int = 0
    http_status: int = 0
    received: bytearray = field(default_factory=bytearray)
    code: StatusCode | None = None
    text: str = ""


class GrpcConnection:
    """State of one connection. All methods are synchronous and do no I/O.

    :param authority: ``host:port`` of the server.
    :param secure: whether the connection uses TLS.
    :ivar pings_answered: number of PINGs that the peer has answered.
    :ivar greeted: whether the peer has sent its settings.
    """

    @silencing_hpack
    def __init__(self, authority: str, *, secure: bool) -> None:
        self._authority = authority
        self._scheme = "https" if secure else "http"
        self._beginning = b""
        self._held = bytearray()
        self._frame_left = 0
        self._h2 = h2.connection.H2Connection(
            # h2 would end the connection, and every call on it, for one value that ends in a space, as an
            # error's message may. What matters of the headers is checked where it is taken.
            h2.config.H2Configuration(client_side=True, header_encoding=None, validate_inbound_headers=False)
        )
        self._h2.local_settings = h2.settings.Settings(
            client=True,
            initial_values={
                h2.settings.SettingCodes.ENABLE_PUSH: 0,
                h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: _WINDOW_BYTES,
                # What h2 itself enforces, whatever is declared here.
                h2.settings.SettingCodes.MAX_HEADER_LIST_SIZE: self._h2.DEFAULT_MAX_HEADER_LIST_SIZE,
            },
        )
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(_WINDOW_BYTES)
        self._calls: dict[int, _Call] = {}
        self._streams: dict[int, _Call] = {}
        self._queue: deque[_Call] = deque()
        self._next_call = 1
        self._finished: list[CallResult] = []
        self._ending: str | None = None
        self._broken = False
        self._answers = 0
        self._out: list[bytes] = []
        self.pings_answered = 0
        self.greeted = False

    # --- calls ----------------------------------------------------------------------------------

    @property
    def accepting(self) -> bool:
        """Whether new calls can be started.

        False after GOAWAY, after a violation of HTTP/2, or when stream ids are used up.
        """
        return self._ending is None and self._h2.highest_outbound_stream_id < _LAST_STREAM_ID - 2

    @property
    def heard(self) -> bool:
        """Whether the peer has sent anything."""
        return bool(self._beginning)

    @silencing_hpack
    def start_call(
        self,
        path: str,
        message: bytes,
        *,
        timeout: float | None = None,
        metadata: Sequence[Header] = (),
    ) -> int:
        """Start a call; return its id.

        :param path: ``/package.Service/method``.
        :param message: the serialized request.
        :param timeout: seconds, sent to the server as the call's deadline; None for no deadline.
        :param metadata: further headers, with lower-case names.
        :raises ConnectionLostError: the connection takes no more calls.
        :raises ProtocolError: the headers are refused by HTTP/2.
        """
        if not self.accepting:
            reason = self._ending or "its stream ids are used up"
            raise ConnectionLostError(
                f"the connection to {self._authority} takes no more calls: {reason}", host=self._authority
            )
        headers: list[Header] = [
            (":method", "POST"),
            (":scheme", self._scheme),
            (":path", path),
            (":authority", self._authority),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("user-agent", "pravega-wire"),
        ]
        if timeout is not None:
            headers.append(("grpc-timeout", _timeout_header(timeout)))
        headers.extend(metadata)
        framed = b"\0" + len(message).to_bytes(4, "big") + message
        call = _Call(self._next_call, headers, memoryview(framed))
        self._next_call += 1
        self._calls[call.call_id] = call
        self._queue.append(call)
        try:
            self._send_what_fits()
        except ProtocolError:
            self._calls.pop(call.call_id)
            raise
        return call.call_id

    @silencing_hpack
    def cancel_call(self, call_id: int) -> None:
        """Cancel a call; there will be no result for it."""
        call = self._calls.pop(call_id, None)
        if call is None:
            return
        if call.stream_id == 0:
            self._queue.remove(call)
            return
        self._streams.pop(call.stream_id, None)
        self._reset(call.stream_id, h2.errors.ErrorCodes.CANCEL)
        try:
            self._send_what_fits()
        except ProtocolError:
            return  # it must not replace what has ended this call; what arrives next raises it

    def ping(self) -> None:
        """Send a PING; the answer is counted in ``pings_answered``."""
        if not self._broken:
            self._h2.ping(b"pravega\0")

    def _break(self, reason: str) -> None:
        """Start and send nothing more: h2 refuses everything after a violation."""
        self._broken = True
        self._ending = reason

    def _reset(self, stream_id: int, code: h2.errors.ErrorCodes) -> None:
        try:
            self._h2.reset_stream(stream_id, code)
        except h2.exceptions.ProtocolError:
            return  # the stream is closed already

    def _send_what_fits(self) -> None:
        """Open queued streams and send bodies, as far as the peer's limits allow."""
        if self._broken:
            return
        try:
            while self._queue and self._ending is None:
                # The limit may be 0 for a while.
                allowed = self._h2.remote_settings.max_concurrent_streams
                if len(self._streams) >= _MOST_STREAMS or self._h2.open_outbound_streams >= allowed:
                    break
                call = self._queue[0]
                stream_id = self._h2.get_next_available_stream_id()
                self._h2.send_headers(stream_id, call.headers)
                self._queue.popleft()
                call.stream_id = stream_id
                self._streams[stream_id] = call
            for call in self._streams.values():
                while len(call.body):
                    room = min(
                        self._h2.local_flow_control_window(call.stream_id),
                        self._h2.max_outbound_frame_size,
                        len(call.body),
                    )
                    if room <= 0:
                        break
                    piece, call.body = call.body[:room], call.body[room:]
                    self._h2.send_data(call.stream_id, bytes(piece), end_stream=len(call.body) == 0)
        except h2.exceptions.ProtocolError as error:
            self._break(f"HTTP/2: {error}")
            raise ProtocolError(f"HTTP/2: {error}") from error

    @silencing_hpack
    def data_to_send(self) -> bytes:
        """Return the bytes to send to the peer; empty if there are none.

        Call it when the bytes that it returned before have been sent.
        """
        self._keep_output()
        data = b"".join(self._out)
        self._out.clear()
        self._answers = 0
        return data

    def _keep_output(self) -> int:
        """Take over what h2 has queued; return the number of bytes."""
        queued: bytes = self._h2.data_to_send()
        if queued:
            self._out.append(queued)
        return len(queued)

    # --- what arrives ---------------------------------------------------------------------------

    @silencing_hpack
    def receive_data(self, data: bytes) -> list[CallResult]:
        """Process bytes from the peer; return the calls that ended with them.

        :param data: the received bytes.
        :raises WrongProtocolError: the first bytes show that the peer speaks another protocol.
        :raises ProtocolError: the bytes are not HTTP/2, or violate it; or the peer takes none of the answers
            to what it sends.
        """
        if self._broken:
            raise ProtocolError(f"{self._ending}")
        # What the calls have queued does not count as answers.
        self._keep_output()
        try:
            self._receive(data)
        except ProtocolError as error:
            self._break(error.message)
            raise
        self._answers += self._keep_output()
        if self._answers > _MOST_ANSWERS:
            self._break(f"the peer takes none of the {self._answers} bytes of answers to what it has sent")
            raise ProtocolError(f"{self._ending}")
        self._send_what_fits()
        finished, self._finished = self._finished, []
        return finished

    def _receive(self, data: bytes) -> None:
        if len(self._beginning) < ENOUGH_BYTES:
            self._beginning += data[:ENOUGH_BYTES]
            found = diagnose_first_bytes(self._beginning)
            if found is not None:
                raise WrongProtocolError(found)
        try:
            passed = self._without_goaways(data)
            for event in self._h2.receive_data(passed) if passed else ():
                self._take(event)
        except h2.exceptions.ProtocolError as error:
            raise ProtocolError(f"the peer violated HTTP/2: {error}") from error
        except (UnicodeDecodeError, ValueError, IndexError, KeyError) as error:
            # h2 and hpack raise a few of these for malformed input.
            raise ProtocolError(f"the peer sent malformed HTTP/2: {error}") from error

    def _without_goaways(self, data: bytes) -> bytes:
        """Handle GOAWAY frames and return the other bytes for h2.

        h2 refuses every frame after a GOAWAY, but a server that stops gracefully sends a GOAWAY first and
        answers the calls in flight afterwards (RFC 9113, "GOAWAY"; ``docs/protocol/unforgiving.md``, "Frames
        after GOAWAY").
        """
        held = self._held
        held += data
        passed = bytearray()
        position = 0
        while position < len(held):
            if self._frame_left:
                step = min(self._frame_left, len(held) - position)
                passed += held[position : position + step]
                self._frame_left -= step
                position += step
                continue
            if len(held) - position < _FRAME_HEADER_BYTES:
                break
            length = int.from_bytes(held[position : position + 3], "big")
            if length > self._h2.max_inbound_frame_size:
                # Other protocols usually look like this: fail before all of the frame has arrived.
                raise ProtocolError(f"the peer does not speak HTTP/2: a frame claims {length} bytes")
            if held[position + 3] != _GOAWAY:
                self._frame_left = _FRAME_HEADER_BYTES + length
                continue
            if length < 8:
                raise ProtocolError(f"the peer sent a GOAWAY frame of {length} bytes")
            body_start = position + _FRAME_HEADER_BYTES
            if len(held) < body_start + length:
                break
            body = bytes(held[body_start : body_start + length])
            position = body_start + length
            self._take_goaway(
                int.from_bytes(body[:4], "big") & 0x7FFFFFFF, int.from_bytes(body[4:8], "big"), body[8:]
            )
        del held[:position]
        return bytes(passed)

    def _take(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.DataReceived):
            self._take_data(event)
        elif isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
            self._take_headers(event)
        elif isinstance(event, h2.events.StreamEnded):
            call = self._streams.get(event.stream_id)
            if call is not None:
                self._complete(call)
        elif isinstance(event, h2.events.StreamReset):
            call = self._streams.get(event.stream_id)
            if call is not None:
                code = int(event.error_code or 0)
                self._finish(
                    call,
                    status_from_reset(code),
                    text=f"the server reset the call ({_code_name(code)})",
                    unprocessed=code == h2.errors.ErrorCodes.REFUSED_STREAM,
                )
        elif isinstance(event, h2.events.RemoteSettingsChanged):
            self.greeted = True
        elif isinstance(event, h2.events.PingAckReceived):
            self.pings_answered += 1

    def _take_data(self, event: h2.events.DataReceived) -> None:
        self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        call = self._streams.get(event.stream_id)
        if call is None:
            return
        call.received += event.data
        if len(call.received) > MAX_MESSAGE_BYTES:
            self._reset(call.stream_id, h2.errors.ErrorCodes.CANCEL)
            self._finish(
                call,
                StatusCode.RESOURCE_EXHAUSTED,
                text=f"the reply is over {MAX_MESSAGE_BYTES} bytes",
            )

    def _take_headers(self, event: h2.events.ResponseReceived | h2.events.TrailersReceived) -> None:
        call = self._streams.get(event.stream_id)
        if call is None:
            return
        # As bytes: a server may put any of them into a header, and only these three matter.
        for name, value in event.headers:
            if name == b":status":
                call.http_status = int(value)
            elif name == b"grpc-status":
                try:
                    call.code = StatusCode(int(value))
                except ValueError:
                    call.code = StatusCode.UNKNOWN
            elif name == b"grpc-message":
                call.text = unquote_to_bytes(value).decode("utf-8", "replace")

    def _take_goaway(self, last: int, error_code: int, additional: bytes) -> None:
        detail = additional.decode("utf-8", "replace")
        self._ending = f"the server is closing the connection ({_code_name(error_code)}" + (
            f": {detail})" if detail else ")"
        )
        for call in list(self._calls.values()):
            if call.stream_id == 0 or call.stream_id > last:
                self._finish(call, StatusCode.UNAVAILABLE, text=self._ending, unprocessed=True)
        self._queue.clear()

    def _complete(self, call: _Call) -> None:
        if call.code is None and call.http_status == 200:
            self._finish(call, StatusCode.UNKNOWN, text="the reply has no grpc-status")
            return
        if call.code is None or (call.code is StatusCode.OK and call.http_status != 200):
            # A success in a reply that HTTP does not call one is none.
            text = f"HTTP status {call.http_status}" if call.http_status else "the reply has no HTTP status"
            self._finish(call, status_from_http(call.http_status), text=text)
            return
        if call.code is not StatusCode.OK:
            self._finish(call, call.code, text=call.text)
            return
        received = call.received
        length = int.from_bytes(received[1:_PREFIX_BYTES], "big")
        if len(received) < _PREFIX_BYTES or len(received) != _PREFIX_BYTES + length:
            self._finish(
                call,
                StatusCode.INTERNAL,
                text=f"the reply has a wrong length: {len(received)} bytes were received",
            )
        elif received[0] != 0:
            self._finish(call, StatusCode.INTERNAL, text="the reply is compressed, which was not requested")
        else:
            self._finish(call, StatusCode.OK, message=bytes(received[_PREFIX_BYTES:]))

    def _finish(
        self,
        call: _Call,
        code: StatusCode,
        *,
        message: bytes = b"",
        text: str = "",
        unprocessed: bool = False,
    ) -> None:
        self._calls.pop(call.call_id, None)
        self._streams.pop(call.stream_id, None)
        if len(call.body) and call.stream_id:
            # The server has answered before it received the whole request: stop sending it.
            self._reset(call.stream_id, h2.errors.ErrorCodes.NO_ERROR)
        self._finished.append(CallResult(call.call_id, code, message, text, unprocessed))


def _code_name(code: int | None) -> str:
    try:
        return str(h2.errors.ErrorCodes(code).name)
    except ValueError:
        return f"code {code}"


def _timeout_header(seconds: float) -> str:
    """Return the value of the ``grpc-timeout`` header: at most eight digits and a unit."""
    if seconds * 1000 < 10**8:
        return f"{max(1, int(seconds * 1000))}m"
    return f"{int(min(seconds, 10**8 - 1))}S"
