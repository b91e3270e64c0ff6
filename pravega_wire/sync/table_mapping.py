"""A key-value table as a ``MutableMapping``."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, MutableMapping, ValuesView
from typing import Any, TypeVar, cast, overload

from pravega_wire.checks import check_several
from pravega_wire.stream.key_value_table import TableMapping as AsyncTableMapping
from pravega_wire.sync.portal import Line, Portal, shown_as

__all__ = ["TableMapping"]

V = TypeVar("V")
K = TypeVar("K")
T = TypeVar("T")


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

    Made by :meth:`KeyValueTable.mapping` and :meth:`TableFamily.mapping`. Each operation makes requests to
    the server; ``len`` lists every key. Other processes may change the table between two operations, but not
    within one: ``setdefault``, ``pop`` and ``popitem`` never overwrite the change of another writer.

    Example::

        limits = client.key_value_table("demo/limits").mapping()
        limits[b"sensor-8"] = b"15..25"
        print(limits[b"sensor-8"], len(limits))
    """

    def __init__(self, portal: Portal | Line, mapping: AsyncTableMapping[K, V]) -> None:
        self._portal = Line(portal)
        self._twin = mapping

    def __repr__(self) -> str:
        return shown_as(self, self._twin)

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
        """Return the value of a key, or the default if the key does not exist."""
        return self._portal.call(self._twin.get, key, default)

    def setdefault(self, key: K, default: V = None, /) -> V:  # type: ignore[assignment]  # as in the base
        """Return the value of a key. If the key does not exist, first set it to the default."""
        return self._portal.call(self._twin.setdefault, key, default)

    def pop(self, key: K, /, *default: Any) -> Any:
        """Remove a key and return its value.

        :raises KeyError: the key does not exist and no default was given.
        """
        return self._portal.call(self._twin.pop, key, *default)

    def popitem(self) -> tuple[K, V]:
        """Remove the first key and return it with its value.

        :raises KeyError: there are no keys.
        """
        return self._portal.call(self._twin.popitem)

    def update(self, other: Any = (), /, **items: Any) -> None:
        """Set the values of many keys, with many keys in each request. This is not atomic."""
        check_several("items", other)
        self._portal.call(self._twin.update, {**dict(other), **items})

    def clear(self) -> None:
        """Remove all keys, with many keys in each request. This is not atomic."""
        self._portal.call(self._twin.clear)

    def items(self) -> ItemsView[K, V]:
        """The keys with their values, in the order of the keys."""
        return _Items(self)

    def values(self) -> ValuesView[V]:
        """The values, in the order of their keys."""
        return _Values(self)
