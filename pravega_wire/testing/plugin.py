"""Pytest fixtures with a real Pravega; registered by this package's installation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

import pytest

from pravega_wire.errors import ServerStartError

if TYPE_CHECKING:
    from pravega_wire.testing.proxy import FaultProxy
    from pravega_wire.testing.running import PravegaCluster, PravegaServer

S = TypeVar("S")


def _started(request: pytest.FixtureRequest, context: AbstractContextManager[S]) -> Iterator[S]:
    """Enter a server's context, with what it says on the screen: the first time it fetches files."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with ExitStack() as stack:
        try:
            with nullcontext() if capture is None else capture.global_and_fixture_disabled():
                server = stack.enter_context(context)
        except ServerStartError as error:
            pytest.fail(str(error), pytrace=False)
        yield server


def pytest_addoption(parser: pytest.Parser) -> None:
    """The plugin's setting."""
    parser.addini(
        "pravega_server_memory", "heap of the server of pravega_server, which holds all data", default="2g"
    )


@pytest.fixture(scope="session")
def pravega_server(request: pytest.FixtureRequest) -> Iterator[PravegaServer]:
    """A standalone server for the whole session, with ``pravega_server_memory`` of pytest's settings (2g).

    Without one the fixture fails with a sentence that says what to do; it never skips.
    """
    from pravega_wire.testing.server import standalone

    yield from _started(request, standalone(memory=request.config.getini("pravega_server_memory")))


@pytest.fixture(scope="session")
def pravega_cluster(request: pytest.FixtureRequest) -> Iterator[PravegaCluster]:
    """A cluster of separate processes, for the whole session; a test may kill and restart them."""
    from pravega_wire.testing.server import cluster

    yield from _started(request, cluster())


@pytest.fixture
def pravega_scope(pravega_server: PravegaServer) -> str:
    """Name of a fresh scope on :func:`pravega_server`."""
    import trio

    from pravega_wire.config import PravegaConfig
    from pravega_wire.stream.client import open_client

    name = f"test-{uuid4().hex[:12]}"

    async def create() -> None:
        config = PravegaConfig.from_defaults(controller_uri=pravega_server.controller_uri, env={})
        async with open_client(config) as client:
            await client.create_scope(name)

    trio.run(create)
    return name


@pytest.fixture
def fault_proxy() -> Iterator[FaultProxy]:
    """Breaks connections on purpose: ``open_client(config, address_map=fault_proxy.address_map)``."""
    from pravega_wire.testing.proxy import FaultProxy

    with FaultProxy() as proxy:
        yield proxy
