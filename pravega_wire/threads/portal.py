"""A thread that runs trio, and calls into it from other threads."""

from __future__ import annotations

import atexit
import math
import os
import re
import sys
import threading
import warnings
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, ParamSpec, Protocol, TypeVar
from weakref import finalize

import trio

from pravega_wire.errors import ClosedError, InvalidArgumentError, PravegaError, PravegaTimeoutError
from pravega_wire.stream.user_functions import calling_thread
from pravega_wire.support.checks import check_seconds
from pravega_wire.support.environment import environment
from pravega_wire.support.nurseries import without_cancelled
from pravega_wire.transport.limits import AFTER_CANCELLATION
from pravega_wire.values.types import ScopedStream

__all__ = ["AnyCall", "Call", "Held", "Line", "Named", "Opened", "Portal", "for_threads", "shown_as"]

P = ParamSpec("P")
R = TypeVar("R")

_POLL_SECONDS: Final = 0.5
"""A signal just before a thread starts to wait does not wake it, so it checks at this interval."""

_GRACE_SECONDS: Final = AFTER_CANCELLATION + 0.5
"""The time that a cancelled call has to end before its thread stops waiting for it."""


_serving = threading.local()
"""The call that a thread runs a function for, in the attribute ``call``; missing or None for no call."""


class _BrokenOff(Exception):
    """Makes a context manager see that its block has failed."""


def for_threads(raised: BaseException, closed: str) -> BaseException:
    """The error to raise in a thread. Cancellations, alone or in groups, exist only inside the trio loop."""
    error = without_cancelled(raised)
    return ClosedError(closed) if error is None else error


def shown_as(handle: object, twin: object) -> str:
    """The ``repr`` of an async object, with the class name of its handle."""
    return re.sub(r"^<\w+", f"<{type(handle).__name__}", repr(twin))


def _checked(timeout: float | None) -> float:
    """A time limit in seconds; infinity for no limit."""
    return math.inf if timeout is None else check_seconds("timeout", timeout, zero=True, infinite=True)


def _timed_out(
    seconds: float, function: Callable[..., Any], args: tuple[Any, ...], line: Line | None
) -> PravegaTimeoutError:
    """The error for a call that took too long. It has the name of the function and the object's name."""
    owner = getattr(function, "__self__", None)
    what = getattr(function, "__name__", "the call")
    if what == "aclose":
        # The name in the blocking client.
        what = "close"
    name = what if owner is None else f"{type(owner).__name__.lstrip('_')}.{what}"
    about = None if line is None else line.about
    if about is None:
        about = next((each for each in args if isinstance(each, str | ScopedStream)), None)
    stream = about if isinstance(about, ScopedStream) else None
    return PravegaTimeoutError(
        f"{name} did not finish within {seconds:g} s" + ("" if about is None else f" (of {about})"),
        scope=None if stream is None else stream.scope,
        stream=None if stream is None else stream.name,
        transaction=getattr(owner, "txn_id", None),
    )


class Request:
    """A function that a waiting thread should run.

    :ivar done: set after the function has run.
    """

    __slots__ = ("_error", "_result", "done", "function")

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.done = trio.Event()
        self._result: Any = None
        self._error: BaseException | None = None

    def serve(self, portal: Portal) -> None:
        """Run the function, in the waiting thread.

        An error that is not an :class:`Exception` ends the whole call.
        """
        try:
            self._result = self.function()
        except Exception as error:
            self._error = error
        portal.soon(self.done.set)

    def give_up(self, error: BaseException) -> None:
        """The function will not run; called in the portal's thread."""
        if not self.done.is_set():
            self._error = error
            self.done.set()

    def result(self) -> Any:
        """The function's result, once it is done."""
        if self._error is not None:
            raise self._error
        return self._result


