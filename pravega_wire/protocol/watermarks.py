"""The event time that a group has reached (``docs/protocol/formats.md``, "Watermarks")."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from pravega_wire.values.groups import TimeWindow
from pravega_wire.values.positions import KeyRange, Watermark, WatermarkSegment

__all__ = ["WatermarkWindow", "compare"]

Place = Mapping[int, tuple[int, KeyRange | None]]
"""Segment id to offset (negative: the end) and range (None if unknown)."""


def compare(place: Place, mark: Watermark) -> int:
    """Compare a place in the stream with a mark.

    :returns: -1 if the place is before the mark, 1 if it is after the mark or the same, 0 if it is both.
    """
    below = above = False
    in_mark = {each.segment_id: each for each in mark.positions}
    for segment_id, (offset, key_range) in place.items():
        same = in_mark.get(segment_id)
        for each in [same] if same is not None else _overlapping(mark, key_range):
            ours = segment_id, offset if offset >= 0 else float("inf")
            theirs = each.segment_id, each.offset if each.offset >= 0 else float("inf")
            below = below or ours < theirs
            above = above or ours > theirs
    if below:
        return 0 if above else -1
    return 1


def _overlapping(mark: Watermark, key_range: KeyRange | None) -> list[WatermarkSegment]:
    if key_range is None:
        return list(mark.positions)
    low, high = key_range
    return [each for each in mark.positions if each.low < high and each.high > low]


class WatermarkWindow:
    """The marks that a place lies between.

    Call :meth:`move` with the new place, then :meth:`add` the next mark while :attr:`wants_more` is true.
    Marks are added in the order they were written.
    """

    def __init__(self) -> None:
        self._place: Place = {}
        self._ahead: deque[Watermark] = deque()
        self._passed: int | None = None

    def move(self, place: Place) -> None:
        """Move the reader to a later place."""
        self._place = place
        while self._ahead and compare(place, self._ahead[0]) > 0:
            self._passed = self._ahead.popleft().lower

    @property
    def wants_more(self) -> bool:
        """Whether the place may have reached the next mark."""
        return not self._ahead or compare(self._place, self._ahead[-1]) >= 0

    def add(self, mark: Watermark) -> None:
        """Add the next mark."""
        if compare(self._place, mark) <= 0:
            self._ahead.append(mark)
        else:
            self._passed = mark.lower

    @property
    def window(self) -> TimeWindow:
        """The range of event times at the present place."""
        return TimeWindow(self._passed, self._ahead[-1].upper if self._ahead else None)
