"""A stream as a sequence of bytes, without events: :class:`ByteStreamWriter`, :class:`ByteStreamReader`."""

from __future__ import annotations

import operator
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, Self, SupportsIndex

import trio

from pravega_wire.checks import check_bytes, check_count, check_flag
from pravega_wire.controller.tokens import Access
from pravega_wire.errors import (
    ArgumentTypeError,
    BrokenStreamError,
    ClosedError,
    ConcurrentUseError,
    InvalidArgumentError,
    PravegaError,
    StreamNotFoundError,
    StreamSealedError,
)
from pravega_wire.metrics import WriterMetrics
from pravega_wire.protocol.append import BLOCK_BYTES
from pravega_wire.protocol.commands import StreamSegmentInfo
from pravega_wire.segment.appender import SegmentAppender, flush
from pravega_wire.segment.following import FollowingReader
from pravega_wire.segment.handles import OneAtATime, Waiters, state_of
from pravega_wire.segment.metadata import SegmentMetadata
from pravega_wire.segment.reader import RangeReader
from pravega_wire.stream.core import ClientCore
from pravega_wire.stream.routing import DEFAULT_MAX_OUTSTANDING_BYTES, YIELD_BYTES
from pravega_wire.types import ScopedStream

__all__ = ["ByteStreamReader", "ByteStreamWriter"]

_READ_BYTES = 64 * 1024
# To the bytes after which a caller lets the connection's tasks run, a call adds this much to its own.
_CALL_BYTES = 512


def _count(max_bytes: object) -> int:
    # True would pass for 1.
    if isinstance(max_bytes, bool) or not isinstance(max_bytes, SupportsIndex):
        raise ArgumentTypeError(f"max_bytes is an int, not {type(max_bytes).__name__}")
    count = operator.index(max_bytes)
    if count < 1:
        raise InvalidArgumentError(f"max_bytes must be at least 1, not {count}")
    return count


async def _only_segment(core: ClientCore, stream: ScopedStream) -> int:
    """The one segment of a stream, sealed or not.

    :raises StreamNotFoundError: no such stream. :raises InvalidArgumentError: it has more than one.
    """
    head = await core.controller.get_segments(stream.scope, stream.name)
    if not head:
        raise StreamNotFoundError(f"stream {stream} has no segment", scope=stream.scope, stream=stream.name)
    if len(head) != 1:
        raise InvalidArgumentError(
            f"stream {stream} has {len(head)} segments; a byte stream has one",
            scope=stream.scope,
            stream=stream.name,
        )
    return next(iter(head))


