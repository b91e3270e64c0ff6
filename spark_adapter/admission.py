"""How much of what is stored goes into one micro-batch: no I/O here.

A batch takes whole events from the segments that can be read now, and from what follows them only after all
they follow was read to its end, so the events of a routing key stay in order. Where there is a limit, it is
shared between segments by what they have left.

Both functions are generators that yield what has to be looked up and are sent the answers, so that they run
against a server, and against a model of one in the tests.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

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
# Bytes of a header.


@dataclass(frozen=True, slots=True)
class Limit:
    """What a batch may have at most; None for no limit of that kind.

    :ivar bytes: with the headers of the events. :ivar events: number of events.
    """

    bytes: int | None = None
    events: int | None = None

    def holds(self, size: int) -> bool:
        """Whether so many bytes are within it, however small the events are."""
        return (self.bytes is None or size <= self.bytes) and (
            self.events is None or size // _SMALLEST_EVENT <= self.events
        )

    def less(self, size: int, events: int) -> Limit:
        """What is left of it."""
        return Limit(
            None if self.bytes is None else max(0, self.bytes - size),
            None if self.events is None else max(0, self.events - events),
        )

    @property
    def used_up(self) -> bool:
        """Whether not even an empty event is within it."""
        return self.events == 0 or (self.bytes is not None and self.bytes < _SMALLEST_EVENT)


@dataclass(frozen=True, slots=True)
class Look:
    """Asks for the whole events that ranges begin with: range, most bytes, most events.

    The answer is a list of :class:`pravega_wire.LeadingPart`, one for each.
    """

    parts: tuple[tuple[SegmentRange, int | None, int | None], ...]


@dataclass(frozen=True, slots=True)
class Follow:
    """Asks what follows sealed segments.

    The answer has, for each of them, its successors with the ids of all that each of those follows.
    """

    stream: ScopedStream
    segment_ids: tuple[int, ...]


Question: TypeAlias = Look | Follow
Answer: TypeAlias = Sequence[LeadingPart] | Mapping[int, Mapping[int, Sequence[int]]]


@dataclass(frozen=True, slots=True)
class StreamBacklog:
    """What there is to read of a stream.

    :ivar start, end: cuts. :ivar ranges: what lies between them, one range for each segment that has data.
    """

    start: StreamCut
    end: StreamCut
    ranges: tuple[SegmentRange, ...]


@dataclass(frozen=True, slots=True)
class Admitted:
    """What goes into a batch.

    :ivar cuts: where each stream is after it. :ivar ranges: what is read, by stream and segment id.
    :ivar left_bytes: what was there and is not in it. :ivar waiting: segments that could have been read and
        of which nothing was taken.
    """

    cuts: dict[ScopedStream, StreamCut]
    ranges: list[SegmentRange]
    left_bytes: int
    waiting: list[SegmentKey]


class _Frontier:
    """How far one stream was taken."""

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
        """What can be read now."""
        return [self._left[each] for each in self._at if each in self._left]

    def take(self, segment_id: int, to: int) -> None:
        """The batch goes to this offset in a segment that is ready."""
        rest = self._left.pop(segment_id)
        if to > rest.start_offset:
            first = self.taken.get(segment_id, rest).start_offset
            self.taken[segment_id] = SegmentRange(self.stream, segment_id, first, to)
            self._at[segment_id] = to
        if to < rest.end_offset:
            self._left[segment_id] = SegmentRange(self.stream, segment_id, to, rest.end_offset)

    def cut(self) -> StreamCut:
        """Where the stream is now."""
        return StreamCut(self.stream, self._at) if self._left else self._backlog.end

    def check_not_stuck(self) -> None:
        """Refuse an end that cannot be reached step by step."""
        if self._left and not self.ready:
            raise InvalidStreamCutError(
                f"the end cut {self._backlog.end} of stream {self.stream} is between segments of one scale, "
                "where a query with a limit of bytes or events cannot stop: give it a cut that names every "
                "key, or no limit",
                scope=self.stream.scope,
                stream=self.stream.name,
            )

    def advance(self) -> Generator[Question, Answer, None]:
        """Go on to what follows the segments that are read to their ends.

        All segments of one scale are left together, so that the cut always names each key once.
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
        """Put the successors in the place of a segment and of those that were scaled with it."""
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
            return False  # one of them is not reached yet
        for each in before:
            self._at.pop(each, None)
        for each in after - begun:
            rest = self._left.get(each)
            self._at[each] = rest.start_offset if rest is not None else max(0, self._end.get(each, 0))
        return True


@dataclass(slots=True)
class _Part:
    """What a batch takes of one segment."""

    whole: SegmentRange
    to: int
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

    def add(self, found: LeadingPart) -> None:
        self.to = found.range.end_offset
        self.events += found.events or 0
        self.next_bytes = found.next_bytes

    def add_one(self) -> None:
        """The event of which only the size is known."""
        assert self.next_bytes is not None
        self.to += self.next_bytes
        self.events += 1
        self.next_bytes = None


