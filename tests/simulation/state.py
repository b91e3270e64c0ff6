"""What processes share: tables, states, revisioned streams with marks, and streams of bytes."""

from __future__ import annotations

import math
import struct
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from itertools import count
from random import Random
from typing import ClassVar, TypedDict, cast

import trio

from pravega_wire.controller.types import KeyValueTableConfiguration
from pravega_wire.errors import (
    DataLossError,
    PravegaError,
    TableKeyBadVersionError,
    TableKeyDoesNotExistError,
    TableOutcomeUnknownError,
)
from pravega_wire.serializers import JsonSerializer
from pravega_wire.stream.byte_stream import ByteStreamReader, ByteStreamWriter
from pravega_wire.stream.client import PravegaClient
from pravega_wire.stream.key_value_table import (
    Insert,
    KeyValueTable,
    Put,
    Remove,
    TableEntry,
    TableIterator,
    TableKey,
)
from pravega_wire.stream.revisioned import RevisionedStream
from pravega_wire.stream.synchronizer import StateFormat, StateSynchronizer
from pravega_wire.values.positions import KeyValueVersion
from pravega_wire.values.types import Revision
from tests.simulation.events import limited_to
from tests.simulation.linearizable import Calls, TooHard, is_linearizable
from tests.simulation.machine import Failure
from tests.simulation.world import Process, Workload, World
from tests.simulation.writers import leaves_unflushed

TABLE = "table"
_MOST_CALLS = 60
_MOST_UNSURE = 6
_WATCHED = 4
"""How many families an iteration over several of them looks at."""


class Sharing(Workload):
    """Processes whose tasks make a call now and then."""

    async def work(self) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(self.random.randint(1, 3)):
                nursery.start_soon(self.keep_alive, self.name, self.live)

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
            if world.quiet:
                # A connection may have been lost before, unnoticed; then this call's answer is.
                return
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
            raise Failure(
                f"value {value} of family {self.number} has version {version} and {known}: made twice"
            )
        if (held := self.values.setdefault(version, value)) != value:
            raise Failure(f"values {held} and {value} of family {self.number} have version {version}")

    def saw(self, began: int, index: int, entry: TableEntry[bytes, bytes, bytes] | None) -> None:
        """A read that began at some moment has returned an entry."""
        value = None
        if entry is not None:
            number, size, rest = entry.value.split(b"|")
            if rest != b"x" * int(size):
                raise Failure(f"value {int(number)} of {int(size)} bytes was read with {len(rest)}")
            value = int(number)
            self.note(value, entry.version)
        self.calls.look(began, lambda state: _entries(state)[index] == value, f"{index} has {value}")

    def saw_key(self, began: int, index: int, *, there: bool) -> None:
        """A listing that began at some moment has returned a key, or not."""
        self.calls.look(
            began, lambda state: (_entries(state)[index] is not None) == there, f"{index} is there: {there}"
        )

    def check(self) -> None:
        _check(self.calls, (None,) * self.size, f"family {self.number}")


def _entries(state: Hashable) -> tuple[int | None, ...]:
    return cast("tuple[int | None, ...]", state)


def _holds(changes: Sequence[_Change], state: Hashable) -> bool:
    entries = _entries(state)
    return all(demand in (_ANY, entries[index]) for index, demand, _ in changes)


