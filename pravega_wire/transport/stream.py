"""A byte stream over TCP or TLS, with the runtime's errors mapped to ours.

This module is the edge that ``pravega_wire.errors`` describes: code above it never gets an ``OSError``, an
``ssl.SSLError`` or one of trio's resource errors.
"""

from __future__ import annotations

import os
import socket
import ssl
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import trio

from pravega_wire.errors import ClosedError, ConnectError, ConnectionLostError, PravegaError
from pravega_wire.support.environment import environment
from pravega_wire.support.nurseries import open_tcp_stream
from pravega_wire.transport.diagnosis import connect_failure, ended_tls, handshake_failure
from pravega_wire.values.types import endpoint_text

__all__ = ["NetworkStream", "connect", "connect_tcp", "handshake_too_slow", "mapped_errors"]

_AT_ONCE = struct.pack("HH" if sys.platform == "win32" else "ii", 1, 0)
"""Value of SO_LINGER: a close drops what was not sent, and resets the connection."""


@contextmanager
def mapped_errors(host: str) -> Iterator[None]:
    """Map errors of sockets, TLS and trio that are raised in the block to ours, which name ``host``.

    The block uses a connection whose TLS handshake has ended.
    """
    try:
        yield
    except trio.BrokenResourceError as error:
        cause = error.__cause__
        if isinstance(cause, ssl.SSLError):
            raise ended_tls(host, cause) from error
        # After the error that broke it, trio's TLS stream raises one without a text.
        reason = str(cause or error) or "it broke before"
        raise ConnectionLostError(f"connection to {host} was lost: {reason}", host=host) from error
    except trio.ClosedResourceError as error:
        raise ClosedError(f"connection to {host} is closed", host=host) from error
    except ssl.SSLError as error:
        raise ended_tls(host, error) from error
    except OSError as error:
        raise ConnectionLostError(f"connection to {host} was lost: {error}", host=host) from error


class NetworkStream:
    """One connection. One task may receive while another one sends.

    After a cancelled :meth:`send_all` the peer may have a part of the data, so the stream must be closed.

    :param stream: the connection.
    :param host: ``host:port`` of the peer, for messages.
    """

    __slots__ = ("_raw", "_socket", "_stream", "host")

    def __init__(self, stream: trio.SocketStream | trio.SSLStream[trio.SocketStream], host: str):
        self._stream = stream
        raw = stream.transport_stream if isinstance(stream, trio.SSLStream) else stream
        assert isinstance(raw, trio.SocketStream)
        self._raw = raw
        # A plain socket can be read and written as a file, which saves a system call or two for each message.
        self._socket = raw.socket if stream is raw and sys.platform != "win32" else None
        self.host = host

    async def receive_into(self, buffer: memoryview) -> int:
        """Receive into the beginning of ``buffer``.

        :returns: the number of bytes, 0 at the end of input.
        :raises ConnectionLostError: the connection broke.
        :raises TlsError: the peer refuses this client's certificate.
        :raises ClosedError: this side has closed the connection.
        """
        with mapped_errors(self.host):
            if self._socket is not None:
                while self._socket.fileno() >= 0:
                    await trio.lowlevel.wait_readable(self._socket)
                    try:
                        return os.readv(self._socket.fileno(), [buffer])
                    except BlockingIOError:
                        continue
                # trio does not accept a closed socket.
                raise trio.ClosedResourceError
            data = await self._stream.receive_some(len(buffer))
            buffer[: len(data)] = data
            return len(data)

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """Receive up to ``max_bytes`` bytes; ``b""`` at the end of input.

        It raises the errors of :meth:`receive_into`.
        """
        with mapped_errors(self.host):
            return bytes(await self._stream.receive_some(max_bytes))

    @property
    def sends_at_once(self) -> bool:
        """Whether :meth:`send_nowait` can send anything."""
        return self._socket is not None

    def send_nowait(self, data: bytes | memoryview) -> int:
        """Send the beginning of ``data`` without waiting; no other call may be sending.

        :returns: the number of bytes sent. It may be 0 because the socket has no room or because the
            connection is broken, which :meth:`send_all` then raises.
        """
        if self._socket is None:
            return 0
        try:
            return os.write(self._socket.fileno(), data)
        except OSError:
            return 0

    async def send_all(self, data: bytes | memoryview) -> None:
        """Send everything; it raises the errors of :meth:`receive_into`."""
        with mapped_errors(self.host):
            await self._stream.send_all(data)

    def forget_unsent(self) -> None:
        """Make the system drop what it could not send so far when this is closed.

        Otherwise it would go on sending for minutes. A request could reach the peer after another one that
        was sent instead of it, on a new connection, and after those of others.
        """
        with suppress(OSError):
            self._raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)

    async def aclose(self) -> None:
        """Close at once, without a TLS close message, which neither protocol above needs."""
        await self._raw.aclose()

    def close_nowait(self) -> None:
        """Close the socket from synchronous code; pending calls end with :class:`ClosedError`."""
        self._raw.socket.close()


