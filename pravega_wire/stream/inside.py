"""The one way by which other rooms of the package reach what a client is made of.

A program never needs this. The command line asks controllers and stores what no user's method asks, archives
keep attributes of segments, and both facades run functions over the trio client.

Not public.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from pravega_wire.errors import ArgumentTypeError
from pravega_wire.stream.client import PravegaClient
from pravega_wire.stream.core import ClientCore
from pravega_wire.stream.user_functions import calling_thread

__all__ = ["core_of", "run_over"]

T = TypeVar("T")


def core_of(client: PravegaClient) -> ClientCore:
    """Return the objects that all parts of a client share."""
    return client._core


async def run_over(
    client: PravegaClient,
    function: Callable[..., Awaitable[T]],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> T:
    """Call an async function of the user with the trio client; in the client's thread.

    :raises ArgumentTypeError: it is not an async function.
    """
    # What it calls in turn runs here, too, and not in the thread or the event loop that waits for it.
    calling_thread.set(None)
    given: Any = function
    if inspect.iscoroutine(given):
        given.close()
        raise ArgumentTypeError(
            f"run() was given the result of calling {given.__qualname__}: pass the function and its "
            "arguments, as in client.run(function, argument)"
        )
    if not callable(given):
        raise ArgumentTypeError(f"run() takes an async function, not {given!r:.80}")
    awaited: Any = function(client, *args, **kwargs)
    if not inspect.isawaitable(awaited):
        name = getattr(given, "__qualname__", type(given).__name__)
        raise ArgumentTypeError(f"run() takes an async function, and {name} is not one")
    result: T = await awaited
    return result
