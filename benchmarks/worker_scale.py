"""One client over many segments, streams or readers: ``python -m benchmarks.worker_scale URI SCOPE``.

Requests, of which each process gets one:

- ``segments<TAB>stream<TAB>n``: create a stream of so many segments, append four events for each of them with
  one writer, look up its tail, and read it.
- ``streams<TAB>prefix<TAB>n``: create so many streams of one segment, append four events to each with its
  own writer, all writers open at once, and read each.
- ``readers<TAB>stream<TAB>n``: share the segments of a stream, twice as many as readers, among the readers of
  one group until each has at least one, and read four events for each segment.

A reply gives seconds for each step, processor time, memory and open descriptors.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import trio

from benchmarks.work import serve
from pravega_wire import EventReader, PravegaClient, PravegaConfig, ReaderGroupConfig, open_client

EVENTS_EACH = 4
AT_ONCE = 16
EVENT = b"x" * 100
JOIN_SECONDS = 0.1


class Steps:
    """The time of each step, and what the process takes at the end."""

    def __init__(self) -> None:
        self.found: dict[str, float] = {}
        self._cpu = time.process_time()

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure one step."""
        start = time.perf_counter()
        yield
        self.found[f"{name}_seconds"] = time.perf_counter() - start

    def note_resources(self) -> None:
        """Record memory (the most so far) and descriptors; call it while everything is open."""
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                self.found["peak_rss"] = int(line.split()[1]) * 1024
        self.found["descriptors"] = len(os.listdir("/proc/self/fd"))

    def answer(self, events: int) -> dict[str, float]:
        """Return the reply to the request."""
        return {"events": events, "cpu_seconds": time.process_time() - self._cpu, **self.found}


async def for_each(count: int, do: Callable[[int], Awaitable[object]]) -> None:
    """Do something for each number, some at a time."""
    limit = trio.CapacityLimiter(AT_ONCE)

    async def one(number: int) -> None:
        async with limit:
            await do(number)

    async with trio.open_nursery() as nursery:
        for number in range(count):
            nursery.start_soon(one, number)


async def read_all(client: PravegaClient, stream: str) -> int:
    """Return the number of events in a stream."""
    return sum([len(batch) async for batch in client.read_events(stream)])


async def segments(client: PravegaClient, steps: Steps, stream: str, count: int) -> int:
    """One writer and one reader of a stream of many segments."""
    with steps.step("create"):
        await client.create_stream(stream, count)
    events = EVENTS_EACH * count
    async with client.event_writer(stream) as writer:
        with steps.step("append"):
            await writer.write_events((EVENT for _ in range(events)), (f"k{each}" for each in range(events)))
            await writer.flush()
        steps.note_resources()
    with steps.step("tail"):
        await client.tail(stream)
    with steps.step("read"):
        return await read_all(client, stream)


async def streams(client: PravegaClient, steps: Steps, prefix: str, count: int) -> int:
    """Many streams, with a writer for each."""
    found = []
    with steps.step("create"):
        await for_each(count, lambda number: client.create_stream(f"{prefix}-{number}", 1))
    async with AsyncExitStack() as stack:
        with steps.step("append"):
            writers = []
            for number in range(count):
                opened = client.event_writer(f"{prefix}-{number}")
                writers.append(await stack.enter_async_context(opened))
            for writer in writers:
                await writer.write_events([EVENT] * EVENTS_EACH)
            for writer in writers:
                await writer.flush()
        steps.note_resources()

    async def read(number: int) -> None:
        found.append(await read_all(client, f"{prefix}-{number}"))

    with steps.step("read"):
        await for_each(count, read)
    return sum(found)


async def readers(client: PravegaClient, steps: Steps, stream: str, count: int) -> int:
    """One group with many readers."""
    total = EVENTS_EACH * 2 * count
    with steps.step("create"):
        await client.create_stream(stream, 2 * count)
    async with client.event_writer(stream) as writer:
        await writer.write_events((EVENT for _ in range(total)), (f"k{each}" for each in range(total)))
        await writer.flush()
    await client.create_reader_group(f"{stream}-group", ReaderGroupConfig.of([client.config.resolve(stream)]))
    found: list[int] = []
    # A reader that begins alone takes every segment, and gives up one every few seconds.
    delay = 1 + JOIN_SECONDS * count
    begun = time.perf_counter()
    waiting = set(range(count))

    async with client.reader_group(f"{stream}-group") as group:

        async def one(number: int, scope: trio.CancelScope) -> None:
            async with group.reader(f"reader-{number}", initial_delay=delay) as reader:
                while True:
                    if await reader.read_event(0.5) is not None:
                        found.append(number)
                    note(number, reader)
                    if len(found) == total and not waiting:
                        steps.note_resources()
                        scope.cancel()
                        await trio.lowlevel.checkpoint()

        def note(number: int, reader: EventReader[bytes]) -> None:
            if number in waiting and reader.segments:
                waiting.discard(number)
                if not waiting:
                    steps.found["share_seconds"] = time.perf_counter() - begun - delay

        with steps.step("read"):
            async with trio.open_nursery() as nursery:
                for number in range(count):
                    nursery.start_soon(one, number, nursery.cancel_scope)
    return len(found)


KINDS = {"segments": segments, "streams": streams, "readers": readers}


def main() -> None:
    uri, scope = sys.argv[1:]
    config = PravegaConfig.from_defaults(controller_uri=uri, scope=scope, env={})

    async def run(words: list[str]) -> dict[str, float]:
        steps = Steps()
        async with open_client(config) as client:
            found = await KINDS[words[0]](client, steps, words[1], int(words[2]))
        return steps.answer(found)

    serve(lambda words: trio.run(run, words))


if __name__ == "__main__":
    main()
