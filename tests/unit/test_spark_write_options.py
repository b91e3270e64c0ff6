"""Options, columns and JSON of writes by format name."""

from __future__ import annotations

import base64
import json
import math
import pickle
from ctypes import c_float
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql.types import StructType

from pravega_wire import Credentials, PravegaConfig, ScopedStream
from pravega_wire.errors import InvalidArgumentError
from spark_adapter.columns.rows_json import column_to_json, json_writer, rows_to_json
from spark_adapter.columns.shape import retyped
from spark_adapter.options.read import config_options
from spark_adapter.options.write import Columns, WriteOptions
from spark_adapter.writing.format_writer import batch_sink, stream_sink

STREAM = {"stream": "sc/st"}


def test_what_a_job_of_the_scala_connector_says_is_taken() -> None:
    parsed = WriteOptions.parse(
        {
            "controller": "tcp://example.org:9090",
            "scope": "sc",
            "stream": "st",
            "exactly_once": "true",
            "transaction_timeout_ms": "30000",
            "read_after_write_consistency": "false",
            "transaction_status_poll_interval_ms": "50",
            "allow_create_scope": "true",
            "default_num_segments": "3",
            "checkpointLocation": "/somewhere",
        },
        "writeStream",
    )
    assert parsed.mode == "exactly_once"
    assert parsed.ledger == ScopedStream("sc", "st-spark-ledger")
    assert (parsed.lease, parsed.read_after_write) == (30, False)
    assert parsed.creation.stream
    weaker = WriteOptions.parse(
        {**STREAM, "exactly_once": "false", "transaction_timeout_ms": "30000", "read_after_write": "false"},
        "write",
    )
    assert (weaker.mode, weaker.ledger) == ("at_least_once", None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"stream_col": "to", "stream": "a/b", "semantic": "at_least_once"},
            "'stream' and 'stream_col' cannot be",
        ),
        ({"stream_col": "to"}, "needs semantic 'at_least_once' or 'best_effort'.*SinkPerStream"),
        ({"stream_col": "", "semantic": "at_least_once"}, "'stream_col' is empty"),
        ({"stream": "a/b", "most_streams": "3"}, "'most_streams' needs 'stream_col'"),
        ({"stream_col": "to", "most_streams": "0", "semantic": "at_least_once"}, "'most_streams'"),
        ({"stream_col": "to", "most_streams": "1001", "semantic": "at_least_once"}, "'most_streams'"),
    ],
)
def test_rows_name_their_streams_instead_of_an_option(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        WriteOptions.parse(options, "write")


def test_the_column_with_the_stream_is_no_part_of_the_event() -> None:
    options = {"stream_col": "To", "value_format": "json", "semantic": "at_least_once"}
    sink = batch_sink(options, schema("a integer, to string"), False)
    plan = pickle.loads(pickle.dumps(sink))._plan
    assert plan.options.routing.column == "to"
    assert plan.options.target == "the streams in column 'to'"
    assert plan.options.to(ScopedStream("sc", "x")).target == "stream sc/x"
    for columns, message in (
        ("to string", "the DataFrame has no columns"),
        ("a integer, to integer", "'stream_col': column 'To' has type int, not string"),
        ("a integer", "'stream_col': there is no column 'To'"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            batch_sink(options, schema(columns), False)
    for option in ("event_col", "routing_key_col"):
        with pytest.raises(
            InvalidArgumentError, match=rf"'{option}': column 'to' is that of option 'stream_col'"
        ):
            batch_sink({**options, option: "TO"}, schema("a integer, to string"), False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"semantic": "twice"}, "'semantic': 'twice' is not one of best_effort, at_least_once, exactly_once"),
        (
            {"semantic": "best_effort", "exactly_once": "true"},
            "'semantic' .* and 'exactly_once' .* contradict",
        ),
        ({"semantic": "exactly_once", "exactly_once": "false"}, "contradict each other"),
        ({"exactly_once": "false", "ledger_stream": "l"}, "'ledger_stream' needs semantic 'exactly_once'"),
        ({"semantic": "best_effort", "event_time_col": "t"}, "'event_time_col' needs semantic"),
        ({"ledger_stream": "sc/st"}, "ledger_stream must name another stream than .* sc/st"),
        ({"transaction_timeout_ms": "9999"}, "'transaction_timeout_ms' must be .* from 10000 to 600000"),
        ({"transaction_timeout_ms": "soon"}, "'transaction_timeout_ms': 'soon' is not a whole number"),
        ({"read_after_write": "true", "read_after_write_consistency": "true"}, "set twice"),
        ({"compact_after": "0"}, "'compact_after' must be .* from 1, not 0"),
        ({"if_forgotten": "maybe"}, "'if_forgotten': 'maybe' is not one of raise, committed, aborted"),
        ({"value_format": "xml"}, "'value_format': 'xml' is not one of binary, string, json"),
        ({"query": ""}, "'query' is empty: set it, or remove it"),
        ({"query": "(unnamed job) 1"}, "is not a valid name"),
        ({"query": "(job) 1"}, "is not a valid name"),
        ({"ledger_stream": ""}, "'ledger_stream' is empty"),
        ({"ledger_stream": "a/b/c"}, "option 'ledger_stream': 'a/b/c' is not of the form scope/stream"),
        ({"stream": "a/b/c"}, "option 'stream': 'a/b/c' is not of the form scope/stream"),
        ({"stream": "sc/_x"}, "option 'stream': the stream name '_x' has illegal characters"),
        ({"path": "sc/z"}, "unknown option 'path'; to name the stream, set the option 'stream'$"),
        ({"new_ledger": "perhaps"}, "neither true nor false"),
        ({"transaction_status_poll_interval_ms": "often"}, "'often' is not a whole number"),
        ({"job_id": "x"}, "'job_id' is for write, not for writeStream"),
        ({"routing_key": "k"}, "did you mean 'routing_key_col'"),
        ({"start_stream_cut": "latest"}, "'start_stream_cut' is for read"),
    ],
)
def test_wrong_options_are_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        WriteOptions.parse({**STREAM, **options}, "writeStream")


