"""The work ``scale``: one client, and more and more segments, streams and readers."""

from __future__ import annotations

import json
import random
import time
from typing import IO, Any, Protocol
from uuid import uuid4

from benchmarks.peers import Participant, ParticipantError, python_command
from pravega_wire import ReaderGroupConfig
from tests.property.group_simulation import STREAM, Group, Reader

__all__ = ["COUNTS", "ScaleBench"]

COUNTS = {
    "segments": (625, 1250, 2500, 5000),
    "streams": (250, 500, 1000, 2000),
    "readers": (25, 50, 100, 200),
    "simulated readers": (100, 200, 400, 800),
}
"""What grows, and how many there are of it."""

_STEP_SECONDS = 1800.0


class Owner(Protocol):
    """What this needs of the whole benchmark."""

    uri: str
    scope: str
    scale: float
    out: IO[str]
    records: list[dict[str, Any]]
    directory: Any

    def say(self, text: str) -> None: ...


class ScaleBench:
    """Runs each step in a process of its own, so that its memory is its own."""

    def __init__(self, bench: Owner) -> None:
        self._bench = bench

    def run(self) -> None:
        """Run all steps."""
        for kind, counts in COUNTS.items():
            for count in counts:
                count = max(2, round(count * self._bench.scale))
                self._bench.say(f"scale: {count} {kind}")
                record: dict[str, Any] = {"growing": kind, "count": count}
                try:
                    answer = simulate(count) if kind.startswith("simulated") else self._measure(kind, count)
                    record |= answer
                except ParticipantError as error:
                    record["error"] = str(error)
                    self._bench.say(record["error"])
                self._bench.records.append(record)
                self._bench.out.write(json.dumps(record) + "\n")
                self._bench.out.flush()

    def _measure(self, kind: str, count: int) -> dict[str, Any]:
        bench = self._bench
        worker = Participant(
            f"scale {kind} {count}", python_command("worker_scale", bench.uri, bench.scope), bench.directory
        )
        try:
            answer = worker.request(kind, f"scale-{uuid4().hex}", count, timeout=_STEP_SECONDS)
        finally:
            worker.stop()
        wanted = {"segments": 4, "streams": 4, "readers": 8}[kind] * count
        if answer["events"] != wanted:
            raise ParticipantError(f"{answer['events']} events were read instead of {wanted}")
        return answer


def simulate(count: int) -> dict[str, Any]:
    """Let so many readers share twice as many segments, without a server.

    The simulation is the one of the property tests. It tells how many updates of the state the group writes
    until each reader has its share; the time is mostly that of its own checks.
    """
    group = Group(random.Random(count), ReaderGroupConfig({STREAM: None}), 2 * count)
    start, joined = time.process_time(), 0
    readers = [Reader(group, f"reader{number}") for number in range(count)]
    joined = len(group.log)
    while True:
        shares = [len(group.state.assigned.get(reader.name, ())) for reader in readers]
        if sum(shares) == 2 * count and max(shares) - min(shares) <= 1:
            break
        group.now += 0.25
        for reader in readers:
            reader.read()
        # Old states are not looked at again, and would take gigabytes.
        for number in range(min(reader.known for reader in readers)):
            group.states[number] = group.states[-1]
    return {
        "updates": len(group.log),
        "updates_to_join": joined,
        "share_seconds": group.now,
        "cpu_seconds": time.process_time() - start,
    }
