"""Blocking mirrors of reader groups and their readers."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from functools import partial
from typing import Any, Generic, Self, TypeVar, cast, overload

from pravega_wire.errors import ClosedError, InvalidArgumentError
from pravega_wire.event_time import WatermarkAssigner
from pravega_wire.groups import (
    OnlineReaders,
    OutstandingCheckpoint,
    ReaderGroupConfig,
    ReaderGroupMetrics,
    TimeWindow,
)
from pravega_wire.positions import Checkpoint, Position
from pravega_wire.serializers import Serializer
from pravega_wire.stream.batch import OnTruncated
from pravega_wire.stream.event_reader import DEFAULT_BUFFERED_BYTES, Event, ReachedCheckpoint, SegmentEvents
from pravega_wire.stream.event_reader import EventReader as AsyncEventReader
from pravega_wire.stream.reader_group import ReaderGroup as AsyncReaderGroup
from pravega_wire.sync.portal import Held, Line, Portal
from pravega_wire.types import ScopedStream, StreamCut

__all__ = ["EventReader", "ReaderGroup"]

T = TypeVar("T")


class EventReader(Generic[T]):
    """Blocking twin of :class:`pravega_wire.EventReader`: ``with group.reader("one") as reader``.

    Use it from one thread.
    """

    def __init__(
        self,
        portal: Portal | Line,
        reader: AsyncEventReader[T],
        on_checkpoint: Callable[[str], Awaitable[object] | object] | None = None,
    ) -> None:
        self._portal = Line(portal, f"reader {reader.reader_id} of group {reader.group}")
        self._twin = reader
        self._on_checkpoint = on_checkpoint
        self._held: Held[AsyncEventReader[T]] | None = None

    def __enter__(self) -> Self:
        if self._held is not None:
            raise InvalidArgumentError(f"reader {self._twin.reader_id} can be entered once")
        self._held = self._portal.enter(self._twin)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._held is None:
            raise InvalidArgumentError(f"reader {self._twin.reader_id} was not entered")
        self._held.leave(failed=error is not None)

    def close(self, position: Position | None = None, *, timeout: float | None = None) -> None:
        """Leave the group now; the context manager does it otherwise."""
        self._portal.close(timeout, self._twin.aclose, position)

    @property
    def position(self) -> Position:
        """After the last event that was given out."""
        return self._twin.position

    @property
    def acknowledged_position(self) -> Position:
        """Before the last event, or batch, that was given out: it counts when the next is asked for."""
        return self._twin.acknowledged_position

    @property
    def segments(self) -> tuple[str, ...]:
        """Full names of the segments that this reader reads."""
        return self._twin.segments

    @property
    def end_of_data(self) -> bool:
        """True once the group has read everything it ever will."""
        return self._twin.end_of_data

    def time_window(self, stream: ScopedStream | str, *, timeout: float | None = None) -> TimeWindow:
        """The event times that the group is at in a stream."""
        return self._portal.within(timeout, self._twin.time_window, stream)

    def watermark(self, assigner: WatermarkAssigner, *, timeout: float | None = None) -> int | None:
        """Move a watermark on by the time windows of the group's streams: it when it has moved, else None."""
        # Most calls come before it is due and need no other thread.
        return self._portal.within(timeout, self._twin.watermark, assigner) if assigner.due else None

    def read_event(self, timeout: float | None = None) -> Event[T] | ReachedCheckpoint | None:
        """The next event, or a checkpoint before it; None after ``timeout`` seconds, or at the end."""
        event = self._twin.read_event_nowait()
        if event is not None:
            return event
        found = self._portal.call(self._twin.load, timeout)
        # Its value is made in this thread.
        return found if found is None or isinstance(found, ReachedCheckpoint) else self._twin.take(found)

    def read_event_nowait(self) -> Event[T] | None:
        """The next event if it is at hand; None when it takes :meth:`read_event`."""
        return self._twin.read_event_nowait()

    def events_nowait(self) -> Iterator[Event[T]]:
        """Those of the next events that are at hand, until something takes :meth:`read_event`."""
        return self._twin.events_nowait()

    def read_batch(self, timeout: float | None = None) -> SegmentEvents | ReachedCheckpoint | None:
        """The next events of one segment, as many as have arrived; otherwise as :meth:`read_event`."""
        return self._portal.call(self._twin.read_batch, timeout)

    def __iter__(self) -> Iterator[Event[T]]:
        while True:
            # Within a batch no other thread is needed: all that it may do meanwhile is to end these.
            yield from self._twin.events_nowait()
            found = self._portal.call(self._twin.load)
            if found is None:
                return
            if isinstance(found, ReachedCheckpoint):
                self._tell(found)
            else:
                yield self._twin.take(found)

    def batches(self) -> Generator[SegmentEvents, None, None]:
        """All events, in batches."""
        while (found := self.read_batch()) is not None:
            if isinstance(found, ReachedCheckpoint):
                self._tell(found)
            else:
                yield found

    def _tell(self, checkpoint: ReachedCheckpoint) -> None:
        if self._on_checkpoint is not None:
            result = self._on_checkpoint(checkpoint.name)
            if inspect.isawaitable(result):
                self._portal.call(_awaited, result)


