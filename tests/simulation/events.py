"""What workloads of events share: who has written what, and what must be stored."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Container, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from math import inf
from random import Random
from uuid import UUID

import trio

from pravega_wire.errors import (
    DataLossError,
    InvalidStreamCutError,
    ScaleConflictError,
    StreamNotFoundError,
)
from pravega_wire.protocol.group_state import segment_id_of
from pravega_wire.stream.client import PravegaClient
from pravega_wire.stream.follow import StreamFollower
from pravega_wire.testing.memory.streams import Stream
from pravega_wire.values.cuts import OnTruncated
from pravega_wire.values.naming import segment_name
from pravega_wire.values.positions import EventPointer
from pravega_wire.values.types import SEGMENT_READ, StreamCut
from tests.simulation.cluster import Cluster
from tests.simulation.machine import Failure
from tests.simulation.world import SCOPE, Process, Workload, World

GRACE = 2.5
"""Seconds by which a call may exceed its limit: what it leaves under a shield has one more second."""


Keys = dict[bytes, list[bytes]]
"""Events by writer and key, in the order in which they were read."""


def name_of(event: bytes) -> bytes:
    """Return ``writer|key`` of an event, which may be large."""
    return event[: event.index(b"|", event.index(b"|") + 1)]


@dataclass
class Written:
    """The events of one key of one writer, in the order in which they were given to it.

    :ivar accepted: all of them.
    :ivar acknowledged: those that are known to be stored.
    :ivar unsure: those of calls that were cancelled, which may have done nothing.
    """

    accepted: list[bytes] = field(default_factory=list)
    acknowledged: set[bytes] = field(default_factory=set)
    unsure: set[bytes] = field(default_factory=set)


class History:
    """All events that were written.

    Events have the form ``writer|key|number``; those with an empty key have no routing key and no order.

    :ivar batches: events that are to be stored next to each other, all or none.
    """

    def __init__(self) -> None:
        self.keys: defaultdict[bytes, Written] = defaultdict(Written)
        self.batches: list[list[bytes]] = []

    def event(self, writer: str, key: str, size: int = 0) -> bytes:
        name = f"{writer}|{key}".encode()
        written = self.keys[name]
        event = b"%s|%d|%s" % (name, len(written.accepted), b"x" * size)
        written.accepted.append(event)
        return event

    def doubt(self, events: Iterable[bytes]) -> None:
        """These are being written: if the call is cancelled, they may be written or not."""
        for event in events:
            self.keys[name_of(event)].unsure.add(event)

    def trust(self, events: Iterable[bytes]) -> None:
        """The call that writes these has returned."""
        for event in events:
            self.keys[name_of(event)].unsure.discard(event)

    def acknowledge(self, events: Iterable[bytes]) -> None:
        for event in events:
            self.keys[name_of(event)].acknowledged.add(event)

    def flushed(self, writer: str) -> None:
        """All that a writer was given by calls that have returned is stored."""
        name = f"{writer}/".encode()
        for key, written in self.keys.items():
            if key.startswith(name):
                known = written.acknowledged | written.unsure
                self.acknowledge([each for each in written.accepted if each not in known])

    def check(self, stored: list[list[bytes]]) -> None:
        """Compare with what is stored.

        :param stored: for each segment, from the oldest to the newest, its events in order.
        :raises Failure: something was lost, is doubled, or is out of order.
        """
        found: defaultdict[bytes, list[bytes]] = defaultdict(list)
        for segment in stored:
            for event in segment:
                found[name_of(event)].append(event)
        for name, events in found.items():
            if len(set(events)) < len(events):
                twice = [each for each in events if events.count(each) > 1]
                raise Failure(f"stored twice: {_shown(twice)} of {name!r}")
            if name not in self.keys or not set(events) <= set(self.keys[name].accepted):
                raise Failure(f"nobody has written {_shown(events)} of {name!r}")
        for name, written in self.keys.items():
            events = found[name]
            seen = {*events}
            lost = [each for each in written.accepted if each in written.acknowledged and each not in seen]
            if lost:
                raise Failure(f"acknowledged and lost: {_shown(lost)} of {name!r}")
            if name.endswith(b"|"):
                continue
            last = written.accepted.index(events[-1]) if events else -1
            expected = [
                each for each in written.accepted[: last + 1] if each not in written.unsure or each in seen
            ]
            if events != expected:
                raise Failure(f"out of order, or with gaps: {_shown(events)} of {name!r}")
        everything = [event for segment in stored for event in segment]
        places = {event: number for number, event in enumerate(everything)}
        for batch in self.batches:
            there = [places[each] for each in batch if each in places]
            if there and there != list(range(there[0], there[0] + len(batch))):
                raise Failure(f"a batch is torn: {_shown(batch)}")


def _shown(events: Iterable[bytes]) -> str:
    shown = [event[:40].decode() for event in events]
    return ", ".join(shown[:8]) + (f" and {len(shown) - 8} more" if len(shown) > 8 else "")


async def stored_events(client: PravegaClient, stream: str) -> list[list[bytes]]:
    """Read a stream's segments, the oldest first."""
    found: dict[int, list[bytes]] = {}
    reader = client.read_events(stream)
    async with reader:
        async for batch in reader:
            found.setdefault(segment_id_of(batch.segment), []).extend(bytes(event) for event in batch)
    return [found[each] for each in sorted(found)]


