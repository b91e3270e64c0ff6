"""What only the blocking client has: a calling thread, time limits, closing from another thread, Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pyarrow as pa
import pytest
import trio

import pravega_wire
from pravega_wire import (
    PravegaConfig,
    ReaderGroupConfig,
    StateFormat,
    TxnStatus,
    WatermarkAssigner,
)
from pravega_wire.controller.types import KeyValueTableConfiguration
from pravega_wire.errors import (
    ArgumentTypeError,
    ClosedError,
    ConcurrentUseError,
    InvalidArgumentError,
    PravegaTimeoutError,
    ScaleConflictError,
    StreamSealedError,
    TransactionAbortedError,
    TransactionError,
)
from pravega_wire.metrics import ControllerCalled
from pravega_wire.serializers import FunctionSerializer
from pravega_wire.sync import EventReader, PravegaClient, open_client
from pravega_wire.testing import FaultProxy
from pravega_wire.transport.pool import ConnectionPool
from tests.faults.support import in_one_buffer
from tests.inside import portal_of
from tests.threads import in_a_thread

ROOT = Path(__file__).resolve().parents[2]


def all_events(client: PravegaClient, stream: str) -> list[bytes]:
    return [event for batch in client.read_events(stream) for event in batch]


# --- functions of the user ------------------------------------------------------------------------


class Threads:
    """In which threads functions run."""

    def __init__(self) -> None:
        self.seen: dict[str, set[int]] = {}

    def note(self, what: str) -> None:
        self.seen.setdefault(what, set()).add(threading.get_ident())

    def serializer(self, what: str) -> FunctionSerializer[str]:
        def to_bytes(value: str) -> bytes:
            self.note(f"{what} to bytes")
            return value.encode()

        def from_bytes(payload: bytes) -> str:
            self.note(f"{what} from bytes")
            return payload.decode()

        return FunctionSerializer(to_bytes, from_bytes)

    def iterate(self, what: str, items: list[Any]) -> Iterator[Any]:
        for item in items:
            self.note(what)
            yield item


@pytest.mark.smoke
def test_functions_run_in_the_thread_that_calls(config: PravegaConfig) -> None:
    threads = Threads()

    def position(key: str) -> float:
        threads.note("partitioner")
        return float(key)

    def step(state: str, update: str) -> str:
        threads.note("step")
        return state + update

    def generate(state: str) -> list[str]:
        threads.note("generate")
        return ["b"]

    def summarize(state: str) -> str:
        threads.note("summarize")
        return state

    def clock() -> float:
        threads.note("clock")
        return time.monotonic()

    def reached(name: str) -> None:
        threads.note("on_checkpoint")

    with open_client(config) as client:
        client.create_stream("s", 2)
        with client.event_writer("s", partitioner=position) as writer:
            writer.write_event(b"0", "0.1")
            writer.write_events(
                threads.iterate("events", [b"1", b"2"]), threads.iterate("keys", ["0.1", "0.9"])
            )
            writer.write_events([b"3", b"4"], threads.iterate("keys of a list", ["0.1", "0.9"]))
            writer.write_batch(threads.iterate("batch", [b"5"]), "0.9")
            arrays = pa.array([b"6", b"7"]), pa.array(["0.3", "0.4"])
            writer.write_events(*arrays)
        with client.resumable_writer("s", uuid4(), partitioner=position) as writer:
            writer.write_events(threads.iterate("numbered", [b"8"]), "0.1")
            assert writer.last_stored_of("0.7") == 0
        with client.begin_transaction("s") as txn:
            txn.write_events(threads.iterate("in a transaction", [b"9"]))
            txn.commit()
        txn.wait_committed()

        client.create_stream("r", 1)
        with client.revisioned_stream("r", threads.serializer("value")) as values:
            start = values.latest_revision()
            values.write_unconditionally("x")
            latest = values.latest_revision()
            assert values.write_conditionally(latest, "y") is not None
            assert [value for _, value in values.read_from(start)] == ["x", "y"]

        client.create_stream("shared", 1)
        format = StateFormat(threads.serializer("state"), threads.serializer("update"), step)
        with client.state_synchronizer("shared", format) as shared:
            assert shared.initialize("a")
            assert shared.update(generate) == "ab"
            shared.update_unconditionally(["c"])
            assert shared.fetch_updates() == "abc"
            shared.compact(summarize)
        with client.state_synchronizer("shared", format) as shared:
            assert shared.fetch_updates() == "abc"

        client.create_key_value_table("t", KeyValueTableConfiguration(2, 1, 1))
        table = client.key_value_table(
            "t",
            threads.serializer("table value"),
            primary_keys=threads.serializer("primary key"),
            secondary_keys=threads.serializer("secondary key"),
        )
        table.insert(("a", "b"), "1")
        table.replace(("a", "b"), "2")
        assert table.exists(("a", "b"))
        table.put_many(threads.iterate("pairs", [(("a", "c"), "3"), (("d", "e"), "4")]))
        found = table.get(("a", "c"))
        assert found is not None
        assert found.value == "3"
        entries = table.get_many(threads.iterate("wanted", [("a", "b"), ("d", "e")]))
        assert [each.value for each in entries if each is not None] == ["2", "4"]
        assert sorted(entry.value for entry in table.entries()) == ["2", "3", "4"]
        assert len(list(table.keys())) == 3
        assert table.mapping_of_pairs()["d", "e"] == "4"  # type: ignore[index]
        assert dict(table.family("a").mapping()) == {"b": "2", "c": "3"}
        table.remove_many(threads.iterate("removed", [("d", "e")]))

        client.create_reader_group(
            "g", ReaderGroupConfig.of([config.resolve("s")], automatic_checkpoint_interval=0.001)
        )
        client.seal_stream("s")
        with client.reader_group("g") as group:
            assigner = WatermarkAssigner(clock=clock)
            threads.seen.pop("clock")
            with group.reader("one", threads.serializer("event"), on_checkpoint=reached) as reader:
                first = reader.read_event(60)
                assert first is not None
                reader.watermark(assigner)
                with pytest.raises(ArgumentTypeError, match=r"^assigner must be"):
                    reader.watermark(None)  # type: ignore[arg-type]
                events = [event.value for event in reader]
            assert len(events) >= 8
    mine = threading.get_ident()
    assert {what for what, where in threads.seen.items() if where != {mine}} == set()
    wanted = {
        "batch", "clock", "event from bytes", "events", "generate", "in a transaction", "keys",
        "keys of a list", "numbered", "pairs", "partitioner", "primary key from bytes",
        "primary key to bytes", "removed",
        "secondary key from bytes", "secondary key to bytes", "state from bytes", "state to bytes", "step",
        "summarize", "table value from bytes", "table value to bytes", "update from bytes", "update to bytes",
        "value from bytes", "value to bytes", "wanted",
    }  # fmt: skip
    assert wanted - set(threads.seen) == set()


def test_on_checkpoint_runs_in_the_thread_that_reads(config: PravegaConfig) -> None:
    seen: list[int] = []
    awaited: list[str] = []

    async def reached(name: str) -> None:
        awaited.append(name)
        await trio.lowlevel.checkpoint()

    def begin(name: str) -> object:
        seen.append(threading.get_ident())
        return reached(name)

    with open_client(config) as client:
        client.create_stream("s", 1)
        with client.event_writer("s") as writer:
            writer.write_events([b"x"] * 10)
        client.create_reader_group("g", ReaderGroupConfig.of([config.resolve("s")]))
        with client.reader_group("g") as group, group.reader("one", on_checkpoint=begin) as reader:
            with pytest.raises(ArgumentTypeError, match="on_checkpoint must be a function"):
                group.reader("two", on_checkpoint="no function")  # type: ignore[call-overload]
            assert reader.read_event(60) is not None
            checkpoint = in_a_thread(lambda: group.checkpoint("c"))
            events = iter(reader)
            more = in_a_thread(lambda: client.event_writer("s").__enter__())
            with client.event_writer("s") as writer:
                while not checkpoint.done():
                    writer.write_event(b"y").wait()
                    next(events)
            more.result(60)
    assert seen == [threading.get_ident()]
    assert awaited == ["c"]


@pytest.mark.smoke
def test_keys_go_where_the_partitioner_says(config: PravegaConfig) -> None:
    """Also from arrays, after scaling, and in a resumable writer."""
    with open_client(config) as client:
        client.create_stream("s", 1)
        keys = [f"{number / 10}" for number in range(1, 10)]

        def events(kind: str) -> list[bytes]:
            return [f"{kind} {key}".encode() for key in keys]

        with client.event_writer("s", partitioner=float) as writer:
            # Stored before the scale, or they would be moved with the others.
            writer.write_events(events("before"), keys).wait()
            [only] = client.active_segments("s")
            client.scale_stream("s", [only.segment_id], [(0.0, 0.5), (0.5, 1.0)])
            writer.write_events(events("list"), keys)
            writer.write_events(iter(events("iterable")), iter(keys))
            writer.write_events(pa.array(events("array")), pa.array(keys))
            writer.write_events(pa.array(events("array with a list")), keys)
            writer.write_events(pa.array(events("array with an iterable")), iter(keys))
            for event, key in zip(events("one"), keys, strict=True):
                writer.write_event(event, key)
        with client.resumable_writer("s", uuid4(), partitioner=float) as writer:
            writer.write_events(events("numbered"), keys)
            writer.write_events(pa.array(events("numbered array")), keys)
        found = 0
        for each in client.active_segments("s"):
            for wanted in client.segment_ranges("s"):
                if wanted.segment_id == each.segment_id:
                    with client.read_range(wanted) as batches:
                        for event in (event for batch in batches for event in batch):
                            assert each.low < float(event.split()[-1]) <= each.high
                            found += 1
        assert found == 8 * len(keys)


def test_copying_with_one_client(config: PravegaConfig) -> None:
    """The source reads with the client that writes; each event is there before the next one is made."""
    with open_client(config) as client:
        for name in ("from", "to"):
            client.create_stream(name, 1)
            client.create_reader_group(f"of-{name}", ReaderGroupConfig.of([config.resolve(name)]))
        with (
            client.reader_group("of-from") as group,
            group.reader("a") as source,
            client.reader_group("of-to") as target_group,
            target_group.reader("b") as target,
            client.event_writer("from") as origin,
            client.event_writer("to") as writer,
        ):

            def copied() -> Iterator[bytes]:
                for number in range(20):
                    origin.write_event(b"%d" % number)
                    event = one(source)
                    yield event
                    # Nothing follows until it has been written, so it must not wait for others.
                    assert one(target) == event

            writer.write_events(copied()).wait()
        assert all_events(client, "to") == [b"%d" % number for number in range(20)]


def one(reader: EventReader[bytes]) -> bytes:
    event = reader.read_event(60)
    assert event is not None
    return event.value


def test_a_source_that_blocks_holds_nobody_up(config: PravegaConfig) -> None:
    """Other threads get on, and the lease of the transaction is renewed."""
    renewed = threading.Event()

    def observe(event: object) -> None:
        if isinstance(event, ControllerCalled) and event.method == "pingTransaction":
            renewed.set()

    with open_client(config, observer=observe) as client:
        client.create_stream("s", 1)

        def slow() -> Iterator[bytes]:
            yield b"one"
            assert in_a_thread(lambda: client.stream_exists("s")).result(60) is True
            assert renewed.wait(60)
            yield b"two"

        with client.begin_transaction("s", lease=10) as txn:
            txn.write_events(slow())
            txn.commit()
        txn.wait_committed()
        assert all_events(client, "s") == [b"one", b"two"]


def test_a_source_may_write_to_the_same_writer(config: PravegaConfig) -> None:
    """And so may other threads, while the source blocks."""
    with open_client(config) as client:
        client.create_stream("s", 1)
        with client.event_writer("s") as writer:

            def source() -> Iterator[bytes]:
                yield b"1"
                writer.write_event(b"2").wait(timeout=20)
                writer.write_events(iter([b"3"]), timeout=20).wait(timeout=20)
                writer.write_batch([b"4"], timeout=20)
                writer.flush(timeout=20)
                in_a_thread(lambda: writer.write_event(b"5").wait(timeout=20)).result(60)
                yield b"6"

            writer.write_events(source())
        assert sorted(all_events(client, "s")) == [b"%d" % number for number in range(1, 7)]


def test_an_iterable_may_use_one_buffer_for_all_events(config: PravegaConfig) -> None:
    numbers = [b"%04d" % number for number in range(1000)]

    with open_client(config) as client:
        client.create_stream("s", 1)
        with client.event_writer("s") as writer:
            writer.write_events(in_one_buffer(numbers))
            writer.write_events(in_one_buffer(numbers), map(str, range(1000)))
            writer.write_batch(in_one_buffer(numbers))
        assert all_events(client, "s") == 3 * numbers
        client.create_key_value_table("t", KeyValueTableConfiguration(1, 4))
        table = client.key_value_table("t")
        table.put_many(zip(numbers, in_one_buffer(numbers), strict=True))
        assert [entry and entry.value for entry in table.get_many(in_one_buffer(numbers))] == numbers


def test_a_block_is_left_quietly_after_an_abort(config: PravegaConfig) -> None:
    """Also if the client's thread has not taken all events yet."""
    with open_client(config) as client:
        client.create_stream("s", 1)
        with client.begin_transaction("s") as txn:
            for _ in range(100):
                txn.write_event(b"event")
            txn.abort()
        assert txn.status() in (TxnStatus.ABORTING, TxnStatus.ABORTED)


