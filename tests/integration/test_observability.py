"""What a client counts, what it tells its observer, and what OpenTelemetry has of it, on a real server."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trio
import trio.testing

from pravega_wire import (
    Event,
    PravegaClient,
    PravegaConfig,
    ReaderGroupConfig,
    ScopedStream,
    StreamCut,
    WriterMetrics,
    open_client,
)
from pravega_wire import sync as blocking
from pravega_wire.errors import DataLossError
from pravega_wire.metrics import (
    BlockAcknowledged,
    BlocksResent,
    BytesReceived,
    ClientClosed,
    ClientMetrics,
    ControllerCalled,
    DataSkipped,
    EventsRead,
    Observation,
    Observer,
    Reconnecting,
    SegmentSucceeded,
)
from pravega_wire.protocol import commands as c
from pravega_wire.telemetry import instrument
from pravega_wire.testing import FaultProxy, PravegaServer
from tests.faults.support import assert_exactly, event_of, numbers_by_key, read_all
from tests.otel import Collected


@pytest.fixture
def collected() -> Iterator[Collected]:
    found = Collected()
    yield found
    found.close()


class Tally:
    """Adds up what an observer is told, and passes it on."""

    def __init__(self, *others: Observer) -> None:
        self._others = others
        self.sums: Counter[tuple[str, str]] = Counter()
        self.last: Observation | None = None

    def __call__(self, observation: Observation) -> None:
        assert not isinstance(self.last, ClientClosed)
        self.last = observation
        match observation:
            case BlockAcknowledged(stream, events, size, seconds):
                assert 0 < seconds < 100
                self._add(stream, blocks_acknowledged=1, events_acknowledged=events, bytes_acknowledged=size)
            case BlocksResent(stream, blocks, events, size):
                self._add(stream, blocks_resent=blocks, events_resent=events, bytes_resent=size)
            case SegmentSucceeded(stream, events, size):
                self._add(stream, segments_sealed=1, events_moved=events, bytes_moved=size)
            case Reconnecting(stream, role, error):
                assert error.message
                self._add(stream, **{f"{role}_reconnects": 1})
            case BytesReceived(stream, size):
                self._add(stream, reads=1, bytes_received=size)
            case EventsRead(stream, events, size):
                self._add(stream, events_read=events, bytes_read=size)
            case DataSkipped(stream, _, _, _, lost):
                self._add(stream, skips=1, bytes_skipped=lost or 0)
            case ControllerCalled(method, _, attempts, error):
                self.sums[method, "calls"] += 1
                self.sums[method, "retries"] += attempts - 1
                self.sums[method, "errors"] += error is not None
            case _:
                pass
        for other in self._others:
            other(observation)

    def _add(self, stream: ScopedStream, **numbers: int) -> None:
        for name, number in numbers.items():
            self.sums[str(stream), name] += number

    def check(self, metrics: ClientMetrics) -> None:
        """The sums are the snapshot's."""
        expected: Counter[tuple[str, str]] = Counter()
        for writer in metrics.writers.values():
            for name in (
                "blocks_acknowledged", "events_acknowledged", "bytes_acknowledged", "blocks_resent",
                "events_resent", "bytes_resent", "segments_sealed", "events_moved", "bytes_moved",
            ):  # fmt: skip
                expected[writer.name, name] = getattr(writer, name)
            expected[writer.name, "writer_reconnects"] = writer.reconnects
        for reader in metrics.readers.values():
            for name in ("reads", "bytes_received", "events_read", "bytes_read", "skips", "bytes_skipped"):
                expected[reader.name, name] = getattr(reader, name)
            expected[reader.name, "reader_reconnects"] = reader.reconnects
        for call in metrics.controller.values():
            for name in ("calls", "retries", "errors"):
                expected[call.name, name] = getattr(call, name)
        assert +self.sums == +expected
        assert metrics.observer_errors == 0


