"""What serializers make is bytes: a buffer with larger items is one by its bytes, and nothing else is."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Any

import pytest

from pravega_wire import VersionedSerializer, VersionedUnionSerializer
from pravega_wire.errors import ArgumentTypeError, EncodeError
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


@pytest.mark.parametrize("value", [5, 10**12, True, None, "text", [1, 2], {}, 1.5])
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


@pytest.mark.parametrize("serializer", [Utf8Serializer(), JavaStringSerializer(), NOTE])
@pytest.mark.parametrize("value", [None, 5, b"text", ["text"]])
def test_values_of_another_type(serializer: Serializer[Any], value: Any) -> None:
    with pytest.raises(EncodeError, match=f"is a {type(value).__name__}"):
        serializer.serialize(value)