def test_segments_to_scale_may_come_from_a_generator_that_uses_the_client(config: PravegaConfig) -> None:
    with open_client(config) as client:
        client.create_stream("s", 2)

        def active() -> Iterator[int]:
            for each in client.active_segments("s"):
                yield each.segment_id

        client.scale_stream("s", active(), iter([(0.0, 0.5), (0.5, 1.0)]))
        with pytest.raises(ScaleConflictError, match=r"segments \[7\] must be active"):
            client.scale_stream("s", iter([7]), iter([(0.0, 1.0)]))


def test_a_partitioner_that_raises_stopiteration(config: PravegaConfig) -> None:
    """It is not taken for the end of the keys."""

    def position(key: str) -> float:
        raise StopIteration

    with open_client(config) as client:
        client.create_stream("s", 2)
        with client.event_writer("s", partitioner=position) as writer:
            for keys in (["a", "b"], iter(["a", "b"])):
                with pytest.raises(RuntimeError, match="raised StopIteration"):
                    writer.write_events([b"1", b"2"], keys)
            assert writer.events_written == 0


@pytest.mark.parametrize("kind", ["writer", "staging", "transaction"])
def test_the_block_of_a_writer_is_left_after_its_client(config: PravegaConfig, kind: str) -> None:
    with open_client(config) as client:
        client.create_stream("s", 1)

    for error in (None, KeyError("mine")):
        client = open_client(config)
        opened = (
            client.event_writer("s")
            if kind == "writer"
            else client.begin_transaction("s")
            if kind == "transaction"
            else client.staging("s", client.begin_transaction("s").txn_id).writer()
        )
        with pytest.raises(KeyError, match="mine") if error else nullcontext(), opened as writer:
            writer.write_event(b"1").wait()
            if error is not None:
                writer.write_event(b"2")
            client.close()
            if error is not None:
                raise error
        if error is None:
            writer.close()


