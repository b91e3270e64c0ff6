"""A segment is sealed after a connection was lost: what it got on that connection does not go to another one.

The store had not yet stored it when the next set-up asked, and stored it before the seal. The stores are only
made up: real ones do this when links hold things back, as in ``tests/faults/soak.py``.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from pravega_wire.errors import ConnectionLostError, PravegaError, SegmentSealedError, UnexpectedReplyError
from pravega_wire.protocol import commands as c
from pravega_wire.segment.appender import SegmentAppender
from pravega_wire.segment.store import SegmentStores, SegmentTarget
from pravega_wire.transport.limits import Limits

NAME = "scope/stream/0.#epoch.0"
EVENT = b"\0\0\0\0\0\0\0\1x"


class Store:
    """Stores, pool, flow and connection in one. Loses the first connection after the first block.

    :param stored: number of the last event that the segment turns out to hold.
    :param asks: questions until it says that the segment is sealed; None: it is gone.
    :ivar at_set_up: the last number in its replies to set-ups after the first; None: it refuses them.
    """

    operation_timeout = 30.0
    limits = Limits.of(30.0)
    attempt_limit = SegmentStores.attempt_limit
    host = "host:1"
    closed = False
    writable = True
    silent_for = 0.0
    base_request_id = 1

    def __init__(self, stored: int, asks: int | None) -> None:
        self.pool = self.connection = self
        self.lull = SimpleNamespace(call=lambda function: function())
        self.stored = stored
        self.asks = asks
        self.at_set_up: int | None = 0
        self.appender: SegmentAppender
        self.set_ups = 0
        self.asked: list[str] = []

    async def endpoint(self, target: object) -> tuple[str, int]:
        return "host", 1

    def forget(self, *names: object) -> None:
        pass

    async def flow(self, endpoint: object, handler: object) -> Store:
        return self

    def close(self) -> None:
        pass

    def send(self, command: c.SetupAppend) -> None:
        self.set_ups += 1
        last = self.at_set_up if self.set_ups > 1 else 0
        if last is None:
            self.appender.on_reply(c.SegmentIsSealed(command.request_id, NAME))
            return
        self.appender.on_reply(c.AppendSetup(command.request_id, NAME, command.writer_id, last))

    def send_parts(self, parts: list[bytes | memoryview]) -> None:
        if self.set_ups == 1:
            self.appender.on_lost(ConnectionLostError("lost"))
        else:
            self.appender.on_reply(c.SegmentIsSealed(1, NAME))

    async def call(self, target: SegmentTarget, build: Any, *expected: Any, doing: str) -> c.Command:
        await trio.lowlevel.checkpoint()
        command = build(1, "")
        self.asked.append(type(command).__name__)
        if isinstance(command, c.GetStreamSegmentInfo):
            sealed = self.asks == 0
            if self.asks:
                self.asks -= 1
            return c.StreamSegmentInfo(
                request_id=1, segment_name=NAME, exists=self.asks is not None, is_sealed=sealed,
                is_deleted=False, last_modified=0, write_offset=100, start_offset=0,
            )  # fmt: skip
        assert isinstance(command, c.GetSegmentAttribute)
        return c.SegmentAttribute(request_id=1, value=self.stored)


class Owner:
    """Keeps what it is told, and how many events are left when the segment is sealed."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.failure: PravegaError | None = None
        self.stored = 0

    def acknowledged(self, size: int, count: int, seconds: float) -> None:
        self.stored += count

    def resent(self, blocks: int, count: int, size: int) -> None:
        pass

    def reconnecting(self, error: PravegaError) -> None:
        pass

    def failed(self, appender: SegmentAppender, error: PravegaError) -> None:
        self.failure = error

    async def sealed(self, appender: SegmentAppender, error: PravegaError) -> None:
        await trio.lowlevel.checkpoint()
        assert isinstance(error, SegmentSealedError)
        self.left = sum(block.count for block in appender.appends.unacknowledged)


def write_two_events(store: Store, owner: Owner) -> None:
    async def main() -> None:
        store.appender = SegmentAppender(cast("Any", store), SegmentTarget.of(NAME), cast("Any", owner))
        store.appender.appends.open.put([EVENT, EVENT], [None, None], 2 * len(EVENT), 2)
        await store.appender.run()
        if owner.failure is not None:
            raise owner.failure

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.mark.parametrize("refuses_set_up", [False, True])
@pytest.mark.parametrize(
    ("stored", "asks", "left"),
    [
        (2, 0, 0),
        # The store refuses before it has sealed: what it says earlier is not the last word.
        (2, 3, 0),
        (-(2**63), 0, 2),
        # It is gone: nobody can tell any more.
        (2, None, 2),
    ],
)
def test_what_the_sealed_segment_holds_is_asked_for(
    stored: int, asks: int | None, left: int, refuses_set_up: bool
) -> None:
    store, owner = Store(stored, asks), Owner()
    store.at_set_up = None if refuses_set_up else 0

    write_two_events(store, owner)
    assert store.set_ups == 2
    assert owner.left == left
    assert owner.stored == 2 - left
    assert store.asked.count("GetStreamSegmentInfo") == (1 if asks is None else asks + 1)


@pytest.mark.parametrize(("at_set_up", "stored"), [(3, 0), (2**62, 0), (0, 3), (0, 2**62)])
def test_more_cannot_be_stored_than_was_sent(at_set_up: int, stored: int) -> None:
    store, owner = Store(stored, 0), Owner()
    store.at_set_up = at_set_up
    with pytest.raises(UnexpectedReplyError, match="only events up to 2 were sent"):
        write_two_events(store, owner)
    assert owner.stored == 0
