"""Serializers: they convert values to event payloads and back.

A serializer can be pickled, so it can be sent to worker processes.

Example::

    from pravega_wire.serializers import JsonSerializer

    serializer = JsonSerializer()
    async with client.event_writer("readings") as writer:
        await writer.write_event(serializer.serialize({"device": 7, "celsius": 21.5}), "7")

    async with client.reader_group("dashboards") as group, group.reader("one", serializer) as reader:
        async for event in reader:
            print(event.value["celsius"])
"""

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
    """The interface of serializers; any object with these two methods can be used.

    Example::

        class PointSerializer:
            def serialize(self, value: tuple[float, float]) -> bytes:
                return struct.pack(">dd", *value)

            def deserialize(self, payload: bytes) -> tuple[float, float]:
                return struct.unpack(">dd", payload)
    """

    def serialize(self, value: T) -> bytes:
        """Return the payload for a value."""

    def deserialize(self, payload: bytes) -> T:
        """Return the value of a payload."""


@dataclass(frozen=True, slots=True)
class BytesSerializer:
    """Leaves payloads unchanged: values are bytes."""

    def serialize(self, value: bytes) -> bytes:
        """Return the same bytes."""
        return bytes(value)

    def deserialize(self, payload: bytes) -> bytes:
        """Return the same bytes."""
        return payload


@dataclass(frozen=True, slots=True)
class Utf8Serializer:
    """Converts strings to UTF-8, in the same way as Java's ``UTF8StringSerializer``.

    Reading replaces malformed bytes with U+FFFD; writing replaces an unpaired surrogate with ``?``.

    Example::

        Utf8Serializer().serialize("20 °C")  # b'20 \\xc2\\xb0C'
    """

    def serialize(self, value: str) -> bytes:
        """Return the string as UTF-8 bytes."""
        try:
            return value.encode()
        except UnicodeEncodeError:
            # As in Java, a surrogate pair is one character, and an unpaired surrogate becomes "?".
            return _joined(value).encode("utf-8", "replace")

    def deserialize(self, payload: bytes) -> str:
        """Return the string for UTF-8 bytes."""
        try:
            return payload.decode()
        except UnicodeDecodeError:
            # Java replaces an encoded surrogate with one U+FFFD, Python with one for each byte.
            return _ENCODED_SURROGATE.sub(b"\xef\xbf\xbd", payload).decode("utf-8", "replace")


def _joined(text: str) -> str:
    """Replace each surrogate pair with the character that it encodes."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _split(text: str) -> str:
    """Replace each character outside the BMP with a surrogate pair."""
    if text.isascii() or max(text) <= "\uffff":
        return text
    units = text.encode("utf-16-le", "surrogatepass")
    return "".join(chr(units[at] | units[at + 1] << 8) for at in range(0, len(units), 2))


@dataclass(frozen=True, slots=True)
class JavaStringSerializer:
    """Converts strings to Java object streams, in the same way as Java's ``JavaSerializer<String>``.

    An object stream of one string has a magic number, a tag, the length, and "modified UTF-8": each UTF-16
    unit is encoded separately, and U+0000 as ``C0 80``. Unpaired surrogates are kept.

    Example::

        async with group.reader("one", JavaStringSerializer()) as reader:
            async for event in reader:
                print(event.value)  # a str, written by a Java program
    """

    def serialize(self, value: str) -> bytes:
        """Return the object stream for a string."""
        data = _split(value).encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")
        if len(data) <= 0xFFFF:
            return _JAVA_STREAM + _JAVA_STRING + len(data).to_bytes(2, "big") + data
        return _JAVA_STREAM + _JAVA_LONG_STRING + len(data).to_bytes(8, "big") + data

    def deserialize(self, payload: bytes) -> str:
        """Return the string in an object stream; bytes after it are ignored.

        :raises TruncatedInputError: the payload ends before the end of the string.
        :raises DecodeError: the payload is not an object stream, or contains something other than a string.
        """
        head = len(_JAVA_STREAM) + 1
        if payload[: len(_JAVA_STREAM)] != _JAVA_STREAM:
            raise DecodeError("the payload is not a Java object stream")
        tag = payload[head - 1 : head]
        width = {_JAVA_STRING: 2, _JAVA_LONG_STRING: 8}.get(tag)
        if width is None:
            raise DecodeError(f"the Java object stream does not contain a string (its tag is {tag.hex()})")
        start = head + width
        size = int.from_bytes(payload[head:start], "big")
        data = payload[start : start + size]
        if len(payload) < start or len(data) < size:
            raise TruncatedInputError(
                f"the payload is truncated: its header announces a string of {size} bytes, but the whole "
                f"payload has only {len(payload)}"
            )
        try:
            if not data.isascii() and max(data) >= 0xF0:
                raise DecodeError("the string is not modified UTF-8: it contains a four-byte character")
            return _joined(data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass"))
        except UnicodeDecodeError as error:
            raise DecodeError(f"the string is not modified UTF-8: {error}") from error


@dataclass(frozen=True, slots=True)
class JsonSerializer:
    """Converts values to JSON in UTF-8, without white space and with sorted keys.

    Example::

        JsonSerializer().serialize({"device": 7})  # b'{"device":7}'
    """

    def serialize(self, value: Any) -> bytes:
        """Return the value as JSON.

        :raises EncodeError: JSON cannot represent the value.
        """
        try:
            return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
        except (TypeError, ValueError) as error:
            raise EncodeError(f"the value cannot be written as JSON: {error}") from error

    def deserialize(self, payload: bytes) -> Any:
        """Return the value of a JSON text.

        :raises DecodeError: the payload is not JSON.
        """
        try:
            return json.loads(payload)
        except ValueError as error:
            raise DecodeError(f"the payload is not JSON: {error}") from error


@dataclass(frozen=True, slots=True)
class FunctionSerializer(Generic[T]):
    """A serializer made of two functions.

    To pickle it, use functions that can be pickled: defined at the top level of a module, not lambdas.

    Example::

        numbers = FunctionSerializer(
            to_bytes=lambda number: number.to_bytes(8, "big"),
            from_bytes=lambda payload: int.from_bytes(payload, "big"),
        )

    :param to_bytes: returns the payload for a value.
    :param from_bytes: returns the value of a payload.
    """

    to_bytes: Callable[[T], bytes]
    from_bytes: Callable[[bytes], T]

    def serialize(self, value: T) -> bytes:
        """Return ``to_bytes(value)``."""
        return self.to_bytes(value)

    def deserialize(self, payload: bytes) -> T:
        """Return ``from_bytes(payload)``."""
        return self.from_bytes(payload)
