"""Blocking programs in a simulated world: the blocking client and code over it, as they are.

Blocking code runs in a thread of its own, but of all these threads and the simulation exactly one runs at any
time: a thread runs while its task waits for it, and where it would block, the task goes on in its place. So
what happens in which order follows from the seed alone, as if there were no threads.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar, copy_context
from math import inf
from queue import Empty
from typing import Any, Generic, Self, TypeVar
from unittest.mock import patch

import trio

from pravega_wire.errors import ClosedError
from pravega_wire.support.environment import environment
from pravega_wire.sync import bases
from pravega_wire.threads import portal

T = TypeVar("T")

_PATIENCE = 120.0
"""Real seconds after which a thread that neither ends nor blocks in the simulated world is a defect of it."""

_NURSERY: ContextVar[trio.Nursery] = ContextVar("nursery of the simulated process")
_thread = threading.local()
_urandom = os.urandom


class Killed(BaseException):
    """Raised wherever the thread of a process that was killed would block."""


class _Thread(Generic[T]):
    """Runs a function in a thread, and awaits for it what it waits for."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._context = copy_context()
        self._its_turn, self._our_turn = threading.Lock(), threading.Lock()
        self._its_turn.acquire()
        self._our_turn.acquire()
        self._wanted: Callable[[], Awaitable[Any]] | None = None
        self._got: Any = None
        self._raised: BaseException | None = None
        self._dead = False
        self._world = trio._core._run.GLOBAL_RUN_CONTEXT.runner

    async def run(self) -> T:
        """Run the function to its end; a cancellation kills it."""
        thread = threading.Thread(target=self._context.run, args=(self._main,), daemon=True)
        thread.start()
        cancelled: trio.Cancelled | None = None
        while (wanted := self._step()) is not None:
            self._got = self._raised = None
            try:
                self._got = await wanted()
            except trio.Cancelled as error:
                self._dead, cancelled = True, error
                self._raised = Killed()
            except BaseException as error:
                self._raised = error
        # What it has held is dropped before anything else goes on.
        thread.join()
        if cancelled is not None:
            raise cancelled
        if self._raised is not None:
            raise self._raised
        result: T = self._got
        return result

    def _step(self) -> Callable[[], Awaitable[Any]] | None:
        """Let the thread run until it waits for something; return that, or None if it has ended."""
        self._wanted = None
        self._its_turn.release()
        if not self._our_turn.acquire(timeout=_PATIENCE):
            raise RuntimeError("blocking code blocks outside of the simulated world")
        return self._wanted

    # --- in the thread

    def _main(self) -> None:
        self._its_turn.acquire()
        _thread.current = self
        # The world stands still meanwhile, so this thread may do what the simulation's own does.
        trio._core._run.GLOBAL_RUN_CONTEXT.runner = self._world
        try:
            self._got, self._raised = self._function(), None
        except BaseException as error:
            self._raised = error
        self._our_turn.release()

    @property
    def dead(self) -> bool:
        return self._dead

    def wait_for(self, work: Callable[[], Awaitable[Any]]) -> Any:
        if self._dead:
            raise Killed
        self._wanted = work
        self._our_turn.release()
        self._its_turn.acquire()
        if self._raised is not None:
            raise self._raised
        return self._got


def wait_for(work: Callable[..., Awaitable[T]], *args: Any) -> T:
    """Await something; in blocking code.

    :raises Killed: the process was killed.
    """
    current: _Thread[Any] = _thread.current
    result: T = current.wait_for(lambda: work(*args))
    return result


async def in_thread(function: Callable[..., T], *args: Any) -> T:
    """Run blocking code of this process beside what it runs already."""
    return await _Thread(lambda: function(*args)).run()


def start(work: Callable[..., Awaitable[object]], *args: Any) -> None:
    """Start a task of this process; in blocking code."""
    _NURSERY.get().start_soon(work, *args)


async def run_blocking(function: Callable[..., T], *args: Any) -> T:
    """Run blocking code as the main thread of a process; what it has started ends with it."""
    async with trio.open_nursery() as nursery:
        _NURSERY.set(nursery)
        result = await in_thread(function, *args)
        nursery.cancel_scope.cancel()
    return result


# --- in place of what blocking programs wait with --------------------------------