def test_what_a_source_gave_before_it_raised_is_stored(config: PravegaConfig) -> None:
    def failing(count: int) -> Iterator[bytes]:
        yield from (b"%d" % number for number in range(count))
        raise KeyError("no more")

    def expect(count: int) -> list[bytes]:
        return [b"%d" % number for number in range(count)]

    with open_client(config) as client:
        for name, count in (("none", 0), ("few", 7), ("many", 30_001)):
            client.create_stream(name, 1)
            with client.event_writer(name) as writer:
                with pytest.raises(KeyError, match="no more"):
                    writer.write_events(failing(count), "k")
                writer.flush()
                assert all_events(client, name) == expect(count)
                writer.write_event(b"usable").wait()
        client.create_stream("keys", 1)
        with client.event_writer("keys") as writer:
            with pytest.raises(InvalidArgumentError, match="fewer routing keys"):
                writer.write_events(iter(expect(10)), iter(["k"] * 9))
            writer.flush()
            assert all_events(client, "keys") == expect(9)

    async def main() -> None:
        async with pravega_wire.open_client(config) as client:
            for name, count in (("async-few", 7), ("async-many", 30_001)):
                await client.create_stream(name, 1)
                async with client.event_writer(name) as writer:
                    with pytest.raises(KeyError, match="no more"):
                        await writer.write_events(failing(count), "k")
                    await writer.flush()
                    found = [event async for batch in client.read_events(name) for event in batch]
                    assert found == expect(count)

    trio.run(main)


@pytest.mark.parametrize("kind", ["event", "resumable", "transaction"])
def test_slow_events_let_other_tasks_run(config: PravegaConfig, kind: str) -> None:
    """In the async client events are made in its only thread."""
    turns = 0
    between: list[int] = []

    def slow() -> Iterator[bytes]:
        for number in range(100):
            between.append(turns)
            time.sleep(0.006)
            yield b"%d" % number

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async def main() -> None:
        async with pravega_wire.open_client(config) as client, trio.open_nursery() as nursery:
            await client.create_stream("s", 1)
            nursery.start_soon(other)
            if kind == "transaction":
                async with client.begin_transaction("s") as txn:
                    await txn.write_events(slow())
            elif kind == "event":
                async with client.event_writer("s") as writer:
                    await writer.write_events(slow())
            else:
                async with client.resumable_writer("s", uuid4()) as writer:
                    await writer.write_events(slow())
            nursery.cancel_scope.cancel()

    trio.run(main)
    # Each takes longer than others may be kept waiting, so they run after each of them, or one more.
    assert len(set(between)) >= 45


