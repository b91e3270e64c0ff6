"""Transactions: events that become visible together, or not at all."""

from __future__ import annotations

import logging
import math
import zlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple, Self, cast
from uuid import UUID, uuid4

import trio

from pravega_wire.controller.tokens import Access
from pravega_wire.controller.types import PingStatus, SegmentWithRange, TxnStatus
from pravega_wire.errors import (
    InvalidArgumentError,
    NoSuchSegmentError,
    PravegaError,
    PravegaTimeoutError,
    SegmentSealedError,
    TransactionAbortedError,
    TransactionError,
    TransactionExpiredError,
    TransactionNotOpenError,
    TransactionUnknownError,
    UnexpectedReplyError,
)
from pravega_wire.metrics import WriterMetrics
from pravega_wire.naming import segment_name, transaction_segment_name
from pravega_wire.nurseries import look_up_all
from pravega_wire.segment.appender import Ack, SegmentAppender
from pravega_wire.segment.handles import state_of
from pravega_wire.segment.metadata import SegmentMetadata
from pravega_wire.segment.store import SegmentTarget
from pravega_wire.stream.arrow import is_arrow, key_column
from pravega_wire.stream.core import ClientCore
from pravega_wire.stream.routing import DEFAULT_MAX_OUTSTANDING_BYTES, Route, RoutedWriter, check_lengths
from pravega_wire.transport.limits import limited
from pravega_wire.types import ScopedStream

__all__ = ["DEFAULT_LEASE_MS", "StagedBytes", "StagingWriter", "Transaction"]

DEFAULT_LEASE_MS = 599_999
"""Lease of a transaction in milliseconds, as the Java client's default."""

log = logging.getLogger(__name__)

_FIRST_PAUSE, _PAUSE_GROWTH = 0.01, 1.2
# A controller takes 30 ms and more to commit, and each question keeps it from that. A longer wait is overshot
# by a sixth of it at most.

_COMMIT_AGAIN, _COMMIT_AGAIN_LONGEST = 2.0, 10.0
# Seconds of waiting after which a commit is asked for again; the time after that doubles. No commit takes as
# long on a server that is well, so this costs nothing there; one that is stuck sometimes needs several.


class _TransactionWriter(RoutedWriter):
    """Writes to segments named like a transaction's, one next to each segment of an epoch.

    :param segments: the segments of the transaction's epoch, with generalized ids (controller
        facts v0.13.0, "Transactions"): the epoch half is the transaction's.
    :param suffix: the id in the names of the segments written.
    :param why_closed: asks why a segment takes no more events.
    """

    _has_successors = False

    def __init__(
        self,
        core: ClientCore,
        stream: ScopedStream,
        segments: Sequence[SegmentWithRange],
        suffix: UUID,
        *,
        max_outstanding_bytes: int,
        why_closed: Callable[[], Awaitable[TransactionError]] | None = None,
    ) -> None:
        self._why_closed = why_closed
        super().__init__(
            f"transaction {suffix} on {stream}",
            core.nursery,
            core.counters.writing(stream),
            max_outstanding_bytes=max_outstanding_bytes,
        )
        self.stream = stream
        self._core = core
        self._set_routes(
            [
                Route(
                    segment.low,
                    segment.high,
                    SegmentAppender(core.stores, transaction_target(core, stream, segment, suffix), self),
                )
                for segment in segments
            ]
        )

    def _start_all(self) -> None:
        for appender in self._appenders():
            self._start(appender)

    async def sealed(self, appender: SegmentAppender, error: PravegaError) -> None:
        """A segment takes no more, because the transaction has ended: its events get to know how."""
        if self._why_closed is not None and self._error is None:
            try:
                why = await self._why_closed()
            except PravegaError:
                # The controller does not tell, so the events get what the store has said.
                pass
            else:
                why.__cause__ = error
                error = why
        await super().sealed(appender, error)


def transaction_target(
    core: ClientCore, stream: ScopedStream, segment: SegmentWithRange, suffix: UUID
) -> SegmentTarget:
    """The segment of a transaction, or of staged data, beside ``segment``."""
    parent = segment_name(stream.scope, stream.name, segment.segment_id)
    return SegmentTarget(
        name=transaction_segment_name(parent, suffix),
        scope=stream.scope,
        stream=stream.name,
        segment_id=segment.segment_id,
        token=core.token_source(stream, Access.WRITE),
    )


