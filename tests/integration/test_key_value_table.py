"""Key-value tables on a real server, compared with dictionaries."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
import trio

from pravega_wire import (
    Insert,
    KeyValueTable,
    KeyValueTableConfiguration,
    KeyValueVersion,
    PravegaClient,
    PravegaConfig,
    Put,
    Remove,
    TableEntry,
    TableKey,
    open_client,
)
from pravega_wire import sync as blocking
from pravega_wire.errors import (
    ClosedError,
    InvalidArgumentError,
    KeyValueTableNotFoundError,
    MixedPrimaryKeysError,
    ScopeNotFoundError,
    TableKeyBadVersionError,
    TableKeyDoesNotExistError,
    TableKeyLengthError,
    TableValueTooLargeError,
)
from pravega_wire.segment.table import MAX_VALUE_BYTES
from pravega_wire.serializers import BytesSerializer, FunctionSerializer, JsonSerializer, Utf8Serializer
from pravega_wire.stream.key_value_table import Modification
from pravega_wire.values.types import ScopedStream
from tests.cancelling import cancelled_at
from tests.faults.support import in_one_buffer

Bytes = KeyValueTable[bytes, bytes, bytes]

PLAIN = KeyValueTableConfiguration(1, 4)
PAIRS = KeyValueTableConfiguration(3, 2, 4)


async def made(client: PravegaClient, name: str, configuration: KeyValueTableConfiguration) -> Bytes:
    assert await client.create_key_value_table(name, configuration)
    return await client.key_value_table(name)


def value_of(entry: TableEntry[Any, Any, Any] | None) -> Any:
    assert entry is not None
    return entry.value


# --- tables ---------------------------------------------------------------------------------------


async def test_tables_are_made_listed_described_and_deleted(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        scope = str(config.scope)
        assert await client.list_key_value_tables() == []
        assert not await client.key_value_table_exists("t")
        assert await client.create_key_value_table("t", PAIRS)
        assert not await client.create_key_value_table("t", PLAIN)
        assert await client.create_key_value_table("u", PLAIN)
        assert await client.key_value_table_exists("t")
        assert await client.key_value_table_config("t") == PAIRS
        table = await client.key_value_table(f"{scope}/t")
        assert table.name == ScopedStream(scope, "t")
        assert table.config == PAIRS
        assert sorted(await client.list_key_value_tables()) == [
            ScopedStream(scope, "t"),
            ScopedStream(scope, "u"),
        ]
        # Tables are no streams.
        assert await client.list_streams() == []
        await table.put((b"aa", b"bbbb"), b"x")
        assert await client.delete_key_value_table("t")
        assert not await client.delete_key_value_table("t")
        assert await client.list_key_value_tables(scope) == [ScopedStream(scope, "u")]


async def test_what_is_not_there_is_named(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        with pytest.raises(KeyValueTableNotFoundError, match="nothing"):
            await client.key_value_table("nothing")
        with pytest.raises(KeyValueTableNotFoundError, match="nothing"):
            await client.key_value_table_config("nothing")
        with pytest.raises(ScopeNotFoundError):
            await client.create_key_value_table("no-such-scope/t", PLAIN)
        with pytest.raises(ScopeNotFoundError):
            await client.list_key_value_tables("no-such-scope")


async def test_a_table_deleted_under_a_handle(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        table = await made(client, "doomed", PAIRS)
        await table.put((b"aa", b"0001"), b"x")
        await client.delete_key_value_table("doomed")
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: table.get((b"aa", b"0001")),
            lambda: table.get_many([(b"aa", b"0001"), (b"bb", b"0001")]),
            lambda: table.exists((b"aa", b"0001")),
            lambda: table.estimated_size(),
            lambda: table.put((b"aa", b"0001"), b"y"),
            lambda: table.insert((b"ab", b"0001"), b"y"),
            lambda: table.replace((b"aa", b"0001"), b"y"),
            lambda: table.remove((b"aa", b"0001")),
            lambda: table.update_many([Put((b"aa", b"0001"), b"y")]),
            lambda: table.put_many([((b"aa", b"0001"), b"y")]),
            lambda: table.keys().next_page(),
            lambda: table.entries().next_page(),
            lambda: table.family(b"aa").clear(),
        ]
        for call in calls:
            with pytest.raises(KeyValueTableNotFoundError, match="doomed"):
                await call()
        again = await made(client, "doomed", PAIRS)
        assert await again.entries().next_page() == []


async def test_a_closed_client(config: PravegaConfig) -> None:
    with trio.fail_after(60):
        async with open_client(config) as client:
            table = await made(client, "left", PLAIN)
            await table.put(b"aaaa", b"x")
        for call in (
            lambda: table.get(b"aaaa"),
            lambda: table.put(b"aaaa", b"y"),
            lambda: table.exists(b"aaaa"),
            lambda: table.keys().next_page(),
            lambda: table.put_many([(b"aaaa", b"y")]),
        ):
            with pytest.raises(ClosedError):
                await call()
        async with open_client(config) as client:
            assert value_of(await (await client.key_value_table("left")).get(b"aaaa")) == b"x"


# --- one key --------------------------------------------------------------------------------------


@pytest.mark.smoke
async def test_conditions_on_one_key(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        table = await made(client, "one", PLAIN)
        key = b"key1"
        assert await table.get(key) is None
        assert not await table.exists(key)
        with pytest.raises(TableKeyDoesNotExistError, match="key1"):
            await table.replace(key, b"no")
        with pytest.raises(TableKeyBadVersionError, match="key1"):
            await table.put(key, b"no", KeyValueVersion(0, 77))
        await table.remove(key)
        assert await table.get(key) is None

        first = await table.insert(key, b"1")
        assert await table.get(key) == TableEntry(TableKey(key, b""), b"1", first)
        assert await table.exists(key)
        with pytest.raises(TableKeyBadVersionError, match="key1"):
            await table.insert(key, b"no")
        absent = KeyValueVersion(KeyValueVersion.ANY_SEGMENT, KeyValueVersion.NOT_EXISTS)
        with pytest.raises(TableKeyBadVersionError):
            await table.put(key, b"no", absent)
        second = await table.put(key, b"2", first)
        assert second.version > first.version
        with pytest.raises(TableKeyBadVersionError):
            await table.put(key, b"no", first)
        with pytest.raises(TableKeyBadVersionError):
            await table.remove(key, first)
        # The right number, of another segment.
        with pytest.raises(TableKeyBadVersionError):
            await table.put(key, b"no", KeyValueVersion(9, second.version))
        assert await table.get(key) == TableEntry(TableKey(key, b""), b"2", second)
        third = await table.put(key, b"3")
        fourth = await table.replace(key, b"4")
        assert second.version < third.version < fourth.version
        assert value_of(await table.get(TableKey(key, b""))) == b"4"
        await table.remove(key, KeyValueVersion(KeyValueVersion.ANY_SEGMENT, fourth.version))
        assert not await table.exists(key)
        with pytest.raises(TableKeyBadVersionError):
            await table.remove(key, fourth)
        with pytest.raises(TableKeyDoesNotExistError):
            await table.replace(key, b"no")
        assert (await table.put(key, b"5", absent)).version > fourth.version
        # The smallest version of a condition that is none.
        await table.put(key, b"6", KeyValueVersion(0, KeyValueVersion.NO_VERSION))
        assert value_of(await table.get(key)) == b"6"


async def test_an_empty_value_is_a_value_and_version_0_is_a_version(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        table = await made(client, "empty", PLAIN)
        version = await table.insert(b"aaaa", b"")
        assert version.version == 0
        assert await table.get(b"aaaa") == TableEntry(TableKey(b"aaaa", b""), b"", version)
        assert [entry.value async for entry in table.entries()] == [b""]
        assert (await table.put(b"aaaa", b"x", version)).version > 0


async def test_keys_and_values_at_their_limits(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        longest = await made(client, "longest", KeyValueTableConfiguration(2, 128, 128))
        key = TableKey(bytes(range(128)), bytes(range(128, 256)))
        await longest.put(key, b"x")
        assert [each async for each in longest.keys()] == [key]  # noqa: SIM118
        table = await made(client, "largest", PLAIN)
        # More than fits into one reply or one request, and each page is cut short by its size.
        items = {b"%04d" % n: bytes([n]) * MAX_VALUE_BYTES for n in range(18)}
        await table.put_many(items.items())
        found = await table.get_many(items)
        assert [value_of(entry) for entry in found] == list(items.values())
        assert {entry.key.primary: entry.value async for entry in table.entries()} == items
        with pytest.raises(TableValueTooLargeError) as refused:
            await table.put(b"0000", bytes(MAX_VALUE_BYTES + 1))
        assert (refused.value.size, refused.value.limit) == (MAX_VALUE_BYTES + 1, MAX_VALUE_BYTES)
        pairs = await made(client, "pairs", PAIRS)
        with pytest.raises(TableValueTooLargeError, match="update"):
            await pairs.update_many([Put((b"aa", b"%04d" % n), bytes(MAX_VALUE_BYTES)) for n in range(17)])
        assert await pairs.keys().next_page() == []


# --- families and batches -------------------------------------------------------------------------


@pytest.mark.smoke
async def test_a_family_and_its_batches(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        table = await made(client, "families", PAIRS)
        family = table.family(b"fa")
        other = table.family(b"fb")
        await other.put(b"0001", b"other")
        assert family.primary == b"fa"
        versions = await family.update_many(
            [Insert(b"0001", b"a"), Put(b"0002", b"b"), Insert(b"0003", b"c")]
        )
        entries = await family.get_many([b"0003", b"0009", b"0001"])
        assert [entry and entry.value for entry in entries] == [b"c", None, b"a"]
        assert [entry and entry.version for entry in entries] == [versions[2], None, versions[0]]
        assert entries[0] is not None
        assert entries[0].key == TableKey(b"fa", b"0003")

        # One condition that does not hold, and nothing of the batch happens.
        batches: list[list[Modification[bytes, bytes]]] = [
            [Put(b"0001", b"!"), Insert(b"0002", b"!"), Put(b"0004", b"!")],
            [Put(b"0004", b"!"), Put(b"0001", b"!", versions[1])],
            [Insert(b"0004", b"!"), Put(b"0005", b"!", versions[0])],
            [Remove(b"0001"), Remove(b"0002", versions[0])],
            [Remove(b"0001"), Remove(b"0005", versions[0])],
        ]
        for refused in batches:
            with pytest.raises(TableKeyBadVersionError, match="families"):
                await family.update_many(refused)
        # Only keys that have a condition are named.
        with pytest.raises(TableKeyBadVersionError, match=r"condition for key \(b'fa', b'0002'\) does not"):
            await family.update_many(batches[0])
        assert [(entry.key.secondary, entry.value, entry.version) async for entry in family.entries()] == [
            (b"0001", b"a", versions[0]),
            (b"0002", b"b", versions[1]),
            (b"0003", b"c", versions[2]),
        ]
        newer = await family.update_many(
            [Put(b"0001", b"A", versions[0]), Put(b"0004", b"D"), Insert(b"0005", b"E")]
        )
        assert value_of(await family.get(b"0001")) == b"A"
        removed = await family.update_many([Remove(b"0001", newer[0]), Remove(b"0002"), Remove(b"0099")])
        assert removed == [None, None, None]
        assert [key.secondary async for key in family.keys()] == [b"0003", b"0004", b"0005"]  # noqa: SIM118
        assert await family.update_many([]) == []

        third = await family.replace(b"0003", b"C")
        with pytest.raises(TableKeyDoesNotExistError):
            await family.replace(b"0001", b"no")
        assert await family.insert(b"0001", b"aa") != third
        await family.remove(b"0003", third)
        assert not await family.exists(b"0003")
        await family.put_all({b"%04d" % n: b"x" for n in range(256)})
        assert len([key async for key in family.keys(page_size=100)]) == 256
        with pytest.raises(InvalidArgumentError, match="256"):
            await family.put_all({b"%04d" % n: b"x" for n in range(257)})
        await family.clear()
        assert await family.keys().next_page() == []
        assert value_of(await other.get(b"0001")) == b"other"


async def test_updates_that_cannot_be_are_refused_before_they_are_sent(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        table = await made(client, "refused", PAIRS)
        plain = await made(client, "plain", PLAIN)
        with pytest.raises(MixedPrimaryKeysError, match="refused"):
            await table.update_many([Put((b"aa", b"0001"), b""), Put((b"ab", b"0001"), b"")])
        with pytest.raises(InvalidArgumentError, match="twice"):
            await table.update_many([Put((b"aa", b"0001"), b""), Insert((b"aa", b"0001"), b"")])
        with pytest.raises(InvalidArgumentError, match="must not mix"):
            await table.update_many([Put((b"aa", b"0001"), b""), Remove((b"aa", b"0002"))])
        with pytest.raises(TableKeyLengthError, match="primary key must have 2 bytes, not 3") as error:
            await table.put((b"aaa", b"0001"), b"")
        assert (error.value.length, error.value.expected) == (3, 2)
        with pytest.raises(TableKeyLengthError, match="secondary key must have 4 bytes, not 0"):
            await table.put((b"aa", b""), b"")
        with pytest.raises(TableKeyLengthError, match="at most 2 bytes, not 3"):
            table.keys(prefix=b"aaa")
        wrong: list[Any] = [b"aa", "aa", 7, None, (b"aa",), (b"aa", b"0001", b""), ("aa", b"0001")]
        for key in wrong:
            with pytest.raises(InvalidArgumentError, match="refused"):
                await table.get(key)
        for key in ("aaaa", 4, (b"aaaa", b"x"), TableKey(b"aaaa", b"x")):
            with pytest.raises(InvalidArgumentError, match="plain"):
                await plain.put(key, b"")  # type: ignore[arg-type]
        with pytest.raises(InvalidArgumentError, match="a value must be bytes"):
            await plain.put(b"aaaa", 5)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgumentError, match="does not exist"):
            await plain.remove(b"aaaa", KeyValueVersion(0, -1))
        with pytest.raises(InvalidArgumentError, match="not a valid version"):
            await plain.put(b"aaaa", b"", KeyValueVersion(0, -2))
        refused: list[Callable[[], object]] = [
            lambda: plain.family(b"aaaa"),
            lambda: table.keys(prefix=b"a", between=(b"aa", None)),
            lambda: table.keys(secondary_prefix=b"a"),
            lambda: table.keys(primary=b"aa", secondary_prefix=b"0", secondary_between=(b"0001", None)),
            lambda: table.keys(page_size=0),
            lambda: table.entries(after=b"short"),
            lambda: table.entries(after="text"),  # type: ignore[arg-type]
            lambda: table.keys(prefix="a"),  # type: ignore[arg-type]
            lambda: table.keys(between=(pa.array([1, 2]).to_numpy(), None)),
            lambda: table.keys(page_size=1.5),  # type: ignore[arg-type]
        ]
        for call in refused:
            with pytest.raises(InvalidArgumentError):
                call()
        for bad in ((0, 4, 0), (1, 0, 4), (1, 4, -1), (1, 128, 129)):
            with pytest.raises(InvalidArgumentError, match="bad"):
                await client.create_key_value_table("bad", KeyValueTableConfiguration(*bad))
        assert not await client.key_value_table_exists("bad")
        assert await table.keys().next_page() == await plain.keys().next_page() == []


# --- in order -------------------------------------------------------------------------------------


def pairs_of(count: int, seed: int) -> list[TableKey[bytes, bytes]]:
    """Different pairs, also with the bytes at either end of the order."""
    chosen = random.Random(seed)
    some = [b"\0\0", b"\0\xff", b"\x7f\xff", b"\x80\0", b"\xff\xff", b"ab", b"az"]
    pairs = {
        TableKey(chosen.choice(some) if chosen.random() < 0.5 else chosen.randbytes(2), chosen.randbytes(4))
        for _ in range(count)
    }
    pairs |= {TableKey(b"\0\0", bytes(4)), TableKey(b"\xff\xff", b"\xff" * 4)}
    return sorted(pairs)


@pytest.mark.parametrize("partitions", [1, 5])
async def test_order_ranges_and_going_on(config: PravegaConfig, partitions: int) -> None:
    keys = pairs_of(150, partitions)

    async with open_client(config) as client:
        table = await made(client, "ordered", KeyValueTableConfiguration(partitions, 2, 4))
        await table.put_many(
            [(key, b"v" + key.secondary) for key in random.Random(1).sample(keys, len(keys))]
        )
        for page_size in (1, 2, 7, 1000):
            assert [key async for key in table.keys(page_size=page_size)] == keys
            found = [(entry.key, entry.value) async for entry in table.entries(page_size=page_size)]
            assert found == [(key, b"v" + key.secondary) for key in keys]
        by_page = table.keys(page_size=7)
        pages: list[TableKey[bytes, bytes]] = []
        while page := await by_page.next_page():
            pages += page
        assert pages == keys
        assert await by_page.next_page() == []
        # From any place, with an iterator of its own.
        for place in range(0, len(keys), 13):
            iterator = table.keys(page_size=5)
            for _ in range(place):
                await anext(iterator)
            rest = table.keys(after=iterator.position, page_size=4)
            assert [key async for key in rest] == keys[place:]
        assert [key async for key in table.keys(after=b"\xff" * 6)] == []

        def inside(low: bytes, high: bytes) -> Sequence[TableKey[bytes, bytes]]:
            return [key for key in keys if low <= key.primary <= high]

        for between, expected in (
            ((b"\0\xff", b"\x80\0"), inside(b"\0\xff", b"\x80\0")),
            ((None, b"ab"), inside(b"", b"ab")),
            ((b"az", None), inside(b"az", b"\xff\xff")),
            ((b"az", b"ab"), []),
        ):
            assert [key async for key in table.keys(between=between, page_size=3)] == expected
        assert [key async for key in table.keys(prefix=b"a")] == inside(b"a\0", b"a\xff")
        assert [entry.key async for entry in table.entries(primary=b"ab", page_size=2)] == inside(
            b"ab", b"ab"
        )
        family = table.family(b"ab")
        secondaries = [key.secondary for key in inside(b"ab", b"ab")]
        assert len(secondaries) > 4
        low, high = secondaries[1], secondaries[-2]
        listed = [key.secondary async for key in family.keys(between=(low, high), page_size=2)]
        assert listed == secondaries[1:-1]
        listed = [entry.key.secondary async for entry in family.entries(prefix=low[:1])]
        assert listed == [each for each in secondaries if each[:1] == low[:1]]
        iterator = family.keys(page_size=2)
        await anext(iterator)
        await anext(iterator)
        assert [key.secondary async for key in family.keys(after=iterator.position)] == secondaries[2:]
        await table.remove_many(keys)
        assert await table.keys().next_page() == []


async def test_many_keys_are_read_in_the_order_asked_for(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        table = await made(client, "many", KeyValueTableConfiguration(4, 4))
        await table.put_many([(b"%04d" % n, b"%d" % n) for n in range(0, 700, 2)])
        wanted = random.Random(2).choices(range(700), k=300)
        found = await table.get_many([b"%04d" % n for n in wanted])
        assert [entry and (entry.key.primary, entry.value) for entry in found] == [
            None if n % 2 else (b"%04d" % n, b"%d" % n) for n in wanted
        ]
        assert await table.get_many([]) == []
        # Every partition has some of them, and the version says which.
        assert len({entry.version.segment_id async for entry in table.entries()}) == 4
        assert 0 <= await table.estimated_size() <= 350


async def test_keys_that_do_not_exist_while_much_else_is_read(config: PravegaConfig) -> None:
    """A store sends other bytes in place of such keys, some of a thousand, when it has much to do."""

    async with open_client(config) as client:
        table = await made(client, "gaps", KeyValueTableConfiguration(4, 4))
        await table.put_many([(b"%04d" % n, b"%d" % n) for n in range(0, 700, 2)])

        async def read() -> None:
            for _ in range(10):
                found = await table.get_many([b"%04d" % n for n in range(700)])
                assert [entry and entry.value for entry in found] == [
                    None if n % 2 else b"%d" % n for n in range(700)
                ]

        async with trio.open_nursery() as nursery:
            for _ in range(6):
                nursery.start_soon(read)


async def test_versions_hold_after_compaction(config: PravegaConfig) -> None:
    """A store looks every 30 s whether a segment is worth compacting, and moves what is old to its end."""

    async with open_client(config) as client:
        table = await made(client, "compacted", KeyValueTableConfiguration(1, 4))
        old = [await table.put(key, b"old") for key in (b"old1", b"old2", b"old3", b"old4")]
        segment = table._segments[0].table
        moved = False
        while not moved:
            for number in range(4):
                await table.put(b"new%d" % number, bytes(500_000))
            await trio.sleep(1)
            listed = {key.data: key.version for key in await segment.read_keys(b"old1", b"old4", 4)}
            moved = all(listed[b"old%d" % n] != version.version for n, version in enumerate(old, 1))
        entry = await table.get(b"old1")
        assert entry is not None
        assert entry.version == old[0]
        changed = await table.put(b"old1", b"changed", old[0])
        with pytest.raises(TableKeyBadVersionError):
            await table.put(b"old1", b"again", old[0])
        await table.remove(b"old1", changed)
        await table.remove(b"old2", old[1])
        await table.remove(b"old3", old[2])
        await table.replace(b"old4", b"replaced")
        assert [entry.key.primary async for entry in table.entries(prefix=b"old")] == [b"old4"]


async def test_items_in_one_buffer(config: PravegaConfig) -> None:
    keys = [b"%04d" % number for number in range(50)]
    values = [b"v%d" % number for number in range(50)]
    async with open_client(config) as client:
        table = await made(client, "t", PLAIN)
        await table.put_many(zip(keys, in_one_buffer(values), strict=True))
        assert list(map(value_of, await table.get_many(in_one_buffer(keys)))) == values
        family = (await made(client, "f", PAIRS)).family(b"ab")
        await family.update_many(
            Put(key, value) for key, value in zip(in_one_buffer(keys), in_one_buffer(values), strict=True)
        )
        assert list(map(value_of, await family.get_many(in_one_buffer(keys)))) == values


@pytest.mark.parametrize("error", [StopIteration, StopAsyncIteration])
async def test_a_serializer_that_raises_what_ends_iterations(
    config: PravegaConfig, error: type[Exception]
) -> None:
    def picky(data: bytes) -> bytes:
        if data == b"0001":
            raise error
        return data

    async with open_client(config) as client:
        table = await made(client, "t", PLAIN)
        await table.put_many((b"%04d" % number, b"%04d" % number) for number in range(3))
        values = await client.key_value_table("t", FunctionSerializer(bytes, picky))
        with pytest.raises(RuntimeError, match=error.__name__):
            [entry async for entry in values.entries()]
        keys = await client.key_value_table(
            "t", BytesSerializer(), primary_keys=FunctionSerializer(picky, bytes)
        )
        with pytest.raises(RuntimeError, match=error.__name__):
            await keys.remove_many([b"0000", b"0001", b"0002"])
        assert await table.get_many([b"0000", b"0001", b"0002"]) == [entry async for entry in table.entries()]


@pytest.mark.smoke
async def test_serializers(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_key_value_table("texts", KeyValueTableConfiguration(2, 3, 2))
        table = await client.key_value_table(
            "texts", JsonSerializer(), primary_keys=Utf8Serializer(), secondary_keys=Utf8Serializer()
        )
        version = await table.put(("abc", "é"), {"n": [1, None]})
        assert await table.get(("abc", "é")) == TableEntry(TableKey("abc", "é"), {"n": [1, None]}, version)
        with pytest.raises(TableKeyLengthError):
            await table.put(("abcé", "de"), 1)
        assert [(each.key, each.value) async for each in table.entries()] == [
            (("abc", "é"), {"n": [1, None]})
        ]
        # There is nothing to serialize in a table that has no secondary keys.
        await client.create_key_value_table("flat", PLAIN)
        with pytest.raises(InvalidArgumentError, match=r"table .*/flat has no secondary keys"):
            await client.key_value_table(
                "flat", JsonSerializer(), primary_keys=JsonSerializer(), secondary_keys=JsonSerializer()
            )
        flat = await client.key_value_table("flat", JsonSerializer(), primary_keys=JsonSerializer())
        await flat.put(1234, [5])
        assert value_of(await flat.get(1234)) == [5]
        assert [key async for key in flat.keys()] == [TableKey(1234, b"")]  # noqa: SIM118


# --- the blocking twin ----------------------------------------------------------------------------


@pytest.mark.smoke
def test_the_blocking_twin(config: PravegaConfig) -> None:
    with blocking.open_client(config) as client:
        scope = str(config.scope)
        assert client.create_key_value_table("b", KeyValueTableConfiguration(2, 2, 4))
        assert client.create_key_value_table("flat", PLAIN)
        assert client.key_value_table_exists("b")
        assert client.key_value_table_config("flat") == PLAIN
        assert ScopedStream(scope, "b") in client.list_key_value_tables()
        table = client.key_value_table("b")
        assert table.name == ScopedStream(scope, "b")
        first = table.insert((b"aa", b"0001"), b"1")
        with pytest.raises(TableKeyBadVersionError):
            table.insert((b"aa", b"0001"), b"no")
        second = table.put((b"aa", b"0001"), b"2", first)
        assert table.get((b"aa", b"0001")) == TableEntry(TableKey(b"aa", b"0001"), b"2", second)
        table.replace((b"aa", b"0001"), b"3")
        table.put_many([((b"bb", b"%04d" % n), b"x") for n in range(30)])
        assert table.exists((b"bb", b"0029"))
        assert table.get_many([(b"cc", b"0000")]) == [None]
        keys = [TableKey(b"aa", b"0001"), *(TableKey(b"bb", b"%04d" % n) for n in range(30))]
        assert list(table.keys(page_size=4)) == keys
        entries = table.entries(page_size=4)
        assert [next(entries).key for _ in range(5)] == keys[:5]
        assert list(table.keys(after=entries.position)) == keys[5:]
        table.remove((b"aa", b"0001"))
        table.remove_many(keys[20:])
        family = table.family(b"bb")
        assert len(family.mapping()) == 19
        assert family.update_many([Put(b"0000", b"y"), Put(b"0001", b"y")]) != [None, None]
        family.put_all({b"9999": b"z"})
        assert [entry.value for entry in family.entries(prefix=b"9")] == [b"z"]
        family.clear()

        expected: dict[bytes, bytes] = {}
        mapping = client.key_value_table("flat").mapping()
        assert not mapping
        mapping.update({b"bbbb": b"2", b"aaaa": b"1"})
        expected.update({b"bbbb": b"2", b"aaaa": b"1"})
        mapping[b"cccc"] = expected[b"cccc"] = b"3"
        assert mapping
        assert dict(mapping) == expected == dict(mapping.items())
        assert mapping == expected
        assert list(mapping) == sorted(expected)
        assert list(mapping.values()) == [b"1", b"2", b"3"]
        assert b"2" in mapping.values()
        assert (b"aaaa", b"1") in mapping.items()
        assert (b"aaaa", b"2") not in mapping.items()
        assert mapping.keys() & {b"aaaa", b"zzzz"} == {b"aaaa"}
        assert b"zzzz" not in mapping
        with pytest.raises(KeyError):
            mapping[b"zzzz"]
        with pytest.raises(KeyError):
            del mapping[b"zzzz"]
        del mapping[b"bbbb"]
        assert mapping.pop(b"bbbb", None) is None
        assert mapping.get(b"bbbb", b"none") == b"none"
        assert mapping.setdefault(b"dddd", b"4") == b"4"
        assert mapping.pop(b"dddd") == b"4"
        assert mapping.popitem() == (b"aaaa", b"1")
        mapping.clear()
        assert len(mapping) == 0
        with pytest.raises(InvalidArgumentError, match="secondary keys: use mapping_of_pairs"):
            table.mapping()
        pairs = table.mapping_of_pairs()
        for key in (b"aa", "aa", 7, None, (b"aa",), (b"aa", b"0001", b""), ("aa", b"0001")):
            with pytest.raises(InvalidArgumentError, match="table " + str(table.name)):
                pairs[key]  # type: ignore[index]
        mine = table.family(b"dd").mapping()
        mine.update({b"0002": b"two", b"0001": b"one"})
        pairs[TableKey(b"ee", b"0001")] = b"other"
        assert list(mine) == [b"0001", b"0002"]
        assert pairs[TableKey(b"dd", b"0002")] == b"two"
        assert list(pairs) == [(b"dd", b"0001"), (b"dd", b"0002"), (b"ee", b"0001")]
        mine.clear()
        assert list(pairs) == [(b"ee", b"0001")]
        assert client.delete_key_value_table("flat")
        assert not client.key_value_table_exists("flat")


# --- several at once ------------------------------------------------------------------------------


async def test_two_clients_count_exactly(config: PravegaConfig) -> None:
    async def count(config: PravegaConfig) -> None:
        async with open_client(config) as client:
            table = await client.key_value_table("counters", JsonSerializer())
            for number in range(60):
                key = b"cnt%d" % (number % 2)
                while True:
                    entry = await table.get(key)
                    try:
                        if entry is None:
                            await table.insert(key, 1)
                        else:
                            await table.put(key, entry.value + 1, entry.version)
                    except TableKeyBadVersionError:
                        continue
                    break

    async with open_client(config) as client:
        await client.create_key_value_table("counters", KeyValueTableConfiguration(2, 4))
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(count, config)
        table = await client.key_value_table("counters", JsonSerializer())
        assert [entry.value async for entry in table.entries()] == [60, 60]


async def test_one_insert_of_many_wins_and_every_pop_gives_something_else(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        table = await made(client, "race", KeyValueTableConfiguration(2, 4))
        won: list[int] = []

        async def insert(number: int) -> None:
            try:
                await table.insert(b"lock", b"%d" % number)
            except TableKeyBadVersionError:
                return
            won.append(number)

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(insert, number)
        assert len(won) == 1
        assert value_of(await table.get(b"lock")) == b"%d" % won[0]

        await table.remove(b"lock")
        await table.put_many([(b"%04d" % n, b"") for n in range(40)])
        popped: list[bytes] = []

        def pop(mapping: blocking.TableMapping[bytes, bytes]) -> None:
            popped.extend(mapping.popitem()[0] for _ in range(10))

        with blocking.open_client(config) as other:
            mapping = other.key_value_table("race").mapping()
            async with trio.open_nursery() as nursery:
                for _ in range(4):
                    nursery.start_soon(trio.to_thread.run_sync, pop, mapping)
            assert sorted(popped) == [b"%04d" % n for n in range(40)]
            with pytest.raises(KeyError):
                await trio.to_thread.run_sync(mapping.popitem)

        total: list[bytes] = []

        async def replace(number: int) -> None:
            await table.replace(b"repl", b"%d" % number)
            total.append(b"%d" % number)

        await table.put(b"repl", b"")
        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(replace, number)
        assert len(total) == 10
        assert value_of(await table.get(b"repl")) in total


async def test_cancellation_at_every_stop(config: PravegaConfig) -> None:
    """Whatever was cancelled has happened as a whole or not at all, and everything works afterwards."""

    async with open_client(config) as client:
        await client.create_key_value_table("stopped", PAIRS)
        stops: dict[str, int] = {}
        for kind in ("put", "update_many", "get_many", "page", "replace", "remove"):
            for step in range(1, 200):
                # A new one has its first request before it.
                table = await client.key_value_table("stopped")
                family = table.family(b"aa")
                old, new = b"%d" % (step - 1), b"%d" % step
                await family.update_many([Put(b"%04d" % n, old) for n in range(3)])
                iterator = family.entries(page_size=1)
                calls: dict[str, Callable[[], Awaitable[object]]] = {
                    "put": lambda: family.put(b"0000", new),  # noqa: B023
                    "update_many": lambda: family.update_many([Put(b"%04d" % n, new) for n in range(3)]),  # noqa: B023
                    "get_many": lambda: table.get_many([(b"%02d" % n, b"0000") for n in range(20)]),  # noqa: B023
                    "page": lambda: iterator.next_page(),  # noqa: B023
                    "replace": lambda: family.replace(b"0000", new),  # noqa: B023
                    "remove": lambda: family.remove(b"0000"),  # noqa: B023
                }
                if not await cancelled_at(step, calls[kind]):
                    stops[kind] = step
                    break
                if kind == "page":
                    # What it had not given out comes next.
                    assert [entry.key.secondary async for entry in iterator] == [
                        b"0000",
                        b"0001",
                        b"0002",
                    ]
                values = [
                    entry and entry.value for entry in await family.get_many([b"0000", b"0001", b"0002"])
                ]
                outcomes: dict[str, list[list[bytes | None]]] = {
                    "put": [[old] * 3, [new, old, old]],
                    "replace": [[old] * 3, [new, old, old]],
                    "update_many": [[old] * 3, [new] * 3],
                    "remove": [[old] * 3, [None, old, old]],
                }
                assert values in outcomes.get(kind, [[old] * 3]), (kind, step)
        assert sorted(stops) == ["get_many", "page", "put", "remove", "replace", "update_many"]
        assert min(stops.values()) > 2


# --- against a dictionary -------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
async def test_a_dictionary_does_the_same(config: PravegaConfig, seed: int) -> None:
    chosen = random.Random(seed)
    configuration = [PLAIN, PAIRS, KeyValueTableConfiguration(4, 3), KeyValueTableConfiguration(1, 1, 1)][
        seed
    ]
    lengths = (configuration.primary_key_length, configuration.secondary_key_length)
    primaries = [chosen.randbytes(lengths[0]) for _ in range(5)]
    secondaries = [chosen.randbytes(lengths[1]) for _ in range(5)] if lengths[1] else [b""]
    Model = dict[TableKey[bytes, bytes], tuple[bytes, KeyValueVersion]]

    async with open_client(config) as client:
        table = await made(client, "modelled", configuration)
        model: Model = {}
        highest: dict[int, int] = {}

        def key_of(primary: bytes) -> TableKey[bytes, bytes]:
            return TableKey(primary, chosen.choice(secondaries))

        def version_of(key: TableKey[bytes, bytes]) -> KeyValueVersion | None:
            """None, the right one or a wrong one."""
            known = [version for _, version in model.values()]
            absent = KeyValueVersion(KeyValueVersion.ANY_SEGMENT, KeyValueVersion.NOT_EXISTS)
            right = model[key][1] if key in model else absent
            return chosen.choice([None, right, right, chosen.choice(known) if known else absent])

        def holds(key: TableKey[bytes, bytes], version: KeyValueVersion | None) -> bool:
            if version is None:
                return True
            if version.version == KeyValueVersion.NOT_EXISTS:
                return key not in model
            return key in model and model[key][1] == version

        def set_to(key: TableKey[bytes, bytes], value: bytes, version: KeyValueVersion | None) -> None:
            assert version is not None
            # Within a segment they only grow.
            assert version.version > highest.get(version.segment_id, -1)
            model[key] = (value, version)

        for step in range(150):
            primary = chosen.choice(primaries)
            key = key_of(primary)
            value = chosen.randbytes(chosen.choice([0, 1, 10, 1000]))
            version = version_of(key)
            kind = chosen.choice(["insert", "put", "put", "replace", "remove", "batch", "drop", "many"])
            if kind == "insert":
                if key in model:
                    with pytest.raises(TableKeyBadVersionError):
                        await table.insert(key, value)
                else:
                    set_to(key, value, await table.insert(key, value))
            elif kind == "put":
                if holds(key, version):
                    set_to(key, value, await table.put(key, value, version))
                else:
                    with pytest.raises(TableKeyBadVersionError):
                        await table.put(key, value, version)
            elif kind == "replace":
                if key in model:
                    set_to(key, value, await table.replace(key, value))
                else:
                    with pytest.raises(TableKeyDoesNotExistError):
                        await table.replace(key, value)
            elif kind == "remove":
                if version is not None and version.version == KeyValueVersion.NOT_EXISTS:
                    continue
                if holds(key, version):
                    await table.remove(key, version)
                    model.pop(key, None)
                else:
                    with pytest.raises(TableKeyBadVersionError):
                        await table.remove(key, version)
            elif kind == "batch":
                keys = list(dict.fromkeys(key_of(primary) for _ in range(chosen.randint(1, 5))))
                puts = [
                    Put(each, chosen.randbytes(5), chosen.choice([None, version_of(each)])) for each in keys
                ]
                if all(holds(put.key, put.version) for put in puts):
                    for put, made_version in zip(puts, await table.update_many(puts), strict=True):
                        set_to(put.key, put.value, made_version)
                else:
                    with pytest.raises(TableKeyBadVersionError):
                        await table.update_many(puts)
            elif kind == "drop":
                keys = list(dict.fromkeys(key_of(primary) for _ in range(chosen.randint(1, 3))))
                removals = [
                    Remove(each, model[each][1] if each in model and chosen.random() < 0.5 else None)
                    for each in keys
                ]
                assert await table.update_many(removals) == [None] * len(keys)
                for each in keys:
                    model.pop(each, None)
            else:
                items = {key_of(each): chosen.randbytes(3) for each in chosen.sample(primaries, 3)}
                await table.put_many(items.items())
                for each, entry in zip(items, await table.get_many(items), strict=True):
                    assert entry is not None
                    set_to(each, items[each], entry.version)
            for _, seen in model.values():
                highest[seen.segment_id] = max(highest.get(seen.segment_id, -1), seen.version)
            found = await table.get(key)
            assert (None if found is None else (found.value, found.version)) == model.get(key), (
                step,
                kind,
            )
            assert await table.exists(key) is (key in model)
            if step % 25 == 24:
                entries = [entry async for entry in table.entries(page_size=chosen.choice([1, 3, 100]))]
                assert entries == [TableEntry(each, *model[each]) for each in sorted(model)]
