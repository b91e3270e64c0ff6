"""The command ``dissect``: show the frames that clients and segment stores exchange."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from pravega_wire.cli.common import warn
from pravega_wire.cli.frame import PORT, Session, WireCommand, passed
from pravega_wire.cli.values import os_message
from pravega_wire.errors import InvalidArgumentError
from pravega_wire.values.config import parse_endpoint

if TYPE_CHECKING:
    from pravega_wire.dissect import Frame, Note

__all__ = ["COMMAND"]


@click.command(
    cls=WireCommand,
    name="dissect",
    needs_client=False,
    help="Show the frames that clients and a segment store exchange through this command: it listens on a "
    "local PORT (0: a free one), and forwards every connection to the store, until Ctrl-C. Delegation "
    "tokens are hidden.",
    examples=(
        "pravega-wire dissect 12346 --store store-1:12345",
        "pravega-wire dissect 12346 --store store-1:12345 --json > frames.jsonl",
    ),
)
@click.argument("port", type=PORT, metavar="PORT")
@click.option("--store", required=True, metavar="HOST:PORT", help="the segment store to forward to")
@click.option("--payloads", is_flag=True, help="show payloads and long texts whole")
@passed
def COMMAND(session: Session, port: int, store: str, payloads: bool) -> None:
    endpoint = parse_endpoint(store, "--store")
    import trio

    from pravega_wire.dissect import as_json, as_text, follow

    out = session.out
    shown = as_json if out.as_json else as_text

    def show(item: Frame | Note) -> None:
        out.line(shown(item, payloads=payloads))

    async def work() -> None:
        async with trio.open_nursery() as nursery:
            try:
                actual = await nursery.start(partial(follow, port, endpoint, show))
            except OSError as error:
                raise InvalidArgumentError(f"port {port} cannot be used: {os_message(error)}") from error
            warn(f"listening on 127.0.0.1:{actual}, forwarding to {store}")

    session.run(work)
