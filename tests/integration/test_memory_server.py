"""The store in memory answers as the real one: the same commands, reply by reply."""

from __future__ import annotations

import re
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import fields
from itertools import count
from random import Random
from typing import Any
from uuid import UUID

import pytest

from pravega_wire import PravegaConfig
from pravega_wire.controller.client import open_controller
from pravega_wire.protocol import codec
from pravega_wire.protocol import commands as c
from pravega_wire.protocol.frames import FrameDecoder
from pravega_wire.testing.memory.store import SegmentStore

ANY = -(2**63)
SECONDS_UNTIL_IT_HANGS = 120
W, X, Y, Z = (UUID(int=77 + each) for each in range(4))
OF_REPLIES = {"server_stack_trace", "last_modified", "message", "continuation_token"}
"""Fields whose values nobody depends on."""

Steps = Iterator[list[c.Command]]
Program = Callable[[str], Steps]


def block(number: int, data: bytes, *, writer: UUID = W, count: int = 1) -> c.AppendBlockEnd:
    return c.AppendBlockEnd(writer, 0, data, count, number, 5)


def attribute(number: int) -> UUID:
    return UUID(int=(1 << 127) | number)


def entry(key: bytes, value: bytes, version: int = ANY) -> c.TableEntry:
    return c.TableEntry(c.TableKey(key, version), value)


def iterator(first: bytes = b"", last: bytes = b"", token: bytes = b"") -> c.TableIteratorArgs:
    return c.TableIteratorArgs(token, b"", first, last)


def appends(scope: str) -> Steps:
    name = f"{scope}/s/0.#epoch.0"
    yield [c.GetStreamSegmentInfo(1, name, "")]
    yield [c.SetupAppend(5, W, name, "")]
    yield [c.CreateSegment(1, name, 0, 0, "", 0)]
    yield [c.CreateSegment(1, name, 0, 0, "", 0)]
    yield [c.SetupAppend(5, W, name, "")]
    yield [block(1, b"one")]
    yield [block(4, b"three", count=3)]
    # The second one is not acknowledged; the information shows that it was stored.
    yield [block(4, b"again"), block(5, b"next")]
    yield [c.GetStreamSegmentInfo(1, name, "")]
    yield [c.GetSegmentAttribute(1, name, each, "") for each in (W, X, attribute(1), attribute(9))]
    yield [c.ConditionalAppend(W, 6, 0, b"no", 9)]
    yield [c.ConditionalAppend(W, 7, 18, b"yes", 9)]
    yield [c.GetStreamSegmentInfo(1, name, "")]
    yield [block(6, b"back")]
    yield [c.SetupAppend(5, W, name, "")]
    yield [c.ConditionalBlockEnd(W, 9, 0, b"raw", 9)]
    yield [block(-1, b"negative")]
    yield [block(1, b"no set-up", writer=Z)]
    yield [c.SetupAppend(5, W, name, "")]
    yield [block(20, b"nothing", count=0)]
    yield [c.SetupAppend(5, W, name, "")]
    yield [c.SealSegment(1, name, "")]
    yield [block(21, b"sealed")]
    yield [block(22, b"sealed")]
    yield [c.SetupAppend(5, W, name, "")]
    yield [c.AppendBlock(W, b"da"), c.KeepAlive()]
    yield [c.GetStreamSegmentInfo(1, name, "")]
    yield [c.SetupAppend(5, W, name, "")]


def reads(scope: str) -> Steps:
    name = f"{scope}/s/0.#epoch.0"
    yield [c.ReadSegment(name, 0, 9, "", 3)]
    yield [c.CreateSegment(1, name, 0, 0, "", 0)]
    yield [c.SetupAppend(5, W, name, "")]
    yield [c.ReadSegment(name, 0, 8, "", 3), block(1, b"12345678")]
    for offset, length in ((0, 8), (0, 9), (3, 2)):
        yield [c.ReadSegment(name, offset, length, "", 3)]
    yield [c.TruncateSegment(1, name, 100, "")]
    yield [c.TruncateSegment(1, name, 4, "")]
    yield [c.TruncateSegment(1, name, 2, "")]
    yield [c.ReadSegment(name, 1, 9, "", 3)]
    yield [c.ReadSegment(name, 8, 9, "", 3), c.SealSegment(1, name, "")]
    yield [c.SealSegment(1, name, "")]
    for offset, length in ((8, 9), (4, 9), (4, 4), (4, 8), (9, 9)):
        yield [c.ReadSegment(name, offset, length, "", 3)]
    yield [c.UpdateSegmentAttribute(1, name, X, 7, ANY, "")]
    yield [c.UpdateSegmentPolicy(1, name, 5, 2, "")]
    yield [c.TruncateSegment(1, name, 6, "")]
    yield [c.DeleteSegment(1, name, "")]
    yield [c.DeleteSegment(1, name, "")]
    yield [c.TruncateSegment(1, name, 6, "")]


