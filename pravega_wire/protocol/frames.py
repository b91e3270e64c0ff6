"""Bytes from a connection to commands, in whatever pieces they arrive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pravega_wire.errors import (
    DecodeError,
    FrameTooLargeError,
    TruncatedInputError,
    UnknownCommandError,
)
from pravega_wire.protocol.codec import HEADER, MAX_DECODED_BODY, decode_body
from pravega_wire.protocol.commands import COMMANDS, Command

__all__ = ["FrameDecoder"]

_BUFFER_BYTES: Final = 256 * 1024


def _private(length: int) -> memoryview:
    return memoryview(bytearray(length))


class FrameDecoder:
    """Incremental decoder: either :meth:`feed`, or :meth:`get_buffer` and :meth:`received`.

    A body over a quarter of ``buffer_bytes`` is received straight into memory of its own, so that a
    SegmentRead's data can be a view of it without another copy.

    After an error it stays failed: the same error is raised again.

    :param buffer_bytes: how much is received at once where no such body is under way.
    :param allocate: gives that memory, for a number of bytes; default: new for each body.
    """

    __slots__ = (
        "_allocate", "_body", "_body_code", "_buffer", "_end", "_error", "_filled", "_start", "_view",
    )  # fmt: skip

    def __init__(
        self, buffer_bytes: int = _BUFFER_BYTES, allocate: Callable[[int], memoryview] = _private
    ) -> None:
        self._buffer = bytearray(buffer_bytes)
        self._allocate = allocate
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self._body: memoryview | None = None
        self._body_code = 0
        self._filled = 0
        self._error: DecodeError | None = None

    @property
    def in_body(self) -> bool:
        """Whether :meth:`get_buffer` is what is missing of a large body, and nothing more."""
        return self._body is not None

    def get_buffer(self) -> memoryview:
        """Where the next bytes may be written (never empty); then call :meth:`received`."""
        if self._body is not None:
            return self._body[self._filled :]
        if self._start == self._end:
            self._start = self._end = 0
        elif self._end > len(self._view) // 2 and self._start > 0:
            rest = bytes(self._view[self._start : self._end])
            self._view[: len(rest)] = rest
            self._start, self._end = 0, len(rest)
        return self._view[self._end :]

    def received(self, count: int) -> list[Command]:
        """Commands completed by ``count`` bytes written to the last :meth:`get_buffer`.

        :raises FrameTooLargeError: a frame claims more than the limit, or a negative length.
        :raises UnknownCommandError: an unknown code. :raises DecodeError: a malformed body.
        """
        if self._error is not None:
            raise self._error
        try:
            return self._received(count)
        except DecodeError as error:
            self._error = error
            raise

    def feed(self, data: bytes | bytearray | memoryview) -> list[Command]:
        """Commands completed by ``data``; errors as :meth:`received`."""
        result: list[Command] = []
        view = memoryview(data)
        while len(view):
            room = self.get_buffer()
            count = min(len(room), len(view))
            room[:count] = view[:count]
            result += self.received(count)
            view = view[count:]
        return result

    def eof(self) -> None:
        """The input has ended.

        :raises TruncatedInputError: in the middle of a frame.
        """
        if self._error is not None:
            raise self._error
        if self._body is not None or self._start != self._end:
            self._error = TruncatedInputError("the connection ended in the middle of a frame")
            raise self._error

    def _received(self, count: int) -> list[Command]:
        result: list[Command] = []
        if self._body is not None:
            self._filled += count
            if self._filled < len(self._body):
                return result
            body, self._body = self._body, None
            result.append(decode_body(self._body_code, body))
            return result
        self._end += count
        start, end, view = self._start, self._end, self._view
        private_above = len(view) // 4
        while end - start >= 8:
            code, length = HEADER.unpack_from(view, start)
            if code not in COMMANDS:
                raise UnknownCommandError(f"command code {code} is not known in wire version 16")
            if not 0 <= length <= MAX_DECODED_BODY:
                raise FrameTooLargeError(
                    f"a frame of command {code} claims {length} bytes (limit {MAX_DECODED_BODY})"
                )
            body_start = start + 8
            if length > private_above:
                body = self._allocate(length)
                have = min(end - body_start, length)
                body[:have] = view[body_start : body_start + have]
                start = body_start + have
                if have == length:
                    result.append(decode_body(code, body))
                    continue
                self._body, self._body_code, self._filled = body, code, have
                break
            if end - body_start < length:
                break
            # A private copy: this buffer is used again for the next bytes.
            body = memoryview(bytes(view[body_start : body_start + length]))
            result.append(decode_body(code, body))
            start = body_start + length
        self._start = start
        return result
