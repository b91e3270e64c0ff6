"""Every command of the segment store's wire protocol, version 0.13.0, as an immutable class.

The class bodies are the only declarative source. The codec (``codec``), the ``construct`` specification
(``specs``) and ``docs/protocol-commands.md`` are derived from the annotations, their order and the text below
each field. A field with a default is an optional trailing field: writers always write it, and readers accept
a body that ends before it (``docs/protocol/wire.md``, "Optional trailing fields").

Defined by ``io.pravega.shared.protocol.netty.WireCommands``, 0.13.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Annotated, Any, ClassVar, Final, get_type_hints
from uuid import UUID

__all__ = [
    "COMMANDS",
    "FAILURES",
    "RELEASES",
    "WIRE_VERSION_HIGH",
    "WIRE_VERSION_LOW",
    "AppendBlock",
    "AppendBlockEnd",
    "AppendSetup",
    "AttributeUpdate",
    "AuthTokenCheckFailed",
    "ChunkInfo",
    "Command",
    "ConditionalAppend",
    "ConditionalBlockEnd",
    "ConditionalCheckFailed",
    "CreateSegment",
    "CreateTableSegment",
    "CreateTransientSegment",
    "DataAppended",
    "DeleteSegment",
    "DeleteTableSegment",
    "ErrorMessage",
    "Event",
    "FieldSpec",
    "FlushToStorage",
    "GetSegmentAttribute",
    "GetStreamSegmentInfo",
    "GetTableSegmentInfo",
    "Hello",
    "InvalidEventNumber",
    "KeepAlive",
    "ListStorageChunks",
    "MergeSegments",
    "MergeSegmentsBatch",
    "MergedSource",
    "NoSuchSegment",
    "OperationUnsupported",
    "Padding",
    "PartialEvent",
    "ReadSegment",
    "ReadTable",
    "ReadTableEntries",
    "ReadTableEntriesDelta",
    "ReadTableKeys",
    "RemoveTableKeys",
    "SealSegment",
    "SegmentAlreadyExists",
    "SegmentAttribute",
    "SegmentAttributeUpdated",
    "SegmentCreated",
    "SegmentDeleted",
    "SegmentIsSealed",
    "SegmentIsTruncated",
    "SegmentPolicyUpdated",
    "SegmentRead",
    "SegmentSealed",
    "SegmentTruncated",
    "SegmentsBatchMerged",
    "SegmentsMerged",
    "SetupAppend",
    "StorageChunksListed",
    "StorageFlushed",
    "StreamSegmentInfo",
    "TableEntriesDeltaRead",
    "TableEntriesRead",
    "TableEntriesUpdated",
    "TableEntry",
    "TableIteratorArgs",
    "TableKey",
    "TableKeyBadVersion",
    "TableKeyDoesNotExist",
    "TableKeysRead",
    "TableKeysRemoved",
    "TableRead",
    "TableSegmentInfo",
    "TableSegmentNotEmpty",
    "TruncateSegment",
    "UpdateSegmentAttribute",
    "UpdateSegmentPolicy",
    "UpdateTableEntries",
    "Wire",
    "WrongHost",
    "field_specs",
    "reply_request_id",
]

Buffer = bytes | memoryview


@dataclass(frozen=True, slots=True)
class Wire:
    """How a field is encoded, in the notation of ``docs/protocol/wire.md``, "Field types"."""

    kind: str


@dataclass(frozen=True, slots=True)
class TableKey:
    """A key with the version that an update requires, or that a read found.

    An empty key has no version on the wire; it decodes with version -2^63.
    """

    data: bytes
    version: int


@dataclass(frozen=True, slots=True)
class TableEntry:
    """A key and its value."""

    key: TableKey
    value: bytes


@dataclass(frozen=True, slots=True)
class AttributeUpdate:
    """A change of an attribute that is made together with a merge.

    :param attribute_id: id of the attribute.
    :param update_type: 0 only if absent, 1 replace, 2 replace if greater, 3 add, 4 replace if equal
        to ``old_value``.
    :param new_value: value to set or to add.
    :param old_value: value that the attribute must have, for type 4.
    """

    attribute_id: UUID
    update_type: int
    new_value: int
    old_value: int


@dataclass(frozen=True, slots=True)
class ChunkInfo:
    """A piece of a segment in long-term storage; lengths and offsets are in bytes."""

    length_in_metadata: int
    length_in_storage: int
    start_offset: int
    chunk_name: str
    exists_in_storage: bool


@dataclass(frozen=True, slots=True)
class TableIteratorArgs:
    """Where an iteration over a table segment continues; both keys are inclusive."""

    continuation_token: bytes
    prefix_filter: bytes
    from_key: bytes
    to_key: bytes


@dataclass(frozen=True, slots=True)
class MergedSource:
    """A source segment and the target's length after it was merged."""

    source: str
    new_target_write_offset: int


