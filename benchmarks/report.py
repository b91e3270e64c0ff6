"""Records of measurements, and the tables made from them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from benchmarks.work import LENGTHS

__all__ = [
    "AFTER_PAUSE",
    "REFERENCE",
    "latencies",
    "pauses",
    "scale_table",
    "size_name",
    "spark_notes",
    "spark_table",
    "table",
]

Record = dict[str, Any]

REFERENCE = "java"
"""The participant that the others are compared with."""

AFTER_PAUSE = "read and count after "
"""Begins the operation of a read after a pause; the pause follows."""

_COLUMNS = (
    "operation", "event", "seg", "participant", "events/s", "min", "max", "MB/s", "ratio",
    "events/CPU s", "peak MB", "server CPU",
)  # fmt: skip
_TIMES_COLUMNS = (
    "operation", "event", "seg", "participant", "p50 ms", "min", "max", "p99 ms", "min", "max",
    "p99.9 ms", "max ms", "events/s", "ratio", "events/CPU s",
)  # fmt: skip
_SPARK_COLUMNS = (
    "operation", "events", "participant", "rows/s", "best", "worst", "MB/s", "/ floor", "/ connector",
    "/ append", "JVM us", "Python us", "servers us",
)  # fmt: skip
_SCALE_COLUMNS = (
    "what", "how many", "create s", "append s", "read s", "CPU ms each", "peak MB", "descriptors", "updates",
)  # fmt: skip
_PAUSE_COLUMNS = ("events", "participant", "warm s", "pause s", "after it s", "ratio")
_PREFIXES = {"": "", "done_": ", done"}
# Names of times in records begin with the one; the operation's name in the table ends with the other.


def _short(value: float) -> str:
    """Format a number with three significant digits and a unit."""
    for unit, factor in (("M", 1e6), ("k", 1e3)):
        if value >= factor:
            return f"{value / factor:.3g}{unit}" if value < 1000 * factor else f"{value:.3g}"
    return f"{value:.3g}"


def size_name(size: int, record: Record) -> str:
    """An event's size; from the shortest to the longest where lengths vary."""
    shares = LENGTHS[record.get("lengths", "fixed")]
    low, high = size * min(shares) // 1000, size * max(shares) // 1000
    unit, name = (1000, "kB") if low >= 10_000 or (low == high and low >= 1000) else (1, "B")
    return f"{low // unit} {name}" if low == high else f"{low // unit}-{high // unit} {name}"


def table(records: Iterable[Record]) -> str:
    """Return a Markdown table of medians over rounds, with each value relative to the reference.

    ``server CPU`` is how many cores the servers took on average meanwhile.
    """
    groups: dict[tuple[str, int, int, str], list[Record]] = {}
    for record in records:
        if record.get("warm_up") or "events_per_second" not in record or {"p50_ms", "spark"} & record.keys():
            continue
        key = (record["operation"], record["size"], record["segments"], record["participant"])
        groups.setdefault(key, []).append(record)
    rates = {key: median(record["events_per_second"] for record in group) for key, group in groups.items()}
    rows: list[Sequence[str]] = [_COLUMNS]
    for key, group in groups.items():
        operation, size, segments, participant = key
        reference = rates.get((operation, size, segments, REFERENCE))
        every = [record["events_per_second"] for record in group]
        rows.append(
            (
                operation,
                size_name(size, group[0]),
                str(segments),
                participant,
                _short(rates[key]),
                _short(min(every)),
                _short(max(every)),
                f"{rates[key] * group[0]['bytes'] / group[0]['events'] / 1e6:.0f}",
                "" if reference is None else f"{rates[key] / reference:.2f}",
                _median(group, lambda r: r["events"] / r["cpu_seconds"], "cpu_seconds", _short),
                _median(group, lambda r: r["peak_rss"] / 1e6, "peak_rss", lambda v: f"{v:.0f}"),
                _median(
                    group,
                    lambda r: r["server_cpu_seconds"] / r["seconds"],
                    "server_cpu_seconds",
                    lambda v: f"{v:.1f}",
                ),
            )
        )
    return _markdown(rows)


