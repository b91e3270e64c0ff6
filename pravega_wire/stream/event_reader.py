"""Reading as a member of a reader group: see :class:`EventReader`."""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from random import Random
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

import trio

from pravega_wire.controller.tokens import Access
from pravega_wire.errors import (
    ClosedError,
    ConcurrentUseError,
    DataLossError,
    InvalidArgumentError,
    PravegaError,
    ReaderGroupError,
    ReaderGroupNotFoundError,
    ReinitializationRequiredError,
)
from pravega_wire.protocol.events import EventBatch, EventRows, PlacedEvent
from pravega_wire.protocol.group_algorithm import GroupMember
from pravega_wire.protocol.group_state import NO_END, segment_id_of, stream_of
from pravega_wire.segment.following import FollowingReader
from pravega_wire.segment.reader import CHUNK_BYTES, SMALLEST_CHUNK_BYTES, EventRangeReader
from pravega_wire.serializers import Serializer, preparing, total
from pravega_wire.stream.core import ClientCore, not_shared
from pravega_wire.stream.group_link import GroupLink
from pravega_wire.stream.skipping import report_skipped
from pravega_wire.stream.user_functions import in_caller, looks_like_the_end
from pravega_wire.support.checks import (
    check_bytes,
    check_callable,
    check_seconds,
    check_serializer,
    check_type,
)
from pravega_wire.support.environment import environment
from pravega_wire.transport.limits import NO_TIME, is_hurried, limited
from pravega_wire.values.cuts import OnTruncated, SkippedPart, check_on_truncated
from pravega_wire.values.event_time import WatermarkAssigner
from pravega_wire.values.groups import TimeWindow
from pravega_wire.values.positions import EventPointer, Position
from pravega_wire.values.types import SEGMENT_READ, ScopedStream

__all__ = ["BareEvent", "Event", "EventReader", "ReachedCheckpoint"]

T = TypeVar("T")

log = logging.getLogger(__name__)

DEFAULT_BUFFERED_BYTES: Final = 32 * 1024 * 1024
_CHUNKS_EACH: Final = 4
# Chunks of a segment: two in flight or received, one being parsed, one waiting.
_UNTIMED_EVENTS: Final = 32
_UNTIMED_SECONDS: Final = 0.001
# Reading the clock is a fifth of what an event costs. A caller that took less than this time for the events
# before gets this many in a row without it.


class Event(PlacedEvent[T]):
    """One event, as a reader of a group returns it::

        async for event in reader:
            print(event.value, event.pointer)

    :param value: the payload, or what the serializer made of it.
    :param segment: full name of the event's segment.
    :param offset: segment offset of the event's header, bytes.
    :param length: size of the event with its header of 8 bytes.
    :ivar value: the payload, or what the serializer made of it.
    :ivar length: size of the event with its header of 8 bytes.
    """

    __slots__ = ()

    def __init__(self, value: T, segment: str, offset: int, length: int) -> None:
        self.value = value
        self._place = segment, 0
        self._begin = offset
        self.length = length

    @property
    def segment(self) -> str:
        """Full name of the event's segment."""
        return self._place[0]

    @property
    def offset(self) -> int:
        """Segment offset of the event's header, bytes."""
        return self._place[1] + self._begin

    @property
    def pointer(self) -> EventPointer:
        """Where the event is stored: pass it to :meth:`PravegaClient.fetch_event` to read the event again."""
        return EventPointer(self.segment, self.offset, self.length)

    @property
    def stream(self) -> ScopedStream:
        """The event's stream."""
        return stream_of(self.segment)

    def __repr__(self) -> str:
        return f"<Event {self.pointer}: {self.value!r:.80}>"


class BareEvent(Event[T]):
    """An event whose attributes :class:`EventRows` sets: without a call of ``__init__`` it costs half."""

    __slots__ = ()
    __init__ = object.__init__


