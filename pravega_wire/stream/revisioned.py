"""Revisioned streams: optimistic concurrency on a stream of one segment."""

from __future__ import annotations

from typing import Generic, Self, TypeVar
from uuid import UUID

import trio

from pravega_wire.controller.tokens import Access
from pravega_wire.errors import (
    ClosedError,
    DataLossError,
    InvalidArgumentError,
    PravegaError,
    SealedStateError,
    SegmentSealedError,
    SegmentTruncatedError,
    StreamNotFoundError,
)
from pravega_wire.protocol import commands as c
from pravega_wire.protocol.append import HEADER_BYTES
from pravega_wire.protocol.events import EventBatch, parse_events
from pravega_wire.segment.conditional import ConditionalAppender
from pravega_wire.segment.following import FollowingReader
from pravega_wire.segment.handles import Waiters
from pravega_wire.segment.metadata import NULL_ATTRIBUTE, SegmentMetadata
from pravega_wire.segment.reader import EventRangeReader, RangeReader
from pravega_wire.serializers import Serializer
from pravega_wire.stream.core import ClientCore
from pravega_wire.stream.opening import opening
from pravega_wire.transport.limits import limited
from pravega_wire.types import Revision, ScopedStream

__all__ = ["RevisionReader", "RevisionedStream"]

T = TypeVar("T")

MARK_ATTRIBUTE = UUID("7df9a874-246c-c9d6-9397-cdd19ead68c5")
"""Segment attribute of the mark: the hash of "RevisionStreamClientMark" (client formats v0.13.0)."""

_READ_BYTES = 256 * 1024

_NEWS_SECONDS = 1.0
# So long a value that is on its way is waited for before its loss is thought of.