def test_a_function_may_use_the_client(config: PravegaConfig) -> None:
    with open_client(config) as client:
        client.create_stream("s", 1)
        client.create_stream("other", 1)
        text = FunctionSerializer(str.encode, bytes.decode)

        def step(state: str, update: str) -> str:
            assert client.stream_exists("s")
            return state + update

        with (
            client.state_synchronizer("s", StateFormat(text, text, step)) as shared,
            client.event_writer("other") as writer,
        ):

            def generate(state: str) -> list[str]:
                assert shared.fetch_updates() == state
                writer.write_events(iter([b"1", b"2"])).wait()
                return ["b"]

            shared.initialize("a")
            assert shared.update(generate) == "ab"
        assert all_events(client, "other") == [b"1", b"2"]


def test_a_function_that_would_wait_for_itself_is_refused(config: PravegaConfig) -> None:
    text = FunctionSerializer(str.encode, bytes.decode)
    with open_client(config) as client:
        client.create_stream("s", 1)
        with client.state_synchronizer("s", StateFormat(text, text, str.__add__)) as first:
            first.initialize("a")
            first.update(lambda state: ["b"])

        def step(state: str, update: str) -> str:
            again.fetch_updates()
            return state + update

        with client.state_synchronizer("s", StateFormat(text, text, step)) as again:
            with pytest.raises(InvalidArgumentError, match="must not use the synchronizer"):
                again.fetch_updates()
            assert again.state == "a"


@pytest.mark.parametrize("kind", [list, deque, pa.array])
def test_keys_that_are_not_as_many_as_the_events(config: PravegaConfig, kind: Callable[[Any], Any]) -> None:
    events = [b"1", b"2", b"3"]
    with open_client(config) as client:
        client.create_stream("s", 1)
        with client.event_writer("s") as writer:
            for count, refused in ((2, "fewer"), (4, "more")):
                for keys in (list, deque, tuple):
                    with pytest.raises(InvalidArgumentError, match=f"{refused} routing keys than events"):
                        writer.write_events(kind(events), keys(["a"] * count))
            writer.flush()
            assert all_events(client, "s") == []
            for keys in (list, deque, iter):  # type: ignore[assignment]
                writer.write_events(kind(events), keys(["a", "b", "c"])).wait()
            assert all_events(client, "s") == events * 3


@pytest.mark.parametrize("count", [0, 3, 20_000])
def test_more_keys_than_an_iterator_has_events(config: PravegaConfig, count: int) -> None:
    events = [b"%d" % number for number in range(count)]
    with open_client(config) as client:
        client.create_stream("s", 1)
        with client.event_writer("s") as writer:
            for keys in (list, iter):
                before = len(all_events(client, "s"))
                with pytest.raises(InvalidArgumentError, match="more routing keys than events"):
                    writer.write_events(iter(events), keys(["k"] * (count + 1)))
                writer.flush()
                # It turned out on the way: those that were written until then stay so.
                written = all_events(client, "s")[before:]
                assert written == events[: len(written)]
                writer.write_events(iter(events), keys(["k"] * count)).wait()
                assert all_events(client, "s")[before + len(written) :] == events


@pytest.mark.parametrize("who", ["the function itself", "another thread"])
def test_no_update_is_lost_while_a_function_runs(config: PravegaConfig, who: str) -> None:
    """A function's result is for the state that it was given, whatever is fetched before it returns."""
    text = FunctionSerializer(str.encode, bytes.decode)
    format = StateFormat(text, text, str.__add__)
    with open_client(config) as client:
        client.create_stream("s", 1)
        with (
            client.state_synchronizer("s", format) as shared,
            client.state_synchronizer("s", format) as elsewhere,
        ):
            seen: list[str] = []

            def interfere(update: str) -> None:
                elsewhere.fetch_updates()
                elsewhere.update(lambda state: [update])
                assert shared.fetch_updates() == elsewhere.state

            def given(state: str, update: str) -> None:
                first = not seen
                seen.append(state)
                if first and who == "another thread":
                    in_a_thread(lambda: interfere(update)).result(60)
                elif first:
                    interfere(update)

            def generate(state: str) -> list[str]:
                given(state, "b")
                # It would be too long with the other one's update.
                return ["c"] if len(state) < 2 else []

            def summarize(state: str) -> str:
                given(state, "d")
                return state

            shared.initialize("a")
            assert shared.update(generate) == "ab"
            assert seen == ["a", "ab"]

            seen.clear()
            shared.compact(summarize)
            assert seen == ["ab", "abd"]
            assert shared.state == elsewhere.fetch_updates() == "abd"
        with client.state_synchronizer("s", format) as new:
            assert new.fetch_updates() == "abd"


# --- limits of time -------------------------------------------------------------------------------


@pytest.fixture
def paused(config: PravegaConfig, fault_proxy: FaultProxy) -> Iterator[tuple[PravegaClient, FaultProxy]]:
    """A client whose stores stop answering when the proxy is paused."""
    with open_client(config, address_map=fault_proxy.address_map) as client:
        client.create_stream("s", 1)
        client.create_stream("r", 1)
        client.create_key_value_table("t", KeyValueTableConfiguration(1, 4, 0))
        try:
            yield client, fault_proxy
        finally:
            fault_proxy.resume()


