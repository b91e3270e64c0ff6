"""The schema registry of the testing package."""

from __future__ import annotations

import base64

import httpx
import pytest

from pravega_wire.errors import ServerStartError
from pravega_wire.testing import PravegaServer, schema_registry, standalone

GROUP = {
    "groupName": "g",
    "groupProperties": {
        "serializationFormat": {"serializationFormat": "Json"},
        "compatibility": {"policy": "AllowAny"},
        "allowMultipleTypes": True,
        "properties": {},
    },
}
SCHEMA = {
    "type": "t",
    "serializationFormat": {"serializationFormat": "Json"},
    "schemaData": base64.b64encode(b'{"type":"object"}').decode(),
    "properties": {},
}


def test_schemas_in_pravega_outlive_the_registry(pravega_server: PravegaServer) -> None:
    for first in (True, False):
        with schema_registry(server=pravega_server) as registry, httpx.Client(base_url=registry.uri) as http:
            if first:
                assert http.post("/v1/groups", json=GROUP, timeout=60).status_code == 201
                assert http.post("/v1/groups/g/schemas", json=SCHEMA, timeout=60).status_code == 201
            found = http.get("/v1/groups/g/schemas", timeout=60).json()
            assert [each["schemaInfo"]["type"] for each in found["schemas"]] == ["t"]
        assert not registry.process.alive


def test_a_secured_server_is_refused(pravega_server: PravegaServer) -> None:
    secured = PravegaServer("jars", pravega_server.controller_uri, username="u", password="p")
    with pytest.raises(ServerStartError, match="without TLS and authentication"):
        with schema_registry(server=secured):
            pytest.fail("it was started")


@pytest.mark.real_server("both processes are looked at")
def test_a_registry_beside_a_standalone_server() -> None:
    with standalone(kind="jars", memory="512m", cache_bytes=64 << 20, schema_registry=True) as server:
        uri = server.config().schema_registry_uri
        assert uri is not None
        assert httpx.get(f"{uri}/ping", timeout=60).status_code == 200
    assert [process.alive for process in server.processes] == [False, False]
