"""Arguments of the wrong type or size are refused before anything is sent: there is no server here."""

from __future__ import annotations

import asyncio
import base64
import copy
import enum
import gzip
import pickle
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, cast
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest
import trio

from pravega_wire import (
    Ack,
    BoundaryIndex,
    Checkpoint,
    EventPointer,
    KeyValueTableConfiguration,
    KeyValueVersion,
    Position,
    PravegaClient,
    PravegaConfig,
    ReaderGroupConfig,
    RetentionPolicy,
    Revision,
    ScalingPolicy,
    ScopedStream,
    SegmentRange,
    StateFormat,
    StreamConfiguration,
    StreamCut,
    StreamLayout,
    VersionedSerializer,
    VersionedUnionSerializer,
    Watermark,
    WatermarkAssigner,
    aio,
    open_client,
    sync,
)
from pravega_wire.archive import Manifest
from pravega_wire.cli.work.points import parse_point
from pravega_wire.errors import (
    ArgumentTypeError,
    ClosedError,
    EncodeError,
    InvalidArgumentError,
    InvalidStreamCutError,
)
from pravega_wire.ingest import FileIngester, FixedCount, SequenceSource
from pravega_wire.protocol.append import settle
from pravega_wire.schemas.debezium import RowSerializer, latest_rows
from pravega_wire.serializers import BytesSerializer, FunctionSerializer, Utf8Serializer
from pravega_wire.stream.arrow import key_column
from pravega_wire.stream.routing import check_lengths
from pravega_wire.support.checks import check_text
from pravega_wire.transport.pool import ConnectionPool
from pravega_wire.values.cuts import LayoutSegment
from spark_adapter.options.read import columns_of, decode_ranges
from spark_adapter.schemas import ChangeRows

URI = "tcp://127.0.0.1:1"
S = ScopedStream("s", "t")
CUT = StreamCut(S, {0: 5})
LAYOUT = StreamLayout(S, (LayoutSegment(0, 0.0, 1.0, 9),))
NAN, INF = float("nan"), float("inf")
HUGE_NUMBERS: tuple[object, ...] = (10**400, 10**5000)
"""Numbers that are too large for a float; Python does not even write out the second one."""
COUNTS: tuple[object, ...] = ("4", 1.5, True, False, None, b"4", 0, -1, 2**70, *HUGE_NUMBERS)
SECONDS: tuple[object, ...] = ("5", True, NAN, -1, -INF, *HUGE_NUMBERS)

Call = Callable[[PravegaClient, Any], object]


async def _note(client: PravegaClient, value: Any) -> None:
    await client.event_writer("t").note_time(value)


def _released() -> memoryview:
    view = memoryview(b"x")
    view.release()
    return view


class _Unwritable:
    def __repr__(self) -> str:
        raise RuntimeError("an object that its session no longer knows")


ONE: tuple[object, ...] = ("abc", b"abc", bytearray(b"abc"), memoryview(b"abc"), np.int64(5), np.float64(5))
"""Things that are never meant as several; strings and bytes can be iterated over, and those of numpy have
``__getitem__``."""

EVENTS: tuple[object, ...] = (None, 5, NAN, object(), *ONE)


async def _receive(client: PravegaClient, value: Any) -> None:
    await client.byte_stream_reader("t").receive_some(value)


