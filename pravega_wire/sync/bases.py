"""The hand-written part of the blocking client's classes.

``scripts/gen_facades.py`` generates the class ``X`` from the async class ``X``. If this module has an
``XBase``, that is its base class. A method ``_name`` here implements the public ``name``. Its docstring is
added to that of the async method. If it returns a tuple, the elements are the arguments for the class of the
result, after the portal. A class that is defined here (or imported) under its public name is used unchanged.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast
from uuid import UUID
from weakref import finalize

from pravega_wire.controller.types import TxnStatus
from pravega_wire.errors import ClosedError, ConcurrentUseError, InvalidArgumentError, PravegaError
from pravega_wire.protocol.events import EventBatch
from pravega_wire.segment.appender import Ack as AsyncAck
from pravega_wire.serializers import BytesSerializer, Serializer
from pravega_wire.stream import client as twin
from pravega_wire.stream.client import StreamName
from pravega_wire.stream.core import not_shared
from pravega_wire.stream.event_reader import Event, ReachedCheckpoint
from pravega_wire.stream.event_reader import EventReader as AsyncEventReader
from pravega_wire.stream.event_writer import EventWriter as AsyncEventWriter
from pravega_wire.stream.follow import StreamFollower as AsyncStreamFollower
from pravega_wire.stream.inside import run_over
from pravega_wire.stream.key_value_table import KeyValueTable as AsyncKeyValueTable
from pravega_wire.stream.key_value_table import TableFamily as AsyncTableFamily
from pravega_wire.stream.key_value_table import TableKey
from pravega_wire.stream.ranges_reader import RangesReader as AsyncRangesReader
from pravega_wire.stream.resumable import ResumableWriter as AsyncResumableWriter
from pravega_wire.stream.revisioned import RevisionedStream as AsyncRevisionedStream
from pravega_wire.stream.revisioned import RevisionReader as AsyncRevisionReader
from pravega_wire.stream.revisioned import deserialized
from pravega_wire.stream.routing import Partitioner, batch_of, serialized, to_bytes
from pravega_wire.stream.transaction import Transaction as AsyncTransaction
from pravega_wire.support.checks import check_payload, check_serializer, check_type
from pravega_wire.support.environment import environment
from pravega_wire.sync.byte_stream import ByteStreamReader, ByteStreamWriter
from pravega_wire.sync.table_mapping import TableMapping
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
from pravega_wire.threads.portal import Held, Line, Named, Opened, Portal, shown_as
from pravega_wire.transport.limits import is_hurried
from pravega_wire.values.cuts import Bound
from pravega_wire.values.event_time import WatermarkAssigner
from pravega_wire.values.hashing import routing_key_position
from pravega_wire.values.types import Revision

__all__ = [
    "Ack",
    "ByteStreamReader",
    "ByteStreamWriter",
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
    "TableFamilyBase",
    "TableIteratorBase",
    "TableMapping",
    "TransactionBase",
    "blocking",
    "listed",
    "opened_client",
]

A = ParamSpec("A")
T = TypeVar("T")
# Of tables: the primary and the secondary key, and the value.
P = TypeVar("P")
S = TypeVar("S")
V = TypeVar("V")


def opened_client(*args: Any, **kwargs: Any) -> Opened[twin.PravegaClient]:
    """An async client that runs in a thread of its own."""
    opened: Opened[twin.PravegaClient] = Opened(Portal("pravega client", launch=False))
    try:
        opened.portal.launch()
        held = opened.portal.enter(twin.open_client(*args, **kwargs))
        opened.given(held, f"the client of {held.value.config.controller_uri}")
    except BaseException:
        opened.portal.close()
        opened.forget()
        raise
    return opened


class _OneThread(Generator[T, None, None]):
    """A generator that only one thread may be in.

    :param items: the generator. Python itself protects it, by a plain ValueError.
    """

    def __init__(self, items: Generator[T, None, None]) -> None:
        self._items = items

    def __next__(self) -> T:
        # Not by _alone(): this is called for each event.
        try:
            # Not by next(): an interrupt after that call would lose the item.
            for item in self._items:
                return item
        except ValueError as error:
            if str(error) != _EXECUTING:
                raise
            raise _used_twice() from None
        raise StopIteration

    def send(self, value: None) -> T:
        """See :class:`Generator`."""
        with _alone():
            return self._items.send(value)

    def throw(self, *error: Any) -> T:
        """See :class:`Generator`."""
        with _alone():
            return self._items.throw(*error)

    def close(self) -> None:
        """Release what the iterator uses."""
        with _alone():
            self._items.close()


_EXECUTING = "generator already executing"


@contextmanager
def _alone() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        if str(error) != _EXECUTING:
            raise
        raise _used_twice() from None


def _used_twice() -> ConcurrentUseError:
    return ConcurrentUseError("another thread is reading with this iterator")


def _each(next_item: Callable[[], T | None]) -> Generator[T, None, None]:
    """Iterate over what a function returns, up to None."""
    while (item := next_item()) is not None:
        yield item


def blocking(line: Line, items: Any) -> Generator[Any, None, None]:
    """Iterate over an async generator from this thread."""
    return _OneThread(_from(line, items))


def _from(line: Line, items: Any) -> Generator[Any, None, None]:
    try:
        while True:
            try:
                yield line.call(items.__anext__)
            except StopAsyncIteration:
                return
    finally:
        try:
            line.call(items.aclose)
        except ClosedError:
            # The client was closed, and has ended everything.
            pass


class Handle:
    """An object of the client's thread, for use in other threads."""

    def __init__(self, portal: Portal | Opened[Any] | Line, twin: Any) -> None:
        self._portal = Line(portal, self._about(twin))
        self._twin: Any = twin

    __reduce__ = not_shared

    def __repr__(self) -> str:
        return shown_as(self, self._twin)

    def _about(self, twin: Any) -> object:
        """The object's stream or name, for messages."""
        return getattr(twin, "stream", None)

    def _call(
        self, timeout: float | None, function: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any
    ) -> T:
        """See :meth:`Line.within`."""
        return self._portal.within(timeout, function, *args, **kwargs)

    def _end(self, timeout: float | None, function: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Call the function that closes the object."""
        self._portal.close(timeout, function, *args)


class Closable(Handle):
    """A handle that is closed by leaving its context. Nothing is left to close after its client."""

    def _end(self, timeout: float | None, function: Callable[..., Awaitable[None]], *args: Any) -> None:
        if not self._portal.closed:
            super()._end(timeout, function, *args)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()  # type: ignore[attr-defined]  # generated


# --- writing --------------------------------------------------------------------------------------


class Ack(Acks):
    """The acknowledgement of one event, or of several that were written together.

    :meth:`wait` returns when all of them are durable, and raises an error if they are not. Many events may
    share one object.

    Example::

        with client.event_writer("demo/readings") as writer:
            ack = writer.write_event(b"22.5", "sensor-1")
            ack.wait()
    """

    def __init__(self, line: Line, *acks: AsyncAck | Promise) -> None:
        # The writer's line: closing the writer also ends waiting.
        self._line = line
        self._acks = acks

    def wait(self, *, timeout: float | None = None) -> None:
        """Wait until every event is stored. Cancelling this has no effect on the events.

        :param timeout: seconds. If the limit is reached, the events stay queued and may still be stored. You
            can wait again.
        :raises PravegaError: the writer failed. It is unknown whether the events are stored, unless the error
            says so.
        """
        if self.done and self.error is None:
            # Also after the writer or the client was closed.
            return
        self._line.within(timeout, Named(self.wait, partial(wait_for_all, self._acks)))


class WriterBase(Counting, Handle):
    """The common part of the blocking writers."""

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
        if to_bytes is not None:
            # So that nothing has to be asked for each event of a writer without a serializer.
            self._write_event = partial(self._write_value, to_bytes)  # type: ignore[method-assign]
        self._outbox: Outbox[Ack] = Outbox(
            self._portal.portal,
            str(twin.stream),
            twin.write_events,
            self._counted,
            partial(Ack, self._portal),
        )

    def _call(
        self, timeout: float | None, function: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any
    ) -> T:
        # Events that were written one by one come first.
        ordered = Named(function, self._outbox.after(function))
        return self._portal.within(timeout, ordered, *args, **kwargs)

    @property
    def _over(self) -> bool:
        """Whether the client was closed, and nothing is left to close or to report."""
        return self._portal.closed

    def _end(self, timeout: float | None, function: Callable[..., Awaitable[None]], *args: Any) -> None:
        if not self._over:
            self._portal.finish(timeout, Named(function, self._outbox.ending(function)), *args)

    def _leave(self, timeout: float | None, kind: object, error: object, trace: object) -> None:
        # After the client, an exception of the block leaves it as it is.
        if self._over or (kind is not None and self._portal.closed):
            return
        leave = self._twin.__aexit__
        if kind is None:
            leave = Named(leave, self._outbox.ending(leave))
        self._portal.finish(timeout, leave, kind, error, trace)

    def _write_event(
        self, event: Any, routing_key: str | None = None, *, timeout: float | None = None
    ) -> Ack:
        """The call does not wait for the client's thread, which takes events that were written one by one
        within about 2 ms. Waiting for the acknowledgement, or calling another method of the writer, makes
        it take them at once. If the writer fails, the next call raises its error.

        :param timeout: seconds to wait for room. If the limit is reached, the event is still queued and may
            be stored.
        """
        placing, twin, outbox = self._placing, self._twin, self._outbox
        key = routing_key if placing.as_given else placing.key(routing_key)
        # Written out here, because a call would cost a twentieth of what an event costs.
        ack = outbox.put(event, key) if twin._error is None and twin._routes else None
        if ack is not None and outbox.full is None:
            return ack
        return self._put_slowly(ack, event, key, timeout)

    def _write_value(
        self,
        to_bytes: Callable[[Any], bytes],
        value: object,
        routing_key: str | None = None,
        *,
        timeout: float | None = None,
    ) -> Ack:
        """Write an event of a writer with a serializer."""
        return type(self)._write_event(self, to_bytes(value), routing_key, timeout=timeout)

    def _put_slowly(self, ack: Ack | None, event: bytes, key: str | None, timeout: float | None) -> Ack:
        """Wait for room, or write an event that the outbox has not accepted.

        :param ack: what the outbox returned.
        """
        write, outbox = self._twin.write_event, self._outbox
        if ack is None:
            return Ack(
                self._portal, self._portal.within(timeout, Named(write, outbox.writing(write)), event, key)
            )
        full = outbox.full
        if full is not None:
            self._portal.within(timeout, Named(write, outbox.handed), full)
        return ack

    def _write_events(
        self,
        events: Iterable[Any],
        routing_keys: Iterable[str | None] | str | None = None,
        *,
        timeout: float | None = None,
    ) -> tuple[AsyncAck, ...]:
        """Iterables are read in this thread, while the client's thread writes the events returned so far: an
        event waits at most 20 ms for the next ones. An iterable may use the client itself.

        :param timeout: seconds for the whole call. If the limit is reached, the events that were queued stay
            queued and may be stored; ``events_written`` of the writer has their number. An iterable was read
            further than that, also when Ctrl-C ends the call: to write the rest, make a new iterable without
            the events that were written. The limit does not interrupt an iterable that blocks.
        """
        write, events, keys = to_write(self._twin, self._placing, self._to_bytes, events, routing_keys)
        if is_plain(events) and plain_keys(keys):
            writing = Named(self._twin.write_events, self._outbox.writing(write))
            return (self._portal.within(timeout, writing, events, keys),)
        feed = Feed(events, keys)
        feeding = Named(self._twin.write_events, self._outbox.after(feed.write_to))
        # The iterable may write to this writer too, and other threads may while it blocks.
        return tuple(self._portal.within(timeout, feeding, self._outbox.writing(self._twin.write_events)))


class RoutedWriterBase(RoutedCounting, WriterBase):
    """The base of event writers and staging writers."""

    @property
    def _over(self) -> bool:
        # Events may not have been stored.
        return super()._over and not self._outstanding_bytes

    def _write_batch(
        self, events: Iterable[Any], routing_key: str | None = None, *, timeout: float | None = None
    ) -> tuple[AsyncAck]:
        """:param timeout: seconds to wait for room. If the limit is reached, the events are still queued and
        may be stored.
        """
        stream = str(self._twin.stream)
        if self._to_bytes is not None:
            events = serialized(events, None, self._to_bytes, stream)
        payloads, _ = batch_of(events, stream)
        key = self._placing.key(routing_key)
        writing = Named(self._twin.write_batch, self._outbox.writing(self._twin.write_batch))
        return (self._portal.within(timeout, writing, payloads, key),)

    def __enter__(self) -> Self:
        self._portal.call(self._twin.__aenter__)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._leave(None, kind, error, trace)


class ResumableWriterBase(ResumableCounting, RoutedWriterBase):
    """The base of resumable writers."""

    @property
    def _events_skipped(self) -> int:
        # The number is known only when the writer has all events.
        with suppress(PravegaError):
            self._portal.call(self._outbox.settled)
        return int(self._twin.events_skipped)

    def _last_stored_of(self, routing_key: str) -> int:
        key = self._placing.key(routing_key)
        twin: AsyncResumableWriter = self._twin
        return twin.last_stored_of(routing_key if key is None else key)


class TransactionBase(TransactionCounting, WriterBase):
    """The base of transactions."""

    def _ready(self) -> bool:
        twin: AsyncTransaction = self._twin
        writer = twin._writer
        return twin._open and twin._lost is None and writer is not None and writer._error is None

    def _write_event(
        self, event: Any, routing_key: str | None = None, *, timeout: float | None = None
    ) -> Ack:
        key = self._placing.key(routing_key)
        ack = self._outbox.put(event, key) if self._ready() else None
        if ack is not None and self._outbox.full is None:
            return ack
        return self._put_slowly(ack, event, key, timeout)

    def _abort(self, *, timeout: float | None = None) -> None:
        self._outbox.forgo()
        self._portal.within(timeout, self._twin.abort)

    def _status(self, *, timeout: float | None = None) -> TxnStatus:
        status: TxnStatus = self._portal.within(timeout, self._twin.status)
        return status

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        self._leave(None, kind, error, trace)


# --- reading --------------------------------------------------------------------------------------


class RangesReaderBase(Closable):
    """The base of readers of ranges."""

    def __init__(self, portal: Portal | Line, twin: AsyncRangesReader) -> None:
        super().__init__(portal, twin)
        # Results that the client's thread has read, until a thread takes them. Ctrl-C may end the call of the
        # thread that has asked for one.
        self._kept: list[EventBatch | None] = []

    async def _keep(self) -> None:
        """In the client's thread: what it has read cannot be lost between the threads."""
        self._kept.append(await self._twin.next_batch())

    def _next_batch(self, *, timeout: float | None = None) -> EventBatch | None:
        while self._portal.closed or not self._kept:
            self._call(timeout, Named(self._twin.next_batch, self._keep))
        # Nothing is called from here on: signal handlers run after calls, and Ctrl-C would lose the batch.
        found = self._kept[0]
        del self._kept[0]
        return found

    def _end(self, timeout: float | None, function: Callable[..., Awaitable[None]], *args: Any) -> None:
        try:
            super()._end(timeout, function, *args)
        finally:
            self._kept.clear()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> EventBatch:
        # After an interrupt the next call goes on, as a generator would not.
        batch = self._next_batch()
        if batch is None:
            raise StopIteration
        return batch


class RevisionReaderBase(Closable, Generic[T]):
    """The base of readers of a revisioned stream."""

    def __init__(
        self,
        portal: Portal | Line,
        twin: AsyncRevisionReader[bytes],
        serializer: Serializer[T],
        timeout: float | None = None,
    ) -> None:
        super().__init__(portal, twin)
        self._serializer = serializer
        self._timeout = timeout
        # Values that have arrived, until a thread takes them. The next one is the last.
        self._here: list[tuple[Revision, bytes]] = []
        # The reader of a loop that was left early has often no other user, and nobody closes it.
        finalize(self, _release, self._portal.portal, twin).atexit = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[Revision, T]:
        # After an error the next call goes on: only the end is the end.
        found = self._next_value(timeout=self._timeout)
        if found is None:
            raise StopIteration
        return found

    def _next_value(self, *, timeout: float | None = None) -> tuple[Revision, T] | None:
        found = self._taken(1, timeout, self._twin.next_value)
        return found[0] if found else None

    def _next_values(self, *, timeout: float | None = None) -> list[tuple[Revision, T]]:
        return self._taken(sys.maxsize, timeout, self._twin.next_values)

    def _taken(
        self, most: int, timeout: float | None, like: Callable[[], Awaitable[Any]]
    ) -> list[tuple[Revision, T]]:
        take = partial(deserialized, self._here, self._serializer, most)
        while self._portal.closed or self._twin._closed or not (found := take()):
            if not self._call(timeout, Named(like, self._receive)):
                return []
        return found

    async def _receive(self) -> bool:
        """In the client's thread: what has arrived cannot be lost between the threads.

        :returns: False after the last value.
        """
        values = await self._twin.next_values()
        self._here[:0] = reversed(values)
        return bool(values)


def _release(portal: Portal, reader: AsyncRevisionReader[bytes]) -> None:
    """Release the connection of a reader that nobody uses any more, without waiting for it."""
    with suppress(PravegaError):
        portal.check()
        portal.soon(reader._reader.close_nowait)


class RevisionedStreamBase(Closable, Generic[T]):
    """The base of revisioned streams. Values are serialized and deserialized in the caller's thread."""

    def __init__(
        self, portal: Portal | Line, twin: AsyncRevisionedStream[bytes], serializer: Serializer[T]
    ) -> None:
        super().__init__(portal, twin)
        self._serializer = serializer

    def _read_from(
        self, start: Revision, *, timeout: float | None = None
    ) -> tuple[AsyncRevisionReader[bytes], Serializer[T], float | None]:
        """:param timeout: seconds for each answer of the store."""
        return self._call(timeout, self._twin.read_from, start), self._serializer, timeout

    def _read_range(
        self, start: Revision, end: Revision, *, timeout: float | None = None
    ) -> tuple[AsyncRevisionReader[bytes], Serializer[T], float | None]:
        """
        :param timeout: seconds for each answer of the store.
        """
        return self._call(timeout, self._twin.read_range, start, end), self._serializer, timeout

    def _payload(self, value: T) -> bytes:
        return check_payload(f"stream {self._twin.stream}: a value", self._serializer.serialize(value))

    def _write_conditionally(
        self, latest: Revision, value: T, *, timeout: float | None = None
    ) -> Revision | None:
        """:param timeout: seconds. If the limit is reached, the value may still be stored; read from
        ``latest`` to find out.
        """
        payload = self._payload(value)
        return self._call(
            timeout, cast("AsyncRevisionedStream[bytes]", self._twin).write_conditionally, latest, payload
        )

    def _write_unconditionally(self, value: T, *, timeout: float | None = None) -> Revision:
        """:param timeout: seconds. If the limit is reached, the value may still be stored."""
        payload = self._payload(value)
        return self._call(
            timeout, cast("AsyncRevisionedStream[bytes]", self._twin).write_unconditionally, payload
        )


class TableIteratorBase(Handle, Generic[T]):
    """The base of iterators over key-value tables."""

    def _next_page(self, *, timeout: float | None = None) -> list[T]:
        # Two steps: Ctrl-C during the call leaves the page where the next call takes it.
        take: Callable[[], list[T]] = self._twin._all_items
        while not (found := take()):
            if not self._call(timeout, Named(self._twin.next_page, self._twin._find)):
                return []
        return found

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        # Most items are already fetched, so they need no call into the other thread.
        if not self._twin._page and not self._portal.call(self._twin._find):
            raise StopIteration
        item: T = self._twin._first_item()
        return item


class KeyValueTableBase(Handle, Generic[P, S, V]):
    """The base of key-value tables."""

    _twin: AsyncKeyValueTable[P, S, V]

    def _about(self, twin: Any) -> object:
        return f"key-value table {twin.name}"

    def mapping(self) -> TableMapping[P, V]:
        """Return the table as a mapping from primary key to value.

        :raises InvalidArgumentError: the table has secondary keys; use :meth:`mapping_of_pairs` or
            :meth:`family`.
        """
        if self._twin.config.secondary_key_length:
            raise InvalidArgumentError(
                f"key-value table {self._twin.name}: it has secondary keys: use mapping_of_pairs(), or "
                "mapping() of a family"
            )
        return TableMapping(self._portal, self._twin, None, lambda key: key, lambda key: key.primary)

    def mapping_of_pairs(self) -> TableMapping[TableKey[P, S], V]:
        """Return the table as a mapping from :class:`TableKey` (or any pair) to value."""

        def to_key(key: Any) -> Any:
            # Any other key is rejected on use, with an error that names the table.
            return TableKey(*key) if isinstance(key, tuple) and len(key) == 2 else key

        return TableMapping(self._portal, self._twin, None, to_key, lambda key: key)


class TableFamilyBase(Handle, Generic[P, S, V]):
    """The base of families."""

    _twin: AsyncTableFamily[P, S, V]

    def mapping(self) -> TableMapping[S, V]:
        """Return the family as a mapping from secondary key to value."""
        table, primary = self._twin._table, self._twin.primary
        to_key = partial(TableKey, primary)
        return TableMapping(self._portal, table, primary, to_key, lambda key: key.secondary)


class _EventsBase(Handle, Generic[T]):
    """What followers and the readers of a group share. Events are deserialized in the thread that reads."""

    def _find_events(self, timeout: float | None = None) -> Any:
        return self._portal.call(self._twin._find, timeout)

    def _read_event(self, timeout: float | None = None) -> Event[T] | None:
        event: Event[T] | None = self._twin.read_event_nowait()
        if event is None and (found := self._find_events(timeout)) is not None:
            event = self._twin._first_event(found)
        return event

    def _next_batch(self, timeout: float | None = None) -> EventBatch | None:
        found = self._find_events(timeout)
        return None if found is None else self._twin._all_events(found)

    def __iter__(self) -> Iterator[Event[T]]:
        return _OneThread(self._events())

    def _events(self) -> Generator[Event[T], None, None]:
        while True:
            # Within a batch the client's thread is not needed. All it may do to these events is to end them.
            yield from self._twin.events_nowait()
            found = self._find_events()
            if found is None:
                return
            yield self._twin._first_event(found)

    def _batches(self) -> Generator[EventBatch, None, None]:
        return _OneThread(_each(self._next_batch))


class StreamFollowerBase(_EventsBase[T], Closable, Generic[T]):
    """The base of followers of streams."""

    _twin: AsyncStreamFollower[T]

    def __enter__(self) -> Self:
        self._portal.call(self._twin.__aenter__)
        return self


# --- reader groups --------------------------------------------------------------------------------


class ReaderGroupBase(Closable):
    """The base of reader groups."""

    def _about(self, twin: Any) -> object:
        return f"group {twin.name}"

    def _reader(
        self,
        reader_id: str,
        serializer: Serializer[Any] | None = None,
        *,
        on_checkpoint: Callable[[str], Awaitable[object] | object] | None = None,
        **options: Any,
    ) -> tuple[AsyncEventReader[Any], Callable[[str], Awaitable[object] | object] | None]:
        """The serializer and ``on_checkpoint`` run in the thread that reads."""
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

    def _about(self, twin: Any) -> object:
        return f"reader {twin.reader_id} of group {twin.group}"

    def __enter__(self) -> Self:
        if self._held is not None:
            raise InvalidArgumentError(
                f"reader {self._twin.reader_id} was already entered: create another one with reader()"
            )
        self._held = self._portal.enter(self._twin)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._held is None:
            raise InvalidArgumentError(f"reader {self._twin.reader_id} was not entered")
        if is_hurried(error):
            self._held.break_off()
        else:
            self._held.leave(failed=error is not None)

    def _end(self, timeout: float | None, function: Callable[..., Awaitable[None]], *args: Any) -> None:
        [position] = args
        if position is not None:
            # Here as well, because the call may be cancelled before it begins.
            self._twin._leave_at = position.offsets
        super()._end(timeout, function, position)

    def _watermark(self, assigner: WatermarkAssigner, *, timeout: float | None = None) -> int | None:
        # Most calls are made before the watermark is due, and need no call into the other thread.
        check_type("assigner", assigner, WatermarkAssigner)
        return self._call(timeout, self._twin.watermark, assigner) if assigner.due else None

    def _find_events(self, timeout: float | None = None) -> Any:
        """Find events, and tell of the checkpoints before them."""
        left = timeout
        began = environment().monotonic()
        while isinstance(found := self._portal.call(self._twin._find, left), ReachedCheckpoint):
            with found.telling():
                if self._on_checkpoint is not None:
                    result = self._on_checkpoint(found.name)
                    if inspect.isawaitable(result):
                        self._portal.call(_awaited, result)
            if timeout is not None:
                left = max(0.0, began + timeout - environment().monotonic())
        return found


async def _awaited(result: Awaitable[object]) -> object:
    return await result


# --- the client -----------------------------------------------------------------------------------


class PravegaClientBase(Handle):
    """The base of the client."""

    _twin: twin.PravegaClient

    def __init__(self, opened: Opened[twin.PravegaClient]) -> None:
        if not isinstance(opened, Opened) or opened.held is None:
            raise InvalidArgumentError(twin.MADE_BY)
        super().__init__(opened, opened.held.value)
        self._opened = opened

    def close(self) -> None:
        """Close the client, everything opened with it, and its thread. Closing it again does nothing.

        Calls in progress in other threads raise :class:`ClosedError`. Events that a writer has not flushed
        may be lost, so close writers first. Leaving the client's ``with`` block does the same.
        """
        self._opened.close()

    def __enter__(self) -> Self:
        if self._portal.closed:
            raise ClosedError("the client is closed")
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def run(
        self,
        function: Callable[Concatenate[twin.PravegaClient, A], Awaitable[T]],
        /,
        *args: A.args,
        **kwargs: A.kwargs,
    ) -> T:
        """Run an async function over the trio client, and return its result.

        What is written for the client of trio serves a blocking program in this way: archives, ingestion, and
        functions of your own.

        Example::

            from pravega_wire.archive import archive_stream

            manifest = client.run(archive_stream, "demo/readings", "archived")

        :param function: is called with the :class:`pravega_wire.PravegaClient` and the other arguments. It
            runs in the client's thread, which does everything else for this client, so it must not block; it
            cannot call the blocking client. What it returns must not be an object of the trio client.
        :param args: more arguments for the function.
        :param kwargs: more arguments for the function.
        :raises ArgumentTypeError: it is not an async function.
        :raises ClosedError: the client was closed before or during this call, which cancels the function.
        """
        result: T = self._call(None, run_over, self._twin, function, args, kwargs)
        return result

    def _event_writer(
        self,
        stream: StreamName,
        *,
        serializer: Serializer[Any] | None = None,
        partitioner: Partitioner = routing_key_position,
        **options: Any,
    ) -> tuple[AsyncEventWriter, Placing, Callable[[Any], bytes] | None]:
        """The serializer and the partitioner run in the thread that writes."""
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
        """The serializer and the partitioner run in the thread that writes."""
        name = self._twin._resolve(stream)
        convert = None if serializer is None else to_bytes(serializer, name)
        placing = Placing(partitioner, str(name))
        writer = self._twin.resumable_writer(name, writer_id, partitioner=placing.for_writer, **options)
        return writer, placing, convert

    def _begin_transaction(
        self,
        stream: StreamName,
        *,
        serializer: Serializer[Any] | None = None,
        timeout: float | None = None,
        **options: Any,
    ) -> tuple[AsyncTransaction, None, Callable[[Any], bytes] | None]:
        """The serializer runs in the thread that writes."""
        stream = self._twin._resolve(stream)
        convert = None if serializer is None else to_bytes(serializer, stream)
        begin = cast("Callable[..., Awaitable[AsyncTransaction]]", self._twin.begin_transaction)
        return self._call(timeout, begin, stream, **options), None, convert

    def _resume_transaction(
        self,
        stream: StreamName,
        txn_id: UUID,
        *,
        serializer: Serializer[Any] | None = None,
        timeout: float | None = None,
        **options: Any,
    ) -> tuple[AsyncTransaction, None, Callable[[Any], bytes] | None]:
        """The serializer runs in the thread that writes."""
        stream = self._twin._resolve(stream)
        convert = None if serializer is None else to_bytes(serializer, stream)
        resume = cast("Callable[..., Awaitable[AsyncTransaction]]", self._twin.resume_transaction)
        return self._call(timeout, resume, stream, txn_id, **options), None, convert

    def _follow_events(
        self,
        stream: StreamName,
        start: Bound | datetime = "earliest",
        *,
        serializer: Serializer[Any] | None = None,
        **options: Any,
    ) -> tuple[AsyncStreamFollower[Any]]:
        """The serializer runs in the thread that reads."""
        follow = cast("Callable[..., AsyncStreamFollower[Any]]", self._twin.follow_events)
        return (follow(stream, start, serializer=serializer, **options),)

    def _revisioned_stream(
        self, stream: StreamName, serializer: Serializer[Any] | None = None, *, timeout: float | None = None
    ) -> tuple[AsyncRevisionedStream[bytes], Serializer[Any]]:
        """The serializer runs in the calling thread."""
        stream = self._twin._resolve(stream)
        chosen = BytesSerializer() if serializer is None else serializer
        check_serializer(f"revisioned stream {stream}: serializer", chosen)
        found = self._call(
            timeout, cast("Callable[..., Awaitable[Any]]", self._twin.revisioned_stream), stream
        )
        return found, chosen
