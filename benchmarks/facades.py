"""Compares the cost of the blocking and asyncio clients with that of the trio client: ``python -m
benchmarks.facades``.

All of them do the same work in one process, in turn, so that what else the machine does meets them alike.
Times are of the whole process, with the client's thread: processor seconds and seconds by the wall, the
median of the rounds. Needs a server at ``PRAVEGA_CONTROLLER_URI``.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Callable
from statistics import median
from uuid import uuid4

import trio

from pravega_wire import PravegaConfig, aio, open_client, sync

Times = tuple[float, float]


class Clock:
    """Measure the CPU time and wall time of a block."""

    def __enter__(self) -> Clock:
        self._began = time.process_time(), time.perf_counter()
        return self

    def __exit__(self, *exc: object) -> None:
        self.times: Times = time.process_time() - self._began[0], time.perf_counter() - self._began[1]


class Work:
    """One stream with events, and the ways to append to it and to read it.

    :param bulk: events of the bulk measurements, of 100 bytes.
    :param single: events that are appended one by one.
    """

    def __init__(self, config: PravegaConfig, bulk: int, single: int) -> None:
        self.config = config
        self.events = [bytes(100)] * bulk
        self.single = single
        self.total = bulk

    # --- appending ------------------------------------------------------------------------------

    def append_bulk_trio(self) -> Times:
        async def main() -> Times:
            async with open_client(self.config) as client, client.event_writer("out") as writer:
                await (await writer.write_event(b"first")).wait()
                with Clock() as clock:
                    await writer.write_events(self.events, "key")
                    await writer.flush()
                return clock.times

        return trio.run(main)

    def append_bulk_aio(self) -> Times:
        async def main() -> Times:
            async with aio.open_client(self.config) as client, client.event_writer("out") as writer:
                await (await writer.write_event(b"first")).wait()
                with Clock() as clock:
                    await writer.write_events(self.events, "key")
                    await writer.flush()
                return clock.times

        return asyncio.run(main())

    def append_single_trio(self) -> Times:
        async def main() -> Times:
            async with open_client(self.config) as client, client.event_writer("out") as writer:
                await (await writer.write_event(b"first")).wait()
                event = bytes(100)
                with Clock() as clock:
                    for _ in range(self.single):
                        await writer.write_event(event, "key")
                    await writer.flush()
                return clock.times

        return trio.run(main)

    def append_single_sync(self) -> Times:
        with sync.open_client(self.config) as client, client.event_writer("out") as writer:
            writer.write_event(b"first").wait()
            event = bytes(100)
            with Clock() as clock:
                for _ in range(self.single):
                    writer.write_event(event, "key")
                writer.flush()
            return clock.times

    def append_single_aio(self) -> Times:
        async def main() -> Times:
            async with aio.open_client(self.config) as client, client.event_writer("out") as writer:
                await (await writer.write_event(b"first")).wait()
                event = bytes(100)
                with Clock() as clock:
                    for _ in range(self.single):
                        await writer.write_event(event, "key")
                    await writer.flush()
                return clock.times

        return asyncio.run(main())

    # --- reading --------------------------------------------------------------------------------

    def read_bulk_trio(self) -> Times:
        async def main() -> Times:
            async with open_client(self.config) as client:
                await client.tail("in")
                with Clock() as clock:
                    count = 0
                    async for batch in client.read_events("in"):
                        count += len(batch)
                assert count == self.total
                return clock.times

        return trio.run(main)

    def read_bulk_aio(self) -> Times:
        async def main() -> Times:
            async with aio.open_client(self.config) as client:
                await client.tail("in")
                with Clock() as clock:
                    count = 0
                    async for batch in client.read_events("in"):
                        count += len(batch)
                assert count == self.total
                return clock.times

        return asyncio.run(main())

    def read_single_trio(self) -> Times:
        async def main() -> Times:
            async with open_client(self.config) as client:
                name = uuid4().hex
                await client.create_reader_group(name, ["in"])
                async with client.reader_group(name) as group, group.reader("one") as reader:
                    count = 1
                    await reader.read_event()
                    with Clock() as clock:
                        async for _ in reader:
                            count += 1
                            if count == self.total:
                                break
                    return clock.times

        return trio.run(main)

    def read_single_sync(self) -> Times:
        with sync.open_client(self.config) as client:
            name = uuid4().hex
            client.create_reader_group(name, ["in"])
            with client.reader_group(name) as group, group.reader("one") as reader:
                count = 1
                reader.read_event()
                with Clock() as clock:
                    for _ in reader:
                        count += 1
                        if count == self.total:
                            break
                return clock.times

    def read_single_aio(self) -> Times:
        async def main() -> Times:
            async with aio.open_client(self.config) as client:
                name = uuid4().hex
                await client.create_reader_group(name, ["in"])
                async with client.reader_group(name) as group, group.reader("one") as reader:
                    count = 1
                    await reader.read_event()
                    with Clock() as clock:
                        async for _ in reader:
                            count += 1
                            if count == self.total:
                                break
                    return clock.times

        return asyncio.run(main())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bulk", type=int, default=400_000)
    parser.add_argument("--single", type=int, default=100_000)
    parser.add_argument("--only", default="")
    chosen = parser.parse_args()
    config = PravegaConfig.from_defaults(scope=f"facades-{uuid4().hex[:8]}")
    work = Work(config, chosen.bulk, chosen.single)
    with sync.open_client(config) as client:
        assert config.scope is not None
        client.create_scope(config.scope)
        client.create_stream("in")
        client.create_stream("out")
        with client.event_writer("in") as writer:
            writer.write_events(work.events)
    cases: list[tuple[str, int, dict[str, Callable[[], Times]]]] = [
        ("append in bulk", work.total, {"trio": work.append_bulk_trio, "aio": work.append_bulk_aio}),
        ("read in bulk", work.total, {"trio": work.read_bulk_trio, "aio": work.read_bulk_aio}),
        (
            "append one by one",
            work.single,
            {"trio": work.append_single_trio, "sync": work.append_single_sync, "aio": work.append_single_aio},
        ),
        (
            "group, event by event",
            work.total,
            {"trio": work.read_single_trio, "sync": work.read_single_sync, "aio": work.read_single_aio},
        ),
    ]
    for name, events, ways in cases:
        if chosen.only not in name:
            continue
        times: dict[str, list[Times]] = {way: [] for way in ways}
        for _ in range(chosen.rounds):
            for way, run in ways.items():
                times[way].append(run())
        medians = {
            way: tuple(median(each[i] for each in found) for i in (0, 1)) for way, found in times.items()
        }
        for way, (cpu, wall) in medians.items():
            base = medians["trio"]
            print(
                f"{name:22} {way:5} cpu {cpu / events * 1e6:7.3f} us/event ({base[0] / cpu:5.2f})   "
                f"wall {events / wall / 1000:8.1f} k/s ({base[1] / wall:5.2f})",
                flush=True,
            )
    print(f"load {os.getloadavg()}")


if __name__ == "__main__":
    main()
