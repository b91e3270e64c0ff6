"""What a controller reports, as values: also what this client would not accept from its caller."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
import trio

from pravega_wire import ScopedStream, StreamCut
from pravega_wire.controller import mapping
from pravega_wire.controller.refusals import done
from pravega_wire.controller.types import SegmentWithRange
from pravega_wire.errors import ControllerError, InvalidArgumentError, UnexpectedReplyError
from pravega_wire.proto import controller_pb2 as pb
from pravega_wire.segment.metadata import NULL_ATTRIBUTE, SegmentMetadata
from pravega_wire.stream import batch, resumable
from pravega_wire.values.groups import ReaderGroupConfig
from pravega_wire.values.policies import RetentionPolicy, RetentionType, ScaleType, StreamConfiguration

STREAM = ScopedStream("s", "t")


def of_size(minimum: int, maximum: int) -> pb.RetentionPolicy:
    return pb.RetentionPolicy(retentionType="SIZE", retentionParam=minimum, retentionMax=maximum)


@pytest.mark.parametrize(
    "fields",
    [
        {"retentionPolicy": of_size(0, 5)},
        {"retentionPolicy": of_size(100, 50)},
        {"tags": pb.Tags(tag=["", "x" * 300])},
        {"timestampAggregationTimeout": -1},
        {"scalingPolicy": pb.ScalingPolicy(scaleType="BY_RATE_IN_EVENTS_PER_SEC", minNumSegments=1)},
    ],
)
def test_what_java_accepts_is_visible(fields: dict[str, Any]) -> None:
    message = mapping.stream_config("s", "t", StreamConfiguration())
    for name in fields:
        message.ClearField(name)
    message.MergeFrom(pb.StreamConfig(**fields))
    found = mapping.stream_configuration(message)
    assert mapping.stream_config("s", "t", found) == message
    assert pickle.loads(pickle.dumps(found)) == found
    assert "StreamConfiguration(" in repr(found)


def test_a_failure_without_a_reason_may_pass() -> None:
    request = mapping.stream_config("s", "t", StreamConfiguration())
    with pytest.raises(ControllerError, match=r"FAILURE, without a reason; .* calling again helps") as caught:
        done("createStream", request, pb.CreateStreamStatus(status="FAILURE"))
    assert caught.value.status == "FAILURE"


def test_a_configuration_is_equal_to_what_was_sent() -> None:
    sent = StreamConfiguration(
        retention=RetentionPolicy.by_size(7), tags=frozenset({"a"}), timestamp_aggregation_timeout=1.5
    )
    found = mapping.stream_configuration(mapping.stream_config("s", "t", sent))
    assert found == sent
    assert hash(found) == hash(sent)


def unknown_retention(message: pb.StreamConfig) -> None:
    message.retentionPolicy.retentionType = 7  # type: ignore[assignment]


def unknown_scaling(message: pb.StreamConfig) -> None:
    message.scalingPolicy.scaleType = 7  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("change", "kind"), [(unknown_retention, RetentionType), (unknown_scaling, ScaleType)]
)
def test_an_unknown_policy_is_an_error_of_the_stream(
    change: Callable[[pb.StreamConfig], None], kind: type
) -> None:
    message = mapping.stream_config("s", "t", StreamConfiguration())
    change(message)
    with pytest.raises(UnexpectedReplyError, match=f"stream s/t.* unknown {kind.__name__} 7") as caught:
        mapping.stream_configuration(message)
    assert (caught.value.scope, caught.value.stream) == ("s", "t")


def group(**fields: Any) -> pb.ReaderGroupConfiguration:
    """A group as the controller reports it, with other values of these fields."""
    message = mapping.group_config("s", "g", ReaderGroupConfig.of([STREAM]))
    for name in fields:
        message.ClearField(name)
    message.MergeFrom(pb.ReaderGroupConfiguration(**fields))
    return message


def test_a_group_that_is_to_be_fetched_in_less_than_no_time_is_visible() -> None:
    assert mapping.group_configuration(group(groupRefreshTimeMillis=-5)).group_refresh_interval == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"readerGroupId": "x"},
        {"retentionType": 7},
        {"startingStreamCuts": []},
        {"maxOutstandingCheckpointRequest": 0},
    ],
)
def test_a_group_that_cannot_be_is_an_error_of_the_group(fields: dict[str, Any]) -> None:
    with pytest.raises(UnexpectedReplyError, match="reader group s/g: ") as caught:
        mapping.group_configuration(group(**fields))
    assert not isinstance(caught.value, InvalidArgumentError)
    assert caught.value.scope == "s"


@pytest.mark.parametrize(
    ("low", "high", "right"),
    [
        (0.0, 1.0, True),
        (0.5, 0.9999999999999999, True),
        (0.0, 0.0, False),
        (0.6, 0.5, False),
        (-0.1, 0.5, False),
        (float("inf"), float("inf"), False),
        (0.0, float("inf"), False),
        (0.0, float("nan"), False),
    ],
)
def test_what_is_no_range_is_an_error_of_the_stream(low: float, high: float, right: bool) -> None:
    of = pb.SegmentId(streamInfo=pb.StreamInfo(scope="s", stream="t"), segmentId=5)
    message = pb.SegmentRange(segmentId=of, minKey=low, maxKey=high)
    if right:
        assert mapping.ranges([message]) == [SegmentWithRange(5, low, high)]
    else:
        with pytest.raises(UnexpectedReplyError, match="range of segment 5") as caught:
            mapping.ranges([message])
        assert (caught.value.scope, caught.value.stream) == ("s", "t")


OF = pb.StreamInfo(scope="s", stream="t")


def messages_of(ranges: list[tuple[float, float]]) -> list[pb.SegmentRange]:
    return [
        pb.SegmentRange(segmentId=pb.SegmentId(streamInfo=OF, segmentId=number), minKey=low, maxKey=high)
        for number, (low, high) in enumerate(ranges)
    ]


@pytest.mark.parametrize("count", [1, 2, 3, 7, 49, 1000])
def test_segments_in_any_order_cover_the_key_space(count: int) -> None:
    ranges = [(number * (1.0 / count), (number + 1) * (1.0 / count)) for number in range(count)][::-1]
    assert [(each.low, each.high) for each in mapping.covering(messages_of(ranges), OF)] == ranges


@pytest.mark.parametrize(
    "ranges",
    [[], [(0.0, 0.5)], [(0.5, 1.0)], [(0.0, 0.4), (0.5, 1.0)], [(0.0, 0.6), (0.5, 1.0)], [(0.0, 2.0)],
     [(0.0, 1.0), (0.0, 1.0)]],
)  # fmt: skip
def test_segments_that_do_not_cover_the_key_space_are_an_error_of_the_stream(
    ranges: list[tuple[float, float]],
) -> None:
    """Otherwise events would go to a segment that is not for their key, or to none."""
    with pytest.raises(UnexpectedReplyError, match=r"stream s/t: .* do not follow each other") as caught:
        mapping.covering(messages_of(ranges), OF)
    assert (caught.value.scope, caught.value.stream) == ("s", "t")


def test_a_sealed_stream_has_no_segments() -> None:
    assert mapping.covering([], OF, or_none=True) == []


@pytest.mark.parametrize(("endpoint", "port"), [("", 9090), ("store", 0), ("store", -1), ("store", 70000)])
def test_what_is_no_address_of_a_store_is_an_error_of_the_stream(endpoint: str, port: int) -> None:
    """The system takes port 70000 for 4464."""
    segment = pb.SegmentId(streamInfo=OF, segmentId=5)
    with pytest.raises(
        UnexpectedReplyError, match=rf"'{endpoint}', port {port}, as .* of segment 5"
    ) as caught:
        mapping.node_uri(pb.NodeUri(endpoint=endpoint, port=port), segment)
    assert (caught.value.scope, caught.value.stream) == ("s", "t")


def controller(between: list[int], of_epoch: list[SegmentWithRange]) -> Any:
    """A client's parts, with a controller that answers so."""

    async def get_segments(*args: object) -> dict[int, int]:
        return {0: 0}

    async def get_segments_between(*args: object, **options: object) -> list[int]:
        return between

    async def get_epoch_segments(*args: object) -> list[SegmentWithRange]:
        return of_epoch

    calls = (get_segments, get_segments_between, get_epoch_segments)
    return SimpleNamespace(controller=SimpleNamespace(**{each.__name__: each for each in calls}))