def test_calls_end_when_their_time_is_over(
    config: PravegaConfig, paused: tuple[PravegaClient, FaultProxy]
) -> None:
    client, proxy = paused
    text = FunctionSerializer(str.encode, bytes.decode)
    with (
        client.event_writer("s") as writer,
        client.begin_transaction("s") as txn,
        client.begin_transaction("s") as wide,
        client.revisioned_stream("r") as values,
        client.state_synchronizer("r", StateFormat(text, text, str.__add__)) as shared,
        client.byte_stream_writer("r") as file,
    ):
        writer.write_event(b"0").wait()
        txn.write_event(b"1")
        txn.flush()
        table = client.key_value_table("t")
        table.put(b"abcd", b"0")
        start = values.latest_revision()
        [ranges] = client.segment_ranges("s")
        batches = client.read_range(ranges)
        staging = client.staging("s", wide.txn_id).writer()
        with staging:
            staging.write_event(b"staged")
        proxy.pause()
        ack = writer.write_event(b"2")
        txn.write_event(b"3")
        file.write(b"bytes")
        calls: dict[str, Callable[[], object]] = {
            "flush": lambda: writer.flush(timeout=0.3),
            "ack": lambda: ack.wait(timeout=0.3),
            "write": lambda: writer.write_events([bytes(1 << 20)] * 40, timeout=0.3),
            "write an iterable": lambda: writer.write_events(iter([bytes(1 << 20)] * 40), timeout=0.3),
            "commit": lambda: txn.commit(timeout=0.3),
            "revision": lambda: values.latest_revision(timeout=0.3),
            "append": lambda: values.write_conditionally(start, b"v", timeout=0.3),
            "state": lambda: shared.fetch_updates(timeout=0.3),
            "table": lambda: table.get(b"abcd", timeout=0.3),
            "put": lambda: table.put(b"abcd", b"1", timeout=0.3),
            "batch": lambda: batches.next_batch(timeout=0.3),
            "tail": lambda: client.tail("s", timeout=0.3),
            "file": lambda: file.flush(timeout=0.3),
            "merge": lambda: client.staging("s", wide.txn_id).merge([staging.staging_id], timeout=0.3),
            "close": lambda: writer.close(timeout=0.3),
        }
        messages = {}
        for name, call in calls.items():
            with pytest.raises(PravegaTimeoutError) as failed:
                call()
            assert isinstance(failed.value, TimeoutError)
            messages[name] = str(failed.value)
        assert "EventWriter.flush did not finish within 0.3 s" in messages["flush"]
        about = f"within 0.3 s (of {config.resolve('s')})"
        for name in ("write", "write an iterable"):
            assert f"EventWriter.write_events did not finish {about}" in messages[name]
        for name in ("flush", "ack", "write", "commit", "tail"):
            assert "/s" in messages[name] or " s)" in messages[name], messages[name]
        proxy.resume()
        assert client.tail("s").positions
        txn.commit()
        assert table.get(b"abcd") is not None
    txn.wait_committed()
    # What was queued when a time was over is stored, once.
    with open_client(config) as other:
        events = all_events(other, "s")
    assert events.count(b"0") == events.count(b"1") == events.count(b"3") == 1


def test_a_flush_that_timed_out_may_be_repeated(paused: tuple[PravegaClient, FaultProxy]) -> None:
    client, proxy = paused
    with client.event_writer("s") as writer:
        writer.write_event(b"0").wait()
        proxy.pause()
        ack = writer.write_events([b"1", b"2"])
        with pytest.raises(PravegaTimeoutError):
            writer.flush(timeout=0.2)
        with pytest.raises(PravegaTimeoutError):
            ack.wait(timeout=0)
        assert not ack.done
        proxy.resume()
        writer.flush(timeout=60)
        ack.wait(timeout=60)
    assert all_events(client, "s") == [b"0", b"1", b"2"]


def test_a_commit_that_timed_out_while_it_flushed_is_aborted_on_leaving(
    paused: tuple[PravegaClient, FaultProxy],
) -> None:
    client, proxy = paused
    with client.begin_transaction("s") as txn:
        txn.write_event(b"1")
        txn.flush()
        proxy.pause()
        txn.write_event(b"2")
        with pytest.raises(PravegaTimeoutError, match=r"Transaction\.commit"):
            txn.commit(timeout=0.3)
        assert txn.status() is TxnStatus.OPEN
    with pytest.raises(TransactionAbortedError):
        txn.wait_committed()
    proxy.resume()
    assert all_events(client, "s") == []


def test_a_commit_that_timed_out_after_it_was_sent_is_not_aborted_on_leaving(
    config: PravegaConfig, fault_proxy: FaultProxy
) -> None:
    port = fault_proxy.endpoint(*config.endpoints[0])
    with open_client(replace(config, controller_uri=f"tcp://127.0.0.1:{port}")) as client:
        client.create_stream("s", 1)
        with client.begin_transaction("s") as txn:
            txn.write_event(b"1")
            txn.flush()
            # The controller gets the commit, and its answer is held.
            fault_proxy.pause(up=False)
            with pytest.raises(PravegaTimeoutError, match=r"Transaction\.commit"):
                txn.commit(timeout=2)
            fault_proxy.resume()
            while txn.status() is TxnStatus.OPEN:
                time.sleep(0.05)
        # An abort would have been refused, loudly.
        txn.wait_committed()
        assert all_events(client, "s") == [b"1"]


@pytest.mark.parametrize("segments", [1, 3])
def test_an_iterable_whose_writing_timed_out_is_written_from_where_it_stopped(
    paused: tuple[PravegaClient, FaultProxy], segments: int
) -> None:
    client, proxy = paused
    events = [b"%05d" % number + bytes(1000) for number in range(5_000)]
    client.create_stream("many", segments)
    with client.event_writer("many", max_outstanding_bytes=500_000) as writer:
        proxy.pause()
        source = iter(events)
        with pytest.raises(PravegaTimeoutError):
            writer.write_events(source, map(str, range(5_000)), timeout=0.5)
        written = writer.events_written
        assert 0 < written < 5_000
        # It was read further than that.
        assert next(source) > events[written]
        proxy.resume()
        writer.write_events(iter(events[written:]), map(str, range(written, 5_000))).wait(timeout=120)
        assert writer.events_written == 5_000
    assert sorted(all_events(client, "many")) == events


