"""Schemas and their serializers without a registry: bytes, and what is refused."""

from __future__ import annotations

import gzip
import json
import math
import pickle
import re
import struct
import zlib
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, cast
from uuid import UUID

import fastavro
import pytest
from google.protobuf import descriptor_pb2, duration_pb2, struct_pb2, timestamp_pb2
from hypothesis import given
from hypothesis import strategies as st

from pravega_wire.errors import (
    ArgumentTypeError,
    DecodeError,
    EncodeError,
    InvalidArgumentError,
    PravegaError,
    SchemaNotFoundError,
    SchemaRegistryReplyError,
    TruncatedInputError,
    UnknownEncodingError,
)
from pravega_wire.schemas import (
    AvroSchema,
    CodecType,
    Compatibility,
    CompatibilityPolicy,
    EncodingInfo,
    EventSchema,
    GroupProperties,
    HistoryEntry,
    JsonSchema,
    MultiFormatSerializer,
    ProtobufSchema,
    RegisteredSchema,
    SchemaInfo,
    SchemaSerializer,
    SerializationFormat,
    VersionInfo,
    WithSchema,
)
from pravega_wire.schemas.avro import AvroReader, AvroWriter
from pravega_wire.schemas.codecs import CODEC_NAMES, compress, decompress
from pravega_wire.schemas.json_format import JsonReader, JsonWriter
from pravega_wire.schemas.protobuf import ProtobufReader, message_class, without_padding
from pravega_wire.schemas.serializer import Prepared, combined, encoding_id_of, header_of
from pravega_wire.schemas.shared import check_schemas
from pravega_wire.sync import SchemaRegistry

GZIP, SNAPPY = CODEC_NAMES["gzip"], CODEC_NAMES["snappy"]
LIMIT = 1 << 20

READING = AvroSchema(
    {
        "type": "record",
        "name": "Reading",
        "fields": [{"name": "device", "type": "int"}, {"name": "note", "type": "string"}],
    }
)
DURATION = ProtobufSchema(duration_pb2.Duration)
OBJECT = JsonSchema("thing", {"type": "object"})


def encoding_of(schema: EventSchema, codec: str = "", id: int = 0) -> EncodingInfo:
    version = VersionInfo(schema.info.type, id, id, str(schema.format))
    return EncodingInfo(schema.info, version, CodecType(codec))


def serializer_of(
    writer: EventSchema | None,
    *,
    codec: str = "",
    reader: EventSchema | None = None,
    encodings: dict[int, EncodingInfo] | None = None,
    limit: int = LIMIT,
    fetch: Any = None,
) -> SchemaSerializer:
    known = {} if writer is None else {0: encoding_of(writer, codec)}
    start = b"" if writer is None else header_of(0)
    return SchemaSerializer(
        Prepared("group", writer, start, codec, reader, True, known | (encodings or {}), limit), fetch
    )


# --- codecs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CODEC_NAMES.values())
@given(data=st.binary(max_size=2000))
def test_a_codec_returns_what_it_was_given(name: str, data: bytes) -> None:
    assert decompress(name, compress(name, data), LIMIT) == data


def test_gzip_is_written_as_java_writes_it() -> None:
    # Made by GZIPOutputStream of Java 17.
    assert compress(GZIP, b"\x06xxx").hex().startswith("1f8b08000000000000ff")
    assert gzip.decompress(compress(GZIP, b"\x06xxx")) == b"\x06xxx"


def test_gzip_of_several_members_is_read_as_java_reads_it() -> None:
    assert decompress(GZIP, gzip.compress(b"one") + gzip.compress(b"two"), LIMIT) == b"onetwo"


def zipped(data: bytes) -> bytes:
    """Compress without the time, which would make the name of a test different in each process."""
    return gzip.compress(data, mtime=0)


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        (GZIP, b"", "empty"),
        (GZIP, b"plain", "not valid gzip"),
        (GZIP, zipped(b"x" * 100)[:-1], "ends too early"),
        (GZIP, zipped(b"x" * 100)[:12], "ends too early"),
        (GZIP, zipped(b"x" * 100) + b"more", "not valid gzip"),
        (GZIP, zipped(b"abc")[:-8] + bytes(8), "not valid gzip"),
        (GZIP, zipped(bytes(LIMIT + 1)), f"larger than {LIMIT} bytes"),
        (
            GZIP,
            zipped(bytes(LIMIT)) + zipped(b"1"),
            f"larger than {LIMIT} bytes",
        ),
        (GZIP, zipped(b"") * 2000, "more than 1000 members"),
        (SNAPPY, b"", "not valid snappy"),
        (SNAPPY, b"\xff" * 12, "not valid snappy"),
        (SNAPPY, b"\xff\xff\xff\xff\x0f", "larger than"),
        (SNAPPY, compress(SNAPPY, b"hello world" * 9)[:-1], "not valid snappy"),
        (SNAPPY, compress(SNAPPY, bytes(LIMIT + 1)), "larger than"),
        ("application/x-lz4", b"x", "application/x-lz4"),
    ],
)
def test_damaged_data_of_a_codec(name: str, data: bytes, words: str) -> None:
    with pytest.raises(DecodeError, match=words):
        decompress(name, data, LIMIT)


@pytest.mark.parametrize("name", [GZIP, SNAPPY])
@given(data=st.binary(max_size=100), changed=st.integers(0, 99), to=st.integers(0, 255))
def test_changed_data_of_a_codec_is_refused_or_read(name: str, data: bytes, changed: int, to: int) -> None:
    damaged = bytearray(compress(name, data))
    damaged[changed % len(damaged)] = to
    for each in (bytes(damaged), data):
        try:
            assert len(decompress(name, each, LIMIT)) <= LIMIT
        except DecodeError:
            pass


