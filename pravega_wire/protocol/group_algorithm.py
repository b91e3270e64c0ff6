"""What one reader of a group does, and when: the algorithm of the Java client, without its I/O.

:meth:`GroupMember.round` is a generator: it yields what has to be done with the shared state, the controller
or the user, and is sent the result. The same code therefore runs against a real server and in a simulation of
hundreds of readers. The rules are in ``docs/protocol/formats.md``, "How a reader of a group decides".

Defined by ``io.pravega.client.stream.impl.ReaderGroupStateManager`` and ``EventStreamReaderImpl``, 0.13.0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from random import Random
from typing import Any, Final
from uuid import UUID

from pravega_wire.errors import ReaderGroupError, ReinitializationRequiredError
from pravega_wire.protocol.group_state import (
    NO_END,
    AcquireSegment,
    AddReader,
    CheckpointReader,
    ClearCheckpointsBefore,
    CreateCheckpoint,
    GroupInit,
    GroupState,
    GroupUpdate,
    ReleaseSegment,
    RemoveReader,
    SegmentCompleted,
    UpdateCheckpointPublished,
    UpdateDistanceToTail,
    is_silent,
    segment_id_of,
    stream_of,
)
from pravega_wire.values.groups import ReaderGroupConfig, RetentionType
from pravega_wire.values.hashing import hash_to_range, java_string_hash
from pravega_wire.values.naming import segment_name
from pravega_wire.values.positions import KeyRange
from pravega_wire.values.types import ROUNDING, SEGMENT_READ, ScopedStream, StreamCut

__all__ = [
    "Action",
    "Announce",
    "AskEnd",
    "AskRange",
    "AskSuccessors",
    "Change",
    "Compact",
    "Fetch",
    "FollowingSegment",
    "Generate",
    "GroupMember",
    "LoadConfig",
    "Publish",
    "cancel_checkpoints",
    "completed_cut",
    "cuts_of",
    "end_offsets",
    "remove_reader",
    "waiting_after",
    "withdraw_checkpoint",
]

UNIT: Final = 1.0
"""Seconds that a reader waits for each reader that has more, or less, to do than itself."""

_UPDATE_WINDOW: Final = 30.0
_CONFIG_INTERVAL: Final = 10.0
_COMPACTION_PROBABILITY: Final = 0.05
_LAG_GRAIN_MS: Final = 1 << 36

Generate = Callable[[GroupState], Sequence[GroupUpdate] | None]
"""Function that makes the updates for a state; None or an empty sequence if there is nothing to do."""


# --- what a round asks for ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fetch:
    """Read what other readers wrote; the result is the state."""


@dataclass(frozen=True, slots=True)
class Change:
    """Write the updates that ``generate`` makes for the current state; the result is the state after them."""

    generate: Generate


@dataclass(frozen=True, slots=True)
class Announce:
    """Write updates unconditionally; there is no result."""

    updates: Sequence[GroupUpdate]


@dataclass(frozen=True, slots=True)
class Compact:
    """Compact the state's stream if it has become long; the result is the state, which may be a later one."""


@dataclass(frozen=True, slots=True)
class LoadConfig:
    """Ask the controller for the group's configuration; the result is the initial state it describes."""


@dataclass(frozen=True, slots=True)
class FollowingSegment:
    """A segment that follows a sealed segment.

    :param segment: full name of the segment.
    :param key_range: its part of the key space.
    :param predecessors: ids of all segments that it follows.
    """

    segment: str
    key_range: KeyRange
    predecessors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AskSuccessors:
    """Ask the controller what follows a segment; the result is a sequence of :class:`FollowingSegment`."""

    segment: str


@dataclass(frozen=True, slots=True)
class AskRange:
    """Ask the controller for a segment's part of the key space; the result is that pair."""

    segment: str


@dataclass(frozen=True, slots=True)
class AskEnd:
    """Ask where a stream ends for the group; the result is its last segments' offsets, -1 for their ends."""

    stream: ScopedStream