def check_collected(collected: Collected, metrics: ClientMetrics) -> None:
    """What the OpenTelemetry SDK has is the snapshot."""
    written = {
        "events.written": "events_acknowledged",
        "bytes.written": "bytes_acknowledged",
        "blocks.resent": "blocks_resent",
        "events.resent": "events_resent",
        "bytes.resent": "bytes_resent",
        "segments.sealed": "segments_sealed",
        "events.moved": "events_moved",
    }
    read = {
        "reads": "reads",
        "bytes.received": "bytes_received",
        "events.read": "events_read",
        "bytes.read": "bytes_read",
    }
    counted = (("writer", metrics.writers, written), ("reader", metrics.readers, read))
    for role, streams, names in counted:
        for stream, found in streams.items():
            of = {"scope": stream.scope, "stream": stream.name}
            for name, counter in names.items():
                assert collected.value(f"pravega.client.{name}", **of) == getattr(found, counter), name
            assert collected.value("pravega.client.reconnects", role=role, **of) == found.reconnects
    for stream, writer in metrics.writers.items():
        blocks = collected.points("pravega.client.write.duration", scope=stream.scope, stream=stream.name)
        assert sum(point.count for point in blocks) == writer.blocks_acknowledged
    for method, calls in metrics.controller.items():
        points = collected.points("pravega.client.controller.call.duration", method=method)
        assert sum(point.count for point in points) == calls.calls
        assert sum(point.sum for point in points) == pytest.approx(calls.seconds)
        assert collected.value("pravega.client.controller.retries", method=method) == calls.retries


@asynccontextmanager
async def observed(
    config: PravegaConfig, proxy: FaultProxy, collected: Collected
) -> AsyncIterator[PravegaClient]:
    """A client whose counters, observations and instruments are compared at the end."""
    tally = Tally(instrument(collected.meter))
    with trio.fail_after(120):
        async with open_client(config, address_map=proxy.address_map, observer=tally) as client:
            yield client
        metrics = client.metrics()
        assert isinstance(tally.last, ClientClosed)
        tally.check(metrics)
        check_collected(collected, metrics)


def of(client: PravegaClient, stream: str) -> WriterMetrics:
    return client.metrics().writers[client.config.resolve(stream)]


async def test_a_block_that_is_lost_is_sent_again(
    config: PravegaConfig, fault_proxy: FaultProxy, collected: Collected
) -> None:
    """Nothing reaches the store before the connection is cut: all that was sent must be sent again."""

    async with observed(config, fault_proxy, collected) as client:
        await client.create_stream("r", 1)
        async with client.event_writer("r") as writer:
            await (await writer.write_event(bytes(50), "k")).wait()
            fault_proxy.pause()
            for _ in range(2):
                await writer.write_event(bytes(100), "k")
            # They go into one block, which is sent once this test waits for something.
            await trio.testing.wait_all_tasks_blocked()
            before = writer.metrics()
            assert (before.outstanding_bytes, before.events_written) == (216, 3)
            assert of(client, "r") == replace(before, name=str(writer.stream))
            assert collected.value("pravega.client.outstanding", stream="r") == 216
            assert fault_proxy.cut_all() > 0
            fault_proxy.resume()
            await writer.flush()
            after = writer.metrics()
            assert (after.reconnects, after.blocks_resent) == (1, 1)
            assert (after.events_resent, after.bytes_resent) == (2, 216)
            assert (after.events_acknowledged, after.bytes_acknowledged) == (3, 250)
            assert (after.blocks_acknowledged, after.outstanding_bytes) == (2, 0)
        assert of(client, "r") == after
        assert collected.value("pravega.client.outstanding", stream="r") == 0


async def test_lost_acknowledgements_are_reconnects(
    config: PravegaConfig, fault_proxy: FaultProxy, collected: Collected
) -> None:
    """The store has the event each time, and says so at the next set-up: nothing is sent again."""

    async with observed(config, fault_proxy, collected) as client:
        await client.create_stream("a", 1)
        async with client.event_writer("a") as writer:
            for number in range(5):
                fault_proxy.cut_before_reply(c.DataAppended)
                await (await writer.write_event(*event_of(number))).wait()
            metrics = writer.metrics()
            assert (metrics.reconnects, metrics.events_acknowledged) == (5, 5)
            assert metrics.blocks_resent == 0
        fault_proxy.cut_before_reply(c.SegmentRead, times=3)
        assert_exactly(await read_all(client, "a"), 5)
        reader = client.metrics().readers[client.config.resolve("a")]
        assert (reader.reconnects, reader.events_read, reader.reads) == (3, 5, 1)
        assert reader.bytes_read == metrics.bytes_acknowledged
        assert reader.bytes_received == metrics.bytes_acknowledged + 5 * 8


