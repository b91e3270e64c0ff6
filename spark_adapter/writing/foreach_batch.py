"""A sink for ``DataStreamWriter.foreachBatch``: best effort, at least once or exactly once."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from importlib.util import find_spec
from typing import Any, Self, cast
from uuid import UUID, uuid4

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # has no stubs
from pyspark.sql import Column, DataFrame, Row, SparkSession
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
from pravega_wire.errors import EncodeError, InvalidArgumentError, NoSuchSegmentError
from pravega_wire.support.checks import check_callable, check_count, check_flag, check_lease, check_text
from spark_adapter.clients import HeldClient, settings_of
from spark_adapter.exactly_once.contents import AttemptResult
from spark_adapter.exactly_once.driver import BatchCommitter, BatchReport
from spark_adapter.exactly_once.identity import PlannedBatch, location_parts, planned_batch
from spark_adapter.exactly_once.journal import Journal, open_ledger
from spark_adapter.exactly_once.ledger import IfForgotten, OnOlderCheckpoint, SinkKey
from spark_adapter.options.read import quoted
from spark_adapter.options.write import (
    ONLY_EXACTLY_ONCE,
    Mode,
    SinkOptions,
    default_ledger,
    one_of,
    require_column,
    require_exactly_once,
    require_named,
)
from spark_adapter.versions import is_connect, needs_classic
from spark_adapter.writing.partition import RESULT_SCHEMA, PartitionWriter, decode_result

__all__ = ["ForeachBatchSink", "SinkPerStream"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arguments(SinkOptions):
    """The checked arguments of :class:`ForeachBatchSink`, which explains them."""

    event_col: str | None
    serializer: Callable[[Row], bytes] | None
    routing_key_col: str | None
    router: Callable[[Row], str | None] | None
    event_time_col: str | None
    crash_hook: Callable[[str], None] | None

    @classmethod
    def parse(
        cls,
        config: PravegaConfig | str,
        stream: str | ScopedStream,
        ledger_stream: str | ScopedStream | None,
        **given: Any,
    ) -> Self:
        """Check the arguments of a sink, and resolve the names of its streams.

        :raises InvalidArgumentError: arguments are missing or malformed, or contradict each other.
        """
        config = settings_of(config)
        for name, choices in _CHOICES.items():
            one_of(name, given[name], choices)
        for name in ("new_ledger", "read_after_write", "allow_same_stream"):
            check_flag(name, given[name])
        for name in ("query", "event_col", "routing_key_col", "event_time_col"):
            if given[name] is not None:
                check_text(name, given[name])
        if given["sink_name"] != "":
            check_text("sink_name", given["sink_name"])
        for name in ("serializer", "router", "crash_hook"):
            if given[name] is not None:
                check_callable(name, given[name])
        check_lease(given["lease"])
        check_count("compact_after", given["compact_after"])
        for column, function in (("event_col", "serializer"), ("routing_key_col", "router")):
            if given[column] is not None and given[function] is not None:
                raise InvalidArgumentError(f"pass {column} or {function}, not both")
        used = {"ledger_stream": ledger_stream, **given}
        defaults = {each.name: each.default for each in fields(SinkOptions)}
        require_exactly_once(
            "mode",
            given["mode"],
            (name for name in ONLY_EXACTLY_ONCE if name in used and used[name] != defaults.get(name)),
        )
        target = config.resolve(stream)
        ledger = None
        if given["mode"] == "exactly_once":
            ledger = default_ledger(target) if ledger_stream is None else config.resolve(ledger_stream)
        return cls(config=config, stream=target, ledger=ledger, **given)


_CHOICES = {"mode": Mode, "if_forgotten": IfForgotten, "on_older_checkpoint": OnOlderCheckpoint}


class ForeachBatchSink:
    """Writes each micro-batch of a streaming query to a stream; pass it to ``writeStream.foreachBatch``.

    The modes have these guarantees:

    - ``best_effort``: events that cannot be written are counted (``last_batch.dropped``) and not retried.
    - ``at_least_once``: every event is stored; a failed task or a repeated batch stores some of its events
      again.
    - ``exactly_once``: every event is stored once, and a batch becomes visible as a whole, even if tasks or
      drivers fail or leases expire. Each batch is one transaction. A repeated batch writes nothing.

    ``exactly_once`` has two prerequisites: the query has a checkpoint, and a repeated batch has the same
    rows, computed from the same input. Use one sink object for one query. A function for ``foreachBatch`` may
    call several sinks, which may share a ledger; sinks that write to the same stream need different values of
    ``sink_name``.

    Example::

        from pravega_wire import PravegaConfig
        from spark_adapter import ForeachBatchSink

        sink = ForeachBatchSink(
            PravegaConfig("tcp://localhost:9090", scope="demo"),
            "alerts",
            mode="exactly_once",
            routing_key_col="device",
        )
        query = (
            frame.selectExpr("to_json(struct(*)) AS event", "device")
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", "/data/checkpoints/alerts")
            .start()
        )

    :param config: connection settings, or the controller's URI as for ``open_client``; they are sent to the
        workers.
    :param stream: the stream to write to: ``scope/stream``, or a name in the default scope.
    :param mode: ``best_effort``, ``at_least_once`` (default) or ``exactly_once``.
    :param ledger_stream: stream of one segment in which ``exactly_once`` records its progress
        (``docs/exactly-once.md``); default ``<stream>-spark-ledger``, in the scope of ``stream``. It is
        created if it does not exist. Several queries may share one.
    :param query: name of the query in the ledger. By default it is Spark's id of the streaming query, which
        the checkpoint keeps across restarts. Required if the sink is called outside a streaming query.
    :param sink_name: distinguishes several sinks of one query that write to the same stream. Use the same
        name after a restart: a sink with another name is a new sink. Each is called at most once for a batch.
    :param new_ledger: accept a batch above 0 although the ledger has no record of this query, stream and sink
        name. By default this is an error, because it usually means a mistyped name or a deleted ledger, and
        the batch may already be stored. Needed once, for a sink that is added to a query that has already
        run.
    :param event_col: column with the event, binary or string (default ``event``).
    :param serializer: function from a row to the event's bytes, instead of ``event_col``.
    :param routing_key_col: string column with the routing key. Events without a routing key (no such column,
        or a null) are spread over all segments and have no order.
    :param router: function from a row to the routing key or None, instead of ``routing_key_col``.
    :param event_time_col: column with the event time, a timestamp or integer milliseconds; the largest value
        of a batch is noted with its commit (``exactly_once`` only). A ``timestamp_ntz`` is in the session's
        time zone.
    :param lease: lease of a batch's transaction (10 to 600 seconds, default 120). It is renewed
        while the batch is written, so it limits how long the driver may stall, not how long the batch may
        take.
    :param read_after_write: whether a batch counts as done only when readers see it (default True).
    :param allow_same_stream: let a query write to a stream that it reads. By default its first batch that
        does is refused.
    :param if_forgotten: what to assume about a transaction that the server has no record of; see
        :class:`~spark_adapter.exactly_once.driver.BatchCommitter`.
    :param on_older_checkpoint: what to do if the ledger has another batch under the number of this one,
        because the query's checkpoint is older than what was written: ``raise`` (default) refuses it;
        ``continue_at`` writes it, and the next ones, after those that exist, so that rows that are in both
        are stored twice.
    :param compact_after: number of records after which the ledger is compacted (default 1000).
    :param crash_hook: called on the driver with the name of each step of ``exactly_once``
        (:data:`~spark_adapter.exactly_once.driver.STEPS`), to report progress or to crash there in a test.
    :raises InvalidArgumentError: arguments are missing, contradict each other, or have no use in the mode;
        nothing was sent.

    :ivar last_batch: the :class:`~spark_adapter.exactly_once.driver.BatchReport` of the last call, or None.
    """

    def __init__(
        self,
        config: PravegaConfig | str,
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
        lease: float = 120,
        read_after_write: bool = True,
        allow_same_stream: bool = False,
        if_forgotten: IfForgotten = "raise",
        on_older_checkpoint: OnOlderCheckpoint = "raise",
        compact_after: int = 1000,
        crash_hook: Callable[[str], None] | None = None,
    ) -> None:
        self._options = _Arguments.parse(
            config,
            stream,
            ledger_stream,
            mode=mode,
            query=query,
            sink_name=sink_name,
            new_ledger=new_ledger,
            event_col=event_col,
            serializer=serializer,
            routing_key_col=routing_key_col,
            router=router,
            event_time_col=event_time_col,
            lease=lease,
            read_after_write=read_after_write,
            allow_same_stream=allow_same_stream,
            if_forgotten=if_forgotten,
            on_older_checkpoint=on_older_checkpoint,
            compact_after=compact_after,
            crash_hook=crash_hook,
        )
        self._committer: BatchCommitter | None = None
        self._committed_for: tuple[SinkKey, str | None, str] | None = None
        self._held: HeldClient | None = None
        self._session = uuid4()
        self._is_one_of_many = False
        self.last_batch: BatchReport | None = None

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write one batch; Spark calls this.

        :param df: the rows of the batch.
        :param batch_id: Spark's number of the batch, from 0.
        :raises FencedError: another driver is running this query (``exactly_once``).
        :raises OlderCheckpointError: the query's checkpoint is older than what was written, unless
            ``on_older_checkpoint`` allows it (``exactly_once``).
        :raises TransactionUnknownError: the server has no record of the batch's transaction, and
            ``if_forgotten`` is ``"raise"`` (``exactly_once``).
        :raises InvalidArgumentError: an argument is invalid, a column is missing, ambiguous or of the wrong
            type, or the query reads the stream to which it writes. With ``exactly_once`` also:
            the query has no checkpoint or name; in this run of the query the batch was already written, or is
            being written by another thread, under the same query, stream and sink name; the batch is above 0
            and the ledger has no record of them. With Spark Connect also: the mode is ``exactly_once``, or
            there is a serializer or router.
        """
        batch_id = _check_call(df, batch_id)
        self._check_session(df)
        plan = self._writer(df)
        self._check_source(df, batch_id)
        if plan.mode == "exactly_once":
            self.last_batch = self._exactly_once(df, batch_id, plan)
        else:
            started = time.monotonic()
            results = _run_tasks(df, plan)
            self.last_batch = BatchReport(
                batch_id,
                "written",
                sum(each.rows for each in results),
                sum(each.nbytes for each in results),
                seconds=time.monotonic() - started,
                dropped=sum(each.dropped for each in results),
            )

    def _check_source(self, df: DataFrame, batch_id: int) -> None:
        """Check that the query does not read the stream, which may be one that it has only now found."""
        if self._options.allow_same_stream or is_connect(df):
            return
        spark = df.sparkSession
        query = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
        if query is not None:
            self._options.require_other_stream(_planned(spark, query, batch_id))

    def _exactly_once(self, df: DataFrame, batch_id: int, plan: PartitionWriter) -> BatchReport:
        spark, options = df.sparkSession, self._options
        checkpoint = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
        query = options.query or checkpoint
        if query is None:
            raise InvalidArgumentError(
                "outside a streaming query, mode 'exactly_once' needs the argument query"
            )
        run = str(self._session)
        if checkpoint is not None:
            run = _run_of(spark, checkpoint) or run
        assert options.ledger is not None
        key = SinkKey(query, str(options.stream), options.sink_name)
        with _calls.one(options.config.controller_uri, options.ledger, key, run, batch_id):
            committer = self._open(spark, key, checkpoint, run, batch_id)

            def write(txn: UUID) -> Sequence[AttemptResult]:
                writer = replace(
                    plan,
                    query=query,
                    batch=batch_id,
                    txn=txn,
                    session=committer.session,
                    claimed_at=committer.revision,
                    checksummed=committer.identity is None,
                )
                return _run_tasks(df, writer)

            def count() -> Sequence[AttemptResult]:
                return _run_tasks(df, replace(plan, counting=True))

            try:
                report = committer.run(batch_id, write, count)
            except NoSuchSegmentError as error:
                if not (error.segment or "").startswith(f"{options.ledger}/"):
                    raise
                # The next call opens the ledger again, or refuses to.
                self._committer = None
                raise InvalidArgumentError(
                    f"ledger {options.ledger} was deleted since this sink opened it, so batch {batch_id} of "
                    f"{query} was not completed here: write it again. For a batch above 0, a new ledger "
                    "needs new_ledger=True"
                ) from error
            planned = committer.identity
            if report.outcome != "written" and isinstance(planned, PlannedBatch) and planned.stateful:
                # No task has computed the rows. Spark fails a batch whose state was not computed in this run.
                df.write.format("noop").mode("overwrite").save()
            return report

    def _open(
        self, spark: SparkSession, key: SinkKey, checkpoint: str | None, run: str, batch_id: int
    ) -> BatchCommitter:
        options = self._options
        if self._committer is None or self._committed_for != (key, checkpoint, run):
            if checkpoint is not None and _checkpoint_is_temporary(spark, checkpoint):
                raise InvalidArgumentError(
                    "mode 'exactly_once' needs a query with a checkpointLocation: without one, a "
                    "restarted query starts from the beginning and writes everything again"
                )
            if checkpoint is not None and _checkpoint_is_random(spark, checkpoint):
                raise InvalidArgumentError(
                    "mode 'exactly_once' needs a query with a checkpointLocation or a queryName: without "
                    "either, Spark creates a new checkpoint below spark.sql.streaming.checkpointLocation at "
                    "each start, and a restarted query writes everything again"
                )
            held = HeldClient(options.config)
            assert options.ledger is not None
            revisioned = open_ledger(
                held.client, options.ledger, key, batch_id, new_ledger=options.new_ledger
            )
            self._committer = BatchCommitter(
                held.client,
                options.stream,
                Journal(revisioned, key, name=str(options.ledger), compact_after=options.compact_after),
                lease=options.lease,
                session=self._session,
                checkpoint=checkpoint,
                wait_visible=options.read_after_write,
                if_forgotten=options.if_forgotten,
                new_ledger=options.new_ledger,
                joins=self._is_one_of_many,
                planned=lambda batch: None if checkpoint is None else _planned(spark, checkpoint, batch),
                on_older_checkpoint=options.on_older_checkpoint,
                hook=options.crash_hook,
            )
            self._committed_for, self._held = (key, checkpoint, run), held
        return self._committer

    def _check_session(self, df: DataFrame) -> None:
        options = self._options
        if options.mode == "exactly_once":
            needs_classic(
                df,
                "ForeachBatchSink(mode='exactly_once')",
                "it needs the query and its checkpoint, which only the Spark server has; write with "
                'writeStream.format("pravega"), or run the query in a classic session (spark-submit, '
                "SparkSession.builder.master)",
            )
        if options.serializer is not None or options.router is not None:
            needs_classic(
                df,
                "ForeachBatchSink with a serializer or a router",
                "it would need an RDD; compute the event and its routing key as columns of the DataFrame, "
                "and name them with event_col and routing_key_col",
            )

    def _writer(self, df: DataFrame) -> PartitionWriter:
        """Return the writer of a DataFrame's partitions, with the columns as they are named there."""
        options, event_col = self._options, "event"
        if options.serializer is None:
            event_col = _column(df, "event_col", options.event_col or event_col, BinaryType, StringType)
        key, event_time = options.routing_key_col, options.event_time_col
        if key is not None:
            key = _column(df, "routing_key_col", key, StringType)
        if event_time is not None:
            kinds = TimestampType, TimestampNTZType, IntegralType
            event_time = _column(df, "event_time_col", event_time, *kinds)
        return PartitionWriter(
            config=options.config,
            stream=options.stream,
            mode=options.mode,
            ledger=options.ledger,
            sink=options.sink_name,
            event_col=event_col,
            serializer=options.serializer,
            routing_key_col=key,
            router=options.router,
            event_time_col=event_time,
        )


