"""The store in memory answers as the real one: the same commands, reply by reply."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import UUID

import pytest

from pravega_wire import PravegaConfig
from pravega_wire.controller.client import open_controller
from pravega_wire.protocol import codec
from pravega_wire.protocol import commands as c
from tests.comparing import Memory, StoreLink, comparable, encoded

pytestmark = pytest.mark.real_server("the server in memory is compared with it")

ANY = -(2**63)
W, X, Y, Z = (UUID(int=77 + each) for each in range(4))

Steps = Iterator[list[c.Command] | bytes]
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
    # The real one forgets a writer after it has sent the refusal; until then it refuses in the same way.
    yield [c.GetStreamSegmentInfo(1, name, "")]
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


def offsets(scope: str) -> Steps:
    """What is refused depends on whether the container has the segment at hand."""
    names = [f"{scope}/s/{each}.#epoch.0" for each in range(4)]
    yield [c.CreateSegment(at, each, 0, 0, "", 0) for at, each in enumerate(names)]
    yield [c.GetStreamSegmentInfo(1, names[0], ""), c.GetSegmentAttribute(2, names[0], W, "")]
    yield [c.ReadSegment(names[0], -1, 9, "", 3)]
    yield [c.ReadSegment(names[0], -1, 9, "", 3)]
    yield [c.TruncateSegment(4, names[1], -1, "")]
    yield [c.TruncateSegment(4, names[1], -1, "")]
    yield [c.MergeSegments(1, names[2], f"{scope}/missing/0.#epoch.0", "", ())]
    yield [c.ReadSegment(names[2], -1, 9, "", 3)]
    yield [c.SetupAppend(5, W, names[3], "")]
    yield [c.ConditionalAppend(W, 1, -1, b"anywhere", 9)]
    yield [c.ConditionalAppend(W, 2, 99, b"there", 9)]
    yield [c.GetStreamSegmentInfo(1, names[3], "")]


def blocks(scope: str) -> Steps:
    name = f"{scope}/s/0.#epoch.0"
    event = codec.HEADER.pack(0, 4) + b"data"
    partial = codec.HEADER.pack(-3, 5) + event[:5]
    yield [c.CreateSegment(1, name, 0, 0, "", 0)]
    for number, (data, whole, rest) in enumerate(
        (
            (event, 12, b""), (event + partial, 12, event[5:]), (event, 12, event), (event, 24, b""),
            (event, 5, event), (event + codec.HEADER.pack(-1, 0), 12, b""), (event + partial, 12, b""),
        ),
        1,
    ):  # fmt: skip
        yield [c.SetupAppend(5, W, name, "")]
        yield [c.AppendBlock(W, data), c.AppendBlockEnd(W, whole, rest, 1, number, 5)]
        yield [c.GetStreamSegmentInfo(1, name, "")]
    yield [c.PartialEvent(b"data"), c.KeepAlive()]
    yield [c.Event(b"data"), c.KeepAlive()]


def merges_of_attributes(scope: str) -> Steps:
    """Changes are compared with what was before all of them; an empty source is only deleted."""
    target, *sources = (f"{scope}/s/{each}.#epoch.0" for each in range(14))
    yield [c.CreateSegment(at, each, 0, 0, "", 0) for at, each in enumerate((target, *sources))]
    updates = iter(sources)
    for at, several in enumerate(
        (
            ((X, 1, 2, ANY), (X, 0, 1, ANY)),
            ((Y, 0, 1, ANY), (Y, 4, ANY, 1)),
            ((Z, 2, ANY, 2), (Z, 4, 2, ANY)),
            ((W, 4, 2, 1),),
            ((W, 3, 5, ANY),),
            ((W, 3, 5, ANY),),
            ((X, 1, 7, 0), (X, 3, 1, 0)),
        )
    ):
        changes = tuple(c.AttributeUpdate(*each) for each in several)
        yield [c.MergeSegments(at, target, next(updates), "", changes)]
        yield [c.GetSegmentAttribute(at, target, each, "") for each in (W, X, Y, Z)]
    empty, other, first, second = (next(updates) for _ in range(4))
    yield [c.MergeSegments(1, target, empty, "", ())]
    yield [c.MergeSegments(1, target, empty, "", ())]
    yield [c.MergeSegments(1, empty, other, "", ())]
    yield [c.GetStreamSegmentInfo(1, other, "")]
    yield [c.MergeSegmentsBatch(1, f"{scope}/missing/0.#epoch.0", (), "")]
    for writer, name in ((W, first), (X, second)):
        yield [c.SetupAppend(5, writer, name, "")]
        yield [block(1, b"data", writer=writer)]
    yield [c.MergeSegmentsBatch(1, target, (first, second), "")]
    yield [c.GetStreamSegmentInfo(1, target, "")]


def conditions(scope: str) -> Steps:
    """Of tables: versions are looked at before the length of the segment."""
    fixed, hashed = (f"{scope}/{each}_kvtable/0.#epoch.0" for each in "fh")
    yield [c.CreateTableSegment(1, fixed, "", False, 4, 0), c.CreateTableSegment(2, hashed, "", False, 0, 7)]
    for name in (fixed, hashed):
        yield [c.GetSegmentAttribute(at, name, attribute(at), "") for at in (2, 3, 4, 9)]
        yield [c.UpdateTableEntries(1, name, "", (entry(b"aaaa", b"1"), entry(b"bbbb", b"2", 3)), 5)]
        yield [c.UpdateTableEntries(1, name, "", (entry(b"aaaa", b"1"), entry(b"bbbb", b"2", -1)), 5)]
        yield [c.UpdateTableEntries(1, name, "", (entry(b"aaaa", b"1"), entry(b"bbbb", b"2", -1)), 0)]
        yield [c.UpdateTableEntries(1, name, "", (entry(b"aaaa", b"1", 7), entry(b"cccc", b"2", 3)), -1)]
        yield [c.RemoveTableKeys(1, name, "", (c.TableKey(b"aaaa", 7),), 5)]
        yield [c.RemoveTableKeys(1, name, "", (c.TableKey(b"cccc", ANY), c.TableKey(b"cccc", -1)), -1)]
        yield [c.GetTableSegmentInfo(1, name, "")]
        yield [c.ReadTableKeys(1, name, "", 1, iterator())]
    yield [c.ReadTableKeys(1, fixed, "", 100, iterator(b"bbbb", b"aaaa"))]
    for position in (0, 1 << 20):
        yield [c.ReadTableEntriesDelta(1, hashed, "", position, 100)]
    yield [c.CreateTableSegment(1, f"{hashed}0", "", False, 0, 0)]
    yield [c.ReadTableEntriesDelta(1, f"{hashed}0", "", 0, 100)]
    yield [c.ReadTableKeys(1, hashed, "", 9, iterator(b"a"))]


def truncated_sources(scope: str) -> Steps:
    """What was truncated cannot be merged, nor can be attributes changed in a way that there is not."""
    target, first, second, third = (f"{scope}/s/{each}.#epoch.0" for each in range(4))
    yield [c.CreateSegment(at, each, 0, 0, "", 0) for at, each in enumerate((target, first, second, third))]
    for writer, name, offset in ((W, first, 3), (X, second, 4)):
        yield [c.SetupAppend(5, writer, name, "")]
        yield [block(1, b"data", writer=writer)]
        yield [c.TruncateSegment(1, name, offset, "")]
        yield [c.MergeSegments(1, target, name, "", ())]
        yield [c.MergeSegmentsBatch(1, target, (name,), "")]
        yield [c.GetStreamSegmentInfo(1, name, "")]
    for kind in (5, -1):
        yield [c.MergeSegments(1, target, third, "", (c.AttributeUpdate(X, kind, 1, 1),))]
    yield [c.GetStreamSegmentInfo(at, each, "") for at, each in enumerate((target, third))]


def sealed_tables(scope: str) -> Steps:
    """A hash table compares versions before it finds that it is sealed."""
    for name, length in ((f"{scope}/f_kvtable/0.#epoch.0", 4), (f"{scope}/h_kvtable/0.#epoch.0", 0)):
        yield [c.CreateTableSegment(1, name, "", False, length, 0)]
        yield [c.UpdateTableEntries(1, name, "", (entry(b"aaaa", b"1"), entry(b"bbbb", b"2")), -1)]
        yield [c.SealSegment(1, name, "")]
        for entries, at in (((entry(b"aaaa", b"3"),), -1), ((entry(b"aaaa", b"3", 77),), -1), ((), 5)):
            yield [c.UpdateTableEntries(1, name, "", entries, at)]
        for key in (b"bbbb", b"zzzz"):
            yield [c.RemoveTableKeys(1, name, "", (c.TableKey(key, ANY),), -1)]
        yield [c.ReadTable(1, name, "", (c.TableKey(b"aaaa", ANY), c.TableKey(b"bbbb", ANY)))]
        yield [c.SealSegment(1, name, "")]
        yield [c.DeleteTableSegment(1, name, False, "")]


def odd_tables(scope: str) -> Steps:
    fixed, hashed = (f"{scope}/{each}_kvtable/0.#epoch.0" for each in "fh")
    yield [c.CreateTableSegment(1, f"{fixed}0", "", False, 257, 0)]
    yield [c.CreateTableSegment(1, fixed, "", False, 4, 0), c.CreateTableSegment(2, hashed, "", False, 0, 0)]
    for name in (fixed, hashed):
        yield [c.UpdateTableEntries(1, name, "", (entry(b"aaaa", b"1"), entry(b"bbbb", b"2")), -1)]
        yield [c.SetupAppend(5, W, name, "")]
        yield [c.UpdateSegmentAttribute(1, name, X, 7, ANY, "")]
        yield [c.GetSegmentAttribute(1, name, X, "")]
        yield [c.UpdateTableEntries(1, name, "", (entry(b"cccc", b"1", -5),), -1)]
        yield [c.UpdateTableEntries(1, name, "", (entry(b"cccc", b"1"),), -2)]
        yield [c.ReadTableKeys(1, name, "", 5, iterator(token=b"no token"))]
    for position, most in ((-1, 5), (0, 0), (0, -1)):
        yield [c.ReadTableEntriesDelta(1, hashed, "", position, most)]


def large_changes(scope: str) -> Steps:
    """An answer ends when it has 2 MiB."""
    name = f"{scope}/h_kvtable/0.#epoch.0"
    yield [c.CreateTableSegment(1, name, "", False, 0, 0)]
    for first in range(0, 50, 10):
        entries = (entry(b"k%03d" % each, bytes(100_000)) for each in range(first, first + 10))
        yield [c.UpdateTableEntries(1, name, "", tuple(entries), -1)]
    yield [c.ReadTableEntriesDelta(1, name, "", 0, 100)]


def own_attributes(scope: str) -> Steps:
    """Attributes of the store's own can be changed only once they are set."""
    name = f"{scope}/s/0.#epoch.0"
    yield [c.CreateSegment(1, name, 0, 0, "", 0)]
    for number in (1, 3, 20):
        for old in (ANY, 0):
            yield [c.UpdateSegmentAttribute(1, name, attribute(number), 77, old, "")]
        yield [c.GetSegmentAttribute(1, name, attribute(number), "")]


