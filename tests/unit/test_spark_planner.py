"""What the planner does when streams change under its eyes, against a store of a few lines."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pravega_wire import (
    LeadingPart,
    ScopedStream,
    SegmentRange,
    StreamCut,
    Watermark,
)
from pravega_wire.errors import (
    DataLossError,
    InvalidArgumentError,
    InvalidStreamCutError,
    StreamNotFoundError,
)
from pravega_wire.sync import PravegaClient
from pravega_wire.values.cuts import LayoutSegment, StreamLayout
from pravega_wire.values.naming import segment_name
from pravega_wire.values.positions import WatermarkSegment
from spark_adapter.options.read import ReadOptions
from spark_adapter.reading import stream_planner as module
from spark_adapter.reading.admission import Limit
from spark_adapter.reading.partitions import ranges_to_read
from spark_adapter.reading.stream_planner import StreamPlanner, batch_ranges

EVENT = 10
"""Bytes of each event, with its header."""


class Streams:
    """Streams of one segment each: head and tail by name.

    :ivar truncate: cuts that are made when data is looked at, before it is.
    :ivar vanish: streams that are deleted when they are asked for next.
    :ivar counted: parts whose events were counted.
    :ivar marks: times and offsets of each stream's watermarks.
    """

    def __init__(self, **streams: tuple[int, int]) -> None:
        self.streams = dict(streams)
        self.truncate: list[int] = []
        self.vanish: set[str] = set()
        self.sealed: set[str] = set()
        self.asked: list[str] = []
        self.counted: list[tuple[str, int, int]] = []
        self.marks: dict[str, list[tuple[int, int]]] = {}

    def watermarks(self, stream: ScopedStream) -> list[Watermark]:
        return [
            Watermark.of(time, time, [WatermarkSegment(0, 0.0, 1.0, offset)])
            for time, offset in self.marks.get(stream.name, [])
        ]

    def list_streams(self, scope: str) -> Iterator[ScopedStream]:
        return iter([ScopedStream(scope, name) for name in self.streams])

    def _bounds(self, stream: ScopedStream) -> tuple[int, int]:
        self.asked.append(stream.name)
        if stream.name in self.vanish:
            self.streams.pop(stream.name, None)
        if stream.name not in self.streams:
            raise StreamNotFoundError("no stream", scope=stream.scope, stream=stream.name)
        return self.streams[stream.name]

    def head(self, stream: ScopedStream) -> StreamCut:
        return StreamCut(stream, {0: self._bounds(stream)[0]})

    def tail(self, stream: ScopedStream) -> StreamCut:
        return StreamCut(stream, {0: self._bounds(stream)[1]})

    def active_segments(self, stream: ScopedStream) -> list[object]:
        return [] if stream.name in self.sealed else [object()]

    def stream_layout(self, stream: ScopedStream) -> StreamLayout:
        head, tail = self._bounds(stream)
        return StreamLayout(stream, (LayoutSegment(0, 0.0, 1.0, tail, head, False),))

    def segment_ranges(
        self,
        stream: ScopedStream,
        start: Any,
        end: Any,
        on_truncated: str = "raise",
        max_range_bytes: int | None = None,
    ) -> list[SegmentRange]:
        head, tail = self._bounds(stream)
        first = {"earliest": head, "latest": tail}[start] if isinstance(start, str) else start.positions[0]
        last = tail if end in ("latest", "unbounded") else end.positions[0]
        if max(first, last) > tail:
            raise InvalidStreamCutError("too far", scope=stream.scope, stream=stream.name)
        if first < head:
            if on_truncated == "raise":
                raise lost(stream, first, head)
            first = min(head, last)
        found = [SegmentRange(stream, 0, first, last)] if first < last else []
        return found if max_range_bytes is None else [p for r in found for p in self.split_range(r, 0)]

    def _look(self, part: SegmentRange) -> None:
        name = part.stream.name
        if self.truncate:
            self.streams[name] = self.truncate.pop(0), self.streams[name][1]
        head = self.streams[name][0]
        if part.start_offset < head:
            raise lost(part.stream, part.start_offset, head)

    def split_range(self, part: SegmentRange, _: int) -> list[SegmentRange]:
        self._look(part)
        return [part]

    def boundary_index(self, part: SegmentRange, *, spacing: int) -> SimpleNamespace:
        self._look(part)
        return SimpleNamespace(marks=list(range(part.start_offset + EVENT, part.end_offset, EVENT)))

    def leading_parts(self, parts: list[tuple[SegmentRange, int | None, int]]) -> list[LeadingPart]:
        found = []
        for part, size, most in parts:
            self._look(part)
            assert size is None, "only events are limited"
            self.counted.append((part.stream.name, part.start_offset, part.end_offset))
            events = min(most, part.length // EVENT)
            end = part.start_offset + events * EVENT
            found.append(LeadingPart(SegmentRange(part.stream, 0, part.start_offset, end), events, None))
        return found


def lost(stream: ScopedStream, first: int, head: int) -> DataLossError:
    return DataLossError(
        f"bytes {first} to {head} are gone",
        scope=stream.scope,
        stream=stream.name,
        segment=segment_name(stream.scope, stream.name, 0),
        offset=first,
        start_offset=head,
    )


def options(use: Any = "readStream", **given: object) -> ReadOptions:
    texts = {name: str(value) for name, value in given.items()}
    default = {} if given.keys() & {"stream_pattern", "subscribe"} else {"stream": "a/b"}
    return ReadOptions.parse(default | texts, use)


def planner_of(streams: Streams, **given: object) -> StreamPlanner:
    return StreamPlanner(options(**given), client=lambda: cast("PravegaClient", streams))


def bounds(parts: list[SegmentRange]) -> list[tuple[str, int, int]]:
    return [(each.stream.name, each.start_offset, each.end_offset) for each in parts]


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between looks, which are not made."""
    pauses: list[float] = []
    monkeypatch.setattr(
        module, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda pause: pauses.append(pause))
    )
    return pauses


