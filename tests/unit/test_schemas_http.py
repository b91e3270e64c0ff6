"""The clients of the schema registry against servers that are none: silent, broken, changing."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import re
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
import trustme

from pravega_wire import Credentials, PravegaConfig, sync
from pravega_wire.errors import (
    ArgumentTypeError,
    AuthenticationError,
    ClosedError,
    CodecNotRegisteredError,
    DecodeError,
    InvalidArgumentError,
    PermissionDeniedError,
    PravegaError,
    SchemaFormatError,
    SchemaIncompatibleError,
    SchemaMalformedError,
    SchemaNotFoundError,
    SchemaRegistryError,
    SchemaRegistryReplyError,
    SchemaRegistryUnreachableError,
    TlsError,
    UnknownEncodingError,
)
from pravega_wire.schemas import (
    CodecType,
    CompatibilityPolicy,
    GroupProperties,
    JsonSchema,
    SchemaInfo,
    SchemaRegistry,
    SerializationFormat,
    VersionInfo,
    transport,
)
from pravega_wire.schemas.serializer import header_of
from tests.inside import forget_told

OBJECT = JsonSchema("thing", {"type": "object"})
VERSION = {"type": "thing", "serializationFormat": "Json", "version": 0, "id": 0}
ENCODING = {
    "schemaInfo": OBJECT.info.to_json(),
    "versionInfo": VERSION,
    "codecType": {"name": "", "properties": {}},
}
GROUP = GroupProperties().to_json()


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts follow one another at once."""
    monkeypatch.setattr(transport, "_FIRST_PAUSE", 0.001)


ENDLESS = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n"
"""The beginning of an answer that goes on and on, byte by byte."""


