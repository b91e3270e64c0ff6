"""Damaged captures and frames: the dissector shows what it can, and never raises or hangs."""

from __future__ import annotations

import io
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pravega_wire.dissect import Dissector, Frame, Note, as_json, as_text, dissect
from pravega_wire.dissect.capture import CaptureWriter
from pravega_wire.errors import CaptureError, DecodeError
from pravega_wire.protocol import codec, specs
from pravega_wire.protocol import commands as c
from tests.tshark import CLIENT, EXCHANGE, STORE, vectors

REAL = EXCHANGE.read_bytes()
FRAMES = vectors()
HELLO = codec.encode(c.Hello(16, 5))


def shown(capture: bytes) -> list[Any]:
    found = list(dissect(io.BytesIO(capture)))
    for each in found:
        as_text(each)
        as_json(each, payloads=True)
    return found


def written(parts: list[bytes]) -> bytes:
    file = io.BytesIO()
    writer = CaptureWriter(file)
    writer.connected(CLIENT, STORE, 0)
    for each in parts:
        writer.sent(CLIENT, STORE, 0, each)
    return file.getvalue()


@settings(max_examples=60)
@given(data=st.data())
def test_damaged_captures(data: st.DataObject) -> None:
    capture = bytearray(REAL)
    for _ in range(data.draw(st.integers(1, 20))):
        at = data.draw(st.integers(0, len(capture) - 1))
        what = data.draw(st.sampled_from(("change", "remove", "insert", "cut")))
        if what == "change":
            capture[at] = data.draw(st.integers(0, 255))
        elif what == "remove":
            del capture[at : at + data.draw(st.integers(1, 300))]
        elif what == "insert":
            capture[at:at] = data.draw(st.binary(max_size=40))
        else:
            del capture[max(at, 24) :]
        if not capture:
            break
    try:
        shown(bytes(capture))
    except CaptureError:
        assert capture[:24] != REAL[:24]


@settings(max_examples=60)
@given(st.lists(st.integers(0, len(FRAMES) - 1), min_size=3, max_size=12), st.data())
def test_what_is_not_damaged_is_found(chosen: list[int], data: st.DataObject) -> None:
    """Damage to one frame of a stream costs that frame, and not what follows."""
    frames = [FRAMES[each] for each in chosen]
    hurt = data.draw(st.integers(0, len(frames) - 1))
    body = bytearray(frames[hurt])
    for _ in range(data.draw(st.integers(1, 4))):
        # The header stays: the following frames keep their places.
        if len(body) > 8:
            body[data.draw(st.integers(8, len(body) - 1))] = data.draw(st.integers(0, 255))
    stream = HELLO + b"".join([*frames[:hurt], bytes(body), *frames[hurt + 1 :]])
    pieces = []
    while stream:
        size = data.draw(st.integers(1, 400))
        pieces.append(stream[:size])
        stream = stream[size:]
    found = [each for each in shown(written(pieces)) if isinstance(each, Frame)]
    assert len(found) == len(frames) + 1
    for number, each in enumerate(frames):
        if number != hurt:
            command = codec.decode_body(found[number + 1].code, memoryview(each)[8:])
            values = {name: getattr(command, name) for name in found[number + 1].fields}
            values = {name: value for name, value in values.items() if not isinstance(value, str)}
            assert values.items() <= found[number + 1].fields.items()


@settings(max_examples=60)
@given(st.lists(st.binary(max_size=200), max_size=8), st.booleans())
def test_any_bytes_of_a_connection(pieces: list[bytes], hello: bool) -> None:
    dissector = Dissector()
    connection = dissector.connect(CLIENT, STORE)
    found: list[Frame | Note] = []
    if hello:
        found += connection.feed(CLIENT, HELLO, 0)
    for number, each in enumerate(pieces):
        source = (CLIENT, STORE)[number % 2]
        found += connection.feed(source, each, number)
        if number % 3 == 2:
            found += connection.missing(source, 1 + number, number)
    found += connection.end(9, "the end")
    for each_found in found:
        as_text(each_found)
        as_json(each_found)


@pytest.mark.parametrize("kind", list(c.COMMANDS.values()), ids=lambda kind: kind.__name__)
@settings(max_examples=25)
@given(body=st.binary(max_size=120), data=st.data())
def test_fields_are_those_of_the_codec(kind: type[c.Command], body: bytes, data: st.DataObject) -> None:
    """Field by field or at once: the same fields, and the same bodies are refused."""
    real = [each for each in FRAMES if int.from_bytes(each[:4], "big", signed=True) == kind.CODE]
    if real and len(body) % 2:
        changed = bytearray(data.draw(st.sampled_from(real))[8:])
        if changed:
            changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
        body = bytes(changed)
    try:
        command = codec.decode_generic(kind.CODE, memoryview(body))
    except DecodeError:
        # An iteration's arguments may end early; then bytes are left over that are not one of them.
        try:
            fields = list(specs.fields_of(kind, body))
        except DecodeError:
            return
        assert fields[-1].kind == "ITER"
        assert fields[-1].end < len(body)
        return
    fields = list(specs.fields_of(kind, body))
    assert {each.name: each.value for each in fields} == {
        each.name: getattr(command, each.name) for each in c.field_specs(kind)
    }
    assert all(one.end == other.start for one, other in pairwise(fields))
