"""Table segments: entries with versions in a segment, and what a 0.13.0 store does with them.

An entry is appended to the segment, and its version is the offset of that place. Conditions and listings of
keys go by the place; a read returns the version that is stored with an entry which compaction has moved
(``docs/protocol/unforgiving.md``, "Conditions on entries that were compacted").
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from hashlib import sha256
from struct import Struct
from typing import Any, Final, Protocol

from pravega_wire.protocol.commands import TableEntry, TableKey
from pravega_wire.protocol.versioned import encode_record

__all__ = [
    "MAX_FIXED_KEY",
    "NO_VERSION",
    "BadArgument",
    "BadOffset",
    "BadVersion",
    "Illegal",
    "MissingKey",
    "NotEmpty",
    "Refused",
    "Sealed",
    "Table",
    "Unsupported",
]

NO_VERSION: Final = -(2**63)
"""As a demand: none. In a stored entry: its place is its version."""

NOT_EXISTS: Final = -1
_HEADER: Final = Struct(">biiq")
_REMOVED: Final = -1
_COMPACTED_FROM: Final = 1 << 20
_LIVE_SHARE: Final = 0.75
_PAGE: Final = 16
_MAX_LISTED: Final = 2 << 20
MAX_FIXED_KEY: Final = 256
"""Most bytes of a key of a table whose keys have one length."""

_ENTRY_BYTES: Final = 20
"""What an entry takes in an answer beside its key and its value."""

_HASH: Final = Struct(">qq")
_TOKEN: Final = bytes.fromhex("0000010000000010")
"""Begins a token; the hash of the last key follows."""
_MAX_KEY: Final = 8192
_MAX_VALUE: Final = (1 << 20) - _MAX_KEY
_MAX_BATCH: Final = 0xFFFFFF - _MAX_KEY


class Refused(Exception):
    """Base of the reasons for which an operation on a segment is refused."""


class BadArgument(Refused):
    """An argument is not legal."""


class BadOffset(Refused):
    """An offset is not the one that it must be. :ivar expected: that one."""

    def __init__(self, expected: int) -> None:
        super().__init__(expected)
        self.expected = expected


class BadVersion(Refused):
    """An entry has not the version that was demanded."""


class Sealed(Refused):
    """The segment is sealed."""


class Illegal(Exception):
    """The store does not expect this, and closes the connection."""


class MissingKey(Refused):
    """A key does not exist, although a version of it was demanded."""


class NotEmpty(Refused):
    """A table has entries."""


class Unsupported(Refused):
    """The operation is not possible for this kind of table."""


class Place(Protocol):
    """The segment that keeps the entries of a table."""

    name: str
    data: bytearray
    start: int

    @property
    def length(self) -> int: ...
    def truncate(self, offset: int) -> None: ...


class Table:
    """The entries of one table segment.

    :param segment: where the entries are stored.
    :param key_length: length of each key in bytes; 0 in a hash table.
    """

    def __init__(self, segment: Place, key_length: int) -> None:
        self._segment = segment
        self.key_length = key_length
        self._places: dict[bytes, int] = {}
        self._keys: list[bytes] = []
        self._live = 0

    def __len__(self) -> int:
        return len(self._places)

    def put(self, entries: Sequence[TableEntry], at: int, *, sealed: bool = False) -> list[int]:
        """Store entries, all or none; return their versions.

        :param entries: entries, each with the version that its key must have.
        :param at: length that the segment must have, or a negative number for any.
        :param sealed: whether the segment takes nothing.
        """
        size = sum(_HEADER.size + len(each.key.data) + len(each.value) for each in entries)
        if size > _MAX_BATCH:
            raise BadArgument(f"the update has {size} bytes, more than {_MAX_BATCH}")
        self._check([each.key for each in entries], at, sealed)
        if any(len(each.value) > _MAX_VALUE for each in entries):
            raise BadArgument(f"a value has more than {_MAX_VALUE} bytes")
        versions = [self._store(each.key.data, each.value) for each in entries]
        self._compact()
        return versions

    def remove(self, keys: Sequence[TableKey], at: int, *, sealed: bool = False) -> None:
        """Remove keys, all or none; arguments as of :meth:`put`."""
        self._check(keys, at, sealed)
        for key in keys:
            if self._places.pop(key.data, None) is not None:
                del self._keys[bisect_left(self._keys, self._rank(key.data), key=self._rank)]
            if not self.key_length:
                # Also of a key that is not there (observed).
                self._segment.data += _HEADER.pack(0, len(key.data), _REMOVED, NO_VERSION) + key.data

    def get(self, key: bytes) -> TableEntry:
        """Return the entry of a key; its version is -1 if there is none."""
        self._check_key(key)
        place = self._places.get(key)
        if place is None:
            return TableEntry(TableKey(key, NOT_EXISTS), b"")
        version, value = self._at(place)
        return TableEntry(TableKey(key, version), value)

    def listed(
        self, token: bytes, first: bytes, last: bytes, most: int, *, values: bool = False
    ) -> tuple[list[TableKey], bytes]:
        """Return keys with their places, and the token of the next page.

        :param token: token of the page before; of hash tables only.
        :param first: first key, or empty.
        :param last: last key, or empty.
        :param most: most keys.
        :param values: whether these count as well for the most bytes of an answer.
        """
        if self.key_length:
            if token:
                raise BadArgument("ContinuationToken not supported for FixedKeyLengthTableSegments.")
            for bound in (first, last):
                if bound:
                    self._check_key(bound)
            if last and first > last:
                raise BadArgument("firstKey must be smaller than or equal to lastKey.")
            start = bisect_left(self._keys, first)
            end = bisect_right(self._keys, last) if last else len(self._keys)
            # A page is never split: there may be more than were wanted.
            end = self._end_of_answer(start, end, most, _PAGE, values=values)
            token = encode_record([lambda target: target.array(self._keys[end - 1])]) if end > start else b""
        else:
            if first or last:
                raise BadArgument("Range Iterators not supported for HashTableSegments.")
            if token and (len(token) != len(_TOKEN) + _HASH.size or not token.startswith(_TOKEN)):
                raise Illegal
            start = bisect_right(self._keys, _rank(token[len(_TOKEN) :]), key=self._rank) if token else 0
            end = self._end_of_answer(start, len(self._keys), most, 1, values=values)
            token = _TOKEN + _hash(self._keys[end - 1]) if end > start else b""
        return [TableKey(key, self._places[key]) for key in self._keys[start:end]], token

    def _end_of_answer(self, start: int, end: int, most: int, page: int, *, values: bool) -> int:
        """Return which of the sorted keys are in an answer: from ``start`` up to this one, in whole pages."""
        size, at = 0, start
        while at < end and at - start < most and size < _MAX_LISTED:
            for key in self._keys[at : at + page]:
                size += _entry_size(key, self._at(self._places[key])[1] if values else b"")
            at += page
        return min(at, end)

    def changes(self, position: int, most: int) -> tuple[list[TableEntry], bool, bool, int]:
        """Return what has changed in a hash table since a position.

        :returns: the entries, whether the position was truncated away, whether the end was reached, and the
            position to continue from.
        """
        segment = self._segment
        if self.key_length:
            raise Unsupported
        if position < 0:
            raise BadArgument("fromPosition must be a non-negative number.")
        if position > segment.length:
            raise BadArgument(f"fromPosition {position} is beyond the segment's length {segment.length}")
        if position == segment.length or most < 1:
            # As if nothing had been asked (observed).
            return [], False, True, 0
        truncated = position < segment.start
        position = max(position, segment.start)
        found: dict[bytes, TableEntry] = {}
        size = 0
        while position < segment.length and len(found) < most and size < _MAX_LISTED:
            at = position - segment.start
            _, key_length, value_length, version = _HEADER.unpack_from(segment.data, at)
            if key_length < 0 or value_length < _REMOVED:
                # Somebody has appended bytes that are no entry.
                raise Illegal
            at += _HEADER.size
            key = bytes(segment.data[at : at + key_length])
            found.pop(key, None)
            if value_length != _REMOVED:
                value = bytes(segment.data[at + key_length : at + key_length + value_length])
                number = position if version == NO_VERSION else version
                found[key] = TableEntry(TableKey(key, number), value)
                size += _entry_size(key, value)
            position += _HEADER.size + key_length + max(value_length, 0)
        return list(found.values()), truncated, position >= segment.length, position

    def _check(self, keys: Iterable[TableKey], at: int, sealed: bool) -> None:
        for key in keys:
            self._check_key(key.data)
            if NO_VERSION < key.version < NOT_EXISTS:
                raise Illegal
        if sealed and self.key_length:
            # A hash table looks at the versions first.
            raise Sealed
        places = [(self._places.get(key.data, NOT_EXISTS), key.version) for key in keys]
        wrong = [place for place, version in places if version not in (NO_VERSION, place)]
        if wrong:
            # Only hash tables tell that there is none (observed).
            raise MissingKey if NOT_EXISTS in wrong and not self.key_length else BadVersion
        if sealed:
            raise Sealed
        if 0 <= at != self._segment.length:
            raise BadOffset(self._segment.length)

    def _check_key(self, key: bytes) -> None:
        if self.key_length and len(key) != self.key_length:
            raise BadArgument(
                f"the key has {len(key)} bytes, but segment {self._segment.name} requires key lengths of "
                f"{self.key_length}"
            )
        if len(key) > _MAX_KEY:
            raise BadArgument(f"a key has more than {_MAX_KEY} bytes")

    def _rank(self, key: bytes) -> Any:
        """What the order of keys goes by: in a hash table, signed halves of their hashes."""
        return key if self.key_length else _rank(_hash(key))

    def _store(self, key: bytes, value: bytes, version: int = NO_VERSION) -> int:
        place = self._segment.length
        self._segment.data += _HEADER.pack(0, len(key), len(value), version) + key + value
        if key not in self._places:
            insort(self._keys, key, key=self._rank)
        self._places[key] = place
        return place

    def _at(self, place: int) -> tuple[int, bytes]:
        at = place - self._segment.start
        _, key_length, value_length, version = _HEADER.unpack_from(self._segment.data, at)
        at += _HEADER.size + key_length
        return place if version == NO_VERSION else version, bytes(self._segment.data[at : at + value_length])

    def _compact(self) -> None:
        """Move all entries to the end, and truncate, when most of the segment is of old ones."""
        segment = self._segment
        stored = len(segment.data)
        if stored < _COMPACTED_FROM or stored < 2 * self._live:
            return
        found = {key: self._at(place) for key, place in self._places.items()}
        self._live = sum(_HEADER.size + len(key) + len(value) for key, (_, value) in found.items())
        if self._live > stored * _LIVE_SHARE:
            return
        end = segment.length
        for key, (version, value) in sorted(found.items(), key=lambda item: self._places[item[0]]):
            self._store(key, value, version)
        segment.truncate(end)


def _entry_size(key: bytes, value: bytes) -> int:
    """What an entry counts towards the most bytes of an answer."""
    return _ENTRY_BYTES + len(key) + len(value)


def _hash(key: bytes) -> bytes:
    return sha256(key).digest()[: _HASH.size]


def _rank(found: bytes) -> tuple[int, ...]:
    return _HASH.unpack(found)
