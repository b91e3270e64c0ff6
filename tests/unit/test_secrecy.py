"""No password or token in a log record, an error or a repr."""

from __future__ import annotations

import base64
import dataclasses
import inspect
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import h2.config
import h2.connection
import h2.events
import hpack
import pytest
import trio

from pravega_wire.controller.client import ControllerClient, open_controller
from pravega_wire.errors import AuthenticationError, PravegaError
from pravega_wire.grpc.call import GrpcConnection
from pravega_wire.protocol import commands as c
from pravega_wire.segment.failures import error_of
from pravega_wire.support.secrecy import secrets_of, without_secrets
from pravega_wire.transport.retry import RetryPolicy
from pravega_wire.values.config import Credentials

CREDENTIALS = Credentials.basic("admin", "hunter2-hunter2")
TOKEN = "eyJhbGciOiJIUzUxMiJ9.eyJzdWIiOiJzZWdtZW50c3RvcmUifQ.c2lnbmF0dXJl"


class Records(logging.Handler):
    """Everything that is logged, with its arguments."""

    def __init__(self) -> None:
        super().__init__(0)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(f"{record.name} {record.getMessage()} {record.args!r}")


@pytest.fixture
def records() -> Iterator[Records]:
    root = logging.getLogger()
    level, handler = root.level, Records()
    root.setLevel(0)
    root.addHandler(handler)
    try:
        yield handler
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


@asynccontextmanager
async def echoing_controller(status: str) -> AsyncIterator[ControllerClient]:
    """Refuses every call, and repeats its credentials in its headers and in its message."""

    async def serve(stream: trio.SocketStream) -> None:
        # The peer's own hpack logs as well, as another user of it would: not while it answers, though.
        disabled = [logging.getLogger("hpack.hpack"), logging.getLogger("hpack.table")]
        state = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
        )
        state.initiate_connection()
        async for data in stream:
            for logger in disabled:
                logger.disabled = True
            for event in state.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    found = dict(event.headers)["authorization"]
                    pair = base64.b64decode(found.split()[1]).decode()
                    password = pair.partition(":")[2]
                    state.send_headers(
                        event.stream_id,
                        [
                            (":status", "200"),
                            ("content-type", "application/grpc"),
                            ("authorization", found),
                            ("grpc-status", status),
                            ("grpc-message", f"refused {found}, that is {pair} or {password}; {TOKEN}"),
                        ],
                        end_stream=True,
                    )
            answer = state.data_to_send()
            for logger in disabled:
                logger.disabled = False
            await stream.send_all(answer)

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        port = listener.socket.getsockname()[1]
        async with open_controller(
            [("127.0.0.1", port)],
            credentials=lambda: CREDENTIALS.header,
            policy=RetryPolicy(initial=0, attempts=2),
        ) as found:
            yield found
        nursery.cancel_scope.cancel()


def shown(error: BaseException | None) -> Iterator[str]:
    while error is not None:
        yield from (str(error), repr(error), repr(vars(error)))
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize(("status", "kind"), [("16", AuthenticationError), ("2", PravegaError)])
async def test_refused_credentials_that_are_repeated_are_neither_logged_nor_in_the_error(
    records: Records, status: str, kind: type[PravegaError]
) -> None:
    async with echoing_controller(status) as controller:
        with pytest.raises(kind, match="refused") as caught:
            await controller.create_scope("never")
    texts = [*shown(caught.value), *records.texts]
    for secret in (CREDENTIALS.token, "hunter2", TOKEN):
        assert not [text for text in texts if secret in text]


def test_other_users_of_hpack_keep_their_records(records: Records) -> None:
    """Before, between and after calls of ours, and in a thread beside one."""
    connection = GrpcConnection("h:1", secure=False)
    hpack.Encoder().encode([("x-mine", "before")])
    connection.start_call("/s/m", b"", metadata=[("authorization", CREDENTIALS.header)])
    hpack.Encoder().encode([("x-mine", "after")])
    assert connection.data_to_send()
    with pytest.raises(PravegaError):
        connection.receive_data(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    hpack.Encoder().encode([("x-mine", "after-a-failure")])
    beside = threading.Thread(target=lambda: hpack.Encoder().encode([("x-mine", "beside")]))
    beside.start()
    beside.join()
    mine = [text for text in records.texts if "x-mine" in text]
    for word in ("before", "after", "after-a-failure", "beside"):
        assert [text for text in mine if word in text]
    assert not [text for text in records.texts if "authorization" in text or ":authority" in text]


def test_secrets_are_hidden_in_a_text() -> None:
    secrets = secrets_of(CREDENTIALS.header)
    text = f"refused Basic {CREDENTIALS.token} (admin:hunter2-hunter2, 'hunter2-hunter2')"
    assert without_secrets(text, secrets) == "refused Basic [hidden] ([hidden], '[hidden]')"
    assert without_secrets(f"bad token {TOKEN}.") == "bad token [hidden]."
    assert without_secrets("nothing to hide", secrets_of(None)) == "nothing to hide"
    # A password of a letter does not take the letters out of other words.
    assert (
        without_secrets("a bad a:a", secrets_of(Credentials.basic("a", "a").header))
        == "[hidden] bad [hidden]"
    )
    assert without_secrets("x Bearer tok-1", secrets_of("Bearer tok-1")) == "x Bearer [hidden]"
    # Method and token were exchanged.
    assert without_secrets("no method tok-1-tok-1", secrets_of("tok-1-tok-1 bearer")) == "no method [hidden]"


def test_no_command_shows_its_delegation_token() -> None:
    found = 0
    for kind in c.COMMANDS.values():
        names = [each.name for each in dataclasses.fields(kind)]  # type: ignore[arg-type]
        if "delegation_token" not in names:
            continue
        found += 1
        values = {name: TOKEN if name == "delegation_token" else 0 for name in names}
        assert TOKEN not in repr(kind(**values))
    assert found == inspect.getsource(c).count("    delegation_token: Utf")


def test_a_token_that_a_store_repeats_is_hidden() -> None:
    reply = c.ErrorMessage(
        request_id=1, segment="s/t/0.#epoch.0", message=f"cannot parse {TOKEN}", error_code=1
    )
    error = error_of(reply, segment="s/t/0.#epoch.0", host="h:1", doing="reading")
    assert "cannot parse" in error.message
    for text in shown(error):
        assert TOKEN not in text
