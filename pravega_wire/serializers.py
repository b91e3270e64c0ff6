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
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Protocol, TypeVar, get_args

from pravega_wire.errors import (
    DecodeError,
    EncodeError,
    InvalidArgumentError,
    PravegaError,
    TruncatedInputError,
)
from pravega_wire.support.checks import check_buffer, check_callable, read_json, shown

__all__ = [
    "BytesSerializer",
    "FunctionSerializer",
    "JavaSerializer",
    "JavaStringSerializer",
    "JsonSerializer",
    "Serializer",
    "Utf8Serializer",
]

T = TypeVar("T")
V = TypeVar("V")
if TYPE_CHECKING:
    # Type checkers know typing_extensions; this package does not need it to be installed. ``EventWriter``
    # without a parameter is one of bytes.
    from typing_extensions import TypeVar as TypeVarWithDefault

    Value = TypeVarWithDefault("Value", default=bytes)
else:
    Value = TypeVar("Value")

_ENCODED_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_JAVA_STREAM: Final = bytes.fromhex("aced0005")
_JAVA_STRING: Final = b"\x74"
_JAVA_LONG_STRING: Final = b"\x7c"
_JAVA_NULL: Final = b"\x70"

JavaInteger = Literal["Byte", "Short", "Integer", "Long"]
JavaFloat = Literal["Float", "Double"]
JavaText = Literal["String", "Character"]
JavaValue = str | int | float | bool | bytes | None


def _java_class(name: str, uid: str, fields: bytes = b"", above: bytes = _JAVA_NULL) -> bytes:
    """Return the description of a serializable class: name, version, flags, fields, class above it."""
    data = name.encode()
    head = b"\x72" + len(data).to_bytes(2, "big") + data + bytes.fromhex(uid)
    return head + b"\x02" + (fields or b"\0\0") + b"\x78" + above


def _java_box(name: str, uid: str, kind: str, above: bytes = _JAVA_NULL) -> bytes:
    """Return the beginning of an object of a class with the one field ``value``."""
    field = b"\0\x01" + kind.encode() + b"\0\x05value"
    return b"\x73" + _java_class(f"java.lang.{name}", uid, field, above)


_NUMBER: Final = _java_class("java.lang.Number", "86ac951d0b94e08b")
_JAVA_BYTES: Final = b"\x75" + _java_class("[B", "acf317f8060854e0")
_JAVA_BOXES: Final[dict[str, tuple[bytes, struct.Struct]]] = {
    "Byte": (_java_box("Byte", "9c4e6084ee50f51c", "B", _NUMBER), struct.Struct(">b")),
    "Short": (_java_box("Short", "684d37133460da52", "S", _NUMBER), struct.Struct(">h")),
    "Integer": (_java_box("Integer", "12e2a0a4f7818738", "I", _NUMBER), struct.Struct(">i")),
    "Long": (_java_box("Long", "3b8be490cc8f23df", "J", _NUMBER), struct.Struct(">q")),
    "Float": (_java_box("Float", "daedc9a2db3cf0ec", "F", _NUMBER), struct.Struct(">f")),
    "Double": (_java_box("Double", "80b3c24a296bfb04", "D", _NUMBER), struct.Struct(">d")),
    "Boolean": (_java_box("Boolean", "cd207280d59cfaee", "Z"), struct.Struct(">?")),
    "Character": (_java_box("Character", "348b47d96b1a2678", "C"), struct.Struct(">H")),
}
"""How objects of these classes begin, up to their value, and the value's form."""


