"""The client against a real server: scopes, streams, appending, transactions, reading."""

from __future__ import annotations

import operator
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
import trio
import trio.testing

from pravega_wire import (
    KeyValueTableConfiguration,
    PravegaClient,
    PravegaConfig,
    ReaderGroupConfig,
    RetentionType,
    StateFormat,
    StreamCut,
    TxnStatus,
    open_client,
    sync,
)
from pravega_wire.cli.work.streams import even_ranges
from pravega_wire.controller.channels import Channels, _CallFailedError
from pravega_wire.errors import (
    ArgumentTypeError,
    ClosedError,
    DataLossError,
    EventTooLargeError,
    InvalidArgumentError,
    InvalidStreamCutError,
    PermissionDeniedError,
    PravegaError,
    RetriesExhaustedError,
    ScaleConflictError,
    ScopeNotEmptyError,
    ScopeNotFoundError,
    StreamNotFoundError,
    StreamNotSealedError,
    StreamSealedError,
    TransactionAbortedError,
    TransactionError,
    TransactionNotOpenError,
    TransactionUnknownError,
    WrongProtocolError,
)
from pravega_wire.segment.metadata import SegmentMetadata
from pravega_wire.serializers import JsonSerializer, Utf8Serializer
from pravega_wire.values.cuts import OnTruncated
from pravega_wire.values.hashing import routing_key_position
from pravega_wire.values.naming import generalized_segment_id
from pravega_wire.values.policies import RetentionPolicy, ScalingPolicy, StreamConfiguration
from tests.cancelling import cancelled_at
from tests.inside import core_of


async def all_events(client: PravegaClient, stream: str) -> list[bytes]:
    return [event async for batch in client.read_events(stream) for event in batch]


def by_key(events: list[bytes]) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = defaultdict(list)
    for event in events:
        key, number = event.split(b":")
        found[key].append(int(number))
    return found


