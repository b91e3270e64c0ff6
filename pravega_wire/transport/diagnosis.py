"""Explains failed connections in a sentence, and tells whether another attempt can help.

A failure that can pass, such as a server that is still starting, is retriable. A failure that needs another
setting or another server is not: an unknown host name, an untrusted certificate, the wrong protocol.
"""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Iterator
from typing import Final

import trio

from pravega_wire.errors import (
    ConnectError,
    ConnectionLostError,
    HostNotFoundError,
    TlsError,
    TransportError,
    WrongProtocolError,
)
from pravega_wire.grpc.diagnosis import STORE, TLS, diagnose_first_bytes
from pravega_wire.protocol import codec
from pravega_wire.protocol.commands import WIRE_VERSION_HIGH, WIRE_VERSION_LOW, Hello
from pravega_wire.support.environment import environment
from pravega_wire.support.nurseries import open_tcp_stream
from pravega_wire.values.types import endpoint_text

__all__ = ["NOT_TLS", "connect_failure", "ended_tls", "handshake_failure", "who_is_silent"]

NOT_TLS: Final = "the server does not speak TLS; use a controller URI with the scheme tcp instead of tls"

_UNKNOWN_NAME: Final = frozenset(
    getattr(socket, name) for name in ("EAI_NONAME", "EAI_NODATA", "EAI_ADDRFAMILY") if hasattr(socket, name)
)
_REASONS: Final = {
    errno.ECONNREFUSED: "connection refused: nothing listens there",
    errno.EHOSTUNREACH: "the host cannot be reached",
    errno.ENETUNREACH: "the network of the host cannot be reached",
    errno.ETIMEDOUT: "nothing answered",
    errno.ECONNRESET: "the server closed the connection at once",
}

# OpenSSL's reasons for bytes that are not TLS.
_NO_TLS: Final = frozenset(
    {
        "WRONG_VERSION_NUMBER",
        "UNKNOWN_PROTOCOL",
        "RECORD_LAYER_FAILURE",
        "PACKET_LENGTH_TOO_LONG",
        "BAD_RECORD_TYPE",
        "HTTP_REQUEST",
    }
)

# OpenSSL's verification errors (X509_V_ERR_...).
_CERTIFICATE: Final = {
    9: "is not valid yet; check the clocks",
    10: "has expired",
    18: "is self-signed; set trust_store to the file of this certificate, or of its authority",
    19: "is signed by an authority that is not trusted; set trust_store to its certificate's file",
    20: "is signed by an authority that is not trusted; set trust_store to its certificate's file",
    21: "is signed by an authority that is not trusted; set trust_store to its certificate's file",
    62: "is for another host",
    64: "is for another host",
}

# Parts of the names of a server's alerts about this client's certificate.
_CERTIFICATE_ALERTS: Final = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED", "HANDSHAKE_FAILURE")

_PROBE_SECONDS: Final = 2.0
_HELLO: Final = codec.encode(Hello(high_version=WIRE_VERSION_HIGH, low_version=WIRE_VERSION_LOW))


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


def connect_failure(host: str, port: int, error: OSError | UnicodeError) -> ConnectError:
    """Return the error for a TCP connection that could not be opened."""
    name = endpoint_text((host, port))
    if isinstance(error, UnicodeError):
        return HostNotFoundError(f"no connection to {name}: {host!r} is not a valid host name", host=name)
    if isinstance(error, socket.gaierror):
        if error.errno in _UNKNOWN_NAME:
            return HostNotFoundError(f"no connection to {name}: the host name {host!r} is unknown", host=name)
        return ConnectError(
            f"no connection to {name}: the name {host!r} cannot be resolved now ({error.strerror})", host=name
        )
    # A name may have several addresses, and trio tries all of them.
    reasons = dict.fromkeys(
        _REASONS.get(each.errno or 0, str(each)) if isinstance(each, OSError) else str(each)
        for each in _leaves(error.__cause__ or error)
    )
    return ConnectError(f"no connection to {name}: {', '.join(reasons)}", host=name)


