#!/usr/bin/env python3
"""Write the pictures of ``docs/benchmarks.md`` from the tables of ``docs/benchmarks-how.md``.

They are SVG files in ``docs/pictures/`` with a background of their own, and colours for light and dark pages.
``--check`` only compares. Needs the standard library only.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLES = ROOT / "docs" / "benchmarks-how.md"
PICTURES = ROOT / "docs" / "pictures"

WIDTH, LABELS, VALUES, EDGE = 560, 170, 64, 16
"""Of a picture, of the names at its left, of the numbers at its right, and of the space around."""

BAR, GAP = 13, 7
"""Height of a bar, and the space between two names."""

STYLE = """
svg { --paper: #fff; --ink: #22282e; --soft: #5f6b76; --line: #d5dadf; --mark: #c2410c; }
svg { --a: #00796b; --b: #66b2a5; }
@media (prefers-color-scheme: dark) {
  svg { --paper: #22242e; --ink: #e3e6ea; --soft: #a4adb8; --line: #454a57; --mark: #ffa36b; }
  svg { --a: #4db6a6; --b: #2a7f73; }
}
text { fill: var(--ink); font: 14px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
.paper { fill: var(--paper); }
.a { fill: var(--a); }
.b { fill: var(--b); }
.head { font-weight: 600; }
.soft { fill: var(--soft); font-size: 12.5px; }
.name { fill: var(--mark); }
.end { text-anchor: end; }
.middle { text-anchor: middle; }
.grid { stroke: var(--line); }
.reference { stroke: var(--mark); stroke-width: 1.5; }
.spread { stroke: var(--ink); stroke-width: 1.2; opacity: .65; }
"""

Row = Mapping[str, str]


@dataclass(frozen=True)
class Bar:
    """A bar, the number at its right, and the slowest and the fastest round."""

    value: float
    shown: str
    spread: tuple[float, float] | None = None


@dataclass(frozen=True)
class Panel:
    """A heading, a remark at its right, and under it names with a bar for each kind."""

    title: str
    note: str
    bars: Mapping[str, Sequence[Bar]]


def tables(text: str) -> list[Row]:
    """The rows of all tables that begin with the column "operation", as ``scripts/bench`` prints them."""
    rows: list[Row] = []
    header: list[str] = []
    for line in text.splitlines():
        cells = [each.strip() for each in line.split("|")[1:-1]]
        if not cells or not header:
            header = cells
        elif header[0] == "operation" and cells[0].strip("-"):
            rows.append(dict(zip(header, cells, strict=True)))
    return rows


def number(text: str) -> float:
    """``1.09M``, ``769k`` and ``281`` as numbers."""
    return float(text.rstrip("Mk")) * {"M": 1e6, "k": 1e3}.get(text[-1:], 1.0)


def _row(rows: Iterable[Row], **wanted: str) -> Row:
    found = [row for row in rows if wanted.items() <= row.items()]
    if len(found) != 1:
        raise SystemExit(f"error: {TABLES.name} has {len(found)} rows with {wanted}")
    return found[0]


def _beside(row: Row, base: Row, names: Sequence[str] = ("events/s", "ratio", "min", "max")) -> Bar:
    """The table's ratio; its spread by the median of the other one."""
    rate, ratio, low, high = names
    median = number(base[rate])
    return Bar(number(row[ratio]), row[ratio], (number(row[low]) / median, number(row[high]) / median))


def _rates(rows: Sequence[Row], operation: str, participants: Mapping[str, str]) -> list[Panel]:
    panels = []
    sizes = {"60-140 B": "60 to 140 B", "600-1400 B": "600 to 1400 B", "60-140 kB": "60 to 140 kB"}
    for size, words in sizes.items():
        bars: dict[str, list[Bar]] = {}
        rates = []
        for segments in ("1", "4"):
            where = {"operation": operation, "event": size, "seg": segments}
            java = _row(rows, participant="java", **where)
            rates.append(java["events/s"])
            for participant, name in participants.items():
                bars.setdefault(name, []).append(_beside(_row(rows, participant=participant, **where), java))
        panels.append(Panel(f"Events of {words}", f"Java: {' and '.join(rates)} events a second", bars))
    return panels


def _latency(rows: Sequence[Row]) -> list[Panel]:
    panels = []
    for segments, title in (("1", "1 segment"), ("4", "4 segments")):
        bars: dict[str, list[Bar]] = {}
        for size in ("100 B", "1 kB"):
            for participant, name in (("pravega_wire", "this client"), ("java", "Java")):
                row = _row(rows, operation="latency", event=size, seg=segments, participant=participant)
                times = [row[column] for column in ("p50 ms", "p99 ms")]
                bars[f"{size}, {name}"] = [Bar(number(time), time) for time in times]
        panels.append(Panel(title, "", bars))
    return panels


def _far(rows: Sequence[Row]) -> list[Panel]:
    panels = []
    for work, title in (("append", "Appending"), ("read", "Reading")):
        bars: dict[str, list[Bar]] = {}
        for delay in ("0 ms", "10 ms", "50 ms", "200 ms"):
            where = {"operation": f"{work}, {delay}", "event": "1 kB"}
            found = [_row(rows, participant=name, **where) for name in ("pravega_wire", "java")]
            # An event of 1 kB, so thousands a second are MB a second.
            bars[f"{delay} away"] = [
                Bar(
                    number(row["events/s"]) / 1000,
                    row["MB/s"],
                    (number(row["min"]) / 1000, number(row["max"]) / 1000),
                )
                for row in found
            ]
        panels.append(Panel(title, "", bars))
    return panels


def _spark(rows: Sequence[Row]) -> list[Panel]:
    reads = {"read_df": ("read_df", "connector"), "format": ("format", "connector")}
    writes = {
        words: (f"format {mode}", f"connector {mode}")
        for words, mode in (("at least once", "at_least_once"), ("exactly once", "exactly_once"))
    }
    panels = []
    for title, operation, pairs in (
        ("Reading all columns", "read to no-op", reads),
        ("Writing, batch", "batch write", writes),
        ("Writing, streaming query", "stream write", writes),
    ):
        bars: dict[str, list[Bar]] = {}
        for name, (ours, theirs) in pairs.items():
            for size in ("100B", "1kB"):
                where = {"operation": operation, "events": size}
                one, other = (_row(rows, participant=each, **where) for each in (ours, theirs))
                bars.setdefault(name, []).append(
                    _beside(one, other, ("rows/s", "/ connector", "worst", "best"))
                )
        panels.append(Panel(title, "", bars))
    return panels


def pictures(text: str) -> dict[str, str]:
    """Each picture by its file name."""
    rows = tables(text)
    segments = ("1 segment", "4 segments")
    native = {"pravega 0.3.8": "pravega 0.3.8"}
    raw = {"raw frames": "raw frames"}
    append = {"pravega_wire": "write_events", "pravega_wire write_event": "write_event"}
    read = {"pravega_wire": "bytes objects", "pravega_wire batches": "batches"}
    group = {"pravega_wire": "async for", "pravega_wire payloads": "payloads"}
    batches = {"pravega_wire batches": "batches"}
    return {
        "bench-append.svg": draw(
            "Rates of appending, beside Java",
            _rates(rows, "append", append | native | raw), segments, "Java = 1",
        ),
        "bench-read.svg": draw(
            "Rates of batch reads, beside Java",
            _rates(rows, "read", read | native | raw), segments, "Java = 1",
        ),
        "bench-group.svg": draw(
            "Rates of a reader group, beside Java",
            _rates(rows, "group", group | batches | native), segments, "Java = 1",
        ),
        "bench-latency.svg": draw(
            "Milliseconds from writing to reading", _latency(rows), ("median, ms", "99th percentile, ms"), ""
        ),
        "bench-far.svg": draw(
            "MB a second with a store that is far away", _far(rows), ("this client, MB/s", "Java, MB/s"), ""
        ),
        "bench-spark.svg": draw(
            "Rows a second in Spark, beside the Scala connector",
            _spark(rows), ("100 B", "1 kB"), "connector = 1",
        ),
    }  # fmt: skip


# --- drawing -------------------------------------------------------------------------------------


def draw(title: str, panels: Sequence[Panel], kinds: Sequence[str], reference: str) -> str:
    """Horizontal bars from zero, with the spread of the rounds as a line.

    :param kinds: what the first and the second bar of a name are.
    :param reference: words for the line at 1; "" for bars that are not ratios.
    """
    every = [bar for panel in panels for bars in panel.bars.values() for bar in bars]
    highest = max(max(bar.value, *(bar.spread or (0.0,))) for bar in every)
    scale = (WIDTH - LABELS - VALUES) / highest
    step = next(step for step in (0.5, 1, 2, 5, 10, 20, 50, 100, 200) if highest / step <= 6)
    ticks = [LABELS + step * scale * index for index in range(int(highest / step) + 1)]
    y = 26.0
    parts = _legend(kinds, y, any(bar.spread for bar in every))
    y += 14
    for panel in panels:
        y += 22
        parts.append(_text(EDGE, y, "head", panel.title))
        parts.append(_text(WIDTH - EDGE, y, "soft end", panel.note))
        y += 12
        top, bars = y - 3, list[str]()
        for name, pair in panel.bars.items():
            bars.append(_text(LABELS - 10, y + BAR * len(pair) / 2 + 5, "end", name))
            for bar, colour in zip(pair, "ab", strict=False):
                bars += _bar(bar, colour, y, scale)
                y += BAR
            y += GAP
        parts += [_line("grid", at, at, top, y - 3) for at in ticks]
        parts += bars
        if reference:
            parts.append(_line("reference", LABELS + scale, LABELS + scale, top, y - 3))
    if reference:
        y += 11
        parts.append(_text(LABELS + scale, y, "soft name middle", reference))
    y += 12
    size = f'width="{WIDTH}" height="{y:.0f}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {WIDTH} {y:.0f}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}</style>",
            f'<rect class="paper" {size} rx="8"/>',
            *(part for part in parts if part),
            "</svg>\n",
        ]
    )


def _legend(kinds: Sequence[str], y: float, spread: bool) -> list[str]:
    parts = []
    x = float(EDGE)
    for kind, colour in zip(kinds, "ab", strict=False):
        parts.append(f'<rect class="{colour}" x="{x:.0f}" y="{y - 11:.0f}" width="13" height="13" rx="2"/>')
        parts.append(_text(x + 19, y, "soft", kind))
        x += 40 + 7 * len(kind)
    if spread:
        parts.append(_text(WIDTH - EDGE, y, "soft end", "line: slowest to fastest round"))
    return parts


def _bar(bar: Bar, colour: str, y: float, scale: float) -> list[str]:
    middle = y + BAR / 2
    box = f'x="{LABELS}" y="{y + 1:.1f}" width="{bar.value * scale:.1f}" height="{BAR - 2}"'
    parts = [f'<rect class="{colour}" {box} rx="1"/>']
    end = bar.value
    if bar.spread:
        low, high = bar.spread
        end = max(end, high)
        parts.append(_line("spread", LABELS + low * scale, LABELS + high * scale, middle, middle))
    return [*parts, _text(LABELS + end * scale + 6, middle + 4.5, "soft", bar.shown)]


def _text(x: float, y: float, kind: str, words: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>' if words else ""


def _line(kind: str, x1: float, x2: float, y1: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}"/>'


def main() -> int:
    made = pictures(TABLES.read_text(encoding="utf-8"))
    if sys.argv[1:] != ["--check"]:
        for name, text in made.items():
            (PICTURES / name).write_text(text, encoding="utf-8")
        return 0
    paths = [PICTURES / name for name in made]
    old = [path for path in paths if not path.exists() or path.read_text(encoding="utf-8") != made[path.name]]
    for path in old:
        print(
            f"{path.relative_to(ROOT)} is not what the tables say: run scripts/gen_pictures.py",
            file=sys.stderr,
        )
    return 1 if old else 0


if __name__ == "__main__":
    raise SystemExit(main())
