"""Events as typed columns and back: real events, a real registry, on Arrow."""

from __future__ import annotations

import datetime
import struct
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from google.protobuf import descriptor_pb2
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from pravega_wire import Credentials, PravegaConfig
from pravega_wire.errors import (
    ArgumentTypeError,
    InvalidArgumentError,
    SchemaNotFoundError,
    SchemaRegistryUnreachableError,
)
from pravega_wire.schemas import (
    AvroSchema,
    EventSchema,
    GroupProperties,
    JsonSchema,
    ProtobufSchema,
)
from pravega_wire.schemas.debezium import Change, ChangeKind, DebeziumSerializer
from pravega_wire.serializers import JavaSerializer, JsonSerializer, Utf8Serializer
from pravega_wire.sync import PravegaClient, SchemaRegistry
from pravega_wire.testing import SchemaRegistryServer
from spark_adapter import register
from spark_adapter.schemas import ChangeRows, RegistryGroup, TypedSerializer, from_pravega, to_pravega

AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Reading",
    "namespace": "plant",
    "fields": [
        {"name": "sensor", "type": "int"},
        {"name": "celsius", "type": ["null", "double"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "string"}}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["ON", "OFF"]}},
    ],
}
READING = AvroSchema(AVRO)
WIDER = AvroSchema(
    {**AVRO, "fields": [*AVRO["fields"][1:], {"name": "sensor", "type": "long"},
                        {"name": "place", "type": "string", "default": "hall"}]}
)  # fmt: skip
LATER = AvroSchema({**AVRO, "fields": [*AVRO["fields"], {"name": "place", "type": "string"}]})
NOON = datetime.datetime(2024, 1, 31, 12, tzinfo=datetime.UTC)


def value(number: int) -> dict[str, Any]:
    return {
        "sensor": number,
        "celsius": None if number % 3 == 0 else number / 8,
        "at": NOON + datetime.timedelta(microseconds=number),
        "price": Decimal(number).scaleb(-2),
        "tags": {f"ü{number}": ["a"] * (number % 4)},
        "state": "ON" if number % 2 else "OFF",
    }


@pytest.fixture(scope="module")
def registry(pravega_schema_registry: SchemaRegistryServer) -> Iterator[SchemaRegistry]:
    with SchemaRegistry(pravega_schema_registry.uri) as registry:
        yield registry


@pytest.fixture
def uri(pravega_schema_registry: SchemaRegistryServer) -> str:
    return pravega_schema_registry.uri


def events_of(spark: SparkSession, *events: bytes | None) -> DataFrame:
    return spark.createDataFrame([(each,) for each in events], "event binary").coalesce(1)


def group_name() -> str:
    return f"group {uuid4().hex[:12]}/ü"


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.collect()]


