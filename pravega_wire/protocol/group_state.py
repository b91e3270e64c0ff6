"""The state that the readers of a group share: its records, and the effect of each.

A group's state is kept in the stream of a state synchronizer. Records and effects are those of the Java
client 0.13.0 (``docs/protocol/formats.md``, "Records of a reader group"), so that Java readers can be in the
same group. Nothing here may differ from Java, even where something else would be better.

Defined by ``io.pravega.client.stream.impl.ReaderGroupState``, 0.13.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, TypeVar

from pravega_wire.errors import CorruptedStateError, DecodeError, InvalidArgumentError
from pravega_wire.protocol.formats import (
    decode_stream_cut,
    encode_stream_cut,
    read_key_range,
    write_key_range,
)
from pravega_wire.protocol.versioned import (
    DataReader,
    DataWriter,
    RevisionReader,
    encode_record,
    read_record,
    read_typed_record_from,
)
from pravega_wire.support.checks import milliseconds
from pravega_wire.values.groups import ReaderGroupConfig, RetentionType
from pravega_wire.values.naming import parse_segment_name
from pravega_wire.values.positions import KeyRange
from pravega_wire.values.types import ScopedStream, StreamCut

__all__ = [
    "ASSUMED_LAG_MS",
    "NO_END",
    "SILENT",
    "AcquireSegment",
    "AddReader",
    "CheckpointReader",
    "CheckpointState",
    "ClearCheckpointsBefore",
    "CompactReaderGroupState",
    "CreateCheckpoint",
    "GroupInit",
    "GroupState",
    "GroupStateFormat",
    "GroupUpdate",
    "ReaderGroupStateInit",
    "ReleaseSegment",
    "RemoveOutstandingCheckpoints",
    "RemoveReader",
    "SegmentCompleted",
    "UpdateCheckpointPublished",
    "UpdateDistanceToTail",
    "UpdatingConfig",
    "decode_checkpoint_state",
    "decode_group_config",
    "decode_group_record",
    "encode_checkpoint_state",
    "encode_group_config",
    "encode_group_record",
    "is_silent",
    "segment_id_of",
    "stream_of",
]

T = TypeVar("T")

SILENT: Final = "_SILENT_"
"""Part of the id of a silent checkpoint, for which readers return no event."""

ASSUMED_LAG_MS: Final = 30_000
"""Smallest distance to the tail that a reader counts with, milliseconds."""

NO_END: Final = (1 << 63) - 1
"""End offset of a segment that the group reads to its end."""

# Distance to the tail of a reader that has not reported one.
_NEVER_HEARD: Final = (1 << 63) - 1

Offsets = Mapping[str, int]
"""Full segment name to offset in bytes; -1 for a segment that was read to its end."""


def is_silent(checkpoint: str) -> bool:
    """Return whether readers answer a checkpoint without returning it to their user."""
    return SILENT in checkpoint


def segment_id_of(segment: str) -> int:
    """Return the id of a segment in its stream, from its full name."""
    return parse_segment_name(segment)[2]


def stream_of(segment: str) -> ScopedStream:
    """Return the stream of a segment, from its full name."""
    scope, stream, _, _ = parse_segment_name(segment)
    return ScopedStream(scope, stream)


# --- the configuration ----------------------------------------------------------------------------


def encode_group_config(config: ReaderGroupConfig) -> bytes:
    """Encode a group's configuration, version 0 with its three revisions."""

    def write_cuts(target: DataWriter, cuts: Mapping[ScopedStream, StreamCut | None]) -> None:
        target.mapping(
            cuts,
            lambda body, stream: body.utf(str(stream)),
            lambda body, cut: body.array(encode_stream_cut(cut)),
        )

    def first(target: DataWriter) -> None:
        target.int64(milliseconds(config.automatic_checkpoint_interval))
        target.int64(milliseconds(config.group_refresh_interval))
        write_cuts(target, config.starts)
        write_cuts(target, config.ends)

    def second(target: DataWriter) -> None:
        first(target)
        target.int32(config.max_outstanding_checkpoints)

    def third(target: DataWriter) -> None:
        target.compact_int(config.retention.value).int64(config.generation).uuid(config.group_id)

    return encode_record([first, second, third])


