"""Java's versioned serializer and its primitives (``docs/protocol/formats.md``, "Versioned records").

A record is a format byte, a type id if there are several types, a version, and revisions with a length each.
An older reader skips the revisions that it does not know; a newer one keeps its defaults for missing ones.

Defined by ``io.pravega.common.io.serialization.VersionedSerializer``, 0.13.0.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar
from uuid import UUID

from pravega_wire.errors import DecodeError, EncodeError, IncompatibleVersionError, TruncatedInputError
from pravega_wire.protocol.primitives import decode_modified_utf8, encode_modified_utf8

__all__ = [
    "COMPACT_INT_MAX",
    "COMPACT_LONG_MAX",
    "COMPACT_SIGNED_LONG_MAX",
    "COMPACT_SIGNED_LONG_MIN",
    "DataReader",
    "DataWriter",
    "RevisionReader",
    "encode_record",
    "read_record",
    "read_record_from",
    "read_typed_record_from",
]

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

FORMAT: Final = 0
COMPACT_INT_MAX: Final = (1 << 30) - 2
COMPACT_LONG_MAX: Final = (1 << 62) - 2
COMPACT_SIGNED_LONG_MIN: Final = -((1 << 61) - 1)
COMPACT_SIGNED_LONG_MAX: Final = (1 << 61) - 2

_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_DOUBLE = struct.Struct(">d")


class DataWriter:
    """Appends primitives to a buffer; :meth:`getvalue` returns the bytes. Methods can be chained.

    Any method raises :class:`EncodeError` if a value is outside the range of its type.
    """

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def getvalue(self) -> bytes:
        """Return everything written so far."""
        return bytes(self._buffer)

    def raw(self, data: bytes) -> DataWriter:
        """Write bytes as they are, without a length: a nested record, for instance."""
        self._buffer += data
        return self

    def _pack(self, layout: struct.Struct, value: float) -> DataWriter:
        try:
            self._buffer += layout.pack(value)
        except struct.error as error:
            raise EncodeError(f"{value!r} does not fit in {layout.size} bytes: {error}") from error
        return self

    def boolean(self, value: bool) -> DataWriter:
        """Write one byte, 0 or 1."""
        self._buffer.append(1 if value else 0)
        return self

    def byte(self, value: int) -> DataWriter:
        """Write one unsigned byte."""
        if not 0 <= value <= 0xFF:
            raise EncodeError(f"{value} is not a byte")
        self._buffer.append(value)
        return self

    def int16(self, value: int) -> DataWriter:
        """Write a signed 16-bit integer."""
        return self._pack(_SHORT, value)

    def int32(self, value: int) -> DataWriter:
        """Write a signed 32-bit integer."""
        return self._pack(_INT, value)

    def int64(self, value: int) -> DataWriter:
        """Write a signed 64-bit integer."""
        return self._pack(_LONG, value)

    def double(self, value: float) -> DataWriter:
        """Write a 64-bit IEEE 754 number."""
        return self._pack(_DOUBLE, value)

    def utf(self, value: str) -> DataWriter:
        """Write a string: two bytes of length, then modified UTF-8."""
        data = encode_modified_utf8(value)
        self._buffer += len(data).to_bytes(2, "big")
        self._buffer += data
        return self

    def uuid(self, value: UUID) -> DataWriter:
        """Write a UUID: 16 bytes, high half first."""
        self._buffer += value.bytes
        return self

    def compact_int(self, value: int) -> DataWriter:
        """Write an integer from 0 to :data:`COMPACT_INT_MAX` in 1, 2 or 4 bytes."""
        if not 0 <= value <= COMPACT_INT_MAX:
            raise EncodeError(f"{value} is outside the range of a compact int (0 to {COMPACT_INT_MAX})")
        if value <= 0x7F:
            self._buffer.append(value)
        elif value <= 0x3FFF:
            self._buffer += (value | 0x8000).to_bytes(2, "big")
        else:
            self._buffer += (value | 0xC0000000).to_bytes(4, "big")
        return self

    def compact_long(self, value: int) -> DataWriter:
        """Write an integer from 0 to :data:`COMPACT_LONG_MAX` in 1, 2, 4 or 8 bytes."""
        if not 0 <= value <= COMPACT_LONG_MAX:
            raise EncodeError(f"{value} is outside the range of a compact long (0 to {COMPACT_LONG_MAX})")
        self._prefixed(value, 0, 6)
        return self

    def compact_signed_long(self, value: int) -> DataWriter:
        """Write a signed integer in 1, 2, 4 or 8 bytes, with the sign in the top bit."""
        if not COMPACT_SIGNED_LONG_MIN <= value <= COMPACT_SIGNED_LONG_MAX:
            raise EncodeError(
                f"{value} is outside the range of a compact signed long "
                f"({COMPACT_SIGNED_LONG_MIN} to {COMPACT_SIGNED_LONG_MAX})"
            )
        if value < 0:
            self._prefixed(-value - 1, 1, 5)
        else:
            self._prefixed(value, 0, 5)
        return self

    def _prefixed(self, magnitude: int, sign: int, bits: int) -> None:
        for code, size in enumerate((1, 2, 4, 8)):
            free = bits + 8 * (size - 1)
            if magnitude < (1 << free):
                head = (sign << 2 | code) if bits == 5 else code
                self._buffer += (head << free | magnitude).to_bytes(size, "big")
                return
        raise EncodeError(f"{magnitude} does not fit in {bits + 56} bits")

    def array(self, value: bytes | None) -> DataWriter:
        """Write a length as a compact int, then the bytes; None is written as empty."""
        data = value or b""
        self.compact_int(len(data))
        self._buffer += data
        return self

    def collection(self, items: Iterable[T] | None, write: Callable[[DataWriter, T], object]) -> DataWriter:
        """Write a count as a compact int, then each element; None is written as empty."""
        chosen: Sequence[T] = () if items is None else tuple(items)
        self.compact_int(len(chosen))
        for item in chosen:
            write(self, item)
        return self

    def mapping(
        self,
        items: Mapping[K, V] | None,
        write_key: Callable[[DataWriter, K], object],
        write_value: Callable[[DataWriter, V], object],
    ) -> DataWriter:
        """Write a count as a compact int, then keys and values alternating, in the mapping's order."""
        chosen: Mapping[K, V] = {} if items is None else items
        self.compact_int(len(chosen))
        for key, value in chosen.items():
            write_key(self, key)
            write_value(self, value)
        return self