def _changed(changes: Sequence[_Change], state: Hashable, *, missing_too: bool = False) -> Hashable | None:
    entries = list(_entries(state))
    if missing_too:
        changes = [(index, demand if entries[index] else _ANY, value) for index, demand, value in changes]
    if not _holds(changes, state):
        return None
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
        # Its own source of chance, so that what it decides changes nothing else.
        self.iterations = Random(f"{world.settings.seed} {world.settings.workload} iterations")
        self.over_all = self.iterations.choice((0.2, 0.9))
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
            alone = None
            while alone is None:
                if self.world.quiet:
                    return
                with self.world.bearing():
                    table = await client.key_value_table(TABLE)
                    alone = await client.key_value_table(TABLE, sole_writer=True)
            async with trio.open_nursery() as nursery:
                for _ in range(rng.randint(1, 2)):
                    nursery.start_soon(
                        self.now_and_then, process, partial(self.one_call, process, table, None)
                    )
                if rng.random() < 0.3:
                    own = [self.family()]
                    nursery.start_soon(
                        self.now_and_then, process, partial(self.one_call, process, alone, own)
                    )

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
        elif kind == 2 and self.iterations.random() < self.over_all:
            await self.iterate_all(process, table)
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

    async def iterate_all(self, process: Process, table: KeyValueTable[bytes, bytes, bytes]) -> None:
        """Iterate over several families, with iterators that go on after others, and after cancels."""
        rng = self.iterations
        families = self.all[-_WATCHED:]
        began = [family.calls.now() for family in families]
        between = families[0].primary, rng.choice((families[-1].primary, None))
        found: dict[tuple[bytes, bytes], TableEntry[bytes, bytes, bytes] | None] = {}
        size, after, last = rng.choice((1, 1, 2, 4)), None, (b"", b"")
        only_keys, patience = rng.random() < 0.5, rng.choice((1.0, 4.0, 20.0, math.inf))
        iterator: TableIterator[TableKey[bytes, bytes]] | TableIterator[TableEntry[bytes, bytes, bytes]]
        more = True
        while more:
            if only_keys:
                iterator = table.keys(between=between, after=after, page_size=size)
            else:
                iterator = table.entries(between=between, after=after, page_size=size)
            for _ in range(rng.randint(1, 8)):
                async with limited_to(process, "reading a page", 4 * process.operation_timeout):
                    # What is cancelled goes on; now and then there has to be time for it.
                    wait = self.world.network.latency * rng.choice((patience, patience, math.inf))
                    page: Sequence[TableKey[bytes, bytes] | TableEntry[bytes, bytes, bytes]] = ()
                    with trio.move_on_after(wait) as scope:
                        page = await iterator.next_page()
                        more = bool(page)
                    if scope.cancelled_caught:
                        continue
                for each in page:
                    entry = each if isinstance(each, TableEntry) else None
                    key = each.key if isinstance(each, TableEntry) else each
                    place = key.primary, key.secondary
                    if place <= last:
                        raise Failure(f"{place} was returned after {last}")
                    last = place
                    found[place] = entry
                if not more:
                    break
            after = iterator.position
        for family, moment in zip(families, began, strict=True):
            for index in range(family.size):
                place = family.key(index)
                if only_keys:
                    family.saw_key(moment, index, there=place in found)
                else:
                    family.saw(moment, index, found.get(place))

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
        size = process.random.choice(self.sizes)
        return number, b"%d|%d|" % (number, size) + b"x" * size

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
        # The only writer of a key counts its removal as made if the key is missing after a lost answer.
        lenient = alone and removes
        call = family.calls.begin(partial(_changed, changes, missing_too=lenient), f"{changes}")
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


# --- states -----------------------------------------------------------------------------------------

STATE = "state"


class SharedState(TypedDict):
    """A list and a map.

    :ivar by: who has initialized it.
    :ivar updates: the number of each update, and the length of the list for which it was generated, if any.
    :ivar keys: for each key, the update that came last.
    """

    by: str
    updates: list[tuple[int, int | None]]
    keys: dict[str, int]


_Update = tuple[int, int | None, str]
"""An update: its number, how many are in the state that it was generated for if there is one, and its key."""


