"""Puts TCP segments back into the order in which their bytes were sent.

Not public.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["Missing", "Piece", "Reassembly", "distance"]

# How much may wait for missing bytes before they count as lost by the capture.
_MAX_WAITING_BYTES: Final = 4 * 1024 * 1024
_MAX_WAITING: Final = 1024


def distance(start: int, end: int) -> int:
    """From one sequence number to another, from -2^31 on: the numbers begin again at 0."""
    return ((end - start + 2**31) & 0xFFFFFFFF) - 2**31


@dataclass(frozen=True, slots=True)
class Piece:
    """The next bytes."""

    time: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Missing:
    """The next bytes were not captured."""

    time: int
    count: int


class Reassembly:
    """One direction of a TCP connection.

    :param first: the sequence number of the first byte, or None if it is not known.
    """

    def __init__(self, first: int | None) -> None:
        self._next = first
        # By position relative to the first byte: times, bytes, and how many bytes were sent.
        self._waiting: dict[int, tuple[int, bytes, int]] = {}
        self._at = 0
        self._bytes = 0

    def add(self, sequence: int, data: bytes, length: int, time: int) -> list[Piece | Missing]:
        """Add a segment, and return what is now in order.

        :param length: bytes sent; ``data`` may be shorter.
        """
        if length == 0:
            return []
        if self._next is None:
            self._next = sequence
        position = self._at + distance(self._next, sequence)
        if position + length <= self._at:
            return []  # sent again
        known = self._waiting.get(position)
        if known is None or known[2] < length or (known[2] == length and len(known[1]) < len(data)):
            if known is not None:
                self._bytes -= len(known[1])
            self._waiting[position] = (time, data, length)
            self._bytes += len(data)
        found = self._in_order()
        while self._bytes > _MAX_WAITING_BYTES or len(self._waiting) > _MAX_WAITING:
            found += self._skip_to_next()
        return found

    def to_come(self, end: int) -> int:
        """How many bytes before this sequence number are still to come; negative if later ones were there."""
        return 0 if self._next is None else distance(self._next, end)

    def flush(self) -> list[Piece | Missing]:
        """Return everything that still waits: what is missing will not come any more."""
        found: list[Piece | Missing] = []
        while self._waiting:
            found += self._skip_to_next()
        return found

    def _skip_to_next(self) -> list[Piece | Missing]:
        position = min(self._waiting)
        found: list[Piece | Missing] = []
        if position > self._at:
            found.append(Missing(self._waiting[position][0], position - self._at))
            self._advance(position - self._at)
        return found + self._in_order()

    def _in_order(self) -> list[Piece | Missing]:
        found: list[Piece | Missing] = []
        while self._waiting:
            position = self._at if self._at in self._waiting else min(self._waiting)
            if position > self._at:
                break
            time, data, length = self._waiting.pop(position)
            self._bytes -= len(data)
            # A part of it may have been there already.
            known = self._at - position
            if length <= known:
                continue
            if len(data) > known:
                found.append(Piece(time, data[known:]))
                self._advance(len(data) - known)
            if length > len(data):
                # The capture has cut the packet off.
                count = position + length - self._at
                found.append(Missing(time, count))
                self._advance(count)
        return found

    def _advance(self, count: int) -> None:
        assert self._next is not None
        self._at += count
        self._next = (self._next + count) & 0xFFFFFFFF