DIVIDED = [{"max_partition_bytes": 50}, {"min_partitions": 2}]


@pytest.mark.parametrize("given", DIVIDED, ids=["bytes", "count"])
def test_truncation_while_a_batch_is_divided(given: dict[str, object]) -> None:
    streams = Streams(b=(0, 100))
    planner = planner_of(streams, fail_on_data_loss="false", **given)
    start = planner.initial()
    end = planner.latest(start, Limit())
    streams.truncate = [20, 40, 60]
    found = bounds(planner.ranges(start, end))
    assert (found[0][1], found[-1][2]) == (60, 100)
    # Without an end to it, the tasks are given what there was.
    streams.truncate = list(range(61, 90))
    assert bounds(planner.ranges(start, end)) == [("b", 64, 100)]


@pytest.mark.parametrize("given", DIVIDED, ids=["bytes", "count"])
def test_truncation_while_a_strict_batch_is_divided(given: dict[str, object]) -> None:
    streams = Streams(b=(0, 100))
    planner = planner_of(streams, **given)
    start = planner.initial()
    end = planner.latest(start, Limit())
    streams.truncate = [20]
    with pytest.raises(DataLossError, match=r"stream a/b: data that the query has not read was truncated"):
        planner.ranges(start, end)


def test_truncation_while_a_batch_is_limited() -> None:
    streams = Streams(b=(0, 100))
    lenient = planner_of(streams, fail_on_data_loss="false")
    strict = planner_of(streams)
    start = lenient.initial()
    streams.truncate = [10, 20, 30, 40, 50, 60, 70]
    end = lenient.latest(start, Limit(30))
    assert bounds(lenient.ranges(start, end)) == [("b", 40, 100)]
    report = lenient.report()
    assert report is not None
    # Each byte is counted once, in however many plans it was missing.
    assert report["skipped_bytes"] == 40
    streams.streams["b"], streams.truncate = (0, 100), [20]
    with pytest.raises(DataLossError, match=r"stream a/b: data that the query has not read was truncated"):
        strict.latest(start, Limit(30))


@pytest.mark.parametrize("given", DIVIDED, ids=["bytes", "count"])
def test_truncation_while_a_batch_read_is_planned(given: dict[str, object]) -> None:
    streams = Streams(b=(0, 100))
    client = cast("PravegaClient", streams)
    streams.truncate = [10, 20]
    found = bounds(batch_ranges(client, options("read", fail_on_data_loss="false", **given)))
    assert (found[0][1], found[-1][2]) == (20, 100)
    streams.truncate = list(range(21, 60))
    assert len(batch_ranges(client, options("read", fail_on_data_loss="false", **given))) == 1
    streams.truncate = [70]
    with pytest.raises(DataLossError):
        batch_ranges(client, options("read", **given))


LIMITED = [*DIVIDED, {"limit": 3}, {"limit": 3, "max_partition_bytes": 50}, {"max_partition_events": 3}]


@pytest.mark.parametrize("given", LIMITED, ids=str)
def test_truncation_while_a_read_by_function_is_planned(given: dict[str, Any]) -> None:
    streams = Streams(b=(0, 100))
    client, stream = cast("PravegaClient", streams), ScopedStream("a", "b")

    def ranges(on_truncated: Any) -> list[tuple[str, int, int]]:
        return bounds(
            ranges_to_read(client, stream, "earliest", "latest", on_truncated=on_truncated, **given)
        )

    streams.truncate = [10, 20]
    assert ranges("skip_to_head")[0][1] == 20
    streams.truncate = [70]
    with pytest.raises(DataLossError):
        ranges("raise")


