"""Avro: schemas, values and bytes, by ``fastavro``.

``fastavro`` follows nested data with the machine's stack, and makes lists as long as the data says. Data of a
schema that permits unlimited nesting, or list items without bytes, is therefore checked first
(:class:`_Shape`), and so are values before they are written. It gives defaults as they are in the schema's
JSON, so they are converted when a schema is parsed (:class:`_Defaults`). It rounds stored decimals to the
precision of the schema, and takes a negative number of an enum's symbol for one counted from the end, so
schemas are changed before they read (:func:`_exact`). It writes infinity for a number that is too large for a
float, and in the first branch of a union that takes a value, so schemas are changed before they write
(:func:`_strict`). In the same way it reads what was written as the first branch of the reader's union that
this can be converted to, or that has its name in another namespace (:class:`_Branches`,
:func:`_told_apart`).

Not public.
"""

from __future__ import annotations

import io
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from decimal import MAX_PREC
from numbers import Integral
from typing import Any, Final
from uuid import UUID

from pravega_wire.errors import (
    DecodeError,
    EncodeError,
    InvalidArgumentError,
    MissingExtraError,
    TruncatedInputError,
)
from pravega_wire.schemas.model import SchemaInfo, SerializationFormat
from pravega_wire.support.checks import shown

__all__ = ["AvroReader", "AvroSchema", "AvroWriter"]

_MOST_NESTED: Final = 200
_MOST_EMPTY_ITEMS: Final = 100_000
_NO_BYTES: Final = "null"
_OF_JSON: Final[Mapping[str, Any]] = {
    "null": type(None), "boolean": bool, "int": int, "long": int, "float": int | float, "double": int | float,
    "bytes": str, "string": str, "fixed": str, "enum": str,
    "array": list, "map": dict, "record": dict, "error": dict,
}  # fmt: skip
_VALUE: Final = "pravega_wire_value"
_MARKS: Final = ("__fastavro_parsed", "__named_schemas")
_NUMBER, _DATE, _UUID = "pravega-wire-number", "pravega-wire-date", "pravega-wire-uuid"
"""Logical types that only this module uses: their values are checked when they are written."""
_KEPT: Final = "pravega-wire-kept"
"""A logical type whose values are not converted to another type when they are read."""
_CONVERTED: Final = ("int", "long", "float", "string", "bytes")
_INFINITE_FLOAT: Final = float.fromhex("0x1.ffffffp127")
"""The smallest number that becomes infinity as a float of 32 bits."""
_LIMITS: Final[Mapping[str, int]] = {"int": 2**31, "long": 2**63}


def _fastavro() -> Any:
    try:
        import fastavro
    except ImportError as error:
        raise MissingExtraError(
            "Avro needs the package fastavro: pip install 'pravega-wire[schemas]'"
        ) from error
    fastavro.write.LOGICAL_WRITERS.update(_CHECKS)
    fastavro.read.LOGICAL_READERS.update({f"{kind}-{_KEPT}": _kept for kind in _CONVERTED})
    return fastavro


class AvroSchema:
    """An Avro schema.

    Example::

        AvroSchema({
            "type": "record",
            "name": "Reading",
            "fields": [{"name": "device", "type": "int"}, {"name": "celsius", "type": "double"}],
        })

    :param schema: the schema as a mapping or list, or as JSON text.
    :raises InvalidArgumentError: it is not an Avro schema.
    """

    format = SerializationFormat.AVRO

    def __init__(self, schema: Mapping[str, Any] | list[Any] | str) -> None:
        try:
            text = schema if isinstance(schema, str) else json.dumps(_unmarked(schema), separators=(",", ":"))
            parsed = _parsed(text)
            data = text.encode()
        except (DecodeError, TypeError, ValueError, RecursionError) as error:
            raise InvalidArgumentError(f"this is not an Avro schema: {error}") from error
        self.info = SchemaInfo(_type_of(parsed), SerializationFormat.AVRO, data)

    def __repr__(self) -> str:
        return f"AvroSchema({self.info.type!r})"


def _unmarked(schema: Any) -> Any:
    """Return a schema without what ``fastavro.parse_schema`` adds to it, which would be registered."""
    if isinstance(schema, list):
        return [_unmarked(each) for each in schema]
    if isinstance(schema, Mapping) and _MARKS[0] in schema:
        return {name: value for name, value in schema.items() if name not in _MARKS}
    return schema


