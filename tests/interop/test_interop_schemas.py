"""Events of the schema registry's Java serializers and of ours: each side reads the other's, in equal bytes.

The table of these results is in ``docs/schemas.md``.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator
from typing import Any, cast
from uuid import uuid4

import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.message import Message

from pravega_wire.errors import SchemaNotFoundError
from pravega_wire.schemas import (
    AvroSchema,
    Codec,
    CodecType,
    EventSchema,
    JsonSchema,
    ProtobufSchema,
    WithSchema,
)
from pravega_wire.schemas.codecs import CODEC_NAMES, compress, decompress
from pravega_wire.sync import SchemaRegistry
from pravega_wire.testing import SchemaRegistryServer
from tests.interop.java_peer import JavaPeer, JavaPeerError

CODECS: tuple[Codec, ...] = ("none", "gzip", "snappy")
FORMATS = ("Avro", "Json", "Protobuf")

AVRO = AvroSchema(
    {
        "type": "record",
        "name": "Reading",
        "namespace": "plant",
        "fields": [
            {"name": "device", "type": "int"},
            {"name": "celsius", "type": "double"},
            {"name": "note", "type": ["null", "string"]},
            {"name": "raw", "type": "bytes"},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
            {"name": "counts", "type": {"type": "map", "values": "long"}},
            {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["ON", "OFF"]}},
            {"name": "id", "type": {"type": "fixed", "name": "Id", "size": 4}},
        ],
    }
)
JSON = JsonSchema("reading", {"type": "object", "properties": {"device": {"type": "integer"}}})


def protobuf_schema() -> ProtobufSchema:
    """A message with fields of each kind."""
    file = descriptor_pb2.FileDescriptorProto(name="plant.proto", package="plant", syntax="proto3")
    message = file.message_type.add(name="Reading")
    kinds = {"device": 5, "celsius": 1, "note": 9, "raw": 12, "offset": 18, "fine": 8, "small": 2, "mark": 7}
    for number, (name, kind) in enumerate(kinds.items(), 1):
        message.field.add(name=name, number=number, type=kind, label=1)
    message.field.add(name="counts", number=20, type=3, label=3)
    return ProtobufSchema.from_files(
        "plant.Reading", descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    )


PROTOBUF = protobuf_schema()
SCHEMAS: dict[str, EventSchema] = {"Avro": AVRO, "Json": JSON, "Protobuf": PROTOBUF}

NOTES = ("", "warm", '20 °C \U0001f600 \x00\x1f "\\u001f" \\ / \t\x7f', "x" * 300, "x" * 9000)


def avro_value(number: int, note: str) -> dict[str, Any]:
    return {
        "device": number - 3,
        "celsius": number / 8,
        "note": note or None,
        "raw": bytes(range(number)),
        "tags": [f"{note[:20]}{each}" for each in range(number)],
        "counts": {"a": -(2**62), "b": number},
        "state": "ON" if number % 2 else "OFF",
        "id": struct.pack(">i", number),
    }


def avro_json(value: dict[str, Any]) -> bytes:
    """The same value in Avro's own JSON, where bytes are characters and unions name their branch."""
    return json.dumps(
        value
        | {
            "note": None if value["note"] is None else {"string": value["note"]},
            "raw": value["raw"].decode("latin-1"),
            "id": value["id"].decode("latin-1"),
        }
    ).encode()


def from_avro_json(text: bytes) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(text)
    note = value["note"]
    return value | {
        "note": None if note is None else note["string"],
        "raw": value["raw"].encode("latin-1"),
        "id": value["id"].encode("latin-1"),
    }


def json_value(number: int, note: str) -> Any:
    return {
        "z": number,
        "device": -number,
        "note": note,
        "list": [1.5, None, True, {"deep": [note]}],
        "": 2**70,
    }


def message_of(number: int, note: str) -> Message:
    from pravega_wire.schemas import message_class

    return message_class(PROTOBUF.info)(
        device=number,
        celsius=number / 8,
        note=note.replace("\0", ""),
        raw=bytes(number),
        offset=-number,
        fine=bool(number % 2),
        small=0.5,
        mark=0,
        counts=[-number, 0],
    )


VALUES: dict[str, list[Any]] = {
    "Avro": [avro_value(number, note) for number, note in enumerate(NOTES)],
    "Json": [json_value(number, note) for number, note in enumerate(NOTES)],
    "Protobuf": [message_of(number, note) for number, note in enumerate(NOTES)],
}