def attributes(scope: str) -> Steps:
    name = f"{scope}/s/0.#epoch.0"
    yield [c.CreateSegment(1, name, 7, 1, "", 99)]
    yield [c.GetSegmentAttribute(1, name, attribute(each), "") for each in (2, 3, 4)]
    yield [c.UpdateSegmentAttribute(1, name, X, 7, ANY, "")]
    yield [c.UpdateSegmentAttribute(1, name, X, 8, ANY, "")]
    yield [c.UpdateSegmentAttribute(1, name, X, ANY, 7, "")]
    yield [c.GetSegmentAttribute(1, name, X, "")]
    yield [c.UpdateSegmentPolicy(1, name, 5, 2, "")]
    yield [c.GetSegmentAttribute(1, name, attribute(each), "") for each in (2, 3)]


def merges(scope: str) -> Steps:
    target, sealed, missing = (f"{scope}/{each}/0.#epoch.0" for each in ("t", "sealed", "missing"))
    sources = [f"{scope}/s/{each}.#epoch.0" for each in range(6)]
    yield [c.CreateSegment(1, each, 0, 0, "", 0) for each in (target, sealed, *sources)]
    yield [c.SealSegment(1, sealed, "")]
    for writer, name in ((W, sources[0]), (X, sources[1]), (Y, sources[4]), (Z, sources[3])):
        yield [c.SetupAppend(5, writer, name, "")]
        yield [block(1, b"data", writer=writer)]
    yield [c.MergeSegments(1, target, sources[0], "", ())]
    # What else a merged segment answers depends on whether the store has come to it.
    yield [c.GetStreamSegmentInfo(1, sources[0], "")]
    yield [c.GetSegmentAttribute(1, sources[0], W, "")]
    yield [c.MergeSegmentsBatch(1, target, (sources[0],), "")]
    yield [c.MergeSegments(1, target, sources[1], "", (c.AttributeUpdate(X, 4, 5, 6),))]
    yield [c.GetStreamSegmentInfo(1, sources[1], "")]
    # It is not set, but the store has looked.
    yield [c.MergeSegments(1, target, sources[1], "", (c.AttributeUpdate(X, 0, 5, 0),))]
    yield [c.MergeSegments(1, target, sources[1], "", (c.AttributeUpdate(Y, 0, 5, 0),))]
    yield [c.GetSegmentAttribute(1, target, each, "") for each in (X, Y, attribute(1))]
    yield [c.MergeSegments(1, target, sources[2], "", (c.AttributeUpdate(Z, 0, 5, 0),))]
    yield [c.GetSegmentAttribute(1, target, Z, "")]
    yield [c.MergeSegments(1, sealed, sources[3], "", ())]
    yield [c.GetStreamSegmentInfo(1, sources[3], "")]
    yield [c.MergeSegments(1, missing, sources[5], "", ())]
    yield [c.GetStreamSegmentInfo(1, sources[5], "")]
    yield [c.MergeSegmentsBatch(1, target, (sources[3],), "")]
    yield [c.MergeSegmentsBatch(1, target, (sources[3], sources[0], missing), "")]
    yield [c.MergeSegmentsBatch(1, sealed, (sources[4],), "")]
    yield [c.MergeSegmentsBatch(1, sealed, (sources[5],), "")]
    yield [c.MergeSegmentsBatch(1, missing, (sources[4],), "")]
    yield [c.CreateTransientSegment(1, W, target, "")]
    yield [c.CreateTransientSegment(1, W, missing, "")]


