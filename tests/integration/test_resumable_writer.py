"""Writers whose sequence of events another process goes on with."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace
from itertools import islice
from uuid import UUID, uuid4

import pytest
import trio

from pravega_wire import PravegaClient, PravegaConfig, ResumableWriter, open_client, sync
from pravega_wire.errors import (
    EventTooLargeError,
    InvalidArgumentError,
    RetriesExhaustedError,
    StreamSealedError,
    WriterHistoryLostError,
)
from pravega_wire.protocol import commands as c
from pravega_wire.testing import FaultProxy
from tests.faults.support import assert_exactly, event_of, read_all, scale_to


async def write_to(writer: ResumableWriter, last: int) -> None:
    """Write the sequence up to event ``last``, from where the writer begins."""
    while writer.next_event_number <= last:
        await writer.write_event(*event_of(writer.next_event_number - 1))


async def create(client: PravegaClient, segments: int) -> None:
    """A stream that may be scaled down to one segment."""
    await client.create_stream("r", 1)
    if segments > 1:
        await scale_to(client, "r", segments)


def run_killed(config: PravegaConfig, writer_id: UUID, kill_after: int) -> None:
    """A process that writes the sequence and is killed with SIGKILL in the middle of it."""
    code = f"""
import os, signal, sys, trio
from uuid import UUID
from pravega_wire import PravegaConfig, open_client
from tests.faults.support import event_of
async def main():
    config = PravegaConfig.from_defaults(controller_uri={config.controller_uri!r},
                                         scope={config.scope!r}, env={{}})
    async with open_client(config) as client:
        async with client.resumable_writer("r", UUID({str(writer_id)!r})) as writer:
            while True:
                await writer.write_event(*event_of(writer.next_event_number - 1))
                if writer.events_acknowledged >= {kill_after}:
                    os.kill(os.getpid(), signal.SIGKILL)
trio.run(main)
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=120)
    assert done.returncode == -9


@pytest.mark.parametrize("segments", [1, 4])
async def test_a_killed_process_is_followed_by_another(config: PravegaConfig, segments: int) -> None:
    """Killed again and again with events under way, and the stream scales meanwhile: each event once."""
    writer_id = uuid4()

    async with open_client(config) as client:
        await create(client, segments)
        lasts = []
        for number in range(4):
            await trio.to_thread.run_sync(run_killed, config, writer_id, 3000)
            if number % 2:
                await scale_to(client, "r", 3 if number == 1 else segments)
            async with client.resumable_writer("r", writer_id) as writer:
                lasts.append(writer.last_stored)
                assert writer.next_event_number == writer.last_stored + 1
                for key in range(20):
                    assert writer.last_stored_of(f"key-{key}") >= writer.last_stored
        # Keys fall on every segment, so each process has got on.
        assert lasts == sorted(lasts)
        assert lasts[-1] > 3000
        async with client.resumable_writer("r", writer_id) as writer:
            await write_to(writer, 100_000)
        assert_exactly(await read_all(client, "r"), 100_000)


@pytest.mark.smoke
async def test_starting_early_leaves_out_what_is_there(config: PravegaConfig) -> None:
    writer_id = uuid4()

    async with open_client(config) as client:
        await create(client, 4)
        async with client.resumable_writer("r", writer_id) as writer:
            assert writer.last_stored == 0
            await write_to(writer, 500)
        async with client.resumable_writer("r", writer_id, first_event_number=1) as writer:
            assert writer.last_stored == 500
            assert writer.last_stored_of("any") == 500
            assert writer.writer_id == writer_id
            first = await writer.write_event(*event_of(0))
            assert first.done
            # The three ways of writing number events alike.
            rest = [event_of(number) for number in range(1, 700)]
            ack = await writer.write_events(
                [event for event, _ in rest[:599]], (key for _, key in rest[:599])
            )
            await ack.wait()
            for event, key in rest[599:]:
                await writer.write_batch([event], key)
            assert (writer.events_skipped, writer.next_event_number) == (500, 701)
        assert writer.events_written == 200
        assert_exactly(await read_all(client, "r"), 700)


@pytest.mark.smoke
async def test_without_keys_and_as_batches(config: PravegaConfig) -> None:
    writer_id = uuid4()

    async with open_client(config) as client:
        await create(client, 3)
        for attempt in range(2):
            async with client.resumable_writer("r", writer_id, first_event_number=1) as writer:
                await writer.write_events([b"%d" % number for number in range(300)])
                for number in range(10):
                    await (await writer.write_batch([b"b%d:%d" % (number, n) for n in range(30)])).wait()
                await (await writer.write_batch([])).wait()
                assert len(writer.segments) == 3 - attempt
            if attempt == 0:
                await scale_to(client, "r", 2)
        found = await read_all(client, "r")
        expected = [b"%d" % n for n in range(300)]
        expected += [b"b%d:%d" % (number, n) for number in range(10) for n in range(30)]
        assert sorted(found) == sorted(expected)
        for number in range(10):
            first = found.index(b"b%d:0" % number)
            assert found[first : first + 30] == [b"b%d:%d" % (number, n) for n in range(30)]


