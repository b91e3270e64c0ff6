"""Versioned records: round trips, boundaries, and bytes that make no sense."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pravega_wire import VersionedSerializer, VersionedUnionSerializer
from pravega_wire.errors import DecodeError, EncodeError, IncompatibleVersionError, InvalidArgumentError
from pravega_wire.protocol import formats
from pravega_wire.protocol.state_records import InitialRecord, UpdateRecord, decode_state_record
from pravega_wire.protocol.versioned import (
    COMPACT_INT_MAX,
    COMPACT_LONG_MAX,
    COMPACT_SIGNED_LONG_MAX,
    COMPACT_SIGNED_LONG_MIN,
    DataReader,
    DataWriter,
    encode_record,
    read_record_from,
)
from pravega_wire.serializers import JavaStringSerializer, Utf8Serializer
from pravega_wire.values.naming import segment_name
from pravega_wire.values.positions import (
    Checkpoint,
    EventPointer,
    OwnedSegment,
    Position,
    Watermark,
    WatermarkSegment,
)
from pravega_wire.values.types import ScopedStream, StreamCut
from tests import java_values

KINDS = {
    "boolean": st.booleans(),
    "byte": st.integers(0, 255),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False),
    "utf": st.text(max_size=50),
    "uuid": st.uuids(),
    "compact_int": st.integers(0, COMPACT_INT_MAX),
    "compact_long": st.integers(0, COMPACT_LONG_MAX),
    "compact_signed_long": st.integers(COMPACT_SIGNED_LONG_MIN, COMPACT_SIGNED_LONG_MAX),
    "array": st.binary(max_size=300),
}


@given(st.data(), st.sampled_from(sorted(KINDS)))
def test_every_primitive_comes_back(data: st.DataObject, kind: str) -> None:
    values = data.draw(st.lists(KINDS[kind], max_size=5))
    target = DataWriter()
    for value in values:
        getattr(target, kind)(value)
    source = DataReader(target.getvalue())
    assert [getattr(source, kind)() for _ in values] == values
    assert source.remaining == 0


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("compact_int", 127, "7f"),
        ("compact_int", 128, "8080"),
        ("compact_int", 0x4000, "c0004000"),
        ("compact_long", 63, "3f"),
        ("compact_long", 64, "4040"),
        ("compact_long", COMPACT_LONG_MAX, "fffffffffffffffe"),
        ("compact_signed_long", -1, "80"),
        ("compact_signed_long", 31, "1f"),
        ("compact_signed_long", 32, "2020"),
        ("utf", "\0", "0002c080"),
    ],
)
def test_known_bytes(kind: str, value: object, expected: str) -> None:
    target = DataWriter()
    getattr(target, kind)(value)
    assert target.getvalue().hex() == expected


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("compact_int", -1), ("compact_int", COMPACT_INT_MAX + 1), ("compact_long", COMPACT_LONG_MAX + 1),
        ("compact_signed_long", COMPACT_SIGNED_LONG_MIN - 1), ("byte", 256), ("int32", 2**31),
        ("utf", "x" * 65536),
    ],
)  # fmt: skip
def test_values_that_do_not_fit(kind: str, value: object) -> None:
    with pytest.raises(EncodeError):
        getattr(DataWriter(), kind)(value)


@dataclass(frozen=True)
class Old:
    number: int


@dataclass(frozen=True)
class New:
    number: int
    name: str = "none"
    ids: tuple[UUID, ...] = ()


OLD = VersionedSerializer(Old, [[("number", "int64")]])
NEW = VersionedSerializer(New, [[("number", "int64")], [("name", "utf"), ("ids", "[uuid]")]])
EITHER: VersionedUnionSerializer[Old | New] = VersionedUnionSerializer({3: OLD, 7: NEW})

news = st.builds(New, KINDS["int64"], st.text(max_size=20), st.lists(st.uuids(), max_size=3).map(tuple))


@given(news)
def test_records_of_either_age_are_read_by_both(value: New) -> None:
    assert NEW.deserialize(NEW.serialize(value)) == value
    assert OLD.deserialize(NEW.serialize(value)) == Old(value.number)
    assert NEW.deserialize(OLD.serialize(Old(value.number))) == New(value.number)
    assert EITHER.deserialize(EITHER.serialize(value)) == value
    # The Java client leaves zero bytes behind some records.
    assert NEW.deserialize(NEW.serialize(value) + bytes(9)) == value


@given(news, st.data())
def test_a_record_that_was_cut_is_never_taken_for_whole(value: New, data: st.DataObject) -> None:
    whole = EITHER.serialize(value)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(DecodeError):
        EITHER.deserialize(cut)


@given(st.binary(max_size=60))
def test_any_bytes_give_a_value_or_a_typed_error(data: bytes) -> None:
    for serializer in (OLD, NEW, EITHER):
        try:
            serializer.deserialize(data)
        except (DecodeError, IncompatibleVersionError):
            continue


@given(st.lists(st.binary(max_size=40), max_size=6), st.binary(max_size=40))
def test_state_records(updates: list[bytes], initial: bytes) -> None:
    assert decode_state_record(UpdateRecord(updates).encode()) == UpdateRecord(tuple(updates))
    assert decode_state_record(InitialRecord(initial).encode()) == InitialRecord(initial)


@given(st.binary(max_size=60))
def test_any_bytes_as_a_state_record(data: bytes) -> None:
    try:
        decode_state_record(data)
    except DecodeError:
        return


def test_declarations_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="number"):
        VersionedSerializer(Old, [[]])
    with pytest.raises(InvalidArgumentError, match="'long'"):
        VersionedSerializer(Old, [[("number", "long")]])
    with pytest.raises(InvalidArgumentError, match="default"):
        VersionedSerializer(Old, [[], [("number", "int64")]])
    with pytest.raises(InvalidArgumentError, match=r"^version of Old must be .* from 0 to 255, not 256"):
        VersionedSerializer(Old, [[("number", "int64")]], version=256)
    with pytest.raises(InvalidArgumentError, match=r"^type id of a shape must be .* from 0 to 255, not -1"):
        VersionedUnionSerializer({-1: OLD}, name="shape")
    with pytest.raises(EncodeError, match="str"):
        EITHER.serialize("text")  # type: ignore[arg-type]  # that is what is tested


# --- the boundaries of sizes, and of revisions ------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "value", "size"),
    [
        ("compact_int", 0x3FFF, 2), ("compact_int", COMPACT_INT_MAX, 4),
        ("compact_long", 0x3FFF, 2), ("compact_long", 0x4000, 4),
        ("compact_long", 0x3FFFFFFF, 4), ("compact_long", 0x40000000, 8),
        ("compact_signed_long", -32, 1), ("compact_signed_long", -33, 2),
        ("compact_signed_long", 0x1FFF, 2), ("compact_signed_long", 0x2000, 4),
        ("compact_signed_long", -0x2000, 2), ("compact_signed_long", -0x2001, 4),
        ("compact_signed_long", 0x1FFFFFFF, 4), ("compact_signed_long", 0x20000000, 8),
        ("compact_signed_long", -0x20000000, 4), ("compact_signed_long", -0x20000001, 8),
        ("compact_signed_long", COMPACT_SIGNED_LONG_MAX, 8),
        ("compact_signed_long", COMPACT_SIGNED_LONG_MIN, 8),
    ],
)  # fmt: skip
def test_sizes_change_where_they_should(kind: str, value: int, size: int) -> None:
    target = DataWriter()
    getattr(target, kind)(value)
    assert len(target.getvalue()) == size
    assert getattr(DataReader(target.getvalue()), kind)() == value


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=5), st.integers(0, 5), st.binary(max_size=9))
def test_unknown_revisions_are_skipped(bodies: list[bytes], known: int, behind: bytes) -> None:
    data = encode_record([lambda target, body=body: target.raw(body) for body in bodies])
    found: list[bytes] = []

    def half(source: DataReader) -> None:
        # What a revision's reader leaves is not the next revision's.
        found.append(source.raw(source.remaining // 2))

    source = DataReader(data + behind)
    assert read_record_from(source, {0: [half] * known}, what="test") == 0
    assert found == [body[: len(body) // 2] for body in bodies[:known]]
    assert source.raw(source.remaining) == behind


# --- the formats of values --------------------------------------------------------------------------

names = st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True)
streams = st.builds(ScopedStream, names, names)
segment_ids = st.integers(0, (1 << 61) - 1)
offsets = st.integers(-1, (1 << 60))
cuts = st.builds(StreamCut, streams, st.dictionaries(segment_ids, offsets, max_size=5))
segments = st.builds(
    segment_name, names, names, st.builds(lambda e, n: e << 32 | n, *[st.integers(0, 2**31 - 1)] * 2)
)
bounds = st.tuples(st.floats(0, 1), st.floats(0, 1)).map(lambda pair: (min(pair), max(pair)))
FORMATS: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], bytes], Callable[[bytes], Any]]] = {
    "stream cut": (cuts, formats.encode_stream_cut, formats.decode_stream_cut),
    "position": (
        st.lists(
            st.builds(OwnedSegment, segments, offsets, st.none() | bounds),
            max_size=4,
            unique_by=lambda each: each.segment,
        ).map(lambda owned: Position(tuple(owned))),
        java_values.encode_position,
        java_values.decode_position,
    ),
    "event pointer": (
        st.builds(EventPointer, segments, st.integers(0, COMPACT_LONG_MAX), st.integers(0, COMPACT_INT_MAX)),
        java_values.encode_event_pointer,
        java_values.decode_event_pointer,
    ),
    "checkpoint": (
        st.builds(
            Checkpoint,
            st.text(max_size=10),
            st.lists(cuts, max_size=3, unique_by=lambda cut: cut.stream).map(tuple),
        ),
        java_values.encode_checkpoint,
        java_values.decode_checkpoint,
    ),
    "watermark": (
        st.builds(
            Watermark,
            KINDS["int64"],
            KINDS["int64"],
            st.lists(
                st.builds(
                    lambda number, pair, offset: WatermarkSegment(number, pair[0], pair[1], offset),
                    segment_ids,
                    bounds,
                    KINDS["int64"],
                ),
                max_size=4,
                unique_by=lambda each: each.segment_id,
            ).map(tuple),
        ),
        formats.encode_watermark,
        formats.decode_watermark,
    ),
}


@pytest.mark.parametrize("what", FORMATS)
@given(data=st.data())
def test_every_format_comes_back_and_is_never_cut(what: str, data: st.DataObject) -> None:
    values, encode, decode = FORMATS[what]
    value = data.draw(values)
    encoded = encode(value)
    assert decode(encoded) == value
    if encoded:
        assert decode(encoded + b"behind") == value
        # No bytes at all are a value of their own: an unbounded cut, a key that must not exist.
        with pytest.raises(DecodeError):
            decode(encoded[: data.draw(st.integers(1, len(encoded) - 1))])


@pytest.mark.parametrize("what", FORMATS)
@given(data=st.data())
def test_any_bytes_in_any_format(what: str, data: st.DataObject) -> None:
    """Pure noise, and a good record with one byte changed: nothing but the two typed errors."""
    values, encode, decode = FORMATS[what]
    noise = data.draw(st.binary(max_size=60))
    damaged = bytearray(encode(data.draw(values)))
    if damaged:
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    # A good head in front lets the noise reach the readers of the bodies.
    framed = encode_record([lambda target: target.raw(noise)], version=1 if what == "stream cut" else 0)
    for each in (noise, framed, bytes(damaged)):
        try:
            decode(each)
        except (DecodeError, IncompatibleVersionError):
            continue


@given(segments, st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1))
def test_the_text_of_event_pointers(segment: str, offset: int, length: int) -> None:
    pointer = EventPointer(segment, offset, length)
    assert EventPointer.from_text(pointer.to_text()) == pointer


anything = st.text(st.characters(exclude_categories=()), max_size=30)  # with unpaired surrogates


@given(anything)
def test_java_strings_come_back(text: str) -> None:
    units = text.encode("utf-16-le", "surrogatepass")
    found = JavaStringSerializer().deserialize(JavaStringSerializer().serialize(text))
    assert found.encode("utf-16-le", "surrogatepass") == units
    # The same encoding as every string of a versioned record.
    assert JavaStringSerializer().serialize(text)[5:] == DataWriter().utf(text).getvalue()


@given(st.binary(max_size=40), st.sampled_from([b"", b"\xac\xed\0\5", b"\xac\xed\0\5\x74\0\6"]))
def test_any_bytes_as_a_java_string(data: bytes, head: bytes) -> None:
    try:
        found = JavaStringSerializer().deserialize(head + data)
    except DecodeError:
        return
    assert isinstance(found, str)


@given(anything, st.binary(max_size=30))
def test_utf8_never_fails(text: str, data: bytes) -> None:
    assert len(Utf8Serializer().serialize(text).decode()) <= len(text)
    assert "\ufffd" in Utf8Serializer().deserialize(data) or data.decode() == Utf8Serializer().deserialize(
        data
    )
