"""Converts values to messages of the controller, and messages to values.

Not public.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, TypeVar
from uuid import UUID

from pravega_wire.controller.types import KeyValueTableConfiguration, NodeUri, SegmentWithRange
from pravega_wire.errors import UnexpectedReplyError
from pravega_wire.proto import controller_pb2 as pb
from pravega_wire.support.checks import check_uuid, milliseconds, shown
from pravega_wire.values.groups import ReaderGroupConfig
from pravega_wire.values.groups import RetentionType as GroupRetentionType
from pravega_wire.values.naming import (
    TABLE_SUFFIX,
    validate_scope_name,
    validate_stream_name,
    validate_user_name,
)
from pravega_wire.values.policies import (
    RetentionPolicy,
    RetentionType,
    ScaleType,
    ScalingPolicy,
    StreamConfiguration,
)
from pravega_wire.values.types import ScopedStream, StreamCut, is_key_space

__all__ = [
    "ACCESS_NONE", "ACCESS_READ_WRITE", "NO_TIMESTAMP", "covering", "group_config", "group_configuration",
    "group_info", "node_uri", "owner_info", "ranges", "scope_info", "segment_message", "stream_config",
    "stream_configuration", "stream_cut", "stream_info", "table_config", "table_configuration", "table_info",
    "txn_message", "uuid_of",
]  # fmt: skip

ACCESS_NONE: Final = pb.StreamInfo.NONE
ACCESS_READ_WRITE: Final = pb.StreamInfo.READ_WRITE
NO_TIMESTAMP: Final = -(2**63)

T = TypeVar("T")
E = TypeVar("E", bound=Enum)


def scope_info(scope: str) -> pb.ScopeInfo:
    validate_scope_name(scope)
    return pb.ScopeInfo(scope=scope)


def stream_info(scope: str, stream: str, access: Any = pb.StreamInfo.UNSPECIFIED) -> pb.StreamInfo:
    """Return the message that names a stream, after checking the names.

    The server reports an empty name as an internal error, which would be retried for minutes.
    """
    validate_scope_name(scope)
    validate_stream_name(stream)
    return pb.StreamInfo(scope=scope, stream=stream, accessOperation=access)


def owner_info(scope: str, stream: str, access: Any) -> pb.StreamInfo:
    """Return the message that names a stream or, by its name with ``_kvtable``, a key-value table."""
    info = stream_info(scope, stream.removesuffix(TABLE_SUFFIX), access)
    info.stream = stream
    return info


def segment_message(scope: str, stream: str, segment_id: int, access: Any) -> pb.SegmentId:
    return pb.SegmentId(streamInfo=stream_info(scope, stream, access), segmentId=segment_id)


def stream_cut(scope: str, stream: str, cut: Mapping[int, int]) -> pb.StreamCut:
    return pb.StreamCut(streamInfo=stream_info(scope, stream), cut=dict(cut))


def ranges(messages: Any) -> list[SegmentWithRange]:
    """Return segments and their ranges.

    :raises UnexpectedReplyError: one is not a range.
    """
    for each in messages:
        # Rounding may put the end of the last one beside 1.
        if not 0 <= each.minKey < each.maxKey < math.inf:
            segment, of = each.segmentId.segmentId, each.segmentId.streamInfo
            raise _unexpected(of, f"{each.minKey} to {each.maxKey} as the range of segment {segment}")
    return [SegmentWithRange(each.segmentId.segmentId, each.minKey, each.maxKey) for each in messages]


def covering(messages: Any, of: pb.StreamInfo, *, or_none: bool = False) -> list[SegmentWithRange]:
    """Return segments that were active together: what is written to one key goes to one of them.

    :param of: names their stream or key-value table.
    :param or_none: whether there may be none.
    :raises UnexpectedReplyError: their ranges do not cover the key space once.
    """
    found = ranges(messages)
    bounds = sorted((each.low, each.high) for each in found)
    if not is_key_space(bounds) and not (or_none and not found):
        raise _unexpected(
            of, f"segments with the key ranges {shown(bounds)}, which do not follow each other from 0 to 1"
        )
    return found


def node_uri(message: pb.NodeUri, segment: pb.SegmentId) -> NodeUri:
    """Return the address of a segment's store.

    :raises UnexpectedReplyError: nothing can have it.
    """
    if not message.endpoint or not 0 < message.port < 65536:
        address = f"{shown(message.endpoint)}, port {message.port}"
        store = f"the store of segment {segment.segmentId}"
        raise _unexpected(segment.streamInfo, f"{address}, as the address of {store}")
    return NodeUri(message.endpoint, message.port)


def _unexpected(of: pb.StreamInfo, what: str) -> UnexpectedReplyError:
    return UnexpectedReplyError(
        f"stream {of.scope}/{of.stream}: the controller reports {what}", scope=of.scope, stream=of.stream
    )


def txn_message(txn_id: UUID) -> pb.TxnId:
    check_uuid("the id of a transaction", txn_id)
    high, low = txn_id.int >> 64, txn_id.int & 0xFFFFFFFFFFFFFFFF
    return pb.TxnId(highBits=_signed(high), lowBits=_signed(low))


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def uuid_of(txn: pb.TxnId) -> UUID:
    mask = 0xFFFFFFFFFFFFFFFF
    return UUID(int=((txn.highBits & mask) << 64) | (txn.lowBits & mask))


def stream_config(scope: str, stream: str, configuration: StreamConfiguration) -> pb.StreamConfig:
    scaling = configuration.scaling
    message = pb.StreamConfig(
        streamInfo=stream_info(scope, stream),
        scalingPolicy=pb.ScalingPolicy(
            scaleType=scaling.scale_type.name,
            targetRate=scaling.target_rate,
            scaleFactor=scaling.scale_factor,
            minNumSegments=scaling.min_segments,
        ),
        tags=pb.Tags(tag=sorted(configuration.tags)),
        timestampAggregationTimeout=milliseconds(configuration.timestamp_aggregation_timeout),
        rolloverSizeBytes=configuration.rollover_size_bytes,
    )
    if configuration.retention is not None:
        message.retentionPolicy.CopyFrom(
            pb.RetentionPolicy(
                retentionType=configuration.retention.retention_type.name,
                retentionParam=configuration.retention.minimum,
                retentionMax=configuration.retention.maximum,
            )
        )
    return message


def stream_configuration(message: pb.StreamConfig) -> StreamConfiguration:
    """Return a stream's configuration.

    :raises UnexpectedReplyError: it has a policy that is unknown to this version.
    """
    scaling, retention = message.scalingPolicy, message.retentionPolicy

    def kind_of(kind: type[E], number: int) -> E:
        try:
            return kind(number)
        except ValueError:
            raise _unexpected(message.streamInfo, f"the unknown {kind.__name__} {number}") from None

    return _unchecked(
        StreamConfiguration,
        scaling=_unchecked(
            ScalingPolicy,
            scale_type=kind_of(ScaleType, scaling.scaleType),
            target_rate=scaling.targetRate,
            scale_factor=scaling.scaleFactor,
            min_segments=scaling.minNumSegments,
        ),
        retention=None
        if retention.retentionType == pb.RetentionPolicy.UNKNOWN
        else _unchecked(
            RetentionPolicy,
            retention_type=kind_of(RetentionType, retention.retentionType),
            minimum=retention.retentionParam,
            maximum=retention.retentionMax,
        ),
        tags=frozenset(message.tags.tag),
        timestamp_aggregation_timeout=message.timestampAggregationTimeout / 1000,
        rollover_size_bytes=message.rolloverSizeBytes,
    )


def _unchecked(kind: type[T], **values: object) -> T:
    """Return a value as the server has it. Other clients accept more than this one does from its caller."""
    made = object.__new__(kind)
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


def _check_names(kind: str, scope: str, name: str) -> None:
    validate_scope_name(scope)
    validate_user_name(kind, name)


def table_info(scope: str, table: str) -> pb.KeyValueTableInfo:
    _check_names("key-value table", scope, table)
    return pb.KeyValueTableInfo(scope=scope, kvtName=table)


def table_config(scope: str, table: str, configuration: KeyValueTableConfiguration) -> pb.KeyValueTableConfig:
    _check_names("key-value table", scope, table)
    return pb.KeyValueTableConfig(
        scope=scope,
        kvtName=table,
        partitionCount=configuration.partition_count,
        primaryKeyLength=configuration.primary_key_length,
        secondaryKeyLength=configuration.secondary_key_length,
        rolloverSizeBytes=configuration.rollover_size_bytes,
    )


def table_configuration(message: pb.KeyValueTableConfig) -> KeyValueTableConfiguration:
    return KeyValueTableConfiguration(
        message.partitionCount,
        message.primaryKeyLength,
        message.secondaryKeyLength,
        message.rolloverSizeBytes,
    )


def _cuts(cuts: Mapping[ScopedStream, StreamCut | None]) -> list[pb.StreamCut]:
    """Return the cuts of streams; a stream without one has an empty one."""
    return [
        stream_cut(stream.scope, stream.name, {} if cut is None else cut.positions)
        for stream, cut in cuts.items()
    ]


def group_info(scope: str, name: str, group_id: UUID | None = None) -> pb.ReaderGroupInfo:
    _check_names("reader group", scope, name)
    return pb.ReaderGroupInfo(
        scope=scope, readerGroup=name, readerGroupId=None if group_id is None else str(group_id)
    )


def group_config(scope: str, name: str, config: ReaderGroupConfig) -> pb.ReaderGroupConfiguration:
    _check_names("reader group", scope, name)
    return pb.ReaderGroupConfiguration(
        scope=scope,
        readerGroupName=name,
        groupRefreshTimeMillis=milliseconds(config.group_refresh_interval),
        automaticCheckpointIntervalMillis=milliseconds(config.automatic_checkpoint_interval),
        maxOutstandingCheckpointRequest=config.max_outstanding_checkpoints,
        retentionType=config.retention.value,
        generation=config.generation,
        readerGroupId=str(config.group_id),
        startingStreamCuts=_cuts(config.starts),
        endingStreamCuts=_cuts(config.ends),
    )


def group_configuration(message: pb.ReaderGroupConfiguration) -> ReaderGroupConfig:
    """Return a reader group's configuration.

    :raises UnexpectedReplyError: no group can have it.
    """

    def cuts(found: Any) -> dict[ScopedStream, StreamCut | None]:
        streams = [ScopedStream(each.streamInfo.scope, each.streamInfo.stream) for each in found]
        return {
            stream: StreamCut(stream, dict(each.cut)) if each.cut else None
            for stream, each in zip(streams, found, strict=True)
        }

    try:
        return ReaderGroupConfig(
            cuts(message.startingStreamCuts),
            cuts(message.endingStreamCuts),
            # Other clients accept less than 0, which is the same.
            max(0, message.groupRefreshTimeMillis) / 1000,
            message.automaticCheckpointIntervalMillis / 1000,
            message.maxOutstandingCheckpointRequest,
            GroupRetentionType(message.retentionType),
            message.generation,
            UUID(message.readerGroupId) if message.readerGroupId else UUID(int=0),
        )
    except ValueError as error:
        raise UnexpectedReplyError(
            f"reader group {message.scope}/{message.readerGroupName}: the controller reports a configuration "
            f"that no group can have: {error}",
            scope=message.scope,
        ) from error
