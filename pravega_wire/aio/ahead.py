"""Reading batches ahead, in the client's thread, for tasks of the event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Protocol

from pravega_wire.aio.portal import Call, Line
from pravega_wire.errors import ClosedError
from pravega_wire.protocol.events import EventBatch
from pravega_wire.segment.handles import OneAtATime
from pravega_wire.support.environment import environment

__all__ = ["AHEAD_BYTES", "ReadAhead"]

AHEAD_BYTES: Final = 4 << 20
"""As much as the reader itself requests from the store. Reading ahead stops when this is reached."""

_UNINTERRUPTED_SECONDS: Final = 0.005
"""The longest time that batches are returned without letting other tasks of the event loop run.

Yielding for each batch would make the two threads contend for the interpreter's lock.
"""


class Batches(Protocol):
    """The source of batches, in the client's thread."""

    @property
    def at_hand(self) -> bool:
        """Whether the next batch is available without waiting."""

    async def next_batch(self) -> EventBatch | None:
        """Return the next batch, or None after the last."""


class ReadAhead:
    """Reads batches in the client's thread until it has enough. Tasks of the event loop take them.

    Waking the other thread costs a good part of what reading a batch costs. So the client's thread wakes the
    event loop only if a task waits and no further batch is available, and the event loop wakes the client's
    thread only when half of the room is free.

    :param line: the line of the object that is read. Closing it ends the reading.
    """

    def __init__(self, line: Line, batches: Batches) -> None:
        self._line = line
        self._batches = batches
        self._alone = OneAtATime("another call is reading with this reader")
        self._call: Call[None] | None = None
        # One thread appends, the other removes.
        self._ready: deque[EventBatch] = deque()
        self._ended = False
        # Each is changed by one thread only. A sum that both change would need a lock.
        self._bytes_read = 0
        self._bytes_taken = 0
        self._waiting = False
        self._give_way = 0.0
        # Lets a task that waited see that the reader was closed, so that it does not start reading again.
        self._drops = 0

    @property
    def held_bytes(self) -> int:
        """The number of bytes that were read and not taken."""
        return self._bytes_read - self._bytes_taken

    # --- in the event loop ----------------------------------------------------------------------

    async def next_batch(self) -> EventBatch | None:
        """Return the next batch, or None after the last.

        If this is cancelled, the next call returns the batch.

        :raises ClosedError: the client is closed, or the reader was closed during this call.
        :raises ConcurrentUseError: another call is reading.
        """
        with self._alone:
            if (self._ready or self._ended) and environment().monotonic() >= self._give_way:
                await asyncio.sleep(0)
                self._give_way = environment().monotonic() + _UNINTERRUPTED_SECONDS
            while True:
                self._line.crossing.check_open()
                # Checked before the batches: those read before the call ended are ready by now.
                call = self._call
                reading = call is not None and not call.ended
                if self._ready:
                    return self._take()
                if reading:
                    assert call is not None
                    drops = self._drops
                    await self._news(call)
                    if drops != self._drops:
                        raise ClosedError("the reader was closed while this task was waiting for it")
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
        """Wait for a batch or for the end of the call."""
        waiter = call.waiter()
        self._waiting = True
        try:
            if not self._ready and not call.ended:
                await waiter
        finally:
            self._waiting = False
            self._give_way = environment().monotonic() + _UNINTERRUPTED_SECONDS

    def drop(self) -> None:
        """Discard batches, after the reader was closed. A call that waits gets :class:`ClosedError`.

        A later call uses the closed reader, which raises its own error.
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