@dataclass(frozen=True, slots=True)
class Publish:
    """Report to the controller that the group does not need data before these cuts; there is no result."""

    cuts: Sequence[StreamCut]
    config: ReaderGroupConfig


Action = Fetch | Change | Announce | Compact | LoadConfig | AskSuccessors | AskRange | AskEnd | Publish
Steps = Generator[Action, Any, None]


# --- helpers --------------------------------------------------------------------------------------


def end_offsets(config: ReaderGroupConfig) -> dict[str, int]:
    """Return where segments end for a group, from the cuts of its configuration."""
    return {
        segment_name(stream.scope, stream.name, segment): NO_END if offset == SEGMENT_READ else offset
        for stream, cut in config.ends.items()
        if cut is not None
        for segment, offset in cut.positions.items()
    }


def cuts_of(offsets: Mapping[str, int]) -> list[StreamCut]:
    """Return offsets of segments as one cut for each stream, in the order of the streams."""
    found: dict[ScopedStream, dict[int, int]] = {}
    for segment, offset in offsets.items():
        found.setdefault(stream_of(segment), {})[segment_id_of(segment)] = max(offset, SEGMENT_READ)
    return [StreamCut(stream, found[stream]) for stream in sorted(found)]


def completed_cut(offsets: Mapping[str, int]) -> Generator[Action, Any, dict[str, int]]:
    """Complete the positions of a group in one stream with segments that its state no longer holds.

    A segment that was read to its end is removed from the state, although the segment that it was merged into
    may still wait for the other predecessors. A group's positions may therefore leave out a part of the key
    space. The controller refuses a cut with such a gap, and a group that starts at one waits for ever.

    The missing segments are found by following successors from the known segments: a predecessor that is
    neither known nor follows a known segment was read to its end. Whatever is still missing then was read up
    to where the group ends.
    """
    stream = stream_of(next(iter(offsets)))
    ranges: dict[str, KeyRange] = {}
    for segment in offsets:
        ranges[segment] = yield AskRange(segment)
    found = dict(offsets)
    if _is_whole(ranges.values()):
        return found
    followers = list(offsets)
    reached = set(offsets)
    predecessors: set[str] = set()
    for segment in followers:
        for each in (yield AskSuccessors(segment)):
            if each.segment not in reached:
                reached.add(each.segment)
                followers.append(each.segment)
            for before in each.predecessors:
                predecessors.add(segment_name(stream.scope, stream.name, before))
    # The newest first: the reading of an older one may have continued in another of these.
    gone = sorted(predecessors - reached, key=segment_id_of, reverse=True)
    yield from _fill(found, ranges, dict.fromkeys(gone, SEGMENT_READ))
    if not _is_whole(ranges[segment] for segment in found):
        yield from _fill(found, ranges, (yield AskEnd(stream)))
    return found


def waiting_after(offsets: Mapping[str, int]) -> Generator[Action, Any, dict[str, frozenset[int]]]:
    """The segments after a completed cut that wait for fewer segments than they follow, and for which.

    After an uneven merge, a cut may leave out keys for which the next segment cannot be begun yet
    (:meth:`StreamLayout.check`). The segment that had these keys before was read, but it cannot be in the
    cut, because other segments of the cut follow it. A group that starts at the cut must not wait for it.
    """
    ranges: list[KeyRange] = []
    for segment in offsets:
        ranges.append((yield AskRange(segment)))
    if _is_whole(ranges):
        return {}
    followers = list(offsets)
    unread = set(map(segment_id_of, offsets))
    predecessors: dict[str, tuple[int, ...]] = {}
    for segment in followers:
        for each in (yield AskSuccessors(segment)):
            if each.segment not in predecessors:
                predecessors[each.segment] = each.predecessors
                followers.append(each.segment)
                unread.add(segment_id_of(each.segment))
    return {
        segment: frozenset(unread.intersection(before))
        for segment, before in predecessors.items()
        if not unread.issuperset(before)
    }


