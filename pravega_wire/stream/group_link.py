"""A reader group's state on a server, and the execution of the group algorithm's actions."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Self, TypeVar

import trio

from pravega_wire.errors import (
    InvalidArgumentError,
    NoSuchSegmentError,
    PermissionDeniedError,
    PravegaError,
    ReaderGroupNotFoundError,
    SealedStateError,
    StreamNotFoundError,
)
from pravega_wire.protocol.group_algorithm import (
    Action,
    Announce,
    AskEnd,
    AskRange,
    AskSuccessors,
    Change,
    Compact,
    Fetch,
    FollowingSegment,
    LoadConfig,
    Publish,
    completed_cut,
    cuts_of,
    end_offsets,
    waiting_after,
)
from pravega_wire.protocol.group_state import (
    AcquireSegment,
    AddReader,
    CheckpointReader,
    CompactReaderGroupState,
    CreateCheckpoint,
    GroupInit,
    GroupState,
    GroupStateFormat,
    GroupUpdate,
    ReaderGroupStateInit,
    ReleaseSegment,
    RemoveReader,
    SegmentCompleted,
    UpdateDistanceToTail,
    is_silent,
    segment_id_of,
    stream_of,
)
from pravega_wire.protocol.watermarks import WatermarkWindow
from pravega_wire.segment.handles import Waiters
from pravega_wire.serializers import BytesSerializer
from pravega_wire.stream import batch
from pravega_wire.stream.core import ClientCore
from pravega_wire.stream.revisioned import RevisionedStream, only_segment
from pravega_wire.stream.synchronizer import StateSynchronizer
from pravega_wire.stream.user_functions import in_place
from pravega_wire.stream.watermarks import MARKS, mark_stream
from pravega_wire.support.environment import environment
from pravega_wire.values.groups import (
    OnlineReader,
    OnlineReaders,
    OutstandingCheckpoint,
    ReaderGroupConfig,
    RetentionType,
    TimeWindow,
)
from pravega_wire.values.naming import epoch_of, segment_name, validate_user_name
from pravega_wire.values.positions import KeyRange, Watermark
from pravega_wire.values.types import Revision, ScopedStream, StreamCut

__all__ = ["GroupLink", "hold", "initial_state", "release"]

R = TypeVar("R")

STATE_PREFIX: Final = "_RG"
"""Precedes the group's name in the name of the stream that holds its state."""

_COMPACT_BYTES: Final = 512 * 1024
_PUBLISH_SECONDS: Final = 10.0

log = logging.getLogger(__name__)


def state_stream(group: ScopedStream) -> ScopedStream:
    """The stream that holds a group's state."""
    return ScopedStream(group.scope, STATE_PREFIX + group.name)


def group_name(name: ScopedStream) -> ScopedStream:
    """Check a group's full name.

    :raises InvalidArgumentError: the name is invalid.
    """
    validate_user_name("reader group", name.name)
    return name


async def initial_state(core: ClientCore, config: ReaderGroupConfig) -> GroupInit:
    """The initial state of a group with this configuration.

    :raises StreamNotFoundError: one of its streams does not exist.
    :raises InvalidStreamCutError: a cut is not a position in its stream.
    """
    for end in config.ends.values():
        if end is not None:
            await batch.check_cut(core, end)
    starts: dict[str, int] = {}
    waiting: dict[str, frozenset[int]] = {}
    for stream, cut in config.starts.items():
        if cut is None:
            positions: Mapping[int, int] = await core.controller.get_segments(stream.scope, stream.name)
            if not positions:
                raise StreamNotFoundError(
                    f"stream {stream} has no segment", scope=stream.scope, stream=stream.name
                )
        else:
            await batch.check_cut(core, cut)
            await batch.check_offsets(core, cut)
            positions = cut.positions
        offsets = {segment_name(stream.scope, stream.name, each): at for each, at in positions.items()}
        if cut is not None:
            topology = Topology(core, config)
            offsets = await topology.complete(offsets)
            waiting.update(await topology.waiting(offsets))
        starts.update(offsets)
    initial = ReaderGroupStateInit(config, starts, end_offsets(config), dict.fromkeys(starts), False)
    if not waiting:
        return initial
    # That record has no room for segments that wait.
    return replace(GroupState.begin(initial), future=waiting).compacted()


