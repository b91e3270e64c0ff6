"""Where functions of the user run.

In the async client they run in its only thread. Behind the blocking client there is also the calling thread.
Functions run there, because a slow one would delay everything else in the client, and because a function may
use the blocking client itself.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar, TypeVarTuple, Unpack

from pravega_wire.transport.limits import unlimited

__all__ = ["CallingThread", "calling_thread", "in_caller", "in_place", "looks_like_the_end"]

R = TypeVar("R")
A = TypeVarTuple("A")


class CallingThread(Protocol):
    """A thread that waits for a call to end and runs functions in the meantime."""

    async def run(self, function: Callable[[], Any]) -> Any:
        """Run a function there. Returns its result and raises its errors."""

    def is_within(self, other: object) -> bool:
        """Whether this is ``other``, or calls from a function that is being run for ``other``."""


calling_thread: ContextVar[CallingThread | None] = ContextVar("calling_thread", default=None)
"""The thread that waits for the current task; None in the async client."""


async def in_caller(function: Callable[[Unpack[A]], R], *args: *A) -> R:
    """Call a function of the user, in the calling thread if there is one.

    Without a calling thread this is a plain call, without a checkpoint. The time that the function takes does
    not count for the time limit of the operation that calls it.
    """
    thread = calling_thread.get()
    try:
        if thread is None:
            return function(*args)
        with unlimited():
            result: R = await thread.run(lambda: function(*args))
        return result
    except StopAsyncIteration as error:
        raise looks_like_the_end(error) from error


def looks_like_the_end(error: StopIteration | StopAsyncIteration) -> RuntimeError:
    """Return what to raise instead, as Python does in generators: an iteration would end as if at its end."""
    return RuntimeError(f"a function of the caller raised {type(error).__name__}")


async def in_place(function: Callable[[Unpack[A]], R], *args: *A) -> R:
    """Call a function that is not the user's, in this thread."""
    return function(*args)
