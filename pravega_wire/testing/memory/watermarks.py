"""How a controller makes watermarks from the times of writers (``docs/protocol/controller.md``,
"Watermarks")."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from pravega_wire.proto import controller_pb2 as pb
from pravega_wire.protocol import codec
from pravega_wire.protocol.commands import Event
from pravega_wire.protocol.formats import decode_watermark, encode_watermark
from pravega_wire.testing.memory.store import NULL, Segment, SegmentStore
from pravega_wire.testing.memory.streams import Part, Stream, WriterMark
from pravega_wire.values.naming import epoch_of
from pravega_wire.values.positions import Watermark, WatermarkSegment

__all__ = ["next_watermark", "note"]

_MARK: Final = UUID("7df9a874-246c-c9d6-9397-cdd19ead68c5")
"""The attribute with the mark of a revisioned stream."""


def note(stream: Stream, writer: str, time: int, position: dict[int, int]) -> pb.TimestampResponse.Status:
    """Note a writer's time."""
    mark = stream.marks.get(writer)
    if mark is None:
        stream.marks[writer] = WriterMark(time, position)
        return pb.TimestampResponse.SUCCESS
    if time < mark.time:
        return pb.TimestampResponse.INVALID_TIME
    if any(offset < mark.position.get(each, offset) for each, offset in position.items()):
        return pb.TimestampResponse.INVALID_POSITION
    mark.time, mark.position, mark.alive = time, position, True
    return pb.TimestampResponse.SUCCESS


def next_watermark(store: SegmentStore, stream: Stream, marks: Segment, now: int) -> None:
    """Append a watermark if the time of all active writers has advanced, and forget those that are not.

    :param store: the store.
    :param stream: the stream.
    :param marks: the segment of its watermarks.
    :param now: time in milliseconds since 1970.
    """
    place = max(marks.attributes.get(_MARK, NULL), marks.start)
    at, previous, last = place, None, place
    while at < marks.length:
        start = at - marks.start
        _, size = codec.HEADER.unpack_from(marks.data, start)
        payload = bytes(marks.data[start + codec.HEADER.size : start + codec.HEADER.size + size])
        previous, last, at = decode_watermark(payload), at, at + codec.HEADER.size + size
    lower = None if previous is None else previous.lower
    active = []
    for writer, mark in list(stream.marks.items()):
        if lower is None or mark.time > lower:
            mark.behind_since = None
        else:
            since = mark.behind_since = now if mark.behind_since is None else mark.behind_since
            if not mark.alive or now - since >= stream.config.timestampAggregationTimeout:
                del stream.marks[writer]
                continue
        active.append(mark)
    if not active or (lower is not None and min(each.time for each in active) <= lower):
        return
    bound: dict[Part, int] = {}
    for mark in active:
        _raise(bound, {stream.part(each): offset for each, offset in mark.position.items()})
    if previous is not None:
        _raise(
            bound, {Part(each.segment_id, each.low, each.high): each.offset for each in previous.positions}
        )
    if not bound or not _complete(bound, stream):
        return
    mark_of = Watermark(
        min(each.time for each in active),
        max(each.time for each in active),
        tuple(WatermarkSegment(part.id, part.low, part.high, offset) for part, offset in bound.items()),
    )
    payload = encode_watermark(mark_of)
    store.append(marks, codec.HEADER.pack(Event.CODE, len(payload)) + payload)
    # The stream of watermarks is read from the one before the last.
    marks.attributes[_MARK] = last


def _raise(bound: dict[Part, int], position: dict[Part, int]) -> None:
    """Make an upper bound one of a position too."""
    for part, offset in position.items():
        if part in bound:
            bound[part] = max(bound[part], offset)
        elif not any(part.meets(each) and part.id < each.id for each in bound):
            for each in [each for each in bound if part.meets(each) and part.id > each.id]:
                del bound[each]
            bound[part] = offset


def _complete(bound: dict[Part, int], stream: Stream) -> bool:
    """Fill what is missing of the key space with the beginnings of segments of the highest epoch.

    :returns: False if that cannot be done, because the last segment ends beside 1. A real controller tries
        for ever (from its code).
    """
    while True:
        gaps, at = [], 0.0
        for part in sorted(bound, key=lambda each: each.low):
            if part.low > at:
                gaps.append((at, part.low))
            at = part.high
        if at < 1.0:
            gaps.append((at, 1.0))
        if not gaps:
            return True
        epoch, before = stream.epochs[max(epoch_of(each.id) for each in bound)], set(bound)
        for gap in gaps:
            _raise(bound, {each: 0 for each in epoch.parts if each.overlaps(*gap)})
        if before == set(bound):
            return False