@pytest.mark.parametrize("between", [[], [0]])
def test_a_writer_that_is_resumed_needs_the_segments_of_the_stream(between: list[int]) -> None:
    core = controller(between, [SegmentWithRange(1, 0.0, 1.0)])
    with pytest.raises(UnexpectedReplyError, match="of stream s/t") as caught:
        trio.run(resumable._stored, core, STREAM, lambda name: UUID(int=0))
    assert (caught.value.scope, caught.value.stream) == ("s", "t")


@pytest.mark.parametrize(("found", "number"), [(NULL_ATTRIBUTE, 0), (NULL_ATTRIBUTE + 1, 0), (-1, 0), (7, 7)])
def test_a_store_has_no_event_of_a_writer_with_a_number_below_one(
    monkeypatch: pytest.MonkeyPatch, found: int, number: int
) -> None:
    """Otherwise the first event would get number 0, and count as stored."""

    async def attribute(self: object, attribute_id: UUID) -> int:
        return found

    monkeypatch.setattr(SegmentMetadata, "attribute", attribute)
    core = controller([0], [SegmentWithRange(0, 0.0, 1.0)])
    core.stores = None
    core.target = lambda *args: SimpleNamespace(name="s/t/0.#epoch.0")
    assert trio.run(resumable._stored, core, STREAM, lambda name: UUID(int=0)).numbers == (number,)


