"""The command ``dissect``: show the frames of a capture, or of a live connection."""

from __future__ import annotations

from argparse import ArgumentTypeError
from pathlib import Path

import click

from pravega_wire.cli.frame import PORT, Session, WireCommand, passed
from pravega_wire.cli.values import os_message
from pravega_wire.errors import InvalidArgumentError

__all__ = ["COMMAND"]


@click.command(
    cls=WireCommand,
    name="dissect",
    help="Show the frames that clients and segment stores exchange: those of a capture FILE (pcap or pcapng; "
    "- is the standard input), or with --follow those that pass through a proxy on a local port. Delegation "
    "tokens are hidden.",
    examples=(
        "pravega-wire dissect capture.pcap",
        "pravega-wire dissect capture.pcap --port 6000 --json",
        "pravega-wire dissect --follow 6001 --store localhost:6000 --write capture.pcap",
    ),
)
@click.argument("file", required=False, metavar="[FILE]")
@click.option(
    "--port", multiple=True, type=PORT, metavar="PORT",
    help="of a capture, only connections with this port of a segment store (may be repeated)",
)  # fmt: skip
@click.option("--follow", type=PORT, metavar="PORT", help="be a proxy on this local port")
@click.option("--store", metavar="HOST:PORT", help="with --follow: the segment store to forward to")
@click.option(
    "--write", type=click.Path(path_type=Path), metavar="FILE", help="with --follow: write a capture"
)
@click.option("--payloads", is_flag=True, help="show payloads and long texts whole")
@passed
def COMMAND(
    session: Session,
    file: str | None,
    port: tuple[int, ...],
    follow: int | None,
    store: str | None,
    write: Path | None,
    payloads: bool,
) -> None:
    """See ``help``."""
    from pravega_wire.dissect.__main__ import address_of, mistake_in, run

    mistake = mistake_in(file, port, follow, store, write)
    if mistake is not None:
        raise click.UsageError(mistake)
    try:
        address = None if store is None else address_of(store)
    except ArgumentTypeError as error:
        raise click.UsageError(f"--store: {error}") from error
    try:
        run(
            file=file,
            port=port,
            follow=follow,
            store=address,
            write=write,
            payloads=payloads,
            json=bool(session.flags.get("json")),
        )
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InvalidArgumentError(os_message(error)) from error