class Synchronizers(Sharing):
    """Processes that share a state, and compact it."""

    name: ClassVar[str] = "synchronizers"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.updates = count(1)
        # The updates in the order in which the first process has had them.
        self.order: list[int] = []
        self.places: dict[int, int] = {}
        self.seen = 0
        self.by: str | None = None
        # Updates that were acknowledged; and of states that were fetched: how many of these there were
        # before, and the number of updates.
        self.acknowledged: list[int] = []
        self.fetched: list[tuple[int, int]] = []
        self.format: StateFormat[SharedState, _Update] = StateFormat(
            JsonSerializer(), JsonSerializer(), self.step
        )

    async def prepare(self, client: PravegaClient) -> None:
        await client.create_stream(STATE)

    @staticmethod
    def step(state: SharedState, update: _Update) -> SharedState:
        number, base, key = update
        updates = [*state["updates"], (number, base)]
        return {**state, "updates": updates, "keys": {**state["keys"], key: number}}

    @staticmethod
    def limited(process: Process, what: str) -> AbstractAsyncContextManager[None]:
        # The limit applies to each batch of records that a call reads.
        return limited_to(process, what, 3 * process.operation_timeout)

    def saw(self, state: SharedState) -> None:
        """A process has this state."""
        if self.by not in (None, state["by"]):
            raise Failure(f"{state['by']} has initialized the state, which {self.by} had")
        self.by = state["by"]
        for place, (number, base) in enumerate(state["updates"]):
            if place < len(self.order):
                if self.order[place] != number:
                    raise Failure(
                        f"update {number} comes after {place} others; {self.order[place]} did before"
                    )
                continue
            if base not in (None, place):
                raise Failure(f"update {number} was made for state {base}, and is applied to {place}")
            if number in self.places:
                raise Failure(f"update {number} is stored twice, at {self.places[number]} and {place}")
            self.places[number] = place
            self.order.append(number)
        self.seen = max(self.seen, len(state["updates"]))

    async def live(self, process: Process) -> None:
        rng = process.random
        async with process.client() as client:
            while not self.world.quiet:
                with self.world.bearing():
                    async with client.state_synchronizer(STATE, self.format) as synchronizer:
                        await self.use(process, synchronizer, self.world.seconds * rng.choice((0.2, 0.5, 2)))

    async def use(self, process: Process, synchronizer: _Synchronizer, seconds: float) -> None:
        rng = process.random
        await process.attempt(partial(self.initialize, process, synchronizer))
        if synchronizer.revision is None:
            return
        with trio.move_on_after(seconds):
            async with trio.open_nursery() as nursery:
                for _ in range(rng.randint(1, 2)):
                    one_call = partial(self.one_call, process, synchronizer)
                    nursery.start_soon(self.now_and_then, process, one_call)

    async def initialize(self, process: Process, synchronizer: _Synchronizer) -> None:
        by = f"{process.name} {next(self.numbers)}"
        async with self.limited(process, "initializing"):
            made = await synchronizer.initialize({"by": by, "updates": [], "keys": {}})
        state = synchronizer.state
        assert state is not None
        if made != (state["by"] == by):
            told = "" if made else "not "
            raise Failure(f"{by} is told {told}to have initialized the state, which {state['by']} has")
        self.saw(state)

    async def one_call(self, process: Process, synchronizer: _Synchronizer) -> None:
        rng = process.random
        kind = rng.randrange(20)
        if kind < 9:
            await self.update(process, synchronizer)
        elif kind < 11:
            updates: list[_Update] = [
                (next(self.updates), None, f"k{number}") for number in range(rng.randint(1, 3))
            ]
            async with self.limited(process, "an update without conditions"):
                await synchronizer.update_unconditionally(updates)
            self.acknowledged += [number for number, _, _ in updates]
        elif kind < 16:
            await self.fetch(process, synchronizer)
        elif kind == 16:
            before = synchronizer.revision
            with trio.move_on_after(self.world.seconds * 0.05):
                state = await synchronizer.wait_for_updates()
                after = synchronizer.revision
                assert state is not None
                if before is None or after is None or after <= before:
                    raise Failure(f"there is said to be something newer than {before}")
                self.saw(state)
        elif kind < 19:
            async with self.limited(process, "compacting"):
                await synchronizer.compact(self.summarized)
        else:
            async with limited_to(process, "asking for the size"):
                if await synchronizer.bytes_since_compaction() <= 0:
                    raise Failure("there is nothing in the stream")

    def summarized(self, state: SharedState) -> SharedState:
        self.saw(state)
        return state

    async def fetch(self, process: Process, synchronizer: _Synchronizer) -> None:
        least, before = self.seen, len(self.acknowledged)
        async with self.limited(process, "fetching"):
            state = await synchronizer.fetch_updates()
        assert state is not None
        self.saw(state)
        found = len(state["updates"])
        if found < least:
            raise Failure(f"a state of {found} updates was fetched after one of {least}")
        self.fetched.append((before, found))

    async def update(self, process: Process, synchronizer: _Synchronizer) -> None:
        rng = process.random
        several, key, refuses = rng.choice((1, 1, 1, 3)), f"k{rng.randrange(4)}", rng.random() < 0.1
        least, made = self.seen, list[_Update]()

        def generate(state: SharedState) -> list[_Update] | None:
            self.saw(state)
            # Of those that were generated for an older state, none is stored.
            base = len(state["updates"])
            made[:] = [(next(self.updates), base + each, key) for each in range(several)]
            return None if refuses else made

        async with self.limited(process, "an update"):
            state = await synchronizer.update(generate)
        self.saw(state)
        if refuses:
            return
        for number, base, _ in made:
            place = self.places.get(number)
            if place is None or place != base or place >= len(state["updates"]):
                raise Failure(f"update {number} was acknowledged, and is not in the state: {place}")
            if place < least:
                raise Failure(f"update {number} is number {place}, although {least} had been seen before")
        self.acknowledged += [number for number, _, _ in made]

    async def check_waiting(self, client: PravegaClient) -> None:
        """Who waits for updates returns at once if there are any that it does not know."""
        async with (
            client.state_synchronizer(STATE, self.format) as one,
            client.state_synchronizer(STATE, self.format) as other,
        ):
            await one.fetch_updates()
            await other.update_unconditionally([(next(self.updates), None, "k0")])
            with trio.move_on_after(_PATIENCE) as scope:
                state = await one.wait_for_updates()
                assert state is not None
                self.saw(state)
            if scope.cancelled_caught:
                raise Failure("a process waits for updates, although there are some")

    async def check(self, client: PravegaClient) -> None:
        async with client.state_synchronizer(STATE, self.format) as synchronizer:
            state = await synchronizer.fetch_updates()
        if state is None:
            if self.by is not None:
                raise Failure("the state is lost")
            return
        self.saw(state)
        if len(state["updates"]) != len(self.order):
            raise Failure(f"{len(self.order)} updates were applied, and {len(state['updates'])} are there")
        await self.check_waiting(client)
        lost = [number for number in self.acknowledged if number not in self.places]
        if lost:
            raise Failure(f"acknowledged and lost: {lost}")
        # The number of updates that a state had to have if it was fetched after so many acknowledgements.
        least = [0]
        for number in self.acknowledged:
            least.append(max(least[-1], self.places[number] + 1))
        for before, found in self.fetched:
            if found < least[before]:
                raise Failure(
                    f"a state of {found} updates was fetched after one of {least[before]} was acknowledged"
                )


