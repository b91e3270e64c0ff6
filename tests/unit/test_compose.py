"""``compose.yaml`` by reading, for machines without a container engine; ``tests/container`` runs it."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml

from pravega_wire.testing import containers

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    return found


def test_the_packaged_file_is_the_one_in_the_root() -> None:
    packaged = resources.files("pravega_wire.testing").joinpath("compose.yaml").read_bytes()
    assert packaged == (ROOT / "compose.yaml").read_bytes()


def test_no_profile_starts_a_service_of_the_other(services: dict[str, Any]) -> None:
    """A service without a profile would start with every profile, and take the other's ports."""
    profiles = {name: service.get("profiles") for name, service in services.items()}
    assert profiles.pop("standalone") == ["standalone"]
    assert profiles.keys() == {"zookeeper", "bookie", "controller", "store-0", "store-1"}
    assert all(each == ["cluster"] for each in profiles.values())


def test_every_pravega_image_is_of_the_protocol_s_version(services: dict[str, Any]) -> None:
    images = {service["image"] for service in services.values() if "pravega" in service["image"]}
    assert images == {"pravega/pravega:0.13.0", "pravega/bookkeeper:0.13.0"}


def options(service: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for word in service["environment"]["JAVA_OPTS"].split():
        if found := re.fullmatch(r"-D([\w.]+)=(\S+)", word):
            yield found[1], found[2]


def test_stores_and_controller_agree_on_containers_and_share_no_port(services: dict[str, Any]) -> None:
    stores = [dict(options(services[name])) for name in ("store-0", "store-1")]
    counts = {each["pravegaservice.container.count"] for each in stores}
    assert counts == {dict(options(services["controller"]))["controller.container.count"]}
    ports = [value for each in stores for key, value in each.items() if key.endswith(".port")]
    assert len(ports) == len(set(ports)) == 6
    for name, each in zip(("store-0", "store-1"), stores, strict=True):
        published = str(services[name]["environment"]["PUBLISHED_PORT"])
        assert published == each["pravegaservice.service.listener.port"]


def test_every_dependency_is_a_service_with_a_health_check(services: dict[str, Any]) -> None:
    for service in services.values():
        for name in service.get("depends_on", {}):
            assert "healthcheck" in services[name]


def test_health_checks_ask_for_the_service_s_own_port(services: dict[str, Any]) -> None:
    for name, port in {"standalone": 9090, "zookeeper": 2181, "bookie": 3181}.items():
        kind, program, option, script = services[name]["healthcheck"]["test"]
        assert (kind, option) == ("CMD", "-c")
        # pravega/pravega is built on Alpine with python3 and without bash.
        assert program == ("python3" if name == "standalone" else "bash")
        assert str(port) in script


def own_port_check(services: dict[str, Any], name: str) -> list[str]:
    """The check as a command of this machine."""
    kind, program, option, script = services[name]["healthcheck"]["test"]
    assert (kind, program, option) == ("CMD", "python3", "-c")
    return [sys.executable, "-c", script]


@pytest.mark.parametrize("name", ["controller", "store-0", "store-1"])
def test_services_in_the_machine_s_network_look_for_their_own_listening_socket(
    services: dict[str, Any], name: str
) -> None:
    check = own_port_check(services, name)
    assert "9090" in check[2]  # the default, which is the controller's
    assert "PUBLISHED_PORT" not in services["controller"]["environment"]
    assert ("PUBLISHED_PORT" in services[name]["environment"]) == (name != "controller")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        environment = os.environ | {"PUBLISHED_PORT": str(listener.getsockname()[1])}
        assert subprocess.run(check, env=environment, check=False).returncode == 1
        listener.listen()
        # Every process of this machine counts here; tests/container shows that another container's do not.
        assert subprocess.run(check, env=environment, check=False).returncode == 0


def test_the_bookie_takes_no_port_for_its_web_server(services: dict[str, Any]) -> None:
    assert services["bookie"]["environment"]["BK_httpServerEnabled"] == "false"


def test_zookeeper_s_third_volume_is_not_one_without_a_name(services: dict[str, Any]) -> None:
    assert services["zookeeper"]["tmpfs"] == ["/logs"]


def test_the_header_names_every_port_of_the_cluster(services: dict[str, Any]) -> None:
    text = (ROOT / "compose.yaml").read_text()
    header = text[: text.index("x-store")]
    ports = {"9090", "9091", "2181", "3181"}
    for name in ("store-0", "store-1"):
        found = dict(options(services[name]))
        ports |= {found["pravegaservice.service.listener.port"], found["pravegaservice.rest.listener.port"]}
    assert set(re.findall(r"\b\d{4,5}\b", header)) == ports


def test_the_fixture_s_ports_are_the_same_inside_and_outside(services: dict[str, Any]) -> None:
    words = containers.standalone_options(services["standalone"], 1111, 2222).split()
    assert "-Dsinglenode.controller.rpc.port=1111" in words
    assert "-Dsinglenode.segmentStore.port=2222" in words
    assert "-Dpravegaservice.service.published.host.nameOrIp=127.0.0.1" in words
    assert "-Xmx2g" in words


def test_the_fixture_s_memory_and_cache_win_over_the_file_s(services: dict[str, Any]) -> None:
    words = containers.standalone_options(
        services["standalone"], 1, 2, memory="3g", cache_bytes=5 << 20
    ).split()
    for option, value in {
        "-Xmx": "3g", "-XX:MaxDirectMemorySize=": "3g", "-Dpravegaservice.cache.size.max=": str(5 << 20),
    }.items():  # fmt: skip
        assert [word for word in words if word.startswith(option)][-1] == option + value


def test_a_service_that_is_not_there_is_named() -> None:
    from pravega_wire.errors import ServerStartError

    with pytest.raises(ServerStartError, match="nonesuch"):
        containers._service("nonesuch")