async def _awaited(result: Awaitable[object]) -> object:
    return await result


def listed(argument: Any) -> Any:
    """What runs code of the user when it is read, as a list of what it gives; other things as they are."""
    return list(argument) if isinstance(argument, Iterable) else argument


class ReaderGroup:
    """Blocking twin of :class:`pravega_wire.ReaderGroup`."""

    def __init__(self, portal: Portal | Line, group: AsyncReaderGroup) -> None:
        self._portal = Line(portal, f"group {group.name}")
        self._twin = group

    @property
    def name(self) -> str:
        """Full name, ``scope/group``."""
        return self._twin.name

    def refresh(self, *, timeout: float | None = None) -> None:
        """Look what the readers have done."""
        self._portal.within(timeout, self._twin.refresh)

    @property
    def config(self) -> ReaderGroupConfig:
        """The group's configuration."""
        return self._twin.config

    @property
    def streams(self) -> tuple[ScopedStream, ...]:
        """The streams that are read."""
        return self._twin.streams

    @property
    def online_readers(self) -> OnlineReaders:
        """Names of the readers that are in the group, with what each holds and when it last moved."""
        return self._twin.online_readers

    @property
    def outstanding_checkpoints(self) -> tuple[OutstandingCheckpoint, ...]:
        """The checkpoints that are not complete, oldest first, with the readers that have not answered."""
        return self._twin.outstanding_checkpoints

    @property
    def segment_distribution(self) -> dict[str, tuple[str, ...]]:
        """Reader to the full names of its segments."""
        return self._twin.segment_distribution

    @property
    def unassigned_segments(self) -> tuple[str, ...]:
        """Full names of the segments that no reader has at the moment."""
        return self._twin.unassigned_segments

    def metrics(self, *, timeout: float | None = None) -> ReaderGroupMetrics:
        """How the group does now."""
        return self._portal.within(timeout, self._twin.metrics)

    def unread_bytes(self, *, timeout: float | None = None) -> int:
        """Bytes from the last complete checkpoint to the end."""
        return self._portal.within(timeout, self._twin.unread_bytes)

    def stream_cuts(self, *, timeout: float | None = None) -> dict[ScopedStream, StreamCut]:
        """Where the group is, by what the readers have told."""
        return self._portal.within(timeout, self._twin.stream_cuts)

    def last_checkpoint(self, *, timeout: float | None = None) -> dict[ScopedStream, StreamCut] | None:
        """The cuts of the last complete checkpoint; None before the first."""
        return self._portal.within(timeout, self._twin.last_checkpoint)

    def time_window(self, stream: ScopedStream | str, *, timeout: float | None = None) -> TimeWindow:
        """The event times that the group is at in a stream."""
        return self._portal.within(timeout, self._twin.time_window, stream)

    @overload
    def reader(
        self,
        reader_id: str,
        *,
        initial_delay: float = 0.0,
        on_truncated: OnTruncated = "raise",
        on_checkpoint: Callable[[str], Awaitable[object] | object] | None = None,
        max_buffered_bytes: int = DEFAULT_BUFFERED_BYTES,
    ) -> EventReader[bytes]: ...

    @overload
    def reader(
        self,
        reader_id: str,
        serializer: Serializer[T],
        *,
        initial_delay: float = 0.0,
        on_truncated: OnTruncated = "raise",
        on_checkpoint: Callable[[str], Awaitable[object] | object] | None = None,
        max_buffered_bytes: int = DEFAULT_BUFFERED_BYTES,
    ) -> EventReader[T]: ...

    def reader(
        self,
        reader_id: str,
        serializer: Serializer[Any] | None = None,
        *,
        initial_delay: float = 0.0,
        on_truncated: OnTruncated = "raise",
        on_checkpoint: Callable[[str], Awaitable[object] | object] | None = None,
        max_buffered_bytes: int = DEFAULT_BUFFERED_BYTES,
    ) -> EventReader[Any]:
        """A reader of the group, as a context manager.

        The serializer and ``on_checkpoint`` run in the thread that reads.
        """
        return EventReader(
            self._portal,
            self._twin.reader(
                reader_id,
                cast("Serializer[Any]", serializer),
                initial_delay=initial_delay,
                on_truncated=on_truncated,
                max_buffered_bytes=max_buffered_bytes,
            ),
            on_checkpoint,
        )

    def reader_offline(
        self, reader_id: str, position: Position | None = None, *, timeout: float | None = None
    ) -> None:
        """Declare a reader dead: others take its segments."""
        self._portal.within(timeout, self._twin.reader_offline, reader_id, position)

    def checkpoint(self, name: str | None = None, *, timeout: float | None = None) -> Checkpoint:
        """Ask every reader where it is, and wait for their answers: they must read meanwhile."""
        return self._portal.call(partial(self._twin.checkpoint, name, timeout=timeout))

    def generate_stream_cuts(self, *, timeout: float | None = None) -> dict[ScopedStream, StreamCut]:
        """Ask every reader where it is now, without their users noticing."""
        return self._portal.call(partial(self._twin.generate_stream_cuts, timeout=timeout))

    def cancel_outstanding_checkpoints(self, *, timeout: float | None = None) -> None:
        """Give up the checkpoints that are not complete."""
        self._portal.within(timeout, self._twin.cancel_outstanding_checkpoints)

    def reset(
        self,
        to: Checkpoint | ReaderGroupConfig | Iterable[StreamCut] | None = None,
        *,
        timeout: float | None = None,
    ) -> ReaderGroupConfig:
        """Begin again, at a checkpoint, at cuts, or with another configuration."""
        return self._portal.within(timeout, self._twin.reset, listed(to))

    def update_retention_stream_cut(self, cuts: Iterable[StreamCut], *, timeout: float | None = None) -> None:
        """Allow the streams to drop what is before these cuts."""
        self._portal.within(timeout, self._twin.update_retention_stream_cut, list(cuts))

    def segment_counts(self) -> Generator[int, None, None]:
        """The number of segments that are being read or may be: now, and whenever it changes."""
        yield from _blocking(self._portal, self._twin.segment_counts())

    def wait_for_end_of_data(self, *, timeout: float | None = None) -> None:
        """Wait until everything was read that the group will ever read."""
        self._portal.within(timeout, self._twin.wait_for_end_of_data)

    def close(self, *, timeout: float | None = None) -> None:
        """Give the connections back. Readers have their own."""
        self._portal.close(timeout, self._twin.aclose)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _blocking(portal: Line, items: Any) -> Generator[Any, None, None]:
    """An async generator, item by item."""
    try:
        while True:
            try:
                yield portal.call(items.__anext__)
            except StopAsyncIteration:
                return
    finally:
        try:
            portal.call(items.aclose)
        except ClosedError:
            # With the client, which has ended everything.
            pass
