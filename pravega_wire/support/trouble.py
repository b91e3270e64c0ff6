"""Says in the log that an operation fails and is being tried again.

Not public.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable
from typing import Final

from pravega_wire.errors import ConnectError, PravegaError, PravegaTimeoutError, RetriesExhaustedError
from pravega_wire.support.environment import environment
from pravega_wire.support.secrecy import without_secrets

__all__ = ["Trouble", "tell"]

log = logging.getLogger(__name__)

_AGAIN_SECONDS: Final = 60.0
_MOST_KNOWN: Final = 1000
_SOON_SECONDS: Final = 1.0

_told: dict[Hashable, float] = {}
"""When each kind of trouble was told last, for all clients of the process."""


def tell(doing: str, why: str, until: str, about: Hashable) -> None:
    """Log that something failed and is being tried again; at most once a minute for the same trouble.

    :param doing: what is being done.
    :param why: why it failed.
    :param until: for how long it is tried: "until 10 s have passed (operation_timeout)".
    :param about: what makes it the same trouble: its kind, and the peer.
    """
    now = environment().monotonic()
    last = _told.get(about)
    if last is not None and now - last < _AGAIN_SECONDS:
        return
    if len(_told) >= _MOST_KNOWN:
        _told.clear()
    _told[about] = now
    log.warning("%s: %s; trying %s", without_secrets(doing), without_secrets(why), until)


class Trouble:
    """The failed attempts of one operation, which are told once.

    A connection that was lost, or a segment that has moved, is usually found again at once. So a first
    failure is told only if a server could not be reached at all, or if it came late.
    """

    __slots__ = ("_failures", "_told")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin anew, after a success."""
        self._failures = 0
        self._told = False

    def note(self, error: PravegaError, doing: str, *, seconds: float, setting: str, taken: float) -> None:
        """Record that an attempt failed, and that another one will be made.

        :param error: why it failed.
        :param doing: what is being done.
        :param seconds: seconds that all attempts may take.
        :param setting: the setting that ``seconds`` comes from.
        :param taken: seconds since the first attempt began.
        """
        self._failures += 1
        if self._told:
            return
        cause: BaseException | None = error
        while isinstance(cause, RetriesExhaustedError) and cause.__cause__ is not None:
            cause = cause.__cause__
        if (
            self._failures == 1
            and taken < _SOON_SECONDS
            and not isinstance(error, ConnectError | RetriesExhaustedError | PravegaTimeoutError)
        ):
            log.debug("%s: %s; trying again", doing, without_secrets(error.message))
            return
        self._told = True
        tell(
            doing,
            error.message,
            f"until {seconds:g} s have passed ({setting})",
            (type(cause), error.host or doing),
        )
