"""Connections that are cut between the server's work and its answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from uuid import uuid4

import pytest
import trio
import trio.testing

from pravega_wire import (
    EventWriter,
    PravegaClient,
    PravegaConfig,
    StagingWriter,
    Transaction,
    TxnStatus,
    open_client,
)
from pravega_wire.errors import ClosedError, RetriesExhaustedError, TransportError
from pravega_wire.protocol import commands as c
from pravega_wire.segment import store
from pravega_wire.testing import FaultProxy
from tests.faults.support import assert_exactly, event_of, read_all


@asynccontextmanager
async def through(
    config: PravegaConfig, proxy: FaultProxy, stream: str, segments: int = 1
) -> AsyncIterator[PravegaClient]:
    """A client behind the proxy, and a new stream."""
    with trio.fail_after(120):
        async with open_client(config, address_map=proxy.address_map) as client:
            await client.create_stream(stream, segments)
            yield client


async def write_through_cuts(
    writer: EventWriter | Transaction | StagingWriter, proxy: FaultProxy, at_once: int
) -> int:
    """Write events until all cuts are made; return how many."""
    written = 0
    while proxy.cuts_due:
        for _ in range(at_once):
            await writer.write_event(*event_of(written))
            written += 1
        await trio.sleep(0.001)
        assert written < 2_000_000
    return written


@pytest.mark.parametrize("segments", [1, 4])
async def test_fifty_connections_lost_before_the_acknowledgement(
    config: PravegaConfig, fault_proxy: FaultProxy, segments: int
) -> None:
    """The server has stored the block each time, and the client cannot know it."""

    async with through(config, fault_proxy, "cut", segments) as client:
        async with client.event_writer("cut") as writer:
            fault_proxy.cut_before_reply(c.DataAppended, times=50, after=1)
            written = await write_through_cuts(writer, fault_proxy, 100)
            for _ in range(1000):
                await writer.write_event(*event_of(written))
                written += 1
            await writer.flush()
        assert fault_proxy.cuts >= 50
        assert_exactly(await read_all(client, "cut"), written)


class _Later:
    """trio, with a clock that can be put forward."""

    passed = 0.0

    def current_time(self) -> float:
        return trio.current_time() + self.passed

    def __getattr__(self, name: str) -> object:
        return getattr(trio, name)


async def test_a_segment_that_nothing_is_written_to_does_not_fail_the_writer(
    config: PravegaConfig, fault_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection is lost now and then, over a longer time than an operation may take."""
    later = _Later()
    monkeypatch.setattr(store, "trio", later)

    async with through(config, fault_proxy, "idle", 2) as client:
        async with client.event_writer("idle", max_outstanding_bytes=1000) as writer:
            for number in range(6):
                for _ in range(50):
                    # All of one key; waiting for room urges the other segment's appender as well.
                    await writer.write_event(b"%d" % number * 100, "key")
                await writer.flush()
                # Both are connected before the cut, and have noticed it before time passes.
                await trio.testing.wait_all_tasks_blocked(0.05)
                fault_proxy.cut_all()
                await trio.testing.wait_all_tasks_blocked(0.05)
                later.passed += 0.6 * config.operation_timeout
        assert len(await read_all(client, "idle")) == 300


