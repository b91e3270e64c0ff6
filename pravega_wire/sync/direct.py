"""Reading a range through a socket of the calling thread; see :class:`DirectReader`."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final, Self

import trio

from pravega_wire.controller.tokens import Access, expires_soon, expiry_of
from pravega_wire.errors import ClosedError, ConnectionLostError, PravegaError, TokenExpiredError
from pravega_wire.protocol import commands as c
from pravega_wire.protocol.codec import segment_read_data_at
from pravega_wire.protocol.events import EventAssembler, EventBatch
from pravega_wire.segment.failures import (
    beyond_end,
    check_passing,
    data_read,
    error_of,
    reading_given_up,
)
from pravega_wire.segment.handles import OneAtATime
from pravega_wire.segment.metadata import SegmentMetadata
from pravega_wire.segment.reader import CHUNK_BYTES, LOOK_SECONDS, PROGRESS_BYTES, ReadDepth
from pravega_wire.segment.store import Backoff
from pravega_wire.support.checks import INT32_MAX, check_count, check_type
from pravega_wire.support.environment import environment
from pravega_wire.sync.client import PravegaClient
from pravega_wire.threads.portal import Line
from pravega_wire.transport.blocking import BlockingConnection
from pravega_wire.values.types import SegmentRange

__all__ = ["DirectReader"]

_ROOM: Final = 64 * 1024
"""Bytes before the data in each buffer, for the beginning of an event from the previous chunk."""

_BESIDE_DATA: Final = 4096
"""Bytes for a reply's fields other than its data. A reply with more gets a buffer of its own."""

_COUNTED_AT_ONCE: Final = 16


class _Buffer(bytearray):
    """A buffer of this reader, recognised by its type."""


class _Buffers:
    """Reusable memory for replies. Fresh memory pages would cost more than receiving the data in them."""

    def __init__(self, data_bytes: int) -> None:
        self._body_bytes = data_bytes + _BESIDE_DATA
        self._free: list[_Buffer] = []

    def allocate(self, length: int) -> memoryview:
        if length > self._body_bytes:
            return memoryview(bytearray(length))
        buffer = self._free.pop() if self._free else _Buffer(_ROOM + self._body_bytes)
        return memoryview(buffer)[_ROOM : _ROOM + length]

    def room(self, reply: c.SegmentRead, data: memoryview) -> memoryview | None:
        """The buffer up to the end of ``data``, if ``data`` is in one of these buffers."""
        buffer = self._own(data)
        if buffer is None:
            return None
        return memoryview(buffer)[: _ROOM + segment_read_data_at(reply.segment) + len(data)]

    def free(self, data: memoryview) -> None:
        buffer = self._own(data)
        if buffer is not None:
            self._free.append(buffer)

    def kept(self, data: memoryview) -> memoryview:
        """The data of a reply that arrived out of order: a copy if it fills less than half of its buffer.

        A store may answer in small pieces, and each of them would occupy a whole buffer.
        """
        if 2 * len(data) >= self._body_bytes or self._own(data) is None:
            return data
        copy = memoryview(bytearray(data))
        self.free(data)
        return copy

    def _own(self, data: memoryview) -> _Buffer | None:
        buffer = data.obj
        return buffer if isinstance(buffer, _Buffer) else None


class _Reach:
    """A connection to a segment's store, with the token for it. Made in the client's thread."""

    def __init__(self, connection: BlockingConnection, token: str) -> None:
        self.connection = connection
        self.token = token
        self.token_expiry = expiry_of(token)


