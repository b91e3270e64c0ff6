"""The parsed options of a write with the format ``pravega``, and the columns that they name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, TypeAlias, get_args

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

from pravega_wire import PravegaConfig, ScopedStream
from pravega_wire.errors import InvalidArgumentError
from pravega_wire.support.checks import MAX_LEASE_MS, MIN_LEASE_MS
from pravega_wire.values.naming import validate_user_name
from spark_adapter.columns.rows_json import column_to_json, rows_to_json
from spark_adapter.exactly_once.identity import PlannedBatch
from spark_adapter.exactly_once.ledger import IfForgotten, OnOlderCheckpoint, is_reserved
from spark_adapter.options.creating import Creation
from spark_adapter.options.quantities import count, milliseconds
from spark_adapter.options.read import Use, boolean, canonical, config_of, stream_of
from spark_adapter.options.streams import LEDGER_SUFFIX, option_named, stream_named

__all__ = [
    "ONLY_EXACTLY_ONCE",
    "Columns",
    "Mode",
    "Routing",
    "SinkOptions",
    "ValueFormat",
    "WriteOptions",
    "default_ledger",
    "one_of",
    "require_column",
    "require_exactly_once",
    "require_named",
]

Mode: TypeAlias = Literal["best_effort", "at_least_once", "exactly_once"]
ValueFormat: TypeAlias = Literal["binary", "string", "json"]

EVENT, KEY, TIME = "event", "routing_key", "event_time_ms"
"""The columns that :meth:`Columns.project` returns: binary, large binary or string; string;
milliseconds as long."""

ONLY_EXACTLY_ONCE = (
    "ledger_stream",
    "query",
    "sink_name",
    "job_id",
    "new_ledger",
    "if_forgotten",
    "on_older_checkpoint",
    "compact_after",
    "event_time_col",
)
"""What only ``exactly_once`` has a use for."""

_MOST_STREAMS = 1000
"""The largest ``most_streams``: a task has a thread for each of its streams."""

_ANY_STREAM = ScopedStream("named", "by-rows")
"""Stands for the streams of a write whose rows name them; :meth:`WriteOptions.to` replaces it."""


def default_ledger(stream: ScopedStream) -> ScopedStream:
    """Return the default ledger of writes to a stream.

    :raises InvalidArgumentError: it is an internal stream, or its name is too long to be extended.
    """
    # Otherwise the error would be about a name that the user never wrote.
    validate_user_name("stream", stream.name)
    return ScopedStream(stream.scope, f"{stream.name}{LEDGER_SUFFIX}")


def one_of(name: str, value: str, choices: Any) -> Any:
    """Return the value of a setting, if it is one of a ``Literal``.

    :raises InvalidArgumentError: it is not.
    """
    if value not in get_args(choices):
        raise InvalidArgumentError(f"{name} {value!r} is not one of {', '.join(get_args(choices))}")
    return value


def require_exactly_once(setting: str, mode: Mode, names: Iterable[str]) -> None:
    """Check that the settings ``names`` are not set without ``exactly_once``, which alone has a use for them.

    :raises InvalidArgumentError: ``setting``, which has the mode, is another one.
    """
    if mode != "exactly_once":
        for name in names:
            raise InvalidArgumentError(
                f"{name} needs {setting} 'exactly_once', but the {setting} is {mode!r}; remove it"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """What both ways to write have: the format and :class:`~spark_adapter.ForeachBatchSink`.

    :ivar config: connection settings.
    :ivar stream: the stream to write to.
    :ivar mode: ``exactly_once``, ``at_least_once`` or ``best_effort``.
    :ivar ledger: the ledger stream; None unless ``exactly_once``.
    :ivar query: name of the query in the ledger; None for Spark's id.
    :ivar sink_name: distinguishes sinks of one query that write to the same stream.
    :ivar new_ledger: whether to accept a batch above 0 although the ledger has no record of the query.
    :ivar if_forgotten: what to assume about a transaction that the server has no record of.
    :ivar on_older_checkpoint: what to do if the query's checkpoint is older than what was written.
    :ivar compact_after: number of records after which the ledger is compacted.
    :ivar lease: lease of the transaction in seconds.
    :ivar read_after_write: whether a batch counts as done only when readers see it.
    :ivar allow_same_stream: whether a query may write to a stream that it reads.
    :raises InvalidArgumentError: the ledger is the stream itself, or the query has a name of a job.
    """

    config: PravegaConfig
    stream: ScopedStream
    mode: Mode
    ledger: ScopedStream | None = None
    query: str | None = None
    sink_name: str = ""
    new_ledger: bool = False
    if_forgotten: IfForgotten = "raise"
    on_older_checkpoint: OnOlderCheckpoint = "raise"
    compact_after: int = 1000
    lease: float = 120
    read_after_write: bool = True
    allow_same_stream: bool = False

    def __post_init__(self) -> None:
        if self.ledger == self.stream:
            raise InvalidArgumentError(
                f"ledger_stream must name another stream than the one to write to, {self.stream}"
            )
        if self.query is not None and (not self.query or is_reserved(self.query)):
            raise InvalidArgumentError(f"query {self.query!r} is not a valid name")

    def require_other_stream(self, planned: PlannedBatch | None) -> None:
        """Check that a query does not write to a stream that it reads, unless the options allow it.

        :param planned: the entry of a batch in the query's checkpoint; nothing is checked without one.
        :raises InvalidArgumentError: the query reads the stream.
        """
        if planned is not None and str(self.stream) in planned.streams and not self.allow_same_stream:
            raise InvalidArgumentError(
                f"the query reads stream {self.stream}, to which it would write: it would read its own "
                "events, and never end. If that is meant, or if these are streams of two clusters, set "
                "allow_same_stream=true"
            )


@dataclass(frozen=True, slots=True)
class Routing:
    """How each row of a write names its stream.

    :ivar column: string column with the name: ``scope/stream``, or a name in the default scope.
    :ivar most: the most streams that the rows of one partition may name.
    """

    column: str
    most: int

    @classmethod
    def parse(cls, given: Mapping[str, str], mode: Mode) -> Self | None:
        """Parse the options; None if there is no ``stream_col``, so that the write has one stream.

        :raises InvalidArgumentError: an option is malformed, or contradicts another one.
        """
        if "stream_col" not in given:
            if "most_streams" in given:
                raise InvalidArgumentError("option 'most_streams' needs 'stream_col'; remove it")
            return None
        if "stream" in given:
            raise InvalidArgumentError(
                "options 'stream' and 'stream_col' cannot be used together; remove one of them"
            )
        if mode == "exactly_once":
            raise InvalidArgumentError(
                "option 'stream_col' needs semantic 'at_least_once' or 'best_effort', because a transaction "
                "has one stream; SinkPerStream in foreachBatch writes each of several streams exactly once"
            )
        return cls(
            given["stream_col"],
            count("most_streams", given.get("most_streams"), highest=_MOST_STREAMS) or 100,
        )


def require_named(names: Iterable[str | None], column: str, where: str) -> None:
    """Check that each row names a stream.

    :param names: the names that rows have.
    :param column: the column with them.
    :param where: where the rows are, for the message.
    :raises InvalidArgumentError: one is null or empty.
    """
    if not all(names):
        raise InvalidArgumentError(
            f"column {column!r} (stream_col) of a row in {where} is null or empty: it has to name the stream "
            "to write to"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions(SinkOptions):
    """The parsed options of one write.

    Example::

        options = WriteOptions.parse({"stream": "demo/readings", "job_id": "readings-2024-01-31"}, "write")

    :ivar columns: the columns that the options name, not yet checked against a DataFrame.
    :ivar job_id: name of the job in the ledger, or None.
    :ivar creation: whether and how to create the stream if it does not exist.
    :ivar routing: how rows name their streams; None if the write has one stream. With it, the options are
        those of no stream until :meth:`to` names one.
    """

    columns: Columns
    job_id: str | None = None
    routing: Routing | None = None
    creation: Creation = field(default_factory=lambda: Creation(stream=True))

    @classmethod
    def parse(cls, options: Mapping[str, str], use: Use) -> Self:
        """Parse the options of a write; connection settings that are not set come from the environment.

        :param options: the options as Spark passes them.
        :param use: ``write`` or ``writeStream``.
        :raises InvalidArgumentError: an option is unknown, set twice, missing or malformed, or contradicts
            another option.
        """
        given = canonical(options, use)
        config = config_of(given)
        mode = _mode(given)
        routing = Routing.parse(given, mode)
        stream = stream_of(given, config) if routing is None else _ANY_STREAM
        require_exactly_once(
            "semantic", mode, (f"option {name!r}" for name in ONLY_EXACTLY_ONCE if name in given)
        )
        ledger = None
        if mode == "exactly_once":
            named = given.get("ledger_stream")
            if named is None:
                with option_named("stream"):
                    ledger = default_ledger(stream)
            else:
                ledger = stream_named("ledger_stream", named, config)
        job_id = given.get("job_id")
        if job_id is not None and is_reserved(job_id):
            raise InvalidArgumentError(f"option 'job_id': {job_id!r} is not a valid name")
        poll = "transaction_status_poll_interval_ms"
        milliseconds(poll, given.get(poll))
        lease = "transaction_timeout_ms"
        return cls(
            config=config,
            stream=stream,
            mode=mode,
            columns=Columns.parse(given),
            routing=routing,
            ledger=ledger,
            query=given.get("query"),
            sink_name=given.get("sink_name", ""),
            job_id=job_id,
            new_ledger=boolean("new_ledger", given.get("new_ledger", "false")),
            if_forgotten=_choice("if_forgotten", given, IfForgotten, "raise"),
            on_older_checkpoint=_choice("on_older_checkpoint", given, OnOlderCheckpoint, "raise"),
            compact_after=count("compact_after", given.get("compact_after")) or 1000,
            lease=(milliseconds(lease, given.get(lease), MIN_LEASE_MS, MAX_LEASE_MS) or 120_000) / 1000,
            read_after_write=boolean(
                "read_after_write_consistency", given.get("read_after_write_consistency", "true")
            ),
            creation=Creation.parse(given, use),
            allow_same_stream=boolean("allow_same_stream", given.get("allow_same_stream", "false")),
        )

    def to(self, stream: ScopedStream) -> Self:
        """Return the options for one of the streams that rows name."""
        return replace(self, stream=stream, routing=None)

    @property
    def target(self) -> str:
        """The stream, or the column that names it, for messages."""
        if self.routing is None:
            return f"stream {self.stream}"
        return f"the streams in column {self.routing.column!r}"


def _choice(name: str, given: Mapping[str, str], choices: Any, default: str | None) -> Any:
    """Return the value of an option with a fixed set of values; case does not matter."""
    if name not in given:
        return default
    return one_of(f"option {name!r}:", given[name].lower(), choices)


def _mode(given: Mapping[str, str]) -> Mode:
    named: Mode | None = _choice("semantic", given, Mode, None)
    if "exactly_once" not in given:
        return named or "exactly_once"
    exactly_once = boolean("exactly_once", given["exactly_once"])
    if named is not None and (named == "exactly_once") != exactly_once:
        raise InvalidArgumentError(
            f"options 'semantic' ({named}) and 'exactly_once' ({given['exactly_once']}) contradict each "
            "other; remove one"
        )
    return named or ("exactly_once" if exactly_once else "at_least_once")


# --- columns --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a DataFrame that events are made of.

    :ivar event: column with the event; None for the whole row.
    :ivar value_format: format of the event; None to use the column's type.
    :ivar key: column with the routing key, or None.
    :ivar time: column with the event time, or None.
    """

    event: str | None
    value_format: ValueFormat | None = None
    key: str | None = None
    time: str | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Self:
        """Parse the options that name columns."""
        value_format = _choice("value_format", given, ValueFormat, None)
        event = given.get("event_col", None if value_format == "json" else EVENT)
        return cls(event, value_format, given.get("routing_key_col"), given.get("event_time_col"))

    def require_other(self, schema: StructType, column: str) -> None:
        """Check that no option names a column that is no part of the event: that of ``stream_col``.

        :raises InvalidArgumentError: one does.
        """
        named = {"event_col": self.event, "routing_key_col": self.key}
        for option, name in named.items():
            if name is not None and [field.name for field in _called(schema, name)] == [column]:
                raise InvalidArgumentError(
                    f"option {option!r}: column {column!r} is that of option 'stream_col', which is no part "
                    "of the event; copy it to another column if that is meant"
                )

    def of(self, schema: StructType) -> Columns:
        """Check the columns against a DataFrame's schema, and return their names there.

        As in Spark, a name may differ in upper and lower case. If no column with a routing key is named, the
        column ``routing_key`` is used if it exists.

        :raises InvalidArgumentError: a column is missing or has the wrong type.
        """
        event = self.event
        if self.value_format == "json":
            _require_json(schema, event)
            if event is not None:
                event = _field(schema, "option 'event_col'", event).name
        else:
            assert event is not None
            kinds: dict[ValueFormat | None, tuple[type[DataType], ...]] = {
                None: (BinaryType, StringType),
                "binary": (BinaryType,),
                "string": (StringType,),
            }
            event = require_column(schema, "option 'event_col'", event, *kinds[self.value_format])
        key, event_time = self.key, self.time
        if key is None and _called(schema, KEY):
            key = KEY
        if key is not None:
            key = require_column(schema, "option 'routing_key_col'", key, StringType)
        if event_time is not None:
            event_time = require_column(
                schema, "option 'event_time_col'", event_time, TimestampType, IntegralType
            )
        return Columns(event, self.value_format, key, event_time)

    def project(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return batches with the columns of events.

        They are ``event`` (binary, large binary or string), and ``routing_key`` and ``event_time_ms`` if they
        are used.

        Empty batches are left out.
        """
        before = 0
        for batch in batches:
            if batch.num_rows == 0:
                continue
            arrays = [self._events(batch, before)]
            before += batch.num_rows
            names = [EVENT]
            if self.key is not None:
                arrays.append(batch.column(self.key))
                names.append(KEY)
            if self.time is not None:
                arrays.append(_milliseconds(batch.column(self.time)))
                names.append(TIME)
            yield pa.RecordBatch.from_arrays(arrays, names)

    def _events(self, batch: pa.RecordBatch, before: int) -> pa.Array:
        if self.value_format != "json":
            return batch.column(self.event)
        if self.event is None:
            return pa.array(rows_to_json(batch, before), _EVENTS_OF_ROWS)
        try:
            return pa.array(column_to_json(batch.column(self.event), before), _EVENTS_OF_ROWS)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"column {self.event!r}: {error}") from error


# The JSON of a batch may be longer than the 2 GiB that each of its columns, and a binary array, can have.
_EVENTS_OF_ROWS = pa.large_binary()


def _milliseconds(column: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(column.type):
        # A division rounds towards zero: up, for times before 1970. Rounding the time itself down fails for
        # the smallest one.
        micros = column.cast(pa.timestamp("us")).cast(pa.int64())
        millis = pc.divide(micros, 1000)
        return pc.subtract(millis, pc.less(micros, pc.multiply(millis, 1000)).cast(pa.int64()))
    return column.cast(pa.int64())


def require_column(schema: StructType, setting: str, column: str, *kinds: type[DataType]) -> str:
    """Return the name of a column in a schema; that in the setting may differ in upper and lower case.

    :raises InvalidArgumentError: there is no such column, or several, or it has none of these types.
    """
    field = _field(schema, setting, column)
    found = field.dataType
    if not isinstance(found, (*kinds, *_BOUNDED) if StringType in kinds else kinds):
        wanted = " or ".join(_NAMES[kind] for kind in kinds)
        raise InvalidArgumentError(
            f"{setting}: column {column!r} has type {found.simpleString()}, not {wanted}"
        )
    return str(field.name)


_BOUNDED = (CharType, VarcharType)
"""The types of strings that a DataFrame has with ``spark.sql.preserveCharVarcharTypeInfo``."""

_NAMES: dict[Any, str] = {
    BinaryType: "binary",
    StringType: "string",
    TimestampType: "timestamp",
    TimestampNTZType: "timestamp_ntz",
    IntegralType: "whole milliseconds",
}


def _called(schema: StructType, column: str) -> list[StructField]:
    """Return the columns with exactly this name, or if there is none, those that differ only in case."""
    exact = [field for field in schema.fields if field.name == column]
    return exact or [field for field in schema.fields if field.name.lower() == column.lower()]


def _field(schema: StructType, setting: str, column: str) -> StructField:
    found = _called(schema, column)
    if len(found) != 1:
        many = "there is no column" if not found else "there are several columns"
        raise InvalidArgumentError(
            f"{setting}: {many} {column!r}; the columns are {', '.join(schema.fieldNames())}"
        )
    return found[0]


def _require_json(schema: StructType, column: str | None) -> None:
    if column is None and not schema.fields:
        # Spark passes rows without columns as no rows at all.
        raise InvalidArgumentError(
            "option 'value_format': the DataFrame has no columns, so its rows cannot be written as JSON"
        )
    kind = schema if column is None else _field(schema, "option 'event_col'", column).dataType
    wrong = _no_json(kind)
    if wrong is not None:
        raise InvalidArgumentError(
            f"option 'value_format': {wrong} cannot be written as JSON; cast or remove that column"
        )


_JSON_TYPES = (
    BooleanType,
    IntegralType,
    FloatType,
    DoubleType,
    DecimalType,
    StringType,
    *_BOUNDED,
    BinaryType,
    DateType,
    TimestampType,
    TimestampNTZType,
    NullType,
)


def _no_json(kind: DataType) -> str | None:
    """Return the part of a type that cannot be written as JSON, or None."""
    if isinstance(kind, StructType):
        names = kind.fieldNames()
        if len(set(names)) < len(names):
            return f"an object with two fields of the same name ({', '.join(names)})"
        return next(filter(None, (_no_json(field.dataType) for field in kind.fields)), None)
    if isinstance(kind, ArrayType):
        return _no_json(kind.elementType)
    if isinstance(kind, MapType):
        if not isinstance(kind.keyType, (StringType, *_BOUNDED)):
            return f"a map with keys of type {kind.keyType.simpleString()}"
        return _no_json(kind.valueType)
    return None if isinstance(kind, _JSON_TYPES) else str(kind.simpleString())
