"""What a user learns when there is no controller at the address: real sockets, servers of other kinds."""

from __future__ import annotations

import http.server
import socket
import ssl
import struct
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import h2.config
import h2.connection
import h2.events
import pytest
import trio
import trustme

from pravega_wire.controller.client import open_controller
from pravega_wire.errors import (
    AuthenticationError,
    ConnectError,
    ConnectionLostError,
    HostNotFoundError,
    PravegaError,
    RetriesExhaustedError,
    TlsError,
    WrongProtocolError,
)
from pravega_wire.grpc.diagnosis import HTTP1, STORE, TLS, diagnose_first_bytes
from pravega_wire.protocol import codec
from pravega_wire.protocol.commands import Hello
from pravega_wire.transport.pool import ConnectionPool
from pravega_wire.transport.retry import RetryPolicy
from pravega_wire.transport.stream import connect

Serve = Callable[[trio.SocketStream], Awaitable[None]]


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def server_context(authority: trustme.CA, *names: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    return context


def client_context(authority: trustme.CA | None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if authority is not None:
        authority.configure_trust(context)
    return context


class Listener:
    """A listener that counts its connections."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self.port = 0
        self.connections = 0

    async def serve(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        try:
            await self._serve(stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            await trio.aclose_forcefully(stream)


@asynccontextmanager
async def listening(*serves: Serve) -> AsyncIterator[list[Listener]]:
    found = [Listener(serve) for serve in serves]
    async with trio.open_nursery() as nursery:
        for each in found:
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            each.port = listener.socket.getsockname()[1]
            nursery.start_soon(trio.serve_listeners, each.serve, [listener])
        yield found
        nursery.cancel_scope.cancel()


async def tls_server(context: ssl.SSLContext, stream: trio.SocketStream) -> None:
    """Closes a connection that does not speak TLS without an answer, as Netty does."""
    first = await stream.socket.recv(1, socket.MSG_PEEK)
    if first != b"\x16":
        return
    secured = trio.SSLStream(stream, context, server_side=True)
    async for _ in secured:
        pass


async def store(stream: trio.SocketStream) -> None:
    """A segment store: answers a Hello, and closes for everything else."""
    hello = codec.encode(Hello(high_version=16, low_version=5))
    if (await stream.receive_some(len(hello))) == hello:
        await stream.send_all(hello)
        await stream.receive_some(1)


async def says(data: bytes, stream: trio.SocketStream) -> None:
    await stream.send_all(data)
    async for _ in stream:
        pass


async def closes(stream: trio.SocketStream) -> None:
    await stream.receive_some(1)


def failure(
    *addresses: tuple[str, int],
    tls: ssl.SSLContext | None = None,
    attempts: int = 50,
) -> Callable[[], Awaitable[PravegaError]]:
    async def ask() -> PravegaError:
        async with open_controller(
            list(addresses), tls=tls, policy=RetryPolicy(initial=0, cap=0, attempts=attempts)
        ) as controller:
            with pytest.raises(PravegaError) as caught:
                await controller.create_scope("never")
            return caught.value

    return ask


async def asked(ask: Callable[[], Awaitable[PravegaError]]) -> PravegaError:
    with trio.fail_after(60):
        return await ask()


def test_a_name_that_nobody_knows_is_not_tried_again() -> None:
    for host in ("no-such-host.invalid", "a" * 70 + ".invalid"):
        error = trio.run(asked, failure((host, 9090)))
        assert type(error) is HostNotFoundError
        assert host in error.message
        assert error.host == f"{host}:9090"


def test_a_name_that_cannot_be_resolved_now_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Resolver(trio.abc.HostnameResolver):
        calls = 0

        async def getaddrinfo(self, *_: object) -> list[tuple[object, ...]]:  # type: ignore[override]
            self.calls += 1
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

        async def getnameinfo(self, *_: object) -> tuple[str, str]:
            raise NotImplementedError

    resolver = Resolver()

    async def main() -> PravegaError:
        trio.socket.set_custom_hostname_resolver(resolver)
        return await asked(failure(("somewhere", 9090), attempts=4))

    error = trio.run(main)
    assert type(error) is RetriesExhaustedError
    assert "cannot be resolved now" in error.message
    assert resolver.calls == 4


def test_nothing_listens_which_may_change() -> None:
    with socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))
        port = dead.getsockname()[1]
        error = trio.run(asked, failure(("127.0.0.1", port), attempts=4))
    assert type(error) is RetriesExhaustedError
    assert f"127.0.0.1:{port}: connection refused" in error.message
    assert "4 attempts" in error.message
    assert type(error.__cause__) is ConnectError


async def test_a_certificate_for_another_host(authority: trustme.CA) -> None:
    async with listening(partial(tls_server, server_context(authority, "elsewhere.example"))) as (one,):
        error = await asked(failure(("127.0.0.1", one.port), tls=client_context(authority)))
        assert type(error) is TlsError
        assert f"127.0.0.1:{one.port}: the certificate is for another host" in error.message
        assert one.connections == 1


async def test_a_certificate_of_an_unknown_authority(authority: trustme.CA) -> None:
    async with listening(partial(tls_server, server_context(authority, "127.0.0.1"))) as (one,):
        error = await asked(failure(("127.0.0.1", one.port), tls=client_context(None)))
        assert type(error) is TlsError
        assert "authority that is not trusted" in error.message
        assert "trust_store" in error.message
        assert one.connections == 1


@pytest.mark.parametrize(
    "serve",
    [partial(says, b"HTTP/1.1 400 Bad Request\r\n\r\n"), partial(says, bytes.fromhex("000000040000000000"))],
    ids=["http1", "http2"],
)
async def test_the_server_speaks_no_tls_and_the_uri_says_so(authority: trustme.CA, serve: Serve) -> None:
    async with listening(serve) as (one,):
        error = await asked(failure(("127.0.0.1", one.port), tls=client_context(authority)))
        assert type(error) is WrongProtocolError
        assert f"127.0.0.1:{one.port}: the server does not speak TLS" in error.message
        assert one.connections == 1


async def test_the_server_speaks_tls_and_the_uri_says_tcp(authority: trustme.CA) -> None:
    """It closes the connection without an answer, as a controller does: it has to be asked what it speaks."""

    async with listening(partial(tls_server, server_context(authority, "127.0.0.1"))) as (one,):
        error = await asked(failure(("127.0.0.1", one.port)))
        assert type(error) is WrongProtocolError
        assert f"127.0.0.1:{one.port}: {TLS}" in error.message
        assert one.connections == 2


@pytest.mark.parametrize(
    ("serve", "sentence"),
    [
        (partial(says, b"HTTP/1.1 400 Bad Request\r\n\r\n"), HTTP1),
        (partial(says, bytes.fromhex("15030300020228")), TLS),
        (store, STORE),
        (partial(says, b"220 mail.example ESMTP ready\r\n"), "220 mail"),
    ],
    ids=["http1", "tls-alert", "store", "mail"],
)
async def test_something_else_listens(serve: Serve, sentence: str) -> None:
    async with listening(serve) as (one,):
        error = await asked(failure(("127.0.0.1", one.port)))
        assert type(error) is WrongProtocolError
        assert sentence in error.message
        assert error.host == f"127.0.0.1:{one.port}"


async def test_a_segment_store_listens_that_speaks_tls(authority: trustme.CA) -> None:
    context = server_context(authority, "127.0.0.1")

    async def tls_store(stream: trio.SocketStream) -> None:
        secured = trio.SSLStream(stream, context, server_side=True, https_compatible=True)
        hello = codec.encode(Hello(high_version=16, low_version=5))
        if await secured.receive_some(len(hello)) == hello:
            await secured.send_all(hello)
            await secured.receive_some(1)

    async with listening(tls_store) as (one,):
        error = await asked(failure(("127.0.0.1", one.port), tls=client_context(authority)))
        assert type(error) is WrongProtocolError
        assert STORE in error.message


@pytest.fixture
def web_server() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_a_web_server(web_server: int, capfd: pytest.CaptureFixture[str]) -> None:
    """It answers HTTP/2 with a page, without so much as a status line."""
    error = trio.run(asked, failure(("127.0.0.1", web_server)))
    assert type(error) is WrongProtocolError
    assert HTTP1 in error.message


async def test_a_server_that_closes_without_a_word_may_be_starting() -> None:
    async with listening(closes) as (one,):
        error = await asked(failure(("127.0.0.1", one.port), attempts=3))
        assert type(error) is RetriesExhaustedError
        assert "3 attempts" in error.message
        assert type(error.__cause__) is ConnectionLostError


async def test_a_tls_handshake_that_is_cut_off_may_succeed_later(authority: trustme.CA) -> None:
    async with listening(closes) as (one,):
        error = await asked(failure(("127.0.0.1", one.port), tls=client_context(authority), attempts=3))
        assert type(error) is RetriesExhaustedError
        assert "TLS handshake" in error.message
        assert one.connections == 3


async def test_a_damaged_tls_handshake_may_succeed_later(authority: trustme.CA) -> None:
    context = server_context(authority, "127.0.0.1")

    async def serve(stream: trio.SocketStream) -> None:
        received, answer = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = context.wrap_bio(received, answer, server_side=True)
        received.write(await stream.receive_some())
        with pytest.raises(ssl.SSLWantReadError):
            server.do_handshake()
        flight = bytearray(answer.read())
        flight[-1] ^= 1
        await stream.send_all(flight)
        await stream.receive_some()

    async with listening(serve) as [listener]:
        with pytest.raises(ConnectError, match="TLS handshake") as caught:
            await connect("127.0.0.1", listener.port, tls=client_context(authority))
        assert caught.value.retriable


@pytest.mark.parametrize(
    "damaged", [b"\x17\x03\x03\x00\x20" + bytes(32), bytes(100)], ids=["record", "no record"]
)
async def test_damage_after_the_handshake_ends_only_the_connection(
    authority: trustme.CA, damaged: bytes
) -> None:
    context = server_context(authority, "127.0.0.1")

    async def serve(stream: trio.SocketStream) -> None:
        secured = trio.SSLStream(stream, context, server_side=True)
        await secured.do_handshake()
        await stream.send_all(damaged)
        await stream.receive_some(1)

    async with listening(serve) as [listener]:
        stream = await connect("127.0.0.1", listener.port, tls=client_context(authority))
        with pytest.raises(ConnectionLostError, match=f"127.0.0.1:{listener.port} was lost") as caught:
            await stream.receive()
        assert caught.value.retriable
        await stream.aclose()


async def test_a_reset_under_tls_names_its_reason(authority: trustme.CA) -> None:
    context = server_context(authority, "127.0.0.1")

    async def serve(stream: trio.SocketStream) -> None:
        await trio.SSLStream(stream, context, server_side=True).do_handshake()
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async with listening(serve) as [listener]:
        stream = await connect("127.0.0.1", listener.port, tls=client_context(authority))
        for reason in (".*reset", ".*pipe", "it broke before$"):
            with pytest.raises(ConnectionLostError, match=f"was lost: {reason}"):
                await (stream.receive() if "reset" in reason else stream.send_all(b"x"))
        await stream.aclose()


async def test_a_server_that_wants_a_certificate_is_not_tried_again(authority: trustme.CA) -> None:
    """In TLS 1.3 it says so after the client's handshake."""
    context = server_context(authority, "127.0.0.1")
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED

    def serve(listener: socket.socket) -> None:
        # Not by trio, which does not send the alert.
        with pytest.raises(ssl.SSLError):
            context.wrap_socket(listener.accept()[0], server_side=True)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, serve, listener)
            port = listener.getsockname()[1]
            stream = await connect("127.0.0.1", port, tls=client_context(authority))
            with pytest.raises(TlsError, match=rf"127\.0\.0\.1:{port}.*certificate required"):
                await stream.receive()
            await stream.aclose()


async def test_the_other_addresses_are_tried(authority: trustme.CA) -> None:
    """Whatever is wrong with one of them."""

    tls = partial(tls_server, server_context(authority, "127.0.0.1"))
    async with listening(partial(says, b"HTTP/1.1 400 Bad Request\r\n\r\n"), store, tls) as wrong:
        error = await asked(
            failure(("no-such-host.invalid", 1), *(("127.0.0.1", each.port) for each in wrong))
        )
        assert type(error) is WrongProtocolError
        assert all(each.connections for each in wrong)
        assert wrong[0].connections == 1
    with socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))
        addresses = [("no-such-host.invalid", 1), dead.getsockname()]
        error = await asked(failure(*addresses, attempts=3))
    # One of them may be starting.
    assert type(error) is RetriesExhaustedError
    assert "no-such-host.invalid' is unknown" in error.message
    assert "connection refused" in error.message


