"""Keeps ``hpack`` from logging the headers of Pravega's calls.

At DEBUG, ``hpack`` logs each header with its value when it is sent or received. The headers contain the
credentials, and a controller that refuses them repeats them in its answer (``docs/protocol/unforgiving.md``,
"Credentials in refusals").
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Concatenate, Final, ParamSpec, TypeVar

import h2.connection  # noqa: F401  # loads hpack, with all its modules

__all__ = ["silencing_hpack"]

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")

_silent: ContextVar[bool] = ContextVar("pravega_wire_silences_hpack", default=False)


class _Filter(logging.Filter):
    """Drops what is logged while this package uses ``h2``; other users of ``hpack`` are not affected."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not _silent.get()


def _hpack_loggers() -> Iterator[logging.Logger]:
    """Yield every logger of a module of ``hpack``, under any name: modules differ between its versions."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "hpack":
            yield from (each for each in vars(module).values() if isinstance(each, logging.Logger))


_filter: Final = _Filter()
for _logger in _hpack_loggers():
    _logger.addFilter(_filter)


def silencing_hpack(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Decorate a synchronous method so that ``hpack`` logs nothing in it, in this thread and task only."""

    @functools.wraps(method)
    def silent(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        before = _silent.set(True)
        try:
            return method(self, *args, **kwargs)
        finally:
            _silent.reset(before)

    return silent