class Transaction:
    """One transaction on a stream. Made by :meth:`PravegaClient.begin_transaction`.

    While it is open its lease is renewed in the background. As a context manager it aborts on the
    way out unless it was committed.

    :ivar txn_id: its id; another process resumes it by :meth:`PravegaClient.transaction`.
    :ivar epoch: epoch of the stream in which it began.
    """

    def __init__(
        self,
        core: ClientCore,
        stream: ScopedStream,
        txn_id: UUID,
        segments: Sequence[SegmentWithRange],
        lease_ms: int,
    ) -> None:
        self.stream = stream
        self.txn_id = txn_id
        self.segments = tuple(segments)
        self.lease_ms = lease_ms
        self._core = core
        self._writer: _TransactionWriter | None = None
        self._open = True
        self._committing = False
        self._lost: TransactionError | None = None
        self._pinging = trio.CancelScope()
        core.nursery.start_soon(self._keep_alive, name=f"lease of transaction {txn_id}")

    @property
    def _operation_timeout(self) -> float:
        return self._core.config.operation_timeout

    @property
    def epoch(self) -> int:
        """Epoch in which the transaction began (int)."""
        return self.txn_id.int >> 96

    def __repr__(self) -> str:
        state = "open" if self._open else "closed"
        return f"<Transaction {self.txn_id} on {self.stream}, {state}>"

    # --- lease ----------------------------------------------------------------------------------

    async def _keep_alive(self) -> None:
        lease = self.lease_ms / 1000
        period = lease / max(1.0, math.sqrt(lease))
        with self._pinging:
            while True:
                await trio.sleep(period)
                try:
                    await self._ping(self.lease_ms)
                except TransactionError as error:
                    self._lost = error
                    return
                except PravegaError:
                    # The controller cannot be reached just now; the lease outlasts several tries,
                    # and the commit will say if it did not.
                    continue

    async def _ping(self, lease_ms: int) -> None:
        status = await self._core.controller.ping_transaction(
            self.stream.scope, self.stream.name, self.txn_id, lease_ms
        )
        if status is PingStatus.OK:
            return
        if status is PingStatus.UNKNOWN:
            raise self._unknown()
        if status is PingStatus.ABORTED:
            raise self._expired("ABORTED")
        if status is PingStatus.COMMITTED:
            raise self._not_open("COMMITTED", "is committed")
        raise _named(TransactionError, self.stream, self.txn_id, f"cannot be kept alive: {status.name}")

    @limited("renewing transaction {self.txn_id} on {self.stream}")
    async def ping(self, lease_ms: int | None = None) -> None:
        """Renew the lease now.

        :param lease_ms: milliseconds from now (default: the transaction's lease).
        :raises TransactionExpiredError: it was aborted. :raises TransactionNotOpenError: committed.
        """
        await self._ping(self.lease_ms if lease_ms is None else lease_ms)

    def _not_open(
        self, status: str | None, what: str, kind: type[TransactionNotOpenError] = TransactionNotOpenError
    ) -> TransactionNotOpenError:
        return kind(
            f"transaction {self.txn_id} on {self.stream} {what}",
            status=status,
            scope=self.stream.scope,
            stream=self.stream.name,
            transaction=self.txn_id,
        )

    def _expired(self, status: str) -> TransactionNotOpenError:
        return self._not_open(status, "was aborted (its lease may have run out)", TransactionExpiredError)

    def _unknown(self) -> TransactionError:
        return _named(TransactionUnknownError, self.stream, self.txn_id, "is not known to the controller")

    # --- writing --------------------------------------------------------------------------------

    def _writing(self) -> _TransactionWriter:
        if not self._open:
            raise self._not_open(None, "takes no more events")
        if self._lost is not None:
            raise self._lost
        if self._writer is None:
            self._writer = _TransactionWriter(
                self._core,
                self.stream,
                self.segments,
                self.txn_id,
                max_outstanding_bytes=DEFAULT_MAX_OUTSTANDING_BYTES,
                why_closed=self._why_closed,
            )
            self._writer._start_all()
        return self._writer

    async def write_event(self, event: bytes, routing_key: str | None = None) -> Ack:
        """As :meth:`EventWriter.write_event`. Events without a key all go to one segment.

        :raises TransactionNotOpenError: committed or aborted, here or elsewhere.
        """
        key = str(self.txn_id) if routing_key is None else routing_key
        try:
            return await self._writing().write_event(event, key)
        except (SegmentSealedError, NoSuchSegmentError) as error:
            raise await self._why_closed() from error

    async def write_events(
        self,
        events: Iterable[bytes],
        routing_keys: Iterable[str | None] | str | None = None,
    ) -> Ack:
        """As :meth:`EventWriter.write_events`; errors as :meth:`write_event`."""
        default = str(self.txn_id)
        check_lengths(events, routing_keys)
        keys: Iterable[str | None] | str
        if routing_keys is None or isinstance(routing_keys, str):
            keys = default if routing_keys is None else routing_keys
        elif is_arrow(routing_keys):
            keys = key_column(routing_keys, len(cast(Sequence[object], routing_keys))).fill_null(default)
        else:
            keys = (default if key is None else key for key in routing_keys)
        try:
            return await self._writing().write_events(events, keys)
        except (SegmentSealedError, NoSuchSegmentError) as error:
            raise await self._why_closed() from error

    async def flush(self) -> None:
        """Wait until all events written are stored (not yet visible): the first of two phases.

        :raises TransactionNotOpenError: committed or aborted elsewhere.
        """
        if self._writer is None:
            await trio.lowlevel.checkpoint()
            return
        try:
            await self._writer.flush()
        except (SegmentSealedError, NoSuchSegmentError) as error:
            raise await self._why_closed() from error

    def metrics(self) -> WriterMetrics:
        """Counters of what was written through this object, whatever becomes of the transaction."""
        if self._writer is None:
            return self._core.counters.writing(self.stream).metrics(
                f"transaction {self.txn_id} on {self.stream}"
            )
        return self._writer.metrics()

    async def _why_closed(self) -> TransactionError:
        status = await self.status()
        if status is TxnStatus.ABORTING or status is TxnStatus.ABORTED:
            return self._expired(status.name)
        return self._not_open(status.name, f"is {status.name.lower()}")

    # --- the end --------------------------------------------------------------------------------

    def _finish(self) -> None:
        self._open = False
        self._pinging.cancel()
        if self._writer is not None:
            self._writer._stop()

    async def commit(self, timestamp: int | None = None) -> None:
        """Flush, then make the events visible together. Returns when the controller has recorded it.

        Commit of a committed transaction is harmless. Readers see the events a moment later; see
        :meth:`wait_committed`. On a 0.13.0 server a commit that races with somebody else's abort of the same
        transaction may stay COMMITTING, so that readers never see the events; :meth:`wait_committed` tells.

        Cancelled while it was flushing, it has not sent the commit: call it again inside the ``async with``
        block, as leaving the block aborts. Cancelled later it may have committed, and leaving the block does
        not abort.

        :param timestamp: event time to note with the commit, milliseconds.
        :raises TransactionAbortedError: it was aborted or its lease ran out; nothing is visible.
        """
        if self._open:
            await self.flush()
        self._committing = True
        try:
            await commit_transaction(self._core, self.stream, self.txn_id, timestamp)
        except TransactionError:
            self._committing = False
            raise
        self._finish()
        self._committing = False

    @limited("aborting transaction {self.txn_id} on {self.stream}")
    async def abort(self) -> None:
        """Drop the events. Harmless when it is aborted already.

        :raises TransactionNotOpenError: it is committed.
        """
        self._finish()
        await abort_transaction(self._core, self.stream, self.txn_id)

    @limited("asking for transaction {self.txn_id} on {self.stream}")
    async def status(self) -> TxnStatus:
        """State of the transaction now."""
        return await self._core.controller.check_transaction_state(
            self.stream.scope, self.stream.name, self.txn_id
        )

    async def wait_committed(self) -> None:
        """Wait until readers see the events.

        :raises TransactionAbortedError: it was aborted. :raises TransactionUnknownError: forgotten.
        :raises PravegaTimeoutError: it is still COMMITTING after ``operation_timeout`` seconds. It may be
            waited for again.
        """
        await wait_committed(self._core, self.stream, self.txn_id)

    async def aclose(self) -> None:
        """Stop writing and renewing the lease, without an end: another process may resume it."""
        self._finish()
        await trio.lowlevel.checkpoint()

    async def __aenter__(self) -> Self:
        await trio.lowlevel.checkpoint()
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        if self._committing:
            # An abort could come between: whether it is committed is for the server to say.
            self._finish()
        elif self._open:
            with trio.CancelScope(shield=True), trio.move_on_after(10):
                try:
                    await self.abort()
                except PravegaError as failure:
                    if kind is None:
                        raise
                    # What ended the block is what its caller should see.
                    log.info("%r was not aborted: %s", self, failure)


