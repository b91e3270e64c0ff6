"""Options that make streams and choose metadata tables."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from pravega_wire import (
    PravegaConfig,
    RetentionPolicy,
    ScalingPolicy,
    ScopedStream,
    StreamConfiguration,
)
from pravega_wire.errors import InvalidArgumentError
from pravega_wire.values.policies import ScaleType
from pravega_wire.values.types import StreamCut
from spark_adapter import create_if_missing
from spark_adapter.options.creating import CREATION_OPTIONS, Creation
from spark_adapter.options.read import OPTIONS
from spark_adapter.tables.metadata import TABLES, TableRead

CONFIG = PravegaConfig(controller_uri="tcp://localhost:1", scope="sc")


def _options(configuration: StreamConfiguration) -> dict[str, str]:
    """The options that ask for a stream of this kind."""
    scaling, retention = configuration.scaling, configuration.retention
    options = {"default_num_segments": str(scaling.min_segments)}
    if scaling.scale_type is ScaleType.BY_RATE_IN_EVENTS_PER_SEC:
        options["default_scale_factor"] = str(scaling.scale_factor)
        options["default_segment_target_rate_events_per_sec"] = str(scaling.target_rate)
    elif scaling.scale_type is ScaleType.BY_RATE_IN_KBYTES_PER_SEC:
        options["default_scale_factor"] = str(scaling.scale_factor)
        options["default_segment_target_rate_bytes_per_sec"] = str(scaling.target_rate * 1024 + 1023)
    if retention is not None and retention.retention_type.name == "TIME":
        options["default_retention_duration_milliseconds"] = str(retention.minimum)
    elif retention is not None:
        options["default_retention_size_bytes"] = str(retention.minimum)
    return options


numbers = st.integers(1, 2**31 - 2)
factors = st.integers(2, 2**31 - 1)
kept = st.integers(1, 2**63 - 1)


@given(
    st.builds(
        StreamConfiguration,
        scaling=st.builds(ScalingPolicy.fixed, numbers)
        | st.builds(ScalingPolicy.by_event_rate, numbers, factors, numbers)
        | st.builds(ScalingPolicy.by_data_rate, numbers.map(lambda each: each * 1024), factors, numbers),
        retention=st.none()
        | st.builds(RetentionPolicy.by_time, st.integers(1, 2**50).map(lambda each: each / 1000))
        | st.builds(RetentionPolicy.by_size, kept),
    )
)
def test_options_give_the_configuration_they_describe(configuration: StreamConfiguration) -> None:
    parsed = Creation.parse(_options(configuration), "write")
    assert parsed == Creation(stream=True, scope=True, config=configuration)
    assert pickle.loads(pickle.dumps(parsed)) == parsed


def test_a_write_makes_what_is_missing_and_a_read_does_not() -> None:
    for use in ("write", "writeStream"):
        assert Creation.parse({}, use) == Creation(stream=True, scope=True)
    for use in ("read", "readStream"):
        assert not Creation.parse({}, use).stream  # type: ignore[arg-type]
    asked = {"allow_create_stream": "TRUE", "allow_create_scope": "false"}
    assert Creation.parse(asked, "read") == Creation(stream=True, scope=False)
    assert not Creation.parse({"allow_create_stream": "false"}, "write").stream


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"allow_create_stream": "yes"}, "'allow_create_stream': 'yes' is neither true nor false"),
        ({"default_num_segments": "one"}, "'default_num_segments': 'one' is not a whole number"),
        ({"default_num_segments": "0"}, "'default_num_segments' must be a whole number from 1"),
        ({"default_scale_factor": "1"}, "'default_scale_factor' must be a whole number from 2"),
        ({"default_segment_target_rate_bytes_per_sec": "1023"}, "bytes_per_sec' must be .* from 1024"),
        ({"default_segment_target_rate_events_per_sec": "0"}, "events_per_sec' must be .* from 1"),
        ({"default_retention_size_bytes": "0"}, "'default_retention_size_bytes' must be"),
        ({"default_retention_duration_milliseconds": str(2**63)}, "'default_retention_duration_mill"),
        (
            {
                "default_segment_target_rate_bytes_per_sec": "2048",
                "default_segment_target_rate_events_per_sec": "10",
            },
            "'default_segment_target_rate_bytes_per_sec' and 'default_segment_target_rate_events_per_sec'",
        ),
        (
            {"default_retention_size_bytes": "1", "default_retention_duration_milliseconds": "1"},
            "'default_retention_duration_milliseconds' and 'default_retention_size_bytes' cannot be",
        ),
        ({"default_num_segments": "2", "default_scale_factor": "2"}, "set .*bytes_per_sec' or .* too"),
        (
            {"default_segment_target_rate_events_per_sec": "2"},
            "set 'default_num_segments' and 'default_scale_factor' too",
        ),
    ],
)
def test_wrong_options_of_a_stream_to_make_are_named(options: dict[str, str], message: str) -> None:
    for use in ("read", "writeStream"):
        with pytest.raises(InvalidArgumentError, match=message):
            Creation.parse(options, use)


def test_the_options_are_in_the_table_for_all_places() -> None:
    known = {each.name: each for each in OPTIONS}
    assert {len(known[name].uses) for name in CREATION_OPTIONS} == {4}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"segments": 2},
            "accept 'segments'; it accepts allow_create_scope, default_num_segments, [a-z_, ]+$",
        ),
        ({"allow_create_stream": True}, "does not accept 'allow_create_stream'"),
        ({"controller": "tcp://x:1"}, "does not accept 'controller'; it accepts allow_create_scope"),
        ({"default_num_segments": 1.5}, "'1.5' is not a whole number"),
    ],
)
def test_create_if_missing_takes_nothing_else(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        create_if_missing(CONFIG, "st", **options)


# --- metadata tables ------------------------------------------------------------------------------


@given(st.sampled_from([each.name for each in TABLES]), st.data())
def test_names_of_tables_are_known_in_any_case(name: str, data: st.DataObject) -> None:
    written = "".join(data.draw(st.sampled_from([letter.lower(), letter.upper()])) for letter in name)
    read = TableRead.parse({"Metadata": written, "stream": "a/b"})
    assert read is not None
    assert read.table == name
    assert read.place in ("a", ScopedStream("a", "b"))
    assert pickle.loads(pickle.dumps(read)) == read


def test_other_reads_are_not_of_a_table() -> None:
    assert TableRead.parse({"stream": "a/b"}) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metadata": "segment", "stream": "a/b"}, "no table 'segment'; did you mean 'segments'"),
        ({"metadata": " ", "stream": "a/b"}, "no table ' '; the tables are StreamInfo, Streams, segments"),
        ({"metadata": "epochs"}, "'stream' is required"),
        ({"metadata": "Streams"}, "metadata 'Streams' needs the option 'scope'"),
        ({"metadata": "streams", "stream": "b"}, "has no scope"),
        (
            {
                "metadata": "segments",
                "stream": "a/b",
                "startingOffsets": StreamCut(ScopedStream("a", "b"), {}).to_text(),
            },
            "'start_stream_cut' cannot be used with metadata 'segments'",
        ),
        (
            {"metadata": "groups", "scope": "a", "default_num_segments": "2"},
            "cannot be used with metadata 'groups'",
        ),
        ({"metadata": "groups", "scope": "a", "allow_create_scope": "true"}, "cannot be used with metadata"),
        ({"metadata": "groups", "scop": "a"}, "did you mean 'scope'"),
    ],
)
def test_wrong_reads_of_a_table_are_refused(
    options: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PRAVEGA_SCOPE", raising=False)
    with pytest.raises(InvalidArgumentError, match=message):
        TableRead.parse(options)


def test_what_a_job_says_of_all_its_reads_and_writes_may_stand_with_a_table() -> None:
    read = TableRead.parse({"metadata": "Streams", "scope": "a", "allow_create_scope": "false"})
    assert read is not None
    assert read.place == "a"