@pytest.mark.parametrize("given", [{"limit": 3}, {"limit": 3, "min_partitions": 2}], ids=str)
def test_truncation_without_an_end_keeps_the_limit(given: dict[str, object]) -> None:
    streams = Streams(b=(0, 100))
    streams.truncate = [10, 20, 30, 40, 50, 60]
    client = cast("PravegaClient", streams)
    found = batch_ranges(client, options("read", fail_on_data_loss="false", **given))
    assert bounds(found) == [("b", 60, 60 + 3 * EVENT)]
    # All of it is truncated while it is counted.
    streams.streams["b"], streams.truncate = (0, 100), [10, 20, 30, 40, 50, 100]
    assert not batch_ranges(client, options("read", fail_on_data_loss="false", **given))


def test_one_of_several_streams_is_made_anew(caplog: pytest.LogCaptureFixture) -> None:
    streams = Streams(b=(0, 100), c=(0, 100))
    given: dict[str, object] = {"scope": "a", "stream_pattern": "."}
    strict = planner_of(streams, **given)
    lenient = planner_of(streams, fail_on_data_loss="false", **given)
    start = lenient.initial()
    read = lenient.latest(start, Limit())
    streams.streams |= {"b": (0, 40), "c": (0, 120)}
    with pytest.raises(InvalidStreamCutError, match=r"created again.*fail_on_data_loss=false"):
        strict.latest(read, Limit())
    end = lenient.latest(read, Limit())
    assert bounds(lenient.ranges(read, end)) == [("b", 0, 40), ("c", 100, 120)]
    report = lenient.report()
    assert report is not None
    assert report["skipped_segments_of_unknown_size"] == 1
    # The checkpoint says where the new one begins, so another run has the same batch.
    assert end["from"].keys() == {"a/b"}
    another = planner_of(streams, fail_on_data_loss="false", **given)
    assert another.ranges(read, end) == lenient.ranges(read, end)
    # The batch before is run again: what it had of the old one is gone.
    with caplog.at_level(logging.WARNING):
        assert bounds(another.ranges(start, read)) == [("c", 0, 100)]
    assert "stream a/b was deleted and created again; its data in this batch is lost" in caplog.text
    streams.streams["b"] = (0, 60)
    assert bounds(another.ranges(end, another.latest(end, Limit()))) == [("b", 40, 60)]


def test_an_end_in_the_stream_before() -> None:
    streams = Streams(b=(0, 100))
    given: dict[str, object] = {"end_stream_cut": "latest", "fail_on_data_loss": "false"}
    first = planner_of(streams, **given)
    start = first.initial()
    streams.streams["b"] = (0, 100)
    half = {**start, "cuts": {"a/b": StreamCut(ScopedStream("a", "b"), {0: 50}).to_text()}}
    streams.streams["b"] = (0, 40)
    assert first.latest(half, Limit()) == half
    # What the user names is refused as ever.
    cut = StreamCut(ScopedStream("a", "b"), {0: 90}).to_text()
    named = planner_of(streams, start_stream_cut=cut, fail_on_data_loss="false")
    with pytest.raises(InvalidStreamCutError, match="too far"):
        named.latest(named.initial(), Limit())


@pytest.mark.parametrize("fixed", ["latest", "named"])
def test_a_stream_left_out_is_made_anew_before_its_old_end(
    fixed: str, caplog: pytest.LogCaptureFixture
) -> None:
    streams = Streams(b=(0, 100), c=(0, 100))
    cuts = {f"a/{name}": StreamCut(ScopedStream("a", name), {0: 90}).to_text() for name in "bc"}
    end = "latest" if fixed == "latest" else json.dumps(cuts)
    given: dict[str, object] = {
        "subscribe": "a/b,a/c",
        "end_stream_cut": end,
        "fail_on_data_loss": "false",
    }
    planner = planner_of(streams, **given)
    half = {**planner.initial(), "cuts": cuts | {"a/b": StreamCut(ScopedStream("a", "b"), {0: 50}).to_text()}}
    del streams.streams["b"]
    without = planner.latest(half, Limit())
    assert without["cuts"].keys() == {"a/c"}
    streams.streams["b"] = (0, 40)
    with caplog.at_level(logging.WARNING):
        joined = planner.latest(without, Limit())
    assert "a/b was deleted and created again; the query's end was in the old stream" in caplog.text
    assert bounds(planner.ranges(without, joined)) == []
    # A restart does not fail either.
    for again in (planner, planner_of(streams, **given)):
        assert again.latest(joined, Limit()) == joined
    # At a query's first start, the cut is wrong.
    if fixed == "named":
        new = planner_of(streams, **given)
        with pytest.raises(InvalidStreamCutError, match="too far"):
            new.latest(new.initial(), Limit())


