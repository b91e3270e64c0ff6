"""Following a stream without a reader group, with all three clients, on a real server."""

from __future__ import annotations

import asyncio
import gc
import random
import sys
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
import trio
import trio.testing

from pravega_wire import (
    Event,
    PravegaClient,
    PravegaConfig,
    ReaderGroupConfig,
    StreamCut,
    StreamFollower,
    aio,
    open_client,
    sync,
)
from pravega_wire.errors import (
    ClosedError,
    ConcurrentUseError,
    DataLossError,
    InvalidArgumentError,
    InvalidStreamCutError,
    RetriesExhaustedError,
    StreamNotFoundError,
)
from pravega_wire.metrics import DataSkipped
from pravega_wire.serializers import FunctionSerializer, Utf8Serializer
from tests.inside import core_of

KEYS = 7


@asynccontextmanager
async def opened(config: PravegaConfig, segments: int = 2) -> AsyncIterator[PravegaClient]:
    async with open_client(config) as client:
        await client.create_stream("t", segments)
        yield client


async def write(client: PravegaClient, *numbers: int, stream: str = "t") -> None:
    async with client.event_writer(stream) as writer:
        await writer.write_events(
            [b"%d" % number for number in numbers], [str(number % KEYS) for number in numbers]
        )


async def values(events: StreamFollower[bytes], count: int) -> list[int]:
    """The next numbers of a follower."""
    return [int((await anext(events)).value) for _ in range(count)]


async def scale(client: PravegaClient, *borders: int) -> None:
    """Replace all segments by segments with these borders between them, in thousandths."""
    active = [each.segment_id for each in await client.active_segments("t")]
    edges = [0.0, *(each / 1000 for each in borders), 1.0]
    await client.scale_stream("t", active, list(pairwise(edges)))


def check_order(numbers: list[int], count: int) -> None:
    """Each number once, and those of one key in order."""
    assert sorted(numbers) == list(range(count))
    by_key: dict[int, list[int]] = defaultdict(list)
    for number in numbers:
        by_key[number % KEYS].append(number)
    assert all(each == sorted(each) for each in by_key.values())


def tasks_of(client: PravegaClient) -> int:
    """How many followers are reading."""
    return sum("_Segments.run" in each.name for each in core_of(client).nursery.child_tasks)


async def all_done(client: PravegaClient) -> None:
    """Wait for the tasks that end with a follower."""
    while tasks_of(client):
        await trio.sleep(0.01)


# --- what everybody does ----------------------------------------------------------------------------


@pytest.mark.smoke
async def test_events_that_are_there_and_events_to_come(config: PravegaConfig) -> None:
    async with opened(config) as client:
        await write(client, *range(100))
        async with client.follow_events("t") as events:
            found = await values(events, 100)
            assert await events.read_event(0) is None
            assert not events.end_of_data
            await write(client, *range(100, 110))
            check_order(found + await values(events, 10), 110)
            assert (await events.read_event(timeout=0)) is None


async def test_only_new_events(config: PravegaConfig) -> None:
    async with opened(config) as client:
        await write(client, 0, 1)
        async with client.follow_events("t", "latest") as events:
            assert events.cut == await client.tail("t")
            await write(client, 2)
            assert await values(events, 1) == [2]


async def test_while_writers_write_and_the_stream_is_scaled(config: PravegaConfig) -> None:
    count = 4000
    seed = random.randrange(1 << 30)
    print("seed", seed)
    chance = random.Random(seed)
    async with opened(config) as client:
        found: list[int] = []
        cuts: list[tuple[int, str]] = []

        async def read() -> None:
            async with client.follow_events("t") as events:
                async for event in events:
                    found.append(int(event.value))
                    if chance.random() < 0.01:
                        cuts.append((len(found), events.cut.to_text()))
                assert events.end_of_data
                cuts.append((len(found), events.cut.to_text()))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            async with client.event_writer("t") as writer:
                for number in range(count):
                    await writer.write_event(b"%d" % number, str(number % KEYS))
                    if number % 400 == 399:
                        # Uneven splits and merges, in the middle of writing.
                        await scale(client, *sorted(chance.sample(range(1, 1000), chance.randrange(1, 5))))
            await client.seal_stream("t")
        check_order(found, count)
        # Each position continues exactly after its event: nothing twice, nothing left out.
        for already, cut in chance.sample(cuts, 8) + cuts[-1:]:
            async with client.follow_events("t", cut) as events:
                rest = [int(event.value) async for event in events]
            check_order(found[:already] + rest, count)