def decode_group_config(data: bytes) -> ReaderGroupConfig:
    """Decode a group's configuration.

    :raises DecodeError: it is malformed, or has values that no group can have.
    """
    found: dict[str, Any] = {}

    def read_cuts(source: DataReader) -> dict[ScopedStream, StreamCut | None]:
        pairs = source.mapping(DataReader.utf, DataReader.array)
        return {ScopedStream.parse(stream): decode_stream_cut(cut) for stream, cut in pairs.items()}

    def first(source: DataReader) -> None:
        found["automatic_checkpoint_interval"] = source.int64() / 1000
        # Other clients accept less than 0, which is the same.
        found["group_refresh_interval"] = max(0, source.int64()) / 1000
        found["starts"] = read_cuts(source)
        found["ends"] = read_cuts(source)

    def second(source: DataReader) -> None:
        first(source)
        found["max_outstanding_checkpoints"] = source.int32()

    def third(source: DataReader) -> None:
        found["retention"] = RetentionType(source.compact_int())
        found["generation"] = source.int64()
        found["group_id"] = source.uuid()

    try:
        read_record(data, {0: [first, second, third]}, what="reader group configuration")
        return ReaderGroupConfig(**found)
    except (InvalidArgumentError, ValueError, TypeError) as error:
        raise DecodeError(f"reader group configuration: {error}") from error


