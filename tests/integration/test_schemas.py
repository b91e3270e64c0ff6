"""The clients of the schema registry against a real registry, and its serializers on a real stream."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import uuid4

import pytest
import trio
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from pravega_wire import Credentials, Event, PravegaConfig, aio, open_client, sync
from pravega_wire.errors import (
    AuthenticationError,
    CodecNotRegisteredError,
    InvalidArgumentError,
    SchemaFormatError,
    SchemaIncompatibleError,
    SchemaMalformedError,
    SchemaNotFoundError,
    SchemaRegistryReplyError,
)
from pravega_wire.schemas import (
    AvroSchema,
    Codec,
    CodecType,
    Compatibility,
    CompatibilityPolicy,
    EventSchema,
    GroupProperties,
    JsonSchema,
    ProtobufSchema,
    SchemaInfo,
    SchemaRegistry,
    SerializationFormat,
    VersionInfo,
)
from pravega_wire.testing import SchemaRegistryServer, schema_registry


def reading(*more: object) -> AvroSchema:
    return AvroSchema(
        {"type": "record", "name": "Reading", "fields": [{"name": "device", "type": "int"}, *more]}
    )


FIRST = reading()
OPTIONAL = reading({"name": "place", "type": "string", "default": "hall"})
REQUIRED = reading({"name": "place", "type": "string"})
OBJECT = JsonSchema("thing", {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
                              "properties": {"a": {"const": 1}}, "if": {"required": ["a"]}})  # fmt: skip


@pytest.fixture
def registry(pravega_schema_registry: SchemaRegistryServer) -> Iterator[sync.SchemaRegistry]:
    with sync.SchemaRegistry(pravega_schema_registry.uri) as registry:
        yield registry


@pytest.fixture
def group() -> str:
    return f"group {uuid4().hex[:12]}/ü"


def test_groups(registry: sync.SchemaRegistry, group: str) -> None:
    given = GroupProperties(SerializationFormat.AVRO, CompatibilityPolicy.FULL, False, {"owner": "me"})
    assert registry.create_group(group, given)
    assert not registry.create_group(group)
    assert registry.group_properties(group) == given == registry.list_groups()[group]
    assert not registry.set_compatibility(
        group, CompatibilityPolicy.ALLOW_ANY, previous=CompatibilityPolicy.DENY_ALL
    )
    assert registry.set_compatibility(group, CompatibilityPolicy.DENY_ALL, previous=CompatibilityPolicy.FULL)
    assert registry.group_properties(group).compatibility == Compatibility(CompatibilityPolicy.DENY_ALL)
    registry.delete_group(group)
    registry.delete_group(group)
    for call in (registry.group_properties, registry.codecs, registry.history, registry.schema_versions,
                 registry.latest_schema, registry.deserializer):  # fmt: skip
        with pytest.raises(SchemaNotFoundError) as caught:
            call(group)
        assert caught.value.group == group
    assert group not in registry.list_groups()


def test_more_groups_than_a_page_has(registry: sync.SchemaRegistry) -> None:
    names = {f"many-{uuid4().hex[:8]}-{number}" for number in range(120)}
    for name in names:
        registry.create_group(name)
    assert names <= set(registry.list_groups())
    for name in names:
        registry.delete_group(name)


def test_namespaces_are_apart(pravega_schema_registry: SchemaRegistryServer, group: str) -> None:
    for namespace in ("one", "two"):
        with sync.SchemaRegistry(pravega_schema_registry.uri, namespace=namespace) as registry:
            assert registry.create_group(group)
            assert group in registry.list_groups()


@pytest.mark.smoke
def test_schemas_and_their_versions(registry: sync.SchemaRegistry, group: str) -> None:
    before = datetime.now(UTC) - timedelta(minutes=1)
    registry.create_group(group)
    first, second = registry.add_schema(group, FIRST), registry.add_schema(group, OPTIONAL)
    third = registry.add_schema(group, OBJECT)
    assert registry.add_schema(group, FIRST) == first
    assert [(each.version, each.id, each.type) for each in (first, second, third)] == [
        (0, 0, "Reading"),
        (1, 1, "Reading"),
        (0, 2, "thing"),
    ]
    assert [each.version for each in registry.schema_versions(group)] == [first, second, third]
    assert [each.version for each in registry.schema_versions(group, "Reading")] == [first, second]
    assert registry.schema_versions(group, "nothing") == []
    assert {each.version for each in registry.latest_schemas(group)} == {second, third}
    assert registry.latest_schema(group).version == third
    assert registry.latest_schema(group, "Reading").version == second
    with pytest.raises(SchemaNotFoundError, match="no schema of type nothing"):
        registry.latest_schema(group, "nothing")
    assert registry.schema_by_id(group, 0).type == "Reading"
    assert registry.schema_by_version(group, SerializationFormat.AVRO, "Reading", 1) == registry.schema_by_id(
        group, 1
    )
    with pytest.raises(SchemaNotFoundError):
        registry.schema_by_id(group, 99)
    assert registry.version_of(group, OPTIONAL) == second
    assert registry.version_of(group, registry.schema_by_id(group, 0)) == first
    assert registry.references(OPTIONAL)[group] == second
    entries = registry.history(group)
    assert [each.version for each in entries] == [first, second, third]
    assert all(before < each.added_at < datetime.now(UTC) + timedelta(minutes=1) for each in entries)
    assert entries[0].compatibility.policy is CompatibilityPolicy.ALLOW_ANY
    registry.delete_schema(group, 0)
    with pytest.raises(SchemaNotFoundError):
        registry.version_of(group, FIRST)


@pytest.mark.parametrize(
    ("policy", "accepted"),
    [
        # From the first schema: to one with another field, with and without a default.
        (CompatibilityPolicy.ALLOW_ANY, {"OPTIONAL", "REQUIRED"}),
        (CompatibilityPolicy.DENY_ALL, set()),
        (CompatibilityPolicy.BACKWARD, {"OPTIONAL"}),
        (CompatibilityPolicy.BACKWARD_TRANSITIVE, {"OPTIONAL"}),
        (CompatibilityPolicy.FORWARD, {"OPTIONAL", "REQUIRED"}),
        (CompatibilityPolicy.FORWARD_TRANSITIVE, {"OPTIONAL", "REQUIRED"}),
        (CompatibilityPolicy.FULL, {"OPTIONAL"}),
        (CompatibilityPolicy.FULL_TRANSITIVE, {"OPTIONAL"}),
        (Compatibility(CompatibilityPolicy.ADVANCED, backward="all"), {"OPTIONAL"}),
        (Compatibility(CompatibilityPolicy.ADVANCED, forward="last"), {"OPTIONAL", "REQUIRED"}),
    ],
)
def test_compatibility(
    registry: sync.SchemaRegistry,
    group: str,
    policy: Compatibility | CompatibilityPolicy,
    accepted: set[str],
) -> None:
    registry.create_group(group, GroupProperties(SerializationFormat.AVRO))
    registry.add_schema(group, FIRST)
    registry.set_compatibility(group, policy)
    for name, schema in (("REQUIRED", REQUIRED), ("OPTIONAL", OPTIONAL)):
        assert (
            registry.is_valid(group, schema) == registry.is_valid(group, schema, policy) == (name in accepted)
        )
        if name not in accepted:
            with pytest.raises(SchemaIncompatibleError) as caught:
                registry.serializer(group, schema, register_schema=True)
            assert caught.value.group == group
    for schema in (OPTIONAL, REQUIRED):
        if registry.can_read(group, schema):
            registry.deserializer(group, schema)
        else:
            with pytest.raises(SchemaIncompatibleError):
                registry.deserializer(group, schema)


@pytest.mark.parametrize("format", [SerializationFormat.ANY, SerializationFormat.JSON])
def test_a_policy_that_a_new_group_cannot_have(
    registry: sync.SchemaRegistry, group: str, format: SerializationFormat
) -> None:
    with pytest.raises(InvalidArgumentError, match="with the policy BACKWARD"):
        registry.create_group(group, GroupProperties(format, CompatibilityPolicy.BACKWARD))
    assert registry.create_group(group, GroupProperties(format))
    assert registry.set_compatibility(group, CompatibilityPolicy.BACKWARD)
    registry.add_schema(group, OBJECT)


def test_what_a_group_refuses(registry: sync.SchemaRegistry, group: str) -> None:
    registry.create_group(group, GroupProperties(SerializationFormat.AVRO, allow_multiple_types=False))
    registry.add_schema(group, FIRST)
    with pytest.raises(SchemaFormatError):
        registry.add_schema(group, OBJECT)
    with pytest.raises(SchemaMalformedError):
        registry.add_schema(group, SchemaInfo("Reading", SerializationFormat.AVRO, b"nonsense"))
    with pytest.raises(SchemaMalformedError):
        registry.add_schema(group, SchemaInfo("Other", SerializationFormat.AVRO, FIRST.info.data))
    with pytest.raises(SchemaNotFoundError):
        registry.serializer(group, OPTIONAL)
    with pytest.raises(CodecNotRegisteredError):
        registry.serializer(group, FIRST, codec="snappy")
    registry.add_codec(group, CodecType("application/x-gzip", {"a": "b"}))
    assert registry.codecs(group) == [CodecType("application/x-gzip", {"a": "b"})]
    assert registry.serializer(group, FIRST, codec="gzip").serialize({"device": 1})[:5] == b"\1\0\0\0\0"


@pytest.mark.smoke
async def test_events_of_all_formats_on_a_stream(
    config: PravegaConfig, pravega_schema_registry: SchemaRegistryServer, group: str
) -> None:
    config = replace(config, schema_registry_uri=pravega_schema_registry.uri)
    written: list[object] = [{"device": 1}, {"a": [1]}, Duration(seconds=1), {"device": 2}]
    codecs: list[Codec] = ["none", "gzip", "snappy", "gzip"]
    schemas: list[EventSchema] = [FIRST, OBJECT, ProtobufSchema(Duration), FIRST]
    async with SchemaRegistry(config) as registry, open_client(config) as client:
        await client.create_stream("events")
        await client.create_reader_group("group", ["events"])
        await registry.create_group(group)
        # Made before the schemas are there: it asks for their encodings while it reads.
        late = await registry.deserializer(group)
        async with client.event_writer("events") as writer:
            for schema, value, codec in zip(schemas, written, codecs, strict=True):
                serializer = await registry.serializer(
                    group, schema, codec=codec, register_schema=True, register_codec=True
                )
                await writer.write_event(serializer.serialize(value), "key")
        careful = await registry.deserializer(group, on_unknown="raise")
        async with client.reader_group("group") as readers, readers.reader("one", late) as reader:
            for value in written:
                event = await reader.read_event(timeout=30)
                assert isinstance(event, Event)
                found = event.value
                assert found == value or found.SerializeToString() == Duration(seconds=1).SerializeToString()
        async for batch in client.read_range((await client.segment_ranges("events"))[0]):
            for payload in batch:
                await registry.prepare(careful, payload)
                careful.deserialize(payload)


class Gate:
    """A registry with one JSON schema that was added after readers began: its encoding waits at the gate."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.open = threading.Event()
        self.away = False
        gate = self
        encoding = {
            "schemaInfo": OBJECT.info.to_json(),
            "versionInfo": VersionInfo("thing", 0, 0, "Json").to_json(),
            "codecType": {"name": "", "properties": {}},
        }

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = 200, GroupProperties().to_json()
                if self.path.endswith("/encodings/0"):
                    status, body = 404, {}
                elif self.path.endswith("/encodings/1"):
                    gate.asked.set()
                    assert gate.open.wait(60)
                    status, body = (500, {}) if gate.away else (200, encoding)
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.uri = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.open.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def gate() -> Iterator[Gate]:
    found = Gate()
    yield found
    found.close()


