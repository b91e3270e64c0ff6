"""Delegation tokens that live for seconds, while everything that uses them goes on for longer.

A store closes the connection of an appender whose token has expired. Asked with an expired token it refuses
what is not appending, and closes an appender's connection without a word.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from uuid import uuid4

import pytest
import trio

from pravega_wire import (
    KeyValueTableConfiguration,
    PravegaClient,
    PravegaConfig,
    ReaderGroupConfig,
    StateFormat,
    TxnStatus,
    open_client,
)
from pravega_wire import sync as blocking
from pravega_wire.serializers import JsonSerializer
from pravega_wire.testing import PravegaCluster, cluster
from tests.faults.support import assert_exactly, event_of, read_all
from tests.inside import surroundings

SESSIONS = 3
"""So many sessions of a writer with two segments end with their tokens while a test runs."""


@pytest.fixture(scope="module")
def strict() -> Iterator[PravegaCluster]:
    with cluster(segment_stores=1, auth=True, token_seconds=6) as server:
        yield server


@pytest.fixture
def config(strict: PravegaCluster) -> PravegaConfig:
    return strict.config(f"tokens-{uuid4().hex[:8]}")


@pytest.mark.parametrize("skew", [0, -3600, 3600], ids=["clock right", "clock behind", "clock ahead"])
async def test_everything_outlives_its_token(config: PravegaConfig, skew: float) -> None:
    """A client that cannot tell by its clock when a token expires learns it from the stores."""
    with surroundings(wall=lambda: time.time() + skew), trio.fail_after(180):
        async with open_client(config) as client:
            await client.create_scope(str(config.scope))
            for name, segments in (("plain", 2), ("long", 2), ("state", 1), ("bytes", 1)):
                await client.create_stream(name, segments)
            await client.create_reader_group(
                "readers", ReaderGroupConfig.of([client.config.resolve("plain")])
            )
            await client.create_key_value_table("table", KeyValueTableConfiguration(2, 4))
            over = trio.Event()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(read_directly, client, over)
                for task in (in_one_transaction, shared_state, table, byte_stream):
                    nursery.start_soon(task, client, over)
                seen: list[bytes] = []
                nursery.start_soon(read_group, client, seen)
                written = await write(client)
                over.set()
            assert_exactly(seen, written)
            assert_exactly(await read_all(client, "plain"), written)


async def write(client: PravegaClient) -> int:
    """Until its sessions have been ended a few times; seals the stream and returns the number of events."""
    written = 0
    async with client.event_writer("plain") as writer:
        while writer.metrics().reconnects < SESSIONS:
            for _ in range(20):
                await writer.write_event(*event_of(written))
                written += 1
            await writer.flush()
            await trio.sleep(0.01)
    await client.seal_stream("plain")
    return written


async def read_group(client: PravegaClient, seen: list[bytes]) -> None:
    """Every event of the stream, until its end."""
    async with client.reader_group("readers") as group, group.reader("one") as reader:
        async for event in reader:
            seen.append(event.value)


async def read_directly(client: PravegaClient, over: trio.Event) -> None:
    """A range is read by a thread of its own: some of it at once, the rest when the token has expired."""
    count = 20_000
    await client.create_stream("direct", 1)
    async with client.event_writer("direct") as writer:
        await writer.write_events([event_of(number)[0] for number in range(count)])
    [part] = await client.segment_ranges("direct")
    goes_on = threading.Event()

    def read() -> list[bytes]:
        with blocking.open_client(client.config) as own:
            with blocking.DirectReader(own, part, chunk_bytes=100_000, depth=1) as batches:
                first = batches.next_batch()
                assert first is not None
                found = first.to_list()
                goes_on.wait(120)
                return found + [event for batch in batches for event in batch]

    async with trio.open_nursery() as nursery:

        async def wait() -> None:
            try:
                await over.wait()
            finally:
                goes_on.set()

        nursery.start_soon(wait)
        assert_exactly(await trio.to_thread.run_sync(read), count)


async def in_one_transaction(client: PravegaClient, over: trio.Event) -> None:
    written = 0
    txn = await client.begin_transaction("long", lease=20)
    while not over.is_set():
        ack = await txn.write_event(*event_of(written))
        written += 1
        await ack.wait()
        await trio.sleep(0.02)
    await txn.commit()
    await txn.wait_committed()
    assert await txn.status() is TxnStatus.COMMITTED
    assert_exactly(await read_all(client, "long"), written)


async def shared_state(client: PravegaClient, over: trio.Event) -> None:
    counter: StateFormat[int, int] = StateFormat(
        JsonSerializer(), JsonSerializer(), lambda state, update: state + update
    )
    shared = await client.state_synchronizer("state", counter)
    await shared.initialize(0)
    added = 0
    while not over.is_set():
        added += 1
        assert await shared.update(lambda state: [1]) == added
        await trio.sleep(0.02)
    late = await client.state_synchronizer("state", counter)
    assert await late.fetch_updates() == added
    await shared.aclose()
    await late.aclose()


async def table(client: PravegaClient, over: trio.Event) -> None:
    entries = await client.key_value_table("table")
    number = 0
    version = None
    while not over.is_set():
        key = b"%04d" % (number % 7)
        await entries.put(key, b"%d" % number)
        found = await entries.get(key)
        assert found is not None
        assert found.value == b"%d" % number
        assert found.version != version
        version = found.version
        number += 1
        await trio.sleep(0.02)


async def byte_stream(client: PravegaClient, over: trio.Event) -> None:
    """One task writes, and what it has written is followed."""
    received = bytearray()

    async def follow() -> None:
        async with client.byte_stream_reader("bytes") as reader:
            while chunk := await reader.receive_some():
                received.extend(chunk)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        expected = bytearray()
        async with client.byte_stream_writer("bytes") as writer:
            while not over.is_set():
                data = b"%08d" % len(expected)
                await writer.write(data)
                expected += data
                await writer.flush()
                await trio.sleep(0.02)
            await writer.seal()
    assert received == expected