def _named(kind: type[TransactionError], stream: ScopedStream, txn_id: UUID, what: str) -> TransactionError:
    return kind(
        f"transaction {txn_id} on {stream} {what}",
        scope=stream.scope,
        stream=stream.name,
        transaction=txn_id,
    )


async def explain(core: ClientCore, stream: ScopedStream, txn_id: UUID, wanted: str) -> TransactionError:
    """Why the controller did not do what was wanted of a transaction."""
    status = await core.controller.check_transaction_state(stream.scope, stream.name, txn_id)
    if status is TxnStatus.UNKNOWN:
        return _named(TransactionUnknownError, stream, txn_id, f"is not known: it cannot be {wanted}")
    kind: type[TransactionNotOpenError] = TransactionNotOpenError
    if status in (TxnStatus.ABORTING, TxnStatus.ABORTED):
        kind = TransactionAbortedError
    return kind(
        f"transaction {txn_id} on {stream} is {status.name.lower()}: it cannot be {wanted}",
        status=status.name,
        scope=stream.scope,
        stream=stream.name,
        transaction=txn_id,
    )


async def commit_transaction(
    core: ClientCore, stream: ScopedStream, txn_id: UUID, timestamp: int | None = None
) -> None:
    """Commit by id; harmless when it is committing or committed already."""
    done = await core.controller.commit_transaction(stream.scope, stream.name, txn_id, timestamp=timestamp)
    if not done:
        raise await explain(core, stream, txn_id, "committed")