NEW = [b'\1\0\0\0\1{"a":%d}' % number for number in range(3)]


async def reader_of_new(client: Any, kind: str, serializer: Any, stack: AsyncExitStack) -> Any:
    """Write events with a new schema; return a reader of them, from a group or following the stream.

    :param client: of trio or asyncio.
    :param stack: closes the reader.
    """
    await client.create_stream("events")
    async with client.event_writer("events") as writer:
        await writer.write_events(NEW, routing_keys="key")
    if kind == "follower":
        return await stack.enter_async_context(client.follow_events("events", serializer=serializer))
    await client.create_reader_group("group", ["events"])
    group = await stack.enter_async_context(client.reader_group("group"))
    return await stack.enter_async_context(group.reader("one", serializer))


@pytest.mark.parametrize("kind", ["group", "follower"])
async def test_the_loop_goes_on_while_an_encoding_is_fetched(
    config: PravegaConfig, gate: Gate, kind: str
) -> None:
    async def open_gate() -> None:
        # Only a loop that goes on can open it.
        await trio.to_thread.run_sync(gate.asked.wait, 60)
        gate.open.set()

    async with SchemaRegistry(gate.uri) as registry, open_client(config) as client:
        serializer = await registry.deserializer("events")
        async with AsyncExitStack() as stack:
            nursery = await stack.enter_async_context(trio.open_nursery())
            nursery.start_soon(open_gate)
            reader = await reader_of_new(client, kind, serializer, stack)
            for number in range(len(NEW)):
                event = await reader.read_event(timeout=30)
                assert event is not None
                assert event.value == {"a": number}


