"""Avro schemas as shapes of columns.

Events are read and written with schemas without logical types: the conversions of the shape take the numbers
and bytes themselves, so that dates and times have their whole range, and the reader's schema says what a
number means, as in Java.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from decimal import Decimal, localcontext
from typing import Any, Final
from uuid import UUID

from pravega_wire.errors import DecodeError, InvalidArgumentError, MissingExtraError
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
    decimal_type,
    leaf,
    map_of,
    record,
)

__all__ = ["avro_shape", "check_units", "without_logical_types"]

_BINARY: Final = leaf(BINARY.arrow, lambda value: _bytes(value))
_SIMPLE: Final = {
    "boolean": BOOLEAN,
    "int": SIZES[32],
    "long": LONG,
    "float": FLOAT,
    "double": DOUBLE,
    "string": STRING,
    "bytes": _BINARY,
}


def _bytes(value: bytes | str) -> bytes:
    # A default of bytes is a text in the schema, a character for each byte.
    return value.encode("latin-1") if isinstance(value, str) else value


def _from_millis(value: int) -> int:
    return value * 1000


def _to_millis(value: int) -> int:
    if value % 1000:
        raise Wrong(
            "it has microseconds, but the schema has milliseconds: use date_trunc('millisecond', ...)"
        )
    return value // 1000


def _of_millis(shape: Shape) -> Shape:
    return leaf(shape.arrow, _from_millis, _to_millis)


_TIMES: Final = {
    ("int", "date"): DATE,
    ("long", "timestamp-millis"): _of_millis(TIMESTAMP),
    ("long", "timestamp-micros"): TIMESTAMP,
    ("long", "local-timestamp-millis"): _of_millis(LOCAL_TIMESTAMP),
    ("long", "local-timestamp-micros"): LOCAL_TIMESTAMP,
}

# Unions of numbers that one type of column holds; the branch that is written.
_NUMBERS: Final = {frozenset(("int", "long")): "long", frozenset(("float", "double")): "double"}


def _text_of_uuid(value: str) -> str:
    return str(UUID(value)) and value


_UUID_TEXT: Final = leaf(STRING.arrow, None, _text_of_uuid)
_UUID_BYTES: Final = leaf(
    STRING.arrow, lambda value: str(UUID(bytes=_bytes(value))), lambda value: UUID(value).bytes
)


def _decimal(schema: Mapping[str, Any], path: str) -> Shape:
    arrow = decimal_type(schema.get("precision"), schema.get("scale", 0), f"Avro: {path}")
    precision, scale = arrow.precision, arrow.scale
    size = schema.get("size")

    def read(value: bytes | str) -> Decimal:
        sign, digits, _ = Decimal(int.from_bytes(_bytes(value), "big", signed=True)).as_tuple()
        return Decimal((sign, digits, -scale))

    def write(value: Decimal) -> bytes:
        with localcontext(prec=100):
            whole = value.scaleb(scale)
            if whole != whole.to_integral_value():
                raise Wrong(f"it has more than {scale} digits after the point")
            unscaled = int(whole)
        if abs(unscaled) >= 10**precision:
            raise Wrong(f"it has more than {precision} digits")
        length = size or (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
        return unscaled.to_bytes(length, "big", signed=True)

    return leaf(arrow, read, write)


def avro_shape(text: str) -> Shape:
    """Return the shape of the values of a schema.

    :param text: the schema as JSON.
    :raises InvalidArgumentError: Spark has no columns for the schema: it is recursive, has a union of several
        types, or a record without fields.
    """
    try:
        from fastavro import parse_schema
    except ImportError as error:
        raise MissingExtraError(
            "Avro needs the package fastavro: pip install 'pravega-wire[schemas]'"
        ) from error
    try:
        return _Compiler().shape(parse_schema(json.loads(text)), "the value")
    except RecursionError:
        raise InvalidArgumentError("the Avro schema is nested too deeply") from None


class _Compiler:
    def __init__(self) -> None:
        self._named: dict[str, Any] = {}
        self._open: list[str] = []

    def shape(self, schema: Any, path: str) -> Shape:
        if isinstance(schema, list):
            return self._union(schema, path)
        if isinstance(schema, str):
            if schema in self._named:
                return self.shape(self._named[schema], path)
            if schema == "null":
                raise InvalidArgumentError(f"Avro: {path} has the type null alone, which no column holds")
            if schema in self._open:
                raise InvalidArgumentError(
                    f"Avro: {path} is a {schema}, which contains itself: Spark has no recursive types. Give "
                    "a schema that ends, or decode the events in a function of your own"
                )
            return _SIMPLE[schema]
        kind, logical = schema["type"], schema.get("logicalType")
        if isinstance(kind, dict | list):
            return self.shape(kind, path)
        if logical == "decimal" and kind in ("bytes", "fixed"):
            found = _decimal(schema, path)
            if kind == "fixed":
                self._named[schema["name"]] = schema
            return found
        if kind in ("record", "error"):
            return self._record(schema, path)
        if kind in ("enum", "fixed"):
            self._named[schema["name"]] = schema
            if kind == "enum":
                return STRING
            return _UUID_BYTES if logical == "uuid" and schema["size"] == 16 else _BINARY
        if kind == "array":
            return array_of(self.shape(schema["items"], f"an element of {path}"))
        if kind == "map":
            return map_of(self.shape(schema["values"], f"a value of {path}"))
        if logical == "uuid" and kind == "string":
            return _UUID_TEXT
        return _TIMES.get((kind, logical)) or self.shape(kind, path)

    def _record(self, schema: Mapping[str, Any], path: str) -> Shape:
        name = schema["name"]
        if name in self._open:
            return self.shape(name, path)
        if not schema["fields"]:
            raise InvalidArgumentError(f"Avro: {path} is the record {name}, which has no fields")
        self._named.pop(name, None)
        self._open.append(name)
        fields = [
            Field(
                each["name"], self.shape(each["type"], f"field {each['name']} of {name}"), "default" in each
            )
            for each in schema["fields"]
        ]
        self._open.remove(name)
        self._named[name] = schema
        return record(fields)

    def _union(self, schema: list[Any], path: str) -> Shape:
        branches = [each for each in schema if each != "null"]
        if len(branches) == 1:
            found = self.shape(branches[0], path)
        else:
            names = [each if isinstance(each, str) else "" for each in branches]
            number = _NUMBERS.get(frozenset(names))
            if number is None:
                raise InvalidArgumentError(
                    f"Avro: {path} is a union of several types ({', '.join(map(_name, branches))}), for "
                    "which Spark has no column: only null and one type, int and long, or float and double "
                    "are read"
                )
            found = LONG if number == "long" else _in_branch("double")
        return found.or_null() if len(branches) < len(schema) else found


def _in_branch(name: str) -> Shape:
    """Return the shape of numbers that are written as the wider branch of a union."""
    write: Callable[[Any], Any] = lambda value: (name, value)  # noqa: E731
    return leaf(DOUBLE.arrow, None, write)


def _name(schema: Any) -> str:
    if isinstance(schema, str):
        return schema
    return "union" if isinstance(schema, list) else str(schema.get("name", schema["type"]))


_UNITS: Final = {
    *_TIMES,
    ("int", "time-millis"),
    ("long", "time-micros"),
    ("long", "timestamp-nanos"),
    ("long", "local-timestamp-nanos"),
    ("bytes", "decimal"),
    ("fixed", "decimal"),
}


def check_units(writer: str, reader: str) -> None:
    """Check that what both schemas have a unit for is in the same one.

    Only numbers are converted from one schema to the other: what was written in milliseconds would be read as
    microseconds, without an error.

    :param writer: the schema of an event, as JSON.
    :param reader: the schema of the column, as JSON.
    :raises DecodeError: a date, time or decimal is of another kind or scale.
    """
    from fastavro import parse_schema

    schemas = [parse_schema(json.loads(each)) for each in (writer, reader)]
    units = _Units()
    for side, schema in enumerate(schemas):
        units.collect(schema, side)
    units.check(schemas[0], schemas[1], "the value")


class _Units:
    def __init__(self) -> None:
        self._named: list[dict[str, Any]] = [{}, {}]
        self._seen: set[tuple[str, str]] = set()

    def collect(self, schema: Any, side: int) -> None:
        """Find the named types of the writer (0) or the reader (1)."""
        if isinstance(schema, list):
            for each in schema:
                self.collect(each, side)
        elif isinstance(schema, dict):
            if "name" in schema and schema["type"] in ("record", "error", "enum", "fixed"):
                self._named[side][schema["name"]] = schema
            for name in ("type", "items", "values"):
                self.collect(schema.get(name), side)
            for each in schema.get("fields", ()):
                self.collect(each["type"], side)

    def check(self, writer: Any, reader: Any, path: str) -> None:
        writer, reader = self._found(writer, 0), self._found(reader, 1)
        if isinstance(writer, list) or isinstance(reader, list):
            for one in writer if isinstance(writer, list) else [writer]:
                for other in reader if isinstance(reader, list) else [reader]:
                    self.check(one, other, path)
            return
        if not isinstance(writer, dict) or not isinstance(reader, dict):
            return
        units = [_unit(each) for each in (writer, reader)]
        # Avro reads an int as a long, too. Types that it does not resolve at all are its own error, and in a
        # union they are other branches.
        resolved = (writer["type"], reader["type"]) == ("int", "long") or writer["type"] == reader["type"]
        if all(units) and units[0] != units[1] and resolved:
            raise DecodeError(
                f"{path} was written as {units[0]}, but the column's schema has {units[1]}: give a schema "
                "with the same"
            )
        if "fields" in writer and "fields" in reader:
            names = (writer["name"], reader["name"])
            if names in self._seen:
                return
            self._seen.add(names)
            known = {each["name"]: each["type"] for each in writer["fields"]}
            for each in reader["fields"]:
                written = [known[name] for name in (each["name"], *each.get("aliases", ())) if name in known]
                for other in written[:1]:
                    self.check(other, each["type"], f"field {each['name']} of {reader['name']}")
        for name in ("items", "values"):
            if name in writer and name in reader:
                self.check(writer[name], reader[name], path)

    def _found(self, schema: Any, side: int) -> Any:
        if isinstance(schema, str):
            return self._named[side].get(schema, schema)
        if isinstance(schema, dict) and isinstance(schema["type"], dict | list):
            return self._found(schema["type"], side)
        return schema


def _unit(schema: Mapping[str, Any]) -> str | None:
    logical = schema.get("logicalType")
    if (schema["type"], logical) not in _UNITS:
        return None
    return f"{logical} of scale {schema.get('scale', 0)}" if logical == "decimal" else str(logical)


def without_logical_types(text: str) -> str:
    """Return a schema whose values are the numbers and bytes that are stored."""
    return json.dumps(_stripped(json.loads(text)), separators=(",", ":"))


def _stripped(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_stripped(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: value for name, value in schema.items() if name != "logicalType"}
    for name in ("type", "items", "values"):
        if name in found:
            found[name] = _stripped(found[name])
    if isinstance(found.get("fields"), list):
        found["fields"] = [{**each, "type": _stripped(each["type"])} for each in found["fields"]]
    return found
