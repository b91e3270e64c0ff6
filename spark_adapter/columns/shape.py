"""What a value of a schema is as a column: its Arrow type, and the conversion of each value both ways.

Values come from the bytes of events as plain numbers, texts, bytes, dictionaries and lists, with dates and
times as the numbers that are stored. :func:`column` makes an Arrow array of a batch of them, and
:func:`values` the reverse. Spark is not needed here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyarrow import types

from pravega_wire.errors import DecodeError, EncodeError, InvalidArgumentError

__all__ = [
    "BINARY",
    "BOOLEAN",
    "DATE",
    "DOUBLE",
    "EPOCH",
    "FLOAT",
    "LOCAL_TIMESTAMP",
    "LONG",
    "SIZES",
    "STRING",
    "TIMESTAMP",
    "Convert",
    "Field",
    "Shape",
    "Wrong",
    "array_of",
    "column",
    "date_of",
    "decimal_type",
    "json_text",
    "json_value",
    "leaf",
    "map_of",
    "map_with_keys",
    "moment_of",
    "record",
    "retyped",
    "values",
]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Convert: TypeAlias = Callable[[Any], Any]

_LARGEST_DECIMAL: Final = 38
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class Wrong(ValueError):
    """A value that does not fit; the path of its field grows on the way out."""

    def __init__(self, text: str, path: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.path = path

    def within(self, name: str) -> Wrong:
        """Return the same error, of a field of something with this name."""
        joint = "" if not self.path or self.path.startswith("[") else "."
        return Wrong(self.text, f"{name}{joint}{self.path}")

    def __str__(self) -> str:
        return f"field {self.path}: {self.text}" if self.path else self.text


def date_of(days: int) -> date:
    """Return the date so many days after 1970-01-01.

    :raises Wrong: Python has no such date.
    """
    try:
        return EPOCH.date() + timedelta(days=days)
    except OverflowError:
        raise Wrong("it is outside the years 1 to 9999") from None


def moment_of(micros: int) -> datetime:
    """Return the time so many microseconds after the epoch.

    :raises Wrong: Python has no such time.
    """
    try:
        return EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        raise Wrong("it is outside the years 1 to 9999") from None


def json_text(value: Any, other: Convert | None = None) -> str:
    """Return a value as JSON without spaces.

    :param other: returns a value of JSON for what is none.
    """
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=other)
    if text.isascii():
        return text
    # JSON has an escape for half of a surrogate pair, but a column of texts, which are UTF-8, cannot hold it.
    return _SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", text)


def json_value(text: str) -> Any:
    """Return the value of JSON.

    :raises Wrong: the text is not JSON.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Wrong(f"it is not JSON: {error}") from None


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record.

    :ivar name: its name.
    :ivar shape: what its values are.
    :ivar optional: whether a column to write may lack it.
    """

    name: str
    shape: Shape
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """What a value is as a column.

    :ivar arrow: its Arrow type.
    :ivar read: from a value of the format to one that Arrow accepts for the type; None: it is one.
    :ivar write: the reverse, from what :func:`values` takes out of Arrow; None: nothing to do.
    :ivar nullable: whether null can be written.
    :ivar fields: of a record.
    :ivar item: of the elements of an array, or the values of a map.
    """

    arrow: pa.DataType
    read: Convert | None = None
    write: Convert | None = None
    nullable: bool = False
    fields: tuple[Field, ...] = ()
    item: Shape | None = None

    def or_null(self) -> Shape:
        """Return the same shape, of values that may be null."""
        return replace(self, nullable=True)


def leaf(arrow: pa.DataType, read: Convert | None = None, write: Convert | None = None) -> Shape:
    """Return the shape of values without parts."""
    return Shape(arrow, read, write)


BOOLEAN: Final = leaf(pa.bool_())
LONG: Final = leaf(pa.int64())
FLOAT: Final = leaf(pa.float32())
DOUBLE: Final = leaf(pa.float64())
STRING: Final = leaf(pa.string())
BINARY: Final = leaf(pa.binary())
DATE: Final = leaf(pa.date32())
TIMESTAMP: Final = leaf(pa.timestamp("us", tz="UTC"))
LOCAL_TIMESTAMP: Final = leaf(pa.timestamp("us"))
SIZES: Final = {8: leaf(pa.int8()), 16: leaf(pa.int16()), 32: leaf(pa.int32()), 64: LONG}


def _checked(convert: Convert) -> Convert:
    """Return a conversion whose errors can be given the name of a field."""

    def checked(value: Any) -> Any:
        try:
            return convert(value)
        except Wrong:
            raise
        except (ValueError, TypeError, OverflowError) as error:
            raise Wrong(str(error)) from error

    return checked


def _reading(shape: Shape) -> Convert:
    read = shape.read
    if read is None:
        return lambda value: value
    checked = _checked(read)
    return lambda value: None if value is None else checked(value)


def _writing(shape: Shape) -> Convert:
    write, nullable = None if shape.write is None else _checked(shape.write), shape.nullable

    def convert(value: Any) -> Any:
        if value is None:
            if nullable:
                return None
            raise Wrong("it is null, which the schema does not permit here")
        return value if write is None else write(value)

    return convert


def record(
    fields: Sequence[Field],
    *,
    take: Callable[[Any, str], Any] | None = None,
    make: Convert | None = None,
) -> Shape:
    """Return the shape of a record.

    :param take: returns a field of the format's value by its name; default: its values are dictionaries.
    :param make: makes the format's value of a dictionary; a field that the column lacks is not in it.
    """
    readers = [(each.name, _reading(each.shape)) for each in fields]
    writers = [(each.name, _writing(each.shape)) for each in fields]

    def read(value: Any) -> dict[str, Any]:
        if take is None and not isinstance(value, Mapping):
            raise Wrong(f"it is {_kind_of(value)}, not an object")
        found = {}
        for name, convert in readers:
            try:
                found[name] = convert(value.get(name) if take is None else take(value, name))
            except Wrong as error:
                raise error.within(name) from error.__cause__
        return found

    def write(value: Mapping[str, Any]) -> Any:
        found = {}
        for name, convert in writers:
            if name in value:
                try:
                    found[name] = convert(value[name])
                except Wrong as error:
                    raise error.within(name) from error.__cause__
        return found if make is None else make(found)

    arrow = pa.struct([pa.field(each.name, each.shape.arrow) for each in fields])
    plain = take is None and all(each.shape.read is None for each in fields)
    return Shape(arrow, None if plain else read, write, fields=tuple(fields))


def array_of(item: Shape, *, is_list: Callable[[Any], bool] = lambda value: isinstance(value, list)) -> Shape:
    """Return the shape of a list of values."""
    reading, writing = _reading(item), _writing(item)

    def each(convert: Convert, items: Iterable[Any]) -> list[Any]:
        found: list[Any] = []
        try:
            for value in items:
                found.append(convert(value))  # the error names its position
        except Wrong as error:
            raise error.within(f"[{len(found)}]") from error.__cause__
        return found

    def read(value: Any) -> list[Any]:
        if not is_list(value):
            raise Wrong(f"it is {_kind_of(value)}, not an array")
        return each(reading, value)

    return Shape(
        pa.list_(pa.field("element", item.arrow)), read, lambda value: each(writing, value), item=item
    )


def map_of(item: Shape) -> Shape:
    """Return the shape of a map with texts as keys."""
    return map_with_keys(STRING, item)


def map_with_keys(key: Shape, item: Shape) -> Shape:
    """Return the shape of a map; its values in the format are mappings."""
    reading, writing = _reading(item), _writing(item)
    read_key, write_key = _reading(key), _writing(key)

    def each(convert: Convert, convert_key: Convert, items: Iterable[tuple[Any, Any]]) -> list[Any]:
        found = []
        for name, value in items:
            try:
                found.append((convert_key(name), convert(value)))
            except Wrong as error:
                raise error.within(f"[{name!r}]") from error.__cause__
        return found

    def read(value: Any) -> list[Any]:
        if not isinstance(value, Mapping):
            raise Wrong(f"it is {_kind_of(value)}, not an object")
        return each(reading, read_key, value.items())

    def write(value: Any) -> dict[Any, Any]:
        return dict(each(writing, write_key, value))

    arrow = pa.map_(pa.field("key", key.arrow, nullable=False), pa.field("value", item.arrow))
    return Shape(arrow, read, write, item=item)


def _kind_of(value: object) -> str:
    names = {bool: "a boolean", str: "a text", int: "a number", float: "a number", list: "an array"}
    return "an object" if isinstance(value, Mapping) else names.get(type(value), f"a {type(value).__name__}")


# --- from values to a column ----------------------------------------------------------------------

_REFUSALS: Final = (pa.ArrowException, ValueError, TypeError, OverflowError)


def column(found: Sequence[Any], shape: Shape, failed: Callable[[int, DecodeError], None]) -> pa.Array:
    """Return an Arrow array of values.

    :param found: values of the format; None is null.
    :param shape: what they are.
    :param failed: called with the position and the error of a value that does not fit; if it returns, the
        value is null.
    """
    ready: list[Any] = []
    for position, value in enumerate(found):
        try:
            ready.append(value if value is None or shape.read is None else shape.read(value))
        except (*_REFUSALS, RecursionError) as error:
            failed(position, DecodeError(f"the event's value does not fit its column: {error}"))
            ready.append(None)
    try:
        made = pa.array(ready, shape.arrow)
    except _REFUSALS:
        for position, value in enumerate(ready):
            try:
                pa.array([value], shape.arrow)
            except _REFUSALS as error:
                wrong = _refusal(value, shape.arrow, error)
                failed(position, DecodeError(f"the event's value does not fit its column: {wrong}"))
                ready[position] = None
        made = pa.array(ready, shape.arrow)
    if isinstance(made, pa.ChunkedArray):
        raise DecodeError(
            "the events of a batch have more than 2 GiB in one column: lower "
            "spark.sql.execution.arrow.maxRecordsPerBatch"
        )
    return made


def _refusal(value: Any, kind: pa.DataType, error: Exception) -> Wrong:
    """Return the error for the part of a value that Arrow refuses, which Arrow does not name.

    :param kind: the value's type.
    :param error: that of the whole value.
    """
    parts: Iterable[tuple[str, Any, pa.DataType]] = ()
    if types.is_struct(kind) and isinstance(value, Mapping):
        parts = ((each.name, value[each.name], each.type) for each in _fields(kind) if each.name in value)
    elif types.is_list(kind) and isinstance(value, list):
        parts = ((f"[{position}]", each, kind.value_type) for position, each in enumerate(value))
    elif types.is_map(kind) and isinstance(value, list):
        parts = ((f"[{name!r}]", each, kind.item_type) for name, each in value)
    for name, part, its_kind in parts:
        try:
            pa.array([part], its_kind)
        except _REFUSALS as refused:
            return _refusal(part, its_kind, refused).within(name)
    return Wrong(str(error))


# --- from a column to values ----------------------------------------------------------------------


def values(given: pa.Array, shape: Shape, failed: Callable[[int, EncodeError], None]) -> list[Any]:
    """Return the values of the format for an Arrow array.

    :param given: the array; null is None.
    :param shape: what its values must be.
    :param failed: called with the position and the error of a value that does not fit; it must raise.
    :raises EncodeError: the array's type does not suit the shape.
    """
    try:
        _check(given.type, shape)
    except Wrong as error:
        raise EncodeError(f"the column does not fit the schema: {error}") from None
    stored = given.cast(retyped(given.type, _stored))
    try:
        found: list[Any] = stored.to_pylist()
    except UnicodeDecodeError:
        for position in range(len(stored)):
            try:
                stored[position].as_py()
            except UnicodeDecodeError as error:
                failed(position, EncodeError(f"a string is not UTF-8: {error}"))
        raise
    for position, value in enumerate(found):
        if value is None:
            continue
        try:
            found[position] = value if shape.write is None else shape.write(value)
        except (ValueError, TypeError, OverflowError) as error:
            failed(position, EncodeError(f"the value does not fit the schema: {error}"))
    return found


def _stored(kind: pa.DataType) -> pa.DataType:
    """Return the type of the number that is stored instead of a date or time.

    As Python objects these would end at the year 9999.
    """
    if types.is_timestamp(kind) or types.is_duration(kind):
        return pa.int64()
    return pa.int32() if types.is_date32(kind) else kind


def retyped(kind: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return a type whose parts, or which itself, are what ``leaf`` makes of them.

    :param leaf: called with each type that has no parts.
    """
    if types.is_struct(kind):
        return pa.struct([field.with_type(retyped(field.type, leaf)) for field in _fields(kind)])
    if types.is_map(kind):
        return pa.map_(
            kind.key_field.with_type(retyped(kind.key_type, leaf)),
            kind.item_field.with_type(retyped(kind.item_type, leaf)),
        )
    if types.is_list(kind) or types.is_large_list(kind):
        made = pa.list_ if types.is_list(kind) else pa.large_list
        return made(kind.value_field.with_type(retyped(kind.value_type, leaf)))
    return leaf(kind)


