"""Steps of random programs that send commands to a store: each is sent to both servers, and compared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random
from typing import Any
from uuid import UUID, uuid4, uuid5

from pravega_wire.protocol import codec
from pravega_wire.protocol import commands as c
from pravega_wire.testing.memory.store import EVENT_COUNT, NULL
from pravega_wire.testing.memory.tables import NO_VERSION
from tests.comparing import Memory, Replies, StoreLink, comparable, encoded

KEYS = (b"aaaa", b"aaab", b"bbbb", b"cccc", b"dddd", b"a", b"longer")


class Difference(AssertionError):
    """Both servers do not answer the same."""


class Run:
    """One program on both servers.

    :ivar scope: a scope for its names; it need not exist.
    :ivar names: names of segments that commands may be about.
    :ivar kept: those of them that must not be deleted, because something was merged.
    :ivar not_made: those that are created when they are needed first.
    :ivar merged: segments that were merged: most answers about them depend on when the store comes to it.
    :ivar deleted: segments that were deleted.
    :ivar removed: keys that may have been removed from a table.
    :ivar writers: the writers, and where each was set up last.
    :ivar numbers: the last number of each writer.
    """

    def __init__(self, memory: Memory, link: StoreLink) -> None:
        self.memory = memory
        self._link = link
        self.id = uuid4()
        self.scope = f"program-{self.id.hex}"
        self.names = [f"{self.scope}/{each}/0.#epoch.0" for each in ("a", "b", "c")]
        self.fixed, self.hashed = (f"{self.scope}/{each}_kvtable/0.#epoch.0" for each in ("f", "h"))
        self.not_made = {*self.names[:2], self.fixed, self.hashed}
        self.kept: set[str] = set()
        self.merged: set[str] = set()
        self.deleted: set[str] = set()
        self.removed: set[bytes] = set()
        self.writers: dict[UUID, str] = {uuid5(self.id, str(each)): "" for each in range(3)}
        self.numbers: defaultdict[UUID, int] = defaultdict(int)
        self.log: list[str] = []

    async def send(self, *commands: c.Command) -> Replies:
        """Send commands at once; return the replies."""
        return await self.send_frames(encoded(commands), commands)

    async def send_frames(self, frames: bytes, said: object) -> Replies:
        expected = self.memory.answers(frames)
        found = await self._link.answers(frames, len(expected))
        self.log.append(f"{said}\n    -> {expected}")
        wanted = [_shortened(*expected, *found)] if len(expected) == len(found) == 1 else expected
        if comparable(found) != comparable(wanted):
            raise self.difference(found)
        if None in expected:
            # Segments for large events end with their connection.
            self.names = [each for each in self.names if "#transient" not in each]
            self.writers = dict.fromkeys(self.writers, "")
        return expected

    def difference(self, found: object) -> Difference:
        """Return the error of an answer that is not the last one of the log."""
        return Difference("\n".join([*self.log, f"but the real one: {found}"]))

    async def ask_real(self, command: c.Command) -> c.Command | None:
        """Send something to the real one alone; return its reply."""
        return (await self._link.answers(encoded([command]), 1))[0]

    async def segment(self, rng: Random) -> str:
        """Choose a segment; the first two are there."""
        name = rng.choice([each for each in self.names if each not in self.merged])
        if name in self.not_made:
            await self.make(c.CreateSegment(2, name, 0, 0, "", 0))
        return name

    async def make(self, command: c.CreateSegment | c.CreateTableSegment) -> None:
        """Create a segment when it is needed first."""
        self.not_made.discard(command.segment)
        await self.send(command)

    def writer(self, rng: Random) -> UUID:
        """Choose a writer whose segment was not merged, mostly one that was set up."""
        found = [each for each, at in self.writers.items() if at not in self.merged] or [uuid4()]
        return rng.choice([each for each in found if self.writers[each] and rng.random() < 0.98] or found)

    def offset(self, rng: Random, name: str) -> int:
        found = self.memory.store.segments.get(name)
        if found is None:
            return rng.choice((0, 5))
        return rng.choice((found.start, found.length, found.length, found.start - 1, found.length + 1, 0, 3))

    def number(self, writer: UUID) -> int:
        self.numbers[writer] += 1
        return self.numbers[writer]

    async def finish(self) -> None:
        """Compare what is left."""
        for name in sorted({*self.names, *self.merged} - self.not_made):
            infos: list[c.Command] = [c.GetStreamSegmentInfo(-7, name, "")]
            ids = [*self.writers, attribute(3), *map(_well_known, (2, 3, 4, 9)), EVENT_COUNT]
            infos += [c.GetSegmentAttribute(at, name, each, "") for at, each in enumerate(ids)]
            await self.send(*infos)
            found = self.memory.store.segments.get(name)
            if found is not None:
                content = await self._link.content(name, found.start, found.length)
                if content != found.data:
                    self.log.append(f"{name}: {bytes(found.data)!r}")
                    raise self.difference(content)
        for name in (self.fixed, self.hashed):
            if name in self.memory.store.segments:
                await self.send(
                    c.GetTableSegmentInfo(1, name, ""),
                    *(c.GetSegmentAttribute(at, name, _well_known(at), "") for at in (2, 3, 4, 9)),
                )
                await self.send(c.ReadTableEntries(1, name, "", 100, _ALL))
        await self.send(c.KeepAlive())
        if any(each.waiting for each in self.memory.store.segments.values()):
            # Their reads end when the store comes to what happened to the segment.
            await self._link.renew()


Step = Callable[[Run, Random], Awaitable[object]]
_ALL = c.TableIteratorArgs(b"", b"", b"", b"")


def attribute(number: int) -> UUID:
    return UUID(int=number << 70 | number)


def _well_known(number: int) -> UUID:
    return UUID(int=(1 << 127) | number)


# --- appends --------------------------------------------------------------------------------------


def block(writer: UUID, number: int, data: bytes, count: int = 1) -> c.AppendBlockEnd:
    return c.AppendBlockEnd(writer, 0, data, count, number, 5)


def _shortened(expected: c.Command | None, found: c.Command | None) -> c.Command | None:
    """What may be read instead.

    A store that has moved data to long-term storage reads it piece by piece, and does not look behind it.
    """
    if not isinstance(expected, c.SegmentRead) or not isinstance(found, c.SegmentRead):
        return expected
    size = len(found.data)
    if not 0 < size <= len(expected.data):
        return expected
    return replace(
        expected,
        data=expected.data[:size],
        at_tail=expected.at_tail and found.at_tail and size == len(expected.data),
        end_of_segment=expected.end_of_segment and found.end_of_segment and size == len(expected.data),
    )


async def set_up(run: Run, rng: Random) -> None:
    writer, name = run.writer(rng), await run.segment(rng)
    replies = await run.send(c.SetupAppend(rng.choice((5, 1 << 32)), writer, name, ""))
    run.writers[writer] = name
    for each in replies:
        if isinstance(each, c.AppendSetup):
            run.numbers[writer] = max(each.last_event_number, 0)


async def append(run: Run, rng: Random) -> None:
    writer = run.writer(rng)
    data = rng.randbytes(rng.choice((0, 1, 8, 9, 100)))
    await run.send(block(writer, run.number(writer), data, rng.choice((1, 1, 3))))


async def append_several(run: Run, rng: Random) -> None:
    """A number that is stored already is stored again, and not acknowledged; the one after it is."""
    writer = run.writer(rng)
    found = run.memory.store.segments.get(run.writers.get(writer, ""))
    if found is None or found.sealed or found.waiting:
        return
    first = run.number(writer)
    again = rng.choice((first, first, run.number(writer)))
    last = run.number(writer)
    await run.send(*(block(writer, each, b"%d" % each) for each in (first, again, last)))


async def append_badly(run: Run, rng: Random) -> None:
    writer = run.writer(rng)
    number = run.number(writer)
    await run.send(
        rng.choice(
            (
                block(writer, number - 2, b"low"), block(writer, -1, b"negative"),
                block(writer, number, b"none", 0), block(writer, number, b"", -1),
            )
        )
    )  # fmt: skip


async def append_in_two(run: Run, rng: Random) -> None:
    """A block and its end are two commands; its closing frame is an event that goes on in the end."""
    writer = run.writer(rng)
    number, name = run.number(writer), await run.segment(rng)
    event = codec.HEADER.pack(0, 4) + b"data"
    partial = codec.HEADER.pack(-3, 5) + event[:5]
    data, whole, rest = rng.choice(
        (
            (event, 12, b""), (event + partial, 12, event[5:]), (event, 12, event), (event, 24, b""),
            (event, 5, event), (event + bytes(8), 12, b""), (event + partial, 12, b""),
        )
    )  # fmt: skip
    first = await run.send(c.AppendBlock(writer, data))
    if None in first:
        return
    if rng.random() < 0.3:
        between: list[c.Command] = [
            c.KeepAlive(), c.GetStreamSegmentInfo(1, name, ""), c.SetupAppend(5, writer, name, ""),
            c.Padding(b"0"), c.ConditionalAppend(writer, number, 0, b"data", 5), c.Hello(16, 5),
            c.AppendBlock(writer, event), c.PartialEvent(b""),
        ]  # fmt: skip
        if None in await run.send(rng.choice(between)):
            return
    other = rng.choice((writer, writer, writer, run.writer(rng)))
    await run.send(c.AppendBlockEnd(other, whole, rest, 1, number, 5))


async def append_at(run: Run, rng: Random) -> None:
    writer = run.writer(rng)
    at, number = run.offset(rng, run.writers.get(writer, "")), run.number(writer)
    replies = await run.send(
        rng.choice(
            (
                c.ConditionalAppend(writer, number, at, b"conditional", 6),
                c.ConditionalBlockEnd(writer, number, at, b"raw", 6),
            )
        )
    )
    if any(isinstance(each, c.ConditionalCheckFailed) for each in replies):
        run.numbers[writer] -= 1


# --- segments -------------------------------------------------------------------------------------


async def create(run: Run, rng: Random) -> None:
    name = rng.choice([each for each in run.names if each not in run.deleted | run.merged])
    await run.make(
        c.CreateSegment(2, name, rng.choice((0, 7)), rng.choice((0, 1, 2)), "", rng.choice((0, 99)))
    )


async def read(run: Run, rng: Random) -> None:
    name = await run.segment(rng)
    length = rng.choice((0, 1, 8, 9, 1000, -1, 3 << 20))
    await run.send(c.ReadSegment(name, run.offset(rng, name), length, "", rng.choice((3, 0))))


async def ask(run: Run, rng: Random) -> None:
    name = rng.choice(run.names)
    await run.send(
        rng.choice(
            (
                c.GetStreamSegmentInfo(4, name, ""),
                c.GetSegmentAttribute(4, name, rng.choice((*run.writers, attribute(3), EVENT_COUNT)), ""),
                c.GetTableSegmentInfo(4, name, ""),
            )
        )
    )


async def change_attribute(run: Run, rng: Random) -> None:
    values = (NULL, 0, 1, 2, 5)
    key = rng.choice((attribute(3), attribute(4), *run.writers))
    await run.send(
        c.UpdateSegmentAttribute(4, await run.segment(rng), key, rng.choice(values), rng.choice(values), "")
    )


async def change_policy(run: Run, rng: Random) -> None:
    await run.send(
        c.UpdateSegmentPolicy(4, await run.segment(rng), rng.choice((0, 5)), rng.choice((0, 1, 2, 3)), "")
    )


async def truncate(run: Run, rng: Random) -> None:
    name = await run.segment(rng)
    await run.send(c.TruncateSegment(4, name, run.offset(rng, name), ""))


async def seal(run: Run, rng: Random) -> None:
    await run.send(c.SealSegment(4, await run.segment(rng), ""))


async def delete(run: Run, rng: Random) -> None:
    """Never one that was merged: that would stop its container."""
    name = await run.segment(rng)
    found = run.memory.store.segments.get(name)
    if name not in run.kept and (found is None or not found.waiting):
        run.deleted.add(name)
        await run.send(c.DeleteSegment(4, name, ""))


def _may_merge(run: Run, target: str, *sources: str) -> bool:
    """Whether what is answered does not depend on when the store comes to what."""
    found = [run.memory.store.segments.get(each) for each in sources]
    if run.deleted.intersection((target, *sources)) or target in run.merged:
        return False
    if any(each is not None and each.waiting for each in found):
        return False
    run.kept.update((target, *sources))
    # Those that are not merged tell the target's length while others are.
    return len(found) < 2 or all(each is not None and each.length for each in found)


async def merge(run: Run, rng: Random) -> None:
    await run.segment(rng)
    target, source = rng.sample([*run.names, f"{run.scope}/never/0.#epoch.0"], 2)
    if not _may_merge(run, target, source):
        return
    updates = [
        c.AttributeUpdate(attribute(3), rng.randrange(5), rng.choice((NULL, 1, 2)), rng.choice((NULL, 1, 2)))
        for _ in range(rng.choice((0, 0, 1, 2)))
    ]
    replies = await run.send(c.MergeSegments(4, target, source, "", tuple(updates)))
    if any(isinstance(each, c.SegmentsMerged) for each in replies):
        run.merged.add(source)


async def merge_several(run: Run, rng: Random) -> None:
    await run.segment(rng)
    target, *sources = rng.sample([*run.names, f"{run.scope}/never/0.#epoch.0"], rng.choice((1, 2, 2, 3, 4)))
    if not _may_merge(run, target, *sources):
        return
    replies = await run.send(c.MergeSegmentsBatch(4, target, tuple(sources), ""))
    if any(isinstance(each, c.SegmentsBatchMerged) for each in replies):
        run.merged.update(sources)


async def create_transient(run: Run, rng: Random) -> None:
    """Its name is the real one's."""
    command = c.CreateTransientSegment(4, run.writer(rng), await run.segment(rng), "")
    reply = await run.ask_real(command)
    if isinstance(reply, c.SegmentCreated):
        run.memory.random.next = int(reply.segment.rpartition(".")[2], 16)
    expected = run.memory.answers(encoded([command]))
    run.log.append(f"{command}\n    -> {expected}")
    if comparable([reply]) != comparable(expected):
        raise run.difference(reply)
    if isinstance(reply, c.SegmentCreated):
        run.names.append(reply.segment)


