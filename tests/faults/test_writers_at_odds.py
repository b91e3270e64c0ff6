"""Writers in situations that two things make together: tasks, scales, lost answers, errors of callers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
import trio
import trio.testing

from pravega_wire import PravegaConfig, TxnStatus
from pravega_wire import sync as blocking
from pravega_wire.controller.client import ControllerClient
from pravega_wire.errors import EventTooLargeError, InvalidArgumentError
from pravega_wire.protocol import commands as c
from pravega_wire.segment.appender import SegmentAppender
from pravega_wire.segment.metadata import SegmentMetadata
from pravega_wire.testing import FaultProxy
from pravega_wire.values.hashing import routing_key_position
from tests.cancelling import cancelled_at
from tests.faults.support import read_all, scale_to
from tests.faults.test_lost_connections import through

LARGE = b"1" * 9_000_000


def small_or_length(events: list[bytes]) -> list[bytes | int]:
    return [event if len(event) < 100 else len(event) for event in events]


def test_a_large_event_whose_segment_is_dropped_goes_to_the_next(
    config: PravegaConfig, fault_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store names the source of a merge when it is the target that does not exist."""
    disturb = trio.Event()
    done = trio.Event()

    async def main() -> None:
        async with through(config, fault_proxy, "large") as client:

            async def drop() -> None:
                await disturb.wait()
                await scale_to(client, "large", 2)
                await client.truncate_stream("large", await client.tail("large"))
                done.set()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(drop)
                async with client.event_writer("large", large_events=True) as writer:
                    await writer.write_event(b"before", "key")
                    await writer.write_event(LARGE, "key")
                    await writer.write_event(b"after", "key")
            assert small_or_length(await read_all(client, "large")) == [len(LARGE), b"after"]

    whole = SegmentAppender.finish

    def finish(self: SegmentAppender) -> None:
        whole(self)
        if "#transient" in self.target.name:
            disturb.set()

    monkeypatch.setattr(SegmentAppender, "finish", finish)
    merge = SegmentMetadata.merge

    async def later(self: SegmentMetadata, *arguments: object) -> bool:
        await done.wait()
        return await merge(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(SegmentMetadata, "merge", later)
    trio.run(main)


async def test_a_large_event_that_is_cancelled_does_not_come_after_the_next_one(
    config: PravegaConfig, fault_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was asked of the store is waited for: it may do it later than what it is asked next."""
    merge = SegmentMetadata.merge
    merged: list[bool] = []

    async def cancelled(self: SegmentMetadata, *arguments: Any) -> bool:
        scope.cancel()
        merged.append(await merge(self, *arguments))
        return merged[-1]

    monkeypatch.setattr(SegmentMetadata, "merge", cancelled)
    async with through(config, fault_proxy, "cancelled") as client:
        async with client.event_writer("cancelled", large_events=True) as writer:
            await writer.write_event(b"before", "key")
            with trio.CancelScope() as scope:
                await writer.write_event(LARGE, "key")
            assert merged == [True]
            await writer.write_event(b"after", "key")
            assert writer.events_written == 3
        assert small_or_length(await read_all(client, "cancelled")) == [b"before", len(LARGE), b"after"]


@pytest.mark.parametrize("times", [1, 3])
async def test_a_merge_whose_answer_is_lost(
    config: PravegaConfig, fault_proxy: FaultProxy, times: int
) -> None:
    async with through(config, fault_proxy, "merged") as client:
        async with client.event_writer("merged", large_events=True) as writer:
            await writer.write_event(b"before")
            fault_proxy.cut_before_reply(c.SegmentsMerged, times=times)
            await writer.write_event(LARGE)
            await writer.write_event(b"after")
        # A store that has removed the merged segment for good answers a repeated merge with "no such
        # segment", which is no reply that is cut: under load that can be the second one already.
        assert fault_proxy.cuts >= 1
        events = small_or_length(await read_all(client, "merged"))
        assert events == [b"before", len(LARGE), b"after"]


async def test_events_of_another_task_are_not_doubled_by_a_large_one(
    config: PravegaConfig, fault_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are stored, their acknowledgement is late, and the large event learns first of the seal."""
    late: list[c.Command] = []
    holding = False
    whole = SegmentAppender.on_reply

    def on_reply(self: SegmentAppender, reply: c.Command) -> bool:
        if holding and isinstance(reply, c.DataAppended) and "#transient" not in self.target.name:
            late.append(reply)
            held.append(self)
            return True
        return whole(self, reply)

    held: list[SegmentAppender] = []
    monkeypatch.setattr(SegmentAppender, "on_reply", on_reply)

    async with through(config, fault_proxy, "two") as client:
        async with client.event_writer("two", large_events=True) as writer:
            await writer.write_event(b"before", "key")
            await writer.flush()
            holding = True
            async with trio.open_nursery() as nursery:
                nursery.start_soon(writer.write_event, LARGE, "key")
                await trio.testing.wait_all_tasks_blocked()
                await writer.write_event(b"small", "key")
                while not late:
                    await trio.sleep(0.01)
                await scale_to(client, "two", 2)
                # The large event has found out by now, or does later.
                await trio.testing.wait_all_tasks_blocked(0.3)
                holding = False
                for appender, reply in zip(held, late, strict=True):
                    whole(appender, reply)
            await writer.write_event(b"after", "key")
        events = small_or_length(await read_all(client, "two"))
        assert sorted(map(str, events)) == sorted(map(str, [b"before", b"small", len(LARGE), b"after"]))
        assert events[-1] == b"after"


def picky(key: str) -> float:
    if key == "bad":
        raise KeyError(key)
    return routing_key_position(key)


async def test_a_partitioner_that_fails_fails_the_call_and_leaves_nothing_behind(
    config: PravegaConfig, fault_proxy: FaultProxy
) -> None:
    async with through(config, fault_proxy, "picky", 2) as client:
        async with client.event_writer("picky", partitioner=picky) as writer:
            with pytest.raises(KeyError, match="bad"):
                await writer.write_events([b"1", b"2", b"3"], ["x", "bad", "y"])
            await writer.write_events([b"1", b"2", b"3"], ["x", "x", "y"])
        assert sorted(await read_all(client, "picky")) == [b"1", b"2", b"3"]


async def test_a_partitioner_that_is_needed_only_later_fails_its_writer_alone(
    config: PravegaConfig, fault_proxy: FaultProxy
) -> None:
    """As long as there is one segment no partitioner is asked."""

    async with through(config, fault_proxy, "late") as client:
        async with client.event_writer("late") as other:
            with pytest.raises(InvalidArgumentError, match="partitioner"):
                async with client.event_writer("late", partitioner=picky) as writer:
                    await writer.write_event(b"0", "good")
                    await writer.flush()
                    fault_proxy.pause()
                    await writer.write_event(b"1", "bad")
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(scale_to, client, "late", 2)
                        await trio.testing.wait_all_tasks_blocked(0.3)
                        while len(await client.active_segments("late")) < 2:
                            await trio.sleep(0.05)
                        fault_proxy.resume()
                    await writer.flush()
            await other.write_event(b"2", "key")
        assert sorted(await read_all(client, "late")) == [b"0", b"2"]


@pytest.mark.parametrize("large", [False, True])
async def test_time_is_noted_after_what_was_written(
    config: PravegaConfig, fault_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    """Also when the acknowledgement was lost, or none tells the length of the segment."""
    noted: list[Mapping[int, int]] = []
    whole = ControllerClient.note_timestamp_from_writer

    async def note(
        self: ControllerClient,
        scope: str,
        stream: str,
        writer: str,
        timestamp: int,
        position: Mapping[int, int],
    ) -> object:
        noted.append(dict(position))
        return await whole(self, scope, stream, writer, timestamp, position)

    monkeypatch.setattr(ControllerClient, "note_timestamp_from_writer", note)

    async with through(config, fault_proxy, "timed") as client:
        async with client.event_writer("timed", large_events=large) as writer:
            await writer.write_event(b"1")
            await writer.flush()
            if large:
                await writer.write_event(LARGE)
            else:
                fault_proxy.cut_before_reply(c.DataAppended)
                await writer.write_events([b"%d" % n for n in range(200)])
                await writer.flush()
                assert fault_proxy.cuts_due == 0
            await writer.note_time(1000)
            assert noted == [dict((await client.tail("timed")).positions)]


async def test_what_ends_a_commit_is_what_its_caller_sees(
    config: PravegaConfig, fault_proxy: FaultProxy
) -> None:
    async with through(config, fault_proxy, "ended") as client:
        ids = []

        async def commit() -> None:
            async with client.begin_transaction("ended") as txn:
                ids.append(txn.txn_id)
                await txn.write_event(b"x")
                await txn.commit()

        committed = 0
        for step in range(1, 40):
            # Anything else than a cancellation would leave this.
            committed += not await cancelled_at(step, commit, going_on=True)
        assert committed < 39
        with pytest.raises(RuntimeError, match="mine"):
            async with client.begin_transaction("ended") as txn:
                await client.commit_transaction("ended", txn.txn_id)
                ids.append(txn.txn_id)
                raise RuntimeError("mine")
        await txn.wait_committed()
        assert await txn.status() is TxnStatus.COMMITTED


async def test_keys_in_a_transaction_mean_the_same_however_they_are_given(
    config: PravegaConfig, fault_proxy: FaultProxy
) -> None:
    async with through(config, fault_proxy, "keys", 8) as client:
        async with client.begin_transaction("keys") as txn:
            await txn.write_event(b"e1", "")
            await txn.write_events([b"e2"], "")
            await txn.write_events([b"e3"], [""])
            for number in range(20):
                await txn.write_event(b"n%d" % number)
            await txn.write_events(
                pa.array([b"m%d" % n for n in range(20)]), pa.array([None] * 20, pa.string())
            )
            await txn.commit()
        await txn.wait_committed()
        places: dict[bytes, set[int]] = {b"e": set(), b"n": set()}
        for found in await client.segment_ranges("keys"):
            async for batch in client.read_range(found):
                for event in batch:
                    places[b"e" if event.startswith(b"e") else b"n"].add(found.segment_id)
        assert [len(each) for each in places.values()] == [1, 1]
        async with client.event_writer("keys") as writer:
            with pytest.raises(EventTooLargeError):
                await writer.write_events(pa.array([LARGE]))


async def test_byte_streams_take_bytes_and_let_others_run(
    config: PravegaConfig, fault_proxy: FaultProxy
) -> None:
    with blocking.open_client(config) as client:
        client.create_stream("bytes", 1)
        with client.byte_stream_writer("bytes") as writer:
            with pytest.raises(TypeError):
                writer.write(5)  # type: ignore[arg-type]
            assert writer.write(b"hello") == 5
        with client.byte_stream_reader("bytes") as reader:
            assert reader.read(0) == b""
            assert reader.readinto(bytearray()) == 0
            assert reader.read(5) == b"hello"

    async with (
        through(config, fault_proxy, "bytes") as asynchronous,
        asynchronous.byte_stream_writer("bytes") as stream,
    ):
        with pytest.raises(InvalidArgumentError, match="int"):
            await stream.write(5)  # type: ignore[arg-type]
        ran = False

        async def other() -> None:
            nonlocal ran
            ran = True

        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            for _ in range(1000):
                await stream.write(b"x" * 20)
                if ran:
                    break
            assert ran
