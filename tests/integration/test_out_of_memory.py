"""A test server that has no memory left ends, and the next call says why."""

from __future__ import annotations

import pytest
import trio

from pravega_wire import open_client
from pravega_wire.errors import ServerEndedError
from pravega_wire.testing import standalone

_WHY = r"test server standalone has ended: it ran out of memory \(java\.lang\.OutOfMemoryError.*memory=192m\)"


def test_a_server_without_memory() -> None:
    async def fill() -> None:
        async with open_client(server.config("s")) as client:
            await client.create_scope("s")
            await client.create_stream("x", 1)
            async with client.event_writer("x") as writer:
                while True:
                    await writer.write_events([bytes(100_000)] * 80)
                    await writer.flush()

    async def ask() -> None:
        async with open_client(server.config("s")) as client:
            await client.create_scope("other")

    with standalone(kind="jars", memory="192m", cache_bytes=64 << 20) as server:
        with pytest.raises(ServerEndedError, match=_WHY):
            trio.run(fill)
        assert not server.processes[0].alive
        with pytest.raises(ServerEndedError, match=_WHY):
            trio.run(ask)