@dataclass
class Fake:
    """A server that answers each request with the next of its answers, and the last one from then on."""

    answers: list[bytes | None]
    port: int = 0
    requests: list[bytes] = field(default_factory=list)
    tls: ssl.SSLContext | None = None
    _sockets: list[socket.socket] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event)

    @property
    def uri(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def serve(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self._sockets.append(connection)
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with ExitStack() as stack:
            stack.enter_context(connection)
            try:
                if self.tls is not None:
                    connection = stack.enter_context(self.tls.wrap_socket(connection, server_side=True))
                while (request := self._receive(connection)) is not None:
                    self.requests.append(request)
                    answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                    if answer is None:
                        continue  # silent
                    connection.sendall(answer)
                    while answer.endswith(ENDLESS) and not self._ended.wait(0.01):
                        connection.sendall(b" ")
                    if b"content-length" not in answer or b"connection: close" in answer:
                        return
            except OSError:
                return

    @staticmethod
    def _receive(connection: socket.socket) -> bytes | None:
        data = b""
        while b"\r\n\r\n" not in data:
            part = connection.recv(65536)
            if not part:
                return None
            data += part
        head, _, body = data.partition(b"\r\n\r\n")
        found = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        while found is not None and len(body) < int(found[1]):
            body += connection.recv(65536)
        return head + b"\r\n\r\n" + body

    def close(self) -> None:
        self._ended.set()
        for each in self._sockets:
            each.close()


@contextmanager
def fake(*answers: bytes | None, tls: ssl.SSLContext | None = None) -> Iterator[Fake]:
    with socket.create_server(("127.0.0.1", 0)) as listener, ExitStack() as stack:
        found = Fake(list(answers), listener.getsockname()[1], tls=tls)
        stack.callback(found.close)
        threading.Thread(target=found.serve, args=(listener,), daemon=True).start()
        try:
            yield found
        finally:
            listener.shutdown(socket.SHUT_RDWR)


def reply(status: int, body: bytes | object = b"") -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n" % (status, len(data)) + data


Ask = Callable[..., Any]


def blocking(uri: str, name: str, *arguments: Any, **settings: Any) -> Any:
    with sync.SchemaRegistry(uri, **settings) as registry:
        return getattr(registry, name)(*arguments)


async def _asked(uri: str, name: str, arguments: Any, settings: Any) -> Any:
    async with SchemaRegistry(uri, **settings) as registry:
        return await getattr(registry, name)(*arguments)


def on_trio(uri: str, name: str, *arguments: Any, **settings: Any) -> Any:
    return trio.run(_asked, uri, name, arguments, settings)


def on_asyncio(uri: str, name: str, *arguments: Any, **settings: Any) -> Any:
    return asyncio.run(_asked(uri, name, arguments, settings))


WAYS = (blocking, on_trio, on_asyncio)


@pytest.mark.parametrize("ask", WAYS)
def test_an_answer(ask: Ask) -> None:
    with fake(reply(200, GROUP)) as server:
        assert ask(server.uri, "group_properties", "a group/ü", namespace="n s") == GroupProperties()
        line = server.requests[0].partition(b"\r\n")[0]
        assert line.replace(b"n%20s", b"n+s") == b"GET /v1/groups/a%20group%2F%C3%BC?namespace=n+s HTTP/1.1"


@pytest.mark.parametrize("ask", WAYS)
def test_a_silent_registry(ask: Ask) -> None:
    with fake(None) as server:
        with pytest.raises(
            SchemaRegistryUnreachableError, match=r"could not be asked within 0\.2 s"
        ) as caught:
            ask(server.uri, "group_properties", "g", timeout=0.2)
        assert caught.value.host == f"127.0.0.1:{server.port}"
        assert caught.value.retriable


@pytest.mark.parametrize("ask", WAYS)
def test_an_answer_that_does_not_end(ask: Ask) -> None:
    with fake(ENDLESS) as server:
        with pytest.raises(SchemaRegistryUnreachableError):
            ask(server.uri, "group_properties", "g", timeout=0.3)


@pytest.mark.parametrize("ask", WAYS)
def test_an_answer_that_is_too_large(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "_MOST_BYTES", 1000)
    with fake(reply(200, bytes(1001))) as server:
        with pytest.raises(SchemaRegistryReplyError, match="larger than 1000 bytes"):
            ask(server.uri, "group_properties", "g")


@pytest.mark.parametrize("ask", WAYS)
def test_nothing_listens(ask: Ask) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(SchemaRegistryUnreachableError):
        ask(f"http://127.0.0.1:{port}", "create_group", "g")


@pytest.mark.parametrize("ask", WAYS)
@pytest.mark.parametrize(
    "garbage",
    [b"\xff\xfe\x00garbage\r\n\r\n", b"SSH-2.0-OpenSSH_9\r\n", b"HTTP/1.1 abc\r\n\r\n", b"",
     b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\nconnection: close\r\n\r\n{",
     b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\nabcd"],
)  # fmt: skip
def test_what_is_no_http(ask: Ask, garbage: bytes) -> None:
    # The server closes the connection after it.
    with fake(garbage) as server, pytest.raises(SchemaRegistryError):
        ask(server.uri, "group_properties", "g", timeout=5.0)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, AuthenticationError),
        (403, PermissionDeniedError),
        (404, SchemaNotFoundError),
        (400, SchemaMalformedError),
        (409, SchemaIncompatibleError),
        (417, SchemaFormatError),
        (500, SchemaRegistryReplyError),
        (200, SchemaRegistryReplyError),
        (302, SchemaRegistryReplyError),
        (418, SchemaRegistryReplyError),
    ],
)
def test_refusals(status: int, kind: type[PravegaError]) -> None:
    with fake(reply(status, b"because\xff")) as server:
        with pytest.raises(kind, match=r"group g|credentials") as caught:
            blocking(server.uri, "add_schema", "g", OBJECT)
        assert len(server.requests) == 1
        if isinstance(caught.value, SchemaRegistryError):
            assert (caught.value.group, caught.value.status) == ("g", status)


def test_a_policy_that_a_new_group_cannot_have() -> None:
    with fake(reply(400, b"")) as server:
        properties = GroupProperties(SerializationFormat.JSON, CompatibilityPolicy.FULL)
        with pytest.raises(InvalidArgumentError, match="JSON with the policy FULL"):
            blocking(server.uri, "create_group", "g", properties)


def test_a_codec_that_is_not_registered() -> None:
    version = VersionInfo("thing", 0, 0, "Json")
    with fake(reply(412, b"codec x not registered")) as server:
        with pytest.raises(CodecNotRegisteredError, match="not registered"):
            blocking(server.uri, "encoding_id", "g", version, "gzip")


CALLS: dict[str, tuple[Any, ...]] = {
    "list_groups": (),
    "create_group": ("g",),
    "group_properties": ("g",),
    "delete_group": ("g",),
    "set_compatibility": ("g", CompatibilityPolicy.FULL),
    "history": ("g",),
    "add_schema": ("g", OBJECT),
    "schema_versions": ("g",),
    "latest_schemas": ("g",),
    "latest_schema": ("g",),
    "schema_by_id": ("g", 0),
    "schema_by_version": ("g", "Json", "thing", 0),
    "version_of": ("g", OBJECT),
    "delete_schema": ("g", 0),
    "is_valid": ("g", OBJECT),
    "can_read": ("g", OBJECT),
    "references": (OBJECT,),
    "codecs": ("g",),
    "add_codec": ("g", CodecType("c")),
    "encoding_id": ("g", VersionInfo("thing", 0, 0, "Json")),
    "encoding": ("g", 0),
    "serializer": ("g", OBJECT),
    "deserializer": ("g",),
    "multi_format_serializer": ("g", [OBJECT]),
}
WITHOUT_BODY = {"create_group", "delete_group", "set_compatibility", "add_codec", "delete_schema"}


def test_every_call_is_tested() -> None:
    public = {name for name in vars(sync.SchemaRegistry) if not name.startswith("_")}
    assert public == {*CALLS, "close", "prepare"}


GARBAGE = (b"garbage", b"", b"[]", b"{}", b"null", b"[" * 50_000, b'{"schemas": 5}', b"\xff")


@pytest.mark.parametrize("name", sorted(set(CALLS) - WITHOUT_BODY))
def test_garbage_in_answers(name: str) -> None:
    with fake(None) as server, sync.SchemaRegistry(server.uri) as registry:
        for body in GARBAGE:
            for status in (200, 201):
                server.answers = [reply(status, body)]
                with pytest.raises(SchemaRegistryReplyError):
                    getattr(registry, name)(*CALLS[name])


@pytest.mark.parametrize("name", CALLS)
def test_a_registry_that_fails(name: str) -> None:
    with fake(reply(500, b"Cannot invoke x because y is null")) as server:
        with pytest.raises(SchemaRegistryReplyError, match="status 500: Cannot invoke") as caught:
            blocking(server.uri, name, *CALLS[name])
        assert caught.value.status == 500
        assert len(server.requests) == 1


@pytest.mark.parametrize("ask", WAYS)
def test_a_lost_connection_is_followed_by_another_attempt(ask: Ask) -> None:
    with fake(b"", reply(503), b"", reply(200, GROUP)) as server:
        assert ask(server.uri, "group_properties", "g") == GroupProperties()
        assert len(server.requests) == 4


@pytest.mark.parametrize("ask", WAYS)
def test_a_registry_that_is_away_is_told_once(ask: Ask, caplog: pytest.LogCaptureFixture) -> None:
    # Another test's server may have had the same port.
    forget_told()
    with fake(b"", reply(200, GROUP)) as server:
        ask(server.uri, "group_properties", "g")
    # The connection was found again at once.
    assert not caplog.messages
    with fake(reply(503), reply(503), reply(200, GROUP)) as server:
        ask(server.uri, "group_properties", "g")
    assert caplog.messages == [
        f"asking the schema registry at {server.uri}: it answered with status 503; trying up to 4 times "
        "within 30 s (timeout)"
    ]


@pytest.mark.parametrize("ask", WAYS)
def test_what_may_have_been_done_is_not_repeated(ask: Ask) -> None:
    with fake(b"", reply(201)) as server:
        with pytest.raises(SchemaRegistryUnreachableError):
            ask(server.uri, "create_group", "g")
        assert len(server.requests) == 1
    with fake(reply(503), reply(201)) as server:
        with pytest.raises(SchemaRegistryReplyError, match="503"):
            ask(server.uri, "create_group", "g")
        assert len(server.requests) == 1


@pytest.mark.parametrize("ask", WAYS)
def test_an_endless_list_of_groups(ask: Ask) -> None:
    pages = [reply(200, {"groups": {f"g{n}": GROUP}, "continuationToken": str(n)}) for n in range(5)]
    with fake(*pages, reply(200, {"groups": {}, "continuationToken": "4"})) as server:
        assert list(ask(server.uri, "list_groups")) == ["g0", "g1", "g2", "g3", "g4"]
        assert b"continuationToken=3" in server.requests[4]


def test_groups_that_are_being_created() -> None:
    page = reply(200, {"groups": {"g": None}, "continuationToken": "1"})
    with fake(page, reply(200, {"groups": {}, "continuationToken": "1"})) as server:
        assert blocking(server.uri, "list_groups") == {"g": None}


def test_encodings_are_kept_both_ways() -> None:
    with fake(reply(200, ENCODING)) as server, sync.SchemaRegistry(server.uri) as registry:
        assert registry.encoding("g", 0) == registry.encoding("g", 0)
        assert registry.encoding_id("g", registry.encoding("g", 0).version) == 0
        assert len(server.requests) == 1
        registry.encoding("other", 0)
        assert len(server.requests) == 2
        server.answers = [reply(204)]
        registry.delete_group("g")
        server.answers = [reply(404)]
        with pytest.raises(SchemaNotFoundError):
            registry.encoding("g", 0)
        assert registry.encoding("other", 0).schema == OBJECT.info


def test_unknown_encodings_while_reading() -> None:
    found = reply(200, GROUP), reply(404)
    with fake(*found) as server, sync.SchemaRegistry(server.uri) as registry:
        reader = registry.deserializer("g")
        assert len(server.requests) == 2
        with pytest.raises(UnknownEncodingError, match="which group g does not have"):
            reader.deserialize(header_of(7) + b"{}")
        server.answers = [reply(200, ENCODING)]
        assert reader.deserialize(header_of(7) + b"{}") == {}
        asked = len(server.requests)
        assert reader.deserialize(header_of(7) + b"[]") == []
        assert len(server.requests) == asked
        for answer, kind in ((None, SchemaRegistryUnreachableError), (reply(500), SchemaRegistryReplyError)):
            server.answers = [answer]
            with sync.SchemaRegistry(server.uri, timeout=0.2) as impatient:
                server.answers = [reply(200, GROUP), reply(404), answer]
                other = impatient.deserializer("g")
            with pytest.raises(kind):
                other.deserialize(header_of(8) + b"{}")


async def test_encodings_are_prepared_without_blocking() -> None:
    with fake(reply(200, GROUP), reply(404), reply(200, ENCODING)) as server:
        async with SchemaRegistry(server.uri) as registry:
            reader = await registry.deserializer("g", on_unknown="raise")
            event = header_of(7) + b"{}"
            with pytest.raises(UnknownEncodingError, match=r"await registry\.prepare") as caught:
                reader.deserialize(event)
            assert caught.value.encoding_id == 7
            await registry.prepare(reader, event, event)
            assert reader.deserialize(event) == {}
            assert len(server.requests) == 3
            server.answers = [reply(404)]
            with pytest.raises(UnknownEncodingError, match="which group g does not have"):
                await registry.prepare(reader, header_of(9))
            with pytest.raises(DecodeError, match="begins with byte"):
                await registry.prepare(reader, b"12345")


async def test_readers_prepare_the_payloads_that_they_hand_out() -> None:
    with fake(reply(200, GROUP), reply(404), reply(200, ENCODING), reply(404)) as server:
        async with SchemaRegistry(server.uri) as registry:
            reader = await registry.deserializer("g")
        event, foreign, other = header_of(7) + b"{}", header_of(900) + b"{}", header_of(901) + b"{}"
        await reader.prepare_payloads(
            [b"", other, foreign, event, event, b"no header", b"\1\xff\xff\xff\xff"]
        )
        # Once for each encoding. Registries give ids in order: 901 cannot be there if 900 is not.
        asked = [line.split()[1].rpartition(b"/")[2] for line in server.requests[2:]]
        assert asked == [b"7", b"900"]
        assert reader.deserialize(event) == {}
        for absent in (foreign, other):
            with pytest.raises(UnknownEncodingError, match="which group g does not have"):
                reader.deserialize(absent)
        await reader.prepare_payloads([event])
        assert len(server.requests) == 4
        # It may have been added since.
        server.answers = [reply(200, ENCODING)]
        await reader.prepare_payloads([foreign])
        assert reader.deserialize(foreign) == {}
        server.answers = [reply(500)]
        with pytest.raises(SchemaRegistryReplyError):
            await reader.prepare_payloads([header_of(10)])


async def test_nothing_is_prepared_where_nothing_shall_be_asked() -> None:
    with fake(reply(200, GROUP), reply(404), reply(200, GROUP)) as server:
        async with SchemaRegistry(server.uri) as registry:
            careful = await registry.deserializer("g", on_unknown="raise")
            plain = await registry.deserializer("g", header=False)
        asked = len(server.requests)
        await careful.prepare_payloads([header_of(7)])
        await plain.prepare_payloads([header_of(7)])
        assert len(server.requests) == asked


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        (
            "create_group",
            ("g", "Avro"),
            "the properties of group g must be of the class GroupProperties, not 'Avro'",
        ),
        ("add_codec", ("g", "gzip"), "a codec of group g must be of the class CodecType, not 'gzip'"),
        (
            "encoding_id",
            ("g", 0),
            "the version of a schema in group g must be of the class VersionInfo, not 0",
        ),
        ("prepare", ("g", b""), "prepare needs a SchemaSerializer, not 'g'"),
    ],
)
@pytest.mark.parametrize("ask", WAYS)
def test_arguments_of_another_type_are_named(
    ask: Ask, name: str, arguments: tuple[Any, ...], message: str
) -> None:
    with fake(reply(500)) as server:
        with pytest.raises(ArgumentTypeError, match=message):
            ask(server.uri, name, *arguments)
        assert server.requests == []


