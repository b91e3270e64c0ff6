"""One thread that runs trio, and calls into it from others."""

from __future__ import annotations

import math
import os
import re
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, ParamSpec, Protocol, TypeVar

import trio

from pravega_wire.errors import ClosedError, InvalidArgumentError, PravegaError, PravegaTimeoutError
from pravega_wire.nurseries import without_cancelled
from pravega_wire.stream.callers import calling_thread
from pravega_wire.types import ScopedStream

__all__ = ["AnyCall", "Call", "Held", "Line", "Named", "Portal", "for_threads", "shown_as"]

P = ParamSpec("P")
R = TypeVar("R")

_POLL_SECONDS: Final = 0.5
# A signal that comes just before a thread begins to wait does not wake it: so it looks up now and then.

_GRACE_SECONDS: Final = 0.5
# What a cancelled call gets to end, before the thread leaves it behind.


_serving = threading.local()
"""The call that a thread runs a function for; none has no attribute ``call``, or None."""


class _BrokenOff(Exception):
    """Tells a context manager that its block has failed."""


def for_threads(raised: BaseException, closed: str) -> BaseException:
    """What a thread is told: a cancellation, alone or in groups, is known in the trio loop only."""
    error = without_cancelled(raised)
    return ClosedError(closed) if error is None else error


def shown_as(handle: object, twin: object) -> str:
    """The ``repr`` of an async twin, with the name of its handle's class."""
    return re.sub(r"^<\w+", f"<{type(handle).__name__}", repr(twin))


def _checked(timeout: float | None) -> float:
    """Seconds; infinity for no limit."""
    if timeout is None:
        return math.inf
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout >= 0:
        raise InvalidArgumentError(
            f"timeout must be a number of seconds, at least 0, or None; not {timeout!r}"
        )
    return timeout


def _timed_out(
    seconds: float, function: Callable[..., Any], args: tuple[Any, ...], line: Line | None
) -> PravegaTimeoutError:
    """The error for a call that took too long; it names what was called, and on what."""
    owner = getattr(function, "__self__", None)
    what = getattr(function, "__name__", "the call")
    if what == "aclose":
        # As the caller knows it.
        what = "close"
    name = what if owner is None else f"{type(owner).__name__.lstrip('_')}.{what}"
    about = None if line is None else line.about
    if about is None:
        about = next((each for each in args if isinstance(each, str | ScopedStream)), None)
    stream = about if isinstance(about, ScopedStream) else None
    return PravegaTimeoutError(
        f"{name} did not end within {seconds:g} s" + ("" if about is None else f" (of {about})"),
        scope=None if stream is None else stream.scope,
        stream=None if stream is None else stream.name,
        transaction=getattr(owner, "txn_id", None),
    )


class Request:
    """A function that a waiting thread is asked to run.

    :ivar done: set when it has run.
    """

    __slots__ = ("_error", "_result", "done", "function")

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.done = trio.Event()
        self._result: Any = None
        self._error: BaseException | None = None

    def serve(self, portal: Portal) -> None:
        """Run it; in the waiting thread. What is no :class:`Exception` ends the whole call."""
        try:
            self._result = self.function()
        except Exception as error:
            self._error = error
        portal.soon(self.done.set)

    def give_up(self, error: BaseException) -> None:
        """Nobody will run it; in the portal's thread."""
        if not self.done.is_set():
            self._error = error
            self.done.set()

    def result(self) -> Any:
        """What it gave, once it is done."""
        if self._error is not None:
            raise self._error
        return self._result


