"""Starts the services of ``compose.yaml`` as servers for tests, with the ``docker`` package."""

from __future__ import annotations

import json
import os
import sys
import tarfile
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any
from uuid import uuid4

from pravega_wire.errors import ServerStartError
from pravega_wire.testing.launching import java_memory
from pravega_wire.testing.processes import Guard, free_ports, log_directory
from pravega_wire.testing.running import PravegaServer, wait_ready

__all__ = ["LABEL", "container_server", "image_is_there"]

LABEL = "io.pravega-wire.testing"
"""The label of every container that is started here; its value is the process id of the program."""

_INSTEAD = "set PRAVEGA_TEST_SERVER=jars to use the published jars instead"


def image_is_there() -> bool:
    """Return True if a container engine responds and already has the image of the standalone server."""
    try:
        import docker

        image = _service(_SERVICE)["image"]
    except ImportError:
        return False
    try:
        client = docker.from_env(timeout=3)
        try:
            client.images.get(image)
        finally:
            client.close()
    except (docker.errors.DockerException, OSError):
        return False
    return True


def _service(name: str) -> dict[str, Any]:
    """Return a service of the packaged ``compose.yaml``."""
    import yaml

    text = resources.files("pravega_wire.testing").joinpath("compose.yaml").read_text()
    services = yaml.safe_load(text)["services"]
    if name not in services:
        raise ServerStartError(f"compose.yaml has no service {name!r}")
    found: dict[str, Any] = services[name]
    return found


_SERVICE = "standalone"

STANDALONE = "/opt/pravega/bin/pravega-standalone"
"""The program that the image's own entry point finally runs."""

STANDALONE_LOG = "/opt/pravega/standalone.log"
"""The log file of the image's standalone server; the container's output contains little of it."""


def standalone_options(
    service: dict[str, Any],
    controller: int,
    store: int,
    *,
    memory: str | None = None,
    cache_bytes: int | None = None,
) -> str:
    """Return ``JAVA_OPTS`` for a standalone service on these ports.

    The ports are the same inside and outside the container.

    The store reports to clients the port that it listens on, so a mapped port would not work. The image's own
    entry point always appends fixed ports, so it is not used.

    :param service: the service from ``compose.yaml``.
    :param controller: port of the controller.
    :param store: port of the segment store.
    :param memory: heap and direct memory; default: those of the service.
    :param cache_bytes: cache size of the segment store in bytes; default: that of the service.
    """
    environment = service.get("environment", {})
    host = environment.get("HOST_IP", "127.0.0.1")
    # If an option is given twice, Java uses the last one.
    own = [] if memory is None else java_memory(memory, memory)
    if cache_bytes is not None:
        own.append(f"-Dpravegaservice.cache.size.max={cache_bytes}")
    return " ".join(
        (
            *str(environment.get("JAVA_OPTS", "")).split(),
            *own,
            f"-Dpravegaservice.service.published.host.nameOrIp={host}",
            "-Dpravegaservice.service.listener.host.nameOrIp=0.0.0.0",
            f"-Dsinglenode.controller.rpc.port={controller}",
            f"-Dsinglenode.segmentStore.port={store}",
        )
    )


class _Watched:
    """A container that is starting: whether it still runs, and its last log lines."""

    def __init__(self, name: str, container: Any, log_dir: Path) -> None:
        self.name = name
        self._container = container
        self._log_dir = log_dir

    @property
    def alive(self) -> bool:
        from docker.errors import DockerException

        try:
            self._container.reload()
        except (DockerException, OSError):
            return False
        return self._container.status not in ("exited", "dead", "removing")

    def explain(self) -> str:
        """Return the end of its logs, for an error message. The whole logs are kept in the log directory."""
        self.save_logs()
        lines: list[str] = []
        for path in sorted(self._log_dir.glob("*.log")):
            lines += path.read_text(errors="replace").splitlines()[-20:]
        return "\n".join(lines)

    def save_logs(self) -> None:
        """Copy its logs into the log directory, as far as the engine still has them."""
        from docker.errors import DockerException

        try:
            (self._log_dir / "container.log").write_bytes(self._container.logs())
            with tempfile.TemporaryFile() as packed:
                pieces, _ = self._container.get_archive(STANDALONE_LOG)
                for piece in pieces:
                    packed.write(piece)
                packed.seek(0)
                with tarfile.open(fileobj=packed) as archive:
                    member = archive.extractfile(Path(STANDALONE_LOG).name)
                    if member is not None:
                        with (self._log_dir / "standalone.log").open("wb") as file:
                            while piece := member.read(1 << 20):
                                file.write(piece)
        except (DockerException, OSError, KeyError, tarfile.TarError):
            pass  # the image writes no such file, or the container or the engine no longer exists


