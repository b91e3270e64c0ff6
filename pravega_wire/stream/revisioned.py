"""Revisioned streams: optimistic concurrency on a stream of one segment."""

from __future__ import annotations

import sys
from typing import Generic, Self, TypeVar
from uuid import UUID

import trio

from pravega_wire.controller.tokens import Access
from pravega_wire.errors import (
    ArgumentTypeError,
    ClosedError,
    CorruptedStateError,
    DataLossError,
    DecodeError,
    IncompatibleVersionError,
    InvalidArgumentError,
    PravegaError,
    SealedStateError,
    SegmentSealedError,
    SegmentTruncatedError,
    StreamNotFoundError,
    placed,
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
from pravega_wire.stream.core import ClientCore, not_shared
from pravega_wire.stream.opening import opening
from pravega_wire.stream.user_functions import looks_like_the_end
from pravega_wire.support.checks import check_payload, check_serializer
from pravega_wire.transport.limits import limited
from pravega_wire.values.naming import names_of
from pravega_wire.values.types import Revision, ScopedStream

__all__ = ["RevisionReader", "RevisionedStream", "deserialized", "only_segment", "read_news"]

T = TypeVar("T")

MARK_ATTRIBUTE = UUID("7df9a874-246c-c9d6-9397-cdd19ead68c5")
"""Segment attribute of the mark: the hash of "RevisionStreamClientMark", as in Pravega 0.13.0."""

_READ_BYTES = 256 * 1024

_NEWS_SECONDS = 1.0
"""Seconds to wait for a value that was just written before assuming that the answer is lost."""


class RevisionedStream(Generic[T]):
    """An ordered stream of values, each appended only if its writer had seen all earlier ones.

    Made by :meth:`PravegaClient.revisioned_stream`. A :class:`Revision` is the offset after the value that
    produced it. The format is that of the Java class of the same name.

    Any number of callers may share an object. Once it is closed, every method raises :class:`ClosedError`,
    also calls that are waiting at that time. A value that was being written then may or may not be stored.

    Example::

        async with client.revisioned_stream("demo/settings") as stream:
            latest = await stream.latest_revision()
            revision = await stream.write_conditionally(latest, b"limit=10")
            if revision is None:
                print("another process has written in between")
    """

    def __init__(
        self, core: ClientCore, stream: ScopedStream, serializer: Serializer[T], segment_id: int
    ) -> None:
        self.stream = stream
        self._core = core
        self._turn = core.turn(stream)
        self._serializer = serializer
        self._target = core.target(stream, segment_id, Access.READ_WRITE)
        self._metadata = SegmentMetadata(core.stores, self._target)
        self._appender = ConditionalAppender(core.stores, self._target)
        self._waiters = Waiters(
            f"revisioned stream {stream} is closed; a value that was being written may be stored",
            core.stores.thread,
        )

    __reduce__ = not_shared

    def __repr__(self) -> str:
        return f"<RevisionedStream {self.stream}, {'closed' if self._waiters.closed else 'open'}>"

    @classmethod
    async def open(
        cls, core: ClientCore, stream: ScopedStream, serializer: Serializer[T]
    ) -> RevisionedStream[T]:
        """Find the stream's segment; see :func:`only_segment`."""
        check_serializer(f"revisioned stream {stream}: serializer", serializer)
        return cls(core, stream, serializer, await only_segment(core, stream))

    def _revision(self, offset: int) -> Revision:
        return Revision(self._target.name, offset, 0)

    def _offset(self, revision: Revision) -> int:
        if not isinstance(revision, Revision):
            raise ArgumentTypeError(
                f"a revision of stream {self.stream} must be a Revision, not {type(revision).__name__}",
                scope=self.stream.scope,
                stream=self.stream.name,
            )
        if revision.segment != self._target.name:
            raise InvalidArgumentError(
                f"revision {revision.to_text()} does not belong to segment {self._target.name}"
            )
        return revision.offset

    @limited("fetching the newest revision of {self.stream}")
    async def latest_revision(self) -> Revision:
        """Return the revision after the newest value."""
        return self._revision((await self._info()).write_offset)

    @limited("fetching the oldest revision of {self.stream}")
    async def oldest_revision(self) -> Revision:
        """Return the revision before the oldest value: reading from it reads everything."""
        return self._revision((await self._info()).start_offset)

    async def _info(self) -> c.StreamSegmentInfo:
        with self._waiters.waiting():
            return await self._metadata.info()

    @opening
    @limited("preparing to read {self.stream}")
    async def read_from(self, start: Revision) -> RevisionReader[T]:
        """Read the values after ``start``, up to the newest one at the time of this call.

        :raises DataLossError: values after ``start`` were truncated.
        :raises InvalidArgumentError: ``start`` belongs to another stream, or is beyond the stream's end.
        """
        first = self._offset(start)
        info = await self._info()
        self._check_end(start, info)
        return self._read(first, info.write_offset, info)

    @opening
    @limited("preparing to read {self.stream}")
    async def read_range(self, start: Revision, end: Revision) -> RevisionReader[T]:
        """Read the values after ``start``, up to and including the one that produced ``end``.

        :raises DataLossError: values after ``start`` were truncated.
        :raises InvalidArgumentError: a revision belongs to another stream, or is beyond the stream's end.
        """
        first, last = self._offset(start), self._offset(end)
        info = await self._info()
        if first >= info.start_offset:
            self._check_end(start, info)
            self._check_end(end, info)
        return self._read(first, last, info)

    def _check_end(self, revision: Revision, info: c.StreamSegmentInfo) -> None:
        if revision.offset > info.write_offset:
            raise InvalidArgumentError(
                f"revision {revision.to_text()} is beyond the end of {self._target.name}, offset "
                f"{info.write_offset}"
            )

    def _read(self, first: int, last: int, info: c.StreamSegmentInfo) -> RevisionReader[T]:
        if first < info.start_offset:
            raise DataLossError(
                f"{self._target.name}: values from offset {first} were truncated; the oldest "
                f"revision is at offset {info.start_offset}",
                segment=self._target.name,
                start_offset=info.start_offset,
                offset=first,
            )
        reader = RangeReader(
            self._core.stores, self._target, first, max(first, last), chunk_bytes=_READ_BYTES
        )
        return RevisionReader(EventRangeReader(reader), self._target.name, self._serializer)

    def _value(self, offset: int, payload: bytes) -> tuple[Revision, T]:
        revision = self._revision(offset + HEADER_BYTES + len(payload))
        return revision, _value_of(revision, payload, self._serializer)

    async def wait_beyond(self, revision: Revision) -> None:
        """Wait until a value after ``revision`` is stored, or until the place is truncated.

        :raises SealedStateError: the stream was sealed, so there will be no more values.
        :raises ClosedError: this object was closed before or during this call.
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
            f"revisioned stream {self.stream} is sealed and takes no more values",
            scope=self.stream.scope,
            stream=self.stream.name,
        )

    @limited("writing to revisioned stream {self.stream}")
    async def write_conditionally(self, latest: Revision, value: T) -> Revision | None:
        """Append ``value`` if ``latest`` is still the newest revision.

        :returns: the new revision, or None if another writer has appended in between.
        :raises SealedStateError: the stream is sealed.
        :raises RetriesExhaustedError: there was no answer. The value may or may not be stored.
        """
        payload = check_payload(f"stream {self.stream}: a value", self._serializer.serialize(value))
        try:
            with self._waiters.waiting():
                offset = await self._appender.append(payload, self._offset(latest))
        except SegmentSealedError as error:
            raise self._sealed() from error
        return None if offset is None else self._revision(offset)

    @limited("writing to revisioned stream {self.stream}")
    async def write_unconditionally(self, value: T) -> Revision:
        """Append ``value`` regardless of earlier values. Returns its revision."""
        # The conditional append is used here too: it returns the revision and never stores a value twice.
        while True:
            revision = await self.write_conditionally(await self.latest_revision(), value)
            if revision is not None:
                return revision

    @limited("reading the mark of {self.stream}")
    async def mark(self) -> Revision | None:
        """Return the mark, or None if none is set.

        :raises CorruptedStateError: the stored mark is a negative offset, which no revision has.
        """
        with self._waiters.waiting():
            value = await self._metadata.attribute(MARK_ATTRIBUTE)
        if value == NULL_ATTRIBUTE:
            return None
        if value < 0:
            raise CorruptedStateError(
                f"the mark of stream {self.stream} is at offset {value}, which no revision has",
                scope=self.stream.scope,
                stream=self.stream.name,
            )
        return self._revision(value)

    @limited("setting the mark of {self.stream}")
    async def compare_and_set_mark(self, expected: Revision | None, new: Revision | None) -> bool:
        """Set the mark to ``new`` if it is still ``expected``. Returns False if it differs.

        None means that no mark is set. If an answer is lost and the mark is ``new`` afterwards, it counts as
        set by this call.
        """
        before = NULL_ATTRIBUTE if expected is None else self._offset(expected)
        after = NULL_ATTRIBUTE if new is None else self._offset(new)
        with self._waiters.waiting():
            return await self._metadata.compare_and_set_attribute(MARK_ATTRIBUTE, before, after)

    @limited("truncating {self.stream}")
    async def truncate_to(self, revision: Revision) -> None:
        """Delete the values before ``revision``. Does nothing if they are already gone.

        :raises InvalidArgumentError: the revision is beyond the end of the stream.
        """
        offset = self._offset(revision)
        info = await self._info()
        self._check_end(revision, info)
        if offset > info.start_offset:
            try:
                with self._waiters.waiting():
                    await self._metadata.truncate(offset)
            except SegmentTruncatedError:
                # Another process has truncated further.
                return

    async def aclose(self) -> None:
        """Release the connection. Tasks that wait in a call get :class:`ClosedError`."""
        self._waiters.close()
        self._appender.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()


async def only_segment(core: ClientCore, stream: ScopedStream) -> int:
    """The id of a revisioned stream's segment; another one after the stream was deleted and created again.

    :raises StreamNotFoundError: the stream does not exist or is sealed.
    :raises InvalidArgumentError: the stream has more than one segment.
    """
    segments = await core.controller.get_current_segments(stream.scope, stream.name)
    if not segments:
        raise StreamNotFoundError(
            f"stream {stream} has no active segment: it is sealed or does not exist",
            scope=stream.scope,
            stream=stream.name,
        )
    if len(segments) != 1:
        raise InvalidArgumentError(
            f"stream {stream} has {len(segments)} segments; a revisioned stream must have exactly one",
            scope=stream.scope,
            stream=stream.name,
        )
    return segments[0].segment_id


async def read_news(log: RevisionedStream[T], revision: Revision) -> list[tuple[Revision, T]] | None:
    """Read all values of ``log`` after ``revision`` in one request, after another writer was faster.

    A store rejects a conditional append that lost the race before the winning value can be read. It holds
    this request until then.

    :returns: values with the revisions they produced. None if one reply does not contain all of them, or
        if no reply arrived: in these cases use ``read_from``, which also reports errors.
    """
    offset = log._offset(revision)
    with log._waiters.waiting(), trio.move_on_after(_NEWS_SECONDS):
        try:
            reply = await log._core.stores.once(
                log._target,
                lambda request_id, token: c.ReadSegment(
                    segment=log._target.name,
                    offset=offset,
                    suggested_length=_READ_BYTES,
                    delegation_token=token,
                    request_id=request_id,
                ),
                c.SegmentRead,
                doing="reading",
            )
            batch, consumed, _ = parse_events(reply.data, offset, segment=log._target.name)
        except PravegaError:
            return None
        if reply.at_tail and reply.offset == offset and 0 < consumed == len(reply.data):
            return [log._value(*each) for each in zip(batch.offsets(), batch.to_list(), strict=True)]
    return None


def _value_of(revision: Revision, payload: bytes, serializer: Serializer[T]) -> T:
    try:
        return serializer.deserialize(payload)
    except (DecodeError, IncompatibleVersionError) as error:
        segment = revision.segment
        placed(error, f"the value before offset {revision.offset} of segment {segment}", **names_of(segment))
        raise
    except (StopIteration, StopAsyncIteration) as error:
        raise looks_like_the_end(error) from error


def deserialized(
    waiting: list[tuple[Revision, bytes]], serializer: Serializer[T], most: int = sys.maxsize
) -> list[tuple[Revision, T]]:
    """Take values out of ``waiting`` and deserialize them, up to one for which this fails.

    If the first one fails, it is taken out, and its error raised. An interrupt leaves them all.

    :param waiting: the next one is the last.
    :param most: the most values to take.
    """
    values: list[tuple[Revision, T]] = []
    given = waiting[: -most - 1 : -1]
    for revision, payload in given:
        try:
            values.append((revision, _value_of(revision, payload, serializer)))
        except Exception:
            if not values:
                del waiting[-1]
                raise
            break
    count = len(values)
    # Nothing is called from here on: signal handlers run after calls, and Ctrl-C would lose the values.
    # Another thread may have taken them meanwhile.
    if not given or not waiting or waiting[-1] is not given[0]:
        return []
    del waiting[-count:]
    return values


class RevisionReader(Generic[T]):
    """Reads values in order: ``async for revision, value in reader``.

    Made by :meth:`RevisionedStream.read_from` and :meth:`RevisionedStream.read_range`.

    Example::

        async with client.revisioned_stream("demo/settings") as stream:
            oldest = await stream.oldest_revision()
            async with stream.read_from(oldest) as reader:
                async for revision, value in reader:
                    print(revision.offset, value)
    """

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
        """Return the next value with the revision it produced, or None after the last.

        :raises ClosedError: the reader was closed before or during this call.
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
        return revision, _value_of(revision, payload, self._serializer)

    async def next_values(self) -> list[tuple[Revision, T]]:
        """Return the next values with their revisions, as many as have arrived; an empty list after the last.

        A value that cannot be deserialized ends the list. The next call raises its error, and the call after
        that continues after it.

        :raises ClosedError: the reader was closed before or during this call.
        """
        first = await self.next_value()
        if first is None:
            return []
        values = [first]
        while self._batch:
            try:
                values.append(self._made(*self._batch[-1]))
            except Exception:
                # The next call raises it.
                break
            self._batch.pop()
        return values

    async def aclose(self) -> None:
        """Release the connection."""
        self._closed = True
        await self._reader.aclose()
