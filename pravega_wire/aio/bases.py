"""The hand-written part of the asyncio client's classes.

``scripts/gen_facades.py`` generates the classes in the same way as those of the blocking client; see
``pravega_wire.sync.bases``.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable
from datetime import datetime
from functools import partial
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar, cast
from uuid import UUID

from pravega_wire.aio.ahead import ReadAhead
from pravega_wire.aio.portal import Line, Portal, Shared, crossing, uninterrupted
from pravega_wire.controller.types import TxnStatus
from pravega_wire.errors import ClosedError, InvalidArgumentError
from pravega_wire.protocol.events import EventBatch
from pravega_wire.segment.appender import Ack as AsyncAck
from pravega_wire.serializers import BytesSerializer, Serializer
from pravega_wire.stream import client as twin
from pravega_wire.stream.byte_stream import given_size, read_size
from pravega_wire.stream.client import StreamName
from pravega_wire.stream.core import not_shared
from pravega_wire.stream.event_reader import Event, ReachedCheckpoint
from pravega_wire.stream.event_reader import EventReader as AsyncEventReader
from pravega_wire.stream.event_writer import EventWriter as AsyncEventWriter
from pravega_wire.stream.follow import StreamFollower as AsyncStreamFollower
from pravega_wire.stream.inside import run_over
from pravega_wire.stream.ranges_reader import InOrder
from pravega_wire.stream.ranges_reader import RangesReader as AsyncRangesReader
from pravega_wire.stream.resumable import ResumableWriter as AsyncResumableWriter
from pravega_wire.stream.revisioned import RevisionedStream as AsyncRevisionedStream
from pravega_wire.stream.revisioned import RevisionReader as AsyncRevisionReader
from pravega_wire.stream.revisioned import deserialized
from pravega_wire.stream.routing import Partitioner, batch_of, serialized, to_bytes
from pravega_wire.stream.transaction import Transaction as AsyncTransaction
from pravega_wire.support.checks import check_payload, check_serializer, check_type
from pravega_wire.support.environment import environment
from pravega_wire.threads.feeding import Feed, Placing, is_plain, listed, plain_keys, to_write
from pravega_wire.threads.outbox import (
    Acks,
    Counting,
    Outbox,
    Promise,
    ResumableCounting,
    RoutedCounting,
    TransactionCounting,
    wait_for_all,
)
from pravega_wire.threads.portal import Held, shown_as
from pravega_wire.transport.limits import is_hurried
from pravega_wire.values.cuts import Bound
from pravega_wire.values.event_time import WatermarkAssigner
from pravega_wire.values.hashing import routing_key_position
from pravega_wire.values.types import Revision

__all__ = [
    "Ack",
    "ByteStreamReaderBase",
    "ByteStreamWriterBase",
    "Closable",
    "EventReaderBase",
    "Handle",
    "PravegaClientBase",
    "RangesReaderBase",
    "ReaderGroupBase",
    "ResumableWriterBase",
    "RevisionReaderBase",
    "RevisionedStreamBase",
    "RoutedWriterBase",
    "StreamFollowerBase",
    "TableIteratorBase",
    "TransactionBase",
    "crossing",
    "listed",
    "opened_client",
]

A = ParamSpec("A")
T = TypeVar("T")

_PULL_SECONDS: Final = 0.005
"""The longest time that an iterable may keep other tasks from running."""

_UNINTERRUPTED_EVENTS: Final = 100
"""The most single events that are accepted without letting other tasks run."""


async def opened_client(*args: Any, **kwargs: Any) -> tuple[Portal, Held[twin.PravegaClient]]:
    """A portal, and an async client that runs in the portal's thread."""
    portal = Portal()
    try:
        client = await portal.enter(twin.open_client(*args, **kwargs))
        portal.opened.given(client, f"the client of {client.value.config.controller_uri}")
    except BaseException:
        portal.opened.forget()
        await uninterrupted(portal.stop())
        raise
    return portal, client


