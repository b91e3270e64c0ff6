"""Writes a partition in a Spark task, and reports the result."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import compress, islice
from typing import Any, Protocol, Self
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import Row

from pravega_wire import MAX_EVENT_BYTES, PravegaConfig, Revision, ScopedStream
from pravega_wire.errors import (
    EncodeError,
    EventTooLargeError,
    FencedError,
    InvalidArgumentError,
    PravegaError,
)
from pravega_wire.sync import EventWriter, PravegaClient
from spark_adapter.clients import HeldClient
from spark_adapter.exactly_once.contents import AttemptResult, Contents, dump_contents, load_contents
from spark_adapter.exactly_once.identity import checksum_of
from spark_adapter.exactly_once.journal import Revisioned, is_open_since
from spark_adapter.exactly_once.ledger import Staging, encode_record, staging_id
from spark_adapter.options.write import Mode

__all__ = ["RESULT_SCHEMA", "Chunk", "PartitionWriter", "decode_result"]

log = logging.getLogger(__name__)

RESULT_SCHEMA = "result string"
_ROWS_PER_CHUNK = 5000
_NO_TIME = -(2**63)

_EVENT_TYPES = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_fixed_size_binary,
)


class _Writer(Protocol):
    """The part of an event writer or a staging writer that is used here."""

    def write_events(self, events: Any, /, *, routing_keys: Any) -> object: ...


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some rows of a partition, ready to be written.

    :ivar events: a list of bytes, or an Arrow array of binary or string without nulls.
    :ivar keys: a routing key (or None) for each event, as a list or an Arrow array of strings; None if no
        event has a routing key.
    :ivar nbytes: number of bytes of the events.
    :ivar timestamp: largest event time of these rows in ms, or None.
    :ivar dropped: number of rows that were left out, because they cannot be written.
    """

    events: Any
    keys: Any
    nbytes: int
    timestamp: int | None
    dropped: int = 0

    def listed(self) -> tuple[list[bytes], list[str | None] | None]:
        """Return events and keys as lists."""
        if isinstance(self.events, list):
            return self.events, self.keys
        events = self.events.cast(pa.large_binary()).to_pylist()
        return events, None if self.keys is None else self.keys.to_pylist()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionWriter:
    """Writes one partition of a batch; can be pickled, so that it can be sent to workers.

    :param config: connection settings.
    :param stream: the stream to write to.
    :param mode: the guarantee of the write.
    :param ledger: the ledger stream (``exactly_once`` only).
    :param query: name of the query in the ledger (``exactly_once`` only).
    :param sink: name of the sink in the ledger (``exactly_once`` only).
    :param batch: number of the batch (``exactly_once`` only).
    :param txn: id of the batch's transaction (``exactly_once`` only).
    :param session: id of the driver (``exactly_once`` only).
    :param event_col: column with the event (binary or string), unless there is a ``serializer``.
    :param event_from: where a user finds that column, for messages; default: ``column 'NAME'``, or the
        serializer.
    :param serializer: function from a row to the event's bytes, or None.
    :param routing_key_col: column with the routing key, or None.
    :param key_from: where a user finds that column, for messages; default: ``column 'NAME'``.
    :param router: function from a row to the routing key, or None.
    :param event_time_col: column with the event time in milliseconds, or None.
    :param staging_made: called when the staging segments exist (``exactly_once`` only); if it raises, they
        are deleted. For a writer that is created in the task.
    :param checksummed: whether to report a checksum of the events, because nothing else identifies the batch.
    :param counting: whether to write nothing, and to report only what was found in the rows.
    :param claimed_at: a revision of the ledger at which the transaction's claim was open, for a writer
        without ``staging_made``: the task reads what was recorded since.
    """

    config: PravegaConfig
    stream: ScopedStream
    mode: Mode
    ledger: ScopedStream | None = None
    query: str = ""
    sink: str = ""
    batch: int = 0
    txn: UUID | None = None
    session: UUID | None = None
    event_col: str = "event"
    event_from: str | None = None
    serializer: Callable[[Row], bytes] | None = None
    routing_key_col: str | None = None
    key_from: str | None = None
    router: Callable[[Row], str | None] | None = None
    event_time_col: str | None = None
    staging_made: Callable[[], None] | None = None
    claimed_at: Revision | None = None
    checksummed: bool = False
    counting: bool = False

    # --- entry points ---------------------------------------------------------------------------

    def write_arrow(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write a partition for ``DataFrame.mapInArrow``.

        It returns one row with the result (:data:`RESULT_SCHEMA`).
        """
        result = self._write(self._chunks_of_batches(batches))
        yield pa.RecordBatch.from_pydict({"result": [_encode_result(result)]})

    def write_rows(self, rows: Iterator[Row]) -> Iterator[str]:
        """Write a partition for ``RDD.mapPartitions``; return one element, the result.

        :param rows: rows with the columns that are named, where a routing key is binary, and the column
            ``row`` with what the serializer and the router get.
        """
        yield _encode_result(self._write(self._chunks_of_rows(rows)))

    # --- rows to events -------------------------------------------------------------------------

    def _chunks_of_batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Chunk]:
        before = 0
        for batch in batches:
            if not batch.num_rows:
                continue
            events = batch.column(self.event_col)
            if events.null_count:
                raise self._no_event(None, before + pc.index(events.is_null(), True).as_py())
            if not any(check(events.type) for check in _EVENT_TYPES):
                raise self._no_event(events.type, before)
            keys = None if self.routing_key_col is None else batch.column(self.routing_key_col)
            wrong = [] if keys is None else _not_utf8(keys)
            if wrong and self.mode != "best_effort":
                raise self._no_key(before + wrong[0])
            if keys is not None and wrong:
                fits = pc.invert(pc.is_in(pa.array(range(len(keys))), pa.array(wrong)))
                events, keys = events.filter(fits), keys.filter(fits)
            timestamp = None
            if self.event_time_col is not None:
                timestamp = _given(pc.max(batch.column(self.event_time_col)).as_py())
            yield Chunk(events, keys, pc.sum(pc.binary_length(events)).as_py() or 0, timestamp, len(wrong))
            before += batch.num_rows

    def _chunks_of_rows(self, rows: Iterator[Row]) -> Iterator[Chunk]:
        serialize = self.serializer
        before = 0
        while some := list(islice(rows, _ROWS_PER_CHUNK)):
            timestamp = None
            if self.event_time_col is not None:
                known = [each[self.event_time_col] for each in some]
                timestamp = _given(max((time for time in known if time is not None), default=None))
            if serialize is None:
                events = [self._event(row[self.event_col], number) for number, row in enumerate(some, before)]
            else:
                events = [self._serialized(serialize(each["row"])) for each in some]
            keys: list[str | None] | None = None
            fits = [True] * len(some)
            if self.router is not None:
                keys = [self._routed(self.router(each["row"])) for each in some]
            elif self.routing_key_col is not None:
                keys = []
                for number, each in enumerate(some):
                    try:
                        key = each[self.routing_key_col]
                        keys.append(None if key is None else bytes(key).decode())
                    except UnicodeDecodeError:
                        if self.mode != "best_effort":
                            raise self._no_key(before + number) from None
                        keys.append(None)
                        fits[number] = False
                events, keys = list(compress(events, fits)), list(compress(keys, fits))
            yield Chunk(events, keys, sum(map(len, events)), timestamp, fits.count(False))
            before += len(some)

    def _event(self, value: Any, row: int) -> bytes:
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, bytes | bytearray):
            return bytes(value)
        raise self._no_event(None if value is None else type(value).__name__, row)

    def _no_event(self, found: object, row: int) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"{self._event_from} has {'a null' if found is None else found} in row {row} of partition "
            f"{_task().partitionId()}: an event of stream {self.stream} must be a string or binary"
        )

    def _no_key(self, row: int) -> EncodeError:
        return EncodeError(
            f"{self.key_from or f'column {self.routing_key_col!r}'} has a string that is not UTF-8 in row "
            f"{row} of partition {_task().partitionId()}: it cannot be the routing key of an event of stream "
            f"{self.stream} (mode or semantic 'best_effort' drops and counts such events)"
        )

    @property
    def _event_from(self) -> str:
        if self.event_from is not None:
            return self.event_from
        return f"column {self.event_col!r}" if self.serializer is None else "the serializer"

    def _put(self, writer: _Writer, chunk: Chunk, before: int) -> None:
        """Write a chunk.

        :raises EventTooLargeError: an event is over the limit; it is named by its column and row.
        """
        try:
            writer.write_events(chunk.events, routing_keys=chunk.keys)
        except EventTooLargeError as error:
            events, _ = chunk.listed()
            row = next((row for row, event in enumerate(events, before) if len(event) > error.limit), before)
            raise EventTooLargeError(
                f"{self._event_from} has an event of {error.size} bytes in row {row} of partition "
                f"{_task().partitionId()}, but an event of stream {self.stream} has at most {error.limit} "
                "bytes: write it in parts, or leave it out (mode or semantic 'best_effort' drops and counts "
                "such events)",
                size=error.size,
                limit=error.limit,
                scope=self.stream.scope,
                stream=self.stream.name,
            ) from error

    def _serialized(self, value: Any) -> bytes:
        if isinstance(value, bytes | bytearray):
            return bytes(value)
        raise InvalidArgumentError(f"the serializer must return bytes, not {type(value).__name__}")

    def _routed(self, key: Any) -> str | None:
        if key is None or isinstance(key, str):
            return key
        raise InvalidArgumentError(f"the router must return a string or None, not {type(key).__name__}")

    # --- writing --------------------------------------------------------------------------------

    def _write(self, chunks: Iterable[Chunk]) -> AttemptResult:
        if self.counting:
            tally = _Tally(checksum=0)
            for chunk in chunks:
                tally.add(chunk)
            return tally.result(_task().partitionId())
        with HeldClient(self.config) as client:
            match self.mode:
                case "exactly_once":
                    return self._stage(client, chunks)
                case "at_least_once":
                    return self._append(client, chunks)
                case "best_effort":
                    return self._try_append(client, chunks)

    def _append(self, client: PravegaClient, chunks: Iterable[Chunk]) -> AttemptResult:
        tally = _Tally()
        with client.event_writer(self.stream) as writer:
            for chunk in chunks:
                self._put(writer, chunk, tally.rows)
                tally.add(chunk)
            writer.flush()
        return tally.result(_task().partitionId())

    def _try_append(self, client: PravegaClient, chunks: Iterable[Chunk]) -> AttemptResult:
        with _BestEffort(client, self.stream) as attempt:
            for chunk in chunks:
                attempt.write(chunk)
        return attempt.tally.result(_task().partitionId())

    def _stage(self, client: PravegaClient, chunks: Iterable[Chunk]) -> AttemptResult:
        if self.ledger is None or self.txn is None or self.session is None:
            raise InvalidArgumentError("exactly once needs a ledger, a transaction and a session")
        task, tally = _task(), _Tally(checksum=0 if self.checksummed else None)
        staging: UUID | None = None
        contents: Contents = {}
        with ExitStack() as stack:
            writer = None
            for chunk in chunks:
                if writer is None:
                    staging = staging_id(
                        self.query, self.batch, self.txn, task.partitionId(), task.taskAttemptId()
                    )
                    # Recorded before the staging segments are created, so that they can be found whatever
                    # happens.
                    record = Staging(
                        query=self.query,
                        stream=str(self.stream),
                        sink=self.sink,
                        batch=self.batch,
                        txn=self.txn,
                        session=self.session,
                        staging=staging,
                    )
                    revisioned = stack.enter_context(client.revisioned_stream(self.ledger))
                    revisioned.write_unconditionally(encode_record(record))
                    writer = stack.enter_context(client.staging(self.stream, self.txn).writer(staging))
                    try:
                        self._require_claim(revisioned, record)
                    except PravegaError:
                        stack.close()
                        client.staging(self.stream, self.txn).delete([staging])
                        raise
                self._put(writer, chunk, tally.rows)
                tally.add(chunk)
            if writer is not None:
                contents = writer.contents()
        return tally.result(task.partitionId(), staging, contents)

    def _require_claim(self, revisioned: Revisioned, record: Staging) -> None:
        """Check that the new staging segments will be found by the process that ends their transaction.

        While this attempt created them, the other of two speculative attempts may have finished the
        partition, and the driver may have "deleted" the segments before they existed.

        :raises FencedError: the batch is finished or about to be, or another driver has taken over.
        """
        if self.staging_made is not None:
            self.staging_made()
        elif self.claimed_at is not None and not is_open_since(
            revisioned, self.claimed_at, record.key, record.txn
        ):
            raise FencedError(
                f"{record.key}: no more data can be staged for transaction {record.txn}: another attempt has "
                "finished the partition, or another driver has taken over",
                transaction=record.txn,
            )


class _BestEffort:
    """Writes what can be written, and counts each event that is not known to be stored as dropped."""

    def __init__(self, client: PravegaClient, stream: ScopedStream) -> None:
        self.tally = _Tally()
        self._client = client
        self._stream = stream
        self._writer: EventWriter | None = None
        self._given = 0

    def write(self, chunk: Chunk) -> None:
        """Write a chunk; after a failure the next chunk gets a new writer."""
        self.tally.dropped += chunk.dropped
        events, keys = chunk.listed()
        fits = [len(event) <= MAX_EVENT_BYTES for event in events]
        if not all(fits):
            self.tally.dropped += fits.count(False)
            events = list(compress(events, fits))
            keys = None if keys is None else list(compress(keys, fits))
        try:
            if self._writer is None:
                self._writer = self._client.event_writer(self._stream).__enter__()
            self._given += len(events)
            self._writer.write_events(events, routing_keys=keys)
        except PravegaError as error:
            if self._writer is None:
                self._given = len(events)
            self._settle(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            self._settle(None)
        elif self._writer is not None:
            self._writer.__exit__(kind, error, trace)

    def _settle(self, error: PravegaError | None) -> None:
        """Wait until the chunks are stored, and count their events; the next chunk gets a new writer."""
        writer, given = self._writer, self._given
        self._writer, self._given = None, 0
        stored = 0
        if writer is not None:
            try:
                writer.flush()
            except PravegaError as failure:
                error = error or failure
            metrics = writer.metrics()
            stored = metrics.events_acknowledged
            self.tally.rows += stored
            self.tally.nbytes += metrics.bytes_acknowledged
            writer.__exit__(None if error is None else type(error), error, None)
        self.tally.dropped += given - stored
        if error is not None:
            log.warning("%d events are not known to be stored in %s: %s", given - stored, self._stream, error)


@dataclass(slots=True)
class _Tally:
    """Counts what a task has written so far."""

    rows: int = 0
    nbytes: int = 0
    timestamp: int | None = None
    dropped: int = 0
    checksum: int | None = None

    def add(self, chunk: Chunk) -> None:
        self.rows += len(chunk.events)
        if self.checksum is not None:
            self.checksum += checksum_of(*chunk.listed())
        self.nbytes += chunk.nbytes
        if chunk.timestamp is not None:
            before = self.timestamp
            self.timestamp = chunk.timestamp if before is None else max(chunk.timestamp, before)

    def result(
        self, partition: int, staging: UUID | None = None, contents: Contents | None = None
    ) -> AttemptResult:
        return AttemptResult(
            partition,
            staging,
            self.rows,
            self.nbytes,
            contents or {},
            self.timestamp,
            self.dropped,
            self.checksum,
        )


def _not_utf8(texts: pa.Array) -> list[int]:
    """Return the rows with strings that are not UTF-8; Spark makes such ones of binary values."""
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        found = []
        for row, text in enumerate(texts):
            try:
                text.as_py()
            except UnicodeDecodeError:
                found.append(row)
        return found
    return []


def _task() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise InvalidArgumentError("a partition can be written only inside a Spark task")
    return task


def _given(time: int | None) -> int | None:
    """Return a greatest event time in ms; None for the value that means "none" to a controller.

    No commit can have that value, and this is found out only after PREPARED.
    """
    return None if time == _NO_TIME else time


def _encode_result(result: AttemptResult) -> str:
    staging = None if result.staging is None else result.staging.hex
    return json.dumps(
        [
            result.partition,
            staging,
            result.rows,
            result.nbytes,
            dump_contents(result.contents),
            result.timestamp,
            result.dropped,
            result.checksum,
        ]
    )


def decode_result(text: str) -> AttemptResult:
    """Decode the result that a task has reported."""
    partition, staging, rows, nbytes, contents, timestamp, dropped, checksum = json.loads(text)
    return AttemptResult(
        partition,
        None if staging is None else UUID(hex=staging),
        rows,
        nbytes,
        load_contents(contents),
        timestamp,
        dropped,
        checksum,
    )
