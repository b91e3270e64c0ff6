"""The command ``ingest``: write the files of a folder to a stream, each exactly once."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from pravega_wire.cli.common import Exit, warn
from pravega_wire.cli.frame import Session, WireCommand, passed
from pravega_wire.cli.output import is_terminal
from pravega_wire.cli.values import counted, size_text
from pravega_wire.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pravega_wire.ingest.engine import Progress
    from pravega_wire.ingest.files import LeftOut
    from pravega_wire.ingest.samples import Parse
    from pravega_wire.stream.client import PravegaClient

__all__ = ["COMMAND"]


@dataclass(frozen=True, slots=True)
class _Arguments:
    folder: Path
    stream: str
    sync: str
    glob: str
    format: str | None
    key_column: str | None
    rows_as_json: bool
    delimiter: str | None
    encoding: str | None
    keep_empty: bool
    exact_lines: bool
    segments: int
    ignore_changes: bool
    if_unknown: Literal["raise", "committed", "aborted"]
    quiet: bool


def _parse(arguments: _Arguments) -> Parse:
    from pravega_wire.ingest.samples import byte_lines, csv_rows

    chosen = arguments.format
    if chosen is None:
        chosen = "csv" if arguments.key_column or arguments.glob.lower().endswith(".csv") else "lines"
    if chosen == "csv":
        if arguments.keep_empty or arguments.exact_lines:
            raise InvalidArgumentError("--keep-empty and --exact-lines need --format lines, not csv")
        return csv_rows(
            arguments.key_column,
            as_json=arguments.rows_as_json,
            delimiter="," if arguments.delimiter is None else arguments.delimiter,
            encoding="utf-8-sig" if arguments.encoding is None else arguments.encoding,
        )
    if (
        arguments.key_column
        or arguments.rows_as_json
        or arguments.delimiter is not None
        or arguments.encoding is not None
    ):
        raise InvalidArgumentError(
            "--key-column, --rows-as-json, --delimiter and --encoding need --format csv, not lines"
        )
    return byte_lines(keep_empty=arguments.keep_empty, exact=arguments.exact_lines)


class _Show:
    """Shows progress on standard error: a bar with rate and time left on a terminal, otherwise a line for
    each
    file."""

    def __init__(self) -> None:
        self._terminal = is_terminal(sys.stderr)
        self._files = 0
        self._bar: Any = None

    def __call__(self, progress: Progress) -> None:
        if self._terminal:
            self._draw(progress)
        elif progress.done != self._files:
            warn(_sentence(progress))
        self._files = progress.done

    def _draw(self, progress: Progress) -> None:
        if self._bar is None:
            self._bar = _bar()
            # Time left is estimated from the files of this run.
            self._bar.add_task("", total=progress.total - progress.skipped, what="")
            self._bar.start()
        what = f"{counted(progress.events, 'event')}, {size_text(progress.bytes)}"
        self._bar.update(0, completed=progress.done, what=what)

    def end(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()


def _bar() -> Any:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("files"),
        TextColumn("{task.fields[what]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )


def _sentence(progress: Progress) -> str:
    return (
        f"{progress.skipped + progress.done} of {progress.total} files done, {progress.done} in this run: "
        f"{progress.events} events, {progress.bytes} bytes"
    )


def _left_out(thing: LeftOut) -> None:
    warn(f"skipped: {thing.name} is {thing.why}")


async def _ingest(client: PravegaClient, arguments: _Arguments, parse: Parse) -> Progress:
    from pravega_wire.ingest.files import FileIngester

    show = _Show()
    try:
        ingester = FileIngester(
            client,
            arguments.stream,
            arguments.sync,
            parse=parse,
            on_changed="ignore" if arguments.ignore_changes else "raise",
            if_unknown=arguments.if_unknown,
            segments=arguments.segments,
            progress=None if arguments.quiet else show,
            left_out=_left_out,
        )
        return await ingester.run(arguments.folder, arguments.glob)
    finally:
        show.end()


@click.command(
    cls=WireCommand,
    name="ingest",
    help="Write the events in the files of a folder to a stream, in the order of the file names. Each file "
    "is one transaction. Run the command again after any failure: every event still ends up in the stream "
    "exactly once.",
    examples=(
        "pravega-wire ingest files --stream demo/readings --sync demo/readings-sync",
        "# rows of CSV files, in order for each station",
        "pravega-wire ingest files --glob '*.csv' --key-column station \\",
        "  --stream demo/readings --sync demo/readings-sync",
    ),
)
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--stream", required=True, metavar="SCOPE/STREAM", help="stream to write the events to")
@click.option(
    "--sync",
    required=True,
    metavar="SCOPE/STREAM",
    help="stream in which the progress is recorded; use a different one for each folder",
)
@click.option(
    "--glob", default="*", metavar="PATTERN", help="pattern for the names of the files (default: all files)"
)
@click.option(
    "--format",
    type=click.Choice(["csv", "lines"]),
    help="csv: one event for each row after the header; lines: one event for each line (default: csv if "
    "the pattern ends in .csv or --key-column is given, otherwise lines)",
)
@click.option("--key-column", metavar="NAME", help="CSV column with the routing key")
@click.option(
    "--rows-as-json", is_flag=True, help="convert CSV rows to JSON objects (default: keep them unchanged)"
)
@click.option("--delimiter", metavar="CHAR", help="delimiter between CSV fields (default: a comma)")
@click.option("--encoding", help="encoding of CSV files (default: UTF-8)")
@click.option(
    "--keep-empty", is_flag=True, help="write an event for each empty line too (default: skip them)"
)
@click.option(
    "--exact-lines",
    is_flag=True,
    help="keep all bytes between line feeds (default: remove a carriage return before the line feed, and a "
    "UTF-8 byte order mark at the start of a file)",
)
@click.option(
    "--segments",
    type=int,
    default=10,
    metavar="N",
    help="number of segments of the stream, if it is created (default: 10)",
)
@click.option(
    "--ignore-changes",
    is_flag=True,
    help="continue after the last ingested file name even if ingested files have changed or no longer "
    "exist; new files with names before it are not ingested",
)
@click.option(
    "--if-unknown",
    type=click.Choice(["raise", "committed", "aborted"]),
    default="raise",
    help="what to assume about the last transaction if the server has no record of it; raise stops with an "
    "error (default)",
)
@click.option("--quiet", is_flag=True, help="do not show progress")
@passed
def COMMAND(session: Session, **given: Any) -> Exit:
    arguments = _Arguments(**given)
    parse = _parse(arguments)
    result = session.call(lambda client: _ingest(client, arguments, parse))
    if not result.total:
        warn(f"error: no file in {arguments.folder} matches {arguments.glob!r}")
        return Exit.NOTHING
    session.out.did(
        _sentence(result),
        {
            "stream": arguments.stream,
            "files": result.total,
            "skipped": result.skipped,
            "done": result.done,
            "events": result.events,
            "bytes": result.bytes,
        },
    )
    return Exit.DONE
