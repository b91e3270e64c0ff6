"""A test server that has no memory left ends, and the next call says why."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import trio

from pravega_wire import PravegaConfig, open_client
from pravega_wire.errors import RetriesExhaustedError, ServerEndedError
from pravega_wire.testing import PravegaServer, standalone

_WHY = r"test server standalone has ended: it ran out of memory \(java\.lang\.OutOfMemoryError.*memory=192m\)"

ATTEMPTS = 4


async def fill(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_scope("s")
        await client.create_stream("x", 1)
        async with client.event_writer("x") as writer:
            while True:
                await writer.write_events([bytes(100_000)] * 80)
                await writer.flush()


async def ask(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_scope("other")


def ended(server: PravegaServer) -> bool:
    """Whether it ran out of memory, and the client said so."""
    with pytest.raises((ServerEndedError, RetriesExhaustedError)) as caught:
        trio.run(fill, replace(server.config("s"), operation_timeout=40))
    if isinstance(caught.value, RetriesExhaustedError):
        # Its segment container may run into an error of its own first; then the server lives on without it.
        return False
    assert re.search(_WHY, str(caught.value))
    return True


@pytest.mark.real_server("it runs out of heap")
def test_a_server_without_memory() -> None:
    for _ in range(ATTEMPTS):
        with standalone(kind="jars", memory="192m", cache_bytes=64 << 20) as server:
            if not ended(server):
                continue
            assert not server.processes[0].alive
            with pytest.raises(ServerEndedError, match=_WHY):
                trio.run(ask, server.config("s"))
            return
    raise AssertionError(f"none of {ATTEMPTS} servers ran out of memory")