def _fill(
    found: dict[str, int], ranges: dict[str, KeyRange], offsets: Mapping[str, int]
) -> Generator[Action, Any, None]:
    """Add the segments that cover parts of the key space which nothing covers so far."""
    for segment, offset in offsets.items():
        if segment in found:
            continue
        low, high = ranges[segment] = yield AskRange(segment)
        if not any(ranges[known][0] < high and ranges[known][1] > low for known in found):
            found[segment] = offset


def _is_whole(parts: Iterable[KeyRange]) -> bool:
    """Return whether ranges cover the key space."""
    at = 0.0
    for low, high in sorted(parts):
        if low > at:
            return False
        at = max(at, high)
    return at > 1.0 - ROUNDING


def remove_reader(reader: str, offsets: Mapping[str, int]) -> Generate:
    """Return the update that removes a reader from the group.

    It is written also for a reader that is not in the group. A dead reader's request to join may be stored
    only later, on the condition that nothing else was stored before it.

    :param reader: name of the reader.
    :param offsets: offsets up to which it has read. For its other segments the assigned offset counts, and
        for one that it was given again later, further on: another reader has read what lies between.
    """

    def generate(state: GroupState) -> Sequence[GroupUpdate]:
        owned = state.assigned.get(reader, {})
        return [
            RemoveReader(
                reader,
                {
                    name: at
                    for name, at in offsets.items()
                    if name in owned and (at < 0 or 0 <= owned[name] <= at)  # a negative one is the end
                },
            )
        ]

    return generate


def withdraw_checkpoint(checkpoint: str) -> Generate:
    """Return the update that withdraws an incomplete checkpoint; nothing if it is complete or unknown.

    No update of the format drops a single checkpoint. RemoveOutstandingCheckpoints drops all that are not
    silent, and keeps their names, so that these names cannot be used again. ClearCheckpointsBefore drops all
    older ones. Answering for the missing readers would complete the checkpoint, with positions that no reader
    was at. But an update may be a whole state, as in a change of configuration, and every reader applies
    compacted states. So the present state is written again without the checkpoint, on the condition that it
    is still the present state, like any update. A reader that was given the checkpoint finds in its next
    round that there is nothing to answer, and continues.
    """

    def generate(state: GroupState) -> Sequence[GroupUpdate] | None:
        checkpoints = state.checkpoints
        if checkpoints.is_complete(checkpoint):
            return None
        return [replace(state, checkpoints=checkpoints.withdrawn(checkpoint)).compacted()]

    return generate


def cancel_checkpoints(state: GroupState) -> Sequence[GroupUpdate]:
    """Return the update that cancels all incomplete checkpoints; they keep their names.

    RemoveOutstandingCheckpoints says the same, but readers of the Java client before 0.13 fail when they
    find it. So it is a whole state, as in :func:`withdraw_checkpoint`.
    """
    checkpoints = state.checkpoints
    if not checkpoints.outstanding:
        return []
    return [replace(state, checkpoints=checkpoints.without_outstanding()).compacted()]


# --- the algorithm --------------------------------------------------------------------------------


def _lag_interval(state: GroupState) -> float:
    """The time between two reports of a reader about how far behind it is, after each of which it fetches."""
    return UNIT * (len(state.assigned) + 1)


