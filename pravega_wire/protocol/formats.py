"""Binary forms of the values that clients store and exchange (client formats v0.13.0).

Each pair ``encode_x``/``decode_x`` reads and writes what the Java class of that name does. All readers raise
:class:`DecodeError` for bytes that make no sense, :class:`TruncatedInputError` for too few, and
:class:`IncompatibleVersionError` for a format or version they do not know; all writers :class:`EncodeError`
for numbers that do not fit. Bytes after a record are ignored, as Java does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from pravega_wire.errors import DecodeError, EncodeError, InvalidArgumentError
from pravega_wire.positions import (
    Checkpoint,
    EventPointer,
    KeyRange,
    Position,
    Watermark,
    WatermarkSegment,
)
from pravega_wire.protocol.versioned import (
    COMPACT_LONG_MAX,
    DataReader,
    DataWriter,
    RevisionReader,
    encode_record,
    read_record_from,
)
from pravega_wire.types import SEGMENT_READ, ScopedStream, StreamCut

__all__ = [
    "KEY_NOT_EXISTS",
    "KEY_NO_VERSION",
    "UNBOUNDED_TEXT",
    "EventWriterConfig",
    "SynchronizerConfig",
    "decode_checkpoint",
    "decode_event_pointer",
    "decode_event_writer_config",
    "decode_position",
    "decode_stream_cut",
    "decode_synchronizer_config",
    "decode_table_key_version",
    "decode_watermark",
    "encode_checkpoint",
    "encode_event_pointer",
    "encode_event_writer_config",
    "encode_position",
    "encode_stream_cut",
    "encode_synchronizer_config",
    "encode_table_key_version",
    "encode_watermark",
    "read_key_range",
    "read_stream_cut",
    "stream_cut_from_text",
    "stream_cut_to_text",
    "write_key_range",
]

UNBOUNDED_TEXT: Final = "UNBOUNDED"
"""Text of the cut that means: wherever the stream begins or ends."""

KEY_NOT_EXISTS: Final = -1
"""Table key version that means: the key must not exist."""

KEY_NO_VERSION: Final = -(1 << 63)
"""Table key version that means: whatever version the key has."""

# What Java writes as the offset of a segment that was read to its end, in maps of compact longs.
_COMPLETED: Final = COMPACT_LONG_MAX


@contextmanager
def _meaning(what: str) -> Iterator[None]:
    """Values that decode but cannot be what they should are a matter of the bytes, not of the caller."""
    try:
        yield
    except InvalidArgumentError as error:
        raise DecodeError(f"{what}: {error.message}") from error


def _read(data: bytes, revisions: Sequence[RevisionReader], what: str) -> None:
    read_record_from(DataReader(data), {0: revisions}, what=what)


# --- ranges of the key space ----------------------------------------------------------------------


def write_key_range(target: DataWriter, key_range: KeyRange | None) -> None:
    """Two doubles; both -1.0 for a range that is not known."""
    low, high = (-1.0, -1.0) if key_range is None else key_range
    target.double(low).double(high)


def read_key_range(source: DataReader) -> KeyRange | None:
    """As :func:`write_key_range`; a negative number on either side means not known."""
    low, high = source.double(), source.double()
    return None if low < 0 or high < 0 else (low, high)


# --- stream cuts ----------------------------------------------------------------------------------


def encode_stream_cut(cut: StreamCut | None) -> bytes:
    """A cut, version 1; None (unbounded) is no bytes at all."""
    return b"" if cut is None else _stream_cut_record(cut)


def _stream_cut_record(cut: StreamCut) -> bytes:
    def write(target: DataWriter) -> None:
        target.utf(str(cut.stream))
        target.mapping(cut.positions, DataWriter.compact_long, DataWriter.compact_signed_long)

    return encode_record([write], version=1)


def decode_stream_cut(data: bytes) -> StreamCut | None:
    """A cut of version 1 or 0; None (unbounded) for no bytes at all."""
    return read_stream_cut(DataReader(data)) if data else None


def read_stream_cut(source: DataReader) -> StreamCut:
    """A cut's record from where ``source`` stands."""
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
        raise DecodeError("stream cut: the record has no revision")
    return found[0]


