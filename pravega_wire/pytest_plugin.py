"""Pytest fixtures with a real Pravega server. The installation of this package registers them.

Not public: pytest imports it, in every run; so the client is imported only when a fixture is used.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

import pytest

from pravega_wire.errors import PravegaError

if TYPE_CHECKING:
    from pravega_wire.testing.proxy import FaultProxy
    from pravega_wire.testing.running import PravegaCluster, PravegaServer
    from pravega_wire.testing.schema_registry import SchemaRegistryServer

S = TypeVar("S")


def _started(request: pytest.FixtureRequest, context: AbstractContextManager[S]) -> Iterator[S]:
    """Enter a server's context without capturing its output: it reports the first download of the jars."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with ExitStack() as stack:
        failed = None
        try:
            with nullcontext() if capture is None else capture.global_and_fixture_disabled():
                server = stack.enter_context(context)
        except PravegaError as error:
            failed = str(error)
        if failed is not None:
            # Outside of the handler: pytest would show the sentence once for each error of the chain.
            pytest.fail(failed, pytrace=False)
        yield server


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the plugin's settings to pytest."""
    parser.getgroup("pravega").addoption(
        "--pravega-server",
        choices=("address", "containers", "jars", "memory"),
        help="the kind of server of the fixture pravega_server: one at an address, in a container, from the "
        "published jars, or in memory (default: the variable PRAVEGA_TEST_SERVER, else the first of the "
        "other three that is available)",
    )
    parser.getgroup("pravega").addoption(
        "--pravega-version",
        metavar="VERSION",
        help="the version of the servers of the fixtures pravega_server and pravega_cluster, such as 0.12.0, "
        "from the published jars (default: the variable PRAVEGA_TEST_VERSION, else 0.13.0)",
    )
    parser.addini(
        "pravega_server_memory",
        "heap size of the server of the fixture pravega_server, which keeps all data in memory",
        default="2g",
    )


@pytest.fixture(scope="session")
def pravega_server(request: pytest.FixtureRequest) -> Iterator[PravegaServer]:
    """Provide a standalone server for the whole test session.

    pytest's option ``--pravega-server`` selects its kind, and ``--pravega-version`` its version. Its heap
    size is pytest's setting ``pravega_server_memory`` (default 2g). If the server cannot be started, the
    tests fail with a message that says what to do; they are never skipped.

    Example::

        from pravega_wire import sync

        def test_streams(pravega_server):
            with sync.open_client(pravega_server.config()) as client:
                client.create_scope("demo")
                assert client.create_stream("demo/readings")
    """
    from pravega_wire.testing.server import standalone

    yield from _started(
        request,
        standalone(
            kind=request.config.getoption("--pravega-server"),
            version=request.config.getoption("--pravega-version"),
            memory=request.config.getini("pravega_server_memory"),
        ),
    )


@pytest.fixture(scope="session")
def pravega_cluster(request: pytest.FixtureRequest) -> Iterator[PravegaCluster]:
    """Provide a cluster of separate processes for the whole test session.

    A test may kill and restart its stores and controllers. When the process with ZooKeeper and the bookie
    ends, all that the cluster has stored is lost.

    Example::

        from pravega_wire import sync

        def test_a_store_is_killed(pravega_cluster):
            with sync.open_client(pravega_cluster.config()) as client:
                client.create_scope("demo")
                client.create_stream("demo/readings", 4)
                pravega_cluster.stores[0].kill()
                try:
                    with client.event_writer("demo/readings") as writer:
                        writer.write_event(b"21.5").wait()  # its segment moves to the other store
                finally:
                    pravega_cluster.stores[0].start()
    """
    from pravega_wire.testing.server import cluster

    yield from _started(request, cluster(version=request.config.getoption("--pravega-version")))


@pytest.fixture(scope="session")
def pravega_schema_registry(request: pytest.FixtureRequest) -> Iterator[SchemaRegistryServer]:
    """Provide a schema registry, which keeps its schemas in memory, for the whole test session.

    Example::

        import httpx

        def test_ping(pravega_schema_registry):
            assert httpx.get(f"{pravega_schema_registry.uri}/ping").is_success
    """
    from pravega_wire.testing.schema_registry import schema_registry

    yield from _started(request, schema_registry())


@pytest.fixture
def pravega_scope(pravega_server: PravegaServer) -> Iterator[str]:
    """Create a new scope on :func:`pravega_server`, and provide its name.

    A server at an address outlives the tests, so there the scope is deleted after the test, with all that is
    in it.

    Example::

        from pravega_wire import sync

        def test_writing(pravega_server, pravega_scope):
            with sync.open_client(pravega_server.config(pravega_scope)) as client:
                client.create_stream("readings")
                with client.event_writer("readings") as writer:
                    writer.write_event(b"21.5", "sensor-7").wait()
    """
    import trio

    from pravega_wire.stream.client import open_client

    name = f"test-{uuid4().hex[:12]}"

    async def create() -> None:
        async with open_client(pravega_server.config()) as client:
            await client.create_scope(name)

    async def delete() -> None:
        async with open_client(pravega_server.config()) as client:
            await client.delete_scope(name, recursive=True)

    trio.run(create)
    yield name
    if pravega_server.kind == "address":
        try:
            trio.run(delete)
        except PravegaError as error:
            # What the test has found out counts, not this.
            warnings.warn(
                f"the scope {name} was left on the server at {pravega_server.controller_uri}: {error}",
                stacklevel=1,
            )


@pytest.fixture
def fault_proxy() -> Iterator[FaultProxy]:
    """Provide a proxy that breaks connections to segment stores on purpose.

    Example::

        from pravega_wire import sync
        from pravega_wire.protocol.commands import DataAppended

        def test_lost_acknowledgement(pravega_server, pravega_scope, fault_proxy):
            config = pravega_server.config(pravega_scope)
            with sync.open_client(config, address_map=fault_proxy.address_map) as client:
                client.create_stream("readings")
                fault_proxy.cut_before_reply(DataAppended)
                with client.event_writer("readings") as writer:
                    writer.write_event(b"21.5").wait()  # sent again, and stored once
            assert fault_proxy.cuts == 1
    """
    from pravega_wire.testing.proxy import FaultProxy

    with FaultProxy() as proxy:
        yield proxy
