"""Divides what one side of a connection sends into frames.

Not public.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from pravega_wire.protocol.codec import HEADER, MAX_DECODED_BODY
from pravega_wire.protocol.commands import COMMANDS

__all__ = ["FrameSplitter", "LostBytes", "RawFrame"]

_TLS: Final = re.compile(rb"[\x14-\x17]\x03[\x00-\x04]")


@dataclass(frozen=True, slots=True)
class RawFrame:
    """A whole frame: its command code and its body."""

    code: int
    body: bytes


@dataclass(frozen=True, slots=True)
class LostBytes:
    """The frames end here: what is left over, and what may follow, is not shown.

    :ivar reason: why.
    """

    reason: str


class FrameSplitter:
    """Divides one direction of a connection into frames, from its first byte on."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._started = False
        self._lost = False

    def feed(self, data: bytes) -> list[RawFrame | LostBytes]:
        """Return what is complete with these bytes."""
        found: list[RawFrame | LostBytes] = []
        if self._lost:
            return found
        buffer = self._buffer
        buffer += data
        at = 0
        while len(buffer) - at >= HEADER.size:
            code, length = HEADER.unpack_from(buffer, at)
            reason = self._impossible(code, length)
            if reason is not None:
                # Nothing tells where the next frame begins.
                self._lost = True
                found.append(LostBytes(reason))
                at = len(buffer)
                break
            end = at + HEADER.size + length
            if len(buffer) < end:
                break
            self._started = True
            found.append(RawFrame(code, bytes(buffer[at + HEADER.size : end])))
            at = end
        del buffer[:at]
        return found

    def end(self) -> list[RawFrame | LostBytes]:
        """The connection has ended: report what is left."""
        left = len(self._buffer)
        self._buffer.clear()
        return [LostBytes(f"the last {left} bytes are not a whole frame")] if left else []

    def _impossible(self, code: int, length: int) -> str | None:
        """Why no frame begins with this header; None if one may."""
        if not self._started and code not in COMMANDS:
            if _TLS.match(HEADER.pack(code, length)):
                return "what is sent is encrypted (TLS), and is not shown"
            return "what is sent is not the segment store's protocol, and is not shown"
        if not 0 <= length <= MAX_DECODED_BODY:
            return f"a frame claims {length} bytes: it and what follows cannot be shown"
        return None
