"""The event writer: appends to a stream by routing key, also while the stream scales."""

from __future__ import annotations

import logging
import math
from collections.abc import Generator, Sequence
from typing import Any, Final, Self
from uuid import UUID

import trio

from pravega_wire.controller.tokens import Access
from pravega_wire.controller.types import NoteTimeStatus, SegmentWithRange
from pravega_wire.errors import (
    ControllerError,
    InvalidArgumentError,
    NoSuchSegmentError,
    PravegaError,
    SegmentSealedError,
    StreamSealedError,
)
from pravega_wire.protocol.append import too_large
from pravega_wire.segment.appender import Ack, SegmentAppender
from pravega_wire.segment.handles import state_of
from pravega_wire.segment.metadata import SegmentMetadata
from pravega_wire.serializers import Serializer, Value
from pravega_wire.stream.batch import successors
from pravega_wire.stream.core import ClientCore
from pravega_wire.stream.large import MAX_LARGE_EVENT_BYTES, append_large_event
from pravega_wire.stream.routing import (
    DEFAULT_MAX_OUTSTANDING_BYTES,
    Partitioner,
    Route,
    RoutedWriter,
    ValueWriter,
    to_bytes,
)
from pravega_wire.support.checks import check_event_time, check_flag, check_seconds, check_takes_times
from pravega_wire.support.environment import environment
from pravega_wire.transport.limits import limit
from pravega_wire.values.hashing import routing_key_position
from pravega_wire.values.types import ScopedStream

__all__ = ["EventWriter", "event_writer"]

log = logging.getLogger(__name__)

_SLOW_SECONDS: Final = 5.0


