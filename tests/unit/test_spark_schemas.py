"""Which schemas become columns, what they become, and what is refused: without Spark and a registry."""

from __future__ import annotations

import json
import math
import pickle
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, cast

import pyarrow as pa
import pytest
from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.message import Message

pytest.importorskip("pyspark")

from pravega_wire.errors import (
    DecodeError,
    EncodeError,
    InvalidArgumentError,
    MissingExtraError,
    SchemaNotFoundError,
    SchemaRegistryUnreachableError,
)
from pravega_wire.schemas import (
    AvroSchema,
    CodecType,
    EncodingInfo,
    JsonSchema,
    ProtobufSchema,
    SchemaInfo,
    VersionInfo,
    message_class,
)
from pravega_wire.schemas.debezium import Change, ChangeKind, DebeziumSerializer
from pravega_wire.serializers import FunctionSerializer, JavaSerializer, JsonSerializer
from spark_adapter import versions
from spark_adapter.columns import worker
from spark_adapter.columns.worker import (
    ChangePlan,
    Connection,
    Decode,
    Encode,
    GroupPlan,
    SchemaPlan,
    SerializerPlan,
)
from spark_adapter.schemas import ChangeRows, RegistryGroup, TypedSerializer, from_pravega, to_pravega


def record(*fields: Any, name: str = "R") -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": f"f{number}", "type": each} for number, each in enumerate(fields)],
    }


def avro(schema: Any) -> SchemaInfo:
    return AvroSchema(json.dumps(schema)).info


def column_of(info: SchemaInfo) -> pa.DataType:
    return SchemaPlan(info).open().shape.arrow


def one(info: SchemaInfo, event: bytes) -> Any:
    return Decode(SchemaPlan(info), "event", False)(pa.array([event], pa.binary())).to_pylist()[0]


# --- Avro -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (record("int", ["null", "R"]), "contains itself"),
        (record({"type": "array", "items": record("R", name="Other")}), "contains itself"),
        (record(["int", "string"]), r"field f0 of R is a union of several types \(int, string\)"),
        (record(["null", "int", record("int", name="P")]), r"several types \(int, P\)"),
        (record("null"), "the type null alone"),
        (record(), "the record R, which has no fields"),
        (record({"type": "bytes", "logicalType": "decimal", "precision": 39, "scale": 2}), "precision 39"),
    ],
)
def test_avro_that_no_column_holds(schema: Any, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        column_of(avro(schema))


def test_avro_columns() -> None:
    fixed = {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}
    schema = record("U", {"type": "int", "logicalType": "unheard-of"}, ["null", "int", "long"])
    schema["fields"].insert(0, {"name": "first", "type": fixed})
    found = column_of(avro(schema))
    assert found == pa.struct(
        [("first", pa.string()), ("f0", pa.string()), ("f1", pa.int32()), ("f2", pa.int64())]
    )
    # A type that is used twice is not recursive.
    part = record("int", name="Part")
    assert column_of(avro(record(part, "Part"))).num_fields == 2
    assert column_of(avro("string")) == pa.string()
    assert one(avro(["null", "string"]), b"\x02\x02a") == "a"


def test_an_old_event_gets_the_defaults_of_the_columns_schema() -> None:
    old = record("int")
    new = record({"type": "long", "logicalType": "timestamp-millis"}, "string")
    new["fields"][1]["default"] = "hall"
    new["fields"].append({"name": "raw", "type": "bytes", "default": "ÿ"})
    decode = group_of(avro(new), {0: avro(old)})
    [found] = decode(pa.array([b"\x01\0\0\0\0" + b"\x02"], pa.binary())).to_pylist()
    assert found == {"f0": datetime(1970, 1, 1, 0, 0, 0, 1000, UTC), "f1": "hall", "raw": b"\xff"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"type": "long", "logicalType": "timestamp-millis"},
         {"type": "long", "logicalType": "timestamp-micros"}),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
         {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3}),
        ({"type": "int", "logicalType": "date"}, {"type": "long", "logicalType": "timestamp-millis"}),
        ({"type": "int", "logicalType": "time-millis"}, {"type": "long", "logicalType": "time-micros"}),
        ({"type": "long", "logicalType": "time-micros"}, {"type": "long", "logicalType": "timestamp-micros"}),
        ({"type": "long", "logicalType": "timestamp-nanos"},
         {"type": "long", "logicalType": "timestamp-micros"}),
    ],
)  # fmt: skip
def test_other_units_are_refused_not_misread(old: Any, new: Any) -> None:
    event = pa.array([b"\x01\0\0\0\0\x02\x02"], pa.binary())
    later = ({"name": "T", "type": "record", "fields": [{"name": "f0", "type": "int"}]}, "T")
    for wrap in (lambda kind: kind, lambda kind: ["null", kind], lambda kind: record(kind, name="In")):
        decode = group_of(avro(record(wrap(new))), {0: avro(record(wrap(old), *later))})
        with pytest.raises(DecodeError, match=r"field f0 .*was written as .*, but the column's schema has"):
            decode(event)


