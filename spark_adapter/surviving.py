"""Reading on where data was truncated after a read was planned."""

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
    """What ``read`` gives of a range, without what is truncated before it is read; the log says what."""
    rest = segment_range
    while rest.length:
        try:
            yield from read(rest)
            return
        except DataLossError as error:
            rest = _after_loss(rest, error)


def _after_loss(rest: SegmentRange, error: DataLossError) -> SegmentRange:
    """What is left of a range; logs what is not."""
    start = error.start_offset
    if isinstance(error.__cause__, NoSuchSegmentError):
        start = rest.end_offset
    elif start is None or start <= rest.start_offset:
        raise error
    start = min(start, rest.end_offset)
    first = max(rest.start_offset, error.offset or 0)
    log.warning(
        "stream %s, segment %s: %d bytes from offset %d on were truncated before a task has read them, and "
        "are skipped", rest.stream, rest.segment, start - first, first,
    )  # fmt: skip
    return SegmentRange(rest.stream, rest.segment_id, start, rest.end_offset)
