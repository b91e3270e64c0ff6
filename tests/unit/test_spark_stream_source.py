"""What Spark is told of the limits of a streaming read, and what it tells."""

from __future__ import annotations

import pickle
from unittest.mock import MagicMock, call

import pytest

pytest.importorskip("pyspark.sql.streaming.datasource")

from pyspark.sql.streaming import datasource as limits

from pravega_wire import ScopedStream, StreamCut
from pravega_wire.errors import CorruptedStateError, InvalidArgumentError
from spark_adapter.options.creating import Creation
from spark_adapter.options.read import ReadOptions
from spark_adapter.options.streams import StreamChoice
from spark_adapter.reading import micro_batches
from spark_adapter.reading.admission import Limit
from spark_adapter.reading.micro_batches import PravegaStreamReader
from spark_adapter.reading.offsets import StreamOffset


def reader(**options: object) -> PravegaStreamReader:
    given = {"stream": "a/b", **{name: str(value) for name, value in options.items()}}
    return PravegaStreamReader(ReadOptions.parse(given, "readStream"), Creation(False))


@pytest.fixture
def planners(monkeypatch: pytest.MonkeyPatch) -> list[MagicMock]:
    """The planners that readers have made."""
    made: list[MagicMock] = []

    def make(*arguments: object) -> MagicMock:
        made.append(MagicMock())
        return made[-1]

    monkeypatch.setattr(micro_batches, "StreamPlanner", make)
    return made


@pytest.mark.parametrize(
    ("options", "told", "meant", "wait"),
    [
        ({}, limits.ReadAllAvailable(), Limit(), False),
        ({"max_bytes_per_trigger": 10}, limits.ReadMaxBytes(10), Limit(10), False),
        ({"max_events_per_trigger": 5}, limits.ReadMaxRows(5), Limit(None, 5), False),
        (
            {"max_bytes_per_trigger": 10, "max_events_per_trigger": 5},
            limits.ReadMaxBytes(10),
            Limit(10, 5),
            False,
        ),
        ({"minOffsetsPerTrigger": 3}, limits.ReadMinRows(3), Limit(), True),
        (
            {"min_bytes_per_trigger": "3k", "maxTriggerDelay": "1.5s"},
            limits.ReadMinRows(1),
            Limit(),
            True,
        ),
        (
            {"min_events_per_trigger": 3, "max_events_per_trigger": 5},
            limits.ReadMaxRows(5),
            Limit(None, 5),
            True,
        ),
    ],
)
def test_the_limits_of_the_options(
    planners: list[MagicMock], options: dict[str, object], told: object, meant: Limit, wait: bool
) -> None:
    source = reader(**options)
    assert source.getDefaultReadLimit() == told
    source.latestOffset({}, told)
    # A trigger that wants everything gets it.
    source.latestOffset({}, limits.ReadAllAvailable())
    (planner,) = planners
    assert planner.mock_calls == [
        call.latest({}, meant, wait=wait),
        call.latest({}, Limit(), wait=False),
    ]
    with pytest.raises(InvalidArgumentError, match="limits in bytes and in events, not ReadMaxFiles"):
        source.latestOffset({}, limits.ReadMaxFiles(3))


def test_a_reader_goes_to_the_workers_without_its_planner(planners: list[MagicMock]) -> None:
    source = reader()
    for _ in range(2):
        source.initialOffset()
    assert len(planners) == 1
    # A mock cannot be pickled.
    copy = pickle.loads(pickle.dumps(source))
    assert copy.options == source.options
    copy.initialOffset()
    assert len(planners) == 2


def test_offsets_round_trip_in_one_form() -> None:
    streams = [ScopedStream("a", name) for name in "dbc"]
    cuts = {stream: StreamCut(stream, {number: 5, 9: -1}) for number, stream in enumerate(streams)}
    choice = StreamChoice(tuple(streams))
    offset = StreamOffset(cuts, {streams[1]: cuts[streams[1]]}, cuts)
    text = offset.to_dict()
    assert list(text) == ["v", "cuts", "from", "ends"]
    assert list(text["cuts"]) == ["a/b", "a/c", "a/d"]
    assert StreamOffset.parse(text, choice) == offset
    assert not offset.is_initial
    assert StreamOffset(cuts).to_dict().keys() == {"v", "cuts"}
    assert StreamOffset({}).to_dict() == {"v": 1, "cuts": {}}
    assert StreamOffset(cuts, cuts).is_initial


CUT = StreamCut(ScopedStream("a", "b"), {0: 5}).to_text()
NO_POSITION = StreamCut(ScopedStream("a", "b"), {}).to_text()


@pytest.mark.parametrize(
    ("offset", "why"),
    [
        ({"v": 1}, "has no field 'cuts'"),
        ({"v": 0, "cuts": {"a/b": CUT}}, "no version 0"),
        ({"v": -3, "cuts": {"a/b": CUT}}, "no version -3"),
        ({"v": 1, "Cuts": {"a/b": CUT}}, "an unknown field 'Cuts'"),
        ({"v": 1, "cuts": {"a/b": CUT}, "backlog_bytes": 5}, "an unknown field 'backlog_bytes'"),
        ({"v": 1, "cuts": {"a/b": NO_POSITION}}, "of stream a/b has no position"),
        ({"v": 1, "cuts": {"a/b": CUT}, "ends": {"a/b": NO_POSITION}}, "of stream a/b has no position"),
        ({"v": 1, "cuts": {}, "from": {"a/b": CUT}}, "it has a start for stream a/b, but not"),
    ],
)
def test_a_damaged_offset_is_not_a_beginning(offset: dict[str, object], why: str) -> None:
    choice = StreamChoice((ScopedStream("a", "b"),))
    with pytest.raises(CorruptedStateError, match=f"offset in the query's checkpoint is damaged: .*{why}"):
        StreamOffset.parse(offset, choice)


def test_an_offset_of_no_stream_where_there_may_be_none() -> None:
    empty = {"v": 1, "cuts": {}}
    assert StreamOffset.parse(empty, StreamChoice(scope="a", pattern=".*")) == StreamOffset({})
    named = StreamChoice((ScopedStream("a", "b"),))
    assert StreamOffset.parse(empty, named, may_be_empty=True).cuts == {}
    # Not damaged: this is what is stored when all streams were deleted and the query was to continue.
    with pytest.raises(InvalidArgumentError, match=r"no position in a/b: .*deleted.*fail_on_data_loss=false"):
        StreamOffset.parse(empty, named)
    with pytest.raises(CorruptedStateError, match="it has a start for stream a/b, but not"):
        StreamOffset.parse({**empty, "from": {"a/b": CUT}}, StreamChoice(scope="a", pattern=".*"))
