"""Fixtures of the tests against the Java client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pravega_wire import PravegaConfig
from pravega_wire.sync import PravegaClient, open_client
from pravega_wire.testing import (
    PravegaServer,
    SchemaRegistryServer,
    client_classpath,
    schema_serializers_classpath,
)
from tests.interop.java_peer import JavaPeer, start_java_peer


@pytest.fixture(scope="session")
def java_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the Java programs are compiled, once for all tests."""
    return tmp_path_factory.mktemp("java")


@pytest.fixture(scope="session")
def java_peer(pravega_server: PravegaServer, java_directory: Path) -> Iterator[JavaPeer]:
    """The Java client, connected to the session's server."""
    with start_java_peer(
        pravega_server.controller_uri,
        java_directory,
        classpath=client_classpath(pravega_server.version),
    ) as peer:
        yield peer


@pytest.fixture(scope="session")
def schema_peer(pravega_schema_registry: SchemaRegistryServer, java_directory: Path) -> Iterator[JavaPeer]:
    """Java's schema serializers, connected to the session's schema registry."""
    with start_java_peer(
        pravega_schema_registry.uri,
        java_directory,
        program="SchemaPeer",
        sources=[Path(__file__).parent / "java" / "schemas" / "SchemaPeer.java"],
        classpath=schema_serializers_classpath(),
    ) as peer:
        yield peer


@pytest.fixture
def client(pravega_server: PravegaServer, pravega_scope: str) -> Iterator[PravegaClient]:
    """Our client, with the test's scope as its default."""
    config = PravegaConfig.from_defaults(
        controller_uri=pravega_server.controller_uri, scope=pravega_scope, env={}
    )
    with open_client(config) as client:
        yield client
