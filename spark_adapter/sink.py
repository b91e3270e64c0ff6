"""A sink for ``DataStreamWriter.foreachBatch``: best effort, at least once or exactly once."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, cast, get_args
from urllib.parse import urlsplit
from uuid import UUID, uuid4

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # has no stubs
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegralType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from pravega_wire import PravegaConfig, ScopedStream
from pravega_wire.checks import check_count, check_flag, check_lease
from pravega_wire.errors import InvalidArgumentError
from spark_adapter.clients import HeldClient
from spark_adapter.commit import AttemptResult, BatchCommitter, BatchReport, IfForgotten
from spark_adapter.journal import Journal, open_ledger
from spark_adapter.ledger import SinkKey, is_reserved
from spark_adapter.tasks import RESULT_SCHEMA, Mode, PartitionWriter, decode_result
from spark_adapter.versions import needs_classic

__all__ = ["ForeachBatchSink"]

log = logging.getLogger(__name__)


class ForeachBatchSink:
    """Writes each micro-batch to a stream; give it to ``writeStream.foreachBatch``.

    ==================  ==========================================================================
    mode                what holds
    ==================  ==========================================================================
    ``best_effort``     events that cannot be written are counted (``last_batch.dropped``), not
                        retried
    ``at_least_once``   every event is stored; a failed task or a replayed batch repeats some
    ``exactly_once``    every event is stored once, and a batch becomes visible as a whole: there is
                        one transaction for each batch, whatever becomes of tasks, drivers and
                        leases. A replayed batch writes nothing
    ==================  ==========================================================================

    Exactly once holds if the query has a checkpoint and computes the same batch again from the same
    input. Use one sink object for one query. A function for ``foreachBatch`` may call several sinks, also
    with one ledger: those that write to one stream need a ``sink_name`` each.

    :param stream: where the events go: ``scope/stream``, or ``stream`` in the default scope.
    :param ledger_stream: needed for ``exactly_once``: a stream of one segment where the sink notes
        what it does (``docs/exactly-once.md``). Made if it does not exist. Several queries may share one.
    :param query: name of the query in the ledger. Default: Spark's own id of the streaming query,
        which its checkpoint keeps over restarts. Needed when the sink is called outside of a
        streaming query.
    :param sink_name: tells sinks of one query and one stream apart in the ledger; each of them is called at
        most once for a batch. Keep it over restarts: a sink under a new name is a new one.
    :param new_ledger: take a batch above 0 although the ledger has never heard of this query, stream and sink
        name. Otherwise that is refused: it is what a mistyped name or a deleted ledger looks like, and such
        a batch may be stored already. Needed once, for a sink that is added to a query that has run before.
    :param event_col: column with the event, binary or string (default ``event``).
    :param serializer: or a function from the row to bytes.
    :param routing_key_col: string column with the routing key. Without one, and where it is null,
        events spread over segments and have no order.
    :param router: or a function from the row to the key or None.
    :param event_time_col: column with the event time, a timestamp or integer milliseconds; the
        greatest of a batch is noted with its commit (``exactly_once`` only).
    :param lease_ms: lease of a batch's transaction (10 000 to 600 000 ms, default 120 000). It is
        renewed while the batch is written, so it bounds how long a driver may stall, not the batch.
    :param read_after_write: wait until readers see the batch before it counts as done (default).
    :param if_forgotten: see :class:`~spark_adapter.commit.BatchCommitter`.
    :param compact_after: records after which the ledger is made short again (default 1000).
    :param crash_hook: called on the driver with the name of each step of ``exactly_once``
        (:data:`~spark_adapter.commit.STEPS`); for progress, and for tests that crash there.
    :raises InvalidArgumentError: arguments do not go together; nothing was sent.

    :ivar last_batch: :class:`~spark_adapter.commit.BatchReport` of the last call, or None.
    """

    def __init__(
        self,
        config: PravegaConfig,
        stream: str | ScopedStream,
        *,
        mode: Mode = "at_least_once",
        ledger_stream: str | ScopedStream | None = None,
        query: str | None = None,
        sink_name: str = "",
        new_ledger: bool = False,
        event_col: str | None = None,
        serializer: Callable[[Row], bytes] | None = None,
        routing_key_col: str | None = None,
        router: Callable[[Row], str | None] | None = None,
        event_time_col: str | None = None,
        lease_ms: int = 120_000,
        read_after_write: bool = True,
        if_forgotten: IfForgotten = "raise",
        compact_after: int = 1000,
        crash_hook: Callable[[str], None] | None = None,
    ) -> None:
        if mode not in get_args(Mode):
            raise InvalidArgumentError(f"mode {mode!r} is not one of {', '.join(get_args(Mode))}")
        if mode == "exactly_once" and ledger_stream is None:
            raise InvalidArgumentError("mode 'exactly_once' needs a ledger_stream")
        if mode != "exactly_once" and ledger_stream is not None:
            raise InvalidArgumentError(f"a ledger_stream makes no sense with mode {mode!r}")
        if mode != "exactly_once" and (sink_name or new_ledger):
            raise InvalidArgumentError("sink_name and new_ledger need mode 'exactly_once'")
        if not isinstance(sink_name, str):
            raise InvalidArgumentError(f"sink_name is a string, not {type(sink_name).__name__}")
        if query is not None and (not query or is_reserved(query)):
            raise InvalidArgumentError(f"query {query!r} is not a name for a query")
        if mode != "exactly_once" and event_time_col is not None:
            raise InvalidArgumentError("event_time_col needs mode 'exactly_once'")
        if event_col is not None and serializer is not None:
            raise InvalidArgumentError("give event_col or serializer, not both")
        if routing_key_col is not None and router is not None:
            raise InvalidArgumentError("give routing_key_col or router, not both")
        check_lease(lease_ms)
        if if_forgotten not in get_args(IfForgotten):
            raise InvalidArgumentError(
                f"if_forgotten {if_forgotten!r} is not one of {', '.join(get_args(IfForgotten))}"
            )
        check_count("compact_after", compact_after)
        check_flag("read_after_write", read_after_write)
        self._config = config
        self._stream = config.resolve(stream)
        self._ledger = None if ledger_stream is None else config.resolve(ledger_stream)
        if self._ledger == self._stream:
            raise InvalidArgumentError("the ledger must be a stream of its own")
        self._query = query
        self._sink_name = sink_name
        self._new_ledger = new_ledger
        self._lease_ms = lease_ms
        self._read_after_write = read_after_write
        self._if_forgotten: IfForgotten = if_forgotten
        self._compact_after = compact_after
        self._hook = crash_hook
        self._plan = PartitionWriter(
            config=config,
            stream=self._stream,
            mode=mode,
            ledger=self._ledger,
            sink=sink_name,
            event_col=event_col or "event",
            serializer=serializer,
            routing_key_col=routing_key_col,
            router=router,
            event_time_col=event_time_col,
        )
        self._committer: BatchCommitter | None = None
        self._committed_for: tuple[SinkKey, str | None] | None = None
        self._held: HeldClient | None = None
        self._session = uuid4()
        self.last_batch: BatchReport | None = None

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write one batch; Spark calls this.

        :raises FencedError: another driver runs this query (``exactly_once``).
        :raises TransactionUnknownError: see ``if_forgotten`` (``exactly_once``).
        :raises InvalidArgumentError: a column is missing or of the wrong type. With ``exactly_once`` also:
            the query has no checkpoint or name; the batch was written, or is being written by another thread,
            under the same query, stream and sink name in this run of the query; the ledger does not know them
            and the batch is above 0. Over Spark Connect also: ``exactly_once``, a serializer or a router.
        """
        self._check_session(df)
        self._check_columns(df)
        if self._plan.mode == "exactly_once":
            self.last_batch = self._exactly_once(df, batch_id)
        else:
            started = time.monotonic()
            results = _run_tasks(df, self._plan)
            self.last_batch = BatchReport(
                batch_id,
                "written",
                sum(each.rows for each in results),
                sum(each.nbytes for each in results),
                seconds=time.monotonic() - started,
                dropped=sum(each.dropped for each in results),
            )

    def _exactly_once(self, df: DataFrame, batch_id: int) -> BatchReport:
        spark = df.sparkSession
        checkpoint = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
        query = self._query or checkpoint
        if query is None:
            raise InvalidArgumentError(
                "outside of a streaming query, mode 'exactly_once' needs the parameter query"
            )
        run = str(self._session)
        if checkpoint is not None:
            run = _run_of(spark, checkpoint) or run
        assert self._ledger is not None
        key = SinkKey(query, str(self._stream), self._sink_name)
        with _calls.one(self._config.controller_uri, self._ledger, key, run, batch_id):
            committer = self._open(spark, key, checkpoint, batch_id)

            def write(txn: UUID) -> Sequence[AttemptResult]:
                plan = replace(self._plan, query=query, batch=batch_id, txn=txn, session=committer.session)
                return _run_tasks(df, plan)

            return committer.run(batch_id, write)

    def _open(
        self, spark: SparkSession, key: SinkKey, checkpoint: str | None, batch_id: int
    ) -> BatchCommitter:
        if self._committer is None or self._committed_for != (key, checkpoint):
            if checkpoint is not None and _checkpoint_is_temporary(spark, checkpoint):
                raise InvalidArgumentError(
                    "mode 'exactly_once' needs a query with a checkpointLocation: without one a "
                    "restarted query begins from the start and writes everything again"
                )
            if checkpoint is not None and _checkpoint_is_random(spark, checkpoint):
                raise InvalidArgumentError(
                    "mode 'exactly_once' needs a query with a checkpointLocation or a queryName: without "
                    "both Spark makes a new checkpoint at each start, below "
                    "spark.sql.streaming.checkpointLocation, and a restarted query writes everything again"
                )
            held = HeldClient(self._config)
            assert self._ledger is not None
            revisioned = open_ledger(
                held.client, self._ledger, key, batch_id, new_ledger=self._new_ledger, say="new_ledger=True"
            )
            self._committer = BatchCommitter(
                held.client,
                self._stream,
                Journal(revisioned, key, name=str(self._ledger), compact_after=self._compact_after),
                lease_ms=self._lease_ms,
                session=self._session,
                checkpoint=checkpoint,
                wait_visible=self._read_after_write,
                if_forgotten=self._if_forgotten,
                new_ledger=self._new_ledger,
                hook=self._hook,
            )
            self._committed_for, self._held = (key, checkpoint), held
        return self._committer

    def _check_session(self, df: DataFrame) -> None:
        plan = self._plan
        if plan.mode == "exactly_once":
            needs_classic(
                df,
                "ForeachBatchSink(mode='exactly_once')",
                "it has to know the query and its checkpoint, which only the server does; write with "
                'writeStream.format("pravega"), or run the query in a classic session (spark-submit, '
                "SparkSession.builder.master)",
            )
        if plan.serializer is not None or plan.router is not None:
            needs_classic(
                df,
                "ForeachBatchSink with a serializer or a router",
                "it would need an RDD; make the event and its key columns of the frame, and name them with "
                "event_col and routing_key_col",
            )

    def _check_columns(self, df: DataFrame) -> None:
        plan = self._plan
        if plan.serializer is None:
            _require(df, "event_col", plan.event_col, BinaryType, StringType)
        if plan.routing_key_col is not None:
            _require(df, "routing_key_col", plan.routing_key_col, StringType)
        if plan.event_time_col is not None:
            _require(
                df,
                "event_time_col",
                plan.event_time_col,
                TimestampType,
                TimestampNTZType,
                IntegralType,
            )


