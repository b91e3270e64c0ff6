"""The ledger on a revisioned stream: read it, append to it on a condition, keep it short."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from pravega_wire import ScopedStream
from pravega_wire.errors import (
    FencedError,
    InvalidArgumentError,
    PravegaTimeoutError,
    SegmentTruncatedError,
    StreamNotFoundError,
)
from pravega_wire.sync import PravegaClient, RevisionedStream
from spark_adapter.ledger import (
    Done,
    Forget,
    LedgerState,
    Prepared,
    Preparing,
    Record,
    SinkKey,
    SinkState,
    decode_record,
    encode_record,
    is_unnamed,
)

__all__ = ["Journal", "Revisioned", "open_ledger"]


_SNAPSHOT_BYTES = 1 << 20
"""Of one record of a snapshot; an event has at most 8 MiB."""


class Revisioned(Protocol):
    """What is needed of ``pravega_wire.sync``'s revisioned stream client (values are bytes)."""

    def fetch_latest_revision(self) -> Any: ...

    def fetch_oldest_revision(self) -> Any: ...

    def read_from(self, revision: Any, /) -> Iterable[tuple[Any, bytes]]: ...

    def write_conditionally(self, revision: Any, value: bytes, /) -> Any: ...

    def write_unconditionally(self, value: bytes, /) -> object: ...

    def truncate_to(self, revision: Any, /) -> object: ...

    def wait_beyond(self, revision: Any, /, *, timeout: float) -> object: ...


def open_ledger(
    client: PravegaClient, ledger: ScopedStream, key: SinkKey, batch: int, *, new_ledger: bool, say: str
) -> RevisionedStream[bytes]:
    """The ledger's revisioned stream, made if it does not exist and ``batch`` of ``key`` may be its first.

    :param say: what a user writes who means a new ledger.
    :raises InvalidArgumentError: it does not exist, but earlier batches should be in it.
    """
    try:
        return client.revisioned_stream(ledger)
    except StreamNotFoundError as error:
        if batch > 0 and not new_ledger:
            raise InvalidArgumentError(
                f"ledger {ledger} does not exist, and batch {batch} of {key} is not the first: if the "
                "ledger's name is mistyped or it was deleted, the batch may be in the stream already. If "
                f"this is meant to be a new ledger, say {say}"
            ) from error
    client.create_stream(ledger, 1)
    return client.revisioned_stream(ledger)


class Journal:
    """One driver's view of the ledger: the state up to a revision, and appends at that revision.

    :param revisioned: the ledger's revisioned stream.
    :param key: the query this driver runs, and where its batches go.
    :param name: of the ledger, for messages.
    :param compact_after: records after which the ledger is replaced by a snapshot. Other queries and sinks
        may share the ledger: their state is in the snapshot too.
    """

    def __init__(
        self, revisioned: Revisioned, key: SinkKey, *, name: str = "", compact_after: int = 1000
    ) -> None:
        self.key = key
        self.name = name
        self._revisioned = revisioned
        self._compact_after = compact_after
        self._state = LedgerState()
        self._revision: Any = None

    @property
    def state(self) -> LedgerState:
        """What the ledger says of every sink, as last read."""
        return self._state

    @property
    def sink_state(self) -> SinkState:
        """What the ledger says of this driver's sink, as last read."""
        return self._state.sink(self.key)

    @property
    def owner(self) -> tuple[object, ...]:
        """The part of the sink's state that only its driver changes (attempts change the rest)."""
        state = self.sink_state
        claim = state.claim
        held = None if claim is None else (claim.txn, claim.prepared is not None)
        return state.last_done, state.last_txn, held

    def refresh(self) -> list[Record]:
        """Read what was appended since the last read; returns the new records in order.

        When another driver compacted the ledger meanwhile, everything left in it is read again.
        """
        if self._revision is not None:
            try:
                return self._read_from(self._revision)
            except SegmentTruncatedError:
                self._revision = None
        while True:
            self._state = LedgerState()
            try:
                return self._read_from(self._revisioned.fetch_oldest_revision())
            except SegmentTruncatedError:
                continue  # compacted between the two calls: there is a newer oldest revision

    def _read_from(self, revision: Any) -> list[Record]:
        records = []
        for after, data in self._revisioned.read_from(revision):
            records.append(decode_record(data))
            revision = after
        if records:
            self._state = self._state.after(*records)
        self._revision = revision
        return records

    def wait_for_news(self, seconds: float) -> bool:
        """Wait until something is appended after what was read; False if nothing came in that time."""
        if seconds <= 0:
            return False
        try:
            self._revisioned.wait_beyond(self._revision, timeout=seconds)
        except PravegaTimeoutError:
            return False
        return True

    def append(self, record: Preparing | Prepared | Done, before: Callable[[], Done] | None = None) -> bool:
        """Append a record of this driver's sink, unless another driver works on that sink.

        Records of other sinks, and what task attempts register, get between without harm: the
        append is tried again behind them.

        A DONE of a job without a name that was swept meanwhile is not needed any more.

        :param before: called before each try, so that what it does covers every earlier record; it gives the
            record to append instead.
        :returns: False if another driver had appended the same fact (DONE of the same transaction).
        :raises FencedError: another driver appended a record of the same sink since the last read;
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
                # by this very append, of which only the answer was lost, or by another driver's
                return not (isinstance(record, Done) and self.sink_state.last_session != record.session)
            if isinstance(record, Done) and is_unnamed(self.key.query) and self.sink_state.is_blank:
                return True
            if self.owner != owner:
                claim = self.sink_state.claim
                other = "another driver" if claim is None else f"driver {claim.session}"
                raise FencedError(
                    f"{self.key}: {other} took over while this one was about to record "
                    f"{type(record).__name__.upper()} for batch {record.batch}",
                    transaction=record.txn,
                )

    def offer(self, record: Preparing) -> bool:
        """Append a claim if nothing came since the last read; tried once.

        False says that something came, or that the answer was lost: read again, and the state tells.
        """
        expected = self._state.after(record)
        revision = self._revisioned.write_conditionally(self._revision, encode_record(record))
        if revision is None:
            return False
        self._state, self._revision = expected, revision
        return True

    def write(self, record: Forget) -> None:
        """Append a record that holds whatever came before; the next read finds it."""
        self._revisioned.write_unconditionally(encode_record(record))

    def _holds(self, record: Preparing | Prepared | Done) -> bool:
        state = self.sink_state
        if isinstance(record, Done):
            return state.last_txn == record.txn
        if state.claim is None or state.claim.txn != record.txn:
            return False
        return isinstance(record, Preparing) or state.claim.prepared is not None

    def compact(self) -> bool:
        """Replace the ledger by one snapshot if it has grown enough; returns whether it did.

        The snapshot is appended on condition that nothing came after what it sums up; if something
        did, nothing happens and a later call tries again. So is each further record of a large one: a
        snapshot that has something in between is not complete, and says nothing.
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
        # a driver that stops here leaves a longer ledger, which is still right
        self._revisioned.truncate_to(at)
        return True
