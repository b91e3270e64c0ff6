"""The server in memory: its state machines alone, and the trio client on all of it."""

from __future__ import annotations

import base64
import hmac
import json
import shlex
import signal
import socket
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, TypeVar
from uuid import UUID

import h2.config
import h2.connection
import h2.events
import hpack
import pytest
from google.protobuf.message import Message

from pravega_wire import (
    KeyValueTableConfiguration,
    PravegaConfig,
    ScalingPolicy,
    StreamConfiguration,
    open_client,
    sync,
)
from pravega_wire.cli import server as command
from pravega_wire.errors import AuthError, ServerStartError
from pravega_wire.grpc.call import CallResult, GrpcConnection
from pravega_wire.grpc.status import StatusCode
from pravega_wire.proto import controller_pb2 as pb
from pravega_wire.protocol import codec
from pravega_wire.protocol import commands as c
from pravega_wire.protocol.formats import decode_watermark
from pravega_wire.testing import schema_registry, standalone
from pravega_wire.testing.memory.auth import Auth
from pravega_wire.testing.memory.calls import Call, CallConnection
from pravega_wire.testing.memory.controller import Answer, Controller
from pravega_wire.testing.memory.peers import StorePeer
from pravega_wire.testing.memory.store import NULL, ROLLOVER, SegmentStore
from pravega_wire.testing.memory.streams import even_parts
from tests.unit.test_fetching_jars import PYTEST

M = TypeVar("M", bound=Message)

SERVICE = "/io.pravega.controller.stream.api.grpc.v1.ControllerService/"
SEGMENT = "s/t/0.#epoch.0"
WRITER = UUID(int=7)
LEASE = 10_000


class Link:
    """A connection to a store, and what came of it."""

    def __init__(self, store: SegmentStore) -> None:
        self.replies: list[Any] = []
        self.closed = False
        self._connection = store.connect(self.replies.append, self._close)
        self.lost = self._connection.lost

    def _close(self) -> None:
        self.closed = True

    def send(self, *commands: c.Command) -> list[Any]:
        """Send commands; return the replies to all of them."""
        self.replies.clear()
        for each in commands:
            self._connection.receive(each)
        return list(self.replies)


class Carried:
    """Takes what a peer sends to its client."""

    def __init__(self) -> None:
        self.ended = False

    def put(self, parts: list[bytes | memoryview]) -> None:
        """Send bytes."""

    def end(self) -> None:
        self.ended = True


class World:
    """A store and a controller, whose time is set by the test."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.store = SegmentStore(lambda: self.now, Random(0))
        self.controller = Controller(self.store, lambda: self.now, Random(0), ("store", 1))
        self.call("createScope", pb.ScopeInfo(scope="s"), pb.CreateScopeStatus)

    def ask(self, rpc: str, request: Message) -> list[Answer]:
        answers: list[Answer] = []
        self.controller.call(SERVICE + rpc, request.SerializeToString(), answers.append)
        return answers

    def call(self, rpc: str, request: Message, reply: type[M]) -> M:
        (answer,) = self.ask(rpc, request)
        assert answer.code is StatusCode.OK, answer
        return reply.FromString(answer.message)

    def wait(self, seconds: float) -> None:
        """Let time pass, step by step as others would."""
        end = self.now + seconds
        while (due := self.controller.next_due()) is not None and due <= end:
            self.now = max(self.now, due)
            self.controller.run()
        self.now = end

    def create(self, segments: int = 1, **config: Any) -> None:
        scaling = pb.ScalingPolicy(minNumSegments=segments)
        request = pb.StreamConfig(streamInfo=STREAM, scalingPolicy=scaling, **config)
        assert self.call("createStream", request, pb.CreateStreamStatus).status == 0

    def segments(self) -> list[int]:
        found = self.call("getCurrentSegments", STREAM, pb.SegmentRanges).segmentRanges
        return [each.segmentId.segmentId for each in found]

    def names(self) -> set[str]:
        """The segments that are there, but the controller's own."""
        return {each for each in self.store.segments if not each.startswith("_system/")}

    def begin(self) -> pb.TxnId:
        request = pb.CreateTxnRequest(streamInfo=STREAM, lease=LEASE)
        return self.call("createTransaction", request, pb.CreateTxnResponse).txnId

    def state(self, txn: pb.TxnId) -> str:
        request = pb.TxnRequest(streamInfo=STREAM, txnId=txn)
        return pb.TxnState.State.Name(self.call("checkTransactionState", request, pb.TxnState).state)

    def commit(self, txn: pb.TxnId) -> int:
        request = pb.TxnRequest(streamInfo=STREAM, txnId=txn, timestamp=NULL)
        return self.call("commitTransaction", request, pb.TxnStatus).status

    def scale(self, seal: Sequence[int], *ranges: tuple[float, float]) -> pb.ScaleResponse:
        new = [pb.ScaleRequest.KeyRangeEntry(start=low, end=high) for low, high in ranges]
        request = pb.ScaleRequest(streamInfo=STREAM, sealedSegments=seal, newKeyRanges=new)
        return self.call("scale", request, pb.ScaleResponse)

    def scale_status(self, epoch: int) -> str:
        request = pb.ScaleStatusRequest(streamInfo=STREAM, epoch=epoch)
        status = self.call("checkScale", request, pb.ScaleStatusResponse).status
        return pb.ScaleStatusResponse.ScaleStatus.Name(status)

    def append(self, data: bytes, segment: str = SEGMENT) -> None:
        self.store.append(self.store.segment(segment), data)

    def head(self) -> dict[int, int]:
        found = self.call("getSegments", pb.GetSegmentsRequest(streamInfo=STREAM), pb.SegmentsAtTime)
        return {each.segmentId.segmentId: each.offset for each in found.segments}


STREAM = pb.StreamInfo(scope="s", stream="t")


@pytest.fixture
def world() -> World:
    found = World()
    found.store.create(SEGMENT)
    return found


@pytest.fixture
def link(world: World) -> Link:
    return Link(world.store)


def set_up(link: Link, segment: str = SEGMENT) -> int:
    (reply,) = link.send(c.SetupAppend(5, WRITER, segment, ""))
    number: int = reply.last_event_number
    return number