class DataReader:
    """Reads primitives from a buffer, in the order they were written.

    Any method raises :class:`TruncatedInputError` if the input ends too early.

    :param data: the input.
    :param position: where to begin.
    :param end: where to end; by default the end of the input.
    """

    __slots__ = ("_data", "_end", "position")

    def __init__(self, data: bytes, position: int = 0, end: int | None = None) -> None:
        self._data = data
        self.position = position
        self._end = len(data) if end is None else end

    @property
    def remaining(self) -> int:
        """Number of bytes that were not read yet."""
        return self._end - self.position

    def raw(self, size: int) -> bytes:
        """Read the next ``size`` bytes."""
        if size < 0:
            raise DecodeError(f"a length of {size} is negative")
        if size > self.remaining:
            raise TruncatedInputError(f"{size} bytes are needed, and {self.remaining} are left")
        start = self.position
        self.position += size
        return self._data[start : self.position]

    def boolean(self) -> bool:
        """Read one byte; anything but zero is true."""
        return self.raw(1)[0] != 0

    def byte(self) -> int:
        """Read one unsigned byte."""
        return self.raw(1)[0]

    def int16(self) -> int:
        """Read a signed 16-bit integer."""
        return int.from_bytes(self.raw(2), "big", signed=True)

    def int32(self) -> int:
        """Read a signed 32-bit integer."""
        return int.from_bytes(self.raw(4), "big", signed=True)

    def int64(self) -> int:
        """Read a signed 64-bit integer."""
        return int.from_bytes(self.raw(8), "big", signed=True)

    def double(self) -> float:
        """Read a 64-bit IEEE 754 number."""
        value: float = _DOUBLE.unpack(self.raw(8))[0]
        return value

    def utf(self) -> str:
        """Read a string of modified UTF-8."""
        return decode_modified_utf8(self.raw(int.from_bytes(self.raw(2), "big")))

    def uuid(self) -> UUID:
        """Read a UUID: 16 bytes, high half first."""
        return UUID(bytes=self.raw(16))

    def compact_int(self) -> int:
        """Read what :meth:`DataWriter.compact_int` writes."""
        first = self.byte()
        if first < 0x80:
            return first
        if first < 0xC0:
            return (first & 0x3F) << 8 | self.byte()
        return (first & 0x3F) << 24 | int.from_bytes(self.raw(3), "big")

    def compact_long(self) -> int:
        """Read what :meth:`DataWriter.compact_long` writes."""
        first = self.byte()
        more = (1 << (first >> 6)) - 1
        return (first & 0x3F) << (8 * more) | int.from_bytes(self.raw(more), "big")

    def compact_signed_long(self) -> int:
        """Read what :meth:`DataWriter.compact_signed_long` writes."""
        first = self.byte()
        more = (1 << ((first >> 5) & 3)) - 1
        magnitude = (first & 0x1F) << (8 * more) | int.from_bytes(self.raw(more), "big")
        return -magnitude - 1 if first & 0x80 else magnitude

    def array(self) -> bytes:
        """Read bytes that have their length before them."""
        return self.raw(self.compact_int())

    def collection(self, read: Callable[[DataReader], T]) -> list[T]:
        """Read elements, in their order."""
        return [read(self) for _ in range(self._count())]

    def mapping(
        self, read_key: Callable[[DataReader], K], read_value: Callable[[DataReader], V]
    ) -> dict[K, V]:
        """Read keys and values, in their order; of equal keys the last one is kept."""
        result = {}
        for _ in range(self._count()):
            key = read_key(self)
            result[key] = read_value(self)
        return result

    def _count(self) -> int:
        count = self.compact_int()
        if count > self.remaining:  # every element takes at least one byte
            raise TruncatedInputError(f"{count} elements are announced, and {self.remaining} bytes are left")
        return count


