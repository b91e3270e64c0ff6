"""What processes share: tables, states, revisioned streams with marks, and streams of bytes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import partial
from itertools import count
from typing import ClassVar, cast

import trio

from pravega_wire.controller.types import KeyValueTableConfiguration
from pravega_wire.errors import (
    PravegaError,
    TableKeyBadVersionError,
    TableKeyDoesNotExistError,
    TableOutcomeUnknownError,
)
from pravega_wire.stream.client import PravegaClient
from pravega_wire.stream.key_value_table import Insert, KeyValueTable, Put, Remove, TableEntry
from pravega_wire.values.positions import KeyValueVersion
from tests.simulation.events import limited_to
from tests.simulation.linearizable import Calls, TooHard, is_linearizable
from tests.simulation.machine import Failure
from tests.simulation.world import Process, Workload, World

TABLE = "table"
_MOST_CALLS = 60
_MOST_UNSURE = 6


class Sharing(Workload):
    """Processes whose tasks make a call now and then."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.numbers = count(1)

    async def work(self) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(self.random.randint(1, 3)):
                nursery.start_soon(self.keep_alive)

    async def keep_alive(self) -> None:
        """Run a process, and another one when it was killed."""
        while not self.world.quiet:
            process = self.world.process(f"{self.name}.{next(self.numbers)}")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(process.run, self.live)

    async def live(self, process: Process) -> None:
        """Be one process."""
        raise NotImplementedError

    async def now_and_then(self, process: Process, one_call: Callable[[], Awaitable[None]]) -> None:
        """Make calls, which may be cancelled and fail, until the world is quiet."""
        world, rng = self.world, process.random
        pause = world.seconds / rng.choice((5, 15, 40))
        hurried = rng.choice((0.0, 0.3, 0.8))
        while not world.quiet:
            if rng.random() >= hurried or rng.random() < 0.05:
                await trio.sleep(2 * pause * rng.random())
            with world.bearing():
                await process.attempt(one_call)


# --- tables -----------------------------------------------------------------------------------------

_Demand = int | None | str
"""The value that an entry must have; None if it must not exist; :data:`_ANY`."""

_ANY = "any"

_Change = tuple[int, _Demand, int | None]
"""Which entry, what it must have, and its new value, or None."""


class Family:
    """A primary key, whose few entries are the state of one register.

    :ivar calls: what was done to it.
    :ivar values: for each version, the value that had it.
    """

    def __init__(self, number: int, size: int) -> None:
        self.number = number
        self.size = size
        self.calls = Calls()
        self.values: dict[KeyValueVersion, int] = {}
        self._versions: dict[int, KeyValueVersion] = {}

    @property
    def primary(self) -> bytes:
        return self.number.to_bytes(4, "big")

    @property
    def full(self) -> bool:
        return len(self.calls.calls) > _MOST_CALLS or self.calls.unsure > _MOST_UNSURE

    def key(self, index: int) -> tuple[bytes, bytes]:
        return self.primary, index.to_bytes(2, "big")

    def note(self, value: int, version: KeyValueVersion) -> None:
        """A value was seen with a version. It was written once, so it can only have one."""
        if (known := self._versions.setdefault(value, version)) != version:
            raise Failure(f"value {value} of family {self.number} has version {version} and {known}: made twice")
        if (held := self.values.setdefault(version, value)) != value:
            raise Failure(f"values {held} and {value} of family {self.number} have version {version}")

    def saw(self, began: int, index: int, entry: TableEntry[bytes, bytes, bytes] | None) -> None:
        """A read that began at some moment has returned an entry."""
        value = None
        if entry is not None:
            value = int(entry.value.partition(b"|")[0])
            self.note(value, entry.version)
        self.calls.look(began, lambda state: _entries(state)[index] == value, f"{index} has {value}")

    def check(self) -> None:
        try:
            if is_linearizable(self.calls.calls, (None,) * self.size):
                return
        except TooHard:
            return
        raise Failure(f"not linearizable: family {self.number}: {self.calls.calls}")


def _entries(state: Hashable) -> tuple[int | None, ...]:
    return cast("tuple[int | None, ...]", state)


def _holds(changes: Sequence[_Change], state: Hashable) -> bool:
    entries = _entries(state)
    return all(demand in (_ANY, entries[index]) for index, demand, _ in changes)


def _changed(changes: Sequence[_Change], state: Hashable) -> Hashable | None:
    if not _holds(changes, state):
        return None
    entries = list(_entries(state))
    for index, _, value in changes:
        entries[index] = value
    return tuple(entries)


