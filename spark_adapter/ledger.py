"""The exactly-once ledger: its records, the state they add up to, and what to do next.

Nothing here does I/O. A ledger is a revisioned stream; each record is one event, JSON in UTF-8 with
sorted keys, one object per record:

``{"v": 1, "phase": ..., "id": ..., "query": ..., "batch": ..., "txn": ..., "session": ...}``

==========  ======================================================================================
phase       meaning, and its further fields
==========  ======================================================================================
PREPARING   a driver (``session``) claims ``batch`` of ``query`` with the open transaction ``txn``;
            every earlier claim of the query that is not DONE is void from here on. ``checkpoint``:
            the engine's own id of the query, or null
STAGING     a task attempt is about to create staging segments named by ``staging``
PREPARED    ``txn`` holds the whole batch and may be committed: the point of no return. ``rows``,
            ``checksum`` (sum of the events' 64-bit BLAKE2b, modulo 2**64), ``cut`` (the tail of the
            stream before the commit, as text), ``winners`` (staging ids that were merged) and
            ``timestamp`` (event time of the batch in ms, or null)
DONE        ``txn`` is committed and nothing of the batch is left behind. ``rows``
SNAPSHOT    ``queries``: the whole state, so that everything before it can be truncated
==========  ======================================================================================

Ids of transactions, staging segments, sessions and records are UUIDs as 32 hexadecimal digits. A
reader refuses a higher ``v`` and ignores fields it does not know.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from hashlib import blake2b
from typing import Any, TypeAlias, assert_never
from uuid import UUID, uuid4

from pravega_wire.errors import CorruptedStateError, InvalidArgumentError

__all__ = [
    "AlreadyDone",
    "Claim",
    "Decision",
    "Done",
    "LedgerState",
    "Prepared",
    "Preparing",
    "QueryState",
    "Record",
    "Resume",
    "Snapshot",
    "Staging",
    "TxnOutcome",
    "WriteBatch",
    "decide",
    "decode_record",
    "encode_record",
    "event_checksum",
    "staging_id",
]

FORMAT_VERSION = 1
CHECKSUM_MODULUS = 1 << 64


def event_checksum(events: Iterable[bytes]) -> int:
    """Order-independent checksum of events: the sum of 64-bit BLAKE2b hashes modulo 2**64."""
    total = 0
    for event in events:
        total += int.from_bytes(blake2b(event, digest_size=8).digest(), "big")
    return total % CHECKSUM_MODULUS


def staging_id(query: str, batch: int, txn: UUID, partition: int, attempt: int) -> UUID:
    """Id of the staging segments of one task attempt, derived from what makes it unique.

    :param partition: index of the partition in the batch. :param attempt: the engine's id of the
        attempt, unique in one run of the driver (transactions are not shared between runs).
    """
    text = f"{query}\0{batch}\0{txn.hex}\0{partition}\0{attempt}"
    return UUID(bytes=blake2b(text.encode(), digest_size=16, person=b"pravega-staging").digest())


# --- records --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _BatchRecord:
    query: str
    batch: int
    txn: UUID
    session: UUID
    id: UUID = field(default_factory=uuid4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparing(_BatchRecord):
    """A driver claims a batch; see the module text."""

    checkpoint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Staging(_BatchRecord):
    """A task attempt is about to create staging segments; see the module text."""

    staging: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared(_BatchRecord):
    """The point of no return; see the module text."""

    rows: int
    checksum: int
    cut: str
    winners: tuple[UUID, ...] = ()
    timestamp: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Done(_BatchRecord):
    """The batch is committed and tidied up; see the module text."""

    rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state of all queries; see the module text."""

    queries: Mapping[str, QueryState]
    id: UUID = field(default_factory=uuid4)


Record: TypeAlias = Preparing | Staging | Prepared | Done | Snapshot