def _type_of(parsed: Any) -> str:
    if isinstance(parsed, str):
        return parsed
    if isinstance(parsed, list):
        return "union"
    return str(parsed.get("name", parsed["type"]))


def _parsed(text: str) -> Any:
    fastavro = _fastavro()
    try:
        return fastavro.parse_schema(json.loads(text))
    except (
        fastavro.schema.SchemaParseException,
        fastavro.schema.UnknownType,
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        RecursionError,
    ) as error:
        raise DecodeError(f"the Avro schema cannot be parsed: {type(error).__name__}: {error}") from error


def _parsed_info(info: SchemaInfo) -> Any:
    try:
        return _parsed(info.data.decode())
    except UnicodeDecodeError as error:
        raise DecodeError(f"the Avro schema {info.type} is not UTF-8: {error}") from error


class _Defaults:
    """The defaults in a parsed schema, as the values that their JSON stands for."""

    def __init__(self, schema: Any) -> None:
        inner = list(_inner(schema))
        self._named = {each["name"]: each for each in inner if "name" in each}
        self._fields = [field for each in inner for field in each.get("fields", ())]
        self._logical: Mapping[str, Any] = _fastavro().read.LOGICAL_READERS

    def convert(self) -> bool:
        """Put them into the schema in place of their JSON; return whether one of them can be changed."""
        found: list[tuple[dict[str, Any], Any]] = []
        for each in self._fields:
            if "default" in each:
                try:
                    found.append((each, self._value(each["type"], each["default"])))
                except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError):
                    continue  # a wrong default does no harm to values that do not need it
        for each, value in found:
            each["default"] = value
        return any(isinstance(value, dict | list) for _, value in found)

    def permit_missing_nulls(self) -> None:
        """Give the default null to fields without a default that may be null."""
        for each in self._fields:
            if isinstance(each["type"], list) and "null" in each["type"]:
                each.setdefault("default", None)

    def _kind(self, schema: Any) -> Any:
        schema = self._named.get(schema, schema) if isinstance(schema, str) else schema
        return schema["type"] if isinstance(schema, dict) else schema

    def _value(self, schema: Any, default: Any) -> Any:
        if isinstance(schema, list):
            fitting = [each for each in schema if isinstance(default, _OF_JSON[self._kind(each)])]
            if isinstance(default, bool):
                fitting = [each for each in fitting if self._kind(each) == "boolean"]
            return self._value(fitting[0], default) if fitting else default
        schema = self._named.get(schema, schema) if isinstance(schema, str) else schema
        kind = self._kind(schema)
        if not isinstance(kind, str):
            return self._value(kind, default)
        if kind in ("bytes", "fixed"):
            default = default.encode("iso-8859-1")
        elif kind in ("float", "double"):
            default = float(default)
        elif kind == "array":
            default = [self._value(schema["items"], each) for each in default]
        elif kind == "map":
            default = {name: self._value(schema["values"], each) for name, each in default.items()}
        elif kind in ("record", "error"):
            default = {
                each["name"]: self._value(
                    each["type"], default[each["name"]] if each["name"] in default else each["default"]
                )
                for each in schema["fields"]
            }
        logical = schema.get("logicalType") if isinstance(schema, dict) else None
        convert = self._logical.get(f"{kind}-{logical}")
        if convert is None:
            return default
        # With its own precision it would be rounded.
        return convert(default, {**schema, "precision": MAX_PREC} if logical == "decimal" else schema, None)


