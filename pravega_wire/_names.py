"""Imports the public names of :mod:`pravega_wire`, which loads this module when one of them is used first.

Not public: :mod:`pravega_wire` exports them.
"""

import pravega_wire._values  # noqa: F401  # publishes its names
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
from pravega_wire.stream.staging import Staging, StagingWriter
from pravega_wire.stream.synchronizer import StateFormat, StateSynchronizer
from pravega_wire.stream.transaction import Transaction

__all__ = [
    "MAX_EVENT_BYTES",
    "Ack",
    "ByteStreamReader",
    "ByteStreamWriter",
    "CallMetrics",
    "ClientMetrics",
    "Event",
    "EventBatch",
    "EventReader",
    "EventWriter",
    "Insert",
    "KeyValueTable",
    "KeyValueTableConfiguration",
    "OpenTransaction",
    "Opening",
    "PravegaClient",
    "PravegaError",
    "Put",
    "RangesReader",
    "ReaderGroup",
    "ReaderMetrics",
    "Remove",
    "ResumableWriter",
    "RevisionReader",
    "RevisionedStream",
    "SegmentWithRange",
    "Staging",
    "StagingWriter",
    "StateFormat",
    "StateSynchronizer",
    "StreamFollower",
    "StreamInfo",
    "Successors",
    "TableEntry",
    "TableFamily",
    "TableIterator",
    "TableKey",
    "Transaction",
    "TxnStatus",
    "VersionedSerializer",
    "VersionedUnionSerializer",
    "WriterMetrics",
    "open_client",
]

_public.publish(
    "pravega_wire", __all__, defined=__name__, but=("pravega_wire.errors", "pravega_wire.metrics")
)