_Synchronizer = StateSynchronizer[SharedState, SharedState, _Update]


# --- revisioned streams -----------------------------------------------------------------------------

LOG = "log"


class Revisions(Sharing):
    """Processes that write to a revisioned stream on conditions, move its mark, and truncate it."""

    name: ClassVar[str] = "revisions"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.values = count(1)
        # All that was found in the stream: for each offset, the offset after the value, and the value.
        self.found: dict[int, tuple[int, bytes]] = {}
        self.acknowledged: dict[bytes, tuple[int, int]] = {}
        # Those that were refused: where they were to be, and the newest value that was to be written by then.
        self.refused: dict[bytes, tuple[int, int]] = {}
        self.newest = 0
        self.end = 0
        self.truncated = self.may_be_truncated = 0
        self.marks = Calls()
        self.marked: set[Revision] = set()
        self.segment = ""

    async def prepare(self, client: PravegaClient) -> None:
        await client.create_stream(LOG)
        async with client.revisioned_stream(LOG) as log:
            self.segment = (await log.oldest_revision()).segment

    def at(self, offset: int) -> Revision:
        return Revision(self.segment, offset, 0)

    async def live(self, process: Process) -> None:
        rng = process.random
        async with process.client() as client:
            while not self.world.quiet:
                with self.world.bearing():
                    async with client.revisioned_stream(LOG) as log:
                        with trio.move_on_after(self.world.seconds * rng.choice((0.2, 0.5, 2))):
                            async with trio.open_nursery() as nursery:
                                for _ in range(rng.randint(1, 2)):
                                    nursery.start_soon(
                                        self.now_and_then, process, partial(self.one_call, process, log)
                                    )

    async def one_call(self, process: Process, log: RevisionedStream[bytes]) -> None:
        kind = process.random.randrange(14)
        if kind < 5:
            await self.write(process, log)
        elif kind < 8:
            await self.read(process, log)
        elif kind < 12:
            await self.mark(process, log)
        elif kind == 12:
            await self.truncate(process, log)
        else:
            await self.wait(process, log)

    async def wait(self, process: Process, log: RevisionedStream[bytes]) -> None:
        """Wait for what comes after a revision: mostly the newest, after which something may come or not."""
        start, limit = self.at(self.end), self.world.seconds * 0.05
        older = [offset for offset in (self.truncated, *self.found) if offset < self.end]
        if older and process.random.random() < 0.3:
            start, limit = self.at(process.random.choice(older)), 3 * process.operation_timeout
        known = start.offset < self.end
        with trio.move_on_after(limit) as scope:
            await log.wait_beyond(start)
            if (await log.latest_revision()) <= start:
                raise Failure(f"there is said to be something after {start}")
        if known and scope.cancelled_caught:
            raise Failure(f"a process waits for something after {start}, and there is")

    async def write(self, process: Process, log: RevisionedStream[bytes]) -> None:
        rng = process.random
        self.newest = next(self.values)
        value = b"%d|%s" % (self.newest, b"x" * rng.choice((0, 10, 3000)))
        if rng.random() < 0.2:
            least = self.end
            async with limited_to(process, "writing without a condition"):
                revision: Revision | None = await log.write_unconditionally(value)
            assert revision is not None
            self.stored(value, revision, revision.offset - len(value) - 8, least)
            return
        least = self.end
        async with limited_to(process, "asking for the newest revision"):
            latest = await log.latest_revision()
        if latest.offset < least:
            raise Failure(f"{latest} is said to be the newest, although there was one at {least}")
        if rng.random() < 0.1 and self.found:
            latest = self.at(rng.choice(list(self.found)))
        async with limited_to(process, "writing on a condition"):
            revision = await log.write_conditionally(latest, value)
        if revision is None:
            self.refused[value] = latest.offset, self.newest
        else:
            self.stored(value, revision, latest.offset, least)

    def stored(self, value: bytes, revision: Revision, offset: int, least: int) -> None:
        if revision.offset != offset + 8 + len(value) or offset < least:
            raise Failure(
                f"{value[:20]!r} is said to be stored up to {revision}, at {offset}; {least} was the end"
            )
        self.acknowledged[value] = offset, revision.offset
        self.end = max(self.end, revision.offset)

    async def read(self, process: Process, log: RevisionedStream[bytes]) -> None:
        rng = process.random
        least = self.end
        start = rng.choice([self.truncated, *self.found, self.end])
        try:
            async with limited_to(process, "reading", 4 * process.operation_timeout):
                if rng.random() < 0.3:
                    truncated = self.truncated  # another process may truncate meanwhile
                    oldest = (await log.oldest_revision()).offset
                    if not truncated <= oldest <= self.may_be_truncated:
                        raise Failure(f"{oldest} is said to be the beginning")
                    start = oldest
                async with log.read_from(self.at(start)) as reader:
                    at = start
                    async for revision, value in reader:
                        self.read_one(at, revision.offset, value)
                        at = revision.offset
        except DataLossError as error:
            if start >= self.may_be_truncated:
                raise Failure(f"what is after {start} is said to be lost: {error}") from error
            return
        if at < least:
            raise Failure(f"{at} is said to be the end, although there was something up to {least}")
        self.end = max(self.end, at)

    def read_one(self, offset: int, end: int, value: bytes) -> None:
        known = self.found.setdefault(offset, (end, value))
        if known != (end, value) or end != offset + 8 + len(value):
            raise Failure(f"{value[:20]!r} is at {offset} up to {end}, and {known[1][:20]!r} was")

    async def mark(self, process: Process, log: RevisionedStream[bytes]) -> None:
        rng, marks = process.random, self.marks
        began = marks.now()
        async with limited_to(process, "asking for the mark"):
            mark = await log.mark()
        marks.look(began, lambda state: state == (mark,), f"the mark is {mark}")
        free = [self.at(end) for _, end in self.acknowledged.values() if self.at(end) not in self.marked]
        if rng.random() < 0.2 or not free:
            return
        new = rng.choice(free)
        expected = rng.choice((None, *sorted(self.marked))) if rng.random() < 0.2 else mark
        self.marked.add(new)
        call = marks.begin(
            lambda state: (new,) if state == (expected,) else None, f"from {expected} to {new}"
        )
        async with limited_to(process, "moving the mark", 2 * process.operation_timeout):
            moved = await log.compare_and_set_mark(expected, new)
        if moved:
            marks.end(call)
        else:
            # It may have been moved, and then moved on by another one.
            marks.look(call.began, lambda state: state not in ((expected,), (new,)), f"not to {new}")

    async def truncate(self, process: Process, log: RevisionedStream[bytes]) -> None:
        # Only what was read, so that all of the stream is known in the end.
        offset = 0
        while offset in self.found and process.random.random() < 0.95:
            offset = self.found[offset][0]
        self.may_be_truncated = max(self.may_be_truncated, offset)
        async with limited_to(process, "truncating", 2 * process.operation_timeout):
            await log.truncate_to(self.at(offset))
        self.truncated = max(self.truncated, offset)

    async def check(self, client: PravegaClient) -> None:
        async with client.revisioned_stream(LOG) as log:
            at = (await log.oldest_revision()).offset
            async with log.read_from(self.at(at)) as reader:
                async for revision, value in reader:
                    self.read_one(at, revision.offset, value)
                    at = revision.offset
            began = self.marks.now()
            mark = await log.mark()
            self.marks.look(began, lambda state: state == (mark,), f"the mark is {mark}")
        stored: list[bytes] = []
        offset = 0
        while offset in self.found:
            offset, value = self.found[offset]
            stored.append(value)
        if offset != at:
            raise Failure(f"there is a gap at {offset}")
        if len(set(stored)) < len(stored):
            raise Failure("a value is stored twice")
        if both := self.refused.keys() & {*stored}:
            raise Failure(f"refused and stored: {sorted(both)}")
        for value, (place, newest) in self.refused.items():
            _, other = self.found.get(place, (0, b""))
            if not other or int(other.partition(b"|")[0]) > newest:
                raise Failure(f"{value[:20]!r} was refused at {place}, where nothing was by then")
        for value, (begin, end) in self.acknowledged.items():
            if self.found.get(begin) != (end, value):
                raise Failure(f"acknowledged and lost: {value[:20]!r} at {begin}")
        _check(self.marks, (None,), "the mark")


