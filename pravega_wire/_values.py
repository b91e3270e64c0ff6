"""Imports the public names of :mod:`pravega_wire` that are values; :mod:`pravega_wire` exports them.

They need no connection, so what uses only these, such as a check of Spark options, loads neither trio nor
protobuf. Not public.
"""

from pravega_wire import _public
from pravega_wire.values.boundaries import BoundaryIndex, LeadingPart
from pravega_wire.values.config import Credentials, PravegaConfig
from pravega_wire.values.cuts import Bound, LayoutSegment, OnTruncated, StreamLayout
from pravega_wire.values.event_time import EventTimeOrder, WatermarkAssigner
from pravega_wire.values.groups import (
    OnlineReader,
    OnlineReaders,
    OutstandingCheckpoint,
    ReaderGroupConfig,
    ReaderGroupMetrics,
    RetentionType,
    TimeWindow,
)
from pravega_wire.values.policies import RetentionPolicy, ScalingPolicy, StreamConfiguration
from pravega_wire.values.positions import (
    Checkpoint,
    EventPointer,
    KeyValueVersion,
    Position,
    Watermark,
    WatermarkSegment,
)
from pravega_wire.values.types import CutOrder, Revision, ScopedStream, SegmentRange, StagedBytes, StreamCut

__all__ = [
    "Bound",
    "BoundaryIndex",
    "Checkpoint",
    "Credentials",
    "CutOrder",
    "EventPointer",
    "EventTimeOrder",
    "KeyValueVersion",
    "LayoutSegment",
    "LeadingPart",
    "OnTruncated",
    "OnlineReader",
    "OnlineReaders",
    "OutstandingCheckpoint",
    "Position",
    "PravegaConfig",
    "ReaderGroupConfig",
    "ReaderGroupMetrics",
    "RetentionPolicy",
    "RetentionType",
    "Revision",
    "ScalingPolicy",
    "ScopedStream",
    "SegmentRange",
    "StagedBytes",
    "StreamConfiguration",
    "StreamCut",
    "StreamLayout",
    "TimeWindow",
    "Watermark",
    "WatermarkAssigner",
    "WatermarkSegment",
]

_public.publish("pravega_wire", __all__, defined=__name__)
