"""Dividing segments between events, and calculating with cuts, against a real server."""

from __future__ import annotations

import pickle
from dataclasses import replace
from itertools import pairwise

import pytest
import trio

from pravega_wire import (
    BoundaryIndex,
    PravegaClient,
    PravegaConfig,
    SegmentRange,
    StreamCut,
    open_client,
    sync,
)
from pravega_wire.errors import (
    DataLossError,
    DecodeError,
    InvalidArgumentError,
    InvalidStreamCutError,
    NoSuchSegmentError,
    TruncatedInputError,
    UndecidableCutError,
)
from pravega_wire.segment.metadata import SegmentMetadata
from pravega_wire.segment.reader import RangeReader
from pravega_wire.segment.store import SegmentTarget
from pravega_wire.values.types import CutOrder
from tests.inside import core_of

MIXED = (
    [b"tiny %d" % n for n in range(30_000)]
    + [b"L%d" % n * 700_000 for n in range(3)]  # 1.4 MB each
    + [b"", b"x"] * 500
    + [b"H" * 6_000_000, b"I" * 7_000_000]
    + [b"end" * (n % 400) for n in range(3000)]
)


async def fill(client: PravegaClient, stream: str, events: list[bytes], key: str | None = None) -> None:
    keys = None if key is None else [key] * len(events)
    async with client.event_writer(stream) as writer:
        await writer.write_events(events, routing_keys=keys)
        await writer.flush()


async def read(client: PravegaClient, segment_range: SegmentRange) -> list[bytes]:
    return [event async for batch in client.read_range(segment_range) for event in batch]


def check_cover(whole: SegmentRange, pieces: list[SegmentRange]) -> None:
    assert pieces[0].start_offset == whole.start_offset
    assert pieces[-1].end_offset == whole.end_offset
    assert all(each.length > 0 for each in pieces)
    assert all(each.segment == whole.segment for each in pieces)
    assert all(low.end_offset == high.start_offset for low, high in pairwise(pieces))


