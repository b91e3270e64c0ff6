"""Options of the data source, and arguments of the sink that do not go together."""

from __future__ import annotations

import json
import pickle
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import ANY, MagicMock

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, StructField, StructType

from pravega_wire import Credentials, PravegaConfig, ScopedStream, SegmentRange, StagedBytes, StreamCut
from pravega_wire.errors import (
    ArgumentTypeError,
    InvalidArgumentError,
    InvalidStreamCutError,
    RetriesExhaustedError,
)
from spark_adapter import (
    ForeachBatchSink,
    SinkPerStream,
    bounded,
    create_if_missing,
    metadata_df,
    read_df,
    read_rdd,
    register,
)
from spark_adapter.archives import archive_stream, restore_stream, verify_archive
from spark_adapter.catalog import PravegaCatalog
from spark_adapter.datasource import PravegaDataSource
from spark_adapter.exactly_once.contents import AttemptResult
from spark_adapter.options.read import (
    COLUMNS,
    CONNECTION,
    OPTIONS,
    READS,
    WRITES,
    Option,
    ReadOptions,
    canonical,
    columns_of,
    config_options,
    decode_ranges,
    encode_ranges,
    option_table,
    read_use,
    schema_of,
)
from spark_adapter.options.streams import Bounds, Place, StreamChoice
from spark_adapter.writing.foreach_batch import is_random_below
from spark_adapter.writing.partition import PartitionWriter, _encode_result, decode_result

CONFIG = PravegaConfig(
    controller_uri="tls://example.org:9090",
    scope="sc",
    credentials=Credentials.basic("user", "secret"),
    trust_store="/some/ca.pem",
    validate_hostname=False,
    max_connections_per_store=3,
    controller_deadline=12.5,
    operation_timeout=45.0,
)


def test_a_configuration_survives_as_options() -> None:
    parsed = ReadOptions.parse({**config_options(CONFIG), "stream": "st"})
    assert parsed.config == CONFIG
    assert parsed.choice == StreamChoice((ScopedStream("sc", "st"),))
    assert (parsed.start, parsed.end) == (Bounds("earliest"), Bounds("latest"))
    assert parsed.fail_on_data_loss
    assert ReadOptions.parse({"stream": "a/b"}, "readStream").end == Bounds("unbounded")
    assert parsed.ranges is None


def test_a_read_tries_a_server_that_is_away_as_long_as_the_option_says() -> None:
    schema = StructType([StructField("event", BinaryType())])
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # and nobody listens
        options = {"controller": f"tcp://127.0.0.1:{silent.getsockname()[1]}", "controller_deadline": "0.3s"}
        source = PravegaDataSource({**options, "stream": "a/b", "columns": "event"})
        with pytest.raises(RetriesExhaustedError, match=r"no success after 0\.3 s"):
            source.reader(schema).partitions()


def test_secrets_are_in_an_option_that_spark_redacts() -> None:
    named = {key for key, value in config_options(CONFIG).items() if "dXNlcjpzZWNyZXQ" in value}
    assert named == {"auth_token"}  # spark.redaction.regex hides keys with "token" by default


def test_case_and_aliases_are_accepted() -> None:
    parsed = ReadOptions.parse({"STREAM": "a/b", "startingoffsets": "latest", "failOnDataLoss": "FALSE"})
    assert (parsed.start, parsed.fail_on_data_loss) == (Bounds("latest"), False)


@pytest.mark.parametrize(
    ("theirs", "here"),
    [
        ("subscribe", "streams"),
        ("subscribePattern", "stream_pattern"),
        ("startingOffsets", "start_stream_cut"),
        ("endingOffsets", "end_stream_cut"),
        ("startingTimestamp", "starting_timestamp"),
        ("endingTimestamp", "ending_timestamp"),
        ("maxOffsetsPerTrigger", "max_events_per_trigger"),
        ("maxBytesPerTrigger", "max_bytes_per_trigger"),
        ("minOffsetsPerTrigger", "min_events_per_trigger"),
        ("maxTriggerDelay", "max_trigger_delay"),
        ("failOnDataLoss", "fail_on_data_loss"),
        ("minPartitions", "min_partitions"),
        ("maxRecordsPerPartition", "max_partition_events"),
    ],
)
def test_names_of_kafka_and_delta_are_understood(theirs: str, here: str) -> None:
    use = next(each.uses for each in OPTIONS if each.name == here)[0]
    assert canonical({theirs: "5"}, use) == canonical({here: "5"}, use) == {here: "5"}


