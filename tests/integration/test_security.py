"""A server that speaks TLS only and lets nobody in without an account."""

from __future__ import annotations

import base64
import inspect
import logging
import ssl
from collections.abc import Iterator
from dataclasses import replace
from uuid import uuid4

import pytest
import trio

from pravega_wire import (
    Credentials,
    KeyValueTableConfiguration,
    PravegaConfig,
    ScopedStream,
    TxnStatus,
    open_client,
    pytest_plugin,
)
from pravega_wire import sync as blocking
from pravega_wire.cli.settings import resolve
from pravega_wire.cli.work.health import examine
from pravega_wire.controller.types import Access
from pravega_wire.errors import AuthError, InvalidArgumentError, TlsError, WrongProtocolError
from pravega_wire.protocol import commands as c
from pravega_wire.testing import PravegaServer, standalone
from pravega_wire.testing.running import Kind
from tests.comparing import StoreLink, encoded
from tests.inside import core_of

pytestmark = pytest.mark.in_memory


@pytest.fixture(scope="module")
def secure(own_kind: Kind) -> Iterator[PravegaServer]:
    with standalone(kind=own_kind, tls=True, auth=True, memory="1g", cache_bytes=256 << 20) as server:
        yield server


@pytest.fixture
def config(secure: PravegaServer) -> PravegaConfig:
    return secure.config(f"secure-{uuid4().hex[:8]}")


async def test_everything_over_tls_with_tokens(config: PravegaConfig) -> None:
    with trio.fail_after(120):
        async with open_client(config) as client:
            await client.create_scope(str(config.scope))
            await client.create_stream("s", 2)
            async with client.event_writer("s") as writer:
                await writer.write_events([b"%06d" % n for n in range(20_000)], routing_keys="key")
                await writer.write_event(bytes(3_000_000), "key")
            txn = await client.begin_transaction("s")
            await txn.write_event(b"in a transaction", "key")
            await txn.commit()
            await txn.wait_committed()
            assert await txn.status() is TxnStatus.COMMITTED
            events = [event async for batch in client.read_events("s") for event in batch]
            assert events[:20_000] == [b"%06d" % n for n in range(20_000)]
            assert events[20_000:] == [bytes(3_000_000), b"in a transaction"]
            await client.create_stream("r", 1)
            async with client.revisioned_stream("r") as state:
                assert await state.write_conditionally(await state.latest_revision(), b"x")


def test_a_thread_reads_by_a_connection_of_its_own(config: PravegaConfig) -> None:
    events = [b"%d:" % n + b"x" * (n * 37 % 400) for n in range(30_000)]
    with blocking.open_client(config) as client:
        client.create_scope(str(config.scope))
        client.create_stream("direct", 1)
        with client.event_writer("direct") as writer:
            writer.write_events(events)
        [part] = client.segment_ranges("direct")
        with blocking.DirectReader(client, part, chunk_bytes=300_000) as batches:
            assert [event for batch in batches for event in batch] == events
        core_of(client).stores.pool.tls = ssl.create_default_context()
        with blocking.DirectReader(client, part) as batches, pytest.raises(TlsError, match="certificate"):
            batches.next_batch()


def test_key_value_tables_with_tokens(config: PravegaConfig) -> None:
    """Their segments want a token for another name than the table's."""
    with blocking.open_client(config) as client:
        client.create_scope(str(config.scope))
        client.create_key_value_table("t", KeyValueTableConfiguration(3, 4))
        table = client.key_value_table("t")
        items = {b"%04d" % n: b"%d" % n for n in range(100)}
        table.put_many(items.items())
        version = table.put(b"0000", b"new")
        table.remove(b"0000", version)
        assert {entry.key.primary: entry.value for entry in table.entries()} == {
            key: value for key, value in items.items() if key != b"0000"
        }


async def test_an_administrator_sees_open_transactions(config: PravegaConfig) -> None:
    """The controller's own tables want a token as well."""
    async with open_client(config) as client:
        stream = ScopedStream(str(config.scope), "s")
        await client.create_scope(stream.scope)
        await client.create_stream(stream)
        async with client.begin_transaction(stream) as transaction:
            (found,) = await client.open_transactions(stream)
            assert (found.txn_id, found.status) == (transaction.txn_id, TxnStatus.OPEN)
            await transaction.abort()
        findings = [each async for each in examine(client, resolve({}, environment={}), [stream], [])]
    state = {each.check: each.state for each in findings}
    assert state["credentials"] == state["clock"] == state[f"transactions of {stream}"] == "ok"