def for_java(format: str, value: Any) -> bytes:
    """A value as the Java program takes it."""
    if format == "Avro":
        return avro_json(value)
    if format == "Json":
        return json.dumps(value).encode()
    return bytes(value.SerializeToString())


def from_java(format: str, text: str) -> Any:
    """A value as the Java program gives it."""
    data = base64.b64decode(text)
    if format == "Avro":
        return from_avro_json(data)
    if format == "Json":
        return json.loads(data)
    from pravega_wire.schemas import message_class

    return message_class(PROTOBUF.info).FromString(data)


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def same(format: str, one: Any, other: Any) -> bool:
    if format == "Protobuf":
        # Messages of classes that were made twice are never equal.
        return bool(one.SerializeToString() == other.SerializeToString())
    return bool(one == other)


@pytest.fixture
def registry(pravega_schema_registry: SchemaRegistryServer) -> Iterator[SchemaRegistry]:
    with SchemaRegistry(pravega_schema_registry.uri) as registry:
        yield registry


@pytest.fixture
def group(registry: SchemaRegistry) -> str:
    name = f"group-{uuid4().hex[:12]}"
    assert registry.create_group(name)
    return name


def java_writes(
    peer: JavaPeer, group: str, format: str, codec: str, value: Any, *, register: bool, header: bool = True
) -> bytes:
    schema = SCHEMAS[format].info
    flags = [str(each).lower() for each in (register, header)]
    return base64.b64decode(
        peer.value(
            "write", group, format, codec, *flags, schema.type, b64(schema.data), b64(for_java(format, value))
        )
    )


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("format", FORMATS)
def test_we_read_what_java_writes(
    schema_peer: JavaPeer, registry: SchemaRegistry, group: str, format: str, codec: Codec
) -> None:
    for value in VALUES[format]:
        payload = java_writes(schema_peer, group, format, codec, value, register=True)
        found = registry.deserializer(group).decode(payload)
        assert same(format, found.value, value)
        assert found.encoding is not None
        assert found.encoding.codec.name == CODEC_NAMES[codec]
        assert found.encoding.schema.type == SCHEMAS[format].info.type


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("format", FORMATS)
def test_java_reads_what_we_write(
    schema_peer: JavaPeer, registry: SchemaRegistry, group: str, format: str, codec: Codec
) -> None:
    serializer = registry.serializer(
        group, SCHEMAS[format], codec=codec, register_schema=True, register_codec=True
    )
    for value in VALUES[format]:
        payload = serializer.serialize(value)
        assert same(
            format, from_java(format, schema_peer.value("read", group, format, "-", b64(payload))), value
        )
        [[kind, text]] = schema_peer.call("read-any", group, b64(payload))
        assert kind == format
        assert same(format, from_java(format, text), value)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("format", FORMATS)
def test_the_bytes_are_equal(
    schema_peer: JavaPeer, registry: SchemaRegistry, group: str, format: str, codec: Codec
) -> None:
    serializer = registry.serializer(
        group, SCHEMAS[format], codec=codec, register_schema=True, register_codec=True
    )
    name = CODEC_NAMES[codec]
    for value in VALUES[format]:
        ours = serializer.serialize(value)
        java = java_writes(schema_peer, group, format, codec, value, register=False)
        assert java[:5] == ours[:5]  # header: the same encoding id
        if codec == "none":
            assert java == ours
            continue
        # Java compresses its whole buffer, and so the same value with zeros after it.
        plain = decompress(name, java[5:], 1 << 20)
        mine = decompress(name, ours[5:], 1 << 20)
        assert plain[: len(mine)] == mine
        assert not plain[len(mine) :].strip(b"\0")
        # Of equal data, both codecs make equal bytes.
        assert compress(name, plain) == java[5:]


def test_java_cannot_read_its_own_compressed_protobuf(
    schema_peer: JavaPeer, registry: SchemaRegistry, group: str
) -> None:
    payload = java_writes(schema_peer, group, "Protobuf", "gzip", VALUES["Protobuf"][1], register=True)
    with pytest.raises(JavaPeerError, match="invalid tag"):
        schema_peer.value("read", group, "Protobuf", "-", b64(payload))
    assert same("Protobuf", registry.deserializer(group).deserialize(payload), VALUES["Protobuf"][1])


@pytest.mark.parametrize("format", ["Json", "Protobuf"])
def test_events_without_a_header(
    schema_peer: JavaPeer, registry: SchemaRegistry, group: str, format: str
) -> None:
    serializer = registry.serializer(group, SCHEMAS[format], register_schema=True, header=False)
    reader = registry.deserializer(group, SCHEMAS[format], header=False)
    for value in VALUES[format]:
        ours = serializer.serialize(value)
        assert ours == java_writes(schema_peer, group, format, "none", value, register=False, header=False)
        assert same(format, reader.deserialize(ours), value)