class Handle:
    """An object of the client's thread, for use by tasks of an event loop."""

    def __init__(self, portal: Portal | Line, twin: Any) -> None:
        self._portal = Line(portal, getattr(twin, "stream", None))
        self._twin: Any = twin
        # Results that arrived for cancelled tasks.
        self._kept: list[Any] = []

    __reduce__ = not_shared

    def __repr__(self) -> str:
        return shown_as(self, self._twin)

    async def _call(self, function: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> T:
        """Run an async function in the client's thread."""
        return await self._portal.run(function, *args, **kwargs)

    async def _take(self, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Call a function whose results arrive only once.

        The result for a cancelled task is kept for the next call.
        """
        return await self._portal.run_keeping(self._kept, function, *args)

    async def _end(self, function: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Call the function that closes the object."""
        await self._portal.run(self._portal.closing, function, *args)

    async def _finish(self, function: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Call the function that closes the object and lets other calls end first."""
        await self._portal.run(self._portal.finishing, function, *args)

    async def _finish_writing(
        self, outstanding: int, function: Callable[..., Awaitable[None]], *args: Any
    ) -> None:
        """Close a writer. After its client nothing is left to close, but data may not have been stored.

        :param outstanding: bytes that are not known to be stored.
        """
        if self._portal.closed and not outstanding:
            await asyncio.sleep(0)
        else:
            await self._finish(function, *args)


class Closable(Handle):
    """A handle that is closed by leaving its context. Nothing is left to close after its client."""

    async def _end(self, function: Callable[..., Awaitable[None]], *args: Any) -> None:
        if self._portal.closed:
            await asyncio.sleep(0)
        else:
            await super()._end(function, *args)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._end(self._twin.aclose)


# --- writing --------------------------------------------------------------------------------------


class Ack(Acks):
    """The acknowledgement of one event, or of several that were written together.

    :meth:`wait` returns when all of them are durable, and raises an error if they are not. Many events may
    share one object.

    Example::

        async with client.event_writer("demo/readings") as writer:
            ack = await writer.write_event(b"22.5", "sensor-1")
            await ack
    """

    def __init__(self, line: Line, *acks: AsyncAck | Promise) -> None:
        self._acks = acks
        # The writer's line: closing the writer also ends waiting.
        self._stored = Shared(line, partial(wait_for_all, acks))

    def __await__(self) -> Generator[Any, Any, None]:
        """``await ack`` is ``await ack.wait()``."""
        return self.wait().__await__()

    async def wait(self) -> None:
        """Wait until every event is stored. Cancelling this has no effect on the events.

        :raises PravegaError: the writer failed. It is unknown whether the events are stored, unless the error
            says so.
        """
        if self.done and self.error is None:
            await asyncio.sleep(0)
            return
        await self._stored.wait()


class _WriterBase(Counting, Handle):
    """The common part of the writers."""

    def __init__(
        self,
        portal: Portal | Line,
        twin: Any,
        placing: Placing | None = None,
        to_bytes: Callable[[Any], bytes] | None = None,
    ) -> None:
        super().__init__(portal, twin)
        self._placing = Placing() if placing is None else placing
        self._to_bytes = to_bytes
        self._outbox: Outbox[Ack] = Outbox(
            self._portal.crossing.thread,
            str(twin.stream),
            twin.write_events,
            self._counted,
            partial(Ack, self._portal),
        )
        self._since_yield = 0
        # What tasks wait for that have found no room.
        self._room: tuple[Promise, Shared] | None = None

    def _ready(self) -> bool:
        """Whether the writer takes events."""
        return self._twin._error is None and bool(self._twin._routes)

    async def _call(self, function: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> T:
        # Events that were written one by one come first.
        return await self._portal.run(self._outbox.after(function), *args, **kwargs)

    async def _finish(self, function: Callable[..., Awaitable[None]], *args: Any) -> None:
        await super()._finish(self._outbox.ending(function), *args)

    async def _leave(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            await self._end(self._twin.__aexit__, kind, error, trace)
        elif self._portal.closed:
            await asyncio.sleep(0)
        else:
            # The fate of the events does not matter.
            await super()._finish(self._twin.__aexit__, kind, error, trace)

    async def _end(self, function: Callable[..., Awaitable[None]], *args: Any) -> None:
        await self._finish_writing(0, function, *args)

    async def _write_event(self, event: Any, routing_key: str | None = None) -> Ack:
        """The call does not wait for the client's thread, which takes events that were written one by one
        within about 2 ms. Waiting for the acknowledgement, or calling another method of the writer, makes
        it take them at once. If the writer fails, the next call raises its error. If this call is cancelled
        while it waits for room, the event stays queued and may be stored.
        """
        if self._to_bytes is not None:
            event = self._to_bytes(event)
        placing, outbox = self._placing, self._outbox
        key = routing_key if placing.as_given else placing.key(routing_key)
        ack = outbox.put(event, key) if self._portal.crossing.here() and self._ready() else None
        if ack is not None and outbox.full is None and self._since_yield < _UNINTERRUPTED_EVENTS:
            self._since_yield += 1
            return ack
        self._since_yield = 0
        return await self._put_slowly(ack, event, key)

    async def _put_slowly(self, ack: Ack | None, event: bytes, key: str | None) -> Ack:
        """Wait for room or let other tasks run, or write an event that the outbox has not accepted.

        :param ack: what the outbox returned.
        """
        outbox = self._outbox
        if ack is None:
            return Ack(
                self._portal, await self._portal.run(outbox.writing(self._twin.write_event), event, key)
            )
        full = outbox.full
        if full is None:
            await asyncio.sleep(0)
            return ack
        if self._room is None or self._room[0] is not full:
            self._room = full, Shared(self._portal, partial(outbox.handed, full))
        await self._room[1].wait()
        return ack

    async def _write_events(
        self, events: Iterable[Any], routing_keys: Iterable[str | None] | str | None = None
    ) -> tuple[AsyncAck, ...]:
        """Lists and Arrow arrays are handed to the client's thread as they are. Other iterables are read in
        the event loop, for 5 ms at a time, and the events read are written before more are read.
        """
        write, events, keys = to_write(self._twin, self._placing, self._to_bytes, events, routing_keys)
        if is_plain(events) and plain_keys(keys):
            return (await self._portal.run(self._outbox.writing(write), events, keys),)
        feed = Feed(events, keys)
        acks: list[AsyncAck] = []
        while not feed.ended:
            failure: Exception | None = None
            try:
                feed.pull(environment().monotonic() + _PULL_SECONDS)
            except Exception as error:
                # Events that the iterable returned before it raised are written.
                failure = error
            await self._portal.run(self._outbox.writing(feed.take), write, acks)
            if failure is not None:
                raise failure
        return tuple(acks)


class RoutedWriterBase(RoutedCounting, _WriterBase):
    """The base of event writers and staging writers."""

    async def _end(self, function: Callable[..., Awaitable[None]], *args: Any) -> None:
        await self._finish_writing(self._outstanding_bytes, function, *args)

    async def _write_batch(self, events: Iterable[Any], routing_key: str | None = None) -> tuple[AsyncAck]:
        stream = str(self._twin.stream)
        if self._to_bytes is not None:
            events = serialized(events, None, self._to_bytes, stream)
        payloads, _ = batch_of(events, stream)
        key = self._placing.key(routing_key)
        writing = self._outbox.writing(self._twin.write_batch)
        return (await self._portal.run(writing, payloads, key),)

    def __await__(self) -> Generator[Any, Any, Self]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        await self._portal.run(self._twin.__aenter__)
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        await self._leave(kind, error, trace)


class ResumableWriterBase(ResumableCounting, RoutedWriterBase):
    """The base of resumable writers."""

    def _last_stored_of(self, routing_key: str) -> int:
        key = self._placing.key(routing_key)
        twin: AsyncResumableWriter = self._twin
        return twin.last_stored_of(routing_key if key is None else key)


class TransactionBase(TransactionCounting, _WriterBase):
    """The base of transactions."""

    def _ready(self) -> bool:
        twin: AsyncTransaction = self._twin
        writer = twin._writer
        return twin._open and twin._lost is None and writer is not None and writer._error is None

    async def _abort(self) -> None:
        self._outbox.forgo()
        await self._portal.run(self._twin.abort)

    async def _status(self) -> TxnStatus:
        status: TxnStatus = await self._portal.run(self._twin.status)
        return status

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        await self._leave(kind, error, trace)


class ByteStreamWriterBase(Handle):
    """The base of writers of byte streams."""

    async def _end(self, function: Callable[..., Awaitable[None]], *args: Any) -> None:
        await self._finish_writing(self._twin.metrics().outstanding_bytes, function, *args)

    def __await__(self) -> Generator[Any, Any, Self]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        await self._call(self._twin.__aenter__)
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        outstanding = 0 if kind is not None else self._twin.metrics().outstanding_bytes
        await self._finish_writing(outstanding, self._twin.__aexit__, kind, error, trace)


# --- reading --------------------------------------------------------------------------------------


class ByteStreamReaderBase(Closable):
    """The base of readers of byte streams."""

    @property
    def _offset(self) -> int:
        # The kept bytes were received, but nobody has got them.
        offset: int = self._twin.offset
        return offset - sum(map(len, self._kept))

    async def _receive_some(self, max_bytes: int | None = None) -> bytes:
        size = read_size(max_bytes)
        found: bytes = await self._take(self._twin.receive_some, size)
        if len(found) > size:
            # They were kept for a cancelled call, which allowed more.
            self._kept.append(found[size:])
        return found[:size]

    async def _read(self, max_bytes: int) -> bytes:
        return await self._receive_some(given_size(max_bytes))

    async def _seek(self, offset: int) -> None:
        await self._call(self._sought, offset)

    async def _sought(self, offset: int) -> None:
        """In the client's thread, so that the kept bytes go if and only if the offset changes."""
        await self._twin.seek(offset)
        self._kept.clear()

    def __await__(self) -> Generator[Any, Any, Self]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        await self._call(self._twin.__aenter__)
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        data = await self._receive_some()
        if not data:
            raise StopAsyncIteration
        return data


class RangesReaderBase(Closable):
    """The base of readers of ranges."""

    def __init__(self, portal: Portal | Line, twin: AsyncRangesReader) -> None:
        super().__init__(portal, twin)
        source = twin._source
        # One that reads several ranges at a time is ahead by itself, within a limit.
        self._ahead = ReadAhead(self._portal, source) if isinstance(source, InOrder) else None

    async def _next_batch(self) -> EventBatch | None:
        """For ``read_range`` and ``read_events`` the client's thread reads up to 4 MiB ahead, from the first
        call on.
        """
        if self._ahead is not None:
            return await self._ahead.next_batch()
        found: EventBatch | None = await self._take(self._twin.next_batch)
        return found

    async def _end(self, function: Callable[..., Awaitable[None]], *args: Any) -> None:
        try:
            await super()._end(function, *args)
        finally:
            if self._ahead is not None:
                self._ahead.drop()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> EventBatch:
        batch = await self._next_batch()
        if batch is None:
            raise StopAsyncIteration
        return batch


class RevisionReaderBase(Closable, Generic[T]):
    """The base of readers of a revisioned stream."""

    def __init__(
        self, portal: Portal | Line, twin: AsyncRevisionReader[bytes], serializer: Serializer[T]
    ) -> None:
        super().__init__(portal, twin)
        self._serializer = serializer
        # All values that have arrived cross between the threads together.
        # The next one is the last.
        self._here: list[tuple[Revision, bytes]] = []

    async def _fill(self) -> None:
        if not self._here:
            self._here[:0] = reversed(await self._take(self._twin.next_values))

    async def _next_value(self) -> tuple[Revision, T] | None:
        await self._fill()
        found = deserialized(self._here, self._serializer, 1)
        return found[0] if found else None

    async def _next_values(self) -> list[tuple[Revision, T]]:
        await self._fill()
        return deserialized(self._here, self._serializer)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[Revision, T]:
        found = await self._next_value()
        if found is None:
            raise StopAsyncIteration
        return found


class RevisionedStreamBase(Closable, Generic[T]):
    """The base of revisioned streams. Values are serialized and deserialized in the event loop."""

    def __init__(
        self, portal: Portal | Line, twin: AsyncRevisionedStream[bytes], serializer: Serializer[T]
    ) -> None:
        super().__init__(portal, twin)
        self._serializer = serializer

    async def _read_from(self, start: Revision) -> tuple[AsyncRevisionReader[bytes], Serializer[T]]:
        return await self._call(self._twin.read_from, start), self._serializer

    async def _read_range(
        self, start: Revision, end: Revision
    ) -> tuple[AsyncRevisionReader[bytes], Serializer[T]]:
        return await self._call(self._twin.read_range, start, end), self._serializer

    def _payload(self, value: T) -> bytes:
        return check_payload(f"stream {self._twin.stream}: a value", self._serializer.serialize(value))

    async def _write_conditionally(self, latest: Revision, value: T) -> Revision | None:
        twin = cast("AsyncRevisionedStream[bytes]", self._twin)
        return await self._call(twin.write_conditionally, latest, self._payload(value))

    async def _write_unconditionally(self, value: T) -> Revision:
        twin = cast("AsyncRevisionedStream[bytes]", self._twin)
        return await self._call(twin.write_unconditionally, self._payload(value))


# --- key-value tables -----------------------------------------------------------------------------


class TableIteratorBase(Handle, Generic[T]):
    """The base of iterators over key-value tables."""

    async def _next_page(self) -> list[T]:
        # Two steps: the page that is fetched for a cancelled task stays there, before :attr:`position`.
        take: Callable[[], list[T]] = self._twin._all_items
        while not (found := take()):
            if not await self._call(self._twin._find):
                return []
        return found

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        # Most items are already fetched, so they need no call into the other thread.
        if not self._twin._page and not await self._call(self._twin._find):
            raise StopAsyncIteration
        item: T = self._twin._first_item()
        return item


class _EventsBase(Handle, Generic[T]):
    """What followers and the readers of a group share. Events are deserialized in the event loop."""

    async def _find_events(self, timeout: float | None = None) -> Any:
        # What is found for a cancelled task, the next call finds again, if the reader still has the segment.
        return await self._call(self._twin._find, timeout)

    async def _read_event(self, timeout: float | None = None) -> Event[T] | None:
        event: Event[T] | None = self._twin.read_event_nowait()
        if event is None and (found := await self._find_events(timeout)) is not None:
            event = self._twin._first_event(found)
        return event

    async def _next_batch(self, timeout: float | None = None) -> EventBatch | None:
        found = await self._find_events(timeout)
        return None if found is None else self._twin._all_events(found)

    def __aiter__(self) -> AsyncGenerator[Event[T], None]:
        return self._events()

    async def _events(self) -> AsyncGenerator[Event[T], None]:
        while True:
            # Within a batch the client's thread is not needed. All it may do to these events is to end them.
            for event in self._twin.events_nowait():
                yield event
            found = await self._find_events()
            if found is None:
                return
            yield self._twin._first_event(found)

    async def __anext__(self) -> Event[T]:
        """Return the next event; ends at :attr:`end_of_data`."""
        found = await self._read_event()
        if found is None:
            raise StopAsyncIteration
        return found

    async def _batches(self) -> AsyncGenerator[EventBatch, None]:
        while (found := await self._next_batch()) is not None:
            yield found


class StreamFollowerBase(_EventsBase[T], Closable, Generic[T]):
    """The base of followers of streams."""

    _twin: AsyncStreamFollower[T]

    async def __aenter__(self) -> Self:
        await self._call(self._twin.__aenter__)
        return self


# --- reader groups --------------------------------------------------------------------------------


class ReaderGroupBase(Closable):
    """The base of reader groups."""

    def _reader(
        self,
        reader_id: str,
        serializer: Serializer[Any] | None = None,
        *,
        on_checkpoint: Callable[[str], Awaitable[object] | object] | None = None,
        **options: Any,
    ) -> tuple[AsyncEventReader[Any], Callable[[str], Awaitable[object] | object] | None]:
        """The serializer and ``on_checkpoint`` run in the event loop."""
        # The twin checks it, and is never asked to call it.
        twin = self._twin.reader(reader_id, serializer, on_checkpoint=on_checkpoint, **options)
        return twin, on_checkpoint


class EventReaderBase(_EventsBase[T], Generic[T]):
    """The base of the readers of a group."""

    _twin: AsyncEventReader[T]

    def __init__(
        self,
        portal: Portal | Line,
        twin: AsyncEventReader[T],
        on_checkpoint: Callable[[str], Awaitable[object] | object] | None = None,
    ) -> None:
        super().__init__(portal, twin)
        self._on_checkpoint = on_checkpoint
        self._held: Held[AsyncEventReader[T]] | None = None

    async def __aenter__(self) -> Self:
        if self._held is not None:
            raise InvalidArgumentError(
                f"reader {self._twin.reader_id} was already entered: create another one with reader()"
            )
        self._held = await self._portal.crossing.enter(self._twin)
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._held is None:
            raise InvalidArgumentError(f"reader {self._twin.reader_id} was not entered")
        if is_hurried(error):
            await self._portal.crossing.break_off(self._held)
        else:
            await self._portal.crossing.leave(self._held, failed=error is not None)

    async def _end(self, function: Callable[..., Awaitable[None]], *args: Any) -> None:
        [position] = args
        if position is not None:
            # Here as well, because the call may be cancelled before it begins.
            self._twin._leave_at = position.offsets
        await super()._end(function, position)

    async def _watermark(self, assigner: WatermarkAssigner) -> int | None:
        # Most calls are made before the watermark is due, and need no call into the other thread.
        check_type("assigner", assigner, WatermarkAssigner)
        return await self._call(self._twin.watermark, assigner) if assigner.due else None

    async def _find_events(self, timeout: float | None = None) -> Any:
        """Find events, and tell of the checkpoints before them."""
        left = timeout
        began = environment().monotonic()
        while isinstance(found := await self._call(self._twin._find, left), ReachedCheckpoint):
            with found.telling():
                if self._on_checkpoint is not None:
                    result = self._on_checkpoint(found.name)
                    if inspect.isawaitable(result):
                        await result
            if timeout is not None:
                left = max(0.0, began + timeout - environment().monotonic())
        return found


# --- the client -----------------------------------------------------------------------------------


class PravegaClientBase(Handle):
    """The base of the client."""

    _twin: twin.PravegaClient

    def __init__(self, portal: Portal, held: Held[twin.PravegaClient] | None = None) -> None:
        if held is None:
            raise InvalidArgumentError(twin.MADE_BY)
        super().__init__(portal, held.value)
        self._held = held
        self._ending: asyncio.Future[None] | None = None

    async def aclose(self) -> None:
        """Close the client, everything opened with it, and its thread. Closing it again does nothing.

        Calls in progress in other tasks raise :class:`ClosedError`. Events that a writer has not flushed may
        be lost, so close writers first. Leaving the client's ``async with`` block does the same. Cancelling
        this has no effect on the closing.
        """
        crossing = self._portal.crossing
        if crossing.thread.gone:
            return
        if self._ending is None:
            crossing.check()
            self._ending = asyncio.ensure_future(crossing.end(self._held))
        await uninterrupted(self._ending)

    async def __aenter__(self) -> Self:
        if self._portal.closed:
            raise ClosedError("the client is closed")
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def run(
        self,
        function: Callable[Concatenate[twin.PravegaClient, A], Awaitable[T]],
        /,
        *args: A.args,
        **kwargs: A.kwargs,
    ) -> T:
        """Run an async function over the trio client, and return its result.

        What is written for the client of trio serves an asyncio program in this way: archives, ingestion, and
        functions of your own. Cancelling the call cancels the function.

        Example::

            from pravega_wire.archive import archive_stream

            manifest = await client.run(archive_stream, "demo/readings", "kept")

        :param function: is called with the :class:`pravega_wire.PravegaClient` and the other arguments. It
            runs under trio in the client's thread, which does everything else for this client, so it must not
            block; it cannot use asyncio. What it returns must not be an object of the trio client.
        :param args: more arguments for the function.
        :param kwargs: more arguments for the function.
        :raises ArgumentTypeError: it is not an async function.
        :raises ClosedError: the client was closed before or during this call, which cancels the function.
        """
        return await self._call(run_over, self._twin, function, args, kwargs)

    def _event_writer(
        self,
        stream: StreamName,
        *,
        serializer: Serializer[Any] | None = None,
        partitioner: Partitioner = routing_key_position,
        **options: Any,
    ) -> tuple[AsyncEventWriter, Placing, Callable[[Any], bytes] | None]:
        """The serializer and the partitioner run in the event loop."""
        name = self._twin._resolve(stream)
        convert = None if serializer is None else to_bytes(serializer, name)
        placing = Placing(partitioner, str(name))
        return self._twin.event_writer(name, partitioner=placing.for_writer, **options), placing, convert

    def _resumable_writer(
        self,
        stream: StreamName,
        writer_id: UUID,
        *,
        serializer: Serializer[Any] | None = None,
        partitioner: Partitioner = routing_key_position,
        **options: Any,
    ) -> tuple[AsyncResumableWriter, Placing, Callable[[Any], bytes] | None]:
        """The serializer and the partitioner run in the event loop."""
        name = self._twin._resolve(stream)
        convert = None if serializer is None else to_bytes(serializer, name)
        placing = Placing(partitioner, str(name))
        writer = self._twin.resumable_writer(name, writer_id, partitioner=placing.for_writer, **options)
        return writer, placing, convert

    async def _begin_transaction(
        self, stream: StreamName, *, serializer: Serializer[Any] | None = None, **options: Any
    ) -> tuple[AsyncTransaction, None, Callable[[Any], bytes] | None]:
        """The serializer runs in the event loop."""
        stream = self._twin._resolve(stream)
        convert = None if serializer is None else to_bytes(serializer, stream)
        begin = cast("Callable[..., Awaitable[AsyncTransaction]]", self._twin.begin_transaction)
        return await self._call(begin, stream, **options), None, convert

    async def _resume_transaction(
        self,
        stream: StreamName,
        txn_id: UUID,
        *,
        serializer: Serializer[Any] | None = None,
        **options: Any,
    ) -> tuple[AsyncTransaction, None, Callable[[Any], bytes] | None]:
        """The serializer runs in the event loop."""
        stream = self._twin._resolve(stream)
        convert = None if serializer is None else to_bytes(serializer, stream)
        resume = cast("Callable[..., Awaitable[AsyncTransaction]]", self._twin.resume_transaction)
        return await self._call(resume, stream, txn_id, **options), None, convert

    def _follow_events(
        self,
        stream: StreamName,
        start: Bound | datetime = "earliest",
        *,
        serializer: Serializer[Any] | None = None,
        **options: Any,
    ) -> tuple[AsyncStreamFollower[Any]]:
        """The serializer runs in the event loop."""
        follow = cast("Callable[..., AsyncStreamFollower[Any]]", self._twin.follow_events)
        return (follow(stream, start, serializer=serializer, **options),)

    async def _revisioned_stream(
        self, stream: StreamName, serializer: Serializer[Any] | None = None
    ) -> tuple[AsyncRevisionedStream[bytes], Serializer[Any]]:
        """The serializer runs in the event loop."""
        stream = self._twin._resolve(stream)
        chosen = BytesSerializer() if serializer is None else serializer
        check_serializer(f"revisioned stream {stream}: serializer", chosen)
        found = await self._call(cast("Callable[..., Awaitable[Any]]", self._twin.revisioned_stream), stream)
        return found, chosen