@pytest.mark.parametrize("timeout", [-1, float("nan"), "1", True])
def test_a_time_that_is_none(config: PravegaConfig, timeout: Any) -> None:
    with open_client(config) as client:
        with pytest.raises(InvalidArgumentError, match="timeout"):
            client.scope_exists("s", timeout=timeout)
        assert client.scope_exists(str(config.scope), timeout=float("inf"))


# --- closing while another thread waits -----------------------------------------------------------


def waiting(client: PravegaClient, call: Callable[[], object]) -> Future[object]:
    """A call in another thread, which has begun."""
    before = set(portal_of(client).portal.calls)
    future = in_a_thread(call)
    while not set(portal_of(client).portal.calls) - before and not future.done():
        time.sleep(0.01)
    return future


def test_closing_ends_the_calls_of_other_threads(paused: tuple[PravegaClient, FaultProxy]) -> None:
    client, proxy = paused
    stream = client.config.resolve("s")
    client.create_reader_group("g", ReaderGroupConfig.of([stream]))
    writer = client.event_writer("s").__enter__()
    group = client.reader_group("g")
    reader = group.reader("one").__enter__()
    reader.read_event(0)
    values = client.revisioned_stream("r")
    latest = values.latest_revision()
    file = client.byte_stream_reader("r")
    text = FunctionSerializer(str.encode, bytes.decode)
    shared = client.state_synchronizer("r", StateFormat(text, text, str.__add__))
    checkpoints = client.reader_group("g")
    ended = client.reader_group("g")
    for close, call in (
        (reader.close, lambda: reader.read_event()),
        (file.close, lambda: file.read(1)),
        (values.close, lambda: values.wait_beyond(latest)),
        (shared.close, shared.wait_for_updates),
        (ended.close, ended.wait_for_end_of_data),
    ):
        told = waiting(client, call)
        close()
        with pytest.raises(ClosedError):
            told.result(60)
    with group.reader("silent"):
        told = waiting(client, checkpoints.checkpoint)
        checkpoints.close()
        with pytest.raises(ClosedError):
            told.result(60)
    proxy.pause()
    writer.write_event(b"x")
    told = waiting(client, writer.flush)
    acked = waiting(client, writer.write_event(b"y").wait)
    with pytest.raises(PravegaTimeoutError):
        writer.close(timeout=0.2)
    for each in (told, acked):
        with pytest.raises(ClosedError):
            each.result(60)


@pytest.mark.parametrize("what", ["read_event", "flush", "write_events", "commit", "table", "fetch"])
def test_closing_the_client_ends_calls(config: PravegaConfig, fault_proxy: FaultProxy, what: str) -> None:
    text = FunctionSerializer(str.encode, bytes.decode)
    release = threading.Event()
    begun = threading.Event()

    def blocked() -> Iterator[bytes]:
        begun.set()
        assert release.wait(60)
        while True:
            yield b"x"

    with open_client(config, address_map=fault_proxy.address_map) as client:
        client.create_stream("s", 1)
        client.create_stream("r", 1)
        client.create_key_value_table("t", KeyValueTableConfiguration(1, 4, 0))
        client.create_reader_group("g", ReaderGroupConfig.of([config.resolve("s")]))
        writer = client.event_writer("s").__enter__()
        txn = client.begin_transaction("s")
        txn.write_event(b"a")
        txn.flush()
        reader = client.reader_group("g").reader("one").__enter__()
        table = client.key_value_table("t")
        shared = client.state_synchronizer("r", StateFormat(text, text, str.__add__))
        if what != "read_event":
            fault_proxy.pause()
        writer.write_event(b"b")
        txn.write_event(b"c")
        calls: dict[str, Callable[[], object]] = {
            "read_event": lambda: [None for _ in iter(reader.read_event, None)],
            "flush": writer.flush,
            "write_events": lambda: writer.write_events(blocked()),
            "commit": txn.commit,
            "table": lambda: table.get(b"abcd"),
            "fetch": shared.fetch_updates,
        }
        told = waiting(client, calls[what])
        if what == "write_events":
            assert begun.wait(60)
    release.set()
    with pytest.raises(ClosedError):
        told.result(60)
    fault_proxy.resume()


# --- Ctrl-C ---------------------------------------------------------------------------------------

INTERRUPTED = [
    "read_event", "flush", "write_events", "blocking source", "commit", "wait_committed", "checkpoint",
    "fetch", "state function",
]  # fmt: skip


