"""Converts rows and columns of Arrow batches to JSON.

The result is that of Spark's ``to_json``, except that times keep their microseconds, which ``to_json`` may
drop:

===================  ===========================================================================
type                 JSON
===================  ===========================================================================
struct, row          object; null fields are left out
map                  object; keys are strings; null values are ``null``
array                array; null elements are ``null``
integers, decimal    number, all digits
float, double        number, the shortest digits that give the same value; the string ``"NaN"``,
                     ``"Infinity"`` or ``"-Infinity"`` if it is not finite
boolean, string      ``true`` or ``false``, string (not ASCII only)
binary               string, base64 with padding
date                 string, ``2024-01-31``
timestamp            string in UTC with six digits, ``2024-01-31T12:00:00.000000Z``
timestamp_ntz        the same without the ``Z``
===================  ===========================================================================
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Callable
from ctypes import c_float
from decimal import Decimal
from json.encoder import encode_basestring as _quoted
from typing import Any, TypeAlias

import pyarrow as pa
from pyarrow import types

from pravega_wire.errors import InvalidArgumentError
from spark_adapter.columns.shape import retyped

__all__ = ["column_to_json", "json_writer", "rows_to_json"]

_Write: TypeAlias = Callable[[Any], str]


def json_writer(kind: pa.DataType) -> _Write:
    """Return a function that converts a non-null value of this type, as ``to_pylist`` returns it, to JSON.

    A time that has a zone must be in UTC.

    :raises InvalidArgumentError: the type cannot be written as JSON.
    """
    if types.is_struct(kind):
        return _object([kind.field(index) for index in range(kind.num_fields)])
    if types.is_map(kind):
        if not (types.is_string(kind.key_type) or types.is_large_string(kind.key_type)):
            raise InvalidArgumentError(
                f"a map with keys of type {kind.key_type} cannot be written as JSON: its keys must be strings"
            )
        return _map(_nullable(json_writer(kind.item_type)))
    if types.is_list(kind) or types.is_large_list(kind):
        return _array(_nullable(json_writer(kind.value_type)))
    for matches, write in _SIMPLE:
        if matches(kind):
            return write
    raise InvalidArgumentError(f"a value of type {kind} cannot be written as JSON; cast it")


def rows_to_json(batch: pa.RecordBatch, before: int = 0) -> list[bytes]:
    """Convert each row to a JSON object in UTF-8; see :func:`column_to_json`."""
    return column_to_json(batch.to_struct_array(), before)


def column_to_json(column: pa.Array, before: int = 0) -> list[bytes]:
    """Convert each value to JSON in UTF-8.

    :param before: number of rows before those of the column, for errors.
    :raises InvalidArgumentError: a value is null, a time is outside the years 1 to 9999, or a string is not
        UTF-8.
    """
    write = json_writer(column.type)
    if column.null_count:
        row = before + column.is_null().index(True).as_py()
        raise InvalidArgumentError(f"row {row} has a null, which is no event; filter out rows with null")
    # Python does not know all zones of Spark ("GMT+8").
    in_utc = retyped(column.type, _in_utc)
    if in_utc != column.type:
        column = column.cast(in_utc)
    try:
        return [write(value).encode() for value in column.to_pylist()]
    except (OverflowError, ValueError) as error:
        raise InvalidArgumentError(f"{_place(column, before)} cannot be written as JSON: {error}") from error


def _in_utc(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp(kind.unit, "UTC") if types.is_timestamp(kind) and kind.tz is not None else kind


def _place(column: pa.Array, before: int) -> str:
    """Return the name of the first value that cannot be a Python object."""
    for row, value in enumerate(column):
        try:
            value.as_py()
        except (OverflowError, ValueError):
            where = f"row {before + row}"
            for name, part in value.items() if types.is_struct(column.type) else ():
                try:
                    part.as_py()
                except (OverflowError, ValueError):
                    return f"{name!r} of {where}"
            return where
    return "a value"


def _object(fields: list[pa.Field]) -> _Write:
    parts = [(each.name, f"{_quoted(each.name)}:", json_writer(each.type)) for each in fields]
    if len({name for name, _, _ in parts}) < len(parts):
        raise InvalidArgumentError(f"several columns have the same name: {[name for name, _, _ in parts]}")

    def write(value: dict[str, Any]) -> str:
        known = [(label, each, value[name]) for name, label, each in parts]
        return "{" + ",".join([label + each(item) for label, each, item in known if item is not None]) + "}"

    return write


def _map(item: _Write) -> _Write:
    def write(value: list[tuple[str, Any]]) -> str:
        return "{" + ",".join([f"{_quoted(key)}:{item(each)}" for key, each in value]) + "}"

    return write


def _array(item: _Write) -> _Write:
    def write(value: list[Any]) -> str:
        return "[" + ",".join(map(item, value)) + "]"

    return write


def _nullable(write: _Write) -> _Write:
    return lambda value: "null" if value is None else write(value)


def _float(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'


def _float32(value: float) -> str:
    # to_pylist returns a double, whose shortest digits are those of another number. Nine always suffice.
    if math.isfinite(value):
        for digits in range(1, 10):
            rounded = float(f"{value:.{digits}g}")
            if c_float(rounded).value == value:
                return repr(rounded)
    return _float(value)


def _decimal(value: Decimal) -> str:
    return f"{value:f}"


def _timestamp(value: Any) -> str:
    text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
    return f'"{text}"' if value.tzinfo is None else f'"{text}Z"'


_SIMPLE: list[tuple[Callable[[pa.DataType], bool], _Write]] = [
    (types.is_string, _quoted),
    (types.is_large_string, _quoted),
    (types.is_integer, str),
    (types.is_boolean, lambda value: "true" if value else "false"),
    (types.is_float64, _float),
    (types.is_float32, _float32),
    (types.is_decimal, _decimal),
    (types.is_timestamp, _timestamp),
    (types.is_date, lambda value: f'"{value.isoformat()}"'),
    (types.is_binary, lambda value: f'"{b64encode(value).decode()}"'),
    (types.is_large_binary, lambda value: f'"{b64encode(value).decode()}"'),
    (types.is_null, lambda value: "null"),
]
