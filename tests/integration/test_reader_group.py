"""Reader groups on a real server."""

from __future__ import annotations

import asyncio
import math
import random
import threading
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from itertools import count, islice
from time import monotonic, time
from typing import Any, Literal
from uuid import UUID, uuid4

import pytest
import trio
import trio.testing

from pravega_wire import (
    Checkpoint,
    Event,
    EventBatch,
    EventPointer,
    EventReader,
    EventTimeOrder,
    Position,
    PravegaClient,
    PravegaConfig,
    ReaderGroup,
    ReaderGroupConfig,
    RetentionType,
    ScalingPolicy,
    ScopedStream,
    StreamConfiguration,
    StreamCut,
    WatermarkAssigner,
    aio,
    open_client,
)
from pravega_wire import sync as blocking
from pravega_wire.controller.channels import Channels
from pravega_wire.errors import (
    ArgumentTypeError,
    CheckpointError,
    CheckpointTimeoutError,
    ClosedError,
    ConcurrentUseError,
    ConnectionLostError,
    DataLossError,
    DecodeError,
    InvalidArgumentError,
    InvalidStreamCutError,
    PermissionDeniedError,
    ReaderGroupError,
    ReaderGroupNotFoundError,
    ReinitializationRequiredError,
    ScopeNotFoundError,
    StreamNotFoundError,
    TruncatedInputError,
)
from pravega_wire.protocol import group_algorithm
from pravega_wire.protocol.events import frame_event
from pravega_wire.protocol.group_algorithm import Change, Compact
from pravega_wire.protocol.group_state import (
    AddReader,
    GroupInit,
    GroupState,
    GroupStateFormat,
    GroupUpdate,
    UpdateCheckpointPublished,
)
from pravega_wire.protocol.state_records import UpdateRecord
from pravega_wire.serializers import JsonSerializer
from pravega_wire.stream import group_link, reader_group
from pravega_wire.stream.byte_stream import ByteStreamWriter
from pravega_wire.stream.core import ClientCore
from pravega_wire.stream.group_link import GroupLink, initial_state, release
from pravega_wire.stream.opening import opening
from pravega_wire.stream.synchronizer import StateSynchronizer
from pravega_wire.support.environment import ENVIRONMENT, Environment
from pravega_wire.testing import FaultProxy
from pravega_wire.values.naming import segment_name
from tests.cancelling import cancelled_at
from tests.faults.support import assert_exactly, event_of, scale_to
from tests.inside import core_of, link_of


async def write(client: PravegaClient, stream: str, start: int, end: int) -> None:
    async with client.event_writer(stream) as writer:
        for number in range(start, end):
            await writer.write_event(*event_of(number))
        await writer.flush()


@opening
async def group_of(
    client: PravegaClient, *streams: str | StreamCut, name: str = "g", **settings: object
) -> ReaderGroup:
    """A group on these streams, with short intervals."""
    wanted = [each if isinstance(each, StreamCut) else client.config.resolve(each) for each in streams]
    options = {"group_refresh_interval": 500, **settings}
    await client.create_reader_group(name, ReaderGroupConfig.of(wanted, **options))  # type: ignore[arg-type]
    return await client.reader_group(name)


async def take(reader: EventReader[bytes], count: int) -> list[bytes]:
    """The next events."""
    found: list[bytes] = []
    while len(found) < count:
        item = await reader.read_event()
        assert item is not None
        found.append(item.value)
    return found


async def test_readers_come_and_go_while_the_stream_scales(config: PravegaConfig) -> None:
    """Each event goes to one of them, and those of a key in their order."""
    total = 6000

    async with open_client(config) as client:
        await client.create_stream("s", 1)
        seen: list[bytes] = []
        async with group_of(client, "s", automatic_checkpoint_interval=1) as group:

            async def read(name: str, leave_after: int | None) -> None:
                count = 0
                async with group.reader(name) as reader:
                    async for event in reader:
                        seen.append(event.value)
                        count += 1
                        if count == leave_after:
                            return

            async def produce() -> None:
                for part, segments in enumerate([4, 1, 2]):
                    await write(client, "s", part * 1500, (part + 1) * 1500)
                    await scale_to(client, "s", segments)
                await write(client, "s", 4500, total)
                await client.seal_stream("s")

            async with trio.open_nursery() as nursery:
                nursery.start_soon(produce)
                nursery.start_soon(read, "a", None)
                nursery.start_soon(read, "b", 700)
                await trio.sleep(1)
                nursery.start_soon(read, "c", 500)
                nursery.start_soon(read, "d", None)
            assert_exactly(seen, total)
            metrics = await group.metrics()
            assert (metrics.unread_bytes, metrics.segments, metrics.future) == (0, 0, 0)


