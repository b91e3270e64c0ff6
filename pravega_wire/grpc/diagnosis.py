"""Recognizes a server that does not speak HTTP/2 by the first bytes that it sends."""

from __future__ import annotations

from typing import Final

__all__ = ["ENOUGH_BYTES", "HTTP1", "STORE", "TLS", "diagnose_first_bytes"]

HTTP1: Final = (
    "an HTTP/1 server answered, not a Pravega controller; check the host and port of the controller URI"
)
TLS: Final = "the server speaks TLS; use a controller URI with the scheme tls"
STORE: Final = "a Pravega segment store answered, not a controller; check the port of the controller URI"

ENOUGH_BYTES: Final = 16
"""Number of bytes from which the result no longer changes."""

_HTTP1: Final = (b"HTTP/", b"<!DOCTYPE", b"<html")
_STORE_HELLO: Final = (-127).to_bytes(4, "big", signed=True) + (8).to_bytes(4, "big")
_TLS_RECORDS: Final = range(0x14, 0x18)


def diagnose_first_bytes(data: bytes) -> str | None:
    """Describe a server by the first bytes that it has sent.

    :param data: the first bytes received so far.
    :returns: a sentence about the server; None if it may speak HTTP/2, or while there are too few bytes.
    """
    if any(data[: len(start)].lower() == start.lower() for start in _HTTP1):
        return HTTP1
    if len(data) >= 3 and data[0] in _TLS_RECORDS and data[1] == 3 and data[2] <= 4:
        return TLS
    if data.startswith(_STORE_HELLO):
        return STORE
    start = data[:ENOUGH_BYTES]
    # HTTP/2 begins with the highest byte of a frame's length; a letter there would be far beyond the limit.
    if len(start) >= 9 and all(0x20 <= byte < 0x7F or byte in b"\t\r\n" for byte in start):
        return f"the server is not a Pravega controller, it answered: {start.decode('ascii')!r}..."
    return None