# What is called, with the name that the message has and the values that are refused.
CALLS: dict[str, tuple[Call, str, Iterable[object]]] = {
    "create_stream": (
        lambda c, v: c.create_stream("t", v),
        "number of segments, where no StreamConfiguration is given, must be",
        (*COUNTS, 2**31, [1], {}, ScalingPolicy.fixed(2)),
    ),
    "update_stream": (lambda c, v: c.update_stream("t", v), "StreamConfiguration", (4, None, "4")),
    "name": (
        lambda c, v: c.seal_stream(v),
        "a stream name must be a string",
        (None, 5, *HUGE_NUMBERS, _Unwritable()),
    ),
    "scope to list": (
        lambda c, v: c.list_streams(v),
        "the scope name must be a string, not",
        (0, False, b"", [], np.array([1, 2])),
    ),
    "name of a writer's stream": (
        lambda c, v: c.event_writer(v),
        "a stream name must be a string",
        (None, 5, *HUGE_NUMBERS),
    ),
    "name of a revisioned stream": (
        lambda c, v: c.revisioned_stream(v),
        "a stream name must be a string",
        (None, 5, *HUGE_NUMBERS),
    ),
    "time of a cut": (
        lambda c, v: c.cut_at("t", v),
        "the time for stream s/t must be",
        ("5", 1.5, True, None, 2**63, *HUGE_NUMBERS),
    ),
    "delete_scope": (lambda c, v: c.delete_scope("s", recursive=v), "recursive", ("false", 0, 1, None)),
    "delete_stream": (lambda c, v: c.delete_stream("t", seal=v), "seal", ("false", 0, 1, None)),
    "list_streams": (lambda c, v: c.list_streams(internal=v), "internal", ("false", 0, None)),
    "tag": (lambda c, v: c.list_streams(tag=v), "tag", ("", 5, "\ud800")),
    "epoch": (lambda c, v: c.epoch_segments("t", v), "epoch", ("0", 1.5, True, -1, 2**31)),
    "successors": (lambda c, v: c.successors("t", v), "segment_id", ("0", 1.5, True, -1, 2**63)),
    "segment_length": (lambda c, v: c.segment_length("t", v), "segment_id", ("0", 1.5, True, -1, 2**63)),
    "scaled segments": (
        lambda c, v: c.scale_stream("t", [v], [(0.0, 1.0)]),
        "segment's id",
        ("0", 1.5, True, -1),
    ),
    "scaled ranges": (
        lambda c, v: c.scale_stream("t", [0], [v]),
        "stream s/t",
        (("0", "1"), (0.0,), (NAN, 1.0), (0.0, NAN), (0.0, INF), (False, True), 0.5, None, _Unwritable()),
    ),
    "begin_transaction": (lambda c, v: c.begin_transaction("t", lease=v), "lease", (*COUNTS, NAN, 1)),
    "transaction": (lambda c, v: c.resume_transaction("t", uuid4(), lease=v), "lease", (*COUNTS, NAN, 1)),
    "ping": (lambda c, v: c.ping_transaction("t", uuid4(), lease=v), "lease", (*COUNTS, NAN, 1)),
    "transaction id": (lambda c, v: c.commit_transaction("t", v), "transaction", (str(uuid4()), 5, None)),
    "staged transaction id": (
        lambda c, v: c.staging("t", v).writer(),
        "transaction",
        (str(uuid4()), 5, None),
    ),
    "staging id": (lambda c, v: c.staging("t", uuid4()).writer(v), "staging_id", (str(uuid4()), 5)),
    "commit time": (
        lambda c, v: c.commit_transaction("t", uuid4(), timestamp=v),
        "timestamp",
        ("1", 1.5, True, NAN, 2**63, -(2**63)),
    ),
    "writer of a commit time": (
        lambda c, v: c.commit_transaction("t", uuid4(), timestamp=5, writer_id=v),
        "writer_id",
        (str(uuid4()), "", 0, 5, b"", "\ud800"),
    ),
    "note_time": (_note, "timestamp", ("1", 1.5, True, NAN, None, 2**63, -(2**63))),
    "max_outstanding_bytes": (
        lambda c, v: c.event_writer("t", max_outstanding_bytes=v),
        "max_outstanding_bytes",
        (*COUNTS, NAN),
    ),
    "note_time_every": (
        lambda c, v: c.event_writer("t", note_time_every=v),
        "note_time_every",
        (*SECONDS, 0, INF),
    ),
    "large_events": (lambda c, v: c.event_writer("t", large_events=v), "large_events", ("false", 1, None)),
    "writer_id": (lambda c, v: c.resumable_writer("t", v), "writer_id", (str(uuid4()), None)),
    "first_event_number": (
        lambda c, v: c.resumable_writer("t", uuid4(), first_event_number=v),
        "first_event_number",
        ("1", 1.5, True, 0, -1, 2**63),
    ),
    "key of a resumable writer": (
        lambda c, v: c.resumable_writer("t", uuid4()).last_stored_of(v),
        "routing key",
        (None, 5, b"k"),
    ),
    "byte writer": (
        lambda c, v: c.byte_stream_writer("t", max_outstanding_bytes=v),
        "max_outstanding_bytes",
        COUNTS,
    ),
    "byte reader": (lambda c, v: c.byte_stream_reader("t", v), "start", ("0", 1.5, True, -1, None)),
    "follow": (lambda c, v: c.byte_stream_reader("t", follow=v), "follow", ("false", 0, None)),
    "read": (
        lambda c, v: c.byte_stream_reader("t").read(v),
        "max_bytes",
        (None, "1", 1.5, True, 0, -1, int, np.array([1, 2])),
    ),
    "receive_some": (_receive, "max_bytes", ("1", 1.5, True, 0, -1)),
    "at_once": (lambda c, v: c.read_ranges([], at_once=v), "at_once", COUNTS),
    "max_buffered_bytes": (
        lambda c, v: c.read_ranges([], max_buffered_bytes=v),
        "max_buffered_bytes",
        COUNTS,
    ),
    "ordered": (lambda c, v: c.read_ranges([], ordered=v), "ordered", ("false", 0, None)),
    "on_truncated": (
        lambda c, v: c.segment_ranges("t", on_truncated=v),
        "on_truncated must be 'raise' or 'skip_to_head', not",
        (None, "", *HUGE_NUMBERS, np.array([1, 2]), _Unwritable()),
    ),
    "max_range_bytes": (
        lambda c, v: c.segment_ranges("t", max_range_bytes=v),
        "max_range_bytes",
        ("1", 1.5, True, 0, -1),
    ),
    "split_range": (lambda c, v: c.split_range(SegmentRange(S, 0, 0, 9), v), "max_bytes", COUNTS),
    "leading bytes": (
        lambda c, v: c.leading_parts([(SegmentRange(S, 0, 0, 9), v, None)]),
        "max_bytes",
        ("4", 1.5, True, -1),
    ),
    "leading events": (
        lambda c, v: c.leading_parts([(SegmentRange(S, 0, 0, 9), None, v)]),
        "max_events",
        ("4", 1.5, True, 0, -1),
    ),
    "spacing": (lambda c, v: c.boundary_index(SegmentRange(S, 0, 0, 9), spacing=v), "spacing", COUNTS),
    "partitions": (
        lambda c, v: c.create_key_value_table("t", KeyValueTableConfiguration(v, 4)),
        "partition_count",
        (*COUNTS, 2**31),
    ),
    "key length": (
        lambda c, v: c.create_key_value_table("t", KeyValueTableConfiguration(1, v)),
        "primary_key_length",
        COUNTS,
    ),
    "events": (lambda c, v: c.event_writer("t").write_events(v), "^events for the writer of s/t", EVENTS),
    "batch": (lambda c, v: c.event_writer("t").write_batch(v), "^events for the writer of s/t", EVENTS),
    "routing_keys": (
        lambda c, v: c.event_writer("t").write_events([b"x"], v),
        "^routing_keys for the writer of s/t",
        (5, NAN, object(), *ONE[1:]),
    ),
    "texts": (
        lambda c, v: c.event_writer("t", serializer=Utf8Serializer()).write_events(v),
        "^events for the writer of s/t must be an iterable, not",
        ONE,
    ),
    "batch of texts": (
        lambda c, v: c.event_writer("t", serializer=Utf8Serializer()).write_batch(v),
        "^events for the writer of s/t must be an iterable, not",
        ONE,
    ),
    "numbered texts": (
        lambda c, v: c.resumable_writer("t", uuid4(), serializer=Utf8Serializer()).write_events(v),
        "^events for the writer of s/t must be an iterable, not",
        ONE,
    ),
    "segments to seal": (
        lambda c, v: c.scale_stream("t", v, [(0.0, 1.0)]),
        "^seal",
        (*ONE, 5),
    ),
    "new ranges": (lambda c, v: c.scale_stream("t", [0], v), "^new_ranges", (*ONE, 5)),
    "merged": (lambda c, v: c.staging("t", uuid4()).merge(v), "^staging_ids", (*ONE, 5)),
    "deleted": (lambda c, v: c.staging("t", uuid4()).delete(v), "^staging_ids", (*ONE, 5)),
    "each merged": (
        lambda c, v: c.staging("t", uuid4()).merge([v]),
        "^each of staging_ids must be a UUID",
        (str(uuid4()), None, 5, NAN),
    ),
    "each deleted": (
        lambda c, v: c.staging("t", uuid4()).delete([v]),
        "^each of staging_ids must be a UUID",
        (str(uuid4()), None, 5, NAN),
    ),
    "ranges": (lambda c, v: c.read_ranges(v), "^ranges", (*ONE, 5)),
    "asked": (lambda c, v: c.leading_parts(v), "^asked", (*ONE, 5)),
    "a group's streams": (
        lambda c, v: c.create_reader_group("g", v),
        "^the streams of a reader group",
        (*ONE[1:], 5, None),
    ),
    "routing_keys of an array": (
        lambda c, v: c.event_writer("t").write_events(pa.array([b"x"]), v),
        "^routing_keys for the writer of s/t",
        (0, 5, NAN, object(), *ONE[1:]),
    ),
    "numbered events": (
        lambda c, v: c.resumable_writer("t", uuid4()).write_events(v),
        "^events for the writer of s/t",
        EVENTS,
    ),
    "numbered batch": (
        lambda c, v: c.resumable_writer("t", uuid4()).write_batch(v),
        "^events for the writer of s/t",
        EVENTS,
    ),
    "memoryview": (
        lambda c, v: c.event_writer("t").write_event(v),
        "an event for the writer of s/t is a memoryview that has been released",
        (_released(),),
    ),
    "partitioner": (
        lambda c, v: c.event_writer("t", partitioner=v),
        "^the partitioner of the writer of s/t must be a function",
        (None, 5, "hash"),
    ),
    "partitioner's result": (
        lambda c, v: c.resumable_writer("t", uuid4(), partitioner=lambda _: v).last_stored_of("key"),
        "^the partitioner of the writer of s/t must return a position from 0 to less than 1, not",
        (None, "x", "0.5", NAN, INF, 1, 7, -3, 10**400, 1j),
    ),
    "truncate": (
        lambda c, v: c.byte_stream_writer("t").truncate(v),
        "offset in byte stream s/t",
        ("1", 1.5, True, None, -1, 2**63),
    ),
    "table values": (lambda c, v: c.key_value_table("t", v), "s/t: values must be a serializer", (5, "utf8")),
    "table keys": (
        lambda c, v: c.key_value_table("t", BytesSerializer(), primary_keys=v),
        "s/t: primary_keys must be a serializer",
        (5, str),
    ),
    "revisioned serializer": (
        lambda c, v: c.revisioned_stream("t", v),
        "s/t: serializer must be a serializer",
        (5, "utf8"),
    ),
    "address map": (
        lambda c, v: open_client(c.config, address_map=v).__aenter__(),
        "address_map must be a function",
        ("x", 5, {}),
    ),
    "scope to delete": (lambda c, v: c.delete_scope(v), "scope must be a non-empty string", (None, 5, "")),
    "scope": (lambda c, v: c.scope_exists(v), "scope must be a non-empty string", (None, 5, "")),
    "cut to truncate at": (
        lambda c, v: c.truncate_stream("t", v),
        "cut must be of the class StreamCut",
        (None, "", "earliest", "latest", CUT.to_text(), 5),
    ),
    "pointer": (
        lambda c, v: c.fetch_event(v),
        "pointer must be of the class EventPointer",
        (None, 5, "s/t/0.#epoch.0:0-9"),
    ),
    "range to read": (lambda c, v: c.read_range(v), "segment_range must be", (None, 5, "s/t")),
    "range to divide": (lambda c, v: c.split_range(v, 9), "segment_range must be", (None, 5, "s/t")),
    "range to search": (lambda c, v: c.boundary_index(v), "segment_range must be", (None, 5, "s/t")),
    "range to sum up": (lambda c, v: c.range_crc32(v), "segment_range must be", (None, 5, "s/t")),
    "each range": (lambda c, v: c.read_ranges([v]), "each of ranges must be", (None, 5, "s/t")),
    "known boundaries": (
        lambda c, v: c.boundary_index(SegmentRange(S, 0, 0, 9), known=v),
        "known must be of the class BoundaryIndex",
        (5, "x"),
    ),
    "each that is asked": (
        lambda c, v: c.leading_parts([v]),
        "asked",
        (None, 5, (SegmentRange(S, 0, 0, 9), 5), (5, None, None)),
    ),
    "table": (
        lambda c, v: c.create_key_value_table("t", v),
        "key-value table s/t: config must be",
        (None, 5, {}),
    ),
    "format of a state": (
        lambda c, v: c.state_synchronizer("t", v),
        "state on s/t: initial_serializer of the format must be a serializer",
        (None, 5, BytesSerializer()),
    ),
    "sole_writer": (lambda c, v: c.key_value_table("t", sole_writer=v), "sole_writer", ("false", 0, None)),
}