def _shares(total: int, weights: Sequence[int]) -> list[int]:
    """``total`` divided in proportion, without a rest."""
    whole = sum(weights)
    shares = [total * each // whole for each in weights]
    by_rest = sorted(range(len(weights)), key=lambda n: (-(total * weights[n] % whole), -weights[n]))
    for number in by_rest[: total - sum(shares)]:
        shares[number] += 1
    return shares


def _share(
    ready: Sequence[SegmentRange], limit: Limit, waited: Mapping[SegmentKey, int], *, first: bool
) -> Generator[Question, Answer, list[_Part]]:
    """Divide a limit between segments.

    :param first: nothing is in the batch yet, so an event over the limit may go alone.
    """
    parts = [_Part(each, each.start_offset) for each in ready]
    # Who got nothing for the longest time is first, then who has most.
    parts.sort(key=lambda each: (-waited.get(each.key, 0), -each.whole.length, each.key))
    if limit.holds(sum(each.whole.length for each in parts)):
        for each in parts:
            each.to = each.whole.end_offset
            each.events = each.size // _SMALLEST_EVENT
        return parts
    left = limit

    # 1. One event for each that got nothing before, so that small segments beside a large one have a turn.
    waiting = [each for each in parts if waited.get(each.key)]
    if waiting:
        if left.events is not None:
            waiting = waiting[: left.events]
        yield from _look(waiting, [0 if left.bytes is not None else None] * len(waiting), [1] * len(waiting))
        for number, each in enumerate(waiting):
            if each.next_bytes is None:
                left = left.less(each.size, each.events)  # no limit of bytes: one event was found
            elif left.bytes is not None and each.next_bytes <= left.bytes:
                left = left.less(each.next_bytes, 1)
                each.add_one()
            elif number == 0 and first:
                each.add_one()  # over the limit, and its turn: alone
                return [each]

    # 2. The rest by what they have left.
    asked = [each for each in parts if each.rest.length]
    taken = any(each.size for each in parts)
    if asked and not (left.used_up and (taken or not first)):
        weights = [each.rest.length for each in asked]
        sizes = [None] * len(asked) if left.bytes is None else _shares(left.bytes, weights)
        counts = [None] * len(asked) if left.events is None else _shares(left.events, weights)
        left = yield from _fill(asked, sizes, counts, left)

    # 3. What the shares did not use up: an event for those that have none, the rest for the largest.
    for each in parts:
        if not each.size and each.next_bytes is not None and not left.used_up:
            assert left.bytes is not None
            if each.next_bytes <= left.bytes:
                left = left.less(each.next_bytes, 1)
                each.add_one()
    if any(each.size for each in parts) or not first:
        over = [
            each
            for each in parts
            if each.rest.length and (each.next_bytes is None or each.next_bytes <= (left.bytes or 0))
        ]
        if over and not left.used_up and _worth_it(left, limit):
            largest = max(over, key=lambda each: each.rest.length)
            yield from _fill([largest], [left.bytes], [left.events], left)
        return parts
    # Every first event is over the limit.
    if parts[0].next_bytes is not None:
        parts[0].add_one()
    return parts


def _worth_it(left: Limit, limit: Limit) -> bool:
    """Whether so much of a limit is left that another look at a segment pays."""
    return (left.bytes is None or left.bytes * 16 >= (limit.bytes or 0)) and (
        left.events is None or left.events * 16 >= (limit.events or 0)
    )


def _fill(
    parts: Sequence[_Part], sizes: Sequence[int | None], counts: Sequence[int | None], left: Limit
) -> Generator[Question, Answer, Limit]:
    """Take what is within these shares; gives what is left of the limit."""
    before = [(each.size, each.events) for each in parts]
    asked = [number for number, count in enumerate(counts) if count != 0]
    yield from _look(
        [parts[number] for number in asked],
        [sizes[number] for number in asked],
        [counts[number] for number in asked],
    )
    for each, (size, events) in zip(parts, before, strict=True):
        left = left.less(each.size - size, each.events - events)
    return left


def _look(
    parts: Sequence[_Part], sizes: Sequence[int | None], counts: Sequence[int | None]
) -> Generator[Question, Answer, None]:
    if not parts:
        return
    asked = zip(parts, sizes, counts, strict=True)
    answer = yield Look(tuple((each.rest, size, count) for each, size, count in asked))
    assert isinstance(answer, Sequence)
    for each, found in zip(parts, answer, strict=True):
        each.add(found)


def admit(
    backlogs: Sequence[StreamBacklog], limit: Limit, waited: Mapping[SegmentKey, int]
) -> Generator[Question, Answer, Admitted]:
    """What the next batch has of some streams.

    It never has more than the limit, unless the first event alone is larger; it has something whenever there
    is something.

    :param waited: for how many batches in a row nothing was taken of a segment that had something.
    :raises InvalidStreamCutError: an end cut is behind a segment for some of its keys only, where no batch
        that ends between two events of that segment could.
    """
    frontiers = {each.start.stream: _Frontier(each) for each in backlogs}
    left, first = limit, True
    tried: set[SegmentKey] = set()
    while True:
        for frontier in frontiers.values():
            yield from frontier.advance()
        ready = list(chain.from_iterable(each.ready for each in frontiers.values()))
        keys = {(each.stream, each.segment_id) for each in ready}
        # Once shared out, only what has become ready since is worth another look.
        if keys <= tried or (left.used_up and not first):
            break
        tried |= keys
        for part in (yield from _share(ready, left, waited, first=first)):
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
