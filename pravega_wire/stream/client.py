"""The client, which creates everything else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, overload
from uuid import UUID

import trio

from pravega_wire.controller.client import open_controller
from pravega_wire.controller.tokens import Access, TokenCache
from pravega_wire.controller.types import (
    KeyValueTableConfiguration,
    SegmentWithRange,
    Successors,
    TxnStatus,
)
from pravega_wire.errors import (
    ClosedError,
    InvalidArgumentError,
    KeyValueTableNotFoundError,
    PravegaTimeoutError,
    ScaleConflictError,
    StreamNotFoundError,
    StreamNotSealedError,
    TransactionError,
)
from pravega_wire.metrics import ClientClosed, ClientMetrics, ClientOpened, Counters, Observer
from pravega_wire.segment.metadata import SegmentMetadata
from pravega_wire.segment.store import Backoff, SegmentStores
from pravega_wire.serializers import BytesSerializer, Serializer
from pravega_wire.stream import batch, reader_group, scopes, splitting, transaction, watermarks
from pravega_wire.stream.byte_stream import ByteStreamReader, ByteStreamWriter
from pravega_wire.stream.core import ClientCore, not_shared
from pravega_wire.stream.event_reader import DEFAULT_BUFFERED_BYTES
from pravega_wire.stream.event_writer import EventWriter, event_writer
from pravega_wire.stream.follow import StreamFollower
from pravega_wire.stream.group_link import STATE_PREFIX
from pravega_wire.stream.key_value_table import KeyValueTable, check_config
from pravega_wire.stream.open_transactions import OpenTransaction, open_transactions
from pravega_wire.stream.opening import opening
from pravega_wire.stream.ranges_reader import InOrder, RangesReader, Together
from pravega_wire.stream.reader_group import ReaderGroup
from pravega_wire.stream.resumable import ResumableWriter, resumable_writer
from pravega_wire.stream.revisioned import RevisionedStream
from pravega_wire.stream.routing import DEFAULT_MAX_OUTSTANDING_BYTES, Partitioner, to_bytes
from pravega_wire.stream.staging import Staging
from pravega_wire.stream.synchronizer import StateSynchronizer, Synchronized
from pravega_wire.stream.transaction import DEFAULT_LEASE, Transaction, open_transaction
from pravega_wire.support.checks import (
    INT32_MAX,
    check_bytes,
    check_callable,
    check_count,
    check_flag,
    check_lease,
    check_serializer,
    check_several,
    check_text,
    check_type,
    check_uuid,
    shown,
)
from pravega_wire.support.nurseries import lone_errors, open_lasting_nursery
from pravega_wire.transport.limits import Limits, limited
from pravega_wire.transport.pool import AddressMap, ConnectionPool
from pravega_wire.transport.retry import RetryPolicy
from pravega_wire.values.boundaries import DEFAULT_PIECE_BYTES, DEFAULT_SPACING, BoundaryIndex, LeadingPart
from pravega_wire.values.config import ControllerUri, Credentials, PravegaConfig, config_of
from pravega_wire.values.cuts import Bound, OnTruncated, StreamLayout
from pravega_wire.values.groups import ReaderGroupConfig, starts_of
from pravega_wire.values.hashing import routing_key_position
from pravega_wire.values.naming import generalized_segment_id
from pravega_wire.values.policies import ScalingPolicy, StreamConfiguration
from pravega_wire.values.positions import EventPointer, Watermark
from pravega_wire.values.types import ScopedStream, SegmentRange, StreamCut

__all__ = ["MADE_BY", "PravegaClient", "StreamInfo", "open_client"]

MADE_BY: Final = "a PravegaClient is made by open_client(), which takes settings or a PravegaConfig"

T = TypeVar("T")
S = TypeVar("S")
I = TypeVar("I")  # noqa: E741
U = TypeVar("U")
P = TypeVar("P")
V = TypeVar("V")

StreamName = str | ScopedStream
"""A stream name: ``"scope/stream"``, ``"stream"`` in the default scope, or a :class:`ScopedStream`."""

_REMEMBERED_TRANSACTIONS = 64


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """The state of a stream at one moment.

    :ivar config: scaling policy, retention policy and tags.
    :ivar head: the oldest position that can be read.
    :ivar tail: the position after the newest event.
    :ivar sealed: whether the stream is sealed. A sealed stream takes no more events.
    """

    config: StreamConfiguration
    head: StreamCut
    tail: StreamCut
    sealed: bool


def _check_trio() -> None:
    try:
        trio.lowlevel.current_trio_token()
    except RuntimeError:
        raise InvalidArgumentError(
            "pravega_wire.open_client was called outside trio: start the program with trio.run(). In an "
            "asyncio program use pravega_wire.aio.open_client, in blocking code pravega_wire.sync.open_client"
        ) from None


def open_client(
    config: PravegaConfig | ControllerUri | None = None,
    *,
    scope: str | None = None,
    credentials: Credentials | None = None,
    address_map: AddressMap | None = None,
    observer: Observer | None = None,
) -> AbstractAsyncContextManager[PravegaClient]:
    """Open a client for a Pravega cluster: ``async with open_client(...) as client``.

    Opening makes no connection; the first call does. Leaving the block closes every connection and everything
    opened with the client. Events that a writer has not flushed by then may be lost, so close writers first.

    Example::

        import trio
        from pravega_wire import open_client

        async def main():
            async with open_client("tcp://localhost:9090", scope="demo") as client:
                await client.create_scope("demo")
                await client.create_stream("readings", 4)
                async with client.event_writer("readings") as writer:
                    await writer.write_event(b"21.5", "sensor-7")
                async for batch in client.read_events("readings"):
                    for event in batch:
                        print(event)

        trio.run(main)

    :param config: the controller's URI, which may list several addresses (``tcp://a:9090,b:9090``); several
        such URIs; or a complete :class:`PravegaConfig`. Settings that a URI does not contain are taken from
        :meth:`PravegaConfig.from_defaults`, as is everything if this is None.
    :param scope: the scope of stream names given without one. The default is the configuration's.
    :param credentials: replace those of the configuration.
    :param address_map: a function from the ``(host, port)`` that the controller gives for a segment store to
        the ``(host, port)`` to connect to. Use it where the store's own address cannot be reached from here.
    :param observer: called with an object for each thing that happens in the client; see
        :mod:`pravega_wire.metrics`.
    :raises InvalidArgumentError: the configuration is invalid.
    :raises InvalidArgumentError: called outside trio, for example in an asyncio program. The client and its
        objects raise it in any other trio run than this.
    """
    return _Entrance(_opened(config, scope, credentials, address_map, observer))


class _Entrance(AbstractAsyncContextManager["PravegaClient"]):
    """What :func:`open_client` returns. It says what to do if it is not entered."""

    def __init__(self, manager: AbstractAsyncContextManager[PravegaClient]) -> None:
        self._manager = manager
        self._entered = False

    async def __aenter__(self) -> PravegaClient:
        if self._entered:
            raise ClosedError("the result of open_client was already entered once: call open_client again")
        self._entered = True
        return await self._manager.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._manager.__aexit__(kind, error, trace)

    def __await__(self) -> NoReturn:
        raise _not_entered("awaited")

    if not TYPE_CHECKING:  # type checkers know that this is no context manager of this kind

        def __enter__(self) -> NoReturn:
            raise _not_entered("used in a 'with', which is not 'async with',")

        def __exit__(self, *exc: object) -> None:
            """Python asks for it before it enters."""

    def __getattr__(self, name: str) -> NoReturn:
        if hasattr(PravegaClient, name) and not name.startswith("_"):
            raise _not_entered(f"used ({name})")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _not_entered(what: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"the result of open_client was {what} without being entered. On trio a client has tasks, which live "
        "in a block: async with open_client(...) as client. A contextlib.AsyncExitStack keeps the block open "
        "for other functions"
    )


@asynccontextmanager
async def _opened(
    config: PravegaConfig | ControllerUri | None,
    scope: str | None,
    credentials: Credentials | None,
    address_map: AddressMap | None,
    observer: Observer | None,
) -> AsyncIterator[PravegaClient]:
    _check_trio()
    chosen = config_of(config, scope, credentials)
    if address_map is not None:
        check_callable("address_map", address_map)
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
                open_lasting_nursery() as nursery,
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
    finally:
        counters.tell(ClientClosed(counters.metrics))


class PravegaClient:
    """A connection to a Pravega cluster. It manages streams and creates readers and writers.

    Made by :func:`open_client`. Every method may be cancelled, and the client stays usable. If a method that
    changes something is cancelled or fails after its request was sent, the change may or may not have been
    made.

    A method that gets no answer within the configuration's ``operation_timeout`` raises
    :class:`RetriesExhaustedError`, whose cause is the last failure, or :class:`PravegaTimeoutError` if no
    attempt had failed. Reading, listing, dividing ranges and :meth:`stream_layout` may take longer: there the
    limit applies to each of their requests.

    Enter what you open: ``async with client.event_writer("s/t") as writer`` closes the writer on leaving the
    block. After ``writer = await client.event_writer("s/t")`` the caller has to close it.

    Example::

        await client.create_stream("demo/temperatures", 2)
        async with client.event_writer("demo/temperatures") as writer:
            await writer.write_event(b"21.5", "sensor-7")
        info = await client.stream_info("demo/temperatures")
        print(info.tail)
    """

    def __init__(self, core: ClientCore) -> None:
        if not isinstance(core, ClientCore):
            raise InvalidArgumentError(MADE_BY)
        self._core = core
        self._txn_segments: dict[tuple[ScopedStream, UUID], list[SegmentWithRange]] = {}

    __reduce__ = not_shared

    def __repr__(self) -> str:
        state = "closed" if self._core.closed else "open"
        return f"<PravegaClient of {self.config.controller_uri}, {state}>"

    @property
    def config(self) -> PravegaConfig:
        """The configuration the client was opened with."""
        return self._core.config

    def metrics(self) -> ClientMetrics:
        """Return the client's counters. Works from any thread, and after the client was closed."""
        return self._core.counters.metrics()

    def _resolve(self, stream: StreamName, kind: str = "stream") -> ScopedStream:
        self._core.check_open()
        return self._core.config.resolve(stream, kind)

    # --- scopes ---------------------------------------------------------------------------------

    @limited("creating scope {}")
    async def create_scope(self, scope: str) -> bool:
        """Create a scope. Returns False if it already exists.

        :param scope: 1 to 255 letters, digits, ``.`` and ``-``. (Other methods also take the
            names of internal scopes, which begin with ``_``.)
        :raises InvalidArgumentError: the name is not a valid scope name.
        """
        self._core.check_open()
        return await self._core.controller.create_scope(scope)

    @limited("deleting scope {}")
    async def delete_scope(self, scope: str, *, recursive: bool = False) -> bool:
        """Delete a scope. Returns False if it did not exist.

        Without ``recursive`` the client first lists the scope, and sends the request only if the scope is
        empty. This is because a 0.13.0 controller damages a scope that it refuses to delete. Do not create
        anything in a scope while it is being deleted: whatever is created between the listing and the
        deletion still damages it.

        :param recursive: also delete every stream, reader group and table in the scope.
        :raises ScopeNotEmptyError: the scope is not empty and ``recursive`` is false. The scope is unchanged.
        :raises ScopeBrokenError: the controller makes no progress in deleting the scope's contents.
        :raises ServerTooOldError: ``recursive`` is true, and the server is older than 0.11.
        """
        self._core.check_open()
        check_text("scope", scope)
        if check_flag("recursive", recursive):
            return await scopes.delete_recursively(self._core, scope)
        return await scopes.delete(self._core, scope)

    @limited("checking whether scope {} exists")
    async def scope_exists(self, scope: str) -> bool:
        """Return whether the scope exists."""
        self._core.check_open()
        return await self._core.controller.check_scope_exists(check_text("scope", scope))

    async def list_scopes(self) -> list[str]:
        """Return the names of all scopes that the credentials may see."""
        self._core.check_open()
        return [scope async for scope in self._core.controller.list_scopes()]

    # --- streams --------------------------------------------------------------------------------

    @limited("creating stream {stream}")
    async def create_stream(self, stream: StreamName, config: StreamConfiguration | int = 1) -> bool:
        """Create a stream. Returns False if it already exists; its configuration is then left unchanged.

        :param config: a :class:`StreamConfiguration`, or an int for that many fixed segments.
        :raises ScopeNotFoundError: the scope does not exist.
        :raises InvalidArgumentError: the stream's name or the configuration is invalid.
        :raises ScopeBrokenError: the scope cannot hold another stream with tags, or is being deleted.
        """
        name = self._resolve(stream)
        if not isinstance(config, StreamConfiguration):
            what = f"stream {name}: the number of segments, where no StreamConfiguration is given,"
            check_count(what, config, highest=INT32_MAX)
            config = StreamConfiguration(scaling=ScalingPolicy.fixed(config))
        return await self._core.controller.create_stream(name.scope, name.name, config)

    @limited("updating stream {stream}")
    async def update_stream(self, stream: StreamName, config: StreamConfiguration) -> None:
        """Replace the whole configuration of a stream.

        If the scaling policy is a fixed number of segments, or its minimum is larger than their number, the
        stream is scaled.

        :raises StreamNotFoundError: the stream does not exist.
        :raises StreamSealedError: the stream is sealed.
        :raises ScaleConflictError: the stream would be scaled, and the controller would never end that: of 49
            segments, and of some other numbers, the last one ends a little before the end of the key space.
            The message says what to do instead.
        :raises ScopeBrokenError: the controller cannot record the tags, because the scope has lost its table
            of tags. The stream can be written and read, but no longer changed, sealed or deleted.
        """
        name = self._resolve(stream)
        if not isinstance(config, StreamConfiguration):
            raise InvalidArgumentError(
                f"stream {name} cannot be updated: the configuration must be a StreamConfiguration, not "
                f"{shown(config)}"
            )
        await scopes.update_stream(self._core, name, config)

    @limited("sealing stream {stream}")
    async def seal_stream(self, stream: StreamName) -> None:
        """Seal a stream, so that it takes no more events. Sealing a sealed stream does nothing.

        :raises StreamNotFoundError: the stream does not exist.
        """
        name = self._resolve(stream)
        await self._core.controller.seal_stream(name.scope, name.name)

    @limited("deleting stream {stream}")
    async def delete_stream(self, stream: StreamName, *, seal: bool = False) -> bool:
        """Delete a sealed stream and its data. Returns False if it did not exist.

        :param seal: seal the stream first if it is not sealed.
        :raises StreamNotSealedError: the stream is not sealed and ``seal`` is false.
        """
        name = self._resolve(stream)
        check_flag("seal", seal)
        try:
            # Before sealing: a stream whose creation was not finished cannot be sealed, only deleted.
            return await self._core.controller.delete_stream(name.scope, name.name)
        except StreamNotSealedError:
            if not seal:
                raise
        try:
            await self._core.controller.seal_stream(name.scope, name.name)
        except StreamNotFoundError:
            return False  # another client has deleted it
        return await self._core.controller.delete_stream(name.scope, name.name)

    @limited("checking whether stream {stream} exists")
    async def stream_exists(self, stream: StreamName) -> bool:
        """Return whether the stream exists."""
        name = self._resolve(stream)
        return await self._core.controller.check_stream_exists(name.scope, name.name)

    async def list_streams(
        self, scope: str | None = None, *, tag: str | None = None, internal: bool = False
    ) -> list[ScopedStream]:
        """Return the streams of a scope, each with scope and name.

        :param scope: the scope to list. The default is the configuration's.
        :param tag: list only streams with this tag.
        :param internal: include the streams that Pravega itself created (``_MARK...``, ``_RG...``).
        :raises ScopeNotFoundError: the scope does not exist.
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

    @limited("fetching the configuration of stream {stream}")
    async def stream_config(self, stream: StreamName) -> StreamConfiguration:
        """Return a stream's scaling policy, retention policy and tags.

        :raises StreamNotFoundError: the stream does not exist.
        """
        name = self._resolve(stream)
        return await self._core.controller.get_stream_configuration(name.scope, name.name)

    @limited("fetching configuration, head and tail of stream {stream}")
    async def stream_info(self, stream: StreamName) -> StreamInfo:
        """Return a stream's configuration, head and tail, and whether it is sealed.

        :raises StreamNotFoundError: the stream does not exist.
        """
        name = self._resolve(stream)
        config = await self.stream_config(name)
        active = await self._core.controller.get_current_segments(name.scope, name.name)
        return StreamInfo(
            config=config,
            head=await self.head(name),
            tail=await self.tail(name),
            sealed=not active,
        )

    @limited("fetching the head of stream {stream}")
    async def head(self, stream: StreamName) -> StreamCut:
        """Return the oldest position that can be read.

        :raises StreamNotFoundError: the stream does not exist.
        """
        return await batch.head(self._core, self._resolve(stream))

    @limited("fetching the tail of stream {stream}")
    async def tail(self, stream: StreamName) -> StreamCut:
        """Return the position after the newest event.

        :raises StreamNotFoundError: the stream does not exist.
        """
        return await batch.tail(self._core, self._resolve(stream))

    async def stream_layout(self, stream: StreamName) -> StreamLayout:
        """Return the key ranges and lengths of all segments of the stream, to work with cuts offline.

        The result has every segment the stream has ever had. It takes one request to the controller for each
        epoch and one to a store for each segment. The credentials must allow writing, because the server
        requires that for listing an epoch's segments.

        :raises StreamNotFoundError: the stream does not exist.
        """
        return await batch.stream_layout(self._core, self._resolve(stream))

    @limited("truncating stream {stream}")
    async def truncate_stream(self, stream: StreamName, cut: StreamCut) -> None:
        """Delete everything before a cut. Reading from before the cut fails afterwards.

        :param cut: the new head of the stream. Whether events begin at its offsets is not checked: where none
            does, the stream can no longer be read from its head.
        :raises InvalidStreamCutError: the cut belongs to another stream, is before the stream's head, does
            not cover the key space, or has a segment that was deleted or an offset beyond the end of one.
        :raises StreamSealedError: the stream is sealed.
        """
        name = self._resolve(stream)
        # Nothing is deleted by a word for a place that moves, or by a default.
        check_type("cut", cut, StreamCut)
        await batch.truncate(self._core, await batch.resolve_bound(self._core, name, cut, "earliest"))

    # --- segments and scaling -------------------------------------------------------------------

    @limited("fetching the active segments of stream {stream}")
    async def active_segments(self, stream: StreamName) -> list[SegmentWithRange]:
        """Return the segments that take events now, with their key ranges; none for a sealed stream.

        :raises StreamNotFoundError: the stream does not exist.
        """
        name = self._resolve(stream)
        return await self._core.controller.get_current_segments(name.scope, name.name)

    @limited("fetching the segments of an epoch of stream {stream}")
    async def epoch_segments(self, stream: StreamName, epoch: int) -> list[SegmentWithRange]:
        """Return the segments that were active in an epoch.

        :param epoch: the number of the epoch. The first epoch of a stream is 0.
        :raises StreamNotFoundError: the stream or the epoch does not exist.
        """
        name = self._resolve(stream)
        check_count("epoch", epoch, 0, INT32_MAX)
        return await self._core.controller.get_epoch_segments(name.scope, name.name, epoch)

    @limited("reading the watermarks of stream {stream}")
    async def watermarks(self, stream: StreamName) -> list[Watermark]:
        """Return the stream's watermarks, oldest first.

        The controller makes watermarks from the event times that writers report
        (:meth:`EventWriter.note_time`). Each one says which part of the stream was written by which time. The
        list is empty if no writer has reported a time.

        :raises StreamNotFoundError: the stream does not exist.
        """
        return await watermarks.watermarks(self._core, self._resolve(stream))

    @limited("finding the position of a time in stream {stream}")
    async def cut_at(self, stream: StreamName, time: datetime | int) -> StreamCut:
        """Return the last known position before which all events are older than a time.

        Events after it may be older, too: a watermark is made about every ten seconds. With several writers,
        an event before it may be newer, if its writer had not reported that time yet. The result is the head
        if no watermark is that old, or if the position has been truncated. The credentials must allow
        writing, as for :meth:`stream_layout`.

        :param time: event time, as the writers report it: a datetime with a time zone where they report
            milliseconds since 1970 (``note_time_every``), otherwise an int in their unit.
        :raises InvalidArgumentError: the stream has no watermarks, or the time has no time zone.
        :raises StreamNotFoundError: the stream does not exist.
        """
        return await watermarks.cut_at(self._core, self._resolve(stream), time)

    @limited("fetching the successors of a segment of stream {stream}")
    async def successors(self, stream: StreamName, segment_id: int) -> Successors:
        """Return the segments that follow a sealed segment, each with all its predecessors.

        The result is empty if the stream was sealed, if the segment is active, or if there is no such
        segment.

        :param segment_id: the id of the segment.
        :raises StreamNotFoundError: the stream does not exist.
        """
        name = self._resolve(stream)
        check_count("segment_id", segment_id, 0)
        return await self._core.controller.get_successors(name.scope, name.name, segment_id)

    @limited("scaling stream {stream}")
    async def scale_stream(
        self,
        stream: StreamName,
        seal: Iterable[int],
        new_ranges: Iterable[tuple[float, float]],
    ) -> None:
        """Replace active segments by new ones. Returns when the scale is complete.

        :param seal: ids of the active segments to seal.
        :param new_ranges: ``(low, high)`` key ranges of the new segments. Together they must cover exactly
            the ranges of the sealed segments.
        :raises StreamNotFoundError: the stream does not exist.
        :raises InvalidArgumentError: ``seal`` or ``new_ranges`` is empty, a range is empty, or ranges
            overlap.
        :raises ScaleConflictError: the ranges do not fit, a segment is not active, fewer segments than the
            scaling policy's minimum would be left, or another scale is running.
        :raises PravegaTimeoutError: the scale has started and is not complete after ``operation_timeout``
            seconds.
        """
        check_several("seal", seal)
        check_several("new_ranges", new_ranges)
        sealed, ranges = list(seal), list(new_ranges)
        name = self._resolve(stream)
        controller = self._core.controller
        epoch = await controller.scale(name.scope, name.name, sealed, ranges)
        if epoch is None:
            raise ScaleConflictError(
                f"stream {name} was not scaled: segments {sealed} must be active, the new "
                f"ranges {ranges} must cover exactly the same keys, the scaling policy's "
                "minimum number of segments must be kept, and no other scale may be running",
                scope=name.scope,
                stream=name.name,
            )
        backoff = Backoff(self.config.operation_timeout, longest=0.5)
        while not await controller.check_scale(name.scope, name.name, epoch):
            if not await backoff.wait():
                raise PravegaTimeoutError(
                    f"the scale of stream {name} from epoch {epoch} has started but is not complete "
                    f"after {self.config.operation_timeout:g} s",
                    scope=name.scope,
                    stream=name.name,
                )

    # --- writing --------------------------------------------------------------------------------

    @overload
    def event_writer(
        self,
        stream: StreamName,
        *,
        max_outstanding_bytes: int = DEFAULT_MAX_OUTSTANDING_BYTES,
        partitioner: Partitioner = routing_key_position,
        note_time_every: float | None = None,
        large_events: bool = False,
    ) -> EventWriter[bytes]: ...

    @overload
    def event_writer(
        self,
        stream: StreamName,
        *,
        serializer: Serializer[T],
        max_outstanding_bytes: int = DEFAULT_MAX_OUTSTANDING_BYTES,
        partitioner: Partitioner = routing_key_position,
        note_time_every: float | None = None,
        large_events: bool = False,
    ) -> EventWriter[T]: ...

    def event_writer(
        self,
        stream: StreamName,
        *,
        serializer: Serializer[Any] | None = None,
        max_outstanding_bytes: int = DEFAULT_MAX_OUTSTANDING_BYTES,
        partitioner: Partitioner = routing_key_position,
        note_time_every: float | None = None,
        large_events: bool = False,
    ) -> EventWriter[Any]:
        """Create a writer of events: ``async with client.event_writer("s/t") as writer``.

        :param serializer: makes payloads of what is written. By default events are bytes.
        :param max_outstanding_bytes: the number of unacknowledged bytes at which a write starts to wait.
        :param partitioner: a function from a routing key to its position in the key space, which is at least
            0 and less than 1. The default is the hash that all Pravega clients use. Another function also
            keeps the events of each key in order, provided that all writers of the stream use the same one.
        :param note_time_every: seconds between automatic reports of the wall-clock time, from which the
            controller makes watermarks. None leaves that to :meth:`EventWriter.note_time`.
        :param large_events: also accept events over 8 MiB, up to 2 GiB. Each of them is written to a segment
            of its own and merged when it is complete, so readers see all of it or nothing. Writing one
            returns after it is stored. On a server older than 0.11 it raises
            :class:`~pravega_wire.errors.ServerTooOldError`.
        """
        return event_writer(
            self._core,
            self._resolve(stream),
            serializer,
            max_outstanding_bytes=max_outstanding_bytes,
            partitioner=partitioner,
            note_time_every=note_time_every,
            large_events=large_events,
        )

    @overload
    def resumable_writer(
        self,
        stream: StreamName,
        writer_id: UUID,
        *,
        first_event_number: int | None = None,
        max_outstanding_bytes: int = DEFAULT_MAX_OUTSTANDING_BYTES,
        partitioner: Partitioner = routing_key_position,
        note_time_every: float | None = None,
    ) -> ResumableWriter[bytes]: ...

    @overload
    def resumable_writer(
        self,
        stream: StreamName,
        writer_id: UUID,
        *,
        serializer: Serializer[T],
        first_event_number: int | None = None,
        max_outstanding_bytes: int = DEFAULT_MAX_OUTSTANDING_BYTES,
        partitioner: Partitioner = routing_key_position,
        note_time_every: float | None = None,
    ) -> ResumableWriter[T]: ...

    def resumable_writer(
        self,
        stream: StreamName,
        writer_id: UUID,
        *,
        serializer: Serializer[Any] | None = None,
        first_event_number: int | None = None,
        max_outstanding_bytes: int = DEFAULT_MAX_OUTSTANDING_BYTES,
        partitioner: Partitioner = routing_key_position,
        note_time_every: float | None = None,
    ) -> ResumableWriter[Any]:
        """Create a writer of a numbered sequence of events, which another process can resume after a crash.

        See :class:`ResumableWriter`; the other parameters are those of :meth:`event_writer`.

        Example::

            import uuid

            writer_id = uuid.UUID("6f9619ff-8b86-d011-b42d-00cf4fc964ff")
            async with client.resumable_writer("demo/readings", writer_id) as writer:
                for number in range(writer.last_stored + 1, 101):
                    await writer.write_event(b"reading %d" % number, "sensor-7")

        :param writer_id: identifies the sequence. Store it where the next process can find it.
        :param serializer: makes payloads of what is written. By default events are bytes.
        :param first_event_number: the number of the first event that will be written, at least 1. The default
            is the number after the last one that is known to be stored. Starting with an earlier number is
            harmless; starting with a later one leaves events out.
        :param max_outstanding_bytes: the number of unacknowledged bytes at which a write starts to wait.
        :param partitioner: see :meth:`event_writer`.
        :param note_time_every: see :meth:`event_writer`.
        """
        return resumable_writer(
            self._core,
            self._resolve(stream),
            writer_id,
            first_event_number,
            serializer,
            max_outstanding_bytes=max_outstanding_bytes,
            partitioner=partitioner,
            note_time_every=note_time_every,
        )

    # --- transactions ---------------------------------------------------------------------------

    @overload
    @opening
    async def begin_transaction(
        self, stream: StreamName, *, lease: float = DEFAULT_LEASE
    ) -> Transaction[bytes]: ...

    @overload
    @opening
    async def begin_transaction(
        self, stream: StreamName, *, serializer: Serializer[T], lease: float = DEFAULT_LEASE
    ) -> Transaction[T]: ...

    @opening
    @limited("beginning a transaction on stream {stream}")
    async def begin_transaction(
        self,
        stream: StreamName,
        *,
        serializer: Serializer[Any] | None = None,
        lease: float = DEFAULT_LEASE,
    ) -> Transaction[Any]:
        """Begin a transaction: ``async with client.begin_transaction("s/t") as transaction``.

        :param serializer: makes payloads of what is written. By default events are bytes.
        :param lease: seconds after which the server aborts the transaction unless the lease was
            renewed; 10 to 600 on a server with default limits. The client renews the lease in the
            background while the transaction is open.
        :raises StreamNotFoundError: the stream does not exist.
        :raises StreamSealedError: the stream is sealed.
        """
        name = self._resolve(stream)
        convert = None if serializer is None else to_bytes(serializer, name)
        created = await self._core.controller.create_transaction(name.scope, name.name, lease)
        self._remember_segments(name, created.txn_id, list(created.segments))
        return open_transaction(self._core, name, created.txn_id, created.segments, lease, convert)

    @overload
    @opening
    async def resume_transaction(
        self, stream: StreamName, txn_id: UUID, *, lease: float = DEFAULT_LEASE
    ) -> Transaction[bytes]: ...

    @overload
    @opening
    async def resume_transaction(
        self, stream: StreamName, txn_id: UUID, *, serializer: Serializer[T], lease: float = DEFAULT_LEASE
    ) -> Transaction[T]: ...

    @opening
    @limited("resuming a transaction on stream {stream}")
    async def resume_transaction(
        self,
        stream: StreamName,
        txn_id: UUID,
        *,
        serializer: Serializer[Any] | None = None,
        lease: float = DEFAULT_LEASE,
    ) -> Transaction[Any]:
        """Resume an open transaction by its id, possibly one that another process began.

        :param txn_id: the :attr:`Transaction.txn_id` of the transaction.
        :param serializer: as for :meth:`begin_transaction`.
        :param lease: as for :meth:`begin_transaction`.
        :raises TransactionNotOpenError: the transaction is committed or aborted, or about to be.
        :raises TransactionUnknownError: the controller has no record of it.
        """
        name = self._resolve(stream)
        check_lease(lease)
        convert = None if serializer is None else to_bytes(serializer, name)
        status = await self.transaction_status(name, txn_id)
        if status is not TxnStatus.OPEN:
            raise transaction.explanation(name, txn_id, status, "resumed")
        segments = await self._transaction_segments(name, txn_id)
        return open_transaction(self._core, name, txn_id, segments, lease, convert)

    async def _transaction_segments(self, stream: ScopedStream, txn_id: UUID) -> list[SegmentWithRange]:
        """The segments of a transaction's epoch, with the transaction's own epoch half in their ids."""
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
        """Cache a transaction's segments, so that staging, merging and deleting fetch them only once."""
        self._txn_segments[stream, txn_id] = segments
        while len(self._txn_segments) > _REMEMBERED_TRANSACTIONS:
            del self._txn_segments[next(iter(self._txn_segments))]

    @limited("fetching the status of a transaction on stream {stream}")
    async def transaction_status(self, stream: StreamName, txn_id: UUID) -> TxnStatus:
        """Return the state of a transaction; ``UNKNOWN`` if the controller has no record of it."""
        name = self._resolve(stream)
        return await self._core.controller.check_transaction_state(name.scope, name.name, txn_id)

    @limited("committing a transaction on stream {stream}")
    async def commit_transaction(
        self,
        stream: StreamName,
        txn_id: UUID,
        *,
        timestamp: int | None = None,
        writer_id: UUID | None = None,
    ) -> None:
        """Commit a transaction by its id. Does nothing if it is already committing or committed.

        :param timestamp: event time to note with the commit, in milliseconds.
        :param writer_id: the writer that the time is noted for; see :meth:`Transaction.commit`.
        :raises TransactionAbortedError: the transaction was aborted.
        :raises TransactionUnknownError: the controller has no record of it.
        """
        await transaction.commit_transaction(self._core, self._resolve(stream), txn_id, timestamp, writer_id)

    @limited("aborting a transaction on stream {stream}")
    async def abort_transaction(self, stream: StreamName, txn_id: UUID) -> None:
        """Abort a transaction by its id. Does nothing if it is already aborting or aborted.

        :raises TransactionNotOpenError: the transaction is committed.
        :raises TransactionUnknownError: the controller has no record of it.
        """
        await transaction.abort_transaction(self._core, self._resolve(stream), txn_id)

    async def wait_committed(self, stream: StreamName, txn_id: UUID) -> None:
        """Wait until readers see the events of a committing transaction.

        If this call is cancelled, that has no effect on the transaction. You can wait again.

        :raises TransactionAbortedError: the transaction was aborted.
        :raises TransactionUnknownError: the controller has no record of it.
        :raises TransactionError: the transaction is open: it was not committed.
        :raises PravegaTimeoutError: as for :meth:`Transaction.wait_committed`.
        """
        await transaction.wait_committed(self._core, self._resolve(stream), txn_id)

    @limited("listing the transactions of stream {stream}")
    async def completed_transactions(self, stream: StreamName) -> dict[UUID, TxnStatus]:
        """Return the outcomes of the completed transactions that the controller still remembers.

        It remembers at most 500. A 0.13.0 server forgets all of them once transactions of a second stream
        have ended. If you know a transaction's id, use :meth:`transaction_status` instead.

        :raises ServerTooOldError: the server is older than 0.12.
        """
        name = self._resolve(stream)
        return await self._core.controller.list_completed_transactions(name.scope, name.name)

    @limited("listing the open transactions of stream {stream}")
    async def open_transactions(self, stream: StreamName) -> list[OpenTransaction]:
        """Return the transactions that are not completed, oldest first; also those of other programs.

        No call of the controller lists them. This reads its own tables, which takes many requests: an
        administrator may, and everybody where authorization is off.

        :raises StreamNotFoundError: the stream does not exist.
        :raises TransactionsUnlistableError: the tables cannot be read, or they are not those of a 0.13.0
            server.
        """
        return await open_transactions(self._core, self._resolve(stream))

    @limited("renewing a transaction on stream {stream}")
    async def ping_transaction(self, stream: StreamName, txn_id: UUID, *, lease: float) -> bool:
        """Renew the lease of an open transaction by its id. Returns False if it is no longer open.

        :param lease: seconds from now.
        :raises TransactionError: the controller refused to renew the lease; the message has its reason.
        """
        name = self._resolve(stream)
        status = await self._core.controller.ping_transaction(name.scope, name.name, txn_id, lease)
        if status.name == "OK":
            return True
        if status.name in ("COMMITTED", "ABORTED", "UNKNOWN"):
            return False
        raise TransactionError(
            f"the lease of transaction {txn_id} on {name} cannot be renewed: {status.name}",
            scope=name.scope,
            stream=name.name,
            transaction=txn_id,
        )

    def staging(self, stream: StreamName, txn_id: UUID) -> Staging:
        """Return what attempts write beside a transaction, of which some will be merged into it.

        :param txn_id: the :attr:`Transaction.txn_id` of an open transaction. Its epoch determines the
            segments.
        """
        name = self._resolve(stream)
        return Staging(self._core, name, txn_id, partial(self._transaction_segments, name, txn_id))

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
        """Return the data between two cuts, as one range for each segment that has some.

        Ranges are plain values: they can be pickled, sent elsewhere and read repeatedly with the same result.
        They are ordered by segment id, which keeps the order of each routing key.

        :param start: a :class:`StreamCut`, its text form, ``"earliest"`` or ``"latest"``. The words are
            resolved when this is called.
        :param end: the same choices as for ``start``.
        :param on_truncated: what to do if data between the cuts was truncated: ``"raise"`` an error, or
            ``"skip_to_head"`` to return the rest.
        :param max_range_bytes: divide larger ranges, in the way and at the cost of :meth:`split_range`, and
            with its errors. The pieces of a segment are in order.
        :raises DataLossError: data between the cuts was truncated and ``on_truncated`` is ``"raise"``. With
            ``"skip_to_head"`` the result is what is left, possibly an empty list.
        :raises InvalidStreamCutError: a cut belongs to another stream, is beyond a segment's end or has a
            segment that does not exist; or ``start`` is after ``end``.
        """
        if max_range_bytes is not None:
            check_bytes("max_range_bytes", max_range_bytes)
        ranges = await self._ranges(self._resolve(stream), start, end, on_truncated)
        if max_range_bytes is None:
            return ranges
        return await splitting.split_ranges(self._core, ranges, max_range_bytes)

    @limited("finding the data between two cuts of stream {stream}")
    async def _ranges(
        self, stream: ScopedStream, start: Bound, end: Bound, on_truncated: OnTruncated
    ) -> list[SegmentRange]:
        return await batch.segment_ranges(self._core, stream, start, end, on_truncated)

    async def split_range(
        self,
        segment_range: SegmentRange,
        max_bytes: int = DEFAULT_PIECE_BYTES,
        *,
        index: BoundaryIndex | None = None,
    ) -> list[SegmentRange]:
        """Divide a range at event boundaries, so that several cores or workers can read one segment.

        The pieces are contiguous and cover the whole range. None is empty, and only a piece that is a single
        event may be larger than ``max_bytes``. A range within the limit is returned without a request.
        Otherwise one pass over the range follows the event headers: where events are large it reads only the
        headers, where they are small it has to read every byte, because a 0.13.0 server keeps no index of
        events (see ``docs/batch.md``).

        :param segment_range: the range to divide.
        :param max_bytes: the largest size of a piece, in bytes. Event headers count.
        :param index: boundaries that are already known. Only the rest of the range is searched.
        :raises TruncatedInputError: the range begins or ends in the middle of an event.
        :raises DecodeError: the range does not contain events; for example, it was written as a byte stream.
        :raises DataLossError: the range was truncated.
        :raises InvalidArgumentError: the range reaches beyond the segment's end, or ``max_bytes`` is not
            positive.
        """
        return await splitting.split_range(self._core, segment_range, max_bytes, index)

    async def boundary_index(
        self,
        segment_range: SegmentRange,
        *,
        spacing: int = DEFAULT_SPACING,
        known: BoundaryIndex | None = None,
    ) -> BoundaryIndex:
        """Find event boundaries in a range, as an index that can be stored and used repeatedly.

        :param segment_range: the range to search.
        :param spacing: bytes from one boundary to the next. Pieces can be as small as this.
        :param known: the index of an earlier, shorter range of the same segment. Only the rest is searched,
            and the result covers both. It is ignored if its spacing differs or if it does not reach the
            range's start.
        :raises InvalidArgumentError: ``known`` belongs to another segment, the range reaches beyond the
            segment's end, or ``spacing`` is not positive.
        :raises TruncatedInputError: the range begins or ends in the middle of an event.
        :raises DecodeError: the range does not contain events.
        :raises DataLossError: the range was truncated.
        """
        return await splitting.boundary_index(self._core, segment_range, spacing, known)

    async def leading_parts(
        self, asked: Iterable[tuple[SegmentRange, int | None, int | None]]
    ) -> list[LeadingPart]:
        """Find how many whole events at the beginning of each range are within a limit.

        Use it to read a stream in portions. All ranges are searched concurrently. The search follows the
        event headers and does not go beyond the limits.

        :param asked: tuples of a range that begins at an event boundary, the most bytes (event headers
            included) and the most events that its part may have; None means no limit. An event that exceeds
            the byte limit is left out.
        :returns: one answer for each range, in the same order.
        :raises TruncatedInputError: a range ends in the middle of an event.
        :raises DecodeError: a range does not contain events, or does not begin with one.
        :raises DataLossError: a range was truncated.
        :raises InvalidArgumentError: a range reaches beyond the segment's end, or a limit is negative.
        """
        check_several("asked", asked)
        return await splitting.leading_parts(self._core, list(asked))

    def read_range(self, segment_range: SegmentRange) -> RangesReader:
        """Read the events of a range: ``async for batch in client.read_range(r)``.

        The results of this method, :meth:`read_events` and :meth:`read_ranges` are used in the same way.
        Iterate over them. If you may stop before the last batch, also enter them (``async with
        client.read_range(r) as batches``): leaving the block releases the connection and the buffers at once.
        Otherwise they are released after the last batch, or soon after the last reference to the result is
        gone. Nothing is read before the first batch is requested.

        :raises DataLossError: (while reading) data of the range was truncated.
        """

        check_type("segment_range", segment_range, SegmentRange)

        async def ranges() -> list[SegmentRange]:
            return [segment_range]

        return RangesReader(InOrder(self._core, ranges))

    async def range_crc32(self, segment_range: SegmentRange) -> int:
        """Compute the CRC-32 (as :func:`zlib.crc32`) of the bytes of a range, event headers included.

        :raises DataLossError: the range was truncated.
        :raises InvalidArgumentError: the range reaches beyond the segment's end.
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
        """Read several ranges concurrently: ``async for batch in client.read_ranges(ranges)``.

        Batches are returned in the order they arrive. From the first request for a batch on, the client reads
        ahead. After an error every further request raises the same error. Close the result as described at
        :meth:`read_range`.

        :param ranges: the ranges to read, for example from :meth:`segment_ranges`.
        :param at_once: the number of ranges to read at a time.
        :param max_buffered_bytes: the limit for data that was received and not yet taken, over all ranges.
            Each range may hold at least 384 KiB, and always one whole event.
        :param ordered: keep the events of each routing key in order. Pieces of one segment are then read one
            after the other, and a segment only after all segments of earlier epochs. If false, ``at_once`` is
            the only limit.
        :raises InvalidArgumentError: ``at_once`` or ``max_buffered_bytes`` is too small.
        """
        return RangesReader(
            Together(
                self._core, ranges, at_once=at_once, max_buffered_bytes=max_buffered_bytes, ordered=ordered
            )
        )

    def read_events(
        self,
        stream: StreamName,
        start: Bound = "earliest",
        end: Bound = "latest",
        *,
        on_truncated: OnTruncated = "raise",
    ) -> RangesReader:
        """Read the events between two cuts, in order for each routing key.

        Use it as ``async for batch in client.read_events("s/t")``. The parameters are those of
        :meth:`segment_ranges`, which is called when the first batch is requested and raises its errors then.
        Close the result as described at :meth:`read_range`.

        :param start: where to begin; by default the oldest event.
        :param end: where to stop; by default the newest event when the first batch is requested.
        :param on_truncated: what to do if data between the cuts was truncated.
        """
        return RangesReader(
            InOrder(self._core, lambda: self.segment_ranges(stream, start, end, on_truncated=on_truncated))
        )

    @overload
    def follow_events(
        self,
        stream: StreamName,
        start: Bound | datetime = "earliest",
        *,
        on_truncated: OnTruncated = "raise",
        max_buffered_bytes: int = DEFAULT_BUFFERED_BYTES,
    ) -> StreamFollower[bytes]: ...

    @overload
    def follow_events(
        self,
        stream: StreamName,
        start: Bound | datetime = "earliest",
        *,
        serializer: Serializer[T],
        on_truncated: OnTruncated = "raise",
        max_buffered_bytes: int = DEFAULT_BUFFERED_BYTES,
    ) -> StreamFollower[T]: ...

    def follow_events(
        self,
        stream: StreamName,
        start: Bound | datetime = "earliest",
        *,
        serializer: Serializer[Any] | None = None,
        on_truncated: OnTruncated = "raise",
        max_buffered_bytes: int = DEFAULT_BUFFERED_BYTES,
    ) -> StreamFollower[Any]:
        """Follow a stream without a reader group: ``async for event in client.follow_events("s/t")``.

        It returns all events from a position on, waits for those that will be written, and follows the stream
        through scaling until the stream is sealed. Several followers of a stream each get all events. To
        share the events among readers, use a reader group. See :class:`StreamFollower`.

        Example::

            async with client.follow_events("demo/readings") as events:
                async for event in events:
                    print(event.value)
                    saved = events.cut.to_text()
                    break
            # later, perhaps in another process: exactly the events after that one
            async with client.follow_events("demo/readings", saved) as events:
                ...

        :param start: where to begin: ``"earliest"``, ``"latest"``, a :class:`StreamCut` such as
            :attr:`StreamFollower.cut`, its text, or a datetime (:meth:`cut_at`). It is looked up on entering
            the block, or by the first request for an event.
        :param serializer: deserializes the events. By default they are bytes.
        :param on_truncated: what to do if the next data was truncated: ``"raise"`` raises
            :class:`DataLossError` once, and the next call continues after the lost data; ``"skip_to_head"``
            continues there at once, and the loss is logged, counted and reported to the client's observer.
        :param max_buffered_bytes: the most bytes to read ahead, all segments together; at least 256 KiB for
            each.
        """
        name = self._resolve(stream)
        return StreamFollower(
            self._core,
            name,
            lambda: self._place(name, start),
            serializer,
            on_truncated=on_truncated,
            max_buffered_bytes=max_buffered_bytes,
        )

    @limited("finding where to begin to follow stream {stream}")
    async def _place(self, stream: ScopedStream, start: Bound | datetime) -> StreamCut:
        if isinstance(start, datetime):
            return await watermarks.cut_at(self._core, stream, start)
        return await batch.resolve_bound(self._core, stream, start, "earliest")

    @limited("fetching the event at {}")
    async def fetch_event(self, pointer: EventPointer) -> bytes:
        """Return one event, given its location (:attr:`Event.pointer`).

        :raises DataLossError: the event was truncated.
        :raises InvalidArgumentError: no event begins and ends at this location.
        """
        self._core.check_open()
        check_type("pointer", pointer, EventPointer)
        return await batch.fetch_event(self._core, pointer)

    # --- reader groups --------------------------------------------------------------------------

    @limited("creating reader group {stream}")
    async def create_reader_group(
        self,
        group: StreamName,
        config: ReaderGroupConfig
        | StreamName
        | StreamCut
        | Iterable[StreamName | StreamCut]
        | Mapping[ScopedStream, StreamCut | None],
    ) -> bool:
        """Create a reader group. Returns False if it already exists with the same configuration.

        A creation that fails or is cancelled is undone. If that is impossible (the process dies), the next
        creation of the group completes it or begins again, also with another configuration.

        :param group: ``"scope/group"``, or a name in the default scope.
        :param config: a :class:`ReaderGroupConfig`; or a stream to read from its head, or a
            :class:`StreamCut` to read from there, or an iterable of these; or cuts by stream, as
            :meth:`ReaderGroup.stream_cuts` and the like return them.
        :raises ReaderGroupError: the group already exists with another configuration.
        :raises ScopeNotFoundError: the scope does not exist.
        :raises StreamNotFoundError: one of the streams does not exist.
        :raises ScopeBrokenError: the scope cannot hold another reader group, because it has lost its table of
            groups.
        """
        name = self._resolve(group, "reader group")
        if not isinstance(config, ReaderGroupConfig):
            config = ReaderGroupConfig.of(
                [each if isinstance(each, StreamCut) else self._resolve(each) for each in starts_of(config)]
            )
        return await reader_group.create(self._core, name, config)

    @opening
    @limited("opening reader group {stream}")
    async def reader_group(self, group: StreamName) -> ReaderGroup:
        """Open a reader group, to create readers and to manage it.

        Use it as ``async with client.reader_group("g") as group``; see :class:`ReaderGroup`.

        :raises ReaderGroupNotFoundError: the group does not exist.
        """
        return await reader_group.open_group(self._core, self._resolve(group, "reader group"))

    @limited("deleting reader group {stream}")
    async def delete_reader_group(self, group: StreamName) -> bool:
        """Delete a reader group and its state. Its readers fail. Returns False if it did not exist."""
        return await reader_group.delete(self._core, self._resolve(group, "reader group"))

    @limited("checking whether reader group {stream} exists")
    async def reader_group_exists(self, group: StreamName) -> bool:
        """Return whether the reader group exists."""
        return await reader_group.exists(self._core, self._resolve(group, "reader group"))

    async def list_reader_groups(self, scope: str | None = None) -> list[ScopedStream]:
        """Return the reader groups of a scope, each with scope and name.

        :param scope: the scope to list. The default is the configuration's.
        :raises ScopeNotFoundError: the scope does not exist.
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
    @limited("opening revisioned stream {stream}")
    async def revisioned_stream(
        self, stream: StreamName, serializer: Serializer[T] | None = None
    ) -> RevisionedStream[T] | RevisionedStream[bytes]:
        """Open a stream of one segment for appends with optimistic concurrency control.

        :param serializer: converts the values. By default they are bytes.
        :raises StreamNotFoundError: the stream does not exist or is sealed.
        :raises InvalidArgumentError: the stream has more than one segment.
        """
        name = self._resolve(stream)
        if serializer is None:
            return await RevisionedStream.open(self._core, name, BytesSerializer())
        return await RevisionedStream.open(self._core, name, serializer)

    def byte_stream_writer(
        self, stream: StreamName, *, max_outstanding_bytes: int = DEFAULT_MAX_OUTSTANDING_BYTES
    ) -> ByteStreamWriter:
        """Create a writer of raw bytes: ``async with client.byte_stream_writer("s/t") as writer``.

        :param stream: a stream of one segment.
        :param max_outstanding_bytes: the number of unacknowledged bytes at which a write starts to wait.
        """
        return ByteStreamWriter(
            self._core, self._resolve(stream), max_outstanding_bytes=max_outstanding_bytes
        )

    def byte_stream_reader(
        self, stream: StreamName, start: int = 0, *, follow: bool = True
    ) -> ByteStreamReader:
        """Create a reader of a byte stream: ``async with client.byte_stream_reader("s/t") as reader``.

        :param start: the first offset to read, in bytes.
        :param follow: at the end, wait for more bytes until the stream is sealed. If false, the data ends at
            the length the stream had when the reader was opened.
        """
        return ByteStreamReader(self._core, self._resolve(stream), start, follow=follow)

    @opening
    async def state_synchronizer(
        self, stream: StreamName, format: Synchronized[S, I, U]
    ) -> StateSynchronizer[S, I, U]:
        """Open a state that is shared with other processes, on a stream of one segment.

        :param format: creates, updates and serializes the state. :class:`StateFormat` covers the simple
            cases.
        :raises StreamNotFoundError: the stream does not exist or is sealed.
        :raises InvalidArgumentError: the stream has more than one segment.
        """
        stream = self._resolve(stream)
        for name in ("initial_serializer", "update_serializer"):
            check_serializer(f"state on {stream}: {name} of the format", getattr(format, name, None))
        for name in ("create", "apply"):
            check_callable(f"state on {stream}: {name} of the format", getattr(format, name, None))
        return StateSynchronizer(await self.revisioned_stream(stream), format)

    # --- key-value tables -----------------------------------------------------------------------

    @limited("creating key-value table {stream}")
    async def create_key_value_table(self, table: StreamName, config: KeyValueTableConfiguration) -> bool:
        """Create a key-value table. Returns False if it already exists.

        The configuration of an existing table is left unchanged.

        :param config: the number of partitions and the key lengths. They cannot be changed later.
        :raises ScopeNotFoundError: the scope does not exist.
        :raises ScopeBrokenError: the scope cannot hold another table, because it has lost its list of tables.
        :raises InvalidArgumentError: the name or the configuration is invalid.
        """
        name = self._resolve(table, "key-value table")
        check_config(name, config)
        return await self._core.controller.create_key_value_table(name.scope, name.name, config)

    @limited("checking whether key-value table {stream} exists")
    async def key_value_table_exists(self, table: StreamName) -> bool:
        """Return whether the key-value table exists."""
        try:
            await self.key_value_table_config(table)
        except KeyValueTableNotFoundError:
            return False
        return True

    @limited("fetching the configuration of key-value table {stream}")
    async def key_value_table_config(self, table: StreamName) -> KeyValueTableConfiguration:
        """Return the number of partitions and the key lengths of a table.

        :raises KeyValueTableNotFoundError: the table does not exist.
        """
        name = self._resolve(table, "key-value table")
        return await self._core.controller.get_key_value_table_configuration(name.scope, name.name)

    async def list_key_value_tables(self, scope: str | None = None) -> list[ScopedStream]:
        """Return the key-value tables of a scope, each with scope and name.

        :param scope: the scope to list. The default is the configuration's.
        :raises ScopeNotFoundError: the scope does not exist.
        """
        self._core.check_open()
        chosen = self._core.config.resolve_scope(scope)
        return [
            ScopedStream(chosen, name) async for name in self._core.controller.list_key_value_tables(chosen)
        ]

    @limited("deleting key-value table {stream}")
    async def delete_key_value_table(self, table: StreamName) -> bool:
        """Delete a key-value table and its data. Returns False if it did not exist."""
        name = self._resolve(table, "key-value table")
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

    @limited("opening key-value table {stream}")
    async def key_value_table(
        self,
        table: StreamName,
        values: Serializer[Any] | None = None,
        *,
        primary_keys: Serializer[Any] | None = None,
        secondary_keys: Serializer[Any] | None = None,
        sole_writer: bool = False,
    ) -> KeyValueTable[Any, Any, Any]:
        """Open a key-value table, to read and change its entries.

        :param values: serializer of the values. By default they are bytes.
        :param primary_keys: serializer of the primary keys. By default they are bytes. Serialized keys must
            have the lengths that the table was created with. Iteration follows the order of the serialized
            bytes.
        :param secondary_keys: serializer of the secondary keys, with the same rules; only for a table that
            has some.
        :param sole_writer: promise that, while this object is used, no other process or object changes the
            keys changed through it, and that no key is in two updates in flight at the same time. An update
            whose answer is lost can then be verified or repeated. Without the promise some of those updates
            end with :class:`TableOutcomeUnknownError`.
        :raises KeyValueTableNotFoundError: the table does not exist.
        """
        return await KeyValueTable.open(
            self._core,
            self._resolve(table, "key-value table"),
            BytesSerializer() if primary_keys is None else primary_keys,
            BytesSerializer() if secondary_keys is None else secondary_keys,
            BytesSerializer() if values is None else values,
            sole_writer=sole_writer,
        )

    @limited("fetching the length of a segment of stream {stream}")
    async def segment_length(self, stream: StreamName, segment_id: int) -> int:
        """Return the length of a segment in bytes, including truncated data.

        :raises NoSuchSegmentError: the segment does not exist.
        """
        name = self._resolve(stream)
        check_count("segment_id", segment_id, 0)
        target = self._core.target(name, segment_id, Access.READ)
        return (await SegmentMetadata(self._core.stores, target).info()).write_offset
