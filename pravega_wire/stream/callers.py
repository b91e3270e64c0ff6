"""Where functions of the user run.

In the async client they run in its only thread. Behind the blocking client there is another one: the thread
that has called it. Functions belong there, because one that takes long would hold up everything else in the
client, and because a function may use the blocking client itself.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar, TypeVarTuple, Unpack

from pravega_wire.transport.limits import unlimited

__all__ = ["CallingThread", "calling_thread", "in_caller", "in_place"]

R = TypeVar("R")
A = TypeVarTuple("A")


class CallingThread(Protocol):
    """A thread that waits for a call to end and runs functions meanwhile."""

    async def run(self, function: Callable[[], Any]) -> Any:
        """Run a function there; returns what it returns and raises what it raises."""

    def is_within(self, other: object) -> bool:
        """Whether it calls from a function that is run for ``other``, or is that."""


calling_thread: ContextVar[CallingThread | None] = ContextVar("calling_thread", default=None)
"""The thread that waits for the task at hand; None in the async client."""


async def in_caller(function: Callable[[Unpack[A]], R], *args: *A) -> R:
    """Call a function of the user. Without a calling thread this is a plain call, without a checkpoint.

    The time that it takes does not count for the limit of the operation that needs it.
    """
    thread = calling_thread.get()
    if thread is None:
        return function(*args)
    with unlimited():
        result: R = await thread.run(lambda: function(*args))
    return result


async def in_place(function: Callable[[Unpack[A]], R], *args: *A) -> R:
    """Call a function that is not the user's."""
    return function(*args)