# --- checkpoints ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """The checkpoints of a group (``docs/protocol/formats.md``, "Checkpoints of a reader group").

    Methods return new states.

    :ivar checkpoints: ids in the order in which the checkpoints were begun.
    :ivar pending: id to the readers that have not answered.
    :ivar positions: id to the positions known so far; once they are complete they are the checkpoint.
    :ivar last: positions of the last checkpoint that was completed by a reader and was not silent, empty
        before the first. (The record cannot tell an empty one from none.)
    :ivar published: whether the last checkpoint was reported to the controller.
    """

    checkpoints: tuple[str, ...] = ()
    pending: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    positions: Mapping[str, Offsets] = field(default_factory=dict)
    last: Offsets = field(default_factory=dict)
    published: bool = True

    def begin(self, checkpoint: str, readers: Iterable[str], known: Offsets) -> CheckpointState:
        """Begin a checkpoint that these readers have to answer; change nothing if its id is known."""
        if checkpoint in self.positions:
            return self
        waiting = tuple(readers)
        return replace(
            self,
            checkpoints=(*self.checkpoints, checkpoint),
            pending={**self.pending, checkpoint: waiting} if waiting else self.pending,
            positions={**self.positions, checkpoint: dict(known)},
        )

    def done(self, checkpoint: str, reader: str, positions: Offsets) -> CheckpointState:
        """Add a reader's answer.

        :raises CorruptedStateError: the reader has answered before.
        """
        waiting = self.pending.get(checkpoint)
        if waiting is None:
            return self
        if reader not in waiting:
            raise CorruptedStateError(f"reader {reader} has already answered checkpoint {checkpoint!r}")
        index = waiting.index(reader)
        rest = waiting[:index] + waiting[index + 1 :]
        merged = {**self.positions.get(checkpoint, {}), **positions}
        result = replace(self, positions={**self.positions, checkpoint: merged})
        if rest:
            return replace(result, pending={**self.pending, checkpoint: rest})
        pending = {each: names for each, names in self.pending.items() if each != checkpoint}
        if is_silent(checkpoint):
            return replace(result, pending=pending)
        return replace(result, pending=pending, last=merged, published=False)

    def without(self, reader: str, positions: Offsets) -> CheckpointState:
        """Answer everything that a reader owes with its last positions."""
        result = self
        for checkpoint, waiting in self.pending.items():
            if reader in waiting:
                result = result.done(checkpoint, reader, positions)
        return result

    def cleared_before(self, checkpoint: str) -> CheckpointState:
        """Drop the checkpoints that were begun before ``checkpoint``, if that is known."""
        if checkpoint not in self.positions or checkpoint not in self.checkpoints:
            return self
        index = self.checkpoints.index(checkpoint)
        return self._dropping(self.checkpoints[:index], self.checkpoints[index:])

    def without_outstanding(self) -> CheckpointState:
        """Drop the checkpoints that are not complete; the list keeps their ids."""
        return self._dropping(self.outstanding, self.checkpoints)

    def withdrawn(self, checkpoint: str) -> CheckpointState:
        """Drop one checkpoint, and change nothing else."""
        return self._dropping((checkpoint,), tuple(each for each in self.checkpoints if each != checkpoint))

    def _dropping(self, dropped: Sequence[str], checkpoints: tuple[str, ...]) -> CheckpointState:
        return replace(
            self,
            checkpoints=checkpoints,
            pending={each: names for each, names in self.pending.items() if each not in dropped},
            positions={each: offsets for each, offsets in self.positions.items() if each not in dropped},
        )

    @property
    def outstanding(self) -> tuple[str, ...]:
        """Checkpoints that are neither silent nor complete."""
        return tuple(each for each in self.checkpoints if each in self.pending and not is_silent(each))

    @property
    def ongoing(self) -> bool:
        """Whether any checkpoint is incomplete, including silent ones."""
        return bool(self.pending)

    @property
    def newest(self) -> Offsets:
        """Positions of the newest complete checkpoint that was not silent, empty before the first.

        :attr:`last` does not have it if there was no reader to answer, in Java's state neither.
        """
        for checkpoint in reversed(self.checkpoints):
            if not is_silent(checkpoint) and (found := self.completed(checkpoint)) is not None:
                return found
        return self.last

    def of_reader(self, reader: str) -> str | None:
        """Return the first checkpoint that a reader has to answer, or None."""
        for checkpoint in self.checkpoints:
            if reader in self.pending.get(checkpoint, ()):
                return checkpoint
        return None

    def is_complete(self, checkpoint: str) -> bool:
        """Return whether no reader has to answer a checkpoint; also true for unknown ids."""
        return checkpoint not in self.pending

    def completed(self, checkpoint: str) -> Offsets | None:
        """Return the positions of a complete checkpoint; None if it is incomplete or unknown."""
        return None if checkpoint in self.pending else self.positions.get(checkpoint)


def _write_offsets(target: DataWriter, offsets: Offsets) -> None:
    target.mapping(offsets, DataWriter.utf, DataWriter.int64)


def _read_offsets(source: DataReader) -> dict[str, int]:
    return source.mapping(DataReader.utf, DataReader.int64)


def encode_checkpoint_state(state: CheckpointState) -> bytes:
    """Encode the record of the checkpoints."""

    def first(target: DataWriter) -> None:
        target.collection(state.checkpoints, DataWriter.utf)
        target.mapping(
            state.pending, DataWriter.utf, lambda body, names: body.collection(names, DataWriter.utf)
        )
        target.mapping(state.positions, DataWriter.utf, _write_offsets)
        _write_offsets(target, state.last)

    return encode_record([first, lambda target: target.boolean(state.published)])


def decode_checkpoint_state(data: bytes) -> CheckpointState:
    """Decode the record of the checkpoints."""
    found: dict[str, Any] = {}

    def first(source: DataReader) -> None:
        found["checkpoints"] = tuple(source.collection(DataReader.utf))
        found["pending"] = source.mapping(DataReader.utf, lambda body: tuple(body.collection(DataReader.utf)))
        found["positions"] = source.mapping(DataReader.utf, _read_offsets)
        found["last"] = _read_offsets(source)

    def second(source: DataReader) -> None:
        found["published"] = source.boolean()

    read_record(data, {0: [first, second]}, what="checkpoint state")
    return CheckpointState(**found)


# --- what is written ------------------------------------------------------------------------------

Ranges = Mapping[str, KeyRange | None]
"""Full segment name to its part of the key space, None if unknown."""


@dataclass(frozen=True, slots=True)
class ReaderGroupStateInit:
    """The first state of a group, written when it is created and whenever its configuration is replaced.

    :param config: configuration of the group.
    :param starts: offsets to begin at.
    :param ends: offsets to end at, for the segments that have one.
    :param ranges: ranges of the starting segments.
    :param updating_config: whether a change of the configuration is in progress.
    """

    config: ReaderGroupConfig
    starts: Offsets
    ends: Offsets = field(default_factory=dict)
    ranges: Ranges = field(default_factory=dict)
    updating_config: bool = False


@dataclass(frozen=True, slots=True)
class CompactReaderGroupState:
    """A whole state, written so that the records before it are not needed.

    The fields are those of :class:`GroupState`.
    """

    config: ReaderGroupConfig
    checkpoints: CheckpointState
    distances: Mapping[str, int]
    future: Mapping[str, AbstractSet[int]]
    assigned: Mapping[str, Offsets]
    unassigned: Offsets
    ends: Offsets
    last_read: Offsets
    ranges: Ranges
    updating_config: bool = False


@dataclass(frozen=True, slots=True)
class AddReader:
    """A reader joins the group."""

    reader: str


@dataclass(frozen=True, slots=True)
class RemoveReader:
    """A reader leaves the group.

    :param reader: name of the reader.
    :param owned: offsets up to which it has read its segments; for other segments the assigned offset counts.
    """

    reader: str
    owned: Offsets = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReleaseSegment:
    """A reader returns a segment to the group."""

    reader: str
    segment: str
    offset: int


@dataclass(frozen=True, slots=True)
class AcquireSegment:
    """A reader takes a segment."""

    reader: str
    segment: str


@dataclass(frozen=True, slots=True)
class UpdateDistanceToTail:
    """A reader reports how far behind the tail it is.

    :param reader: name of the reader.
    :param distance: milliseconds.
    :param last_read: offsets of its segments.
    :param ranges: ranges of these segments.
    """

    reader: str
    distance: int
    last_read: Offsets = field(default_factory=dict)
    ranges: Ranges = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SegmentCompleted:
    """A reader has read a sealed segment to its end.

    :param reader: name of the reader.
    :param segment: full name of the segment.
    :param successors: segments that follow it, each with the ids of all its predecessors.
    :param ranges: ranges of the completed segment and of the successors.
    """

    reader: str
    segment: str
    successors: Mapping[str, Sequence[int]] = field(default_factory=dict)
    ranges: Ranges = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CheckpointReader:
    """A reader's answer to a checkpoint."""

    checkpoint: str
    reader: str
    positions: Offsets