def _require(df: DataFrame, parameter: str, column: str, *types: type[DataType]) -> None:
    if column not in df.columns:
        raise InvalidArgumentError(
            f"{parameter}: there is no column {column!r}, only {', '.join(df.columns)}"
        )
    found = df.schema[column].dataType
    if not isinstance(found, types):
        wanted = " or ".join(kind.__name__.removesuffix("Type").lower() for kind in types)
        raise InvalidArgumentError(f"{parameter}: column {column!r} is {found.simpleString()}, not {wanted}")


def _run_tasks(df: DataFrame, plan: PartitionWriter) -> list[AttemptResult]:
    """Run the writer over all partitions; the results of one successful attempt of each.

    Rows go to Python as Arrow batches where nothing needs them as ``Row`` objects. PySpark asks for
    pandas to do that, although it is not used.
    """
    if plan.serializer is None and plan.router is None and find_spec("pandas") is not None:
        columns = [F.col(f"`{plan.event_col}`")]
        if plan.routing_key_col not in (None, plan.event_col):
            columns.append(F.col(f"`{plan.routing_key_col}`"))
        if plan.event_time_col is not None:
            time_column = F.col(f"`{plan.event_time_col}`")
            if not isinstance(df.schema[plan.event_time_col].dataType, IntegralType):
                time_column = F.unix_millis(time_column.cast("timestamp"))
            columns.append(time_column.alias("event_time_ms"))
            plan = replace(plan, event_time_col="event_time_ms")
        rows = df.select(*columns).mapInArrow(plan.write_arrow, RESULT_SCHEMA).collect()
        results = [decode_result(row[0]) for row in rows]
    else:
        results = [decode_result(text) for text in df.rdd.mapPartitions(plan.write_rows).collect()]
    return results