class Call(Generic[R]):
    """A call from a thread. The thread waits for its end and runs functions for it in the meantime.

    :ivar ended: whether there is a result.
    :ivar why: the error to raise if something other than the calling thread cancels the call.
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
        """Make the waiting thread run a function. Wait for the ``done`` of the result."""
        request = Request(function)
        if self.ended or self._left:
            request.give_up(ClosedError("the call that needs this function has already ended"))
        else:
            self._requests.add(request)
            self._inbox.put(request)
        return request

    def forget(self, request: Request) -> None:
        """The request is done, or its result is no longer needed."""
        self._requests.discard(request)

    async def run(self, function: Callable[[], Any]) -> Any:
        """See :class:`CallingThread`."""
        if self.ended:
            # This is a task that the call has started. No thread waits for it.
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
        """End the call with a result."""
        self._result = result
        self._end()

    def fail(self, error: BaseException) -> None:
        """End the call with an error."""
        self._error = error
        self._end()

    def _end(self) -> None:
        self.ended = True
        self._inbox.put(None)

    def cancel(self, why: PravegaError) -> None:
        """Cancel the call. It ends with this error unless it has a result."""
        if self.why is None:
            self.why = why
        self.scope.cancel()

    def abandon(self) -> None:
        """Cancel the call. Its thread no longer waits for it and runs no more functions for it."""
        why = ClosedError("the thread that made this call was interrupted")
        self.cancel(why)
        self._left = True
        for request in list(self._requests):
            request.give_up(why)

    # --- in the waiting thread ------------------------------------------------------------------

    def wait(self, start: Callable[[], None], patience: float) -> bool:
        """Start the call, wait until it has ended, and run the functions it needs.

        :param patience: seconds after which to stop waiting.
        :returns: False if the call had not ended by then.
        """
        try:
            self._portal.soon(start)
            until = environment().monotonic() + patience
            while (left := until - environment().monotonic()) > 0:
                try:
                    request = self._inbox.get(timeout=min(_POLL_SECONDS, left))
                except Empty:
                    if not self._portal.alive:
                        raise ClosedError("the client's background thread has ended") from None
                    continue
                if request is None:
                    return True
                _serving.call = self
                try:
                    request.serve(self._portal)
                finally:
                    _serving.call = self._outer
            # If the process was stopped for a while, the time may be over although the result has arrived.
            while not self._inbox.empty():
                if self._inbox.get_nowait() is None:
                    return True
            self._portal.soon(self.abandon)
            return False
        except ClosedError:
            raise
        except BaseException:
            # Ctrl-C, here or in one of the user's functions.
            self._leave()
            raise

    def _leave(self) -> None:
        try:
            self._portal.soon(self.abandon)
        except ClosedError:
            return
        # The call usually ends at once. Then its resources are free when this thread continues. If it had
        # ended before, this thread may have been interrupted after it took the mark out of the inbox.
        until = environment().monotonic() + _GRACE_SECONDS
        while not self.ended and (left := until - environment().monotonic()) > 0:
            try:
                if self._inbox.get(timeout=left) is None:
                    return
            except Empty:
                return

    def result(self) -> R:
        """Return the result of the call, or raise its error."""
        if self._error is not None:
            try:
                raise self._error
            finally:
                # Otherwise the error and this frame would keep each other alive.
                self._error = None
        return self._result


class AnyCall(Protocol):
    """A call from another thread, as its portal and its line see it."""

    def cancel(self, why: PravegaError) -> None:
        """Cancel the call. It ends with this error unless it has a result."""

    def fail(self, error: BaseException) -> None:
        """End the call with an error."""


class _Outcome(Future[R]):
    """A future whose waiting thread may be interrupted at any moment by an exception from a signal handler.

    In :meth:`Future.result` such an exception may leave the future's lock taken, and the portal's thread
    would wait for it for ever. Here a thread waits for a queue, which is made in C, and takes no lock.
    """

    def __init__(self) -> None:
        super().__init__()
        self._news: SimpleQueue[None] = SimpleQueue()
        self._over = False
        self._error: BaseException | None = None
        self._value: R

    def set_result(self, result: R) -> None:
        """See :class:`Future`; in the portal's thread."""
        self._value = result
        super().set_result(result)
        self._over = True
        self._news.put(None)

    def set_exception(self, exception: BaseException | None) -> None:
        """See :class:`Future`; in the portal's thread."""
        self._error = exception
        super().set_exception(exception)
        self._over = True
        self._news.put(None)

    def wait(self, patience: float = math.inf) -> R:
        """Wait for the result, in a way that notices signals.

        :raises ClosedError: there is no result after ``patience`` seconds.
        """
        until = environment().monotonic() + patience
        while not self._over:
            left = until - environment().monotonic()
            if left <= 0:
                raise ClosedError("interrupted, and not finished in time")
            with suppress(Empty):
                self._news.get(timeout=min(_POLL_SECONDS, left))
        # For another thread that waits.
        self._news.put(None)
        if self._error is not None:
            raise self._error
        return self._value