def test_events_of_a_group_become_columns_and_columns_events(
    spark: SparkSession,
    config: PravegaConfig,
    client: PravegaClient,
    stream: str,
    registry: SchemaRegistry,
    uri: str,
) -> None:
    register(spark)
    group = group_name()
    old = registry.serializer(group, READING, create_group=GroupProperties(), register_schema=True)
    packed = registry.serializer(group, READING, codec="gzip", register_codec=True)
    with client.event_writer(stream) as writer:
        for number in range(20):
            written = (old, packed)[number % 2].serialize(value(number))
            writer.write_event(written, str(number))
    options = {"controller": config.controller_uri, "stream": f"spark/{stream}"}
    frame = spark.read.format("pravega").options(**options).load()
    column = from_pravega("event", RegistryGroup(group, uri)).alias("reading")
    read = frame.select(column).select("reading.*")
    assert read.schema.simpleString() == (
        "struct<sensor:int,celsius:double,at:timestamp,price:decimal(9,2),"
        "tags:map<string,array<string>>,state:string>"
    )
    found = sorted(rows_of(read.withColumn("at", F.unix_micros("at"))), key=lambda each: each["sensor"])
    start = int(NOON.timestamp()) * 1_000_000
    assert found == [value(number) | {"at": start + number} for number in range(20)]

    # A newer schema: it is the group's last one, and old events are read into it. Then everything is written.
    newer = RegistryGroup(group, uri, schema=WIDER, codec="snappy", register_schema=True, register_codec=True)
    evolved = frame.select(from_pravega(F.col("event"), RegistryGroup(group, uri, schema=WIDER)).alias("v"))
    assert rows_of(evolved.select("v.place", "v.sensor").where("v.sensor = 7")) == [
        {"place": "hall", "sensor": 7}
    ]
    second = f"copy-{uuid4().hex[:12]}"
    client.create_stream(second, 1)
    events = evolved.select(to_pravega("v", newer).alias("event"))
    events.write.format("pravega").options(**options | {"stream": f"spark/{second}"}).mode("append").save()
    copies = [event for batch in client.read_events(second) for event in batch.to_list()]
    header = struct.pack(">BI", 1, registry.encoding_id(group, registry.version_of(group, WIDER), "snappy"))
    assert {event[:5] for event in copies} == {header}
    reader = registry.deserializer(group)
    copied = sorted((reader.deserialize(event) for event in copies), key=lambda each: each["sensor"])
    assert copied == [value(number) | {"place": "hall"} for number in range(20)]


def test_a_streaming_query_reads_encodings_that_are_added_later(
    spark: SparkSession,
    config: PravegaConfig,
    client: PravegaClient,
    stream: str,
    registry: SchemaRegistry,
    uri: str,
    tmp_path: Path,
) -> None:
    register(spark)
    group = group_name()
    old = registry.serializer(group, READING, create_group=GroupProperties(), register_schema=True)
    frame = (
        spark.readStream.format("pravega")
        .option("controller", config.controller_uri)
        .option("stream", f"spark/{stream}")
        .option("start_stream_cut", "earliest")
        .load()
    )
    read = frame.select(from_pravega("event", RegistryGroup(group, uri)).alias("v")).select("v.sensor")
    later = registry.serializer(group, LATER, register_schema=True)
    with client.event_writer(stream) as writer:
        writer.write_event(old.serialize(value(1)), "1")
        writer.write_event(later.serialize(value(2) | {"place": "yard"}), "1")
    query = (
        read.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "rows"))
    )
    query.awaitTermination()
    assert sorted(rows_of(spark.read.parquet(str(tmp_path / "rows"))), key=str) == [
        {"sensor": 1}, {"sensor": 2}
    ]  # fmt: skip


def protobuf() -> ProtobufSchema:
    file = descriptor_pb2.FileDescriptorProto(name="plant.proto", package="plant", syntax="proto3")
    message = file.message_type.add(name="Reading")
    for number, (name, kind) in enumerate({"sensor": 5, "celsius": 1, "note": 9, "big": 4}.items(), 1):
        message.field.add(name=name, number=number, type=kind, label=1)
    message.field.add(name="counts", number=20, type=3, label=3)
    files = descriptor_pb2.FileDescriptorSet(file=[file])
    return ProtobufSchema.from_files("plant.Reading", files.SerializeToString())


JSON = JsonSchema(
    "reading", {"type": "object", "properties": {"sensor": {"type": "integer"}, "note": {"type": "string"}}}
)


