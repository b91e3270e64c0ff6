"""Values in the controller's requests and replies."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from uuid import UUID

__all__ = [
    "Access",
    "CreatedTransaction",
    "KeyValueTableConfiguration",
    "NodeUri",
    "NoteTimeStatus",
    "PingStatus",
    "RemoveWriterStatus",
    "SegmentWithRange",
    "Successor",
    "Successors",
    "TxnStatus",
]


class Access(Enum):
    """What a delegation token allows."""

    READ = 3
    WRITE = 4
    READ_WRITE = 5


@dataclass(frozen=True, slots=True)
class NodeUri:
    """Address of a server."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class SegmentWithRange:
    """A segment and its part of the key space: positions in ``(low, high]``."""

    segment_id: int
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Successor:
    """A segment that follows a sealed segment, with the ids of all segments that it follows."""

    segment: SegmentWithRange
    predecessors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Successors:
    """What follows a sealed segment; empty if the stream was sealed."""

    successors: tuple[Successor, ...]

    @property
    def segments(self) -> tuple[SegmentWithRange, ...]:
        """The following segments."""
        return tuple(each.segment for each in self.successors)


class TxnStatus(Enum):
    """State of a transaction."""

    UNKNOWN = 0
    OPEN = 1
    COMMITTING = 2
    COMMITTED = 3
    ABORTING = 4
    ABORTED = 5


class PingStatus(Enum):
    """Answer to extending a transaction's lease."""

    OK = 0
    LEASE_TOO_LARGE = 1
    MAX_EXECUTION_TIME_EXCEEDED = 2
    SCALE_GRACE_TIME_EXCEEDED = 3
    DISCONNECTED = 4
    COMMITTED = 5
    ABORTED = 6
    UNKNOWN = 7


class NoteTimeStatus(Enum):
    """Answer to a writer's time mark."""

    SUCCESS = 0
    INVALID_TIME = 1
    INVALID_POSITION = 2
    INTERNAL_ERROR = 3


class RemoveWriterStatus(Enum):
    """Answer to the report that a writer has shut down."""

    SUCCESS = 0
    UNKNOWN_WRITER = 1
    STREAM_DOES_NOT_EXIST = 2
    INTERNAL_ERROR = 3


@dataclass(frozen=True, slots=True)
class CreatedTransaction:
    """A new transaction.

    :ivar txn_id: id of the transaction.
    :ivar segments: segments of its epoch, with generalized ids (``docs/protocol/controller.md``, "Generalized
        segment ids").
    :ivar token: delegation token for the segments; "" without authorization.
    """

    txn_id: UUID
    segments: tuple[SegmentWithRange, ...]
    token: str = field(repr=False, default="")


@dataclass(frozen=True, slots=True)
class KeyValueTableConfiguration:
    """Configuration of a key-value table.

    :param partition_count: number of partitions, fixed for life.
    :param primary_key_length: bytes of each primary key.
    :param secondary_key_length: bytes of each secondary key; 0 for none.
    :param rollover_size_bytes: it is sent, but a 0.13.0 controller does not store it and returns 0.
    """

    partition_count: int
    primary_key_length: int
    secondary_key_length: int = 0
    rollover_size_bytes: int = 0
