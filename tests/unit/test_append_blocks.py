"""When the events of a segment are sent, and which of those with the caller's numbers are left out."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pravega_wire.protocol.append import Appends, Block, Place, Promise, hand_over, settle
from pravega_wire.protocol.commands import DataAppended
from pravega_wire.protocol.events import frame_event


def payload(number: int) -> bytes:
    return b"%d" % number * (number % 5)


def fill(block: Block[Promise], numbers: list[int], shared: Promise) -> None:
    framed = [frame_event(payload(number)) for number in numbers]
    places = [float(number) for number in numbers]
    block.put(framed, places, sum(map(len, framed)), len(framed), numbers, shared)


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
    appends = Appends("s/t/0.#epoch.0", UUID(int=1), Promise)
    shared = Promise()
    numbers = [sum(gaps[: n + 1]) for n in range(sum(sizes))]
    blocks: list[tuple[Promise, list[int]]] = []
    at = 0
    for index, size in enumerate(sizes):
        if index == sent:
            appends.disconnect()
        fill(appends.open, numbers[at : at + size], shared)
        blocks.append((appends.open.ack, numbers[at : at + size]))
        at += size
        if index < sent:
            if not index:
                appends.set_up(0, 1, 0.0)
            appends.force()
            while appends.next_frame(1, 0.0) is not None:
                pass
        elif index < len(sizes) - 1:
            appends.close_block()
    settle(shared)
    gone: set[int] = set()
    dropped = dropped_bytes = 0

    def is_stored(number: int, place: Place) -> bool:
        return {number, place} <= gone

    for more in stored:
        gone.update(more)
        for each in appends.leave_out(is_stored):
            dropped += each.events
            dropped_bytes += each.size
        left = appends.unacknowledged
        found = [
            (each, place, bytes(framed))
            for block in left
            for each, (framed, place) in zip(block.numbers, block.events(), strict=True)
        ]
        due = [each for each in numbers if each not in gone]
        assert found == [(each, float(each), frame_event(payload(each))) for each in due]
        assert all(block.count == len(block.numbers) == len(block.places) for block in left)
        assert dropped == len(numbers) - len(due)
        assert dropped_bytes == sum(8 + len(payload(each)) for each in numbers if each in gone)
        for ack, its in blocks:
            assert ack.done == gone.issuperset(its)
        assert shared.done == (not due)


@pytest.mark.parametrize(("seconds", "small"), [(0.003, 1), (0.05, 2)])
def test_events_gather_while_small_blocks_are_in_flight(seconds: float, small: int) -> None:
    appends = Appends("s/t/0.#epoch.0", UUID(int=1), Promise)
    appends.set_up(0, 1, 0.0)
    now = 0.0

    def put(size: int) -> int:
        """Put an event; return how many blocks are sent because of it."""
        framed = frame_event(bytes(size - 8))
        appends.room(size).put([framed], [None], size, 1)
        blocks = 0
        if appends.open.size >= appends.due_at:
            while appends.next_frame(1, now) is not None:
                blocks += 1
        return blocks

    def acknowledge() -> None:
        nonlocal now
        now += seconds
        before = appends.last_stored_number or 0
        appends.acknowledge(DataAppended(appends.writer_id, appends._next_number, before), now)

    # How far the store is away is known from the first acknowledgement on.
    assert put(100)
    acknowledge()
    for _ in range(3):
        assert [put(100) for _ in range(4)] == [1] * small + [0] * (4 - small)
        acknowledge()
        assert appends.next_frame(1, now) is not None
        acknowledge()
    # A large block does not wait.
    assert [put(100) for _ in range(small + 1)][-1] == 0
    assert [put(100_000) for _ in range(3)] == [0, 0, 1]


def test_a_small_block_awaits_a_lull_unless_it_is_forced() -> None:
    appends = Appends("s/t/0.#epoch.0", UUID(int=1), Promise)
    appends.set_up(0, 1, 0.0)
    assert not appends.awaits_lull
    for size in (50, 100):
        assert appends.due_at <= size
        appends.open.put([bytes(size)], [None], size, 1)
        assert appends.next_frame(1, 0.0, at_lull=False) is None
        assert appends.awaits_lull
        # Until then, more events gather without a call.
        assert appends.due_at > size
        appends.open.put([bytes(size)], [None], size, 1)
        if size == 100:
            appends.force()
        assert appends.next_frame(1, 0.0, at_lull=size == 50) is not None
        assert not appends.awaits_lull
        appends.acknowledge(
            DataAppended(appends.writer_id, appends._next_number, appends._next_number - 2), 0.0
        )
    appends.open.put([bytes(300_000)], [None], 300_000, 1)
    assert appends.next_frame(1, 0.0, at_lull=False) is not None
    # The block in flight has to be acknowledged first.
    appends.open.put([bytes(50)], [None], 50, 1)
    assert not appends.awaits_lull


class Counted(Promise):
    """Counts how often it was kept."""

    __slots__ = ("kept",)

    def __init__(self, pending: int = 1) -> None:
        super().__init__(pending)
        self.kept = 0

    def _on_done(self) -> None:
        self.kept += 1


def test_promises_of_events_that_follow_many_scales() -> None:
    """A segment is split and merged again and again before anything is stored: each promise is kept once."""

    def segment() -> Appends[Counted]:
        return Appends("s/t/0.#epoch.0", UUID(int=1), Counted)

    whole = segment()
    for number in range(6):
        framed = frame_event(b"%d" % number)
        whole.open.put([framed], [number / 6], len(framed), 1)
        whole.close_block()
    promises = [block.ack for block in whole.unacknowledged]
    whole.flush(promises[0])
    for _ in range(40):
        low, high = segment(), segment()
        hand_over([whole], lambda place, low=low, high=high: low if place < 0.5 else high)
        whole = segment()
        hand_over([low, high], lambda _, whole=whole: whole)
    found = [bytes(framed)[8:] for block in whole.unacknowledged for framed, _ in block.events()]
    assert found == [b"%d" % number for number in range(6)]
    assert [each.kept for each in promises] == [0] * 6
    for block in whole.unacknowledged:
        assert len(block.extra) == len({*block.extra})
        block.settle()
    assert [each.kept for each in promises] == [1] * 6
