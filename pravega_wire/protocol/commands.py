"""Every command of the segment-store wire protocol v0.13.0, as an immutable class.

The class bodies are the one declarative source: from the annotations and their order come the codec
(``codec``), the ``construct`` specification (``specs``) and ``docs/protocol-commands.md``.
A field with a default is an optional trailing one: writers always write it, readers accept a body
that ends before it.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from typing import Annotated, Any, ClassVar, get_type_hints
from uuid import UUID

__all__ = [
    "COMMANDS",
    "FAILURES",
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
    """How a field is written: the notation of the protocol facts (``i64``, ``utf``, ...)."""

    kind: str


@dataclass(frozen=True, slots=True)
class TableKey:
    """A key with the version that an update demands, or that a read found.

    An empty key has no version on the wire; it decodes as -2^63.
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
    """An attribute change that goes with a merge.

    :param update_type: 0 only if absent, 1 replace, 2 replace if greater, 3 add, 4 replace if equal
        to ``old_value``.
    """

    attribute_id: UUID
    update_type: int
    new_value: int
    old_value: int


@dataclass(frozen=True, slots=True)
class ChunkInfo:
    """A piece of a segment in long-term storage; lengths and offsets in bytes."""

    length_in_metadata: int
    length_in_storage: int
    start_offset: int
    chunk_name: str
    exists_in_storage: bool


@dataclass(frozen=True, slots=True)
class TableIteratorArgs:
    """Where an iteration over a table segment goes on; bounds are inclusive."""

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

    :cvar CODE: the command code. :cvar DIRECTION: who sends it: ``C``, ``S`` or both.
    """

    __slots__ = ()
    CODE: ClassVar[int]
    DIRECTION: ClassVar[str]


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One field of a command as it is on the wire.

    :ivar kind: notation of the protocol facts. :ivar optional: may be missing at the end.
    :ivar default: what a reader takes for a missing one.
    """

    name: str
    kind: str
    optional: bool
    default: Any


WIRE_VERSION_HIGH = 16
WIRE_VERSION_LOW = 5


@dataclass(frozen=True, slots=True)
class Hello(Command):
    """Both directions; Hello."""

    CODE: ClassVar[int] = -127
    DIRECTION: ClassVar[str] = "C S"

    high_version: I32
    low_version: I32


@dataclass(frozen=True, slots=True)
class Padding(Command):
    """Client to server; none; only inside an AppendBlock (harmless alone)."""

    CODE: ClassVar[int] = -1
    DIRECTION: ClassVar[str] = "C"

    zeros: Raw


@dataclass(frozen=True, slots=True)
class PartialEvent(Command):
    """Client to server; none; only inside an AppendBlock."""

    CODE: ClassVar[int] = -2
    DIRECTION: ClassVar[str] = "C"

    data: Raw


@dataclass(frozen=True, slots=True)
class FlushToStorage(Command):
    """Client to server; StorageFlushed (admin gateway port only)."""

    CODE: ClassVar[int] = -3
    DIRECTION: ClassVar[str] = "C"

    container_id: I32
    delegation_token: Utf = field(repr=False)
    request_id: I64


@dataclass(frozen=True, slots=True)
class StorageFlushed(Command):
    """Server to client; answers -3."""

    CODE: ClassVar[int] = -4
    DIRECTION: ClassVar[str] = "S"

    request_id: I64


@dataclass(frozen=True, slots=True)
class ListStorageChunks(Command):
    """Client to server; StorageChunksListed (admin gateway port only)."""

    CODE: ClassVar[int] = -5
    DIRECTION: ClassVar[str] = "C"

    segment: Utf
    delegation_token: Utf = field(repr=False)
    request_id: I64


@dataclass(frozen=True, slots=True)
class StorageChunksListed(Command):
    """Server to client; answers -5."""

    CODE: ClassVar[int] = -6
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    chunks: Chunks


@dataclass(frozen=True, slots=True)
class Event(Command):
    """Client to server; none; only inside AppendBlock, ConditionalAppend, and stored data."""

    CODE: ClassVar[int] = 0
    DIRECTION: ClassVar[str] = "C"

    data: Raw


@dataclass(frozen=True, slots=True)
class SetupAppend(Command):
    """Client to server; AppendSetup."""

    CODE: ClassVar[int] = 1
    DIRECTION: ClassVar[str] = "C"

    request_id: I64
    writer_id: Uuid
    segment: Utf
    delegation_token: Utf = field(repr=False)


