"""Event boundaries of a segment, at which a range can be split.

In a segment, each event is a header of eight bytes and its payload, so an event boundary can be found only by
following the headers from another one (``docs/protocol/formats.md``, "Events in a segment").
:class:`BoundaryIndex` stores the result of such a pass. It stays valid, because events never change and a
stream that is created again under the same name gets other segment ids.

Not public: :mod:`pravega_wire` exports the names that users need.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import index
from typing import Any, Final

from pravega_wire.errors import InvalidArgumentError
from pravega_wire.support.checks import check_bytes, check_count, check_several, check_text, check_type
from pravega_wire.values.types import ScopedStream, SegmentRange

__all__ = ["DEFAULT_PIECE_BYTES", "DEFAULT_SPACING", "BoundaryIndex", "LeadingPart"]

DEFAULT_SPACING: Final = 1 << 20
"""The default distance of marks, in bytes."""

DEFAULT_PIECE_BYTES: Final = 64 << 20
"""The default size of a piece, in bytes."""

_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class LeadingPart:
    """The complete events at the start of a range; the result of :meth:`PravegaClient.leading_parts`.

    :ivar range: from the start of the requested range to an event boundary.
    :ivar events: number of events; None if their number was not limited, because then they are not counted.
    :ivar next_bytes: size of the next event with its header, if it exceeds the limit of bytes; None if there
        is no next event, or the limit of events ended the part.
    """

    range: SegmentRange
    events: int | None
    next_bytes: int | None


@dataclass(frozen=True, slots=True)
class BoundaryIndex:
    """Event boundaries in a part of one segment; the result of :meth:`PravegaClient.boundary_index`.

    The distance between neighbours among ``start``, the marks and ``end`` is at most ``spacing`` bytes, or a
    single larger event. Each mark takes about 8 bytes of memory, or 10 bytes of text.

    Example::

        for whole in await client.segment_ranges("readings"):
            index = await client.boundary_index(whole)
            for piece in index.split(whole, 64 << 20):
                print(piece.start_offset, piece.length)

    :ivar stream: stream of the segment.
    :ivar segment_id: id of the segment.
    :ivar start: offset in bytes of the start of the indexed part; an event boundary, according to the caller.
    :ivar end: offset in bytes of the end of the indexed part; an event boundary.
    :ivar spacing: largest distance of marks in bytes.
    :ivar marks: offsets in bytes, ascending, after ``start`` and not after ``end``.
    :raises InvalidArgumentError: the numbers contradict each other.
    """

    stream: ScopedStream
    segment_id: int
    start: int
    end: int
    spacing: int = DEFAULT_SPACING
    marks: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        SegmentRange(self.stream, self.segment_id, self.start, self.end)
        check_several("marks", self.marks)
        # The numbers may be those of numpy, which JSON has not.
        for name in ("segment_id", "start", "end"):
            object.__setattr__(self, name, index(getattr(self, name)))
        object.__setattr__(self, "spacing", check_bytes("spacing", self.spacing))
        object.__setattr__(self, "marks", tuple(check_count("a mark", each, 0) for each in self.marks))
        if any(low >= high for low, high in pairwise((self.start, *self.marks, self.end + 1))):
            raise InvalidArgumentError(
                f"boundary index: the marks of segment {self.segment_id} of {self.stream} must ascend from "
                f"{self.start} to {self.end}"
            )

    @property
    def range(self) -> SegmentRange:
        """The indexed part of the segment."""
        return SegmentRange(self.stream, self.segment_id, self.start, self.end)

    def covers(self, segment_range: SegmentRange) -> bool:
        """Return True if a range is inside the indexed part.

        :param segment_range: the range.
        """
        check_type("segment_range", segment_range, SegmentRange)
        return (
            (self.stream, self.segment_id) == (segment_range.stream, segment_range.segment_id)
            and self.start <= segment_range.start_offset
            and segment_range.end_offset <= self.end
        )

    def split(self, segment_range: SegmentRange, max_bytes: int) -> list[SegmentRange]:
        """Split a range into pieces of a limited size, without a server.

        The pieces cover the range from its start to its end without gaps. No piece is empty, and only a piece
        with a single event is larger than the limit. Pieces meet at event boundaries. The start and end of
        the range are used as they are; reading a piece fails if they are not event boundaries.

        :param segment_range: the range.
        :param max_bytes: largest size of a piece in bytes; at least the index's spacing.
        :raises InvalidArgumentError: the index does not cover the range, or the limit is below its spacing.
        """
        check_bytes("max_bytes", max_bytes)
        covered = self.covers(segment_range)
        if max_bytes < self.spacing:
            raise InvalidArgumentError(
                f"segment {segment_range.segment} cannot be split into pieces of {max_bytes} bytes: the "
                f"index has a boundary only every {self.spacing} bytes; pass a larger max_bytes, or create "
                "an index with a smaller spacing"
            )
        if not covered:
            raise InvalidArgumentError(f"the boundary index of {self.range} does not cover {segment_range}")
        return list(self._pieces(segment_range, max_bytes))

    def _pieces(self, whole: SegmentRange, max_bytes: int) -> Iterator[SegmentRange]:
        marks = self.marks
        at, end = whole.start_offset, whole.end_offset
        while at < end:
            stop = end
            if end - at > max_bytes:
                place = bisect_right(marks, at + max_bytes) - 1
                if place < 0 or marks[place] <= at:
                    place += 1  # one event over the limit
                if place < len(marks):
                    stop = min(end, marks[place])
            yield SegmentRange(whole.stream, whole.segment_id, at, stop)
            at = stop

    def to_text(self) -> str:
        """Return the index as a JSON object.

        It has ``version`` 1, ``stream``, ``segment_id``, ``start``, ``end``, ``spacing`` and ``steps``: the
        distance of each mark from the one before it, and of the first from ``start``.
        """
        steps = [high - low for low, high in pairwise((self.start, *self.marks))]
        fields = {
            "version": _FORMAT,
            "stream": str(self.stream),
            "segment_id": self.segment_id,
            "start": self.start,
            "end": self.end,
            "spacing": self.spacing,
            "steps": steps,
        }
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> BoundaryIndex:
        """Parse the text of an index.

        :param text: the result of :meth:`to_text`.
        :raises InvalidArgumentError: the text is not that of an index.
        """
        try:
            found: dict[str, Any] = json.loads(check_text("the text of a boundary index", text))
            if found["version"] != _FORMAT:
                raise InvalidArgumentError(
                    f"boundary index: version {found['version']!r} is not supported (only version {_FORMAT} "
                    "is)"
                )
            numbers = [found[name] for name in ("segment_id", "start", "end", "spacing")]
            steps = found["steps"]
            if not all(type(each) is int for each in (*numbers, *steps)):
                raise InvalidArgumentError("boundary index: an offset is not a whole number")
            segment_id, start, end, spacing = numbers
            marks = tuple(accumulate(steps, initial=start))[1:]
            return cls(ScopedStream.parse(found["stream"]), segment_id, start, end, spacing, marks)
        except InvalidArgumentError:
            raise
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise InvalidArgumentError(f"this is not the text of a boundary index: {error!r}") from error
