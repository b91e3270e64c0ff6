"""The top of the command line: the list of commands."""

from __future__ import annotations

from typing import Final

import click

from pravega_wire import __version__
from pravega_wire.cli.common import EXIT_CODES
from pravega_wire.cli.frame import LazyGroup

__all__ = ["COMMAND", "COMMANDS"]

_HERE: Final = "pravega_wire.cli"

COMMANDS: Final = {
    "scope": (f"{_HERE}.scope", "create, list and delete scopes"),
    "stream": (f"{_HERE}.stream", "create, list, change, describe, scale, truncate and delete streams"),
    "append": (f"{_HERE}.append", "append lines or files to a stream"),
    "read": (f"{_HERE}.read", "read the events of a stream, or follow it"),
    "cut": (f"{_HERE}.cut", "find, show and compare positions in a stream"),
    "group": (f"{_HERE}.group", "list, describe, reset and delete reader groups"),
    "txn": (f"{_HERE}.txn", "list, look at and abort transactions"),
    "table": (f"{_HERE}.table", "read and change key-value tables"),
    "ingest": (f"{_HERE}.ingest", "write the files of a folder to a stream, each exactly once"),
    "archive": (f"{_HERE}.archive", "keep the events of a stream in Parquet files, and write them back"),
    "doctor": (f"{_HERE}.doctor", "find out what is wrong with a cluster, or with the way to it"),
    "top": (f"{_HERE}.top", "watch the rates of streams and the lag of reader groups"),
    "heatmap": (f"{_HERE}.heatmap", "draw the segments of a stream over its epochs"),
    "dissect": (f"{_HERE}.dissect", "show the frames that clients and segment stores exchange"),
    "config": (f"{_HERE}.config", "show the settings, and where each comes from"),
    "completion": (f"{_HERE}.completion", "print the completion script of a shell"),
}
"""Name of each command, its module, and a short description."""


@click.command(
    cls=LazyGroup,
    lazy=COMMANDS,
    name="pravega-wire",
    help="Use Pravega from the shell. STREAM is SCOPE/STREAM, or the name of a stream in the default scope.",
    epilog=f"{EXIT_CODES[:1].upper()}{EXIT_CODES[1:]}.",
    examples=(
        "pravega-wire scope create demo",
        "pravega-wire stream create demo/readings --segments 4",
        "echo 21.5 | pravega-wire append demo/readings --key sensor-7",
        "pravega-wire read demo/readings",
    ),
)
@click.version_option(__version__, message="%(prog)s %(version)s")
def COMMAND() -> None:
    """The top of the command line."""
