"""Every call of the controller client against a real server."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent import futures
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import grpc
import pytest
import trio
from google.protobuf.message import Message

from pravega_wire import PravegaConfig, ScopedStream, open_client
from pravega_wire.controller import client as controller_module
from pravega_wire.controller.client import ControllerClient, open_controller
from pravega_wire.controller.mapping import stream_config
from pravega_wire.controller.tokens import expiry_of
from pravega_wire.controller.types import (
    Access,
    KeyValueTableConfiguration,
    NodeUri,
    NoteTimeStatus,
    PingStatus,
    RemoveWriterStatus,
    SegmentWithRange,
    TxnStatus,
)
from pravega_wire.errors import (
    AuthError,
    ControllerError,
    InvalidArgumentError,
    InvalidStreamCutError,
    KeyValueTableNotFoundError,
    PravegaError,
    ReaderGroupNotFoundError,
    RetriesExhaustedError,
    ScaleConflictError,
    ScopeNotEmptyError,
    ScopeNotFoundError,
    StreamNotFoundError,
    StreamNotSealedError,
    StreamSealedError,
    UnexpectedReplyError,
)
from pravega_wire.proto import controller_pb2 as pb
from pravega_wire.testing import PravegaCluster, PravegaServer, standalone
from pravega_wire.testing.running import Kind
from pravega_wire.transport.retry import RetryPolicy
from pravega_wire.values.groups import ReaderGroupConfig, RetentionType
from pravega_wire.values.naming import epoch_of, segment_id
from pravega_wire.values.policies import RetentionPolicy, ScalingPolicy, StreamConfiguration
from pravega_wire.values.types import StreamCut

SERVER_PAGE = 1000
LEASE = 60.0
TWO = StreamConfiguration(scaling=ScalingPolicy.fixed(2))
FOUR = StreamConfiguration(scaling=ScalingPolicy.fixed(4))


@asynccontextmanager
async def controller_of(config: PravegaConfig, **options: Any) -> AsyncIterator[ControllerClient]:
    with trio.fail_after(300):
        async with open_controller(
            config.endpoints,
            tls=config.ssl_context(http2=True),
            credentials=config.authorization(),
            **options,
        ) as controller:
            yield controller


Body = Callable[[ControllerClient, str], Awaitable[None]]


def run(config: PravegaConfig, body: Body) -> None:
    """``body`` with a controller and the test's fresh scope."""

    async def main() -> None:
        async with controller_of(config) as controller:
            assert config.scope is not None
            await body(controller, config.scope)

    trio.run(main)


async def all_of(items: AsyncIterator[str]) -> list[str]:
    return [item async for item in items]


async def streams_of(controller: ControllerClient, scope: str) -> list[str]:
    """Without those that Pravega has made itself."""
    return [name for name in await all_of(controller.list_streams(scope)) if name[0] != "_"]


async def until(answer: Callable[[], Awaitable[bool]]) -> None:
    """Ask until it is so: the server tells nobody when it is done."""
    while True:
        if await answer():
            return
        await trio.sleep(0.05)


async def scaled(
    controller: ControllerClient, scope: str, stream: str, seal: list[int], ranges: list[tuple[float, float]]
) -> int:
    """Scale and wait for its end; the epoch before."""
    epoch = await controller.scale(scope, stream, seal, ranges)
    assert epoch is not None
    await until(lambda: controller.check_scale(scope, stream, epoch))
    return epoch


async def settled(
    controller: ControllerClient, scope: str, stream: str, txn: UUID, status: TxnStatus
) -> None:
    async def reached() -> bool:
        return await controller.check_transaction_state(scope, stream, txn) is status

    await until(reached)


# --- nothing is left out --------------------------------------------------------------------------


def calls_in(path: str) -> set[str]:
    """Names of all methods that a source file calls."""
    tree = ast.parse(Path(path).read_text())
    return {
        node.func.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }


def test_every_method_is_called_in_this_module() -> None:
    methods = {name for name, _ in inspect.getmembers(ControllerClient, callable) if not name.startswith("_")}
    assert len(methods) == 45
    assert methods - calls_in(__file__) == set()


def test_every_rpc_of_the_service_has_a_method() -> None:
    tree = ast.parse(inspect.getsource(controller_module))
    calling = (
        "_channels.call", "_ask", "_of_stream", "_done", "_deleted", "_in_scope", "_pages", "partial",
    )  # fmt: skip
    named = {
        argument.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).removeprefix("self.") in calling
        for argument in node.args[:2]  # the first; the second of partial
        if isinstance(argument, ast.Constant)
    }
    rpcs = {method.name for method in pb.DESCRIPTOR.services_by_name["ControllerService"].methods}
    # The old name of getSegmentsImmediatelyFollowing, with a letter missing.
    assert rpcs - named == {"getSegmentsImmediatlyFollowing"}
    assert named <= rpcs


# --- scopes ---------------------------------------------------------------------------------------


def test_scopes(config: PravegaConfig) -> None:
    async def body(controller: ControllerClient, scope: str) -> None:
        name = f"{scope}-other"
        assert not await controller.check_scope_exists(name)
        assert await controller.create_scope(name)
        assert not await controller.create_scope(name)
        assert await controller.check_scope_exists(name)
        assert {scope, name} <= set(await all_of(controller.list_scopes()))
        assert await controller.delete_scope(name)
        assert not await controller.delete_scope(name)
        assert not await controller.check_scope_exists(name)
        assert name not in await all_of(controller.list_scopes())

    run(config, body)


@pytest.mark.needs("0.11", "deleteScopeRecursive")
def test_a_scope_with_something_in_it(config: PravegaConfig) -> None:
    async def body(controller: ControllerClient, scope: str) -> None:
        await controller.create_stream(scope, "open", FOUR)
        await controller.create_stream(scope, "sealed", FOUR)
        await controller.seal_stream(scope, "sealed")
        await controller.create_key_value_table(scope, "table", KeyValueTableConfiguration(1, 8))
        await controller.create_reader_group(scope, "group", group(scope, "open"))
        with pytest.raises(ScopeNotEmptyError, match=scope) as caught:
            await controller.delete_scope(scope)
        assert (caught.value.scope, caught.value.status) == (scope, "SCOPE_NOT_EMPTY")
        assert await controller.check_stream_exists(scope, "open")
        assert await controller.delete_scope_recursive(scope)
        assert not await controller.check_scope_exists(scope)
        assert not await controller.check_stream_exists(scope, "open")
        with pytest.raises(ScopeNotFoundError):
            await all_of(controller.list_key_value_tables(scope))
        # It does not say whether there was anything.
        assert await controller.delete_scope_recursive(scope)
        assert not await controller.delete_scope(scope)

    run(config, body)