def test_a_unit_on_one_side_is_that_of_the_column() -> None:
    millis = {"type": "long", "logicalType": "timestamp-millis"}
    event = pa.array([b"\x01\0\0\0\0\x02"], pa.binary())
    assert group_of(avro(record("long")), {0: avro(record(millis))})(event).to_pylist() == [{"f0": 1}]
    [found] = group_of(avro(record(millis)), {0: avro(record("long"))})(event).to_pylist()
    assert found == {"f0": datetime(1970, 1, 1, 0, 0, 0, 1000, UTC)}
    # Of a union, a branch that cannot be read as the column's type has a unit of its own.
    date = {"type": "int", "logicalType": "date"}
    event = pa.array([b"\x01\0\0\0\0\x00\x02"], pa.binary())
    assert group_of(avro(record(date)), {0: avro(record([date, millis]))})(event).to_pylist() == [
        {"f0": datetime(1970, 1, 2).date()}
    ]


# --- JSON -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"$ref": "#"}, "contains itself"),
        ({"type": "object", "properties": {"a": {"$ref": "#"}}}, "contains itself"),
        ({"type": "array", "items": {"$ref": "#/$defs/none"}}, "which the schema lacks"),
        ({"$ref": "http://example.com/other"}, "another document"),
    ],
)
def test_json_that_no_column_holds(schema: Any, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        column_of(JsonSchema("thing", schema).info)


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": ["integer", "null"]}, pa.int64()),
        ({"anyOf": [{"type": "number"}, {"type": "null"}]}, pa.float64()),
        ({"oneOf": [{"type": "number"}, {"type": "string"}]}, pa.string()),
        ({"type": "string", "contentEncoding": "base64"}, pa.binary()),
        ({"type": "object"}, pa.string()),
        ({"type": "array"}, pa.list_(pa.field("element", pa.string()))),
        ({"enum": ["a", "b"]}, pa.string()),
        ({"type": "no such type"}, pa.string()),
    ],
)
def test_json_columns(schema: Any, kind: pa.DataType) -> None:
    assert column_of(JsonSchema("thing", schema).info) == kind


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (b'{"id":"1"}', 'field id: it is "1", not a whole number'),
        (b'{"id":true}', "not a whole number"),
        (b'{"id":1,"tags":["a",1]}', r"field tags\[1\]: it is 1, not a text"),
        (b'{"id":99999999999999999999}', "too large"),
        (b'{"id":1,"at":"2024-01-31T12:00:00"}', "field at: it has no time zone"),
        (b'{"id":1,"tags":["\\ud800"]}', "surrogates"),
        (b"[]", "it is an array, not an object"),
        (b"[" * 100_000, "not JSON|recursion"),
        (b"\xff", "not JSON"),
        (b"", "not JSON"),
    ],
)
def test_json_of_other_types(event: bytes, text: str) -> None:
    schema = JsonSchema(
        "thing",
        {
            "type": "object",
            "properties": {
                "id": {"type": "integer"},
                "at": {"type": "string", "format": "date-time"},
                "tags": {"type": "array", "items": {"type": "string"}},
            },
        },
    )
    with pytest.raises(DecodeError, match=text):
        one(schema.info, event)
    good = b'{"id":2.0,"at":"2024-01-31T12:00:00+01:00","other":1}'
    decode = Decode(SchemaPlan(schema.info), "event", True)
    [missing, found] = decode(pa.array([event, good], pa.binary())).to_pylist()
    assert missing is None
    assert found == {"id": 2, "at": datetime(2024, 1, 31, 11, tzinfo=UTC), "tags": None}


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2024-01-31t12:00:00.5z", datetime(2024, 1, 31, 12, 0, 0, 500_000, tzinfo=UTC)),
        ("2016-12-31T23:59:60Z", datetime(2017, 1, 1, tzinfo=UTC)),
        ("2017-01-01T05:29:60.25+05:30", datetime(2017, 1, 1, 0, 0, 0, 250_000, tzinfo=UTC)),
    ],
)
def test_times_in_json_as_rfc_3339_has_them(text: str, moment: datetime) -> None:
    schema = JsonSchema(
        "thing", {"type": "object", "properties": {"at": {"type": "string", "format": "date-time"}}}
    )
    assert one(schema.info, b'{"at":"%s"}' % text.encode()) == {"at": moment}


