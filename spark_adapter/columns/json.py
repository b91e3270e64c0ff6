"""JSON schemas as shapes of columns.

JSON schemas describe more than columns can: what has no type of its own, or may have several, is a column
with its JSON as text.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from pravega_wire.errors import InvalidArgumentError
from spark_adapter.columns.shape import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    EPOCH,
    LONG,
    STRING,
    TIMESTAMP,
    Field,
    Shape,
    Wrong,
    array_of,
    date_of,
    json_text,
    json_value,
    leaf,
    map_of,
    moment_of,
    record,
)

__all__ = ["ANY_JSON", "json_shape"]


def _whole(value: Any) -> int:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Wrong(f"it is {_shown(value)}, not a whole number")
    return value


def _number(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise Wrong(f"it is {_shown(value)}, not a number")
    return float(value)


def _finite(value: float) -> float:
    if value - value != 0:
        raise Wrong(f"it is {value}, which JSON does not have")
    return value


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Wrong(f"it is {_shown(value)}, not a boolean")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise Wrong(f"it is {_shown(value)}, not a text")
    return value


def _shown(value: Any) -> str:
    text = json_text(value)
    return text if len(text) <= 40 else f"{text[:40]}..."


def _date(value: Any) -> date:
    return date.fromisoformat(_text(value))


def _date_text(days: int) -> str:
    return date_of(days).isoformat()


def _moment(value: Any) -> int:
    # RFC 3339, which JSON Schema refers to, has small letters and leap seconds as well.
    text = _text(value).upper()
    leap = text[17:19] == "60"
    found = datetime.fromisoformat(f"{text[:17]}59{text[19:]}" if leap else text)
    if found.tzinfo is None:
        raise Wrong("it has no time zone")
    return (found - EPOCH + timedelta(seconds=leap)) // timedelta(microseconds=1)


def _moment_text(micros: int) -> str:
    return moment_of(micros).isoformat().replace("+00:00", "Z")


def _uuid(value: Any) -> str:
    return str(UUID(_text(value))) and value


ANY_JSON: Final = leaf(STRING.arrow, json_text, json_value)
"""Any JSON, as text."""

_SIMPLE: Final = {
    "boolean": leaf(BOOLEAN.arrow, _boolean),
    "integer": leaf(LONG.arrow, _whole),
    "number": leaf(DOUBLE.arrow, _number, _finite),
    "string": leaf(STRING.arrow, _text),
}
_FORMATS: Final = {
    "date": leaf(DATE.arrow, _date, _date_text),
    "date-time": leaf(TIMESTAMP.arrow, _moment, _moment_text),
    "uuid": leaf(STRING.arrow, _uuid, _uuid),
}
_BASE64: Final = leaf(
    BINARY.arrow,
    lambda value: base64.b64decode(_text(value), validate=True),
    lambda value: base64.b64encode(value).decode("ascii"),
)


def json_shape(text: str) -> Shape:
    """Return the shape of the values of a schema.

    :param text: the schema as JSON.
    :raises InvalidArgumentError: Spark has no columns for the schema: it is recursive, or refers to another
        document.
    """
    root = json.loads(text)
    try:
        return _Compiler(root).shape(root, "the value", ())
    except RecursionError:
        raise InvalidArgumentError("the JSON schema is nested too deeply") from None


class _Compiler:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root

    def shape(self, schema: Any, path: str, within: tuple[str, ...]) -> Shape:
        if not isinstance(schema, dict):
            return ANY_JSON.or_null()  # true, or a mistake that the registry did not refuse
        reference = schema.get("$ref")
        if isinstance(reference, str):
            if reference in within:
                raise InvalidArgumentError(
                    f"JSON: {path} is {reference!r}, which contains itself: Spark has no recursive types. "
                    "Give a schema that ends, or one without a type for this field: it is then a text"
                )
            return self.shape(self._referred(reference, path), path, (*within, reference))
        for name in ("anyOf", "oneOf", "allOf"):
            if isinstance(schema.get(name), list) and "type" not in schema:
                return self._choice(name, schema[name], path, within)
        kind = schema.get("type")
        kinds = kind if isinstance(kind, list) else [kind]
        present = [each for each in kinds if each != "null"]
        if len(present) != 1:
            return ANY_JSON.or_null()
        found = self._of_kind(present[0], schema, path, within)
        return found.or_null() if len(present) < len(kinds) else found

    def _referred(self, reference: str, path: str) -> Any:
        found: Any = self._root
        if not reference.startswith("#"):
            raise InvalidArgumentError(f"JSON: {path} refers to {reference!r}, which is another document")
        for part in reference[1:].split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or name not in found:
                raise InvalidArgumentError(f"JSON: {path} refers to {reference!r}, which the schema lacks")
            found = found[name]
        return found

    def _choice(self, name: str, branches: list[Any], path: str, within: tuple[str, ...]) -> Shape:
        present = [each for each in branches if each != {"type": "null"}]
        if len(present) != 1:
            return ANY_JSON.or_null()
        found = self.shape(present[0], path, within)
        return found.or_null() if len(present) < len(branches) else found

    def _of_kind(self, kind: Any, schema: Mapping[str, Any], path: str, within: tuple[str, ...]) -> Shape:
        if kind == "object":
            return self._object(schema, path, within)
        if kind == "array":
            items = schema.get("items", True)
            return array_of(self.shape(items, f"an element of {path}", within))
        if kind == "string":
            if schema.get("contentEncoding") == "base64":
                return _BASE64
            return _FORMATS.get(str(schema.get("format"))) or _SIMPLE["string"]
        return _SIMPLE.get(str(kind)) or ANY_JSON.or_null()

    def _object(self, schema: Mapping[str, Any], path: str, within: tuple[str, ...]) -> Shape:
        properties = schema.get("properties")
        if isinstance(properties, dict) and properties:
            required = schema.get("required")
            needed = set(required) if isinstance(required, list) else set()
            fields = []
            absent = set()
            for name, each in properties.items():
                found = self.shape(each, f"field {name} of {path}", within)
                if name not in needed:
                    absent.add(name)  # null is written by leaving it out
                    found = found.or_null()
                fields.append(Field(name, found, name not in needed))
            return record(fields, make=lambda value: _without_nulls(value, absent))
        others = schema.get("additionalProperties")
        if isinstance(others, dict):
            return map_of(self.shape(others, f"a value of {path}", within))
        return ANY_JSON


def _without_nulls(value: Mapping[str, Any], absent: set[str]) -> dict[str, Any]:
    return {name: each for name, each in value.items() if each is not None or name not in absent}