I64 = Annotated[int, Wire("i64")]
I32 = Annotated[int, Wire("i32")]
I8 = Annotated[int, Wire("i8")]
Bool = Annotated[bool, Wire("bool")]
Utf = Annotated[str, Wire("utf")]
Uuid = Annotated[UUID, Wire("uuid")]
Bytes = Annotated[Buffer, Wire("bytes")]
Raw = Annotated[Buffer, Wire("raw")]
EventBytes = Annotated[Buffer, Wire("EVENT")]
I64List = Annotated[tuple[int, ...], Wire("list<i64>")]
UtfList = Annotated[tuple[str, ...], Wire("list<utf>")]
MergedSources = Annotated[tuple[MergedSource, ...], Wire("list<utf i64>")]
TableKeys = Annotated[tuple[TableKey, ...], Wire("list<KEY>")]
TableEntries = Annotated[tuple[TableEntry, ...], Wire("ENTRIES")]
AttributeUpdates = Annotated[tuple[AttributeUpdate, ...], Wire("list<ATTR>")]
Chunks = Annotated[tuple[ChunkInfo, ...], Wire("list<CHUNK>")]
IteratorArgs = Annotated[TableIteratorArgs, Wire("ITER")]


class Command:
    """Base of all commands.

    :cvar CODE: the command code.
    :cvar DIRECTION: who sends it: ``C`` the client, ``S`` the server, or both.
    :cvar SINCE: the wire version of the first store that knows it, as far as it can be told by that.
    """

    __slots__ = ()
    CODE: ClassVar[int]
    DIRECTION: ClassVar[str]
    SINCE: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One field of a command, as it is on the wire.

    :ivar name: name of the attribute.
    :ivar kind: encoding, in the notation of ``docs/protocol/wire.md``, "Field types".
    :ivar optional: whether the field may be missing at the end of the body.
    :ivar default: value that a reader uses for a missing field.
    """

    name: str
    kind: str
    optional: bool
    default: Any


WIRE_VERSION_HIGH = 16
WIRE_VERSION_LOW = 5

RELEASES: Final[Mapping[int, tuple[str, ...]]] = {
    11: ("0.9",),
    14: ("0.10",),
    15: ("0.11", "0.12"),
    16: ("0.13",),
    17: ("0.14",),
}
"""The releases of Pravega whose stores speak up to each wire version."""


@dataclass(frozen=True, slots=True)
class Hello(Command):
    """Announces the wire versions that the sender supports; the first frame of each side."""

    CODE: ClassVar[int] = -127
    DIRECTION: ClassVar[str] = "C S"

    high_version: I32
    """Highest version supported; 16 for 0.13.0."""

    low_version: I32
    """Lowest version supported; 5 for 0.13.0."""


@dataclass(frozen=True, slots=True)
class Padding(Command):
    """Fills an announced :class:`AppendBlock` up to its length; has no reply."""

    CODE: ClassVar[int] = -1
    DIRECTION: ClassVar[str] = "C"

    zeros: Raw
    """Zero bytes; they are not stored."""


@dataclass(frozen=True, slots=True)
class PartialEvent(Command):
    """The beginning of an event that does not fit into its :class:`AppendBlock`; has no reply."""

    CODE: ClassVar[int] = -2
    DIRECTION: ClassVar[str] = "C"

    data: Raw
    """First bytes of the framed event; the rest is in the :class:`AppendBlockEnd`."""


@dataclass(frozen=True, slots=True)
class FlushToStorage(Command):
    """Makes a container flush to long-term storage; only on the admin gateway port."""

    CODE: ClassVar[int] = -3
    DIRECTION: ClassVar[str] = "C"
    SINCE: ClassVar[int] = 14

    container_id: I32
    """Segment container, from 0."""

    delegation_token: Utf = field(repr=False)
    """Token from the controller; empty without authorization."""

    request_id: I64
    """Chosen by the client; the reply repeats it."""


@dataclass(frozen=True, slots=True)
class StorageFlushed(Command):
    """Answers :class:`FlushToStorage`."""

    CODE: ClassVar[int] = -4
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    """Request id of the request."""


@dataclass(frozen=True, slots=True)
class ListStorageChunks(Command):
    """Lists a segment's pieces in long-term storage; only on the admin gateway port."""

    CODE: ClassVar[int] = -5
    DIRECTION: ClassVar[str] = "C"

    segment: Utf
    """Full name of the segment."""

    delegation_token: Utf = field(repr=False)
    """Token from the controller; empty without authorization."""

    request_id: I64
    """Chosen by the client; the reply repeats it."""


@dataclass(frozen=True, slots=True)
class StorageChunksListed(Command):
    """Answers :class:`ListStorageChunks`."""

    CODE: ClassVar[int] = -6
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    """Request id of the request."""

    chunks: Chunks
    """Pieces of the segment, in order."""


@dataclass(frozen=True, slots=True)
class Event(Command):
    """A framed event; occurs inside :class:`AppendBlock`, :class:`ConditionalAppend` and stored data only."""

    CODE: ClassVar[int] = 0
    DIRECTION: ClassVar[str] = "C"

    data: Raw
    """Payload of the event."""


