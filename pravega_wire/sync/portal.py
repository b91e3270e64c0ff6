"""One thread that runs trio, and calls into it from others."""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, ParamSpec, TypeVar

import trio

from pravega_wire.errors import ClosedError, InvalidArgumentError, PravegaError
from pravega_wire.stream.batch import without_cancelled

__all__ = ["Held", "Portal"]

P = ParamSpec("P")
R = TypeVar("R")


class _BrokenOff(Exception):
    """Tells a context manager that its block has failed."""


def _for_threads(raised: BaseException, closed: str) -> BaseException:
    """What a thread is told: a cancellation, alone or in groups, is known in the trio loop only."""
    error = without_cancelled(raised)
    return ClosedError(closed) if error is None else error


class Held(Generic[R]):
    """A context manager that is entered in a task of the portal, until :meth:`leave`.

    :ivar value: what entering it gave.
    """

    value: R

    def __init__(self, portal: Portal, manager: AbstractAsyncContextManager[R]) -> None:
        self._portal = portal
        self._manager = manager
        self._entered: Future[R] = Future()
        self._left: Future[None] = Future()
        self._leave = trio.Event()
        self._failed = False
        self._scope = trio.CancelScope()

    async def run(self) -> None:
        """The task."""
        try:
            with self._scope:
                async with self._manager as value:
                    self._entered.set_result(value)
                    await self._leave.wait()
                    if self._failed:
                        raise _BrokenOff
            self._end(ClosedError("this was broken off"), None)
        except _BrokenOff as error:
            self._end(error, None)
        except BaseException as raised:
            told = _for_threads(raised, "the client was closed while this was open")
            self._end(told, told)
            if without_cancelled(raised) is None:
                raise

    def _end(self, entering: BaseException, leaving: BaseException | None) -> None:
        self._portal.forget(self)
        if not self._entered.done():
            self._entered.set_exception(entering)
        if leaving is None:
            self._left.set_result(None)
        else:
            self._left.set_exception(leaving)

    def wait_entered(self) -> None:
        """Wait until it is entered."""
        try:
            self.value = self._entered.result()
        except KeyboardInterrupt:
            self.break_off()
            raise

    def leave(self, *, failed: bool = False) -> None:
        """Leave it, and wait until that is done.

        :param failed: whether the block was left by an exception, which goes on whatever comes of this.
        """
        self._portal.check()
        self._failed = failed
        try:
            self._portal.soon(self._leave.set)
            self._left.result()
        except KeyboardInterrupt:
            self.break_off()
            raise
        except PravegaError:
            if not failed:
                raise

    def break_off(self) -> None:
        """Cancel it, whether it is entered or not, and wait until that is done."""
        try:
            self._portal.check()
            self._portal.soon(self._scope.cancel)
            self._left.result()
        except PravegaError:
            pass


class Portal:
    """Runs a trio loop in a thread of its own.

    :meth:`call` may be used from any number of other threads. A process that was forked from this
    one cannot use the portal: its thread is not there.
    """

    def __init__(self, name: str) -> None:
        self._pid = os.getpid()
        self._started: Future[trio.lowlevel.TrioToken] = Future()
        self._nursery: trio.Nursery | None = None
        self._stop: trio.Event | None = None
        self._held: list[Held[Any]] = []
        self._calls: set[trio.CancelScope] = set()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self._token = self._started.result()

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as error:
            if not self._started.done():
                self._started.set_exception(error)
            raise

    async def _main(self) -> None:
        self._stop = trio.Event()
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._started.set_result(trio.lowlevel.current_trio_token())
            await self._stop.wait()
            nursery.cancel_scope.cancel()

    def check(self) -> None:
        """Refuse a call from a thread or process that must not make it."""
        if os.getpid() != self._pid:
            raise ClosedError("this client belongs to the process it was made in, not to a fork")
        if threading.current_thread() is self._thread:
            raise InvalidArgumentError("the blocking client was called from its own trio thread")

    def call(self, function: Callable[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run an async function in the trio thread and wait for its result.

        Ctrl-C in the waiting thread cancels the call, waits for it to end, and goes on up.

        :raises ClosedError: the portal is closed or about to be, or belongs to the parent of this process.
        """
        self.check()
        future: Future[R] = Future()
        scope = trio.CancelScope()

        async def task() -> None:
            try:
                with scope:
                    result = await function(*args, **kwargs)
                    future.set_result(result)
                if not future.done():
                    why = "the client was closed during it" if self._closing else "it was cancelled"
                    future.set_exception(ClosedError(f"the call did not end: {why}"))
            except BaseException as raised:
                told = _for_threads(raised, "the client was closed during the call")
                future.set_exception(told)
                if without_cancelled(raised) is None:
                    raise
            finally:
                self._calls.discard(scope)

        def start() -> None:
            assert self._nursery is not None
            if self._closing or self._stop is None or self._stop.is_set():
                future.set_exception(ClosedError("the client is closed"))
                return
            self._calls.add(scope)
            self._nursery.start_soon(task)

        self.soon(start)
        try:
            return future.result()
        except KeyboardInterrupt:
            self.soon(scope.cancel)
            try:
                future.result()
            except ClosedError:
                pass
            raise

    def forget(self, held: Held[Any]) -> None:
        """Something is not entered any more; called in the portal's thread."""
        self._held.remove(held)

    def start_soon(self, function: Callable[[], Awaitable[Any]]) -> None:
        """Start a task that lives as long as the portal; called in the portal's thread."""
        assert self._nursery is not None
        self._nursery.start_soon(function)

    def soon(self, function: Callable[[], Any]) -> None:
        """Run a function in the portal's thread; does not wait for it."""
        try:
            self._token.run_sync_soon(function)
        except trio.RunFinishedError as error:
            raise ClosedError("the client is closed") from error

    def enter(self, manager: AbstractAsyncContextManager[R]) -> Held[R]:
        """Enter a context manager in a task of its own.

        Both ends run in that one task, as nurseries demand. Ctrl-C meanwhile leaves it again.

        :raises ClosedError: as :meth:`call`.
        """
        held = Held(self, manager)

        async def begin() -> None:
            assert self._nursery is not None
            if self._closing:
                raise ClosedError("the client is closed")
            self._held.append(held)
            self._nursery.start_soon(held.run)
            await trio.lowlevel.checkpoint()

        self.call(begin)
        held.wait_entered()
        return held

    def break_off(self, *, but: Held[Any]) -> None:
        """Leave what is still entered, as by an exception, the last one first.

        Nothing is called or entered any more, and calls of other threads that are under way end with
        :class:`ClosedError`: what they are about goes away.

        :param but: this stays.
        """

        async def begin() -> None:
            # In the portal's thread: what another thread enters is held by now, or is refused.
            self._closing = True
            for scope in self._calls:
                scope.cancel()
            # This call is one of them; others get on to where they are cancelled.
            with trio.CancelScope(shield=True):
                await trio.lowlevel.checkpoint()

        self.call(begin)
        failure: Exception | None = None
        for held in reversed(list(self._held)):
            if held is not but:
                try:
                    held.break_off()
                except Exception as error:
                    # The others are left all the same.
                    failure = failure or error
        if failure is not None:
            raise failure

    def close(self) -> None:
        """End the thread; calls under way fail with :class:`ClosedError`."""
        if os.getpid() != self._pid or self._stop is None:
            return
        try:
            self._token.run_sync_soon(self._stop.set)
        except trio.RunFinishedError:
            return
        self._thread.join()
