"""Clients of the session's server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pravega_wire import PravegaClient, PravegaConfig, open_client


@asynccontextmanager
async def guarded(config: PravegaConfig, seconds: float = 120) -> AsyncIterator[PravegaClient]:
    """A client whose test ends with an error instead of hanging."""
    import trio

    with trio.fail_after(seconds):
        async with open_client(config) as client:
            yield client