@dataclass(frozen=True, slots=True)
class SetupAppend(Command):
    """Begins an append session; answered by :class:`AppendSetup`."""

    CODE: ClassVar[int] = 1
    DIRECTION: ClassVar[str] = "C"

    request_id: I64
    """Chosen by the client; used for the whole session."""

    writer_id: Uuid
    """Identifies the writer on this segment; its last event number is kept with the segment."""

    segment: Utf
    """Full name of the segment to append to."""

    delegation_token: Utf = field(repr=False)
    """Token from the controller; empty without authorization."""


@dataclass(frozen=True, slots=True)
class AppendSetup(Command):
    """Answers :class:`SetupAppend`."""

    CODE: ClassVar[int] = 2
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    """Request id of the request."""

    segment: Utf
    """Full name of the segment."""

    writer_id: Uuid
    """The writer id of the request."""

    last_event_number: I64
    """Last event number stored for the writer id; -2^63 for a writer that is new to the segment."""


@dataclass(frozen=True, slots=True)
class AppendBlock(Command):
    """The first part of a block of events.

    Followed by its :class:`AppendBlockEnd` and has no reply of its own.
    """

    CODE: ClassVar[int] = 3
    DIRECTION: ClassVar[str] = "C"

    writer_id: Uuid
    """Writer id of a session on this connection."""

    data: Raw
    """Framed events, and possibly a closing Padding or PartialEvent frame."""


@dataclass(frozen=True, slots=True)
class AppendBlockEnd(Command):
    """Completes a block, or is a whole block where no :class:`AppendBlock` comes before it.

    Answered by :class:`DataAppended`.
    """

    CODE: ClassVar[int] = 4
    DIRECTION: ClassVar[str] = "C"

    writer_id: Uuid
    """Writer id of a session on this connection."""

    size_of_whole_events: I32
    """Bytes of whole events in the AppendBlock; ignored without one."""

    data: Bytes
    """Rest of a split event, or all framed events of a block without AppendBlock."""

    num_events: I32
    """Events in the block, at least 1."""

    last_event_number: I64
    """Number of the last event in the block; never lower than before in the session."""

    request_id: I64 = -1
    """Request id of the set-up."""


@dataclass(frozen=True, slots=True)
class ConditionalAppend(Command):
    """Appends one event if the segment has a given length.

    Answered by :class:`DataAppended` or :class:`ConditionalCheckFailed`.
    """

    CODE: ClassVar[int] = 5
    DIRECTION: ClassVar[str] = "C"

    writer_id: Uuid
    """Writer id of a session on this connection."""

    event_number: I64
    """Number of this attempt, growing."""

    expected_offset: I64
    """Length in bytes that the segment must have."""

    event: EventBytes
    """Payload; stored with an event header."""

    request_id: I64 = -1
    """Chosen by the client; the reply repeats it."""


@dataclass(frozen=True, slots=True)
class DataAppended(Command):
    """Acknowledges :class:`AppendBlockEnd`, :class:`ConditionalAppend` or :class:`ConditionalBlockEnd`."""

    CODE: ClassVar[int] = 7
    DIRECTION: ClassVar[str] = "S"

    writer_id: Uuid
    """Writer id of the session."""

    event_number: I64
    """Everything up to this number is durable."""

    previous_event_number: I64 = -1
    """Number acknowledged before this one; -2^63 if none."""

    request_id: I64 = -1
    """Request id of the request; for a block, of the set-up."""

    current_segment_write_offset: I64 = -1
    """The segment's length in bytes after the append."""


@dataclass(frozen=True, slots=True)
class ConditionalCheckFailed(Command):
    """Refuses :class:`ConditionalAppend` or :class:`ConditionalBlockEnd`.

    The segment has another length, and nothing was stored.
    """

    CODE: ClassVar[int] = 8
    DIRECTION: ClassVar[str] = "S"

    writer_id: Uuid
    """Writer id of the session."""

    event_number: I64
    """Number of the refused request."""

    request_id: I64 = -1
    """Request id of the request."""


@dataclass(frozen=True, slots=True)
class ReadSegment(Command):
    """Asks for bytes of a segment.

    Answered by :class:`SegmentRead`, at the end of an open segment only once there are more.
    """

    CODE: ClassVar[int] = 9
    DIRECTION: ClassVar[str] = "C"

    segment: Utf
    """Full name of the segment."""

    offset: I64
    """First byte wanted."""

    suggested_length: I32
    """Bytes wanted; the reply may hold fewer, and at most 2 MiB."""

    delegation_token: Utf = field(repr=False)
    """Token from the controller; empty without authorization."""

    request_id: I64 = -1
    """Chosen by the client; the reply repeats it."""


@dataclass(frozen=True, slots=True)
class SegmentRead(Command):
    """Answers :class:`ReadSegment`."""

    CODE: ClassVar[int] = 10
    DIRECTION: ClassVar[str] = "S"

    segment: Utf
    """Full name of the segment."""

    offset: I64
    """Offset of the first byte, as asked for."""

    at_tail: Bool
    """True if the data reaches the present end of the segment; false proves nothing."""

    end_of_segment: Bool
    """True if the segment is sealed and ends after the data."""

    data: Bytes
    """Raw bytes; events may be cut anywhere."""

    request_id: I64 = -1
    """Request id of the request."""


