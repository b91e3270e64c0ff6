"""Drives the soak: starts the writers, scales, kills and restarts, and checks the outcome."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from itertools import cycle
from pathlib import Path
from uuid import uuid4

import trio

from pravega_wire import PravegaClient, PravegaConfig, open_client
from pravega_wire.errors import PravegaError
from pravega_wire.testing import PravegaCluster
from tests.faults.soak import verify
from tests.faults.support import scale_to

Step = Callable[[PravegaClient, str], Awaitable[None]]
ROOT = Path(__file__).resolve().parents[2]


def _start(config: PravegaConfig, stream: str, seconds: float, processes: int) -> list[subprocess.Popen[str]]:
    return [
        subprocess.Popen(
            [
                sys.executable, "-m", "tests.faults.soak", "worker", config.controller_uri,
                str(config.default_scope), stream, f"w{number}", str(seconds),
            ],
            stdout=subprocess.PIPE, text=True, cwd=ROOT,
        )
        for number in range(processes)
    ]  # fmt: skip


def _steps(cluster: PravegaCluster, say: Callable[[str], None]) -> Iterator[Step]:
    """What happens to the cluster: scales over and over, a store killed twice and the controller once."""

    def scale(count: int) -> Step:
        async def step(client: PravegaClient, stream: str) -> None:
            say(f"scale to {count}")
            await scale_to(client, stream, count)

        return step

    def kill(name: str) -> Step:
        async def step(client: PravegaClient, stream: str) -> None:
            say(f"kill -9 {name}")
            process = cluster.stores[0] if name == "store" else cluster.controllers[0]
            await trio.to_thread.run_sync(process.restart)

        return step

    yield from (
        scale(4),
        kill("store"),
        scale(2),
        kill("controller"),
        scale(1),
        scale(4),
        kill("store"),
        scale(2),
    )
    yield from cycle((scale(4), scale(2), scale(1)))


def run_soak(cluster: PravegaCluster, *, seconds: float, processes: int, say: Callable[[str], None]) -> int:
    """Run writers for so long while the cluster is disturbed; returns the number of events, all checked.

    :raises AssertionError: an acknowledged event is missing, doubled, or out of order.
    """
    scope, stream = f"soak-{uuid4().hex[:8]}", "events"
    config = PravegaConfig.from_defaults(controller_uri=cluster.controller_uri, scope=scope, env={})

    async def main() -> int:
        async with open_client(config) as client:
            await client.create_scope(scope)
            await client.create_stream(stream, 1)
            writers = _start(config, stream, seconds, processes)
            try:
                end = time.monotonic() + seconds
                for step in _steps(cluster, say):
                    # Time to recover from one blow before the next: a store's containers move in 35 s.
                    await trio.sleep(max(4.0, seconds / 14))
                    if time.monotonic() > end:
                        break
                    try:
                        await step(client, stream)
                    except PravegaError as error:
                        # A disturbance that fails because of the one before it is nothing to the writers.
                        say(f"not done: {error}")
                say("waiting for the writers")
                counts = []
                for writer in writers:
                    out, _ = await trio.to_thread.run_sync(writer.communicate)
                    if writer.returncode != 0:
                        raise AssertionError(f"a writer ended with {writer.returncode}")
                    counts.append(json.loads(out))
            finally:
                for writer in writers:
                    writer.kill()
            say("checking")
            return await verify(client, stream, counts)

    total = trio.run(main)
    say(f"{total} events, each once and in order")
    return total
