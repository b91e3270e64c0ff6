"""What ends a command from outside: Ctrl-C; SIGTERM, as from ``timeout``; SIGHUP, when a terminal is closed.

Without this, Ctrl-C would print a traceback while modules are imported, and the other two would end the
process at once: a reader would stay in its group and keep its segments, a transaction would stay open, and
the part of a file would stay behind.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

__all__ = ["Terminated", "at_once", "begin", "over", "raising", "terminable"]

_SIGNALS = tuple(getattr(signal, each) for each in ("SIGTERM", "SIGHUP") if hasattr(signal, each))
_taken: list[int] = []
"""The signals that the program handles: those which nobody has ignored, as ``nohup`` does."""


class Terminated(KeyboardInterrupt):
    """A signal asks the command to end.

    :ivar number: number of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def begin() -> None:
    """Take the signals over, for :func:`at_once`. Without it, the other functions change nothing."""
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        _taken.append(signal.SIGINT)
    _taken.extend(each for each in _SIGNALS if signal.getsignal(each) is signal.SIG_DFL)
    at_once()


def at_once() -> None:
    """Let signals end the process at once: before a command begins and after it has ended, nothing has to be
    cleaned up, and an exception may get lost in an import or at the interpreter's end."""
    for each in _taken:
        signal.signal(each, _exit)


def over() -> None:
    """Ignore signals from now on: everything is done, and the exit status must say so while the interpreter
    ends, which no longer handles them."""
    for each in _taken:
        signal.signal(each, signal.SIG_IGN)


def raising() -> None:
    """Let signals raise KeyboardInterrupt or :class:`Terminated`: a command has begun, and cleans up."""
    for each in _taken:
        signal.signal(each, signal.default_int_handler if each == signal.SIGINT else _raise)


def _exit(number: int, frame: FrameType | None) -> None:
    try:
        os.write(2, b"interrupted\n" if number == signal.SIGINT else b"terminated\n")
    except OSError:
        pass
    os._exit(128 + number)


def _raise(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
    raise Terminated(number)


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block, which cleans up, as Ctrl-C does. A second one ends the process.

    It is used under trio, and may be nested: a signal ends the innermost block. Signals that are ignored, as
    under ``nohup``, stay so.

    :raises Terminated: there was a signal.
    """
    import trio

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

    before = {each: signal.getsignal(each) for each in _SIGNALS}
    taken = [each for each, found in before.items() if found is signal.SIG_DFL or _is_ours(found)]
    for each in taken:
        signal.signal(each, end)
    try:
        with scope:
            yield
    finally:
        for each in taken:
            signal.signal(each, before[each])
    if scope.cancelled_caught:
        raise Terminated(received)


def _is_ours(handler: object) -> bool:
    return getattr(handler, "__module__", None) == __name__
