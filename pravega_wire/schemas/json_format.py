"""JSON: schemas, values and bytes, as Java's Jackson writes them.

Not public.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from pravega_wire.errors import DecodeError, EncodeError, InvalidArgumentError
from pravega_wire.schemas.model import SchemaInfo, SerializationFormat
from pravega_wire.support.checks import check_text, read_json

__all__ = ["JsonReader", "JsonSchema", "JsonWriter"]

_ESCAPE: Final = re.compile(r"\\(?:u[0-9a-f]{4}|.)")
_SURROGATES: Final = re.compile("[\ud800-\udfff\U00010000-\U0010ffff]")


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex().upper()}" for at in range(0, len(units), 2))


class JsonSchema:
    """A JSON schema.

    The registry checks the schema itself. Neither Java's serializers nor these check values against it.

    Example::

        JsonSchema("reading", {"type": "object", "properties": {"celsius": {"type": "number"}}})

    :param type: name of what the schema describes.
    :param schema: the schema as a mapping, or as JSON text.
    :raises InvalidArgumentError: it is not a JSON object, or the name is not a text.
    """

    format = SerializationFormat.JSON

    def __init__(self, type: str, schema: Mapping[str, Any] | str) -> None:
        check_text("type of a JSON schema", type)
        try:
            text = schema if isinstance(schema, str) else json.dumps(schema, separators=(",", ":"))
            parsed = json.loads(text)
            data = text.encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidArgumentError(f"the JSON schema {type!r} is not JSON: {error}") from error
        if not isinstance(parsed, dict):
            raise InvalidArgumentError(f"the JSON schema {type!r} is not a JSON object")
        self.info = SchemaInfo(type, SerializationFormat.JSON, data)

    def __repr__(self) -> str:
        return f"JsonSchema({self.info.type!r})"


class JsonWriter:
    """Writes values as JSON, in the order of their keys."""

    def encode(self, value: object) -> bytes:
        """Return a value's bytes.

        :raises EncodeError: JSON cannot represent the value.
        """
        try:
            text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
            if "\\u00" in text:
                # Jackson's escapes have capital digits.
                text = _ESCAPE.sub(lambda found: found[0][:2] + found[0][2:].upper(), text)
            # Jackson escapes what UTF-16 writes as surrogates; unpaired ones have no other form anyway.
            return _SURROGATES.sub(lambda found: _escaped(found[0]), text).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise EncodeError(f"the value cannot be written as JSON: {error}") from error


class JsonReader:
    """Reads JSON."""

    def decode(self, data: bytes, *, padded: bool) -> Any:
        """Return the value.

        :param padded: whether zero bytes may follow it.
        :raises DecodeError: the bytes are not JSON in UTF-8, or have a number that is too large for a float.
        """
        try:
            return read_json((data.rstrip(b"\0") if padded else data).decode())
        except (ValueError, RecursionError) as error:
            raise DecodeError(f"the event is not JSON: {error}") from error