@dataclass(frozen=True, slots=True)
class GetStreamSegmentInfo(Command):
    """Asks for a segment's length and state; answered by :class:`StreamSegmentInfo`."""

    CODE: ClassVar[int] = 11
    DIRECTION: ClassVar[str] = "C"

    request_id: I64
    """Chosen by the client; the reply repeats it."""

    segment_name: Utf
    """Full name of the segment."""

    delegation_token: Utf = field(repr=False)
    """Token from the controller; empty without authorization."""


@dataclass(frozen=True, slots=True)
class StreamSegmentInfo(Command):
    """Answers :class:`GetStreamSegmentInfo`."""

    CODE: ClassVar[int] = 12
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    """Request id of the request."""

    segment_name: Utf
    """Full name of the segment."""

    exists: Bool
    """False if the segment does not exist."""

    is_sealed: Bool
    """True if the segment takes no more data."""

    is_deleted: Bool
    """True if the segment was deleted."""

    last_modified: I64
    """Time of the last change, milliseconds since 1970."""

    write_offset: I64
    """Length in bytes, and offset of the next append."""

    start_offset: I64 = 0
    """First readable offset."""


@dataclass(frozen=True, slots=True)
class CreateSegment(Command):
    """Creates a segment; answered by :class:`SegmentCreated`."""

    CODE: ClassVar[int] = 20
    DIRECTION: ClassVar[str] = "C"

    request_id: I64
    """Chosen by the client; the reply repeats it."""

    segment: Utf
    """Full name of the new segment."""

    target_rate: I32
    """Rate that the segment should carry, in the unit of ``scale_type``."""

    scale_type: I8
    """0 none, 1 KiB per second, 2 events per second."""

    delegation_token: Utf = field(repr=False)
    """Token from the controller; empty without authorization."""

    rollover_size_bytes: I64 = 0
    """Size of the pieces in long-term storage; 0 or less for the server's default."""


@dataclass(frozen=True, slots=True)
class SegmentCreated(Command):
    """Answers :class:`CreateSegment`, :class:`CreateTransientSegment` and :class:`CreateTableSegment`."""

    CODE: ClassVar[int] = 21
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    """Request id of the request."""

    segment: Utf
    """Full name of the new segment."""


@dataclass(frozen=True, slots=True)
class SealSegment(Command):
    """Seals a segment; answered by :class:`SegmentSealed`."""

    CODE: ClassVar[int] = 28
    DIRECTION: ClassVar[str] = "C"

    request_id: I64
    """Chosen by the client; the reply repeats it."""

    segment: Utf
    """Full name of the segment."""

    delegation_token: Utf = field(repr=False)
    """Token from the controller; empty without authorization."""


@dataclass(frozen=True, slots=True)
class SegmentSealed(Command):
    """Answers :class:`SealSegment`."""

    CODE: ClassVar[int] = 29
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    """Request id of the request."""

    segment: Utf
    """Full name of the segment."""


@dataclass(frozen=True, slots=True)
class DeleteSegment(Command):
    """Deletes a segment; answered by :class:`SegmentDeleted`. Never send it for a segment that was merged."""

    CODE: ClassVar[int] = 30
    DIRECTION: ClassVar[str] = "C"

    request_id: I64
    """Chosen by the client; the reply repeats it."""

    segment: Utf
    """Full name of the segment."""

    delegation_token: Utf = field(repr=False)
    """Token from the controller; empty without authorization."""


@dataclass(frozen=True, slots=True)
class SegmentDeleted(Command):
    """Answers :class:`DeleteSegment` and :class:`DeleteTableSegment`."""

    CODE: ClassVar[int] = 31
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    """Request id of the request."""

    segment: Utf
    """Full name of the segment."""


@dataclass(frozen=True, slots=True)
class UpdateSegmentPolicy(Command):
    """Changes a segment's scaling policy; answered by :class:`SegmentPolicyUpdated`."""

    CODE: ClassVar[int] = 32
    DIRECTION: ClassVar[str] = "C"

    request_id: I64
    """Chosen by the client; the reply repeats it."""

    segment: Utf
    """Full name of the segment."""

    target_rate: I32
    """Rate that the segment should carry, in the unit of ``scale_type``."""

    scale_type: I8
    """0 none, 1 KiB per second, 2 events per second."""

    delegation_token: Utf = field(repr=False)
    """Token from the controller; empty without authorization."""


@dataclass(frozen=True, slots=True)
class SegmentPolicyUpdated(Command):
    """Answers :class:`UpdateSegmentPolicy`."""

    CODE: ClassVar[int] = 33
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    """Request id of the request."""

    segment: Utf
    """Full name of the segment."""


@dataclass(frozen=True, slots=True)
class GetSegmentAttribute(Command):
    """Asks for an attribute of a segment; answered by :class:`SegmentAttribute`."""

    CODE: ClassVar[int] = 34
    DIRECTION: ClassVar[str] = "C"

    request_id: I64
    """Chosen by the client; the reply repeats it."""

    segment_name: Utf
    """Full name of the segment."""

    attribute_id: Uuid
    """Id of the attribute; of a writer id, its last event number."""

    delegation_token: Utf = field(repr=False)
    """Token from the controller; empty without authorization."""