@dataclass(frozen=True, slots=True)
class CreateCheckpoint:
    """A checkpoint that every online reader has to answer."""

    checkpoint: str


@dataclass(frozen=True, slots=True)
class ClearCheckpointsBefore:
    """Checkpoints before this one are not needed any more."""

    checkpoint: str


@dataclass(frozen=True, slots=True)
class UpdateCheckpointPublished:
    """The last checkpoint was reported to the controller, or was not."""

    published: bool


@dataclass(frozen=True, slots=True)
class UpdatingConfig:
    """A change of the configuration has begun, or has ended."""

    updating: bool


@dataclass(frozen=True, slots=True)
class RemoveOutstandingCheckpoints:
    """Checkpoints that are not complete are cancelled."""


GroupInit = ReaderGroupStateInit | CompactReaderGroupState
GroupUpdate = (
    ReaderGroupStateInit | CompactReaderGroupState | AddReader | RemoveReader | ReleaseSegment
    | AcquireSegment | UpdateDistanceToTail | SegmentCompleted | CheckpointReader
    | CreateCheckpoint | ClearCheckpointsBefore | UpdateCheckpointPublished | UpdatingConfig
    | RemoveOutstandingCheckpoints
)  # fmt: skip


# --- their bytes ----------------------------------------------------------------------------------

_Writers = list[Callable[[DataWriter], object]]
_Reading = tuple[Mapping[int, Sequence[RevisionReader]], Callable[[], Any]]


@dataclass(frozen=True, slots=True)
class _Layout:
    """How one class of records is written and read."""

    type_id: int
    write: Callable[[Any], _Writers]
    read: Callable[[], _Reading]


def _write_ranged(target: DataWriter, offsets: Offsets, ranges: Ranges) -> None:
    """Write a map whose keys are segments with their ranges."""

    def key(body: DataWriter, segment: str) -> None:
        write_key_range(body.utf(segment), ranges.get(segment))

    target.mapping(offsets, key, DataWriter.int64)


def _read_ranged(source: DataReader) -> tuple[dict[str, int], dict[str, KeyRange | None]]:
    entries = source.collection(lambda body: (body.utf(), read_key_range(body), body.int64()))
    return (
        {segment: offset for segment, _, offset in entries},
        {segment: key_range for segment, key_range, _ in entries},
    )


def _write_ranges(target: DataWriter, ranges: Ranges) -> None:
    target.mapping(ranges, DataWriter.utf, write_key_range)


def _read_ranges(source: DataReader) -> dict[str, KeyRange | None]:
    return source.mapping(DataReader.utf, read_key_range)


def _reading(cls: type[T], *revisions: Callable[[DataReader], dict[str, Any]]) -> Callable[[], _Reading]:
    """Combine readers that each return some fields of ``cls``; fields of later revisions have defaults."""

    def make() -> _Reading:
        found: dict[str, Any] = {}

        def reader(fields_of: Callable[[DataReader], dict[str, Any]]) -> RevisionReader:
            return lambda source: found.update(fields_of(source))

        def build() -> T:
            try:
                return cls(**found)
            except TypeError as error:
                raise DecodeError(f"a record of {cls.__name__} lacks fields: {error}") from error

        return {0: [reader(each) for each in revisions]}, build

    return make


def _write_init(record: ReaderGroupStateInit) -> _Writers:
    def first(target: DataWriter) -> None:
        target.array(encode_group_config(record.config))
        _write_offsets(target, record.starts)
        _write_offsets(target, record.ends)

    return [
        first,
        lambda target: _write_ranged(target, record.starts, record.ranges),
        lambda target: target.boolean(record.updating_config),
    ]


def _read_init_ranges(source: DataReader) -> dict[str, Any]:
    starts, ranges = _read_ranged(source)
    return {"starts": starts, "ranges": ranges}