def latencies(records: Iterable[Record]) -> str:
    """Return a Markdown table of latencies, medians over rounds; "" if there are none.

    Where a transaction was waited for, its time until it was committed has a row of its own. Events per
    second and their ratio to the reference are of the whole work; where a rate was given they say nothing
    and are left out.
    """
    groups: dict[tuple[str, int, int, str], list[Record]] = {}
    for record in records:
        if not record.get("warm_up") and "error" not in record and "p50_ms" in record:
            key = (record["operation"], record["size"], record["segments"], record["participant"])
            groups.setdefault(key, []).append(record)
    if not groups:
        return ""
    rates = {key: median(record["events_per_second"] for record in group) for key, group in groups.items()}
    rows: list[Sequence[str]] = [_TIMES_COLUMNS]
    for key, group in groups.items():
        operation, size, segments, participant = key
        reference = rates.get((operation, size, segments, REFERENCE))
        rate, ratio = _short(rates[key]), "" if reference is None else f"{rates[key] / reference:.2f}"
        if operation == "latency":
            rate = ratio = ""
        cpu = _median(group, lambda r: r["events"] / r["cpu_seconds"], "cpu_seconds", _short)
        for prefix, what in _PREFIXES.items():
            if f"{prefix}p50_ms" not in group[0]:
                continue
            cells: list[str] = [operation + what, size_name(size, group[0]), str(segments), participant]
            for name in (f"{prefix}p50_ms", f"{prefix}p99_ms"):
                every = [record[name] for record in group]
                cells += [f"{value:.2f}" for value in (median(every), min(every), max(every))]
            cells.append(
                _median(group, lambda r, p=prefix: r[f"{p}p999_ms"], f"{prefix}p999_ms", "{:.2f}".format)
            )
            cells.append(f"{max(record[f'{prefix}max_ms'] for record in group):.2f}")
            rows.append([*cells, rate, ratio, cpu])
            rate = ratio = cpu = ""
    return _markdown(rows)


def spark_table(records: Iterable[Record]) -> str:
    """Return a Markdown table of the work of Spark; "" if there is none.

    Rows a second are medians over rounds, with the best and the worst. ``/ floor``, ``/ connector`` and
    ``/ append`` are ratios of medians to that row of the same work; the connector's row is the one with the
    same promise. The last columns are medians of CPU microseconds for each event.
    """
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        if "spark" not in record or record["spark"].startswith(AFTER_PAUSE):
            continue
        # Rows are in the order of the warm-up, in which nobody's turn has moved yet.
        group = groups.setdefault((record["spark"], record["kind"], record["participant"]), [])
        if not record.get("warm_up") and "error" not in record and "unavailable" not in record:
            group.append(record)
    groups = {key: group for key, group in groups.items() if group}
    if not groups:
        return ""
    rates = {key: median(record["events_per_second"] for record in group) for key, group in groups.items()}
    rows: list[Sequence[str]] = [_SPARK_COLUMNS]
    for key, group in groups.items():
        operation, kind, participant = key
        every = [record["events_per_second"] for record in group]
        rows.append(
            (
                operation,
                kind,
                participant,
                _short(rates[key]),
                _short(max(every)),
                _short(min(every)),
                f"{median(record['mb_per_second'] for record in group):.1f}",
                *(
                    ""
                    if reference not in rates or reference == key
                    else f"{rates[key] / rates[reference]:.2f}"
                    for reference in _spark_references(operation, kind, participant)
                ),
                *(
                    _median(
                        [record for record in group if name in record],
                        lambda r, name=name: r[name] / r["events"] * 1e6,
                        "events",
                        lambda v: f"{v:.2f}",
                    )
                    for name in ("jvm_cpu_seconds", "python_cpu_seconds", "server_cpu_seconds")
                ),
            )
        )
    return _markdown(rows, left=(0, 1, 2))