@dataclass(frozen=True, slots=True)
class SegmentAttribute(Command):
    """Answers :class:`GetSegmentAttribute`."""

    CODE: ClassVar[int] = 35
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    """Request id of the request."""

    value: I64
    """Value of the attribute; -2^63 if it is not set."""


@dataclass(frozen=True, slots=True)
class UpdateSegmentAttribute(Command):
    """Sets an attribute if it has an expected value; answered by :class:`SegmentAttributeUpdated`."""

    CODE: ClassVar[int] = 36
    DIRECTION: ClassVar[str] = "C"

    request_id: I64
    """Chosen by the client; the reply repeats it."""

    segment_name: Utf
    """Full name of the segment."""

    attribute_id: Uuid
    """Id of the attribute."""

    new_value: I64
    """Value to set; -2^63 clears the attribute."""

    expected_value: I64
    """Value that the attribute must have; -2^63 if it must not be set."""

    delegation_token: Utf = field(repr=False)
    """Token from the controller; empty without authorization."""


@dataclass(frozen=True, slots=True)
class SegmentAttributeUpdated(Command):
    """Answers :class:`UpdateSegmentAttribute`, and a :class:`MergeSegments` whose condition failed."""

    CODE: ClassVar[int] = 37
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    """Request id of the request."""

    success: Bool
    """False if the attribute had another value, and nothing was changed."""


@dataclass(frozen=True, slots=True)
class TruncateSegment(Command):
    """Drops the beginning of a segment; answered by :class:`SegmentTruncated`."""

    CODE: ClassVar[int] = 38
    DIRECTION: ClassVar[str] = "C"

    request_id: I64
    """Chosen by the client; the reply repeats it."""

    segment: Utf
    """Full name of the segment."""

    truncation_offset: I64
    """First offset that stays readable, between start offset and length."""

    delegation_token: Utf = field(repr=False)
    """Token from the controller; empty without authorization."""


@dataclass(frozen=True, slots=True)
class SegmentTruncated(Command):
    """Answers :class:`TruncateSegment`."""

    CODE: ClassVar[int] = 39
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    """Request id of the request."""

    segment: Utf
    """Full name of the segment."""


@dataclass(frozen=True, slots=True)
class CreateTransientSegment(Command):
    """Creates a segment for a large event.

    Answered by :class:`SegmentCreated` with the name that the server made.
    """

    CODE: ClassVar[int] = 40
    DIRECTION: ClassVar[str] = "C"
    SINCE: ClassVar[int] = 15

    request_id: I64
    """Chosen by the client; the reply repeats it."""

    writer_id: Uuid
    """Writer id, which becomes part of the name."""

    parent_segment: Utf
    """Full name of the segment that it will be merged into."""

    delegation_token: Utf = field(repr=False)
    """Token from the controller; empty without authorization."""


@dataclass(frozen=True, slots=True)
class WrongHost(Command):
    """Refuses a request: another segment store serves the segment."""

    CODE: ClassVar[int] = 50
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    """Request id of the request."""

    segment: Utf
    """Full name of the segment."""

    correct_host: Utf
    """Always empty; ask the controller."""

    server_stack_trace: Utf = ""
    """Stack trace, if the server is configured to send one; else empty."""


@dataclass(frozen=True, slots=True)
class SegmentIsSealed(Command):
    """Refuses a request: the segment is sealed."""

    CODE: ClassVar[int] = 51
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    """Request id of the request."""

    segment: Utf
    """Full name of the segment."""

    server_stack_trace: Utf = ""
    """Stack trace, if the server is configured to send one; else empty."""

    offset: I64 = -1
    """Offset of the refused read, or number of the refused event; -1 if not known."""


@dataclass(frozen=True, slots=True)
class SegmentAlreadyExists(Command):
    """Refuses a request: the segment exists."""

    CODE: ClassVar[int] = 52
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    """Request id of the request."""

    segment: Utf
    """Full name of the segment."""

    server_stack_trace: Utf = ""
    """Stack trace, if the server is configured to send one; else empty."""


@dataclass(frozen=True, slots=True)
class NoSuchSegment(Command):
    """Refuses a request: the segment does not exist."""

    CODE: ClassVar[int] = 53
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    """Request id of the request."""

    segment: Utf
    """Full name of the segment; of a merge, always the source."""

    server_stack_trace: Utf = ""
    """Stack trace, if the server is configured to send one; else empty."""

    offset: I64 = -1
    """Offset of the refused read; -1 for other requests."""


@dataclass(frozen=True, slots=True)
class InvalidEventNumber(Command):
    """Refuses an append: the stored event number is not the one that the session expected.

    The server then closes the connection.
    """

    CODE: ClassVar[int] = 55
    DIRECTION: ClassVar[str] = "S"

    writer_id: Uuid
    """Writer id of the session."""

    request_id: I64
    """Request id of the request."""

    server_stack_trace: Utf = ""
    """Stack trace, if the server is configured to send one; else empty."""

    event_number: I64 = -1
    """Number of the refused event; -1 if not known."""


