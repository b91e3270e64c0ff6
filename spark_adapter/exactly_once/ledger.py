"""The exactly-once ledger: its records, the state that they describe, and the next action.

Nothing here does I/O. A ledger is a revisioned stream. Each record is one event: a JSON object in UTF-8 with
sorted keys:

``{"v": 1, "phase": ..., "id": ..., "query": ..., "stream": ..., "sink": ..., "batch": ..., "txn": ...,
"session": ...}``

``query``, ``stream`` (``scope/stream``, the stream that the batch is written to) and ``sink`` (a name, or "")
are the key: each key has its own history.

==========  ======================================================================================
phase       meaning, and its further fields
==========  ======================================================================================
PREPARING   a driver (``session``) claims ``batch`` for its key with the open transaction ``txn``;
            every earlier claim of the key that is not DONE is void from here on. ``checkpoint``:
            the engine's own id of the query, or null. ``began``: time when the driver planned the write,
            in ms since 1970 by its own clock, if known. Task attempts may claim for their driver.
            ``generation``: left out if 0, see :class:`Older`
STAGING     a task attempt is about to create staging segments named by ``staging``
PREPARED    ``txn`` contains the whole batch and may be committed: the point of no return. ``rows``,
            ``contents`` (the data in each segment of ``txn``, as ``[segment id, bytes, crc32]``),
            ``cut`` (the tail of the stream before the commit, as text), ``winners`` (staging ids that
            were merged), ``timestamp`` (event time of the batch in ms, or null) and ``identity``
            (:mod:`~spark_adapter.exactly_once.identity`, or null)
DONE        ``txn`` is committed and the batch has no leftovers, unless ``tidied`` exists and is false:
            then the next batch removes them. ``rows``
FORGET      the key belongs to a job without a name that has ended: its records are no longer needed
SNAPSHOT    ``sinks``: the state of every key, so that everything before it can be truncated. A large
            snapshot has several records: ``part`` of ``parts`` (from 0), all with the same
            ``snapshot`` (an id) and with no other record in between; otherwise they are ignored
==========  ======================================================================================

Ids of transactions, staging segments, sessions and records are UUIDs, written as 32 hexadecimal digits. A
reader rejects a higher ``v`` and ignores unknown fields.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from hashlib import blake2b
from typing import Any, Literal, TypeAlias, assert_never
from uuid import UUID, uuid4

from pravega_wire.errors import CorruptedStateError, InvalidArgumentError
from spark_adapter.exactly_once.contents import Contents, dump_contents, load_contents
from spark_adapter.exactly_once.identity import Identity, difference, dump_identity, load_identity

__all__ = [
    "AlreadyDone",
    "Claim",
    "CompareRows",
    "Decision",
    "Done",
    "Forget",
    "IfForgotten",
    "LedgerState",
    "NeverHeardOf",
    "Older",
    "OnOlderCheckpoint",
    "Prepared",
    "Preparing",
    "Record",
    "Resume",
    "SinkKey",
    "SinkState",
    "Snapshot",
    "Staging",
    "TxnOutcome",
    "WriteBatch",
    "decide",
    "decode_record",
    "encode_record",
    "is_reserved",
    "is_unnamed",
    "job_query",
    "staging_id",
    "unnamed_query",
    "writer_of",
]

IfForgotten: TypeAlias = Literal["raise", "committed", "aborted"]
OnOlderCheckpoint: TypeAlias = Literal["raise", "continue_at"]

FORMAT_VERSION = 1
_KEPT_OVERTAKEN = 8


def staging_id(query: str, batch: int, txn: UUID, partition: int, attempt: int) -> UUID:
    """Return the id of the staging segments of one task attempt, derived from the values that identify it.

    :param query: name of the query.
    :param batch: number of the batch.
    :param txn: id of the transaction.
    :param partition: index of the partition in the batch.
    :param attempt: the engine's id of the attempt, unique in one run of the driver; runs do not share
        transactions.
    """
    text = f"{query}\0{batch}\0{txn.hex}\0{partition}\0{attempt}"
    return UUID(bytes=blake2b(text.encode(), digest_size=16, person=b"pravega-staging").digest())


def writer_of(key: SinkKey) -> UUID:
    """Return the id of the writer that a sink's event times are noted for, the same in each of its runs."""
    text = f"{key.query}\0{key.stream}\0{key.sink}"
    return UUID(bytes=blake2b(text.encode(), digest_size=16, person=b"pravega-writer").digest())


