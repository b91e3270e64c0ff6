"""The readers of one process decode and apply the records of their group once."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from pravega_wire.errors import CorruptedStateError
from pravega_wire.protocol.group_state import (
    _REMEMBERED,
    AcquireSegment,
    AddReader,
    GroupState,
    GroupStateFormat,
    GroupUpdate,
    ReaderGroupStateInit,
    ReleaseSegment,
    encode_group_record,
)
from pravega_wire.values.groups import ReaderGroupConfig
from pravega_wire.values.types import Revision, ScopedStream

STREAM = ScopedStream("s", "t")
SEGMENTS = [f"s/t/{number}.#epoch.0" for number in range(3)]


def init(offset: int) -> ReaderGroupStateInit:
    starts = dict.fromkeys(SEGMENTS, offset)
    return ReaderGroupStateInit(ReaderGroupConfig({STREAM: None}), starts, {}, dict.fromkeys(starts), False)


def moves(count: int) -> list[GroupUpdate]:
    """A reader takes a segment and gives it up again, further on each time."""
    updates: list[GroupUpdate] = [AddReader("a"), AddReader("b")]
    for number in range(count):
        updates += [AcquireSegment("a", SEGMENTS[0]), ReleaseSegment("a", SEGMENTS[0], number)]
    return updates


def read(shared: GroupStateFormat, begin: ReaderGroupStateInit, updates: Iterable[GroupUpdate]) -> GroupState:
    """What a reader does with the records of a group."""
    state = shared.create(shared.initial_serializer.deserialize(encode_group_record(begin)), "first")
    for number, update in enumerate(updates):
        decoded = shared.update_serializer.deserialize(encode_group_record(update))
        state = shared.apply(state, decoded, Revision("s/_RGg/0", number))
    return state


def test_a_reader_gets_the_states_of_one_that_was_there_before() -> None:
    shared = GroupStateFormat()
    assert read(shared, init(0), moves(9)) is read(shared, init(0), moves(9))
    assert read(shared, init(0), moves(9)) == read(GroupStateFormat(), init(0), moves(9))


def test_one_that_joins_late_reaches_the_same_states() -> None:
    shared = GroupStateFormat()
    updates = moves(_REMEMBERED)
    before = read(shared, init(0), updates)
    late = read(shared, init(0), updates)
    assert late == before
    following = AddReader("c")
    revision = Revision("s/_RGg/0", len(updates))
    assert shared.apply(before, following, revision) is shared.apply(late, following, revision)


def test_a_group_that_was_created_again_has_its_own_states() -> None:
    shared = GroupStateFormat()
    assert read(shared, init(0), moves(3)).last_read[SEGMENTS[1]] == 0
    again = read(shared, init(7), moves(3))
    assert again.last_read[SEGMENTS[1]] == 7
    assert again == read(GroupStateFormat(), init(7), moves(3))
    other: list[GroupUpdate] = [AddReader("b"), AddReader("a"), AcquireSegment("b", SEGMENTS[2])]
    assert read(shared, init(7), other) == read(GroupStateFormat(), init(7), other)


def test_a_wrong_update_is_wrong_for_each_reader() -> None:
    shared = GroupStateFormat()
    for _ in range(2):
        with pytest.raises(CorruptedStateError, match="reader a is already"):
            read(shared, init(0), [AddReader("a"), AddReader("a")])


def test_what_is_kept_is_limited() -> None:
    shared = GroupStateFormat()
    read(shared, init(0), moves(2 * _REMEMBERED))
    decoded = shared.update_serializer._decode.cache_info().currsize
    assert len(shared._applied) == decoded == _REMEMBERED
