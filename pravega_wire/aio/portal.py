"""Calls from an asyncio event loop into the client's trio thread."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from typing import Any, Final, Generic, ParamSpec, TypeVar
from weakref import WeakSet

import trio

from pravega_wire.errors import ClosedError, InvalidArgumentError, PravegaError
from pravega_wire.stream.user_functions import calling_thread
from pravega_wire.support.nurseries import without_cancelled
from pravega_wire.threads import portal as threads
from pravega_wire.threads.portal import Held, Opened, for_threads

__all__ = ["Call", "Line", "Portal", "Shared", "crossing", "uninterrupted"]

P = ParamSpec("P")
R = TypeVar("R")

_POLL_SECONDS: Final = 0.5
"""Nothing reports that an event loop was closed, so the client's thread checks at this interval."""

_CANCELLED: Final = object()
_MISSING: Final = object()


async def uninterrupted(work: Coroutine[Any, Any, R] | asyncio.Future[R]) -> R:
    """Await something to its end, even if this task is cancelled. The cancellation is raised at the end."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            cancelled = error
        except BaseException:
            # The task's own error. It is raised below.
            break
    if cancelled is None:
        return task.result()
    # Retrieved, or asyncio would warn about it. The cancellation is more important than this error.
    task.exception()
    raise cancelled


class Call(Generic[R]):
    """A call from an asyncio task, which waits for it. The event loop runs functions for it in the meantime.

    :ivar ended: whether there is a result.
    :ivar why: the error to raise if something other than the waiting task cancels the call.
    """

    __slots__ = (
        "__weakref__", "_context", "_error", "_joined", "_portal", "_result", "_waiter", "ended", "scope",
        "why",
    )  # fmt: skip

    def __init__(self, portal: Portal) -> None:
        self._portal = portal
        self._waiter: asyncio.Future[None] = portal.loop.create_future()
        self._joined: list[asyncio.Future[None]] = []
        self._context = contextvars.copy_context()
        self._result: Any = _MISSING
        self._error: BaseException | None = None
        self.scope = trio.CancelScope()
        self.why: PravegaError | None = None
        self.ended = False

    # --- in the portal's thread -----------------------------------------------------------------

    async def run(self, function: Callable[[], Any]) -> Any:
        """Run a function of the user in the event loop; see :class:`CallingThread`."""
        if self.ended:
            # This is a task that the call has started. No asyncio task waits for it.
            return function()
        done = trio.Event()
        result: list[Any] = []
        errors: list[BaseException] = []

        def serve() -> None:
            try:
                result.append(function())
            except Exception as error:
                errors.append(error)
            except BaseException:
                errors.append(ClosedError("a function that this call needs was interrupted"))
                raise
            finally:
                with suppress(ClosedError):
                    self._portal.thread.soon(done.set)

        self._portal.to_loop(serve, self._context)
        await done.wait()
        if errors:
            raise errors[0]
        return result[0]

    def is_within(self, other: object) -> bool:
        """See :class:`CallingThread`. A function that runs in an event loop cannot wait for another call."""
        return self is other

    def give(self, result: R | object) -> None:
        """End the call with a result."""
        self._result = result
        self._end()

    def fail(self, error: BaseException) -> None:
        """End the call with an error."""
        self._error = error
        self._end()

    def _end(self) -> None:
        self.ended = True
        with suppress(ClosedError):
            self._portal.to_loop(self.wake)

    def cancel(self, why: PravegaError) -> None:
        """Cancel the call. It ends with this error unless it has a result."""
        if self.why is None:
            self.why = why
        self.scope.cancel()

    # --- in the event loop ----------------------------------------------------------------------

    def wake(self) -> None:
        """Wake the tasks that wait for the call."""
        if not self._waiter.done():
            self._waiter.set_result(None)
        if self.ended:
            for waiter in self._joined:
                if waiter.done():
                    # Its task was cancelled.
                    continue
                if self._error is None:
                    waiter.set_result(None)
                else:
                    waiter.set_exception(self._error)
            self._joined.clear()

    def waiter(self) -> asyncio.Future[None]:
        """A future that is done at the next :meth:`wake`, at the latest at the end of the call.

        If the call has already ended, it may never be done.
        """
        self._waiter = self._portal.loop.create_future()
        return self._waiter

    def joined(self) -> asyncio.Future[None]:
        """A future that is done when the call has ended, for one of several tasks that wait for it.

        Cancelling it has no effect on the call. The call must not have ended before.
        """
        waiter: asyncio.Future[None] = self._portal.loop.create_future()
        self._joined.append(waiter)
        return waiter

    @property
    def succeeded(self) -> bool:
        """Whether the call has ended with a result."""
        return self.ended and self._error is None

    async def wait(self) -> None:
        """Wait until the call has ended. Cancelling this cancels the call, and waits until it has ended."""
        try:
            await self._waiter
            return
        except asyncio.CancelledError as error:
            cancelled = error
        with suppress(ClosedError):
            self._portal.thread.soon(self.scope.cancel)
        while True:
            waiter = self.waiter()
            # Checked after creating the waiter, because the end of the call sets the current one.
            if self.ended or not self._portal.thread.alive:
                break
            try:
                await waiter
            except asyncio.CancelledError as error:
                cancelled = error
        raise cancelled

    def result(self) -> R:
        """Return the result of the call, or raise its error."""
        if self._error is not None:
            try:
                raise self._error
            finally:
                # Otherwise the error and this frame would keep each other alive.
                self._error = None
        result: R = self._result
        return result

    def undelivered(self) -> Any:
        """The result of a call whose task was cancelled; ``_MISSING`` if it has none."""
        return _MISSING if self._result is _CANCELLED else self._result


async def _watch_loop(loop: asyncio.AbstractEventLoop, thread: threads.Portal) -> None:
    """End the client if its event loop was closed before it; in the portal's thread."""
    while not loop.is_closed():  # noqa: ASYNC110  # a loop has no event for this
        await trio.sleep(_POLL_SECONDS)
    thread.stop()