# --- names of jobs --------------------------------------------------------------------------------

_JOB, _UNNAMED = "(job) ", "(unnamed job) "


def job_query(job_id: str) -> str:
    """Return the text used as the query name in the key of a job.

    It is never the name of a streaming query.
    """
    return f"{_JOB}{job_id}"


def unnamed_query(session: UUID) -> str:
    """Return the text used as the query name in the key of a job without a name."""
    return f"{_UNNAMED}{session.hex}"


def is_unnamed(query: str) -> bool:
    """Return True if a name is from :func:`unnamed_query`."""
    return query.startswith(_UNNAMED)


def is_reserved(name: str) -> bool:
    """Return True if a name could be from one of these functions, so that a query cannot have it."""
    return name.startswith((_JOB, _UNNAMED))


# --- records --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SinkKey:
    """The key of a history in a ledger.

    :ivar query: name of the query.
    :ivar stream: the stream that its batches are written to, as ``scope/stream``.
    :ivar sink: distinguishes sinks of one query and stream; "" if there is only one.
    """

    query: str
    stream: str
    sink: str = ""

    def __str__(self) -> str:
        name = f", sink {self.sink!r}" if self.sink else ""
        return f"query {self.query!r} to stream {self.stream}{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _BatchRecord:
    query: str
    stream: str
    batch: int
    txn: UUID
    session: UUID
    sink: str = ""
    id: UUID = field(default_factory=uuid4)

    @property
    def key(self) -> SinkKey:
        """The key of the record's history."""
        return SinkKey(self.query, self.stream, self.sink)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparing(_BatchRecord):
    """A driver claims a batch; see the module text."""

    checkpoint: str | None = None
    began: int | None = None
    generation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Staging(_BatchRecord):
    """A task attempt is about to create staging segments; see the module text."""

    staging: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared(_BatchRecord):
    """The point of no return; see the module text.

    :ivar rows: number of events in the batch.
    :ivar cut: tail of the stream before the commit.
    :ivar contents: data in each segment of the transaction.
    :ivar winners: ids of the staging segments that were merged.
    :ivar timestamp: largest event time of the batch in ms, or None.
    :ivar identity: what identifies the batch; None for a job, whose name does.
    """

    rows: int
    cut: str
    contents: Contents
    winners: tuple[UUID, ...] = ()
    timestamp: int | None = None
    identity: Identity | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Done(_BatchRecord):
    """The batch is committed; see the module text."""

    rows: int = 0
    tidied: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Forget(_BatchRecord):
    """The records of the key are no longer needed; see the module text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state of all sinks, or a part of it; see the module text."""

    sinks: Mapping[SinkKey, SinkState]
    id: UUID = field(default_factory=uuid4)
    snapshot: UUID | None = None
    part: int = 0
    parts: int = 1


Record: TypeAlias = Preparing | Staging | Prepared | Done | Forget | Snapshot


# --- state ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Claim:
    """A batch that a driver has started and that is not DONE.

    :ivar batch: number of the batch.
    :ivar txn: id of its transaction.
    :ivar session: id of the driver.
    :ivar staging: ids that task attempts have registered so far.
    :ivar prepared: the PREPARED record, or None.
    :ivar void: the drivers whose claims were void when this claim was made.
    :ivar began: time when the driver planned the write, in ms since 1970; None if unknown.
    :ivar generation: see :class:`Older`.
    """

    batch: int
    txn: UUID
    session: UUID
    staging: frozenset[UUID] = frozenset()
    prepared: Prepared | None = None
    void: frozenset[UUID] = frozenset()
    began: int | None = None
    generation: int = 0


