"""A byte stream over TCP or TLS, with the runtime's errors mapped to ours.

This module is the edge named in ``pravega_wire.errors``: above it nobody sees ``OSError``,
``ssl.SSLError`` or trio's resource errors.
"""

from __future__ import annotations

import os
import socket
import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import trio

from pravega_wire.errors import ClosedError, ConnectError, ConnectionLostError, PravegaError, TlsError
from pravega_wire.transport.diagnosis import connect_failure, handshake_failure

__all__ = ["NetworkStream", "connect", "connect_tcp", "handshake_too_slow", "mapped_errors"]

CONNECT_TIMEOUT = 5.0
"""Seconds to wait for a TCP connection, as the Java client's default."""

_BUFFER_BYTES = 1 << 20
# The reference client asks for 256 KiB; more lets one write of a large block leave in one go.


@contextmanager
def mapped_errors(host: str) -> Iterator[None]:
    """What the runtime raises inside, of sockets, TLS and trio, leaves as our errors, which name ``host``."""
    try:
        yield
    except trio.BrokenResourceError as error:
        cause = error.__cause__
        if isinstance(cause, ssl.SSLError):
            raise TlsError(f"TLS to {host} failed: {cause}", host=host) from error
        raise ConnectionLostError(f"connection to {host} was lost: {cause or error}", host=host) from error
    except trio.ClosedResourceError as error:
        raise ClosedError(f"connection to {host} is closed", host=host) from error
    except ssl.SSLError as error:
        raise TlsError(f"TLS to {host} failed: {error}", host=host) from error
    except OSError as error:
        raise ConnectionLostError(f"connection to {host} was lost: {error}", host=host) from error


class NetworkStream:
    """One connection. One task may receive while another sends.

    A cancelled ``send_all`` leaves the peer with part of the data: close the stream then.
    """

    __slots__ = ("_raw", "_socket", "_stream", "host")

    def __init__(self, stream: trio.SocketStream | trio.SSLStream[trio.SocketStream], host: str):
        self._stream = stream
        raw = stream.transport_stream if isinstance(stream, trio.SSLStream) else stream
        assert isinstance(raw, trio.SocketStream)
        self._raw = raw
        # A socket that is a file as others: that spares a system call or two for each message.
        self._socket = raw.socket if stream is raw and sys.platform != "win32" else None
        self.host = host

    async def receive_into(self, buffer: memoryview) -> int:
        """Fill the beginning of ``buffer``; returns the number of bytes, 0 at the end of input.

        :raises ConnectionLostError: the connection broke.
        :raises ClosedError: closed by us.
        """
        with mapped_errors(self.host):
            if self._socket is not None:
                while self._socket.fileno() >= 0:
                    await trio.lowlevel.wait_readable(self._socket)
                    try:
                        return os.readv(self._socket.fileno(), [buffer])
                    except BlockingIOError:
                        continue
                # trio does not take a closed one.
                raise trio.ClosedResourceError
            data = await self._stream.receive_some(len(buffer))
            buffer[: len(data)] = data
            return len(data)

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """Up to ``max_bytes`` bytes; ``b""`` at the end of input. Errors as ``receive_into``."""
        with mapped_errors(self.host):
            return bytes(await self._stream.receive_some(max_bytes))

    @property
    def sends_at_once(self) -> bool:
        """Whether :meth:`send_nowait` can send anything."""
        return self._socket is not None

    def send_nowait(self, data: bytes | memoryview) -> int:
        """Send the beginning of ``data``, without waiting; returns the number of bytes.

        That may be 0: there is no room, or the connection is broken, which ``send_all`` then tells. No other
        call may be sending.
        """
        if self._socket is None:
            return 0
        try:
            return os.write(self._socket.fileno(), data)
        except OSError:
            return 0

    async def send_all(self, data: bytes | memoryview) -> None:
        """Send everything. Errors as ``receive_into``."""
        with mapped_errors(self.host):
            await self._stream.send_all(data)

    async def aclose(self) -> None:
        """Close at once, without a TLS good-bye (neither protocol above needs it)."""
        await self._raw.aclose()

    def close_nowait(self) -> None:
        """Close the socket from synchronous code; pending calls end with :class:`ClosedError`."""
        self._raw.socket.close()


endings: Final[dict[int, Callable[[], PravegaError | None]]] = {}
"""By port of this machine: why nothing listens there, where this process has started a test server."""


def _ending(host: str, port: int) -> PravegaError | None:
    known = endings.get(port)
    return known() if known is not None and host in ("127.0.0.1", "localhost", "::1") else None


async def connect_tcp(host: str, port: int, *, timeout: float = CONNECT_TIMEOUT) -> trio.SocketStream:
    """Open a TCP connection; arguments and errors as :func:`connect`."""
    name = f"{host}:{port}"
    try:
        with trio.fail_after(timeout):
            stream = await trio.open_tcp_stream(host, port, happy_eyeballs_delay=0.1)
    except trio.TooSlowError as error:
        raise ConnectError(
            f"no connection to {name}: nothing answered within {timeout:g} s", host=name
        ) from error
    except (OSError, UnicodeError) as error:
        raise _ending(host, port) or connect_failure(host, port, error) from error
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        stream.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
    return stream


def handshake_too_slow(name: str, timeout: float) -> ConnectError:
    """The error for a TLS handshake with ``name`` (``host:port``) that did not end in ``timeout`` seconds."""
    return ConnectError(f"no TLS handshake with {name} within {timeout:g} s (does it speak TLS?)", host=name)


async def connect(
    host: str,
    port: int,
    *,
    tls: ssl.SSLContext | None = None,
    timeout: float = CONNECT_TIMEOUT,
) -> NetworkStream:
    """Open a connection.

    :param timeout: seconds for TCP, and again for the TLS handshake.
    :raises ConnectError: refused, unreachable or timed out; names ``host:port``.
    :raises HostNotFoundError: the name is not known.
    :raises WrongProtocolError: the server does not speak TLS.
    :raises TlsError: the handshake or certificate check failed.
    """
    name = f"{host}:{port}"
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
