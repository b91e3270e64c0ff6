"""Values that users hold: stream names, stream cuts, segment ranges, revisions.

All are immutable and can be pickled.

Not public: :mod:`pravega_wire` exports the names that users need.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from operator import index
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self, TypeAlias

from pravega_wire.errors import InvalidArgumentError, InvalidStreamCutError
from pravega_wire.support.checks import INT32_MAX, check_count, check_text, check_type, shown
from pravega_wire.values.naming import (
    epoch_of,
    number_of,
    segment_name,
    validate_scope_name,
    validate_stream_name,
)
from pravega_wire.values.naming import segment_id as make_segment_id

__all__ = [
    "CutOrder",
    "Endpoint",
    "Revision",
    "ScopedStream",
    "SegmentRange",
    "StagedBytes",
    "StreamCut",
    "endpoint_text",
    "gzipped",
    "is_key_space",
]

# Method deflate, no flags, no time, no extra flags; unknown system, as Java writes it since version 16.
# What Python's gzip.compress writes there depends on its version.
_GZIP_HEAD: Final = bytes.fromhex("1f8b08000000000000ff")
_JAVA_LEVEL: Final = 6

_REVISION: Final = re.compile(r"(?s)(?P<segment>.*):(?P<offset>-?[0-9]{1,19}):(?P<index>-?[0-9]{1,10})\Z")

SEGMENT_READ: Final = -1
"""The offset in a stream cut that means "read to the end of the segment"."""

ROUNDING: Final = 1e-6
"""How far the ends of key ranges may be apart that meet, or from the end of the key space.

A server divides 1 by the number of segments: of 49, the last one ends at 0.9999999999999999.
"""

Endpoint: TypeAlias = tuple[str, int]
"""A host name or address, and a port."""


def is_key_space(ranges: Sequence[tuple[float, float]]) -> bool:
    """Return whether ranges, each from its low end to its high one, follow each other from 0 to 1."""
    ends = [0.0, *(high for _, high in ranges)]
    starts = [*(low for low, _ in ranges), 1.0]
    return all(abs(end - start) < ROUNDING for end, start in zip(ends, starts, strict=True))


def endpoint_text(endpoint: Endpoint) -> str:
    """Return ``host:port``, with an IPv6 address in brackets, as ``parse_endpoint`` reads it."""
    host, port = endpoint
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def gzipped(data: bytes) -> bytes:
    """Return the bytes that Java's ``GZIPOutputStream`` makes of the same data."""
    return _GZIP_HEAD + gzip.compress(data, _JAVA_LEVEL, mtime=0)[len(_GZIP_HEAD) :]


