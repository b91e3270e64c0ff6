"""Blocking mirrors of the classes in ``pravega_wire.stream``: one line a method, no logic.

The documentation of each method is that of its async twin; a test compares names and signatures.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, Self, TypeVar, overload
from uuid import UUID

import trio

from pravega_wire.boundaries import DEFAULT_PIECE_BYTES, DEFAULT_SPACING, BoundaryIndex, LeadingPart
from pravega_wire.config import ControllerUri, Credentials, PravegaConfig
from pravega_wire.controller.types import (
    KeyValueTableConfiguration,
    SegmentWithRange,
    Successors,
    TxnStatus,
)
from pravega_wire.cuts import StreamLayout
from pravega_wire.errors import ClosedError, PravegaError
from pravega_wire.groups import ReaderGroupConfig
from pravega_wire.hashing import routing_key_position
from pravega_wire.metrics import ClientMetrics, Observer, WriterMetrics
from pravega_wire.policies import StreamConfiguration
from pravega_wire.positions import EventPointer, Watermark
from pravega_wire.protocol.events import EventBatch
from pravega_wire.segment.appender import Ack as AsyncAck
from pravega_wire.segment.reader import EventRangeReader
from pravega_wire.serializers import BytesSerializer, Serializer
from pravega_wire.stream import client as twin
from pravega_wire.stream.arrow import is_arrow
from pravega_wire.stream.batch import Bound, OnTruncated, StreamReader
from pravega_wire.stream.client import StreamInfo, StreamName
from pravega_wire.stream.event_reader import SegmentEvents
from pravega_wire.stream.event_writer import EventWriter as AsyncEventWriter
from pravega_wire.stream.key_value_table import KeyValueTable as AsyncKeyValueTable
from pravega_wire.stream.resumable import ResumableWriter as AsyncResumableWriter
from pravega_wire.stream.revisioned import RevisionedStream as AsyncRevisionedStream
from pravega_wire.stream.revisioned import RevisionReader
from pravega_wire.stream.routing import DEFAULT_MAX_OUTSTANDING_BYTES, Partitioner, check_lengths
from pravega_wire.stream.synchronizer import StateSynchronizer as AsyncStateSynchronizer
from pravega_wire.stream.synchronizer import Synchronized
from pravega_wire.stream.together import RangesReader as AsyncRangesReader
from pravega_wire.stream.transaction import (
    DEFAULT_LEASE_MS,
    StagedBytes,
)
from pravega_wire.stream.transaction import (
    StagingWriter as AsyncStagingWriter,
)
from pravega_wire.stream.transaction import (
    Transaction as AsyncTransaction,
)
from pravega_wire.sync.byte_stream import ByteStreamReader, ByteStreamWriter
from pravega_wire.sync.feeding import Feed, Placing, is_plain, plain_keys
from pravega_wire.sync.key_value_table import KeyValueTable
from pravega_wire.sync.portal import Line, Named, Portal
from pravega_wire.sync.reader_group import EventReader, ReaderGroup, listed
from pravega_wire.transport.pool import AddressMap
from pravega_wire.types import Revision, ScopedStream, SegmentRange, StreamCut

__all__ = [
    "Ack",
    "ByteStreamReader",
    "ByteStreamWriter",
    "EventBatches",
    "EventReader",
    "EventWriter",
    "PravegaClient",
    "RangesReader",
    "ReaderGroup",
    "ResumableWriter",
    "RevisionedStream",
    "StagingWriter",
    "StateSynchronizer",
    "Transaction",
    "open_client",
]

log = logging.getLogger(__name__)

_INTERRUPTED_SECONDS = 0.5

T = TypeVar("T")
S = TypeVar("S")
I = TypeVar("I")  # noqa: E741
U = TypeVar("U")
P = TypeVar("P")
V = TypeVar("V")


@contextmanager
def open_client(
    config: PravegaConfig | ControllerUri | None = None,
    *,
    scope: str | None = None,
    credentials: Credentials | None = None,
    address_map: AddressMap | None = None,
    observer: Observer | None = None,
) -> Iterator[PravegaClient]:
    """Open a blocking client: ``with open_client("tcp://localhost:9090", scope="demo") as client``.

    Arguments as :func:`pravega_wire.open_client`; the observer is called in the client's thread.
    """
    portal = Portal("pravega client")
    try:
        client = portal.enter(
            twin.open_client(
                config, scope=scope, credentials=credentials, address_map=address_map, observer=observer
            )
        )
        try:
            yield PravegaClient(portal, client.value)
        finally:
            try:
                # What is still open would lose its client in the middle of its work.
                portal.break_off(but=client)
            finally:
                client.leave()
    finally:
        portal.close()


class _Acks:
    """Several acknowledgements as one."""

    def __init__(self, acks: Sequence[AsyncAck]) -> None:
        self.all = acks

    async def wait(self) -> None:
        """Wait for all of them."""
        for each in self.all:
            await each.wait()
        if not self.all:
            await trio.lowlevel.checkpoint()


class Ack:
    """Blocking twin of :class:`pravega_wire.Ack`."""

    def __init__(self, line: Line, *acks: AsyncAck) -> None:
        # The writer's: closing that ends waiting as well.
        self._portal = line
        self._twin = _Acks(acks)

    @property
    def done(self) -> bool:
        """True once the events are stored or have failed."""
        return all(each.done for each in self._twin.all)

    @property
    def error(self) -> PravegaError | None:
        """Why the events were not stored, or None."""
        return next((each.error for each in self._twin.all if each.error is not None), None)

    def wait(self, *, timeout: float | None = None) -> None:
        """Wait until every event is stored.

        :param timeout: seconds. The events stay queued and may still be stored; it may be waited again.
        """
        self._portal.within(timeout, self._twin.wait)


class EventBatches:
    """``for batch in batches``: blocking twin of the batch readers. Close it if not read through."""

    def __init__(self, portal: Portal | Line, reader: EventRangeReader | StreamReader) -> None:
        self._portal = Line(portal)
        self._twin = reader

    def __iter__(self) -> Iterator[EventBatch]:
        while (batch := self.next_batch()) is not None:
            yield batch

    def next_batch(self, *, timeout: float | None = None) -> EventBatch | None:
        """The next events, or None after the last."""
        return self._portal.within(timeout, self._twin.next_batch)

    def close(self, *, timeout: float | None = None) -> None:
        """Give the connection back."""
        self._portal.close(timeout, self._twin.aclose)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class RangesReader:
    """Blocking twin of :class:`pravega_wire.RangesReader`. Close it if not read through."""

    def __init__(self, portal: Portal | Line, reader: AsyncRangesReader) -> None:
        self._portal = Line(portal)
        self._twin = reader

    def __iter__(self) -> Iterator[SegmentEvents]:
        while (batch := self.next_batch()) is not None:
            yield batch

    def next_batch(self, *, timeout: float | None = None) -> SegmentEvents | None:
        """The next events, or None after the last."""
        return self._portal.within(timeout, self._twin.next_batch)

    def close(self, *, timeout: float | None = None) -> None:
        """Give the connections back."""
        self._portal.close(timeout, self._twin.aclose)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class _Writer:
    """What the blocking writers share."""

    def __init__(
        self,
        portal: Portal | Line,
        writer: AsyncEventWriter | AsyncStagingWriter | AsyncTransaction,
        placing: Placing | None = None,
    ) -> None:
        self._portal = Line(portal, writer.stream)
        self._writer = writer
        self._placing = Placing(routing_key_position) if placing is None else placing

    def write_event(
        self, event: bytes, routing_key: str | None = None, *, timeout: float | None = None
    ) -> Ack:
        """Append one event. Each call crosses a thread: prefer :meth:`write_events` for many.

        :param timeout: seconds to wait for room; the event is queued all the same, and may be stored.
        """
        key = self._placing.key(routing_key)
        return Ack(self._portal, self._portal.within(timeout, self._writer.write_event, event, key))

    def write_events(
        self,
        events: Iterable[bytes],
        routing_keys: Iterable[str | None] | str | None = None,
        *,
        timeout: float | None = None,
    ) -> Ack:
        """Append many events in one call.

        Iterables are read in this thread, while the client's thread writes what they gave so far: an event
        waits some 20 ms at most for the next ones. They may use the client themselves. When one of them
        raises, the events before that are written, and what it raised leaves this call.

        :param timeout: seconds for all of it. The events that were queued until then stay so and may be
            stored; how many they are, ``events_written`` of the writer tells. An iterable was read further
            than that, also when Ctrl-C ends this call: to write the rest, make a new iterable without the
            events that were written. An iterable that blocks is not interrupted by it.
        """
        check_lengths(events, routing_keys)
        keys: Any = routing_keys
        write: Callable[..., Awaitable[AsyncAck]] = self._writer.write_events
        if keys is None or isinstance(keys, str) or not is_arrow(events):
            keys = self._placing.keys(keys)
        else:
            keys = keys if plain_keys(keys) else list(keys)
            write = self._placing.of_array(write, events, keys)
        if is_plain(events) and plain_keys(keys):
            writing = Named(self._writer.write_events, write)
            return Ack(self._portal, self._portal.within(timeout, writing, events, keys))
        one_key = keys if isinstance(keys, str) else None
        feed = Feed(events, None if keys is None or one_key is not None else keys, one_key)
        feeding = Named(self._writer.write_events, feed.write_to)
        return Ack(self._portal, *self._portal.within(timeout, feeding, self._writer.write_events))

    def flush(self, *, timeout: float | None = None) -> None:
        """Wait until every event written before this call is stored.

        :param timeout: seconds. The events stay queued and may still be stored; flush again to know.
        """
        self._portal.within(timeout, self._writer.flush)

    def close(self, *, timeout: float | None = None) -> None:
        """End the writer (an event or staging writer flushes first).

        :param timeout: seconds for the flush. After it the writer is closed as well; whether the events
            without an acknowledgement are stored is not known.
        """
        self._portal.finish(timeout, self._writer.aclose)


class _RoutedWriter(_Writer):
    """What the blocking writers with counters share."""

    def __init__(
        self,
        portal: Portal | Line,
        writer: AsyncEventWriter | AsyncStagingWriter,
        placing: Placing | None = None,
    ) -> None:
        super().__init__(portal, writer, placing)
        self._routed = writer

    @property
    def segments(self) -> list[str]:
        """Full names of the segments being written now, in the order of their key ranges."""
        return self._routed.segments

    def metrics(self) -> WriterMetrics:
        """Counters and latencies since the writer was opened."""
        return self._routed.metrics()

    def write_batch(
        self, events: Iterable[bytes], routing_key: str | None = None, *, timeout: float | None = None
    ) -> Ack:
        """Append events as one: stored all together and next to each other, or not at all.

        :param timeout: seconds to wait for room; the events are queued all the same, and may be stored.
        """
        key = self._placing.key(routing_key)
        return Ack(self._portal, self._portal.within(timeout, self._routed.write_batch, list(events), key))

    @property
    def outstanding_bytes(self) -> int:
        """Bytes, with event headers, that are not acknowledged yet."""
        return self._routed.outstanding_bytes

    @property
    def events_written(self) -> int:
        """Events accepted so far."""
        return self._routed.events_written

    @property
    def events_acknowledged(self) -> int:
        """Events that are known to be stored."""
        return self._routed.events_acknowledged


class EventWriter(_RoutedWriter):
    """Blocking twin of :class:`pravega_wire.EventWriter`."""

    def __init__(
        self, portal: Portal | Line, writer: AsyncEventWriter, placing: Placing | None = None
    ) -> None:
        super().__init__(portal, writer, placing)
        self._twin = writer

    def note_time(self, timestamp: int, *, timeout: float | None = None) -> None:
        """Tell the controller that everything up to this event time (milliseconds) was written."""
        self._portal.within(timeout, self._twin.note_time, timestamp)

    def __enter__(self) -> Self:
        self._portal.call(self._twin.open)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._portal.finish(None, self._twin.__aexit__, kind, error, trace)


class ResumableWriter(EventWriter):
    """Blocking twin of :class:`pravega_wire.ResumableWriter`."""

    def __init__(self, portal: Portal | Line, writer: AsyncResumableWriter, placing: Placing) -> None:
        super().__init__(portal, writer, placing)
        self._resumable = writer

    @property
    def writer_id(self) -> UUID:
        """The caller's id."""
        return self._resumable.writer_id

    @property
    def next_event_number(self) -> int:
        """Number that the next event gets."""
        return self._resumable.next_event_number

    @property
    def events_skipped(self) -> int:
        """Events that were stored already."""
        return self._resumable.events_skipped

    @property
    def last_stored(self) -> int:
        """Every event up to this number was stored when the writer was opened; 0 for none."""
        return self._resumable.last_stored

    def last_stored_of(self, routing_key: str) -> int:
        """Of this key every event up to this number was stored when the writer was opened, and none after."""
        key = self._placing.key(routing_key)
        return self._resumable.last_stored_of(routing_key if key is None else key)


