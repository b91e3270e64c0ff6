"""Decoding the bytes of a connection into commands, whatever pieces they arrive in."""

from __future__ import annotations

from collections import deque
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
_POOL_BYTES: Final = 16 * 1024 * 1024
_PAGE_BYTES: Final = 4096


class _Pool:
    """Memory for large bodies, reused as soon as no view of it is left.

    The first use of a page of fresh memory costs more than what is received into it. A body gets at most a
    quarter more memory than it needs.
    """

    __slots__ = ("_buffers", "_bytes", "_used")

    def __init__(self) -> None:
        self._buffers: deque[bytearray] = deque()
        self._bytes = 0
        self._used = False

    def allocate(self, length: int) -> memoryview:
        self._used = True
        for _ in range(len(self._buffers)):
            # The one given out first is the likeliest to be free.
            buffer = self._buffers[0]
            self._buffers.rotate(-1)
            if length <= len(buffer) <= length + length // 4 and _is_free(buffer):
                return memoryview(buffer)[:length]
        buffer = bytearray(-(-length // _PAGE_BYTES) * _PAGE_BYTES + 1)
        # This leaves room for the byte that :func:`_is_free` appends.
        del buffer[-1]
        if len(buffer) <= _POOL_BYTES:
            self._buffers.append(buffer)
            self._bytes += len(buffer)
        while self._bytes > _POOL_BYTES:
            self._bytes -= len(self._buffers.popleft())
        return memoryview(buffer)[:length]

    def trim(self) -> None:
        if not self._used:
            self._buffers.clear()
            self._bytes = 0
        self._used = False


def _is_free(buffer: bytearray) -> bool:
    """Whether no view of the buffer is left: only then can its size be changed."""
    try:
        buffer.append(0)
    except BufferError:
        return False
    del buffer[-1]
    return True


class FrameDecoder:
    """Incremental decoder: either :meth:`feed`, or :meth:`get_buffer` and :meth:`received`.

    A body over a quarter of ``buffer_bytes`` is received straight into memory of its own, so that a
    SegmentRead's data can be a view of it without another copy. The decoder reuses that memory once no view
    of it is left.

    After an error it stays failed: the same error is raised again.

    :param buffer_bytes: the most that is received at once outside such a body.
    :param allocate: returns memory for a body of a number of bytes; default: memory that the decoder reuses.
    """

    __slots__ = (
        "_allocate", "_body", "_body_code", "_buffer", "_end", "_error", "_filled", "_pool", "_start",
        "_view",
    )  # fmt: skip

    def __init__(
        self, buffer_bytes: int = _BUFFER_BYTES, allocate: Callable[[int], memoryview] | None = None
    ) -> None:
        self._buffer = bytearray(buffer_bytes)
        self._pool = _Pool()
        self._allocate = self._pool.allocate if allocate is None else allocate
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self._body: memoryview | None = None
        self._body_code = 0
        self._filled = 0
        self._error: DecodeError | None = None

    @property
    def in_body(self) -> bool:
        """Whether :meth:`get_buffer` is exactly the missing part of a large body."""
        return self._body is not None

    def trim(self) -> None:
        """Forget memory for large bodies if there was none since the last call. Call it now and then."""
        self._pool.trim()

    def get_buffer(self) -> memoryview:
        """Return the memory for the next bytes (never empty). Call :meth:`received` after writing to it."""
        if self._body is not None:
            return self._body[self._filled :]
        if self._start == self._end:
            self._start = self._end = 0
        elif self._end > len(self._view) // 2 and self._start > 0:
            rest = bytes(self._view[self._start : self._end])
            self._view[: len(rest)] = rest
            self._start, self._end = 0, len(rest)
        return self._view[self._end :]

    def received(self, count: int, into: list[Command] | None = None) -> list[Command]:
        """Return the commands completed by ``count`` bytes written to the last :meth:`get_buffer`.

        :param into: the list to add them to; after an error it has those before the malformed one.
        :raises FrameTooLargeError: a frame's length is above the limit, or negative.
        :raises UnknownCommandError: the code of a frame is unknown.
        :raises DecodeError: a body is malformed.
        """
        if self._error is not None:
            raise self._error
        result: list[Command] = [] if into is None else into
        try:
            self._decode(count, result)
        except DecodeError as error:
            self._error = error
            raise
        return result

    def feed(self, data: bytes | bytearray | memoryview, into: list[Command] | None = None) -> list[Command]:
        """Return the commands completed by ``data``; parameter and errors are those of :meth:`received`."""
        result: list[Command] = [] if into is None else into
        view = memoryview(data)
        while len(view):
            room = self.get_buffer()
            count = min(len(room), len(view))
            room[:count] = view[:count]
            self.received(count, result)
            view = view[count:]
        return result

    def eof(self) -> None:
        """Report the end of the input.

        :raises TruncatedInputError: the input ended in the middle of a frame.
        """
        if self._error is not None:
            raise self._error
        if self._body is not None or self._start != self._end:
            self._error = TruncatedInputError("the connection ended in the middle of a frame")
            raise self._error

    def _decode(self, count: int, result: list[Command]) -> None:
        if self._body is not None:
            self._filled += count
            if self._filled < len(self._body):
                return
            body, self._body = self._body, None
            result.append(decode_body(self._body_code, body))
            return
        self._end += count
        start, end, view = self._start, self._end, self._view
        private_above = len(view) // 4
        while end - start >= 8:
            code, length = HEADER.unpack_from(view, start)
            if code not in COMMANDS:
                raise UnknownCommandError(f"command code {code} does not exist in wire version 16")
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
            # A private copy: this buffer is reused for the next bytes.
            body = memoryview(bytes(view[body_start : body_start + length]))
            result.append(decode_body(code, body))
            start = body_start + length
        self._start = start
