"""What ends a command from outside: SIGTERM, as from ``timeout``, and SIGHUP, when a terminal is closed.

Without this, they would end the process at once: a reader would stay in its group and keep its segments, a
transaction would stay open, and the part of a file would stay behind.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

import trio

__all__ = ["Terminated", "terminable"]

_SIGNALS: Final = [getattr(signal, each) for each in ("SIGTERM", "SIGHUP") if hasattr(signal, each)]


class Terminated(KeyboardInterrupt):
    """A signal asks the command to end.

    :ivar number: number of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block, which cleans up, as Ctrl-C does. A second one ends the process.

    It is used under trio. Signals that are ignored, as under ``nohup``, stay so.

    :raises Terminated: there was a signal.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    token = trio.lowlevel.current_trio_token()
    scope = trio.CancelScope()
    received = 0

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal received
        received = number
        signal.signal(number, signal.SIG_DFL)
        if not trio.lowlevel.currently_ki_protected():
            # Nothing else interrupts code that is blocked, such as by a pipe that nobody reads from.
            raise Terminated(number)
        token.run_sync_soon(scope.cancel)

    taken = [each for each in _SIGNALS if signal.getsignal(each) is signal.SIG_DFL]
    for each in taken:
        signal.signal(each, end)
    try:
        with scope:
            yield
    finally:
        for each in taken:
            signal.signal(each, signal.SIG_DFL)
    if scope.cancelled_caught:
        raise Terminated(received)
