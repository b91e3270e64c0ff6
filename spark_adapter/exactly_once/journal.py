"""Reads the ledger from a revisioned stream, appends to it conditionally, and compacts it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol
from uuid import UUID

from pravega_wire import Revision, ScopedStream
from pravega_wire.errors import (
    CorruptedStateError,
    FencedError,
    InvalidArgumentError,
    NoSuchSegmentError,
    NotFoundError,
    PravegaTimeoutError,
    ScopeNotFoundError,
    SegmentTruncatedError,
    StreamNotFoundError,
)
from pravega_wire.sync import PravegaClient, RevisionedStream
from spark_adapter.exactly_once.ledger import (
    Done,
    Forget,
    LedgerState,
    Prepared,
    Preparing,
    Record,
    SinkKey,
    SinkState,
    Snapshot,
    Staging,
    decode_record,
    encode_record,
    is_unnamed,
)

__all__ = ["Journal", "Revisioned", "is_open_since", "open_ledger"]


_SNAPSHOT_BYTES = 1 << 20
"""The largest size of one record of a snapshot; an event has at most 8 MiB."""


class Revisioned(Protocol):
    """The part of ``pravega_wire.sync``'s revisioned stream client that is used here (values are bytes)."""

    def latest_revision(self) -> Any: ...

    def oldest_revision(self) -> Any: ...

    def read_from(self, revision: Any, /) -> Iterable[tuple[Any, bytes]]: ...

    def write_conditionally(self, revision: Any, value: bytes, /) -> Any: ...

    def write_unconditionally(self, value: bytes, /) -> object: ...

    def truncate_to(self, revision: Any, /) -> object: ...

    def wait_beyond(self, revision: Any, /, *, timeout: float) -> object: ...


def open_ledger(
    client: PravegaClient, ledger: ScopedStream, key: SinkKey, batch: int, *, new_ledger: bool
) -> RevisionedStream[bytes]:
    """Open the ledger's revisioned stream; create it if it does not exist and ``batch`` may be its first.

    :param client: the client to use.
    :param ledger: the ledger stream.
    :param key: query, stream and sink name.
    :param batch: number of the batch.
    :param new_ledger: whether to create the ledger for a batch above 0 too.
    :raises InvalidArgumentError: the ledger is sealed; or it does not exist, but should contain earlier
        batches.
    :raises ScopeNotFoundError: the ledger's scope does not exist.
    """
    try:
        return client.revisioned_stream(ledger)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(
            f"the ledger of {key} cannot be {ledger}: {error}; correct ledger_stream"
        ) from error
    except StreamNotFoundError as error:
        if batch > 0 and not new_ledger and not client.stream_exists(ledger):
            raise InvalidArgumentError(
                f"ledger {ledger} does not exist, but batch {batch} of {key} is not the first: if the "
                "ledger's name is mistyped or it was deleted, the batch may already be in the stream. To "
                "use a new ledger, set new_ledger=True"
            ) from error
    # Another task of the batch may be creating it at this moment: then this returns when it is there.
    try:
        client.create_stream(ledger, 1)
    except ScopeNotFoundError as error:
        raise ScopeNotFoundError(
            f"ledger {ledger} of {key} cannot be created, because scope {ledger.scope} does not exist: "
            "correct ledger_stream, or create the scope",
            scope=ledger.scope,
        ) from error
    try:
        return client.revisioned_stream(ledger)
    except StreamNotFoundError as error:
        raise InvalidArgumentError(
            f"ledger {ledger} is sealed, so batch {batch} of {key} cannot be recorded: use another "
            f"ledger_stream. If batch {batch} is not the first, check first whether {key.stream} already has "
            f"its rows (the sealed ledger can still be read), and set new_ledger=True"
        ) from error


def is_open_since(revisioned: Revisioned, since: Any, key: SinkKey, txn_id: UUID) -> bool:
    """Return whether a claim is still open: neither PREPARED nor void.

    Only the records after ``since`` are read, because each task asks this.

    :param revisioned: the ledger's revisioned stream.
    :param since: a revision at which the claim was open.
    :param key: query, stream and sink name of the claim.
    :param txn_id: id of its transaction.
    """
    try:
        records = [decode_record(data) for _, data in revisioned.read_from(since)]
    except SegmentTruncatedError:
        journal = Journal(revisioned, key)
        journal.refresh()
        claim = journal.sink_state.claim
        return claim is not None and claim.txn == txn_id and claim.prepared is None
    return all(isinstance(each, Staging | Snapshot) or each.key != key for each in records)


