"""Transactions: events that become visible together, or not at all."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, Generic, Self, cast
from uuid import UUID

import trio

from pravega_wire.controller.tokens import Access
from pravega_wire.controller.types import PingStatus, SegmentWithRange, TxnStatus
from pravega_wire.errors import (
    AuthError,
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
)
from pravega_wire.metrics import WriterMetrics
from pravega_wire.segment.appender import Ack, SegmentAppender
from pravega_wire.segment.store import SegmentTarget
from pravega_wire.serializers import Value
from pravega_wire.stream.arrow import is_arrow, key_column
from pravega_wire.stream.core import ClientCore, not_shared
from pravega_wire.stream.routing import (
    DEFAULT_MAX_OUTSTANDING_BYTES,
    Route,
    RoutedWriter,
    check_lengths,
    serialized,
)
from pravega_wire.support.checks import check_event_time, check_takes_times, check_uuid
from pravega_wire.transport.limits import NO_TIME, is_hurried, limited
from pravega_wire.values.naming import segment_name, transaction_segment_name
from pravega_wire.values.types import ScopedStream

__all__ = ["DEFAULT_LEASE", "Transaction", "TransactionWriter"]

DEFAULT_LEASE: Final = 599.999
"""Lease of a transaction in seconds, the same as the Java client's default."""

log = logging.getLogger(__name__)

_FIRST_PAUSE, _PAUSE_GROWTH = 0.01, 1.2
"""The first pause between two status requests, in seconds, and its growth.

A commit takes a controller 30 ms or more, and each request delays it. With this growth a long wait is at most
a sixth longer than necessary.
"""

_COMMIT_AGAIN, _COMMIT_AGAIN_LONGEST = 2.0, 10.0
"""Seconds after which the commit request is repeated, and the limit to which this interval doubles.

No commit takes this long on a healthy server, so this costs nothing there. A commit that is stuck sometimes
needs several requests.
"""