@pytest.mark.parametrize("pauses", [(0.002, 0.001), (0.02, 0.0), (0.0, 0.02)])
async def test_two_processes_at_once_do_no_harm(
    config: PravegaConfig, fault_proxy: FaultProxy, pauses: tuple[float, float]
) -> None:
    """Both write the whole sequence, one of them over connections that break, while the stream scales."""
    writer_id = uuid4()
    total = 20_000

    async with (
        open_client(config) as client,
        open_client(config, address_map=fault_proxy.address_map) as other,
    ):
        await create(client, 2)

        async def write(through: PravegaClient, pause: float) -> None:
            async with through.resumable_writer(
                "r", writer_id, first_event_number=1, max_outstanding_bytes=100_000
            ) as writer:
                while writer.next_event_number <= total:
                    await write_to(writer, min(total, writer.next_event_number + 200))
                    await trio.sleep(pause)

        async def disturb() -> None:
            for count in (4, 1, 3):
                await trio.sleep(0.2)
                fault_proxy.cut_all()
                await scale_to(client, "r", count)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write, client, pauses[0])
            nursery.start_soon(write, other, pauses[1])
            nursery.start_soon(disturb)
        assert_exactly(await read_all(client, "r"), total)


async def test_one_that_is_behind_writes_nothing_twice(config: PravegaConfig) -> None:
    """Open since before the other wrote, it learns of each segment what that has only as it goes on."""
    writer_id = uuid4()

    async with open_client(config) as client, open_client(config) as other:
        await create(client, 2)
        async with client.resumable_writer("r", writer_id, first_event_number=1) as behind:
            async with other.resumable_writer("r", writer_id, first_event_number=1) as ahead:
                await write_to(ahead, 3000)
                for through in (500, 1000):
                    await write_to(behind, through)
                    await behind.flush()
                # The segments that it knows are sealed, with events that it has not come to yet; ...
                await scale_to(client, "r", 3)
                await write_to(ahead, 6000)
                await ahead.flush()
                for through in (1500, 2000, 4000):
                    await write_to(behind, through)
                    await behind.flush()
                # ... so are others, that have come and gone meanwhile; ...
                for last, segments in ((8000, 4), (9000, 5), (9100, 1)):
                    await scale_to(client, "r", segments)
                    await write_to(ahead, last)
                    await ahead.flush()
                # ... and the one there is has nothing.
                await scale_to(client, "r", 2)
                await write_to(behind, 5000)
                await behind.flush()
            await write_to(behind, 10_000)
        events = await read_all(client, "r")
        assert_exactly(events, 10_000)


@pytest.mark.parametrize("seed", range(3))
async def test_merged_segments_are_handed_over_in_the_order_of_numbers(
    config: PravegaConfig, fault_proxy: FaultProxy, seed: int
) -> None:
    """Acknowledgements are lost while segments are split and merged: what was stored is not known of each."""
    chance = random.Random(seed)
    writer_id = uuid4()

    async with (
        open_client(config) as client,
        open_client(config, address_map=fault_proxy.address_map) as other,
    ):
        await create(client, 4)
        async with other.resumable_writer("r", writer_id, max_outstanding_bytes=200_000) as writer:
            for count in (2, 3, 1, 4, 1):
                fault_proxy.cut_before_reply(c.DataAppended, times=2, after=chance.randrange(3))
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(scale_to, client, "r", count)
                    await write_to(writer, writer.next_event_number + 3000)
                await write_to(writer, writer.next_event_number + 100)
                fault_proxy.clear()
            await writer.flush()
            total = writer.next_event_number - 1
        assert_exactly(await read_all(client, "r"), total)