def schema(text: str) -> StructType:
    """A schema of columns ``name type``."""
    from pyspark.sql.types import _parse_datatype_json_string

    fields = [each.split() for each in text.split(", ") if each]
    return _parse_datatype_json_string(
        json.dumps(
            {
                "type": "struct",
                "fields": [
                    {"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields
                ],
            }
        )
    )


@pytest.mark.parametrize(
    ("given_options", "columns", "found"),
    [
        ({}, "event string, routing_key string", ("event", "routing_key", None)),
        ({}, "event binary, key string", ("event", None, None)),
        (
            {"event_col": "a", "routing_key_col": "b", "event_time_col": "c"},
            "a binary, b string, c long, routing_key string",
            ("a", "b", "c"),
        ),
        ({"event_time_col": "c"}, "event string, c timestamp", ("event", None, "c")),
        ({"value_format": "json"}, "x integer, routing_key string", (None, "routing_key", None)),
        ({"value_format": "json", "event_col": "x"}, "x double", ("x", None, None)),
        ({"routing_key_col": "k"}, "event varchar(9), k char(1)", ("event", "k", None)),
        ({"value_format": "json"}, "x varchar(9), y char(1)", (None, None, None)),
    ],
)
def test_columns(
    given_options: dict[str, str], columns: str, found: tuple[str | None, str | None, str | None]
) -> None:
    fitted = Columns.parse(given_options).of(schema(columns))
    assert (fitted.event, fitted.key, fitted.time) == found


@pytest.mark.parametrize(
    ("given_options", "columns", "message"),
    [
        ({}, "value string", "'event_col': there is no column 'event'; the columns are value"),
        ({}, "event integer", "'event_col': column 'event' has type int, not binary or string"),
        ({}, "event string, event string", "there are several columns 'event'"),
        ({"value_format": "string"}, "event binary", "has type binary, not string"),
        ({"value_format": "binary"}, "event string", "has type string, not binary"),
        ({}, "event string, routing_key integer", "'routing_key_col': column 'routing_key' has type int"),
        ({"event_time_col": "t"}, "event string, t timestamp_ntz", "not timestamp or whole milliseconds"),
        ({"value_format": "json"}, "a string, a string", "two fields of the same name"),
        ({"value_format": "json"}, "", "'value_format': the DataFrame has no columns"),
        ({"value_format": "json"}, "a variant", "'value_format': variant cannot be written as JSON"),
    ],
)
def test_wrong_columns_are_refused_while_planning(
    given_options: dict[str, str], columns: str, message: str
) -> None:
    for make in (batch_sink, stream_sink):
        with pytest.raises(InvalidArgumentError, match=message):
            make({**STREAM, **given_options}, schema(columns), False)


def test_overwriting_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r'append-only.*mode\("append"\)'):
        batch_sink(STREAM, schema("event string"), True)
    with pytest.raises(InvalidArgumentError, match=r'append-only.*outputMode\("append"\)'):
        stream_sink(STREAM, schema("event string"), True)


def test_a_query_whose_checkpoint_no_restart_finds_again_is_refused() -> None:
    events = schema("event string")
    with pytest.raises(InvalidArgumentError, match="stream sc/st needs the option checkpointLocation or a q"):
        stream_sink(STREAM, events, False)
    for more in (
        {"checkpointlocation": "/c"},
        {"checkpointLocation": "/c"},
        {"queryname": "q"},
        {"query": "q"},
        {"semantic": "at_least_once"},
    ):
        assert stream_sink({**STREAM, **more}, events, False)