# --- tables ---------------------------------------------------------------------------------------


async def _table(run: Run, rng: Random, *, only: str = "") -> str:
    name = only or rng.choice((run.fixed, run.fixed, run.fixed, run.hashed, run.hashed, run.hashed, ""))
    if name in run.not_made:
        await run.make(
            c.CreateTableSegment(1, name, "", False, 4 if name == run.fixed else 0, rng.choice((0, 99)))
        )
    return name or await run.segment(rng)


def _keys(run: Run, rng: Random, name: str) -> list[bytes]:
    # Never an empty one in a hash table, whose segment is of no use afterwards.
    keys = KEYS[:5] if name == run.fixed and rng.random() < 0.95 else KEYS
    return [rng.choice(keys) for _ in range(rng.choice((0, 1, 1, 1, 2, 3)))]


def _version(run: Run, rng: Random, name: str, key: bytes) -> int:
    if key in run.removed:
        # What a store says of another version depends on whether it has come to the removal.
        return rng.choice((NO_VERSION, -1))
    found = run.memory.store.segments.get(name)
    known = -1
    if found is not None and found.table is not None and len(found.table):
        places = {each.data: each.version for each in found.table.listed(b"", b"", b"", 100)[0]}
        known = places.get(key, -1)
    return rng.choice((NO_VERSION, NO_VERSION, known, known, -1, 0, 7))


