"""Positions of readers, event pointers, checkpoints, watermarks and versions of table entries.

All are immutable and can be pickled. The texts of event pointers and versions are those of the Java classes
with the same names. Java has no texts for positions and checkpoints; here they are JSON. See
``docs/protocol/formats.md``, "Stream cuts, positions and pointers", also for Java's binary forms.

Not public: :mod:`pravega_wire` exports the names that users need.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Final, Self, TypeVar

from pravega_wire.errors import InvalidArgumentError
from pravega_wire.support.checks import INT32_MAX, check_count, check_several, check_text, check_type, shown
from pravega_wire.values.types import SEGMENT_READ, StreamCut

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

T = TypeVar("T")

KeyRange = tuple[float, float]
"""The part of the key space that a segment covers: low (inclusive) and high (exclusive), in [0, 1]."""

_INT64_MIN: Final = -(1 << 63)
_POINTER = re.compile(r"(?s)(?P<segment>.+):(?P<offset>[0-9]{1,19})-(?P<length>[0-9]{1,10})\Z")
_VERSION = re.compile(r"(-?[0-9]{1,19}):(-?[0-9]{1,19})\Z")


_FORMAT: Final = 1
"""The version of the JSON texts of positions and checkpoints."""


def _json(fields: dict[str, Any]) -> str:
    return json.dumps(fields, separators=(",", ":"))


def _object(what: str, text: str) -> dict[str, Any]:
    """Parse a JSON text, and check its version."""
    found = json.loads(check_text(f"the text of {what}", text))
    if found["version"] != _FORMAT:
        raise InvalidArgumentError(
            f"the text of {what}: version {found['version']!r} is not supported (only version {_FORMAT} is)"
        )
    return dict(found)


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Raise InvalidArgumentError for every error in a malformed text."""
    try:
        yield
    except InvalidArgumentError:
        raise
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise InvalidArgumentError(f"this is not the text of {what}: {error!r}") from error


def _range_of(numbers: list[Any]) -> KeyRange | None:
    """Return the key range of two numbers, or None for none."""
    if not numbers:
        return None
    low, high = numbers
    if type(low) not in (int, float) or type(high) not in (int, float):
        raise InvalidArgumentError(f"the text of a position: {low!r}..{high!r} is not a key range")
    return float(low), float(high)


def _all_of(what: str, given: Iterable[T], kind: type[T]) -> tuple[T, ...]:
    """Return some values, all of one class.

    :raises ArgumentTypeError: they are something else.
    """
    check_several(what, given)
    found = tuple(given)
    for each in found:
        check_type(f"each of {what}", each, kind)
    return found


def _check_range(what: str, key_range: KeyRange | None) -> None:
    if key_range is not None and not 0.0 <= key_range[0] <= key_range[1] <= 1.0:
        raise InvalidArgumentError(
            f"{what}: {key_range[0]}..{key_range[1]} is not a part of the key space (0.0 to 1.0)"
        )


