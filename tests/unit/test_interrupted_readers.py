"""Ctrl-C in a blocking reader: what was read is returned once, wherever the interrupt comes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import Any, cast

import pytest
import trio

from pravega_wire import sync
from pravega_wire.errors import ClosedError, InvalidArgumentError
from pravega_wire.protocol.events import EventBatch, frame_event, parse_events
from pravega_wire.serializers import BytesSerializer
from pravega_wire.stream.key_value_table import TableIterator, _Cursor, _Range, _Segment
from pravega_wire.stream.ranges_reader import RangesReader
from pravega_wire.stream.revisioned import RevisionReader
from pravega_wire.stream.user_functions import calling_thread
from pravega_wire.threads.portal import Call, Portal

SEGMENT = "scope/stream/0.#epoch.0"
CHUNKS = [[b"1", b"2"], [b"3"], [b"4", b"5", b"6"]]
PAYLOADS = [payload for chunk in CHUNKS for payload in chunk]


@pytest.fixture(scope="module")
def portal() -> Iterator[Portal]:
    found = Portal("test client")
    yield found
    found.close()


class Source:
    """Gives out chunks.

    :ivar interrupts: whether Ctrl-C comes before the answer, which comes while it is being handled.
    :ivar first: runs in the calling thread before anything is taken.
    """

    def __init__(self) -> None:
        self.chunks = list(CHUNKS)
        self.interrupts = False
        self.first: Callable[[], None] | None = None

    async def next_chunk(self) -> list[bytes]:
        await trio.lowlevel.checkpoint()
        call = calling_thread.get()
        assert isinstance(call, Call)
        if self.first is not None:
            await call.run(self.first)
        chunk = self.chunks.pop(0) if self.chunks else []
        if self.interrupts:
            call.ask(interrupt)
            try:
                await trio.sleep_forever()
            except trio.Cancelled:
                # Cancelled too late.
                pass
        return chunk


def interrupt() -> None:
    raise KeyboardInterrupt


class Batches(Source):
    """As a reader of ranges, or of the events of a range."""

    async def next_batch(self) -> EventBatch | None:
        chunk = await self.next_chunk()
        return parse_events(b"".join(map(frame_event, chunk)))[0] if chunk else None

    def close_nowait(self) -> None:
        pass

    async def end(self) -> None:
        pass

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


class Bytes(Source):
    """A byte stream."""

    stream = "scope/stream"
    offset = 0

    async def __aenter__(self) -> Bytes:
        return self

    async def receive_some(self, max_bytes: int) -> bytes:
        found = b"".join(await self.next_chunk())
        self.offset += len(found)
        return found

    async def seek(self, offset: int) -> None:
        await trio.lowlevel.checkpoint()
        if offset > len(PAYLOADS):
            raise InvalidArgumentError("no such offset")
        self.offset = offset

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


class Keys(Source):
    """The only segment of a table."""

    async def fetch(self, segment: _Segment, wanted: _Range) -> list[tuple[bytes, bytes]]:
        return [(key, key) for key in await self.next_chunk()]


def batches(portal: Portal, source: Batches) -> sync.RangesReader:
    return sync.RangesReader(portal, RangesReader(cast("Any", source)))


def values(portal: Portal, source: Batches) -> sync.RevisionReader[bytes]:
    twin = RevisionReader(cast("Any", source), SEGMENT, BytesSerializer())
    return sync.RevisionReader(portal, twin, BytesSerializer())


def items(portal: Portal, source: Keys) -> sync.TableIterator[bytes]:
    cursors = [_Cursor(cast("Any", None), b"\xff", b"\0")]
    return sync.TableIterator(portal, TableIterator("scope/table", cursors, source.fetch, None))


def file(portal: Portal, source: Bytes) -> sync.ByteStreamReader:
    return sync.ByteStreamReader(portal, cast("Any", source))


def reading(portal: Portal, what: str) -> tuple[Source, Any, Callable[[], list[bytes]]]:
    """A source, what reads from it, and a call that returns the next payloads, at the end none."""
    if what in ("next_batch", "next of batches"):
        source = Batches()
        reader: Any = batches(portal, source)
        call = reader.next_batch if what == "next_batch" else lambda: next(reader, None)
        return source, reader, lambda: list(call() or [])
    if what in ("next_value", "next of values", "next_values"):
        source = Batches()
        reader = values(portal, source)
        if what == "next_values":
            return source, reader, lambda: [value for _, value in reader.next_values()]
        one = reader.next_value if what == "next_value" else lambda: next(reader, None)
        return source, reader, lambda: [found[1] for found in [one()] if found]
    if what in ("next_page", "next of items"):
        keys = Keys()
        reader = items(portal, keys)
        item = lambda: [found for found in [next(reader, None)] if found]  # noqa: E731
        return keys, reader, reader.next_page if what == "next_page" else item
    data = Bytes()
    reader = file(portal, data)
    buffer = bytearray(2)
    return data, reader, lambda: [b"%c" % byte for byte in buffer[: reader.readinto(buffer)]]


WHAT = [
    "next_batch", "next of batches", "next_value", "next of values", "next_values", "next_page",
    "next of items", "readinto",
]  # fmt: skip


@pytest.mark.parametrize("what", WHAT)
def test_an_answer_that_comes_after_ctrl_c_is_returned_by_the_next_call(portal: Portal, what: str) -> None:
    source, _, call = reading(portal, what)
    found: list[bytes] = []
    interrupts = 0
    more = True
    while more:
        source.interrupts = not source.interrupts
        try:
            found += (payloads := call())
            more = bool(payloads)
        except KeyboardInterrupt:
            interrupts += 1
    assert found == PAYLOADS
    assert interrupts >= 2


class Interrupt:
    """A profile function: Ctrl-C at the ``n``-th place where the interpreter handles signals."""

    def __init__(self, n: int) -> None:
        self.left = n

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        # A function begins, or one made in C has returned.
        if event in ("call", "c_return"):
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt


DIRECT = {
    "next_batch": lambda reader: reader.next_batch,
    "next_value": lambda reader: reader.next_value,
    "next_values": lambda reader: reader.next_values,
    "next_page": lambda reader: reader.next_page,
    "readinto": lambda reader: reader.readinto,
    "next of batches": lambda reader: reader.__next__,
    "next of values": lambda reader: reader.__next__,
    "next of items": lambda reader: reader.__next__,
}  # fmt: skip
"""The method, so that nothing of this test runs between it and the interrupt."""


@pytest.mark.parametrize("what", WHAT)
def test_ctrl_c_anywhere_in_a_call_costs_nothing(portal: Portal, what: str) -> None:
    # What ends while an interrupt is armed would get it.
    alive: list[Any] = []
    n, interrupted = 0, True
    while interrupted:
        source, reader, call = reading(portal, what)
        alive += source, reader
        method = DIRECT[what](reader)
        buffer = bytearray(2)
        args = [buffer] if what == "readinto" else []
        source.first = partial(sys.setprofile, Interrupt(n))
        first: Any = None
        interrupted = False
        try:
            first = method(*args)
        except KeyboardInterrupt:
            interrupted = True
        finally:
            sys.setprofile(None)
        source.first = None
        found = [] if interrupted else payloads_of(first, buffer)
        while payloads := call():
            found += payloads
        assert found == PAYLOADS, f"interrupted at place {n}"
        n += 1
    assert n > 10


def payloads_of(found: Any, buffer: bytearray) -> list[bytes]:
    """The payloads in what a method has returned."""
    if isinstance(found, int):
        return [b"%c" % byte for byte in buffer[:found]]
    if isinstance(found, tuple):
        return [found[1]]
    if isinstance(found, bytes):
        return [found]
    return [each[1] if isinstance(each, tuple) else each for each in found]


def interrupted_file(portal: Portal) -> sync.ByteStreamReader:
    """At offset 0, with two bytes that have been received and not returned."""
    source = Bytes()
    reader = file(portal, source)
    source.interrupts = True
    with pytest.raises(KeyboardInterrupt):
        reader.read(10)
    source.interrupts = False
    assert source.offset == 2
    return reader


def test_bytes_that_nobody_has_got_are_not_read_yet(portal: Portal) -> None:
    reader = interrupted_file(portal)
    assert reader.tell() == 0
    with pytest.raises(TypeError):
        reader.readinto(cast("Any", b"read-only"))
    assert reader.read(1) == b"1"
    assert reader.tell() == 1
    assert reader.read(10) == b"2"
    assert reader.read(10) == b"3"
    assert reader.tell() == 3


def test_such_bytes_go_if_and_only_if_the_offset_changes(portal: Portal) -> None:
    reader = interrupted_file(portal)
    with pytest.raises(InvalidArgumentError):
        reader.seek(7)
    assert reader.tell() == 0
    assert reader.seek(1, 1) == 1
    assert reader.tell() == 1
    assert reader.read(10) == b"3"


def test_a_position_is_that_of_what_was_returned(portal: Portal) -> None:
    source = Keys()
    reader = items(portal, source)
    source.interrupts = True
    with pytest.raises(KeyboardInterrupt):
        reader.next_page()
    assert reader.position is None
    assert next(reader) == b"1"
    assert reader.position == b"1"
    assert reader.next_page() == [b"2"]
    assert reader.position == b"2"


@pytest.mark.parametrize("what", ["next_batch", "next_value", "readinto"])
def test_a_closed_reader_does_not_return_what_was_left(portal: Portal, what: str) -> None:
    source, reader, call = reading(portal, what)
    source.interrupts = True
    with pytest.raises(KeyboardInterrupt):
        call()
    source.interrupts = False
    source.chunks.clear()
    reader.close()
    try:
        assert call() == []
    except ClosedError:
        pass