def _at(run: Run, rng: Random, name: str) -> int:
    found = run.memory.store.segments.get(name)
    return rng.choice((-1, -1, -1, 0 if found is None else found.length, 0, 5))


async def put(run: Run, rng: Random) -> None:
    name = await _table(run, rng)
    entries = [
        c.TableEntry(
            c.TableKey(each, _version(run, rng, name, each)), rng.randbytes(rng.choice((0, 1, 9, 60)))
        )
        for each in _keys(run, rng, name)
    ]
    await run.send(c.UpdateTableEntries(4, name, "", tuple(entries), _at(run, rng, name)))


async def remove(run: Run, rng: Random) -> None:
    name = await _table(run, rng)
    keys = [c.TableKey(each, _version(run, rng, name, each)) for each in _keys(run, rng, name)]
    run.removed.update(each.data for each in keys)
    await run.send(c.RemoveTableKeys(4, name, "", tuple(keys), _at(run, rng, name)))


async def get(run: Run, rng: Random) -> None:
    name = await _table(run, rng)
    keys = tuple(c.TableKey(each, NO_VERSION) for each in _keys(run, rng, name))
    await run.send(c.ReadTable(4, name, "", keys))


async def list_keys(run: Run, rng: Random) -> None:
    name = await _table(run, rng)
    bounds = (*KEYS, b"") if name == run.fixed else (b"",)
    args = c.TableIteratorArgs(b"", b"", rng.choice(bounds), rng.choice(bounds))
    count = rng.choice((100, 100, 1, 2, 0))
    await run.send(
        rng.choice((c.ReadTableKeys(4, name, "", count, args), c.ReadTableEntries(4, name, "", count, args)))
    )