@dataclass(frozen=True, slots=True)
class SinkState:
    """The state of one sink in the ledger: a query's batches for one stream.

    :ivar last_done: the last batch that is DONE, or None.
    :ivar last_txn: id of that batch's transaction.
    :ivar last_session: id of the driver that recorded it as DONE.
    :ivar last_identity: what identifies it, or None.
    :ivar last_generation: its generation; see :class:`Older`.
    :ivar claim: the current claim, or None.
    :ivar leftovers: staging ids, by transaction, that may still exist but are no longer used; the
        transactions of void claims are keys even if nothing was staged.
    :ivar checkpoint: the engine's own id of the query in the last claim that had one.
    :ivar overtaken: the last drivers from which another one has taken over, including between two batches.
    """

    last_done: int | None = None
    last_txn: UUID | None = None
    last_session: UUID | None = None
    last_identity: Identity | None = None
    last_generation: int = 0
    claim: Claim | None = None
    leftovers: Mapping[UUID, frozenset[UUID]] = field(default_factory=dict)
    checkpoint: str | None = None
    overtaken: tuple[UUID, ...] = ()

    @property
    def is_blank(self) -> bool:
        """True if no batch has ever been claimed."""
        return self.last_done is None and self.claim is None

    @property
    def generation(self) -> int:
        """The generation in which the next batch is written, unless it begins another one."""
        return self.last_generation if self.claim is None else self.claim.generation

    @property
    def last_of_generation(self) -> int | None:
        """The last batch of this generation that is DONE, or None."""
        return self.last_done if self.generation == self.last_generation else None

    def _left(self, txn: UUID, ids: frozenset[UUID]) -> dict[UUID, frozenset[UUID]]:
        return {**self.leftovers, txn: self.leftovers.get(txn, frozenset()) | ids}

    def _overtaken_by(self, session: UUID) -> tuple[UUID, ...]:
        """Return the drivers that must stop after a driver has claimed or finished a batch."""
        before = {self.last_session} if self.claim is None else {self.last_session, self.claim.session}
        new = sorted(each for each in before if each is not None and each not in self.overtaken)
        return tuple(each for each in (*self.overtaken, *new) if each != session)[-_KEPT_OVERTAKEN:]

    def after(self, record: Preparing | Staging | Prepared | Done) -> SinkState:
        """Return the state after a record is appended.

        :raises CorruptedStateError: no correct driver appends this record in this state.
        """
        claim = self.claim
        match record:
            case Preparing():
                if self.last_done is not None and (record.generation, record.batch) <= (
                    self.last_generation,
                    self.last_done,
                ):
                    raise _corrupt(record, f"batch {self.last_done} is already DONE")
                leftovers, void = self.leftovers, frozenset[UUID]()
                if claim is not None:
                    leftovers = self._left(claim.txn, claim.staging)
                    void = (claim.void | {claim.session}) - {record.session}
                return replace(
                    self,
                    claim=Claim(
                        record.batch,
                        record.txn,
                        record.session,
                        void=void,
                        began=record.began,
                        generation=record.generation,
                    ),
                    leftovers=leftovers,
                    checkpoint=record.checkpoint or self.checkpoint,
                    overtaken=self._overtaken_by(record.session),
                )
            case Staging():
                if claim is not None and claim.txn == record.txn and claim.prepared is None:
                    grown = replace(claim, staging=claim.staging | {record.staging})
                    return replace(self, claim=grown)
                # The attempt outlived its batch, or started when the winners had been merged.
                return replace(self, leftovers=self._left(record.txn, frozenset({record.staging})))
            case Prepared():
                if claim is None or claim.txn != record.txn or claim.prepared is not None:
                    raise _corrupt(record, "its transaction has no open claim")
                return replace(self, claim=replace(claim, prepared=record))
            case Done():
                if claim is None or claim.txn != record.txn or claim.prepared is None:
                    raise _corrupt(record, "its transaction is not PREPARED")
                losers = claim.staging - set(claim.prepared.winners)
                # Without losers nothing is left of this transaction, only of earlier ones.
                left = self._left(record.txn, losers) if losers else self.leftovers
                return replace(
                    self,
                    last_done=record.batch,
                    last_txn=record.txn,
                    last_session=record.session,
                    last_identity=claim.prepared.identity,
                    last_generation=claim.generation,
                    claim=None,
                    leftovers={} if record.tidied else left,
                    overtaken=self._overtaken_by(record.session),
                )
        assert_never(record)


def _corrupt(record: _BatchRecord, why: str) -> CorruptedStateError:
    name = type(record).__name__.upper()
    return CorruptedStateError(
        f"the ledger is damaged: {name} for batch {record.batch} of {record.key} is invalid: {why}",
        transaction=record.txn,
    )