@pytest.mark.parametrize("call", CALLS)
async def test_a_call_refuses_what_it_cannot_use(call: str) -> None:
    function, name, values = CALLS[call]

    # Anything that is sent ends with another error.
    config = PravegaConfig(controller_uri="tcp://127.0.0.1:1", scope="s", operation_timeout=1)
    async with open_client(config) as client:
        for value in values:
            with pytest.raises(InvalidArgumentError, match=name):
                result = function(client, value)
                if isinstance(result, Awaitable):
                    await result
                raise AssertionError(f"{value!r} was taken")


OF_WRITERS = [
    "events", "batch", "texts", "batch of texts", "numbered texts",
    "routing_keys", "routing_keys of an array", "numbered events", "numbered batch",
    "memoryview", "partitioner", "partitioner's result",
]  # fmt: skip
"""Those of the above that the facades read in threads of their own."""


@pytest.mark.parametrize("call", OF_WRITERS)
async def test_the_facades_refuse_it_as_well(call: str) -> None:
    function, name, values = CALLS[call]
    name = name.replace("s/t", "(s/)?t")
    config = PravegaConfig(controller_uri="tcp://127.0.0.1:1", scope="s", operation_timeout=1)

    def blocking() -> None:
        with sync.open_client(config) as client:
            for value in values:
                with pytest.raises(InvalidArgumentError, match=name):
                    function(cast("Any", client), value)
                    raise AssertionError(f"{value!r} was taken")

    async def asynchronous() -> None:
        async with aio.open_client(config) as client:
            for value in values:
                with pytest.raises(InvalidArgumentError, match=name):
                    result = function(cast("Any", client), value)
                    if isinstance(result, Awaitable):
                        await result
                    raise AssertionError(f"{value!r} was taken")

    await trio.to_thread.run_sync(blocking)
    await trio.to_thread.run_sync(asyncio.run, asynchronous())


