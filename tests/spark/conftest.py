"""A scope of the session's server for all tests here, and a Spark session for each module."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from examples.flights_demo.job import spark_session
from pravega_wire import PravegaConfig
from pravega_wire.sync import PravegaClient, open_client
from pravega_wire.testing import PravegaServer

SCOPE = "spark"
ROOT = str(Path(__file__).resolve().parents[2])


@pytest.fixture(scope="session")
def config(pravega_server: PravegaServer) -> PravegaConfig:
    """Configuration of a client of the session's server, with one scope for all tests of Spark."""
    return PravegaConfig.from_defaults(controller_uri=pravega_server.controller_uri, scope=SCOPE, env={})


@pytest.fixture(scope="session")
def client(config: PravegaConfig) -> Iterator[PravegaClient]:
    """A blocking client; the scope exists."""
    with open_client(config) as opened:
        opened.create_scope(SCOPE)
        yield opened


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """Two task slots; a task may be tried three times."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # the workers import what is tested from here, as this process does
    os.environ["PYTHONPATH"] = os.pathsep.join([ROOT, os.environ.get("PYTHONPATH", "")])
    session = spark_session("pravega tests", "local[2,3]")
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def stream(client: PravegaClient) -> str:
    """A new stream of two segments."""
    name = f"data-{uuid4().hex[:12]}"
    client.create_stream(name, 2)
    return name


@pytest.fixture
def ledger(client: PravegaClient) -> str:
    """Name of a ledger stream that does not exist yet."""
    return f"ledger-{uuid4().hex[:12]}"
