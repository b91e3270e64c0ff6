"""Converts values to messages of the controller, and messages to values.

Not public.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from pravega_wire.controller.types import (
    KeyValueTableConfiguration,
    ReaderGroupConfiguration,
    SegmentWithRange,
)
from pravega_wire.proto import controller_pb2 as pb
from pravega_wire.support.checks import check_uuid, milliseconds
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

__all__ = [
    "ACCESS_NONE", "ACCESS_READ_WRITE", "NO_TIMESTAMP", "group_config", "group_configuration", "group_info",
    "owner_info", "ranges", "scope_info", "segment_message", "stream_config", "stream_configuration",
    "stream_cut", "stream_info", "table_config", "table_configuration", "table_info", "txn_message",
    "uuid_of",
]  # fmt: skip

ACCESS_NONE: Final = pb.StreamInfo.NONE
ACCESS_READ_WRITE: Final = pb.StreamInfo.READ_WRITE
NO_TIMESTAMP: Final = -(2**63)


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
    return [SegmentWithRange(each.segmentId.segmentId, each.minKey, each.maxKey) for each in messages]


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
    scaling = message.scalingPolicy
    retention = message.retentionPolicy
    return StreamConfiguration(
        scaling=ScalingPolicy(
            ScaleType(scaling.scaleType),
            scaling.targetRate,
            scaling.scaleFactor,
            scaling.minNumSegments,
        ),
        retention=None
        if retention.retentionType == pb.RetentionPolicy.UNKNOWN
        else RetentionPolicy(
            RetentionType(retention.retentionType),
            retention.retentionParam,
            retention.retentionMax,
        ),
        tags=frozenset(message.tags.tag),
        timestamp_aggregation_timeout=message.timestampAggregationTimeout / 1000,
        rollover_size_bytes=message.rolloverSizeBytes,
    )


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


def _cuts(cuts: Mapping[tuple[str, str], Mapping[int, int]]) -> list[pb.StreamCut]:
    return [stream_cut(scope, stream, cut) for (scope, stream), cut in cuts.items()]


def group_info(scope: str, name: str, group_id: UUID | None = None) -> pb.ReaderGroupInfo:
    _check_names("reader group", scope, name)
    return pb.ReaderGroupInfo(
        scope=scope, readerGroup=name, readerGroupId=None if group_id is None else str(group_id)
    )


def group_config(configuration: ReaderGroupConfiguration) -> pb.ReaderGroupConfiguration:
    _check_names("reader group", configuration.scope, configuration.name)
    return pb.ReaderGroupConfiguration(
        scope=configuration.scope,
        readerGroupName=configuration.name,
        groupRefreshTimeMillis=configuration.group_refresh_ms,
        automaticCheckpointIntervalMillis=configuration.automatic_checkpoint_ms,
        maxOutstandingCheckpointRequest=configuration.max_outstanding_checkpoints,
        retentionType=configuration.retention_type,
        generation=configuration.generation,
        readerGroupId=str(configuration.group_id),
        startingStreamCuts=_cuts(configuration.starts),
        endingStreamCuts=_cuts(configuration.ends),
    )


def group_configuration(message: pb.ReaderGroupConfiguration) -> ReaderGroupConfiguration:
    def cuts(found: Any) -> dict[tuple[str, str], dict[int, int]]:
        return {(each.streamInfo.scope, each.streamInfo.stream): dict(each.cut) for each in found}

    return ReaderGroupConfiguration(
        scope=message.scope,
        name=message.readerGroupName,
        starts=cuts(message.startingStreamCuts),
        ends=cuts(message.endingStreamCuts),
        group_refresh_ms=message.groupRefreshTimeMillis,
        automatic_checkpoint_ms=message.automaticCheckpointIntervalMillis,
        max_outstanding_checkpoints=message.maxOutstandingCheckpointRequest,
        retention_type=message.retentionType,
        generation=message.generation,
        group_id=UUID(message.readerGroupId) if message.readerGroupId else UUID(int=0),
    )