# What is made, with the name that the message has and the values that are refused.
VALUES: dict[str, tuple[Callable[[Any], object], str, Iterable[object]]] = {
    "fixed": (ScalingPolicy.fixed, "min_segments", (*COUNTS, NAN, 2**31)),
    "rate": (ScalingPolicy.by_event_rate, "target_rate", COUNTS),
    "factor": (lambda v: ScalingPolicy.by_data_rate(5 * 1024, v), "scale_factor", COUNTS),
    "scale type": (lambda v: ScalingPolicy(v, 1, 1, 1), "ScaleType", (0, "FIXED", None)),
    "time": (RetentionPolicy.by_time, "seconds", (*SECONDS, 0, None)),
    "size": (lambda v: RetentionPolicy.by_size(v), "minimum", COUNTS),
    "maximum": (lambda v: RetentionPolicy.by_size(5, v), "retention", (4,)),
    "retention type": (lambda v: RetentionPolicy(v, 1), "RetentionType", (1, "TIME", None)),
    "scaling": (lambda v: StreamConfiguration(scaling=v), "ScalingPolicy", (4, None)),
    "retention": (lambda v: StreamConfiguration(retention=v), "RetentionPolicy", (4, "1d")),
    "tags": (lambda v: StreamConfiguration(tags=[v]), "tag", (5, None, "", "\ud800")),  # type: ignore[arg-type]
    "several tags": (lambda v: StreamConfiguration(tags=v), "stream configuration: tags", (*ONE, 5, None)),
    "stream of a range": (lambda v: SegmentRange(v, 0, 0, 9), "^stream of a range", (None, 5, "s/t")),
    "group streams": (ReaderGroupConfig.of, "^the streams of a reader group", (*ONE[1:], 5, None)),
    "group ends": (lambda v: ReaderGroupConfig.of([S], ends=v), "^ends", (*ONE, 5, None, ["s/t"], [S])),
    "group cuts": (ReaderGroupConfig.of([S]).starting_at, "^cuts", (*ONE, 5, None, ["s/t"], [S])),
    "samples": (SequenceSource, "^samples", (*ONE, 5, iter([]))),
    "argv": (PravegaConfig.from_arguments, "^argv", (*ONE, 5)),
    "layout": (lambda v: StreamLayout(S, v), "^the segments of the layout of s/t", (*ONE, 5)),
    "stream of a layout": (lambda v: StreamLayout(v, ()), "^the stream of a layout", (None, "s/t")),
    "segment given to a layout": (lambda v: StreamLayout(S, [v]), "^each segment of the layout", (None, 0)),  # type: ignore[arg-type]
    "clock": (lambda v: WatermarkAssigner(clock=v), "^clock must be a function", (0, "", 5)),
    "types": (VersionedUnionSerializer, "^the types of record must be", (None, [], 5)),
    "type": (
        lambda v: VersionedUnionSerializer({0: v}),
        "^each of the types of record must be",
        (None, int),
    ),
    "watermark": (lambda v: Watermark.of(0, 1, v), "^the positions of a watermark", (*ONE, 5)),
    "changes": (lambda v: latest_rows(v, ["id"]), "^changes", (*ONE, 5)),
    "columns of a key": (lambda v: latest_rows([], v), "^key", (*ONE, 5, [])),
    "columns": (lambda v: columns_of("columns", v), "^columns", (*ONE, 5)),
    "key of a change": (lambda v: ChangeRows({"id": "int64"}, v), "^key", (*ONE, 5)),
    "rollover": (
        lambda v: StreamConfiguration(rollover_size_bytes=v),
        "rollover_size_bytes",
        ("1", 1.5, True, -1, None),
    ),
    "aggregation": (
        lambda v: StreamConfiguration(timestamp_aggregation_timeout=v),
        "timestamp_aggregation_timeout",
        (*SECONDS, None),
    ),
    "group refresh": (
        lambda v: ReaderGroupConfig.of([S], group_refresh_interval=v),
        "group_refresh_interval",
        (*SECONDS, INF, None),
    ),
    "group checkpoints": (
        lambda v: ReaderGroupConfig.of([S], automatic_checkpoint_interval=v),
        "automatic_checkpoint_interval",
        ("1", True, None, NAN, INF, -INF),
    ),
    "group outstanding": (
        lambda v: ReaderGroupConfig.of([S], max_outstanding_checkpoints=v),
        "max_outstanding_checkpoints",
        (*COUNTS, 2**31),
    ),
    "group starts": (ReaderGroupConfig, "^starts", (None, 5, "s/t", [S])),
    "group end cuts": (lambda v: ReaderGroupConfig({S: None}, v), "^ends", (None, 5, "s/t", [S])),
    "cuts of one stream": (
        ReaderGroupConfig.of,
        "the streams of a reader group: stream s/t is given twice",
        ([CUT, "s/t"], [S, CUT], [CUT, StreamCut(S, {0: 9})]),
    ),
    "end cuts of one stream": (
        lambda v: ReaderGroupConfig.of(S, ends=v),
        "ends: stream s/t is given twice",
        ([CUT, StreamCut(S, {0: 9})],),
    ),
    "start cuts of one stream": (
        ReaderGroupConfig.of([S]).starting_at,
        "cuts: stream s/t is given twice",
        ([CUT, StreamCut(S, {0: 9})],),
    ),
    "start cut of another stream": (
        ReaderGroupConfig.of([S]).starting_at,
        "a start cut for s/other, but it is not one of the group's streams",
        (StreamCut(ScopedStream("s", "other"), {0: 9}),),
    ),
    "group retention": (lambda v: ReaderGroupConfig.of([S], retention=v), "retention", (0, "NONE", None)),
    "lateness": (
        lambda v: WatermarkAssigner(allowed_lateness=v),
        "allowed_lateness",
        ("1", 1.5, True, -1, None, NAN),
    ),
    "idle": (lambda v: WatermarkAssigner(idle_after=v), "idle_after", SECONDS),
    "every": (lambda v: WatermarkAssigner(every=v), "every", (*SECONDS, None)),
    "range": (lambda v: SegmentRange(S, 0, v, 2**62), "start_offset", ("0", 1.5, True, -1, None)),
    "cut offset": (lambda v: StreamCut(S, {0: v}), "stream cut", ("0", 1.5, None, -2, 2**63)),
    "cut segment": (lambda v: StreamCut(S, {v: 0}), "stream cut", ("0", 1.5, None, -1, 2**63)),
    "cut stream": (lambda v: StreamCut(v, {0: 0}), "stream cut", ("s/t", None)),
    "operation timeout": (
        lambda v: PravegaConfig(operation_timeout=v),
        "operation_timeout",
        (*SECONDS, 0, INF, None),
    ),
    "props": (lambda v: PravegaConfig.from_defaults(props=v), "^props must map", ("x", 5, ["x"])),
    "env": (lambda v: PravegaConfig.from_defaults(env=v), "^env must map", ("x", 5, ["x"])),
    "cut positions": (
        lambda v: StreamCut(S, v),
        "stream cut of s/t: the positions must map",
        (None, 5, "x", [(0, 1)]),
    ),
    "cut to compare": (CUT.compare, "the other stream cut must be", (None, 5, "earliest")),
    "cut to compare in a layout": (
        lambda v: LAYOUT.compare(CUT, v),
        "a cut for the layout of s/t must be",
        (None, 5, "earliest"),
    ),
    "cut to check": (LAYOUT.check, "a cut for the layout of s/t must be", (None, 5, "earliest")),
    "cut to join": (LAYOUT.join, "a cut for the layout of s/t must be", (None, 5, "earliest")),
    "segment of a layout": (LAYOUT.segment, "segment_id", (None, "0", 1.5, True, -1)),
    "position": (Position, "the segments of a position", (None, 5, "x", [5])),
    "offsets": (Position.of, "^offsets must be", (None, 5, "x", [5])),
    "offset": (lambda v: Position.of({"s/t/0.#epoch.0": v}), "offset", (None, "0", 1.5, True, 2**63)),
    "ranges of a position": (lambda v: Position.of({}, v), "^ranges must be", (5, "x", [5])),
    "checkpoint": (lambda v: Checkpoint("x", v), "the cuts of checkpoint 'x'", (None, 5, "x", [5])),
    "name of a checkpoint": (lambda v: Checkpoint(v, ()), "the name of a checkpoint", (None, 5)),
    "time of a watermark": (lambda v: Watermark(v, 1, ()), "watermark: a time", (None, "1", 1.5, 2**63)),
    "positions of a watermark": (
        lambda v: Watermark(0, 1, v),
        "the positions of a watermark",
        (None, 5, "x", [5]),
    ),
    "segment of a pointer": (lambda v: EventPointer(v, 0, 9), "the segment of an event pointer", (None, 5)),
    "offset of a pointer": (
        lambda v: EventPointer("s", v, 9),
        "event pointer in s: start_offset",
        (None, 1.5, -1),
    ),
    "length of a pointer": (
        lambda v: EventPointer("s", 0, v),
        "event pointer in s: length",
        (None, "9", 2**31),
    ),
    "version": (lambda v: KeyValueVersion(v, 0), "table version", (None, "1", 1.5, 2**63, -(2**63) - 1)),
    "version in a segment": (lambda v: KeyValueVersion(0, v), "table version", (None, "1", 1.5, 2**63)),
    "segment of a revision": (lambda v: Revision(v, 0), "the segment of a revision", (None, 5)),
    "offset of a revision": (
        lambda v: Revision("s", v),
        "revision of s: offset",
        (None, "0", 1.5, True, -1, 2**63, *HUGE_NUMBERS),
    ),
    "index of a revision": (
        lambda v: Revision("s", 0, v),
        "revision of s: event_at_offset",
        (None, "0", 1.5, True, -1, 2**31),
    ),
    "text of a revision": (Revision.from_text, "revision of s", ("s:-1:0", f"s:{2**63}:0", "s:0:-1")),
    "unhashable tags": (lambda v: StreamConfiguration(tags=v), "a tag", ([[1]], [{}])),
    "function to bytes": (lambda v: FunctionSerializer(v, bytes), "^to_bytes", (None, 5, "x")),
    "function from bytes": (lambda v: FunctionSerializer(bytes, v), "^from_bytes", (None, 5, "x")),
    "states": (lambda v: StateFormat(v, BytesSerializer(), max), "^serializer must be", (None, 5)),
    "updates": (lambda v: StateFormat(BytesSerializer(), v, max), "^updates must be", (None, 5)),
    "step": (lambda v: StateFormat(BytesSerializer(), BytesSerializer(), v), "^step must be", (None, 5)),
    "name of a column": (lambda v: RowSerializer({v: "int32"}), "the name of a column", (None, 5)),
    "class of a record": (lambda v: VersionedSerializer(v, []), "cls must be a dataclass", (None, int, CUT)),
    "revisions of a record": (
        lambda v: VersionedSerializer(SegmentRange, v),
        "SegmentRange",
        (None, 5, "x", [5], ["x"], [[5]], [[["a"]]], [["ab"]], [[("a", 5)]], [[("a", "int64", 5)]]),
    ),
    "fixed count": (FixedCount, "count", COUNTS),
    "ingest segments": (
        lambda v: FileIngester(None, "s/a", "s/b", segments=v),  # type: ignore[arg-type]  # not used
        "segments",
        (*COUNTS, 2**31),
    ),
    "ingest lease": (
        lambda v: FileIngester(None, "s/a", "s/b", lease=v),  # type: ignore[arg-type]  # not used
        "lease",
        (*COUNTS, 1),
    ),
}


