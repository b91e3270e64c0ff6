"""The texts of positions that users keep: they come back, and odd ones raise one error."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pravega_wire import (
    BoundaryIndex,
    Checkpoint,
    EventPointer,
    KeyValueVersion,
    Position,
    Revision,
    StreamCut,
)
from pravega_wire.errors import InvalidArgumentError
from pravega_wire.values.naming import segment_id, segment_name
from pravega_wire.values.positions import OwnedSegment
from pravega_wire.values.types import ScopedStream

INT63 = 2**63 - 1
names = st.from_regex(r"[a-z0-9][a-z0-9.-]{0,8}", fullmatch=True)
streams = st.builds(ScopedStream, names, names)
segment_ids = st.builds(segment_id, st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1))
segments = st.builds(lambda stream, each: segment_name(stream.scope, stream.name, each), streams, segment_ids)
cuts = st.builds(
    StreamCut, streams, st.dictionaries(segment_ids, st.integers(-1, INT63), min_size=1, max_size=5)
)
ranges = st.lists(st.floats(0, 1), min_size=2, max_size=2).map(lambda each: tuple(sorted(each)))
owned = st.builds(OwnedSegment, segments, st.integers(-1, INT63), st.none() | ranges)


def index_of(stream: ScopedStream, segment: int, spacing: int, offsets: set[int]) -> BoundaryIndex:
    start, *marks, end = sorted(offsets)
    return BoundaryIndex(stream, segment, start, end, spacing, tuple(marks))


KEPT: dict[Any, st.SearchStrategy[Any]] = {
    StreamCut: cuts,
    Revision: st.builds(Revision, segments, st.integers(0, INT63), st.integers(0, 2**31 - 1)),
    EventPointer: st.builds(EventPointer, segments, st.integers(0, INT63), st.integers(0, 2**31 - 1)),
    Position: st.lists(owned, max_size=4, unique_by=lambda each: each.segment).map(
        lambda each: Position(tuple(each))
    ),
    Checkpoint: st.builds(
        Checkpoint,
        st.text(),
        st.lists(cuts, max_size=3, unique_by=lambda cut: cut.stream).map(tuple),
    ),
    BoundaryIndex: st.builds(
        index_of, streams, segment_ids, st.integers(1, 2**40), st.sets(st.integers(0, 2**50), min_size=2)
    ),
    KeyValueVersion: st.builds(KeyValueVersion, st.integers(-(2**63), INT63), st.integers(-(2**63), INT63)),
}
everything = pytest.mark.parametrize("kind", KEPT, ids=lambda kind: kind.__name__)
anything = st.one_of(
    st.text(st.characters(exclude_categories=())),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.sampled_from(["version", "segments", "name", "cuts", "stream", "x"]), inner)
        ),
        max_leaves=8,
    ).map(json.dumps),
    st.none(),
    st.binary(),
    st.integers(),
)


@everything
@given(data=st.data())
def test_a_position_comes_back_from_its_text(kind: Any, data: st.DataObject) -> None:
    value = data.draw(KEPT[kind])
    text = value.to_text()
    assert isinstance(text, str)
    assert kind.from_text(text) == value
    assert pickle.loads(pickle.dumps(value)) == copy.deepcopy(value) == value


@everything
@given(text=anything)
def test_odd_texts_raise_one_error(kind: Any, text: Any) -> None:
    try:
        found = kind.from_text(text)
    except InvalidArgumentError:
        return
    assert kind.from_text(found.to_text()) == found


@everything
@given(data=st.data())
def test_texts_with_one_character_changed(kind: Any, data: st.DataObject) -> None:
    text = data.draw(KEPT[kind]).to_text()
    at = data.draw(st.integers(0, len(text) - 1))
    changed = text[:at] + data.draw(st.characters()) + text[at + 1 :]
    try:
        found = kind.from_text(changed)
    except InvalidArgumentError:
        return
    assert kind.from_text(found.to_text()) == found


@everything
def test_deep_and_long_texts(kind: Any) -> None:
    for text in ("[" * 100_000, '{"version":1,"segments":' * 10_000, "9" * 10_000, ""):
        with pytest.raises(InvalidArgumentError):
            kind.from_text(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"version":2,"segments":[]}',
        '{"version":1}',
        '{"version":1,"segments":[["a"]]}',
        '{"version":1,"segments":[["a",1.5]]}',
        '{"version":1,"segments":[["a",true]]}',
        '{"version":1,"segments":[["a",1,0.5]]}',
        '{"version":1,"segments":[["a",1,0.5,2.0]]}',
        '{"version":1,"segments":[["a",1,NaN,1.0]]}',
        '{"version":1,"segments":[["a",1],["a",2]]}',
    ],
)
def test_what_is_not_a_position(text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        Position.from_text(text)


def test_the_texts_are_those_that_are_kept_already() -> None:
    """A change of a form needs a new version: users have texts on their disks."""
    position = Position.of({"s/t/0.#epoch.0": 7, "s/t/1.#epoch.0": -1}, {"s/t/1.#epoch.0": (0.5, 1.0)})
    assert position.to_text() == (
        '{"version":1,"segments":[["s/t/0.#epoch.0",7],["s/t/1.#epoch.0",-1,0.5,1.0]]}'
    )
    cut = StreamCut(ScopedStream("s", "t"), {0: 7})
    assert Checkpoint("daily", (cut,)).to_text() == (
        '{"version":1,"name":"daily","cuts":["' + cut.to_text() + '"]}'
    )
    assert Revision("s/t/0.#epoch.0", 7, 1).to_text() == "s/t/0.#epoch.0:7:1"
    assert EventPointer("s/t/0.#epoch.0", 7, 9).to_text() == "s/t/0.#epoch.0:7-9"
    assert BoundaryIndex(ScopedStream("s", "t"), 0, 0, 9, 5, (4,)).to_text() == (
        '{"version":1,"stream":"s/t","segment_id":0,"start":0,"end":9,"spacing":5,"steps":[4]}'
    )