@dataclass(frozen=True, slots=True)
class AppendSetup(Command):
    """Server to client; answers 1."""

    CODE: ClassVar[int] = 2
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    segment: Utf
    writer_id: Uuid
    last_event_number: I64


@dataclass(frozen=True, slots=True)
class AppendBlock(Command):
    """Client to server; none (see section 6)."""

    CODE: ClassVar[int] = 3
    DIRECTION: ClassVar[str] = "C"

    writer_id: Uuid
    data: Raw


@dataclass(frozen=True, slots=True)
class AppendBlockEnd(Command):
    """Client to server; DataAppended."""

    CODE: ClassVar[int] = 4
    DIRECTION: ClassVar[str] = "C"

    writer_id: Uuid
    size_of_whole_events: I32
    data: Bytes
    num_events: I32
    last_event_number: I64
    request_id: I64 = -1


@dataclass(frozen=True, slots=True)
class ConditionalAppend(Command):
    """Client to server; DataAppended or ConditionalCheckFailed."""

    CODE: ClassVar[int] = 5
    DIRECTION: ClassVar[str] = "C"

    writer_id: Uuid
    event_number: I64
    expected_offset: I64
    event: EventBytes
    request_id: I64 = -1


@dataclass(frozen=True, slots=True)
class DataAppended(Command):
    """Server to client; answers 4, 5, 89."""

    CODE: ClassVar[int] = 7
    DIRECTION: ClassVar[str] = "S"

    writer_id: Uuid
    event_number: I64
    previous_event_number: I64 = -1
    request_id: I64 = -1
    current_segment_write_offset: I64 = -1


@dataclass(frozen=True, slots=True)
class ConditionalCheckFailed(Command):
    """Server to client; answers 5, 89."""

    CODE: ClassVar[int] = 8
    DIRECTION: ClassVar[str] = "S"

    writer_id: Uuid
    event_number: I64
    request_id: I64 = -1


@dataclass(frozen=True, slots=True)
class ReadSegment(Command):
    """Client to server; SegmentRead."""

    CODE: ClassVar[int] = 9
    DIRECTION: ClassVar[str] = "C"

    segment: Utf
    offset: I64
    suggested_length: I32
    delegation_token: Utf = field(repr=False)
    request_id: I64 = -1


@dataclass(frozen=True, slots=True)
class SegmentRead(Command):
    """Server to client; answers 9."""

    CODE: ClassVar[int] = 10
    DIRECTION: ClassVar[str] = "S"

    segment: Utf
    offset: I64
    at_tail: Bool
    end_of_segment: Bool
    data: Bytes
    request_id: I64 = -1


@dataclass(frozen=True, slots=True)
class GetStreamSegmentInfo(Command):
    """Client to server; StreamSegmentInfo."""

    CODE: ClassVar[int] = 11
    DIRECTION: ClassVar[str] = "C"

    request_id: I64
    segment_name: Utf
    delegation_token: Utf = field(repr=False)


@dataclass(frozen=True, slots=True)
class StreamSegmentInfo(Command):
    """Server to client; answers 11."""

    CODE: ClassVar[int] = 12
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    segment_name: Utf
    exists: Bool
    is_sealed: Bool
    is_deleted: Bool
    last_modified: I64
    write_offset: I64
    start_offset: I64 = 0


@dataclass(frozen=True, slots=True)
class CreateSegment(Command):
    """Client to server; SegmentCreated."""

    CODE: ClassVar[int] = 20
    DIRECTION: ClassVar[str] = "C"

    request_id: I64
    segment: Utf
    target_rate: I32
    scale_type: I8
    delegation_token: Utf = field(repr=False)
    rollover_size_bytes: I64 = 0


@dataclass(frozen=True, slots=True)
class SegmentCreated(Command):
    """Server to client; answers 20, 40, 70."""

    CODE: ClassVar[int] = 21
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    segment: Utf


@dataclass(frozen=True, slots=True)
class SealSegment(Command):
    """Client to server; SegmentSealed."""

    CODE: ClassVar[int] = 28
    DIRECTION: ClassVar[str] = "C"

    request_id: I64
    segment: Utf
    delegation_token: Utf = field(repr=False)


@dataclass(frozen=True, slots=True)
class SegmentSealed(Command):
    """Server to client; answers 28."""

    CODE: ClassVar[int] = 29
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    segment: Utf


