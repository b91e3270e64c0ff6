"""Events over the limit of an ordinary one."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
import trio

from pravega_wire import PravegaConfig, open_client
from pravega_wire import sync as blocking
from pravega_wire.errors import EventTooLargeError
from pravega_wire.protocol import commands as c
from pravega_wire.protocol.append import MAX_EVENT_BYTES
from pravega_wire.testing import FaultProxy

pytestmark = pytest.mark.needs("0.11", "transient segments, which large events need")

LARGE = random.Random(3).randbytes(20_000_000)


@pytest.mark.smoke
async def test_large_events_are_stored_in_order_among_others(config: PravegaConfig) -> None:
    events = [b"a", LARGE, b"b", LARGE[: MAX_EVENT_BYTES + 1], LARGE[:MAX_EVENT_BYTES], b"", b"c"]

    async with open_client(config) as client:
        await client.create_stream("l", 2)
        async with client.event_writer("l", large_events=True) as writer:
            for event in events:
                await writer.write_event(event, "key")
            await (await writer.write_events(events, "key")).wait()
            assert writer.metrics().events_acknowledged == 2 * len(events)
        found = [event async for batch in client.read_events("l") for event in batch]
        assert found == events * 2
        async with client.event_writer("l") as writer:
            with pytest.raises(EventTooLargeError, match="8388608"):
                await writer.write_event(LARGE)
            with pytest.raises(EventTooLargeError):
                await writer.write_events([b"before", LARGE], "key")


@pytest.mark.parametrize(
    "keys", [None, "key", ["a", "b", None, "a", "b", "a", None]], ids=["none", "one", "each"]
)
@pytest.mark.parametrize("kind", [pa.binary(), pa.large_string()], ids=["binary", "text"])
async def test_large_events_of_an_arrow_array(
    config: PravegaConfig, keys: list[str | None] | str | None, kind: pa.DataType
) -> None:
    text = b"0123456789" * 1_000_000
    events = [b"a", text, b"b", text[: MAX_EVENT_BYTES + 1], text[:MAX_EVENT_BYTES], b"", b"c"]

    async with open_client(config) as client:
        await client.create_stream("l", 2)
        array = pa.array(events, pa.binary()).cast(kind)
        async with client.event_writer("l", large_events=True) as writer:
            await (await writer.write_events(array, keys)).wait()
            assert writer.metrics().events_acknowledged == len(events)
        found = [
            [event async for batch in client.read_range(each) for event in batch]
            for each in await client.segment_ranges("l")
        ]
        assert sorted(event for part in found for event in part) == sorted(events)
        for key in ("a", "b") if isinstance(keys, list) else ("key",) if keys else ():
            expected = (
                [event for event, its in zip(events, keys, strict=True) if its == key]
                if isinstance(keys, list)
                else events
            )
            (part,) = (part for part in found if expected[0] in part)
            assert [event for event in part if event in expected] == expected
        async with client.event_writer("l") as writer:
            with pytest.raises(EventTooLargeError, match="8388608"):
                await writer.write_events(array, keys)


async def test_the_segment_is_sealed_before_the_event_is_whole(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("s", 1)
        async with client.event_writer("s", large_events=True) as writer:
            await writer.write_event(b"first", "key")
            await writer.flush()
            await client.scale_stream("s", [0], [(0.0, 0.5), (0.5, 1.0)])
            await writer.write_event(LARGE, "key")
            assert len(writer.segments) == 2
            await writer.write_event(b"last", "key")
        found = [event async for batch in client.read_events("s") for event in batch]
        assert found == [b"first", LARGE, b"last"]


@pytest.mark.parametrize("reply", [c.SegmentCreated, c.DataAppended, c.SegmentsMerged])
async def test_connections_lost_on_the_way(
    config: PravegaConfig, fault_proxy: FaultProxy, reply: type[c.Command]
) -> None:
    with trio.fail_after(120):
        async with open_client(config, address_map=fault_proxy.address_map) as client:
            await client.create_stream("f", 1)
            async with client.event_writer("f", large_events=True) as writer:
                await writer.write_event(b"before", "key")
                await writer.flush()
                fault_proxy.cut_before_reply(reply, times=2)
                await writer.write_event(LARGE, "key")
                await writer.write_event(LARGE[::-1], "key")
            assert fault_proxy.cuts == 2
            found = [event async for batch in client.read_events("f") for event in batch]
            assert found == [b"before", LARGE, LARGE[::-1]]


@pytest.mark.smoke
def test_the_blocking_twin(config: PravegaConfig) -> None:
    with blocking.open_client(config) as client:
        client.create_stream("b", 1)
        with client.event_writer("b", large_events=True) as writer:
            writer.write_event(LARGE, "key").wait()
        assert [event for batch in client.read_events("b") for event in batch] == [LARGE]
