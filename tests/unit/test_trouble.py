"""While a server is away, the log says what fails and until when it is tried: once, not for each call."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from time import monotonic
from typing import Any

import pytest
import trio
import trio.testing

from pravega_wire import PravegaConfig, aio, open_client, sync
from pravega_wire.errors import (
    ConnectError,
    ConnectionLostError,
    InvalidStreamCutError,
    NoSuchSegmentError,
    PravegaError,
    RetriesExhaustedError,
    WrongHostError,
)
from pravega_wire.segment.store import Backoff
from pravega_wire.support import trouble
from pravega_wire.testing import standalone
from pravega_wire.transport.limits import limit, note_failure, note_progress
from pravega_wire.transport.retry import RetryPolicy, retry
from tests.docs_blocks import ROOT
from tests.inside import forget_told, surroundings


@pytest.fixture(autouse=True)
def nothing_told() -> None:
    """What other tests have told must not matter."""
    forget_told()


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


def run(main: Callable[[], Any]) -> None:
    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


REFUSED = ConnectError("no connection to a:1: refused", host="a:1")
LOST = ConnectionLostError("a:1 closed the connection", host="a:1")
MOVED = WrongHostError("the segment is not on a:1", segment="s", host="a:1", request_id=1, server_trace="")


def test_a_server_that_cannot_be_reached_is_told_once_in_an_operation(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        with limit(20.0, "asking"):
            with limit(4.0, "a part of it", setting="a part's limit"):
                for port in range(3):
                    note_failure(ConnectError(f"no connection to b:{port}", host=f"b:{port}"))

    run(main)
    assert told(caplog) == ["asking: no connection to b:0; trying until 4 s have passed (a part's limit)"]


def test_a_hundred_operations_are_not_a_hundred_lines(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def one(number: int) -> None:
        with limit(4.0, f"asking {number}"):
            for _ in range(3):
                note_failure(REFUSED)
                await trio.sleep(0.1)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(one, number)

    run(main)
    assert len(told(caplog)) == 1
    # Another peer, and the same one after a minute.
    trouble.tell("asking", "refused", "for ever", (ConnectError, "b:1"))
    assert len(told(caplog)) == 2
    with surroundings(monotonic=lambda: monotonic() + 61):
        run(main)
    assert len(told(caplog)) == 3


@pytest.mark.parametrize("first", [LOST, MOVED])
def test_what_is_found_again_at_once_is_not_told(
    first: PravegaError, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        with limit(4.0, "asking"):
            note_failure(first)
            note_progress()
            note_failure(first)

    run(main)
    assert told(caplog) == []


@pytest.mark.parametrize("late", [False, True], ids=["the second", "a late one"])
def test_a_lost_connection_is_told_if_it_is_not_found_again(
    late: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        with limit(4.0, "asking"):
            if late:
                await trio.sleep(1.5)
            else:
                note_failure(MOVED)
            note_failure(LOST)

    run(main)
    assert told(caplog) == [
        "asking: a:1 closed the connection; trying until 4 s have passed (operation_timeout)"
    ]


def test_what_is_not_tried_again_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    gone = NoSuchSegmentError("gone", segment="s", host="a:1", request_id=1, server_trace="")

    async def main() -> None:
        with limit(4.0, "asking"):
            note_failure(gone)
            note_failure(gone)

    run(main)
    assert told(caplog) == []


def test_the_shorter_limit_of_a_loop_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async def attempt() -> None:
        await trio.lowlevel.checkpoint()
        raise REFUSED

    async def main() -> None:
        with limit(120.0, "asking"), pytest.raises(RetriesExhaustedError):
            await retry(
                RetryPolicy(attempts=attempts, total=10.0), attempt, retry_on=lambda _: True,
                describe="calling", setting="nobody has answered",
            )  # fmt: skip

    attempts = 1
    run(main)
    # There is no other attempt.
    assert told(caplog) == []
    attempts = 2
    run(main)
    assert told(caplog) == [
        "asking: no connection to a:1: refused; trying until 10 s have passed (nobody has answered)"
    ]


def test_loops_without_an_operation_tell_once_until_they_succeed(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        backoff = Backoff(20.0)
        for _ in range(3):
            backoff.failed(LOST, "appending to s")
            await backoff.wait()
        assert told(caplog) == [
            "appending to s: a:1 closed the connection; trying until 20 s have passed (operation_timeout)"
        ]
        backoff.reset()
        forget_told()
        backoff.failed(LOST, "appending to s")
        assert len(told(caplog)) == 1
        backoff.failed(LOST, "appending to s")
        assert len(told(caplog)) == 2

    run(main)


def test_no_token_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        with limit(4.0, "asking"):
            note_failure(ConnectError("refused eyJhbGciOi.eyJzdWIiOiJ.c2lnbmF0dXJl", host="a:1"))

    run(main)
    [line] = told(caplog)
    assert "eyJ" not in line


# --- the three clients ----------------------------------------------------------------------------


def by_trio(config: PravegaConfig) -> None:
    async def main() -> None:
        async with open_client(config) as client:
            await client.list_scopes()

    trio.run(main)


def by_threads(config: PravegaConfig) -> None:
    with sync.open_client(config) as client:
        client.list_scopes()


def by_asyncio(config: PravegaConfig) -> None:
    async def main() -> None:
        async with aio.open_client(config) as client:
            await client.list_scopes()

    asyncio.run(main())


@pytest.mark.parametrize("ask", [by_trio, by_threads, by_asyncio])
def test_nobody_listens(ask: Callable[[PravegaConfig], None], caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with pytest.raises(RetriesExhaustedError):
        ask(PravegaConfig(controller_uri=f"tcp://127.0.0.1:{port}", operation_timeout=0.5))
    assert told(caplog) == [
        f"controller call listScopes for all scopes: no connection to 127.0.0.1:{port}: connection refused: "
        "nothing listens there; trying until 0.5 s have passed (operation_timeout or controller_deadline)"
    ]


def test_cuts_in_the_wrong_order_are_no_trouble(caplog: pytest.LogCaptureFixture) -> None:
    # A controller answers them with a status that other calls try again until a limit has passed.
    with standalone(kind="memory") as server, sync.open_client(server.config("demo")) as client:
        client.create_scope("demo")
        client.create_stream("readings")
        with client.event_writer("readings") as writer:
            writer.write_event(b"21.5")
        with pytest.raises(InvalidStreamCutError, match="is not before"):
            client.segment_ranges("readings", "latest", "earliest")
    assert told(caplog) == []


def test_the_documents_list_every_logger_that_warns() -> None:
    page = (ROOT / "docs" / "observability.md").read_text(encoding="utf-8")
    for path in (ROOT / "pravega_wire").rglob("*.py"):
        if "log.warning(" in path.read_text(encoding="utf-8") and "testing" not in path.parts:
            assert f"`{'.'.join(path.relative_to(ROOT).with_suffix('').parts)}`" in page