async def at_once(call: Callable[[str], Awaitable[Any]], names: set[str]) -> None:
    """Call for each name, twenty at a time; each must answer True."""
    limit = trio.CapacityLimiter(20)

    async def one(name: str) -> None:
        async with limit:
            assert await call(name)

    async with trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(one, name)


# --- streams --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "configuration",
    [
        StreamConfiguration(),
        FOUR,
        StreamConfiguration(scaling=ScalingPolicy.by_event_rate(1000, 3, 2)),
        StreamConfiguration(
            scaling=ScalingPolicy.by_data_rate(64 * 1024, 2, 1), tags=frozenset({"a", "ü", "b c"})
        ),
        StreamConfiguration(retention=RetentionPolicy.by_time(86_400)),
        StreamConfiguration(retention=RetentionPolicy.by_size(1 << 20, 1 << 40)),
        StreamConfiguration(
            retention=RetentionPolicy.by_time(0.001, 0.002),
            tags=frozenset(f"{number:0255}" for number in range(127)),
            timestamp_aggregation_timeout=12.345,
            rollover_size_bytes=1 << 20,
        ),
    ],
)
def test_a_configuration_comes_back_as_it_was_given(
    config: PravegaConfig, configuration: StreamConfiguration
) -> None:
    async def body(controller: ControllerClient, scope: str) -> None:
        assert await controller.create_stream(scope, "created", configuration)
        assert await controller.get_stream_configuration(scope, "created") == configuration
        await controller.create_stream(
            scope, "updated", StreamConfiguration(tags=frozenset({"old"}), rollover_size_bytes=7)
        )
        await controller.update_stream(scope, "updated", configuration)
        assert await controller.get_stream_configuration(scope, "updated") == configuration

    run(config, body)


@pytest.mark.needs("0.11", "an answer that says that a stream is sealed")
@pytest.mark.smoke
def test_the_life_of_a_stream(config: PravegaConfig) -> None:
    async def body(controller: ControllerClient, scope: str) -> None:
        assert not await controller.check_stream_exists(scope, "s")
        assert await controller.create_stream(scope, "s", FOUR)
        assert not await controller.create_stream(scope, "s", StreamConfiguration())
        assert await controller.get_stream_configuration(scope, "s") == FOUR
        assert await controller.check_stream_exists(scope, "s")
        assert await streams_of(controller, scope) == ["s"]
        with pytest.raises(StreamNotSealedError, match="sealed") as caught:
            await controller.delete_stream(scope, "s")
        assert (caught.value.scope, caught.value.stream) == (scope, "s")
        await controller.seal_stream(scope, "s")
        await controller.seal_stream(scope, "s")
        assert await controller.get_current_segments(scope, "s") == []
        with pytest.raises(StreamSealedError, match=f"{scope}/s") as sealed:
            await controller.update_stream(scope, "s", FOUR)
        assert (sealed.value.scope, sealed.value.stream) == (scope, "s")
        with pytest.raises(StreamSealedError, match=f"{scope}/s"):
            await controller.truncate_stream(scope, "s", dict.fromkeys(range(4), 0))
        assert await controller.delete_stream(scope, "s")
        assert not await controller.delete_stream(scope, "s")
        assert await all_of(controller.list_streams(scope)) == []

    run(config, body)


def test_tags(config: PravegaConfig) -> None:
    async def body(controller: ControllerClient, scope: str) -> None:
        for name, tags in (("one", {"a", "b"}), ("two", {"b"}), ("three", set[str]())):
            await controller.create_stream(scope, name, StreamConfiguration(tags=frozenset(tags)))

        async def tagged(tag: str) -> set[str]:
            return set(await all_of(controller.list_streams_for_tag(scope, tag)))

        assert [await tagged(tag) for tag in ("a", "b", "c")] == [{"one"}, {"one", "two"}, set()]
        await controller.update_stream(scope, "one", StreamConfiguration(tags=frozenset({"c"})))
        assert [await tagged(tag) for tag in ("a", "b", "c")] == [set(), {"two"}, {"one"}]
        await controller.seal_stream(scope, "two")
        assert await tagged("b") == {"two"}
        await controller.delete_stream(scope, "two")
        assert await tagged("b") == set()

    run(config, body)