HUGE = "9" * 5000
"""More digits than Python converts to a number."""


def packed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode())).decode()


TEXTS: dict[str, object] = {
    "nothing": None,
    "number": 5,
    "bytes": b"s/t",
    "list": ["s/t", None],
    "object": object(),
    "digits": HUGE,
    "port": f"tcp://host:{HUGE}",
    "zeros": f"tcp://host:{'0' * 5000}",
    "port of IPv6": f"tcp://[::1]:{HUGE}",
    "second port": f"tcp://a:1,b:{HUGE}",
    "port of a registry": f"http://host:{HUGE}",
    "other digits": "tcp://host:\u0661",
    "numbers": f"{HUGE}:1",
    "segment": f"s/t/{HUGE}.#epoch.0",
    "revision": f"s/t/0.#epoch.0:{HUGE}:0",
    "array": f"[{HUGE}]",
    "object of JSON": f'{{"version":{HUGE}}}',
    "deep": "[" * 100_000,
    "surrogate": "\ud800",
    "stream with a surrogate": "s/\ud800",
    "address with a surrogate": "tcp://\ud800:1",
    "NUL": "\0",
    "stream with NUL": "s/t\0",
    "address with NUL": "tcp://a\0b:1",
    "cut with a segment": packed(f"0:s/t:{HUGE}:0:0"),
    "cut with an offset": packed(f"0:s/t:0:0:{HUGE}"),
    "cut with NUL": packed("0:s/t\0:0:0:0"),
    "equals": f"{HUGE}={HUGE}",
}