@pytest.mark.parametrize("schema", [READING, JSON, protobuf()], ids=["avro", "json", "protobuf"])
def test_formats_with_and_without_a_registry(
    spark: SparkSession, registry: SchemaRegistry, uri: str, schema: EventSchema
) -> None:
    group = group_name()
    source = RegistryGroup(group, uri, schema=schema, create_group=GroupProperties(), register_schema=True)
    names = [name for name in ("sensor", "note", "celsius") if name in str(schema.info.data)]
    rows = spark.createDataFrame([(1, "ü", 0.5), (2, None, None)], "sensor int, note string, celsius double")
    given = F.struct(*names)
    if isinstance(schema, AvroSchema):
        given = F.struct(
            *names,
            F.lit(NOON).alias("at"),
            F.lit(Decimal("1.20")).alias("price"),
            F.expr("map('k', array('x'))").alias("tags"),
            F.lit("ON").alias("state"),
        )
    with_header = rows.select(to_pravega(given, source).alias("event"))
    plain = rows.select(to_pravega(given, schema).alias("event"))
    id = registry.encoding_id(group, registry.version_of(group, schema))
    events = [bytes(row.event) for row in with_header.collect()]
    assert events == [struct.pack(">BI", 1, id) + bytes(row.event) for row in plain.collect()]
    latest = RegistryGroup(group, uri)
    for frame, how in ((with_header, latest), (plain, schema)):
        found = rows_of(
            frame.select(from_pravega("event", how).alias("v")).select(*(f"v.{n}" for n in names))
        )
        assert [each["sensor"] for each in found] == [1, 2]
        assert found[0].get("note", "ü") == "ü"
    reader = registry.deserializer(group)
    assert len([reader.deserialize(event) for event in events]) == 2


def test_what_cannot_be_read(spark: SparkSession, registry: SchemaRegistry, uri: str) -> None:
    group = group_name()
    written = registry.serializer(group, READING, create_group=GroupProperties(), register_schema=True)
    good = written.serialize(value(5))
    bad = [b"", b"no header", b"\x01\x00\x00\x03\xe7x", good[:-1], good + b"\0", good[:5] + b"\xff" * 20]
    frame = events_of(spark, good, *bad, None, good)
    source = RegistryGroup(group, uri)
    null = from_pravega("event", source, mode="permissive").alias("v")
    found = [row.v for row in frame.select(null).collect()]
    assert [each and each.sensor for each in found] == [5, *[None] * (len(bad) + 1), 5]
    with pytest.raises(PythonException) as caught:
        events_of(spark, good, None, good[:-1]).select(from_pravega("event", source)).collect()
    text = str(caught.value)
    assert "DecodeError" in text
    assert f"column event, group {group!r} of the schema registry: event 2 of the batch (from 0)" in text

    with pytest.raises(PythonException, match=r"row 0 of the batch .*field sensor: it is null"):
        spark.sql("select named_struct('sensor', cast(null as int)) v").select(
            to_pravega("v", JsonSchema("r", {"type": "object", "required": ["sensor"],
                                             "properties": {"sensor": {"type": "integer"}}}))
        ).collect()  # fmt: skip


def test_arguments(spark: SparkSession, registry: SchemaRegistry, uri: str) -> None:
    group = group_name()
    with pytest.raises(SchemaNotFoundError, match="group"):
        from_pravega("event", RegistryGroup(group, uri))
    registry.create_group(group)
    with pytest.raises(SchemaNotFoundError):
        from_pravega("event", RegistryGroup(group, uri))
    for schema in (READING, JSON):
        registry.add_schema(group, schema)
    with pytest.raises(InvalidArgumentError, match=r"several types \(plant\.Reading, reading\).*type="):
        from_pravega("event", RegistryGroup(group, uri))
    one_type = RegistryGroup(group, uri, type="reading")
    assert "note" in str(events_of(spark).select(from_pravega("event", one_type)).schema)
    with pytest.raises(InvalidArgumentError, match="'fail' or 'permissive'"):
        from_pravega("event", JSON, mode="drop")  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="TypedSerializer"):
        from_pravega("event", JsonSerializer())  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="not int"):
        from_pravega("event", 7)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="'no such' is not a Spark type"):
        from_pravega("event", TypedSerializer(JsonSerializer(), "no such"))
    secret = Credentials.basic("user", "hunter2")
    hidden = RegistryGroup(group, uri, schema=READING, credentials=secret)
    with pytest.raises(SchemaRegistryUnreachableError) as caught:
        from_pravega("event", RegistryGroup("g", "http://127.0.0.1:1", credentials=secret))
    frame = events_of(spark).select(from_pravega("event", hidden).alias("v"))
    plan = str(frame._jdf.queryExecution().toString())
    assert "from_pravega(event" in plan
    for text in (plan, repr(hidden), str(caught.value), repr(from_pravega("event", hidden))):
        assert "hunter2" not in text
        assert secret.token not in text