def _inner(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield the parts of a parsed schema that are objects."""
    if isinstance(schema, list):
        for each in schema:
            yield from _inner(each)
    elif isinstance(schema, dict):
        yield schema
        for name in ("type", "items", "values"):
            yield from _inner(schema.get(name))
        for each in schema.get("fields", ()):
            yield from _inner(each["type"])


def _is_decimal(schema: Mapping[str, Any]) -> bool:
    return schema.get("logicalType") == "decimal" and "precision" in schema


def _exact(schema: Any) -> None:
    """Change a parsed schema so that it reads what is stored, or fails."""
    for each in _inner(schema):
        if each["type"] == "enum":
            each["symbols"] = _Symbols(enumerate(each["symbols"]))
        elif _is_decimal(each):
            each["precision"] = MAX_PREC


class _Unfit:
    """Stands for a value that a type would take and change. No type takes this."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __repr__(self) -> str:
        return shown(self._value)


def _number(value: Any, schema: Mapping[str, Any]) -> object:
    if type(value) is float and -_INFINITE_FLOAT < value < _INFINITE_FLOAT:
        # Nearly every value: what follows takes much longer.
        return value
    belongs_elsewhere = isinstance(value, Integral) and -schema["limit"] <= value < schema["limit"]
    is_infinite = isinstance(value, float) and math.isinf(value)
    is_large = isinstance(value, int | float) and abs(value) >= _INFINITE_FLOAT and schema["type"] == "float"
    return _Unfit(value) if belongs_elsewhere or (is_large and not is_infinite) else value


def _date(value: Any, schema: Mapping[str, Any]) -> object:
    if isinstance(value, datetime):
        return _Unfit(value)
    return _fastavro().write.LOGICAL_WRITERS["int-date"](value, schema)


def _uuid(value: Any, schema: Mapping[str, Any]) -> object:
    try:
        return str(UUID(value) if isinstance(value, str) else value)
    except ValueError:
        return _Unfit(value)


_CHECKS: Final = {
    f"float-{_NUMBER}": _number,
    f"double-{_NUMBER}": _number,
    f"int-{_DATE}": _date,
    f"string-{_UUID}": _uuid,
}


class _Branch(dict[str, Any]):
    """A part of a schema that was only the name of its type. A value may still name it as its branch."""

    __hash__ = None

    def __eq__(self, other: object) -> bool:
        return self["type"] == other if isinstance(other, str) else super().__eq__(other)


def _strict(schema: Any, union: Sequence[Any] = ()) -> Any:
    """Change a parsed schema so that values are refused which it would change, or which another branch has.

    They are: a number that is too large for a float, a whole one for a float or double beside whole numbers,
    a text that is no UUID, and a time for a date beside timestamps.

    :param union: the union that has the schema as a branch.
    """
    if isinstance(schema, list):
        schema[:] = [_strict(each, tuple(schema)) for each in schema]
        return schema
    beside = [each if isinstance(each, dict) else {"type": each} for each in union]
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind in ("float", "double"):
        limit = max((_LIMITS[each["type"]] for each in beside if each["type"] in ("int", "long")), default=0)
        if kind == "double" and not limit:
            return schema
        return _Branch(
            schema if isinstance(schema, dict) else {}, type=kind, logicalType=_NUMBER, limit=limit
        )
    if isinstance(schema, str):
        return schema
    if not isinstance(kind, str):
        schema["type"] = _strict(kind, union)
    for name in {"items", "values"} & schema.keys():
        schema[name] = _strict(schema[name])
    if "fields" in schema:
        # Without it, a value that names its record would have to name that of the record around it, too.
        schema.setdefault("namespace", "")
        for each in schema["fields"]:
            each["type"] = _strict(each["type"])
    logical = schema.get("logicalType")
    if (kind, logical) == ("string", "uuid"):
        schema["logicalType"] = _UUID
    times = [each for each in beside if "timestamp" in each.get("logicalType", "")]
    if (kind, logical) == ("int", "date") and times:
        schema["logicalType"] = _DATE
    return schema


def _wrapped(schema: Any) -> Any:
    """Return a record whose only field has a schema: its values are the same bytes."""
    field = {"name": _VALUE, "type": _unmarked(schema)}
    return _fastavro().parse_schema({"type": "record", "name": _VALUE, "fields": [field]})


def _told_apart(writer: Any, reader: Any) -> tuple[Any, Any]:
    """Give other names to types that have the same one in several namespaces of the reader's schema.

    fastavro looks at names without their namespaces, and takes the first type that has one.
    """
    named = {each["name"] for each in _inner(reader) if "name" in each}
    times = Counter(map(_last, named))
    names = {each: f"{_VALUE}{at}" for at, each in enumerate(sorted(named)) if times[_last(each)] > 1}
    if not names:
        return writer, reader
    parse = _fastavro().parse_schema
    return parse(_renamed(writer, names)), parse(_renamed(reader, names))


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _renamed(schema: Any, names: Mapping[str, str]) -> Any:
    if isinstance(schema, str):
        return names.get(schema, schema)
    if isinstance(schema, list):
        return [_renamed(each, names) for each in schema]
    found = _unmarked(schema)
    for name in {"name", "aliases", "type", "items", "values"} & found.keys():
        found = {**found, name: _renamed(found[name], names)}
    if "fields" in found:
        fields = [{**each, "type": _renamed(each["type"], names)} for each in found["fields"]]
        found = {**found, "fields": fields}
    return found


def _kept(value: object, writer: object, reader: object) -> object:
    return value


class _Branches:
    """Two schemas, of which one writes and the other reads."""

    def __init__(self, writer: Any, reader: Any) -> None:
        self._sides = (writer, reader)
        self._named = [
            {each["name"]: each for each in _inner(side) if "name" in each} for side in self._sides
        ]
        self._seen: set[tuple[int, int]] = set()
        self._readers = _fastavro().read.LOGICAL_READERS

    def keep(self) -> None:
        """Change the writer's schema so that the reader's unions give what they have a branch for unchanged.

        fastavro would convert it to the first branch that it can be converted to.
        """
        self._keep(*self._sides)

    def _keep(self, writer: Any, reader: Any) -> Any:
        """Return a part of the writer's schema as it is to be beside a part of the reader's."""
        if isinstance(writer, list):
            writer[:] = [self._keep(each, reader) for each in writer]
            return writer
        written = self._found(writer, 0)
        kind, name = written["type"], _last(written.get("name", ""))
        branches = [self._found(each, 1) for each in (reader if isinstance(reader, list) else [reader])]
        same = [each for each in branches if each["type"] == kind]
        if kind in _CONVERTED:
            is_converted = f"{kind}-{written.get('logicalType')}" not in self._readers
            in_union = isinstance(reader, list) and same
            return {"type": kind, "logicalType": _KEPT} if in_union and is_converted else writer
        for read in [each for each in same if _last(each.get("name", "")) == name] or same[:1]:
            if (id(written), id(read)) in self._seen:
                continue
            self._seen.add((id(written), id(read)))
            for part in {"items", "values"} & written.keys():
                written[part] = self._keep(written[part], read[part])
            known: dict[str, Any] = {}
            for each in read.get("fields", ()):
                known |= dict.fromkeys((*each.get("aliases", ()), each["name"]), each["type"])
            for each in written.get("fields", ()):
                if each["name"] in known:
                    each["type"] = self._keep(each["type"], known[each["name"]])
        return writer

    def _found(self, schema: Any, side: int) -> dict[str, Any]:
        """Return a part of a schema as an object, by its name if it has one."""
        if isinstance(schema, str):
            return self._named[side].get(schema, {"type": schema})
        if isinstance(schema, list):
            return {"type": "union"}
        return schema if isinstance(schema["type"], str) else self._found(schema["type"], side)


class _Symbols(dict[int, str]):
    """The symbols of an enum; a list has negative indexes too."""

    def __missing__(self, index: int) -> str:
        raise LookupError(f"an enum of {len(self)} symbols has none with the number {index}")


def _unshared(value: Any) -> Any:
    """Return a value whose lists and dictionaries nothing else has."""
    if isinstance(value, dict):
        return {name: _unshared(each) for name, each in value.items()}
    return [_unshared(each) for each in value] if isinstance(value, list) else value


def _depth_exceeds(value: object, limit: int) -> bool:
    if isinstance(value, str | bytes | bytearray | memoryview):
        return False
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, Sequence):
        return False
    return limit == 0 or any(_depth_exceeds(each, limit - 1) for each in value)