async def test_pieces_of_a_segment_are_read_as_the_whole(
    config: PravegaConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    received = 0
    receive = RangeReader.receive

    async def counted(self: RangeReader) -> memoryview | None:
        nonlocal received
        chunk = await receive(self)
        received += 0 if chunk is None else len(chunk)
        return chunk

    async with open_client(config) as client:
        await client.create_stream("mixed", 1)
        await fill(client, "mixed", MIXED)
        (whole,) = await client.segment_ranges("mixed")
        assert await client.split_range(whole) == [whole]
        monkeypatch.setattr(RangeReader, "receive", counted)
        for limit in (50_000, 1_000_000, 2_000_000):
            received = 0
            pieces = await client.split_range(whole, limit)
            # not all of the large events were read
            assert received < whole.length - 3_000_000
            check_cover(whole, pieces)
            found: list[bytes] = []
            for each in pieces:
                events = await read(client, each)
                assert each.length <= limit or len(events) == 1
                found += events
            assert found == MIXED
            assert sum(each.length > limit for each in pieces) == (5 if limit < 1_400_000 else 2)
            assert len(pieces) <= 2 * whole.length // limit + 1
            assert await client.segment_ranges("mixed", max_range_bytes=limit) == pieces
        # sealed and shortened at its beginning it is the same, from there on
        cut = StreamCut(whole.stream, {0: pieces[1].start_offset})
        await client.truncate_stream("mixed", cut)
        await client.seal_stream("mixed")
        assert await client.segment_ranges("mixed", max_range_bytes=limit) == pieces[1:]
        with pytest.raises(DataLossError, match="gone"):
            await client.split_range(whole, limit)
        for bad in (0, -5, 2.5):
            with pytest.raises(InvalidArgumentError, match="max_"):
                await client.split_range(whole, bad)  # type: ignore[arg-type]
            with pytest.raises(InvalidArgumentError, match="max_range_bytes"):
                await client.segment_ranges("mixed", max_range_bytes=bad)  # type: ignore[arg-type]


async def test_what_is_no_boundary_is_found_out(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("inside", 1)
        await fill(client, "inside", [b"event %04d" % n for n in range(5000)])
        (whole,) = await client.segment_ranges("inside")
        for part, error in (
            (SegmentRange(whole.stream, 0, 5, whole.end_offset), DecodeError),
            (SegmentRange(whole.stream, 0, 0, whole.end_offset - 3), TruncatedInputError),
            (SegmentRange(whole.stream, 0, 0, whole.end_offset + 40), InvalidArgumentError),
        ):
            with pytest.raises(error) as caught:
                await client.split_range(part, 9000)
            assert caught.value.segment == whole.segment
        await client.create_stream("raw", 1)
        async with client.byte_stream_writer("raw") as writer:
            await writer.write(b"not an event, just text" * 1000)
        (raw,) = await client.segment_ranges("raw")
        with pytest.raises(DecodeError, match="no event begins at offset 0"):
            await client.split_range(raw, 9000)
        # An index that was tampered with: reading tells, whatever lies on the wrong side.
        index = await client.boundary_index(whole, spacing=1000)
        wrong = replace(index, marks=tuple(each + 3 for each in index.marks[:-1]))
        for each in await client.split_range(whole, 9000, index=wrong):
            with pytest.raises(DecodeError):
                await read(client, each)
        # A stream made anew under the same name has other segments, so an old index fits none.
        await client.delete_stream("inside", seal=True)
        await client.create_stream("inside", 1)
        await fill(client, "inside", [b"another event %04d" % n for n in range(5000)])
        for each in await client.split_range(whole, 9000, index=index):
            with pytest.raises(DataLossError):
                await read(client, each)
        (new,) = await client.segment_ranges("inside")
        assert new.segment_id != whole.segment_id


@pytest.mark.smoke
def test_an_index_is_kept_and_grows_with_the_segment(config: PravegaConfig) -> None:
    async def main() -> BoundaryIndex:
        async with open_client(config) as client:
            await client.create_stream("growing", 1)
            events = [b"%d" % n * (n % 90) for n in range(20_000)]
            await fill(client, "growing", events[:12_000])
            (first,) = await client.segment_ranges("growing")
            index = await client.boundary_index(first, spacing=10_000)
            index = BoundaryIndex.from_text(pickle.loads(pickle.dumps(index)).to_text())
            await fill(client, "growing", events[12_000:])
            (whole,) = await client.segment_ranges("growing")
            grown = await client.boundary_index(whole, spacing=10_000, known=index)
            assert grown == await client.boundary_index(whole, spacing=10_000)
            assert grown.marks[: len(index.marks)] == index.marks
            assert await client.boundary_index(first, spacing=10_000, known=grown) == grown
            pieces = grown.split(whole, 50_000)
            check_cover(whole, pieces)
            assert pieces == await client.split_range(whole, 50_000, index=index)
            assert [event for each in pieces for event in await read(client, each)] == events
            with pytest.raises(InvalidArgumentError, match="belong to segment"):
                other = SegmentRange(whole.stream, 1, 0, 10)
                await client.boundary_index(other, spacing=10_000, known=index)
            return grown

    grown = trio.run(main)
    with sync.open_client(config) as client:
        whole = grown.range
        assert client.boundary_index(whole, spacing=10_000) == grown
        assert client.split_range(whole, 50_000, index=grown) == grown.split(whole, 50_000)
        assert client.segment_ranges("growing", max_range_bytes=50_000) == client.split_range(whole, 50_000)


async def test_a_server_keeps_no_index(config: PravegaConfig) -> None:
    """Why there is a pass over the headers at all."""

    async with open_client(config) as client:
        await client.create_stream("large", 1)
        await fill(client, "large", [b"x" * 1000] * 20_000)
        segment = f"{config.scope}/large/0.#epoch.0"
        target = SegmentTarget(f"{segment}#index", str(config.scope), "large", 0)
        with pytest.raises(NoSuchSegmentError):
            await SegmentMetadata(core_of(client).stores, target).info()


def test_cuts_across_scales_against_the_server(config: PravegaConfig) -> None:
    async def main() -> None:
        async with open_client(config) as client:
            # two segments, of a policy that allows less
            await client.create_stream("scaled", 1)
            await client.scale_stream("scaled", [0], [(0.0, 0.5), (0.5, 1.0)])
            cuts = [await client.tail("scaled")]

            async def more(count: int) -> None:
                async with client.event_writer("scaled") as writer:
                    await writer.write_events(
                        [b"%d" % n for n in range(count)], routing_keys=[str(n) for n in range(count)]
                    )
                cuts.append(await client.tail("scaled"))

            async def scale(*ranges: tuple[float, float]) -> None:
                low = min(low for low, _ in ranges)
                high = max(high for _, high in ranges)
                old = [
                    each.segment_id
                    for each in await client.active_segments("scaled")
                    if low <= each.low and each.high <= high
                ]
                await client.scale_stream("scaled", old, ranges)
                cuts.append(await client.tail("scaled"))

            await more(300)
            await scale((0.0, 0.2), (0.2, 0.5))
            await more(200)
            await scale((0.0, 1.0))
            await scale((0.0, 0.4), (0.4, 0.7), (0.7, 1.0))
            await more(250)
            open_layout = await client.stream_layout("scaled")
            await scale((0.4, 1.0))
            await more(100)
            layout = pickle.loads(pickle.dumps(await client.stream_layout("scaled")))
            stream = layout.stream
            controller = core_of(client).controller
            for each in layout.segments:
                after = {one.segment_id for one in layout.successors(each.segment_id)}
                server = await client.successors(stream, each.segment_id)
                assert after == {one.segment_id for one in server.segments}
                for one in server.successors:
                    before = {each.segment_id for each in layout.predecessors(one.segment.segment_id)}
                    assert before == set(one.predecessors)
            assert await count_all(client) == 850
            for number, low in enumerate(cuts):
                layout.check(low)
                assert await controller.is_stream_cut_valid(stream.scope, stream.name, low.positions)
                for high in cuts[number:]:
                    ranges = await client.segment_ranges("scaled", low, high)
                    assert layout.ranges_between(low, high) == ranges
                    assert layout.bytes_between(low, high) == sum(each.length for each in ranges)
                    expected = CutOrder.BEFORE if ranges else CutOrder.EQUAL
                    assert layout.compare(low, high) is expected
                    assert layout.join(low, high) == high
                    assert layout.meet(high, low) == low
                    assert low.compare(high) in (expected, CutOrder.BEFORE, CutOrder.UNKNOWN)
            # One that is ahead on the left, and one that is ahead on the right
            first, second = cuts[1].positions, cuts[3].positions
            low_id, high_id = sorted(first)
            left = StreamCut(stream, {low_id: 0, high_id: first[high_id]})
            right = StreamCut(stream, {**second, high_id: 0})
            assert layout.compare(left, right) is CutOrder.OVERLAPPING
            upper, lower = layout.join(left, right), layout.meet(left, right)
            assert upper == StreamCut(stream, {**second, high_id: first[high_id]})
            assert lower == cuts[0]
            for each in (left, right, upper, lower):
                assert await controller.is_stream_cut_valid(stream.scope, stream.name, each.positions)
            for each in (left, right):
                whole = layout.ranges_between(lower, each) + layout.ranges_between(each, upper)
                assert sum(part.length for part in whole) == layout.bytes_between(lower, upper)
                assert layout.ranges_between(each, upper) == await client.segment_ranges(
                    "scaled", each, upper
                )
            with pytest.raises(InvalidStreamCutError, match="is not before"):
                layout.ranges_between(left, right)
            # What is refused here and there
            gap = StreamCut(stream, {low_id: 0})
            twice = StreamCut(stream, {**first, max(second): 0})
            for bad in (gap, twice):
                with pytest.raises(InvalidStreamCutError):
                    layout.check(bad)
                assert not await controller.is_stream_cut_valid(stream.scope, stream.name, bad.positions)
            # To a server an offset below 0 is not an end; here it is.
            ends = StreamCut(stream, dict.fromkeys(first, -1))
            between = layout.ranges_between(cuts[0], ends)
            assert between == layout.ranges_between(cuts[0], layout.join(ends))
            assert between == await client.segment_ranges("scaled", cuts[0], layout.join(ends))
            assert between == await client.segment_ranges("scaled", cuts[0], ends)
            # The layout of before the last scale knows what it knows.
            assert open_layout.compare(cuts[0], cuts[5]) is layout.compare(cuts[0], cuts[5])
            with pytest.raises(UndecidableCutError, match="created after the layout"):
                open_layout.compare(cuts[0], cuts[-1])
            # Truncated, then sealed
            await client.truncate_stream("scaled", cuts[3])
            await client.seal_stream("scaled")
            layout = await client.stream_layout("scaled")
            assert all(each.sealed or each.length is None for each in layout.segments)
            for start, end in ((cuts[0], cuts[-1]), (cuts[3], cuts[-1]), (cuts[1], cuts[4])):
                kept = await client.segment_ranges("scaled", start, end, on_truncated="skip_to_head")
                assert layout.ranges_between(start, end, on_truncated="skip_to_head") == kept
            with pytest.raises(DataLossError):
                layout.ranges_between(cuts[0], cuts[-1])
            with pytest.raises(DataLossError):
                await client.segment_ranges("scaled", cuts[0], cuts[-1])
            assert layout.bytes_between(await client.head("scaled"), await client.tail("scaled")) == sum(
                each.length for each in await client.segment_ranges("scaled")
            )
            ranges = await client.segment_ranges("scaled", max_range_bytes=500)
            assert sum([await count(client, each) for each in ranges]) == await count_all(client)
            assert len(ranges) > len(await client.segment_ranges("scaled"))

    async def count(client: PravegaClient, segment_range: SegmentRange) -> int:
        return len(await read(client, segment_range))

    async def count_all(client: PravegaClient) -> int:
        return sum([await count(client, each) for each in await client.segment_ranges("scaled")])

    trio.run(main)
    with sync.open_client(config) as client:
        assert [each.segment_id for each in client.stream_layout("scaled").segments]


async def test_cuts_with_segments_read_to_their_ends(config: PravegaConfig) -> None:
    """What the cut of a reader group says of a segment whose successors have not begun."""

    async with open_client(config) as client:
        await client.create_stream("ends", 2)
        async with client.event_writer("ends") as writer:
            await writer.write_events([b"x"] * 100, [f"key-{n}" for n in range(100)])
            await writer.flush()
            ends = (await client.tail("ends")).positions
            await client.scale_stream("ends", [0], [(0.0, 0.25), (0.25, 0.5)])
            await writer.write_events([b"y"] * 100, [f"key-{n}" for n in range(100)])
        stream = client.config.resolve("ends")
        cut = StreamCut(stream, {0: -1, 1: ends[1]})
        before = await client.segment_ranges("ends", end=cut)
        after = await client.segment_ranges("ends", start=cut)
        assert [(each.segment_id, each.end_offset) for each in before] == [(0, ends[0]), (1, ends[1])]
        events = [
            [event for each in ranges async for batch in client.read_range(each) for event in batch]
            for ranges in (before, after)
        ]
        assert events == [[b"x"] * 100, [b"y"] * 100]


async def test_the_last_of_49_segments_ends_before_the_key_space(config: PravegaConfig) -> None:
    """A server gives it the end 49 * (1/49), which is less than 1."""
    events = [b"%d" % number for number in range(200)]
    async with open_client(config) as client:
        await client.create_stream("many", 49)
        start = await client.tail("many")
        async with client.event_writer("many") as writer:
            await writer.write_events(events, routing_keys=[str(each) for each in range(200)])
        end = await client.tail("many")
        last = max(await client.active_segments("many"), key=lambda each: each.low)
        assert last.high < 1.0
        middle = (last.low + last.high) / 2
        await client.scale_stream("many", [last.segment_id], [(last.low, middle), (middle, last.high)])
        layout = await client.stream_layout("many")
        assert layout.compare(start, end) is CutOrder.BEFORE
        assert layout.ranges_between(start, end) == await client.segment_ranges("many", start, end)
        found = [event async for batch in client.read_events("many", start, end) for event in batch]
        assert sorted(found) == sorted(events)
