"""What both clients of the schema registry share.

Not public: :mod:`pravega_wire.schemas` exports the names that users need.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from pravega_wire.errors import ArgumentTypeError, InvalidArgumentError
from pravega_wire.schemas import calls
from pravega_wire.schemas.avro import AvroSchema
from pravega_wire.schemas.codecs import codec_name
from pravega_wire.schemas.json_format import JsonSchema
from pravega_wire.schemas.model import EncodingInfo, SchemaInfo, VersionInfo
from pravega_wire.schemas.protobuf import ProtobufSchema
from pravega_wire.schemas.serializer import EventSchema, LookUp
from pravega_wire.schemas.transport import Settings, Transport
from pravega_wire.support.checks import check_flag, check_text

__all__ = [
    "DEFAULT_DECODED_BYTES",
    "MOST_FETCHED",
    "Ids",
    "OnUnknown",
    "check_reading",
    "check_schemas",
    "check_writing",
    "info_of",
    "look_up",
]

OnUnknown = Literal["fetch", "raise"]
"""What reading an event does whose encoding is not known: ask the registry, or raise an error."""

DEFAULT_DECODED_BYTES: Final = 64 << 20
MOST_FETCHED: Final = 200
_MOST_KEPT: Final = 1000
_LOOK_UP_SECONDS: Final = 10.0


def info_of(schema: object) -> SchemaInfo:
    """Return a schema in the registry's form."""
    if isinstance(schema, SchemaInfo):
        return schema
    if isinstance(schema, EventSchema):
        return schema.info
    raise ArgumentTypeError(
        "a schema must be an AvroSchema, JsonSchema, ProtobufSchema or SchemaInfo, not "
        f"{type(schema).__name__}"
    )


def check_writing(schema: object, codec: object, header: object) -> str:
    """Check the arguments of a serializer, and return the registry's name of the codec."""
    check_reading(schema, header)
    if schema is None:
        raise ArgumentTypeError("a serializer needs a schema; deserializer() returns one that only reads")
    name = codec_name(codec)
    if name and not header:
        raise InvalidArgumentError(
            "events without a header cannot have a codec: readers would not know of it"
        )
    return name


def check_reading(schema: object, header: object) -> None:
    """Check the arguments of a deserializer."""
    check_flag("header", header)
    if schema is not None and not isinstance(schema, AvroSchema | JsonSchema | ProtobufSchema):
        raise ArgumentTypeError(
            f"schema must be an AvroSchema, JsonSchema or ProtobufSchema, not {type(schema).__name__}"
        )
    if not header and isinstance(schema, AvroSchema):
        raise InvalidArgumentError("events of Avro need a header: their reader needs the writer's schema")


def check_schemas(schemas: object) -> tuple[list[EventSchema], dict[type, int]]:
    """Check the schemas of a serializer for several; return them, each once, and their numbers by type."""
    if isinstance(schemas, str | bytes | EventSchema) or not isinstance(schemas, Iterable):
        raise ArgumentTypeError(
            "schemas must be an iterable of schemas, or a mapping from types to schemas, not "
            f"{type(schemas).__name__}"
        )
    given = schemas.items() if isinstance(schemas, Mapping) else ((None, each) for each in schemas)
    listed: dict[SchemaInfo, EventSchema] = {}
    types: dict[type, int] = {}
    for key, schema in given:
        check_reading(schema, True)
        if schema is None or not (key is None or isinstance(key, type)):
            raise ArgumentTypeError(f"schemas must have schemas for types, not {schema!r} for {key!r}")
        listed.setdefault(schema.info, schema)
        if key is not None:
            types[key] = list(listed).index(schema.info)
    if not listed:
        raise InvalidArgumentError("a serializer for several schemas needs at least one")
    return list(listed.values()), types


class Ids:
    """The encodings of groups, kept both ways."""

    def __init__(self) -> None:
        self._ids: dict[tuple[str, VersionInfo, str], int] = {}
        self._encodings: dict[tuple[str, int], EncodingInfo] = {}

    def id_of(self, group: str, version: VersionInfo, codec: str) -> int | None:
        return self._ids.get((group, version, codec))

    def encoding_of(self, group: str, id: int) -> EncodingInfo | None:
        return self._encodings.get((group, id))

    def keep_id(self, group: str, version: VersionInfo, codec: str, id: int) -> None:
        if len(self._ids) >= _MOST_KEPT:
            self._ids.clear()
        self._ids[group, version, codec] = id

    def keep_encoding(self, group: str, id: int, encoding: EncodingInfo) -> None:
        if len(self._encodings) >= _MOST_KEPT:
            self._encodings.clear()
        self._encodings[group, id] = encoding
        self.keep_id(group, encoding.version, encoding.codec.name, id)

    def forget(self, group: str) -> None:
        # Of copies, because other threads may add to the originals.
        self._ids = {key: value for key, value in list(self._ids.items()) if key[0] != group}
        self._encodings = {key: value for key, value in list(self._encodings.items()) if key[0] != group}


@dataclass(frozen=True, slots=True)
class _LookUp:
    """Asks for an encoding; it can be pickled."""

    settings: Settings
    group: str

    def __call__(self, id: int) -> EncodingInfo:
        # New encodings are rare, so no connection is kept for them.
        transport = Transport(self.settings)
        try:
            return transport.run(calls.encoding(self.group, id))
        finally:
            transport.close()


def look_up(settings: Settings, group: str, on_unknown: object) -> LookUp | None:
    """Return what a serializer of a group calls for an encoding that it does not know."""
    check_text("group", group)
    if on_unknown not in ("fetch", "raise"):
        raise InvalidArgumentError(f"on_unknown must be 'fetch' or 'raise', not {on_unknown!r}")
    if on_unknown == "raise":
        return None
    return _LookUp(replace(settings, timeout=min(settings.timeout, _LOOK_UP_SECONDS)), group)