class AvroWriter:
    """Writes values of one schema."""

    def __init__(self, info: SchemaInfo) -> None:
        self._fastavro = _fastavro()
        self._type = info.type
        self._schema = _parsed_info(info)
        self._shape = _shape_of(info, self._schema)
        # fastavro parses other schemas than records for each value, and would undo the changes.
        self._is_wrapped = _MARKS[0] not in self._schema
        if self._is_wrapped:
            self._schema = _wrapped(self._schema)
        defaults = _Defaults(self._schema)
        defaults.convert()
        # The writer refuses unknown keys only together with missing ones.
        defaults.permit_missing_nulls()
        _strict(self._schema)

    def encode(self, value: object) -> bytes:
        """Return a value's bytes.

        :raises EncodeError: the value does not fit the schema.
        """
        if self._shape is not None and _depth_exceeds(value, _MOST_NESTED):
            # The machine's stack may not suffice for it, or for a value that contains itself.
            raise EncodeError(
                f"a value of the Avro schema {self._type} is nested more than {_MOST_NESTED} levels deep"
            )
        if self._is_wrapped:
            value = {_VALUE: value}
        out = io.BytesIO()
        try:
            # The writer alone would write a number that is too large for its type.
            self._fastavro.validate(value, self._schema)
            try:
                self._fastavro.schemaless_writer(out, self._schema, value, strict_allow_default=True)
            except ValueError as error:
                # A key that fastavro understands: it names the record of a union.
                if "-type" not in str(error):
                    raise
                out = io.BytesIO()
                self._fastavro.schemaless_writer(out, self._schema, value)
            if self._shape is not None:
                # What is written here can be read here.
                self._shape.check(out.getvalue())
        except self._fastavro.validation.ValidationError as error:
            # Its own text has the whole schema and value.
            wrong = "; ".join(
                f"{field or 'the value'} is {'missing or ' * bool(field) * (each.datum is None)}"
                f"{shown(each.datum)}, not of the type {_type_of(each.schema)}"
                for each in error.errors
                for field in [each.field.removeprefix(f"{_VALUE}.{_VALUE}").removeprefix(".")]
            )
            raise EncodeError(f"the value does not fit the Avro schema {self._type}: {wrong}") from error
        except Exception as error:
            # fastavro raises the errors of whatever it did with the value.
            raise EncodeError(
                f"the value does not fit the Avro schema {self._type}: {type(error).__name__}: {error}"
            ) from error
        return out.getvalue()