@pytest.mark.parametrize("end", ["latest", "unbounded"])
def test_a_stream_of_a_pattern_vanishes_while_it_is_planned(end: str) -> None:
    given: dict[str, object] = {"scope": "a", "stream_pattern": ".", "end_stream_cut": end}
    streams = Streams(b=(0, 100), c=(0, 100))
    streams.vanish = {"b"}
    planner = planner_of(streams, **given)
    start = planner.initial()
    assert start["cuts"].keys() == {"a/c"}
    assert bounds(planner.ranges(start, planner.latest(start, Limit()))) == [("c", 0, 100)]
    streams.streams["b"] = (0, 100)
    given = {"scope": "a", "stream_pattern": "."}
    assert bounds(batch_ranges(cast("PravegaClient", streams), options("read", **given))) == [("c", 0, 100)]
    with pytest.raises(StreamNotFoundError):
        batch_ranges(cast("PravegaClient", streams), options("read"))
    with pytest.raises(StreamNotFoundError):
        planner_of(streams).initial()


def test_a_stream_of_a_pattern_vanishes_before_and_after_its_first_batch() -> None:
    streams = Streams(b=(0, 0), c=(0, 100))
    planner = planner_of(streams, scope="a", stream_pattern=".", stream_discovery_interval=0)
    start = planner.initial()
    assert start["cuts"].keys() == {"a/b", "a/c"}
    del streams.streams["b"]
    offset = planner.latest(start, Limit())
    assert offset["cuts"].keys() == {"a/c"}
    # One that comes later goes after its head was asked for.
    streams.streams["d"] = (0, 0)
    head = streams.head

    def head_of_one_that_goes(stream: ScopedStream) -> StreamCut:
        found = head(stream)
        streams.vanish.add("d")
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "head", head_of_one_that_goes)
        assert planner.latest(offset, Limit()) == offset
    # When the checkpoint has a position in it, it is a stream of the query.
    streams.vanish.clear()
    streams.streams["d"] = (0, 0)
    offset = planner.latest(offset, Limit())
    assert offset["cuts"].keys() == {"a/c", "a/d"}
    del streams.streams["d"]
    with pytest.raises(StreamNotFoundError, match="was deleted"):
        planner.latest(offset, Limit())


def test_the_end_is_where_the_first_streams_of_a_pattern_end() -> None:
    streams = Streams()
    given = {"scope": "a", "stream_pattern": ".", "end_stream_cut": "latest"}
    planner = planner_of(streams, **given, stream_discovery_interval=0)
    start = planner.initial()
    assert planner.latest(start, Limit()) == start
    streams.streams["b"] = (0, 100)
    offset = planner.latest(start, Limit())
    assert bounds(planner.ranges(start, offset)) == [("b", 0, 100)]
    streams.streams |= {"b": (0, 120), "c": (0, 100)}
    assert planner.latest(offset, Limit()) == offset


@pytest.mark.parametrize("is_word", [True, False])
@pytest.mark.parametrize("available_now", [True, False])
def test_a_stream_added_by_a_restart_has_an_end_of_its_own(is_word: bool, available_now: bool) -> None:
    streams = Streams(b=(0, 100))

    def run(names: str) -> StreamPlanner:
        end = "latest" if is_word else json.dumps(dict.fromkeys(names.split(","), "latest"))
        planner = planner_of(streams, scope="a", subscribe=names, end_stream_cut=end)
        if available_now:
            planner.fix_target()
        return planner

    first = run("b")
    begun = first.latest(first.initial(), Limit())
    streams.streams = {"b": (0, 150), "c": (0, 50)}
    second = run("b,c")
    part = second.latest(begun, Limit(events=3))
    assert bounds(second.ranges(begun, part)) == [("c", 0, 30)]
    ends = {
        f"a/{name}": StreamCut(ScopedStream("a", name), {0: end}) for name, end in (("b", 100), ("c", 50))
    }
    assert part["ends"] == {name: cut.to_text() for name, cut in ends.items()}
    # The end is in the checkpoint, so what is written now is beyond it in each further run.
    streams.streams["c"] = (0, 80)
    for each in (second, run("b,c")):
        assert bounds(each.ranges(begun, part)) == [("c", 0, 30)]
        rest = each.latest(part, Limit())
        assert bounds(each.ranges(part, rest)) == [("c", 30, 50)]
        assert each.latest(rest, Limit()) == rest


