"""Key-value tables whose segment store dies while several clients count, insert and list."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import count, pairwise
from uuid import uuid4

import trio

from pravega_wire import (
    Insert,
    KeyValueTable,
    KeyValueTableConfiguration,
    KeyValueVersion,
    PravegaClient,
    PravegaConfig,
    Put,
    TableFamily,
    TableKey,
    open_client,
)
from pravega_wire.errors import TableKeyBadVersionError, TableOutcomeUnknownError
from pravega_wire.serializers import JsonSerializer
from pravega_wire.testing import FaultProxy, PravegaCluster
from pravega_wire.testing.processes import ServerProcess
from tests.inside import core_of

SECONDS = 400
"""A guard only: a store's containers move to the others in about 35 s, and a busy machine takes longer."""

WORKERS = 3
PROXIED = (0, 1)
"""Workers whose answers can be held back."""

ROUNDS = 15
"""Of each worker, before the store is killed, until it is started again, and after that."""

MARKED = b"sum."
TOTAL = b"total."

Table = KeyValueTable[bytes, bytes, int]


@dataclass
class Outcome:
    """What the workers were told.

    :ivar added: unique keys whose insertion was acknowledged. :ivar perhaps: those of unknown outcome.
    :ivar counted: acknowledged values of each counter, with the versions they got.
    :ivar uncertain: increments of each counter of unknown outcome.
    :ivar inserting: the key that each worker has inserted last, or tries to.
    :ivar last: the last value that each worker put without conditions.
    """

    added: dict[tuple[bytes, bytes], tuple[int, KeyValueVersion]] = field(default_factory=dict)
    perhaps: dict[tuple[bytes, bytes], int] = field(default_factory=dict)
    counted: dict[bytes, dict[int, KeyValueVersion]] = field(default_factory=lambda: defaultdict(dict))
    uncertain: Counter[bytes] = field(default_factory=Counter)
    last: dict[bytes, tuple[int, KeyValueVersion]] = field(default_factory=dict)
    marks: set[bytes] = field(default_factory=set)
    unknown_marks: set[bytes] = field(default_factory=set)
    rounds: Counter[int] = field(default_factory=Counter)
    inserting: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)


COUNTERS = [b"cnt%d" % number for number in range(4)]


