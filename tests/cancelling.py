"""Cancelling a call at each of its stops, one after the other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio


class _CancelAt(trio.abc.Instrument):
    """Cancels a scope when one task comes to its ``step``-th stop, or goes on for the ``step``-th time."""

    def __init__(self, scope: trio.CancelScope, step: int, going_on: bool) -> None:
        self.task = trio.lowlevel.current_task()
        self.scope = scope
        self.left = step
        self.going_on = going_on

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if self.going_on:
            self._count(task)

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if not self.going_on:
            self._count(task)

    def _count(self, task: trio.lowlevel.Task) -> None:
        if task is self.task:
            self.left -= 1
            if self.left == 0:
                self.scope.cancel()


async def cancelled_at(step: int, call: Callable[[], Awaitable[object]], *, going_on: bool = False) -> bool:
    """Whether the call was cancelled at its ``step``-th stop; else it has ended before.

    :param going_on: cancel when it goes on from there: it gets what it has waited for, and is cancelled where
        it waits next, right after it has asked for something else.
    """
    with trio.CancelScope() as scope:
        instrument = _CancelAt(scope, step, going_on)
        trio.lowlevel.add_instrument(instrument)
        try:
            await call()
        finally:
            trio.lowlevel.remove_instrument(instrument)
    return scope.cancelled_caught
