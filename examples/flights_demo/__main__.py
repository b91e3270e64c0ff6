"""Runs the demo that the package describes; exits with 0 only if every figure is correct."""

from __future__ import annotations

import argparse
import json
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from examples.flights_demo import data
from examples.flights_demo.picture import Batch, Sample, Segment, Story, draw, visible_events
from examples.flights_demo.processes import kill_tree
from pravega_wire import PravegaConfig, ScalingPolicy, StreamConfiguration
from pravega_wire.errors import ServerStartError
from pravega_wire.sync import PravegaClient, open_client
from pravega_wire.testing import standalone

ROOT = Path(__file__).resolve().parents[2]
SCOPE = f"demo-{uuid4().hex[:8]}"  # a new one, for a server that is not the demo's own
STREAM, LEDGER = f"{SCOPE}/flights", f"{SCOPE}/ledger"
SAMPLE_SECONDS = 0.25
BOARD_SECONDS = 180
KILL_AFTER_STEP = "staged"
"""The step at which the driver is killed: its tasks have written a batch, which is not committed yet."""


class Failure(Exception):
    """A figure is wrong, or a part of the demo failed."""


class Voice:
    """Prints lines with the time since the start."""

    def __init__(self) -> None:
        self.start = time.time()

    def __call__(self, text: str) -> None:
        """Print one line."""
        print(f"[{time.time() - self.start:6.1f} s] {text}", flush=True)


@contextmanager
def child(arguments: Sequence[str], log: Path, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A Python process of the demo in its own session; it is killed with its children at the end."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    with log.open("ab") as sink:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **options,
        )
    try:
        yield process
    finally:
        kill_tree(process)


@dataclass
class Run:
    """The state of the demo while the job runs."""

    client: PravegaClient
    say: Voice
    folder: Path
    controller: str
    batches: int
    scale_at: int
    kill_at: int
    samples: list[Sample] = field(default_factory=list)
    begun: dict[int, float] = field(default_factory=dict)
    visible: dict[int, float] = field(default_factory=dict)
    moments: list[tuple[float, str]] = field(default_factory=list)
    shown: list[tuple[float, int]] = field(default_factory=list)
    stored: int = 0
    scaled: bool = False
    killed: bool = False

    def job(self) -> bool:
        """Run the Spark driver once; return True if it finished, False if it was killed."""
        ours, theirs = os.pipe()
        arguments = [
            "-m", "examples.flights_demo.job",
            "--controller", self.controller,
            "--stream", STREAM,
            "--ledger", LEDGER,
            "--files", str(self.folder / "files"),
            "--checkpoint", str(self.folder / "checkpoint"),
            "--progress", str(theirs),
        ]  # fmt: skip
        log = self.folder / "job.log"
        try:
            with child(arguments, log, pass_fds=(theirs,)) as process:
                os.close(theirs)
                for line in self._follow(ours):
                    if self._heard(line):
                        continue
                    killed = kill_tree(process)
                    self.killed = True
                    self.moments.append((time.time(), "driver killed"))
                    self.say(
                        f"kill -9: the Spark driver and {len(killed) - 1} processes below it, in "
                        f"batch {line['batch']} after step {line['what']!r}"
                    )
                    return False
                code = process.wait()
                if code != 0:
                    tail = "\n".join(log.read_text(errors="replace").splitlines()[-30:])
                    raise Failure(f"the Spark driver ended with {code}:\n{tail}")
                return True
        finally:
            os.close(ours)

    def _follow(self, pipe: int) -> Iterator[dict[str, Any]]:
        """Iterate over the job's messages until it ends, and sample the stream's tail in between."""
        rest = b""
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while True:
                due = self.samples[-1].time + SAMPLE_SECONDS if self.samples else 0.0
                if not selector.select(max(0.0, due - time.time())):
                    self.sample()
                    continue
                received = os.read(pipe, 65536)
                if not received:
                    return
                *lines, rest = (rest + received).split(b"\n")
                for line in lines:
                    yield json.loads(line)
                if time.time() >= due:
                    self.sample()

    def sample(self) -> None:
        """Record the tail of the stream."""
        self.samples.append(Sample(time.time(), dict(self.client.tail(STREAM).positions)))

    def _heard(self, line: dict[str, Any]) -> bool:
        """Process one message of the job; return False if it should be killed now."""
        batch, what = line["batch"], line["what"]
        if what in ("started", "spark is up", "finished"):
            self.say(f"job: {what} (process {line['pid']})")
            if what == "spark is up" and self.killed:
                self.moments.append((line["time"], "new driver up"))
        elif what == "batch":
            self.begun.setdefault(batch, line["time"])
            if batch >= self.scale_at and not self.scaled:
                self._scale()
        elif what == "stored":
            self.visible[batch] = line["time"]
            self.stored += line["rows"]
            segments = len(self.samples[-1].tail) if self.samples else 0
            self.say(
                f"batch {batch + 1:2} of {self.batches} {line['outcome']}: {line['rows']} flights "
                f"in {line['seconds']:.2f} s, {self.stored} in all, {segments} segments"
            )
        return not (what == KILL_AFTER_STEP and batch >= self.kill_at and not self.killed)

    def _scale(self) -> None:
        active = self.client.active_segments(STREAM)
        halves = []
        for segment in active:
            middle = (segment.low + segment.high) / 2
            halves += [(segment.low, middle), (middle, segment.high)]
        self.client.scale_stream(STREAM, [each.segment_id for each in active], halves)
        self.scaled = True
        self.moments.append((time.time(), "scaled by hand"))
        self.say(f"scaled the stream by hand, {len(active)} segments to {len(halves)}")


