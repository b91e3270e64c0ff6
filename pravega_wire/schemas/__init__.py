"""Pravega's schema registry: groups and schemas, and serializers for Avro, JSON and Protobuf.

Needs the extra ``schemas``. Events have the form of the registry's Java serializers (version 0.6.0), so both
can share a stream.

Example::

    from pravega_wire import open_client
    from pravega_wire.schemas import AvroSchema, SchemaRegistry

    schema = AvroSchema({
        "type": "record",
        "name": "Reading",
        "fields": [{"name": "device", "type": "int"}, {"name": "celsius", "type": "double"}],
    })
    async with SchemaRegistry(config) as registry, open_client(config) as client:
        serializer = await registry.serializer("readings", schema, register_schema=True)
        async with client.event_writer("readings") as writer:
            await writer.write_event(serializer.serialize({"device": 7, "celsius": 21.5}), "7")
"""

from pravega_wire import _public
from pravega_wire.schemas.avro import AvroSchema
from pravega_wire.schemas.client import SchemaRegistry
from pravega_wire.schemas.codecs import Codec
from pravega_wire.schemas.json_format import JsonSchema
from pravega_wire.schemas.model import (
    CodecType,
    Compatibility,
    CompatibilityPolicy,
    EncodingInfo,
    GroupProperties,
    HistoryEntry,
    RegisteredSchema,
    SchemaInfo,
    SerializationFormat,
    VersionInfo,
)
from pravega_wire.schemas.protobuf import ProtobufSchema, message_class
from pravega_wire.schemas.serializer import (
    DecodedEvent,
    EventSchema,
    MultiFormatSerializer,
    SchemaSerializer,
    WithSchema,
)
from pravega_wire.schemas.shared import OnUnknown

__all__ = [
    "AvroSchema",
    "Codec",
    "CodecType",
    "Compatibility",
    "CompatibilityPolicy",
    "DecodedEvent",
    "EncodingInfo",
    "EventSchema",
    "GroupProperties",
    "HistoryEntry",
    "JsonSchema",
    "MultiFormatSerializer",
    "OnUnknown",
    "ProtobufSchema",
    "RegisteredSchema",
    "SchemaInfo",
    "SchemaRegistry",
    "SchemaSerializer",
    "SerializationFormat",
    "VersionInfo",
    "WithSchema",
    "message_class",
]

_public.publish(__name__, __all__)
