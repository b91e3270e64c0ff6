"""Updates of key-value tables whose answer is lost: made once, made later, or said to be unknown."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.testing

from pravega_wire import (
    Insert,
    KeyValueTable,
    KeyValueTableConfiguration,
    PravegaClient,
    PravegaConfig,
    Put,
    Remove,
    TableEntry,
    open_client,
)
from pravega_wire.errors import (
    RetriesExhaustedError,
    TableKeyBadVersionError,
    TableOutcomeUnknownError,
    TransportError,
)
from pravega_wire.protocol import commands as c
from pravega_wire.serializers import JsonSerializer
from pravega_wire.testing import FaultProxy

Bytes = KeyValueTable[bytes, bytes, bytes]

PLAIN = KeyValueTableConfiguration(1, 4)
PAIRS = KeyValueTableConfiguration(2, 4, 4)


@asynccontextmanager
async def both(
    config: PravegaConfig, proxy: FaultProxy
) -> AsyncIterator[tuple[PravegaClient, PravegaClient]]:
    """A client whose connections break, and one whose do not."""
    with trio.fail_after(120):
        async with (
            open_client(config, address_map=proxy.address_map) as broken,
            open_client(config) as sound,
        ):
            yield broken, sound


def value_of(entry: object) -> Any:
    assert isinstance(entry, TableEntry)
    return entry.value


async def nothing() -> None:
    """Nothing happens meanwhile."""


async def never_arrives(
    proxy: FaultProxy,
    call: Callable[[], Awaitable[Any]],
    meanwhile: Callable[[], Awaitable[object]] = nothing,
) -> Any:
    """What a call comes to whose first request is lost on its way to the server.

    :param meanwhile: what happens before the loss is noticed.
    """
    outcome: list[Any] = []

    async def run() -> None:
        try:
            outcome.append(await call())
        except (TableOutcomeUnknownError, TableKeyBadVersionError) as error:
            outcome.append(error)

    proxy.pause()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            # The request has been sent, and nothing comes back.
            await trio.testing.wait_all_tasks_blocked(0.05)
            await meanwhile()
            assert proxy.cut_all() >= 1
            proxy.resume()
    finally:
        proxy.resume()
    return outcome[0]


async def test_made_and_the_answer_lost(config: PravegaConfig, fault_proxy: FaultProxy) -> None:
    """Whose it is that is there, only the caller may know; without a condition it is the same."""

    async with both(config, fault_proxy) as (broken, sound):
        await broken.create_key_value_table("made", PLAIN)
        table = await broken.key_value_table("made")
        seen = await sound.key_value_table("made")

        fault_proxy.cut_before_reply(c.TableEntriesUpdated)
        version = await table.put(b"free", b"1")
        assert fault_proxy.cuts_due == 0
        entry = await seen.get(b"free")
        assert entry is not None
        assert (entry.value, entry.version) == (b"1", version)

        calls: list[tuple[bytes, Callable[[], Awaitable[Any]]]] = [
            (b"2", lambda: table.insert(b"insr", b"2")),
            (b"3", lambda: table.put(b"free", b"3", version)),
            (b"4", lambda: table.replace(b"free", b"4")),
        ]
        for value, call in calls:
            fault_proxy.cut_before_reply(c.TableEntriesUpdated)
            with pytest.raises(TableOutcomeUnknownError, match="made") as unknown:
                await call()
            assert fault_proxy.cuts_due == 0
            [found] = unknown.value.found
            assert value_of(found) == value
            assert isinstance(found, TableEntry)
            assert await seen.get(found.key) == found
            assert isinstance(unknown.value.__cause__, TransportError)

        fault_proxy.cut_before_reply(c.TableKeysRemoved)
        await table.remove(b"free")
        assert not await seen.exists(b"free")
        entry = await seen.get(b"insr")
        assert entry is not None
        fault_proxy.cut_before_reply(c.TableKeysRemoved)
        with pytest.raises(TableOutcomeUnknownError) as unknown:
            await table.remove(b"insr", entry.version)
        assert unknown.value.found == (None,)
        assert not await seen.exists(b"insr")
        assert fault_proxy.cuts_due == 0


async def test_the_only_writer_learns_what_happened(config: PravegaConfig, fault_proxy: FaultProxy) -> None:
    async with both(config, fault_proxy) as (broken, sound):
        await broken.create_key_value_table("sole", PAIRS)
        table = await broken.key_value_table("sole", sole_writer=True)
        family = table.family(b"aaaa")
        fault_proxy.cut_before_reply(c.TableEntriesUpdated)
        version = await family.insert(b"0001", b"0")
        for number in range(1, 30):
            fault_proxy.cut_before_reply(c.TableEntriesUpdated)
            newer = await family.put(b"0001", b"%d" % number, version)
            assert newer.version > version.version
            version = newer
        fault_proxy.cut_before_reply(c.TableEntriesUpdated)
        versions = await family.update_many(
            [Put(b"0001", b"x", version), *(Insert(b"1%03d" % n, b"y") for n in range(40))]
        )
        fault_proxy.cut_before_reply(c.TableKeysRemoved)
        await family.update_many([Remove(b"0001", versions[0]), Remove(b"1000", versions[1])])
        assert fault_proxy.cuts_due == 0
        entries = [entry async for entry in (await sound.key_value_table("sole")).entries()]
        assert [(entry.key.secondary, entry.version) for entry in entries] == [
            (b"1%03d" % n, versions[n + 1]) for n in range(1, 40)
        ]
        # With the answers all there a condition that fails still fails.
        with pytest.raises(TableKeyBadVersionError):
            await family.insert(b"1001", b"no")


async def test_a_request_that_never_arrives(config: PravegaConfig, fault_proxy: FaultProxy) -> None:
    """A key that is as it was shows that nothing was made: it is sent again."""

    async with both(config, fault_proxy) as (broken, sound):
        await broken.create_key_value_table("lost", PLAIN)
        seen = await sound.key_value_table("lost")
        version = await seen.insert(b"aaaa", b"0")
        table = await broken.key_value_table("lost")
        # The first request of all; it learns the segment's length as well.
        await table.put(b"warm", b"")
        for number, condition in ((1, True), (2, False)):
            value = b"%d" % number
            expected = version if condition else None
            version = await never_arrives(
                fault_proxy,
                lambda: table.put(b"aaaa", value, expected),  # noqa: B023
            )
            entry = await seen.get(b"aaaa")
            assert entry is not None
            assert (entry.value, entry.version) == (value, version)
        assert await never_arrives(fault_proxy, lambda: table.remove(b"aaaa", version)) is None
        assert not await seen.exists(b"aaaa")
        # Nothing is there, which it also is when somebody has removed what was inserted.
        error = await never_arrives(fault_proxy, lambda: table.insert(b"bbbb", b"x"))
        assert isinstance(error, TableOutcomeUnknownError)
        assert error.found == (None,)
        assert not await seen.exists(b"bbbb")
        sole = await broken.key_value_table("lost", sole_writer=True)
        await sole.put(b"warm", b"")
        version = await never_arrives(fault_proxy, lambda: sole.insert(b"cccc", b"x"))
        entry = await seen.get(b"cccc")
        assert entry is not None
        assert entry.version == version
        # What did not hold before is refused.
        error = await never_arrives(fault_proxy, lambda: sole.insert(b"cccc", b"again"))
        assert isinstance(error, TableKeyBadVersionError)
        assert await seen.get(b"cccc") == entry


async def test_somebody_else_writes_before_it_is_read_back(
    config: PravegaConfig, fault_proxy: FaultProxy
) -> None:
    async with both(config, fault_proxy) as (broken, sound):
        await broken.create_key_value_table("theirs", PLAIN)
        seen = await sound.key_value_table("theirs")
        table = await broken.key_value_table("theirs")
        version = await table.insert(b"aaaa", b"0")
        theirs: list[object] = []

        async def somebody_else() -> None:
            theirs.append(await seen.put(b"aaaa", b"theirs", version))

        error = await never_arrives(fault_proxy, lambda: table.put(b"aaaa", b"mine", version), somebody_else)
        assert isinstance(error, TableOutcomeUnknownError)
        [found] = error.found
        assert isinstance(found, TableEntry)
        assert [found.value, found.version] == [b"theirs", *theirs]
        # Theirs was not overwritten.
        assert await seen.get(b"aaaa") == found


async def test_reading_back_fails_too(config: PravegaConfig, fault_proxy: FaultProxy) -> None:
    async with open_client(config) as patient:
        await patient.create_key_value_table("silent", PLAIN)
    short = replace(config, operation_timeout=1)
    async with both(short, fault_proxy) as (broken, sound):
        table = await broken.key_value_table("silent")
        version = await table.insert(b"aaaa", b"0")

        async def refuse() -> None:
            fault_proxy.refuse()

        error = await never_arrives(fault_proxy, lambda: table.put(b"aaaa", b"1", version), refuse)
        assert isinstance(error, TableOutcomeUnknownError)
        assert error.found == ()
        with pytest.raises(RetriesExhaustedError, match="silent"):
            await table.get(b"aaaa")
        fault_proxy.refuse(False)
        entry = await (await sound.key_value_table("silent")).get(b"aaaa")
        assert entry is not None
        assert entry.version == version


async def test_reading_survives_lost_connections(config: PravegaConfig, fault_proxy: FaultProxy) -> None:
    async with both(config, fault_proxy) as (broken, sound):
        await broken.create_key_value_table("reading", PAIRS)
        items = {(b"%04d" % (n % 7), b"%04d" % n): b"v%d" % n for n in range(300)}
        await (await sound.key_value_table("reading")).put_many(items.items())
        table = await broken.key_value_table("reading")
        for reply in (c.TableRead, c.TableKeysRead):
            fault_proxy.cut_before_reply(reply, times=3, after=1)
        for page_size in (5, 40):
            found = [(entry.key, entry.value) async for entry in table.entries(page_size=page_size)]
            assert found == sorted(items.items())
        assert [key async for key in table.keys(page_size=20)] == sorted(items)
        many = await table.get_many(items)
        assert [value_of(entry) for entry in many] == list(items.values())
        assert fault_proxy.cuts_due == 0


async def test_counting_through_breaking_connections(config: PravegaConfig, fault_proxy: FaultProxy) -> None:
    """A key of its own in each update tells afterwards whether it was made, whatever others have done."""
    each = 60

    async def count(who: int, client: PravegaClient, unknown: list[int]) -> None:
        table = await client.key_value_table("counted", JsonSerializer())
        family = table.family(b"sum.")
        for number in range(each):
            mark = b"%d%03d" % (who, number)
            made = False
            while not made:
                entry = await family.get(b"tot.")
                assert entry is not None
                try:
                    await family.update_many(
                        [Put(b"tot.", entry.value + 1, entry.version), Insert(mark, number)]
                    )
                    made = True
                except TableKeyBadVersionError:
                    made = await family.exists(mark)
                except TableOutcomeUnknownError:
                    unknown.append(number)
                    made = await family.exists(mark)

    async with both(config, fault_proxy) as (broken, sound):
        await broken.create_key_value_table("counted", PAIRS)
        plain = await sound.key_value_table("counted", JsonSerializer())
        await plain.put((b"sum.", b"tot."), 0)
        unknown: list[int] = []
        chosen = random.Random(5)
        for _ in range(10):
            fault_proxy.cut_before_reply(c.TableEntriesUpdated, times=2, after=chosen.randint(0, 5))
            fault_proxy.cut_before_reply(c.TableKeyBadVersion, after=chosen.randint(0, 5))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(count, 1, broken, unknown)
            nursery.start_soon(count, 2, broken, unknown)
            nursery.start_soon(count, 3, sound, unknown)
        assert unknown
        family = plain.family(b"sum.")
        assert value_of(await family.get(b"tot.")) == 3 * each
        assert len([key async for key in family.keys()]) == 3 * each + 1  # noqa: SIM118  # a method of a table
