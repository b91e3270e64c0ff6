"""An exchange between the client and a server that uses many wire commands, to test dissectors with."""

from __future__ import annotations

from uuid import UUID

from pravega_wire import (
    Insert,
    KeyValueTableConfiguration,
    PravegaClient,
    Put,
)

WRITER = UUID("0dd8c8a4-63d5-4a5a-8c7e-3d3d0f6fd0a1")


async def exchange(client: PravegaClient) -> None:
    """Write, read, scale, and use transactions, tables and shared state, with small payloads."""
    await client.create_stream("dissected")
    async with client.event_writer("dissected") as writer:
        for number in range(4):
            await (await writer.write_event(f"event {number}".encode(), f"key {number}")).wait()
    async with client.begin_transaction("dissected") as transaction:
        await transaction.write_event(b"in a transaction", "key")
        await transaction.commit()
        await transaction.wait_committed()
    async with client.resumable_writer("dissected", WRITER) as resumable:
        await resumable.write_event(b"numbered", "key")
    await client.scale_stream("dissected", [0], [(0.0, 0.5), (0.5, 1.0)])
    async for batch in client.read_events("dissected"):
        assert len(batch)
    await client.create_stream("state")
    async with client.revisioned_stream("state") as state:
        seen = await state.latest_revision()
        assert await state.write_conditionally(seen, b"first") is not None
        assert await state.write_conditionally(seen, b"too late") is None
        await state.compare_and_set_mark(None, await state.latest_revision())
    await client.create_key_value_table("table", KeyValueTableConfiguration(1, 4, 4))
    table = await client.key_value_table("table")
    await table.put((b"key1", b"sub1"), b"value 1")
    await table.update_many([Put((b"key1", b"sub2"), b"value 2"), Insert((b"key1", b"sub3"), b"")])
    assert await table.get((b"key1", b"sub1")) is not None
    await table.remove((b"key1", b"sub3"))
    assert [entry.value async for entry in table.entries()] == [b"value 1", b"value 2"]
    await client.truncate_stream("dissected", await client.tail("dissected"))
    await client.delete_stream("dissected", seal=True)
