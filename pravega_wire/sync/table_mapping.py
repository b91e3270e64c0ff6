"""A key-value table as a ``MutableMapping``."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, MutableMapping, ValuesView
from typing import Any, Final, TypeVar, overload

from pravega_wire.errors import TableKeyBadVersionError
from pravega_wire.segment.table import MAX_BATCH_KEYS
from pravega_wire.stream.key_value_table import DEFAULT_PAGE_SIZE, KeyValueTable, TableIterator, TableKey
from pravega_wire.support.checks import check_several
from pravega_wire.threads.portal import Line, Portal

__all__ = ["TableMapping"]

V = TypeVar("V")
K = TypeVar("K")
T = TypeVar("T")

_MISSING: Final = object()
_PAGE_KEYS: Final = 1000


class _Items(ItemsView[K, V]):
    """Items that iterate over entries. The base class would make a request for each value."""

    def __init__(self, mapping: TableMapping[K, V]) -> None:
        super().__init__(mapping)
        self._table = mapping

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return self._table._iterate()


class _Values(ValuesView[V]):
    """Values that iterate over entries."""

    def __init__(self, mapping: TableMapping[Any, V]) -> None:
        super().__init__(mapping)
        self._table = mapping

    def __iter__(self) -> Iterator[V]:
        return (value for _, value in self._table._iterate())

    def __contains__(self, value: object) -> bool:
        return any(value == each for each in self)


class TableMapping(MutableMapping[K, V]):
    """A table or family as a ``MutableMapping``, in unsigned byte order of the keys.

    Made by :meth:`KeyValueTable.mapping`, :meth:`KeyValueTable.mapping_of_pairs` and
    :meth:`TableFamily.mapping`. Each operation makes requests to the server; ``len`` lists every key. Other
    processes may change the table between two operations, but not within one: ``setdefault``, ``pop`` and
    ``popitem`` never overwrite the change of another writer.

    Example::

        limits = client.key_value_table("demo/limits").mapping()
        limits[b"sensor-8"] = b"15..25"
        print(limits[b"sensor-8"], len(limits))
    """

    def __init__(
        self,
        portal: Portal | Line,
        table: KeyValueTable[Any, Any, V],
        primary: Any,
        to_key: Callable[[K], Any],
        of_key: Callable[[TableKey[Any, Any]], K],
    ) -> None:
        self._call = Line(portal).call
        self._table = table
        self._primary = primary
        self._to_key: Callable[[Any], Any] = to_key
        self._of_key = of_key

    def __repr__(self) -> str:
        return f"<TableMapping of {self._table.name}>"

    def __getitem__(self, key: K) -> V:
        entry = self._call(self._table.get, self._to_key(key))
        if entry is None:
            raise KeyError(key)
        return entry.value

    def __setitem__(self, key: K, value: V) -> None:
        self._call(self._table.put, self._to_key(key), value)

    def __delitem__(self, key: K) -> None:
        self.pop(key)

    def __contains__(self, key: object) -> bool:
        return self._call(self._table.exists, self._to_key(key))

    def __len__(self) -> int:
        return sum(map(len, self._pages(self._keys(_PAGE_KEYS))))

    def __bool__(self) -> bool:
        return next(self._pages(self._keys(1)), None) is not None

    def __iter__(self) -> Iterator[K]:
        for page in self._pages(self._keys()):
            yield from map(self._of_key, page)

    def _iterate(self) -> Iterator[tuple[K, V]]:
        for page in self._pages(self._table.entries(primary=self._primary)):
            for entry in page:
                yield self._of_key(entry.key), entry.value

    def _keys(self, page_size: int = DEFAULT_PAGE_SIZE) -> TableIterator[TableKey[Any, Any]]:
        return self._table.keys(primary=self._primary, page_size=page_size)

    def _pages(self, listing: TableIterator[T]) -> Iterator[list[T]]:
        while page := self._call(listing.next_page):
            yield page

    @overload
    def get(self, key: K, /) -> V | None: ...

    @overload
    def get(self, key: K, /, default: V | T) -> V | T: ...

    def get(self, key: K, /, default: Any = None) -> Any:
        """Return the value of a key, or the default if the key does not exist."""
        entry = self._call(self._table.get, self._to_key(key))
        return default if entry is None else entry.value

    def setdefault(self, key: K, default: V = None, /) -> V:  # type: ignore[assignment]  # as in the base
        """Return the value of a key. If the key does not exist, first set it to the default."""
        while True:
            entry = self._call(self._table.get, self._to_key(key))
            if entry is not None:
                return entry.value
            try:
                self._call(self._table.insert, self._to_key(key), default)
            except TableKeyBadVersionError:
                # Another writer has just inserted it. Each turn means that somebody has made progress.
                continue
            return default

    def pop(self, key: K, /, default: Any = _MISSING) -> Any:
        """Remove a key and return its value.

        :raises KeyError: the key does not exist and no default was given.
        """
        while True:
            entry = self._call(self._table.get, self._to_key(key))
            if entry is None:
                if default is _MISSING:
                    raise KeyError(key)
                return default
            try:
                self._call(self._table.remove, self._to_key(key), entry.version)
            except TableKeyBadVersionError:
                continue
            return entry.value

    def popitem(self) -> tuple[K, V]:
        """Remove the first key and return it with its value.

        :raises KeyError: there are no keys.
        """
        while True:
            page = self._call(self._table.entries(primary=self._primary, page_size=1).next_page)
            if not page:
                raise KeyError(f"key-value table {self._table.name} has no keys")
            try:
                self._call(self._table.remove, page[0].key, page[0].version)
            except TableKeyBadVersionError:
                continue
            return self._of_key(page[0].key), page[0].value

    def update(self, other: Any = (), /, **items: Any) -> None:
        """Set the values of many keys, with many keys in each request. This is not atomic."""
        check_several("items", other)
        new = {**dict(other), **items}
        self._call(self._table.put_many, [(self._to_key(key), value) for key, value in new.items()])

    def clear(self) -> None:
        """Remove all keys, with many keys in each request. This is not atomic."""
        for page in self._pages(self._keys(MAX_BATCH_KEYS)):
            self._call(self._table.remove_many, page)

    def items(self) -> ItemsView[K, V]:
        """The keys with their values, in the order of the keys."""
        return _Items(self)

    def values(self) -> ValuesView[V]:
        """The values, in the order of their keys."""
        return _Values(self)
