"""The controller in memory answers as the real one: the same calls, answer by answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import h2.config
import h2.connection
import h2.events
import pytest
import trio
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from pravega_wire.grpc.status import StatusCode
from pravega_wire.proto import controller_pb2 as pb
from pravega_wire.testing import PravegaServer, standalone
from tests.comparing import Channel, message_of, open_channel

pytestmark = pytest.mark.real_server("the server in memory is compared with it")

NONE = -(2**63)
LEASE = 60_000
EPOCH = 1 << 32


class Calls:
    """Makes calls and writes down what was answered, as far as it does not depend on the server.

    :ivar scope: a scope of its own.
    :ivar answers: what was asked and answered.
    """

    def __init__(self, channel: Channel, scope: str) -> None:
        self._channel = channel
        self.scope = scope
        self.answers: list[object] = []
        self._ids: dict[str, str] = {}

    def stream(self, name: str = "s", scope: str | None = None) -> pb.StreamInfo:
        return pb.StreamInfo(scope=self.scope if scope is None else scope, stream=name)

    def config(self, name: str = "s", segments: int = 2, **more: Any) -> pb.StreamConfig:
        policy = pb.ScalingPolicy(minNumSegments=segments)
        return pb.StreamConfig(streamInfo=self.stream(name), scalingPolicy=policy, **more)

    def cut(self, positions: dict[int, int], name: str = "s") -> pb.StreamCut:
        return pb.StreamCut(streamInfo=self.stream(name), cut=positions)

    def scaling(self, seal: list[int], *ranges: tuple[float, float], name: str = "s") -> pb.ScaleRequest:
        new = [pb.ScaleRequest.KeyRangeEntry(start=low, end=high) for low, high in ranges]
        return pb.ScaleRequest(streamInfo=self.stream(name), sealedSegments=seal, newKeyRanges=new)

    def group(self, name: str = "g", **more: Any) -> pb.ReaderGroupConfiguration:
        cuts = [self.cut({})]
        return pb.ReaderGroupConfiguration(
            scope=self.scope,
            readerGroupName=name,
            startingStreamCuts=cuts,
            endingStreamCuts=cuts,
            maxOutstandingCheckpointRequest=3,
            **more,
        )

    async def quietly(self, rpc: str, request: Message) -> tuple[StatusCode, Any]:
        """Make a call that is not written down."""
        answer = await self._channel.call(rpc, request)
        return answer.code, message_of(rpc, answer)

    async def __call__(self, rpc: str, request: Message) -> Any:
        code, reply = await self.quietly(rpc, request)
        asked = self._plain(MessageToDict(request, always_print_fields_with_no_presence=True))
        found = self._plain(MessageToDict(reply, always_print_fields_with_no_presence=True))
        self.answers.append((rpc, asked, code.name, found))
        return reply

    async def until(self, rpc: str, request: Message, done: Callable[[Any], bool]) -> None:
        """Ask until it is so."""
        while not done((await self.quietly(rpc, request))[1]):
            await trio.sleep(0.02)

    async def scaled(self, epoch: int, name: str = "s") -> None:
        status = pb.ScaleStatusRequest(streamInfo=self.stream(name), epoch=epoch)
        await self.until(
            "checkScale", status, lambda reply: reply.status != pb.ScaleStatusResponse.IN_PROGRESS
        )

    async def begun(self, name: str = "s") -> pb.TxnId:
        request = pb.CreateTxnRequest(streamInfo=self.stream(name), lease=LEASE)
        found: pb.TxnId = (await self("createTransaction", request)).txnId
        return found

    async def ended(self, txn: pb.TxnId, name: str = "s") -> None:
        request = pb.TxnRequest(streamInfo=self.stream(name), txnId=txn)
        ends = (pb.TxnState.COMMITTED, pb.TxnState.ABORTED)
        await self.until("checkTransactionState", request, lambda reply: reply.state in ends)

    def _plain(self, value: Any) -> Any:
        """Without tokens and ids; lists have no order."""
        if isinstance(value, dict):
            return {
                key: self._ids.setdefault(str(each), str(len(self._ids)))
                if key in ("lowBits", "readerGroupId")
                else int(each) >> 32
                if key == "highBits"
                else self._plain(each)
                for key, each in value.items()
                if key not in ("continuationToken", "delegationToken")
            }
        return sorted(map(self._plain, value), key=str) if isinstance(value, list) else value


Program = Callable[[Calls], Awaitable[None]]


async def scopes(call: Calls) -> None:
    other = f"{call.scope}-other"
    for name in (other, other, "_internal", "a b", ""):
        await call("createScope", pb.ScopeInfo(scope=name))
    for name in (other, "nonesuch"):
        await call("checkScopeExists", pb.ScopeInfo(scope=name))
    for name in (other, other):
        await call("deleteScope", pb.ScopeInfo(scope=name))
    for name in ("nonesuch", ""):
        await call("deleteScopeRecursive", pb.ScopeInfo(scope=name))
        info = pb.ScopeInfo(scope=name)
        await call("listStreamsInScope", pb.StreamsInScopeRequest(scope=info))
        await call("listKeyValueTablesInScope", pb.KVTablesInScopeRequest(scope=info))
    await call("deleteScope", pb.ScopeInfo(scope="_internal"))


async def missing(call: Calls) -> None:
    """Calls about what is not there."""
    txn = pb.TxnId(highBits=1, lowBits=2)
    for info in (call.stream("no"), call.stream("no", "nonesuch"), call.stream("")):
        for rpc in (
            "sealStream", "deleteStream", "checkStreamExists", "getStreamConfiguration", "getCurrentSegments",
            "listSubscribers",
        ):  # fmt: skip
            await call(rpc, info)
        cut = pb.StreamCut(streamInfo=info, cut={0: 0})
        policy = pb.ScalingPolicy(minNumSegments=1)
        await call("updateStream", pb.StreamConfig(streamInfo=info, scalingPolicy=policy))
        await call("truncateStream", cut)
        await call("isStreamCutValid", cut)
        await call("getEpochSegments", pb.GetEpochSegmentsRequest(streamInfo=info))
        await call("getSegments", pb.GetSegmentsRequest(streamInfo=info))
        segment = pb.SegmentId(streamInfo=info)
        for rpc in ("getSegmentsImmediatelyFollowing", "getSegmentsImmediatlyFollowing", "isSegmentValid"):
            await call(rpc, segment)
        await call("getSegmentsBetween", pb.StreamCutRange(streamInfo=info, to={0: 0}))
        scale = pb.ScaleRequest(streamInfo=info, sealedSegments=[0])
        scale.newKeyRanges.add(start=0.0, end=1.0)
        await call("scale", scale)
        await call("checkScale", pb.ScaleStatusRequest(streamInfo=info))
        await call("createTransaction", pb.CreateTxnRequest(streamInfo=info, lease=LEASE))
        for rpc in ("commitTransaction", "abortTransaction", "checkTransactionState"):
            await call(rpc, pb.TxnRequest(streamInfo=info, txnId=txn, timestamp=NONE))
        await call("pingTransaction", pb.PingTxnRequest(streamInfo=info, txnId=txn, lease=LEASE))
        time = pb.TimestampFromWriter(writer="w", position=cut, timestamp=1)
        await call("noteTimestampFromWriter", time)
        await call("removeWriter", pb.RemoveWriterRequest(writer="w", stream=info))
        consumed = pb.SubscriberStreamCut(subscriber="a/b", readerGroupId=str(uuid4()), streamCut=cut)
        await call("updateSubscriberStreamCut", consumed)
    for scope in (call.scope, "nonesuch"):
        await call("getReaderGroupConfig", pb.ReaderGroupInfo(scope=scope, readerGroup="no"))
        group_id = str(uuid4())
        group = pb.ReaderGroupInfo(scope=scope, readerGroup="no", readerGroupId=group_id)
        await call("deleteReaderGroup", group)
        wanted = call.group("no", readerGroupId=group_id)
        wanted.scope = scope
        await call("updateReaderGroup", wanted)
        table = pb.KeyValueTableInfo(scope=scope, kvtName="no")
        await call("getKeyValueTableConfiguration", table)
        await call("getCurrentSegmentsKeyValueTable", table)
        await call("deleteKeyValueTable", table)


async def streams(call: Calls) -> None:
    for name in ("s", "s", "a b", "_s", ""):
        await call("createStream", call.config(name))
    await call("listStreamsInScope", pb.StreamsInScopeRequest(scope=pb.ScopeInfo(scope=call.scope)))
    await call("getStreamConfiguration", call.stream())
    retention = pb.RetentionPolicy(retentionType="SIZE", retentionParam=5, retentionMax=9)
    changed = call.config(
        segments=3, tags=pb.Tags(tag=["b", "a"]), rolloverSizeBytes=7, retentionPolicy=retention
    )
    await call("updateStream", changed)
    await call("getStreamConfiguration", call.stream())
    for tag in ("a", "c"):
        listing = pb.StreamsInScopeWithTagRequest(scope=pb.ScopeInfo(scope=call.scope), tag=tag)
        await call("listStreamsInScopeForTag", listing)
    await call("deleteStream", call.stream())
    await call("sealStream", call.stream())
    await call("sealStream", call.stream())
    await call("getCurrentSegments", call.stream())
    await call("getSegments", pb.GetSegmentsRequest(streamInfo=call.stream()))
    await call("getEpochSegments", pb.GetEpochSegmentsRequest(streamInfo=call.stream()))
    for segment in (0, 1, 7):
        asked = pb.SegmentId(streamInfo=call.stream(), segmentId=segment)
        await call("isSegmentValid", asked)
    await call("getSegmentsImmediatelyFollowing", pb.SegmentId(streamInfo=call.stream()))
    await call("updateStream", changed)
    await call("truncateStream", call.cut({0: 0, 1: 0}))
    await call("scale", call.scaling([0], (0.0, 0.5)))
    await call("createTransaction", pb.CreateTxnRequest(streamInfo=call.stream(), lease=LEASE))
    await call("deleteStream", call.stream())
    await call("deleteStream", call.stream())
    # Its segments go on with the next number.
    await call("createStream", call.config())
    await call("getCurrentSegments", call.stream())
    await call("getSegments", pb.GetSegmentsRequest(streamInfo=call.stream()))


async def updates(call: Calls) -> None:
    """A change of the least number of segments scales the stream at once."""
    for segments in (6, 7):
        await call("createStream", call.config(f"s{segments}", segments))
        await call("getCurrentSegments", call.stream(f"s{segments}"))
    for segments in (7, 3):
        await call("updateStream", call.config("s6", segments))
        await call("getCurrentSegments", call.stream("s6"))
    events = pb.ScalingPolicy(
        scaleType="BY_RATE_IN_EVENTS_PER_SEC", targetRate=9, scaleFactor=2, minNumSegments=2
    )
    for segments in (2, 4):
        events.minNumSegments = segments
        await call("updateStream", pb.StreamConfig(streamInfo=call.stream("s6"), scalingPolicy=events))
        await call("getCurrentSegments", call.stream("s6"))


async def cuts(call: Calls) -> None:
    await call("createStream", call.config())
    await call("scale", call.scaling([1], (0.5, 0.75), (0.75, 1.0)))
    await call.scaled(0)
    two, three = EPOCH + 2, EPOCH + 3
    await call("scale", call.scaling([0, two], (0.0, 0.75)))
    await call.scaled(1)
    four = 2 * EPOCH + 4
    for epoch in range(4):
        await call("getEpochSegments", pb.GetEpochSegmentsRequest(streamInfo=call.stream(), epoch=epoch))
        await call("checkScale", pb.ScaleStatusRequest(streamInfo=call.stream(), epoch=epoch))
    for segment in (0, 1, two, three, four):
        asked = pb.SegmentId(streamInfo=call.stream(), segmentId=segment)
        await call("getSegmentsImmediatelyFollowing", asked)
    positions: list[dict[int, int]] = [
        {0: 0, 1: 0},
        {0: 0, two: 0, three: 0},
        {0: 0, two: 0, three: -1},
        {0: 0, 1: 0, two: 0},
        {0: 0},
        {four: 0, three: 0},
        {four: -1, three: 0},
        {0: 5, four: -1, three: 0},
        {1: 5, four: -1},
        {four: -1, three: -1},
        {four: 0, 1: 0},
        {},
    ]
    for each in positions:
        await call("isStreamCutValid", call.cut(each))
    several: list[dict[int, int]] = [{}, {9: 0}, *(positions[at] for at in (0, 1, 5))]
    for start in several:
        for end in several:
            asked_for = pb.StreamCutRange(streamInfo=call.stream(), to=end)
            getattr(asked_for, "from").update(start)
            await call("getSegmentsBetween", asked_for)
    for each in [positions[at] for at in (4, 1, 0, 5)]:
        await call("truncateStream", call.cut(each))
        await call("getSegments", pb.GetSegmentsRequest(streamInfo=call.stream()))


async def scales(call: Calls) -> None:
    await call("createStream", call.config())
    for seal, ranges in (
        ([7], [(0.0, 0.5)]),
        ([0], [(0.0, 0.4)]),
        ([0], [(0.0, 0.6)]),
        ([0], [(0.1, 0.1), (0.0, 0.5)]),
        ([0], [(0.0, 0.5), (0.0, 0.5)]),
        ([0, 1], [(0.0, 1.0)]),
        ([EPOCH], [(0.0, 0.5)]),
    ):
        await call("scale", call.scaling(seal, *ranges))
    await call("scale", call.scaling([0], (0.0, 0.2), (0.2, 0.5)))
    await call.scaled(0)
    await call("getCurrentSegments", call.stream())
    await call("scale", call.scaling([0], (0.0, 0.5)))


async def transactions(call: Calls) -> None:
    await call("createStream", call.config())
    for lease in (0, 9_999, 600_001):
        await call("createTransaction", pb.CreateTxnRequest(streamInfo=call.stream(), lease=lease))
    first, second, third = [await call.begun() for _ in range(3)]

    async def each_of(*txns: pb.TxnId) -> None:
        for txn in txns:
            for rpc in ("checkTransactionState", "commitTransaction", "abortTransaction"):
                if rpc != "commitTransaction" or txn is not third:
                    await call(rpc, pb.TxnRequest(streamInfo=call.stream(), txnId=txn, timestamp=NONE))
            for lease in (LEASE, 600_001):
                ping = pb.PingTxnRequest(streamInfo=call.stream(), txnId=txn, lease=lease)
                await call("pingTransaction", ping)

    for lease in (LEASE, 600_001, 1):
        await call("pingTransaction", pb.PingTxnRequest(streamInfo=call.stream(), txnId=second, lease=lease))
    await call("abortTransaction", pb.TxnRequest(streamInfo=call.stream(), txnId=first))
    await call("commitTransaction", pb.TxnRequest(streamInfo=call.stream(), txnId=third, timestamp=NONE))
    for txn in (first, third):
        await call.ended(txn)
    await each_of(first, third)
    # One that is open while the stream scales makes it roll.
    late = await call.begun()
    await call("scale", call.scaling([1], (0.5, 0.75), (0.75, 1.0)))
    await call.scaled(0)
    same = await call.begun()
    for txn in (late, same):
        await call("commitTransaction", pb.TxnRequest(streamInfo=call.stream(), txnId=txn, timestamp=NONE))
        await call.ended(txn)
    await call("getCurrentSegments", call.stream())
    for epoch in range(5):
        await call("getEpochSegments", pb.GetEpochSegmentsRequest(streamInfo=call.stream(), epoch=epoch))
        await call("checkScale", pb.ScaleStatusRequest(streamInfo=call.stream(), epoch=epoch))
    await call.begun()


async def times(call: Calls) -> None:
    await call("createStream", call.config())
    for time, position in ((10, {0: 5}), (10, {0: 5}), (9, {0: 6}), (11, {0: 4}), (11, {1: 4}), (12, {0: 4})):
        note = pb.TimestampFromWriter(writer="w", position=call.cut(position), timestamp=time)
        await call("noteTimestampFromWriter", note)
    for writer in ("nobody", "w", "w"):
        await call("removeWriter", pb.RemoveWriterRequest(writer=writer, stream=call.stream()))


async def groups(call: Calls) -> None:
    await call("createStream", call.config())
    created = await call("createReaderGroup", call.group(readerGroupId=str(uuid4()), retentionType=1))
    for name in ("g", "a b", "_g", ""):
        await call("createReaderGroup", call.group(name))
        await call("createReaderGroup", call.group(name, readerGroupId=str(uuid4())))
    no_limit = call.group("h", readerGroupId=str(uuid4()))
    no_limit.maxOutstandingCheckpointRequest = 0
    await call("createReaderGroup", no_limit)
    config = created.config
    await call("getReaderGroupConfig", pb.ReaderGroupInfo(scope=call.scope, readerGroup="g"))
    await call("listSubscribers", call.stream())
    subscriber = f"{call.scope}/g"
    for cut, generation, group_id in (
        ({0: 0, 1: 0}, 0, config.readerGroupId),
        ({0: 0}, 0, config.readerGroupId),
        ({0: 0, 1: 0}, 1, config.readerGroupId),
        ({0: 0, 1: 0}, 0, str(uuid4())),
        ({9: 0}, 0, config.readerGroupId),
        ({}, 0, config.readerGroupId),
    ):
        consumed = pb.SubscriberStreamCut(
            subscriber=subscriber, generation=generation, readerGroupId=group_id, streamCut=call.cut(cut)
        )
        await call("updateSubscriberStreamCut", consumed)
    for wanted in (
        call.group(readerGroupId=config.readerGroupId),
        call.group(readerGroupId=config.readerGroupId),
        call.group(readerGroupId=str(uuid4()), generation=1),
        call.group(readerGroupId=config.readerGroupId, generation=1, retentionType=2),
    ):
        await call("updateReaderGroup", wanted)
        await call("listSubscribers", call.stream())
    for group_id in (str(uuid4()), config.readerGroupId, config.readerGroupId):
        group = pb.ReaderGroupInfo(scope=call.scope, readerGroup="g", readerGroupId=group_id)
        await call("deleteReaderGroup", group)
    await call("listSubscribers", call.stream())
    await call("listStreamsInScope", pb.StreamsInScopeRequest(scope=pb.ScopeInfo(scope=call.scope)))


async def tables(call: Calls) -> None:
    def config(name: str, partitions: int = 2, primary: int = 4) -> pb.KeyValueTableConfig:
        return pb.KeyValueTableConfig(
            scope=call.scope, kvtName=name, partitionCount=partitions, primaryKeyLength=primary,
            rolloverSizeBytes=9,
        )  # fmt: skip

    named = [config(name) for name in ("t", "t", "_t", "a b", "")]
    for wanted in [*named, config("u", partitions=0), config("v", primary=0)]:
        await call("createKeyValueTable", wanted)
    for name in ("t", "u"):
        table = pb.KeyValueTableInfo(scope=call.scope, kvtName=name)
        await call("getKeyValueTableConfiguration", table)
        await call("getCurrentSegmentsKeyValueTable", table)
    listing = pb.KVTablesInScopeRequest(scope=pb.ScopeInfo(scope=call.scope))
    await call("listKeyValueTablesInScope", listing)
    await call("deleteKeyValueTable", pb.KeyValueTableInfo(scope=call.scope, kvtName="t"))
    await call("listKeyValueTablesInScope", listing)


async def again(call: Calls) -> None:
    """Names that are used again: ids of segments go on, and transactions that have ended are remembered."""
    await call("createStream", call.config())
    txns = [await call.begun() for _ in range(3)]
    committed, aborted, _ = [
        pb.TxnRequest(streamInfo=call.stream(), txnId=txn, timestamp=NONE) for txn in txns
    ]
    await call("commitTransaction", committed)
    await call("abortTransaction", aborted)
    for txn in txns[:2]:
        await call.ended(txn)

    async def look() -> None:
        for txn in txns:
            request = pb.TxnRequest(streamInfo=call.stream(), txnId=txn, timestamp=NONE)
            for rpc in ("checkTransactionState", "commitTransaction", "abortTransaction"):
                await call(rpc, request)
            ping = pb.PingTxnRequest(streamInfo=call.stream(), txnId=txn, lease=LEASE)
            await call("pingTransaction", ping)

    await call("sealStream", call.stream())
    await call("deleteStream", call.stream())
    await look()
    await call("createStream", call.config())
    await look()
    for positions in ({0: 0, 1: 0}, {2: 0, 3: 0}, {EPOCH: 0}):
        await call("isStreamCutValid", call.cut(positions))
    table = pb.KeyValueTableInfo(scope=call.scope, kvtName="t")
    for partitions in (2, 1, 3):
        config = pb.KeyValueTableConfig(
            scope=call.scope, kvtName="t", partitionCount=partitions, primaryKeyLength=4
        )
        await call("createKeyValueTable", config)
        await call("getCurrentSegmentsKeyValueTable", table)
        await call("deleteKeyValueTable", table)
    for _ in range(2):
        group_id = str(uuid4())
        group = pb.ReaderGroupInfo(scope=call.scope, readerGroup="g", readerGroupId=group_id)
        await call("createReaderGroup", call.group(readerGroupId=group_id, retentionType=1))
        await call("getReaderGroupConfig", group)
        await call("getCurrentSegments", call.stream("_RGg"))
        await call("deleteReaderGroup", group)
        await call("listSubscribers", call.stream())


async def arguments(call: Calls) -> None:
    """Names, sizes and numbers that are refused."""
    await call("createStream", call.config())
    for length in (250, 251, 255, 256):
        name = length * "n"
        await call("createStream", call.config(name))
        await call("createReaderGroup", call.group(name, readerGroupId=str(uuid4())))
        config = pb.KeyValueTableConfig(
            scope=call.scope, kvtName=name, partitionCount=1, primaryKeyLength=256
        )
        await call("createKeyValueTable", config)
    for rpc, name in (("createStream", "x"), ("updateStream", "s")):
        await call(rpc, call.config(name, rolloverSizeBytes=-1))
    await call("createKeyValueTable", pb.KeyValueTableConfig(
        scope=call.scope, kvtName="x", partitionCount=1, primaryKeyLength=4, rolloverSizeBytes=-1,
    ))  # fmt: skip
    listing = pb.StreamsInScopeWithTagRequest(scope=pb.ScopeInfo(scope=call.scope))
    await call("listStreamsInScopeForTag", listing)
    await call("getEpochSegments", pb.GetEpochSegmentsRequest(streamInfo=call.stream(), epoch=-1))
    await call("checkScale", pb.ScaleStatusRequest(streamInfo=call.stream(), epoch=-1))
    await call("removeWriter", pb.RemoveWriterRequest(stream=call.stream()))
    await call("noteTimestampFromWriter", pb.TimestampFromWriter(position=call.cut({0: 5}), timestamp=5))
    group_id = str(uuid4())
    await call("createReaderGroup", call.group(readerGroupId=group_id, generation=5))
    await call("deleteReaderGroup", pb.ReaderGroupInfo(scope=call.scope, readerGroup="g", readerGroupId="x"))
    for scope, name in ((call.scope, ""), ("", "x")):
        group = pb.ReaderGroupInfo(scope=scope, readerGroup=name, readerGroupId=group_id)
        await call("getReaderGroupConfig", group)
        await call("deleteReaderGroup", group)
        wanted = call.group(name, readerGroupId=group_id)
        wanted.scope = scope
        await call("updateReaderGroup", wanted)
        await call("createReaderGroup", wanted)
        table = pb.KeyValueTableInfo(scope=scope, kvtName=name)
        for rpc in (
            "getKeyValueTableConfiguration", "getCurrentSegmentsKeyValueTable", "deleteKeyValueTable",
        ):  # fmt: skip
            await call(rpc, table)


async def configurations(call: Calls) -> None:
    """What the Java class of a stream's configuration does not take; and tags that come twice."""
    await call("createStream", call.config())
    nine = b"\x08\x09"
    fixed = pb.ScalingPolicy(minNumSegments=1).SerializeToString()
    many = [f"t{number}" for number in range(128)]
    wanted = [
        pb.StreamConfig(scalingPolicy=pb.ScalingPolicy.FromString(fixed + nine)),
        call.config(retentionPolicy=pb.RetentionPolicy.FromString(nine)),
    ]
    for tags in (["a", "a", "b"], ["x" * 255], ["x" * 256], many[1:], many):
        wanted.append(call.config(tags=pb.Tags(tag=tags)))
    for number, config in enumerate(wanted):
        config.streamInfo.CopyFrom(call.stream(f"s{number}"))
        await call("createStream", config)
        await call("getStreamConfiguration", config.streamInfo)
    for config in (wanted[0], wanted[4], wanted[6]):
        config.streamInfo.CopyFrom(call.stream())
        await call("updateStream", config)
    for segments in (0, -1):
        await call("createStream", call.config("none", segments))


