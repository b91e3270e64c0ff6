"""The client: everything else is made by it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, overload
from uuid import UUID

import trio

from pravega_wire.boundaries import (
    DEFAULT_PIECE_BYTES,
    DEFAULT_SPACING,
    BoundaryIndex,
    LeadingPart,
    check_bytes,
)
from pravega_wire.checks import INT32_MAX, check_count, check_flag, check_lease, check_text, check_uuid
from pravega_wire.config import ControllerUri, Credentials, PravegaConfig, config_of
from pravega_wire.controller.client import open_controller
from pravega_wire.controller.tokens import Access, TokenCache
from pravega_wire.controller.types import (
    KeyValueTableConfiguration,
    SegmentWithRange,
    Successors,
    TxnStatus,
)
from pravega_wire.cuts import Bound, OnTruncated, StreamLayout
from pravega_wire.errors import (
    InvalidArgumentError,
    KeyValueTableNotFoundError,
    PravegaTimeoutError,
    ScaleConflictError,
    StreamNotSealedError,
    TransactionError,
)
from pravega_wire.groups import ReaderGroupConfig
from pravega_wire.hashing import routing_key_position
from pravega_wire.metrics import ClientClosed, ClientMetrics, ClientOpened, Counters, Observer
from pravega_wire.naming import generalized_segment_id
from pravega_wire.nurseries import lone_errors
from pravega_wire.policies import ScalingPolicy, StreamConfiguration
from pravega_wire.positions import EventPointer, Watermark
from pravega_wire.segment.metadata import SegmentMetadata
from pravega_wire.segment.reader import EventRangeReader
from pravega_wire.segment.store import Backoff, SegmentStores
from pravega_wire.serializers import BytesSerializer, Serializer
from pravega_wire.stream import batch, marks, reader_group, scopes, splitting, transaction
from pravega_wire.stream.batch import StreamReader
from pravega_wire.stream.byte_stream import ByteStreamReader, ByteStreamWriter
from pravega_wire.stream.core import ClientCore
from pravega_wire.stream.event_writer import EventWriter
from pravega_wire.stream.group_link import STATE_PREFIX
from pravega_wire.stream.key_value_table import KeyValueTable, check_configuration
from pravega_wire.stream.opening import opening
from pravega_wire.stream.reader_group import ReaderGroup
from pravega_wire.stream.resumable import ResumableWriter
from pravega_wire.stream.revisioned import RevisionedStream
from pravega_wire.stream.routing import DEFAULT_MAX_OUTSTANDING_BYTES, Partitioner
from pravega_wire.stream.synchronizer import StateSynchronizer, Synchronized
from pravega_wire.stream.together import RangesReader
from pravega_wire.stream.transaction import DEFAULT_LEASE_MS, StagingWriter, Transaction
from pravega_wire.transport.limits import Limits, limited
from pravega_wire.transport.pool import AddressMap, ConnectionPool
from pravega_wire.transport.retry import RetryPolicy
from pravega_wire.types import ScopedStream, SegmentRange, StreamCut

__all__ = ["PravegaClient", "StreamInfo", "open_client"]

T = TypeVar("T")
S = TypeVar("S")
I = TypeVar("I")  # noqa: E741
U = TypeVar("U")
P = TypeVar("P")
V = TypeVar("V")

StreamName = str | ScopedStream
"""``"scope/stream"``, ``"stream"`` in the default scope, or a :class:`ScopedStream`."""

_REMEMBERED_TRANSACTIONS = 64


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """A stream as it was at one moment.

    :ivar configuration: scaling, retention, tags. :ivar head: oldest readable position.
    :ivar tail: position after the newest event. :ivar sealed: nothing can be appended any more.
    """

    configuration: StreamConfiguration
    head: StreamCut
    tail: StreamCut
    sealed: bool


def _check_trio() -> None:
    try:
        trio.lowlevel.current_trio_token()
    except RuntimeError:
        raise InvalidArgumentError(
            "pravega_wire.open_client works under trio only: start the program with trio.run(). Under "
            "asyncio use pravega_wire.aio.open_client, without an event loop pravega_wire.sync.open_client"
        ) from None


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

    :param config: a controller's URI, which may list several addresses (``tcp://a:9090,b:9090``), or several
        URIs; or a whole configuration. What it does not say is as :meth:`PravegaConfig.from_defaults` has it.
    :param scope: scope of stream names that have none; default: the configuration's.
    :param credentials: default: the configuration's.
    :param address_map: translates segment-store addresses that the controller gives,
        ``(host, port) -> (host, port)``, where they cannot be reached as they are.
    :param observer: is called while things happen; see :mod:`pravega_wire.metrics`.
    :raises InvalidArgumentError: it is not trio that runs this, but asyncio, say.
    """
    _check_trio()
    chosen = config_of(config, scope, credentials)
    counters = Counters(observer)
    counters.tell(ClientOpened(counters.metrics))
    try:
        with lone_errors() as body:
            async with (
                open_controller(
                    list(chosen.endpoints),
                    tls=chosen.ssl_context(http2=True),
                    credentials=chosen.authorization(),
                    discovery=chosen.discovery,
                    deadline=min(chosen.controller_deadline, chosen.operation_timeout),
                    policy=RetryPolicy(
                        initial=0.01,
                        multiplier=3.0,
                        cap=min(5.0, chosen.operation_timeout / 8),
                        attempts=1_000_000,
                        total=chosen.operation_timeout,
                    ),
                    counters=counters,
                ) as controller,
                trio.open_nursery() as nursery,
            ):
                pool = ConnectionPool(
                    nursery,
                    tls=chosen.ssl_context(),
                    max_per_store=chosen.max_connections_per_store,
                    address_map=address_map,
                    limits=Limits.of(chosen.operation_timeout),
                )

                async def locate(scope: str, stream: str, segment_id: int) -> tuple[str, int]:
                    node = await controller.get_uri(scope, stream, segment_id)
                    return node.host, node.port

                core = ClientCore(
                    config=chosen,
                    controller=controller,
                    stores=SegmentStores(
                        pool, locate, operation_timeout=chosen.operation_timeout, counters=counters
                    ),
                    tokens=TokenCache(controller),
                    nursery=nursery,
                )
                try:
                    with body:
                        yield PravegaClient(core)
                finally:
                    core.closed = True
                    pool.close()
                    nursery.cancel_scope.cancel()
    finally:
        counters.tell(ClientClosed(counters.metrics))


