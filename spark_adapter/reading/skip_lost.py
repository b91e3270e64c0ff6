"""Continues a read after data that was truncated since the read was planned."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TypeVar

from pravega_wire import SegmentRange
from pravega_wire.errors import DataLossError, NoSuchSegmentError

__all__ = ["surviving"]

T = TypeVar("T")

log = logging.getLogger(__name__)


def surviving(read: Callable[[SegmentRange], Iterator[T]], segment_range: SegmentRange) -> Iterator[T]:
    """Read a range, and skip data that is truncated before it is read; a warning is logged for it.

    :param read: reads a range.
    :param segment_range: the range.
    """
    rest = segment_range
    while rest.length:
        try:
            yield from read(rest)
            return
        except DataLossError as error:
            rest = _after_loss(rest, error)


def _after_loss(rest: SegmentRange, error: DataLossError) -> SegmentRange:
    """Return the rest of a range, and log the lost part."""
    start = error.start_offset
    if isinstance(error.__cause__, NoSuchSegmentError):
        start = rest.end_offset
    elif start is None or start <= rest.start_offset:
        raise error
    start = min(start, rest.end_offset)
    first = max(rest.start_offset, error.offset or 0)
    log.warning(
        "stream %s, segment %s: skipped %d bytes from offset %d that were truncated before a task had read "
        "them", rest.stream, rest.segment, start - first, first,
    )  # fmt: skip
    return SegmentRange(rest.stream, rest.segment_id, start, rest.end_offset)
