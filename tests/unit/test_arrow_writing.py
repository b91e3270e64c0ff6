"""Arrow arrays on their way into segments: the same events in the same segments as lists of them."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from mmap import mmap
from struct import pack, unpack_from
from threading import get_ident
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
import trio
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pravega_wire.errors import ClosedError, InvalidArgumentError
from pravega_wire.metrics import Counters
from pravega_wire.protocol.append import Block, Place, PlaceRun, Promise
from pravega_wire.segment.appender import SegmentAppender
from pravega_wire.segment.store import SegmentStores, SegmentTarget
from pravega_wire.stream.arrow import by_segment, frame_arrow, key_column, one_array
from pravega_wire.stream.arrow_keys import are_hashable, positions_of, segments_of
from pravega_wire.stream.routing import Route, RoutedWriter
from pravega_wire.values.hashing import hash_to_range, routing_key_position
from pravega_wire.values.types import ScopedStream

MANY = 1 << 40

payloads = st.lists(st.binary(max_size=12), min_size=1, max_size=60)
bounds = st.lists(st.floats(0.01, 0.99), max_size=5, unique=True).map(lambda found: [*sorted(found), 1.0])


def framed(events: Sequence[bytes]) -> bytes:
    return b"".join(pack(">ii", 0, len(event)) + event for event in events)


@given(
    events=payloads
    | st.builds(lambda size, count: [bytes(size)] * count, st.integers(0, 9), st.integers(1, 50)),
    kind=st.sampled_from([pa.binary(), pa.large_binary(), pa.string(), pa.large_string()]),
    cut=st.integers(0, 59),
    chunked=st.booleans(),
)
def test_events_are_framed_whatever_the_array(
    events: list[bytes], kind: Any, cut: int, chunked: bool
) -> None:
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        events = [event.hex().encode() for event in events]
    whole = pa.array(events, pa.binary()).cast(kind)
    cut = min(cut, len(events))
    column = pa.chunked_array([whole[:cut], whole[cut:]], kind) if chunked else whole[cut:]
    expected = events if chunked else events[cut:]
    found = list(frame_arrow(one_array(column), 100))
    # `data` may begin before the first event of a slice.
    assert b"".join(bytes(each.data[each.offsets[0] : each.offsets[-1]]) for each in found) == framed(
        expected
    )
    assert sum(map(len, found)) == len(expected)


def test_chunks_with_more_bytes_than_an_array_are_an_error() -> None:
    memory = mmap(-1, 1 << 30)  # which is never touched
    chunk = pa.Array.from_buffers(
        pa.binary(), 1, [None, pa.py_buffer(pack("=ii", 0, len(memory))), pa.py_buffer(memory)]
    )
    with pytest.raises(InvalidArgumentError, match=r"do not fit into one array of binary: write them one by"):
        one_array(pa.chunked_array([chunk] * 2))


@given(
    keys=st.lists(st.none() | st.text(st.characters(codec="utf-8"), max_size=3), min_size=1, max_size=80),
    highs=bounds,
)
def test_rows_are_sorted_by_segment_and_stay_in_order(keys: list[str | None], highs: list[float]) -> None:
    column = key_column(keys, len(keys))
    order, counted, positions = by_segment(column, routing_key_position, highs, positions=True)
    rows = list(range(len(keys))) if order is None else order.to_pylist()
    assert sorted(rows) == list(range(len(keys)))
    assert positions is not None
    assert len(positions) == len(keys)
    first = 0
    for segment, count in counted:
        part = rows[first : first + count]
        assert part == sorted(part)
        for row, position in zip(part, positions[first : first + count], strict=True):
            key = keys[row]
            assert key is None or position == routing_key_position(key)
            assert bisect_left(highs, position) == segment
        first += count
    assert first == len(keys)
    assert [segment for segment, _ in counted] == sorted({segment for segment, _ in counted})


ascii_text = st.text(st.characters(codec="ascii"), max_size=40)


@given(keys=st.lists(ascii_text, min_size=1, max_size=20), copies=st.integers(1, 30), highs=bounds)
@example(keys=["", "a" * 7, "a" * 8, "a" * 9, "\0", "a\0", "a" * 16], copies=200, highs=[0.5, math.inf])
def test_keys_are_hashed_all_at_once_as_they_are_one_by_one(
    keys: list[str], copies: int, highs: list[float]
) -> None:
    many = [key + "x" * (number % 3) for number in range(copies) for key in keys]
    # a slice, as a column's keys may be one of a larger array
    column = pa.array(["before", *many, "behind"])[1:-1]
    assert are_hashable(column)
    positions = positions_of(column)
    assert positions.to_pylist() == list(map(hash_to_range, many))
    assert segments_of(positions, highs).to_pylist() == [
        bisect_left(highs, each) for each in positions.to_pylist()
    ]


@pytest.mark.parametrize("name", ["key", "\u00fcber", "\U0001f600"])
def test_many_different_keys_lead_where_each_of_them_does(name: str) -> None:
    keys = [f"{name}-{number}" for number in range(3000)]
    highs = [0.2, 0.4, 0.9, math.inf]
    order, counted, positions = by_segment(pa.array(keys), routing_key_position, highs, positions=True)
    assert positions is not None
    assert list(positions) == [hash_to_range(keys[row]) for row in order.to_pylist()]
    segments = [segment for segment, count in counted for _ in range(count)]
    assert segments == [bisect_left(highs, each) for each in positions]


class Writer(RoutedWriter):
    """Gathers blocks that nobody sends."""

    def __init__(self, highs: Sequence[float], *, has_successors: bool = True) -> None:
        core: Any = SimpleNamespace(counters=Counters(), stores=SimpleNamespace(thread=get_ident()))
        super().__init__(core, ScopedStream("s", "t"), "s/t", max_outstanding_bytes=MANY)
        self._has_successors = has_successors
        self.changes: list[Sequence[float]] = []
        self.cut_at(highs)

    def cut_at(self, highs: Sequence[float]) -> None:
        lows = [0.0, *highs[:-1]]
        self._set_routes(
            [
                Route(low, high, self._appender(number))
                for number, (low, high) in enumerate(zip(lows, highs, strict=True))
            ]
        )

    def _appender(self, number: int) -> SegmentAppender:
        target = SegmentTarget(f"s/t/{number}", "s", "t", number, cast(Any, None))
        return SegmentAppender(cast(SegmentStores, None), target, self._owner)

    async def _accepted(self, size: int) -> None:
        await super()._accepted(size)
        if self.changes:
            ended = self._appenders()
            self.cut_at(self.changes.pop(0))
            self._resend(ended)

    def stored(self) -> list[dict[bytes, list[bytes]]]:
        """What each segment would hold, by key, which is the first byte of an event."""
        found: list[dict[bytes, list[bytes]]] = []
        for appender in self._appenders():
            by_key: dict[bytes, list[bytes]] = {}
            for block in appender.appends.unacknowledged:
                data = b"".join(block.parts)
                assert (block.size, block.count) == (len(data), sum(map(len, _payloads(data).values())))
                for key, events in _payloads(data).items():
                    by_key.setdefault(key, []).extend(events)
            found.append(by_key)
        return found


def _payloads(data: bytes) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = {}
    at = 0
    while at < len(data):
        kind, length = unpack_from(">ii", data, at)
        assert kind == 0
        event = data[at + 8 : at + 8 + length]
        found.setdefault(event[:1], []).append(event)
        at += 8 + length
    assert at == len(data)
    return found


@settings(deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 9), st.binary(max_size=6)), min_size=1, max_size=80),
    highs=bounds,
    changes=st.lists(bounds, max_size=3),
    has_successors=st.booleans(),
)
def test_arrays_and_lists_go_to_the_same_places(
    rows: list[tuple[int, bytes]], highs: list[float], changes: list[list[float]], has_successors: bool
) -> None:
    """Also when the segments change between two parts of one array."""
    keys = [str(key) for key, _ in rows]
    events = [b"%d" % key + rest for key, rest in rows]

    async def main() -> None:
        writer = Writer(highs, has_successors=has_successors)
        plain = Writer(changes[-1] if has_successors and changes else highs)
        if has_successors:
            writer.changes = [*changes]
        await writer.write_events(pa.array(events, pa.binary()), pa.array(keys))
        while writer.changes:
            await writer._accepted(0)
        await plain.write_events(events, keys)
        assert writer.stored() == plain.stored()
        assert writer.events_written == len(events)
        assert writer.bytes_written == sum(map(len, events))

    trio.run(main)


async def test_a_full_block_is_cut_between_events() -> None:
    events = [b"0" + bytes(300_000)] * 10

    writer = Writer([1.0])
    await writer.write_events(pa.array(events, pa.binary()), pa.array(["0"] * 10))
    (appender,) = writer._appenders()
    assert [block.count for block in appender.appends.unacknowledged] == [3, 3, 3, 1]
    assert writer.stored() == [{b"0": events}]


def test_a_block_gives_its_events_with_their_places() -> None:
    block = Block(Promise())
    parts = [b"a", b"bb", b"", b"c"]
    places: list[Place | PlaceRun] = ["key", PlaceRun(memoryview(pack("2d", 0.25, 0.5)).cast("d")), None]
    block.put([framed(parts)], places, len(framed(parts)), 4)
    assert [(bytes(event), place) for event, place in block.events()] == [
        (framed([part]), place) for part, place in zip(parts, ["key", 0.25, 0.5, None], strict=True)
    ]


async def test_a_writer_that_is_not_open_takes_no_array() -> None:
    writer = Writer([1.0])
    writer._set_routes([])
    with pytest.raises(ClosedError, match="not open"):
        await writer.write_events(pa.array([b"x"]), pa.array(["k"]))


@pytest.mark.parametrize(
    "keys",
    [
        [b"a", None],
        [1, 2],
        pa.array([1, 2]),
        pa.array([b"a", b"b"]),
        pa.array([b"a", b"b"], pa.large_binary()),
        pa.array([True, None]),
        pa.array([1, 1]).dictionary_encode(),
        pa.chunked_array([[1], [2]]),
    ],
    ids=str,
)
def test_routing_keys_are_strings_only(keys: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="routing keys must be strings, not "):
        key_column(keys, 2)


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())], ids=str
)
def test_routing_keys_of_each_type_of_strings(kind: pa.DataType) -> None:
    assert key_column(pa.array(["a", None], pa.string()).cast(kind), 2).to_pylist() == ["a", None]


def test_routing_keys_are_utf8() -> None:
    with pytest.raises(InvalidArgumentError, match=r"routing keys must be strings: .*UTF8"):
        key_column(pa.array([b"a", b"\xff"]).view(pa.string()), 2)


def test_routing_keys_that_are_all_null() -> None:
    assert key_column(pa.nulls(2), 2).to_pylist() == [None, None]
    assert key_column([None, None], 2).to_pylist() == [None, None]