async def release(core: ClientCore, group: ScopedStream, config: ReaderGroupConfig, cut: StreamCut) -> None:
    """Tell the controller that a group needs nothing before a cut of one of its streams."""
    # For the controller, a segment without a place has not begun: that is before what was released of it.
    cut = await batch.with_lengths(core, cut)
    await core.controller.update_subscriber_stream_cut(
        cut.stream.scope, cut.stream.name, str(group), config.group_id, config.generation, cut.positions
    )


async def hold(
    core: ClientCore,
    group: ScopedStream,
    initial: GroupInit,
    former: ReaderGroupConfig | None = None,
) -> None:
    """Keep what a group begins at from being deleted by the retention policies of its streams.

    A controller leaves a subscriber out of account until it has a cut of it.

    :param initial: the state that the group is going to have.
    :param former: the configuration before, if there was one.
    """
    config = initial.config
    if config.retention is RetentionType.NONE:
        return
    for cut in cuts_of(GroupState.begin(initial).unassigned):
        if (
            config.retention is RetentionType.MANUAL_RELEASE_AT_USER_STREAM_CUT
            and former is not None
            and former.retention is not RetentionType.NONE
            and cut.stream in former.starts
        ):
            # Only the user releases more.
            continue
        try:
            await release(core, group, config, cut)
        except PravegaError as error:
            log.warning(
                "stream %s may delete data that reader group %s has not read, because the controller does "
                "not keep it from where the group starts: %s", cut.stream, group, error,
            )  # fmt: skip


# --- requests to the controller -------------------------------------------------------------------


async def _execute(steps: Generator[Action, Any, R], perform: Callable[[Action], Awaitable[Any]]) -> R:
    result: Any = None
    try:
        while True:
            try:
                action = steps.send(result)
            except StopIteration as stop:
                value: R = stop.value
                return value
            result = await perform(action)
    finally:
        steps.close()


class Topology:
    """The controller's view of the segments of a group's streams."""

    def __init__(self, core: ClientCore, config: ReaderGroupConfig) -> None:
        self._core = core
        self._config = config
        self._epochs: dict[tuple[ScopedStream, int], dict[int, KeyRange]] = {}

    async def answer(self, action: Action) -> Any:
        """The answer to one request."""
        match action:
            case AskSuccessors(segment):
                return await self.successors(segment)
            case AskRange(segment):
                return await self.range_of(segment)
            case AskEnd(stream):
                return await self.end_of(stream)
        raise TypeError(f"{action} is not a request to the controller")

    async def complete(self, offsets: dict[str, int]) -> dict[str, int]:
        """Complete a cut; see :func:`completed_cut`.

        The offsets are returned unchanged if the user may not fetch the key ranges of segments, or if the
        stream was deleted. (``isStreamCutValid`` would tell which cuts are complete, but a 0.13.0 controller
        fails on cuts of sealed streams.)
        """
        try:
            return await _execute(completed_cut(offsets), self.answer)
        except (PermissionDeniedError, StreamNotFoundError):
            return offsets

    async def waiting(self, offsets: dict[str, int]) -> dict[str, frozenset[int]]:
        """The segments that wait for fewer than they follow; see :func:`waiting_after`."""
        try:
            return await _execute(waiting_after(offsets), self.answer)
        except (PermissionDeniedError, StreamNotFoundError):
            return {}

    async def successors(self, segment: str) -> Sequence[FollowingSegment]:
        """The successors of a sealed segment; none if the stream was deleted."""
        stream, segment_id = stream_of(segment), segment_id_of(segment)
        try:
            found = await batch.recorded_successors(self._core, stream, segment_id)
        except StreamNotFoundError:
            return []
        return [
            FollowingSegment(
                segment_name(stream.scope, stream.name, each.segment.segment_id),
                (each.segment.low, each.segment.high),
                each.predecessors,
            )
            for each in found.successors
        ]

    async def range_of(self, segment: str) -> KeyRange:
        """A segment's part of the key space; empty if the controller has forgotten the segment."""
        stream, segment_id = stream_of(segment), segment_id_of(segment)
        epoch = epoch_of(segment_id)
        if (stream, epoch) not in self._epochs:
            segments = await self._core.controller.get_epoch_segments(stream.scope, stream.name, epoch)
            self._epochs[stream, epoch] = {each.segment_id: (each.low, each.high) for each in segments}
        return self._epochs[stream, epoch].get(segment_id, (0.0, 0.0))

    async def end_of(self, stream: ScopedStream) -> dict[str, int]:
        """The position at which the group ends in a stream; empty if it has no end."""
        end = self._config.ends.get(stream)
        if end is not None:
            positions = dict(end.positions)
        elif not await self._core.controller.get_current_segments(stream.scope, stream.name):
            positions = dict.fromkeys(await batch.last_segments(self._core, stream), -1)
        else:
            positions = {}
        return {segment_name(stream.scope, stream.name, each): at for each, at in positions.items()}


