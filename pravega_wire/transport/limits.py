"""Time limits: one clock for an operation, and shorter limits within it.

A user sets one number, ``operation_timeout``. :class:`Limits` derives the others from it, so that an
operation has time for several attempts: a peer that accepts a connection and then stays silent must not use
up all of it.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final, ParamSpec, Self, TypeVar

import trio

from pravega_wire.errors import PravegaError, PravegaTimeoutError, RetriesExhaustedError
from pravega_wire.support.checks import shown
from pravega_wire.support.nurseries import lone_errors
from pravega_wire.support.trouble import Trouble

__all__ = [
    "AFTER_CANCELLATION",
    "DEFAULT_LIMITS",
    "NO_TIME",
    "Leaving",
    "Limits",
    "is_hurried",
    "limit",
    "limited",
    "note_failure",
    "note_progress",
    "unlimited",
]

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Limits:
    """Time limits, in seconds.

    :ivar operation: limit of a whole operation with all its attempts.
    :ivar attempt: limit of one attempt of a request.
    :ivar connect: limit of opening a TCP connection, and again of the TLS handshake.
    :ivar silence: time without any received byte after which a connection counts as lost. A peer that is
        alive answers keep-alives, which are sent after a third of it.
    :ivar stall: time without an acknowledgement or a refusal after which appends are sent again on another
        connection.
    """

    operation: float
    attempt: float
    connect: float
    silence: float
    stall: float

    @classmethod
    def of(cls, operation: float) -> Self:
        """Return the limits that fit into ``operation`` seconds."""
        return cls(
            operation=operation,
            attempt=min(30.0, operation / 3),
            connect=min(5.0, operation / 4),
            silence=min(15.0, operation / 3),
            stall=operation / 2,
        )


DEFAULT_LIMITS = Limits.of(120.0)


@dataclass(frozen=True, slots=True)
class _Limit:
    """One of the limits of an operation."""

    scope: trio.CancelScope
    seconds: float
    doing: str
    setting: str


class _Operation:
    """An operation in progress: its limits, and how its attempts have failed."""

    __slots__ = ("ended", "failures", "last", "limits", "trouble")

    def __init__(self) -> None:
        # A task that was started by an operation may outlive it, and still has it in its context.
        self.ended = False
        self.limits: list[_Limit] = []
        self.trouble = Trouble()
        self.failures = 0
        self.last: PravegaError | None = None


_operation: ContextVar[_Operation | None] = ContextVar("pravega operation", default=None)


def _current() -> _Operation | None:
    operation = _operation.get()
    return None if operation is None or operation.ended else operation


def note_failure(
    error: PravegaError, *, again: bool = True, total: float = math.inf, setting: str = ""
) -> None:
    """Record why an attempt failed, for the error message of its operation, and log it.

    :param error: why the attempt failed.
    :param again: whether another attempt is made if the error is retriable. Otherwise nothing is logged.
    :param total: seconds that the attempts may take, if fewer than the operation's.
    :param setting: what ``total`` comes from, for the log.
    """
    operation = _current()
    if operation is None:
        return
    operation.failures += 1
    operation.last = error
    if not (again and error.retriable):
        return
    first = min(operation.limits, key=lambda each: each.scope.deadline)
    left = first.scope.deadline - trio.current_time()
    seconds, named = (total, setting) if total < first.seconds else (first.seconds, first.setting)
    operation.trouble.note(
        error, operation.limits[0].doing, seconds=seconds, setting=named, taken=first.seconds - left
    )


def note_progress() -> None:
    """Restart the clock of the operation, because a part of an unlimited amount of data has arrived."""
    operation = _current()
    if operation is not None:
        now = trio.current_time()
        operation.trouble.reset()
        for each in operation.limits:
            each.scope.deadline = now + each.seconds


@contextmanager
def unlimited() -> Iterator[None]:
    """Stop the clock of the operation while a function of the user runs."""
    operation = _current()
    limits = [] if operation is None else list(operation.limits)
    left = [each.scope.deadline - trio.current_time() for each in limits]
    for each in limits:
        each.scope.deadline = math.inf
    try:
        yield
    finally:
        for each, seconds in zip(limits, left, strict=True):
            each.scope.deadline = trio.current_time() + seconds


@contextmanager
def limit(seconds: float, doing: str, *, setting: str = "operation_timeout") -> Iterator[None]:
    """Limit the time of the block to ``seconds``.

    :param seconds: the limit.
    :param doing: what is being done, for the message.
    :param setting: name of the setting that the limit comes from, for the message.
    :raises RetriesExhaustedError: the time is over after a failed attempt, which is the cause.
    :raises PravegaTimeoutError: the time is over, no attempt has failed and nothing was received.
    """
    outer = _current()
    operation = outer or _Operation()
    token = _operation.set(operation) if outer is None else None
    started = trio.current_time()
    entry = _Limit(trio.CancelScope(deadline=started + seconds), seconds, doing, setting)
    operation.limits.append(entry)
    try:
        with entry.scope:
            yield
    finally:
        operation.limits.remove(entry)
        if token is not None:
            operation.ended = True
            _operation.reset(token)
    if entry.scope.cancelled_caught:
        taken = trio.current_time() - started
        last = operation.last
        if last is None:
            raise PravegaTimeoutError(f"{doing}: no answer after {taken:.1f} s ({setting})")
        raise RetriesExhaustedError(
            f"{doing}: no success after {taken:.1f} s ({setting}) and {operation.failures} failed "
            f"{'attempt' if operation.failures == 1 else 'attempts'}, the last failed with: {last.message}",
            scope=last.scope,
            stream=last.stream,
            segment=last.segment,
            transaction=last.transaction,
            host=last.host,
        ) from last


AFTER_CANCELLATION: Final = 1.0
"""Seconds for which what was cancelled may still be brought to an orderly end."""

NO_TIME: Final = "it was interrupted, and got no answer within a second"
"""Why something was not done on leaving, for messages."""

_LATE: Final = 0.5
"""Seconds that leaving may take at least, if the time that it shares is over: its peer may be another one."""

_TOGETHER: Final = 1.0
"""Seconds after a failed leaving within which another one still belongs to it."""


def is_hurried(error: BaseException | None) -> bool:
    """Return whether ``error`` demands to leave a block fast: it was cancelled or interrupted."""
    return error is not None and not isinstance(error, Exception | GeneratorExit | SystemExit)


class _Shared:
    """A time that is shared by all that begin together: while others are at it, or after one that failed.

    :param seconds: the time.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._inside = 0
        self._end: float | None = None
        self._failed = -math.inf

    def begin(self) -> float:
        """Return when the time is over for one that begins now."""
        now = trio.current_time()
        alone = not self._inside and now > self._failed + _TOGETHER
        if self._end is None or alone:
            self._end = now + self._seconds
        self._inside += 1
        return max(self._end, now + _LATE)

    def end(self, *, done: bool) -> None:
        """One has ended; after a success the next one has all the time."""
        self._inside -= 1
        if done:
            self._end = None
        else:
            self._failed = trio.current_time()


