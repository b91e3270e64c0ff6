"""Byte streams as files: what ``io.BufferedReader``, ``shutil`` and ``zipfile`` take."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from pravega_wire.errors import InvalidArgumentError
from pravega_wire.metrics import WriterMetrics
from pravega_wire.stream.byte_stream import ByteStreamReader as AsyncByteStreamReader
from pravega_wire.stream.byte_stream import ByteStreamWriter as AsyncByteStreamWriter
from pravega_wire.sync.portal import Line, Portal, shown_as

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

__all__ = ["ByteStreamReader", "ByteStreamWriter"]


class ByteStreamWriter(io.RawIOBase):
    """Blocking twin of :class:`pravega_wire.ByteStreamWriter`: a file that can be appended to."""

    def __init__(self, portal: Portal | Line, writer: AsyncByteStreamWriter) -> None:
        super().__init__()
        self._portal = Line(portal, writer.stream)
        self._twin = writer
        self._portal.call(writer.open)

    def __repr__(self) -> str:
        return shown_as(self, self._twin)

    def writable(self) -> bool:
        """True."""
        return True

    def write(self, data: ReadableBuffer, /, *, timeout: float | None = None) -> int:
        """Append bytes; returns their number once they are accepted.

        :param timeout: seconds to wait for room. Bytes that were queued until then may be stored.
        """
        return self._portal.within(timeout, self._twin.write, memoryview(data))

    def flush(self, *, timeout: float | None = None) -> None:
        """Wait until everything written is stored.

        :param timeout: seconds. The bytes stay queued and may still be stored.
        """
        if not self.closed:
            self._portal.within(timeout, self._twin.flush)

    def metrics(self) -> WriterMetrics:
        """Counters and latencies since the writer was opened."""
        return self._twin.metrics()

    def seal(self, *, timeout: float | None = None) -> None:
        """Flush, and allow no more appends."""
        self._portal.within(timeout, self._twin.seal)

    def drop_before(self, offset: int, *, timeout: float | None = None) -> None:
        """Drop the bytes before ``offset`` (``truncate`` of a file drops those after it)."""
        self._portal.within(timeout, self._twin.truncate, offset)

    def fetch_head(self, *, timeout: float | None = None) -> int:
        """The first offset that can be read."""
        return self._portal.within(timeout, self._twin.fetch_head)

    def fetch_tail(self, *, timeout: float | None = None) -> int:
        """The offset after the last stored byte."""
        return self._portal.within(timeout, self._twin.fetch_tail)

    def close(self, *, timeout: float | None = None) -> None:
        """Flush and end.

        :param timeout: seconds for the flush. After it the writer is closed as well; whether the bytes
            without an acknowledgement are stored is not known.
        """
        if not self.closed:
            try:
                self._portal.finish(timeout, self._twin.aclose)
            finally:
                # The file's own close would flush once more.
                self._closing()

    def _closing(self) -> None:
        self.flush = lambda *, timeout=None: None  # type: ignore[method-assign]  # nothing is left to flush
        super().close()


class ByteStreamReader(io.RawIOBase):
    """Blocking twin of :class:`pravega_wire.ByteStreamReader`: a file that can be read and sought."""

    def __init__(self, portal: Portal | Line, reader: AsyncByteStreamReader) -> None:
        super().__init__()
        self._portal = Line(portal, reader.stream)
        self._twin = reader
        self._portal.call(reader.open)

    def __repr__(self) -> str:
        return shown_as(self, self._twin)

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: WriteableBuffer, /, *, timeout: float | None = None) -> int:
        """Fill the beginning of ``buffer``; returns the number of bytes, 0 at the end."""
        view = memoryview(buffer).cast("B")
        if not view:
            return 0
        data = self._portal.within(timeout, self._twin.receive_some, len(view))
        view[: len(data)] = data
        return len(data)

    def tell(self) -> int:
        """Offset of the next byte."""
        return self._twin.offset

    def seek(self, offset: int, whence: int = io.SEEK_SET, /, *, timeout: float | None = None) -> int:
        """Go on reading at an offset: from the beginning, from here, or from the end; returns the offset."""
        if whence == io.SEEK_CUR:
            offset += self._twin.offset
        elif whence == io.SEEK_END:
            offset += self.fetch_tail(timeout=timeout)
        elif whence != io.SEEK_SET:
            raise InvalidArgumentError(f"whence is 0, 1 or 2, not {whence}")
        self._portal.within(timeout, self._twin.seek, offset)
        return offset

    def fetch_head(self, *, timeout: float | None = None) -> int:
        """The first offset that can be read."""
        return self._portal.within(timeout, self._twin.fetch_head)

    def fetch_tail(self, *, timeout: float | None = None) -> int:
        """The offset after the last stored byte."""
        return self._portal.within(timeout, self._twin.fetch_tail)

    def close(self, *, timeout: float | None = None) -> None:
        """Give the connection back."""
        if not self.closed:
            self._portal.close(timeout, self._twin.aclose)
            super().close()