class Held(Generic[R]):
    """A context manager that is entered in a task of the portal, until :meth:`leave`.

    :ivar value: the value from entering it.
    :ivar begun: whether its task was started.
    :ivar entered: holds the value or the error from entering it.
    :ivar left: done when it was left, or could not be entered.
    """

    value: R

    def __init__(self, portal: Portal, manager: AbstractAsyncContextManager[R]) -> None:
        self._portal = portal
        self._manager = manager
        self.entered: _Outcome[R] = _Outcome()
        self.left: _Outcome[None] = _Outcome()
        self.begun = False
        self._leave = trio.Event()
        self._failed = False
        self._scope = trio.CancelScope()

    async def run(self) -> None:
        """Enter, wait, leave: the body of the task."""
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
        if self.begun:
            self._portal.forget(self)
        if not self.entered.done():
            self.entered.set_exception(entering)
        if leaving is None:
            self.left.set_result(None)
        else:
            self.left.set_exception(leaving)

    def wait_entered(self) -> None:
        """Wait until it is entered."""
        self.value = self.entered.wait()

    def leave(self, *, failed: bool = False) -> None:
        """Leave it, and wait until it is left.

        :param failed: whether the block was left by an exception, which propagates whatever happens here.
        """
        if self._portal.gone:
            return
        self.begin_leaving(failed=failed)
        try:
            self.left.wait()
        except KeyboardInterrupt:
            self.give_up()
            raise
        except PravegaError:
            if not failed:
                raise

    def begin_leaving(self, *, failed: bool = False) -> None:
        """Start leaving it. :attr:`left` is done when it is left."""
        self._portal.check()
        self._failed = failed
        try:
            self._portal.soon(self._leave.set)
        except ClosedError:
            if not failed:
                raise

    def cancel(self) -> None:
        """Cancel it, whether it is entered or not. :attr:`left` is done when it has ended."""
        self._portal.soon(self._cancel)

    def _cancel(self) -> None:
        self._scope.cancel()
        if not self.begun and not self.left.done():
            # Nobody waits for what has not begun, and now will not begin.
            self._end(ClosedError("given up before it was entered"), None)

    def give_up(self) -> None:
        """Cancel it because of an exception in this thread, which propagates whatever happens here."""
        with suppress(Exception):
            self.break_off(patience=_GRACE_SECONDS)

    def break_off(self, *, patience: float = math.inf) -> None:
        """Cancel it, whether it is entered or not, and wait until it has ended.

        :param patience: the longest time to wait, in seconds.
        """
        try:
            self._portal.check()
            self.cancel()
            self.left.wait(patience)
        except PravegaError:
            pass


