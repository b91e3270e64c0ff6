"""Events with the caller's numbers, before they are sent: leaving out those that a segment has already."""

from __future__ import annotations

from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from pravega_wire.errors import PravegaError
from pravega_wire.protocol.events import frame_event
from pravega_wire.segment.appender import Ack, Block, Place, SegmentAppender
from pravega_wire.segment.store import SegmentStores, SegmentTarget


class Owner:
    """Counts what an appender says is stored."""

    def __init__(self) -> None:
        self.size = self.count = 0

    def acknowledged(self, size: int, count: int, seconds: float) -> None:
        self.size += size
        self.count += count

    def resent(self, blocks: int, count: int, size: int) -> None:
        raise NotImplementedError

    def reconnecting(self, error: PravegaError) -> None:
        raise NotImplementedError

    def failed(self, appender: SegmentAppender, error: PravegaError) -> None:
        raise NotImplementedError

    async def sealed(self, appender: SegmentAppender, error: PravegaError) -> None:
        raise NotImplementedError


def payload(number: int) -> bytes:
    return b"%d" % number * (number % 5)


def fill(block: Block, numbers: list[int], shared: Ack) -> None:
    for number in numbers:
        framed = frame_event(payload(number))
        block.parts.append(framed)
        block.places.append(float(number))
        block.numbers.append(number)
        block.size += len(framed)
        block.count += 1
    shared.add()
    block.extra.append(shared)


@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=6),
    gaps=st.lists(st.integers(1, 3), min_size=30, max_size=30),
    sent=st.integers(0, 6),
    stored=st.lists(
        st.integers(0, 60).map(lambda last: set(range(last + 1))) | st.sets(st.integers(0, 60)),
        min_size=1,
        max_size=4,
    ),
)
def test_what_is_stored_is_left_out_once(
    sizes: list[int], gaps: list[int], sent: int, stored: list[set[int]]
) -> None:
    """Blocks that were sent, full ones and the open one alike; each is acknowledged once, at its end."""
    owner = Owner()
    target = SegmentTarget.of("s/t/0.#epoch.0")
    appender = SegmentAppender(cast(SegmentStores, None), target, owner)
    shared = Ack()
    numbers = [sum(gaps[: n + 1]) for n in range(sum(sizes))]
    blocks: list[tuple[Ack, list[int]]] = []
    at = 0
    for index, size in enumerate(sizes):
        fill(appender.open, numbers[at : at + size], shared)
        blocks.append((appender.open.ack, numbers[at : at + size]))
        at += size
        if index < sent:
            block = appender.open
            block.frame(appender.writer_id.bytes, 1)
            appender.open = Block()
            # What pump() does, which needs a connection.
            appender._under_way.append(block)
            appender._under_way_bytes += block.size
        elif index < len(sizes) - 1:
            appender.close_block()
    shared.settle()
    gone: set[int] = set()

    def is_stored(number: int, place: Place) -> bool:
        return {number, place} <= gone

    for more in stored:
        gone.update(more)
        appender.leave_out(is_stored)
        left = appender.unacknowledged
        found = [
            (each, place, bytes(framed))
            for block in left
            for each, (framed, place) in zip(block.numbers, block.events(), strict=True)
        ]
        due = [each for each in numbers if each not in gone]
        assert found == [(each, float(each), frame_event(payload(each))) for each in due]
        assert all(block.count == len(block.numbers) == len(block.places) for block in left)
        assert appender._under_way_bytes == sum(block.size for block in appender._under_way)
        assert owner.count == len(numbers) - len(due)
        assert owner.size == sum(8 + len(payload(each)) for each in numbers if each in gone)
        for ack, its in blocks:
            assert ack.done == gone.issuperset(its)
        assert shared.done == (not due)