CUT = StreamCut(ScopedStream("a", "b"), {0: 5}).to_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stream": "a/b", "limit": "5"}, "is for read, not for readStream"),
        ({"stream": "a/b", "max_bytes_per_trigger": "0"}, "'max_bytes_per_trigger' must be"),
        ({"stream": "a/b", "max_events_per_trigger": "many"}, "'many' is not a whole number"),
        (
            {"scope": "a", "stream_pattern": "b", "stream_discovery_interval": "-1"},
            "'stream_discovery_interval' must be",
        ),
        (
            {"stream": "a/b", "stream_discovery_interval": "5"},
            "'stream_discovery_interval' has no effect without 'stream_pattern'; remove it",
        ),
        (
            {"stream": "a/b", "endingOffsets": "tomorrow"},
            "'end_stream_cut': 'tomorrow' is not .*; use 'latest', 'unbounded', the text of a cut, or a JSON "
            "object with a place for each stream$",
        ),
        ({"stream": "a/b", "segment_ranges": "[]"}, "is for read, not for readStream"),
        ({"stream": "a/b", "limit": "5"}, "'limit' is for read, not for readStream"),
        (
            {"stream": "a/b", "minBytesPerTrigger": "2k", "maxBytesPerTrigger": "2047"},
            r"'min_bytes_per_trigger' \(2048\) must not be greater than 'max_bytes_per_trigger' \(2047\)",
        ),
        (
            {"stream": "a/b", "minOffsetsPerTrigger": "3", "maxOffsetsPerTrigger": "2"},
            r"'min_events_per_trigger' \(3\) must not be greater than 'max_events_per_trigger' \(2\)",
        ),
        (
            {"stream": "a/b", "maxTriggerDelay": "1m"},
            "'max_trigger_delay' has no effect without 'min_bytes_per_trigger' or 'min_events_per_trigger'",
        ),
        (
            {"stream": "a/b", "min_events_per_trigger": "3", "maxTriggerDelay": "60000"},
            "'max_trigger_delay': '60000' is not a time with a unit",
        ),
    ],
)
def test_wrong_options_of_streams_are_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        ReadOptions.parse(options, "readStream")