def test_more_streams_than_a_page(config: PravegaConfig) -> None:
    async def body(controller: ControllerClient, scope: str) -> None:
        # The server makes one more stream for the watermarks of each.
        names = {f"s{number}" for number in range(SERVER_PAGE // 2 + 1)}
        tagged = StreamConfiguration(tags=frozenset({"t"}))
        await at_once(lambda name: controller.create_stream(scope, name, tagged), names)
        listed = await all_of(controller.list_streams(scope))
        assert len(listed) > SERVER_PAGE
        assert sorted(listed) == sorted(names | {f"_MARK{name}" for name in names})
        # These are in pages by the hashes of their names.
        assert sorted(await all_of(controller.list_streams_for_tag(scope, "t"))) == sorted(names)

    run(config, body)


def test_what_other_clients_accept_is_visible(config: PravegaConfig) -> None:
    """Their builders refuse none of this, and the controller takes it."""

    async def body(controller: ControllerClient, scope: str) -> None:
        created = {
            "empty": of_size(0, 2**63 - 1),
            "crossed": of_size(100, 50),
            "early": pb.StreamConfig(timestampAggregationTimeout=-1),
            "tagged": pb.StreamConfig(tags=pb.Tags(tag=[""])),
        }
        for name, change in created.items():
            request = stream_config(scope, name, TWO)
            request.MergeFrom(change)
            reply = await controller._channels.call("createStream", request, pb.CreateStreamStatus, name)
            assert reply.status == pb.CreateStreamStatus.SUCCESS
        found = {name: await controller.get_stream_configuration(scope, name) for name in created}
        for each in found.values():
            assert each.scaling == TWO.scaling
        empty, crossed = found["empty"].retention, found["crossed"].retention
        assert empty is not None
        assert crossed is not None
        assert (empty.minimum, crossed.minimum, crossed.maximum) == (0, 100, 50)
        assert found["early"].timestamp_aggregation_timeout == -0.001
        assert found["tagged"].tags == {""}

    def of_size(minimum: int, maximum: int) -> pb.StreamConfig:
        policy = pb.RetentionPolicy(retentionType="SIZE", retentionParam=minimum, retentionMax=maximum)
        return pb.StreamConfig(retentionPolicy=policy)

    run(config, body)


# --- segments -------------------------------------------------------------------------------------


def test_segments_of_a_new_stream(config: PravegaConfig) -> None:
    async def body(controller: ControllerClient, scope: str) -> None:
        await controller.create_stream(scope, "s", FOUR)
        segments = await controller.get_current_segments(scope, "s")
        assert sorted(segments, key=lambda each: each.low) == [
            SegmentWithRange(number, number / 4, (number + 1) / 4) for number in range(4)
        ]
        assert set(await controller.get_epoch_segments(scope, "s", 0)) == set(segments)
        assert await controller.get_segments(scope, "s") == dict.fromkeys(range(4), 0)
        assert await controller.get_segments_between(scope, "s", {}, dict.fromkeys(range(4), 0))
        for number in range(4):
            assert await controller.is_segment_valid(scope, "s", number)
            assert (await controller.get_successors(scope, "s", number)).segments == ()
        assert not await controller.is_segment_valid(scope, "s", 4)
        assert not await controller.is_segment_valid(scope, "s", segment_id(1, 0))
        uri = await controller.get_uri(scope, "s", 0)
        assert uri.host
        with trio.fail_after(30):
            # Somebody listens there.
            await (await trio.open_tcp_stream(uri.host, uri.port)).aclose()

    run(config, body)


@pytest.mark.smoke
def test_cuts_and_truncation(config: PravegaConfig) -> None:
    async def body(controller: ControllerClient, scope: str) -> None:
        await controller.create_stream(scope, "s", FOUR)
        whole = dict.fromkeys(range(4), 0)
        assert await controller.is_stream_cut_valid(scope, "s", whole)
        incomplete = {0: 0, 1: 0}
        assert not await controller.is_stream_cut_valid(scope, "s", incomplete)
        with pytest.raises(InvalidStreamCutError, match=f"{scope}/s"):
            await controller.truncate_stream(scope, "s", incomplete)
        with pytest.raises(InvalidStreamCutError, match=f"{scope}/s"):
            await controller.truncate_stream(scope, "s", {})
        with pytest.raises(InvalidStreamCutError, match=f"{scope}/s"):
            await controller.get_segments_between(scope, "s", {}, {})
        await scaled(controller, scope, "s", [3], [(0.75, 0.9), (0.9, 1.0)])
        four, five = segment_id(1, 4), segment_id(1, 5)
        later = {0: 0, 1: 0, 2: 0, four: 0, five: 0}
        assert await controller.is_stream_cut_valid(scope, "s", later)
        assert not await controller.is_stream_cut_valid(scope, "s", whole | {four: 0})
        between = await controller.get_segments_between(scope, "s", whole, later)
        assert sorted(between) == [0, 1, 2, 3, four, five]
        assert sorted(await controller.get_segments_between(scope, "s", later, {})) == sorted(later)
        assert sorted(await controller.get_segments_between(scope, "s", {}, whole)) == sorted(whole)
        await controller.truncate_stream(scope, "s", later)
        assert await controller.get_segments(scope, "s") == later
        with pytest.raises(InvalidStreamCutError, match="does not accept"):
            await controller.truncate_stream(scope, "s", whole)
        assert await controller.get_segments(scope, "s") == later

    run(config, body)


@pytest.mark.smoke
def test_scale_up_and_down(config: PravegaConfig) -> None:
    async def body(controller: ControllerClient, scope: str) -> None:
        await controller.create_stream(scope, "s", TWO)
        assert await scaled(controller, scope, "s", [1], [(0.5, 0.75), (0.75, 1.0)]) == 0
        two, three = segment_id(1, 2), segment_id(1, 3)
        now = {each.segment_id: (each.low, each.high) for each in await current(controller, scope)}
        assert now == {0: (0.0, 0.5), two: (0.5, 0.75), three: (0.75, 1.0)}
        split = await controller.get_successors(scope, "s", 1)
        assert {each.segment.segment_id: each.predecessors for each in split.successors} == {
            two: (1,),
            three: (1,),
        }
        assert {(each.low, each.high) for each in split.segments} == {(0.5, 0.75), (0.75, 1.0)}
        assert await scaled(controller, scope, "s", [0, two], [(0.0, 0.75)]) == 1
        last = segment_id(2, 4)
        now = {each.segment_id: (each.low, each.high) for each in await current(controller, scope)}
        assert now == {last: (0.0, 0.75), three: (0.75, 1.0)}
        for sealed in (0, two):
            (merged,) = (await controller.get_successors(scope, "s", sealed)).successors
            assert merged.segment == SegmentWithRange(last, 0.0, 0.75)
            assert set(merged.predecessors) == {0, two}
            assert not await controller.is_segment_valid(scope, "s", sealed)
        epochs = [await controller.get_epoch_segments(scope, "s", epoch) for epoch in range(3)]
        assert [{each.segment_id for each in epoch} for epoch in epochs] == [
            {0, 1},
            {0, two, three},
            {last, three},
        ]

    run(config, body)


async def current(controller: ControllerClient, scope: str) -> list[SegmentWithRange]:
    return await controller.get_current_segments(scope, "s")


@pytest.mark.parametrize("ranges", [[(0.0, 0.4)], [(0.0, 1.0)], [(0.0, 0.2), (0.3, 0.5)]])
def test_new_ranges_that_do_not_fit(config: PravegaConfig, ranges: list[tuple[float, float]]) -> None:
    async def body(controller: ControllerClient, scope: str) -> None:
        await controller.create_stream(scope, "s", TWO)
        with pytest.raises(ScaleConflictError, match="must cover exactly") as caught:
            await controller.scale(scope, "s", [0], ranges)
        assert (caught.value.scope, caught.value.stream, caught.value.status) == (scope, "s", "FAILURE")
        assert {each.segment_id for each in await current(controller, scope)} == {0, 1}

    run(config, body)


def test_scales_that_are_refused(config: PravegaConfig) -> None:
    async def body(controller: ControllerClient, scope: str) -> None:
        await controller.create_stream(scope, "s", TWO)
        assert await controller.scale(scope, "s", [7], [(0.0, 0.5)]) is None
        # There would be fewer segments than the policy wants.
        assert await controller.scale(scope, "s", [0, 1], [(0.0, 1.0)]) is None
        for seal, ranges in (([], []), ([0], []), ([], [(0.0, 0.5)])):
            with pytest.raises(InvalidArgumentError, match="pass both"):
                await controller.scale(scope, "s", seal, ranges)
        for ranges in (
            [(0.5, 0.0)],
            [(0.0, 0.0), (0.0, 0.5)],
            [(0.0, 0.3), (0.2, 0.5)],
            [(0.0, 0.5), (0.5, 1.5)],
            [(-0.5, 0.5)],
            [(0.0, float("nan"))],
        ):
            with pytest.raises(InvalidArgumentError, match="not overlap"):
                await controller.scale(scope, "s", [0], ranges)
        assert {each.segment_id for each in await current(controller, scope)} == {0, 1}
        await controller.seal_stream(scope, "s")
        with pytest.raises(ScaleConflictError):
            await controller.scale(scope, "s", [0], [(0.0, 0.2), (0.2, 0.5)])

    run(config, body)


def test_an_epoch_that_is_not_there_yet(config: PravegaConfig) -> None:
    async def body(controller: ControllerClient, scope: str) -> None:
        await controller.create_stream(scope, "s", StreamConfiguration())
        with pytest.raises(ControllerError, match="INVALID_INPUT") as caught:
            await controller.check_scale(scope, "s", 9)
        assert (caught.value.rpc, caught.value.status) == ("checkScale", "INVALID_INPUT")
        with pytest.raises(StreamNotFoundError, match=f"epoch 9 of stream {scope}/s does not exist"):
            await controller.get_epoch_segments(scope, "s", 9)

    run(config, body)


# --- transactions ---------------------------------------------------------------------------------


@pytest.mark.needs("0.12", "listCompletedTransactions")
@pytest.mark.smoke
def test_commit_and_abort(config: PravegaConfig) -> None:
    async def body(controller: ControllerClient, scope: str) -> None:
        await controller.create_stream(scope, "s", FOUR)
        first = await controller.create_transaction(scope, "s", LEASE)
        second = await controller.create_transaction(scope, "s", LEASE)
        assert first.txn_id != second.txn_id
        assert first.txn_id.int >> 96 == 0  # the epoch
        assert {each.segment_id for each in first.segments} == {0, 1, 2, 3}
        for txn in (first.txn_id, second.txn_id):
            assert await controller.check_transaction_state(scope, "s", txn) is TxnStatus.OPEN
            assert await controller.ping_transaction(scope, "s", txn, LEASE) is PingStatus.OK
        assert await controller.list_completed_transactions(scope, "s") == {}
        assert await controller.commit_transaction(scope, "s", first.txn_id)
        assert await controller.abort_transaction(scope, "s", second.txn_id)
        await settled(controller, scope, "s", first.txn_id, TxnStatus.COMMITTED)
        await settled(controller, scope, "s", second.txn_id, TxnStatus.ABORTED)
        # Again is harmless, the other way is refused.
        assert await controller.commit_transaction(scope, "s", first.txn_id)
        assert await controller.abort_transaction(scope, "s", second.txn_id)
        assert not await controller.abort_transaction(scope, "s", first.txn_id)
        assert not await controller.commit_transaction(scope, "s", second.txn_id)
        ping = controller.ping_transaction
        assert await ping(scope, "s", first.txn_id, LEASE) is PingStatus.COMMITTED
        assert await ping(scope, "s", second.txn_id, LEASE) is PingStatus.ABORTED

    run(config, body)


def test_a_transaction_of_an_earlier_epoch_is_committed(config: PravegaConfig) -> None:
    async def body(controller: ControllerClient, scope: str) -> None:
        await controller.create_stream(scope, "s", TWO)
        early = await controller.create_transaction(scope, "s", LEASE)
        await scaled(controller, scope, "s", [1], [(0.5, 0.75), (0.75, 1.0)])
        late = await controller.create_transaction(scope, "s", LEASE)
        # Generalized: the survivor of epoch 0 is counted as one of epoch 1.
        assert {each.segment_id for each in late.segments} == {segment_id(1, each) for each in (0, 2, 3)}
        assert late.txn_id.int >> 96 == 1
        assert await controller.commit_transaction(scope, "s", early.txn_id)
        await settled(controller, scope, "s", early.txn_id, TxnStatus.COMMITTED)
        assert await controller.commit_transaction(scope, "s", late.txn_id)
        await settled(controller, scope, "s", late.txn_id, TxnStatus.COMMITTED)
        assert {epoch_of(each.segment_id) for each in await current(controller, scope)} == {3}

    run(config, body)


def test_an_unknown_transaction(config: PravegaConfig) -> None:
    async def body(controller: ControllerClient, scope: str) -> None:
        await controller.create_stream(scope, "s", StreamConfiguration())
        nobody = uuid4()
        assert await controller.check_transaction_state(scope, "s", nobody) is TxnStatus.UNKNOWN
        assert await controller.ping_transaction(scope, "s", nobody, LEASE) is PingStatus.UNKNOWN
        assert not await controller.commit_transaction(scope, "s", nobody)
        assert not await controller.abort_transaction(scope, "s", nobody)

    run(config, body)


@pytest.mark.parametrize("lease", [10, 600])
def test_the_server_takes_the_shortest_and_the_longest_lease(config: PravegaConfig, lease: float) -> None:
    async def body(controller: ControllerClient, scope: str) -> None:
        await controller.create_stream(scope, "s", StreamConfiguration())
        txn = await controller.create_transaction(scope, "s", lease)
        assert await controller.ping_transaction(scope, "s", txn.txn_id, lease) is PingStatus.OK
        assert await controller.abort_transaction(scope, "s", txn.txn_id)

    run(config, body)


@pytest.mark.parametrize("lease", [9.999, 600.001, 0, -1])
def test_other_leases_are_refused_before_anything_is_sent(config: PravegaConfig, lease: float) -> None:
    async def body(controller: ControllerClient, scope: str) -> None:
        with pytest.raises(InvalidArgumentError, match="lease"):
            await controller.create_transaction(scope, "s", lease)
        with pytest.raises(InvalidArgumentError, match="lease"):
            await controller.ping_transaction(scope, "s", uuid4(), lease)

    run(config, body)


def test_a_lease_that_runs_out(config: PravegaConfig) -> None:
    async def body(controller: ControllerClient, scope: str) -> None:
        await controller.create_stream(scope, "s", StreamConfiguration())
        txn = await controller.create_transaction(scope, "s", 10)
        await settled(controller, scope, "s", txn.txn_id, TxnStatus.ABORTED)
        assert not await controller.commit_transaction(scope, "s", txn.txn_id)

    run(config, body)


# --- time -----------------------------------------------------------------------------------------


def test_a_writer_s_time(config: PravegaConfig) -> None:
    async def body(controller: ControllerClient, scope: str) -> None:
        await controller.create_stream(scope, "s", TWO)

        async def note(time: int, position: dict[int, int]) -> NoteTimeStatus:
            return await controller.note_timestamp_from_writer(scope, "s", "writer", time, position)

        assert await note(1000, {0: 10, 1: 20}) is NoteTimeStatus.SUCCESS
        assert await note(1000, {0: 10, 1: 21}) is NoteTimeStatus.SUCCESS
        assert await note(999, {0: 11, 1: 30}) is NoteTimeStatus.INVALID_TIME
        assert await note(2000, {0: 1, 1: 1}) is NoteTimeStatus.INVALID_POSITION
        assert await note(2000, {0: 11, 1: 30}) is NoteTimeStatus.SUCCESS
        remove = controller.remove_writer
        assert await remove(scope, "s", "nobody") is RemoveWriterStatus.UNKNOWN_WRITER
        assert await controller.remove_writer(scope, "s", "writer") is RemoveWriterStatus.SUCCESS

    run(config, body)


def test_a_commit_notes_its_writer_s_time(config: PravegaConfig) -> None:
    async def body(controller: ControllerClient, scope: str) -> None:
        await controller.create_stream(scope, "s", StreamConfiguration())
        txn = await controller.create_transaction(scope, "s", LEASE)
        assert await controller.commit_transaction(scope, "s", txn.txn_id, writer_id="writer", timestamp=5000)
        await settled(controller, scope, "s", txn.txn_id, TxnStatus.COMMITTED)

        async def noted() -> bool:
            found = await controller.remove_writer(scope, "s", "writer")
            return found is RemoveWriterStatus.SUCCESS

        await until(noted)
        early = await controller.note_timestamp_from_writer(scope, "s", "writer", 4999, {0: 0})
        assert early is NoteTimeStatus.INVALID_TIME

    run(config, body)


# --- reader groups --------------------------------------------------------------------------------


def group(
    scope: str,
    *streams: str,
    retention: RetentionType = RetentionType.NONE,
    group_id: UUID | None = None,
) -> ReaderGroupConfig:
    config = ReaderGroupConfig.of([ScopedStream(scope, each) for each in streams], retention=retention)
    return config.with_identity(0, group_id or uuid4())


@pytest.mark.smoke
def test_the_life_of_a_reader_group(config: PravegaConfig) -> None:
    async def body(controller: ControllerClient, scope: str) -> None:
        await controller.create_stream(scope, "s", TWO)
        stream = ScopedStream(scope, "s")
        wanted = ReaderGroupConfig(
            {stream: StreamCut(stream, {0: 0, 1: 0})},
            {stream: StreamCut(stream, {0: 100, 1: -1})},
            group_refresh_interval=1.234,
            automatic_checkpoint_interval=23.456,
            max_outstanding_checkpoints=7,
            retention=RetentionType.NONE,
            generation=0,
            group_id=uuid4(),
        )
        for stored in (
            await controller.create_reader_group(scope, "g", wanted),
            await controller.get_reader_group_config(scope, "g"),
            # It exists: the stored configuration comes back.
            await controller.create_reader_group(scope, "g", group(scope, "s")),
        ):
            assert (stored, stored.generation, stored.group_id) == (wanted, 0, wanted.group_id)
        # The group's state is a stream of its own, and each stream has one of watermarks.
        listed = set(await all_of(controller.list_streams(scope)))
        assert listed == {"s", "_MARKs", "_RGg", "_MARK_RGg"}
        for name in listed:
            assert ScopedStream.parse(f"{scope}/{name}").name == name
            assert await controller.get_current_segments(scope, name)

        changed = group(scope, "s", group_id=wanted.group_id)
        assert await controller.update_reader_group(scope, "g", changed) == 1
        stored = await controller.get_reader_group_config(scope, "g")
        assert (stored.generation, stored.starts, stored.group_id) == (1, changed.starts, wanted.group_id)
        for outdated in (changed, group(scope, "s")):
            with pytest.raises(ControllerError, match="INVALID_CONFIG") as caught:
                await controller.update_reader_group(scope, "g", outdated)
            assert caught.value.status == "INVALID_CONFIG"

        with pytest.raises(ReaderGroupNotFoundError):
            await controller.delete_reader_group(scope, "g", uuid4())
        await controller.delete_reader_group(scope, "g", wanted.group_id)
        with pytest.raises(ReaderGroupNotFoundError, match=f"{scope}/g") as gone:
            await controller.get_reader_group_config(scope, "g")
        assert gone.value.scope == scope
        assert set(await all_of(controller.list_streams(scope))) == {"s", "_MARKs"}

    run(config, body)


def test_the_server_makes_up_an_id(config: PravegaConfig) -> None:
    async def body(controller: ControllerClient, scope: str) -> None:
        await controller.create_stream(scope, "s", StreamConfiguration())
        stored = await controller.create_reader_group(scope, "g", group(scope, "s", group_id=UUID(int=0)))
        assert stored.group_id.int != 0

    run(config, body)


def test_subscribers(config: PravegaConfig) -> None:
    async def body(controller: ControllerClient, scope: str) -> None:
        await controller.create_stream(scope, "s", TWO)
        assert await controller.list_subscribers(scope, "s") == []
        manual, automatic, none = [
            await controller.create_reader_group(scope, name, group(scope, "s", retention=retention))
            for name, retention in (
                ("manual", RetentionType.MANUAL_RELEASE_AT_USER_STREAM_CUT),
                ("auto", RetentionType.AUTOMATIC_RELEASE_AT_LAST_CHECKPOINT),
                ("none", RetentionType.NONE),
            )
        ]
        names = {f"{scope}/manual", f"{scope}/auto"}
        assert set(await controller.list_subscribers(scope, "s")) == names

        update = controller.update_subscriber_stream_cut
        cut = {0: 0, 1: 0}
        for name, each in (("manual", manual), ("auto", automatic)):
            await update(scope, "s", f"{scope}/{name}", each.group_id, each.generation, cut)
        with pytest.raises(InvalidStreamCutError, match="not valid"):
            await update(scope, "s", f"{scope}/manual", manual.group_id, 0, {0: 0})
        with pytest.raises(ReaderGroupNotFoundError, match="not a subscriber"):
            await update(scope, "s", f"{scope}/none", none.group_id, 0, cut)
        with pytest.raises(ControllerError, match="GENERATION_MISMATCH") as caught:
            await update(scope, "s", f"{scope}/manual", manual.group_id, 5, cut)
        assert caught.value.status == "GENERATION_MISMATCH"

        await controller.delete_reader_group(scope, "auto", automatic.group_id)
        assert await controller.list_subscribers(scope, "s") == [f"{scope}/manual"]

    run(config, body)


# --- key-value tables -----------------------------------------------------------------------------


@pytest.mark.smoke
def test_the_life_of_a_key_value_table(config: PravegaConfig) -> None:
    async def body(controller: ControllerClient, scope: str) -> None:
        wanted = KeyValueTableConfiguration(3, 16, 4)
        assert await controller.create_key_value_table(scope, "t", wanted)
        assert not await controller.create_key_value_table(scope, "t", KeyValueTableConfiguration(1, 8))
        assert await controller.get_key_value_table_configuration(scope, "t") == wanted
        segments = await controller.get_current_segments_key_value_table(scope, "t")
        assert [each.segment_id for each in sorted(segments, key=lambda each: each.low)] == [0, 1, 2]
        assert (min(each.low for each in segments), max(each.high for each in segments)) == (0.0, 1.0)
        assert await all_of(controller.list_key_value_tables(scope)) == ["t"]
        assert await all_of(controller.list_streams(scope)) == []
        assert await controller.delete_key_value_table(scope, "t")
        assert not await controller.delete_key_value_table(scope, "t")
        assert await all_of(controller.list_key_value_tables(scope)) == []

    run(config, body)


# --- paging ---------------------------------------------------------------------------------------

PAGES = (["a", "b"], ["c"], ["d", "e", "f"])


class PagingServer(grpc.GenericRpcHandler):
    """Lists ``PAGES``; its pages are short, and the last token is not empty, as with the real one."""

    def __init__(self, make_page: Callable[[list[str], pb.ContinuationToken], Message]) -> None:
        self._make_page = make_page
        self.tokens: list[str] = []
        self.server = grpc.server(futures.ThreadPoolExecutor(1))
        self.server.add_generic_rpc_handlers((self,))
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        # The token's field has another number in each request; whatever else is in it names nothing.
        return grpc.unary_unary_rpc_method_handler(self._list)

    def _list(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        found = re.search(rb"page-(\d)", request)
        self.tokens.append(found[0].decode() if found else "")
        index = int(found[1]) if found else 0
        names = PAGES[index] if index < len(PAGES) else []
        token = pb.ContinuationToken(token=f"page-{min(index + 1, len(PAGES))}")
        return self._make_page(names, token).SerializeToString()


def scope_page(names: list[str], token: pb.ContinuationToken) -> Message:
    return pb.ScopesResponse(scopes=names, continuationToken=token)


def stream_page(names: list[str], token: pb.ContinuationToken) -> Message:
    streams = [pb.StreamInfo(scope="s", stream=name) for name in names]
    return pb.StreamsInScopeResponse(streams=streams, continuationToken=token)


def table_page(names: list[str], token: pb.ContinuationToken) -> Message:
    tables = [pb.KeyValueTableInfo(scope="s", kvtName=name) for name in names]
    return pb.KVTablesInScopeResponse(kvtables=tables, continuationToken=token)


@pytest.mark.parametrize(
    ("make_page", "listing"),
    [
        (scope_page, lambda c: c.list_scopes()),
        (stream_page, lambda c: c.list_streams("s")),
        (stream_page, lambda c: c.list_streams_for_tag("s", "t")),
        (table_page, lambda c: c.list_key_value_tables("s")),
    ],
    ids=["scopes", "streams", "streams for a tag", "tables"],
)
def test_every_listing_goes_on_until_a_page_is_empty(
    make_page: Callable[[list[str], pb.ContinuationToken], Message],
    listing: Callable[[ControllerClient], AsyncIterator[str]],
) -> None:
    paging = PagingServer(make_page)

    async def main() -> None:
        config = PravegaConfig(controller_uri=f"tcp://127.0.0.1:{paging.port}")
        async with controller_of(config) as controller:
            assert await all_of(listing(controller)) == ["a", "b", "c", "d", "e", "f"]

    try:
        trio.run(main)
    finally:
        paging.server.stop(None).wait(30)
    assert paging.tokens == ["", "page-1", "page-2", "page-3"]


def test_a_list_that_would_not_end_is_refused() -> None:
    paging = PagingServer(
        lambda names, token: pb.ScopesResponse(
            scopes=["a"], continuationToken=pb.ContinuationToken(token="page-1")
        )
    )

    async def main() -> None:
        async with controller_of(
            PravegaConfig(controller_uri=f"tcp://127.0.0.1:{paging.port}")
        ) as controller:
            with pytest.raises(UnexpectedReplyError, match=r"all scopes.* would not end"):
                await all_of(controller.list_scopes())

    try:
        trio.run(main)
    finally:
        paging.server.stop(None).wait(30)
    assert paging.tokens == ["", "page-1"]


# --- refusals -------------------------------------------------------------------------------------

Call = Callable[[ControllerClient, str, str], Awaitable[Any]]
CUT = {0: 0}
STREAM_CALLS: dict[str, Call] = {
    "update_stream": lambda c, scope, name: c.update_stream(scope, name, FOUR),
    "truncate_stream": lambda c, scope, name: c.truncate_stream(scope, name, CUT),
    "seal_stream": lambda c, scope, name: c.seal_stream(scope, name),
    "get_stream_configuration": lambda c, scope, name: c.get_stream_configuration(scope, name),
    "get_current_segments": lambda c, scope, name: c.get_current_segments(scope, name),
    "get_epoch_segments": lambda c, scope, name: c.get_epoch_segments(scope, name, 0),
    "get_segments": lambda c, scope, name: c.get_segments(scope, name),
    "get_successors": lambda c, scope, name: c.get_successors(scope, name, 0),
    "get_segments_between": lambda c, scope, name: c.get_segments_between(scope, name, CUT, {}),
    "is_segment_valid": lambda c, scope, name: c.is_segment_valid(scope, name, 0),
    "is_stream_cut_valid": lambda c, scope, name: c.is_stream_cut_valid(scope, name, CUT),
    "scale": lambda c, scope, name: c.scale(scope, name, [0], [(0.0, 1.0)]),
    "create_transaction": lambda c, scope, name: c.create_transaction(scope, name, LEASE),
    "note_timestamp_from_writer": lambda c, scope, name: c.note_timestamp_from_writer(
        scope, name, "writer", 1, CUT
    ),
    "list_subscribers": lambda c, scope, name: c.list_subscribers(scope, name),
    "update_subscriber_stream_cut": lambda c, scope, name: c.update_subscriber_stream_cut(
        scope, name, f"{scope}/g", uuid4(), 0, CUT
    ),
}
"""Calls that need a stream."""
LENIENT_CALLS: dict[str, Call] = {
    "delete_stream": lambda c, scope, name: c.delete_stream(scope, name),
    "check_stream_exists": lambda c, scope, name: c.check_stream_exists(scope, name),
    "check_scale": lambda c, scope, name: c.check_scale(scope, name, 0),
    "get_delegation_token": lambda c, scope, name: c.get_delegation_token(scope, name, Access.READ),
    "commit_transaction": lambda c, scope, name: c.commit_transaction(scope, name, uuid4()),
    "abort_transaction": lambda c, scope, name: c.abort_transaction(scope, name, uuid4()),
    "ping_transaction": lambda c, scope, name: c.ping_transaction(scope, name, uuid4(), LEASE),
    "check_transaction_state": lambda c, scope, name: c.check_transaction_state(scope, name, uuid4()),
    "list_completed_transactions": lambda c, scope, name: c.list_completed_transactions(scope, name),
    "remove_writer": lambda c, scope, name: c.remove_writer(scope, name, "writer"),
    "create_stream": lambda c, scope, name: c.create_stream(scope, name, FOUR),
}
"""Calls that say something else about a stream that is not there."""
GROUP_CALLS: dict[str, Call] = {
    "get_reader_group_config": lambda c, scope, name: c.get_reader_group_config(scope, name),
    "update_reader_group": lambda c, scope, name: c.update_reader_group(scope, name, group(scope, "s")),
    "delete_reader_group": lambda c, scope, name: c.delete_reader_group(scope, name, uuid4()),
}
TABLE_CALLS: dict[str, Call] = {
    "get_key_value_table_configuration": lambda c, scope, name: c.get_key_value_table_configuration(
        scope, name
    ),
    "get_current_segments_key_value_table": lambda c, scope, name: c.get_current_segments_key_value_table(
        scope, name
    ),
}
OTHER_NAMES: dict[str, Call] = {
    "create_reader_group": lambda c, scope, name: c.create_reader_group(scope, name, group(scope, "s")),
    "create_key_value_table": lambda c, scope, name: c.create_key_value_table(
        scope, name, KeyValueTableConfiguration(1, 8)
    ),
    "delete_key_value_table": lambda c, scope, name: c.delete_key_value_table(scope, name),
}
SCOPE_CALLS: dict[str, Callable[[ControllerClient, str], Awaitable[Any]]] = {
    "list_streams": lambda c, scope: all_of(c.list_streams(scope)),
    "list_streams_for_tag": lambda c, scope: all_of(c.list_streams_for_tag(scope, "tag")),
    "list_key_value_tables": lambda c, scope: all_of(c.list_key_value_tables(scope)),
    "create_stream": lambda c, scope: c.create_stream(scope, "s", FOUR),
    "create_reader_group": lambda c, scope: c.create_reader_group(scope, "g", group(scope, "s")),
    "create_key_value_table": lambda c, scope: c.create_key_value_table(
        scope, "t", KeyValueTableConfiguration(1, 8)
    ),
}


@pytest.mark.parametrize("name", STREAM_CALLS)
def test_a_stream_that_is_not_there(config: PravegaConfig, name: str) -> None:
    async def body(controller: ControllerClient, scope: str) -> None:
        with pytest.raises(StreamNotFoundError, match=f"stream {scope}/nonesuch does not exist") as caught:
            await STREAM_CALLS[name](controller, scope, "nonesuch")
        assert (caught.value.scope, caught.value.stream) == (scope, "nonesuch")
        assert caught.value.rpc
        assert caught.value.status

    run(config, body)


@pytest.mark.needs("0.12", "listCompletedTransactions")
def test_the_ended_transactions_of_a_stream_that_is_not_there(config: PravegaConfig) -> None:
    async def body(controller: ControllerClient, scope: str) -> None:
        assert await controller.list_completed_transactions(scope, "nonesuch") == {}

    run(config, body)


@pytest.mark.parametrize("name", GROUP_CALLS | TABLE_CALLS)
def test_a_group_or_table_that_is_not_there(config: PravegaConfig, name: str) -> None:
    error: type[PravegaError] = (
        ReaderGroupNotFoundError if name in GROUP_CALLS else KeyValueTableNotFoundError
    )

    async def body(controller: ControllerClient, scope: str) -> None:
        with pytest.raises(error, match=f"{scope}/nonesuch does not exist") as caught:
            await (GROUP_CALLS | TABLE_CALLS)[name](controller, scope, "nonesuch")
        assert caught.value.scope == scope

    run(config, body)


@pytest.mark.parametrize("name", SCOPE_CALLS)
def test_a_scope_that_is_not_there(config: PravegaConfig, name: str) -> None:
    async def body(controller: ControllerClient, scope: str) -> None:
        with pytest.raises(ScopeNotFoundError, match=f"scope {scope}-no does not exist") as caught:
            await SCOPE_CALLS[name](controller, f"{scope}-no")
        assert caught.value.scope == f"{scope}-no"

    run(config, body)


NAMED: dict[str, Call] = STREAM_CALLS | LENIENT_CALLS | GROUP_CALLS | TABLE_CALLS | OTHER_NAMES


@pytest.mark.parametrize("name", NAMED)
async def test_illegal_names_are_refused_before_anything_is_sent(name: str) -> None:
    """No server listens: a call that sends something would fail with another error."""

    config = PravegaConfig(controller_uri="tcp://127.0.0.1:1")
    async with controller_of(config, policy=RetryPolicy(attempts=1)) as controller:
        with pytest.raises(RetriesExhaustedError):
            await NAMED[name](controller, "scope", "fine")
        for illegal in ("", "a b", "a/b", "ä", "_", "x" * 256):
            with pytest.raises(InvalidArgumentError, match="name"):
                await NAMED[name](controller, "scope", illegal)
        for illegal in ("", "a b", "a/b", "x" * 256):
            with pytest.raises(InvalidArgumentError, match="scope name"):
                await NAMED[name](controller, illegal, "fine")


@pytest.mark.parametrize("scope", ["", "a b", "a/b", "x" * 256])
async def test_illegal_scope_names_are_refused_before_anything_is_sent(scope: str) -> None:
    config = PravegaConfig(controller_uri="tcp://127.0.0.1:1")
    async with controller_of(config, policy=RetryPolicy(attempts=1)) as controller:
        scope_calls: list[Callable[[str], Awaitable[Any]]] = [
            controller.create_scope,
            controller.delete_scope,
            controller.delete_scope_recursive,
            controller.check_scope_exists,
            lambda each: all_of(controller.list_streams(each)),
            lambda each: all_of(controller.list_streams_for_tag(each, "t")),
            lambda each: all_of(controller.list_key_value_tables(each)),
        ]
        for call in scope_calls:
            with pytest.raises(InvalidArgumentError, match="scope name"):
                await call(scope)


# --- tokens, and more than one process ------------------------------------------------------------


def test_tokens_are_empty_without_authorization(config: PravegaConfig) -> None:
    async def body(controller: ControllerClient, scope: str) -> None:
        await controller.create_stream(scope, "s", StreamConfiguration())
        for access in Access:
            assert await controller.get_delegation_token(scope, "s", access) == ""

    run(config, body)


@pytest.fixture(scope="module")
def secure(own_kind: Kind) -> Iterator[PravegaServer]:
    with standalone(kind=own_kind, auth=True, memory="1g", cache_bytes=256 << 20) as server:
        yield server


@pytest.mark.needs("0.12", "listCompletedTransactions")
def test_tokens_and_ended_transactions_of_a_server_of_its_own(secure: PravegaServer) -> None:
    """A server that knows the ended transactions of two streams lists those of none."""

    async def body(controller: ControllerClient, scope: str) -> None:
        await controller.create_scope(scope)
        await controller.create_stream(scope, "s", StreamConfiguration())
        tokens = {access: await controller.get_delegation_token(scope, "s", access) for access in Access}
        assert all(expiry_of(token) is not None for token in tokens.values())
        first = await controller.create_transaction(scope, "s", LEASE)
        second = await controller.create_transaction(scope, "s", LEASE)
        assert first.token.count(".") == 2
        assert first.token not in repr(first)
        assert await controller.list_completed_transactions(scope, "s") == {}
        assert await controller.commit_transaction(scope, "s", first.txn_id)
        assert await controller.abort_transaction(scope, "s", second.txn_id)
        ended = {first.txn_id: TxnStatus.COMMITTED, second.txn_id: TxnStatus.ABORTED}

        async def listed() -> bool:
            return await controller.list_completed_transactions(scope, "s") == ended

        await until(listed)

    run(secure.config("own"), body)


async def test_calls_without_an_account(secure: PravegaServer) -> None:
    async with controller_of(replace(secure.config(), credentials=None)) as controller:
        with pytest.raises(AuthError):
            await controller.create_scope("never")


@pytest.mark.real_server("only a cluster has such a list")
async def test_the_list_of_controllers(pravega_cluster: PravegaCluster) -> None:
    async with controller_of(pravega_cluster.config()) as controller:
        found = await controller.get_controller_server_list()
        assert set(found) == {NodeUri(*each.address) for each in pravega_cluster.controllers}
    host, port = pravega_cluster.controller_address
    discovered = PravegaConfig(controller_uri=f"pravega://{host}:{port}")
    async with controller_of(discovered, discovery=True) as controller:
        assert await controller.create_scope(f"discovered-{uuid4().hex[:8]}")


async def test_a_standalone_server_has_no_list_of_controllers(pravega_server: PravegaServer) -> None:
    async with controller_of(pravega_server.config(), policy=RetryPolicy(attempts=2)) as controller:
        with pytest.raises(RetriesExhaustedError, match="cluster not initialized"):
            await controller.get_controller_server_list()


async def test_a_standalone_server_is_used_without_a_list_of_controllers(
    pravega_server: PravegaServer, config: PravegaConfig, caplog: pytest.LogCaptureFixture
) -> None:
    discovering = replace(config, controller_uri=config.controller_uri.replace("tcp://", "pravega://"))
    assert discovering.discovery
    async with open_client(discovering) as client:
        assert await client.create_stream("t")
        async with client.event_writer("t") as writer:
            await writer.write_event(b"x")
        assert await client.stream_exists("t")
    assert len([each for each in caplog.records if "cluster not initialized" in each.getMessage()]) == 1
