"""Reading values of a revisioned stream, in the three clients: what errors and interrupts leave."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
import trio

from pravega_wire import sync
from pravega_wire.errors import ClosedError, PravegaTimeoutError
from pravega_wire.protocol.events import EventBatch, frame_event, parse_events
from pravega_wire.serializers import BytesSerializer
from pravega_wire.stream.revisioned import RevisionReader
from pravega_wire.sync.portal import Portal

SEGMENT = "scope/stream/0.#epoch.0"


class Numbers:
    """A serializer of numbers as decimal text. Other bytes are no values."""

    def serialize(self, value: int) -> bytes:
        return b"%d" % value

    def deserialize(self, payload: bytes) -> int:
        return int(payload)


class Batches:
    """Gives out batches as a range's reader does.

    :param batches: payloads of each; None for one that does not arrive while the caller waits.
    """

    def __init__(self, *batches: list[bytes] | None) -> None:
        self.batches = list(batches)
        self.closed = trio.Event()

    async def next_batch(self) -> EventBatch | None:
        await trio.lowlevel.checkpoint()
        if not self.batches:
            return None
        payloads = self.batches.pop(0)
        if payloads is None:
            await trio.sleep_forever()
            raise AssertionError
        return parse_events(b"".join(map(frame_event, payloads)))[0]

    def close_nowait(self) -> None:
        self.closed.set()

    async def aclose(self) -> None:
        self.close_nowait()
        await trio.lowlevel.checkpoint()


@contextmanager
def blocking(source: Batches, timeout: float | None = None) -> Iterator[sync.RevisionReader[int]]:
    portal = Portal("test client")
    try:
        twin = RevisionReader(cast("Any", source), SEGMENT, BytesSerializer())
        yield sync.RevisionReader(portal, twin, Numbers(), timeout)
    finally:
        portal.close()


def test_a_blocking_iterator_goes_on_after_a_time_limit() -> None:
    with blocking(Batches([b"1"], None, [b"2", b"3"], None, [b"4"]), 0.05) as reader:
        found: list[int | None] = []
        while len(found) < 6:
            try:
                found.append(next(reader)[1])
            except PravegaTimeoutError:
                found.append(None)
        assert found == [1, None, 2, 3, None, 4]
        assert list(reader) == list(reader) == []
        assert reader.next_value() is None


def test_a_blocking_iterator_goes_on_after_a_bad_value() -> None:
    with blocking(Batches([b"1", b"bad", b"3"])) as reader:
        assert next(reader)[1] == 1
        with pytest.raises(ValueError, match="bad"):
            next(reader)
        assert [value for _, value in reader] == [3]


def test_a_closed_blocking_iterator_is_not_at_its_end() -> None:
    with blocking(Batches([b"1", b"2"])) as reader:
        assert next(reader)[1] == 1
        reader.close()
        for _ in range(2):
            with pytest.raises(ClosedError):
                next(reader)


def test_a_blocking_loop_that_is_left_closes_the_reader() -> None:
    source = Batches([b"1", b"2"])
    portal = Portal("test client")

    def first() -> int:
        twin = RevisionReader(cast("Any", source), SEGMENT, BytesSerializer())
        for _, value in sync.RevisionReader(portal, twin, Numbers()):
            return value
        raise AssertionError

    async def closed() -> None:
        with trio.fail_after(30):
            await source.closed.wait()

    assert first() == 1
    portal.call(closed)
    portal.close()