@pytest.mark.parametrize("kind", ["group", "follower"])
def test_the_asyncio_loop_goes_on_while_an_encoding_is_fetched(
    config: PravegaConfig, gate: Gate, kind: str
) -> None:
    async def open_gate() -> None:
        await asyncio.to_thread(gate.asked.wait, 60)
        gate.open.set()

    async def main() -> None:
        async with SchemaRegistry(gate.uri) as registry, aio.open_client(config) as client:
            serializer = await registry.deserializer("events")
            opening = asyncio.create_task(open_gate())
            async with AsyncExitStack() as stack:
                reader = await reader_of_new(client, kind, serializer, stack)
                event = await reader.read_event(timeout=30)
                assert event is not None
                assert event.value == {"a": 0}
            await opening

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["group", "follower"])
async def test_no_event_is_skipped_while_the_registry_is_away(
    config: PravegaConfig, gate: Gate, kind: str
) -> None:
    gate.away = True
    gate.open.set()
    async with SchemaRegistry(gate.uri) as registry, open_client(config) as client:
        serializer = await registry.deserializer("events")
        async with AsyncExitStack() as stack:
            reader = await reader_of_new(client, kind, serializer, stack)
            for _ in range(2):
                with pytest.raises(SchemaRegistryReplyError):
                    await reader.read_event(timeout=30)
            gate.away = False
            # The read ahead may have failed once more before.
            event = None
            while event is None:
                with suppress(SchemaRegistryReplyError):
                    event = await reader.read_event(timeout=30)
            assert event.value == {"a": 0}