@dataclass(slots=True, eq=False)
class ReachedCheckpoint:
    """A checkpoint between two events, of which the caller has to be told.

    :ivar name: the name it was started with.
    :ivar being_told: whether the caller is being told.
    :ivar told: whether the caller has been told.
    """

    name: str
    being_told: bool = False
    told: bool = False

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Surrounds telling the caller; in any thread."""
        self.being_told = True
        try:
            yield
            self.told = True
        except StopAsyncIteration as error:
            raise looks_like_the_end(error) from error
        finally:
            self.being_told = False


class _Feed:
    """A segment that is read ahead of the caller."""

    __slots__ = ("ended", "failure", "reader", "ready", "room", "scope", "segment")

    def __init__(self, segment: str, reader: FollowingReader) -> None:
        self.segment = segment
        self.reader = reader
        self.ready: deque[EventBatch] = deque()
        self.room = trio.Event()
        self.scope = trio.CancelScope()
        self.failure: PravegaError | None = None
        self.ended = False

    @property
    def has_something(self) -> bool:
        return bool(self.ready) or self.ended or self.failure is not None


class _Cursor:
    """What a request has found: a batch, of which the caller gets one event after the other, or all the rest.

    A further request makes another cursor. So nothing here is set back, and nothing of it outlives the batch.

    :ivar feed: the segment that the batch is from.
    :ivar rows: the events of the batch.
    :ivar asked: how many of them count as read: those before this request.
    :ivar whole: whether the caller has got all the rest.
    :ivar stride: how many events there are at a time, without a look at the clock.
    :ivar looked: time of the last look at it.
    """

    __slots__ = ("asked", "feed", "looked", "rows", "stride", "whole")

    def __init__(self, feed: _Feed, rows: EventRows[Event[Any]]) -> None:
        self.feed = feed
        self.rows = rows
        self.asked = rows.index
        self.whole = False
        self.stride = 1
        self.looked = 0.0

    @property
    def exhausted(self) -> bool:
        return self.whole or self.rows.exhausted

    @property
    def after_last(self) -> int:
        """Segment offset after what was returned."""
        return self.rows.batch.next_offset if self.whole else self.rows.offset(self.rows.index)

    @property
    def before_last(self) -> int:
        """Segment offset before the event or batch that this request has returned last."""
        return self.rows.offset(self.asked if self.whole else max(self.asked, self.rows.index - 1))


class EventReader(Generic[T]):
    """One reader of a reader group::

        async with group.reader("reader-1") as reader:
            async for event in reader:
                print(event.value)

    Events of one routing key arrive in order, each at one reader of the group. An event counts as read when
    the *next* one is requested. If an exception ends the ``async with`` block, the reader gives back the last
    event (or batch) that it returned, and another reader receives it. If the block ends normally, everything
    that the reader returned counts as read.

    Everything that the group requires (checkpoints, acquiring and releasing segments) happens while an event
    is requested, as in Java. Checkpoints are not among the events: they go to ``on_checkpoint``. A reader
    that requests nothing for a long time delays every checkpoint of the group.

    It is for one caller at a time. Cancelling a call leaves the reader usable. Other work gets its turn with
    each batch that arrives and each wait, not with each event. A fast caller may get up to 32 events between
    two looks at the clock, so 32 slow events in a row can delay the group.

    :param group: name of the group.
    :param reader_id: name of the reader, unique in the group.
    :param serializer: makes values of payloads; None: values are payloads.
    :param initial_delay: seconds before the first segment is acquired, so that readers that are started
        together share the segments from the start.
    :param on_truncated: what to do if the next data was truncated: ``"raise"`` raises :class:`DataLossError`
        once, and the next call continues at the new head; ``"skip_to_head"`` continues there at once, and the
        loss is logged, counted and reported to the client's observer
        (:class:`pravega_wire.metrics.DataSkipped`).
    :param on_checkpoint: called with the name of each checkpoint that the reader reaches, between the events
        before and after it; its result is awaited if it is awaitable. Then the checkpoint counts as reached.
        After an exception from it, the next request for an event calls it again.
    :param max_buffered_bytes: the most bytes to read ahead, all segments together; at least 256 KiB for each.
        Bytes that were read before further segments were acquired are kept.
    """

    def __init__(
        self,
        core: ClientCore,
        group: ScopedStream,
        reader_id: str,
        serializer: Serializer[T] | None,
        *,
        initial_delay: float = 0.0,
        on_truncated: OnTruncated = "raise",
        on_checkpoint: Callable[[str], Awaitable[object] | object] | None = None,
        max_buffered_bytes: int = DEFAULT_BUFFERED_BYTES,
        former: GroupLink | None = None,
    ) -> None:
        check_on_truncated(on_truncated)
        check_seconds("initial_delay", initial_delay, zero=True)
        check_bytes("max_buffered_bytes", max_buffered_bytes)
        if serializer is not None:
            check_serializer(f"reader {reader_id} of {group}: serializer", serializer)
        if on_checkpoint is not None:
            check_callable(f"reader {reader_id} of {group}: on_checkpoint", on_checkpoint)
        self.reader_id = reader_id
        self.group = group
        self._core = core
        self._deserialize = None if serializer is None else total(serializer.deserialize)
        self._prepare = preparing(serializer)
        self._skip_truncated = on_truncated == "skip_to_head"
        self._on_checkpoint = on_checkpoint
        self._budget = max_buffered_bytes
        self._clock = environment().monotonic
        self._member = GroupMember(
            reader_id,
            str(group),
            clock=self._clock,
            wall_ms=lambda: int(environment().wall() * 1000),
            rng=Random(environment().new_id().int),
            initial_delay=initial_delay,
            joined=lambda: 0 if self._link is None else self._link.joined(reader_id),
        )
        self._former = former
        self._link: GroupLink | None = None
        self._entered = False
        # One for each of the reader's tasks.
        self._tasks: set[trio.CancelScope] = set()
        self._tasks_ended = trio.Event()
        self._feeds: dict[str, _Feed] = {}
        self._wake = trio.Event()
        self._cursor: _Cursor | None = None
        # Events of the cursor that may be returned before the next look at the clock.
        self._rows: Iterator[Event[T]] = iter(())
        self._next_round = 0.0
        self._round_done = trio.Event()
        self._reading = False
        # The last checkpoint.
        self._reached: ReachedCheckpoint | None = None
        # Closed, it gives out nothing more; then it leaves the group.
        self._closed = False
        self._left = False
        # Offsets up to which events count as read, from a call of aclose with a position.
        self._leave_at: Mapping[str, int] | None = None

    __reduce__ = not_shared

    def __repr__(self) -> str:
        if self._closed:
            state = "closed"
        elif not self._entered:
            state = "not entered"
        else:
            state = f"open, {len(self.segments)} segments"
        return f"<EventReader {self.reader_id} of {self.group}, {state}>"

    # --- joining and leaving --------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._link is not None or self._closed:
            raise InvalidArgumentError(f"reader {self.reader_id} of {self.group} can be entered once")
        self._core.check_open()
        try:
            await self._join()
        except BaseException as error:
            await self._give_up_joining(error)
            raise
        self._entered = True
        self._start(f"time of reader {self.reader_id}", trio.CancelScope(), self._keep_time)
        return self

    def _start(
        self, name: str, scope: trio.CancelScope, work: Callable[..., Awaitable[None]], *arguments: object
    ) -> None:
        # Not in a nursery around the caller's block: readers would have to be left in the opposite order of
        # joining, and a time limit for joining would have to include the block.
        self._tasks.add(scope)
        self._core.nursery.start_soon(self._run, scope, work, arguments, name=name)

    @trio.lowlevel.enable_ki_protection
    async def _run(
        self, scope: trio.CancelScope, work: Callable[..., Awaitable[None]], arguments: tuple[object, ...]
    ) -> None:
        try:
            with scope:
                await work(*arguments)
        finally:
            self._tasks.remove(scope)
            if not self._tasks:
                self._tasks_ended.set()

    async def _end_tasks(self) -> None:
        """End what the reader has started, and wait for it; only called under a shield."""
        while self._tasks:
            for scope in self._tasks:
                scope.cancel()
            self._tasks_ended = trio.Event()
            await self._tasks_ended.wait()

    @limited("joining group {self.group} as reader {self.reader_id}")
    async def _join(self) -> None:
        self._link = await GroupLink.open(self._core, self.group, self._former)
        await self._link.run(self._member.join())

    async def _give_up_joining(self, error: BaseException) -> None:
        link, self._link = self._link, None
        if link is None:
            return

        async def give_up() -> None:
            await link.run(self._member.give_up_joining(await link.fetch()))

        if self._member.may_join and not isinstance(error, ReaderGroupError | ReaderGroupNotFoundError):
            # Perhaps it is in the group, or will be. The time for joining is over.
            doing = f"leaving group {self.group} again as reader {self.reader_id}"
            reason: object = NO_TIME
            try:
                left = await self._core.leaving.run(give_up, doing, hurried=True)
            except PravegaError as failure:
                left, reason = False, failure
            if not left:
                log.warning(
                    "reader %s may have stayed in group %s, which reader_offline ends: %s",
                    self.reader_id, self.group, reason,
                )  # fmt: skip
        with trio.CancelScope(shield=True):
            await link.aclose()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._entered or self._link is None:
            raise InvalidArgumentError(f"reader {self.reader_id} of {self.group} was not entered")
        self._core.check_run()
        leaving: PravegaError | None = None
        try:
            given_back = error is not None and self._leave_at is None
            position = self.acknowledged_position if given_back else None
            # Also after an exception or a cancellation: a reader that stays in the group would hold up every
            # checkpoint.
            await self._leave(position, hurried=is_hurried(error))
        except PravegaError as problem:
            leaving = problem
        finally:
            if not self._left:
                log.warning(
                    "reader %s has not left group %s, which reader_offline does for it: %s",
                    self.reader_id, self.group, leaving or NO_TIME,
                )  # fmt: skip
            self._left = True
            with trio.CancelScope(shield=True):
                await self._end_tasks()
                await self._link.aclose()
        if error is None:
            if leaving is not None:
                raise leaving
            await trio.lowlevel.checkpoint()

    async def aclose(self, position: Position | None = None) -> None:
        """Leave the group now; otherwise the end of the ``async with`` block does it.

        It takes ``operation_timeout`` at most, together with whatever else of the client is left at the same
        time, and a second after a cancellation. A reader that could not leave by then counts as dead.

        :param position: the position up to which events count as read; default: that of an earlier call that
            was cancelled or failed, else everything that the reader returned.
        """
        await self._leave(position)
        await trio.lowlevel.checkpoint()

    async def _leave(self, position: Position | None = None, *, hurried: bool = False) -> None:
        """Leave the group; this raises no cancellation. Afterwards it has left, unless there was no time."""
        if position is not None:
            check_type("position", position, Position)
        self._core.check_run()
        link = self._link
        if self._left or link is None:
            return
        if position is not None:
            # Whatever leaves the group if this call does not must not count later events as read.
            self._leave_at = position.offsets
        for feed in self._feeds.values():
            feed.scope.cancel()
        self._closed = True
        self._wake.set()
        self._clear_rows()
        self._note()

        async def leave() -> None:
            # A group that was deleted needs not be left.
            with suppress(ReaderGroupNotFoundError):
                await link.run(self._member.leave(self._leave_at))
            self._left = True

        await self._core.leaving.run(
            leave, f"leaving group {self.group} as reader {self.reader_id}", hurried=hurried
        )

    # --- where it is ----------------------------------------------------------------------------

    @property
    def position(self) -> Position:
        """The position after the last event that was returned."""
        self._note()
        return Position.of(self._member.positions(), self._member.ranges)

    @property
    def acknowledged_position(self) -> Position:
        """The position before the last event or batch that was returned.

        That event or batch counts as read when the next one is requested.
        """
        self._note()
        offsets = self._member.positions()
        cursor = self._cursor
        if cursor is not None and cursor.feed.segment in offsets:
            offsets[cursor.feed.segment] = cursor.before_last
        return Position.of(offsets, self._member.ranges)

    @property
    def segments(self) -> tuple[str, ...]:
        """Full names of the segments that this reader reads."""
        return tuple(self._member.positions())

    @property
    def end_of_data(self) -> bool:
        """True once the group has read everything up to the end of its streams."""
        return self._member.end_of_data

    async def time_window(self, stream: ScopedStream | str) -> TimeWindow:
        """Return the event times that the group has reached in a stream: :meth:`ReaderGroup.time_window`."""
        link = self._open_link()
        return await link.time_window(self._core.config.resolve(stream), link.state)

    async def watermark(self, assigner: WatermarkAssigner) -> int | None:
        """Advance a watermark by the time windows of the group's streams, if that is due.

        :param assigner: computes the watermark.
        :returns: the watermark if it has advanced, else None.
        """
        check_type("assigner", assigner, WatermarkAssigner)
        if not await in_caller(lambda: assigner.due):
            return None
        link = self._open_link()
        state = link.state
        # A stream that was read to its end, or deleted, no longer has segments.
        going_on = set(map(stream_of, chain(*state.assigned.values(), state.unassigned, state.future)))
        live = [stream for stream in state.config.starts if stream in going_on]
        places = {
            stream: {
                segment: offset for segment, offset in state.last_read.items() if stream_of(segment) == stream
            }
            for stream in live
        }
        windows = {stream: await link.time_window(stream, state) for stream in live}
        return await in_caller(assigner.update, windows, places)

    def _open_link(self) -> GroupLink:
        if self._closed:
            raise ClosedError(f"reader {self.reader_id} of group {self.group} is closed")
        if self._link is None:
            raise ClosedError(
                f"reader {self.reader_id} of group {self.group} is not open: enter it as a context manager"
            )
        return self._link

    # --- reading --------------------------------------------------------------------------------

    async def read_event(self, timeout: float | None = None) -> Event[T] | None:
        """Return the next event.

        :param timeout: seconds to wait; default: until there is an event. Work for the group that has begun
            is finished first: that takes milliseconds with a healthy server, at most ``operation_timeout``.
        :returns: None after the timeout, or at :attr:`end_of_data`.
        :raises ReinitializationRequiredError: the group was reset, or this reader was declared offline: leave
            it, and create a new one.
        :raises DataLossError: the next events were truncated.
        :raises StreamNotFoundError: a stream of the group was deleted and created again, and the group has
            finished with the old one. It is raised once; the next call goes on with the other streams.
        :raises DecodeError: the bytes in the segment are not an event, or the serializer rejects the payload.
        """
        event = self.read_event_nowait()
        if event is not None:
            return event
        found = await self._find_events(timeout)
        return None if found is None else self._first_event(found)

    def read_event_nowait(self) -> Event[T] | None:
        """Return the next event if it is available without waiting, else None.

        After None, call :meth:`read_event`.
        """
        for event in self._rows:
            # Not by next(): an interrupt after that call would lose the event.
            return event
        return self._event_in_time()

    def events_nowait(self) -> Iterator[Event[T]]:
        """Iterate over the next events that are available without waiting::

            while (event := await reader.read_event()) is not None:
                handle(event)
                for event in reader.events_nowait():
                    handle(event)

        The iteration ends when :meth:`read_event` is needed: to wait, for a checkpoint, or for the group.
        These events need no ``await`` each, which is a quarter of what an event costs.
        """
        while True:
            rows = self._rows
            for event in rows:
                yield event
                if self._rows is not rows:
                    # Another call has advanced the reader, or a round is due.
                    break
            else:
                first = self._event_in_time()
                if first is None:
                    return
                yield first

    def _event_in_time(self) -> Event[T] | None:
        """Return the next event if one is available and no round of the group is due."""
        now = self._clock()
        # A local variable: in the facade another thread may clear the attribute at any time.
        cursor = self._cursor
        if cursor is None or cursor.whole or now >= self._next_round or self._closed:
            return None
        if now - cursor.looked >= _UNTIMED_SECONDS:
            cursor.stride = 1
        elif cursor.stride < _UNTIMED_EVENTS:
            cursor.stride *= 2
        cursor.looked = now
        return self._next_event(cursor)

    def _first_event(self, found: _Cursor) -> Event[T]:
        """Return the first event that :meth:`_find` has found; in any thread."""
        event = self._next_event(found)
        assert event is not None
        return event

    def _next_event(self, cursor: _Cursor) -> Event[T] | None:
        """Return the next event, if any; some more may follow without a look at the clock."""
        self._rows = rows = cursor.rows.take(cursor.stride)
        if self._clock() >= self._next_round:
            # It became due a moment ago: the task that keeps time does not clear them again.
            self._clear_rows()
        for event in rows:
            return event
        return None

    def _clear_rows(self) -> None:
        """Return no more events without a look at the clock."""
        self._rows = iter(())

    def _note(self) -> None:
        """Pass on to the member how far events were returned."""
        cursor = self._cursor
        if cursor is not None and cursor.feed.segment in self._member.offsets:
            self._member.advance(cursor.feed.segment, cursor.after_last)

    async def next_batch(self, timeout: float | None = None) -> EventBatch | None:
        """Return the next events of one segment, as many as have arrived; otherwise as :meth:`read_event`."""
        found = await self._find_events(timeout)
        return None if found is None else self._all_events(found)

    def _all_events(self, found: _Cursor) -> EventBatch:
        """Return all events that :meth:`_find` has found; in any thread."""
        batch, index = found.rows.batch, found.rows.index
        found.whole = True
        self._clear_rows()
        return batch.after(index) if index else batch

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event[T]:
        """Return the next event; the iteration ends at :attr:`end_of_data`."""
        for event in self._rows:
            return event
        first = self._event_in_time()
        if first is not None:
            return first
        found = await self._find_events(None)
        if found is None:
            raise StopAsyncIteration
        return self._first_event(found)

    async def batches(self) -> AsyncGenerator[EventBatch, None]:
        """Iterate over all events in batches::

        async for batch in reader.batches():
            print(batch.segment, len(batch))
        """
        while (found := await self.next_batch()) is not None:
            yield found

    async def _find_events(self, timeout: float | None) -> _Cursor | None:
        """Find events, and tell the caller of the checkpoints before them; None after the timeout."""
        left = timeout
        began = trio.current_time()
        while isinstance(found := await self._find(left), ReachedCheckpoint):
            with found.telling():
                if self._on_checkpoint is not None:
                    result = self._on_checkpoint(found.name)
                    if inspect.isawaitable(result):
                        await result
            if timeout is not None:
                left = max(0.0, began + timeout - trio.current_time())
        return found

    # --- the work of a call ---------------------------------------------------------------------

    async def _find(self, timeout: float | None = None) -> _Cursor | ReachedCheckpoint | None:
        """Find the next events, or the checkpoint before them; None after the timeout. For the facades, too.

        A checkpoint is found again until the caller has been told of it.
        """
        if timeout is not None:
            check_seconds("timeout", timeout, zero=True, infinite=True)
        self._core.check_run()
        reached = self._reached
        if self._reading or (reached is not None and reached.being_told):
            who = "another call is reading" if self._reading else "on_checkpoint or another call is reading"
            raise ConcurrentUseError(f"{who} with reader {self.reader_id} of group {self.group}")
        link = self._open_link()
        if reached is not None and not reached.told:
            await trio.lowlevel.checkpoint()
            return reached
        self._reading = True
        try:
            self._note()
            cursor = self._cursor
            if cursor is not None and cursor.exhausted:
                self._move(None)
                cursor.feed.room.set()
            elif cursor is not None:
                self._move(_Cursor(cursor.feed, cursor.rows))
            deadline = float("inf") if timeout is None else trio.current_time() + timeout
            while True:
                # Another task may have closed the reader.
                self._open_link()
                if self._member.busy or self._clock() >= self._next_round:
                    checkpoint = await self._round(link)
                    # Closed meanwhile, it has left the group: what it would give out may be another's by now.
                    self._open_link()
                    if checkpoint is not None:
                        self._reached = ReachedCheckpoint(checkpoint)
                        return self._reached
                link.tell_created_again()
                cursor = self._cursor or self._next_cursor()
                if cursor is not None:
                    await trio.lowlevel.checkpoint()
                    self._open_link()
                    return cursor
                if self._member.busy:
                    continue
                if self._member.end_of_data or trio.current_time() >= deadline:
                    await trio.lowlevel.checkpoint()
                    return None
                await self._wait(deadline)
        finally:
            self._reading = False

    async def _wait(self, deadline: float) -> None:
        """Wait until something has arrived, or a round of the group is due."""
        self._wake = trio.Event()
        if self._closed or any(feed.has_something for feed in self._feeds.values()):
            return
        # In this order: otherwise rounding may end the wait a moment too early, again and again.
        until_round = trio.current_time() + (self._next_round - self._clock())
        with trio.move_on_at(min(deadline, until_round)):
            await self._wake.wait()

    async def _round(self, link: GroupLink) -> str | None:
        # Until a whole round has succeeded nothing is returned: another reader may have the segments by now.
        self._next_round = float("-inf")
        self._clear_rows()
        try:
            checkpoint = await link.run(self._member.round(link.state))
        except ReinitializationRequiredError:
            self._member.offsets.clear()
            self._member.completed.clear()
            raise
        finally:
            self._follow_member()
        if not self._member.busy:
            self._next_round = self._member.due
            self._round_done.set()
        return checkpoint

    async def _keep_time(self) -> None:
        """End the events without a look at the clock when a round is due, however fast the caller is."""
        while True:
            self._round_done = trio.Event()
            left = self._next_round - self._clock()
            if left > 0:
                with trio.move_on_after(left):
                    await self._round_done.wait()
                continue
            self._clear_rows()
            await self._round_done.wait()

    def _follow_member(self) -> None:
        """Read the segments that this reader has, and no others."""
        offsets, lost = self._member.offsets, self._member.lost
        # A segment may be lost and regained in one round: then another reader may have read on meanwhile.
        for segment in [each for each in self._feeds if each not in offsets or each in lost]:
            feed = self._feeds.pop(segment)
            feed.scope.cancel()
            feed.room.set()
            if self._cursor is not None and feed is self._cursor.feed:
                self._move(None)
        lost.clear()
        for segment, offset in offsets.items():
            if segment not in self._feeds:
                self._open_feed(segment, offset)
        chunk_bytes = self._chunk_bytes()
        for feed in self._feeds.values():
            feed.reader.chunk_bytes = chunk_bytes

    def _move(self, cursor: _Cursor | None) -> None:
        self._cursor = cursor
        self._clear_rows()

    def _chunk_bytes(self) -> int:
        share = self._budget // (_CHUNKS_EACH * max(1, len(self._member.offsets)))
        return max(SMALLEST_CHUNK_BYTES, min(CHUNK_BYTES, share))

    def _open_feed(self, segment: str, offset: int) -> None:
        reader = FollowingReader(
            self._core.stores,
            self._core.target(stream_of(segment), segment_id_of(segment), Access.READ),
            offset,
            self._member.ends.get(segment, NO_END),
            chunk_bytes=self._chunk_bytes(),
            depth=2,
        )
        feed = self._feeds[segment] = _Feed(segment, reader)
        self._start(f"reading {segment}", feed.scope, self._pump, feed)

    async def _pump(self, feed: _Feed) -> None:
        """Read a segment ahead, one batch at a time."""
        async with EventRangeReader(feed.reader) as events:
            while not feed.ended and feed.failure is None:
                try:
                    batch = await events.next_batch()
                    if batch is not None and self._prepare is not None:
                        await self._prepare(batch.to_list())
                except PravegaError as error:
                    feed.failure = error
                else:
                    if batch is None:
                        feed.ended = True
                    else:
                        feed.ready.append(batch)
                self._wake.set()
                while feed.ready and not feed.ended:
                    feed.room = trio.Event()
                    await feed.room.wait()

    def _next_cursor(self) -> _Cursor | None:
        """Move to the next batch, if there is one; handle segments that ended or failed."""
        for segment, feed in list(self._feeds.items()):
            if not feed.has_something or segment not in self._feeds:
                continue
            # The next call begins with another segment.
            self._feeds[segment] = self._feeds.pop(segment)
            if feed.ready:
                batch = feed.ready.popleft()
                if batch.ends_at is not None:
                    # Else the caller finds its events while it uses them; to parse more, they would be needed
                    # now.
                    feed.room.set()
                self._move(_Cursor(feed, batch.rows(BareEvent, self._deserialize)))
                return self._cursor
            if feed.failure is not None:
                self._failed(feed, feed.failure)
            else:
                reader = feed.reader
                self._member.finish(segment, SEGMENT_READ if reader.sealed else reader.end)
            self._follow_member()
        return None

    def _failed(self, feed: _Feed, failure: PravegaError) -> None:
        """Continue after lost data, and raise any other error."""
        # A new feed begins at the reader's position: after what was returned, or after what is lost.
        del self._feeds[feed.segment]
        if isinstance(failure, DataLossError):
            start, offset = failure.start_offset, self._member.offsets[feed.segment]
            if start is not None and start > offset:
                lost_to = min(start, self._member.ends.get(feed.segment, NO_END))
                if start > lost_to:
                    # Truncated beyond the group's end.
                    self._member.finish(feed.segment, lost_to)
                else:
                    self._member.advance(feed.segment, start)
                lost = SkippedPart(feed.segment, offset, lost_to, lost_to - offset)
            else:
                # It is gone altogether; what follows it may be there.
                self._member.finish(feed.segment, SEGMENT_READ)
                lost = SkippedPart(feed.segment, offset, SEGMENT_READ, None)
            if self._skip_truncated:
                reader = f"reader {self.reader_id} of group {self.group}"
                report_skipped(self._core, stream_of(feed.segment), lost, reader)
                return
        self._follow_member()
        raise failure