def test_a_sealed_stream_without_segments_is_an_error_of_the_stream() -> None:
    with pytest.raises(UnexpectedReplyError, match="no segments of stream s/t"):
        trio.run(batch.last_segments, controller([], []), STREAM)


@pytest.mark.parametrize("between", [[], [0], [1, 7]])
def test_segments_of_a_cut_that_are_not_listed_are_an_error_of_the_stream(
    monkeypatch: pytest.MonkeyPatch, between: list[int]
) -> None:
    """Otherwise their events would be left out of what is read."""

    async def resolve_bound(core: object, stream: object, bound: StreamCut, default: str) -> StreamCut:
        return bound

    monkeypatch.setattr(batch, "resolve_bound", resolve_bound)
    cuts = StreamCut(STREAM, {0: 0}), StreamCut(STREAM, {1: 5})
    core = controller(between, [])
    with pytest.raises(UnexpectedReplyError, match=r"stream s/t, without \[\d") as caught:
        trio.run(batch.segment_ranges, core, STREAM, *cuts, "raise")
    assert (caught.value.scope, caught.value.stream) == ("s", "t")


def test_a_segment_that_is_listed_twice_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = StreamCut(STREAM, {0: 0})

    async def resolve_bound(*args: object) -> StreamCut:
        return cut

    async def segment_infos(core: object, stream: object, ids: list[int]) -> dict[int, Any]:
        return {each: SimpleNamespace(start_offset=0, write_offset=9) for each in ids}

    monkeypatch.setattr(batch, "resolve_bound", resolve_bound)
    monkeypatch.setattr(batch, "segment_infos", segment_infos)
    core = controller([0, 1, 0, 1], [])
    core.target = lambda stream, segment_id, access: SimpleNamespace(name=f"s/t/{segment_id}.#epoch.0")
    found = trio.run(batch.segment_ranges, core, STREAM, None, None, "raise")
    assert [each.segment_id for each in found] == [1]