def no_name(scope: str) -> Steps:
    yield [c.CreateSegment(1, "", 0, 0, "", 0)]
    yield [c.CreateTableSegment(1, "", "", False, 4, 0)]
    yield [c.GetStreamSegmentInfo(1, "", "")]
    yield [c.SetupAppend(5, W, "", "")]


def long_frames(scope: str) -> Steps:
    """Bytes after the last field are left out."""
    for command in (c.GetStreamSegmentInfo(1, f"{scope}/s/0.#epoch.0", ""), c.Hello(16, 5), c.KeepAlive()):
        body = codec.encode(command)[codec.HEADER.size :] + b"more"
        yield codec.HEADER.pack(command.CODE, len(body)) + body


PROGRAMS = (
    appends, reads, attributes, merges, tables, hash_tables, connections, offsets, blocks,
    merges_of_attributes, conditions, long_frames, truncated_sources, sealed_tables, odd_tables,
    large_changes, own_attributes, no_name,
)  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
async def test_a_store_in_memory_answers_as_the_real_one(config: PravegaConfig, program: Program) -> None:
    scope = str(config.scope)
    async with open_controller(config.endpoints) as controller:
        uri = await controller.get_uri(scope, "s", 0)
    memory, real = Memory(), StoreLink((uri.host, uri.port))
    await real.open()
    for number, commands in enumerate(program(scope)):
        frames = commands if isinstance(commands, bytes) else encoded(commands)
        expected = memory.answers(frames)
        found = await real.answers(frames, len(expected))
        match commands, expected, found:
            case [c.ReadSegment(offset=offset)], [None], [c.ErrorMessage()] if offset < 0:
                # A store that had to wait before it refused this says why, and does not close.
                await real.renew()
                continue
        assert comparable(found) == comparable(expected), (number, commands, found, expected)
    # Nothing was answered that should not be.
    assert await real.answers(encoded([c.KeepAlive()]), 1) == [c.KeepAlive()]
    await real.close()