@dataclass(frozen=True, slots=True)
class SegmentIsTruncated(Command):
    """Refuses a request: its offset is not in the segment."""

    CODE: ClassVar[int] = 56
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    """Request id of the request."""

    segment: Utf
    """Full name of the segment."""

    start_offset: I64
    """First readable offset, or the offset that was expected."""

    server_stack_trace: Utf = ""
    """Stack trace, if the server is configured to send one; else empty."""

    offset: I64 = -1
    """Offset of the refused request; -1 if not known."""


@dataclass(frozen=True, slots=True)
class OperationUnsupported(Command):
    """Refuses a request: the server does not support it for this segment."""

    CODE: ClassVar[int] = 57
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    """Request id of the request."""

    operation_name: Utf
    """Name of the operation."""

    server_stack_trace: Utf = ""
    """Stack trace, if the server is configured to send one; else empty."""


@dataclass(frozen=True, slots=True)
class MergeSegments(Command):
    """Appends a source segment to a target and removes the source; answered by :class:`SegmentsMerged`."""

    CODE: ClassVar[int] = 58
    DIRECTION: ClassVar[str] = "C"

    request_id: I64
    """Chosen by the client; the reply repeats it."""

    target: Utf
    """Full name of the segment that is appended to."""

    source: Utf
    """Full name of the segment that is merged; sealed first if needed."""

    delegation_token: Utf = field(repr=False)
    """Token from the controller; empty without authorization."""

    attribute_updates: AttributeUpdates = ()
    """Attribute changes of the target, made in the same step."""


@dataclass(frozen=True, slots=True)
class SegmentsMerged(Command):
    """Answers :class:`MergeSegments`."""

    CODE: ClassVar[int] = 59
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    """Request id of the request."""

    target: Utf
    """Full name of the target."""

    source: Utf
    """Full name of the source."""

    new_target_write_offset: I64 = -1
    """The target's length in bytes after the merge."""


@dataclass(frozen=True, slots=True)
class AuthTokenCheckFailed(Command):
    """Refuses a request because of its delegation token."""

    CODE: ClassVar[int] = 60
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    """Request id of the request; for a refused :class:`ReadSegment`, its *offset*."""

    server_stack_trace: Utf = ""
    """Stack trace, if the server is configured to send one; else empty."""

    error_code: I32 = -1
    """1 the token has expired, 0 the check failed, -1 unspecified."""


@dataclass(frozen=True, slots=True)
class ErrorMessage(Command):
    """Refuses a request for another reason."""

    CODE: ClassVar[int] = 61
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    """Request id of the request."""

    segment: Utf
    """Full name of the segment."""

    message: Utf
    """Text of the server."""

    error_code: I32
    """0 illegal argument, -1 unspecified."""


@dataclass(frozen=True, slots=True)
class GetTableSegmentInfo(Command):
    """Asks for a table segment's size; answered by :class:`TableSegmentInfo`."""

    CODE: ClassVar[int] = 68
    DIRECTION: ClassVar[str] = "C"
    SINCE: ClassVar[int] = 14

    request_id: I64
    """Chosen by the client; the reply repeats it."""

    segment_name: Utf
    """Full name of the table segment."""

    delegation_token: Utf = field(repr=False)
    """Token from the controller; empty without authorization."""


@dataclass(frozen=True, slots=True)
class TableSegmentInfo(Command):
    """Answers :class:`GetTableSegmentInfo`."""

    CODE: ClassVar[int] = 69
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    """Request id of the request."""

    segment_name: Utf
    """Full name of the table segment."""

    start_offset: I64
    """First readable offset."""

    length: I64
    """Length in bytes."""

    entry_count: I64
    """Number of entries; an estimate, which lags."""

    key_length: I32
    """Length of all keys in bytes; 0 in a hash table."""


@dataclass(frozen=True, slots=True)
class CreateTableSegment(Command):
    """Creates a table segment; answered by :class:`SegmentCreated`."""

    CODE: ClassVar[int] = 70
    DIRECTION: ClassVar[str] = "C"

    request_id: I64
    """Chosen by the client; the reply repeats it."""

    segment: Utf
    """Full name of the new segment."""

    delegation_token: Utf = field(repr=False)
    """Token from the controller; empty without authorization."""

    sorted_deprecated: Bool = False
    """Not used any more."""

    key_length: I32 = 0
    """Length of all keys in bytes; 0 makes a hash table."""

    rollover_size_bytes: I64 = 0
    """Size of the pieces in long-term storage; 0 or less for the server's default."""


@dataclass(frozen=True, slots=True)
class DeleteTableSegment(Command):
    """Deletes a table segment; answered by :class:`SegmentDeleted`."""

    CODE: ClassVar[int] = 71
    DIRECTION: ClassVar[str] = "C"

    request_id: I64
    """Chosen by the client; the reply repeats it."""

    segment: Utf
    """Full name of the table segment."""

    must_be_empty: Bool
    """Refuse if there are entries; hash tables only."""

    delegation_token: Utf = field(repr=False)
    """Token from the controller; empty without authorization."""


