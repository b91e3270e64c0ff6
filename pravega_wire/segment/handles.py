"""Helpers for handles that several tasks may use: :class:`OneAtATime` and :class:`Waiters`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from weakref import finalize

import trio

from pravega_wire.errors import ClosedError, ConcurrentUseError, PravegaError
from pravega_wire.support.nurseries import check_run

__all__ = ["OneAtATime", "Waiters", "state_of", "when_dropped"]


class OneAtATime:
    """Context manager that only one task may be in; a second task gets :class:`ConcurrentUseError`.

    :param message: text of the error.
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


def when_dropped(
    owner: object, end: Callable[[], None], is_needed: Callable[[], bool]
) -> Callable[[], object]:
    """Call ``end`` in this trio run once nobody refers to ``owner`` any more, if that is needed then.

    :param end: must not refer to the owner.
    :param is_needed: is called in any thread, and must not refer to the owner either.
    :returns: a function that forgets both functions, for an owner that has replaced what they end.
    """
    found = finalize(owner, _end, trio.lowlevel.current_trio_token(), end, is_needed)
    found.atexit = False
    return found.detach


def _end(token: trio.lowlevel.TrioToken, end: Callable[[], None], is_needed: Callable[[], bool]) -> None:
    if is_needed():
        with suppress(trio.RunFinishedError):
            token.run_sync_soon(end)


def state_of(opened: bool, error: PravegaError | None) -> str:
    """Return the state of a writer as a word for ``repr``.

    :param opened: whether the writer was opened.
    :param error: the error that its calls raise, or None.
    """
    if error is not None:
        return "closed" if isinstance(error, ClosedError) else f"failed: {type(error).__name__}"
    return "open" if opened else "not opened"


class Waiters:
    """The tasks that wait in a handle; :meth:`close` ends their waiting.

    Whatever they wait for (an answer, a connection, a pause before the next attempt), they get
    :class:`ClosedError` at once, and so do tasks that begin to wait later.

    :param message: text of the error.
    :param thread: the thread of the client's trio run.
    :ivar closed: whether the handle was closed.
    """

    __slots__ = ("_message", "_scopes", "_thread", "closed")

    def __init__(self, message: str, thread: int) -> None:
        self._message = message
        self._thread = thread
        self._scopes: dict[trio.CancelScope, None] = {}
        self.closed = False

    def check(self) -> None:
        """Check that the handle is open.

        :raises ClosedError: it is closed.
        :raises InvalidArgumentError: the client belongs to another trio run.
        """
        check_run(self._thread)
        if self.closed:
            raise ClosedError(self._message)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Wrap everything that is awaited.

        :raises ClosedError: the handle is closed, or was closed during the block.
        """
        self.check()
        scope = trio.CancelScope()
        self._scopes[scope] = None
        try:
            with scope:
                yield
        finally:
            self._scopes.pop(scope, None)
        if scope.cancelled_caught:
            self.check()

    def close(self) -> None:
        """Close the handle, and end the waiting of all tasks.

        :raises InvalidArgumentError: the client belongs to another trio run.
        """
        check_run(self._thread)
        self.closed = True
        for scope in self._scopes:
            scope.cancel()