def block(number: int, data: bytes = b"data") -> c.AppendBlockEnd:
    return c.AppendBlockEnd(WRITER, 0, data, 1, number, 5)


# --- the store ------------------------------------------------------------------------------------


def test_a_block_with_the_last_number_is_stored_twice_and_not_acknowledged(world: World, link: Link) -> None:
    assert set_up(link) == NULL
    assert link.send(block(4)) == [c.DataAppended(WRITER, 4, NULL, 5, 4)]
    assert link.send(block(4)) == []
    assert world.store.segment(SEGMENT).length == 8
    assert set_up(link) == 4
    assert not link.closed
    link.send(block(3))
    assert link.closed


def test_a_block_that_follows_what_another_connection_stored(world: World, link: Link) -> None:
    late = Link(world.store)
    set_up(link)
    set_up(late)
    link.send(block(1))
    assert late.send(block(2)) == [c.InvalidEventNumber(WRITER, 5, event_number=2)]
    assert late.closed
    assert world.store.segment(SEGMENT).length == 4


def test_a_refused_block_ends_the_session(world: World, link: Link) -> None:
    set_up(link)
    world.store.seal(world.store.segment(SEGMENT))
    assert link.send(block(1)) == [c.SegmentIsSealed(5, SEGMENT, offset=1)]
    link.send(block(2))
    assert link.closed


def test_a_segment_that_was_merged_is_not_forgotten_at_once(world: World, link: Link) -> None:
    source = "s/t/1.#epoch.0"
    world.store.create(source)
    set_up(link, source)
    link.send(block(1))
    merge = c.MergeSegments(1, SEGMENT, source, "")
    merged, create = c.SegmentsMerged(1, SEGMENT, source, 4), c.CreateSegment(1, source, 0, 0, "", 0)
    assert link.send(merge, merge) == [merged, merged]
    assert link.send(create) == [c.SegmentAlreadyExists(1, source)]
    assert link.send(c.SealSegment(1, source, "")) == [c.NoSuchSegment(1, source)]
    assert set_up(link, source) == 1
    link.send(block(2))
    assert link.closed
    other = Link(world.store)
    assert other.send(c.MergeSegments(1, source, SEGMENT, "")) == [c.SegmentIsSealed(1, SEGMENT)]
    assert world.store.segment(SEGMENT).sealed
    world.now += 60
    again = Link(world.store)
    assert again.send(merge) == [c.NoSuchSegment(1, source)]
    assert again.send(create) == [c.SegmentCreated(1, source)]


@pytest.mark.parametrize("touched", [False, True])
def test_segments_that_are_looked_up_are_merged_later(world: World, link: Link, touched: bool) -> None:
    first, second = "s/t/1.#epoch.0", "s/t/2.#epoch.0"
    for name in (first, second):
        world.store.create(name)
        world.append(name[4:5].encode(), name)
        # A minute without use, or another host that takes it over, is what makes a store forget one.
        world.now += 61 if name == first else 0
    link.send(c.GetStreamSegmentInfo(1, first, ""))
    if touched:
        link.send(c.GetSegmentAttribute(1, first, WRITER, ""))
    (reply,) = link.send(c.MergeSegmentsBatch(1, SEGMENT, (first, second), ""))
    assert [each.new_target_write_offset for each in reply.sources] == ([1, 2] if touched else [2, 1])
    assert world.store.segment(SEGMENT).data == (b"12" if touched else b"21")


def test_a_refused_set_up_takes_the_writer_from_its_segment(world: World, link: Link) -> None:
    set_up(link)
    missing = "s/t/9.#epoch.0"
    assert link.send(c.SetupAppend(6, WRITER, missing, "")) == [c.NoSuchSegment(6, missing)]
    link.send(block(1))
    assert link.closed
    assert world.store.segment(SEGMENT).length == 0


@pytest.mark.parametrize(
    "commands",
    [
        [c.AppendBlock(WRITER, b"data"), c.Padding(b"")],
        [c.AppendBlock(UUID(int=8), b"data"), block(1)],
        [c.AppendBlockEnd(WRITER, 0, b"", 0, 1, 5)],
        [block(-1)],
        [c.SegmentSealed(1, SEGMENT)],
        [c.ReadSegment(SEGMENT, 9, 1, "", 1)],
    ],
)
def test_what_closes_a_connection(world: World, link: Link, commands: list[c.Command]) -> None:
    set_up(link)
    if isinstance(commands[0], c.ReadSegment):
        world.store.seal(world.store.segment(SEGMENT))
    link.send(*commands)
    assert link.closed


@pytest.mark.parametrize("malformed", [b"\0\0\xff\xff\0\0\0\0", codec.HEADER.pack(c.Hello.CODE, 1) + b"\0"])
def test_commands_before_a_malformed_one_are_carried_out(world: World, malformed: bytes) -> None:
    """In whatever pieces they come: a real store takes one after the other."""
    carrier = Carried()
    peer = StorePeer(world.store, carrier)
    new = ["s/t/1.#epoch.0", "s/t/2.#epoch.0"]
    first, second = (codec.encode(c.CreateSegment(1, each, 0, 0, "", 0)) for each in new)
    peer.receive(first + malformed + second)
    assert [each in world.store.segments for each in new] == [True, False]
    assert carrier.ended


def test_reads_at_the_end_wait(world: World, link: Link) -> None:
    other = Link(world.store)
    assert link.send(c.ReadSegment(SEGMENT, 0, 100, "", 1)) == []
    set_up(other)
    other.send(block(1))
    assert link.replies == [c.SegmentRead(SEGMENT, 0, True, False, b"data", 1)]
    assert link.send(c.ReadSegment(SEGMENT, 4, 100, "", 2)) == []
    other.send(c.SealSegment(1, SEGMENT, ""))
    assert link.replies == [c.SegmentIsSealed(2, SEGMENT, offset=4)]
    assert link.send(c.ReadSegment(SEGMENT, 4, 100, "", 3)) == [
        c.SegmentRead(SEGMENT, 4, False, True, b"", 3)
    ]


