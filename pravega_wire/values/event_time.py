"""Event time: watermarks for a group's streams, and events in the order of their times.

Nothing in this module calls a server; it is used in the same way with all facades.

Not public: :mod:`pravega_wire` exports the names that users need.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from pravega_wire.support.checks import (
    check_callable,
    check_count,
    check_event_time,
    check_seconds,
    check_type,
)
from pravega_wire.support.environment import environment
from pravega_wire.values.groups import TimeWindow
from pravega_wire.values.types import ScopedStream

__all__ = ["EventTimeOrder", "WatermarkAssigner"]

T = TypeVar("T")


@dataclass(slots=True)
class _Progress:
    seen: object
    since: float


class WatermarkAssigner:
    """Computes the watermark of a group: the event time up to which all its streams have been read.

    The watermark is the smallest lower bound of the streams' :class:`TimeWindow`, minus the allowed lateness.
    It never decreases, so use a new object after the group was reset. Pass it to
    :meth:`EventReader.watermark` regularly.

    A *writer* that stops reporting times holds its stream back for the stream's
    ``timestamp_aggregation_timeout``; the controller enforces that. A *stream* whose time does not
    advance, and in which the group makes no progress, holds the other streams back for ``idle_after``.

    Example::

        await client.create_reader_group("sorting", ["readings"])
        times = WatermarkAssigner(idle_after=30)
        order = EventTimeOrder(lambda event: int.from_bytes(event.value[:8]))  # milliseconds
        async with client.reader_group("sorting") as group, group.reader("one") as reader:
            while (event := await reader.read_event(timeout=1)) is not None:
                order.add(event)
                watermark = await reader.watermark(times)
                if watermark is not None:
                    for ready in order.release(watermark):
                        print(ready.value)

    :param allowed_lateness: how much older than their stream's time events may be, in the writers' unit.
    :param idle_after: seconds after which an idle stream no longer holds the watermark back; by default it
        always does.
    :param every: smallest interval in seconds between requests for the time windows.
    :param clock: returns the current time in seconds.
    :raises InvalidArgumentError: a number is negative.
    """

    def __init__(
        self,
        *,
        allowed_lateness: int = 0,
        idle_after: float | None = None,
        every: float = 1.0,
        clock: Callable[[], float] | None = None,
    ) -> None:
        check_count("allowed_lateness", allowed_lateness, 0)
        check_seconds("every", every, zero=True)
        if idle_after is not None:
            check_seconds("idle_after", idle_after, zero=True)
        self._lateness = allowed_lateness
        self._idle_seconds = idle_after
        self._every = every
        if clock is not None:
            check_callable("clock", clock)
        self._clock = environment().monotonic if clock is None else clock
        self._progress: dict[ScopedStream, _Progress] = {}
        self._next = self._clock()
        self._watermark: int | None = None

    def __repr__(self) -> str:
        return f"<WatermarkAssigner at {self._watermark} ms, {len(self._progress)} streams>"

    @property
    def watermark(self) -> int | None:
        """The current watermark: no event still to be read is older, unless it is late. None if unknown."""
        return self._watermark

    @property
    def due(self) -> bool:
        """True if the time windows should be requested again."""
        return self._clock() >= self._next

    def update(
        self, windows: Mapping[ScopedStream, TimeWindow], places: Mapping[ScopedStream, object] | None = None
    ) -> int | None:
        """Update the watermark from the time windows of all streams.

        :param windows: the time window of each stream.
        :param places: for each stream, a value that changes when the group makes progress in it.
        :returns: the watermark if it has advanced; otherwise None.
        """
        check_type("windows", windows, Mapping)
        if places is not None:
            check_type("places", places, Mapping)
        now = self._clock()
        self._next = now + self._every
        lowers: list[int | None] = []
        for stream, window in windows.items():
            progress = self._progress.get(stream)
            seen = window.lower, (places or {}).get(stream)
            if progress is None or progress.seen != seen or window.upper is not None:
                # If there is an upper bound, there is more to read, so the stream is not idle.
                self._progress[stream] = _Progress(seen, now)
            elif self._idle_seconds is not None and now - progress.since >= self._idle_seconds:
                continue
            lowers.append(window.lower)
        known = [each for each in lowers if each is not None]
        if not known or len(known) < len(lowers):
            return None
        watermark = min(known) - self._lateness
        if self._watermark is not None and watermark <= self._watermark:
            return None
        self._watermark = watermark
        return watermark


class EventTimeOrder(Generic[T]):
    """Buffers events until the watermark has passed their times.

    It then returns them in the order of their times.

    Events with the same time stay in the order in which they were added. Buffered events are only in memory,
    although their reader counts them as read. A program that must not lose them saves the result of
    :meth:`held` with each checkpoint, and adds those events again when it restarts from that checkpoint.

    :class:`WatermarkAssigner` has an example.

    :param time_of: returns the event time of an event, a whole number.
    """

    def __init__(self, time_of: Callable[[T], int]) -> None:
        check_callable("time_of", time_of)
        self._time_of = time_of
        self._heap: list[tuple[int, int, T]] = []
        self._count = 0
        self._watermark: int | None = None

    def __repr__(self) -> str:
        return f"<EventTimeOrder, {len(self)} events held>"

    def __len__(self) -> int:
        """Return the number of buffered events."""
        return len(self._heap)

    def add(self, event: T) -> bool:
        """Add an event, unless it is late.

        :param event: the event.
        :returns: False if the event is older than the last released watermark; it is then not added.
        :raises InvalidArgumentError: its time is not a whole number.
        """
        event_time = self._time_of(event)
        if type(event_time) is not int:
            # Times that cannot be compared, as NaN, would hold back what is behind them.
            event_time = check_event_time(event_time, "the time of an event")
        if self._watermark is not None and event_time < self._watermark:
            return False
        self._count += 1
        heapq.heappush(self._heap, (event_time, self._count, event))
        return True

    def release(self, watermark: int) -> list[T]:
        """Remove and return the events that are older than a watermark, oldest first.

        :param watermark: the watermark.
        :raises InvalidArgumentError: it is not a whole number.
        """
        if type(watermark) is not int:
            watermark = check_event_time(watermark, "watermark")
        if self._watermark is None or watermark > self._watermark:
            self._watermark = watermark
        released = []
        while self._heap and self._heap[0][0] < watermark:
            released.append(heapq.heappop(self._heap)[2])
        return released

    def drain(self) -> list[T]:
        """Remove and return all events, oldest first.

        Use it at the end of the data, when no watermark follows.
        """
        held = self.held()
        self._heap.clear()
        return held

    def held(self) -> list[T]:
        """Return all events, oldest first, without removing them."""
        return [event for _, _, event in sorted(self._heap, key=lambda entry: entry[:2])]