async def test_what_another_process_has_stored_is_a_success(
    config: PravegaConfig, fault_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection lost long after all that was waited for was found to be stored is the first one lost."""
    later = _Later()
    monkeypatch.setattr(store, "trio", later)
    writer_id = uuid4()

    async with through(config, fault_proxy, "shared") as client, open_client(config) as sound:
        async with client.resumable_writer("shared", writer_id, first_event_number=1) as behind:
            async with sound.resumable_writer("shared", writer_id, first_event_number=1) as ahead:
                for number in range(20):
                    await ahead.write_event(*event_of(number))
            fault_proxy.cut_all()
            await trio.testing.wait_all_tasks_blocked(0.05)
            for number in range(10):
                await behind.write_event(*event_of(number))
            await behind.flush()
            later.passed += 2 * config.operation_timeout
            fault_proxy.pause()
            for number in range(10, 30):
                await behind.write_event(*event_of(number))
            await trio.testing.wait_all_tasks_blocked(0.05)
            fault_proxy.cut_all()
            fault_proxy.resume()
        assert behind.metrics().reconnects == 2
        assert_exactly(await read_all(sound, "shared"), 30)


async def test_a_mark_whose_answer_is_lost_was_moved(config: PravegaConfig, fault_proxy: FaultProxy) -> None:
    async with through(config, fault_proxy, "marked") as client:
        async with client.revisioned_stream("marked") as log:
            first = await log.write_unconditionally(b"1")
            second = await log.write_unconditionally(b"2")
            for before, after in ((None, first), (first, second), (second, None)):
                fault_proxy.cut_before_reply(c.SegmentAttributeUpdated)
                assert await log.compare_and_set_mark(before, after)
                assert fault_proxy.cuts_due == 0
                assert await log.mark() == after
            assert not await log.compare_and_set_mark(first, second)


async def test_closing_tells_whoever_waits_for_an_answer(
    config: PravegaConfig, fault_proxy: FaultProxy
) -> None:
    async with through(config, fault_proxy, "closing") as client:
        log = await client.revisioned_stream("closing")
        known = await log.write_unconditionally(b"1")
        fault_proxy.pause()

        async def write() -> None:
            with pytest.raises(ClosedError, match="closing"):
                await log.write_conditionally(known, b"2")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            await trio.testing.wait_all_tasks_blocked(0.05)
            await log.aclose()
        fault_proxy.resume()
        with pytest.raises(ClosedError, match="closing"):
            await log.write_conditionally(known, b"2")


async def test_every_acknowledgement_alone_is_lost_once(
    config: PravegaConfig, fault_proxy: FaultProxy
) -> None:
    """One event under way at a time: each is stored, cut off, and found again at the next set-up."""

    async with through(config, fault_proxy, "alone") as client:
        async with client.event_writer("alone") as writer:
            for number in range(20):
                fault_proxy.cut_before_reply(c.DataAppended)
                await (await writer.write_event(*event_of(number))).wait()
                assert fault_proxy.cuts_due == 0
        assert fault_proxy.cuts == 20
        assert_exactly(await read_all(client, "alone"), 20)


async def test_the_set_up_reply_is_lost(config: PravegaConfig, fault_proxy: FaultProxy) -> None:
    async with through(config, fault_proxy, "setup") as client:
        fault_proxy.cut_before_reply(c.AppendSetup, times=3)
        async with client.event_writer("setup") as writer:
            await writer.write_events(
                [event_of(n)[0] for n in range(500)], [event_of(n)[1] for n in range(500)]
            )
        assert fault_proxy.cuts == 3
        assert_exactly(await read_all(client, "setup"), 500)


@pytest.mark.smoke
async def test_transaction_with_lost_acknowledgements(config: PravegaConfig, fault_proxy: FaultProxy) -> None:
    async with through(config, fault_proxy, "txn", 2) as client:
        async with client.begin_transaction("txn") as txn:
            fault_proxy.cut_before_reply(c.DataAppended, times=10)
            written = await write_through_cuts(txn, fault_proxy, 50)
            await txn.commit()
            await txn.wait_committed()
            assert await txn.status() is TxnStatus.COMMITTED
        assert fault_proxy.cuts == 10
        assert_exactly(await read_all(client, "txn"), written)


async def test_staged_contents_are_those_that_are_stored(
    config: PravegaConfig, fault_proxy: FaultProxy
) -> None:
    """Blocks that are sent again count once."""

    async with through(config, fault_proxy, "staged", 2) as client:
        txn = await client.begin_transaction("staged")
        async with client.staging("staged", txn.txn_id).writer() as writer:
            fault_proxy.cut_before_reply(c.DataAppended, times=10)
            written = await write_through_cuts(writer, fault_proxy, 50)
            contents = await writer.contents()
        assert fault_proxy.cuts == 10
        merged = await client.staging("staged", txn.txn_id).merge([writer.staging_id])
        assert merged == {segment_id: (each.length,) for segment_id, each in contents.items()}
        await txn.commit()
        await txn.wait_committed()
        found = {
            each.segment_id: (each.length, await client.range_crc32(each))
            for each in await client.segment_ranges("staged")
        }
        assert found == contents  # both of epoch 0
        assert_exactly(await read_all(client, "staged"), written)


@pytest.mark.smoke
async def test_conditional_write_whose_answer_is_lost_is_not_written_twice(
    config: PravegaConfig, fault_proxy: FaultProxy
) -> None:
    async with through(config, fault_proxy, "state") as client:
        async with client.revisioned_stream("state") as state:
            latest = await state.latest_revision()
            for number in range(10):
                fault_proxy.cut_before_reply(c.DataAppended)
                following = await state.write_conditionally(latest, b"value %d" % number)
                assert following is not None
                latest = following
            assert fault_proxy.cuts == 10
            values = [value async for _, value in await state.read_from(await state.oldest_revision())]
        assert values == [b"value %d" % number for number in range(10)]


@pytest.mark.smoke
async def test_reads_go_on_where_they_were(config: PravegaConfig, fault_proxy: FaultProxy) -> None:
    async with through(config, fault_proxy, "reads") as client:
        async with client.event_writer("reads") as writer:
            await writer.write_events(
                [event_of(n)[0] for n in range(100_000)], [event_of(n)[1] for n in range(100_000)]
            )
        fault_proxy.cut_before_reply(c.SegmentRead, times=5)
        assert_exactly(await read_all(client, "reads"), 100_000)
        assert fault_proxy.cuts == 5


async def test_what_is_paused_twice_goes_on_at_the_first_resume(
    config: PravegaConfig, fault_proxy: FaultProxy
) -> None:
    async with through(config, fault_proxy, "paused") as client:
        async with client.event_writer("paused") as writer:
            for number in range(20):
                fault_proxy.pause()
                await writer.write_event(*event_of(number))
                # It is on its way, and held by the proxy.
                await trio.testing.wait_all_tasks_blocked(0.01)
                fault_proxy.pause()
                fault_proxy.resume()
                await writer.flush()
            assert writer.metrics().reconnects == 0
        assert_exactly(await read_all(client, "paused"), 20)


async def test_a_store_that_refuses_for_too_long_is_named(
    config: PravegaConfig, fault_proxy: FaultProxy
) -> None:
    impatient = replace(config, operation_timeout=2)

    async with through(impatient, fault_proxy, "refused") as client:
        fault_proxy.refuse()
        with pytest.raises(RetriesExhaustedError, match=r"refused/0") as raised:
            async with client.event_writer("refused") as writer:
                await writer.write_event(b"never stored")
        assert isinstance(raised.value.__cause__, TransportError)
        fault_proxy.refuse(False)
        # The client itself is as usable as before.
        async with client.event_writer("refused") as writer:
            await writer.write_event(*event_of(0))
        assert_exactly(await read_all(client, "refused"), 1)


async def test_a_store_that_speaks_garbage(config: PravegaConfig, fault_proxy: FaultProxy) -> None:
    """Bad bytes end the connection and are not taken for answers; the next connection goes on."""

    async with through(config, fault_proxy, "garbage") as client:
        async with client.event_writer("garbage") as writer:
            for number in range(100):
                if number % 20 == 10:
                    fault_proxy.answer_garbage(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                await (await writer.write_event(*event_of(number))).wait()
        assert fault_proxy.links_opened >= 5
        assert_exactly(await read_all(client, "garbage"), 100)
