"""Values that users hold: streams, cuts, ranges, revisions. All immutable and picklable.

Not public: :mod:`pravega_wire` exports what users need of it.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from operator import index
from types import MappingProxyType
from typing import Any, Final, Self, TypeAlias

from pravega_wire.checks import check_count, check_text
from pravega_wire.errors import InvalidArgumentError, InvalidStreamCutError
from pravega_wire.naming import (
    epoch_of,
    number_of,
    segment_name,
    validate_scope_name,
    validate_stream_name,
)
from pravega_wire.naming import segment_id as make_segment_id

__all__ = ["CutOrder", "Endpoint", "Revision", "ScopedStream", "SegmentRange", "StreamCut"]

_REVISION: Final = re.compile(r"(?s)(?P<segment>.*):(?P<offset>-?[0-9]{1,19}):(?P<index>-?[0-9]{1,10})\Z")

SEGMENT_READ: Final = -1
"""Offset in a cut that means: the whole segment was read."""

Endpoint: TypeAlias = tuple[str, int]
"""A host name or address, and a port."""


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


class CutOrder(Enum):
    """How one cut lies to another."""

    EQUAL = "equal"
    """They are the same position."""
    BEFORE = "before"
    """The first is not after the second anywhere, and before it somewhere."""
    AFTER = "after"
    """The first is not before the second anywhere, and after it somewhere."""
    OVERLAPPING = "overlapping"
    """The first is before the second in one part of the key space and after it in another."""
    UNKNOWN = "unknown"
    """It cannot be told from the cuts alone: :class:`StreamLayout` tells."""


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
        if not isinstance(stream, ScopedStream):
            raise InvalidStreamCutError(f"a stream cut is of a ScopedStream, not of {stream!r}")
        try:
            positions = {index(segment): index(offset) for segment, offset in positions.items()}
        except TypeError:
            raise InvalidStreamCutError(
                f"stream cut of {stream}: {dict(positions)!r} are not whole numbers",
                scope=stream.scope,
                stream=stream.name,
            ) from None
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

    def compare(self, other: StreamCut) -> CutOrder:
        """How this cut lies to ``other``, as far as cuts alone tell; :meth:`StreamLayout.compare` knows more.

        Offsets in segments that both name are compared; -1 is at or after each of them. Of the segments
        that only one names, a younger one (of a later epoch) lies after an older one wherever they share
        keys; but which of them do is not in a cut, so they are told apart only where all of one cut's are
        older than all of the other's. Without lengths, a position at the end of a segment counts as before
        the beginning of the one that follows it, and before -1, although nothing is stored between.

        :raises InvalidStreamCutError: the cuts are of different streams.
        """
        if self.stream != other.stream:
            raise InvalidStreamCutError(
                f"a cut of {self.stream} and one of {other.stream} cannot be compared",
                scope=self.stream.scope,
                stream=self.stream.name,
            )
        mine, theirs = self._positions, other._positions
        shared = mine.keys() & theirs.keys()
        # certain: offsets differ. possible: one is at the end, and the other may be there too.
        before = after = maybe_before = maybe_after = False
        for segment in shared:
            here, there = mine[segment], theirs[segment]
            if here == there:
                continue
            if here < 0:
                maybe_after = True
            elif there < 0:
                maybe_before = True
            elif here < there:
                before = True
            else:
                after = True
        only_mine = [epoch_of(segment) for segment in mine.keys() - shared]
        only_theirs = [epoch_of(segment) for segment in theirs.keys() - shared]
        if before and after:
            return CutOrder.OVERLAPPING
        if only_mine or only_theirs:
            if not only_mine or not only_theirs:
                return CutOrder.UNKNOWN  # one of them does not cover the whole key space
            if max(only_mine) < min(only_theirs):
                maybe_before = True
            elif max(only_theirs) < min(only_mine):
                maybe_after = True
            else:
                return CutOrder.UNKNOWN
        if (before or maybe_before) and (after or maybe_after):
            return CutOrder.UNKNOWN
        if before or maybe_before:
            return CutOrder.BEFORE
        return CutOrder.AFTER if after or maybe_after else CutOrder.EQUAL

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
        if not isinstance(text, str):
            raise InvalidStreamCutError(
                f"the text of a stream cut must be a string, not {type(text).__name__}"
            )
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
        for name in ("segment_id", "start_offset", "end_offset"):
            check_count(f"range of {self.stream}: {name}", getattr(self, name), 0)
        if self.start_offset > self.end_offset:
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
        """From :meth:`to_text`.

        :raises InvalidArgumentError: not such a text.
        """
        match = _REVISION.match(check_text("the text of a revision", text))
        if match is None:
            raise InvalidArgumentError(f"{text!r} is not the text of a revision")
        return cls(match["segment"], int(match["offset"]), int(match["index"]))

    def __lt__(self, other: Revision) -> bool:
        return (self.offset, self.event_at_offset) < (other.offset, other.event_at_offset)

    def __le__(self, other: Revision) -> bool:
        return (self.offset, self.event_at_offset) <= (other.offset, other.event_at_offset)
