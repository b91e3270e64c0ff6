"""A reader group without a server: a log for its state, segments with numbered events, and a clock.

Runs :class:`GroupMember` as the real driver does. Fetches may be late, rounds may be broken off at any action
(with its effect, without, or with an effect that comes later), readers may die with or without a last
position, streams scale while they are read, and checkpoints are taken meanwhile. A reader that was declared
dead may go on as a zombie until it notices or leaves, also when another reader has its name.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import Any

from pravega_wire.errors import ReinitializationRequiredError
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
    GroupMember,
    LoadConfig,
    Publish,
    completed_cut,
    remove_reader,
    withdraw_checkpoint,
)
from pravega_wire.protocol.group_state import (
    AddReader,
    CheckpointReader,
    CreateCheckpoint,
    GroupState,
    GroupUpdate,
    ReaderGroupStateInit,
    ReleaseSegment,
    decode_group_record,
    encode_group_record,
)
from pravega_wire.values.groups import ReaderGroupConfig
from pravega_wire.values.types import ScopedStream

STREAM = ScopedStream("scope", "stream")


@dataclass
class Segment:
    """Events are numbered; an event's offset is its index."""

    number: int
    epoch: int
    low: float
    high: float
    predecessors: list[int] = field(default_factory=list)
    successors: list[Segment] = field(default_factory=list)
    length: int = 0
    sealed: bool = False

    @property
    def id(self) -> int:
        return self.epoch << 32 | self.number

    @property
    def name(self) -> str:
        return f"{STREAM}/{self.number}.#epoch.{self.epoch}"


class Group:
    """The log of the state, the stream, and everything that was seen."""

    def __init__(self, rng: random.Random, config: ReaderGroupConfig, segments: int) -> None:
        self.random = rng
        self.now = 0.0
        self.epoch = 0
        self.segments: dict[str, Segment] = {}
        self.active: list[Segment] = []
        self.next_number = 0
        for index in range(segments):
            self._add(Segment(0, 0, index / segments, (index + 1) / segments))
        initial = ReaderGroupStateInit(
            config,
            {each.name: 0 for each in self.active},
            {},
            {each.name: (each.low, each.high) for each in self.active},
        )
        self.log: list[list[GroupUpdate]] = [[initial]]
        self.states: list[GroupState] = [GroupState.begin(initial)]
        self.readers: dict[str, Reader] = {}
        # Readers that were declared dead and go on; how many of them noticed it, and left before they did.
        self.zombies: list[Reader] = []
        self.noticed = 0
        self.left_unaware = 0
        # For each length of the log, how often readers of a name have joined.
        self.joined: list[Counter[str]] = [Counter()]
        self.seen: dict[tuple[str, int], int] = {}
        self.checkpoints: dict[str, dict[str, int]] = {}
        self.given: dict[tuple[str, str], dict[str, int]] = {}
        self.answers: dict[str, dict[str, int]] = {}
        # Checkpoints that were taken back, and how many others were not complete then.
        self.withdrawn: set[str] = set()
        self.spared = 0
        self.late = 0
        # Conditional writes that nobody waits for any more: the length of the log they are for, and updates.
        self.under_way: list[tuple[int, list[GroupUpdate]]] = []

    def arrive(self) -> None:
        """A write that is under way is stored, or refused because another one was faster."""
        for expected, updates in self.under_way:
            if expected == len(self.log):
                self.late += 1
                self.write(updates)
        self.under_way.clear()

    def _add(self, segment: Segment) -> None:
        segment.number = self.next_number
        self.next_number += 1
        self.segments[segment.name] = segment
        self.active.append(segment)

    @property
    def state(self) -> GroupState:
        return self.states[-1]

    def write(self, updates: list[GroupUpdate]) -> None:
        # Through the bytes, as on the wire.
        decoded = [decode_group_record(encode_group_record(update)) for update in updates]
        state = self.state
        joined = self.joined[-1].copy()
        for update in decoded:
            state = state.apply(update)
            if isinstance(update, AddReader):
                joined[update.reader] += 1
            if isinstance(update, CheckpointReader):
                self.answers.setdefault(update.checkpoint, {}).update(update.positions)
        self.log.append(decoded)
        self.states.append(state)
        self.joined.append(joined)
        self.check()

    def check(self) -> None:
        """No segment has two owners, and none that is still to be read is forgotten."""
        state = self.state
        places: list[str] = [*state.unassigned, *state.future]
        for owned in state.assigned.values():
            places.extend(owned)
        assert len(places) == len(set(places)), f"a segment is in two places: {sorted(places)}"
        for checkpoint in state.checkpoints.checkpoints:
            positions = state.checkpoints.completed(checkpoint)
            assert checkpoint not in self.withdrawn, f"{checkpoint} is back"
            if positions is not None and checkpoint not in self.checkpoints:
                self.checkpoints[checkpoint] = dict(positions)

    def scale(self, sealed: list[Segment], parts: list[tuple[float, float]]) -> None:
        self.epoch += 1
        for each in sealed:
            each.sealed = True
            self.active.remove(each)
        for low, high in parts:
            before = [each for each in sealed if each.low < high and each.high > low]
            follower = Segment(0, self.epoch, low, high, [each.id for each in before])
            self._add(follower)
            for each in before:
                each.successors.append(follower)

    def successors(self, name: str) -> list[FollowingSegment]:
        return [
            FollowingSegment(each.name, (each.low, each.high), tuple(each.predecessors))
            for each in self.segments[name].successors
        ]

    def complete(self, positions: dict[str, int]) -> dict[str, int]:
        """A cut of the positions, as a program that asks the controller makes it."""
        steps = completed_cut(positions)
        result: Any = None
        while True:
            try:
                action = steps.send(result)
            except StopIteration as stop:
                found: dict[str, int] = stop.value
                return found
            if isinstance(action, AskRange):
                segment = self.segments[action.segment]
                result = segment.low, segment.high
            elif isinstance(action, AskEnd):
                result = {
                    each.name: -1 for each in self.segments.values() if each.sealed and not each.successors
                }
            else:
                assert isinstance(action, AskSuccessors)
                result = self.successors(action.segment)