class DirectReader:
    """The events of a range, received by the thread that reads them: ``for batch in DirectReader(...)``.

    It works like :meth:`PravegaClient.read_range`, with a connection of its own and about half the processor
    time for each event: no other thread takes part, except for finding the store and for delegation tokens.
    While the caller works, several chunks are in flight.

    A batch is a view of memory that is used again: **it is valid until the next one is requested**. Copy the
    data to keep (``to_list``, ``to_arrow`` and ``bytes`` do).

    After Ctrl-C in a call, the next call continues after the last batch that was returned.

    Close the reader (``close`` or ``with``) if you stop before the end. Only one thread may read at a time;
    any thread may close it.

    Example::

        from pravega_wire.sync import DirectReader

        for segment_range in client.segment_ranges("demo/readings"):
            with DirectReader(client, segment_range) as batches:
                for batch in batches:
                    print(len(batch.to_list()))

    :param client: finds the store and counts the data read. The reader ends with the client.
    :param segment_range: the range to read.
    :param chunk_bytes: the size of one request, in bytes.
    :param depth: the number of requests in flight; None: 4, and more to a store that is more than 5 ms away,
        up to 32.
    :raises InvalidArgumentError: a number is not positive, or not whole.
    """

    def __init__(
        self,
        client: PravegaClient,
        segment_range: SegmentRange,
        *,
        chunk_bytes: int = CHUNK_BYTES,
        depth: int | None = None,
    ) -> None:
        check_type("segment_range", segment_range, SegmentRange)
        where = f"reader of {segment_range.segment}"
        check_count(f"{where}: chunk_bytes", chunk_bytes, 1, INT32_MAX, "bytes")
        if depth is not None:
            check_count(f"{where}: depth", depth)
        core = client._twin._core
        core.check_open()
        self._core = core
        self._line = Line(client._portal)
        self._stores = core.stores
        self._limits = core.stores.limits
        self.target = core.target(segment_range.stream, segment_range.segment_id, Access.READ)
        self.offset = segment_range.start_offset
        self.end = segment_range.end_offset
        # An empty range has none.
        self._chunk_bytes = max(1, min(chunk_bytes, self.end - self.offset))
        self._depth = depth
        self._ahead = ReadDepth(depth)
        self._buffers = _Buffers(self._chunk_bytes)
        self._assembler = EventAssembler(self.offset, self.target.name)
        self._ready: list[EventBatch] = []
        # Where the last batch that was returned ends. While a call is under way, and after one that was
        # interrupted: where that call began; else None.
        self._given = self.offset
        self._began: int | None = None
        self._lent: memoryview | None = None
        self._reach: _Reach | None = None
        self._request_id = 0
        self._next = self.offset
        self._asked: dict[int, tuple[int, int]] = {}
        self._chunks: dict[int, tuple[memoryview, memoryview | None]] = {}
        self._backoff = Backoff(self._stores.operation_timeout, clock=environment().monotonic)
        self._last_failure: PravegaError | None = None
        self._broken: PravegaError | None = None
        self._alone = OneAtATime(f"another thread is reading with the reader of {self.target.name}")
        self._end_checked = False
        self._closed = threading.Event()
        self._counts = core.stores.counters.reading(self.target.scope, self.target.stream)
        self._uncounted: list[tuple[int, int, int]] = []

    def __repr__(self) -> str:
        state = "closed" if self._closed.is_set() else "open"
        return f"<DirectReader of {self.target.name}, {state}, at offset {self.offset}>"

    # --- for callers ----------------------------------------------------------------------------

    def __iter__(self) -> Iterator[EventBatch]:
        while (batch := self.next_batch()) is not None:
            yield batch

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def next_batch(self) -> EventBatch | None:
        """Return the next events (at least one), or None after the last. The previous batch becomes invalid.

        :raises DataLossError: data of the range was truncated, or the segment was deleted.
        :raises InvalidArgumentError: the range reaches beyond the end of the segment.
        :raises RetriesExhaustedError: the store could not be reached within ``operation_timeout``.
        :raises TruncatedInputError: the range ends in the middle of an event.
        :raises DecodeError: the range does not contain events.
        :raises ConcurrentUseError: another thread is reading.
        :raises ClosedError: the reader or its client was closed before or during this call.
        """
        with self._alone:
            if self._began is None:
                self._began = self._given
            else:
                # Going back was interrupted too.
                self._go_back(self._began)
            try:
                batch = self._next_batch()
                if self._closed.is_set():
                    self._disconnect()
                if batch is not None:
                    self._given = batch.next_offset
            except PravegaError:
                self._disconnect()
                self._began = None
                raise
            except BaseException:
                self._go_back(self._began)
                raise
            # Nothing is called after this, so no interrupt can come before the batch is returned.
            self._began = None
            return batch

    def close(self) -> None:
        """Close the connection. A thread that is reading gets :class:`ClosedError`."""
        self._closed.set()
        reach = self._reach
        if reach is not None:
            reach.connection.shut_down()
        self._tell(self._end_calls)
        try:
            with self._alone:
                self._disconnect()
                self._count()
        except PravegaError:
            pass  # the thread that is reading does this

    def _end_calls(self) -> None:
        """End the calls of threads that wait for the client's thread; called in that thread."""
        for call in list(self._line.calls):
            call.cancel(ClosedError(f"the reader of {self.target.name} is closed"))

    # --- reading --------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise ClosedError(f"the reader of {self.target.name} is closed")
        self._core.check_open()

    def _next_batch(self) -> EventBatch | None:
        self._check_open()
        while not self._ready:
            lent, self._lent = self._lent, None
            if lent is not None:
                self._buffers.free(lent)
            self._assembler.check()
            received = self._receive()
            if received is None:
                self._disconnect()
                self._count()
                self._assembler.end()
                return None
            self._lent, room = received
            self._ready = self._assembler.take(self._lent, room)
            self._uncounted.append(
                (len(self._lent), sum(map(len, self._ready)), sum(each.nbytes for each in self._ready))
            )
            if len(self._uncounted) >= _COUNTED_AT_ONCE:
                self._count()
        return self._ready.pop(0)

    def _go_back(self, offset: int) -> None:
        """Read on from an offset at which an event begins, whatever state an interrupt has left."""
        self._disconnect()
        self._ready = []
        self._broken = None
        self._assembler = EventAssembler(offset, self.target.name)
        self.offset = self._next = self._given = offset

    def _receive(self) -> tuple[memoryview, memoryview | None] | None:
        """The next chunk, and the buffer that ends with it."""
        self._backoff.reset()
        self._last_failure = None
        while self.offset < self.end:
            self._check_open()
            try:
                broken, self._broken = self._broken, None
                if broken is not None:
                    raise broken
                reach = self._reach
                if reach is None:
                    reach = self._reach = self._connect()
                    # A close() before the line above has not seen the connection.
                    self._check_open()
                self._renew_token(reach)
                self._ask_ahead(reach)
                self._wait(reach.connection)
            except PravegaError as error:
                self._check_open()
                self._recover(error)
                continue
            received = self._chunks.pop(self.offset)
            self.offset += len(received[0])
            try:
                self._ask_ahead(reach)
            except PravegaError as error:
                # Return the received data first.
                self._broken = error
            return received
        return None

    def _ask_ahead(self, reach: _Reach) -> None:
        while self._next < self.end and len(self._asked) + len(self._chunks) < self._ahead.depth:
            length = min(self._chunk_bytes, self.end - self._next)
            self._ask(reach, self._next, length)
            self._next += length

    def _ask(self, reach: _Reach, offset: int, length: int) -> None:
        self._request_id += 1
        self._asked[self._request_id] = (offset, length)
        self._ahead.asked(self._request_id)
        reach.connection.send(
            c.ReadSegment(
                segment=self.target.name,
                offset=offset,
                suggested_length=length,
                delegation_token=reach.token,
                request_id=self._request_id,
            )
        )

    def _wait(self, connection: BlockingConnection) -> None:
        """Wait until the next bytes in order have arrived. A missing answer is a failure."""
        if self.offset in self._chunks:
            return
        patience = min(self._limits.attempt, self._backoff.attempt_left(self._limits.attempt))
        waited, before = 0.0, connection.received_bytes
        while self.offset not in self._chunks:
            started, received = environment().monotonic(), connection.received_bytes
            replies = connection.receive()
            # The wait is at most one tick. Any longer time means that this process was stopped.
            waited += min(environment().monotonic() - started, connection.tick)
            for reply in replies:
                self._on_reply(reply)
            if waited >= LOOK_SECONDS and connection.received_bytes == received:
                self._check_end()
            if waited > patience and self.offset not in self._chunks:
                if connection.received_bytes - before < PROGRESS_BYTES:
                    raise ConnectionLostError(
                        f"{connection.host} has sent no data of {self.target.name} for {patience:.3g} s",
                        segment=self.target.name,
                        host=connection.host,
                    )
                self._backoff.arriving()
                waited, before = 0.0, connection.received_bytes

    def _check_end(self) -> None:
        """Look once whether a silent store waits for data that is in the range and not in the segment.

        :raises InvalidArgumentError: it has not.
        """
        if self._end_checked:
            return
        self._end_checked = True
        seconds = min(LOOK_SECONDS, self._limits.attempt)

        async def length() -> int | None:
            with trio.move_on_after(seconds), suppress(PravegaError):
                return (await SegmentMetadata(self._stores, self.target).info()).write_offset
            return None

        found = self._line.call(length)
        if found is not None and found < self.end:
            raise beyond_end(self.target.name, self.offset, self.end, found)

    def _on_reply(self, reply: c.Command) -> None:
        reach = self._reach
        assert reach is not None
        request_id = c.reply_request_id(reply)
        asked = self._asked.pop(request_id, None)
        if asked is None:
            if isinstance(reply, c.AuthTokenCheckFailed):
                # This reply's request id is the offset of the read. Only this reader uses the connection.
                raise error_of(reply, segment=self.target.name, host=reach.connection.host, doing="reading")
            return
        self._ahead.answered(request_id, reach.connection.greeting)
        offset, length = asked
        data = data_read(
            reply, offset, length, end=self.end, segment=self.target.name, host=reach.connection.host
        )
        assert isinstance(reply, c.SegmentRead)
        if offset != self.offset:
            data = self._buffers.kept(data)
        self._chunks[offset] = data, self._buffers.room(reply, data)
        if len(data) < length:
            self._ask(reach, offset + len(data), length - len(data))

    # --- the connection -------------------------------------------------------------------------

    def _connect(self) -> _Reach:
        """Find the store and connect, within the time limit of one attempt."""
        stores, target = self._stores, self.target
        failure = self._last_failure
        left = self._backoff.attempt_left(self._limits.attempt)

        async def reach() -> tuple[socket.socket, str, str]:
            # A close() from now on ends this call.
            self._check_open()
            with trio.move_on_after(left):
                if failure is not None:
                    stores.forget(target)
                if isinstance(failure, TokenExpiredError):
                    target.token.expire()
                endpoint = await stores.endpoint(target)
                try:
                    token = await target.token()
                    sock, host = await stores.pool.private_connection(endpoint)
                except PravegaError:
                    stores.forget(target, endpoint)
                    raise
                return sock, host, token
            raise failure or ConnectionLostError(
                f"no connection for reading {target.name} within {left:.3g} s", segment=target.name
            )

        sock, host, token = self._line.call(reach)
        connection = BlockingConnection(
            sock, host, tls=stores.pool.tls, limits=self._limits, allocate=self._buffers.allocate
        )
        self._next = self.offset
        # It may be another store.
        self._ahead = ReadDepth(self._depth)
        return _Reach(connection, token)

    def _renew_token(self, reach: _Reach) -> None:
        """Fetch a new token before the present one expires, since reading may take longer."""
        if expires_soon(reach.token_expiry):

            async def renewed() -> str:
                self._check_open()
                return await self.target.token()

            reach.token = self._line.call(renewed)
            reach.token_expiry = expiry_of(reach.token)

    def _recover(self, error: PravegaError) -> None:
        """Decide whether reading can continue after ``error``, and raise if it cannot."""
        self._disconnect()
        check_passing(error, self.target.name, self.offset)
        self._last_failure = error
        self._backoff.failed(error, f"reading {self.target.name}")
        pause = self._backoff.next_pause()
        if pause is None:
            raise reading_given_up(error, self.target.name, self._backoff.taken) from error
        self._tell(partial(self._counts.reconnecting, error))
        self._closed.wait(pause)

    def _disconnect(self) -> None:
        """Release everything that belongs to a connection.

        Data that arrived out of order is requested again.
        """
        reach, self._reach = self._reach, None
        if reach is not None:
            reach.connection.close()
        self._asked.clear()
        chunks, self._chunks = self._chunks, {}
        for data, _ in chunks.values():
            self._buffers.free(data)
        self._next = self.offset

    # --- counting -------------------------------------------------------------------------------

    def _count(self) -> None:
        """Report counts to the client's thread now and then. Counters and observers belong to that thread."""
        counts, told = self._counts, self._uncounted
        if not told:
            return
        self._uncounted = []

        def count() -> None:
            for received, events, nbytes in told:
                counts.received(received)
                if events:
                    counts.read(events, nbytes)

        self._tell(count)

    def _tell(self, function: Callable[[], None]) -> None:
        try:
            self._line.portal.soon(function)
        except ClosedError:
            pass  # the client is closed, and with it its counters
