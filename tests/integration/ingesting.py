"""An ingesting process that kills itself, or is killed, and a check that nothing is missing or doubled.

``python -m tests.integration.ingesting JSON`` is one run in a process of its own; the JSON object is a
:class:`Job`. It prints a line when it has begun, and one at the end with what the run has done or why it
    stopped.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import trio

from pravega_wire import PravegaClient, PravegaConfig, open_client
from pravega_wire.errors import PravegaError
from pravega_wire.ingest import (
    EndRecord,
    FileIngester,
    FixedCount,
    IngestRecord,
    LengthBefore,
    Method,
    Sample,
    SourceIngester,
    Stage,
    csv_rows,
)

ROOT = Path(__file__).resolve().parents[2]
KEYS = 7
MODES = ("files", "fixed", "before", "end")
LEASE = 30.0

AFTER_COMMIT = "COMMITTED"
"""The transaction is committed for good, and the next one not begun: a place between two stages."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run.

    :ivar crash: stage at which the process kills itself, or None. :ivar nth: at the how manieth time.
    :ivar pause: stage at which it prints ``paused`` and waits for a line, the first time, or None.
    :ivar trace: print the name of each stage.
    """

    uri: str
    scope: str
    folder: str
    mode: str = "files"
    crash: str | None = None
    nth: int = 1
    pause: str | None = None
    trace: bool = False


def write_folder(folder: Path, files: int, rows: int) -> dict[str, list[int]]:
    """CSV files with ``rows`` rows each; returns the numbers that each key must have in the end, in order."""
    folder.mkdir(parents=True, exist_ok=True)
    expected: dict[str, list[int]] = defaultdict(list)
    number = 0
    for index in range(files):
        with (folder / f"part-{index:04}.csv").open("w", encoding="utf-8") as file:
            file.write("sensor,number,filler\n")
            for _ in range(rows):
                key = f"s{number * 31 % KEYS}"
                expected[key].append(number)
                file.write(f"{key},{number},{'x' * (number % 50)}\n")
                number += 1
    return dict(expected)


@dataclass(frozen=True, slots=True)
class FolderSource:
    """All rows of a folder's files as one source without files."""

    folder: Path

    def read_from(self, position: int) -> Iterator[Sample]:
        parse = csv_rows("sensor")
        for path in sorted(self.folder.iterdir()):
            for sample in parse(path):
                if position > 0:
                    position -= 1
                else:
                    yield sample

    @property
    def count(self) -> int:
        return sum(1 for _ in self.read_from(0))


def method_of(mode: str, source: FolderSource) -> Method:
    """Transactions of about 2000 samples, of different lengths where the method allows it."""
    if mode == "fixed":
        return FixedCount(2000)
    if mode == "before":
        total = source.count
        return LengthBefore(lambda position: min(1500 + position % 1000, total - position))
    return EndRecord(lambda sample, count, size: count > 1500 and sample[1].endswith(b"x" * 37))


async def ingest(client: PravegaClient, job: Job) -> dict[str, int]:
    """The run of a job; returns the progress."""
    times = 0
    paused = False

    async def observer(stage: Stage, record: IngestRecord) -> None:
        nonlocal times, paused
        if job.trace:
            print(stage.name, flush=True)
        if stage.name == job.pause and not paused:
            paused = True
            print("paused", flush=True)
            await trio.to_thread.run_sync(sys.stdin.readline)
        if job.crash == AFTER_COMMIT and stage is Stage.COMMITTING:
            await client.wait_committed("data", record.transaction)
        elif stage.name != job.crash:
            return
        times += 1
        if times == job.nth:
            os.kill(os.getpid(), signal.SIGKILL)

    folder = Path(job.folder)
    if job.mode == "files":
        files = FileIngester(
            client, "data", "sync", parse=csv_rows("sensor"), segments=3, observer=observer, lease=LEASE
        )
        return asdict(await files.run(folder, "*.csv"))
    source = FolderSource(folder)
    ingester = SourceIngester(
        client,
        "data",
        "sync",
        method=method_of(job.mode, source),
        segments=3,
        observer=observer,
        lease=LEASE,
    )
    return asdict(await ingester.run(source))


def start(job: Job) -> subprocess.Popen[str]:
    """The job in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.integration.ingesting", json.dumps(asdict(job))],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def run_until_killed(job: Job, seconds: float, processes: int = 1) -> tuple[bool, list[str]]:
    """Kill runs so many seconds after they were started, unless they end before.

    Of several at once all but one may stop because they are fenced.

    Returns whether one has ended with everything done, and the last line of each that was killed.

    :raises AssertionError: a run failed by itself, or all of them were fenced.
    """
    end = time.monotonic() + seconds
    started = [start(job) for _ in range(processes)]
    done, killed, fenced = False, [], 0
    for process in started:
        try:
            out, _ = process.communicate(timeout=max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            out, _ = process.communicate()
        last = out.strip().splitlines()[-1] if out.strip() else "before anything"
        if process.returncode == 0:
            done = True
        elif process.returncode == -signal.SIGKILL:
            killed.append("after the end" if last.startswith("{") else last)
        elif last.startswith("{") and json.loads(last).get("error") == "FencedError":
            fenced += 1
        else:
            raise AssertionError(f"a run failed by itself: {last}")
    if fenced == processes:
        raise AssertionError("every one of the runs was fenced")
    return done, killed


async def verify(client: PravegaClient, expected: dict[str, list[int]]) -> int:
    """Check that each row is in the stream once, in order per key; returns the number of events."""
    found: dict[str, list[int]] = defaultdict(list)
    async for batch in client.read_events("data"):
        for event in batch:
            key, number, filler = event.decode().split(",")
            if filler != "x" * (int(number) % 50):
                raise AssertionError(f"event {number} is not the row it was")
            found[key].append(int(number))
    for key in sorted({*found, *expected}):
        stored, wanted = found.get(key, []), expected.get(key, [])
        if stored != wanted:
            missing = sorted({*wanted} - {*stored})[:5]
            doubled = sorted({each for each in stored if stored.count(each) > 1})[:5] if missing == [] else []
            raise AssertionError(
                f"key {key}: {len(stored)} events for {len(wanted)} rows; missing {missing}, twice {doubled}"
            )
    return sum(map(len, found.values()))


def main(job: Job) -> int:
    config = PravegaConfig.from_defaults(controller_uri=job.uri, scope=job.scope, env={})

    async def run() -> dict[str, int]:
        async with open_client(config) as client:
            print("started", flush=True)
            return await ingest(client, job)

    try:
        print(json.dumps(trio.run(run)), flush=True)
    except PravegaError as error:
        print(json.dumps({"error": type(error).__name__, "message": error.message}), flush=True)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Job(**json.loads(sys.argv[1]))))
