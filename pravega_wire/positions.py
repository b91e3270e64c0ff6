"""Where a reader stands, where an event lies, and how far time has come. All immutable and picklable.

Text forms of pointers and versions are those of the Java classes of the same names. Java has none for
positions and checkpoints, whose texts are JSON here. Binary forms are in
:mod:`pravega_wire.protocol.formats` (both: client formats v0.13.0, "Small public types").

Not public: :mod:`pravega_wire` exports what users need of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Final, Self

from pravega_wire.checks import check_text
from pravega_wire.errors import InvalidArgumentError
from pravega_wire.types import SEGMENT_READ, StreamCut

__all__ = [
    "Checkpoint",
    "EventPointer",
    "KeyRange",
    "KeyValueVersion",
    "OwnedSegment",
    "Position",
    "Watermark",
    "WatermarkSegment",
]

KeyRange = tuple[float, float]
"""Part of the key space that a segment is for: low (inclusive) and high (exclusive), in [0, 1]."""

_INT64_MIN: Final = -(1 << 63)
_INT64_MAX: Final = (1 << 63) - 1
_POINTER = re.compile(r"(?s)(?P<segment>.+):(?P<offset>[0-9]{1,19})-(?P<length>[0-9]{1,10})\Z")
_VERSION = re.compile(r"(-?[0-9]{1,19}):(-?[0-9]{1,19})\Z")


_FORMAT: Final = 1
"""Of the JSON texts of positions and checkpoints."""


def _json(fields: dict[str, Any]) -> str:
    return json.dumps(fields, separators=(",", ":"))


def _object(what: str, text: str) -> dict[str, Any]:
    """The fields of a JSON text of our version."""
    found = json.loads(check_text(f"the text of {what}", text))
    if found["version"] != _FORMAT:
        raise InvalidArgumentError(f"the text of {what}: version {found['version']!r} is not known")
    return dict(found)


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Odd texts raise one error."""
    try:
        yield
    except InvalidArgumentError:
        raise
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise InvalidArgumentError(f"that is not the text of {what}: {error!r}") from error


def _range_of(numbers: list[Any]) -> KeyRange | None:
    """The range of no numbers or two."""
    if not numbers:
        return None
    low, high = numbers
    if type(low) not in (int, float) or type(high) not in (int, float):
        raise InvalidArgumentError(f"the text of a position: {low!r}..{high!r} is not a range of keys")
    return float(low), float(high)


def _check_range(what: str, key_range: KeyRange | None) -> None:
    if key_range is not None and not 0.0 <= key_range[0] <= key_range[1] <= 1.0:
        raise InvalidArgumentError(f"{what}: {key_range[0]}..{key_range[1]} is no part of the key space")


@dataclass(frozen=True, slots=True, order=True)
class EventPointer:
    """Where one event lies. Its text, also by ``str()``, is ``segment:offset-length``.

    :param segment: full name of the segment.
    :param start_offset: of the event's header, bytes. :param length: of the event with its 8 bytes of header.
    :raises InvalidArgumentError: negative, or too large for the formats.
    """

    segment: str
    start_offset: int
    length: int

    def __post_init__(self) -> None:
        if not (0 <= self.start_offset <= _INT64_MAX and 0 <= self.length <= 0x7FFFFFFF):
            raise InvalidArgumentError(
                f"{self.length} bytes from offset {self.start_offset} of {self.segment} are no event"
            )

    def to_text(self) -> str:
        """``segment:offset-length``, as Java's ``EventPointer.toString()``."""
        return f"{self.segment}:{self.start_offset}-{self.length}"

    @classmethod
    def from_text(cls, text: str) -> Self:
        """From :meth:`to_text`.

        :raises InvalidArgumentError: not such a text.
        """
        match = _POINTER.match(check_text("the text of an event pointer", text))
        if match is None:
            raise InvalidArgumentError(f"{text!r} is not of the form segment:offset-length")
        return cls(match["segment"], int(match["offset"]), int(match["length"]))

    def __str__(self) -> str:
        return self.to_text()


@dataclass(frozen=True, slots=True)
class OwnedSegment:
    """A segment that a reader reads, and up to where it has.

    :param segment: full name. :param offset: in bytes; -1 when it was read to its end (any negative number is
        taken as that).
    :param key_range: the segment's part of the key space, None where it is not known.
    :raises InvalidArgumentError: the range is no part of the key space.
    """

    segment: str
    offset: int
    key_range: KeyRange | None = None

    def __post_init__(self) -> None:
        _check_range(self.segment, self.key_range)
        if self.offset < 0:
            object.__setattr__(self, "offset", SEGMENT_READ)

    @property
    def completed(self) -> bool:
        """Whether the segment was read to its end."""
        return self.offset == SEGMENT_READ


