"""The gRPC calls against another implementation of the protocol, and against sockets that misbehave."""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent import futures
from contextlib import asynccontextmanager, suppress

import grpc
import h2.config
import h2.connection
import h2.events
import h2.settings
import pytest
import trio
from h2.errors import ErrorCodes
from hypothesis import given
from hypothesis import strategies as st

from pravega_wire.controller import channels
from pravega_wire.controller.client import ControllerClient, open_controller
from pravega_wire.errors import (
    AuthenticationError,
    ConnectError,
    ConnectionLostError,
    PravegaError,
    PravegaTimeoutError,
    ProtocolError,
    RetriesExhaustedError,
    WrongProtocolError,
)
from pravega_wire.grpc.call import CallResult, GrpcConnection
from pravega_wire.grpc.status import StatusCode
from pravega_wire.proto import controller_pb2 as pb
from pravega_wire.transport.grpc_channel import GrpcChannel
from pravega_wire.transport.retry import RetryPolicy
from pravega_wire.transport.stream import connect

SERVICE = "io.pravega.controller.stream.api.grpc.v1.ControllerService"
ECHO = "/echo.Echo/echo"


class StillAsking:
    """No list of controllers, and no refusal."""


class Server(grpc.GenericRpcHandler):
    """Raw bytes in, raw bytes out; what it does is said by the method's name."""

    def __init__(self, *options: tuple[str, int], port: int = 0) -> None:
        self.metadata: list[dict[str, str]] = []
        self.entered = threading.Event()
        self.release = threading.Event()
        self.failures = 0
        self.listed: list[list[int] | grpc.StatusCode | StillAsking] = []
        self.peers: set[str] = set()
        self._server = grpc.server(
            futures.ThreadPoolExecutor(64),
            options=[
                ("grpc.max_receive_message_length", -1),
                ("grpc.max_send_message_length", -1),
                *options,
            ],
        )
        self._server.add_generic_rpc_handlers((self,))
        self.port = self._server.add_insecure_port(f"127.0.0.1:{port}")
        self._server.start()

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        name = details.method.rpartition("/")[2]
        self.metadata.append(dict(details.invocation_metadata))
        handler: Callable[[bytes, grpc.ServicerContext], bytes] | None = getattr(self, f"do_{name}", None)
        return None if handler is None else grpc.unary_unary_rpc_method_handler(handler)

    def do_echo(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        return request

    def do_hold(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        self.entered.set()
        assert self.release.wait(60)
        return request

    def do_deadline(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        return repr(context.time_remaining()).encode()

    def do_fail(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        code = {each.value[0]: each for each in grpc.StatusCode}[request[0]]
        context.abort(code, f"söme text for {request[0]}")
        raise AssertionError

    def do_createScope(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        name = pb.ScopeInfo.FromString(request).scope
        self.peers.add(context.peer())
        if name == "flaky" and self.failures < 3:
            self.failures += 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "not just now")
        if name == "held":
            self.entered.set()
            assert self.release.wait(60)
        if name == "secret":
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "")
        if name == "rubbish":
            return b"\xff\xff\xff"
        return pb.CreateScopeStatus(status=pb.CreateScopeStatus.SUCCESS).SerializeToString()

    def do_getControllerServerList(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """Answer with the next of the lists of ports, or refuse with the next status."""
        ports = self.listed.pop(0)
        if isinstance(ports, StillAsking):
            self.release.wait(60)
        elif isinstance(ports, grpc.StatusCode):
            context.abort(ports, "Controller cluster not initialized")
        else:
            nodes = [pb.NodeUri(endpoint="127.0.0.1", port=port) for port in ports]
            return pb.ServerResponse(nodeURI=nodes).SerializeToString()
        raise AssertionError("not reached")
        return pb.ServerResponse(nodeURI=nodes).SerializeToString()

    def stop(self, grace: float | None = None) -> threading.Event:
        stopped: threading.Event = self._server.stop(grace)
        return stopped


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    yield found
    found.release.set()
    found.stop().wait(30)


@asynccontextmanager
async def channel(port: int) -> AsyncIterator[GrpcChannel]:
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            found = GrpcChannel(await connect("127.0.0.1", port), f"127.0.0.1:{port}", secure=False)
            nursery.start_soon(found.run)
            yield found
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def controller(
    *ports: int, deadline: float = 20, discovery: bool = False
) -> AsyncIterator[ControllerClient]:
    with trio.fail_after(60):
        async with open_controller(
            [("127.0.0.1", port) for port in ports],
            discovery=discovery,
            deadline=deadline,
            policy=RetryPolicy(initial=0.01, multiplier=2, cap=0.1, attempts=8),
        ) as found:
            yield found


@pytest.mark.parametrize("size", [0, 1, 16_384, 65_535, 65_536, 1_000_000, 9_000_000])
async def test_messages_of_all_sizes_pass_the_flow_control_windows_both_ways(
    server: Server, size: int
) -> None:
    message = bytes(range(256)) * (size // 256) + bytes(size % 256)
    async with channel(server.port) as found:
        result = await found.call(ECHO, message)
    assert (result.code, result.message) == (StatusCode.OK, message)


async def test_metadata_arrives(server: Server) -> None:
    async with channel(server.port) as found:
        await found.call(ECHO, b"", metadata=[("authorization", "Basic abc=")], timeout=30)
    (seen,) = server.metadata
    assert seen["authorization"] == "Basic abc="


@pytest.mark.parametrize("code", [code for code in StatusCode if code is not StatusCode.OK])
def test_every_status_and_its_text(server: Server, code: StatusCode) -> None:
    async def main() -> CallResult:
        async with channel(server.port) as found:
            return await found.call("/echo.Echo/fail", bytes([code.value]))

    result = trio.run(main)
    assert (result.code, result.text) == (code, f"söme text for {code.value}")


def test_an_unknown_method_is_unimplemented(server: Server) -> None:
    async def main() -> CallResult:
        async with channel(server.port) as found:
            return await found.call("/echo.Echo/nonesuch", b"")

    assert trio.run(main).code is StatusCode.UNIMPLEMENTED


async def test_hundreds_of_calls_at_once(server: Server) -> None:
    results: dict[int, bytes] = {}
    async with channel(server.port) as found:

        async def one(number: int) -> None:
            results[number] = (await found.call(ECHO, b"%d" % number * 500)).message

        async with trio.open_nursery() as nursery:
            for number in range(300):
                nursery.start_soon(one, number)
    assert results == {number: b"%d" % number * 500 for number in range(300)}


def test_no_more_calls_at_once_than_the_server_allows() -> None:
    server = Server(("grpc.max_concurrent_streams", 5))

    async def main() -> None:
        results: dict[int, bytes] = {}
        async with channel(server.port) as found:
            # The limit comes with the server's settings, which the first answer follows.
            await found.call(ECHO, b"")

            async def one(number: int) -> None:
                while True:
                    result = await found.call(ECHO, b"%d" % number)
                    # A stream has ended for us a moment before it has for the server.
                    if not result.unprocessed:
                        break
                results[number] = result.message

            async with trio.open_nursery() as nursery:
                for number in range(60):
                    nursery.start_soon(one, number)
                # This one waits for its turn, and gives up before it comes.
                with trio.move_on_after(0) as scope:
                    await found.call(ECHO, b"never")
                assert scope.cancelled_caught
            assert found.usable
        assert results == {number: b"%d" % number for number in range(60)}

    try:
        trio.run(main)
    finally:
        server.stop().wait(30)


def test_calls_beyond_the_server_s_limit_need_no_other_connection() -> None:
    server = Server(("grpc.max_concurrent_streams", 5))

    async def main() -> None:
        async with controller(server.port) as found:

            async def one(number: int) -> None:
                assert await found.create_scope(f"scope-{number}")

            await one(0)
            async with trio.open_nursery() as nursery:
                for number in range(60):
                    nursery.start_soon(one, number)

    try:
        trio.run(main)
    finally:
        server.stop().wait(30)
    assert len(server.peers) == 1


async def test_the_server_is_told_the_deadline_and_ends_the_call_by_it(server: Server) -> None:
    async with channel(server.port) as found:
        told = await found.call("/echo.Echo/deadline", b"", timeout=1000)
        assert 900 < float(told.message) <= 1000
        told = await found.call("/echo.Echo/deadline", b"", timeout=1e7)
        assert 9.9e6 < float(told.message) <= 1e7
        told = await found.call("/echo.Echo/deadline", b"", timeout=1e308)
        assert 9.9e7 < float(told.message) <= 1e8
        late = await found.call("/echo.Echo/hold", b"", timeout=0.2)
        assert late.code is StatusCode.DEADLINE_EXCEEDED
        assert (await found.call(ECHO, b"after")).message == b"after"


@pytest.mark.parametrize(
    ("error", "code", "unprocessed"),
    [
        (ErrorCodes.REFUSED_STREAM, StatusCode.UNAVAILABLE, True),
        (ErrorCodes.CANCEL, StatusCode.CANCELLED, False),
        (ErrorCodes.INTERNAL_ERROR, StatusCode.INTERNAL, False),
        (ErrorCodes.ENHANCE_YOUR_CALM, StatusCode.RESOURCE_EXHAUSTED, False),
    ],
)
async def test_a_reset_call_ends_alone(error: ErrorCodes, code: StatusCode, unprocessed: bool) -> None:
    """The first call is reset in the middle of its answer, the second is answered."""

    async def serve(stream: trio.SocketStream) -> None:
        state = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        state.initiate_connection()
        async for data in stream:
            for event in state.receive_data(data):
                if not isinstance(event, h2.events.StreamEnded):
                    continue
                state.send_headers(
                    event.stream_id, [(":status", "200"), ("content-type", "application/grpc")]
                )
                state.send_data(event.stream_id, b"\0\0\0\0\2ok"[: 4 if event.stream_id == 1 else 7])
                if event.stream_id == 1:
                    state.reset_stream(event.stream_id, error)
                else:
                    state.send_headers(event.stream_id, [("grpc-status", "0")], end_stream=True)
            await stream.send_all(state.data_to_send())

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        async with channel(listener.socket.getsockname()[1]) as found:
            first = await found.call(ECHO, b"")
            assert (first.code, first.unprocessed) == (code, unprocessed)
            assert error.name in first.text
            second = await found.call(ECHO, b"")
            assert (second.code, second.message) == (StatusCode.OK, b"ok")
        nursery.cancel_scope.cancel()


async def test_cancelling_a_call_leaves_the_others(server: Server) -> None:
    async with channel(server.port) as found:
        with trio.move_on_after(0.2) as scope:
            await found.call("/echo.Echo/hold", b"")
        assert scope.cancelled_caught
        assert (await found.call(ECHO, b"after")).message == b"after"
        assert found.usable


async def test_a_graceful_stop_lets_calls_end_and_takes_no_new_ones(server: Server) -> None:
    """The server says GOAWAY with a call under way: it is answered, and the next needs a new connection."""

    async with channel(server.port) as found:
        results: list[CallResult] = []

        async def hold() -> None:
            results.append(await found.call("/echo.Echo/hold", b"held"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(hold)
            await trio.to_thread.run_sync(server.entered.wait)
            stopped = server.stop(grace=30)
            while found.usable:  # nothing tells when GOAWAY has come
                await trio.sleep(0.01)
            server.release.set()
        assert [(each.code, each.message) for each in results] == [(StatusCode.OK, b"held")]
        await trio.to_thread.run_sync(stopped.wait)


async def test_the_controller_makes_a_new_connection_after_a_graceful_stop(server: Server) -> None:
    """A call is under way on the old connection, on the same address, while the new one is made."""

    async with controller(server.port) as found:
        async with trio.open_nursery() as nursery:

            async def held() -> None:
                assert await found.create_scope("held")

            nursery.start_soon(held)
            await trio.to_thread.run_sync(server.entered.wait)
            stopped = server.stop(grace=30)
            other = Server(port=server.port)
            try:
                assert await found.create_scope("new")
                server.release.set()
                await trio.to_thread.run_sync(stopped.wait)
                assert await found.create_scope("newer")
            finally:
                await trio.to_thread.run_sync(other.stop().wait)
        assert len(server.peers) == 1
        assert len(other.peers) == 1


async def test_a_connection_that_says_goaway_is_closed_when_it_is_replaced() -> None:
    """The server never closes it, so the client must."""
    closed = trio.Event()
    connections = 0

    async def serve(stream: trio.SocketStream) -> None:
        nonlocal connections
        connections += 1
        state = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        state.initiate_connection()
        reply = pb.CreateScopeStatus(status=pb.CreateScopeStatus.SUCCESS).SerializeToString()
        async for data in stream:
            for event in state.receive_data(data):
                if not isinstance(event, h2.events.StreamEnded):
                    continue
                state.send_headers(event.stream_id, [(":status", "200")])
                state.send_data(event.stream_id, b"\0" + len(reply).to_bytes(4, "big") + reply)
                state.send_headers(event.stream_id, [("grpc-status", "0")], end_stream=True)
                # The answer and a GOAWAY for later calls.
                goaway = bytes.fromhex("0000080700000000007fffffff00000000")
                await stream.send_all(state.data_to_send() + goaway)
            await stream.send_all(state.data_to_send())
        closed.set()

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        async with controller(listener.socket.getsockname()[1]) as found:
            assert await found.create_scope("a")
            assert await found.create_scope("b")
            await closed.wait()
            assert connections == 2
        nursery.cancel_scope.cancel()


def test_the_controller_goes_on_with_the_next_address(server: Server) -> None:
    other = Server()

    async def main() -> None:
        with socket.socket() as dead:
            dead.bind(("127.0.0.1", 0))
            async with controller(dead.getsockname()[1], server.port, other.port) as found:
                assert await found.create_scope("a")
                await trio.to_thread.run_sync(server.stop(grace=None).wait)
                assert await found.create_scope("b")

    try:
        trio.run(main)
    finally:
        other.stop().wait(30)


async def test_the_configured_address_is_tried_after_those_that_it_has_listed(server: Server) -> None:
    other = Server()
    server.listed = [[other.port]]
    async with controller(server.port, discovery=True) as found:
        assert await found.create_scope("a")
        await trio.to_thread.run_sync(server.stop(grace=None).wait)
        assert await found.create_scope("b")
        assert len(other.peers) == 1
        await trio.to_thread.run_sync(other.stop(grace=None).wait)
        again = Server(port=server.port)
        try:
            assert await found.create_scope("c")
        finally:
            await trio.to_thread.run_sync(again.stop().wait)


NO_LIST = [
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.UNKNOWN,  # of a standalone server
    grpc.StatusCode.UNAVAILABLE,
]


@pytest.mark.parametrize("status", NO_LIST)
async def test_without_a_list_of_controllers_the_configured_address_is_used(
    server: Server, status: grpc.StatusCode, caplog: pytest.LogCaptureFixture
) -> None:
    server.listed = [status] * 9
    async with controller(server.port, discovery=True) as found:
        assert await found.create_scope("a")
        assert await found.create_scope("b")
    # It was asked for once, and the second call did not ask again.
    assert len(server.listed) == 8
    [told] = [each.getMessage() for each in caplog.records if "list of controllers" in each.getMessage()]
    assert "Controller cluster not initialized" in told


async def test_controllers_are_asked_for_their_list_again_after_a_while(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    other = Server()
    refused = grpc.StatusCode.UNKNOWN
    server.listed = [refused, refused, [other.port, server.port], refused]
    try:
        async with controller(server.port, discovery=True) as found:
            monkeypatch.setattr(channels, "_DISCOVERY_SECONDS", 0.0)
            for _ in range(4):
                assert await found.create_scope("a")
            # After the list came, its absence is news.
            assert len([each for each in caplog.records if "list of controllers" in each.getMessage()]) == 2
            monkeypatch.setattr(channels, "_DISCOVERY_SECONDS", math.inf)
            await trio.to_thread.run_sync(server.stop(grace=None).wait)
            assert await found.create_scope("b")
        assert len(other.peers) == 1
    finally:
        await trio.to_thread.run_sync(other.stop().wait)


@pytest.mark.parametrize("listening", [True, False])
async def test_a_list_of_controllers_that_does_not_come_leaves_time_for_the_call(
    server: Server, listening: bool
) -> None:
    server.listed = [StillAsking()] * 9
    with socket.create_server(("127.0.0.1", 0)) as silent:
        # A peer that takes the connection and says nothing, or a controller that answers everything else.
        port = server.port if listening else silent.getsockname()[1]
        async with controller(port, server.port, deadline=8, discovery=True) as found:
            assert await found.create_scope("a")
            assert await found.create_scope("b")
    assert len(server.listed) >= 8


async def test_a_passing_failure_is_tried_again(server: Server) -> None:
    async with controller(server.port) as found:
        assert await found.create_scope("flaky")
    assert server.failures == 3


@pytest.mark.parametrize(("scope", "error"), [("secret", AuthenticationError), ("rubbish", ProtocolError)])
async def test_refusals_and_rubbish_are_named(server: Server, scope: str, error: type[PravegaError]) -> None:
    async with controller(server.port) as found:
        with pytest.raises(error, match=scope):
            await found.create_scope(scope)
        assert await found.create_scope("fine")


def test_nobody_listens() -> None:
    with socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))
        port = dead.getsockname()[1]

        async def main() -> None:
            async with controller(port) as found:
                with pytest.raises((RetriesExhaustedError, ConnectError), match=f"127.0.0.1:{port}"):
                    await found.create_scope("never")

        trio.run(main)


async def answering(data: bytes, *, close: bool) -> tuple[trio.SocketListener, Callable[..., object]]:
    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.send_all(data)
            if not close:
                # A client that gives up on it resets the connection.
                with suppress(trio.BrokenResourceError):
                    async for _ in stream:
                        pass

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    return listener, serve


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", WrongProtocolError),
        (b"\0" * 100, ConnectionLostError),
        (b"\xff" * 5000, ConnectionLostError),
        (b"SSH-2.0-x\r\n", WrongProtocolError),
    ],
)
@pytest.mark.parametrize("close", [True, False])
async def test_something_that_is_not_http2(data: bytes, error: type[PravegaError], close: bool) -> None:
    listener, serve = await answering(data, close=close)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, serve, [listener])  # type: ignore[arg-type]
        async with channel(listener.socket.getsockname()[1]) as found:
            with pytest.raises(error, match=r"127\.0\.0\.1"):
                await found.call(ECHO, b"")
        nursery.cancel_scope.cancel()


async def test_a_controller_that_never_answers() -> None:
    listener, serve = await answering(b"", close=False)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, serve, [listener])  # type: ignore[arg-type]
        with socket.socket() as _:
            async with controller(listener.socket.getsockname()[1], deadline=0.2) as found:
                with pytest.raises((PravegaTimeoutError, RetriesExhaustedError), match="never"):
                    await found.create_scope("never")
        nursery.cancel_scope.cancel()


@given(st.binary(max_size=300), st.integers(0, 400))
def test_any_bytes_end_in_a_protocol_error_or_nothing(data: bytes, valid: int) -> None:
    """Garbage after a valid beginning: never another exception, never an endless loop."""
    server_side = bytes.fromhex("000000040000000000") + bytes.fromhex("000000040100000000")
    connection = GrpcConnection("h:1", secure=False)
    connection.start_call(ECHO, b"x" * 100)
    connection.data_to_send()
    try:
        connection.receive_data(server_side[: valid % (len(server_side) + 1)] + data)
    except ProtocolError:
        return
    connection.data_to_send()


def test_thousands_of_calls_take_turns() -> None:
    connection = GrpcConnection("localhost:9090", secure=False)
    server = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
    server.local_settings = h2.settings.Settings(
        client=False, initial_values={h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: 10_000}
    )
    server.initiate_connection()
    connection.receive_data(server.data_to_send())
    calls = {connection.start_call("/echo.Echo/echo", b"%d" % number) for number in range(1000)}
    finished: set[int] = set()
    most = 0
    while finished < calls:
        ended = [
            event.stream_id
            for event in server.receive_data(connection.data_to_send())
            if isinstance(event, h2.events.StreamEnded)
        ]
        assert ended
        most = max(most, server.open_inbound_streams)
        for stream_id in ended:
            server.send_headers(stream_id, [(":status", "200")])
            server.send_data(stream_id, bytes(5))
            server.send_headers(stream_id, [("grpc-status", "0")], end_stream=True)
        finished |= {result.call_id for result in connection.receive_data(server.data_to_send())}
    # h2 would look at all of them for each new one.
    assert 1 < most <= 128


def pair() -> tuple[GrpcConnection, h2.connection.H2Connection]:
    """A connection and its server, which have exchanged their settings."""
    connection = GrpcConnection("localhost:9090", secure=False)
    server = h2.connection.H2Connection(
        h2.config.H2Configuration(
            client_side=False, validate_outbound_headers=False, normalize_outbound_headers=False
        )
    )
    server.initiate_connection()
    server.receive_data(connection.data_to_send())
    connection.receive_data(server.data_to_send())
    return connection, server


def answer(
    server: h2.connection.H2Connection,
    stream_id: int,
    *trailers: tuple[str | bytes, str | bytes],
    message: bytes = bytes(5),
    headers: tuple[str, str] = (":status", "200"),
) -> bytes:
    server.send_headers(stream_id, [headers])
    server.send_data(stream_id, message)
    server.send_headers(stream_id, trailers or [("grpc-status", "0")], end_stream=True)
    data: bytes = server.data_to_send()
    return data


def test_a_server_that_allows_no_calls_for_a_while_is_waited_for() -> None:
    connection, server = pair()
    first = connection.start_call(ECHO, b"first")
    server.receive_data(connection.data_to_send())
    server.update_settings({h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: 0})
    connection.receive_data(server.data_to_send())
    second = connection.start_call(ECHO, b"second")
    assert server.receive_data(connection.data_to_send())  # the settings are acknowledged
    assert server.open_inbound_streams == 1
    assert [each.call_id for each in connection.receive_data(answer(server, 1))] == [first]
    server.update_settings({h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: 100})
    connection.receive_data(server.data_to_send())
    server.receive_data(connection.data_to_send())
    assert [each.call_id for each in connection.receive_data(answer(server, 3))] == [second]


def test_after_a_violation_calls_are_for_another_connection() -> None:
    """Other tasks run before the connection has ended: none of them may fail with the error of h2."""
    connection, server = pair()
    call = connection.start_call(ECHO, b"x" * 100_000)
    connection.start_call(ECHO, b"y" * 100_000)
    window_update_of_nothing = bytes.fromhex("000004080000000000") + bytes(4)
    with pytest.raises(ProtocolError, match="violated"):
        connection.receive_data(window_update_of_nothing)
    assert not connection.accepting
    with pytest.raises(ConnectionLostError, match="localhost:9090") as caught:
        connection.start_call(ECHO, b"")
    assert caught.value.retriable
    connection.cancel_call(call)
    connection.ping()
    assert isinstance(server.receive_data(connection.data_to_send())[-1], h2.events.ConnectionTerminated)


def test_headers_may_hold_any_bytes() -> None:
    connection, server = pair()
    connection.start_call(ECHO, b"")
    server.receive_data(connection.data_to_send())
    trailers = [(b"grpc-status", b"7"), (b"grpc-message", b"acc\xe8s refus%C3%A9"), (b"x-bin", b"\xff\xfe")]
    [result] = connection.receive_data(answer(server, 1, *trailers))
    assert (result.code, result.text) == (StatusCode.PERMISSION_DENIED, "acc\ufffds refus\xe9")


@pytest.mark.parametrize("text", ["no such scope ", "\tno such scope", "no\nsuch\0scope"])
def test_an_error_whose_text_is_no_value_of_http_ends_its_call_only(text: str) -> None:
    """A controller puts the spaces of its message into the header as they are."""
    connection, server = pair()
    first, second = (connection.start_call(ECHO, b"") for _ in range(2))
    server.receive_data(connection.data_to_send())
    [result] = connection.receive_data(answer(server, 1, ("grpc-status", "5"), ("grpc-message", text)))
    assert (result.call_id, result.code, result.text) == (first, StatusCode.NOT_FOUND, text)
    [result] = connection.receive_data(answer(server, 3))
    assert (result.call_id, result.code) == (second, StatusCode.OK)


def test_headers_of_the_size_that_is_declared_are_taken() -> None:
    """With a larger one, a server would send what ends the connection instead of refusing to send it."""
    connection, server = pair()
    connection.start_call(ECHO, b"")
    server.receive_data(connection.data_to_send())
    declared = server.remote_settings.max_header_list_size
    assert declared is not None
    # More would take the server's h2 minutes to write.
    text = "x" * (min(declared, 80_000) - 100)
    [result] = connection.receive_data(answer(server, 1, ("grpc-status", "5"), ("grpc-message", text)))
    assert (result.code, result.text) == (StatusCode.NOT_FOUND, text)


@pytest.mark.parametrize(
    "headers",
    [[("grpc-status", "0")], [("", ""), (":status", "x")], [(":status", "200"), (":status", "2\0")]],
)
def test_headers_that_are_no_answer(headers: list[tuple[str, str]]) -> None:
    """Neither an exception of h2 nor one of Python, and no success without a message."""
    connection, server = pair()
    connection.start_call(ECHO, b"")
    server.receive_data(connection.data_to_send())
    server.send_headers(1, headers, end_stream=True)
    try:
        [result] = connection.receive_data(server.data_to_send())
    except ProtocolError:
        return
    assert result.code is not StatusCode.OK


@pytest.mark.parametrize(
    ("headers", "code", "text"),
    [
        (("x", "y"), StatusCode.UNKNOWN, "the reply has no HTTP status"),
        ((":status", "503"), StatusCode.UNAVAILABLE, "HTTP status 503"),
    ],
)
def test_a_success_without_that_of_http_is_none(
    headers: tuple[str, str], code: StatusCode, text: str
) -> None:
    connection, server = pair()
    connection.start_call(ECHO, b"")
    server.receive_data(connection.data_to_send())
    [result] = connection.receive_data(answer(server, 1, headers=headers))
    assert (result.code, result.text) == (code, text)


def test_a_compressed_reply_is_not_that_of_an_old_server() -> None:
    """UNIMPLEMENTED would say that the controller does not have the call."""
    connection, server = pair()
    connection.start_call(ECHO, b"")
    server.receive_data(connection.data_to_send())
    [result] = connection.receive_data(answer(server, 1, message=b"\1" + bytes(4)))
    assert (result.code, result.text) == (
        StatusCode.INTERNAL, "the reply is compressed, which was not requested"
    )  # fmt: skip


def test_a_peer_that_takes_no_answers_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pravega_wire.grpc.call._MOST_ANSWERS", 10_000)
    connection, _ = pair()
    connection.data_to_send()
    pings = (bytes.fromhex("000008060000000000") + bytes(8)) * 100
    for _ in range(20):
        connection.receive_data(pings)
        assert len(connection.data_to_send()) == len(pings)
    # The body of a call is none of the answers.
    connection.start_call(ECHO, bytes(60_000))
    connection.receive_data(pings)
    with pytest.raises(ProtocolError, match="takes none of the 10200 bytes"):
        for _ in range(20):
            connection.receive_data(pings)
