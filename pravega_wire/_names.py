"""Imports the public names of :mod:`pravega_wire`, which loads this module when one of them is used first.

Not public: :mod:`pravega_wire` exports them.
"""

from pravega_wire import _public
from pravega_wire.controller.types import (
    KeyValueTableConfiguration,
    SegmentWithRange,
    Successors,
    TxnStatus,
)
from pravega_wire.errors import PravegaError
from pravega_wire.metrics import CallMetrics, ClientMetrics, ReaderMetrics, WriterMetrics
from pravega_wire.protocol.append import MAX_EVENT_BYTES
from pravega_wire.protocol.events import EventBatch
from pravega_wire.protocol.records import VersionedSerializer, VersionedUnionSerializer
from pravega_wire.segment.appender import Ack
from pravega_wire.stream.byte_stream import ByteStreamReader, ByteStreamWriter
from pravega_wire.stream.client import PravegaClient, StreamInfo, open_client
from pravega_wire.stream.event_reader import Event, EventReader
from pravega_wire.stream.event_writer import EventWriter
from pravega_wire.stream.follow import StreamFollower
from pravega_wire.stream.key_value_table import (
    Insert,
    KeyValueTable,
    Put,
    Remove,
    TableEntry,
    TableFamily,
    TableIterator,
    TableKey,
)
from pravega_wire.stream.open_transactions import OpenTransaction
from pravega_wire.stream.opening import Opening
from pravega_wire.stream.ranges_reader import RangesReader
from pravega_wire.stream.reader_group import ReaderGroup
from pravega_wire.stream.resumable import ResumableWriter
from pravega_wire.stream.revisioned import RevisionedStream, RevisionReader
from pravega_wire.stream.staging import StagedBytes, Staging, StagingWriter
from pravega_wire.stream.synchronizer import StateFormat, StateSynchronizer
from pravega_wire.stream.transaction import Transaction
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
from pravega_wire.values.types import CutOrder, Revision, ScopedStream, SegmentRange, StreamCut

__all__ = [
    "MAX_EVENT_BYTES",
    "Ack",
    "Bound",
    "BoundaryIndex",
    "ByteStreamReader",
    "ByteStreamWriter",
    "CallMetrics",
    "Checkpoint",
    "ClientMetrics",
    "Credentials",
    "CutOrder",
    "Event",
    "EventBatch",
    "EventPointer",
    "EventReader",
    "EventTimeOrder",
    "EventWriter",
    "Insert",
    "KeyValueTable",
    "KeyValueTableConfiguration",
    "KeyValueVersion",
    "LayoutSegment",
    "LeadingPart",
    "OnTruncated",
    "OnlineReader",
    "OnlineReaders",
    "OpenTransaction",
    "Opening",
    "OutstandingCheckpoint",
    "Position",
    "PravegaClient",
    "PravegaConfig",
    "PravegaError",
    "Put",
    "RangesReader",
    "ReaderGroup",
    "ReaderGroupConfig",
    "ReaderGroupMetrics",
    "ReaderMetrics",
    "Remove",
    "ResumableWriter",
    "RetentionPolicy",
    "RetentionType",
    "Revision",
    "RevisionReader",
    "RevisionedStream",
    "ScalingPolicy",
    "ScopedStream",
    "SegmentRange",
    "SegmentWithRange",
    "StagedBytes",
    "Staging",
    "StagingWriter",
    "StateFormat",
    "StateSynchronizer",
    "StreamConfiguration",
    "StreamCut",
    "StreamFollower",
    "StreamInfo",
    "StreamLayout",
    "Successors",
    "TableEntry",
    "TableFamily",
    "TableIterator",
    "TableKey",
    "TimeWindow",
    "Transaction",
    "TxnStatus",
    "VersionedSerializer",
    "VersionedUnionSerializer",
    "Watermark",
    "WatermarkAssigner",
    "WatermarkSegment",
    "WriterMetrics",
    "open_client",
]

_public.publish(
    "pravega_wire", __all__, defined=__name__, but=("pravega_wire.errors", "pravega_wire.metrics")
)
