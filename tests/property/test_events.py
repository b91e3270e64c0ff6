"""Splitting bytes into events, valid and corrupted ones, compared with a plain parser."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pravega_wire.errors import DecodeError, TruncatedInputError
from pravega_wire.protocol.events import (
    EVENT_HEADER,
    EventAssembler,
    EventBatch,
    EventRows,
    PlacedEvent,
    frame_event,
    parse_events,
)
from pravega_wire.protocol.frames import FrameDecoder

SEGMENT = "s/t/0.#epoch.0"
INT32 = st.integers(-(2**31), 2**31 - 1)


def naive(data: bytes) -> tuple[list[tuple[int, bytes]], int, int, bool]:
    """Events with their positions, the end of the last, what the next needs, and if its header is bad."""
    events: list[tuple[int, bytes]] = []
    at = 0
    while at + 8 <= len(data):
        kind, length = EVENT_HEADER.unpack_from(data, at)
        if kind != 0 or length < 0:
            return events, at, 8, True
        if at + 8 + length > len(data):
            return events, at, 8 + length, False
        events.append((at, data[at + 8 : at + 8 + length]))
        at += 8 + length
    return events, at, 8, False


@st.composite
def framed(draw: st.DrawFn) -> bytes:
    """Events of many lengths, in runs and mixed; perhaps with a wrong header or byte, or cut off."""
    seed = random.Random(draw(st.integers(0, 2**32)))
    parts = []
    for _ in range(draw(st.integers(0, 5))):
        count = draw(st.one_of(st.integers(0, 5), st.integers(200, 1300)))
        low = draw(st.integers(0, 300))
        high = draw(st.sampled_from([low, low + 5, low + 400]))
        parts += [frame_event(seed.randbytes(seed.randint(low, high))) for _ in range(count)]
    wrong = draw(st.integers(0, 3))
    if wrong == 1:
        parts.insert(draw(st.integers(0, len(parts))), EVENT_HEADER.pack(draw(INT32), draw(INT32)) + b"x" * 9)
    data = bytearray(b"".join(parts))
    if wrong == 2 and parts:
        at = sum(map(len, parts[: draw(st.integers(0, len(parts) - 1))])) + draw(st.integers(0, 7))
        data[at] ^= draw(st.integers(1, 255))
    cut = draw(st.integers(0, 40))
    return bytes(data[: max(0, len(data) - cut)])


@settings(deadline=None)
@given(data=framed(), base=st.integers(0, 2**60))
def test_a_buffer_is_split_as_one_event_after_the_other_is(data: bytes, base: int) -> None:
    events, end, needed, wrong = naive(data)
    if wrong and not events:
        with pytest.raises(DecodeError, match=f"offset {base} "):
            parse_events(data, base, segment=SEGMENT)
        return
    for buffer in (data, bytearray(data), memoryview(bytearray(data))):
        batch, taken, wanted = parse_events(buffer, base, segment=SEGMENT)
        assert (taken, wanted, batch.next_offset) == (end, needed, base + end)
        assert batch.offsets() == [base + at for at, _ in events]
        assert batch.to_list() == list(batch) == [payload for _, payload in events]
    assert batch.nbytes == sum(len(payload) for _, payload in events)
    array = batch.to_arrow()
    array.validate(full=True)
    assert array.to_pylist() == [payload for _, payload in events]
    assert batch.offsets_arrow().to_pylist() == batch.offsets()


@settings(deadline=None)
@given(
    data=framed(),
    sizes=st.lists(st.integers(1, 3000), min_size=1, max_size=8),
    base=st.integers(0, 2**40),
    use=st.sampled_from(["eager", "measured", "iterated", "iterated in part", "as rows", "later"]),
)
def test_chunks_make_the_same_events_and_errors(data: bytes, sizes: list[int], base: int, use: str) -> None:
    events, end, _, wrong = naive(data)
    assembler = EventAssembler(base, SEGMENT, lazy=use != "eager")
    found: list[tuple[int, bytes]] = []

    def read() -> None:
        at = number = 0
        while at < len(data):
            chunk = memoryview(data)[at : at + sizes[number % len(sizes)]]
            at += len(chunk)
            number += 1
            for batch in assembler.take(chunk):
                if use == "later":
                    waiting.append(batch)
                else:
                    found.extend(used(batch, use))
        assembler.end()

    waiting: list[EventBatch] = []
    if wrong:
        with pytest.raises(DecodeError, match=f"offset {base + end} "):
            read()
    elif end < len(data):
        with pytest.raises(TruncatedInputError, match=f"that starts at {base + end}$"):
            read()
    else:
        read()
    for batch in waiting:
        found.extend(used(batch, "iterated"))
    assert found == [(base + at, payload) for at, payload in events]


def used(batch: EventBatch, use: str) -> list[tuple[int, bytes]]:
    """The offsets and payloads of a batch, found in one of the ways in which a program may use it."""
    if use == "iterated":
        payloads = list(batch)
    elif use == "iterated in part":
        # What is asked for in between does not disturb the iteration.
        iterator = iter(batch)
        payloads = [next(iterator)]
        assert batch.next_offset == batch.base_offset + len(batch.buffer)
        payloads += iterator
    elif use == "as rows":
        rows: EventRows[PlacedEvent[bytes]] = batch.rows(PlacedEvent)
        payloads, offsets = [], []
        while True:
            more = list(rows.take(3))
            payloads += [event.value for event in more]
            offsets += [batch.base_offset + event._begin for event in more]
            assert rows.index == len(payloads)
            assert all(event.length == 8 + len(event.value) for event in more)
            assert {event._place for event in more} <= {(SEGMENT, batch.base_offset)}
            if not more:
                break
        assert rows.exhausted
        assert rows.offset(rows.index) == batch.next_offset
        assert offsets == batch.offsets()
    else:
        assert len(batch) > 0
        payloads = list(batch)
    assert len(batch) == len(payloads)
    assert batch.nbytes == sum(map(len, payloads))
    assert batch.to_list() == payloads
    return list(zip(batch.offsets(), payloads, strict=True))


@pytest.mark.parametrize("sizes", [[6] * 40, [3, 5, 4]], ids=["equal", "unequal"])
@pytest.mark.parametrize(
    "use", [EventBatch.to_list, lambda batch: list(iter(batch)), len], ids=["split", "walked", "counted"]
)
def test_another_thread_may_look_at_any_time(sizes: list[int], use: Callable[[EventBatch], object]) -> None:
    """Its place is taken by a trace function, before each line that finds the events."""
    payloads = [bytes([number]) * size for number, size in enumerate(sizes)]
    data = b"".join(map(frame_event, payloads))
    looks: list[Callable[[EventBatch], object]] = [
        len, EventBatch.to_list, list, lambda batch: bytes(batch.buffer), lambda batch: batch.next_offset,
        lambda batch: batch.ends_at or batch.next_offset,
    ]  # fmt: skip
    expected = [len(payloads), payloads, payloads, data, 1000 + len(data), 1000 + len(data)]
    for look, result in zip(looks, expected, strict=True):
        lines = 0
        while True:
            batch = EventBatch.unsplit(SEGMENT, memoryview(data + b"\0\0\0"), 1000)
            found: list[object] = []
            before_line(
                lines, lambda batch=batch, look=look, found=found: found.append(look(batch)), use, batch
            )
            assert list(batch) == payloads
            if not found:
                break
            assert found == [result]
            lines += 1
        assert lines > 5


def before_line(
    number: int, action: Callable[[], object], function: Callable[..., object], *args: object
) -> None:
    """Call a function, and the action before the n-th line of ``EventBatch`` that it runs."""
    left = number

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if not isinstance(frame.f_locals.get("self"), EventBatch):
            return None
        if event == "line":
            if left == 0:
                action()
            left -= 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function(*args)
    finally:
        sys.settrace(before)


class Refused(Exception):
    """What a deserializer raises."""


@settings(deadline=None)
@given(
    lengths=st.one_of(st.just([6] * 100), st.lists(st.integers(0, 20), max_size=60)),
    takes=st.lists(st.integers(1, 40), min_size=1),
    bad=st.sets(st.integers(0, 70)),
    skipped=st.integers(0, 3),
    more=st.sampled_from([None, b"", b"\0\0\0", b"\0" * 7 + b"\7only", b"\0\0\0\1\0\0\0\0 no event"]),
)
def test_rows_are_given_out_in_order(
    lengths: list[int], takes: list[int], bad: set[int], skipped: int, more: bytes | None
) -> None:
    payloads = [bytes([number]) * length for number, length in enumerate(lengths)]
    data = b"".join(map(frame_event, payloads))
    whole, _, _ = parse_events(data, 1000, segment=SEGMENT)
    skipped = min(skipped, len(payloads))
    batch, payloads = whole.after(skipped), payloads[skipped:]
    if more is not None and payloads:
        rest = memoryview(data[batch.base_offset - 1000 :] + more)
        batch = EventBatch.unsplit(SEGMENT, rest, batch.base_offset)
    calls: Iterator[int] = iter(range(len(payloads)))

    def deserialize(payload: bytes) -> bytearray:
        if next(calls) in bad:
            raise Refused
        return bytearray(payload)

    rows: EventRows[PlacedEvent[Any]] = batch.rows(PlacedEvent, deserialize if bad else None)
    assert rows.index == 0
    found: list[tuple[int, bytes] | None] = []
    number = 0
    while not rows.exhausted:
        try:
            before = rows.index
            for event in rows.take(takes[number % len(takes)]):
                assert rows.offset(rows.index - 1) == batch.base_offset + event._begin
                assert event.length == 8 + len(event.value)
                assert event._place == (SEGMENT, batch.base_offset)
                found.append((batch.base_offset + event._begin, bytes(event.value)))
            assert rows.index - before <= takes[number % len(takes)]
        except Refused:
            # It counts as given out; the next one follows.
            found.append(None)
        number += 1
    expected = list(zip(batch.offsets(), payloads, strict=True))
    assert found == [None if number in bad else each for number, each in enumerate(expected)]
    assert rows.index == len(batch) == len(payloads)


@pytest.mark.parametrize("split", [True, False])
def test_rows_continue_after_an_interrupt(split: bool) -> None:
    payloads = [bytes(length) for length in range(20)]
    data = b"".join(map(frame_event, payloads))
    batch = parse_events(data)[0] if split else EventBatch.unsplit(SEGMENT, memoryview(data), 0)
    rows: EventRows[PlacedEvent[bytes]] = batch.rows(PlacedEvent)
    taken = rows.take(16)
    assert [next(taken).value for _ in range(3)] == payloads[:3]
    assert rows._made is not None
    with pytest.raises(KeyboardInterrupt):
        rows._made.throw(KeyboardInterrupt)
    assert list(taken) == []
    assert rows.index == 3
    assert [event.value for event in rows.take(100)] == payloads[3:]


@pytest.mark.parametrize("way", ["not split", "of one size", "of several sizes", "not split, deserialized"])
def test_an_interrupt_while_an_event_is_made_neither_loses_nor_repeats_it(way: str) -> None:
    sizes = [5] * 20 if "one size" in way else range(20)
    payloads = [bytes([number]) * size for number, size in enumerate(sizes)]
    data = b"".join(map(frame_event, payloads))
    calls = iter(range(10**6))

    def interrupted() -> None:
        if next(calls) % 3 == 2:
            raise KeyboardInterrupt

    class Kind(PlacedEvent[bytes]):
        def __init__(self) -> None:
            interrupted()

    def deserialize(payload: bytes) -> bytes:
        interrupted()
        return payload

    def batch() -> EventBatch:
        if "not split" in way:
            return EventBatch.unsplit(SEGMENT, memoryview(data), 0)
        return parse_events(data)[0]

    for interrupts in range(20):
        # The last event may be the one.
        rows: EventRows[Kind] = batch().rows(Kind, deserialize if "deserialized" in way else None)
        calls = iter([0] * interrupts + list(range(2, 10**4)))
        found: list[bytes] = []
        while not rows.exhausted:
            with suppress(KeyboardInterrupt):
                for event in rows.take(7):
                    found.append(event.value)
                    assert rows.index == len(found)
            assert rows.index == len(found)
        assert found == payloads


# --- memory of large bodies ------------------------------------------------------------------------


def test_memory_of_a_body_is_reused_once_no_view_is_left() -> None:
    decoder = FrameDecoder()
    pool = decoder._pool
    first = pool.allocate(100_000)
    part = first[10:20]
    first[:] = b"1" * 100_000
    del first
    second = pool.allocate(100_000)
    second[:] = b"2" * 100_000
    assert bytes(part) == b"1" * 10
    assert second.obj is not part.obj
    before = part.obj
    del part
    assert pool.allocate(99_000).obj is before
    # More than a quarter would be unused.
    assert pool.allocate(70_000).obj is not before


def test_memory_that_is_not_used_is_forgotten() -> None:
    pool = FrameDecoder()._pool
    buffer = pool.allocate(100_000).obj
    pool.trim()
    assert pool.allocate(100_000).obj is buffer
    pool.trim()
    pool.trim()
    assert pool.allocate(100_000).obj is not buffer


def test_memory_is_bounded() -> None:
    pool = FrameDecoder()._pool
    held = [pool.allocate(1 << 20) for _ in range(40)]
    assert len({id(each.obj) for each in held}) == 40
    assert sum(map(len, pool._buffers)) <= 16 << 20
    assert len(pool.allocate(100 << 20)) == 100 << 20
    assert sum(map(len, pool._buffers)) <= 16 << 20


_IN_A_CYCLE = """
import gc
from pravega_wire.protocol.events import EventBatch, frame_event

framed = frame_event(b"x" * 76)


def interrupted(batch):
    events = iter(batch)
    next(events)
    raise ValueError


class Kept:
    pass


for count in (1, 10, 1000):
    for _ in range(20):
        try:
            interrupted(EventBatch("", memoryview(framed * count), 0, len(framed)))
        except ValueError as error:
            kept = Kept()
            kept.error, kept.kept = error, kept
            del kept
        gc.collect()
"""


def test_an_exception_may_leave_a_loop_and_belong_to_a_cycle() -> None:
    # Collecting an exported memoryview crashes the process, so it is another one.
    done = subprocess.run([sys.executable, "-c", _IN_A_CYCLE], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