def test_a_read_of_a_connection_that_was_lost_is_not_answered(world: World, link: Link) -> None:
    link.send(c.ReadSegment(SEGMENT, 0, 100, "", 1))
    link.lost()
    world.append(b"data")
    assert link.replies == []
    assert world.store.segment(SEGMENT).waiting == []


def test_a_transient_segment_lives_as_long_as_its_connection(world: World, link: Link) -> None:
    names = [link.send(c.CreateTransientSegment(1, WRITER, SEGMENT, ""))[0].segment for _ in range(3)]
    segment_type = UUID(int=(1 << 127) | 9)
    assert link.send(c.GetSegmentAttribute(1, names[0], segment_type, "")) == [c.SegmentAttribute(1, 128)]
    set_up(link, names[0])
    link.send(block(1))
    assert link.send(c.MergeSegments(1, SEGMENT, names[0], "")) == [c.SegmentsMerged(1, SEGMENT, names[0], 4)]
    # One that is empty would be deleted; that is refused, and done.
    assert link.send(c.MergeSegments(1, SEGMENT, names[1], "")) == [c.NoSuchSegment(1, names[1])]
    assert world.names() == {SEGMENT, names[2]}
    link.lost()
    assert world.names() == {SEGMENT}


@pytest.mark.parametrize("key_length", [4, 0])
def test_an_answer_of_a_table_ends_at_2_mib(world: World, link: Link, key_length: int) -> None:
    table = "s/t_kvtable/0.#epoch.0"
    link.send(c.CreateTableSegment(1, table, "", False, key_length, 0))
    for number in range(40):
        key = c.TableKey(b"k%03d" % number, NULL)
        link.send(c.UpdateTableEntries(1, table, "", (c.TableEntry(key, bytes(100_000)),), -1))
    everything = c.TableIteratorArgs(b"", b"", b"", b"")
    (found,) = link.send(c.ReadTableEntries(1, table, "", 100, everything))
    # Of a table whose keys have one length an answer has whole pages of 16.
    assert len(found.entries) == (32 if key_length else 21)
    (keys,) = link.send(c.ReadTableKeys(1, table, "", 100, everything))
    assert len(keys.keys) == 40


def test_a_table_to_which_something_else_was_appended(world: World, link: Link) -> None:
    """Its changes are not looked for until the end of time."""
    table = world.store.create_table("s/table", 0)
    world.store.append(table, struct.pack(">biiq", 0, -17, -1, NULL))
    assert link.send(c.ReadTableEntriesDelta(1, "s/table", "", 0, 10)) == []
    assert link.closed


def test_entries_of_a_table_that_is_compacted(world: World, link: Link) -> None:
    table = "s/t_kvtable/0.#epoch.0"
    link.send(c.CreateTableSegment(1, table, "", False, 4, 0))

    def put(key: bytes, value: bytes, version: int = NULL) -> Any:
        entry = c.TableEntry(c.TableKey(key, version), value)
        return link.send(c.UpdateTableEntries(1, table, "", (entry,), -1))[0]

    (kept,) = put(b"kept", b"value").updated_versions
    for _ in range(5):
        put(b"over", bytes(1 << 18))
    segment = world.store.segment(table)
    assert segment.start > 0
    args = c.TableIteratorArgs(b"", b"", b"kept", b"kept")
    (place,) = link.send(c.ReadTableKeys(1, table, "", 1, args))[0].keys
    (found,) = link.send(c.ReadTable(1, table, "", (c.TableKey(b"kept", NULL),)))[0].entries
    # A read has the version that the entry always had; a condition goes by its place.
    assert (found.value, found.key.version) == (b"value", kept)
    assert place.version > kept
    assert isinstance(put(b"kept", b"new", kept), c.TableKeyBadVersion)
    assert isinstance(put(b"kept", b"new", place.version), c.TableEntriesUpdated)


def group(**more: Any) -> pb.ReaderGroupConfiguration:
    return pb.ReaderGroupConfiguration(
        scope="s",
        readerGroupName="g",
        readerGroupId=str(UUID(int=1)),
        maxOutstandingCheckpointRequest=1,
        startingStreamCuts=[pb.StreamCut(streamInfo=STREAM)],
        **more,
    )


# --- the controller -------------------------------------------------------------------------------


@pytest.fixture
def alone() -> World:
    """A world without any segment."""
    return World()


def test_a_scale_is_made_in_steps(alone: World) -> None:
    alone.create(2)
    started = alone.scale([1], (0.5, 0.75), (0.75, 1.0))
    assert started.status == pb.ScaleResponse.STARTED
    assert alone.segments() == [0, 1]
    assert alone.scale_status(0) == "IN_PROGRESS"
    assert alone.scale([0], (0.0, 0.5)).status == pb.ScaleResponse.PRECONDITION_FAILED
    alone.wait(1)
    new = [each.segmentId.segmentId for each in started.segments]
    assert alone.segments() == [0, *new]
    assert alone.scale_status(0) == "SUCCESS"
    assert alone.store.segment("s/t/1.#epoch.0").sealed
    following = pb.SegmentId(streamInfo=STREAM, segmentId=1)
    found = alone.call("getSegmentsImmediatelyFollowing", following, pb.SuccessorResponse).segments
    assert {each.segment.segmentId.segmentId: [*each.value] for each in found} == {each: [1] for each in new}


def test_new_segments_are_numbered_in_the_order_of_a_java_map(alone: World) -> None:
    alone.create()
    bounds = [0.0, 0.3828125, 0.57421875, 1.0]
    found = alone.scale([0], *pairwise(bounds)).segments
    numbers = [each.segmentId.segmentId & 0xFFFF for each in sorted(found, key=lambda each: each.minKey)]
    assert numbers == [1, 3, 2]


def test_a_later_gap_makes_up_for_an_earlier_one(alone: World) -> None:
    alone.create()
    alone.scale([0], (0.0, 0.25), (0.25, 0.75), (0.75, 1.0))
    alone.wait(1)
    low, middle, high = alone.segments()

    def valid(cut: dict[int, int]) -> bool:
        request = pb.StreamCut(streamInfo=STREAM, cut=cut)
        return alone.call("isStreamCutValid", request, pb.StreamCutValidityResponse).response

    assert valid({low: 0, middle: 0, high: 0})
    assert not valid({low: 0, middle: 0})
    assert not valid({middle: 0, low: -1})
    assert valid({middle: 0, high: -1})