@dataclass(frozen=True, slots=True, order=True)
class ScopedStream:
    """The full name of a stream; ``str()`` returns ``scope/stream``.

    :param scope: name of the scope.
    :param name: name of the stream, without its scope.
    :raises InvalidArgumentError: a name is empty, too long, or contains illegal characters.
    """

    scope: str
    name: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "scope", validate_scope_name(self.scope))
        object.__setattr__(self, "name", validate_stream_name(self.name))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``scope/stream``.

        :param text: the full name of a stream.
        :raises InvalidArgumentError: the text does not have this form, or a name is not valid.
        """
        parts = text.split("/") if isinstance(text, str) else ()
        if len(parts) != 2:
            raise InvalidArgumentError(f"{shown(text)} is not of the form scope/stream")
        return cls(parts[0], parts[1])

    def __str__(self) -> str:
        return f"{self.scope}/{self.name}"


class CutOrder(Enum):
    """The result of comparing two stream cuts."""

    EQUAL = "equal"
    """Both are the same position."""
    BEFORE = "before"
    """The first cut is before the second in part of the key space, and not after it in any part."""
    AFTER = "after"
    """The first cut is after the second in part of the key space, and not before it in any part."""
    OVERLAPPING = "overlapping"
    """The first cut is before the second in one part of the key space and after it in another."""
    UNKNOWN = "unknown"
    """The cuts alone do not contain enough information; :meth:`StreamLayout.compare` does."""


class StreamCut:
    """A position in a stream: an offset in each of a set of segments that together cover the key space.

    The text form is that of ``io.pravega.client.stream.StreamCut.asText()``, so Java and Python programs can
    exchange stream cuts.

    Example::

        tail = await client.tail("readings")
        text = tail.to_text()  # save it; later:
        cut = StreamCut.from_text(text)
        for segment_range in await client.segment_ranges("readings", cut, "latest"):
            async for batch in client.read_range(segment_range):
                print(len(batch), "events written since then")

    :param stream: the stream that the cut belongs to.
    :param positions: segment id to offset in bytes; -1 for a segment that was read to its end.
    :raises InvalidStreamCutError: an id or offset is not a whole number, or out of range.
    """

    __slots__ = ("_positions", "stream")

    stream: ScopedStream
    _positions: Mapping[int, int]

    def __init__(self, stream: ScopedStream, positions: Mapping[int, int]) -> None:
        if not isinstance(stream, ScopedStream):
            raise InvalidStreamCutError(
                f"the stream of a stream cut must be a ScopedStream, not {shown(stream)}"
            )
        if not isinstance(positions, Mapping):
            raise InvalidStreamCutError(
                f"stream cut of {stream}: the positions must map segment ids to offsets, and are "
                f"{shown(positions)}",
                scope=stream.scope,
                stream=stream.name,
            )
        try:
            positions = {index(segment): index(offset) for segment, offset in positions.items()}
        except TypeError:
            raise InvalidStreamCutError(
                f"stream cut of {stream}: the segment ids and offsets in {dict(positions)!r} must be whole "
                "numbers",
                scope=stream.scope,
                stream=stream.name,
            ) from None
        for segment, offset in positions.items():
            if not 0 <= segment < 1 << 63 or not -1 <= offset < 1 << 63:
                raise InvalidStreamCutError(
                    f"stream cut of {stream}: segment id {segment} or its offset {offset} is out of range "
                    "(ids start at 0, offsets at -1)",
                    scope=stream.scope,
                    stream=stream.name,
                )
        object.__setattr__(self, "stream", stream)
        object.__setattr__(self, "_positions", MappingProxyType(dict(sorted(positions.items()))))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a StreamCut is immutable")

    @property
    def positions(self) -> Mapping[int, int]:
        """Read-only mapping of segment id to offset in bytes, in ascending order of ids."""
        return self._positions

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StreamCut):
            return NotImplemented
        return self.stream == other.stream and self._positions == other._positions

    def __hash__(self) -> int:
        return hash((self.stream, tuple(self._positions.items())))

    def compare(self, other: StreamCut) -> CutOrder:
        """Compare this cut with another one, using only the information in the two cuts.

        :meth:`StreamLayout.compare` also uses the segments' key ranges and lengths, so it can decide more.

        In segments that both cuts contain, offsets are compared; -1 is at or after every other offset. A
        segment of a later epoch is after one of an earlier epoch wherever their key ranges overlap. A cut
        does not contain key ranges, so segments that only one of the cuts contains are compared only if all
        of one cut's are older than all of the other's. A cut does not contain segment lengths either, so the
        end of a segment counts as before the start of its successor, and before -1, although no data is
        between them.

        :param other: the cut to compare with.
        :returns: how this cut relates to ``other``: ``BEFORE`` means that this one is earlier.
        :raises InvalidStreamCutError: the cuts belong to different streams.
        """
        check_type("the other stream cut", other, StreamCut)
        if self.stream != other.stream:
            raise InvalidStreamCutError(
                f"cannot compare a stream cut of {self.stream} with one of {other.stream}",
                scope=self.stream.scope,
                stream=self.stream.name,
            )
        mine, theirs = self._positions, other._positions
        shared = mine.keys() & theirs.keys()
        # before, after: the offsets differ. maybe_*: one cut is at the end, and the other may be there too.
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
                return CutOrder.UNKNOWN  # one of the cuts does not cover the whole key space
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
        """Return the cut as text that Java's ``StreamCut.from()`` can read.

        It is the base64 of the gzip of ``0:scope/stream:numbers:epochs:offsets``. Equal cuts always have the
        same text. Java's has its segments in no particular order.
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
        return base64.b64encode(gzipped(plain.encode())).decode("ascii")

    @classmethod
    def from_text(cls, text: str) -> StreamCut:
        """Parse the text of a cut.

        :param text: the result of :meth:`to_text`, or of Java's ``StreamCut.asText()``.
        :raises InvalidStreamCutError: the text is not that of a stream cut.
        """
        if not isinstance(text, str):
            raise InvalidStreamCutError(
                f"the text of a stream cut must be a string, not {type(text).__name__}"
            )
        try:
            packed = base64.b64decode(text.strip(), validate=True)
            plain = gzip.decompress(packed).decode()
            version, stream, numbers, epochs, offsets = plain.split(":")
            if version != "0":
                raise InvalidStreamCutError(
                    f"stream cut {shown(text)}: version {version!r} is not supported (only version 0 is)"
                )
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
            raise InvalidStreamCutError(
                f"{shown(text)} is not the text of a stream cut, which to_text() returns"
            ) from error


