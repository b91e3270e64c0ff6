"""What each micro-batch of a streaming query has: planned and read against a real server, without Spark."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from pravega_wire import PravegaConfig, ScopedStream, SegmentRange, StreamCut
from pravega_wire.errors import (
    CorruptedStateError,
    DataLossError,
    InvalidArgumentError,
    InvalidStreamCutError,
    StreamNotFoundError,
)
from pravega_wire.sync import PravegaClient, open_client
from pravega_wire.testing import FaultProxy
from spark_adapter.options.read import ReadOptions, config_options
from spark_adapter.reading.admission import Limit
from spark_adapter.reading.arrow import arrow_batches, batches_of
from spark_adapter.reading.stream_planner import StreamPlanner, batch_ranges
from tests.spark.helpers import outage

Pair = tuple[str, bytes]
"""Routing key and event."""


class Query:
    """Does what Spark does: keeps offsets as text, asks for the next one and for what lies between."""

    def __init__(self, config: PravegaConfig, **options: object) -> None:
        self.given = {**config_options(config), **{name: str(value) for name, value in options.items()}}
        self.ends: list[str] = []
        self.batches: list[list[SegmentRange]] = []
        self.restart()

    def restart(self, **options: object) -> None:
        """In another process, perhaps with other options."""
        self.given |= {name: str(value) for name, value in options.items()}
        self.options = ReadOptions.parse(self.given, "readStream")
        self.planner = StreamPlanner(self.options)

    @property
    def limit(self) -> Limit:
        return Limit(self.options.max_bytes, self.options.max_events)

    def trigger(self) -> bool:
        """One more batch; False when there is nothing for it."""
        start = json.loads(self.ends[-1]) if self.ends else as_spark(self.planner.initial())
        end = as_spark(self.planner.latest(start, self.limit))
        if self.ends and end == start:
            return False
        self.batches.append(self.planner.ranges(start, end))
        self.ends.append(json.dumps(end))
        # Run again in another process it is the same.
        assert self.again(len(self.ends) - 1) == self.batches[-1]
        return True

    def again(self, number: int) -> list[SegmentRange]:
        """What a batch has for a planner that knows nothing but the checkpoint."""
        planner = StreamPlanner(self.options)
        start = json.loads(self.ends[number - 1]) if number else as_spark(planner.initial())
        return planner.ranges(start, json.loads(self.ends[number]))

    def run(self) -> list[bytes]:
        """Batches up to the end; what these have."""
        first = len(self.batches)
        while self.trigger():
            pass
        return self.events(first)

    def events(self, first: int = 0, last: int | None = None) -> list[bytes]:
        return [
            event.as_py()
            for parts in self.batches[first:last]
            for part in parts
            for batch in arrow_batches(self.options.config, part, ("event",))
            for event in batch.column(0)
        ]


def as_spark(offset: dict[str, Any]) -> dict[str, Any]:
    """Through text, as Spark keeps it."""
    found: dict[str, Any] = json.loads(json.dumps(offset))
    return found


def append(
    client: PravegaClient, stream: str | ScopedStream, text: str, count: int, size: int = 0
) -> list[Pair]:
    """Numbered events of ten keys."""
    pairs = [(f"k{n % 10}", f"{text} {n} ".encode().ljust(size, b".")) for n in range(count)]
    with client.event_writer(stream) as writer:
        writer.write_events([event for _, event in pairs], routing_keys=[key for key, _ in pairs])
    return pairs


def check(events: list[bytes], pairs: list[Pair]) -> None:
    """Every event is there once, and those of each key are in the order in which they were written."""
    key_of = {event: key for key, event in pairs}
    assert sorted(events) == sorted(key_of)
    for key in set(key_of.values()):
        assert [each for each in events if key_of[each] == key] == [each for k, each in pairs if k == key]


def split(client: PravegaClient, stream: str) -> None:
    """Two segments become three."""
    low, high = client.active_segments(stream)
    client.scale_stream(stream, [low.segment_id, high.segment_id], [(0.0, 0.3), (0.3, 0.7), (0.7, 1.0)])


def merge(client: PravegaClient, stream: str) -> None:
    """Three segments become two, of which one follows two and the middle one has two that follow."""
    ids = [each.segment_id for each in client.active_segments(stream)]
    client.scale_stream(stream, ids, [(0.0, 0.6), (0.6, 1.0)])


@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"max_bytes_per_trigger": 700},
        {"maxOffsetsPerTrigger": 37},
        {"approx_bytes_per_trigger": 900, "max_events_per_trigger": 23},
    ],
    ids=["none", "bytes", "events", "both"],
)
def test_batches_follow_the_stream_through_scales(
    config: PravegaConfig, client: PravegaClient, stream: str, limits: dict[str, int]
) -> None:
    query = Query(config, stream=stream, **limits)
    pairs = append(client, stream, "a", 100)
    assert query.trigger()
    split(client, stream)
    pairs += append(client, stream, "b", 100, 50)
    assert query.trigger()
    query.restart()
    merge(client, stream)
    pairs += append(client, stream, "c", 60, 20)
    query.run()
    client.seal_stream(stream)
    assert query.run() == []
    check(query.events(), pairs)
    assert query.planner.report() == {
        "v": 1,
        "cuts": {f"spark/{stream}": client.tail(stream).to_text()},
        "backlog_bytes": 0,
        "skipped_bytes": 0,
        "skipped_segments_of_unknown_size": 0,
    }
    for number in range(len(query.batches)):
        found = query.events(number, number + 1)
        size = sum(8 + len(each) for each in found)
        assert len(found) <= (query.limit.events or len(found))
        assert size <= (query.limit.bytes or size)
        assert found
    if limits:
        assert len(query.batches) > 6


def test_backlog_is_what_the_limit_has_left(
    config: PravegaConfig, client: PravegaClient, stream: str
) -> None:
    append(client, stream, "a", 50, 92)
    query = Query(config, stream=stream, max_bytes_per_trigger=1000, max_partition_bytes=300)
    left = []
    while query.trigger():
        report = query.planner.report()
        assert report is not None
        left.append(report["backlog_bytes"])
        assert all(part.length <= 300 for part in query.batches[-1])
    assert left == [4000, 3000, 2000, 1000, 0]
    # Another number of partitions after a restart.
    pairs = append(client, stream, "b", 20, 92)
    query.restart(max_partition_bytes=100)
    check(query.run(), pairs)
    assert [len(parts) for parts in query.batches[-2:]] == [10, 10]
    pairs = append(client, stream, "c", 20, 92)
    query.restart(max_partition_bytes="1k", max_partition_events=3)
    check(query.run(), pairs)
    # Ten events of two segments, three to a partition.
    assert [len(parts) for parts in query.batches[-2:]] == [4, 4]


def test_one_large_event_goes_alone(config: PravegaConfig, client: PravegaClient, stream: str) -> None:
    pairs = append(client, stream, "a", 20)
    with client.event_writer(stream) as writer:
        writer.write_event(b"L" * 3_000_000, "k1")
    pairs += [("k1", b"L" * 3_000_000), *append(client, stream, "b", 20)]
    query = Query(config, stream=stream, max_bytes_per_trigger=2000)
    check(query.run(), pairs)
    assert [b"L" * 3_000_000] in [query.events(n, n + 1) for n in range(len(query.batches))]


def test_a_server_that_is_away_for_a_while_ends_no_query(
    config: PravegaConfig, client: PravegaClient, stream: str
) -> None:
    """Controller and store are lost before each question, and are back within the limits of time."""
    with FaultProxy() as proxy:
        host, _, port = config.controller_uri.removeprefix("tcp://").partition(":")
        address = f"tcp://127.0.0.1:{proxy.endpoint(host, int(port))}"
        query = Query(replace(config, controller_uri=address), stream=stream, max_bytes_per_trigger=500)
        with open_client(query.options.config, address_map=proxy.address_map) as through:
            query.planner = StreamPlanner(query.options, client=lambda: through)
            threads = set(threading.enumerate())
            pairs = append(client, stream, "a", 40)
            start = offset = as_spark(query.planner.initial())
            ranges: list[SegmentRange] = []
            cuts = proxy.cuts
            while True:
                outage(proxy)
                end = as_spark(query.planner.latest(offset, query.limit))
                if end == offset:
                    break
                outage(proxy)
                ranges += query.planner.ranges(offset, end)
                offset = end
            assert proxy.cuts > cuts
            # Threads of one call have ended with it.
            assert not [each for each in set(threading.enumerate()) - threads if "streams" in each.name]
    query.options = replace(query.options, config=config)
    query.batches.append(ranges)
    check(query.events(), pairs)
    assert start["from"] == start["cuts"]


def test_starts_and_ends(config: PravegaConfig, client: PravegaClient, stream: str) -> None:
    first = append(client, stream, "a", 30)
    middle = client.tail(stream)
    second = append(client, stream, "b", 30)
    latest = Query(config, stream=stream, startingOffsets="latest", end_stream_cut="unbounded")
    assert latest.run() == []
    bounded = Query(config, stream=stream, end_stream_cut="latest", max_events_per_trigger=25)
    at_cut = Query(config, stream=stream, start_stream_cut=middle.to_text())
    to_cut = Query(config, stream=stream, end_stream_cut=middle.to_text())
    assert bounded.trigger()
    split(client, stream)
    third = append(client, stream, "c", 30)
    # Run again, a first batch begins where it began, whatever is the latest now.
    assert latest.again(0) == []
    check(latest.run(), third)
    check(at_cut.run(), second + third)
    check(to_cut.run(), first)
    # The end that was the latest when the query started stays what it was.
    bounded.restart()
    bounded.run()
    check(bounded.events(), first + second)
    bounded.restart()
    assert bounded.run() == []
    # An explicit end can be moved; before what was read it gives nothing.
    bounded.restart(end_stream_cut=middle.to_text())
    assert bounded.run() == []
    bounded.restart(end_stream_cut="unbounded")
    check(bounded.run(), third)
    at_cut.restart(end_stream_cut=StreamCut(middle.stream, {9: 0}).to_text())
    with pytest.raises(InvalidStreamCutError, match="has no segment"):
        at_cut.run()


def test_a_run_up_to_now_ends_there(config: PravegaConfig, client: PravegaClient, stream: str) -> None:
    first = append(client, stream, "a", 30)
    query = Query(config, stream=stream, max_events_per_trigger=20)
    query.planner.fix_target()
    second = append(client, stream, "b", 30)
    split(client, stream)
    check(query.run(), first)
    assert len(query.batches) == 2
    query.restart()
    query.planner.fix_target()
    check(query.run(), second)
    latest = Query(config, stream=stream, start_stream_cut="latest")
    latest.planner.fix_target()
    third = append(client, stream, "c", 3)
    assert latest.run() == []
    latest.restart()
    latest.planner.fix_target()
    check(latest.run(), third)


def test_truncated_data_fails_the_query_or_is_counted(
    config: PravegaConfig, client: PravegaClient, stream: str, caplog: pytest.LogCaptureFixture
) -> None:
    append(client, stream, "a", 40, 92)
    strict = Query(config, stream=stream, max_bytes_per_trigger=1000)
    lenient = Query(config, stream=stream, max_bytes_per_trigger=1000, failOnDataLoss="false")
    whole = Query(config, stream=stream, fail_on_data_loss="false")
    for query in (strict, lenient, whole):
        assert query.trigger()
    assert len(strict.events()) == 10
    append(client, stream, "lost", 40, 92)
    client.truncate_stream(stream, client.tail(stream))
    kept = append(client, stream, "b", 40, 92)
    with pytest.raises(
        DataLossError, match=rf"stream spark/{stream}: .*bytes \d+ to \d+ .*are gone.*fail_on_data_loss"
    ) as caught:
        strict.trigger()
    assert (caught.value.stream, caught.value.scope) == (stream, "spark")
    assert f"spark/{stream}/" in (caught.value.segment or "")
    with pytest.raises(DataLossError, match="truncated"):
        strict.again(0)
    with caplog.at_level(logging.WARNING):
        check(lenient.run(), kept)
        check(whole.run(), kept)
    # What was lost is in the numbers of the query, and in the log.
    for query, lost in ((lenient, 7000), (whole, 4000)):
        report = query.planner.report()
        assert report is not None
        assert (report["skipped_bytes"], report["skipped_segments_of_unknown_size"]) == (lost, 0)
    said = [
        each.getMessage() for each in caplog.records if each.name == "spark_adapter.reading.stream_planner"
    ]
    assert len(said) == 4  # two segments, two queries
    assert all(f"stream spark/{stream}, segment spark/{stream}/" in each for each in said)
    assert lenient.again(0) == []  # a batch that is gone as a whole
    # Segments that are deleted as a whole take their length with them.
    split(client, stream)
    append(client, stream, "lost too", 40, 92)
    client.truncate_stream(stream, client.tail(stream))
    kept = append(client, stream, "c", 40, 92)
    check(lenient.run(), kept)
    report = lenient.planner.report()
    assert report is not None
    assert (report["skipped_bytes"], report["skipped_segments_of_unknown_size"]) == (7000 + 4000, 2)


def test_what_is_truncated_before_a_task_reads_it(
    config: PravegaConfig, client: PravegaClient, stream: str, caplog: pytest.LogCaptureFixture
) -> None:
    append(client, stream, "a", 40)
    cut = client.tail(stream)
    kept = append(client, stream, "b", 40)
    parts = client.segment_ranges(stream)
    client.truncate_stream(stream, cut)
    with pytest.raises(DataLossError):
        list(batches_of(config, parts[0], ("event",), skip_lost=False))
    events = [
        row.as_py()
        for part in parts
        for batch in batches_of(config, part, ("event",), skip_lost=True)
        for row in batch.column("event")
    ]
    check(events, kept)
    said = [each.getMessage() for each in caplog.records if each.name == "spark_adapter.reading.skip_lost"]
    assert said == [
        f"stream spark/{stream}, segment {part.segment}: skipped {cut.positions[part.segment_id]} bytes from "
        "offset 0 that were truncated before a task had read them"
        for part in parts
    ]
    split(client, stream)
    client.truncate_stream(stream, client.tail(stream))
    assert [each for part in parts for each in batches_of(config, part, ("event",), skip_lost=True)] == []


def test_a_stream_that_is_deleted_or_made_anew(
    config: PravegaConfig, client: PravegaClient, stream: str, caplog: pytest.LogCaptureFixture
) -> None:
    append(client, stream, "a", 10)
    query = Query(config, stream=stream)
    lenient = Query(config, stream=stream, fail_on_data_loss="false")
    assert query.trigger()
    assert lenient.trigger()
    numbers = {each.segment_id for each in client.stream_layout(stream).segments}
    client.delete_stream(stream, seal=True)
    with pytest.raises(StreamNotFoundError, match=rf"stream spark/{stream} was deleted"):
        query.trigger()
    lenient.trigger()
    assert "was deleted; the query continues without it" in caplog.text
    client.create_stream(stream, 2)
    # As much as the query has read, and more: the controller does not use the numbers of segments again.
    renewed = append(client, stream, "b", 30)
    assert numbers.isdisjoint(each.segment_id for each in client.stream_layout(stream).segments)
    with pytest.raises(InvalidStreamCutError, match=r"deleted and created again.*another checkpointLocation"):
        query.trigger()
    late = Query(config, stream=stream, fail_on_data_loss="false")
    late.ends = list(query.ends)
    check(late.run(), renewed)
    assert "created again since the query read it up to" in caplog.text
    report = late.planner.report()
    assert report is not None
    assert report["skipped_segments_of_unknown_size"] == 2
    pairs = append(client, stream, "c", 10)
    late.restart()
    check(late.run(), pairs)
    # A batch of the old stream that is run again.
    assert lenient.again(0) == []
    with pytest.raises(InvalidStreamCutError, match=r"deleted and created again"):
        query.again(0)
    # A sealed stream has nothing new: it is asked about once more, and then no more.
    client.seal_stream(stream)
    assert not late.trigger()
    client.delete_stream(stream)
    assert not late.trigger()


def test_several_streams_and_those_that_come_later(config: PravegaConfig, client: PravegaClient) -> None:
    prefix = f"several-{uuid4().hex[:8]}"
    names = [f"{prefix}-{letter}" for letter in "abc"]
    for each in names[:2]:
        client.create_stream(each, 2)
    pairs = [pair for each in names[:2] for pair in append(client, each, each, 30)]
    named = Query(config, streams=",".join(reversed(names[:2])), max_events_per_trigger=17)
    matched = Query(config, subscribePattern=f"{prefix}-.", stream_discovery_interval=0)
    target = Query(config, stream_pattern=f"{prefix}-.")
    target.planner.fix_target()
    nothing = Query(config, stream_pattern=f"{prefix}-.x", stream_discovery_interval=0)
    # Within a key of one stream the order holds; keys of different streams are different keys.
    streams = {event: event.split(b" ")[0].decode() for _, event in pairs}

    def check_all(events: list[bytes]) -> None:
        check(events, [(key + streams[event], event) for key, event in pairs])

    check_all(named.run())
    assert len(named.batches) == 4
    for parts in named.batches:
        assert {part.stream.name for part in parts} == set(names[:2])  # shared
        assert parts == sorted(parts)
    assert matched.trigger()
    check_all(matched.events())
    assert list(json.loads(matched.ends[0])["cuts"]) == [f"spark/{each}" for each in names[:2]]
    nothing.run()
    assert nothing.batches == [[]]
    # Another stream.
    client.create_stream(names[2], 2)
    client.create_stream(f"{prefix}-ax", 1)
    more = append(client, names[2], names[2], 30)
    check(matched.run(), more)
    check(nothing.run(), [])
    extra = append(client, f"{prefix}-ax", "x", 5)
    check(nothing.run(), extra)
    pairs, streams = pairs + more, {**streams, **{event: names[2] for _, event in more}}
    check_all(matched.events())
    # In a list a stream is added by a restart, and none is taken away.
    named.restart(streams=",".join(names))
    check(named.run(), more)
    named.restart(streams=names[0])
    with pytest.raises(InvalidArgumentError, match=f"position in stream spark/{names[1]}.*add the stream to"):
        named.trigger()
    # What was there when a run up to now began.
    found = target.run()
    check_all([*found, *(event for _, event in more)])
    assert {part.stream.name for parts in target.batches for part in parts} == set(names[:2])
    # The same for a batch read.
    options = ReadOptions.parse({**config_options(config), "stream_pattern": f"{prefix}-."})
    ranges = batch_ranges(client, options)
    assert ranges == sorted(ranges)
    read = [each for part in ranges for batch in client.read_range(part) for each in batch.to_list()]
    check_all(read)
    # A place for each stream.
    both = {**config_options(config), "streams": ",".join(names[:2])}
    first, second = (f"spark/{each}" for each in names[:2])
    tail = client.tail(names[0]).to_text()
    options = ReadOptions.parse({**both, "endingOffsets": json.dumps({first: tail, second: "latest"})})
    assert batch_ranges(client, options) == [each for each in ranges if each.stream.name in names[:2]]
    starts = json.dumps({names[0]: tail, second: "earliest"})
    options = ReadOptions.parse({**both, "startingOffsets": starts})
    assert batch_ranges(client, options) == [each for each in ranges if each.stream.name == names[1]]
    starts = json.dumps({names[0]: "earliest", second: "latest"})
    placed = Query(config, streams=",".join(names[:2]), startingOffsets=starts, endingOffsets="latest")
    append(client, names[0], "beyond the end", 5)
    assert sorted(placed.run()) != []
    assert {part.stream.name for parts in placed.batches for part in parts} == {names[0]}
    with pytest.raises(InvalidArgumentError, match=f"'start_stream_cut': stream {first} has no watermarks"):
        Query(config, streams=names[0], startingOffsets=json.dumps({first: 5})).trigger()


def test_times_by_watermarks(config: PravegaConfig, client: PravegaClient, stream: str) -> None:
    def options(use: Any = "read", **given: object) -> ReadOptions:
        texts = {name: str(value) for name, value in given.items()}
        return ReadOptions.parse({**config_options(config), "stream": stream, **texts}, use)

    def read(**given: object) -> list[int]:
        parts = batch_ranges(client, options(**given))
        return [int(each) for part in parts for batch in client.read_range(part) for each in batch.to_list()]

    with pytest.raises(
        InvalidArgumentError, match=rf"'starting_timestamp': stream spark/{stream} has no waterm"
    ):
        read(startingTimestamp=5)
    now, written = 1_000_000, list[int]()
    with client.event_writer(stream) as writer:
        # The controller looks every ten seconds. The second mark is a proof for the first.
        while len(marks := client.watermarks(stream)) < 2:
            times = list(range(now, now + 1000, 100))
            writer.write_events([b"%d" % each for each in times], routing_keys=[str(each) for each in times])
            written += times
            now += 1000
            writer.note_time(now)
    mark = marks[0]
    at = marks[1].upper + 1
    late = read(startingTimestamp=at)
    assert set(late) >= {each for each in written if each >= at}
    assert len(late) < len(written)
    assert min(late) >= mark.lower
    early = read(endingTimestamp=mark.lower)
    assert set(early) >= {each for each in written if each < mark.lower}
    assert sorted(early + late) == written
    assert read(startingTimestamp="1970-01-01T00:00:00+00:00", endingTimestamp="2026-01-01T00:00:00Z") != []
    assert sorted(read(startingTimestamp=1)) == written
    assert sorted(read(endingTimestamp=now * 2)) == written
    query = Query(config, stream=stream, startingTimestamp=at)
    assert sorted(map(int, query.run())) == sorted(late)
    query = Query(config, stream=stream, endingTimestamp=mark.lower)
    assert sorted(map(int, query.run())) == sorted(early)
    ends = json.dumps({stream: now * 2})
    query = Query(config, stream=stream, startingOffsets=json.dumps({stream: at}), endingOffsets=ends)
    assert sorted(map(int, query.run())) == sorted(late)


def test_offsets_of_others_are_refused(config: PravegaConfig, client: PravegaClient, stream: str) -> None:
    planner = Query(config, stream=stream).planner
    good = planner.initial()
    cut = client.tail(stream).to_text()
    name = f"spark/{stream}"
    wrong: list[tuple[Any, type[Exception], str]] = [
        ({**good, "v": 2}, CorruptedStateError, "version 2, written by a newer"),
        ({**good, "v": "1"}, CorruptedStateError, "not an offset of the format"),
        ({"offset": 5}, CorruptedStateError, "not an offset of the format"),
        ([], CorruptedStateError, "not an offset of the format"),
        ({**good, "cuts": [cut]}, CorruptedStateError, "its field 'cuts'"),
        ({**good, "cuts": {name: cut[:-9]}}, CorruptedStateError, "is not a cut of stream"),
        ({**good, "cuts": {name: 7}}, CorruptedStateError, "is not a cut of stream"),
        ({**good, "cuts": {"spark/other": cut}}, CorruptedStateError, "not belong to stream spark/other"),
    ]
    for offset, kind, message in wrong:
        for call in calls(planner, offset, good):
            with pytest.raises(kind, match=message):
                call()
    other = Query(config, stream="another").planner
    with pytest.raises(
        InvalidArgumentError, match=f"position in stream {name}, but its options name spark/anoth"
    ):
        other.latest(good, Limit())


def calls(planner: StreamPlanner, offset: Any, good: dict[str, Any]) -> list[Callable[[], object]]:
    return [
        lambda: planner.latest(offset, Limit()),
        lambda: planner.ranges(offset, good),
        lambda: planner.ranges(good, offset),
    ]
