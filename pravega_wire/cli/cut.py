"""The command ``cut``: find, show and compare positions in a stream."""

from __future__ import annotations

import click

from pravega_wire.cli.frame import STREAM, TIME, Session, WireGroup, passed
from pravega_wire.cli.output import Column
from pravega_wire.cli.values import size_text
from pravega_wire.cli.work import cuts, points
from pravega_wire.types import ScopedStream, StreamCut

__all__ = ["COMMAND"]


@click.group(
    cls=WireGroup,
    help="Find, show and compare stream cuts. A cut is a position in every segment of a stream; its text "
    f"is also understood by Java programs. Where a command takes a CUT, it may be {points.HELP}.",
)
def COMMAND() -> None:
    """See ``help``."""


def _print(session: Session, cut: StreamCut) -> None:
    session.out.did(cut.to_text(), cuts.cut_record(cut))


def _named(session: Session, stream: str | None) -> ScopedStream | None:
    return None if stream is None else session.resolved.config.resolve(stream)


@COMMAND.command(
    "now",
    help="Print the cut at the tail of a stream, or at its head.",
    examples=(
        "pravega-wire cut now demo/readings > yesterday.cut",
        "pravega-wire cut now demo/readings --head",
    ),
)
@click.argument("name", metavar="STREAM", type=STREAM)
@click.option("--head", is_flag=True, help="the oldest position that can be read")
@passed
def now(session: Session, name: str, head: bool) -> None:
    """See ``help``."""
    stream = session.resolved.config.resolve(name)
    point = points.Point("head" if head else "tail")
    _print(session, session.call(lambda client: points.resolve(client, stream, point)))


@COMMAND.command(
    "at",
    help="Print the last known cut before which all events are older than a time. It needs watermarks, "
    "which the controller makes from the event times that writers report.",
    examples=(
        "pravega-wire cut at demo/readings 2026-01-31T12:00:00Z",
        "pravega-wire cut at demo/readings -- -1h",
    ),
)
@click.argument("name", metavar="STREAM", type=STREAM)
@click.argument("time", type=TIME, metavar="TIME")
@passed
def at(session: Session, name: str, time: int) -> None:
    """See ``help``."""
    stream = session.resolved.config.resolve(name)
    point = points.Point("time", time=time)
    _print(session, session.call(lambda client: points.resolve(client, stream, point)))


@COMMAND.command(
    "show",
    help="Show the segments and offsets of a cut.",
    examples=("pravega-wire cut show @yesterday.cut", "pravega-wire cut show tail --stream demo/readings"),
)
@click.argument("cut", metavar="CUT")
@click.option("--stream", metavar="STREAM", help="the stream, if CUT is not the text of a cut")
@passed
def show(session: Session, cut: str, stream: str | None) -> None:
    """See ``help``."""
    point = points.parse_point(cut)
    about = cuts.stream_of((point,), _named(session, stream))
    found = point.cut or session.call(lambda client: points.resolve(client, about, point))
    record = cuts.cut_record(found)
    if session.out.as_json:
        session.out.json(record)
        return
    rows = [
        {"stream": record["stream"], "segment": segment, "offset": offset}
        for segment, offset in record["positions"].items()
    ]
    session.out.rows(
        rows, [Column("stream", "STREAM"), Column("segment", "SEGMENT"), Column("offset", "OFFSET", "number")]
    )


@COMMAND.command(
    "compare",
    help="Print how cut A relates to cut B: before, after, equal or overlapping.",
    examples=("pravega-wire cut compare @yesterday.cut tail",),
)
@click.argument("one", metavar="A")
@click.argument("other", metavar="B")
@click.option("--stream", metavar="STREAM", help="the stream, if neither is the text of a cut")
@passed
def compare(session: Session, one: str, other: str, stream: str | None) -> None:
    """See ``help``."""
    first, second = points.parse_point(one), points.parse_point(other)
    about = cuts.stream_of((first, second), _named(session, stream))
    order = session.call(lambda client: cuts.compare(client, about, first, second))
    session.out.did(order.value, {"stream": str(about), "order": order.value})


@COMMAND.command(
    "distance",
    help="Print the number of bytes from cut A to cut B (default: the tail), event headers included.",
    examples=(
        "pravega-wire cut distance @yesterday.cut",
        "pravega-wire cut distance head --stream demo/readings",
    ),
)
@click.argument("start", metavar="A")
@click.argument("end", metavar="[B]", default="tail")
@click.option("--stream", metavar="STREAM", help="the stream, if neither is the text of a cut")
@passed
def distance(session: Session, start: str, end: str, stream: str | None) -> None:
    """See ``help``."""
    first, second = points.parse_point(start), points.parse_point(end)
    about = cuts.stream_of((first, second), _named(session, stream))
    found = session.call(lambda client: cuts.distance(client, about, first, second))
    shown = size_text(found["bytes"]) if session.out.human else str(found["bytes"])
    session.out.did(shown, found)