@dataclass(frozen=True, slots=True, order=True)
class SegmentRange:
    """A range of bytes of one segment.

    :param stream: stream of the segment.
    :param segment_id: id of the segment.
    :param start_offset: offset of the first byte.
    :param end_offset: offset after the last byte.
    :raises InvalidArgumentError: a number is negative or not whole, or the end is before the start.
    """

    stream: ScopedStream
    segment_id: int
    start_offset: int
    end_offset: int

    def __post_init__(self) -> None:
        check_type("stream of a range", self.stream, ScopedStream)
        for name in ("segment_id", "start_offset", "end_offset"):
            check_count(f"range of {self.stream}: {name}", getattr(self, name), 0)
        if self.start_offset > self.end_offset:
            raise InvalidArgumentError(
                f"range of segment {self.segment_id} of {self.stream}: start offset {self.start_offset} is "
                f"after end offset {self.end_offset}"
            )

    @property
    def segment(self) -> str:
        """The full name of the segment."""
        return segment_name(self.stream.scope, self.stream.name, self.segment_id)

    @property
    def length(self) -> int:
        """The number of bytes in the range."""
        return self.end_offset - self.start_offset


@dataclass(frozen=True, slots=True)
class Revision:
    """A position in a revisioned stream: the offset after the value that it belongs to.

    Revisions of one stream can be compared with ``<`` and ``<=``.

    :param segment: full name of the stream's segment.
    :param offset: offset in bytes.
    :param event_at_offset: index of an update in a record with several updates.
    :raises InvalidArgumentError: a number is negative, not whole, or too large for the format.
    """

    segment: str
    offset: int
    event_at_offset: int = 0

    def __post_init__(self) -> None:
        check_type("the segment of a revision", self.segment, str)
        # To a store, an offset of -1 is no condition at all.
        check_count(f"revision of {self.segment}: offset", self.offset, 0)
        check_count(f"revision of {self.segment}: event_at_offset", self.event_at_offset, 0, INT32_MAX)

    def to_text(self) -> str:
        """Return ``segment:offset:index``, as Java's ``Revision.toString()`` does."""
        return f"{self.segment}:{self.offset}:{self.event_at_offset}"

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parse the text of a revision.

        :param text: the result of :meth:`to_text`, or of Java's ``Revision.toString()``.
        :raises InvalidArgumentError: the text is not that of a revision.
        """
        match = _REVISION.match(check_text("the text of a revision", text))
        if match is None:
            raise InvalidArgumentError(f"{shown(text)} is not the text of a revision")
        return cls(match["segment"], int(match["offset"]), int(match["index"]))

    def __lt__(self, other: Revision) -> bool:
        if not isinstance(other, Revision):
            return NotImplemented
        return (self.offset, self.event_at_offset) < (other.offset, other.event_at_offset)

    def __le__(self, other: Revision) -> bool:
        if not isinstance(other, Revision):
            return NotImplemented
        return (self.offset, self.event_at_offset) <= (other.offset, other.event_at_offset)


class StagedBytes(NamedTuple):
    """The contents of a segment, as stored: events with their headers.

    :ivar length: their total size in bytes.
    :ivar crc32: the CRC-32 of all of them, as computed by :func:`zlib.crc32`.
    """

    length: int
    crc32: int