# --- state ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Claim:
    """A batch that somebody began and that is not DONE.

    :ivar staging: ids registered by task attempts so far. :ivar prepared: the PREPARED record.
    """

    batch: int
    txn: UUID
    session: UUID
    staging: frozenset[UUID] = frozenset()
    prepared: Prepared | None = None


@dataclass(frozen=True, slots=True)
class QueryState:
    """What the ledger says of one query.

    :ivar last_done: highest batch that is DONE, or None. :ivar last_txn: its transaction.
    :ivar last_session: the driver that recorded it as DONE.
    :ivar claim: the current claim, or None.
    :ivar leftovers: staging ids by transaction that may still exist and belong to nothing any more;
        the transactions of void claims are keys even when nothing was staged.
    :ivar checkpoint: the engine's own id of the query in the last claim that had one.
    """

    last_done: int | None = None
    last_txn: UUID | None = None
    last_session: UUID | None = None
    claim: Claim | None = None
    leftovers: Mapping[UUID, frozenset[UUID]] = field(default_factory=dict)
    checkpoint: str | None = None

    def _left(self, txn: UUID, ids: frozenset[UUID]) -> dict[UUID, frozenset[UUID]]:
        return {**self.leftovers, txn: self.leftovers.get(txn, frozenset()) | ids}

    def after(self, record: Preparing | Staging | Prepared | Done) -> QueryState:
        """The state once ``record`` is appended.

        :raises CorruptedStateError: no correct driver appends that record in this state.
        """
        claim = self.claim
        match record:
            case Preparing():
                if self.last_done is not None and record.batch <= self.last_done:
                    raise _corrupt(record, f"batch {self.last_done} is DONE already")
                leftovers = self.leftovers
                if claim is not None:
                    leftovers = self._left(claim.txn, claim.staging)
                return replace(
                    self,
                    claim=Claim(record.batch, record.txn, record.session),
                    leftovers=leftovers,
                    checkpoint=record.checkpoint or self.checkpoint,
                )
            case Staging():
                if claim is not None and claim.txn == record.txn and claim.prepared is None:
                    grown = replace(claim, staging=claim.staging | {record.staging})
                    return replace(self, claim=grown)
                # an attempt that outlived its batch, or started when the winners were merged
                return replace(self, leftovers=self._left(record.txn, frozenset({record.staging})))
            case Prepared():
                if claim is None or claim.txn != record.txn or claim.prepared is not None:
                    raise _corrupt(record, "its transaction holds no open claim")
                return replace(self, claim=replace(claim, prepared=record))
            case Done():
                if claim is None or claim.txn != record.txn or claim.prepared is None:
                    raise _corrupt(record, "its transaction is not PREPARED")
                return replace(
                    self,
                    last_done=record.batch,
                    last_txn=record.txn,
                    last_session=record.session,
                    claim=None,
                    leftovers={},
                )
        assert_never(record)


def _corrupt(record: _BatchRecord, why: str) -> CorruptedStateError:
    name = type(record).__name__.upper()
    return CorruptedStateError(
        f"ledger: {name} for batch {record.batch} of query {record.query!r} makes no sense: {why}",
        transaction=record.txn,
    )


@dataclass(frozen=True, slots=True)
class LedgerState:
    """What all records together say.

    :ivar queries: state by query. :ivar records: records since the last SNAPSHOT (or the start).
    """

    queries: Mapping[str, QueryState] = field(default_factory=dict)
    records: int = 0

    def query(self, name: str) -> QueryState:
        """State of one query; an empty one if the ledger does not know it."""
        return self.queries.get(name, QueryState())

    def after(self, record: Record) -> LedgerState:
        """The state once ``record`` is appended (:class:`CorruptedStateError` if it cannot be)."""
        if isinstance(record, Snapshot):
            return LedgerState(dict(record.queries), 0)
        changed = self.query(record.query).after(record)
        return LedgerState({**self.queries, record.query: changed}, self.records + 1)


