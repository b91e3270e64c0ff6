"""Objects to event payloads and back. All are picklable, so they can be shipped to workers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from pravega_wire.errors import DecodeError, EncodeError

__all__ = ["BytesSerializer", "FunctionSerializer", "JsonSerializer", "Serializer", "Utf8Serializer"]

T = TypeVar("T")


class Serializer(Protocol[T]):
    """What turns a value into a payload and back."""

    def serialize(self, value: T) -> bytes:
        """The payload of a value."""

    def deserialize(self, payload: bytes) -> T:
        """The value of a payload."""


@dataclass(frozen=True, slots=True)
class BytesSerializer:
    """Payloads as they are."""

    def serialize(self, value: bytes) -> bytes:
        """The same bytes."""
        return bytes(value)

    def deserialize(self, payload: bytes) -> bytes:
        """The same bytes."""
        return payload


@dataclass(frozen=True, slots=True)
class Utf8Serializer:
    """Strings as Java's ``UTF8StringSerializer`` writes them: raw UTF-8, no length.

    Malformed bytes become U+FFFD, an unpaired surrogate becomes ``?``.
    """

    def serialize(self, value: str) -> bytes:
        """UTF-8 bytes."""
        return (
            value.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
            if (any("\ud800" <= char <= "\udfff" for char in value))
            else value.encode()
        )

    def deserialize(self, payload: bytes) -> str:
        """The string."""
        return payload.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class JsonSerializer:
    """Values as JSON in UTF-8, without white space and with sorted keys."""

    def serialize(self, value: Any) -> bytes:
        """JSON text. :raises EncodeError: not representable."""
        try:
            return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
        except (TypeError, ValueError) as error:
            raise EncodeError(f"the value cannot be written as JSON: {error}") from error

    def deserialize(self, payload: bytes) -> Any:
        """The value. :raises DecodeError: not JSON."""
        try:
            return json.loads(payload)
        except ValueError as error:
            raise DecodeError(f"the payload is not JSON: {error}") from error


@dataclass(frozen=True, slots=True)
class FunctionSerializer(Generic[T]):
    """Any two functions."""

    to_bytes: Callable[[T], bytes]
    from_bytes: Callable[[bytes], T]

    def serialize(self, value: T) -> bytes:
        """``to_bytes(value)``."""
        return self.to_bytes(value)

    def deserialize(self, payload: bytes) -> T:
        """``from_bytes(payload)``."""
        return self.from_bytes(payload)