class SinkPerStream:
    """Writes each row of a micro-batch to the stream that the row names; pass it to
    ``writeStream.foreachBatch``.

    It writes to one stream after the other. With ``exactly_once`` each of them has the batch's rows exactly
    once and as a whole; between two of them a reader may see the rows of the one and not yet of the other. A
    driver that has died between two is followed by one that writes the rest. Let all sinks use one
    ``ledger_stream``.

    Example::

        from spark_adapter import ForeachBatchSink, SinkPerStream, create_if_missing

        def sink_of(stream):
            create_if_missing(config, stream)
            return ForeachBatchSink(config, stream, mode="exactly_once", ledger_stream="routed-ledger")

        query = (
            frame.selectExpr("to_json(struct(*)) AS event", "concat('alerts-', severity) AS target")
            .writeStream.foreachBatch(SinkPerStream(sink_of, stream_col="target"))
            .option("checkpointLocation", "/data/checkpoints/routed")
            .start()
        )

    :param sink_of: function that makes the sink of a stream, from the name in the rows. It is called once for
        each name, and may create the stream, or raise to refuse it.
    :param stream_col: string column with the name of the stream. The sinks do not get it.
    :param most_streams: the most streams of one batch (default 100): each takes at least one Spark job.
    :raises InvalidArgumentError: an argument is invalid.

    :ivar last_batches: the report of the last batch for each of its streams.
    """

    def __init__(
        self, sink_of: Callable[[str], ForeachBatchSink], *, stream_col: str, most_streams: int = 100
    ) -> None:
        check_callable("sink_of", sink_of)
        check_text("stream_col", stream_col)
        check_count("most_streams", most_streams)
        self._sink_of = sink_of
        self._stream_col = stream_col
        self._most_streams = most_streams
        self._sinks: dict[str, ForeachBatchSink] = {}
        self.last_batches: dict[ScopedStream, BatchReport] = {}

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write one batch; Spark calls this.

        :param df: the rows of the batch.
        :param batch_id: Spark's number of the batch, from 0.
        :raises InvalidArgumentError: an argument is invalid, the column is missing, ambiguous or not a
            string, a row names no stream, or there are more than ``most_streams``; nothing was written.
        :raises EncodeError: a name is not UTF-8; nothing was written.
        :raises PravegaError: as for :class:`ForeachBatchSink`.
        """
        batch_id = _check_call(df, batch_id)
        self.last_batches = {}
        column = _column(df, "stream_col", self._stream_col, StringType)
        level = df.storageLevel
        is_kept = level.useMemory or level.useDisk
        if not is_kept:
            # Otherwise Spark would compute the rows again for each stream.
            df = df.persist()
        try:
            # As bytes: a collation may take the names of two streams for one.
            name = F.col(quoted(column)).cast("binary")
            found = df.select(name).distinct().limit(self._most_streams + 1).collect()
            names = [_decoded(row[0], column, batch_id) for row in found]
            require_named(names, column, f"batch {batch_id}")
            if len(names) > self._most_streams:
                raise InvalidArgumentError(
                    f"the rows of batch {batch_id} name more than {self._most_streams} streams in column "
                    f"{column!r}; set most_streams if that is intended"
                )
            for stream, its_names in sorted(self._streams(names).items()):
                sink = self._sinks[its_names[0]]
                sink(df.where(name.isin([each.encode() for each in its_names])).drop(column), batch_id)
                assert sink.last_batch is not None
                self.last_batches[stream] = sink.last_batch
        finally:
            if not is_kept:
                df.unpersist()

    def _streams(self, names: Sequence[str]) -> dict[ScopedStream, list[str]]:
        """Return the streams of some names, which may be written with and without a scope."""
        streams: dict[ScopedStream, list[str]] = {}
        for name in sorted(names):
            sink = self._sinks.get(name)
            if sink is None:
                sink = self._sink_of(name)
                if not isinstance(sink, ForeachBatchSink):
                    raise InvalidArgumentError(
                        f"sink_of({name!r}) must return a ForeachBatchSink, not {type(sink).__name__}"
                    )
                sink._is_one_of_many = True
                self._sinks[name] = sink
            streams.setdefault(sink._options.stream, []).append(name)
        return streams


def _decoded(name: bytes | None, column: str, batch_id: int) -> str:
    try:
        return "" if name is None else bytes(name).decode()
    except UnicodeDecodeError as error:
        raise EncodeError(
            f"column {column!r} (stream_col) of a row in batch {batch_id} is not UTF-8, so it does not name "
            f"a stream: {error}"
        ) from error


def _check_call(df: object, batch_id: object) -> int:
    """Check the arguments of a call of a sink, and return the number of the batch."""
    if not isinstance(df, DataFrame) and not is_connect(cast("DataFrame", df)):
        raise InvalidArgumentError(f"df must be a DataFrame of Spark, not {type(df).__name__}")
    return check_count("batch_id", batch_id, lowest=0)


def _column(df: DataFrame, setting: str, column: str, *kinds: type[DataType]) -> str:
    """Return the name of a column in a DataFrame, by which Spark finds that column and no other one.

    :raises InvalidArgumentError: there is no such column, Spark finds several, or it has none of the types.
    """
    name = require_column(df.schema, setting, column, *kinds)
    alike = [each for each in df.schema.names if each.lower() == name.lower()]
    if len(alike) > 1 and df.sparkSession.conf.get("spark.sql.caseSensitive", "false") != "true":
        raise InvalidArgumentError(
            f"{setting}: column {name!r} is one of several whose names differ only in case "
            f"({', '.join(alike)}), which Spark does not tell apart: rename the others, or set "
            "spark.sql.caseSensitive to true"
        )
    return name


def _run_tasks(df: DataFrame, plan: PartitionWriter) -> list[AttemptResult]:
    """Run the writer on all partitions, and return the result of one successful attempt for each.

    Rows are sent to Python as Arrow batches unless they are needed as ``Row`` objects. PySpark requires
    pandas for that, although it does not use it.
    """
    by_rows = plan.serializer is not None or plan.router is not None or find_spec("pandas") is None
    # mapInArrow looks columns up by names that it does not quote, so they get plain ones.
    columns: list[Column] = []
    names: dict[str, Any] = {}
    if plan.serializer is None:
        columns.append(_as_written(plan.event_col, "event", by_rows))
        names |= {"event_col": "event", "event_from": f"column {plan.event_col!r}"}
    if plan.routing_key_col is not None:
        columns.append(_as_written(plan.routing_key_col, "routing_key", by_rows))
        names |= {"routing_key_col": "routing_key", "key_from": f"column {plan.routing_key_col!r}"}
    if plan.event_time_col is not None:
        event_time = F.col(quoted(plan.event_time_col))
        if not isinstance(df.schema[plan.event_time_col].dataType, IntegralType):
            # By Spark, in the session's time zone: that of a worker may be another one.
            event_time = F.unix_millis(event_time.cast("timestamp"))
        columns.append(event_time.alias("event_time_ms"))
        names["event_time_col"] = "event_time_ms"
    plan = replace(plan, **names)
    if by_rows:
        # The serializer and the router get the rows as they are.
        given = df.select(F.struct("*").alias("row"), *columns)
        results = [decode_result(text) for text in given.rdd.mapPartitions(plan.write_rows).collect()]
    else:
        rows = df.select(*columns).mapInArrow(plan.write_arrow, RESULT_SCHEMA).collect()
        results = [decode_result(row[0]) for row in rows]
    return results


def _as_written(column: str, name: str, by_rows: bool) -> Column:
    """Return a column with events or routing keys under another name.

    In a row, Spark gives a string that is not UTF-8 as another string, so there it is binary.
    """
    found = F.col(quoted(column))
    return (found.cast("binary") if by_rows else found).alias(name)


class _Calls:
    """The batches that sinks are writing or have finished in this process, to detect a second write of a
    batch.

    A batch that is DONE is skipped if Spark runs it again: in a new process, or in this one after the query
    was restarted. Within one run of a query Spark runs each batch once. So a second call for a batch with the
    same key comes from a function that writes twice, and its rows would be lost. The same holds while the
    first call is still in progress: the second would finish its transaction as that of a dead driver.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._finished: dict[tuple[str, ScopedStream, SinkKey], tuple[str, int]] = {}
        self._running: set[tuple[tuple[str, ScopedStream, SinkKey], str]] = set()

    @contextmanager
    def one(
        self, controller: str, ledger: ScopedStream, key: SinkKey, run: str, batch: int
    ) -> Iterator[None]:
        """Surround one call; a call that raises may be repeated.

        :param controller: URI of the controller.
        :param ledger: the ledger stream.
        :param key: query, stream and sink name.
        :param run: id of the query's run, in which Spark does not repeat a finished batch.
        :param batch: number of the batch.
        :raises InvalidArgumentError: this run has already finished that batch or a later one, or another call
            for the same key is still in progress.
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
                f"batch {batch} cannot be written for {key} (ledger {ledger}), because {found}: the rows of "
                "a second call would be lost. Give each sink of the query that writes to this stream a "
                "different sink_name, and call each once for a batch, with increasing batch ids"
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
    """Return the JVM object of a running query, or None if it is not available."""
    # The session inside foreachBatch is a clone, whose own list of queries is empty.
    key = spark._jvm.java.util.UUID.fromString(query_id)
    try:
        return spark._jsparkSession.sharedState().activeStreamingQueries().get(key)
    except Py4JError:
        return None


def _run_of(spark: SparkSession, query_id: str) -> str | None:
    """Return Spark's id of this run of a query; each start gets another one."""
    query = _active_query(spark, query_id)
    try:
        if query is not None:
            return str(query.runId())
    except Py4JError:
        pass
    # Spark sets the job group to the run id, unless the user's function has set another one.
    return cast("str | None", spark.sparkContext.getLocalProperty("spark.jobGroup.id"))


