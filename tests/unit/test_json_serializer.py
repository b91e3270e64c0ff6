"""Values as JSON: what cannot be written or read is a named error."""

from __future__ import annotations

import pytest

from pravega_wire.errors import DecodeError, EncodeError
from pravega_wire.serializers import JsonSerializer


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), {1, 2}, b"x", {"x": object()}])
def test_what_is_not_json_is_not_written(value: object) -> None:
    with pytest.raises(EncodeError, match="cannot be written as JSON"):
        JsonSerializer().serialize(value)


@pytest.mark.parametrize(
    "payload",
    [b"NaN", b"[Infinity]", b'{"x":-Infinity}', b"", b"{", b"\xff", b"[" * 100_000 + b"]" * 100_000],
)
def test_what_is_not_json_is_not_read(payload: bytes) -> None:
    with pytest.raises(DecodeError, match="is not JSON"):
        JsonSerializer().deserialize(payload)


@pytest.mark.parametrize(
    "payload", [b"1e400", b'{"a":[-1.5e999]}', b"1" * 400 + b".5", "1E309".encode("utf-16")]
)
def test_a_number_that_is_too_large_does_not_become_infinity(payload: bytes) -> None:
    with pytest.raises(DecodeError, match=r"the number [-1].* is too large for a float"):
        JsonSerializer().deserialize(payload)
    assert JsonSerializer().deserialize(b"[1e308, 0.5, -2E-400]") == [1e308, 0.5, -0.0]


def test_values_that_are_too_deep_are_not_written() -> None:
    value: list[object] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(EncodeError, match="cannot be written as JSON"):
        JsonSerializer().serialize(value)
