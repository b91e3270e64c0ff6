"""Many readers of one group, with everything that can happen to them: nothing is lost, nothing read twice."""

from __future__ import annotations

import random
from collections.abc import Generator
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pravega_wire.protocol.group_algorithm import Action, Compact
from pravega_wire.protocol.group_state import SILENT, ReaderGroupStateInit, RemoveReader
from pravega_wire.values.groups import ReaderGroupConfig
from tests.property.group_simulation import STREAM, Group, Reader, begin_checkpoint, withdraw


class Unbroken(Reader):
    """A reader whose writes are all answered."""

    def run(self, steps: Generator[Action, Any, Any], *, may_break: bool = True) -> Any:
        return super().run(steps, may_break=False)


def run_group(seed: int, *, steps: int = 400, automatic: bool = True) -> Group:
    """A random life of a group, and then peace until everything is read."""
    rng = random.Random(seed)
    config = ReaderGroupConfig(
        {STREAM: None},
        automatic_checkpoint_interval=rng.choice([1, 5, 30]) if automatic else -1,
        group_refresh_interval=rng.choice([0, 0.5, 3]),
    )
    group = Group(rng, config, rng.randint(1, 6))
    born = 0
    named = 0

    def join() -> None:
        nonlocal born
        born += 1
        Reader(group, f"reader{born}")

    join()
    for _ in range(steps):
        group.now += rng.choice([0.0, 0.01, 0.3, 1.5])
        what = rng.random()
        if what < 0.03 and len(group.readers) < 12:
            join()
        elif what < 0.045 and group.readers:
            rng.choice(list(group.readers.values())).leave()
        elif what < 0.06 and group.readers:
            doomed = rng.choice(list(group.readers.values()))
            doomed.die(with_position=rng.random() < 0.5, goes_on=rng.random() < 0.5)
            if doomed.zombie and rng.random() < 0.5:
                doomed.read()
            if doomed.zombie and rng.random() < 0.5:
                Reader(group, doomed.name)
        elif what < 0.08 and group.zombies:
            zombie = rng.choice(group.zombies)
            group.left_unaware += zombie.name in group.readers
            zombie.leave()
        elif what < 0.1 and len(group.active) < 10:
            each = rng.choice(group.active)
            middle = (each.low + each.high) / 2
            group.scale([each], [(each.low, middle), (middle, each.high)])
        elif what < 0.13 and len(group.active) > 1:
            ordered = sorted(group.active, key=lambda segment: segment.low)
            at = rng.randrange(len(ordered) - 1)
            low, high = ordered[at : at + 2]
            group.scale([low, high], [(low.low, high.high)])
        elif what < 0.15:
            named += 1
            begin_checkpoint(group, f"checkpoint{named}" + rng.choice(["", "", SILENT]))
        elif what < 0.16:
            # Those that readers have begun by themselves as well; some that are complete.
            known = group.state.checkpoints.checkpoints
            if known:
                withdraw(group, rng.choice(known))
        elif what < 0.4:
            for segment in group.active:
                segment.length += rng.randrange(4)
        elif group.readers:
            for reader in rng.sample(list(group.readers.values()), rng.randint(1, len(group.readers))):
                reader.read()
            if group.zombies and rng.random() < 0.2:
                rng.choice(group.zombies).read()
    for each in list(group.active):
        each.sealed = True
    group.active.clear()
    while len(group.readers) < 2:
        join()
    for _ in range(20_000):
        group.now += 0.25
        for reader in group.readers.values():
            while reader.read():
                pass
        if not automatic and group.random.random() < 0.1:
            named += 1
            begin_checkpoint(group, f"checkpoint{named}")
        if all(reader.member.end_of_data for reader in group.readers.values()):
            return group
    raise AssertionError(f"not read to the end: {group.state}")


def check_complete(group: Group) -> None:
    for name, segment in group.segments.items():
        for offset in range(segment.length):
            assert group.seen.get((name, offset)) == 1, f"event {offset} of {name}"


def check_checkpoints(group: Group) -> None:
    """A complete checkpoint is where each reader stood when it was given it, and covers the key space."""
    for name, positions in group.checkpoints.items():
        if not positions:
            # Everything was read before.
            continue
        segments = [group.segments[each] for each in group.complete(positions)]
        found = sorted((each.low, each.high) for each in segments)
        assert (found[0][0], found[-1][1]) == (0.0, 1.0), f"{name}: {positions}"
        for (_, high), (low, _) in pairwise(found):
            assert high == low, f"{name} does not cover the key space once: {positions}"
        for (checkpoint, _), given_at in group.given.items():
            if checkpoint == name and given_at.items() <= group.answers.get(checkpoint, {}).items():
                assert {each: positions[each] for each in given_at} == given_at


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_every_event_goes_to_one_reader_whatever_happens(seed: int) -> None:
    group = run_group(seed)
    check_complete(group)
    check_checkpoints(group)


@pytest.mark.parametrize("seed", range(40))
def test_without_automatic_checkpoints_named_ones_hand_over(seed: int) -> None:
    group = run_group(seed, automatic=False)
    check_complete(group)
    check_checkpoints(group)
    assert any(name.startswith("checkpoint") for name in group.checkpoints)


def test_checkpoints_were_withdrawn_beside_others() -> None:
    """What the simulation is to cover does come up in it."""
    groups = [run_group(seed) for seed in range(20)]
    assert sum(len(group.withdrawn) for group in groups) > 10
    assert any(group.spared for group in groups)