class AvroReader:
    """Reads values that were written with one schema, as values of the same or another one."""

    def __init__(self, writer: SchemaInfo, reader: SchemaInfo | None) -> None:
        self._fastavro = _fastavro()
        self._type = writer.type
        self._writer = _parsed_info(writer)
        self._reader = None if reader is None or reader.data == writer.data else _parsed_info(reader)
        self._shape = _shape_of(writer, self._writer)
        if self._reader is not None:
            self._writer, self._reader = _told_apart(self._writer, self._reader)
        # fastavro parses other schemas than records for each value, and would undo or refuse the changes.
        self._is_wrapped = _MARKS[0] not in self._writer and (
            self._reader is not None
            or any(each["type"] == "enum" or _is_decimal(each) for each in _inner(self._writer))
        )
        if self._is_wrapped:
            self._writer = _wrapped(self._writer)
            self._reader = None if self._reader is None else _wrapped(self._reader)
        # Every value that lacks a field would have the same list or dictionary.
        self._shares = self._reader is not None and _Defaults(self._reader).convert()
        if self._reader is not None:
            _Branches(self._writer, self._reader).keep()
        _exact(self._writer)

    def decode(self, data: bytes, *, padded: bool) -> Any:
        """Return the value.

        :param padded: whether zero bytes may follow it.
        :raises DecodeError: the bytes are not a value of the writer's schema, or it does not fit the
            reader's.
        """
        if self._shape is not None:
            self._shape.check(data)
        source = io.BytesIO(data)
        try:
            value = self._fastavro.schemaless_reader(source, self._writer, self._reader)
        except EOFError as error:
            raise TruncatedInputError(f"the event ends before its Avro value {self._type} does") from error
        except Exception as error:
            # fastavro raises the errors of whatever it did with the bytes.
            raise DecodeError(
                f"the event is not an Avro value {self._type}: {type(error).__name__}: {error}"
            ) from error
        if self._is_wrapped:
            value = value[_VALUE]
        rest = data[source.tell() :]
        if rest and not (padded and not rest.strip(b"\0")):
            raise DecodeError(f"{len(rest)} bytes follow the Avro value {self._type} in its event")
        return _unshared(value) if self._shares else value


def _shape_of(info: SchemaInfo, schema: Any) -> _Shape | None:
    """Return the shape of a schema whose values have to be checked, otherwise None."""
    try:
        shape = _Shape(schema)
    except RecursionError as error:
        raise DecodeError(f"the Avro schema {info.type} is nested too deeply") from error
    return None if shape.is_bounded else shape


