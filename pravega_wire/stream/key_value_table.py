"""Key-value tables: entries with versions, updated on conditions, read by key or in order.

The tables are those of the Java class ``io.pravega.client.tables.KeyValueTable``, 0.13.0.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, NoReturn, Self, TypeVar, TypeVarTuple, Unpack, cast

import trio

from pravega_wire.controller.tokens import Access
from pravega_wire.controller.types import KeyValueTableConfiguration
from pravega_wire.errors import (
    ArgumentTypeError,
    DecodeError,
    InvalidArgumentError,
    KeyValueTableNotFoundError,
    MixedPrimaryKeysError,
    NoSuchSegmentError,
    PravegaError,
    TableKeyBadVersionError,
    TableKeyDoesNotExistError,
    TableKeyLengthError,
    TableOutcomeUnknownError,
    TableValueTooLargeError,
    placed,
)
from pravega_wire.protocol import commands as c
from pravega_wire.segment.handles import OneAtATime
from pravega_wire.segment.store import Backoff, SegmentTarget
from pravega_wire.segment.table import (
    ANY_VERSION,
    MAX_BATCH_BYTES,
    MAX_BATCH_KEYS,
    MAX_KEY_BYTES,
    MAX_KEYS_PER_LISTING,
    MAX_KEYS_PER_READ,
    MAX_VALUE_BYTES,
    NOT_EXISTS,
    Change,
    TableSegment,
    batch_bytes,
)
from pravega_wire.serializers import (
    BytesSerializer,
    JavaSerializer,
    JavaStringSerializer,
    JsonSerializer,
    Serializer,
    Utf8Serializer,
)
from pravega_wire.stream.core import ClientCore, not_shared
from pravega_wire.stream.user_functions import in_caller
from pravega_wire.support.checks import (
    INT32_MAX,
    INT64_MAX,
    check_count,
    check_flag,
    check_payload,
    check_serializer,
    check_several,
    check_type,
)
from pravega_wire.support.nurseries import run_all
from pravega_wire.values.hashing import hash_bytes_to_range
from pravega_wire.values.naming import TABLE_SUFFIX, segment_name
from pravega_wire.values.positions import KeyValueVersion
from pravega_wire.values.types import ScopedStream

__all__ = [
    "Insert",
    "KeyValueTable",
    "Put",
    "Remove",
    "TableEntry",
    "TableFamily",
    "TableIterator",
    "TableKey",
]

P = TypeVar("P")
S = TypeVar("S")
V = TypeVar("V")
K = TypeVar("K")
T = TypeVar("T")
A = TypeVarTuple("A")
A1 = TypeVar("A1")
A2 = TypeVar("A2")
K_co = TypeVar("K_co", covariant=True)
V_co = TypeVar("V_co", covariant=True)

DEFAULT_PAGE_SIZE: Final = 100
_AT_ONCE: Final = 8
"""The number of requests that one call has in flight at the same time."""


_OWN_SERIALIZERS: Final = {
    BytesSerializer,
    JavaSerializer,
    JavaStringSerializer,
    JsonSerializer,
    Utf8Serializer,
}
"""These run none of the user's code, so they may run in any thread."""


class TableKey(NamedTuple, Generic[P, S]):
    """A primary key and a secondary key. In a table without secondary keys the latter is ``b""``."""

    primary: P
    secondary: S


@dataclass(frozen=True, slots=True)
class TableEntry(Generic[P, S, V]):
    """An entry as it was read.

    :ivar key: the entry's key.
    :ivar value: the entry's value.
    :ivar version: the entry's version, for conditional updates.
    """

    key: TableKey[P, S]
    value: V
    version: KeyValueVersion


@dataclass(frozen=True)
class Insert(Generic[K_co, V_co]):
    """Part of an update: add an entry whose key must not exist yet.

    :ivar key: the key.
    :ivar value: its value.
    """

    key: K_co
    value: V_co


@dataclass(frozen=True)
class Put(Generic[K_co, V_co]):
    """Part of an update: set the value of a key, optionally on condition of its version.

    :ivar key: the key.
    :ivar value: its new value.
    :ivar version: the version that the entry must have. None sets the value unconditionally.
    """

    key: K_co
    value: V_co
    version: KeyValueVersion | None = None


@dataclass(frozen=True)
class Remove(Generic[K_co]):
    """Part of an update: remove a key, optionally on condition of its version.

    :ivar key: the key.
    :ivar version: the version that the entry must have. None removes the key unconditionally.
    """

    key: K_co
    version: KeyValueVersion | None = None


Modification = Insert[K, V] | Put[K, V] | Remove[K]


@dataclass(frozen=True, slots=True)
class _Range:
    """All whole keys from ``first`` to ``last``, both inclusive, in unsigned byte order."""

    first: bytes
    last: bytes


class _Segment:
    """A segment of the table and its part of the key space: positions up to ``high``."""

    __slots__ = ("high", "segment_id", "table")

    def __init__(self, segment_id: int, high: float, table: TableSegment) -> None:
        self.segment_id = segment_id
        self.high = high
        self.table = table


def check_config(name: ScopedStream, config: KeyValueTableConfiguration) -> None:
    """Check the values that a controller would accept and a segment store would reject.

    :raises InvalidArgumentError: a number is out of range.
    """
    check_type(f"key-value table {name}: config", config, KeyValueTableConfiguration)
    primary, secondary = config.primary_key_length, config.secondary_key_length
    for field, lowest in (
        ("partition_count", 1), ("primary_key_length", 1), ("secondary_key_length", 0),
        ("rollover_size_bytes", 0),
    ):  # fmt: skip
        highest = INT64_MAX if field == "rollover_size_bytes" else INT32_MAX
        check_count(f"key-value table {name}: {field}", getattr(config, field), lowest, highest)
    if primary < 1 or secondary < 0 or primary + secondary > MAX_KEY_BYTES:
        raise InvalidArgumentError(
            f"key-value table {name}: a primary key must have at least 1 byte, a secondary key at least 0, "
            f"and both together at most {MAX_KEY_BYTES}, not {primary} and {secondary}",
            scope=name.scope,
        )