# --- watermarks -----------------------------------------------------------------------------------


class StreamWatermarks:
    """The watermarks of a stream, read as needed."""

    def __init__(self, core: ClientCore, stream: ScopedStream) -> None:
        self.stream = stream
        self._core = core
        self._marks: RevisionedStream[Watermark] | None = None
        self._read_to: Revision | None = None
        self._waiting: list[Watermark] = []
        self._window = WatermarkWindow()
        self._lock = trio.Lock()

    async def window(self, state: GroupState) -> TimeWindow:
        """The event times that a group with this state has reached."""
        async with self._lock:
            self._window.move(
                {
                    segment_id_of(segment): (offset, state.ranges.get(segment))
                    for segment, offset in state.last_read.items()
                    if stream_of(segment) == self.stream
                }
            )
            while self._window.wants_more:
                try:
                    if not self._waiting and not await self._read_more():
                        break
                except (NoSuchSegmentError, StreamNotFoundError):
                    # The mark stream was deleted with its stream: there will be no more watermarks.
                    break
                self._window.add(self._waiting.pop())
            return self._window.window

    async def _read_more(self) -> bool:
        if self._marks is None:
            self._marks = await RevisionedStream.open(self._core, mark_stream(self.stream), MARKS)
        if self._read_to is None:
            self._read_to = await self._marks.oldest_revision()
        found = []
        read_to = self._read_to
        reader = await self._marks.read_from(read_to)
        try:
            async for revision, mark in reader:
                found.append(mark)
                read_to = revision
        finally:
            await reader.aclose()
        # Assigned together, so that a cancellation changes both or neither.
        self._read_to, self._waiting = read_to, found[::-1]
        return bool(found)

    async def aclose(self) -> None:
        """Release the connection."""
        if self._marks is not None:
            await self._marks.aclose()


# --- the link -------------------------------------------------------------------------------------


class _Moment(NamedTuple):
    """A time as the clock shows it, and one by which moments are ordered: the clock may be put back."""

    monotonic: float
    utc: datetime

    @classmethod
    def now(cls) -> _Moment:
        now = environment()
        return cls(now.monotonic(), datetime.fromtimestamp(now.wall(), UTC))


