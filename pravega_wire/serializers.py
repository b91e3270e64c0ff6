"""Objects to event payloads and back. All are picklable, so they can be shipped to workers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from pravega_wire.errors import DecodeError, EncodeError, TruncatedInputError

__all__ = [
    "BytesSerializer",
    "FunctionSerializer",
    "JavaStringSerializer",
    "JsonSerializer",
    "Serializer",
    "Utf8Serializer",
]

T = TypeVar("T")

_ENCODED_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_JAVA_STREAM: Final = bytes.fromhex("aced0005")
_JAVA_STRING: Final = b"\x74"
_JAVA_LONG_STRING: Final = b"\x7c"


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
        try:
            return value.encode()
        except UnicodeEncodeError:
            # Two surrogates that belong together are one character to Java; the others become "?".
            return _joined(value).encode("utf-8", "replace")

    def deserialize(self, payload: bytes) -> str:
        """The string."""
        try:
            return payload.decode()
        except UnicodeDecodeError:
            # To Java an encoded surrogate is one mistake, to Python one per byte.
            return _ENCODED_SURROGATE.sub(b"\xef\xbf\xbd", payload).decode("utf-8", "replace")


def _joined(text: str) -> str:
    """The text with each pair of surrogates made one character."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _split(text: str) -> str:
    """The text with each character outside the BMP made two surrogates."""
    if text.isascii() or max(text) <= "\uffff":
        return text
    units = text.encode("utf-16-le", "surrogatepass")
    return "".join(chr(units[at] | units[at + 1] << 8) for at in range(0, len(units), 2))


@dataclass(frozen=True, slots=True)
class JavaStringSerializer:
    """Strings as Java's ``JavaSerializer<String>`` writes them: an object stream that holds one string.

    The stream's magic number, a tag, the length, and "modified UTF-8" (client formats v0.13.0, "Key-value
    tables and serializers"): each UTF-16 unit by itself, U+0000 as ``C0 80``. Unpaired surrogates are kept.
    """

    def serialize(self, value: str) -> bytes:
        """The object stream."""
        data = _split(value).encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")
        if len(data) <= 0xFFFF:
            return _JAVA_STREAM + _JAVA_STRING + len(data).to_bytes(2, "big") + data
        return _JAVA_STREAM + _JAVA_LONG_STRING + len(data).to_bytes(8, "big") + data

    def deserialize(self, payload: bytes) -> str:
        """The string; bytes after it are ignored.

        :raises DecodeError: not an object stream, or of something else than a string.
        """
        head = len(_JAVA_STREAM) + 1
        if payload[: len(_JAVA_STREAM)] != _JAVA_STREAM:
            raise DecodeError("the payload is not a Java object stream")
        tag = payload[head - 1 : head]
        width = {_JAVA_STRING: 2, _JAVA_LONG_STRING: 8}.get(tag)
        if width is None:
            raise DecodeError(f"the Java object stream holds something else than a string (tag {tag.hex()})")
        start = head + width
        size = int.from_bytes(payload[head:start], "big")
        data = payload[start : start + size]
        if len(payload) < start or len(data) < size:
            raise TruncatedInputError(
                f"a string of {size} bytes is announced, and {len(payload)} are there in all"
            )
        try:
            if not data.isascii() and max(data) >= 0xF0:
                raise DecodeError("a Java string has no characters of four bytes")
            return _joined(data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass"))
        except UnicodeDecodeError as error:
            raise DecodeError(f"the string is not modified UTF-8: {error}") from error


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