_INIT = _Layout(
    0,
    _write_init,
    _reading(
        ReaderGroupStateInit,
        lambda source: {
            "config": decode_group_config(source.array()),
            "starts": _read_offsets(source),
            "ends": _read_offsets(source),
        },
        _read_init_ranges,
        lambda source: {"updating_config": source.boolean()},
    ),
)


def _write_compact(record: CompactReaderGroupState) -> _Writers:
    def first(target: DataWriter) -> None:
        target.array(encode_group_config(record.config))
        target.array(encode_checkpoint_state(record.checkpoints))
        target.mapping(record.distances, DataWriter.utf, DataWriter.int64)
        target.mapping(
            record.future,
            DataWriter.utf,
            lambda body, ids: body.collection(sorted(ids), DataWriter.int64),
        )
        target.mapping(record.assigned, DataWriter.utf, _write_offsets)
        _write_offsets(target, record.unassigned)
        _write_offsets(target, record.ends)

    def second(target: DataWriter) -> None:
        _write_offsets(target, record.last_read)
        _write_ranges(target, record.ranges)

    return [first, second, lambda target: target.boolean(record.updating_config)]


def _read_compact(source: DataReader) -> dict[str, Any]:
    return {
        "config": decode_group_config(source.array()),
        "checkpoints": decode_checkpoint_state(source.array()),
        "distances": source.mapping(DataReader.utf, DataReader.int64),
        "future": source.mapping(DataReader.utf, lambda body: frozenset(body.collection(DataReader.int64))),
        "assigned": source.mapping(DataReader.utf, _read_offsets),
        "unassigned": _read_offsets(source),
        "ends": _read_offsets(source),
        "last_read": {},
        "ranges": {},
    }


_COMPACT = _Layout(
    1,
    _write_compact,
    _reading(
        CompactReaderGroupState,
        _read_compact,
        lambda source: {"last_read": _read_offsets(source), "ranges": _read_ranges(source)},
        lambda source: {"updating_config": source.boolean()},
    ),
)


def _read_lag_positions(source: DataReader) -> dict[str, Any]:
    last_read, ranges = _read_ranged(source)
    return {"last_read": last_read, "ranges": ranges}


def _write_completed(record: SegmentCompleted) -> _Writers:
    def first(target: DataWriter) -> None:
        target.utf(record.reader).utf(record.segment)
        target.mapping(
            record.successors, DataWriter.utf, lambda body, ids: body.collection(ids, DataWriter.int64)
        )

    def second(target: DataWriter) -> None:
        # Every segment of the record is in the map, including those of unknown range.
        unknown = (each for each in (record.segment, *record.successors) if each not in record.ranges)
        _write_ranges(target, {**record.ranges, **dict.fromkeys(unknown)})

    return [first, second]


_COMPLETED = _Layout(
    7,
    _write_completed,
    _reading(
        SegmentCompleted,
        lambda source: {
            "reader": source.utf(),
            "segment": source.utf(),
            "successors": source.mapping(
                DataReader.utf, lambda body: tuple(body.collection(DataReader.int64))
            ),
        },
        lambda source: {"ranges": _read_ranges(source)},
    ),
)