async def test_many_cuts_under_load(
    config: PravegaConfig, fault_proxy: FaultProxy, collected: Collected
) -> None:
    """Whatever happens: the three ways to the numbers say the same, and no event counts twice."""

    async with observed(config, fault_proxy, collected) as client:
        await client.create_stream("l", 2)
        written = 0
        async with client.event_writer("l") as writer:
            fault_proxy.cut_before_reply(c.DataAppended, times=20, after=1)
            while fault_proxy.cuts_due:
                for _ in range(100):
                    await writer.write_event(*event_of(written))
                    written += 1
                await trio.sleep(0.001)
            await writer.flush()
            metrics = writer.metrics()
        # Blocks whose answers were cut are stored, so there need not be one to send again.
        assert metrics.reconnects > 0
        assert metrics.events_acknowledged == metrics.events_written == written
        payloads = await read_all(client, "l")
        assert_exactly(payloads, written)
        reader = client.metrics().readers[client.config.resolve("l")]
        assert reader.events_read == written
        assert reader.bytes_read == sum(map(len, payloads)) == metrics.bytes_acknowledged


async def test_events_that_move_to_successors(
    config: PravegaConfig, fault_proxy: FaultProxy, collected: Collected
) -> None:
    async with observed(config, fault_proxy, collected) as client:
        await client.create_stream("m", 1)
        async with client.event_writer("m") as writer:
            await (await writer.write_event(*event_of(0))).wait()
            fault_proxy.pause()
            size = 0
            for number in range(1, 11):
                payload, key = event_of(number)
                size += len(payload) + 8
                await writer.write_event(payload, key)
            await client.scale_stream("m", [0], [(0.0, 0.5), (0.5, 1.0)])
            fault_proxy.resume()
            await writer.flush()
            metrics = writer.metrics()
        assert (metrics.segments_sealed, metrics.events_moved, metrics.bytes_moved) == (1, 10, size)
        assert (metrics.events_acknowledged, metrics.events_written) == (11, 11)
        assert_exactly(await read_all(client, "m"), 11)


async def test_transactions_large_events_and_byte_streams_count_as_well(
    config: PravegaConfig, fault_proxy: FaultProxy, collected: Collected
) -> None:
    large = bytes(9_000_000)

    async with observed(config, fault_proxy, collected) as client:
        for name in ("t", "l", "b"):
            await client.create_stream(name, 1)
        async with client.begin_transaction("t") as txn:
            assert txn.metrics().events_written == 0
            await (await txn.write_event(b"12345", "k")).wait()
            fault_proxy.cut_before_reply(c.DataAppended)
            await txn.write_events([b"678", b"9"], "k")
            await txn.commit()
            mine = txn.metrics()
            assert (mine.events_written, mine.events_acknowledged, mine.bytes_acknowledged) == (3, 3, 9)
            assert mine.reconnects == 1
        assert of(client, "t") == replace(mine, name=f"{config.scope}/t")

        async with client.event_writer("l", large_events=True) as writer:
            await writer.write_event(b"small", "k")
            fault_proxy.cut_before_reply(c.DataAppended, after=1)
            await writer.write_event(large, "k")
            mine = writer.metrics()
            assert (mine.events_written, mine.events_acknowledged) == (2, 2)
            assert (mine.bytes_written, mine.bytes_acknowledged) == (9_000_005, 9_000_005)
            # More often where the store still has blocks of the lost connection to store: it refuses them,
            # sent again, by closing the connection.
            assert mine.reconnects >= 1
        assert of(client, "l") == mine

        async with client.byte_stream_writer("b") as stream:
            await stream.write(b"one")
            await stream.flush()
            fault_proxy.pause()
            await stream.write(b"two")
            assert stream.metrics().outstanding_bytes == 3
            fault_proxy.cut_all()
            fault_proxy.resume()
            await stream.flush()
            mine = stream.metrics()
            assert (mine.events_written, mine.events_acknowledged, mine.events_resent) == (0, 0, 0)
            assert (mine.bytes_written, mine.bytes_acknowledged) == (6, 6)
            assert (mine.blocks_acknowledged, mine.blocks_resent, mine.bytes_resent) == (2, 1, 3)
            assert mine.reconnects == 1
        assert of(client, "b") == mine
        async with client.byte_stream_reader("b", follow=False) as reader:
            while await reader.receive_some(4):
                pass
        found = client.metrics().readers[client.config.resolve("b")]
        assert (found.events_read, found.bytes_read, found.bytes_received) == (0, 6, 6)