class Call(Generic[R]):
    """A call from a thread that waits for it and meanwhile runs functions for it.

    :ivar ended: whether there is a result.
    :ivar why: the error for a call that somebody else cancels.
    """

    __slots__ = (
        "_error", "_inbox", "_left", "_outer", "_portal", "_requests", "_result", "ended", "scope", "why",
    )  # fmt: skip

    def __init__(self, portal: Portal) -> None:
        self._portal = portal
        self._inbox: SimpleQueue[Request | None] = SimpleQueue()
        self._requests: set[Request] = set()
        self._result: R
        self._error: BaseException | None = None
        self.scope = trio.CancelScope()
        self.why: PravegaError | None = None
        self.ended = False
        self._left = False
        self._outer: Call[Any] | None = getattr(_serving, "call", None)

    # --- in the portal's thread -----------------------------------------------------------------

    def ask(self, function: Callable[[], Any]) -> Request:
        """Have the waiting thread run a function; wait for its ``done``."""
        request = Request(function)
        if self.ended or self._left:
            request.give_up(ClosedError("the call that this function belongs to has ended"))
        else:
            self._requests.add(request)
            self._inbox.put(request)
        return request

    def forget(self, request: Request) -> None:
        """It is done, or nobody waits for it."""
        self._requests.discard(request)

    async def run(self, function: Callable[[], Any]) -> Any:
        """See :class:`CallingThread`."""
        if self.ended:
            # A task that the call has started: no thread waits for it.
            return function()
        request = self.ask(function)
        try:
            await request.done.wait()
        finally:
            self.forget(request)
        return request.result()

    def is_within(self, other: object) -> bool:
        """See :class:`CallingThread`."""
        call: Call[Any] | None = self
        while call is not None and call is not other:
            call = call._outer
        return call is not None

    def give(self, result: R) -> None:
        """End it with a result."""
        self._result = result
        self._end()

    def fail(self, error: BaseException) -> None:
        """End it with an error."""
        self._error = error
        self._end()

    def _end(self) -> None:
        self.ended = True
        self._inbox.put(None)

    def cancel(self, why: PravegaError) -> None:
        """Cancel it; it ends with this error unless it has another result."""
        if self.why is None:
            self.why = why
        self.scope.cancel()

    def abandon(self) -> None:
        """Cancel it; its thread does not wait for it any longer, nor run anything for it."""
        why = ClosedError("the thread that made this call was interrupted")
        self.cancel(why)
        self._left = True
        for request in list(self._requests):
            request.give_up(why)

    # --- in the waiting thread ------------------------------------------------------------------

    def wait(self, start: Callable[[], None], patience: float) -> bool:
        """Start it, wait until it has ended, and run what it asks for.

        :param patience: seconds, after which it is left behind.
        :returns: False when it was.
        """
        try:
            self._portal.soon(start)
            until = time.monotonic() + patience
            while (left := until - time.monotonic()) > 0:
                try:
                    request = self._inbox.get(timeout=min(_POLL_SECONDS, left))
                except Empty:
                    if not self._portal.alive:
                        raise ClosedError("the client's thread has ended") from None
                    continue
                if request is None:
                    return True
                _serving.call = self
                try:
                    request.serve(self._portal)
                finally:
                    _serving.call = self._outer
            # After a process was stopped, the time may be over although the result has come.
            while not self._inbox.empty():
                if self._inbox.get_nowait() is None:
                    return True
            self._portal.soon(self.abandon)
            return False
        except ClosedError:
            raise
        except BaseException:
            # Ctrl-C, here or in a function of the user.
            self._leave()
            raise

    def _leave(self) -> None:
        try:
            self._portal.soon(self.abandon)
        except ClosedError:
            return
        # Mostly it ends at once, and what it holds is free when the thread goes on.
        until = time.monotonic() + _GRACE_SECONDS
        while (left := until - time.monotonic()) > 0:
            try:
                if self._inbox.get(timeout=left) is None:
                    return
            except Empty:
                return

    def result(self) -> R:
        """What it has ended with."""
        if self._error is not None:
            try:
                raise self._error
            finally:
                # Or the error and this frame keep each other alive.
                self._error = None
        return self._result


class AnyCall(Protocol):
    """What a portal and its lines know of a call from another thread."""

    def cancel(self, why: PravegaError) -> None:
        """Cancel it; it ends with this error unless it has another result."""

    def fail(self, error: BaseException) -> None:
        """End it with an error."""


class Held(Generic[R]):
    """A context manager that is entered in a task of the portal, until :meth:`leave`.

    :ivar value: what entering it gave.
    :ivar begun: whether its task was started.
    :ivar entered: has what entering gave, or raised.
    :ivar left: is done when it was left, or could not be entered.
    """

    value: R

    def __init__(self, portal: Portal, manager: AbstractAsyncContextManager[R]) -> None:
        self._portal = portal
        self._manager = manager
        self.entered: Future[R] = Future()
        self.left: Future[None] = Future()
        self.begun = False
        self._leave = trio.Event()
        self._failed = False
        self._scope = trio.CancelScope()

    async def run(self) -> None:
        """The task."""
        calling_thread.set(None)
        try:
            with self._scope:
                async with self._manager as value:
                    self.entered.set_result(value)
                    await self._leave.wait()
                    if self._failed:
                        raise _BrokenOff
            self._end(ClosedError("cancelled because the client was closed"), None)
        except _BrokenOff as error:
            self._end(error, None)
        except BaseException as raised:
            told = for_threads(raised, "the client was closed while this was open")
            self._end(told, told)
            if without_cancelled(raised) is None:
                raise

    def _end(self, entering: BaseException, leaving: BaseException | None) -> None:
        self._portal.forget(self)
        if not self.entered.done():
            self.entered.set_exception(entering)
        if leaving is None:
            self.left.set_result(None)
        else:
            self.left.set_exception(leaving)

    def wait_entered(self) -> None:
        """Wait until it is entered."""
        self.value = _patiently(self.entered)

    def leave(self, *, failed: bool = False) -> None:
        """Leave it, and wait until that is done.

        :param failed: whether the block was left by an exception, which goes on whatever comes of this.
        """
        self.begin_leaving(failed=failed)
        try:
            _patiently(self.left)
        except KeyboardInterrupt:
            self.give_up()
            raise
        except PravegaError:
            if not failed:
                raise

    def begin_leaving(self, *, failed: bool = False) -> None:
        """Have it left; :attr:`left` is done when it was."""
        self._portal.check()
        self._failed = failed
        try:
            self._portal.soon(self._leave.set)
        except ClosedError:
            if not failed:
                raise

    def cancel(self) -> None:
        """Cancel it, whether it is entered or not; :attr:`left` is done when that has ended."""
        self._portal.soon(self._scope.cancel)

    def give_up(self) -> None:
        """Break it off because of an exception in this thread, which goes on whatever comes of this."""
        with suppress(Exception):
            self.break_off(patience=_GRACE_SECONDS)

    def break_off(self, *, patience: float = math.inf) -> None:
        """Cancel it, whether it is entered or not, and wait until that is done.

        :param patience: seconds to wait at most.
        """
        try:
            self._portal.check()
            self.cancel()
            _patiently(self.left, patience)
        except PravegaError:
            pass


