"""Events of the schema registry as JSON, and JSON as events of the registry."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pravega_wire.errors import EncodeError, InvalidArgumentError
from pravega_wire.support.checks import read_json
from pravega_wire.values.config import PravegaConfig

__all__ = ["Decoder", "Encoder", "decoder", "encoder", "json_value"]

Decoder = Callable[[bytes], Any]
"""Returns the value of an event, as JSON has it."""

Encoder = Callable[[bytes], bytes]
"""Returns the event for a value in JSON."""


def _plain(value: Any) -> Any:
    """Convert a value that JSON does not have."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return str(value)


def json_value(value: Any) -> Any:
    """Return the value of an event as one for JSON: bytes as base64, times and decimals as texts."""
    from google.protobuf.json_format import MessageToDict
    from google.protobuf.message import Message

    if isinstance(value, Message):
        return MessageToDict(value, preserving_proto_field_name=True)
    return json.loads(json.dumps(value, default=_plain))


@contextmanager
def _registry(config: PravegaConfig) -> Iterator[Any]:
    if config.schema_registry_uri is None:
        raise InvalidArgumentError(
            "--schema-group needs the address of the schema registry: --schema-registry http://host:port, or "
            "the variable PRAVEGA_SCHEMA_REGISTRY_URI"
        )
    from pravega_wire.sync import SchemaRegistry

    with SchemaRegistry(config) as registry:
        yield registry


def decoder(config: PravegaConfig, group: str) -> Decoder:
    """Return what decodes the events of a group of the registry.

    :param config: settings with the address of the registry.
    :param group: name of the group.
    :raises InvalidArgumentError: there is no address.
    :raises SchemaNotFoundError: the group does not exist.
    """
    with _registry(config) as registry:
        found = registry.deserializer(group)
    return lambda event: json_value(found.deserialize(event))


def encoder(config: PravegaConfig, group: str, type: str | None) -> Encoder:
    """Return what makes events of JSON, with the last schema that was added to a group of the registry.

    :param config: settings with the address of the registry.
    :param group: name of the group.
    :param type: type of the schema, if the group has several.
    :raises InvalidArgumentError: there is no address, or nothing writes the schema's format.
    :raises SchemaNotFoundError: there is no schema.
    """
    from pravega_wire.schemas import AvroSchema, JsonSchema, ProtobufSchema, SerializationFormat

    with _registry(config) as registry:
        info = registry.latest_schema(group, type).schema
        schema: AvroSchema | JsonSchema | ProtobufSchema
        if info.format is SerializationFormat.PROTOBUF:
            schema = ProtobufSchema.from_files(info.type, info.data)
        elif info.format is SerializationFormat.AVRO:
            schema = AvroSchema(info.data.decode())
        elif info.format is SerializationFormat.JSON:
            schema = JsonSchema(info.type, info.data.decode())
        else:
            raise InvalidArgumentError(f"group {group} has schemas of the format {info.custom_format!r}")
        serializer = registry.serializer(group, schema)

    def encode(data: bytes) -> bytes:
        try:
            value = read_json(data.decode())
        except (ValueError, RecursionError) as error:
            raise InvalidArgumentError(f"it is not JSON ({error})") from None
        try:
            return bytes(serializer.serialize(_message(schema, value)))
        except EncodeError as error:
            raise InvalidArgumentError(error.message) from error

    return encode


def _message(schema: Any, value: Any) -> Any:
    """Return a value as the serializer of its schema takes it."""
    from google.protobuf.json_format import ParseDict, ParseError

    from pravega_wire.schemas import ProtobufSchema, message_class

    if not isinstance(schema, ProtobufSchema):
        return value
    try:
        return ParseDict(value, message_class(schema.info)())
    except (ParseError, TypeError, AttributeError) as error:
        raise InvalidArgumentError(f"it is not a {schema.info.type} ({error})") from error