class ByteStreamWriter(trio.abc.SendStream):
    """Appends bytes to a stream of one segment. Made by :meth:`PravegaClient.byte_stream_writer`.

    Bytes are stored in order, each once, through lost connections and stores that die. They carry no event
    headers: such a stream is read by a :class:`ByteStreamReader` (here or in Java) only.

    One task writes at a time: a second one gets :class:`ConcurrentUseError`, and none of its bytes are taken.
    Other tasks may call :meth:`flush` and :meth:`aclose` at any time.
    """

    def __init__(
        self,
        core: ClientCore,
        stream: ScopedStream,
        *,
        max_outstanding_bytes: int = DEFAULT_MAX_OUTSTANDING_BYTES,
    ) -> None:
        check_bytes("max_outstanding_bytes", max_outstanding_bytes)
        self.stream = stream
        self._core = core
        self._limit = max_outstanding_bytes
        self._appender: SegmentAppender | None = None
        self._metadata: SegmentMetadata | None = None
        self._outstanding = 0
        self._since_yield = 0
        self._bytes_written = 0
        self._counts = core.counters.writing(stream)
        self._room = trio.Event()
        self._error: PravegaError | None = None
        self._reported = False
        self._eof_sent = False
        self._opening = OneAtATime(f"another task is opening the writer of byte stream {stream}")
        self._writing = OneAtATime(f"another task is writing to byte stream {stream}")
        # Closed as soon as closing begins: what was accepted is still flushed then.
        self._waiters = Waiters(f"the writer of byte stream {stream} is closed")

    async def open(self) -> Self:
        """Find the segment; done by ``async with``.

        :raises StreamNotFoundError: no such stream. :raises StreamSealedError: it is sealed.
        :raises InvalidArgumentError: it has more than one segment.
        :raises ClosedError: the writer or the client is closed, or was closed meanwhile.
        """
        with self._opening, self._waiters.waiting():
            if self._appender is None:
                await self._open()
        return self

    async def _open(self) -> None:
        self._core.check_open()
        segment_id = await _only_segment(self._core, self.stream)
        target = self._core.target(self.stream, segment_id, Access.READ_WRITE)
        self._metadata = SegmentMetadata(self._core.stores, target)
        if (await self._metadata.info()).is_sealed:
            raise self._sealed()
        # The client may have been closed meanwhile.
        self._core.check_open()
        self._appender = SegmentAppender(self._core.stores, target, self)
        self._counts.begin(self._written)
        self._core.nursery.start_soon(self._appender.run, name=f"appending to {target.name}")

    def _sealed(self) -> StreamSealedError:
        return StreamSealedError(
            f"byte stream {self.stream} is sealed: nothing can be appended",
            scope=self.stream.scope,
            stream=self.stream.name,
        )

    def _opened(self) -> tuple[SegmentAppender, SegmentMetadata]:
        self._waiters.check()
        self._check()
        if self._appender is None or self._metadata is None:
            raise ClosedError(f"the writer of byte stream {self.stream} is not open")
        return self._appender, self._metadata

    def _check(self) -> None:
        if self._error is not None:
            self._reported = True
            raise self._error

    # --- writing --------------------------------------------------------------------------------

    async def write(self, data: bytes | bytearray | memoryview) -> int:
        """Append bytes; returns their number once they are accepted (see :meth:`flush`).

        Waits only while ``max_outstanding_bytes`` are unacknowledged. Where this fails, or is cancelled while
        it waits, a beginning of the bytes may have been accepted.

        :raises StreamSealedError: the stream was sealed. :raises PravegaError: the writer failed.
        :raises ConcurrentUseError: another task is writing. :raises ClosedError: the writer is closed, or was
            closed meanwhile.
        """
        with self._writing:
            return await self._write(data)

    async def _write(self, data: bytes | bytearray | memoryview) -> int:
        appender, _ = self._opened()
        try:
            # Accepted bytes are resent after a lost connection, so the caller's buffer cannot be kept.
            view = memoryview(bytes(memoryview(data)))
        except TypeError as error:
            raise ArgumentTypeError(
                f"byte stream {self.stream} takes bytes, not {type(data).__name__}"
            ) from error
        total = len(view)
        while view:
            block = appender.appends.room(1)
            room = BLOCK_BYTES - block.size
            piece, view = view[:room], view[room:]
            # One number for each block is enough: it is stored whole or not at all.
            block.put([piece], (), len(piece), 1 - block.count)
            self._outstanding += len(piece)
            self._bytes_written += len(piece)
            appender.pump()
            if self._outstanding > self._limit:
                await self._wait_for_room()
        # Many small ones take their time as well.
        self._since_yield += total + _CALL_BYTES
        if self._since_yield > YIELD_BYTES:
            self._since_yield = 0
            await trio.lowlevel.checkpoint()
        return total

    async def _wait_for_room(self) -> None:
        appender, _ = self._opened()
        with self._waiters.waiting():
            while self._outstanding > self._limit and self._error is None:
                if self._room.is_set():
                    self._room = trio.Event()
                appender.force()
                await self._room.wait()
        self._check()

    @contextmanager
    def _as_trio(self) -> Iterator[None]:
        """A writer that has failed is broken for good, which trio has an error for."""
        try:
            yield
        except (ClosedError, ConcurrentUseError, InvalidArgumentError):
            raise
        except PravegaError as error:
            raise BrokenStreamError(
                f"the writer of byte stream {self.stream} has failed: {error.message}",
                scope=self.stream.scope,
                stream=self.stream.name,
                segment=error.segment,
                host=error.host,
            ) from error

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """:meth:`write`, as a :class:`trio.abc.SendStream`: with trio's errors.

        :raises BrokenStreamError: the writer has failed (also a :class:`trio.BrokenResourceError`); its
            ``__cause__`` is what :meth:`write` would raise.
        :raises ConcurrentUseError: also a :class:`trio.BusyResourceError`.
        :raises ClosedError: also a :class:`trio.ClosedResourceError`.
        """
        with self._as_trio(), self._writing:
            await trio.lowlevel.checkpoint()
            await self._write(data)

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until there is room. Errors as those of :meth:`send_all`."""
        with self._as_trio(), self._writing:
            await trio.lowlevel.checkpoint()
            self._opened()
            if self._outstanding > self._limit:
                await self._wait_for_room()

    async def flush(self) -> None:
        """Wait until everything accepted so far is stored.

        :raises StreamSealedError: the stream was sealed. :raises PravegaError: the writer failed.
        :raises ClosedError: the writer is closed, or was closed before all was stored.
        """
        self._opened()
        await self._flush()

    async def _flush(self) -> None:
        assert self._appender is not None
        try:
            await flush([self._appender]).wait()
        except PravegaError:
            self._reported = True
            raise

    async def seal(self) -> None:
        """Flush, and allow no more appends; readers come to an end.

        :raises ConcurrentUseError: another task is writing: it would be cut off in the middle.
        """
        with self._writing:
            await self._seal()

    async def _seal(self) -> None:
        await self.flush()
        with self._waiters.waiting():
            await self._core.controller.seal_stream(self.stream.scope, self.stream.name)

    async def send_eof(self) -> None:
        """:meth:`seal` and :meth:`aclose`, for :class:`trio.StapledStream`: with trio's errors.

        Closing alone does not end the stream for its readers: other writers may go on. Harmless when done
        again.
        """
        if self._eof_sent:
            await trio.lowlevel.checkpoint()
            return
        with self._as_trio(), self._writing:
            await trio.lowlevel.checkpoint()
            await self._seal()
            self._eof_sent = True
        await self.aclose()

    async def truncate(self, offset: int) -> None:
        """Drop the bytes before ``offset``.

        :raises InvalidArgumentError: beyond the end. :raises SegmentTruncatedError: dropped already.
        """
        _, metadata = self._opened()
        with self._waiters.waiting():
            info = await metadata.info()
            if not 0 <= offset <= info.write_offset:
                raise InvalidArgumentError(
                    f"byte stream {self.stream} cannot be truncated at {offset}: "
                    f"it ends at {info.write_offset}"
                )
            if offset > info.start_offset:
                await metadata.truncate(offset)

    async def fetch_head(self) -> int:
        """The first offset that can be read, in bytes."""
        _, metadata = self._opened()
        with self._waiters.waiting():
            return (await metadata.info()).start_offset

    async def fetch_tail(self) -> int:
        """The offset after the last stored byte."""
        _, metadata = self._opened()
        with self._waiters.waiting():
            return (await metadata.info()).write_offset

    async def aclose(self) -> None:
        """Flush and end. Cancelled, it ends without flushing.

        From the beginning nothing more is accepted: a task that waits in :meth:`write` gets
        :class:`ClosedError`, with what it had accepted by then flushed.

        :raises PravegaError: not everything accepted was stored, and no call before has said so.
        """
        self._waiters.close()
        try:
            if self._appender is None:
                await trio.lowlevel.checkpoint()
            elif self._error is None:
                await self._flush()
            else:
                await trio.lowlevel.checkpoint()
                if self._outstanding and not self._reported:
                    self._check()
        finally:
            self._end()

    def _end(self) -> None:
        self._waiters.close()
        self._reported = True
        self._fail(ClosedError(f"the writer of byte stream {self.stream} is closed"))

    def __repr__(self) -> str:
        state = state_of(self._appender is not None, self._error)
        return f"<ByteStreamWriter of {self.stream}, {state}, {self._outstanding} bytes not stored yet>"

    def __await__(self) -> Generator[Any, Any, Self]:
        return self.open().__await__()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            await self.aclose()
        else:
            self._end()
            await trio.lowlevel.checkpoint()

    def metrics(self) -> WriterMetrics:
        """Counters and latencies since the writer was opened; its events are none."""
        return self._counts.metrics(str(self.stream), *self._written())

    def _written(self) -> tuple[int, int, int]:
        return 0, self._bytes_written, self._outstanding

    # --- what the appender calls ----------------------------------------------------------------

    def acknowledged(self, size: int, count: int, seconds: float) -> None:
        """See :class:`AppenderOwner`."""
        self._outstanding -= size
        self._counts.acknowledged(0, size, seconds)
        if self._outstanding <= self._limit:
            self._room.set()

    def resent(self, blocks: int, count: int, size: int) -> None:
        """See :class:`AppenderOwner`."""
        self._counts.resent(blocks, 0, size)

    def reconnecting(self, error: PravegaError) -> None:
        """See :class:`AppenderOwner`."""
        self._counts.reconnecting(error)

    def failed(self, appender: SegmentAppender, error: PravegaError) -> None:
        """See :class:`AppenderOwner`."""
        self._fail(error)

    async def sealed(self, appender: SegmentAppender, error: PravegaError) -> None:
        """See :class:`AppenderOwner`."""
        self._fail(self._sealed())
        await trio.lowlevel.checkpoint()

    def _fail(self, error: PravegaError) -> None:
        if self._error is None:
            self._error = error
        if self._appender is not None:
            self._appender.fail(self._error)
            self._counts.end()
        self._room.set()


class ByteStreamReader(trio.abc.ReceiveStream):
    """Reads the bytes of a stream of one segment. Made by :meth:`PravegaClient.byte_stream_reader`.

    One task receives or seeks at a time: a second one gets :class:`ConcurrentUseError`.

    :ivar offset: of the next byte.
    """

    def __init__(self, core: ClientCore, stream: ScopedStream, start: int, *, follow: bool) -> None:
        self.stream = stream
        self._core = core
        self._follow = check_flag("follow", follow)
        self._start = check_count("start", start, 0)
        self._metadata: SegmentMetadata | None = None
        self._reader: RangeReader | None = None
        self._rest = memoryview(b"")
        self._alone = OneAtATime(f"another task is using the reader of byte stream {stream}")
        self._waiters = Waiters(f"the reader of byte stream {stream} is closed")

    async def open(self) -> Self:
        """Find the segment; done by ``async with``, and by the first read.

        :raises StreamNotFoundError: no such stream.
        :raises InvalidArgumentError: it has more than one segment, or ends before ``start``.
        :raises ClosedError: the reader or the client is closed, or was closed meanwhile.
        """
        with self._alone, self._waiters.waiting():
            await self._open()
        return self

    async def _open(self) -> None:
        if self._metadata is None:
            self._core.check_open()
            segment_id = await _only_segment(self._core, self.stream)
            target = self._core.target(self.stream, segment_id, Access.READ)
            self._metadata = SegmentMetadata(self._core.stores, target)
        if self._reader is None:
            await self._begin(self._start)

    async def _begin(self, offset: int) -> None:
        assert self._metadata is not None
        check_count("the offset in a byte stream", offset, 0)
        info = await self._metadata.info()
        if not 0 <= offset <= info.write_offset:
            raise InvalidArgumentError(
                f"byte stream {self.stream} has no offset {offset}: it ends at {info.write_offset}"
            )
        target = self._metadata.target
        reader: RangeReader
        if self._follow:
            reader = FollowingReader(self._core.stores, target, offset)
        else:
            reader = RangeReader(self._core.stores, target, offset, info.write_offset)
        if self._reader is not None:
            self._reader.close()
        self._reader = reader
        self._rest = memoryview(b"")

    @property
    def offset(self) -> int:
        """Offset of the next byte."""
        return self._start if self._reader is None else self._reader.offset - len(self._rest)

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """The next bytes, as soon as there are some; empty at the end.

        The end is that of a sealed stream; a reader that does not follow ends where the stream ended when it
        was opened or sought.

        :param max_bytes: at most this many, positive; default 64 KiB.
        :raises DataLossError: the bytes here were truncated; :meth:`seek` to :meth:`fetch_head`.
        :raises ConcurrentUseError: another task is receiving or seeking (also a
            :class:`trio.BusyResourceError`).
        :raises ClosedError: the reader is closed, or was closed meanwhile (also a
            :class:`trio.ClosedResourceError`).
        """
        size = _READ_BYTES if max_bytes is None else _count(max_bytes)
        with self._alone:
            await trio.lowlevel.checkpoint()
            with self._waiters.waiting():
                return await self._receive(size)

    async def _receive(self, size: int) -> bytes:
        await self._open()
        assert self._reader is not None
        if not self._rest:
            found = await self._reader.receive()
            if found is None:
                return b""
            self._rest = found
        piece, self._rest = self._rest[:size], self._rest[size:]
        self._reader.counts.read(0, len(piece))
        return bytes(piece)

    async def seek(self, offset: int) -> None:
        """Go on reading at ``offset`` (bytes from the stream's beginning, truncated ones included).

        :raises InvalidArgumentError: negative, or beyond the end.
        :raises ConcurrentUseError: another task is receiving or seeking.
        """
        with self._alone, self._waiters.waiting():
            await self._open()
            await self._begin(offset)

    async def fetch_head(self) -> int:
        """The first offset that can be read."""
        return (await self._info()).start_offset

    async def fetch_tail(self) -> int:
        """The offset after the last stored byte."""
        return (await self._info()).write_offset

    async def _info(self) -> StreamSegmentInfo:
        if self._metadata is None:
            await self.open()
        assert self._metadata is not None
        with self._waiters.waiting():
            return await self._metadata.info()

    async def aclose(self) -> None:
        """Give the connection back; a task that waits for bytes gets :class:`ClosedError`."""
        self._waiters.close()
        if self._reader is not None:
            self._reader.close()
        await trio.lowlevel.checkpoint()

    def __repr__(self) -> str:
        if self._waiters.closed:
            return f"<ByteStreamReader of {self.stream}, closed>"
        state = "not opened" if self._reader is None else f"open, at offset {self.offset}"
        return f"<ByteStreamReader of {self.stream}, {state}>"

    def __await__(self) -> Generator[Any, Any, Self]:
        return self.open().__await__()

    async def __aenter__(self) -> Self:
        return await self.open()