def tables(scope: str) -> Steps:
    name, plain = f"{scope}/t_kvtable/0.#epoch.0", f"{scope}/s/0.#epoch.0"
    yield [c.CreateSegment(1, plain, 0, 0, "", 0)]
    yield [c.ReadTable(1, name, "", (c.TableKey(b"dddd", ANY),))]
    yield [c.CreateTableSegment(1, name, "", False, 4, 0)]
    yield [c.CreateTableSegment(1, name, "", False, 4, 0)]
    for entries, at in (
        ((entry(b"aaaa", b"1"), entry(b"bbbb", b"22")), -1),
        ((entry(b"aaaa", b"3"),), -1),
        ((entry(b"aaaa", b"3", 0),), -1),
        ((entry(b"aaaa", b"3", -1),), -1),
        ((entry(b"cccc", b"3", 7),), -1),
        ((entry(b"cccc", b"3"),), 5),
        ((entry(b"cccc", b"3", -1),), 67),
        ((entry(b"ccc", b"3", -1),), -1),
        ((entry(b"dddd", b"3"), entry(b"dddd", b"4")), -1),
        ((), -1),
        ((entry(b"", b"3"),), -1),
    ):
        yield [c.UpdateTableEntries(1, name, "", entries, at)]
    for keys in ((b"dddd", b"zzzz", b"aaaa"), (b"ddd",), (b"",)):
        yield [c.ReadTable(1, name, "", tuple(c.TableKey(each, ANY) for each in keys))]
    for args in (
        iterator(), iterator(b"bbbb"), iterator(b"bbbb", b"cccc"), iterator(token=b"bbbb"), iterator(b"bb"),
    ):  # fmt: skip
        yield [c.ReadTableKeys(1, name, "", 2, args)]
    yield [c.ReadTableEntries(1, name, "", 100, iterator())]
    yield [c.ReadTableEntriesDelta(1, name, "", 0, 100)]
    for key, version in ((b"aaaa", 0), (b"yyyy", 0), (b"aaaa", ANY), (b"yyyy", ANY), (b"aaaa", -1)):
        yield [c.RemoveTableKeys(1, name, "", (c.TableKey(key, version),), -1)]
    yield [c.GetStreamSegmentInfo(1, name, "")]
    yield [c.DeleteTableSegment(1, name, True, "")]
    yield [c.GetTableSegmentInfo(1, plain, "")]
    yield [c.UpdateTableEntries(1, plain, "", (entry(b"dddd", b""),), -1)]
    yield [c.DeleteTableSegment(1, plain, False, "")]
    yield [c.DeleteTableSegment(1, name, False, "")]
    yield [c.GetTableSegmentInfo(1, name, "")]


def hash_tables(scope: str) -> Steps:
    name = f"{scope}/t_kvtable/0.#epoch.0"
    yield [c.CreateTableSegment(1, name, "", False, 0, 0)]
    yield [c.UpdateTableEntries(1, name, "", (entry(b"a", b"1"), entry(b"bbbb", b"22")), -1)]
    yield [c.UpdateTableEntries(1, name, "", (entry(b"c", b"1", 5),), -1)]
    yield [c.UpdateTableEntries(1, name, "", (entry(b"a", b"1", 5),), -1)]
    yield [c.UpdateTableEntries(1, name, "", (entry(b"a", b"9", 0),), -1)]
    yield [c.ReadTable(1, name, "", (c.TableKey(b"a", ANY), c.TableKey(b"q", ANY)))]
    yield [c.ReadTableEntriesDelta(1, name, "", 0, 100)]
    yield [c.RemoveTableKeys(1, name, "", (c.TableKey(b"a", ANY),), -1)]
    yield [c.ReadTableEntriesDelta(1, name, "", 0, 100)]
    yield [c.ReadTableEntriesDelta(1, name, "", 1000, 100)]
    yield [c.DeleteTableSegment(1, name, True, "")]
    yield [c.RemoveTableKeys(1, name, "", (c.TableKey(b"bbbb", ANY),), -1)]
    yield [c.DeleteTableSegment(1, name, True, "")]


def connections(scope: str) -> Steps:
    yield [c.KeepAlive()]
    yield [c.Padding(b"\0\0"), c.KeepAlive()]
    yield [c.FlushToStorage(0, "", 1)]
    yield [c.SegmentSealed(1, "a")]
    yield [c.Hello(4, 3)]
    yield [c.Hello(20, 17)]
    yield [c.Hello(17, 16)]


