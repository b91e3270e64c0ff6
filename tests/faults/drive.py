"""Drives the soaks: starts the processes, scales, kills and restarts, and checks the outcome."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import cycle
from pathlib import Path
from uuid import uuid4

import trio

from pravega_wire import PravegaClient, PravegaConfig, open_client
from pravega_wire.errors import ControllerError, PravegaError
from pravega_wire.support.nurseries import lone_errors
from pravega_wire.testing import PravegaCluster, ServerProcess, server_classpath
from tests.faults import soak, transaction_soak
from tests.faults.support import scale_to

Step = Callable[[PravegaClient, str], Awaitable[None]]
Say = Callable[[str], None]
ROOT = Path(__file__).resolve().parents[2]
STREAM = "events"


def _process(module: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", f"tests.faults.{module}", *map(str, arguments)],
        stdout=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip


def _steps(cluster: PravegaCluster, say: Say, version: str | None) -> Iterator[Step]:
    """What happens to the cluster: scales over and over, a store killed twice and the controller once.

    :param version: the version of Pravega that the stores and controllers are first brought to, one by one.
    """

    def upgrade(process: ServerProcess, version: str) -> Step:
        def replaced() -> None:
            process.stop()
            process.command[process.command.index("-cp") + 1] = os.pathsep.join(
                map(str, server_classpath(version))
            )
            process.start()

        async def step(client: PravegaClient, stream: str) -> None:
            say(f"{process.name} becomes {version}")
            await trio.to_thread.run_sync(replaced)

        return step

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

    if version:
        for process in (*cluster.stores, *cluster.controllers):
            yield from (scale(4), upgrade(process, version), scale(2))
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


@asynccontextmanager
async def _stream(cluster: PravegaCluster) -> AsyncIterator[tuple[PravegaClient, PravegaConfig]]:
    scope = f"soak-{uuid4().hex[:8]}"
    config = PravegaConfig.from_defaults(controller_uri=cluster.controller_uri, scope=scope, env={})
    async with open_client(config) as client:
        await client.create_scope(scope)
        with trio.fail_after(60):
            while True:
                try:
                    await client.create_stream(STREAM, 1)
                    break
                except ControllerError as error:
                    # The test before may have killed a store, and the message says to call again.
                    if error.status != "FAILURE":
                        raise
                    await trio.sleep(0.5)
        yield client, config


async def _disturb(
    cluster: PravegaCluster, client: PravegaClient, seconds: float, say: Say, version: str | None = None
) -> None:
    """One blow after the other until the time is up."""
    end = time.monotonic() + seconds
    for step in _steps(cluster, say, version):
        # Time to recover from one blow before the next: a store's containers move in 35 s.
        await trio.sleep(max(4.0, seconds / 14))
        if time.monotonic() > end:
            break
        try:
            await step(client, STREAM)
        except PravegaError as error:
            # A disturbance that fails because of the one before it is nothing to the writers.
            say(f"not done: {error}")
    say("waiting for the processes")


def run_soak(
    cluster: PravegaCluster,
    *,
    seconds: float,
    processes: int,
    say: Say,
    swallow: float = 60.0,
    version: str | None = None,
) -> int:
    """Run writers for so long while the cluster is disturbed; returns the number of events, all checked.

    :param swallow: seconds that a link may swallow everything at a time.
    :param version: the version of Pravega that its servers are brought to meanwhile, one by one.
    :raises AssertionError: an acknowledged event is missing, doubled, or out of order.
    """

    async def main() -> int:
        async with _stream(cluster) as (client, config):
            writers = [
                _process(
                    "soak",
                    "worker",
                    config.controller_uri,
                    config.scope,
                    STREAM,
                    f"w{number}",
                    seconds,
                    swallow,
                )
                for number in range(processes)
            ]
            try:
                await _disturb(cluster, client, seconds, say, version)
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
            return await soak.verify(client, STREAM, counts)

    total = trio.run(main)
    say(f"{total} events, each once and in order")
    return total


def run_transaction_soak(
    cluster: PravegaCluster, *, seconds: float, processes: int, say: Say
) -> Counter[str]:
    """As :func:`run_soak` with transactions, and the processes are killed as well.

    :returns: how many transactions were committed, aborted and stuck, and how many processes were killed.
    :raises AssertionError: something of a committed transaction is missing, doubled or out of order, or
        something of another one is there.
    """
    chance = random.Random(1)
    outcome: Counter[str] = Counter()

    async def main() -> None:
        end = time.monotonic() + seconds
        with tempfile.TemporaryDirectory() as directory:
            journals = {f"w{number}": Path(directory, f"w{number}") for number in range(processes)}
            async with _stream(cluster) as (client, config):

                async def keep_running(name: str, journal: Path) -> None:
                    """Start the process again as often as it is killed, by itself or here."""
                    while True:
                        worker = _process(
                            "transaction_soak", config.controller_uri, config.scope, STREAM, name,
                            max(0.0, end - time.monotonic()), journal,
                        )  # fmt: skip
                        try:
                            with trio.move_on_after(chance.uniform(2.0, 20.0)) as limit:
                                await trio.to_thread.run_sync(worker.wait, abandon_on_cancel=True)
                            if limit.cancelled_caught and time.monotonic() < end:
                                worker.kill()
                            code = await trio.to_thread.run_sync(worker.wait)
                        finally:
                            worker.kill()
                        if code == 0:
                            return
                        if code != -signal.SIGKILL:
                            raise AssertionError(f"process {name} ended with {code}")
                        outcome["killed"] += 1

                async with trio.open_nursery() as nursery:
                    for name, journal in journals.items():
                        nursery.start_soon(keep_running, name, journal)
                    await _disturb(cluster, client, seconds, say)
                say("checking")
                found = {name: transaction_soak.Journal(path) for name, path in journals.items()}
                outcome["committed"] = await transaction_soak.verify(client, STREAM, found)
                for how in ("aborted", "stuck"):
                    outcome[how] = sum(len(journal.ended(how)) for journal in found.values())

    with lone_errors():
        trio.run(main)
    say(
        f"{outcome['committed']} transactions committed, {outcome['aborted']} aborted, {outcome['stuck']} "
        f"stuck on the server, {outcome['killed']} processes killed; everything committed is there once and "
        "in order, and nothing else"
    )
    return outcome