# --- bytes ------------------------------------------------------------------------------------------

BYTES = "bytes"
_PATIENCE = 300.0
"""Simulated seconds in which a reader must return what was stored when it began, once all is well."""
_CELL = struct.Struct(">HHI")
"""What the stream is made of: a mark, the number of the writer, and the cell's number among its cells."""
_MARK = 0xCE11


class Life:
    """What one writer object has written.

    :ivar number: its number.
    :ivar given: number of cells that were given to it.
    :ivar acknowledged: number of cells that are known to be stored.
    :ivar doubtful: for calls that were cancelled: the first and the last of their cells, of which any may be
        missing at the end.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.given = 0
        self.acknowledged = 0
        self.doubtful: list[tuple[int, int]] = []

    @property
    def sure(self) -> int:
        """How many cells are stored at least."""
        return self.acknowledged - sum(
            last + 1 - first for first, last in self.doubtful if first < self.acknowledged
        )

    def check(self, stored: list[int]) -> None:
        """Compare with the numbers of the cells that are stored."""
        following = 0
        for number in stored:
            while following < number and (after := self._after_doubtful(following)) is not None:
                following = after
            if following != number:
                raise Failure(f"writer {self.number}: cell {number} comes where {following} must")
            following += 1
        if following > self.given:
            raise Failure(f"writer {self.number}: cell {following - 1} was never written")
        end: int | None = following
        while end is not None and end < self.acknowledged:
            end = self._after_doubtful(end)
        if end is None:
            raise Failure(f"writer {self.number}: {following} of {self.acknowledged} cells are stored")

    def _after_doubtful(self, number: int) -> int | None:
        """The cell after those of a call that was cancelled, if a cell is one of them."""
        return next((last + 1 for first, last in self.doubtful if first <= number <= last), None)


class Bytes(Workload):
    """A process that writes bytes, others that read them at the same time, and one that truncates."""

    name: ClassVar[str] = "bytes"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.lives: list[Life] = []
        # All that was read, from the beginning on.
        self.found = bytearray()
        self.truncated = self.may_be_truncated = 0
        self.leaves = leaves_unflushed(world)
        # Up to where each reader has returned what it read.
        self.read_to: dict[ByteStreamReader, int] = {}

    async def prepare(self, client: PravegaClient) -> None:
        await client.create_stream(BYTES)

    @property
    def least(self) -> int:
        """Where the stream ends at least."""
        return max(len(self.found), _CELL.size * sum(life.sure for life in self.lives))

    async def work(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.keep_alive, "writer", self.write)
            for _ in range(self.random.randint(1, 3)):
                nursery.start_soon(self.keep_alive, "reader", self.read)
            if self.random.random() < 0.6:
                truncater = self.world.process("admin-truncater")
                nursery.start_soon(truncater.run, self.truncate)

    # --- writing

    async def write(self, process: Process) -> None:
        rng = process.random
        async with process.client() as client:
            while not self.world.quiet:
                with self.world.bearing():
                    limit = rng.choice((300, 20_000, 1 << 20))
                    async with client.byte_stream_writer(BYTES, max_outstanding_bytes=limit) as writer:
                        life = Life(len(self.lives))
                        self.lives.append(life)
                        await self.use(process, writer, life)
                    life.acknowledged = life.given

    async def use(self, process: Process, writer: ByteStreamWriter, life: Life) -> None:
        rng, world = process.random, self.world
        pause = world.seconds / rng.choice((10, 40, 100))
        hurried = rng.choice((0.0, 0.3, 0.8))
        for _ in range(rng.randint(5, 100)):
            if world.quiet:
                break
            if rng.random() >= hurried:
                await trio.sleep(2 * pause * rng.random())
            await process.attempt(partial(self.one_write, process, writer, life))
        if self.leaves:
            return
        async with limited_to(process, "flush", 3 * process.operation_timeout):
            await self.flush(writer, life)

    async def one_write(self, process: Process, writer: ByteStreamWriter, life: Life) -> None:
        rng = process.random
        size = rng.choice((1, 1, 3, 50, 2000, 40_000))
        first = life.given
        life.given += size
        life.doubtful.append((first, life.given - 1))
        cells = b"".join(_CELL.pack(_MARK, life.number, first + each) for each in range(size))
        if rng.random() < 0.5:
            await writer.write(cells)
        else:
            await writer.send_all(cells)
        life.doubtful.pop()
        if rng.random() < 0.3:
            async with limited_to(process, "flush", 3 * process.operation_timeout):
                await self.flush(writer, life)
            if rng.random() < 0.3:
                least = self.least
                async with limited_to(process, "asking for the end"):
                    tail = await writer.tail()
                if tail < least:
                    raise Failure(f"{tail} is said to be the end, although {least} bytes are stored")

    @staticmethod
    async def flush(writer: ByteStreamWriter, life: Life) -> None:
        given = life.given
        await writer.flush()
        life.acknowledged = max(life.acknowledged, given)

    # --- reading

    async def read(self, process: Process) -> None:
        rng = process.random
        async with process.client() as client:
            while not self.world.quiet:
                with self.world.bearing():
                    await self.read_once(process, client, rng.random() < 0.7)

    async def read_once(self, process: Process, client: PravegaClient, follow: bool) -> None:
        rng, world = process.random, self.world
        start = rng.choice((self.truncated, self.truncated, len(self.found)))
        least = self.least
        async with client.byte_stream_reader(BYTES, start, follow=follow) as reader:
            left = rng.randint(3, 60)
            self.read_to[reader] = start
            while left or not follow:
                left -= 1
                if world.quiet and follow:
                    if reader.offset >= least:
                        return
                    if trio.current_time() > world.healed_at + _PATIENCE:
                        raise Failure(f"a reader has not come from {reader.offset} to {least}")
                    left = 1
                offset = reader.offset
                receive = partial(self.receive, reader, rng.choice((None, None, 13, 5000)))
                try:
                    with trio.move_on_after(world.seconds * rng.random() * 0.1 if follow else math.inf):
                        ended = await process.attempt(receive) and reader.offset == offset
                        if ended:
                            if follow or offset < least:
                                raise Failure(f"{offset} is said to be the end; there are {least} bytes")
                            break
                except DataLossError as error:
                    if offset >= self.may_be_truncated:
                        raise Failure(f"bytes from {offset} are said to be lost: {error}") from error
                    # It may be truncated again before the answer is here.
                    truncated = self.truncated
                    head = await reader.head()
                    if not truncated <= head <= self.may_be_truncated:
                        raise Failure(f"the stream is said to begin at {head}") from error
                    await reader.seek(head)
                    self.read_to[reader] = head
                if reader.offset != self.read_to[reader]:
                    raise Failure(f"a reader is at {reader.offset}; it has returned all before {offset}")
        await trio.sleep(world.seconds * rng.random() * 0.05)

    async def receive(self, reader: ByteStreamReader, most: int | None) -> None:
        offset = reader.offset
        data = await reader.receive_some(most)
        self.take(offset, data)
        self.read_to[reader] = offset + len(data)

    def take(self, offset: int, data: bytes) -> None:
        """These bytes were read."""
        known = bytes(self.found[offset : offset + len(data)])
        if data[: len(known)] != known:
            raise Failure(f"the bytes from {offset} were others before")
        if offset <= len(self.found):
            self.found += data[len(known) :]

    async def truncate(self, process: Process) -> None:
        rng, world = process.random, self.world
        async with process.client() as client:
            while not world.quiet:
                with trio.move_on_after(world.seconds * rng.choice((0.03, 0.1, 0.3)) * rng.random()):
                    await world.over.wait()
                with world.bearing():
                    # Only what was read, so that all of the stream is known in the end.
                    offset = rng.randint(self.truncated, len(self.found))
                    self.may_be_truncated = max(self.may_be_truncated, offset)
                    async with client.byte_stream_writer(BYTES) as writer:
                        async with limited_to(process, "truncating", 2 * process.operation_timeout):
                            await writer.truncate(offset)
                        self.truncated = max(self.truncated, offset)
                        head = await writer.head()
                        if not self.truncated <= head <= self.may_be_truncated:
                            raise Failure(f"{head} is said to be the beginning, which is {self.truncated}")

    async def check(self, client: PravegaClient) -> None:
        await client.seal_stream(BYTES)
        async with client.byte_stream_reader(BYTES, self.truncated) as reader:
            while data := await reader.receive_some(1 << 20):
                self.take(reader.offset - len(data), data)
            if reader.offset != len(self.found) or await reader.tail() != len(self.found):
                raise Failure(f"{reader.offset} is the end, and {len(self.found)} bytes were read")
        if len(self.found) % _CELL.size:
            raise Failure(f"there are {len(self.found)} bytes")
        stored: dict[int, list[int]] = {life.number: [] for life in self.lives}
        for mark, life, number in _CELL.iter_unpack(self.found):
            if mark != _MARK or life not in stored:
                raise Failure(f"nobody has written {mark:x} {life} {number}")
            stored[life].append(number)
        for each in self.lives:
            each.check(stored[each.number])


def _check(calls: Calls, state: Hashable, what: str) -> None:
    try:
        if is_linearizable(calls.calls, state):
            return
    except TooHard:
        return
    raise Failure(f"not linearizable: {what}: {calls.calls}")
