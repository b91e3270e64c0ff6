"""A blocking connection to a segment store, used by one thread alone.

It follows the same rules as :mod:`pravega_wire.transport.connection`, without tasks: the thread that waits
also sends keep-alives and notices silence.
"""

from __future__ import annotations

import math
import socket
import ssl
import struct
import sys
from collections.abc import Callable
from typing import Final

from pravega_wire.errors import ConnectionLostError, ProtocolError
from pravega_wire.protocol import codec
from pravega_wire.protocol.commands import Command
from pravega_wire.protocol.frames import FrameDecoder
from pravega_wire.protocol.session import GREETING, Session, senseless
from pravega_wire.support.environment import environment
from pravega_wire.transport.diagnosis import handshake_failure
from pravega_wire.transport.limits import Limits
from pravega_wire.transport.stream import handshake_too_slow, mapped_errors
from pravega_wire.values.config import parse_endpoint

__all__ = ["BlockingConnection"]

# Small, because the part of a large body that is received here is copied once more.
_BUFFER_BYTES: Final = 16 * 1024

# On this platform one receiving call can wait for a whole body and still time out, without a poll before it.
_KERNEL_TIMEOUTS: Final = sys.platform == "linux" and struct.calcsize("l") == 8


class BlockingConnection:
    """Sends commands and receives replies, in one thread. Only :meth:`shut_down` may be called by others.

    :param sock: a connected socket, which belongs to this object from now on.
    :param host: ``host:port`` of the store, for messages.
    :param tls: how to secure the connection, None for plain TCP.
    :param limits: time limits.
    :param allocate: returns the memory of large bodies; see :class:`FrameDecoder`.
    :ivar greeting: seconds from the greeting to the store's; infinity until then.
    :ivar received_bytes: number of bytes received.
    :ivar tick: longest time in seconds that :meth:`receive` waits.
    :raises TlsError: the TLS handshake or the check of the certificate failed.
    :raises ConnectError: the handshake took too long, or the server ended it.
    :raises WrongProtocolError: the server does not speak TLS.
    """

    def __init__(
        self,
        sock: socket.socket,
        host: str,
        *,
        tls: ssl.SSLContext | None,
        limits: Limits,
        allocate: Callable[[int], memoryview],
    ) -> None:
        self.host = host
        self.greeting = math.inf
        self.received_bytes = 0
        self._session: Session[None] = Session(host, limits.silence, FrameDecoder(_BUFFER_BYTES, allocate))
        self._whole = 0
        tick = self.tick = self._session.tick
        if tls is not None:
            sock = _secured(sock, host, tls, limits.connect)
        self._socket = sock
        if tls is None and _KERNEL_TIMEOUTS:
            sock.setblocking(True)
            seconds = int(tick)
            timeout = struct.pack("ll", seconds, max(1, int((tick - seconds) * 1e6)))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)
            self._whole = socket.MSG_WAITALL
        else:
            sock.settimeout(tick)
        self._greeted_at = environment().monotonic()
        try:
            self._send(GREETING)
        except BaseException:
            sock.close()
            raise

    def send(self, command: Command) -> None:
        """Send a command.

        :raises ConnectionLostError: the connection has ended, or the store accepts no bytes.
        """
        self._send(codec.encode(command))

    def _send(self, data: bytes) -> None:
        try:
            with mapped_errors(self.host):
                self._socket.sendall(data)
        except ConnectionLostError as error:
            if isinstance(error.__cause__, TimeoutError | BlockingIOError):
                raise self._session.fell_silent(self.tick) from error
            raise

    def receive(self) -> list[Command]:
        """Return the replies that are complete, after waiting for bytes for at most :attr:`tick` seconds.

        :raises ConnectionLostError: the connection has ended, or was silent for too long.
        :raises ProtocolError: the received bytes are malformed.
        """
        session = self._session
        session.begin_tick()
        buffer = session.get_buffer()
        try:
            with mapped_errors(self.host):
                try:
                    count = self._socket.recv_into(buffer, 0, self._whole if session.in_body else 0)
                except (TimeoutError, BlockingIOError):
                    count = -1
        finally:
            buffer.release()
        if count < 0:
            self._send(session.end_tick())
            return []
        if count == 0:
            session.ended()
        self.received_bytes += count
        try:
            replies = list(session.received(count))
            if session.features is not None and self.greeting == math.inf:
                self.greeting = environment().monotonic() - self._greeted_at
            return replies
        except ProtocolError as error:
            raise senseless(error, self.host)  # noqa: B904  # it has its cause

    def shut_down(self) -> None:
        """End the connection, from any thread: a thread that is receiving finds that it has ended."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it has ended already

    def close(self) -> None:
        """Close the socket. Closing it twice is harmless."""
        self._socket.close()


def _secured(sock: socket.socket, name: str, tls: ssl.SSLContext, timeout: float) -> ssl.SSLSocket:
    sock.settimeout(timeout)
    try:
        return tls.wrap_socket(sock, server_hostname=parse_endpoint(name, "the segment store")[0])
    except TimeoutError as error:
        sock.close()
        raise handshake_too_slow(name, timeout) from error
    except OSError as error:
        sock.close()
        raise handshake_failure(name, error) from error
    except BaseException:
        sock.close()
        raise