def test_events_to_prepare_must_be_bytes() -> None:
    with fake(reply(200, GROUP), reply(404)) as server, sync.SchemaRegistry(server.uri) as registry:
        with pytest.raises(ArgumentTypeError, match="an event must be bytes, not list"):
            registry.prepare(registry.deserializer("g"), [b"x"])  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="must be of the class SerializationFormat, not 'avro'"):
        GroupProperties("avro")  # type: ignore[arg-type]


@pytest.mark.parametrize("ask", WAYS)
def test_what_is_missing_is_said_with_what_adds_it(ask: Ask) -> None:
    message = r"schema thing in group g.*register_schema=True"
    with fake(reply(404)) as server:
        with pytest.raises(SchemaNotFoundError, match=message) as caught:
            ask(server.uri, "serializer", "g", OBJECT)
        assert (caught.value.group, caught.value.status) == ("g", 404)
    version = VersionInfo("thing", 0, 0, "Json")
    with fake(reply(412)) as server:
        with pytest.raises(CodecNotRegisteredError, match=r"group g: .*add_codec registers it"):
            ask(server.uri, "encoding_id", "g", version, "gzip")


async def test_a_cancelled_call_ends_at_once() -> None:
    with fake(None) as server:
        async with SchemaRegistry(server.uri) as registry:
            with trio.move_on_after(0.05) as scope:
                await registry.group_properties("g")
            assert scope.cancelled_caught


