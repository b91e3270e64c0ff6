"""Time that jumps, tasks that run in an order drawn from a seed, and a record of what happened."""

from __future__ import annotations

import gc
import random
import sys
import threading
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from heapq import heappop, heappush
from itertools import count
from typing import TextIO
from unittest.mock import patch

import trio
import trio.testing

_START = 1_790_000_000.0
_MOST_ROUNDS = 20_000


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


class Events:
    """What will happen at which time; all that happens outside of the client's tasks.

    :param trace: gets what happens.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._order = count()
        self._wake = trio.Event()

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return trio.current_time()

    def wall(self) -> float:
        """Seconds since 1970."""
        return _START + trio.current_time()

    def note(self, text: str) -> None:
        self._trace.add(trio.current_time(), text)

    def at(self, time: float, job: Callable[[], object]) -> None:
        """Do something at a time."""
        heappush(self._due, (time, next(self._order), job))
        if self._due[0][0] == time:
            self._wake.set()

    def after(self, seconds: float, job: Callable[[], object]) -> None:
        """Do something after some seconds."""
        self.at(trio.current_time() + seconds, job)

    async def run(self) -> None:
        """Let things happen, for ever."""
        due = self._due
        while True:
            self._wake = trio.Event()
            with trio.CancelScope(deadline=due[0][0] if due else float("inf")):
                await self._wake.wait()
            now = trio.current_time()
            while due and due[0][0] <= now:
                heappop(due)[2]()


class _Watch(trio.abc.Instrument):
    """Ends a run in which time does not go on."""

    def __init__(self, scope: trio.CancelScope) -> None:
        self._scope = scope
        self._time = -1.0
        self._rounds = 0

    def before_io_wait(self, timeout: float) -> None:
        now = trio.current_time()
        if now != self._time:
            self._time, self._rounds = now, 0
        self._rounds += 1
        if self._rounds > _MOST_ROUNDS:
            self._scope.cancel()


class Interruptions(trio.abc.Instrument):
    """Cancels calls at the n-th time that their task goes on."""

    def __init__(self) -> None:
        self._left: dict[trio.lowlevel.Task, tuple[list[int], trio.CancelScope]] = {}

    async def call(self, steps: int, work: Callable[[], Awaitable[None]]) -> bool:
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

    def __getattr__(self, name: str) -> object:
        here = threading.get_ident() == self._thread
        return getattr(self._seeded if here else self._others, name)


def run(seed: str, main: Callable[[Interruptions], Awaitable[None]]) -> None:
    """Run ``main`` in an order of tasks that is drawn from the seed.

    :raises BaseException: what ``main`` raised, without groups if it is alone.
    """
    runner = trio._core._run
    interruptions = Interruptions()
    clock = trio.testing.MockClock(autojump_threshold=0)

    async def watched() -> None:
        with trio.CancelScope() as scope:
            trio.lowlevel.add_instrument(_Watch(scope))
            trio.lowlevel.add_instrument(interruptions)
            await main(interruptions)
        if scope.cancelled_caught:
            now = trio.current_time()
            raise Failure(f"time does not go on at {now:.6f}: tasks wake each other without end")

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
            trio.run(watched, clock=clock)
    finally:
        gc.enable()
        sys.set_asyncgen_hooks(*hooks)