class RevisionedStream(Generic[T]):
    """Values in order, each appended only if the writer had seen everything before it.

    A :class:`Revision` is the offset after the value that produced it. Made by
    :meth:`PravegaClient.revisioned_stream`; the same format as the Java class of that name.

    Any number of tasks may use one. Once it is closed every method raises :class:`ClosedError`, also in tasks
    that are waiting at that time; a value that was being written may be stored.
    """

    def __init__(
        self, core: ClientCore, stream: ScopedStream, serializer: Serializer[T], segment_id: int
    ) -> None:
        self.stream = stream
        self._core = core
        self._serializer = serializer
        self._target = core.target(stream, segment_id, Access.READ_WRITE)
        self._metadata = SegmentMetadata(core.stores, self._target)
        self._appender = ConditionalAppender(core.stores, self._target)
        self._waiters = Waiters(
            f"revisioned stream {stream} is closed; what a call was writing at that time may be stored"
        )

    def __repr__(self) -> str:
        return f"<RevisionedStream {self.stream}, {'closed' if self._waiters.closed else 'open'}>"

    @property
    def _operation_timeout(self) -> float:
        return self._core.config.operation_timeout

    @classmethod
    async def open(
        cls, core: ClientCore, stream: ScopedStream, serializer: Serializer[T]
    ) -> RevisionedStream[T]:
        """Find the stream's segment.

        :raises StreamNotFoundError: no such stream.
        :raises InvalidArgumentError: it has more than one segment.
        """
        segments = await core.controller.get_current_segments(stream.scope, stream.name)
        if not segments:
            raise StreamNotFoundError(
                f"stream {stream} has no active segment (it is sealed or does not exist)",
                scope=stream.scope,
                stream=stream.name,
            )
        if len(segments) != 1:
            raise InvalidArgumentError(
                f"stream {stream} has {len(segments)} segments; a revisioned stream has one",
                scope=stream.scope,
                stream=stream.name,
            )
        return cls(core, stream, serializer, segments[0].segment_id)

    def _revision(self, offset: int) -> Revision:
        return Revision(self._target.name, offset, 0)

    def _offset(self, revision: Revision) -> int:
        if revision.segment != self._target.name:
            raise InvalidArgumentError(
                f"revision {revision.to_text()} is of another segment than {self._target.name}"
            )
        return revision.offset

    @limited("asking for the newest revision of {self.stream}")
    async def fetch_latest_revision(self) -> Revision:
        """The revision after the newest value."""
        return self._revision((await self._info()).write_offset)

    @limited("asking for the oldest revision of {self.stream}")
    async def fetch_oldest_revision(self) -> Revision:
        """The revision that reading everything starts from."""
        return self._revision((await self._info()).start_offset)

    async def _info(self) -> c.StreamSegmentInfo:
        with self._waiters.waiting():
            return await self._metadata.info()

    @opening
    @limited("preparing to read {self.stream}")
    async def read_from(self, start: Revision) -> RevisionReader[T]:
        """Values after ``start``, up to the newest at the time of this call.

        :raises DataLossError: values after ``start`` were truncated.
        """
        first = self._offset(start)
        info = await self._info()
        return self._read(first, info.write_offset, info)

    @opening
    @limited("preparing to read {self.stream}")
    async def read_range(self, start: Revision, end: Revision) -> RevisionReader[T]:
        """Values after ``start`` up to and with the one that produced ``end``.

        :raises DataLossError: values after ``start`` were truncated.
        """
        first, last = self._offset(start), self._offset(end)
        info = await self._info()
        if first >= info.start_offset and last > info.write_offset:
            raise InvalidArgumentError(
                f"revision {end.to_text()} is beyond the end ({info.write_offset}) of the stream"
            )
        return self._read(first, last, info)

    def _read(self, first: int, last: int, info: c.StreamSegmentInfo) -> RevisionReader[T]:
        if first < info.start_offset:
            raise DataLossError(
                f"{self._target.name}: values from offset {first} were truncated, the oldest "
                f"revision is {info.start_offset}",
                segment=self._target.name,
                start_offset=info.start_offset,
                offset=first,
            )
        reader = RangeReader(
            self._core.stores, self._target, first, max(first, last), chunk_bytes=_READ_BYTES
        )
        return RevisionReader(EventRangeReader(reader), self._target.name, self._serializer)

    async def read_news(self, revision: Revision) -> list[tuple[Revision, T]] | None:
        """All values after ``revision``, by a single question, where somebody is known to have written more.

        The store answers a conditional append that came too late before the value that was faster can be
        read; it holds this question until then.

        :returns: values with the revisions they produced; None when one answer does not have them all, or
            there was none: :meth:`read_from` reads them in any case, and says what is wrong.
        """
        offset = self._offset(revision)
        with self._waiters.waiting(), trio.move_on_after(_NEWS_SECONDS):
            try:
                reply = await self._core.stores.once(
                    self._target,
                    lambda request_id, token: c.ReadSegment(
                        segment=self._target.name,
                        offset=offset,
                        suggested_length=_READ_BYTES,
                        delegation_token=token,
                        request_id=request_id,
                    ),
                    c.SegmentRead,
                    doing="reading",
                )
                batch, consumed, _ = parse_events(reply.data, offset, segment=self._target.name)
            except PravegaError:
                return None
            if reply.at_tail and reply.offset == offset and 0 < consumed == len(reply.data):
                return [self._value(*each) for each in zip(batch.offsets(), batch.to_list(), strict=True)]
        return None

    def _value(self, offset: int, payload: bytes) -> tuple[Revision, T]:
        return self._revision(offset + HEADER_BYTES + len(payload)), self._serializer.deserialize(payload)

    async def wait_beyond(self, revision: Revision) -> None:
        """Wait until there is a value after ``revision``, or what was there is truncated.

        :raises SealedStateError: the stream was sealed, so there will be none.
        :raises ClosedError: this object is closed, or was closed meanwhile.
        """
        reader = FollowingReader(
            self._core.stores, self._target, self._offset(revision), chunk_bytes=HEADER_BYTES
        )
        try:
            with self._waiters.waiting():
                found = await reader.receive()
            if found is None:
                raise self._sealed()
        except DataLossError:
            return
        finally:
            reader.close()

    def _sealed(self) -> SealedStateError:
        return SealedStateError(
            f"revisioned stream {self.stream} was sealed", scope=self.stream.scope, stream=self.stream.name
        )

    @limited("writing to revisioned stream {self.stream}")
    async def write_conditionally(self, latest: Revision, value: T) -> Revision | None:
        """Append ``value`` if ``latest`` is still the newest revision.

        :returns: the new revision, or None when somebody else wrote meanwhile.
        :raises SealedStateError: the stream was sealed.
        :raises RetriesExhaustedError: no answer; whether the value is stored is not known.
        """
        payload = self._serializer.serialize(value)
        try:
            with self._waiters.waiting():
                offset = await self._appender.append(payload, self._offset(latest))
        except SegmentSealedError as error:
            raise self._sealed() from error
        return None if offset is None else self._revision(offset)

    @limited("writing to revisioned stream {self.stream}")
    async def write_unconditionally(self, value: T) -> Revision:
        """Append ``value`` whatever was written before; returns its revision."""
        # By the conditional path as well: it tells the revision, and never stores twice.
        while True:
            revision = await self.write_conditionally(await self.fetch_latest_revision(), value)
            if revision is not None:
                return revision

    @limited("reading the mark of {self.stream}")
    async def get_mark(self) -> Revision | None:
        """The mark, or None when none was set."""
        with self._waiters.waiting():
            value = await self._metadata.attribute(MARK_ATTRIBUTE)
        return None if value == NULL_ATTRIBUTE else self._revision(value)

    @limited("setting the mark of {self.stream}")
    async def compare_and_set_mark(self, expected: Revision | None, new: Revision | None) -> bool:
        """Move the mark if it is still ``expected`` (None: not set); False when it is not.

        When an answer was lost, a mark that is ``new`` counts as moved by this call.
        """
        before = NULL_ATTRIBUTE if expected is None else self._offset(expected)
        after = NULL_ATTRIBUTE if new is None else self._offset(new)
        with self._waiters.waiting():
            return await self._metadata.compare_and_set_attribute(MARK_ATTRIBUTE, before, after)

    @limited("truncating {self.stream}")
    async def truncate_to(self, revision: Revision) -> None:
        """Forget the values before ``revision``; nothing happens when they are gone already.

        :raises InvalidArgumentError: the revision is beyond the end of the stream.
        """
        offset = self._offset(revision)
        info = await self._info()
        if offset > info.write_offset:
            raise InvalidArgumentError(
                f"revision {revision.to_text()} is beyond the end ({info.write_offset})"
            )
        if offset > info.start_offset:
            try:
                with self._waiters.waiting():
                    await self._metadata.truncate(offset)
            except SegmentTruncatedError:
                # Somebody else truncated further meanwhile.
                return

    async def aclose(self) -> None:
        """Give the connection back; tasks that wait in a call get :class:`ClosedError`."""
        self._waiters.close()
        self._appender.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()


