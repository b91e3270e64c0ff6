"""The tables that the benchmarks print."""

from __future__ import annotations

import io
import json
import os
import re
from math import log
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import benchmarks.__main__ as program
from benchmarks.peers import TreeWatch
from benchmarks.report import AFTER_PAUSE, latencies, pauses, spark_notes, spark_table, table
from benchmarks.spark_bench import SPARK, Form, SparkBench, write_files
from benchmarks.spark_work import CYCLE, EVENT, FILES, KEY, KEYS, KINDS, EventKind, slices


def record(participant: str, p50: float, rate: float, **more: Any) -> dict[str, Any]:
    found = {
        "operation": "acks", "participant": participant, "size": 100, "segments": 1, "round": 1,
        "warm_up": False, "events": 100, "bytes": 10_000, "seconds": 1.0, "cpu_seconds": 0.5,
        "p50_ms": p50, "p99_ms": 2 * p50, "p999_ms": 2.5 * p50, "max_ms": 3 * p50, "events_per_second": rate,
    }  # fmt: skip
    return found | more


def rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]


def test_times_have_medians_extremes_and_ratios() -> None:
    records = [
        record("java", 2.0, 400.0),
        record("ours", 1.0, 600.0),
        record("ours", 3.0, 1000.0),
        record("ours", 1.5, 800.0),
        record("ours", 99.0, 1.0, warm_up=True),
        record("ours", 99.0, 1.0, error="of some kind"),
    ]
    head, _, java, ours = rows(latencies(records))
    assert head[-3:] == ["events/s", "ratio", "events/CPU s"]
    assert java == [
        "acks", "100 B", "1", "java", "2.00", "2.00", "2.00", "4.00", "4.00", "4.00", "5.00", "6.00",
        "400", "1.00", "200",
    ]  # fmt: skip
    assert ours == [
        "acks", "100 B", "1", "ours", "1.50", "1.00", "3.00", "3.00", "2.00", "6.00", "3.75",
        "9.00", "800", "2.00", "200",
    ]  # fmt: skip
    # They are in no other table.
    assert len(rows(table(records))) == 2
    assert latencies([]) == ""


def test_a_transaction_s_end_has_a_row_of_its_own_where_it_is_known() -> None:
    ended = {"done_p50_ms": 7.0, "done_p99_ms": 8.0, "done_max_ms": 9.0}
    records = [
        record("java", 2.0, 400.0, operation="transactions", **ended),
        record("package", 1.0, 600.0, operation="transactions"),
    ]
    found = rows(latencies(records))[2:]
    assert [(row[0], row[3], row[4], row[-3], row[-2]) for row in found] == [
        ("transactions", "java", "2.00", "400", "1.00"),
        ("transactions, done", "java", "7.00", "", ""),
        ("transactions", "package", "1.00", "600", "1.50"),
    ]


def test_a_given_rate_is_no_result() -> None:
    [row] = rows(latencies([record("java", 2.0, 400.0, operation="latency")]))[2:]
    assert row[-3:] == ["", "", "200"]


# --- Spark ----------------------------------------------------------------------------------------


def of_spark(operation: str, participant: str, rate: float, **more: Any) -> dict[str, Any]:
    found = {
        "spark": operation, "participant": participant, "kind": "100B", "segments": 4, "round": 1,
        "warm_up": False, "events": 1000, "bytes": 100_000, "seconds": 1000 / rate,
        "events_per_second": rate, "mb_per_second": rate / 10_000, "jvm_cpu_seconds": 0.002,
        "python_cpu_seconds": 0.001, "server_cpu_seconds": 0.0005,
    }  # fmt: skip
    return found | more


def spark_rows(records: list[dict[str, Any]]) -> dict[tuple[str, str], list[str]]:
    head, _, *others = rows(spark_table(records))
    assert head[3:] == [
        "rows/s", "best", "worst", "MB/s", "/ floor", "/ connector", "/ append", "JVM us", "Python us",
        "servers us",
    ]  # fmt: skip
    return {(row[0], row[2]): row[3:] for row in others}


def test_spark_s_reads_are_compared_with_a_floor_and_the_connector() -> None:
    records = [
        of_spark("read and count", "floor, data source", 4000.0),
        of_spark("read and count", "read_df", 1000.0),
        of_spark("read and count", "read_df", 3000.0, python_cpu_seconds=0.004),
        of_spark("read and count", "read_df", 2000.0),
        of_spark("read and count", "read_df", 9999.0, warm_up=True),
        of_spark("read and count", "connector", 1000.0),
        of_spark("read and count", "connector", 9.0, error="of some kind"),
        of_spark("read and count", "read_df", 8.0, kind="1kB"),
    ]
    found = spark_rows(records[:-1])
    assert found["read and count", "read_df"] == [
        "2k", "3k", "1k", "0.2", "0.50", "2.00", "", "2.00", "1.00", "0.50",
    ]  # fmt: skip
    assert found["read and count", "connector"][4:7] == ["0.25", "", ""]
    assert found["read and count", "floor, data source"][4:7] == ["", "", ""]
    # Events of another kind have nothing to be compared with.
    assert rows(spark_table(records))[-1][1:8] == ["1kB", "read_df", "8", "8", "8", "0.0", ""]
    assert spark_table([]) == ""
    turns = [of_spark("read and count", name, 1.0, warm_up=True) for name in ("read_df", "connector")]
    assert list(spark_rows(turns + records[:-1])) == [
        ("read and count", name) for name in ("read_df", "connector", "floor, data source")
    ]
    assert len(rows(table(records))) == 2
    assert latencies(records) == ""