@dataclass(frozen=True, slots=True)
class DeleteSegment(Command):
    """Client to server; SegmentDeleted."""

    CODE: ClassVar[int] = 30
    DIRECTION: ClassVar[str] = "C"

    request_id: I64
    segment: Utf
    delegation_token: Utf = field(repr=False)


@dataclass(frozen=True, slots=True)
class SegmentDeleted(Command):
    """Server to client; answers 30, 71."""

    CODE: ClassVar[int] = 31
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    segment: Utf


@dataclass(frozen=True, slots=True)
class UpdateSegmentPolicy(Command):
    """Client to server; SegmentPolicyUpdated."""

    CODE: ClassVar[int] = 32
    DIRECTION: ClassVar[str] = "C"

    request_id: I64
    segment: Utf
    target_rate: I32
    scale_type: I8
    delegation_token: Utf = field(repr=False)


@dataclass(frozen=True, slots=True)
class SegmentPolicyUpdated(Command):
    """Server to client; answers 32."""

    CODE: ClassVar[int] = 33
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    segment: Utf


@dataclass(frozen=True, slots=True)
class GetSegmentAttribute(Command):
    """Client to server; SegmentAttribute."""

    CODE: ClassVar[int] = 34
    DIRECTION: ClassVar[str] = "C"

    request_id: I64
    segment_name: Utf
    attribute_id: Uuid
    delegation_token: Utf = field(repr=False)


@dataclass(frozen=True, slots=True)
class SegmentAttribute(Command):
    """Server to client; answers 34."""

    CODE: ClassVar[int] = 35
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    value: I64


@dataclass(frozen=True, slots=True)
class UpdateSegmentAttribute(Command):
    """Client to server; SegmentAttributeUpdated."""

    CODE: ClassVar[int] = 36
    DIRECTION: ClassVar[str] = "C"

    request_id: I64
    segment_name: Utf
    attribute_id: Uuid
    new_value: I64
    expected_value: I64
    delegation_token: Utf = field(repr=False)


@dataclass(frozen=True, slots=True)
class SegmentAttributeUpdated(Command):
    """Server to client; answers 36; also a failed conditional 58 (success = false)."""

    CODE: ClassVar[int] = 37
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    success: Bool


@dataclass(frozen=True, slots=True)
class TruncateSegment(Command):
    """Client to server; SegmentTruncated."""

    CODE: ClassVar[int] = 38
    DIRECTION: ClassVar[str] = "C"

    request_id: I64
    segment: Utf
    truncation_offset: I64
    delegation_token: Utf = field(repr=False)


@dataclass(frozen=True, slots=True)
class SegmentTruncated(Command):
    """Server to client; answers 38."""

    CODE: ClassVar[int] = 39
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    segment: Utf


@dataclass(frozen=True, slots=True)
class CreateTransientSegment(Command):
    """Client to server; SegmentCreated with the server-made name."""

    CODE: ClassVar[int] = 40
    DIRECTION: ClassVar[str] = "C"

    request_id: I64
    writer_id: Uuid
    parent_segment: Utf
    delegation_token: Utf = field(repr=False)


@dataclass(frozen=True, slots=True)
class WrongHost(Command):
    """Server to client; failure."""

    CODE: ClassVar[int] = 50
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    segment: Utf
    correct_host: Utf
    server_stack_trace: Utf = ""


@dataclass(frozen=True, slots=True)
class SegmentIsSealed(Command):
    """Server to client; failure."""

    CODE: ClassVar[int] = 51
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    segment: Utf
    server_stack_trace: Utf = ""
    offset: I64 = -1


@dataclass(frozen=True, slots=True)
class SegmentAlreadyExists(Command):
    """Server to client; failure."""

    CODE: ClassVar[int] = 52
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    segment: Utf
    server_stack_trace: Utf = ""


@dataclass(frozen=True, slots=True)
class NoSuchSegment(Command):
    """Server to client; failure."""

    CODE: ClassVar[int] = 53
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    segment: Utf
    server_stack_trace: Utf = ""
    offset: I64 = -1


@dataclass(frozen=True, slots=True)
class InvalidEventNumber(Command):
    """Server to client; failure."""

    CODE: ClassVar[int] = 55
    DIRECTION: ClassVar[str] = "S"

    writer_id: Uuid
    request_id: I64
    server_stack_trace: Utf = ""
    event_number: I64 = -1