class _Calls:
    """The batches that sinks write or have finished in this process, to tell a replay from a second write.

    A batch that is DONE is skipped when Spark runs it again: in a new process, or in this one when the query
    was started again. Within one run of a query Spark asks for each batch once, so a second call for it with
    the same key comes from a function that writes twice, and what it has would be dropped: also while the
    first call is still at work, whose transaction the second one would finish as that of a dead driver.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._finished: dict[tuple[str, ScopedStream, SinkKey], tuple[str, int]] = {}
        self._running: set[tuple[tuple[str, ScopedStream, SinkKey], str]] = set()

    @contextmanager
    def one(
        self, controller: str, ledger: ScopedStream, key: SinkKey, run: str, batch: int
    ) -> Iterator[None]:
        """Around one call; one that raises may be repeated.

        :param run: equal for all calls between which Spark does not repeat a batch.
        :raises InvalidArgumentError: this run has finished that batch or a later one already, or another call
            of it has not returned yet.
        """
        place = (controller, ledger, key)
        with self._lock:
            last_run, last = self._finished.get(place, ("", -1))
            if (place, run) in self._running:
                found = "another call of this driver is still writing there"
            elif last_run == run and batch <= last:
                found = f"this driver has already written batch {last} there"
            else:
                found = ""
                self._running.add((place, run))
        if found:
            raise InvalidArgumentError(
                f"batch {batch} was given to ledger {ledger} for {key}, and {found}: what a second call has "
                "would be lost. Give each sink of the query that writes to this stream a sink_name of its "
                "own, and call each once for a batch, with rising numbers"
            )
        try:
            yield
            with self._lock:
                self._finished[place] = (run, batch)
        finally:
            with self._lock:
                self._running.remove((place, run))


_calls = _Calls()


def _active_query(spark: SparkSession, query_id: str) -> Any:
    """The JVM's object of a running query, or None where that cannot be had."""
    # The session inside of foreachBatch is a clone whose own list of queries is empty.
    key = spark._jvm.java.util.UUID.fromString(query_id)
    try:
        return spark._jsparkSession.sharedState().activeStreamingQueries().get(key)
    except Py4JError:
        return None


