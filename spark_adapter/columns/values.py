"""Shapes of Python's own values: those of a serializer whose Spark type is given, and rows of changes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
from pyarrow import types

from pravega_wire.errors import InvalidArgumentError
from pravega_wire.schemas.debezium import Change, ChangeKind, DebeziumSerializer
from spark_adapter.columns.shape import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    LOCAL_TIMESTAMP,
    LONG,
    SIZES,
    STRING,
    TIMESTAMP,
    Field,
    Shape,
    Wrong,
    array_of,
    date_of,
    decimal_type,
    json_text,
    json_value,
    leaf,
    map_with_keys,
    moment_of,
    record,
)

__all__ = ["change_shape", "value_shape"]

_DAY: Final = date(1970, 1, 1)
_MICRO: Final = timedelta(microseconds=1)


def _to_local(micros: int) -> datetime:
    return moment_of(micros).replace(tzinfo=None)


def _of(name: str, *kinds: type) -> Any:
    """Return a check that a value is of one of these types; a boolean is no number."""

    def check(value: Any) -> Any:
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise Wrong(f"it is a {type(value).__name__}, not {name}")
        return value

    return check


def _moment(value: Any) -> datetime:
    found: datetime = _of("a datetime", datetime)(value)
    if found.tzinfo is None:
        raise Wrong("it is a datetime without a time zone")
    return found


def _local(value: Any) -> datetime:
    found: datetime = _of("a datetime", datetime)(value)
    if found.tzinfo is not None:
        raise Wrong("it is a datetime with a time zone")
    return found


def _date(value: Any) -> date:
    found: date = _of("a date", date)(value)
    if isinstance(found, datetime):
        raise Wrong("it is a datetime, not a date")
    return found


def _single(value: Any) -> float:
    found = _double(value)
    if math.isfinite(found) and abs(found) > _LARGEST_SINGLE:
        raise Wrong("it is too large for a float of 32 bits")
    return found


def _double(value: Any) -> float:
    return float(_of("a number", int, float)(value))


def _text(value: Any) -> str:
    return str(value) if isinstance(value, UUID) else str(_of("a text", str)(value))


def _decimal(value: Any) -> Decimal:
    return Decimal(_of("a decimal", Decimal, int)(value))


# Beyond the middle between the largest float of 32 bits and the next power of two, rounding gives infinity.
_LARGEST_SINGLE: Final = 3.4028235677973362e38

_LEAVES: Final = (
    (types.is_boolean, _of("a boolean", bool), None),
    (types.is_signed_integer, _of("a whole number", int), None),
    (types.is_float32, _single, None),
    (types.is_floating, _double, None),
    (types.is_decimal, _decimal, None),
    (types.is_string, _text, None),
    (types.is_binary, lambda value: bytes(_of("bytes", bytes, bytearray, memoryview)(value)), None),
    (types.is_date32, _date, date_of),
)


def value_shape(arrow: pa.DataType, what: str) -> Shape:
    """Return the shape of Python values in columns of a type.

    A struct is a mapping, a dataclass, an object with attributes, or a sequence in the order of the fields;
    it is written as a dictionary.

    :param what: names the type in messages.
    :raises InvalidArgumentError: the type is not supported.
    """
    if types.is_struct(arrow):
        if arrow.num_fields == 0:
            raise InvalidArgumentError(f"{what} has a struct without fields")
        inner = [arrow.field(index) for index in range(arrow.num_fields)]
        positions = {each.name: position for position, each in enumerate(inner)}

        def take(value: Any, name: str) -> Any:
            return _part(value, name, positions)

        return record(
            [Field(each.name, value_shape(each.type, what), optional=True) for each in inner], take=take
        ).or_null()
    if types.is_map(arrow):
        return map_with_keys(value_shape(arrow.key_type, what), value_shape(arrow.item_type, what)).or_null()
    if types.is_list(arrow):
        item = value_shape(arrow.value_type, what)
        return array_of(item, is_list=lambda value: isinstance(value, list | tuple | set)).or_null()
    if types.is_timestamp(arrow):
        if arrow.tz is None:
            return leaf(arrow, _local, _to_local).or_null()
        return leaf(arrow, _moment, moment_of).or_null()
    for matches, read, write in _LEAVES:
        if matches(arrow):
            return leaf(arrow, read, write).or_null()
    raise InvalidArgumentError(f"{what} has values of the type {arrow}, which events cannot have here")


def _part(value: Any, name: str, positions: Mapping[str, int]) -> Any:
    if isinstance(value, Mapping):
        return value.get(name)
    if is_dataclass(value):
        return getattr(value, name, None) if name in {each.name for each in fields(value)} else None
    if isinstance(value, tuple | list):
        if len(value) != len(positions):
            raise Wrong(f"it has {len(value)} parts, but the struct has {len(positions)} fields")
        return value[positions[name]]
    if hasattr(value, name):
        return getattr(value, name)
    raise Wrong(f"it is a {type(value).__name__}, which has no {name}")


# --- change data ----------------------------------------------------------------------------------


def _time_to_millis(value: time) -> int:
    return _time_to_micros(value) // 1000


def _time_to_micros(value: time) -> int:
    return (datetime.combine(_DAY, value) - datetime.combine(_DAY, time())) // _MICRO


def _to_time(micros: int) -> time:
    if not 0 <= micros < 86_400_000_000:
        raise Wrong("it is not a time of a day")
    return _to_local(micros).time()


_COLUMNS: Final = {
    "int8": SIZES[8],
    "int16": SIZES[16],
    "int32": SIZES[32],
    "int64": LONG,
    "float": leaf(FLOAT.arrow, _single),
    "double": DOUBLE,
    "boolean": BOOLEAN,
    "string": STRING,
    "bytes": BINARY,
    "date": leaf(DATE.arrow, None, date_of),
    "time_millis": leaf(pa.int32(), _time_to_millis, lambda value: _to_time(value * 1000)),
    "time_micros": leaf(LONG.arrow, _time_to_micros, _to_time),
    "timestamp_millis": leaf(LOCAL_TIMESTAMP.arrow, None, _to_local),
    "timestamp_micros": leaf(LOCAL_TIMESTAMP.arrow, None, _to_local),
    "zoned_timestamp": leaf(TIMESTAMP.arrow, None, moment_of),
    "uuid": leaf(STRING.arrow, str, UUID),
}


def _column(name: str, kind: str) -> Shape:
    found = _COLUMNS.get(kind)
    if found is None:
        scale = int(kind.removeprefix("decimal(").removesuffix(")"))  # DebeziumSerializer has checked it
        found = leaf(decimal_type(38, scale, f"column {name!r}"))
    return found.or_null()


def _source_text(source: Mapping[str, Any]) -> str:
    # A number that is too large for a float, which is a Decimal, becomes a text.
    return json_text(source, str)


def _source_of(text: str) -> dict[str, Any]:
    found = json_value(text)
    if not isinstance(found, dict):
        raise Wrong("it is not a JSON object")
    return found


def change_shape(serializer: DebeziumSerializer, key: Sequence[str]) -> Shape:
    """Return the shape of changes.

    :param serializer: has the types of the columns.
    :param key: names of the columns that identify a row.
    :raises InvalidArgumentError: no columns are named, or a column of the key is not among them.
    """
    if not serializer.columns:
        raise InvalidArgumentError("change data needs the types of its columns, such as {'id': 'int64'}")
    columns = {name: _column(name, kind) for name, kind in serializer.columns.items()}
    for name in key:
        if name not in columns:
            raise InvalidArgumentError(f"the column {name!r} of the key is not among {', '.join(columns)}")
    row = record([Field(name, shape, optional=True) for name, shape in columns.items()]).or_null()
    parts = {
        "kind": leaf(STRING.arrow, lambda value: value.name, _kind),
        "before": row,
        "after": row,
        "source": leaf(STRING.arrow, _source_text, _source_of).or_null(),
        "at": leaf(TIMESTAMP.arrow, None, moment_of).or_null(),
    }
    fields = [Field(name, shape, optional=shape.nullable) for name, shape in parts.items()]
    if key:
        identity = record([Field(name, columns[name], optional=True) for name in key]).or_null()
        fields.insert(1, Field("key", identity, optional=True))

    def take(value: Change, name: str) -> Any:
        if name != "key":
            return getattr(value, name)
        if value.row is None:
            return None
        missing = [each for each in key if each not in value.row]
        if missing:
            raise Wrong(f"the row lacks the column {missing[0]}")
        return value.row

    def make(value: dict[str, Any]) -> Change:
        return Change(
            value["kind"], value.get("before"), value.get("after"), value.get("source") or {}, value.get("at")
        )

    return record(fields, take=take, make=make)


def _kind(value: str) -> ChangeKind:
    found = ChangeKind.__members__.get(value)
    if found is None:
        raise Wrong(f"it is {value!r}, not one of {', '.join(ChangeKind.__members__)}")
    return found