def test_a_cut_that_is_before_itself(alone: World) -> None:
    """Nothing is before the first truncation, so it begins; no store takes it, and it never ends."""
    alone.create(2)
    alone.scale([0], (0.0, 0.5))
    alone.wait(1)
    (new,) = set(alone.segments()) - {1}
    assert alone.ask("truncateStream", pb.StreamCut(streamInfo=STREAM, cut={0: 0, 1: -1, new: 0})) == []


@pytest.mark.parametrize(("start", "end"), [({9: 0}, {}), ({0: 0}, {9: 0}), ({}, {9: 0})])
def test_cuts_without_known_segments(alone: World, start: dict[int, int], end: dict[int, int]) -> None:
    alone.create()
    request = pb.StreamCutRange(streamInfo=STREAM, to=end)
    getattr(request, "from").update(start)
    (answer,) = alone.ask("getSegmentsBetween", request)
    assert answer.code is StatusCode.UNKNOWN


def test_a_commit_is_carried_out_after_it_was_answered(alone: World) -> None:
    alone.create()
    txn = alone.begin()
    name = f"s/t/0.#epoch.0#transaction.{txn.highBits:016x}{txn.lowBits & (1 << 64) - 1:016x}"
    alone.append(b"data", name)
    assert alone.commit(txn) == pb.TxnStatus.SUCCESS
    assert alone.state(txn) == "COMMITTING"
    assert alone.store.segment(SEGMENT).length == 0
    alone.wait(1)
    assert alone.state(txn) == "COMMITTED"
    assert alone.store.segment(SEGMENT).length == 4
    assert name not in alone.store.segments


def test_a_transaction_of_an_earlier_epoch_rolls(alone: World) -> None:
    alone.create()
    txn = alone.begin()
    alone.scale([0], (0.0, 0.5), (0.5, 1.0))
    alone.wait(1)
    alone.commit(txn)
    alone.wait(1)
    assert alone.state(txn) == "COMMITTED"
    assert alone.segments() == [(3 << 32) | 1, (3 << 32) | 2]
    assert alone.store.segment("s/t/0.#epoch.2").sealed
    # The duplicate has the reference epoch 1, which is what a new transaction gets.
    assert alone.begin().highBits >> 32 == 1


def test_a_scale_after_a_commit_that_waits(alone: World) -> None:
    alone.create()
    txn = alone.begin()
    alone.scale([0], (0.0, 0.5), (0.5, 1.0))
    alone.wait(1)
    alone.commit(txn)
    # The commit comes first, and gives the active segments other ids.
    old = [(1 << 32) | 1]
    assert alone.scale(old, (0.0, 0.25), (0.25, 0.5)).status == pb.ScaleResponse.PRECONDITION_FAILED
    assert alone.state(txn) == "COMMITTED"
    assert alone.scale([(3 << 32) | 1], (0.0, 0.25), (0.25, 0.5)).status == pb.ScaleResponse.STARTED
    alone.wait(1)
    assert sorted(alone.segments()) == [(3 << 32) | 2, (4 << 32) | 3, (4 << 32) | 4]


def test_a_lease_that_runs_out(alone: World) -> None:
    alone.create()
    first, second = alone.begin(), alone.begin()
    alone.wait(LEASE / 1000 - 1)
    ping = pb.PingTxnRequest(streamInfo=STREAM, txnId=second, lease=LEASE)
    assert alone.call("pingTransaction", ping, pb.PingTxnStatus).status == pb.PingTxnStatus.OK
    alone.wait(2)
    assert (alone.state(first), alone.state(second)) == ("ABORTED", "OPEN")
    assert alone.commit(first) == pb.TxnStatus.FAILURE
    alone.wait(LEASE / 1000)
    assert alone.state(second) == "ABORTED"
    assert alone.names() == {SEGMENT, "s/_MARKt/0.#epoch.0"}


@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        (pb.RetentionPolicy(retentionType="SIZE", retentionParam=150, retentionMax=2**62), 200),
        (pb.RetentionPolicy(retentionType="TIME", retentionParam=3_000_000, retentionMax=2**62), 200),
    ],
)
def test_retention(alone: World, policy: pb.RetentionPolicy, kept: int) -> None:
    alone.create(retentionPolicy=policy)
    for _ in range(5):
        alone.append(bytes(100))
        alone.wait(30 * 60)
    segment = alone.store.segment(SEGMENT)
    assert segment.length - segment.start == kept
    assert alone.head() == {0: segment.start}


def test_scaling_by_policy(alone: World) -> None:
    scaling = pb.ScalingPolicy(
        scaleType="BY_RATE_IN_KBYTES_PER_SEC", targetRate=10, scaleFactor=2, minNumSegments=1
    )
    request = pb.StreamConfig(streamInfo=STREAM, scalingPolicy=scaling)
    alone.call("createStream", request, pb.CreateStreamStatus)
    for _ in range(15 * 6):
        alone.append(bytes(10 * 1024 * 20))
        alone.wait(10)
        if len(alone.segments()) > 1:
            break
    assert alone.segments() == [(1 << 32) | 1, (1 << 32) | 2]
    # Without traffic both become cold.
    alone.wait(60 * 60)
    assert alone.segments() == [(2 << 32) | 3]
    alone.wait(60 * 60)
    assert len(alone.segments()) == 1


def test_scaling_by_policy_with_no_rate(alone: World) -> None:
    scaling = pb.ScalingPolicy(scaleType="BY_RATE_IN_KBYTES_PER_SEC", scaleFactor=3, minNumSegments=1)
    request = pb.StreamConfig(streamInfo=STREAM, scalingPolicy=scaling)
    alone.call("createStream", request, pb.CreateStreamStatus)
    for _ in range(15):
        alone.append(b"data")
        alone.wait(60)
        if len(alone.segments()) > 1:
            break
    assert len(alone.segments()) == 3