def _run_of(spark: SparkSession, query_id: str) -> str | None:
    """Spark's id of this run of a query: another one after each start."""
    query = _active_query(spark, query_id)
    try:
        if query is not None:
            return str(query.runId())
    except Py4JError:
        pass
    # what Spark sets it to, unless the function has set one of its own
    return cast("str | None", spark.sparkContext.getLocalProperty("spark.jobGroup.id"))


def _checkpoint_root(query: Any) -> str | None:
    """Where the JVM's object of a query keeps its checkpoint, or None where that cannot be had."""
    try:
        return None if query is None else str(query.resolvedCheckpointRoot())
    except Py4JError:
        return None


def _checkpoint_is_random(spark: SparkSession, query_id: str) -> bool:
    """Whether Spark will make another checkpoint at the next start: a query without a name in the default
    location."""
    query = _active_query(spark, query_id)
    root = _checkpoint_root(query)
    default = spark.conf.get("spark.sql.streaming.checkpointLocation", None)
    if root is None or not default or query.name() is not None:
        return False
    return is_random_below(root, default)


def is_random_below(root: str, default: str) -> bool:
    """Whether a checkpoint's path is that of a random UUID directly below the default location.

    :param root: as Spark resolved it. :param default: as it was configured, perhaps without a scheme.
    """
    parent, _, last = urlsplit(root).path.rstrip("/").rpartition("/")
    try:
        if str(UUID(last)) != last.lower():
            return False
    except ValueError:
        return False
    above = urlsplit(default).path.rstrip("/")
    return parent == above if above.startswith("/") or not above else parent.endswith("/" + above)


def _checkpoint_is_temporary(spark: SparkSession, query_id: str) -> bool:
    """Whether Spark made up a checkpoint that it deletes again, so nothing survives a restart."""
    root = _checkpoint_root(_active_query(spark, query_id))
    if root is None:
        log.warning("this version of Spark does not tell where the query's checkpoint is")
        return False
    return root.rstrip("/").rpartition("/")[2].startswith("temporary-")
