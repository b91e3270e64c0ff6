"""Steps of random programs that make calls to a controller and write to the segments of a stream.

Each is done to both servers, and compared.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from random import Random
from typing import Any
from uuid import UUID, uuid5

import trio
from google.protobuf.message import Message

from pravega_wire.controller.mapping import NO_TIMESTAMP, uuid_of
from pravega_wire.grpc.status import StatusCode
from pravega_wire.proto import controller_pb2 as pb
from pravega_wire.protocol import commands as c
from pravega_wire.values.naming import generalized_segment_id, segment_name, transaction_segment_name
from tests.comparing import Channel, Memory, StoreLink, message_of, plain
from tests.integration.store_programs import Run, block

LEASE = 600_000
STREAM = "s"
_ENDS = (pb.TxnState.COMMITTED, pb.TxnState.ABORTED)
_GROUP = UUID(int=7)


class ControllerRun(Run):
    """A program that makes calls to a controller."""

    def __init__(self, memory: Memory, link: StoreLink, channel: Channel) -> None:
        super().__init__(memory, link)
        self._channel = channel

    async def call(self, rpc: str, request: Message) -> Any:
        """Make a call; return the message of the answer. One that is never answered ends the program."""
        expected = self.memory.call(rpc, request)
        if expected is None:
            self.log.append(f"{rpc}({request}) is never answered")
            raise NeverAnsweredError
        self.log.append(f"{rpc}({request})\n    -> {plain(rpc, expected)}")
        found = await self._channel.call(rpc, request)
        if plain(rpc, found) != plain(rpc, expected):
            raise self.difference(plain(rpc, found))
        return message_of(rpc, expected)

    async def until(self, rpc: str, request: Message, done: Callable[[Any], bool]) -> None:
        """Wait until both servers have carried out what was begun."""
        self.memory.settle()
        while not done(message_of(rpc, await self._channel.call(rpc, request))):
            # It does not signal that, so this asks now and then.
            await trio.sleep(0.02)


class StreamRun(ControllerRun):
    """A program about one stream.

    :ivar ids: ids of segments that there are or were, and where their keys begin.
    :ivar txns: ids of transactions.
    """

    def __init__(self, memory: Memory, link: StoreLink, channel: Channel) -> None:
        super().__init__(memory, link, channel)
        self.names = []
        self.not_made = set()
        self.ids: dict[int, float] = {}
        self.txns: list[pb.TxnId] = []
        self.current: list[pb.SegmentRange] = []

    @property
    def stream(self) -> pb.StreamInfo:
        return pb.StreamInfo(scope=self.scope, stream=STREAM)

    def config(self, segments: int, **more: Any) -> pb.StreamConfig:
        policy = pb.ScalingPolicy(minNumSegments=segments)
        return pb.StreamConfig(streamInfo=self.stream, scalingPolicy=policy, **more)

    def cut(self, positions: dict[int, int]) -> pb.StreamCut:
        return pb.StreamCut(streamInfo=self.stream, cut=positions)

    async def begin(self) -> None:
        await self.call("createScope", pb.ScopeInfo(scope=self.scope))
        await self.call("createStream", self.config(2, rolloverSizeBytes=77_777))
        await self.look()

    async def look(self) -> None:
        """Ask for the segments that are active now."""
        reply = await self.call("getCurrentSegments", self.stream)
        self.current = sorted(reply.segmentRanges, key=lambda each: each.minKey)
        self._note(self.current)

    def _note(self, ranges: Iterable[pb.SegmentRange]) -> None:
        for each in ranges:
            segment = each.segmentId.segmentId
            if segment not in self.ids:
                self.ids[segment] = each.minKey
                self.names.append(segment_name(self.scope, STREAM, segment))

    async def begin_transaction(self) -> None:
        """Its id is the real one's."""
        request = pb.CreateTxnRequest(streamInfo=self.stream, lease=LEASE)
        found = await self._channel.call("createTransaction", request)
        reply: pb.CreateTxnResponse = message_of("createTransaction", found)
        if found.code is StatusCode.OK:
            self.memory.random.next = uuid_of(reply.txnId).int & (1 << 96) - 1
        expected = self.memory.call("createTransaction", request)
        self.memory.random.next = None
        self.log.append(f"createTransaction\n    -> {plain('createTransaction', expected)}")
        if plain("createTransaction", found) != plain("createTransaction", expected):
            raise self.difference(plain("createTransaction", found))
        if found.code is StatusCode.OK:
            self.txns.append(reply.txnId)
            txn = uuid_of(reply.txnId)
            for each in self.current:
                parent = segment_name(
                    self.scope, STREAM, generalized_segment_id(each.segmentId.segmentId, txn)
                )
                self.names.append(transaction_segment_name(parent, txn))

    async def finish(self) -> None:
        """Compare what is left: of the stream, and of its segments."""
        await self.call("getStreamConfiguration", self.stream)
        await self.look()
        await self.call("getSegments", pb.GetSegmentsRequest(streamInfo=self.stream))
        await self.call("listSubscribers", self.stream)
        epoch = 0
        while True:
            request = pb.GetEpochSegmentsRequest(streamInfo=self.stream, epoch=epoch)
            reply = await self.call("getEpochSegments", request)
            if not reply.segmentRanges:
                break
            self._note(reply.segmentRanges)
            epoch += 1
        for txn in self.txns:
            await self.call("checkTransactionState", pb.TxnRequest(streamInfo=self.stream, txnId=txn))
        listing = pb.StreamsInScopeRequest(scope=pb.ScopeInfo(scope=self.scope))
        await self.call("listStreamsInScope", listing)
        # What was deleted or merged is gone for all, but how a store says so may differ for a while.
        self.names = [each for each in self.names if each in self.memory.store.segments]
        await super().finish()


