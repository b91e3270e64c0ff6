"""The client for asyncio: the async classes, called from an event loop.

Made by ``scripts/gen_facades.py`` from ``pravega_wire.segment.appender``, ``pravega_wire.segment.reader``,
``pravega_wire.stream.batch``, ``pravega_wire.stream.byte_stream``, ``pravega_wire.stream.client``,
``pravega_wire.stream.event_reader``, ``pravega_wire.stream.event_writer``,
``pravega_wire.stream.key_value_table``, ``pravega_wire.stream.reader_group``,
``pravega_wire.stream.resumable``, ``pravega_wire.stream.revisioned``, ``pravega_wire.stream.routing``,
``pravega_wire.stream.synchronizer``, ``pravega_wire.stream.together``, ``pravega_wire.stream.transaction``
and ``pravega_wire.aio.bases``. Do not edit it: run ``python scripts/gen_facades.py``.
"""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Generic, TypeVar, cast, overload
from uuid import UUID

from pravega_wire.aio.bases import (
    Ack,
    ByteStreamReaderBase,
    ByteStreamWriterBase,
    Closable,
    EventBatchesBase,
    EventReaderBase,
    Handle,
    KeyValueTableBase,
    PravegaClientBase,
    RangesReaderBase,
    ReaderGroupBase,
    ResumableWriterBase,
    RevisionedStreamBase,
    RevisionReaderBase,
    RoutedWriterBase,
    TableIteratorBase,
    TableMappingBase,
    TransactionBase,
    crossing,
    listed,
    opened_client,
)
from pravega_wire.boundaries import DEFAULT_PIECE_BYTES, DEFAULT_SPACING, BoundaryIndex, LeadingPart
from pravega_wire.config import ControllerUri, Credentials, PravegaConfig
from pravega_wire.controller.types import KeyValueTableConfiguration, SegmentWithRange, Successors, TxnStatus
from pravega_wire.cuts import Bound, OnTruncated, StreamLayout
from pravega_wire.event_time import WatermarkAssigner
from pravega_wire.groups import (
    OnlineReaders,
    OutstandingCheckpoint,
    ReaderGroupConfig,
    ReaderGroupMetrics,
    TimeWindow,
)
from pravega_wire.hashing import routing_key_position
from pravega_wire.metrics import ClientMetrics, Observer, WriterMetrics
from pravega_wire.policies import StreamConfiguration
from pravega_wire.positions import Checkpoint, EventPointer, KeyValueVersion, Position, Watermark
from pravega_wire.protocol.events import EventBatch
from pravega_wire.segment.reader import EventRangeReader as AsyncEventRangeReader
from pravega_wire.serializers import Serializer
from pravega_wire.stream.batch import StreamReader as AsyncStreamReader
from pravega_wire.stream.byte_stream import ByteStreamReader as AsyncByteStreamReader
from pravega_wire.stream.byte_stream import ByteStreamWriter as AsyncByteStreamWriter
from pravega_wire.stream.client import PravegaClient as AsyncPravegaClient
from pravega_wire.stream.client import StreamInfo, StreamName
from pravega_wire.stream.event_reader import DEFAULT_BUFFERED_BYTES, Event, ReachedCheckpoint, SegmentEvents
from pravega_wire.stream.event_reader import EventReader as AsyncEventReader
from pravega_wire.stream.event_writer import EventWriter as AsyncEventWriter
from pravega_wire.stream.key_value_table import (
    _MISSING,
    DEFAULT_PAGE_SIZE,
    Modification,
    TableEntry,
    TableKey,
)
from pravega_wire.stream.key_value_table import KeyValueTable as AsyncKeyValueTable
from pravega_wire.stream.key_value_table import TableFamily as AsyncTableFamily
from pravega_wire.stream.key_value_table import TableIterator as AsyncTableIterator
from pravega_wire.stream.key_value_table import TableMapping as AsyncTableMapping
from pravega_wire.stream.opening import opening
from pravega_wire.stream.reader_group import ReaderGroup as AsyncReaderGroup
from pravega_wire.stream.resumable import ResumableWriter as AsyncResumableWriter
from pravega_wire.stream.revisioned import RevisionedStream as AsyncRevisionedStream
from pravega_wire.stream.revisioned import RevisionReader as AsyncRevisionReader
from pravega_wire.stream.routing import DEFAULT_MAX_OUTSTANDING_BYTES, Partitioner
from pravega_wire.stream.routing import RoutedWriter as AsyncRoutedWriter
from pravega_wire.stream.synchronizer import StateSynchronizer as AsyncStateSynchronizer
from pravega_wire.stream.synchronizer import Synchronized
from pravega_wire.stream.together import RangesReader as AsyncRangesReader
from pravega_wire.stream.transaction import DEFAULT_LEASE_MS, StagedBytes
from pravega_wire.stream.transaction import StagingWriter as AsyncStagingWriter
from pravega_wire.stream.transaction import Transaction as AsyncTransaction
from pravega_wire.transport.pool import AddressMap
from pravega_wire.types import Revision, ScopedStream, SegmentRange, StreamCut

__all__ = [
    "Ack",
    "ByteStreamReader",
    "ByteStreamWriter",
    "EventBatches",
    "EventReader",
    "EventWriter",
    "KeyValueTable",
    "PravegaClient",
    "RangesReader",
    "ReaderGroup",
    "ResumableWriter",
    "RevisionReader",
    "RevisionedStream",
    "StagingWriter",
    "StateSynchronizer",
    "TableFamily",
    "TableIterator",
    "TableMapping",
    "Transaction",
    "open_client",
]

I = TypeVar("I")  # noqa: E741
K = TypeVar("K")
P = TypeVar("P")
S = TypeVar("S")
T = TypeVar("T")
U = TypeVar("U")
V = TypeVar("V")


@asynccontextmanager
async def open_client(
    config: PravegaConfig | ControllerUri | None = None,
    *,
    scope: str | None = None,
    credentials: Credentials | None = None,
    address_map: AddressMap | None = None,
    observer: Observer | None = None,
) -> AsyncIterator[PravegaClient]:
    """Open a client: ``async with open_client("tcp://localhost:9090", scope="demo") as client``.

    No connection is made before the first call. Leaving the context closes everything; what a
    writer has not flushed by then is lost, so leave writers' contexts first.

    The observer is called in the client's thread.

    :param config: a controller's URI, which may list several addresses (``tcp://a:9090,b:9090``), or several
        URIs; or a whole configuration. What it does not say is as :meth:`PravegaConfig.from_defaults` has it.
    :param scope: scope of stream names that have none; default: the configuration's.
    :param credentials: default: the configuration's.
    :param address_map: translates segment-store addresses that the controller gives,
        ``(host, port) -> (host, port)``, where they cannot be reached as they are.
    :param observer: is called while things happen; see :mod:`pravega_wire.metrics`.
    """
    async with opened_client(
        config, scope=scope, credentials=credentials, address_map=address_map, observer=observer
    ) as (portal, client):
        yield PravegaClient(portal, client)


