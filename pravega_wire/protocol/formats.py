"""Binary forms of the values that clients store and exchange (``docs/protocol/formats.md``).

Each pair ``encode_x`` and ``decode_x`` writes and reads what the Java class of that name does, version
0.13.0. All readers raise :class:`DecodeError` for malformed bytes, :class:`TruncatedInputError` for too few
bytes, and :class:`IncompatibleVersionError` for an unknown format or version. All writers raise
:class:`EncodeError` for numbers that do not fit. Bytes after a record are ignored, as in Java.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pravega_wire.errors import DecodeError, InvalidArgumentError
from pravega_wire.protocol.versioned import (
    DataReader,
    DataWriter,
    RevisionReader,
    encode_record,
    read_record_from,
)
from pravega_wire.values.positions import (
    KeyRange,
    Watermark,
    WatermarkSegment,
)
from pravega_wire.values.types import ScopedStream, StreamCut

__all__ = [
    "decode_stream_cut",
    "decode_watermark",
    "encode_stream_cut",
    "encode_watermark",
    "meaning",
    "read_key_range",
    "read_stream_cut",
    "write_key_range",
]


@contextmanager
def meaning(what: str) -> Iterator[None]:
    """Turn errors about values that decode but are impossible into errors about the bytes."""
    try:
        yield
    except InvalidArgumentError as error:
        raise DecodeError(f"{what}: {error.message}") from error


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
    if cut is None:
        return b""

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
            with meaning("stream cut"):
                found.append(StreamCut(ScopedStream.parse(stream), positions))

        return read

    versions = {0: [reader(DataReader.compact_long)], 1: [reader(DataReader.compact_signed_long)]}
    read_record_from(source, versions, what="stream cut")
    if not found:
        raise DecodeError("stream cut: the record has no revisions")
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
        with meaning("watermark"):
            found.append(Watermark.of(lower, upper, source.collection(read_segment)))

    read_record_from(DataReader(data), {0: [read]}, what="watermark")
    if not found:
        raise DecodeError("watermark: the record has no revisions")
    return found[0]