def _following(key: bytes) -> bytes | None:
    """The next key of the same length; None after the last."""
    number = int.from_bytes(key, "big") + 1
    if number >> (8 * len(key)):
        return None
    return number.to_bytes(len(key), "big")


def _batches(changes: Sequence[Change]) -> Iterator[list[Change]]:
    """Divide changes into parts that are each small enough for one request."""
    part: list[Change] = []
    size = batch_bytes(())
    for change in changes:
        added = batch_bytes((change,)) - batch_bytes(())
        if part and (len(part) == MAX_BATCH_KEYS or size + added > MAX_BATCH_BYTES):
            yield part
            part = []
            size = batch_bytes(())
        part.append(change)
        size += added
    if part:
        yield part


def _text(key: bytes) -> str:
    """A key as text for a message."""
    return repr(key) if len(key) <= 40 else f"{key[:40]!r}... ({len(key)} bytes)"


def _shown(changes: Sequence[Change], length: int) -> str:
    """The keys of an update as text for a message.

    :param length: bytes of a primary key.
    """
    key = changes[0].key
    first = _text(key) if len(key) <= length else f"({_text(key[:length])}, {_text(key[length:])})"
    return f"key {first}" if len(changes) == 1 else f"{len(changes)} keys, the first {first}"


class KeyValueTable(Generic[P, S, V]):
    """A table of keys and values on the server. Made by :meth:`PravegaClient.key_value_table`.

    A key is a pair ``(primary, secondary)``, or the primary key alone in a table without secondary keys.
    Serialized keys must have exactly the lengths that the table was created with.

    An update never happens twice because of a lost connection. If it cannot be determined whether it happened
    at all, the method raises :class:`TableOutcomeUnknownError`.

    Example::

        from pravega_wire import KeyValueTableConfiguration
        from pravega_wire.serializers import Utf8Serializer

        await client.create_key_value_table("demo/limits", KeyValueTableConfiguration(4, 8, 0))
        table = await client.key_value_table("demo/limits", Utf8Serializer())
        version = await table.put(b"sensor-7", "20..30")
        await table.put(b"sensor-7", "20..35", version)
        async for entry in table.entries():
            print(entry.key.primary, entry.value)
    """

    def __init__(
        self,
        core: ClientCore,
        name: ScopedStream,
        config: KeyValueTableConfiguration,
        segments: Sequence[_Segment],
        primary_keys: Serializer[P],
        secondary_keys: Serializer[S],
        values: Serializer[V],
    ) -> None:
        self._core = core
        self._name = name
        self._config = config
        self._segments = sorted(segments, key=lambda segment: segment.high)
        # Rounding may leave the last range short of 1; every position must have a segment.
        self._segments[-1].high = math.inf
        self._highs = [segment.high for segment in self._segments]
        self._primary_keys = primary_keys
        self._secondary_keys = secondary_keys
        self._values = values
        self._foreign = (
            not {type(each) for each in (primary_keys, secondary_keys, values)} <= _OWN_SERIALIZERS
        )

    __reduce__ = not_shared

    async def _run(self, function: Callable[[Unpack[A]], T], *args: *A) -> T:
        """Call a function that uses the serializers, in the user's thread if they are the user's."""
        return await in_caller(function, *args) if self._foreign else function(*args)

    @classmethod
    async def open(
        cls,
        core: ClientCore,
        name: ScopedStream,
        primary_keys: Serializer[P],
        secondary_keys: Serializer[S],
        values: Serializer[V],
        *,
        sole_writer: bool = False,
    ) -> KeyValueTable[P, S, V]:
        """Find the table's configuration and segments.

        :raises KeyValueTableNotFoundError: the table does not exist.
        :raises InvalidArgumentError: there is a serializer of secondary keys, and the table has none.
        """
        check_flag("sole_writer", sole_writer)
        for argument, given in (
            ("values", values),
            ("primary_keys", primary_keys),
            ("secondary_keys", secondary_keys),
        ):
            check_serializer(f"key-value table {name}: {argument}", given)
        config = await core.controller.get_key_value_table_configuration(name.scope, name.name)
        keys: object = secondary_keys
        if not config.secondary_key_length and not isinstance(keys, BytesSerializer):
            raise InvalidArgumentError(
                f"key-value table {name} has no secondary keys that secondary_keys could serialize",
                scope=name.scope,
            )
        found = await core.controller.get_current_segments_key_value_table(name.scope, name.name)
        if not found:
            raise DecodeError(
                f"the controller returned no segments for key-value table {name}", scope=name.scope
            )
        parts = name.name + TABLE_SUFFIX
        # Segment stores compare a token's resource with the segment's name up to a "/". So a 0.13.0 store
        # refuses a token for the table's own name.
        token = core.tokens.source(name.scope, parts, Access.READ_WRITE)
        segments = []
        for each in found:
            target = SegmentTarget.of(segment_name(name.scope, parts, each.segment_id), token)
            table = TableSegment(core.stores, target, sole_writer=sole_writer)
            segments.append(_Segment(each.segment_id, each.high, table))
        return cls(core, name, config, segments, primary_keys, secondary_keys, values)

    def __repr__(self) -> str:
        return f"<KeyValueTable {self._name}, {len(self._segments)} partitions>"

    @property
    def name(self) -> ScopedStream:
        """The scope and name of the table."""
        return self._name

    @property
    def config(self) -> KeyValueTableConfiguration:
        """The number of partitions and the key lengths."""
        return self._config

    # --- keys and values as bytes ---------------------------------------------------------------

    def _bytes(self, what: str, serializer: Serializer[Any], value: object) -> bytes:
        if isinstance(serializer, BytesSerializer) and not isinstance(value, bytes | bytearray | memoryview):
            # bytes(5) would be five zeros.
            raise InvalidArgumentError(
                f"key-value table {self._name}: a {what} must be bytes, not {type(value).__name__}",
                scope=self._name.scope,
            )
        return check_payload(f"key-value table {self._name}: a {what}", serializer.serialize(value))

    def _checked(self, what: str, data: bytes, expected: int) -> bytes:
        if len(data) != expected:
            raise self._wrong_length(f"a {what} must have {expected} bytes, not", len(data), expected)
        return data

    def _wrong_length(self, what: str, length: int, expected: int) -> TableKeyLengthError:
        return TableKeyLengthError(
            f"key-value table {self._name}: {what} {length}",
            scope=self._name.scope,
            length=length,
            expected=expected,
        )

    def _primary_bytes(self, primary: P) -> bytes:
        data = self._bytes("primary key", self._primary_keys, primary)
        return self._checked("primary key", data, self._config.primary_key_length)

    def _secondary_bytes(self, secondary: S) -> bytes:
        data = self._bytes("secondary key", self._secondary_keys, secondary)
        return self._checked("secondary key", data, self._config.secondary_key_length)

    def _key_bytes(self, key: P | tuple[P, S]) -> bytes:
        if self._config.secondary_key_length:
            if not (isinstance(key, tuple) and len(key) == 2):
                raise InvalidArgumentError(
                    f"key-value table {self._name} has secondary keys: a key must be a pair "
                    "(primary, secondary)",
                    scope=self._name.scope,
                )
            return self._primary_bytes(key[0]) + self._secondary_bytes(key[1])
        if isinstance(key, TableKey):
            if key.secondary != b"":
                self._refuse("it has no secondary keys")
            key = key.primary
        return self._primary_bytes(cast(P, key))

    def _value_bytes(self, value: V) -> bytes:
        data = self._bytes("value", self._values, value)
        if len(data) > MAX_VALUE_BYTES:
            raise self._too_large("a value", len(data), MAX_VALUE_BYTES)
        return data

    def _too_large(self, what: str, size: int, limit: int) -> TableValueTooLargeError:
        return TableValueTooLargeError(
            f"key-value table {self._name}: {what} of {size} bytes is over the limit of {limit}",
            scope=self._name.scope,
            size=size,
            limit=limit,
        )

    def _key_of(self, data: bytes) -> TableKey[P, S]:
        length = self._config.primary_key_length
        if len(data) != length + self._config.secondary_key_length:
            raise DecodeError(
                f"key-value table {self._name} returned a key of {len(data)} bytes, which is not its length",
                scope=self._name.scope,
            )
        try:
            primary = self._primary_keys.deserialize(data[:length])
            if len(data) == length:
                # Not every serializer can deserialize zero bytes.
                return TableKey(primary, cast(S, b""))
            return TableKey(primary, self._secondary_keys.deserialize(data[length:]))
        except DecodeError as error:
            placed(error, f"key-value table {self._name}, the key {data!r}", scope=self._name.scope)
            raise

    def _entry_of(self, segment: _Segment, entry: c.TableEntry) -> TableEntry[P, S, V]:
        key = self._key_of(entry.key.data)
        try:
            value = self._values.deserialize(entry.value)
        except DecodeError as error:
            placed(error, f"key-value table {self._name}, the value of {key}", scope=self._name.scope)
            raise
        return TableEntry(key, value, KeyValueVersion(segment.segment_id, entry.key.version))

    def _segment_of(self, primary: bytes) -> _Segment:
        return self._segments[bisect_left(self._highs, hash_bytes_to_range(primary))]

    def _segment_of_key(self, data: bytes) -> _Segment:
        return self._segment_of(data[: self._config.primary_key_length])

    # --- errors ---------------------------------------------------------------------------------

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Raise errors that name a segment as errors that name the table."""
        self._core.check_open()
        try:
            yield
        except NoSuchSegmentError as error:
            raise KeyValueTableNotFoundError(
                f"key-value table {self._name} no longer exists",
                scope=self._name.scope,
                segment=error.segment,
                host=error.host,
            ) from error

    async def _update(self, segment: _Segment, changes: Sequence[Change]) -> list[int]:
        try:
            with self._named():
                return await segment.table.update(changes)
        except TableKeyBadVersionError as error:
            raise self._bad_version(changes, segment, error) from error
        except TableOutcomeUnknownError as error:
            found, unreadable = await self._found(segment, error.found)
            raise TableOutcomeUnknownError(
                f"key-value table {self._name}: it is unknown whether "
                f"{_shown(changes, self._config.primary_key_length)} was updated: "
                f"{error.message}{unreadable}",
                found=found,
                scope=self._name.scope,
                segment=error.segment,
                host=error.host,
            ) from error.__cause__

    async def _found(
        self, segment: _Segment, entries: Sequence[object | None]
    ) -> tuple[tuple[TableEntry[P, S, V] | None, ...], str]:
        """Entries of the protocol as entries of the table; none, and the reason, if they cannot be read."""

        def converted() -> tuple[TableEntry[P, S, V] | None, ...]:
            return tuple(
                None if entry is None else self._entry_of(segment, cast(c.TableEntry, entry))
                for entry in entries
            )

        try:
            return await self._run(converted), ""
        except Exception as error:
            # Another writer may have written something else, and a serializer may raise anything. That the
            # outcome is unknown matters more.
            return (), f". What is there cannot be deserialized: {type(error).__name__}: {error}"

    def _bad_version(
        self, changes: Sequence[Change], segment: _Segment, cause: PravegaError | None = None
    ) -> TableKeyBadVersionError:
        with_condition = [each for each in changes if each.version != ANY_VERSION] or changes
        keys = _shown(with_condition, self._config.primary_key_length)
        return TableKeyBadVersionError(
            f"key-value table {self._name}: the condition for {keys} does not hold, so nothing was changed",
            scope=self._name.scope,
            segment=segment.table.target.name,
            host=None if cause is None else cause.host,
        )

    # --- reading --------------------------------------------------------------------------------

    async def get(self, key: P | tuple[P, S]) -> TableEntry[P, S, V] | None:
        """Return the entry of a key, or None if it does not exist.

        :raises KeyValueTableNotFoundError: the table was deleted.
        :raises TableKeyLengthError: the key does not have the table's key length.
        """
        data = await self._run(self._key_bytes, key)
        segment = self._segment_of_key(data)
        with self._named():
            [entry] = await segment.table.read([data])
        return None if entry is None else await self._run(self._entry_of, segment, entry)

    async def get_many(self, keys: Iterable[P | tuple[P, S]]) -> list[TableEntry[P, S, V] | None]:
        """Return the entries of several keys, in their order; None for keys that do not exist.

        This is not a snapshot: each entry is as it was at some moment during the call.
        """
        wanted = await in_caller(lambda: [self._key_bytes(key) for key in self._each("keys", keys)])
        by_segment: dict[_Segment, list[bytes]] = {}
        for data in dict.fromkeys(wanted):
            by_segment.setdefault(self._segment_of_key(data), []).append(data)
        with self._named():
            read = await self._read_all(by_segment)

        def entries() -> list[TableEntry[P, S, V] | None]:
            found = {
                data: None if entry is None else self._entry_of(self._segment_of_key(data), entry)
                for data, entry in read.items()
            }
            return [found[data] for data in wanted]

        return await self._run(entries)

    async def _read_all(self, wanted: Mapping[_Segment, Sequence[bytes]]) -> dict[bytes, c.TableEntry | None]:
        """The entries of any number of keys; None for keys that do not exist."""
        found: dict[bytes, c.TableEntry | None] = {}

        def reading(segment: _Segment, part: Sequence[bytes]) -> Callable[[], Awaitable[None]]:
            async def read() -> None:
                found.update(zip(part, await segment.table.read(part), strict=True))

            return read

        await run_all(
            [
                reading(segment, keys[start : start + MAX_KEYS_PER_READ])
                for segment, keys in wanted.items()
                for start in range(0, len(keys), MAX_KEYS_PER_READ)
            ],
            _AT_ONCE,
        )
        return found

    async def exists(self, key: P | tuple[P, S]) -> bool:
        """Return whether a key exists, without fetching its value."""
        data = await self._run(self._key_bytes, key)
        with self._named():
            return bool(await self._segment_of_key(data).table.read_keys(data, data, 1))

    async def estimated_size(self) -> int:
        """Return the number of entries as counted by the segments, which lags behind recent updates."""
        total = 0
        with self._named():
            for segment in self._segments:
                total += (await segment.table.info()).entry_count
        return total

    # --- one change -----------------------------------------------------------------------------

    def _condition(self, data: bytes, version: KeyValueVersion | None) -> int:
        """The version to demand in the request.

        :raises TableKeyBadVersionError: the version belongs to another segment, so it cannot be the key's.
        """
        if version is None:
            return ANY_VERSION
        if not isinstance(version, KeyValueVersion):
            self._wrong_type("a version must be a KeyValueVersion", version)
        if version.version == KeyValueVersion.NO_VERSION:
            return ANY_VERSION
        segment = self._segment_of_key(data)
        if version.segment_id not in (segment.segment_id, KeyValueVersion.ANY_SEGMENT):
            raise self._bad_version([Change(data, version.version, None)], segment)
        if version.version < NOT_EXISTS:
            raise InvalidArgumentError(
                f"key-value table {self._name}: {version} is not a valid version", scope=self._name.scope
            )
        return version.version

    def _change(self, modification: Modification[P | tuple[P, S], V]) -> Change:
        self._check_modification(modification)
        data = self._key_bytes(modification.key)
        if isinstance(modification, Insert):
            return Change(data, NOT_EXISTS, self._value_bytes(modification.value))
        version = self._condition(data, modification.version)
        if isinstance(modification, Put):
            return Change(data, version, self._value_bytes(modification.value))
        if version == NOT_EXISTS:
            raise InvalidArgumentError(
                f"key-value table {self._name}: a key cannot be removed on the condition that it does not "
                "exist",
                scope=self._name.scope,
            )
        return Change(data, version, None)

    async def _single(self, modification: Modification[P | tuple[P, S], V]) -> KeyValueVersion:
        change = await self._run(self._change, modification)
        segment = self._segment_of_key(change.key)
        [version] = await self._update(segment, [change])
        return KeyValueVersion(segment.segment_id, version)

    async def insert(self, key: P | tuple[P, S], value: V) -> KeyValueVersion:
        """Add an entry if its key does not exist yet. Returns its version.

        :raises TableKeyBadVersionError: the key already exists.
        :raises TableOutcomeUnknownError: the answer was lost, and it is unknown whether the entry was added.
        :raises TableValueTooLargeError: the value has more than 1 040 384 bytes.
        """
        return await self._single(Insert(key, value))

    async def put(
        self, key: P | tuple[P, S], value: V, version: KeyValueVersion | None = None
    ) -> KeyValueVersion:
        """Set the value of a key, whether it exists or not. Returns the new version.

        If this call is cancelled, the change may have been made, or may still be made a moment later. The
        same holds for the other methods that change the table. What must not be overwritten by such a change
        needs a version.

        :param version: set the value only if the entry has this version.
        :raises TableKeyBadVersionError: the entry has another version.
        :raises TableOutcomeUnknownError: the answer was lost, and it is unknown whether the value was set.
            Without ``version`` you can simply call this again.
        :raises TableValueTooLargeError: the value has more than 1 040 384 bytes.
        """
        return await self._single(Put(key, value, version))

    async def replace(self, key: P | tuple[P, S], value: V) -> KeyValueVersion:
        """Set the value of an existing key, whatever its version. Returns the new version.

        :raises TableKeyDoesNotExistError: the key does not exist.
        :raises TableOutcomeUnknownError: the answer was lost, and it is unknown whether the value was set.
        """
        data, payload = await self._run(lambda: (self._key_bytes(key), self._value_bytes(value)))
        segment = self._segment_of_key(data)
        backoff = self._backoff()
        while True:
            # Not a listing, although it would be shorter: its version of an entry that was compacted is not
            # the entry's, and does not tell after a lost answer whether the entry is as it was.
            with self._named():
                [found] = await segment.table.read([data])
            if found is None:
                raise TableKeyDoesNotExistError(
                    f"key-value table {self._name} has no key {_text(data)}",
                    scope=self._name.scope,
                    segment=segment.table.target.name,
                )
            try:
                [version] = await self._update(segment, [Change(data, found.key.version, payload)])
            except TableKeyBadVersionError:
                # Another writer was faster. After losing for the whole time limit, report it.
                if not await backoff.wait():
                    raise
            else:
                return KeyValueVersion(segment.segment_id, version)

    def _backoff(self) -> Backoff:
        """Pauses for updates that are repeated because another writer was faster, up to the time limit."""
        return Backoff(self._core.config.operation_timeout, longest=0.1)

    async def remove(self, key: P | tuple[P, S], version: KeyValueVersion | None = None) -> None:
        """Remove a key. Without ``version``, a key that does not exist is not an error.

        :param version: remove the key only if the entry has this version.
        :raises TableKeyBadVersionError: the entry has another version, or does not exist.
        :raises TableOutcomeUnknownError: the answer was lost, and it is unknown whether the key was removed.
        """
        await self._single(Remove(key, version))

    # --- many changes ---------------------------------------------------------------------------

    async def update_many(
        self, modifications: Iterable[Modification[P | tuple[P, S], V]]
    ) -> list[KeyValueVersion | None]:
        """Change several entries of one primary key atomically: all changes are made, or none.

        :param modifications: at most 256, either any mix of :class:`Insert` and :class:`Put`, or only
            :class:`Remove`. Each key may occur once.
        :returns: the new versions, in order; None for each removal.
        :raises MixedPrimaryKeysError: the keys have different primary keys.
        :raises TableKeyBadVersionError: a condition does not hold. Nothing was changed.
        :raises TableOutcomeUnknownError: the answer was lost, and it is unknown whether the changes were
            made.
        """
        changes = await in_caller(
            lambda: [
                self._change(modification) for modification in self._each("modifications", modifications)
            ]
        )
        if not changes:
            return []
        length = self._config.primary_key_length
        if len({change.key[:length] for change in changes}) > 1:
            raise MixedPrimaryKeysError(
                f"key-value table {self._name}: all changes of one update must have the same primary key",
                scope=self._name.scope,
            )
        if len({change.key for change in changes}) < len(changes):
            self._refuse("an update must not change the same key twice")
        if len({change.value is None for change in changes}) > 1:
            self._refuse("an update must not mix setting values and removing keys")
        if len(changes) > MAX_BATCH_KEYS:
            self._refuse(f"an update may have at most {MAX_BATCH_KEYS} keys, not {len(changes)}")
        size = batch_bytes(changes)
        if size > MAX_BATCH_BYTES:
            raise self._too_large("an update", size, MAX_BATCH_BYTES)
        segment = self._segment_of_key(changes[0].key)
        versions = await self._update(segment, changes)
        if changes[0].value is None:
            return [None] * len(changes)
        return [KeyValueVersion(segment.segment_id, version) for version in versions]

    def _check_bytes(self, what: str, value: object) -> None:
        if not isinstance(value, bytes):
            self._wrong_type(f"{what} must be bytes", value)

    def _check_modification(self, value: object) -> None:
        if not isinstance(value, Insert | Put | Remove):
            self._wrong_type("a modification must be an Insert, a Put or a Remove", value)

    def _each(self, what: str, given: Iterable[T]) -> Iterator[T]:
        """The elements of an argument. It runs the user's code, only once it is iterated over."""
        try:
            check_several(what, given)
        except ArgumentTypeError as error:
            raise ArgumentTypeError(
                f"key-value table {self._name}: {error.message}", scope=self._name.scope
            ) from None
        yield from given

    def _pair(self, what: str, given: tuple[A1, A2]) -> tuple[A1, A2]:
        """The elements of an argument that must be a pair."""
        try:
            first, second = given
        except (TypeError, ValueError):
            size = f" of {len(given)}" if isinstance(given, tuple | list) else ""
            self._wrong_type(f"{what} must be a pair", given, size)
        return first, second

    def _wrong_type(self, must: str, given: object, size: str = "") -> NoReturn:
        raise ArgumentTypeError(
            f"key-value table {self._name}: {must}, not {type(given).__name__}{size}", scope=self._name.scope
        )

    def _refuse(self, reason: str) -> NoReturn:
        raise InvalidArgumentError(f"key-value table {self._name}: {reason}", scope=self._name.scope)

    async def put_many(self, items: Iterable[tuple[P | tuple[P, S], V]]) -> None:
        """Set the values of any number of keys, with many keys in each request and without conditions.

        This is not atomic: after an error, any of the values may have been set. If a key occurs twice, its
        last value is used.

        If this call is cancelled, any of the entries may have been set.
        """

        def changes() -> dict[bytes, Change]:
            made: dict[bytes, Change] = {}
            for item in self._each("items", items):
                key, value = self._pair("an item, of a key and its value,", item)
                data = self._key_bytes(key)
                made[data] = Change(data, ANY_VERSION, self._value_bytes(value))
            return made

        await self._in_batches((await in_caller(changes)).values())

    async def remove_many(self, keys: Iterable[P | tuple[P, S]]) -> None:
        """Remove any number of keys, with many keys in each request and without conditions.

        This is not atomic: after an error, any of the keys may have been removed.
        """
        # Not map(): a StopIteration of the serializer would end it.
        wanted = await in_caller(
            lambda: dict.fromkeys([self._key_bytes(key) for key in self._each("keys", keys)])
        )
        await self._in_batches([Change(data, ANY_VERSION, None) for data in wanted])

    async def _in_batches(self, changes: Iterable[Change]) -> None:
        by_segment: dict[_Segment, list[Change]] = {}
        for change in changes:
            by_segment.setdefault(self._segment_of_key(change.key), []).append(change)

        def updating(segment: _Segment, part: list[Change]) -> Callable[[], Awaitable[None]]:
            async def update() -> None:
                await self._update(segment, part)

            return update

        await run_all(
            [
                updating(segment, part)
                for segment, of_segment in by_segment.items()
                for part in _batches(of_segment)
            ],
            _AT_ONCE,
        )

    # --- in order -------------------------------------------------------------------------------

    def keys(
        self,
        *,
        primary: P | None = None,
        between: tuple[P | None, P | None] = (None, None),
        prefix: bytes = b"",
        secondary_between: tuple[S | None, S | None] = (None, None),
        secondary_prefix: bytes = b"",
        after: bytes | None = None,
        page_size: int = DEFAULT_PAGE_SIZE,
    ) -> TableIterator[TableKey[P, S]]:
        """Iterate over keys in unsigned byte order: ``async for key in table.keys()``.

        The parameters are those of :meth:`entries`.
        """
        chosen = self._range(primary, between, prefix, secondary_between, secondary_prefix)

        async def fetch(segment: _Segment, part: _Range) -> list[tuple[bytes, TableKey[P, S]]]:
            with self._named():
                found = await segment.table.read_keys(
                    part.first, part.last, min(page_size, MAX_KEYS_PER_LISTING)
                )
            return await self._run(lambda: [(key.data, self._key_of(key.data)) for key in found])

        return self._iterator(chosen, after, page_size, fetch)

    def entries(
        self,
        *,
        primary: P | None = None,
        between: tuple[P | None, P | None] = (None, None),
        prefix: bytes = b"",
        secondary_between: tuple[S | None, S | None] = (None, None),
        secondary_prefix: bytes = b"",
        after: bytes | None = None,
        page_size: int = DEFAULT_PAGE_SIZE,
    ) -> TableIterator[TableEntry[P, S, V]]:
        """Iterate over entries in the order of their keys: ``async for entry in table.entries()``.

        The order is that of the unsigned bytes of the keys, over all partitions. Entries that change during
        the iteration are returned as they were before or after the change.

        :param primary: only this primary key.
        :param between: the first and last primary key, both inclusive; None for no bound.
        :param prefix: only primary keys that begin with these bytes.
        :param secondary_between: with ``primary``: the first and last secondary key, both inclusive.
        :param secondary_prefix: with ``primary``: only secondary keys that begin with these bytes.
        :param after: continue after this :attr:`TableIterator.position` of an iterator with the same
            selection.
        :param page_size: the number of entries fetched at a time from each partition.
        """
        chosen = self._range(primary, between, prefix, secondary_between, secondary_prefix)

        async def fetch(segment: _Segment, part: _Range) -> list[tuple[bytes, TableEntry[P, S, V]]]:
            with self._named():
                found = await self._page(segment, part, page_size)
            return await self._run(
                lambda: [(entry.key.data, self._entry_of(segment, entry)) for entry in found]
            )

        return self._iterator(chosen, after, page_size, fetch)

    async def _page(self, segment: _Segment, part: _Range, size: int) -> Sequence[c.TableEntry]:
        """The first entries of a range; none at all at its end."""
        table = segment.table
        first: bytes | None = part.first
        while first is not None and first <= part.last:
            # Not ReadTableEntries: a 0.13.0 store puts all the requested entries into one reply, even if they
            # exceed a frame, and closes the connection if one of them is removed at the same time.
            keys = [
                key.data for key in await table.read_keys(first, part.last, min(size, MAX_KEYS_PER_LISTING))
            ]
            if not keys:
                return ()
            read = await self._read_all({segment: keys})
            found = [entry for entry in map(read.__getitem__, keys) if entry is not None]
            if found:
                return found
            # All of these were removed since they were listed, but there may be later keys.
            first = _following(keys[-1])
        return ()

    def _range(
        self,
        primary: P | None,
        between: tuple[P | None, P | None],
        prefix: bytes,
        secondary_between: tuple[S | None, S | None],
        secondary_prefix: bytes,
    ) -> _Range:
        what = "bounds, of the first and last key,"
        between = self._pair(what, between)
        secondary_between = self._pair(what, secondary_between)
        # An array has no truth value.
        self._check_bytes("the prefix of a primary key", prefix)
        self._check_bytes("the prefix of a secondary key", secondary_prefix)
        bounded = any(each is not None for each in between)
        if (primary is not None) + bounded + bool(prefix) > 1:
            self._refuse("at most one of primary, between and prefix may be given")
        secondary_bounded = any(each is not None for each in secondary_between)
        if (secondary_bounded or secondary_prefix) and primary is None:
            self._refuse("a range of secondary keys needs a primary key (primary=)")
        if secondary_bounded and secondary_prefix:
            self._refuse("at most one of secondary_between and secondary_prefix may be given")
        length = self._config.primary_key_length
        if primary is not None:
            first = last = self._primary_bytes(primary)
        elif bounded:
            first, last = self._bounds(between, self._primary_bytes, length)
        else:
            first, last = self._padded("primary", prefix, length)
        length = self._config.secondary_key_length
        if secondary_bounded:
            low, high = self._bounds(secondary_between, self._secondary_bytes, length)
        else:
            low, high = self._padded("secondary", secondary_prefix, length)
        return _Range(first + low, last + high)

    def _bounds(
        self, between: tuple[T | None, T | None], encode: Callable[[T], bytes], length: int
    ) -> tuple[bytes, bytes]:
        low, high = between
        return (
            bytes(length) if low is None else encode(low),
            b"\xff" * length if high is None else encode(high),
        )

    def _padded(self, what: str, prefix: bytes, length: int) -> tuple[bytes, bytes]:
        if len(prefix) > length:
            raise self._wrong_length(
                f"the prefix of a {what} key may have at most {length} bytes, not", len(prefix), length
            )
        return prefix.ljust(length, b"\0"), prefix.ljust(length, b"\xff")

    def _iterator(
        self,
        chosen: _Range,
        after: bytes | None,
        page_size: int,
        fetch: Callable[[_Segment, _Range], Awaitable[list[tuple[bytes, T]]]],
    ) -> TableIterator[T]:
        check_count("page_size", page_size)
        first: bytes | None = chosen.first
        if after is not None:
            self._check_bytes("the position of an iterator", after)
            if len(after) != len(chosen.first):
                self._refuse(
                    f"the position of an iterator must have {len(chosen.first)} bytes, not {len(after)}"
                )
            following = _following(after)
            first = None if following is None else max(chosen.first, following)
        length = self._config.primary_key_length
        segments = self._segments
        if chosen.first[:length] == chosen.last[:length]:
            segments = [self._segment_of(chosen.first[:length])]
        cursors = [
            _Cursor(segment, chosen.last, first if first is not None and first <= chosen.last else None)
            for segment in segments
        ]
        return TableIterator(str(self._name), cursors, fetch, after)

    # --- families ------------------------------------------------------------------

    def family(self, primary: P) -> TableFamily[P, S, V]:
        """Return all entries of one primary key, as an object to access them by secondary key.

        :raises InvalidArgumentError: the table has no secondary keys.
        """
        if not self._config.secondary_key_length:
            self._refuse("it has no secondary keys, so it has no families")
        self._primary_bytes(primary)
        return TableFamily(self, primary)