_LAYOUTS: Final[dict[type[Any], _Layout]] = {
    ReaderGroupStateInit: _INIT,
    CompactReaderGroupState: _COMPACT,
    AddReader: _Layout(
        2,
        lambda record: [lambda target: target.utf(record.reader)],
        _reading(AddReader, lambda source: {"reader": source.utf()}),
    ),
    RemoveReader: _Layout(
        3,
        lambda record: [lambda target: _write_offsets(target.utf(record.reader), record.owned)],
        _reading(RemoveReader, lambda source: {"reader": source.utf(), "owned": _read_offsets(source)}),
    ),
    ReleaseSegment: _Layout(
        4,
        lambda record: [lambda target: target.utf(record.reader).utf(record.segment).int64(record.offset)],
        _reading(
            ReleaseSegment,
            lambda source: {"reader": source.utf(), "segment": source.utf(), "offset": source.int64()},
        ),
    ),
    AcquireSegment: _Layout(
        5,
        lambda record: [lambda target: target.utf(record.reader).utf(record.segment)],
        _reading(AcquireSegment, lambda source: {"reader": source.utf(), "segment": source.utf()}),
    ),
    UpdateDistanceToTail: _Layout(
        6,
        lambda record: [
            lambda target: target.utf(record.reader).int64(record.distance),
            lambda target: _write_ranged(target, record.last_read, record.ranges),
        ],
        _reading(
            UpdateDistanceToTail,
            lambda source: {"reader": source.utf(), "distance": source.int64()},
            _read_lag_positions,
        ),
    ),
    SegmentCompleted: _COMPLETED,
    CheckpointReader: _Layout(
        8,
        lambda record: [
            lambda target: _write_offsets(target.utf(record.checkpoint).utf(record.reader), record.positions)
        ],
        _reading(
            CheckpointReader,
            lambda source: {
                "checkpoint": source.utf(),
                "reader": source.utf(),
                "positions": _read_offsets(source),
            },
        ),
    ),
    CreateCheckpoint: _Layout(
        9,
        lambda record: [lambda target: target.utf(record.checkpoint)],
        _reading(CreateCheckpoint, lambda source: {"checkpoint": source.utf()}),
    ),
    ClearCheckpointsBefore: _Layout(
        10,
        lambda record: [lambda target: target.utf(record.checkpoint)],
        _reading(ClearCheckpointsBefore, lambda source: {"checkpoint": source.utf()}),
    ),
    UpdateCheckpointPublished: _Layout(
        11,
        lambda record: [lambda target: target.boolean(record.published)],
        _reading(UpdateCheckpointPublished, lambda source: {"published": source.boolean()}),
    ),
    UpdatingConfig: _Layout(
        12,
        lambda record: [lambda target: target.boolean(record.updating)],
        _reading(UpdatingConfig, lambda source: {"updating": source.boolean()}),
    ),
    RemoveOutstandingCheckpoints: _Layout(
        13,
        lambda record: [lambda target: None],
        _reading(RemoveOutstandingCheckpoints, lambda source: {}),
    ),
}
_BY_ID: Final = {layout.type_id: layout.read for layout in _LAYOUTS.values()}


def encode_group_record(record: GroupUpdate) -> bytes:
    """Encode an initial state or an update."""
    layout = _LAYOUTS[type(record)]
    return encode_record(layout.write(record), type_id=layout.type_id)


def decode_group_record(data: bytes) -> GroupUpdate:
    """Decode an initial state or an update; bytes after it are ignored.

    :raises DecodeError: the record is malformed.
    :raises IncompatibleVersionError: the record has an unknown type or version.
    """
    result: GroupUpdate = read_typed_record_from(DataReader(data), _BY_ID, what="reader group record")
    return result