@dataclass(frozen=True, slots=True)
class LedgerState:
    """The state that all records describe together.

    :ivar sinks: state of each key.
    :ivar records: number of records since the last SNAPSHOT (or the start).
    :ivar incomplete: the last records, if they are parts of a SNAPSHOT whose other parts are still missing.
    """

    sinks: Mapping[SinkKey, SinkState] = field(default_factory=dict)
    records: int = 0
    incomplete: tuple[Snapshot, ...] = ()

    def sink(self, key: SinkKey) -> SinkState:
        """Return the state of one sink; an empty state if the ledger has no record of it."""
        return self.sinks.get(key, SinkState())

    def after(self, *records: Record) -> LedgerState:
        """Return the state after records are appended.

        :raises CorruptedStateError: no correct driver appends these records in this state.
        """
        # Copied only once, because there may be many sinks.
        sinks, count, incomplete = dict(self.sinks), self.records, self.incomplete
        for record in records:
            count += 1
            if not isinstance(record, Snapshot):
                incomplete = ()
                if isinstance(record, Forget):
                    sinks.pop(record.key, None)
                else:
                    sinks[record.key] = sinks.get(record.key, SinkState()).after(record)
                continue
            if record.part == 0:
                incomplete = ()
            elif not incomplete or (incomplete[-1].snapshot, len(incomplete)) != (
                record.snapshot,
                record.part,
            ):
                incomplete = ()
                continue
            incomplete += (record,)
            if len(incomplete) == record.parts:
                sinks = {key: state for part in incomplete for key, state in part.sinks.items()}
                count, incomplete = 0, ()
        return LedgerState(sinks, count, incomplete)

    def snapshot(self, max_bytes: int) -> list[Snapshot]:
        """Return the records of a SNAPSHOT of this state.

        :param max_bytes: approximate largest size of a record in bytes; a single sink may be larger.
        """
        parts: list[dict[SinkKey, SinkState]] = [{}]
        size = 0
        for key, state in self.sinks.items():
            nbytes = len(json.dumps(_dump_sink(key, state), separators=(",", ":")))
            if parts[-1] and size + nbytes > max_bytes:
                parts.append({})
                size = 0
            parts[-1][key] = state
            size += nbytes
        if len(parts) == 1:
            return [Snapshot(sinks=parts[0])]
        whole = uuid4()
        return [
            Snapshot(sinks=sinks, snapshot=whole, part=number, parts=len(parts))
            for number, sinks in enumerate(parts)
        ]


# --- what to do next ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AlreadyDone:
    """The batch is committed: write nothing."""


@dataclass(frozen=True, slots=True)
class CompareRows:
    """The last batch that is DONE has this number: the rows decide whether it is the same batch."""


@dataclass(frozen=True, slots=True)
class Older:
    """The checkpoint is older than what was written: its batch is not the one that the ledger has.

    If a person decides to go on with that checkpoint, the batch begins a new generation, whose numbers have
    nothing to do with those before: a claim names its generation, and the later ones remain in it.

    :ivar why: the difference, as text.
    """

    why: str


@dataclass(frozen=True, slots=True)
class Resume:
    """The batch is PREPARED: its transaction's status decides (:class:`TxnOutcome`)."""

    prepared: Prepared
    claim: Claim


@dataclass(frozen=True, slots=True)
class WriteBatch:
    """Nothing of the batch is or ever will be visible: write it."""


@dataclass(frozen=True, slots=True)
class NeverHeardOf:
    """The ledger has no record of the sink, but the batch is not the first: it may be the wrong ledger."""


Decision: TypeAlias = AlreadyDone | CompareRows | Older | Resume | WriteBatch | NeverHeardOf


def decide(
    state: SinkState,
    batch: int,
    checkpoint: str | None = None,
    *,
    identity: Identity | None = None,
    named: bool = False,
    new_ledger: bool = False,
    of: str = "this query",
) -> Decision:
    """Return the action of a driver that has to write a batch.

    :param state: the sink's state.
    :param batch: number of the batch.
    :param checkpoint: the engine's own id of the query, or None.
    :param identity: what identifies the batch; None if only its rows can.
    :param named: whether a person has named the batch, as for a job, so that it is the same in any case.
    :param new_ledger: whether the first batch of a sink may have any number.
    :param of: whose state it is, for messages.
    :raises InvalidArgumentError: the ledger's records of the query are from another checkpoint, in which
        batch numbers mean other data.
    """
    if None not in (checkpoint, state.checkpoint) and checkpoint != state.checkpoint:
        raise InvalidArgumentError(
            f"the ledger's records of {of} are from the checkpoint with id {state.checkpoint}, not "
            f"{checkpoint}: batch numbers of two checkpoints mean different data. Start the query with its "
            "old checkpointLocation, or, if that is lost, under a new name (query): then it writes all its "
            "input"
        )
    claim, last = state.claim, state.last_of_generation
    if last is not None and batch < last:
        return Older(f"batch {last} was already written")
    if last == batch:
        if named:
            return AlreadyDone()
        if identity is None:
            return CompareRows()
        why = difference(state.last_identity, identity)
        return AlreadyDone() if why is None else Older(f"batch {batch} was already written, but {why}")
    if state.is_blank and batch > 0 and not new_ledger:
        return NeverHeardOf()
    if claim is None or claim.prepared is None:
        return WriteBatch()
    if claim.batch == batch:
        return Resume(claim.prepared, claim)
    # A batch without rows is not recorded, so a copy of the checkpoint in which it had none may be ahead.
    which = "" if batch < claim.batch else " of another checkpoint"
    return Older(f"batch {claim.batch}{which} may already have been written")


