"""Stores that cannot be reached: one error, of this package, however many segments are asked for at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
import trio

from pravega_wire import PravegaClient, PravegaConfig, open_client
from pravega_wire.errors import ConnectError, PravegaError, RetriesExhaustedError, SegmentSealedError
from pravega_wire.stream import large
from pravega_wire.support.nurseries import look_up_all
from pravega_wire.testing import FaultProxy
from tests.faults.support import event_of, scale_to

SECONDS = 120
"""A guard only."""


async def test_several_fail_in_the_same_moment() -> None:
    errors = {number: ConnectError(f"the store of {number}") for number in range(5)}

    async def look_up(number: int) -> int:
        await trio.lowlevel.checkpoint()
        raise errors[number]

    for at_once in (1, 3, 5):
        for numbers in (range(1), range(5)):
            with pytest.raises(ConnectError) as caught:
                await look_up_all(look_up, numbers, at_once)
            assert caught.value in errors.values()
    # An error that is none of this package's, and a cancellation, leave in the same way.
    with pytest.raises(KeyError):
        await look_up_all(lambda number: look_up(errors[number + 9] and number), range(5))  # type: ignore[arg-type]
    with trio.CancelScope() as scope:
        scope.cancel()
        await look_up_all(look_up, range(5))
    assert scope.cancelled_caught


async def test_calls_about_several_segments(config: PravegaConfig, fault_proxy: FaultProxy) -> None:
    impatient = replace(config, operation_timeout=3)
    with trio.fail_after(SECONDS):
        async with (
            open_client(config) as sound,
            open_client(impatient, address_map=fault_proxy.address_map) as client,
        ):
            await sound.create_stream("s", 4)
            async with sound.event_writer("s") as writer:
                for number in range(400):
                    await writer.write_event(*event_of(number))
            ranges = await client.segment_ranges("s")
            assert len(ranges) == 4
            calls: list[Callable[[], Awaitable[object]]] = [
                lambda: client.tail("s"),
                lambda: client.stream_info("s"),
                lambda: client.stream_layout("s"),
                lambda: client.segment_ranges("s"),
                lambda: client.read_events("s").next_batch(),
                lambda: read(client),
            ]

            async def read(client: PravegaClient) -> None:
                async with client.read_ranges(ranges) as batches:
                    async for _ in batches:
                        pass

            fault_proxy.refuse()
            fault_proxy.cut_all()
            for call in calls:
                with pytest.raises(PravegaError) as caught:
                    await call()
                assert isinstance(caught.value, RetriesExhaustedError)
            fault_proxy.refuse(False)
            assert await client.segment_ranges("s") == ranges


async def test_a_large_event(
    config: PravegaConfig, fault_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stores go away when the event's own segment is there, and nothing is in it."""
    gather = large._gather

    async def refused(*args: object) -> None:
        fault_proxy.refuse()
        fault_proxy.cut_all()
        await gather(*args)  # type: ignore[arg-type]

    impatient = replace(config, operation_timeout=3)
    with trio.fail_after(SECONDS):
        async with open_client(impatient, address_map=fault_proxy.address_map) as client:
            await client.create_stream("s", 1)
            monkeypatch.setattr(large, "_gather", refused)
            with pytest.raises(RetriesExhaustedError, match="transient"):
                async with client.event_writer("s", large_events=True) as writer:
                    await writer.write_event(bytes(20_000_000))
            monkeypatch.setattr(large, "_gather", gather)
            fault_proxy.refuse(False)
            assert [each async for each in client.read_events("s")] == []
            async with client.event_writer("s", large_events=True) as writer:
                await writer.write_event(bytes(20_000_000))
            events = [event async for batch in client.read_events("s") for event in batch]
            assert events == [bytes(20_000_000)]


async def test_the_segment_of_a_large_event_is_sealed(
    config: PravegaConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever gathers the event finds it out, not who merges it: the writer goes on in the successors."""
    gather = large._gather
    event = bytes(10_000_000)
    sealed: list[str] = []

    with trio.fail_after(SECONDS):
        async with open_client(config) as client:

            async def gather_sealed(*args: object) -> None:
                if not sealed:
                    sealed.append("now")
                    await scale_to(client, "s", 2)
                    raise SegmentSealedError("sealed")
                await gather(*args)  # type: ignore[arg-type]

            monkeypatch.setattr(large, "_gather", gather_sealed)
            await client.create_stream("s", 1)
            async with client.event_writer("s", large_events=True) as writer:
                await writer.write_event(event, "key")
                assert len(writer.segments) == 2
            found = [event async for batch in client.read_events("s") for event in batch]
            assert found == [event]
            assert sealed
