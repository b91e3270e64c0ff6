"""Blocking calls made at the same time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

__all__ = ["at_once"]


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """What the calls return, in their order; the last one is made in this thread.

    All of them have ended when this returns or raises.

    :raises Exception: what the first of them that failed has raised; first in their order.
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
