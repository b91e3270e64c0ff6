"""Values that users hold: streams, cuts, ranges, revisions. All immutable and picklable."""

from __future__ import annotations

import base64
import binascii
import gzip
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Self

from pravega_wire.errors import InvalidArgumentError, InvalidStreamCutError
from pravega_wire.naming import (
    epoch_of,
    number_of,
    segment_name,
    validate_scope_name,
    validate_stream_name,
)
from pravega_wire.naming import segment_id as make_segment_id

__all__ = ["Revision", "ScopedStream", "SegmentRange", "StreamCut"]

SEGMENT_READ: Final = -1
"""Offset in a cut that means: the whole segment was read."""


@dataclass(frozen=True, slots=True, order=True)
class ScopedStream:
    """Full name of a stream; ``str()`` gives ``scope/stream``.

    :raises InvalidArgumentError: a name has illegal characters or length.
    """

    scope: str
    name: str

    def __post_init__(self) -> None:
        validate_scope_name(self.scope)
        validate_stream_name(self.name)

    @classmethod
    def parse(cls, text: str) -> Self:
        """From ``scope/stream``."""
        parts = text.split("/")
        if len(parts) != 2:
            raise InvalidArgumentError(f"{text!r} is not of the form scope/stream")
        return cls(parts[0], parts[1])

    def __str__(self) -> str:
        return f"{self.scope}/{self.name}"


class StreamCut:
    """A position in a stream: an offset for each segment that covers the key space.

    :param stream: the stream it is of.
    :param positions: segment id to offset in bytes; -1 for a segment that was read to its end.

    Text and binary form are those of the Java class (client formats v0.13.0, "Small public types").
    """

    __slots__ = ("_positions", "stream")

    stream: ScopedStream
    _positions: Mapping[int, int]

    def __init__(self, stream: ScopedStream, positions: Mapping[int, int]) -> None:
        for segment, offset in positions.items():
            if not 0 <= segment < 1 << 63 or not -1 <= offset < 1 << 63:
                raise InvalidStreamCutError(
                    f"stream cut of {stream}: segment {segment} at offset {offset} is impossible",
                    scope=stream.scope,
                    stream=stream.name,
                )
        object.__setattr__(self, "stream", stream)
        object.__setattr__(self, "_positions", MappingProxyType(dict(sorted(positions.items()))))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a StreamCut is immutable")

    @property
    def positions(self) -> Mapping[int, int]:
        """Segment id to offset, in the order of the ids (read-only)."""
        return self._positions

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StreamCut):
            return NotImplemented
        return self.stream == other.stream and self._positions == other._positions

    def __hash__(self) -> int:
        return hash((self.stream, tuple(self._positions.items())))

    def __reduce__(self) -> tuple[Any, ...]:
        return StreamCut, (self.stream, dict(self._positions))

    def __str__(self) -> str:
        return f"{self.stream}:" + ", ".join(
            f"{segment}={offset}" for segment, offset in self._positions.items()
        )

    def __repr__(self) -> str:
        return f"StreamCut({str(self)!r})"

    def to_text(self) -> str:
        """Base64 of the gzip of ``0:scope/stream:numbers:epochs:offsets``, as Java reads it.

        The same cut always gives the same text (Java's differs in the compressed bytes only).
        """
        segments = self._positions
        plain = ":".join(
            [
                "0",
                str(self.stream),
                ",".join(str(number_of(segment)) for segment in segments),
                ",".join(str(epoch_of(segment)) for segment in segments),
                ",".join(str(offset) for offset in segments.values()),
            ]
        )
        return base64.b64encode(gzip.compress(plain.encode(), mtime=0)).decode("ascii")

    @classmethod
    def from_text(cls, text: str) -> StreamCut:
        """From :meth:`to_text` or Java's ``StreamCut.asText()``.

        :raises InvalidStreamCutError: not such a text.
        """
        shown = text if len(text) <= 60 else f"{text[:60]}..."
        try:
            packed = base64.b64decode(text.strip(), validate=True)
            plain = gzip.decompress(packed).decode()
            version, stream, numbers, epochs, offsets = plain.split(":")
            if version != "0":
                raise InvalidStreamCutError(f"stream cut {shown!r}: version {version!r} is not known")
            columns = [
                [int(item) for item in column.split(",") if item] for column in (numbers, epochs, offsets)
            ]
            positions = {
                make_segment_id(epoch, number): offset for number, epoch, offset in zip(*columns, strict=True)
            }
            return cls(ScopedStream.parse(stream), positions)
        except InvalidStreamCutError:
            raise
        except (binascii.Error, zlib.error, OSError, EOFError, ValueError) as error:
            raise InvalidStreamCutError(f"{shown!r} is not the text of a stream cut") from error


@dataclass(frozen=True, slots=True, order=True)
class SegmentRange:
    """A piece of one segment: bytes ``start_offset`` to ``end_offset`` (exclusive)."""

    stream: ScopedStream
    segment_id: int
    start_offset: int
    end_offset: int

    def __post_init__(self) -> None:
        if not 0 <= self.start_offset <= self.end_offset:
            raise InvalidArgumentError(
                f"{self.start_offset}..{self.end_offset} of segment {self.segment_id} of "
                f"{self.stream} is not a range"
            )

    @property
    def segment(self) -> str:
        """Full name of the segment."""
        return segment_name(self.stream.scope, self.stream.name, self.segment_id)

    @property
    def length(self) -> int:
        """Bytes in the range."""
        return self.end_offset - self.start_offset


@dataclass(frozen=True, slots=True)
class Revision:
    """A position in a revisioned stream: the offset after the value that produced it.

    :param event_at_offset: index of an update in a record that holds several.
    """

    segment: str
    offset: int
    event_at_offset: int = 0

    def to_text(self) -> str:
        """``segment:offset:index``, as Java's ``Revision.toString()``."""
        return f"{self.segment}:{self.offset}:{self.event_at_offset}"

    @classmethod
    def from_text(cls, text: str) -> Self:
        """From :meth:`to_text`; :class:`InvalidArgumentError` for anything else."""
        segment, _, rest = text.rpartition(":")
        segment, _, offset = segment.rpartition(":")
        try:
            return cls(segment, int(offset), int(rest))
        except ValueError as error:
            raise InvalidArgumentError(f"{text!r} is not the text of a revision") from error

    def __lt__(self, other: Revision) -> bool:
        return (self.offset, self.event_at_offset) < (other.offset, other.event_at_offset)

    def __le__(self, other: Revision) -> bool:
        return (self.offset, self.event_at_offset) <= (other.offset, other.event_at_offset)
