"""Batches that the client's thread reads before tasks of the event loop ask for them."""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic
from typing import Final, Protocol

from pravega_wire.aio.portal import Call, Line
from pravega_wire.errors import ClosedError
from pravega_wire.protocol.events import EventBatch
from pravega_wire.segment.handles import OneAtATime

__all__ = ["AHEAD_BYTES", "ReadAhead"]

AHEAD_BYTES: Final = 4 << 20
# As much as the reader itself has asked the store for. It stops at the first batch that reaches this.

_UNINTERRUPTED_SECONDS: Final = 0.005
# So long batches may come without another task of the event loop running. Giving way for each of them would
# make the two threads contend for the interpreter's lock.


class Batches(Protocol):
    """What batches are read from, in the client's thread."""

    @property
    def at_hand(self) -> bool:
        """Whether the next batch needs no waiting."""

    async def next_batch(self) -> EventBatch | None:
        """The next batch, or None after the last."""


class ReadAhead:
    """Reads batches in the client's thread until it has enough; tasks of the event loop take them.

    Waking the other thread costs a good part of what reading a batch costs. So the client's thread wakes the
    event loop only when a task waits and no further batch is at hand, and the event loop wakes the client's
    thread only when half of the room is free.

    :param line: of the object that is read. Closing that ends the reading.
    """

    def __init__(self, line: Line, batches: Batches) -> None:
        self._line = line
        self._batches = batches
        self._alone = OneAtATime("another task is reading with this reader")
        self._call: Call[None] | None = None
        # One thread appends, the other takes.
        self._ready: deque[EventBatch] = deque()
        self._ended = False
        # Each is set by one thread: a sum that both change would need a lock.
        self._bytes_read = 0
        self._bytes_taken = 0
        self._waiting = False
        self._give_way = 0.0
        # A task that has waited must not begin to read again what was closed while it did.
        self._drops = 0

    @property
    def held_bytes(self) -> int:
        """Bytes that were read and not taken."""
        return self._bytes_read - self._bytes_taken

    # --- in the event loop ----------------------------------------------------------------------

    async def next_batch(self) -> EventBatch | None:
        """The next batch, or None after the last. A task that is cancelled leaves it for the next call.

        :raises ClosedError: the client is closed, or what is read was closed meanwhile.
        :raises ConcurrentUseError: another task is reading.
        """
        with self._alone:
            if (self._ready or self._ended) and monotonic() >= self._give_way:
                await asyncio.sleep(0)
                self._give_way = monotonic() + _UNINTERRUPTED_SECONDS
            while True:
                self._line.crossing.check_open()
                # Looked at first: what has come before it ended is ready by now.
                call = self._call
                reading = call is not None and not call.ended
                if self._ready:
                    return self._take()
                if reading:
                    assert call is not None
                    drops = self._drops
                    await self._news(call)
                    if drops != self._drops:
                        raise ClosedError("what this task was reading was closed meanwhile")
                    continue
                self._call = None
                if call is not None:
                    call.result()
                if self._ended:
                    return None
                self._call = self._line.crossing.launch(self._line, self._read)

    def _take(self) -> EventBatch:
        call = self._call
        batch = self._ready.popleft()
        self._bytes_taken += batch.nbytes
        if call is not None and call.succeeded and not self._ended and self.held_bytes <= AHEAD_BYTES // 2:
            self._call = self._line.crossing.launch(self._line, self._read)
        return batch

    async def _news(self, call: Call[None]) -> None:
        """Wait for a batch or the end of the call."""
        waiter = call.waiter()
        self._waiting = True
        try:
            if not self._ready and not call.ended:
                await waiter
        finally:
            self._waiting = False
            self._give_way = monotonic() + _UNINTERRUPTED_SECONDS

    def drop(self) -> None:
        """Forget what was read, after closing what is read; a task that waits gets :class:`ClosedError`.

        A later call asks what was closed, which answers for itself.
        """
        self._drops += 1
        self._call = None
        self._ready.clear()
        self._bytes_taken = self._bytes_read
        self._ended = False

    # --- in the client's thread -----------------------------------------------------------------

    async def _read(self) -> None:
        batches = self._batches
        while self.held_bytes < AHEAD_BYTES:
            batch = await batches.next_batch()
            if batch is None:
                self._ended = True
                return
            self._bytes_read += batch.nbytes
            self._ready.append(batch)
            if self._waiting and not batches.at_hand:
                self._waiting = False
                call = self._call
                if call is not None:
                    self._line.crossing.to_loop(call.wake)
