"""How much goes into a micro-batch, against a model of streams that grow and scale."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import pytest

pytest.importorskip("pyspark")

from hypothesis import example, given, settings
from hypothesis import strategies as st

from pravega_wire import LayoutSegment, LeadingPart, ScopedStream, SegmentRange, StreamCut, StreamLayout
from pravega_wire.errors import InvalidStreamCutError
from pravega_wire.values.naming import epoch_of, segment_id
from pravega_wire.values.types import CutOrder
from spark_adapter.reading.admission import (
    Admitted,
    Answer,
    Follow,
    Limit,
    Look,
    Question,
    StreamBacklog,
    admit,
)

PARTS = 8
"""Borders of segments are at eighths of the key space."""


@dataclass
class Segment:
    id: int
    low: int
    high: int
    events: list[int] = field(default_factory=list)  # sizes with their headers
    sealed: bool = False
    after: list[int] = field(default_factory=list)
    before: list[int] = field(default_factory=list)

    @property
    def length(self) -> int:
        return sum(self.events)

    @property
    def boundaries(self) -> list[int]:
        return [0, *accumulate(self.events)]


class Model:
    """A stream."""

    def __init__(self, name: str, borders: Sequence[int]) -> None:
        self.stream = ScopedStream("s", name)
        self.segments: dict[int, Segment] = {}
        self.epoch = 0
        self.number = 0
        self._make([0, *borders, PARTS])

    def _make(self, borders: list[int]) -> list[Segment]:
        made = []
        for low, high in pairwise(borders):
            made.append(Segment(segment_id(self.epoch, self.number), low, high))
            self.segments[made[-1].id] = made[-1]
            self.number += 1
        return made

    @property
    def active(self) -> list[Segment]:
        return sorted((each for each in self.segments.values() if not each.sealed), key=lambda s: s.low)

    def append(self, place: int, sizes: list[int]) -> None:
        active = self.active
        active[place % len(active)].events += sizes

    def scale(self, first: int, count: int, borders: Sequence[int]) -> None:
        sealed = self.active[first % len(self.active) :][:count]
        self.epoch += 1
        low, high = sealed[0].low, sealed[-1].high
        made = self._make([low, *(each for each in borders if low < each < high), high])
        for old in sealed:
            old.sealed = True
            old.after = [new.id for new in made if new.low < old.high and old.low < new.high]
            for new in old.after:
                self.segments[new].before.append(old.id)

    @property
    def head(self) -> StreamCut:
        return StreamCut(self.stream, {s.id: 0 for s in self.segments.values() if not s.before})

    @property
    def tail(self) -> StreamCut:
        return StreamCut(self.stream, {each.id: each.length for each in self.active})

    @property
    def layout(self) -> StreamLayout:
        return StreamLayout(
            self.stream,
            tuple(
                LayoutSegment(s.id, s.low / PARTS, s.high / PARTS, s.length, 0, s.sealed)
                for s in self.segments.values()
            ),
        )

    def sizes_in(self, part: SegmentRange) -> list[int]:
        """Of the events in a range, which begins and ends between events."""
        places = self.segments[part.segment_id].boundaries
        first, last = places.index(part.start_offset), places.index(part.end_offset)
        return self.segments[part.segment_id].events[first:last]

    def leading(self, part: SegmentRange, max_bytes: int | None, max_events: int | None) -> LeadingPart:
        at, count, next_bytes = part.start_offset, 0, None
        for size in self.sizes_in(part):
            if max_events is not None and count == max_events:
                break
            if max_bytes is not None and at + size - part.start_offset > max_bytes:
                next_bytes = size
                break
            at, count = at + size, count + 1
        found = SegmentRange(self.stream, part.segment_id, part.start_offset, at)
        return LeadingPart(found, None if max_events is None else count, next_bytes)


class World:
    """Several streams, and what a query over them has come to."""

    def __init__(self, models: Sequence[Model]) -> None:
        self.models = {each.stream: each for each in models}
        self.cuts = {each.stream: each.head for each in models}
        self.waited: dict[tuple[ScopedStream, int], int] = {}
        self.looked = 0

    def answer(self, question: Question) -> Answer:
        if isinstance(question, Look):
            self.looked += len(question.parts)
            return [
                self.models[part.stream].leading(part, most, count) for part, most, count in question.parts
            ]
        model = self.models[question.stream]
        assert isinstance(question, Follow)
        assert all(model.segments[each].sealed for each in question.segment_ids)
        return {
            each: {after: tuple(model.segments[after].before) for after in model.segments[each].after}
            for each in question.segment_ids
        }

    def batch(self, limit: Limit, ends: dict[ScopedStream, StreamCut] | None = None) -> Admitted:
        """The next batch, checked in itself."""
        ends = ends or {stream: model.tail for stream, model in self.models.items()}
        backlogs = [
            StreamBacklog(
                cut, ends[stream], tuple(self.models[stream].layout.ranges_between(cut, ends[stream]))
            )
            for stream, cut in self.cuts.items()
        ]
        rounds = admit(backlogs, limit, self.waited)
        admitted = run(rounds, self)
        sizes = [size for part in admitted.ranges for size in self.models[part.stream].sizes_in(part)]
        if len(sizes) > 1:
            assert limit.bytes is None or sum(sizes) <= limit.bytes
            assert limit.events is None or len(sizes) <= limit.events
        assert bool(sizes) == any(each.ranges for each in backlogs)
        left = 0
        for stream, before in self.cuts.items():
            layout, after = self.models[stream].layout, admitted.cuts[stream]
            layout.check(after)
            assert layout.compare(before, after) in (CutOrder.BEFORE, CutOrder.EQUAL)
            assert layout.compare(after, ends[stream]) in (CutOrder.BEFORE, CutOrder.EQUAL)
            mine = [each for each in admitted.ranges if each.stream == stream]
            assert layout.ranges_between(before, after) == mine
            left += layout.bytes_between(after, ends[stream])
        assert admitted.left_bytes == left
        self.waited = {each: self.waited.get(each, 0) + 1 for each in admitted.waiting}
        self.cuts = admitted.cuts
        return admitted


def run(rounds: Generator[Question, Answer, Admitted], world: World) -> Admitted:
    try:
        question = next(rounds)
        while True:
            question = rounds.send(world.answer(question))
    except StopIteration as done:
        result: Admitted = done.value
        return result


borders = st.lists(st.integers(1, PARTS - 1), unique=True, max_size=4).map(sorted)
events = st.lists(st.integers(8, 60), max_size=6)
steps = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 9), events),
    st.tuples(st.just("scale"), st.integers(0, 9), st.integers(1, 3), borders),
    st.tuples(st.just("batch")),
)
limits = st.builds(Limit, st.one_of(st.none(), st.integers(1, 150)), st.one_of(st.none(), st.integers(1, 12)))


@settings(max_examples=300)
@given(
    st.lists(borders, min_size=1, max_size=2),
    st.lists(st.tuples(st.integers(0, 1), steps), max_size=25),
    limits,
)
# The segment with most data has less behind it than another one, which gets the only event.
@example(
    [[], []],
    [
        (0, ("append", 0, [8, 8, 8])),
        (0, ("scale", 0, 1, [])),
        (0, ("append", 0, [8, 8])),
        (0, ("batch",)),
        (1, ("append", 0, [8, 8, 8])),
    ],
    Limit(1, 1),
)
def test_batches_are_within_the_limit_and_in_order(
    streams: list[list[int]], history: list[tuple[int, tuple[object, ...]]], limit: Limit
) -> None:
    """Batches have whole events, never more than the limit, no gap and no repeat; they reach the tail."""
    models = [Model(f"t{number}", each) for number, each in enumerate(streams)]
    world = World(models)
    read: dict[tuple[ScopedStream, int], int] = {}

    def batch() -> None:
        admitted = world.batch(limit)
        for part in admitted.ranges:
            # From where the last batch has ended, and after all that it follows.
            assert read.get((part.stream, part.segment_id), 0) == part.start_offset
            read[part.stream, part.segment_id] = part.end_offset
        for part in admitted.ranges:
            model = world.models[part.stream]
            for before in model.segments[part.segment_id].before:
                assert read.get((part.stream, before), 0) == model.segments[before].length

    for number, (kind, *arguments) in history:
        model = models[number % len(models)]
        if kind == "batch":
            batch()
        else:
            getattr(model, str(kind))(*arguments)
    total = sum(len(s.events) for model in models for s in model.segments.values())
    for _ in range(total):
        batch()
        if all(world.cuts[each.stream] == each.tail for each in models):
            break
    for model in models:
        assert model.layout.compare(world.cuts[model.stream], model.tail) is CutOrder.EQUAL
        for each in model.segments.values():
            assert read.get((model.stream, each.id), 0) == each.length


@settings(max_examples=200)
@given(st.lists(events, min_size=2, max_size=6), limits)
def test_a_limit_is_shared_by_what_is_left(backlogs: list[list[int]], limit: Limit) -> None:
    """The first batch gives each segment its part of the limit, less what is not a whole event."""
    models = [Model(f"t{number}", []) for number in range(len(backlogs))]
    for model, sizes in zip(models, backlogs, strict=True):
        model.append(0, sizes)
    world = World(models)
    admitted = world.batch(Limit(limit.bytes))
    if limit.bytes is None or not any(backlogs):
        return
    whole = sum(map(sum, backlogs))
    taken = {part.stream: part.length for part in admitted.ranges}
    if sum(taken.values()) > limit.bytes:
        return  # one event alone
    for model, sizes in zip(models, backlogs, strict=True):
        share = min(sum(sizes), limit.bytes * sum(sizes) // whole)
        within = max(each for each in accumulate([0, *sizes]) if each <= share)
        assert taken.get(model.stream, 0) >= within


@pytest.mark.parametrize("limit", [Limit(events=80), Limit(800)], ids=["events", "bytes"])
def test_keys_are_read_at_one_pace_across_scales(limit: Limit) -> None:
    """Each part of the key space has got its events at one rate, and is read at one rate."""
    model = Model("t", [4])

    def append() -> None:
        for each in model.active:
            each.events += [10] * (200 * (each.high - each.low))

    append()
    for place in (0, 2):
        model.scale(place, 1, [2, 6])
        append()
    world = World([model])
    while world.cuts[model.stream] != model.tail:
        world.batch(limit)
        reached = []
        for each, offset in world.cuts[model.stream].positions.items():
            segment = model.segments[each]
            reached.append(200 * epoch_of(each) + offset / 10 / (segment.high - segment.low))
        assert max(reached) - min(reached) <= 20, reached


@settings(max_examples=100)
@given(st.integers(8, 40), st.integers(1, 5), st.integers(9, 200), st.booleans())
def test_no_segment_waits_for_ever(small: int, others: int, most: int, by_events: bool) -> None:
    """Small backlogs beside one that never shrinks have their turn, also beside events over the limit."""
    models = [Model(f"t{number}", []) for number in range(others + 1)]
    for model in models[1:]:
        model.append(0, [small])
    world = World(models)
    for number in range(2 * others + 3):
        models[0].append(0, [10 + number % 3 * most] * 100)
        world.batch(Limit(events=1) if by_events else Limit(most))
    assert all(world.cuts[model.stream] == model.tail for model in models[1:])


def test_nothing_is_looked_up_where_all_is_within_the_limit() -> None:
    model = Model("t", [4])
    model.append(0, [50] * 10)
    model.append(1, [60] * 10)
    world = World([model])
    world.batch(Limit(1100, 10_000))
    assert world.cuts[model.stream] == model.tail
    assert world.looked == 0


def test_an_event_over_the_limit_goes_alone() -> None:
    model = Model("t", [4])
    model.append(0, [500, 8])
    model.append(1, [400, 9])
    world = World([model])
    batches = []
    while world.cuts[model.stream] != model.tail:
        batches.append([size for part in world.batch(Limit(20)).ranges for size in model.sizes_in(part)])
    assert sorted(map(sorted, batches)) in ([[8, 9], [400], [500]], [[8], [9], [400], [500]])


def test_an_end_that_no_batch_can_stop_at_is_refused() -> None:
    """A reader group may have read one segment of a scale when another one was not read to its end yet."""
    model = Model("t", [4])
    model.append(0, [10])
    model.append(1, [10, 10])
    model.scale(0, 2, [2])
    model.append(0, [10])
    model.append(1, [10])
    first, second = model.segments[segment_id(0, 0)], model.segments[segment_id(0, 1)]
    new = model.segments[segment_id(1, 2)]
    assert new.before == [first.id]
    end = StreamCut(model.stream, {new.id: 10, second.id: 10})
    model.layout.check(end)
    world = World([model])
    with pytest.raises(InvalidStreamCutError, match="between segments of the same scale"):
        for _ in range(3):
            world.batch(Limit(10), {model.stream: end})
