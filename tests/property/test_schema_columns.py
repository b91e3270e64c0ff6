"""Values of random schemas as Arrow columns, and back: nothing is lost, and damaged events are one error."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from pravega_wire.errors import DecodeError
from pravega_wire.schemas import AvroSchema, JsonSchema
from spark_adapter.columns.worker import Decode, Encode, SchemaPlan

Schema = Any

INT = st.integers(-(2**31), 2**31 - 1)
LONG = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
MILLIS = st.integers(-(2**63) // 1000 + 1, 2**63 // 1000 - 1)
CENTS = st.integers(-(10**9) + 1, 10**9 - 1).map(lambda unscaled: Decimal(unscaled).scaleb(-2))

LEAVES: list[tuple[Schema, st.SearchStrategy[Any]]] = [
    ("boolean", st.booleans()),
    ("int", INT),
    ("long", LONG),
    ("float", st.floats(width=32, allow_nan=False)),
    ("double", st.floats(allow_nan=False)),
    ("string", TEXT),
    ("bytes", st.binary(max_size=6)),
    ({"type": "int", "logicalType": "date"}, INT),
    ({"type": "int", "logicalType": "time-millis"}, INT),
    ({"type": "long", "logicalType": "timestamp-millis"}, MILLIS.map(lambda millis: millis * 1000)),
    ({"type": "long", "logicalType": "timestamp-micros"}, LONG),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, LONG),
    ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, CENTS),
    ({"type": "string", "logicalType": "uuid"}, st.uuids().map(str)),
    (["int", "long"], LONG),
    (["float", "double"], st.floats(allow_nan=False)),
]


class Namer:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> str:
        self.count += 1
        return f"Type{self.count}"


@st.composite
def schemas(draw: st.DrawFn, name: Namer, depth: int) -> tuple[Schema, st.SearchStrategy[Any]]:
    """A schema, and values as Arrow takes them for its column."""
    choice = draw(st.integers(0, 9 if depth else 5))
    if choice < 4:
        leaf: tuple[Schema, st.SearchStrategy[Any]] = draw(st.sampled_from(LEAVES))
        return leaf
    if choice == 4:
        size = draw(st.integers(1, 4))
        return {"type": "fixed", "name": name(), "size": size}, st.binary(min_size=size, max_size=size)
    if choice == 5:
        symbols = ["A", "B"]
        return {"type": "enum", "name": name(), "symbols": symbols}, st.sampled_from(symbols)
    inner, values = draw(schemas(name, depth - 1))
    if choice == 6:
        if isinstance(inner, list):
            return ["null", *(each for each in inner if each != "null")], st.none() | values
        return ["null", inner], st.none() | values
    if choice == 7:
        return {"type": "array", "items": inner}, st.lists(values, max_size=3)
    if choice == 8:
        pairs = st.dictionaries(TEXT, values, max_size=3)
        return {"type": "map", "values": inner}, pairs.map(lambda found: list(found.items()))
    nested: tuple[Schema, st.SearchStrategy[Any]] = draw(records(name, depth))
    return nested


@st.composite
def records(draw: st.DrawFn, name: Namer, depth: int) -> tuple[Schema, st.SearchStrategy[Any]]:
    own = name()
    parts = {f"f{number}": draw(schemas(name, depth - 1)) for number in range(draw(st.integers(1, 4)))}
    fields = [{"name": each, "type": schema} for each, (schema, _) in parts.items()]
    values = st.fixed_dictionaries({each: found for each, (_, found) in parts.items()})
    return {"type": "record", "name": own, "fields": fields}, values


def coders(schema: Schema, *, permissive: bool = False) -> tuple[Encode, Decode, pa.DataType]:
    plan = SchemaPlan(AvroSchema(json.dumps(schema)).info)
    return Encode(plan, "v"), Decode(plan, "event", permissive), plan.open().shape.arrow


@settings(max_examples=40)
@given(st.data())
def test_columns_of_avro_become_events_and_columns_again(data: st.DataObject) -> None:
    schema, strategy = data.draw(records(Namer(), 3))
    values = data.draw(st.lists(st.none() | strategy, max_size=4))
    encode, decode, arrow = coders(schema)
    column = pa.array(values, arrow)
    events = encode(column)
    assert events.is_null().to_pylist() == [value is None for value in values]
    assert decode(events).equals(column)
    # A part of a column, as Spark may give it.
    assert decode(encode(column[1:])).equals(column[1:])
    # Damaged events are errors of one kind, or values; never anything else.
    whole = [event for event in events.to_pylist() if event]
    damaged = [event[: data.draw(st.integers(0, len(event)))] for event in whole]
    damaged += [data.draw(st.binary(max_size=12)) for _ in whole]
    lenient = coders(schema, permissive=True)[1]
    found = lenient(pa.array(damaged, pa.binary()))
    for event, value in zip(damaged, found.is_valid().to_pylist(), strict=True):
        if not value:
            with pytest.raises(DecodeError, match=r"column event.*event 0 of the batch"):
                decode(pa.array([event], pa.binary()))


KINDS = {
    "type": "record",
    "name": "Kinds",
    "fields": [
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "millis", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "micros", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "sum", "type": {"type": "fixed", "name": "S", "size": 6, "logicalType": "decimal",
                                 "precision": 12, "scale": 3}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "kind", "type": {"type": "enum", "name": "K", "symbols": ["A", "B"]}},
        {"name": "again", "type": "K"},
        {"name": "parts", "type": {"type": "map", "values": ["null", "double"]}},
    ],
}  # fmt: skip

MOMENTS = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1))


@settings(max_examples=40)
@given(
    st.fixed_dictionaries(
        {
            "day": st.dates(),
            "millis": MOMENTS.map(
                lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000, tzinfo=UTC)
            ),
            "micros": st.none() | MOMENTS.map(lambda at: at.replace(tzinfo=UTC)),
            "local": MOMENTS.map(lambda at: at.replace(microsecond=0)),
            "price": CENTS,
            "sum": st.integers(-(10**12) + 1, 10**12 - 1).map(lambda whole: Decimal(whole).scaleb(-3)),
            "id": st.uuids(),
            "kind": st.sampled_from("AB"),
            "again": st.sampled_from("AB"),
            "parts": st.dictionaries(TEXT, st.none() | st.floats(allow_nan=False), max_size=3),
        }
    )
)
def test_events_are_those_of_fastavro(value: dict[str, Any]) -> None:
    out = io.BytesIO()
    parsed = fastavro.parse_schema(json.loads(json.dumps(KINDS)))
    fastavro.schemaless_writer(out, parsed, value)
    encode, decode, _ = coders(KINDS)
    column = decode(pa.array([out.getvalue()], pa.binary()))
    [found] = column.to_pylist()
    assert found == value | {"id": str(value["id"]), "parts": list(value["parts"].items())}
    assert encode(column).to_pylist() == [out.getvalue()]
    assert UUID(found["id"]) == value["id"]
    assert isinstance(found["day"], date)
    assert found["micros"] is None or found["micros"] - value["micros"] == timedelta(0)


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
THING = JsonSchema(
    "thing",
    {
        "type": "object",
        "required": ["id"],
        "properties": {
            "id": {"type": "integer"},
            "text": {"type": ["string", "null"]},
            "any": {},
            "list": {"type": "array", "items": {"$ref": "#/$defs/flag"}},
            "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        },
        "$defs": {"flag": {"type": "boolean"}},
    },
)


@settings(max_examples=40)
@given(
    st.fixed_dictionaries(
        {"id": LONG},
        optional={
            "text": TEXT,
            "any": JSONS.filter(lambda value: value is not None),
            "list": st.lists(st.booleans(), max_size=3),
            "map": st.dictionaries(TEXT, LONG, max_size=3),
        },
    ),
    JSONS,
)
def test_json_becomes_columns_and_the_same_json(value: dict[str, Any], other: Any) -> None:
    plan = SchemaPlan(THING.info)
    encode, decode = Encode(plan, "v"), Decode(plan, "event", False)
    [event] = encode(decode(pa.array([json.dumps(value).encode()], pa.binary()))).to_pylist()
    assert json.loads(event) == value
    found = Decode(plan, "event", True)(pa.array([json.dumps(other).encode()], pa.binary()))
    assert len(found) == 1
    assert not (found[0].is_valid and not isinstance(other, dict))
