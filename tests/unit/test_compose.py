"""``compose.yaml`` by reading: there may be no container engine where the tests run."""

from __future__ import annotations

import re
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


def test_only_standalone_starts_without_a_profile(services: dict[str, Any]) -> None:
    assert [name for name, service in services.items() if not service.get("profiles")] == ["standalone"]
    assert {name for name, service in services.items() if service.get("profiles") == ["cluster"]} == {
        "zookeeper", "bookie", "controller", "store-0", "store-1",
    }  # fmt: skip


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
    ports = {"standalone": 9090, "controller": 9090, "zookeeper": 2181, "bookie": 3181}
    checked = {name: service["healthcheck"]["test"] for name, service in services.items() if name in ports}
    assert checked.keys() == ports.keys()
    for name, (kind, program, option, script) in checked.items():
        assert (kind, option) == ("CMD", "-c")
        # pravega/pravega is built on Alpine with python3 and without bash.
        assert program == ("python3" if services[name]["image"].startswith("pravega/pravega:") else "bash")
        assert str(ports[name]) in script


def test_the_fixture_s_ports_are_the_same_inside_and_outside(services: dict[str, Any]) -> None:
    words = containers.standalone_options(services["standalone"], 1111, 2222).split()
    assert "-Dsinglenode.controller.rpc.port=1111" in words
    assert "-Dsinglenode.segmentStore.port=2222" in words
    assert "-Dpravegaservice.service.published.host.nameOrIp=127.0.0.1" in words
    assert "-Xmx2g" in words


def test_a_service_that_is_not_there_is_named() -> None:
    from pravega_wire.errors import ServerStartError

    with pytest.raises(ServerStartError, match="nonesuch"):
        containers._service("nonesuch")