class TransactionWriter(RoutedWriter[bytes]):
    """Writes to segments named like those of a transaction, one beside each segment of an epoch.

    :param segments: the segments of the transaction's epoch, with generalized ids: the epoch half of each id
        is the transaction's (``docs/protocol/controller.md``, "Generalized segment ids").
    :param suffix: the id in the names of the segments that are written.
    :param why_closed: finds out why a segment takes no more events.
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
            core, stream, f"transaction {suffix} on {stream}", max_outstanding_bytes=max_outstanding_bytes
        )
        self._set_routes(
            [
                Route(
                    segment.low,
                    segment.high,
                    SegmentAppender(
                        core.stores,
                        transaction_target(core, stream, segment, suffix),
                        self._owner,
                        new_ack=self._new_ack,
                    ),
                )
                for segment in segments
            ]
        )

    def _start_all(self) -> None:
        for appender in self._appenders():
            self._start(appender)

    async def _sealed(self, appender: SegmentAppender, error: PravegaError) -> None:
        """The transaction has ended, so a segment takes no more events: fail its events with the reason."""
        if self._why_closed is not None and self._error is None:
            try:
                why = await self._why_closed()
            except PravegaError:
                # The controller gave no reason, so the events fail with the store's error.
                pass
            else:
                why.__cause__ = error
                error = why
        await super()._sealed(appender, error)


def transaction_target(
    core: ClientCore, stream: ScopedStream, segment: SegmentWithRange, suffix: UUID
) -> SegmentTarget:
    """The segment of a transaction, or of staged events, that belongs to ``segment``."""
    parent = segment_name(stream.scope, stream.name, segment.segment_id)
    return SegmentTarget(
        name=transaction_segment_name(parent, suffix),
        scope=stream.scope,
        stream=stream.name,
        segment_id=segment.segment_id,
        token=core.token_source(stream, Access.WRITE),
    )


class Transaction(Generic[Value]):
    """A transaction on a stream. Made by :meth:`PravegaClient.begin_transaction`.

    Its events become visible to readers when it is committed, all together. While it is open, its lease is
    renewed in the background. As a context manager it aborts on leaving the block, unless it was committed.

    Example::

        async with client.begin_transaction("demo/readings") as transaction:
            await transaction.write_event(b"21.5", "sensor-7")
            await transaction.write_event(b"21.6", "sensor-8")
            await transaction.commit()

    :ivar txn_id: its id. Another process can resume it with :meth:`PravegaClient.resume_transaction`.
    :ivar epoch: the epoch of the stream in which it began.
    """

    def __init__(
        self,
        core: ClientCore,
        stream: ScopedStream,
        txn_id: UUID,
        segments: Sequence[SegmentWithRange],
        lease: float,
    ) -> None:
        self.stream = stream
        self.txn_id = txn_id
        self.segments = tuple(segments)
        self.lease = lease
        self._core = core
        self._writer: TransactionWriter | None = None
        self._open = True
        self._incomplete = False
        self._committing = False
        self._lost: TransactionError | None = None
        self._pinging = trio.CancelScope()
        # Its creation was awaited; the client may have been closed in the meantime.
        core.check_open()
        core.nursery.start_soon(self._keep_alive, name=f"lease of transaction {txn_id}")

    __reduce__ = not_shared

    @property
    def epoch(self) -> int:
        """The epoch of the stream in which the transaction began (int)."""
        return self.txn_id.int >> 96

    def __repr__(self) -> str:
        state = "open" if self._open else "closed"
        return f"<Transaction {self.txn_id} on {self.stream}, {state}>"

    # --- lease ----------------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    async def _keep_alive(self) -> None:
        period = self.lease / max(1.0, math.sqrt(self.lease))
        with self._pinging:
            while True:
                await trio.sleep(period)
                try:
                    await self._ping(self.lease)
                except (TransactionNotOpenError, TransactionUnknownError) as error:
                    self._lost = error
                    return
                except PravegaError:
                    # The controller cannot be reached now, or is shutting down (DISCONNECTED). The lease
                    # outlasts several attempts; if it expires, the commit reports that.
                    continue

    async def _ping(self, lease: float) -> None:
        status = await self._core.controller.ping_transaction(
            self.stream.scope, self.stream.name, self.txn_id, lease
        )
        if status is PingStatus.OK:
            return
        if status is PingStatus.UNKNOWN:
            raise self._unknown()
        if status is PingStatus.ABORTED:
            raise self._expired("ABORTED")
        if status is PingStatus.COMMITTED:
            raise self._not_open("COMMITTED", "is committed")
        raise _named(
            TransactionError, self.stream, self.txn_id, f"has a lease that cannot be renewed: {status.name}"
        )

    @limited("renewing transaction {self.txn_id} on {self.stream}")
    async def ping(self, lease: float | None = None) -> None:
        """Renew the lease now.

        :param lease: seconds from now. The default is the transaction's lease.
        :raises TransactionExpiredError: the transaction was aborted; its lease may have expired.
        :raises TransactionNotOpenError: the transaction is committed.
        :raises TransactionUnknownError: the controller has no record of it.
        """
        await self._ping(self.lease if lease is None else lease)

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
        return self._not_open(status, "was aborted (its lease may have expired)", TransactionExpiredError)

    def _unknown(self) -> TransactionError:
        return _named(TransactionUnknownError, self.stream, self.txn_id, "is not known to the controller")

    # --- writing --------------------------------------------------------------------------------

    def _writing(self) -> TransactionWriter:
        if not self._open:
            raise self._not_open(None, "takes no more events")
        if self._lost is not None:
            raise self._lost
        self._core.check_open()
        if self._writer is None:
            self._writer = TransactionWriter(
                self._core,
                self.stream,
                self.segments,
                self.txn_id,
                max_outstanding_bytes=DEFAULT_MAX_OUTSTANDING_BYTES,
                why_closed=self._why_closed,
            )
            self._writer._start_all()
        return self._writer

    async def write_event(self, event: Value, routing_key: str | None = None) -> Ack:
        """Append one event to the transaction, like :meth:`EventWriter.write_event`.

        Events without a key all go to one segment.

        :raises TransactionNotOpenError: the transaction was committed or aborted, here or elsewhere.
        """
        key = str(self.txn_id) if routing_key is None else routing_key
        try:
            return await self._writing().write_event(event, key)  # type: ignore[arg-type]  # as in RoutedWriter
        except (SegmentSealedError, NoSuchSegmentError) as error:
            raise await self._why_closed() from error

    async def write_events(
        self,
        events: Iterable[Value],
        routing_keys: Iterable[str | None] | str | None = None,
    ) -> Ack:
        """Append many events to the transaction, like :meth:`EventWriter.write_events`.

        :raises TransactionNotOpenError: the transaction was committed or aborted, here or elsewhere.
        """
        default = str(self.txn_id)
        check_lengths(events, routing_keys, f"transaction {self.txn_id} on {self.stream}")
        keys: Iterable[str | None] | str
        if routing_keys is None or isinstance(routing_keys, str):
            keys = default if routing_keys is None else routing_keys
        elif is_arrow(routing_keys):
            keys = key_column(routing_keys, len(cast(Sequence[object], routing_keys))).fill_null(default)
        else:
            keys = (default if key is None else key for key in routing_keys)
        try:
            return await self._writing().write_events(cast("Iterable[bytes]", events), keys)
        except (SegmentSealedError, NoSuchSegmentError) as error:
            raise await self._why_closed() from error

    async def flush(self) -> None:
        """Wait until all events written are stored. This is the first of two phases.

        The events become visible only with :meth:`commit`.

        If this call is cancelled, the written events stay queued and may still be stored. Flush again to find
        out.

        :raises TransactionNotOpenError: the transaction was committed or aborted elsewhere.
        """
        if self._writer is None:
            await trio.lowlevel.checkpoint()
            return
        try:
            await self._writer.flush()
        except (SegmentSealedError, NoSuchSegmentError) as error:
            raise await self._why_closed() from error

    def metrics(self) -> WriterMetrics:
        """Return the counters of events written through this object, whether they are committed or not."""
        if self._writer is None:
            return self._core.counters.writing(self.stream).metrics(
                f"transaction {self.txn_id} on {self.stream}"
            )
        return self._writer.metrics()

    async def _why_closed(self) -> TransactionError:
        status = await self.status()
        if status is TxnStatus.ABORTING or status is TxnStatus.ABORTED:
            return self._expired(status.name)
        return explanation(self.stream, self.txn_id, status, "written to")

    # --- the end --------------------------------------------------------------------------------

    def _finish(self) -> None:
        self._core.check_run()
        if self._writer is not None:
            if self._open:
                # Whether events that are not acknowledged by now are in the transaction is not known.
                self._incomplete = self._writer.failed_or_waiting
            self._writer._stop()
        self._open = False
        self._pinging.cancel()

    async def commit(self, timestamp: int | None = None, *, writer_id: UUID | None = None) -> None:
        """Flush, then make the events visible together. Returns when the controller has recorded the commit.

        Readers see the events a moment later; see :meth:`wait_committed`. Committing a committed transaction
        does nothing. On a 0.13.0 server, a commit that coincides with another process's abort of the same
        transaction may stay COMMITTING forever, so that readers never see the events. :meth:`wait_committed`
        reports that.

        If this call is cancelled during the flush, the commit has not been sent: call it again inside the
        ``async with`` block, because leaving the block aborts the transaction. After the flush, the
        transaction may be committed: check :meth:`status`. Committing again is harmless, and leaving the
        block does not abort the transaction.

        :param timestamp: event time to note with the commit, in milliseconds since 1970: later transactions
            of the writer contain no earlier events. The server makes watermarks of such times.
        :param writer_id: the writer that the time is noted for. The default is one for all transactions of
            the client. Give writers that run at the same time ids of their own, and keep the id of one that
            continues in another process.
        :raises InvalidArgumentError: ``timestamp`` is out of bounds, or a controller makes no watermarks of
            the stream (:meth:`EventWriter.note_time`). The commit was not sent.
        :raises TransactionAbortedError: the transaction was aborted or its lease expired. None of its events
            is visible.
        :raises TransactionNotOpenError: this object was closed, or tried to abort, before everything that was
            written through it was stored. The commit was not sent.
        """
        _check_noted(timestamp, writer_id)
        if timestamp is not None:
            check_takes_times(self.stream, (each.high for each in self.segments))
        if self._open:
            await self.flush()
        elif self._incomplete:
            why = await explain(self._core, self.stream, self.txn_id, "committed")
            if isinstance(why, TransactionAbortedError | TransactionUnknownError):
                raise why
            raise self._not_open(
                None, "cannot be committed: it was closed before all events written to it were stored"
            )
        self._committing = True
        try:
            await self._commit(timestamp, writer_id)
        except (TransactionError, InvalidArgumentError, AuthError):
            # The controller has refused, or was not asked.
            self._committing = False
            raise
        self._finish()
        self._committing = False

    @limited("committing transaction {self.txn_id} on {self.stream}")
    async def _commit(self, timestamp: int | None, writer_id: UUID | None) -> None:
        await _commit(self._core, self.stream, self.txn_id, timestamp, writer_id)

    @limited("aborting transaction {self.txn_id} on {self.stream}")
    async def abort(self) -> None:
        """Discard the events. Does nothing if the transaction is already aborted.

        If this call is cancelled, the transaction may still be aborted. If it is not, the server aborts it
        when its lease expires.

        :raises TransactionNotOpenError: the transaction is committed.
        """
        self._finish()
        await abort_transaction(self._core, self.stream, self.txn_id)

    @limited("fetching the status of transaction {self.txn_id} on {self.stream}")
    async def status(self) -> TxnStatus:
        """Return the present state of the transaction."""
        return await self._core.controller.check_transaction_state(
            self.stream.scope, self.stream.name, self.txn_id
        )

    async def wait_committed(self) -> None:
        """Wait until readers see the events.

        If this call is cancelled, that has no effect on the transaction. You can wait again.

        :raises TransactionAbortedError: the transaction was aborted.
        :raises TransactionUnknownError: the controller has no record of it.
        :raises TransactionError: the transaction is open: it was not committed.
        :raises PravegaTimeoutError: it is still COMMITTING after ``operation_timeout`` seconds. You can wait
            again.
        """
        await wait_committed(self._core, self.stream, self.txn_id)

    async def aclose(self) -> None:
        """Stop writing and renewing the lease. Another process may resume the transaction."""
        self._finish()
        await trio.lowlevel.checkpoint()

    async def __aenter__(self) -> Self:
        # No checkpoint: a cancellation would leave it open, with its lease renewed until the client closes.
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._committing:
            # The commit may have been recorded. An abort could conflict with it, so leave it to the server.
            self._finish()
        elif self._open:
            doing = (
                f"aborting transaction {self.txn_id} on {self.stream} on leaving its block (otherwise its "
                f"lease of {self.lease:g} s ends it)"
            )
            reason: object = NO_TIME
            try:
                aborted = await self._core.leaving.run(self.abort, doing, hurried=is_hurried(error))
            except PravegaError as failure:
                if error is None:
                    raise
                # The exception that ended the block is the one that its caller should see.
                aborted, reason = False, failure
            if not aborted:
                log.warning(
                    "transaction %s on %s was not aborted on leaving its block; its lease of %g s ends it: "
                    "%s", self.txn_id, self.stream, self.lease, reason,
                )  # fmt: skip
            if error is None:
                await trio.lowlevel.checkpoint()


class _ValueTransaction(Transaction[Value]):
    """A transaction with a serializer."""

    _to_bytes: Callable[[Value], bytes]

    async def write_event(self, event: Value, routing_key: str | None = None) -> Ack:
        """See :class:`Transaction`."""
        return await super().write_event(self._to_bytes(event), routing_key)  # type: ignore[arg-type]

    async def write_events(
        self, events: Iterable[Value], routing_keys: Iterable[str | None] | str | None = None
    ) -> Ack:
        """See :class:`Transaction`."""
        name = f"transaction {self.txn_id} on {self.stream}"
        payloads: Any = serialized(events, routing_keys, self._to_bytes, name)
        return await super().write_events(payloads, routing_keys)


def open_transaction(
    core: ClientCore,
    stream: ScopedStream,
    txn_id: UUID,
    segments: Sequence[SegmentWithRange],
    lease: float,
    to_bytes: Callable[[Any], bytes] | None,
) -> Transaction[Any]:
    """A transaction that was begun.

    :param to_bytes: makes payloads of the values to write; None: they are payloads.
    """
    if to_bytes is None:
        return Transaction(core, stream, txn_id, segments, lease)
    transaction: _ValueTransaction[Any] = _ValueTransaction(core, stream, txn_id, segments, lease)
    transaction._to_bytes = to_bytes
    return transaction


def _named(kind: type[TransactionError], stream: ScopedStream, txn_id: UUID, what: str) -> TransactionError:
    return kind(
        f"transaction {txn_id} on {stream} {what}",
        scope=stream.scope,
        stream=stream.name,
        transaction=txn_id,
    )


async def explain(core: ClientCore, stream: ScopedStream, txn_id: UUID, wanted: str) -> TransactionError:
    """The reason why the controller refused a request about a transaction, as an error.

    :param wanted: the refused operation, as a participle for the message.
    """
    status = await core.controller.check_transaction_state(stream.scope, stream.name, txn_id)
    return explanation(stream, txn_id, status, wanted)


def explanation(stream: ScopedStream, txn_id: UUID, status: TxnStatus, wanted: str) -> TransactionError:
    """The reason why something cannot be done with a transaction that was found in this state.

    :param wanted: as for :func:`explain`, which would ask again: by then another process may have committed
        it.
    """
    if status is TxnStatus.UNKNOWN:
        return _named(
            TransactionUnknownError, stream, txn_id, f"is not known to the controller: it cannot be {wanted}"
        )
    if status is TxnStatus.OPEN:
        return _named(TransactionError, stream, txn_id, f"is open: it cannot be {wanted}")
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


def _check_noted(timestamp: int | None, writer_id: UUID | None) -> None:
    """Check the time to note with a commit, and the writer that it is noted for."""
    if timestamp is not None:
        check_event_time(timestamp)
    if writer_id is not None:
        check_uuid("writer_id", writer_id)


async def commit_transaction(
    core: ClientCore,
    stream: ScopedStream,
    txn_id: UUID,
    timestamp: int | None = None,
    writer_id: UUID | None = None,
) -> None:
    """Commit a transaction by its id. Does nothing if it is already committing or committed."""
    _check_noted(timestamp, writer_id)
    if timestamp is not None:
        active = await core.controller.get_current_segments(stream.scope, stream.name)
        check_takes_times(stream, (each.high for each in active))
    await _commit(core, stream, txn_id, timestamp, writer_id)


async def _commit(
    core: ClientCore, stream: ScopedStream, txn_id: UUID, timestamp: int | None, writer_id: UUID | None
) -> None:
    # The controller ignores a time without a writer.
    writer = "" if timestamp is None else str(writer_id or core.committer)
    done = await core.controller.commit_transaction(
        stream.scope, stream.name, txn_id, writer_id=writer, timestamp=timestamp
    )
    if not done:
        raise await explain(core, stream, txn_id, "committed")


async def abort_transaction(core: ClientCore, stream: ScopedStream, txn_id: UUID) -> None:
    """Abort a transaction by its id. Does nothing if it is already aborting or aborted."""
    done = await core.controller.abort_transaction(stream.scope, stream.name, txn_id)
    if not done:
        raise await explain(core, stream, txn_id, "aborted")


async def wait_committed(core: ClientCore, stream: ScopedStream, txn_id: UUID) -> None:
    """Wait until a committing transaction is committed.

    If a commit coincides with an abort, a 0.13.0 controller may leave the transaction COMMITTING. Repeating
    the commit sometimes releases it, and is harmless otherwise.

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
                raise explanation(stream, txn_id, status, "waited for")
            asked = True
            waited = trio.current_time() - started
            if waited >= commit_again:
                between = min(between * 2, _COMMIT_AGAIN_LONGEST)
                commit_again = waited + between
                try:
                    await core.controller.commit_transaction(stream.scope, stream.name, txn_id)
                except PravegaError:
                    # The credentials may not allow a commit, or the transaction may have just ended. The
                    # next status request shows which.
                    pass
            # The controller has no request that waits, so this polls with growing pauses.
            await trio.sleep(pause)
            pause = min(1.0, pause * _PAUSE_GROWTH)
    raise PravegaTimeoutError(
        f"transaction {txn_id} on {stream} is still committing after {limit:g} s. Repeating the commit did "
        "not help, and its events may never become visible"
        if asked
        else f"transaction {txn_id} on {stream}: the controller did not report within {limit:g} s whether it "
        "is committed",
        scope=stream.scope,
        stream=stream.name,
        transaction=txn_id,
    )
