"""Delegation tokens: what the controller gives and segment stores check.

(Controller facts v0.13.0, "Delegation tokens".)
"""

from __future__ import annotations

import base64
import binascii
import re
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import trio

from pravega_wire.controller.types import Access

if TYPE_CHECKING:
    from pravega_wire.controller.client import ControllerClient

__all__ = ["Access", "TokenCache", "expiry_of"]

REFRESH_SECONDS = 5.0
_EXPIRY = re.compile(rb'"exp"\s*:\s*(\d+)')


def expiry_of(token: str) -> float | None:
    """When a JSON web token expires (seconds since 1970), or None where it does not say."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    middle = parts[1]
    try:
        claims = base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4))
    except (binascii.Error, ValueError):
        return None
    found = _EXPIRY.search(claims)
    return float(found[1]) if found else None


class _Entry:
    __slots__ = ("expiry", "lock", "token")

    def __init__(self) -> None:
        self.token: str | None = None
        self.expiry: float | None = None
        self.lock = trio.Lock()


class TokenCache:
    """Tokens for streams, each fetched once and again shortly before it expires."""

    def __init__(self, controller: ControllerClient) -> None:
        self._controller = controller
        self._entries: dict[tuple[str, str, Access], _Entry] = {}

    def source(self, scope: str, stream: str, access: Access) -> Callable[[], Awaitable[str]]:
        """A function that gives a token good for at least 5 s; "" without authorization."""
        key = (scope, stream, access)

        async def current() -> str:
            entry = self._entries.setdefault(key, _Entry())
            if _usable(entry):
                assert entry.token is not None
                return entry.token
            async with entry.lock:
                # Whoever held the lock before may have fetched it.
                if not _usable(entry):
                    entry.token = await self._controller.get_delegation_token(scope, stream, access)
                    entry.expiry = expiry_of(entry.token)
                assert entry.token is not None
                return entry.token

        return current


def _usable(entry: _Entry) -> bool:
    if entry.token is None:
        return False
    return entry.expiry is None or time.time() + REFRESH_SECONDS < entry.expiry
