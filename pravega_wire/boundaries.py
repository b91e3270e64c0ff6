"""Where a segment can be divided: places between two events, kept beside the data.

In a segment each event is a header of eight bytes and its payload, so a place between two events is
found only by following the headers from another one (client formats v0.13.0, "Event framing in a stream
segment"). :class:`BoundaryIndex` keeps what such a pass has found. Events never change, and a stream that is
made anew under the same name gets other segment ids, so it stays true.

Not public: :mod:`pravega_wire` exports what users need of it.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Final

from pravega_wire.checks import check_bytes, check_text
from pravega_wire.errors import InvalidArgumentError
from pravega_wire.types import ScopedStream, SegmentRange

__all__ = ["DEFAULT_PIECE_BYTES", "DEFAULT_SPACING", "BoundaryIndex", "LeadingPart", "check_bytes"]

DEFAULT_SPACING: Final = 1 << 20
"""Bytes from one mark to the next."""

DEFAULT_PIECE_BYTES: Final = 64 << 20
"""Bytes of a piece."""

_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class LeadingPart:
    """The whole events that a range begins with. Made by :meth:`PravegaClient.leading_parts`.

    :ivar range: from the start of the range that was asked about to a boundary. :ivar events: how many it
        has; None where they were not limited, because then nobody has counted.
    :ivar next_bytes: size of the event that follows, with its header, where it is over the limit of bytes;
        None where nothing follows or the limit of events ended the part.
    """

    range: SegmentRange
    events: int | None
    next_bytes: int | None


@dataclass(frozen=True, slots=True)
class BoundaryIndex:
    """Places between the events of a part of one segment. Made by :meth:`PravegaClient.boundary_index`.

    Between two neighbours of ``start``, the marks and ``end`` there are at most ``spacing`` bytes, or a
    single event that is larger. About 8 bytes of memory and 10 of text for each mark.

    :ivar stream, segment_id: the segment. :ivar start, end: offsets in bytes of the part that was looked at;
        both are between events (``start``: as its caller said).
    :ivar spacing: bytes. :ivar marks: offsets in bytes, ascending, after ``start`` and not after ``end``.
    :raises InvalidArgumentError: the numbers do not fit together.
    """

    stream: ScopedStream
    segment_id: int
    start: int
    end: int
    spacing: int = DEFAULT_SPACING
    marks: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_bytes("spacing", self.spacing)
        SegmentRange(self.stream, self.segment_id, self.start, self.end)
        if any(low >= high for low, high in pairwise((self.start, *self.marks, self.end + 1))):
            raise InvalidArgumentError(
                f"the marks of segment {self.segment_id} of {self.stream} do not ascend from {self.start} to "
                f"{self.end}"
            )

    @property
    def range(self) -> SegmentRange:
        """The part of the segment that was looked at."""
        return SegmentRange(self.stream, self.segment_id, self.start, self.end)

    def covers(self, segment_range: SegmentRange) -> bool:
        """Whether the range lies in the part that was looked at."""
        return (
            (self.stream, self.segment_id) == (segment_range.stream, segment_range.segment_id)
            and self.start <= segment_range.start_offset
            and segment_range.end_offset <= self.end
        )

    def split(self, segment_range: SegmentRange, max_bytes: int) -> list[SegmentRange]:
        """Divide a range into pieces of at most ``max_bytes`` bytes (at least the spacing), without a server.

        The pieces follow each other without a gap, from the range's start to its end, none is empty, and only
        a piece that is a single event is larger than the limit. Where they meet there is a boundary; the
        range's own start and end are taken as they are given (reading a piece fails if they are not one).

        :raises InvalidArgumentError: the index does not cover the range, or the limit is below its spacing.
        """
        check_bytes("max_bytes", max_bytes)
        if max_bytes < self.spacing:
            raise InvalidArgumentError(
                f"pieces of {max_bytes} bytes of segment {segment_range.segment}: the index knows a boundary "
                f"every {self.spacing} bytes only"
            )
        if not self.covers(segment_range):
            raise InvalidArgumentError(f"the index of {self.range} does not cover {segment_range}")
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
        """A JSON object: ``version`` 1, ``stream``, ``segment_id``, ``start``, ``end``, ``spacing`` and
        ``steps``, the distance of each mark from the one before it (of the first from ``start``)."""
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
        """From :meth:`to_text`.

        :raises InvalidArgumentError: not such a text.
        """
        try:
            found: dict[str, Any] = json.loads(check_text("the text of an index of boundaries", text))
            if found["version"] != _FORMAT:
                raise InvalidArgumentError(f"index of boundaries: version {found['version']!r} is not known")
            numbers = [found[name] for name in ("segment_id", "start", "end", "spacing")]
            steps = found["steps"]
            if not all(type(each) is int for each in (*numbers, *steps)):
                raise InvalidArgumentError("index of boundaries: an offset is not a whole number")
            segment_id, start, end, spacing = numbers
            marks = tuple(accumulate(steps, initial=start))[1:]
            return cls(ScopedStream.parse(found["stream"]), segment_id, start, end, spacing, marks)
        except InvalidArgumentError:
            raise
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise InvalidArgumentError(f"not the text of an index of boundaries: {error!r}") from error