async def group_configurations(call: Calls) -> None:
    """What the Java class of a group's configuration does not take, and ids as Java reads them."""
    for name in ("s", "t"):
        await call("createStream", call.config(name))
    number = 0

    async def create(starts: list[pb.StreamCut], ends: list[pb.StreamCut], **more: Any) -> None:
        nonlocal number
        number += 1
        wanted = call.group(f"g{number}", **{"readerGroupId": str(uuid4()), **more})
        for field, cuts in ((wanted.startingStreamCuts, starts), (wanted.endingStreamCuts, ends)):
            del field[:]
            field.extend(cuts)
        await call("createReaderGroup", wanted)
        await call("getReaderGroupConfig", pb.ReaderGroupInfo(scope=call.scope, readerGroup=f"g{number}"))

    whole, late = call.cut({}), call.cut({0: 5, 1: 5})
    await create([whole, whole], [])
    await create([whole], [call.cut({}, "t")])
    for name in ("", "a b"):
        await create([call.cut({}, name)], [])
    for end in ({0: 5, 1: 6}, {0: 0, 1: 0}, {0: -1, 1: 5}, {1: 9}, {0: 9}, {0: 9, 1: 9, 2: 0}):
        await create([late], [call.cut(end)])
    await create([call.cut({0: -1, 1: 5})], [late])
    await create([call.cut({0: -1, 1: 5})], [call.cut({0: -1, 1: 5})])
    for kind in (-1, 3):
        await create([whole], [], retentionType=kind)
    for group_id in ("0-0-0-0-1", "1-2-3-4-5", uuid4().hex, f"{{{uuid4()}}}", "x", "1-2-3-4", "g-0-0-0-1"):
        await create([whole], [], readerGroupId=group_id)