def test_a_job_is_never_taken_for_a_query_of_its_name() -> None:
    sinks: list[Any] = [
        batch_sink({**STREAM, **more}, schema("event string"), False) for more in ({"job_id": "n"}, {})
    ]
    for sink in sinks:
        name = sink._place().query
        assert name != "n"
        for option, use in (("query", "writeStream"), ("job_id", "write")):
            with pytest.raises(InvalidArgumentError, match="is not a valid name"):
                WriteOptions.parse({**STREAM, option: name}, use)  # type: ignore[arg-type]


def test_writers_can_be_pickled_and_show_no_secret() -> None:
    config = PravegaConfig(
        controller_uri="tls://example.org:9090", credentials=Credentials.basic("user", "secret")
    )
    options = {**config_options(config), **STREAM}
    for make, more in ((batch_sink, {}), (stream_sink, {"checkpointLocation": "/c"})):
        sink: Any = make({**options, **more}, schema("event string"), False)
        again = pickle.loads(pickle.dumps(sink))
        plan = again._plan
        assert plan == sink._plan
        assert plan.options.config == config
        for shown in (repr(again), repr(plan)):
            assert "dXNlcjpzZWNyZXQ" not in shown
            assert "secret" not in shown


def test_columns_of_a_batch() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "e": pa.array(["a", "b"]),
            "k": pa.array(["x", None]),
            "t": pa.array([-1, 1_999], pa.timestamp("us", "UTC")),
        }
    )
    (found,) = Columns("e", None, "k", "t").project([batch.slice(0, 0), batch])
    assert found.to_pydict() == {"event": ["a", "b"], "routing_key": ["x", None], "event_time_ms": [-1, 1]}


@pytest.mark.parametrize("event", [None, "e"])
def test_the_json_of_a_batch_may_be_longer_than_a_binary_array(event: str | None) -> None:
    batch = pa.RecordBatch.from_pydict({"e": ["a", "b"]})
    (found,) = Columns(event, "json").project([batch])
    assert found.schema == pa.schema([("event", pa.large_binary())])
    assert found["event"].to_pylist() == [b'"a"', b'"b"'] if event else [b'{"e":"a"}', b'{"e":"b"}']


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.none()))
@example([-(2**63), 2**63 - 1, -1000, -1001, -999])
def test_event_times_are_rounded_down(times: list[int | None]) -> None:
    batch = pa.RecordBatch.from_pydict(
        {"e": pa.array([b""] * len(times)), "t": pa.array(times, pa.timestamp("us", "Z"))}
    )
    found = [row for part in Columns("e", None, None, "t").project([batch]) for row in part.to_pylist()]
    assert [row["event_time_ms"] for row in found] == [
        time if time is None else time // 1000 for time in times
    ]


def test_columns_may_differ_in_case_as_in_spark() -> None:
    given = schema("Event string, Routing_Key string, At timestamp")
    assert Columns("event", None, None, "at").of(given) == Columns("Event", None, "Routing_Key", "At")
    assert Columns("AT", "json", None, None).of(given) == Columns("At", "json", "Routing_Key", None)
    both = schema("event string, EVENT string, ROUTING_KEY string, Routing_key string")
    assert Columns("EVENT", None, "ROUTING_KEY", None).of(both) == Columns("EVENT", None, "ROUTING_KEY", None)
    with pytest.raises(
        InvalidArgumentError, match=r"there are several columns 'Event'; the columns are even"
    ):
        Columns("Event", None, "ROUTING_KEY", None).of(both)
    # Not the wrong one by chance, and not silently none.
    with pytest.raises(InvalidArgumentError, match="there are several columns 'routing_key'"):
        Columns("event", None, None, None).of(both)


# --- JSON -----------------------------------------------------------------------------------------


def test_json_of_each_type() -> None:
    row = pa.RecordBatch.from_pydict(
        {
            "i": pa.array([-(2**63)], pa.int64()),
            "f": pa.array([0.1], pa.float32()),
            "d": pa.array([1e300]),
            "s": pa.array(['é"\n\u2028']),
            "b": pa.array([b"\x00\xff"]),
            "n": pa.array([None], pa.string()),
            "dec": pa.array([Decimal("-12.30")], pa.decimal128(38, 2)),
            "day": pa.array([date(2024, 2, 29)]),
            "at": pa.array([datetime(2024, 1, 1, 12, tzinfo=UTC)], pa.timestamp("us", "Asia/Tokyo")),
            "ntz": pa.array([datetime(2024, 1, 1, 12, 0, 0, 5)], pa.timestamp("us")),
            "list": pa.array([[1, None]]),
            "map": pa.array([[("k", None), ("l", 2)]], pa.map_(pa.string(), pa.int32())),
            "struct": pa.array([{"x": None, "y": False}], pa.struct([("x", pa.int8()), ("y", pa.bool_())])),
        }
    )
    (text,) = rows_to_json(row)
    assert text.decode() == (
        '{"i":-9223372036854775808,"f":0.1,"d":1e+300,"s":"é\\"\\n\u2028","b":"AP8=","dec":-12.30,'
        '"day":"2024-02-29","at":"2024-01-01T12:00:00.000000Z","ntz":"2024-01-01T12:00:00.000005",'
        '"list":[1,null],"map":{"k":null,"l":2},"struct":{"y":false}}'
    )


