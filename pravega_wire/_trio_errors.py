"""The errors that are also errors of trio. They are apart because importing trio takes long.

Not public: :mod:`pravega_wire.errors` exports them.
"""

from __future__ import annotations

import trio

from pravega_wire.errors import PravegaError

__all__ = ["BrokenStreamError", "ClosedError", "ConcurrentUseError"]


class ClosedError(PravegaError, trio.ClosedResourceError):
    """The client, writer, reader or transaction is closed, or was closed during the call."""


class ConcurrentUseError(PravegaError, trio.BusyResourceError):
    """A second task used an object that only one task may use at a time.

    The call that raises this error did nothing, and the other task's call is not affected.
    """


class BrokenStreamError(PravegaError, trio.BrokenResourceError):
    """The writer of a byte stream has failed and accepts no more bytes; ``__cause__`` is the reason."""


for _each in (BrokenStreamError, ClosedError, ConcurrentUseError):
    _each.__module__ = "pravega_wire.errors"