def anything(scope: str, rng: Random) -> Steps:
    """Commands in any order, but those whose answers depend on when a store comes to what is behind them."""
    names = [f"{scope}/s/{each}.#epoch.0" for each in range(3)]
    table = f"{scope}/t_kvtable/0.#epoch.0"
    keys = [b"aaaa", b"bbbb", b"cccc", b"long"]
    numbers = count(1)
    yield [c.CreateSegment(1, each, 0, 0, "", 0) for each in names[:2]]
    yield [c.CreateTableSegment(1, table, "", False, 4, 0)]
    for _ in range(60):
        name, writer, at = rng.choice(names), rng.choice((W, X)), rng.choice((0, 1, 4, 8, 12, 30))
        version = rng.choice((ANY, ANY, -1, 0, 22, 44, 66))
        some = rng.sample(keys, rng.randint(1, 3))
        demanded = tuple(c.TableKey(each, version) for each in some)
        number = next(numbers)
        commands: list[c.Command] = [
            c.SetupAppend(5, writer, name, ""),
            block(number, bytes(rng.randint(1, 9)), writer=writer),
            c.ConditionalAppend(writer, number, at, b"data", 5),
            c.ConditionalBlockEnd(writer, number, at, b"data", 5),
            c.ReadSegment(name, at, rng.choice((1, 8, 100)), "", 3),
            c.GetStreamSegmentInfo(1, name, ""),
            c.TruncateSegment(1, name, at, ""),
            c.GetSegmentAttribute(1, name, rng.choice((W, X, Y)), ""),
            c.UpdateSegmentAttribute(1, name, Y, rng.choice((1, 2, ANY)), rng.choice((1, 2, ANY)), ""),
            c.UpdateSegmentPolicy(1, name, at, 2, ""),
            c.CreateSegment(1, name, 0, 0, "", 0),
            c.UpdateTableEntries(1, table, "", tuple(entry(each, b"value", version) for each in some), -1),
            c.UpdateTableEntries(1, table, "", (entry(some[0], b"v"),), rng.choice((0, 22, 44))),
            c.RemoveTableKeys(1, table, "", demanded, -1),
            c.ReadTable(1, table, "", tuple(c.TableKey(each, ANY) for each in some)),
            c.ReadTableKeys(
                1, table, "", 2, iterator(rng.choice((b"", b"bbbb")), rng.choice((b"", b"cccc")))
            ),
        ]
        if rng.random() < 0.02:
            commands = [c.SealSegment(1, name, "")]
        yield [rng.choice(commands)]


PROGRAMS = (appends, reads, attributes, merges, tables, hash_tables, connections)


class Memory:
    """The store in memory, without sockets."""

    def __init__(self) -> None:
        self._store = SegmentStore(time.time, Random(0))
        self._connect()

    def _connect(self) -> None:
        self._replies: list[c.Command | None] = []
        self._connection = self._store.connect(self._replies.append, lambda: self._replies.append(None))

    def answers(self, commands: list[c.Command]) -> list[c.Command | None]:
        """Send commands; return the replies, and None at the end if the connection was closed."""
        self._replies.clear()
        for each in commands:
            self._connection.receive(each)
        found = list(self._replies)
        if None in found:
            self._connect()
        return found


class Real:
    """A connection to a store at an address."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._connect()

    def _connect(self) -> None:
        self._socket = socket.create_connection(self._address, SECONDS_UNTIL_IT_HANGS)
        self._decoder = FrameDecoder()
        self._waiting: list[c.Command | None] = []

    def close(self) -> None:
        self._socket.close()

    def answers(self, commands: list[c.Command], wanted: int) -> list[c.Command | None]:
        """Send commands; return a number of replies, fewer if the connection is closed."""
        self._socket.sendall(b"".join(map(codec.encode, commands)))
        while len(self._waiting) < wanted and None not in self._waiting:
            try:
                data = self._socket.recv(1 << 20)
            except ConnectionError:
                data = b""
            self._waiting += self._decoder.feed(data) if data else [None]
        found, self._waiting = self._waiting, []
        if None in found:
            self.close()
            self._connect()
        return found


def comparable(replies: list[c.Command | None]) -> Counter[tuple[object, ...]]:
    """What must be the same; replies to several commands may come in any order."""

    def plain(name: str, value: Any) -> object:
        if isinstance(value, memoryview):
            return bytes(value)
        return re.sub("#transient.*", "", value) if name == "segment" else value

    return Counter(
        (
            type(reply),
            *(
                plain(each.name, getattr(reply, each.name))
                for each in (() if reply is None else fields(reply))  # type: ignore[arg-type]
                if each.name not in OF_REPLIES
            ),
        )
        for reply in replies
    )


@pytest.mark.parametrize("seed", range(20))
async def test_anything_is_answered_as_by_the_real_one(config: PravegaConfig, seed: int) -> None:
    await compare(config, lambda scope: anything(scope, Random(seed)))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
async def test_a_store_in_memory_answers_as_the_real_one(config: PravegaConfig, program: Program) -> None:
    await compare(config, program)


async def compare(config: PravegaConfig, program: Program) -> None:
    """Send the same commands to both."""
    scope = str(config.scope)
    async with open_controller(config.endpoints) as controller:
        uri = await controller.get_uri(scope, "s", 0)
    memory = Memory()
    with closing(Real((uri.host, uri.port))) as real:
        for number, commands in enumerate(program(scope)):
            expected = memory.answers(commands)
            found = real.answers(commands, len(expected))
            assert comparable(found) == comparable(expected), (number, commands, found, expected)
        # Nothing was answered that should not be.
        assert real.answers([c.KeepAlive()], 1) == [c.KeepAlive()]