# --- headers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "kind", "words"),
    [
        (b"", TruncatedInputError, "0 bytes"),
        (b"\x01\0\0\0", TruncatedInputError, "4 bytes"),
        (b"\0\0\0\0\0x", DecodeError, "begins with byte 0"),
        (b'{"a":1}', DecodeError, "begins with byte 123"),
        (b"\x01\xff\xff\xff\xffx", DecodeError, "encoding id -1"),
        (b"\x01\0\0\0\x09x", UnknownEncodingError, "encoding 9 .* has not been fetched"),
        (b"\x01\x7f\xff\xff\xffx", UnknownEncodingError, "encoding 2147483647"),
    ],
)
def test_odd_headers(payload: bytes, kind: type[DecodeError], words: str) -> None:
    with pytest.raises(kind, match=words) as caught:
        serializer_of(READING).deserialize(payload)
    if isinstance(caught.value, UnknownEncodingError):
        assert caught.value.encoding_id == encoding_id_of(payload)


def test_the_form_of_an_event() -> None:
    event = serializer_of(READING).serialize({"device": -2, "note": "é"})
    assert event == bytes.fromhex("01 00000000 03 04 c3a9")
    assert serializer_of(READING).decode(event).encoding == encoding_of(READING)
    assert header_of(0x01020304).hex() == "0101020304"


def test_an_encoding_is_asked_for_once() -> None:
    asked = []

    def fetch(id: int) -> EncodingInfo:
        asked.append(id)
        if id == 5:
            return encoding_of(OBJECT, id=5)
        raise SchemaNotFoundError("none", group="group", status=404)

    serializer = serializer_of(READING, fetch=fetch)
    for _ in range(3):
        assert serializer.deserialize(header_of(5) + b"[1]") == [1]
    assert asked == [5]
    with pytest.raises(UnknownEncodingError, match="id 6, which group group does not have") as caught:
        serializer.deserialize(header_of(6) + b"[1]")
    assert caught.value.encoding_id == 6


def test_a_serializer_that_only_reads() -> None:
    with pytest.raises(EncodeError, match="only reads"):
        serializer_of(None).serialize({})


@pytest.mark.parametrize(
    ("schema", "value"), [(READING, {"device": 1, "note": "a"}), (OBJECT, {"a": 1}), (DURATION, None)]
)
@pytest.mark.parametrize("codec", ["", GZIP, SNAPPY])
def test_serializers_can_be_pickled(schema: EventSchema, value: Any, codec: str) -> None:
    value = duration_pb2.Duration(seconds=5) if value is None else value
    serializer = serializer_of(schema, codec=codec)
    copy = pickle.loads(pickle.dumps(serializer))
    assert copy.serialize(value) == serializer.serialize(value)
    assert copy.deserialize(serializer.serialize(value)) == value
    assert type(copy.deserialize(serializer.serialize(value))) is type(value)


def test_what_was_learnt_is_pickled_too() -> None:
    serializer = serializer_of(None)
    serializer.learn(3, encoding_of(OBJECT, id=3))
    assert pickle.loads(pickle.dumps(serializer)).deserialize(header_of(3) + b"{}") == {}


# --- several formats ----------------------------------------------------------------------------------


class Device(dict[str, Any]):
    """A value whose schema its type says."""


def multi_of(
    schemas: Iterable[EventSchema] | Mapping[type, EventSchema], codec: str = ""
) -> MultiFormatSerializer:
    listed, types = check_schemas(schemas)
    writers = [
        SchemaSerializer(
            Prepared(
                "group", each, header_of(id), codec, None, True, {id: encoding_of(each, codec, id)}, LIMIT
            ),
            None,
        )
        for id, each in enumerate(listed)
    ]
    return combined(serializer_of(None), writers, types)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "Reading: the value is None, not of the type Reading"),
        ("x", "Reading: the value is 'x', not of the type Reading"),
        ({"device": 1}, "Reading: Reading.note is missing or None, not of the type string"),
        ({"device": "x", "note": ""}, "Reading: Reading.device is 'x', not of the type int"),
    ],
)
def test_a_value_that_does_not_fit_is_named_without_the_whole_schema(value: object, message: str) -> None:
    with pytest.raises(EncodeError) as caught:
        serializer_of(READING).serialize(value)
    assert caught.value.message == f"the value does not fit the Avro schema {message}"


def event_of(schema: AvroSchema, data: bytes) -> Any:
    """Return the value of an event of a schema."""
    serializer = serializer_of(None, encodings={0: encoding_of(schema)})
    return serializer.deserialize(header_of(0) + data)


@pytest.mark.parametrize("fixed", [True, False])
def test_a_stored_decimal_is_not_rounded_to_the_precision_of_its_schema(fixed: bool) -> None:
    kind: dict[str, Any] = {"type": "fixed", "name": "d", "size": 4} if fixed else {"type": "bytes"}
    decimal = {**kind, "logicalType": "decimal", "precision": 4, "scale": 2}
    data = (123_456_789).to_bytes(4, "big")
    assert event_of(AvroSchema(decimal), data if fixed else b"\x08" + data) == Decimal("1234567.89")
    # A default is not rounded either, nor written with more digits than the schema has.
    text = data.decode("iso-8859-1")
    newer = reading_with({"name": "d", "type": decimal, "default": text})
    old = serializer_of(None, reader=newer, encodings={0: encoding_of(reading_with())})
    assert old.deserialize(header_of(0) + b"\x02") == {"device": 1, "d": Decimal("1234567.89")}
    with pytest.raises(EncodeError, match="precision"):
        serializer_of(newer).serialize({"device": 1})


