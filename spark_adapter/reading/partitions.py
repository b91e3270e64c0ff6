"""Finds the ranges between two stream cuts on the driver, one for each partition."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from pravega_wire import LeadingPart, OnTruncated, ScopedStream, SegmentRange, StreamCut
from pravega_wire.errors import DataLossError
from pravega_wire.support.checks import check_bytes, check_count
from spark_adapter.options.read import MOST_PARTITIONS
from spark_adapter.reading.skip_lost import surviving

if TYPE_CHECKING:
    from pravega_wire.sync import PravegaClient

__all__ = [
    "PLANS",
    "check_partitions",
    "cut_at",
    "divided",
    "limited",
    "pieces_for",
    "planned_ranges",
    "ranges_to_read",
    "say_replanned",
]

log = logging.getLogger(__name__)

PLANS = 5
# The number of attempts to plan a read while data is being truncated. The last attempt reads no data, unless
# it has to count events; then it skips what is truncated meanwhile.

_LEAST_EVENT_BYTES = 8
# The header of an event, which may be empty.

_LOOKED_AT = 16
# Possible boundaries for each piece of a range: the sizes of pieces with small events differ by a sixteenth.


def ranges_to_read(
    client: PravegaClient,
    stream: str | ScopedStream,
    start: StreamCut | str | None,
    end: StreamCut | str | None,
    *,
    on_truncated: OnTruncated = "raise",
    max_partition_bytes: int | None = None,
    max_partition_events: int | None = None,
    min_partitions: int | None = None,
    limit: int | None = None,
) -> list[SegmentRange]:
    """Return the ranges between two stream cuts, in the order of segments and, within each, of events.

    :param client: the client to use.
    :param stream: the stream.
    :param start: where to start.
    :param end: where to end.
    :param on_truncated: what to do if data was truncated, also while this call looks at it.
    :param max_partition_bytes: split larger ranges; see :meth:`PravegaClient.segment_ranges`.
    :param max_partition_events: split ranges with more events.
    :param min_partitions: split the largest ranges, between events, until there are at least this many, if
        there are enough events. This costs one pass over each range that is split, and another one over
        ranges that are split further because the largest hold only a few events.
    :param limit: take only the first ranges, with at most this many events; see :func:`limited`.
    :raises DataLossError: data was truncated.
    :raises InvalidStreamCutError: a cut does not match the stream.
    :raises InvalidArgumentError: a number is not positive, or ``min_partitions`` exceeds a million.
    """
    check_partitions(min_partitions)
    if max_partition_bytes is not None:
        check_bytes("max_partition_bytes", max_partition_bytes)
    if max_partition_events is not None:
        check_count("max_partition_events", max_partition_events)
    if limit is not None:
        check_count("limit", limit)
    return planned_ranges(
        client,
        lambda size: client.segment_ranges(
            stream, start, end, on_truncated=on_truncated, max_range_bytes=size
        ),
        skip_lost=on_truncated == "skip_to_head",
        max_partition_bytes=max_partition_bytes,
        max_partition_events=max_partition_events,
        min_partitions=min_partitions,
        limit=limit,
    )


def planned_ranges(
    client: PravegaClient,
    resolve: Callable[[int | None], list[SegmentRange]],
    *,
    skip_lost: bool,
    max_partition_bytes: int | None,
    max_partition_events: int | None,
    min_partitions: int | None,
    limit: int | None,
) -> list[SegmentRange]:
    """Return the ranges of a read, limited and divided as for :func:`ranges_to_read`.

    If data is truncated meanwhile and may be skipped, they are planned again; after the fourth time
    undivided, so that it comes to an end.

    :param client: the client to use.
    :param resolve: returns the ranges, split into parts of so many bytes if they are given.
    :param skip_lost: whether truncated data may be skipped.
    :raises DataLossError: data was truncated, and may not be skipped.
    """
    for _ in range(PLANS - 1):
        try:
            if limit is None:
                found = resolve(max_partition_bytes)
            else:
                found = limited(client, resolve(None), limit, max_partition_bytes)
            return divided(client, found, min_partitions, max_partition_events)
        except DataLossError as error:
            if not skip_lost:
                raise
            say_replanned(error)
    found = resolve(None)
    return found if limit is None else limited(client, found, limit, None, skip_lost=True)


def say_replanned(error: DataLossError) -> None:
    """Log that a read is planned again, because of this error."""
    log.warning("data was truncated while a read was being planned; planning it again: %s", error.message)


def limited(
    client: PravegaClient,
    ranges: Iterable[SegmentRange],
    limit: int,
    max_partition_bytes: int | None,
    *,
    skip_lost: bool = False,
) -> list[SegmentRange]:
    """Return the first ranges, the last of which ends after the ``limit``-th event.

    It counts event headers, up to the limit, and looks at one range after the other, at none after the last
    one that it needs. So the ranges have exactly ``limit`` events, or all if there are fewer.

    :param client: the client to use.
    :param ranges: the ranges.
    :param limit: largest number of events.
    :param max_partition_bytes: split larger ranges, between events; None to split none.
    :param skip_lost: whether to skip data that is truncated before it is counted.
    :raises DataLossError: data of a range was truncated.
    """
    found: list[SegmentRange] = []

    def leading(each: SegmentRange) -> Iterator[LeadingPart]:
        return iter(client.leading_parts([(each, None, limit)]))

    for each in ranges:
        for part in surviving(leading, each) if skip_lost else leading(each):
            if part.events:
                pieces = (
                    [part.range]
                    if max_partition_bytes is None
                    else client.split_range(part.range, max_partition_bytes)
                )
                found += pieces
                limit -= part.events
        if limit == 0:
            break
    return found


def check_partitions(min_partitions: int | None) -> None:
    """Check the argument ``min_partitions``.

    :raises InvalidArgumentError: it is not a positive whole number, or exceeds a million.
    """
    if min_partitions is not None:
        check_count("min_partitions", min_partitions, highest=MOST_PARTITIONS)


def divided(
    client: PravegaClient,
    ranges: Sequence[SegmentRange],
    min_partitions: int | None,
    max_partition_events: int | None = None,
) -> list[SegmentRange]:
    """Split ranges with more than ``max_partition_events``, then the largest ones until there are
    ``min_partitions``; see :func:`ranges_to_read`."""
    found = list(ranges)
    if max_partition_events is not None:
        found = _with_at_most(client, found, max_partition_events)
    if min_partitions is None:
        return found
    # There cannot be more pieces than events, and each of those has a header.
    min_partitions = min(min_partitions, sum(max(1, each.length // _LEAST_EVENT_BYTES) for each in found))
    single: set[SegmentRange] = set()  # known to hold one event
    # A range with a few large events has fewer pieces than it was given: the others are split further for
    # the rest. Each round makes a piece, or finds out that a range holds one event.
    while len(found) < min_partitions:
        wanted = pieces_for([0 if each in single else each.length for each in found], min_partitions)
        if sum(wanted) == len(found):
            break
        parts: list[SegmentRange] = []
        for each, pieces in zip(found, wanted, strict=True):
            if pieces == 1:
                parts.append(each)
                continue
            spacing = max(1, each.length // (pieces * _LOOKED_AT))
            cut = cut_at(each, pieces, client.boundary_index(each, spacing=spacing).marks)
            if len(cut) < pieces:
                # No mark was left inside these pieces, and only a single event is larger than the spacing.
                single.update(piece for piece in cut if piece.length > spacing)
            parts += cut
        found = parts
    return found


def _with_at_most(client: PravegaClient, ranges: list[SegmentRange], events: int) -> list[SegmentRange]:
    parts: list[list[SegmentRange]] = [[] for _ in ranges]
    # What is left of each range, by its number. All are searched at once, for one part each.
    rest = dict(enumerate(ranges))
    while rest:
        answers = client.leading_parts([(each, None, events) for each in rest.values()])
        for (number, each), part in zip(list(rest.items()), answers, strict=True):
            parts[number].append(part.range)
            if part.range.end_offset < each.end_offset:
                rest[number] = replace(each, start_offset=part.range.end_offset)
            else:
                del rest[number]
    return [each for some in parts for each in some]


def pieces_for(lengths: Sequence[int], wanted: int) -> list[int]:
    """Return the number of pieces for each range, so that there are ``wanted`` pieces in total.

    Each additional piece goes to the range that has the largest pieces at that point.

    :param lengths: lengths of the ranges in bytes.
    :param wanted: total number of pieces.
    """
    pieces = [1] * len(lengths)
    total, spare = sum(each for each in lengths if each > 1), wanted - len(lengths)
    if total and spare > 0:
        # With pieces of total / spare bytes there are not too many, so each range gets at least these. The
        # loop makes the few that are missing.
        pieces = [-(-spare * each // total) if each > 1 else 1 for each in lengths]
    largest: list[tuple[float, int]] = [
        (-length / pieces[place], place) for place, length in enumerate(lengths) if length > 1
    ]
    heapq.heapify(largest)
    for _ in range(wanted - sum(pieces) if largest else 0):
        _, place = largest[0]
        pieces[place] += 1
        heapq.heapreplace(largest, (-lengths[place] / pieces[place], place))
    return pieces


def cut_at(whole: SegmentRange, pieces: int, marks: Sequence[int]) -> list[SegmentRange]:
    """Split a range into up to ``pieces`` pieces of about equal length.

    :param whole: the range.
    :param pieces: number of pieces.
    :param marks: offsets of event boundaries, ascending.
    """
    inside = [mark for mark in marks if whole.start_offset < mark < whole.end_offset]
    cuts: list[int] = []
    last = whole.start_offset
    place = 0
    for piece in range(1, pieces):
        ideal = whole.start_offset + whole.length * piece // pieces
        # The nearest boundary after the last one, with enough boundaries left for the other pieces.
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