@pytest.mark.smoke
async def test_two_readers_share_the_segments(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("s", 4)
        await write(client, "s", 0, 400)
        async with group_of(client, "s", automatic_checkpoint_interval=0.5) as group:
            assert group.name == f"{config.scope}/g"
            assert group.streams == (config.resolve("s"),)
            async with trio.open_nursery() as nursery:

                async def read(name: str) -> None:
                    async with group.reader(name) as reader:
                        while True:
                            await reader.read_event(0.2)

                nursery.start_soon(read, "a")
                nursery.start_soon(read, "b")
                async for _ in group.segment_counts():
                    await group.refresh()
                    break
                while sorted(map(len, group.segment_distribution.values())) != [2, 2]:
                    await trio.sleep(0.1)
                    await group.refresh()
                assert group.online_readers == {"a", "b"}
                metrics = await group.metrics()
                assert dict(metrics.readers) == {"a": 2, "b": 2}
                assert group.unassigned_segments == ()
                nursery.cancel_scope.cancel()
            await group.refresh()
            # Cancelled readers leave the group all the same.
            assert group.online_readers == frozenset()
            assert len(group.unassigned_segments) == 4


async def test_what_an_exception_interrupts_is_read_again(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("s", 1)
        await write(client, "s", 0, 100)
        async with group_of(client, "s") as group:
            with pytest.raises(KeyError):
                async with group.reader("a") as reader:
                    for number in range(10):
                        event = await reader.read_event()
                        assert isinstance(event, Event)
                        assert event.value == event_of(number)[0]
                    raise KeyError
            async with group.reader("a") as reader:
                assert await take(reader, 1) == [event_of(9)[0]]
            # Left in the normal way: it was read.
            async with group.reader("b") as reader:
                assert await take(reader, 90) == [event_of(number)[0] for number in range(10, 100)]
                with pytest.raises(trio.TooSlowError), trio.fail_after(0.3):
                    await reader.read_event()
                assert await reader.read_event(0) is None
            with pytest.raises(ClosedError):
                await reader.read_event()


@pytest.mark.smoke
async def test_batches_and_single_events_mix(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("s", 2)
        await write(client, "s", 0, 2000)
        await client.seal_stream("s")
        async with group_of(client, "s", automatic_checkpoint_interval=1) as group:
            seen: list[bytes] = []
            pointers: list[EventPointer] = []
            async with group.reader("a") as reader:
                while len(seen) < 50:
                    item = await reader.read_event()
                    assert isinstance(item, Event)
                    seen.append(item.value)
                    pointers.append(item.pointer)
                    assert item.stream == config.resolve("s")
                for count in (7, 1, 30):
                    for item in islice(reader.events_nowait(), count):
                        seen.append(item.value)
                        pointers.append(item.pointer)
                        ends = reader.position.offsets
                        assert ends[item.segment] == item.offset + item.length
                        assert reader.acknowledged_position.offsets[item.segment] <= item.offset
                assert len(seen) == 88
                # What is kept of an iteration gives nothing that something else has given meanwhile.
                kept = reader.events_nowait()
                for _ in range(3):
                    item = next(kept)
                    seen.append(item.value)
                    pointers.append(item.pointer)
                    item = await reader.read_event()
                    assert isinstance(item, Event)
                    seen.append(item.value)
                    pointers.append(item.pointer)
                found = await reader.next_batch()
                assert isinstance(found, EventBatch)
                seen += found
                pointers += found.pointers()
                assert list(islice(kept, 1)) == []
                async for batch in reader.batches():
                    assert batch.to_arrow().to_pylist() == list(batch)
                    seen += batch
                    pointers += batch.pointers()
                assert reader.end_of_data
                assert await reader.next_batch() is None
            assert_exactly(seen, 2000)
            for index in range(0, 2000, 97):
                assert await client.fetch_event(pointers[index]) == seen[index]
            await group.wait_for_end_of_data()


async def test_pointers_to_nothing(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("s", 1)
        await write(client, "s", 0, 100)
        segment = f"{config.scope}/s/0.#epoch.0"
        length = await client.segment_length("s", 0)
        for start, size in [(3, 20), (0, 5), (length - 4, 4), (length, 30), (10**9, 30)]:
            with pytest.raises(InvalidArgumentError, match="no event is stored at"):
                await client.fetch_event(EventPointer(segment, start, size))
        await client.truncate_stream("s", StreamCut(config.resolve("s"), {0: length}))
        with pytest.raises(DataLossError):
            await client.fetch_event(EventPointer(segment, 0, 20))
        with pytest.raises(DataLossError, match="gone"):
            await client.fetch_event(EventPointer(f"{config.scope}/s/7.#epoch.0", 0, 20))


@pytest.mark.smoke
async def test_checkpoints_and_going_back_to_one(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("s", 2)
        await write(client, "s", 0, 600)
        async with group_of(client, "s", automatic_checkpoint_interval=-0.001) as group:
            reached: list[str] = []

            async def told(name: str) -> None:
                reached.append(name)
                await write(client, "s", 600, 1000)

            async with group.reader("a", on_checkpoint=told) as reader:
                before = await take(reader, 600)
                async with trio.open_nursery() as nursery:
                    results: list[object] = []

                    async def begin() -> None:
                        results.append(await group.checkpoint("half"))

                    nursery.start_soon(begin)
                    after = await take(reader, 400)
                assert reached == ["half"]
                [checkpoint] = results
                assert checkpoint.cuts == ((await group.last_checkpoint())[config.resolve("s")],)  # type: ignore[index,attr-defined]
                assert_exactly(before + after, 1000)
                new = await group.reset(checkpoint)  # type: ignore[arg-type]
                assert new.generation == 1
                with pytest.raises(ReinitializationRequiredError, match="reset"):
                    while True:
                        await reader.read_event(1)
            async with group.reader("a") as reader:
                assert sorted(await take(reader, len(after))) == sorted(after)
                # By default to the last checkpoint. There is none since the reset, so the same start.
                await group.reset()
            async with group.reader("a") as reader:
                assert sorted(await take(reader, len(after))) == sorted(after)
            # And to the head.
            await group.reset([])
            async with group.reader("a") as reader:
                assert_exactly(await take(reader, 1000), 1000)
            with pytest.raises(InvalidStreamCutError, match="not one of the group's streams"):
                await group.reset([StreamCut(ScopedStream(config.scope or "", "other"), {0: 0})])
            # A checkpoint that no reader has to answer counts as well.
            newest = await group.checkpoint("all read")
            assert newest.cuts == (await client.tail("s"),)
            newest_cuts = await group.last_checkpoint()
            assert newest_cuts == {config.resolve("s"): newest.cuts[0]}
            assert await group.unread_bytes() == 0
            assert (await group.reset()).starts == {config.resolve("s"): newest.cuts[0]}
            # What the calls return by stream can be passed on.
            await group.reset([])
            assert (await group.reset(newest_cuts)).starts == newest_cuts
            await client.create_reader_group("later", newest_cuts)
            async with client.reader_group("later") as later:
                assert later.config.starts == newest_cuts


@pytest.mark.parametrize("reset", [False, True], ids=["declared dead", "reset"])
async def test_a_reader_that_slept_through_compactions_does_not_take_another_for_itself(
    config: PravegaConfig, monkeypatch: pytest.MonkeyPatch, reset: bool
) -> None:
    """Nothing that it can still read says that another one of its name has joined."""
    monkeypatch.setattr(group_link, "_COMPACT_BYTES", 0)

    def compactions() -> Generator[Compact, None, None]:
        for _ in range(3):
            yield Compact()

    async with open_client(config) as client, open_client(config) as other:
        await client.create_stream("s", 1)
        await write(client, "s", 0, 100)
        async with (
            group_of(client, "s", group_refresh_interval=0.001) as group,
            other.reader_group("g") as theirs,
        ):
            async with group.reader("a") as sleeper:
                await take(sleeper, 3)
                if reset:
                    await theirs.reset()
                else:
                    await theirs.reader_offline("a")
                async with theirs.reader("a") as heir, trio.open_nursery() as nursery:
                    made: list[Checkpoint] = []

                    async def checkpoint() -> None:
                        made.append(await theirs.checkpoint("half"))

                    await take(heir, 50)
                    nursery.start_soon(checkpoint)
                    while not made:
                        await heir.read_event(0.1)
                    await link_of(theirs).run(compactions())
                    with pytest.raises(ReinitializationRequiredError):
                        await take(sleeper, 97)
                    await sleeper.aclose()
                    await heir.read_event(0)
                    await theirs.refresh()
                    assert theirs.online_readers == {"a"}


async def test_a_reset_begins_at_a_checkpoint_that_is_completed_meanwhile(
    config: PravegaConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies before it may have been released, and be gone."""
    async with open_client(config) as client, open_client(config) as other:
        await client.create_stream("s", 1)
        await write(client, "s", 0, 20)
        async with group_of(client, "s") as group, other.reader_group(group.name) as theirs:
            async with group.reader("a") as reader:
                await take(reader, 20)
            made: list[Checkpoint] = []

            async def meanwhile(core: ClientCore, new: ReaderGroupConfig) -> GroupInit:
                found = await initial_state(core, new)
                if not made:
                    made.append(await theirs.checkpoint("late"))
                return found

            monkeypatch.setattr(reader_group, "initial_state", meanwhile)
            starts = (await group.reset()).starts
            assert starts == {cut.stream: cut for cut in made[0].cuts}
            assert starts == {config.resolve("s"): await client.tail("s")}


async def test_groups_begin_and_end_at_positions_of_their_stream(config: PravegaConfig) -> None:
    """At others, a reader would skip a part of the key space, or wait for ever, without a word."""
    async with open_client(config) as client:
        await client.create_stream("s", 2)
        await write(client, "s", 0, 100)
        stream, tail = config.resolve("s"), await client.tail("s")
        wrong: list[dict[int, int]] = [
            {},
            {0: 0},
            {0: 0, 1: 0, 2: 0},
            {0: 0, 1: 10**6},
            {0: 0, 1 + (9 << 32): 0},
        ]
        async with group_of(client, "s") as group:
            for positions in wrong:
                cut = StreamCut(stream, positions)
                with pytest.raises(InvalidStreamCutError):
                    await client.create_reader_group("other", ReaderGroupConfig(starts={stream: cut}))
                with pytest.raises(InvalidStreamCutError):
                    await group.reset([cut])
            with pytest.raises(InvalidStreamCutError):
                await group.reset(replace(group.config, ends={stream: StreamCut(stream, {0: 5})}))
            assert not await client.reader_group_exists("other")
            assert (await group.reset([tail])).starts == {stream: tail}


async def test_a_group_waits_for_nothing_that_its_start_is_past(config: PravegaConfig) -> None:
    """After an uneven merge its start leaves keys out, because what follows there cannot be begun yet."""
    async with open_client(config) as client:
        await client.create_stream("s", 2)
        await write(client, "s", 0, 100)
        await client.scale_stream("s", [0, 1], [(0.0, 0.3), (0.3, 1.0)])
        await write(client, "s", 100, 200)
        low = min(await client.active_segments("s"), key=lambda each: each.low)
        await client.seal_stream("s")
        before = [
            event
            for each in await client.segment_ranges("s")
            if each.segment_id == 0
            async for batch in client.read_range(each)
            for event in batch
        ]
        cut = StreamCut(config.resolve("s"), {1: 0, low.segment_id: 0})

        async def rest(group: ReaderGroup) -> list[bytes]:
            # Otherwise the readers would wait for segment 0 for ever.
            assert [set(each) for each in link_of(group).state.future.values()] == [{1}]
            async with group.reader("a") as reader:
                return [event.value async for event in reader]

        async with group_of(client, cut, automatic_checkpoint_interval=1) as group:
            assert_exactly(before + await rest(group), 200)
        async with group_of(client, "s", name="other", automatic_checkpoint_interval=1) as group:
            await group.reset(cut)
            assert_exactly(before + await rest(group), 200)


async def test_an_event_that_the_serializer_cannot_read_is_named(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("s", 1)
        async with client.event_writer("s") as writer:
            await writer.write_events([b"1", b"22", b"x", b"4", b"5", b"y"])
        message = r"the event at offset 19 of segment .*/s/0\.#epoch\.0: the payload is not JSON"
        async with client.follow_events("s", serializer=JsonSerializer()) as events:
            assert [(await events.read_event()).value for _ in range(2)] == [1, 22]  # type: ignore[union-attr]
            with pytest.raises(DecodeError, match=message) as caught:
                await events.read_event()
            assert caught.value.segment == segment_name(config.scope or "", "s", 0)
            assert (caught.value.scope, caught.value.stream) == (config.scope, "s")
            # It goes on after it, and the equal events there are named as well.
            assert [(await events.read_event()).value for _ in range(2)] == [4, 5]  # type: ignore[union-attr]
            with pytest.raises(DecodeError, match="at offset 46 of"):
                await events.read_event()
        await client.create_stream("equal", 1)
        async with client.event_writer("equal") as writer:
            await writer.write_events([b"1", b"x", b"3"])
        async with client.follow_events("equal", serializer=JsonSerializer()) as events:
            assert (await events.read_event()).value == 1  # type: ignore[union-attr]
            with pytest.raises(DecodeError, match=r"at offset 9 of segment .*/equal/0"):
                await events.read_event()


async def test_checkpoints_are_not_counted_as_events(config: PravegaConfig) -> None:
    """They are told apart from events, before the next event; each counts as reached after that."""
    async with open_client(config) as client:
        await client.create_stream("s", 1)
        await write(client, "s", 0, 3)
        told: list[object] = []
        complete: list[str] = []
        failing = True

        async def tell(name: str) -> None:
            await group.refresh()
            told.append((name, [each.name for each in group.outstanding_checkpoints], list(complete)))
            with pytest.raises(ConcurrentUseError, match="on_checkpoint"):
                await reader.read_event(0)
            if failing:
                raise ValueError("not saved")

        async def begin() -> None:
            complete.append((await group.checkpoint("c")).name)

        async with (
            group_of(client, "s", automatic_checkpoint_interval=-0.001) as group,
            group.reader("a", on_checkpoint=tell) as reader,
            trio.open_nursery() as nursery,
        ):
            count = 0
            while await reader.read_event(1) is not None:
                count += 1
            assert count == 3
            nursery.start_soon(begin)
            for _ in range(2):
                with pytest.raises(ValueError, match="not saved"):
                    while True:
                        assert await reader.read_event(0.1) is None
            # A cancelled callback is called again, too.
            failing = False
            assert await reader.next_batch(0.1) is None
            while not complete:
                assert await reader.read_event(0.1) is None
            # Whatever failed, it was still outstanding; and it is told once when all went well.
            assert told == [("c", ["c"], [])] * 3


@pytest.mark.parametrize("facade", ["sync", "aio"])
async def test_checkpoints_are_not_counted_as_events_in_other_clients(
    config: PravegaConfig, facade: str
) -> None:
    async with open_client(config) as client:
        await client.create_stream("s", 1)
        await write(client, "s", 0, 100)
        await client.create_reader_group(
            "g", ReaderGroupConfig.of([config.resolve("s")], automatic_checkpoint_interval=-0.001)
        )
        told: list[str] = []

        def tell(name: str) -> None:
            told.append(name)
            if len(told) == 1:
                raise ValueError("not saved")

        def in_a_thread() -> int:
            count = 0
            with blocking.open_client(config) as other, other.reader_group("g") as group:
                with group.reader("one", on_checkpoint=tell) as reader:
                    for _event in reader:
                        count += 1
                        if count == 50:
                            break
                    started.set()
                    while len(told) < 2:
                        try:
                            count += reader.read_event(0.1) is not None
                        except ValueError:
                            # Nothing is read over it: it is told again.
                            continue
                    while (batch := reader.next_batch(1)) is not None:
                        count += len(batch)
            return count

        async def in_a_loop() -> int:
            count = 0
            async with aio.open_client(config) as other, other.reader_group("g") as group:
                async with group.reader("one", on_checkpoint=tell) as reader:
                    async for _event in reader:
                        count += 1
                        if count == 50:
                            break
                    started.set()
                    while len(told) < 2:
                        try:
                            count += await reader.read_event(0.1) is not None
                        except ValueError:
                            continue
                    while (batch := await reader.next_batch(1)) is not None:
                        count += len(batch)
            return count

        started = threading.Event()
        counts: list[int] = []

        async def read() -> None:
            counts.append(
                await trio.to_thread.run_sync(
                    in_a_thread if facade == "sync" else lambda: asyncio.run(in_a_loop())
                )
            )

        async with trio.open_nursery() as nursery, client.reader_group("g") as group:
            nursery.start_soon(read)
            await trio.to_thread.run_sync(started.wait, abandon_on_cancel=True)
            assert (await group.checkpoint("c")).name == "c"
        assert told == ["c", "c"]
        assert counts == [100]


async def test_outstanding_checkpoints(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("s", 1)
        await write(client, "s", 0, 10)
        async with group_of(
            client, "s", automatic_checkpoint_interval=-0.001, max_outstanding_checkpoints=2
        ) as group:
            # Nobody reads: complete at once.
            assert (await group.checkpoint("empty")).cuts == (StreamCut(config.resolve("s"), {0: 0}),)
            async with group.reader("a") as reader:
                await take(reader, 10)
                cancelled = 0
                async with trio.open_nursery() as nursery:

                    async def wait(name: str) -> None:
                        nonlocal cancelled
                        with pytest.raises(CheckpointError, match="was not completed"):
                            await group.checkpoint(name)
                        cancelled += 1

                    async with client.reader_group("g") as other:
                        nursery.start_soon(wait, "one")
                        nursery.start_soon(wait, "two")
                        state = link_of(other)
                        while len(state.state.checkpoints.outstanding) < 2:
                            await state.wait_for_updates()
                        with pytest.raises(CheckpointError, match="2 outstanding"):
                            await other.checkpoint("three")
                        with pytest.raises(CheckpointError, match="already"):
                            await other.checkpoint("one")
                        await other.cancel_outstanding_checkpoints()
                assert cancelled == 2
                # The reader has not noticed, and answers silent ones without a word.
                async with trio.open_nursery() as nursery:
                    cuts: list[object] = []

                    async def ask() -> None:
                        cuts.append(await group.generate_stream_cuts())

                    nursery.start_soon(ask)
                    while not cuts:
                        assert await reader.read_event(0.1) is None
                length = await client.segment_length("s", 0)
                assert cuts == [{config.resolve("s"): StreamCut(config.resolve("s"), {0: length})}]
            for name in ("", "x_SILENT_", 5):
                with pytest.raises(InvalidArgumentError, match="not a valid checkpoint name"):
                    await group.checkpoint(name)  # type: ignore[arg-type]


async def test_readers_move_also_after_the_clock_was_put_back(config: PravegaConfig) -> None:
    """Otherwise a program that goes by it takes all of them for dead."""
    late = 0.0
    token = ENVIRONMENT.set(Environment(wall=lambda: time() - late))
    try:
        async with open_client(config) as client:
            await client.create_stream("s", 1)
            await write(client, "s", 0, 10)
            async with group_of(client, "s") as group, client.reader_group("g") as watching:
                late = 3600.0
                async with group.reader("a") as reader:
                    await take(reader, 5)
                    await watching.refresh()
                    a = watching.online_readers["a"]
                    assert a.last_moved is not None
                    assert a.last_moved < a.watched_since
    finally:
        ENVIRONMENT.reset(token)


async def test_readers_that_hold_a_checkpoint_up_are_named(config: PravegaConfig) -> None:
    """One that is not asked for events; the checkpoint is withdrawn, and the next one is complete."""
    reached: list[str] = []

    async with open_client(config) as client:
        await client.create_stream("s", 1)
        await write(client, "s", 0, 10)
        s = config.resolve("s")
        async with (
            group_of(
                client, "s", automatic_checkpoint_interval=-0.001, max_outstanding_checkpoints=1
            ) as group,
            group.reader("idle") as idle,
            group.reader("busy", on_checkpoint=reached.append) as busy,
        ):
            await take(idle, 5)
            async with client.reader_group("g") as watching, trio.open_nursery() as nursery:

                async def read() -> None:
                    assert await busy.read_event() is None

                nursery.start_soon(read)
                with pytest.raises(CheckpointTimeoutError, match="idle") as caught:
                    await watching.checkpoint("c", timeout=10)
                error = caught.value
                assert reached == ["c"]
                assert (error.checkpoint, error.withdrawn) == ("c", True)
                assert error.waiting_for == {"idle": None}
                assert error.watched_since is not None
                assert "'c'" in error.message
                assert "no activity since" in error.message
                assert "holds 1 segment" in error.message
                assert "busy" not in error.message
                assert isinstance(error, TimeoutError)

                await watching.refresh()
                assert watching.outstanding_checkpoints == ()
                online = watching.online_readers
                assert online == {"idle", "busy"}
                assert online["idle"].unanswered == ()
                assert list(online["idle"].segments) == [f"{s}/0.#epoch.0"]
                assert online["idle"].last_moved is None
                moved = online["busy"].last_moved
                assert moved is not None
                assert moved >= error.watched_since
                assert online["busy"].segments == {}

                with pytest.raises(CheckpointTimeoutError, match=r"stream cuts .* not answered .* idle"):
                    await watching.generate_stream_cuts(timeout=1)
                await watching.refresh()
                assert watching.outstanding_checkpoints == ()

                # The name is free again, and the reader that has stopped at it continues.
                async with trio.open_nursery() as asking:

                    async def again() -> None:
                        assert (await watching.checkpoint("c", timeout=60)).name == "c"
                        asking.cancel_scope.cancel()

                    asking.start_soon(again)
                    while True:
                        await idle.read_event(0.1)
                assert reached == ["c", "c"]
                nursery.cancel_scope.cancel()
            for bad in (0, -1.0, math.nan, True, 10**400):
                with pytest.raises(InvalidArgumentError, match="timeout"):
                    await group.checkpoint(timeout=bad)
                with pytest.raises(InvalidArgumentError, match="timeout"):
                    await group.generate_stream_cuts(timeout=bad)


async def test_outstanding_checkpoints_say_who_has_not_answered(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("s", 1)
        async with (
            group_of(
                client, "s", automatic_checkpoint_interval=-0.001, max_outstanding_checkpoints=2
            ) as group,
            group.reader("a"),
            group.reader("b") as b,
            client.reader_group("g") as other,
            trio.open_nursery() as nursery,
        ):

            async def one_that_is_withdrawn() -> None:
                with suppress(CheckpointError):
                    await group.checkpoint("one")

            nursery.start_soon(one_that_is_withdrawn)
            nursery.start_soon(group.generate_stream_cuts)
            while len(group.outstanding_checkpoints) < 2:
                await group.refresh()
            await other.refresh()
            named = {each.name: each for each in other.outstanding_checkpoints}
            one = named.pop("one")
            [silent] = named.values()
            assert (one.silent, silent.silent) == (False, True)
            assert [each.name for each in one.waiting_for] == ["a", "b"]
            assert one.begun is not None
            async with client.reader_group("g") as late:
                assert [each.begun for each in late.outstanding_checkpoints] == [None, None]
            nursery.start_soon(group.checkpoint, "two")
            while len(other.outstanding_checkpoints) < 3:
                await b.read_event(0.1)
                await other.refresh()
            while len(other.outstanding_checkpoints[-1].waiting_for) > 1:
                await b.read_event(0.1)
                await other.refresh()
            assert set(other.online_readers["a"].unanswered) == {"one", silent.name, "two"}
            with pytest.raises(
                CheckpointError, match=r"2 outstanding .*'one'.*waiting for a \(.*'two'"
            ) as full:
                await other.checkpoint("three")
            assert not isinstance(full.value, CheckpointTimeoutError)
            # One is withdrawn, the others stay as they are.
            before = link_of(other).state.checkpoints
            await link_of(other).change(Change(group_algorithm.withdraw_checkpoint("one")))
            after = link_of(other).state.checkpoints
            assert after == before.withdrawn("one")
            assert len(after.pending) == 2
            nursery.cancel_scope.cancel()


async def test_a_checkpoint_that_is_cancelled_is_withdrawn(config: PravegaConfig) -> None:
    """Wherever it is cancelled: before it is written, in the write, or while it waits."""

    async with open_client(config) as client:
        await client.create_stream("s", 1)
        async with (
            group_of(
                client, "s", automatic_checkpoint_interval=-0.001, max_outstanding_checkpoints=1
            ) as group,
            group.reader("a"),
            client.reader_group("g") as other,
        ):
            calls: list[Callable[[], Awaitable[object]]] = [
                lambda: group.checkpoint("c"),
                group.generate_stream_cuts,
            ]
            for call in calls:
                for going_on in (False, True):
                    for step in count(1):
                        with trio.move_on_after(1.5) as waiting:
                            assert await cancelled_at(step, call, going_on=going_on)
                        await other.refresh()
                        assert other.outstanding_checkpoints == (), (step, going_on)
                        if waiting.cancelled_caught:
                            # Written by then, and waiting for the reader.
                            break
                    assert step > 3
            # Another one's checkpoint is not touched.
            async with trio.open_nursery() as nursery:
                nursery.start_soon(other.checkpoint, "other")
                while not group.outstanding_checkpoints:
                    await group.refresh()
                with trio.move_on_after(1):
                    await group.generate_stream_cuts()
                with pytest.raises(CheckpointError, match="'other'"):
                    await group.checkpoint("c", timeout=5)
                await group.refresh()
                assert [each.name for each in group.outstanding_checkpoints] == ["other"]
                nursery.cancel_scope.cancel()
            await group.refresh()
            assert group.outstanding_checkpoints == ()


async def test_a_checkpoint_withdrawn_without_a_server(
    config: PravegaConfig,
    fault_proxy: FaultProxy,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A call that is cancelled ends, and says what may be left."""
    async with open_client(config) as client:
        await client.create_stream("s", 1)
        async with group_of(client, "s", automatic_checkpoint_interval=-0.001) as group, group.reader("a"):
            async with (
                open_client(config, address_map=fault_proxy.address_map) as proxied,
                proxied.reader_group("g") as same,
                trio.open_nursery() as nursery,
            ):
                nursery.start_soon(same.checkpoint, "c")
                while not group.outstanding_checkpoints:
                    await group.refresh()
                fault_proxy.pause()
                nursery.cancel_scope.cancel()
            fault_proxy.resume()
            [record] = [each for each in caplog.records if "may still be outstanding" in each.message]
            assert record.levelname == "WARNING"
            assert "checkpoint c of reader group" in record.message
            await group.refresh()
            assert [each.name for each in group.outstanding_checkpoints] == ["c"]


async def test_between_two_cuts(config: PravegaConfig) -> None:
    """Bounded reading across a scale, by two readers, and twice the same."""

    async with open_client(config) as client:
        await client.create_stream("s", 1)
        await scale_to(client, "s", 2)
        await write(client, "s", 0, 300)
        start = await client.tail("s")
        await write(client, "s", 300, 700)
        await scale_to(client, "s", 1)
        await write(client, "s", 700, 1000)
        end = await client.tail("s")
        await write(client, "s", 1000, 1200)
        wanted = [event_of(number)[0] for number in range(300, 1000)]
        for name in ("g1", "g2"):
            await client.create_reader_group(
                name,
                ReaderGroupConfig.of(
                    [start], ends=[end], group_refresh_interval=0.3, automatic_checkpoint_interval=1
                ),
            )
            seen: list[bytes] = []

            async def read(group: ReaderGroup, reader_id: str, seen: list[bytes] = seen) -> None:
                async with group.reader(reader_id) as reader:
                    async for event in reader:
                        seen.append(event.value)

            async with client.reader_group(name) as group, trio.open_nursery() as nursery:
                assert await group.unread_bytes() == sum(len(event) + 8 for event in wanted)
                nursery.start_soon(read, group, "a")
                nursery.start_soon(read, group, "b")
                await group.wait_for_end_of_data()
            assert sorted(seen) == sorted(wanted)


@pytest.mark.parametrize("skip", [False, True])
async def test_truncated_positions(config: PravegaConfig, skip: bool) -> None:
    async with open_client(config) as client:
        await client.create_stream("s", 1)
        await write(client, "s", 0, 50)
        async with group_of(client, "s") as group:
            cut = await client.tail("s")
            await write(client, "s", 50, 100)
            await client.truncate_stream("s", cut)
            async with group.reader("a", on_truncated="skip_to_head" if skip else "raise") as reader:
                if not skip:
                    with pytest.raises(DataLossError, match="are gone") as caught:
                        await reader.read_event()
                    assert caught.value.start_offset == cut.positions[0]
                assert await take(reader, 50) == [event_of(number)[0] for number in range(50, 100)]


async def test_readers_that_die(config: PravegaConfig) -> None:
    async with open_client(config) as client, open_client(config) as doomed:
        await client.create_stream("s", 1)
        await write(client, "s", 0, 100)
        async with group_of(client, "s", automatic_checkpoint_interval=-0.001) as group:
            async with doomed.reader_group("g") as same, same.reader("dead") as reader:
                await take(reader, 30)
                # It says nothing any more. Its position is known:
                with pytest.raises(ReaderGroupError, match="already"):
                    async with group.reader("dead"):
                        pass
                await group.reader_offline("dead", reader.position)
                async with group.reader("heir") as heir:
                    assert await take(heir, 30) == [event_of(number)[0] for number in range(30, 60)]
                    # Not known: from where it took the segment.
                    await group.reader_offline("heir")
                    async with group.reader("last") as last:
                        assert await take(last, 70) == [event_of(number)[0] for number in range(30, 100)]
                    with pytest.raises(ReinitializationRequiredError, match="heir"):
                        while True:
                            await heir.read_event(1)
                with pytest.raises(
                    ReaderGroupError, match=r"nobody is not in .*, whose readers are: "
                ) as missing:
                    await group.reader_offline("nobody")
                assert "heir" not in str(missing.value)


async def test_a_position_from_before_another_reader_had_the_segment(config: PravegaConfig) -> None:
    """A reader keeps its position with each event, and dies again before it is given another one."""
    async with open_client(config) as client, open_client(config) as doomed:
        await client.create_stream("s", 1)
        await write(client, "s", 0, 30)
        async with group_of(client, "s", automatic_checkpoint_interval=-0.001) as group:
            async with group.reader("a") as reader:
                await take(reader, 10)
                kept = Position.from_text(reader.position.to_text())
            async with group.reader("b") as other:
                assert await take(other, 10) == [event_of(number)[0] for number in range(10, 20)]
            async with doomed.reader_group("g") as same, same.reader("a") as again:
                while not again.segments:
                    await again.read_event(0)
                await group.reader_offline("a", kept)
                async with group.reader("c") as last:
                    assert await take(last, 10) == [event_of(number)[0] for number in range(20, 30)]


async def test_a_dead_reader_does_not_join_later(config: PravegaConfig) -> None:
    """A request to join may be stored after its reader was declared dead: it is refused."""
    async with open_client(config) as client, open_client(config) as doomed:
        await client.create_stream("s", 1)
        async with group_of(client, "s") as group:
            async with doomed.state_synchronizer("_RGg", GroupStateFormat()) as state:
                await state.fetch_updates()
                with pytest.raises(ReaderGroupError, match="readers are: none"):
                    await group.reader_offline("dead")
                tried: list[GroupState] = []

                def join(found: GroupState) -> list[GroupUpdate]:
                    tried.append(found)
                    return [AddReader("dead")] if len(tried) == 1 else []

                await state.update(join)
                assert len(tried) == 2
            await group.refresh()
            assert not group.online_readers


async def test_reads_that_are_cancelled_lose_nothing(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("s", 1)
        rng = random.Random(7)
        seen: list[bytes] = []
        async with (
            group_of(client, "s", group_refresh_interval=0, automatic_checkpoint_interval=0.05) as group,
            trio.open_nursery() as nursery,
        ):

            async def produce() -> None:
                for part in range(20):
                    await write(client, "s", part * 40, (part + 1) * 40)
                    if part % 5 == 2:
                        await scale_to(client, "s", rng.choice([1, 2, 4]))
                await client.seal_stream("s")

            nursery.start_soon(produce)
            async with group.reader("a") as reader:
                cancelled = 0
                most = 0.01
                while not reader.end_of_data:
                    with trio.move_on_after(rng.random() * most) as scope:
                        item = await reader.read_event()
                        if isinstance(item, Event):
                            seen.append(item.value)
                    cancelled += scope.cancelled_caught
                    # A machine may take longer than that for what has to be done before the next event.
                    most = most * 1.05 if scope.cancelled_caught else 0.01
                assert cancelled > 20
        assert_exactly(seen, 800)


async def test_lost_connections_in_the_middle(config: PravegaConfig, fault_proxy: FaultProxy) -> None:
    with trio.fail_after(120):
        async with (
            open_client(config) as writing,
            open_client(config, address_map=fault_proxy.address_map) as client,
        ):
            await writing.create_stream("s", 2)
            seen: list[bytes] = []
            written = 0
            async with group_of(client, "s", automatic_checkpoint_interval=0.3) as group:
                async with trio.open_nursery() as nursery:

                    async def disturb() -> None:
                        nonlocal written
                        # There is nothing to cut while a reader has not connected again.
                        while written < 2000 or fault_proxy.cuts < 10:
                            await write(writing, "s", written, written + 100)
                            written += 100
                            fault_proxy.cut_all()
                            if written == 1100:
                                await scale_to(writing, "s", 4)
                        await writing.seal_stream("s")

                    nursery.start_soon(disturb)
                    async with group.reader("a") as reader:
                        async for event in reader:
                            seen.append(event.value)
            assert_exactly(seen, written)


async def test_several_streams_and_a_serializer(config: PravegaConfig) -> None:
    class Text:
        def serialize(self, value: str) -> bytes:
            return value.encode()

        def deserialize(self, payload: bytes) -> str:
            return payload.decode()

    async with open_client(config) as client:
        for name in ("x", "y"):
            await client.create_stream(name, 1)
            async with client.event_writer(name) as writer:
                for number in range(20):
                    await writer.write_event(f"{name}{number}".encode())
        names: list[str] = []
        async with group_of(client, "x", "y", automatic_checkpoint_interval=0.2) as group:
            async with group.reader("a", Text(), on_checkpoint=names.append) as reader:
                seen = []
                async for event in reader:
                    seen.append(event.value)
                    if len(seen) == 40:
                        break
                for name in ("x", "y"):
                    await client.seal_stream(name)
                async for _ in reader:
                    raise AssertionError
            assert sorted(seen) == sorted(f"{name}{number}" for name in "xy" for number in range(20))
            assert names


@pytest.mark.parametrize("equal", [True, False], ids=["one length", "many lengths"])
async def test_a_deserializer_that_fails_leaves_out_one_event(config: PravegaConfig, equal: bool) -> None:
    events = [b"%03d" % number + b"." * (0 if equal else number % 7) for number in range(200)]

    class Picky:
        def serialize(self, value: int) -> bytes:
            raise NotImplementedError

        def deserialize(self, payload: bytes) -> int:
            number = int(payload[:3])
            if number % 20 == 7:
                raise ValueError(payload)
            if number == 100:
                raise StopIteration
            if number == 101:
                raise StopAsyncIteration
            return number

    async with open_client(config) as client:
        await client.create_stream("s", 1)
        async with client.event_writer("s") as writer:
            await (await writer.write_events(events)).wait()
        seen: list[int] = []
        failed = 0
        async with group_of(client, "s") as group, group.reader("a", Picky()) as reader:
            while len(seen) + failed < 200:
                try:
                    async for event in reader:
                        seen.append(event.value)
                        if event.value % 50 == 0:
                            assert await client.fetch_event(event.pointer) == events[event.value]
                        if event.value == 199:
                            break
                except (ValueError, RuntimeError):
                    failed += 1
        assert seen == [each for each in range(200) if each % 20 != 7 and each not in (100, 101)]

        async def told(name: str) -> None:
            raise StopAsyncIteration

        async with group_of(client, "s", name="h", automatic_checkpoint_interval=0.2) as group:
            async with group.reader("a", on_checkpoint=told) as asked:
                with pytest.raises(RuntimeError, match="StopAsyncIteration"):
                    async for _ in asked:
                        pass


async def test_the_groups_work_is_not_put_off_by_events_at_hand(
    config: PravegaConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events that are taken quickly come without looking at the time, but not once something is due."""
    rounds = 0
    whole = EventReader._round

    async def counted(self: EventReader[bytes], link: GroupLink) -> str | None:
        nonlocal rounds
        rounds += 1
        return await whole(self, link)

    monkeypatch.setattr(EventReader, "_round", counted)

    async with open_client(config) as client:
        await client.create_stream("s", 1)
        async with client.event_writer("s") as writer:
            await (await writer.write_events([b"x" * 10] * 5000)).wait()
        async with group_of(client, "s") as group, group.reader("a") as reader:
            for count in range(100, 110):
                await take(reader, count)
                before = rounds
                await trio.sleep(max(0.0, reader._next_round - monotonic()) + 0.01)
                # On a slow machine this task may wake together with the reader's own, or before it.
                await trio.testing.wait_all_tasks_blocked()
                assert rounds == before
                await take(reader, 1)
                assert rounds > before


async def test_groups_are_created_once(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("s", 1)
        assert await client.create_reader_group("g", ["s"]) is True
        # Until the first reset 0.13.0 cannot tell a second creation from the first, and the state can.
        assert await client.create_reader_group("g", ["s"]) is False
        with pytest.raises(ReaderGroupError, match=r"group_refresh_interval is 3\.0, not 0\.001"):
            await client.create_reader_group(
                "g", ReaderGroupConfig.of([config.resolve("s")], group_refresh_interval=0.001)
            )
        assert await client.list_reader_groups() == [config.resolve("g")]
        assert await client.reader_group_exists("g")
        async with client.reader_group("g") as group:
            assert group.config == ReaderGroupConfig.of([config.resolve("s")])
            with pytest.raises(InvalidArgumentError, match="name"):
                group.reader("a/b")
            with pytest.raises(InvalidArgumentError, match="initial_delay"):
                group.reader("a", initial_delay=-1)
            with pytest.raises(ClosedError, match=r"reader a of group .*/g is not open: enter it"):
                await group.reader("a").read_event()
            with pytest.raises(InvalidArgumentError, match="does not read"):
                await group.time_window("t")
            with pytest.raises(ReaderGroupError, match="retention NONE"):
                await group.update_retention_stream_cut([])
        assert await client.delete_reader_group("g")
        with pytest.raises(ReaderGroupNotFoundError):
            await client.reader_group("g")
        assert not await client.delete_reader_group("g")
        assert not await client.reader_group_exists("g")
        assert await client.list_reader_groups() == []
        with pytest.raises((StreamNotFoundError, ReaderGroupError)):
            await client.create_reader_group("h", ["missing"])


MISSING = ScopedStream("missing", "missing")


@pytest.mark.parametrize(
    "wanted",
    [
        ReaderGroupConfig.of([MISSING]),
        ReaderGroupConfig.of([StreamCut(MISSING, {0: 0})]),
        ReaderGroupConfig.of([MISSING], retention=RetentionType.AUTOMATIC_RELEASE_AT_LAST_CHECKPOINT),
    ],
    ids=["from the head", "from a cut", "with retention"],
)
async def test_a_group_on_a_missing_stream_is_not_begun(
    config: PravegaConfig, wanted: ReaderGroupConfig
) -> None:
    async with open_client(config) as client:
        await client.create_stream("s", 1)
        with pytest.raises(StreamNotFoundError, match="missing/missing"):
            await client.create_reader_group("g", wanted)
        assert not await client.reader_group_exists("g")
        assert await client.list_reader_groups() == []
        assert await client.create_reader_group("g", ["s"]) is True
        with pytest.raises(ScopeNotFoundError):
            await client.create_reader_group("missing/g", wanted)
        assert not await client.reader_group_exists("missing/g")


async def test_a_group_whose_stream_was_deleted_exists(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("s", 1)
        assert await client.create_reader_group("g", ["s"]) is True
        await client.delete_stream("s", seal=True)
        assert await client.create_reader_group("g", ["s"]) is False


async def register(client: PravegaClient, name: str, wanted: ReaderGroupConfig) -> UUID:
    """What a process does that dies before it writes the group's state."""
    group_id = uuid4()
    group = client.config.resolve(name)
    controller = core_of(client).controller
    await controller.create_reader_group(group.scope, group.name, wanted.with_identity(0, group_id))
    return group_id


async def reads(client: PravegaClient, name: str) -> None:
    """Check that a group on the stream "s" can be used."""
    await write(client, "s", 0, 3)
    async with client.reader_group(name) as group, group.reader("a") as reader:
        await take(reader, 3)


@pytest.mark.parametrize("streams", [["s"], ["other"], ["missing"]])
@pytest.mark.parametrize("state", ["empty", "given up", "deleted"])
async def test_a_group_that_was_half_created_is_created_again(
    config: PravegaConfig, streams: list[str], state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_group, "_FINISH_SECONDS", 0.1)
    async with open_client(config) as client:
        for stream in ("s", "other"):
            await client.create_stream(stream, 1)
        await register(client, "g", ReaderGroupConfig.of(map(config.resolve, streams)))
        controller, scope = core_of(client).controller, str(config.scope)
        if state == "deleted":
            await controller.seal_stream(scope, "_RGg")
            await controller.delete_stream(scope, "_RGg")
        elif state == "given up":
            async with client.revisioned_stream("_RGg") as records:
                await records.write_unconditionally(UpdateRecord(()).encode())
        if state != "deleted":
            with pytest.raises(ReaderGroupNotFoundError, match="no state yet"):
                await client.reader_group("g")
        assert await client.create_reader_group("g", ["s"]) is True
        assert await client.create_reader_group("g", ["s"]) is False
        await reads(client, "g")


async def test_a_group_that_another_process_is_creating_is_waited_for(config: PravegaConfig) -> None:
    """It is not taken for one that was left."""

    async with open_client(config) as client:
        for stream in ("s", "other"):
            await client.create_stream(stream, 1)
        group, wanted = config.resolve("g"), ReaderGroupConfig.of([config.resolve("s")])
        group_id = await register(client, "g", wanted)
        initial = await initial_state(core_of(client), wanted.with_identity(0, group_id))

        async def create_another() -> None:
            with pytest.raises(ReaderGroupError, match="another configuration"):
                await client.create_reader_group("g", ["other"])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(create_another)
            async with client.state_synchronizer(
                f"{group.scope}/_RG{group.name}", GroupStateFormat()
            ) as synchronizer:
                assert await synchronizer.initialize(initial)
        await reads(client, "g")


async def test_a_creation_that_fails_is_undone(
    config: PravegaConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_client(config) as client:
        for stream in ("s", "other"):
            await client.create_stream(stream, 1)

        async def fail(*arguments: object) -> bool:
            raise ConnectionLostError("lost")

        with monkeypatch.context() as patch:
            patch.setattr(StateSynchronizer, "initialize", fail)
            with pytest.raises(ConnectionLostError):
                await client.create_reader_group("g", ["other"])
        assert not await client.reader_group_exists("g")
        assert await client.create_reader_group("g", ["s"]) is True
        # The group of another process is not undone.
        await client.delete_reader_group("g")
        await register(client, "g", ReaderGroupConfig.of([config.resolve("s")]))
        with monkeypatch.context() as patch:
            patch.setattr(StateSynchronizer, "initialize", fail)
            with pytest.raises(ConnectionLostError):
                await client.create_reader_group("g", ["s"])
        assert await client.reader_group_exists("g")
        assert await client.create_reader_group("g", ["s"]) is True
        await reads(client, "g")


async def test_a_creation_whose_answer_is_lost_and_whose_group_is_deleted(
    config: PravegaConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller would never answer its repetition with the same id, and the name would be of no use."""
    async with open_client(replace(config, operation_timeout=30)) as client, open_client(config) as other:
        await client.create_stream("s", 1)
        attempt, deleted = Channels._attempt, 0

        async def lose(self: Channels, rpc: str, *arguments: Any, **names: Any) -> Any:
            nonlocal deleted
            reply = await attempt(self, rpc, *arguments, **names)
            if rpc == "createReaderGroup" and not deleted:
                deleted += await other.delete_reader_group("g")
                raise ConnectionLostError("lost")
            return reply

        monkeypatch.setattr(Channels, "_attempt", lose)
        assert await client.create_reader_group("g", ["s"]) is True
        assert deleted
        await reads(client, "g")


async def test_a_creation_that_is_cancelled_leaves_a_group_or_none(
    config: PravegaConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A slow machine may need more time to undo; then the next creation does it.
    monkeypatch.setattr(reader_group, "_UNDO_SECONDS", 60.0)
    async with open_client(config) as client:
        await client.create_stream("s", 1)
        wanted = ReaderGroupConfig.of([config.resolve("s")])
        begun = 0
        for step in count(1):
            if not await cancelled_at(step, lambda: client.create_reader_group("g", wanted)):
                break
            left = await client.reader_group_exists("g")
            begun += left
            # What is left is a whole group.
            if left:
                async with client.reader_group("g") as group:
                    assert group.config == wanted
                assert await client.delete_reader_group("g")
        assert step > 10
        assert begun < step
        await reads(client, "g")


async def test_two_processes_create_the_same_group(config: PravegaConfig) -> None:
    async with open_client(config) as first, open_client(config) as second:
        await first.create_stream("s", 1)
        for _ in range(5):
            made: list[bool] = []

            async def create(client: PravegaClient, made: list[bool] = made) -> None:
                made.append(await client.create_reader_group("g", ["s"]))

            async with trio.open_nursery() as nursery:
                for client in (first, second, first, second):
                    nursery.start_soon(create, client)
            assert sorted(made) == [False, False, False, True]
            async with first.reader_group("g") as group:
                assert group.streams == (config.resolve("s"),)
            assert await first.delete_reader_group("g")


async def test_two_processes_create_different_groups_of_one_name(config: PravegaConfig) -> None:
    async with open_client(config) as first, open_client(config) as second:
        for stream in ("s", "t"):
            await first.create_stream(stream, 1)
        for _ in range(3):
            made: dict[str, bool] = {}

            async def create(client: PravegaClient, stream: str, made: dict[str, bool] = made) -> None:
                try:
                    made[stream] = await client.create_reader_group("g", [stream])
                except ReaderGroupError:
                    made[stream] = False

            async with trio.open_nursery() as nursery:
                nursery.start_soon(create, first, "s")
                nursery.start_soon(create, second, "t")
            [stream] = [each for each, is_mine in made.items() if is_mine]
            async with first.reader_group("g") as group:
                assert group.streams == (config.resolve(stream),)
            assert await first.delete_reader_group("g")


@pytest.mark.parametrize(
    "retention",
    [RetentionType.MANUAL_RELEASE_AT_USER_STREAM_CUT, RetentionType.AUTOMATIC_RELEASE_AT_LAST_CHECKPOINT],
)
async def test_retention_by_consumption(config: PravegaConfig, retention: RetentionType) -> None:
    async with open_client(config) as client:
        await client.create_stream("s", 2)
        await write(client, "s", 0, 200)
        async with group_of(client, "s", retention=retention, automatic_checkpoint_interval=0.3) as group:
            subscribers = await core_of(client).controller.list_subscribers(config.scope or "", "s")
            assert subscribers == [group.name]
            async with group.reader("a") as reader:
                await take(reader, 200)
                if retention is RetentionType.MANUAL_RELEASE_AT_USER_STREAM_CUT:
                    await group.update_retention_stream_cut([await client.tail("s")])
                    with pytest.raises(InvalidStreamCutError):
                        await group.update_retention_stream_cut([StreamCut(config.resolve("s"), {0: 1})])
                else:
                    # Published by the reader that finds a complete checkpoint.
                    link = link_of(group)
                    while not link.state.checkpoints.last or not link.state.checkpoints.published:
                        await reader.read_event(0.1)
                        await group.refresh()


@pytest.mark.parametrize("retention", [each for each in RetentionType if each is not RetentionType.NONE])
async def test_a_group_keeps_its_streams_from_its_start_on(
    config: PravegaConfig, retention: RetentionType
) -> None:
    """Also before it has released anything: a controller does not count a subscriber without a cut."""

    async with open_client(config) as client:
        for stream in ("s", "t"):
            await client.create_stream(stream, 1)
            await write(client, stream, 0, 20)
        start = await client.tail("s")
        earlier = StreamCut(start.stream, {0: 0})

        async def released(config: ReaderGroupConfig, cut: StreamCut) -> bool:
            """Whether the controller accepts a release; it accepts none before its present one."""
            try:
                await release(core_of(client), client.config.resolve("g"), config, cut)
            except InvalidStreamCutError:
                return False
            return True

        async with group_of(client, start, retention=retention) as group:
            assert not await released(group.config, earlier)
            # A reset to an earlier position cannot take back what was released.
            await group.reset([earlier])
            assert not await released(group.config, earlier)
            # A stream that comes with a reset is kept from there on as well.
            tail = await client.tail("t")
            await group.reset(ReaderGroupConfig.of([start, tail], retention=retention))
            assert not await released(group.config, StreamCut(tail.stream, {0: 0}))
            # Of what it has, only the user releases more if that is the user's part.
            await write(client, "t", 20, 40)
            later = await client.tail("t")
            await group.reset(ReaderGroupConfig.of([start, later], retention=retention))
            manual = retention is RetentionType.MANUAL_RELEASE_AT_USER_STREAM_CUT
            assert await released(group.config, tail) == manual


async def test_a_reset_to_the_end_of_a_segment_keeps_what_follows(
    config: PravegaConfig, caplog: pytest.LogCaptureFixture
) -> None:
    """A checkpoint has it where segments are merged. To a controller the mark means the opposite."""
    automatic = RetentionType.AUTOMATIC_RELEASE_AT_LAST_CHECKPOINT
    async with open_client(config) as client:
        await client.create_stream("s", 1)
        await write(client, "s", 0, 20)
        start = await client.tail("s")
        async with group_of(client, start, retention=automatic) as group:
            await write(client, "s", 20, 40)
            await client.scale_stream("s", [0], [(0.0, 0.5), (0.5, 1.0)])
            await group.reset([StreamCut(start.stream, {0: -1})])
            assert caplog.records == []
            # A controller accepts no release before the present one.
            with pytest.raises(InvalidStreamCutError):
                await release(core_of(client), config.resolve("g"), group.config, start)


async def test_a_reset_that_a_reader_finishes_keeps_its_streams_too(
    config: PravegaConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program that begins it dies once the controller has the new configuration."""
    automatic = RetentionType.AUTOMATIC_RELEASE_AT_LAST_CHECKPOINT
    monkeypatch.setattr(group_algorithm, "_CONFIG_INTERVAL", 0.1)

    async def die(*arguments: object) -> None:
        raise PermissionDeniedError("dead")

    async with open_client(config) as client:
        for stream in ("s", "t"):
            await client.create_stream(stream, 1)
            await write(client, stream, 0, 20)
        tail = await client.tail("t")
        async with group_of(client, "s", retention=automatic, group_refresh_interval=0.1) as group:
            async with group.reader("a") as reader:
                with monkeypatch.context() as dying, pytest.raises(PermissionDeniedError, match="dead"):
                    dying.setattr(reader_group, "hold", die)
                    await group.reset(ReaderGroupConfig.of([config.resolve("s"), tail], retention=automatic))
                with pytest.raises(ReinitializationRequiredError):
                    while True:
                        await reader.read_event(0.1)
            assert group.config.starts[tail.stream] == tail
            # A controller accepts no release before the present one.
            with pytest.raises(InvalidStreamCutError):
                await release(
                    core_of(client), config.resolve("g"), group.config, StreamCut(tail.stream, {0: 0})
                )


async def test_release_follows_what_another_program_has_set(config: PravegaConfig) -> None:
    """Also a release at the end of a segment, as a checkpoint has it after a scale."""
    manual = RetentionType.MANUAL_RELEASE_AT_USER_STREAM_CUT
    async with open_client(config) as client, open_client(config) as other:
        await client.create_stream("s", 1)
        await write(client, "s", 0, 20)
        async with (
            group_of(client, "s", retention=manual) as group,
            other.reader_group(group.name) as theirs,
        ):
            tail = await client.tail("s")
            await theirs.reset(theirs.config.starting_at([tail]))
            await group.update_retention_stream_cut(tail)
            await client.scale_stream("s", [0], [(0.0, 0.5), (0.5, 1.0)])
            await group.update_retention_stream_cut(StreamCut(config.resolve("s"), {0: -1}))
            with pytest.raises(InvalidStreamCutError, match="bytes long"):
                await group.update_retention_stream_cut(StreamCut(config.resolve("s"), {0: 10_000}))
            await theirs.reset(replace(theirs.config, retention=RetentionType.NONE))
            with pytest.raises(ReaderGroupError, match="retention NONE"):
                await group.update_retention_stream_cut(await client.tail("s"))
            await other.delete_reader_group(group.name)
            with pytest.raises(ReaderGroupNotFoundError, match="deleted"):
                await group.update_retention_stream_cut(await client.tail("s"))


async def test_release_that_meets_a_reset_is_not_repeated(
    config: PravegaConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would remove what the group is about to read again."""
    manual = RetentionType.MANUAL_RELEASE_AT_USER_STREAM_CUT
    async with open_client(config) as client, open_client(config) as other:
        await client.create_stream("s", 1)
        start = await client.tail("s")
        await write(client, "s", 0, 20)
        async with (
            group_of(client, "s", retention=manual) as group,
            other.reader_group(group.name) as theirs,
        ):
            sent: list[StreamCut] = []

            async def after_a_reset(
                core: ClientCore, name: ScopedStream, now: ReaderGroupConfig, cut: StreamCut
            ) -> None:
                if not sent:
                    await theirs.reset(theirs.config.starting_at([start]))
                sent.append(cut)
                await release(core, name, now, cut)

            monkeypatch.setattr(reader_group, "release", after_a_reset)
            tail = await client.tail("s")
            with pytest.raises(ReaderGroupError, match="was reset meanwhile"):
                await group.update_retention_stream_cut(tail)
            assert len(sent) == 1
            await group.update_retention_stream_cut(tail)


async def test_watermarks_that_are_none_are_named(config: PravegaConfig) -> None:
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(open_client(config))
        await client.create_stream("s", 1)
        group = await stack.enter_async_context(group_of(client, "s"))
        reader = await stack.enter_async_context(group.reader("r"))
        async with client.event_writer("s") as events:
            await events.write_event(b"x")
        await take(reader, 1)
        marks = ScopedStream(config.scope or "", "_MARKs")
        async with ByteStreamWriter(core_of(client), marks) as writer:
            await writer.write(frame_event(b""))
        for call in (
            lambda: client.watermarks("s"),
            lambda: client.cut_at("s", 5),
            lambda: reader.time_window("s"),
        ):
            with pytest.raises(TruncatedInputError, match=r"offset 8 of segment .*/_MARKs/0") as caught:
                await call()
            assert caught.value.segment == f"{marks}/0.#epoch.0"


async def test_time_windows_follow_the_writers(config: PravegaConfig) -> None:
    """Events in any order in one stream come in the order of their times in another, and time with them."""
    rng = random.Random(4)
    impatient = StreamConfiguration(ScalingPolicy.fixed(1), timestamp_aggregation_timeout=1)

    async with open_client(config) as client:
        await client.create_stream("s", impatient)
        await client.create_stream("idle", 1)
        await client.create_stream("ordered", impatient)
        async with (
            group_of(client, "s", "idle", automatic_checkpoint_interval=-0.001) as group,
            group_of(client, "ordered", name="second", automatic_checkpoint_interval=-0.001) as second,
            client.event_writer("s") as writer,
            client.event_writer("s") as late,
            client.event_writer("ordered") as output,
            group.reader("a") as reader,
            second.reader("b") as ordered,
        ):
            assigner = WatermarkAssigner(idle_after=2, every=0.2)
            order: EventTimeOrder[bytes] = EventTimeOrder(int)
            window = await reader.time_window("s")
            assert (window.lower, window.upper) == (None, None)
            assert await reader.watermark(assigner) is None
            with pytest.raises(ArgumentTypeError, match=r"^assigner must be"):
                await reader.watermark(None)  # type: ignore[arg-type]
            # Its writer notes no other time, and nobody writes to the other stream: they do not stop it.
            await late.note_time(1)
            now = 0
            seen: list[int] = []
            # The controller looks every ten seconds, the readers tell their places every second or two.
            while (downstream := await second.time_window("ordered")).lower is None:
                times = [*range(now, now + 1000, 50)]
                rng.shuffle(times)
                await writer.write_events([b"%d" % each for each in times])
                now += 1000
                await writer.note_time(now)
                while (event := await reader.read_event(0.2)) is not None:
                    assert isinstance(event, Event)
                    assert order.add(event.value)
                window = await group.time_window("s")
                if window.upper is not None:
                    assert 1 <= window.upper <= now
                if (watermark := await reader.watermark(assigner)) is not None:
                    assert 1 <= watermark <= now
                    await output.write_events(order.release(watermark))
                    await output.note_time(watermark)
                while (event := await ordered.read_event(0.2)) is not None:
                    assert isinstance(event, Event)
                    seen.append(int(event.value))
            assert assigner.watermark is not None
            assert downstream.lower <= assigner.watermark <= now
            assert seen
            assert seen == [*range(0, seen[-1] + 1, 50)]
            assert seen[-1] >= downstream.lower - 50
            assert all(int(each) >= assigner.watermark for each in order.held())


async def test_readers_are_left_in_any_order(config: PravegaConfig) -> None:
    """Also after a time limit for joining, which does not include the block."""

    async with open_client(config) as client:
        await client.create_stream("s", 2)
        await write(client, "s", 0, 10)
        async with group_of(client, "s") as group:
            readers = [group.reader("a"), group.reader("b"), group.reader("c")]
            for reader in readers:
                with trio.fail_after(60):
                    await reader.__aenter__()
            for reader in readers:
                await reader.__aexit__(None, None, None)
            await group.refresh()
            assert group.online_readers == frozenset()
            async with group.reader("a") as reader:
                assert len(await take(reader, 10)) == 10


async def test_joining_that_is_cancelled_leaves_no_reader_behind(config: PravegaConfig) -> None:
    """At each step of the task, several times: writes that are under way may be stored afterwards."""

    async with open_client(config) as client:
        await client.create_stream("s", 2)
        async with group_of(client, "s") as group:
            entered = cancelled = 0

            async def join() -> None:
                nonlocal entered
                async with group.reader("a"):
                    entered += 1

            for step in [*range(1, 40)] * 3:
                cancelled += await cancelled_at(step, join, going_on=True)
                # Whoever comes next finds the name free.
                async with group.reader("a"):
                    pass
            await group.refresh()
            assert group.online_readers == frozenset()
            assert entered
            assert cancelled


@pytest.mark.parametrize(
    "end", [KeyboardInterrupt(), PermissionDeniedError("expired")], ids=["Ctrl-C", "refused"]
)
async def test_joining_that_fails_after_it_was_written(
    config: PravegaConfig, monkeypatch: pytest.MonkeyPatch, end: BaseException
) -> None:
    """The reader does not stay in the group, whatever ended the call."""
    real = GroupLink.change

    async def change(self: GroupLink, action: Change) -> GroupState:
        await real(self, action)
        raise end

    async with open_client(config) as client:
        await client.create_stream("s", 1)
        async with group_of(client, "s") as group:
            with monkeypatch.context() as patch:
                patch.setattr(GroupLink, "change", change)
                with pytest.raises(type(end)):
                    async with group.reader("a"):
                        pass
            await group.refresh()
            assert group.online_readers == frozenset()


@pytest.mark.parametrize("scaled", [False, True])
async def test_consumption_of_a_sealed_stream(config: PravegaConfig, scaled: bool) -> None:
    """The controller refuses what the group tells it of a sealed stream; reading goes on."""

    async with open_client(config) as client:
        await client.create_stream("s", 1)
        await client.create_stream("other", 1)
        await write(client, "s", 0, 1000)
        group = await group_of(
            client,
            "s",
            "other",
            automatic_checkpoint_interval=0.3,
            retention=RetentionType.AUTOMATIC_RELEASE_AT_LAST_CHECKPOINT,
        )
        passed: list[str] = []
        async with group, group.reader("a", on_checkpoint=passed.append) as reader:
            seen = await take(reader, 500)
            if scaled:
                await scale_to(client, "s", 2)
                await write(client, "s", 1000, 1100)
            await client.seal_stream("s")
            seen += await take(reader, 600 if scaled else 500)
            # Some checkpoints later.
            until = len(passed) + 4
            while len(passed) < until:
                assert await reader.read_event(0.1) is None
            await client.seal_stream("other")
            while not reader.end_of_data:
                assert await reader.read_event(1) is None
            assert_exactly(seen, 1100 if scaled else 1000)


async def test_a_round_that_fails_gives_nothing_out_that_is_released(
    config: PravegaConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that has handed a segment over does not read it on, whatever fails or is cancelled then."""

    async with open_client(config) as client, open_client(config) as other_client:
        await client.create_stream("s", 4)
        await write(client, "s", 0, 8000)
        group = await group_of(
            client,
            "s",
            automatic_checkpoint_interval=0.2,
            group_refresh_interval=0.1,
            retention=RetentionType.AUTOMATIC_RELEASE_AT_LAST_CHECKPOINT,
        )
        released = broken = 0
        change, announce = GroupLink.change, GroupLink.announce

        async def note(link: GroupLink, action: Change) -> object:
            nonlocal released
            before = len(link.state.assigned.get("a", ()))
            after = await change(link, action)
            if link.core is core_of(client) and len(after.assigned.get("a", ())) < before:
                released += action.generate.__name__ == "release"
            return after

        async def break_off(link: GroupLink, updates: Sequence[GroupUpdate]) -> None:
            nonlocal broken
            # What comes after a segment is released: the other one leaves it to this one to publish cuts.
            if link.core is not core_of(client) and isinstance(updates[0], UpdateCheckpointPublished):
                return
            if link.core is core_of(client) and released > broken:
                broken = released
                raise PermissionDeniedError("broken off")
            await announce(link, updates)

        # It gives up the segment that it is giving events out of.
        latest: dict[str, str] = {}
        monkeypatch.setattr(
            group_algorithm, "hash_to_range", lambda name, seed: float(name == latest.get("a"))
        )
        monkeypatch.setattr(GroupLink, "change", note)
        monkeypatch.setattr(GroupLink, "announce", break_off)
        seen: list[bytes] = []

        async def read(name: str, of: PravegaClient) -> None:
            async with of.reader_group("g") as its, its.reader(name) as reader:
                while not reader.end_of_data:
                    with trio.move_on_after(1):
                        try:
                            item = await reader.read_event()
                        except PermissionDeniedError:
                            continue
                        if isinstance(item, Event):
                            latest[name] = item.segment
                            seen.append(item.value)
                            # Slowly, so that there is something left to hand over.
                            await trio.sleep(0.0005)

        async with group, trio.open_nursery() as nursery:
            nursery.start_soon(read, "a", client)
            while len(seen) < 500:
                await trio.sleep(0.01)
            nursery.start_soon(read, "b", other_client)
            await client.seal_stream("s")
        assert_exactly(seen, 8000)
        assert broken


async def test_a_reset_to_what_does_not_exist(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("s", 1)
        await write(client, "s", 0, 10)
        async with group_of(client, "s") as group, group.reader("a") as reader:
            await take(reader, 5)
            nothing = ReaderGroupConfig.of([config.resolve("nothing")])
            with pytest.raises(StreamNotFoundError, match="nothing"):
                await group.reset(nothing)
            # Nothing has changed, and the readers do not look for a change.
            await group.refresh()
            assert not link_of(group).state.updating_config
            assert len(await take(reader, 5)) == 5
            for wrong in (None, 5, ""):
                with pytest.raises(InvalidArgumentError, match="reader_id"):
                    await group.reader_offline(wrong)  # type: ignore[arg-type]
            with pytest.raises(ArgumentTypeError, match="position must be of the class Position, not 5"):
                await group.reader_offline("a", 5)  # type: ignore[arg-type]
            with pytest.raises(ArgumentTypeError, match="position must be of the class Position, not 5"):
                await reader.aclose(5)  # type: ignore[arg-type]
            with pytest.raises(InvalidArgumentError, match="checkpoint 'zz' has no stream cut"):
                await group.reset(Checkpoint("zz", ()))
            assert (await group.reset([])).generation == 1


async def test_one_of_two_streams_is_deleted(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        for name in ("s", "gone"):
            await client.create_stream(name, 1)
            await write(client, name, 0, 10)
        async with group_of(client, "s", "gone", automatic_checkpoint_interval=0.3) as group:
            assigner = WatermarkAssigner(every=0)
            async with group.reader("a") as reader:
                await take(reader, 20)
                assert await reader.watermark(assigner) is None
                await client.delete_stream("gone", seal=True)
                await write(client, "s", 10, 20)
                found: list[bytes] = []
                lost: list[str] = []
                while len(found) < 10:
                    try:
                        item = await reader.read_event()
                    except DataLossError as error:
                        lost.append(str(error.segment))
                        continue
                    if isinstance(item, Event):
                        found.append(item.value)
                    assert await reader.watermark(assigner) is None
                assert found == [event_of(number)[0] for number in range(10, 20)]
                assert all("/gone/" in segment for segment in lost)
                await client.seal_stream("s")
                while not reader.end_of_data:
                    assert not isinstance(await reader.read_event(1), Event)
            assert await group.unread_bytes() == 0
            await group.stream_cuts()
            await group.metrics()


async def test_a_stream_of_the_group_is_deleted_and_created_again(config: PravegaConfig) -> None:
    """The group has nothing to do with the new one, and its metrics say so, at once."""

    async with open_client(config) as client:
        for stream in ("s", "t"):
            await client.create_stream(stream, 1)
            await write(client, stream, 0, 10)
        async with group_of(client, "s", "t") as group:
            unread = await group.unread_bytes()
            await client.seal_stream("s")
            await client.delete_stream("s")
            await client.create_stream("s", 1)
            await write(client, "s", 0, 100)
            metrics = await group.metrics()
            assert metrics.unread_bytes == unread // 2
            assert metrics.segments == 2


@pytest.mark.parametrize("on_truncated", ["raise", "skip_to_head"])
async def test_a_reader_is_told_that_a_stream_was_created_again(
    config: PravegaConfig, on_truncated: Literal["raise", "skip_to_head"]
) -> None:
    """Not that the stream has ended, though it has for the group. Other streams go on."""

    async with open_client(config) as client:
        for stream in ("s", "t"):
            await client.create_stream(stream, 1)
            await write(client, stream, 0, 10)
        async with group_of(client, "s", "t", group_refresh_interval=0) as group:
            async with group.reader("a", on_truncated=on_truncated) as reader:
                await take(reader, 20)
                await client.delete_stream("s", seal=True)
                await client.create_stream("s", 1)
                await write(client, "s", 0, 10)
                await write(client, "t", 10, 20)
                told: list[StreamNotFoundError] = []
                found: list[Event[bytes]] = []
                while len(found) < 10 or not told:
                    try:
                        event = await reader.read_event()
                    except DataLossError:
                        # It depends on whether the end was read before the stream was deleted.
                        continue
                    except StreamNotFoundError as error:
                        told.append(error)
                        continue
                    if event is not None:
                        found.append(event)
                assert [each.stream for each in told] == ["s"]
                assert "was deleted and created again" in str(told[0])
                assert [each.value for each in found] == [event_of(n)[0] for n in range(10, 20)]
                await client.seal_stream("t")
                while not reader.end_of_data:
                    assert await reader.read_event() is None
            await group.reset(ReaderGroupConfig.of([client.config.resolve("s")]))
            async with group.reader("a") as reader:
                assert await take(reader, 10) == [event_of(number)[0] for number in range(10)]


async def test_a_checkpoint_that_is_asked_for_twice(config: PravegaConfig) -> None:
    """The second task is refused, and the first is told what comes of it."""

    async with open_client(config) as client:
        await client.create_stream("s", 1)
        await write(client, "s", 0, 10)
        async with group_of(client, "s") as group, group.reader("a") as reader:
            found: list[Checkpoint] = []

            async def first() -> None:
                found.append(await group.checkpoint("twice"))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(first)
                while not link_of(group).state.checkpoints.outstanding:
                    await group.refresh()
                with pytest.raises(CheckpointError, match="already"):
                    await group.checkpoint("twice")
                while not found:
                    await reader.read_event(0.1)
            assert found[0].name == "twice"


async def test_a_reader_that_is_closed_while_another_task_waits(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("s", 1)
        async with group_of(client, "s", group_refresh_interval=60) as group:
            async with group.reader("a") as reader, trio.open_nursery() as nursery:
                assert await reader.read_event(0.2) is None

                async def read() -> None:
                    with pytest.raises(ClosedError):
                        await reader.read_event()

                nursery.start_soon(read)
                await trio.testing.wait_all_tasks_blocked(0.1)
                await reader.aclose()
            assert group.online_readers == frozenset()


async def test_many_checkpoints_at_once(config: PravegaConfig) -> None:
    """Each that is complete is told to whoever began it, though later ones clear earlier ones."""

    async with open_client(config) as client, open_client(config) as other:
        await client.create_stream("s", 2)
        group = await group_of(
            client,
            "s",
            automatic_checkpoint_interval=0.2,
            max_outstanding_checkpoints=50,
            group_refresh_interval=0,
        )
        async with group, other.reader_group("g") as same, group.reader("a") as reader:
            taken: list[str] = []
            async with trio.open_nursery() as nursery:

                async def begin(of: ReaderGroup, name: str) -> None:
                    taken.append((await of.checkpoint(name)).name)

                async def ask(of: ReaderGroup) -> None:
                    taken.append(str(await of.generate_stream_cuts()))

                for number in range(6):
                    nursery.start_soon(begin, group if number % 2 else same, f"c{number}")
                    nursery.start_soon(ask, same if number % 2 else group)
                while len(taken) < 12:
                    await reader.read_event(0.05)
            assert {f"c{number}" for number in range(6)} <= set(taken)


async def test_a_group_that_is_deleted_meanwhile(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("s", 1)
        async with group_of(client, "s", group_refresh_interval=0.1) as group:
            async with group.reader("a") as reader:
                await client.delete_reader_group("g")
                with pytest.raises(ReaderGroupNotFoundError, match="g was deleted"):
                    while True:
                        await reader.read_event(1)
            with pytest.raises(ReaderGroupNotFoundError, match="g was deleted"):
                await group.refresh()
            with pytest.raises(ReaderGroupNotFoundError, match="g was deleted"):
                await group.checkpoint()
            # A reader may find out while it compacts the state.
            with pytest.raises(ReaderGroupNotFoundError, match="g was deleted"):
                await link_of(group).run(each for each in [Compact()])


async def test_a_reader_whose_name_another_has_now(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("s", 1)
        await write(client, "s", 0, 10)
        async with group_of(client, "s", group_refresh_interval=0.1) as group:
            async with group.reader("a") as stale:
                await take(stale, 10)
                await group.reader_offline("a", stale.position)
                async with group.reader("a") as new:
                    await write(client, "s", 10, 20)
                    assert len(await take(new, 5)) == 5
                    with pytest.raises(ReinitializationRequiredError):
                        while True:
                            # It has not heard of it yet.
                            await stale.read_event(1)
                    # It does not put the other one out.
                    await stale.aclose()
                    assert len(await take(new, 5)) == 5


async def test_at_the_end_other_tasks_run(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("s", 1)
        await client.seal_stream("s")
        async with group_of(client, "s") as group, group.reader("a") as reader:
            while not reader.end_of_data:
                await reader.read_event(1)
            with trio.CancelScope() as scope:
                scope.cancel()
                await reader.read_event(1)
            assert scope.cancelled_caught


def test_a_client_that_is_closed_lets_its_readers_leave(config: PravegaConfig) -> None:
    with blocking.open_client(config) as client:
        client.create_stream("s", 1)
        with client.event_writer("s") as writer:
            for number in range(10):
                writer.write_event(*event_of(number))
        client.create_reader_group("g", ReaderGroupConfig.of([config.resolve("s")]))
        with blocking.open_client(config) as closed:
            reader = closed.reader_group("g").reader("a").__enter__()
            for _ in range(3):
                assert isinstance(reader.read_event(), Event)
        with client.reader_group("g") as group:
            assert group.online_readers == frozenset()
            with group.reader("a") as reader:
                # The last one was not followed by another call.
                item = reader.read_event()
                assert isinstance(item, Event)
                assert item.value == event_of(2)[0]
            with pytest.raises(ClosedError):
                reader.read_event()


@pytest.mark.smoke
def test_the_blocking_twin(config: PravegaConfig) -> None:
    with blocking.open_client(config) as client:
        client.create_stream("s", 2)
        with client.event_writer("s") as writer:
            for number in range(500):
                writer.write_event(*event_of(number))
        client.create_reader_group(
            "g", ReaderGroupConfig.of([config.resolve("s")], automatic_checkpoint_interval=0.5)
        )
        with client.reader_group("g") as group:
            seen: list[bytes] = []

            def fail_after(count: int) -> None:
                with group.reader("a") as reader:
                    for event in reader:
                        if len(seen) == count:
                            raise KeyError(event.value)
                        seen.append(event.value)

            with pytest.raises(KeyError):
                fail_after(100)
            with group.reader("a") as reader:
                item = reader.read_event()
                assert isinstance(item, Event)
                seen.append(item.value)
                client.seal_stream("s")
                for number, event in enumerate(reader):
                    seen.append(event.value)
                    if number == 20:
                        found = reader.next_batch()
                        assert isinstance(found, EventBatch)
                        seen += found
                    if number == 60:
                        break
                with pytest.raises(CheckpointTimeoutError) as caught:
                    group.checkpoint("held", timeout=0.5)
                assert list(caught.value.waiting_for) == ["a"]
                with pytest.raises(CheckpointTimeoutError):
                    group.generate_stream_cuts(timeout=0.5)
                group.refresh()
                assert all(each.name != "held" and not each.silent for each in group.outstanding_checkpoints)
                assert "held" not in group.online_readers["a"].unanswered
                for batch in reader.batches():
                    seen += batch
                assert reader.end_of_data
                assert reader.read_event(1) is None
            assert_exactly(seen, 500)
            assert group.metrics().unread_bytes == 0
            counts = group.segment_counts()
            assert next(counts) == 0
            counts.close()
            group.wait_for_end_of_data()


async def test_closing_a_group_ends_what_waits_for_its_changes(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("s")
        await client.create_reader_group("g", ["s"])
        group = await client.reader_group("g")
        ended = []

        async def wait() -> None:
            with pytest.raises(ClosedError, match=r"reader group .*/g is closed"):
                await group.wait_for_end_of_data()
            ended.append(True)

        async with trio.open_nursery() as nursery:
            counts = group.segment_counts()
            assert await anext(counts) == 1
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            await group.aclose()
            with pytest.raises(ClosedError):
                await anext(counts)
        await wait()
        assert ended == [True, True]


async def test_the_links_of_one_client_share_the_groups_state(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("s", 4)
        states = core_of(client).group_states
        async with group_of(client, "s") as group, group.reader("a") as first:
            async with group.reader("b") as second:
                assert [each.links for each in states.values()] == [3]
                while await first.read_event(0.1) is None and len(first.segments) + len(second.segments) < 4:
                    assert await second.read_event(0.1) is None
                assert link_of(first).state is link_of(second).state is link_of(group).state
                waiting = await client.reader_group("g")
                async with trio.open_nursery() as nursery:

                    @nursery.start_soon
                    async def closed() -> None:
                        with pytest.raises(ClosedError):
                            await link_of(waiting).wait_for_updates()

                    await trio.testing.wait_all_tasks_blocked()
                    # Nobody else notices.
                    await waiting.aclose()
                assert [each.links for each in states.values()] == [3]
            assert await first.read_event(0.1) is None
            assert set(group.online_readers) == {"a"}
        assert not states


async def test_a_group_that_is_created_again_has_a_state_of_its_own(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("s", 2)
        async with group_of(client, "s") as before, before.reader("a") as lost:
            await client.delete_reader_group("g")
            async with group_of(client, "s") as after, after.reader("b"):
                assert set(after.online_readers) == {"b"}
                assert after.config.group_id != before.config.group_id
                with pytest.raises(ReaderGroupNotFoundError, match="g was deleted"):
                    await before.refresh()
                with pytest.raises(ReaderGroupNotFoundError, match="g was deleted"):
                    while True:
                        await lost.read_event(1)
                # What is made of the former group does not work on the new one.
                with pytest.raises(ReaderGroupNotFoundError, match="created again: open it again"):
                    async with before.reader("c"):
                        pass
                with pytest.raises(ReaderGroupNotFoundError, match="created again: open it again"):
                    await before.wait_for_end_of_data()
                await after.refresh()
                assert set(after.online_readers) == {"b"}
            assert await (await client.reader_group("g")).last_checkpoint() is None