def reading_with(*more: object) -> AvroSchema:
    fields = [{"name": "device", "type": "int"}, *more]
    return AvroSchema({"type": "record", "name": "Reading", "fields": fields})


@pytest.mark.parametrize("optional", [True, False])
@pytest.mark.parametrize(("data", "index"), [(b"\x01", -1), (b"\x03", -2), (b"\x04", 2)])
def test_a_number_that_no_symbol_of_an_enum_has(optional: bool, data: bytes, index: int) -> None:
    enum = {"type": "enum", "name": "e", "symbols": ["A", "B"]}
    schema = AvroSchema(["null", enum] if optional else enum)
    start = b"\x02" if optional else b""
    assert event_of(schema, start + b"\x02") == "B"
    with pytest.raises(DecodeError, match=f"an enum of 2 symbols has none with the number {index}"):
        event_of(schema, start + data)


def test_items_without_bytes_are_counted_in_all_arrays_together() -> None:
    nulls = AvroSchema({"type": "array", "items": {"type": "array", "items": "null"}})
    # Arrays of 60 000 nulls, each in 4 bytes.
    one = b"\xc0\xa9\x07\x00"
    assert len(event_of(nulls, b"\x02" + one + b"\x00")[0]) == 60_000
    with pytest.raises(DecodeError, match="more than 100000 items without bytes"):
        event_of(nulls, b"\x04" + one * 2 + b"\x00")


def test_a_number_of_json_that_is_too_large_does_not_become_infinity() -> None:
    serializer = serializer_of(OBJECT)
    with pytest.raises(DecodeError, match="the number 1e400 is too large for a float"):
        serializer.deserialize(header_of(0) + b'{"a":1e400}')


@pytest.mark.parametrize("codec", ["", GZIP, SNAPPY])
@pytest.mark.parametrize("pickled", [False, True])
def test_the_schema_of_a_value_is_found(codec: str, pickled: bool) -> None:
    schemas: dict[type, EventSchema] = {Device: READING, dict: OBJECT, int: DURATION}
    serializer = multi_of(schemas, codec)
    if pickled:
        serializer = pickle.loads(pickle.dumps(serializer))
    device, thing, message = Device(device=1, note="a"), {"a": 1}, duration_pb2.Duration(seconds=5)
    for value, schema in ((device, READING), (thing, OBJECT), (message, DURATION)):
        for what in (value, WithSchema(value, schema)):
            found = serializer.decode(serializer.serialize(what))
            assert found.value == value
            assert found.encoding is not None
            assert found.encoding.schema == schema.info
    assert type(serializer.deserialize(serializer.serialize(message))) is duration_pb2.Duration
    # What is said counts more than the type.
    assert serializer.decode(serializer.serialize(WithSchema(device, OBJECT))).encoding == encoding_of(
        OBJECT, codec, 1
    )


def test_values_that_no_schema_is_for() -> None:
    serializer = multi_of([READING, OBJECT, DURATION])
    for value in ({"a": 1}, None, "a", object(), type, timestamp_pb2.Timestamp()):
        with pytest.raises(EncodeError, match="WithSchema"):
            serializer.serialize(value)
    with pytest.raises(EncodeError, match=r"no schema is for message google\.protobuf\.Timestamp"):
        serializer.serialize(timestamp_pb2.Timestamp())
    with pytest.raises(EncodeError, match="is not a schema of"):
        serializer.serialize(WithSchema(1, JsonSchema("other", {})))
    with pytest.raises(EncodeError, match="is not a schema of"):
        serializer.serialize(WithSchema(1, cast("Any", "thing")))
    with pytest.raises(EncodeError):
        serializer.serialize(WithSchema({"device": "x"}, READING))
    # A single schema needs no choice.
    assert multi_of([OBJECT]).serialize([1]) == header_of(0) + b"[1]"


def test_a_schema_that_was_given_twice_is_written_once() -> None:
    schemas: dict[type, EventSchema] = {dict: OBJECT, list: JsonSchema("thing", {"type": "object"})}
    serializer = multi_of(schemas)
    assert serializer.serialize({}) == header_of(0) + b"{}"
    assert serializer.serialize([]) == header_of(0) + b"[]"


@pytest.mark.parametrize(
    ("schemas", "kind", "words"),
    [
        ([], InvalidArgumentError, "at least one"),
        ({}, InvalidArgumentError, "at least one"),
        (OBJECT, ArgumentTypeError, "iterable of schemas"),
        ("thing", ArgumentTypeError, "iterable of schemas"),
        (None, ArgumentTypeError, "iterable of schemas"),
        ([None], ArgumentTypeError, "not None"),
        (["thing"], ArgumentTypeError, "must be an AvroSchema"),
        ({"dict": OBJECT}, ArgumentTypeError, "for types, not"),
    ],
)
def test_what_is_no_choice_of_schemas(schemas: Any, kind: type[PravegaError], words: str) -> None:
    with pytest.raises(kind, match=words):
        check_schemas(schemas)


# --- Avro ---------------------------------------------------------------------------------------------

LIST = AvroSchema(
    {
        "type": "record",
        "name": "Node",
        "fields": [{"name": "value", "type": "int"}, {"name": "next", "type": ["null", "Node"]}],
    }
)


