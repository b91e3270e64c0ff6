"""Reading segment ranges: see :class:`RangesReader`."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Final, Self
from weakref import finalize

import trio

from pravega_wire.controller.tokens import Access
from pravega_wire.errors import ClosedError, PravegaError
from pravega_wire.protocol.events import EventBatch
from pravega_wire.segment.handles import OneAtATime, Waiters
from pravega_wire.segment.reader import (
    CHUNK_BYTES,
    DEPTH,
    SMALLEST_CHUNK_BYTES,
    EventRangeReader,
    RangeReader,
)
from pravega_wire.stream.core import ClientCore
from pravega_wire.support.checks import check_bytes, check_count, check_flag, check_several, check_type
from pravega_wire.values.naming import epoch_of
from pravega_wire.values.types import SegmentRange

__all__ = ["InOrder", "RangesReader", "Together"]

_CLOSED: Final = "the reader of these ranges is closed"
_CHUNKS_EACH: Final = DEPTH + 2
"""The most chunks that one range holds: in flight or received, being parsed, and waiting to be taken."""


class RangesReader:
    """The events of ranges, in batches of one segment each: ``async for batch in reader``.

    Made by :meth:`PravegaClient.read_range`, :meth:`PravegaClient.read_ranges` and
    :meth:`PravegaClient.read_events`. Close it (``aclose`` or ``async with``) if you stop before the end; a
    reader that nobody refers to any more closes itself. It is for one caller at a time.

    Example::

        ranges = await client.segment_ranges("demo/readings")
        async with client.read_ranges(ranges, at_once=4) as batches:
            async for batch in batches:
                print(batch.segment, len(batch))
    """

    def __init__(self, source: InOrder | Together) -> None:
        self._source = source
        self._alone = OneAtATime("another call is reading with this reader")
        if isinstance(source, Together):
            # Its tasks refer to it, not to this reader.
            finalize(self, source.abandon).atexit = False

    def __repr__(self) -> str:
        return f"<RangesReader, {self._source.state}>"

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> EventBatch:
        batch = await self.next_batch()
        if batch is None:
            raise StopAsyncIteration
        return batch

    async def next_batch(self) -> EventBatch | None:
        """Return the next events (at least one), or None after the last.

        The first call for :meth:`PravegaClient.read_events` looks up the ranges between the cuts, and raises
        the errors of :meth:`PravegaClient.segment_ranges`.

        :raises DataLossError: a range was truncated before it was read, or its segment deleted.
        :raises TruncatedInputError: a range ends in the middle of an event.
        :raises DecodeError: a range does not contain events.
        :raises RetriesExhaustedError: a store could not be reached within ``operation_timeout``.
        :raises ClosedError: the reader was closed before or during this call.
        :raises ConcurrentUseError: another call is reading.
        """
        with self._alone:
            return await self._source.next_batch()

    async def aclose(self) -> None:
        """Release the connections. A call that is reading gets :class:`ClosedError`."""
        await self._source.end()
        await trio.lowlevel.checkpoint()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        await self._source.end()
        if kind is None:
            # After an exception there is no checkpoint: a cancellation would replace the exception.
            await trio.lowlevel.checkpoint()


class InOrder:
    """Reads ranges one after the other, in the caller's own call.

    :param find: returns the ranges; called by the first request for a batch.
    """

    def __init__(self, core: ClientCore, find: Callable[[], Awaitable[Iterable[SegmentRange]]]) -> None:
        core.check_open()
        self._core = core
        self._find = find
        self._left: Iterator[SegmentRange] | None = None
        self._current: EventRangeReader | None = None
        self._waiters = Waiters(_CLOSED, core.stores.thread)

    @property
    def state(self) -> str:
        """The state as words for ``repr``."""
        if self._waiters.closed:
            return "closed"
        return "not begun" if self._left is None else "open"

    @property
    def at_hand(self) -> bool:
        """Whether the next batch is available without waiting."""
        return self._current is not None and self._current.at_hand

    async def next_batch(self) -> EventBatch | None:
        """See :meth:`RangesReader.next_batch`. The call after one that has failed tries again."""
        if self._left is None:
            with self._waiters.waiting():
                self._left = iter(await self._find())
        while True:
            self._waiters.check()
            if self._current is None:
                each = next(self._left, None)
                if each is None:
                    await trio.lowlevel.checkpoint()
                    return None
                self._current = _reader(self._core, each, CHUNK_BYTES, None)
            batch = await self._current.next_batch()
            if batch is not None:
                return batch
            self._current = None

    async def end(self) -> None:
        """Release the connection; without a checkpoint."""
        self._waiters.close()
        if self._current is not None:
            self._current.close_nowait()


class Together:
    """Reads several ranges at a time, ahead of the caller: see :meth:`PravegaClient.read_ranges`."""

    def __init__(
        self,
        core: ClientCore,
        ranges: Iterable[SegmentRange],
        *,
        at_once: int,
        max_buffered_bytes: int,
        ordered: bool,
    ) -> None:
        core.check_open()
        check_count("at_once", at_once)
        check_bytes("max_buffered_bytes", max_buffered_bytes)
        check_flag("ordered", ordered)
        self._core = core
        check_several("ranges", ranges)
        given = list(ranges)
        for each in given:
            check_type("each of ranges", each, SegmentRange)
        self._groups = _groups(given, ordered=ordered)
        self._at_once = at_once
        self._chunk_bytes = min(
            CHUNK_BYTES, max(SMALLEST_CHUNK_BYTES, max_buffered_bytes // (_CHUNKS_EACH * at_once))
        )
        self._send, self._batches = trio.open_memory_channel[EventBatch](0)
        self._scope = trio.CancelScope()
        # Once it has started to read.
        self._token: trio.lowlevel.TrioToken | None = None
        self._done = trio.Event()
        self._complete = False
        self._closed = False
        self._failure: PravegaError | None = None

    @property
    def state(self) -> str:
        """The state as words for ``repr``."""
        if self._closed:
            return "closed"
        if self._failure is not None:
            return f"failed: {type(self._failure).__name__}"
        return "not begun" if self._token is None else "open"

    async def next_batch(self) -> EventBatch | None:
        """See :meth:`RangesReader.next_batch`. After an error every further call raises the same error."""
        self._core.check_run()
        self._check_open()
        if self._token is None:
            self._core.check_open()
            self._token = trio.lowlevel.current_trio_token()
            self._core.nursery.start_soon(self._read_all)
        try:
            return await self._batches.receive()
        except trio.EndOfChannel:
            pass
        self._check_open()
        if self._failure is not None:
            raise self._failure
        if not self._complete:
            raise ClosedError("the client is closed")
        return None

    def _check_open(self) -> None:
        if self._closed:
            # Returning None would mean that everything was read.
            raise ClosedError(_CLOSED)

    async def end(self) -> None:
        """Release the connections; without a checkpoint."""
        self._core.check_run()
        self._closed = True
        self._scope.cancel()
        if self._token is not None:
            # The reader's tasks are cancelled and end without waiting.
            with trio.CancelScope(shield=True):
                await self._done.wait()

    def abandon(self) -> None:
        """End the tasks if they have not ended, because the reader was dropped; in any thread."""
        if self._token is not None and not self._done.is_set():
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._scope.cancel)

    # --- tasks ----------------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    async def _read_all(self) -> None:
        try:
            with self._scope:
                async with self._send:
                    for group in self._groups:
                        waiting = deque(group)
                        async with trio.open_nursery() as nursery:
                            for _ in range(min(self._at_once, len(group))):
                                nursery.start_soon(self._read_some, waiting, nursery.cancel_scope)
                        if self._failure is not None:
                            return
                    self._complete = True
        finally:
            self._done.set()

    @trio.lowlevel.enable_ki_protection
    async def _read_some(self, waiting: deque[deque[SegmentRange]], scope: trio.CancelScope) -> None:
        try:
            while waiting:
                for each in waiting.popleft():
                    await self._read(each)
        except PravegaError as error:
            # The first failure ends all reading. The next request for a batch raises it.
            self._failure = self._failure or error
            scope.cancel()

    async def _read(self, each: SegmentRange) -> None:
        async with _reader(self._core, each, self._chunk_bytes, DEPTH) as events:
            while (batch := await events.next_batch()) is not None:
                await self._send.send(batch)


def _reader(core: ClientCore, each: SegmentRange, chunk_bytes: int, depth: int | None) -> EventRangeReader:
    core.check_open()
    target = core.target(each.stream, each.segment_id, Access.READ)
    return EventRangeReader(
        RangeReader(
            core.stores, target, each.start_offset, each.end_offset, chunk_bytes=chunk_bytes, depth=depth
        )
    )


def _groups(ranges: Sequence[SegmentRange], *, ordered: bool) -> list[list[deque[SegmentRange]]]:
    """Group the ranges that may be read concurrently. Each deque in a group is read by one task, in order.

    A segment can only follow one of an earlier epoch. Pieces of one segment are in one deque.
    """
    if not ordered:
        return [[deque([each]) for each in ranges]] if ranges else []
    in_order = sorted(ranges, key=lambda each: (each.stream, each.segment_id, each.start_offset))
    groups: dict[int, list[deque[SegmentRange]]] = {}
    for (_, segment_id), pieces in groupby(in_order, key=lambda each: (each.stream, each.segment_id)):
        groups.setdefault(epoch_of(segment_id), []).append(deque(pieces))
    return [groups[epoch] for epoch in sorted(groups)]