def test_watermarks(alone: World) -> None:
    alone.create(2)

    def note(writer: str, time: int, position: dict[int, int]) -> int:
        request = pb.TimestampFromWriter(
            writer=writer, timestamp=time, position=pb.StreamCut(streamInfo=STREAM, cut=position)
        )
        return alone.call("noteTimestampFromWriter", request, pb.TimestampResponse).result

    marks = alone.store.segment("s/_MARKt/0.#epoch.0")
    assert note("one", 10, {0: 5}) == note("two", 20, {0: 7}) == pb.TimestampResponse.SUCCESS
    assert marks.length == 0
    alone.wait(11)
    first = decode_watermark(bytes(marks.data[8:]))
    assert (first.lower, first.upper) == (10, 20)
    assert {each.segment_id: each.offset for each in first.positions} == {0: 7, 1: 0}
    length = marks.length
    # One writer that is not ahead is left out at once, unless the stream waits for it.
    note("one", 30, {0: 9, 1: 1})
    alone.wait(10)
    second = decode_watermark(bytes(marks.data[length + 8 :]))
    assert (second.lower, second.upper) == (20, 30)


def marked(alone: World, segments: int, cut: dict[int, int]) -> int:
    """Note a time in a new stream; return how much is written about it."""
    alone.create(segments)
    position = pb.StreamCut(streamInfo=STREAM, cut=cut)
    request = pb.TimestampFromWriter(writer="one", timestamp=10, position=position)
    alone.call("noteTimestampFromWriter", request, pb.TimestampResponse)
    alone.wait(11)
    return alone.store.segment("s/_MARKt/0.#epoch.0").length


def test_no_watermark_of_a_stream_that_ends_beside_1(alone: World) -> None:
    assert even_parts(49, 0)[-1].high < 1.0
    assert marked(alone, 49, dict.fromkeys(range(49), 5)) == 0
    assert alone.call("checkScopeExists", pb.ScopeInfo(scope="s"), pb.ExistsResponse).exists


def test_watermarks_after_a_position_that_does_not_exist(alone: World) -> None:
    assert marked(alone, 1, {7: 5}) == 0
    position = pb.StreamCut(streamInfo=STREAM, cut={0: 5})
    request = pb.TimestampFromWriter(writer="one", timestamp=20, position=position)
    assert alone.call("noteTimestampFromWriter", request, pb.TimestampResponse).result == 0
    alone.wait(11)
    assert alone.store.segment("s/_MARKt/0.#epoch.0").length > 0


def test_a_transaction_is_forgotten_after_a_day(alone: World) -> None:
    alone.create()
    txn = alone.begin()
    assert alone.commit(txn) == 0
    alone.wait(86_000)
    assert alone.state(txn) == "COMMITTED"
    alone.wait(1_000)
    assert alone.state(txn) == "UNKNOWN"


def test_retention_that_is_taken_away_and_given_again(alone: World) -> None:
    policy = pb.RetentionPolicy(retentionType="TIME", retentionParam=1, retentionMax=10**12)
    alone.create(retentionPolicy=policy)
    for each in (pb.RetentionPolicy(), policy) * 3:
        scaling = pb.ScalingPolicy(minNumSegments=1)
        config = pb.StreamConfig(streamInfo=STREAM, scalingPolicy=scaling, retentionPolicy=each)
        assert alone.call("updateStream", config, pb.UpdateStreamStatus).status == 0
    alone.wait(1_900)
    alone.append(b"data")
    alone.wait(1_700)
    assert alone.head() == {0: 0}
    alone.wait(1_900)
    assert alone.head() == {0: 4}
    stream = alone.controller._known("s", "t")
    assert stream is not None
    assert len(stream.kept_cuts) <= 2


def test_a_refused_deletion_breaks_a_scope(alone: World) -> None:
    alone.create()
    refused = alone.call("deleteScope", pb.ScopeInfo(scope="s"), pb.DeleteScopeStatus)
    assert refused.status == pb.DeleteScopeStatus.SCOPE_NOT_EMPTY
    (answer,) = alone.ask("createReaderGroup", group())
    assert answer.code is StatusCode.NOT_FOUND
    assert "/_tables/s/" in answer.text
    tagged = pb.StreamConfig(streamInfo=STREAM, tags=pb.Tags(tag=["a"]))
    assert alone.ask("updateStream", tagged) == []
    assert alone.ask("sealStream", STREAM) == []


def test_a_group_with_a_missing_stream_is_never_made(alone: World) -> None:
    assert alone.ask("createReaderGroup", group(retentionType=1)) == []


def test_a_group_with_the_id_of_a_deleted_one_is_never_made(alone: World) -> None:
    """Nor is another one with its name afterwards."""
    alone.create()
    asked = pb.ReaderGroupInfo(scope="s", readerGroup="g", readerGroupId=str(UUID(int=1)))
    for rpc, request in (("createReaderGroup", group()), ("deleteReaderGroup", asked)):
        assert [answer.code for answer in alone.ask(rpc, request)] == [StatusCode.OK]
    for number in (1, 2):
        again = group()
        again.readerGroupId = str(UUID(int=number))
        assert alone.ask("createReaderGroup", again) == []
    (answer,) = alone.ask("getReaderGroupConfig", asked)
    assert answer.code is StatusCode.NOT_FOUND


def test_calls_whose_workflows_cannot_end(alone: World) -> None:
    alone.create()
    none = pb.StreamConfig(streamInfo=STREAM, scalingPolicy=pb.ScalingPolicy(minNumSegments=-1))
    assert alone.ask("updateStream", none) == []
    assert alone.ask("sealStream", STREAM) == []
    long = pb.KeyValueTableConfig(
        scope="s", kvtName="t", partitionCount=1, primaryKeyLength=200, secondaryKeyLength=57
    )
    assert alone.ask("createKeyValueTable", long) == []
    assert len(alone.ask("createReaderGroup", group())) == 1
    assert alone.ask("deleteReaderGroup", pb.ReaderGroupInfo(scope="s", readerGroup="g")) == []


