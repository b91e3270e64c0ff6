"""Steps of random programs about what scopes contain: streams, reader groups and key-value tables.

Each is done to both controllers, and compared. Names and arguments are few, so that most calls meet what
earlier ones have left, or have just missed it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any
from uuid import uuid5

import trio
from google.protobuf.message import Message

from pravega_wire.controller.mapping import NO_TIMESTAMP
from pravega_wire.proto import controller_pb2 as pb
from tests.comparing import Channel, Memory, StoreLink
from tests.integration.controller_programs import ControllerRun

_STREAMS, _GROUPS, _TABLES = "st", "gh", "kl"
_ODD_STREAMS = ("g", "k", "_RGg", "_MARKs", "", " ", "a/b", "s.#epoch.0", "é")
_ODD_NAMES = ("_x", "", "a b", "s")
_CUTS: tuple[dict[int, int], ...] = ({}, {0: 0}, {0: 0, 1: 0}, {0: -1}, {9: 4})
_FIXED = pb.ScalingPolicy.FIXED_NUM_SEGMENTS
_RATES = (pb.ScalingPolicy.BY_RATE_IN_KBYTES_PER_SEC, pb.ScalingPolicy.BY_RATE_IN_EVENTS_PER_SEC)
_RETENTIONS = (pb.RetentionPolicy.UNKNOWN, pb.RetentionPolicy.TIME, pb.RetentionPolicy.SIZE)
_TXN = pb.TxnId(highBits=0, lowBits=5)


class CatalogRun(ControllerRun):
    """A program about two scopes.

    :ivar scopes: their names; the first one exists at the beginning.
    :ivar deletion: whose turn it is to delete a scope with its contents.
    :ivar generations: of groups, as they were answered last.
    """

    def __init__(self, memory: Memory, link: StoreLink, channel: Channel, deletion: trio.Lock) -> None:
        super().__init__(memory, link, channel)
        self.scopes = (self.scope, f"{self.scope}-b")
        self.deletion = deletion
        self.generations: dict[tuple[str, str], int] = {}

    async def begin(self) -> None:
        await self.call("createScope", pb.ScopeInfo(scope=self.scope))

    async def call(self, rpc: str, request: Message) -> Any:
        """As for any program; what a call begins is also carried out."""
        found = await super().call(rpc, request)
        self.memory.settle()
        return found

    async def finish(self) -> None:
        """Compare what is left in both scopes."""
        for scope in self.scopes:
            info = pb.ScopeInfo(scope=scope)
            await self.call("checkScopeExists", info)
            await self.call("listStreamsInScope", pb.StreamsInScopeRequest(scope=info))
            await self.call("listKeyValueTablesInScope", pb.KVTablesInScopeRequest(scope=info))
            for name in _STREAMS:
                stream = pb.StreamInfo(scope=scope, stream=name)
                await self.call("getStreamConfiguration", stream)
                await self.call("listSubscribers", stream)
            for name in _GROUPS:
                group = pb.ReaderGroupInfo(scope=scope, readerGroup=name)
                await self.call("getReaderGroupConfig", group)
            for name in _TABLES:
                table = pb.KeyValueTableInfo(scope=scope, kvtName=name)
                await self.call("getKeyValueTableConfiguration", table)


Step = Callable[[CatalogRun, Random], Awaitable[object]]


def _of(rng: Random, usual: str, odd: tuple[str, ...]) -> str:
    return rng.choice(odd if rng.random() < 0.15 else tuple(usual))


def _scope(run: CatalogRun, rng: Random) -> str:
    return run.scopes[rng.random() < 0.25]


def _info(run: CatalogRun, rng: Random) -> pb.ScopeInfo:
    return pb.ScopeInfo(scope=_scope(run, rng))


# --- scopes ---------------------------------------------------------------------------------------


async def create_scope(run: CatalogRun, rng: Random) -> None:
    await run.call("createScope", _info(run, rng))


async def delete_scope(run: CatalogRun, rng: Random) -> None:
    """If it is not empty, some things in it fail from then on."""
    if rng.random() < 0.5:
        await run.call("deleteScope", _info(run, rng))


async def delete_all(run: CatalogRun, rng: Random) -> None:
    if rng.random() < 0.4:
        # As many as a controller has threads stop it (docs/protocol/unforgiving.md).
        async with run.deletion:
            scope = _info(run, rng)
            await run.call("deleteScopeRecursive", scope)
            await run.until("checkScopeExists", scope, lambda reply: not reply.exists)


# --- streams --------------------------------------------------------------------------------------


def _stream(run: CatalogRun, rng: Random) -> pb.StreamInfo:
    return pb.StreamInfo(scope=_scope(run, rng), stream=_of(rng, _STREAMS, _ODD_STREAMS))


def _config(rng: Random, stream: pb.StreamInfo) -> pb.StreamConfig:
    scaling = pb.ScalingPolicy(
        scaleType=rng.choice((_FIXED, _FIXED, _FIXED, *_RATES)), targetRate=rng.choice((1, 10)),
        scaleFactor=rng.choice((1, 2)), minNumSegments=rng.choice((1, 2, 3)),
    )  # fmt: skip
    found = pb.StreamConfig(streamInfo=stream, scalingPolicy=scaling)
    if rng.random() < 0.4:
        found.retentionPolicy.retentionType = rng.choice(_RETENTIONS)
        found.retentionPolicy.retentionParam = rng.choice((1, 5, 1 << 40))
        found.retentionPolicy.retentionMax = rng.choice((0, 9, 1 << 41))
    if rng.random() < 0.4:
        found.tags.tag.extend(rng.choices(("a", "b", "c", "a b"), k=rng.randint(0, 3)))
    if rng.random() < 0.3:
        found.timestampAggregationTimeout = rng.choice((0, 5))
    if rng.random() < 0.3:
        found.rolloverSizeBytes = rng.choice((0, 5000, 1 << 40))
    return found


async def create_stream(run: CatalogRun, rng: Random) -> None:
    await run.call("createStream", _config(rng, _stream(run, rng)))


async def update_stream(run: CatalogRun, rng: Random) -> None:
    stream = _stream(run, rng)
    await run.call("updateStream", _config(rng, stream))
    await run.call("getStreamConfiguration", stream)
    await run.call("getCurrentSegments", stream)


async def seal(run: CatalogRun, rng: Random) -> None:
    await run.call("sealStream", _stream(run, rng))


async def delete_stream(run: CatalogRun, rng: Random) -> None:
    stream = _stream(run, rng)
    if rng.random() < 0.6:
        await run.call("sealStream", stream)
    await run.call("deleteStream", stream)


async def truncate(run: CatalogRun, rng: Random) -> None:
    await run.call("truncateStream", pb.StreamCut(streamInfo=_stream(run, rng), cut=rng.choice(_CUTS)))


async def look(run: CatalogRun, rng: Random) -> None:
    """Ask for something about a stream, or the streams of a scope."""
    stream = _stream(run, rng)
    scope = pb.ScopeInfo(scope=stream.scope)
    between = pb.StreamCutRange(streamInfo=stream, to=rng.choice(_CUTS[:3]))
    getattr(between, "from").update(rng.choice(_CUTS[:3]))
    segment = pb.SegmentId(streamInfo=stream, segmentId=rng.choice((0, 1, 7, -1)))
    rpc, request = rng.choice((
        ("checkStreamExists", stream),
        ("getStreamConfiguration", stream),
        ("getCurrentSegments", stream),
        ("listSubscribers", stream),
        ("getSegments", pb.GetSegmentsRequest(streamInfo=stream, timestamp=rng.choice((0, 5, -1)))),
        ("getEpochSegments", pb.GetEpochSegmentsRequest(streamInfo=stream, epoch=rng.randrange(3))),
        ("getSegmentsBetween", between),
        ("isSegmentValid", segment),
        ("getSegmentsImmediatlyFollowing", segment),
        ("isStreamCutValid", pb.StreamCut(streamInfo=stream, cut=rng.choice(_CUTS))),
        ("listStreamsInScope", pb.StreamsInScopeRequest(scope=scope)),
        ("listStreamsInScopeForTag", pb.StreamsInScopeWithTagRequest(scope=scope, tag=rng.choice("abz"))),
        ("listCompletedTransactions", pb.ListCompletedTxnRequest(streamInfo=stream)),
        ("checkScale", pb.ScaleStatusRequest(streamInfo=stream, epoch=rng.randrange(3))),
        ("pingTransaction", pb.PingTxnRequest(streamInfo=stream, txnId=_TXN, lease=10_000)),
        ("checkScopeExists", scope),
    ))  # fmt: skip
    await run.call(rpc, request)


async def end_nothing(run: CatalogRun, rng: Random) -> None:
    """End a transaction that does not exist."""
    request = pb.TxnRequest(streamInfo=_stream(run, rng), txnId=_TXN, timestamp=NO_TIMESTAMP)
    await run.call(rng.choice(("commitTransaction", "abortTransaction", "checkTransactionState")), request)


# --- reader groups --------------------------------------------------------------------------------


def _group_id(run: CatalogRun, rng: Random, scope: str, name: str) -> str:
    own = str(uuid5(run.id, f"{scope}/{name}"))
    return own if rng.random() < 0.85 else rng.choice((str(uuid5(run.id, "another")), "", "x"))


def _generation(run: CatalogRun, rng: Random, scope: str, name: str) -> int:
    return run.generations.get((scope, name), 0) if rng.random() < 0.8 else rng.choice((0, 1, 5, -1))


def _group(run: CatalogRun, rng: Random) -> pb.ReaderGroupConfiguration:
    scope, name = _scope(run, rng), _of(rng, _GROUPS, _ODD_NAMES)
    starts = [
        pb.StreamCut(
            streamInfo=pb.StreamInfo(
                scope=scope if rng.random() < 0.9 else _scope(run, rng),
                stream=stream if rng.random() < 0.95 else "missing",
            ),
            cut=rng.choice(({}, *_CUTS[:3], _CUTS[4])),
        )
        for stream in rng.sample(_STREAMS, rng.choice((1, 1, 2, 2, 0)))
    ]
    return pb.ReaderGroupConfiguration(
        scope=scope,
        readerGroupName=name,
        groupRefreshTimeMillis=rng.choice((0, 3000, -1)),
        automaticCheckpointIntervalMillis=rng.choice((0, 30_000, -1)),
        maxOutstandingCheckpointRequest=rng.choice((3, 3, 3, 1, 0, -1)),
        retentionType=rng.choice((0, 1, 2)) if rng.random() < 0.95 else 7,
        generation=_generation(run, rng, scope, name),
        readerGroupId=_group_id(run, rng, scope, name),
        startingStreamCuts=starts,
        endingStreamCuts=[pb.StreamCut(streamInfo=each.streamInfo) for each in starts if rng.random() < 0.95],
        rolloverSizeBytes=rng.choice((0, 0, 9, -1)),
    )


async def create_group(run: CatalogRun, rng: Random) -> None:
    reply = await run.call("createReaderGroup", _group(run, rng))
    run.generations[reply.config.scope, reply.config.readerGroupName] = reply.config.generation


async def update_group(run: CatalogRun, rng: Random) -> None:
    wanted = _group(run, rng)
    reply = await run.call("updateReaderGroup", wanted)
    if reply.status == pb.UpdateReaderGroupResponse.SUCCESS:
        run.generations[wanted.scope, wanted.readerGroupName] = reply.generation
    group = pb.ReaderGroupInfo(scope=wanted.scope, readerGroup=wanted.readerGroupName)
    await run.call("getReaderGroupConfig", group)
    for stream in _STREAMS:
        await run.call("listSubscribers", pb.StreamInfo(scope=wanted.scope, stream=stream))


async def delete_group(run: CatalogRun, rng: Random) -> None:
    scope, name = _scope(run, rng), _of(rng, _GROUPS, _ODD_NAMES)
    group = pb.ReaderGroupInfo(
        scope=scope, readerGroup=name, readerGroupId=_group_id(run, rng, scope, name),
        generation=_generation(run, rng, scope, name),
    )  # fmt: skip
    await run.call("deleteReaderGroup", group)


async def find_group(run: CatalogRun, rng: Random) -> None:
    group = pb.ReaderGroupInfo(scope=_scope(run, rng), readerGroup=_of(rng, _GROUPS, _ODD_NAMES))
    await run.call("getReaderGroupConfig", group)


async def consume(run: CatalogRun, rng: Random) -> None:
    """As a group does that has read until there."""
    scope, name = _scope(run, rng), _of(rng, _GROUPS, _ODD_NAMES)
    consumed = pb.SubscriberStreamCut(
        subscriber=f"{scope}/{name}" if rng.random() < 0.7 else rng.choice(("x", "/", "")),
        generation=_generation(run, rng, scope, name),
        readerGroupId=_group_id(run, rng, scope, name),
        streamCut=pb.StreamCut(streamInfo=_stream(run, rng), cut=rng.choice(_CUTS)),
    )
    await run.call("updateSubscriberStreamCut", consumed)


# --- key-value tables -----------------------------------------------------------------------------


async def create_table(run: CatalogRun, rng: Random) -> None:
    config = pb.KeyValueTableConfig(
        scope=_scope(run, rng), kvtName=_of(rng, _TABLES, _ODD_NAMES),
        partitionCount=rng.choice((1, 2, 1, 2, 1, 2, 0, -1)),
        primaryKeyLength=rng.choice((4, 4, 8, 0, -1, 300)),
        secondaryKeyLength=rng.choice((0, 0, 4, -1)), rolloverSizeBytes=rng.choice((0, 0, 9, -1)),
    )  # fmt: skip
    await run.call("createKeyValueTable", config)


async def find_table(run: CatalogRun, rng: Random) -> None:
    table = pb.KeyValueTableInfo(scope=_scope(run, rng), kvtName=_of(rng, _TABLES, _ODD_NAMES))
    calls = ("getKeyValueTableConfiguration", "getCurrentSegmentsKeyValueTable", "deleteKeyValueTable")
    await run.call(rng.choice(calls), table)


async def list_tables(run: CatalogRun, rng: Random) -> None:
    await run.call("listKeyValueTablesInScope", pb.KVTablesInScopeRequest(scope=_info(run, rng)))


STEPS: tuple[Step, ...] = (
    create_scope, create_scope, delete_scope, delete_all, create_stream, create_stream, create_stream,
    update_stream, update_stream, seal, delete_stream, delete_stream, truncate, look, look, look, look,
    end_nothing, create_group, create_group, create_group, update_group, update_group, delete_group,
    find_group, consume, consume, create_table, create_table, find_table, find_table, list_tables,
)  # fmt: skip
