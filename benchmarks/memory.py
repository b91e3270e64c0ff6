"""Measures the memory that the client needs: ``python -m benchmarks.memory [--gigabytes 1]``.

A process of its own reads a segment of that size, others read it through a reader group and in pieces of
which several are read at a time, and another appends that much through a proxy that passes on 20 MB a second,
far less than the writer could. Each prints the largest resident size while it worked minus the size before;
more than 200 MB is reported and ends with status 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import trio

from benchmarks.peers import Participant, python_command
from benchmarks.work import HEADER_BYTES, measure, payloads, serve
from pravega_wire import PravegaConfig, open_client
from pravega_wire import sync as blocking
from pravega_wire.testing import FaultProxy, cluster

LIMIT = 200 * 10**6
SIZE = 1000


def resident(process: int | str = "self") -> int:
    """Return the resident bytes of this process, or of the one with this id."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("the system does not tell a process's size")


def work(uri: str, scope: str) -> None:
    """Run the measured process: ``append STREAM EVENTS STORE_HOST:PORT>PORT``, or a way to read and a
    stream."""
    config = PravegaConfig.from_defaults(controller_uri=uri, scope=scope, env={})

    async def run(words: list[str]) -> dict[str, float]:
        before = resident()
        ports = {name: int(port) for name, port in (each.split(">") for each in words[3:])}

        def mapped(host: str, port: int) -> tuple[str, int]:
            return "127.0.0.1", ports.get(f"{host}:{port}", port)

        events = 0
        async with open_client(config, address_map=mapped) as client:
            with measure() as clock:
                if words[0] == "read":
                    async for batch in client.read_events(words[1]):
                        events += len(batch)
                elif words[0] == "group":
                    await client.create_reader_group("memory", [words[1]])
                    async with client.reader_group("memory") as group, group.reader("one") as reader:
                        while await reader.read_event(5.0) is not None:
                            events += 1
                elif words[0] == "ranges":
                    ranges = await client.segment_ranges(words[1], max_range_bytes=16 << 20)
                    async with client.read_ranges(ranges, at_once=8, ordered=False) as batches:
                        async for some in batches:
                            events += len(some)
                else:
                    events = int(words[2])
                    async with client.event_writer(words[1]) as writer:
                        await writer.write_events(payloads(SIZE, events))
        return clock.answer(events, events * SIZE) | {"resident_before": before}

    serve(lambda words: trio.run(run, words))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=1.0)
    arguments = parser.parse_args()
    events = int(arguments.gigabytes * 1e9) // (SIZE + HEADER_BYTES)
    worst = 0
    with ExitStack() as stack:
        server = stack.enter_context(cluster())
        proxy = stack.enter_context(FaultProxy())
        proxy.slow(20e6)
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="memory-")))
        scope = f"memory-{uuid4().hex[:8]}"
        config = PravegaConfig.from_defaults(controller_uri=server.controller_uri, scope=scope, env={})
        with blocking.open_client(config) as client:
            client.create_scope(scope)
            client.create_stream("slow", 1)
            client.create_stream("read", 1)
        through = [
            f"{host}:{port}>{proxy.endpoint(host, port)}"
            for host, port in (store.address for store in server.stores)
        ]
        requests = (
            ("append", "slow", events, *through),
            ("append", "read", events),
            ("read", "read"),
            ("ranges", "read"),
            ("group", "read"),
        )
        for words in requests:
            worker = Participant(
                "-".join(map(str, words[:2])),
                python_command("memory", server.controller_uri, scope),
                directory,
            )
            try:
                answer = worker.request(*words, timeout=600)
            finally:
                worker.stop()
            growth = answer["peak_rss"] - answer["resident_before"]
            worst = max(worst, growth)
            name = f"{words[0]} {'to a slow server' if len(words) > 3 else ''}".strip()
            print(json.dumps({"operation": name, "growth_mb": growth / 1e6} | answer), flush=True)
            if answer["events"] != events:
                print(f"error: {events} events were expected", file=sys.stderr)
                return 1
    print(f"largest growth {worst / 1e6:.0f} MB of {LIMIT / 1e6:.0f} MB allowed", file=sys.stderr)
    return 1 if worst > LIMIT else 0


if __name__ == "__main__":
    # Two plain arguments: this is the measured process.
    if len(sys.argv) == 3 and not sys.argv[1].startswith("-"):
        work(*sys.argv[1:])
    else:
        raise SystemExit(main())
