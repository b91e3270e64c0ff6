"""Time that jumps, tasks that run in an order drawn from a seed, and a record of what happened."""

from __future__ import annotations

import gc
import random
import sys
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from hashlib import blake2b
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import TextIO
from unittest.mock import patch

import trio

_START = 1_790_000_000.0
_MOST_STEPS = 200_000


class Failure(Exception):
    """A run has shown that something is wrong."""


class Trace:
    """What happened, as a hash and, if wanted, as text.

    :param out: where to print each line, or None.
    """

    def __init__(self, out: TextIO | None = None) -> None:
        self._hash = blake2b(digest_size=8)
        self._out = out
        self.lines = 0

    def add(self, time: float, text: str) -> None:
        line = f"{time:.6f} {text}\n"
        self._hash.update(line.encode())
        self.lines += 1
        if self._out is not None:
            self._out.write(line)

    def digest(self) -> str:
        return self._hash.hexdigest()


class Events(trio.abc.Clock):
    """What will happen at which time outside of the client's tasks, and the clock, which jumps to it.

    :param trace: gets what happens.
    :ivar now: seconds since the beginning.
    :ivar steps: steps of tasks since time went on.
    """

    def __init__(self, trace: Trace) -> None:
        self.now = 0.0
        self.steps = 0
        self._trace = trace
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._order = count()
        self._scope = trio.CancelScope()
        self._failure: Exception | None = None

    def wall(self) -> float:
        """Seconds since 1970."""
        return _START + self.now

    def note(self, text: str) -> None:
        self._trace.add(self.now, text)

    def at(self, time: float, job: Callable[[], object]) -> None:
        """Do something at a time."""
        heappush(self._due, (time, next(self._order), job))

    def after(self, seconds: float, job: Callable[[], object]) -> None:
        """Do something after some seconds."""
        self.at(self.now + seconds, job)

    async def watch(self, main: Callable[[], Awaitable[None]]) -> None:
        """Run ``main`` as long as time goes on.

        :raises Failure: time does not go on.
        :raises Exception: what a job raised.
        """
        with self._scope:
            await main()
        if self._failure is not None:
            raise self._failure
        if self._scope.cancelled_caught:
            raise Failure(f"time does not go on at {self.now:.6f}: tasks wake each other without end")

    def stepped(self) -> None:
        """A task goes on."""
        self.steps += 1
        if self.steps > _MOST_STEPS:
            self._scope.cancel()

    # --- what trio calls

    def start_clock(self) -> None:
        pass

    def current_time(self) -> float:
        return self.now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Let the next thing happen, instead of sleeping: trio calls this when no task can go on."""
        due = self._due
        following = min(deadline, due[0][0]) if due else deadline
        if self.now < following < inf:
            self.now, self.steps = following, 0
        try:
            while due and due[0][0] <= self.now:
                heappop(due)[2]()
        except Exception as error:
            self._failure = error
            self._scope.cancel()
        # Of a run in which nothing is left to happen this makes one that is seen to stand still.
        self.stepped()
        return 0.0


class Interruptions(trio.abc.Instrument):
    """Cancels calls at the n-th time that their task goes on.

    :param events: gets told of each step.
    """

    def __init__(self, events: Events) -> None:
        self._stepped = events.stepped
        self._left: dict[trio.lowlevel.Task, tuple[list[int], trio.CancelScope]] = {}

    async def call(self, steps: int, work: Callable[[], Awaitable[object]]) -> bool:
        """Make a call that is cancelled after some steps; return whether it came to its end."""
        task = trio.lowlevel.current_task()
        with trio.CancelScope() as scope:
            self._left[task] = [steps], scope
            try:
                await work()
            finally:
                del self._left[task]
        return not scope.cancelled_caught

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._stepped()
        found = self._left.get(task)
        if found is not None:
            found[0][0] -= 1
            if found[0][0] == 0:
                found[1].cancel()


class _OfThisThread:
    """The seed's randomness for the thread that made it; the loops of other threads draw from their own."""

    def __init__(self, seed: str) -> None:
        self._thread = threading.get_ident()
        self._seeded = random.Random(seed)
        self._others = random.Random()

    def shuffle(self, batch: list[trio.lowlevel.Task]) -> None:
        if len(batch) > 1:
            here = threading.get_ident() == self._thread
            (self._seeded if here else self._others).shuffle(batch)


def run(seed: str, events: Events, main: Callable[[Interruptions], Awaitable[None]]) -> None:
    """Run ``main`` in an order of tasks that is drawn from the seed, with the events' time.

    :raises BaseException: what ``main`` raised, without groups if it is alone.
    """
    runner = trio._core._run
    interruptions = Interruptions(events)

    # What is collected when has to follow from the seed alone, too.
    gc.collect()
    gc.freeze()
    gc.disable()
    hooks = sys.get_asyncgen_hooks()
    try:
        with (
            patch.object(runner, "_ALLOW_DETERMINISTIC_SCHEDULING", True),
            patch.object(runner, "_r", _OfThisThread(seed)),
        ):
            trio.run(events.watch, partial(main, interruptions), clock=events, instruments=[interruptions])
    finally:
        gc.enable()
        sys.set_asyncgen_hooks(*hooks)
