"""Writes one batch exactly once: the driver's side of the protocol, without Spark.

These are the steps, in order; ``hook`` is called with a step's name when the step is done:

==================  ==============================================================================
``begin``           a transaction T is open
``claimed``         PREPARING is in the ledger: from here on, any other driver of this sink is fenced
``tidied``          leftovers of void claims (open transactions, staging segments) are removed
``staged``          task attempts have written staging segments; the winners are known
``merged``          the winners' segments are merged into T's, in partition order
``lease-renewed``   T was still open, and its lease has been renewed
``prepared``        PREPARED is in the ledger: the point of no return
``committed``       the controller has recorded the commit of T
``visible``         readers can see the batch
``done``            losers' segments are deleted and DONE is in the ledger
==================  ==============================================================================

If the driver is killed between two steps, the next run for the same batch finishes it or writes it again, and
the batch becomes visible once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, fields, replace
from html import escape
from itertools import accumulate
from typing import Any, Literal, Protocol
from uuid import UUID, uuid4

from pravega_wire.errors import (
    DataLossError,
    FencedError,
    InvalidArgumentError,
    InvalidStreamCutError,
    NoSuchSegmentError,
    NotFoundError,
    OlderCheckpointError,
    PravegaError,
    TransactionAbortedError,
    TransactionError,
    TransactionUnknownError,
)
from pravega_wire.support.checks import check_takes_times
from pravega_wire.values.naming import number_of
from spark_adapter.exactly_once.at_once import at_once
from spark_adapter.exactly_once.contents import AttemptResult, Contents, by_number, join_contents
from spark_adapter.exactly_once.identity import Identity, PlannedBatch, WrittenRows, difference
from spark_adapter.exactly_once.journal import Journal
from spark_adapter.exactly_once.ledger import (
    AlreadyDone,
    CompareRows,
    Decision,
    Done,
    IfForgotten,
    NeverHeardOf,
    Older,
    OnOlderCheckpoint,
    Prepared,
    Preparing,
    Resume,
    TxnOutcome,
    WriteBatch,
    decide,
    is_unnamed,
    writer_of,
)

__all__ = ["STEPS", "BatchCommitter", "BatchReport", "Client", "Transaction"]

log = logging.getLogger(__name__)

_UNREADABLE = (DataLossError, InvalidStreamCutError, NoSuchSegmentError, NotFoundError)
"""The errors that say that the data after a cut is gone; any other one says nothing about the data."""

_ENDED = ("COMMITTED", "ABORTED", "UNKNOWN")
"""The statuses of a transaction whose segments are gone, so that no merge into them is in progress."""

_END_LIMIT, _FIRST_LOOK = 5.0, 0.01
"""Seconds to wait for the end of aborted transactions, and the pause before the second look."""

STEPS = (
    "begin",
    "claimed",
    "tidied",
    "staged",
    "merged",
    "lease-renewed",
    "prepared",
    "committed",
    "visible",
    "done",
)


class Transaction(Protocol):
    """The part of a transaction of ``pravega_wire.sync`` that is used here; its lease is renewed
    automatically."""

    @property
    def txn_id(self) -> UUID: ...

    def ping(self, lease: float | None = ..., /) -> object: ...

    def abort(self) -> object: ...

    def close(self) -> object: ...


class Staging(Protocol):
    """The part of ``pravega_wire.sync.Staging`` that is used here."""

    def merge(self, ids: Sequence[UUID], /) -> Mapping[int, Sequence[int]]: ...

    def delete(self, ids: Sequence[UUID], /) -> object: ...


class Client(Protocol):
    """The part of ``pravega_wire.sync.PravegaClient`` that is used here."""

    def begin_transaction(self, stream: Any, /, *, lease: float) -> Transaction: ...

    def transaction_status(self, stream: Any, txn_id: UUID, /) -> Any: ...

    def commit_transaction(
        self, stream: Any, txn_id: UUID, /, *, timestamp: int | None = None, writer_id: UUID | None = None
    ) -> object: ...

    def abort_transaction(self, stream: Any, txn_id: UUID, /) -> object: ...

    def wait_committed(self, stream: Any, txn_id: UUID, /) -> object: ...

    def staging(self, stream: Any, txn_id: UUID, /) -> Staging: ...

    def tail(self, stream: Any, /) -> Any: ...

    def active_segments(self, stream: Any, /) -> Sequence[Any]: ...

    def segment_ranges(self, stream: Any, /, start: Any = ..., end: Any = ...) -> Sequence[Any]: ...

    def range_crc32(self, segment_range: Any, /) -> int: ...


def rows_of(results: Iterable[AttemptResult]) -> WrittenRows:
    """Return what the attempts of all partitions have found, each with a checksum."""
    return sum(
        (WrittenRows(each.rows, each.nbytes, each.checksum or 0) for each in results), start=WrittenRows()
    )


@dataclass(frozen=True, slots=True)
class BatchReport:
    """The result of writing one batch.

    :ivar batch: number of the batch.
    :ivar outcome: ``written`` (by this call), ``recovered`` (an earlier driver had prepared the batch, and
        this call finished it), or ``skipped`` (the batch was already DONE).
    :ivar rows: number of events in the batch; 0 if skipped.
    :ivar nbytes: number of their payload bytes, if known; otherwise 0.
    :ivar txn: id of the batch's transaction, or None.
    :ivar seconds: duration of the call.
    :ivar dropped: number of events that are not known to be stored (best effort only).
    """

    batch: int
    outcome: Literal["written", "recovered", "skipped"]
    rows: int = 0
    nbytes: int = 0
    txn: UUID | None = None
    seconds: float = 0.0
    dropped: int = 0

    def _repr_html_(self) -> str:
        """Return an HTML table for notebooks."""
        cells = "".join(
            f"<tr><th>{each.name}</th><td>{escape(str(getattr(self, each.name)))}</td></tr>"
            for each in fields(self)
        )
        return f"<table>{cells}</table>"


class BatchCommitter:
    """Runs the protocol for the batches of one query to one stream on one driver.

    :param client: the driver's client.
    :param stream: the stream to write to.
    :param journal: the ledger, for the query and this stream.
    :param lease: lease of each transaction in seconds.
    :param session: id of this driver; default: a new one.
    :param checkpoint: the engine's own id of the query.
    :param wait_visible: whether to wait until readers see the batch, instead of only until the commit is
        recorded. Without it, the next batch waits for that before it is written.
    :param if_forgotten: what to assume about a prepared transaction that the server has no record of, if the
        stream's data does not decide it: ``raise`` fails; ``committed`` and ``aborted`` are decisions of a
        person.
    :param new_ledger: whether to accept a batch above 0 although the ledger has no record of the query's
        batches for this stream.
    :param joins: whether to accept it if the ledger knows the query: rows name the sink's stream, in any
        batch, and the ledger would know whether they have named it before.
    :param named: whether a person has named the batch, as for a job: then it is skipped if it is DONE,
        whatever its rows are.
    :param planned: returns the checkpoint's entry of a batch, or None if it cannot be read.
    :param on_older_checkpoint: what to do if the ledger has another batch under the number: ``raise``
        (default), or ``continue_at``, which writes the batch after those of the ledger.
    :param began: time when this write was planned, in ms since 1970; default: the time when it claims its
        batch.
    :param hook: called with the name of each step, for tests and for progress.
    """

    def __init__(
        self,
        client: Client,
        stream: Any,
        journal: Journal,
        *,
        lease: float,
        session: UUID | None = None,
        checkpoint: str | None = None,
        wait_visible: bool = True,
        if_forgotten: IfForgotten = "raise",
        new_ledger: bool = False,
        joins: bool = False,
        named: bool = False,
        planned: Callable[[int], PlannedBatch | None] = lambda batch: None,
        on_older_checkpoint: OnOlderCheckpoint = "raise",
        began: int | None = None,
        hook: Callable[[str], None] | None = None,
    ) -> None:
        self._client = client
        self._stream = stream
        self._journal = journal
        self._key = journal.key
        self._lease = lease
        self._session = uuid4() if session is None else session
        self._common: dict[str, Any] = {
            "query": journal.key.query,
            "stream": journal.key.stream,
            "sink": journal.key.sink,
            "session": self._session,
        }
        self._checkpoint = checkpoint
        self._wait_visible = wait_visible
        self._if_forgotten = if_forgotten
        self._new_ledger = new_ledger
        self._joins = joins
        self._named = named
        self._planned = planned
        self._on_older = on_older_checkpoint
        # The identity of the batch that is being written; None if its rows are to be compared.
        self._identity: Identity | None = None
        self._in_line = False
        self._began = began
        self._hook = hook
        # The journal's owner as this driver last set it: a difference means that another driver has changed
        # it.
        self._owned: tuple[object, ...] | None = None
        self._tidied: set[tuple[UUID, UUID | None]] = set()
        self._late: set[UUID] = set()

    @property
    def session(self) -> UUID:
        """The id of this driver in the ledger."""
        return self._session

    @property
    def identity(self) -> Identity | None:
        """What identifies the batch that is being written; None if only its rows do."""
        return self._identity

    @property
    def revision(self) -> Any:
        """The revision up to which the ledger was last read. While tasks run, their claim was open there."""
        return self._journal.revision

    def run(
        self,
        batch: int,
        write: Callable[[UUID], Sequence[AttemptResult]],
        count: Callable[[], Sequence[AttemptResult]] = lambda: (),
    ) -> BatchReport:
        """Make the batch visible exactly once, regardless of what happened to earlier runs of it.

        :param batch: the engine's number of the batch, from 0.
        :param write: runs the tasks for the given transaction id, and returns the result of exactly one
            attempt of each partition. It is called at most once, and not at all if the batch is already
            prepared or done. Attempts first register their staging ids in the ledger.
        :param count: runs the tasks without writing; their results have a checksum. It is called if the batch
            may be DONE, and the checkpoint's entry of it cannot be read.
        :returns: the result.
        :raises FencedError: another driver is working on this query and stream.
        :raises OlderCheckpointError: the ledger has another batch under this number (unless
            ``on_older_checkpoint``); nothing was written.
        :raises InvalidArgumentError: the batch is above 0 and the ledger has no record of the query's batches
            for this stream (unless ``new_ledger``); nothing was written.
        :raises TransactionUnknownError: the batch was prepared, the server has no record of its transaction,
            and the stream's data does not show whether it was committed.
        :raises TransactionError: the transaction was lost before the point of no return, or between it and
            the commit. The batch is not visible, and a new run writes it again.
        """
        started = time.monotonic()
        self._journal.refresh()
        if self._taken_over():
            raise self._fenced()
        if self._owned is not None:
            self._owned = self._journal.owner
        self._identity = self._planned(batch)
        if not self._in_line:
            self._check_line(batch)
            self._in_line = True
        recovered: Prepared | None = None
        generation = self._journal.sink_state.generation
        compared: Identity | None = None
        while True:
            decision = self._decide(batch, self._identity or compared)
            if isinstance(decision, AlreadyDone):
                seconds = time.monotonic() - started
                if recovered is not None:
                    return BatchReport(batch, "recovered", recovered.rows, 0, recovered.txn, seconds)
                self._is_done()
                return BatchReport(batch, "skipped", seconds=seconds)
            if isinstance(decision, CompareRows):
                compared = rows_of(count())
            elif isinstance(decision, Resume):
                if not self._resume(decision.prepared):
                    break
                recovered = decision.prepared
            elif isinstance(decision, Older):
                generation = self._next_generation(batch, decision)
                break
            else:
                break
        prepared, nbytes = self._write(batch, generation, write)
        self._housekeep("the ledger is not compacted", self._journal.compact)
        seconds = time.monotonic() - started
        return BatchReport(batch, "written", prepared.rows, nbytes, prepared.txn, seconds)

    def _next_generation(self, batch: int, older: Older) -> int:
        """Return the generation for a batch that is not the one in the ledger, if a person allows it.

        :raises OlderCheckpointError: nobody has allowed it.
        """
        if self._on_older == "raise":
            raise self._older(batch, older.why)
        state = self._journal.sink_state
        if state.claim is not None and state.claim.prepared is not None:
            # It must have ended: otherwise its rows could become visible after they were given up.
            self._resume(state.claim.prepared)
        generation = self._journal.sink_state.generation + 1
        log.warning(
            "%s: batch %d is written after those of a newer checkpoint, as configured: %s",
            self._key, batch, older.why,
        )  # fmt: skip
        return generation

    def _older(self, batch: int, why: str) -> OlderCheckpointError:
        return OlderCheckpointError(
            f"the query's checkpoint is older than what was written for {self._key} (ledger "
            f"{self._journal.name}), so batch {batch} was not written: {why}. Restore the checkpoint with "
            "which the query ran last. If it is lost, set on_older_checkpoint to 'continue_at': this batch "
            "and the next ones are then written after those that exist, and rows that are in both are "
            "stored twice. See docs/spark-checkpoints.md",
            batch=batch,
        )

    def _check_line(self, batch: int) -> None:
        """Check, in the first batch of a run, that the last batch written is one of this checkpoint.

        :raises OlderCheckpointError: under its number, the checkpoint has another batch: it is a copy, or was
            restored, and both have gone on since.
        """
        state = self._journal.sink_state
        last = state.last_of_generation
        if last is None or last >= batch:
            return
        planned = self._planned(last)
        if planned is None or not isinstance(state.last_identity, PlannedBatch):
            return
        why = difference(state.last_identity, planned)
        if why is None:
            return
        why = f"the checkpoint has another batch {last} than the one that was written: {why}"
        if self._on_older == "raise":
            raise self._older(batch, why)
        log.warning("%s: batch %d is written all the same, as configured: %s", self._key, batch, why)

    def _is_done(self) -> None:
        if self._journal.sink_state.claim is not None:
            # A later batch is being written: its transaction may be open, and its driver tidies.
            return
        self._housekeep("not all of its leftovers are deleted", self._tidy)

    def _housekeep(self, failed: str, work: Callable[[], bool]) -> bool:
        """Do work that the visible batch does not depend on; if it fails, a later batch does it."""
        try:
            return work()
        except PravegaError as error:
            log.warning("%s: the batch is visible, but %s yet: %s", self._key, failed, error)
            return False

    def _decide(
        self, batch: int, identity: Identity | None
    ) -> AlreadyDone | CompareRows | Older | Resume | WriteBatch:
        """Return what to do with a batch; raises if the ledger should know of earlier ones."""
        decision: Decision = decide(
            self._journal.sink_state,
            batch,
            self._checkpoint,
            identity=identity,
            named=self._named,
            new_ledger=self._new_ledger,
            of=f"{self._key} (ledger {self._journal.name})",
        )
        if not isinstance(decision, NeverHeardOf):
            return decision
        if self._joins and any(key.query == self._key.query for key in self._journal.state.sinks):
            return WriteBatch()
        raise self._never_heard_of(batch)

    def _never_heard_of(self, batch: int) -> InvalidArgumentError:
        query = self._key.query
        known = sorted(
            f"{key} (batch {state.last_done})"
            for key, state in self._journal.state.sinks.items()
            if key.query == query and state.last_done is not None
        )
        knows = f"It has records of {' and '.join(known)}. " if known else ""
        return InvalidArgumentError(
            f"ledger {self._journal.name} has no record of {self._key}, but batch {batch} is not the first. "
            f"{knows}If the name of the ledger, query, stream or sink is mistyped, correct it: otherwise "
            f"batch {batch} may be stored twice. The same holds if the ledger was deleted. If this is "
            "really the sink's first batch (the sink was added, or not called for earlier batches), set "
            "new_ledger=True"
        )

    # --- an earlier run had prepared the batch --------------------------------------------------

    def _resume(self, prepared: Prepared) -> bool:
        """Finish a prepared batch; return False if it has to be written again."""
        status = self._client.transaction_status(self._stream, prepared.txn).name
        outcome = TxnOutcome.of(status)
        log.info(
            "%s: batch %d was prepared with transaction %s, which is %s",
            self._key, prepared.batch, prepared.txn, status,
        )  # fmt: skip
        if outcome is TxnOutcome.EVIDENCE:
            outcome = self._weigh_evidence(prepared)
            wait = False
        else:
            wait = self._wait_visible
        if outcome is TxnOutcome.REWRITE:
            return False
        if outcome is TxnOutcome.COMMIT:
            self._commit(prepared)
        self._finish(prepared, wait=wait)
        return True

    def _commit(self, prepared: Prepared) -> None:
        self._client.commit_transaction(
            self._stream, prepared.txn, timestamp=prepared.timestamp, writer_id=writer_of(self._key)
        )
        self._reach("committed")

    def _weigh_evidence(self, prepared: Prepared) -> TxnOutcome:
        """Decide from the stream's data whether a transaction without a record was committed.

        The data after the cut that was taken before the commit is compared with the batch. If there is none,
        it was not committed. If it is exactly the batch, it was committed. Anything else contains another
        writer's events, and does not decide it.
        """
        if prepared.rows == 0:
            return TxnOutcome.WAIT
        try:
            ranges = self._client.segment_ranges(self._stream, start=prepared.cut, end="latest")
            came = [part for part in ranges if part.length]
            if not came:
                return TxnOutcome.REWRITE
            found = self._compare_bytes(prepared.contents, came)
        except _UNREADABLE as error:
            return self._undecided(prepared, f"the data written since cannot be read ({error})", error)
        return TxnOutcome.WAIT if found is None else self._undecided(prepared, found)

    def _compare_bytes(self, contents: Contents, came: Sequence[Any]) -> str | None:
        """Describe how the data written since differs from the transaction's segments; None if it is the
        same."""
        expected = by_number(contents)
        if sorted((number_of(part.segment_id), part.length) for part in came) != sorted(
            (number, content.length) for number, content in expected.items()
        ):
            return (
                f"{sum(part.length for part in came)} bytes were written to {len(came)} segments since, but "
                f"the batch has {sum(each.length for each in expected.values())} for {len(expected)}"
            )
        for part in came:
            if self._client.range_crc32(part) != expected[number_of(part.segment_id)].crc32:
                return (
                    "as many bytes as the batch has were written since, but they differ from it in segment "
                    f"{part.segment}"
                )
        return None

    def _undecided(self, prepared: Prepared, found: str, cause: PravegaError | None = None) -> TxnOutcome:
        if self._if_forgotten != "raise":
            log.warning(
                "%s: batch %d is assumed to be %s, as configured: %s",
                self._key, prepared.batch, self._if_forgotten, found,
            )  # fmt: skip
            return TxnOutcome.WAIT if self._if_forgotten == "committed" else TxnOutcome.REWRITE
        raise TransactionUnknownError(
            f"{self._key}: batch {prepared.batch} was prepared with transaction "
            f"{prepared.txn}, of which the server has no record; {found}. So whether it was committed is "
            "unknown: inspect the stream, then set if_forgotten to 'committed' or 'aborted'",
            transaction=prepared.txn,
        ) from cause

    # --- writing --------------------------------------------------------------------------------

    def _write(
        self, batch: int, generation: int, write: Callable[[UUID], Sequence[AttemptResult]]
    ) -> tuple[Prepared, int]:
        txn = self._client.begin_transaction(self._stream, lease=self._lease)

        def claim_and_write() -> Sequence[AttemptResult]:
            self._reach("begin")
            self._append(self._claiming(batch, generation, txn.txn_id))
            self._reach("claimed")
            # Only now: a fenced driver cannot commit a transaction that is aborted here.
            self._tidy()
            self._reach("tidied")
            return write(txn.txn_id)

        return self._write_in(txn, batch, claim_and_write)

    def _claiming(self, batch: int, generation: int, txn: UUID) -> Preparing:
        return Preparing(
            **self._common,
            batch=batch,
            txn=txn,
            checkpoint=self._checkpoint,
            began=time.time_ns() // 1_000_000 if self._began is None else self._began,
            generation=generation,
        )

    def _write_in(
        self, txn: Transaction, batch: int, write: Callable[[], Sequence[AttemptResult]]
    ) -> tuple[Prepared, int]:
        """Run ``write``, then everything after it."""
        results: Sequence[AttemptResult] = ()
        try:
            self._require_last_visible()
            results = sorted(write(), key=lambda result: result.partition)
            self._reach("staged")
            winners = tuple(each.staging for each in results if each.staging is not None)
            # None of these calls has to wait for another. The cut may be taken before the merge ends, because
            # nothing of the transaction is in the stream yet. The attempts' registrations are read now, so
            # that the condition of PREPARED holds.
            merged, cut, _, _ = at_once(
                lambda: self._client.staging(self._stream, txn.txn_id).merge(winners),
                lambda: self._client.tail(self._stream),
                lambda: txn.ping(self._lease),
                self._journal.refresh,
            )
            if self._owned != self._journal.owner:
                raise self._fenced()
            contents = join_contents(each.contents for each in results)
            parts = [each.contents for each in results if each.staging is not None]
            self._check_merged(txn.txn_id, parts, merged)
            self._reach("merged")
            self._reach("lease-renewed")
            times = [each.timestamp for each in results if each.timestamp is not None]
            if times:
                # The commit would refuse them, when there is no way back any more.
                check_takes_times(
                    self._stream, (each.high for each in self._client.active_segments(self._stream))
                )
            prepared = Prepared(
                **self._common,
                batch=batch,
                txn=txn.txn_id,
                rows=sum(each.rows for each in results),
                contents=contents,
                cut=cut.to_text(),
                winners=winners,
                timestamp=max(times, default=None),
                identity=None if self._named else self._identity or rows_of(results),
            )
            self._append(prepared)
        except Exception as error:
            # Nothing was committed, so aborting is right even if PREPARED did reach the ledger.
            reason = self._withdraw(txn)
            if reason is None or isinstance(error, type(reason)):
                raise
            raise reason from error
        except BaseException:
            # Ctrl-C is no time for requests: the lease ends the transaction, or the next run does.
            txn.close()
            raise
        try:
            self._reach("prepared")
            self._commit(prepared)
        finally:
            txn.close()
        self._finish(prepared, wait=self._wait_visible)
        return prepared, sum(each.nbytes for each in results)

    def _require_last_visible(self) -> None:
        """Wait until the batch before is visible, if its own run did not.

        A controller that is killed in the middle of a commit may leave it COMMITTING for good, which nobody
        would notice otherwise.

        :raises PravegaTimeoutError: it is still COMMITTING.
        """
        state = self._journal.sink_state
        if self._wait_visible or state.last_txn is None:
            return
        try:
            self._client.wait_committed(self._stream, state.last_txn)
        except TransactionUnknownError:
            log.info("transaction %s ended so long ago that the server has forgotten it", state.last_txn)
        except PravegaError as error:
            error.add_note(
                f"It is about batch {state.last_done} of {self._key}, which is DONE; see "
                'docs/exactly-once.md, "A transaction that stays COMMITTING".'
            )
            raise

    def _check_merged(
        self, txn: UUID, parts: Sequence[Contents], merged: Mapping[int, Sequence[int]]
    ) -> None:
        """Check that the transaction contains exactly what was staged, in order, before it is committed.

        Staging segments that do not exist count as merged, because that is the case if a merge is repeated.

        :param parts: what each successful attempt has staged, in the order of the merges.
        :param merged: the length of each of the transaction's segments after each merge.
        """
        for segment_id in sorted({*merged, *(each for part in parts for each in part)}):
            staged = [part[segment_id].length if segment_id in part else 0 for part in parts]
            ends = list(accumulate(staged))
            lengths = merged.get(segment_id, ())
            found, whole = max(lengths, default=0), sum(staged)
            if found != whole:
                raise TransactionError(
                    f"{self._key}: transaction {txn} has {found} bytes in segment {segment_id}, but the "
                    f"successful attempts have staged {whole} for it; nothing was committed, and the batch "
                    "can be written again",
                    transaction=txn,
                )
            # In any other order, at least one merge ends elsewhere. A merge that was repeated, after its
            # answer was lost, has ended at the present length.
            if any(
                size and length not in (end, whole)
                for size, end, length in zip(staged, ends, lengths, strict=True)
            ):
                raise TransactionError(
                    f"{self._key}: segment {segment_id} of transaction {txn} may not have the partitions in "
                    "their order, because the segment store was replaced, or the connection to it lost, "
                    "while they were merged; nothing was committed, and the batch can be written again",
                    transaction=txn,
                )

    def _withdraw(self, txn: Transaction) -> PravegaError | None:
        """Abort a failed run and delete what it has staged; if that fails, the next run does it.

        :returns: the reason for the failure, if it is another driver or an expired lease; otherwise None.
        """
        reason: PravegaError | None = None
        try:
            try:
                status = self._client.transaction_status(self._stream, txn.txn_id).name
                if status == "OPEN":
                    txn.abort()
                else:
                    reason = TransactionAbortedError(
                        f"transaction {txn.txn_id} is {status.lower()}: its lease expired, or another "
                        "program aborted it; the batch is not visible and can be written again",
                        status=status,
                        transaction=txn.txn_id,
                    )
            finally:
                # Otherwise the lease would be renewed for as long as the client lives.
                txn.close()
            self._journal.refresh()
            if self._taken_over():
                reason = self._fenced()
            state = self._journal.sink_state
            ids = set(state.leftovers.get(txn.txn_id, ()))
            if state.claim is not None and state.claim.txn == txn.txn_id:
                ids |= state.claim.staging
            if ids:
                self._drop(txn.txn_id, ids)
        except PravegaError as error:
            log.warning("%s: not all leftovers of a failed batch are removed: %s", self._key, error)
        return reason

    def _taken_over(self) -> bool:
        """Whether another driver has changed the sink's state since this one's last record.

        A record whose append ended in an error may be there all the same; then the change is this driver's.
        """
        if self._owned in (None, self._journal.owner):
            return False
        state = self._journal.sink_state
        last = state.last_session if state.claim is None else state.claim.session
        return last != self._session

    def _fenced(self) -> FencedError:
        return FencedError(f"{self._key}: another driver has taken over, so this one must stop")

    def _finish(self, prepared: Prepared, *, wait: bool) -> None:
        if wait:
            self._client.wait_committed(self._stream, prepared.txn)
        self._reach("visible")
        done = Done(
            **self._common,
            batch=prepared.batch,
            txn=prepared.txn,
            rows=prepared.rows,
        )

        def tidied() -> Done:
            return replace(done, tidied=self._housekeep("not all of its leftovers are deleted", self._tidy))

        try:
            self._append(done, before=tidied)
        except PravegaError as error:
            # If it failed, the job would be run again and write everything again; this record is not needed.
            if not is_unnamed(self._key.query):
                raise
            log.warning("%s: the job's rows are visible, but DONE was not recorded: %s", self._key, error)
        self._tidied.clear()
        self._reach("done")

    def _append(self, record: Preparing | Prepared | Done, before: Callable[[], Done] | None = None) -> None:
        mine = self._journal.append(record, before)
        self._owned = self._journal.owner if mine else ("another driver",)

    def _tidy(self) -> bool:
        """Delete the staging segments that are not used, and abort void transactions.

        :returns: False if some are left, because a transaction has not ended yet.
        """
        state = self._journal.sink_state
        claim = state.claim
        work = {txn: set(ids) for txn, ids in state.leftovers.items()}
        # The winners of these are merged, and nobody merges the other segments.
        kept = {state.last_txn}
        if claim is not None:
            kept.add(claim.txn)
            if claim.prepared is not None:
                losers = claim.staging - set(claim.prepared.winners)
                work.setdefault(claim.txn, set()).update(losers)
        until = time.monotonic() + _END_LIMIT
        done = True
        for txn, ids in work.items():
            if txn not in kept and (txn, None) not in self._tidied:
                if not self._end(txn, until):
                    done = False
                    continue
                self._tidied.add((txn, None))
            todo = sorted(each for each in ids if (txn, each) not in self._tidied)
            if todo:
                try:
                    self._client.staging(self._stream, txn).delete(todo)
                except NotFoundError:
                    log.info("the stream of transaction %s no longer exists, nor do its segments", txn)
                self._tidied.update((txn, each) for each in todo)
        return done

    def _drop(self, txn: UUID, ids: Set[UUID]) -> None:
        """End a transaction that will not be committed, and delete what was staged for it."""
        if self._end(txn, time.monotonic() + _END_LIMIT) and ids:
            self._client.staging(self._stream, txn).delete(sorted(ids))

    def _end(self, txn: UUID, until: float) -> bool:
        """Abort a transaction if it is open, and wait until it has ended; a second call does not wait.

        A merge may still be in progress in the store, although its driver has given up or died. Deleting a
        segment that is being merged may stop a container of the store (``docs/protocol/unforgiving.md``).

        :param txn: id of the transaction.
        :param until: the :func:`time.monotonic` time until which to wait.
        :returns: whether it has ended, so that its staging segments can be deleted.
        """
        pause = _FIRST_LOOK
        while True:
            status = self._client.transaction_status(self._stream, txn).name
            if status in _ENDED:
                return True
            if status == "OPEN":
                try:
                    self._client.abort_transaction(self._stream, txn)
                except TransactionError:
                    log.info("transaction %s has already ended", txn)
            left = 0 if txn in self._late else until - time.monotonic()
            if left <= 0:
                self._late.add(txn)
                log.info(
                    "%s: transaction %s is still %s, so its leftovers are deleted later",
                    self._key, txn, status,
                )  # fmt: skip
                return False
            time.sleep(min(pause, left))
            pause *= 1.5

    def _reach(self, step: str) -> None:
        if self._hook is not None:
            self._hook(step)
