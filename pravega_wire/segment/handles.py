"""For handles that several tasks may get hold of: :class:`OneAtATime` and :class:`Waiters`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import trio

from pravega_wire.errors import ClosedError, ConcurrentUseError, PravegaError

__all__ = ["OneAtATime", "Waiters", "state_of"]


class OneAtATime:
    """``with alone: ...``: the second task that is inside at the same time gets :class:`ConcurrentUseError`.

    :param message: what the error says.
    """

    __slots__ = ("_message", "_taken")

    def __init__(self, message: str) -> None:
        self._message = message
        self._taken = False

    def __enter__(self) -> None:
        if self._taken:
            raise ConcurrentUseError(self._message)
        self._taken = True

    def __exit__(self, *exc: object) -> None:
        self._taken = False


def state_of(opened: bool, error: PravegaError | None) -> str:
    """A word for ``repr``: what a writer is, by whether it was opened and the error that its calls raise."""
    if error is not None:
        return "closed" if isinstance(error, ClosedError) else f"failed: {type(error).__name__}"
    return "open" if opened else "not opened"


class Waiters:
    """The tasks that wait for something of a handle; :meth:`close` ends their waiting.

    Whatever they wait for (an answer, a connection, a pause before the next attempt), they get
    :class:`ClosedError` at once, as do those that come later.

    :param message: what the error says.
    :ivar closed: whether it was closed.
    """

    __slots__ = ("_message", "_scopes", "closed")

    def __init__(self, message: str) -> None:
        self._message = message
        self._scopes: set[trio.CancelScope] = set()
        self.closed = False

    def check(self) -> None:
        """:raises ClosedError: it is closed."""
        if self.closed:
            raise ClosedError(self._message)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Around everything that is awaited.

        :raises ClosedError: it is closed, or was closed meanwhile.
        """
        self.check()
        scope = trio.CancelScope()
        self._scopes.add(scope)
        try:
            with scope:
                yield
        finally:
            self._scopes.discard(scope)
        if scope.cancelled_caught:
            self.check()

    def close(self) -> None:
        """Nobody waits any more."""
        self.closed = True
        for scope in self._scopes:
            scope.cancel()
