"""The services of ``compose.yaml`` as a server for tests, through the ``docker`` package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from typing import Any
from uuid import uuid4

from pravega_wire.errors import ServerStartError
from pravega_wire.testing.server import PravegaServer, free_ports, new_log_dir, wait_ready

__all__ = ["container_server", "engine_answers"]


def engine_answers() -> bool:
    """Whether a container engine can be talked to."""
    try:
        import docker
    except ImportError:
        return False
    try:
        client = docker.from_env(timeout=3)
        try:
            return bool(client.ping())
        finally:
            client.close()
    except (docker.errors.DockerException, OSError):
        return False


def _service(name: str) -> dict[str, Any]:
    """A service of the packaged ``compose.yaml``."""
    import yaml

    text = resources.files("pravega_wire.testing").joinpath("compose.yaml").read_text()
    services = yaml.safe_load(text)["services"]
    if name not in services:
        raise ServerStartError(f"compose.yaml has no service {name!r}")
    found: dict[str, Any] = services[name]
    return found


@contextmanager
def container_server(name: str) -> Iterator[PravegaServer]:
    """Run one self-contained service of ``compose.yaml`` on free ports of this machine.

    :raises ServerStartError: no engine, no image, or the service does not get ready.
    """
    try:
        import docker
    except ImportError as error:
        raise ServerStartError(
            "containers need the docker package: pip install 'pravega-wire[testing]'"
        ) from error
    service = _service(name)
    log_dir = new_log_dir(f"container-{name}")
    controller, store = free_ports(2)
    environment = {key: str(value) for key, value in service.get("environment", {}).items()}
    # The store tells the controller, and so clients, which port it is reached at from outside.
    options = environment.get("JAVA_OPTS", "")
    environment["JAVA_OPTS"] = (
        f"{options} -Dsinglenode.controller.rpc.port={controller} -Dsinglenode.segmentStore.port={store}"
    ).strip()
    try:
        client = docker.from_env()
    except docker.errors.DockerException as error:
        raise ServerStartError(f"no container engine answers: {error}") from error
    container = None
    try:
        container = client.containers.run(
            service["image"],
            command=service.get("command"),
            name=f"pravega-wire-{uuid4().hex[:8]}",
            environment=environment,
            ports={f"{port}/tcp": ("127.0.0.1", port) for port in (controller, store)},
            detach=True,
        )
        uri = f"tcp://127.0.0.1:{controller}"
        wait_ready(uri)
        yield PravegaServer("containers", uri, log_dir)
    except docker.errors.DockerException as error:
        raise ServerStartError(
            f"the container of service {name} ({service['image']}) does not start: {error}"
        ) from error
    finally:
        if container is not None:
            (log_dir / "container.log").write_bytes(container.logs())
            container.remove(force=True)
        client.close()
