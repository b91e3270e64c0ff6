"""Pictures of the results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.report import REFERENCE, size_name

__all__ = ["draw"]

_COLOURS = {1: "#1f77b4", 4: "#ff7f0e"}


def draw(records: Sequence[dict[str, Any]], file: Path) -> None:
    """Draw rates beside the reference's, and where there are results of scale, their growth.

    :param records: those of a run.
    :param file: a PNG file for the rates; the growth goes to ``<stem>-scale.png`` beside it.
    :raises SystemExit: matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
    except ImportError:
        raise SystemExit("error: --picture needs matplotlib: pip install matplotlib") from None
    mpl.use("agg")
    rates = [
        record
        for record in records
        if not record.get("warm_up")
        and "events_per_second" in record
        and not {"p50_ms", "spark", "growing"} & record.keys()
    ]
    if rates:
        _draw_rates(rates, file)
    growth = [record for record in records if "growing" in record and "error" not in record]
    if growth:
        _draw_growth(growth, file.with_name(f"{file.stem}-scale{file.suffix}"))


def _draw_rates(records: Sequence[dict[str, Any]], file: Path) -> None:
    """One panel for each operation and size: ratios to the reference's median, best and worst as whiskers."""
    import matplotlib.pyplot as plt

    panels: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for record in records:
        panels.setdefault((record["operation"], record["size"]), []).append(record)
    operations = list(dict.fromkeys(operation for operation, _ in panels))
    sizes = list(dict.fromkeys(size for _, size in panels))
    figure, grid = plt.subplots(
        len(operations),
        len(sizes),
        figsize=(5 * len(sizes), 2.6 * len(operations)),
        squeeze=False,
        sharex=True,
    )
    for row, operation in enumerate(operations):
        for column, size in enumerate(sizes):
            axes, found = grid[row][column], panels.get((operation, size), [])
            names = list(
                dict.fromkeys(each["participant"] for each in found if each["participant"] != REFERENCE)
            )
            for segments, colour in _COLOURS.items():
                reference = _rates(found, REFERENCE, segments)
                if not reference:
                    continue
                for place, name in enumerate(names):
                    every = [rate / median(reference) for rate in _rates(found, name, segments)]
                    if every:
                        y = place + (0.15 if segments == 1 else -0.15)
                        axes.plot([min(every), max(every)], [y, y], color=colour, linewidth=1.5)
                        axes.plot(
                            median(every), y, "o", color=colour, markersize=5,
                            label=f"{segments} segment{'s' * (segments > 1)}" if place == 0 else None,
                        )  # fmt: skip
            axes.axvline(1, color="black", linewidth=0.8)
            axes.set_xscale("log")
            axes.set_xticks([0.25, 0.5, 1, 2, 4], ["¼", "½", "1", "2", "4"])
            axes.set_xticks([], minor=True)
            axes.set_yticks(range(len(names)), names, fontsize=8)
            axes.set_ylim(-0.6, max(0.6, len(names) - 0.4))
            axes.grid(axis="x", linewidth=0.3)
            axes.set_title(f"{operation}, {size_name(size, found[0]) if found else size}", fontsize=10)
    grid[0][0].legend(fontsize=8, loc="lower right")
    figure.supxlabel(f"events a second, relative to {REFERENCE} (median, worst and best round)", fontsize=9)
    figure.tight_layout()
    figure.savefig(file, dpi=110)
    plt.close(figure)


def _rates(records: Iterable[dict[str, Any]], participant: str, segments: int) -> list[float]:
    return [
        record["events_per_second"]
        for record in records
        if (record["participant"], record["segments"]) == (participant, segments)
    ]


def _draw_growth(records: Sequence[dict[str, Any]], file: Path) -> None:
    """Processor time and memory, each divided by the number of what there is more and more of."""
    import matplotlib.pyplot as plt

    figure, (time_axes, memory_axes) = plt.subplots(1, 2, figsize=(10, 3.8))
    for kind in dict.fromkeys(record["growing"] for record in records):
        of_kind = [record for record in records if record["growing"] == kind]
        counts = [record["count"] for record in of_kind]
        if not kind.startswith("simulated"):
            time_axes.plot(
                counts, [each["cpu_seconds"] * 1000 / each["count"] for each in of_kind], "o-", label=kind
            )
            memory_axes.plot(counts, [each["peak_rss"] / 1e6 for each in of_kind], "o-", label=kind)
    time_axes.set_ylabel("client's processor time, ms for each")
    memory_axes.set_ylabel("client's memory at most, MB")
    for axes in (time_axes, memory_axes):
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("how many")
        axes.grid(linewidth=0.3)
        axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(file, dpi=110)
    plt.close(figure)
