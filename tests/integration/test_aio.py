"""The asyncio client on a real server, under asyncio and under uvloop."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
import trio
import uvloop

from pravega_wire import (
    EventBatch,
    PravegaConfig,
    ReaderGroupConfig,
    ScalingPolicy,
    ScopedStream,
    StateFormat,
    StreamConfiguration,
    TxnStatus,
    aio,
    sync,
)
from pravega_wire.controller.types import KeyValueTableConfiguration
from pravega_wire.errors import (
    ClosedError,
    EventTooLargeError,
    InvalidArgumentError,
    ReaderGroupNotFoundError,
    StreamNotFoundError,
    StreamSealedError,
    TableKeyBadVersionError,
    TransactionAbortedError,
    TransactionError,
)
from pravega_wire.serializers import FunctionSerializer, JsonSerializer, Utf8Serializer
from pravega_wire.testing import FaultProxy
from tests.faults.support import in_one_buffer
from tests.inside import core_of, portal_of

Main = Callable[[], Coroutine[Any, Any, Any]]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Main], Any]:
    """Runs a function in an event loop; a test ends with an error instead of hanging."""
    factory = uvloop.new_event_loop if request.param == "uvloop" else None

    def runs(main: Main) -> Any:
        async def limited() -> Any:
            async with asyncio.timeout(120):
                return await main()

        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(limited())

    return runs


@pytest.fixture(autouse=True)
def no_thread_stays() -> Iterator[None]:
    """Every client's thread ends with its client."""
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        if thread.name.startswith("pravega client of an event loop"):
            thread.join(60)
            assert not thread.is_alive()


async def all_events(client: aio.PravegaClient, stream: str) -> list[bytes]:
    return [event async for batch in client.read_events(stream) for event in batch]


# --- what everybody does --------------------------------------------------------------------------


@pytest.mark.smoke
def test_writing_and_reading_batches(config: PravegaConfig, run: Callable[[Main], Any]) -> None:
    async def main() -> None:
        async with aio.open_client(config) as client:
            assert (
                await client.create_stream("s", StreamConfiguration(scaling=ScalingPolicy.fixed(1))) is True
            )
            assert await client.create_stream("s", 1) is False
            assert [each.name for each in await client.list_streams()] == ["s"]
            async with client.event_writer("s") as writer:
                ack = await writer.write_event(b"one", "key")
                await ack.wait()
                assert ack.done
                assert ack.error is None
                ack = await writer.write_events([b"two", b"three"], ["key", "key"])
                await ack.wait()
                await writer.write_events((b"%d" % n for n in range(5000)), "key")
                await writer.write_events(pa.array([b"arrow"]), "key")
                await (await writer.write_batch([b"a", b"b"], "key")).wait()
                assert writer.events_written == 5006
                await writer.flush()
                assert writer.events_acknowledged == 5006
            numbers = [b"%d" % n for n in range(5000)]
            wanted = [b"one", b"two", b"three", *numbers, b"arrow", b"a", b"b"]
            assert await all_events(client, "s") == wanted
            ranges = await client.segment_ranges("s", max_range_bytes=16_384)
            assert len(ranges) > 2
            async with client.read_ranges(ranges) as batches:
                assert [event async for batch in batches for event in batch] == wanted
            async with client.read_range(ranges[0]) as reader:
                batch = await reader.next_batch()
                assert batch is not None
                assert next(iter(batch)) == b"one"
            assert client.metrics().writers[ScopedStream(config.scope or "", "s")].events_written == 5006

    run(main)


def test_an_iterable_may_use_one_buffer_for_all_events(
    config: PravegaConfig, run: Callable[[Main], Any]
) -> None:
    numbers = [b"%04d" % number for number in range(1000)]

    async def main() -> None:
        async with aio.open_client(config) as client:
            await client.create_stream("s", 1)
            async with client.event_writer("s") as writer:
                await writer.write_events(in_one_buffer(numbers))
                await writer.write_events(in_one_buffer(numbers), map(str, range(1000)))
                await writer.write_batch(in_one_buffer(numbers))
            assert await all_events(client, "s") == 3 * numbers
            await client.create_key_value_table("t", KeyValueTableConfiguration(1, 4))
            table = await client.key_value_table("t")
            await table.put_many(zip(numbers, in_one_buffer(numbers), strict=True))
            assert [
                entry and entry.value for entry in await table.get_many(in_one_buffer(numbers))
            ] == numbers

    run(main)


def test_a_block_is_left_quietly_after_an_abort(config: PravegaConfig, run: Callable[[Main], Any]) -> None:
    async def main() -> None:
        async with aio.open_client(config) as client:
            await client.create_stream("s", 1)
            async with client.begin_transaction("s") as txn:
                for _ in range(100):
                    await txn.write_event(b"event")
                await txn.abort()
            assert await txn.status() in (TxnStatus.ABORTING, TxnStatus.ABORTED)

    run(main)