async def test_a_group_s_readers_count(
    config: PravegaConfig, fault_proxy: FaultProxy, collected: Collected
) -> None:
    async with observed(config, fault_proxy, collected) as client:
        await client.create_stream("g", 2)
        async with client.event_writer("g") as writer:
            for number in range(500):
                await writer.write_event(*event_of(number))
        await client.seal_stream("g")
        await client.create_reader_group("group", ["g"])
        payloads = []
        async with client.reader_group("group") as group, group.reader("one") as reader:
            fault_proxy.cut_all()
            async for event in reader:
                payloads.append(event.value)
        assert sum(map(len, numbers_by_key(payloads).values())) == 500
        metrics = client.metrics()
        read = metrics.readers[client.config.resolve("g")]
        assert (read.events_read, read.bytes_read) == (500, sum(map(len, payloads)))
        # The state of the group is a stream as well.
        assert metrics.readers[client.config.resolve("_RGgroup")].events_read > 0


async def test_calls_of_the_controller(
    pravega_server: PravegaServer, config: PravegaConfig, fault_proxy: FaultProxy, collected: Collected
) -> None:
    host, port = config.endpoints[0]
    proxied = replace(config, controller_uri=f"tcp://127.0.0.1:{fault_proxy.endpoint(host, port)}")

    async with observed(proxied, fault_proxy, collected) as client:
        assert await client.create_stream("c", 1)
        assert not await client.create_stream("c", 1)  # an answer, no error
        calls = client.metrics().controller["createStream"]
        assert (calls.calls, calls.errors, calls.retries) == (2, 0, 0)
        assert sum(calls.latency_buckets) == 2
        assert 0 < calls.latency(0.5) <= calls.latency(1)
        assert calls.seconds > 0

        fault_proxy.pause()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.stream_exists, "c")
            await trio.testing.wait_all_tasks_blocked()
            fault_proxy.cut_all()
            fault_proxy.resume()
        call = client.metrics().controller["checkStreamExists"]
        assert (call.calls, call.errors, call.retries) == (1, 0, 1)

        fault_proxy.pause()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.scope_exists, "c")
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        fault_proxy.resume()
        call = client.metrics().controller["checkScopeExists"]
        assert (call.calls, call.errors, call.retries) == (1, 1, 0)
        assert collected.points("pravega.client.controller.call.duration", error="Cancelled")[0].count == 1