def test_asyncio(pravega_schema_registry: SchemaRegistryServer, group: str) -> None:
    async def main() -> None:
        async with SchemaRegistry(pravega_schema_registry.uri) as registry:
            schema = ProtobufSchema(Timestamp)
            serializer = await registry.serializer(
                group, schema, create_group=GroupProperties(), register_schema=True
            )
            payload = serializer.serialize(Timestamp(seconds=5))
            reader = await registry.deserializer(group, schema)
            assert reader.deserialize(payload) == Timestamp(seconds=5)

    asyncio.run(main())


def test_a_registry_with_accounts(group: str) -> None:
    with schema_registry(auth=True) as server:
        assert server.username is not None
        assert server.password is not None
        credentials = Credentials.basic(server.username, server.password)
        with sync.SchemaRegistry(server.uri, credentials=credentials) as registry:
            registry.create_group(group)
            assert registry.list_groups().keys() == {group}
            # A lookup while reading sends the credentials too.
            reader = registry.deserializer(group)
            event = registry.serializer(group, OBJECT, register_schema=True).serialize({"a": 1})
            assert reader.deserialize(event) == {"a": 1}
        for wrong in (None, Credentials.basic(server.username, "wrong"), Credentials.basic("nobody", "x")):
            with sync.SchemaRegistry(server.uri, credentials=wrong) as registry:
                with pytest.raises(AuthenticationError):
                    registry.group_properties(group)