async def abort_transaction(core: ClientCore, stream: ScopedStream, txn_id: UUID) -> None:
    """Abort by id; harmless when it is aborting or aborted already."""
    done = await core.controller.abort_transaction(stream.scope, stream.name, txn_id)
    if not done:
        raise await explain(core, stream, txn_id, "aborted")


async def wait_committed(core: ClientCore, stream: ScopedStream, txn_id: UUID) -> None:
    """Wait until a committing transaction is committed.

    A 0.13.0 controller whose commit races with an abort may leave the transaction COMMITTING. To commit it
    again releases it sometimes, and is harmless otherwise.

    :raises PravegaTimeoutError: it is still COMMITTING after ``operation_timeout`` seconds.
    """
    limit = core.config.operation_timeout
    started = trio.current_time()
    pause = _FIRST_PAUSE
    commit_again = between = min(_COMMIT_AGAIN, limit / 2)
    asked = False
    with trio.move_on_after(limit):
        while True:
            status = await core.controller.check_transaction_state(stream.scope, stream.name, txn_id)
            if status is TxnStatus.COMMITTED:
                return
            if status is not TxnStatus.COMMITTING:
                raise await explain(core, stream, txn_id, "waited for")
            asked = True
            waited = trio.current_time() - started
            if waited >= commit_again:
                between = min(between * 2, _COMMIT_AGAIN_LONGEST)
                commit_again = waited + between
                try:
                    await core.controller.commit_transaction(stream.scope, stream.name, txn_id)
                except PravegaError:
                    # Who may only ask must not commit, and its end may have come just now: asking tells.
                    pass
            # The controller has no call that waits; this asks again, ever more slowly.
            await trio.sleep(pause)
            pause = min(1.0, pause * _PAUSE_GROWTH)
    raise PravegaTimeoutError(
        f"transaction {txn_id} on {stream} is still committing after {limit:g} s; committing it again did "
        "not help, and its events may never become visible"
        if asked
        else f"transaction {txn_id} on {stream}: the controller did not say within {limit:g} s whether it is "
        "committed",
        scope=stream.scope,
        stream=stream.name,
        transaction=txn_id,
    )


class StagedBytes(NamedTuple):
    """What a segment holds, as stored: events with their headers.

    :ivar length: bytes. :ivar crc32: of all of them, as :func:`zlib.crc32` counts it.
    """

    length: int
    crc32: int