PARSERS: dict[str, Callable[[Any], object]] = {
    "stream": ScopedStream.parse,
    "scope": lambda v: ScopedStream(v, "t"),
    "name": lambda v: ScopedStream("s", v),
    "resolved": lambda v: PravegaConfig().resolve(v),
    "cut": StreamCut.from_text,
    "revision": Revision.from_text,
    "pointer": EventPointer.from_text,
    "position": Position.from_text,
    "checkpoint": Checkpoint.from_text,
    "version": KeyValueVersion.from_text,
    "boundaries": BoundaryIndex.from_text,
    "manifest": Manifest.from_json,
    "ranges": lambda v: decode_ranges(S, v),
    "point": lambda v: parse_point(v) if isinstance(v, str) else check_text("point", v),
    "controllers": lambda v: PravegaConfig(controller_uri=v),
    "several controllers": lambda v: PravegaConfig.from_defaults(controller_uri=["tcp://a:1", v]),
    "controllers in the environment": lambda v: PravegaConfig.from_defaults(
        env={"PRAVEGA_CONTROLLER_URI": v}
    ),
    "controllers in an argument": lambda v: PravegaConfig.from_arguments(["--controller", v]),
    "connections in an argument": lambda v: PravegaConfig.from_arguments(["--max-connections-per-store", v]),
    "seconds in an argument": lambda v: PravegaConfig.from_arguments(["--operation-timeout", v]),
    "arguments": PravegaConfig.from_namespace,
    "registry": lambda v: PravegaConfig(schema_registry_uri=v),
}
# Among what is tried, these are right.
RIGHT = {
    ("registry", "nothing"),
    ("controllers in the environment", "nothing"),
}


@pytest.mark.parametrize("parser", PARSERS)
def test_what_cannot_be_parsed_is_refused(parser: str) -> None:
    for name, text in TEXTS.items():
        if (parser, name) in RIGHT:
            continue
        with pytest.raises(InvalidArgumentError):
            PARSERS[parser](text)
            raise AssertionError(f"{name} was taken")


def test_a_message_does_not_repeat_thousands_of_digits() -> None:
    for parser in ("stream", "controllers", "revision", "pointer", "version", "cut", "point"):
        for name in ("digits", "port", "second port", "numbers", "segment", "equals"):
            with pytest.raises(InvalidArgumentError) as caught:
                PARSERS[parser](TEXTS[name])
            assert len(caught.value.message) < 400, f"{parser}, {name}"


async def test_a_place_that_is_no_cut_is_refused_with_the_words_that_there_are() -> None:
    config = PravegaConfig(controller_uri="tcp://127.0.0.1:1", scope="s", operation_timeout=1)
    async with open_client(config) as client:
        for read in (
            lambda: client.segment_ranges("t", "head"),
            lambda: client.follow_events("t", "head").read_event(timeout=1),
        ):
            with pytest.raises(InvalidStreamCutError, match=r"^.head. is not .* stream s/t .* .earliest. or"):
                await read()


@pytest.mark.parametrize("name", ["_system2", "_abc", "_", "__", "a_b"])
async def test_names_with_an_underscore_are_not_created(name: str) -> None:
    config = PravegaConfig(controller_uri="tcp://127.0.0.1:1", scope="s", operation_timeout=1)
    async with open_client(config) as client:
        for create in (client.create_scope, client.create_stream):
            with pytest.raises(InvalidArgumentError, match="illegal characters"):
                await create(name)
        with pytest.raises(InvalidArgumentError, match="illegal characters"):
            await client.create_reader_group(name, "t")
        with pytest.raises(InvalidArgumentError, match="illegal characters"):
            await client.create_key_value_table(name, KeyValueTableConfiguration(1, 4))


