"""Conditional appends on stores that are only made up: an append whose answer was lost is made once."""

from __future__ import annotations

from threading import get_ident
from typing import Any, cast

import pytest
import trio
import trio.testing

from pravega_wire.errors import ConnectionLostError, PravegaError, UnexpectedReplyError
from pravega_wire.protocol import commands as c
from pravega_wire.segment.conditional import ConditionalAppender
from pravega_wire.segment.store import SegmentStores, SegmentTarget
from pravega_wire.transport.limits import Limits

NAME = "scope/stream/0.#epoch.0"


class Store:
    """Stores, pool, flow and connection in one, with the answers that a script gives."""

    operation_timeout = 30.0
    limits = Limits.of(30.0)
    attempt_limit = SegmentStores.attempt_limit
    host = "host:1"
    thread = get_ident()

    def __init__(self, *script: str) -> None:
        self.pool = self.connection = self
        self.script = list(script)
        self.sent: list[str] = []
        self.handler: ConditionalAppender
        self.requests = 0

    async def endpoint(self, target: object) -> tuple[str, int]:
        return "host", 1

    def forget(self, target: object) -> None:
        pass

    async def flow(self, endpoint: object, handler: ConditionalAppender) -> Store:
        self.handler = handler
        return self

    def next_request_id(self) -> int:
        self.requests += 1
        return self.requests

    def close(self) -> None:
        pass

    def retire(self) -> None:
        pass

    def send(self, command: c.Command) -> None:
        step, _, detail = self.script.pop(0).partition(" ")
        self.sent.append(type(command).__name__)
        if step == "lost":
            self.handler.on_lost(ConnectionLostError("lost"))
        elif step == "silent":
            pass
        elif isinstance(command, c.SetupAppend):
            assert step == "number"
            self.handler.on_reply(
                c.AppendSetup(command.request_id, command.segment, command.writer_id, int(detail))
            )
        else:
            assert isinstance(command, c.ConditionalAppend)
            if step == "refused":
                self.handler.on_reply(
                    c.ConditionalCheckFailed(command.writer_id, command.event_number, command.request_id)
                )
            else:
                assert step == "stored"
                self.handler.on_reply(
                    c.DataAppended(
                        writer_id=command.writer_id,
                        event_number=command.event_number,
                        previous_event_number=0,
                        request_id=command.request_id,
                        current_segment_write_offset=0,
                    )
                )


@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        (["number 0", "stored"], 109),
        (["number 0", "refused"], None),
        # The store had it before the next set-up asked.
        (["number 0", "lost", "number 1"], 109),
        # It had not, and was free for it.
        (["number 0", "lost", "number 0", "stored"], 109),
        # It got it after the set-up had asked, so the second one meets a longer segment.
        (["number 0", "lost", "number 0", "refused", "number 1"], 109),
        (["number 0", "silent", "number 0", "refused", "lost", "number 1"], 109),
        # Somebody else was faster.
        (["number 0", "lost", "number 0", "refused", "number 0"], None),
        # The connection was lost before anything was sent: a refusal is one.
        (["lost", "number 0", "refused"], None),
    ],
)
def test_what_was_stored_is_known(script: list[str], outcome: int | None) -> None:
    store = Store(*script)

    async def main() -> int | PravegaError | None:
        appender = ConditionalAppender(cast("Any", store), SegmentTarget.of(NAME))
        return await appender.append(b"x", 100)

    assert trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0)) == outcome
    assert store.script == []


@pytest.mark.parametrize("script", [["number 1"], ["lost", "number 1"]])
def test_what_was_not_sent_is_not_stored(script: list[str]) -> None:
    """A store that says so is wrong, and the caller must not take it for an acknowledgement."""
    store = Store(*script)

    async def main() -> None:
        appender = ConditionalAppender(cast("Any", store), SegmentTarget.of(NAME))
        with pytest.raises(UnexpectedReplyError, match="event 1 of a writer that has sent 0") as found:
            await appender.append(b"x", 100)
        assert found.value.segment == NAME

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert store.script == []
