"""State shared by optimistic concurrency, on a real server, by tasks and by processes."""

from __future__ import annotations

import subprocess
import sys
import time
from array import array
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
import trio
import trio.testing

from pravega_wire import (
    PravegaConfig,
    Revision,
    RevisionedStream,
    ScopedStream,
    StateFormat,
    StateSynchronizer,
    VersionedSerializer,
    VersionedUnionSerializer,
    open_client,
)
from pravega_wire import sync as blocking
from pravega_wire.controller.types import Access
from pravega_wire.errors import ArgumentTypeError, CorruptedStateError, EncodeError, InvalidArgumentError
from pravega_wire.protocol.state_records import UpdateRecord
from pravega_wire.segment.metadata import NULL_ATTRIBUTE, SegmentMetadata
from pravega_wire.serializers import FunctionSerializer, JsonSerializer, Serializer
from pravega_wire.stream.revisioned import MARK_ATTRIBUTE, read_news
from tests.inside import core_of

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Counter:
    total: int
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Add:
    amount: int


@dataclass(frozen=True)
class Join:
    name: str
    comment: str = ""


Update = Add | Join


def step(state: Counter, update: Update) -> Counter:
    if isinstance(update, Add):
        return replace(state, total=state.total + update.amount)
    return replace(state, names=(*state.names, update.name))


COUNTER: StateFormat[Counter, Update] = StateFormat(
    VersionedSerializer(Counter, [[("total", "int64")], [("names", "[utf]")]]),
    VersionedUnionSerializer(
        {
            0: VersionedSerializer(Add, [[("amount", "compact_signed_long")]]),
            1: VersionedSerializer(Join, [[("name", "utf")], [("comment", "utf")]]),
        }
    ),
    step,
)


def worker(uri: str, scope: str, stream: str, name: str, updates: int) -> None:
    """One of the processes: joins, counts up, compacts now and then, and prints what all have counted."""
    config = PravegaConfig.from_defaults(controller_uri=uri, scope=scope, env={})
    with blocking.open_client(config) as client, client.state_synchronizer(stream, COUNTER) as shared:
        shared.initialize(Counter(0))
        shared.update(lambda state: [Join(name)])
        for number in range(updates):
            shared.update(lambda state: [Add(1)])
            if number % 40 == 20:
                shared.compact(lambda state: state)
        state = shared.state
        while state is None or state.total < PROCESSES * updates:
            time.sleep(0.05)
            state = shared.fetch_updates()
        print(state)


PROCESSES = 8