def test_an_unknown_call(alone: World) -> None:
    for path in ("getNothing", "_settle", "call"):
        (answer,) = alone.ask(path, pb.ServerRequest())
        assert answer.code is StatusCode.UNIMPLEMENTED
    every = pb.DESCRIPTOR.services_by_name["ControllerService"].methods
    assert [each.name for each in every if not hasattr(Controller, each.name)] == []


# --- calls ----------------------------------------------------------------------------------------


class Wire:
    """Both sides of a connection that carries calls."""

    def __init__(self) -> None:
        self.client = GrpcConnection("here:1", secure=False)
        self.server = CallConnection(lambda: 0.0)
        self.results: list[CallResult] = []
        self.calls: list[Call] = []

    def carry(self) -> None:
        """Carry bytes until both sides are silent."""
        while True:
            there, back = self.client.data_to_send(), self.server.data_to_send()
            if not there and not back:
                return
            if there:
                self.calls += self.server.receive_data(there)
            if back:
                self.results += self.client.receive_data(back)


def test_calls_with_messages_of_any_size() -> None:
    wire = Wire()
    big = bytes(range(256)) * 80_000
    for message in (b"", b"small", big):
        wire.client.start_call("/a/b", message)
    wire.carry()
    assert {each.path for each in wire.calls} == {"/a/b"}
    assert [each.message for each in wire.calls] == [b"", b"small", big]
    for each in wire.calls:
        wire.server.answer(each.stream_id, each.message, StatusCode.OK, "")
    wire.carry()
    assert {len(each.message) for each in wire.results} == {0, 5, len(big)}


def test_calls_that_fail_and_calls_that_are_given_up() -> None:
    wire = Wire()
    given_up = wire.client.start_call("/a/b", b"")
    wire.client.start_call("/a/b", b"")
    wire.carry()
    wire.client.cancel_call(given_up)
    wire.carry()
    for each in wire.calls:
        wire.server.answer(each.stream_id, b"", StatusCode.UNKNOWN, "ä / %")
    wire.carry()
    (result,) = wire.results
    assert (result.code, result.text) == (StatusCode.UNKNOWN, "ä / %")


def test_too_many_pings() -> None:
    wire = Wire()
    for _ in range(3):
        wire.client.ping()
        wire.carry()
    assert not wire.server.over
    wire.client.ping()
    wire.carry()
    assert wire.server.over
    assert not wire.client.accepting


@pytest.mark.parametrize("pings", [0, 4])
def test_a_client_that_leaves_while_an_answer_is_sent(pings: int) -> None:
    """By a GOAWAY, or because the server has enough of it, together with room for more of the answer."""
    server = CallConnection(lambda: 0.0)
    client = h2.connection.H2Connection()
    client.initiate_connection()
    client.send_headers(1, [(":method", "POST"), (":path", "/a/b"), (":scheme", "http"), (":authority", "x")])
    client.send_data(1, bytes(5), end_stream=True)
    assert len(server.receive_data(client.data_to_send())) == 1
    server.answer(1, bytes(100_000), StatusCode.OK, "")
    client.receive_data(server.data_to_send())
    for _ in range(pings):
        client.ping(bytes(8))
    for stream in (None, 1):
        client.increment_flow_control_window(10_000, stream)
    if not pings:
        client.close_connection()
    assert server.receive_data(client.data_to_send()) == []
    assert server.over


@pytest.mark.parametrize("flag", [1, 2])
def test_a_message_that_is_compressed(flag: int) -> None:
    """It is refused, and the connection remains."""
    server, client = CallConnection(lambda: 0.0), h2.connection.H2Connection()
    client.initiate_connection()
    for stream_id, first in ((1, flag), (3, 0)):
        client.send_headers(
            stream_id, [(":method", "POST"), (":path", "/a/b"), (":scheme", "http"), (":authority", "x")]
        )
        client.send_data(stream_id, bytes([first, 0, 0, 0, 1, 9]), end_stream=True)
    assert [each.message for each in server.receive_data(client.data_to_send())] == [b"\x09"]
    events = client.receive_data(server.data_to_send())
    assert [each.stream_id for each in events if isinstance(each, h2.events.StreamReset)] == [1]


# --- the account, and tokens ----------------------------------------------------------------------

PASSWORD = "secret:with a colon"
NOBODY = Answer(code=StatusCode.UNAUTHENTICATED, text="Authentication failed")
WRONG = Answer(code=StatusCode.UNAUTHENTICATED, repeats=True)