def test_a_place_in_a_stream_that_a_pattern_does_not_find_is_refused() -> None:
    streams = Streams(b=(0, 100), c=(0, 100))
    for place in ("latest", StreamCut(ScopedStream("a", "d"), {0: 5}).to_text()):
        places = json.dumps({"a/b": "latest", "a/d": place})
        given = {"scope": "a", "stream_pattern": ".", "start_stream_cut": places}
        message = (
            "'start_stream_cut' has a place in stream a/d, which was not found among the streams of scope a"
        )
        with pytest.raises(InvalidStreamCutError, match=message):
            batch_ranges(cast("PravegaClient", streams), options("read", **given))
        with pytest.raises(InvalidStreamCutError, match=message):
            planner_of(streams, **given).initial()
    streams.streams["d"] = (0, 100)
    planner = planner_of(streams, **given)
    begun = planner.latest(planner.initial(), Limit())
    # Later it may be deleted; a query that may lose data goes on without it.
    del streams.streams["d"]
    streams.streams["c"] = (0, 120)
    restarted = planner_of(streams, **given, fail_on_data_loss="false")
    assert bounds(restarted.ranges(begun, restarted.latest(begun, Limit()))) == [("c", 100, 120)]


@pytest.mark.parametrize("name", ["stream", "stream_pattern"])
def test_an_end_at_an_earlier_time_than_the_start_is_refused(name: str) -> None:
    streams = Streams(b=(0, 100))
    streams.marks["b"] = [(10, 20), (50, 80)]  # not enough to tell where the time 90 is
    given = {"scope": "a", name: "b", "starting_timestamp": 90}
    message = (
        "'ending_timestamp': the time 40 is before that of option 'starting_timestamp', 90, .* stream a/b"
    )
    with pytest.raises(InvalidArgumentError, match=message):
        batch_ranges(cast("PravegaClient", streams), options("read", **given, ending_timestamp=40))
    with pytest.raises(InvalidArgumentError, match=message):
        planner_of(streams, **given, ending_timestamp=40).initial()
    # A query that has begun may get any end: it reads nothing more.
    planner = planner_of(streams, **given)
    begun = planner.latest(planner.initial(), Limit())
    ended = planner_of(streams, **given, ending_timestamp=40)
    assert ended.ranges(begun, ended.latest(begun, Limit())) == []


def test_a_query_ends_at_a_time_once_a_watermark_has_reached_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now, sleep=lambda pause: None))
    streams = Streams(b=(0, 100))
    given = {"ending_timestamp": 50}
    with pytest.raises(InvalidArgumentError, match="'ending_timestamp': stream a/b has no watermarks"):
        planner_of(streams, **given).initial()
    streams.marks["b"] = [(10, 20)]
    planner = planner_of(streams, **given)
    start = planner.initial()
    assert "ends" not in start
    # Not reached yet: everything is read.
    first = planner.latest(start, Limit())
    assert bounds(planner.ranges(start, first)) == [("b", 0, 100)]
    # Reached at 150; seen a few seconds later, and kept in the offset with the data before it.
    streams.streams["b"] = (0, 200)
    streams.marks["b"].append((50, 150))
    assert planner.latest(first, Limit())["cuts"] != first["cuts"]
    now = 6.0
    second = planner.latest(first, Limit())
    assert bounds(planner.ranges(first, second)) == [("b", 100, 150)]
    assert second["ends"] == {"a/b": StreamCut(ScopedStream("a", "b"), {0: 150}).to_text()}
    # The watermark may be deleted: nothing more is read, nor after a restart.
    streams.marks.clear()
    streams.streams["b"] = (0, 300)
    for each in (planner, planner_of(streams, **given)):
        assert each.latest(second, Limit()) == second
    # A query that has passed the place when it learns of it reads nothing more.
    streams.marks["b"] = [(50, 150)]
    late = {**first, "cuts": {"a/b": StreamCut(ScopedStream("a", "b"), {0: 180}).to_text()}}
    other = planner_of(streams, **given)
    assert bounds(other.ranges(late, other.latest(late, Limit()))) == []
    # A new query that would begin behind it is refused.
    with pytest.raises(InvalidStreamCutError, match=r"'ending_timestamp': .* is before the query's start"):
        planner_of(streams, **given, start_stream_cut="latest").initial()
    # An end in the past is where a new query ends; so is that of a stream found later.
    matched = planner_of(streams, scope="a", stream_pattern=".", stream_discovery_interval=0, **given)
    begun = matched.latest(matched.initial(), Limit())
    assert begun["ends"].keys() == {"a/b"}
    streams.streams["c"] = (0, 50)
    grown = matched.latest(begun, Limit())
    assert bounds(matched.ranges(begun, grown)) == [("c", 0, 50)]
    now = 12.0
    streams.streams["c"] = (0, 90)
    streams.marks["c"] = [(60, 70)]
    assert bounds(matched.ranges(grown, matched.latest(grown, Limit()))) == [("c", 50, 70)]