class PravegaClient(PravegaClientBase):
    """Scopes, streams, writers, transactions and reads. Made by :func:`open_client`.

    Every method may be cancelled; the client stays usable. Methods that change something on the
    controller may have had their effect when they are cancelled or fail on the way back.

    A method that does not answer within the configuration's ``operation_timeout`` raises
    :class:`RetriesExhaustedError`, whose cause is the last failure, or :class:`PravegaTimeoutError`. Reading,
        listing, dividing ranges and :meth:`stream_layout` take as long as there is something to read: the
        limit is for each of their requests.

    What is opened can be entered or awaited. ``async with client.event_writer("s/t") as writer`` closes it on
    the way out; after ``writer = await client.event_writer("s/t")`` the caller closes it.
    """

    _twin: AsyncPravegaClient

    @property
    def config(self) -> PravegaConfig:
        """The configuration the client was opened with."""
        return self._twin.config

    def metrics(self) -> ClientMetrics:
        """What the client has done so far. Also after it was closed, and from any thread."""
        return self._twin.metrics()

    async def create_scope(self, scope: str) -> bool:
        """Create a scope; False when it exists already.

        :raises InvalidArgumentError: illegal name.
        """
        return await self._call(self._twin.create_scope, scope)

    async def delete_scope(self, scope: str, *, recursive: bool = False) -> bool:
        """Delete a scope; False when it did not exist (with ``recursive`` a 0.13.0 server does not tell).

        Without ``recursive`` the scope is listed first, and the controller is asked only if it is empty: a
        0.13.0 controller breaks a scope that it refuses to delete. Make nothing in a scope while it is being
        deleted: what is made between the listing and the deletion still breaks it.

        :param recursive: with every stream, group and table in it.
        :raises ScopeNotEmptyError: it is not empty and ``recursive`` is false; nothing has happened to it.
        :raises ScopeBrokenError: the controller does not get on with deleting what is in it.
        """
        return await self._call(self._twin.delete_scope, scope, recursive=recursive)

    async def scope_exists(self, scope: str) -> bool:
        """Whether the scope exists."""
        return await self._call(self._twin.scope_exists, scope)

    async def list_scopes(self) -> list[str]:
        """Names of all scopes that the credentials allow to see."""
        return await self._call(self._twin.list_scopes)

    async def create_stream(self, stream: StreamName, configuration: StreamConfiguration | int = 1) -> bool:
        """Create a stream; False when it exists already (its configuration is left alone).

        :param configuration: a :class:`StreamConfiguration`, or an int for that many fixed segments.
        :raises ScopeNotFoundError: no such scope. :raises InvalidArgumentError: illegal name.
        :raises ScopeBrokenError: the scope cannot hold another stream with tags, or is being deleted.
        """
        return await self._call(self._twin.create_stream, stream, configuration)

    async def update_stream(self, stream: StreamName, configuration: StreamConfiguration) -> None:
        """Replace the whole configuration of a stream.

        :raises StreamNotFoundError: no such stream. :raises StreamSealedError: it is sealed.
        :raises ScopeBrokenError: the controller cannot enter the tags: see there.
        """
        await self._call(self._twin.update_stream, stream, configuration)

    async def seal_stream(self, stream: StreamName) -> None:
        """Allow no more appends; harmless when it is sealed already.

        :raises StreamNotFoundError: no such stream.
        """
        await self._call(self._twin.seal_stream, stream)

    async def delete_stream(self, stream: StreamName, *, seal: bool = False) -> bool:
        """Delete a sealed stream with its data; False when it did not exist.

        :param seal: seal it first.
        :raises StreamNotSealedError: it is not sealed and ``seal`` is false.
        """
        return await self._call(self._twin.delete_stream, stream, seal=seal)

    async def stream_exists(self, stream: StreamName) -> bool:
        """Whether the stream exists."""
        return await self._call(self._twin.stream_exists, stream)

    async def list_streams(
        self, scope: str | None = None, *, tag: str | None = None, internal: bool = False
    ) -> list[ScopedStream]:
        """Scope and name of each stream of a scope.

        :param scope: default the configuration's. :param tag: only streams with this tag.
        :param internal: also streams that Pravega made itself (``_MARK...``, ``_RG...``).
        :raises ScopeNotFoundError: no such scope.
        """
        return await self._call(self._twin.list_streams, scope, tag=tag, internal=internal)

    async def stream_configuration(self, stream: StreamName) -> StreamConfiguration:
        """Scaling policy, retention policy and tags.

        :raises StreamNotFoundError: no such stream.
        """
        return await self._call(self._twin.stream_configuration, stream)

    async def stream_info(self, stream: StreamName) -> StreamInfo:
        """Configuration, head and tail of a stream.

        :raises StreamNotFoundError: no such stream.
        """
        return await self._call(self._twin.stream_info, stream)

    async def head(self, stream: StreamName) -> StreamCut:
        """The oldest position that can be read."""
        return await self._call(self._twin.head, stream)

    async def tail(self, stream: StreamName) -> StreamCut:
        """The position after the newest event."""
        return await self._call(self._twin.tail, stream)

    async def stream_layout(self, stream: StreamName) -> StreamLayout:
        """All segments that the stream has had, with key ranges and lengths, to calculate with cuts offline.

        It asks the controller once for each epoch and the stores once for each segment. Credentials have to
        allow writing, as the server demands it for an epoch's segments.

        :raises StreamNotFoundError: no such stream.
        """
        return await self._call(self._twin.stream_layout, stream)

    async def truncate_stream(self, stream: StreamName, cut: StreamCut) -> None:
        """Drop everything before a cut; reads before it fail afterwards.

        :raises InvalidStreamCutError: the cut is of another stream.
        :raises StreamSealedError: the stream is sealed.
        """
        await self._call(self._twin.truncate_stream, stream, cut)

    async def active_segments(self, stream: StreamName) -> list[SegmentWithRange]:
        """Segments that take appends now, with their key ranges; none of a sealed stream."""
        return await self._call(self._twin.active_segments, stream)

    async def epoch_segments(self, stream: StreamName, epoch: int) -> list[SegmentWithRange]:
        """Segments that were active in an epoch (0 is the stream's first)."""
        return await self._call(self._twin.epoch_segments, stream, epoch)

    async def watermarks(self, stream: StreamName) -> list[Watermark]:
        """The watermarks that the controller has made from the times that writers noted, oldest first.

        They say where in the stream which time was written (:meth:`EventWriter.note_time`); none when no
        writer has noted any.

        :raises StreamNotFoundError: there is no such stream.
        """
        return await self._call(self._twin.watermarks, stream)

    async def successors(self, stream: StreamName, segment_id: int) -> Successors:
        """Segments that follow a sealed segment, each with all its predecessors."""
        return await self._call(self._twin.successors, stream, segment_id)

    async def scale_stream(
        self, stream: StreamName, seal: Sequence[int], new_ranges: Sequence[tuple[float, float]]
    ) -> None:
        """Replace active segments by new ones; returns when it is done.

        :param seal: ids of active segments to seal.
        :param new_ranges: ``(low, high)`` pairs that cover exactly the sealed segments' ranges.
        :raises InvalidArgumentError: nothing to seal, or ranges that are empty or overlap.
        :raises ScaleConflictError: the ranges do not fit, a segment is not active, or another
            scale is running.
        """
        await self._call(self._twin.scale_stream, stream, seal, new_ranges)

    def event_writer(
        self,
        stream: StreamName,
        *,
        max_outstanding_bytes: int = DEFAULT_MAX_OUTSTANDING_BYTES,
        partitioner: Partitioner = routing_key_position,
        note_time_every: float | None = None,
        large_events: bool = False,
    ) -> EventWriter:
        """A writer of events: ``async with client.event_writer("s/t") as writer``.

        The partitioner runs in the event loop.

        :param max_outstanding_bytes: what it may hold unacknowledged before a write waits.
        :param partitioner: routing key to position in the key space; the default is the hash that all clients
            of Pravega use. Another one keeps order per key as well, but only among writers that use the same.
        :param note_time_every: seconds between time notes with the wall clock's time, for watermarks; None
            leaves that to :meth:`EventWriter.note_time`.
        :param large_events: take events over 8 MiB as well (up to 2 GiB): each goes to a segment of its own
            first and is merged when it is whole, so readers see all of it or nothing. Writing one waits until
            it is stored.
        """
        return EventWriter(
            self._portal,
            *(
                self._event_writer(
                    stream,
                    max_outstanding_bytes=max_outstanding_bytes,
                    partitioner=partitioner,
                    note_time_every=note_time_every,
                    large_events=large_events,
                )
            ),
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
        """A writer of a numbered sequence of events that another process may go on with.

        ::

            async with client.resumable_writer("s/t", writer_id) as writer:
                for event, key in source(start_after=writer.last_stored):
                    await writer.write_event(event, key)

        The partitioner runs in the event loop.

        :param writer_id: names the sequence; keep it where the next process finds it.
        :param first_event_number: number of the first event that will be written, from 1; default: the one
            after the last that is known to be stored. Starting earlier is harmless, starting later leaves
            events out.
        """
        return ResumableWriter(
            self._portal,
            *(
                self._resumable_writer(
                    stream,
                    writer_id,
                    first_event_number=first_event_number,
                    max_outstanding_bytes=max_outstanding_bytes,
                    partitioner=partitioner,
                    note_time_every=note_time_every,
                )
            ),
        )

    @opening
    async def begin_transaction(self, stream: StreamName, *, lease_ms: int = DEFAULT_LEASE_MS) -> Transaction:
        """Begin a transaction: ``async with client.begin_transaction("s/t") as transaction``.

        :param lease_ms: milliseconds (10 000 to 600 000 on a server with default limits) after
            which the server aborts it unless it was renewed; renewed in the background.
        :raises StreamNotFoundError: no such stream. :raises StreamSealedError: it is sealed.
        """
        return Transaction(
            self._portal, await self._call(self._twin.begin_transaction, stream, lease_ms=lease_ms)
        )

    @opening
    async def transaction(
        self, stream: StreamName, txn_id: UUID, *, lease_ms: int = DEFAULT_LEASE_MS
    ) -> Transaction:
        """Take up an open transaction by its id, also in another process than it was begun in.

        :raises TransactionNotOpenError: it is committed or aborted (or about to be).
        :raises TransactionUnknownError: the controller does not know it.
        """
        return Transaction(
            self._portal, await self._call(self._twin.transaction, stream, txn_id, lease_ms=lease_ms)
        )

    async def transaction_status(self, stream: StreamName, txn_id: UUID) -> TxnStatus:
        """State of a transaction; ``UNKNOWN`` when the controller does not know it."""
        return await self._call(self._twin.transaction_status, stream, txn_id)

    async def commit_transaction(
        self, stream: StreamName, txn_id: UUID, *, timestamp: int | None = None
    ) -> None:
        """Commit by id. Harmless when it is committing or committed already.

        :raises TransactionAbortedError: it was aborted. :raises TransactionUnknownError: unknown.
        """
        await self._call(self._twin.commit_transaction, stream, txn_id, timestamp=timestamp)

    async def abort_transaction(self, stream: StreamName, txn_id: UUID) -> None:
        """Abort by id. Harmless when it is aborting or aborted already.

        :raises TransactionNotOpenError: it is committed. :raises TransactionUnknownError: unknown.
        """
        await self._call(self._twin.abort_transaction, stream, txn_id)

    async def wait_committed(self, stream: StreamName, txn_id: UUID) -> None:
        """Wait until readers see a committing transaction's events.

        :raises TransactionAbortedError: it was aborted. :raises TransactionUnknownError: unknown.
        :raises PravegaTimeoutError: as :meth:`Transaction.wait_committed`.
        """
        await self._call(self._twin.wait_committed, stream, txn_id)

    async def completed_transactions(self, stream: StreamName) -> dict[UUID, TxnStatus]:
        """Transactions that have ended and are still remembered (at most 500), with how they ended.

        A 0.13.0 server forgets them all once transactions of a second stream have ended: use

        :meth:`transaction_status` for those whose ids are known.
        """
        return await self._call(self._twin.completed_transactions, stream)

    async def ping_transaction(self, stream: StreamName, txn_id: UUID, *, lease_ms: int) -> bool:
        """Renew the lease of an open transaction by id; False when it is not open any more."""
        return await self._call(self._twin.ping_transaction, stream, txn_id, lease_ms=lease_ms)

    @opening
    async def staging_writer(
        self, stream: StreamName, txn_id: UUID, staging_id: UUID | None = None
    ) -> StagingWriter:
        """A writer whose events wait beside a transaction: ``async with client.staging_writer(...)``.

        :param txn_id: the transaction they may be merged into; its epoch decides their segments.
        :param staging_id: names this attempt; it must not have been used before.
        """
        return StagingWriter(
            self._portal, await self._call(self._twin.staging_writer, stream, txn_id, staging_id)
        )

    async def merge_staging(
        self, stream: StreamName, txn_id: UUID, staging_ids: Sequence[UUID]
    ) -> dict[int, int]:
        """Move staged events into an open transaction, in the order of the ids.

        Sending it again is harmless: what was merged already counts as done.

        :returns: length in bytes of each segment of the transaction after that, by its id; nothing where no
            ids were given.
        :raises NoSuchSegmentError: the transaction is not open any more.
        """
        return await self._call(self._twin.merge_staging, stream, txn_id, staging_ids)

    async def delete_staging(self, stream: StreamName, txn_id: UUID, staging_ids: Sequence[UUID]) -> None:
        """Delete staged events that were not merged; missing ones are fine."""
        await self._call(self._twin.delete_staging, stream, txn_id, staging_ids)

    async def segment_ranges(
        self,
        stream: StreamName,
        start: Bound = "earliest",
        end: Bound = "latest",
        *,
        on_truncated: OnTruncated = "raise",
        max_range_bytes: int | None = None,
    ) -> list[SegmentRange]:
        """What lies between two cuts, as one range for each segment that has data there.

        Ranges are values: they can be pickled, shipped, and read again with the same result. They
        come in the order of their segment ids, which keeps the order of each routing key.

        :param start, end: a cut, its text, ``"earliest"`` or ``"latest"``; resolved now.
        :param on_truncated: what to do when data between the cuts is gone: ``"raise"`` or
            ``"skip_to_head"``.
        :param max_range_bytes: divide larger ranges as :meth:`split_range` does (at its cost and with its
            errors); the pieces of a segment come in their order.
        :raises DataLossError: data between the cuts was truncated, or all of it before the end; unless
            ``on_truncated`` is ``"skip_to_head"``, which then gives what is left, or nothing.
        :raises InvalidStreamCutError: a cut of another stream, beyond a segment's end, or of a segment that
            does not exist; or ``start`` is after ``end``.
        """
        return await self._call(
            self._twin.segment_ranges,
            stream,
            start,
            end,
            on_truncated=on_truncated,
            max_range_bytes=max_range_bytes,
        )

    async def split_range(
        self,
        segment_range: SegmentRange,
        max_bytes: int = DEFAULT_PIECE_BYTES,
        *,
        index: BoundaryIndex | None = None,
    ) -> list[SegmentRange]:
        """Divide a range between events, so that several cores or workers can read one segment.

        The pieces follow each other without a gap, from the range's start to its end; none is empty; only a
        piece that is a single event has more than ``max_bytes`` bytes. A range within the limit is given back
        without asking a server. Otherwise one pass over the range follows its headers: where events are large
        it reads just them, where they are small it has to read every byte. (A 0.13.0 server keeps no index of
        events; see ``docs/batch.md``.)

        :param index: boundaries known from before; what they do not cover is looked at.
        :raises TruncatedInputError: the range begins or ends in the middle of an event.
        :raises DecodeError: the range holds no events, for instance it was written as a byte stream.
        :raises DataLossError: it was truncated.
        :raises InvalidArgumentError: it reaches beyond the segment's end, or the limit is not over 0.
        """
        return await self._call(self._twin.split_range, segment_range, max_bytes, index=index)

    async def boundary_index(
        self,
        segment_range: SegmentRange,
        *,
        spacing: int = DEFAULT_SPACING,
        known: BoundaryIndex | None = None,
    ) -> BoundaryIndex:
        """Look for boundaries between the events of a range, to keep and to divide it by any number of times.

        :param spacing: bytes from one boundary to the next; pieces can be as small as this.
        :param known: the index of an earlier, shorter range of the segment: only what came after it is looked
            at, and the result covers both. It is not used when its spacing is another or when it does not
            reach the range's start.
        :raises InvalidArgumentError: ``known`` is of another segment. Others as :meth:`split_range`.
        """
        return await self._call(self._twin.boundary_index, segment_range, spacing=spacing, known=known)

    async def leading_parts(
        self, asked: Iterable[tuple[SegmentRange, int | None, int | None]]
    ) -> list[LeadingPart]:
        """How many whole events of each range are within a limit, to read a stream in portions.

        A pass over the headers, of all ranges at the same time, reads no more than the limits allow.

        :param asked: a range that begins at a boundary, the most bytes (event headers included) and the most
            events that its part may have; None for no limit. An event over the limit of bytes is left out.
        :returns: an answer for each, in the same order.
        :raises TruncatedInputError: a range ends in the middle of an event.
        :raises DecodeError: a range holds no events, or does not begin with one.
        :raises DataLossError: it was truncated.
        :raises InvalidArgumentError: it reaches beyond the segment's end, or a limit is negative.
        """
        return await self._call(self._twin.leading_parts, listed(asked))

    def read_range(self, segment_range: SegmentRange) -> EventBatches:
        """The events of a range: ``async for batch in client.read_range(r)``.

        The objects that this, :meth:`read_events` and :meth:`read_ranges` return are used alike: iterate over
        them, and enter them (``async with client.read_range(r) as batches``) where reading may end before the
        last batch. That gives the connection and the buffers back at once, which otherwise happens after the
        last batch or with the client. Nothing is read before the first batch is asked for.

        :raises DataLossError: (while reading) it was truncated meanwhile.
        """
        return EventBatches(self._portal, self._twin.read_range(segment_range))

    async def range_crc32(self, segment_range: SegmentRange) -> int:
        """CRC-32 (as :func:`zlib.crc32`) of the bytes of a range, event headers included.

        :raises DataLossError: it was truncated.
        :raises InvalidArgumentError: it reaches beyond the segment's end.
        """
        return await self._call(self._twin.range_crc32, segment_range)

    def read_ranges(
        self,
        ranges: Iterable[SegmentRange],
        *,
        at_once: int = 4,
        max_buffered_bytes: int = 32 * 1024 * 1024,
        ordered: bool = True,
    ) -> RangesReader:
        """Several ranges read at the same time: ``async for batch in client.read_ranges(ranges)``.

        It gives :class:`SegmentEvents`, as they arrive. Close it as :meth:`read_range`.

        :param at_once: how many ranges are read at a time.
        :param max_buffered_bytes: what they hold together of data that was received and not taken (at least
            384 KiB for each, and an event that is larger than that as a whole).
        :param ordered: keep the events of each routing key in order: pieces of one segment are read one after
            the other, and a segment after all of earlier epochs. Without it everything is read at once.
        :raises InvalidArgumentError: a number is too small.
        """
        return RangesReader(
            self._portal,
            self._twin.read_ranges(
                listed(ranges), at_once=at_once, max_buffered_bytes=max_buffered_bytes, ordered=ordered
            ),
        )

    def read_events(
        self,
        stream: StreamName,
        start: Bound = "earliest",
        end: Bound = "latest",
        *,
        on_truncated: OnTruncated = "raise",
    ) -> EventBatches:
        """The events between two cuts, in order for each routing key.

        ``async for batch in client.read_events("s/t")``; arguments as :meth:`segment_ranges`, which is called
        when the first batch is asked for, and whose errors are raised then. Close it as :meth:`read_range`.
        """
        return EventBatches(
            self._portal, self._twin.read_events(stream, start, end, on_truncated=on_truncated)
        )

    async def fetch_event(self, pointer: EventPointer) -> bytes:
        """One event, by where it lies (:attr:`Event.pointer`).

        :raises DataLossError: it was truncated.
        :raises InvalidArgumentError: there is no such event in that place.
        """
        return await self._call(self._twin.fetch_event, pointer)

    async def create_reader_group(
        self, group: StreamName, config: ReaderGroupConfig | Iterable[StreamName | StreamCut]
    ) -> bool:
        """Create a reader group; False when it exists already, with the same configuration.

        :param group: ``"scope/group"``, or a name in the default scope.
        :param config: or streams to read from their heads, and cuts to read from there on.
        :raises ReaderGroupError: it exists with another configuration.
        :raises ScopeNotFoundError, StreamNotFoundError, ScopeBrokenError: as named.
        """
        return await self._call(self._twin.create_reader_group, group, listed(config))

    @opening
    async def reader_group(self, group: StreamName) -> ReaderGroup:
        """A group, to make readers of it and to manage it: ``async with client.reader_group("g") as group``.

        :raises ReaderGroupNotFoundError: no such group.
        """
        return ReaderGroup(self._portal, await self._call(self._twin.reader_group, group))

    async def delete_reader_group(self, group: StreamName) -> bool:
        """Delete a group and its state; its readers fail. False when it did not exist."""
        return await self._call(self._twin.delete_reader_group, group)

    async def reader_group_exists(self, group: StreamName) -> bool:
        """Whether the reader group exists."""
        return await self._call(self._twin.reader_group_exists, group)

    async def list_reader_groups(self, scope: str | None = None) -> list[ScopedStream]:
        """Scope and name of each reader group of a scope, by default the configuration's.

        :raises ScopeNotFoundError: no such scope.
        """
        return await self._call(self._twin.list_reader_groups, scope)

    @overload
    @opening
    async def revisioned_stream(self, stream: StreamName) -> RevisionedStream[bytes]: ...

    @overload
    @opening
    async def revisioned_stream(
        self, stream: StreamName, serializer: Serializer[T]
    ) -> RevisionedStream[T]: ...

    @opening
    async def revisioned_stream(
        self, stream: StreamName, serializer: Serializer[T] | None = None
    ) -> RevisionedStream[T] | RevisionedStream[bytes]:
        """A stream of one segment for optimistic concurrency.

        The serializer runs in the event loop.

        :param serializer: of the values; default: they are bytes.
        :raises StreamNotFoundError: no such stream.
        :raises InvalidArgumentError: it has more than one segment.
        """
        return RevisionedStream(self._portal, *(await self._revisioned_stream(stream, serializer)))

    def byte_stream_writer(
        self, stream: StreamName, *, max_outstanding_bytes: int = DEFAULT_MAX_OUTSTANDING_BYTES
    ) -> ByteStreamWriter:
        """A writer of bytes without events: ``async with client.byte_stream_writer("s/t") as writer``.

        :param stream: of one segment. :param max_outstanding_bytes: what it may hold unacknowledged.
        """
        return ByteStreamWriter(
            self._portal, self._twin.byte_stream_writer(stream, max_outstanding_bytes=max_outstanding_bytes)
        )

    def byte_stream_reader(
        self, stream: StreamName, start: int = 0, *, follow: bool = True
    ) -> ByteStreamReader:
        """A reader of a byte stream: ``async with client.byte_stream_reader("s/t") as reader``.

        :param start: first offset in bytes.
        :param follow: wait at the end for more, until the stream is sealed; otherwise what was stored when it
            was opened is all.
        """
        return ByteStreamReader(self._portal, self._twin.byte_stream_reader(stream, start, follow=follow))

    @opening
    async def state_synchronizer(
        self, stream: StreamName, format: Synchronized[S, I, U]
    ) -> StateSynchronizer[S, I, U]:
        """A state shared with other processes, on a stream of one segment.

        :param format: how the state is made, changed and written; :class:`StateFormat` is the simple one.
        :raises StreamNotFoundError: no such stream.
        :raises InvalidArgumentError: it has more than one segment.
        """
        return StateSynchronizer(
            self._portal, await self._call(self._twin.state_synchronizer, stream, format)
        )

    async def create_key_value_table(
        self, table: StreamName, configuration: KeyValueTableConfiguration
    ) -> bool:
        """Create a key-value table; False when it exists already (its configuration is left alone).

        :param configuration: number of partitions and lengths of the keys; they cannot be changed later.
        :raises ScopeNotFoundError, ScopeBrokenError: as named.
        :raises InvalidArgumentError: illegal name or configuration.
        """
        return await self._call(self._twin.create_key_value_table, table, configuration)

    async def key_value_table_exists(self, table: StreamName) -> bool:
        """Whether the key-value table exists."""
        return await self._call(self._twin.key_value_table_exists, table)

    async def key_value_table_configuration(self, table: StreamName) -> KeyValueTableConfiguration:
        """Number of partitions and lengths of the keys.

        :raises KeyValueTableNotFoundError: no such table.
        """
        return await self._call(self._twin.key_value_table_configuration, table)

    async def list_key_value_tables(self, scope: str | None = None) -> list[ScopedStream]:
        """Scope and name of each key-value table of a scope, by default the configuration's.

        :raises ScopeNotFoundError: no such scope.
        """
        return await self._call(self._twin.list_key_value_tables, scope)

    async def delete_key_value_table(self, table: StreamName) -> bool:
        """Delete a key-value table with its data; False when it did not exist."""
        return await self._call(self._twin.delete_key_value_table, table)

    @overload
    async def key_value_table(
        self, table: StreamName, *, sole_writer: bool = False
    ) -> KeyValueTable[bytes, bytes, bytes]: ...

    @overload
    async def key_value_table(
        self, table: StreamName, values: Serializer[V], *, sole_writer: bool = False
    ) -> KeyValueTable[bytes, bytes, V]: ...

    @overload
    async def key_value_table(
        self,
        table: StreamName,
        values: Serializer[V],
        *,
        primary_keys: Serializer[P],
        sole_writer: bool = False,
    ) -> KeyValueTable[P, bytes, V]: ...

    @overload
    async def key_value_table(
        self,
        table: StreamName,
        values: Serializer[V],
        *,
        primary_keys: Serializer[P],
        secondary_keys: Serializer[S],
        sole_writer: bool = False,
    ) -> KeyValueTable[P, S, V]: ...

    async def key_value_table(
        self,
        table: StreamName,
        values: Serializer[Any] | None = None,
        *,
        primary_keys: Serializer[Any] | None = None,
        secondary_keys: Serializer[Any] | None = None,
        sole_writer: bool = False,
    ) -> KeyValueTable[Any, Any, Any]:
        """A key-value table, to read and change its entries.

        :param values: serializer of the values; default: they are bytes.
        :param primary_keys, secondary_keys: serializers of the keys; default: they are bytes. What they make
            has the lengths that the table was created with; the order of iteration is that of these bytes.
        :param sole_writer: promises that nobody else changes the keys that are changed through this object,
            as long as it is used, and that no key is in two updates that are under way at the same time. Then
            an update whose answer was lost is found out or made again; otherwise some end with
            :class:`TableOutcomeUnknownError`.
        :raises KeyValueTableNotFoundError: no such table.
        """
        return KeyValueTable(
            self._portal,
            await self._call(
                cast("Any", self._twin.key_value_table),
                table,
                values,
                primary_keys=primary_keys,
                secondary_keys=secondary_keys,
                sole_writer=sole_writer,
            ),
        )

    async def segment_length(self, stream: StreamName, segment_id: int) -> int:
        """Length of a segment in bytes, truncated data included.

        :raises NoSuchSegmentError: it does not exist.
        """
        return await self._call(self._twin.segment_length, stream, segment_id)


class RoutedWriter(RoutedWriterBase):
    """Routes events to appenders. The base of the public writers; not used by itself.

    Subclasses open the routes with :meth:`_set_routes` and may override :meth:`sealed`.
    """

    _twin: AsyncRoutedWriter

    @property
    def events_written(self) -> int:
        """Events accepted so far."""
        return self._twin.events_written

    @property
    def bytes_written(self) -> int:
        """Bytes of their payloads."""
        return self._twin.bytes_written

    @property
    def segments(self) -> list[str]:
        """Full names of the segments being written now, in the order of their key ranges."""
        return self._twin.segments

    async def write_event(self, event: bytes, routing_key: str | None = None) -> Ack:
        """Append one event; returns as soon as it is accepted for sending.

        Events with one routing key are stored in the order of these calls. Waits only while
        ``max_outstanding_bytes`` are unacknowledged.

        Each call crosses a thread: prefer :meth:`write_events` for many.

        :param event: payload, at most 8 MiB; a ``bytearray`` or ``memoryview`` is copied.
        :param routing_key: events with the same key stay in order; None spreads them.
        :returns: await its ``wait()`` for the event to be durable.
        :raises EventTooLargeError: over the limit; nothing was written.
        :raises PravegaError: the writer has failed; the error says why.
        """
        return Ack(self._portal, *(await self._write_event(event, routing_key)))

    async def write_events(
        self, events: Iterable[bytes], routing_keys: Iterable[str | None] | str | None = None
    ) -> Ack:
        """Append many events in one call, in order; much faster than one call for each.

        Lists and Arrow arrays go to the client's thread as they are. Other iterables are read in the event
        loop, for 5 ms at a time, and what they gave is written before more is read.

        :param events: payloads, any iterable (a generator is read as it is needed); or an Arrow array of
            binary or string, which is written without a Python object for each event.
        :param routing_keys: one key for all, or one for each event, or None to spread them.
        :returns: one acknowledgement for all of them.
        :raises EventTooLargeError: an event is over the limit. The events before it may have been
            written, none after it.
        :raises InvalidArgumentError: fewer or more keys than events. Nothing was written where both have a
            length; of iterators it turns out on the way, at the end for more than a block of events.

        An iterable whose items take long to make does not keep other tasks from running for longer than some
        of them take; one that blocks does. When it raises, what it gave before is written and will be stored,
        and what it raised leaves this call.
        """
        return Ack(self._portal, *(await self._write_events(events, routing_keys)))

    async def write_batch(self, events: Iterable[bytes], routing_key: str | None = None) -> Ack:
        """Append events as one: they are stored all together and next to each other, or not at all.

        :param events: payloads, with 8 bytes for each at most 8 MiB in all.
        :param routing_key: one for all of them; None picks a segment at random.
        :raises EventTooLargeError: over the limit; nothing was written.
        """
        return Ack(self._portal, *(await self._write_batch(events, routing_key)))

    async def flush(self) -> None:
        """Wait until every event written before this call is stored.

        :raises PravegaError: the writer failed; events may or may not be stored.
        """
        await self._call(self._twin.flush)

    @property
    def outstanding_bytes(self) -> int:
        """Bytes, with event headers, that are not acknowledged yet."""
        return self._twin.outstanding_bytes

    def metrics(self) -> WriterMetrics:
        """Counters and latencies since the writer was opened."""
        return self._twin.metrics()

    @property
    def events_acknowledged(self) -> int:
        """Events that are known to be stored."""
        return self._twin.events_acknowledged


class EventWriter(RoutedWriter):
    """Appends events to a stream. Made by :meth:`PravegaClient.event_writer`; a context manager.

    Order per routing key holds through lost connections, segment stores that die, and scaling: what
    was not acknowledged when a segment was sealed goes to its successors, in order, before
    anything newer. Nothing acknowledged is lost and nothing is stored twice. Leaving the context
    flushes.
    """

    _twin: AsyncEventWriter

    async def note_time(self, timestamp: int) -> None:
        """Tell the controller that everything up to event time ``timestamp`` (milliseconds) was written.

        Flushes first. From the times of all writers of a stream the controller makes its watermarks.

        :raises InvalidArgumentError: the writer notes the time by itself (``note_time_every``).
        :raises ControllerError: the time is before one that was noted earlier.
        """
        await self._call(self._twin.note_time, timestamp)

    async def aclose(self) -> None:
        """Flush and end. Cancelled, or after a failure, it ends without flushing.

        :raises PravegaError: the flush failed.
        """
        await self._end(self._twin.aclose)


class ResumableWriter(EventWriter, ResumableWriterBase):
    """Appends a numbered sequence of events, across processes.

    Made by :meth:`PravegaClient.resumable_writer`. Event ``n`` of the sequence is stored once, in whatever
    process and however often it is written, as long as every process with this id writes the same events and
    keys under the same numbers. Start again from the event after :attr:`last_stored`, or from any earlier
    one: what is stored already is left out, and its acknowledgement is there at once. Two processes at the
    same time do no harm.

    It writes as :class:`EventWriter` does, but with a Python object for each event also of an Arrow array.
    Events without a key are spread by their numbers. The numbers are kept by the segments; truncating a
    stream so far that whole segments go, while no process with this id runs, may take them away.
    """

    _twin: AsyncResumableWriter

    @property
    def writer_id(self) -> UUID:
        """The caller's id."""
        return self._twin.writer_id

    @property
    def next_event_number(self) -> int:
        """Number that the next event gets; the first event of a sequence has number 1."""
        return self._twin.next_event_number

    @property
    def events_skipped(self) -> int:
        """Events that were stored already."""
        return self._twin.events_skipped

    @property
    def last_stored(self) -> int:
        """Every event up to this number was stored when the writer was opened; 0 for none.

        After :meth:`aclose` it is the last one that was written. After a process was killed it is the least
        of the last numbers of the segments: later events may be stored as well, of keys whose segments had
        more.
        """
        return self._twin.last_stored

    def last_stored_of(self, routing_key: str) -> int:
        """Of this key every event up to this number was stored when the writer was opened, and none after."""
        return self._last_stored_of(routing_key)

    async def write_event(self, event: bytes, routing_key: str | None = None) -> Ack:
        """As :meth:`EventWriter.write_event`; the event gets the next number.

        Each call crosses a thread: prefer :meth:`write_events` for many.
        """
        return Ack(self._portal, *(await self._write_event(event, routing_key)))

    async def write_batch(self, events: Iterable[bytes], routing_key: str | None = None) -> Ack:
        """As :meth:`EventWriter.write_batch`; each event gets a number."""
        return Ack(self._portal, *(await self._write_batch(events, routing_key)))

    async def write_events(
        self, events: Iterable[bytes], routing_keys: Iterable[str | None] | str | None = None
    ) -> Ack:
        """As :meth:`EventWriter.write_events`; each event gets a number, in this order.

        Lists and Arrow arrays go to the client's thread as they are. Other iterables are read in the event
        loop, for 5 ms at a time, and what they gave is written before more is read.
        """
        return Ack(self._portal, *(await self._write_events(events, routing_keys)))

    async def aclose(self) -> None:
        """As :meth:`EventWriter.aclose`; leaves word that everything up to here is stored."""
        await self._end(self._twin.aclose)


class Transaction(TransactionBase):
    """One transaction on a stream. Made by :meth:`PravegaClient.begin_transaction`.

    While it is open its lease is renewed in the background. As a context manager it aborts on the
    way out unless it was committed.
    """

    _twin: AsyncTransaction

    @property
    def txn_id(self) -> UUID:
        """Its id; another process resumes it by :meth:`PravegaClient.transaction`."""
        return self._twin.txn_id

    @property
    def epoch(self) -> int:
        """Epoch in which the transaction began (int)."""
        return self._twin.epoch

    async def ping(self, lease_ms: int | None = None) -> None:
        """Renew the lease now.

        :param lease_ms: milliseconds from now (default: the transaction's lease).
        :raises TransactionExpiredError: it was aborted. :raises TransactionNotOpenError: committed.
        """
        await self._call(self._twin.ping, lease_ms)

    async def write_event(self, event: bytes, routing_key: str | None = None) -> Ack:
        """As :meth:`EventWriter.write_event`. Events without a key all go to one segment.

        Each call crosses a thread: prefer :meth:`write_events` for many.

        :raises TransactionNotOpenError: committed or aborted, here or elsewhere.
        """
        return Ack(self._portal, *(await self._write_event(event, routing_key)))

    async def write_events(
        self, events: Iterable[bytes], routing_keys: Iterable[str | None] | str | None = None
    ) -> Ack:
        """As :meth:`EventWriter.write_events`; errors as :meth:`write_event`.

        Lists and Arrow arrays go to the client's thread as they are. Other iterables are read in the event
        loop, for 5 ms at a time, and what they gave is written before more is read.
        """
        return Ack(self._portal, *(await self._write_events(events, routing_keys)))

    async def flush(self) -> None:
        """Wait until all events written are stored (not yet visible): the first of two phases.

        :raises TransactionNotOpenError: committed or aborted elsewhere.
        """
        await self._call(self._twin.flush)

    def metrics(self) -> WriterMetrics:
        """Counters of what was written through this object, whatever becomes of the transaction."""
        return self._twin.metrics()

    async def commit(self, timestamp: int | None = None) -> None:
        """Flush, then make the events visible together. Returns when the controller has recorded it.

        Commit of a committed transaction is harmless. Readers see the events a moment later; see

        :meth:`wait_committed`. On a 0.13.0 server a commit that races with somebody else's abort of the same
            transaction may stay COMMITTING, so that readers never see the events; :meth:`wait_committed`
            tells.

        Cancelled while it was flushing, it has not sent the commit: call it again inside the ``async with``
        block, as leaving the block aborts. Cancelled later it may have committed, and leaving the block does
        not abort.

        :param timestamp: event time to note with the commit, milliseconds.
        :raises TransactionAbortedError: it was aborted or its lease ran out; nothing is visible.
        """
        await self._call(self._twin.commit, timestamp)

    async def abort(self) -> None:
        """Drop the events. Harmless when it is aborted already.

        :raises TransactionNotOpenError: it is committed.
        """
        await self._call(self._twin.abort)

    async def status(self) -> TxnStatus:
        """State of the transaction now."""
        return await self._call(self._twin.status)

    async def wait_committed(self) -> None:
        """Wait until readers see the events.

        :raises TransactionAbortedError: it was aborted. :raises TransactionUnknownError: forgotten.
        :raises PravegaTimeoutError: it is still COMMITTING after ``operation_timeout`` seconds. It may be
            waited for again.
        """
        await self._call(self._twin.wait_committed)

    async def aclose(self) -> None:
        """Stop writing and renewing the lease, without an end: another process may resume it."""
        await self._end(self._twin.aclose)


class StagingWriter(RoutedWriter):
    """Writes events next to a transaction, to be merged into it later, or dropped.

    Its segments are named like those of a transaction of their own,
    ``<segment>#transaction.<staging id>``, and the controller knows nothing of them. Used where
    several attempts may write the same data and only one of them shall count.
    """

    _twin: AsyncStagingWriter

    @property
    def staging_id(self) -> UUID:
        """Names the attempt."""
        return self._twin.staging_id

    async def contents(self) -> dict[int, StagedBytes]:
        """Flush; then what each segment holds, by the id of the transaction's segment, without empty ones.

        The ids are those of :attr:`Transaction.segments`: their epoch is the transaction's.

        :raises PravegaError: as :meth:`flush`.
        :raises UnexpectedReplyError: a store says that a segment has another length.
        """
        return await self._call(self._twin.contents)

    async def aclose(self) -> None:
        """Flush and end."""
        await self._end(self._twin.aclose)


class EventBatches(EventBatchesBase):
    """The events of a range, a batch at a time: ``async for batch in reader``.

    Close it (``aclose`` or ``async with``) when it is not read to the end. One task at a time.
    """

    _twin: AsyncEventRangeReader | AsyncStreamReader

    async def aclose(self) -> None:
        """Give the connection back; a task that waits for a batch gets :class:`ClosedError`."""
        await self._end(self._twin.aclose)

    async def next_batch(self) -> EventBatch | None:
        """The next events (at least one), or None after the last.

        The client's thread reads up to 4 MiB ahead, from the first call on.

        :raises TruncatedInputError: the range ends in the middle of an event.
        :raises DecodeError: the bytes are not events. Others as :meth:`RangeReader.receive`.
        """
        return await self._next_batch()


class RangesReader(RangesReaderBase):
    """The events of several ranges, a batch of one segment at a time: ``async for batch in reader``.

    Made by :meth:`PravegaClient.read_ranges`. Close it (``aclose`` or ``async with``) when it is not read to
    the end. One task at a time. It reads ahead, in tasks of the client's, from the first batch asked for.
    """

    _twin: AsyncRangesReader

    async def next_batch(self) -> SegmentEvents | None:
        """The next events (at least one), or None after the last.

        :raises DataLossError: a range was truncated meanwhile; other errors as those of reading one range.
            Every further call raises the same.
        :raises ClosedError: the reader is closed, or was closed meanwhile.
        :raises ConcurrentUseError: another task is reading.
        """
        return await self._next_batch()

    async def aclose(self) -> None:
        """Give the connections back; a task that is reading gets :class:`ClosedError`."""
        await self._end(self._twin.aclose)


class ReaderGroup(ReaderGroupBase):
    """Readers that share the segments of some streams, each segment read by one of them.

    Readers may be in any number of processes, in Python and in Java. Made by
    :meth:`PravegaClient.reader_group`; close it (``aclose`` or ``async with``). Properties tell what was
    known at the last :meth:`refresh`, or the last call that had to ask.
    """

    _twin: AsyncReaderGroup

    @property
    def name(self) -> str:
        """Full name, ``scope/group``."""
        return self._twin.name

    async def refresh(self) -> None:
        """Look what the readers have done."""
        await self._call(self._twin.refresh)

    @property
    def config(self) -> ReaderGroupConfig:
        """The group's configuration."""
        return self._twin.config

    @property
    def streams(self) -> tuple[ScopedStream, ...]:
        """The streams that are read."""
        return self._twin.streams

    @property
    def online_readers(self) -> OnlineReaders:
        """Names of the readers that are in the group, with what each holds and when it last moved."""
        return self._twin.online_readers

    @property
    def outstanding_checkpoints(self) -> tuple[OutstandingCheckpoint, ...]:
        """The checkpoints that are not complete, oldest first, with the readers that have not answered.

        Those that readers begin by themselves and those of :meth:`generate_stream_cuts` are among them.
        """
        return self._twin.outstanding_checkpoints

    @property
    def segment_distribution(self) -> dict[str, tuple[str, ...]]:
        """Reader to the full names of its segments."""
        return self._twin.segment_distribution

    @property
    def unassigned_segments(self) -> tuple[str, ...]:
        """Full names of the segments that no reader has at the moment."""
        return self._twin.unassigned_segments

    async def metrics(self) -> ReaderGroupMetrics:
        """How the group does now."""
        return await self._call(self._twin.metrics)

    async def unread_bytes(self) -> int:
        """Bytes from the last complete checkpoint (without one: from the known positions) to the end.

        The end is that of the configuration, or what is stored now; 8 bytes of header count for each event.
        """
        return await self._call(self._twin.unread_bytes)

    async def stream_cuts(self) -> dict[ScopedStream, StreamCut]:
        """Where the group is, by what the readers have told: up to a refresh and a checkpoint old."""
        return await self._call(self._twin.stream_cuts)

    async def last_checkpoint(self) -> dict[ScopedStream, StreamCut] | None:
        """The cuts of the last complete checkpoint, automatic ones too; None before the first."""
        return await self._call(self._twin.last_checkpoint)

    async def time_window(self, stream: ScopedStream | str) -> TimeWindow:
        """The event times the group is at in a stream, by watermarks (:meth:`EventWriter.note_time`).

        :raises InvalidArgumentError: the group does not read the stream.
        """
        return await self._call(self._twin.time_window, stream)

    @overload
    def reader(
        self,
        reader_id: str,
        *,
        initial_delay: float = 0.0,
        on_truncated: OnTruncated = "raise",
        on_checkpoint: Callable[[str], Awaitable[object] | object] | None = None,
        max_buffered_bytes: int = DEFAULT_BUFFERED_BYTES,
    ) -> EventReader[bytes]: ...

    @overload
    def reader(
        self,
        reader_id: str,
        serializer: Serializer[T],
        *,
        initial_delay: float = 0.0,
        on_truncated: OnTruncated = "raise",
        on_checkpoint: Callable[[str], Awaitable[object] | object] | None = None,
        max_buffered_bytes: int = DEFAULT_BUFFERED_BYTES,
    ) -> EventReader[T]: ...

    def reader(
        self,
        reader_id: str,
        serializer: Serializer[Any] | None = None,
        *,
        initial_delay: float = 0.0,
        on_truncated: OnTruncated = "raise",
        on_checkpoint: Callable[[str], Awaitable[object] | object] | None = None,
        max_buffered_bytes: int = DEFAULT_BUFFERED_BYTES,
    ) -> EventReader[Any]:
        """A reader of the group: ``async with group.reader("one") as reader``.

        The serializer and ``on_checkpoint`` run in the event loop.

        :param reader_id: unique in the group. :param serializer: of the events; default: they are bytes.
            For the others see :class:`EventReader`.
        :raises InvalidArgumentError: illegal name, or a number out of its range.
        """
        return EventReader(
            self._portal,
            *(
                self._reader(
                    reader_id,
                    serializer,
                    initial_delay=initial_delay,
                    on_truncated=on_truncated,
                    on_checkpoint=on_checkpoint,
                    max_buffered_bytes=max_buffered_bytes,
                )
            ),
        )

    async def reader_offline(self, reader_id: str, position: Position | None = None) -> None:
        """Declare a reader dead: others take its segments.

        :param position: where it has read to, if that is known. Without it the others read on from its last
            checkpoint, or from where it took its segments: some events are then read again.
        :raises ReaderGroupError: no reader of this name is in the group.
        """
        await self._call(self._twin.reader_offline, reader_id, position)

    async def checkpoint(self, name: str | None = None, *, timeout: float | None = None) -> Checkpoint:
        """Ask every reader where it is, and wait for their answers.

        A reader gives the checkpoint to its user between two events, and counts as having reached it when it
        is asked for the next one. A reader that is not asked for events never answers. When this call is
        cancelled or out of time the checkpoint is withdrawn: readers that wait for the others continue, and
        other checkpoints are not affected.

        :param name: default: a random one. :param timeout: seconds; default: as long as it takes.
        :raises CheckpointTimeoutError: not all readers have answered in time; it names those.
        :raises CheckpointError: too many are outstanding, the name is taken, or it was cancelled.
        """
        return await self._call(partial(self._twin.checkpoint, name, timeout=timeout))

    async def generate_stream_cuts(self, *, timeout: float | None = None) -> dict[ScopedStream, StreamCut]:
        """Ask every reader where it is now, without their users noticing.

        Each answers when it is asked for its next event. What is said of waiting, time and cancellation at

        :meth:`checkpoint` holds here as well.

        :param timeout: seconds; default: as long as it takes.
        :raises CheckpointTimeoutError: not all readers have answered in time; it names those.
        :raises CheckpointError: the group was reset meanwhile.
        """
        return await self._call(partial(self._twin.generate_stream_cuts, timeout=timeout))

    async def cancel_outstanding_checkpoints(self) -> None:
        """Give up the checkpoints that are not complete: who waits for one gets :class:`CheckpointError`."""
        await self._call(self._twin.cancel_outstanding_checkpoints)

    async def reset(
        self, to: Checkpoint | ReaderGroupConfig | Iterable[StreamCut] | None = None
    ) -> ReaderGroupConfig:
        """Begin again: readers fail with :class:`ReinitializationRequiredError`, and are to be made anew.

        :param to: a checkpoint; cuts (streams without one begin at their heads); a configuration that
            replaces the present one; or None for the last complete checkpoint (before the first: the same
            start).
        :returns: the new configuration.
        :raises InvalidStreamCutError: a cut of a stream that the group does not read.
        :raises StreamNotFoundError: a stream of the new configuration does not exist.
        """
        return await self._call(self._twin.reset, listed(to))

    async def update_retention_stream_cut(self, cuts: Iterable[StreamCut]) -> None:
        """Allow the streams to drop what is before these cuts.

        :raises ReaderGroupError: the group's retention is not ``MANUAL_RELEASE_AT_USER_STREAM_CUT``.
        :raises InvalidStreamCutError: a cut that is not one of the stream.
        """
        await self._call(self._twin.update_retention_stream_cut, listed(cuts))

    def segment_counts(self) -> AsyncGenerator[int, None]:
        """The number of segments that are being read or may be: now, and whenever it changes."""
        return crossing(self._portal, self._twin.segment_counts())

    async def wait_for_end_of_data(self) -> None:
        """Wait until everything was read that the group will ever read (end cuts, sealed streams)."""
        await self._call(self._twin.wait_for_end_of_data)

    async def aclose(self) -> None:
        """Give the connections back. Readers have their own."""
        await self._end(self._twin.aclose)


class EventReader(EventReaderBase[T]):
    """One reader of a group: ``async with group.reader("one") as reader: async for event in reader: ...``

    Events of one routing key come in order, each to one reader of the group. An event counts as read when the
    *next* one is asked for: a reader that is left by an exception gives back the last event (or batch) it
    gave out, and another reader gets it; left in the normal way, everything it gave out counts as read.

    Everything that the group has to do (checkpoints, taking and giving segments) is done while an event is
    asked for, as in Java: a reader that does not ask for long holds up the checkpoints of all.

    Use it from one task. Cancelling a call leaves the reader usable. Not every event is a trio checkpoint:
    each batch that arrives and each wait is. To a caller who took events quickly, up to 16 come without a
    look at the time; if he works on each of them for long without a checkpoint, the group waits for all 16.

    :param initial_delay: seconds before the first segment is taken: readers that are started together share
        the segments at once.
    :param on_truncated: what to do when data that is next was truncated: ``"raise"`` raises
        :class:`DataLossError` once, and the next call continues at the new head; ``"skip_to_head"``
        continues there at once, and what is lost is logged, counted and reported to the client's observer
        (:class:`pravega_wire.metrics.DataSkipped`).
    :param on_checkpoint: called, and awaited if it gives an awaitable, with the names of checkpoints that
        iteration comes across.
    :param max_buffered_bytes: what is read ahead, all segments together; at least 256 KiB for each. What was
        read before further segments came is kept.
    """

    _twin: AsyncEventReader[T]

    async def aclose(self, position: Position | None = None) -> None:
        """Leave the group now; the context manager does it otherwise.

        :param position: where this reader counts as having read to; default: everything it has given out.
        """
        await self._end(self._twin.aclose, position)

    @property
    def position(self) -> Position:
        """After the last event that was given out."""
        return self._twin.position

    @property
    def acknowledged_position(self) -> Position:
        """Before the last event, or batch, that was given out: it counts when the next is asked for."""
        return self._twin.acknowledged_position

    @property
    def segments(self) -> tuple[str, ...]:
        """Full names of the segments that this reader reads."""
        return self._twin.segments

    @property
    def end_of_data(self) -> bool:
        """True once the group has read everything it ever will."""
        return self._twin.end_of_data

    async def time_window(self, stream: ScopedStream | str) -> TimeWindow:
        """The event times that the group is at in a stream: see :meth:`ReaderGroup.time_window`."""
        return await self._call(self._twin.time_window, stream)

    async def watermark(self, assigner: WatermarkAssigner) -> int | None:
        """Move a watermark on by the time windows of the group's streams, if that is due.

        :returns: the watermark when it has moved, None when it has not.
        """
        return await self._watermark(assigner)

    async def read_event(self, timeout: float | None = None) -> Event[T] | ReachedCheckpoint | None:
        """The next event, or a checkpoint that comes before it.

        :param timeout: seconds to wait; default: until there is one. What is being done for the group is
            finished first: milliseconds on a server that is well, ``operation_timeout`` at most.
        :returns: None when the time is over, or :attr:`end_of_data`.
        :raises ReinitializationRequiredError: the group was reset, or this reader declared dead: leave it,
            and make a new one.
        :raises DataLossError: events that are next were truncated.
        :raises DecodeError: the bytes in the segment, or the serializer's, make no event.
        """
        return await self._read_event(timeout)

    def read_event_nowait(self) -> Event[T] | None:
        """The next event if it is at hand; None when it takes :meth:`read_event`."""
        return self._twin.read_event_nowait()

    def events_nowait(self) -> Iterator[Event[T]]:
        """Those of the next events that are at hand, until something takes :meth:`read_event`.

        They need no ``await`` each, which is a quarter of what an event costs.
        """
        return self._twin.events_nowait()

    async def read_batch(self, timeout: float | None = None) -> SegmentEvents | ReachedCheckpoint | None:
        """The next events of one segment, as many as have arrived; otherwise as :meth:`read_event`."""
        return await self._read_batch(timeout)

    def batches(self) -> AsyncGenerator[SegmentEvents, None]:
        """All events, in batches: ``async for batch in reader.batches()``."""
        return self._batches()


class RevisionedStream(RevisionedStreamBase[T]):
    """Values in order, each appended only if the writer had seen everything before it.

    A :class:`Revision` is the offset after the value that produced it. Made by
    :meth:`PravegaClient.revisioned_stream`; the same format as the Java class of that name.

    Any number of tasks may use one. Once it is closed every method raises :class:`ClosedError`, also in tasks
    that are waiting at that time; a value that was being written may be stored.
    """

    _twin: AsyncRevisionedStream[bytes]

    async def fetch_latest_revision(self) -> Revision:
        """The revision after the newest value."""
        return await self._call(self._twin.fetch_latest_revision)

    async def fetch_oldest_revision(self) -> Revision:
        """The revision that reading everything starts from."""
        return await self._call(self._twin.fetch_oldest_revision)

    @opening
    async def read_from(self, start: Revision) -> RevisionReader[T]:
        """Values after ``start``, up to the newest at the time of this call.

        :raises DataLossError: values after ``start`` were truncated.
        """
        return RevisionReader(self._portal, *(await self._read_from(start)))

    @opening
    async def read_range(self, start: Revision, end: Revision) -> RevisionReader[T]:
        """Values after ``start`` up to and with the one that produced ``end``.

        :raises DataLossError: values after ``start`` were truncated.
        """
        return RevisionReader(self._portal, *(await self._read_range(start, end)))

    async def wait_beyond(self, revision: Revision) -> None:
        """Wait until there is a value after ``revision``, or what was there is truncated.

        :raises SealedStateError: the stream was sealed, so there will be none.
        :raises ClosedError: this object is closed, or was closed meanwhile.
        """
        await self._call(self._twin.wait_beyond, revision)

    async def write_conditionally(self, latest: Revision, value: T) -> Revision | None:
        """Append ``value`` if ``latest`` is still the newest revision.

        :returns: the new revision, or None when somebody else wrote meanwhile.
        :raises SealedStateError: the stream was sealed.
        :raises RetriesExhaustedError: no answer; whether the value is stored is not known.
        """
        return await self._write_conditionally(latest, value)

    async def write_unconditionally(self, value: T) -> Revision:
        """Append ``value`` whatever was written before; returns its revision."""
        return await self._write_unconditionally(value)

    async def get_mark(self) -> Revision | None:
        """The mark, or None when none was set."""
        return await self._call(self._twin.get_mark)

    async def compare_and_set_mark(self, expected: Revision | None, new: Revision | None) -> bool:
        """Move the mark if it is still ``expected`` (None: not set); False when it is not.

        When an answer was lost, a mark that is ``new`` counts as moved by this call.
        """
        return await self._call(self._twin.compare_and_set_mark, expected, new)

    async def truncate_to(self, revision: Revision) -> None:
        """Forget the values before ``revision``; nothing happens when they are gone already.

        :raises InvalidArgumentError: the revision is beyond the end of the stream.
        """
        await self._call(self._twin.truncate_to, revision)

    async def aclose(self) -> None:
        """Give the connection back; tasks that wait in a call get :class:`ClosedError`."""
        await self._end(self._twin.aclose)


class RevisionReader(RevisionReaderBase[T]):
    """``async for revision, value in reader``; values in order."""

    _twin: AsyncRevisionReader[bytes]

    async def next_value(self) -> tuple[Revision, T] | None:
        """The next value with the revision it produced, or None after the last.

        :raises ClosedError: the reader is closed, or was closed meanwhile.
        """
        return await self._next_value()

    async def next_values(self) -> list[tuple[Revision, T]]:
        """The next values with their revisions, as many as have arrived; an empty list after the last."""
        return await self._next_values()

    async def aclose(self) -> None:
        """Give the connection back."""
        await self._end(self._twin.aclose)


class ByteStreamWriter(ByteStreamWriterBase):
    """Appends bytes to a stream of one segment. Made by :meth:`PravegaClient.byte_stream_writer`.

    Bytes are stored in order, each once, through lost connections and stores that die. They carry no event
    headers: such a stream is read by a :class:`ByteStreamReader` (here or in Java) only.

    One task writes at a time: a second one gets :class:`ConcurrentUseError`, and none of its bytes are taken.
    Other tasks may call :meth:`flush` and :meth:`aclose` at any time.
    """

    _twin: AsyncByteStreamWriter

    async def write(self, data: bytes | bytearray | memoryview) -> int:
        """Append bytes; returns their number once they are accepted (see :meth:`flush`).

        Waits only while ``max_outstanding_bytes`` are unacknowledged. Where this fails, or is cancelled while
        it waits, a beginning of the bytes may have been accepted.

        :raises StreamSealedError: the stream was sealed. :raises PravegaError: the writer failed.
        :raises ConcurrentUseError: another task is writing. :raises ClosedError: the writer is closed, or was
            closed meanwhile.
        """
        return await self._call(self._twin.write, data)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """:meth:`write`, as a :class:`trio.abc.SendStream`: with trio's errors.

        :raises BrokenStreamError: the writer has failed (also a :class:`trio.BrokenResourceError`); its
            ``__cause__`` is what :meth:`write` would raise.
        :raises ConcurrentUseError: also a :class:`trio.BusyResourceError`.
        :raises ClosedError: also a :class:`trio.ClosedResourceError`.
        """
        await self._call(self._twin.send_all, data)

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until there is room. Errors as those of :meth:`send_all`."""
        await self._call(self._twin.wait_send_all_might_not_block)

    async def flush(self) -> None:
        """Wait until everything accepted so far is stored.

        :raises StreamSealedError: the stream was sealed. :raises PravegaError: the writer failed.
        :raises ClosedError: the writer is closed, or was closed before all was stored.
        """
        await self._call(self._twin.flush)

    async def seal(self) -> None:
        """Flush, and allow no more appends; readers come to an end.

        :raises ConcurrentUseError: another task is writing: it would be cut off in the middle.
        """
        await self._call(self._twin.seal)

    async def send_eof(self) -> None:
        """:meth:`seal` and :meth:`aclose`, for :class:`trio.StapledStream`: with trio's errors.

        Closing alone does not end the stream for its readers: other writers may go on. Harmless when done
        again.
        """
        await self._call(self._twin.send_eof)

    async def truncate(self, offset: int) -> None:
        """Drop the bytes before ``offset``.

        :raises InvalidArgumentError: beyond the end. :raises SegmentTruncatedError: dropped already.
        """
        await self._call(self._twin.truncate, offset)

    async def fetch_head(self) -> int:
        """The first offset that can be read, in bytes."""
        return await self._call(self._twin.fetch_head)

    async def fetch_tail(self) -> int:
        """The offset after the last stored byte."""
        return await self._call(self._twin.fetch_tail)

    async def aclose(self) -> None:
        """Flush and end. Cancelled, it ends without flushing.

        From the beginning nothing more is accepted: a task that waits in :meth:`write` gets

        :class:`ClosedError`, with what it had accepted by then flushed.

        :raises PravegaError: not everything accepted was stored, and no call before has said so.
        """
        await self._end(self._twin.aclose)

    def metrics(self) -> WriterMetrics:
        """Counters and latencies since the writer was opened; its events are none."""
        return self._twin.metrics()


class ByteStreamReader(ByteStreamReaderBase):
    """Reads the bytes of a stream of one segment. Made by :meth:`PravegaClient.byte_stream_reader`.

    One task receives or seeks at a time: a second one gets :class:`ConcurrentUseError`.
    """

    _twin: AsyncByteStreamReader

    @property
    def offset(self) -> int:
        """Offset of the next byte."""
        return self._twin.offset

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
        return await self._receive_some(max_bytes)

    async def seek(self, offset: int) -> None:
        """Go on reading at ``offset`` (bytes from the stream's beginning, truncated ones included).

        :raises InvalidArgumentError: negative, or beyond the end.
        :raises ConcurrentUseError: another task is receiving or seeking.
        """
        return await self._seek(offset)

    async def fetch_head(self) -> int:
        """The first offset that can be read."""
        return await self._call(self._twin.fetch_head)

    async def fetch_tail(self) -> int:
        """The offset after the last stored byte."""
        return await self._call(self._twin.fetch_tail)

    async def aclose(self) -> None:
        """Give the connection back; a task that waits for bytes gets :class:`ClosedError`."""
        await self._end(self._twin.aclose)


class StateSynchronizer(Closable, Generic[S, I, U]):
    """A state, known to every process that has a synchronizer on the same stream.

    Updates are appended to a stream of one segment on condition that the writer had seen all earlier ones,
    so all processes apply the same updates in the same order. Made by
    :meth:`PravegaClient.state_synchronizer`; the same format and algorithm as the Java class of that name.

    Several tasks may use one: each record is applied once, whoever reads it first. Once it is closed every
    method raises :class:`ClosedError`, also in tasks that are waiting at that time.
    """

    _twin: AsyncStateSynchronizer[S, I, U]

    @property
    def state(self) -> S | None:
        """The state as of the last fetch or update; None before anybody has initialized it."""
        return self._twin.state

    @property
    def revision(self) -> Revision | None:
        """Up to where :attr:`state` has everything."""
        return self._twin.revision

    async def fetch_updates(self) -> S | None:
        """Apply what others wrote; returns the state, None when nobody has initialized it.

        :raises CorruptedStateError: the stream holds something else than a state's records.
        """
        return await self._call(self._twin.fetch_updates)

    async def wait_for_updates(self) -> S | None:
        """Wait until there is more than was fetched, and fetch it; returns the state.

        The store holds the question until something is written, so it comes at once.

        :raises ClosedError: this object is closed, or was closed meanwhile.
        """
        return await self._call(self._twin.wait_for_updates)

    async def initialize(self, initial: I) -> bool:
        """Write the first state; False, with the state fetched, when somebody has done that before.

        :raises CorruptedStateError: the stream holds updates, and no state that they are for.
        """
        return await self._call(self._twin.initialize, initial)

    async def update(self, generate: Callable[[S], Sequence[U] | None]) -> S:
        """Change the state by updates that were made for exactly this state.

        :param generate: gives the updates for a state, or nothing (None, empty) when there is nothing to do.
            Called again with the newer state whenever somebody else was faster, so it has no side effects.
        :returns: the state after the updates.
        :raises InvalidArgumentError: nobody has initialized the state.
        :raises RetriesExhaustedError: no answer; whether the updates are written shows the next fetch.
        """
        return await self._call(self._twin.update, generate)

    async def update_unconditionally(self, updates: Sequence[U]) -> None:
        """Write updates that are right for any state; they show with the next fetch."""
        await self._call(self._twin.update_unconditionally, updates)

    async def compact(self, summarize: Callable[[S], I | None]) -> None:
        """Write the state as a new beginning, and drop what nobody needs any more.

        What is before the *previous* beginning is truncated, so that a process that is about to read
        from there is not cut off.

        :param summarize: the initial state that makes this state, or None to leave things as they are; called
            again when others write meanwhile.
        :raises InvalidArgumentError: nobody has initialized the state.
        """
        await self._call(self._twin.compact, summarize)

    async def bytes_since_compaction(self) -> int:
        """Bytes a process that joins now has to read."""
        return await self._call(self._twin.bytes_since_compaction)

    async def aclose(self) -> None:
        """Give the connection back; tasks that wait in a call get :class:`ClosedError`."""
        await self._end(self._twin.aclose)


class KeyValueTable(KeyValueTableBase, Generic[P, S, V]):
    """A key-value table. Made by :meth:`PravegaClient.key_value_table`.

    A key is a pair ``(primary, secondary)``, or the primary key alone in a table without secondary keys. As
    bytes they have exactly the lengths that the table was created with.

    A connection that is lost never makes an update happen twice. Where reading back does not tell whether it
    happened once, it raises :class:`TableOutcomeUnknownError`.
    """

    _twin: AsyncKeyValueTable[P, S, V]

    @property
    def name(self) -> ScopedStream:
        """Scope and name of the table."""
        return self._twin.name

    @property
    def configuration(self) -> KeyValueTableConfiguration:
        """Number of partitions and lengths of the keys."""
        return self._twin.configuration

    async def get(self, key: P | tuple[P, S]) -> TableEntry[P, S, V] | None:
        """The entry of a key, None when there is none.

        :raises KeyValueTableNotFoundError: the table was deleted.
        :raises TableKeyLengthError: the key does not have the table's length.
        """
        return await self._call(self._twin.get, key)

    async def get_many(self, keys: Iterable[P | tuple[P, S]]) -> list[TableEntry[P, S, V] | None]:
        """The entries of keys, in their order; None for those that have none.

        Each entry is as it was at some moment during the call, not all at the same.
        """
        return await self._call(self._twin.get_many, listed(keys))

    async def exists(self, key: P | tuple[P, S]) -> bool:
        """Whether there is an entry of this key; its value is not fetched."""
        return await self._call(self._twin.exists, key)

    async def estimated_size(self) -> int:
        """Number of entries as the segments count them: it lags behind what was written."""
        return await self._call(self._twin.estimated_size)

    async def insert(self, key: P | tuple[P, S], value: V) -> KeyValueVersion:
        """Add an entry, if there is none of this key; returns its version.

        :raises TableKeyBadVersionError: there is one.
        :raises TableOutcomeUnknownError: the answer was lost, and whether it was added is not known.
        :raises TableValueTooLargeError: the value has more than 1 040 384 bytes.
        """
        return await self._call(self._twin.insert, key, value)

    async def put(
        self, key: P | tuple[P, S], value: V, version: KeyValueVersion | None = None
    ) -> KeyValueVersion:
        """Set the value of a key, whether it exists or not; returns the new version.

        :param version: only if it has this version.
        :raises TableKeyBadVersionError: it has another.
        :raises TableOutcomeUnknownError: the answer was lost, and whether it was set is not known. Without
            ``version`` it may be called again at once.
        :raises TableValueTooLargeError: the value has more than 1 040 384 bytes.
        """
        return await self._call(self._twin.put, key, value, version)

    async def replace(self, key: P | tuple[P, S], value: V) -> KeyValueVersion:
        """Set the value of a key that exists, whatever version it has; returns the new version.

        :raises TableKeyDoesNotExistError: it does not exist.
        :raises TableOutcomeUnknownError: the answer was lost, and whether it was set is not known.
        """
        return await self._call(self._twin.replace, key, value)

    async def remove(self, key: P | tuple[P, S], version: KeyValueVersion | None = None) -> None:
        """Remove a key; without ``version`` it may be missing already.

        :param version: only if it has this version.
        :raises TableKeyBadVersionError: it has another, or does not exist.
        :raises TableOutcomeUnknownError: the answer was lost, and whether it was removed is not known.
        """
        await self._call(self._twin.remove, key, version)

    async def update_many(
        self, modifications: Iterable[Modification[P | tuple[P, S], V]]
    ) -> list[KeyValueVersion | None]:
        """Make changes to entries of one primary key, all of them or none.

        :param modifications: at most 256: :class:`Insert` and :class:`Put` in any mixture, or only
            :class:`Remove`; each key once.
        :returns: the new versions, in order; None for each removal.
        :raises MixedPrimaryKeysError: more than one primary key.
        :raises TableKeyBadVersionError: a condition does not hold; nothing was changed.
        :raises TableOutcomeUnknownError: the answer was lost, and whether it was made is not known.
        """
        return await self._call(self._twin.update_many, listed(modifications))

    async def put_many(self, items: Iterable[tuple[P | tuple[P, S], V]]) -> None:
        """Set the values of any number of keys, many with each request and without conditions.

        Not atomic: after an error, any of them may have been set. Of a key that comes twice, the last holds.
        """
        await self._call(self._twin.put_many, listed(items))

    async def remove_many(self, keys: Iterable[P | tuple[P, S]]) -> None:
        """Remove any number of keys, many with each request and without conditions.

        Not atomic: after an error, any of them may have been removed.
        """
        await self._call(self._twin.remove_many, listed(keys))

    def keys(
        self,
        *,
        primary: P | None = None,
        between: tuple[P | None, P | None] = (None, None),
        prefix: bytes = b"",
        secondary_between: tuple[S | None, S | None] = (None, None),
        secondary_prefix: bytes = b"",
        after: bytes | None = None,
        page_size: int = DEFAULT_PAGE_SIZE,
    ) -> TableIterator[TableKey[P, S]]:
        """Keys in unsigned byte order: ``async for key in table.keys()``. Arguments as :meth:`entries`."""
        return TableIterator(
            self._portal,
            self._twin.keys(
                primary=primary,
                between=between,
                prefix=prefix,
                secondary_between=secondary_between,
                secondary_prefix=secondary_prefix,
                after=after,
                page_size=page_size,
            ),
        )

    def entries(
        self,
        *,
        primary: P | None = None,
        between: tuple[P | None, P | None] = (None, None),
        prefix: bytes = b"",
        secondary_between: tuple[S | None, S | None] = (None, None),
        secondary_prefix: bytes = b"",
        after: bytes | None = None,
        page_size: int = DEFAULT_PAGE_SIZE,
    ) -> TableIterator[TableEntry[P, S, V]]:
        """Entries in unsigned byte order of their keys: ``async for entry in table.entries()``.

        All partitions are merged. Entries that are changed meanwhile come as they were before or after.

        :param primary: only this primary key.
        :param between: first and last primary key, both inclusive, None for no bound.
        :param prefix: only primary keys that begin with these bytes.
        :param secondary_between: with ``primary``: first and last secondary key, both inclusive.
        :param secondary_prefix: with ``primary``: only secondary keys that begin with these bytes.
        :param after: go on after this :attr:`TableIterator.position`, of an iterator with the same choice.
        :param page_size: entries fetched at a time from each partition.
        """
        return TableIterator(
            self._portal,
            self._twin.entries(
                primary=primary,
                between=between,
                prefix=prefix,
                secondary_between=secondary_between,
                secondary_prefix=secondary_prefix,
                after=after,
                page_size=page_size,
            ),
        )

    def family(self, primary: P) -> TableFamily[P, S, V]:
        """All entries of one primary key, by their secondary keys.

        :raises InvalidArgumentError: the table has no secondary keys.
        """
        return TableFamily(self._portal, self._twin.family(primary))

    def mapping(self) -> TableMapping[P, V]:
        """The table as a mapping from primary key to value.

        :raises InvalidArgumentError: the table has secondary keys: see :meth:`mapping_of_pairs` and
            :meth:`family`.
        """
        return TableMapping(self._portal, self._twin.mapping())

    def mapping_of_pairs(self) -> TableMapping[TableKey[P, S], V]:
        """The table as a mapping from :class:`TableKey` (any pair will do) to value."""
        return TableMapping(self._portal, self._twin.mapping_of_pairs())


class TableIterator(TableIteratorBase[T]):
    """``async for item in iterator``; items in unsigned byte order of their keys, over all partitions.

    For one task at a time. After an error or a cancellation it goes on with the next item it has not given.
    """

    _twin: AsyncTableIterator[T]

    @property
    def position(self) -> bytes | None:
        """Where to go on after what was given out so far: give it to another iterator as ``after``."""
        return self._twin.position

    async def next_page(self) -> list[T]:
        """The next items, as many as are at hand; an empty list after the last."""
        return await self._next_page()


class TableFamily(Handle, Generic[P, S, V]):
    """The entries of one primary key, by secondary key. They lie together and can change together.

    Made by :meth:`KeyValueTable.family`. Errors are those of the table's methods.
    """

    _twin: AsyncTableFamily[P, S, V]

    @property
    def primary(self) -> P:
        """The primary key."""
        return self._twin.primary

    async def get(self, secondary: S) -> TableEntry[P, S, V] | None:
        """The entry of a secondary key, None when there is none."""
        return await self._call(self._twin.get, secondary)

    async def get_many(self, secondaries: Iterable[S]) -> list[TableEntry[P, S, V] | None]:
        """The entries of secondary keys, in their order; None for those that have none."""
        return await self._call(self._twin.get_many, listed(secondaries))

    async def exists(self, secondary: S) -> bool:
        """Whether there is an entry of this secondary key."""
        return await self._call(self._twin.exists, secondary)

    async def insert(self, secondary: S, value: V) -> KeyValueVersion:
        """Add an entry, if there is none of this secondary key."""
        return await self._call(self._twin.insert, secondary, value)

    async def put(self, secondary: S, value: V, version: KeyValueVersion | None = None) -> KeyValueVersion:
        """Set a value, on the condition of a version where one is given."""
        return await self._call(self._twin.put, secondary, value, version)

    async def replace(self, secondary: S, value: V) -> KeyValueVersion:
        """Set the value of a secondary key that exists."""
        return await self._call(self._twin.replace, secondary, value)

    async def remove(self, secondary: S, version: KeyValueVersion | None = None) -> None:
        """Remove an entry, on the condition of a version where one is given."""
        await self._call(self._twin.remove, secondary, version)

    async def update_many(self, modifications: Iterable[Modification[S, V]]) -> list[KeyValueVersion | None]:
        """Make changes all together or not at all; their keys are secondary keys."""
        return await self._call(self._twin.update_many, listed(modifications))

    async def put_all(self, items: Mapping[S, V]) -> None:
        """Set the values of at most 256 secondary keys, all together or not at all."""
        await self._call(self._twin.put_all, items)

    async def clear(self) -> None:
        """Remove every entry, many with each request; not atomic."""
        await self._call(self._twin.clear)

    def keys(
        self,
        *,
        between: tuple[S | None, S | None] = (None, None),
        prefix: bytes = b"",
        after: bytes | None = None,
        page_size: int = DEFAULT_PAGE_SIZE,
    ) -> TableIterator[TableKey[P, S]]:
        """Keys in the order of the secondary ones. Arguments as :meth:`entries`."""
        return TableIterator(
            self._portal, self._twin.keys(between=between, prefix=prefix, after=after, page_size=page_size)
        )

    def entries(
        self,
        *,
        between: tuple[S | None, S | None] = (None, None),
        prefix: bytes = b"",
        after: bytes | None = None,
        page_size: int = DEFAULT_PAGE_SIZE,
    ) -> TableIterator[TableEntry[P, S, V]]:
        """Entries in unsigned byte order of their secondary keys.

        :param between: first and last secondary key, both inclusive, None for no bound.
        :param prefix: only secondary keys that begin with these bytes.
        :param after: go on after this position. :param page_size: entries fetched at a time.
        """
        return TableIterator(
            self._portal, self._twin.entries(between=between, prefix=prefix, after=after, page_size=page_size)
        )

    def mapping(self) -> TableMapping[S, V]:
        """The family as a mapping from secondary key to value."""
        return TableMapping(self._portal, self._twin.mapping())


class TableMapping(TableMappingBase[K, V]):
    """A table or family with the methods of a mapping, each of which asks the server.

    Iterating goes in unsigned byte order of the keys. Where a mapping's method changes what it has read, as
    :meth:`pop` does, nobody else's change is lost in between.
    """

    _twin: AsyncTableMapping[K, V]

    def listing(self, page_size: int = DEFAULT_PAGE_SIZE) -> TableIterator[TableKey[Any, Any]]:
        """The table's keys that the mapping has."""
        return TableIterator(self._portal, self._twin.listing(page_size))

    def entries(self, page_size: int = DEFAULT_PAGE_SIZE) -> TableIterator[TableEntry[Any, Any, V]]:
        """The table's entries that the mapping has, with their versions."""
        return TableIterator(self._portal, self._twin.entries(page_size))

    async def getitem(self, key: K) -> V:
        """The value of a key. :raises KeyError: there is none."""
        return await self._call(self._twin.getitem, key)

    async def setitem(self, key: K, value: V) -> None:
        """Set the value of a key."""
        await self._call(self._twin.setitem, key, value)

    async def delitem(self, key: K) -> None:
        """Remove a key. :raises KeyError: it does not exist."""
        await self._call(self._twin.delitem, key)

    async def contains(self, key: K) -> bool:
        """Whether the key exists."""
        return await self._call(self._twin.contains, key)

    async def length(self) -> int:
        """Number of keys; every key is listed for that."""
        return await self._call(self._twin.length)

    async def empty(self) -> bool:
        """Whether there is no key at all."""
        return await self._call(self._twin.empty)

    async def get(self, key: K, default: T | None = None) -> V | T | None:
        """The value of a key, or the default."""
        return await self._call(self._twin.get, key, default)

    async def setdefault(self, key: K, default: V) -> V:
        """The value of a key; where there is none, the default becomes it."""
        return await self._call(self._twin.setdefault, key, default)

    async def pop(self, key: K, default: Any = _MISSING) -> Any:
        """Remove a key and return its value. :raises KeyError: it does not exist, and there is no default."""
        return await self._call(self._twin.pop, key, default)

    async def popitem(self) -> tuple[K, V]:
        """Remove the first key and return it with its value. :raises KeyError: there are no keys."""
        return await self._call(self._twin.popitem)

    async def update(self, other: Mapping[K, V] | Iterable[tuple[K, V]] = ()) -> None:
        """Set the values of many keys, many with each request; not atomic."""
        await self._call(self._twin.update, listed(other))

    async def clear(self) -> None:
        """Remove all keys, many with each request; not atomic."""
        await self._call(self._twin.clear)

    def keys(self) -> AsyncGenerator[K, None]:
        """``async for key in mapping.keys()``."""
        return self._keys()

    def values(self) -> AsyncGenerator[V, None]:
        """``async for value in mapping.values()``."""
        return self._values()

    def items(self) -> AsyncGenerator[tuple[K, V], None]:
        """``async for key, value in mapping.items()``."""
        return self._items()