@pytest.mark.parametrize(
    ("form", "value"),
    [
        ("date", pa.scalar(2_932_897, pa.int32()).cast(pa.date32())),
        ("date-time", pa.scalar(-(2**63), pa.timestamp("us", tz="UTC"))),
    ],
)
def test_times_that_json_cannot_have_are_named(form: str, value: pa.Scalar) -> None:
    schema = JsonSchema("thing", {"type": "object", "properties": {"at": {"type": "string", "format": form}}})
    rows = pa.StructArray.from_arrays([pa.array([value], value.type)], ["at"])
    with pytest.raises(EncodeError, match=r"row 0 .*field at: it is outside the years 1 to 9999"):
        Encode(SchemaPlan(schema.info), "thing")(rows)


def test_events_that_are_too_long_together_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond 2 GiB, Arrow makes an array in chunks, which Spark does not take."""
    encode = Encode(SchemaPlan(JsonSchema("thing", {"type": "string"}).info), "v")
    rows = pa.array(["a", "b"])
    assert encode(rows).to_pylist() == [b'"a"', b'"b"']
    array = pa.array
    monkeypatch.setattr(pa, "array", lambda *args: pa.chunked_array([array(*args)]))
    with pytest.raises(EncodeError, match=r"column v, schema thing: .* 2 GiB: lower spark\.sql"):
        encode(rows)


def test_half_of_a_surrogate_pair_stays_an_escape_in_json_as_text() -> None:
    schema = JsonSchema("thing", {"type": "object", "properties": {"any": {}}})
    plan = SchemaPlan(schema.info)
    event = b'{"any":{"\\uD800":["\\uDFFF","\\uD83D\\uDE00"]}}'
    column = Decode(plan, "event", False)(pa.array([event], pa.binary()))
    assert column.to_pylist() == [{"any": '{"\\ud800":["\\udfff","\U0001f600"]}'}]
    assert Encode(plan, "thing")(column).to_pylist() == [event]
    change = b'{"op":"c","after":{"id":1},"source":{"file":"\\ud800"}}'
    decode = Decode(ChangePlan(DebeziumSerializer({"id": "int64"}), ()), "event", False)
    [found] = decode(pa.array([change], pa.binary())).to_pylist()
    assert found["source"] == '{"file":"\\ud800"}'


# --- Protobuf -------------------------------------------------------------------------------------


def proto() -> ProtobufSchema:
    needed = [timestamp_pb2, duration_pb2, struct_pb2, wrappers_pb2]
    file = descriptor_pb2.FileDescriptorProto(name="all.proto", package="p", syntax="proto3")
    file.dependency.extend(each.DESCRIPTOR.name for each in needed)
    file.enum_type.add(name="Kind").value.add(name="OFF", number=0)
    file.enum_type[0].value.add(name="ON", number=1)
    part = file.message_type.add(name="Part")
    part.field.add(name="x", number=1, type=5, label=1)
    message = file.message_type.add(name="All")
    entry = message.nested_type.add(name="PartsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=5, label=1)
    entry.field.add(name="value", number=2, type=11, type_name=".p.Part", label=1)
    message.field.add(name="parts", number=1, type=11, type_name=".p.All.PartsEntry", label=3)
    message.field.add(name="kinds", number=2, type=14, type_name=".p.Kind", label=3)
    message.field.add(name="big", number=3, type=4, label=1)
    message.field.add(name="small", number=4, type=13, label=1)
    message.field.add(name="part", number=5, type=11, type_name=".p.Part", label=1)
    for number, name in enumerate(("Timestamp", "Duration", "Struct", "Int32Value"), 6):
        kind = f".google.protobuf.{name}"
        message.field.add(name=name.lower(), number=number, type=11, type_name=kind, label=1)
    message.oneof_decl.add(name="choice")
    message.field.add(name="text", number=10, type=9, label=1, oneof_index=0)
    message.field.add(name="other", number=11, type=11, type_name=".p.Part", label=1, oneof_index=0)
    return ProtobufSchema.from_files(
        "p.All", descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    )


def test_protobuf_columns() -> None:
    info = proto().info
    made: Any = message_class(info)
    message = made(kinds=[1, 0, 7], big=2**64 - 1, small=2**32 - 1)
    message.parts[-5].x = 3
    message.timestamp.FromJsonString("1969-12-31T23:59:59.999999Z")
    message.duration.FromJsonString("-1.500001s")
    message.struct.update({"a": [1.0, None]})
    message.int32value.value = 0
    event = message.SerializeToString()
    found = one(info, event)
    assert found == {
        "parts": [(-5, {"x": 3})],
        "kinds": ["ON", "OFF", "7"],
        "big": Decimal(2**64 - 1),
        "small": 2**32 - 1,
        "part": None,
        "timestamp": datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
        "duration": found["duration"],
        "struct": '{"a":[1.0,null]}',
        "int32value": 0,
        "text": None,
        "other": None,
    }
    assert found["duration"].total_seconds() == -1.500001
    plan = SchemaPlan(info)
    column = Decode(plan, "event", False)(pa.array([event, b""], pa.binary()))
    back = Encode(plan, "v")(column).to_pylist()
    assert made.FromString(back[0]) == message
    assert made.FromString(back[1]) == made()
    empty = column.to_pylist()[1]
    assert empty["big"] == 0
    assert empty["int32value"] is None


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"small": -1}, "field small: "),
        ({"kinds": ["HALF"]}, r"field kinds\[0\]: it is 'HALF', not one of OFF, ON"),
        ({"kinds": [None]}, r"field kinds\[0\]: it is null"),
        ({"struct": "{"}, "field struct: it is not the JSON of a google.protobuf.Struct"),
        ({"struct": '{"a":NaN}'}, "field struct: it is not the JSON of a google.protobuf.Struct: NaN"),
        ({"struct": '{"a":[1e400]}'}, r"field struct: .*the number 1e400 is too large for a float"),
        ({"text": "", "other": {"x": 1}}, "field other: it is not null, and text is not either"),
        ({"text": "a", "other": {}}, "field other: it is not null, and text is not either"),
    ],
)
def test_values_that_are_no_message(change: dict[str, Any], text: str) -> None:
    plan = SchemaPlan(proto().info)
    kind = plan.open().shape.arrow
    with pytest.raises(EncodeError, match=rf"column v, schema p\.All: row 1 of the batch.*{text}"):
        Encode(plan, "v")(pa.array([{}, change], kind))


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (empty_pb2.Empty, "google.protobuf.Empty has no fields"),
        (descriptor_pb2.DescriptorProto, "contains itself"),
    ],
)
def test_protobuf_that_no_column_holds(message: type[Message], text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        column_of(ProtobufSchema(message).info)
    assert column_of(ProtobufSchema(any_pb2.Any).info).num_fields == 2


# --- what is written ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (
            pa.struct([("f0", pa.int64())]),
            "field f0: the column has the type int64, but the schema needs int32",
        ),
        (
            pa.struct([("f0", pa.int32()), ("g", pa.int32())]),
            "has the field g, which the schema does not have",
        ),
        (pa.struct([("g", pa.int32())]), "has the field g"),
        (pa.struct([]), "lacks the field f0, which has no default"),
        (pa.int32(), "the column has int32, but the schema has a record"),
    ],
)
def test_columns_of_other_types(kind: pa.DataType, text: str) -> None:
    encode = Encode(SchemaPlan(avro(record("int"))), "v")
    with pytest.raises(
        EncodeError, match=f"column v, schema R: the column does not fit the schema: .*{text}"
    ):
        encode(pa.array([], kind))
    assert encode(pa.array([{"f0": -1}, None], pa.struct([("f0", pa.int8())]))).to_pylist() == [b"\x01", None]


def test_values_that_do_not_fit() -> None:
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1}
    millis = {"type": "long", "logicalType": "timestamp-millis"}
    encode = Encode(SchemaPlan(avro(record(decimal, millis))), "v")
    kind = pa.struct([("f0", pa.decimal128(38, 4)), ("f1", pa.timestamp("us", tz="Europe/Berlin"))])
    [event] = encode(pa.array([{"f0": Decimal("-12.8"), "f1": -2000}], kind)).to_pylist()
    assert event == b"\x02\x80\x03"
    for value, text in (
        ({"f0": Decimal("0.05"), "f1": 0}, "field f0: it has more than 1 digits after the point"),
        ({"f0": Decimal("100.0"), "f1": 0}, "field f0: it has more than 3 digits"),
        ({"f0": Decimal(1), "f1": 1}, "field f1: it has microseconds"),
        ({"f0": None, "f1": 0}, "field f0: it is null"),
    ):
        with pytest.raises(EncodeError, match=text):
            encode(pa.array([value], kind))
    texts = Encode(SchemaPlan(avro(record("string"))), "v")
    wrong = pa.StructArray.from_arrays([pa.array([b"a", b"\xff"]).view(pa.string())], ["f0"])
    with pytest.raises(EncodeError, match=r"column v.* row 1 of the batch .*: a string is not UTF-8"):
        texts(wrong)


def test_events_are_binary() -> None:
    decode = Decode(SchemaPlan(avro(record("int"))), "sensor", True)
    with pytest.raises(InvalidArgumentError, match=r"column sensor: events are binary, but .* type int32"):
        decode(pa.array([1], pa.int32()))
    assert decode(pa.array([b"\x02", None], pa.large_binary())).to_pylist() == [{"f0": 1}, None]


# --- groups of the registry -----------------------------------------------------------------------


def group_of(info: SchemaInfo, schemas: dict[int, SchemaInfo], *, permissive: bool = False) -> Decode:
    encodings = {
        id: EncodingInfo(schema, VersionInfo(schema.type, id, id, str(schema.format)), CodecType(""))
        for id, schema in schemas.items()
    }
    nowhere = Connection("http://127.0.0.1:1", None, None, None, None, 1.0)
    return Decode(GroupPlan("g", info, nowhere, encodings, b"", "", 100), "event", permissive)


def test_an_event_of_another_format_is_named() -> None:
    json_schema, avro_schema = JsonSchema("j", {}).info, avro(record("int"))
    decode = group_of(avro_schema, {0: json_schema, 1: avro_schema})
    with pytest.raises(
        DecodeError,
        match=r"group 'g'.*event 1 of the batch.*the format Json, but it is read",
    ):
        decode(pa.array([b"\x01\0\0\0\x01\x02", b"\x01\0\0\0\0{}"], pa.binary()))


def test_a_registry_that_is_gone_is_no_damaged_event() -> None:
    for permissive in (False, True):
        decode = group_of(avro(record("int")), {}, permissive=permissive)
        with pytest.raises(SchemaRegistryUnreachableError):
            decode(pa.array([b"\x01\0\0\0\x07\x02"], pa.binary()))


def test_a_process_asks_once_for_an_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    info = avro(record("int"))
    asked: list[int] = []

    class Registry:
        def encoding(self, group: str, id: int) -> EncodingInfo:
            asked.append(id)
            if id != 3:
                raise SchemaNotFoundError("no such encoding", group=group)
            return EncodingInfo(info, VersionInfo("R", 0, 0, "Avro"), CodecType(""))

    monkeypatch.setattr(worker, "_registry", lambda connection, process: Registry())
    first = group_of(info, {}, permissive=True)
    events = pa.array([b"\x01\0\0\0\x03\x02", b"\x01\0\0\0\x09\x02"] * 3, pa.binary())
    for decode in (first, pickle.loads(pickle.dumps(first))):  # as each task gets it
        assert decode(events).is_valid().to_pylist() == [True, False] * 3
    assert asked == [3, 9]


# --- serializers and changes ----------------------------------------------------------------------


@dataclass
class Point:
    x: float
    y: int


def test_values_of_a_serializer() -> None:
    kind = pa.struct([("x", pa.float64()), ("y", pa.int32())])
    event = pa.array([b""], pa.binary())

    def read(value: Any, arrow: pa.DataType) -> Any:
        serializer: FunctionSerializer[Any] = FunctionSerializer(bytes, lambda payload: value)
        return Decode(SerializerPlan(serializer, arrow), "event", False)(event).to_pylist()[0]

    for point in (Point(1, 2), (1, 2), {"x": 1, "y": 2, "z": 3}):
        assert read(point, kind) == {"x": 1.0, "y": 2}
    assert read(date(2024, 1, 31), pa.date32()) == date(2024, 1, 31)
    assert read({"a"}, pa.list_(pa.string())) == ["a"]
    for value, arrow, text in (
        (1.5, pa.int64(), "it is a float, not a whole number"),
        (1e300, pa.float32(), "too large for a float of 32 bits"),
        (datetime(2024, 1, 31, 23, 59), pa.date32(), "it is a datetime, not a date"),
        (True, pa.int32(), "it is a bool"),
        (2**31, pa.int32(), "too large"),
        ("1", pa.int32(), "it is a str"),
        (1, pa.string(), "it is a int, not a text"),
        ((1, 2, 3), kind, "it has 3 parts"),
        (7, kind, "which has no x"),
        (datetime(2024, 1, 31), pa.timestamp("us", tz="UTC"), "without a time zone"),
        (Decimal("1.25"), pa.decimal128(4, 1), "data loss"),
    ):
        with pytest.raises(DecodeError, match=text):
            read(value, arrow)


def test_errors_of_a_serializer_name_the_event() -> None:
    def fail(value: Any) -> Any:
        raise KeyError("oops")

    plan = SerializerPlan(FunctionSerializer(fail, fail), pa.string())
    with pytest.raises(DecodeError, match=r"column event, FunctionSerializer: event 1 .*KeyError: 'oops'"):
        Decode(plan, "event", False)(pa.array([None, b""], pa.binary()))
    with pytest.raises(EncodeError, match=r"column v, FunctionSerializer: row 1 .*KeyError: 'oops'"):
        Encode(plan, "v")(pa.array([None, "a"]))
    wrong: FunctionSerializer[Any] = FunctionSerializer(str, str)  # type: ignore[arg-type]
    with pytest.raises(EncodeError, match="made a str, not bytes"):
        Encode(SerializerPlan(wrong, pa.string()), "v")(pa.array(["a"]))
    java = SerializerPlan(JavaSerializer(), pa.int64())
    with pytest.raises(DecodeError, match=r"event 0 .*java\.util\.Date"):
        Decode(java, "event", False)(pa.array([b"\xac\xed\0\x05sr\0\x0ejava.util.Date"], pa.binary()))


def test_changes_become_rows_and_changes() -> None:
    columns = {
        "id": "int64", "born": "date", "sum": "decimal(2)", "t": "time_micros", "z": "zoned_timestamp",
        "l": "timestamp_millis", "u": "uuid", "raw": "bytes",
    }  # fmt: skip
    serializer = DebeziumSerializer(columns)
    plan = ChangePlan(serializer, ("id",))
    row = {"id": 1, "born": date(1900, 1, 1), "sum": Decimal("-0.50")}
    more = serializer.deserialize(
        b'{"op":"u","before":{"id":1},"after":{"id":2,"t":86399999999,"z":"2024-01-31T12:00:00+01:00",'
        b'"l":-1,"u":"12345678-1234-5678-1234-567812345678","raw":"/w==","extra":1}}'
    )
    changes = [
        Change(ChangeKind.SNAPSHOT, after=row, source={"table": "a"}),
        more,
        Change(ChangeKind.TRUNCATE),
    ]
    events = pa.array([serializer.serialize(each) for each in changes], pa.binary())
    column = Decode(plan, "event", False)(events)
    found = column.to_pylist()
    assert [each["kind"] for each in found] == ["SNAPSHOT", "UPDATE", "TRUNCATE"]
    assert [each["key"] for each in found] == [{"id": 1}, {"id": 2}, None]
    assert found[0]["after"]["sum"] == Decimal("-0.50")
    assert found[1]["after"]["z"] == datetime(2024, 1, 31, 11, tzinfo=UTC)
    assert found[1]["after"]["l"] == datetime(1969, 12, 31, 23, 59, 59, 999000)
    back = Decode(plan, "event", False)(Encode(plan, "v")(column))
    assert back.equals(column)
    with pytest.raises(DecodeError, match="field key: the row lacks the column id"):
        Decode(plan, "event", False)(pa.array([b'{"op":"c","after":{"born":1}}'], pa.binary()))
    with pytest.raises(InvalidArgumentError, match="change data needs the types"):
        ChangePlan(DebeziumSerializer(), ()).open()
    with pytest.raises(InvalidArgumentError, match="'no' of the key is not among id"):
        ChangePlan(serializer, ("no",)).open()


def test_a_float_of_a_change_that_is_too_large_does_not_become_infinity() -> None:
    decode = Decode(ChangePlan(DebeziumSerializer({"x": "float"}), ()), "event", False)
    event = b'{"op":"c","after":{"x":%s}}'
    [found] = decode(pa.array([event % b'"-Infinity"'], pa.binary())).to_pylist()
    assert found["after"] == {"x": -math.inf}
    with pytest.raises(DecodeError, match=r"field after\.x: it is too large for a float of 32 bits"):
        decode(pa.array([event % b"1e300"], pa.binary()))


def test_the_source_of_a_change_may_have_any_number() -> None:
    decode = Decode(ChangePlan(DebeziumSerializer({"x": "int8"}), ()), "event", False)
    event = b'{"op":"c","after":{"x":1},"source":{"lsn":1e400,"at":1.5}}'
    [found] = decode(pa.array([event], pa.binary())).to_pylist()
    assert found["source"] == '{"lsn":"1E+400","at":1.5}'


def test_a_column_of_a_change_that_is_not_named_may_have_any_value() -> None:
    described = [
        {"type": "int64", "field": "id"},
        {"type": "int64", "name": "io.debezium.time.MicroTime", "field": "took"},
    ]
    event = {
        "schema": {"type": "struct", "fields": [{"type": "struct", "field": "after", "fields": described}]},
        "payload": {"op": "c", "after": {"id": 1, "took": -3_600_000_000}},
    }
    events = pa.array([json.dumps(event).encode()], pa.binary())
    plan = ChangePlan(DebeziumSerializer({"id": "int64"}), ("id",))
    [found] = Decode(plan, "event", False)(events).to_pylist()
    assert found["after"] == {"id": 1}
    with pytest.raises(DecodeError, match="column 'took' has the type time_micros"):
        Decode(ChangePlan(DebeziumSerializer({"took": "time_micros"}), ()), "event", False)(events)


# --- arguments ------------------------------------------------------------------------------------


def test_arguments() -> None:
    schema = AvroSchema(record("int"))
    with pytest.raises(InvalidArgumentError, match="cannot be given beside schema"):
        RegistryGroup("g", schema=schema, type="R")
    with pytest.raises(InvalidArgumentError, match="register_schema needs a schema"):
        RegistryGroup("g", register_schema=True)
    with pytest.raises(InvalidArgumentError, match="'zip' is not one of none, gzip, snappy"):
        RegistryGroup("g", codec="zip")  # type: ignore[arg-type]
    for flag in ("register_schema", "register_codec", "validate_hostname"):
        with pytest.raises(InvalidArgumentError, match=f"{flag} must be True or False, not 1"):
            RegistryGroup("g", **cast("Any", {flag: 1}))
    with pytest.raises(InvalidArgumentError, match="group"):
        RegistryGroup("")
    with pytest.raises(InvalidArgumentError, match="must be an AvroSchema"):
        RegistryGroup("g", schema={})  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="the method serialize, which int lacks"):
        TypedSerializer(7, "int")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="not a text"):
        ChangeRows({"id": "int64"}, key="id")
    with pytest.raises(InvalidArgumentError, match="not one of"):
        ChangeRows({"id": "number"})
    for wrong in (None, ["id"], "id"):
        with pytest.raises(
            InvalidArgumentError, match="columns must map the names of columns to their types"
        ):
            ChangeRows(wrong)  # type: ignore[arg-type]


def test_an_old_pyspark_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "HAS_ARROW_FUNCTIONS", False)
    source = TypedSerializer(JsonSerializer(), "int")
    for function in (from_pravega, to_pravega):
        with pytest.raises(MissingExtraError, match=rf"{function.__name__} needs PySpark 4\.1 or newer"):
            function("event", source)


@pytest.mark.parametrize(
    ("event", "path"),
    [
        (b'{"numbers":[{"x":1},{"x":9223372036854775808}]}', r"numbers\[1\]\.x"),
        (rb'{"texts":{"a":"b","c":"\ud800"}}', r"texts\['c'\]"),
        (rb'{"name":"\ud800"}', "name"),
    ],
)
def test_an_error_of_arrow_names_the_field(event: bytes, path: str) -> None:
    number = {"type": "object", "properties": {"x": {"type": "integer"}}}
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "numbers": {"type": "array", "items": number},
            "texts": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    }
    plan = SchemaPlan(JsonSchema("thing", schema).info)
    with pytest.raises(DecodeError, match=rf"event 1 .*does not fit its column: field {path}: "):
        Decode(plan, "event", False)(pa.array([b'{"name":"a"}', event], pa.binary()))
    change = Decode(ChangePlan(DebeziumSerializer({"sum": "decimal(0)"}), ()), "event", False)
    with pytest.raises(DecodeError, match=r"event 0 .*: field after\.sum: "):
        change(pa.array([b'{"op":"c","after":{"sum":%d}}' % 10**38], pa.binary()))


@pytest.mark.parametrize("schema", [{}, {"type": "number"}, {"type": "array", "items": {"type": "number"}}])
@pytest.mark.parametrize("number", [b"1e400", b"-1e400"])
def test_a_number_of_json_that_is_too_large_does_not_become_infinity(
    schema: dict[str, object], number: bytes
) -> None:
    plan = SchemaPlan(JsonSchema("thing", schema).info)
    event = b"[" + number + b"]" if schema.get("type") == "array" else number
    with pytest.raises(DecodeError, match=r"event 0 .*1e400 is too large for a float"):
        Decode(plan, "event", False)(pa.array([event], pa.binary()))