class Portal:
    """Runs a trio loop in a thread of its own.

    :meth:`call` may be used from any number of other threads. A forked process cannot use its parent's
    portal, because it does not have the portal's thread.

    :ivar calls: the calls that have not ended; for the portal's thread.
    """

    def __init__(self, name: str, *, launch: bool = True) -> None:
        self.name = name
        self._pid = os.getpid()
        self._started: _Outcome[None] = _Outcome()
        self._token: trio.lowlevel.TrioToken | None = None
        self._abandoned = False
        self._nursery: trio.Nursery | None = None
        self._stop: trio.Event | None = None
        self._held: list[Held[Any]] = []
        self.calls: set[AnyCall] = set()
        # Whether calls are still accepted. Looked at for each event, so it is no property.
        self.open = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        if launch:
            self.launch()

    def launch(self) -> None:
        """Start the thread. If this is interrupted, :meth:`close` and :meth:`abandon` end what has begun."""
        self._thread.start()
        self._started.wait()

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
            self.open = True
            self._token = trio.lowlevel.current_trio_token()
            # After the token: whoever has abandoned it before saw no token.
            if self._abandoned:
                self.stop()
            self._started.set_result(None)
            try:
                await self._stop.wait()
            finally:
                self.open = False
            nursery.cancel_scope.cancel()

    @property
    def alive(self) -> bool:
        """Whether the portal's thread is running."""
        return self._thread.is_alive()

    @property
    def gone(self) -> bool:
        """Whether the portal's thread can do nothing any more, so that nothing may wait for it.

        A forked process does not have the thread, and when the interpreter exits, it is stopped where it is.
        """
        return os.getpid() != self._pid or sys.is_finalizing()

    def check(self) -> None:
        """Check that the calling thread and process may use the portal.

        :raises ClosedError: this process is a fork of the portal's process, or the interpreter exits.
        :raises InvalidArgumentError: this is the portal's own thread.
        """
        if os.getpid() != self._pid:
            raise ClosedError(
                "this client belongs to the parent process and cannot be used after a fork: open another one"
            )
        if self.gone:
            raise ClosedError("the client has ended, because the interpreter exits")
        if threading.current_thread() is self._thread:
            raise InvalidArgumentError("the blocking client was called from its own background thread")

    def call(self, function: Callable[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run an async function in the trio thread and wait for its result.

        The user's functions that it needs (:func:`in_caller`) run in this thread. Ctrl-C in this thread
        cancels the call, waits up to a second and a half for its end, and propagates.

        :raises ClosedError: the portal is closed or closing, or belongs to the parent of this process.
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
        """:meth:`call` for one object, with a time limit; see :class:`Line`."""
        self.check()
        seconds = _checked(timeout)
        call: Call[R] = Call(self)
        calls = (self.calls,) if line is None else (self.calls, line.calls)

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

        # A function that shields itself from cancellation may exceed the time limit.
        if not call.wait(start, seconds + _GRACE_SECONDS):
            raise _timed_out(seconds, function, args, line)
        return call.result()

    def forget(self, held: Held[Any]) -> None:
        """Remove a context manager that is no longer entered; called in the portal's thread."""
        self._held.remove(held)

    def start_soon(self, function: Callable[[], Awaitable[Any]]) -> None:
        """Start a task that lives as long as the portal; called in the portal's thread."""
        assert self._nursery is not None
        self._nursery.start_soon(function)

    def soon(self, function: Callable[[], Any]) -> None:
        """Run a function in the portal's thread, without waiting for it.

        :raises ClosedError: the portal is closed.
        """
        if self._token is None:
            raise ClosedError("the client has no thread")
        try:
            self._token.run_sync_soon(function)
        except trio.RunFinishedError as error:
            raise ClosedError("the client is closed") from error

    def enter(self, manager: AbstractAsyncContextManager[R]) -> Held[R]:
        """Enter a context manager in a task of its own.

        It is entered and left in the same task, as nurseries require. Ctrl-C during this call leaves it
        again.

        :raises ClosedError: the portal is closed or closing, or belongs to the parent of this process.
        """
        held = Held(self, manager)
        try:
            self.call(self.begin, held)
            held.wait_entered()
        except ClosedError:
            # The thread that closes the client also leaves its context managers.
            raise
        except BaseException:
            held.give_up()
            raise
        return held

    async def begin(self, held: Held[Any]) -> None:
        """Start the task of a context manager; in the portal's thread."""
        assert self._nursery is not None
        if not self.open or held.left.done():
            raise ClosedError("the client is closed")
        self._held.append(held)
        held.begun = True
        self._nursery.start_soon(held.run)
        await trio.lowlevel.checkpoint()

    def start(
        self, call: AnyCall, calls: Iterable[set[AnyCall]], task: Callable[[], Awaitable[None]]
    ) -> None:
        """Start the task of a call, unless the portal is closing; in the portal's thread."""
        assert self._nursery is not None
        if not self.open:
            call.fail(ClosedError("the client is closed"))
            return
        for each in calls:
            each.add(call)
        self._nursery.start_soon(task)

    @property
    def held(self) -> list[Held[Any]]:
        """The entered context managers, in the order they were entered."""
        return list(self._held)

    async def refuse_more(self) -> None:
        """Accept no more calls and context managers, and cancel every call; in the portal's thread."""
        # A context manager of another thread is held by now, or will be rejected.
        self.open = False
        for call in self.calls:
            call.cancel(ClosedError("the call was cancelled because the client was closed"))
        # This call is one of them. The checkpoint lets the others run up to their cancellation.
        with trio.CancelScope(shield=True):
            await trio.lowlevel.checkpoint()

    def break_off(self, *, but: Held[Any]) -> None:
        """Leave the context managers that are still entered, as by an exception, the last one first.

        No more calls and context managers are accepted. Calls of other threads that have not ended raise
        :class:`ClosedError`.

        :param but: the context manager to keep.
        """
        if self.gone:
            return
        self.call(self.refuse_more)
        failure: Exception | None = None
        for held in reversed(self.held):
            if held is not but:
                try:
                    held.break_off()
                except Exception as error:
                    # Leave the others as well.
                    failure = failure or error
        if failure is not None:
            raise failure

    def stop(self) -> None:
        """End all tasks and the thread; in the portal's thread."""
        assert self._stop is not None
        self.open = False
        self._stop.set()

    def close(self) -> None:
        """End the thread. Calls that have not ended raise :class:`ClosedError`."""
        if self.gone:
            return
        self.abandon()
        if self._thread.is_alive():
            self._thread.join()

    def abandon(self) -> None:
        """:meth:`close` without waiting; in any thread, also while the portal's thread is starting."""
        self._abandoned = True
        self.open = False
        if not self.gone:
            with suppress(ClosedError):
                self.soon(self.stop)


class Opened(Generic[R]):
    """A client in a thread of its own. The thread ends when nobody refers to this object any more.

    The lines of the client and of all its objects refer to it; the thread does not, except during calls.

    :param portal: the thread.
    :ivar held: the client, once it is entered.
    """

    def __init__(self, portal: Portal) -> None:
        self.portal = portal
        self.held: Held[R] | None = None
        self._trace = _Trace(portal)
        self._closing = threading.RLock()
        self._finalizer = finalize(self, self._trace.dropped)
        # At exit, :func:`_tell_at_exit` says so.
        self._finalizer.atexit = False

    def given(self, held: Held[R], name: str) -> None:
        """The client was opened, and its user has to close it.

        :param name: the client, for messages.
        """
        self.held = held
        self._trace.name = name
        _left_open.add(self._trace)

    def forget(self) -> None:
        """The client was closed, or not opened."""
        self._finalizer.detach()
        _left_open.discard(self._trace)

    def close(self) -> None:
        """Leave everything that is still entered, then the client, and end the thread.

        Another call does nothing. If a call is interrupted, the thread ends, and another call waits for that.
        """
        if not self.portal.gone:
            self.portal.check()
            with self._closing:
                try:
                    if self.held is not None and self.portal.alive:
                        self._leave(self.held)
                finally:
                    self.portal.close()
        self.forget()

    def _leave(self, held: Held[R]) -> None:
        try:
            # Otherwise open objects would lose their client in the middle of their work.
            self.portal.break_off(but=held)
        except ClosedError:
            # An earlier call was interrupted.
            pass
        finally:
            held.leave()


class _Trace:
    """What is left of an :class:`Opened` that was dropped.

    :ivar name: the client, for messages; None as long as nobody has to close it.
    """

    __slots__ = ("__weakref__", "_file", "_line", "name", "portal")

    def __init__(self, portal: Portal) -> None:
        self.portal = portal
        self.name: str | None = None
        frame = sys._getframe(1)
        while frame.f_back is not None and _is_inside(frame.f_globals.get("__name__", "")):
            frame = frame.f_back
        self._file, self._line = frame.f_code.co_filename, frame.f_lineno

    def dropped(self) -> None:
        """End the thread, and say so; in any thread."""
        _left_open.discard(self)
        if self.portal.alive and not self.portal.gone:
            self.portal.abandon()
            self.tell("when nothing referred to it any more")

    def tell(self, when: str) -> None:
        """Warn that the client was not closed."""
        if self.name is not None:
            warnings.warn_explicit(
                f"{self.name} was not closed, and ended {when}: what its writers had not flushed may be "
                "lost. Enter the client, or close it",
                ResourceWarning,
                self._file,
                self._line,
            )


def _is_inside(module: str) -> bool:
    return module.partition(".")[0] in ("pravega_wire", "contextlib", "asyncio")


_left_open: set[_Trace] = set()
"""The clients that were opened and not closed."""


@atexit.register
def _tell_at_exit() -> None:
    for trace in list(_left_open):
        if trace.portal.alive and not trace.portal.gone:
            trace.tell("at the program's exit")


class Line:
    """A portal as used by one object. Closing the object ends its calls in other threads.

    :ivar portal: the portal.
    :ivar about: the object's stream or name, for messages.
    :ivar calls: the calls that have not ended; for the portal's thread.
    """

    def __init__(self, portal: Portal | Opened[Any] | Line, about: object = None) -> None:
        parent = portal if isinstance(portal, Line) else None
        self.portal: Portal = portal if isinstance(portal, Portal) else portal.portal
        # As long as an object is used, its client stays open.
        self._opened: Portal | Opened[Any] = portal._opened if isinstance(portal, Line) else portal
        self.about: object = about if about is not None or parent is None else parent.about
        self.calls: set[AnyCall] = set()

    @property
    def closed(self) -> bool:
        """Whether the client is closed, which has ended the object too."""
        return not self.portal.open

    def call(self, function: Callable[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs) -> R:
        """See :meth:`Portal.call`."""
        return self.portal.carry_out(self, None, function, *args, **kwargs)

    def enter(self, manager: AbstractAsyncContextManager[R]) -> Held[R]:
        """See :meth:`Portal.enter`."""
        return self.portal.enter(manager)

    def within(
        self,
        timeout: float | None,
        function: Callable[P, Awaitable[R]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """:meth:`call` with a time limit of ``timeout`` seconds; None for no limit.

        :raises PravegaTimeoutError: the time is over. The function was cancelled.
        """
        return self.portal.carry_out(self, timeout, function, *args, **kwargs)

    def close(
        self,
        timeout: float | None,
        function: Callable[P, Awaitable[None]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        """End the calls of other threads with :class:`ClosedError`, then call the function.

        In a fork, and when the interpreter exits, this does nothing.
        """
        if self.portal.gone:
            return
        # The function's name and owner are for the error of a call that does not finish in time.
        self.portal.carry_out(self, timeout, Named(function, self.closing), function, *args, **kwargs)

    def finish(
        self,
        timeout: float | None,
        function: Callable[P, Awaitable[None]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        """Call the function, which lets the calls of other threads end. Then end those that have not.

        In a fork, and when the interpreter exits, this does nothing.
        """
        if self.portal.gone:
            return
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
                call.cancel(ClosedError("the call was cancelled because its object was closed"))


class Named(Generic[P, R]):
    """A function with the name and the owner of another one, for the error of a call that takes too long."""

    def __init__(self, like: Callable[..., Any], function: Callable[P, Awaitable[R]]) -> None:
        self.__self__ = getattr(like, "__self__", None)
        self.__name__ = getattr(like, "__name__", "close")
        self._function = function

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._function(*args, **kwargs)
