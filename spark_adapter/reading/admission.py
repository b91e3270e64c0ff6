"""Decides how much of the stored data goes into one micro-batch, without I/O.

A batch takes complete events from the segments that can be read now. It takes events from their successors
only after all predecessors were read to their ends, so the events of a routing key stay in order. A limit is
divided between the segments in proportion to their unread data, including that of their successors: if a
sealed segment counted for its own rest only, what was written to its successors would be read after all that
was written to other segments in the same time, and a query with a watermark would drop it as late.

The functions are generators that yield requests for information and are sent the answers, so they can run
against a server or, in tests, against a model of one.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Self, TypeAlias

from pravega_wire import LeadingPart, ScopedStream, SegmentRange, StreamCut
from pravega_wire.errors import InvalidStreamCutError

__all__ = [
    "Admitted",
    "Answer",
    "Follow",
    "Limit",
    "Look",
    "Question",
    "SegmentKey",
    "StreamBacklog",
    "admit",
]

SegmentKey: TypeAlias = tuple[ScopedStream, int]
"""A segment, by its stream and id."""

_SMALLEST_EVENT = 8
# The size of an event header in bytes.


@dataclass(frozen=True, slots=True)
class Limit:
    """The limits of a batch; None means no limit of that kind.

    :ivar bytes: largest number of bytes, including event headers.
    :ivar events: largest number of events.
    """

    bytes: int | None = None
    events: int | None = None

    def holds(self, size: int) -> bool:
        """Return True if ``size`` bytes are within the limits, regardless of the size of the events."""
        return (self.bytes is None or size <= self.bytes) and (
            self.events is None or size // _SMALLEST_EVENT <= self.events
        )

    def less(self, size: int, events: int) -> Limit:
        """Return the rest of the limits after ``size`` bytes and ``events`` events."""
        return Limit(
            None if self.bytes is None else max(0, self.bytes - size),
            None if self.events is None else max(0, self.events - events),
        )

    def allows(self, size: int) -> bool:
        """Return True if one event of ``size`` bytes is within the limits."""
        return self.events != 0 and (self.bytes is None or size <= self.bytes)

    @property
    def used_up(self) -> bool:
        """True if not even an empty event is within the limits."""
        return self.events == 0 or (self.bytes is not None and self.bytes < _SMALLEST_EVENT)


@dataclass(frozen=True, slots=True)
class Look:
    """A request for the complete events at the start of ranges.

    The answer is a list of :class:`pravega_wire.LeadingPart`, one for each range.

    :ivar parts: for each range: the range, the largest number of bytes, the largest number of events.
    """

    parts: tuple[tuple[SegmentRange, int | None, int | None], ...]


@dataclass(frozen=True, slots=True)
class Follow:
    """A request for the successors of sealed segments.

    The answer has, for each segment, its successors, each with the ids of all its predecessors.

    :ivar stream: stream of the segments.
    :ivar segment_ids: ids of the segments.
    """

    stream: ScopedStream
    segment_ids: tuple[int, ...]


Question: TypeAlias = Look | Follow
Answer: TypeAlias = Sequence[LeadingPart] | Mapping[int, Mapping[int, Sequence[int]]]


@dataclass(frozen=True, slots=True)
class StreamBacklog:
    """The unread data of a stream.

    :ivar start: stream cut at which it starts.
    :ivar end: stream cut at which it ends.
    :ivar ranges: the ranges between the cuts, one for each segment with data.
    """

    start: StreamCut
    end: StreamCut
    ranges: tuple[SegmentRange, ...]


@dataclass(frozen=True, slots=True)
class Admitted:
    """The data of a batch.

    :ivar cuts: for each stream, its cut after the batch.
    :ivar ranges: the ranges to read, ordered by stream and segment id.
    :ivar left_bytes: number of unread bytes that are not in the batch.
    :ivar waiting: segments that could have been read, but from which nothing was taken.
    :ivar held_back: whether the batch is not begun, because there is too little unread data.
    """

    cuts: dict[ScopedStream, StreamCut]
    ranges: list[SegmentRange]
    left_bytes: int
    waiting: list[SegmentKey]
    held_back: bool = False

    @classmethod
    def nothing(cls, backlogs: Sequence[StreamBacklog]) -> Self:
        """Return the decision not to begin a batch yet."""
        cuts = {each.start.stream: each.start for each in backlogs}
        left = sum(part.length for each in backlogs for part in each.ranges)
        return cls(cuts, [], left, [], held_back=True)


class _Frontier:
    """The position up to which one stream has been taken into the batch."""

    def __init__(self, backlog: StreamBacklog) -> None:
        self.stream = backlog.start.stream
        self._backlog = backlog
        self._end = backlog.end.positions
        self._left = {each.segment_id: each for each in backlog.ranges}
        self._at = {
            segment_id: self._left[segment_id].start_offset if segment_id in self._left else offset
            for segment_id, offset in backlog.start.positions.items()
        }
        self._next: dict[int, Mapping[int, Sequence[int]]] = {}
        self.taken: dict[int, SegmentRange] = {}

    @property
    def left_bytes(self) -> int:
        return sum(each.length for each in self._left.values())

    @property
    def ready(self) -> list[SegmentRange]:
        """The ranges that can be read now."""
        return [self._left[each] for each in self._at if each in self._left]

    def take(self, segment_id: int, to: int) -> None:
        """Take a segment that is ready into the batch up to an offset."""
        rest = self._left.pop(segment_id)
        if to > rest.start_offset:
            first = self.taken.get(segment_id, rest).start_offset
            self.taken[segment_id] = SegmentRange(self.stream, segment_id, first, to)
            self._at[segment_id] = to
        if to < rest.end_offset:
            self._left[segment_id] = SegmentRange(self.stream, segment_id, to, rest.end_offset)

    def cut(self) -> StreamCut:
        """The current cut of the stream."""
        return StreamCut(self.stream, self._at) if self._left else self._backlog.end

    def behind(self) -> Generator[Question, Answer, dict[SegmentKey, int]]:
        """Return for segments the number of unread bytes in their successors, and in the successors of these.

        Those of a segment with several unread predecessors are divided equally among them.
        """
        if self._left.keys() <= self._at.keys():
            return {}
        before: dict[int, list[int]] = {each: [] for each in self._at}
        todo = [each for each in self._at if each not in self._end]
        while todo:
            yield from self._look_up(todo)
            new: list[int] = []
            for each in todo:
                for successor in self._next[each]:
                    if successor not in before:
                        before[successor] = []
                        # One without unread data may be beyond the end, and not sealed yet.
                        if successor in self._left and successor not in self._end:
                            new.append(successor)
                    before[successor].append(each)
            todo = new
        found = dict.fromkeys(before, 0)
        # The id of a successor is greater, since it begins with the epoch.
        for each in sorted(before, reverse=True):
            size = found[each] + (self._left[each].length if each in self._left else 0)
            for predecessor in before[each]:
                found[predecessor] += size // len(before[each])
        return {(self.stream, each): size for each, size in found.items()}

    def check_not_stuck(self) -> None:
        """Check that the end can be reached step by step."""
        if self._left and not self.ready:
            raise InvalidStreamCutError(
                f"the end cut {self._backlog.end} of stream {self.stream} is between segments of the same "
                "scale, where a query with a limit of bytes or events cannot stop: set an end cut that "
                "covers every key, or remove the limit",
                scope=self.stream.scope,
                stream=self.stream.name,
            )

    def advance(self) -> Generator[Question, Answer, None]:
        """Continue with the successors of the segments that have been read to their ends.

        All segments of one scale are left together, so that the cut always has each key once.
        """
        while ended := self._ended():
            yield from self._look_up(ended)
            moved = False
            for segment_id in ended:
                if segment_id in self._at:
                    moved = (yield from self._leave(segment_id)) or moved
            if not moved:
                return

    def _ended(self) -> list[int]:
        return [each for each in self._at if each not in self._left and each not in self._end]

    def _look_up(self, segment_ids: Iterable[int]) -> Generator[Question, Answer, None]:
        unknown = tuple(each for each in segment_ids if each not in self._next)
        if unknown:
            answer = yield Follow(self.stream, unknown)
            assert isinstance(answer, Mapping)
            self._next.update(answer)

    def _leave(self, segment_id: int) -> Generator[Question, Answer, bool]:
        """Replace a segment, and those that were scaled together with it, by their successors."""
        before, after = {segment_id}, set[int]()
        todo = [segment_id]
        while todo:
            yield from self._look_up(todo)
            successors = self._next[todo.pop()]
            after |= successors.keys()
            more = set(chain.from_iterable(successors.values())) - before
            for each in more:
                if each in self._at and (each in self._left or each in self._end):
                    return False
            before |= more
            todo += more
        if not after:
            return False  # the stream is sealed
        begun = after & self._at.keys()
        if not begun and not before <= self._at.keys():
            return False  # one of them has not been reached yet
        for each in before:
            self._at.pop(each, None)
        for each in after - begun:
            rest = self._left.get(each)
            self._at[each] = rest.start_offset if rest is not None else max(0, self._end.get(each, 0))
        return True


@dataclass(slots=True)
class _Part:
    """The part of one segment that a batch takes."""

    whole: SegmentRange
    to: int
    behind: int = 0  # unread bytes in the successors
    events: int = 0
    next_bytes: int | None = None

    @property
    def key(self) -> SegmentKey:
        return (self.whole.stream, self.whole.segment_id)

    @property
    def size(self) -> int:
        return self.to - self.whole.start_offset

    @property
    def rest(self) -> SegmentRange:
        return SegmentRange(self.whole.stream, self.whole.segment_id, self.to, self.whole.end_offset)

    @property
    def backlog(self) -> int:
        return self.rest.length + self.behind

    def add(self, found: LeadingPart) -> None:
        self.to = found.range.end_offset
        self.events += found.events or 0
        self.next_bytes = found.next_bytes

    def add_one(self) -> None:
        """Add the next event, of which only the size is known."""
        assert self.next_bytes is not None
        self.to += self.next_bytes
        self.events += 1
        self.next_bytes = None


def _shares(total: int, weights: Sequence[int]) -> list[int]:
    """Divide ``total`` in proportion to the weights; the shares add up to it."""
    whole = sum(weights)
    shares = [total * each // whole for each in weights]
    by_rest = sorted(range(len(weights)), key=lambda n: (-(total * weights[n] % whole), -weights[n]))
    for number in by_rest[: total - sum(shares)]:
        shares[number] += 1
    return shares


def _share(
    ready: Sequence[SegmentRange],
    limit: Limit,
    waited: Mapping[SegmentKey, int],
    behind: Mapping[SegmentKey, int],
    *,
    first: bool,
) -> Generator[Question, Answer, list[_Part]]:
    """Divide a limit between segments: an event for each that waited, the rest in proportion to the data.

    :param ready: the ranges that can be read now.
    :param limit: the limit.
    :param waited: for each segment, the number of batches in a row that took nothing from it.
    :param behind: for segments with successors, the number of unread bytes in these.
    :param first: whether the batch is still empty, so that a single event over the limit is allowed.
    """
    parts = [_Part(each, each.start_offset, behind.get((each.stream, each.segment_id), 0)) for each in ready]
    # Segments that have waited longest come first, then those with the most data.
    parts.sort(key=lambda each: (-waited.get(each.key, 0), -each.whole.length, each.key))
    if limit.holds(sum(each.whole.length for each in parts)):
        for each in parts:
            each.to = each.whole.end_offset
            each.events = each.size // _SMALLEST_EVENT
        return parts
    alone = yield from _serve_those_that_waited(
        [each for each in parts if waited.get(each.key)], limit, first
    )
    if alone is not None:
        return [alone]
    yield from _divide(parts, limit, first)
    _add_one_each(parts, _left(parts, limit))
    if first and not any(each.size for each in parts):
        # The first event of every segment that has a share exceeds the limit.
        for each in parts:
            if each.next_bytes is not None:
                each.add_one()
                break
        return parts
    yield from _fill_up(parts, limit)
    return parts


def _left(parts: Sequence[_Part], limit: Limit) -> Limit:
    return limit.less(sum(each.size for each in parts), sum(each.events for each in parts))


def _serve_those_that_waited(
    waiting: Sequence[_Part], limit: Limit, first: bool
) -> Generator[Question, Answer, _Part | None]:
    """Take one event of each segment that got nothing before, so that small segments also make progress.

    :returns: the segment whose turn it is, if its event exceeds the limit and becomes the only one.
    """
    if limit.events is not None:
        waiting = waiting[: limit.events]
    if waiting:
        yield from _look(waiting, [0 if limit.bytes is not None else None] * len(waiting), [1] * len(waiting))
        size = waiting[0].next_bytes
        if first and size is not None and not limit.allows(size):
            waiting[0].add_one()
            return waiting[0]
        _add_one_each(waiting, _left(waiting, limit))
    return None


def _divide(parts: Sequence[_Part], limit: Limit, first: bool) -> Generator[Question, Answer, None]:
    """Divide what is left of the limit in proportion to the unread data."""
    left = _left(parts, limit)
    asked = [each for each in parts if each.rest.length]
    taken = any(each.size for each in parts)
    if asked and not (left.used_up and (taken or not first)):
        weights = [each.backlog for each in asked]
        sizes = [None] * len(asked) if left.bytes is None else _shares(left.bytes, weights)
        counts = [None] * len(asked) if left.events is None else _shares(left.events, weights)
        yield from _look(asked, sizes, counts)


def _add_one_each(parts: Sequence[_Part], left: Limit) -> None:
    """Take the next event of each segment without one, if it is within the limits; only its size is known."""
    for each in parts:
        if not each.size and each.next_bytes is not None and left.allows(each.next_bytes):
            left = left.less(each.next_bytes, 1)
            each.add_one()


def _fill_up(parts: Sequence[_Part], limit: Limit) -> Generator[Question, Answer, None]:
    """Take the unused rest of the shares from the largest segment, if another request is worthwhile."""
    if any(each.behind and not each.rest.length for each in parts):
        return  # The rest of its share is for its successors.
    left = _left(parts, limit)
    worthwhile = (left.bytes is None or left.bytes * 16 >= (limit.bytes or 0)) and (
        left.events is None or left.events * 16 >= (limit.events or 0)
    )
    over = [
        each
        for each in parts
        if each.rest.length and (each.next_bytes is None or left.allows(each.next_bytes))
    ]
    if over and worthwhile and not left.used_up:
        yield from _look([max(over, key=lambda each: each.backlog)], [left.bytes], [left.events])


def _look(
    parts: Sequence[_Part], sizes: Sequence[int | None], counts: Sequence[int | None]
) -> Generator[Question, Answer, None]:
    """Take the events within these shares."""
    asked = [each for each in zip(parts, sizes, counts, strict=True) if each[2] != 0]
    if asked:
        answer = yield Look(tuple((part.rest, size, count) for part, size, count in asked))
        assert isinstance(answer, Sequence)
        for (part, _, _), found in zip(asked, answer, strict=True):
            part.add(found)


def admit(
    backlogs: Sequence[StreamBacklog], limit: Limit, waited: Mapping[SegmentKey, int]
) -> Generator[Question, Answer, Admitted]:
    """Decide which data of several streams goes into the next batch.

    The batch never exceeds the limit, unless its first event alone does. It is not empty if there is unread
    data.

    :param backlogs: the unread data of the streams.
    :param limit: limit of the batch.
    :param waited: for each segment with unread data, the number of batches in a row that took nothing from
        it.
    :raises InvalidStreamCutError: an end cut is past a segment for only some of its keys, so that no batch
        that ends between two events of that segment can reach it.
    """
    frontiers = {each.start.stream: _Frontier(each) for each in backlogs}
    left, first = limit, True
    tried: set[SegmentKey] = set()
    while True:
        for frontier in frontiers.values():
            yield from frontier.advance()
        ready = list(chain.from_iterable(each.ready for each in frontiers.values()))
        keys = {(each.stream, each.segment_id) for each in ready}
        # After the first round, only segments that have become ready since need another request.
        if keys <= tried or (left.used_up and not first):
            break
        tried |= keys
        behind: dict[SegmentKey, int] = {}
        if not left.holds(sum(each.length for each in ready)):
            for frontier in frontiers.values():
                behind |= yield from frontier.behind()
        for part in (yield from _share(ready, left, waited, behind, first=first)):
            if part.size:
                frontiers[part.whole.stream].take(part.whole.segment_id, part.to)
                left = left.less(part.size, part.events)
                first = False
    if first:
        for frontier in frontiers.values():
            frontier.check_not_stuck()
    return Admitted(
        {stream: each.cut() for stream, each in frontiers.items()},
        [part for _, each in sorted(frontiers.items()) for _, part in sorted(each.taken.items())],
        sum(each.left_bytes for each in frontiers.values()),
        sorted((stream, each) for stream, each in tried if each not in frontiers[stream].taken),
    )