def test_the_blocks_of_writers_are_left_after_their_client(
    config: PravegaConfig, run: Callable[[Main], Any]
) -> None:
    async def main() -> None:
        async with aio.open_client(config) as client:
            await client.create_stream("s", 1)
        client = await aio.open_client(config)
        async with (
            client.event_writer("s") as writer,
            client.byte_stream_writer("s"),
            client.begin_transaction("s") as txn,
        ):
            await (await writer.write_event(b"1"))
            await (await txn.write_event(b"2"))
            await client.aclose()
        await txn.aclose()
        client = await aio.open_client(config)
        with pytest.raises(KeyError, match="mine"):
            async with client.event_writer("s") as writer, client.byte_stream_writer("s") as data:
                await writer.write_event(b"1")
                await data.write(b"2")
                await client.aclose()
                raise KeyError("mine")

    run(main)


def test_transactions(config: PravegaConfig, run: Callable[[Main], Any]) -> None:
    async def main() -> None:
        async with aio.open_client(config) as client:
            await client.create_stream("s", 2)
            async with client.begin_transaction("s") as txn:
                await txn.write_event(b"1", "a")
                await txn.write_events([b"2", b"3"], ["a", "a"])
                await txn.flush()
                assert await txn.status() is TxnStatus.OPEN
                assert await all_events(client, "s") == []
                await txn.commit()
            await txn.wait_committed()
            assert await all_events(client, "s") == [b"1", b"2", b"3"]
            with pytest.raises(RuntimeError, match="mine"):
                async with client.begin_transaction("s") as txn:
                    await txn.write_event(b"4")
                    raise RuntimeError("mine")
            assert await client.transaction_status("s", txn.txn_id) in (TxnStatus.ABORTING, TxnStatus.ABORTED)
            with pytest.raises(TransactionAbortedError):
                await client.commit_transaction("s", txn.txn_id)

    run(main)


def test_a_resumable_writer(config: PravegaConfig, run: Callable[[Main], Any]) -> None:
    writer_id = uuid4()

    async def main() -> None:
        async with aio.open_client(config) as client:
            await client.create_stream("s", 2)
            async with client.resumable_writer("s", writer_id) as writer:
                await writer.write_events([b"1", b"2"], "k")
                assert (writer.writer_id, writer.next_event_number) == (writer_id, 3)
            async with client.resumable_writer("s", writer_id, first_event_number=1) as writer:
                for event in (b"1", b"2", b"3"):
                    await writer.write_event(event, "k")
                await writer.flush()
                assert writer.events_skipped == 2
            assert await all_events(client, "s") == [b"1", b"2", b"3"]

    run(main)


@pytest.mark.smoke
def test_a_reader_group(config: PravegaConfig, run: Callable[[Main], Any]) -> None:
    names: list[str] = []
    threads: set[int] = set()

    def decode(payload: bytes) -> int:
        threads.add(threading.get_ident())
        return int(payload)

    async def reached(name: str) -> None:
        await asyncio.sleep(0)
        names.append(name)

    async def main() -> None:
        async with aio.open_client(config) as client:
            await client.create_stream("s", 3)
            groups = ReaderGroupConfig.of([ScopedStream(config.scope or "", "s")])
            await client.create_reader_group("g", replace(groups, group_refresh_interval=0.2))
            async with client.event_writer("s") as writer:
                await writer.write_events([b"%d" % n for n in range(3000)], [str(n % 7) for n in range(3000)])
            numbers = FunctionSerializer(lambda value: b"%d" % value, decode)
            found: list[int] = []
            async with client.reader_group("g") as group:
                async with group.reader("one", numbers, on_checkpoint=reached) as reader:
                    checkpoint = asyncio.create_task(group.checkpoint("mine"))
                    async for event in reader:
                        found.append(event.value)
                        if len(found) == 2000:
                            break
                    # Before the next event is asked for, this one is the other reader's if this one is left.
                    while not checkpoint.done():
                        got = await reader.read_event(0.2)
                        if got is not None:
                            found.append(got.value)
                    assert (await checkpoint).name == "mine"
                    assert names == ["mine"]
                async with group.reader("two", numbers) as reader:
                    while len(found) < 3000:
                        batch = await reader.next_batch()
                        assert batch is not None
                        found += map(int, batch)
                    assert await reader.next_batch(0) is None
                    assert (await group.metrics()).unassigned == 0
                counts = group.segment_counts()
                assert await anext(counts) == 3
                await counts.aclose()
            assert sorted(found) == list(range(3000))
            assert threads == {threading.get_ident()}
            for key in range(7):
                of_key = [value for value in found if value % 7 == key]
                assert of_key == sorted(of_key)

    run(main)


