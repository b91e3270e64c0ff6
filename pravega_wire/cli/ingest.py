"""``ingest``: the files of a folder into a stream, each exactly once."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from pravega_wire.cli.common import Command, add_connection, connection
from pravega_wire.errors import InvalidArgumentError
from pravega_wire.ingest.engine import Progress
from pravega_wire.ingest.files import FileIngester
from pravega_wire.ingest.samples import Parse, csv_rows, lines
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
        choices=("fail", "committed", "aborted"),
        default="fail",
        help="what to take the last transaction for if the server has forgotten it (default: stop)",
    )
    parser.add_argument("--quiet", action="store_true", help="say nothing while it works")
    add_connection(parser)


def _parse(arguments: argparse.Namespace) -> Parse:
    chosen = arguments.format
    if chosen is None:
        chosen = "csv" if arguments.key_column or arguments.glob.lower().endswith(".csv") else "lines"
    if chosen == "csv":
        return csv_rows(
            arguments.key_column,
            as_json=arguments.json,
            delimiter=arguments.delimiter,
            encoding=arguments.encoding,
        )
    if arguments.key_column or arguments.json:
        raise InvalidArgumentError("--key-column and --json are for CSV files, not for --format lines")
    return lines


class _Show:
    """Progress on standard error: one changing line on a terminal, else a line for each file."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._files = 0
        self._last = 0.0

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        new_file = progress.done != self._files
        if self._terminal:
            if new_file or now - self._last >= _EVERY_SECONDS:
                print(f"\r\x1b[K{_sentence(progress)}", end="", file=sys.stderr, flush=True)
                self._last = now
        elif new_file:
            print(_sentence(progress), file=sys.stderr, flush=True)
        self._files = progress.done

    def end(self) -> None:
        """Leave the line."""
        if self._terminal and self._last:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _sentence(progress: Progress) -> str:
    return (
        f"{progress.skipped + progress.done} of {progress.total} files done, {progress.done} now: "
        f"{progress.events} events, {progress.bytes} bytes"
    )


async def _run(arguments: argparse.Namespace) -> None:
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
                on_changed="ignore" if arguments.ignore_changes else "refuse",
                if_unknown=arguments.if_unknown,
                segments=arguments.segments,
                progress=None if arguments.quiet else show,
            )
            result = await ingester.run(arguments.folder, arguments.glob)
    finally:
        show.end()
    print(_sentence(result))


COMMAND = Command(
    name="ingest",
    help="the files of a folder into a stream, each exactly once",
    description="Write the events of a folder's files into a stream, in the order of the files' names, each "
    "file in one transaction. Run it again after whatever happened: each file's events are in the stream "
    "once.",
    arguments=_arguments,
    run=_run,
)