def stream_cut_to_text(cut: StreamCut | None) -> str:
    """A cut's text; ``UNBOUNDED`` for None."""
    return UNBOUNDED_TEXT if cut is None else cut.to_text()


def stream_cut_from_text(text: str) -> StreamCut | None:
    """From :func:`stream_cut_to_text` or Java's ``StreamCut.asText()``.

    :raises InvalidStreamCutError: not such a text.
    """
    return None if text == UNBOUNDED_TEXT else StreamCut.from_text(text)


# --- positions, pointers, checkpoints -------------------------------------------------------------


def _write_read_offset(target: DataWriter, offset: int) -> None:
    if offset >= _COMPLETED:
        raise EncodeError(f"an offset of {offset} does not fit: this number means the segment's end")
    target.compact_long(_COMPLETED if offset < 0 else offset)


def _read_read_offset(source: DataReader) -> int:
    offset = source.compact_long()
    return SEGMENT_READ if offset == _COMPLETED else offset


def encode_position(position: Position) -> bytes:
    """A reader's position: offsets, and in revision 1 the segments' ranges."""
    return encode_record(
        [
            lambda target: target.mapping(position.offsets, DataWriter.utf, _write_read_offset),
            lambda target: target.mapping(position.ranges, DataWriter.utf, write_key_range),
        ]
    )


def decode_position(data: bytes) -> Position:
    """A reader's position; without revision 1 no range is known."""
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
    """Where an event lies."""
    return encode_record(
        [
            lambda target: (
                target.utf(pointer.segment).compact_long(pointer.start_offset).compact_int(pointer.length)
            )
        ]
    )


def decode_event_pointer(data: bytes) -> EventPointer:
    """Where an event lies."""
    found: list[EventPointer] = []

    def read(source: DataReader) -> None:
        segment, offset, length = source.utf(), source.compact_long(), source.compact_int()
        with _meaning("event pointer"):
            found.append(EventPointer(segment, offset, length))

    _read(data, [read], "event pointer")
    if not found:
        raise DecodeError("event pointer: the record has no revision")
    return found[0]


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """A checkpoint's name and its cuts, each a complete record without a length."""

    def write_cut(target: DataWriter, cut: StreamCut) -> None:
        target.raw(_stream_cut_record(cut))

    cuts = {str(cut.stream): cut for cut in checkpoint.cuts}
    return encode_record(
        [lambda target: target.utf(checkpoint.name).mapping(cuts, DataWriter.utf, write_cut)]
    )


def decode_checkpoint(data: bytes) -> Checkpoint:
    """A checkpoint."""
    found: list[Checkpoint] = []

    def read(source: DataReader) -> None:
        name = source.utf()
        cuts = source.mapping(DataReader.utf, read_stream_cut)
        for stream, cut in cuts.items():
            if str(cut.stream) != stream:
                raise DecodeError(f"checkpoint {name!r}: a cut of {cut.stream} stands for {stream!r}")
        with _meaning("checkpoint"):
            found.append(Checkpoint(name, tuple(cuts.values())))

    _read(data, [read], "checkpoint")
    if not found:
        raise DecodeError("checkpoint: the record has no revision")
    return found[0]


# --- watermarks -----------------------------------------------------------------------------------


def encode_watermark(mark: Watermark) -> bytes:
    """The payload of an event in a mark stream."""

    def write_segment(target: DataWriter, each: WatermarkSegment) -> None:
        target.raw(
            encode_record([lambda body: body.int64(each.segment_id).double(each.low).double(each.high)])
        ).int64(each.offset)

    def write(target: DataWriter) -> None:
        # A map whose keys are the records of segments: the same bytes as a collection of pairs.
        target.int64(mark.lower).int64(mark.upper).collection(mark.positions, write_segment)

    return encode_record([write])