class TxnOutcome(Enum):
    """The action for the status of a PREPARED batch's transaction."""

    COMMIT = auto()
    """The transaction is open: commit it (again)."""
    WAIT = auto()
    """It is committing or committed: wait until it is visible."""
    REWRITE = auto()
    """It is aborting or aborted: none of its data will become visible, so write the batch again."""
    EVIDENCE = auto()
    """The server has no record of it: the stream's data must decide."""

    @classmethod
    def of(cls, status_name: str) -> TxnOutcome:
        """Return the action for the name of a transaction status (``OPEN``, ``COMMITTED``, ...)."""
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

_PHASES: dict[str, type[Preparing | Staging | Prepared | Done | Forget]] = {
    "PREPARING": Preparing,
    "STAGING": Staging,
    "PREPARED": Prepared,
    "DONE": Done,
    "FORGET": Forget,
}


def encode_record(record: Record) -> bytes:
    """Encode a record as a ledger event."""
    body: dict[str, Any] = {"v": FORMAT_VERSION, "id": record.id.hex}
    match record:
        case Snapshot():
            body["phase"] = "SNAPSHOT"
            body["sinks"] = [_dump_sink(key, state) for key, state in record.sinks.items()]
            if record.snapshot is not None:
                body |= {"snapshot": record.snapshot.hex, "part": record.part, "parts": record.parts}
        case Preparing() | Staging() | Prepared() | Done() | Forget():
            body |= {
                "phase": type(record).__name__.upper(),
                "query": record.query,
                "stream": record.stream,
                "sink": record.sink,
                "batch": record.batch,
                "txn": record.txn.hex,
                "session": record.session.hex,
            }
            match record:
                case Preparing():
                    body["checkpoint"] = record.checkpoint
                    if record.began is not None:
                        body["began"] = record.began
                    if record.generation:
                        body["generation"] = record.generation
                case Staging():
                    body["staging"] = record.staging.hex
                case Prepared():
                    body |= {
                        "contents": dump_contents(record.contents),
                        "identity": dump_identity(record.identity),
                        "rows": record.rows,
                        "cut": record.cut,
                        "winners": [each.hex for each in record.winners],
                        "timestamp": record.timestamp,
                    }
                case Done():
                    body["rows"] = record.rows
                    if not record.tidied:
                        body["tidied"] = False
        case _:
            assert_never(record)
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()


def decode_record(data: bytes) -> Record:
    """Decode a ledger event.

    :raises CorruptedStateError: the bytes are not a record of this format, or have another version.
    """
    try:
        body = json.loads(data)
        version = body["v"]
        if version != FORMAT_VERSION:
            raise CorruptedStateError(
                f"the ledger has a record of version {version!r}; this program supports "
                f"{FORMAT_VERSION}: use another version of spark_adapter"
            )
        return _load(body)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise CorruptedStateError(
            f"the ledger has an event that is not a ledger record: {data[:80]!r} "
            f"({type(error).__name__}: {error})"
        ) from error


