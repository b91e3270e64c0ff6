"""Runs commands that do not end for a long time: ``python -m benchmarks.cli_soak [--minutes 10]``.

A stream is written at a steady rate and scaled now and then. ``pravega-wire top`` watches it, once in a pipe
and once on a terminal, and ``pravega-wire read --follow`` prints it, once by itself and once through a reader
group. Each of the two readers must print every event once, in order per key; all four must end with Ctrl-C as
the command line promises; and the memory of none may grow. Prints the result as JSON, then a table.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

from benchmarks.memory import resident
from pravega_wire import ScalingPolicy, StreamConfiguration, sync
from pravega_wire.testing import PravegaServer, standalone

ROOT = Path(__file__).resolve().parents[1]

KEYS = 64
LAYOUTS = (4, 2, 1, 3)
"""Numbers of segments, one after the other."""

GROWTH = 8.0
"""Megabytes by which a process may be larger in the last fifth of the run than in the second."""

INTERRUPTED = re.compile(rb"(warning: reader \S+ has not left group .* within a second\n)?interrupted\n")
"""What a command says then; a busy machine may need longer than it waits for its group."""

PATIENCE = 300.0
"""Seconds that a process gets to print what is left, or to end; no result depends on it."""


_CURSOR = b"\x1b[?25h"
"""What ends a live table on a terminal: the cursor is visible again."""


class Failed(AssertionError):
    """A command did not do what it promises."""


@dataclass
class Watched:
    """A command as a process, whose output a thread reads.

    :ivar name: for messages.
    :ivar samples: resident megabytes, at equal intervals.
    :ivar lines: number of lines that it has printed.
    """

    name: str
    process: subprocess.Popen[bytes]
    output: int
    take: Callable[[bytes], None]
    samples: list[float] = field(default_factory=list)
    lines: int = 0
    problem: str | None = None
    error: bytes = b""

    def __post_init__(self) -> None:
        self._threads = [threading.Thread(target=self._read, daemon=True)]
        if self.process.stderr is not None:
            self._threads.append(threading.Thread(target=self._read_errors, daemon=True))
        for each in self._threads:
            each.start()

    def _read(self) -> None:
        rest = b""
        # The end of a terminal is an error.
        with suppress(OSError):
            while got := os.read(self.output, 1 << 16):
                *whole, rest = (rest + got).split(b"\n")
                for line in whole:
                    self.lines += 1
                    if self.problem is None:
                        try:
                            self.take(line)
                        except Exception as error:
                            self.problem = str(error)
        if rest and rest != _CURSOR and self.problem is None:
            self.problem = f"the last line is not whole: {rest!r}"

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self.error = self.process.stderr.read()

    def check(self) -> None:
        """:raises Failed: it has ended, or printed something wrong."""
        if self.problem is not None:
            raise Failed(f"{self.name}: {self.problem}")
        if self.process.poll() is not None:
            self._join()
            raise Failed(f"{self.name} ended with {self.process.returncode}: {self.error!r}")

    def interrupt(self) -> None:
        """Send Ctrl-C, and wait for the end."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(PATIENCE)
        self._join()
        if self.problem is not None:
            raise Failed(f"{self.name}: {self.problem}")

    def _join(self) -> None:
        for each in self._threads:
            each.join(PATIENCE)

    def close(self) -> None:
        """End it, whatever it does."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._join()
        os.close(self.output)


class Order:
    """Checks that the numbers of each key come one after the other.

    :ivar seen: number of events.
    """

    def __init__(self) -> None:
        self.seen = 0
        self._next = [0] * KEYS

    def take(self, line: bytes) -> None:
        """:raises ValueError: an event is missing, printed twice or out of order."""
        key, number = (int(each) for each in line.split()[:2])
        if number != self._next[key]:
            raise ValueError(f"key {key}: event {number} where {self._next[key]} was expected")
        self._next[key] += 1
        self.seen += 1


class Samples:
    """Looks at each sample that ``top --json`` prints.

    :ivar segments: the numbers of segments that it has shown.
    """

    def __init__(self) -> None:
        self.segments: set[int] = set()
        self.rates: list[float] = []

    def take(self, line: bytes) -> None:
        """:raises ValueError: something could not be looked at."""
        record = json.loads(line)
        for row in record["streams"] + record["groups"]:
            if row["error"] is not None:
                raise ValueError(row["error"])
        for row in record["streams"]:
            self.segments.add(row["segments"])
            if row["bytes_per_second"] is not None:
                self.rates.append(row["bytes_per_second"])


def command(stack: ExitStack, uri: str, name: str, words: str, take: Callable[[bytes], None], *,
            terminal: bool = False) -> Watched:  # fmt: skip
    """Start a command.

    :param terminal: whether it writes to a terminal instead of a pipe.
    """
    environment = {
        **os.environ, "PRAVEGA_CONTROLLER_URI": uri, "PYTHONPATH": str(ROOT), "TERM": "xterm",
        "COLUMNS": "100", "LINES": "40", "XDG_CONFIG_HOME": "/nonexistent",
    }  # fmt: skip
    ours, theirs = os.openpty() if terminal else os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "pravega_wire", *words.split()],
        env=environment, stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.PIPE,
        # In the background of a shell it would be ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    os.close(theirs)
    watched = Watched(name, process, ours, take)
    stack.callback(watched.close)
    return watched


def fifths(samples: Sequence[float]) -> tuple[float, float]:
    """Return the medians of the second and the last fifth."""
    size = max(1, len(samples) // 5)
    return statistics.median(samples[size : 2 * size] or samples), statistics.median(samples[-size:])


def soak(
    server: PravegaServer,
    seconds: float,
    rate: int,
    scale_every: float,
    say: Callable[[str], None],
    interval: float = 1.0,
) -> dict[str, Any]:
    """Run the commands for this long, and return what was seen.

    :param rate: events per second.
    :param scale_every: seconds from one scale to the next.
    :param interval: seconds between two looks at the memory, and between the samples of ``top``.
    :raises Failed: a command did not do what it promises.
    """
    scope = f"cli-soak-{os.getpid()}"
    stream = f"{scope}/readings"
    follow, member, samples = Order(), Order(), Samples()
    with ExitStack() as stack:
        client = stack.enter_context(sync.open_client(server.config(scope)))
        client.create_scope(scope)
        client.create_stream("readings", StreamConfiguration(scaling=ScalingPolicy.fixed(1)))
        client.create_reader_group("screen", ["readings"])
        every = f"--interval {interval}s"

        def start(*words: Any, **more: Any) -> Watched:
            return command(stack, server.controller_uri, *words, **more)

        running = [
            start("read --follow", f"read {stream} --follow", follow.take),
            start("read --follow --group", f"read {stream} --follow --group {scope}/screen", member.take),
            start("top --json", f"top {stream} --group {scope}/screen {every} --json", samples.take),
            start(
                "top (terminal)",
                f"top {stream} --group {scope}/screen {every}",
                lambda line: None,
                terminal=True,
            ),
        ]
        writer = stack.enter_context(client.event_writer("readings"))
        scaling = stack.enter_context(ThreadPoolExecutor(1))
        scale: Future[None] | None = None
        layouts = cycle(LAYOUTS)
        began = time.monotonic()
        written = scales = 0
        scale_at, look_at, say_at = scale_every, interval, 60.0
        while (now := time.monotonic() - began) < seconds:
            numbers = range(written, int(now * rate))
            if numbers:
                writer.write_events(
                    (b"%d %d %060d" % (each % KEYS, each // KEYS, each) for each in numbers),
                    routing_keys=(str(each % KEYS) for each in numbers),
                )
                written = numbers.stop
            if now >= scale_at and (scale is None or scale.done()):
                if scale is not None:
                    scale.result()
                scale = scaling.submit(scale_to, client, next(layouts))
                scales += 1
                scale_at = now + scale_every
            if now >= look_at:
                for each in running:
                    each.check()
                    each.samples.append(resident(each.process.pid) / 1e6)
                look_at += interval
            if now >= say_at:
                sizes = ", ".join(f"{each.name} {each.samples[-1]:.1f} MB" for each in running)
                say(f"{written} events, {scales} scales; {sizes}")
                say_at += 60.0
            time.sleep(0.02)
        writer.flush()
        if scale is not None:
            scale.result()

        # What is written is read, and shown.
        shown = [each.lines for each in running[2:]]
        limit = time.monotonic() + PATIENCE
        while min(follow.seen, member.seen) < written or any(
            each.lines <= before for each, before in zip(running[2:], shown, strict=True)
        ):
            for each in running:
                each.check()
            if time.monotonic() > limit:
                raise Failed(
                    f"of {written} events, read --follow printed {follow.seen} and with --group {member.seen}"
                )
            time.sleep(0.05)
        for each in running:
            each.interrupt()
        for order, each in ((follow, running[0]), (member, running[1])):
            if order.seen != written:
                raise Failed(f"{each.name} printed {order.seen} events, not {written}")
        for each in running:
            if each.process.returncode != 130 or not INTERRUPTED.fullmatch(each.error):
                raise Failed(f"{each.name} ended with {each.process.returncode}: {each.error!r}")
    return {
        "seconds": round(seconds, 1),
        "events": written,
        "scales": scales,
        "segments_seen": sorted(samples.segments),
        "top_bytes_per_second": round(statistics.median(samples.rates), 1) if samples.rates else None,
        "commands": [
            {
                "command": each.name,
                "lines": each.lines,
                "exit_code": each.process.returncode,
                **memory(each.samples),
            }
            for each in running
        ],
    }


def memory(samples: Sequence[float]) -> dict[str, float]:
    """Return what is said about the memory of a process, in megabytes."""
    early, late = fifths(samples)
    found = {
        "first": samples[0],
        "early": early,
        "late": late,
        "largest": max(samples),
        "growth": late - early,
    }
    return {f"{name}_mb": round(each, 2) for name, each in found.items()}


def scale_to(client: sync.PravegaClient, count: int) -> None:
    """Replace all segments by this many of equal width."""
    active = [each.segment_id for each in client.active_segments("readings")]
    client.scale_stream("readings", active, [(each / count, (each + 1) / count) for each in range(count)])


def table(result: dict[str, Any]) -> str:
    """Return the commands as a table."""
    lines = [
        "| command | lines | exit code | MB, second fifth | MB, last fifth | largest |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| `{each['command']}` | {each['lines']} | {each['exit_code']} | {each['early_mb']:.1f} | "
        f"{each['late_mb']:.1f} | {each['largest_mb']:.1f} |"
        for each in result["commands"]
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cli_soak", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rate", type=int, default=1000, help="events per second")
    parser.add_argument("--scale-every", type=float, default=20.0, help="seconds")
    arguments = parser.parse_args()
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"[cli soak {time.monotonic() - started:5.0f} s] {text}", file=sys.stderr, flush=True)

    with standalone() as server:
        try:
            result = soak(server, arguments.minutes * 60, arguments.rate, arguments.scale_every, say)
        except Failed as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    print(json.dumps(result, indent=2))
    print(table(result))
    grown = [each["command"] for each in result["commands"] if each["growth_mb"] > GROWTH]
    if grown:
        print(f"error: these have grown by more than {GROWTH} MB: {', '.join(grown)}", file=sys.stderr)
    return 1 if grown else 0


if __name__ == "__main__":
    raise SystemExit(main())
