"""The command ``top``: watch the rates of streams and the lag of reader groups."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

import click

from pravega_wire.cli.frame import DURATION, GROUP, STREAM, Session, WireCommand, passed
from pravega_wire.cli.output import Column, is_dumb
from pravega_wire.cli.values import time_text
from pravega_wire.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pravega_wire.cli.work import watching
    from pravega_wire.stream.client import PravegaClient

__all__ = ["COMMAND"]

_STREAMS = [
    Column("stream", "STREAM"),
    Column("segments", "SEGMENTS", "number"),
    Column("bytes_per_second", "WRITTEN/S", "size"),
]
_GROUPS = [
    Column("group", "GROUP"),
    Column("readers", "READERS", "number"),
    Column("lag", "LAG", "size"),
    Column("lag_per_second", "CHANGE/S", "size"),
]
_ERROR = Column("error", "ERROR")


@click.command(
    cls=WireCommand,
    name="top",
    help="Watch streams and reader groups until Ctrl-C: segments and bytes written per second of each "
    "STREAM (or of all streams of the default scope), readers and lag of each group. The server counts no "
    "events, so rates are in bytes. The first sample has no rates.",
    examples=(
        "pravega-wire top --scope demo",
        "pravega-wire top demo/readings --interval 5s",
        "pravega-wire top demo/readings --json --count 10 > rates.jsonl",
    ),
)
@click.argument("names", metavar="[STREAM]...", type=STREAM, nargs=-1)
@click.option(
    "--group",
    "group_names",
    multiple=True,
    metavar="GROUP",
    type=GROUP,
    help="also this group; may be repeated",
)
@click.option(
    "--interval", type=DURATION, default="2s", show_default=True, metavar="TIME", help="time between samples"
)
@click.option("--count", "-n", type=int, metavar="N", help="end after N samples")
@passed
def COMMAND(
    session: Session, names: tuple[str, ...], group_names: tuple[str, ...], interval: float, count: int | None
) -> None:
    if not interval > 0:
        raise InvalidArgumentError("--interval must be positive")
    if count is not None and count < 1:
        raise InvalidArgumentError(f"--count must be positive, not {count}")
    from pravega_wire.cli.work import watching

    out = session.out

    async def work(client: PravegaClient) -> None:
        config = client.config
        # The rates of what is named twice would be those since its first mention.
        streams = [*dict.fromkeys(config.resolve(each) for each in names)]
        groups = [*dict.fromkeys(config.resolve(each) for each in group_names)]
        if not names:
            streams = sorted(await client.list_streams())
            groups = groups or sorted(await client.list_reader_groups())
        samples = watching.watch(client, streams, groups, interval, count)
        async with aclosing(cast("Any", samples)) as found:
            if out.as_json:
                async for sample in found:
                    out.json(sample.record())
            elif out.human and not is_dumb():
                await _live(session, found)
            else:
                async for sample in found:
                    out.line(f"at {time_text(sample.time)}")
                    _print(session, sample)

    session.call(work)


def _columns(columns: list[Column], rows: list[dict[str, Any]]) -> list[Column]:
    return [*columns, _ERROR] if any(each["error"] for each in rows) else columns


def _print(session: Session, sample: watching.Sample) -> None:
    record = sample.record()
    for key, columns in (("streams", _STREAMS), ("groups", _GROUPS)):
        rows = list(record[key])
        if rows:
            session.out.rows(rows, _columns(columns, rows))
    session.out.line("")


async def _live(session: Session, samples: AsyncIterator[watching.Sample]) -> None:
    """Show each sample in the place of the one before."""
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False) as live:
        async for sample in samples:
            record = sample.record()
            parts: list[Any] = [
                Text(f"{session.resolved.config.controller_uri}  {time_text(sample.time)}", "dim")
            ]
            for key, columns in (("streams", _STREAMS), ("groups", _GROUPS)):
                rows = list(record[key])
                if rows:
                    parts.append(session.out.table(rows, _columns(columns, rows)))
            live.update(Group(*parts), refresh=True)
