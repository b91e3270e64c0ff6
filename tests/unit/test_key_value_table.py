"""Key-value tables without a server: keys as bytes, order over partitions, and what a lost answer tells."""

from __future__ import annotations

import json
import re
from array import array
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from pravega_wire import (
    Insert,
    KeyValueTable,
    KeyValueTableConfiguration,
    PravegaConfig,
    Put,
    Remove,
    StateFormat,
    TableEntry,
    TableKey,
)
from pravega_wire.errors import (
    ArgumentTypeError,
    ConnectError,
    ConnectionLostError,
    DecodeError,
    EncodeError,
    InvalidArgumentError,
    NoSuchSegmentError,
    PravegaError,
    RetriesExhaustedError,
    TableKeyBadVersionError,
    TableKeyDoesNotExistError,
    TableKeyLengthError,
    TableOutcomeUnknownError,
    UnexpectedReplyError,
    WrongHostError,
)
from pravega_wire.protocol import commands as c
from pravega_wire.protocol.codec import encode
from pravega_wire.segment.store import SegmentStores, SegmentTarget
from pravega_wire.segment.table import (
    ANY_VERSION,
    MAX_BATCH_BYTES,
    MAX_BATCH_KEYS,
    MAX_KEYS_PER_LISTING,
    MAX_KEYS_PER_READ,
    NOT_EXISTS,
    Change,
    Next,
    Progress,
    TableSegment,
    batch_bytes,
    settle,
)
from pravega_wire.serializers import (
    BytesSerializer,
    FunctionSerializer,
    JsonSerializer,
    Serializer,
    Utf8Serializer,
)
from pravega_wire.stream.core import ClientCore
from pravega_wire.stream.key_value_table import _batches, _following, _Segment
from pravega_wire.values.types import ScopedStream

GOLDEN = Path(__file__).parents[1] / "golden" / "golden-client.jsonl"

TARGET = SegmentTarget(
    name="s/t_kvtable/0.#epoch.0", scope="s", stream="t_kvtable", segment_id=0, token=cast(Any, None)
)


# --- a segment in memory --------------------------------------------------------------------------


class Memory(TableSegment):
    """A table segment of a dictionary; a listing gives no more than ``at_most``."""

    def __init__(self, at_most: int = 1 << 30) -> None:
        super().__init__(cast(SegmentStores, None), TARGET)
        self.at_most = at_most
        self.data: dict[bytes, tuple[bytes, int]] = {}
        self.listed: Callable[[], None] = lambda: None
        self.counts: list[int] = []

    async def read(self, keys: Sequence[bytes]) -> list[c.TableEntry | None]:
        assert len(keys) <= MAX_KEYS_PER_READ
        await trio.lowlevel.checkpoint()
        return [
            c.TableEntry(c.TableKey(key, self.data[key][1]), self.data[key][0]) if key in self.data else None
            for key in keys
        ]

    def _inside(self, first: bytes, last: bytes, count: int) -> list[bytes]:
        self.counts.append(count)
        return sorted(key for key in self.data if first <= key <= last)[: min(count, self.at_most)]

    async def read_keys(self, first: bytes, last: bytes, count: int) -> tuple[c.TableKey, ...]:
        await trio.lowlevel.checkpoint()
        assert count <= MAX_KEYS_PER_LISTING
        keys = tuple(c.TableKey(key, self.data[key][1]) for key in self._inside(first, last, count))
        self.listed()
        return keys


class Open:
    """Of a client, only that it is open, and its time limit."""

    config = PravegaConfig()

    def check_open(self) -> None:
        pass

    def check_run(self) -> None:
        pass


def table_of(
    segments: Sequence[Memory],
    primary: int = 2,
    secondary: int = 1,
    keys: tuple[Serializer[Any], Serializer[Any]] = (BytesSerializer(), BytesSerializer()),
) -> KeyValueTable[Any, Any, bytes]:
    """A table whose segments have equal shares of the key space."""
    count = len(segments)
    return KeyValueTable(
        cast(ClientCore, Open()),
        ScopedStream("s", "t"),
        KeyValueTableConfiguration(count, primary, secondary),
        [_Segment(n, (n + 1) / count, each) for n, each in enumerate(segments)],
        *keys,
        BytesSerializer(),
    )


# --- keys -----------------------------------------------------------------------------------------


@given(st.binary(min_size=1, max_size=20))
def test_the_following_key(key: bytes) -> None:
    following = _following(key)
    if key == b"\xff" * len(key):
        assert following is None
    else:
        assert following is not None
        assert len(following) == len(key)
        assert following > key
        # Nothing lies between them.
        assert int.from_bytes(following, "big") - int.from_bytes(key, "big") == 1


@given(st.binary(min_size=3, max_size=3), st.binary(max_size=4), st.binary(max_size=30))
def test_keys_to_bytes_and_back(primary: bytes, secondary: bytes, value: bytes) -> None:
    memory = Memory()
    table = table_of([memory], 3, len(secondary))
    key: Any = (primary, secondary) if secondary else primary
    memory.data[primary + secondary] = (value, 5)

    async def main() -> None:
        entry = await table.get(key)
        assert entry is not None
        assert entry.key == TableKey(primary, secondary)
        assert entry.value == value
        assert await table.get(entry.key) == entry
        assert [each async for each in table.entries()] == [entry]

    trio.run(main)