def test_avro_is_read_into_another_schema(
    schema_peer: JavaPeer, registry: SchemaRegistry, group: str
) -> None:
    wanted = AvroSchema(
        {
            "type": "record",
            "name": "Reading",
            "namespace": "plant",
            "fields": [
                {"name": "celsius", "type": "double"},
                {"name": "device", "type": "long"},
                {"name": "place", "type": "string", "default": "hall"},
            ],
        }
    )
    value = VALUES["Avro"][1]
    expected = {"celsius": value["celsius"], "device": value["device"], "place": "hall"}
    payload = java_writes(schema_peer, group, "Avro", "none", value, register=True)
    assert registry.deserializer(group, wanted).deserialize(payload) == expected
    java = schema_peer.value("read", group, "Avro", b64(wanted.info.data), b64(payload))
    assert json.loads(base64.b64decode(java)) == expected


def test_one_group_of_all_formats(schema_peer: JavaPeer, registry: SchemaRegistry, group: str) -> None:
    reader = registry.deserializer(group)
    for number in range(len(NOTES)):
        for format in FORMATS:
            payload = java_writes(schema_peer, group, format, "none", VALUES[format][number], register=True)
            found = reader.decode(payload)
            assert found.encoding is not None
            assert found.encoding.schema.format == format
            assert same(format, found.value, VALUES[format][number])


@pytest.mark.parametrize("codec", CODECS)
def test_several_formats_written_here_are_read_by_java_with_their_schemas(
    schema_peer: JavaPeer, registry: SchemaRegistry, group: str, codec: Codec
) -> None:
    serializer = registry.multi_format_serializer(
        group,
        cast("dict[type, EventSchema]", {dict: AVRO, list: JSON, Message: PROTOBUF}),
        codec=codec,
        register_schema=True,
        register_codec=True,
    )
    for number in range(len(NOTES)):
        for format in FORMATS:
            value = VALUES[format][number]
            given = WithSchema(value, JSON) if format == "Json" else value
            payload = serializer.serialize(given)
            for command in ("read-with-schema", "read-any"):
                [[kind, text]] = schema_peer.call(command, group, b64(payload))
                assert kind == format
                assert same(format, from_java(format, text), value)
            assert same(format, serializer.deserialize(payload), value)


@pytest.mark.parametrize("codec", CODECS)
def test_several_formats_written_by_java_are_read_here(
    schema_peer: JavaPeer, registry: SchemaRegistry, group: str, codec: Codec
) -> None:
    serializer = registry.multi_format_serializer(group, [AVRO, JSON], register_schema=True)
    for number in range(len(NOTES)):
        for format in ("Avro", "Json"):
            value = VALUES[format][number]
            schema = SCHEMAS[format].info
            words = (schema.type, b64(schema.data), b64(for_java(format, value)))
            payload = schema_peer.value("write-with-schema", group, format, codec, *words)
            found = serializer.decode(base64.b64decode(payload))
            assert found.encoding is not None
            assert found.encoding.schema.format == format
            assert found.value == value
    # Java's serializer takes Protobuf messages of generated classes only.
    payload = schema_peer.value("write-with-schema", group, "Protobuf", codec, "-", "", b64(b"1700000000"))
    message = serializer.deserialize(base64.b64decode(payload))
    assert (message.DESCRIPTOR.full_name, message.seconds) == ("google.protobuf.Timestamp", 1_700_000_000)


def test_a_schema_of_one_side_is_known_to_the_other(
    schema_peer: JavaPeer, registry: SchemaRegistry, group: str
) -> None:
    for format in FORMATS:
        with pytest.raises(SchemaNotFoundError):
            registry.serializer(group, SCHEMAS[format])
        java_writes(schema_peer, group, format, "none", VALUES[format][1], register=True)
        assert registry.version_of(group, SCHEMAS[format]).version == 0
    other = f"{group}-2"
    registry.create_group(other)
    registry.add_codec(other, CodecType(CODEC_NAMES["gzip"]))
    for format in FORMATS:
        with pytest.raises(JavaPeerError):
            java_writes(schema_peer, other, format, "none", VALUES[format][1], register=False)
        registry.add_schema(other, SCHEMAS[format])
        java_writes(schema_peer, other, format, "none", VALUES[format][1], register=False)
