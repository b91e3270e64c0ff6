"""What a stream must hold, in plain Python: numbered events, and what is known of each.

A clock that ticks with every act gives the order of acts. Of two events with one routing key, one of which
was stored before the other was begun, the earlier one must be read first, whoever wrote them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from pravega_wire.values.hashing import routing_key_position


class Fate(Enum):
    """What is known of an event."""

    UNDER_WAY = "accepted by a writer"
    STORED = "acknowledged, or its transaction is committed"
    UNCERTAIN = "its writer ended before the acknowledgement"
    PENDING = "in a transaction that is open"
    COMMITTING = "in a transaction whose commit was asked for"
    DROPPED = "in a transaction that was aborted"


POSSIBLE = frozenset({Fate.UNDER_WAY, Fate.STORED, Fate.UNCERTAIN, Fate.COMMITTING})


@dataclass(slots=True, eq=False)
class Event:
    """One event.

    :ivar source: writer or transaction. :ivar key: routing key, None for any segment.
    :ivar begun: when its writing began, or the commit. :ivar done: when it was known to be visible.
    :ivar batch: its atomic batch. :ivar txn: its transaction.
    """

    number: int
    size: int
    source: str
    key: str | None
    fate: Fate
    begun: int
    done: float = math.inf
    batch: str | None = None
    txn: str | None = None

    @property
    def payload(self) -> bytes:
        """The number, and something of no meaning."""
        return b"%08d" % self.number + bytes([32 + self.number % 90]) * self.size


@dataclass
class StreamModel:
    """Every event that was ever given to a writer, by its number."""

    events: list[Event] = field(default_factory=list)
    clock: int = 0
    positions: dict[str, float] = field(default_factory=dict)

    def tick(self) -> int:
        """The next moment."""
        self.clock += 1
        return self.clock

    def new(
        self,
        source: str,
        key: str | None,
        size: int,
        fate: Fate = Fate.UNDER_WAY,
        *,
        batch: str | None = None,
        txn: str | None = None,
    ) -> Event:
        """An event that is about to be written."""
        event = Event(len(self.events), size, source, key, fate, self.clock, batch=batch, txn=txn)
        self.events.append(event)
        return event

    def of(self, fates: Collection[Fate]) -> set[int]:
        """Numbers of the events with one of these fates."""
        return {event.number for event in self.events if event.fate in fates}

    def stored(self) -> frozenset[int]:
        """Numbers of the events that must be there."""
        return frozenset(self.of({Fate.STORED}))

    def number_of(self, payload: bytes) -> int:
        """Which event was read; all of its bytes must be its own."""
        head = payload[:8]
        assert head.isdigit(), f"nobody wrote {payload[:40]!r}"
        assert int(head) < len(self.events), f"nobody wrote {payload[:40]!r} yet"
        event = self.events[int(head)]
        assert payload == event.payload, f"event {event.number} is not as it was written"
        return event.number

    # --- judging what was read ------------------------------------------------------------------

    def check(
        self, parts: Sequence[Sequence[int]], required: Collection[int], *, whole: bool = False
    ) -> None:
        """What was read of each segment, in the order of the segments.

        :param required: what must have been read; of the rest only what may be there.
        :param whole: it was read from the first event ever written on.
        """
        found = [number for part in parts for number in part]
        seen = set(found)
        assert len(seen) == len(found), f"read twice: {sorted(doubles(found))[:20]}"
        missing = set(required) - seen
        assert not missing, f"{len(missing)} events are missing: {self.describe(missing)}"
        alien = {n for n in seen - set(required) if self.events[n].fate not in POSSIBLE}
        assert not alien, f"{len(alien)} events must not be there: {self.describe(alien)}"
        self._check_order(found)
        for part in parts:
            self._check_groups(part)
        if whole:
            self._check_prefixes(seen)

    def check_only(
        self, parts: Sequence[Sequence[int]], required: Collection[int], *, whole: bool = False
    ) -> None:
        """As :meth:`check` of a range where only uncertain events may have been read besides."""
        self.check(parts, required, whole=whole)
        more = {number for part in parts for number in part} - set(required)
        wrong = {number for number in more if self.events[number].fate is not Fate.UNCERTAIN}
        assert not wrong, f"{len(wrong)} events are outside of this range: {self.describe(wrong)}"

    def check_places(self, part: Sequence[int], low: float, high: float) -> None:
        """Events with a key are in the segment that every client looks for them."""
        for number in part:
            key = self.events[number].key
            if key is None:
                continue
            if key not in self.positions:
                self.positions[key] = routing_key_position(key)
            assert low <= self.positions[key] <= high, (
                f"event {number} of {self.events[number].source} with key {key}, position "
                f"{self.positions[key]}, is in the segment of {low} to {high}"
            )

    def describe(self, numbers: Iterable[int]) -> str:
        """The first of these events, in words."""
        return ", ".join(
            f"{n} (key {self.events[n].key}, {self.events[n].source}, {self.events[n].fate.name})"
            for n in sorted(numbers)[:10]
        )

    def _check_order(self, found: Sequence[int]) -> None:
        by_key: dict[str, list[Event]] = defaultdict(list)
        for number in found:
            event = self.events[number]
            if event.key is not None:
                by_key[event.key].append(event)
        for key, events in by_key.items():
            last: dict[str, int] = {}
            for event in events:
                assert last.get(event.source, -1) < event.number, (
                    f"key {key}: event {event.number} of {event.source} came after {last[event.source]}"
                )
                last[event.source] = event.number
            earliest_done = math.inf
            for event in reversed(events):
                assert event.begun <= earliest_done, (
                    f"key {key}: event {event.number} of {event.source} was begun at {event.begun}, and is "
                    f"before one that was stored at {earliest_done}"
                )
                earliest_done = min(earliest_done, event.done)

    def _check_groups(self, part: Sequence[int]) -> None:
        """Batches are whole; of a batch or a transaction a segment's events lie next to each other."""
        groups: dict[str, list[int]] = defaultdict(list)
        for index, number in enumerate(part):
            event = self.events[number]
            group = event.batch or event.txn
            if group is not None:
                groups[group].append(index)
        for group, indexes in groups.items():
            first, last = indexes[0], indexes[-1]
            assert last - first + 1 == len(indexes), f"{group} does not lie in one piece"
            numbers = [part[index] for index in indexes]
            if self.events[numbers[0]].batch is not None:
                whole = [event.number for event in self.events if event.batch == group]
                assert numbers == whole, f"of {group}, {whole}, only {numbers} is in this order in a segment"

    def _check_prefixes(self, seen: Collection[int]) -> None:
        """Of one writer's events with a key nothing comes after one that is not there."""
        absent: set[tuple[str, str]] = set()
        for event in self.events:
            if event.key is None or event.fate not in POSSIBLE or event.txn is not None:
                continue
            if event.number not in seen:
                absent.add((event.source, event.key))
            else:
                assert (event.source, event.key) not in absent, (
                    f"event {event.number} of {event.source} is there and one before it is not"
                )


def doubles(numbers: Iterable[int]) -> set[int]:
    """Those that occur more than once."""
    seen: set[int] = set()
    return {number for number in numbers if number in seen or seen.add(number)}