def test_zombies_noticed_and_left_beside_readers_of_their_names() -> None:
    groups = [run_group(seed) for seed in range(40)]
    assert sum(group.noticed for group in groups) > 10
    assert sum(group.left_unaware for group in groups) > 3


def test_a_reader_that_was_removed_takes_no_segments() -> None:
    """Its write loses to its removal."""
    group = Group(random.Random(1), ReaderGroupConfig({STREAM: None}), 1)
    Reader(group, "other")
    reader = Reader(group, "reader")
    reader.die(with_position=True, goes_on=True)
    assert reader.state.is_online("reader")
    reader.read()
    assert (group.noticed, group.state.assigned) == (1, {"other": {}})


@pytest.mark.parametrize("reads", [False, True])
def test_a_reader_that_was_removed_leaves_another_of_its_name_alone(reads: bool) -> None:
    group = Group(random.Random(1), ReaderGroupConfig({STREAM: None}), 1)
    old = Reader(group, "reader")
    old.read()
    group.active[0].length = 5
    old.die(with_position=True, goes_on=True)
    new = Reader(group, "reader")
    while new.read():
        pass
    if reads:
        group.now += 100
        old.read()
        assert group.noticed == 1
    else:
        old.leave()
    assert group.state.assigned == {"reader": {group.active[0].name: 0}}
    new.leave()
    assert group.state.unassigned == {group.active[0].name: 5}


def test_a_reader_that_has_not_noticed_a_reset_reports_no_places_for_another_of_its_name() -> None:
    """They are ahead of where the group begins again, and so would be the group's time."""
    config = ReaderGroupConfig({STREAM: None}, automatic_checkpoint_interval=-1, group_refresh_interval=500)
    group = Group(random.Random(1), config, 1)
    old = Unbroken(group, "reader")
    [segment] = group.active
    segment.length = 5
    while old.read():
        pass
    assert old.member.offsets == {segment.name: 5}
    again = replace(config, generation=1)
    group.write([ReaderGroupStateInit(again, {segment.name: 0}, {}, {segment.name: (0.0, 1.0)})])
    assert Unbroken(group, "reader").read()
    group.now += 100
    old.zombie = True
    group.zombies.append(old)
    old.read()
    assert (group.state.last_read, group.noticed) == ({segment.name: 0}, 1)


@pytest.mark.parametrize(("readers", "segments"), [(2, 4), (3, 9), (4, 6), (5, 5)])
def test_shares_become_fair(readers: int, segments: int) -> None:
    rng = random.Random(readers)
    group = Group(rng, ReaderGroupConfig({STREAM: None}), segments)
    Reader(group, "first")
    members = group.readers
    for _ in range(40):
        group.now += 0.5
        members["first"].read()
    assert len(group.state.assigned["first"]) == segments
    for number in range(1, readers):
        Reader(group, f"reader{number}")
    for _ in range(2400):
        group.now += 0.25
        for segment in group.active:
            segment.length += 1
        for reader in members.values():
            while reader.read():
                pass
    shares = sorted(len(owned) for owned in group.state.assigned.values())
    assert sum(shares) == segments
    # A reader gives up a segment to one that has at least two fewer.
    assert shares[-1] - shares[0] <= 1


class Compacting(Unbroken):
    """A reader that counts how often it asks for a compaction of the state."""

    compactions = 0

    def perform(self, action: Action) -> Any:
        self.compactions += isinstance(action, Compact)
        return super().perform(action)


@pytest.mark.parametrize(("readers", "interval"), [(1, 3), (3, 3), (3, 500)])
def test_the_state_is_compacted_now_and_then(readers: int, interval: float) -> None:
    """However its readers report more often than they fetch: each report makes the state longer."""
    config = ReaderGroupConfig({STREAM: None}, group_refresh_interval=interval)
    group = Group(random.Random(1), config, readers)
    members = [Compacting(group, f"reader{number}") for number in range(readers)]
    for _ in range(8000):
        group.now += 0.25
        for reader in members:
            reader.read()
    assert sum(reader.compactions for reader in members) > 10


class RemovedMeanwhile(Unbroken):
    """A reader that another process removes while it compacts the state, which tells it so."""

    def perform(self, action: Action) -> Any:
        if isinstance(action, Compact) and not self.zombie:
            self.zombie = True
            self.group.zombies.append(self)
            self.group.write([RemoveReader(self.name, {})])
            self.known = len(self.group.states) - 1
        return super().perform(action)


def test_a_reader_gives_nothing_after_a_compaction_that_shows_its_removal() -> None:
    group = Group(random.Random(1), ReaderGroupConfig({STREAM: None}), 1)
    reader = RemovedMeanwhile(group, "reader0")
    for _ in range(8000):
        group.now += 0.25
        was_removed = reader.zombie
        gave = reader.read()
        if reader.zombie and not was_removed:
            assert not gave
            break
    assert group.noticed == 1


@pytest.mark.parametrize("interval", [3, 500])
def test_a_reader_does_not_take_back_what_it_gave_up(interval: float) -> None:
    """However the rounds of one lie beside those of the other: in 20 seconds they have equal shares."""
    config = ReaderGroupConfig(
        {STREAM: None}, automatic_checkpoint_interval=0.5, group_refresh_interval=interval
    )
    for seed, apart in product(range(20), range(0, 40, 2)):
        group = Group(random.Random(seed), config, 4)
        Unbroken(group, "a")
        for step in range(apart + 200):
            group.now += 0.1
            if step == apart:
                Unbroken(group, "b")
            for name, reader in group.readers.items():
                if step % 2 == (name == "b"):
                    reader.read()
        assert sorted(map(len, group.state.assigned.values())) == [2, 2], (seed, apart)