class Broken(Exception):
    """A round was cancelled."""


class Reader:
    """One reader, driven as :class:`pravega_wire.EventReader` does it."""

    def __init__(self, group: Group, name: str) -> None:
        self.group = group
        self.name = name
        self.known = len(group.states) - 1
        self.acknowledged: dict[str, int] = {}
        self.unfinished = False
        self.zombie = False
        self.member = GroupMember(
            name,
            "group",
            clock=lambda: group.now,
            wall_ms=lambda: int(1_790_000_000_000 + group.now * 1000),
            rng=group.random,
            joined=lambda: group.joined[self.known][name],
        )
        self.run(self.member.join(), may_break=False)
        group.readers[name] = self

    @property
    def state(self) -> GroupState:
        return self.group.states[self.known]

    def run(self, steps: Generator[Action, Any, Any], *, may_break: bool = True) -> Any:
        result: Any = None
        while True:
            try:
                action = steps.send(result)
            except StopIteration as stop:
                return stop.value
            # Writes in which segments are given up are few, and what matters most.
            giving = isinstance(action, Change) and self.gives_up(action)
            broken = may_break and self.group.random.random() < (0.3 if giving else 0.01)
            if broken and self.group.random.random() < 0.7:
                if isinstance(action, Change) and self.known == len(self.group.states) - 1:
                    updates = action.generate(self.state)
                    if updates and self.group.random.random() < 0.6:
                        self.group.under_way.append((len(self.group.log), list(updates)))
                steps.close()
                raise Broken
            result = self.perform(action)
            if broken:
                # The effect is there, and nobody was told.
                steps.close()
                raise Broken

    def gives_up(self, action: Change) -> bool:
        return any(isinstance(each, ReleaseSegment) for each in action.generate(self.state) or ())

    def perform(self, action: Action) -> Any:
        group = self.group
        if isinstance(action, Fetch):
            self.known = len(group.states) - 1
            return self.state
        if isinstance(action, Change):
            while True:
                updates = action.generate(self.state)
                if not updates:
                    return self.state
                if self.known == len(group.states) - 1:
                    group.write(list(updates))
                    self.known += 1
                    return self.state
                self.known = len(group.states) - 1
        if isinstance(action, Announce):
            group.write(list(action.updates))
            return None
        if isinstance(action, AskSuccessors):
            assert group.segments[action.segment].sealed
            return group.successors(action.segment)
        if isinstance(action, Compact):
            return self.state
        assert isinstance(action, LoadConfig | Publish)
        return None

    def read(self) -> bool:
        """One read call; True when it gave something."""
        group, member = self.group, self.member
        if group.under_way and group.random.random() < 0.1:
            group.arrive()
        # What was given before is done with: see the promise on checkpoints.
        self.acknowledged = member.positions()
        if member.busy or self.unfinished or group.now >= member.due:
            self.unfinished = True
            try:
                checkpoint = self.run(member.round(self.state))
            except Broken:
                return False
            except ReinitializationRequiredError:
                assert self.zombie, f"{self.name} is in the group"
                group.noticed += 1
                self.leave()
                return False
            self.unfinished = False
            if checkpoint is not None:
                if not self.zombie:
                    group.given[checkpoint, self.name] = member.positions()
                return True
        ready = [name for name in member.offsets if self.ready(name)]
        if not ready:
            return False
        name = group.random.choice(ready)
        segment, offset = group.segments[name], member.offsets[name]
        if offset < segment.length:
            if not self.zombie:
                # Whoever declares a reader dead accepts that what it still reads is read twice.
                group.seen[name, offset] = group.seen.get((name, offset), 0) + 1
            member.advance(name, offset + 1)
        elif segment.sealed:
            member.finish(name, -1)
        return True

    def ready(self, name: str) -> bool:
        segment = self.group.segments[name]
        return self.member.offsets[name] < segment.length or segment.sealed

    def leave(self) -> None:
        before = self.group.state
        self.run(self.member.leave(), may_break=False)
        if self.zombie:
            self.group.zombies.remove(self)
            assert self.group.state is before, f"{self.name} had left already"
        else:
            del self.group.readers[self.name]

    def die(self, *, with_position: bool, goes_on: bool = False) -> None:
        """Declared dead by another, which knows the position or does not.

        :param goes_on: whether its process still runs.
        """
        del self.group.readers[self.name]
        if self.group.state.assigned.get(self.name) is None:
            return
        if goes_on:
            self.zombie = True
            self.group.zombies.append(self)
        if with_position:
            positions = self.member.positions()
        else:
            positions = {}
            owned = self.group.state.assigned[self.name]
            # What it read since is read again.
            for segment, offset in owned.items():
                for at in range(max(0, offset), self.group.segments[segment].length):
                    if offset >= 0:
                        self.group.seen.pop((segment, at), None)
        updates = remove_reader(self.name, positions)(self.group.state)
        assert updates
        self.group.write(list(updates))


def begin_checkpoint(group: Group, name: str) -> None:
    state = group.state
    if len(state.checkpoints.outstanding) < state.config.max_outstanding_checkpoints:
        group.write([CreateCheckpoint(name)])


def withdraw(group: Group, name: str) -> None:
    """Take a checkpoint back; whatever else the state holds stays as it is."""
    before = group.state.checkpoints
    updates = withdraw_checkpoint(name)(group.state)
    assert bool(updates) == (name in before.pending)
    if not updates:
        return
    expected = replace(
        group.state.compacted(),
        checkpoints=replace(
            before,
            checkpoints=tuple(each for each in before.checkpoints if each != name),
            pending={each: readers for each, readers in before.pending.items() if each != name},
            positions={each: offsets for each, offsets in before.positions.items() if each != name},
        ),
    )
    group.write(list(updates))
    group.withdrawn.add(name)
    group.spared += len(before.pending) - 1
    assert group.state.compacted() == expected


__all__ = ["STREAM", "Group", "Reader", "begin_checkpoint", "withdraw"]
