"""Exactly once where nobody on the driver runs before the tasks: they elect the transaction.

A data source of PySpark has no code on the driver that knows the batch before its tasks start. So the first
task attempt claims the batch for its driver, through the ledger; the others take up the transaction of that
claim; and the driver goes on from ``staged`` (:data:`~spark_adapter.commit.STEPS`) when Spark hands it what
the attempts reported. The records are those of :class:`~spark_adapter.commit.BatchCommitter`.

Attempts of one run of a query share its session. One that finds its session among those whose claim is void
belongs to a driver that was overtaken, and is refused. Safety does not depend on it: each record but STAGING
is appended on the condition that its author knows everything before it.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self
from uuid import UUID

from pravega_wire.errors import (
    FencedError,
    NotFoundError,
    PravegaError,
    TransactionAbortedError,
    TransactionError,
)
from spark_adapter import commit
from spark_adapter.commit import AttemptResult, BatchCommitter, BatchReport, Transaction
from spark_adapter.journal import Journal
from spark_adapter.ledger import (
    AlreadyDone,
    Claim,
    Forget,
    NeverHeardOf,
    Resume,
    SinkKey,
    SinkState,
    TxnOutcome,
    decide,
    is_unnamed,
)

__all__ = [
    "Attempted",
    "Client",
    "ElectedCommitter",
    "HeldTransaction",
    "sweep",
]

log = logging.getLogger(__name__)


class Client(commit.Client, Protocol):
    """What is needed of ``pravega_wire.sync.PravegaClient``."""

    def ping_transaction(self, stream: Any, txn_id: UUID, /, *, lease_ms: int) -> bool: ...


@dataclass(frozen=True, slots=True)
class Attempted:
    """What became of one task attempt.

    :ivar outcome: ``written``; ``empty``: there were no rows; ``skipped``: the batch is visible already.
    :ivar result: what was written. :ivar txn: what it was staged for; only with ``exactly_once``.
    """

    outcome: Literal["written", "empty", "skipped"]
    result: AttemptResult | None = None
    txn: UUID | None = None


class HeldTransaction:
    """An open transaction that another process may have begun; its lease is kept up until :meth:`close`.

    The lease is renewed now, and by a thread after that. Without writing, this takes one call where
    ``PravegaClient.transaction`` takes two and does not renew.

    :raises TransactionAbortedError: the transaction is not open any more.
    """

    def __init__(self, client: Client, stream: Any, txn_id: UUID, lease_ms: int) -> None:
        self._client = client
        self._stream = stream
        self._txn_id = txn_id
        self._lease_ms = lease_ms
        self._closed = threading.Event()
        self.ping()
        threading.Thread(target=self._keep_alive, name=f"lease of {txn_id}", daemon=True).start()

    @property
    def txn_id(self) -> UUID:
        """Its id."""
        return self._txn_id

    def ping(self, lease_ms: int | None = None) -> None:
        """Renew the lease now; errors as the class."""
        if not self._client.ping_transaction(self._stream, self._txn_id, lease_ms=lease_ms or self._lease_ms):
            raise TransactionAbortedError(
                f"transaction {self._txn_id} on {self._stream} is not open any more: its lease of "
                f"{self._lease_ms} ms (transaction_timeout_ms) ran out, or somebody ended it",
                status=None,
                transaction=self._txn_id,
            )

    def abort(self) -> None:
        """Drop what is in it."""
        self.close()
        self._client.abort_transaction(self._stream, self._txn_id)

    def close(self) -> None:
        """Stop renewing the lease; again is harmless, and a renewal that is under way is not waited for."""
        self._closed.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _keep_alive(self) -> None:
        lease = self._lease_ms / 1000
        while not self._closed.wait(lease / max(1.0, math.sqrt(lease))):
            try:
                self.ping()
            except TransactionError as error:
                if not self._closed.is_set():
                    log.warning("%s", error)
                return
            except PravegaError as error:
                # the lease outlasts several tries; the commit will say if it did not
                log.info("transaction %s was not renewed this time: %s", self._txn_id, error)


class ElectedCommitter(BatchCommitter):
    """The protocol in parts: :meth:`claim` in each task attempt, the others on the driver.

    Arguments and ``hook`` as :class:`BatchCommitter`; ``session`` is that of the run the attempt belongs to.
    """

    _client: Client

    # --- in a task attempt ----------------------------------------------------------------------

    def claim(self, batch: int, patience: float = 0) -> UUID | None:
        """The transaction that the batch is to be staged for; hold it while writing (:meth:`hold`).

        None if the batch is visible, or was PREPARED by an earlier run and has been finished here. The first
        attempt of a run that comes here begins the transaction and removes what void claims left.

        :param patience: seconds to wait for another attempt's claim before this one makes its own.
        :raises FencedError: another driver has taken over from the one this attempt works for.
        :raises InvalidArgumentError: the ledger has never heard of the sink; see :meth:`BatchCommitter.run`.
        :raises TransactionUnknownError: as there.
        """
        own: Transaction | None = None
        until = time.monotonic() + patience
        try:
            while True:
                self._journal.refresh()
                state = self._journal.sink_state
                self._require_not_overtaken(state)
                decision = decide(state, batch, self._checkpoint, new_ledger=self._new_ledger)
                if isinstance(decision, NeverHeardOf):
                    raise self._never_heard_of(batch)
                if isinstance(decision, AlreadyDone):
                    return None
                held = state.claim
                if isinstance(decision, Resume):
                    if self._resume(decision.prepared):
                        return None
                    # its transaction is lost, and with it the claim of whoever prepared it
                elif held is not None and held.session == self._session and held.batch == batch:
                    if own is None or held.txn != own.txn_id:
                        return held.txn
                    # the offer below was taken, and its answer lost
                    elected, own = own, None
                    return self._elected(elected)
                self._require_newest(held)
                if own is None:
                    if self._journal.wait_for_news(until - time.monotonic()):
                        continue
                    own = self._client.begin_transaction(self._stream, lease_ms=self._lease_ms)
                    self._reach("begin")
                offered, own = own, None
                try:
                    taken = self._journal.offer(self._claiming(batch, offered.txn_id))
                except BaseException:
                    # the claim may be in the ledger: then the next attempt goes on with its transaction
                    offered.close()
                    raise
                if taken:
                    return self._elected(offered)
                own = offered
        finally:
            if own is not None:
                self._give_up(own)

    def _elected(self, txn: Transaction) -> UUID:
        try:
            self._reach("claimed")
            self._tidy()
            self._reach("tidied")
        finally:
            # whoever writes for it holds it; if this attempt fails here, another one goes on with the claim
            txn.close()
        return txn.txn_id

    def _require_not_overtaken(self, state: SinkState) -> None:
        """Refuse to go on behind another driver.

        What it wrote as a later batch may have other rows than this driver's batch of that number.
        """
        if self._session in state.overtaken:
            raise self._fenced()

    def _require_newest(self, held: Claim | None) -> None:
        """Refuse to take a batch from a driver that has begun later.

        Clocks only decide who gives way: whoever claims is safe by the ledger's conditions.
        """
        if held is None or held.session == self._session:
            return
        if self._session in held.void:
            raise self._fenced()
        mine, others = self._began, held.began
        if mine is not None and others is not None and mine < others:
            raise FencedError(
                f"{self._key}: another driver has taken over: {held.session} has claimed batch {held.batch}, "
                f"and began {(others - mine) / 1000} s after this one by their clocks",
                transaction=held.txn,
            )

    def require_claim(self, txn_id: UUID) -> None:
        """Make sure that what has just been made for a transaction will be found by whoever ends it.

        What is made once its batch is finished belongs to nothing, and has to be deleted by who made it.

        :raises FencedError: the batch is finished or about to be, or another driver has taken over.
        """
        self._journal.refresh()
        held = self._journal.sink_state.claim
        if held is None or held.txn != txn_id or held.prepared is not None:
            raise FencedError(
                f"{self._key}: nothing more can be staged for transaction {txn_id}: another attempt has "
                "finished its work, or another driver has taken over",
                transaction=txn_id,
            )

    def hold(self, txn_id: UUID) -> HeldTransaction:
        """Keep the lease of a claimed transaction up.

        :raises TransactionAbortedError: it is lost; the batch fails, and another run writes it.
        """
        return HeldTransaction(self._client, self._stream, txn_id, self._lease_ms)

    def _give_up(self, txn: Transaction) -> None:
        """End a transaction that no record names; if that fails, its lease ends it."""
        try:
            txn.abort()
        except PravegaError as error:
            log.info("%s: %s is left to its lease: %s", self._key, txn.txn_id, error)

    # --- on the driver --------------------------------------------------------------------------

    def settle(self, batch: int, attempts: Iterable[Attempted]) -> BatchReport:
        """Make the batch visible, whatever part of that is done already.

        :param attempts: one for each partition.
        :raises TransactionError: the attempts have not all written for one transaction.
        """
        attempts = list(attempts)
        wrote = {each.txn for each in attempts if each.txn is not None}
        skipped = any(each.outcome == "skipped" for each in attempts)
        if len(wrote) > 1 or (wrote and skipped):
            raise TransactionError(
                f"{self._key}: batch {batch} changed hands while its tasks ran: some have written for "
                f"{' and '.join(sorted(map(str, wrote)))}, others found another transaction. Run it again"
            )
        if wrote:
            results = [each.result for each in attempts if each.result is not None]
            return self.complete(batch, wrote.pop(), results)
        return self.finish(batch) if skipped else self.note_empty(batch)

    def complete(self, batch: int, txn_id: UUID, results: Sequence[AttemptResult]) -> BatchReport:
        """Make visible what the attempts have staged. Again is harmless.

        :param txn_id: the transaction they staged it for. :param results: of one attempt of each partition.
        :raises FencedError: another driver has taken over since.
        :raises TransactionError: the transaction was lost; nothing is visible, run the batch again.
        """
        started = time.monotonic()
        self._journal.refresh()
        state = self._journal.sink_state
        held, nbytes = state.claim, 0
        outcome: Literal["written", "recovered"] = "written"
        if held is None or held.txn != txn_id:
            if state.last_txn != txn_id:
                raise self._fenced()
            return BatchReport(batch, "skipped", txn=txn_id, seconds=time.monotonic() - started)
        self._owned = self._journal.owner
        if held.prepared is not None:
            if not self._resume(held.prepared):
                raise TransactionAbortedError(
                    f"{self._key}: transaction {txn_id} of batch {batch} was aborted after PREPARED: nothing "
                    "of it is visible, and the next run writes it again",
                    status="ABORTED",
                    transaction=txn_id,
                )
            prepared, outcome = held.prepared, "recovered"
        else:
            with self.hold(txn_id) as txn:
                prepared, nbytes = self._write_in(txn, batch, lambda: results)
        self._housekeep("the ledger is not made short", self._journal.compact)
        seconds = time.monotonic() - started
        return BatchReport(batch, outcome, prepared.rows, nbytes, txn_id, seconds)

    def finish(self, batch: int) -> BatchReport:
        """See to a batch that every attempt found visible, or finished.

        :raises TransactionError: it is not DONE after all.
        """
        self._journal.refresh()
        last = self._journal.sink_state.last_done
        if last is None or last < batch:
            raise TransactionError(f"{self._key}: no task wrote batch {batch}, and it is not DONE")
        self._is_done(batch, last)
        return BatchReport(batch, "skipped")

    def note_empty(self, batch: int) -> BatchReport:
        """See to a batch without rows: the first one makes the sink known to the ledger.

        One that an earlier run has begun, with rows, is finished if it was PREPARED.

        :raises FencedError: another driver has taken over.
        :raises InvalidArgumentError: as :meth:`BatchCommitter.run`.
        """
        self._journal.refresh()
        state = self._journal.sink_state
        self._require_not_overtaken(state)
        if state.last_done is not None and batch <= state.last_done:
            return self.finish(batch)
        self._require_newest(state.claim)
        if state.claim is not None or (state.is_blank and not is_unnamed(self._key.query)):
            return self.run(batch, lambda txn: ())
        return BatchReport(batch, "written")

    def withdraw(self, txn_id: UUID) -> bool:
        """Undo a batch that will not be completed; returns whether there was anything to undo.

        What is PREPARED or DONE, or of another driver, is left alone.
        """
        self._journal.refresh()
        held = self._journal.sink_state.claim
        if held is None or held.prepared is not None:
            return False
        if (held.txn, held.session) != (txn_id, self._session):
            return False
        self._abort_if_open(txn_id)
        if held.staging:
            self._client.delete_staging(self._stream, txn_id, sorted(held.staging))
        return True

    def is_prepared(self, txn_id: UUID) -> bool:
        """Whether the ledger has PREPARED or DONE for a transaction: it may be committed."""
        self._journal.refresh()
        state = self._journal.sink_state
        held = state.claim
        return state.last_txn == txn_id or (
            held is not None and held.txn == txn_id and held.prepared is not None
        )

    def forget(self, batch: int, txn_id: UUID) -> None:
        """Drop the history of a job that nobody will ask for again.

        If staging segments are left that could not be deleted, it stays until :func:`sweep` deletes them.
        """
        self._journal.refresh()
        if self._journal.sink_state.leftovers:
            return
        self._journal.write(Forget(**self._common, batch=batch, txn=txn_id))


def sweep(client: Client, stream: Any, journal: Journal) -> int:
    """Remove what unnamed jobs to the journal's stream left when their drivers died; returns how many.

    A job that may still be at work is left alone: its transaction is open, or committed while its driver has
    yet to say so. What cannot be removed now is left to a later job.
    """
    journal.refresh()
    swept = 0
    for key, state in journal.state.sinks.items():
        if key == journal.key or key.stream != journal.key.stream or not is_unnamed(key.query):
            continue
        try:
            swept += _sweep_job(client, stream, journal, key, state)
        except PravegaError as error:
            log.warning("%s: what it left cannot be removed now: %s", key, error)
    return swept


def _sweep_job(client: Client, stream: Any, journal: Journal, key: SinkKey, state: SinkState) -> bool:
    def outcome_of(txn: UUID) -> TxnOutcome:
        return TxnOutcome.of(client.transaction_status(stream, txn).name)

    claim = state.claim
    work = {txn: set(ids) for txn, ids in state.leftovers.items()}
    if any(outcome_of(txn) is TxnOutcome.COMMIT for txn in work):
        return False
    if claim is not None:
        if outcome_of(claim.txn) in (TxnOutcome.COMMIT, TxnOutcome.WAIT):
            return False
        losers = claim.staging - set(() if claim.prepared is None else claim.prepared.winners)
        work.setdefault(claim.txn, set()).update(losers)
    for txn, ids in work.items():
        if ids:
            try:
                client.delete_staging(stream, txn, sorted(ids))
            except NotFoundError:
                log.info("the stream of transaction %s is gone, and its segments with it", txn)
    last = next(iter(work), state.last_txn)
    if last is None:
        return False
    session = claim.session if claim is not None else last
    journal.write(
        Forget(query=key.query, stream=key.stream, sink=key.sink, batch=0, txn=last, session=session)
    )
    return True