def test_spark_s_writes_are_compared_with_the_same_promise_and_with_an_append() -> None:
    records = [
        of_spark("batch write", "connector at_least_once", 4000.0),
        of_spark("batch write", "connector exactly_once", 2000.0),
        of_spark("batch write", "format at_least_once", 2000.0),
        of_spark("batch write", "ForeachBatchSink exactly_once", 3000.0),
        of_spark("batch write", "pravega_wire append", 6000.0),
        of_spark("stream write", "floor", 5000.0),
        of_spark("stream write", "ForeachBatchSink exactly_once", 1500.0),
        of_spark("stream write, small", "format exactly_once", 1500.0),
    ]
    found = {key: row[4:7] for key, row in spark_rows(records).items()}
    assert found["batch write", "format at_least_once"] == ["", "0.50", "0.33"]
    assert found["batch write", "ForeachBatchSink exactly_once"] == ["", "1.50", "0.50"]
    assert found["stream write", "ForeachBatchSink exactly_once"] == ["0.30", "", "0.25"]
    assert found["stream write", "floor"] == ["", "", ""]
    # that append was of more rows
    assert found["stream write, small", "format exactly_once"] == ["", "", ""]


def test_cpu_time_that_is_not_known_is_left_out() -> None:
    record = of_spark("batch write", "floor", 100.0)
    del record["server_cpu_seconds"]
    assert spark_rows([record])["batch write", "floor"][-3:] == ["2.00", "1.00", ""]


def test_a_read_after_a_pause_is_compared_with_a_warm_one() -> None:
    records = [
        of_spark(f"{AFTER_PAUSE}0 s", "read_df", 1000.0, seconds=2.0),
        of_spark(f"{AFTER_PAUSE}600 s", "read_df", 1000.0, seconds=5.0),
        of_spark(f"{AFTER_PAUSE}0 s", "format", 1000.0, error="of some kind"),
        of_spark(f"{AFTER_PAUSE}600 s", "format", 1000.0),
    ]
    head, _, only = rows(pauses(records))
    assert head == ["events", "participant", "warm s", "pause s", "after it s", "ratio"]
    assert only == ["100B", "read_df", "2.00", "600", "5.00", "2.50"]
    assert pauses(records[:1]) == ""
    assert spark_table(records) == ""


def test_what_is_missing_or_wrong_is_told_once() -> None:
    lacking = {"spark": "batch write", "participant": "format", "kind": "1kB", "unavailable": "no writer"}
    wrong = of_spark("read and count", "read_df", 1.0, error="9 events instead of 10")
    assert spark_notes([lacking, lacking, wrong, of_spark("batch write", "floor", 1.0)]).splitlines() == [
        "- batch write, 1kB, format: not available: no writer",
        "- read and count, 100B, read_df: failed: 9 events instead of 10",
    ]
    assert spark_notes([]) == ""


@given(
    st.sampled_from(sorted(KINDS)), st.integers(0, 3 * CYCLE), st.integers(0, 2 * CYCLE), st.integers(1, 9)
)
def test_the_bytes_of_any_events_are_known(name: str, start: int, count: int, parts: int) -> None:
    kind = KINDS[name]
    lengths = kind.lengths()
    wanted = sum(lengths[number % CYCLE] for number in range(start, start + count))
    assert kind.bytes_of(count, start) == wanted
    assert sum(kind.bytes_of(share, start + first) for first, share in slices(count, parts)) == wanted


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_events_have_the_lengths_they_are_named_for(kind: EventKind) -> None:
    lengths = [len(event) for event in kind.pool()]
    assert lengths == kind.lengths()
    assert min(lengths) >= kind.shortest
    assert max(lengths) <= kind.longest
    mean = sum(lengths) / CYCLE
    if kind.spread == "log":
        # evenly over the logarithms
        assert mean == pytest.approx(
            (kind.longest - kind.shortest) / log(kind.longest / kind.shortest), rel=0.1
        )
    else:
        assert mean == pytest.approx((kind.shortest + kind.longest) / 2, rel=0.05)


def test_what_is_written_is_the_events_with_their_keys(tmp_path: Path) -> None:
    kind = KINDS["60-140B"]
    count = CYCLE + 77
    write_files(tmp_path / "events", kind, count)
    tables = [pq.read_table(path) for path in sorted((tmp_path / "events").iterdir())]
    assert len(tables) == FILES
    events = [event for table in tables for event in table.column(EVENT).to_pylist()]
    keys = [key for table in tables for key in table.column(KEY).to_pylist()]
    pool = kind.pool()
    assert events == [pool[number % CYCLE] for number in range(count)]
    assert keys == [f"key-{number % KEYS}" for number in range(count)]