def _checkpoint_root(query: Any) -> str | None:
    """Return the location of a query's checkpoint, or None if it is not available."""
    try:
        return None if query is None else str(query.resolvedCheckpointRoot())
    except Py4JError:
        return None


_entries: dict[str, tuple[tuple[str, int], PlannedBatch]] = {}
# By query: its last run and batch, and the entry.


def _planned(spark: SparkSession, query_id: str, batch: int) -> PlannedBatch | None:
    """Return the entry of a batch in a query's checkpoint, in whatever file system; None if it has none.

    The file is read, because Spark's own objects for it differ between versions. It is read once for all
    sinks of the batch: within a run of the query it does not change.
    """
    active = _active_query(spark, query_id)
    root = _checkpoint_root(active)
    if root is None:
        return None
    place = str(active.runId()), batch
    known = _entries.get(query_id)
    if known is not None and known[0] == place:
        return known[1]
    hadoop, jvm = spark._jvm.org.apache.hadoop.fs, spark._jvm
    try:
        system = hadoop.Path(root).getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
        entry = hadoop.Path(root, f"offsets/{batch}")
        if not system.exists(entry):
            return None
        file = system.open(entry)
        try:
            text = str(jvm.org.apache.commons.io.IOUtils.toString(file, "UTF-8"))
        finally:
            file.close()
        planned = planned_batch(text, bool(system.exists(hadoop.Path(root, "state"))))
        if planned is not None:
            _entries[query_id] = place, planned
        return planned
    except Py4JError as error:
        log.warning("the entry of batch %d in checkpoint %s cannot be read: %s", batch, root, error)
        return None


