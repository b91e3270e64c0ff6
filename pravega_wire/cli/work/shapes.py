"""The segments of a stream as rectangles: part of the key space, and the epochs in which they were active."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from pravega_wire.cli.work.streams import epochs_of, segment_label
from pravega_wire.values.cuts import StreamLayout

__all__ = ["Shape", "draw_text", "shapes_of", "svg"]

_SHADES: Final = " ░▒▓█"
_LOW: Final = (222, 235, 247)
_HIGH: Final = (8, 48, 107)


@dataclass(frozen=True, slots=True)
class Shape:
    """A segment.

    :ivar segment: its short name.
    :ivar low: start of its part of the key space.
    :ivar high: end of its part of the key space.
    :ivar first: the first epoch in which it was active.
    :ivar last: the last one.
    :ivar bytes: bytes that were written to it; None if it was deleted by truncation.
    :ivar active: whether it takes events.
    """

    segment: str
    low: float
    high: float
    first: int
    last: int
    bytes: int | None
    active: bool

    def record(self) -> dict[str, Any]:
        """Return the segment as a record."""
        return asdict(self)


def shapes_of(layout: StreamLayout) -> list[Shape]:
    """Return the segments of a stream, in the order of their ids."""
    epochs = epochs_of(layout)
    return [
        Shape(
            segment_label(each.segment_id),
            each.low,
            each.high,
            min(epoch for epoch, active in epochs.items() if each in active),
            max(epoch for epoch, active in epochs.items() if each in active),
            each.length,
            not each.sealed,
        )
        for each in layout.segments
    ]


def heat(shape: Shape, all_shapes: Sequence[Shape]) -> float:
    """Return how much was written to each part of the key space of a segment: from 0 to 1, the most of all.

    Segments are compared by the logarithm of bytes for one key range of the same width.
    """
    most = max((_density(each) for each in all_shapes), default=0.0)
    return 0.0 if most == 0 else math.log1p(_density(shape)) / math.log1p(most)


def _density(shape: Shape) -> float:
    return 0.0 if not shape.bytes else shape.bytes / (shape.high - shape.low)


def _columns(shapes: Sequence[Shape], most: int) -> list[int]:
    """Return the epochs to show: the last ones, if there are too many."""
    last = max((each.last for each in shapes), default=0)
    return list(range(max(0, last + 1 - most), last + 1))


def draw_text(shapes: Sequence[Shape], *, height: int = 16, width: int = 60) -> list[str]:
    """Draw segments with characters: epochs from left to right, keys from bottom to top.

    :param shapes: the segments.
    :param height: number of lines for the key space.
    :param width: number of characters for the epochs.
    """
    epochs = _columns(shapes, width // 3)
    each_width = max(3, min(12, width // max(1, len(epochs))))
    lines = []
    for row in reversed(range(height)):
        middle = (row + 0.5) / height
        text = []
        for epoch in epochs:
            found = next(
                (
                    each
                    for each in shapes
                    if each.low <= middle < each.high and each.first <= epoch <= each.last
                ),
                None,
            )
            shade = " " if found is None else _SHADES[round(heat(found, shapes) * (len(_SHADES) - 1))]
            border = "│" if found is not None and found.first == epoch else shade
            # A border between two segments above each other.
            edge = found is not None and row / height <= found.low < (row + 1) / height and found.low > 0
            text.append(
                ("├" if border == "│" and edge else border) + ("─" if edge else shade) * (each_width - 1)
            )
        label = f"{(row + 1) / height:4.2f}" if (row + 1) % max(1, height // 4) == 0 else "    "
        lines.append(f"{label} {''.join(text)}│")
    lines.append("0.00 " + "└" + "─" * (each_width * len(epochs) - 1) + "┘")
    lines.append("     " + "".join(str(epoch).ljust(each_width) for epoch in epochs).rstrip())
    return lines


def _colour(share: float) -> str:
    parts = (round(low + (high - low) * share) for low, high in zip(_LOW, _HIGH, strict=True))
    return "#" + "".join(f"{each:02x}" for each in parts)


def svg(title: str, shapes: Sequence[Shape]) -> str:
    """Draw segments as a picture in SVG.

    :param title: the heading.
    :param shapes: the segments.
    """
    last = max((each.last for each in shapes), default=0)
    column = max(24, min(120, 960 // (last + 1)))
    left, top, height = 60, 40, 400
    width = left + column * (last + 1) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{top + height + 50}" '
        'font-family="sans-serif" font-size="12">',
        f'<text x="{left}" y="24" font-size="16">{html.escape(title)}</text>',
    ]
    for each in shapes:
        share = heat(each, shapes)
        x, y = left + column * each.first, top + height * (1 - each.high)
        wide, high = column * (each.last - each.first + 1), height * (each.high - each.low)
        about = f"segment {each.segment}, keys {each.low:g} to {each.high:g}, "
        about += "deleted" if each.bytes is None else f"{each.bytes} bytes"
        parts.append(
            f'<rect x="{x}" y="{y:.2f}" width="{wide}" height="{high:.2f}" fill="{_colour(share)}" '
            f'stroke="white"><title>{html.escape(about)}'
            "</title></rect>"
        )
    parts += [
        f'<text x="{left - 8}" y="{top + height * (1 - key) + 4:.0f}" text-anchor="end">{key:g}</text>'
        for key in (0.0, 0.25, 0.5, 0.75, 1.0)
    ]
    step = max(1, (last + 1) // 20)
    below = top + height + 18
    parts += [
        f'<text x="{left + column * (epoch + 0.5):.0f}" y="{below}" text-anchor="middle">{epoch}</text>'
        for epoch in range(0, last + 1, step)
    ]
    parts.append(
        f'<text x="{left}" y="{top + height + 38}">epoch; darker: more bytes for the same keys</text>'
    )
    parts.append("</svg>\n")
    return "\n".join(parts)