async def test_an_observer_that_raises_breaks_nothing(
    config: PravegaConfig, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(observation: Observation) -> None:
        raise ZeroDivisionError(type(observation).__name__)

    with trio.fail_after(120):
        async with open_client(config, observer=broken) as client:
            await client.create_stream("o", 1)
            async with client.event_writer("o") as writer:
                for number in range(100):
                    await writer.write_event(*event_of(number))
                await client.scale_stream("o", [0], [(0.0, 0.5), (0.5, 1.0)])
                for number in range(100, 200):
                    await writer.write_event(*event_of(number))
            assert_exactly(await read_all(client, "o"), 200)
        metrics = client.metrics()
        assert of(client, "o").events_acknowledged == 200
        assert metrics.observer_errors > 20
    assert len([record for record in caplog.records if record.name == "pravega_wire.metrics"]) == 1


@pytest.mark.smoke
def test_the_blocking_twin(config: PravegaConfig, collected: Collected) -> None:
    with blocking.open_client(config, observer=instrument(collected.meter)) as client:
        client.create_stream("s", 2)
        client.create_stream("bytes", 1)
        with client.event_writer("s") as writer:
            writer.write_events([b"payload"] * 1000, [f"k{n % 10}" for n in range(1000)])
            writer.flush()
            metrics = writer.metrics()
            assert metrics.events_acknowledged == writer.events_acknowledged == 1000
            assert client.metrics().writers[client.config.resolve("s")] == metrics
        with client.begin_transaction("s") as txn:
            txn.write_event(b"in it", "k1").wait()
            assert txn.metrics().events_acknowledged == 1
        with client.byte_stream_writer("bytes") as stream:
            stream.write(b"bytes")
            stream.flush()
            assert stream.metrics().bytes_acknowledged == 5
        assert sum(map(len, client.read_events("s"))) == 1000
        assert collected.value("pravega.client.outstanding") == 0
    last = client.metrics()
    assert last.writers[client.config.resolve("s")].events_acknowledged == 1001
    check_collected(collected, last)


def test_what_was_truncated_before_it_was_read_is_told(
    config: PravegaConfig, collected: Collected, caplog: pytest.LogCaptureFixture
) -> None:
    """By batch reads and by readers of a group: which bytes of which segment, once for each of them."""
    told: list[DataSkipped] = []

    def observe(observation: Observation) -> None:
        if isinstance(observation, DataSkipped):
            told.append(observation)

    tally = Tally(observe, instrument(collected.meter))
    event = b"x" * 12  # 20 bytes with its header

    def logged() -> list[str]:
        found = [each.getMessage() for each in caplog.records if each.name == "pravega_wire.stream.skipping"]
        assert {each.levelname for each in caplog.records if each.getMessage() in found} <= {"WARNING"}
        caplog.clear()
        return found

    async def main() -> None:
        async with open_client(config, observer=tally) as client:
            await client.create_stream("s", 1)
            s = config.resolve("s")
            old, low, high = (f"{s}/{each}" for each in ("0.#epoch.0", "1.#epoch.1", "2.#epoch.1"))
            async with client.event_writer("s") as writer:
                await writer.write_events([event] * 10)
            start = ReaderGroupConfig.of([s], automatic_checkpoint_interval=0.5, group_refresh_interval=0.2)
            await client.create_reader_group("g", start)
            async with client.reader_group("g") as group:
                async with group.reader("a", on_truncated="skip_to_head") as reader:
                    assert isinstance(await reader.read_event(), Event)
                await client.truncate_stream("s", StreamCut(s, {0: 140}))

                beginning = StreamCut(s, {0: 0})
                # Whoever only asks how much there is skips nothing.
                assert (await group.metrics()).unread_bytes == 60
                with pytest.raises(DataLossError):
                    await client.segment_ranges("s", beginning)
                assert told == []
                assert logged() == []

                [rest] = await client.segment_ranges("s", beginning, on_truncated="skip_to_head")
                assert (rest.start_offset, rest.end_offset) == (140, 200)
                assert told == [DataSkipped(s, old, 0, 140, 140)]
                [line] = logged()
                assert f"stream {s}, segment {old}: 140 bytes" in line
                assert "offset 0 to 140" in line
                ranges = await client.segment_ranges(
                    "s", beginning, StreamCut(s, {0: 100}), on_truncated="skip_to_head"
                )
                assert ranges == []
                assert told.pop() == DataSkipped(s, old, 0, 100, 100)
                logged()

                # The group has read one event of ten.
                async with group.reader("b", on_truncated="skip_to_head") as reader:
                    found = await reader.read_event()
                    assert isinstance(found, Event)
                    assert found.offset == 140
                assert told.pop() == DataSkipped(s, old, 20, 140, 120)
                [line] = logged()
                assert f"stream {s}, segment {old}: 120 bytes" in line
                assert f"reader b of group {config.scope}/g" in line

                # Two events are left, and go with their segment.
                await client.scale_stream("s", [0], [(0.0, 0.5), (0.5, 1.0)])
                await client.truncate_stream("s", StreamCut(s, {(1 << 32) + 1: 0, (1 << 32) + 2: 0}))
                async with client.event_writer("s") as writer:
                    await writer.write_events([event] * 40)
                tail = await client.tail("s")
                ranges = await client.segment_ranges("s", beginning, tail, on_truncated="skip_to_head")
                assert [each.segment for each in ranges] == [low, high]
                assert sum(each.length for each in ranges) == 800
                assert told.pop() == DataSkipped(s, old, 0, -1, None)
                [line] = logged()
                assert f"stream {s}, segment {old}: the segment was deleted" in line
                async with group.reader("c", on_truncated="skip_to_head") as reader:
                    seen = 0
                    while seen < 40:
                        seen += isinstance(await reader.read_event(), Event)
                assert told.pop() == DataSkipped(s, old, 160, -1, None)
                [line] = logged()
                assert "reader c" in line
                assert "from offset 160" in line
            counts = client.metrics().readers[s]
            assert (counts.skips, counts.bytes_skipped) == (5, 360)
            tally.check(client.metrics())
            of = {"scope": s.scope, "stream": s.name}
            assert collected.value("pravega.client.skips", **of) == 5
            assert collected.value("pravega.client.bytes.skipped", **of) == 360
            assert len(told) == 1

    with caplog.at_level("INFO"):
        trio.run(main)