@pytest.mark.needs("0.11", "MergeSegmentsBatch, which one of 0.10 does not answer")
async def test_what_a_store_sees_in_a_token(config: PravegaConfig) -> None:
    """The permission to read is enough for nearly everything; a table's segments are of another name."""
    scope, writer = str(config.scope), uuid4()
    async with open_client(config) as client:
        await client.create_scope(scope)
        await client.create_stream("s", 1)
        await client.create_stream("ss", 1)
        await client.create_key_value_table("t", KeyValueTableConfiguration(1, 4))
        controller = core_of(client).controller
        read, write, other, of_table = [
            await controller.get_delegation_token(scope, name, access)
            for name, access in (
                ("s", Access.READ), ("s", Access.WRITE), ("ss", Access.WRITE), ("t", Access.WRITE)
            )
        ]  # fmt: skip
        store = await controller.get_uri(scope, "s", 0)
    mine, missing = f"{scope}/s/0.#epoch.0", f"{scope}/s/9.#epoch.0"
    partition = f"{scope}/t_kvtable/0.#epoch.0"
    refused = [
        *(c.ReadSegment(mine, 77, 8, token, 1) for token in ("", "a.b.c", "text", read[:-9], other)),
        *(c.SetupAppend(1, writer, mine, token) for token in ("", read, other)),
        c.GetStreamSegmentInfo(1, mine, other),
        c.GetStreamSegmentInfo(1, missing, ""),
        c.CreateSegment(1, mine, 0, 0, other),
        c.MergeSegmentsBatch(1, mine, (), read),
        c.MergeSegmentsBatch(1, mine, (partition,), write),
        c.GetTableSegmentInfo(1, partition, of_table),
    ]
    taken: list[tuple[c.Command, type[c.Command]]] = [
        (c.SetupAppend(1, writer, mine, write), c.AppendSetup),
        (c.GetStreamSegmentInfo(1, missing, read), c.NoSuchSegment),
        # Only the source is looked at.
        (c.MergeSegments(1, f"{scope}/ss/0.#epoch.0", missing, read), c.NoSuchSegment),
        (c.CreateTransientSegment(1, writer, mine, ""), c.SegmentCreated),
        (c.TruncateSegment(1, mine, 0, read), c.SegmentTruncated),
        (c.SealSegment(1, mine, read), c.SegmentSealed),
    ]
    link = StoreLink((store.host, store.port), config.ssl_context())
    await link.open()
    try:
        for command in refused:
            (reply,) = await link.answers(encoded([command]), 1)
            # A read is refused under its offset.
            number = 77 if isinstance(command, c.ReadSegment) else 1
            assert isinstance(reply, c.AuthTokenCheckFailed), (command, reply)
            assert (reply.request_id, reply.error_code) == (number, 0), command
        for command, expected in taken:
            (reply,) = await link.answers(encoded([command]), 1)
            assert type(reply) is expected, (command, reply)
    finally:
        await link.close()


def test_the_wrong_password_is_named(config: PravegaConfig) -> None:
    wrong = replace(config, credentials=Credentials.basic("admin", "wrong"))
    with pytest.raises(AuthError, match="authentication failed: check the credentials"):
        with blocking.open_client(wrong) as client:
            client.create_scope("never")


class _Records(logging.Handler):
    """Everything that is logged, by whatever logger, with its arguments."""

    def __init__(self) -> None:
        super().__init__(0)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        trace = logging.Formatter().formatException(record.exc_info) if record.exc_info else ""
        self.texts.append(f"{record.name} {record.getMessage()} {record.args!r} {trace}")