def test_streams_times_and_limits_are_parsed() -> None:
    parsed = ReadOptions.parse(
        {
            "scope": "a",
            "subscribePattern": "b.*",
            "startingTimestamp": "2026-01-31T13:00:00.5+01:00",
            "maxOffsetsPerTrigger": "7",
            "approx_bytes_per_trigger": "1000",
            "checkpointLocation": "x",
        },
        "readStream",
    )
    assert parsed.start == Bounds(1_769_860_800_500)
    assert (parsed.max_bytes, parsed.max_events) == (1000, 7)
    assert ScopedStream("a", "bc") in parsed.choice
    assert ScopedStream("a", "cb") not in parsed.choice
    assert ScopedStream("c", "bc") not in parsed.choice
    parsed = ReadOptions.parse({"scope": "a", "streams": "c, x/b", "startingTimestamp": "-5"})
    assert parsed.choice.names == (ScopedStream("a", "c"), ScopedStream("x", "b"))
    assert parsed.start == Bounds(-5)
    assert read_use({"stream": "a/b"}) == "read"
    assert read_use({"stream": "a/b", "MAXBYTESPERTRIGGER": "5"}) == "readStream"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "'stream' is required"),
        ({"stream": "a/b", "contoller": "x"}, "did you mean 'controller'"),
        ({"stream": "a/b", "start": "x"}, "did you mean 'start_stream_cut'"),
        ({"stream": "a/b", "End": "x"}, "did you mean 'end_stream_cut'"),
        ({"stream": "a/b", "zzzzzzzz": "x"}, "unknown option 'zzzzzzzz'$"),
        (
            {"stream": "b"},
            "option 'stream': stream 'b' has no scope: write 'scope/b', or set the option 'scope'",
        ),
        ({"stream": "a/b/c"}, "option 'stream': 'a/b/c' is not of the form scope/stream"),
        ({"streams": "a/b,a/b d"}, "option 'streams': the stream name 'b d' has illegal characters"),
        ({"path": "a/b"}, "unknown option 'path'; to name the stream, set the option 'stream'$"),
        ({"paths": '["a/b"]'}, "unknown option 'paths'; to name the streams, set the option 'streams'$"),
        ({"stream": "a/b", "controller": "host"}, "option 'controller': controller URI 'host'"),
        (
            {"stream": "a/b", "validate_hostname": "ja"},
            "option 'validate_hostname': 'ja' is neither true nor",
        ),
        (
            {"stream": "a/b", "auth_method": "Basic"},
            "option 'auth_method' is set, and neither option 'auth_token'",
        ),
        (
            {"stream": "a/b", "endingOffsets": "latest", "end_stream_cut": "latest"},
            "set twice",
        ),
        (
            {"stream": "a/b", "end_stream_cut": "Earliest"},
            "'end_stream_cut' must not be 'earliest'",
        ),
        ({"stream": "a/b", "fail_on_data_loss": "maybe"}, "neither true nor false"),
        ({"stream": "a/b", "operation_timeout": "many"}, "'many' is not a number"),
        ({"stream": "a/b", "operation_timeout": "nan"}, "operation_timeout"),
        ({"stream": "a/b", "controller_deadline": "-1"}, "controller_deadline"),
        ({"stream": "a/b", "max_connections_per_store": "1.5"}, "max_connections_per_store"),
        (
            {"stream": "a/b", "auth_method": "Basic", "auth_token": "user:password"},
            "option 'auth_method' and option 'auth_token': credentials: the Basic token",
        ),
        ({"stream": "a/b", "max_partition_bytes": "1e6"}, "'1e6' is not a whole number"),
        ({"stream": "a/b", "max_partition_bytes": "0"}, "'max_partition_bytes' must be a whole number"),
        (
            {"stream": "a/b", "minPartitions": "0"},
            "'min_partitions' must be a whole number from 1 to 1000",
        ),
        ({"stream": "a/b", "min_partitions": "two"}, "'min_partitions': 'two' is not a whole number"),
        ({"stream": "a/b", "limit": "0"}, "'limit' must be a whole number from 1, not 0"),
        (
            {"stream": "a/b", "limit": str(2**63)},
            f"'limit' must be a whole number from 1 to {2**63 - 1}, not {2**63}",
        ),
        ({"stream": "a/b", "limit": "ten"}, "'limit': 'ten' is not a whole number"),
        ({"stream": "a/b", "limit": "1_0"}, "'limit': '1_0' is not a whole number"),
        ({"stream": "a/b", "limit": "\u0663"}, "'limit': '\u0663' is not a whole number"),
        ({"stream": "a/b", "startingTimestamp": "1_0"}, "'starting_timestamp': '1_0' is neither a number"),
        ({"stream": "a/b", "columns": "event,ofset"}, "no column 'ofset'; .*did you mean 'offset'"),
        ({"stream": "a/b", "columns": "event,Event"}, "'columns': a column is named twice"),
        ({"stream": "a/b", "columns": ""}, "'columns' is empty"),
        ({"stream": "a/b", "include_metadata": "0"}, "'include_metadata': '0' is neither"),
        ({"stream": "a/b", "include_metadata": "false", "columns": "event"}, "remove one of them"),
        ({"stream": "a/b", "segment_ranges": "[[1]]"}, "segment_ranges"),
        ({"stream": "a/b", "segment_ranges": "{"}, "segment_ranges"),
        ({"stream": "a/b", "segment_ranges": "[[Infinity,0,8]]"}, "segment_ranges"),
        ({"stream": "a/b", "segment_range": "[]"}, "unknown option 'segment_range'$"),
        ({"scope": "a", "stream_pattern": "b", "segment_ranges": "[]"}, "for one 'stream' alone; remove it"),
        ({"streams": "a/b,a/c", "segment_ranges": "[]"}, "for one 'stream' alone; remove it"),
        ({"stream": "a/b", "streams": "a/c"}, "'stream' and 'streams' cannot be used together"),
        ({"streams": "a/c", "stream_pattern": "c"}, "'streams' and 'stream_pattern' cannot be used"),
        ({"streams": " , "}, "'streams' contains no stream name"),
        ({"stream": "  "}, "'stream' contains no stream name"),
        (
            {"scope": "a", "stream_pattern": "b", "allow_create_stream": "True"},
            "'allow_create_stream' cannot be used with 'stream_pattern'.* remove it",
        ),
        ({"streams": "a/c,a/d,a/c"}, "a stream is named twice"),
        ({"stream_pattern": "c"}, "needs the option 'scope'"),
        ({"scope": "a", "stream_pattern": "(c"}, "not a regular expression"),
        ({"scope": "a", "stream_pattern": "c{4294967295}"}, "not a regular expression: the repetition"),
        ({"scope": "a", "stream_pattern": "(" * 9999 + ")" * 9999}, "not a regular expression"),
        ({"scope": "a", "stream_pattern": "b", "end_stream_cut": CUT}, "list the streams in 'streams'"),
        ({"stream": "a/c", "start_stream_cut": CUT}, "a place in stream a/b, which is not .*a/c"),
        (
            {"streams": "a/b,a/c", "start_stream_cut": CUT},
            r"""'start_stream_cut' has no place for stream a/c: give .* such as \{"a/c": "latest", """,
        ),
        ({"stream": "a/b", "startingOffsets": '{"a/b": 5'}, "'start_stream_cut' is not valid JSON"),
        ({"scope": "a", "stream": "b", "startingOffsets": '{"a/b": 5, "b": 5}'}, "two places in stream a/b"),
        ({"stream": "a/b", "startingOffsets": '{"a/b": 5, "a/c": 5}'}, "a place in stream a/c, which is"),
        (
            {"stream": "a/b", "startingOffsets": '{"a/b/c": 5}'},
            "option 'start_stream_cut': 'a/b/c' is not of",
        ),
        (
            {"stream": "a/b", "startingOffsets": '{"a/b": true}'},
            "the place in stream a/b must be 'earliest', 'latest', a time, or the text of a stream cut$",
        ),
        ({"stream": "a/b", "startingOffsets": '{"a/b": {"0": 5}}'}, "the place in stream a/b must be"),
        ({"stream": "a/b", "startingOffsets": '{"a/b": "2026-01-31"}'}, "'2026-01-31' has no time zone"),
        (
            {"stream": "a/b", "endingOffsets": '{"a/b": "earliest"}'},
            "'end_stream_cut': 'earliest' is not .*; use for stream a/b 'latest', a time, or the text of a",
        ),
        ({"stream": "a/c", "startingOffsets": f'{{"a/c": "{CUT}"}}'}, "does not belong to stream a/c, for"),
        ({"scope": "a", "stream_pattern": "b", "endingOffsets": '{"a/b": 5}'}, "the streams in 'streams'"),
        (
            {"stream": "a/b", "startingOffsets": "yesterday"},
            r"^option 'start_stream_cut': 'yesterday' is not the text of a stream cut, which to_text\(\) "
            "returns; use 'earliest', 'latest', 'unbounded', the text of a cut, or a JSON object with a "
            "place for each stream$",
        ),
        ({"stream": "a/b", "start_stream_cut": CUT, "startingTimestamp": "5"}, "cannot be used together"),
        ({"stream": "a/b", "startingTimestamp": "noon"}, "'noon' is neither a number of milliseconds"),
        ({"stream": "a/b", "endingTimestamp": "2026-01-01T00:00:00"}, "has no time zone"),
        ({"stream": "a/b", "max_bytes_per_trigger": "5"}, "is for readStream, not for read"),
    ],
)
def test_wrong_options_are_named(
    options: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PRAVEGA_SCOPE", raising=False)
    with pytest.raises(InvalidArgumentError, match=message):
        ReadOptions.parse(options)


def test_a_wrong_cut_has_the_error_of_cuts() -> None:
    with pytest.raises(InvalidStreamCutError, match="option 'start_stream_cut'"):
        ReadOptions.parse({"stream": "a/b", "start_stream_cut": f"{CUT},5"})


def test_each_stream_may_have_a_place_of_its_own() -> None:
    names = [ScopedStream("a", name) for name in "bcdef"]
    cut = StreamCut(names[0], {0: 5})
    places = {
        "a/b": cut.to_text(),
        "c": " Earliest ",
        "d": "latest",
        "e": "2026-01-31T13:00:00.5+01:00",
        "f": -5,
    }
    values: list[Place] = [cut, "earliest", "latest", 1_769_860_800_500, -5]
    meant = dict(zip(names, values, strict=True))
    given = {"scope": "a", "streams": "b,c,d,e,f", "startingOffsets": json.dumps(places)}
    for use in READS:
        start = ReadOptions.parse(given, use).start
        assert start == Bounds("earliest", meant)
        assert [start.of(name) for name in names] == list(meant.values())
        assert (start.word, start.cut_of(names[0]), start.cut_of(names[1])) == (None, cut, None)
    ends = json.dumps({"a/b": 7, "d": "latest"})
    end = ReadOptions.parse({"scope": "a", "streams": "b,d", "endingOffsets": ends}).end
    assert end == Bounds("latest", {names[0]: 7, names[2]: "latest"})
    # What a pattern finds besides begins at the default.
    found = {"scope": "a", "stream_pattern": ".", "startingOffsets": '{"b": "latest"}'}
    start = ReadOptions.parse(found, "readStream").start
    assert [start.of(name) for name in names[:2]] == ["latest", "earliest"]


def test_a_pattern_may_say_that_nothing_is_to_be_created() -> None:
    given = {"scope": "a", "stream_pattern": "b", "allow_create_stream": "false"}
    assert ReadOptions.parse(given).choice.pattern == "b"


def test_columns_are_chosen_by_name_or_without_metadata() -> None:
    def chosen(**options: str) -> tuple[str, ...]:
        return ReadOptions.parse({"stream": "a/b", **options}).columns

    assert chosen() == chosen(include_metadata="true") == COLUMNS
    assert chosen(columns=" Offset, event") == ("offset", "event")
    assert chosen(include_metadata="false") == ("event",)
    assert schema_of(("offset", "event")) == "`offset` bigint, `event` binary"
    with pytest.raises(InvalidArgumentError, match="columns: name at least one"):
        columns_of("columns", [])


@given(st.lists(st.tuples(*[st.integers(0, 2**63 - 1)] * 3), max_size=5))
def test_ranges_round_trip(numbers: list[tuple[int, int, int]]) -> None:
    stream = ScopedStream("a", "b")
    ranges = tuple(SegmentRange(stream, each[0], *sorted(each[1:])) for each in numbers)
    assert decode_ranges(stream, encode_ranges(ranges)) == ranges


def test_the_documents_have_the_table_of_options() -> None:
    docs = Path(__file__).parents[2] / "docs"
    assert option_table(*READS) in (docs / "spark-reading.md").read_text()
    assert option_table(*WRITES) in (docs / "spark-writing.md").read_text()
    # The reference has them too, so a link to a heading of the same page would be wrong there.
    assert not [each.name for each in OPTIONS if "](#" in each.default + each.meaning]


def test_an_option_of_another_place_is_refused() -> None:
    with pytest.raises(
        InvalidArgumentError, match="'start_stream_cut' is for read and readStream, not for write"
    ):
        canonical({"startingOffsets": "latest"}, "write")
    assert canonical({"Scope": "a", "checkpointLocation": "/b", "queryName": "q"}, "writeStream") == {
        "scope": "a"
    }
    with pytest.raises(InvalidArgumentError, match="unknown option 'checkpointLocation'"):
        canonical({"checkpointLocation": "/b"}, "read")


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_an_empty_option_is_refused_unless_it_is_of_the_connection(option: Option) -> None:
    for name in (option.name, *option.aliases):
        for use in option.uses:
            if option.name in CONNECTION:
                assert canonical({name: ""}, use) == {option.name: ""}
            else:
                with pytest.raises(InvalidArgumentError, match=f"option '{option.name}' is empty"):
                    canonical({name: ""}, use)


def test_option_names_are_unique() -> None:
    spellings = [name.lower() for each in OPTIONS for name in (each.name, *each.aliases)]
    assert len(spellings) == len(set(spellings))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "twice"}, "mode 'twice' is not one of"),
        ({"ledger_stream": "l"}, "but the mode is 'at_least_once'"),
        ({"mode": "exactly_once", "ledger_stream": "st"}, "another stream than the one"),
        ({"mode": "exactly_once", "ledger_stream": "l", "lease": 9.999}, "lease"),
        ({"mode": "exactly_once", "ledger_stream": "l", "lease": 600.001}, "lease"),
        ({"mode": "exactly_once", "ledger_stream": "l", "if_forgotten": "x"}, "if_forgotten"),
        ({"mode": "exactly_once", "ledger_stream": "l", "compact_after": 0}, "compact_after"),
        ({"sink_name": "a"}, "sink_name needs mode 'exactly_once'"),
        ({"new_ledger": True}, "new_ledger needs mode 'exactly_once'"),
        (
            {"mode": "exactly_once", "ledger_stream": "l", "sink_name": 3},
            "sink_name must be a non-empty string",
        ),
        ({"mode": "exactly_once", "ledger_stream": "l", "sink_name": None}, "sink_name must be a non-empty"),
        ({"mode": "exactly_once", "ledger_stream": "l", "sink_name": "\ud800"}, "unpaired surrogate"),
        (
            {"mode": "exactly_once", "ledger_stream": "l", "new_ledger": "no"},
            "new_ledger must be True or False",
        ),
        ({"event_col": 3}, "event_col must be a non-empty string, not 3"),
        ({"event_col": ""}, "event_col must be a non-empty string"),
        ({"routing_key_col": ["key"]}, "routing_key_col must be a non-empty string"),
        ({"serializer": "json"}, "serializer must be a function, not 'json'"),
        ({"router": "key"}, "router must be a function, not 'key'"),
        ({"crash_hook": 3}, "crash_hook must be a function, not 3"),
        ({"event_col": "e", "serializer": bytes}, "not both"),
        ({"routing_key_col": "k", "router": str}, "not both"),
        ({"event_time_col": "t"}, "event_time_col"),
        ({"query": ""}, "query must be a non-empty string, not ''"),
        ({"query": 5}, "query must be a non-empty string, not 5"),
        ({"mode": "exactly_once", "query": "(job) a"}, "is not a valid name"),
        ({"query": "q"}, "query needs mode 'exactly_once', but the mode is 'at_least_once'; remove it"),
        ({"mode": "best_effort", "if_forgotten": "committed"}, "if_forgotten needs mode 'exactly_once'"),
        ({"on_older_checkpoint": "continue_at"}, "on_older_checkpoint needs mode 'exactly_once'"),
        ({"compact_after": 5}, "compact_after needs mode 'exactly_once'"),
    ],
)
def test_wrong_sinks_cannot_be_made(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        ForeachBatchSink(CONFIG, "st", **arguments)


def test_the_ledger_of_a_sink_has_the_name_that_it_has_for_the_format() -> None:
    ledgers = [
        ForeachBatchSink(CONFIG, stream, mode="exactly_once")._options.ledger for stream in ("st", "other/st")
    ]
    assert ledgers == [ScopedStream("sc", "st-spark-ledger"), ScopedStream("other", "st-spark-ledger")]
    assert ForeachBatchSink(CONFIG, "st")._options.ledger is None
    with pytest.raises(InvalidArgumentError, match="the stream name '_x' has illegal characters"):
        ForeachBatchSink(CONFIG, "_x", mode="exactly_once")


@pytest.mark.parametrize(
    "call",
    [
        lambda config: ForeachBatchSink(config, "sc/st"),
        lambda config: read_df(ANY, config, "sc/st"),
        lambda config: read_rdd(ANY, config, "sc/st"),
        lambda config: create_if_missing(config, "sc/st"),
        lambda config: metadata_df(ANY, config, "segments", "sc/st"),
        lambda config: PravegaCatalog(ANY, config),
        lambda config: archive_stream(ANY, config, "sc/st", "/archive"),
        lambda config: restore_stream(ANY, config, "/archive", "sc/st"),
        lambda config: verify_archive(ANY, "/archive", config),
    ],
)
def test_a_connection_is_a_configuration_or_an_address(call: Callable[[Any], object]) -> None:
    with pytest.raises(ArgumentTypeError, match=r"config must be a PravegaConfig or .* URI, not int"):
        call(9090)
    with pytest.raises(InvalidArgumentError, match="controller URI 'localhost:nine'"):
        call("localhost:nine")


@pytest.mark.parametrize(
    "call",
    [
        lambda spark: read_df(spark, CONFIG, "st"),
        lambda spark: metadata_df(spark, CONFIG, "segments", "st"),
        register,
        lambda spark: PravegaCatalog(spark, CONFIG),
    ],
)
@pytest.mark.parametrize("wrong", [None, "local[2]", CONFIG])
def test_a_session_is_a_session(call: Callable[[Any], object], wrong: object) -> None:
    with pytest.raises(InvalidArgumentError, match=r"spark must be a SparkSession, not (NoneType|str|Prav)"):
        call(wrong)


def test_arguments_of_a_read_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "check_session", lambda spark: None)
    for wrong in ("a/b/c", "a/", 5):
        with pytest.raises(InvalidArgumentError, match=r"stream name|of the form scope/stream"):
            read_df(ANY, CONFIG, wrong)  # type: ignore[arg-type]
    monkeypatch.setattr(bounded, "check_context", lambda sc: None)
    with pytest.raises(InvalidArgumentError, match="deserializer must be a function, not 5"):
        read_rdd(ANY, CONFIG, "st", deserializer=5)  # type: ignore[call-overload]
    for table in (None, 5, ""):
        with pytest.raises(InvalidArgumentError, match="table must be a non-empty string, not "):
            metadata_df(MagicMock(spec=SparkSession), CONFIG, table, "st")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="max_partition_bytes must be a whole number of bytes"):
        read_df(ANY, replace(CONFIG, controller_uri="tcp://localhost:1"), "st", max_partition_bytes=0)