def interrupted(uri: str, scope: str, what: str) -> None:
    """The process that is interrupted."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    text = FunctionSerializer(str.encode, bytes.decode)
    config = PravegaConfig.from_defaults(controller_uri=uri, scope=scope, env={})
    with FaultProxy() as proxy, open_client(config, address_map=proxy.address_map) as client:
        client.create_stream("s", 1)
        client.create_stream("r", 1)
        client.create_reader_group("g", ReaderGroupConfig.of([config.resolve("s")]))
        group = client.reader_group("g")
        writer = client.event_writer("s").__enter__()
        writer.write_event(b"a").wait()
        shared = client.state_synchronizer("r", StateFormat(text, text, str.__add__))
        shared.initialize("")

        def begin() -> None:
            print("begun", flush=True)

        def endless() -> Iterator[bytes]:
            begin()
            while True:
                yield bytes(1000)

        def blocks() -> Iterator[bytes]:
            yield b"b"
            begin()
            time.sleep(600)

        def blocking_function(state: str) -> list[str]:
            begin()
            time.sleep(600)
            return []

        try:
            if what == "read_event":
                with group.reader("one") as reader:
                    reader.read_event(60)
                    begin()
                    reader.read_event()
            elif what == "flush":
                proxy.pause()
                writer.write_event(b"b")
                begin()
                writer.flush()
            elif what == "write_events":
                proxy.pause()
                writer.write_events(endless())
            elif what == "blocking source":
                writer.write_events(blocks())
            elif what == "commit":
                with client.begin_transaction("s") as txn:
                    proxy.pause()
                    txn.write_event(b"b")
                    begin()
                    txn.commit()
            elif what == "wait_committed":
                txn = client.begin_transaction("s")
                txn._twin.wait_committed = trio.sleep_forever  # type: ignore[method-assign]
                begin()
                txn.wait_committed()
            elif what == "checkpoint":
                with group.reader("one"):
                    begin()
                    group.checkpoint()
            elif what == "fetch":
                proxy.pause()
                begin()
                shared.fetch_updates()
            else:
                shared.update(blocking_function)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        proxy.resume()
        assert client.stream_exists("s")
        with client.event_writer("s") as other:
            other.write_event(b"after").wait()
        print("usable", flush=True)


@pytest.mark.parametrize("what", INTERRUPTED)
def test_ctrl_c(config: PravegaConfig, what: str) -> None:
    """The main thread is interrupted at once, wherever it waits, and the client works on."""
    code = f"import sys; from {__name__} import interrupted; interrupted(*sys.argv[1:])"
    with subprocess.Popen(
        [sys.executable, "-c", code, config.controller_uri, str(config.scope), what],
        cwd=ROOT, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        # It has said so just before it waits.
        time.sleep(0.5)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        took = time.monotonic() - began
        assert process.stdout.readline() == "usable\n"
        assert process.wait(60) == 0
    # One second is the promise; the machine may be busy.
    assert took < 5


@pytest.mark.parametrize("what", ["a reader of a group", "a follower", "batches of a reader"])
def test_an_iterator_of_a_reader_is_for_one_thread(config: PravegaConfig, what: str) -> None:
    with open_client(config) as client:
        client.create_stream("s", 1)
        client.create_reader_group("g", ["s"])
        with (
            client.reader_group("g") as group,
            group.reader("one") as reader,
            client.follow_events("s") as events,
        ):
            each: Iterator[Any] = {
                "a reader of a group": lambda: iter(reader),
                "a follower": lambda: iter(events),
                "batches of a reader": reader.batches,
            }[what]()
            both = [in_a_thread(lambda: next(each)) for _ in range(2)]
            done, waiting = wait(both, 60, FIRST_COMPLETED)
            assert [type(each.exception()) for each in done] == [ConcurrentUseError]
            with client.event_writer("s") as writer:
                writer.write_event(b"1")
            for found in waiting:
                assert found.result(60) is not None


def test_an_iterator_is_for_one_thread(paused: tuple[PravegaClient, FaultProxy]) -> None:
    client, proxy = paused
    with client.event_writer("s") as writer:
        writer.write_event(b"1")
    found = iter(client.read_events("s"))
    proxy.pause()
    both = [in_a_thread(lambda: list(next(found))) for _ in range(2)]
    done, waiting = wait(both, 60, FIRST_COMPLETED)
    assert [type(each.exception()) for each in done] == [ConcurrentUseError]
    proxy.resume()
    assert [each.result(60) for each in waiting] == [[b"1"]]


LEFT_OPEN = """
import sys
from pravega_wire import sync
from tests.integration.test_blocking_client import config_of

opened = sync.open_client(config_of(sys.argv[1:]))
client = opened.__enter__()
writer = client.event_writer("s").__enter__()
writer.write_event(b"1").wait()
found = iter(client.read_events("s"))
assert list(next(found)) == [b"1"]

def suspended():
    with client.event_writer("s") as other:
        other.write_event(b"2").wait()
        yield

generator = suspended()
next(generator)
"""

IN_A_FORK = """
import os, sys
from pravega_wire import sync
from tests.integration.test_blocking_client import config_of

with sync.open_client(config_of(sys.argv[1:])) as client:
    client.create_reader_group("fork", ["s"])
    with client.event_writer("s") as writer, client.reader_group("fork") as group, group.reader("one"):
        child = os.fork()
        if child == 0:
            sys.exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        writer.write_event(b"1").wait()