def test_eight_processes_count_to_eight_hundred(config: PravegaConfig) -> None:
    with blocking.open_client(config) as client:
        client.create_stream("counter", 1)
        processes = [
            subprocess.Popen(
                [
                    sys.executable, "-c",
                    "import sys; from tests.integration.test_synchronizer import worker;"
                    " worker(*sys.argv[1:5], int(sys.argv[5]))",
                    config.controller_uri, str(config.scope), "counter", f"p{number}", "100",
                ],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(PROCESSES)
        ]  # fmt: skip
        try:
            shown = [process.communicate(timeout=300)[0].strip() for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()
        assert [process.returncode for process in processes] == [0] * PROCESSES
        with client.state_synchronizer("counter", COUNTER) as late:
            state = late.fetch_updates()
            assert state is not None
            assert state.total == 800
            assert sorted(state.names) == [f"p{number}" for number in range(PROCESSES)]
            # All of them came to this state, with the names in this order.
            assert shown == [str(state)] * PROCESSES
            # Compaction has cut the beginning off, and a late joiner still has everything.
            assert late.bytes_since_compaction() < client.tail("counter").positions[0]


@pytest.mark.smoke
async def test_tasks_race_and_end_equal_after_compaction(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("race", 1)
        shared = [await client.state_synchronizer("race", COUNTER) for _ in range(4)]
        assert [await each.initialize(Counter(5)) for each in shared] == [True, False, False, False]

        async def count(each: StateSynchronizer[Counter, Counter, Update]) -> None:
            for number in range(25):
                await each.update(lambda state: [Add(1), Add(2)])
                if number % 7 == 3:
                    await each.compact(lambda state: state)

        async with trio.open_nursery() as nursery:
            for each in shared:
                nursery.start_soon(count, each)
        late = await client.state_synchronizer("race", COUNTER)
        states = [await each.fetch_updates() for each in (*shared, late)]
        assert states == [Counter(5 + 4 * 25 * 3)] * 5
        async with client.revisioned_stream("race") as log:
            assert (await log.oldest_revision()).offset > 0
        for each in (*shared, late):
            await each.aclose()


async def test_many_who_begin_at_once(config: PravegaConfig) -> None:
    """One of them is first; the others are refused before they can read what it wrote."""

    async with open_client(config) as client:
        for attempt in range(20):
            name = f"begin{attempt}"
            await client.create_stream(name, 1)
            shared = [await client.state_synchronizer(name, COUNTER) for _ in range(8)]
            first: list[int] = []

            async def begin(number: int) -> None:
                if await shared[number].initialize(Counter(number)):  # noqa: B023
                    first.append(number)  # noqa: B023

            async with trio.open_nursery() as nursery:
                for number in range(8):
                    nursery.start_soon(begin, number)
            [number] = first
            assert [each.state for each in shared] == [Counter(number)] * 8
            for each in shared:
                await each.aclose()


async def test_waiting_for_the_first_state(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("first", 1)
        waiting = await client.state_synchronizer("first", COUNTER)
        found: list[Counter | None] = []

        async def wait() -> None:
            found.append(await waiting.wait_for_updates())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked(0.2)
            assert found == []
            other = await client.state_synchronizer("first", COUNTER)
            assert await other.initialize(Counter(7))
        assert found == [Counter(7)]
        # One who comes later need not wait.
        late = await client.state_synchronizer("first", COUNTER)
        assert await late.wait_for_updates() == Counter(7)
        for each in (waiting, other, late):
            await each.aclose()


async def test_a_slow_reader_whose_place_was_truncated_finds_the_newer_beginning(
    config: PravegaConfig,
) -> None:
    async with open_client(config) as client:
        await client.create_stream("slow", 1)
        slow = await client.state_synchronizer("slow", COUNTER)
        await slow.initialize(Counter(0))
        fast = await client.state_synchronizer("slow", COUNTER)
        for _ in range(3):
            await fast.update(lambda state: [Add(10)])
            await fast.compact(lambda state: state)
        assert slow.state == Counter(0)
        assert await slow.fetch_updates() == Counter(30)
        # What it does next is based on what it has found.
        assert await slow.update(lambda state: [Add(state.total)]) == Counter(60)
        assert await fast.fetch_updates() == Counter(60)


@pytest.mark.smoke
async def test_an_update_happens_only_while_its_condition_holds(config: PravegaConfig) -> None:
    """One seat: whoever finds it taken writes nothing."""

    def take(name: str, state: Counter) -> Sequence[Update]:
        return [] if state.names else [Join(name)]

    async with open_client(config) as client:
        await client.create_stream("seat", 1)
        shared = [await client.state_synchronizer("seat", COUNTER) for _ in range(5)]
        await shared[0].initialize(Counter(0))
        async with trio.open_nursery() as nursery:
            for number, each in enumerate(shared):
                nursery.start_soon(each.update, partial(take, f"t{number}"))
        names = {each.state.names for each in shared if each.state is not None}
        assert len(names) == 1
        assert len(names.pop()) == 1


def revision(shared: StateSynchronizer[Counter, Counter, Update]) -> Revision:
    assert shared.revision is not None
    return shared.revision


async def test_what_was_faster_is_read_by_one_question(
    config: PravegaConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_client(config) as client:
        await client.create_stream("late", 1)
        one, other = [await client.state_synchronizer("late", COUNTER) for _ in range(2)]
        await one.initialize(Counter(0))
        await other.fetch_updates()
        await one.update(lambda state: [Add(1), Join("a")])
        await one.update(lambda state: [Add(2)])
        with monkeypatch.context() as patch:
            # The way with more than one question is not taken ...
            patch.setattr(other, "fetch_updates", None)
            assert await other.update(lambda state: [Add(state.total)]) == Counter(6, ("a",))
            assert await one.update(lambda state: [Add(1)]) == Counter(7, ("a",))
        with monkeypatch.context() as patch:
            # ... unless one answer is not enough: this one is cut off.
            patch.setattr("pravega_wire.stream.revisioned._READ_BYTES", 9)
            assert await read_news(other._log, revision(other)) is None
            assert await other.update(lambda state: [Add(1)]) == Counter(8, ("a",))
        assert await one.fetch_updates() == Counter(8, ("a",))
        await one.aclose()
        await other.aclose()


async def test_news_are_waited_for_and_given_up(
    config: PravegaConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_client(config) as client:
        await client.create_stream("news", 1)
        async with client.revisioned_stream("news") as log:
            start = await log.oldest_revision()
            found = []

            async def read() -> None:
                found.append(await read_news(log, start))

            with monkeypatch.context() as patch:
                patch.setattr("pravega_wire.stream.revisioned._NEWS_SECONDS", 60)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(read)
                    await trio.testing.wait_all_tasks_blocked(0.05)
                    assert found == []
                    after = await log.write_unconditionally(b"one")
            assert found == [[(after, b"one")]]
            two = await log.write_unconditionally(b"two")
            assert await read_news(log, start) == [(after, b"one"), (two, b"two")]
            with monkeypatch.context() as patch:
                patch.setattr("pravega_wire.stream.revisioned._NEWS_SECONDS", 0.05)
                assert await read_news(log, two) is None
            await log.truncate_to(after)
            assert await read_news(log, start) is None
            # An event that is larger than an answer.
            await log.write_unconditionally(bytes(300_000))
            assert await read_news(log, two) is None


async def test_blind_updates_show_with_the_next_fetch(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("blind", 1)
        shared = await client.state_synchronizer("blind", COUNTER)
        with pytest.raises(InvalidArgumentError, match="not been initialized"):
            await shared.update(lambda state: [Add(1)])
        await shared.initialize(Counter(1))
        await shared.update_unconditionally([Add(1), Join("x")])
        assert shared.state == Counter(1)
        assert await shared.fetch_updates() == Counter(2, ("x",))


async def test_compaction_while_another_updates(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("busy", 1)
        one, other = [await client.state_synchronizer("busy", COUNTER) for _ in range(2)]
        await one.initialize(Counter(0))

        async def update() -> None:
            for _ in range(60):
                await one.update(lambda state: [Add(1)])

        async def compact() -> None:
            while other.state is None or other.state.total < 60:
                await other.compact(lambda state: state)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(update)
            nursery.start_soon(compact)
        late = await client.state_synchronizer("busy", COUNTER)
        assert [await each.fetch_updates() for each in (one, other, late)] == [Counter(60)] * 3
        assert await late.update(lambda state: [Add(1)]) == Counter(61)


async def test_tasks_may_share_one(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("shared", 1)
        shared = await client.state_synchronizer("shared", COUNTER)
        other = await client.state_synchronizer("shared", COUNTER)
        await shared.initialize(Counter(0))

        async def count(each: StateSynchronizer[Counter, Counter, Update]) -> None:
            for number in range(20):
                await each.update(lambda state: [Add(1), Add(1)])
                await each.fetch_updates()
                if number % 6 == 5:
                    await each.compact(lambda state: state)

        async with trio.open_nursery() as nursery:
            for each in (shared, shared, shared, other):
                nursery.start_soon(count, each)
        assert await shared.fetch_updates() == await other.fetch_updates() == Counter(160)


@pytest.mark.smoke
async def test_a_cancelled_update_is_written_once_or_not_at_all(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("cancelled", 1)
        shared = await client.state_synchronizer("cancelled", COUNTER)
        other = await client.state_synchronizer("cancelled", COUNTER)
        await shared.initialize(Counter(0))
        done = 0
        for number in range(30):
            with trio.move_on_after(number / 5000):
                await shared.update(lambda state, number=number: [Join(str(number))])
                done += 1
        # Once this is written, no update that was cancelled before can be written any more.
        state = await shared.update(lambda state: [Add(1)])
        assert state.total == 1
        assert state == await other.fetch_updates()
        assert len(set(state.names)) == len(state.names) >= done


async def test_compaction_that_is_not_wanted_writes_nothing(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("unwanted", 1)
        shared = await client.state_synchronizer("unwanted", COUNTER)
        await shared.initialize(Counter(3))
        before = await client.tail("unwanted")
        await shared.compact(lambda state: None)
        assert await client.tail("unwanted") == before
        # The mark goes to before the new beginning, and only the next one truncates, up to there.
        await shared.compact(lambda state: state)
        async with client.revisioned_stream("unwanted") as log:
            mark = await log.mark()
            assert mark is not None
            assert mark.offset == before.positions[0]
            assert (await log.oldest_revision()).offset == 0
            await shared.compact(lambda state: state)
            assert await log.oldest_revision() == mark


async def test_updates_that_cannot_be_applied_are_not_written(config: PravegaConfig) -> None:
    json = JsonSerializer()
    halves = FunctionSerializer(lambda value: b"%d" % value, lambda data: json.deserialize(data[1:]))
    async with open_client(config) as client:
        await client.create_stream("tried", 1)
        log = await client.revisioned_stream("tried")
        adding = StateFormat[Any, Any](json, json, lambda state, update: state + update)
        shared = await client.state_synchronizer("tried", adding)
        other = await client.state_synchronizer("tried", adding)
        await shared.initialize(1)
        end = await log.latest_revision()
        with pytest.raises(TypeError):
            await shared.update(lambda state: [2, "x"])
        unreadable = await client.state_synchronizer("tried", StateFormat(json, halves, adding.step))
        with pytest.raises(EncodeError, match=r"tried: an update cannot be read back by its serializer"):
            await unreadable.update(lambda state: [1])
        with pytest.raises(EncodeError, match=r"tried: an update cannot be read back by its serializer"):
            await unreadable.update_unconditionally([1])
        assert await log.latest_revision() == end
        assert await shared.update(lambda state: [2]) == 3
        assert await other.fetch_updates() == 3
        await client.create_stream("begun", 1)
        begun = await client.state_synchronizer("begun", StateFormat(halves, json, adding.step))
        with pytest.raises(EncodeError, match=r"begun: an initial state cannot be read back"):
            await begun.initialize(5)
        assert await begun.fetch_updates() is None


async def test_all_processes_have_what_the_serializer_reads_back(config: PravegaConfig) -> None:
    json = JsonSerializer()
    merging = StateFormat[Any, Any](json, json, lambda state, update: {**state, **update})
    async with open_client(config) as client:
        await client.create_stream("same", 1)
        ours = await client.state_synchronizer("same", merging)
        theirs = await client.state_synchronizer("same", merging)
        await ours.initialize({7: (1, 2)})
        assert ours.state == await theirs.fetch_updates() == {"7": [1, 2]}
        assert await ours.update(lambda state: [{1: "a"}, {2: "b"}]) == {"7": [1, 2], "1": "a", "2": "b"}
        assert ours.state == await theirs.fetch_updates()
        assert ours.revision == theirs.revision


async def test_streams_without_a_beginning_are_named(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("headless", 1)
        shared = await client.state_synchronizer("headless", COUNTER)
        with pytest.raises(InvalidArgumentError, match="has not been initialized"):
            await shared.update_unconditionally([Add(1)])
        async with client.revisioned_stream("headless") as log:
            await log.write_unconditionally(
                UpdateRecord([COUNTER.update_serializer.serialize(Add(1))]).encode()
            )
        assert await shared.fetch_updates() is None
        with pytest.raises(CorruptedStateError, match="no initial state"):
            await shared.initialize(Counter(0))

        await client.create_stream("beheaded", 1)
        shared = await client.state_synchronizer("beheaded", COUNTER)
        other = await client.state_synchronizer("beheaded", COUNTER)
        await shared.initialize(Counter(0))
        await other.fetch_updates()
        await shared.compact(lambda state: state)
        await shared.update(lambda state: [Add(1)])
        async with client.revisioned_stream("beheaded") as log:
            await log.truncate_to(await log.latest_revision())
        for _ in range(2):
            with pytest.raises(CorruptedStateError, match="contains no initial state"):
                await other.fetch_updates()
            with pytest.raises(CorruptedStateError, match="contains no initial state"):
                await other.update(lambda state: [Add(1)])
        # One that has everything can make a new beginning, also for the others.
        await shared.compact(lambda state: state)
        assert await other.fetch_updates() == Counter(1)


async def test_any_serializer_will_do(config: PravegaConfig) -> None:
    lists: StateFormat[list[int], int] = StateFormat(
        JsonSerializer(), JsonSerializer(), lambda state, update: [*state, update]
    )

    async with open_client(config) as client:
        await client.create_stream("json", 1)
        shared = await client.state_synchronizer("json", lists)
        await shared.initialize([])
        await shared.update(lambda state: [len(state), len(state) + 1])
        assert await (await client.state_synchronizer("json", lists)).fetch_updates() == [0, 1]


async def test_a_sealed_stream_and_rubbish_are_named(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("sealed", 1)
        shared = await client.state_synchronizer("sealed", COUNTER)
        await shared.initialize(Counter(0))
        await client.seal_stream("sealed")
        with pytest.raises(CorruptedStateError, match="sealed"):
            await shared.update(lambda state: [Add(1)])
        await client.create_stream("rubbish", 1)
        async with client.event_writer("rubbish") as writer:
            await writer.write_event(b"\0\0\0\7nothing that belongs here")
        with pytest.raises(CorruptedStateError, match=r"rubbish.*kind 1 or 2"):
            await (await client.state_synchronizer("rubbish", COUNTER)).fetch_updates()


async def test_what_no_program_writes_is_named_with_its_place(config: PravegaConfig) -> None:
    """A record of a newer version, updates that cannot be applied, and a mark that is nowhere."""

    def refuse(state: Counter, update: Update) -> Counter:
        raise CorruptedStateError("joined twice")

    of_newer = UpdateRecord([bytes([0, 77, 0, 0])]).encode()
    wrong = UpdateRecord([COUNTER.update_serializer.serialize(Add(1))]).encode()
    refusing = StateFormat(COUNTER.serializer, COUNTER.updates, refuse)
    async with open_client(config) as client:
        for name, record, message in (("newer", of_newer, "type id 77"), ("wrong", wrong, "joined twice")):
            await client.create_stream(name, 1)
            shared = await client.state_synchronizer(name, refusing)
            await shared.initialize(Counter(0))
            async with client.revisioned_stream(name) as log:
                after = await log.write_unconditionally(record)
            with pytest.raises(
                CorruptedStateError, match=f"{name}, record before offset {after.offset}: .*{message}"
            ) as caught:
                await shared.fetch_updates()
            assert (caught.value.scope, caught.value.stream) == (config.scope, name)

        await client.create_stream("marked", 1)
        shared = await client.state_synchronizer("marked", COUNTER)
        await shared.initialize(Counter(0))
        core = core_of(client)
        segment = core.target(ScopedStream(config.scope or "", "marked"), 0, Access.READ_WRITE)
        metadata = SegmentMetadata(core.stores, segment)
        assert await metadata.compare_and_set_attribute(MARK_ATTRIBUTE, NULL_ATTRIBUTE, -7)
        async with client.revisioned_stream("marked") as log:
            other = await client.state_synchronizer("marked", COUNTER)
            for call in (log.mark, other.fetch_updates):
                with pytest.raises(CorruptedStateError, match="marked is at offset -7") as caught:
                    await call()
                assert (caught.value.scope, caught.value.stream) == (config.scope, "marked")


async def test_many_writers_of_one_client_take_turns(
    config: PravegaConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = 40
    attempts = 0
    write = RevisionedStream.write_conditionally

    async def counted(self: RevisionedStream[bytes], latest: Revision, value: bytes) -> Revision | None:
        nonlocal attempts
        attempts += 1
        return await write(self, latest, value)

    monkeypatch.setattr(RevisionedStream, "write_conditionally", counted)
    async with open_client(config) as client, AsyncExitStack() as stack:
        await client.create_stream("crowd", 1)
        every = [
            await stack.enter_async_context(client.state_synchronizer("crowd", COUNTER)) for _ in range(tasks)
        ]
        for shared in every:
            await shared.initialize(Counter(0))
        attempts = 0
        async with trio.open_nursery() as nursery:
            for shared in every:
                nursery.start_soon(shared.update, lambda state: [Add(1)])
        state = await every[0].fetch_updates()
        assert state is not None
        assert state.total == tasks
    # Each may lose the first time, and once more after its turn has come. (Without turns all but one lose
    # each time: about 800.)
    assert attempts <= 4 * tasks


async def test_a_function_that_waits_for_another_update_gets_it(config: PravegaConfig) -> None:
    """However late: turns are polite, and nobody waits for ever for one."""

    def both() -> Counter | None:
        with blocking.open_client(config) as client:
            client.create_stream("nested", 1)
            with (
                client.state_synchronizer("nested", COUNTER) as outer,
                client.state_synchronizer("nested", COUNTER) as inner,
            ):
                outer.initialize(Counter(0))
                inner.fetch_updates()
                rest = [1, 1]

                def generate(state: Counter) -> list[Update]:
                    if rest:
                        rest.pop()
                        inner.update(lambda state: [Add(10)])
                    return [Add(1)]

                return outer.update(generate)

    state = await trio.to_thread.run_sync(both)
    assert state is not None
    assert state.total == 21


async def test_updates_may_come_from_a_generator(config: PravegaConfig) -> None:
    """They are serialized and applied, although a generator returns them only once."""
    numbers: StateFormat[int, int] = StateFormat(
        JsonSerializer(), JsonSerializer(), lambda state, update: state + update
    )
    async with open_client(config) as client:
        await client.create_stream("generated", 1)
        shared, other = [await client.state_synchronizer("generated", numbers) for _ in range(2)]
        await shared.initialize(0)
        assert await shared.update(lambda state: (each for each in [1, 2])) == 3
        assert await shared.update(lambda state: map(int, ["5"])) == 8
        length = shared.revision
        assert await shared.update(lambda state: iter(())) == 8
        await shared.update_unconditionally(iter(()))
        assert [await each.fetch_updates() for each in (shared, other)] == [8, 8]
        assert shared.revision == length
        await shared.update_unconditionally(each for each in (10, 20))
        assert [await each.fetch_updates() for each in (shared, other)] == [38, 38]
        for wrong in (lambda state: 5, lambda state: Add(1)):
            with pytest.raises(ArgumentTypeError, match=r"generated: updates must be an iterable"):
                await shared.update(wrong)  # type: ignore[arg-type]
        with pytest.raises(ArgumentTypeError, match=r"generated: generate must be a function"):
            await shared.update([Add(1)])  # type: ignore[arg-type]
        with pytest.raises(ArgumentTypeError, match=r"generated: summarize must be a function"):
            await shared.compact(5)  # type: ignore[arg-type]
        assert await other.fetch_updates() == 38


async def test_a_single_update_that_is_a_mapping_is_refused(config: PravegaConfig) -> None:
    """Its keys would be written as updates, which no process can apply or take back."""
    settings: StateFormat[dict[str, int], dict[str, int]] = StateFormat(
        JsonSerializer(), JsonSerializer(), lambda state, update: state | update
    )
    async with open_client(config) as client:
        await client.create_stream("settings", 1)
        async with client.state_synchronizer("settings", settings) as shared:
            await shared.initialize({})
            single: Any = {"a": 1}
            with pytest.raises(
                ArgumentTypeError, match=r"settings: updates must .*not dict: put a single one"
            ):
                await shared.update(lambda state: single)
            with pytest.raises(
                ArgumentTypeError, match=r"settings: updates must .*not dict: put a single one"
            ):
                await shared.update_unconditionally(single)
            assert await shared.update(lambda state: [{"a": 1}]) == {"a": 1}


def test_updates_of_a_blocking_program_may_come_from_a_generator(config: PravegaConfig) -> None:
    numbers: StateFormat[int, int] = StateFormat(
        JsonSerializer(), JsonSerializer(), lambda state, update: state + update
    )
    with blocking.open_client(config) as client:
        client.create_stream("generated", 1)
        with client.state_synchronizer("generated", numbers) as shared:
            shared.initialize(0)
            assert shared.update(lambda state: (each for each in [1, 2])) == 3
            shared.update_unconditionally(each for each in [4])
            assert shared.fetch_updates() == 7


async def test_a_state_may_be_none(config: PravegaConfig) -> None:
    """None is a value like any other; whether there is a state is told by the records."""
    newest: StateFormat[int | None, int | None] = StateFormat(
        JsonSerializer(), JsonSerializer(), lambda state, update: update
    )
    async with open_client(config) as client:
        await client.create_stream("none", 1)
        shared, other = [await client.state_synchronizer("none", newest) for _ in range(2)]
        assert shared.revision is None
        assert await shared.initialize(None)
        assert shared.revision is not None
        assert not await other.initialize(3)
        assert await other.update(lambda state: [7 if state is None else 8]) == 7
        assert await shared.update(lambda state: [None]) is None
        assert await other.wait_for_updates() is None
        assert await other.fetch_updates() is None
        assert other.revision == shared.revision
        assert await shared.update(lambda state: [1 if state is None else 2]) == 1
        assert await (await client.state_synchronizer("none", newest)).fetch_updates() == 1


async def test_a_stream_that_ends_before_what_was_read_is_named(config: PravegaConfig) -> None:
    """As after a server has lost its data and the stream was created again."""
    async with open_client(config) as client:
        await client.create_stream("again", 1)
        shared = await client.state_synchronizer("again", COUNTER)
        await shared.initialize(Counter(0))
        end = revision(shared)
        beyond = Revision(end.segment, end.offset + 100, 0)
        async with client.revisioned_stream("again") as log:
            async with log.read_from(end) as reader:
                assert await reader.next_values() == []
            with pytest.raises(InvalidArgumentError, match=f"beyond the end.*offset {end.offset}"):
                await log.read_from(beyond)
        shared._revision = beyond
        for _ in range(2):
            with pytest.raises(CorruptedStateError, match="again ends before offset"):
                await shared.fetch_updates()
            with pytest.raises(CorruptedStateError, match="again ends before offset"):
                await shared.update(lambda state: [Add(1)])


async def test_what_cannot_be_bytes_is_not_written(config: PravegaConfig) -> None:
    views: Serializer[array[float]] = FunctionSerializer(memoryview, lambda data: array("d", data))  # type: ignore[arg-type]
    async with open_client(config) as client:
        await client.create_stream("bytes", 1)
        async with client.revisioned_stream("bytes") as log:
            start = await log.latest_revision()
            wrong: list[Any] = [5, [1, 2], None, "text", 10**12]
            for value in wrong:
                with pytest.raises(ArgumentTypeError, match=f"not {type(value).__name__}"):
                    await log.write_unconditionally(value)
            assert await log.latest_revision() == start
        numbers = array("d", [1.0, 2.0])
        async with client.revisioned_stream("bytes", views) as log:
            await log.write_unconditionally(numbers)
            async with log.read_from(start) as reader:
                assert [value async for _, value in reader] == [numbers]
        unwritable: Any = FunctionSerializer(cast(Any, str), lambda data: data)
        async with client.revisioned_stream("bytes", unwritable) as log:
            with pytest.raises(EncodeError, match=r"bytes: a value .* returned str"):
                await log.write_unconditionally(5)
        await client.create_stream("states", 1)
        sums = StateFormat(views, views, lambda state, update: array("d", [*state, *update]))
        shared, other = [await client.state_synchronizer("states", sums) for _ in range(2)]
        await shared.initialize(numbers)
        await shared.update(lambda state: [numbers])
        assert await other.fetch_updates() == numbers + numbers
        for wrong_format in (
            StateFormat(unwritable, unwritable, lambda state, update: state),
            StateFormat(views, unwritable, lambda state, update: state),
        ):
            shared = await client.state_synchronizer("states", wrong_format)
            with pytest.raises(EncodeError, match=r"an update .* returned str"):
                await shared.update_unconditionally([numbers])
        await client.create_stream("unmade", 1)
        shared = await client.state_synchronizer(
            "unmade", StateFormat(unwritable, unwritable, lambda state, update: state)
        )
        with pytest.raises(EncodeError, match=r"an initial state .* returned str"):
            await shared.initialize(numbers)
        assert (await client.tail("unmade")).positions == {0: 0}


async def test_what_is_no_revision_is_named(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("odd", 1)
        async with client.revisioned_stream("odd") as log:
            start = await log.latest_revision()
            calls: list[Callable[[Any], Awaitable[object]]] = [
                log.read_from,
                lambda wrong: log.read_range(start, wrong),
                lambda wrong: log.read_range(wrong, start),
                lambda wrong: log.write_conditionally(wrong, b"x"),
                log.wait_beyond,
                log.truncate_to,
                lambda wrong: log.compare_and_set_mark(wrong, None),
                lambda wrong: log.compare_and_set_mark(None, wrong),
            ]
            for call in calls:
                for wrong in (5, start.to_text()):
                    with pytest.raises(ArgumentTypeError, match="odd must be a Revision, not"):
                        await call(wrong)
            no_mark: Any = await log.mark()
            with pytest.raises(ArgumentTypeError, match="odd must be a Revision, not NoneType"):
                await log.read_from(no_mark)
            assert no_mark is None
            assert await log.latest_revision() == start


async def test_callers_of_one_object_share_fetches_and_write_one_after_the_other(
    config: PravegaConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_client(config) as client:
        await client.create_stream("counter", 1)
        async with client.state_synchronizer("counter", COUNTER) as shared:
            await shared.initialize(Counter(0))
            requests: list[str] = []

            def count(name: str) -> None:
                real = getattr(shared._log, name)

                async def counted(*arguments: Any) -> Any:
                    requests.append(name)
                    return await real(*arguments)

                monkeypatch.setattr(shared._log, name, counted)

            count("read_from")
            count("write_conditionally")
            async with trio.open_nursery() as nursery:
                for _ in range(10):
                    nursery.start_soon(shared.fetch_updates)
            # One for those that had asked when it began, and one for the rest.
            assert requests in (["read_from"], ["read_from"] * 2)
            requests.clear()
            async with trio.open_nursery() as nursery:
                for _ in range(10):
                    nursery.start_soon(shared.update, lambda state: [Add(1)])
            assert shared.state == Counter(10)
            # None was refused.
            assert requests == ["write_conditionally"] * 10


async def test_the_revision_stays_known_while_a_newer_initial_state_is_looked_for(
    config: PravegaConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_client(config) as client:
        await client.create_stream("counter", 1)
        async with (
            client.state_synchronizer("counter", COUNTER) as ahead,
            client.state_synchronizer("counter", COUNTER) as behind,
        ):
            await ahead.initialize(Counter(0))
            await behind.fetch_updates()
            before = behind.revision
            assert before is not None
            for _ in range(2):
                await ahead.update(lambda state: [Add(1)])
                await ahead.compact(lambda state: state)
            seen = []
            look = behind._beginning

            async def beginning() -> Revision:
                seen.append((behind.state, behind.revision, repr(behind)))
                return await look()

            monkeypatch.setattr(behind, "_beginning", beginning)
            assert await behind.fetch_updates() == Counter(2)
            assert [(state, revision) for state, revision, _ in seen] == [(Counter(0), before)]
            assert f"at offset {before.offset}" in seen[0][2]
            assert behind.revision == ahead.revision