def _fields(kind: pa.DataType) -> list[pa.Field]:
    return [kind.field(index) for index in range(kind.num_fields)]


def _check(given: pa.DataType, shape: Shape) -> None:
    """Check that every value of a type can be one of a shape, apart from ranges."""
    wanted = shape.arrow
    if types.is_struct(wanted):
        if not types.is_struct(given):
            raise Wrong(f"the column has {given}, but the schema has a record")
        named = {field.name: field.type for field in _fields(given)}
        if len(named) < given.num_fields:
            raise Wrong("two fields of the column have one name")
        known = {field.name: field for field in shape.fields}
        for name in named:
            if name not in known:
                raise Wrong(f"the column has the field {name}, which the schema does not have")
        for name, field in known.items():
            if name in named:
                try:
                    _check(named[name], field.shape)
                except Wrong as error:
                    raise error.within(name) from None
            elif not field.optional:
                raise Wrong(f"the column lacks the field {name}, which has no default in the schema")
    elif types.is_map(wanted) or types.is_list(wanted):
        same = types.is_map(given) if types.is_map(wanted) else types.is_list(given)
        if not same:
            kind = "a map" if types.is_map(wanted) else "an array"
            raise Wrong(f"the column has {given}, but the schema has {kind}")
        if types.is_map(wanted) and not _fits(given.key_type, wanted.key_type):
            raise Wrong(f"the keys of the map are {given.key_type}, not {wanted.key_type}")
        assert shape.item is not None
        try:
            _check(given.item_type if types.is_map(wanted) else given.value_type, shape.item)
        except Wrong as error:
            raise error.within("[]") from None
    elif not _fits(given, wanted) and not (shape.nullable and types.is_null(given)):
        raise Wrong(f"the column has the type {given}, but the schema needs {wanted}: cast it")