def _patiently(future: Future[R], patience: float = math.inf) -> R:
    """A future's result, waited for so that a signal is noticed; ClosedError after ``patience`` seconds."""
    until = time.monotonic() + patience
    while True:
        left = until - time.monotonic()
        try:
            return future.result(min(_POLL_SECONDS, max(0.0, left)))
        except TimeoutError:
            if future.done():
                # Its own, or it has come just now.
                return future.result()
            if left <= 0:
                raise ClosedError("left behind after an interruption") from None


class Portal:
    """Runs a trio loop in a thread of its own.

    :meth:`call` may be used from any number of other threads. A process that was forked from this
    one cannot use the portal: its thread is not there.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._pid = os.getpid()
        self._started: Future[trio.lowlevel.TrioToken] = Future()
        self._nursery: trio.Nursery | None = None
        self._stop: trio.Event | None = None
        self._held: list[Held[Any]] = []
        self._calls: set[AnyCall] = set()
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

    @property
    def alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    def check(self) -> None:
        """Refuse a call from a thread or process that must not make it."""
        if os.getpid() != self._pid:
            raise ClosedError("this client belongs to the process it was made in, not to a fork")
        if threading.current_thread() is self._thread:
            raise InvalidArgumentError("the blocking client was called from its own trio thread")

    def call(self, function: Callable[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run an async function in the trio thread and wait for its result.

        Functions of the user that it comes across (:func:`in_caller`) run in this thread. Ctrl-C in this
        thread cancels the call, waits half a second at most for it to end, and goes on up.

        :raises ClosedError: the portal is closed or about to be, or belongs to the parent of this process.
        """
        return self.carry_out(None, None, function, *args, **kwargs)

    def carry_out(
        self,
        line: Line | None,
        timeout: float | None,
        function: Callable[P, Awaitable[R]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """As :meth:`call`, for one object and for a limited time. See :class:`Line`."""
        self.check()
        seconds = _checked(timeout)
        call: Call[R] = Call(self)
        calls = (self._calls,) if line is None else (self._calls, line.calls)

        async def task() -> None:
            calling_thread.set(call)
            try:
                with call.scope:
                    call.give(await function(*args, **kwargs))
                if not call.ended:
                    call.fail(call.why or _timed_out(seconds, function, args, line))
            except BaseException as raised:
                call.fail(for_threads(raised, "the client was closed during the call"))
                if without_cancelled(raised) is None:
                    raise
            finally:
                for each in calls:
                    each.discard(call)

        def start() -> None:
            call.scope.deadline = trio.current_time() + seconds
            self.start(call, calls, task)

        # What shields itself from being cancelled may take longer than the time it was given.
        if not call.wait(start, seconds + _GRACE_SECONDS):
            raise _timed_out(seconds, function, args, line)
        return call.result()

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
        try:
            self.call(self.begin, held)
            held.wait_entered()
        except ClosedError:
            # The thread that closes the client leaves what is entered.
            raise
        except BaseException:
            held.give_up()
            raise
        return held

    async def begin(self, held: Held[Any]) -> None:
        """Start the task of a context manager; in the portal's thread."""
        assert self._nursery is not None
        if self._closing:
            raise ClosedError("the client is closed")
        self._held.append(held)
        held.begun = True
        self._nursery.start_soon(held.run)
        await trio.lowlevel.checkpoint()

    def start(
        self, call: AnyCall, calls: Iterable[set[AnyCall]], task: Callable[[], Awaitable[None]]
    ) -> None:
        """Start the task of a call, unless the portal is about to close; in the portal's thread."""
        assert self._nursery is not None
        if self._closing or self._stop is None or self._stop.is_set():
            call.fail(ClosedError("the client is closed"))
            return
        for each in calls:
            each.add(call)
        self._nursery.start_soon(task)

    @property
    def open(self) -> bool:
        """Whether calls are taken still."""
        return not self._closing and self._stop is not None and not self._stop.is_set()

    @property
    def calls(self) -> set[AnyCall]:
        """The calls that have not ended; for the portal's thread."""
        return self._calls

    @property
    def held(self) -> list[Held[Any]]:
        """What is entered; the last one was entered last."""
        return list(self._held)

    async def refuse_more(self) -> None:
        """Nothing is called or entered from now on, and every call is cancelled; in the portal's thread."""
        # What another thread enters is held by now, or is refused.
        self._closing = True
        for call in self._calls:
            call.cancel(ClosedError("the call did not end: the client was closed during it"))
        # This call is one of them; others get on to where they are cancelled.
        with trio.CancelScope(shield=True):
            await trio.lowlevel.checkpoint()

    def break_off(self, *, but: Held[Any]) -> None:
        """Leave what is still entered, as by an exception, the last one first.

        Nothing is called or entered any more, and calls of other threads that have not ended do so with
        :class:`ClosedError`: what they are about goes away.

        :param but: this stays.
        """
        self.call(self.refuse_more)
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

    def stop(self) -> None:
        """End everything, and with it the thread; in the portal's thread."""
        assert self._stop is not None
        self._stop.set()

    def close(self) -> None:
        """End the thread; calls that have not ended fail with :class:`ClosedError`."""
        if os.getpid() != self._pid or self._stop is None:
            return
        try:
            self._token.run_sync_soon(self._stop.set)
        except trio.RunFinishedError:
            return
        self._thread.join()


class Line:
    """A portal as one object uses it: closing the object ends its calls in other threads.

    :ivar portal: where to.
    :ivar about: what the object is of, for messages.
    :ivar calls: those that have not ended; for the portal's thread.
    """

    def __init__(self, portal: Portal | Line, about: object = None) -> None:
        parent = portal if isinstance(portal, Line) else None
        self.portal: Portal = portal.portal if isinstance(portal, Line) else portal
        self.about: object = about if about is not None or parent is None else parent.about
        self.calls: set[AnyCall] = set()

    def call(self, function: Callable[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs) -> R:
        """As :meth:`Portal.call`."""
        return self.portal.carry_out(self, None, function, *args, **kwargs)

    def enter(self, manager: AbstractAsyncContextManager[R]) -> Held[R]:
        """As :meth:`Portal.enter`."""
        return self.portal.enter(manager)

    def within(
        self,
        timeout: float | None,
        function: Callable[P, Awaitable[R]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """As :meth:`call`, for ``timeout`` seconds at most; None for no limit.

        :raises PravegaTimeoutError: the time is over; what was called has been cancelled.
        """
        return self.portal.carry_out(self, timeout, function, *args, **kwargs)

    def close(
        self,
        timeout: float | None,
        function: Callable[P, Awaitable[None]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        """End the calls of other threads with :class:`ClosedError`, then call this."""
        # The name and the owner of what is called are for the error that says what has not ended.
        self.portal.carry_out(self, timeout, Named(function, self.closing), function, *args, **kwargs)

    def finish(
        self,
        timeout: float | None,
        function: Callable[P, Awaitable[None]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        """Call this, which lets the calls of other threads end; those that have not then are ended."""
        self.portal.carry_out(self, timeout, Named(function, self.finishing), function, *args, **kwargs)

    async def closing(self, function: Callable[..., Awaitable[None]], *args: Any, **kwargs: Any) -> None:
        """See :meth:`close`; in the portal's thread."""
        self._end_others()
        await trio.lowlevel.checkpoint()
        await function(*args, **kwargs)

    async def finishing(self, function: Callable[..., Awaitable[None]], *args: Any, **kwargs: Any) -> None:
        """See :meth:`finish`; in the portal's thread."""
        try:
            await function(*args, **kwargs)
        finally:
            self._end_others()

    def _end_others(self) -> None:
        mine: object = calling_thread.get()
        for call in self.calls:
            if call is not mine:
                call.cancel(ClosedError("the call did not end: what it was made on was closed during it"))


class Named(Generic[P, R]):
    """A function with the name and the owner of another one, for the error when it takes too long."""

    def __init__(self, like: Callable[..., Any], function: Callable[P, Awaitable[R]]) -> None:
        self.__self__ = getattr(like, "__self__", None)
        self.__name__ = getattr(like, "__name__", "close")
        self._function = function

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._function(*args, **kwargs)