@pytest.mark.parametrize("zone", ["GMT+8", "UTC+03:00", "PST", "Z", "+05:30", "Europe/Berlin"])
def test_json_of_times_in_a_zone_that_python_does_not_know(zone: str) -> None:
    kind, text = pa.timestamp("us", zone), "1970-01-01T00:00:00.000001Z"
    shapes: list[tuple[pa.DataType, Any, Any]] = [
        (kind, 1, text),
        (pa.list_(kind), [1, None], [text, None]),
        (pa.large_list(kind), [1], [text]),
        (pa.map_(pa.string(), kind), [("k", 1)], {"k": text}),
        (pa.struct([("in", pa.struct([("at", kind)]))]), {"in": {"at": 1}}, {"in": {"at": text}}),
    ]
    for shape, value, wanted in shapes:
        column = pa.array([value], retyped(shape, lambda kind: pa.int64() if kind != pa.string() else kind))
        (found,) = column_to_json(column.cast(shape))
        assert json.loads(found) == wanted


def test_a_value_without_json_is_named_with_its_place() -> None:
    bad = pa.array([b"a", b"\xff"]).cast(pa.binary()).view(pa.string())
    late = pa.array([0, 2**62], pa.timestamp("us", "UTC"))
    for column, text in ((bad, "'c' of row 6 .*utf-8"), (late, "'c' of row 6 ")):
        batch = pa.RecordBatch.from_pydict({"c": column, "d": pa.array([1, 2])})
        first = pa.RecordBatch.from_pydict({"c": column[:1].take([0] * 5), "d": pa.array([1] * 5)})
        with pytest.raises(InvalidArgumentError, match=text):
            list(Columns(None, "json", None, None).project([first, batch]))
    with pytest.raises(InvalidArgumentError, match=r"column 'c': row 1 cannot be written as JSON: .*utf-8"):
        list(Columns("c", "json").project([pa.RecordBatch.from_pydict({"c": bad})]))


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
@example(1000.00006103515625)
@example(1e-45)
@example(1.36441695e-05)
@example(3.4028234663852886e38)
@example(-0.0)
def test_json_of_a_small_float_has_the_fewest_digits(value: float) -> None:
    (encoded,) = column_to_json(pa.array([value], pa.float32()))
    found = json.loads(encoded)
    exact = c_float(value).value
    assert c_float(found).value == exact
    assert math.copysign(1, found) == math.copysign(1, value)
    assert encoded.decode() == repr(found)
    digits = len(Decimal(encoded.decode()).normalize().as_tuple().digits)
    assert digits <= 9
    assert all(c_float(float(f"{exact:.{fewer}g}")).value != exact for fewer in range(1, digits))


@given(st.lists(st.floats(width=32)), st.lists(st.floats()), st.text(), st.binary())
def test_json_gives_values_back(small: list[float], wide: list[float], text: str, data: bytes) -> None:
    column = pa.array(
        [{"small": small, "wide": wide, "text": text, "data": data}],
        pa.struct(
            [
                ("small", pa.list_(pa.float32())),
                ("wide", pa.list_(pa.float64())),
                ("text", pa.string()),
                ("data", pa.binary()),
            ]
        ),
    )
    (encoded,) = column_to_json(column)
    found = json.loads(encoded)
    assert found["text"] == text
    assert base64.b64decode(found["data"]) == data
    for name, values in (("small", small), ("wide", wide)):
        for got, value in zip(found[name], values, strict=True):
            if math.isfinite(value):
                assert pa.scalar(got, column.type.field(name).type.value_type).as_py() == value
            else:
                assert got == {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")


def test_what_has_no_json_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="duration"):
        json_writer(pa.duration("us"))
    with pytest.raises(InvalidArgumentError, match="a map with keys of type"):
        json_writer(pa.map_(pa.int32(), pa.int32()))
    with pytest.raises(InvalidArgumentError, match="row 1 has a null, which is no event"):
        column_to_json(pa.array([1, None]))
    with pytest.raises(InvalidArgumentError, match="cannot be written as JSON"):
        column_to_json(pa.array([2**62], pa.timestamp("us", "UTC")))
