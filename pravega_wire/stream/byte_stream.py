"""Streams of plain bytes, without events: :class:`ByteStreamWriter` and :class:`ByteStreamReader`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self

import trio

from pravega_wire.controller.tokens import Access
from pravega_wire.errors import (
    ArgumentTypeError,
    BrokenStreamError,
    ClosedError,
    ConcurrentUseError,
    InvalidArgumentError,
    NoSuchSegmentError,
    PravegaError,
    StreamNotFoundError,
    StreamSealedError,
)
from pravega_wire.metrics import WriterMetrics
from pravega_wire.protocol.append import BLOCK_BYTES
from pravega_wire.protocol.commands import StreamSegmentInfo
from pravega_wire.segment.appender import AppenderOwner, SegmentAppender, flush
from pravega_wire.segment.following import FollowingReader
from pravega_wire.segment.handles import OneAtATime, Waiters, state_of, when_dropped
from pravega_wire.segment.metadata import SegmentMetadata
from pravega_wire.segment.reader import RangeReader
from pravega_wire.segment.store import SegmentTarget
from pravega_wire.stream.batch import successors
from pravega_wire.stream.core import ClientCore, not_shared
from pravega_wire.stream.routing import DEFAULT_MAX_OUTSTANDING_BYTES, YIELD_BYTES
from pravega_wire.support.checks import check_buffer, check_bytes, check_count, check_flag
from pravega_wire.transport.limits import limited
from pravega_wire.values.types import ScopedStream

__all__ = ["ByteStreamReader", "ByteStreamWriter"]

_READ_BYTES = 64 * 1024

_CALL_BYTES = 512
"""Added to the size of each write when deciding whether to let other tasks run, as calls also take time."""


def given_size(max_bytes: object) -> int:
    """The most bytes that a read returns, as a caller gave it.

    :raises InvalidArgumentError: the number is less than 1, or no int.
    """
    try:
        # True would be taken as 1.
        if isinstance(max_bytes, bool):
            raise TypeError
        count = operator.index(max_bytes)  # type: ignore[arg-type]
    except TypeError:
        raise ArgumentTypeError(f"max_bytes must be an int, not {type(max_bytes).__name__}") from None
    if count < 1:
        raise InvalidArgumentError(f"max_bytes must be at least 1, not {count}")
    return count


def read_size(max_bytes: int | None) -> int:
    """The most bytes that :meth:`ByteStreamReader.receive_some` returns.

    :raises InvalidArgumentError: the number is less than 1, or no int.
    """
    return _READ_BYTES if max_bytes is None else given_size(max_bytes)


async def _only_segment(core: ClientCore, stream: ScopedStream) -> int:
    """The one segment of a stream, sealed or not.

    :raises StreamNotFoundError: the stream does not exist.
    :raises InvalidArgumentError: the stream has more than one segment.
    """
    head = await core.controller.get_segments(stream.scope, stream.name)
    if not head:
        raise StreamNotFoundError(f"stream {stream} has no segment", scope=stream.scope, stream=stream.name)
    if len(head) != 1:
        raise InvalidArgumentError(
            f"stream {stream} has {len(head)} segments; a byte stream must have exactly one",
            scope=stream.scope,
            stream=stream.name,
        )
    return next(iter(head))


async def _scaled(core: ClientCore, target: SegmentTarget) -> StreamSealedError | None:
    """The error of a sealed segment that other segments follow; None if the stream was sealed."""
    stream = ScopedStream(target.scope, target.stream)
    if not (await successors(core, stream, target.segment_id)).segments:
        return None
    return StreamSealedError(
        f"the segment of byte stream {stream} is sealed because the stream was scaled",
        scope=stream.scope,
        stream=stream.name,
        segment=target.name,
    )


class ByteStreamWriter(trio.abc.SendStream):
    """Appends bytes to a stream of one segment. Made by :meth:`PravegaClient.byte_stream_writer`.

    Bytes are stored in order and exactly once, through lost connections and failing stores. They have no
    event headers, so only a :class:`ByteStreamReader` (here or in Java) can read such a stream.

    It is for one caller at a time: another one gets :class:`ConcurrentUseError`, and none of its bytes
    are accepted. Others may call :meth:`flush` and :meth:`aclose` at any time.

    Example::

        async with client.byte_stream_writer("demo/images") as writer:
            await writer.write(b"first part, ")
            await writer.write(b"second part")
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
        self._opening = OneAtATime(f"another call is opening the writer of byte stream {stream}")
        self._writing = OneAtATime(f"another call is writing to byte stream {stream}")
        # Closed as soon as closing begins. Accepted bytes are still flushed then.
        self._waiters = Waiters(f"the writer of byte stream {stream} is closed", core.stores.thread)

    __reduce__ = not_shared

    async def __aenter__(self) -> Self:
        """Find the segment.

        :raises StreamNotFoundError: the stream does not exist.
        :raises StreamSealedError: the stream is sealed.
        :raises InvalidArgumentError: the stream has more than one segment.
        :raises ClosedError: the writer or the client was closed before or during this call.
        """
        with self._opening, self._waiters.waiting():
            if self._appender is None:
                await self._open()
        return self

    @limited("opening the writer of byte stream {self.stream}")
    async def _open(self) -> None:
        self._core.check_open()
        segment_id = await _only_segment(self._core, self.stream)
        target = self._core.target(self.stream, segment_id, Access.READ_WRITE)
        self._metadata = SegmentMetadata(self._core.stores, target)
        if (await self._metadata.info()).is_sealed:
            raise await _scaled(self._core, target) or self._stream_sealed()
        # The client may have been closed in between.
        self._core.check_open()
        self._appender = SegmentAppender(
            self._core.stores,
            target,
            AppenderOwner(
                acknowledged=self._acknowledged,
                resent=self._resent,
                reconnecting=self._counts.reconnecting,
                failed=self._failed,
                sealed=self._sealed,
            ),
        )
        self._counts.begin(self._written)
        self._core.nursery.start_soon(self._appender.run, name=f"appending to {target.name}")

    def _stream_sealed(self) -> StreamSealedError:
        return StreamSealedError(
            f"byte stream {self.stream} is sealed and takes no more bytes",
            scope=self.stream.scope,
            stream=self.stream.name,
        )

    def _opened(self) -> tuple[SegmentAppender, SegmentMetadata]:
        self._waiters.check()
        self._check()
        if self._appender is None or self._metadata is None:
            raise ClosedError(
                f"the writer of byte stream {self.stream} is not open: enter it as a context manager first"
            )
        return self._appender, self._metadata

    def _check(self) -> None:
        if self._error is not None:
            self._reported = True
            raise self._error

    # --- writing --------------------------------------------------------------------------------

    async def write(self, data: bytes | bytearray | memoryview) -> int:
        """Append bytes. Returns their number as soon as they are accepted; see :meth:`flush`.

        The call waits only while more than ``max_outstanding_bytes`` are unacknowledged. If it fails, or is
        cancelled while it waits, the first part of the bytes may have been accepted.

        :raises StreamSealedError: the stream is sealed, or was scaled.
        :raises StreamNotFoundError: the stream was deleted, also if it was created again since.
        :raises PravegaError: the writer has failed, for the reason given in the error.
        :raises ConcurrentUseError: another call is writing.
        :raises ClosedError: the writer was closed before or during this call.
        """
        with self._writing:
            return await self._write(data)

    async def _write(self, data: bytes | bytearray | memoryview) -> int:
        appender, _ = self._opened()
        # Accepted bytes are resent after a lost connection, so copy them from the caller's buffer.
        view = memoryview(check_buffer(data, f"data for byte stream {self.stream}"))
        total = len(view)
        while view:
            block = appender.appends.room(1)
            room = BLOCK_BYTES - block.size
            piece, view = view[:room], view[room:]
            # One number for each block is enough, because a block is stored as a whole or not at all.
            block.put([piece], (), len(piece), 1 - block.count)
            self._outstanding += len(piece)
            self._bytes_written += len(piece)
            appender.pump()
            if self._outstanding > self._limit:
                await self._wait_for_room()
        # Many small writes take time as well.
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
        """Raise errors that break the writer as trio's error for a broken stream."""
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
        """Append bytes, as :meth:`write` does: the name that writers to streams share.

        :raises BrokenStreamError: the writer has failed. Its ``__cause__`` is the error that :meth:`write`
            would raise.
        :raises ConcurrentUseError: another call is writing.
        :raises ClosedError: the writer is closed.
        """
        with self._as_trio(), self._writing:
            await trio.lowlevel.checkpoint()
            await self._write(data)

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until the writer accepts bytes without waiting. The errors are those of :meth:`send_all`."""
        with self._as_trio(), self._writing:
            await trio.lowlevel.checkpoint()
            self._opened()
            if self._outstanding > self._limit:
                await self._wait_for_room()

    async def flush(self) -> None:
        """Wait until all bytes accepted so far are stored.

        :raises StreamSealedError: the stream is sealed.
        :raises PravegaError: the writer failed.
        :raises ClosedError: the writer was closed before all bytes were stored.
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
        """Flush and seal the stream. It takes no more bytes, and its readers reach an end.

        :raises ConcurrentUseError: another call is writing, and would be interrupted.
        """
        with self._writing:
            await self._seal()

    async def _seal(self) -> None:
        await self.flush()
        with self._waiters.waiting():
            await self._core.controller.seal_stream(self.stream.scope, self.stream.name)

    async def send_eof(self) -> None:
        """Seal the stream and close the writer: the name that streams with two directions share.

        Closing alone does not end the stream for its readers, because other writers may continue. Repeating
        the call does nothing.
        """
        if self._eof_sent:
            await trio.lowlevel.checkpoint()
            return
        with self._as_trio(), self._writing:
            await trio.lowlevel.checkpoint()
            await self._seal()
            self._eof_sent = True
        await self.aclose()

    @limited("truncating byte stream {self.stream}")
    async def truncate(self, offset: int) -> None:
        """Delete the bytes before ``offset``.

        :raises InvalidArgumentError: the offset is negative or beyond the end.
        :raises SegmentTruncatedError: another process has truncated further at the same time.
        """
        offset = check_count(f"offset in byte stream {self.stream}", offset, 0)
        _, metadata = self._opened()
        with self._waiters.waiting():
            info = await metadata.info()
            if offset > info.write_offset:
                raise InvalidArgumentError(
                    f"byte stream {self.stream} cannot be truncated at {offset}: "
                    f"it ends at {info.write_offset}"
                )
            if offset > info.start_offset:
                await metadata.truncate(offset)

    async def head(self) -> int:
        """Return the first offset that can be read, in bytes."""
        _, metadata = self._opened()
        with self._waiters.waiting():
            return (await metadata.info()).start_offset

    async def tail(self) -> int:
        """Return the offset after the last stored byte."""
        _, metadata = self._opened()
        with self._waiters.waiting():
            return (await metadata.info()).write_offset

    async def aclose(self) -> None:
        """Flush and close. If this is cancelled, the writer closes without flushing.

        Nothing is accepted from the start of this call: a call that waits in :meth:`write` gets
        :class:`ClosedError`. The bytes it had accepted by then are flushed.

        :raises PravegaError: some accepted bytes were not stored, and no earlier call has reported that.
        """
        self._waiters.close()
        try:
            if self._appender is None:
                await trio.lowlevel.checkpoint()
            elif self._error is None:
                with self._core.leaving.noted():
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
        return self.__aenter__().__await__()

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            await self.aclose()
        else:
            self._end()
            await trio.lowlevel.checkpoint()

    def metrics(self) -> WriterMetrics:
        """Return the counters and latencies since the writer was opened. The number of events is 0."""
        return self._counts.metrics(str(self.stream), *self._written())

    def _written(self) -> tuple[int, int, int]:
        return 0, self._bytes_written, self._outstanding

    # --- called by the appender -----------------------------------------------------------------

    def _acknowledged(self, size: int, count: int, seconds: float) -> None:
        self._outstanding -= size
        self._counts.acknowledged(0, size, seconds)
        if self._outstanding <= self._limit:
            self._room.set()

    def _resent(self, blocks: int, count: int, size: int) -> None:
        # The blocks are no events to the user.
        self._counts.resent(blocks, 0, size)

    def _failed(self, appender: SegmentAppender, error: PravegaError) -> None:
        self._fail(error)

    async def _sealed(self, appender: SegmentAppender, error: PravegaError) -> None:
        try:
            failure = await self._ending(appender, error)
        except PravegaError as unanswered:
            failure = unanswered
        self._fail(failure)

    async def _ending(self, appender: SegmentAppender, error: PravegaError) -> PravegaError:
        """Why the segment takes no more bytes, if the stream still exists."""
        core, stream = self._core, self.stream
        if isinstance(error, NoSuchSegmentError):
            if await core.controller.get_current_segments(stream.scope, stream.name):
                return StreamNotFoundError(
                    f"the segment of byte stream {stream} is gone, and the stream has another one: it was "
                    "deleted and created again, or scaled. Open another writer",
                    scope=stream.scope,
                    stream=stream.name,
                    segment=appender.target.name,
                )
        elif scaled := await _scaled(core, appender.target):
            return scaled
        return self._stream_sealed()

    def _fail(self, error: PravegaError) -> None:
        if self._error is None:
            self._error = error
        if self._appender is not None:
            self._appender.fail(self._error)
            self._counts.end()
        self._room.set()


