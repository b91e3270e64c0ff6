"""The blocking twin of :mod:`pravega_wire`: the same names, without ``await``.

``with pravega_wire.sync.open_client(config) as client:`` runs the async client in one trio thread and
calls into it. There is no second copy of the logic. A client may be used from several threads, but
neither crosses a fork nor a pickle: ship the :class:`PravegaConfig` and open another.
"""

# Made by scripts/gen_facades.py. Do not edit it.
from pravega_wire import _public
from pravega_wire.sync.client import (
    Ack,
    ByteStreamReader,
    ByteStreamWriter,
    EventBatches,
    EventReader,
    EventWriter,
    KeyValueTable,
    PravegaClient,
    RangesReader,
    ReaderGroup,
    ResumableWriter,
    RevisionedStream,
    RevisionReader,
    StagingWriter,
    StateSynchronizer,
    TableFamily,
    TableIterator,
    TableMapping,
    Transaction,
    open_client,
)
from pravega_wire.sync.direct import DirectReader

__all__ = [
    "Ack",
    "ByteStreamReader",
    "ByteStreamWriter",
    "DirectReader",
    "EventBatches",
    "EventReader",
    "EventWriter",
    "KeyValueTable",
    "PravegaClient",
    "RangesReader",
    "ReaderGroup",
    "ResumableWriter",
    "RevisionReader",
    "RevisionedStream",
    "StagingWriter",
    "StateSynchronizer",
    "TableFamily",
    "TableIterator",
    "TableMapping",
    "Transaction",
    "open_client",
]

_public.publish(__name__, __all__)
