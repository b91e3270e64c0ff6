"""Runs several tasks for one caller, unwraps the error groups of their nurseries, and tells runs apart.

Not public.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from threading import get_ident
from typing import TypeVar

import trio

from pravega_wire.errors import InvalidArgumentError

__all__ = [
    "Body", "check_run", "first_of", "lone", "lone_errors", "look_up_all", "open_lasting_nursery", "run_all",
    "without_cancelled",
]  # fmt: skip

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)

_CONCURRENT_LOOKUPS = 16


def check_run(thread: int) -> None:
    """Check that the calling code runs in the trio run that opened a client.

    :param thread: the thread of that run. A thread has one run at a time, and asking for the thread takes a
        third of the time that asking for the run takes.
    :raises InvalidArgumentError: it runs elsewhere. What it waits for would be told in the wrong run.
    """
    if get_ident() != thread:
        raise InvalidArgumentError(
            "the client belongs to another trio run: open another one in this run"
            if trio.lowlevel.in_trio_run()
            else "the client belongs to a trio run, and none is running here"
        )


async def look_up_all(
    look_up: Callable[[int], Awaitable[T]], numbers: Sequence[int], at_once: int = _CONCURRENT_LOOKUPS
) -> dict[int, T]:
    """Call ``look_up`` for each segment id (or epoch, or index of a list), several at a time, and return the
    results.

    :param look_up: the function to call.
    :param numbers: the numbers to call it with.
    :param at_once: largest number of calls at the same time.
    :raises PravegaError: the first error of a call, as it was raised.
    """
    found: dict[int, T] = {}

    def looking_up(number: int) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            found[number] = await look_up(number)

        return run

    await run_all([looking_up(number) for number in numbers], at_once)
    return found


async def run_all(calls: Sequence[Callable[[], Awaitable[None]]], at_once: int) -> None:
    """Make several calls, started in order, at most ``at_once`` at the same time.

    The first error cancels the other calls and is raised unchanged, even if it is not an error of this
    package.

    :param calls: the calls.
    :param at_once: largest number of calls at the same time.
    """
    if len(calls) == 1:
        # The usual case needs no nursery.
        await calls[0]()
        return
    limit = trio.Semaphore(at_once)
    failure: Exception | None = None
    with lone_errors():
        async with trio.open_nursery() as nursery:

            async def run(call: Callable[[], Awaitable[None]]) -> None:
                nonlocal failure
                try:
                    await call()
                except Exception as error:
                    # If several fail at the same moment, the others would turn the error into a group.
                    if failure is None:
                        failure = error
                    nursery.cancel_scope.cancel()
                finally:
                    limit.release()

            for call in calls:
                await limit.acquire()
                nursery.start_soon(run, call)
    if failure is not None:
        raise failure


@asynccontextmanager
async def open_lasting_nursery() -> AsyncIterator[trio.Nursery]:
    """Open a nursery whose tasks work until the block has ended, even if the block is cancelled.

    What the block does under a shield on its way out can use them. They are cancelled at the block's end.
    """

    opened: list[trio.Nursery] = []
    is_open = trio.Event()

    @trio.lowlevel.enable_ki_protection
    async def keep() -> None:
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as lasting:
                opened.append(lasting)
                is_open.set()
                await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep)
        # Not by nursery.start, which does not return in a cancelled scope before the task has ended.
        with trio.CancelScope(shield=True):
            await is_open.wait()
        try:
            yield opened[0]
        finally:
            opened[0].cancel_scope.cancel()


class Body:
    """A block of the caller's code inside nurseries; its error leaves the nurseries unchanged.

    It is entered around that block, inside :func:`lone_errors`. A cancellation passes through the nurseries,
    because one of them may be its origin; any other error is held until they have ended.
    """

    def __init__(self) -> None:
        self.raised: BaseException | None = None
        self.kept: BaseException | None = None

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self.raised = error
        if error is None or without_cancelled(error) is not error:
            return False
        self.kept = error
        return True


@contextmanager
def lone_errors() -> Iterator[Body]:
    """Raise a single error unchanged, without the groups that nurseries put around it.

    To run a block of the caller's code inside the nurseries, enter the :class:`Body` that this yields around
    the block, and cancel the nurseries after it. A group that the block itself raises is then not unwrapped.
    """
    body = Body()
    try:
        yield body
    except BaseException as raised:
        error = _joined(body, raised)
        if error is raised:
            raise
        context = error.__context__
        try:
            raise error
        finally:
            # Keep the error's own context instead of the group.
            error.__context__ = context
    if body.kept is not None:
        raise body.kept


async def open_tcp_stream(host: str, port: int, happy_eyeballs_delay: float = 0.25) -> trio.SocketStream:
    """Open a TCP connection like :func:`trio.open_tcp_stream`, which puts even a cancellation into groups.

    :param host: name or address of the server.
    :param port: port of the server.
    :param happy_eyeballs_delay: seconds to wait for one of its addresses before the next one is tried, too.
    """
    with lone_errors():
        return await trio.open_tcp_stream(host, port, happy_eyeballs_delay=happy_eyeballs_delay)
    raise AssertionError("not reached")  # nothing is suppressed


def _joined(body: Body, raised: BaseException) -> BaseException:
    """Return the error to raise for an error that the nurseries around a block have raised."""
    if body.kept is None:
        return lone(raised, but=body.raised)
    # A cancellation while the nurseries end adds nothing to the block's error, and will be delivered again.
    rest = without_cancelled(raised)
    if rest is None:
        return body.kept
    others = rest.exceptions if isinstance(rest, BaseExceptionGroup) else (rest,)
    return BaseExceptionGroup("the block and its background tasks both failed", [body.kept, *others])


def lone(raised: BaseException, *, but: BaseException | None = None) -> BaseException:
    """Return the error in a group if there is only one; otherwise return the group.

    Cancellations do not count, because cancelled tasks end anyway. Of a group that holds nothing else one
    cancellation is returned, which is as good as all of them: a cancel scope takes any.

    :param raised: the error or group.
    :param but: a group that is not unwrapped.
    """
    error = raised
    while isinstance(error, BaseExceptionGroup) and error is not but:
        inside = [each for each in error.exceptions if each is but or without_cancelled(each) is not None]
        if not inside:
            cancelled: BaseException = first_of(error)
            return cancelled
        if len(inside) > 1:
            break
        error = inside[0]
    return error


def without_cancelled(error: BaseException) -> BaseException | None:
    """Return an error or group without cancellations; None if there is nothing else."""
    if isinstance(error, BaseExceptionGroup):
        cancelled, rest = error.split(trio.Cancelled)
        return error if cancelled is None else rest
    return None if isinstance(error, trio.Cancelled) else error


def first_of(group: BaseExceptionGroup[E]) -> E:
    """Return the first error in a group, at any depth."""
    error: E | BaseExceptionGroup[E] = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
