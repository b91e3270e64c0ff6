"""Delegation tokens, which the controller issues and segment stores check.

See ``docs/protocol/controller.md``, "Delegation tokens".
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING

import trio

from pravega_wire.controller.types import Access
from pravega_wire.support.environment import environment

if TYPE_CHECKING:
    from pravega_wire.controller.client import ControllerClient

__all__ = ["Access", "StreamToken", "TokenCache", "expires_soon", "expiry_of"]

REFRESH_SECONDS = 5.0
_EXPIRY = re.compile(rb'"exp"\s*:\s*(\d+)')


def expiry_of(token: str) -> float | None:
    """Return when a JSON Web Token expires (seconds since 1970); None if it does not name a time."""
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


def expires_soon(expiry: float | None) -> bool:
    """Return whether a token should be replaced.

    :param expiry: when it expires, seconds since 1970; None if it does not name a time.
    """
    return expiry is not None and environment().wall() + REFRESH_SECONDS >= expiry


class _Entry:
    __slots__ = ("expiry", "lock", "token")

    def __init__(self) -> None:
        self.token: str | None = None
        self.expiry: float | None = None
        self.lock = trio.Lock()


class TokenCache:
    """A cache of tokens for streams. Each is fetched once, and again shortly before it expires.

    :param controller: issues the tokens.
    """

    def __init__(self, controller: ControllerClient) -> None:
        self._controller = controller
        self._entries: dict[tuple[str, str, Access], _Entry] = {}

    def source(self, scope: str, stream: str, access: Access) -> StreamToken:
        """Return the source of a stream's tokens."""
        return StreamToken(self, scope, stream, access)

    def expire(self, scope: str, stream: str, access: Access, token: str) -> None:
        """Drop ``token`` from the cache, unless another one has replaced it already."""
        entry = self._entries.get((scope, stream, access))
        if entry is not None and entry.token == token:
            entry.token = None

    async def current(self, scope: str, stream: str, access: Access) -> str:
        """Return a token that is valid for at least 5 s; "" without authorization."""
        entry = self._entries.setdefault((scope, stream, access), _Entry())
        if not _usable(entry):
            async with entry.lock:
                # Another task may have fetched it while this one waited for the lock.
                if not _usable(entry):
                    entry.token = await self._controller.get_delegation_token(scope, stream, access)
                    entry.expiry = expiry_of(entry.token)
        assert entry.token is not None
        return entry.token


class StreamToken:
    """Token source of a segment: calling and awaiting it returns a token, and :meth:`expire` drops it."""

    __slots__ = ("_cache", "_key", "_last")

    def __init__(self, cache: TokenCache, scope: str, stream: str, access: Access) -> None:
        self._cache = cache
        self._key = (scope, stream, access)
        self._last = ""

    async def __call__(self) -> str:
        """See :meth:`TokenCache.current`."""
        self._last = await self._cache.current(*self._key)
        return self._last

    def expire(self) -> None:
        """Fetch another token next time, because a segment store reports that the last one has expired."""
        if self._last:
            self._cache.expire(*self._key, self._last)


def _usable(entry: _Entry) -> bool:
    if entry.token is None:
        return False
    return not expires_soon(entry.expiry)
