"""Peers that accept connections and do not answer: every operation ends within its limit, with an error.

The one place where tests look at the clock: the limit is what they are about.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
import trio

from pravega_wire import (
    PravegaClient,
    PravegaConfig,
    SegmentRange,
    StateFormat,
    StreamConfiguration,
    StreamCut,
    open_client,
)
from pravega_wire.controller.types import KeyValueTableConfiguration
from pravega_wire.errors import (
    ConnectionLostError,
    PravegaError,
    PravegaTimeoutError,
    RetriesExhaustedError,
    TableOutcomeUnknownError,
)
from pravega_wire.protocol import codec
from pravega_wire.protocol.commands import (
    AppendSetup,
    Command,
    GetSegmentAttribute,
    Hello,
    KeepAlive,
    MergedSource,
    MergeSegmentsBatch,
    SegmentAttribute,
    SegmentAttributeUpdated,
    SegmentsBatchMerged,
    SetupAppend,
    UpdateSegmentAttribute,
)
from pravega_wire.protocol.frames import FrameDecoder
from pravega_wire.serializers import Utf8Serializer
from pravega_wire.testing import FaultProxy, PravegaServer
from pravega_wire.values.positions import EventPointer
from pravega_wire.values.types import ScopedStream

LIMIT = 4.0
GRACE = 3.5
"""For a busy machine. Less than the limit, so that an operation that begins it anew is noticed."""

HELLO = codec.encode(Hello(high_version=16, low_version=5))
SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])

STORES = {
    "silent from the first byte": b"",
    "silent after its hello": HELLO,
    "silent in the middle of a reply": HELLO + (9).to_bytes(4, "big") + (1000).to_bytes(4, "big") + b"x" * 9,
}
CONTROLLERS = {
    "silent from the first byte": b"",
    "silent after its settings": SETTINGS,
    "silent in the middle of a reply": SETTINGS + bytes([0, 0, 100, 1, 4, 0, 0, 0, 1]) + b"x" * 9,
}

Operation = Callable[[Any], Awaitable[object]]


@asynccontextmanager
async def mute(greeting: bytes) -> AsyncIterator[int]:
    """The port of a listener that sends ``greeting`` and then nothing, and reads what comes."""
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")

    async def serve(stream: trio.SocketStream) -> None:
        try:
            await stream.send_all(greeting)
            while await stream.receive_some(65536):
                pass
        except trio.BrokenResourceError:
            pass

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        yield listener.socket.getsockname()[1]
        nursery.cancel_scope.cancel()


async def all_end(world: object, operations: dict[str, Operation]) -> dict[str, PravegaError]:
    """Run every operation at the same time; how each ended. Fails when one takes longer than its limit."""
    ended: dict[str, PravegaError] = {}
    late: dict[str, str] = {}

    async def run(name: str, operation: Operation) -> None:
        started = trio.current_time()
        with trio.move_on_after(LIMIT * 5) as scope:
            try:
                outcome = repr(await operation(world))
            except PravegaError as error:
                ended[name] = error
                outcome = repr(error)
        taken = trio.current_time() - started
        if scope.cancelled_caught or taken > LIMIT + GRACE:
            late[name] = f"{taken:.1f} s: {'not ended' if scope.cancelled_caught else outcome}"
        elif name not in ended:
            late[name] = f"succeeded: {outcome}"

    async with trio.open_nursery() as nursery:
        for name, operation in operations.items():
            nursery.start_soon(run, name, operation)
    assert not late, "\n".join(f"{name}: {what}" for name, what in late.items())
    return ended


# --- controllers ----------------------------------------------------------------------------------

CUT = StreamCut(ScopedStream("s", "t"), {0: 0})
POINTER = EventPointer("s/t/0.#epoch.0", 0, 10)
# The high half of a transaction's id begins with its epoch.
TXN = UUID(int=1)
TABLE = KeyValueTableConfiguration(partition_count=1, primary_key_length=1, secondary_key_length=0)


async def collected(items: Any) -> list[object]:
    return [item async for item in items]


CLIENT_OPERATIONS: dict[str, Operation] = {
    "abort_transaction": lambda c: c.abort_transaction("t", TXN),
    "active_segments": lambda c: c.active_segments("t"),
    "begin_transaction": lambda c: c.begin_transaction("t"),
    "boundary_index": lambda c: c.boundary_index(SegmentRange(ScopedStream("s", "t"), 0, 0, 1 << 24)),
    "commit_transaction": lambda c: c.commit_transaction("t", TXN),
    "completed_transactions": lambda c: c.completed_transactions("t"),
    "create_key_value_table": lambda c: c.create_key_value_table("t", TABLE),
    "create_reader_group": lambda c: c.create_reader_group("g", ["t"]),
    "create_scope": lambda c: c.create_scope("x"),
    "create_stream": lambda c: c.create_stream("t"),
    "cut_at": lambda c: c.cut_at("t", 1),
    "delete_key_value_table": lambda c: c.delete_key_value_table("t"),
    "delete_reader_group": lambda c: c.delete_reader_group("g"),
    "delete_scope": lambda c: c.delete_scope("x"),
    "delete_stream": lambda c: c.delete_stream("t", seal=True),
    "epoch_segments": lambda c: c.epoch_segments("t", 0),
    "fetch_event": lambda c: c.fetch_event(POINTER),
    "head": lambda c: c.head("t"),
    "key_value_table": lambda c: c.key_value_table("t"),
    "key_value_table_config": lambda c: c.key_value_table_config("t"),
    "key_value_table_exists": lambda c: c.key_value_table_exists("t"),
    "list_key_value_tables": lambda c: c.list_key_value_tables(),
    "leading_parts": lambda c: c.leading_parts(
        [(SegmentRange(ScopedStream("s", "t"), 0, 0, 1 << 24), 9, None)]
    ),
    "list_reader_groups": lambda c: c.list_reader_groups(),
    "list_scopes": lambda c: c.list_scopes(),
    "list_streams": lambda c: c.list_streams(),
    "open_transactions": lambda c: c.open_transactions("t"),
    "ping_transaction": lambda c: c.ping_transaction("t", TXN, lease=10),
    "range_crc32": lambda c: c.range_crc32(SegmentRange(ScopedStream("s", "t"), 0, 0, 1)),
    "read_events": lambda c: c.read_events("t").next_batch(),
    "reader_group": lambda c: c.reader_group("g"),
    "reader_group_exists": lambda c: c.reader_group_exists("g"),
    "revisioned_stream": lambda c: c.revisioned_stream("t"),
    "scale_stream": lambda c: c.scale_stream("t", [0], [(0.0, 0.5), (0.5, 1.0)]),
    "scope_exists": lambda c: c.scope_exists("x"),
    "seal_stream": lambda c: c.seal_stream("t"),
    "segment_length": lambda c: c.segment_length("t", 0),
    "segment_ranges": lambda c: c.segment_ranges("t"),
    "split_range": lambda c: c.split_range(SegmentRange(ScopedStream("s", "t"), 0, 0, 1 << 24), 1000),
    "state_synchronizer": lambda c: c.state_synchronizer("t", COUNTER),
    "stream_config": lambda c: c.stream_config("t"),
    "stream_exists": lambda c: c.stream_exists("t"),
    "stream_info": lambda c: c.stream_info("t"),
    "stream_layout": lambda c: c.stream_layout("t"),
    "successors": lambda c: c.successors("t", 0),
    "tail": lambda c: c.tail("t"),
    "resume_transaction": lambda c: c.resume_transaction("t", TXN),
    "transaction_status": lambda c: c.transaction_status("t", TXN),
    "truncate_stream": lambda c: c.truncate_stream("t", CUT),
    "update_stream": lambda c: c.update_stream("t", StreamConfiguration()),
    "wait_committed": lambda c: c.wait_committed("t", TXN),
    "watermarks": lambda c: c.watermarks("t"),
}


STAGING_OPERATIONS: dict[str, Operation] = {
    "delete_staging": lambda c: c.staging("t", TXN).delete([TXN]),
    "merge_staging": lambda c: c.staging("t", TXN).merge([TXN]),
    "staging_writer": lambda c: c.staging("t", TXN).writer(),
}

COUNTER: StateFormat[str, str] = StateFormat(
    step=lambda state, update: state + update, serializer=Utf8Serializer(), updates=Utf8Serializer()
)


def test_the_table_names_every_operation_of_a_client() -> None:
    public = {
        name
        for name, method in inspect.getmembers(PravegaClient)
        # What opens something is an async function in a wrapper.
        if not name.startswith("_") and inspect.iscoroutinefunction(inspect.unwrap(method))
    }
    # It waits when its first batch is asked for.
    assert set(CLIENT_OPERATIONS) == public | {"read_events"}


def config_of(*ports: int) -> PravegaConfig:
    addresses = ",".join(f"127.0.0.1:{port}" for port in ports)
    return replace(
        PravegaConfig.from_defaults(controller_uri=f"tcp://{addresses}", scope="s", env={}),
        operation_timeout=LIMIT,
    )


@pytest.mark.parametrize("greeting", CONTROLLERS.values(), ids=list(CONTROLLERS))
async def test_a_controller_that_does_not_answer(greeting: bytes) -> None:
    async with mute(greeting) as port, open_client(config_of(port)) as client:
        ended = await all_end(client, CLIENT_OPERATIONS | STAGING_OPERATIONS)
        for name, error in ended.items():
            assert isinstance(error, RetriesExhaustedError | PravegaTimeoutError), name
            # The time that has really passed is in the message, and who was silent.
            told = re.search(r"(?:after|within|attempts in) ([\d.]+) s", error.message)
            assert told is not None, error.message
            assert LIMIT - 0.1 <= float(told[1]) <= LIMIT + GRACE, error.message
            assert f"127.0.0.1:{port}" in error.message or name == "wait_committed", error.message


@pytest.mark.parametrize("greeting", CONTROLLERS.values(), ids=list(CONTROLLERS))
async def test_another_controller_is_asked_when_the_first_does_not_answer(
    greeting: bytes, pravega_server: PravegaServer
) -> None:
    healthy = PravegaConfig.from_defaults(controller_uri=pravega_server.controller_uri, env={}).endpoints[0]

    async with mute(greeting) as port:
        config = replace(
            config_of(port),
            controller_uri=f"tcp://127.0.0.1:{port},{healthy[0]}:{healthy[1]}",
            operation_timeout=30.0,
        )
        async with open_client(config) as client:
            assert not await client.scope_exists(f"never-{uuid4().hex}")


async def test_a_connection_to_the_controller_on_which_only_pings_are_answered(
    pravega_server: PravegaServer,
) -> None:
    """As by a load balancer whose controller is gone: after the limit of a call the next one has another."""
    healthy = PravegaConfig.from_defaults(controller_uri=pravega_server.controller_uri, env={}).endpoints[0]
    connections: list[int] = []
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")

    async def serve(stream: trio.SocketStream) -> None:
        connections.append(len(connections))
        if len(connections) > 1:
            async with await trio.open_tcp_stream(*healthy) as behind, trio.open_nursery() as nursery:
                nursery.start_soon(pass_on, stream, behind)
                nursery.start_soon(pass_on, behind, stream)
            return
        await stream.send_all(SETTINGS)
        received = b""
        while data := await stream.receive_some(65536):
            received += data
            # A PING of the client comes back as its acknowledgement.
            *_, last = received.rpartition(b"\0\0\x08\x06\0\0\0\0\0")
            if len(last) == 8:
                await stream.send_all(b"\0\0\x08\x06\1\0\0\0\0" + last)
                received = b""

    async def pass_on(source: trio.SocketStream, target: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while data := await source.receive_some(65536):
                await target.send_all(data)
            await target.send_eof()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        async with open_client(config_of(listener.socket.getsockname()[1])) as client:
            with pytest.raises(PravegaTimeoutError):
                await client.scope_exists("never")
            assert len(connections) == 1
            assert not await client.scope_exists(f"never-{uuid4().hex}")
            assert len(connections) == 2
        nursery.cancel_scope.cancel()


# --- stores ---------------------------------------------------------------------------------------


@asynccontextmanager
async def filled(config: PravegaConfig) -> AsyncIterator[PravegaClient]:
    """A client of a scope with one of everything."""
    async with open_client(config) as client:
        for stream in ("t", "bytes", "state"):
            await client.create_stream(stream)
        await client.create_key_value_table("table", TABLE)
        await client.create_reader_group("g", ["t"])
        async with client.event_writer("t") as writer:
            for _ in range(100):
                await writer.write_event(b"x" * 1000)
        async with client.byte_stream_writer("bytes") as writer_of_bytes:
            await writer_of_bytes.send_all(b"x" * 1000)
        async with client.state_synchronizer("state", COUNTER) as state:
            await state.initialize("")
        yield client


async def write_and_flush(client: PravegaClient) -> None:
    async with client.event_writer("t") as writer:
        await writer.write_event(b"event")
        await writer.flush()


async def write_in_transaction(client: PravegaClient) -> None:
    async with client.begin_transaction("t") as txn:
        await txn.write_event(b"event")
        await txn.commit()


async def send_bytes(client: PravegaClient) -> None:
    async with client.byte_stream_writer("bytes") as writer:
        await writer.send_all(b"x")
        await writer.flush()


async def receive_bytes(client: PravegaClient) -> bytes:
    async with client.byte_stream_reader("bytes") as reader:
        return await reader.receive_some()


async def read_group(client: PravegaClient) -> object:
    async with client.reader_group("g") as group, group.reader(f"r{uuid4().hex}") as reader:
        return await reader.read_event()


async def put(client: PravegaClient) -> object:
    return await (await client.key_value_table("table")).put(b"k", b"v")


async def get(client: PravegaClient) -> object:
    return await (await client.key_value_table("table")).get(b"k")


async def use_state(client: PravegaClient) -> object:
    async with client.state_synchronizer("state", COUNTER) as state:
        return await state.fetch_updates()


STORE_OPERATIONS: dict[str, Operation] = {
    "tail": lambda c: c.tail("t"),
    "stream_info": lambda c: c.stream_info("t"),
    "segment_length": lambda c: c.segment_length("t", 0),
    "segment_ranges": lambda c: c.segment_ranges("t"),
    "read_range": lambda c: collected(
        c.read_range(SegmentRange(ScopedStream(c.config.scope, "t"), 0, 0, 1008))
    ),
    "range_crc32": lambda c: c.range_crc32(SegmentRange(ScopedStream(c.config.scope, "t"), 0, 0, 1008)),
    "fetch_event": lambda c: c.fetch_event(EventPointer(f"{c.config.scope}/t/0.#epoch.0", 0, 1008)),
    "stream_layout": lambda c: c.stream_layout("t"),
    "write": write_and_flush,
    "transaction": write_in_transaction,
    "byte writer": send_bytes,
    "byte reader": receive_bytes,
    "group reader": read_group,
    "table put": put,
    "table get": get,
    "state": use_state,
}


@pytest.fixture
def config(pravega_server: PravegaServer, pravega_scope: str) -> PravegaConfig:
    return PravegaConfig.from_defaults(
        controller_uri=pravega_server.controller_uri, scope=pravega_scope, env={}
    )


async def all_end_at(config: PravegaConfig, greeting: bytes) -> tuple[int, dict[str, PravegaError]]:
    """How all operations end on a store that greets like this and is mute then; and its port."""
    async with filled(config), mute(greeting) as port:
        async with open_client(
            replace(config, operation_timeout=LIMIT), address_map=lambda *_: ("127.0.0.1", port)
        ) as client:
            return port, await all_end(client, STORE_OPERATIONS)


@pytest.mark.parametrize("greeting", STORES.values(), ids=list(STORES))
async def test_a_store_that_does_not_answer(config: PravegaConfig, greeting: bytes) -> None:
    _, ended = await all_end_at(config, greeting)
    for name, error in ended.items():
        assert isinstance(error, RetriesExhaustedError | PravegaTimeoutError | TableOutcomeUnknownError), (
            name,
            error,
        )


async def test_a_store_that_sends_what_nobody_can_read(config: PravegaConfig) -> None:
    """What ends the connection is the same for many segments: each error names what was asked."""
    unknown = HELLO + (4242).to_bytes(4, "big") + bytes(4)
    port, ended = await all_end_at(config, unknown)
    for name, error in ended.items():
        assert f"{config.scope}/" in error.message, (name, error)
        assert f"127.0.0.1:{port}" in error.message, (name, error)


@asynccontextmanager
async def store_that_answers(
    reply_to: Callable[[Command], Command | None], connected: Callable[[], object] = lambda: None
) -> AsyncIterator[int]:
    """A store that answers greetings and keep-alives, and other commands as it is told; its port.

    :param reply_to: returns the answer to a command, or None; raises ``trio.BrokenResourceError`` to end the
        connection.
    :param connected: called for each connection.
    """
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")

    async def serve(stream: trio.SocketStream) -> None:
        connected()
        decoder = FrameDecoder()
        try:
            while data := await stream.receive_some(65536):
                for command in decoder.feed(bytes(data)):
                    reply = command if isinstance(command, Hello | KeepAlive) else reply_to(command)
                    if reply is not None:
                        await stream.send_all(codec.encode(reply))
        except trio.BrokenResourceError:
            pass

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        yield listener.socket.getsockname()[1]
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def store_that_never_acknowledges() -> AsyncIterator[tuple[int, list[int]]]:
    """A store that answers greetings, keep-alives and set-ups; its port, and the connections it has had."""
    connections: list[int] = []

    def reply_to(command: Command) -> Command | None:
        if not isinstance(command, SetupAppend):
            return None
        return AppendSetup(
            request_id=command.request_id,
            segment=command.segment,
            writer_id=command.writer_id,
            last_event_number=-(2**63),
        )

    async with store_that_answers(reply_to, lambda: connections.append(len(connections))) as port:
        yield port, connections


async def test_a_store_that_is_alive_and_never_acknowledges(config: PravegaConfig) -> None:
    """Its answers to keep-alives do not make up for it: another session is tried, then the writer fails."""

    async with open_client(config) as sound, store_that_never_acknowledges() as (port, connections):
        await sound.create_stream("t")
        async with open_client(
            replace(config, operation_timeout=LIMIT), address_map=lambda *_: ("127.0.0.1", port)
        ) as client:
            ended = await all_end(client, {"write": write_and_flush})
            assert isinstance(ended["write"], RetriesExhaustedError)
            assert "acknowledged nothing" in ended["write"].message
            assert len(connections) > 1


@asynccontextmanager
async def store_that_merges_slowly(*, loses: bool) -> AsyncIterator[tuple[int, list[Command]]]:
    """A store that answers no merge, or ends the connection of the first and then answers; its port, and what
    it was asked after that merge."""
    asked: list[Command] = []

    def reply_to(command: Command) -> Command | None:
        asked.append(command)
        if isinstance(command, GetSegmentAttribute):
            return SegmentAttribute(request_id=command.request_id, value=-(2**63))
        if isinstance(command, UpdateSegmentAttribute):
            return SegmentAttributeUpdated(request_id=command.request_id, success=True)
        assert isinstance(command, MergeSegmentsBatch)
        if not loses:
            return None
        if len(asked) == 1:
            raise trio.BrokenResourceError
        merged = tuple(MergedSource(each, 9) for each in command.source_segment_ids)
        return SegmentsBatchMerged(command.request_id, command.target_segment_id, merged)

    async with store_that_answers(reply_to) as port:
        yield port, asked


@pytest.mark.parametrize("loses", [False, True], ids=["no answer", "lost answer"])
async def test_a_merge_is_repeated_only_when_the_store_has_done_it(
    config: PravegaConfig, loses: bool
) -> None:
    """Otherwise the answer tells lengths of a target that still grows."""
    async with open_client(config) as sound, store_that_merges_slowly(loses=loses) as (port, asked):
        await sound.create_stream("t")
        async with await sound.begin_transaction("t") as txn:
            async with open_client(
                replace(config, operation_timeout=LIMIT), address_map=lambda *_: ("127.0.0.1", port)
            ) as client:
                merge = client.staging("t", txn.txn_id).merge
                if loses:
                    assert await merge([uuid4()]) == {0: (9,)}
                else:
                    with pytest.raises(PravegaTimeoutError, match="merging"):
                        await merge([uuid4()])
            await txn.abort()
    kinds = [type(command) for command in asked]
    if loses:
        assert kinds == [MergeSegmentsBatch, GetSegmentAttribute, UpdateSegmentAttribute, MergeSegmentsBatch]
    else:
        assert kinds == [MergeSegmentsBatch]


# --- links that swallow everything ----------------------------------------------------------------


@asynccontextmanager
async def handles(client: PravegaClient) -> AsyncIterator[SimpleNamespace]:
    """One of everything, open and used before."""
    async with AsyncExitStack() as stack:
        writer = await stack.enter_async_context(client.event_writer("t"))
        await writer.write_event(b"before")
        await writer.flush()
        txn = await client.begin_transaction("t")
        await txn.write_event(b"before")
        await txn.flush()
        idle = await client.begin_transaction("t")
        group = await client.reader_group("g")
        reader = await stack.enter_async_context(group.reader("reader"))
        for _ in range(101):
            assert await reader.read_event() is not None
        table = await client.key_value_table("table")
        await table.put(b"k", b"v")
        state = await client.state_synchronizer("state", COUNTER)
        await state.fetch_updates()
        revisioned = await client.revisioned_stream("state")
        sink = await stack.enter_async_context(client.byte_stream_writer("bytes"))
        await sink.send_all(b"x")
        await sink.flush()
        source = await stack.enter_async_context(client.byte_stream_reader("bytes"))
        while source.offset < 1001:
            await source.receive_some()
        yield SimpleNamespace(
            writer=writer, txn=txn, idle=idle, group=group, reader=reader, table=table, state=state,
            revisioned=revisioned, sink=sink, source=source, client=client,
        )  # fmt: skip


async def flushed(writer: Any) -> None:
    await writer.write_event(b"swallowed")
    await writer.flush()


async def acknowledged(writer: Any) -> None:
    await (await writer.write_event(b"swallowed")).wait()


async def sent(sink: Any) -> None:
    await sink.send_all(b"swallowed")
    await sink.flush()


HANDLE_OPERATIONS: dict[str, Operation] = {
    "flush": lambda w: flushed(w.writer),
    "ack": lambda w: acknowledged(w.writer),
    "transaction flush": lambda w: flushed(w.txn),
    "transaction status": lambda w: w.txn.status(),
    "commit": lambda w: w.idle.commit(),
    "read_event": lambda w: w.reader.read_event(),
    "group refresh": lambda w: w.group.refresh(),
    "group metrics": lambda w: w.group.metrics(),
    "reader_offline": lambda w: w.group.reader_offline("reader"),
    "table get": lambda w: w.table.get(b"k"),
    "table put": lambda w: w.table.put(b"k", b"v2"),
    "table remove": lambda w: w.table.remove(b"k"),
    "table size": lambda w: w.table.estimated_size(),
    "state fetch": lambda w: w.state.fetch_updates(),
    "state update": lambda w: w.state.update(lambda _: ["x"]),
    "state wait": lambda w: w.state.wait_for_updates(),
    "revision": lambda w: w.revisioned.latest_revision(),
    "mark": lambda w: w.revisioned.mark(),
    "write unconditionally": lambda w: w.revisioned.write_unconditionally(b"x"),
    "bytes sent": lambda w: sent(w.sink),
    "bytes received": lambda w: w.source.receive_some(),
    "bytes tail": lambda w: w.source.tail(),
    "client tail": lambda w: w.client.tail("t"),
    "client exists": lambda w: w.client.stream_exists("t"),
}


@pytest.mark.parametrize(
    ("up", "down"), [(True, True), (True, False), (False, True)], ids=["both", "up", "down"]
)
async def test_a_link_that_swallows_everything(
    config: PravegaConfig, fault_proxy: FaultProxy, up: bool, down: bool
) -> None:
    """From the controller and the stores nothing comes, or nothing arrives there; connections stay open."""

    async with filled(config):
        controller = fault_proxy.endpoint(*config.endpoints[0])
        broken = replace(config, controller_uri=f"tcp://127.0.0.1:{controller}", operation_timeout=LIMIT)
        with pytest.raises((PravegaError, BaseExceptionGroup)):
            async with (
                open_client(broken, address_map=fault_proxy.address_map) as client,
                handles(client) as world,
            ):
                fault_proxy.pause(up=up, down=down)
                try:
                    await all_end(world, HANDLE_OPERATIONS)
                finally:
                    fault_proxy.resume()
                raise ConnectionLostError("what was written cannot be flushed on the way out")