async def test_a_store_s_name_may_be_unknown_for_a_while() -> None:
    """The controller named it: in a cluster its name comes back with it."""

    class Nobody:
        def on_reply(self, reply: object) -> bool:
            return False

        def on_lost(self, error: PravegaError) -> None:
            pass

    async with trio.open_nursery() as nursery:
        pool = ConnectionPool(nursery, tls=None, max_per_store=1)
        with pytest.raises(ConnectError, match="is unknown") as caught:
            await pool.flow(("no-such-host.invalid", 1), Nobody())
        assert caught.value.retriable
        pool.close()


async def test_an_ipv6_address_is_in_brackets_where_a_host_is_named() -> None:
    authorities: list[str] = []

    async def serve(stream: trio.SocketStream) -> None:
        state = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
        )
        state.initiate_connection()
        async for data in stream:
            for event in state.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    authorities.append(dict(event.headers)[":authority"])
                    refusal = [(":status", "200"), ("grpc-status", "16")]
                    state.send_headers(event.stream_id, refusal, end_stream=True)
            await stream.send_all(state.data_to_send())

    try:
        (listener,) = await trio.open_tcp_listeners(0, host="::1")
    except OSError as error:
        pytest.skip(f"this machine has no IPv6: {error}")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        port = listener.socket.getsockname()[1]
        assert type(await asked(failure(("::1", port)))) is AuthenticationError
        assert authorities == [f"[::1]:{port}"]
        nursery.cancel_scope.cancel()
    # Nobody listens there any more.
    with pytest.raises(ConnectError, match=rf"no connection to \[::1\]:{port}: ") as caught:
        await connect("::1", port)
    assert caught.value.host == f"[::1]:{port}"


async def test_a_trust_store_and_the_right_name_connect(authority: trustme.CA, tmp_path: Path) -> None:
    async with listening(partial(tls_server, server_context(authority, "127.0.0.1"))) as (one,):
        stream = await connect("127.0.0.1", one.port, tls=client_context(authority))
        await stream.aclose()


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", None),
        (b"H", None),
        (b"HTTP/1.0 200 OK", HTTP1),
        (b"<!doctype html>\n", HTTP1),
        (bytes.fromhex("160303004a020000"), TLS),
        (bytes.fromhex("1503010002"), TLS),
        (codec.encode(Hello(high_version=16, low_version=5)), STORE),
        (bytes.fromhex("000012040000000000"), None),  # SETTINGS of a controller
        (bytes.fromhex("00001604000000000000"), None),
        (b"\xff" * 20, None),
    ],
)
def test_first_bytes(data: bytes, sentence: str | None) -> None:
    assert diagnose_first_bytes(data) == sentence
    assert diagnose_first_bytes(data + b"\r\n and more of the same") == sentence or len(data) < 9
