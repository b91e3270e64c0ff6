"""The command ``heatmap``: draw the segments of a stream over its epochs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from pravega_wire.cli.frame import STREAM, Session, WireCommand, passed
from pravega_wire.cli.work import shapes
from pravega_wire.errors import InvalidArgumentError, MissingExtraError

__all__ = ["COMMAND"]


@click.command(
    cls=WireCommand,
    name="heatmap",
    help="Draw the segments of a stream: epochs from left to right (each scale begins one), keys from "
    "bottom to top, darker where more bytes were written for the same keys. With --output it makes a "
    "picture: .svg, or .png and .pdf where matplotlib is installed.",
    examples=(
        "pravega-wire heatmap demo/readings",
        "pravega-wire heatmap demo/readings --output readings.svg",
    ),
)
@click.argument("name", metavar="STREAM", type=STREAM)
@click.option("--output", "-o", type=click.Path(path_type=Path), metavar="FILE", help="draw a picture")
@click.option(
    "--height", type=click.IntRange(4, 200), default=16, show_default=True, metavar="N", help="lines"
)
@passed
def COMMAND(session: Session, name: str, output: Path | None, height: int) -> None:
    stream = session.resolved.config.resolve(name)
    found = shapes.shapes_of(session.call(lambda client: client.stream_layout(stream)))
    if output is not None:
        _picture(output, f"Segments of {stream}", found)
        session.out.did(
            f"{len(found)} segments drawn to {output}", {"file": str(output), "segments": len(found)}
        )
    elif session.out.as_json:
        for each in found:
            session.out.json(each.record())
    else:
        for line in shapes.draw_text(found, height=height):
            session.out.line(line)


def _picture(path: Path, title: str, found: Sequence[shapes.Shape]) -> None:
    suffix = path.suffix.lower()
    if suffix == ".svg":
        path.write_text(shapes.svg(title, found), encoding="utf-8")
        return
    if suffix not in (".png", ".pdf"):
        raise InvalidArgumentError(f"{path}: the picture's name must end in .svg, .png or .pdf")
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise MissingExtraError(
            f"{suffix} needs matplotlib: pip install matplotlib (or draw an .svg)"
        ) from error
    mpl.use("Agg")
    from matplotlib import pyplot
    from matplotlib.patches import Rectangle

    figure, axes = pyplot.subplots(figsize=(10, 5))
    for each in found:
        size = (each.last - each.first + 1, each.high - each.low)
        colour = mpl.colormaps["Blues"](0.1 + 0.9 * shapes.heat(each, found))
        axes.add_patch(Rectangle((each.first, each.low), *size, facecolor=colour, edgecolor="white"))
    axes.set(
        xlim=(0, max(each.last for each in found) + 1),
        ylim=(0, 1),
        xlabel="epoch",
        ylabel="keys",
        title=title,
    )
    figure.savefig(path)
    pyplot.close(figure)
