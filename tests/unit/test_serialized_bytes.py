"""What serializers make is bytes: a buffer with larger items is one by its bytes, and nothing else is."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from pravega_wire.checks import check_payload
from pravega_wire.errors import ArgumentTypeError, EncodeError
from pravega_wire.serializers import BytesSerializer

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