@dataclass(frozen=True, slots=True, order=True)
class EventPointer:
    """The location of one event. Its text, also from ``str()``, is ``segment:offset-length``.

    Example::

        await client.create_reader_group("audit", ["readings"])
        async with client.reader_group("audit") as group, group.reader("one") as reader:
            async for event in reader:
                text = event.pointer.to_text()  # save it; later:
                break
        payload = await client.fetch_event(EventPointer.from_text(text))

    :param segment: full name of the segment.
    :param start_offset: offset of the event's header in bytes.
    :param length: length of the event in bytes, including its 8 bytes of header.
    :raises InvalidArgumentError: a number is negative, not whole, or too large for the format.
    """

    segment: str
    start_offset: int
    length: int

    def __post_init__(self) -> None:
        check_type("the segment of an event pointer", self.segment, str)
        check_count(f"event pointer in {self.segment}: start_offset", self.start_offset, 0)
        check_count(f"event pointer in {self.segment}: length", self.length, 0, INT32_MAX)

    def to_text(self) -> str:
        """Return ``segment:offset-length``, as Java's ``EventPointer.toString()`` does."""
        return f"{self.segment}:{self.start_offset}-{self.length}"

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parse the text of an event pointer.

        :param text: the result of :meth:`to_text`, or of Java's ``EventPointer.toString()``.
        :raises InvalidArgumentError: the text is not that of an event pointer.
        """
        match = _POINTER.match(check_text("the text of an event pointer", text))
        if match is None:
            raise InvalidArgumentError(f"{shown(text)} is not of the form segment:offset-length")
        return cls(match["segment"], int(match["offset"]), int(match["length"]))

    def __str__(self) -> str:
        return self.to_text()


@dataclass(frozen=True, slots=True)
class OwnedSegment:
    """A segment that a reader holds, and the offset up to which it has been read.

    :param segment: full name of the segment.
    :param offset: offset in bytes; -1 (or any negative number) if the segment was read to its end.
    :param key_range: the segment's part of the key space; None if unknown.
    :raises InvalidArgumentError: the key range is not between 0.0 and 1.0, or the offset is not an int64.
    """

    segment: str
    offset: int
    key_range: KeyRange | None = None

    def __post_init__(self) -> None:
        check_type("the segment of a position", self.segment, str)
        _check_range(self.segment, self.key_range)
        if check_count(f"position in {self.segment}: offset", self.offset, _INT64_MIN) < 0:
            object.__setattr__(self, "offset", SEGMENT_READ)

    @property
    def completed(self) -> bool:
        """True if the segment was read to its end."""
        return self.offset == SEGMENT_READ


@dataclass(frozen=True, slots=True)
class Position:
    """The position of one reader of a group: an offset in each of its segments.

    The order of the segments does not matter for equality.

    Example::

        await client.create_reader_group("copying", ["readings"])
        async with client.reader_group("copying") as group, group.reader("one") as reader:
            async for event in reader:
                text = reader.position.to_text()  # save it with the results
                break
        # If the reader dies without leaving: await group.reader_offline("one", position)
        position = Position.from_text(text)

    :param owned: the reader's segments, each once; kept in the order of their names.
    :raises InvalidArgumentError: a segment occurs twice.
    """

    owned: tuple[OwnedSegment, ...]

    def __post_init__(self) -> None:
        owned = _all_of("the segments of a position", self.owned, OwnedSegment)
        ordered = tuple(sorted(owned, key=lambda each: each.segment))
        for one, other in pairwise(ordered):
            if one.segment == other.segment:
                raise InvalidArgumentError(f"the position has segment {one.segment} twice")
        object.__setattr__(self, "owned", ordered)

    @classmethod
    def of(cls, offsets: Mapping[str, int], ranges: Mapping[str, KeyRange | None] | None = None) -> Self:
        """Create a position from mappings.

        :param offsets: full name of each segment to its offset.
        :param ranges: full name of a segment to its key range, for segments whose range is known.
        """
        known = {} if ranges is None else ranges
        check_type("offsets", offsets, Mapping)
        check_type("ranges", known, Mapping)
        return cls(tuple(OwnedSegment(name, offset, known.get(name)) for name, offset in offsets.items()))

    @property
    def offsets(self) -> dict[str, int]:
        """Full name of each segment to its offset; -1 for a segment that was read to its end."""
        return {each.segment: each.offset for each in self.owned}

    @property
    def ranges(self) -> dict[str, KeyRange | None]:
        """Full name of each segment to its key range; None if unknown."""
        return {each.segment: each.key_range for each in self.owned}

    def to_text(self) -> str:
        """Return a JSON object with ``version`` 1 and ``segments``, each ``[name, offset]``.

        If the key range is known, a segment is ``[name, offset, low, high]``.
        """
        segments = [[each.segment, each.offset, *(each.key_range or ())] for each in self.owned]
        return _json({"version": _FORMAT, "segments": segments})

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parse the text of a position.

        :param text: the result of :meth:`to_text`.
        :raises InvalidArgumentError: the text is not that of a position.
        """
        with _reading("a position"):
            owned = []
            for name, offset, *key_range in _object("a position", text)["segments"]:
                if not isinstance(name, str) or type(offset) is not int or len(key_range) not in (0, 2):
                    raise InvalidArgumentError(
                        f"the text of a position: {name!r} at {offset!r} is not a segment with an offset"
                    )
                owned.append(OwnedSegment(name, offset, _range_of(key_range)))
            return cls(tuple(owned))


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A named position in each stream of a reader group.

    Example::

        await client.create_reader_group("hourly-report", ["readings"])
        async with client.reader_group("hourly-report") as group:
            checkpoint = await group.checkpoint("hourly", timeout=60)
            text = checkpoint.to_text()  # save it; later:
            await group.reset(Checkpoint.from_text(text))

    :param name: name of the checkpoint.
    :param cuts: one stream cut for each stream, kept in the order of the streams' names.
    :raises InvalidArgumentError: a stream occurs twice.
    """

    name: str
    cuts: tuple[StreamCut, ...]

    def __post_init__(self) -> None:
        check_type("the name of a checkpoint", self.name, str)
        cuts = _all_of(f"the cuts of checkpoint {self.name!r}", self.cuts, StreamCut)
        ordered = tuple(sorted(cuts, key=lambda cut: cut.stream))
        for one, other in pairwise(ordered):
            if one.stream == other.stream:
                raise InvalidArgumentError(f"checkpoint {self.name!r} has stream {one.stream} twice")
        object.__setattr__(self, "cuts", ordered)

    def to_text(self) -> str:
        """Return a JSON object with ``version`` 1, ``name``, and ``cuts``, the texts of the stream cuts."""
        return _json({"version": _FORMAT, "name": self.name, "cuts": [cut.to_text() for cut in self.cuts]})

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parse the text of a checkpoint.

        :param text: the result of :meth:`to_text`.
        :raises InvalidArgumentError: the text is not that of a checkpoint.
        """
        with _reading("a checkpoint"):
            found = _object("a checkpoint", text)
            if not isinstance(found["name"], str):
                raise InvalidArgumentError(f"the text of a checkpoint: {found['name']!r} is not a name")
            return cls(found["name"], tuple(StreamCut.from_text(each) for each in found["cuts"]))


