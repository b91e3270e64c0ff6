"""Versioned records: round trips, boundaries, and bytes that make no sense."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pravega_wire import VersionedSerializer, VersionedUnionSerializer
from pravega_wire.errors import DecodeError, EncodeError, IncompatibleVersionError, InvalidArgumentError
from pravega_wire.protocol.state_records import InitialRecord, UpdateRecord, decode_state_record
from pravega_wire.protocol.versioned import (
    COMPACT_INT_MAX,
    COMPACT_LONG_MAX,
    COMPACT_SIGNED_LONG_MAX,
    COMPACT_SIGNED_LONG_MIN,
    DataReader,
    DataWriter,
)

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
    with pytest.raises(EncodeError, match="str"):
        EITHER.serialize("text")  # type: ignore[arg-type]  # that is what is tested