class NeverAnsweredError(Exception):
    """A real server would never answer a call: the program ends here."""


Step = Callable[[StreamRun, Random], Awaitable[object]]


# --- segments -------------------------------------------------------------------------------------


def _there(run: StreamRun, rng: Random) -> str | None:
    """Choose a segment that is there."""
    names = [each for each in run.names if each in run.memory.store.segments]
    return rng.choice(names) if names else None


async def write(run: StreamRun, rng: Random) -> None:
    """As a writer does that was told of a segment, or of a transaction."""
    name = _there(run, rng)
    if name is None:
        return
    writer = uuid5(run.id, f"{name} {rng.randrange(2)}")
    replies = await run.send(c.SetupAppend(5, writer, name, ""))
    last = [each.last_event_number for each in replies if isinstance(each, c.AppendSetup)]
    for number in range(rng.choice((1, 1, 2))):
        data = rng.randbytes(rng.choice((1, 8, 60)))
        after = max(last[0], 0) if last else 0
        if None in await run.send(block(writer, after + number + 1, data)):
            break
        found = run.memory.store.segments.get(name)
        if found is None or found.sealed:
            break


async def read(run: StreamRun, rng: Random) -> None:
    name = _there(run, rng)
    if name is None:
        return
    found = run.memory.store.segments[name]
    if found.length > found.start or found.sealed:
        await run.send(c.ReadSegment(name, found.start, 1000, "", 3))


# --- cuts and epochs ------------------------------------------------------------------------------


def _cut(run: StreamRun, rng: Random) -> dict[int, int]:
    whole = [each.segmentId.segmentId for each in run.current]
    match rng.randrange(20) // 5 if rng.random() < 0.95 else 9:
        case 9:
            ids = []
        case 0:
            ids = whole
        case 1:
            ids = list(run.ids)[: rng.randint(1, 3)]
        case _:
            ids = rng.sample(list(run.ids), rng.randint(1, min(4, len(run.ids))))
    found: dict[int, int] = {}
    for each in ids:
        offset = rng.choice((0, 0, 0, 9, 16, -1))
        # With two that begin at the same key the answer depends on when they were created.
        if offset < 0 or all(run.ids[each] != run.ids[other] for other, at in found.items() if at >= 0):
            found[each] = offset
    return found


async def check_cut(run: StreamRun, rng: Random) -> None:
    await run.call("isStreamCutValid", run.cut(_cut(run, rng)))


async def between(run: StreamRun, rng: Random) -> None:
    asked = pb.StreamCutRange(streamInfo=run.stream, to=rng.choice((_cut(run, rng), {})))
    getattr(asked, "from").update(rng.choice((_cut(run, rng), {})))
    await run.call("getSegmentsBetween", asked)


async def follow(run: StreamRun, rng: Random) -> None:
    segment = pb.SegmentId(streamInfo=run.stream, segmentId=rng.choice((*run.ids, 99)))
    await run.call(rng.choice(("getSegmentsImmediatelyFollowing", "isSegmentValid")), segment)


