"""Byte streams as files, for use with ``io.BufferedReader``, ``shutil`` and ``zipfile``."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Final, cast

from pravega_wire.errors import InvalidArgumentError
from pravega_wire.metrics import WriterMetrics
from pravega_wire.stream.byte_stream import ByteStreamReader as AsyncByteStreamReader
from pravega_wire.stream.byte_stream import ByteStreamWriter as AsyncByteStreamWriter
from pravega_wire.stream.core import not_shared
from pravega_wire.threads.portal import Line, Named, Portal, shown_as

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

__all__ = ["ByteStreamReader", "ByteStreamWriter"]

_NOTHING: Final = memoryview(b"")


class ByteStreamWriter(io.RawIOBase):
    """Blocking version of :class:`pravega_wire.ByteStreamWriter`: a raw file to append to.

    Example::

        import io

        with client.byte_stream_writer("demo/images") as writer:
            with io.BufferedWriter(writer, 65536) as file:
                file.write(b"first part, ")
                file.write(b"second part")
    """

    def __init__(self, portal: Portal | Line, writer: AsyncByteStreamWriter) -> None:
        super().__init__()
        self._portal = Line(portal, writer.stream)
        self._twin = writer
        self._portal.call(writer.__aenter__)

    __reduce__ = not_shared

    def __repr__(self) -> str:
        return shown_as(self, self._twin)

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: ReadableBuffer, /, *, timeout: float | None = None) -> int:
        """Append bytes. Returns their number as soon as they are accepted.

        :param timeout: seconds to wait for room. If the limit is reached, the bytes that were already queued
            may be stored.
        """
        return self._portal.within(timeout, self._twin.write, cast("Any", data))

    def flush(self, *, timeout: float | None = None) -> None:
        """Wait until all written bytes are stored.

        :param timeout: seconds. If the limit is reached, the bytes stay queued and may still be stored.
        """
        if not self.closed:
            self._portal.within(timeout, self._twin.flush)

    def metrics(self) -> WriterMetrics:
        """Counters and latencies since the writer was opened."""
        return self._twin.metrics()

    def seal(self, *, timeout: float | None = None) -> None:
        """Flush and seal the stream. It takes no more bytes, and its readers reach an end."""
        self._portal.within(timeout, self._twin.seal)

    def drop_before(self, offset: int, *, timeout: float | None = None) -> None:
        """Delete the bytes before ``offset``. (The ``truncate`` of a file deletes the bytes after it.)"""
        self._portal.within(timeout, self._twin.truncate, offset)

    def head(self, *, timeout: float | None = None) -> int:
        """Return the first offset that can be read."""
        return self._portal.within(timeout, self._twin.head)

    def tail(self, *, timeout: float | None = None) -> int:
        """Return the offset after the last stored byte."""
        return self._portal.within(timeout, self._twin.tail)

    def close(self, *, timeout: float | None = None) -> None:
        """Flush and close.

        :param timeout: seconds for the flush. The writer is closed even if the limit is reached. It is then
            unknown whether the bytes without an acknowledgement are stored.
        """
        if not self.closed:
            try:
                # After the client, there is nothing left to close, but bytes may not have been stored.
                if not self._portal.closed or self._twin.metrics().outstanding_bytes:
                    self._portal.finish(timeout, self._twin.aclose)
            finally:
                # The close method of the base class would flush again.
                self._closing()

    def _closing(self) -> None:
        self.flush = lambda *, timeout=None: None  # type: ignore[method-assign]  # nothing is left to flush
        super().close()


class ByteStreamReader(io.RawIOBase):
    """Blocking version of :class:`pravega_wire.ByteStreamReader`: a raw file to read and seek in.

    Example::

        import io

        with client.byte_stream_reader("demo/images", follow=False) as reader:
            with io.BufferedReader(reader) as file:
                print(file.read())
    """

    def __init__(self, portal: Portal | Line, reader: AsyncByteStreamReader) -> None:
        super().__init__()
        self._portal = Line(portal, reader.stream)
        self._twin = reader
        # Bytes that the client's thread has received, until a thread takes them. Ctrl-C may end the call of
        # the thread that has asked for them.
        self._kept = _NOTHING
        self._portal.call(reader.__aenter__)

    __reduce__ = not_shared

    def __repr__(self) -> str:
        return shown_as(self, self._twin)

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: WriteableBuffer, /, *, timeout: float | None = None) -> int:
        """Fill the beginning of ``buffer``. Returns the number of bytes, 0 at the end."""
        view = memoryview(buffer).cast("B")
        if not view:
            return 0
        while self._portal.closed or not self._kept:
            receive = Named(self._twin.receive_some, self._receive)
            if not self._portal.within(timeout, receive, view.nbytes):
                return 0
        # Nothing is called from here on: signal handlers run after calls, and Ctrl-C would lose the bytes.
        found = self._kept[: view.nbytes]
        view[: found.nbytes] = found
        self._kept = self._kept[found.nbytes :]
        return found.nbytes

    async def _receive(self, size: int) -> bool:
        """In the client's thread: what it has received cannot be lost between the threads.

        :returns: False at the end.
        """
        if not self._kept:
            self._kept = memoryview(await self._twin.receive_some(size))
        return bool(self._kept)

    def tell(self) -> int:
        """Return the offset of the next byte."""
        return self._twin.offset - self._kept.nbytes

    def seek(self, offset: int, whence: int = io.SEEK_SET, /, *, timeout: float | None = None) -> int:
        """Continue reading at an offset. Returns the new offset, in bytes from the stream's beginning.

        :param offset: relative to ``whence``.
        :param whence: ``io.SEEK_SET`` (the beginning), ``io.SEEK_CUR`` (the present offset) or
            ``io.SEEK_END`` (the end).
        :raises InvalidArgumentError: the new offset is negative or beyond the end, or ``whence`` is invalid.
        """
        if whence == io.SEEK_CUR:
            offset += self.tell()
        elif whence == io.SEEK_END:
            offset += self.tail(timeout=timeout)
        elif whence != io.SEEK_SET:
            raise InvalidArgumentError(f"whence must be 0, 1 or 2, not {whence}")
        self._portal.within(timeout, Named(self._twin.seek, self._seek), offset)
        return offset

    async def _seek(self, offset: int) -> None:
        """In the client's thread, so that the kept bytes go if and only if the offset changes."""
        await self._twin.seek(offset)
        self._kept = _NOTHING

    def head(self, *, timeout: float | None = None) -> int:
        """Return the first offset that can be read."""
        return self._portal.within(timeout, self._twin.head)

    def tail(self, *, timeout: float | None = None) -> int:
        """Return the offset after the last stored byte."""
        return self._portal.within(timeout, self._twin.tail)

    def close(self, *, timeout: float | None = None) -> None:
        """Release the connection."""
        if not self.closed:
            if not self._portal.closed:
                self._portal.close(timeout, self._twin.aclose)
            self._kept = _NOTHING
            super().close()
