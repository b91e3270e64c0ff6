"""The writers of ``DataFrame.write.format("pravega")`` and ``writeStream.format("pravega")``.

Spark creates these writers in several processes: when it plans a batch, in the tasks (pickled) and, for a
streaming query, again for the commit. So they contain only options, and the tasks send what the commit needs
in their messages.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Self, TypeVar
from uuid import UUID, uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StringType, StructType

from pravega_wire import ScopedStream
from pravega_wire.errors import (
    InvalidArgumentError,
    MissingExtraError,
    NotFoundError,
    PravegaError,
    ScopeNotFoundError,
    TransactionError,
)
from pravega_wire.sync import RevisionedStream
from spark_adapter.clients import HeldClient, client_for
from spark_adapter.exactly_once.contents import AttemptResult
from spark_adapter.exactly_once.driver import BatchReport
from spark_adapter.exactly_once.election import Attempted, ElectedCommitter, sweep
from spark_adapter.exactly_once.identity import PlannedBatch, local_entry, local_path, newest_entry
from spark_adapter.exactly_once.journal import Journal, open_ledger
from spark_adapter.exactly_once.ledger import SinkKey, job_query, unnamed_query
from spark_adapter.options.creating import ensure_stream
from spark_adapter.options.streams import NO_TABLE
from spark_adapter.options.write import EVENT, KEY, TIME, WriteOptions, require_column
from spark_adapter.writing.partition import PartitionWriter, decode_result
from spark_adapter.writing.routed import write_routed

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:  # PySpark 4.0
    DataSourceStreamArrowWriter = None

__all__ = ["BatchSink", "StreamSink", "batch_sink", "stream_sink"]

log = logging.getLogger(__name__)

_T = TypeVar("_T")

_NO_OVERWRITE = (
    "a stream is append-only, so format 'pravega' cannot overwrite one. To append to the existing data use "
    "{append}. To start over, write to a new stream, or truncate this one first "
    "(PravegaClient.truncate_stream)"
)


_ADVICE = (
    "COMMITTING and COMMITTED mean that the rows are visible, or will be shortly; ABORTING and ABORTED mean "
    "that none will become visible, so the job can be run again; OPEN means that commit_transaction makes "
    "them visible, and that they are dropped if it is not called before the lease expires. A job with a "
    "job_id can always be run again"
)


def batch_sink(options: dict[str, str], schema: StructType, overwrite: bool) -> BatchSink:
    """Return the writer of ``DataFrame.write``.

    :param options: the options as Spark passes them.
    :param schema: the DataFrame's schema.
    :param overwrite: whether the mode is ``overwrite``.
    :raises InvalidArgumentError: options or columns are wrong, or the mode is ``overwrite``.
    """
    if overwrite:
        raise InvalidArgumentError(_NO_OVERWRITE.format(append='mode("append")'))
    return BatchSink(_Plan.of(WriteOptions.parse(options, "write"), schema))


def stream_sink(options: dict[str, str], schema: StructType, overwrite: bool) -> StreamSink:
    """Return the writer of ``DataFrame.writeStream``.

    :param options: the options as Spark passes them.
    :param schema: the DataFrame's schema.
    :param overwrite: whether the output mode is ``complete``.
    :raises InvalidArgumentError: options or columns are wrong, the output mode is ``complete``, the query
        reads the stream, or it has no fixed location for its checkpoint (``exactly_once``).
    :raises MissingExtraError: PySpark is older than 4.1.
    """
    if DataSourceStreamArrowWriter is None:
        raise MissingExtraError(
            'writeStream.format("pravega") needs PySpark 4.1 or newer: use '
            "writeStream.foreachBatch(spark_adapter.ForeachBatchSink(config, stream, ...)), or SinkPerStream "
            "where rows name their streams"
        )
    if overwrite:
        raise InvalidArgumentError(_NO_OVERWRITE.format(append='outputMode("append")'))
    parsed = WriteOptions.parse(options, "writeStream")
    given = {name.lower(): value for name, value in options.items() if value}
    # Spark stores the entry of a batch before it plans the batch.
    checkpoint = given.get("checkpointlocation")
    newest = newest_entry(checkpoint)
    planned = None if newest is None else local_entry(checkpoint, newest)
    parsed.require_other_stream(planned)
    plan = replace(
        _Plan.of(parsed, schema),
        checkpoint=checkpoint,
        name=given.get("queryname"),
        newest=newest,
        planned=planned,
    )
    found_again = parsed.query is not None or given.keys() & {"checkpointlocation", "queryname"}
    if parsed.mode == "exactly_once" and not found_again:
        # With spark.sql.streaming.checkpointLocation alone, such a query gets a new checkpoint at each start.
        raise InvalidArgumentError(
            f"semantic 'exactly_once' to stream {parsed.stream} needs the option checkpointLocation or a "
            "queryName: without either, Spark creates a new checkpoint below "
            "spark.sql.streaming.checkpointLocation at each start, and a restarted query would write "
            "everything again"
        )
    return StreamSink(plan)


# --- pickled to tasks and back --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """The identity of a batch in the ledger.

    :ivar query: name of the query or job.
    :ivar checkpoint: Spark's id of the streaming query, or None.
    :ivar batch: number of the batch.
    :ivar session: id of the query's run, or of the job.
    :ivar began: time when the plan whose tasks write the batch was made, in ms since 1970. The plan that
        commits may be another one.
    :ivar planned: the checkpoint's entry of the batch; None if it cannot be read.
    :ivar checkpoint_location: location of the checkpoint, or None.
    """

    query: str
    checkpoint: str | None
    batch: int
    session: UUID
    began: int | None = None
    planned: PlannedBatch | None = None
    checkpoint_location: str | None = None

    @property
    def streaming(self) -> bool:
        """Whether the batch belongs to a streaming query, and not to a job."""
        return self.checkpoint is not None

    def entry(self, batch: int) -> PlannedBatch | None:
        """Return the checkpoint's entry of a batch, or None if it cannot be read here."""
        return self.planned if batch == self.batch else local_entry(self.checkpoint_location, batch)