class Board:
    """The departure board: a separate query that reads the stream while the job writes to it."""

    def __init__(self, run: Run, flights: int) -> None:
        self._run = run
        self._flights = flights
        self._result = run.folder / "board.json"
        self._log = run.folder / "board.log"

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Run its process, and a thread that reads its messages."""
        ours, theirs = os.pipe()
        arguments = [
            "-m", "examples.flights_demo.board",
            "--controller", self._run.controller,
            "--stream", STREAM,
            "--flights", str(self._flights),
            "--checkpoint", str(self._run.folder / "board-checkpoint"),
            "--result", str(self._result),
            "--progress", str(theirs),
        ]  # fmt: skip
        hearing = threading.Thread(target=self._hear, args=(ours,), daemon=True)
        with child(arguments, self._log, pass_fds=(theirs,)) as process:
            os.close(theirs)
            hearing.start()
            self._process = process
            yield self
        hearing.join()

    def _hear(self, pipe: int) -> None:
        with open(pipe) as lines:
            for text in lines:
                line = json.loads(text)
                self._run.shown.append((line["time"], line["rows"]))

    def finish(self) -> dict[str, Any]:
        """Wait until it has seen every flight; return what it shows then."""
        try:
            code: int | None = self._process.wait(BOARD_SECONDS)
        except subprocess.TimeoutExpired:
            code = None
        if code != 0:
            tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-30:])
            ended = "has not seen every flight in time" if code is None else f"ended with {code}"
            raise Failure(f"the departure board {ended}:\n{tail}")
        found: dict[str, Any] = json.loads(self._result.read_text())
        return found


def read_report(run: Run, start: str, end: str) -> dict[str, Any]:
    """Run the Spark batch job over the stream between two cuts."""
    result, log = run.folder / "report.json", run.folder / "report.log"
    arguments = [
        "-m", "examples.flights_demo.report",
        "--controller", run.controller,
        "--stream", STREAM,
        "--start", start,
        "--end", end,
        "--result", str(result),
    ]  # fmt: skip
    with child(arguments, log) as process:
        if process.wait() != 0:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-30:])
            raise Failure(f"the Spark batch job failed:\n{tail}")
    found: dict[str, Any] = json.loads(result.read_text())
    return found


def compare(source: data.Summary, found: dict[str, Any], say: Voice) -> dict[tuple[str, int], data.Delay]:
    """Compare the data from the stream with the source; :class:`Failure` names the difference.

    Returns the delays by airport and hour, as the stream gave them.
    """
    say(f"source: {source.count} flights, checksum {source.checksum:016x}")
    say(f"stream: {found['count']} flights, checksum {found['checksum']:016x}")
    wrong = []
    if (found["count"], found["checksum"]) != (source.count, source.checksum):
        wrong.append("count or checksum")
    if found["sequences"] == source.sequences:
        say(f"order: every one of {len(source.sequences)} carriers has its flights in source order")
    else:
        wrong.append("order of the flights of a carrier")
    delays = {(name, hour): data.Delay(n, minutes) for name, hour, n, minutes in found["delays"]}
    if delays == source.delays:
        say(f"delays by airport and hour: all {len(delays)} equal the source's")
    else:
        wrong.append("delays by airport and hour")
    if wrong:
        raise Failure(f"not equal to the source: {', '.join(wrong)}")
    return delays


def compare_board(source: data.Summary, found: dict[str, Any], run: Run, say: Voice) -> None:
    """Compare the final state of the departure board with the source."""
    delays = {(name, hour): data.Delay(n, minutes) for name, hour, n, minutes in found["delays"]}
    if (found["seen"], delays) != (source.count, source.delays):
        raise Failure(f"the departure board saw {found['seen']} flights, or other delays than the source's")
    early = sum(1 for when, _ in run.shown if when < max(run.visible.values()))
    batches = f"{len(run.shown)} batches, {early} of them while flights arrived"
    say(f"departure board: all {found['seen']} flights, in {batches}")


def tell_story(run: Run, delays: dict[tuple[str, int], data.Delay]) -> Story:
    """Collect the data for the picture; this reads the offset of every event again."""
    client = run.client
    newest = max(segment.segment_id >> 32 for segment in client.active_segments(STREAM))
    epochs: list[list[int]] = []
    ranges: dict[int, tuple[float, float]] = {}
    for epoch in range(newest + 1):
        segments = client.epoch_segments(STREAM, epoch)
        epochs.append([segment.segment_id for segment in segments])
        ranges |= {segment.segment_id: (segment.low, segment.high) for segment in segments}
    offsets: dict[int, list[int]] = {segment_id: [] for segment_id in ranges}
    for part in client.segment_ranges(STREAM):
        for batch in client.read_range(part):
            offsets[part.segment_id] += [int(offset) for offset in batch.offsets()]
    return Story(
        start=run.say.start,
        samples=run.samples,
        batches=[Batch(n, run.begun[n], run.visible[n]) for n in sorted(run.visible)],
        segments={
            segment_id: Segment(segment_id, ranges[segment_id][0], ranges[segment_id][1], offsets[segment_id])
            for segment_id in ranges
        },
        epochs=epochs,
        moments=run.moments,
        shown=run.shown,
        delays=delays,
    )


def demo(args: argparse.Namespace, folder: Path, say: Voice) -> None:
    """Run the whole demo; raise :class:`Failure` if a figure is wrong."""
    events = data.load(args.flights)
    source = data.summarize(events)
    files = list(data.split(events, folder / "files", args.batches))
    say(f"read {len(events)} flights of {len(source.sequences)} carriers, in {len(files)} files")
    with standalone() as server:
        say(f"the Pravega server is up: {server.controller_uri}")
        config = PravegaConfig.from_defaults(controller_uri=server.controller_uri, env={})
        with open_client(config) as client:
            client.create_scope(SCOPE)
            policy = ScalingPolicy.by_event_rate(10_000, scale_factor=2, min_segments=2)
            client.create_stream(STREAM, StreamConfiguration(scaling=policy))
            client.create_stream(LEDGER, 1)
            run = Run(
                client,
                say,
                folder,
                server.controller_uri,
                batches=len(files),
                scale_at=len(files) // 2,
                kill_at=len(files) * 2 // 3,
            )
            before = client.tail(STREAM)
            with Board(run, source.count).running() as board:
                while not run.job():
                    say("starting the driver again, with the same checkpoint")
                run.sample()
                compare_board(source, board.finish(), run, say)
            after = client.tail(STREAM)
            if not (run.killed and run.scaled):
                raise Failure("the job ended before it was killed, or the stream before it grew")
            say("a Spark batch job reads the stream between the cuts of before and after")
            found = read_report(run, before.to_text(), after.to_text())
            story = tell_story(run, compare(source, found, say))
            readable = visible_events(run.samples[-1], story.segments)
            if readable != source.count:
                raise Failure(f"the picture would show {readable} events")
            draw(story, args.picture)
            say(f"picture: {args.picture}")


def main() -> int:
    """Parse the arguments and run the demo; return the exit code."""
    parser = argparse.ArgumentParser(prog="flights_demo", description=__doc__)
    parser.add_argument("--picture", type=Path, default=Path("flights-demo.png"), help="PNG file to write")
    parser.add_argument("--flights", type=int, help="write only this many flights (default: all)")
    parser.add_argument("--batches", type=int, default=36, help="number of micro-batches (default: 36)")
    parser.add_argument("--keep", action="store_true", help="keep files, checkpoint and logs")
    args = parser.parse_args()
    if args.batches < 6:
        parser.error("--batches must be at least 6")
    say = Voice()
    folder = Path(tempfile.mkdtemp(prefix="flights-demo-"))
    try:
        demo(args, folder, say)
    except Failure as failure:
        say(f"FAILED: {failure}")
        return 1
    except ServerStartError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        if args.keep:
            say(f"files and logs are in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    say("done: nothing lost, nothing twice, in order")
    return 0


if __name__ == "__main__":
    sys.exit(main())