class RevisionReader(Generic[T]):
    """``async for revision, value in reader``; values in order."""

    def __init__(self, reader: EventRangeReader, segment: str, serializer: Serializer[T]) -> None:
        self._reader = reader
        self._segment = segment
        self._serializer = serializer
        self._batch: list[tuple[int, bytes]] = []
        self._closed = False

    def __repr__(self) -> str:
        return f"<RevisionReader of {self._segment}>"

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[Revision, T]:
        found = await self.next_value()
        if found is None:
            raise StopAsyncIteration
        return found

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def next_value(self) -> tuple[Revision, T] | None:
        """The next value with the revision it produced, or None after the last.

        :raises ClosedError: the reader is closed, or was closed meanwhile.
        """
        if self._closed:
            raise ClosedError(f"the reader of {self._segment} is closed")
        while not self._batch:
            batch: EventBatch | None = await self._reader.next_batch()
            if batch is None:
                return None
            self._batch = list(zip(batch.offsets(), batch.to_list(), strict=True))
            self._batch.reverse()
        return self._made(*self._batch.pop())

    def _made(self, offset: int, payload: bytes) -> tuple[Revision, T]:
        revision = Revision(self._segment, offset + HEADER_BYTES + len(payload), 0)
        return revision, self._serializer.deserialize(payload)

    async def next_values(self) -> list[tuple[Revision, T]]:
        """The next values with their revisions, as many as have arrived; an empty list after the last."""
        first = await self.next_value()
        if first is None:
            return []
        values = [first]
        while self._batch:
            values.append(self._made(*self._batch.pop()))
        return values

    async def aclose(self) -> None:
        """Give the connection back."""
        self._closed = True
        await self._reader.aclose()
