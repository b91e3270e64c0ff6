"""Several ranges of segments read at the same time."""

from __future__ import annotations

import asyncio
import gc
from collections import defaultdict
from collections.abc import Callable
from contextlib import aclosing, nullcontext
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import trio

from pravega_wire import (
    EventBatch,
    PravegaClient,
    PravegaConfig,
    RangesReader,
    SegmentRange,
    aio,
    open_client,
    sync,
)
from pravega_wire.errors import (
    ClosedError,
    DataLossError,
    DecodeError,
    InvalidArgumentError,
    TruncatedInputError,
)
from pravega_wire.protocol.events import frame_event
from tests.faults.support import assert_exactly, event_of, scale_to
from tests.inside import core_of, portal_of

EVENTS = 30_000


async def fill(client: PravegaClient, stream: str) -> None:
    """Events on three epochs of four, two and three segments."""
    await client.create_stream(stream, 1)
    async with client.event_writer(stream) as writer:
        for part, segments in enumerate((4, 2, 3)):
            await scale_to(client, stream, segments)
            numbers = range(part * EVENTS // 3, (part + 1) * EVENTS // 3)
            events = [event_of(number) for number in numbers]
            await writer.write_events([event for event, _ in events], [key for _, key in events])
            await writer.flush()


@pytest.mark.parametrize("at_once", [1, 3, 50])
@pytest.mark.parametrize("piece", [None, 20_000])
async def test_order_per_key_holds_over_scales(
    config: PravegaConfig, at_once: int, piece: int | None
) -> None:
    async with open_client(config) as client:
        await fill(client, "t")
        ranges = await client.segment_ranges("t", max_range_bytes=piece)
        # In whatever order they are given
        async with client.read_ranges(
            reversed(ranges), at_once=at_once, max_buffered_bytes=1 << 20
        ) as batches:
            found = [(batch.segment, event) async for batch in batches for event in batch]
            assert await batches.next_batch() is None
        assert_exactly([event for _, event in found], EVENTS)
        if at_once > 1 and piece is None:
            # Segments of one epoch take turns.
            changes = sum(a[0] != b[0] for a, b in pairwise(found))
            assert changes >= len(ranges)


async def test_without_order_pieces_of_a_segment_are_read_together(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("t", 1)
        async with client.event_writer("t") as writer:
            await writer.write_events(event_of(number)[0] for number in range(EVENTS))
        ranges = await client.segment_ranges("t", max_range_bytes=100_000)
        assert len(ranges) > 10
        offsets: dict[str, list[int]] = defaultdict(list)
        events: list[bytes] = []
        async with client.read_ranges(ranges, at_once=5, ordered=False) as batches:
            async for batch in batches:
                offsets[batch.segment].append(batch.base_offset)
                events += batch
        assert sorted(events) == sorted(event_of(number)[0] for number in range(EVENTS))
        (found,) = offsets.values()
        assert found != sorted(found)


async def test_memory_stays_within_its_bound(config: PravegaConfig) -> None:
    """Nobody takes anything: no more is asked for than may be held."""
    bound = 4 * 6 * 64 * 1024

    async with open_client(config) as client:
        await client.create_stream("t", 4)
        async with client.event_writer("t") as writer:
            await writer.write_events([bytes(1000)] * 20_000)
        name = client.config.resolve("t")
        ranges = await client.segment_ranges("t")
        async with client.read_ranges(ranges, at_once=4, max_buffered_bytes=bound) as batches:
            assert await batches.next_batch() is not None
            before = -1
            while (now := client.metrics().readers[name].bytes_received) != before or now <= bound / 4:
                before = now
                await trio.sleep(0.5)
            assert now <= bound
        # Leaving early ends the reading, and the client goes on.
        await trio.testing.wait_all_tasks_blocked()
        assert client.metrics().readers[name].bytes_received <= 2 * bound
        async with client.read_ranges(ranges) as batches:
            assert sum([len(batch) async for batch in batches]) == 20_000


async def test_the_first_failure_ends_it(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("t", 2)
        async with client.event_writer("t") as writer:
            await writer.write_events([bytes(1000)] * 5000)
        good, other = await client.segment_ranges("t")
        cut = SegmentRange(other.stream, other.segment_id, 0, other.end_offset - 5)
        async with client.read_ranges([good, cut]) as batches:
            with pytest.raises(TruncatedInputError):
                while await batches.next_batch() is not None:
                    pass
            with pytest.raises(TruncatedInputError):
                await batches.next_batch()
        await client.truncate_stream("t", await client.tail("t"))
        with pytest.raises(DataLossError):
            async with client.read_ranges([good, other]) as batches:
                async for _ in batches:
                    pass
        assert await client.read_ranges([]).next_batch() is None
        for wrong in ({"at_once": 0}, {"max_buffered_bytes": 0}):
            with pytest.raises(InvalidArgumentError, match=next(iter(wrong))):
                client.read_ranges([good], **wrong)  # type: ignore[arg-type]


async def test_what_the_block_raises_leaves_as_it_is(config: PravegaConfig) -> None:
    errors: list[Exception] = [
        ValueError("mine"),
        ExceptionGroup("mine", [ValueError("one")]),
        ExceptionGroup("mine", [ExceptionGroup("of mine", [ValueError("one")]), KeyError("two")]),
    ]

    async with open_client(config) as client:
        await client.create_stream("t", 2)
        async with client.event_writer("t") as writer:
            await writer.write_events([bytes(1000)] * 5000)
        ranges = await client.segment_ranges("t")
        for mine in errors:
            for taken in range(2):
                with pytest.raises(type(mine)) as caught:
                    async with client.read_ranges(ranges) as batches:
                        for _ in range(taken):
                            await batches.next_batch()
                        raise mine
                assert caught.value is mine
                assert mine.__context__ is None
        # A cancellation ends where it came from, whatever it is wrapped in on the way.
        with trio.CancelScope() as scope:
            async with client.read_ranges(ranges), trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                scope.cancel()
        assert scope.cancelled_caught
        # An error of a block that is being cancelled is not lost, nor one beside a cancellation.
        with pytest.raises(ValueError, match="mine"):
            with trio.CancelScope() as scope:
                async with client.read_ranges(ranges):
                    scope.cancel()
                    raise errors[0]
        with pytest.raises(ExceptionGroup, match="mine") as group:
            with trio.CancelScope() as scope:
                async with client.read_ranges(ranges):
                    scope.cancel()
                    try:
                        await trio.sleep_forever()
                    except trio.Cancelled as cancelled:
                        raise BaseExceptionGroup("mine", [cancelled, ValueError("one")]) from None
        assert [str(each) for each in group.value.exceptions] == ["one"]


async def test_after_leaving(config: PravegaConfig) -> None:
    """None would say that everything was read."""

    async with open_client(config) as client:
        await client.create_stream("t", 2)
        async with client.event_writer("t") as writer:
            await writer.write_events([bytes(1000)] * 5000)
        ranges = await client.segment_ranges("t")
        async with client.read_ranges(ranges) as batches:
            assert await batches.next_batch() is not None
        async with client.read_ranges(ranges) as read:
            async for _ in read:
                pass
        async with client.read_events("t") as reader:
            assert await reader.next_batch() is not None
        unread = client.read_events("t")
        await unread.aclose()
        for left in (batches, read, reader, unread):
            for _ in range(2):
                with pytest.raises(ClosedError):
                    await left.next_batch()
        through = client.read_events("t")
        assert sum([len(batch) async for batch in through]) == 5000
        assert await through.next_batch() is None


@pytest.mark.parametrize("kind", ["range", "events", "ranges"])
async def test_the_three_ways_of_reading_are_used_alike(config: PravegaConfig, kind: str) -> None:
    async with open_client(config) as client:
        await client.create_stream("t", 1)
        async with client.event_writer("t") as writer:
            await writer.write_events([bytes(1000)] * 5000)
        ranges = await client.segment_ranges("t")

        def reading() -> RangesReader:
            match kind:
                case "range":
                    return client.read_range(ranges[0])
                case "events":
                    return client.read_events("t")
                case _:
                    return client.read_ranges(ranges)

        reader: Any
        assert sum([len(batch) async for batch in reading()]) == 5000
        async with reading() as reader:
            assert sum([len(batch) async for batch in reader]) == 5000
        async with aclosing(reading()) as reader:
            assert await reader.next_batch() is not None
        with pytest.raises(ClosedError):
            await reader.next_batch()
        mine = ValueError("mine")
        with pytest.raises(ValueError, match="mine"):
            with trio.CancelScope() as scope:
                async with reading() as reader:
                    await reader.next_batch()
                    scope.cancel()
                    raise mine
        # Nobody closes it: the client does.
        left = reading()
        assert await left.next_batch() is not None
    with pytest.raises(ClosedError):
        while await left.next_batch() is not None:
            pass


Found = dict[str, list[EventBatch]]


def by_trio(config: PravegaConfig) -> Found:
    async def main() -> Found:
        async with open_client(config) as client:
            return await by(client)

    return trio.run(main)


def by_asyncio(config: PravegaConfig) -> Found:
    async def main() -> Found:
        async with aio.open_client(config) as client:
            return await by(client)

    return asyncio.run(main())


async def by(client: Any) -> Found:
    ranges = await client.segment_ranges("t")
    async with client.reader_group("g") as group, group.reader("r") as reader:
        return {
            "range": [batch for each in ranges async for batch in client.read_range(each)],
            "ranges": [batch async for batch in client.read_ranges(ranges)],
            "events": [batch async for batch in client.read_events("t")],
            "follower": [batch async for batch in client.follow_events("t").batches()],
            "group": [batch async for batch in reader.batches()],
        }


def by_threads(config: PravegaConfig) -> Found:
    with sync.open_client(config) as client:
        ranges = client.segment_ranges("t")
        with client.reader_group("g") as group, group.reader("r") as reader:
            return {
                "range": [batch for each in ranges for batch in client.read_range(each)],
                "ranges": list(client.read_ranges(ranges)),
                "events": list(client.read_events("t")),
                "follower": list(client.follow_events("t").batches()),
                "group": list(reader.batches()),
            }


@pytest.mark.parametrize("read", [by_trio, by_threads, by_asyncio])
def test_batches_of_every_reader_say_where_they_are(
    config: PravegaConfig, read: Callable[[PravegaConfig], Found]
) -> None:
    with sync.open_client(config) as client:
        client.create_stream("t", 2)
        with client.event_writer("t") as writer:
            for event, key in map(event_of, range(3000)):
                writer.write_event(event, key)
        client.seal_stream("t")
        client.create_reader_group("g", "t")
        stream = client.config.resolve("t")
        for kind, batches in read(config).items():
            assert_exactly((event for batch in batches for event in batch), 3000)
            assert {batch.stream for batch in batches} == {stream}
            assert {batch.segment for batch in batches} == {f"{stream}/{n}.#epoch.0" for n in range(2)}, kind
            for batch in batches:
                pointers = batch.pointers()
                assert len(pointers) == len(batch)
                for index in (0, -1):
                    assert client.fetch_event(pointers[index]) == batch[index], kind


@pytest.mark.smoke
def test_blocking(config: PravegaConfig) -> None:
    with sync.open_client(config) as client:
        client.create_stream("t", 3)
        with client.event_writer("t") as writer:
            for event, key in map(event_of, range(3000)):
                writer.write_event(event, key)
        with client.read_ranges(client.segment_ranges("t"), at_once=2) as batches:
            assert_exactly((event for batch in batches for event in batch), 3000)
        assert client.read_ranges([]).next_batch() is None
        ranges = client.segment_ranges("t")
        assert_exactly((event for batch in client.read_ranges(ranges) for event in batch), 3000)
        # Left in the middle
        with client.read_ranges(client.segment_ranges("t")) as batches:
            assert batches.next_batch() is not None
        with pytest.raises(ClosedError):
            batches.next_batch()


# --- what is dropped --------------------------------------------------------------------------------


async def no_flows(client: Any) -> None:
    """Wait until no reader has a part of a connection; in the client's thread."""
    with trio.fail_after(30):
        while any(
            connection.flow_count
            for store in core_of(client).stores.pool._stores.values()
            for connection in store.connections
        ):
            await trio.sleep(0.01)


def fill_much(config: PravegaConfig, end: str = "") -> None:
    """More than readers and the asyncio client read ahead, unless it ends in an error; and a stream whose
    second event is none."""
    many = 1 if end == "error" else 8
    with sync.open_client(config) as client:
        client.create_stream("t", 1)
        with client.event_writer("t") as writer:
            writer.write_events([bytes(1_000_000)] * many)
        client.create_stream("damaged", 1)
        with client.byte_stream_writer("damaged") as raw:
            raw.write(frame_event(b"one") + b"\xff" * 100)


WAYS: dict[str, Callable[..., Any]] = {
    "range": lambda client, ranges: client.read_range(ranges[0]),
    "events": lambda client, ranges: client.read_events(ranges[0].stream),
    "ranges": lambda client, ranges: client.read_ranges(ranges),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("end", ["break", "error", "cancelled"])
async def test_what_is_dropped_gives_its_connections_back(config: PravegaConfig, way: str, end: str) -> None:
    await trio.to_thread.run_sync(fill_much, config, end)
    async with open_client(config) as client:
        ranges = await client.segment_ranges("damaged" if end == "error" else "t")
        match end:
            case "break":
                async for _ in WAYS[way](client, ranges):
                    break
            case "error":
                reader = WAYS[way](client, ranges)
                for _ in range(3):
                    with pytest.raises(DecodeError):
                        async for _ in reader:
                            pass
                    await no_flows(client)
            case "cancelled":
                with trio.CancelScope() as scope:
                    async for _ in WAYS[way](client, ranges):
                        scope.cancel()
        gc.collect()
        await no_flows(client)


@pytest.mark.parametrize("follow", [False, True])
async def test_a_dropped_reader_of_bytes_gives_its_connection_back(
    config: PravegaConfig, follow: bool
) -> None:
    await trio.to_thread.run_sync(fill_much, config)
    async with open_client(config) as client:
        async for _ in client.byte_stream_reader("t", follow=follow):
            break
        gc.collect()
        await no_flows(client)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("end", ["break", "error"])
def test_what_is_dropped_by_blocking_clients(config: PravegaConfig, way: str, end: str) -> None:
    fill_much(config, end)
    with sync.open_client(config) as client:
        ranges = client.segment_ranges("damaged" if end == "error" else "t")
        with nullcontext() if end == "break" else pytest.raises(DecodeError):
            for _ in WAYS[way](client, ranges):
                if end == "break":
                    break
        gc.collect()
        portal_of(client).call(no_flows, client)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("end", ["break", "error", "cancelled"])
def test_what_is_dropped_by_asyncio_clients(config: PravegaConfig, way: str, end: str) -> None:
    fill_much(config, end)

    async def read(client: aio.PravegaClient) -> None:
        ranges = await client.segment_ranges("damaged" if end == "error" else "t")
        async for _ in WAYS[way](client, ranges):
            if end == "break":
                break
            if end == "cancelled":
                task = asyncio.current_task()
                assert task is not None
                task.cancel()

    async def main() -> None:
        async with aio.open_client(config) as client:
            reading = asyncio.create_task(read(client))
            await asyncio.wait([reading])
            match end:
                case "break":
                    reading.result()
                case "error":
                    assert isinstance(reading.exception(), DecodeError)
                case "cancelled":
                    assert reading.cancelled()
            del reading
            gc.collect()
            await portal_of(client).run(no_flows, client)

    asyncio.run(main())


async def test_what_has_ended_wakes_nobody_when_it_is_dropped(
    config: PravegaConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the client does must not depend on when Python frees an object."""
    await trio.to_thread.run_sync(fill_much, config)
    async with open_client(config) as client:
        readers: list[Any] = []
        for way in WAYS.values():
            read = way(client, await client.segment_ranges("t"))
            async for _ in read:
                pass
            failed = way(client, await client.segment_ranges("damaged"))
            with pytest.raises(DecodeError):
                async for _ in failed:
                    pass
            async with way(client, await client.segment_ranges("t")) as left:
                await left.next_batch()
            readers += read, failed, left, way(client, await client.segment_ranges("t"))
        del read, failed, left
        woken: list[object] = []
        with monkeypatch.context() as patched:
            patched.setattr(trio.lowlevel.TrioToken, "run_sync_soon", lambda _, work, *__: woken.append(work))
            readers.clear()
            gc.collect()
        assert woken == []


async def test_the_error_of_what_cannot_be_read_on_stays(config: PravegaConfig) -> None:
    await trio.to_thread.run_sync(fill_much, config)
    async with open_client(config) as client:
        [whole] = await client.segment_ranges("t")
        reader = client.read_range(replace(whole, end_offset=whole.end_offset - 5))
        for _ in range(3):
            with pytest.raises(TruncatedInputError):
                while await reader.next_batch() is not None:
                    pass
            await no_flows(client)
        beyond = client.read_range(replace(whole, end_offset=whole.end_offset + 5))
        with pytest.raises(InvalidArgumentError, match="beyond the end"):
            while await beyond.next_batch() is not None:
                pass
        await no_flows(client)