def test_a_program_of_asyncio_ends_while_the_registry_is_silent() -> None:
    program = """
import asyncio, sys
from pravega_wire.schemas import SchemaRegistry

async def main():
    registry = SchemaRegistry(sys.argv[1], timeout=3600)
    try:
        await asyncio.wait_for(registry.group_properties("g"), 0.05)
    except TimeoutError:
        print("cancelled")

asyncio.run(main())
"""
    with fake(None) as server:
        done = subprocess.run(
            [sys.executable, "-c", program, server.uri],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert (done.stdout, done.stderr, done.returncode) == ("cancelled\n", "", 0)


def test_a_schema_that_changed_in_the_registry() -> None:
    changed = ENCODING | {
        "schemaInfo": OBJECT.info.to_json() | {"serializationFormat": {"serializationFormat": "Avro"}}
    }
    with fake(reply(200, GROUP), reply(200, changed), reply(404)) as server:
        with sync.SchemaRegistry(server.uri) as registry:
            with pytest.raises(DecodeError, match="Avro schema"):
                registry.deserializer("g").deserialize(header_of(0) + b"{}")


@pytest.mark.parametrize("ask", WAYS)
def test_credentials_are_sent_and_not_shown(ask: Ask, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    credentials = Credentials.basic("user", "password-of-mine")
    with fake(reply(401, b"no")) as server:
        with pytest.raises(AuthenticationError) as caught:
            ask(server.uri, "group_properties", "g", credentials=credentials)
        assert f"authorization: {credentials.header}".encode().lower() in server.requests[0].lower()
        assert credentials.token not in caplog.text + str(caught.value)
    with sync.SchemaRegistry("http://127.0.0.1:1", credentials=credentials) as registry:
        assert credentials.token not in repr(registry) + repr(registry._twin._transport.settings)


def test_a_configuration() -> None:
    with fake(reply(200, GROUP)) as server:
        config = PravegaConfig(
            schema_registry_uri=f"{server.uri}/", credentials=Credentials.bearer("bearer-of-mine")
        )
        assert blocking(config, "group_properties", "g") == GroupProperties()  # type: ignore[arg-type]  # both work
        assert b"bearer-of-mine" in server.requests[0]
    with pytest.raises(InvalidArgumentError, match="PRAVEGA_SCHEMA_REGISTRY_URI"):
        sync.SchemaRegistry(PravegaConfig())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"timeout": 0}, "timeout"),
        ({"namespace": ""}, "namespace"),
        ({"credentials": "user:password"}, "Credentials"),
        ({"validate_hostname": "no"}, "validate_hostname"),
        ({"trust_store": "/no/such/file.pem"}, "/no/such/file.pem"),
    ],
)
def test_settings(settings: Any, words: str) -> None:
    for kind in (sync.SchemaRegistry, SchemaRegistry):
        with pytest.raises(InvalidArgumentError, match=words):
            kind("https://127.0.0.1:1", **settings)


