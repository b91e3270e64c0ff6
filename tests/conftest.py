"""Shared settings: no test is judged by the clock."""

from __future__ import annotations

import inspect
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pravega_wire import PravegaConfig
    from pravega_wire.testing import PravegaServer
    from pravega_wire.testing.running import Kind

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("default")

SECONDS_UNTIL_IT_HANGS = 600
"""After which an async test is taken to hang. No test's result depends on it."""


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """An ``async def`` test is run by trio, and fails with a stack trace if it hangs."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}

    async def run() -> None:
        with trio.fail_after(SECONDS_UNTIL_IT_HANGS):
            await test(**arguments)

    trio.run(run)
    return True


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test with the marker ``needs`` on an older server, and one with ``real_server`` in memory."""
    for marker in item.iter_markers("real_server"):
        (reason,) = marker.args
        if in_memory(item.config):
            pytest.skip(f"needs a real server: {reason}")
    version = item.config.getoption("--pravega-version") or os.environ.get("PRAVEGA_TEST_VERSION")
    for marker in item.iter_markers("needs"):
        needed, feature = marker.args
        if version and numbers(version) < numbers(needed):
            pytest.skip(f"Pravega {version} lacks what {needed} has: {feature}")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With ``--dist loadfile``, one process gets all files that use a cluster, whose servers need a tenth
    of a core even when idle."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class OneCluster(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return "with a cluster" if uses_cluster(config.rootpath / file) else file

    return OneCluster(config, log)


@cache
def uses_cluster(file: Path) -> bool:
    """Whether a file of tests takes the session's cluster."""
    return "pravega_cluster" in file.read_text(encoding="utf-8")


def numbers(version: str) -> list[int]:
    """A version to compare: ``"0.11"`` as ``[0, 11]``."""
    return [int(each) for each in version.split(".")]


def in_memory(config: pytest.Config) -> bool:
    """Whether the server of this session is the one in memory."""
    return (config.getoption("--pravega-server") or os.environ.get("PRAVEGA_TEST_SERVER")) == "memory"


@pytest.fixture(scope="session")
def own_kind(pytestconfig: pytest.Config) -> Kind:
    """The kind of a server that a test starts for itself: of jars, or in memory as the session's."""
    return "memory" if in_memory(pytestconfig) else "jars"


@pytest.fixture
def config(pravega_server: PravegaServer, pravega_scope: str) -> PravegaConfig:
    """The configuration of a client: the session's server, and a scope for this test alone."""
    return pravega_server.config(pravega_scope)