def _checkpoint_is_random(spark: SparkSession, query_id: str) -> bool:
    """Return True if Spark will create another checkpoint at the next start.

    It does that for a query without a name whose checkpoint is in the default location.
    """
    query = _active_query(spark, query_id)
    root = _checkpoint_root(query)
    default = spark.conf.get("spark.sql.streaming.checkpointLocation", None)
    if root is None or not default or query.name() is not None:
        return False
    return is_random_below(root, default)


def is_random_below(root: str, default: str) -> bool:
    """Return True if a checkpoint's path is a random UUID directly below the default location.

    :param root: path of the checkpoint, as Spark resolved it.
    :param default: the default location as configured, perhaps without a scheme.
    """
    parent, _, last = location_parts(root)[2].rpartition("/")
    try:
        if str(UUID(last)) != last.lower():
            return False
    except ValueError:
        return False
    above = location_parts(default)[2].rstrip("/")
    return parent == above if above.startswith("/") or not above else parent.endswith("/" + above)


def _checkpoint_is_temporary(spark: SparkSession, query_id: str) -> bool:
    """Return True if the query has a temporary checkpoint, which Spark deletes when the query ends."""
    root = _checkpoint_root(_active_query(spark, query_id))
    if root is None:
        log.warning(
            "this version of Spark does not report the query's checkpoint location, so it was not checked"
        )
        return False
    return root.rstrip("/").rpartition("/")[2].startswith("temporary-")