# --- the state ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupState:
    """A group as its readers see it (``docs/protocol/formats.md``, "The state of a reader group").

    :meth:`apply` returns new states.

    :ivar config: configuration of the group.
    :ivar checkpoints: checkpoints of the group.
    :ivar distances: reader to how far behind the tail it is, milliseconds.
    :ivar future: segment to the ids of its predecessors that are not read to their ends yet.
    :ivar assigned: reader to the offsets of its segments, as of when it acquired them or of its last
        checkpoint. A reader is online if it has an entry here.
    :ivar unassigned: offsets of segments that no reader has, in the order they became free.
    :ivar last_read: last known position in each segment.
    :ivar ends: offsets where segments end for this group.
    :ivar ranges: ranges of all these segments.
    :ivar updating_config: whether a change of the configuration is in progress.
    """

    config: ReaderGroupConfig
    checkpoints: CheckpointState
    distances: Mapping[str, int]
    future: Mapping[str, AbstractSet[int]]
    assigned: Mapping[str, Offsets]
    unassigned: Offsets
    last_read: Offsets
    ends: Offsets
    ranges: Ranges
    updating_config: bool

    @classmethod
    def begin(cls, initial: GroupInit) -> GroupState:
        """Return the state that an initial record describes."""
        if isinstance(initial, ReaderGroupStateInit):
            return cls(
                config=initial.config,
                checkpoints=CheckpointState(),
                distances={},
                future={},
                assigned={},
                unassigned=dict(initial.starts),
                last_read=dict(initial.starts),
                ends=dict(initial.ends),
                ranges=dict(initial.ranges),
                updating_config=initial.updating_config,
            )
        return cls(**{each.name: getattr(initial, each.name) for each in fields(cls)})

    def compacted(self) -> CompactReaderGroupState:
        """Return the record that describes this state."""
        known: dict[str, None] = {}
        for segments in (self.future, *self.assigned.values(), self.unassigned, self.last_read):
            known.update(dict.fromkeys(segments))
        same = {each.name: getattr(self, each.name) for each in fields(self)}
        return CompactReaderGroupState(
            **{**same, "ranges": {segment: self.ranges.get(segment) for segment in known}}
        )

    # --- effects --------------------------------------------------------------------------------

    def apply(self, update: GroupUpdate) -> GroupState:
        """Return the state after an update.

        :raises CorruptedStateError: no correct program writes this update in this state.
        """
        match update:
            case ReaderGroupStateInit() | CompactReaderGroupState():
                return GroupState.begin(update)
            case AddReader():
                return self._add(update.reader)
            case RemoveReader():
                return self._remove(update)
            case ReleaseSegment():
                return self._release(update)
            case AcquireSegment():
                return self._acquire(update)
            case UpdateDistanceToTail():
                # A reader that was thrown out, as by a reset, may report once more, and the places are those
                # where it was before.
                owned = self.assigned.get(update.reader, {})
                return replace(
                    self,
                    distances={**self.distances, update.reader: max(ASSUMED_LAG_MS, update.distance)},
                    last_read=self._read_to(
                        {segment: each for segment, each in update.last_read.items() if segment in owned}
                    ),
                )
            case SegmentCompleted():
                return self._complete(update)
            case CheckpointReader():
                return self._answer(update)
            case CreateCheckpoint():
                begun = self.checkpoints.begin(update.checkpoint, self.assigned, self.unassigned)
                return replace(self, checkpoints=begun)
            case ClearCheckpointsBefore():
                return replace(self, checkpoints=self.checkpoints.cleared_before(update.checkpoint))
            case UpdateCheckpointPublished():
                return replace(self, checkpoints=replace(self.checkpoints, published=update.published))
            case UpdatingConfig():
                return replace(self, updating_config=update.updating)
            case RemoveOutstandingCheckpoints():
                return replace(self, checkpoints=self.checkpoints.without_outstanding())

    def _read_to(self, offsets: Offsets) -> Offsets:
        present = {segment: offset for segment, offset in offsets.items() if segment in self.last_read}
        return {**self.last_read, **present}

    def _owned(self, reader: str, segment: str | None = None) -> dict[str, int]:
        """Return a copy of a reader's segments."""
        owned = self.assigned.get(reader)
        if owned is None:
            raise CorruptedStateError(f"reader {reader} is not in the group")
        if segment is not None and segment not in owned:
            raise CorruptedStateError(f"reader {reader} does not own segment {segment}")
        return dict(owned)

    def _add(self, reader: str) -> GroupState:
        if reader in self.assigned:
            raise CorruptedStateError(f"reader {reader} is already in the group")
        return replace(
            self,
            assigned={**self.assigned, reader: {}},
            distances={**self.distances, reader: self.distances.get(reader, _NEVER_HEARD)},
        )

    def _remove(self, update: RemoveReader) -> GroupState:
        owned = self.assigned.get(update.reader, {})
        final = {segment: update.owned.get(segment, offset) for segment, offset in owned.items()}
        return replace(
            self,
            assigned={name: each for name, each in self.assigned.items() if name != update.reader},
            unassigned={**self.unassigned, **final},
            distances={name: each for name, each in self.distances.items() if name != update.reader},
            checkpoints=self.checkpoints.without(update.reader, final),
        )

    def _release(self, update: ReleaseSegment) -> GroupState:
        owned = self._owned(update.reader, update.segment)
        del owned[update.segment]
        return replace(
            self,
            assigned={**self.assigned, update.reader: owned},
            unassigned={**self.unassigned, update.segment: update.offset},
            last_read=self._read_to({update.segment: update.offset}),
        )

    def _acquire(self, update: AcquireSegment) -> GroupState:
        owned = self._owned(update.reader)
        unassigned = dict(self.unassigned)
        if update.segment not in unassigned:
            raise CorruptedStateError(
                f"reader {update.reader} acquires segment {update.segment}, which is not unassigned"
            )
        owned[update.segment] = unassigned.pop(update.segment)
        return replace(self, assigned={**self.assigned, update.reader: owned}, unassigned=unassigned)

    def _complete(self, update: SegmentCompleted, *, own_stream_only: bool = False) -> GroupState:
        owned = self._owned(update.reader, update.segment)
        del owned[update.segment]
        last_read = {segment: each for segment, each in self.last_read.items() if segment != update.segment}
        completed = segment_id_of(update.segment)
        future: dict[str, AbstractSet[int]] = {}
        unassigned = dict(self.unassigned)
        # Segments that are known already keep the predecessors they wait for. As in Java, the id is also
        # removed from the sets of segments of other streams, unless completion() forbids it.
        for segment, waiting in {**update.successors, **self.future}.items():
            rest = frozenset(waiting)
            if not own_stream_only or stream_of(segment) == stream_of(update.segment):
                rest -= {completed}
            if rest:
                future[segment] = rest
            else:
                unassigned[segment] = 0
                last_read.setdefault(segment, 0)
        ranges = {**update.ranges, **self.ranges}
        ranges.pop(update.segment, None)
        return replace(
            self,
            assigned={**self.assigned, update.reader: owned},
            last_read=last_read,
            future=future,
            unassigned=unassigned,
            ranges=ranges,
        )

    def _answer(self, update: CheckpointReader) -> GroupState:
        checkpoints = self.checkpoints.done(update.checkpoint, update.reader, update.positions)
        if is_silent(update.checkpoint) or update.reader not in self.assigned:
            return replace(self, checkpoints=checkpoints)
        owned = self._owned(update.reader)
        owned.update({segment: each for segment, each in update.positions.items() if segment in owned})
        return replace(self, checkpoints=checkpoints, assigned={**self.assigned, update.reader: owned})

    def completion(self, update: SegmentCompleted) -> GroupUpdate:
        """Return what to write when a reader has completed a segment: usually the update itself.

        Segments of all streams have the same ids, and Java's rule takes the id of a completed segment from
        what segments of every stream wait for. One of another stream would be given out before the segments
        that it follows. If one waits for that id, the state after the update is written as a whole, in which
        it still waits. A successor that was given out already, by that rule, is not named again: it would
        wait for ever.

        :param update: a segment was completed.
        """
        given = {*self.unassigned, *(segment for owned in self.assigned.values() for segment in owned)}
        update = replace(
            update, successors={each: ids for each, ids in update.successors.items() if each not in given}
        )
        after = self._complete(update, own_stream_only=True)
        return update if after == self._complete(update) else after.compacted()

    # --- questions ------------------------------------------------------------------------------

    def is_online(self, reader: str) -> bool:
        """Return whether a reader is in the group."""
        return reader in self.assigned

    @property
    def segment_count(self) -> int:
        """Number of segments that are assigned or unassigned."""
        return sum(map(len, self.assigned.values())) + len(self.unassigned)

    @property
    def end_of_data(self) -> bool:
        """Whether the group has read everything that it will ever read."""
        return not self.future and not self.unassigned and not any(self.assigned.values())

    def positions(self) -> dict[str, int]:
        """Return the offsets of all segments that are assigned or unassigned."""
        result = dict(self.unassigned)
        for owned in self.assigned.values():
            result.update(owned)
        return result

    def relative_sizes(self) -> dict[str, float]:
        """Return how much each online reader has to do.

        1 is the work of one segment of the reader that is farthest behind.
        """
        distances = {
            reader: max(ASSUMED_LAG_MS, self.distances.get(reader, _NEVER_HEARD))
            for reader, owned in self.assigned.items()
            if owned
        }
        largest = max(distances.values(), default=1)
        return {
            reader: _wrapped(len(owned) * distances[reader]) / float(largest) if owned else 0.0
            for reader, owned in self.assigned.items()
        }

    def ranking(self, reader: str) -> int:
        """Return a reader's rank by its work: 0 has the most to do; -1 if it is not online."""
        sizes = self.relative_sizes()
        ordered = sorted(sizes, key=lambda each: (-sizes[each], each))
        return ordered.index(reader) if reader in sizes else -1


