"""Ingestion of files and of other sources, exactly once, by processes that are killed and run again."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, ClassVar
from unittest.mock import patch
from zlib import crc32

import trio

from pravega_wire.errors import (
    CorruptedStateError,
    FencedError,
    IngestError,
    InvalidArgumentError,
    PravegaError,
    TransactionUnknownError,
)
from pravega_wire.ingest import EndRecord, FileIngester, FixedCount, LengthBefore, SourceIngester
from pravega_wire.ingest.engine import Stage
from pravega_wire.ingest.state import IngestRecord
from pravega_wire.stream.client import PravegaClient
from tests.simulation.events import check_transactions, maybe_scale, stored_events
from tests.simulation.machine import Failure
from tests.simulation.world import LONGEST_STORE_DELAY, Process, Workload, World

STREAM = "events"
_MOST_GROWTHS = 12

_NEVER = CorruptedStateError, IngestError, InvalidArgumentError, TransactionUnknownError
"""Errors that nothing that goes wrong in a world explains."""


class _Samples:
    """A source that grows; a sample follows from its position.

    :ivar length: how many there are now.
    """

    def __init__(self, seed: str) -> None:
        rng = Random(seed)
        self.part = rng.choice((1, 7, 50))
        self.length = rng.choice((0, 1, 3)) * self.part
        self.keys = [f"k{number}" for number in range(rng.choice((1, 3, 10)))]
        self.size = rng.choice((0, 100, 5000))

    def sample(self, position: int) -> tuple[str, bytes]:
        key = self.keys[position * 7 % len(self.keys)]
        return key, b"%d|%s" % (position, b"x" * (position * 31 % (self.size + 1)))

    def read_from(self, position: int) -> list[tuple[str, bytes]]:
        return [self.sample(each) for each in range(position, self.length)]

    def as_of_now(self) -> _Samples:
        """The source without what comes later; of a source that grows nobody can tell a length beforehand."""
        return copy(self)

    def length_from(self, position: int) -> int:
        return max(0, min(1 + crc32(b"%d" % position) % self.part, self.length - position))

    def is_last(self, sample: tuple[str | None, bytes], count: int, size: int) -> bool:
        return crc32(sample[1]) % self.part == 0

    def in_file(self, path: Path) -> list[tuple[str, bytes]]:
        """The samples of a file, whose name says where it begins."""
        begin = int(path.name)
        return [self.sample(each) for each in range(begin, begin + int(path.read_text()))]


async def _at_once(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """In place of :func:`trio.to_thread.run_sync`: what reads files and sources does not wait here."""
    await trio.lowlevel.checkpoint()
    return function(*args)


class Ingest(Workload):
    """A source or a folder is ingested by processes that are killed, and that take over from each other."""

    name: ClassVar[str] = "ingest"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        rng = self.random
        self.samples = _Samples(f"{world.settings.seed} samples")
        self.method = rng.choice(
            (
                None,
                FixedCount(self.samples.part),
                LengthBefore(lambda position: 0),
                EndRecord(self.samples.is_last),
            )
        )
        self.lease = rng.choice((10.0, 30.0, 120.0))
        self.stalls = rng.choice((0.0, 0.02, 0.1))
        self.segments = rng.randint(1, 3)
        self.folder = Path()

    async def prepare(self, client: PravegaClient) -> None:
        await client.create_stream(STREAM, self.segments)

    async def work(self) -> None:
        world = self.world
        with TemporaryDirectory() as folder, patch.object(trio.to_thread, "run_sync", _at_once):
            self.folder = Path(folder)
            begin, self.samples.length = self.samples.length, 0
            self.grow(max(1, begin))
            async with trio.open_nursery() as nursery:
                for _ in range(self.random.choice((1, 1, 2))):
                    nursery.start_soon(self.keep_alive, "ingester", self.ingest)
                nursery.start_soon(self.keep_growing)
                maybe_scale(self, nursery, STREAM, 0.5)
            last = world.process("admin-ingester")
            last.operation_timeout = 120.0
            await last.run(self.ingest_rest)
            # What was begun and never recorded ends with its lease.
            await trio.sleep(self.lease + 10.0)

    def grow(self, by: int) -> None:
        """Let the source grow, or add a file; its name says where it begins."""
        if self.method is None:
            (self.folder / f"{self.samples.length:08}").write_text(str(by))
        self.samples.length += by

    async def keep_growing(self) -> None:
        world, rng = self.world, self.random
        for _ in range(_MOST_GROWTHS):
            with trio.move_on_after(world.seconds * rng.choice((0.01, 0.1, 0.3)) * rng.random()):
                await world.over.wait()
            if world.quiet:
                return
            self.grow(rng.randint(1, 2 * self.samples.part))

    async def ingest(self, process: Process) -> None:
        world, rng = self.world, process.random
        async with process.client() as client:
            while not world.quiet:
                try:
                    await process.attempt(partial(self.run, process, client))
                except FencedError as error:
                    world.events.note(str(error)[:200])
                except PravegaError as error:
                    world.events.note(f"{type(error).__name__}: {error}"[:200])
                    if isinstance(error, _NEVER):
                        world.problem(f"{type(error).__name__}: {error}")
                with trio.move_on_after(
                    world.seconds * rng.choice((0.001, 0.01, 0.05)) * (0.5 + rng.random())
                ):
                    await world.over.wait()

    async def ingest_rest(self, process: Process) -> None:
        async with process.client() as client:
            try:
                await self.run(process, client)
            except FencedError as error:
                # A record of a killed ingester was still on its way.
                self.world.events.note(str(error)[:200])
                await trio.sleep(LONGEST_STORE_DELAY)
                await self.run(process, client)
            # Readers see all of it now, and not later.
            await self.check_events(client)

    async def run(self, process: Process, client: PravegaClient) -> None:
        observer = partial(self.reached, process)
        if self.method is None:
            files = FileIngester(
                client, STREAM, "sync", parse=self.samples.in_file, lease=self.lease, observer=observer
            )
            await files.run(self.folder)
        else:
            samples, method = self.samples, self.method
            if isinstance(method, LengthBefore):
                samples = samples.as_of_now()
                method = LengthBefore(samples.length_from)
            source = SourceIngester(
                client, STREAM, "sync", method=method, lease=self.lease, observer=observer
            )
            await source.run(samples)

    async def reached(self, process: Process, stage: Stage, record: IngestRecord) -> None:
        world, rng = self.world, process.random
        world.events.note(f"{process.name}: {stage.name} {record.title}")
        if world.quiet:
            return
        if world.has("kill") and rng.random() < 0.02:
            process.kill()
            await trio.lowlevel.checkpoint()
        elif rng.random() < self.stalls:
            with trio.move_on_after(self.lease * rng.choice((0.1, 3.0)) * rng.random()):
                await world.over.wait()

    async def check(self, client: PravegaClient) -> None:
        await self.check_events(client)
        check_transactions(self.world)

    async def check_events(self, client: PravegaClient) -> None:
        segments = await stored_events(client, STREAM)
        found = [[int(event.split(b"|")[0]) for event in segment] for segment in segments]
        for positions, segment in zip(found, segments, strict=True):
            if positions != sorted(positions):
                raise Failure(f"samples are not in order: {positions}")
            if segment != [self.samples.sample(each)[1] for each in positions]:
                raise Failure("a sample is not what was ingested")
        everything = sorted(each for positions in found for each in positions)
        if everything != list(range(self.samples.length)):
            raise Failure(f"lost or doubled: {everything} of {self.samples.length}")
