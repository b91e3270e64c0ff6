"""Exactly-once writes without driver code before the tasks: the task attempts elect the transaction.

A PySpark data source runs no code on the driver that knows the batch before its tasks start. So the first
task attempt claims the batch for its driver, through the ledger, and the others use the transaction of that
claim. The driver continues after ``staged`` (:data:`~spark_adapter.exactly_once.driver.STEPS`), when Spark
passes it the reports of the attempts. The records are those of
:class:`~spark_adapter.exactly_once.driver.BatchCommitter`.

All attempts of one run of a query have the same session. If an attempt finds its session among those whose
claim is void, another driver has taken over from its driver, and the attempt is rejected. Safety does not
depend on that: each record except STAGING is appended on condition that its author has read everything before
it.
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
    OlderCheckpointError,
    PravegaError,
    TransactionAbortedError,
    TransactionError,
)
from spark_adapter.exactly_once import driver
from spark_adapter.exactly_once.contents import AttemptResult
from spark_adapter.exactly_once.driver import BatchCommitter, BatchReport, Transaction, rows_of
from spark_adapter.exactly_once.journal import Journal
from spark_adapter.exactly_once.ledger import (
    AlreadyDone,
    Claim,
    CompareRows,
    Forget,
    Older,
    Resume,
    SinkKey,
    SinkState,
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


class Client(driver.Client, Protocol):
    """The part of ``pravega_wire.sync.PravegaClient`` that is used here."""

    def ping_transaction(self, stream: Any, txn_id: UUID, /, *, lease: float) -> bool: ...


@dataclass(frozen=True, slots=True)
class Attempted:
    """The outcome of one task attempt.

    :ivar outcome: ``written``, ``empty`` (there were no rows), ``skipped`` (the batch is already visible) or
        ``counted`` (it may be: the driver compares what was counted with what the ledger has).
    :ivar result: the report of the written data, or None.
    :ivar txn: id of the transaction that the data was staged for; only with ``exactly_once``.
    """

    outcome: Literal["written", "empty", "skipped", "counted"]
    result: AttemptResult | None = None
    txn: UUID | None = None


class HeldTransaction:
    """An open transaction, perhaps begun by another process, whose lease is renewed until :meth:`close`.

    The lease is renewed once by the constructor, and then by a thread. If nothing is written, this takes one
    call, while ``PravegaClient.resume_transaction`` takes two and does not renew the lease.

    :param client: the client to use.
    :param stream: stream of the transaction.
    :param txn_id: id of the transaction.
    :param lease: the lease in seconds.
    :raises TransactionAbortedError: the transaction is no longer open.
    """

    def __init__(self, client: Client, stream: Any, txn_id: UUID, lease: float) -> None:
        self._client = client
        self._stream = stream
        self._txn_id = txn_id
        self._lease = lease
        self._closed = threading.Event()
        self.ping()
        threading.Thread(target=self._keep_alive, name=f"lease of {txn_id}", daemon=True).start()

    @property
    def txn_id(self) -> UUID:
        """The id of the transaction."""
        return self._txn_id

    def ping(self, lease: float | None = None) -> None:
        """Renew the lease now.

        :param lease: the lease in seconds; default: that of the constructor.
        :raises TransactionAbortedError: the transaction is no longer open.
        """
        if not self._client.ping_transaction(self._stream, self._txn_id, lease=lease or self._lease):
            raise TransactionAbortedError(
                f"transaction {self._txn_id} on {self._stream} is no longer open: its lease of "
                f"{self._lease:g} s (transaction_timeout_ms) expired, or another program ended it",
                status=None,
                transaction=self._txn_id,
            )

    def abort(self) -> None:
        """Abort the transaction: its data is dropped."""
        self.close()
        self._client.abort_transaction(self._stream, self._txn_id)

    def close(self) -> None:
        """Stop renewing the lease.

        This does not wait for a renewal in progress. Calling it again has no effect.
        """
        self._closed.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _keep_alive(self) -> None:
        lease = self._lease
        while not self._closed.wait(lease / max(1.0, math.sqrt(lease))):
            try:
                self.ping()
            except TransactionAbortedError as error:
                if not self._closed.is_set():
                    log.warning("%s", error)
                return
            except PravegaError as error:
                # A controller that is shutting down refuses too. The lease outlasts several attempts; if it
                # does expire, the commit reports that.
                log.info("transaction %s was not renewed this time: %s", self._txn_id, error)


class ElectedCommitter(BatchCommitter):
    """The protocol in parts: :meth:`claim` in each task attempt, the other methods on the driver.

    The arguments are those of :class:`BatchCommitter`; ``session`` is that of the run to which the attempt
    belongs.
    """

    _client: Client

    # --- in a task attempt ----------------------------------------------------------------------

    def claim(self, batch: int, patience: float = 0) -> UUID | Literal["skip", "count"]:
        """Return the id of the transaction for the batch's staged data; hold it while writing (:meth:`hold`).

        The first attempt of a run that calls this begins the transaction, and removes the leftovers of void
        claims.

        :param batch: number of the batch.
        :param patience: seconds to wait for another attempt's claim before this attempt makes its own.
        :returns: the id; ``skip`` if the batch is visible, or was PREPARED by an earlier run and has been
            finished here; ``count`` if its number is, and only the rows can show whether it is the same.
        :raises FencedError: another driver has taken over from this attempt's driver.
        :raises OlderCheckpointError: see :meth:`BatchCommitter.run`.
        :raises InvalidArgumentError: the ledger has no record of the sink; see :meth:`BatchCommitter.run`.
        :raises TransactionUnknownError: see :meth:`BatchCommitter.run`.
        """
        until = time.monotonic() + patience
        own: Transaction | None = None
        # Whether the ledger has, or may have, this attempt's claim with its own transaction.
        claimed = False
        self._identity = self._planned(batch)
        try:
            while True:
                self._journal.refresh()
                state = self._journal.sink_state
                self._require_not_overtaken(state)
                decision = self._decide(batch, self._identity)
                if isinstance(decision, AlreadyDone):
                    return "skip"
                if isinstance(decision, CompareRows):
                    return "count"
                held, generation = state.claim, state.generation
                if isinstance(decision, Resume):
                    if self._resume(decision.prepared):
                        continue
                    # Its transaction is lost, and with it the claim of the driver that prepared it.
                elif isinstance(decision, Older):
                    generation = self._next_generation(batch, decision)
                elif held is not None and held.session == self._session and held.batch == batch:
                    if own is None or held.txn != own.txn_id:
                        return held.txn
                    # The offer below was accepted, but its reply was lost.
                    claimed = True
                    break
                self._require_newest(self._journal.sink_state.claim)
                if own is None:
                    if self._journal.wait_for_news(until - time.monotonic()):
                        continue
                    own = self._client.begin_transaction(self._stream, lease=self._lease)
                    self._reach("begin")
                claimed = True  # if the offer ends in an error, it may be in the ledger
                claimed = self._journal.offer(self._claiming(batch, generation, own.txn_id))
                if claimed:
                    break
            self._reach("claimed")
            self._tidy()
            self._reach("tidied")
            return own.txn_id
        finally:
            if own is not None and claimed:
                # Each writer holds it; if this attempt fails here, another one continues with the claim.
                own.close()
            elif own is not None:
                self._give_up(own)

    def _require_not_overtaken(self, state: SinkState) -> None:
        """Check that no other driver has taken over.

        A batch that it has written may have other rows than this driver's batch with the same number.
        """
        if self._session in state.overtaken:
            raise self._fenced()

    def _require_newest(self, held: Claim | None) -> None:
        """Check that the batch is not claimed by a driver that has started later.

        Clocks decide only which driver stops; a claim is safe in any case, because of the ledger's
        conditions.
        """
        if held is None or held.session == self._session:
            return
        if self._session in held.void:
            raise self._fenced()
        mine, others = self._began, held.began
        if mine is not None and others is not None and mine < others:
            raise FencedError(
                f"{self._key}: another driver has taken over, so this one must stop: {held.session} has "
                f"claimed batch {held.batch}, and started {(others - mine) / 1000} s after this one by "
                "their clocks",
                transaction=held.txn,
            )

    def require_claim(self, txn_id: UUID) -> None:
        """Check that new staging segments will be found by the process that ends their transaction.

        Call it after creating them.

        Segments that are created after the batch has finished are not used, and their creator has to delete
        them.

        :param txn_id: id of the transaction.
        :raises FencedError: the batch is finished or about to be, or another driver has taken over.
        """
        self._journal.refresh()
        held = self._journal.sink_state.claim
        if held is None or held.txn != txn_id or held.prepared is not None:
            raise FencedError(
                f"{self._key}: no more data can be staged for transaction {txn_id}: another attempt has "
                "finished the partition, or another driver has taken over",
                transaction=txn_id,
            )

    def hold(self, txn_id: UUID) -> HeldTransaction:
        """Keep renewing the lease of a claimed transaction.

        :param txn_id: id of the transaction.
        :raises TransactionAbortedError: the transaction is lost; the batch fails, and another run writes it.
        """
        return HeldTransaction(self._client, self._stream, txn_id, self._lease)

    def _give_up(self, txn: Transaction) -> None:
        """Abort a transaction that is in no record; if that fails, it ends when its lease expires."""
        try:
            txn.abort()
        except PravegaError as error:
            log.info("%s: transaction %s will end with its lease: %s", self._key, txn.txn_id, error)

    # --- on the driver --------------------------------------------------------------------------

    def settle(self, batch: int, attempts: Iterable[Attempted]) -> BatchReport:
        """Make the batch visible; steps that are already done are skipped.

        :param batch: number of the batch.
        :param attempts: the outcome of one attempt for each partition.
        :raises TransactionError: the attempts have written for different transactions.
        """
        attempts = list(attempts)
        self._identity = self._planned(batch)
        wrote = {each.txn for each in attempts if each.txn is not None}
        skipped = any(each.outcome in ("skipped", "counted") for each in attempts)
        if len(wrote) > 1 or (wrote and skipped):
            raise TransactionError(
                f"{self._key}: another driver claimed batch {batch} while its tasks ran: some tasks have "
                f"written for {' and '.join(sorted(map(str, wrote)))}, others found another transaction. "
                "Run it again"
            )
        results = [each.result for each in attempts if each.result is not None]
        if wrote:
            return self.complete(batch, wrote.pop(), results)
        if any(each.outcome == "counted" for each in attempts):
            return self.compare(batch, results)
        return self.finish(batch) if skipped else self.note_empty(batch)

    def complete(self, batch: int, txn_id: UUID, results: Sequence[AttemptResult]) -> BatchReport:
        """Make the staged data of the attempts visible. Calling it again has no effect.

        :param batch: number of the batch.
        :param txn_id: id of the transaction that the data was staged for.
        :param results: the results of one attempt for each partition.
        :raises FencedError: another driver has taken over since.
        :raises OlderCheckpointError: the batch before is another one than the checkpoint's.
        :raises TransactionError: the transaction was lost; nothing is visible, so run the batch again.
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
        if state.last_session != self._session:
            self._check_line(batch)
        self._owned = self._journal.owner
        if held.prepared is not None:
            if not self._resume(held.prepared):
                raise TransactionAbortedError(
                    f"{self._key}: transaction {txn_id} of batch {batch} was aborted after PREPARED: none "
                    "of its rows are visible, and the next run writes it again",
                    status="ABORTED",
                    transaction=txn_id,
                )
            prepared, outcome = held.prepared, "recovered"
        else:
            with self.hold(txn_id) as txn:
                prepared, nbytes = self._write_in(txn, batch, lambda: results)
        self._housekeep("the ledger is not compacted", self._journal.compact)
        seconds = time.monotonic() - started
        return BatchReport(batch, outcome, prepared.rows, nbytes, txn_id, seconds)

    def finish(self, batch: int) -> BatchReport:
        """Finish a batch that every attempt found visible or finished.

        :param batch: number of the batch.
        :raises TransactionError: the batch is not DONE after all.
        """
        self._journal.refresh()
        last = self._journal.sink_state.last_of_generation
        if last is None or last < batch:
            raise TransactionError(
                f"{self._key}: no task wrote batch {batch}, but it is not DONE either; run it again"
            )
        self._is_done()
        return BatchReport(batch, "skipped")

    def compare(self, batch: int, results: Sequence[AttemptResult]) -> BatchReport:
        """Finish a batch of which every attempt has counted the rows.

        :param batch: number of the batch.
        :param results: the results of one attempt for each partition.
        :raises OlderCheckpointError: these rows are not those that were written. With ``continue_at`` the
            next run writes them.
        :raises TransactionError: the batch is not DONE after all.
        """
        self._journal.refresh()
        decision = self._decide(batch, rows_of(results))
        if isinstance(decision, Older):
            generation = self._next_generation(batch, decision)
            # The tasks have written nothing. The next run finds this claim, and takes the batch from it.
            txn = self._client.begin_transaction(self._stream, lease=self._lease)
            try:
                self._append(self._claiming(batch, generation, txn.txn_id))
            finally:
                self._give_up(txn)
            raise OlderCheckpointError(
                f"{self._key}: batch {batch} was not written yet, because its tasks could not know that it "
                f"is another one than the ledger's ({decision.why}): start the query again",
                batch=batch,
            )
        return self.finish(batch)

    def note_empty(self, batch: int) -> BatchReport:
        """Finish a batch without rows; the first one creates the sink's records in the ledger.

        A batch that an earlier run has started, with rows, is finished if it was PREPARED.

        :param batch: number of the batch.
        :raises FencedError: another driver has taken over.
        :raises InvalidArgumentError, OlderCheckpointError: as for :meth:`BatchCommitter.run`.
        """
        self._journal.refresh()
        state = self._journal.sink_state
        self._require_not_overtaken(state)
        last = state.last_of_generation
        known = last is not None and batch <= last
        if not known:
            self._require_newest(state.claim)
        if (
            known
            or state.claim is not None
            or (state.is_blank and not is_unnamed(self._key.query))
            # In a copy of the checkpoint this batch may have rows. Its record shows the copy that another
            # checkpoint has used the number. Where the checkpoint can be read, _check_line does.
            or (self._checkpoint is not None and self._identity is None)
        ):
            return self.run(batch, lambda txn: ())
        if state.last_session != self._session:
            self._check_line(batch)
        return BatchReport(batch, "written")

    def withdraw(self, txn_id: UUID) -> bool:
        """Undo a batch that will not be completed.

        A batch that is PREPARED or DONE, or another driver's, is not changed.

        :param txn_id: id of the batch's transaction.
        :returns: True if there was anything to undo.
        """
        self._journal.refresh()
        held = self._journal.sink_state.claim
        if held is None or held.prepared is not None:
            return False
        if (held.txn, held.session) != (txn_id, self._session):
            return False
        self._drop(txn_id, held.staging)
        return True

    def is_prepared(self, txn_id: UUID) -> bool:
        """Return True if the ledger has PREPARED or DONE for a transaction, so that it may be committed.

        :param txn_id: id of the transaction.
        """
        self._journal.refresh()
        state = self._journal.sink_state
        held = state.claim
        return state.last_txn == txn_id or (
            held is not None and held.txn == txn_id and held.prepared is not None
        )

    def forget(self, batch: int, txn_id: UUID) -> None:
        """Remove the records of a job that will not be needed again.

        If some staging segments could not be deleted, the records stay until :func:`sweep` deletes those
        segments.

        :param batch: number of the batch.
        :param txn_id: id of its transaction.
        """
        self._journal.refresh()
        if self._journal.sink_state.leftovers:
            return
        self._journal.write(Forget(**self._common, batch=batch, txn=txn_id))