def test_a_reader_left_by_an_error_gives_its_last_event_back(
    config: PravegaConfig, run: Callable[[Main], Any]
) -> None:
    async def main() -> None:
        async with aio.open_client(config) as client:
            await client.create_stream("s", 1)
            await client.create_reader_group("g", ["s"])
            async with client.event_writer("s") as writer:
                await writer.write_events([b"1", b"2", b"3"])
            async with client.reader_group("g") as group:
                with pytest.raises(ValueError, match="not today"):
                    async with group.reader("one") as reader:
                        assert [await anext(reader) for _ in range(2)][-1].value == b"2"
                        raise ValueError("not today")
                async with group.reader("two") as reader:
                    assert (await anext(reader)).value == b"2"

    run(main)


def test_tables(config: PravegaConfig, run: Callable[[Main], Any]) -> None:
    async def main() -> None:
        async with aio.open_client(config) as client:
            await client.create_key_value_table("t", KeyValueTableConfiguration(2, 4, 0))
            table = await client.key_value_table("t", Utf8Serializer())
            version = await table.insert(b"aaaa", "first")
            with pytest.raises(TableKeyBadVersionError):
                await table.insert(b"aaaa", "again")
            await table.put(b"aaaa", "second", version)
            await table.put_many((b"%04d" % n, str(n)) for n in range(300))
            entry = await table.get(b"aaaa")
            assert entry is not None
            assert entry.value == "second"
            keys = [key.primary async for key in table.keys()]  # noqa: SIM118  # a method of a table
            assert keys == [*(b"%04d" % n for n in range(300)), b"aaaa"]

    run(main)


def test_revisions_and_a_synchronizer(config: PravegaConfig, run: Callable[[Main], Any]) -> None:
    threads: set[int] = set()

    def step(state: dict[str, int], update: dict[str, int]) -> dict[str, int]:
        threads.add(threading.get_ident())
        return state | update

    async def main() -> None:
        async with aio.open_client(config) as client:
            await client.create_stream("values", 1)
            async with client.revisioned_stream("values", Utf8Serializer()) as values:
                start = await values.latest_revision()
                after = await values.write_conditionally(start, "one")
                assert after is not None
                assert await values.write_conditionally(start, "too late") is None
                await values.write_unconditionally("two")
                assert [value async for _, value in await values.read_from(start)] == ["one", "two"]
                async with values.read_from(start) as reader:
                    assert await reader.next_values() == [
                        each async for each in await values.read_from(start)
                    ]
            await client.create_stream("state", 1)
            format = StateFormat(JsonSerializer(), JsonSerializer(), step)
            async with (
                await client.state_synchronizer("state", format) as one,
                await client.state_synchronizer("state", format) as other,
            ):
                assert await one.initialize({}) is True
                assert await other.initialize({}) is False
                await asyncio.gather(
                    *(one.update(lambda state, n=n: [{str(n): n}]) for n in range(5)),
                    *(other.update(lambda state, n=n: [{str(n): n}]) for n in range(5, 10)),
                )
                assert await one.fetch_updates() == {str(n): n for n in range(10)}
                await one.compact(lambda state: state)
            assert threads == {threading.get_ident()}

    run(main)


def test_byte_streams(config: PravegaConfig, run: Callable[[Main], Any]) -> None:
    async def main() -> None:
        async with aio.open_client(config) as client:
            await client.create_stream("b", 1)
            async with client.byte_stream_writer("b") as writer:
                assert await writer.write(b"some ") == 5
                await writer.write(memoryview(b"bytes"))
                await writer.flush()
                assert await writer.tail() == 10
                await writer.seal()
            async with client.byte_stream_reader("b") as reader:
                assert b"".join([data async for data in reader]) == b"some bytes"
                await reader.seek(5)
                assert reader.offset == 5
                assert await reader.receive_some(3) == b"byt"
                assert await reader.read(1) == b"e"
                assert reader.offset == 9

    run(main)


# --- errors ---------------------------------------------------------------------------------------


def test_errors_keep_their_types(config: PravegaConfig, run: Callable[[Main], Any]) -> None:
    async def main() -> None:
        async with aio.open_client(config) as client:
            with pytest.raises(StreamNotFoundError) as error:
                await client.stream_info("missing")
            assert error.value.stream == "missing"
            with pytest.raises(StreamNotFoundError):
                async with client.event_writer("missing"):
                    pass
            with pytest.raises(ReaderGroupNotFoundError):
                await client.reader_group("missing")
            await client.create_stream("s", 1)
            with pytest.raises(InvalidArgumentError):
                await client.create_stream("s", 0)
            async with client.event_writer("s") as writer:
                with pytest.raises(EventTooLargeError):
                    await writer.write_event(bytes(8 * 1024 * 1024 + 1))

                def failing() -> Iterator[bytes]:
                    yield b"before"
                    raise LookupError("mine")

                with pytest.raises(LookupError, match="mine"):
                    await writer.write_events(failing())
                with pytest.raises(InvalidArgumentError):
                    await writer.write_events(iter([b"1", b"2"]), iter(["one key"]))
            # What came before an error is written.
            assert (await all_events(client, "s"))[0] == b"before"
        with pytest.raises(ClosedError):
            await client.list_streams()

    run(main)