def _spark_references(operation: str, kind: str, participant: str) -> list[tuple[str, str, str]]:
    """Return the values that a row is compared with: floor, connector, append."""
    if operation.startswith("read"):
        floor, connector = "floor, data source", "connector"
    else:
        promise = "at_least_once" if participant.endswith("at_least_once") else "exactly_once"
        floor, connector = "floor", f"connector {promise}"
    # The append without Spark takes its turns with the batch writes.
    append = operation.replace("stream write", "batch write")
    return [
        (operation, kind, floor),
        # a floor promises nothing, and is compared with nobody
        (operation, kind, participant if participant.startswith("floor") else connector),
        (append, kind, participant if participant.startswith("floor") else "pravega_wire append"),
    ]


def pauses(records: Iterable[Record]) -> str:
    """Return a Markdown table of the effect of a pause on the next read; "" if there is none."""
    found: dict[tuple[str, str], dict[float, float]] = {}
    for record in records:
        operation = record.get("spark", "")
        if operation.startswith(AFTER_PAUSE) and "seconds" in record and "error" not in record:
            pause = float(operation.removeprefix(AFTER_PAUSE).removesuffix(" s"))
            found.setdefault((record["kind"], record["participant"]), {})[pause] = record["seconds"]
    rows: list[Sequence[str]] = [_PAUSE_COLUMNS]
    for (kind, participant), seconds in found.items():
        for pause, taken in seconds.items():
            if pause and 0.0 in seconds:
                warm = seconds[0.0]
                rows.append(
                    (kind, participant, f"{warm:.2f}", f"{pause:g}", f"{taken:.2f}", f"{taken / warm:.2f}")
                )
    return _markdown(rows, left=(0, 1)) if len(rows) > 1 else ""


def scale_table(records: Iterable[Record]) -> str:
    """Return a Markdown table of the work of scale; "" if there is none.

    ``CPU ms each`` is the processor time of the whole step divided by what it has many of.
    """
    rows: list[Sequence[str]] = [_SCALE_COLUMNS]
    for record in records:
        if "growing" not in record or "error" in record:
            continue
        rows.append(
            (
                record["growing"],
                str(record["count"]),
                *(
                    f"{record[name]:.1f}" if name in record else ""
                    for name in ("create_seconds", "append_seconds", "read_seconds")
                ),
                f"{record['cpu_seconds'] / record['count'] * 1000:.2f}",
                f"{record['peak_rss'] / 1e6:.0f}" if "peak_rss" in record else "",
                str(record.get("descriptors", "")),
                str(record.get("updates", "")),
            )
        )
    return _markdown(rows, left=(0,)) if len(rows) > 1 else ""


def spark_notes(records: Iterable[Record]) -> str:
    """List the participants that were missing, with reasons, and those that failed; "" if there are none."""
    lines: dict[str, None] = {}
    for record in records:
        for word, text in (("not available", "unavailable"), ("failed", "error")):
            if "spark" in record and text in record:
                lines[
                    f"- {record['spark']}, {record['kind']}, {record['participant']}: {word}: {record[text]}"
                ] = None
    return "\n".join(lines)


def _markdown(rows: Sequence[Sequence[str]], left: Sequence[int] = (0, 3)) -> str:
    """Format rows as a table; the first row is the head, and ``left`` are the columns with text."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    lines = []
    for number, row in enumerate(rows):
        cells = (
            cell.ljust(width) if index in left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append(f"| {' | '.join(cells)} |")
        if number == 0:
            rules = (
                "-" * width if index in left else "-" * (width - 1) + ":"
                for index, width in enumerate(widths)
            )
            lines.append(f"| {' | '.join(rules)} |")
    return "\n".join(lines)


def _median(group: list[Record], value: Any, needs: str, show: Any) -> str:
    found = [value(record) for record in group if record.get(needs)]
    return show(median(found)) if found else ""