async def far_cuts(call: Calls) -> None:
    """Cuts with epochs that there are not."""
    await call("createStream", call.config())
    far = 5 * EPOCH + 7
    for each in (
        {far: 0},
        {0: 0, far: 0},
        {0: 0, 1: 0, far: 0},
        {7: 0},
        {0: 0, 7: 0},
        {-1: 0},
        {-5 * EPOCH: 0},
    ):
        await call("isStreamCutValid", call.cut(each))
        await call("truncateStream", call.cut(each))
    for segment in (-1, -5 * EPOCH):
        await call("getSegmentsBetween", pb.StreamCutRange(streamInfo=call.stream(), to={segment: 0}))
        asked = pb.SegmentId(streamInfo=call.stream(), segmentId=segment)
        for rpc in ("isSegmentValid", "getSegmentsImmediatelyFollowing"):
            await call(rpc, asked)


PROGRAMS = (
    scopes, missing, streams, updates, cuts, scales, transactions, times, groups, tables, again, arguments,
    configurations, group_configurations, far_cuts,
)  # fmt: skip


async def answers_of(server: PravegaServer, scope: str, program: Program) -> list[object]:
    async with open_channel(server) as channel:
        calls = Calls(channel, scope)
        await calls.quietly("createScope", pb.ScopeInfo(scope=scope))
        await program(calls)
    return calls.answers


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
async def test_a_controller_in_memory_answers_as_the_real_one(
    pravega_server: PravegaServer, program: Program
) -> None:
    scope = f"test-{uuid4().hex[:12]}"
    with standalone(kind="memory") as memory:
        expected = await answers_of(memory, scope, program)
    found = await answers_of(pravega_server, scope, program)
    assert len(found) == len(expected)
    assert [pair for pair in zip(found, expected, strict=True) if pair[0] != pair[1]] == []