class PravegaClient:
    """Scopes, streams, writers, transactions and reads. Made by :func:`open_client`.

    Every method may be cancelled; the client stays usable. Methods that change something on the
    controller may have had their effect when they are cancelled or fail on the way back.

    A method that does not answer within the configuration's ``operation_timeout`` raises
    :class:`RetriesExhaustedError`, whose cause is the last failure, or :class:`PravegaTimeoutError`. Reading,
    listing, dividing ranges and :meth:`stream_layout` take as long as there is something to read: the limit
    is for each of their requests.

    What is opened can be entered or awaited. ``async with client.event_writer("s/t") as writer`` closes it on
    the way out; after ``writer = await client.event_writer("s/t")`` the caller closes it.
    """

    def __init__(self, core: ClientCore) -> None:
        self._core = core
        self._txn_segments: dict[tuple[ScopedStream, UUID], list[SegmentWithRange]] = {}

    def __repr__(self) -> str:
        state = "closed" if self._core.closed else "open"
        return f"<PravegaClient of {self.config.controller_uri}, {state}>"

    @property
    def _operation_timeout(self) -> float:
        return self._core.config.operation_timeout

    @property
    def config(self) -> PravegaConfig:
        """The configuration the client was opened with."""
        return self._core.config

    def metrics(self) -> ClientMetrics:
        """What the client has done so far. Also after it was closed, and from any thread."""
        return self._core.counters.metrics()

    def _resolve(self, stream: StreamName) -> ScopedStream:
        self._core.check_open()
        return self._core.config.resolve(stream)

    # --- scopes ---------------------------------------------------------------------------------

    @limited("creating scope {}")
    async def create_scope(self, scope: str) -> bool:
        """Create a scope; False when it exists already.

        :raises InvalidArgumentError: illegal name.
        """
        self._core.check_open()
        return await self._core.controller.create_scope(scope)

    @limited("deleting scope {}")
    async def delete_scope(self, scope: str, *, recursive: bool = False) -> bool:
        """Delete a scope; False when it did not exist (with ``recursive`` a 0.13.0 server does not tell).

        Without ``recursive`` the scope is listed first, and the controller is asked only if it is empty: a
        0.13.0 controller breaks a scope that it refuses to delete. Make nothing in a scope while it is being
        deleted: what is made between the listing and the deletion still breaks it.

        :param recursive: with every stream, group and table in it.
        :raises ScopeNotEmptyError: it is not empty and ``recursive`` is false; nothing has happened to it.
        :raises ScopeBrokenError: the controller does not get on with deleting what is in it.
        """
        self._core.check_open()
        if check_flag("recursive", recursive):
            return await scopes.delete_recursively(self._core, scope)
        return await scopes.delete(self._core, scope)

    @limited("asking for scope {}")
    async def scope_exists(self, scope: str) -> bool:
        """Whether the scope exists."""
        self._core.check_open()
        return await self._core.controller.check_scope_exists(scope)

    async def list_scopes(self) -> list[str]:
        """Names of all scopes that the credentials allow to see."""
        self._core.check_open()
        return [scope async for scope in self._core.controller.list_scopes()]

    # --- streams --------------------------------------------------------------------------------

    @limited("creating stream {}")
    async def create_stream(self, stream: StreamName, configuration: StreamConfiguration | int = 1) -> bool:
        """Create a stream; False when it exists already (its configuration is left alone).

        :param configuration: a :class:`StreamConfiguration`, or an int for that many fixed segments.
        :raises ScopeNotFoundError: no such scope. :raises InvalidArgumentError: illegal name.
        :raises ScopeBrokenError: the scope cannot hold another stream with tags, or is being deleted.
        """
        name = self._resolve(stream)
        if not isinstance(configuration, StreamConfiguration):
            check_count(f"the number of segments of stream {name}", configuration, highest=INT32_MAX)
            configuration = StreamConfiguration(scaling=ScalingPolicy.fixed(configuration))
        return await self._core.controller.create_stream(name.scope, name.name, configuration)

    @limited("updating stream {}")
    async def update_stream(self, stream: StreamName, configuration: StreamConfiguration) -> None:
        """Replace the whole configuration of a stream.

        :raises StreamNotFoundError: no such stream. :raises StreamSealedError: it is sealed.
        :raises ScopeBrokenError: the controller cannot enter the tags: see there.
        """
        name = self._resolve(stream)
        if not isinstance(configuration, StreamConfiguration):
            raise InvalidArgumentError(
                f"stream {name} is updated with a StreamConfiguration, not {configuration!r}"
            )
        await scopes.update_stream(self._core, name, configuration)

    @limited("sealing stream {}")
    async def seal_stream(self, stream: StreamName) -> None:
        """Allow no more appends; harmless when it is sealed already.

        :raises StreamNotFoundError: no such stream.
        """
        name = self._resolve(stream)
        await self._core.controller.seal_stream(name.scope, name.name)

    @limited("deleting stream {}")
    async def delete_stream(self, stream: StreamName, *, seal: bool = False) -> bool:
        """Delete a sealed stream with its data; False when it did not exist.

        :param seal: seal it first.
        :raises StreamNotSealedError: it is not sealed and ``seal`` is false.
        """
        name = self._resolve(stream)
        check_flag("seal", seal)
        try:
            # First: one whose creation was not finished can be deleted, and not be sealed.
            return await self._core.controller.delete_stream(name.scope, name.name)
        except StreamNotSealedError:
            if not seal:
                raise
        await self._core.controller.seal_stream(name.scope, name.name)
        return await self._core.controller.delete_stream(name.scope, name.name)

    @limited("asking for stream {}")
    async def stream_exists(self, stream: StreamName) -> bool:
        """Whether the stream exists."""
        name = self._resolve(stream)
        return await self._core.controller.check_stream_exists(name.scope, name.name)

    async def list_streams(
        self, scope: str | None = None, *, tag: str | None = None, internal: bool = False
    ) -> list[ScopedStream]:
        """Scope and name of each stream of a scope.

        :param scope: default the configuration's. :param tag: only streams with this tag.
        :param internal: also streams that Pravega made itself (``_MARK...``, ``_RG...``).
        :raises ScopeNotFoundError: no such scope.
        """
        self._core.check_open()
        chosen = self._core.config.resolve_scope(scope)
        check_flag("internal", internal)
        if tag is not None:
            check_text("tag", tag)
        controller = self._core.controller
        pages = (
            controller.list_streams(chosen) if tag is None else controller.list_streams_for_tag(chosen, tag)
        )
        return [ScopedStream(chosen, name) async for name in pages if internal or not name.startswith("_")]

    @limited("asking for the configuration of stream {}")
    async def stream_configuration(self, stream: StreamName) -> StreamConfiguration:
        """Scaling policy, retention policy and tags.

        :raises StreamNotFoundError: no such stream.
        """
        name = self._resolve(stream)
        return await self._core.controller.get_stream_configuration(name.scope, name.name)

    @limited("asking for stream {}")
    async def stream_info(self, stream: StreamName) -> StreamInfo:
        """Configuration, head and tail of a stream.

        :raises StreamNotFoundError: no such stream.
        """
        name = self._resolve(stream)
        configuration = await self.stream_configuration(name)
        active = await self._core.controller.get_current_segments(name.scope, name.name)
        return StreamInfo(
            configuration=configuration,
            head=await self.head(name),
            tail=await self.tail(name),
            sealed=not active,
        )

    @limited("asking for the head of stream {}")
    async def head(self, stream: StreamName) -> StreamCut:
        """The oldest position that can be read."""
        return await batch.head(self._core, self._resolve(stream))

    @limited("asking for the tail of stream {}")
    async def tail(self, stream: StreamName) -> StreamCut:
        """The position after the newest event."""
        return await batch.tail(self._core, self._resolve(stream))

    async def stream_layout(self, stream: StreamName) -> StreamLayout:
        """All segments that the stream has had, with key ranges and lengths, to calculate with cuts offline.

        It asks the controller once for each epoch and the stores once for each segment. Credentials have to
        allow writing, as the server demands it for an epoch's segments.

        :raises StreamNotFoundError: no such stream.
        """
        return await batch.stream_layout(self._core, self._resolve(stream))

    @limited("truncating stream {}")
    async def truncate_stream(self, stream: StreamName, cut: StreamCut) -> None:
        """Drop everything before a cut; reads before it fail afterwards.

        :raises InvalidStreamCutError: the cut is of another stream.
        :raises StreamSealedError: the stream is sealed.
        """
        name = self._resolve(stream)
        exact = await batch.resolve_bound(self._core, name, cut, "earliest")
        await self._core.controller.truncate_stream(name.scope, name.name, dict(exact.positions))

    # --- segments and scaling -------------------------------------------------------------------

    @limited("asking for the segments of stream {}")
    async def active_segments(self, stream: StreamName) -> list[SegmentWithRange]:
        """Segments that take appends now, with their key ranges; none of a sealed stream."""
        name = self._resolve(stream)
        return await self._core.controller.get_current_segments(name.scope, name.name)

    @limited("asking for the segments of stream {}")
    async def epoch_segments(self, stream: StreamName, epoch: int) -> list[SegmentWithRange]:
        """Segments that were active in an epoch (0 is the stream's first)."""
        name = self._resolve(stream)
        check_count("epoch", epoch, 0, INT32_MAX)
        return await self._core.controller.get_epoch_segments(name.scope, name.name, epoch)

    @limited("reading the watermarks of stream {}")
    async def watermarks(self, stream: StreamName) -> list[Watermark]:
        """The watermarks that the controller has made from the times that writers noted, oldest first.

        They say where in the stream which time was written (:meth:`EventWriter.note_time`); none when no
        writer has noted any.

        :raises StreamNotFoundError: there is no such stream.
        """
        return await marks.watermarks(self._core, self._resolve(stream))

    @limited("asking for successors in stream {}")
    async def successors(self, stream: StreamName, segment_id: int) -> Successors:
        """Segments that follow a sealed segment, each with all its predecessors."""
        name = self._resolve(stream)
        check_count("segment_id", segment_id, 0)
        return await self._core.controller.get_successors(name.scope, name.name, segment_id)

    @limited("scaling stream {}")
    async def scale_stream(
        self,
        stream: StreamName,
        seal: Sequence[int],
        new_ranges: Sequence[tuple[float, float]],
    ) -> None:
        """Replace active segments by new ones; returns when it is done.

        :param seal: ids of active segments to seal.
        :param new_ranges: ``(low, high)`` pairs that cover exactly the sealed segments' ranges.
        :raises InvalidArgumentError: nothing to seal, or ranges that are empty or overlap.
        :raises ScaleConflictError: the ranges do not fit, a segment is not active, or another
            scale is running.
        """
        name = self._resolve(stream)
        controller = self._core.controller
        epoch = await controller.scale(name.scope, name.name, list(seal), list(new_ranges))
        if epoch is None:
            raise ScaleConflictError(
                f"stream {name} was not scaled: segments {list(seal)} must be active, the new "
                f"ranges {list(new_ranges)} must cover exactly theirs, no fewer segments may be left "
                "than the scaling policy's minimum, and no other scale may run",
                scope=name.scope,
                stream=name.name,
            )
        backoff = Backoff(self.config.operation_timeout, longest=0.5)
        while not await controller.check_scale(name.scope, name.name, epoch):
            if not await backoff.wait():
                raise PravegaTimeoutError(
                    f"the scale of stream {name} from epoch {epoch} has started but is not done "
                    f"after {self.config.operation_timeout:g} s",
                    scope=name.scope,
                    stream=name.name,
                )

    # --- writing --------------------------------------------------------------------------------

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
            self._core,
            self._resolve(stream),
            max_outstanding_bytes=max_outstanding_bytes,
            partitioner=partitioner,
            note_time_every=note_time_every,
            large_events=large_events,
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

        :param writer_id: names the sequence; keep it where the next process finds it.
        :param first_event_number: number of the first event that will be written, from 1; default: the one
            after the last that is known to be stored. Starting earlier is harmless, starting later leaves
            events out.
        """
        return ResumableWriter(
            self._core,
            self._resolve(stream),
            writer_id,
            first_event_number,
            max_outstanding_bytes=max_outstanding_bytes,
            partitioner=partitioner,
            note_time_every=note_time_every,
        )

    # --- transactions ---------------------------------------------------------------------------

    @opening
    @limited("beginning a transaction on stream {}")
    async def begin_transaction(self, stream: StreamName, *, lease_ms: int = DEFAULT_LEASE_MS) -> Transaction:
        """Begin a transaction: ``async with client.begin_transaction("s/t") as transaction``.

        :param lease_ms: milliseconds (10 000 to 600 000 on a server with default limits) after
            which the server aborts it unless it was renewed; renewed in the background.
        :raises StreamNotFoundError: no such stream. :raises StreamSealedError: it is sealed.
        """
        name = self._resolve(stream)
        created = await self._core.controller.create_transaction(name.scope, name.name, lease_ms)
        self._remember_segments(name, created.txn_id, list(created.segments))
        return Transaction(self._core, name, created.txn_id, created.segments, lease_ms)

    @opening
    @limited("resuming a transaction on stream {}")
    async def transaction(
        self, stream: StreamName, txn_id: UUID, *, lease_ms: int = DEFAULT_LEASE_MS
    ) -> Transaction:
        """Take up an open transaction by its id, also in another process than it was begun in.

        :raises TransactionNotOpenError: it is committed or aborted (or about to be).
        :raises TransactionUnknownError: the controller does not know it.
        """
        name = self._resolve(stream)
        check_lease(lease_ms)
        status = await self.transaction_status(name, txn_id)
        if status is not TxnStatus.OPEN:
            raise await transaction.explain(self._core, name, txn_id, "resumed")
        segments = await self._transaction_segments(name, txn_id)
        return Transaction(self._core, name, txn_id, segments, lease_ms)

    async def _transaction_segments(self, stream: ScopedStream, txn_id: UUID) -> list[SegmentWithRange]:
        """The segments of a transaction's epoch, with the epoch half of their ids replaced."""
        check_uuid("the id of a transaction", txn_id)
        known = self._txn_segments.get((stream, txn_id))
        if known is not None:
            return known
        epoch = txn_id.int >> 96
        segments = [
            SegmentWithRange(
                segment_id=generalized_segment_id(segment.segment_id, txn_id),
                low=segment.low,
                high=segment.high,
            )
            for segment in await self.epoch_segments(stream, epoch)
        ]
        self._remember_segments(stream, txn_id, segments)
        return segments

    def _remember_segments(
        self, stream: ScopedStream, txn_id: UUID, segments: list[SegmentWithRange]
    ) -> None:
        """A transaction keeps its segments: staging, merging and deleting ask for them once."""
        self._txn_segments[stream, txn_id] = segments
        while len(self._txn_segments) > _REMEMBERED_TRANSACTIONS:
            del self._txn_segments[next(iter(self._txn_segments))]

    @limited("asking for a transaction on stream {}")
    async def transaction_status(self, stream: StreamName, txn_id: UUID) -> TxnStatus:
        """State of a transaction; ``UNKNOWN`` when the controller does not know it."""
        name = self._resolve(stream)
        return await self._core.controller.check_transaction_state(name.scope, name.name, txn_id)

    @limited("committing a transaction on stream {}")
    async def commit_transaction(
        self, stream: StreamName, txn_id: UUID, *, timestamp: int | None = None
    ) -> None:
        """Commit by id. Harmless when it is committing or committed already.

        :raises TransactionAbortedError: it was aborted. :raises TransactionUnknownError: unknown.
        """
        await transaction.commit_transaction(self._core, self._resolve(stream), txn_id, timestamp)

    @limited("aborting a transaction on stream {}")
    async def abort_transaction(self, stream: StreamName, txn_id: UUID) -> None:
        """Abort by id. Harmless when it is aborting or aborted already.

        :raises TransactionNotOpenError: it is committed. :raises TransactionUnknownError: unknown.
        """
        await transaction.abort_transaction(self._core, self._resolve(stream), txn_id)

    async def wait_committed(self, stream: StreamName, txn_id: UUID) -> None:
        """Wait until readers see a committing transaction's events.

        :raises TransactionAbortedError: it was aborted. :raises TransactionUnknownError: unknown.
        :raises PravegaTimeoutError: as :meth:`Transaction.wait_committed`.
        """
        await transaction.wait_committed(self._core, self._resolve(stream), txn_id)

    @limited("listing the transactions of stream {}")
    async def completed_transactions(self, stream: StreamName) -> dict[UUID, TxnStatus]:
        """Transactions that have ended and are still remembered (at most 500), with how they ended.

        A 0.13.0 server forgets them all once transactions of a second stream have ended: use
        :meth:`transaction_status` for those whose ids are known.
        """
        name = self._resolve(stream)
        return await self._core.controller.list_completed_transactions(name.scope, name.name)

    @limited("renewing a transaction on stream {}")
    async def ping_transaction(self, stream: StreamName, txn_id: UUID, *, lease_ms: int) -> bool:
        """Renew the lease of an open transaction by id; False when it is not open any more."""
        name = self._resolve(stream)
        status = await self._core.controller.ping_transaction(name.scope, name.name, txn_id, lease_ms)
        if status.name == "OK":
            return True
        if status.name in ("COMMITTED", "ABORTED", "UNKNOWN"):
            return False
        raise TransactionError(
            f"transaction {txn_id} on {name} cannot be kept alive: {status.name}",
            scope=name.scope,
            stream=name.name,
            transaction=txn_id,
        )

    # --- staged writes --------------------------------------------------------------------------

    @opening
    @limited("preparing to stage events of stream {}")
    async def staging_writer(
        self, stream: StreamName, txn_id: UUID, staging_id: UUID | None = None
    ) -> StagingWriter:
        """A writer whose events wait beside a transaction: ``async with client.staging_writer(...)``.

        :param txn_id: the transaction they may be merged into; its epoch decides their segments.
        :param staging_id: names this attempt; it must not have been used before.
        """
        name = self._resolve(stream)
        if staging_id is not None:
            check_uuid("staging_id", staging_id)
        segments = await self._transaction_segments(name, txn_id)
        return await StagingWriter(self._core, name, segments, staging_id).open()

    async def merge_staging(
        self, stream: StreamName, txn_id: UUID, staging_ids: Sequence[UUID]
    ) -> dict[int, int]:
        """Move staged events into an open transaction, in the order of the ids.

        Sending it again is harmless: what was merged already counts as done.

        :returns: length in bytes of each segment of the transaction after that, by its id; nothing where no
            ids were given.
        :raises NoSuchSegmentError: the transaction is not open any more.
        """
        name = self._resolve(stream)
        segments = await self._transaction_segments(name, txn_id)
        return await transaction.merge_staging(self._core, name, txn_id, segments, staging_ids)

    async def delete_staging(self, stream: StreamName, txn_id: UUID, staging_ids: Sequence[UUID]) -> None:
        """Delete staged events that were not merged; missing ones are fine."""
        name = self._resolve(stream)
        segments = await self._transaction_segments(name, txn_id)
        await transaction.delete_staging(self._core, name, segments, staging_ids)

    # --- reading --------------------------------------------------------------------------------

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
        if max_range_bytes is not None:
            check_bytes("max_range_bytes", max_range_bytes)
        ranges = await batch.segment_ranges(self._core, self._resolve(stream), start, end, on_truncated)
        if max_range_bytes is None:
            return ranges
        return await splitting.split_ranges(self._core, ranges, max_range_bytes)

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
        return await splitting.split_range(self._core, segment_range, max_bytes, index)

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
        return await splitting.boundary_index(self._core, segment_range, spacing, known)

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
        return await splitting.leading_parts(self._core, list(asked))

    def read_range(self, segment_range: SegmentRange) -> EventRangeReader:
        """The events of a range: ``async for batch in client.read_range(r)``.

        The objects that this, :meth:`read_events` and :meth:`read_ranges` return are used alike: iterate over
        them, and enter them (``async with client.read_range(r) as batches``) where reading may end before the
        last batch. That gives the connection and the buffers back at once, which otherwise happens after the
        last batch or with the client. Nothing is read before the first batch is asked for.

        :raises DataLossError: (while reading) it was truncated meanwhile.
        """
        return batch.range_reader(self._core, segment_range)

    async def range_crc32(self, segment_range: SegmentRange) -> int:
        """CRC-32 (as :func:`zlib.crc32`) of the bytes of a range, event headers included.

        :raises DataLossError: it was truncated.
        :raises InvalidArgumentError: it reaches beyond the segment's end.
        """
        return await splitting.range_crc32(self._core, segment_range)

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
            self._core, ranges, at_once=at_once, max_buffered_bytes=max_buffered_bytes, ordered=ordered
        )

    def read_events(
        self,
        stream: StreamName,
        start: Bound = "earliest",
        end: Bound = "latest",
        *,
        on_truncated: OnTruncated = "raise",
    ) -> StreamReader:
        """The events between two cuts, in order for each routing key.

        ``async for batch in client.read_events("s/t")``; arguments as :meth:`segment_ranges`, which is called
        when the first batch is asked for, and whose errors are raised then. Close it as :meth:`read_range`.
        """
        return StreamReader(
            self._core, lambda: self.segment_ranges(stream, start, end, on_truncated=on_truncated)
        )

    @limited("fetching the event at {}")
    async def fetch_event(self, pointer: EventPointer) -> bytes:
        """One event, by where it lies (:attr:`Event.pointer`).

        :raises DataLossError: it was truncated.
        :raises InvalidArgumentError: there is no such event in that place.
        """
        self._core.check_open()
        return await batch.fetch_event(self._core, pointer)

    # --- reader groups --------------------------------------------------------------------------

    @limited("creating reader group {}")
    async def create_reader_group(
        self,
        group: StreamName,
        config: ReaderGroupConfig | Iterable[StreamName | StreamCut],
    ) -> bool:
        """Create a reader group; False when it exists already, with the same configuration.

        :param group: ``"scope/group"``, or a name in the default scope.
        :param config: or streams to read from their heads, and cuts to read from there on.
        :raises ReaderGroupError: it exists with another configuration.
        :raises ScopeNotFoundError, StreamNotFoundError, ScopeBrokenError: as named.
        """
        name = self._resolve(group)
        if not isinstance(config, ReaderGroupConfig):
            config = ReaderGroupConfig.of(
                each if isinstance(each, StreamCut) else self._resolve(each) for each in config
            )
        return await reader_group.create(self._core, name, config)

    @opening
    @limited("opening reader group {}")
    async def reader_group(self, group: StreamName) -> ReaderGroup:
        """A group, to make readers of it and to manage it: ``async with client.reader_group("g") as group``.

        :raises ReaderGroupNotFoundError: no such group.
        """
        return await reader_group.open_group(self._core, self._resolve(group))

    @limited("deleting reader group {}")
    async def delete_reader_group(self, group: StreamName) -> bool:
        """Delete a group and its state; its readers fail. False when it did not exist."""
        return await reader_group.delete(self._core, self._resolve(group))

    @limited("asking for reader group {}")
    async def reader_group_exists(self, group: StreamName) -> bool:
        """Whether the reader group exists."""
        return await reader_group.exists(self._core, self._resolve(group))

    async def list_reader_groups(self, scope: str | None = None) -> list[ScopedStream]:
        """Scope and name of each reader group of a scope, by default the configuration's.

        :raises ScopeNotFoundError: no such scope.
        """
        streams = await self.list_streams(scope, internal=True)
        return [
            ScopedStream(each.scope, each.name.removeprefix(STATE_PREFIX))
            for each in streams
            if each.name.startswith(STATE_PREFIX)
        ]

    # --- revisioned streams ---------------------------------------------------------------------

    @overload
    @opening
    async def revisioned_stream(self, stream: StreamName) -> RevisionedStream[bytes]: ...

    @overload
    @opening
    async def revisioned_stream(
        self, stream: StreamName, serializer: Serializer[T]
    ) -> RevisionedStream[T]: ...

    @opening
    @limited("opening revisioned stream {}")
    async def revisioned_stream(
        self, stream: StreamName, serializer: Serializer[T] | None = None
    ) -> RevisionedStream[T] | RevisionedStream[bytes]:
        """A stream of one segment for optimistic concurrency.

        :param serializer: of the values; default: they are bytes.
        :raises StreamNotFoundError: no such stream.
        :raises InvalidArgumentError: it has more than one segment.
        """
        name = self._resolve(stream)
        if serializer is None:
            return await RevisionedStream.open(self._core, name, BytesSerializer())
        return await RevisionedStream.open(self._core, name, serializer)

    def byte_stream_writer(
        self, stream: StreamName, *, max_outstanding_bytes: int = DEFAULT_MAX_OUTSTANDING_BYTES
    ) -> ByteStreamWriter:
        """A writer of bytes without events: ``async with client.byte_stream_writer("s/t") as writer``.

        :param stream: of one segment. :param max_outstanding_bytes: what it may hold unacknowledged.
        """
        return ByteStreamWriter(
            self._core, self._resolve(stream), max_outstanding_bytes=max_outstanding_bytes
        )

    def byte_stream_reader(
        self, stream: StreamName, start: int = 0, *, follow: bool = True
    ) -> ByteStreamReader:
        """A reader of a byte stream: ``async with client.byte_stream_reader("s/t") as reader``.

        :param start: first offset in bytes.
        :param follow: wait at the end for more, until the stream is sealed; otherwise what was stored when it
            was opened is all.
        """
        return ByteStreamReader(self._core, self._resolve(stream), start, follow=follow)

    @opening
    async def state_synchronizer(
        self, stream: StreamName, format: Synchronized[S, I, U]
    ) -> StateSynchronizer[S, I, U]:
        """A state shared with other processes, on a stream of one segment.

        :param format: how the state is made, changed and written; :class:`StateFormat` is the simple one.
        :raises StreamNotFoundError: no such stream.
        :raises InvalidArgumentError: it has more than one segment.
        """
        return StateSynchronizer(await self.revisioned_stream(stream), format)

    # --- key-value tables -----------------------------------------------------------------------

    @limited("creating key-value table {}")
    async def create_key_value_table(
        self, table: StreamName, configuration: KeyValueTableConfiguration
    ) -> bool:
        """Create a key-value table; False when it exists already (its configuration is left alone).

        :param configuration: number of partitions and lengths of the keys; they cannot be changed later.
        :raises ScopeNotFoundError, ScopeBrokenError: as named.
        :raises InvalidArgumentError: illegal name or configuration.
        """
        name = self._resolve(table)
        check_configuration(name, configuration)
        return await self._core.controller.create_key_value_table(name.scope, name.name, configuration)

    @limited("asking for key-value table {}")
    async def key_value_table_exists(self, table: StreamName) -> bool:
        """Whether the key-value table exists."""
        try:
            await self.key_value_table_configuration(table)
        except KeyValueTableNotFoundError:
            return False
        return True

    @limited("asking for the configuration of key-value table {}")
    async def key_value_table_configuration(self, table: StreamName) -> KeyValueTableConfiguration:
        """Number of partitions and lengths of the keys.

        :raises KeyValueTableNotFoundError: no such table.
        """
        name = self._resolve(table)
        return await self._core.controller.get_key_value_table_configuration(name.scope, name.name)

    async def list_key_value_tables(self, scope: str | None = None) -> list[ScopedStream]:
        """Scope and name of each key-value table of a scope, by default the configuration's.

        :raises ScopeNotFoundError: no such scope.
        """
        self._core.check_open()
        chosen = self._core.config.resolve_scope(scope)
        return [
            ScopedStream(chosen, name) async for name in self._core.controller.list_key_value_tables(chosen)
        ]

    @limited("deleting key-value table {}")
    async def delete_key_value_table(self, table: StreamName) -> bool:
        """Delete a key-value table with its data; False when it did not exist."""
        name = self._resolve(table)
        return await self._core.controller.delete_key_value_table(name.scope, name.name)

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

    @limited("opening key-value table {}")
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
            as long as it is used, and that no key is in two updates that are under way at the same time.
            Then an update whose answer was lost is found out or made again; otherwise some end with
            :class:`TableOutcomeUnknownError`.
        :raises KeyValueTableNotFoundError: no such table.
        """
        return await KeyValueTable.open(
            self._core,
            self._resolve(table),
            BytesSerializer() if primary_keys is None else primary_keys,
            BytesSerializer() if secondary_keys is None else secondary_keys,
            BytesSerializer() if values is None else values,
            sole_writer=sole_writer,
        )

    @limited("asking for the length of a segment of stream {}")
    async def segment_length(self, stream: StreamName, segment_id: int) -> int:
        """Length of a segment in bytes, truncated data included.

        :raises NoSuchSegmentError: it does not exist.
        """
        name = self._resolve(stream)
        check_count("segment_id", segment_id, 0)
        target = self._core.target(name, segment_id, Access.READ)
        return (await SegmentMetadata(self._core.stores, target).info()).write_offset