class SecuredWorld(World):
    """With an account, whose tokens live for 100 seconds."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.authorization = basic(f"admin:{PASSWORD}")
        self.auth = Auth(lambda: self.now, "admin", PASSWORD, key=b"key", token_seconds=100)
        self.store = SegmentStore(lambda: self.now, Random(0), auth=self.auth)
        self.controller = Controller(self.store, lambda: self.now, Random(0), ("store", 1), self.auth)
        self.call("createScope", pb.ScopeInfo(scope="s"), pb.CreateScopeStatus)
        self.create()

    def ask(self, rpc: str, request: Message) -> list[Answer]:
        answers: list[Answer] = []
        self.controller.call(SERVICE + rpc, request.SerializeToString(), answers.append, self.authorization)
        return answers

    def token(self, operation: str, stream: str = "t") -> str:
        request = pb.StreamInfo(scope="s", stream=stream, accessOperation=operation)
        return self.call("getDelegationToken", request, pb.DelegationToken).delegationToken

    def refused(self, command: Any) -> list[tuple[int, int]]:
        """Send a command; return the request id and the code of what refuses it."""
        return [(each.request_id, each.error_code) for each in Link(self.store).send(command)]


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


@pytest.fixture
def secured() -> SecuredWorld:
    return SecuredWorld()


@pytest.mark.parametrize(
    ("authorization", "answer"),
    [
        ("", NOBODY),
        ("Basic", NOBODY),
        ("Bearer x", NOBODY),
        (basic(f"admin:{PASSWORD}").replace("Basic", "basic"), NOBODY),
        (basic("admin:wrong"), WRONG),
        (basic(f"someone:{PASSWORD}"), WRONG),
        (basic("admin"), Answer(code=StatusCode.UNKNOWN)),
        ("Basic ä!", Answer(code=StatusCode.UNKNOWN)),
        (basic(f"admin:{PASSWORD}"), Answer(b"\x08\x01")),
        (basic(f"admin:{PASSWORD}").replace(" ", " \t "), Answer(b"\x08\x01")),
        (basic(f"admin:{PASSWORD}").rstrip("="), Answer(b"\x08\x01")),
    ],
)
def test_credentials(secured: SecuredWorld, authorization: str, answer: Answer) -> None:
    """As observed with a 0.13.0 controller."""
    secured.authorization = authorization
    assert secured.ask("checkScopeExists", pb.ScopeInfo(scope="s")) == [answer]
    (listed,) = secured.ask("getControllerServerList", pb.ServerRequest())
    assert listed.text == "Controller cluster not initialized" or listed == answer


def test_refused_credentials_come_back() -> None:
    wire = Wire()
    wire.client.start_call("/a/b", b"", metadata=[("authorization", "Basic x"), ("other", "1")])
    wire.carry()
    (call,) = wire.calls
    assert call.authorization == "Basic x"
    assert "Basic x" not in repr(call)
    wire.server.answer(call.stream_id, b"", StatusCode.UNAUTHENTICATED, "", repeat=True)
    sent = wire.server.data_to_send()
    # One frame of headers, after the 9 bytes of its own header.
    headers: dict[Any, Any] = dict(hpack.Decoder().decode(sent[9:]))
    assert (headers["authorization"], headers["other"], headers["grpc-status"]) == ("Basic x", "1", "16")
    assert not headers.keys() & {":path", "te", "user-agent", "grpc-message"}
    (result,) = wire.client.receive_data(sent)
    assert (result.code, result.text) == (StatusCode.UNAUTHENTICATED, "")


def test_refused_credentials_beside_a_header_without_a_name() -> None:
    server = CallConnection(lambda: 0.0)
    client = h2.connection.H2Connection(h2.config.H2Configuration(validate_outbound_headers=False))
    client.initiate_connection()
    client.send_headers(1, [(":method", "POST"), (":path", "/a/b"), (":scheme", "http"), ("", "x")])
    client.send_data(1, bytes(5), end_stream=True)
    assert len(server.receive_data(client.data_to_send())) == 1
    server.answer(1, b"", StatusCode.UNAUTHENTICATED, "", repeat=True)
    assert server.data_to_send()


def test_what_is_in_a_token(secured: SecuredWorld) -> None:
    parts = secured.token("READ").split(".")
    header, claims = (json.loads(base64.urlsafe_b64decode(each + "==")) for each in parts[:2])
    assert header == {"alg": "HS512"}
    assert claims == {
        "sub": "segmentstoreresource",
        "aud": "segmentstore",
        "iat": 1_000_000,
        "prn::/scope:s/stream:t": "READ",
        "exp": 1_000_100,
    }
    signed = ".".join(parts[:2]).encode()
    assert base64.urlsafe_b64decode(parts[2] + "==") == hmac.digest(b"key", signed, "sha512")


def test_rollover_sizes(alone: World) -> None:
    """Transactions have that of their stream; a table's segments have theirs, its configuration not."""
    alone.create(rolloverSizeBytes=77)
    alone.begin()
    table = pb.KeyValueTableConfig(
        scope="s", kvtName="k", partitionCount=1, primaryKeyLength=4, rolloverSizeBytes=55
    )
    alone.call("createKeyValueTable", table, pb.CreateKeyValueTableStatus)
    sizes = {name: alone.store.segments[name].attributes[ROLLOVER] for name in alone.names()}
    (transaction,) = (size for name, size in sizes.items() if "#transaction" in name)
    assert (sizes[SEGMENT], transaction, sizes["s/k_kvtable/0.#epoch.0"]) == (77, 77, 55)


def test_what_a_token_is_for(secured: SecuredWorld) -> None:
    read, write, other = secured.token("READ"), secured.token("WRITE"), secured.token("WRITE", "tt")
    link = Link(secured.store)
    for token in ("", "a.b.c", "no token", read + "x", secured.token("NONE"), other):
        assert secured.refused(c.ReadSegment(SEGMENT, 77, 8, token, 1)) == [(77, 0)]
        assert secured.refused(c.GetStreamSegmentInfo(1, SEGMENT, token)) == [(1, 0)]
        assert secured.refused(c.SetupAppend(1, WRITER, SEGMENT, token)) == [(1, 0)]
        assert secured.refused(c.MergeSegmentsBatch(1, SEGMENT, (), token)) == [(1, 0)]
    assert secured.refused(c.SetupAppend(1, WRITER, SEGMENT, read)) == [(1, 0)]
    assert secured.refused(c.MergeSegmentsBatch(1, SEGMENT, (), read)) == [(1, 0)]
    assert secured.refused(c.MergeSegmentsBatch(1, SEGMENT, ("s/other/0.#epoch.0",), write)) == [(1, 0)]
    assert [type(each) for each in link.send(c.SetupAppend(1, WRITER, SEGMENT, write))] == [c.AppendSetup]
    assert [type(each) for each in link.send(c.SealSegment(1, SEGMENT, read))] == [c.SegmentSealed]
    transient = c.CreateTransientSegment(1, WRITER, SEGMENT, "")
    assert [type(each) for each in link.send(transient)] == [c.SegmentCreated]


def test_a_token_that_has_expired(secured: SecuredWorld) -> None:
    token = secured.token("WRITE")
    secured.now += 100.001
    assert secured.refused(c.ReadSegment(SEGMENT, 77, 8, token, 1)) == [(77, 1)]
    assert secured.refused(c.GetStreamSegmentInfo(1, SEGMENT, token)) == [(1, 1)]
    assert secured.refused(c.GetStreamSegmentInfo(1, SEGMENT, token + "x")) == [(1, 0)]
    link = Link(secured.store)
    assert link.send(c.SetupAppend(1, WRITER, SEGMENT, token)) == []
    assert link.closed