class Tables(Sharing):
    """Processes that change and read the same entries of a table on conditions, in every way there is."""

    name: ClassVar[str] = "tables"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.values = count(1)
        self.family_numbers = count(1)
        self.all: list[Family] = []
        self.shared = [self.family() for _ in range(self.random.randint(1, 2))]
        # Entries that fill a segment until it is compacted.
        self.sizes = self.random.choice(((0,), (0, 10, 1000), (0, 60_000, 250_000)))

    def family(self) -> Family:
        made = Family(next(self.family_numbers), self.random.randint(1, 3))
        self.all.append(made)
        return made

    async def prepare(self, client: PravegaClient) -> None:
        partitions = self.random.randint(1, 3)
        await client.create_key_value_table(TABLE, KeyValueTableConfiguration(partitions, 4, 2))

    async def live(self, process: Process) -> None:
        rng = process.random
        async with process.client() as client:
            table = None
            while table is None:
                if self.world.quiet:
                    return
                with self.world.bearing():
                    table = await client.key_value_table(TABLE)
                    alone = await client.key_value_table(TABLE, sole_writer=True)
            async with trio.open_nursery() as nursery:
                for _ in range(rng.randint(1, 2)):
                    nursery.start_soon(self.now_and_then, process, partial(self.one_call, process, table, None))
                if rng.random() < 0.3:
                    own = [self.family()]
                    nursery.start_soon(self.now_and_then, process, partial(self.one_call, process, alone, own))

    async def one_call(
        self, process: Process, table: KeyValueTable[bytes, bytes, bytes], own: list[Family] | None
    ) -> None:
        """Make one call.

        :param own: the family that only this process changes; None: it uses those that are shared.
        """
        rng = process.random
        families = self.shared if own is None else own
        place = rng.randrange(len(families))
        if families[place].full:
            families[place] = self.family()
        family = families[place]
        index = rng.randrange(family.size)
        kind = rng.randrange(10)
        limit = process.operation_timeout
        if kind < 2:
            async with limited_to(process, "reading an entry"):
                began = family.calls.now()
                family.saw(began, index, await table.get(family.key(index)))
        elif kind == 2:
            async with limited_to(process, "reading entries", 3 * limit):
                await self.iterate(process, table, family)
        elif kind == 3:
            async with limited_to(process, "replacing", 4 * limit):
                await self.replace(process, table, family, index)
        else:
            async with limited_to(process, "an update"):
                await self.change(process, table, family, own is not None)

    async def iterate(
        self, process: Process, table: KeyValueTable[bytes, bytes, bytes], family: Family
    ) -> None:
        rng = process.random
        began = family.calls.now()
        found: dict[bytes, TableEntry[bytes, bytes, bytes]] = {}
        if rng.random() < 0.3:
            keys = [family.key(index) for index in range(family.size)]
            for each in await table.get_many(keys):
                if each is not None:
                    found[each.key.secondary] = each
        else:
            async for entry in table.entries(primary=family.primary, page_size=rng.randint(1, 3)):
                if found and entry.key.secondary <= max(found):
                    raise Failure(f"{entry.key} was returned after {max(found)!r}")
                found[entry.key.secondary] = entry
        for index in range(family.size):
            family.saw(began, index, found.get(family.key(index)[1]))

    async def replace(
        self, process: Process, table: KeyValueTable[bytes, bytes, bytes], family: Family, index: int
    ) -> None:
        value, data = self.value(process)
        call = family.calls.begin(
            lambda state: None if _entries(state)[index] is None else _changed([(index, _ANY, value)], state),
            f"{index} is replaced by {value}",
        )
        try:
            version = await table.replace(family.key(index), data)
        except TableOutcomeUnknownError:
            raise
        except PravegaError as error:
            family.calls.drop(call)
            if not isinstance(error, TableKeyDoesNotExistError):
                raise
            family.saw(call.began, index, None)
        else:
            family.calls.end(call)
            family.note(value, version)

    def value(self, process: Process) -> tuple[int, bytes]:
        number = next(self.values)
        return number, b"%d|" % number + b"x" * process.random.choice(self.sizes)

    async def change(
        self, process: Process, table: KeyValueTable[bytes, bytes, bytes], family: Family, alone: bool
    ) -> None:
        """Insert, put or remove one or some of the family's entries, together."""
        rng = process.random
        removes = rng.random() < 0.25
        indexes = [rng.randrange(family.size)]
        if rng.random() < 0.4:
            indexes = rng.sample(range(family.size), rng.randint(1, family.size))
        versions = list(family.values)
        changes: list[_Change] = []
        modifications: list[Insert[tuple[bytes, bytes], bytes] | Put[tuple[bytes, bytes], bytes]] = []
        removals: list[Remove[tuple[bytes, bytes]]] = []
        for index in indexes:
            key = family.key(index)
            version = None
            if versions and rng.random() < 0.6:
                # Mostly one of the newest.
                version = versions[-1 - min(int(rng.expovariate(0.7)), len(versions) - 1)]
            demand: _Demand = _ANY if version is None else family.values[version]
            if removes:
                changes.append((index, demand, None))
                removals.append(Remove(key, version))
                continue
            value, data = self.value(process)
            if rng.random() < 0.3:
                changes.append((index, None, value))
                modifications.append(Insert(key, data))
            else:
                changes.append((index, demand, value))
                modifications.append(Put(key, data, version))
        call = family.calls.begin(partial(_changed, changes), f"{changes}")
        made: Sequence[KeyValueVersion | None]
        try:
            if len(changes) > 1:
                made = await table.update_many(removals or modifications)
            elif removals:
                await table.remove(removals[0].key, removals[0].version)
                made = [None]
            else:
                match modifications[0]:
                    case Insert(key, data):
                        made = [await table.insert(key, data)]
                    case Put(key, data, version):
                        made = [await table.put(key, data, version)]
        except TableOutcomeUnknownError as error:
            for index, found in zip(indexes, error.found, strict=False):
                family.saw(call.began, index, cast("TableEntry[bytes, bytes, bytes] | None", found))
            if alone and error.found:
                raise Failure(f"the only writer of a key does not know: {error}") from error
            raise
        except TableKeyBadVersionError:
            family.calls.drop(call)
            family.calls.look(call.began, lambda state: not _holds(changes, state), f"refused: {changes}")
        except PravegaError:
            # Any other error says that nothing was changed.
            family.calls.drop(call)
            raise
        else:
            family.calls.end(call)
            for (_, _, value_or_none), each in zip(changes, made, strict=True):
                if value_or_none is not None and each is not None:
                    family.note(value_or_none, each)

    async def check(self, client: PravegaClient) -> None:
        table = await client.key_value_table(TABLE)
        for family in self.all:
            for index in range(family.size):
                began = family.calls.now()
                family.saw(began, index, await table.get(family.key(index)))
        for family in self.all:
            family.check()