async def test_a_segment_waits_for_all_before_it(config: PravegaConfig) -> None:
    """After an uneven merge the cut leaves keys out: the follower that continues there waits for nothing."""
    async with opened(config) as client:
        first, second = [each.segment_id for each in await client.active_segments("t")]
        await write(client, *range(50))
        await scale(client, 300)
        await write(client, *range(50, 100))
        [low, high] = [each.segment_id for each in await client.active_segments("t")]
        # The second segment is not read, so the one above 0.3 cannot be begun.
        head = await client.head("t")
        layout = await client.stream_layout("t")
        lengths = {each.segment_id: each.length for each in layout.segments}
        cut = StreamCut(head.stream, {second: 0, low: 0})
        layout.check(cut)
        async with client.follow_events("t", cut) as events:
            assert events.cut == cut
            found = [int((await anext(events)).value)]
            while events.cut.positions != {low: lengths[low], high: lengths[high]}:
                layout.check(events.cut)
                found.append(int((await anext(events)).value))
        in_first = [
            int(event)
            for each in await client.segment_ranges("t")
            if each.segment_id == first
            async for events_ in client.read_range(each)
            for event in events_
        ]
        check_order(in_first + found, 100)


async def test_the_position_is_kept_in_another_process(config: PravegaConfig) -> None:
    async with opened(config, 3) as client:
        await write(client, *range(60))
        async with client.follow_events("t") as events:
            found = await values(events, 23)
            text = events.cut.to_text()
        await write(client, *range(60, 100))
        await client.seal_stream("t")
    program = (
        "import sys\n"
        "from pravega_wire import sync, PravegaConfig\n"
        "with sync.open_client(sys.argv[1], scope=sys.argv[2]) as client:\n"
        "    for event in client.follow_events('t', sys.argv[3]):\n"
        "        print(event.value.decode())\n"
    )
    uri = ",".join(map(str, [config.controller_uri]))
    command = [sys.executable, "-c", program, uri, str(config.scope), text]
    done = await trio.run_process(command, capture_stdout=True)
    check_order(found + [int(each) for each in done.stdout.split()], 100)


async def test_batches(config: PravegaConfig) -> None:
    async with opened(config) as client:
        await write(client, *range(500))
        await scale(client, 500, 700)
        await write(client, *range(500, 1000))
        await client.seal_stream("t")
        found: list[int] = []
        async with client.follow_events("t", max_buffered_bytes=1) as events:
            found.append(int((await anext(events)).value))
            batch = await events.next_batch()
            assert batch is not None
            found += map(int, batch)
            cut = events.cut
            async with client.follow_events("t", cut) as others:
                rest = [int(each) async for some in others.batches() for each in some]
            check_order(found + rest, 1000)
            async for batch in events.batches():
                found += map(int, batch)
            check_order(found, 1000)
            assert await events.next_batch() is None
            assert await events.read_event() is None


async def test_a_sealed_stream_ends(config: PravegaConfig) -> None:
    async with opened(config) as client:
        events = client.follow_events("t")
        await write(client, 0)
        assert await values(events, 1) == [0]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.seal_stream, "t")
            assert [each async for each in events] == []
        assert events.end_of_data
        end = events.cut
        assert [each async for each in client.follow_events("t", end)] == []
        assert [each async for each in client.follow_events("t", await client.tail("t"))] == []
        assert [batch async for batch in client.read_events("t", end)] == []


async def test_a_deserializer(config: PravegaConfig) -> None:
    def positive(payload: bytes) -> int:
        if payload == b"1":
            raise ValueError("no")
        return int(payload)

    numbers = FunctionSerializer(lambda number: b"%d" % number, positive)
    async with opened(config, 1) as client:
        await write(client, 0, 1, 2)
        async with client.follow_events("t", serializer=numbers) as events:
            event: Event[int] = await anext(events)
            assert event.value == 0
            with pytest.raises(ValueError, match="no"):
                await events.read_event()
            assert (await anext(events)).value == 2
        with pytest.raises(InvalidArgumentError, match="serializer"):
            client.follow_events("t", serializer=int)  # type: ignore[call-overload]


# --- where it begins --------------------------------------------------------------------------------


async def test_from_a_time(config: PravegaConfig) -> None:
    async with opened(config, 1) as client:
        with pytest.raises(InvalidArgumentError, match="no watermarks"):
            await client.follow_events("t", datetime.now(UTC)).read_event()
        began = datetime.now(UTC)
        async with client.event_writer("t") as writer:
            number = 0
            while not (marks := await client.watermarks("t")):
                await writer.write_event(b"%d" % number)
                number += 1
                await writer.note_time(int(time.time() * 1000))
                await trio.sleep(0.2)
        later = datetime.fromtimestamp((marks[0].upper + 1) / 1000, UTC)
        async with client.follow_events("t", began - timedelta(days=1)) as events:
            assert events.cut == await client.head("t")
        async with client.follow_events("t", later) as events:
            assert (
                events.cut == await client.cut_at("t", later) == await client.cut_at("t", marks[0].upper + 1)
            )
            assert events.cut.positions == {0: marks[0].positions[0].offset}
        with pytest.raises(InvalidArgumentError, match="time zone"):
            await client.follow_events("t", datetime(2020, 1, 1)).read_event()