class Portal:
    """The thread of a client that belongs to an event loop.

    The thread ends when nobody refers to this object any more.

    :ivar thread: the portal that other threads use.
    :ivar loop: the event loop.
    :ivar opened: says that the client was not closed.
    """

    def __init__(self) -> None:
        try:
            self.loop = asyncio.get_running_loop()
        except RuntimeError:
            raise InvalidArgumentError(
                "pravega_wire.aio.open_client was called outside asyncio: start the program with "
                "asyncio.run(). In a trio program use pravega_wire.open_client, in blocking code "
                "pravega_wire.sync.open_client"
            ) from None
        self._waiting: set[Call[Any]] = set()
        self._launched: WeakSet[Call[Any]] = WeakSet()
        self.thread = thread = threads.Portal("pravega client of an event loop", launch=False)
        self.opened: Opened[Any] = Opened(thread)
        try:
            thread.launch()
            watch = partial(_watch_loop, self.loop, thread)
            thread.soon(lambda: thread.start_soon(watch))
        except BaseException:
            thread.close()
            raise

    def to_loop(self, function: Callable[[], None], context: contextvars.Context | None = None) -> None:
        """Run a function in the event loop, without waiting for it.

        :raises ClosedError: the loop is closed.
        """
        try:
            self.loop.call_soon_threadsafe(function, context=context)
        except RuntimeError as error:
            if not self.loop.is_closed():
                raise
            raise ClosedError("the event loop of the client is closed") from error

    def here(self) -> bool:
        """Whether the calling code runs in the client's event loop."""
        return asyncio._get_running_loop() is self.loop

    def check(self) -> None:
        """Check that the calling process and event loop may use the client.

        :raises ClosedError: this process is a fork of the client's process.
        :raises InvalidArgumentError: this is another event loop, or none is running.
        """
        self.thread.check()
        if not self.here():
            raise InvalidArgumentError(
                "the client belongs to another event loop: open another one in this loop"
                if asyncio._get_running_loop()
                else "the client belongs to an event loop, and none is running here"
            )

    def check_open(self) -> None:
        """:meth:`check`, and check that the client is open.

        :raises ClosedError: the client is closed or closing.
        """
        self.check()
        if not self.thread.open:
            raise ClosedError("the client is closed")

    async def carry_out(
        self,
        line: Line | None,
        kept: list[Any] | None,
        function: Callable[..., Awaitable[R]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> R:
        """Run an async function in the client's thread.

        :param kept: gets a result that arrives although the waiting task was cancelled. Without it such a
            result is closed if possible.
        """
        self.check()
        call: Call[R] = Call(self)
        self._waiting.add(call)
        try:
            self._start(line, call, function, args, kwargs)
            await call.wait()
        except asyncio.CancelledError:
            found = call.undelivered()
            if found is not _MISSING:
                if kept is not None:
                    kept.append(found)
                else:
                    await self._drop(found)
            raise
        finally:
            self._waiting.discard(call)
        return call.result()

    def launch(self, line: Line, function: Callable[[], Awaitable[R]]) -> Call[R]:
        """Start an async function in the client's thread, without waiting for it.

        Closing the line's object or the client ends it.
        """
        self.check()
        call: Call[R] = Call(self)
        self._launched.add(call)
        self._start(line, call, function, (), {})
        return call

    def _start(
        self,
        line: Line | None,
        call: Call[R],
        function: Callable[..., Awaitable[R]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        calls = (self.thread.calls,) if line is None else (self.thread.calls, line.calls)

        async def task() -> None:
            calling_thread.set(call)
            try:
                with call.scope:
                    result: Any = await function(*args, **kwargs)
                    done()
                    call.give(result)
                if not call.ended:
                    done()
                    if call.why is not None:
                        call.fail(call.why)
                    else:
                        # Cancelled by its own task, which gets the cancellation from asyncio.
                        call.give(_CANCELLED)
            except BaseException as raised:
                done()
                call.fail(for_threads(raised, "the client was closed during the call"))
                if without_cancelled(raised) is None:
                    raise

        def done() -> None:
            # Before its task continues.
            for each in calls:
                each.discard(call)

        self.thread.soon(lambda: self.thread.start(call, calls, task))

    async def _drop(self, result: Any) -> None:
        """Close an object that was opened for a task that was then cancelled."""
        close = getattr(result, "aclose", None) or getattr(result, "close", None)
        if close is None or type(result).__module__.partition(".")[0] != "pravega_wire":
            return
        with suppress(PravegaError):
            await uninterrupted(self.carry_out(None, None, close, (), {}))

    async def call(self, function: Callable[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run an async function in the client's thread, and wait for its result.

        The user's functions that it needs (:func:`in_caller`) run in the event loop. If the task is
        cancelled, the function is cancelled, and has ended before this raises.

        :raises ClosedError: the client is closed or closing.
        """
        return await self.carry_out(None, None, function, args, kwargs)

    async def enter(self, manager: AbstractAsyncContextManager[R]) -> Held[R]:
        """Enter a context manager in a task of the client's thread."""
        held = Held(self.thread, manager)
        try:
            await self.call(self.thread.begin, held)
            held.value = await self._future(held.entered)
        except asyncio.CancelledError:
            if held.begun:
                await self.break_off(held)
            raise
        return held

    async def leave(self, held: Held[Any], *, failed: bool = False) -> None:
        """Leave a context manager. Cancelling this cancels the leaving and waits for its end.

        :param failed: whether the block was left by an exception, which propagates whatever happens here.
        """
        held.begin_leaving(failed=failed)
        try:
            await self._future(held.left)
        except asyncio.CancelledError:
            await self.break_off(held)
            raise
        except PravegaError:
            if not failed:
                raise

    async def break_off(self, held: Held[Any]) -> None:
        """Cancel a context manager, and wait until it has ended."""
        with suppress(ClosedError):
            held.cancel()
        with suppress(PravegaError):
            await uninterrupted(self._future(held.left))

    async def _future(self, future: Any) -> Any:
        inner = asyncio.wrap_future(future, loop=self.loop)
        # Retrieve the error: a cancelled task would not, and asyncio would warn about it.
        inner.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(inner)

    async def end(self, client: Held[Any]) -> None:
        """Leave all context managers that are still entered, then the client, and end the thread."""
        self.opened.forget()
        try:
            try:
                with suppress(ClosedError):
                    await self.call(self.thread.refuse_more)
                for held in reversed(self.thread.held):
                    if held is not client:
                        with suppress(Exception):
                            # Leave the others as well.
                            await self.break_off(held)
            finally:
                await self.leave(client)
        finally:
            await self.stop()

    async def stop(self) -> None:
        """End the thread. It may need this loop to end calls, so another thread waits for it."""
        await self.loop.run_in_executor(None, self.thread.close)
        for call in [*self._waiting, *self._launched]:
            # The call was made too late to be started.
            if not call.ended:
                call.fail(ClosedError("the client is closed"))


class Line(threads.Line):
    """A portal as used by one object. Closing the object ends its calls in other tasks.

    :ivar crossing: the portal.
    """

    def __init__(self, portal: Portal | Line, about: object = None) -> None:
        self.crossing: Portal = portal.crossing if isinstance(portal, Line) else portal
        super().__init__(portal if isinstance(portal, Line) else portal.thread, about)

    @property
    def closed(self) -> bool:
        """Whether the client is closed, which has ended the object too."""
        return not self.crossing.thread.open

    async def run(self, function: Callable[..., Awaitable[R]], *args: Any, **kwargs: Any) -> R:
        """See :meth:`Portal.call`."""
        return await self.crossing.carry_out(self, None, function, args, kwargs)

    async def run_keeping(self, kept: list[Any], function: Callable[..., Awaitable[R]], *args: Any) -> R:
        """:meth:`run`, keeping the result for a cancelled task: the next such call returns it."""
        if kept:
            await asyncio.sleep(0)
            # It stays there if the task is cancelled meanwhile. Another task may have taken it.
            if kept:
                result: R = kept.pop()
                return result
        return await self.crossing.carry_out(self, kept, function, args, {})


class Shared:
    """Something to wait for in the client's thread. However many tasks wait for it, it is one call there.

    :param line: the line of the object. Closing the object ends waiting.
    :param wait: waits in the client's thread.
    """

    __slots__ = ("_call", "_line", "_wait")

    def __init__(self, line: Line, wait: Callable[[], Awaitable[None]]) -> None:
        self._line = line
        self._wait = wait
        self._call: Call[None] | None = None

    async def wait(self) -> None:
        """Wait for it. Cancelling this has no effect on other tasks that do."""
        self._line.crossing.check()
        call = self._call
        if call is None or call.ended:
            call = self._call = self._line.crossing.launch(self._line, self._wait)
        # If the call ends in this moment, the event loop hears of that only after this task waits.
        await call.joined()


async def crossing(line: Line, items: Any) -> AsyncGenerator[Any, None]:
    """Iterate over an async generator of the client's thread."""
    kept: list[Any] = []
    try:
        while True:
            try:
                item = await line.run_keeping(kept, items.__anext__)
            except StopAsyncIteration:
                return
            yield item
    finally:
        with suppress(ClosedError):
            # If the client was closed, the generator has ended.
            await uninterrupted(line.run(items.aclose))