_PATIENCE = 300.0
"""Simulated seconds in which a follower must come to the end, or notice that there is none any more, once all
is well."""
_END = 1 << 62
"""An offset behind all others."""

Placed = dict[int, list[tuple[int, bytes]]]
"""Events by the id of their segment, each with its offset."""


class Archive:
    """What is truncated or deleted, so that it can be compared although it cannot be read any more.

    Streams that are created again go on with the numbers of segments, so that each has its own.

    :ivar events: all of it.
    :ivar twice: those that were written again, because the segment was deleted that would have told their
        writer that it has them.
    :ivar used: whether anything was truncated, be it an empty segment.
    :ivar deleted: streams that were deleted, by name.
    """

    def __init__(self, cluster: Cluster, scope: str) -> None:
        self.events: set[bytes] = set()
        self.twice: set[bytes] = set()
        self.used = False
        self.deleted: defaultdict[str, list[Stream]] = defaultdict(list)
        self._placed: defaultdict[str, Placed] = defaultdict(dict)
        self._segments, self._controller = cluster.store.segments, cluster.controller
        self._scope = scope
        cluster.controller.truncated = self._add
        cluster.controller.deleted = lambda stream: self.deleted[stream.name].append(stream)

    def _add(self, stream: str, segment: int, offset: int, data: bytes) -> None:
        self.used = True
        found = self._placed[stream].setdefault(segment, [])
        at = 0
        while at < len(data):
            end = at + 8 + int.from_bytes(data[at + 4 : at + 8], "big")
            found.append((offset + at, data[at + 8 : end]))
            self.events.add(data[at + 8 : end])
            at = end

    async def read(self, client: PravegaClient, stream: str) -> Placed:
        """Return all events of a stream and what was truncated; what was written twice at its last place."""
        found = {segment: list(placed) for segment, placed in self._placed[stream].items()}
        async with client.read_events(stream) as reader:
            async for batch in reader:
                placed = found.setdefault(segment_id_of(batch.segment), [])
                places = (each.start_offset for each in batch.pointers())
                placed += zip(places, map(bytes, batch), strict=True)
        last: dict[bytes, int] = {}
        for segment in sorted(found):
            for _, event in found[segment]:
                before = last.setdefault(event, segment)
                gone = segment_name(self._scope, stream, before) not in self._segments
                if gone and self.number(stream, (before, segment)) is not None:
                    last[event] = segment
        for segment, each in found.items():
            again = {event for _, event in each if last[event] > segment}
            if again:
                self.twice |= again
                found[segment] = [(at, event) for at, event in each if event not in again]
        return found

    def lost(self, stream: str, error: DataLossError) -> set[bytes]:
        """Return what an error says is lost."""
        if error.segment is None:
            return set()
        end = _END if error.start_offset is None else error.start_offset
        placed = self._placed[stream].get(segment_id_of(error.segment), ())
        return {event for offset, event in placed if (error.offset or 0) <= offset < end}

    def holds(self, stream: str, start: StreamCut) -> bool:
        """Whether something after a cut, or one of its segments, was truncated."""
        known = self._controller.stream(self._scope, stream)
        return bool(known.cut) and not known.is_at_or_after(start.positions, known.cut)

    def number(self, stream: str, segments: Iterable[int]) -> int | None:
        """Return which of the streams that have had a name has some segments; None if not one of them has."""
        wanted = {*segments}
        for number, each in enumerate([*self.deleted[stream], self._controller.find(self._scope, stream)]):
            if each is not None and wanted <= {part.id for epoch in each.epochs for part in epoch.parts}:
                return number
        return None

    def is_sealed(self, stream: str) -> bool:
        """Whether a stream is sealed, or does not exist."""
        known = self._controller.find(self._scope, stream)
        return known is None or known.sealed

    def begins_at(self, stream: str, cut: StreamCut) -> bool:
        """Whether a stream is truncated at a cut, or after it."""
        known = self._controller.stream(self._scope, stream)
        return bool(known.cut) and known.is_at_or_after(known.cut, _ends(cut))

    def has_reached(self, cut: StreamCut, goal: StreamCut) -> bool:
        """Whether a cut is at another one of the same stream, or after it."""
        known = self._controller.stream(self._scope, cut.stream.name)
        return known.is_at_or_after(_ends(cut), _ends(goal))

    def is_dead(self, cut: StreamCut) -> bool:
        """Whether the stream of a cut was deleted."""
        stream = cut.stream.name
        found = self.number(stream, cut.positions)
        if found is None:
            raise Failure(f"the segments of the cut {cut} have never been together in one stream")
        return found < len(self.deleted[stream])

    def between(
        self, stream: str, placed: Placed, start: StreamCut | None, end: StreamCut | None
    ) -> list[bytes]:
        """Return those between two cuts; None is the beginning, or the end."""
        known = self._controller.find(self._scope, stream)
        cut = start or end
        if cut is not None and self.is_dead(cut):
            known = self.deleted[stream][self.number(stream, cut.positions) or 0]
        assert known is not None
        low, high = ({} if each is None else _ends(each) for each in (start, end))
        return [
            event
            for segment in sorted(each.id for each in known.between(low, high))
            for offset, event in placed.get(segment, ())
            if low.get(segment, 0) <= offset < high.get(segment, _END)
        ]