def test_cpu_time_of_a_tree_of_processes(tmp_path: Path) -> None:
    """Of processes that were there, that come and that go; not of others."""
    ticks = os.sysconf("SC_CLK_TCK")

    def process(pid: int, name: str, parent: int, seconds: float, began: int = 1) -> None:
        fields = ["S", str(parent), *["0"] * 9, str(int(seconds * ticks)), "0", *["0"] * 6, str(began)]
        (tmp_path / str(pid)).mkdir(exist_ok=True)
        (tmp_path / str(pid) / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}\n")

    process(1, "init", 0, 100)
    process(10, "python", 1, 5)
    process(11, "java", 10, 7)
    process(12, "python", 11, 1)
    process(13, "a) b (c", 12, 2)
    process(20, "python", 1, 50)
    with TreeWatch(10, tmp_path) as taken:
        process(10, "python", 1, 6)
        process(11, "java", 10, 17)
        process(14, "python", 12, 4)
        process(20, "python", 1, 90)
        taken.look()
        # One has ended, and another one has got its number.
        process(13, "python", 12, 0.5, began=2)
        (tmp_path / "14" / "stat").unlink()
    assert (taken.jvm, taken.python) == (10.0, 1 + 4 + 0.5)
    with TreeWatch(99, tmp_path) as gone:
        pass
    assert (gone.jvm, gone.python) == (None, None)


# --- what is checked ------------------------------------------------------------------------------


class Answering:
    """A participant that gives these answers, one after the other."""

    def __init__(self, answers: list[dict[str, Any]]) -> None:
        self.pid = os.getpid()
        self._answers = answers

    def start(self, timeout: float) -> None:
        pass

    def request(self, *words: object, timeout: float) -> dict[str, Any]:
        return self._answers.pop(0)


class Around:
    """What the benchmark around the work of Spark gives it."""

    def __init__(self, answers: list[dict[str, Any]], stored: int) -> None:
        self.out, self.records, self.said = io.StringIO(), list[dict[str, Any]](), list[str]()
        self._participant, self._stored = Answering(answers), stored

    def participant(self, name: str) -> Answering:
        return self._participant

    def say(self, text: str) -> None:
        self.said.append(text)

    def server_pids(self) -> list[int]:
        return []

    def stored_bytes(self, stream: str) -> int:
        return self._stored


RIGHT = {"events": 10, "bytes": 1000, "seconds": 0.5}


@pytest.mark.parametrize(
    ("answer", "stored", "error"),
    [
        (RIGHT, 1080, None),
        (RIGHT | {"events": 9}, 1080, "9 events of 1000 bytes instead of 10 of 1000"),
        (RIGHT | {"bytes": 999}, 1080, "10 events of 999 bytes instead of 10 of 1000"),
        (RIGHT, 2160, "2160 bytes are stored instead of 1080"),
    ],
)
def test_a_wrong_result_is_an_error_and_no_result(
    answer: dict[str, Any], stored: int, error: str | None
) -> None:
    host = Around([answer], stored)
    form = Form("format exactly_once", SPARK, "format-exactly_once")
    bench = SparkBench(host, ["100B"])  # type: ignore[arg-type]  # what is asked of it is there
    bench._measure("batch write", KINDS["100B"], 10, 1, form, ("batch",), "stream")
    [record] = host.records
    assert record.get("error") == error
    assert record.get("events_per_second") == (None if error else 20.0)
    assert (spark_table(host.records) == "") == (error is not None)
    assert json.loads(host.out.getvalue()) == record


def test_a_form_that_is_not_there_is_asked_once() -> None:
    host = Around([{"unavailable": "no writer"}], 0)
    host.turns = lambda names: ((number, name) for number in range(3) for name in names)  # type: ignore[attr-defined]
    lacking, there = Form("format", SPARK, "format"), Form("floor", SPARK, "floor")
    bench = SparkBench(host, ["100B"])  # type: ignore[arg-type]  # what is asked of it is there
    asked = []
    for number, form in bench._turns("batch write", [lacking, there]):
        asked.append((number, form.name))
        if form is lacking:
            bench._measure("batch write", KINDS["100B"], 10, number, form, ("batch",), "stream")
    assert asked == [(0, "format"), (0, "floor"), (1, "floor"), (2, "floor")]
    assert "error" not in host.records[0]
    assert spark_notes(host.records) == "- batch write, 100B, format: not available: no writer"


def test_the_program_asks_for_options_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["bench"])
    source = Path(program.__file__).read_text()
    asked_for = set(re.findall(r"\barguments\.([a-z_]+)", source))
    assert len(asked_for) > 10
    assert asked_for <= vars(program.parse()).keys()
