"""Several tasks that act for one caller: running them, and what leaves their nurseries.

Not public.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import trio

__all__ = [
    "Body", "first_of", "lone", "lone_errors", "look_up_all", "run_all", "without_cancelled",
]  # fmt: skip

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)

_CONCURRENT_LOOKUPS = 16


async def look_up_all(
    look_up: Callable[[int], Awaitable[T]], numbers: Sequence[int], at_once: int = _CONCURRENT_LOOKUPS
) -> dict[int, T]:
    """The answer for each segment id (or epoch, or place in a list), several asked at a time.

    :raises PravegaError: of the first that fails, as it was raised.
    """
    found: dict[int, T] = {}

    def looking_up(number: int) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            found[number] = await look_up(number)

        return run

    await run_all([looking_up(number) for number in numbers], at_once)
    return found


async def run_all(calls: Sequence[Callable[[], Awaitable[None]]], at_once: int) -> None:
    """Make calls, begun in their order, at most ``at_once`` at a time.

    The first error ends the others and leaves as it was raised, also when it is not one of this package's.
    """
    if len(calls) == 1:
        # The usual case, without a nursery.
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
                    # Several may fail in the same moment: the others would make a group of it.
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


class Body:
    """A block of somebody else's code inside nurseries: what it raises leaves as it was raised.

    It is entered around that block, within :func:`lone_errors`. A cancellation goes through the nurseries,
    as one of them may be what it came from; everything else waits until they have ended.
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
    """Raise a lone error as it was raised, without the groups that nurseries put around it.

    Whoever runs a block of somebody else's code inside the nurseries puts the :class:`Body` that this gives
    around it, and cancels them after it: a group that the block itself raises is not taken apart.
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
            # What it was raised in, instead of the group.
            error.__context__ = context
    if body.kept is not None:
        raise body.kept


def _joined(body: Body, raised: BaseException) -> BaseException:
    """What leaves for what the nurseries around a block have raised."""
    if body.kept is None:
        return lone(raised, but=body.raised)
    # A cancellation that comes while they end says no more than the block's error, and comes again.
    rest = without_cancelled(raised)
    if rest is None:
        return body.kept
    others = rest.exceptions if isinstance(rest, BaseExceptionGroup) else (rest,)
    return BaseExceptionGroup("a block and what it was run in have failed", [body.kept, *others])


def lone(raised: BaseException, *, but: BaseException | None = None) -> BaseException:
    """The error in a group when there is only one, else the group; ``but`` is not taken apart.

    Cancellations beside it do not count: what was cancelled ends anyway.
    """
    error = raised
    while isinstance(error, BaseExceptionGroup) and error is not but:
        inside = [each for each in error.exceptions if each is but or without_cancelled(each) is not None]
        if not inside:
            inside = list(error.exceptions)
        if len(inside) > 1:
            break
        error = inside[0]
    return error


def without_cancelled(error: BaseException) -> BaseException | None:
    """An error, or what else is in a group with cancellations; None when there is nothing else."""
    if isinstance(error, BaseExceptionGroup):
        cancelled, rest = error.split(trio.Cancelled)
        return error if cancelled is None else rest
    return None if isinstance(error, trio.Cancelled) else error


def first_of(group: BaseExceptionGroup[E]) -> E:
    """The first error in a group, however deep."""
    error: E | BaseExceptionGroup[E] = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
