"""Cuts of a stream that is written, scaled and truncated; batch reads between them, and followers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import ClassVar

import trio

from pravega_wire.errors import DataLossError, InvalidStreamCutError
from pravega_wire.stream.client import PravegaClient
from pravega_wire.values.cuts import OnTruncated
from pravega_wire.values.naming import number_of
from pravega_wire.values.types import StreamCut
from tests.simulation.events import (
    Archive,
    Followers,
    History,
    Keys,
    Placed,
    by_key,
    limited_to,
    maybe_scale,
)
from tests.simulation.machine import Failure
from tests.simulation.world import LONGEST_STORE_DELAY, SCOPE, Process, World
from tests.simulation.writers import STREAM, Writers

_MOST_READS = 10
_MOST_RECREATIONS = 6
_SKIPPING = 4
"""The way to read that leaves out what was truncated."""


class _Recorded(History):
    """A history that also knows in what order events were given to writers and acknowledged."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[bytes] = []
        self.stored: list[bytes] = []

    def event(self, writer: str, key: str, size: int = 0) -> bytes:
        event = super().event(writer, key, size)
        self.given.append(event)
        return event

    def acknowledge(self, events: Iterable[bytes]) -> None:
        events = list(events)
        super().acknowledge(events)
        self.stored.extend(events)


@dataclass(frozen=True)
class _Taken:
    """A cut of the tail.

    :ivar began: when its call began; ``stored`` events had been acknowledged by then.
    :ivar ended: when its call ended; ``given`` events had been given to a writer by then.
    """

    cut: StreamCut
    began: float
    stored: int
    ended: float
    given: int


