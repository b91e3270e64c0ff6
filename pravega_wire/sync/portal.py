"""One thread that runs trio, and calls into it from others."""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from typing import Any, ParamSpec, TypeVar

import trio

from pravega_wire.errors import ClosedError, InvalidArgumentError

__all__ = ["Portal"]

P = ParamSpec("P")
R = TypeVar("R")


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

    def _check(self) -> None:
        if os.getpid() != self._pid:
            raise ClosedError("this client belongs to the process it was made in, not to a fork")
        if threading.current_thread() is self._thread:
            raise InvalidArgumentError("the blocking client was called from its own trio thread")

    def call(self, function: Callable[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run an async function in the trio thread and wait for its result.

        Ctrl-C in the waiting thread cancels the call, waits for it to end, and goes on up.

        :raises ClosedError: the portal is closed, or belongs to the parent of this process.
        """
        self._check()
        future: Future[R] = Future()
        scope = trio.CancelScope()

        async def task() -> None:
            try:
                with scope:
                    result = await function(*args, **kwargs)
                    future.set_result(result)
                if not future.done():
                    future.set_exception(ClosedError("the call was cancelled"))
            except trio.Cancelled:
                future.set_exception(ClosedError("the client was closed during the call"))
                raise
            except BaseException as error:
                future.set_exception(error)

        def start() -> None:
            assert self._nursery is not None
            if self._stop is None or self._stop.is_set():
                future.set_exception(ClosedError("the client is closed"))
                return
            self._nursery.start_soon(task)

        self._soon(start)
        try:
            return future.result()
        except KeyboardInterrupt:
            self._soon(scope.cancel)
            try:
                future.result()
            except ClosedError:
                pass
            raise

    def start_soon(self, function: Callable[[], Awaitable[Any]]) -> None:
        """Start a task that lives as long as the portal; called in the portal's thread."""
        assert self._nursery is not None
        self._nursery.start_soon(function)

    def _soon(self, function: Callable[[], Any]) -> None:
        try:
            self._token.run_sync_soon(function)
        except trio.RunFinishedError as error:
            raise ClosedError("the client is closed") from error

    def enter(self, manager: AbstractAsyncContextManager[R]) -> tuple[R, Callable[[], None]]:
        """Enter a context manager in a task of its own; returns its value and a function to leave.

        Both ends run in that one task, as nurseries demand.
        """
        entered: Future[R] = Future()
        left: Future[None] = Future()
        leave = trio.Event()

        async def hold() -> None:
            try:
                async with manager as value:
                    entered.set_result(value)
                    await leave.wait()
                left.set_result(None)
            except BaseException as error:
                for future in (entered, left):
                    if not future.done():
                        future.set_exception(error)
                if isinstance(error, trio.Cancelled):
                    raise

        async def begin() -> None:
            assert self._nursery is not None
            self._nursery.start_soon(hold)
            await trio.lowlevel.checkpoint()

        self.call(begin)
        value = entered.result()

        def close() -> None:
            self._check()
            self._soon(leave.set)
            left.result()

        return value, close

    def close(self) -> None:
        """End the thread; calls under way fail with :class:`ClosedError`."""
        if os.getpid() != self._pid or self._stop is None:
            return
        try:
            self._token.run_sync_soon(self._stop.set)
        except trio.RunFinishedError:
            return
        self._thread.join()
