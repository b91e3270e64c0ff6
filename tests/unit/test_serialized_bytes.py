"""What serializers make is bytes: a buffer with larger items is one by its bytes, and nothing else is."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from pravega_wire import VersionedSerializer, VersionedUnionSerializer
from pravega_wire.errors import ArgumentTypeError, EncodeError, InvalidArgumentError
from pravega_wire.schemas.debezium import Change, ChangeKind, DebeziumSerializer
from pravega_wire.serializers import (
    BytesSerializer,
    JavaSerializer,
    JavaStringSerializer,
    JsonSerializer,
    Serializer,
    Utf8Serializer,
)
from pravega_wire.support.checks import check_payload

NUMBERS = array("d", [1.0, 2.0, 3.0])
BUFFERS: list[Any] = [
    b"abc",
    bytearray(b"abc"),
    memoryview(b"abcdef")[::2],
    NUMBERS,
    memoryview(NUMBERS),
    memoryview(bytes(range(24))).cast("B", [4, 6]),
]


@pytest.mark.parametrize("buffer", BUFFERS)
def test_buffers_are_their_bytes(buffer: Any) -> None:
    expected = memoryview(buffer).tobytes()
    for data in (BytesSerializer().serialize(buffer), check_payload("a value", buffer)):
        assert type(data) is bytes
        assert data == expected


@pytest.mark.parametrize(
    "value", [5, 10**12, True, None, "text", [1, 2], {}, 1.5, np.str_("text"), np.int64(5), np.float64(1.5)]
)
def test_other_values_are_no_bytes(value: Any) -> None:
    with pytest.raises(ArgumentTypeError, match=f"must be bytes, not {type(value).__name__}"):
        BytesSerializer().serialize(value)
    with pytest.raises(EncodeError, match=f"^stream s/t: a value must .* returned {type(value).__name__}$"):
        check_payload("stream s/t: a value", value)


@dataclass(frozen=True)
class Note:
    text: str


NOTE = VersionedSerializer(Note, [[("text", "utf")]])
SERIALIZERS: list[tuple[Serializer[Any], Any]] = [
    (Utf8Serializer(), "grün"),
    (JavaStringSerializer(), "grün"),
    (JavaSerializer(), 7),
    (JavaSerializer(), b"bytes"),
    (JsonSerializer(), {"a": [1]}),
    (NOTE, Note("grün")),
    (VersionedUnionSerializer({1: NOTE}), Note("grün")),
    (DebeziumSerializer(), Change(ChangeKind.INSERT, after={"a": 1}, types={})),
]


@pytest.mark.parametrize(("serializer", "value"), SERIALIZERS)
def test_views_of_payloads_are_read(serializer: Serializer[Any], value: Any) -> None:
    payload = serializer.serialize(value)
    for buffer in (payload, bytearray(payload), memoryview(b"<" + payload)[1:]):
        found = serializer.deserialize(buffer)  # type: ignore[arg-type]  # batches give views
        assert found == value
        assert type(found) is type(value)


@pytest.mark.parametrize(("serializer", "value"), SERIALIZERS)
@pytest.mark.parametrize("payload", [None, 5, "text", object()])
def test_what_is_no_payload(serializer: Serializer[Any], value: Any, payload: Any) -> None:
    with pytest.raises(ArgumentTypeError, match=f"must be bytes, not {type(payload).__name__}"):
        serializer.deserialize(payload)


@dataclass(frozen=True)
class Boxed:
    x: Any


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("utf", (None, 5, b"text", ["text"])),
        ("[int64]", (5, ["1"], [None])),
        ("int64", (None, "1", 1.5, 2**63, 10**5000)),
        ("byte", (None, "1", 1.5, 256)),
        ("compact_long", (None, "1", 10**5000)),
        ("double", (None, "1", 10**400)),
        ("uuid", (None, "x")),
        ("array", (5, "text")),
    ],
)
def test_fields_of_another_type(kind: str, values: tuple[Any, ...]) -> None:
    record = VersionedSerializer(Boxed, [[("x", kind)]])
    serializers: list[Serializer[Boxed]] = [record, VersionedUnionSerializer({1: record})]
    for value in values:
        for serializer in serializers:
            with pytest.raises(EncodeError):
                serializer.serialize(Boxed(value))
                raise AssertionError(f"{value!r} was taken")


@pytest.mark.parametrize("serializer", [Utf8Serializer(), JavaStringSerializer(), NOTE])
@pytest.mark.parametrize("value", [None, 5, b"text", ["text"]])
def test_values_of_another_type(serializer: Serializer[Any], value: Any) -> None:
    with pytest.raises(EncodeError, match=f"is a {type(value).__name__}"):
        serializer.serialize(value)


def test_a_memoryview_that_was_released_is_named() -> None:
    value: Any = memoryview(b"x")
    value.release()
    with pytest.raises(InvalidArgumentError, match=r"^a value is a memoryview that has been released$"):
        BytesSerializer().serialize(value)
