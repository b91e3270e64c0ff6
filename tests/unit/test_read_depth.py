"""How many requests a reader of a range keeps in flight, with stores that are only made up."""

from __future__ import annotations

import math
from typing import Any, cast

import pytest
import trio
import trio.testing

from pravega_wire.protocol import commands as c
from pravega_wire.segment.reader import RangeReader
from tests.inside import surroundings
from tests.unit import test_following_reader

CHUNK, CHUNKS = 10, 400


class Store(test_following_reader.Store):
    """Answers each read after some time.

    :param distance: seconds until an answer arrives.
    :param greeting: seconds until the greeting has arrived.
    :ivar most: the most requests that were unanswered at a time.
    """

    def __init__(self, nursery: trio.Nursery, distance: float, greeting: float) -> None:
        super().__init__()
        self.distance, self.greeting = distance, greeting
        self.nursery = nursery
        self.most = self.waiting = self.received_bytes = 0
        self.handler: Any = None

    async def flow(self, endpoint: str, handler: object) -> Store:
        self.handler = handler
        return self

    def send(self, command: c.ReadSegment) -> None:
        super().send(command)
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        self.nursery.start_soon(self.answer, command)

    async def answer(self, command: c.ReadSegment) -> None:
        await trio.sleep(self.distance)
        self.waiting -= 1
        self.handler.on_reply(
            c.SegmentRead(
                segment=self.name, offset=command.offset, at_tail=False, end_of_segment=False,
                data=bytes(command.suggested_length), request_id=command.request_id,
            )
        )  # fmt: skip


def most_in_flight(distance: float, greeting: float, depth: int | None = None) -> int:
    """Read a range; return how many requests were in flight at most."""

    async def main() -> int:
        with surroundings(monotonic=trio.current_time):
            async with trio.open_nursery() as nursery:
                store: Any = Store(nursery, distance, greeting)
                reader = RangeReader(store, store, 0, CHUNK * CHUNKS, chunk_bytes=CHUNK, depth=depth)
                read = 0
                while (chunk := await reader.receive()) is not None:
                    read += len(chunk)
                assert read == CHUNK * CHUNKS
                assert len(store.requests) == CHUNKS
            return cast("int", store.most)

    return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.mark.parametrize(
    ("distance", "most"), [(0.001, 4), (0.0049, 4), (0.0101, 6), (0.0501, 14), (0.2, 32), (3.0, 32)]
)
def test_more_to_a_store_that_is_further_away(distance: float, most: int) -> None:
    assert most_in_flight(distance, greeting=distance) == most


def test_a_slow_line_is_not_a_distance() -> None:
    assert most_in_flight(0.2, greeting=0.002) == 4


def test_a_slow_greeting_is_not_a_distance() -> None:
    assert most_in_flight(0.001, greeting=0.5) == 4


def test_an_answer_that_arrives_with_the_greeting() -> None:
    assert most_in_flight(0.0501, greeting=math.inf) == 14


def test_a_number_that_is_given() -> None:
    assert most_in_flight(0.2, greeting=0.2, depth=2) == 2
