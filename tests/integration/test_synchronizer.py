"""State shared by optimistic concurrency, on a real server, by tasks and by processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
import trio

from pravega_wire import (
    PravegaConfig,
    StateFormat,
    StateSynchronizer,
    VersionedSerializer,
    VersionedUnionSerializer,
)
from pravega_wire import sync as blocking
from pravega_wire.errors import CorruptedStateError, InvalidArgumentError
from pravega_wire.serializers import JsonSerializer
from tests.integration.conftest import guarded

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
    """One of the processes: joins, counts up, compacts now and then."""
    config = PravegaConfig.from_defaults(controller_uri=uri, scope=scope, env={})
    with blocking.open_client(config) as client, client.state_synchronizer(stream, COUNTER) as shared:
        shared.initialize(Counter(0))
        shared.update(lambda state: [Join(name)])
        for number in range(updates):
            shared.update(lambda state: [Add(1)])
            if number % 40 == 20:
                shared.compact(lambda state: state)
        print(shared.fetch_updates() is not None)


def test_eight_processes_count_to_eight_hundred(config: PravegaConfig) -> None:
    with blocking.open_client(config) as client:
        client.create_stream("counter", 1)
        processes = [
            subprocess.Popen(
                [
                    sys.executable, "-c",
                    "import sys; from tests.integration.test_synchronizer import worker;"
                    " worker(*sys.argv[1:5], int(sys.argv[5]))",
                    config.controller_uri, str(config.default_scope), "counter", f"p{number}", "100",
                ],
                cwd=ROOT,
            )
            for number in range(8)
        ]  # fmt: skip
        try:
            codes = [process.wait(200) for process in processes]
        finally:
            for process in processes:
                process.kill()
        assert codes == [0] * 8
        with client.state_synchronizer("counter", COUNTER) as late:
            state = late.fetch_updates()
            assert state is not None
            assert state.total == 800
            assert sorted(state.names) == [f"p{number}" for number in range(8)]
            # Compaction has cut the beginning off, and a late joiner still has everything.
            assert late.bytes_since_compaction() < client.tail("counter").positions[0]


def test_tasks_race_and_end_equal_after_compaction(config: PravegaConfig) -> None:
    async def main() -> None:
        async with guarded(config) as client:
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
            async with await client.revisioned_stream("race") as log:
                assert (await log.fetch_oldest_revision()).offset > 0
            for each in (*shared, late):
                await each.close()

    trio.run(main)


def test_a_slow_reader_whose_place_was_truncated_finds_the_newer_beginning(config: PravegaConfig) -> None:
    async def main() -> None:
        async with guarded(config) as client:
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

    trio.run(main)


def test_an_update_happens_only_while_its_condition_holds(config: PravegaConfig) -> None:
    """One seat: whoever finds it taken writes nothing."""

    def take(name: str, state: Counter) -> Sequence[Update]:
        return [] if state.names else [Join(name)]

    async def main() -> None:
        async with guarded(config) as client:
            await client.create_stream("seat", 1)
            shared = [await client.state_synchronizer("seat", COUNTER) for _ in range(5)]
            await shared[0].initialize(Counter(0))
            async with trio.open_nursery() as nursery:
                for number, each in enumerate(shared):
                    nursery.start_soon(each.update, partial(take, f"t{number}"))
            names = {each.state.names for each in shared if each.state is not None}
            assert len(names) == 1
            assert len(names.pop()) == 1

    trio.run(main)


def test_blind_updates_show_with_the_next_fetch(config: PravegaConfig) -> None:
    async def main() -> None:
        async with guarded(config) as client:
            await client.create_stream("blind", 1)
            shared = await client.state_synchronizer("blind", COUNTER)
            with pytest.raises(InvalidArgumentError, match="not been initialized"):
                await shared.update(lambda state: [Add(1)])
            await shared.initialize(Counter(1))
            await shared.update_unconditionally([Add(1), Join("x")])
            assert shared.state == Counter(1)
            assert await shared.fetch_updates() == Counter(2, ("x",))

    trio.run(main)


def test_any_serializer_will_do(config: PravegaConfig) -> None:
    lists: StateFormat[list[int], int] = StateFormat(
        JsonSerializer(), JsonSerializer(), lambda state, update: [*state, update]
    )

    async def main() -> None:
        async with guarded(config) as client:
            await client.create_stream("json", 1)
            shared = await client.state_synchronizer("json", lists)
            await shared.initialize([])
            await shared.update(lambda state: [len(state), len(state) + 1])
            assert await (await client.state_synchronizer("json", lists)).fetch_updates() == [0, 1]

    trio.run(main)


def test_a_sealed_stream_and_rubbish_are_named(config: PravegaConfig) -> None:
    async def main() -> None:
        async with guarded(config) as client:
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

    trio.run(main)
