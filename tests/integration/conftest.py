"""Clients of the session's server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pravega_wire import PravegaClient, PravegaConfig, open_client
from pravega_wire.testing import PravegaServer


@pytest.fixture
def config(pravega_server: PravegaServer, pravega_scope: str) -> PravegaConfig:
    return PravegaConfig.from_defaults(
        controller_uri=pravega_server.controller_uri, scope=pravega_scope, env={}
    )


@asynccontextmanager
async def guarded(config: PravegaConfig, seconds: float = 120) -> AsyncIterator[PravegaClient]:
    """A client whose test ends with an error instead of hanging."""
    import trio

    with trio.fail_after(seconds):
        async with open_client(config) as client:
            yield client