async def list_changes(run: Run, rng: Random) -> None:
    name = await _table(run, rng, only=rng.choice((run.hashed, run.hashed, "")))
    found = run.memory.store.segments.get(name)
    position = 0 if found is None else rng.choice((found.start, found.length, found.length + 1))
    await run.send(c.ReadTableEntriesDelta(4, name, "", position, rng.choice((100, 1))))


async def create_table(run: Run, rng: Random) -> None:
    """Never as a plain segment: appended bytes that are no entries would stop its container."""
    name = rng.choice([each for each in (run.fixed, run.hashed) if each not in run.deleted] or [""])
    if name:
        await run.make(c.CreateTableSegment(4, name, "", False, 4 if name == run.fixed else 0, 0))


async def delete_table(run: Run, rng: Random) -> None:
    name = await _table(run, rng)
    if name not in run.kept | run.merged:
        replies = await run.send(c.DeleteTableSegment(4, name, rng.random() < 0.5, ""))
        if any(isinstance(each, c.SegmentDeleted) for each in replies):
            run.deleted.add(name)


async def info_of_table(run: Run, rng: Random) -> None:
    await run.send(c.GetTableSegmentInfo(4, await _table(run, rng), ""))


# --- frames ---------------------------------------------------------------------------------------


async def greet(run: Run, rng: Random) -> None:
    await run.send(
        rng.choice(
            (
                c.KeepAlive(), c.Padding(bytes(rng.randrange(9))), c.Hello(16, 5), c.Hello(17, 16),
                c.Hello(4, 3), c.Hello(20, 17), c.SegmentSealed(1, "a"), c.PartialEvent(b"data"),
                c.Event(b"data"), c.FlushToStorage(0, "", 1), c.ListStorageChunks(run.names[0], "", 1),
            )
        )
    )  # fmt: skip