@dataclass(frozen=True, slots=True)
class Position:
    """Where one reader of a group stands. Two are equal whatever order their segments were given in.

    :param owned: the reader's segments, each once; kept in the order of their names.
    :raises InvalidArgumentError: a segment is there twice.
    """

    owned: tuple[OwnedSegment, ...]

    def __post_init__(self) -> None:
        ordered = tuple(sorted(self.owned, key=lambda each: each.segment))
        for one, other in pairwise(ordered):
            if one.segment == other.segment:
                raise InvalidArgumentError(f"a position has segment {one.segment} twice")
        object.__setattr__(self, "owned", ordered)

    @classmethod
    def of(cls, offsets: Mapping[str, int], ranges: Mapping[str, KeyRange | None] | None = None) -> Self:
        """From segment name to offset, and segment name to range where that is known."""
        known = {} if ranges is None else ranges
        return cls(tuple(OwnedSegment(name, offset, known.get(name)) for name, offset in offsets.items()))

    @property
    def offsets(self) -> dict[str, int]:
        """Segment name to offset; -1 for those read to their end."""
        return {each.segment: each.offset for each in self.owned}

    @property
    def ranges(self) -> dict[str, KeyRange | None]:
        """Segment name to range, None where that is not known."""
        return {each.segment: each.key_range for each in self.owned}

    def to_text(self) -> str:
        """A JSON object: ``version`` 1 and ``segments``, each ``[name, offset]``.

        Where the range of keys is known it is ``[name, offset, low, high]``.
        """
        segments = [[each.segment, each.offset, *(each.key_range or ())] for each in self.owned]
        return _json({"version": _FORMAT, "segments": segments})

    @classmethod
    def from_text(cls, text: str) -> Self:
        """From :meth:`to_text`.

        :raises InvalidArgumentError: not such a text.
        """
        with _reading("a position"):
            owned = []
            for name, offset, *key_range in _object("a position", text)["segments"]:
                if not isinstance(name, str) or type(offset) is not int or len(key_range) not in (0, 2):
                    raise InvalidArgumentError(f"the text of a position: {name!r} at {offset!r}")
                owned.append(OwnedSegment(name, offset, _range_of(key_range)))
            return cls(tuple(owned))


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A named place in each stream of a reader group.

    :param cuts: one per stream, kept in the order of the streams' names.
    :raises InvalidArgumentError: a stream is there twice.
    """

    name: str
    cuts: tuple[StreamCut, ...]

    def __post_init__(self) -> None:
        ordered = tuple(sorted(self.cuts, key=lambda cut: cut.stream))
        for one, other in pairwise(ordered):
            if one.stream == other.stream:
                raise InvalidArgumentError(f"checkpoint {self.name!r} has stream {one.stream} twice")
        object.__setattr__(self, "cuts", ordered)

    def to_text(self) -> str:
        """A JSON object: ``version`` 1, ``name``, and ``cuts``, the texts of the cuts."""
        return _json({"version": _FORMAT, "name": self.name, "cuts": [cut.to_text() for cut in self.cuts]})

    @classmethod
    def from_text(cls, text: str) -> Self:
        """From :meth:`to_text`.

        :raises InvalidArgumentError: not such a text.
        """
        with _reading("a checkpoint"):
            found = _object("a checkpoint", text)
            if not isinstance(found["name"], str):
                raise InvalidArgumentError(f"the text of a checkpoint: {found['name']!r} is not a name")
            return cls(found["name"], tuple(StreamCut.from_text(each) for each in found["cuts"]))


@dataclass(frozen=True, slots=True, order=True)
class WatermarkSegment:
    """A segment's entry in a :class:`Watermark`.

    :param low: and ``high``: its part of the key space. :param offset: bytes; negative: its end.
    """

    segment_id: int
    low: float
    high: float
    offset: int

    def __post_init__(self) -> None:
        _check_range(f"segment {self.segment_id}", (self.low, self.high))


@dataclass(frozen=True, slots=True)
class Watermark:
    """A place in a stream and the time that its writers noted there.

    :param lower: no event after the place is older. :param upper: no event before it is newer. The unit is
        the writers': whatever they gave to ``noteTime``.
    :param positions: segments that cover the key space, kept in the order of their ids.
    :raises InvalidArgumentError: a segment is there twice, or a number is no int64.
    """

    lower: int
    upper: int
    positions: tuple[WatermarkSegment, ...]

    def __post_init__(self) -> None:
        for time in (self.lower, self.upper):
            if not _INT64_MIN <= time <= _INT64_MAX:
                raise InvalidArgumentError(f"a time of {time} does not fit in 64 bits")
        ordered = tuple(sorted(self.positions))
        for one, other in pairwise(ordered):
            if one.segment_id == other.segment_id:
                raise InvalidArgumentError(f"a watermark has segment {one.segment_id} twice")
        object.__setattr__(self, "positions", ordered)

    @classmethod
    def of(cls, lower: int, upper: int, positions: Iterable[WatermarkSegment]) -> Self:
        """As the constructor, from any iterable of segments."""
        return cls(lower, upper, tuple(positions))


@dataclass(frozen=True, slots=True)
class KeyValueVersion:
    """Version of an entry of a key-value table. Its text, also by ``str()``, is ``segmentId:version``.

    :param segment_id: of the table's segment that holds the entry; the smallest int64 means any.
    :param version: of the entry in its segment; -1: it must not exist, the smallest int64: no condition.
    :raises InvalidArgumentError: a number is no int64.
    """

    segment_id: int
    version: int

    ANY_SEGMENT: ClassVar[int] = _INT64_MIN
    NOT_EXISTS: ClassVar[int] = -1
    NO_VERSION: ClassVar[int] = _INT64_MIN

    def __post_init__(self) -> None:
        for value in (self.segment_id, self.version):
            if not _INT64_MIN <= value <= _INT64_MAX:
                raise InvalidArgumentError(f"{value} does not fit in 64 bits")

    def to_text(self) -> str:
        """``segmentId:version``, as Java's ``Version.toString()``."""
        return f"{self.segment_id}:{self.version}"

    @classmethod
    def from_text(cls, text: str) -> Self:
        """From :meth:`to_text`.

        :raises InvalidArgumentError: not such a text.
        """
        match = _VERSION.match(check_text("the text of a version", text))
        if match is None:
            raise InvalidArgumentError(f"{text!r} is not of the form segmentId:version")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return self.to_text()