def test_closed_clients() -> None:
    registry = sync.SchemaRegistry("http://127.0.0.1:1")
    registry.close()
    registry.close()
    with pytest.raises(ClosedError):
        registry.list_groups()


async def test_a_closed_async_client() -> None:
    registry = SchemaRegistry("http://127.0.0.1:1")
    await registry.aclose()
    await registry.aclose()
    with pytest.raises(ClosedError):
        await registry.list_groups()


def test_a_fork_has_connections_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    # On its parent's connection it would get answers to its parent's questions.
    with fake(reply(200, GROUP)) as server:
        with sync.SchemaRegistry(server.uri) as registry:
            for pid, connections in ((os.getpid(), 1), (-1, 2), (-1, 2)):
                monkeypatch.setattr(os, "getpid", lambda pid=pid: pid)
                registry.group_properties("g")
                assert len(server._sockets) == connections


async def test_a_fork_has_connections_of_its_own_on_trio(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake(reply(200, GROUP)) as server:
        async with SchemaRegistry(server.uri) as registry:
            for pid, connections in ((os.getpid(), 1), (-1, 2), (-1, 2)):
                monkeypatch.setattr(os, "getpid", lambda pid=pid: pid)
                await registry.group_properties("g")
                assert len(server._sockets) == connections


def test_one_event_loop_after_the_other() -> None:
    with fake(reply(200, GROUP)) as server:
        registry = SchemaRegistry(server.uri)

        async def ask() -> GroupProperties:
            return await registry.group_properties("g")

        for run in (asyncio.run, asyncio.run, trio_run, trio_run, asyncio.run):
            assert run(ask()) == GroupProperties()
        trio_run(registry.aclose())


def trio_run(call: Coroutine[Any, Any, Any]) -> Any:
    async def await_it() -> Any:
        return await call

    return trio.run(await_it)


async def test_two_event_loops_share_a_client() -> None:
    with fake(reply(200, GROUP)) as server:
        async with SchemaRegistry(server.uri) as registry:
            assert await registry.group_properties("g") == GroupProperties()
            found = await trio.to_thread.run_sync(lambda: asyncio.run(registry.group_properties("g")))
            assert found == await registry.group_properties("g") == GroupProperties()


@pytest.mark.parametrize("name", [".", ".."])
def test_names_that_would_change_the_path(name: str) -> None:
    with sync.SchemaRegistry("http://127.0.0.1:1") as registry:
        for ask in (registry.create_group, registry.delete_group, registry.history):
            with pytest.raises(InvalidArgumentError, match="cannot be"):
                ask(name)
        with pytest.raises(InvalidArgumentError, match="cannot be"):
            registry.schema_by_version("g", "Json", name, 0)


@pytest.mark.parametrize("properties", [{"a": object()}, {"a": "\ud800"}, {"a": math.nan}])
def test_what_json_cannot_represent(properties: Any) -> None:
    with sync.SchemaRegistry("http://127.0.0.1:1") as registry:
        with pytest.raises(InvalidArgumentError, match="cannot be written as JSON"):
            registry.create_group("g", GroupProperties(properties=properties))
        info: Any = SchemaInfo("thing", SerializationFormat.JSON, "{}")  # type: ignore[arg-type]  # refused
        with pytest.raises(ArgumentTypeError, match="must be bytes, not str"):
            registry.add_schema("g", info)


@pytest.mark.parametrize("number", [-1, 2**31, True, "0", None])
def test_numbers(number: Any) -> None:
    with sync.SchemaRegistry("http://127.0.0.1:1") as registry:
        for ask in (registry.schema_by_id, registry.encoding, registry.delete_schema):
            with pytest.raises(InvalidArgumentError, match="id must be a whole number from 0 to 2147483647"):
                ask("g", number)


@pytest.mark.parametrize("ask", WAYS)
def test_tls(ask: Ask, tmp_path: Path) -> None:
    authority, other = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    other.cert_pem.write_to_path(str(tmp_path / "other.pem"))
    for name, trusted in (("127.0.0.1", True), ("elsewhere.example", False)):
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(name).configure_cert(tls)
        with fake(reply(200, GROUP), tls=tls) as server:
            ca = str(tmp_path / "ca.pem")
            if trusted:
                assert ask(server.uri, "group_properties", "g", trust_store=ca) == GroupProperties()
                with pytest.raises(TlsError, match="certificate verify failed"):
                    ask(server.uri, "group_properties", "g", trust_store=str(tmp_path / "other.pem"))
            else:
                with pytest.raises(TlsError, match="certificate is not valid"):
                    ask(server.uri, "group_properties", "g", trust_store=ca)
                found = ask(server.uri, "group_properties", "g", trust_store=ca, validate_hostname=False)
                assert found == GroupProperties()
    with fake(reply(200, GROUP)) as server:
        with pytest.raises((TlsError, SchemaRegistryUnreachableError)):
            ask(server.uri.replace("http", "https"), "group_properties", "g", timeout=5.0)


# --- a group that another process deletes and creates again -----------------------------------------


class Registered:
    """A registry with one group: its schemas, and what its encoding ids stand for."""

    def __init__(self) -> None:
        self.schemas: list[Any] = []
        self.encodings: list[tuple[int, str]] = []

    def _version(self, number: int) -> dict[str, Any]:
        kind = self.schemas[number]["type"]
        return {"type": kind, "serializationFormat": "Json", "version": number, "id": number}

    def answer(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        body: Any = json.loads(request.content) if request.content else None
        if request.method == "POST" and path.endswith("/schemas"):
            if body not in self.schemas:
                self.schemas.append(body)
            return httpx.Response(201, json=self._version(self.schemas.index(body)))
        if request.method == "PUT" and path.endswith("/encodings"):
            wanted = body["versionInfo"]["id"], body["codecType"]
            if wanted not in self.encodings:
                self.encodings.append(wanted)
            return httpx.Response(200, json={"encodingId": self.encodings.index(wanted)})
        if "/encodings/" in path:
            number = int(path.rsplit("/", 1)[1])
            if number >= len(self.encodings):
                return httpx.Response(404)
            schema, codec = self.encodings[number]
            codec_type = {"name": codec, "properties": {}}
            found = {"schemaInfo": self.schemas[schema], "versionInfo": self._version(schema)}
            return httpx.Response(200, json=found | {"codecType": codec_type})
        return httpx.Response(200, json=GroupProperties().to_json())


async def test_what_is_made_anew_knows_a_group_that_was_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = [Registered()]
    registry = SchemaRegistry("http://registry:1")
    transport = httpx.MockTransport(lambda request: groups[-1].answer(request))
    client = httpx.Client(base_url="http://registry:1", transport=transport)
    monkeypatch.setattr(registry._transport, "_client", client)
    schema = JsonSchema("order", {"type": "object"})
    for codec, first in (("none", 0), ("gzip", 1)):
        made = await registry.serializer("g", schema, codec=codec, register_schema=True)  # type: ignore[arg-type]
        assert made.serialize({}).startswith(header_of(first))
    await registry.deserializer("g")
    groups.append(Registered())
    made = await registry.serializer("g", schema, codec="gzip", register_schema=True)
    assert made.serialize({}).startswith(header_of(0))
    reader = await registry.deserializer("g")
    assert reader.deserialize(made.serialize({"a": 1})) == {"a": 1}
    await registry.aclose()