class EventWriter(RoutedWriter[Value]):
    """Appends events to a stream. Made by :meth:`PravegaClient.event_writer`; use it as a context manager.

    The events of a routing key keep their order through lost connections, failing segment stores and scaling:
    events that are unacknowledged when a segment is sealed go to its successors, in order, before anything
    newer. No acknowledged event is lost, and no event is stored twice. Leaving the context flushes.

    Example::

        from pravega_wire.serializers import JsonSerializer

        async with client.event_writer("demo/readings") as writer:
            await writer.write_event(b"21.5", "sensor-7")
            ack = await writer.write_events([b"21.6", b"21.8"], "sensor-7")
            await ack

        async with client.event_writer("demo/readings", serializer=JsonSerializer()) as writer:
            await writer.write_event({"celsius": 21.9}, "sensor-7")
    """

    def __init__(
        self,
        core: ClientCore,
        stream: ScopedStream,
        *,
        max_outstanding_bytes: int = DEFAULT_MAX_OUTSTANDING_BYTES,
        partitioner: Partitioner = routing_key_position,
        note_time_every: float | None = None,
        large_events: bool = False,
    ) -> None:
        super().__init__(
            core,
            stream,
            str(stream),
            max_outstanding_bytes=max_outstanding_bytes,
            partitioner=partitioner,
        )
        if note_time_every is not None:
            check_seconds("note_time_every", note_time_every)
        check_flag("large_events", large_events)
        self.writer_id = environment().new_id()
        self._large_events = large_events
        self._large_lock = trio.Lock()
        self._large_id = environment().new_id()
        self._large_number = 0
        self._note_time_every = note_time_every
        self._noting = trio.CancelScope()
        self._has_noted = False
        self._by_id: dict[int, SegmentAppender] = {}
        self._opened = False

    async def __aenter__(self) -> Self:
        """Find the stream's segments and prepare for writing.

        :raises StreamNotFoundError: the stream does not exist.
        :raises StreamSealedError: the stream is sealed.
        :raises InvalidArgumentError: ``note_time_every`` for a stream of which a controller makes no
            watermarks: see :meth:`note_time`.
        :raises ClosedError: the writer was closed before it was opened.
        """
        if not self._opened:
            self._begin(await self._current_segments())
        return self

    async def _current_segments(self) -> list[SegmentWithRange]:
        self._check()
        self._core.check_open()
        segments = await self._core.controller.get_current_segments(self.stream.scope, self.stream.name)
        if not segments:
            raise self._stream_sealed()
        return segments

    def _begin(self, segments: Sequence[SegmentWithRange]) -> None:
        if self._note_time_every is not None:
            check_takes_times(self.stream, (each.high for each in segments))
        # The client or the writer may have been closed while the segments were being fetched.
        self._core.check_open()
        self._check()
        self._set_routes(
            [Route(segment.low, segment.high, self._appender(segment.segment_id)) for segment in segments]
        )
        self._opened = True
        if self._note_time_every is not None:
            self._core.nursery.start_soon(self._note_times, name=f"time of the writer of {self.stream}")

    async def _write_large(self, event: bytes, routing_key: str | None) -> Ack:
        """See :class:`RoutedWriter`. An event over the normal limit is stored when this returns."""
        if not self._large_events:
            return await super()._write_large(event, routing_key)
        if len(event) > MAX_LARGE_EVENT_BYTES:
            raise too_large(len(event), limit=MAX_LARGE_EVENT_BYTES, writer=self._name)
        async with self._large_lock:
            while True:
                # Events written earlier must be stored first.
                await self.flush()
                appender = self._select(routing_key)
                started = environment().monotonic()
                self._large_number += 1
                try:
                    stored = await append_large_event(
                        self._core.stores,
                        appender.target,
                        appender.appends.writer_id,
                        event,
                        self._counts,
                        mark=(self._large_id, self._large_number),
                    )
                except (SegmentSealedError, NoSuchSegmentError) as error:
                    # With nothing in flight, the appender has not noticed. If another task had something
                    # in flight, only the appender's session could find out its fate.
                    if self._writes(appender) and not appender.appends.unacknowledged:
                        successors = await self._successors(appender, error)
                        if self._writes(appender) and not appender.appends.unacknowledged:
                            self._replace(appender, successors)
                    self._check()
                    continue
                # The event bypassed the appender, so the length that time reports use is outdated.
                appender.appends.segment_length = -1
                if stored:
                    break
        self._large_stored(len(event), environment().monotonic() - started)
        return Ack(0)

    async def note_time(self, timestamp: int) -> None:
        """Report to the controller that all events up to event time ``timestamp`` were written.

        Flushes first. The controller makes watermarks from the times of all writers of a stream.

        :param timestamp: event time in milliseconds since 1970. It must not decrease.
        :raises InvalidArgumentError: the writer reports the time automatically (``note_time_every``), or the
            stream has a number of segments with which a controller makes no watermarks: 49, 98, 103, 107 and
            about every twentieth, when it is created.
        :raises ControllerError: the time is earlier than a previously reported one.
        """
        if self._note_time_every is not None:
            raise InvalidArgumentError(
                f"the writer of {self.stream} reports the time automatically: open it without "
                "note_time_every to call note_time"
            )
        check_event_time(timestamp)
        check_takes_times(self.stream, (each.high for each in self._routes))
        await self._note(timestamp)

    async def _remove(self) -> None:
        await self._core.controller.remove_writer(self.stream.scope, self.stream.name, str(self.writer_id))

    async def _note(self, timestamp: int) -> None:
        await self.flush()
        with limit(self._core.config.operation_timeout, f"reporting the time of the writer of {self.stream}"):
            while (position := await self._lengths()) is None:
                await self.flush()
            status = await self._core.controller.note_timestamp_from_writer(
                self.stream.scope, self.stream.name, str(self.writer_id), timestamp, position
            )
        if status is not NoteTimeStatus.SUCCESS:
            raise ControllerError(
                f"the controller did not accept time {timestamp} from the writer of {self.stream}: "
                f"{status.name}",
                scope=self.stream.scope,
                stream=self.stream.name,
            )
        self._has_noted = True

    async def _lengths(self) -> dict[int, int] | None:
        """The length of each segment; None if the segments were about to change, so that they differ now."""
        lengths = {}
        for appender in self._appenders():
            length = appender.appends.segment_length
            if length < 0:
                try:
                    length = (await SegmentMetadata(self._core.stores, appender.target).info()).write_offset
                except NoSuchSegmentError as error:
                    # With nothing in flight, the appender has not noticed; else it finds out while flushing.
                    if not appender.appends.unacknowledged:
                        await self._leave(appender, error)
                    return None
            lengths[appender.target.segment_id] = length
        return lengths

    async def _leave(self, appender: SegmentAppender, error: PravegaError) -> None:
        """Continue with the successors of a segment in a task of its own, as an appender does."""
        left = trio.Event()

        async def leave() -> None:
            try:
                await self._sealed(appender, error)
            finally:
                left.set()

        self._core.nursery.start_soon(leave, name=f"successors of {appender.target.name}")
        await left.wait()

    @trio.lowlevel.enable_ki_protection
    async def _note_times(self) -> None:
        assert self._note_time_every is not None
        with self._noting:
            while True:
                await trio.sleep(self._note_time_every)
                try:
                    await self._note(int(environment().wall() * 1000))
                except PravegaError as error:
                    if self._error is not None:
                        return
                    # The next report will do: it only delays watermarks.
                    log.info("the time of the writer of %s was not reported: %s", self.stream, error)

    def _stream_sealed(self) -> StreamSealedError:
        return StreamSealedError(
            f"stream {self.stream} is sealed and takes no more events",
            scope=self.stream.scope,
            stream=self.stream.name,
        )

    def _appender(self, segment_id: int) -> SegmentAppender:
        appender = self._by_id.get(segment_id)
        if appender is None:
            target = self._core.target(self.stream, segment_id, Access.WRITE)
            appender = SegmentAppender(
                self._core.stores, target, self._owner, writer_id=self._id_on(target.name)
            )
            self._by_id[segment_id] = appender
            self._start(appender)
        return appender

    def _id_on(self, segment: str) -> UUID:
        """The writer's id on a segment."""
        return environment().new_id()

    async def _sealed(self, appender: SegmentAppender, error: PravegaError) -> None:
        """Continue with the successors of a sealed segment."""
        try:
            successors = await self._successors(appender, error)
        except PravegaError as failure:
            if self._writes(appender):
                self._fail(failure)
            return
        # A large event may have found the segment sealed at the same time.
        if self._writes(appender):
            self._replace(appender, successors)

    def _writes(self, appender: SegmentAppender) -> bool:
        """Whether the writer has not failed and still writes to this segment."""
        return self._error is None and self._by_id.get(appender.target.segment_id) is appender

    def _replace(self, appender: SegmentAppender, successors: Sequence[tuple[float, float, int]]) -> None:
        """Give the routes and events of a sealed segment to its successors.

        The appender is finished only here, in the same step: until then, events may be put into it.

        :param successors: see :meth:`_successors`.
        """
        if not successors:
            self._fail(self._stream_sealed())
            return
        appender.finish()
        routes = []
        for route in self._routes:
            if route.appender is not appender:
                routes.append(route)
                continue
            # A merged successor is wider than the sealed segment. It takes over only this part; the
            # rest stays with its own segment until that is sealed as well.
            for low, high, segment_id in successors:
                low, high = max(low, route.low), min(high, route.high)
                if low < high:
                    routes.append(Route(low, high, self._appender(segment_id)))
        del self._by_id[appender.target.segment_id]
        self._set_routes(routes)
        self._resend([appender])

    async def _successors(
        self, appender: SegmentAppender, error: PravegaError
    ) -> list[tuple[float, float, int]]:
        """Key ranges and ids of the segments after a sealed one; empty if the stream is sealed.

        :param error: the error that showed that the segment had ended.
        """
        stream = self.stream
        # The controller records a scale within moments. Successors of a deleted segment are already recorded.
        warn_at = trio.current_time() + (0 if isinstance(error, NoSuchSegmentError) else _SLOW_SECONDS)

        def warn() -> None:
            nonlocal warn_at
            if trio.current_time() >= warn_at:
                warn_at = math.inf
                log.warning(
                    "the writer of stream %s waits up to %g s for the successors of segment %s: the "
                    "controller reports none, although the stream has other segments. If the stream was "
                    "deleted and created again, open a new writer. The segment ended with: %s",
                    stream, self._core.stores.operation_timeout, appender.target.name, error,
                )  # fmt: skip

        following = await successors(self._core, stream, appender.target.segment_id, warn)
        return [(segment.low, segment.high, segment.segment_id) for segment in following.segments]

    async def aclose(self) -> None:
        """Flush and close. If the flush fails, the writer is closed all the same.

        After a failure of the writer, it closes without flushing.

        If this call is cancelled, the writer is closed all the same. It is then unknown whether the events
        without an acknowledgement are stored.

        :raises PravegaError: the flush failed.
        """
        self._core.check_run()
        try:
            if self._error is None and self._opened:
                with self._core.leaving.noted():
                    await self.flush()
                self._noting.cancel()
                if self._has_noted:
                    # Otherwise this writer would hold back the watermark for a while.
                    await self._core.leaving.run(
                        self._remove, f"telling the controller that the writer of {self.stream} has ended"
                    )
                    await trio.lowlevel.checkpoint()
        finally:
            self._noting.cancel()
            self._stop()

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__.lstrip('_')} of {self.stream}, {state_of(self._opened, self._error)}, "
            f"{self.events_acknowledged} of {self.events_written} events stored>"
        )

    def __await__(self) -> Generator[Any, Any, Self]:
        return self.__aenter__().__await__()

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            await self.aclose()
        else:
            self._core.check_run()
            self._noting.cancel()
            self._stop()
            await trio.lowlevel.checkpoint()


class _EventWriter(ValueWriter[Value], EventWriter[Value]):
    """An event writer with a serializer."""


def event_writer(
    core: ClientCore, stream: ScopedStream, serializer: Serializer[Any] | None, **options: Any
) -> EventWriter[Any]:
    """See :meth:`PravegaClient.event_writer`."""
    if serializer is None:
        return EventWriter(core, stream, **options)
    writer: _EventWriter[Any] = _EventWriter(core, stream, **options)
    writer._to_bytes = to_bytes(serializer, stream)
    return writer
