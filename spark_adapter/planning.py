"""What the driver does to read: the ranges between two cuts, one for each partition."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import pairwise

from pravega_wire import ScopedStream, SegmentRange, StreamCut
from pravega_wire.checks import check_count
from pravega_wire.cuts import OnTruncated
from pravega_wire.sync import PravegaClient

__all__ = ["cut_at", "divided", "pieces_for", "ranges_to_read"]

_LOOKED_AT = 16
# Places that a range may be divided at, for each piece: pieces of small events differ by a sixteenth.


def ranges_to_read(
    client: PravegaClient,
    stream: str | ScopedStream,
    start: StreamCut | str | None,
    end: StreamCut | str | None,
    *,
    on_truncated: OnTruncated = "raise",
    max_partition_bytes: int | None = None,
    min_partitions: int | None = None,
) -> list[SegmentRange]:
    """The ranges between two cuts, in the order of segments and, in each, of events.

    :param max_partition_bytes: divide larger ranges; see :meth:`PravegaClient.segment_ranges`.
    :param min_partitions: divide the largest ranges between events until there are so many, if there are
        events enough. That costs a pass over each range that is divided.
    :raises DataLossError: data was truncated. :raises InvalidStreamCutError: a cut does not fit.
    :raises InvalidArgumentError: a number is not over 0.
    """
    if min_partitions is not None:
        check_count("min_partitions", min_partitions)
    ranges = client.segment_ranges(
        stream, start, end, on_truncated=on_truncated, max_range_bytes=max_partition_bytes
    )
    return divided(client, ranges, min_partitions)


def divided(
    client: PravegaClient, ranges: Sequence[SegmentRange], min_partitions: int | None
) -> list[SegmentRange]:
    """Ranges, the largest divided between events until there are so many; see :func:`ranges_to_read`."""
    if min_partitions is None or len(ranges) >= min_partitions:
        return list(ranges)
    found: list[SegmentRange] = []
    for each, pieces in zip(
        ranges, pieces_for([each.length for each in ranges], min_partitions), strict=True
    ):
        if pieces > 1:
            spacing = max(1, each.length // (pieces * _LOOKED_AT))
            marks = client.boundary_index(each, spacing=spacing).marks
            found += cut_at(each, pieces, marks)
        else:
            found.append(each)
    return found


def pieces_for(lengths: Sequence[int], wanted: int) -> list[int]:
    """Into how many pieces to divide ranges of these lengths, so that there are ``wanted`` in all.

    Each further piece is for the range whose pieces are the largest then.
    """
    pieces = [1] * len(lengths)
    largest: list[tuple[float, int]] = [
        (-length, place) for place, length in enumerate(lengths) if length > 1
    ]
    heapq.heapify(largest)
    for _ in range(wanted - len(lengths) if largest else 0):
        _, place = largest[0]
        pieces[place] += 1
        heapq.heapreplace(largest, (-lengths[place] / pieces[place], place))
    return pieces


def cut_at(whole: SegmentRange, pieces: int, marks: Sequence[int]) -> list[SegmentRange]:
    """A range in so many pieces of about one length, or fewer.

    :param marks: offsets between events, ascending.
    """
    inside = [mark for mark in marks if whole.start_offset < mark < whole.end_offset]
    cuts: list[int] = []
    last = whole.start_offset
    place = 0
    for piece in range(1, pieces):
        ideal = whole.start_offset + whole.length * piece // pieces
        # The nearest one behind the last, with enough of them left for the other pieces.
        stop = len(inside) - (pieces - 1 - piece)
        while place < len(inside) and inside[place] <= last:
            place += 1
        while place + 1 < stop and abs(inside[place + 1] - ideal) <= abs(inside[place] - ideal):
            place += 1
        if place >= len(inside):
            break
        last = inside[place]
        cuts.append(last)
    bounds = [whole.start_offset, *cuts, whole.end_offset]
    return [SegmentRange(whole.stream, whole.segment_id, begin, end) for begin, end in pairwise(bounds)]
