"""Makes blocking calls at the same time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

__all__ = ["at_once"]


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """Make several calls at the same time, and return their results in order.

    The last call is made in this thread.

    When this returns or raises, all calls have ended.

    :raises Exception: the error of the first call that failed, in the order of the arguments.
    """
    *others, last = calls
    with ThreadPoolExecutor(max(1, len(others)), "at-once") as pool:
        futures = [pool.submit(call) for call in others]
        try:
            results = [last()]
        except Exception:
            # Leaving the pool's context waits for the others, whose errors come first.
            for future in futures:
                future.result()
            raise
        return [future.result() for future in futures] + results
