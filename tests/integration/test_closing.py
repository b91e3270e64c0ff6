"""Handles that are closed while tasks wait in them, and handles that a second task uses at the same time."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from pravega_wire import (
    KeyValueTableConfiguration,
    PravegaClient,
    PravegaConfig,
    StateFormat,
    open_client,
)
from pravega_wire import sync as blocking
from pravega_wire.errors import (
    BrokenStreamError,
    ClosedError,
    ConcurrentUseError,
    InvalidArgumentError,
    PravegaError,
    StreamSealedError,
)
from pravega_wire.serializers import JsonSerializer
from pravega_wire.testing import FaultProxy

Call = Callable[[], Awaitable[Any]]


async def outcome(call: Call) -> PravegaError | None:
    """What a call raised."""
    try:
        await call()
    except PravegaError as error:
        return error
    return None


async def told_when_closed(wait: Call, close: Call, waiters: int = 1) -> None:
    """Tasks wait in ``wait``; ``close`` wakes each with the error, and so it is afterwards."""
    errors: list[PravegaError | None] = []

    async def run() -> None:
        errors.append(await outcome(wait))

    async with trio.open_nursery() as nursery:
        for _ in range(waiters):
            nursery.start_soon(run)
        await wait_all_tasks_blocked()
        assert not errors
        await close()
    await run()
    assert len(errors) == waiters + 1
    for error in errors:
        assert isinstance(error, ClosedError), error
        assert isinstance(error, trio.ClosedResourceError)


async def second_is_refused(call: Call, then: Call) -> Any:
    """Two tasks call; the second is refused, and the first gets its result once ``then`` was done."""
    results: list[Any] = []
    refused: list[PravegaError] = []

    async def run() -> None:
        try:
            results.append(await call())
        except PravegaError as error:
            refused.append(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await wait_all_tasks_blocked()
        nursery.start_soon(run)
        await wait_all_tasks_blocked()
        assert [type(error) for error in refused] == [ConcurrentUseError]
        assert isinstance(refused[0], trio.BusyResourceError)
        await then()
    [result] = results
    assert len(refused) == 1
    return result


# --- byte streams ---------------------------------------------------------------------------------


async def test_two_writes_at_once_are_not_mixed(config: PravegaConfig, fault_proxy: FaultProxy) -> None:
    with trio.fail_after(120):
        async with open_client(config, address_map=fault_proxy.address_map) as client:
            await client.create_stream("w")
            async with client.byte_stream_writer("w", max_outstanding_bytes=1000) as writer:
                fault_proxy.pause()
                data = b"1" * 3_000_000

                async def resume() -> None:
                    with pytest.raises(ConcurrentUseError, match="writing"):
                        await writer.wait_send_all_might_not_block()
                    with pytest.raises(ConcurrentUseError, match="writing"):
                        await writer.seal()
                    fault_proxy.resume()

                assert await second_is_refused(lambda: writer.write(data), resume) == len(data)
                await writer.flush()
                assert await writer.tail() == len(data)


async def test_two_receivers_at_once(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("r")
        async with client.byte_stream_writer("r") as writer, client.byte_stream_reader("r") as reader:

            async def send() -> None:
                with pytest.raises(ConcurrentUseError):
                    await reader.seek(0)
                await writer.write(b"for the first")

            assert await second_is_refused(reader.receive_some, send) == b"for the first"


async def test_a_reader_is_closed_while_it_waits(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("c")
        async with client.byte_stream_reader("c") as reader:
            await told_when_closed(reader.receive_some, reader.aclose)
            for call in (reader.head, reader.tail, reader.__aenter__, lambda: reader.seek(0)):
                assert isinstance(await outcome(call), ClosedError)


def test_a_blocking_reader_is_closed_by_another_thread(config: PravegaConfig) -> None:
    with blocking.open_client(config) as client:
        client.create_stream("b")
        reader = client.byte_stream_reader("b")
        found: list[BaseException] = []
        begun = threading.Event()

        def read() -> None:
            begun.set()
            try:
                reader.read(1)
            except ClosedError as error:
                found.append(error)

        thread = threading.Thread(target=read)
        thread.start()
        begun.wait()
        reader.close()
        thread.join(60)
        assert not thread.is_alive()
        assert len(found) == 1


async def test_what_was_accepted_is_stored_when_the_writer_is_closed(
    config: PravegaConfig, fault_proxy: FaultProxy
) -> None:
    with trio.fail_after(120):
        async with open_client(config, address_map=fault_proxy.address_map) as client:
            await client.create_stream("a")
            writer = await client.byte_stream_writer("a", max_outstanding_bytes=1000)
            fault_proxy.pause()

            async def close() -> None:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(writer.aclose)
                    await wait_all_tasks_blocked()
                    # It is being closed: nothing more is accepted, though there will be room.
                    assert isinstance(await outcome(lambda: writer.write(b"late")), ClosedError)
                    fault_proxy.resume()

            await told_when_closed(lambda: writer.write(b"1" * 3_000_000), close)
            async with client.byte_stream_reader("a", follow=False) as reader:
                found = b"".join([piece async for piece in reader])
            assert found == b"1" * (1 << 20)
            for call in (
                writer.flush,
                writer.seal,
                writer.send_eof,
                writer.head,
                writer.tail,
                writer.__aenter__,
                writer.wait_send_all_might_not_block,
                lambda: writer.truncate(0),
                lambda: writer.write(b""),
                lambda: writer.send_all(b""),
            ):
                assert isinstance(await outcome(call), ClosedError)


async def test_closing_a_writer_tells_of_a_failure_that_nobody_knows(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("s")
        with pytest.raises(StreamSealedError):
            async with client.byte_stream_writer("s") as writer:
                await client.seal_stream("s")
                await writer.write(b"lost")
        await client.create_stream("t")
        async with client.byte_stream_writer("t") as writer:
            await client.seal_stream("t")
            with pytest.raises(BrokenStreamError, match="sealed") as raised:
                while True:
                    await writer.send_all(b"lost")
            assert isinstance(raised.value, trio.BrokenResourceError)
            assert isinstance(raised.value.__cause__, StreamSealedError)
            with pytest.raises(StreamSealedError):
                await writer.write(b"lost")


async def test_a_byte_reader_refuses_odd_sizes(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("o")
        async with client.byte_stream_reader("o") as reader, client.byte_stream_writer("o") as writer:
            for size in (0, -1):
                with pytest.raises(InvalidArgumentError, match=str(size)):
                    await reader.receive_some(size)
            with pytest.raises(TypeError, match="float"):
                await reader.receive_some(1.5)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="str"):
                await writer.send_all("text")  # type: ignore[arg-type]


# --- events ---------------------------------------------------------------------------------------


async def _some_events(client: PravegaClient, stream: str) -> None:
    await client.create_stream(stream)
    async with client.event_writer(stream) as writer:
        await writer.write_events([b"event"] * 10)


@pytest.mark.parametrize("kind", ["range", "events", "revisions"])
async def test_iterators_are_closed_while_they_wait(
    config: PravegaConfig, fault_proxy: FaultProxy, kind: str
) -> None:
    with trio.fail_after(120):
        async with open_client(config, address_map=fault_proxy.address_map) as client:
            await _some_events(client, "e")
            reader: Any
            if kind == "range":
                [only] = await client.segment_ranges("e")
                reader = client.read_range(only)
                wait = reader.next_batch
            elif kind == "events":
                reader = client.read_events("e")
                wait = reader.next_batch
            else:
                log = await client.revisioned_stream("e")
                reader = await log.read_from(await log.oldest_revision())
                wait = reader.next_value
            fault_proxy.pause()

            async def close() -> None:
                assert isinstance(await outcome(wait), ConcurrentUseError)
                await reader.aclose()

            await told_when_closed(wait, close)
            fault_proxy.resume()


async def test_an_iterator_that_has_ended_stays_at_its_end(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await _some_events(client, "n")
        [only] = await client.segment_ranges("n")
        reader = client.read_range(only)
        assert sum([len(batch) async for batch in reader]) == 10
        assert await reader.next_batch() is None
        await reader.aclose()
        with pytest.raises(ClosedError):
            await reader.next_batch()


async def test_a_group_s_reader(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("g")
        await client.create_reader_group("group", ["g"])
        async with client.reader_group("group") as group:
            async with group.reader("one") as reader, client.event_writer("g") as writer:

                async def write() -> None:
                    await writer.write_event(b"for the first")

                event = await second_is_refused(reader.read_event, write)
                assert event.value == b"for the first"
                await told_when_closed(reader.read_event, reader.aclose)


# --- states and tables ----------------------------------------------------------------------------


async def test_waiting_for_updates(config: PravegaConfig) -> None:
    def step(state: Any, update: Any) -> Any:
        return update

    async with open_client(config) as client:
        await client.create_stream("u")
        format = StateFormat(JsonSerializer(), JsonSerializer(), step)
        state = await client.state_synchronizer("u", format)
        await state.initialize(0)
        await told_when_closed(state.wait_for_updates, state.aclose, waiters=2)
        for call in (state.fetch_updates, lambda: state.update(lambda _: [1])):
            assert isinstance(await outcome(call), ClosedError)

        log = await client.revisioned_stream("u")
        latest = await log.latest_revision()
        await told_when_closed(lambda: log.wait_beyond(latest), log.aclose, waiters=2)
        calls: list[Call] = [
            log.latest_revision,
            log.mark,
            lambda: log.read_from(latest),
            lambda: log.write_conditionally(latest, b""),
            lambda: log.truncate_to(latest),
        ]
        for each in calls:
            assert isinstance(await outcome(each), ClosedError)


async def test_two_tasks_iterate_over_a_table_with_one_iterator(
    config: PravegaConfig, fault_proxy: FaultProxy
) -> None:
    with trio.fail_after(120):
        async with open_client(config, address_map=fault_proxy.address_map) as client:
            await client.create_key_value_table("t", KeyValueTableConfiguration(2, 1))
            table = await client.key_value_table("t")
            await table.put_many([(bytes([each]), b"value") for each in range(9)])
            keys = table.keys()
            fault_proxy.pause()

            async def resume() -> None:
                fault_proxy.resume()

            found = await second_is_refused(keys.next_page, resume)
            while page := await keys.next_page():
                found += page
            assert [key.primary for key in found] == [bytes([each]) for each in range(9)]


# --- the client -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["ack", "flush", "room", "bytes"])
async def test_the_client_is_closed_while_a_task_outside_waits_for_a_writer(
    config: PravegaConfig, fault_proxy: FaultProxy, kind: str
) -> None:
    found: list[PravegaError | None] = []

    async def run(call: Call) -> None:
        found.append(await outcome(call))

    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            async with open_client(config, address_map=fault_proxy.address_map) as client:
                await client.create_stream("x")
                writer = await client.event_writer("x", max_outstanding_bytes=10)
                raw = await client.byte_stream_writer("x")
                # The appenders are between two attempts, with no connection that could tell them.
                fault_proxy.refuse()
                fault_proxy.cut_all()
                ack = await writer.write_event(b"x")
                await raw.write(b"x")
                calls: dict[str, Call] = {
                    "ack": ack.wait,
                    "flush": writer.flush,
                    "room": lambda: writer.write_event(b"x" * 100),
                    "bytes": raw.flush,
                }
                nursery.start_soon(run, calls[kind])
                await wait_all_tasks_blocked()
        [error] = found
        assert isinstance(error, ClosedError), error