def _ends(cut: StreamCut) -> dict[int, int]:
    """The offsets of a cut, with one for the end of a segment that is behind all others."""
    return {segment: _END if at == SEGMENT_READ else at for segment, at in cut.positions.items()}


def by_key(events: Iterable[bytes]) -> Keys:
    """Sort events of the form ``writer|key|number`` by writer and key, each in the order it has here.

    Those with an empty key have no order.
    """
    found: defaultdict[bytes, list[bytes]] = defaultdict(list)
    for event in events:
        found[name_of(event)].append(event)
    return {key: sorted(each) if key.endswith(b"|") else each for key, each in found.items()}


class Followers:
    """Processes that follow a stream one after the other; each goes on after the last one's events.

    :param seen: called with each event when it is read.
    :param archive: what is truncated; default: nothing may be.
    :param recreated: whether it is not truncated, but deleted and created again.
    :ivar events: what they have read, in order.
    :ivar places: what was found at each place.
    """

    def __init__(
        self,
        workload: Workload,
        stream: str,
        seen: Callable[[bytes], None] = lambda event: None,
        archive: Archive | None = None,
        *,
        recreated: bool = False,
    ) -> None:
        self.events: list[bytes] = []
        self.places: dict[EventPointer, bytes] = {}
        self._workload = workload
        self._stream = stream
        self._seen = seen
        self._truncates = archive is not None and not recreated
        self._recreated = recreated
        self._archive = archive or Archive(workload.world.cluster, SCOPE)
        self._rest: StreamCut | str = "earliest"
        # Where the first one began that has read something.
        self._start: StreamCut | None = None
        self._goal: StreamCut | None = None
        # What they were told is lost, and whether some leave it out instead.
        self._lost: set[bytes] = set()
        others = Random(f"{workload.world.settings.seed} {workload.world.settings.workload} followers")
        self._skips = (self._truncates or recreated) and others.random() < 0.5

    async def run(self) -> None:
        """Follow until the world is quiet, and all is read that was written until then.

        What is written after that, :meth:`finish` reads.
        """
        await self._workload.keep_alive("follower", self._live)

    async def _live(self, process: Process) -> None:
        world = process.world
        async with process.client() as client:
            while not world.quiet:
                with world.bearing():
                    how: OnTruncated = "raise"
                    if self._skips and process.random.random() < 0.5:
                        how = "skip_to_head"
                    if self._recreated:
                        # There may be no stream for long, which is told at once.
                        await trio.sleep(world.seconds * 0.001)
                        if not await self._begins(client, how):
                            continue
                    left = inf
                    if self._truncates:
                        # One that is always there is never overtaken.
                        left = process.random.choice((5, 50, inf))
                        with trio.move_on_after(world.seconds * 0.2 * process.random.random()):
                            await world.over.wait()
                    async with client.follow_events(self._stream, self._rest, on_truncated=how) as reader:
                        if self._rest == "earliest":
                            self._start = reader.cut
                        while (left and not world.quiet) or await self._is_behind(client, reader):
                            left -= 1
                            await process.attempt(partial(self._read, process, reader, how))
                            if reader.end_of_data:
                                self._check_end(reader)
                                # The stream is sealed; it may be deleted soon.
                                await trio.sleep(world.seconds * 0.02)
                                break

    async def _read(self, process: Process, reader: StreamFollower[bytes], how: OnTruncated) -> None:
        """Read an event, if there is one in time."""
        try:
            event = await reader.read_event(timeout=process.world.seconds * 0.02)
        except DataLossError as error:
            self._check_loss(error, how, reader)
            return
        if event is not None and not process.dead:
            if self._recreated:
                self._check_place(event.pointer)
            self.places[event.pointer] = bytes(event.value)
            self.events.append(bytes(event.value))
            self._rest = reader.cut
            self._seen(bytes(event.value))

    async def _begins(self, client: PravegaClient, how: OnTruncated) -> bool:
        """Whether one can go on, and not the stream that it was in has been deleted."""
        try:
            async with client.follow_events(self._stream, self._rest, on_truncated=how):
                return True
        except InvalidStreamCutError as error:
            if not isinstance(self._rest, StreamCut) or not self._archive.is_dead(self._rest):
                raise Failure(f"a follower cannot go on in a stream that was not deleted: {error}") from error
            self._rest = "earliest"
            return False

    async def _is_behind(self, client: PravegaClient, reader: StreamFollower[bytes]) -> bool:
        """Whether something is left that a follower has to tell, now that all is well; not for ever."""
        if reader.end_of_data or not self._workload.world.quiet:
            return False
        if self._recreated:
            behind, what = self._archive.is_dead(reader.cut), "noticed that its stream was deleted"
        else:
            self._goal = self._goal or await client.tail(self._stream)
            behind = not self._archive.has_reached(reader.cut, self._goal)
            what = f"read from {reader.cut} to {self._goal}"
        if behind and trio.current_time() > self._workload.world.healed_at + _PATIENCE:
            raise Failure(f"a follower has not {what} for {_PATIENCE:g} s")
        return behind

    def _check_end(self, reader: StreamFollower[bytes]) -> None:
        """A stream ends only when it is sealed, and only then can it be deleted."""
        if not self._archive.is_dead(reader.cut) and not self._archive.is_sealed(self._stream):
            raise Failure(f"a follower is at the end of a stream that is not sealed, at {reader.cut}")

    def _check_place(self, pointer: EventPointer) -> None:
        """Nothing of another stream follows."""
        if not isinstance(self._rest, StreamCut):
            return
        before = self._archive.number(self._stream, self._rest.positions)
        if self._archive.number(self._stream, [segment_id_of(pointer.segment)]) != before:
            raise Failure(f"{pointer} was read after {self._rest}, which is in another stream")

    def _check_loss(self, error: DataLossError, how: OnTruncated, reader: StreamFollower[bytes]) -> None:
        """What is reported as lost was truncated, and was not returned before."""
        if (
            not self._archive.used
            or how != "raise"
            or (self._recreated and not self._archive.is_dead(reader.cut))
        ):
            raise Failure(f"a follower has lost data: {error}") from error
        lost = self._archive.lost(self._stream, error)
        self._lost |= lost
        if known := lost.intersection(self.events):
            raise Failure(
                f"a follower was given {_shown(known)} before it was told that it is lost"
            ) from error

    async def finish(self, client: PravegaClient, placed: Placed | None = None) -> list[bytes]:
        """Read the rest, compare with what is stored, and return that.

        :param placed: what is stored, if that is known.
        :raises Failure: an event was missed, read twice, or read in another order of its key; or there is
            another one at its place now.
        """
        passed = self._rest
        if self._recreated:
            await self._begins(client, "raise")
        async for batch in client.read_events(
            self._stream, self._rest, on_truncated="skip_to_head" if self._truncates else "raise"
        ):
            self.events.extend(bytes(event) for event in batch)
        placed = await self._archive.read(client, self._stream) if placed is None else placed
        now = {(segment, at): event for segment, each in placed.items() for at, event in each}
        for place, before in self.places.items():
            if before in self._archive.twice:
                continue
            found = now.get((segment_id_of(place.segment), place.start_offset), b"nothing")
            if before != found:
                raise Failure(f"{place}: followers found {_shown([before])}, and now {_shown([found])}")
        if self._recreated:
            self._check_streams(placed)
            return []
        if self._truncates and not self._skips and isinstance(passed, StreamCut):
            followed = self._archive.between(self._stream, placed, self._start, passed)
            silent = self._archive.events.intersection(followed).difference(
                self.events, self._lost, self._archive.twice
            )
            if silent:
                raise Failure(f"followers were not told that {_shown(silent)} are lost")
        stored = [event for _, each in sorted(placed.items()) for _, event in each]
        twice = self._archive.twice
        gone = self._archive.events.difference(self.events) | twice
        got = [event for event in self.events if event not in twice] if twice else self.events
        if by_key(got) != by_key(event for event in stored if event not in gone):
            raise Failure(f"followers got {len(self.events)} events, and {len(stored)} are stored")
        return stored

    def _check_streams(self, placed: Placed) -> None:
        """Of each stream that was deleted they have got the first events of each key, of the last one all."""
        stored: defaultdict[int, list[bytes]] = defaultdict(list)
        for segment, each in sorted(placed.items()):
            stored[self._archive.number(self._stream, [segment]) or 0] += [event for _, event in each]
        got = Counter(self.events)
        for number, events in stored.items():
            mine = {*events}
            found = by_key(event for event in self.events if event in mine)
            for key, every in by_key(events).items():
                read = found.get(key, [])
                if key.endswith(b"|"):
                    every = [event for event in every if got[event]]
                last = number == len(self._archive.deleted[self._stream])
                if read != (every if last else every[: len(read)]):
                    raise Failure(f"followers got {len(read)} events of {key!r}, and {len(every)} are stored")
        if unknown := got.keys() - {event for events in stored.values() for event in events}:
            raise Failure(f"followers got {_shown(unknown)}, which are not stored")