def nested(depth: int) -> Any:
    value: Any = None
    for number in range(depth):
        value = {"value": number, "next": value}
    return value


def test_nested_data_is_read() -> None:
    event = AvroWriter(LIST.info).encode(nested(50))
    assert AvroReader(LIST.info, None).decode(event, padded=False) == nested(50)


def test_endless_nesting_does_not_exhaust_the_stack() -> None:
    with pytest.raises(DecodeError, match="levels deep"):
        AvroReader(LIST.info, None).decode(b"\x00\x02" * 1_000_000 + b"\0\0", padded=False)


def test_values_that_could_not_be_read_are_not_written() -> None:
    endless: dict[str, Any] = {"value": 1}
    endless["next"] = endless
    for value in (nested(100), nested(1000), endless):
        with pytest.raises(EncodeError, match=r"Node.*levels deep"):
            AvroWriter(LIST.info).encode(value)


@pytest.mark.parametrize(
    "items",
    [
        "null",
        {"type": "fixed", "name": "F", "size": 0},
        {"type": "record", "name": "R", "fields": []},
        {"type": "record", "name": "R", "fields": [{"name": "n", "type": "null"}]},
    ],
)
def test_items_without_bytes_do_not_exhaust_the_memory(items: Any) -> None:
    reader = AvroReader(AvroSchema({"type": "array", "items": items}).info, None)
    assert len(reader.decode(b"\x06\0", padded=False)) == 3
    with pytest.raises(DecodeError, match="items without bytes"):
        reader.decode(b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\0", padded=False)


ALL_KINDS = AvroSchema(
    {
        "type": "record",
        "name": "All",
        "fields": [
            {"name": "a", "type": {"type": "map", "values": ["null", "All"]}},
            {"name": "b", "type": {"type": "array", "items": ["double", "float", "boolean", "bytes"]}},
            {"name": "c", "type": {"type": "enum", "name": "E", "symbols": ["x", "y"]}},
            {"name": "d", "type": {"type": "fixed", "name": "F", "size": 3}},
            {"name": "e", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "f", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}},
            {"name": "g", "type": ["null", "E"]},
        ],
    }
)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused_as_avro(data: bytes) -> None:
    for schema in (READING, LIST, ALL_KINDS):
        try:
            AvroReader(schema.info, None).decode(data, padded=False)
        except DecodeError:
            pass


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "ends before|ends within"),
        (b"\x02", "ends before|ends within"),
        (b"\x02\x08ab", "ends before|ends within"),
        (b"\xff" * 20, "not an Avro value|64 bits|ends"),
        (b"\x02\x02\xff", "not an Avro value"),
        (b"\x02\x02ab", "1 bytes follow"),
        (b"\x02\x02a\0", "1 bytes follow"),
    ],
)
def test_damaged_avro(data: bytes, words: str) -> None:
    with pytest.raises(DecodeError, match=words):
        AvroReader(READING.info, None).decode(data, padded=False)


def test_zeros_after_an_avro_value_of_a_codec() -> None:
    reader = AvroReader(READING.info, None)
    assert reader.decode(b"\x02\x02a" + bytes(100), padded=True) == {"device": 1, "note": "a"}
    with pytest.raises(DecodeError, match="5 bytes follow"):
        reader.decode(b"\x02\x02a\0\0\0\0\x01", padded=True)


@pytest.mark.parametrize("value", [{}, {"device": "x", "note": "y"}, {"device": 2**40, "note": ""}, None, 7])
def test_values_that_do_not_fit_avro(value: Any) -> None:
    with pytest.raises(EncodeError, match="Reading"):
        serializer_of(READING).serialize(value)


def test_keys_that_the_schema_lacks_are_refused() -> None:
    fields = [{"name": "a", "type": "int"}, {"name": "b", "type": ["null", "string"]}]
    writer = AvroWriter(AvroSchema({"type": "record", "name": "R", "fields": fields}).info)
    assert writer.encode({"a": 1}) == writer.encode({"a": 1, "b": None}) == b"\x02\0"
    with pytest.raises(EncodeError, match=r"R: .* more fields .*: B"):
        writer.encode({"a": 1, "B": "note"})


def test_the_record_of_a_union_is_named() -> None:
    union = AvroSchema([{"type": "record", "name": name, "fields": fields_of({})} for name in "XYZ"])
    for value in (("Y", {"a": 1}), {"-type": "Y", "a": 1}):
        assert AvroWriter(union.info).encode(value) == b"\x02\x02"


def test_the_record_of_a_union_in_a_record_is_named() -> None:
    union = [{"type": "record", "name": name, "fields": fields_of({})} for name in "XYZ"]
    writer = AvroWriter(reading_with({"name": "part", "type": union}).info)
    assert writer.encode({"device": 1, "part": {"-type": "Y", "a": 1}}) == b"\x02\x02\x02"


DAY = {"type": "int", "logicalType": "date"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}


@pytest.mark.parametrize("in_record", [True, False])
@pytest.mark.parametrize(
    ("union", "value"),
    [
        (["null", "double", "long"], 2**62 + 1),
        (["null", "double", "long"], 0.5),
        (["float", "int"], 2**24 + 1),
        (["float", "long", "double"], 1e300),
        (["float", "long"], math.inf),
        ([DAY, MICROS], datetime(2024, 5, 6, 7, 8, 9, 10, UTC)),
        ([DAY, MICROS], date(2024, 5, 6)),
        ([{"type": "string", "logicalType": "uuid"}, "null"], UUID(int=5)),
    ],
)
def test_a_value_goes_into_the_branch_that_keeps_it(union: list[Any], value: Any, in_record: bool) -> None:
    schema = reading_with({"name": "v", "type": union}) if in_record else AvroSchema(union)
    data = AvroWriter(schema.info).encode({"device": 1, "v": value} if in_record else value)
    found = event_of(schema, data)["v"] if in_record else event_of(schema, data)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("in_record", [True, False])