def test_each_stream_of_a_query_has_an_end_of_its_own() -> None:
    streams = Streams(b=(0, 100), c=(0, 100), d=(0, 100))
    streams.marks["c"] = [(50, 30)]
    places = {"a/b": "latest", "c": 50, "a/d": StreamCut(ScopedStream("a", "d"), {0: 10}).to_text()}
    given = {"subscribe": "b,c,d", "scope": "a", "end_stream_cut": json.dumps(places)}
    planner = planner_of(streams, **given)
    start = planner.initial()
    streams.streams = dict.fromkeys("bcd", (0, 200))
    for each in (planner, planner_of(streams, **given)):
        end = each.latest(start, Limit())
        assert bounds(each.ranges(start, end)) == [("b", 0, 100), ("c", 0, 30), ("d", 0, 10)]
        assert each.latest(end, Limit()) == end


def test_a_new_query_needs_an_end_behind_its_start() -> None:
    early = StreamCut(ScopedStream("a", "b"), {0: 3}).to_text()
    planner = planner_of(Streams(b=(0, 9)), start_stream_cut="latest", end_stream_cut=early)
    with pytest.raises(InvalidStreamCutError, match=r"'end_stream_cut': .* is before the query's start"):
        planner.initial()
    # It may begin where it ends.
    planner_of(Streams(b=(0, 9)), start_stream_cut=early, end_stream_cut=early).initial()


class Scaled(Streams):
    """A stream whose only segment was replaced by another one after nine bytes."""

    def stream_layout(self, stream: ScopedStream) -> StreamLayout:
        segments = LayoutSegment(0, 0.0, 1.0, 9), LayoutSegment(AFTER, 0.0, 1.0, 0, sealed=False)
        return StreamLayout(stream, segments)


AFTER = (1 << 32) + 1


@pytest.mark.parametrize("places", [({0: 9}, {AFTER: 0}), ({AFTER: 0}, {0: 9})])
def test_a_new_query_may_begin_where_it_ends_in_another_segment(
    places: tuple[dict[int, int], dict[int, int]],
) -> None:
    start, end = (StreamCut(ScopedStream("a", "b"), each).to_text() for each in places)
    initial = planner_of(Scaled(b=(0, 9)), start_stream_cut=start, end_stream_cut=end).initial()
    assert initial["cuts"] == {"a/b": start}


def test_streams_begin_and_end_at_times_of_their_own() -> None:
    streams = Streams(b=(0, 100), c=(0, 100), d=(0, 100))
    # A mark counts for a start when the next one has proven it, and for an end at once.
    streams.marks = {"b": [(10, 20), (20, 40), (30, 60)], "c": [(1000, 30), (2000, 50), (3000, 70)]}
    starts = json.dumps({"a/b": 25, "c": "1970-01-01T00:00:02.500Z", "d": "latest"})
    given: dict[str, object] = {"scope": "a", "subscribe": "b,c,d", "startingOffsets": starts}
    ends = json.dumps({"b": 25, "c": 2500, "d": "latest"})
    read = options("read", **given, endingOffsets=ends)
    assert bounds(batch_ranges(cast("PravegaClient", streams), read)) == [("b", 20, 60), ("c", 30, 70)]
    planner = planner_of(streams, **given)
    start = planner.initial()
    found = planner.ranges(start, planner.latest(start, Limit()))
    assert bounds(found) == [("b", 20, 100), ("c", 30, 100)]


def test_an_idle_query_asks_more_seldom(no_pause: list[float]) -> None:
    streams = Streams(b=(0, 100))
    planner = planner_of(streams)
    offset = planner.latest(planner.initial(), Limit())
    for _ in range(6):
        assert planner.latest(offset, Limit()) == offset
    assert no_pause == [0.1, 0.2, 0.4, 0.8, 1.0]
    streams.streams["b"] = (0, 120)
    offset = planner.latest(offset, Limit())
    no_pause.clear()
    for _ in range(3):
        assert planner.latest(offset, Limit()) == offset
    assert no_pause == [0.1, 0.2]


def test_only_checks_that_follow_at_once_are_slowed_down(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    pauses: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda pause: pauses.append(round(pause, 6)))
    monkeypatch.setattr(module, "time", clock)
    planner = planner_of(Streams(b=(0, 100)))
    offset = planner.latest(planner.initial(), Limit())

    def pauses_at(*waits: float) -> list[float]:
        pauses.clear()
        for wait in waits:
            now[0] += wait
            assert planner.latest(offset, Limit()) == offset
        return list(pauses)

    assert pauses_at(0.01, 0.01, 0.01, 0.01) == [0.09, 0.19, 0.39]
    # Another source had a batch, or there is a trigger interval.
    assert pauses_at(0.06, 0.2, 3.0) == []
    assert pauses_at(0.01, 0.01) == [0.09, 0.19]