class _Watching(GroupStateFormat):
    """Records, while updates are applied, what the last fetched state may no longer contain.

    :ivar joined: the number of times that readers of a name have joined, as far as that is known.
    :ivar watched: for each checkpoint that callers wait for, what is recorded for each of them: its
        positions, by name, once it is complete. It may be completed, and cleared by a later one, in updates
        that arrive together.
    :ivar moved: for each online reader, when its newest record was read.
    :ivar begun: for each incomplete checkpoint, when its beginning was read.
    :ivar last: the newest state.
    """

    def __init__(self) -> None:
        self.last: GroupState | None = None
        self.joined: Counter[str] = Counter()
        self.watched: dict[str, list[dict[str, Mapping[str, int]]]] = {}
        self.moved: dict[str, _Moment] = {}
        self.begun: dict[str, _Moment] = {}

    def create(self, initial: GroupInit, revision: object) -> GroupState:
        """See :class:`GroupStateFormat`.

        Usually this is the state that is known already, in one record. But records before it may have been
        deleted before they were read. A reader writes nothing that this client does not know: if the state
        has something else of one of its name, that is another one.
        """
        before, after = self.last, super().create(initial, revision)
        if before is not None:
            again = before.config.generation != after.config.generation
            self.joined.update(
                name for name, owned in after.assigned.items() if again or owned != before.assigned.get(name)
            )
        return self._record(after)

    def apply(self, state: GroupState, update: GroupUpdate, revision: object) -> GroupState:
        """See :class:`GroupStateFormat`."""
        if isinstance(update, AddReader):
            self.joined[update.reader] += 1
        after = self._record(super().apply(state, update, revision))
        self._note(update, after)
        return after

    def _record(self, after: GroupState) -> GroupState:
        """Record the newest state, and the checkpoints that are complete in it."""
        self.last = after
        for name, watchers in self.watched.items():
            positions = after.checkpoints.completed(name)
            if positions is not None:
                for found in watchers:
                    found.setdefault(name, positions)
        return after

    def _note(self, update: GroupUpdate, after: GroupState) -> None:
        """Record when readers moved and checkpoints began."""
        match update:
            case CreateCheckpoint(checkpoint):
                self.begun.setdefault(checkpoint, _Moment.now())
            case (
                AddReader(reader=reader)
                | ReleaseSegment(reader=reader)
                | AcquireSegment(reader=reader)
                | UpdateDistanceToTail(reader=reader)
                | SegmentCompleted(reader=reader)
                | CheckpointReader(reader=reader)
            ):
                # The lag of a reader may be written after the reader has left.
                if reader in after.assigned:
                    self.moved[reader] = _Moment.now()
            case RemoveReader(reader=reader):
                self.moved.pop(reader, None)
            case ReaderGroupStateInit() | CompactReaderGroupState():
                for gone in self.moved.keys() - after.assigned.keys():
                    del self.moved[gone]
        for ended in self.begun.keys() - after.checkpoints.pending.keys():
            del self.begun[ended]


class _Shared:
    """A group's state and the connection to it, which all links of a client to the group share.

    :ivar segment_id: id of the segment with the state.
    :ivar links: number of open links.
    """

    def __init__(self, core: ClientCore, group: ScopedStream, segment_id: int) -> None:
        self.segment_id = segment_id
        self.links = 0
        self.watching = _Watching()
        log = RevisionedStream(core, state_stream(group), BytesSerializer(), segment_id)
        self.synchronizer: StateSynchronizer[GroupState, GroupInit, GroupUpdate] = StateSynchronizer(
            log, self.watching, run=in_place
        )