async def test_no_secret_is_logged_or_in_an_error(
    config: PravegaConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused session and an accepted one, with every logger at its lowest level."""
    records = _Records()
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [*root.handlers, records])
    monkeypatch.setattr(root, "level", logging.NOTSET)
    root.manager._clear_cache()  # type: ignore[attr-defined]  # loggers remember which levels they log
    assert config.credentials is not None
    wrong = Credentials.basic("admin", f"wrong-{uuid4().hex}")
    secrets = set()
    for credentials in (config.credentials, wrong):
        pair = base64.b64decode(credentials.token).decode()
        secrets |= {credentials.token, pair, pair.partition(":")[2]}

    with trio.fail_after(120):
        async with open_client(replace(config, credentials=wrong)) as client:
            with pytest.raises(AuthError) as caught:
                await client.create_scope("never")
        error: BaseException | None = caught.value
        while error is not None:
            records.texts.append(f"{error!r} {vars(error)!r}")
            error = error.__cause__ or error.__context__
        async with open_client(config) as client:
            await client.create_scope(str(config.scope))
            await client.create_stream("s")
            async with client.event_writer("s") as writer:
                await writer.write_event(b"x", "key")
            async with client.begin_transaction("s") as txn:
                await txn.write_event(b"y", "key")
                await txn.commit()
                await txn.wait_committed()
            assert [event async for batch in client.read_events("s") for event in batch] == [
                b"x",
                b"y",
            ]
            tokens = {entry.token for entry in core_of(client).tokens._entries.values()}
            assert tokens
            assert all(tokens)
            secrets.update(token for token in tokens if token)
            # The first part is the same in each token of a kind; the others are what lets somebody in.
            secrets.update(part for token in tokens if token for part in token.split(".")[1:])
        records.texts.append(repr(config))
    logging.getLogger("a.logger.of.the.test").debug("is captured")
    assert any("is captured" in text for text in records.texts)
    for secret in secrets:
        assert len(secret) > 8
        assert not [text for text in records.texts if secret in text]


@pytest.mark.parametrize("token", ["not base64!", base64.b64encode(b"no colon").decode(), ""])
def test_malformed_credentials_are_refused_before_a_server_sees_them(token: str) -> None:
    """A 0.13.0 controller answers them with UNKNOWN, like a fault of its own, which would be tried again."""
    with pytest.raises(InvalidArgumentError, match="credentials"):
        Credentials("Basic", token)


def test_no_credentials_at_all(config: PravegaConfig) -> None:
    with pytest.raises(AuthError):
        with blocking.open_client(replace(config, credentials=None)) as client:
            client.create_scope("never")


def test_an_unknown_certificate_authority_is_refused(config: PravegaConfig) -> None:
    with pytest.raises(TlsError, match="certificate"):
        with blocking.open_client(replace(config, trust_store=None)) as client:
            client.create_scope("never")


def test_a_trust_store_that_is_not_there(config: PravegaConfig) -> None:
    with pytest.raises(InvalidArgumentError, match="no-such-file"):
        with blocking.open_client(replace(config, trust_store="/no-such-file")) as client:
            client.create_scope("never")


def test_plain_tcp_to_a_tls_server_is_an_error_with_the_address(secure: PravegaServer) -> None:
    plain = replace(
        secure.config(),
        controller_uri=secure.controller_uri.replace("tls://", "tcp://"),
    )
    host, port = secure.controller_address
    with pytest.raises(WrongProtocolError, match=f"{host}:{port}: the server speaks TLS"):
        with blocking.open_client(plain) as client:
            client.create_scope("never")


def test_the_host_name_is_checked_unless_told_otherwise(config: PravegaConfig, secure: PravegaServer) -> None:
    # The certificate is for localhost and 127.0.0.1; this is the same address, written otherwise.
    other = replace(config, controller_uri=secure.controller_uri.replace("127.0.0.1", "127.1"))
    with pytest.raises(TlsError, match=r"127\.1:\d+: the certificate is for another host"):
        with blocking.open_client(other) as client:
            client.create_scope("never")
    with blocking.open_client(replace(other, validate_hostname=False)) as client:
        assert client.create_scope(str(config.scope))


def test_the_fixture_of_a_scope_uses_the_account_of_its_server(secure: PravegaServer) -> None:
    [name] = inspect.unwrap(pytest_plugin.pravega_scope)(secure)
    with blocking.open_client(secure.config()) as client:
        assert client.scope_exists(name)