async def test_numbers_go_over_to_new_segments_and_outlive_the_old_ones(config: PravegaConfig) -> None:
    """Truncating away the segments that hold the numbers does no harm to one that has moved on."""
    writer_id = uuid4()

    async with open_client(config) as client:
        await client.create_stream("r", 1)
        async with client.resumable_writer("r", writer_id) as writer:
            await write_to(writer, 100)
            await writer.flush()
            await client.scale_stream("r", [0], [(0.0, 0.5), (0.5, 1.0)])
            # One event notices the scale; its key is of one of the two segments only.
            await write_to(writer, 101)
            await writer.flush()
            await client.truncate_stream("r", await client.tail("r"))
        async with client.resumable_writer("r", writer_id) as writer:
            assert writer.last_stored == 101

        # Moved on while no writer was there, and truncated: nobody can know.
        await scale_to(client, "r", 3)
        await client.truncate_stream("r", await client.tail("r"))
        with pytest.raises(WriterHistoryLostError, match=str(writer_id)):
            async with client.resumable_writer("r", writer_id):
                pass
        async with client.resumable_writer("r", writer_id, first_event_number=102) as writer:
            await write_to(writer, 200)
        found = await read_all(client, "r")
        assert len(found) == 99


async def test_truncation_while_a_writer_is_idle(config: PravegaConfig) -> None:
    """Its segments, and others after them, are gone when it goes on."""
    writer_id = uuid4()

    async with open_client(config) as client:
        await create(client, 2)
        async with client.resumable_writer("r", writer_id) as writer:
            await write_to(writer, 100)
            await writer.flush()
            for segments in (3, 1, 2):
                await scale_to(client, "r", segments)
                await client.truncate_stream("r", await client.tail("r"))
            await write_to(writer, 200)
        assert len(await read_all(client, "r")) == 100


async def test_the_end_is_recorded_in_a_segment_whose_session_was_not_set_up(config: PravegaConfig) -> None:
    writer_id = uuid4()
    async with open_client(config) as client:
        await client.create_stream("r", 2)
        async with client.resumable_writer("r", writer_id) as writer:
            await (await writer.write_event(b"x", "k")).wait()
            for route in writer._routes:
                if not route.appender.appends.last_stored_number:
                    # As if the answer to its set-up were still under way.
                    route.appender.appends.last_stored_number = None
        async with client.resumable_writer("r", writer_id) as again:
            assert again.last_stored == 1


async def test_errors(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("r", 1)
        with pytest.raises(InvalidArgumentError, match="first_event_number"):
            client.resumable_writer("r", uuid4(), first_event_number=0)
        last, writer_id = 2**63 - 1, uuid4()
        for first in (last, None):
            async with client.resumable_writer("r", writer_id, first_event_number=first) as writer:
                if first is not None:
                    await writer.write_event(b"a", "k")
                with pytest.raises(InvalidArgumentError, match=rf"no event number after {last}"):
                    await writer.write_event(b"b", "k")
                assert writer.next_event_number == last + 1
        async with client.resumable_writer("r", uuid4()) as writer:
            with pytest.raises(EventTooLargeError):
                await writer.write_event(bytes(9 << 20))
            with pytest.raises(EventTooLargeError, match="batch"):
                await writer.write_batch([bytes(5 << 20)] * 2)
            with pytest.raises(EventTooLargeError):
                await writer.write_events([bytes(9 << 20)])
            with pytest.raises(InvalidArgumentError, match="key"):
                await writer.write_event(b"x", 3)  # type: ignore[arg-type]
            with pytest.raises(InvalidArgumentError, match="keys"):
                await writer.write_events([b"x"], [])
            # None of these has taken a number.
            assert writer.next_event_number == 1
            await client.seal_stream("r")
            with pytest.raises(StreamSealedError):
                await (await writer.write_event(b"x")).wait()
        with pytest.raises(StreamSealedError):
            async with client.resumable_writer("r", uuid4()):
                pass


def test_blocking(config: PravegaConfig) -> None:
    writer_id = uuid4()
    with sync.open_client(config) as client:
        client.create_stream("r", 2)
        with client.resumable_writer("r", writer_id) as writer:
            for event, key in map(event_of, range(50)):
                writer.write_event(event, key)
            writer.flush()
        with client.resumable_writer("r", writer_id, first_event_number=41) as writer:
            assert (writer.writer_id, writer.last_stored, writer.last_stored_of("key-1")) == (
                writer_id,
                50,
                50,
            )
            for event, key in map(event_of, range(40, 60)):
                writer.write_event(event, key)
            assert (writer.next_event_number, writer.events_skipped) == (61, 10)
        found = [event for batch in client.read_events("r") for event in batch]
        assert_exactly(islice(found, None), 60)


async def test_a_stream_that_was_created_again_is_named(config: PravegaConfig) -> None:
    async with open_client(replace(config, operation_timeout=5)) as client:
        await client.create_stream("again", 1)
        async with client.resumable_writer("again", uuid4()) as writer:
            await (await writer.write_event(b"1")).wait()
            await client.delete_stream("again", seal=True)
            await client.create_stream("again", 1)
            with pytest.raises(RetriesExhaustedError, match="If the stream was deleted and created again"):
                await (await writer.write_event(b"2")).wait()