def sweep(client: Client, stream: Any, journal: Journal) -> int:
    """Remove the leftovers of unnamed jobs to the journal's stream whose drivers have died.

    A job that may still be running is not changed: its transaction is open, or it is committed and its driver
    has not recorded that yet. Leftovers that cannot be removed now are left to a later job.

    :param client: the client to use.
    :param stream: the stream.
    :param journal: the ledger.
    :returns: the number of jobs whose leftovers were removed.
    """
    journal.refresh()
    swept = 0
    for key, state in journal.state.sinks.items():
        if key == journal.key or key.stream != journal.key.stream or not is_unnamed(key.query):
            continue
        try:
            swept += _sweep_job(client, stream, journal, key, state)
        except PravegaError as error:
            log.warning("%s: its leftovers cannot be removed now: %s", key, error)
    return swept


def _sweep_job(client: Client, stream: Any, journal: Journal, key: SinkKey, state: SinkState) -> bool:
    def status_of(txn: UUID) -> str:
        return str(client.transaction_status(stream, txn).name)

    claim = state.claim
    work = {txn: set(ids) for txn, ids in state.leftovers.items()}
    # A merge may be in progress until an aborted transaction has ended.
    if any(status_of(txn) in ("OPEN", "ABORTING") for txn in work):
        return False
    if claim is not None:
        if status_of(claim.txn) not in ("ABORTED", "UNKNOWN"):
            return False
        losers = claim.staging - set(() if claim.prepared is None else claim.prepared.winners)
        work.setdefault(claim.txn, set()).update(losers)
    for txn, ids in work.items():
        if ids:
            try:
                client.staging(stream, txn).delete(sorted(ids))
            except NotFoundError:
                log.info("the stream of transaction %s no longer exists, nor do its segments", txn)
    last = next(iter(work), state.last_txn)
    if last is None:
        return False
    session = claim.session if claim is not None else last
    journal.write(
        Forget(query=key.query, stream=key.stream, sink=key.sink, batch=0, txn=last, session=session)
    )
    return True