"""


def config_of(arguments: list[str]) -> PravegaConfig:
    return PravegaConfig.from_defaults(controller_uri=arguments[0], scope=arguments[1], env={})


@pytest.mark.parametrize("program", [LEFT_OPEN, IN_A_FORK], ids=["at exit", "in a fork"])
def test_blocks_that_end_without_the_clients_thread(config: PravegaConfig, program: str) -> None:
    with open_client(config) as client:
        client.create_stream("s", 1)
    assert isinstance(config.controller_uri, str)
    command = [sys.executable, "-c", program, config.controller_uri, str(config.scope)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# --- single events --------------------------------------------------------------------------------


@pytest.mark.smoke
def test_single_events_keep_their_place(config: PravegaConfig) -> None:
    """They cross threads later than they are written, and yet before what is written after them."""
    with open_client(config) as client:
        client.create_stream("s", 2)
        wanted: list[bytes] = []
        with client.event_writer("s") as writer:
            for turn in range(300):
                for number in range(turn % 7):
                    wanted.append(b"%d single %d" % (turn, number))
                    writer.write_event(wanted[-1], "key")
                if turn % 3 == 0:
                    wanted += [b"%d many" % turn] * 2
                    writer.write_events(wanted[-2:], "key")
                elif turn % 3 == 1:
                    wanted += [b"%d fed" % turn]
                    writer.write_events(iter(wanted[-1:]), "key")
                else:
                    wanted += [b"%d batch" % turn]
                    writer.write_batch(wanted[-1:], "key")
                assert writer.events_written == len(wanted)
                assert writer.bytes_written == sum(map(len, wanted))
                assert writer.metrics().events_written == len(wanted)
        assert all_events(client, "s") == wanted
        with client.begin_transaction("s") as txn:
            for event in wanted[:50]:
                txn.write_event(event, "key")
            txn.commit()
        txn.wait_committed()
        assert all_events(client, "s") == wanted + wanted[:50]
        writer_id = uuid4()
        for first in (1, 20):
            with client.resumable_writer("s", writer_id, first_event_number=first) as resumable:
                for number in range(first, 51):
                    assert resumable.next_event_number == number
                    resumable.write_event(b"%d" % number, "key")
        assert all_events(client, "s")[-50:] == [b"%d" % number for number in range(1, 51)]


def test_a_single_event_goes_out_without_being_waited_for(config: PravegaConfig) -> None:
    with open_client(config) as client, open_client(config) as other:
        client.create_stream("s", 1)
        with client.event_writer("s") as writer:
            for count in (1, 3, 1000):
                before = len(all_events(other, "s"))
                for _ in range(count):
                    ack = writer.write_event(b"event")
                while len(all_events(other, "s")) < before + count:
                    time.sleep(0.01)
                ack.wait()
                assert ack.done


def test_single_events_of_many_threads(config: PravegaConfig) -> None:
    with open_client(config) as client:
        client.create_stream("s", 2)
        with client.event_writer("s") as writer:

            def write(name: int) -> None:
                for number in range(2000):
                    writer.write_event(b"%d %d" % (name, number), str(name))

            for thread in [in_a_thread(lambda name=name: write(name)) for name in range(4)]:
                thread.result(120)
            assert writer.events_written == 8000
        found = all_events(client, "s")
        for name in range(4):
            of_thread = [event for event in found if event.startswith(b"%d " % name)]
            assert of_thread == [b"%d %d" % (name, number) for number in range(2000)]


def test_single_events_of_a_writer_that_fails(config: PravegaConfig) -> None:
    with open_client(config) as client:
        client.create_stream("s", 1)
        with client.event_writer("s") as writer:
            writer.write_event(b"stored").wait()
            client.seal_stream("s")
            ack = writer.write_event(b"too late")
            with pytest.raises(StreamSealedError):
                ack.wait()
            assert isinstance(ack.error, StreamSealedError)
            with pytest.raises(StreamSealedError):
                writer.write_event(b"later")
        assert all_events(client, "s") == [b"stored"]
        client.create_stream("t", 1)
        txn = client.begin_transaction("t")
        txn.write_event(b"first").wait()
        client.abort_transaction("t", txn.txn_id)
        # The controller accepts it first; stores take events until it is done.
        while txn.status() is not TxnStatus.ABORTED:
            pass
        ack = txn.write_event(b"lost")
        with pytest.raises(TransactionError):
            ack.wait()
        with pytest.raises(TransactionError):
            txn.commit()
        txn.abort()


def test_closing_after_the_client_does_nothing(config: PravegaConfig) -> None:
    text = FunctionSerializer(str.encode, bytes.decode)
    with open_client(config) as client:
        for name in ("bytes", "events", "state"):
            client.create_stream(name, 1)
        written = client.byte_stream_writer("bytes")
        with pytest.raises(ArgumentTypeError, match=r"data for byte stream .* must be bytes, not str"):
            written.write("text")  # type: ignore[arg-type]
        written.write(b"stored")
        written.flush()
        writer = client.event_writer("events").__enter__()
        writer.write_event(b"stored").wait()
        objects: list[Any] = [
            written,
            writer,
            client.byte_stream_reader("bytes"),
            client.revisioned_stream("state"),
            client.state_synchronizer("state", StateFormat(text, text, str.__add__)),
        ]
    for each in objects:
        each.close()
        each.close()
    assert written.closed


@pytest.mark.parametrize("single", [True, False])
def test_closing_after_the_client_tells_of_data_that_is_not_stored(
    config: PravegaConfig, fault_proxy: FaultProxy, single: bool
) -> None:
    with open_client(config, address_map=fault_proxy.address_map) as client:
        client.create_stream("bytes", 1)
        client.create_stream("events", 1)
        written = client.byte_stream_writer("bytes")
        writer = client.event_writer("events").__enter__()
        fault_proxy.pause()
        written.write(b"x")
        if single:
            writer.write_event(b"x")
        else:
            writer.write_events([b"x"])
    fault_proxy.resume()
    for each in (written, writer):
        with pytest.raises(ClosedError):
            each.close()
    assert written.closed
    written.close()


def test_closing_the_client_ends_single_events(config: PravegaConfig, fault_proxy: FaultProxy) -> None:
    with open_client(config, address_map=fault_proxy.address_map) as client:
        client.create_stream("s", 1)
        writer = client.event_writer("s", max_outstanding_bytes=100_000).__enter__()
        writer.write_event(b"stored").wait()
        fault_proxy.pause()
        acks = []
        with pytest.raises(PravegaTimeoutError):
            for _ in range(20_000):
                acks.append(writer.write_event(bytes(1000), timeout=0.2))
        assert 100 < len(acks) < 10_000
        assert writer.outstanding_bytes > 100_000
        waiting = in_a_thread(acks[-1].wait)
    with pytest.raises(ClosedError):
        waiting.result(60)
    assert all(ack.done for ack in acks)
    assert isinstance(acks[-1].error, ClosedError)
    with pytest.raises(ClosedError):
        writer.write_event(b"later")


def test_an_error_of_the_address_map_ends_a_write(config: PravegaConfig) -> None:
    with open_client(config, address_map=cast("Any", lambda endpoint: endpoint)) as client:
        client.create_stream("s", 1)
        with (
            pytest.raises(InvalidArgumentError, match="address_map failed for"),
            client.event_writer("s") as writer,
        ):
            writer.write_event(b"x")
            writer.flush()
        assert client.stream_exists("s")


def test_a_write_ends_when_an_unexpected_error_ends_the_client(
    config: PravegaConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*args: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), open_client(config) as client:
        client.create_stream("s", 1)
        monkeypatch.setattr(ConnectionPool, "flow", broken)
        writer = client.event_writer("s").__enter__()
        with pytest.raises(ClosedError):
            writer.write_event(b"x").wait()