def test_a_sealed_stream_that_was_read_is_not_asked_about() -> None:
    streams = Streams(b=(0, 100), c=(0, 100))
    planner = planner_of(streams, scope="a", stream_pattern=".")
    offset = planner.latest(planner.initial(), Limit())
    planner.latest(offset, Limit())
    streams.sealed.add("b")
    for _ in range(3):
        assert planner.latest(offset, Limit()) == offset
    streams.asked.clear()
    streams.streams["c"] = (0, 120)
    offset = planner.latest(offset, Limit())
    assert set(streams.asked) == {"c"}
    # Another run asks again.
    again = planner_of(streams, scope="a", stream_pattern=".")
    assert again.latest(offset, Limit()) == offset
    assert "b" in streams.asked


def test_a_sealed_stream_that_is_made_anew_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda pause: None)
    monkeypatch.setattr(module, "time", clock)
    streams = Streams(b=(0, 100))
    planner = planner_of(streams)
    offset = planner.latest(planner.initial(), Limit())
    streams.sealed.add("b")
    assert planner.latest(offset, Limit()) == offset
    for wait in (59.0, 61.0, 59.0):
        now[0] += wait
        streams.asked.clear()
        assert planner.latest(offset, Limit()) == offset
        assert (streams.asked == []) == (wait < 60)
    # Deleting a stream takes sealing it first.
    streams.streams, streams.sealed = {"b": (0, 40)}, set()
    now[0] += 61
    with pytest.raises(InvalidStreamCutError, match="created again"):
        planner.latest(offset, Limit())
    del streams.streams["b"]
    with pytest.raises(StreamNotFoundError, match="was deleted"):
        planner.latest(offset, Limit())


def test_what_came_before_the_seal_is_read() -> None:
    streams = Streams(b=(0, 100))
    planner = planner_of(streams)
    offset = planner.latest(planner.initial(), Limit())

    def sealed(stream: ScopedStream) -> list[object]:
        streams.streams["b"] = (0, 110)
        return []

    streams.active_segments = sealed  # type: ignore[method-assign]
    assert planner.latest(offset, Limit()) == offset
    assert planner.latest(offset, Limit()) != offset


def test_a_deleted_segment_between_two_cuts_is_lost_only_if_some_of_it_is_wanted() -> None:
    stream = ScopedStream("a", "b")
    layout = StreamLayout(
        stream, (LayoutSegment(0, 0.0, 0.5, None, 0, True), LayoutSegment(1, 0.5, 1.0, 90, 40, False))
    )

    def gone(start: dict[int, int], end: dict[int, int]) -> list[tuple[int, int, int | None]]:
        return module._gone(layout, StreamCut(stream, start), StreamCut(stream, end))

    assert gone({0: 100, 1: 10}, {0: 100, 1: 90}) == [(1, 10, 30)]
    assert gone({0: 0, 1: 0}, {0: 0, 1: 0}) == []
    assert gone({0: 100, 1: 10}, {0: 101, 1: 10}) == [(0, 100, None)]
    assert gone({0: 100, 1: 10}, {0: -1, 1: 90}) == [(0, 100, None), (1, 10, 30)]