class Journal:
    """One driver's view of the ledger: the state up to a revision, and appends at that revision.

    :param revisioned: the ledger's revisioned stream.
    :param key: the driver's query, and the stream and sink that it writes to.
    :param name: name of the ledger, for messages.
    :param compact_after: number of records after which a snapshot replaces them. Other queries and sinks may
        share the ledger: the snapshot contains their state too.
    :ivar reopen: opens the ledger again if the next :meth:`refresh` finds that it was deleted; None if that
        is an error. Set it on a journal that was kept: the ledger may have been deleted in the meantime.
    """

    def __init__(
        self, revisioned: Revisioned, key: SinkKey, *, name: str = "", compact_after: int = 1000
    ) -> None:
        self.key = key
        self.name = name
        self.reopen: Callable[[], Revisioned] | None = None
        self._revisioned = revisioned
        self._compact_after = compact_after
        self._state = LedgerState()
        self._revision: Any = None

    @property
    def state(self) -> LedgerState:
        """The state of all sinks in the ledger, as last read."""
        return self._state

    @property
    def sink_state(self) -> SinkState:
        """The state of this driver's sink in the ledger, as last read."""
        return self._state.sink(self.key)

    @property
    def revision(self) -> Any:
        """The revision up to which the ledger was last read; None if it was not."""
        return self._revision

    @property
    def owner(self) -> tuple[object, ...]:
        """The part of the sink's state that only its driver changes; task attempts change the rest."""
        state = self.sink_state
        claim = state.claim
        held = None if claim is None else (claim.txn, claim.prepared is not None)
        return state.last_done, state.last_txn, held

    def refresh(self) -> list[Record]:
        """Read the records appended since the last read, and return them in order.

        If another driver has compacted the ledger since, everything in it is read again.
        """
        reopen, self.reopen = self.reopen, None
        if self._revision is not None:
            try:
                return self._read_from(self._revision)
            except SegmentTruncatedError:
                self._revision = None
            except (NoSuchSegmentError, NotFoundError):
                if reopen is None:
                    raise
                self._revisioned, self._revision = reopen(), None
        while True:
            self._state = LedgerState()
            try:
                return self._read_from(self._revisioned.oldest_revision())
            except SegmentTruncatedError:
                continue  # it was compacted between the two calls, so there is a newer oldest revision

    def _read_from(self, revision: Any) -> list[Record]:
        records = []
        try:
            for after, data in self._revisioned.read_from(revision):
                records.append(decode_record(data))
                revision = after
            if records:
                self._state = self._state.after(*records)
        except CorruptedStateError as error:
            # The record does not know where it was read.
            raise CorruptedStateError(
                f"ledger {self.name or '(without a name)'}, after {_shown(revision)}: {error}. "
                "If this stream is not a ledger, correct ledger_stream",
                transaction=error.transaction,
            ) from error
        self._revision = revision
        return records

    def wait_for_news(self, seconds: float) -> bool:
        """Wait until a record is appended after the last one read; return False if none was in that time."""
        if seconds <= 0:
            return False
        try:
            self._revisioned.wait_beyond(self._revision, timeout=seconds)
        except PravegaTimeoutError:
            return False
        return True

    def append(self, record: Preparing | Prepared | Done, before: Callable[[], Done] | None = None) -> bool:
        """Append a record of this driver's sink, unless another driver is working on that sink.

        If records of other sinks or registrations of task attempts were appended first, the append is retried
        after them. DONE of a job without a name whose records have been removed is no longer needed, and is
        not appended.

        :param record: the record.
        :param before: called before each attempt, so that its work covers every earlier record; it returns
            the record to append instead.
        :returns: False if another driver has already appended the same fact (DONE of the same transaction).
        :raises FencedError: another driver has appended a record of the same sink since the last read;
            nothing was appended.
        """
        while True:
            if before is not None:
                record = before()
            expected = self._state.after(record)
            revision = self._revisioned.write_conditionally(self._revision, encode_record(record))
            if revision is not None:
                self._state, self._revision = expected, revision
                return True
            owner = self.owner
            self.refresh()
            if self._holds(record):
                # It was appended by this call, whose reply was lost, or by another driver.
                return not (isinstance(record, Done) and self.sink_state.last_session != record.session)
            if isinstance(record, Done) and is_unnamed(self.key.query) and self.sink_state.is_blank:
                return True
            if self.owner != owner:
                claim = self.sink_state.claim
                other = "another driver" if claim is None else f"driver {claim.session}"
                raise FencedError(
                    f"{self.key}: {other} took over before this driver could record "
                    f"{type(record).__name__.upper()} for batch {record.batch}, so this one must stop",
                    transaction=record.txn,
                )

    def offer(self, record: Preparing) -> bool:
        """Append a claim if nothing was appended since the last read; attempted once.

        :returns: False if something was appended, or the reply was lost. Read again: the state then shows the
            result.
        """
        expected = self._state.after(record)
        revision = self._revisioned.write_conditionally(self._revision, encode_record(record))
        if revision is None:
            return False
        self._state, self._revision = expected, revision
        return True

    def write(self, record: Forget) -> None:
        """Append a record unconditionally; the next read returns it."""
        self._revisioned.write_unconditionally(encode_record(record))

    def _holds(self, record: Preparing | Prepared | Done) -> bool:
        state = self.sink_state
        if isinstance(record, Done):
            return state.last_txn == record.txn
        if state.claim is None or state.claim.txn != record.txn:
            return False
        return isinstance(record, Preparing) or state.claim.prepared is not None

    def compact(self) -> bool:
        """Replace the ledger's records with a snapshot if there are enough of them.

        Return True if they were replaced.

        The snapshot is appended on condition that nothing was appended after the state that it contains;
        otherwise nothing happens, and a later call tries again. The same condition holds for each further
        record of a large snapshot: one with other records in between is incomplete, and is ignored.
        """
        if self._state.records < self._compact_after:
            return False
        at = self._revision
        parts, revision = self._state.snapshot(_SNAPSHOT_BYTES), at
        for part in parts:
            revision = self._revisioned.write_conditionally(revision, encode_record(part))
            if revision is None:
                return False
        self._state, self._revision = self._state.after(*parts), revision
        # If the driver stops here, the ledger is longer than necessary, but still correct.
        self._revisioned.truncate_to(at)
        return True


def _shown(revision: Any) -> str:
    return str(revision.to_text()) if isinstance(revision, Revision) else str(revision)