class Cuts(Writers):
    """Writers as in :class:`Writers`, and processes that read what lies between cuts."""

    name: ClassVar[str] = "cuts"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.history: _Recorded = _Recorded()
        self.taken: list[_Taken] = []
        # What was read, and whether it may lack what was truncated.
        self.seen: list[tuple[_Taken, _Taken, Keys, bool]] = []
        self.truncates = self.random.random() < 0.4
        self.truncated: list[_Taken] = []
        self.archive = Archive(world.cluster, SCOPE)
        # Its own source of chance, so that it changes nothing where it is not.
        others = Random(f"{world.settings.seed} {world.settings.workload} recreations")
        self.recreates = not self.truncates and others.random() < 0.2
        self.recreations = others.randint(1, _MOST_RECREATIONS)
        world.settled = not self.recreates
        self.followers = Followers(
            self,
            STREAM,
            archive=self.archive if self.truncates or self.recreates else None,
            recreated=self.recreates,
        )

    async def work(self) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(self.random.randint(1, 2)):
                nursery.start_soon(self.keep_alive, f"writer-{next(self.numbers)}", self.write)
            for _ in range(self.random.randint(1, 2)):
                nursery.start_soon(self.keep_alive, "reader", self.read)
            nursery.start_soon(self.followers.run)
            maybe_scale(self, nursery, STREAM)
            if self.recreates:
                nursery.start_soon(self.keep_recreating)

    # --- what deletes the stream --------------------------------------------------------------------

    async def keep_recreating(self) -> None:
        await self.keep_alive("recreater", self.recreate)
        # What is under way arrives.
        await trio.sleep(10.0)
        process = self.world.process("admin-recreater")
        await process.run(self.settle)

    async def recreate(self, process: Process) -> None:
        """Delete the stream and create it again, now and then."""
        world, rng = self.world, process.random
        async with process.client() as client:
            while not world.quiet and self.recreations:
                with trio.move_on_after(world.seconds * rng.choice((0.03, 0.1, 0.3)) * rng.random()):
                    await world.over.wait()
                self.recreations -= 1
                with world.bearing():
                    if rng.random() < 0.3:
                        await process.attempt(partial(client.seal_stream, STREAM))
                        await trio.sleep(world.seconds * 0.02 * rng.random())
                    async with limited_to(process, "deleting a stream"):
                        await process.attempt(partial(self.delete, client))
                    if rng.random() < 0.5:
                        await trio.sleep(world.seconds * 0.02 * rng.random())
                with world.bearing():
                    async with limited_to(process, "creating a stream"):
                        await process.attempt(partial(client.create_stream, STREAM, rng.randint(1, 3)))
            await world.over.wait()

    async def delete(self, client: PravegaClient) -> None:
        """Delete the stream, be it sealed or not."""
        find = partial(self.world.cluster.controller.find, SCOPE, STREAM)
        before = find()
        await client.delete_stream(STREAM, seal=True)
        if before is not None and find() is before:
            raise Failure("the stream is said to be deleted, and is there")

    async def settle(self, process: Process) -> None:
        async with process.client() as client:
            await client.create_stream(STREAM)
        self.world.settled = True

    # --- what readers do ----------------------------------------------------------------------------

    async def read(self, process: Process) -> None:
        world, rng = self.world, process.random
        pause = max(world.pause(rng), world.seconds * 0.02)
        async with process.client() as client:
            while not world.quiet:
                with trio.move_on_after(pause * rng.random()):
                    await world.over.wait()
                with world.bearing():
                    kind = rng.randrange(8)
                    if kind < 3 or len(self.taken) < 2:
                        await process.attempt(partial(self.take, process, client))
                    elif kind == 3 and self.truncates:
                        await process.attempt(partial(self.truncate, process, client))
                    elif len(self.seen) < _MOST_READS:
                        await process.attempt(partial(self.read_between, process, client))

    async def take(self, process: Process, client: PravegaClient) -> None:
        began, stored = trio.current_time(), len(self.history.stored)
        async with limited_to(process, "tail"):
            cut = await client.tail(STREAM)
        self.archive.is_dead(cut)
        self.taken.append(_Taken(cut, began, stored, trio.current_time(), len(self.history.given)))

    async def truncate(self, process: Process, client: PravegaClient) -> None:
        at = process.random.choice(self.taken[:-1] or self.taken)
        before = bool(self.truncated)
        self.truncated.append(at)
        try:
            async with limited_to(process, "truncation"):
                await client.truncate_stream(STREAM, at.cut)
            if not self.archive.begins_at(STREAM, at.cut):
                raise Failure(f"the stream is said to be truncated at {at.cut}, and is not")
        except InvalidStreamCutError:
            # It may lie before an earlier truncation.
            if not before:
                raise

    async def read_between(self, process: Process, client: PravegaClient) -> None:
        rng = process.random
        first, second = rng.choice(self.taken), rng.choice(self.taken)
        if first.began > second.began:
            first, second = second, first
        if first.ended > second.began and first is not second:
            return
        way = rng.randrange(5 if self.truncates or self.recreates else 4)
        found = await self.between(client, first.cut, second.cut, way)
        if found is not None:
            self.seen.append((first, second, found, way == _SKIPPING))

    async def between(
        self, client: PravegaClient, start: StreamCut | str, end: StreamCut | str, way: int = 0
    ) -> Keys | None:
        """Read in one of several ways; None if the data was truncated."""
        found: list[bytes] = []
        try:
            if way in (0, _SKIPPING):
                how: OnTruncated = "skip_to_head" if way == _SKIPPING else "raise"
                readers = [client.read_events(STREAM, start, end, on_truncated=how)]
            else:
                most = 4000 if way == 3 else None
                ranges = await client.segment_ranges(STREAM, start, end, max_range_bytes=most)
                if way == 1:
                    readers = [client.read_range(each) for each in ranges]
                else:
                    readers = [client.read_ranges(ranges, at_once=2)]
            for reader in readers:
                async with reader:
                    async for batch in reader:
                        found.extend(bytes(event) for event in batch)
        except (DataLossError, InvalidStreamCutError) as error:
            if self.recreates:
                if any(self.archive.is_dead(each) for each in (start, end) if isinstance(each, StreamCut)):
                    return None
            elif isinstance(error, InvalidStreamCutError):
                raise
            if not isinstance(start, StreamCut) or not self.archive.holds(STREAM, start):
                raise Failure(
                    f"nothing after {start} was truncated, but a reader was told: {error}"
                ) from error
            return None
        return by_key(found)

    # --- what must hold -------------------------------------------------------------------------------

    async def check(self, client: PravegaClient) -> None:
        # The stream is read several times: what a store still has of a killed writer must be in all of them.
        await trio.sleep(LONGEST_STORE_DELAY)
        placed = await self.archive.read(client, STREAM)
        # Epochs begin again with each stream, and numbers do not.
        ordered = sorted(placed.items(), key=lambda each: number_of(each[0]))
        everything = [[event for _, event in each] for _, each in ordered]
        self.history.check(everything)
        gone = self.archive.events
        whole = by_key(event for segment in everything for event in segment if event not in gone)
        for first, second, found, skipping in self.seen:
            if len({self.number(each) for each in (first, second)}) > 1:
                raise Failure(f"something was read between {first.cut} and {second.cut} of another stream")
            if self.archive.twice:
                continue
            known = self.archive.between(STREAM, placed, first.cut, second.cut)
            if skipping:
                got = {event for events in found.values() for event in events}
                known = [event for event in known if event in got or event not in self.archive.events]
            for now in (
                by_key(known),
                None if skipping else await self.between_now(client, first.cut, second.cut),
            ):
                if now is not None and now != found:
                    raise Failure(
                        f"between {first.cut} and {second.cut} there were {_size(found)} events, "
                        f"and now there are {_size(now)}"
                    )
        for each in self.random.sample(self.taken, min(len(self.taken), 5)):
            await self.check_cut(client, each, placed, whole)
        await self.followers.finish(client, placed)

    def number(self, taken: _Taken) -> int | None:
        """Which of the streams with this name a cut belongs to."""
        return self.archive.number(STREAM, taken.cut.positions)

    async def between_now(self, client: PravegaClient, start: StreamCut, end: StreamCut | str) -> Keys | None:
        found = await self.between(client, start, end)
        if found is not None and self.archive.is_dead(start):
            raise Failure(f"something was read from {start} on, whose stream was deleted")
        return found

    async def check_cut(self, client: PravegaClient, taken: _Taken, placed: Placed, whole: Keys) -> None:
        """A tail is after all that was stored before its call, and before what was written after it."""
        if self.recreates:
            known = {*self.archive.between(STREAM, placed, taken.cut, None)}
            if known.intersection(self.history.stored[: taken.stored]):
                raise Failure(f"events were acknowledged before the tail {taken.cut} was asked for")
        found = await self.between_now(client, taken.cut, "latest")
        if found is None:
            return
        left, after = ({event for events in each.values() for event in events} for each in (whole, found))
        late = after.intersection(self.history.stored[: taken.stored])
        if late:
            raise Failure(f"{len(late)} events were acknowledged before the tail {taken.cut} was asked for")
        early = left.intersection(self.history.given[taken.given :]) - after
        if early:
            raise Failure(f"{len(early)} events were written after the tail {taken.cut} was known")
        if not self.truncated:
            before = await self.between(client, "earliest", taken.cut)
            if _joined(before or {}, found) != whole:
                raise Failure(f"what is before and after the cut {taken.cut} is not the whole stream")


def _joined(first: Keys, second: Keys) -> Keys:
    return by_key(event for keys in (first, second) for each in keys.values() for event in each)


def _size(found: Keys) -> int:
    return sum(map(len, found.values()))
