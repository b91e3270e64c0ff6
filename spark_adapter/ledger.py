"""The exactly-once ledger: its records, the state they add up to, and what to do next.

Nothing here does I/O. A ledger is a revisioned stream; each record is one event, JSON in UTF-8 with
sorted keys, one object per record:

``{"v": 3, "phase": ..., "id": ..., "query": ..., "stream": ..., "sink": ..., "batch": ..., "txn": ...,
"session": ...}``

``query``, ``stream`` (``scope/stream``, where the batch goes) and ``sink`` (a name, or "") are the key: each
key has a history of its own.

==========  ======================================================================================
phase       meaning, and its further fields
==========  ======================================================================================
PREPARING   a driver (``session``) claims ``batch`` for its key with the open transaction ``txn``;
            every earlier claim of the key that is not DONE is void from here on. ``checkpoint``:
            the engine's own id of the query, or null. ``began``: when the driver planned the write, in
            ms since 1970 by its own clock, if known. Task attempts may claim for their driver
STAGING     a task attempt is about to create staging segments named by ``staging``
PREPARED    ``txn`` holds the whole batch and may be committed: the point of no return. ``rows``,
            ``contents`` (what each segment of ``txn`` holds, as ``[segment id, bytes, crc32]``),
            ``cut`` (the tail of the stream before the commit, as text), ``winners`` (staging ids that
            were merged) and ``timestamp`` (event time of the batch in ms, or null)
DONE        ``txn`` is committed and nothing of the batch is left behind, unless ``tidied`` is there and
            false: then the next batch sees to that. ``rows``
FORGET      the key is of a job without a name that has ended: nothing will ask for it again
SNAPSHOT    ``sinks``: the state of every key, so that everything before it can be truncated. In
            several records if it is large: ``part`` of ``parts`` (from 0), all of one ``snapshot``
            (an id) and with nothing in between; else they say nothing
==========  ======================================================================================

Ids of transactions, staging segments, sessions and records are UUIDs as 32 hexadecimal digits. A
reader refuses a higher ``v`` and ignores fields it does not know.

A PREPARED of version 2 or 1 has ``checksum`` instead of ``contents``: the sum of the events' 64-bit BLAKE2b,
modulo 2**64.

Records of version 1 have no ``stream`` and no ``sink``, and their SNAPSHOT has ``queries`` by name. They
count for the sink without a name on the stream that their last PREPARED names in its ``cut``; if none is left
that does, for the first sink without a name that appends a record of the same query.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from hashlib import blake2b
from typing import Any, TypeAlias, assert_never
from uuid import UUID, uuid4

from pravega_wire import StreamCut
from pravega_wire.errors import CorruptedStateError, InvalidArgumentError, PravegaError
from spark_adapter.contents import Contents, dump_contents, load_contents

__all__ = [
    "AlreadyDone",
    "Claim",
    "Decision",
    "Done",
    "Forget",
    "LedgerState",
    "NeverHeardOf",
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
    "event_checksum",
    "is_reserved",
    "is_unnamed",
    "job_query",
    "staging_id",
    "unnamed_query",
]

FORMAT_VERSION = 3
CHECKSUM_MODULUS = 1 << 64
_KEPT_OVERTAKEN = 8


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


# --- names of jobs --------------------------------------------------------------------------------

_JOB, _UNNAMED = "(job) ", "(unnamed job) "


def job_query(job_id: str) -> str:
    """What stands for the query's name in the key of a job: never the name of a streaming query."""
    return f"{_JOB}{job_id}"


def unnamed_query(session: UUID) -> str:
    """The same for a job that the user has not named."""
    return f"{_UNNAMED}{session.hex}"


def is_unnamed(query: str) -> bool:
    """Whether a name is one that :func:`unnamed_query` gives."""
    return query.startswith(_UNNAMED)


def is_reserved(name: str) -> bool:
    """Whether a name might be one of these, and so cannot be a query's."""
    return name.startswith((_JOB, _UNNAMED))


