"""Properties of the wire codec, the frame decoder and the event parser."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pravega_wire.errors import (
    DecodeError,
    EncodeError,
    FrameTooLargeError,
    ProtocolError,
    TruncatedInputError,
    UnknownCommandError,
)
from pravega_wire.protocol import codec, specs
from pravega_wire.protocol import commands as c
from pravega_wire.protocol.events import EVENT_HEADER, frame_event, parse_events
from pravega_wire.protocol.frames import FrameDecoder
from pravega_wire.protocol.primitives import decode_modified_utf8, encode_modified_utf8

I64 = st.integers(-(2**63), 2**63 - 1)
I32 = st.integers(-(2**31), 2**31 - 1)
I8 = st.integers(-128, 127)
TEXT = st.text(st.characters(exclude_categories=[]), max_size=40)
DATA = st.binary(max_size=60)
KEY = st.builds(lambda data, version: c.TableKey(data, version if data else -(2**63)), DATA, I64)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i64": I64,
    "i32": I32,
    "i8": I8,
    "bool": st.booleans(),
    "utf": TEXT,
    "uuid": st.builds(UUID, int=st.integers(0, 2**128 - 1)),
    "bytes": DATA,
    "raw": DATA,
    "EVENT": DATA,
    "ITER": st.builds(c.TableIteratorArgs, DATA, DATA, DATA, DATA),
    "list<i64>": st.lists(I64, max_size=5).map(tuple),
    "list<utf>": st.lists(TEXT, max_size=5).map(tuple),
    "list<utf i64>": st.lists(st.builds(c.MergedSource, TEXT, I64), max_size=4).map(tuple),
    "list<KEY>": st.lists(KEY, max_size=4).map(tuple),
    "ENTRIES": st.lists(st.builds(c.TableEntry, KEY, DATA), max_size=4).map(tuple),
    "list<ATTR>": st.lists(
        st.builds(c.AttributeUpdate, st.builds(UUID, int=st.integers(0, 2**128 - 1)), I8, I64, I64),
        max_size=4,
    ).map(tuple),
    "list<CHUNK>": st.lists(st.builds(c.ChunkInfo, I64, I64, I64, TEXT, st.booleans()), max_size=4).map(
        tuple
    ),
}


def command_of(kind: type[c.Command]) -> st.SearchStrategy[c.Command]:
    return st.builds(kind, **{each.name: VALUES[each.kind] for each in c.field_specs(kind)})


ANY_COMMAND = st.one_of([command_of(kind) for kind in c.COMMANDS.values()])


@pytest.mark.parametrize("kind", list(c.COMMANDS.values()), ids=lambda kind: kind.__name__)
@settings(max_examples=40)
@given(data=st.data())
def test_codec_equals_specification(kind: type[c.Command], data: st.DataObject) -> None:
    command = data.draw(command_of(kind))
    frame = codec.encode(command)
    assert specs.build_with_spec(command) == frame
    assert codec.decode_body(kind.CODE, memoryview(frame)[8:]) == command
    assert codec.decode_generic(kind.CODE, memoryview(frame)[8:]) == command
    assert specs.parse_with_spec(frame) == command


@settings(max_examples=150)
@given(commands=st.lists(ANY_COMMAND, max_size=6), cuts=st.lists(st.integers(1, 400), max_size=30))
def test_any_split_gives_the_same_commands(commands: list[c.Command], cuts: list[int]) -> None:
    wire = b"".join(map(codec.encode, commands))
    decoder = FrameDecoder()
    found: list[c.Command] = []
    at = 0
    for cut in cuts:
        found += decoder.feed(wire[at : at + cut])
        at += cut
    found += decoder.feed(wire[at:])
    decoder.eof()
    assert found == commands


@pytest.mark.parametrize("size", [65535, 65536, 65537, 300_000, 2_000_000])
@pytest.mark.parametrize("step", [1000, 65536, 262_144, 10_000_000])
def test_large_frames_in_pieces(size: int, step: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    reads = [
        c.SegmentRead(f"s/t/{number}.#epoch.0", number, False, False, data[:size], number)
        for number in range(3)
    ]
    wire = b"".join(map(codec.encode, reads))
    decoder = FrameDecoder()
    found: list[c.Command] = []
    for at in range(0, len(wire), step):
        found += decoder.feed(wire[at : at + step])
    decoder.eof()
    assert found == reads


VECTORS = [
    bytes.fromhex(json.loads(line)["hex"])
    for line in (Path(__file__).parent.parent / "golden" / "golden-wire.jsonl").read_text().splitlines()
]


@settings(max_examples=1500)
@given(data=st.data())
def test_mutated_frames_give_commands_or_typed_errors(data: st.DataObject) -> None:
    frame = bytearray(data.draw(st.sampled_from(VECTORS)))
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(frame) - 1))
        frame[position] = data.draw(st.integers(0, 255))
    del frame[data.draw(st.integers(0, len(frame))) :]
    decoder = FrameDecoder()
    try:
        decoder.feed(bytes(frame))
        decoder.eof()
    except DecodeError as error:
        with pytest.raises(type(error)):
            decoder.feed(b"\0")


@settings(max_examples=400)
@given(st.binary(max_size=200))
def test_garbage_gives_typed_errors(data: bytes) -> None:
    try:
        FrameDecoder().feed(data)
    except DecodeError:
        return


def test_limits() -> None:
    with pytest.raises(FrameTooLargeError):
        FrameDecoder().feed(codec.HEADER.pack(10, 16777216))
    with pytest.raises(FrameTooLargeError):
        FrameDecoder().feed(codec.HEADER.pack(10, -1))
    with pytest.raises(UnknownCommandError):
        FrameDecoder().feed(codec.HEADER.pack(6, 0))
    decoder = FrameDecoder()
    decoder.feed(codec.HEADER.pack(10, 1000) + b"x")
    with pytest.raises(TruncatedInputError):
        decoder.eof()
    with pytest.raises(EncodeError):
        codec.encode(c.PartialEvent(bytes(16777208)))
    codec.encode(c.PartialEvent(bytes(16777207)))
    with pytest.raises(EncodeError):
        codec.append_block_header(bytes(16), 16777207, 1, 1, 0)
    with pytest.raises(EncodeError):
        codec.encode(c.SealSegment(2**63, "s", ""))
    with pytest.raises(EncodeError):
        codec.encode(c.SealSegment(1, "x" * 65536, ""))


def test_a_count_is_only_a_claim() -> None:
    body = bytes(8) + b"\0\1s" + b"\x7f\xff\xff\xff"
    with pytest.raises(DecodeError):
        codec.decode_body(c.TableRead.CODE, memoryview(body))


@given(TEXT)
def test_modified_utf8_round_trip(text: str) -> None:
    data = encode_modified_utf8(text)
    assert b"\0" not in data
    back = decode_modified_utf8(data)
    assert back.encode("utf-16-le", "surrogatepass") == text.encode("utf-16-le", "surrogatepass")


@given(st.binary(max_size=30))
def test_malformed_utf8_gives_a_typed_error(data: bytes) -> None:
    try:
        decode_modified_utf8(data)
    except ProtocolError:
        return


# --- events --------------------------------------------------------------------------------------


def naive(data: bytes) -> tuple[list[bytes], list[int], int]:
    events, offsets, at = [], [], 0
    while at + 8 <= len(data):
        kind, length = EVENT_HEADER.unpack_from(data, at)
        assert kind == 0
        if at + 8 + length > len(data):
            break
        events.append(data[at + 8 : at + 8 + length])
        offsets.append(at)
        at += 8 + length
    return events, offsets, at


RUNS = st.lists(st.tuples(st.integers(0, 12), st.integers(1, 80)), max_size=12)


@settings(max_examples=300)
@given(runs=RUNS, cut=st.integers(0, 40), base=st.integers(0, 2**40))
def test_events_are_found_as_the_plain_loop_finds_them(
    runs: list[tuple[int, int]], cut: int, base: int
) -> None:
    data = b"".join(
        frame_event(bytes([number % 251]) * length) for length, count in runs for number in range(count)
    )
    data = data[: max(0, len(data) - cut)]
    events, offsets, consumed = naive(data)
    batch, taken, needed = parse_events(data, base)
    assert batch.to_list() == events
    assert list(batch) == events
    assert [bytes(view) for view in batch.memoryviews()] == events
    assert [batch[index] for index in range(len(batch))] == events
    assert batch.offsets() == [base + offset for offset in offsets]
    assert taken == consumed
    assert batch.next_offset == base + consumed
    assert batch.nbytes == sum(map(len, events))
    rest = data[consumed:]
    if len(rest) >= 8:
        assert needed == 8 + EVENT_HEADER.unpack_from(rest)[1]
    else:
        assert needed == 8


@given(payloads=st.lists(st.binary(max_size=20), max_size=20))
def test_events_as_arrow(payloads: list[bytes]) -> None:
    batch, _, _ = parse_events(b"".join(map(frame_event, payloads)))
    assert batch.to_arrow().to_pylist() == payloads


@pytest.mark.parametrize("header", [(1, 0), (0, -1), (-2, 5)])
@pytest.mark.parametrize("before", [0, 1, 100])
def test_what_is_no_event_is_named(header: tuple[int, int], before: int) -> None:
    data = frame_event(b"abc") * before + EVENT_HEADER.pack(*header) + b"12345"
    taken = 0
    if before:
        # Good events before it are not lost.
        batch, taken, _ = parse_events(data, 1000, segment="s/t/0.#epoch.0")
        assert batch.to_list() == [b"abc"] * before
    with pytest.raises(DecodeError, match=f"offset {1000 + 11 * before} "):
        parse_events(data[taken:], 1000 + taken, segment="s/t/0.#epoch.0")


@given(st.lists(st.one_of(st.binary(max_size=30), st.just(b"same")), max_size=200))
def test_arrow_has_the_same_payloads(payloads: list[bytes]) -> None:
    batch, _, _ = parse_events(b"".join(map(frame_event, payloads)))
    found = batch.to_arrow()
    found.validate(full=True)
    assert found.to_pylist() == payloads
    offsets = batch.offsets_arrow()
    offsets.validate(full=True)
    assert offsets.to_pylist() == batch.offsets()


LONG_RUNS = st.lists(
    st.tuples(st.integers(0, 40), st.one_of(st.integers(1, 4), st.integers(30, 150))), max_size=4
).map(
    lambda runs: [
        bytes((number + n) % 7 for n in range(length)) for length, count in runs for number in range(count)
    ]
)
"""Payloads in runs of one length, long and short ones: the long ones are looked at all at once."""


@given(payloads=LONG_RUNS, cut=st.integers(0, 60), base=st.integers(0, 2**40), data=st.data())
def test_runs_of_equal_lengths(payloads: list[bytes], cut: int, base: int, data: st.DataObject) -> None:
    whole = b"".join(map(frame_event, payloads))
    batch, taken, needed = parse_events(whole[: max(0, len(whole) - cut)], base)
    count = len(batch)
    begins = [sum(8 + len(each) for each in payloads[:number]) for number in range(len(payloads) + 1)]
    assert count == sum(end <= max(0, len(whole) - cut) for end in begins[1:])
    assert (taken, batch.next_offset) == (begins[count], base + begins[count])
    if max(0, len(whole) - cut) - taken >= 8:
        assert needed == 8 + len(payloads[count])
    else:
        assert needed == 8
    assert list(batch.begins) == begins[: count + 1]
    assert batch.offsets() == [base + begin for begin in begins[:count]]
    assert batch.to_list() == payloads[:count]
    assert [bytes(view) for view in batch.memoryviews()] == payloads[:count]
    assert batch.nbytes == sum(map(len, payloads[:count]))
    assert batch.to_arrow().to_pylist() == payloads[:count]
    assert batch.offsets_arrow().to_pylist() == batch.offsets()
    assert batch[1:-1:3] == payloads[:count][1:-1:3]
    if count:
        at = data.draw(st.integers(0, count - 1))
        assert batch[at - count] == batch[at] == payloads[at]
        rest = batch.after(at)
        assert (rest.to_list(), rest.offsets()) == (payloads[at:count], batch.offsets()[at:])
        assert (rest.next_offset, rest.nbytes) == (batch.next_offset, sum(map(len, payloads[at:count])))
        assert rest.to_arrow().to_pylist() == payloads[at:count]
        assert rest.offsets_arrow().to_pylist() == rest.offsets()
    with pytest.raises(IndexError):
        batch[count]


@given(
    count=st.integers(20, 300), length=st.integers(0, 40), at=st.integers(0, 299), byte=st.integers(0, 7),
    value=st.integers(0, 255),
)  # fmt: skip
def test_one_header_that_differs(count: int, length: int, at: int, byte: int, value: int) -> None:
    """One byte of a header among many that are alike is changed: what a plain reading finds is found."""
    at %= count
    framed = bytearray(frame_event(b"p" * length) * count)
    framed[at * (8 + length) + byte] = value
    begins, position = [0], 0
    while position + 8 <= len(framed):
        kind, size = EVENT_HEADER.unpack_from(framed, position)
        if kind != 0 or size < 0 or position + 8 + size > len(framed):
            break
        position += 8 + size
        begins.append(position)
    kind, size = EVENT_HEADER.unpack_from(framed, 0)
    if kind != 0 or size < 0:
        with pytest.raises(DecodeError):
            parse_events(framed)
        return
    batch, taken, _ = parse_events(framed)
    assert (list(batch.begins), taken) == (begins, position)
    assert batch.to_list() == [bytes(framed[a + 8 : b]) for a, b in pairwise(begins)]