@pytest.mark.parametrize(
    ("union", "value", "data"),
    [(["double", "long"], ("double", 3.0), b"\0" + struct.pack("<d", 3)),
     (["double", "float"], ("float", 0.1), b"\2" + struct.pack("<f", 0.1))],
)  # fmt: skip
def test_a_value_may_name_its_branch(union: Any, value: Any, data: bytes, in_record: bool) -> None:
    schema = reading_with({"name": "v", "type": union}) if in_record else AvroSchema(union)
    found = AvroWriter(schema.info).encode({"device": 1, "v": value} if in_record else value)
    assert found == b"\x02" * in_record + data


@pytest.mark.parametrize(
    ("type", "value"),
    [("float", 1e39), ("float", -(10**39)), (["null", "float"], 1e300), ({"type": "float"}, 1e300),
     ({"type": "string", "logicalType": "uuid"}, "no UUID")],
)  # fmt: skip
def test_a_value_that_would_not_be_read_as_it_was_is_refused(type: Any, value: Any) -> None:
    with pytest.raises(EncodeError, match=rf"R\w*\.v is {re.escape(repr(value))}, not of the type"):
        AvroWriter(reading_with({"name": "v", "type": type}).info).encode({"device": 1, "v": value})
    with pytest.raises(EncodeError, match=rf": the value is {re.escape(repr(value))}, not of the type"):
        AvroWriter(AvroSchema(json.dumps(type)).info).encode(value)


def fields_of(more: dict[str, tuple[Any, Any]]) -> Any:
    added = [{"name": name, "type": type, "default": default} for name, (type, default) in more.items()]
    return [{"name": "a", "type": "int"}, *added]


DEFAULTS: dict[str, tuple[Any, Any]] = {
    "bytes": ("bytes", "\u00ff"),
    "fixed": ({"type": "fixed", "name": "F", "size": 2}, "\u00ff\u0001"),
    "named": ("F", "\u0000\u0080"),
    "union": ([{"type": "array", "items": "bytes"}, "null"], ["\u00fe"]),
    "flag": (["int", "boolean"], True),
    "time": ({"type": "long", "logicalType": "timestamp-millis"}, 5),
    "decimal": ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, "\u0001"),
    "double": ("double", 1),
    "map": ({"type": "map", "values": "F"}, {"key": "ab"}),
    "record": (
        {
            "type": "record",
            "name": "Inner",
            "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "F", "default": "\u00ff\u00ff"}],
        },
        {"x": 5},
    ),
    "wrong": ({"type": "int", "logicalType": "date"}, 2**31 - 1),
}


def test_defaults_are_values() -> None:
    written = AvroSchema({"type": "record", "name": "R", "fields": fields_of({})})
    read = AvroSchema({"type": "record", "name": "R", "fields": fields_of(DEFAULTS)})
    reader = AvroReader(written.info, read.info)
    expected = {
        "a": 1,
        "bytes": b"\xff",
        "fixed": b"\xff\x01",
        "named": b"\x00\x80",
        "union": [b"\xfe"],
        "flag": True,
        "time": datetime(1970, 1, 1, 0, 0, 0, 5000, UTC),
        "decimal": Decimal("0.01"),
        "double": 1.0,
        "map": {"key": b"ab"},
        "record": {"x": 5, "y": b"\xff\xff"},
        "wrong": 2**31 - 1,
    }
    found = reader.decode(b"\x02", padded=False)
    assert found == expected
    assert type(found["double"]) is float
    # Each event has values of its own.
    found["union"].append(b"")
    found["map"].clear()
    found["record"]["x"] = 6
    assert reader.decode(b"\x02", padded=False) == expected
    without = {name: found for name, found in DEFAULTS.items() if name != "wrong"}
    both = AvroSchema({"type": "record", "name": "R", "fields": fields_of(without)}).info
    assert AvroReader(both, None).decode(AvroWriter(both).encode({"a": 1}), padded=False) == {
        name: value for name, value in expected.items() if name != "wrong"
    }


def resolved(written: Any, read: Any, value: Any) -> Any:
    """Return a value as it is read with another schema than it was written with."""
    writer, reader = (AvroSchema(json.dumps(each)).info for each in (written, read))
    return AvroReader(writer, reader).decode(AvroWriter(writer).encode(value), padded=False)


@pytest.mark.parametrize(
    ("written", "read", "value"),
    [
        ("long", ["double", "long"], 2**62 + 1),
        (["null", "long"], ["null", "double", "long"], 2**62 + 1),
        ("string", ["bytes", "string"], "text"),
        ("bytes", ["string", "bytes"], b"\xff"),
        (["string", "bytes"], ["bytes", "string", "null"], b"\xff"),
        (["string", "bytes"], ["bytes", "string", "null"], "text"),
    ],
)
@pytest.mark.parametrize("wrap", ["bare", "array", "map", "field", "renamed"])
def test_a_union_gives_what_it_has_a_branch_for_unchanged(
    written: Any, read: Any, value: Any, wrap: str
) -> None:
    def of(type: Any, *, new: bool = False) -> Any:
        if wrap in ("array", "map"):
            return {"type": wrap, "items" if wrap == "array" else "values": type}
        renamed = {"aliases": ["v"]} if new and wrap == "renamed" else {}
        field = {"name": "w" if renamed else "v", "type": type, **renamed}
        again = {"name": "next", "type": ["null", "Node"], "default": None}
        return type if wrap == "bare" else {"type": "record", "name": "Node", "fields": [field, again]}

    wraps: dict[str, Any] = {"bare": value, "array": [value], "map": {"k": value}}
    given = wraps.get(wrap, {"v": value, "next": {"v": value, "next": None}})
    new = "w" if wrap == "renamed" else "v"
    expected = wraps.get(wrap, {new: value, "next": {new: value, "next": None}})
    found = resolved(of(written), of(read, new=True), given)
    assert found == expected
    assert repr(found) == repr(expected)


