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


STANDALONE = "/opt/pravega/bin/pravega-standalone"
"""What the image's own entry point runs in the end."""


def standalone_options(service: dict[str, Any], controller: int, store: int) -> str:
    """``JAVA_OPTS`` of a standalone service on these ports, the same inside the container and outside.

    The store tells clients the port it listens to, so a mapped port would not do; and the image's own
    entry point appends fixed ports to whatever it is given, so it has to be left out.
    """
    environment = service.get("environment", {})
    host = environment.get("HOST_IP", "127.0.0.1")
    return " ".join(
        (
            *str(environment.get("JAVA_OPTS", "")).split(),
            f"-Dpravegaservice.service.published.host.nameOrIp={host}",
            "-Dpravegaservice.service.listener.host.nameOrIp=0.0.0.0",
            f"-Dsinglenode.controller.rpc.port={controller}",
            f"-Dsinglenode.segmentStore.port={store}",
        )
    )


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
    options = standalone_options(service, controller, store)
    try:
        client = docker.from_env()
    except docker.errors.DockerException as error:
        raise ServerStartError(f"no container engine answers: {error}") from error
    container = None
    try:
        container = client.containers.run(
            service["image"],
            entrypoint=[STANDALONE],
            name=f"pravega-wire-{uuid4().hex[:8]}",
            environment={"JAVA_OPTS": options},
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