class ByteStreamReader(trio.abc.ReceiveStream):
    """Reads the bytes of a stream of one segment. Made by :meth:`PravegaClient.byte_stream_reader`.

    Close it (``aclose`` or ``async with``) when you stop reading; a reader that nobody refers to any more
    closes itself. It is for one caller at a time: another one gets :class:`ConcurrentUseError`.

    Example::

        async with client.byte_stream_reader("demo/images", follow=False) as reader:
            while data := await reader.receive_some():
                print(len(data), "bytes")

    :ivar offset: the offset of the next byte.
    """

    def __init__(self, core: ClientCore, stream: ScopedStream, start: int, *, follow: bool) -> None:
        self.stream = stream
        self._core = core
        self._follow = check_flag("follow", follow)
        self._start = check_count("start", start, 0)
        self._metadata: SegmentMetadata | None = None
        self._reader: RangeReader | None = None
        self._forget_reader: Callable[[], object]
        self._rest = memoryview(b"")
        self._sealed = False
        self._alone = OneAtATime(f"another call is using the reader of byte stream {stream}")
        self._waiters = Waiters(f"the reader of byte stream {stream} is closed", core.stores.thread)

    __reduce__ = not_shared

    async def __aenter__(self) -> Self:
        """Find the segment; the first read does this as well.

        :raises StreamNotFoundError: the stream does not exist.
        :raises InvalidArgumentError: the stream has more than one segment, or ends before ``start``.
        :raises ClosedError: the reader or the client was closed before or during this call.
        """
        with self._alone, self._waiters.waiting():
            await self._open()
        return self

    @limited("opening the reader of byte stream {self.stream}")
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
        info = await self._metadata.info()
        if offset > info.write_offset:
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
            self._forget_reader()
        self._forget_reader = when_dropped(self, reader.close, lambda: reader.connected)
        self._reader = reader
        self._rest = memoryview(b"")

    @property
    def offset(self) -> int:
        """Offset of the next byte."""
        return self._start if self._reader is None else self._reader.offset - len(self._rest)

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Return the next bytes as soon as there are some; ``b""`` at the end.

        The end is that of a sealed stream. With ``follow=False`` it is the length of the stream when the
        reader was opened or last sought.

        :param max_bytes: the most bytes to return, at least 1. The default is 64 KiB.
        :raises StreamSealedError: the bytes end here because the stream was scaled; it was not sealed.
        :raises DataLossError: the bytes at this offset were truncated. Continue with :meth:`seek` to
            :meth:`head`.
        :raises ConcurrentUseError: another call is receiving or seeking.
        :raises ClosedError: the reader was closed before or during this call.
        """
        size = read_size(max_bytes)
        with self._alone:
            await trio.lowlevel.checkpoint()
            with self._waiters.waiting():
                return await self._receive(size)

    async def read(self, max_bytes: int) -> bytes:
        """Return the next bytes, as :meth:`receive_some` does: the name that files share.

        :param max_bytes: the most bytes to return, at least 1.
        """
        return await self.receive_some(given_size(max_bytes))

    async def _receive(self, size: int) -> bytes:
        await self._open()
        assert self._reader is not None
        if not self._rest:
            found = await self._reader.receive()
            if found is None:
                if self._follow and not self._sealed:
                    # Otherwise whoever reads to the end would take this for the whole.
                    with suppress(StreamNotFoundError):
                        if scaled := await _scaled(self._core, self._reader.target):
                            raise scaled
                    self._sealed = True
                return b""
            self._rest = found
        piece, self._rest = self._rest[:size], self._rest[size:]
        self._reader.counts.read(0, len(piece))
        return bytes(piece)

    async def seek(self, offset: int) -> None:
        """Continue reading at ``offset``, in bytes from the stream's beginning (truncated bytes included).

        :raises InvalidArgumentError: the offset is negative or beyond the end.
        :raises ConcurrentUseError: another call is receiving or seeking.
        """
        offset = check_count("the offset in a byte stream", offset, 0)
        with self._alone, self._waiters.waiting():
            await self._open()
            await self._begin(offset)

    async def head(self) -> int:
        """Return the first offset that can be read."""
        return (await self._info()).start_offset

    async def tail(self) -> int:
        """Return the offset after the last stored byte."""
        return (await self._info()).write_offset

    async def _info(self) -> StreamSegmentInfo:
        if self._metadata is None:
            await self
        assert self._metadata is not None
        with self._waiters.waiting():
            return await self._metadata.info()

    async def aclose(self) -> None:
        """Release the connection. A call that waits for bytes gets :class:`ClosedError`."""
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
        return self.__aenter__().__await__()