@given(st.binary(max_size=6), st.binary(max_size=6))
def test_keys_of_another_length_are_refused(primary: bytes, secondary: bytes) -> None:
    table = table_of([Memory()], 3, 2)
    wrong = len(primary) != 3 or len(secondary) != 2

    async def main() -> None:
        if wrong:
            with pytest.raises(TableKeyLengthError, match="key-value table s/t") as refused:
                await table.get((primary, secondary))
            assert (refused.value.length, refused.value.expected) in (
                (len(primary), 3),
                (len(secondary), 2),
            )
            assert refused.value.length != refused.value.expected
        else:
            assert await table.get((primary, secondary)) is None

    trio.run(main)


async def test_lengths_are_those_of_what_the_serializer_makes() -> None:
    table = table_of([Memory()], 3, 2, (Utf8Serializer(), Utf8Serializer()))

    assert await table.get(("aé", "é")) is None
    with pytest.raises(TableKeyLengthError, match="primary key must have 3 bytes, not 4"):
        await table.get(("aaé", "é"))


class Noting(Memory):
    """A segment that notes the updates it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.changes: list[Change] = []

    async def update(self, changes: Sequence[Change]) -> list[int]:
        await trio.lowlevel.checkpoint()
        self.changes += changes
        return [len(self.changes) - 1] * len(changes)


async def test_a_buffer_that_a_serializer_makes_is_stored_by_its_bytes() -> None:
    """Its length counts its items; the bytes of one with larger items would not fit the announced length."""
    memory = Noting()
    table = table_of([memory], 8, 0)
    table._primary_keys = table._values = FunctionSerializer(cast(Any, memoryview), bytes)
    key, value = array("i", [1, 2]), array("d", [1.0, 2.0])

    await table.put(key, value)  # type: ignore[arg-type]
    assert memory.changes == [Change(key.tobytes(), ANY_VERSION, value.tobytes())]
    with pytest.raises(TableKeyLengthError, match="must have 8 bytes, not 64"):
        await table.put(array("d", [0.0] * 8), value)  # type: ignore[arg-type]


@pytest.mark.parametrize("made", ["text", None, 5])
async def test_a_serializer_that_makes_no_bytes_is_named(made: Any) -> None:
    memory = Noting()
    table = table_of([memory], 2, 0)
    wrong: Any = FunctionSerializer(lambda value: made, bytes)
    expected = f"returned {type(made).__name__}$"
    table._values = wrong
    with pytest.raises(EncodeError, match=f"^key-value table s/t: a value .*{expected}"):
        await table.put(b"ab", b"")
    table._primary_keys = wrong
    with pytest.raises(EncodeError, match=f"^key-value table s/t: a primary key .*{expected}"):
        await table.put(b"ab", b"")
    assert memory.changes == []


PAIR = (b"ab", b"c")

# Wrong arguments, with what the message has besides the table's name.
WRONG: list[tuple[Callable[[KeyValueTable[Any, Any, Any]], object], str]] = [
    *(
        (partial(lambda table, version: table.put(PAIR, b"v", version), version=version), "a version must be")
        for version in (5, "0:5", (0, 5))
    ),
    (lambda table: table.remove(PAIR, cast(Any, 5)), "a version must be a KeyValueVersion, not int"),
    (lambda table: table.update_many(cast(Any, None)), "modifications .* iterable, not NoneType"),
    *(
        (
            partial(lambda table, wrong: table.update_many([wrong]), wrong=wrong),
            "modification must be an Insert",
        )
        for wrong in (None, (PAIR, b"v"), Insert, TableKey(*PAIR))
    ),
    (lambda table: table.get_many(cast(Any, None)), "keys .* iterable, not NoneType"),
    (lambda table: table.remove_many(cast(Any, 5)), "keys .* iterable, not int"),
    (lambda table: table.put_many(cast(Any, None)), "items .* iterable, not NoneType"),
    (lambda table: table.put_many(cast(Any, [1])), "an item, .* must be a pair, not int"),
    (lambda table: table.put_many(cast(Any, [(PAIR, b"v", 1)])), "an item, .* pair, not tuple of 3"),
    (lambda table: table.keys(prefix=cast(Any, pa.array([1, 2]).to_numpy())), "prefix .* bytes, not ndarray"),
    (lambda table: table.entries(between=cast(Any, 5)), "bounds, .* must be a pair, not int"),
    (lambda table: table.keys(between=cast(Any, (b"ab",))), "bounds, .* pair, not tuple of 1"),
    (
        lambda table: table.keys(primary=b"ab", secondary_between=cast(Any, None)),
        "bounds, .* must be a pair, not NoneType",
    ),
    (lambda table: table.family(b"ab").keys(between=cast(Any, (b"c",) * 3)), "pair, not tuple of 3"),
    (lambda table: table.family(b"ab").get_many(cast(Any, None)), "keys .* iterable, not NoneType"),
    (lambda table: table.family(b"ab").update_many(cast(Any, None)), "modifications .* not NoneType"),
    (lambda table: table.family(b"ab").update_many([cast(Any, None)]), "an Insert, .* not NoneType"),
    (lambda table: table.family(b"ab").put_all(cast(Any, [(b"c", b"v")])), "items .* mapping, not list"),
]


@pytest.mark.parametrize(("call", "message"), WRONG)
async def test_arguments_of_the_wrong_type_are_named(
    call: Callable[[KeyValueTable[Any, Any, Any]], object], message: str
) -> None:
    memory = Noting()
    table = table_of([memory])
    with pytest.raises(ArgumentTypeError, match=f"^key-value table s/t: .*{message}"):
        result = call(table)
        if isinstance(result, Awaitable):
            await result
    assert memory.changes == []


async def test_a_key_of_another_length_from_the_server() -> None:
    memory = Memory()
    table = table_of([memory], 3, 0)
    memory.data[b"four"] = (b"", 0)

    with pytest.raises(DecodeError, match="key-value table s/t"):
        await table.keys(between=(b"aaa", b"zzz")).next_page()


@pytest.mark.parametrize("partitions", [1, 3, 8])
def test_primary_keys_choose_the_segment_that_java_chooses(partitions: int) -> None:
    vectors = [json.loads(line) for line in GOLDEN.read_text().splitlines()]
    vectors = [vector for vector in vectors if vector["what"] == "kvtRouterHashToRange"]
    checked = 0
    for vector in vectors:
        primary = bytes.fromhex(vector["fields"]["key_hex"])
        if not primary:
            continue
        segments = [Memory() for _ in range(partitions)]
        table = table_of(segments, len(primary), 1)
        # Upper bounds belong to the range.
        expected = bisect_left([(n + 1) / partitions for n in range(partitions)], float(vector["text"]))
        for secondary in (b"a", b"b"):
            segments[expected].data[primary + secondary] = (secondary, 1)

        async def main(table: Any = table, primary: bytes = primary) -> None:
            found = await table.get_many([(primary, b"a"), (primary, b"b")])
            assert [entry and entry.value for entry in found] == [b"a", b"b"]
            assert [entry.version.segment_id for entry in found] == [expected] * 2  # noqa: B023

        trio.run(main)
        checked += 1
    assert checked >= 4


# --- order ----------------------------------------------------------------------------------------

KEYS = st.sets(st.binary(min_size=3, max_size=3), max_size=60)


@given(st.lists(KEYS, min_size=1, max_size=4), st.integers(1, 40), st.integers(1, 20), st.data())
def test_segments_are_merged_in_order_and_go_on_anywhere(
    parts: list[set[bytes]], page_size: int, at_most: int, data: st.DataObject
) -> None:
    seen: set[bytes] = set()
    segments = []
    for part in parts:
        memory = Memory(at_most)
        memory.data = {key: (key, n) for n, key in enumerate(part - seen)}
        seen |= part
        segments.append(memory)
    expected = sorted(seen)
    table = table_of(segments)
    place = data.draw(st.integers(0, len(expected)))

    async def main() -> None:
        entries = [entry async for entry in table.entries(page_size=page_size)]
        assert [entry.value for entry in entries] == expected
        assert [b"".join(entry.key) for entry in entries] == expected
        iterator = table.keys(page_size=page_size)
        assert [b"".join([*await anext(iterator)]) for _ in range(place)] == expected[:place]
        rest = table.entries(after=iterator.position, page_size=page_size)
        assert [entry.value async for entry in rest] == expected[place:]
        assert [b"".join(key) async for key in iterator] == expected[place:]

    trio.run(main)


@pytest.mark.parametrize("page_size", [5, 20, 40])
async def test_entries_that_vanish_while_they_are_listed_are_passed_over(page_size: int) -> None:
    memory = Memory()
    memory.data = {b"k%02d" % n: (b"%d" % n, n) for n in range(90)}
    table = table_of([memory])

    def vanish() -> None:
        for n in range(65):
            memory.data.pop(b"k%02d" % n, None)

    memory.listed = vanish

    found = [entry.value async for entry in table.entries(page_size=page_size)]
    assert found == [b"%d" % n for n in range(65, 90)]


async def test_no_request_asks_for_more_than_a_reply_can_hold() -> None:
    memory = Memory()
    memory.data = {n.to_bytes(3, "big"): (b"", n) for n in range(100)}
    table = table_of([memory])

    assert len(await table.keys(page_size=1_000_000).next_page()) == 100
    assert len(await table.entries(page_size=1_000_000).next_page()) == 100
    assert len(await table.entries(page_size=3).next_page()) == 3
    assert memory.counts == [MAX_KEYS_PER_LISTING, MAX_KEYS_PER_LISTING, 3]


@pytest.mark.parametrize("page_size", [3, 30])
async def test_a_server_that_lists_out_of_order_is_found_out(page_size: int) -> None:
    class Backwards(Memory):
        def _inside(self, first: bytes, last: bytes, count: int) -> list[bytes]:
            return super()._inside(first, last, count)[::-1]

    memory = Backwards()
    memory.data = {b"abc": (b"", 1), b"abd": (b"", 2)}
    table = table_of([memory])

    with pytest.raises(DecodeError, match="out of order"):
        await table.entries(page_size=page_size).next_page()


@given(st.lists(st.integers(0, 1_040_384), max_size=600), st.booleans())
def test_batches_fit_and_lose_nothing(sizes: list[int], removing: bool) -> None:
    payload = bytes(1_040_384)
    changes = [
        Change(b"%04d" % n, ANY_VERSION, None if removing else payload[:size]) for n, size in enumerate(sizes)
    ]
    parts = list(_batches(changes))
    assert [change for part in parts for change in part] == changes
    for part in parts:
        assert 0 < len(part) <= MAX_BATCH_KEYS
        assert batch_bytes(part) <= MAX_BATCH_BYTES
    # No two neighbours would have fitted into one.
    for part, following in pairwise(parts):
        assert len(part) == MAX_BATCH_KEYS or batch_bytes([*part, following[0]]) > MAX_BATCH_BYTES


def test_the_size_of_a_batch_is_that_of_its_encoding() -> None:
    changes = [Change(b"key", 5, b"value"), Change(b"other", ANY_VERSION, b"")]
    entries = tuple(c.TableEntry(c.TableKey(each.key, each.version), each.value or b"") for each in changes)

    def length(entries: tuple[c.TableEntry, ...]) -> int:
        command = c.UpdateTableEntries(request_id=1, segment="s", delegation_token="", table_entries=entries)
        return len(encode(command))

    assert length(entries) - length(()) == batch_bytes(changes) - batch_bytes(())


# --- what a lost answer tells ---------------------------------------------------------------------


@dataclass
class World:
    """A segment, as a store keeps it."""

    newest: int = NOT_EXISTS
    entries: dict[bytes, tuple[bytes, int]] = field(default_factory=dict)
    moved: dict[bytes, int] = field(default_factory=dict)
    """Where compaction has put entries: what conditions are compared with and listings tell, not readings."""

    def holds(self, changes: Sequence[Change]) -> bool:
        return all(change.version in (ANY_VERSION, self.place(change.key)) for change in changes)

    def place(self, key: bytes) -> int:
        return self.moved.get(key, self.entries.get(key, (b"", NOT_EXISTS))[1])

    def compact(self, *keys: bytes) -> None:
        for key in keys:
            self.newest += 1
            self.moved[key] = self.newest

    def make(self, changes: Sequence[Change]) -> bool:
        if not self.holds(changes):
            return False
        for change in changes:
            self.moved.pop(change.key, None)
            if change.value is None:
                self.entries.pop(change.key, None)
            else:
                self.newest += 1
                self.entries[change.key] = (change.value, self.newest)
        return True

    def read(self, keys: Sequence[bytes]) -> list[c.TableEntry | None]:
        return [
            c.TableEntry(c.TableKey(key, self.entries[key][1]), self.entries[key][0])
            if key in self.entries
            else None
            for key in keys
        ]


NAMES = [b"a", b"b", b"c"]
VALUES = st.sampled_from([b"1", b"2"])
OTHERS = st.lists(
    st.builds(Change, st.sampled_from(NAMES), st.just(ANY_VERSION), st.none() | VALUES), max_size=4
)


@given(st.data(), st.booleans(), st.booleans())
def test_settling_never_says_what_is_not_so(data: st.DataObject, sole_writer: bool, arrives: bool) -> None:
    world = World()
    for other in data.draw(OTHERS):
        world.make([other])
    horizon = world.newest if sole_writer else data.draw(st.integers(NOT_EXISTS, world.newest))
    keys = data.draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))
    removing = data.draw(st.booleans())
    changes = []
    for key in keys:
        current = world.entries.get(key, (b"", NOT_EXISTS))[1]
        version = data.draw(
            st.sampled_from([ANY_VERSION, current, current, NOT_EXISTS]) | st.integers(0, max(0, horizon))
        )
        if removing and version == NOT_EXISTS:
            version = ANY_VERSION
        changes.append(Change(key, version, None if removing else data.draw(VALUES)))
    between = [] if sole_writer else data.draw(OTHERS)
    for other in between:
        world.make([other])
    made = world.make(changes) if arrives else False
    for other in [] if sole_writer else data.draw(OTHERS):
        world.make([other])
    found = world.read(keys)
    outcome = settle(changes, found, horizon, sole_writer)
    conditional = any(change.version != ANY_VERSION for change in changes)
    if outcome is None:
        assert not sole_writer
    elif isinstance(outcome, list):
        assert outcome == [NOT_EXISTS if entry is None else entry.key.version for entry in found]
        assert [None if entry is None else entry.value for entry in found] == [each.value for each in changes]
        # That a key was gone already looks to its only writer as if it had been removed.
        assert made or not conditional or removing
    elif not outcome:
        assert not made
        assert not world.holds(changes)
    else:
        assert not made
        assert [(each.key, each.value) for each in outcome] == [(each.key, each.value) for each in changes]
        # It may be made, and then not a second time.
        assert world.make(outcome)
        if not removing:
            assert not world.holds(outcome)


class Script:
    """Stores that answer updates as they are told, and readings from a world."""

    def __init__(self, world: World, *steps: str) -> None:
        self.world = world
        self.steps = list(steps)
        self.operation_timeout = 10.0
        self.sent: list[list[Change]] = []

    async def call(self, target: SegmentTarget, build: Any, *expected: Any, doing: str) -> c.Command:
        await trio.lowlevel.checkpoint()
        command = build(1, "")
        if isinstance(command, c.GetTableSegmentInfo):
            return c.TableSegmentInfo(
                request_id=1, segment_name=target.name, start_offset=0, length=self.world.newest + 1,
                entry_count=0, key_length=1,
            )  # fmt: skip
        if isinstance(command, c.ReadTableKeys):
            [key] = {command.args.from_key, command.args.to_key}
            place = self.world.place(key)
            keys = () if place == NOT_EXISTS else (c.TableKey(key, place),)
            return c.TableKeysRead(request_id=1, segment=target.name, keys=keys, continuation_token=b"")
        assert isinstance(command, c.ReadTable)
        if self.steps and self.steps[0] == "unreadable":
            self.steps.pop(0)
            raise RetriesExhaustedError("cannot be read")
        wanted = [key.data for key in command.keys]
        entries = tuple(
            c.TableEntry(c.TableKey(key, NOT_EXISTS), b"") if entry is None else entry
            for key, entry in zip(wanted, self.world.read(wanted), strict=True)
        )
        return c.TableRead(request_id=1, segment=target.name, entries=entries)

    async def once(
        self, target: SegmentTarget, build: Any, *expected: Any, doing: str, patient: bool
    ) -> c.Command:
        # An update that is sent again while the first one is on its way could be made twice.
        assert patient
        await trio.lowlevel.checkpoint()
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        if step == "unreachable":
            raise ConnectError("no connection")
        command = build(1, "")
        if isinstance(command, c.RemoveTableKeys):
            changes = [Change(key.data, key.version, None) for key in command.keys]
        else:
            assert isinstance(command, c.UpdateTableEntries)
            changes = [Change(each.key.data, each.key.version, each.value) for each in command.table_entries]
        self.sent.append(changes)
        if step == "elsewhere":
            raise WrongHostError("another store")
        if step == "gone":
            raise NoSuchSegmentError("no such segment")
        if step == "never arrives":
            raise ConnectionLostError("lost")
        before = self.world.newest
        made = self.world.make(changes)
        if step == "answer lost":
            raise ConnectionLostError("lost")
        assert step == "ok"
        if not made:
            raise TableKeyDoesNotExistError("no") if len(changes) > 1 else TableKeyBadVersionError("no")
        if changes[0].value is None:
            return c.TableKeysRemoved(request_id=1, segment=target.name)
        versions = tuple(range(before + 1, self.world.newest + 1))
        return c.TableEntriesUpdated(request_id=1, updated_versions=versions)


def played(
    world: World, changes: Sequence[Change], *steps: str, sole_writer: bool = False
) -> tuple[list[int] | PravegaError, Script]:
    """How an update ends, and what was sent; pauses take no time."""
    script = Script(world, *steps)
    segment = TableSegment(cast(SegmentStores, script), TARGET, sole_writer=sole_writer)

    async def main() -> list[int] | PravegaError:
        try:
            return await segment.update(changes)
        except PravegaError as error:
            return error

    return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0)), script


def world_with_a() -> World:
    return World(3, {b"a": (b"old", 3)})


LOST = ConnectionLostError("lost")
UNREACHED = ConnectError("no connection")
REFUSED = WrongHostError("another store")
GONE = NoSuchSegmentError("no such segment")
ANOTHER_VERSION = TableKeyBadVersionError("no")
NO_KEY = TableKeyDoesNotExistError("no")


@pytest.mark.parametrize(
    ("attempts", "following", "lost"),
    [
        ([(False, UNREACHED)], Next.SEND, None),
        ([(True, REFUSED)], Next.SEND, None),
        ([(True, GONE)], Next.GIVE_UP, None),
        ([(False, EncodeError("too long"))], Next.GIVE_UP, None),
        ([(True, ANOTHER_VERSION)], Next.LOCATE, None),
        ([(True, NO_KEY)], Next.LOCATE, None),
        ([(True, LOST)], Next.READ_BACK, LOST),
        # Whether it can be tried again does not matter: it may have been made.
        ([(True, UnexpectedReplyError("two versions"))], Next.READ_BACK, UnexpectedReplyError),
        # The lost attempt may have changed the version, and nothing takes the loss back.
        ([(True, LOST), (True, ANOTHER_VERSION)], Next.READ_BACK, LOST),
        ([(True, LOST), (True, REFUSED)], Next.READ_BACK, LOST),
        ([(True, LOST), (False, UNREACHED)], Next.READ_BACK, LOST),
        ([(True, LOST), (True, GONE)], Next.GIVE_UP, LOST),
        ([(True, REFUSED), (True, LOST)], Next.READ_BACK, LOST),
    ],
)
def test_what_follows_a_failed_attempt(
    attempts: list[tuple[bool, PravegaError]], following: Next, lost: PravegaError | type[PravegaError] | None
) -> None:
    progress = Progress()
    for sent, error in attempts:
        progress.sent = sent
        found = progress.failed(error)
        assert not progress.sent
    assert found is following
    assert progress.lost is lost or type(progress.lost) is lost
    assert progress.may_be_made == (lost is not None)


def test_an_attempt_that_is_not_answered_may_be_made() -> None:
    progress = Progress()
    assert not progress.may_be_made
    progress.sent = True
    assert progress.may_be_made
    assert progress.failed(REFUSED) is Next.SEND
    assert not progress.may_be_made


def test_what_has_not_been_sent_is_sent_later() -> None:
    for steps in (["unreachable"] * 3, ["elsewhere"] * 3, ["unreachable", "elsewhere"]):
        outcome, script = played(World(), [Change(b"a", NOT_EXISTS, b"1")], *steps, "ok")
        assert outcome == [0]
        assert len(script.sent) == steps.count("elsewhere") + 1


def test_a_store_that_is_never_reached_is_no_unknown_outcome() -> None:
    for step in ("unreachable", "elsewhere"):
        world = World()
        outcome, _ = played(world, [Change(b"a", NOT_EXISTS, b"1")], step)
        assert isinstance(outcome, RetriesExhaustedError)
        assert "t_kvtable" in outcome.message
        assert world.entries == {}


@pytest.mark.parametrize("size", [1, 2])
def test_conditions_that_fail_are_one_error(size: int) -> None:
    changes = [Change(b"abc"[n : n + 1], 2, b"1") for n in range(size)]
    outcome, script = played(world_with_a(), changes, "ok")
    assert isinstance(outcome, TableKeyBadVersionError)
    assert len(script.sent) == 1


def test_a_key_that_is_as_it_was_is_updated_again_on_its_version() -> None:
    for version in (3, ANY_VERSION):
        world = world_with_a()
        outcome, script = played(
            world, [Change(b"a", version, b"new"), Change(b"b", ANY_VERSION, b"x")], "never arrives", "ok"
        )
        assert outcome == [4, 5]
        # The first may still be on its way: only one of the two can be made.
        assert script.sent[1] == [Change(b"a", 3, b"new"), Change(b"b", NOT_EXISTS, b"x")]
        assert not world.holds(script.sent[1])


def test_a_lost_answer_is_the_answer_where_there_was_no_condition() -> None:
    outcome, script = played(world_with_a(), [Change(b"a", ANY_VERSION, b"new")], "answer lost")
    assert outcome == [4]
    assert len(script.sent) == 1


def test_a_lost_answer_with_a_condition_is_unknown_unless_nobody_else_writes() -> None:
    change = Change(b"a", 3, b"new")
    outcome, script = played(world_with_a(), [change], "answer lost")
    assert isinstance(outcome, TableOutcomeUnknownError)
    assert outcome.found == (c.TableEntry(c.TableKey(b"a", 4), b"new"),)
    assert len(script.sent) == 1
    outcome, script = played(world_with_a(), [change], "answer lost", sole_writer=True)
    assert outcome == [4]
    assert len(script.sent) == 1


def test_sent_twice_and_the_first_was_made_after_all() -> None:
    """The second is refused because of the first, which does not make it a failed condition."""
    world = world_with_a()
    script = Script(world, "never arrives", "ok")
    first = script.once

    async def late(target: SegmentTarget, build: Any, *expected: Any, doing: str, patient: bool) -> c.Command:
        if len(script.sent) == 1:
            world.make(script.sent[0])
        return await first(target, build, *expected, doing=doing, patient=patient)

    script.once = late  # type: ignore[method-assign]
    for sole_writer in (True, False):
        world.newest, world.entries = 3, {b"a": (b"old", 3)}
        script.steps, script.sent = ["never arrives", "ok"], []
        segment = TableSegment(cast(SegmentStores, script), TARGET, sole_writer=sole_writer)
        if sole_writer:
            assert trio.run(segment.update, [Change(b"a", 3, b"new")]) == [4]
        else:
            with pytest.raises(TableOutcomeUnknownError):
                trio.run(segment.update, [Change(b"a", 3, b"new")])
        assert len(script.sent) == 2
        assert world.entries == {b"a": (b"new", 4)}


@pytest.mark.parametrize("then", ["unreadable", "gone"])
def test_a_lost_answer_and_then_nothing_to_be_learned(then: str) -> None:
    steps = ["answer lost", "unreadable"] if then == "unreadable" else ["never arrives", "gone"]
    outcome, _ = played(world_with_a(), [Change(b"a", 3, b"new")], *steps)
    assert isinstance(outcome, TableOutcomeUnknownError)
    assert outcome.found == ()
    assert re.search("answer was lost: .*Reading its keys did not tell: ", outcome.message)


@pytest.mark.parametrize("value", [b"new", None])
@pytest.mark.parametrize("steps", [("ok",), ("never arrives", "ok"), ("answer lost", "ok")])
def test_entries_that_compaction_has_moved(value: bytes | None, steps: tuple[str, ...]) -> None:
    """They have the version that they always had, though the store compares conditions with another."""
    world = world_with_a()
    world.make([Change(b"b", ANY_VERSION, b"old")])
    held = {key: entry[1] for key, entry in world.entries.items()}
    world.compact(b"a")
    changes = [Change(key, version, value) for key, version in held.items()]
    outcome, _ = played(world, changes, *steps, sole_writer=True)
    assert isinstance(outcome, list), outcome
    assert {key: entry[0] for key, entry in world.entries.items()} == (
        {} if value is None else {b"a": value, b"b": value}
    )
    # A condition that does not hold is found out as before.
    with_other = [Change(b"a", held[b"a"] + 50, b"x")]
    world = world_with_a()
    world.compact(b"a")
    outcome, _ = played(world, with_other, "ok")
    assert isinstance(outcome, TableKeyBadVersionError)


@pytest.mark.parametrize("steps", [("never arrives", "ok"), ("ok",)])
def test_an_update_without_conditions_of_an_entry_that_was_moved(steps: tuple[str, ...]) -> None:
    world = world_with_a()
    world.compact(b"a")
    outcome, _ = played(world, [Change(b"a", ANY_VERSION, b"new")], *steps)
    assert isinstance(outcome, list), outcome
    assert world.entries[b"a"][0] == b"new"


@pytest.mark.parametrize("sole_writer", [True, False])
@pytest.mark.parametrize("warm", [True, False])
def test_a_segment_that_was_made_again_says_nothing_of_before(sole_writer: bool, warm: bool) -> None:
    """Its versions begin anew, so one that is not above the old ones may be that of the lost update."""
    world = World()
    script = Script(world, "ok")
    segment = TableSegment(cast(SegmentStores, script), TARGET, sole_writer=sole_writer)
    for number in range(20):
        trio.run(segment.update, [Change(b"k", ANY_VERSION, b"%d" % number)])
    world.newest, world.entries = NOT_EXISTS, {}
    if warm:
        # An answer shows that it is another segment, and the next update is settled as usual.
        assert trio.run(segment.update, [Change(b"b", ANY_VERSION, b"x")]) == [0]
    script.steps = ["answer lost", "ok"]
    made = c.TableEntry(c.TableKey(b"a", int(warm)), b"mine")
    if warm and sole_writer:
        assert trio.run(segment.update, [Change(b"a", NOT_EXISTS, b"mine")]) == [made.key.version]
    else:
        shorter = rf"the segment ends at {made.key.version + 1} now, although it had reached"
        why = "have the versions" if warm else shorter
        with pytest.raises(TableOutcomeUnknownError, match=why) as unknown:
            trio.run(segment.update, [Change(b"a", NOT_EXISTS, b"mine")])
        assert unknown.value.found == (made,)
    assert world.read([b"a"]) == [made]
    # From then on it is known as well.
    script.steps = ["never arrives", "ok"]
    version = made.key.version
    assert trio.run(segment.update, [Change(b"a", version, b"later")]) == [version + 1]


def test_first_updates_at_once_forget_no_version_that_another_one_got() -> None:
    """The length that one has asked for arrives when another one has been made beyond it."""
    world = world_with_a()
    script = Script(world, "ok")
    asked: list[trio.Event] = []
    ask = script.call

    async def slow(target: SegmentTarget, build: Any, *expected: Any, doing: str) -> c.Command:
        reply = await ask(target, build, *expected, doing=doing)
        if isinstance(reply, c.TableSegmentInfo) and not asked:
            asked.append(trio.Event())
            await asked[0].wait()
        return reply

    script.call = slow  # type: ignore[method-assign]
    segment = TableSegment(cast(SegmentStores, script), TARGET)

    async def refused() -> None:
        with pytest.raises(NoSuchSegmentError):
            await segment.update([Change(b"b", ANY_VERSION, b"x")])

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(refused)
            await trio.testing.wait_all_tasks_blocked()
            await segment.update([Change(b"a", ANY_VERSION, b"1")])
            script.steps = ["gone"]
            asked[0].set()
        script.steps = ["never arrives", "ok"]
        await segment.update([Change(b"a", ANY_VERSION, b"2")])

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert world.entries[b"a"][0] == b"2"


def test_replacing_what_was_compacted_happens_once() -> None:
    """A first attempt that is late must not be made besides the second one: another writer came between."""
    world = world_with_a()
    world.compact(b"a")
    script = Script(world, "never arrives", "ok")
    first = script.once

    async def late(target: SegmentTarget, build: Any, *expected: Any, doing: str, patient: bool) -> c.Command:
        if "never arrives" not in script.steps and world.entries[b"a"][0] == b"old":
            # The lost request, as it was sent when it reached the right condition.
            assert world.make([Change(b"a", world.place(b"a"), b"mine")])
            assert world.make([Change(b"a", ANY_VERSION, b"theirs")])
        return await first(target, build, *expected, doing=doing, patient=patient)

    script.once = late  # type: ignore[method-assign]
    segment = TableSegment(cast(SegmentStores, script), TARGET)
    table = table_of([cast(Memory, segment)], 1, 0)

    async def main() -> None:
        with pytest.raises(TableOutcomeUnknownError):
            await table.replace(b"a", b"mine")

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert world.entries[b"a"][0] == b"theirs"


@pytest.mark.parametrize("steps", [("ok",), ("never arrives", "ok"), ("unreachable", "ok")])
def test_replacing_what_was_compacted(steps: tuple[str, ...]) -> None:
    world = world_with_a()
    world.compact(b"a")
    segment = TableSegment(cast(SegmentStores, Script(world, *steps)), TARGET)
    table = table_of([cast(Memory, segment)], 1, 0)

    async def main() -> None:
        version = await table.replace(b"a", b"new")
        assert world.entries[b"a"] == (b"new", version.version)
        with pytest.raises(TableKeyDoesNotExistError):
            await table.replace(b"b", b"new")

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_an_unknown_outcome_is_told_although_nobody_can_read_what_is_there() -> None:
    def fail(payload: bytes) -> bytes:
        raise ZeroDivisionError("of the user")

    world = world_with_a()
    segment = TableSegment(cast(SegmentStores, Script(world, "answer lost")), TARGET)
    table = table_of([cast(Memory, segment)], 1, 0)
    table._values = FunctionSerializer(bytes, fail)
    table._foreign = True

    async def main() -> None:
        with pytest.raises(TableOutcomeUnknownError, match="ZeroDivisionError: of the user") as unknown:
            await table.insert(b"b", b"x")
        assert unknown.value.found == ()
        assert isinstance(unknown.value.__cause__, ConnectionLostError)

    trio.run(main)
    assert world.entries[b"b"][0] == b"x"


def test_an_answer_that_is_lost_every_time() -> None:
    world = world_with_a()
    outcome, script = played(world, [Change(b"a", 3, b"new")], "never arrives")
    assert isinstance(outcome, TableOutcomeUnknownError)
    assert len(script.sent) > 3
    assert world.entries == {b"a": (b"old", 3)}


def answered(*entries: c.TableEntry) -> TableSegment:
    """A segment whose readings are answered with these entries, whatever is asked."""

    class Fixed(Script):
        async def call(self, target: SegmentTarget, build: Any, *expected: Any, doing: str) -> c.Command:
            await trio.lowlevel.checkpoint()
            return c.TableRead(request_id=1, segment="s", entries=entries)

    return TableSegment(cast(SegmentStores, Fixed(World())), TARGET)


@pytest.mark.parametrize(
    "keys", [[], [b"b"], [b"a", b"b"], [b"b", b"a"]], ids=["none", "another", "too many", "in another order"]
)
def test_reading_that_answers_another_question(keys: list[bytes]) -> None:
    segment = answered(*(c.TableEntry(c.TableKey(key, 7), b"v") for key in keys))
    wanted = [b"a", b"b"] if keys == [b"b", b"a"] else [b"a"]
    with pytest.raises(DecodeError, match="t_kvtable"):
        trio.run(segment.read, wanted)


def test_the_place_tells_the_key_of_an_entry_that_does_not_exist() -> None:
    """A store may have lost the key's bytes when it answers; those of an entry that exists are its own."""
    here = c.TableEntry(c.TableKey(b"b", 7), b"v")
    segment = answered(c.TableEntry(c.TableKey(b"?", NOT_EXISTS), b""), here)
    assert trio.run(segment.read, [b"a", b"b"]) == [None, here]


def test_entries_and_keys_are_values() -> None:
    key = TableKey(b"a", b"b")
    assert key == (b"a", b"b")
    assert sorted([TableKey(b"b", b"a"), key])[0] is key
    with pytest.raises(InvalidArgumentError):
        table_of([Memory()]).family(5)
    entry: Any = TableEntry(key, b"", cast(Any, None))
    with pytest.raises(AttributeError):
        entry.value = b"x"


@pytest.mark.parametrize("kind", [Insert[bytes, int], Put[bytes, int]])
def test_typed_programs_may_name_the_types(kind: type[Insert[bytes, int]]) -> None:
    assert kind(b"k", 1).value == 1


def test_typed_programs_may_name_the_types_of_removals_and_states() -> None:
    assert Remove[bytes](b"k").key == b"k"
    states = StateFormat[int, int](JsonSerializer(), JsonSerializer(), lambda state, update: state + update)
    assert states.step(1, 2) == 3