@pytest.mark.smoke
async def test_scopes_and_streams(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        scope = config.scope
        assert scope is not None
        assert not await client.create_scope(scope)
        assert await client.scope_exists(scope)
        assert scope in await client.list_scopes()
        configuration = StreamConfiguration(
            scaling=ScalingPolicy.by_event_rate(1000, 2, 3),
            retention=RetentionPolicy.by_size(1 << 30),
            tags=frozenset({"one", "two"}),
        )
        assert await client.create_stream("a", configuration)
        assert not await client.create_stream("a", 1)
        assert await client.create_stream("b", 2)
        assert await client.stream_config("a") == configuration
        assert sorted(map(str, await client.list_streams())) == [f"{scope}/a", f"{scope}/b"]
        assert [each.name for each in await client.list_streams(tag="two")] == ["a"]
        assert len(await client.list_streams(internal=True)) > 2
        changed = StreamConfiguration(scaling=ScalingPolicy.fixed(4), tags=frozenset({"x"}))
        await client.update_stream("a", changed)
        assert await client.stream_config("a") == changed
        assert len(await client.active_segments("b")) == 2
        with pytest.raises(StreamNotSealedError):
            await client.delete_stream("b")
        with pytest.raises(ScopeNotEmptyError):
            await client.delete_scope(scope)
        await client.seal_stream("b")
        info = await client.stream_info("b")
        assert info.sealed
        assert dict(info.tail.positions) == {0: 0, 1: 0}
        assert await client.delete_stream("b")
        assert not await client.delete_stream("b")
        assert await client.delete_stream("a", seal=True)


@pytest.mark.smoke
async def test_events_come_back_in_order_of_their_keys(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("t", 4)
        count, keys = 20_000, 37
        written = [b"k%d:%d" % (number % keys, number) for number in range(count)]
        async with client.event_writer("t") as writer:
            for number in range(1000):
                await writer.write_event(written[number], f"k{number % keys}")
            ack = await writer.write_events(
                (event for event in written[1000:]),
                (f"k{number % keys}" for number in range(1000, count)),
            )
            await ack.wait()
            assert ack.done
            assert writer.events_acknowledged <= count
        assert writer.events_acknowledged == count
        assert writer.outstanding_bytes == 0
        for key, numbers in by_key(await all_events(client, "t")).items():
            assert numbers == sorted(numbers), key
        segments = {each.segment_id: each for each in await client.active_segments("t")}
        seen = 0
        for each in await client.segment_ranges("t"):
            segment = segments[each.segment_id]
            async for batch in client.read_range(each):
                for event in batch:
                    position = routing_key_position(event.split(b":")[0].decode())
                    assert segment.low <= position <= segment.high
                    seen += 1
        assert seen == count


@pytest.mark.smoke
async def test_order_holds_while_the_stream_scales(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("t", 1)
        keys, count = 20, 60_000

        async def scale() -> None:
            for ranges in (
                [(0, 0.5), (0.5, 1.0)],
                [(0, 0.2), (0.2, 0.7), (0.7, 1.0)],
                [(0, 1.0)],
            ):
                active = [each.segment_id for each in await client.active_segments("t")]
                await client.scale_stream("t", active, ranges)

        async with client.event_writer("t") as writer:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(scale)
                for number in range(count):
                    key = number % keys
                    await writer.write_event(b"k%d:%d" % (key, number), f"k{key}")
                    if number % 200 == 0:
                        await trio.sleep(0.005)
            # A writer learns of a scale by writing; the last one may have ended after the last event.
            for number in range(count, count + keys):
                await writer.write_event(b"k%d:%d" % (number % keys, number), f"k{number % keys}")
            await writer.flush()
            assert len(writer.segments) == 1
            count += keys
        found = by_key(await all_events(client, "t"))
        assert sum(map(len, found.values())) == count
        for each, numbers in found.items():
            assert numbers == list(range(int(each[1:]), count, keys))
        first = StreamCut.from_text((await client.head("t")).to_text())
        assert await client.segment_ranges("t", first) == await client.segment_ranges("t")
        following = await client.successors("t", 0)
        assert [each.predecessors for each in following.successors] == [(0,), (0,)]
        assert len(await client.epoch_segments("t", 2)) == 3


@pytest.mark.smoke
async def test_batches_between_cuts(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("t", 1)
        async with client.event_writer("t") as writer:
            await writer.write_events([b"a"] * 500)
            await writer.flush()
            first = await client.tail("t")
            active = [each.segment_id for each in await client.active_segments("t")]
            await writer.write_events([b"b"] * 250)
            # At least these are in the segment that is sealed.
            await writer.flush()
            await writer.write_events([b"b"] * 250)
            await client.scale_stream("t", active, [(0, 0.4), (0.4, 1.0)])
            await writer.write_events([b"c"] * 500)
            await writer.flush()
            second = await client.tail("t")
            await writer.write_events([b"d"] * 500)

        async def read(start: StreamCut | str, end: StreamCut | str) -> list[bytes]:
            reader = client.read_events("t", start, end)
            return [event async for batch in reader for event in batch]

        assert await read("earliest", first) == [b"a"] * 500
        assert sorted(await read(first, second)) == [b"b"] * 500 + [b"c"] * 500
        assert await read(second.to_text(), "latest") == [b"d"] * 500
        assert await read(second, second) == []
        await client.create_stream("other", 1)
        with pytest.raises(InvalidStreamCutError, match="other"):
            await client.segment_ranges("t", await client.head("other"))
        wrong: list[dict[int, int]] = [{}, {0: 0, 7: 0}, {0: 0, 7 << 32: 0}]
        wrong += [{each: 0} for each in second.positions] + [dict.fromkeys([0, *second.positions], 0)]
        for positions in wrong:
            cut = StreamCut(second.stream, positions)
            for start, end in ((cut, second), (first, cut)):
                with pytest.raises(InvalidStreamCutError, match=r"key space|no segment|not exist|same keys"):
                    await client.segment_ranges("t", start, end)
        beyond = StreamCut(second.stream, dict.fromkeys(second.positions, 10**9))
        with pytest.raises(InvalidStreamCutError, match="only"):
            await client.segment_ranges("t", first, beyond)
        short = (await client.segment_ranges("t", second))[0]
        between = await client.segment_ranges("t", first, second)
        sealed = next(each for each in between if each.segment_id not in second.positions)
        for wrong_range in (
            replace(short, end_offset=short.end_offset + 100),
            replace(short, start_offset=short.end_offset, end_offset=short.end_offset + 100),
            # A store closes the connection.
            replace(sealed, start_offset=sealed.end_offset + 1, end_offset=sealed.end_offset + 100),
        ):
            with pytest.raises(InvalidArgumentError, match="reaches beyond the end of segment"):
                [batch async for batch in client.read_range(wrong_range)]
        await client.truncate_stream("t", first)
        with pytest.raises(DataLossError, match="truncated"):
            await client.segment_ranges("t", StreamCut(first.stream, {0: 0}))
        ranges = await client.segment_ranges(
            "t", StreamCut(first.stream, {0: 0}), on_truncated="skip_to_head"
        )
        assert ranges == await client.segment_ranges("t", first)


async def test_a_stream_is_truncated_at_the_end_of_a_sealed_segment(config: PravegaConfig) -> None:
    """A controller never answers a truncation at the mark for that, and cannot seal the stream then."""
    async with open_client(config) as client:
        await client.create_stream("t", 2)
        cut = StreamCut(client.config.resolve("t"), {0: -1, 1: 0})
        async with client.event_writer("t") as writer:
            await writer.write_events([b"x"] * 100)
            await writer.flush()
            await client.scale_stream("t", [0], [(0.0, 0.25), (0.25, 0.5)])
            await writer.write_events([b"y"] * 20)
        kept = [event async for batch in client.read_events("t", cut) for event in batch]
        await client.truncate_stream("t", cut)
        assert 20 < len(kept) < 120
        assert await all_events(client, "t") == kept
        await client.truncate_stream("t", await client.tail("t"))
        with pytest.raises(InvalidStreamCutError, match="segment 0 of the cut was deleted"):
            await client.truncate_stream("t", cut)
        await client.seal_stream("t")


@pytest.mark.parametrize("sealed", [False, True])
async def test_cuts_before_the_head_and_cuts_that_are_none(config: PravegaConfig, sealed: bool) -> None:
    """A controller does not say what is wrong with them: that is found out, without asking again for long."""
    first, second = (1 << 32) + 1, (1 << 32) + 2
    nowhere = {9: 0}, {9: -1}, {(7 << 32) + 9: 0}

    async with open_client(config) as client:
        await client.create_stream("t", 1)
        stream = client.config.resolve("t")
        name = f"{stream}/0.#epoch.0"

        async def find(start: dict[int, int] | None, end: dict[int, int] | None) -> list[object]:
            """The ranges, or the error's type and the segment it names: failing, and skipping."""
            found: list[object] = []
            cuts = [None if each is None else StreamCut(stream, each) for each in (start, end)]
            policies: tuple[OnTruncated, ...] = ("raise", "skip_to_head")
            for policy in policies:
                try:
                    ranges = await client.segment_ranges("t", *cuts, on_truncated=policy)
                except (DataLossError, InvalidStreamCutError) as error:
                    found.append((type(error), error.segment))
                else:
                    found.append([(each.segment_id, each.start_offset, each.end_offset) for each in ranges])
            return found

        async with client.event_writer("t") as writer:
            await writer.write_events([b"x"] * 10)
            await writer.flush()
            await client.scale_stream("t", [0], [(0.0, 0.5), (0.5, 1.0)])
            await writer.write_events([b"y"] * 20)
        tail = await client.tail("t")
        now = dict(tail.positions)
        new = [(each, 0, now[each]) for each in (first, second) if now[each]]

        wrong = (InvalidStreamCutError, None)
        assert await find(None, {0: -1}) == [[(0, 0, 90)]] * 2
        assert await find({0: 0}, {0: -1}) == [[(0, 0, 90)]] * 2
        assert await find({0: 90}, now) == [new] * 2
        assert await find({0: -1}, now) == [new] * 2
        # The same place, said in two ways
        assert await find({first: 0, second: 0}, {0: 90}) == [[]] * 2
        assert await find({0: 50}, {0: 20}) == [wrong] * 2
        assert await find(now, {0: 90}) == [wrong] * 2
        too_far = (InvalidStreamCutError, f"{stream}/1.#epoch.1")
        assert await find({first: 10**9, second: 0}, {first: 0, second: 0}) == [too_far] * 2
        for cut in nowhere:
            for found in (await find(cut, None), await find({0: 0}, cut)):
                assert [each[0] for each in found] == [InvalidStreamCutError] * 2  # type: ignore[index]

        await client.truncate_stream("t", tail)
        if sealed:
            await client.seal_stream("t")
        gone, before = (DataLossError, name), (DataLossError, None)
        assert await find(None, {0: 90}) == [before, []]
        assert await find(None, {0: -1}) == [before, []]
        assert await find({0: 0}, {0: 90}) == [gone, []]
        assert await find({0: 0}, {0: -1}) == [gone, []]
        assert await find({first: 0, second: 0}, {0: 90}) == [gone, []]
        assert await find({0: 50}, {0: 20}) == [wrong, []]
        assert await find(now, None) == [[], []]
        for cut in nowhere:
            for found in (await find(cut, None), await find({0: 0}, cut)):
                assert [each[0] for each in found] == [InvalidStreamCutError] * 2  # type: ignore[index]
        with pytest.raises(StreamNotFoundError):
            await client.segment_ranges("u", StreamCut(client.config.resolve("u"), {0: 0}))


async def test_ranges_while_the_controller_fails_now_and_then(
    config: PravegaConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cuts that are fine have their ranges, also where the controller says that they are unknown."""
    attempt = Channels._attempt
    answers: list[str] = []

    async def failing(channels: Channels, rpc: str, *rest: Any, **named: Any) -> Any:
        if rpc == "getSegmentsBetween" and answers:
            raise _CallFailedError(answers[0], rpc=rpc, status=answers.pop(0))
        if rpc == "getEpochSegments" and denied:
            raise PermissionDeniedError("reading only")
        return await attempt(channels, rpc, *rest, **named)

    denied: list[bool] = []

    async with open_client(config) as client:
        await client.create_stream("t", 2)
        async with client.event_writer("t") as writer:
            await writer.write_events([b"x"] * 100)
            await writer.flush()
            middle = await client.tail("t")
            await client.scale_stream("t", [0, 1], [(0.0, 0.2), (0.2, 1.0)])
            await writer.write_events([b"y"] * 100)
        cuts = ((None, None), (None, middle), (middle, None))
        expected = [await client.segment_ranges("t", start, end) for start, end in cuts]
        assert all(expected)
        monkeypatch.setattr(Channels, "_attempt", failing)
        for answer in ("UNAVAILABLE", "UNKNOWN"):
            for (start, end), ranges in zip(cuts, expected, strict=True):
                answers[:] = [answer] * 6
                assert await client.segment_ranges("t", start, end) == ranges
                assert answers == ([] if answer == "UNAVAILABLE" else [answer] * 2)
        # Who may not look closer hears that as well.
        denied.append(True)
        answers[:] = ["UNKNOWN"] * 6
        with pytest.raises(InvalidStreamCutError, match="reading only"):
            await client.segment_ranges("t")


async def test_large_events_and_mixed_sizes(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("t", 1)
        sizes = [0, 1, 8 << 20, 3, 700_000, 0, 300_000, 5 << 20] + [9] * 50 + [100_000] * 30
        events = [bytes([number % 256]) * size for number, size in enumerate(sizes)]
        async with client.event_writer("t", max_outstanding_bytes=2 << 20) as writer:
            await writer.write_events(events)
            for event in events:
                await writer.write_event(event)
            with pytest.raises(EventTooLargeError, match="8388609 bytes"):
                await writer.write_event(bytes((8 << 20) + 1))
            with pytest.raises(EventTooLargeError):
                await writer.write_events([bytes((8 << 20) + 1)])
            with pytest.raises(InvalidArgumentError, match="str"):
                await writer.write_event("text")  # type: ignore[arg-type]
        assert await all_events(client, "t") == events + events


@pytest.mark.smoke
async def test_transactions(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("t", 3)
        async with client.begin_transaction("t", lease=20) as txn:
            await txn.write_events([b"one"] * 100, [f"{n}" for n in range(100)])
            await txn.flush()
            assert await txn.status() is TxnStatus.OPEN
            await txn.ping(30)
            assert await all_events(client, "t") == []
            await txn.commit()
        await client.wait_committed("t", txn.txn_id)
        assert await txn.status() is TxnStatus.COMMITTED
        assert await all_events(client, "t") == [b"one"] * 100
        await client.commit_transaction("t", txn.txn_id)  # asked twice is harmless
        with pytest.raises(TransactionNotOpenError):
            await txn.write_event(b"late")
        with pytest.raises(TransactionNotOpenError):
            await client.abort_transaction("t", txn.txn_id)

        async with client.begin_transaction("t") as dropped:
            await dropped.write_event(b"never")
            await dropped.flush()
        with pytest.raises(TransactionAbortedError):
            await client.commit_transaction("t", dropped.txn_id)
        with pytest.raises(TransactionUnknownError):
            await client.resume_transaction("t", uuid.UUID(int=12345))

        left = await client.begin_transaction("t")
        await left.write_event(b"first half", "k")
        await left.flush()
        await left.aclose()
        active = [each.segment_id for each in await client.active_segments("t")]
        await client.scale_stream("t", active, [(0, 0.2), (0.2, 0.4), (0.4, 1.0)])
    async with open_client(config) as client:
        # Another client, and another epoch, than it was begun in.
        resumed = await client.resume_transaction("t", left.txn_id)
        await resumed.write_event(b"second half", "k")
        await resumed.commit()
        await resumed.wait_committed()
        events = await all_events(client, "t")
        assert events[-2:] == [b"first half", b"second half"]
        assert len(events) == 102


@pytest.mark.parametrize("committed", [False, True])
async def test_events_that_are_waited_for_tell_how_the_transaction_ended(
    config: PravegaConfig, committed: bool
) -> None:
    """It is ended by somebody else, between two events."""

    async with open_client(config) as client:
        await client.create_stream("t", 1)
        txn = await client.begin_transaction("t")
        await txn.write_event(b"first", "k")
        await txn.flush()
        if committed:
            await client.commit_transaction("t", txn.txn_id)
            await client.wait_committed("t", txn.txn_id)
        else:
            await client.abort_transaction("t", txn.txn_id)
            while await txn.status() is not TxnStatus.ABORTED:
                await trio.sleep(0.05)
        ack = await txn.write_event(b"second", "k")
        kind = TransactionNotOpenError if committed else TransactionAbortedError
        with pytest.raises(kind, match=str(txn.txn_id)) as caught:
            await ack.wait()
        assert isinstance(caught.value, TransactionAbortedError) is not committed
        for call in (txn.flush, lambda: txn.write_event(b"third", "k")):
            with pytest.raises(kind, match=str(txn.txn_id)):
                await call()
        await txn.aclose()


async def test_the_state_that_is_told_is_the_one_that_was_found(
    config: PravegaConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process commits just after the question. "It is committing" would be no reason not to wait."""
    async with open_client(config) as client:
        await client.create_stream("t", 1)
        txn = await client.begin_transaction("t")
        ask = core_of(client).controller.check_transaction_state

        async def ask_before_a_commit(scope: str, stream: str, txn_id: uuid.UUID) -> TxnStatus:
            status = await ask(scope, stream, txn_id)
            await client.commit_transaction("t", txn_id)
            return status

        with monkeypatch.context() as patch:
            patch.setattr(core_of(client).controller, "check_transaction_state", ask_before_a_commit)
            with pytest.raises(TransactionError, match="is open: it cannot be waited for") as caught:
                await client.wait_committed("t", txn.txn_id)
        assert not isinstance(caught.value, TransactionNotOpenError)
        await client.wait_committed("t", txn.txn_id)
        await txn.aclose()


async def test_a_part_of_a_transaction_is_not_committed(config: PravegaConfig) -> None:
    """What was not stored when the object was closed is lost, so the rest must not become visible."""
    async with open_client(config) as client:
        await client.create_stream("t", 2)
        txn = await client.begin_transaction("t")
        await (await txn.write_event(b"stored", "k")).wait()
        acks = [await txn.write_event(b"lost" * 1000, "k") for _ in range(1000)]
        await txn.aclose()
        assert acks[-1].error is not None
        with pytest.raises(TransactionNotOpenError, match=f"{txn.txn_id} .* was closed before all events"):
            await txn.commit()
        assert await txn.status() is TxnStatus.OPEN
        await txn.abort()
        with pytest.raises(TransactionAbortedError):
            await txn.commit()

        flushed = await client.begin_transaction("t")
        await flushed.write_event(b"whole", "k")
        await flushed.flush()
        await flushed.aclose()
        for _ in range(3):
            await flushed.commit()
        await flushed.wait_committed()
        assert await all_events(client, "t") == [b"whole"]


async def test_a_commit_that_was_not_sent_leaves_the_transaction_to_be_aborted(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("t", 1)
        with pytest.raises(InvalidArgumentError, match="timestamp"):
            async with client.begin_transaction("t") as txn:
                await txn.write_event(b"never", "k")
                await txn.commit("noon")  # type: ignore[arg-type]
        assert await txn.status() in (TxnStatus.ABORTING, TxnStatus.ABORTED)


async def test_no_cancellation_leaves_a_transaction_that_is_renewed(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("t", 1)

        async def by_entering() -> None:
            async with client.begin_transaction("t") as txn:
                await txn.write_event(b"x")

        async def by_awaiting() -> None:
            async with await client.begin_transaction("t") as txn:
                await txn.write_event(b"x")

        def leases() -> int:
            root = trio.lowlevel.current_root_task()
            todo, found = [root], 0
            while todo:
                task = todo.pop()
                assert task is not None
                found += task.name.startswith("lease of transaction")
                todo += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
            return found

        for call in (by_entering, by_awaiting):
            for going_on in (False, True):
                step = 1
                while await cancelled_at(step, call, going_on=going_on):
                    step += 1
                    await trio.testing.wait_all_tasks_blocked()
                    assert leases() == 0, (call, step, going_on)
                assert step > 2


async def test_requests_that_meet_one_another_in_the_controller(config: PravegaConfig) -> None:
    """It refuses a truncation or an update while another one is in progress, and fails in two deletions."""
    table = KeyValueTableConfiguration(1, 4)
    async with open_client(config) as client, open_client(config) as other:
        await client.create_stream("t", 2)
        cuts = []
        async with client.event_writer("t") as writer:
            for number in range(9):
                await writer.write_events([b"x"] * 20, map(str, range(20)))
                await writer.flush()
                cuts.append(await client.tail("t"))
                if number == 4:
                    await client.scale_stream("t", [0], [(0.0, 0.25), (0.25, 0.5)])
        for first, second, third in zip(cuts[::3], cuts[1::3], cuts[2::3], strict=True):
            await client.truncate_stream("t", first)
            async with trio.open_nursery() as nursery:
                for each in (client, other, client):
                    nursery.start_soon(each.truncate_stream, "t", second)
            assert await client.head("t") == second
            with pytest.raises(InvalidStreamCutError, match="it was truncated at"):
                await other.truncate_stream("t", first)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.truncate_stream, "t", third)
                nursery.start_soon(other.update_stream, "t", StreamConfiguration(tags=frozenset({"t"})))
            assert await client.head("t") == third
        for tag in ("a", "b", "c"):
            made = [StreamConfiguration(tags=frozenset({tag + each})) for each in "xy"]
            async with trio.open_nursery() as nursery:
                for each, configuration in zip((client, other), made, strict=True):
                    nursery.start_soon(each.update_stream, "t", configuration)
            assert (await client.stream_config("t")).tags in [each.tags for each in made]
        for number in range(5):
            name = f"k{number}"
            await client.create_key_value_table(name, table)
            await client.create_stream(name, 1)
            await client.create_reader_group(name, "t")
            gone: list[bool] = []

            async def deleting(call: Callable[[], Awaitable[bool]], gone: list[bool] = gone) -> None:
                gone.append(await call())

            async with trio.open_nursery() as nursery:
                for each in (client, other):
                    nursery.start_soon(deleting, partial(each.delete_key_value_table, name))
                    nursery.start_soon(deleting, partial(each.delete_stream, name, seal=True))
                    nursery.start_soon(deleting, partial(each.delete_reader_group, name))
            assert len(gone) == 6
            assert any(gone)
            assert not await client.key_value_table_exists(name)
            assert not await client.stream_exists(name)
            assert not await client.reader_group_exists(name)
        scopes = [f"{config.scope}-{number}" for number in range(5)]
        for scope in scopes:
            await client.create_scope(scope)
            await client.create_stream(f"{scope}/s")
        for scope in scopes[:2]:
            async with trio.open_nursery() as nursery:
                for each in (client, other):
                    nursery.start_soon(partial(each.delete_scope, scope, recursive=True))
        # As many as a controller has threads stop it.
        async with trio.open_nursery() as nursery:
            for scope in scopes[2:]:
                nursery.start_soon(partial(client.delete_scope, scope, recursive=True))
        assert not [scope for scope in scopes if await client.scope_exists(scope)]


async def test_updates_that_a_controller_would_never_finish(config: PravegaConfig) -> None:
    """The last of 49 segments ends beside the end of the key space, and no scale moves the end."""
    one, many, fewest = ScalingPolicy.fixed(1), ScalingPolicy.fixed(49), ScalingPolicy.by_data_rate(1 << 30)
    async with open_client(config) as client:

        async def refused(stream: str, scaling: ScalingPolicy, match: str) -> None:
            with pytest.raises(ScaleConflictError, match=match) as caught:
                await client.update_stream(stream, StreamConfiguration(scaling))
            assert caught.value.stream == stream

        async def scaled(stream: str, count: int) -> None:
            seal, ranges = even_ranges(await client.active_segments(stream), count)
            await client.scale_stream(stream, seal, ranges)

        await client.create_stream("growing", 1)
        await refused("growing", many, "from 1 to 49: .* end at 0.9+ instead of 1.0.* Instead, scale it")
        await scaled("growing", 49)
        await client.update_stream("growing", StreamConfiguration(many))
        assert (await client.stream_config("growing")).scaling == many
        assert len(await client.active_segments("growing")) == 49

        await client.create_stream("shrinking", 49)
        await refused("shrinking", one, "from 49 to 1: .* a policy by rate with min_segments=1, scale it")
        await client.update_stream("shrinking", StreamConfiguration(fewest))
        await scaled("shrinking", 1)
        await client.update_stream("shrinking", StreamConfiguration(one))
        assert (await client.stream_config("shrinking")).scaling == one
        assert len(await client.active_segments("shrinking")) == 1

        # The same end.
        await client.create_stream("longer", 49)
        await client.update_stream("longer", StreamConfiguration(ScalingPolicy.fixed(98)))
        assert len(await client.active_segments("longer")) == 98


async def test_no_cut_beyond_the_end_becomes_the_head(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("t", 1)
        name = client.config.resolve("t")
        async with client.event_writer("t") as writer:
            await writer.write_events([b"x"] * 10)
        with pytest.raises(InvalidStreamCutError, match="only 90 bytes long"):
            await client.truncate_stream("t", StreamCut(name, {0: 91}))
        await client.truncate_stream("t", StreamCut(name, {0: 90}))
        with pytest.raises(InvalidStreamCutError, match="it was truncated at"):
            await client.truncate_stream("t", StreamCut(name, {0: 81}))


async def test_a_cut_in_a_segment_that_was_deleted_is_before_the_head(config: PravegaConfig) -> None:
    async with open_client(replace(config, operation_timeout=20.0)) as client:
        await client.create_stream("t", 1)
        async with client.event_writer("t") as writer:
            await writer.write_events([b"x"] * 10)
            await writer.flush()
            early = await client.tail("t")
            await writer.write_events([b"x"] * 10)
        await client.scale_stream("t", [0], [(0.0, 0.5), (0.5, 1.0)])
        # Nothing is in the new segments, so the order depends on the length of the one that is deleted.
        await client.truncate_stream("t", await client.tail("t"))
        with pytest.raises(InvalidStreamCutError, match="it was truncated at"):
            await client.truncate_stream("t", early)


async def test_a_transaction_outlives_its_client_only_by_id(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("t", 1)
        txn = await client.begin_transaction("t")
    with pytest.raises(ClosedError, match="the client is closed"):
        await txn.write_event(b"late", "k")


async def test_event_times_of_transactions_make_watermarks(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("timed")
        time = 1_700_000_000_000
        while not (marks := await client.watermarks("timed")):
            # The controller looks every few seconds.
            async with client.begin_transaction("timed") as txn:
                await txn.write_event(b"%d" % time)
                await txn.commit(timestamp=time)
                await txn.wait_committed()
            time += 1000
        assert 1_700_000_000_000 <= marks[0].lower <= marks[0].upper < time


async def test_transactions_meet_a_stream_that_is_being_sealed(config: PravegaConfig) -> None:
    """The controller answers as for a failure that can pass; while it is SEALING, the stream has segments."""
    async with open_client(replace(config, operation_timeout=20)) as client:
        errors: list[PravegaError] = []

        async def begin_until_it_fails(stream: str, begun: trio.Event) -> None:
            try:
                while True:
                    txn = await client.begin_transaction(stream)
                    begun.set()
                    await txn.abort()
            except PravegaError as error:
                errors.append(error)

        for stream in ("t1", "t2", "t3"):
            await client.create_stream(stream, 3)
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    begun = trio.Event()
                    nursery.start_soon(begin_until_it_fails, stream, begun)
                    await begun.wait()
                await client.seal_stream(stream)
        assert {type(each) for each in errors} == {StreamSealedError}, errors


async def test_waiting_for_a_staged_event_sends_it(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("t", 2)
        txn = await client.begin_transaction("t")
        async with client.staging("t", txn.txn_id).writer() as writer:
            await (await writer.write_event(b"1", "key"))
            await (await writer.write_events([b"2", b"3"], ["a", "b"]))
            await (await writer.write_events(pa.array([b"4"], pa.binary())))
            await (await writer.write_batch([b"5", b"6"], "key"))
            assert writer.events_acknowledged == 6
        await txn.abort()


@pytest.mark.smoke
async def test_staged_writes_count_only_when_merged(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("t", 2)
        segments = [each.segment_id for each in await client.active_segments("t")]
        await client.scale_stream("t", segments[:1], [(0, 0.25), (0.25, 0.5)])
        txn = await client.begin_transaction("t")
        attempts = [uuid.uuid4() for _ in range(4)]
        staged = []
        for number, attempt in enumerate(attempts):
            async with client.staging("t", txn.txn_id).writer(attempt) as writer:
                await writer.write_events([b"%d" % number] * 50, [f"{n}" for n in range(50)])
                staged.append(await writer.contents())
        only_one = uuid.uuid4()
        async with client.staging("t", txn.txn_id).writer(only_one) as writer:
            await writer.write_events([b"x"] * 3, "0")
            assert [each.length for each in (await writer.contents()).values()] == [27]
        with pytest.raises(InvalidArgumentError, match="use a new staging id"):
            await client.staging("t", txn.txn_id).writer(attempts[0])
        winners = [attempts[2], attempts[0]]
        # Each segment needs all of them, also if they can be read only once.
        merged = await client.staging("t", txn.txn_id).merge(each for each in winners)
        parts = {each: (staged[2][each].length, staged[0][each].length) for each in staged[0]}
        assert merged == {each: (first, first + last) for each, (first, last) in parts.items()}
        again = await client.staging("t", txn.txn_id).merge(winners)
        assert again == {each: (first + last,) * 2 for each, (first, last) in parts.items()}
        # Most of its segments are empty, and merging those adds nothing.
        merged = await client.staging("t", txn.txn_id).merge([only_one])
        assert sum(length for (length,) in merged.values()) == 2 * 50 * 9 + 27
        await client.staging("t", txn.txn_id).delete(attempts)
        await client.staging("t", txn.txn_id).delete(attempts)
        await txn.commit()
        await txn.wait_committed()
        for each in await client.segment_ranges("t"):
            events = [event async for batch in client.read_range(each) for event in batch]
            kept = [event for event in events if event != b"x"]
            assert kept == sorted(kept, reverse=True)  # 2 was merged before 0
            content = staged[2][generalized_segment_id(each.segment_id, txn.txn_id)]
            start = replace(each, end_offset=content.length)
            assert await client.range_crc32(start) == content.crc32
        events = await all_events(client, "t")
        assert sorted(events) == [b"0"] * 50 + [b"2"] * 50 + [b"x"] * 3


@pytest.mark.needs("0.11", "MergeSegmentsBatch")
@pytest.mark.parametrize(("waited", "together"), [(0.0, True), (31.0, False), (-600.0, False)])
async def test_what_a_store_may_have_forgotten_is_merged_one_by_one(
    config: PravegaConfig, monkeypatch: pytest.MonkeyPatch, waited: float, together: bool
) -> None:
    """It would merge that in another order. A clock that is wrong must not hide it."""
    age, merge = SegmentMetadata.age, SegmentMetadata.merge_each
    one_by_one: list[int] = []

    async def older(self: SegmentMetadata) -> float:
        return waited + await age(self)

    async def noted(self: SegmentMetadata, sources: Sequence[str]) -> tuple[int, ...]:
        one_by_one.append(len(sources))
        return await merge(self, sources)

    monkeypatch.setattr(SegmentMetadata, "age", older)
    monkeypatch.setattr(SegmentMetadata, "merge_each", noted)
    async with open_client(config) as client:
        await client.create_stream("t", 1)
        txn = await client.begin_transaction("t")
        staging = client.staging("t", txn.txn_id)
        ids = []
        for number in range(3):
            async with staging.writer() as writer:
                await writer.write_events([b"%d" % number])
                ids.append(writer.staging_id)
        assert [*(await staging.merge(reversed(ids))).values()] == [(9, 18, 27)]
        await txn.commit()
        await txn.wait_committed()
        assert await all_events(client, "t") == [b"2", b"1", b"0"]
    assert one_by_one == ([] if together else [3])


async def test_revisioned_stream(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("r", 1)
        async with client.revisioned_stream("r") as stream:
            start = await stream.latest_revision()
            assert start == await stream.oldest_revision()
            first = await stream.write_conditionally(start, b"one")
            assert first is not None
            assert await stream.write_conditionally(start, b"lost") is None
            second = await stream.write_unconditionally(b"two")
            assert [found async for found in await stream.read_from(start)] == [
                (first, b"one"),
                (second, b"two"),
            ]
            assert [value async for _, value in await stream.read_range(start, first)] == [b"one"]
            assert await stream.mark() is None
            assert await stream.compare_and_set_mark(None, first)
            assert not await stream.compare_and_set_mark(None, second)
            assert await stream.mark() == first
            await stream.truncate_to(first)
            await stream.truncate_to(start)
            assert await stream.oldest_revision() == first
            with pytest.raises(DataLossError):
                await stream.read_from(start)


async def test_many_writers_race_for_each_revision(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("r", 1)
        wins = []

        async def write(name: bytes) -> None:
            async with client.revisioned_stream("r") as stream:
                for _ in range(20):
                    while True:
                        latest = await stream.latest_revision()
                        if await stream.write_conditionally(latest, name) is not None:
                            wins.append(name)
                            break

        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(write, b"%d" % number)
        stream = await client.revisioned_stream("r")
        oldest = await stream.oldest_revision()
        values = [value async for _, value in await stream.read_from(oldest)]
        assert len(values) == 100
        assert sorted(values) == sorted(wins)


async def test_what_a_caller_gets_wrong_is_named(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        with pytest.raises(StreamNotFoundError, match="no-such"):
            await client.event_writer("no-such")
        with pytest.raises(StreamNotFoundError, match="no-such"):
            await client.tail("no-such")
        with pytest.raises(StreamNotFoundError, match="no-such"):
            await client.begin_transaction("no-such")
        with pytest.raises(ScopeNotFoundError, match="nowhere"):
            await client.create_stream("nowhere/t")
        with pytest.raises(InvalidArgumentError, match="illegal characters"):
            await client.create_stream("under_score")
        with pytest.raises(InvalidArgumentError, match="illegal characters"):
            await client.create_scope("a b")
        with pytest.raises(InvalidArgumentError, match="lease"):
            await client.begin_transaction("no-such", lease=0.005)
        await client.create_stream("t", 1)
        await client.seal_stream("t")
        with pytest.raises(StreamSealedError, match="sealed"):
            await client.event_writer("t")
    with pytest.raises(ClosedError):
        await client.tail("t")


@pytest.mark.smoke
async def test_sealing_fails_the_writer_and_keeps_what_was_acknowledged(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("t", 2)
        writer = await client.event_writer("t")
        await (await writer.write_events([b"kept"] * 100)).wait()
        await client.seal_stream("t")
        ack = await writer.write_event(b"too late")
        with pytest.raises(StreamSealedError):
            await ack.wait()
        with pytest.raises(StreamSealedError):
            await writer.write_event(b"later still")
        with pytest.raises(StreamSealedError):
            await writer.flush()
        with pytest.raises(StreamSealedError):
            await writer.write_events([b"x"])
        assert await all_events(client, "t") == [b"kept"] * 100
        assert (await client.tail("t")).positions


def test_an_error_in_the_block_goes_out_as_it_was_raised(config: PravegaConfig) -> None:
    """Without the groups of the client's nurseries, with its own cause and context."""

    async def main() -> None:
        async with open_client(config):
            try:
                raise KeyError("inner")
            except KeyError:
                raise ValueError("outer")  # noqa: B904

    with pytest.raises(ValueError, match="outer") as caught:
        trio.run(main)
    assert isinstance(caught.value.__context__, KeyError)
    assert caught.value.__cause__ is None


async def test_a_group_that_the_block_raises_is_not_taken_apart(config: PravegaConfig) -> None:
    errors = [
        ExceptionGroup("mine", [ValueError("one")]),
        ExceptionGroup("mine", [ExceptionGroup("of mine", [ValueError("one")]), KeyError("two")]),
    ]

    for mine in errors:
        for call in (False, True):
            with pytest.raises(ExceptionGroup) as caught:
                async with open_client(config) as client:
                    if call:
                        await client.create_stream("t", 1)
                        await client.tail("t")
                    raise mine
            assert caught.value is mine
    with trio.CancelScope() as scope:
        async with open_client(config), trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            scope.cancel()
    assert scope.cancelled_caught
    with pytest.raises(KeyboardInterrupt):
        async with open_client(config):
            raise KeyboardInterrupt


async def test_nobody_there(config: PravegaConfig) -> None:
    nowhere = PravegaConfig.from_defaults(controller_uri="tcp://127.0.0.1:1", scope="s", env={})
    with trio.fail_after(60):
        async with open_client(nowhere) as client:
            with pytest.raises(RetriesExhaustedError, match=r"127\.0\.0\.1:1"):
                await client.tail("t")


async def test_the_controller_uri_names_a_store_or_says_tls(config: PravegaConfig) -> None:
    with trio.fail_after(60):
        async with open_client(config) as client:
            await client.create_stream("t", 1)
            node = await core_of(client).controller.get_uri(str(config.scope), "t", 0)
        for uri, message in (
            (f"tcp://127.0.0.1:{node.port}", "a Pravega segment store answered"),
            (config.controller_uri.replace("tcp://", "tls://"), "the server does not speak TLS"),
        ):
            async with open_client(replace(config, controller_uri=uri)) as client:
                with pytest.raises(WrongProtocolError, match=message):
                    await client.tail("t")


async def test_a_server_that_speaks_garbage(config: PravegaConfig) -> None:
    async def babble(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some(10)
            await stream.send_all(b"SSH-2.0-OpenSSH_9.2\r\n" * 10)

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, babble, 0, host="127.0.0.1"))
        port = listeners[0].socket.getsockname()[1]
        strange = PravegaConfig.from_defaults(controller_uri=f"tcp://127.0.0.1:{port}", scope="s", env={})
        with trio.fail_after(60):
            async with open_client(strange) as client:
                with pytest.raises(PravegaError, match=str(port)):
                    await client.tail("t")
            async with open_client(config, address_map=lambda host, _: (host, port)) as client:
                await client.create_stream("t", 1)
                with pytest.raises(PravegaError, match="does not exist in wire"):
                    await client.tail("t")
                writer = await client.event_writer("t")
                with pytest.raises(PravegaError, match="does not exist in wire"):
                    await (await writer.write_event(b"x")).wait()
        nursery.cancel_scope.cancel()


@pytest.mark.smoke
def test_the_blocking_twin(config: PravegaConfig) -> None:
    with sync.open_client(config) as client:
        client.create_stream("t", 2)
        with client.event_writer("t") as writer:
            writer.write_event(b"one", "k").wait()
            writer.write_events([b"two"] * 99, "k")
        with client.begin_transaction("t") as txn:
            txn.write_events([b"three"] * 10, "k")
            txn.commit()
        txn.wait_committed()
        events = [event for batch in client.read_events("t") for event in batch]
        assert events == [b"one"] + [b"two"] * 99 + [b"three"] * 10
        for each in client.segment_ranges("t"):
            with client.read_range(each) as batches:
                assert sum(map(len, batches)) == 110
        client.create_stream("r", 1)
        with client.revisioned_stream("r") as stream:
            start = stream.latest_revision()
            revision = stream.write_conditionally(start, b"v")
            assert list(stream.read_from(start)) == [(revision, b"v")]
        with pytest.raises(StreamNotFoundError):
            client.tail("no-such")
    with pytest.raises(ClosedError):
        client.tail("t")


ONE: tuple[Any, ...] = ("abc", b"abc", bytearray(b"abc"), memoryview(b"abc"))
"""Things that can be iterated over, and are never meant as several."""


async def test_one_thing_is_not_several(config: PravegaConfig) -> None:
    """Calls of what only a server can open; the others are in tests/unit/test_arguments.py."""
    text = Utf8Serializer()
    numbers = StateFormat(JsonSerializer(), JsonSerializer(), operator.add)
    manual = ReaderGroupConfig.of(
        config.resolve("s"), retention=RetentionType.MANUAL_RELEASE_AT_USER_STREAM_CUT
    )
    async with open_client(config) as client, AsyncExitStack() as opened:
        for stream in ("s", "state"):
            await client.create_stream(stream, 1)
        await client.create_key_value_table("t", KeyValueTableConfiguration(1, 3))
        # One stream needs no list.
        assert await client.create_reader_group("one", "s")
        assert not await client.create_reader_group("one", ["s"])
        await client.create_reader_group("g", manual)
        open_ = opened.enter_async_context
        transaction = await open_(client.begin_transaction("s"))
        texts = await open_(client.begin_transaction("s", serializer=text))
        staging = await open_(client.staging("s", transaction.txn_id).writer())
        table = await client.key_value_table("t", text, primary_keys=text)
        group = await open_(client.reader_group("g"))
        state = await open_(client.state_synchronizer("state", numbers))
        await state.initialize(0)
        calls: dict[str, Callable[[Any], Awaitable[object]]] = {
            "events": transaction.write_events,
            "events ": texts.write_events,
            " events": staging.write_events,
            " events ": staging.write_batch,
            "routing_keys": lambda value: transaction.write_events([b"x"], value),
            "keys": table.get_many,
            "keys ": table.remove_many,
            "items": table.put_many,
            "modifications": table.update_many,
            "updates": state.update_unconditionally,
            "updates ": lambda value: state.update(lambda _: value),
            "to": group.reset,
            "cuts": group.update_retention_stream_cut,
        }
        for name, call in calls.items():
            for value in ONE[name == "routing_keys" :]:
                with pytest.raises(
                    ArgumentTypeError, match=rf"\b{name.strip()}\b.* must be an iterable, not"
                ):
                    await call(value)
                    raise AssertionError(f"{name}: {value!r} was taken")
        assert await state.fetch_updates() == 0
        # One cut needs no list either.
        cut = await client.tail("s")
        assert (await group.reset(cut)).starts == {config.resolve("s"): cut}
        await group.update_retention_stream_cut(cut)

    def blocking() -> None:
        with sync.open_client(config) as client:
            table = client.key_value_table("t", text, primary_keys=text)
            for value in ONE:
                for call in (table.mapping().update, table.get_many, table.put_many):
                    with pytest.raises(ArgumentTypeError, match="must be an iterable, not"):
                        call(value)
            assert not client.create_reader_group("one", "s")

    await trio.to_thread.run_sync(blocking)


@pytest.mark.smoke
async def test_a_client_belongs_to_its_trio_run(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("s")
        await client.create_stream("bytes")
        await client.create_reader_group("g", "s")
        async with (
            client.event_writer("s") as writer,
            client.byte_stream_writer("bytes") as file,
            client.follow_events("s") as follower,
            client.reader_group("g") as group,
            group.reader("r") as reader,
            client.begin_transaction("s") as transaction,
            client.read_events("s", "earliest", "latest") as batches,
        ):
            await (await writer.write_event(b"first"))
            assert await follower.read_event() is not None
            assert await reader.read_event() is not None

            async def enter(opening: Any) -> None:
                async with opening:
                    pass

            uses: list[Callable[[], Awaitable[object]]] = [
                client.list_scopes,
                partial(client.stream_exists, "s"),
                partial(client.stream_layout, "s"),
                lambda: enter(client.event_writer("s")),
                lambda: enter(client.begin_transaction("s")),
                lambda: enter(client.follow_events("s")),
                partial(writer.write_event, b"elsewhere" * 50_000),
                partial(writer.write_events, [b"elsewhere"]),
                partial(writer.write_batch, [b"elsewhere"]),
                writer.flush,
                writer.aclose,
                partial(file.write, b"elsewhere"),
                file.aclose,
                follower.read_event,
                follower.aclose,
                reader.read_event,
                reader.aclose,
                group.stream_cuts,
                group.aclose,
                batches.next_batch,
                batches.aclose,
                transaction.ping,
                transaction.aclose,
            ]

            def elsewhere() -> None:
                for use in uses:
                    with pytest.raises(InvalidArgumentError, match="belongs to another trio run"):
                        trio.run(use)

            await trio.to_thread.run_sync(elsewhere)
            await (await writer.write_event(b"second"))
            await file.write(b"here")
            await file.flush()
            assert await follower.read_event(60) is not None
            assert await reader.read_event(60) is not None
            await transaction.write_event(b"third")
            await transaction.commit()
            assert await batches.next_batch() is not None
