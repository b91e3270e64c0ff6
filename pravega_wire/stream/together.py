"""Reading several ranges of segments at the same time, within a bound of memory."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from itertools import groupby
from typing import Final, Self

import trio

from pravega_wire.checks import check_bytes, check_count, check_flag
from pravega_wire.controller.tokens import Access
from pravega_wire.errors import ClosedError, PravegaError
from pravega_wire.naming import epoch_of
from pravega_wire.segment.reader import CHUNK_BYTES, DEPTH, EventRangeReader, RangeReader
from pravega_wire.stream.batch import lone_errors
from pravega_wire.stream.core import ClientCore
from pravega_wire.stream.event_reader import SegmentEvents
from pravega_wire.types import SegmentRange

__all__ = ["RangesReader", "read_ranges"]

_SMALLEST_CHUNK: Final = 64 * 1024
_CHUNKS_EACH: Final = DEPTH + 2
# Of a range: under way or arrived, being parsed, waiting to be taken.


class RangesReader:
    """The events of several ranges, a batch of one segment at a time: ``async for batch in reader``.

    Made by :meth:`PravegaClient.read_ranges`. Use it from one task.
    """

    def __init__(self, batches: trio.MemoryReceiveChannel[SegmentEvents]) -> None:
        self._batches = batches
        self.failure: PravegaError | None = None
        self.closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SegmentEvents:
        batch = await self.next_batch()
        if batch is None:
            raise StopAsyncIteration
        return batch

    async def next_batch(self) -> SegmentEvents | None:
        """The next events (at least one), or None after the last.

        :raises DataLossError: a range was truncated meanwhile; other errors as those of reading one range.
            Every further call raises the same.
        :raises ClosedError: the context was left.
        """
        try:
            return await self._batches.receive()
        except trio.EndOfChannel:
            if self.closed:
                # None would say that everything was read.
                raise ClosedError("the reader of these ranges is closed") from None
            if self.failure is not None:
                raise self.failure from None
            return None


@asynccontextmanager
async def read_ranges(
    core: ClientCore, ranges: Iterable[SegmentRange], *, at_once: int, max_buffered_bytes: int, ordered: bool
) -> AsyncIterator[RangesReader]:
    """See :meth:`PravegaClient.read_ranges`."""
    core.check_open()
    check_count("at_once", at_once)
    check_bytes("max_buffered_bytes", max_buffered_bytes)
    check_flag("ordered", ordered)
    chunk_bytes = min(CHUNK_BYTES, max(_SMALLEST_CHUNK, max_buffered_bytes // (_CHUNKS_EACH * at_once)))
    send, receive = trio.open_memory_channel[SegmentEvents](0)
    reader = RangesReader(receive)

    async def read(each: SegmentRange) -> None:
        target = core.target(each.stream, each.segment_id, Access.READ)
        async with EventRangeReader(
            RangeReader(core.stores, target, each.start_offset, each.end_offset, chunk_bytes=chunk_bytes)
        ) as events:
            async for batch in events:
                await send.send(SegmentEvents(each.segment, batch))

    async def read_some(waiting: deque[deque[SegmentRange]], scope: trio.CancelScope) -> None:
        try:
            while waiting:
                for each in waiting.popleft():
                    await read(each)
        except PravegaError as error:
            # The first failure ends everything; whoever asks for more is told.
            reader.failure = reader.failure or error
            scope.cancel()

    async def read_all() -> None:
        async with send:
            for group in _groups(list(ranges), ordered=ordered):
                waiting = deque(group)
                async with trio.open_nursery() as nursery:
                    for _ in range(min(at_once, len(group))):
                        nursery.start_soon(read_some, waiting, nursery.cancel_scope)
                if reader.failure is not None:
                    return

    with lone_errors() as body:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read_all)
            try:
                with body:
                    yield reader
            finally:
                reader.closed = True
                nursery.cancel_scope.cancel()


def _groups(ranges: Sequence[SegmentRange], *, ordered: bool) -> list[list[deque[SegmentRange]]]:
    """What may be read at the same time; in each group, ranges that one task reads in turn.

    A segment can only follow one of an earlier epoch. Pieces of one segment follow each other.
    """
    if not ordered:
        return [[deque([each]) for each in ranges]] if ranges else []
    in_order = sorted(ranges, key=lambda each: (each.stream, each.segment_id, each.start_offset))
    groups: dict[int, list[deque[SegmentRange]]] = {}
    for (_, segment_id), pieces in groupby(in_order, key=lambda each: (each.stream, each.segment_id)):
        groups.setdefault(epoch_of(segment_id), []).append(deque(pieces))
    return [groups[epoch] for epoch in sorted(groups)]