class _Shape:
    """How values of a schema lie in bytes; it follows them without making them."""

    def __init__(self, schema: Any) -> None:
        self._named: dict[str, Any] = {}
        self._schema = schema
        self.is_bounded = True
        self._open: set[str] = set()
        self._empty_names: set[str] = set()
        self._survey(schema)

    def _survey(self, schema: Any) -> bool:
        """Collect the named types; return whether a value may have no bytes."""
        if isinstance(schema, list):
            for each in schema:
                self._survey(each)
            return False
        if isinstance(schema, str):
            if schema in self._open:
                self.is_bounded = False
            return schema == _NO_BYTES or schema in self._empty_names
        kind = schema["type"]
        if kind in ("record", "error"):
            self._named[schema["name"]] = schema
            self._open.add(schema["name"])
            empty = [self._survey(each["type"]) for each in schema["fields"]]
            self._open.discard(schema["name"])
            if all(empty):
                self._empty_names.add(schema["name"])
            return all(empty)
        if kind in ("enum", "fixed"):
            self._named[schema["name"]] = schema
            if kind == "fixed" and schema["size"] == 0:
                self._empty_names.add(schema["name"])
                return True
            return False
        if kind == "array":
            if self._survey(schema["items"]):
                self.is_bounded = False
            return False
        if kind == "map":
            self._survey(schema["values"])
            return False
        return self._survey(kind)

    def check(self, data: bytes) -> None:
        """Follow one value.

        :raises DecodeError: it is nested too deeply, or has too many items without bytes.
        :raises TruncatedInputError: the data ends within it.
        """
        self._follow(self._schema, data, 0, 0, [_MOST_EMPTY_ITEMS])

    def _follow(self, schema: Any, data: bytes, at: int, depth: int, left: list[int]) -> int:
        """Follow a part of it.

        :param left: how many items without bytes may follow, in all its arrays together.
        :returns: where the part ends.
        """
        if depth > _MOST_NESTED:
            raise DecodeError(f"the event's Avro value is nested more than {_MOST_NESTED} levels deep")
        if isinstance(schema, list):
            branch, at = _long(data, at)
            if not 0 <= branch < len(schema):
                raise DecodeError(f"the event's Avro value has branch {branch} of a union of {len(schema)}")
            return self._follow(schema[branch], data, at, depth + 1, left)
        kind = schema if isinstance(schema, str) else schema["type"]
        if isinstance(kind, dict | list):
            return self._follow(kind, data, at, depth, left)
        if kind in self._named and isinstance(schema, str):
            return self._follow(self._named[kind], data, at, depth + 1, left)
        if kind in ("record", "error"):
            for each in schema["fields"]:
                at = self._follow(each["type"], data, at, depth + 1, left)
            return at
        if kind in ("array", "map"):
            return self._follow_blocks(schema, kind, data, at, depth, left)
        if kind in ("bytes", "string"):
            size, at = _long(data, at)
            return _skip(data, at, size)
        if kind in ("int", "long", "enum"):
            return _long(data, at)[1]
        sizes = {"null": 0, "boolean": 1, "float": 4, "double": 8}
        return _skip(data, at, schema["size"] if kind == "fixed" else sizes[kind])

    def _follow_blocks(
        self, schema: Any, kind: str, data: bytes, at: int, depth: int, left: list[int]
    ) -> int:
        items = schema["items"] if kind == "array" else schema["values"]
        while True:
            count, at = _long(data, at)
            if count == 0:
                return at
            if count < 0:
                count = -count
                _, at = _long(data, at)
            for _ in range(count):
                before = at
                if kind == "map":
                    size, at = _long(data, at)
                    at = _skip(data, at, size)
                at = self._follow(items, data, at, depth + 1, left)
                left[0] -= at == before
                if left[0] < 0:
                    raise DecodeError(
                        f"the event's Avro value has more than {_MOST_EMPTY_ITEMS} items without bytes"
                    )


def _long(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data):
            raise TruncatedInputError("the event ends within a number of its Avro value")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), at
        shift += 7
        if shift > 63:
            raise DecodeError("the event's Avro value has a number of more than 64 bits")


def _skip(data: bytes, at: int, size: int) -> int:
    if size < 0 or at + size > len(data):
        raise TruncatedInputError(f"the event ends within {size} bytes of its Avro value")
    return at + size