def decode_watermark(data: bytes) -> Watermark:
    """From the payload of an event in a mark stream."""
    found: list[Watermark] = []

    def read_segment(source: DataReader) -> WatermarkSegment:
        key: list[tuple[int, float, float]] = []
        read_record_from(
            source,
            {0: [lambda body: key.append((body.int64(), body.double(), body.double()))]},
            what="segment of a watermark",
        )
        if not key:
            raise DecodeError("segment of a watermark: the record has no revision")
        segment_id, low, high = key[0]
        return WatermarkSegment(segment_id, low, high, source.int64())

    def read(source: DataReader) -> None:
        lower, upper = source.int64(), source.int64()
        with _meaning("watermark"):
            found.append(Watermark.of(lower, upper, source.collection(read_segment)))

    _read(data, [read], "watermark")
    if not found:
        raise DecodeError("watermark: the record has no revision")
    return found[0]


# --- versions of table keys -----------------------------------------------------------------------


def encode_table_key_version(version: int) -> bytes:
    """A table key's version; :data:`KEY_NOT_EXISTS` is no bytes at all."""
    return b"" if version == KEY_NOT_EXISTS else encode_record([lambda target: target.int64(version)])


def decode_table_key_version(data: bytes) -> int:
    """A table key's version; :data:`KEY_NOT_EXISTS` for no bytes at all."""
    if not data:
        return KEY_NOT_EXISTS
    found: list[int] = []
    _read(data, [lambda source: found.append(source.int64())], "table key version")
    if not found:
        raise DecodeError("table key version: the record has no revision")
    return found[0]


# --- configurations of the Java client ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EventWriterConfig:
    """Settings of a Java event writer, with Java's defaults. All times in milliseconds."""

    initial_backoff_ms: int = 1
    max_backoff_ms: int = 20_000
    retry_attempts: int = 10
    backoff_multiple: int = 10
    connection_pooling: bool = False
    transaction_timeout_ms: int = 599_999
    automatically_note_time: bool = False
    large_events: bool = False


@dataclass(frozen=True, slots=True)
class SynchronizerConfig:
    """Settings of a Java state synchronizer, with Java's defaults.

    :param read_buffer_bytes: size of its read buffer.
    """

    event_writer: EventWriterConfig = field(
        # A synchronizer never gives up by itself, and shares its connections.
        default_factory=lambda: EventWriterConfig(retry_attempts=0x7FFFFFFF, connection_pooling=True)
    )
    read_buffer_bytes: int = 256 * 1024


def encode_event_writer_config(config: EventWriterConfig) -> bytes:
    """Settings of an event writer."""

    def write(target: DataWriter) -> None:
        target.int32(config.initial_backoff_ms).int32(config.max_backoff_ms)
        target.int32(config.retry_attempts).int32(config.backoff_multiple)
        target.boolean(config.connection_pooling).int64(config.transaction_timeout_ms)
        target.boolean(config.automatically_note_time).boolean(config.large_events)

    return encode_record([write])


def decode_event_writer_config(data: bytes) -> EventWriterConfig:
    """Settings of an event writer."""
    found: list[EventWriterConfig] = []

    def read(source: DataReader) -> None:
        found.append(
            EventWriterConfig(
                initial_backoff_ms=source.int32(),
                max_backoff_ms=source.int32(),
                retry_attempts=source.int32(),
                backoff_multiple=source.int32(),
                connection_pooling=source.boolean(),
                transaction_timeout_ms=source.int64(),
                automatically_note_time=source.boolean(),
                large_events=source.boolean(),
            )
        )

    _read(data, [read], "event writer configuration")
    return found[0] if found else EventWriterConfig()


def encode_synchronizer_config(config: SynchronizerConfig) -> bytes:
    """Settings of a state synchronizer."""
    writer = encode_event_writer_config(config.event_writer)
    return encode_record([lambda target: target.int32(config.read_buffer_bytes).array(writer)])


def decode_synchronizer_config(data: bytes) -> SynchronizerConfig:
    """Settings of a state synchronizer."""
    found: list[SynchronizerConfig] = []

    def read(source: DataReader) -> None:
        size, writer = source.int32(), source.array()
        found.append(SynchronizerConfig(decode_event_writer_config(writer), size))

    _read(data, [read], "synchronizer configuration")
    return found[0] if found else SynchronizerConfig()