def test_functions_that_fail_in_the_loop(config: PravegaConfig, run: Callable[[Main], Any]) -> None:
    async def main() -> None:
        async with aio.open_client(config) as client:
            await client.create_stream("state", 1)
            format = StateFormat(JsonSerializer(), JsonSerializer(), lambda state, update: update)
            async with client.state_synchronizer("state", format) as state:
                await state.initialize(0)

                def generate(value: int) -> list[int]:
                    raise ArithmeticError("mine")

                with pytest.raises(ArithmeticError, match="mine"):
                    await state.update(generate)
                assert await state.update(lambda value: [value + 1]) == 1

    run(main)


# --- cancelling -----------------------------------------------------------------------------------


async def cancelled_within(work: Coroutine[Any, Any, Any], begun: Callable[[], bool]) -> None:
    """Cancel it once it has begun to wait; it ends."""
    task = asyncio.create_task(work)
    while not begun():
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


def test_cancelling_an_append_that_waits(
    config: PravegaConfig, fault_proxy: FaultProxy, run: Callable[[Main], Any]
) -> None:
    async def main() -> None:
        async with aio.open_client(config, address_map=fault_proxy.address_map) as client:
            await client.create_stream("s", 1)
            async with client.event_writer("s", max_outstanding_bytes=200_000) as writer:
                await (await writer.write_event(b"before")).wait()
                fault_proxy.pause()
                events = [bytes(10_000)] * 100
                await cancelled_within(
                    writer.write_events(events), lambda: writer.outstanding_bytes > 200_000
                )
                calls = portal_of(client).portal.calls
                assert not calls
                fault_proxy.resume()
                written = writer.events_written
                assert 1 < written < 101
                await (await writer.write_event(b"after")).wait()
            found = await all_events(client, "s")
            assert len(found) == written + 1
            assert (found[0], found[-1]) == (b"before", b"after")

    run(main)


def test_cancelling_a_read_that_waits(config: PravegaConfig, run: Callable[[Main], Any]) -> None:
    async def main() -> None:
        async with aio.open_client(config) as client:
            await client.create_stream("s", 1)
            await client.create_reader_group("g", ["s"])
            async with (
                await client.reader_group("g") as group,
                group.reader("one") as reader,
                client.event_writer("s") as writer,
            ):
                calls = portal_of(client).portal.calls
                for number in range(5):
                    await cancelled_within(reader.read_event(), lambda: len(calls) > 0)
                    assert not calls
                    with pytest.raises(TimeoutError):
                        async with asyncio.timeout(0.01):
                            await reader.next_batch()
                    await (await writer.write_event(b"%d" % number)).wait()
                    event = await anext(reader)
                    assert event.value == b"%d" % number

    run(main)


def test_no_event_is_lost_by_cancelling(config: PravegaConfig, run: Callable[[Main], Any]) -> None:
    """Tasks are cancelled at any moment, also when the result is on its way."""

    async def main() -> None:
        async with aio.open_client(config) as client:
            await client.create_stream("s", 1)
            await client.create_reader_group("g", ["s"])
            async with client.event_writer("s") as writer:
                for number in range(40):
                    # Each a batch of its own.
                    await (await writer.write_event(b"%d" % number, "k")).wait()
            found: list[bytes] = []
            async with client.reader_group("g") as group, group.reader("one") as reader:
                turn = 0
                while len(found) < 40:
                    turn += 1
                    task = asyncio.create_task(reader.read_event() if turn % 2 else reader.next_batch())
                    for _ in range(turn % 50):
                        await asyncio.sleep(0)
                    task.cancel()
                    try:
                        got = await task
                    except asyncio.CancelledError:
                        if turn > 400:
                            got = await reader.read_event()
                        else:
                            continue
                    assert got is not None
                    found += list(got) if isinstance(got, EventBatch) else [got.value]
            assert found == [b"%d" % n for n in range(40)]
            reading = client.read_events("s")
            again: list[bytes] = []
            for turn in range(10_000):
                taking = asyncio.create_task(reading.next_batch())
                for _ in range(turn % 50):
                    await asyncio.sleep(0)
                taking.cancel()
                try:
                    batch = await taking
                except asyncio.CancelledError:
                    continue
                if batch is None:
                    break
                again += batch
            assert again == found

    run(main)


def test_what_was_opened_for_a_cancelled_task_is_closed(
    config: PravegaConfig, run: Callable[[Main], Any]
) -> None:
    async def main() -> None:
        async with aio.open_client(config) as client:
            await client.create_stream("s", 1)
            for turn in range(60):
                task = asyncio.ensure_future(client.begin_transaction("s"))
                await asyncio.sleep(turn / 5000)
                task.cancel()
                try:
                    await (await task).abort()
                except asyncio.CancelledError:
                    continue

            async def leases_end() -> None:
                # A transaction that is kept alive for nobody would have a task in the client's nursery.
                nursery = core_of(client).nursery
                with trio.fail_after(30):
                    while any(task.name.startswith("lease of") for task in nursery.child_tasks):
                        await trio.lowlevel.checkpoint()

            await portal_of(client).run(leases_end)

    run(main)