# --- what to do next ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AlreadyDone:
    """The batch is committed: write nothing.

    :ivar last_done: the query's highest batch; above the one asked for if the engine's own
        checkpoint is older than the ledger.
    """

    last_done: int


@dataclass(frozen=True, slots=True)
class Resume:
    """The batch is PREPARED: its transaction's status decides (:class:`TxnOutcome`)."""

    prepared: Prepared
    claim: Claim


@dataclass(frozen=True, slots=True)
class WriteBatch:
    """Nothing of the batch is or ever will be visible: write it."""


Decision: TypeAlias = AlreadyDone | Resume | WriteBatch


def decide(state: QueryState, batch: int, checkpoint: str | None = None) -> Decision:
    """What a driver that was asked for ``batch`` has to do.

    :param checkpoint: the engine's own id of the query, if it has one.
    :raises InvalidArgumentError: the ledger knows the query from another checkpoint: its batch
        numbers mean other data.
    :raises CorruptedStateError: another batch of the query was prepared and never finished.
    """
    if None not in (checkpoint, state.checkpoint) and checkpoint != state.checkpoint:
        raise InvalidArgumentError(
            f"the ledger knows this query from checkpoint {state.checkpoint}, not {checkpoint}: "
            "batch numbers of two checkpoints mean different data; give the query a new name"
        )
    if state.last_done is not None and batch <= state.last_done:
        return AlreadyDone(state.last_done)
    claim = state.claim
    if claim is None or claim.prepared is None:
        return WriteBatch()
    if claim.batch == batch:
        return Resume(claim.prepared, claim)
    raise CorruptedStateError(
        f"batch {claim.batch} is PREPARED and not DONE, but batch {batch} was asked for",
        transaction=claim.txn,
    )


class TxnOutcome(Enum):
    """What the status of a PREPARED batch's transaction means."""

    COMMIT = auto()
    """It is open: commit it (again)."""
    WAIT = auto()
    """It is committing or committed: wait until it is visible."""
    REWRITE = auto()
    """It is aborting or aborted: nothing of it will be visible, write the batch again."""
    EVIDENCE = auto()
    """The server does not know it any more: the stream itself must tell."""

    @classmethod
    def of(cls, status_name: str) -> TxnOutcome:
        """The outcome for a transaction status, by its name (``OPEN``, ``COMMITTED``, ...)."""
        try:
            return _OUTCOMES[status_name]
        except KeyError:
            raise CorruptedStateError(f"unknown transaction status {status_name!r}") from None


_OUTCOMES = {
    "OPEN": TxnOutcome.COMMIT,
    "COMMITTING": TxnOutcome.WAIT,
    "COMMITTED": TxnOutcome.WAIT,
    "ABORTING": TxnOutcome.REWRITE,
    "ABORTED": TxnOutcome.REWRITE,
    "UNKNOWN": TxnOutcome.EVIDENCE,
}


# --- bytes ----------------------------------------------------------------------------------------

_PHASES: dict[str, type[Preparing | Staging | Prepared | Done]] = {
    "PREPARING": Preparing,
    "STAGING": Staging,
    "PREPARED": Prepared,
    "DONE": Done,
}


def encode_record(record: Record) -> bytes:
    """One record as the bytes of a ledger event."""
    body: dict[str, Any] = {"v": FORMAT_VERSION, "id": record.id.hex}
    match record:
        case Snapshot():
            body["phase"] = "SNAPSHOT"
            body["queries"] = {name: _dump_query(q) for name, q in record.queries.items()}
        case Preparing() | Staging() | Prepared() | Done():
            body |= {
                "phase": type(record).__name__.upper(),
                "query": record.query,
                "batch": record.batch,
                "txn": record.txn.hex,
                "session": record.session.hex,
            }
            match record:
                case Preparing():
                    body["checkpoint"] = record.checkpoint
                case Staging():
                    body["staging"] = record.staging.hex
                case Prepared():
                    body |= {
                        "rows": record.rows,
                        "checksum": record.checksum,
                        "cut": record.cut,
                        "winners": [each.hex for each in record.winners],
                        "timestamp": record.timestamp,
                    }
                case Done():
                    body["rows"] = record.rows
        case _:
            assert_never(record)
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()