class _Cursor:
    """The position of an iteration in one segment: the fetched items, and where the rest begins."""

    __slots__ = ("first", "items", "last", "segment")

    def __init__(self, segment: _Segment, last: bytes, first: bytes | None) -> None:
        self.segment = segment
        self.last = last
        self.first = first
        self.items: list[tuple[bytes, Any]] = []


class TableIterator(Generic[T]):
    """Iterates over a table: ``async for item in iterator``.

    Made by :meth:`KeyValueTable.keys` and :meth:`KeyValueTable.entries`. Items are in unsigned byte order of
    their keys, over all partitions. It is for one caller at a time. After an error or a cancellation it
    continues with the next item it has not returned.

    Example::

        table = await client.key_value_table("demo/limits")
        entries = table.entries(prefix=b"sensor", page_size=100)
        async for entry in entries:
            print(entry.key.primary, entry.value)
        print(entries.position)
    """

    def __init__(
        self,
        table: str,
        cursors: Sequence[_Cursor],
        fetch: Callable[[_Segment, _Range], Awaitable[list[tuple[bytes, T]]]],
        position: bytes | None,
    ) -> None:
        self._table = table
        self._cursors = list(cursors)
        self._fetch = fetch
        self._position = position
        self._page: list[tuple[bytes, T]] = []
        self._alone = OneAtATime(f"another call is iterating over key-value table {table} with this iterator")

    @property
    def position(self) -> bytes | None:
        """Where to continue after the items returned so far: pass it to another iterator as ``after``."""
        return self._position

    def __repr__(self) -> str:
        return f"<TableIterator of {self._table}>"

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        if not self._page and not await self._find():
            raise StopAsyncIteration
        return self._first_item()

    def _first_item(self) -> T:
        """Take the next item of the page; in any thread.

        Nothing is called after it was taken: signal handlers run after calls, and Ctrl-C would lose it.
        """
        self._position, item = self._page[-1]
        del self._page[-1]
        return item

    def _all_items(self) -> list[T]:
        """Take all items of the page, none if there is no page; in any thread, as :meth:`_first_item`."""
        page = self._page
        items = [item for _, item in reversed(page)]
        # Another thread may have taken it meanwhile.
        if not page or self._page is not page:
            return []
        self._position = page[0][0]
        self._page = []
        return items

    async def next_page(self) -> list[T]:
        """Return the next items, as many as one fetch brings; an empty list after the last."""
        if not self._page and not await self._find():
            return []
        return self._all_items()

    async def _find(self) -> bool:
        """Fetch the next page. Returns False if there are no items left. For the facades, too.

        A call that a thread has left may have fetched a page that nobody has taken. It stays.

        :raises ConcurrentUseError: another call is fetching it.
        """
        with self._alone:
            return bool(self._page) or await self._load()

    async def _load(self) -> bool:
        await run_all([self._filling(cursor) for cursor in self._cursors if not cursor.items], _AT_ONCE)
        self._cursors = [cursor for cursor in self._cursors if cursor.items]
        if not self._cursors:
            return False
        # Each unfinished segment was read up to its last fetched key. Keys up to the smallest of these are
        # complete.
        bound = min(
            (cursor.items[-1][0] for cursor in self._cursors if cursor.first is not None), default=None
        )
        ready: list[tuple[bytes, T]] = []
        for cursor in self._cursors:
            count = len(cursor.items)
            if bound is not None:
                count = sum(key <= bound for key, _ in cursor.items)
            ready += cursor.items[:count]
            del cursor.items[:count]
        ready.sort(key=lambda item: item[0], reverse=True)
        self._page = ready
        return True

    def _filling(self, cursor: _Cursor) -> Callable[[], Awaitable[None]]:
        async def fill() -> None:
            if cursor.first is None:
                await trio.lowlevel.checkpoint()
                return
            found = await self._fetch(cursor.segment, _Range(cursor.first, cursor.last))
            previous = None
            for key, _ in found:
                if not cursor.first <= key <= cursor.last or (previous is not None and key <= previous):
                    raise DecodeError(
                        f"key-value table {self._table}: the server listed key {_text(key)} out of order",
                        segment=cursor.segment.table.target.name,
                    )
                previous = key
            following = None if previous is None else _following(previous)
            cursor.items = found
            cursor.first = following if following is not None and following <= cursor.last else None

        return fill