@pytest.mark.parametrize("made", VALUES)
def test_a_value_refuses_what_it_cannot_hold(made: str) -> None:
    make, name, values = VALUES[made]
    for value in values:
        with pytest.raises(InvalidArgumentError, match=name):
            make(value)
            raise AssertionError(f"{value!r} was taken")


@pytest.mark.parametrize("ack", [Ack(), sync.Ack(cast("Any", None)), aio.Ack(cast("Any", None))])
def test_an_acknowledgement_is_not_copied(ack: object) -> None:
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(ArgumentTypeError, match="cannot be copied or sent elsewhere: <Ack"):
            copied(ack)


def test_a_blocking_client_refuses_limits_that_are_none() -> None:
    with sync.open_client("tcp://127.0.0.1:1") as client:
        for value in SECONDS:
            with pytest.raises(InvalidArgumentError, match="timeout must be a number of seconds"):
                client.list_scopes(timeout=cast("Any", value))
                raise AssertionError("it was taken")


def test_revisions_are_compared_with_revisions_only() -> None:
    assert Revision("s", 1) < Revision("s", 2) <= Revision("s", 2)
    for other in (None, 5, "s:1:0"):
        with pytest.raises(TypeError, match="not supported between"):
            Revision("s", 1) < cast("Any", other)  # noqa: B015
        with pytest.raises(TypeError, match="not supported between"):
            Revision("s", 1) <= cast("Any", other)  # noqa: B015


@pytest.mark.parametrize(
    "found",
    [None, "host:1", ("host",), ("host", "1"), 5, ("", 1), ("host", 0), ("host", True), ("host", 65536 + 22)],
)
async def test_an_address_map_returns_an_address(found: Any) -> None:
    async with trio.open_nursery() as nursery:
        pool = ConnectionPool(nursery, address_map=lambda host, port: found)
        with pytest.raises(ArgumentTypeError, match="address_map must return a host and a port for a:1, not"):
            pool.address(("a", 1))
        pool.close()


async def test_an_address_map_that_fails_is_named() -> None:
    async with trio.open_nursery() as nursery:
        pool = ConnectionPool(nursery, address_map=cast("Any", lambda endpoint: endpoint))
        with pytest.raises(InvalidArgumentError, match="address_map failed for a:1: TypeError") as raised:
            pool.address(("a", 1))
        assert isinstance(raised.value.__cause__, TypeError)
        pool.close()


WRONG_EVENTS: list[tuple[str, Callable[[Any], Any], str]] = [
    ("no bytes", lambda writer: writer.write_event("x"), "an event for {} must be bytes, not str"),
    ("several of none", lambda writer: writer.write_events([5]), "an event for {} must be bytes, not int"),
    ("a batch of none", lambda writer: writer.write_batch(["x"]), "an event for {} must be bytes, not str"),
    ("large", lambda writer: writer.write_event(bytes(8388609)), "an event of 8388609 bytes for {} is over"),
    ("one is large", lambda w: w.write_events([bytes(8388609)]), "an event of 8388609 bytes for {} is over"),
    ("large batch", lambda w: w.write_batch([bytes(8388609)]), "a batch of 8388617 bytes for {} is over"),
    ("large row", lambda w: w.write_events(pa.array([bytes(8388609)])), "an event of 8388609 bytes for {}"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("act", "message"), [each[1:] for each in WRONG_EVENTS], ids=[each[0] for each in WRONG_EVENTS]
)
async def test_what_is_wrong_with_an_event_names_the_stream(act: Callable[[Any], Any], message: str) -> None:
    message = message.format("the writer of s/t")
    async with open_client("tcp://127.0.0.1:1", scope="s") as client:
        for writer in (client.event_writer("t"), client.resumable_writer("t", uuid4())):
            with pytest.raises(InvalidArgumentError, match=message):
                await act(writer)


async def test_a_writer_that_was_not_entered_says_what_every_client_can_do() -> None:
    message = "is not open: enter it as a context manager first$"
    async with open_client("tcp://127.0.0.1:1", scope="s") as client:
        with pytest.raises(ClosedError, match=message):
            await client.event_writer("t").write_event(b"x")
        with pytest.raises(ClosedError, match=message):
            await client.byte_stream_writer("t").write(b"x")

    def blocking() -> None:
        with sync.open_client("tcp://127.0.0.1:1", scope="s") as client:
            writer = client.event_writer("t")
            with pytest.raises(ClosedError, match=message):
                writer.write_event(b"x", "key").wait()

    await trio.to_thread.run_sync(blocking)


@pytest.mark.parametrize("result", [5, None, "text"])
async def test_what_a_serializer_returns_must_be_bytes(result: Any) -> None:
    serializer: FunctionSerializer[Any] = FunctionSerializer(lambda _: result, bytes)
    message = f"stream (s/)?t: an event must be serialized to bytes, .* returned {type(result).__name__}$"

    async with open_client("tcp://127.0.0.1:1", scope="s") as client:
        resumable = client.resumable_writer("t", uuid4(), serializer=serializer)
        for writer in (client.event_writer("t", serializer=serializer), resumable):
            with pytest.raises(EncodeError, match=message):
                await writer.write_event("x", "key")
            with pytest.raises(EncodeError, match=message):
                await writer.write_batch(["x"], "key")

    def blocking() -> None:
        with sync.open_client("tcp://127.0.0.1:1", scope="s") as client:
            with pytest.raises(EncodeError, match=message):
                client.event_writer("t", serializer=serializer).write_event("x", "key")

    await trio.to_thread.run_sync(blocking)


def test_whole_numbers_of_other_kinds_are_taken() -> None:
    class Four:
        def __index__(self) -> int:
            return 4

    four: Any = Four()
    cut = StreamCut(S, {four: four})
    assert cut == StreamCut(S, {4: 4})
    assert type(cut.positions[4]) is int
    ScalingPolicy.fixed(four)


def test_keys_that_are_not_as_many_as_the_events_are_refused() -> None:
    for keys in ([], ["a"], ["a"] * 3, ("a",) * 3, {"a": 1}):
        with pytest.raises(InvalidArgumentError, match="routing keys than events"):
            check_lengths([b"x", b"y"], keys)
    for fitting in (None, "one", ["a", None], iter(["a"])):
        check_lengths([b"x", b"y"], fitting)
    check_lengths(iter([b"x"]), ["a", "b"])  # nobody knows yet


def test_half_of_a_surrogate_pair_as_a_key_of_an_arrow_array_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="routing keys"):
        key_column(["fine", "\ud800"], 2)
    assert key_column(["fine", None], 2).type == pa.string()


