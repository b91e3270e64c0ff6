"""Binary forms of the values that clients store and exchange (``docs/protocol/formats.md``).

Each pair ``encode_x`` and ``decode_x`` writes and reads what the Java class of that name does, version
0.13.0. All readers raise :class:`DecodeError` for malformed bytes, :class:`TruncatedInputError` for too few
bytes, and :class:`IncompatibleVersionError` for an unknown format or version. All writers raise
:class:`EncodeError` for numbers that do not fit. Bytes after a record are ignored, as in Java.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from pravega_wire.errors import DecodeError, EncodeError, InvalidArgumentError
from pravega_wire.protocol.versioned import (
    COMPACT_LONG_MAX,
    DataReader,
    DataWriter,
    RevisionReader,
    encode_record,
    read_record_from,
)
from pravega_wire.values.positions import (
    Checkpoint,
    EventPointer,
    KeyRange,
    Position,
    Watermark,
    WatermarkSegment,
)
from pravega_wire.values.types import SEGMENT_READ, ScopedStream, StreamCut

__all__ = [
    "decode_checkpoint",
    "decode_event_pointer",
    "decode_position",
    "decode_stream_cut",
    "decode_watermark",
    "encode_checkpoint",
    "encode_event_pointer",
    "encode_position",
    "encode_stream_cut",
    "encode_watermark",
    "read_key_range",
    "read_stream_cut",
    "write_key_range",
]

# Offset that Java writes for a segment that was read to its end, in maps of compact longs.
_COMPLETED: Final = COMPACT_LONG_MAX


@contextmanager
def _meaning(what: str) -> Iterator[None]:
    """Turn errors about values that decode but are impossible into errors about the bytes."""
    try:
        yield
    except InvalidArgumentError as error:
        raise DecodeError(f"{what}: {error.message}") from error


def _read(data: bytes, revisions: Sequence[RevisionReader], what: str) -> None:
    read_record_from(DataReader(data), {0: revisions}, what=what)


# --- ranges of the key space ----------------------------------------------------------------------


def write_key_range(target: DataWriter, key_range: KeyRange | None) -> None:
    """Write a range as two doubles; both are -1.0 for an unknown range."""
    low, high = (-1.0, -1.0) if key_range is None else key_range
    target.double(low).double(high)


def read_key_range(source: DataReader) -> KeyRange | None:
    """Read a range as :func:`write_key_range` writes it; a negative number on either side means unknown."""
    low, high = source.double(), source.double()
    return None if low < 0 or high < 0 else (low, high)


# --- stream cuts ----------------------------------------------------------------------------------


def encode_stream_cut(cut: StreamCut | None) -> bytes:
    """Encode a cut, version 1; None (unbounded) is zero bytes."""
    return b"" if cut is None else _stream_cut_record(cut)


def _stream_cut_record(cut: StreamCut) -> bytes:
    def write(target: DataWriter) -> None:
        target.utf(str(cut.stream))
        target.mapping(cut.positions, DataWriter.compact_long, DataWriter.compact_signed_long)

    return encode_record([write], version=1)


def decode_stream_cut(data: bytes) -> StreamCut | None:
    """Decode a cut of version 1 or 0; zero bytes are None (unbounded)."""
    return read_stream_cut(DataReader(data)) if data else None


def read_stream_cut(source: DataReader) -> StreamCut:
    """Read a cut's record at the position of ``source``."""
    found: list[StreamCut] = []

    def reader(read_offset: Callable[[DataReader], int]) -> RevisionReader:
        def read(body: DataReader) -> None:
            stream = body.utf()
            positions = body.mapping(DataReader.compact_long, read_offset)
            with _meaning("stream cut"):
                found.append(StreamCut(ScopedStream.parse(stream), positions))

        return read

    versions = {0: [reader(DataReader.compact_long)], 1: [reader(DataReader.compact_signed_long)]}
    read_record_from(source, versions, what="stream cut")
    if not found:
        raise DecodeError("stream cut: the record has no revisions")
    return found[0]


# --- positions, pointers, checkpoints -------------------------------------------------------------


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
    with _meaning("position"):
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
        with _meaning("event pointer"):
            found.append(EventPointer(segment, offset, length))

    _read(data, [read], "event pointer")
    if not found:
        raise DecodeError("event pointer: the record has no revisions")
    return found[0]


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Encode a checkpoint's name and its cuts; each cut is a complete record without a length."""

    def write_cut(target: DataWriter, cut: StreamCut) -> None:
        target.raw(_stream_cut_record(cut))

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
        with _meaning("checkpoint"):
            found.append(Checkpoint(name, tuple(cuts.values())))

    _read(data, [read], "checkpoint")
    if not found:
        raise DecodeError("checkpoint: the record has no revisions")
    return found[0]


# --- watermarks -----------------------------------------------------------------------------------


def encode_watermark(mark: Watermark) -> bytes:
    """Encode a watermark as the payload of an event in a mark stream."""

    def write_segment(target: DataWriter, each: WatermarkSegment) -> None:
        target.raw(
            encode_record([lambda body: body.int64(each.segment_id).double(each.low).double(each.high)])
        ).int64(each.offset)

    def write(target: DataWriter) -> None:
        # A map with records of segments as keys has the same bytes as a collection of pairs.
        target.int64(mark.lower).int64(mark.upper).collection(mark.positions, write_segment)

    return encode_record([write])


def decode_watermark(data: bytes) -> Watermark:
    """Decode a watermark from the payload of an event in a mark stream."""
    found: list[Watermark] = []

    def read_segment(source: DataReader) -> WatermarkSegment:
        key: list[tuple[int, float, float]] = []
        read_record_from(
            source,
            {0: [lambda body: key.append((body.int64(), body.double(), body.double()))]},
            what="segment of a watermark",
        )
        if not key:
            raise DecodeError("segment of a watermark: the record has no revisions")
        segment_id, low, high = key[0]
        return WatermarkSegment(segment_id, low, high, source.int64())

    def read(source: DataReader) -> None:
        lower, upper = source.int64(), source.int64()
        with _meaning("watermark"):
            found.append(Watermark.of(lower, upper, source.collection(read_segment)))

    _read(data, [read], "watermark")
    if not found:
        raise DecodeError("watermark: the record has no revisions")
    return found[0]
