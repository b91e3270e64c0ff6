"""What an event writer does besides appending one event after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from itertools import chain
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
import trio

from pravega_wire import EventWriter, PravegaConfig, Transaction, TxnStatus, open_client
from pravega_wire.controller.types import NodeUri
from pravega_wire.errors import (
    ClosedError,
    ControllerError,
    EventTooLargeError,
    InvalidArgumentError,
    RetriesExhaustedError,
    StreamNotFoundError,
    TransactionsUnlistableError,
)
from tests.faults.support import scale_to
from tests.inside import core_of


@pytest.mark.smoke
async def test_a_batch_is_whole_and_in_one_piece(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("b", 4)
        async with client.event_writer("b") as writer:
            for number in range(40):
                key = f"k{number % 5}"
                await writer.write_event(b"before", key)
                ack = await writer.write_batch([b"%d:%d" % (number, n) for n in range(50)], key)
                await writer.write_event(b"after", key)
                if number == 20:
                    await ack.wait()
            await (await writer.write_batch([])).wait()
            with pytest.raises(EventTooLargeError, match="batch"):
                await writer.write_batch([bytes(5_000_000)] * 2, "k")
        found = []
        for each in await client.segment_ranges("b"):
            found += [event async for batch in client.read_range(each) for event in batch]
        assert len(found) == 40 * 52
        for number in range(40):
            first = found.index(b"%d:0" % number)
            assert found[first : first + 50] == [b"%d:%d" % (number, n) for n in range(50)]


@pytest.mark.parametrize("keys", [["a"], ["a"] * 3], ids=["fewer", "more"])
@pytest.mark.parametrize("writer_of", ["plain", "resumable", "transaction"])
async def test_keys_that_are_not_as_many_as_the_events(
    config: PravegaConfig, keys: list[str | None], writer_of: str
) -> None:
    async with open_client(config) as client:
        await client.create_stream("k", 2)

        async def refuses(writer: EventWriter | Transaction, *, nothing_of_iterators: bool) -> None:
            with pytest.raises(InvalidArgumentError, match="routing keys"):
                await writer.write_events([b"x", b"y"], keys)
            with pytest.raises(InvalidArgumentError, match="routing keys"):
                await writer.write_events(pa.array([b"x", b"y"], pa.binary()), keys)
            assert writer.metrics().events_written == 0
            # The lengths of these are found out on the way.
            with pytest.raises(InvalidArgumentError, match="routing keys"):
                await writer.write_events((each for each in [b"x", b"y"]), (each for each in keys))
            if nothing_of_iterators:
                assert writer.metrics().events_written == 0
            with pytest.raises(InvalidArgumentError, match="routing keys"):
                await writer.write_events([b"x"] * 5000, iter(["k"] * (5001 if len(keys) > 2 else 4999)))

        if writer_of == "plain":
            async with client.event_writer("k") as writer:
                await refuses(writer, nothing_of_iterators=True)
        elif writer_of == "resumable":
            async with client.resumable_writer("k", uuid4()) as numbered:
                await refuses(numbered, nothing_of_iterators=False)
        else:
            async with client.begin_transaction("k") as txn:
                await refuses(txn, nothing_of_iterators=True)


def numbers_in_one_buffer() -> Iterator[Any]:
    """What a loop over ``readinto`` yields."""
    buffer = bytearray(4)
    for number in range(1000):
        buffer[:] = b"%04d" % number
        yield buffer


@pytest.mark.parametrize("writer_of", ["plain", "resumable", "transaction"])
async def test_an_iterable_may_use_one_buffer_for_all_events(config: PravegaConfig, writer_of: str) -> None:
    numbers = [b"%04d" % number for number in range(1000)]
    async with open_client(config) as client:
        await client.create_stream("s", 1)
        if writer_of == "transaction":
            async with client.begin_transaction("s") as txn:
                await txn.write_events(numbers_in_one_buffer(), (str(n) for n in range(1000)))
                await txn.commit()
                await txn.wait_committed()
        else:
            plain = client.event_writer("s")
            async with plain if writer_of == "plain" else client.resumable_writer("s", uuid4()) as writer:
                await writer.write_events(numbers_in_one_buffer(), (str(n) for n in range(1000)))
                await writer.write_batch(numbers_in_one_buffer())
            numbers *= 2
        assert [event async for batch in client.read_events("s") for event in batch] == numbers


async def test_half_of_a_surrogate_pair_is_a_key_like_others(config: PravegaConfig) -> None:
    """Keys are hashed by their UTF-16 units. Arrow arrays cannot hold it."""

    async with open_client(config) as client:
        await client.create_stream("k", 2)
        async with client.event_writer("k") as writer:
            await writer.write_event(b"x", "\ud800")
            await writer.write_events([b"x"], ["\ud800"])
            await writer.write_events(pa.array([b"x"], pa.binary()), "\ud800")
            with pytest.raises(InvalidArgumentError, match="routing keys"):
                await writer.write_events(pa.array([b"x"], pa.binary()), ["\ud800"])
        assert [event async for batch in client.read_events("k") for event in batch] == [b"x"] * 3


async def test_a_batch_stays_whole_when_its_segment_is_sealed(config: PravegaConfig) -> None:
    """Batches that were not acknowledged when the stream scaled move to the successors as batches."""

    async with open_client(config) as client:
        await client.create_stream("s", 1)
        written = 0
        async with (
            client.event_writer("s", max_outstanding_bytes=1 << 20) as writer,
            trio.open_nursery() as nursery,
        ):

            async def write() -> None:
                nonlocal written
                while len(writer.segments) < 2:
                    for _ in range(20):
                        events = [b"%06d:%03d" % (written, n) for n in range(100)]
                        await writer.write_batch(events, f"key-{written % 7}")
                        written += 1
                    await trio.lowlevel.checkpoint()

            nursery.start_soon(write)
            await client.scale_stream("s", [0], [(0.0, 0.5), (0.5, 1.0)])
            await writer.flush()
        by_key: dict[int, list[int]] = {}
        total = 0
        for each in await client.segment_ranges("s"):
            events = [event async for batch in client.read_range(each) for event in batch]
            total += len(events)
            for start in range(0, len(events), 100):
                number = int(events[start][:6])
                assert events[start : start + 100] == [b"%06d:%03d" % (number, n) for n in range(100)]
                by_key.setdefault(number % 7, []).append(number)
        assert total == written * 100
        assert all(numbers == sorted(numbers) for numbers in by_key.values())


@pytest.mark.smoke
async def test_a_partitioner_of_ones_own(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("p", 4)
        async with client.event_writer("p", partitioner=lambda key: int(key) / 100) as writer:
            keys = [str(number) for number in range(100)]
            await writer.write_events([key.encode() for key in keys], keys)
            await writer.write_event(b"10", "10")
        for each in await client.segment_ranges("p"):
            events = [int(event) async for batch in client.read_range(each) for event in batch]
            low = each.segment_id * 25
            assert all(low <= number <= low + 25 for number in events)


@pytest.mark.smoke
async def test_metrics_add_up(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("m", 2)
        async with client.event_writer("m") as writer:
            assert writer.metrics().latency(0.5) == 0
            await writer.write_events([b"x" * 10] * 500)
            await writer.write_event(b"y" * 20, "k")
            before = writer.metrics()
            assert before.events_written == 501
            assert before.bytes_written == 5020
            await writer.flush()
            after = writer.metrics()
            assert (after.events_acknowledged, after.bytes_acknowledged) == (501, 5020)
            assert after.outstanding_bytes == 0
            assert after.reconnects == 0
            assert sum(after.latency_buckets) == 501
            assert 0 < after.latency(0.5) <= after.latency(0.99) < 60
            with pytest.raises(InvalidArgumentError, match="between 0 and 1"):
                after.latency(99)


async def test_time_is_noted_and_may_not_run_backwards(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("t", 2)
        async with client.event_writer("t") as writer:
            await writer.note_time(1000)
            await writer.write_event(b"x", "k")
            await writer.note_time(2000)
            with pytest.raises(ControllerError, match="INVALID_TIME"):
                await writer.note_time(1500)
        async with client.event_writer("t", note_time_every=0.05) as writer:
            with pytest.raises(InvalidArgumentError, match="automatically"):
                await writer.note_time(3000)
            while not writer._has_noted:  # nobody tells when it has
                await trio.sleep(0.01)


@pytest.mark.parametrize("resumable", [False, True])
async def test_times_are_reported_after_an_unused_segment_was_deleted(
    config: PravegaConfig, resumable: bool
) -> None:
    async with open_client(config) as client:
        await client.create_stream("t", 2)
        writer: EventWriter[bytes] = (
            client.resumable_writer("t", uuid4()) if resumable else client.event_writer("t")
        )
        async with writer:
            await (await writer.write_event(b"x", "k"))
            await writer.note_time(1000)
            await scale_to(client, "t", 2)
            await client.truncate_stream("t", await client.tail("t"))
            await writer.note_time(2000)
            await (await writer.write_event(b"y", "k"))
            await writer.note_time(3000)
        assert [event async for batch in client.read_events("t") for event in batch] == [b"y"]


async def test_times_are_refused_for_a_stream_whose_keys_end_below_1(config: PravegaConfig) -> None:
    """A controller would look for the rest of the keys for ever, with all of a processor."""
    refused = pytest.raises(InvalidArgumentError, match=r"/t cannot be reported: its keys end at 0\.9999")
    async with open_client(config) as client:
        await client.create_stream("t", 49)
        for writer in (client.event_writer("t"), client.resumable_writer("t", uuid4())):
            async with writer:
                await writer.write_event(b"x", "k")
                with refused:
                    await writer.note_time(1000)
        with refused:
            async with client.event_writer("t", note_time_every=5):
                pass
        async with client.begin_transaction("t") as txn:
            await txn.write_event(b"y", "k")
            with refused:
                await txn.commit(1000)
            await txn.commit()
            await txn.wait_committed()
        assert [event async for batch in client.read_events("t") for event in batch] == [b"x", b"x", b"y"]


async def test_writers_that_have_ended_leave_the_address_to_the_next(
    config: PravegaConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_client(config) as client:
        await client.create_stream("address", 2)
        asked = []
        ask = core_of(client).controller.get_uri

        async def get_uri(scope: str, stream: str, segment_id: int) -> NodeUri:
            asked.append(segment_id)
            return await ask(scope, stream, segment_id)

        monkeypatch.setattr(core_of(client).controller, "get_uri", get_uri)
        monkeypatch.setattr("pravega_wire.segment.store._CACHE_SECONDS", 1e9)
        for _ in range(3):
            async with client.event_writer("address") as writer:
                await writer.write_events([b"x"] * 50)
            async with client.begin_transaction("address") as transaction:
                await transaction.write_events([b"y"] * 50)
                await transaction.commit()
        assert sorted(asked) == [0, 1]


@pytest.mark.needs("0.12", "listCompletedTransactions")
async def test_ended_transactions_are_listed(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("e", 1)
        good = await client.begin_transaction("e")
        bad = await client.begin_transaction("e")
        await good.commit()
        await good.wait_committed()
        await bad.abort()
        # The server may have forgotten them already (see the method's documentation): it never lies.
        ended = {good.txn_id: TxnStatus.COMMITTED, bad.txn_id: TxnStatus.ABORTED}
        found = await client.completed_transactions("e")
        assert found.items() <= ended.items()


async def test_open_transactions_are_listed(config: PravegaConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_client(config) as client:
        for name in ("o", "other"):
            await client.create_stream(name, 1)
        assert await client.open_transactions("o") == []
        first = await client.begin_transaction("o")
        # Each epoch has a table of its own.
        await client.scale_stream("o", [0], [(0.0, 0.5), (0.5, 1.0)])
        second = await client.begin_transaction("o")
        await client.begin_transaction("other")
        found = await client.open_transactions("o")
        assert [each.txn_id for each in found] == [first.txn_id, second.txn_id]
        assert {each.status for each in found} == {TxnStatus.OPEN}
        assert all(each.began < each.lease_until <= each.ends_by for each in found)
        with pytest.raises(StreamNotFoundError):
            await client.open_transactions("none")
        monkeypatch.setattr("pravega_wire.stream.open_transactions._SCOPES", "_system/_tables/none")
        with pytest.raises(TransactionsUnlistableError, match=r"open transactions of stream .*/o cannot be"):
            await client.open_transactions("o")


@pytest.mark.parametrize("segments", [1, 4])
@pytest.mark.parametrize("keys", ["many", "one", "none", "some"])
async def test_arrow_arrays_are_written_as_other_events_are(
    config: PravegaConfig, segments: int, keys: str
) -> None:
    count = 30_000
    payloads = [b"%05d:" % number + b"." * (number % 50) for number in range(count)]
    array = pa.array(payloads, pa.binary())
    routings: dict[str, Any] = {
        "many": [f"k{number % 37}" for number in range(count)],
        "one": "the-key",
        "none": None,
        "some": [None if number % 3 else f"k{number % 37}" for number in range(count)],
    }
    routing = routings[keys]

    async with open_client(config) as client:
        for name in ("arrow", "plain"):
            await client.create_stream(name, segments)
            async with client.event_writer(name) as writer:
                if name == "plain":
                    await writer.write_events(payloads, routing)
                else:
                    # A slice and chunks are arrays like any other.
                    head = await writer.write_events(
                        array.slice(0, 7), routing if keys in ("one", "none") else routing[:7]
                    )
                    await head.wait()
                    rest = pa.chunked_array([array.slice(7, 1000), array.slice(1007)])
                    await writer.write_events(rest, routing if keys in ("one", "none") else routing[7:])
        found: dict[str, dict[int, list[bytes]]] = {"arrow": {}, "plain": {}}
        for name, by_segment in found.items():
            for each in await client.segment_ranges(name):
                by_segment[each.segment_id] = [
                    event async for batch in client.read_range(each) for event in batch
                ]
        if keys in ("many", "one"):
            # The very same events in the same segments, in the same order per key.
            for segment, events in found["plain"].items():
                other = found["arrow"][segment]
                for residue in range(37) if keys == "many" else range(1):
                    modulus = 37 if keys == "many" else 1
                    assert [e for e in other if int(e[:5]) % modulus == residue] == [
                        e for e in events if int(e[:5]) % modulus == residue
                    ]
        assert sorted(chain.from_iterable(found["arrow"].values())) == sorted(payloads)
        if segments > 1 and keys in ("none", "some"):
            assert all(found["arrow"].values())


async def test_arrays_that_are_no_events(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("bad", 1)
        async with client.event_writer("bad") as writer:
            with pytest.raises(InvalidArgumentError, match="null"):
                await writer.write_events(pa.array([b"a", None]))
            with pytest.raises(InvalidArgumentError, match="int64"):
                await writer.write_events(pa.array([1, 2]))
            with pytest.raises(InvalidArgumentError, match="there are 1 routing keys for 2 events"):
                await writer.write_events(pa.array(["a", "b"]), ["k"])
            with pytest.raises(InvalidArgumentError, match="over the limit"):
                await writer.write_events(pa.array([bytes(9_000_000)]))
            await writer.write_events(pa.array(["text", "é"]))
            await writer.write_events(pa.array([b"12", b"34"], pa.binary(2)))
        events = [event async for batch in client.read_events("bad") for event in batch]
        assert events == [b"text", "é".encode(), b"12", b"34"]


class Colour(StrEnum):
    RED = "red"


async def test_keys_are_strings_of_any_kind_and_writers_are_opened(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("k", 4)
        writer = client.event_writer("k")
        with pytest.raises(ClosedError, match="not open"):
            await writer.write_event(b"x", "key")
        async with writer:
            for wrong in (5, b"bytes"):
                with pytest.raises(InvalidArgumentError, match="routing key must be a string"):
                    await writer.write_event(b"x", wrong)  # type: ignore[arg-type]
                with pytest.raises(InvalidArgumentError, match="routing key must be a string"):
                    await writer.write_events([b"x", b"y"], ["k", wrong])  # type: ignore[list-item]
            await writer.write_event(b"1", Colour.RED)
            await writer.write_events([b"2", b"3"], [Colour.RED, "red"])
            await writer.write_event(b"4", "red")
        found = [event async for batch in client.read_events("k") for event in batch]
        assert found == [b"1", b"2", b"3", b"4"]


def test_a_writer_whose_stream_was_created_again_says_what_it_waits_for(
    config: PravegaConfig, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with open_client(replace(config, operation_timeout=3.0)) as client:
            await client.create_stream("s", 1)
            async with client.event_writer("s") as writer:
                await (await writer.write_event(b"old")).wait()
                # A scale is nothing to warn of.
                await client.scale_stream("s", [0], [(0.0, 1.0)])
                await (await writer.write_event(b"scaled")).wait()
            assert caplog.records == []

            writer = await client.event_writer("s")
            await (await writer.write_event(b"last")).wait()
            await client.seal_stream("s")
            await client.delete_stream("s")
            await client.create_stream("s", 1)
            with pytest.raises(RetriesExhaustedError, match="created again"):
                await (await writer.write_event(b"lost")).wait()
            await writer.aclose()
            [record] = caplog.records
            assert (record.name, record.levelname) == ("pravega_wire.stream.event_writer", "WARNING")
            stream = client.config.resolve("s")
            assert f"writer of stream {stream} waits up to 3 s for" in record.message
            assert f"segment {stream}/1.#epoch.1" in record.message
            assert "does not exist" in record.message

    with caplog.at_level("WARNING", logger="pravega_wire"):
        trio.run(main)


@pytest.mark.parametrize("how", ["one stored after the other", "one by one", "together", "array"])
async def test_events_without_keys_are_distributed(config: PravegaConfig, how: str) -> None:
    segments = 4
    stored_each = how == "one stored after the other"
    payloads = [b"%d" % number for number in range(40 if stored_each else 3000)]
    async with open_client(config) as client:
        await client.create_stream("d", segments)
        async with client.event_writer("d") as writer:
            if how == "together":
                await writer.write_events(payloads)
            elif how == "array":
                await writer.write_events(pa.array(payloads, pa.binary()))
            else:
                for payload in payloads:
                    ack = await writer.write_event(payload)
                    if stored_each:
                        await ack
        found = [
            [event async for batch in client.read_range(each) for event in batch]
            for each in await client.segment_ranges("d")
        ]
        assert sorted(chain.from_iterable(found)) == sorted(payloads)
        assert len(found) == segments
        if stored_each:
            assert {len(events) for events in found} == {len(payloads) // segments}
        else:
            assert all(len(events) >= 200 for events in found), [len(events) for events in found]


@pytest.mark.parametrize("key", ["k", None])
async def test_a_stream_that_scales_in_the_middle_of_a_call(
    config: PravegaConfig, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The events of the call that went to the only segment do not go to its successors as well."""
    # What is read ahead follows the lengths before it: this is many blocks.
    payloads = [b"%04d" % number + bytes(10_000 * (number >= 64)) for number in range(564)]
    async with open_client(config) as client:
        await client.create_stream("m", 1)
        async with client.event_writer("m", max_outstanding_bytes=100_000) as writer:
            wait_for_room = writer._wait_for_room

            async def scale_and_wait() -> None:
                monkeypatch.setattr(writer, "_wait_for_room", wait_for_room)
                await scale_to(client, "m", 2)
                await wait_for_room()

            monkeypatch.setattr(writer, "_wait_for_room", scale_and_wait)
            await writer.write_events(payloads, key)
            await writer.flush()
            assert len(writer.segments) == 2
            assert writer.events_written == len(payloads)
        found = [
            event
            for each in await client.segment_ranges("m")
            async for batch in client.read_range(each)
            for event in batch
        ]
        assert sorted(found) == payloads
