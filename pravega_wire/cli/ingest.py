"""``ingest``: the files of a folder into a stream, each exactly once."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from pravega_wire.cli.common import Command, Exit, add_connection, connection, say, warn
from pravega_wire.errors import InvalidArgumentError
from pravega_wire.ingest.engine import Progress
from pravega_wire.ingest.files import FileIngester, LeftOut
from pravega_wire.ingest.samples import Parse, byte_lines, csv_rows
from pravega_wire.stream.client import open_client

__all__ = ["COMMAND"]

_EVERY_SECONDS = 0.2


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the files' folder")
    parser.add_argument("--stream", required=True, metavar="SCOPE/STREAM", help="where the events go")
    parser.add_argument(
        "--sync",
        required=True,
        metavar="SCOPE/STREAM",
        help="the stream that remembers what is done; one of its own for each folder",
    )
    parser.add_argument("--glob", default="*", metavar="PATTERN", help="which files (default: all)")
    what = parser.add_argument_group("events")
    what.add_argument(
        "--format",
        choices=("csv", "lines"),
        help="csv: an event for each row after the header; lines: for each line (default: csv for files "
        "named *.csv by the pattern or with --key-column, otherwise lines)",
    )
    what.add_argument("--key-column", metavar="NAME", help="CSV column with the routing key")
    what.add_argument(
        "--json", action="store_true", help="CSV rows become JSON objects instead of staying as they are"
    )
    what.add_argument(
        "--delimiter", default=",", metavar="CHAR", help="between CSV fields (default: a comma)"
    )
    what.add_argument("--encoding", default="utf-8-sig", help="of CSV files (default: UTF-8)")
    what.add_argument(
        "--keep-empty", action="store_true", help="lines without a byte are events, too (default: left out)"
    )
    what.add_argument(
        "--exact-lines",
        action="store_true",
        help="lines are the bytes between line feeds as they are (default: a carriage return before the line "
        "feed and a UTF-8 byte order mark at the file's beginning are left out)",
    )
    how = parser.add_argument_group("streams and recovery")
    how.add_argument(
        "--segments",
        type=int,
        default=10,
        metavar="N",
        help="of the data stream, if it is created (default: 10)",
    )
    how.add_argument(
        "--ignore-changes",
        action="store_true",
        help="go on after the last ingested name even if ingested files are gone or have changed; files that "
        "were added before it are not looked at",
    )
    how.add_argument(
        "--if-unknown",
        choices=("raise", "committed", "aborted"),
        default="raise",
        help="what to take the last transaction for if the server has forgotten it (default: stop)",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress while it works")
    add_connection(parser)


def _parse(arguments: argparse.Namespace) -> Parse:
    chosen = arguments.format
    if chosen is None:
        chosen = "csv" if arguments.key_column or arguments.glob.lower().endswith(".csv") else "lines"
    if chosen == "csv":
        if arguments.keep_empty or arguments.exact_lines:
            raise InvalidArgumentError("--keep-empty and --exact-lines are for --format lines")
        return csv_rows(
            arguments.key_column,
            as_json=arguments.json,
            delimiter=arguments.delimiter,
            encoding=arguments.encoding,
        )
    if arguments.key_column or arguments.json:
        raise InvalidArgumentError("--key-column and --json are for CSV files, not for --format lines")
    return byte_lines(keep_empty=arguments.keep_empty, exact=arguments.exact_lines)


class _Show:
    """Progress on standard error: one changing line on a terminal, else a line for each file."""

    def __init__(self) -> None:
        self._terminal = sys.stderr is not None and sys.stderr.isatty()
        self._files = 0
        self._last = 0.0

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        new_file = progress.done != self._files
        if self._terminal:
            if new_file or now - self._last >= _EVERY_SECONDS:
                warn(f"\r\x1b[K{_sentence(progress)}", end="")
                self._last = now
        elif new_file:
            warn(_sentence(progress))
        self._files = progress.done

    def end(self) -> None:
        """Leave the line."""
        if self._terminal and self._last:
            warn("\r\x1b[K", end="")


def _sentence(progress: Progress) -> str:
    return (
        f"{progress.skipped + progress.done} of {progress.total} files done, {progress.done} now: "
        f"{progress.events} events, {progress.bytes} bytes"
    )


def _left_out(thing: LeftOut) -> None:
    warn(f"left out: {thing.name} is {thing.why}")


async def _run(arguments: argparse.Namespace) -> Exit:
    show = _Show()
    parse = _parse(arguments)
    config = connection(arguments)
    try:
        async with open_client(config) as client:
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
            result = await ingester.run(arguments.folder, arguments.glob)
    finally:
        show.end()
    if not result.total:
        warn(f"error: no file in {arguments.folder} matches {arguments.glob!r}")
        return Exit.NOTHING
    say(_sentence(result))
    return Exit.DONE


COMMAND = Command(
    name="ingest",
    help="the files of a folder into a stream, each exactly once",
    description="Write the events of a folder's files into a stream, in the order of the files' names, each "
    "file in one transaction. Run it again after whatever happened: each file's events are in the stream "
    "once.",
    arguments=_arguments,
    run=_run,
)