@dataclass(frozen=True, slots=True)
class SegmentIsTruncated(Command):
    """Server to client; failure."""

    CODE: ClassVar[int] = 56
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    segment: Utf
    start_offset: I64
    server_stack_trace: Utf = ""
    offset: I64 = -1


@dataclass(frozen=True, slots=True)
class OperationUnsupported(Command):
    """Server to client; failure."""

    CODE: ClassVar[int] = 57
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    operation_name: Utf
    server_stack_trace: Utf = ""


@dataclass(frozen=True, slots=True)
class MergeSegments(Command):
    """Client to server; SegmentsMerged."""

    CODE: ClassVar[int] = 58
    DIRECTION: ClassVar[str] = "C"

    request_id: I64
    target: Utf
    source: Utf
    delegation_token: Utf = field(repr=False)
    attribute_updates: AttributeUpdates = ()


@dataclass(frozen=True, slots=True)
class SegmentsMerged(Command):
    """Server to client; answers 58."""

    CODE: ClassVar[int] = 59
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    target: Utf
    source: Utf
    new_target_write_offset: I64 = -1


@dataclass(frozen=True, slots=True)
class AuthTokenCheckFailed(Command):
    """Server to client; failure."""

    CODE: ClassVar[int] = 60
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    server_stack_trace: Utf = ""
    error_code: I32 = -1


@dataclass(frozen=True, slots=True)
class ErrorMessage(Command):
    """Server to client; failure."""

    CODE: ClassVar[int] = 61
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    segment: Utf
    message: Utf
    error_code: I32


@dataclass(frozen=True, slots=True)
class GetTableSegmentInfo(Command):
    """Client to server; TableSegmentInfo."""

    CODE: ClassVar[int] = 68
    DIRECTION: ClassVar[str] = "C"

    request_id: I64
    segment_name: Utf
    delegation_token: Utf = field(repr=False)


@dataclass(frozen=True, slots=True)
class TableSegmentInfo(Command):
    """Server to client; answers 68."""

    CODE: ClassVar[int] = 69
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    segment_name: Utf
    start_offset: I64
    length: I64
    entry_count: I64
    key_length: I32


@dataclass(frozen=True, slots=True)
class CreateTableSegment(Command):
    """Client to server; SegmentCreated."""

    CODE: ClassVar[int] = 70
    DIRECTION: ClassVar[str] = "C"

    request_id: I64
    segment: Utf
    delegation_token: Utf = field(repr=False)
    sorted_deprecated: Bool = False
    key_length: I32 = 0
    rollover_size_bytes: I64 = 0


@dataclass(frozen=True, slots=True)
class DeleteTableSegment(Command):
    """Client to server; SegmentDeleted."""

    CODE: ClassVar[int] = 71
    DIRECTION: ClassVar[str] = "C"

    request_id: I64
    segment: Utf
    must_be_empty: Bool
    delegation_token: Utf = field(repr=False)


@dataclass(frozen=True, slots=True)
class UpdateTableEntries(Command):
    """Client to server; TableEntriesUpdated."""

    CODE: ClassVar[int] = 74
    DIRECTION: ClassVar[str] = "C"

    request_id: I64
    segment: Utf
    delegation_token: Utf = field(repr=False)
    table_entries: TableEntries
    table_segment_offset: I64 = -1


@dataclass(frozen=True, slots=True)
class TableEntriesUpdated(Command):
    """Server to client; answers 74."""

    CODE: ClassVar[int] = 75
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    updated_versions: I64List


@dataclass(frozen=True, slots=True)
class RemoveTableKeys(Command):
    """Client to server; TableKeysRemoved."""

    CODE: ClassVar[int] = 76
    DIRECTION: ClassVar[str] = "C"

    request_id: I64
    segment: Utf
    delegation_token: Utf = field(repr=False)
    keys: TableKeys
    table_segment_offset: I64 = -1


@dataclass(frozen=True, slots=True)
class TableKeysRemoved(Command):
    """Server to client; answers 76."""

    CODE: ClassVar[int] = 77
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    segment: Utf


@dataclass(frozen=True, slots=True)
class ReadTable(Command):
    """Client to server; TableRead."""

    CODE: ClassVar[int] = 78
    DIRECTION: ClassVar[str] = "C"

    request_id: I64
    segment: Utf
    delegation_token: Utf = field(repr=False)
    keys: TableKeys


@dataclass(frozen=True, slots=True)
class TableRead(Command):
    """Server to client; answers 78."""

    CODE: ClassVar[int] = 79
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    segment: Utf
    entries: TableEntries


