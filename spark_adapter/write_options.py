"""The options of one write by format name, parsed, and the columns that they name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self, TypeAlias, cast, get_args

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    NullType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pravega_wire import PravegaConfig, ScopedStream
from pravega_wire.checks import MAX_LEASE_MS, MIN_LEASE_MS
from pravega_wire.errors import InvalidArgumentError
from spark_adapter.choice import LEDGER_SUFFIX
from spark_adapter.commit import IfForgotten
from spark_adapter.creating import Creation
from spark_adapter.ledger import is_reserved
from spark_adapter.options import Use, boolean, canonical, config_of, number, one_of, stream_of
from spark_adapter.rows_json import column_to_json, rows_to_json
from spark_adapter.tasks import Mode

__all__ = ["Columns", "ValueFormat", "WriteOptions", "default_ledger"]

ValueFormat: TypeAlias = Literal["binary", "string", "json"]

EVENT, KEY, TIME = "event", "routing_key", "event_time_ms"
"""Columns of what :meth:`Columns.project` gives: binary or string, string, and milliseconds as long."""

_ONLY_EXACTLY_ONCE = (
    "ledger_stream",
    "query",
    "sink_name",
    "job_id",
    "new_ledger",
    "if_forgotten",
    "compact_after",
    "event_time_col",
)


def default_ledger(stream: ScopedStream) -> ScopedStream:
    """The ledger of writes to a stream that name none."""
    return ScopedStream(stream.scope, f"{stream.name}{LEDGER_SUFFIX}")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The options of one write, parsed.

    :ivar ledger: None unless ``exactly_once``. :ivar columns: what the options say of columns, not
        compared with a frame. :ivar creation: whether and how the stream is made if it is missing.
    """

    config: PravegaConfig
    stream: ScopedStream
    semantic: Mode
    columns: Columns
    ledger: ScopedStream | None = None
    query: str | None = None
    sink_name: str = ""
    job_id: str | None = None
    new_ledger: bool = False
    if_forgotten: IfForgotten = "raise"
    compact_after: int = 1000
    lease_ms: int = 120_000
    read_after_write: bool = True
    creation: Creation = field(default_factory=lambda: Creation(stream=True))

    @classmethod
    def parse(cls, options: Mapping[str, str], use: Use) -> Self:
        """Parse what a user gave; environment variables fill what is missing.

        :param use: ``write`` or ``writeStream``.
        :raises InvalidArgumentError: an option is unknown, given twice, missing or malformed, or does not go
            with another one.
        """
        given = canonical(options, use)
        config = config_of(given)
        stream = stream_of(given, config)
        semantic = _semantic(given)
        ledger = None
        if semantic == "exactly_once":
            named = given.get("ledger_stream")
            if named == "":
                raise InvalidArgumentError(
                    "option 'ledger_stream' is empty; leave it out for <stream>-spark-ledger"
                )
            ledger = default_ledger(stream) if named is None else config.resolve(named)
            if ledger == stream:
                raise InvalidArgumentError(f"option 'ledger_stream': {ledger} is the stream to write to")
        else:
            for name in _ONLY_EXACTLY_ONCE:
                if name in given:
                    raise InvalidArgumentError(
                        f"option {name!r} needs semantic 'exactly_once', and this is {semantic!r}"
                    )
        for name in ("query", "job_id"):
            if name in given and (not given[name] or is_reserved(given[name])):
                raise InvalidArgumentError(f"option {name!r}: {given[name]!r} is not a name")
        poll = "transaction_status_poll_interval_ms"
        if poll in given:
            number(poll, given[poll], 1)
        return cls(
            config=config,
            stream=stream,
            semantic=semantic,
            columns=Columns.parse(given),
            ledger=ledger,
            query=given.get("query"),
            sink_name=given.get("sink_name", ""),
            job_id=given.get("job_id"),
            new_ledger=boolean("new_ledger", given.get("new_ledger", "false")),
            if_forgotten=cast(
                IfForgotten,
                one_of("if_forgotten", given.get("if_forgotten", "raise"), get_args(IfForgotten)),
            ),
            compact_after=number("compact_after", given.get("compact_after", "1000"), 1),
            lease_ms=number(
                "transaction_timeout_ms",
                given.get("transaction_timeout_ms", "120000"),
                MIN_LEASE_MS,
                MAX_LEASE_MS,
            ),
            read_after_write=boolean(
                "read_after_write_consistency", given.get("read_after_write_consistency", "true")
            ),
            creation=Creation.parse(given, use),
        )


def _semantic(given: Mapping[str, str]) -> Mode:
    semantic: Mode = "exactly_once"
    if "exactly_once" in given and not boolean("exactly_once", given["exactly_once"]):
        semantic = "at_least_once"
    if "semantic" not in given:
        return semantic
    named = cast(Mode, one_of("semantic", given["semantic"], get_args(Mode)))
    if "exactly_once" in given and (named == "exactly_once") != (semantic == "exactly_once"):
        raise InvalidArgumentError(
            f"options 'semantic' ({named}) and 'exactly_once' ({given['exactly_once']}) contradict each "
            "other; leave one out"
        )
    return named