def _wrapped(value: int) -> int:
    """Return the value in Java's 64-bit arithmetic, which wraps around."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


class GroupRecordSerializer:
    """Serializer of all records of a group: initial states and updates."""

    def serialize(self, value: GroupUpdate) -> bytes:
        """See :func:`encode_group_record`."""
        return encode_group_record(value)

    def deserialize(self, payload: bytes) -> GroupUpdate:
        """See :func:`decode_group_record`."""
        return decode_group_record(payload)


class GroupInitSerializer:
    """Serializer of a group's initial records."""

    def serialize(self, value: GroupInit) -> bytes:
        """See :func:`encode_group_record`."""
        return encode_group_record(value)

    def deserialize(self, payload: bytes) -> GroupInit:
        """Decode an initial record like :func:`decode_group_record`; an update is an error."""
        record = decode_group_record(payload)
        if not isinstance(record, ReaderGroupStateInit | CompactReaderGroupState):
            raise DecodeError(f"{type(record).__name__} is not an initial state of a reader group")
        return record


class GroupStateFormat:
    """How a state synchronizer keeps a :class:`GroupState`."""

    initial_serializer: Final = GroupInitSerializer()
    update_serializer: Final = GroupRecordSerializer()

    def create(self, initial: GroupInit, revision: object) -> GroupState:
        """Return the state that an initial record describes."""
        return GroupState.begin(initial)

    def apply(self, state: GroupState, update: GroupUpdate, revision: object) -> GroupState:
        """Return the state after an update."""
        return state.apply(update)