def _load(body: Mapping[str, Any]) -> Record:
    phase = body["phase"]
    record_id = UUID(hex=body["id"])
    if phase == "SNAPSHOT":
        sinks = {_load_key(each): _load_state(each) for each in body["sinks"]}
        if "snapshot" not in body:
            return Snapshot(sinks=sinks, id=record_id)
        part, parts = int(body["part"]), int(body["parts"])
        return Snapshot(
            sinks=sinks, id=record_id, snapshot=UUID(hex=body["snapshot"]), part=part, parts=parts
        )
    common: dict[str, Any] = {
        "id": record_id,
        "query": str(body["query"]),
        "stream": str(body["stream"]),
        "sink": str(body["sink"]),
        "batch": int(body["batch"]),
        "txn": UUID(hex=body["txn"]),
        "session": UUID(hex=body["session"]),
    }
    kind = _PHASES[phase]
    if kind is Preparing:
        return Preparing(
            **common,
            checkpoint=body["checkpoint"],
            began=_optional_int(body.get("began")),
            generation=int(body.get("generation", 0)),
        )
    if kind is Staging:
        return Staging(**common, staging=UUID(hex=body["staging"]))
    if kind is Prepared:
        return Prepared(
            **common,
            rows=int(body["rows"]),
            contents=load_contents(body["contents"]),
            identity=load_identity(body["identity"]),
            cut=str(body["cut"]),
            winners=tuple(UUID(hex=each) for each in body["winners"]),
            timestamp=None if body["timestamp"] is None else int(body["timestamp"]),
        )
    if kind is Forget:
        return Forget(**common)
    return Done(**common, rows=int(body["rows"]), tidied=bool(body.get("tidied", True)))


def _optional_int(value: Any) -> int | None:
    return None if value is None else int(value)


def _hexes(ids: Iterable[UUID]) -> list[str]:
    return sorted(each.hex for each in ids)


def _load_key(body: Mapping[str, Any]) -> SinkKey:
    return SinkKey(str(body["query"]), str(body["stream"]), str(body["sink"]))


def _dump_sink(key: SinkKey, state: SinkState) -> dict[str, Any]:
    body: dict[str, Any] = {"query": key.query, "stream": key.stream, "sink": key.sink}
    # Empty fields are left out: most sinks are jobs that are DONE.
    return body | {name: each for name, each in _dump_state(state).items() if each not in (None, {}, [])}


def _dump_state(state: SinkState) -> dict[str, Any]:
    claim = state.claim
    return {
        "last_done": state.last_done,
        "last_txn": None if state.last_txn is None else state.last_txn.hex,
        "last_session": None if state.last_session is None else state.last_session.hex,
        "last_identity": dump_identity(state.last_identity),
        "last_generation": state.last_generation or None,
        "checkpoint": state.checkpoint,
        "leftovers": {txn.hex: _hexes(ids) for txn, ids in state.leftovers.items()},
        "overtaken": [each.hex for each in state.overtaken],
        "claim": None
        if claim is None
        else {
            "batch": claim.batch,
            "txn": claim.txn.hex,
            "session": claim.session.hex,
            "staging": _hexes(claim.staging),
            "void": _hexes(claim.void),
            "began": claim.began,
            "generation": claim.generation,
            "prepared": None if claim.prepared is None else json.loads(encode_record(claim.prepared)),
        },
    }


def _load_state(body: Mapping[str, Any]) -> SinkState:
    claim: Claim | None = None
    if body.get("claim") is not None:
        raw = body["claim"]
        prepared = None if raw["prepared"] is None else _load(raw["prepared"])
        if not isinstance(prepared, Prepared | None):
            raise CorruptedStateError("the ledger is damaged: a claim in its snapshot is invalid")
        claim = Claim(
            int(raw["batch"]),
            UUID(hex=raw["txn"]),
            UUID(hex=raw["session"]),
            frozenset(UUID(hex=each) for each in raw["staging"]),
            prepared,
            frozenset(UUID(hex=each) for each in raw["void"]),
            _optional_int(raw["began"]),
            int(raw["generation"]),
        )

    def optional_id(key: str) -> UUID | None:
        return None if body.get(key) is None else UUID(hex=body[key])

    return SinkState(
        last_done=_optional_int(body.get("last_done")),
        last_txn=optional_id("last_txn"),
        last_session=optional_id("last_session"),
        last_identity=load_identity(body.get("last_identity")),
        last_generation=int(body.get("last_generation", 0)),
        claim=claim,
        leftovers={
            UUID(hex=txn): frozenset(UUID(hex=each) for each in ids)
            for txn, ids in body.get("leftovers", {}).items()
        },
        checkpoint=body.get("checkpoint"),
        overtaken=tuple(UUID(hex=each) for each in body.get("overtaken", ())),
    )