class StagingWriter(_RoutedWriter):
    """Blocking twin of :class:`pravega_wire.StagingWriter`."""

    def __init__(self, portal: Portal | Line, writer: AsyncStagingWriter) -> None:
        super().__init__(portal, writer)
        self._twin = writer

    @property
    def staging_id(self) -> UUID:
        """Names the attempt."""
        return self._twin.staging_id

    def contents(self, *, timeout: float | None = None) -> dict[int, StagedBytes]:
        """Flush; then what each segment holds, by the id of the transaction's segment, without empty ones."""
        return self._portal.within(timeout, self._twin.contents)

    def __enter__(self) -> Self:
        self._portal.call(self._twin.open)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._portal.finish(None, self._twin.__aexit__, kind, error, trace)


class Transaction(_Writer):
    """Blocking twin of :class:`pravega_wire.Transaction`."""

    def __init__(self, portal: Portal | Line, transaction: AsyncTransaction) -> None:
        super().__init__(portal, transaction)
        self._twin = transaction

    @property
    def txn_id(self) -> UUID:
        """Id of the transaction."""
        return self._twin.txn_id

    @property
    def epoch(self) -> int:
        """Epoch in which the transaction began."""
        return self._twin.epoch

    def metrics(self) -> WriterMetrics:
        """Counters of what was written through this object."""
        return self._twin.metrics()

    def ping(self, lease_ms: int | None = None, *, timeout: float | None = None) -> None:
        """Renew the lease now."""
        self._portal.within(timeout, self._twin.ping, lease_ms)

    def commit(self, timestamp: int | None = None, *, timeout: float | None = None) -> None:
        """Flush, then make the events visible together.

        :param timeout: seconds. If the limit was reached while it was still flushing, the commit has not been
            sent: call this again inside the block, as leaving the block aborts the transaction. Otherwise it
            may be committed all the same: :meth:`status` tells, to commit it again is harmless, and leaving
            the block does not abort it.
        """
        self._portal.within(timeout, self._twin.commit, timestamp)

    def abort(self, *, timeout: float | None = None) -> None:
        """Drop the events.

        :param timeout: seconds. It may be aborted all the same; its lease ends it otherwise.
        """
        self._portal.within(timeout, self._twin.abort)

    def status(self, *, timeout: float | None = None) -> TxnStatus:
        """State of the transaction now."""
        return self._portal.within(timeout, self._twin.status)

    def wait_committed(self, *, timeout: float | None = None) -> None:
        """Wait until readers see the events.

        :param timeout: seconds. The transaction stays as it is, and may be waited for again.
        """
        self._portal.within(timeout, self._twin.wait_committed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if kind is None or issubclass(kind, Exception):
            self._portal.finish(None, self._twin.__aexit__, kind, error, trace)
            return
        # After Ctrl-C nobody wants to wait for a server that does not answer: the lease ends it as well.
        try:
            self._portal.finish(_INTERRUPTED_SECONDS, self._twin.__aexit__, kind, error, trace)
        except PravegaError as failure:
            log.info("%s was not aborted: %s", self.txn_id, failure)


class RevisionedStream(Generic[T]):
    """Blocking twin of :class:`pravega_wire.RevisionedStream`."""

    def __init__(
        self, portal: Portal | Line, stream: AsyncRevisionedStream[bytes], serializer: Serializer[T]
    ) -> None:
        self._portal = Line(portal, stream.stream)
        self._twin = stream
        # Values are made of bytes, and bytes of them, in the caller's thread.
        self._serializer = serializer

    def fetch_latest_revision(self, *, timeout: float | None = None) -> Revision:
        """The revision after the newest value."""
        return self._portal.within(timeout, self._twin.fetch_latest_revision)

    def fetch_oldest_revision(self, *, timeout: float | None = None) -> Revision:
        """The revision that reading everything starts from."""
        return self._portal.within(timeout, self._twin.fetch_oldest_revision)

    def read_from(self, start: Revision, *, timeout: float | None = None) -> Iterator[tuple[Revision, T]]:
        """Values after ``start``, up to the newest at the time of this call.

        :param timeout: seconds for each answer of the store.
        """
        return self._values(timeout, self._portal.within(timeout, self._twin.read_from, start))

    def read_range(
        self, start: Revision, end: Revision, *, timeout: float | None = None
    ) -> Iterator[tuple[Revision, T]]:
        """Values after ``start`` up to and with the one that produced ``end``; ``timeout`` as above."""
        return self._values(timeout, self._portal.within(timeout, self._twin.read_range, start, end))

    def _values(self, timeout: float | None, reader: RevisionReader[bytes]) -> Iterator[tuple[Revision, T]]:
        try:
            while (found := self._portal.within(timeout, reader.next_value)) is not None:
                revision, payload = found
                yield revision, self._serializer.deserialize(payload)
        finally:
            try:
                self._portal.call(reader.aclose)
            except ClosedError:
                # With the client, which has ended everything.
                pass

    def write_conditionally(
        self, latest: Revision, value: T, *, timeout: float | None = None
    ) -> Revision | None:
        """Append ``value`` if ``latest`` is still the newest revision.

        :param timeout: seconds. The value may be stored all the same; reading from ``latest`` tells.
        """
        payload = self._serializer.serialize(value)
        return self._portal.within(timeout, self._twin.write_conditionally, latest, payload)

    def write_unconditionally(self, value: T, *, timeout: float | None = None) -> Revision:
        """Append ``value`` whatever was written before.

        :param timeout: seconds. The value may be stored all the same.
        """
        payload = self._serializer.serialize(value)
        return self._portal.within(timeout, self._twin.write_unconditionally, payload)

    def wait_beyond(self, revision: Revision, *, timeout: float | None = None) -> None:
        """Wait until there is a value after ``revision``, or what was there is truncated."""
        self._portal.within(timeout, self._twin.wait_beyond, revision)

    def get_mark(self, *, timeout: float | None = None) -> Revision | None:
        """The mark, or None when none was set."""
        return self._portal.within(timeout, self._twin.get_mark)

    def compare_and_set_mark(
        self, expected: Revision | None, new: Revision | None, *, timeout: float | None = None
    ) -> bool:
        """Move the mark if it is still ``expected``."""
        return self._portal.within(timeout, self._twin.compare_and_set_mark, expected, new)

    def truncate_to(self, revision: Revision, *, timeout: float | None = None) -> None:
        """Forget the values before ``revision``."""
        self._portal.within(timeout, self._twin.truncate_to, revision)

    def close(self, *, timeout: float | None = None) -> None:
        """Give the connection back."""
        self._portal.close(timeout, self._twin.aclose)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class StateSynchronizer(Generic[S, I, U]):
    """Blocking twin of :class:`pravega_wire.StateSynchronizer`.

    Functions given to it run in the caller's thread.
    """

    def __init__(self, portal: Portal | Line, synchronizer: AsyncStateSynchronizer[S, I, U]) -> None:
        self._portal = Line(portal, synchronizer.stream)
        self._twin = synchronizer

    @property
    def state(self) -> S | None:
        """The state as of the last fetch or update; None before anybody has initialized it."""
        return self._twin.state

    @property
    def revision(self) -> Revision | None:
        """Up to where :attr:`state` has everything."""
        return self._twin.revision

    def wait_for_updates(self, *, timeout: float | None = None) -> S | None:
        """Wait until there is more than was fetched, and fetch it; returns the state."""
        return self._portal.within(timeout, self._twin.wait_for_updates)

    def fetch_updates(self, *, timeout: float | None = None) -> S | None:
        """Apply what others wrote; returns the state, None when nobody has initialized it."""
        return self._portal.within(timeout, self._twin.fetch_updates)

    def initialize(self, initial: I, *, timeout: float | None = None) -> bool:
        """Write the first state; False, with the state fetched, when somebody has done that before."""
        return self._portal.within(timeout, self._twin.initialize, initial)

    def update(self, generate: Callable[[S], Sequence[U] | None], *, timeout: float | None = None) -> S:
        """Change the state by updates that were made for exactly this state."""
        return self._portal.within(timeout, self._twin.update, generate)

    def update_unconditionally(self, updates: Sequence[U], *, timeout: float | None = None) -> None:
        """Write updates that are right for any state; they show with the next fetch."""
        self._portal.within(timeout, self._twin.update_unconditionally, updates)

    def compact(self, summarize: Callable[[S], I | None], *, timeout: float | None = None) -> None:
        """Write the state as a new beginning, and drop what nobody needs any more."""
        self._portal.within(timeout, self._twin.compact, summarize)

    def bytes_since_compaction(self, *, timeout: float | None = None) -> int:
        """Bytes a process that joins now has to read."""
        return self._portal.within(timeout, self._twin.bytes_since_compaction)

    def close(self, *, timeout: float | None = None) -> None:
        """Give the connection back."""
        self._portal.close(timeout, self._twin.aclose)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class PravegaClient:
    """Blocking twin of :class:`pravega_wire.PravegaClient`. Made by :func:`open_client`."""

    def __init__(self, portal: Portal | Line, client: twin.PravegaClient) -> None:
        self._portal = Line(portal)
        self._twin = client

    @property
    def config(self) -> PravegaConfig:
        """The configuration the client was opened with."""
        return self._twin.config

    def metrics(self) -> ClientMetrics:
        """What the client has done so far. Also after it was closed."""
        return self._twin.metrics()

    def create_scope(self, scope: str, *, timeout: float | None = None) -> bool:
        """Create a scope; False when it exists already."""
        return self._portal.within(timeout, self._twin.create_scope, scope)

    def delete_scope(self, scope: str, *, recursive: bool = False, timeout: float | None = None) -> bool:
        """Delete a scope; False when it did not exist."""
        return self._portal.within(timeout, self._twin.delete_scope, scope, recursive=recursive)

    def scope_exists(self, scope: str, *, timeout: float | None = None) -> bool:
        """Whether the scope exists."""
        return self._portal.within(timeout, self._twin.scope_exists, scope)

    def list_scopes(self, *, timeout: float | None = None) -> list[str]:
        """Names of all scopes."""
        return self._portal.within(timeout, self._twin.list_scopes)

    def create_stream(
        self,
        stream: StreamName,
        configuration: StreamConfiguration | int = 1,
        *,
        timeout: float | None = None,
    ) -> bool:
        """Create a stream; False when it exists already."""
        return self._portal.within(timeout, self._twin.create_stream, stream, configuration)

    def update_stream(
        self, stream: StreamName, configuration: StreamConfiguration, *, timeout: float | None = None
    ) -> None:
        """Replace the whole configuration of a stream."""
        self._portal.within(timeout, self._twin.update_stream, stream, configuration)

    def seal_stream(self, stream: StreamName, *, timeout: float | None = None) -> None:
        """Allow no more appends."""
        self._portal.within(timeout, self._twin.seal_stream, stream)

    def delete_stream(self, stream: StreamName, *, seal: bool = False, timeout: float | None = None) -> bool:
        """Delete a sealed stream with its data; False when it did not exist."""
        return self._portal.within(timeout, self._twin.delete_stream, stream, seal=seal)

    def stream_exists(self, stream: StreamName, *, timeout: float | None = None) -> bool:
        """Whether the stream exists."""
        return self._portal.within(timeout, self._twin.stream_exists, stream)

    def list_streams(
        self,
        scope: str | None = None,
        *,
        tag: str | None = None,
        internal: bool = False,
        timeout: float | None = None,
    ) -> list[ScopedStream]:
        """Streams of a scope."""
        return self._portal.within(timeout, self._twin.list_streams, scope, tag=tag, internal=internal)

    def stream_configuration(
        self, stream: StreamName, *, timeout: float | None = None
    ) -> StreamConfiguration:
        """Scaling policy, retention policy and tags."""
        return self._portal.within(timeout, self._twin.stream_configuration, stream)

    def stream_info(self, stream: StreamName, *, timeout: float | None = None) -> StreamInfo:
        """Configuration, head and tail of a stream."""
        return self._portal.within(timeout, self._twin.stream_info, stream)

    def head(self, stream: StreamName, *, timeout: float | None = None) -> StreamCut:
        """The oldest position that can be read."""
        return self._portal.within(timeout, self._twin.head, stream)

    def tail(self, stream: StreamName, *, timeout: float | None = None) -> StreamCut:
        """The position after the newest event."""
        return self._portal.within(timeout, self._twin.tail, stream)

    def stream_layout(self, stream: StreamName, *, timeout: float | None = None) -> StreamLayout:
        """All segments that the stream has had, to calculate with cuts offline."""
        return self._portal.within(timeout, self._twin.stream_layout, stream)

    def truncate_stream(self, stream: StreamName, cut: StreamCut, *, timeout: float | None = None) -> None:
        """Drop everything before a cut."""
        self._portal.within(timeout, self._twin.truncate_stream, stream, cut)

    def active_segments(self, stream: StreamName, *, timeout: float | None = None) -> list[SegmentWithRange]:
        """Segments that take appends now."""
        return self._portal.within(timeout, self._twin.active_segments, stream)

    def epoch_segments(
        self, stream: StreamName, epoch: int, *, timeout: float | None = None
    ) -> list[SegmentWithRange]:
        """Segments that were active in an epoch."""
        return self._portal.within(timeout, self._twin.epoch_segments, stream, epoch)

    def watermarks(self, stream: StreamName, *, timeout: float | None = None) -> list[Watermark]:
        """The watermarks made from the times that writers noted, oldest first."""
        return self._portal.within(timeout, self._twin.watermarks, stream)

    def successors(self, stream: StreamName, segment_id: int, *, timeout: float | None = None) -> Successors:
        """Segments that follow a sealed segment."""
        return self._portal.within(timeout, self._twin.successors, stream, segment_id)

    def scale_stream(
        self,
        stream: StreamName,
        seal: Sequence[int],
        new_ranges: Sequence[tuple[float, float]],
        *,
        timeout: float | None = None,
    ) -> None:
        """Replace active segments by new ones; returns when it is done."""
        self._portal.within(timeout, self._twin.scale_stream, stream, seal, new_ranges)

    def read_ranges(
        self,
        ranges: Iterable[SegmentRange],
        *,
        at_once: int = 4,
        max_buffered_bytes: int = 32 * 1024 * 1024,
        ordered: bool = True,
    ) -> RangesReader:
        """Several ranges read at the same time: ``for batch in client.read_ranges(ranges)``."""
        return RangesReader(
            self._portal,
            self._twin.read_ranges(
                list(ranges), at_once=at_once, max_buffered_bytes=max_buffered_bytes, ordered=ordered
            ),
        )

    def event_writer(
        self,
        stream: StreamName,
        *,
        max_outstanding_bytes: int = DEFAULT_MAX_OUTSTANDING_BYTES,
        partitioner: Partitioner = routing_key_position,
        note_time_every: float | None = None,
        large_events: bool = False,
    ) -> EventWriter:
        """A writer of events; use it as a context manager. The partitioner runs in the writing thread."""
        placing = Placing(partitioner)
        return EventWriter(
            self._portal,
            self._twin.event_writer(
                stream,
                max_outstanding_bytes=max_outstanding_bytes,
                partitioner=placing.for_writer,
                note_time_every=note_time_every,
                large_events=large_events,
            ),
            placing,
        )

    def resumable_writer(
        self,
        stream: StreamName,
        writer_id: UUID,
        *,
        first_event_number: int | None = None,
        max_outstanding_bytes: int = DEFAULT_MAX_OUTSTANDING_BYTES,
        partitioner: Partitioner = routing_key_position,
        note_time_every: float | None = None,
    ) -> ResumableWriter:
        """A writer of a numbered sequence of events that another process can resume."""
        placing = Placing(partitioner)
        return ResumableWriter(
            self._portal,
            self._twin.resumable_writer(
                stream,
                writer_id,
                first_event_number=first_event_number,
                max_outstanding_bytes=max_outstanding_bytes,
                partitioner=placing.for_writer,
                note_time_every=note_time_every,
            ),
            placing,
        )

    def begin_transaction(
        self, stream: StreamName, *, lease_ms: int = DEFAULT_LEASE_MS, timeout: float | None = None
    ) -> Transaction:
        """Begin a transaction."""
        return Transaction(
            self._portal,
            self._portal.within(timeout, self._twin.begin_transaction, stream, lease_ms=lease_ms),
        )

    def transaction(
        self,
        stream: StreamName,
        txn_id: UUID,
        *,
        lease_ms: int = DEFAULT_LEASE_MS,
        timeout: float | None = None,
    ) -> Transaction:
        """Take up an open transaction by its id."""
        return Transaction(
            self._portal,
            self._portal.within(timeout, self._twin.transaction, stream, txn_id, lease_ms=lease_ms),
        )

    def transaction_status(
        self, stream: StreamName, txn_id: UUID, *, timeout: float | None = None
    ) -> TxnStatus:
        """State of a transaction."""
        return self._portal.within(timeout, self._twin.transaction_status, stream, txn_id)

    def commit_transaction(
        self, stream: StreamName, txn_id: UUID, *, timestamp: int | None = None, timeout: float | None = None
    ) -> None:
        """Commit by id."""
        self._portal.within(timeout, self._twin.commit_transaction, stream, txn_id, timestamp=timestamp)

    def abort_transaction(self, stream: StreamName, txn_id: UUID, *, timeout: float | None = None) -> None:
        """Abort by id."""
        self._portal.within(timeout, self._twin.abort_transaction, stream, txn_id)

    def wait_committed(self, stream: StreamName, txn_id: UUID, *, timeout: float | None = None) -> None:
        """Wait until readers see a committing transaction's events."""
        self._portal.within(timeout, self._twin.wait_committed, stream, txn_id)

    def completed_transactions(
        self, stream: StreamName, *, timeout: float | None = None
    ) -> dict[UUID, TxnStatus]:
        """Transactions that have ended and are still remembered, with how they ended."""
        return self._portal.within(timeout, self._twin.completed_transactions, stream)

    def ping_transaction(
        self, stream: StreamName, txn_id: UUID, *, lease_ms: int, timeout: float | None = None
    ) -> bool:
        """Renew the lease of an open transaction by id; False when it is not open any more."""
        return self._portal.within(timeout, self._twin.ping_transaction, stream, txn_id, lease_ms=lease_ms)

    def staging_writer(
        self,
        stream: StreamName,
        txn_id: UUID,
        staging_id: UUID | None = None,
        *,
        timeout: float | None = None,
    ) -> StagingWriter:
        """A writer whose events wait beside a transaction; use it as a context manager."""
        return StagingWriter(
            self._portal,
            self._portal.within(timeout, self._twin.staging_writer, stream, txn_id, staging_id),
        )

    def merge_staging(
        self, stream: StreamName, txn_id: UUID, staging_ids: Sequence[UUID], *, timeout: float | None = None
    ) -> dict[int, int]:
        """Move staged events into an open transaction, in the order of the ids.

        :returns: length in bytes of each segment of the transaction after that, by its id.
        """
        return self._portal.within(timeout, self._twin.merge_staging, stream, txn_id, staging_ids)

    def delete_staging(
        self, stream: StreamName, txn_id: UUID, staging_ids: Sequence[UUID], *, timeout: float | None = None
    ) -> None:
        """Delete staged events that were not merged."""
        self._portal.within(timeout, self._twin.delete_staging, stream, txn_id, staging_ids)

    def segment_ranges(
        self,
        stream: StreamName,
        start: Bound = "earliest",
        end: Bound = "latest",
        *,
        on_truncated: OnTruncated = "raise",
        max_range_bytes: int | None = None,
        timeout: float | None = None,
    ) -> list[SegmentRange]:
        """What lies between two cuts, as one range for each segment that has data there."""
        return self._portal.within(
            timeout,
            self._twin.segment_ranges,
            stream,
            start,
            end,
            on_truncated=on_truncated,
            max_range_bytes=max_range_bytes,
        )

    def split_range(
        self,
        segment_range: SegmentRange,
        max_bytes: int = DEFAULT_PIECE_BYTES,
        *,
        index: BoundaryIndex | None = None,
        timeout: float | None = None,
    ) -> list[SegmentRange]:
        """Divide a range between events, so that several cores or workers can read one segment."""
        return self._portal.within(timeout, self._twin.split_range, segment_range, max_bytes, index=index)

    def boundary_index(
        self,
        segment_range: SegmentRange,
        *,
        spacing: int = DEFAULT_SPACING,
        known: BoundaryIndex | None = None,
        timeout: float | None = None,
    ) -> BoundaryIndex:
        """Look for boundaries between the events of a range, to keep and to divide it by."""
        return self._portal.within(
            timeout, self._twin.boundary_index, segment_range, spacing=spacing, known=known
        )

    def range_crc32(self, segment_range: SegmentRange, *, timeout: float | None = None) -> int:
        """CRC-32 of the bytes of a range, event headers included."""
        return self._portal.within(timeout, self._twin.range_crc32, segment_range)

    def leading_parts(
        self,
        asked: Iterable[tuple[SegmentRange, int | None, int | None]],
        *,
        timeout: float | None = None,
    ) -> list[LeadingPart]:
        """How many whole events of each range are within a limit, to read a stream in portions."""
        return self._portal.within(timeout, self._twin.leading_parts, list(asked))

    def read_range(self, segment_range: SegmentRange) -> EventBatches:
        """The events of a range: ``for batch in client.read_range(r)``."""
        return EventBatches(self._portal, self._twin.read_range(segment_range))

    def read_events(
        self,
        stream: StreamName,
        start: Bound = "earliest",
        end: Bound = "latest",
        *,
        on_truncated: OnTruncated = "raise",
    ) -> EventBatches:
        """The events between two cuts, in order for each routing key."""
        return EventBatches(
            self._portal, self._twin.read_events(stream, start, end, on_truncated=on_truncated)
        )

    def fetch_event(self, pointer: EventPointer, *, timeout: float | None = None) -> bytes:
        """One event, by where it lies."""
        return self._portal.within(timeout, self._twin.fetch_event, pointer)

    def create_reader_group(
        self,
        group: StreamName,
        config: ReaderGroupConfig | Iterable[StreamName | StreamCut],
        *,
        timeout: float | None = None,
    ) -> bool:
        """Create a reader group; False when it exists already, with the same configuration."""
        return self._portal.within(timeout, self._twin.create_reader_group, group, listed(config))

    def reader_group(self, group: StreamName, *, timeout: float | None = None) -> ReaderGroup:
        """A group, to make readers of it and to manage it; use it as a context manager."""
        return ReaderGroup(self._portal, self._portal.within(timeout, self._twin.reader_group, group))

    def delete_reader_group(self, group: StreamName, *, timeout: float | None = None) -> bool:
        """Delete a group and its state; its readers fail."""
        return self._portal.within(timeout, self._twin.delete_reader_group, group)

    def reader_group_exists(self, group: StreamName, *, timeout: float | None = None) -> bool:
        """Whether the reader group exists."""
        return self._portal.within(timeout, self._twin.reader_group_exists, group)

    def list_reader_groups(
        self, scope: str | None = None, *, timeout: float | None = None
    ) -> list[ScopedStream]:
        """Names of the groups in a scope."""
        return self._portal.within(timeout, self._twin.list_reader_groups, scope)

    @overload
    def revisioned_stream(
        self, stream: StreamName, *, timeout: float | None = None
    ) -> RevisionedStream[bytes]: ...

    @overload
    def revisioned_stream(
        self, stream: StreamName, serializer: Serializer[T], *, timeout: float | None = None
    ) -> RevisionedStream[T]: ...

    def revisioned_stream(
        self, stream: StreamName, serializer: Serializer[T] | None = None, *, timeout: float | None = None
    ) -> RevisionedStream[T] | RevisionedStream[bytes]:
        """A stream of one segment for optimistic concurrency."""
        found = self._portal.within(timeout, self._twin.revisioned_stream, stream)
        if serializer is None:
            return RevisionedStream(self._portal, found, BytesSerializer())
        return RevisionedStream(self._portal, found, serializer)

    def byte_stream_writer(
        self, stream: StreamName, *, max_outstanding_bytes: int = DEFAULT_MAX_OUTSTANDING_BYTES
    ) -> ByteStreamWriter:
        """A writer of bytes without events, as a file; use it as a context manager."""
        return ByteStreamWriter(
            self._portal,
            self._twin.byte_stream_writer(stream, max_outstanding_bytes=max_outstanding_bytes),
        )

    def byte_stream_reader(
        self, stream: StreamName, start: int = 0, *, follow: bool = True
    ) -> ByteStreamReader:
        """A reader of a byte stream, as a file; use it as a context manager."""
        return ByteStreamReader(self._portal, self._twin.byte_stream_reader(stream, start, follow=follow))

    def state_synchronizer(
        self, stream: StreamName, format: Synchronized[S, I, U], *, timeout: float | None = None
    ) -> StateSynchronizer[S, I, U]:
        """A state shared with other processes, on a stream of one segment."""
        return StateSynchronizer(
            self._portal, self._portal.within(timeout, self._twin.state_synchronizer, stream, format)
        )

    def create_key_value_table(
        self, table: StreamName, configuration: KeyValueTableConfiguration, *, timeout: float | None = None
    ) -> bool:
        """Create a key-value table; False when it exists already."""
        return self._portal.within(timeout, self._twin.create_key_value_table, table, configuration)

    def key_value_table_exists(self, table: StreamName, *, timeout: float | None = None) -> bool:
        """Whether the key-value table exists."""
        return self._portal.within(timeout, self._twin.key_value_table_exists, table)

    def key_value_table_configuration(
        self, table: StreamName, *, timeout: float | None = None
    ) -> KeyValueTableConfiguration:
        """Number of partitions and lengths of the keys."""
        return self._portal.within(timeout, self._twin.key_value_table_configuration, table)

    def list_key_value_tables(
        self, scope: str | None = None, *, timeout: float | None = None
    ) -> list[ScopedStream]:
        """Scope and name of each key-value table of a scope."""
        return self._portal.within(timeout, self._twin.list_key_value_tables, scope)

    def delete_key_value_table(self, table: StreamName, *, timeout: float | None = None) -> bool:
        """Delete a key-value table with its data; False when it did not exist."""
        return self._portal.within(timeout, self._twin.delete_key_value_table, table)

    @overload
    def key_value_table(
        self, table: StreamName, *, sole_writer: bool = False, timeout: float | None = None
    ) -> KeyValueTable[bytes, bytes, bytes]: ...

    @overload
    def key_value_table(
        self,
        table: StreamName,
        values: Serializer[V],
        *,
        sole_writer: bool = False,
        timeout: float | None = None,
    ) -> KeyValueTable[bytes, bytes, V]: ...

    @overload
    def key_value_table(
        self,
        table: StreamName,
        values: Serializer[V],
        *,
        primary_keys: Serializer[P],
        sole_writer: bool = False,
        timeout: float | None = None,
    ) -> KeyValueTable[P, bytes, V]: ...

    @overload
    def key_value_table(
        self,
        table: StreamName,
        values: Serializer[V],
        *,
        primary_keys: Serializer[P],
        secondary_keys: Serializer[S],
        sole_writer: bool = False,
        timeout: float | None = None,
    ) -> KeyValueTable[P, S, V]: ...

    def key_value_table(
        self,
        table: StreamName,
        values: Serializer[Any] | None = None,
        *,
        primary_keys: Serializer[Any] | None = None,
        secondary_keys: Serializer[Any] | None = None,
        sole_writer: bool = False,
        timeout: float | None = None,
    ) -> KeyValueTable[Any, Any, Any]:
        """A key-value table, to read and change its entries."""
        found: AsyncKeyValueTable[Any, Any, Any] = self._portal.within(
            timeout,
            self._twin.key_value_table,  # type: ignore[arg-type]  # overloads do not go through
            table,
            values,
            primary_keys=primary_keys,
            secondary_keys=secondary_keys,
            sole_writer=sole_writer,
        )
        return KeyValueTable(self._portal, found)

    def segment_length(self, stream: StreamName, segment_id: int, *, timeout: float | None = None) -> int:
        """Length of a segment in bytes, truncated data included."""
        return self._portal.within(timeout, self._twin.segment_length, stream, segment_id)