def test_an_address_means_what_it_means_for_open_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRAVEGA_SCOPE", "sc")
    expected = PravegaConfig.from_defaults(controller_uri="tcp://example.org:9090")
    assert expected.scope == "sc"
    assert ForeachBatchSink("tcp://example.org:9090", "st")._options.config == expected
    assert PravegaCatalog(MagicMock(spec=SparkSession), "tcp://example.org:9090").config == expected


def test_arguments_of_a_batch() -> None:
    sink = ForeachBatchSink(CONFIG, "st")
    frame: Any = MagicMock(spec=DataFrame)
    for write in (sink, SinkPerStream(lambda name: sink, stream_col="to")):
        for number in ("0", -1, None, 1.5, True, 2**70):
            limits = r"^batch_id must be a whole number from 0( to \d+)?, not "
            with pytest.raises(InvalidArgumentError, match=limits):
                write(frame, number)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgumentError, match=r"^df must be a DataFrame of Spark, not NoneType"):
            write(None, 0)


@pytest.mark.parametrize(
    ("root", "default", "random"),
    [
        ("file:/c/6f9619ff-8b86-d011-b42d-00cf4fc964ff", "/c", True),
        ("file:///c/6f9619ff-8b86-d011-b42d-00cf4fc964ff/", "file:/c/", True),
        ("hdfs://h:1/a/c/6f9619ff-8b86-d011-b42d-00cf4fc964ff", "c", True),
        ("file:/c/name", "/c", False),
        ("file:/c/6f9619ff8b86d011b42d00cf4fc964ff", "/c", False),
        ("file:/c/d/6f9619ff-8b86-d011-b42d-00cf4fc964ff", "/c", False),
        ("file:/c#d/6f9619ff-8b86-d011-b42d-00cf4fc964ff", "file:////c#d/", True),
    ],
)
def test_a_checkpoint_with_a_random_name_is_known(root: str, default: str, random: bool) -> None:
    assert is_random_below(root, default) == random


def test_what_goes_to_workers_can_be_pickled() -> None:
    writer = PartitionWriter(config=CONFIG, stream=ScopedStream("a", "b"), mode="at_least_once")
    assert pickle.loads(pickle.dumps(writer)) == writer


@given(
    st.builds(
        AttemptResult,
        partition=st.integers(0, 10**6),
        staging=st.none() | st.uuids(),
        rows=st.integers(0, 2**63),
        nbytes=st.integers(0, 2**63),
        contents=st.dictionaries(
            st.integers(0, 2**63),
            st.builds(StagedBytes, st.integers(1, 2**63), st.integers(0, 2**32 - 1)),
            max_size=3,
        ),
        timestamp=st.none() | st.integers(-(2**63), 2**63 - 1),
        dropped=st.integers(0, 2**31),
    )
)
def test_results_round_trip(result: AttemptResult) -> None:
    assert decode_result(_encode_result(result)) == result