def handshake_failure(name: str, error: BaseException) -> TransportError:
    """Return the error for a failed TLS handshake.

    :param name: ``host:port`` of the server.
    :param error: the error that trio or the socket raised.
    """
    cause = error.__cause__ or error
    if isinstance(cause, ssl.SSLCertVerificationError):
        said = _CERTIFICATE.get(cause.verify_code)
        detail = f" ({cause.verify_message.rstrip('.')})"
        what = f"{said}{detail}" if said else f"was not accepted{detail}"
        return TlsError(f"TLS to {name}: the certificate {what}", host=name)
    if isinstance(cause, ssl.SSLEOFError | ssl.SSLZeroReturnError) or not isinstance(cause, ssl.SSLError):
        # A server that is starting or stopping does this, and so does one that does not understand TLS.
        return ConnectError(
            f"no connection to {name}: the server ended the TLS handshake (does it speak TLS?)", host=name
        )
    if "BAD_RECORD_MAC" in (cause.reason or ""):
        # A record of the handshake was damaged on the way, here or, by an alert, there.
        return ConnectError(f"no connection to {name}: TLS handshake failed: {cause}", host=name)
    if cause.reason in _NO_TLS:
        return WrongProtocolError(f"no connection to {name}: {NOT_TLS}", host=name)
    return TlsError(f"TLS handshake with {name} failed: {cause}", host=name)


def ended_tls(name: str, error: ssl.SSLError) -> TransportError:
    """Return the error for TLS that failed after the handshake.

    A damaged record ends only its connection. In TLS 1.3 a server judges the client's certificate after the
    client's handshake, and its judgement is final.

    :param name: ``host:port`` of the server.
    :param error: what the TLS library found, or the alert that the server sent.
    """
    reason = error.reason or ""
    refused = "ALERT" in reason and any(each in reason for each in _CERTIFICATE_ALERTS)
    if refused or isinstance(error, ssl.SSLCertVerificationError):
        return TlsError(f"TLS to {name} failed: {error}", host=name)
    return ConnectionLostError(f"connection to {name} was lost: {error}", host=name)


async def who_is_silent(host: str, port: int, *, tls: bool) -> str | None:
    """Find out what kind of server closes connections without sending anything.

    A server with TLS, or a segment store, closes the connection of a client that speaks plain HTTP/2. The
    server is probed in these other protocols; nothing secret is sent.

    :param host: name or address of the server.
    :param port: port of the server.
    :param tls: whether the connections that it closed used TLS.
    :returns: a sentence about the server, or None if it is still unknown.
    """
    if environment().dial is not None:
        # Only what is reached by TCP can be probed.
        return None
    if not tls and await _speaks_tls(host, port):
        return TLS
    return STORE if await _answers_hello(host, port, tls=tls) else None


def _unchecked() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def _speaks_tls(host: str, port: int) -> bool:
    with trio.move_on_after(_PROBE_SECONDS):
        try:
            async with await open_tcp_stream(host, port) as plain:
                await trio.SSLStream(plain, _unchecked(), server_hostname=host).do_handshake()
        except (trio.BrokenResourceError, OSError) as error:
            # A TLS alert also shows that the server speaks TLS.
            cause = error.__cause__
            return isinstance(cause, ssl.SSLError) and "_ALERT_" in (cause.reason or "")
        return True
    return False


async def _answers_hello(host: str, port: int, *, tls: bool) -> bool:
    answer = b""
    with trio.move_on_after(_PROBE_SECONDS):
        try:
            async with await open_tcp_stream(host, port) as plain:
                stream: trio.abc.Stream = plain
                if tls:
                    stream = trio.SSLStream(plain, _unchecked(), server_hostname=host, https_compatible=True)
                await stream.send_all(_HELLO)
                while len(answer) < len(_HELLO):
                    data = await stream.receive_some(64)
                    if not data:
                        break
                    answer += bytes(data)
        except (trio.BrokenResourceError, OSError):
            return False
    return diagnose_first_bytes(answer) == STORE
