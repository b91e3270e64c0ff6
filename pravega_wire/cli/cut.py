"""The command ``cut``: find, show and compare positions in a stream."""

from __future__ import annotations

import click

from pravega_wire.cli.frame import STREAM, TIME, Session, WireGroup, passed
from pravega_wire.cli.output import Column
from pravega_wire.cli.values import size_text
from pravega_wire.cli.work import cuts, points
from pravega_wire.values.types import StreamCut

__all__ = ["COMMAND"]


@click.group(
    cls=WireGroup,
    help="Find, show and compare stream cuts. A cut is a position in every segment of a stream; its text "
    f"is also understood by Java programs. Where a command takes a CUT, it may be {points.HELP}.",
)
def COMMAND() -> None:
    pass


def _print(session: Session, cut: StreamCut) -> None:
    session.out.did(cut.to_text(), cuts.cut_record(cut))


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
    stream = session.resolved.config.resolve(name)
    point = points.Point("time", time=time)
    _print(session, session.call(lambda client: points.resolve(client, stream, point)))


@COMMAND.command(
    "show",
    help="Show the segments and offsets of a cut.",
    examples=(
        "pravega-wire cut show demo/readings @yesterday.cut",
        "pravega-wire cut show demo/readings tail",
    ),
)
@click.argument("name", metavar="STREAM", type=STREAM)
@click.argument("cut", metavar="CUT")
@passed
def show(session: Session, name: str, cut: str) -> None:
    point = points.parse_point(cut)
    stream = session.resolved.config.resolve(name)
    if point.kind == "cut":
        found = points.own_cut(stream, point)
    else:
        found = session.call(lambda client: points.resolve(client, stream, point))
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
    examples=("pravega-wire cut compare demo/readings @yesterday.cut tail",),
)
@click.argument("name", metavar="STREAM", type=STREAM)
@click.argument("one", metavar="A")
@click.argument("other", metavar="B")
@passed
def compare(session: Session, name: str, one: str, other: str) -> None:
    first, second = points.parse_point(one), points.parse_point(other)
    stream = session.resolved.config.resolve(name)
    order = session.call(lambda client: cuts.compare(client, stream, first, second))
    session.out.did(order.value, {"stream": str(stream), "order": order.value})


@COMMAND.command(
    "distance",
    help="Print the number of bytes from cut A to cut B (default: the tail), event headers included.",
    examples=(
        "pravega-wire cut distance demo/readings @yesterday.cut",
        "pravega-wire cut distance demo/readings head tail",
    ),
)
@click.argument("name", metavar="STREAM", type=STREAM)
@click.argument("start", metavar="A")
@click.argument("end", metavar="[B]", default="tail")
@passed
def distance(session: Session, name: str, start: str, end: str) -> None:
    first, second = points.parse_point(start), points.parse_point(end)
    stream = session.resolved.config.resolve(name)
    found = session.call(lambda client: cuts.distance(client, stream, first, second))
    shown = size_text(found["bytes"]) if session.out.human else str(found["bytes"])
    session.out.did(shown, found)