class Serializer(Protocol[T]):
    """The interface of serializers; any object with these two methods can be used.

    A serializer that has to fetch something before it can read an event may have a third method,
    ``async def prepare_payloads(self, payloads)``. The readers of groups and the followers of streams await
    it with the payloads that have arrived (a list of bytes), in trio, before they hand out any of these
    events. If it raises an error, the reader raises it, and tries again when it is asked for the next event.

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
        """Return the same bytes.

        :raises ArgumentTypeError: the value is neither bytes nor another buffer.
        """
        return check_buffer(value, "a value")

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
        """Return the string as UTF-8 bytes.

        :raises EncodeError: the value is not a string.
        """
        _check_string(value)
        try:
            return value.encode()
        except UnicodeEncodeError:
            # As in Java, a surrogate pair is one character, and an unpaired surrogate becomes "?".
            return _joined(value).encode("utf-8", "replace")

    def deserialize(self, payload: bytes) -> str:
        """Return the string for UTF-8 bytes."""
        payload = check_buffer(payload)
        try:
            return payload.decode()
        except UnicodeDecodeError:
            # Java replaces an encoded surrogate with one U+FFFD, Python with one for each byte.
            return _ENCODED_SURROGATE.sub(b"\xef\xbf\xbd", payload).decode("utf-8", "replace")


def _check_string(value: object) -> None:
    if not isinstance(value, str):
        raise EncodeError(f"the value is a {type(value).__name__}, not a string")


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
        """Return the object stream for a string.

        :raises EncodeError: the value is not a string.
        """
        _check_string(value)
        return _java_string_bytes(value)

    def deserialize(self, payload: bytes) -> str:
        """Return the string in an object stream; bytes after it are ignored.

        :raises TruncatedInputError: the payload ends before the end of the string.
        :raises DecodeError: the payload is not an object stream, or contains something other than a string.
        """
        payload = check_buffer(payload)
        tag = _java_tag(payload)
        if tag not in (_JAVA_STRING, _JAVA_LONG_STRING):
            raise DecodeError(
                f"the Java object stream does not contain a string but {_java_contents(payload)}"
            )
        return _java_string(payload)


def _java_tag(payload: bytes) -> bytes:
    """Return the byte that says what an object stream contains."""
    if payload[: len(_JAVA_STREAM)] != _JAVA_STREAM:
        raise DecodeError("the payload is not a Java object stream")
    return payload[len(_JAVA_STREAM) : len(_JAVA_STREAM) + 1]


def _java_string_bytes(value: str) -> bytes:
    """Return the object stream for a string."""
    data = _split(value).encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")
    if len(data) <= 0xFFFF:
        return _JAVA_STREAM + _JAVA_STRING + len(data).to_bytes(2, "big") + data
    return _JAVA_STREAM + _JAVA_LONG_STRING + len(data).to_bytes(8, "big") + data


def _java_string(payload: bytes) -> str:
    """Return the string in an object stream that contains one."""
    head = len(_JAVA_STREAM) + 1
    start = head + (2 if _java_tag(payload) == _JAVA_STRING else 8)
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


def _java_contents(payload: bytes) -> str:
    """Describe what an object stream contains, for a message: the name of its class if it has one."""
    at = len(_JAVA_STREAM)
    tag = payload[at : at + 1]
    kinds = {b"\x73": "an object", b"\x75": "an array", b"\x7e": "an enum constant", b"\x76": "a class"}
    if tag in kinds and payload[at + 1 : at + 2] == b"\x72":
        size = int.from_bytes(payload[at + 2 : at + 4], "big")
        name = payload[at + 4 : at + 4 + size]
        if len(name) == size > 0:
            return f"{kinds[tag]} of the class {name.decode('utf-8', 'replace')}"
    return f"something else (its tag is {tag.hex() or 'missing'})"


@dataclass(frozen=True, slots=True)
class JavaSerializer:
    """Converts texts, numbers and bytes to Java object streams, in the same way as Java's ``JavaSerializer``.

    It reads ``String``, ``Character``, ``Byte``, ``Short``, ``Integer``, ``Long``, ``Float``, ``Double``,
    ``Boolean``, ``byte[]`` and null; everything else raises an error that names the class. The arguments say
    which class is written where Python has one type for several. bool is written as ``Boolean``, bytes as
    ``byte[]``, None as null.

    Example::

        JavaSerializer().deserialize(payload)  # 7, written by a Java program as an Integer
        JavaSerializer(integers="Integer").serialize(7)  # in the bytes that Java writes

    :param integers: class of int: ``Byte``, ``Short``, ``Integer`` or ``Long``.
    :param floats: class of float: ``Float`` or ``Double``.
    :param texts: class of str: ``String``, or ``Character`` for one UTF-16 unit.
    :raises InvalidArgumentError: an argument is not the name of such a class.
    """

    integers: JavaInteger = "Long"
    floats: JavaFloat = "Double"
    texts: JavaText = "String"

    def __post_init__(self) -> None:
        for name, allowed in (("integers", JavaInteger), ("floats", JavaFloat), ("texts", JavaText)):
            if getattr(self, name) not in get_args(allowed):
                raise InvalidArgumentError(
                    f"{name} must be one of {', '.join(get_args(allowed))}, not {getattr(self, name)!r}"
                )

    def serialize(self, value: JavaValue) -> bytes:
        """Return the object stream for a value.

        :raises EncodeError: the value has another type, or does not fit its Java class.
        """
        if value is None:
            return _JAVA_STREAM + _JAVA_NULL
        if isinstance(value, str):
            return (
                _java_string_bytes(value)
                if self.texts == "String"
                else self._boxed("Character", _unit(value))
            )
        if isinstance(value, bool):
            return self._boxed("Boolean", value)
        if isinstance(value, int):
            return self._boxed(self.integers, value)
        if isinstance(value, float):
            return self._boxed(self.floats, value)
        given: object = value
        if isinstance(given, bytes | bytearray | memoryview):
            data = bytes(given)
            return _JAVA_STREAM + _JAVA_BYTES + len(data).to_bytes(4, "big") + data
        raise EncodeError(
            f"{type(given).__name__} has no Java class here: str, numbers, bool, bytes, None have"
        )

    @staticmethod
    def _boxed(name: str, value: float) -> bytes:
        head, form = _JAVA_BOXES[name]
        try:
            return _JAVA_STREAM + head + form.pack(value)
        except (struct.error, OverflowError) as error:
            raise EncodeError(f"the value {shown(value)} does not fit Java's {name}: {error}") from error

    def deserialize(self, payload: bytes) -> Any:
        """Return the value in an object stream; bytes after it are ignored.

        :raises TruncatedInputError: the payload ends before the end of the value.
        :raises DecodeError: the payload is not an object stream, or contains an object of another class; the
            message names it.
        """
        payload = check_buffer(payload)
        tag = _java_tag(payload)
        if tag in (_JAVA_STRING, _JAVA_LONG_STRING):
            return _java_string(payload)
        if tag == _JAVA_NULL:
            return None
        content = payload[len(_JAVA_STREAM) :]
        for name, (head, form) in _JAVA_BOXES.items():
            if content.startswith(head):
                data = content[len(head) : len(head) + form.size]
                if len(data) < form.size:
                    raise TruncatedInputError(f"the payload ends within the value of a java.lang.{name}")
                [value] = form.unpack(data)
                return chr(value) if name == "Character" else value
        if content.startswith(_JAVA_BYTES):
            start = len(_JAVA_BYTES) + 4
            size = int.from_bytes(content[len(_JAVA_BYTES) : start], "big", signed=True)
            data = content[start : start + max(0, size)]
            if len(content) < start or len(data) != size:
                raise TruncatedInputError("the payload ends within the elements of a byte[]")
            return data
        if any(head.startswith(content) for head, _ in _JAVA_BOXES.values()) or _JAVA_BYTES.startswith(
            content
        ):
            raise TruncatedInputError("the payload ends within the description of a Java class")
        raise DecodeError(
            f"the Java object stream contains {_java_contents(payload)}; only texts, numbers, booleans, "
            "byte arrays and null are read"
        )


def _unit(text: str) -> int:
    """Return a text of one UTF-16 unit as a number."""
    if len(text) != 1 or text > "\uffff":
        raise EncodeError(f"the text {text[:20]!r} is not one UTF-16 unit, which Java's Character is")
    return ord(text)


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
            return json.dumps(value, separators=(",", ":"), sort_keys=True, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise EncodeError(f"the value cannot be written as JSON: {error}") from error

    def deserialize(self, payload: bytes) -> Any:
        """Return the value of a JSON text.

        :raises DecodeError: the payload is not JSON, or has a number that is too large for a float.
        """
        data = check_buffer(payload)
        try:
            return read_json(data.decode(json.detect_encoding(data), "surrogatepass"))
        except (ValueError, RecursionError) as error:
            raise DecodeError(f"the payload is not JSON: {error}") from error


@dataclass(frozen=True)
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
    :raises ArgumentTypeError: one of them is not a function.
    """

    to_bytes: Callable[[T], bytes]
    from_bytes: Callable[[bytes], T]

    def __post_init__(self) -> None:
        check_callable("to_bytes", self.to_bytes)
        check_callable("from_bytes", self.from_bytes)

    def serialize(self, value: T) -> bytes:
        """Return ``to_bytes(value)``."""
        return self.to_bytes(value)

    def deserialize(self, payload: bytes) -> T:
        """Return ``from_bytes(payload)``."""
        return self.from_bytes(payload)


def total(function: Callable[[V], T]) -> Callable[[V], T]:
    """Wrap a method of a serializer: what it raises must not look like the end of the events.

    Not public.
    """

    def call(value: V) -> T:
        try:
            return function(value)
        except (StopIteration, StopAsyncIteration) as error:
            raise RuntimeError(f"the serializer raised {type(error).__name__}") from error

    return call


def preparing(serializer: object) -> Callable[[list[bytes]], Awaitable[None]] | None:
    """Return what readers await before a serializer reads payloads; None if it needs nothing.

    Not public.
    """
    prepare = getattr(serializer, "prepare_payloads", None)
    if prepare is None:
        return None

    async def call(payloads: list[bytes]) -> None:
        try:
            await prepare(payloads)
        except PravegaError:
            raise
        except Exception as error:
            raise DecodeError(
                f"the serializer's prepare_payloads failed: {type(error).__name__}: {error}"
            ) from error

    return call
