"""How long things may take: one clock for an operation, and the shorter limits within it.

A user sets one number, ``operation_timeout``. :class:`Limits` derives the others from it, so that an
operation has time for several attempts: a peer that accepts a connection and then stays silent must
not use up the whole of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, Protocol, Self, TypeVar, cast

import trio

from pravega_wire.errors import PravegaError, PravegaTimeoutError, RetriesExhaustedError

__all__ = ["DEFAULT_LIMITS", "Limits", "limit", "limited", "note_failure"]

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Limits:
    """Time limits, in seconds.

    :ivar operation: a whole operation with all its attempts.
    :ivar attempt: one attempt of a request.
    :ivar connect: opening a TCP connection, and again the TLS handshake.
    :ivar silence: a connection on which nothing at all arrives for this long is given up. A peer that is
        alive answers keep-alive messages, which are sent after a third of it.
    :ivar stall: appends that a store neither acknowledges nor refuses for this long are sent again on
        another connection.
    """

    operation: float
    attempt: float
    connect: float
    silence: float
    stall: float

    @classmethod
    def of(cls, operation: float) -> Self:
        """The limits that fit into ``operation`` seconds."""
        return cls(
            operation=operation,
            attempt=min(30.0, operation / 3),
            connect=min(5.0, operation / 4),
            silence=min(15.0, operation / 3),
            stall=operation / 2,
        )


DEFAULT_LIMITS = Limits.of(120.0)


class _Failures:
    """What went wrong so far in an operation: how often, and the last time how."""

    __slots__ = ("count", "last")

    def __init__(self) -> None:
        self.count = 0
        self.last: PravegaError | None = None


_failures: ContextVar[_Failures | None] = ContextVar("pravega operation", default=None)


def note_failure(error: PravegaError) -> None:
    """Remember why an attempt failed, for the message of the operation that it belongs to."""
    failures = _failures.get()
    if failures is not None:
        failures.count += 1
        failures.last = error


@contextmanager
def limit(seconds: float, doing: str, *, setting: str = "operation_timeout") -> Iterator[None]:
    """Bound what happens inside to ``seconds``.

    :param doing: what is being done, for the message. :param setting: where the limit comes from.
    :raises RetriesExhaustedError: the time is over and an attempt had failed, which is the cause.
    :raises PravegaTimeoutError: the time is over and nothing was heard.
    """
    outer = _failures.get()
    failures = outer or _Failures()
    token = _failures.set(failures) if outer is None else None
    started = trio.current_time()
    try:
        with trio.move_on_after(seconds) as scope:
            yield
    finally:
        if token is not None:
            _failures.reset(token)
    if scope.cancelled_caught:
        taken = trio.current_time() - started
        last = failures.last
        if last is None:
            raise PravegaTimeoutError(f"{doing}: no answer after {taken:.1f} s ({setting})")
        raise RetriesExhaustedError(
            f"{doing}: gave up after {taken:.1f} s ({setting}) and {failures.count} failed "
            f"{'attempt' if failures.count == 1 else 'attempts'}, the last failed with: {last.message}",
            scope=last.scope,
            stream=last.stream,
            segment=last.segment,
            transaction=last.transaction,
            host=last.host,
        ) from last


class HasLimit(Protocol):
    """An object whose operations are limited."""

    @property
    def _operation_timeout(self) -> float:
        """Seconds that each operation may take."""


def limited(
    doing: str,
) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Coroutine[Any, Any, T]]]:
    """Decorates a method (of a :class:`HasLimit`): each call is bounded by the object's operation timeout.

    :param doing: what it does, for the message; ``{}`` stands for the first argument, ``{self.x}`` for an
        attribute of the object.
    """

    def decorate(method: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
        @wraps(method)
        async def bounded(*args: P.args, **kwargs: P.kwargs) -> T:
            owner = cast("HasLimit", args[0])
            about = args[1] if len(args) > 1 else next(iter(kwargs.values()), "")
            with limit(owner._operation_timeout, doing.format(about, self=owner)):
                return await method(*args, **kwargs)
            raise AssertionError("not reached")  # the limit raises when it suppresses

        return bounded

    return decorate