def test_a_type_that_no_branch_has_is_converted() -> None:
    assert resolved("int", ["null", "double"], 5) == 5.0
    assert resolved(["null", "string"], ["bytes", "null"], "a") == b"a"
    whole, double = [
        {"type": "record", "name": "R", "fields": [{"name": "v", "type": each}]} for each in ("int", "double")
    ]
    assert repr(resolved(whole, double, {"v": 5})) == "{'v': 5.0}"


@pytest.mark.parametrize("in_record", [True, False])
def test_types_of_two_namespaces_are_not_taken_for_each_other(in_record: bool) -> None:
    def union(*more: Any) -> Any:
        one = [{"name": "x", "type": "int"}, {"name": "note", "type": "string", "default": "new"}, *more]
        branches = [
            {"type": "record", "name": "a.Part", "fields": one},
            {"type": "record", "name": "b.Part", "fields": [one[0], {"name": "y", "type": "int"}, *more]},
        ]
        fields = [{"name": "part", "type": branches}, {"name": "also", "type": ["null", "b.Part"]}]
        return {"type": "record", "name": "Whole", "fields": fields} if in_record else branches

    part = {"x": 1, "y": 2}
    given = {"part": ("b.Part", part), "also": part} if in_record else ("b.Part", part)
    newer = part | {"z": 3}
    read = union({"name": "z", "type": "int", "default": 3})
    assert resolved(union(), read, given) == ({"part": newer, "also": newer} if in_record else newer)


def test_what_fastavro_parsed_is_not_registered_with_its_marks() -> None:
    schema = json.loads(READING.info.data)
    assert AvroSchema(fastavro.parse_schema(schema)).info.type == "Reading"
    assert b"__" not in AvroSchema(fastavro.parse_schema(schema)).info.data
    assert b"__" not in AvroSchema([fastavro.parse_schema(schema), "null"]).info.data


@pytest.mark.parametrize(
    "schema",
    ["", "{", "no-such-type", '{"type":"int","doc":"\ud800"}', {"type": "record"}, {"type": "nonsense"}, {},
     object(), 5],
)  # fmt: skip
def test_what_is_not_an_avro_schema(schema: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="not an Avro schema"):
        AvroSchema(schema)


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"{}", b"[" * 100_000, b'{"type":"record","name":"R","fields":5}']
)
def test_a_schema_of_the_registry_that_is_not_avro(data: bytes) -> None:
    broken = EncodingInfo(
        SchemaInfo("R", SerializationFormat.AVRO, data), VersionInfo("R", 0, 0, "Avro"), CodecType("")
    )
    with pytest.raises(DecodeError):
        serializer_of(None, encodings={1: broken}).deserialize(header_of(1) + b"\0")


def test_names_of_avro_schemas() -> None:
    assert AvroSchema('"string"').info.type == "string"
    assert AvroSchema({"type": "array", "items": "int"}).info.type == "array"
    record = {"type": "record", "name": "R", "namespace": "a.b", "fields": []}
    assert AvroSchema(record).info.type == "a.b.R"


# --- JSON ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        # Written by Jackson 2.12.
        ({"b": 1, "a": [True, None]}, b'{"b":1,"a":[true,null]}'),
        ("é\U0001f600", b'"\xc3\xa9\\uD83D\\uDE00"'),
        ("\x00\x1f\n\\u001f", b'"\\u0000\\u001F\\n\\\\u001f"'),
        ("\ud83d", b'"\\uD83D"'),
        ("\x7f\u2028/", b'"\x7f\xe2\x80\xa8/"'),
    ],
)
def test_json_is_written_as_jackson_writes_it(value: Any, text: bytes) -> None:
    assert JsonWriter().encode(value) == text
    assert JsonReader().decode(text, padded=False) == value
    assert JsonReader().decode(text + bytes(7), padded=True) == value


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON_VALUES)
def test_json_returns_what_it_was_given(value: Any) -> None:
    assert JsonReader().decode(JsonWriter().encode(value), padded=False) == value


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"1 2", b"{}\0", b"[" * 100_000, b"9" * 10_000])
def test_damaged_json(data: bytes) -> None:
    with pytest.raises(DecodeError, match="not JSON"):
        JsonReader().decode(data, padded=False)


def test_values_that_are_not_json() -> None:
    circle: list[Any] = []
    circle.append(circle)
    for value in (float("nan"), object(), {1, 2}, circle, b"x"):
        with pytest.raises(EncodeError, match="JSON"):
            JsonWriter().encode(value)


@pytest.mark.parametrize("schema", ["", "[]", "5", '{"title":"\ud800"}', object(), {"a": object()}])
def test_what_is_not_a_json_schema(schema: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="thing"):
        JsonSchema("thing", schema)


