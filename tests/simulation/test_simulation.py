"""New seeds for each commit, and the same run twice."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from tests.simulation.__main__ import main as simulate_command
from tests.simulation.__main__ import told
from tests.simulation.machine import Events, Failure, Interruptions, Trace, run
from tests.simulation.workloads import WORKLOADS
from tests.simulation.world import Settings, simulate

ROOT = Path(__file__).parents[2]
_SEEDS = 10


def first_seed() -> int:
    """The seeds of a commit follow from its id, so that each has its own and a failure stays one."""
    found = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    text = os.environ.get("PRAVEGA_SIMULATION_SEED") or f"0x{found.stdout[:7] or '1'}"
    return int(text, 0)


@pytest.mark.parametrize("workload", sorted(WORKLOADS))
def test_seeds_of_this_commit(workload: str) -> None:
    first = first_seed()
    for seed in range(first, first + _SEEDS):
        result = simulate(WORKLOADS[workload], Settings(workload, seed))
        assert result.failure is None, told(result)
        assert result.lines > 50


@pytest.mark.parametrize("workload", sorted(WORKLOADS))
def test_a_seed_is_one_run(workload: str) -> None:
    """The same in two processes that hash texts differently."""
    runs = []
    for number in (1, 2):
        made = subprocess.run(
            [sys.executable, "-m", "tests.simulation", "--workload", workload, "--first", "7",
             "--seeds", "2", "--json", "--keep-going"],
            cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": str(number)}, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        lines = [json.loads(line) for line in made.stdout.splitlines()]
        assert len(lines) == 2, made.stderr
        runs.append([(line["seed"], line["trace"], line["failure"]) for line in lines])
    assert runs[0] == runs[1]
    assert len({trace for _, trace, _ in runs[0]}) == 2


def test_loops_of_other_threads_do_not_change_a_run() -> None:
    """As when tests before it have left a blocking client open."""

    def once() -> str:
        return simulate(WORKLOADS["revisions"], Settings("revisions", 7)).trace

    stop, started = threading.Event(), threading.Event()

    async def rest() -> None:
        while not stop.is_set():
            await trio.sleep(0.001)
            started.set()

    async def several() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(rest)

    alone = once()
    other = threading.Thread(target=trio.run, args=(several,))
    other.start()
    try:
        assert started.wait(60)
        assert once() == alone
    finally:
        stop.set()
        other.join()


@pytest.mark.parametrize("waits", [trio.lowlevel.checkpoint, trio.sleep_forever])
def test_a_run_that_stands_still_ends(waits: Callable[[], Awaitable[None]]) -> None:
    events = Events(Trace())

    async def main(interruptions: Interruptions) -> None:
        await trio.sleep(7)
        while True:
            await waits()

    with pytest.raises(Failure, match=r"time does not go on at 7\.0"):
        run("seed", events, main)


def test_a_simulated_server_that_fails_ends_the_run() -> None:
    events = Events(Trace())

    def fail() -> None:
        raise ZeroDivisionError

    async def main(interruptions: Interruptions) -> None:
        events.after(3, fail)
        await trio.sleep(9)

    with pytest.raises(ZeroDivisionError):
        run("seed", events, main)
    assert events.now == 3


def test_a_failure_says_the_command_that_gives_it_again(capsys: pytest.CaptureFixture[str]) -> None:
    """As the page on the simulation does it."""

    def failing(words: list[str]) -> tuple[str, list[str]]:
        assert simulate_command(words) == 1
        said = capsys.readouterr().out
        [again] = re.findall(r"again: scripts/simulate (.*) \[--trace\]", said)
        return re.sub(r"[\d.]+ of the processor", "", said), shlex.split(again)

    found, again = failing(["--tooth", "set-up ignored", "--workload", "writers", "--first", "1"])
    assert failing(again) == (found, again)
    shrunk, again = failing([*again, "--shrink"])
    assert "--skip" in again
    assert "--without" in again
    assert failing(again) == (shrunk, again)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--seed 5", "needs --workload"),
        ("--workload writers --shrink", "need --seed"),
        ("--trace", "need --seed"),
        ("--workload writers --seed 5 --without cut,flood", "no kinds of faults: ..flood"),
        ("--minutes 0", "more than 0"),
        ("--seeds -1", "more than 0"),
    ],
)
def test_a_command_that_means_nothing_is_refused(
    words: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        simulate_command(words.split())
    assert re.search(reason, capsys.readouterr().err)


def test_the_client_takes_time_chance_and_ids_from_its_environment() -> None:
    """What it takes from elsewhere, no simulation controls."""
    others = re.compile(
        r"\bperf_counter\b|\buuid[14]\b|\burandom\b|\btoken_bytes\b|\btime\.(time|monotonic)(_ns)?\b"
        r"|[=,] datetime\.now\("
        r"|\brandom\.(random|choice|randrange|randint|shuffle|uniform)\("
        r"|from (time|random|secrets) import (?!Random\b)"
    )
    # What runs on the machine itself: test servers, the command line, the dissector's proxy.
    outside = {"testing", "cli", "dissect", "proto", "pytest_plugin.py"}
    found = []
    for path in sorted((ROOT / "pravega_wire").rglob("*.py")):
        part = path.relative_to(ROOT / "pravega_wire")
        if part.parts[0] in outside or str(part) == "support/environment.py":
            continue
        found += [
            f"{part}:{number}: {line.strip()}"
            for number, line in enumerate(path.read_text().splitlines(), 1)
            if others.search(line)
        ]
    assert found == []
