"""When to send what is still being gathered: see :class:`Lull`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

__all__ = ["Lull"]

_LONGEST_SECONDS: Final = 0.02


class Lull(trio.abc.Instrument):
    """Calls functions once no other task of the trio run has anything to do, after 20 ms at the latest.

    What is sent then holds all that the tasks have made until then. A run that has time sends at once; one
    that never waits for anything, and is therefore the bottleneck, sends less often and more at a time.

    :param nursery: runs the task that calls the functions.
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._functions: dict[Callable[[], None], None] = {}
        self._token: trio.lowlevel.TrioToken | None = None
        self._wanted = trio.Event()
        self._idle = trio.Event()
        self._looking = False

    def call(self, function: Callable[[], None]) -> None:
        """Call a function at the next lull, once, however often this is asked for until then."""
        self._functions[function] = None
        if self._token is None:
            self._token = trio.lowlevel.current_trio_token()
            self._nursery.start_soon(self._run, name="pravega lull")
        self._wanted.set()

    def before_io_wait(self, timeout: float) -> None:
        """See :class:`trio.abc.Instrument`."""
        # The time is 0 also when a clock for tests is about to jump.
        if self._looking and (timeout > 0 or not trio.lowlevel.current_statistics().tasks_runnable):
            self._looking = False
            assert self._token is not None
            # How long to wait is settled already, so an event that is set here would wake nobody in time.
            self._token.run_sync_soon(self._idle.set)

    @trio.lowlevel.enable_ki_protection
    async def _run(self) -> None:
        trio.lowlevel.add_instrument(self)
        try:
            while True:
                await self._wanted.wait()
                self._wanted = trio.Event()
                self._idle = trio.Event()
                self._looking = True
                with trio.move_on_after(_LONGEST_SECONDS):
                    await self._idle.wait()
                self._looking = False
                functions, self._functions = self._functions, {}
                for function in functions:
                    function()
        finally:
            trio.lowlevel.remove_instrument(self)