@pytest.mark.parametrize("type", ["", 5, None])
def test_names_of_json_schemas(type: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="type of a JSON schema"):
        JsonSchema(type, {})


# --- Protobuf -----------------------------------------------------------------------------------------


def test_the_files_of_a_message() -> None:
    files = descriptor_pb2.FileDescriptorSet.FromString(ProtobufSchema(timestamp_pb2.Timestamp).info.data)
    assert [each.name for each in files.file] == ["google/protobuf/timestamp.proto"]


def test_imported_files_come_first_or_with_protobuf() -> None:
    one = descriptor_pb2.FileDescriptorProto(name="one.proto", package="p", syntax="proto3")
    one.dependency.append("google/protobuf/timestamp.proto")
    one.dependency.append("two.proto")
    message = one.message_type.add(name="One")
    message.field.add(name="at", number=1, type=11, label=1, type_name=".google.protobuf.Timestamp")
    message.field.add(name="two", number=2, type=11, label=1, type_name=".p.Two")
    two = descriptor_pb2.FileDescriptorProto(name="two.proto", package="p", syntax="proto3")
    two.message_type.add(name="Two")
    files = descriptor_pb2.FileDescriptorSet(file=[one, two]).SerializeToString()
    made: Any = message_class(ProtobufSchema.from_files("p.One", files).info)()
    made.at.seconds = 5
    event = serializer_of(None, encodings={0: encoding_of(ProtobufSchema.from_files("p.One", files))})
    assert event.deserialize(header_of(0) + made.SerializeToString()).at.seconds == 5
    # The schema of a class whose file imports others has these files.
    again = ProtobufSchema(type(made)).info.data
    assert {each.name for each in descriptor_pb2.FileDescriptorSet.FromString(again).file} == {
        "google/protobuf/timestamp.proto",
        "two.proto",
        "one.proto",
    }


@pytest.mark.parametrize("name", ["any", "api", "descriptor", "source_context", "type"])
def test_files_that_protobuf_brings(name: str) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="one.proto", syntax="proto3")
    file.dependency.append(f"google/protobuf/{name}.proto")
    file.message_type.add(name="One")
    assert ProtobufSchema.from_files("One", file_set(file)).info.type == "One"


def file_set(*files: descriptor_pb2.FileDescriptorProto) -> bytes:
    return descriptor_pb2.FileDescriptorSet(file=files).SerializeToString()


@pytest.mark.parametrize(
    ("type", "files"),
    [
        ("p.One", b"\xff"),
        ("p.One", b""),
        ("p.One", file_set(descriptor_pb2.FileDescriptorProto(name="a", package="p"))),
        ("p.One", file_set(descriptor_pb2.FileDescriptorProto(name="a", dependency=["a"]))),
        ("p.One", file_set(descriptor_pb2.FileDescriptorProto(name="a", dependency=["b"]))),
        (
            "p.One",
            file_set(descriptor_pb2.FileDescriptorProto(name="a", dependency=["google/protobuf/x.proto"])),
        ),
        (
            "p.One",
            file_set(
                descriptor_pb2.FileDescriptorProto(name="a", package="p"),
                descriptor_pb2.FileDescriptorProto(name="a", package="p", syntax="proto3"),
            ),
        ),
    ],
)
def test_what_is_not_a_protobuf_schema(type: str, files: bytes) -> None:
    with pytest.raises(InvalidArgumentError, match=r"p\.One"):
        ProtobufSchema.from_files(type, files)


@pytest.mark.parametrize("files", [descriptor_pb2.FileDescriptorSet(), "text", None, 5])
def test_what_are_not_the_bytes_of_files(files: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="bytes of a FileDescriptorSet"):
        ProtobufSchema.from_files("T", files)


@pytest.mark.parametrize("message", [int, object(), duration_pb2.Duration(), None])
def test_what_is_not_a_message_class(message: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="message class"):
        ProtobufSchema(message)


@given(st.binary(max_size=60), st.integers(0, 20))
def test_zeros_after_a_protobuf_message(text: bytes, zeros: int) -> None:
    message = struct_pb2.Value(string_value=text.decode("latin-1"))
    data = message.SerializeToString()
    assert without_padding(data + bytes(zeros)) == data
    event = header_of(0) + compress(GZIP, data + bytes(zeros))
    serializer = serializer_of(ProtobufSchema(struct_pb2.Value), codec=GZIP)
    assert serializer.deserialize(event) == message


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused_as_protobuf(data: bytes) -> None:
    reader = ProtobufReader(ProtobufSchema(struct_pb2.Value).info, None)
    for padded in (False, True):
        try:
            reader.decode(data + bytes(3) * padded, padded=padded)
        except DecodeError:
            pass


def test_endless_nesting_of_protobuf_is_refused() -> None:
    data = b""
    for _ in range(2000):
        size = len(data)
        data = b"\x32" + _varint(size + 1 + len(_varint(size))) + b"\x0a" + _varint(size) + data
    with pytest.raises(DecodeError, match="not a Protobuf message"):
        ProtobufReader(ProtobufSchema(struct_pb2.Value).info, None).decode(data, padded=False)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


@pytest.mark.parametrize("value", [timestamp_pb2.Timestamp(), {}, None, b""])
def test_values_that_are_not_the_message(value: Any) -> None:
    with pytest.raises(EncodeError, match=r"google\.protobuf\.Duration"):
        serializer_of(DURATION).serialize(value)


# --- which schema reads what --------------------------------------------------------------------------