async def damage(run: Run, rng: Random) -> None:
    """A frame that is not sound."""
    name, writer = await run.segment(rng), run.writer(rng)
    await _table(run, rng, only=run.fixed)
    sound: list[Any] = [
        c.GetStreamSegmentInfo(1, name, ""), c.ReadSegment(name, 0, 8, "", 1), c.SealSegment(1, name, ""),
        c.SetupAppend(1, writer, name, ""), c.UpdateTableEntries(1, run.fixed, "", (), -1),
        c.TruncateSegment(1, name, 0, ""), c.Hello(16, 5),
        c.ReadTableKeys(1, run.fixed, "", 10, _ALL), block(writer, run.number(writer), b"data"),
        c.ConditionalAppend(writer, run.number(writer), 0, b"data", 1),
        c.UpdateSegmentAttribute(1, name, attribute(3), 1, NULL, ""), c.KeepAlive(),
    ]  # fmt: skip
    if not run.deleted.intersection((name, run.fixed)):
        # Whether a name is free again depends on when the store comes to its deletion.
        sound += [c.CreateSegment(1, name, 0, 0, "", 0), c.CreateTableSegment(1, run.fixed, "", False, 4, 0)]
    command = rng.choice(sound)
    frame = codec.encode(command)
    code, _ = codec.HEADER.unpack_from(frame)
    body = frame[codec.HEADER.size :]
    kind = rng.randrange(5)
    if kind < 2 and any(each.optional or each.kind == "ITER" for each in c.field_specs(type(command))):
        # A server takes an optional value that is not complete for a missing one; here it is an error.
        kind = 2
    if kind < 2:
        body = body[: len(body) - rng.randint(1, min(24, len(body)))] if body else b"\0"
    elif kind == 2:
        body += bytes(rng.randint(1, 12))
    elif kind == 3:
        code = rng.choice((-300, 5, 6, 17, 63, 99, 1 << 20))
    length = len(body) if kind < 4 else rng.choice((-1, 0xFFFFFF, 0x7FFFFFFF))
    if kind == 4 and length > 0:
        # What follows would be taken for its body.
        length = 0x7FFFFFFF
    await run.send_frames(codec.HEADER.pack(code, length) + body, (command, code, length, body))


STEPS: tuple[Step, ...] = (
    *(set_up, append, put) * 3,
    *(append_at, read, ask, change_attribute, truncate, merge, remove, damage) * 2,
    append, append_several, append_badly, append_in_two, create, change_policy, seal, delete, merge_several,
    create_transient, put, get, list_keys, list_changes, create_table, delete_table, info_of_table, greet,
)  # fmt: skip
