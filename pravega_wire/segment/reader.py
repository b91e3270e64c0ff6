"""Reading a range of one segment: raw bytes, and the events in them.

The server answers a read with at most 2 MiB, and with less where an entry of its cache ends
(``docs/protocol/wire.md``, "Reads"). :class:`RangeReader` keeps several reads in flight, so that the next
bytes arrive while the caller works on the last ones. Memory stays within as many chunks.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Self

import trio

from pravega_wire.errors import (
    ClosedError,
    ConnectionLostError,
    DecodeError,
    InvalidArgumentError,
    PravegaError,
    TokenExpiredError,
)
from pravega_wire.protocol import commands as c
from pravega_wire.protocol.events import EventAssembler, EventBatch
from pravega_wire.segment.failures import beyond_end, check_passing, data_read, reading_given_up
from pravega_wire.segment.handles import OneAtATime, Waiters, when_dropped
from pravega_wire.segment.metadata import SegmentMetadata
from pravega_wire.segment.store import Backoff, SegmentStores, SegmentTarget
from pravega_wire.support.environment import environment
from pravega_wire.transport.connection import Flow

__all__ = [
    "CHUNK_BYTES",
    "DEPTH",
    "LOOK_SECONDS",
    "PROGRESS_BYTES",
    "SMALLEST_CHUNK_BYTES",
    "EventRangeReader",
    "RangeReader",
    "ReadDepth",
]

CHUNK_BYTES = 1 << 20
SMALLEST_CHUNK_BYTES = 64 * 1024
DEPTH = 4
_MOST_DEPTH = 32
# So much further away, another request is kept in flight: 1 MiB in 5 ms are 200 MB/s.
_SECONDS_EACH = 0.005
# An answer that is late counts as progress if this much has arrived: more than keep-alives.
PROGRESS_BYTES = 64 * 1024
# If a store is silent for so long, the range may reach beyond the end of the segment.
LOOK_SECONDS = 2.0


class ReadDepth:
    """How many requests a reader keeps in flight on a connection.

    Unless it is told, more to a store that is further away, because while one answer travels, others can
    follow it. The distance is the time of the quickest answer so far, or of the greeting if that was quicker:
    where an answer takes long because the line is slow, more requests would only wait for each other.

    :param depth: how many; None: 4 to 32.
    :ivar depth: how many.
    """

    __slots__ = ("_asked_at", "_distance", "_request", "depth")

    def __init__(self, depth: int | None) -> None:
        self.depth = DEPTH if depth is None else depth
        self._distance = math.inf if depth is None else 0.0
        # One at a time is timed.
        self._request: int | None = None
        self._asked_at = 0.0

    def asked(self, request_id: int) -> None:
        """Note that a request is sent."""
        if self._request is None and self._distance:
            self._request, self._asked_at = request_id, environment().monotonic()

    def answered(self, request_id: int, greeting: float) -> None:
        """Note that a request is answered.

        :param greeting: seconds in which the connection was greeted.
        """
        if request_id != self._request:
            return
        self._request = None
        self._distance = min(self._distance, environment().monotonic() - self._asked_at, greeting)
        self.depth = min(_MOST_DEPTH, DEPTH + int(self._distance / _SECONDS_EACH))


class RangeReader:
    """Reads the bytes of ``[start, end)`` of a segment in order.

    It is for one caller at a time. Close it afterwards.

    :param stores: connections to segment stores.
    :param target: the segment.
    :param start: first offset, bytes.
    :param end: offset after the last byte. The data up to it must exist: this reader does not wait for
        appends.
    :param chunk_bytes: bytes of one request.
    :param depth: the most requests in flight and chunks waiting for the caller, together; see
        :class:`ReadDepth`.
    """

    def __init__(
        self,
        stores: SegmentStores,
        target: SegmentTarget,
        start: int,
        end: int,
        *,
        chunk_bytes: int = CHUNK_BYTES,
        depth: int | None = None,
    ) -> None:
        if not 0 <= start <= end:
            raise InvalidArgumentError(f"range {start}..{end} of {target.name} is not a range")
        self.target = target
        self.offset = self._start = start
        self.end = end
        self._stores = stores
        self.counts = stores.counters.reading(target.scope, target.stream)
        self.chunk_bytes = chunk_bytes
        self._depth = depth
        self._ahead = ReadDepth(depth)
        self._flow: Flow | None = None
        self._next = start
        self._asked: dict[int, tuple[int, int]] = {}
        self._chunks: dict[int, memoryview] = {}
        self._failure: PravegaError | None = None
        self._arrived = trio.Event()
        self._backoff = Backoff(stores.operation_timeout)
        self._waiters = Waiters(f"the reader of {target.name} is closed", stores.thread)
        self._alone = OneAtATime(f"another call is receiving from the reader of {target.name}")
        self._token = ""
        # How long an answer may take, seconds; None if the store may have to wait for data first.
        self._patience: float | None = stores.limits.attempt
        self._end_checked = False

    # --- replies --------------------------------------------------------------------------------

    def on_reply(self, reply: c.Command) -> bool:
        """See :class:`FlowHandler`."""
        request_id = c.reply_request_id(reply)
        asked = self._asked.pop(request_id, None)
        if asked is None:
            return False
        offset, length = asked
        if self._flow is not None:
            self._ahead.answered(request_id, self._flow.connection.greeting)
        try:
            data = data_read(reply, offset, length, end=self.end, segment=self.target.name, host=self._host)
        except PravegaError as error:
            self._fail(error)
            return True
        self.counts.received(len(data))
        self._chunks[offset] = data
        if len(data) < length:
            self._ask(offset + len(data), length - len(data))
        if offset == self.offset:
            self._arrived.set()
        return True

    @property
    def _host(self) -> str:
        return "?" if self._flow is None else self._flow.connection.host

    def on_lost(self, error: PravegaError) -> None:
        """See :class:`FlowHandler`."""
        self._fail(error)

    def _fail(self, error: PravegaError) -> None:
        if self._failure is None:
            self._failure = error
        self._arrived.set()

    # --- asking ---------------------------------------------------------------------------------

    def _ask(self, offset: int, length: int) -> None:
        flow = self._flow
        if flow is None or flow.connection.closed:
            return
        request_id = flow.next_request_id()
        self._asked[request_id] = (offset, length)
        self._ahead.asked(request_id)
        flow.send(
            c.ReadSegment(
                segment=self.target.name,
                offset=offset,
                suggested_length=length,
                delegation_token=self._token,
                request_id=request_id,
            )
        )

    def _ask_ahead(self) -> None:
        while self._next < self.end and len(self._asked) + len(self._chunks) < self._ahead.depth:
            length = min(self.chunk_bytes, self.end - self._next)
            self._ask(self._next, length)
            self._next += length

    async def _connect(self) -> None:
        self._failure = None
        self._asked.clear()
        # It may be another store.
        self._ahead = ReadDepth(self._depth)
        endpoint = await self._stores.endpoint(self.target)
        try:
            self._token = await self.target.token()
            with self._stores.attempt_limit("a connection", endpoint):
                self._flow = await self._stores.pool.flow(endpoint, self)
        except PravegaError:
            self._stores.forget(self.target, endpoint)
            raise
        # What has arrived is kept; everything after it is requested again.
        self._next = self.offset
        while self._next in self._chunks:
            self._next += len(self._chunks[self._next])
        kept = {}
        offset = self.offset
        while offset < self._next:
            kept[offset] = self._chunks[offset]
            offset += len(kept[offset])
        self._chunks = kept

    async def _recover(self, error: PravegaError) -> None:
        """Prepare another attempt after ``error``; raises if there cannot be one."""
        if self._flow is not None:
            self._flow.close()
            self._flow = None
        self._stores.forget(self.target)
        if isinstance(error, TokenExpiredError):
            self.target.token.expire()
        check_passing(error, self.target.name, self.offset)
        self._backoff.failed(error, f"reading {self.target.name}")
        if not await self._backoff.wait():
            raise reading_given_up(error, self.target.name, self._backoff.taken) from error
        self.counts.reconnecting(error)

    async def receive(self) -> memoryview | None:
        """Return the next bytes in order (not empty), or None after the last.

        Cancelling the call leaves the reader usable.

        :raises DataLossError: the bytes were truncated or the segment deleted.
        :raises RetriesExhaustedError: the store could not be reached within ``operation_timeout``.
        :raises ConcurrentUseError: another call is receiving.
        :raises ClosedError: the reader is closed, or was closed during the call.
        """
        with self._alone, self._waiters.waiting():
            try:
                return await self._receive()
            finally:
                if self._waiters.closed:
                    # The reader was closed while the connection was being made.
                    self.release()

    async def _receive(self) -> memoryview | None:
        self._backoff.reset()
        last: PravegaError | None = None
        while self.offset < self.end:
            # Before anything is looked at: answers also come while a token is fetched.
            self._arrived = trio.Event()
            try:
                if self._flow is None:
                    left = self._backoff.attempt_left(self._stores.limits.attempt)
                    with trio.move_on_after(left) as scope:
                        await self._connect()
                    if scope.cancelled_caught:
                        raise last or ConnectionLostError(
                            f"no connection to read {self.target.name}", segment=self.target.name
                        )
                else:
                    # Reading may last longer than a token lives.
                    self._token = await self.target.token()
            except PravegaError as error:
                last = error
                await self._recover(error)
                continue
            self._ask_ahead()
            chunk = self._chunks.pop(self.offset, None)
            if chunk is not None:
                self.offset += len(chunk)
                self._ask_ahead()
                return chunk
            failure = self._failure
            if failure is not None:
                if self._may_begin_beyond_end():
                    failure = await self._check_end() or failure
                last = failure
                await self._recover(failure)
                continue
            await self._wait()
        return None

    async def _wait(self) -> None:
        """Wait for an answer; one that does not arrive in time is a failure."""
        while self._patience is not None and self._flow is not None:
            connection = self._flow.connection
            before = connection.received_bytes
            patience = min(self._patience, self._backoff.attempt_left(self._patience))
            if not self._end_checked:
                with trio.move_on_after(min(LOOK_SECONDS, patience)):
                    await self._arrived.wait()
                    return
                if connection.received_bytes - before < PROGRESS_BYTES:
                    # The store may be waiting for what is in the range and not in the segment.
                    beyond = await self._check_end()
                    if beyond is not None:
                        self._fail(beyond)
                    if self._arrived.is_set():
                        return
                    patience = min(patience, self._backoff.attempt_left(patience))
            with trio.move_on_after(patience):
                await self._arrived.wait()
            if self._arrived.is_set():
                return
            if connection.received_bytes - before < PROGRESS_BYTES:
                connection.retire()
                self._fail(
                    ConnectionLostError(
                        f"{connection.host} has sent no data of {self.target.name} for {patience:.3g} s",
                        segment=self.target.name,
                        host=connection.host,
                    )
                )
                return
            # The store answers the other requests on this connection first.
            self._backoff.arriving()
        await self._arrived.wait()

    def _may_begin_beyond_end(self) -> bool:
        """Whether stores do what they do where a sealed segment ends before the range: hang up after a read.

        After two failures: connections may have been lost before they were used, and it is told by then that
        the reader has to wait, if its store is away.
        """
        return (
            not self._end_checked
            and self.offset == self._start
            and self._flow is not None
            and self._flow.connection.closed
            and self._flow.connection.greeting < math.inf
            and self._backoff.attempts > 1
        )

    async def _check_end(self) -> PravegaError | None:
        """Ask, once, where the segment ends; return the error if the range ends after it."""
        self._end_checked = True
        info = None
        with trio.move_on_after(LOOK_SECONDS), suppress(PravegaError):
            info = await SegmentMetadata(self._stores, self.target).info()
        if info is None or info.write_offset >= self.end:
            return None
        return beyond_end(self.target.name, self.offset, self.end, info.write_offset)

    def close(self) -> None:
        """Release the connection. A call that is receiving gets :class:`ClosedError`.

        Replies that are still in flight are dropped when they arrive.
        """
        self._waiters.close()
        self.release()

    @property
    def connected(self) -> bool:
        """Whether a part of a connection is in use."""
        return self._flow is not None

    def release(self) -> None:
        """Give the connection up, and what has arrived; the next call connects again."""
        self._chunks.clear()
        if self._flow is not None:
            self._flow.close()
            self._flow = None


class EventRangeReader:
    """Reads the events of a range in batches.

    It is for one caller at a time. Close it (``aclose`` or ``async with``) if it is not read to the end.
    """

    def __init__(self, reader: RangeReader) -> None:
        self._reader = reader
        self._assembler = EventAssembler(reader.offset, reader.target.name, lazy=True)
        self._ready: list[EventBatch] = []
        # The last batch that was returned: it is counted later, when its events were found.
        self._uncounted: EventBatch | None = None
        self._ended = False
        self._closed = False
        # A connection in use refers to the reader, so the reader must not refer to this.
        when_dropped(self, reader.close, lambda: reader.connected)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        self.close_nowait()
        if kind is None:
            # An exception is passed on unchanged: no cancellation replaces it.
            await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        """Release the connection. A call that waits for a batch gets :class:`ClosedError`."""
        self.close_nowait()
        await trio.lowlevel.checkpoint()

    def close_nowait(self) -> None:
        """Do what :meth:`aclose` does, without a checkpoint."""
        self._closed = True
        self._count()
        self._reader.close()

    def _count(self) -> None:
        batch, self._uncounted = self._uncounted, None
        if batch is not None:
            self._reader.counts.read(len(batch), batch.nbytes)

    @property
    def at_hand(self) -> bool:
        """Whether the next batch is available without waiting."""
        return bool(self._ready)

    async def next_batch(self) -> EventBatch | None:
        """Return the next events (at least one), or None after the last.

        :raises TruncatedInputError: the range ends in the middle of an event.
        :raises DecodeError: the bytes are not events.
        :raises DataLossError: the bytes were truncated or the segment deleted.
        :raises RetriesExhaustedError: the store could not be reached within ``operation_timeout``.
        :raises ConcurrentUseError: another call is receiving.
        :raises ClosedError: the reader is closed, or was closed during the call.
        """
        if self._closed:
            raise ClosedError(f"the reader of {self._reader.target.name} is closed")
        self._count()
        if self._ended:
            await trio.lowlevel.checkpoint()
            return None
        while not self._ready:
            try:
                self._assembler.check()
                chunk = await self._reader.receive()
                if chunk is None:
                    self._reader.release()
                    self._assembler.end()
                    self._ended = True
                    return None
                self._ready = self._assembler.take(chunk)
            except DecodeError:
                # Every further call raises it again.
                self._reader.release()
                raise
        self._uncounted = batch = self._ready.pop(0)
        return batch
