"""One object for what is opened: ``await`` gives it, ``async with`` closes it as well."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager
from functools import wraps
from types import TracebackType
from typing import Any, Generic, ParamSpec, TypeVar

__all__ = ["Opening", "opening"]

P = ParamSpec("P")
T = TypeVar("T", bound=AbstractAsyncContextManager[Any])
T_co = TypeVar("T_co", bound=AbstractAsyncContextManager[Any], covariant=True)


class Opening(Generic[T_co]):
    """Something that is being opened, of type ``T_co``: to be awaited or entered, once.

    ::

        async with client.begin_transaction("s/t") as transaction:
            ...
        transaction = await client.begin_transaction("s/t")

    ``async with`` opens it, and on the way out does what the ``async with`` of a ``T_co`` does. Awaiting only
    opens it, and the caller closes it. Either way errors of opening are raised there; nothing happens before.
    """

    __slots__ = ("_coroutine", "_opened")

    def __init__(self, coroutine: Coroutine[Any, Any, T_co]) -> None:
        # Not the function that makes it: Python says of a coroutine, too, that it was never awaited.
        self._coroutine = coroutine
        self._opened: AbstractAsyncContextManager[Any] | None = None

    def __repr__(self) -> str:
        return f"<Opening by {getattr(self._coroutine, '__qualname__', 'a function')}>"

    def __await__(self) -> Generator[Any, Any, T_co]:
        return self._coroutine.__await__()

    async def __aenter__(self) -> T_co:
        opened = await self._coroutine
        self._opened = opened
        await opened.__aenter__()
        return opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._opened is not None
        return await self._opened.__aexit__(kind, error, trace)


def opening(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Opening[T]]:
    """Decorates an async function that opens something: its calls can be awaited or entered."""

    @wraps(method)
    def opener(*args: P.args, **kwargs: P.kwargs) -> Opening[T]:
        return Opening(method(*args, **kwargs))

    return opener
