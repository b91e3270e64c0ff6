"""``compose.yaml`` on a real engine, from ``up`` to ``down``."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pravega_wire import PravegaConfig, sync
from pravega_wire.testing.running import wait_ready

ROOT = Path(__file__).resolve().parents[2]
URI = "tcp://localhost:9090"
PROJECT = "pravega-wire-test"
CLUSTER = {"zookeeper", "bookie", "controller", "store-0", "store-1"}
PORTS = {2181, 3181, 9090, 9091, 12345, 12346, 6061, 6062}
VOLUMES = {f"{PROJECT}_{name}" for name in ("zookeeper-data", "zookeeper-log", "bookie", "storage")}

Until = Callable[[Callable[[], Any], str], Any]


@pytest.fixture(scope="module")
def command() -> list[str]:
    """Compose as a plugin (version 2), else the program ``docker-compose``."""
    plugin = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
    return ["docker", "compose"] if plugin.returncode == 0 else ["docker-compose"]


class Compose:
    """The commands that the file's header gives, for a project of its own."""

    def __init__(self, command: list[str], engine: Any, until: Until) -> None:
        self._command = [*command, "--project-name", PROJECT, "--file", str(ROOT / "compose.yaml")]
        self._engine = engine
        self._until = until

    def __call__(self, *arguments: str, check: bool = True) -> str:
        done = subprocess.run(
            [*self._command, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0 or not check, done.stdout
        return done.stdout

    def containers(self) -> dict[str, Any]:
        """By service."""
        label = "com.docker.compose.service"
        found = self._engine.containers.list(
            all=True, filters={"label": f"com.docker.compose.project={PROJECT}"}
        )
        return {each.labels[label]: each for each in found}

    def volumes(self) -> set[str]:
        return {each.name for each in self._engine.volumes.list()}

    def wait_healthy(self) -> None:
        def states() -> dict[str, str]:
            found = self.containers()
            assert found
            return {name: each.attrs["State"]["Health"]["Status"] for name, each in found.items()}

        self._until(lambda: set(states().values()) == {"healthy"}, "all services to be healthy")


@pytest.fixture
def compose(command: list[str], engine: Any, until: Until) -> Iterator[Compose]:
    found = Compose(command, engine, until)
    yield found
    for name, each in found.containers().items():
        # Shown by pytest if the test has failed.
        print(f"--- {name}: {each.status}, {each.attrs['State'].get('Health')}")
        lines = each.logs(tail=3000).decode(errors="replace").splitlines()
        told = [line for line in lines if " WARN " in line or " ERROR " in line]
        print(*told[-40:], "...", *lines[-30:], sep="\n")
    for profile in ("standalone", "cluster"):
        found("--profile", profile, "down", "--volumes")


def write(scope: str, events: list[bytes]) -> None:
    with sync.open_client(PravegaConfig(controller_uri=URI, scope=scope)) as client:
        client.create_scope(scope)
        client.create_stream("events", 4)
        with client.event_writer("events") as writer:
            writer.write_events(events)


def read(scope: str) -> list[bytes]:
    with sync.open_client(PravegaConfig(controller_uri=URI, scope=scope)) as client:
        return sorted(bytes(event) for batch in client.read_events("events") for event in batch)


def test_without_a_profile_nothing_starts(compose: Compose) -> None:
    compose("up", "-d", check=False)
    assert compose.containers() == {}


def test_standalone(compose: Compose) -> None:
    volumes = compose.volumes()
    compose("up", "-d", "standalone")
    assert compose.containers().keys() == {"standalone"}
    compose.wait_healthy()
    wait_ready(PravegaConfig(URI), seconds=600)
    events = sorted(b"event %d" % number for number in range(1000))
    write("alone", events)
    assert read("alone") == events
    compose("--profile", "standalone", "down")
    assert compose.containers() == {}
    # Compose 1 makes the named volumes of all services; none without a name may stay behind.
    assert compose.volumes() - volumes <= VOLUMES


def listening() -> set[int]:
    """TCP ports on which something in this network listens."""
    rows = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    ]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A"}


def test_a_cluster_keeps_its_data_when_it_is_taken_down(compose: Compose, until: Until) -> None:
    volumes, ports = compose.volumes(), listening()
    compose("--profile", "cluster", "up", "-d")
    assert compose.containers().keys() == CLUSTER
    compose.wait_healthy()
    wait_ready(PravegaConfig(URI), seconds=600)
    # The HTTP ports of the controller and the stores may open seconds after scopes can be created.
    until(lambda: listening() - ports >= PORTS, f"ports {sorted(PORTS)} to be open")
    # ZooKeeper and BookKeeper take one more port each, wherever one is free.
    assert {port for port in listening() - ports if port < 32768} == PORTS
    events = sorted(b"event %d" % number for number in range(10_000))
    write("kept", events)
    compose("--profile", "cluster", "down")
    assert compose.containers() == {}
    assert compose.volumes() - volumes == VOLUMES

    compose("--profile", "cluster", "up", "-d")
    compose.wait_healthy()
    wait_ready(PravegaConfig(URI), seconds=600)
    assert read("kept") == events
    write("more", events)
    assert read("more") == events
    compose("--profile", "cluster", "down", "--volumes")
    assert compose.containers() == {}
    assert compose.volumes() == volumes


def test_the_controller_is_not_healthy_because_another_program_has_its_port(engine: Any) -> None:
    """What answered was a standalone server, with the controller dead."""
    import docker

    controller = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["controller"]
    kind, *check = controller["healthcheck"]["test"]
    assert kind == "CMD"
    listen = (
        "import socket, subprocess, sys; s = socket.create_server(('127.0.0.1', 9090)); "
        "raise SystemExit(subprocess.run(sys.argv[1:]).returncode)"
    )
    image = controller["image"]
    options = {"network_mode": "host", "remove": True}

    def run(*words: str) -> None:
        engine.containers.run(image, entrypoint=list(words), **options)

    with pytest.raises(docker.errors.ContainerError):
        run(*check)
    run("python3", "-c", listen, *check)
    with socket.create_server(("127.0.0.1", 9090)):
        with pytest.raises(docker.errors.ContainerError):
            run(*check)
