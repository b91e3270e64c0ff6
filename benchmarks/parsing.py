"""What becomes of received bytes, without a server: ``python -m benchmarks.parsing``.

Chunks of 1 MiB are prepared for each kind of event lengths (``benchmarks.work.LENGTHS``, for events of 100
bytes). The work takes turns, round after round. Prints one JSON object a line: nanoseconds of processor time
for each event, the least and the median of the rounds.

- ``boundaries``: where events begin. The rest includes finding them, which iteration does on the way.
- ``list``, ``iterate``: payloads as ``bytes``, all at once and one after the other.
- ``arrow``: an Arrow array of payloads. ``arrow and offsets``: and one of their offsets, as Spark reads them.
- ``async for``, ``events_nowait``: a group's reader whose chunks are there already.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import trio

from benchmarks.work import LENGTHS, interpreter
from pravega_wire.protocol.events import EventAssembler, EventBatch, frame_event
from pravega_wire.stream.event_reader import BareEvent, EventReader, _Cursor, _Feed
from pravega_wire.values.types import ScopedStream

CHUNK_BYTES = 1 << 20


def chunks(kind: str, count: int) -> list[memoryview]:
    """Chunks as they are received, each with whole events and the beginning of one more."""
    chance = random.Random(kind)
    lengths = [each // 10 for each in LENGTHS[kind]]
    found = []
    for _ in range(count):
        data = bytearray()
        while len(data) < CHUNK_BYTES:
            data += frame_event(chance.randbytes(chance.choice(lengths)))
        found.append(memoryview(data)[:CHUNK_BYTES])
    return found


def batches(chunk: memoryview) -> list[EventBatch]:
    """What a client makes of a chunk."""
    return EventAssembler(0, "segment", lazy=True).take(chunk)


class Fed(EventReader[bytes]):
    """A reader of a group that takes chunks from a list instead of a server."""

    def __init__(self, data: list[memoryview]) -> None:
        nothing: Any = None
        super().__init__(nothing, ScopedStream("scope", "group"), "reader", None)
        self._next_round = float("inf")
        self._waiting: Iterator[EventBatch] = (batch for each in data for batch in batches(each))
        self._feed = _Feed("scope/stream/0.#epoch.0", nothing)

    async def _find(self, timeout: float | None = None) -> _Cursor | None:
        batch = next(self._waiting, None)
        self._move(None if batch is None else _Cursor(self._feed, batch.rows(BareEvent)))
        await trio.lowlevel.checkpoint()
        return self._cursor


def iterated(batch: EventBatch) -> None:
    for payload in batch:
        len(payload)


async def group(data: list[memoryview]) -> None:
    async for event in Fed(data):
        len(event.value)


async def group_nowait(data: list[memoryview]) -> None:
    reader = Fed(data)
    while await reader.read_event() is not None:
        for event in reader.events_nowait():
            len(event.value)


def of_batches(use: Callable[[EventBatch], object]) -> Callable[[list[memoryview]], None]:
    """Work on one batch after the other."""

    def run(data: list[memoryview]) -> None:
        for each in data:
            for batch in batches(each):
                use(batch)

    return run


WORK: dict[str, Callable[[list[memoryview]], None]] = {
    "boundaries": of_batches(len),
    "list": of_batches(EventBatch.to_list),
    "iterate": of_batches(iterated),
    "arrow": of_batches(EventBatch.to_arrow),
    "arrow and offsets": of_batches(lambda batch: (batch.to_arrow(), batch.offsets_arrow())),
    "async for": lambda data: trio.run(group, data),
    "events_nowait": lambda data: trio.run(group_nowait, data),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15, help="measured rounds (default 15)")
    parser.add_argument("--chunks", type=int, default=6, help="chunks of 1 MiB in each (default 6)")
    parser.add_argument("--work", nargs="+", choices=tuple(WORK), default=tuple(WORK), metavar="WORK")
    arguments = parser.parse_args()
    print(json.dumps(interpreter()))
    for kind in LENGTHS:
        data = chunks(kind, arguments.chunks)
        events = sum(len(batch) for each in data for batch in batches(each))
        taken: dict[str, list[float]] = {name: [] for name in arguments.work}
        # The first round warms up.
        for number in range(arguments.rounds + 1):
            for name, every in taken.items():
                start = time.process_time_ns()
                WORK[name](data)
                spent = time.process_time_ns() - start
                if number:
                    every.append(spent / events)
        for name, every in taken.items():
            least, middle = round(min(every), 1), round(median(every), 1)
            print(json.dumps({"lengths": kind, "work": name, "least_ns": least, "median_ns": middle}))


if __name__ == "__main__":
    main()
