"""Damaged exchanges and frames: the dissector shows what it can, and never raises or hangs."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pravega_wire.dissect import Frame, Note, as_json, as_text
from pravega_wire.errors import DecodeError
from pravega_wire.protocol import codec, specs
from pravega_wire.protocol import commands as c
from tests import tshark
from tests.tshark import HELLO

REAL = tshark.exchange()
FRAMES = tshark.vectors()


def shown(parts: list[tshark.Part]) -> list[Frame | Note]:
    found = tshark.dissected(parts)
    for each in found:
        as_text(each)
        as_json(each, payloads=True)
    return found


@settings(max_examples=60)
@given(data=st.data())
def test_a_damaged_exchange(data: st.DataObject) -> None:
    parts = list(REAL)
    for _ in range(data.draw(st.integers(1, 20))):
        place = data.draw(st.integers(0, len(parts) - 1))
        number, side, sent = parts[place]
        at = data.draw(st.integers(0, len(sent)))
        removed = data.draw(st.integers(0, 300))
        parts[place] = (number, side, sent[:at] + data.draw(st.binary(max_size=40)) + sent[at + removed :])
    shown(parts)


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
    found = [each for each in shown([(1, "C", each) for each in pieces]) if isinstance(each, Frame)]
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
    parts = [(1, "CS"[number % 2], each) for number, each in enumerate(pieces)]
    shown([(1, "C", HELLO), *parts] if hello else parts)


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