def test_a_connection_ends_with_the_token_of_a_set_up(secured: SecuredWorld) -> None:
    assert secured.store.next_due() is None
    links = [Link(secured.store) for _ in range(3)]
    for each in links:
        assert each.send(c.SetupAppend(1, WRITER, SEGMENT, secured.token("WRITE")))
    # One has lost its session, one is gone.
    secured.store.seal(secured.store.segment(SEGMENT))
    links[1].send(block(1))
    links[2].lost()
    assert secured.store.next_due() == 1_000_100
    secured.now = 1_000_100
    secured.store.run()
    assert [each.closed for each in links] == [True, False, False]
    assert secured.store.next_due() is None


# --- all of it ------------------------------------------------------------------------------------


def test_a_port_that_is_in_use() -> None:
    with standalone(kind="memory") as server:
        with pytest.raises(ServerStartError, match="is not free"):
            with standalone(kind="memory", port=server.controller_address[1]):
                raise AssertionError


@pytest.mark.parametrize("port", [65536, -1, "9090", 1.5, True])
def test_what_is_no_port(port: Any) -> None:
    with pytest.raises(ServerStartError, match="a port must be a whole number from 0 to 65535, not"):
        with standalone(kind="memory", port=port):
            raise AssertionError


def test_a_clock_that_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a test stops the clock of its process: what a real server does goes on."""
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.0)
    with standalone(kind="memory") as server:
        config = replace(server.config("s"), operation_timeout=20.0)
        with sync.open_client(config) as client:
            client.create_scope("s")
            client.create_stream("t")
            (segment,) = client.active_segments("t")
            client.scale_stream("t", [segment.segment_id], [(0.0, 0.5), (0.5, 1.0)])
            assert len(client.active_segments("t")) == 2


def test_the_fixture_by_an_option(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "def test_it(pravega_server, pravega_scope):\n    assert pravega_server.kind == 'memory'\n"
    )
    command = [*PYTEST, "-q", "--pravega-server", "memory", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_from_the_shell() -> None:
    command = [sys.executable, "-m", "pravega_wire.testing", "memory", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            uri = process.stdout.readline().strip()
            with sync.open_client(uri, scope="demo") as client:
                assert client.create_scope("demo")
        finally:
            process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert "logs" not in said
    assert said.endswith("stopped\n")
    assert process.returncode == 0


def test_from_the_shell_with_tls_and_an_account() -> None:
    command = [sys.executable, "-m", "pravega_wire.testing", "memory", "--port", "0", "--tls", "--auth"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            found = {}
            for line in process.stderr:
                if line.startswith("  export "):
                    name, _, value = line.removeprefix("  export ").partition("=")
                    (found[name],) = shlex.split(value)
                elif "Ctrl-C" in line:
                    break
            with sync.open_client(PravegaConfig.from_defaults(env=found, scope="demo")) as client:
                assert client.create_scope("demo")
            nobody = {key: found[key] for key in ("PRAVEGA_CONTROLLER_URI", "PRAVEGA_TRUST_STORE")}
            with sync.open_client(PravegaConfig.from_defaults(env=nobody)) as client:
                with pytest.raises(AuthError):
                    client.create_scope("other")
        finally:
            process.send_signal(signal.SIGTERM)
    assert not Path(found["PRAVEGA_TRUST_STORE"]).exists()


def test_who_does_not_ask_for_http2_is_turned_away() -> None:
    """As by a real controller; its segment store takes those that ask for nothing."""
    with standalone(kind="memory", tls=True) as server:
        context = ssl.create_default_context(cafile=server.trust_store)
        with socket.create_connection(server.controller_address, 60) as plain:
            with context.wrap_socket(plain, server_hostname="127.0.0.1") as secured:
                assert secured.selected_alpn_protocol() is None
                assert secured.recv(1) == b""


def test_a_secured_server_at_an_address_is_used_with_the_settings_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those that ``pravega-wire-server`` prints."""
    with standalone(kind="memory", tls=True, auth=True) as secured:
        for name, value in command._settings(secured).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("PRAVEGA_SCOPE", "another")
        with standalone(kind="address") as server:
            assert server.config("demo") == secured.config("demo")
            assert server.config().scope is None
            with sync.open_client(server.config("demo")) as client:
                assert client.create_scope("demo")
            with pytest.raises(ServerStartError, match="without TLS and authentication"):
                with schema_registry(server=server):
                    raise AssertionError


def test_what_it_cannot_do() -> None:
    with pytest.raises(ServerStartError, match=r"version does not support kind='memory': use kind='jars'$"):
        with standalone(kind="memory", version="0.12.0"):
            raise AssertionError


@pytest.mark.parametrize("secured", [False, True], ids=["plain", "secured"])
async def test_the_client_on_a_server_in_memory(secured: bool) -> None:
    with standalone(kind="memory", tls=secured, auth=secured) as server:
        async with open_client(server.config("demo")) as client:
            await client.create_scope("demo")
            await client.create_stream("events", StreamConfiguration(scaling=ScalingPolicy.fixed(2)))
            async with client.event_writer("events") as writer:
                for number in range(10):
                    await writer.write_event(b"%d" % number, str(number))
            async with await client.begin_transaction("events") as txn:
                await txn.write_event(b"10", "10")
                await txn.commit()
            await txn.wait_committed()
            await client.scale_stream("events", [0], [(0.0, 0.25), (0.25, 0.5)])
            large = bytes(9 << 20)
            async with client.event_writer("events", large_events=True) as writer:
                await writer.write_event(large, "large")
            found = [event async for batch in client.read_events("events") for event in batch]
            assert sorted(found) == sorted([b"%d" % number for number in range(11)] + [large])

            await client.create_reader_group("group", ["events"])
            read: list[bytes] = []
            async with await client.reader_group("group") as group, group.reader("reader") as reader:
                while len(read) < 12:
                    event = await reader.read_event()
                    assert event is not None
                    read.append(event.value)
            assert sorted(read) == sorted(found)

            await client.create_key_value_table("table", KeyValueTableConfiguration(2, 4))
            table = await client.key_value_table("table")
            version = await table.put(b"keyA", b"one")
            assert await table.put(b"keyA", b"two", version=version) != version
            entry = await table.get(b"keyA")
            assert entry is not None
            assert entry.value == b"two"
