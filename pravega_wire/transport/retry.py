"""Retry policies, and the loop that applies them."""

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
    """Exponential back-off. The defaults are those of the Java client's controller calls.

    :param initial: first pause, seconds.
    :param multiplier: factor from each pause to the next.
    :param cap: longest pause, seconds.
    :param attempts: number of attempts in all.
    :param total: seconds after which no further attempt is made.
    :raises InvalidArgumentError: a number is out of its range.
    """

    initial: float = 0.001
    multiplier: float = 10.0
    cap: float = 20.0
    attempts: int = 10
    total: float = float("inf")

    def __post_init__(self) -> None:
        if self.initial < 0 or self.multiplier < 1 or self.cap < 0 or self.attempts < 1:
            raise InvalidArgumentError(
                f"{self} is not usable: initial and cap must be 0 or more, multiplier and attempts 1 or more"
            )

    def pauses(self) -> Iterator[float]:
        """Yield the pauses between attempts, in seconds: one fewer than there are attempts."""
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
    setting: str | None = "operation_timeout",
) -> T:
    """Run ``operation`` until it succeeds or fails with an error that is not retried.

    :param policy: pauses and limits.
    :param operation: makes one attempt.
    :param retry_on: returns whether an error is retried.
    :param describe: what is being done, for the message.
    :param at_least: number of attempts that are made even after ``policy.total``.
    :param setting: what ``policy.total`` comes from, for the log; None logs nothing.
    :raises RetriesExhaustedError: all attempts failed; its cause is the last failure.
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
        over = trio.current_time() - started + (pause or 0.0) > policy.total
        ended = pause is None or (over and attempts >= at_least)
        note_failure(last, again=setting is not None and not ended, total=policy.total, setting=setting or "")
        if pause is None or ended:
            break
        await trio.sleep(pause)
    raise RetriesExhaustedError(
        f"{describe}: all {attempts} attempts in {trio.current_time() - started:.1f} s failed, "
        f"the last with: {last.message}",
        host=last.host,
    ) from last
