"""Segment stores that die while they are written to, on a cluster of separate processes."""

from __future__ import annotations

from uuid import uuid4

import trio

from pravega_wire import PravegaConfig, TxnStatus, open_client
from pravega_wire.segment.appender import Ack
from pravega_wire.testing import PravegaCluster
from tests.faults.support import assert_exactly, event_of, read_all

SECONDS = 150
"""A store's containers move to the others in about 35 s; the rest is for a busy machine."""


def test_writer_goes_on_after_a_store_is_killed(pravega_cluster: PravegaCluster) -> None:
    """``kill -9`` in the middle of appends and of a transaction: nothing lost, nothing twice."""
    config = PravegaConfig.from_defaults(
        controller_uri=pravega_cluster.controller_uri, scope=f"kill-{uuid4().hex[:8]}", env={}
    )
    victim = pravega_cluster.stores[0]

    async def main() -> None:
        acks: list[Ack] = []
        with trio.fail_after(SECONDS):
            async with open_client(config) as client:
                await client.create_scope(str(config.scope))
                await client.create_stream("events", 4)
                await client.create_stream("transactions", 4)
                txn = await client.begin_transaction("transactions")
                written = 0
                async with client.event_writer("events") as writer:

                    async def write(count: int) -> None:
                        nonlocal written
                        for _ in range(count):
                            acks.append(await writer.write_event(*event_of(written)))
                            await txn.write_event(*event_of(written))
                            written += 1

                    await write(5000)
                    await writer.flush()
                    await write(5000)
                    # Some of these are stored and not acknowledged, some are still on their way.
                    victim.kill()
                    await write(10_000)
                    await writer.flush()
                assert all(ack.done and ack.error is None for ack in acks)
                await txn.commit()
                await txn.wait_committed()
                assert await txn.status() is TxnStatus.COMMITTED
                assert_exactly(await read_all(client, "events"), written)
                assert_exactly(await read_all(client, "transactions"), written)

    try:
        trio.run(main)
        assert not victim.alive
    finally:
        victim.start()


def test_writer_goes_on_after_the_controller_is_killed(pravega_cluster: PravegaCluster) -> None:
    """Appends need no controller; a scale that it is needed for waits until it is back."""
    config = PravegaConfig.from_defaults(
        controller_uri=pravega_cluster.controller_uri, scope=f"kill-{uuid4().hex[:8]}", env={}
    )
    controller = pravega_cluster.controllers[0]

    async def main() -> None:
        with trio.fail_after(SECONDS):
            async with open_client(config) as client:
                await client.create_scope(str(config.scope))
                await client.create_stream("events", 1)
                async with client.event_writer("events") as writer:
                    for number in range(1000):
                        await writer.write_event(*event_of(number))
                    await writer.flush()
                    controller.kill()
                    for number in range(1000, 2000):
                        await writer.write_event(*event_of(number))
                    await writer.flush()
                    controller.start()
                    await client.scale_stream("events", [0], [(0.0, 0.5), (0.5, 1.0)])
                    for number in range(2000, 3000):
                        await writer.write_event(*event_of(number))
                assert len(writer.segments) == 2
                assert_exactly(await read_all(client, "events"), 3000)

    try:
        trio.run(main)
    finally:
        controller.start()