def test_a_filter_of_a_field_decodes_no_event_twice(spark: SparkSession, tmp_path: Path) -> None:
    decoded = tmp_path / "decoded"

    class Counting(JsonSerializer):
        def deserialize(self, data: bytes) -> Any:
            with decoded.open("a") as file:
                file.write("x")
            return super().deserialize(data)

    frame = events_of(spark, *(b'{"a": %d}' % number for number in range(20)))
    rows = frame.select(from_pravega("event", TypedSerializer(Counting(), "a long")).alias("v"))
    found = rows.where("v.a % 2 = 0").groupBy((F.col("v.a") % 3).alias("k")).agg(F.max("v.a").alias("a"))
    assert sorted(row.a for row in found.collect()) == [14, 16, 18]
    assert len(decoded.read_text()) == 20
    decoded.write_text("")
    none = frame.where("false").select(from_pravega("event", TypedSerializer(Counting(), "a long")))
    assert none.count() == 0
    assert decoded.read_text() == ""


def test_serializers_and_changes(spark: SparkSession) -> None:
    java = JavaSerializer(integers="Integer")
    frame = events_of(spark, java.serialize(7), java.serialize(-1), java.serialize(None))
    numbers = frame.select(from_pravega("event", TypedSerializer(java, "int")).alias("v"))
    assert [row.v for row in numbers.collect()] == [7, -1, None]
    again = numbers.where("v is not null").select(to_pravega("v", TypedSerializer(java, "int")).alias("e"))
    assert [bytes(row.e) for row in again.collect()] == [java.serialize(7), java.serialize(-1)]
    texts = events_of(spark, java.serialize("ü")).select(
        from_pravega("event", TypedSerializer(java, "int"), mode="permissive").alias("v"),
        from_pravega("event", TypedSerializer(java, "string")).alias("w"),
    )
    assert texts.collect() == [Row(v=None, w="ü")]
    plain = events_of(spark, b'{"a": {"b": [1, null]}}', "ü".encode())
    kind = "a struct<b: array<bigint>, c: string>"
    source = TypedSerializer(JsonSerializer(), f"struct<{kind.replace(' struct', ': struct')}>")
    read = plain.select(from_pravega("event", source, mode="permissive").alias("v"))
    assert [row.v for row in read.collect()] == [Row(a=Row(b=[1, None], c=None)), None]
    assert plain.select(from_pravega("event", TypedSerializer(Utf8Serializer(), "string"))).count() == 2

    changes = DebeziumSerializer({"id": "int64", "born": "date", "balance": "decimal(2)"})
    ann = {"id": 1, "born": datetime.date(1990, 5, 17), "balance": Decimal("10.00")}
    given = [
        Change(ChangeKind.INSERT, after=ann, source={"table": "accounts"}, at=NOON),
        Change(ChangeKind.UPDATE, ann, ann | {"balance": Decimal("12.25")}),
        Change(ChangeKind.DELETE, ann),
        Change(ChangeKind.TRUNCATE),
    ]
    rows = ChangeRows(changes, key=["id"])
    frame = events_of(spark, *map(changes.serialize, given))
    found = frame.select(from_pravega("event", rows).alias("c"))
    assert [row.asDict() for row in found.select("c.kind", "c.key.id", "c.after.balance").collect()] == [
        {"kind": "INSERT", "id": 1, "balance": Decimal("10.00")},
        {"kind": "UPDATE", "id": 1, "balance": Decimal("12.25")},
        {"kind": "DELETE", "id": 1, "balance": None},
        {"kind": "TRUNCATE", "id": None, "balance": None},
    ]
    back = [
        changes.deserialize(bytes(row.e)) for row in found.select(to_pravega("c", rows).alias("e")).collect()
    ]
    assert back == given