def _fits(given: pa.DataType, wanted: pa.DataType) -> bool:
    if given == wanted:
        return True
    if types.is_signed_integer(given) and types.is_signed_integer(wanted):
        return bool(given.bit_width <= wanted.bit_width)
    if types.is_floating(given) and types.is_floating(wanted):
        return bool(given.bit_width <= wanted.bit_width)
    if types.is_decimal(wanted):
        return bool(types.is_decimal(given))
    if types.is_timestamp(wanted) and types.is_timestamp(given):
        return bool((given.tz is None) == (wanted.tz is None) and given.unit == wanted.unit)
    is_large_text = types.is_string(wanted) and types.is_large_string(given)
    return bool(is_large_text or (types.is_binary(wanted) and types.is_large_binary(given)))


def decimal_type(precision: object, scale: object, what: str) -> pa.DataType:
    """Return the type of decimals.

    :raises InvalidArgumentError: Spark has no such type.
    """
    if (
        isinstance(precision, int)
        and isinstance(scale, int)
        and 1 <= precision <= _LARGEST_DECIMAL
        and 0 <= scale <= precision
    ):
        return pa.decimal128(precision, scale)
    raise InvalidArgumentError(
        f"{what} is a decimal of precision {precision} and scale {scale}; Spark has precisions from 1 to "
        f"{_LARGEST_DECIMAL}, and scales from 0 to the precision"
    )
