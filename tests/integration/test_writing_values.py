"""Writers with serializers, and acknowledgements that are awaited, with all three clients."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from uuid import uuid4

import pyarrow as pa
import pytest

from pravega_wire import EventWriter, PravegaConfig, StreamFollower, aio, open_client, sync
from pravega_wire.errors import ArgumentTypeError, EncodeError, InvalidArgumentError
from pravega_wire.serializers import FunctionSerializer, JsonSerializer, Utf8Serializer

NUMBERS = FunctionSerializer[int](lambda number: b"%d" % number, int)
WANTED = list(range(10))


def failing() -> FunctionSerializer[int]:
    def to_bytes(number: int) -> bytes:
        if number == 3:
            raise StopIteration
        return b"%d" % number

    return FunctionSerializer(to_bytes, int)


def five_to_nine() -> Iterator[int]:
    yield from range(5, 10)


@pytest.mark.smoke
async def test_values_on_trio(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("s")
        writer: EventWriter[int]
        async with client.event_writer("s", serializer=NUMBERS) as writer:
            assert repr(writer).startswith("<EventWriter of ")
            await (await writer.write_event(0))
            await (await writer.write_events([1, 2], ["a", "b"])).wait()
            await (await writer.write_batch([3, 4]))
            await writer.write_events(five_to_nine(), "k")
            with pytest.raises(InvalidArgumentError, match="fewer routing keys"):
                await writer.write_events([11, 12], ["a"])
            with pytest.raises(InvalidArgumentError, match="Arrow"):
                await writer.write_events(pa.array([b"11"]))
            with pytest.raises(TypeError):
                await writer.write_event("text")  # type: ignore[arg-type]
        assert sorted(await take(client.follow_events("s", serializer=NUMBERS), 10)) == WANTED
        await client.create_stream("t")
        async with client.begin_transaction("t", serializer=NUMBERS) as transaction:
            await transaction.write_event(0)
            await transaction.write_events([1, 2], [None, "b"])
            resumed = await client.resume_transaction("t", transaction.txn_id, serializer=NUMBERS)
            await resumed.write_events(range(3, 10))
            await resumed.flush()
            await transaction.commit()
        await transaction.wait_committed()
        assert sorted([int(each) async for batch in client.read_events("t") for each in batch]) == WANTED
        await client.create_stream("r")
        name = uuid4()
        for _ in range(2):
            async with client.resumable_writer(
                "r", name, serializer=NUMBERS, first_event_number=1
            ) as numbered:
                await numbered.write_event(0)
                await numbered.write_batch([1, 2])
                await numbered.write_events(range(3, 10))
        assert [int(each) async for batch in client.read_events("r") for each in batch] == WANTED


async def take(events: StreamFollower[int], count: int) -> list[int]:
    return [(await anext(events)).value for _ in range(count)]


async def test_large_values(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("s", 1)
        text = "x" * (9 << 20)
        async with client.event_writer("s", serializer=Utf8Serializer(), large_events=True) as writer:
            await (await writer.write_event(text))
            await writer.write_events(["a", text])
        async with client.follow_events("s", serializer=Utf8Serializer()) as events:
            assert [(await anext(events)).value for _ in range(3)] == [text, "a", text]


async def test_what_a_serializer_must_be(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("s", 1)
        for wrong in (int, "json"):
            with pytest.raises(ArgumentTypeError, match="serializer"):
                client.event_writer("s", serializer=wrong)  # type: ignore[call-overload]
            with pytest.raises(ArgumentTypeError, match="serializer"):
                await client.begin_transaction("s", serializer=wrong)  # type: ignore[call-overload]
        async with client.event_writer("s", serializer=FunctionSerializer(str, int)) as writer:  # type: ignore[arg-type]
            with pytest.raises(EncodeError, match=r"/s: an event must .* its serializer returned str"):
                await writer.write_event(1)
        async with client.event_writer("s", serializer=failing()) as writer:
            with pytest.raises(RuntimeError, match="StopIteration"):
                await writer.write_events(range(5))
        assert [int(each) async for batch in client.read_events("s") for each in batch] == [0, 1, 2]


def test_values_in_the_blocking_client(config: PravegaConfig) -> None:
    with sync.open_client(config) as client:
        client.create_stream("s", 1)
        with client.event_writer("s", serializer=NUMBERS) as writer:
            writer.write_event(0).wait()
            writer.write_events([1, 2], ["a", "b"])
            writer.write_batch([3, 4])
            writer.write_events(five_to_nine(), "k").wait()
            with pytest.raises(InvalidArgumentError, match="fewer routing keys"):
                writer.write_events([11, 12], ["a"])
            with pytest.raises(InvalidArgumentError, match="Arrow"):
                writer.write_events(pa.array([b"11"]))
            with pytest.raises(TypeError):
                writer.write_event("text")  # type: ignore[arg-type]
        assert numbers(client.read_events("s")) == WANTED
        client.create_stream("t", 1)
        with client.begin_transaction("t", serializer=NUMBERS) as transaction:
            transaction.write_event(0)
            transaction.write_events(five_to_nine())
            resumed = client.resume_transaction("t", transaction.txn_id, serializer=NUMBERS)
            resumed.write_events([1, 2, 3, 4])
            resumed.flush()
            transaction.commit()
        transaction.wait_committed()
        assert sorted(numbers(client.read_events("t"))) == WANTED
        client.create_stream("r", 1)
        with client.resumable_writer("r", uuid4(), serializer=NUMBERS) as numbered:
            numbered.write_event(0)
            numbered.write_batch([1, 2])
            numbered.write_events(range(3, 10))
        assert numbers(client.read_events("r")) == WANTED
        with client.event_writer("s", serializer=failing()) as broken:
            with pytest.raises(RuntimeError, match="StopIteration"):
                broken.write_events(range(5))
        assert numbers(client.read_events("s")) == [*WANTED, 0, 1, 2]


def numbers(batches: Iterable[Iterable[bytes]]) -> list[int]:
    return [int(each) for batch in batches for each in batch]


def test_values_in_the_asyncio_client(config: PravegaConfig) -> None:
    async def main() -> None:
        async with aio.open_client(config) as client:
            await client.create_stream("s", 1)
            async with client.event_writer("s", serializer=NUMBERS) as writer:
                await (await writer.write_event(0))
                await (await writer.write_events([1, 2], ["a", "b"]))
                await writer.write_batch([3, 4])
                ack = await writer.write_events(five_to_nine(), "k")
                await ack
                await ack
                assert ack.done
            assert [int(each) async for batch in client.read_events("s") for each in batch] == WANTED
            await client.create_stream("t", 1)
            async with client.begin_transaction("t", serializer=NUMBERS) as transaction:
                await transaction.write_event(0)
                resumed = await client.resume_transaction("t", transaction.txn_id, serializer=NUMBERS)
                await resumed.write_events(range(1, 10))
                await resumed.flush()
                await transaction.commit()
            await transaction.wait_committed()
            assert sorted([int(each) async for batch in client.read_events("t") for each in batch]) == WANTED
            await client.create_stream("r", 1)
            async with client.resumable_writer("r", uuid4(), serializer=NUMBERS) as numbered:
                await numbered.write_events(range(10))
            assert [int(each) async for batch in client.read_events("r") for each in batch] == WANTED
            async with client.event_writer("s", serializer=JsonSerializer()) as texts:
                await texts.write_event({"celsius": 21.5})

    asyncio.run(main())