_REMOVE = """
import sys, time
import docker
client = docker.from_env()
for _ in range(20):
    try:
        client.containers.get(sys.argv[1]).remove(force=True, v=True)
        break
    except docker.errors.NotFound:
        time.sleep(0.5)  # the engine may still be about to create it
    except docker.errors.APIError:
        time.sleep(0.5)  # it is being removed, or started
"""


def _removal(name: str) -> str:
    """Return the command with which the guard removes this container after this process has died."""
    environment = {key: value for key, value in os.environ.items() if key.startswith("DOCKER_")}
    # The guard was started earlier, so it has neither these variables nor this process's package path.
    environment["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, sys.path))
    return json.dumps({"run": [sys.executable, "-c", _REMOVE, name], "environment": environment})


def _create(client: Any, image: str, **options: Any) -> Any:
    """Create a container without starting it; pull its image if the engine does not have it."""
    from docker.errors import ImageNotFound

    try:
        return client.containers.create(image, **options)
    except ImageNotFound:
        client.images.pull(image)
        return client.containers.create(image, **options)


@contextmanager
def container_server(
    *, memory: str | None = None, cache_bytes: int | None = None, port: int | None = None
) -> Iterator[PravegaServer]:
    """Run the standalone server of ``compose.yaml`` on free ports of this machine.

    The container is removed when the context or this process ends.

    :param memory: heap and direct memory of the Java process; default: those of the service.
    :param cache_bytes: cache size of the segment store in bytes; default: that of the service.
    :param port: port of the controller on 127.0.0.1; default: a free port.
    :raises ServerStartError: there is no container engine or no image, or the service does not become ready.
    """
    try:
        import docker

        service = _service(_SERVICE)
    except ImportError as error:
        raise ServerStartError(
            "containers need the docker and PyYAML packages: pip install 'pravega-wire[testing]'"
        ) from error
    with log_directory(f"container-{_SERVICE}") as log_dir:
        controller, store = free_ports(2, first=port)
        options = standalone_options(service, controller, store, memory=memory, cache_bytes=cache_bytes)
        try:
            client = docker.from_env()
        except docker.errors.DockerException as error:
            raise ServerStartError(f"no container engine responds: {error}; {_INSTEAD}") from error
        container_name = f"pravega-wire-{uuid4().hex[:8]}"
        removal = _removal(container_name)
        container = None
        try:
            # Before the container is created, because this process may be killed at any moment.
            Guard.tell(f"+{removal}")
            try:
                container = _create(
                    client,
                    service["image"],
                    entrypoint=[STANDALONE],
                    name=container_name,
                    labels={LABEL: str(os.getpid())},
                    environment={"JAVA_OPTS": options},
                    ports={f"{port}/tcp": ("127.0.0.1", port) for port in (controller, store)},
                )
                container.start()
            except (docker.errors.DockerException, OSError) as error:
                raise ServerStartError(
                    f"the container of service {_SERVICE} ({service['image']}) cannot be started: {error}; "
                    f"{_INSTEAD}"
                ) from error
            watched = _Watched(f"the container of service {_SERVICE}", container, log_dir)
            server = PravegaServer("containers", f"tcp://127.0.0.1:{controller}", log_dir)
            wait_ready(server.config(), processes=[watched])
            yield server
        finally:
            if container is not None:
                _Watched(_SERVICE, container, log_dir).save_logs()
            if _removed(client, container_name):
                Guard.tell(f"-{removal}")
            client.close()


def _removed(client: Any, name: str) -> bool:
    """Remove a container if it exists. Errors only warn, because raising would hide why the context ends."""
    import docker

    try:
        # By its name: if its creation was interrupted, nothing else is known.
        client.containers.get(name).remove(force=True, v=True)
    except docker.errors.NotFound:
        return True
    except (docker.errors.DockerException, OSError) as error:
        warnings.warn(
            f"container {name} cannot be removed yet; removal is retried when the program ends: {error}",
            ResourceWarning,
            stacklevel=2,
        )
        return False
    return True