class _Queue(Generic[T]):
    """In place of :class:`queue.SimpleQueue`."""

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._news = trio.Event()

    def put(self, item: T) -> None:
        self._items.append(item)
        self._news.set()

    def get(self, timeout: float = inf) -> T:
        until = environment().monotonic() + timeout
        while not self._items:
            self._news = trio.Event()
            if environment().monotonic() >= until:
                raise Empty
            wait_for(self._wait, until)
        return self._items.popleft()

    async def _wait(self, until: float) -> None:
        with trio.CancelScope(deadline=until):
            await self._news.wait()

    def get_nowait(self) -> T:
        return self._items.popleft()

    def empty(self) -> bool:
        return not self._items


class _Portal(portal.Portal):
    """A portal whose loop is the simulated world's."""

    def __init__(self, name: str, *, launch: bool = True) -> None:
        self._jobs: deque[Callable[[], Any]] = deque()
        self._news = trio.Event()
        self._ended = trio.Event()
        self._running = False
        super().__init__(name, launch=launch)

    def launch(self) -> None:
        self._running = True
        start(self._serve)
        self._started.wait()

    async def _serve(self) -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._do_jobs)
                await self._main()
                nursery.cancel_scope.cancel()
        finally:
            self._running = False
            self._ended.set()

    async def _do_jobs(self) -> None:
        while True:
            await self._news.wait()
            self._news = trio.Event()
            while self._jobs:
                self._jobs.popleft()()

    @property
    def alive(self) -> bool:
        return self._running

    def soon(self, function: Callable[[], Any]) -> None:
        current: _Thread[Any] | None = getattr(_thread, "current", None)
        if current is not None and current.dead:
            raise Killed
        if not self._running:
            raise ClosedError("the client is closed")
        self._jobs.append(function)
        self._news.set()

    def close(self) -> None:
        self.abandon()
        if self._running:
            wait_for(self._ended.wait)


class _Future(Generic[T]):
    def __init__(self) -> None:
        self._outcomes: _Queue[Callable[[], T]] = _Queue()

    async def follow(self, function: Callable[[], T]) -> None:
        try:
            result = await in_thread(function)
        except Exception as error:
            failure = error

            def fail() -> T:
                raise failure

            self._outcomes.put(fail)
        else:
            self._outcomes.put(lambda: result)

    def result(self) -> T:
        outcome = self._outcomes.get()
        self._outcomes.put(outcome)
        return outcome()


class Pool:
    """In place of :class:`concurrent.futures.ThreadPoolExecutor`."""

    def __init__(self, workers: int, name: str) -> None:
        self._futures: list[_Future[Any]] = []

    def submit(self, function: Callable[[], T]) -> _Future[T]:
        future: _Future[T] = _Future()
        self._futures.append(future)
        start(future.follow, function)
        return future

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for each in self._futures:
            try:
                each.result()
            except Exception:
                pass  # whoever wants the result gets it


class _Event:
    def __init__(self) -> None:
        self._event = trio.Event()

    def set(self) -> None:
        self._event.set()

    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, timeout: float = inf) -> bool:
        wait_for(self._wait, timeout)
        return self.is_set()

    async def _wait(self, timeout: float) -> None:
        with trio.move_on_after(timeout):
            await self._event.wait()


class _Started:
    def __init__(self, *, target: Callable[[], object], name: str, daemon: bool) -> None:
        self._target = target

    def start(self) -> None:
        start(in_thread, self._target)


class Threads:
    """In place of the module :mod:`threading`. The threads are daemons."""

    Event = _Event
    Thread = _Started


class Time:
    """In place of the module :mod:`time`."""

    @staticmethod
    def monotonic() -> float:
        return environment().monotonic()

    @staticmethod
    def time_ns() -> int:
        return int(environment().wall() * 1e9)

    @staticmethod
    def sleep(seconds: float) -> None:
        wait_for(trio.sleep, seconds)


def _random_bytes(size: int) -> bytes:
    """What :func:`uuid.uuid4` makes ids of."""
    if getattr(_thread, "current", None) is None:
        return _urandom(size)
    return environment().new_id().bytes[:size]


@contextmanager
def patched(*places: tuple[object, str, object]) -> Iterator[None]:
    """Put something else in places: an object, the name of its attribute, and what it is meanwhile."""
    with ExitStack() as stack:
        for where, name, new in places:
            stack.enter_context(patch.object(where, name, new))
        yield


@contextmanager
def blocking_world() -> Iterator[None]:
    """Surrounds what uses :func:`run_blocking`."""
    with patched(
        (bases, "Portal", _Portal),
        (portal, "SimpleQueue", _Queue),
        # Here no signal has to be noticed.
        (portal, "_POLL_SECONDS", inf),
        (os, "urandom", _random_bytes),
    ):
        yield
