"""Pauses between attempts, as data, and the one loop that uses them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

import trio

from pravega_wire.errors import InvalidArgumentError, PravegaError, RetriesExhaustedError
from pravega_wire.transport.limits import note_failure

__all__ = ["RetryPolicy", "retry"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential back-off.

    :param initial: first pause, seconds.
    :param multiplier: each pause is so many times the last.
    :param cap: longest pause, seconds.
    :param attempts: tries in all.
    :param total: seconds after
        which no further attempt is made.

    The defaults are the reference client's for controller calls.
    """

    initial: float = 0.001
    multiplier: float = 10.0
    cap: float = 20.0
    attempts: int = 10
    total: float = float("inf")

    def __post_init__(self) -> None:
        if self.initial < 0 or self.multiplier < 1 or self.cap < 0 or self.attempts < 1:
            raise InvalidArgumentError(f"{self} is not a usable retry policy")

    def pauses(self) -> Iterator[float]:
        """The pauses between attempts, seconds: one fewer than there are attempts."""
        pause = self.initial
        for _ in range(self.attempts - 1):
            yield min(pause, self.cap)
            pause = min(pause * self.multiplier, self.cap)


async def retry(
    policy: RetryPolicy,
    operation: Callable[[], Awaitable[T]],
    *,
    retry_on: Callable[[PravegaError], bool],
    describe: str,
    at_least: int = 1,
) -> T:
    """Run ``operation`` until it succeeds or fails in a way that is not tried again.

    :param describe: what is being done, for the message.
    :param at_least: attempts that are made even when ``policy.total`` is over.
    :raises RetriesExhaustedError: from the last failure.
    """
    started = trio.current_time()
    attempts = 0
    for pause in chain(policy.pauses(), (None,)):
        try:
            attempts += 1
            return await operation()
        except PravegaError as error:
            if not retry_on(error):
                raise
            last = error
            note_failure(error)
        over = trio.current_time() - started + (pause or 0.0) > policy.total
        if pause is None or (over and attempts >= at_least):
            break
        await trio.sleep(pause)
    raise RetriesExhaustedError(
        f"{describe}: gave up after {attempts} attempts in "
        f"{trio.current_time() - started:.1f} s, the last failed with: {last.message}",
        host=last.host,
    ) from last
