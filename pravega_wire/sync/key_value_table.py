"""Blocking mirrors of the classes in ``pravega_wire.stream.key_value_table``.

The documentation of each method is that of its async twin; a test compares names and signatures.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, Mapping, MutableMapping, ValuesView
from typing import Any, Generic, TypeVar, cast, overload

from pravega_wire.controller.types import KeyValueTableConfiguration
from pravega_wire.positions import KeyValueVersion
from pravega_wire.stream.key_value_table import (
    DEFAULT_PAGE_SIZE,
    Modification,
    TableEntry,
    TableKey,
)
from pravega_wire.stream.key_value_table import KeyValueTable as AsyncKeyValueTable
from pravega_wire.stream.key_value_table import TableFamily as AsyncTableFamily
from pravega_wire.stream.key_value_table import TableIterator as AsyncTableIterator
from pravega_wire.stream.key_value_table import TableMapping as AsyncTableMapping
from pravega_wire.sync.portal import Line, Portal
from pravega_wire.types import ScopedStream

__all__ = ["KeyValueTable", "TableFamily", "TableIterator", "TableMapping"]

P = TypeVar("P")
S = TypeVar("S")
V = TypeVar("V")
K = TypeVar("K")
T = TypeVar("T")


class TableIterator(Generic[T]):
    """Blocking twin of :class:`pravega_wire.TableIterator`: ``for item in iterator``."""

    def __init__(self, portal: Portal | Line, iterator: AsyncTableIterator[T]) -> None:
        self._portal = Line(portal)
        self._twin = iterator

    @property
    def position(self) -> bytes | None:
        """Where to go on after what was given out so far."""
        return self._twin.position

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        # Most items are at hand: they need not cross a thread.
        if not self._twin.at_hand and not self._portal.call(self._twin.load):
            raise StopIteration
        return self._twin.take()

    def next_page(self, *, timeout: float | None = None) -> list[T]:
        """The next items, as many as are at hand; an empty list after the last."""
        return self._portal.within(timeout, self._twin.next_page)


class KeyValueTable(Generic[P, S, V]):
    """Blocking twin of :class:`pravega_wire.KeyValueTable`."""

    def __init__(self, portal: Portal | Line, table: AsyncKeyValueTable[P, S, V]) -> None:
        self._portal = Line(portal, f"key-value table {table.name}")
        self._twin = table

    @property
    def name(self) -> ScopedStream:
        """Scope and name of the table."""
        return self._twin.name

    @property
    def configuration(self) -> KeyValueTableConfiguration:
        """Number of partitions and lengths of the keys."""
        return self._twin.configuration

    def get(self, key: P | tuple[P, S], *, timeout: float | None = None) -> TableEntry[P, S, V] | None:
        """The entry of a key, None when there is none."""
        return self._portal.within(timeout, self._twin.get, key)

    def get_many(
        self, keys: Iterable[P | tuple[P, S]], *, timeout: float | None = None
    ) -> list[TableEntry[P, S, V] | None]:
        """The entries of keys, in their order; None for those that have none."""
        return self._portal.within(timeout, self._twin.get_many, keys)

    def exists(self, key: P | tuple[P, S], *, timeout: float | None = None) -> bool:
        """Whether there is an entry of this key."""
        return self._portal.within(timeout, self._twin.exists, key)

    def estimated_size(self, *, timeout: float | None = None) -> int:
        """Number of entries as the segments count them: it lags behind what was written."""
        return self._portal.within(timeout, self._twin.estimated_size)

    def insert(self, key: P | tuple[P, S], value: V, *, timeout: float | None = None) -> KeyValueVersion:
        """Add an entry, if there is none of this key."""
        return self._portal.within(timeout, self._twin.insert, key, value)

    def put(
        self,
        key: P | tuple[P, S],
        value: V,
        version: KeyValueVersion | None = None,
        *,
        timeout: float | None = None,
    ) -> KeyValueVersion:
        """Set the value of a key, whether it exists or not.

        :param timeout: seconds, as in the other methods that change something: the change may have been made
            all the same, which reading the key tells.
        """
        return self._portal.within(timeout, self._twin.put, key, value, version)

    def replace(self, key: P | tuple[P, S], value: V, *, timeout: float | None = None) -> KeyValueVersion:
        """Set the value of a key that exists."""
        return self._portal.within(timeout, self._twin.replace, key, value)

    def remove(
        self, key: P | tuple[P, S], version: KeyValueVersion | None = None, *, timeout: float | None = None
    ) -> None:
        """Remove a key; without ``version`` it may be missing already."""
        self._portal.within(timeout, self._twin.remove, key, version)

    def update_many(
        self, modifications: Iterable[Modification[P | tuple[P, S], V]], *, timeout: float | None = None
    ) -> list[KeyValueVersion | None]:
        """Make changes to entries of one primary key, all of them or none."""
        return self._portal.within(timeout, self._twin.update_many, modifications)

    def put_many(self, items: Iterable[tuple[P | tuple[P, S], V]], *, timeout: float | None = None) -> None:
        """Set the values of any number of keys, many with each request; not atomic.

        :param timeout: seconds. Any of them may have been set all the same.
        """
        self._portal.within(timeout, self._twin.put_many, items)

    def remove_many(self, keys: Iterable[P | tuple[P, S]], *, timeout: float | None = None) -> None:
        """Remove any number of keys, many with each request; not atomic."""
        self._portal.within(timeout, self._twin.remove_many, keys)

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
        """Keys in unsigned byte order."""
        return TableIterator(
            self._portal,
            self._twin.keys(
                primary=primary,
                between=between,
                prefix=prefix,
                secondary_between=secondary_between,
                secondary_prefix=secondary_prefix,
                after=after,
                page_size=page_size,
            ),
        )

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
        """Entries in unsigned byte order of their keys."""
        return TableIterator(
            self._portal,
            self._twin.entries(
                primary=primary,
                between=between,
                prefix=prefix,
                secondary_between=secondary_between,
                secondary_prefix=secondary_prefix,
                after=after,
                page_size=page_size,
            ),
        )

    def family(self, primary: P) -> TableFamily[P, S, V]:
        """All entries of one primary key, by their secondary keys."""
        return TableFamily(self._portal, self._twin.family(primary))

    def mapping(self) -> TableMapping[P, V]:
        """The table as a mapping from primary key to value."""
        return TableMapping(self._portal, self._twin.mapping())

    def mapping_of_pairs(self) -> TableMapping[TableKey[P, S], V]:
        """The table as a mapping from :class:`TableKey` (any pair will do) to value."""
        return TableMapping(self._portal, self._twin.mapping_of_pairs())


class TableFamily(Generic[P, S, V]):
    """Blocking twin of :class:`pravega_wire.TableFamily`."""

    def __init__(self, portal: Portal | Line, family: AsyncTableFamily[P, S, V]) -> None:
        self._portal = Line(portal)
        self._twin = family

    @property
    def primary(self) -> P:
        """The primary key."""
        return self._twin.primary

    def get(self, secondary: S, *, timeout: float | None = None) -> TableEntry[P, S, V] | None:
        """The entry of a secondary key, None when there is none."""
        return self._portal.within(timeout, self._twin.get, secondary)

    def get_many(
        self, secondaries: Iterable[S], *, timeout: float | None = None
    ) -> list[TableEntry[P, S, V] | None]:
        """The entries of secondary keys, in their order; None for those that have none."""
        return self._portal.within(timeout, self._twin.get_many, secondaries)

    def exists(self, secondary: S, *, timeout: float | None = None) -> bool:
        """Whether there is an entry of this secondary key."""
        return self._portal.within(timeout, self._twin.exists, secondary)

    def insert(self, secondary: S, value: V, *, timeout: float | None = None) -> KeyValueVersion:
        """Add an entry, if there is none of this secondary key."""
        return self._portal.within(timeout, self._twin.insert, secondary, value)

    def put(
        self, secondary: S, value: V, version: KeyValueVersion | None = None, *, timeout: float | None = None
    ) -> KeyValueVersion:
        """Set a value, on the condition of a version where one is given."""
        return self._portal.within(timeout, self._twin.put, secondary, value, version)

    def replace(self, secondary: S, value: V, *, timeout: float | None = None) -> KeyValueVersion:
        """Set the value of a secondary key that exists."""
        return self._portal.within(timeout, self._twin.replace, secondary, value)

    def remove(
        self, secondary: S, version: KeyValueVersion | None = None, *, timeout: float | None = None
    ) -> None:
        """Remove an entry, on the condition of a version where one is given."""
        self._portal.within(timeout, self._twin.remove, secondary, version)

    def update_many(
        self, modifications: Iterable[Modification[S, V]], *, timeout: float | None = None
    ) -> list[KeyValueVersion | None]:
        """Make changes all together or not at all; their keys are secondary keys."""
        return self._portal.within(timeout, self._twin.update_many, modifications)

    def put_all(self, items: Mapping[S, V], *, timeout: float | None = None) -> None:
        """Set the values of at most 256 secondary keys, all together or not at all."""
        self._portal.within(timeout, self._twin.put_all, items)

    def clear(self, *, timeout: float | None = None) -> None:
        """Remove every entry, many with each request; not atomic."""
        self._portal.within(timeout, self._twin.clear)

    def keys(
        self,
        *,
        between: tuple[S | None, S | None] = (None, None),
        prefix: bytes = b"",
        after: bytes | None = None,
        page_size: int = DEFAULT_PAGE_SIZE,
    ) -> TableIterator[TableKey[P, S]]:
        """Keys in the order of the secondary ones."""
        return TableIterator(
            self._portal,
            self._twin.keys(between=between, prefix=prefix, after=after, page_size=page_size),
        )

    def entries(
        self,
        *,
        between: tuple[S | None, S | None] = (None, None),
        prefix: bytes = b"",
        after: bytes | None = None,
        page_size: int = DEFAULT_PAGE_SIZE,
    ) -> TableIterator[TableEntry[P, S, V]]:
        """Entries in unsigned byte order of their secondary keys."""
        return TableIterator(
            self._portal,
            self._twin.entries(between=between, prefix=prefix, after=after, page_size=page_size),
        )

    def mapping(self) -> TableMapping[S, V]:
        """The family as a mapping from secondary key to value."""
        return TableMapping(self._portal, self._twin.mapping())


class _Items(ItemsView[K, V]):
    """Items by iterating over entries: the default would ask for each value by itself."""

    def __init__(self, mapping: TableMapping[K, V]) -> None:
        super().__init__(mapping)
        self._table = mapping

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return self._table._iterate()


class _Values(ValuesView[V]):
    """Values by iterating over entries."""

    def __init__(self, mapping: TableMapping[Any, V]) -> None:
        super().__init__(mapping)
        self._table = mapping

    def __iter__(self) -> Iterator[V]:
        return (value for _, value in self._table._iterate())

    def __contains__(self, value: object) -> bool:
        return any(value == each for each in self)


class TableMapping(MutableMapping[K, V]):
    """A table or family as a ``MutableMapping``, in unsigned byte order of the keys.

    Each operation asks the server: ``len`` lists every key. Other processes may change the table between two
    operations, but not within one: ``setdefault``, ``pop`` and ``popitem`` lose nobody's change.
    """

    def __init__(self, portal: Portal | Line, mapping: AsyncTableMapping[K, V]) -> None:
        self._portal = Line(portal)
        self._twin = mapping

    def __getitem__(self, key: K) -> V:
        return self._portal.call(self._twin.getitem, key)

    def __setitem__(self, key: K, value: V) -> None:
        self._portal.call(self._twin.setitem, key, value)

    def __delitem__(self, key: K) -> None:
        self._portal.call(self._twin.delitem, key)

    def __contains__(self, key: object) -> bool:
        return self._portal.call(self._twin.contains, cast(K, key))

    def __len__(self) -> int:
        return self._portal.call(self._twin.length)

    def __bool__(self) -> bool:
        return not self._portal.call(self._twin.empty)

    def __iter__(self) -> Iterator[K]:
        keys = self._twin.listing()
        while page := self._portal.call(keys.next_page):
            yield from map(self._twin.of_key, page)

    def _iterate(self) -> Iterator[tuple[K, V]]:
        entries = self._twin.entries()
        while page := self._portal.call(entries.next_page):
            for entry in page:
                yield self._twin.of_key(entry.key), entry.value

    @overload
    def get(self, key: K, /) -> V | None: ...

    @overload
    def get(self, key: K, /, default: V | T) -> V | T: ...

    def get(self, key: K, /, default: Any = None) -> Any:
        """The value of a key, or the default."""
        return self._portal.call(self._twin.get, key, default)

    def setdefault(self, key: K, default: V = None, /) -> V:  # type: ignore[assignment]  # as in the base
        """The value of a key; where there is none, the default becomes it."""
        return self._portal.call(self._twin.setdefault, key, default)

    def pop(self, key: K, /, *default: Any) -> Any:
        """Remove a key and return its value. :raises KeyError: it does not exist, and there is no default."""
        return self._portal.call(self._twin.pop, key, *default)

    def popitem(self) -> tuple[K, V]:
        """Remove the first key and return it with its value. :raises KeyError: there are no keys."""
        return self._portal.call(self._twin.popitem)

    def update(self, other: Any = (), /, **items: Any) -> None:
        """Set the values of many keys, many with each request; not atomic."""
        self._portal.call(self._twin.update, {**dict(other), **items})

    def clear(self) -> None:
        """Remove all keys, many with each request; not atomic."""
        self._portal.call(self._twin.clear)

    def items(self) -> ItemsView[K, V]:
        """Keys with their values."""
        return _Items(self)

    def values(self) -> ValuesView[V]:
        """The values, in the order of their keys."""
        return _Values(self)