@dataclass(frozen=True)
class Attempt(WriterCommitMessage):  # type: ignore[misc]  # pyspark is Any to mypy
    """The report of one task attempt; ``place`` is set only with ``exactly_once``."""

    did: Attempted
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class _Plan:
    """The checked options of a write; can be pickled, and creates the objects for them in each process.

    :ivar options: the options, with columns that match the DataFrame.
    :ivar session: id of the job; for a streaming query, the run's id is used instead if Spark provides it.
    :ivar hook: called with each step of ``exactly_once`` in the process that executes it, for tests that
        crash there.
    :ivar began: time when the write was planned, in ms since 1970 by the driver's clock.
    :ivar checkpoint: location of the streaming query's checkpoint, or None.
    :ivar name: name of the streaming query, or None.
    :ivar newest: number of the newest entry in it when the write was planned; None if it cannot be read.
    :ivar planned: that entry.
    """

    options: WriteOptions
    session: UUID = field(default_factory=uuid4)
    hook: Callable[[str], None] | None = None
    began: int = field(default_factory=lambda: time.time_ns() // 1_000_000)
    checkpoint: str | None = None
    name: str | None = None
    newest: int | None = None
    planned: PlannedBatch | None = None

    @classmethod
    def of(cls, options: WriteOptions, schema: StructType) -> _Plan:
        routing = options.routing
        if routing is not None:
            name = require_column(schema, "option 'stream_col'", routing.column, StringType)
            routing = replace(routing, column=name)
            options.columns.require_other(schema, name)
            # The column is no part of the event.
            schema = StructType([each for each in schema.fields if each.name != name])
        return cls(replace(options, columns=options.columns.of(schema), routing=routing))

    def writer(
        self,
        place: Place | None = None,
        txn: UUID | None = None,
        staging_made: Callable[[], None] | None = None,
    ) -> PartitionWriter:
        options, columns = self.options, self.options.columns
        known: dict[str, Any] = {}
        if place is not None:
            known = {"query": place.query, "batch": place.batch, "session": place.session, "txn": txn}
            known |= {"checksummed": place.streaming and place.planned is None, "counting": txn is None}
        return PartitionWriter(
            config=options.config,
            stream=options.stream,
            mode=options.mode,
            ledger=options.ledger,
            sink=options.sink_name,
            event_col=EVENT,
            event_from="the row as JSON" if columns.event is None else f"column {columns.event!r}",
            routing_key_col=None if columns.key is None else KEY,
            key_from=f"column {columns.key!r}",
            event_time_col=None if columns.time is None else TIME,
            staging_made=staging_made,
            **known,
        )

    def committer(self, place: Place, journal: Journal) -> ElectedCommitter:
        options = self.options
        return ElectedCommitter(
            client_for(options.config),
            options.stream,
            journal,
            lease=options.lease,
            session=place.session,
            checkpoint=place.checkpoint,
            wait_visible=options.read_after_write,
            if_forgotten=options.if_forgotten,
            new_ledger=options.new_ledger,
            named=not place.streaming,
            planned=place.entry,
            on_older_checkpoint=options.on_older_checkpoint,
            began=place.began,
            hook=self.hook,
        )

    # --- in a task ------------------------------------------------------------------------------

    def write(self, batches: Iterator[pa.RecordBatch], where: Callable[[TaskContext], Place]) -> Attempt:
        with HeldClient(self.options.config):
            return self._write(batches, where)

    def _write(self, batches: Iterator[pa.RecordBatch], where: Callable[[TaskContext], Place]) -> Attempt:
        options = self.options
        if options.routing is not None:
            results = write_routed(batches, options.routing, options.config, self._append_to).values()
            whole = AttemptResult(
                partition=0,
                staging=None,
                rows=sum(each.rows for each in results),
                nbytes=sum(each.nbytes for each in results),
                dropped=sum(each.dropped for each in results),
            )
            return Attempt(Attempted("written", whole))
        if options.mode != "exactly_once":
            return Attempt(Attempted("written", self._append(batches)))
        task = TaskContext.get()
        if task is None:
            raise InvalidArgumentError("a partition can be written only inside a Spark task")
        place = where(task)
        rows = options.columns.project(batches)
        first = next(rows, None)
        if first is None:
            return Attempt(Attempted("empty"), place)
        rest = _Rows(rows)
        return self._on_stream(
            rest, place, lambda: self._stage(place, task.partitionId(), chain([first], rest))
        )

    def _append_to(self, stream: ScopedStream, batches: Iterator[pa.RecordBatch]) -> AttemptResult:
        """Write rows to one of the streams that rows name."""
        options = self.options.to(stream)
        options.require_other_stream(self.planned)
        return replace(self, options=options)._append(batches)

    def _append(self, batches: Iterator[pa.RecordBatch]) -> AttemptResult:
        """Write rows without a transaction."""
        rest = _Rows(self.options.columns.project(batches))
        result = self._on_stream(rest, None, lambda: _only_result(self.writer().write_arrow(rest)))
        if result.dropped:
            # With best effort, a missing stream is not an error.
            _ensured.discard(_ensured_key(self.options))
        return result

    def _on_stream(self, rest: _Rows, place: Place | None, write: Callable[[], _T]) -> _T:
        """Write to the stream, which is created if it is missing.

        A worker process runs the tasks of many jobs, so the stream may have been deleted since the process
        found it.
        """
        _ensure(self.options, place)
        try:
            return write()
        except NotFoundError:
            _ensured.discard(_ensured_key(self.options))
            if rest.taken:
                raise
        _ensure(self.options, place)
        return write()

    def _stage(self, place: Place, partition: int, rows: Iterator[pa.RecordBatch]) -> Attempt:
        with _journal(self.options, place) as journal:
            committer = self.committer(place, journal)
            txn = committer.claim(place.batch, _patience(partition))
        if txn == "skip":
            # A job may be that of a function for foreachBatch, and over Spark Connect no task can tell.
            if place.planned is None or place.planned.stateful:
                for _ in rows:
                    pass  # Spark commits the state that a task has computed only if all its rows are taken.
            return Attempt(Attempted("skipped"), place)
        if txn == "count":
            return Attempt(Attempted("counted", _only_result(self.writer(place).write_arrow(rows))), place)

        def require_claim() -> None:
            with _journal(self.options, place) as journal:
                self.committer(place, journal).require_claim(txn)

        with committer.hold(txn):
            writer = self.writer(place, txn, require_claim)
            result = _only_result(writer.write_arrow(rows))
        return Attempt(Attempted("written", result, txn), place)

    # --- on the driver --------------------------------------------------------------------------

    def complete(self, messages: Sequence[Attempt | None], batch: int) -> BatchReport:
        """Make the batch visible; steps that are already done are skipped."""
        attempts = [each for each in messages if each is not None]
        if self.options.mode != "exactly_once":
            results = [each.did.result for each in attempts if each.did.result is not None]
            return self._report(batch, results)
        places = {each.place for each in attempts if each.place is not None}
        if not places:
            return BatchReport(batch, "written")
        if len(places) > 1:
            raise TransactionError(
                f"batch {batch} to {self.options.stream} has tasks of several runs, so it was not committed: "
                f"{places}"
            )
        (place,) = places
        with HeldClient(self.options.config):
            _ensure(self.options, place)
            with _journal(self.options, place) as journal:
                return self.committer(place, journal).settle(batch, [each.did for each in attempts])

    def _report(self, batch: int, results: Sequence[AttemptResult]) -> BatchReport:
        rows, dropped = sum(each.rows for each in results), sum(each.dropped for each in results)
        if dropped:
            log.warning(
                "batch %d to %s: %d of %d events are not known to be stored",
                batch, self.options.target, dropped, rows + dropped,
            )  # fmt: skip
        return BatchReport(batch, "written", rows, sum(each.nbytes for each in results), dropped=dropped)

    def withdraw(self, messages: Sequence[Attempt | None]) -> None:
        """Remove what the tasks have staged, unless it may become visible.

        The next run finds and removes what tasks without a report have left.
        """
        for place, txn in dict.fromkeys((each.place, each.did.txn) for each in messages if each is not None):
            if place is None or txn is None:
                continue
            with HeldClient(self.options.config), _journal(self.options, place) as journal:
                self.committer(place, journal).withdraw(txn)


class _Rows:
    """The rows of a partition that are yet to be written.

    :ivar taken: whether any were asked for, so that the write cannot be repeated.
    """

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self.taken = False
        self._batches = batches

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        self.taken = True
        return next(self._batches)


def _only_result(written: Iterator[pa.RecordBatch]) -> AttemptResult:
    (batch,) = written
    return decode_result(batch.column("result")[0].as_py())


def _patience(partition: int) -> float:
    """Return how many seconds an attempt waits for another one to begin the transaction.

    The first partition begins it at once, so that a wave of attempts begins one transaction and not one each.
    If that partition has no rows, or gets its first row late, the others follow one by one.
    """
    return 0.5 + 0.05 * min(partition, 12) if partition else 0


_ensured: set[tuple[Any, ...]] = set()


def _ensured_key(options: WriteOptions) -> tuple[Any, ...]:
    return os.getpid(), options.config, options.stream


def _ensure(options: WriteOptions, place: Place | None = None) -> None:
    """Create the stream if it does not exist; checked once in each process, unless a write misses it.

    :param options: options of the write.
    :param place: the batch, whose ledger must have no record of the stream; only with ``exactly_once``.
    :raises InvalidArgumentError: the stream does not exist, but the ledger has records of writes to it.
    """
    key = _ensured_key(options)
    if key not in _ensured:
        before = None if place is None else lambda: _require_unwritten(options, place)
        ensure_stream(client_for(options.config), options.stream, options.creation, before)
        _ensured.add(key)


def _require_unwritten(options: WriteOptions, place: Place) -> None:
    """Check that the ledger has no batches of a stream that is about to be created, which it would skip.

    This is checked before the stream is created: another attempt that finds the stream could not distinguish
    it from the deleted one.
    """
    try:
        with _journal(options, place) as journal:
            journal.refresh()
            state, key = journal.sink_state, journal.key
    except ScopeNotFoundError as error:
        if error.scope != options.stream.scope:
            raise
        # Then there is no ledger, either. It is created after its scope, which is the stream's.
        return
    prepared = state.claim is not None and state.claim.prepared is not None
    if state.last_done is None and not prepared:
        return
    batch = f"batch {state.last_done} of" if state.last_done is not None else "a batch of"
    raise InvalidArgumentError(
        f"stream {options.stream} does not exist, but ledger {options.ledger} has {batch} {key}: "
        "the stream was deleted, and the data written to it would not be written again. Use another "
        "ledger_stream (or a new query name and checkpoint, or job_id), or delete the ledger if nothing "
        "else uses it, or create the stream yourself to continue after the lost data"
    )


# --- ledgers --------------------------------------------------------------------------------------

_journals: dict[tuple[Any, ...], tuple[Journal, Any, HeldClient]] = {}
# By process and ledger, with the objects to close; ordered by last use.
# Worker processes run many tasks, so each task reads only the new records.

_KEPT_JOURNALS = 8


class _journal:
    """The journal for a batch during a ``with`` block; it is kept for the next block unless an error
    occurred.

    It serves one batch at a time: its state is that of all sinks of the ledger.
    """

    def __init__(self, options: WriteOptions, place: Place) -> None:
        assert options.ledger is not None
        self._options = options
        self._place = place
        self._key = (os.getpid(), options.config, options.ledger, options.compact_after)
        self._sink = SinkKey(place.query, str(options.stream), options.sink_name)
        self._taken: tuple[Journal, Any, HeldClient] | None = None

    def __enter__(self) -> Journal:
        kept = _journals.pop(self._key, None)
        self._taken = kept or self._open()
        journal, _, _ = self._taken
        journal.reopen = None if kept is None else self._reopen
        journal.key = self._sink
        return journal

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        dropped = [self._taken] if self._taken is not None else []
        if kind is None and self._taken is not None:
            # Another thread may have stored one in the meantime.
            dropped = [each for each in (_journals.pop(self._key, None),) if each is not None]
            _journals[self._key] = self._taken
            while len(_journals) > _KEPT_JOURNALS:
                dropped.append(_journals.pop(next(iter(_journals))))
        self._taken = None
        for _, revisioned, held in dropped:
            _close(revisioned)
            held.close()

    def _open(self) -> tuple[Journal, Any, HeldClient]:
        options = self._options
        held = HeldClient(options.config)
        try:
            revisioned = self._open_ledger(held)
        except PravegaError:
            held.close()
            raise
        journal = Journal(
            revisioned, self._sink, name=str(options.ledger), compact_after=options.compact_after
        )
        return journal, revisioned, held

    def _open_ledger(self, held: HeldClient) -> RevisionedStream[bytes]:
        options, batch = self._options, self._place.batch
        assert options.ledger is not None
        return open_ledger(held.client, options.ledger, self._sink, batch, new_ledger=options.new_ledger)

    def _reopen(self) -> RevisionedStream[bytes]:
        """Open the ledger that replaces the deleted one, as a process does that has not used it before."""
        assert self._taken is not None
        journal, deleted, held = self._taken
        log.info("ledger %s was deleted since it was last used here", self._options.ledger)
        revisioned = self._open_ledger(held)
        self._taken = journal, revisioned, held
        _close(deleted)
        return revisioned


def _close(revisioned: Any) -> None:
    try:
        revisioned.close()
    except PravegaError as failure:
        log.info("a ledger was not closed: %s", failure)


# --- the writers ----------------------------------------------------------------------------------


class StreamSink(DataSourceStreamArrowWriter or object):  # type: ignore[misc]  # pyspark is Any to mypy
    """Writes the micro-batches of a streaming query."""

    def __init__(self, plan: _Plan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Attempt:
        """Write one partition, in a task.

        :raises InvalidArgumentError: the query reads the stream, which the plan could not know.
        """
        plan = self._plan
        if plan.checkpoint is None:
            plan = replace(plan, planned=_entry_by_name(TaskContext.get(), plan.name))
            plan.options.require_other_stream(plan.planned)
        return plan.write(iterator, self._where)

    def commit(self, messages: list[Attempt | None], batchId: int) -> None:
        """Make the batch visible. The next run may repeat the last batch of a run."""
        started = time.monotonic()
        report = self._plan.complete(messages, batchId)
        log.info(
            "batch %d to %s: %s, %d rows, %.3f s",
            batchId, self._plan.options.target, report.outcome, report.rows, time.monotonic() - started,
        )  # fmt: skip

    def abort(self, messages: list[Attempt | None], batchId: int) -> None:
        """Undo the batch. Spark also calls this if ``commit`` has failed, so perhaps after the batch became
        visible."""
        self._plan.withdraw(messages)

    def _where(self, task: TaskContext) -> Place:
        batch = task.getLocalProperty("streaming.sql.batchId")
        checkpoint = task.getLocalProperty("sql.streaming.queryId")
        query = self._plan.options.query or checkpoint
        if batch is None or query is None:
            raise InvalidArgumentError(
                "this version of Spark does not tell a task the query and batch that it works for, so "
                "semantic 'exactly_once' is not possible: use ForeachBatchSink"
            )
        # Spark itself rejects a query with this format that has no permanent checkpoint.
        plan = self._plan
        return Place(
            query,
            checkpoint,
            int(batch),
            _run_of(task) or plan.session,
            plan.began,
            plan.planned if int(batch) == plan.newest else None,
            plan.checkpoint,
        )


def _entry_by_name(task: TaskContext, name: str | None) -> PlannedBatch | None:
    """Return the entry of a task's batch in a checkpoint whose place comes from the session's configuration.

    Spark tells that to tasks only. Those of other machines may not be able to read it.
    """
    default = local_path(task.getLocalProperty("spark.sql.streaming.checkpointLocation"))
    batch = task.getLocalProperty("streaming.sql.batchId")
    if default is None or batch is None or name is None:
        return None
    return local_entry(str(default / name), int(batch))


def _run_of(task: TaskContext) -> UUID | None:
    """Return Spark's id of this run of the query; each start gets another one."""
    try:
        return UUID(task.getLocalProperty("spark.jobGroup.id"))
    except (TypeError, ValueError):
        return None


def _require_no_table(task: TaskContext) -> None:
    """Check that a task does not write the rows of a table that Spark creates, which could not be read.

    Nothing that Spark gives to a data source tells ``saveAsTable`` from ``save``. But it writes such rows
    inside of the command that creates the table. So it does with a batch of a streaming query.
    """
    inner, outer, query = map(
        task.getLocalProperty,
        ("spark.sql.execution.id", "spark.sql.execution.root.id", "sql.streaming.queryId"),
    )
    if None not in (inner, outer) and inner != outer and query is None:
        raise InvalidArgumentError(f"{NO_TABLE}. Nothing was written")


class BatchSink(DataSourceArrowWriter):  # type: ignore[misc]  # pyspark is Any to mypy
    """Writes a DataFrame as one batch."""

    def __init__(self, plan: _Plan) -> None:
        self._plan = plan

    def _place(self) -> Place:
        plan = self._plan
        job_id = plan.options.job_id
        query = unnamed_query(plan.session) if job_id is None else job_query(job_id)
        return Place(query, None, 0, plan.session, plan.began)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Attempt:
        """Write one partition, in a task.

        :raises InvalidArgumentError: Spark creates a table of the rows.
        """
        _require_no_table(TaskContext.get())
        return self._plan.write(iterator, lambda task: self._place())

    def commit(self, messages: list[Attempt | None]) -> None:
        """Make the job's rows visible."""
        plan = self._plan
        try:
            report = plan.complete(messages, 0)
        except PravegaError as error:
            self._advise(messages, error)
            raise
        if plan.options.mode != "exactly_once":
            return
        if report.outcome == "skipped":
            log.warning(
                "job %r was already written to %s, so nothing was written now",
                plan.options.job_id, plan.options.stream,
            )  # fmt: skip
        if plan.options.job_id is None and report.txn is not None:
            place = self._place()
            try:
                with _journal(plan.options, place) as journal:
                    plan.committer(place, journal).forget(0, report.txn)
                    sweep(client_for(plan.options.config), plan.options.stream, journal)
            except PravegaError as error:
                # The rows are visible: if the job failed now, it would be run again.
                log.warning("job to %s: not all of its leftovers are removed: %s", plan.options.stream, error)

    def _advise(self, messages: Sequence[Attempt | None], error: PravegaError) -> None:
        """Add a note to an error of a job without ``job_id`` that may be visible: how to find out, and what
        to do."""
        plan = self._plan
        txn = next((each.did.txn for each in messages if each is not None and each.did.txn is not None), None)
        if txn is None or plan.options.job_id is not None:
            return
        status = "in a state that could not be queried"
        try:
            place = self._place()
            with _journal(plan.options, place) as journal:
                if not plan.committer(place, journal).is_prepared(txn):
                    return
                client = client_for(plan.options.config)
                status = client.transaction_status(plan.options.stream, txn).name
        except PravegaError as failure:
            log.info("job to %s: the state of its transaction is unknown: %s", plan.options.stream, failure)
        error.add_note(
            f"The job's rows are in transaction {txn} on stream {plan.options.stream}, which is {status}. "
            "A job without job_id that is run again writes all its rows again, so first call "
            f"PravegaClient.transaction_status: {_ADVICE}"
        )

    def abort(self, messages: list[Attempt | None]) -> None:
        """Undo the job."""
        self._plan.withdraw(messages)