async def check_scale(run: StreamRun, rng: Random) -> None:
    await run.call("checkScale", pb.ScaleStatusRequest(streamInfo=run.stream, epoch=rng.randrange(5)))


async def truncate(run: StreamRun, rng: Random) -> None:
    await run.call("truncateStream", run.cut(_cut(run, rng)))
    await run.call("getSegments", pb.GetSegmentsRequest(streamInfo=run.stream))


async def scale(run: StreamRun, rng: Random) -> None:
    if not run.current:
        await run.call("scale", _scaling(run, list(run.ids)[:1], [(0.0, 0.5)]))
        return
    first = rng.randrange(len(run.current))
    together = run.current[first : first + rng.randint(1, 2)]
    low, high = together[0].minKey, together[-1].maxKey
    middle = low + (high - low) * rng.choice((0.5, 0.25))
    ranges = [(low, high)] if rng.random() < 0.4 else [(low, middle), (middle, high)]
    seal = [each.segmentId.segmentId for each in together]
    if rng.random() < 0.2:
        seal = [rng.choice(list(run.ids))]
    answer = await run.call("scale", _scaling(run, seal, ranges))
    if answer.status == pb.ScaleResponse.STARTED:
        status = pb.ScaleStatusRequest(streamInfo=run.stream, epoch=answer.epoch)
        await run.until(
            "checkScale", status, lambda reply: reply.status != pb.ScaleStatusResponse.IN_PROGRESS
        )
        await run.look()


def _scaling(run: StreamRun, seal: list[int], ranges: list[tuple[float, float]]) -> pb.ScaleRequest:
    new = [pb.ScaleRequest.KeyRangeEntry(start=low, end=high) for low, high in ranges]
    return pb.ScaleRequest(streamInfo=run.stream, sealedSegments=seal, newKeyRanges=new)


# --- transactions ---------------------------------------------------------------------------------


async def begin_transaction(run: StreamRun, rng: Random) -> None:
    await run.begin_transaction()


def _txn(run: StreamRun, rng: Random) -> pb.TxnId:
    return rng.choice(run.txns or [pb.TxnId(highBits=0, lowBits=5)])


async def end_transaction(run: StreamRun, rng: Random) -> None:
    txn = _txn(run, rng)
    request = pb.TxnRequest(streamInfo=run.stream, txnId=txn, timestamp=NO_TIMESTAMP)
    await run.call(rng.choice(("commitTransaction", "commitTransaction", "abortTransaction")), request)
    if run.txns:
        await run.until("checkTransactionState", request, lambda reply: reply.state in _ENDS)
    await run.look()


async def ping(run: StreamRun, rng: Random) -> None:
    lease = rng.choice((LEASE, 600_001, 60_000))
    await run.call(
        "pingTransaction", pb.PingTxnRequest(streamInfo=run.stream, txnId=_txn(run, rng), lease=lease)
    )


# --- the stream -----------------------------------------------------------------------------------


async def update(run: StreamRun, rng: Random) -> None:
    tags = pb.Tags(tag=rng.sample("abc", rng.randint(0, 2)))
    await run.call("updateStream", run.config(rng.choice((1, 2, 2, 3)), tags=tags))
    await run.look()


async def seal(run: StreamRun, rng: Random) -> None:
    if rng.random() < 0.4:
        await run.call("sealStream", run.stream)
        await run.look()


async def group(run: StreamRun, rng: Random) -> None:
    """A group that subscribes to the stream."""
    cuts = [run.cut({})]
    config = pb.ReaderGroupConfiguration(
        scope=run.scope, readerGroupName="g", readerGroupId=str(uuid5(_GROUP, run.scope)),
        startingStreamCuts=cuts, endingStreamCuts=cuts, maxOutstandingCheckpointRequest=3,
        retentionType=rng.choice((0, 1, 2)),
    )  # fmt: skip
    await run.call("createReaderGroup", config)
    consumed = pb.SubscriberStreamCut(
        subscriber=f"{run.scope}/g", readerGroupId=config.readerGroupId, streamCut=run.cut(_cut(run, rng))
    )
    await run.call("updateSubscriberStreamCut", consumed)


STEPS: tuple[Step, ...] = (
    write, write, write, write, write, read, read, check_cut, between, between, follow, check_scale, truncate,
    scale, scale, begin_transaction, begin_transaction, end_transaction, end_transaction, ping, update, seal,
    group,
)  # fmt: skip