class Waiting:
    """A query that waits for the least amount of data of its options; each look is a second later."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, store: Streams, **given: object) -> None:
        self.now = 1000.0
        clock = SimpleNamespace(monotonic=lambda: self.now, sleep=lambda pause: None)
        monkeypatch.setattr(module, "time", clock)
        self.streams = store
        self.planner = planner_of(store, **given)
        self.offset = self.planner.initial()

    def look(self, limit: Limit = Limit(), **streams: tuple[int, int]) -> dict[str, int] | None:  # noqa: B008
        """Where the next batch ends, by stream; None if there is none yet."""
        self.now += 1
        self.streams.streams.update(streams)
        offset = self.planner.latest(self.offset, limit, wait=True)
        if offset == self.offset:
            assert offset is self.offset
            return None
        self.offset = offset
        cuts = [StreamCut.from_text(each) for each in offset["cuts"].values()]
        return {each.stream.name: each.positions[0] for each in cuts}


def test_a_batch_waits_for_enough_bytes_or_its_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"min_bytes_per_trigger": 100, "max_trigger_delay": "10s", "scope": "a", "stream_pattern": "."}
    query = Waiting(monkeypatch, Streams(b=(0, 10), c=(0, 0)), **given)
    # The first batch stores where the query begins.
    assert query.look() == {"b": 10, "c": 0}
    assert query.look(b=(0, 60)) is None
    report = query.planner.report()
    assert report is not None
    assert report["backlog_bytes"] == 50
    # That of all streams counts.
    assert query.look(c=(0, 40)) is None
    assert query.look(c=(0, 50)) == {"b": 60, "c": 50}
    assert [query.look(c=(0, 60)) for _ in range(9)] == [None] * 9
    assert query.look() == {"b": 60, "c": 60}
    # Without data there is no batch, however long it takes; then the first event is enough.
    assert [query.look() for _ in range(12)] == [None] * 12
    assert query.look(b=(0, 70)) == {"b": 70, "c": 60}


def test_events_are_counted_once_while_a_batch_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    query = Waiting(monkeypatch, Streams(b=(0, 10)), min_events_per_trigger=10, max_trigger_delay="20s")
    assert query.look() == {"b": 10}
    # Too small for ten events of any size.
    assert query.look(b=(0, 80)) is None
    assert query.streams.counted == []
    assert [query.look(b=(0, 90 + more)) for more in (0, 0, 10)] == [None] * 3
    assert query.streams.counted == [("b", 10, 90), ("b", 90, 100)]
    assert query.look(b=(0, 110)) == {"b": 110}
    # What was counted before the batch does not count for the next one.
    assert query.look(b=(0, 200)) is None
    assert query.look(b=(0, 210)) == {"b": 210}
    assert query.streams.counted[2:] == [("b", 100, 110), ("b", 110, 200), ("b", 200, 210)]


def test_both_amounts_have_to_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    query = Waiting(monkeypatch, Streams(b=(0, 10)), min_events_per_trigger=10, min_bytes_per_trigger=120)
    assert query.look() == {"b": 10}
    assert query.look(b=(0, 120)) is None
    assert query.look(b=(0, 130)) == {"b": 130}


def test_a_restarted_query_waits_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    query = Waiting(monkeypatch, Streams(b=(0, 10)), min_events_per_trigger=10, max_trigger_delay="5s")
    assert query.look() == {"b": 10}
    assert [query.look(b=(0, 20)) for _ in range(4)] == [None] * 4
    query.planner = planner_of(query.streams, min_events_per_trigger=10, max_trigger_delay="5s")
    assert [query.look() for _ in range(4)] == [None] * 4
    assert query.look() == {"b": 20}


@pytest.mark.parametrize("until", ["now", "end"])
def test_what_is_all_there_is_waits_for_nothing(monkeypatch: pytest.MonkeyPatch, until: str) -> None:
    end = StreamCut(ScopedStream("a", "b"), {0: 50}).to_text()
    query = Waiting(monkeypatch, Streams(b=(0, 10)), min_events_per_trigger=10)
    assert query.look() == {"b": 10}
    given = {"end_stream_cut": end} if until == "end" else {}
    query.planner = planner_of(query.streams, min_events_per_trigger=10, **given)
    query.streams.streams["b"] = (0, 50)
    if until == "now":
        query.planner.fix_target()
    assert query.look() == {"b": 50}


def test_lost_data_is_not_waited_for_and_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"min_events_per_trigger": 10, "fail_on_data_loss": "false"}
    query = Waiting(monkeypatch, Streams(b=(0, 10)), **given)
    assert query.look() == {"b": 10}
    assert query.look(b=(30, 40)) == {"b": 40}
    assert query.look(b=(30, 50)) is None
    report = query.planner.report()
    assert report is not None
    assert report["skipped_bytes"] == 20
    # It is truncated while it is counted.
    query.streams.truncate = [80]
    assert query.look(b=(30, 130)) == {"b": 130}


def test_a_limit_takes_the_first_events_and_looks_no_further() -> None:
    streams = Streams(b=(0, 50), c=(20, 90), d=(0, 0), e=(0, 30))

    def planned(limit: int, **given: object) -> list[tuple[str, int, int]]:
        streams.counted.clear()
        parsed = options("read", scope="a", stream_pattern=".", limit=limit, **given)
        return bounds(batch_ranges(cast("PravegaClient", streams), parsed))

    assert planned(3) == [("b", 0, 30)]
    assert planned(5) == [("b", 0, 50)]
    assert [name for name, _, _ in streams.counted] == ["b"]
    assert planned(6, max_partition_bytes=50) == [("b", 0, 50), ("c", 20, 30)]
    assert [name for name, _, _ in streams.counted] == ["b", "c"]
    assert planned(100) == [("b", 0, 50), ("c", 20, 90), ("e", 0, 30)]
    assert planned(4, min_partitions=2) == [("b", 0, 20), ("b", 20, 40)]
    # Data is truncated while it is counted.
    streams.truncate = [20]
    assert planned(4, fail_on_data_loss="false") == [("b", 20, 50), ("c", 20, 30)]
    streams.truncate = [40]
    with pytest.raises(DataLossError):
        planned(4)
