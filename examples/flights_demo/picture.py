"""Draws what happened: rate, delay, and the segments over the key space."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.patches import Rectangle

from examples.flights_demo.data import Delay

__all__ = ["Batch", "Sample", "Segment", "Story", "draw", "visible_events"]


@dataclass(frozen=True, slots=True)
class Sample:
    """The tail of the stream at one moment: the offset in bytes of each active segment."""

    time: float
    tail: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment: its key range, and the offset in bytes of each event, ascending."""

    segment_id: int
    low: float
    high: float
    offsets: Sequence[int]


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch: when it was first started, and when it became visible."""

    number: int
    begun: float
    visible: float


@dataclass(frozen=True, slots=True)
class Story:
    """The data for the picture. Times are seconds since 1970.

    :ivar epochs: ids of the segments of each epoch of the stream, in order.
    :ivar moments: actions on the job and the stream, with their times.
    :ivar shown: number of flights that the departure board had seen, with times.
    """

    start: float
    samples: Sequence[Sample]
    batches: Sequence[Batch]
    segments: Mapping[int, Segment]
    epochs: Sequence[Sequence[int]]
    moments: Sequence[tuple[float, str]]
    delays: Mapping[tuple[str, int], Delay]
    shown: Sequence[tuple[float, int]]


def visible_events(sample: Sample, segments: Mapping[int, Segment]) -> int:
    """Return the number of events that could be read at the time of a sample."""
    newest = max((segment_id >> 32 for segment_id in sample.tail), default=-1)
    count = 0
    for segment in segments.values():
        end = sample.tail.get(segment.segment_id)
        if end is not None:
            count += bisect_left(segment.offsets, end)
        elif segment.segment_id >> 32 < newest:
            count += len(segment.offsets)  # sealed by then
    return count


def draw(story: Story, path: Path) -> None:
    """Write the picture to a PNG file."""
    figure, ((rate, heat), (delay, airports)) = plt.subplots(2, 2, figsize=(15, 9))
    _rate(rate, story)
    _delay(delay, story)
    _heat(heat, story)
    _airports(airports, story)
    figure.suptitle("336 776 flights, exactly once" if _whole(story) else "flights, exactly once")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _whole(story: Story) -> bool:
    return sum(len(segment.offsets) for segment in story.segments.values()) == 336_776


def _mark(axes: Axes, story: Story) -> None:
    for time, label in story.moments:
        axes.axvline(time - story.start, color="tab:red", linestyle="--", linewidth=1)
        axes.annotate(
            label,
            (time - story.start, 1),
            xycoords=("data", "axes fraction"),
            xytext=(3, -4),
            textcoords="offset points",
            rotation=90,
            va="top",
            fontsize=8,
            color="tab:red",
        )


def _rate(axes: Axes, story: Story) -> None:
    times = [sample.time - story.start for sample in story.samples]
    counts = [visible_events(sample, story.segments) for sample in story.samples]
    window = 8
    rates = [
        (counts[i] - counts[i - window]) / (times[i] - times[i - window]) for i in range(window, len(counts))
    ]
    axes.plot(times[window:], rates, linewidth=1)
    axes.set(title="rate: flights becoming readable", xlabel="seconds", ylabel="events/s")
    axes.set_ylim(bottom=0)
    total = axes.twinx()
    total.plot(times, counts, color="tab:gray", linewidth=1, alpha=0.7)
    total.step(
        [time - story.start for time, _ in story.shown],
        [seen for _, seen in story.shown],
        where="post", color="tab:green", linewidth=1, label="seen by the departure board",
    )  # fmt: skip
    total.legend(loc="lower right", fontsize=8)
    total.set_ylabel("readable events", color="tab:gray")
    _mark(axes, story)


def _delay(axes: Axes, story: Story) -> None:
    axes.bar(
        [batch.begun - story.start for batch in story.batches],
        [batch.visible - batch.begun for batch in story.batches],
        width=0.6,
        align="edge",
    )
    axes.set(
        title="delay: from a batch's first begin until it is readable",
        xlabel="seconds (begin of the batch)",
        ylabel="seconds",
    )
    _mark(axes, story)


def _heat(axes: Axes, story: Story) -> None:
    def density(segment: Segment) -> float:
        return len(segment.offsets) / (segment.high - segment.low)

    shade = Normalize(0, max(map(density, story.segments.values()), default=1))
    colours = plt.get_cmap("YlOrRd")
    drawn = set()
    for epoch, ids in enumerate(story.epochs):
        for segment_id in ids:
            if segment_id in drawn:
                continue
            drawn.add(segment_id)
            segment = story.segments[segment_id]
            last = max(e for e, there in enumerate(story.epochs) if segment_id in there)
            axes.add_patch(
                Rectangle(
                    (epoch, segment.low),
                    last + 1 - epoch,
                    segment.high - segment.low,
                    facecolor=colours(shade(density(segment))),
                    edgecolor="black",
                )
            )
            dark = shade(density(segment)) > 0.6
            axes.text(
                (epoch + last + 1) / 2,
                (segment.low + segment.high) / 2,
                f"{segment_id & 0xFFFFFFFF}.#epoch.{segment_id >> 32}\n{len(segment.offsets)}",
                ha="center",
                va="center",
                fontsize=7,
                color="white" if dark else "black",
            )
    axes.set(
        xlim=(0, max(1, len(story.epochs))),
        ylim=(0, 1),
        title="segments: events in each range of the key space",
        xlabel="epoch of the stream",
        ylabel="hash of the carrier",
    )
    numbers = range(len(story.epochs))
    axes.set_xticks([number + 0.5 for number in numbers], [str(number) for number in numbers])
    mappable = plt.cm.ScalarMappable(shade, colours)
    axes.figure.colorbar(mappable, ax=axes, label="events per unit of key space")


def _airports(axes: Axes, story: Story) -> None:
    for airport in sorted({airport for airport, _ in story.delays}):
        hours = sorted(hour for name, hour in story.delays if name == airport)
        means = [story.delays[airport, hour].minutes / story.delays[airport, hour].flights for hour in hours]
        axes.plot(hours, means, marker="o", markersize=3, label=airport)
    axes.set(
        title="from the stream: mean departure delay",
        xlabel="scheduled hour of departure",
        ylabel="minutes",
    )
    axes.set_xticks(range(5, 24, 2))
    axes.legend()