async def insert(table: Table, outcome: Outcome, who: int, number: int) -> None:
    """A key that nobody else inserts: a condition that fails would be one that was applied before."""
    key = (b"u%03d" % (number % 40), b"%d%05d" % (who, number // 40))
    outcome.inserting[who] = key
    try:
        outcome.added[key] = number, await table.insert(key, number)
    except TableOutcomeUnknownError:
        outcome.perhaps[key] = number


async def increment(table: Table, outcome: Outcome, counter: bytes) -> None:
    """Count by compare and set, until one attempt is made or nobody knows."""
    while True:
        entry = await table.get((counter, TOTAL))
        assert entry is not None
        try:
            version = await table.put((counter, TOTAL), entry.value + 1, entry.version)
        except TableKeyBadVersionError:
            continue
        except TableOutcomeUnknownError:
            outcome.uncertain[counter] += 1
            return
        assert entry.value + 1 not in outcome.counted[counter], "two were told to have set the same value"
        outcome.counted[counter][entry.value + 1] = version
        return


async def mark(family: TableFamily[bytes, bytes, int], outcome: Outcome, who: int, number: int) -> None:
    """Count with a key of its own beside the sum, which tells afterwards whether it was made."""
    name = b"%d%05d" % (who, number)
    while True:
        entry = await family.get(TOTAL)
        assert entry is not None
        try:
            await family.update_many([Put(TOTAL, entry.value + 1, entry.version), Insert(name, number)])
        except TableKeyBadVersionError:
            continue
        except TableOutcomeUnknownError:
            outcome.unknown_marks.add(name)
            return
        outcome.marks.add(name)
        return


async def work(client: PravegaClient, outcome: Outcome, who: int, stop: trio.Event) -> None:
    table = await client.key_value_table("table", JsonSerializer())
    own = b"own%d" % who
    number = 0

    async def put() -> None:
        # Without conditions there is nothing that could remain unknown.
        outcome.last[own] = number, await table.put((own, TOTAL), number)

    async def insert_all() -> None:
        for serial in count():
            if stop.is_set():
                return
            await insert(table, outcome, who, serial)

    async with trio.open_nursery() as inserting:
        # On its own, so that there is always an insertion under way.
        inserting.start_soon(insert_all)
        while not stop.is_set():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(increment, table, outcome, COUNTERS[number % len(COUNTERS)])
                nursery.start_soon(mark, table.family(MARKED), outcome, who, number)
                nursery.start_soon(put)
            number += 1
            outcome.rounds[who] = number


async def listing(
    table: Table, *, page_size: int
) -> list[tuple[TableKey[bytes, bytes], int, KeyValueVersion]]:
    """All entries; they come in order and once each."""
    found = [(each.key, each.value, each.version) async for each in table.entries(page_size=page_size)]
    assert all(first[0] < second[0] for first, second in pairwise(found))
    return found


async def watch(client: PravegaClient, outcome: Outcome, stop: trio.Event) -> None:
    """What was acknowledged before a listing began is in it."""
    table = await client.key_value_table("table", JsonSerializer())
    while not stop.is_set():
        before = set(outcome.added)
        assert before <= {key for key, _, _ in await listing(table, page_size=50)}


async def store_of(cluster: PravegaCluster, client: PravegaClient, table: Table, key: bytes) -> ServerProcess:
    """The store that serves a primary key now."""
    target = table._segment_of(key).table.target
    address = await core_of(client).stores.endpoint(target)
    [store] = [store for store in cluster.stores if store.address == address]
    return store


def test_tables_survive_a_killed_store(pravega_cluster: PravegaCluster, fault_proxy: FaultProxy) -> None:
    """Acknowledged is stored, counted is counted once, and the rest was called unknown.

    The store dies when it has made updates whose answers are still on their way.
    """
    config = PravegaConfig.from_defaults(
        controller_uri=pravega_cluster.controller_uri, scope=f"kill-{uuid4().hex[:8]}", env={},
        # An update that no store takes for so long fails, and on a busy machine two minutes are not enough.
        operation_timeout=SECONDS,
    )  # fmt: skip
    outcome = Outcome()
    killed: list[ServerProcess] = []

    async def rounds(more: int) -> None:
        """Until every worker has done so many more."""
        goals = {who: outcome.rounds[who] + more for who in range(WORKERS)}
        while any(outcome.rounds[who] < goal for who, goal in goals.items()):
            await trio.sleep(0.05)

    async def stored_and_not_answered(table: Table) -> None:
        """Until the workers behind the proxy have inserted keys and nobody has told them."""
        for who in PROXIED:
            while outcome.inserting[who] in outcome.added or not await table.exists(outcome.inserting[who]):
                await trio.sleep(0.01)

    async def main() -> None:
        with trio.fail_after(SECONDS):
            async with (
                open_client(config) as client,
                open_client(config, address_map=fault_proxy.address_map) as proxied,
            ):
                await client.create_scope(str(config.scope))
                await client.create_key_value_table("table", KeyValueTableConfiguration(6, 4, 6))
                table: Table = await client.key_value_table("table", JsonSerializer())
                for counter in (*COUNTERS, MARKED):
                    await table.insert((counter, TOTAL), 0)
                stop = trio.Event()
                async with trio.open_nursery() as nursery:
                    for who in range(WORKERS):
                        worker = proxied if who in PROXIED else client
                        nursery.start_soon(work, worker, outcome, who, stop)
                    nursery.start_soon(watch, client, outcome, stop)
                    await rounds(ROUNDS)
                    victim = await store_of(pravega_cluster, client, table, MARKED)
                    killed.append(victim)
                    fault_proxy.delay(SECONDS)
                    await stored_and_not_answered(table)
                    await trio.to_thread.run_sync(victim.kill)
                    # In this order, so that no answer that was held back arrives.
                    fault_proxy.cut_all()
                    fault_proxy.clear()
                    # A round touches every counter's partition, so the containers have moved by then.
                    await rounds(ROUNDS)
                    assert not victim.alive
                    victim.start()
                    await rounds(ROUNDS)
                    stop.set()
            # Neither of the clients that went through it: what is stored.
            async with open_client(config) as fresh:
                await check(await fresh.key_value_table("table", JsonSerializer()), outcome)

    try:
        trio.run(main)
    finally:
        for victim in killed:
            victim.start()


async def check(table: Table, outcome: Outcome) -> None:
    """The table holds what the workers were told."""
    found = await listing(table, page_size=50)
    assert found == await listing(table, page_size=7)
    values = {key: value for key, value, _ in found}
    versions = {key: version for key, _, version in found}
    assert len(outcome.marks) >= WORKERS * ROUNDS

    unique = {key: value for key, value in values.items() if key.primary.startswith(b"u")}
    for key, (number, version) in outcome.added.items():
        assert (unique.pop(TableKey(*key)), versions[TableKey(*key)]) == (number, version)
    assert unique.items() <= {TableKey(*key): n for key, n in outcome.perhaps.items()}.items()

    for counter in COUNTERS:
        total, told = values[TableKey(counter, TOTAL)], outcome.counted[counter]
        assert len(told) <= total <= len(told) + outcome.uncertain[counter]
        assert max(told) <= total
        inside = [told[value].version for value in sorted(told)]
        assert inside == sorted(set(inside)), "a later value has an earlier version"

    marks = {key.secondary for key in values if key.primary == MARKED} - {TOTAL}
    assert outcome.marks <= marks <= outcome.marks | outcome.unknown_marks
    assert values[TableKey(MARKED, TOTAL)] == len(marks)

    for own, (number, version) in outcome.last.items():
        assert (values[TableKey(own, TOTAL)], versions[TableKey(own, TOTAL)]) == (number, version)
    everything = len(unique) + len(outcome.added) + len(COUNTERS) + 1 + len(marks) + len(outcome.last)
    assert len(found) == everything
    # The kill was what it was meant to be.
    assert len(outcome.perhaps) >= len(PROXIED)
