"""What programs make of event times: watermarks out of time windows, and events in the order of their times.

Nothing here talks to a server; both facades use it.

Not public: :mod:`pravega_wire` exports what users need of it.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from pravega_wire.checks import check_count, check_seconds
from pravega_wire.groups import TimeWindow
from pravega_wire.types import ScopedStream

__all__ = ["EventTimeOrder", "WatermarkAssigner"]

T = TypeVar("T")


@dataclass(slots=True)
class _Progress:
    seen: object
    since: float


class WatermarkAssigner:
    """Up to which event time all streams of a group have been read: the watermark.

    It is the lowest lower bound of the streams' :class:`TimeWindow`, less the lateness that is allowed, and
    never goes back: a reader that begins again after a reset wants a new one. Give it to
    :meth:`EventReader.watermark` again and again.

    A *writer* that notes no time any more holds its stream back for as long as the stream's
    ``timestamp_aggregation_timeout_ms`` says; the controller sees to that. A *stream* whose time stands
    still, and in which the group does not read on, holds the others back for ``idle_seconds``.

    :param allowed_lateness_ms: how much older than their stream's time events may be, in the writers' unit.
    :param idle_seconds: default: an idle stream holds the watermark back for ever.
    :param every: ask for the time windows at most once in so many seconds.
    :param clock: gives seconds.
    :raises InvalidArgumentError: a number is negative.
    """

    def __init__(
        self,
        *,
        allowed_lateness_ms: int = 0,
        idle_seconds: float | None = None,
        every: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        check_count("allowed_lateness_ms", allowed_lateness_ms, 0)
        check_seconds("every", every, zero=True)
        if idle_seconds is not None:
            check_seconds("idle_seconds", idle_seconds, zero=True)
        self._lateness = allowed_lateness_ms
        self._idle_seconds = idle_seconds
        self._every = every
        self._clock = clock
        self._progress: dict[ScopedStream, _Progress] = {}
        self._next = clock()
        self._watermark: int | None = None

    def __repr__(self) -> str:
        return f"<WatermarkAssigner at {self._watermark} ms, {len(self._progress)} streams>"

    @property
    def watermark(self) -> int | None:
        """No event that follows is older, unless it is late; None before anything is known."""
        return self._watermark

    @property
    def due(self) -> bool:
        """Whether it is time to ask for the time windows again."""
        return self._clock() >= self._next

    def update(
        self, windows: Mapping[ScopedStream, TimeWindow], places: Mapping[ScopedStream, object] | None = None
    ) -> int | None:
        """Take note of the time windows of all streams.

        :param places: of each stream something that changes when the group reads on in it.
        :returns: the watermark when it has moved, None when it has not.
        """
        now = self._clock()
        self._next = now + self._every
        lowers: list[int | None] = []
        for stream, window in windows.items():
            progress = self._progress.get(stream)
            seen = window.lower, (places or {}).get(stream)
            if progress is None or progress.seen != seen or window.upper is not None:
                # With an upper bound there is more to read, so the stream is not idle.
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
    """Holds events until the watermark has passed their times, and gives them in the order of these.

    Events of one time stay in the order in which they came. What is held is in memory only, while its reader
    counts it as read: a program that must not lose it saves :meth:`held` with each checkpoint, and adds it
    again when it begins there.

    :param time_of: the event time of an event.
    """

    def __init__(self, time_of: Callable[[T], int]) -> None:
        self._time_of = time_of
        self._heap: list[tuple[int, int, T]] = []
        self._count = 0
        self._watermark: int | None = None

    def __repr__(self) -> str:
        return f"<EventTimeOrder, {len(self)} events held>"

    def __len__(self) -> int:
        """Number of events held."""
        return len(self._heap)

    def add(self, event: T) -> bool:
        """Hold an event, if it is not late.

        :returns: False for an event older than the watermark that was released last; it is not held.
        """
        event_time = self._time_of(event)
        if self._watermark is not None and event_time < self._watermark:
            return False
        self._count += 1
        heapq.heappush(self._heap, (event_time, self._count, event))
        return True

    def release(self, watermark: int) -> list[T]:
        """The events older than ``watermark``, oldest first; they are not held any longer."""
        if self._watermark is None or watermark > self._watermark:
            self._watermark = watermark
        released = []
        while self._heap and self._heap[0][0] < watermark:
            released.append(heapq.heappop(self._heap)[2])
        return released

    def drain(self) -> list[T]:
        """All that is held, oldest first: at the end of the data, when no watermark will come."""
        held = self.held()
        self._heap.clear()
        return held

    def held(self) -> list[T]:
        """All that is held, oldest first; it stays."""
        return [event for _, _, event in sorted(self._heap, key=lambda entry: entry[:2])]