class GroupLink:
    """A group's state, and the execution of the actions of :mod:`pravega_wire.protocol.group_algorithm`.

    The links of a client to one group share the state: what one of them fetches, all of them know.

    :raises ReaderGroupNotFoundError: (from :meth:`open`) the group does not exist.
    """

    def __init__(self, core: ClientCore, group: ScopedStream, shared: _Shared) -> None:
        self.core = core
        self.group = group
        self._shared = shared
        self._synchronizer = shared.synchronizer
        self._watching = shared.watching
        self._waiters = Waiters(
            f"the connection to the state of reader group {group} is closed", core.stores.thread
        )
        shared.links += 1
        # What was fetched by then may have been written at any time.
        self._opened = _Moment.now()
        self._created_again: set[ScopedStream] = set()
        self._watermarks: dict[ScopedStream, StreamWatermarks] = {}
        self._watermarks_of = 0

    @classmethod
    async def open(cls, core: ClientCore, group: ScopedStream, former: GroupLink | None = None) -> Self:
        """Connect to a group's state and fetch it.

        :param former: a link to the same group; it may be closed.
        :raises ReaderGroupNotFoundError: the group does not exist, or is not the one of the former link.
        """
        core.check_open()
        try:
            segment_id = await only_segment(core, state_stream(group))
        except StreamNotFoundError as error:
            raise ReaderGroupNotFoundError(
                f"reader group {group} does not exist", scope=group.scope
            ) from error
        if former is not None and segment_id != former._shared.segment_id:
            raise ReaderGroupNotFoundError(
                f"reader group {group} was deleted and created again: open it again", scope=group.scope
            )
        shared = core.group_states.get(group)
        # A group that was deleted and created again has another segment.
        if shared is None or shared.segment_id != segment_id:
            shared = core.group_states[group] = _Shared(core, group, segment_id)
        link = cls(core, group, shared)
        try:
            await link.fetch()
            link._opened = _Moment.now()
        except BaseException:
            with trio.CancelScope(shield=True):
                await link.aclose()
            raise
        return link

    @property
    def watched_since(self) -> datetime:
        """When this link was opened, in UTC."""
        return self._opened.utc

    @property
    def state(self) -> GroupState:
        """The state as of the last fetch."""
        state = self._synchronizer.state
        if state is None:
            raise ReaderGroupNotFoundError(
                f"reader group {self.group} has no state yet: its creation is not finished. Call "
                "create_reader_group again to finish it",
                scope=self.group.scope,
            )
        return state

    @property
    def reader_count(self) -> int:
        """The number of readers in the group as of the last fetch; 0 without a state."""
        state = self._synchronizer.state
        return 0 if state is None else len(state.assigned)

    async def fetch(self) -> GroupState:
        """Fetch the updates of other processes."""
        with self._using():
            await self._synchronizer.fetch_updates()
        return self.state

    async def change(self, action: Change) -> GroupState:
        """Write updates that are generated for the current state."""
        with self._using():
            return await self._synchronizer.update(action.generate)

    async def announce(self, updates: Sequence[GroupUpdate]) -> None:
        """Write updates, whatever the state is."""
        with self._using():
            await self._synchronizer.update_unconditionally(updates)

    async def wait_for_updates(self) -> GroupState:
        """Wait until another process writes an update, and fetch it."""
        with self._using():
            await self._synchronizer.wait_for_updates()
        return self.state

    @contextmanager
    def _using(self) -> Iterator[None]:
        """Wrap what is awaited. Errors of the state's stream are raised as the deletion of the group.

        :raises ClosedError: the link is closed, or was closed during the block.
        """
        try:
            with self._waiters.waiting():
                yield
        except (NoSuchSegmentError, StreamNotFoundError, SealedStateError) as error:
            raise ReaderGroupNotFoundError(
                f"reader group {self.group} was deleted", scope=self.group.scope
            ) from error

    def joined(self, reader: str) -> int:
        """The number of times that readers of this name have joined, as seen by this client."""
        return self._watching.joined[reader]

    def _seen(self, when: _Moment | None) -> datetime | None:
        """When something was seen, unless that was before this link was opened."""
        return when.utc if when is not None and when.monotonic >= self._opened.monotonic else None

    def online_readers(self) -> OnlineReaders:
        """The readers in the last fetched state, with what was seen of them since this link was opened."""
        return OnlineReaders(map(self._online_reader, self.state.assigned))

    def _online_reader(self, name: str) -> OnlineReader:
        state = self.state
        pending = state.checkpoints.pending
        return OnlineReader(
            name,
            {each: state.last_read.get(each, at) for each, at in state.assigned.get(name, {}).items()},
            tuple(each for each in state.checkpoints.checkpoints if name in pending.get(each, ())),
            self._seen(self._watching.moved.get(name)),
            self.watched_since,
        )

    def outstanding_checkpoints(self) -> tuple[OutstandingCheckpoint, ...]:
        """The incomplete checkpoints in the last fetched state, oldest first."""
        checkpoints = self.state.checkpoints
        return tuple(
            OutstandingCheckpoint(
                name,
                is_silent(name),
                tuple(map(self._online_reader, sorted(checkpoints.pending[name]))),
                self._seen(self._watching.begun.get(name)),
            )
            for name in checkpoints.checkpoints
            if name in checkpoints.pending
        )

    @contextmanager
    def watch(self, checkpoint: str) -> Iterator[dict[str, Mapping[str, int]]]:
        """Record a checkpoint's positions when it is complete. Yields the recorded positions, by name."""
        found: dict[str, Mapping[str, int]] = {}
        # Another task may wait for a checkpoint of the same name.
        watchers = self._watching.watched.setdefault(checkpoint, [])
        watchers.append(found)
        try:
            yield found
        finally:
            watchers[:] = [each for each in watchers if each is not found]
            if not watchers:
                del self._watching.watched[checkpoint]

    async def run(self, steps: Generator[Action, Any, R]) -> R:
        """Execute the steps of an algorithm. Cancelling this interrupts the algorithm."""
        return await _execute(steps, self._perform)

    async def _perform(self, action: Action) -> Any:
        match action:
            case Fetch():
                return await self.fetch()
            case Change():
                return await self.change(action)
            case Announce(updates):
                return await self.announce(updates)
            case Compact():
                return await self._compact()
            case LoadConfig():
                group = self.group
                config = await self.core.controller.get_reader_group_config(group.scope, group.name)
                initial = await initial_state(self.core, config)
                # Whoever has begun the reset may have died before this.
                await hold(self.core, group, initial, self.state.config)
                return initial
            case Publish(cuts, config):
                return await self.publish(cuts, config)
            case AskSuccessors(segment):
                return await self._successors(segment)
        return await Topology(self.core, self.state.config).answer(action)

    async def _successors(self, segment: str) -> Sequence[FollowingSegment]:
        found = await Topology(self.core, self.state.config).successors(segment)
        if not found:
            # Only a stream without active segments was sealed or deleted. A controller records what follows
            # a segment before it seals the segment.
            stream = stream_of(segment)
            with suppress(StreamNotFoundError):
                if await self.core.controller.get_current_segments(stream.scope, stream.name):
                    self._created_again.add(stream)
        return found

    def tell_created_again(self) -> None:
        """Tell, once, of a stream whose new segments the group does not read.

        :raises StreamNotFoundError: the stream that the group read was deleted, and created again.
        """
        if self._created_again:
            stream = self._created_again.pop()
            raise StreamNotFoundError(
                f"stream {stream} was deleted and created again: reader group {self.group} has finished with "
                "it, and reads nothing of the new one until it is reset",
                scope=stream.scope,
                stream=stream.name,
            )

    async def _compact(self) -> GroupState:
        with self._using():
            if await self._synchronizer.bytes_since_compaction() > _COMPACT_BYTES:
                await self._synchronizer.compact(lambda state: state.compacted())
        return self.state

    async def complete(self, cuts: Sequence[StreamCut]) -> list[StreamCut]:
        """Complete the cuts of a group's positions with segments that its state no longer has."""
        result = []
        topology = Topology(self.core, self.state.config)
        for cut in cuts:
            stream = cut.stream
            names = {segment_name(stream.scope, stream.name, each): at for each, at in cut.positions.items()}
            offsets = await topology.complete(names)
            result.append(StreamCut(stream, {segment_id_of(name): at for name, at in offsets.items()}))
        return result

    async def publish(self, cuts: Sequence[StreamCut], config: ReaderGroupConfig) -> None:
        """Report to the controller that the group no longer needs data before these cuts, if it accepts that.

        It does not accept it for a sealed or deleted stream, or while the group is being reset. Reading does
        not depend on it, and newer cuts follow with the next checkpoint.
        """
        with trio.move_on_after(_PUBLISH_SECONDS) as scope:
            for cut in cuts:
                stream = cut.stream
                try:
                    [whole] = await self.complete([cut])
                    await release(self.core, self.group, config, whole)
                except PravegaError as error:
                    log.info(
                        "stream %s does not delete the data that group %s has read: %s",
                        stream, self.group, error,
                    )  # fmt: skip
        if scope.cancelled_caught:
            log.warning(
                "the controller did not accept the positions of group %s within %g s; its streams may delete "
                "the data that was read later", self.group, _PUBLISH_SECONDS,
            )  # fmt: skip

    async def time_window(self, stream: ScopedStream, state: GroupState) -> TimeWindow:
        """The event times that the group has reached in a stream, as of a state.

        :raises InvalidArgumentError: the group does not read the stream.
        """
        if stream not in state.config.starts:
            raise InvalidArgumentError(f"reader group {self.group} does not read stream {stream}")
        if self._watermarks_of != state.config.generation:
            # After a reset the group may restart at an earlier position, and windows cannot move back.
            self._watermarks_of = state.config.generation
            former, self._watermarks = self._watermarks, {}
            for each in former.values():
                await each.aclose()
        if stream not in self._watermarks:
            self._watermarks[stream] = StreamWatermarks(self.core, stream)
        return await self._watermarks[stream].window(state)

    async def aclose(self) -> None:
        """Release the connections. Tasks that wait in a call get :class:`ClosedError`."""
        for each in self._watermarks.values():
            await each.aclose()
        if self._waiters.closed:
            return
        self._waiters.close()
        shared = self._shared
        shared.links -= 1
        if not shared.links:
            if self.core.group_states.get(self.group) is shared:
                del self.core.group_states[self.group]
            await self._synchronizer.aclose()