# --- columns --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Columns:
    """What becomes of a frame's columns.

    :ivar event: column with the event; None for the whole row. :ivar value_format: None for what the
        column's type says. :ivar key, time: columns with routing key and event time, or None.
    """

    event: str | None
    value_format: ValueFormat | None = None
    key: str | None = None
    time: str | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Self:
        """What the options say; see :class:`WriteOptions`."""
        value_format = None
        if "value_format" in given:
            value_format = cast(
                ValueFormat, one_of("value_format", given["value_format"], get_args(ValueFormat))
            )
        event = given.get("event_col", None if value_format == "json" else EVENT)
        return cls(event, value_format, given.get("routing_key_col"), given.get("event_time_col"))

    def of(self, schema: StructType) -> Columns:
        """The same for a frame of this schema: a column ``routing_key`` is the key if none was named.

        :raises InvalidArgumentError: a column is missing or of the wrong type.
        """
        if self.value_format == "json":
            _require_json(schema, self.event)
        else:
            assert self.event is not None
            kinds: dict[ValueFormat | None, tuple[type[DataType], ...]] = {
                None: (BinaryType, StringType),
                "binary": (BinaryType,),
                "string": (StringType,),
            }
            _require(schema, "event_col", self.event, *kinds[self.value_format])
        key = self.key
        if key is None and KEY in schema.fieldNames():
            key = KEY
        if key is not None:
            _require(schema, "routing_key_col", key, StringType)
        if self.time is not None:
            _require(schema, "event_time_col", self.time, TimestampType, IntegralType)
        return Columns(self.event, self.value_format, key, self.time)

    def project(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Batches of the columns ``event``, and ``routing_key`` and ``event_time_ms`` where there are any.

        Batches without rows are left out.
        """
        for batch in batches:
            if batch.num_rows == 0:
                continue
            arrays = [self._events(batch)]
            names = [EVENT]
            if self.key is not None:
                arrays.append(batch.column(self.key))
                names.append(KEY)
            if self.time is not None:
                arrays.append(_milliseconds(batch.column(self.time)))
                names.append(TIME)
            yield pa.RecordBatch.from_arrays(arrays, names)

    def _events(self, batch: pa.RecordBatch) -> pa.Array:
        if self.value_format != "json":
            return batch.column(self.event)
        if self.event is None:
            return pa.array(rows_to_json(batch), pa.binary())
        try:
            return pa.array(column_to_json(batch.column(self.event)), pa.binary())
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"column {self.event!r}: {error}") from error


def _milliseconds(column: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(column.type):
        # the cast alone would round towards zero, so up before 1970
        column = pc.floor_temporal(column.cast(pa.timestamp("us")), unit="millisecond")
        return column.cast(pa.timestamp("ms")).cast(pa.int64())
    return column.cast(pa.int64())


def _require(schema: StructType, option: str, column: str, *kinds: type[DataType]) -> None:
    found = _field(schema, option, column).dataType
    if not isinstance(found, kinds):
        wanted = " or ".join(_NAMES[kind] for kind in kinds)
        raise InvalidArgumentError(
            f"option {option!r}: column {column!r} is {found.simpleString()}, not {wanted}"
        )


_NAMES: dict[Any, str] = {
    BinaryType: "binary",
    StringType: "string",
    TimestampType: "timestamp",
    IntegralType: "whole milliseconds",
}


def _field(schema: StructType, option: str, column: str) -> Any:
    found = [field for field in schema.fields if field.name == column]
    if len(found) != 1:
        many = "there is no column" if not found else "several columns are called"
        raise InvalidArgumentError(f"option {option!r}: {many} {column!r}; {', '.join(schema.fieldNames())}")
    return found[0]


def _require_json(schema: StructType, column: str | None) -> None:
    kind = schema if column is None else _field(schema, "event_col", column).dataType
    wrong = _no_json(kind)
    if wrong is not None:
        raise InvalidArgumentError(
            f"option 'value_format': {wrong} has no form in JSON here; cast or leave out what has it"
        )


_JSON_TYPES = (
    BooleanType,
    IntegralType,
    FloatType,
    DoubleType,
    DecimalType,
    StringType,
    BinaryType,
    DateType,
    TimestampType,
    TimestampNTZType,
    NullType,
)


def _no_json(kind: DataType) -> str | None:
    """What in a type has no form in JSON, or None."""
    if isinstance(kind, StructType):
        names = kind.fieldNames()
        if len(set(names)) < len(names):
            return f"an object with two fields of one name ({', '.join(names)})"
        return next(filter(None, (_no_json(field.dataType) for field in kind.fields)), None)
    if isinstance(kind, ArrayType):
        return _no_json(kind.elementType)
    if isinstance(kind, MapType):
        if not isinstance(kind.keyType, StringType):
            return f"a map with keys of type {kind.keyType.simpleString()}"
        return _no_json(kind.valueType)
    return None if isinstance(kind, _JSON_TYPES) else str(kind.simpleString())