class Leaving:
    """The time for leaving: a client's objects that are left together have one limit, not one each.

    :param seconds: the limit.
    """

    def __init__(self, seconds: float) -> None:
        self._whole = _Shared(seconds)
        self._cancelled = _Shared(AFTER_CANCELLATION)

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Surrounds a part of leaving that has a limit of its own, for what is left together with it."""
        self._whole.begin()
        done = False
        try:
            yield
            done = True
        finally:
            self._whole.end(done=done)

    async def run(self, work: Callable[[], Awaitable[None]], doing: str, *, hurried: bool = False) -> bool:
        """Do what has to be done on leaving. It goes on for a second after a cancellation.

        This raises no cancellation: it may be called while another exception is on its way.

        :param work: what has to be done.
        :param doing: the same in words, for messages.
        :param hurried: whether it was cancelled before, and has only that second.
        :returns: False if it was not done within the second.
        :raises RetriesExhaustedError: as for :func:`limit`.
        :raises PravegaTimeoutError: as for :func:`limit`.
        """
        scope = trio.CancelScope(shield=True)
        hurrying = ended = done = False

        def hurry() -> None:
            nonlocal hurrying
            hurrying = True
            scope.deadline = min(scope.deadline, self._cancelled.begin())

        async def watch() -> None:
            try:
                await trio.sleep_forever()
            except trio.Cancelled:
                if not (hurrying or ended):
                    hurry()

        seconds = self._whole.begin() - trio.current_time()
        if hurried:
            hurry()
        try:
            with lone_errors():
                async with trio.open_nursery() as nursery:
                    # Outside of the shield, to notice a cancellation.
                    nursery.start_soon(watch)
                    try:
                        with scope, limit(seconds, doing):
                            await work()
                            done = True
                    finally:
                        ended = True
                        nursery.cancel_scope.cancel()
        finally:
            self._whole.end(done=done)
            if hurrying:
                self._cancelled.end(done=done)
        return done


def limited(
    doing: str,
) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Coroutine[Any, Any, T]]]:
    """Decorate a method of an object with a client's ``_core``: ``operation_timeout`` limits each call.

    :param doing: what the method does, for the message; ``{}`` is replaced by the first argument,
        ``{stream}`` by the first argument with its scope, and ``{self.x}`` by an attribute of the object.
    """
    named = "{stream}" in doing

    def decorate(method: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
        @wraps(method)
        async def bounded(*args: P.args, **kwargs: P.kwargs) -> T:
            owner: Any = args[0]
            owner._core.check_run()
            about = args[1] if len(args) > 1 else next(iter(kwargs.values()), "")
            stream = about
            if named:
                # Otherwise the method says what is wrong with it.
                with suppress(PravegaError):
                    stream = owner._core.config.resolve(about)
            try:
                said = doing.format(about, stream=stream, self=owner)
            except Exception:  # of somebody's class, or of a number that Python does not write out
                said = doing.format(shown(about), stream=shown(about), self=owner)
            with limit(owner._core.config.operation_timeout, said):
                return await method(*args, **kwargs)
            raise AssertionError("not reached")  # the limit raises when it suppresses

        return bounded

    return decorate