# --- records --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SinkKey:
    """What has a history of its own in a ledger.

    :ivar query: the query's name. :ivar stream: where its batches go, as ``scope/stream``; None in the key
        of records of version 1. :ivar sink: tells sinks of one query and stream apart; "" for the only one.
    """

    query: str
    stream: str | None
    sink: str = ""

    def __str__(self) -> str:
        name = f", sink {self.sink!r}" if self.sink else ""
        return f"query {self.query!r} to stream {self.stream or '(not recorded)'}{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _BatchRecord:
    query: str
    batch: int
    txn: UUID
    session: UUID
    stream: str | None = None
    sink: str = ""
    id: UUID = field(default_factory=uuid4)

    @property
    def key(self) -> SinkKey:
        """Whose record it is."""
        return SinkKey(self.query, self.stream, self.sink)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparing(_BatchRecord):
    """A driver claims a batch; see the module text."""

    checkpoint: str | None = None
    began: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Staging(_BatchRecord):
    """A task attempt is about to create staging segments; see the module text."""

    staging: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared(_BatchRecord):
    """The point of no return; see the module text.

    :ivar contents: None in records of versions 1 and 2. :ivar checksum: None in those of version 3.
    """

    rows: int
    cut: str
    contents: Contents | None = None
    checksum: int | None = None
    winners: tuple[UUID, ...] = ()
    timestamp: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Done(_BatchRecord):
    """The batch is committed; see the module text."""

    rows: int = 0
    tidied: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Forget(_BatchRecord):
    """The key is not needed any more; see the module text."""


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
    """A batch that somebody began and that is not DONE.

    :ivar staging: ids registered by task attempts so far. :ivar prepared: the PREPARED record.
    :ivar void: the drivers whose claims were void when this one was made.
    :ivar began: when its driver planned the write, ms since 1970; None if that is not known.
    """

    batch: int
    txn: UUID
    session: UUID
    staging: frozenset[UUID] = frozenset()
    prepared: Prepared | None = None
    void: frozenset[UUID] = frozenset()
    began: int | None = None


