"""The tables that the benchmarks print."""

from __future__ import annotations

from typing import Any

from benchmarks.report import latencies, table


def record(participant: str, p50: float, rate: float, **more: Any) -> dict[str, Any]:
    found = {
        "operation": "acks", "participant": participant, "size": 100, "segments": 1, "round": 1,
        "warm_up": False, "events": 100, "bytes": 10_000, "seconds": 1.0, "cpu_seconds": 0.5,
        "p50_ms": p50, "p99_ms": 2 * p50, "max_ms": 3 * p50, "events_per_second": rate,
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
        "acks", "100 B", "1", "java", "2.00", "2.00", "2.00", "4.00", "4.00", "4.00", "6.00",
        "400", "1.00", "200",
    ]  # fmt: skip
    assert ours == [
        "acks", "100 B", "1", "ours", "1.50", "1.00", "3.00", "3.00", "2.00", "6.00", "9.00",
        "800", "2.00", "200",
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