@asynccontextmanager
async def limited_to(process: Process, what: str, seconds: float | None = None) -> AsyncIterator[None]:
    """A call must end within its limit.

    :raises Failure: it took longer.
    """
    limit = process.operation_timeout if seconds is None else seconds
    began = trio.current_time()
    try:
        yield
    finally:
        took = trio.current_time() - began
        if took > limit + GRACE:
            process.world.problem(f"{what} took {took:.1f} s, and may take {limit:g} s")


def maybe_scale(
    workload: Workload,
    nursery: trio.Nursery,
    stream: str,
    chance: float = 0.7,
    *,
    name: str = "admin-scaler",
) -> None:
    """Have another process split and merge a stream's segments, in some of the runs."""
    if workload.random.random() < chance:
        scaler = workload.world.process(name)
        nursery.start_soon(scaler.run, lambda process: scale_now_and_then(process, stream))


async def scale_now_and_then(process: Process, stream: str) -> None:
    """Split and merge a stream's segments until the world is quiet."""
    world, rng = process.world, process.random
    # Some coincidences are too rare to wait for.
    lurks = rng.random() < 0.5
    async with process.client() as client:
        while not world.quiet:
            if lurks:
                with trio.move_on_after(world.seconds * 0.2):
                    await world.network.disturbed.wait()
                await trio.sleep(rng.choice((1.0, 5.0)) * world.network.latency * rng.random())
            with trio.move_on_after(
                0.0 if lurks else world.seconds * rng.choice((0.003, 0.03, 0.2)) * rng.random()
            ):
                await world.over.wait()
            with world.bearing(), suppress(ScaleConflictError, StreamNotFoundError):
                async with limited_to(process, "scaling", 3 * process.operation_timeout):
                    segments = sorted(await client.active_segments(stream), key=lambda each: each.low)
                    if not segments:
                        continue  # it is sealed
                    first = rng.randrange(len(segments))
                    if len(segments) > 1 and rng.random() < 0.5:
                        first = min(first, len(segments) - 2)
                        pair = segments[first : first + 2]
                        seal = [each.segment_id for each in pair]
                        ranges = [(pair[0].low, pair[1].high)]
                        await client.scale_stream(stream, seal, ranges)
                    else:
                        one = segments[first]
                        middle = (one.low + one.high) / 2
                        ranges = [(one.low, middle), (middle, one.high)]
                        await client.scale_stream(stream, [one.segment_id], ranges)
                    # Nobody else scales it, and only where streams are deleted there may be another one now.
                    now = {(each.low, each.high) for each in await client.active_segments(stream)}
                    if world.settled and not now.issuperset(ranges):
                        raise Failure(f"{stream} is said to be scaled to {ranges}, and has {sorted(now)}")


def check_transactions(world: World, but: Container[UUID] = ()) -> None:
    """Nothing of any transaction may be left, once all of them have ended.

    :param but: transactions, or what was written beside one, that may be left.
    :raises Failure: there are segments of a transaction, or written beside one.
    """
    names = [name for name in world.cluster.store.segments if "#transaction." in name]
    left = [name for name in names if UUID(name.partition("#transaction.")[2]) not in but]
    if left:
        raise Failure(f"segments are left behind: {left}")