RevisionReader = Callable[[DataReader], None]
"""Function that reads one revision's body; what it leaves unread is skipped."""


def encode_record(
    revisions: Sequence[Callable[[DataWriter], object]], *, version: int = 0, type_id: int | None = None
) -> bytes:
    """Encode a whole record, with every revision of the version.

    :param revisions: writers of the bodies of revisions 0, 1, ...
    :param version: version of the record.
    :param type_id: which type it is, for records of several types.
    """
    head = (
        [FORMAT, version, len(revisions)] if type_id is None else [FORMAT, type_id, version, len(revisions)]
    )
    result = bytearray(head)
    for number, write in enumerate(revisions):
        body = DataWriter()
        write(body)
        data = body.getvalue()
        result.append(number)
        result += _INT.pack(len(data))
        result += data
    return bytes(result)


def read_record_from(
    source: DataReader,
    versions: Mapping[int, Sequence[RevisionReader]],
    *,
    what: str,
) -> int:
    """Read a record of one type at the position of ``source``, for nested records.

    :param source: the input.
    :param versions: for each known version, the readers of its revisions 0, 1, ...
    :param what: name of the record, for messages.
    :returns: the version of the record.
    :raises IncompatibleVersionError: the format or version is unknown.
    :raises DecodeError: the record is malformed or truncated.
    """
    _check_format(source, what)
    return _read_revisions(source, versions, what)


def read_record(data: bytes, versions: Mapping[int, Sequence[RevisionReader]], *, what: str) -> int:
    """Read ``data`` as one record, like :func:`read_record_from`; bytes after it are ignored."""
    return read_record_from(DataReader(data), versions, what=what)


def read_typed_record_from(
    source: DataReader,
    types: Mapping[int, Callable[[], tuple[Mapping[int, Sequence[RevisionReader]], Callable[[], T]]]],
    *,
    what: str,
) -> T:
    """Read a record of one of several types at the position of ``source``.

    :param source: the input.
    :param types: type id to a function that returns the readers of the revisions, and a function that builds
        the value after they ran.
    :param what: name of the record, for messages.
    :raises IncompatibleVersionError: the format, type id or version is unknown.
    :raises DecodeError: the record is malformed or truncated.
    """
    _check_format(source, what)
    type_id = source.byte()
    make = types.get(type_id)
    if make is None:
        raise IncompatibleVersionError(f"{what}: type id {type_id} is unknown")
    versions, build = make()
    _read_revisions(source, versions, what)
    return build()


def _check_format(source: DataReader, what: str) -> None:
    found = source.byte()
    if found != FORMAT:
        raise IncompatibleVersionError(f"{what}: serialization format {found} is unknown (known: {FORMAT})")


def _read_revisions(source: DataReader, versions: Mapping[int, Sequence[RevisionReader]], what: str) -> int:
    version = source.byte()
    known = versions.get(version)
    if known is None:
        raise IncompatibleVersionError(f"{what}: version {version} is unknown (known: {sorted(versions)})")
    for index in range(source.byte()):
        number = source.byte()
        if number != index:
            raise DecodeError(f"{what}: revision {number} where revision {index} was expected")
        size = source.int32()
        if not 0 <= size <= source.remaining:
            raise TruncatedInputError(
                f"{what}: revision {number} has {size} bytes, and {source.remaining} are left"
            )
        body = DataReader(source.raw(size))
        if index < len(known):
            known[index](body)
    return version