class GroupMember:
    """One reader of a group: its segments, its timers, and what it does next.

    The driver calls :meth:`join` once; before each event :meth:`round`, if :attr:`busy` is true or
    :attr:`due` is reached; :meth:`advance` for each event it returns; and :meth:`finish` when a segment has
    no more events. It reads the segments in :attr:`offsets` and no others. What it has read ahead of those in
    :attr:`lost`, which it clears, is another reader's by now, even if they are in :attr:`offsets` again.

    :param reader: name of the reader.
    :param group: name of the group, for messages.
    :param clock: function that returns seconds, which never go back.
    :param wall_ms: function that returns milliseconds since 1970.
    :param rng: source of random numbers.
    :param initial_delay: seconds to wait before the first segment is acquired, so that readers that start
        together share the segments without handing them over.
    :param joined: function that returns how often readers of this name have joined, as far as the state is
        known.
    """

    def __init__(
        self,
        reader: str,
        group: str,
        *,
        clock: Callable[[], float],
        wall_ms: Callable[[], int],
        rng: Random,
        initial_delay: float = 0.0,
        joined: Callable[[], int] = lambda: 0,
    ) -> None:
        self.reader = reader
        self.group = group
        self.offsets: dict[str, int] = {}
        self.ranges: dict[str, KeyRange | None] = {}
        self.ends: dict[str, int] = {}
        self.completed: dict[str, int] = {}
        self.lost: set[str] = set()
        self.end_of_data = False
        self._clock = clock
        self._wall_ms = wall_ms
        self._random = rng
        self._initial_delay = initial_delay
        self._seed = java_string_hash(reader)
        self._given: str | None = None
        self._settling = False
        self._unsure = False
        self._joined = joined
        self._joined_as = 0
        self._gone = False
        self._hasty = False
        now = clock()
        self._release_at = now + UNIT
        self._acquire_at = now
        self._fetch_at = now
        self._checkpoint_at = now + UNIT
        self._haste_at = now + UNIT
        self._lag_at = now + UNIT
        self._config_at = now + UNIT

    # --- the driver's side ----------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether a round is needed before the next event, whatever the time."""
        return self._given is not None or self._unsure or self._settling or self._hasty

    @property
    def due(self) -> float:
        """When the next round is due, in seconds of the clock."""
        return min(self._fetch_at, self._acquire_at, self._lag_at)

    @property
    def may_join(self) -> bool:
        """Whether an update that adds this reader was made: it may be written, also later."""
        return self._joined_as > 0

    def positions(self) -> dict[str, int]:
        """Return this reader's offsets by segment; for finished ones -1, or their end offset."""
        return {**self.offsets, **self.completed}

    def advance(self, segment: str, offset: int) -> None:
        """Record that the user was given the events up to ``offset``."""
        self.offsets[segment] = offset

    def finish(self, segment: str, offset: int) -> None:
        """Record that the user was given the last event of a segment.

        :param segment: full name of the segment.
        :param offset: -1, or the group's end offset if that was reached.
        """
        if self.offsets.pop(segment, None) is not None:
            self.completed[segment] = offset
            self._hasty = True

    def join(self) -> Steps:
        """Join the group.

        :raises ReaderGroupError: the group already has a reader of this name.
        """

        def add(state: GroupState) -> Sequence[GroupUpdate]:
            if state.is_online(self.reader):
                raise ReaderGroupError(
                    f"reader {self.reader} is already in group {self.group}: names of readers are unique. "
                    "Use another name, or remove the reader with reader_offline if it is dead"
                )
            # Counted now: when the write has been answered, more may be known.
            self._joined_as = self._joined() + 1
            return [AddReader(self.reader)]

        state = yield Change(add)
        now = self._clock()
        refresh = state.config.group_refresh_interval
        spread = min(self._initial_delay, refresh) * self._random.random()
        self._acquire_at = now + self._initial_delay + spread
        self._fetch_at = now + refresh
        self._take(state)

    def leave(self, positions: Mapping[str, int] | None = None) -> Steps:
        """Leave the group.

        :param positions: offsets up to which the reader has read; by default every event that was given to
            the user counts as read.
        """
        if self._gone:
            # A reader of this name that is in the group now is another one.
            return
        final = self.positions() if positions is None else positions
        yield Change(self._as_member(remove_reader(self.reader, final)))

    def give_up_joining(self, state: GroupState) -> Steps:
        """Undo an interrupted :meth:`join`, whether its update is written, will be written or never will be.

        A reader that is in the group and does nothing would block every checkpoint.

        :param state: the state as it was fetched last.
        """
        if not state.assigned.get(self.reader):
            # Unconditionally: a state that is fetched now may not show a write that is in flight.
            yield Announce([RemoveReader(self.reader, {})])

    def round(self, state: GroupState) -> Generator[Action, Any, str | None]:
        """Do what is due before the next event.

        A checkpoint that was returned counts as reached in the next round.

        :returns: a checkpoint to give to the user, or None.
        :raises ReinitializationRequiredError: this reader is no longer in the group.
        """
        if self._unsure:
            # A round was interrupted in a write, which may be stored, or not, or may be stored only after the
            # next fetch. After another write it is in the state or never will be, because it was conditional
            # on the end of the stream as it was then.
            state = yield from self._report_distance()
        self._take(state)
        now = self._clock()
        if now >= self._config_at:
            state = yield from self._follow_config(state)
        answered = self._given
        if answered is not None:
            state = yield from self._reached(answered)
            self._settling = True
            self._given = None
        if self._settling:
            state = yield from self._settle(state)
        if self._clock() >= self._fetch_at:
            state = yield from self._fetch()
            state = yield from self._compact_sometimes(state)
        while True:
            checkpoint = state.checkpoints.of_reader(self.reader)
            if checkpoint is None:
                # Events come between two checkpoints, however long the way to the store is.
                begun = (yield from self._begin_checkpoint(state)) if answered is None else None
                if begun is None:
                    break
                state = begun
            elif is_silent(checkpoint):
                state = yield from self._reached(checkpoint)
                if self._settling:
                    # It may have blocked the first attempt to hand over segments.
                    state = yield from self._settle(state)
            else:
                self._given = checkpoint
                self._put_off_checkpoint(state)
                return checkpoint
        self._hasty = False
        if self._clock() >= self._acquire_at:
            state = yield from self._acquire(state)
        if self._clock() >= self._lag_at:
            state = yield from self._report_distance()
            # Where reports are more frequent than fetches, as with a single reader, they take their place.
            state = yield from self._compact_sometimes(state)
            self._reset_lag(state)
        self.end_of_data = state.end_of_data
        return None

    # --- the state ------------------------------------------------------------------------------

    def _is_in(self, state: GroupState) -> bool:
        """Return whether this reader is in the group, and not another one that has its name now."""
        return self.reader in state.assigned and self._joined() == self._joined_as

    def _as_member(self, generate: Generate) -> Generate:
        """Return a function that makes the same updates, but none once this reader is no longer in the group.

        A write may lose to the removal of this reader, and is then made for a state without it. An update of
        a reader that is not in the group would corrupt the state for all readers; an update of a new reader
        of the same name would change that reader's positions.
        """

        @wraps(generate)
        def updates(state: GroupState) -> Sequence[GroupUpdate] | None:
            return generate(state) if self._is_in(state) else None

        return updates

    def _take(self, state: GroupState) -> None:
        """Make this reader's segments those that the state assigns to it."""
        if not self._is_in(state):
            self._gone = True
            raise ReinitializationRequiredError(
                f"reader {self.reader} is no longer in group {self.group}: it was declared offline, or the "
                "group was reset. Close this reader and open a new one"
            )
        owned = state.assigned[self.reader]
        for segment in [each for each in self.offsets if each not in owned]:
            del self.offsets[segment]
            self.lost.add(segment)
        for segment in [each for each in self.completed if each not in owned]:
            del self.completed[segment]
        for segment, offset in owned.items():
            if segment in self.offsets or segment in self.completed:
                continue
            end = state.ends.get(segment, NO_END)
            self.ranges[segment] = state.ranges.get(segment)
            self.ends[segment] = end
            if offset < 0 or offset >= end:
                self.completed[segment] = offset
                self._hasty = True
            else:
                self.offsets[segment] = offset
        for known in (self.ranges, self.ends):
            for segment in [each for each in known if each not in owned]:
                del known[segment]

    def _fetch(self) -> Generator[Action, Any, GroupState]:
        state: GroupState = yield Fetch()
        self._unsure = False
        self._fetch_at = self._clock() + state.config.group_refresh_interval
        self._take(state)
        return state

    def _compact_sometimes(self, state: GroupState) -> Generator[Action, Any, GroupState]:
        if self._random.random() < _COMPACTION_PROBABILITY:
            state = yield Compact()
            self._take(state)
        return state

    def _change(self, generate: Generate) -> Generator[Action, Any, GroupState]:
        self._unsure = True
        state: GroupState = yield Change(self._as_member(generate))
        self._unsure = False
        self._take(state)
        return state

    def _report_distance(self) -> Generator[Action, Any, GroupState]:
        """Report how far behind this reader is.

        Java writes that unconditionally. After a reset the positions of a reader that has not noticed it
        would count as those of a new reader of the same name, and the group's time windows go ahead.
        """
        report = self._distance()
        state = yield from self._change(lambda current: [report])
        # It was written at the end of what is known.
        self._fetch_at = self._clock() + state.config.group_refresh_interval
        return state

    def _distance(self, positions: Mapping[str, int] | None = None) -> UpdateDistanceToTail:
        """Return how far behind this reader is, which decides the shares of the readers.

        Java writes its clock in milliseconds minus the id of the segment it read last. That says nothing
        about the distance, and shares are fair only if all readers of a group report the same number. This
        number is close to Java's, and the same for all of our readers for years, so equal shares compare as
        equal.
        """
        offsets = self.positions() if positions is None else positions
        return UpdateDistanceToTail(
            self.reader,
            self._wall_ms() // _LAG_GRAIN_MS * _LAG_GRAIN_MS,
            offsets,
            {segment: self.ranges.get(segment) for segment in offsets},
        )

    # --- configuration --------------------------------------------------------------------------

    def _follow_config(self, state: GroupState) -> Generator[Action, Any, GroupState]:
        """Finish a change of the configuration that another process has begun and not finished."""
        self._config_at = self._clock() + _CONFIG_INTERVAL
        if self._clock() >= self._fetch_at:
            state = yield from self._fetch()
        if not state.updating_config:
            return state
        initial: GroupInit = yield LoadConfig()

        def replace_config(current: GroupState) -> Sequence[GroupUpdate] | None:
            return [initial] if initial.config.generation > current.config.generation else None

        return (yield from self._change(replace_config))

    # --- checkpoints ----------------------------------------------------------------------------

    def _reached(self, checkpoint: str) -> Generator[Action, Any, GroupState]:
        positions = self.positions()

        def answer(state: GroupState) -> Sequence[GroupUpdate] | None:
            if self.reader not in state.checkpoints.pending.get(checkpoint, ()):
                return None
            return [CheckpointReader(checkpoint, self.reader, positions)]

        return (yield from self._change(answer))

    def _put_off_checkpoint(self, state: GroupState) -> None:
        now = self._clock()
        self._checkpoint_at = now + max(0, state.config.automatic_checkpoint_interval)
        self._haste_at = now + max(UNIT, state.config.group_refresh_interval)

    def _begin_checkpoint(self, state: GroupState) -> Generator[Action, Any, GroupState | None]:
        """Begin a checkpoint if it is time; return None if there is nothing to answer."""
        if not state.config.automatic_checkpoints or state.checkpoints.ongoing:
            return None
        now = self._clock()
        # Segments change hands, and the successors of a finished one begin, only after a checkpoint. Java
        # waits for the next regular checkpoint, half a minute later.
        waiting = self.completed or (now >= self._release_at and self._has_too_much(state))
        if now < self._checkpoint_at and not (waiting and now >= self._haste_at):
            return None
        name = str(UUID(int=self._random.getrandbits(128), version=4))

        def begin(current: GroupState) -> Sequence[GroupUpdate] | None:
            if current.checkpoints.ongoing:
                return None
            return [CreateCheckpoint(name), ClearCheckpointsBefore(name)]

        changed = yield from self._change(begin)
        self._put_off_checkpoint(changed)
        return changed if changed.checkpoints.of_reader(self.reader) is not None else None

    # --- handing over ---------------------------------------------------------------------------

    def _settle(self, state: GroupState) -> Generator[Action, Any, GroupState]:
        """Report finished segments, release one and publish the cut, after a checkpoint."""
        for segment in list(self.completed):
            state = yield from self._report(state, segment)
        if any(segment in state.assigned.get(self.reader, ()) for segment in self.completed):
            return state
        self._settling = False
        state = yield from self._release(state)
        if (
            state.config.retention is RetentionType.AUTOMATIC_RELEASE_AT_LAST_CHECKPOINT
            and not state.checkpoints.published
            and state.checkpoints.last
        ):
            yield Publish(cuts_of(state.checkpoints.last), state.config)
            yield Announce([UpdateCheckpointPublished(True)])
            state = yield from self._fetch()
        return state

    def _report(self, state: GroupState, segment: str) -> Generator[Action, Any, GroupState]:
        ranges: dict[str, KeyRange | None] = {segment: self.ranges.get(segment)}
        successors: dict[str, Sequence[int]] = {}
        if segment not in state.ends:
            following: Sequence[FollowingSegment] = yield AskSuccessors(segment)
            for each in following:
                successors[each.segment] = each.predecessors
                ranges[each.segment] = each.key_range

        def complete(current: GroupState) -> Sequence[GroupUpdate] | None:
            if current.checkpoints.of_reader(self.reader) is not None:
                return None
            if segment not in current.assigned.get(self.reader, ()):
                return None
            return [current.completion(SegmentCompleted(self.reader, segment, successors, ranges))]

        state = yield from self._change(complete)
        self._acquire_at = self._clock()
        return state

    def _has_too_much(self, state: GroupState) -> bool:
        sizes = state.relative_sizes()
        if len(state.assigned.get(self.reader, ())) <= 1:
            return False
        return sizes[self.reader] > min(sizes.values()) + max(1, len(state.unassigned))

    def _release(self, state: GroupState) -> Generator[Action, Any, GroupState]:
        now = self._clock()
        if (
            now < self._release_at
            or state.checkpoints.of_reader(self.reader) is not None
            or not self.offsets
            or not self._has_too_much(state)
        ):
            return state
        segment = max(self.offsets, key=lambda name: hash_to_range(name, self._seed))
        self._release_at = self._acquire_at = now + _UPDATE_WINDOW
        offset = self.offsets[segment]
        rest = {name: at for name, at in self.positions().items() if name != segment}

        def release(current: GroupState) -> Sequence[GroupUpdate] | None:
            if (
                segment not in current.assigned.get(self.reader, ())
                or current.checkpoints.of_reader(self.reader) is not None
                or not self._has_too_much(current)
            ):
                return None
            return [ReleaseSegment(self.reader, segment, offset), self._distance(rest)]

        state = yield from self._change(release)
        self._set_timers(state)
        # Others fetch the state that often. If this reader took the segment back before that, it could do so
        # for ever, in step with them.
        noticed = min(state.config.group_refresh_interval, _lag_interval(state))
        self._acquire_at = max(self._acquire_at, self._clock() + noticed + 2 * UNIT)
        return state

    def _set_timers(self, state: GroupState) -> None:
        now = self._clock()
        ranking, readers = state.ranking(self.reader), len(state.assigned)
        self._release_at = now + UNIT * (1 + ranking)
        self._acquire_at = now + UNIT * (readers - ranking)
        self._reset_lag(state)

    def _reset_lag(self, state: GroupState) -> None:
        self._lag_at = self._clock() + _lag_interval(state)

    def _share(self, state: GroupState) -> list[str]:
        """Return the segments to acquire now."""
        free = list(state.unassigned)
        readers = len(state.assigned)
        if not free or not readers:
            return []
        owned = len(state.assigned.get(self.reader, ()))
        fair = math.floor(state.segment_count / readers + 0.5)
        return free[: max(1, len(free) // readers, min(len(free), fair - owned))]

    def _acquire(self, state: GroupState) -> Generator[Action, Any, GroupState]:
        if not state.unassigned:
            ranking, readers = state.ranking(self.reader), len(state.assigned)
            self._acquire_at = self._clock() + UNIT * (readers - ranking)
            return state

        def acquire(current: GroupState) -> Sequence[GroupUpdate] | None:
            if current.checkpoints.of_reader(self.reader) is not None:
                return None
            segments = self._share(current)
            if not segments:
                return None
            taken = [AcquireSegment(self.reader, segment) for segment in segments]
            return [*taken, self._distance()]

        state = yield from self._change(acquire)
        self._set_timers(state)
        return state
