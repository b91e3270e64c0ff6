"""Keeps ``hpack`` from logging the headers of Pravega's calls.

At DEBUG ``hpack`` logs each header with its value, as it is sent and as it is received. They hold the
credentials, and a controller that refuses some repeats them in its answer.
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
    """Drops what is logged while this package uses ``h2``; other users of ``hpack`` keep their records."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not _silent.get()


def _hpack_loggers() -> Iterator[logging.Logger]:
    """Every logger that a module of ``hpack`` holds, under any name: its versions differ in their modules."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "hpack":
            yield from (each for each in vars(module).values() if isinstance(each, logging.Logger))


_filter: Final = _Filter()
for _logger in _hpack_loggers():
    _logger.addFilter(_filter)


def silencing_hpack(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """A synchronous method during which ``hpack`` logs nothing, in this thread and task only."""

    @functools.wraps(method)
    def silent(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        before = _silent.set(True)
        try:
            return method(self, *args, **kwargs)
        finally:
            _silent.reset(before)

    return silent
