"""The twin of :mod:`pravega_wire` for asyncio: the same names, awaited in an asyncio event loop.

``async with pravega_wire.aio.open_client(config) as client:`` runs the async client in one trio thread and
calls into it. There is no second copy of the logic. A client belongs to the event loop it was opened in.
"""

# Made by scripts/gen_facades.py. Do not edit it.
from pravega_wire import _public
from pravega_wire.aio.client import (
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

__all__ = [
    "Ack",
    "ByteStreamReader",
    "ByteStreamWriter",
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