@dataclass(frozen=True, slots=True)
class UpdateTableEntries(Command):
    """Inserts or replaces entries, all or none; answered by :class:`TableEntriesUpdated`."""

    CODE: ClassVar[int] = 74
    DIRECTION: ClassVar[str] = "C"

    request_id: I64
    """Chosen by the client; the reply repeats it."""

    segment: Utf
    """Full name of the table segment."""

    delegation_token: Utf = field(repr=False)
    """Token from the controller; empty without authorization."""

    table_entries: TableEntries
    """Entries; each key has the version that it must have, -1 for must not exist, -2^63 for no condition."""

    table_segment_offset: I64 = -1
    """Length that the segment must have; -1 for no condition."""


@dataclass(frozen=True, slots=True)
class TableEntriesUpdated(Command):
    """Answers :class:`UpdateTableEntries`."""

    CODE: ClassVar[int] = 75
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    """Request id of the request."""

    updated_versions: I64List
    """New versions, in the request's order."""


@dataclass(frozen=True, slots=True)
class RemoveTableKeys(Command):
    """Removes keys, all or none; answered by :class:`TableKeysRemoved`."""

    CODE: ClassVar[int] = 76
    DIRECTION: ClassVar[str] = "C"

    request_id: I64
    """Chosen by the client; the reply repeats it."""

    segment: Utf
    """Full name of the table segment."""

    delegation_token: Utf = field(repr=False)
    """Token from the controller; empty without authorization."""

    keys: TableKeys
    """Keys, with conditions as in :class:`UpdateTableEntries`."""

    table_segment_offset: I64 = -1
    """Length that the segment must have; -1 for no condition."""


@dataclass(frozen=True, slots=True)
class TableKeysRemoved(Command):
    """Answers :class:`RemoveTableKeys`."""

    CODE: ClassVar[int] = 77
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    """Request id of the request."""

    segment: Utf
    """Full name of the table segment."""


@dataclass(frozen=True, slots=True)
class ReadTable(Command):
    """Asks for the entries of keys; answered by :class:`TableRead`."""

    CODE: ClassVar[int] = 78
    DIRECTION: ClassVar[str] = "C"

    request_id: I64
    """Chosen by the client; the reply repeats it."""

    segment: Utf
    """Full name of the table segment."""

    delegation_token: Utf = field(repr=False)
    """Token from the controller; empty without authorization."""

    keys: TableKeys
    """Keys wanted, each with version -2^63."""


@dataclass(frozen=True, slots=True)
class TableRead(Command):
    """Answers :class:`ReadTable`."""

    CODE: ClassVar[int] = 79
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    """Request id of the request."""

    segment: Utf
    """Full name of the table segment."""

    entries: TableEntries
    """Entries in the request's order; version -1 for a key that does not exist, whose bytes must not be
    trusted."""


@dataclass(frozen=True, slots=True)
class TableSegmentNotEmpty(Command):
    """Refuses :class:`DeleteTableSegment`: there are entries."""

    CODE: ClassVar[int] = 80
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    """Request id of the request."""

    segment: Utf
    """Full name of the table segment."""

    server_stack_trace: Utf
    """Stack trace, if the server is configured to send one; else empty."""


@dataclass(frozen=True, slots=True)
class TableKeyDoesNotExist(Command):
    """Refuses a conditional update: a key does not exist."""

    CODE: ClassVar[int] = 81
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    """Request id of the request."""

    segment: Utf
    """Full name of the table segment."""

    server_stack_trace: Utf
    """Stack trace, if the server is configured to send one; else empty."""


@dataclass(frozen=True, slots=True)
class TableKeyBadVersion(Command):
    """Refuses a conditional update: a key has another version."""

    CODE: ClassVar[int] = 82
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    """Request id of the request."""

    segment: Utf
    """Full name of the table segment."""

    server_stack_trace: Utf
    """Stack trace, if the server is configured to send one; else empty."""


@dataclass(frozen=True, slots=True)
class ReadTableKeys(Command):
    """Lists keys; answered by :class:`TableKeysRead`."""

    CODE: ClassVar[int] = 83
    DIRECTION: ClassVar[str] = "C"

    request_id: I64
    """Chosen by the client; the reply repeats it."""

    segment: Utf
    """Full name of the table segment."""

    delegation_token: Utf = field(repr=False)
    """Token from the controller; empty without authorization."""

    suggested_key_count: I32
    """Keys wanted; the reply may hold fewer."""

    args: IteratorArgs
    """Where to begin and to end."""


@dataclass(frozen=True, slots=True)
class TableKeysRead(Command):
    """Answers :class:`ReadTableKeys`."""

    CODE: ClassVar[int] = 84
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    """Request id of the request."""

    segment: Utf
    """Full name of the table segment."""

    keys: TableKeys
    """Keys with their versions; none at the end."""

    continuation_token: Bytes
    """Where the next page of a hash table begins; ignore it for other tables."""


@dataclass(frozen=True, slots=True)
class ReadTableEntries(Command):
    """Lists entries; answered by :class:`TableEntriesRead`."""

    CODE: ClassVar[int] = 85
    DIRECTION: ClassVar[str] = "C"

    request_id: I64
    """Chosen by the client; the reply repeats it."""

    segment: Utf
    """Full name of the table segment."""

    delegation_token: Utf = field(repr=False)
    """Token from the controller; empty without authorization."""

    suggested_entry_count: I32
    """Entries wanted; all of them come in one reply, which may be too large."""

    args: IteratorArgs
    """Where to begin and to end."""