@dataclass(frozen=True, slots=True, order=True)
class WatermarkSegment:
    """The position of a :class:`Watermark` in one segment.

    :param segment_id: id of the segment.
    :param low: start of its part of the key space (inclusive).
    :param high: end of its part of the key space (exclusive).
    :param offset: offset in bytes; a negative number means the end of the segment.
    """

    segment_id: int
    low: float
    high: float
    offset: int

    def __post_init__(self) -> None:
        _check_range(f"segment {self.segment_id}", (self.low, self.high))


@dataclass(frozen=True, slots=True)
class Watermark:
    """A position in a stream, and the event time that its writers have reported there.

    Times are in the unit that the writers pass to ``note_time`` (``noteTime`` in Java).

    :param lower: no event after the position is older.
    :param upper: no event before the position is newer.
    :param positions: segments that cover the key space, kept in the order of their ids.
    :raises InvalidArgumentError: a segment occurs twice, or a time is not an int64.
    """

    lower: int
    upper: int
    positions: tuple[WatermarkSegment, ...]

    def __post_init__(self) -> None:
        for time in (self.lower, self.upper):
            check_count("watermark: a time", time, _INT64_MIN)
        ordered = tuple(sorted(_all_of("the positions of a watermark", self.positions, WatermarkSegment)))
        for one, other in pairwise(ordered):
            if one.segment_id == other.segment_id:
                raise InvalidArgumentError(f"the watermark has segment {one.segment_id} twice")
        object.__setattr__(self, "positions", ordered)

    @classmethod
    def of(cls, lower: int, upper: int, positions: Iterable[WatermarkSegment]) -> Self:
        """Create a watermark from any iterable of segments; otherwise as the constructor."""
        return cls(lower, upper, _all_of("the positions of a watermark", positions, WatermarkSegment))


@dataclass(frozen=True, slots=True)
class KeyValueVersion:
    """The version of an entry of a key-value table. Its text, also from ``str()``, is ``segmentId:version``.

    :param segment_id: id of the table's segment that holds the entry; the smallest int64 means any segment.
    :param version: version of the entry in its segment. As a condition, -1 means that the entry must not
        exist, and the smallest int64 means no condition.
    :raises InvalidArgumentError: a number is not an int64.
    """

    segment_id: int
    version: int

    ANY_SEGMENT: ClassVar[int] = _INT64_MIN
    NOT_EXISTS: ClassVar[int] = -1
    NO_VERSION: ClassVar[int] = _INT64_MIN

    def __post_init__(self) -> None:
        for value in (self.segment_id, self.version):
            check_count("table version: a number", value, _INT64_MIN)

    def to_text(self) -> str:
        """Return ``segmentId:version``, as Java's ``Version.toString()`` does."""
        return f"{self.segment_id}:{self.version}"

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parse the text of a version.

        :param text: the result of :meth:`to_text`, or of Java's ``Version.toString()``.
        :raises InvalidArgumentError: the text is not that of a version.
        """
        match = _VERSION.match(check_text("the text of a version", text))
        if match is None:
            raise InvalidArgumentError(f"{shown(text)} is not of the form segmentId:version")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return self.to_text()