@dataclass(frozen=True, slots=True)
class TableSegmentNotEmpty(Command):
    """Server to client; failure."""

    CODE: ClassVar[int] = 80
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    segment: Utf
    server_stack_trace: Utf


@dataclass(frozen=True, slots=True)
class TableKeyDoesNotExist(Command):
    """Server to client; failure."""

    CODE: ClassVar[int] = 81
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    segment: Utf
    server_stack_trace: Utf


@dataclass(frozen=True, slots=True)
class TableKeyBadVersion(Command):
    """Server to client; failure."""

    CODE: ClassVar[int] = 82
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    segment: Utf
    server_stack_trace: Utf


@dataclass(frozen=True, slots=True)
class ReadTableKeys(Command):
    """Client to server; TableKeysRead."""

    CODE: ClassVar[int] = 83
    DIRECTION: ClassVar[str] = "C"

    request_id: I64
    segment: Utf
    delegation_token: Utf = field(repr=False)
    suggested_key_count: I32
    args: IteratorArgs


@dataclass(frozen=True, slots=True)
class TableKeysRead(Command):
    """Server to client; answers 83."""

    CODE: ClassVar[int] = 84
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    segment: Utf
    keys: TableKeys
    continuation_token: Bytes


@dataclass(frozen=True, slots=True)
class ReadTableEntries(Command):
    """Client to server; TableEntriesRead."""

    CODE: ClassVar[int] = 85
    DIRECTION: ClassVar[str] = "C"

    request_id: I64
    segment: Utf
    delegation_token: Utf = field(repr=False)
    suggested_entry_count: I32
    args: IteratorArgs


@dataclass(frozen=True, slots=True)
class TableEntriesRead(Command):
    """Server to client; answers 85."""

    CODE: ClassVar[int] = 86
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    segment: Utf
    entries: TableEntries
    continuation_token: Bytes


@dataclass(frozen=True, slots=True)
class TableEntriesDeltaRead(Command):
    """Server to client; answers 88."""

    CODE: ClassVar[int] = 87
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    segment: Utf
    entries: TableEntries
    should_clear: Bool
    reached_end: Bool
    last_position: I64


@dataclass(frozen=True, slots=True)
class ReadTableEntriesDelta(Command):
    """Client to server; TableEntriesDeltaRead."""

    CODE: ClassVar[int] = 88
    DIRECTION: ClassVar[str] = "C"

    request_id: I64
    segment: Utf
    delegation_token: Utf = field(repr=False)
    from_position: I64
    suggested_entry_count: I32


@dataclass(frozen=True, slots=True)
class ConditionalBlockEnd(Command):
    """Client to server; DataAppended or ConditionalCheckFailed."""

    CODE: ClassVar[int] = 89
    DIRECTION: ClassVar[str] = "C"

    writer_id: Uuid
    event_number: I64
    expected_offset: I64
    data: Bytes
    request_id: I64


@dataclass(frozen=True, slots=True)
class MergeSegmentsBatch(Command):
    """Client to server; SegmentsBatchMerged."""

    CODE: ClassVar[int] = 90
    DIRECTION: ClassVar[str] = "C"

    request_id: I64
    target_segment_id: Utf
    source_segment_ids: UtfList
    delegation_token: Utf = field(repr=False)


@dataclass(frozen=True, slots=True)
class SegmentsBatchMerged(Command):
    """Server to client; answers 90."""

    CODE: ClassVar[int] = 91
    DIRECTION: ClassVar[str] = "S"

    request_id: I64
    target: Utf
    sources: MergedSources


@dataclass(frozen=True, slots=True)
class KeepAlive(Command):
    """Both directions; KeepAlive."""

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
    """Request id of a reply; 0 for Hello and -1 for what has none (reference client's rule)."""
    return getattr(command, "request_id", _NO_REQUEST.get(command.CODE, -1))


def field_specs(command: type[Command]) -> tuple[FieldSpec, ...]:
    """The fields of a command class in wire order."""
    hints = get_type_hints(command, include_extras=True)
    specs = []
    for each in fields(command):  # type: ignore[arg-type]  # every subclass is a dataclass
        wire = hints[each.name].__metadata__[0]
        optional = each.default is not MISSING
        specs.append(FieldSpec(each.name, wire.kind, optional, each.default if optional else None))
    return tuple(specs)