async def test_starts_that_do_not_exist(config: PravegaConfig) -> None:
    async with opened(config) as client:
        await client.create_stream("other")
        await write(client, *range(10))
        tail = await client.tail("t")
        beyond = StreamCut(tail.stream, {each: at + 1 for each, at in tail.positions.items()})
        with pytest.raises(InvalidStreamCutError, match="bytes long"):
            await client.follow_events("t", beyond).read_event()
        with pytest.raises(InvalidStreamCutError, match="belongs to"):
            await client.follow_events("other", tail).read_event()
        with pytest.raises(StreamNotFoundError):
            await client.follow_events("nowhere").read_event()
        wrong: list[dict[int, int]] = [{}, {0: 0}, dict.fromkeys([*tail.positions, 7], 0)]
        for positions in wrong:
            with pytest.raises(InvalidStreamCutError, match=r"key space|no segment|does not exist"):
                await client.follow_events("t", StreamCut(tail.stream, positions)).read_event()
        gone = StreamCut(type(tail.stream)(tail.stream.scope, "nowhere"), {0: 9})
        with pytest.raises(StreamNotFoundError):
            await client.follow_events("nowhere", gone).read_event()
        events = client.follow_events("t", tail)
        with pytest.raises(InvalidArgumentError, match="no position yet"):
            _ = events.cut


async def test_truncated_data(config: PravegaConfig) -> None:
    skipped: list[DataSkipped] = []

    def observe(event: object) -> None:
        if isinstance(event, DataSkipped):
            skipped.append(event)

    async with open_client(config, observer=observe) as client:
        await client.create_stream("t", 1)
        head = await client.head("t")
        await write(client, *range(10))
        cut = await client.tail("t")
        await write(client, *range(10, 20))
        await client.truncate_stream("t", cut)
        async with client.follow_events("t", head) as events:
            with pytest.raises(DataLossError):
                await events.read_event()
            assert events.cut == cut
            check_order(list(range(10)) + await values(events, 10), 20)
        async with client.follow_events("t", head, on_truncated="skip_to_head") as events:
            check_order(list(range(10)) + await values(events, 10), 20)
        assert [(each.offset, each.bytes) for each in skipped] == [(0, cut.positions[0])]


async def test_a_segment_that_is_gone(config: PravegaConfig) -> None:
    async with opened(config, 1) as client:
        head = await client.head("t")
        await write(client, *range(10))
        await scale(client, 500)
        await client.truncate_stream("t", await client.tail("t"))
        await write(client, *range(10, 20))
        async with client.follow_events("t", head) as events:
            with pytest.raises(DataLossError):
                await events.read_event()
            check_order(list(range(10)) + await values(events, 10), 20)
        async with client.follow_events("t", head, on_truncated="skip_to_head") as events:
            check_order(list(range(10)) + await values(events, 10), 20)


# --- stopping ---------------------------------------------------------------------------------------


