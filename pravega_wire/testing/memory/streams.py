"""What a controller knows of a stream: its epochs, and which segments lie before, behind and between cuts.

No segment is touched here, and nothing waits. The rules are those of a 0.13.0 controller, whose answers to
cuts that are not sound depend on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from struct import pack
from uuid import UUID

from pravega_wire.proto import controller_pb2 as pb
from pravega_wire.values.naming import epoch_of, number_of, segment_id

__all__ = [
    "Epoch", "NotFound", "Part", "Range", "Rates", "Stream", "Transaction", "WriterMark", "even_parts",
    "in_java_order", "reduced",
]  # fmt: skip

Cut = Mapping[int, int]
Range = tuple[float, float]


class NotFound(Exception):
    """Something that a call names does not exist; the text says what."""


@dataclass(frozen=True, slots=True)
class Part:
    """A segment, and its part of the key space."""

    id: int
    low: float
    high: float

    def overlaps(self, low: float, high: float) -> bool:
        """Whether it has keys in a range."""
        return self.low < high and self.high > low

    def meets(self, other: Part) -> bool:
        """Whether both have keys in common."""
        return self.overlaps(other.low, other.high)


@dataclass(frozen=True, slots=True)
class Epoch:
    """The segments that are active together.

    :ivar number: number of the epoch.
    :ivar reference: the epoch that this one is a duplicate of, or its own number.
    :ivar parts: its segments.
    """

    number: int
    reference: int
    parts: tuple[Part, ...]

    def part(self, segment: int) -> Part | None:
        """Return a segment of the epoch, or None."""
        return next((each for each in self.parts if each.id == segment), None)


@dataclass(slots=True)
class Transaction:
    """A transaction.

    :ivar epoch: the epoch that its id names.
    :ivar state: one of the values of ``TxnState.State``.
    :ivar began: time at which it began, in milliseconds.
    :ivar expires: time at which its lease ends, in milliseconds.
    :ivar latest: time after which no lease is extended.
    :ivar writer: name of the writer whose time a commit notes, or empty.
    :ivar time: that time.
    """

    id: UUID
    epoch: int
    state: pb.TxnState.State
    began: int
    expires: int
    latest: int
    writer: str = ""
    time: int = 0


@dataclass(slots=True)
class WriterMark:
    """The last time that a writer has noted. :ivar behind_since: when it was found not to advance."""

    time: int
    position: dict[int, int]
    alive: bool = True
    behind_since: int | None = None


@dataclass(slots=True)
class Rates:
    """The traffic of a segment of a stream that scales by itself. Times are in milliseconds.

    :ivar began: since when it is watched.
    :ivar looked: when it was looked at last.
    :ivar reported: when the last decision about it was made.
    :ivar count: what was counted by then.
    :ivar averages: the rates per second, over several windows.
    :ivar asked: when a scale of it was asked for last.
    :ivar cold_until: until when it counts as one without much traffic.
    """

    began: int
    looked: int
    reported: int
    count: float
    averages: list[float] = field(default_factory=lambda: [0.0] * 4)
    asked: int = 0
    cold_until: int = 0


def in_java_order(ranges: Iterable[Range]) -> list[Range]:
    """Order ranges as a Java map of their beginnings does, in which a controller collects them."""
    given = list(ranges)
    size = 16
    while len(given) > 3 * size // 4:
        size *= 2

    def bucket(found: Range) -> int:
        bits = int.from_bytes(pack(">d", found[0]), "big")
        code = (bits ^ bits >> 32) & 0xFFFFFFFF
        return (code ^ code >> 16) & (size - 1)

    return sorted(given, key=bucket)


def even_parts(count: int, first: int) -> tuple[Part, ...]:
    """Divide the key space evenly among segments with the numbers from ``first`` on."""
    chunk = 1.0 / count
    return tuple(Part(first + each, each * chunk, (each + 1) * chunk) for each in range(count))


def reduced(ranges: Iterable[Range]) -> list[Range]:
    """Join ranges that touch each other."""
    found: list[Range] = []
    for low, high in sorted(ranges):
        if found and found[-1][1] == low:
            found[-1] = found[-1][0], high
        else:
            found.append((low, high))
    return found


@dataclass(slots=True, eq=False)
class Stream:
    """A stream.

    :ivar id: id by which its tables are named.
    :ivar epochs: all epochs; the last ones may not be active so far.
    :ivar active: number of the active epoch.
    :ivar ended: segment id to the epoch in which it is not any more.
    :ivar tags: the tags by which it is found.
    :ivar cut: where it was truncated last.
    :ivar lengths: segment id to the length of a sealed segment.
    :ivar marks: the writers that have noted a time.
    :ivar rates: the traffic of segments, if it scales by itself.
    :ivar subscribers: reader groups that hold back its retention, and the cut that each has reported.
    :ivar kept_cuts: cuts that were recorded for retention: the time in milliseconds, the size of the stream
        up to the cut, and the cut.
    :ivar stuck: whether a workflow can never end, so that no other one can begin.
    :ivar updating: whether an update of its configuration was begun and has not ended.
    :ivar unfinished: whether its creation was not finished.
    :ivar retained: whether somebody comes to apply its retention.
    :ivar watched: whether somebody comes to look at its traffic.
    """

    id: UUID
    scope: str
    name: str
    config: pb.StreamConfig
    epochs: list[Epoch]
    active: int = 0
    ended: dict[int, int] = field(default_factory=dict)
    tags: set[str] = field(default_factory=set)
    cut: dict[int, int] = field(default_factory=dict)
    lengths: dict[int, int] = field(default_factory=dict)
    transactions: dict[UUID, Transaction] = field(default_factory=dict)
    marks: dict[str, WriterMark] = field(default_factory=dict)
    rates: dict[int, Rates] = field(default_factory=dict)
    subscribers: dict[str, dict[int, int]] = field(default_factory=dict)
    kept_cuts: list[tuple[int, int, dict[int, int]]] = field(default_factory=list)
    sealed: bool = False
    stuck: bool = False
    updating: bool = False
    unfinished: bool = False
    retained: bool = False
    watched: bool = False

    @property
    def epoch(self) -> Epoch:
        """The active epoch."""
        return self.epochs[self.active]

    @property
    def parts(self) -> tuple[Part, ...]:
        """The active segments; none if the stream is sealed."""
        return () if self.sealed else self.epoch.parts

    def epoch_at(self, number: int) -> Epoch:
        """Return an epoch.

        :raises NotFound: there is none with this number.
        """
        if not 0 <= number < len(self.epochs):
            raise NotFound(f"epoch {number} of stream {self.scope}/{self.name}")
        return self.epochs[number]

    def part(self, segment: int) -> Part:
        """Return a segment of any epoch.

        :raises NotFound: there is none.
        """
        found = self.epoch_at(epoch_of(segment)).part(segment)
        if found is None:
            raise NotFound(f"segment {segment} of stream {self.scope}/{self.name}")
        return found

    def begin_epoch(self, sealed: Sequence[int], ranges: Sequence[Range]) -> tuple[Part, ...]:
        """Add an epoch in which some segments are replaced; return the new ones. It is not active yet."""
        number = len(self.epochs)
        before = self.epoch.parts
        first = max(number_of(each.id) for each in before) + 1
        new = tuple(Part(segment_id(number, first + at), *each) for at, each in enumerate(ranges))
        self.epochs.append(
            Epoch(number, number, tuple(each for each in before if each.id not in sealed) + new)
        )
        self.ended |= dict.fromkeys(sealed, number)
        return new

    def duplicate(self, epoch: Epoch, replaced: Epoch) -> Epoch:
        """Add an epoch with new segments like those of another one, after the segments of ``replaced``."""
        number = len(self.epochs)
        parts = tuple(
            Part(segment_id(number, number_of(each.id)), each.low, each.high) for each in epoch.parts
        )
        made = Epoch(number, epoch.reference, parts)
        self.epochs.append(made)
        self.ended |= dict.fromkeys((each.id for each in replaced.parts), number)
        return made

    def successors(self, segment: int) -> list[tuple[Part, list[int]]]:
        """Return what follows a segment, each with all its predecessors."""
        ended = self.ended.get(segment)
        if ended is None:
            return []
        before, after = self.epochs[ended - 1], self.epochs[ended]
        own = self.part(segment)
        return [
            (each, [other.id for other in before.parts if other.meets(each)])
            for each in after.parts
            if each.meets(own)
        ]

    # --- cuts -----------------------------------------------------------------------------------

    def span(self, cut: Cut) -> dict[Part, int]:
        """Return the segments of a cut, each with the last of the cut's epochs that it is in."""
        low, high = epoch_of(min(cut)), epoch_of(max(cut))
        found: dict[Part, int] = {}
        missing = set(cut)
        for number in range(high, low - 1, -1):
            for part in self.epoch_at(number).parts:
                if part.id in missing:
                    missing.discard(part.id)
                    found[part] = number
        return found

    def is_valid(self, cut: Cut) -> bool:
        """Return whether a cut covers the key space and is consistent.

        :raises NotFound: the cut has an epoch or segment that does not exist.
        :raises IndexError: where a 0.13.0 controller fails: all its offsets are negative, or what fills a gap
            follows a segment that was made before the first epoch of the cut.
        """
        parts = {each: self.part(each) for each in cut}
        future = {parts[each] for each, offset in cut.items() if offset < 0}
        inside = {parts[each] for each, offset in cut.items() if offset >= 0}
        if not inside:
            raise IndexError("Index 0 out of bounds")
        if any(each.meets(other) and other.id >= each.id for each in future for other in inside):
            return False
        gaps: list[Range] = []
        valid = True

        def filled(low: float, high: float) -> bool:
            gaps.append((low, high))
            return any(each.overlaps(low, high) for each in future)

        # A later gap that is filled makes up for an earlier one that is not, as in a real controller.
        at = 0.0
        for each in sorted(inside, key=lambda each: each.low):
            if at < each.low:
                valid = filled(at, each.low)
                if not valid and at > 0.0:
                    break
            elif at > each.low:
                valid = False
                break
            at = each.high
        if at < 1.0:
            valid = filled(at, 1.0)
        if not valid:
            return False
        return self._reachable(inside, future, gaps, epoch_of(min(cut)), epoch_of(max(cut)))

    def _reachable(
        self, inside: set[Part], future: set[Part], gaps: list[Range], first: int, last: int
    ) -> bool:
        """Return whether the gaps are filled by segments that follow those that were read to their ends."""
        check = [each for gap in gaps for each in self.epochs[first].parts if each.overlaps(*gap)]
        read: set[Part] = set()
        while check:
            part = check.pop(0)
            if part in read or part in inside or part in future:
                continue
            for other in inside:
                if not other.meets(part):
                    continue
                if other.id < part.id:
                    return False
                read.add(part)
                if epoch_of(part.id) < first:
                    raise IndexError(f"Index {epoch_of(part.id) - first} out of bounds")
                for number in range(epoch_of(part.id), last + 1):
                    epoch = self.epochs[number]
                    if epoch.part(part.id) is None:
                        check += [each for each in epoch.parts if each.meets(part)]
                        break
        return True

    def is_at_or_after(self, cut: Cut, other: Cut) -> bool:
        """Return whether no part of a cut is before another cut."""
        span, before = self.span(cut), self.span(other)
        return not any(
            (part.id == old.id and cut[part.id] < other[old.id]) or (old.meets(part) and epoch < old_epoch)
            for part, epoch in span.items()
            for old, old_epoch in before.items()
        )

    def between(self, start: Cut, end: Cut) -> list[Part]:
        """Return all segments between two cuts, both included. An empty one is the beginning, or the end.

        :raises ValueError: the cuts are in the wrong order.
        """
        spans = [
            dict.fromkeys(self.epochs[0].parts, 0) if not start else self.span(start),
            dict.fromkeys(self.epoch.parts, self.active) if not end else self.span(end),
        ]
        if start and end and not self.is_at_or_after(end, start):
            raise ValueError("the cuts are in the wrong order")
        low, high = spans
        found: dict[Part, None] = {}
        # The first epoch is looked at even if it is behind the last one (observed).
        first = min(low.values())
        for epoch in self.epochs[first : max(first, max(high.values())) + 1]:
            whole = max(low.values()) <= epoch.number <= min(high.values())
            for part in epoch.parts:
                if whole or (
                    all(each.id <= part.id for each in low if each.meets(part))
                    and all(part.id <= each.id for each in high if each.meets(part))
                ):
                    found[part] = None
        return list(found)

    def head(self) -> dict[int, int]:
        """Return where the stream begins."""
        return dict(self.cut) if self.cut else {each.id: 0 for each in self.epochs[0].parts}