NEWER = AvroSchema({"type": "record", "name": "Reading", "fields": [{"name": "new", "type": "int"}]})
TIMESTAMP = ProtobufSchema(timestamp_pb2.Timestamp)


@pytest.mark.parametrize(
    ("reader", "written", "data", "words"),
    [
        (READING, OBJECT, b"{}", "format Json, but it is read with a schema of Avro"),
        (DURATION, TIMESTAMP, b"", r"is a Protobuf message google\.protobuf\.Timestamp"),
        (NEWER, READING, b"\0\0", "Reading"),
    ],
)
def test_events_that_a_schema_cannot_read(
    reader: EventSchema, written: EventSchema, data: bytes, words: str
) -> None:
    serializer = serializer_of(None, reader=reader, encodings={0: encoding_of(written)})
    with pytest.raises(DecodeError, match=words):
        serializer.deserialize(header_of(0) + data)


def test_formats_without_a_reader() -> None:
    info = SchemaInfo("t", SerializationFormat.CUSTOM, b"", custom_format="mine")
    custom = EncodingInfo(info, VersionInfo("t", 0, 0, "mine"), CodecType(""))
    with pytest.raises(DecodeError, match="no reader"):
        serializer_of(None, encodings={0: custom}).deserialize(header_of(0) + b"x")


def test_a_bomb_in_an_event() -> None:
    serializer = serializer_of(OBJECT, codec=GZIP, limit=1000)
    event = header_of(0) + gzip.compress(b'"' + b"x" * 2000 + b'"')
    with pytest.raises(DecodeError, match="larger than 1000 bytes"):
        serializer.deserialize(event)


@given(st.binary(max_size=40), st.sampled_from([0, 1, 2, 3, 4, 5]))
def test_any_event_is_read_or_refused(data: bytes, id: int) -> None:
    schemas: list[EventSchema] = [READING, OBJECT, DURATION]
    encodings = {
        number: encoding_of(schema, codec, number)
        for number, (schema, codec) in enumerate((s, c) for s in schemas for c in (GZIP, SNAPPY))
    }
    try:
        serializer_of(None, encodings=encodings).deserialize(header_of(id) + data)
    except DecodeError:
        pass


# --- arguments ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"schema": None}, ArgumentTypeError, "needs a schema"),
        ({"schema": READING.info}, ArgumentTypeError, "must be an AvroSchema"),
        ({"codec": "lz4"}, InvalidArgumentError, "not one of none, gzip, snappy"),
        ({"codec": "gzip", "header": False}, InvalidArgumentError, "cannot have a codec"),
        ({"schema": READING, "header": False}, InvalidArgumentError, "Avro need a header"),
        ({"header": 1}, InvalidArgumentError, "header"),
        ({"on_unknown": "wait"}, InvalidArgumentError, "on_unknown"),
        ({"max_decoded_bytes": 0}, InvalidArgumentError, "max_decoded_bytes"),
        ({"group": ""}, InvalidArgumentError, "group"),
    ],
)
def test_arguments_of_a_serializer(arguments: Any, kind: type[PravegaError], words: str) -> None:
    # Nothing listens there: arguments are checked before anything is sent.
    with SchemaRegistry("http://127.0.0.1:1") as registry:
        with pytest.raises(kind, match=words):
            registry.serializer(**{"group": "group", "schema": OBJECT} | arguments)


def test_compatibilities() -> None:
    version = VersionInfo("t", 1, 2, "Avro")
    given_: Compatibility
    for given_ in (
        *(Compatibility(each) for each in CompatibilityPolicy if each is not CompatibilityPolicy.ADVANCED),
        Compatibility(CompatibilityPolicy.ADVANCED, backward="last"),
        Compatibility(CompatibilityPolicy.ADVANCED, backward="all", forward=version),
        Compatibility(CompatibilityPolicy.ADVANCED, forward="all"),
    ):
        assert Compatibility.from_json(json.loads(json.dumps(given_.to_json()))) == given_
    wrongs: list[dict[str, Any]] = [
        {"policy": CompatibilityPolicy.ADVANCED},
        {"policy": CompatibilityPolicy.FULL, "backward": "last"},
        {"policy": CompatibilityPolicy.ADVANCED, "backward": "first"},
        {"policy": "Sideways"},
    ]
    for wrong in wrongs:
        with pytest.raises(InvalidArgumentError):
            Compatibility(**wrong)


VALUES: list[Any] = [
    GroupProperties(SerializationFormat.JSON, CompatibilityPolicy.FULL, False, {"a": "b"}),
    GroupProperties(SerializationFormat.CUSTOM, custom_format="mine"),
    SchemaInfo("t", SerializationFormat.AVRO, b"\0\xff", {"a": "b"}),
    VersionInfo("t", 1, 2, "Avro"),
    CodecType("c", {"a": "b"}),
]


@pytest.mark.parametrize("value", VALUES)
def test_values_in_json(value: Any) -> None:
    assert type(value).from_json(json.loads(json.dumps(value.to_json()))) == value


@given(JSON_VALUES)
def test_any_json_is_a_value_or_refused(value: Any) -> None:
    for kind in (GroupProperties, SchemaInfo, VersionInfo, CodecType, EncodingInfo, RegisteredSchema,
                 HistoryEntry, Compatibility):  # fmt: skip
        with pytest.raises(SchemaRegistryReplyError):
            kind.from_json(value)


def test_zlib_has_the_level_that_java_uses() -> None:
    assert compress(GZIP, b"x" * 500)[10:-8] == zlib.compress(b"x" * 500, 6)[2:-4]