@dataclass(frozen=True, slots=True)
class TableEntriesRead(Command):
    """Answers :class:`ReadTableEntries`."""

    CODE: ClassVar[int] = 86
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    """Request id of the request."""

    segment: Utf
    """Full name of the table segment."""

    entries: TableEntries
    """Entries with their versions; none at the end."""

    continuation_token: Bytes
    """Where the next page of a hash table begins; ignore it for other tables."""


@dataclass(frozen=True, slots=True)
class TableEntriesDeltaRead(Command):
    """Answers :class:`ReadTableEntriesDelta`."""

    CODE: ClassVar[int] = 87
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    """Request id of the request."""

    segment: Utf
    """Full name of the table segment."""

    entries: TableEntries
    """Entries changed since the position."""

    should_clear: Bool
    """True if the position was truncated away: discard what is known."""

    reached_end: Bool
    """True if there are no more changes."""

    last_position: I64
    """Position to continue from."""


@dataclass(frozen=True, slots=True)
class ReadTableEntriesDelta(Command):
    """Lists what has changed in a hash table; answered by :class:`TableEntriesDeltaRead`."""

    CODE: ClassVar[int] = 88
    DIRECTION: ClassVar[str] = "C"

    request_id: I64
    """Chosen by the client; the reply repeats it."""

    segment: Utf
    """Full name of the table segment."""

    delegation_token: Utf = field(repr=False)
    """Token from the controller; empty without authorization."""

    from_position: I64
    """Position to begin at, at most the length."""

    suggested_entry_count: I32
    """Entries wanted; the reply may hold fewer."""


@dataclass(frozen=True, slots=True)
class ConditionalBlockEnd(Command):
    """Appends raw bytes if the segment has a given length.

    Answered by :class:`DataAppended` or :class:`ConditionalCheckFailed`.
    """

    CODE: ClassVar[int] = 89
    DIRECTION: ClassVar[str] = "C"

    writer_id: Uuid
    """Writer id of a session on this connection."""

    event_number: I64
    """Number of this piece, from 0."""

    expected_offset: I64
    """Length in bytes that the segment must have."""

    data: Bytes
    """Bytes to store as they are, without an event header."""

    request_id: I64
    """Chosen by the client; the reply repeats it."""


@dataclass(frozen=True, slots=True)
class MergeSegmentsBatch(Command):
    """Appends several source segments to a target, in order; answered by :class:`SegmentsBatchMerged`."""

    CODE: ClassVar[int] = 90
    DIRECTION: ClassVar[str] = "C"
    SINCE: ClassVar[int] = 15

    request_id: I64
    """Chosen by the client; the reply repeats it."""

    target_segment_id: Utf
    """Full name of the segment that is appended to."""

    source_segment_ids: UtfList
    """Full names of the segments that are merged."""

    delegation_token: Utf = field(repr=False)
    """Token from the controller; empty without authorization."""


@dataclass(frozen=True, slots=True)
class SegmentsBatchMerged(Command):
    """Answers :class:`MergeSegmentsBatch`."""

    CODE: ClassVar[int] = 91
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    """Request id of the request."""

    target: Utf
    """Full name of the target."""

    sources: MergedSources
    """Each source with the target's length after it."""


@dataclass(frozen=True, slots=True)
class KeepAlive(Command):
    """Asks the peer for a sign of life; the server echoes it."""

    CODE: ClassVar[int] = 100
    DIRECTION: ClassVar[str] = "C S"


COMMANDS: dict[int, type[Command]] = {
    each.CODE: each
    for each in list(globals().values())
    if isinstance(each, type) and issubclass(each, Command) and each is not Command
}
"""Every command class by its code."""

FAILURES: tuple[type[Command], ...] = (
    WrongHost,
    SegmentIsSealed,
    SegmentAlreadyExists,
    NoSuchSegment,
    InvalidEventNumber,
    SegmentIsTruncated,
    OperationUnsupported,
    AuthTokenCheckFailed,
    ErrorMessage,
    TableSegmentNotEmpty,
    TableKeyDoesNotExist,
    TableKeyBadVersion,
)
"""Replies that refuse a request."""

_NO_REQUEST = {Hello.CODE: 0, KeepAlive.CODE: -1}


def reply_request_id(command: Command) -> int:
    """Return the request id of a reply.

    :returns: 0 for ``Hello``, and -1 for other commands without a request id, as the Java client does.
    """
    return getattr(command, "request_id", _NO_REQUEST.get(command.CODE, -1))


def field_specs(command: type[Command]) -> tuple[FieldSpec, ...]:
    """Return the fields of a command class in wire order."""
    hints = get_type_hints(command, include_extras=True)
    specs = []
    for each in fields(command):  # type: ignore[arg-type]  # every subclass is a dataclass
        wire = hints[each.name].__metadata__[0]
        optional = each.default is not MISSING
        specs.append(FieldSpec(each.name, wire.kind, optional, each.default if optional else None))
    return tuple(specs)
