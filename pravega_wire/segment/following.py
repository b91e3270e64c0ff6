"""Reading a segment beyond its current end: see :class:`FollowingReader`."""

from __future__ import annotations

import logging
from typing import Final

import trio

from pravega_wire.errors import NoSuchSegmentError, PravegaError
from pravega_wire.protocol import commands as c
from pravega_wire.segment.failures import data_read
from pravega_wire.segment.metadata import SegmentMetadata
from pravega_wire.segment.reader import CHUNK_BYTES, DEPTH, RangeReader
from pravega_wire.segment.store import SegmentStores, SegmentTarget

__all__ = ["FollowingReader"]

log = logging.getLogger(__name__)

_UNKNOWN_END: Final = 2**63 - 1
_STEADY_SECONDS: Final = 5.0
_CHECK_SECONDS: Final = 30.0


class FollowingReader(RangeReader):
    """Reads a segment from an offset, and waits at its end for more until the segment is sealed.

    One request is in flight while there is room for its data; at the end of the segment, while nothing that
    has arrived waits for the caller. The store holds it until bytes arrive (``docs/protocol/wire.md``, "Tail
    reads"), so they are received as soon as they are stored. Twice a minute it asks how long the segment is,
    in case the store has forgotten a read that it holds, or its answer was lost.

    :param stores: connections to segment stores.
    :param target: the segment.
    :param start: first offset, bytes; not beyond the segment's end.
    :param end: offset to stop at, even if the segment is not sealed there; default: the segment's end once it
        is sealed.
    :param chunk_bytes: bytes of one request.
    :param depth: the most chunks that may wait for the caller.
    :ivar sealed: True once the segment's end is known because it is sealed.
    """

    def __init__(
        self,
        stores: SegmentStores,
        target: SegmentTarget,
        start: int,
        end: int = _UNKNOWN_END,
        *,
        chunk_bytes: int = CHUNK_BYTES,
        depth: int = DEPTH,
    ) -> None:
        super().__init__(stores, target, start, end, chunk_bytes=chunk_bytes, depth=depth)
        self.sealed = False
        self._connected_at = 0.0
        # At the end the store answers when there is something to read, however long that takes. The
        # connection notices if the store is gone.
        self._patience = None
        # What it reads has no end to be beyond.
        self._end_checked = True

    async def _connect(self) -> None:
        """See :class:`RangeReader`."""
        await super()._connect()
        self._connected_at = trio.current_time()

    async def _recover(self, error: PravegaError) -> None:
        """See :class:`RangeReader`."""
        steady = min(_STEADY_SECONDS, self._stores.operation_timeout / 8)
        if (
            self._flow is not None
            and trio.current_time() - self._flow.connection.silent_for - self._connected_at >= steady
        ):
            # Waiting on a store that answers is a success: this does not count as another attempt.
            self._backoff.reset(self._flow.connection.silent_for)
        await super()._recover(error)

    async def _wait(self) -> None:
        """See :class:`RangeReader`."""
        while not self._arrived.is_set():
            with trio.move_on_after(_CHECK_SECONDS):
                await self._arrived.wait()
                return
            if await self._is_owed():
                # It no longer waits for data: what does not come now is a failure, as of any read.
                self._patience = self._stores.limits.attempt
                try:
                    await super()._wait()
                finally:
                    self._patience = None

    async def _is_owed(self) -> bool:
        """Whether the store holds a read that it should have answered with bytes, which are asked for again.

        If it should have answered that there is nothing more, this is the end, or a failure.
        """
        at = self._next
        try:
            info = await SegmentMetadata(self._stores, self.target).info()
        except NoSuchSegmentError as error:
            if not self._arrived.is_set():
                self._fail(error)
            return False
        except PravegaError:
            # If the store is gone, the connection tells; other errors are those of the next read.
            return False
        if self._arrived.is_set() or self._next != at or not self._asked:
            return False
        if info.write_offset > at:
            log.info("%s has more than %d bytes, but no answer came: asking again", self.target.name, at)
            self._asked.clear()
            self._ask_ahead()
            return True
        if info.is_sealed:
            log.info("%s was sealed at %d, but no answer came", self.target.name, at)
            self._end_at(at)
        return False

    @property
    def at_end(self) -> bool:
        """True once everything was received and no more will follow."""
        return self.offset >= self.end

    def on_reply(self, reply: c.Command) -> bool:
        """See :class:`FlowHandler`."""
        asked = self._asked.pop(c.reply_request_id(reply), None)
        if asked is None:
            return False
        offset, length = asked
        read = reply if isinstance(reply, c.SegmentRead) else None
        if isinstance(reply, c.SegmentIsSealed) or (
            read is not None and read.offset == offset and read.end_of_segment and not read.data
        ):
            self._end_at(offset)
            return True
        try:
            data = data_read(reply, offset, length, end=self.end, segment=self.target.name, host=self._host)
        except PravegaError as error:
            self._fail(error)
            return True
        assert read is not None
        self.counts.received(len(data))
        self._chunks[offset] = data
        self._next = offset + len(data)
        self._arrived.set()
        if read.end_of_segment and len(data) == len(read.data):
            self._end_at(self._next)
        elif len(data) == length:
            self._ask_ahead()
        # Else these are the last bytes for now: the next request is sent when they are taken. By then there
        # may be more, which come in one answer.
        return True

    def _end_at(self, offset: int) -> None:
        self.end = offset
        self.sealed = True
        self._arrived.set()

    def _ask_ahead(self) -> None:
        if self._asked or self._failure is not None:
            return
        if self._next < self.end and len(self._chunks) < self._ahead.depth:
            self._ask(self._next, min(self.chunk_bytes, self.end - self._next))
