"""Sizes and times in the texts of options."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from pravega_wire.errors import InvalidArgumentError
from spark_adapter.options.creating import Creation
from spark_adapter.options.quantities import byte_count, milliseconds, seconds
from spark_adapter.options.read import ReadOptions
from spark_adapter.options.write import WriteOptions


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (None, None),
        ("", None),
        ("1000", 1000),
        ("10b", 10),
        ("512k", 512 << 10),
        ("512KB", 512 << 10),
        (" 10m ", 10 << 20),
        ("10 mb", 10 << 20),
        ("1g", 1 << 30),
        ("1gb", 1 << 30),
        ("2t", 2 << 40),
        ("2TB", 2 << 40),
        ("3p", 3 << 50),
        ("3pb", 3 << 50),
    ],
)
def test_sizes_have_the_suffixes_of_spark(text: str | None, size: int | None) -> None:
    assert byte_count("x", text) == size


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1.5g", "option 'x': '1.5g' is not a whole number of bytes, such as 65536, 64k, 10m or 1g"),
        ("1e6", "option 'x': '1e6' is not a whole number of bytes"),
        ("1_0", "option 'x': '1_0' is not a whole number of bytes"),
        ("\u0663", "option 'x': '\u0663' is not a whole number of bytes"),
        ("m", "option 'x': 'm' is not"),
        ("1kib", "option 'x': '1kib' is not"),
        ("10 minutes", "option 'x': '10 minutes' is not"),
        ("0k", "option 'x' must be a whole number of bytes from 1, not 0"),
        ("-1k", "option 'x' must be a whole number of bytes from 1, not -1024"),
        ("8192p", f"option 'x' must be a whole number of bytes from 1 to {2**63 - 1}, not {2**63}"),
    ],
)
def test_wrong_sizes_are_named(text: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        byte_count("x", text)


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("30", 30),
        ("0.5", 0.5),
        ("30s", 30),
        ("1 second", 1),
        ("5 minutes", 300),
        ("15M", 900),
        ("1.5h", 5400),
        ("2 days", 172_800),
        ("250ms", 0.25),
        ("250000us", 0.25),
    ],
)
def test_times_have_units_or_the_unit_of_the_option(text: str, time: float) -> None:
    assert seconds("x", text) == time
    assert milliseconds("x", text if not text[-1].isdigit() else f"{text} s") == time * 1000


def test_a_time_without_a_unit_means_what_the_option_is_named_after() -> None:
    assert milliseconds("x", "30") == 30
    assert milliseconds("x", str(2**63 - 1)) == 2**63 - 1
    assert seconds("x", None) is milliseconds("x", "") is None
    with pytest.raises(InvalidArgumentError, match="'x': '30' is not a time with a unit, such as 30s or 5 m"):
        seconds("x", "30", unit_required=True)
    assert seconds("x", "30s", unit_required=True) == 30


@pytest.mark.parametrize(
    "text",
    ["soon", "5 parsecs", "s", "1 hour 30 minutes", "0.5ms", "nan", "1e30", "1e999999999", "1_0", "\u0663"],
)
def test_wrong_times_are_named(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"option 'x': '{text}' is not a whole number of mill"):
        milliseconds("x", text)
    if text != "0.5ms":
        with pytest.raises(InvalidArgumentError, match=r"option 'x'.*seconds"):
            seconds("x", text)


def test_every_option_that_is_a_size_or_a_time_has_suffixes() -> None:
    parsed = ReadOptions.parse(
        {
            "scope": "a",
            "stream_pattern": "b",
            "max_partition_bytes": "1m",
            "max_bytes_per_trigger": "1g",
            "stream_discovery_interval": "5 minutes",
            "controller_deadline": "1m",
            "operation_timeout": "90s",
        },
        "readStream",
    )
    assert (parsed.max_partition_bytes, parsed.max_bytes, parsed.discovery_interval) == (
        1 << 20,
        1 << 30,
        300,
    )
    assert (parsed.config.controller_deadline, parsed.config.operation_timeout) == (60, 90)
    given = {"stream": "a/b", "transaction_timeout_ms": "2 min", "transaction_status_poll_interval_ms": "1s"}
    assert WriteOptions.parse(given, "write").lease == 120
    made = Creation.parse({"default_retention_duration_milliseconds": "7 days"}, "write").config
    assert made.retention is not None
    assert made.retention.minimum == 7 * 86_400_000
    made = Creation.parse({"default_retention_size_bytes": "1t"}, "write").config
    assert made.retention is not None
    assert made.retention.minimum == 1 << 40
    rate = {"default_num_segments": "1", "default_scale_factor": "2"}
    made = Creation.parse({**rate, "default_segment_target_rate_bytes_per_sec": "1m"}, "write").config
    assert made.scaling.target_rate == 1024
