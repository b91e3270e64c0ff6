"""Kills ingestion at random many times: ``python -m benchmarks.ingest_soak [--kills 200] [--seed 1]``.

Folders of CSV files are ingested one after the other, in turn as files and as a source by each of the three
methods. The ingesting process is killed with SIGKILL at a random moment, and started again, until the folder
is done; then every row must be in the stream once, in order per key.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from itertools import count
from pathlib import Path

import trio

from pravega_wire import open_client
from pravega_wire.testing import PravegaServer, standalone
from tests.integration.ingesting import MODES, Job, run_until_killed, verify, write_folder

KILL_SECONDS = (0.3, 1.1)
"""When a process is killed: from about its first call to about its end."""

FILES = 16
ROWS = 2000


def soak(server: PravegaServer, base: Path, kills: int, chance: random.Random) -> None:
    """Kill so often, over as many folders as it takes.

    :raises AssertionError: a row is missing, doubled or out of order.
    """
    started = time.monotonic()
    killed = runs = events = 0
    stages: Counter[str] = Counter()
    for number in count():
        mode = MODES[number % len(MODES)]
        scope = f"soak-{number}-{chance.randrange(16**6):06x}"
        folder = base / scope
        expected = write_folder(folder, FILES, ROWS)
        job = Job(server.controller_uri, scope, str(folder), mode, trace=True)
        before, done = killed, False
        while not done:
            # Now and then two at once: one of them stops, fenced.
            processes = 2 if chance.random() < 0.2 else 1
            runs += processes
            limit = chance.uniform(*KILL_SECONDS) * processes if killed < kills else 600.0
            done, lines = run_until_killed(job, limit, processes)
            killed += len(lines)
            stages.update(lines)

        async def check(scope: str, expected: dict[str, list[int]]) -> int:
            async with open_client(server.config(scope)) as client:
                return await verify(client, expected)

        events += trio.run(check, scope, expected)
        shutil.rmtree(folder)
        print(
            f"[ingest soak {time.monotonic() - started:5.0f} s] folder {number + 1} ({mode}): "
            f"{killed - before} kills, {FILES * ROWS} rows once each; {killed} kills so far",
            flush=True,
        )
        if killed >= kills:
            print(
                f"{killed} kills over {number + 1} folders, {runs} runs, {events} events, each once and in "
                f"order; last stage before the kill: {dict(stages.most_common())}"
            )
            return


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.ingest_soak", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with standalone() as server, tempfile.TemporaryDirectory() as base:
        try:
            soak(server, Path(base), arguments.kills, random.Random(arguments.seed))
        except AssertionError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