def decode_record(data: bytes) -> Record:
    """The record in a ledger event.

    :raises CorruptedStateError: the bytes are no record of this format, or of a newer version.
    """
    try:
        body = json.loads(data)
        version = body["v"]
        if version != FORMAT_VERSION:
            raise CorruptedStateError(
                f"ledger record of version {version!r}; this program reads {FORMAT_VERSION}"
            )
        return _load(body)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptedStateError(
            f"not a ledger record: {data[:80]!r} ({type(error).__name__}: {error})"
        ) from error


def _load(body: Mapping[str, Any]) -> Record:
    phase = body["phase"]
    record_id = UUID(hex=body["id"])
    if phase == "SNAPSHOT":
        queries = {str(name): _load_query(name, q) for name, q in body["queries"].items()}
        return Snapshot(queries=queries, id=record_id)
    common: dict[str, Any] = {
        "id": record_id,
        "query": str(body["query"]),
        "batch": int(body["batch"]),
        "txn": UUID(hex=body["txn"]),
        "session": UUID(hex=body["session"]),
    }
    kind = _PHASES[phase]
    if kind is Preparing:
        return Preparing(**common, checkpoint=body["checkpoint"])
    if kind is Staging:
        return Staging(**common, staging=UUID(hex=body["staging"]))
    if kind is Prepared:
        return Prepared(
            **common,
            rows=int(body["rows"]),
            checksum=int(body["checksum"]),
            cut=str(body["cut"]),
            winners=tuple(UUID(hex=each) for each in body["winners"]),
            timestamp=None if body["timestamp"] is None else int(body["timestamp"]),
        )
    return Done(**common, rows=int(body["rows"]))


def _hexes(ids: Iterable[UUID]) -> list[str]:
    return sorted(each.hex for each in ids)


def _dump_query(state: QueryState) -> dict[str, Any]:
    claim = state.claim
    return {
        "last_done": state.last_done,
        "last_txn": None if state.last_txn is None else state.last_txn.hex,
        "last_session": None if state.last_session is None else state.last_session.hex,
        "checkpoint": state.checkpoint,
        "leftovers": {txn.hex: _hexes(ids) for txn, ids in state.leftovers.items()},
        "claim": None
        if claim is None
        else {
            "batch": claim.batch,
            "txn": claim.txn.hex,
            "session": claim.session.hex,
            "staging": _hexes(claim.staging),
            "prepared": None if claim.prepared is None else json.loads(encode_record(claim.prepared)),
        },
    }


def _load_query(name: str, body: Mapping[str, Any]) -> QueryState:
    claim: Claim | None = None
    if body["claim"] is not None:
        raw = body["claim"]
        prepared = None if raw["prepared"] is None else _load(raw["prepared"])
        if not isinstance(prepared, Prepared | None):
            raise CorruptedStateError(f"ledger snapshot: claim of query {name!r} is damaged")
        claim = Claim(
            int(raw["batch"]),
            UUID(hex=raw["txn"]),
            UUID(hex=raw["session"]),
            frozenset(UUID(hex=each) for each in raw["staging"]),
            prepared,
        )

    def optional_id(key: str) -> UUID | None:
        return None if body[key] is None else UUID(hex=body[key])

    return QueryState(
        last_done=None if body["last_done"] is None else int(body["last_done"]),
        last_txn=optional_id("last_txn"),
        last_session=optional_id("last_session"),
        claim=claim,
        leftovers={
            UUID(hex=txn): frozenset(UUID(hex=each) for each in ids) for txn, ids in body["leftovers"].items()
        },
        checkpoint=body["checkpoint"],
    )