def test_a_reader_group_takes_one_stream() -> None:
    cut = StreamCut(S, {0: 5})
    assert ReaderGroupConfig.of(str(S)) == ReaderGroupConfig.of(S) == ReaderGroupConfig.of([S])
    assert (
        ReaderGroupConfig.of(cut) == ReaderGroupConfig.of([cut]) == ReaderGroupConfig.of(S).starting_at(cut)
    )
    assert ReaderGroupConfig.of(S, ends=cut) == ReaderGroupConfig.of([S], ends=[cut])


class _Name(str, enum.Enum):  # noqa: UP042  # StrEnum has a text like any string
    SCOPE = "s"
    STREAM = "t"


def test_names_may_be_members_of_an_enum() -> None:
    """Python 3.11 and newer write them into the name of a segment as ``_Name.STREAM``."""
    config = PravegaConfig(controller_uri=URI, scope=_Name.SCOPE)
    for name in (
        ScopedStream(_Name.SCOPE, _Name.STREAM),
        config.resolve(_Name.STREAM),
    ):
        assert (str(name), type(name.scope), type(name.name)) == ("s/t", str, str)


def test_a_reader_group_takes_full_names() -> None:
    assert ReaderGroupConfig.of([str(S)]) == ReaderGroupConfig.of([S])
    with pytest.raises(InvalidArgumentError, match="not of the form scope/stream"):
        ReaderGroupConfig.of(["readings"])


@pytest.mark.parametrize("wrong", [3, None, b"demo/readings"])
def test_a_reader_group_reads_nothing_but_streams(wrong: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="streams or from cuts"):
        ReaderGroupConfig.of([wrong])
    with pytest.raises(ArgumentTypeError, match="map a ScopedStream to a StreamCut"):
        ReaderGroupConfig({wrong: None})
    with pytest.raises(ArgumentTypeError, match="map a ScopedStream to a StreamCut"):
        ReaderGroupConfig({S: 3})  # type: ignore[dict-item]


async def test_an_acknowledgement_belongs_to_its_trio_run() -> None:
    ack = Ack()

    def elsewhere() -> None:
        with pytest.raises(InvalidArgumentError, match="belongs to another trio run: open another"):
            trio.run(ack.wait)
        with pytest.raises(InvalidArgumentError, match="none is running here"):
            asyncio.run(ack.wait())

    await trio.to_thread.run_sync(elsewhere)
    settle(ack)
    await ack
    # What is done needs nobody to wait for it.
    await trio.to_thread.run_sync(trio.run, ack.wait)


async def test_a_wrong_name_is_called_what_it_is() -> None:
    async with open_client(URI, scope="s") as client:
        calls: list[tuple[str, Callable[[Any], Awaitable[object]]]] = [
            ("stream", client.seal_stream),
            ("reader group", lambda name: client.create_reader_group(name, "t")),
            ("reader group", client.reader_group),
            ("reader group", client.delete_reader_group),
            (
                "key-value table",
                lambda name: client.create_key_value_table(name, KeyValueTableConfiguration(1, 4)),
            ),
            ("key-value table", client.key_value_table),
        ]
        for kind, call in calls:
            for name in ("a b", "s/a b"):
                with pytest.raises(
                    InvalidArgumentError, match=f"the {kind} name 'a b' has illegal characters"
                ):
                    await call(name)
            with pytest.raises(InvalidArgumentError, match=f"a {kind} name must be a string, not NoneType"):
                await call(None)
            with pytest.raises(
                InvalidArgumentError, match=f"'a/b/c' is not of the form scope/{kind.split()[-1]}"
            ):
                await call("a/b/c")
    async with open_client(URI) as client:
        with pytest.raises(InvalidArgumentError, match="reader group 'g' has no scope: write 'scope/g'"):
            await client.delete_reader_group("g")


def test_clients_and_their_objects_are_not_copied() -> None:
    async def of_trio() -> None:
        async with open_client(URI, scope="s") as client:
            refuse(
                client, client.event_writer("t"), client.byte_stream_writer("t"), client.follow_events("t")
            )

    async def of_asyncio() -> None:
        async with aio.open_client(URI, scope="s") as client:
            refuse(
                client, client.event_writer("t"), client.byte_stream_writer("t"), client.follow_events("t")
            )

    def refuse(*handles: object) -> None:
        for handle in handles:
            for copied in (copy.copy, copy.deepcopy, pickle.dumps):
                with pytest.raises(ArgumentTypeError, match="send the PravegaConfig and open a client there"):
                    copied(handle)

    trio.run(of_trio)
    asyncio.run(of_asyncio())
    with sync.open_client(URI, scope="s") as client:
        refuse(client, client.event_writer("t"), client.follow_events("t"))


def test_what_is_entered_with_async_with_says_so() -> None:
    async def of_trio() -> None:
        with pytest.raises(InvalidArgumentError, match="async with"), cast("Any", open_client(URI)):
            pass
        async with open_client(URI, scope="s") as client:
            with pytest.raises(InvalidArgumentError, match="async with"):
                with cast("Any", client.begin_transaction("t")):
                    pass

    async def of_asyncio() -> None:
        with pytest.raises(InvalidArgumentError, match="async with"), cast("Any", aio.open_client(URI)):
            pass

    trio.run(of_trio)
    asyncio.run(of_asyncio())