class StagingWriter(_TransactionWriter):
    """Writes events next to a transaction, to be merged into it later, or dropped.

    Its segments are named like those of a transaction of their own,
    ``<segment>#transaction.<staging id>``, and the controller knows nothing of them. Used where
    several attempts may write the same data and only one of them shall count.

    :ivar staging_id: names the attempt.
    """

    def __init__(
        self,
        core: ClientCore,
        stream: ScopedStream,
        segments: Sequence[SegmentWithRange],
        staging_id: UUID | None = None,
        *,
        max_outstanding_bytes: int = DEFAULT_MAX_OUTSTANDING_BYTES,
    ) -> None:
        self.staging_id: UUID = staging_id or uuid4()
        super().__init__(core, stream, segments, self.staging_id, max_outstanding_bytes=max_outstanding_bytes)
        self._opened = False
        self._sent = {appender: StagedBytes(0, 0) for appender in self._appenders()}
        for appender in self._sent:
            appender.on_first_send = partial(self._count, appender)
            # Nothing is visible before all of it is: large blocks cost the least.
            appender.appends.patient = True

    def _count(self, appender: SegmentAppender, framed: memoryview) -> None:
        length, crc32 = self._sent[appender]
        self._sent[appender] = StagedBytes(length + len(framed), zlib.crc32(framed, crc32))

    async def open(self) -> Self:
        """Create the segments; done by ``async with``.

        :raises InvalidArgumentError: the staging id was used before, so its segments hold data
            of another attempt.
        """
        if self._opened:
            return self
        appenders = self._appenders()

        async def create(index: int) -> None:
            appender = appenders[index]
            metadata = SegmentMetadata(self._core.stores, appender.target)
            if not await metadata.create():
                info = await metadata.info()
                if info.write_offset > 0 or info.is_sealed:
                    raise InvalidArgumentError(
                        f"staging segment {appender.target.name} exists and is not empty: each "
                        "attempt needs a staging id of its own",
                        segment=appender.target.name,
                    )

        await look_up_all(create, range(len(appenders)))
        self._opened = True
        self._start_all()
        return self

    async def contents(self) -> dict[int, StagedBytes]:
        """Flush; then what each segment holds, by the id of the transaction's segment, without empty ones.

        The ids are those of :attr:`Transaction.segments`: their epoch is the transaction's.

        :raises PravegaError: as :meth:`flush`.
        :raises UnexpectedReplyError: a store says that a segment has another length.
        """
        await self.flush()
        for appender, sent in self._sent.items():
            # It is not known (-1) while nothing was acknowledged since the last set-up.
            if appender.appends.segment_length not in (-1, sent.length):
                raise UnexpectedReplyError(
                    f"{appender.target.name}: {sent.length} bytes were staged, and the store says that the "
                    f"segment has {appender.appends.segment_length}",
                    segment=appender.target.name,
                )
        return {appender.target.segment_id: sent for appender, sent in self._sent.items() if sent.length}

    async def aclose(self) -> None:
        """Flush and end."""
        try:
            if self._error is None and self._opened:
                await self.flush()
        finally:
            self._stop()

    def __repr__(self) -> str:
        return (
            f"<StagingWriter {self.staging_id} of {self.stream}, {state_of(self._opened, self._error)}, "
            f"{self.events_acknowledged} of {self.events_written} events stored>"
        )

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            await self.aclose()
        else:
            self._stop()
            await trio.lowlevel.checkpoint()


async def merge_staging(
    core: ClientCore,
    stream: ScopedStream,
    txn_id: UUID,
    segments: Sequence[SegmentWithRange],
    staging_ids: Sequence[UUID],
) -> dict[int, int]:
    """Merge staged data into a transaction; see :meth:`PravegaClient.merge_staging`."""

    async def merge(index: int) -> int:
        target = transaction_target(core, stream, segments[index], txn_id)
        sources = [transaction_target(core, stream, segments[index], each).name for each in staging_ids]
        return await SegmentMetadata(core.stores, target).merge_batch(sources)

    if not staging_ids:
        await trio.lowlevel.checkpoint()
        return {}
    lengths = await look_up_all(merge, range(len(segments)))
    return {segments[index].segment_id: length for index, length in lengths.items()}


async def delete_staging(
    core: ClientCore,
    stream: ScopedStream,
    segments: Sequence[SegmentWithRange],
    staging_ids: Sequence[UUID],
) -> None:
    """Delete staged data; see :meth:`PravegaClient.delete_staging`."""
    targets = [
        transaction_target(core, stream, segment, staging) for segment in segments for staging in staging_ids
    ]

    async def delete(index: int) -> bool:
        return await SegmentMetadata(core.stores, targets[index]).delete()

    if targets:
        await look_up_all(delete, range(len(targets)))