ASKED = bytes.fromhex("0000000003 0a0173")
"""Whether the scope "s" exists, as a body has it."""


async def answer_to(server: PravegaServer, body: bytes) -> object:
    """Send a request's body, and return its status and the explanation, or the code of a reset."""
    host, port = server.controller_uri.removeprefix("tcp://").split(":")
    client = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
    client.initiate_connection()
    path = "/io.pravega.controller.stream.api.grpc.v1.ControllerService/checkScopeExists"
    kind = ("content-type", "application/grpc")
    client.send_headers(
        1, [(":method", "POST"), (":path", path), (":scheme", "http"), (":authority", "x"), kind]
    )
    client.send_data(1, body, end_stream=True)
    async with await trio.open_tcp_stream(host, int(port)) as stream:
        await stream.send_all(client.data_to_send())
        async for data in stream:
            for event in client.receive_data(data):
                if isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
                    headers = dict(event.headers)
                    if "grpc-status" in headers:
                        return headers["grpc-status"], headers.get("grpc-message")
                elif isinstance(event, h2.events.StreamReset):
                    return event.error_code
            await stream.send_all(client.data_to_send())
    raise AssertionError("the connection was closed")


@pytest.mark.parametrize(
    "body",
    [
        ASKED,
        b"",
        ASKED[:3],
        ASKED[:-1],
        ASKED * 2,
        ASKED + ASKED[:6],
        # A message that is not one of protobuf.
        ASKED[:5] + b"\xff\xff\xff",
    ],
    ids=bytes.hex,
)
async def test_a_body_that_is_not_one_message(pravega_server: PravegaServer, body: bytes) -> None:
    with standalone(kind="memory") as memory:
        expected = await answer_to(memory, body)
    assert await answer_to(pravega_server, body) == expected