@dataclass(frozen=True, slots=True)
class SinkState:
    """What the ledger says of one sink: a query's batches on their way to one stream.

    :ivar last_done: highest batch that is DONE, or None. :ivar last_txn: its transaction.
    :ivar last_session: the driver that recorded it as DONE.
    :ivar claim: the current claim, or None.
    :ivar leftovers: staging ids by transaction that may still exist and belong to nothing any more;
        the transactions of void claims are keys even when nothing was staged.
    :ivar checkpoint: the engine's own id of the query in the last claim that had one.
    :ivar stream: of records of version 1: the stream they are of, or None if none of them says.
    :ivar overtaken: the last drivers that another one has taken over from, also between two batches.
    """

    last_done: int | None = None
    last_txn: UUID | None = None
    last_session: UUID | None = None
    claim: Claim | None = None
    leftovers: Mapping[UUID, frozenset[UUID]] = field(default_factory=dict)
    checkpoint: str | None = None
    stream: str | None = None
    overtaken: tuple[UUID, ...] = ()

    @property
    def is_blank(self) -> bool:
        """Whether nobody has ever claimed a batch."""
        return self.last_done is None and self.claim is None

    def knows(self, txn: UUID) -> bool:
        """Whether a transaction appears in it."""
        claimed = self.claim is not None and self.claim.txn == txn
        return claimed or txn == self.last_txn or txn in self.leftovers

    def _left(self, txn: UUID, ids: frozenset[UUID]) -> dict[UUID, frozenset[UUID]]:
        return {**self.leftovers, txn: self.leftovers.get(txn, frozenset()) | ids}

    def _overtaken_by(self, session: UUID) -> tuple[UUID, ...]:
        """The drivers that have to stop once that one has claimed or finished a batch."""
        before = {self.last_session} if self.claim is None else {self.last_session, self.claim.session}
        new = sorted(each for each in before if each is not None and each not in self.overtaken)
        return tuple(each for each in (*self.overtaken, *new) if each != session)[-_KEPT_OVERTAKEN:]

    def after(self, record: Preparing | Staging | Prepared | Done) -> SinkState:
        """The state once ``record`` is appended.

        :raises CorruptedStateError: no correct driver appends that record in this state.
        """
        claim = self.claim
        match record:
            case Preparing():
                if self.last_done is not None and record.batch <= self.last_done:
                    raise _corrupt(record, f"batch {self.last_done} is DONE already")
                leftovers, void = self.leftovers, frozenset[UUID]()
                if claim is not None:
                    leftovers = self._left(claim.txn, claim.staging)
                    void = (claim.void | {claim.session}) - {record.session}
                return replace(
                    self,
                    claim=Claim(record.batch, record.txn, record.session, void=void, began=record.began),
                    leftovers=leftovers,
                    checkpoint=record.checkpoint or self.checkpoint,
                    overtaken=self._overtaken_by(record.session),
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
                stream = self.stream if record.stream is not None else _stream_of(record.cut)
                return replace(self, claim=replace(claim, prepared=record), stream=stream)
            case Done():
                if claim is None or claim.txn != record.txn or claim.prepared is None:
                    raise _corrupt(record, "its transaction is not PREPARED")
                losers = claim.staging - set(claim.prepared.winners)
                return replace(
                    self,
                    last_done=record.batch,
                    last_txn=record.txn,
                    last_session=record.session,
                    claim=None,
                    leftovers={} if record.tidied else self._left(record.txn, losers),
                    overtaken=self._overtaken_by(record.session),
                )
        assert_never(record)


def _stream_of(cut: str) -> str | None:
    """The stream of a stream cut's text."""
    try:
        return str(StreamCut.from_text(cut).stream)
    except PravegaError:
        return None


def _corrupt(record: _BatchRecord, why: str) -> CorruptedStateError:
    name = type(record).__name__.upper()
    return CorruptedStateError(
        f"ledger: {name} for batch {record.batch} of {record.key} makes no sense: {why}",
        transaction=record.txn,
    )


@dataclass(frozen=True, slots=True)
class LedgerState:
    """What all records together say.

    :ivar sinks: state by key; records of version 1 add up to the state of a key without a stream.
    :ivar records: records since the last SNAPSHOT (or the start).
    :ivar incomplete: the parts of a SNAPSHOT that were the last records, if there are more to come.
    """

    sinks: Mapping[SinkKey, SinkState] = field(default_factory=dict)
    records: int = 0
    incomplete: tuple[Snapshot, ...] = ()

    def sink(self, key: SinkKey) -> SinkState:
        """State of one sink; an empty one if the ledger does not know it."""
        own = self.sinks.get(key)
        if own is None:
            own = self._before_streams(key)
        return SinkState() if own is None else own

    def _before_streams(self, key: SinkKey) -> SinkState | None:
        """What records of version 1 say of a sink, if they may be its own and nothing newer is."""
        old = self.sinks.get(SinkKey(key.query, None))
        if old is None or key.sink or old.stream not in (None, key.stream):
            return None
        return old

    def after(self, *records: Record) -> LedgerState:
        """The state once ``records`` are appended (:class:`CorruptedStateError` if they cannot be)."""
        # copied once: there may be many sinks
        sinks, count, incomplete = dict(self.sinks), self.records, self.incomplete
        for record in records:
            count += 1
            if not isinstance(record, Snapshot):
                incomplete = ()
                LedgerState(sinks)._add(record, sinks)
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

    def _add(self, record: _BatchRecord, sinks: dict[SinkKey, SinkState]) -> None:
        """Bring the state of one sink up to date; ``sinks`` are those of this state."""
        key = record.key
        if isinstance(record, Forget):
            sinks.pop(key, None)
            return
        assert isinstance(record, Preparing | Staging | Prepared | Done)
        state = sinks.get(key)
        if state is None and key.stream is None and isinstance(record, Staging):
            # an attempt of an older program that has outlived its driver
            key = next((k for k, s in sinks.items() if k.query == key.query and s.knows(record.txn)), key)
            state = sinks.get(key)
        if state is None and key.stream is not None:
            state = self._before_streams(key)
            if state is not None:
                # taken over for good: they were the records of one sink
                del sinks[SinkKey(key.query, None)]
                state = replace(state, stream=None)
        sinks[key] = (SinkState() if state is None else state).after(record)

    def snapshot(self, max_bytes: int) -> list[Snapshot]:
        """The records of a SNAPSHOT of this state, each of not much more than ``max_bytes`` bytes unless
        a single sink is larger."""
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


@dataclass(frozen=True, slots=True)
class NeverHeardOf:
    """The ledger does not know the sink, and the batch is not the first: it may be the wrong ledger."""


Decision: TypeAlias = AlreadyDone | Resume | WriteBatch | NeverHeardOf


def decide(
    state: SinkState, batch: int, checkpoint: str | None = None, *, new_ledger: bool = False
) -> Decision:
    """What a driver that was asked for ``batch`` has to do.

    :param checkpoint: the engine's own id of the query, if it has one.
    :param new_ledger: the sink may be new to the ledger at any batch.
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
    if state.is_blank and batch > 0 and not new_ledger:
        return NeverHeardOf()
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

_PHASES: dict[str, type[Preparing | Staging | Prepared | Done | Forget]] = {
    "PREPARING": Preparing,
    "STAGING": Staging,
    "PREPARED": Prepared,
    "DONE": Done,
    "FORGET": Forget,
}


def encode_record(record: Record) -> bytes:
    """One record as the bytes of a ledger event; what came from an older version stays in that version."""
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
                "batch": record.batch,
                "txn": record.txn.hex,
                "session": record.session.hex,
            }
            if record.stream is None:
                body["v"] = 1
            else:
                body |= {"stream": record.stream, "sink": record.sink}
            match record:
                case Preparing():
                    body["checkpoint"] = record.checkpoint
                    if record.began is not None:
                        body["began"] = record.began
                case Staging():
                    body["staging"] = record.staging.hex
                case Prepared():
                    if record.contents is not None:
                        body["contents"] = dump_contents(record.contents)
                    else:
                        body |= {"v": min(body["v"], 2), "checksum": record.checksum}
                    body |= {
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
    """The record in a ledger event.

    :raises CorruptedStateError: the bytes are no record of this format, or of a newer version.
    """
    try:
        body = json.loads(data)
        version = body["v"]
        if version not in range(1, FORMAT_VERSION + 1):
            raise CorruptedStateError(
                f"ledger record of version {version!r}; this program reads 1 to {FORMAT_VERSION}"
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
        if body["v"] == 1:
            old = {SinkKey(str(name), None): _load_state(each) for name, each in body["queries"].items()}
            return Snapshot(sinks=old, id=record_id)
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
        "batch": int(body["batch"]),
        "txn": UUID(hex=body["txn"]),
        "session": UUID(hex=body["session"]),
    }
    if body["v"] != 1:
        common |= {"stream": str(body["stream"]), "sink": str(body["sink"])}
    kind = _PHASES[phase]
    if kind is Preparing:
        return Preparing(**common, checkpoint=body["checkpoint"], began=_optional_int(body.get("began")))
    if kind is Staging:
        return Staging(**common, staging=UUID(hex=body["staging"]))
    if kind is Prepared:
        return Prepared(
            **common,
            rows=int(body["rows"]),
            contents=None if body["v"] < 3 else load_contents(body["contents"]),
            checksum=int(body["checksum"]) if body["v"] < 3 else None,
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
    stream = body["stream"]
    return SinkKey(str(body["query"]), None if stream is None else str(stream), str(body["sink"]))


def _dump_sink(key: SinkKey, state: SinkState) -> dict[str, Any]:
    body: dict[str, Any] = {"query": key.query, "stream": key.stream, "sink": key.sink}
    # what a sink does not have is left out: most are jobs that are DONE
    return body | {name: each for name, each in _dump_state(state).items() if each not in (None, {})}


def _dump_state(state: SinkState) -> dict[str, Any]:
    claim = state.claim
    return {
        "last_done": state.last_done,
        "last_txn": None if state.last_txn is None else state.last_txn.hex,
        "last_session": None if state.last_session is None else state.last_session.hex,
        "checkpoint": state.checkpoint,
        "old_stream": state.stream,
        "leftovers": {txn.hex: _hexes(ids) for txn, ids in state.leftovers.items()},
        "overtaken": [each.hex for each in state.overtaken] or None,
        "claim": None
        if claim is None
        else {
            "batch": claim.batch,
            "txn": claim.txn.hex,
            "session": claim.session.hex,
            "staging": _hexes(claim.staging),
            "void": _hexes(claim.void),
            "began": claim.began,
            "prepared": None if claim.prepared is None else json.loads(encode_record(claim.prepared)),
        },
    }


def _load_state(body: Mapping[str, Any]) -> SinkState:
    claim: Claim | None = None
    stream = body.get("old_stream")
    if body.get("claim") is not None:
        raw = body["claim"]
        prepared = None if raw["prepared"] is None else _load(raw["prepared"])
        if not isinstance(prepared, Prepared | None):
            raise CorruptedStateError("ledger snapshot: a claim in it is damaged")
        if prepared is not None and prepared.stream is None and "old_stream" not in body:
            stream = _stream_of(prepared.cut)
        claim = Claim(
            int(raw["batch"]),
            UUID(hex=raw["txn"]),
            UUID(hex=raw["session"]),
            frozenset(UUID(hex=each) for each in raw["staging"]),
            prepared,
            frozenset(UUID(hex=each) for each in raw.get("void", ())),
            _optional_int(raw.get("began")),
        )

    def optional_id(key: str) -> UUID | None:
        return None if body.get(key) is None else UUID(hex=body[key])

    return SinkState(
        last_done=_optional_int(body.get("last_done")),
        last_txn=optional_id("last_txn"),
        last_session=optional_id("last_session"),
        claim=claim,
        leftovers={
            UUID(hex=txn): frozenset(UUID(hex=each) for each in ids)
            for txn, ids in body.get("leftovers", {}).items()
        },
        checkpoint=body.get("checkpoint"),
        stream=None if stream is None else str(stream),
        overtaken=tuple(UUID(hex=each) for each in body.get("overtaken", ())),
    )
