"""Tests on a container engine with the images of ``compose.yaml``: ``scripts/container-test`` runs them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio

HERE = os.path.dirname(__file__)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("PRAVEGA_CONTAINER_TEST"):
        return
    skip = pytest.mark.skip(reason="scripts/container-test runs it, with an engine of its own")
    for item in items:
        if str(item.path).startswith(HERE):
            item.add_marker(skip)


@pytest.fixture
def engine() -> Iterator[Any]:
    import docker

    client = docker.from_env()
    yield client
    client.close()


@pytest.fixture(scope="session")
def until() -> Callable[[Callable[[], Any], str], Any]:
    """Waits for something that the engine tells only to those who ask; returns it."""

    def wait(condition: Callable[[], Any], what: str) -> Any:
        async def main() -> Any:
            with trio.move_on_after(600):
                while not (found := condition()):
                    await trio.sleep(0.2)
                return found
            raise AssertionError(f"in vain waited for {what}")

        return trio.run(main)

    return wait
