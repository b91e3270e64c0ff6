"""The result of a method that opens something: ``await`` opens it, ``async with`` also closes it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, TypeVar

from pravega_wire.errors import ClosedError, InvalidArgumentError

__all__ = ["Opening", "opening"]

P = ParamSpec("P")
T = TypeVar("T", bound=AbstractAsyncContextManager[Any])
T_co = TypeVar("T_co", bound=AbstractAsyncContextManager[Any], covariant=True)


class Opening(Generic[T_co]):
    """An object of type ``T_co`` that is about to be opened. Await it or enter it, once.

    ``async with`` opens the object and, on leaving the block, does what the object's own ``async with`` does.
    ``await`` only opens it, and the caller has to close it. Errors of opening are raised at that point;
    nothing happens before.

    Example::

        async with client.begin_transaction("demo/readings") as transaction:
            await transaction.write_event(b"21.5", "sensor-7")
            await transaction.commit()

        transaction = await client.begin_transaction("demo/readings")
        await transaction.abort()
    """

    __slots__ = ("_coroutine", "_opened", "_used")

    def __init__(self, coroutine: Coroutine[Any, Any, T_co]) -> None:
        # Holding the coroutine, not its function, keeps Python's "was never awaited" warning.
        self._coroutine = coroutine
        self._opened: AbstractAsyncContextManager[Any] | None = None
        self._used = False

    def __repr__(self) -> str:
        return f"<Opening by {self._opener}>"

    @property
    def _opener(self) -> str:
        return getattr(self._coroutine, "__qualname__", "the function")

    if not TYPE_CHECKING:  # type checkers know that there are no other attributes

        def __getattr__(self, name: str) -> Any:
            # Python itself asks for names with an underscore, also before there is a coroutine.
            hint = ""
            if not name.startswith("_"):
                hint = (
                    f"; what {self._opener}() returns is not open yet: 'await' it, or enter it with "
                    "'async with'"
                )
            raise AttributeError(f"'Opening' object has no attribute {name!r}{hint}", name=name, obj=self)

        def __enter__(self) -> NoReturn:
            self._coroutine.close()
            raise InvalidArgumentError(
                f"what {self._opener}() returns is entered with 'async with', not with 'with'"
            )

        def __exit__(self, *exc: object) -> None:
            """Python asks for it before it enters."""

    def __await__(self) -> Generator[Any, Any, T_co]:
        if self._used:
            raise ClosedError(f"what {self._opener}() returned was already opened once: call it again")
        self._used = True
        return self._coroutine.__await__()

    async def __aenter__(self) -> T_co:
        opened = await self
        self._opened = opened
        await opened.__aenter__()
        return opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._opened is not None
        return await self._opened.__aexit__(kind, error, trace)


def opening(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Opening[T]]:
    """Decorate an async function that opens something, so that its calls can be awaited or entered."""

    @wraps(method)
    def opener(*args: P.args, **kwargs: P.kwargs) -> Opening[T]:
        return Opening(method(*args, **kwargs))

    return opener
