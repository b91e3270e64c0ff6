"""The command ``ingest``: write the files of a folder to a stream, each exactly once."""

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
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="folder with the files")
    parser.add_argument(
        "--stream", required=True, metavar="SCOPE/STREAM", help="stream to write the events to"
    )
    parser.add_argument(
        "--sync",
        required=True,
        metavar="SCOPE/STREAM",
        help="stream in which the progress is recorded; use a different one for each folder",
    )
    parser.add_argument(
        "--glob",
        default="*",
        metavar="PATTERN",
        help="pattern for the names of the files (default: all files)",
    )
    what = parser.add_argument_group("events")
    what.add_argument(
        "--format",
        choices=("csv", "lines"),
        help="csv: one event for each row after the header; lines: one event for each line (default: csv if "
        "the pattern ends in .csv or --key-column is given, otherwise lines)",
    )
    what.add_argument("--key-column", metavar="NAME", help="CSV column with the routing key")
    what.add_argument(
        "--json", action="store_true", help="convert CSV rows to JSON objects (default: keep them unchanged)"
    )
    what.add_argument(
        "--delimiter", default=",", metavar="CHAR", help="delimiter between CSV fields (default: a comma)"
    )
    what.add_argument("--encoding", default="utf-8-sig", help="encoding of CSV files (default: UTF-8)")
    what.add_argument(
        "--keep-empty",
        action="store_true",
        help="write an event for each empty line too (default: skip them)",
    )
    what.add_argument(
        "--exact-lines",
        action="store_true",
        help="keep all bytes between line feeds (default: remove a carriage return before the line feed, "
        "and a UTF-8 byte order mark at the start of a file)",
    )
    how = parser.add_argument_group("streams and recovery")
    how.add_argument(
        "--segments",
        type=int,
        default=10,
        metavar="N",
        help="number of segments of the stream, if it is created (default: 10)",
    )
    how.add_argument(
        "--ignore-changes",
        action="store_true",
        help="continue after the last ingested file name even if ingested files have changed or no longer "
        "exist; new files with names before it are not ingested",
    )
    how.add_argument(
        "--if-unknown",
        choices=("raise", "committed", "aborted"),
        default="raise",
        help="what to assume about the last transaction if the server has no record of it; raise stops with "
        "an error (default)",
    )
    parser.add_argument("--quiet", action="store_true", help="do not show progress")
    add_connection(parser)


def _parse(arguments: argparse.Namespace) -> Parse:
    chosen = arguments.format
    if chosen is None:
        chosen = "csv" if arguments.key_column or arguments.glob.lower().endswith(".csv") else "lines"
    if chosen == "csv":
        if arguments.keep_empty or arguments.exact_lines:
            raise InvalidArgumentError("--keep-empty and --exact-lines need --format lines, not csv")
        return csv_rows(
            arguments.key_column,
            as_json=arguments.json,
            delimiter=arguments.delimiter,
            encoding=arguments.encoding,
        )
    if arguments.key_column or arguments.json:
        raise InvalidArgumentError("--key-column and --json need --format csv, not lines")
    return byte_lines(keep_empty=arguments.keep_empty, exact=arguments.exact_lines)


class _Show:
    """Shows progress on standard error: one changing line on a terminal, otherwise a line for each file."""

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
        """Clear the changing line."""
        if self._terminal and self._last:
            warn("\r\x1b[K", end="")


def _sentence(progress: Progress) -> str:
    return (
        f"{progress.skipped + progress.done} of {progress.total} files done, {progress.done} in this run: "
        f"{progress.events} events, {progress.bytes} bytes"
    )


def _left_out(thing: LeftOut) -> None:
    warn(f"skipped: {thing.name} is {thing.why}")


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
    help="write the files of a folder to a stream, each exactly once",
    description="Write the events in the files of a folder to a stream, in the order of the file names. Each "
    "file is one transaction. Run the command again after any failure: every event still ends up in the "
    "stream exactly once.",
    arguments=_arguments,
    run=_run,
)