class TableFamily(Generic[P, S, V]):
    """The entries of one primary key, by secondary key. They can be changed together, atomically.

    Made by :meth:`KeyValueTable.family`. Its errors are those of the table's methods.

    Example::

        from pravega_wire import KeyValueTableConfiguration

        await client.create_key_value_table("demo/states", KeyValueTableConfiguration(4, 8, 4))
        table = await client.key_value_table("demo/states")
        family = table.family(b"sensor-7")
        await family.put_all({b"mode": b"auto", b"rate": b"10 s"})
        async for entry in family.entries():
            print(entry.key.secondary, entry.value)
    """

    def __init__(self, table: KeyValueTable[P, S, V], primary: P) -> None:
        self._table = table
        self._primary = primary

    def __repr__(self) -> str:
        return f"<TableFamily {self._primary!r:.80} of {self._table.name}>"

    @property
    def primary(self) -> P:
        """The primary key."""
        return self._primary

    def _key(self, secondary: S) -> TableKey[P, S]:
        return TableKey(self._primary, secondary)

    async def get(self, secondary: S) -> TableEntry[P, S, V] | None:
        """Return the entry of a secondary key, or None if it does not exist."""
        return await self._table.get(self._key(secondary))

    async def get_many(self, secondaries: Iterable[S]) -> list[TableEntry[P, S, V] | None]:
        """Return the entries of several secondary keys, in their order; None for keys that do not exist."""
        return await self._table.get_many(self._key(each) for each in self._table._each("keys", secondaries))

    async def exists(self, secondary: S) -> bool:
        """Return whether a secondary key exists."""
        return await self._table.exists(self._key(secondary))

    async def insert(self, secondary: S, value: V) -> KeyValueVersion:
        """Add an entry if its secondary key does not exist yet. Returns its version."""
        return await self._table.insert(self._key(secondary), value)

    async def put(self, secondary: S, value: V, version: KeyValueVersion | None = None) -> KeyValueVersion:
        """Set a value, optionally on condition of the entry's version. Returns the new version."""
        return await self._table.put(self._key(secondary), value, version)

    async def replace(self, secondary: S, value: V) -> KeyValueVersion:
        """Set the value of an existing secondary key. Returns the new version."""
        return await self._table.replace(self._key(secondary), value)

    async def remove(self, secondary: S, version: KeyValueVersion | None = None) -> None:
        """Remove an entry, optionally on condition of its version."""
        await self._table.remove(self._key(secondary), version)

    async def update_many(self, modifications: Iterable[Modification[S, V]]) -> list[KeyValueVersion | None]:
        """Make several changes atomically. The keys of the modifications are secondary keys.

        See :meth:`KeyValueTable.update_many`.
        """
        return await self._table.update_many(
            self._full(each) for each in self._table._each("modifications", modifications)
        )

    def _full(self, modification: Modification[S, V]) -> Modification[P | tuple[P, S], V]:
        self._table._check_modification(modification)
        key = self._key(modification.key)
        if isinstance(modification, Insert):
            return Insert(key, modification.value)
        if isinstance(modification, Put):
            return Put(key, modification.value, modification.version)
        return Remove(key, modification.version)

    async def put_all(self, items: Mapping[S, V]) -> None:
        """Set the values of at most 256 secondary keys, all of them or none."""
        if not isinstance(items, Mapping):
            self._table._wrong_type("items must be given as a mapping", items)
        await self.update_many(Put(secondary, value) for secondary, value in items.items())

    async def clear(self) -> None:
        """Remove every entry, with many keys in each request. This is not atomic."""
        keys = self._table.keys(primary=self._primary, page_size=MAX_BATCH_KEYS)
        while page := await keys.next_page():
            await self._table.remove_many(page)

    def keys(
        self,
        *,
        between: tuple[S | None, S | None] = (None, None),
        prefix: bytes = b"",
        after: bytes | None = None,
        page_size: int = DEFAULT_PAGE_SIZE,
    ) -> TableIterator[TableKey[P, S]]:
        """Iterate over keys in the order of the secondary keys. See :meth:`entries` for the parameters."""
        return self._table.keys(
            primary=self._primary,
            secondary_between=between,
            secondary_prefix=prefix,
            after=after,
            page_size=page_size,
        )

    def entries(
        self,
        *,
        between: tuple[S | None, S | None] = (None, None),
        prefix: bytes = b"",
        after: bytes | None = None,
        page_size: int = DEFAULT_PAGE_SIZE,
    ) -> TableIterator[TableEntry[P, S, V]]:
        """Iterate over entries in unsigned byte order of their secondary keys.

        :param between: the first and last secondary key, both inclusive; None for no bound.
        :param prefix: only secondary keys that begin with these bytes.
        :param after: continue after this :attr:`TableIterator.position`.
        :param page_size: the number of entries fetched at a time.
        """
        return self._table.entries(
            primary=self._primary,
            secondary_between=between,
            secondary_prefix=prefix,
            after=after,
            page_size=page_size,
        )
