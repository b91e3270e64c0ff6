"""What Java's clients exchange and this one does not: positions, pointers and checkpoints as bytes.

See ``docs/protocol/formats.md``, "Stream cuts, positions and pointers".
"""

from __future__ import annotations

from collections.abc import Sequence

from pravega_wire.errors import DecodeError, EncodeError
from pravega_wire.protocol.formats import (
    encode_stream_cut,
    meaning,
    read_key_range,
    read_stream_cut,
    write_key_range,
)
from pravega_wire.protocol.versioned import (
    COMPACT_LONG_MAX,
    DataReader,
    DataWriter,
    RevisionReader,
    encode_record,
    read_record_from,
)
from pravega_wire.values.positions import Checkpoint, EventPointer, KeyRange, Position
from pravega_wire.values.types import SEGMENT_READ, StreamCut

# Offset that Java writes for a segment that was read to its end, in maps of compact longs.
_COMPLETED = COMPACT_LONG_MAX


def _read(data: bytes, revisions: Sequence[RevisionReader], what: str) -> None:
    read_record_from(DataReader(data), {0: revisions}, what=what)


def _write_read_offset(target: DataWriter, offset: int) -> None:
    if offset >= _COMPLETED:
        raise EncodeError(f"an offset of {offset} cannot be encoded: numbers from {_COMPLETED} mean the end")
    target.compact_long(_COMPLETED if offset < 0 else offset)


def _read_read_offset(source: DataReader) -> int:
    offset = source.compact_long()
    return SEGMENT_READ if offset == _COMPLETED else offset


def encode_position(position: Position) -> bytes:
    """Encode a reader's position: offsets, and in revision 1 the ranges of the segments."""
    return encode_record(
        [
            lambda target: target.mapping(position.offsets, DataWriter.utf, _write_read_offset),
            lambda target: target.mapping(position.ranges, DataWriter.utf, write_key_range),
        ]
    )


def decode_position(data: bytes) -> Position:
    """Decode a reader's position; without revision 1 all ranges are unknown."""
    offsets: dict[str, int] = {}
    ranges: dict[str, KeyRange | None] = {}
    _read(
        data,
        [
            lambda source: offsets.update(source.mapping(DataReader.utf, _read_read_offset)),
            lambda source: ranges.update(source.mapping(DataReader.utf, read_key_range)),
        ],
        "position",
    )
    with meaning("position"):
        return Position.of(offsets, ranges)


def encode_event_pointer(pointer: EventPointer) -> bytes:
    """Encode the pointer to an event."""
    return encode_record(
        [
            lambda target: (
                target.utf(pointer.segment).compact_long(pointer.start_offset).compact_int(pointer.length)
            )
        ]
    )


def decode_event_pointer(data: bytes) -> EventPointer:
    """Decode the pointer to an event."""
    found: list[EventPointer] = []

    def read(source: DataReader) -> None:
        segment, offset, length = source.utf(), source.compact_long(), source.compact_int()
        with meaning("event pointer"):
            found.append(EventPointer(segment, offset, length))

    _read(data, [read], "event pointer")
    if not found:
        raise DecodeError("event pointer: the record has no revisions")
    return found[0]


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Encode a checkpoint's name and its cuts; each cut is a complete record without a length."""

    def write_cut(target: DataWriter, cut: StreamCut) -> None:
        target.raw(encode_stream_cut(cut))

    cuts = {str(cut.stream): cut for cut in checkpoint.cuts}
    return encode_record(
        [lambda target: target.utf(checkpoint.name).mapping(cuts, DataWriter.utf, write_cut)]
    )


def decode_checkpoint(data: bytes) -> Checkpoint:
    """Decode a checkpoint."""
    found: list[Checkpoint] = []

    def read(source: DataReader) -> None:
        name = source.utf()
        cuts = source.mapping(DataReader.utf, read_stream_cut)
        for stream, cut in cuts.items():
            if str(cut.stream) != stream:
                raise DecodeError(f"checkpoint {name!r}: the entry for {stream!r} has a cut of {cut.stream}")
        with meaning("checkpoint"):
            found.append(Checkpoint(name, tuple(cuts.values())))

    _read(data, [read], "checkpoint")
    if not found:
        raise DecodeError("checkpoint: the record has no revisions")
    return found[0]