async def test_cancelling_leaves_it_usable(config: PravegaConfig) -> None:
    async with opened(config) as client:
        async with client.follow_events("t") as events:
            found = []
            for number in range(30):
                with trio.CancelScope() as scope:
                    async with trio.open_nursery() as nursery:
                        if number % 2:
                            scope.cancel()
                        else:
                            nursery.start_soon(write, client, number // 2)
                        found += await values(events, 1)
            found += await values(events, 15 - len(found))
            check_order(found, 15)
        assert tasks_of(client) == 0


async def test_closing_ends_a_call(config: PravegaConfig) -> None:
    async with opened(config) as client:
        events = client.follow_events("t")
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                with pytest.raises(ClosedError):
                    await events.read_event()

            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked(0.1)
            with pytest.raises(ConcurrentUseError):
                await events.read_event()
            await events.aclose()
        assert tasks_of(client) == 0
        with pytest.raises(ClosedError):
            await events.read_event()
        # Before it has begun, and again.
        await events.aclose()
        await client.follow_events("t").aclose()


async def test_a_stream_that_was_created_again_has_no_end(config: PravegaConfig) -> None:
    """The new one is not read, and it is not taken for a sealed one either."""
    async with open_client(replace(config, operation_timeout=5)) as client:
        await client.create_stream("t", 1)
        async with client.event_writer("t") as writer:
            await writer.write_events([b"old" * 100_000] * 40)  # more than is read ahead
        async with client.follow_events("t", on_truncated="skip_to_head") as events:
            assert await events.read_event() is not None
            await client.delete_stream("t", seal=True)
            await client.create_stream("t", 1)
            with pytest.raises(RetriesExhaustedError, match="created again, open a new writer or follower"):
                while True:
                    event = await events.read_event()
                    assert event is not None
                    assert event.value.startswith(b"old")
            assert not events.end_of_data


async def test_what_is_dropped_ends(config: PravegaConfig) -> None:
    async with opened(config) as client:
        await write(client, *range(10))
        async for _ in client.follow_events("t"):
            break
        assert tasks_of(client) == 1
        gc.collect()
        await all_done(client)


async def test_what_was_closed_wakes_nobody_when_it_is_dropped(
    config: PravegaConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(config) as client:
        await write(client, 0)
        async with client.follow_events("t") as events:
            assert await values(events, 1) == [0]
        woken: list[object] = []
        with monkeypatch.context() as patched:
            patched.setattr(trio.lowlevel.TrioToken, "run_sync_soon", lambda _, work, *__: woken.append(work))
            del events
            gc.collect()
        assert woken == []


async def test_the_client_is_closed(config: PravegaConfig) -> None:
    async with opened(config) as client:
        events = client.follow_events("t")
        await write(client, 0)
        assert await values(events, 1) == [0]
    with pytest.raises(ClosedError):
        await events.read_event()
    with pytest.raises(ClosedError):
        client.follow_events("t")
    await events.aclose()


# --- the other clients ------------------------------------------------------------------------------


@pytest.mark.smoke
def test_blocking(config: PravegaConfig) -> None:
    with sync.open_client(config) as client:
        client.create_stream("t", 2)
        with client.event_writer("t") as writer:
            writer.write_events(
                [b"%d" % each for each in range(100)], [str(each % KEYS) for each in range(100)]
            )
        found = []
        with client.follow_events("t", serializer=Utf8Serializer()) as events:
            for event in events:
                found.append(int(event.value))
                if len(found) == 40:
                    break
            assert events.read_event_nowait() is not None
            found.append(int(found.pop()))
            cut = events.cut
        with pytest.raises(ClosedError):
            events.read_event()
        client.seal_stream("t")
        rest = [int(event.value) for event in client.follow_events("t", cut)]
        assert len(found) + 1 + len(rest) == 100
        with client.follow_events("t", cut.to_text()) as again:
            assert [int(each) for batch in again.batches() for each in batch] != []
            assert again.end_of_data
        client.create_stream("quiet")
        with client.follow_events("quiet") as quiet:
            assert quiet.read_event(timeout=0.01) is None
            assert quiet.next_batch(timeout=0.01) is None
            assert repr(quiet) == f"<StreamFollower of {config.scope}/quiet, open, 1 segments>"
            # Another thread may not read at the same time, and gets its error.
            errors: list[BaseException] = []

            def read() -> None:
                try:
                    next(iter(quiet))
                except ClosedError as error:
                    errors.append(error)

            thread = threading.Thread(target=read)
            thread.start()
            while not quiet._twin._alone._taken:
                time.sleep(0.01)
            with pytest.raises(ConcurrentUseError):
                quiet.read_event()
        thread.join()
        assert len(errors) == 1


@pytest.mark.smoke
def test_asyncio(config: PravegaConfig) -> None:
    async def main() -> None:
        async with aio.open_client(config) as client:
            await client.create_stream("t", 2)
            async with client.event_writer("t") as writer:
                for each in range(100):
                    await writer.write_event(b"%d" % each, str(each % KEYS))
            found = []
            async with client.follow_events("t") as events:
                async for event in events:
                    found.append(int(event.value))
                    if len(found) == 40:
                        break
                cut = events.cut
            rest = client.follow_events("t", cut)
            for _ in range(60):
                found.append(int((await anext(rest)).value))
            check_order(found, 100)
            # Cancelled in the middle of waiting, it goes on.
            for _ in range(5):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.02):
                        await rest.read_event()
            async with client.event_writer("t") as writer:
                await writer.write_event(b"100", str(100 % KEYS))
            assert (await anext(rest)).value == b"100"
            await client.seal_stream("t")
            assert [each async for each in rest] == []
            assert [each async for each in client.follow_events("t", rest.cut)] == []
            assert rest.end_of_data
            await rest.aclose()

    asyncio.run(main())


def test_it_uses_no_group(config: PravegaConfig) -> None:
    with sync.open_client(config) as client:
        client.create_stream("t")
        with client.follow_events("t") as events:
            events.read_event(0)
            assert client.list_reader_groups() == []
            names = {each.name for each in client.list_streams(internal=True)}
        assert names == {"t", "_MARKt"}
        client.create_reader_group("g", ReaderGroupConfig.of([f"{config.scope}/t"]))
