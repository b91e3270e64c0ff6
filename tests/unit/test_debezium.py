"""Change data in Debezium's JSON, against what Debezium and Kafka Connect write."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pravega_wire.errors import DecodeError, EncodeError, InvalidArgumentError
from pravega_wire.schemas.debezium import Change, ChangeKind, DebeziumSerializer, RowSerializer, latest_rows

# Made by Envelope of Debezium 2.7.0 and JsonConverter of Kafka Connect 3.7.0: an insert with its schema; then
# an insert, an update, a deletion, a row of a snapshot and a truncation without.
GOLDEN = (Path(__file__).parents[1] / "golden" / "debezium.jsonl").read_bytes().splitlines()

ROW = {
    "id": 7,
    "small": None,
    "tiny": -1,
    "ratio": 0.5,
    "rate": 2.25,
    "open": True,
    "name": "Zo\xeb",
    "raw": b"\0\xff",
    "born": date(1990, 5, 17),
    "wakes": time(6, 30),
    "sleeps": time(22, 15, 0, 1),
    "made": datetime(2020, 9, 13, 12, 26, 40, 123000),
    "changed": datetime(2020, 9, 13, 12, 26, 40, 123456),
    "seen": datetime(2024, 2, 29, 11, 30, 0, 500000, UTC),
    "key": UUID("123e4567-e89b-12d3-a456-426614174000"),
    "balance": Decimal("-128.00"),
    "day": date(1970, 1, 4),
    "moment": datetime(2020, 9, 13, 12, 26, 40, 123000),
    "hour": time(1),
    "extra": '{"a": 1}',
}
TYPES = {
    "id": "int64",
    "small": "int16",
    "tiny": "int8",
    "ratio": "float",
    "rate": "double",
    "open": "boolean",
    "name": "string",
    "raw": "bytes",
    "born": "date",
    "wakes": "time_millis",
    "sleeps": "time_micros",
    "made": "timestamp_millis",
    "changed": "timestamp_micros",
    "seen": "zoned_timestamp",
    "key": "uuid",
    "balance": "decimal(2)",
    "day": "date",
    "moment": "timestamp_millis",
    "hour": "time_millis",
    "extra": "string",
}
AT = datetime(2023, 11, 14, 22, 13, 20, 1000, UTC)
SOURCE = {"table": "accounts"}
CHANGES = [
    Change(ChangeKind.INSERT, None, ROW, SOURCE, AT),
    Change(ChangeKind.INSERT, None, ROW, SOURCE, AT),
    Change(ChangeKind.UPDATE, ROW, ROW, SOURCE, AT),
    Change(ChangeKind.DELETE, ROW, None, SOURCE, AT),
    Change(ChangeKind.SNAPSHOT, None, ROW, SOURCE, AT),
    Change(ChangeKind.TRUNCATE, None, None, SOURCE, AT),
]


def test_an_event_with_its_schema_needs_no_settings() -> None:
    change = DebeziumSerializer().deserialize(GOLDEN[0])
    assert change == CHANGES[0]
    assert change.types == TYPES
    assert {name: type(value) for name, value in (change.row or {}).items()} == {
        name: type(value) for name, value in ROW.items()
    }


@pytest.mark.parametrize("number", range(1, len(GOLDEN)))
def test_events_without_a_schema(number: int) -> None:
    serializer = DebeziumSerializer(TYPES)
    change = serializer.deserialize(GOLDEN[number])
    assert change == CHANGES[number]
    assert change.row == (None if change.kind is ChangeKind.TRUNCATE else ROW)
    written = json.loads(serializer.serialize(change))
    theirs = json.loads(GOLDEN[number])
    seen = "2024-02-29T11:30:00.500000Z"
    for row in (theirs["before"], theirs["after"]):
        if row is not None:
            row["seen"] = seen  # the same time
    assert written == {name: theirs[name] for name in written}


def test_columns_without_types_are_json() -> None:
    row = DebeziumSerializer().deserialize(GOLDEN[1]).after
    assert row is not None
    assert (row["born"], row["balance"], row["name"]) == (7441, "zgA=", "Zo\xeb")


@pytest.mark.parametrize("change", CHANGES[1:])
@pytest.mark.parametrize("columns", [TYPES, {}])
def test_a_written_schema_tells_the_types(change: Change, columns: dict[str, str]) -> None:
    payload = DebeziumSerializer(columns, with_schema=True, name="shop.accounts").serialize(change)
    assert DebeziumSerializer().deserialize(payload) == change


def test_the_schema_is_that_of_kafka_connect() -> None:
    ours = json.loads(DebeziumSerializer(TYPES, with_schema=True, name="shop.accounts").serialize(CHANGES[0]))
    theirs = json.loads(GOLDEN[0])
    assert ours["schema"]["fields"][2]["fields"] == [{"type": "string", "optional": True, "field": "table"}]
    found = [ours["schema"]["fields"][1], theirs["schema"]["fields"][1]]
    assert [(each["name"], each["field"]) for each in found] == [("shop.accounts.Value", "after")] * 2
    connects = ("org.apache.kafka.connect.data.Date", "org.apache.kafka.connect.data.Time",
                "org.apache.kafka.connect.data.Timestamp", "io.debezium.data.Json")  # fmt: skip
    for mine, other in zip(found[0]["fields"], found[1]["fields"], strict=True):
        if other.get("name") not in connects:
            assert mine | {"optional": True} == other | {"optional": True}
        else:
            assert mine["type"] == other["type"]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        # Made by Decimal of Kafka Connect.
        ("0.00", "AA=="),
        ("1.27", "fw=="),
        ("1.28", "AIA="),
        ("-1.28", "gA=="),
        ("-1.29", "/38="),
        ("327.67", "f/8="),
        ("327.68", "AIAA"),
        ("123456789012345678901234567890.12", "AJvTCjxkWUPdFpCgOhQ="),
    ],
)
def test_decimals(number: str, text: str) -> None:
    rows = RowSerializer({"n": "decimal(2)"})
    assert rows.serialize({"n": Decimal(number)}) == b'{"n":"%s"}' % text.encode()
    assert rows.deserialize(b'{"n":"%s"}' % text.encode()) == {"n": Decimal(number)}


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30, places=3))
def test_any_decimal_is_what_it_was(number: Decimal) -> None:
    rows = RowSerializer({"n": "decimal(3)"})
    assert rows.deserialize(rows.serialize({"n": number}))["n"] == number


VALUES = {
    "date": st.dates(),
    "time_micros": st.times(),
    "timestamp_micros": st.datetimes(),
    "zoned_timestamp": st.datetimes(
        datetime(2, 1, 1), datetime(9998, 1, 1), timezones=st.just(timezone(timedelta(hours=5)))
    ),
    "bytes": st.binary(),
    "uuid": st.uuids(),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False),
}


@given(st.data())
@pytest.mark.parametrize("kind", VALUES)
def test_any_value_is_what_it_was(kind: str, data: st.DataObject) -> None:
    value = data.draw(VALUES[kind])
    rows = RowSerializer({"x": kind})
    assert rows.deserialize(rows.serialize({"x": value})) == {"x": value}


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not a JSON object"),
        (b"null", "not a JSON object"),
        (b"{}", "operation None"),
        (b'{"op":"m","message":{}}', "operation 'm'"),
        (b'{"op":{}}', "operation {}"),
        (b'{"op":"c"}', "not its row"),
        (b'{"op":"c","before":{}}', "not its row"),
        (b'{"op":"d","after":{}}', "not its row"),
        (b'{"op":"u","after":5}', "row 'after' is not"),
        (b'{"op":"c","after":{},"source":5}', "source"),
        (b'{"op":"c","after":{},"ts_ms":"now"}', "ts_ms"),
        (b'{"op":"c","after":{},"ts_ms":9223372036854775807}', "ts_ms"),
        (b'{"schema":null,"payload":null}', "no change"),
        (b'{"schema":5,"payload":{"op":"c","after":{}}}', "schema is not a JSON object"),
        (b'{"op":"c","after":{"x":NaN}}', "NaN is not a number of JSON"),
        (b'{"op":"c","after":{"x":[-Infinity]}}', "-Infinity is not a number of JSON"),
    ],
)
def test_what_is_not_a_change(payload: bytes, words: str) -> None:
    with pytest.raises(DecodeError, match=words):
        DebeziumSerializer().deserialize(payload)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int8", 128), ("int16", 1.5), ("int32", True), ("int64", "1"), ("double", "x"), ("boolean", 1),
        ("string", 5), ("bytes", "?"), ("bytes", 5), ("date", 2**31), ("date", 10**7), ("date", "x"),
        ("time_millis", -1), ("time_millis", 86_400_000), ("time_micros", 2**62), ("timestamp_millis", 2**62),
        ("timestamp_micros", None.__class__.__name__), ("zoned_timestamp", "2024-01-01T00:00:00"),
        ("zoned_timestamp", "noon"), ("uuid", "x"), ("uuid", 5), ("decimal(2)", ""), ("decimal(2)", "!"),
        ("decimal(2)", "A" * 8000),
    ],
)  # fmt: skip
def test_values_that_are_not_of_their_column(kind: str, value: Any) -> None:
    payload = json.dumps({"op": "c", "after": {"x": value}}).encode()
    with pytest.raises(DecodeError, match="column 'x' has the type"):
        DebeziumSerializer({"x": kind}).deserialize(payload)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int8", 128), ("date", datetime(2024, 1, 1)), ("time_millis", time(1, 2, 3, 4)), ("time_micros", 5),
        ("timestamp_millis", datetime(2024, 1, 1, microsecond=1)), ("timestamp_micros", AT),
        ("zoned_timestamp", datetime(2024, 1, 1)), ("decimal(2)", Decimal("1.234")), ("decimal(2)", 1.5),
        ("decimal(2)", Decimal("NaN")), ("decimal(2)", Decimal("1E+9999")), ("bytes", "text"),
        ("string", b"x"),
        ("double", "1"), ("uuid", 5),
    ],
)  # fmt: skip
def test_values_that_do_not_fit_their_column(kind: str, value: Any) -> None:
    with pytest.raises(EncodeError, match="column 'x' has the type"):
        DebeziumSerializer({"x": kind}).serialize(Change(ChangeKind.INSERT, after={"x": value}))


@pytest.mark.parametrize(
    ("number", "value"),
    [
        ("12345678901234567.89", "12345678901234567.89"), ("10.50", "10.50"), ("10.5", "10.50"),
        ("-3", "-3.00"), ("1e2", "100.00"), ("9999999999999999999999.99", "9999999999999999999999.99"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "form", ['{"op":"c","after":{"x":%s}}', '{"schema":null,"payload":{"op":"c","after":{"x":%s}}}']
)
def test_decimals_that_are_numbers_are_not_rounded(form: str, number: str, value: str) -> None:
    found = DebeziumSerializer({"x": "decimal(2)"}).deserialize((form % number).encode())
    assert found.after is not None
    assert str(found.after["x"]) == value
    row = RowSerializer({"x": "decimal(2)"}).deserialize(f'{{"x":{number},"y":0.5}}'.encode())
    assert (str(row["x"]), row["y"]) == (value, 0.5)


HUGE = "1e99999999999999999999999"
"""A number of JSON that is too large for a Decimal."""


def test_a_number_that_is_too_large_elsewhere_in_the_event() -> None:
    found = DebeziumSerializer({"x": "decimal(2)"}).deserialize(b'{"op":"c","after":{"x":1.5,"y":1e400}}')
    assert found.after == {"x": Decimal("1.50"), "y": Decimal("1e400")}
    with pytest.raises(
        DecodeError, match=r"column 'y' has the type double.*1E\+400, which is too large for a float"
    ):
        DebeziumSerializer({"y": "double"}).deserialize(b'{"op":"c","after":{"y":1e400}}')
    with pytest.raises(DecodeError, match="has an exponent that no decimal has"):
        DebeziumSerializer().deserialize(b'{"op":"c","after":{"y":%s}}' % HUGE.encode())
    large = RowSerializer({"x": "decimal(1)"}).deserialize(b'{"x":1e400}')
    assert large["x"] == 10**400


@pytest.mark.parametrize("number", ["1.234", "1e5001"])
def test_numbers_that_are_no_decimals_of_their_column(number: str) -> None:
    with pytest.raises(DecodeError, match="column 'x' has the type"):
        RowSerializer({"x": "decimal(2)"}).deserialize(f'{{"x":{number}}}'.encode())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Decimal("10.00"), Decimal("12.5")), (Decimal("12.5"), Decimal("10.00")), (None, 5), (5, None),
        (1, 1.5), (1.5, 2), ("a", None),
    ],
)  # fmt: skip
def test_a_written_schema_suits_both_rows(before: Any, after: Any) -> None:
    change = Change(ChangeKind.UPDATE, {"x": before}, {"x": after})
    assert DebeziumSerializer().deserialize(DebeziumSerializer(with_schema=True).serialize(change)) == change


def test_rows_without_a_common_type_are_refused() -> None:
    change = Change(ChangeKind.UPDATE, {"x": 1}, {"x": "one"})
    with pytest.raises(EncodeError, match="column 'x' has values of the types int64 and string"):
        DebeziumSerializer(with_schema=True).serialize(change)


def test_what_cannot_be_written() -> None:
    with pytest.raises(EncodeError, match="not a Change"):
        DebeziumSerializer().serialize({"op": "c"})  # type: ignore[arg-type]  # that is tested
    with pytest.raises(EncodeError, match="time zone"):
        DebeziumSerializer().serialize(Change(ChangeKind.TRUNCATE, at=datetime(2024, 1, 1)))
    with pytest.raises(EncodeError, match="JSON"):
        DebeziumSerializer().serialize(Change(ChangeKind.INSERT, after={"x": object()}))
    with pytest.raises(EncodeError, match="column 'x' has no type"):
        DebeziumSerializer(with_schema=True).serialize(Change(ChangeKind.INSERT, after={"x": [1]}))
    for kind, row in (("DELETE", "before"), ("INSERT", "after"), ("UPDATE", "after"), ("SNAPSHOT", "after")):
        with pytest.raises(EncodeError, match=f"a change of the kind {kind} needs its row '{row}'"):
            DebeziumSerializer().serialize(Change(ChangeKind[kind], None, None))


@pytest.mark.parametrize("kind", ["int", "decimal", "decimal()", "decimal(x)", ""])
def test_names_of_types(kind: str) -> None:
    for serializer in (DebeziumSerializer, RowSerializer):
        with pytest.raises(InvalidArgumentError, match="which is not one of int8"):
            serializer({"x": kind})


SOME_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "name", "field", "fields", "parameters", "scale", "id", "born"]), inner
        )
    ),
)


@given(SOME_JSON, SOME_JSON, st.sampled_from("cudrt"))
def test_any_schema_and_row_is_read_or_refused(described: Any, row: Any, operation: str) -> None:
    wrapped = {"fields": [{"field": "after", "fields": described}]}
    for schema in (described, wrapped):
        payload = {"schema": schema, "payload": {"op": operation, "before": row, "after": row}}
        try:
            DebeziumSerializer(TYPES).deserialize(json.dumps(payload).encode())
        except DecodeError:
            pass


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (Change("zz", after={"a": 1}), "the kind of a change must be a ChangeKind, not 'zz'"),  # type: ignore[arg-type]
        (Change(ChangeKind.INSERT, after=[1]), "the row 'after' of a change must be a mapping, not list"),  # type: ignore[arg-type]
        (Change(ChangeKind.INSERT, after={}, source=None), "the source of a change must be"),  # type: ignore[arg-type]
        (Change(ChangeKind.INSERT, after={}, types=None), "the types of a change must be"),  # type: ignore[arg-type]
    ],
)
@pytest.mark.parametrize("with_schema", [False, True])
def test_changes_that_are_not_valid_are_refused(change: Change, words: str, with_schema: bool) -> None:
    with pytest.raises(EncodeError, match=words):
        DebeziumSerializer(with_schema=with_schema).serialize(change)


@pytest.mark.parametrize("value", [None, 5, [1]])
def test_what_is_not_a_row_is_refused(value: Any) -> None:
    with pytest.raises(EncodeError, match="a row must be a mapping, not"):
        RowSerializer().serialize(value)


@pytest.mark.parametrize("columns", [None, ["a"], {"a": 5}, {"a": []}, {"a": "int65"}])
@pytest.mark.parametrize("serializer", [DebeziumSerializer, RowSerializer])
def test_columns_that_are_not_types_are_refused(serializer: Any, columns: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"columns must be a mapping|the type of a column is"):
        serializer(columns)


def test_what_latest_rows_refuses() -> None:
    wrong: Any
    for wrong in (None, 5, [None], [{"after": {}}]):
        with pytest.raises(InvalidArgumentError, match="changes must be"):
            latest_rows(wrong, ["a"])
    for wrong in (5, [], "a", {"a"}):
        with pytest.raises(InvalidArgumentError, match="key must be a list"):
            latest_rows([], wrong)


def test_serializers_can_be_pickled() -> None:
    for serializer in (DebeziumSerializer(TYPES, with_schema=True), RowSerializer(TYPES)):
        assert pickle.loads(pickle.dumps(serializer)) == serializer
    assert pickle.loads(pickle.dumps(CHANGES[2])) == CHANGES[2]


# --- the latest rows ------------------------------------------------------------------------------------


def change(kind: ChangeKind, before: Any = None, after: Any = None) -> Change:
    return Change(kind, before, after)


def test_the_latest_rows() -> None:
    one, two, three = {"id": 1, "v": "a"}, {"id": 2, "v": "b"}, {"id": 3, "v": "c"}
    found = latest_rows(
        [
            change(ChangeKind.SNAPSHOT, after=one),
            change(ChangeKind.INSERT, after=two),
            change(ChangeKind.UPDATE, one, {"id": 1, "v": "x"}),
            change(ChangeKind.DELETE, two),
            change(ChangeKind.INSERT, after=three),
            change(ChangeKind.UPDATE, three, {"id": 4, "v": "c"}),  # its key has changed
            change(ChangeKind.UPDATE, None, {"id": 5, "v": "d"}),  # a source without rows before changes
        ],
        ["id"],
    )
    assert not found.truncated
    assert found.rows == {
        (1,): {"id": 1, "v": "x"},
        (2,): None,
        (3,): None,
        (4,): {"id": 4, "v": "c"},
        (5,): {"id": 5, "v": "d"},
    }
    assert list(found.rows) == [(1,), (2,), (3,), (4,), (5,)]


def test_a_truncation_forgets_rows() -> None:
    found = latest_rows(
        [
            change(ChangeKind.INSERT, after={"a": 1, "b": 2}),
            change(ChangeKind.TRUNCATE),
            change(ChangeKind.INSERT, after={"a": 3, "b": 4}),
        ],
        ["b", "a"],
    )
    assert found.truncated
    assert found.rows == {(4, 3): {"a": 3, "b": 4}}


def test_keys_that_changes_do_not_have() -> None:
    with pytest.raises(DecodeError, match="column 'id'"):
        latest_rows([change(ChangeKind.INSERT, after={"a": 1})], ["id"])
    with pytest.raises(DecodeError, match="column 'id'"):
        latest_rows([change(ChangeKind.DELETE, {"a": 1})], ["id"])
    with pytest.raises(DecodeError, match="cannot be compared"):
        latest_rows([change(ChangeKind.INSERT, after={"id": {"scale": 0, "value": "Kg=="}})], ["id"])
    wrong: tuple[Any, ...] = ([], "id")
    for key in wrong:
        with pytest.raises(InvalidArgumentError, match="column name"):
            latest_rows([], key)


OPERATIONS = st.lists(
    st.tuples(st.sampled_from("cudt"), st.integers(0, 3), st.integers(0, 3), st.integers(0, 9))
)


@given(OPERATIONS, st.integers(0, 20))
def test_parts_of_changes_have_the_effect_of_the_whole(
    operations: list[tuple[str, int, int, int]], cut: int
) -> None:
    """A table that is given the changes in two parts is like one that follows each of them."""
    rows: dict[int, Any] = {}
    changes: list[Change] = []
    for operation, id, other, value in operations:
        if operation == "t":
            rows.clear()
            changes.append(change(ChangeKind.TRUNCATE))
        elif operation == "d" and id in rows:
            changes.append(change(ChangeKind.DELETE, rows.pop(id)))
        elif operation == "c" and id not in rows:
            rows[id] = {"id": id, "v": value}
            changes.append(change(ChangeKind.INSERT, None, rows[id]))
        elif operation == "u" and id in rows and (other == id or other not in rows):
            before = rows.pop(id)
            rows[other] = {"id": other, "v": value}
            changes.append(change(ChangeKind.UPDATE, before, rows[other]))
    table: dict[int, Any] = {}
    for part in (changes[:cut], changes[cut:]):
        found = latest_rows(part, ["id"])
        if found.truncated:
            table.clear()
        for (id,), row in found.rows.items():
            table.pop(id, None)
            if row is not None:
                table[id] = row
    assert table == rows