# --- back-pressure --------------------------------------------------------------------------------


def test_a_slow_reader_does_not_make_the_client_read_on(
    config: PravegaConfig, run: Callable[[Main], Any]
) -> None:
    total = 48 * 1024 * 1024

    async def main() -> None:
        async with aio.open_client(config) as client:
            await client.create_stream("s", 1)
            async with client.event_writer("s") as writer:
                await writer.write_events([bytes(65_528)] * (total // 65_536))
            await client.create_reader_group("g", ["s"])
            name = ScopedStream(config.scope or "", "s")

            def received() -> int:
                return client.metrics().readers[name].bytes_received

            async def settled() -> int:
                last = -1
                while (now := received()) != last:
                    last = now
                    await asyncio.sleep(0.3)
                return last

            reader = client.read_events("s")
            await reader.next_batch()
            # The depth of reading ahead, at most 32 MiB, follows how long answers take.
            assert await settled() <= 36 * 1024 * 1024
            await reader.aclose()
            before = received()
            async with (
                await client.reader_group("g") as group,
                group.reader("one", max_buffered_bytes=4 * 1024 * 1024) as slow,
            ):
                await anext(slow)
                assert await settled() - before <= 12 * 1024 * 1024

    run(main)


def test_a_fast_writer_waits(
    config: PravegaConfig, fault_proxy: FaultProxy, run: Callable[[Main], Any]
) -> None:
    async def main() -> None:
        async with aio.open_client(config, address_map=fault_proxy.address_map) as client:
            await client.create_stream("s", 1)
            async with client.event_writer("s", max_outstanding_bytes=300_000) as writer:
                await (await writer.write_event(b"first")).wait()
                fault_proxy.pause()
                read = 0

                def events() -> Iterator[bytes]:
                    nonlocal read
                    for _ in range(30_000):
                        read += 1
                        yield bytes(1000)

                async def singly() -> None:
                    for _ in range(30_000):
                        await writer.write_event(bytes(1000))

                for write in (writer.write_events(events()), singly()):
                    task = asyncio.create_task(write)
                    done, _ = await asyncio.wait({task}, timeout=0.5)
                    assert not done
                    assert read < 5000
                    assert writer.outstanding_bytes < 4_000_000
                    task.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await task
                fault_proxy.resume()

    run(main)


# --- single events --------------------------------------------------------------------------------


def test_single_events_keep_their_place(config: PravegaConfig, run: Callable[[Main], Any]) -> None:
    """They cross threads later than they are written, and yet before what is written after them."""

    async def main() -> None:
        async with aio.open_client(config) as client:
            await client.create_stream("s", 2)
            wanted: list[bytes] = []
            async with client.event_writer("s") as writer:
                for turn in range(300):
                    for number in range(turn % 7):
                        wanted.append(b"%d single %d" % (turn, number))
                        await writer.write_event(wanted[-1], "key")
                    if turn % 4 == 0:
                        wanted += [b"%d many" % turn] * 2
                        await writer.write_events(wanted[-2:], "key")
                    elif turn % 4 == 1:
                        wanted += [b"%d fed" % turn]
                        await writer.write_events(iter(wanted[-1:]), "key")
                    elif turn % 4 == 2:
                        wanted += [b"%d batch" % turn]
                        await writer.write_batch(wanted[-1:], "key")
                    else:
                        wanted += [b"%d copied" % turn]
                        await writer.write_event(bytearray(wanted[-1]), "key")  # type: ignore[arg-type]
                    assert writer.events_written == len(wanted)
                    assert writer.bytes_written == sum(map(len, wanted))
                    assert writer.metrics().events_written == len(wanted)
                await writer.write_event(b"last", "key")
                await writer.flush()
                assert writer.events_acknowledged == len(wanted) + 1
                assert writer.outstanding_bytes == 0
                # Leaving the writer is a call after these, too.
                for _ in range(3):
                    await writer.write_event(b"last", "key")
            wanted += [b"last"] * 4
            assert await all_events(client, "s") == wanted
            async with await client.begin_transaction("s") as txn:
                for event in wanted[:50]:
                    await txn.write_event(event, "key")
                assert txn.metrics().events_written == 50
                await txn.commit()
            await txn.wait_committed()
            assert await all_events(client, "s") == wanted + wanted[:50]
            writer_id = uuid4()
            for first in (1, 20):
                async with client.resumable_writer("s", writer_id, first_event_number=first) as resumable:
                    for number in range(first, 51):
                        assert resumable.next_event_number == number
                        await resumable.write_event(b"%d" % number, "key")
                    await resumable.flush()
                    assert resumable.events_skipped == (0 if first == 1 else 31)
            assert (await all_events(client, "s"))[-50:] == [b"%d" % number for number in range(1, 51)]

    run(main)


def test_single_events_cross_together(
    config: PravegaConfig, fault_proxy: FaultProxy, run: Callable[[Main], Any]
) -> None:
    """Neither writing an event nor waiting for its acknowledgement is a call of its own."""

    async def main() -> None:
        async with aio.open_client(config, address_map=fault_proxy.address_map) as client:
            await client.create_stream("s", 2)
            async with client.event_writer("s") as writer:
                await (await writer.write_event(b"first")).wait()
                fault_proxy.pause()
                calls = portal_of(client).portal.calls
                written = 0

                async def one(name: int) -> None:
                    nonlocal written
                    for number in range(3):
                        ack = await writer.write_event(b"%d %d" % (name, number), f"key {name}")
                    written += 1
                    await ack

                waiting = [asyncio.create_task(one(name)) for name in range(1000)]
                while written < 1000:
                    await asyncio.sleep(0)
                assert writer.events_written == 3001
                # So that they have come as far as they can.
                await client.stream_exists("s")
                assert len(calls) < 100
                waiting[7].cancel()
                fault_proxy.resume()
                await asyncio.gather(*waiting[:7], *waiting[8:])
                with pytest.raises(asyncio.CancelledError):
                    await waiting[7]
                assert not calls
            found = await all_events(client, "s")
            assert len(found) == 3001
            for name in range(1000):
                of_task = [event for event in found if event.startswith(b"%d " % name)]
                assert of_task == [b"%d %d" % (name, number) for number in range(3)]

    run(main)


def test_a_single_event_goes_out_without_being_waited_for(
    config: PravegaConfig, run: Callable[[Main], Any]
) -> None:
    async def main() -> None:
        async with aio.open_client(config) as client, aio.open_client(config) as other:
            await client.create_stream("s", 1)
            async with client.event_writer("s") as writer:
                for count in (1, 3, 1000):
                    before = len(await all_events(other, "s"))
                    for _ in range(count):
                        ack = await writer.write_event(b"event")
                    while len(await all_events(other, "s")) < before + count:
                        await asyncio.sleep(0.01)
                    await ack
                    assert ack.done

    run(main)


def test_single_events_let_other_tasks_run(config: PravegaConfig, run: Callable[[Main], Any]) -> None:
    async def main() -> None:
        async with aio.open_client(config) as client:
            await client.create_stream("s", 1)
            async with client.event_writer("s") as writer:
                turns = 0

                async def other() -> None:
                    nonlocal turns
                    while True:
                        turns += 1
                        await asyncio.sleep(0)

                task = asyncio.create_task(other())
                await (await writer.write_event(b"first")).wait()
                turns = 0
                for _ in range(10_000):
                    await writer.write_event(b"")
                assert turns >= 90
                task.cancel()

    run(main)


def test_single_events_of_a_writer_that_fails(config: PravegaConfig, run: Callable[[Main], Any]) -> None:
    async def main() -> None:
        async with aio.open_client(config) as client:
            await client.create_stream("s", 1)
            async with client.event_writer("s") as writer:
                await (await writer.write_event(b"stored")).wait()
                await client.seal_stream("s")
                acks = [await writer.write_event(b"too late") for _ in range(3)]
                found = await asyncio.gather(*(ack.wait() for ack in acks), return_exceptions=True)
                assert list(map(type, found)) == [StreamSealedError] * 3
                assert isinstance(acks[0].error, StreamSealedError)
                with pytest.raises(StreamSealedError):
                    await writer.write_event(b"later")
            assert await all_events(client, "s") == [b"stored"]
            await client.create_stream("t", 1)
            txn = await client.begin_transaction("t")
            await (await txn.write_event(b"first")).wait()
            await client.abort_transaction("t", txn.txn_id)
            # The controller accepts it first; stores take events until it is done.
            while await txn.status() is not TxnStatus.ABORTED:
                pass
            ack = await txn.write_event(b"lost")
            with pytest.raises(TransactionError):
                await ack
            with pytest.raises(TransactionError):
                await txn.commit()
            await txn.abort()

    run(main)


@pytest.mark.parametrize("what", ["writer", "client"])
def test_closing_ends_single_events(
    config: PravegaConfig, fault_proxy: FaultProxy, run: Callable[[Main], Any], what: str
) -> None:
    async def main() -> None:
        async with aio.open_client(config, address_map=fault_proxy.address_map) as client:
            await client.create_stream("s", 1)
            writer = await client.event_writer("s", max_outstanding_bytes=100_000)
            await (await writer.write_event(b"stored")).wait()
            fault_proxy.pause()
            acks = []

            async def write() -> None:
                while True:
                    acks.append(await writer.write_event(bytes(1000)))

            writing = [asyncio.create_task(write()) for _ in range(2)]
            written = -1
            while written < writer.events_written:
                # Until they have found no room.
                written = writer.events_written
                await asyncio.sleep(0.3)
            assert 100 < len(acks) < 10_000
            assert writer.outstanding_bytes > 100_000
            waiting = [asyncio.create_task(ack.wait()) for ack in (acks[0], acks[-1], acks[-1])]
            await client.stream_exists("s")
            if what == "writer":
                with pytest.raises(RuntimeError, match="breaks it off"):
                    async with writer:
                        raise RuntimeError("breaks it off")
            else:
                await client.aclose()
            found = await asyncio.gather(*waiting, *writing, return_exceptions=True)
            assert list(map(type, found)) == [ClosedError] * 5
            with pytest.raises(ClosedError):
                await writer.write_event(b"later")
            while not all(ack.done for ack in acks):
                await asyncio.sleep(0.01)
            assert {type(ack.error) for ack in acks} == {ClosedError}
            fault_proxy.resume()

    run(main)


def test_an_event_that_waits_for_room_is_kept(
    config: PravegaConfig, fault_proxy: FaultProxy, run: Callable[[Main], Any]
) -> None:
    async def main() -> None:
        async with aio.open_client(config, address_map=fault_proxy.address_map) as client:
            await client.create_stream("s", 1)
            async with client.event_writer("s", max_outstanding_bytes=100_000) as writer:
                await (await writer.write_event(b"first")).wait()
                fault_proxy.pause()
                begun = 0

                async def write() -> None:
                    nonlocal begun
                    while True:
                        begun += 1
                        await writer.write_event(b"%07d" % begun * 1000, "key")

                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(write(), 0.5)
                assert writer.events_written == begun + 1
                fault_proxy.resume()
                await (await writer.write_event(b"last", "key")).wait()
            found = await all_events(client, "s")
            assert [event[:7] for event in found] == [
                b"first", *(b"%07d" % number for number in range(1, begun + 1)), b"last"
            ]  # fmt: skip

    run(main)


def test_the_loop_runs_on_meanwhile(config: PravegaConfig, run: Callable[[Main], Any]) -> None:
    """Neither calls nor a slow iterable keep other tasks from running."""

    async def main() -> None:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        def slow() -> Iterator[bytes]:
            for _ in range(50):
                time.sleep(0.002)
                yield b"event"

        async with aio.open_client(config) as client:
            counting = asyncio.create_task(count())
            await client.create_stream("s", 1)
            assert turns > 1
            async with client.event_writer("s") as writer:
                before = turns
                await writer.write_events(slow())
                assert turns > before + 5
            counting.cancel()

    run(main)


# --- the end --------------------------------------------------------------------------------------


def test_leaving_the_client_with_things_open(config: PravegaConfig, run: Callable[[Main], Any]) -> None:
    async def main() -> None:
        async with aio.open_client(config) as client:
            await client.create_stream("s", 1)
            await client.create_reader_group("g", ["s"])
            group = await client.reader_group("g")
            reader = await group.reader("one").__aenter__()
            writer = await client.event_writer("s").__aenter__()
            await writer.write_event(b"1")
            waiting = asyncio.create_task(client.completed_transactions("s"))
            reading = asyncio.create_task(group.wait_for_end_of_data())
            await waiting
        for call in (reading, reader.read_event(), writer.write_event(b"2"), writer.flush()):
            with pytest.raises(ClosedError):
                await call

    run(main)


def test_closing_after_the_client(
    config: PravegaConfig, run: Callable[[Main], Any], fault_proxy: FaultProxy
) -> None:
    """There is nothing left to close; only what was accepted and not stored is told of."""

    async def main() -> None:
        async with aio.open_client(config, address_map=fault_proxy.address_map) as client:
            for name in ("bytes", "events", "state"):
                await client.create_stream(name, 1)
            done = await client.byte_stream_writer("bytes")
            await done.write(b"stored")
            await done.flush()
            writer = await client.event_writer("events")
            await (await writer.write_event(b"stored")).wait()
            closable: list[Any] = [
                done,
                writer,
                await client.byte_stream_reader("bytes"),
                await client.revisioned_stream("state"),
                await client.state_synchronizer(
                    "state", StateFormat(JsonSerializer(), JsonSerializer(), lambda state, update: update)
                ),
            ]
            lossy = await client.byte_stream_writer("bytes")
            losing = await client.event_writer("events")
            fault_proxy.pause()
            await lossy.write(b"x")
            await losing.write_event(b"x")
        fault_proxy.resume()
        for each in closable:
            await each.aclose()
        for unstored in (lossy, losing):
            with pytest.raises(ClosedError):
                await unstored.aclose()

    run(main)


def test_closing_the_loop_with_things_open(config: PravegaConfig) -> None:
    before = threading.active_count()

    async def main() -> None:
        manager = aio.open_client(config)
        client = await manager.__aenter__()
        await client.create_stream("s", 1)
        await client.create_reader_group("g", ["s"])
        group = await client.reader_group("g")
        reader = await group.reader("one").__aenter__()
        # Nobody awaits it, nobody leaves anything.
        kept.append((manager, asyncio.create_task(reader.read_event())))
        await asyncio.sleep(0.2)

    kept: list[Any] = []
    # asyncio.run cancels what is left and closes asynchronous generators, which closes the client.
    asyncio.run(main())
    assert threading.active_count() <= before + 1
    kept.clear()
    # A loop that is only closed says nobody so; the client's thread sees it.
    for new_loop in (asyncio.new_event_loop, uvloop.new_event_loop):
        loop = new_loop()
        manager = aio.open_client(config)
        client = loop.run_until_complete(manager.__aenter__())
        assert loop.run_until_complete(client.stream_exists("s"))
        thread = portal_of(client).crossing.thread
        task = asyncio.ensure_future(client.reader_group("g"), loop=loop)
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        deadline = time.monotonic() + 60
        while thread.alive:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # asyncio's complaint is expected


def test_a_client_belongs_to_its_loop(config: PravegaConfig, run: Callable[[Main], Any]) -> None:
    async def main() -> None:
        async with aio.open_client(config) as client:

            def elsewhere() -> None:
                with pytest.raises(InvalidArgumentError, match="another event loop"):
                    asyncio.run(client.list_streams())

            await asyncio.to_thread(elsewhere)
            assert await client.list_streams() == []

    run(main)


@pytest.mark.smoke
def test_one_program_has_all_three(config: PravegaConfig, run: Callable[[Main], Any]) -> None:
    async def main() -> None:
        def threaded() -> None:
            with sync.open_client(config) as client, client.event_writer("s") as writer:
                writer.write_events([b"from a thread"])

        async with aio.open_client(config) as client, aio.open_client(config) as other:
            await client.create_stream("s", 1)
            await asyncio.to_thread(threaded)
            async with other.event_writer("s") as writer:
                await writer.write_event(b"from the loop")
            assert await all_events(client, "s") == [b"from a thread", b"from the loop"]

    run(main)


def test_an_error_in_the_block_leaves_the_client(config: PravegaConfig, run: Callable[[Main], Any]) -> None:
    async def failing(client_seen: list[aio.PravegaClient]) -> AsyncGenerator[None, None]:
        async with aio.open_client(config) as client:
            client_seen.append(client)
            yield
            raise LookupError("mine")

    async def main() -> None:
        seen: list[aio.PravegaClient] = []
        with pytest.raises(LookupError, match="mine"):
            async for _ in failing(seen):
                pass
        assert not portal_of(seen[0]).crossing.thread.alive

    run(main)


NEVER_LEFT = """
import asyncio, sys
from pravega_wire import aio

kept = []

async def main():
    # On a busy machine the debug mode would speak of what took long.
    asyncio.get_running_loop().slow_callback_duration = 1000
    client = await aio.open_client(sys.argv[1], scope=sys.argv[2])
    kept.append(client)
    await client.create_stream("s", 1)
    writer = await client.event_writer("s")
    await (await writer.write_event(b"1"))
    await client.create_reader_group("g", ["s"])
    group = await client.reader_group("g")
    reader = await group.reader("one").__aenter__()
    kept.append(iter_of(reader))
    assert (await anext(kept[-1])).value == b"1"
    kept.append(group.segment_counts())
    assert await anext(kept[-1]) == 1
    kept.append(client.follow_events("s").batches())
    assert list(await anext(kept[-1])) == [b"1"]
    kept.append(asyncio.create_task(anext(kept[-1])))
    await asyncio.sleep(0)

def iter_of(reader):
    return reader.__aiter__()

asyncio.run(main(), debug=True)
print("ended")
"""


def test_a_client_that_is_never_left_ends_without_a_word_of_asyncio(config: PravegaConfig) -> None:
    uri, scope = str(config.controller_uri), str(config.scope)
    done = subprocess.run(
        [sys.executable, "-c", NEVER_LEFT, uri, scope],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\n", "")


IN_A_FORK = """
import asyncio, os, sys
from pravega_wire import aio
from pravega_wire.errors import ClosedError

async def main():
    async with aio.open_client(sys.argv[1], scope=sys.argv[2]) as client:
        await client.create_stream("s", 1)
        async with client.event_writer("s") as writer:
            await writer.write_event(b"1")
            child = os.fork()
            if child == 0:
                try:
                    writer.write_event(b"2").send(None)
                except ClosedError:
                    os._exit(7)
                finally:
                    os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        events = [event async for batch in client.read_events("s") for event in batch]
        assert events == [b"1"]

asyncio.run(main())
"""


def test_a_fork_refuses_single_events(config: PravegaConfig) -> None:
    command = [sys.executable, "-W", "ignore", "-c", IN_A_FORK, str(config.controller_uri), str(config.scope)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