endings: Final[dict[int, Callable[[], PravegaError | None]]] = {}
"""Local port to a function that returns why nothing listens there, for test servers of this process."""


def _ending(host: str, port: int) -> PravegaError | None:
    known = endings.get(port)
    return known() if known is not None and host in ("127.0.0.1", "localhost", "::1") else None


async def connect_tcp(host: str, port: int, *, timeout: float = 5.0) -> trio.SocketStream:
    """Open a TCP connection; parameters and errors are those of :func:`connect`."""
    name = endpoint_text((host, port))
    try:
        with trio.fail_after(timeout):
            stream = await open_tcp_stream(host, port, happy_eyeballs_delay=0.1)
    except trio.TooSlowError as error:
        raise ConnectError(
            f"no connection to {name}: nothing answered within {timeout:g} s", host=name
        ) from error
    except (OSError, UnicodeError) as error:
        raise _ending(host, port) or connect_failure(host, port, error) from error
    # No SO_SNDBUF and SO_RCVBUF: they would end the kernel's own tuning, which follows rate and distance.
    return stream


def handshake_too_slow(name: str, timeout: float) -> ConnectError:
    """Return the error for a TLS handshake with ``name`` that exceeded ``timeout`` seconds."""
    return ConnectError(f"no TLS handshake with {name} within {timeout:g} s (does it speak TLS?)", host=name)


async def connect(
    host: str, port: int, *, tls: ssl.SSLContext | None = None, timeout: float = 5.0
) -> NetworkStream:
    """Open a connection.

    :param host: name or address of the server.
    :param port: port of the server.
    :param tls: how to secure the connection, None for plain TCP.
    :param timeout: seconds for the TCP connection, and again for the TLS handshake.
    :raises ConnectError: the connection was refused, timed out, or the server cannot be reached.
    :raises HostNotFoundError: the host name does not exist.
    :raises WrongProtocolError: the server does not speak TLS.
    :raises TlsError: the handshake or the check of the certificate failed.
    """
    name = endpoint_text((host, port))
    dial = environment().dial
    if dial is not None:
        dialled: NetworkStream = await dial(host, port, timeout)
        return dialled
    stream = await connect_tcp(host, port, timeout=timeout)
    if tls is None:
        return NetworkStream(stream, name)
    secured = trio.SSLStream(stream, tls, server_hostname=host, https_compatible=True)
    try:
        with trio.fail_after(timeout):
            await secured.do_handshake()
    except trio.TooSlowError as error:
        await stream.aclose()
        raise handshake_too_slow(name, timeout) from error
    except (trio.BrokenResourceError, OSError) as error:
        await stream.aclose()
        raise handshake_failure(name, error) from error
    except BaseException:
        with trio.CancelScope(shield=True):
            await stream.aclose()
        raise
    return NetworkStream(secured, name)
