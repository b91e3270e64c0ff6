"""Archives of a stream of four epochs on a real server: there and back, whole after kill -9 at any point."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pravega_wire import (
    PravegaClient,
    PravegaConfig,
    ScalingPolicy,
    ScopedStream,
    StreamConfiguration,
    StreamCut,
    aio,
    open_client,
    sync,
)
from pravega_wire.archive import (
    Manifest,
    Stage,
    archive_stream,
    compare_archive,
    restore_stream,
    verify_archive,
)
from pravega_wire.archive.manifest import locked
from pravega_wire.errors import (
    ArchiveDamagedError,
    ArchiveError,
    ArchiveMismatchError,
    DataLossError,
    InvalidArgumentError,
    ScaleConflictError,
)
from tests.integration.archiving import PART_BYTES, key_of, run

KEYS = 16
PER_EPOCH = 160

KILLS = (
    (Stage.OPENED, 1),
    (Stage.SCALED, 1),
    (Stage.RESTORING, 2),
    (Stage.STORED, 1),
    (Stage.RESTORED, 1),
    (Stage.SCALED, 1),
    (Stage.RESTORING, 3),
    (Stage.RESTORED, 1),
    (Stage.RESTORING, 1),
    (Stage.STORED, 1),
)
"""One process after the other: where it ends, and at the how manieth time."""


async def fill(
    client: PravegaClient, stream: str, epochs: tuple[int, ...] = (1, 4, 2, 3), filler: str = "x"
) -> None:
    """Write the same number of events in each epoch; an event is its key, its number and a filler."""
    await client.create_stream(stream)
    for epoch, count in enumerate(epochs):
        active = [each.segment_id for each in await client.active_segments(stream)]
        if len(active) != count:
            await client.scale_stream(stream, active, [(at / count, (at + 1) / count) for at in range(count)])
        await fill_epoch(client, stream, epoch, filler)


async def fill_epoch(client: PravegaClient, stream: str, epoch: int = 0, filler: str = "x") -> None:
    async with client.event_writer(stream) as writer:
        for number in range(epoch * PER_EPOCH, (epoch + 1) * PER_EPOCH):
            key = f"key-{number * 7 % KEYS}"
            await writer.write_event(f"{key} {number} {filler * (number % 150)}".encode(), key)


async def contents(client: PravegaClient, stream: str) -> dict[tuple[int, float, float], list[bytes]]:
    """The events of each segment, by epoch and key range."""
    layout = await client.stream_layout(stream)
    found = {}
    for each in await client.segment_ranges(stream):
        segment = layout.segment(each.segment_id)
        events: list[bytes] = []
        async for batch in client.read_range(each):
            events += batch
        found[each.segment_id >> 32, segment.low, segment.high] = events
    return found


async def by_key(client: PravegaClient, stream: str) -> dict[str, list[bytes]]:
    """The events of each key, in the order in which a reader gets them."""
    found: dict[str, list[bytes]] = defaultdict(list)
    async for batch in client.read_events(stream):
        for event in batch:
            found[key_of(event)].append(event)
    return dict(found)


def job(config: PravegaConfig, what: str, stream: str, directory: Path) -> dict[str, Any]:
    uri, scope = config.controller_uri, config.scope
    return {"what": what, "uri": uri, "scope": scope, "stream": stream, "directory": str(directory)}


async def test_there_and_back_killed_at_each_point(config: PravegaConfig, tmp_path: Path) -> None:
    directory = tmp_path / "archive"
    async with open_client(config) as client:
        await fill(client, "source")
        archiving = job(config, "archive", "source", directory)
        for stage in (Stage.PLANNED, Stage.WRITING, Stage.WRITTEN, Stage.RENAMED, Stage.RECORDED):
            for nth in (1, 2) if stage is Stage.RENAMED else (1,):
                assert run({**archiving, "crash": stage.name, "nth": nth}) is None
        with pytest.raises(ArchiveError, match="is not complete"):
            await verify_archive(directory)
        assert run({**archiving, "crash": Stage.COMPLETE.name, "nth": 1}) is None
        assert run({**archiving, "crash": None, "nth": 0}) == 4 * PER_EPOCH
        manifest = await compare_archive(client, directory)
        check(manifest, directory)

        restoring = job(config, "restore", "restored", directory)
        for stage, nth in KILLS:
            assert run({**restoring, "crash": stage.name, "nth": nth}) is None, stage
        assert run({**restoring, "crash": None, "nth": 0}) == 0
        assert await contents(client, "restored") == await contents(client, "source")
        assert await by_key(client, "restored") == await by_key(client, "source")
        # What is written now with the same keys comes after what was restored.
        async with client.event_writer("restored") as writer:
            for number in range(KEYS):
                await writer.write_event(f"key-{number} last".encode(), f"key-{number}")
        for key, events in (await by_key(client, "restored")).items():
            assert events[-1] == f"{key} last".encode()
        # The archive is restored: another call writes nothing, and does not scale.
        assert (await restore_stream(client, directory, "restored")).written == 0


def check(manifest: Manifest, directory: Path) -> None:
    """The manifest and the files say the same, and other programs can read them."""
    assert [each.epoch for each in manifest.layouts] == [0, 1, 2, 3]
    assert [len(each.ranges) for each in manifest.layouts] == [1, 4, 2, 3]
    assert {each.name for _, each in manifest.files()} == {
        each.name for each in (directory / "events").iterdir()
    }
    assert max(each.end_offset - each.start_offset for _, each in manifest.files()) <= PART_BYTES
    assert len(list(manifest.files())) > len(manifest.segments) == 10
    for segment in manifest.segments:
        for each in segment.predecessors:
            (before,) = [one for one in manifest.segments if one.segment_id == each]
            assert before.epoch < segment.epoch
            assert before.low < segment.high
            assert segment.low < before.high
            assert segment.segment_id in before.successors
    table = pq.read_table(directory / "events")
    assert table.num_rows == manifest.events == 4 * PER_EPOCH
    numbers = sorted(int(each.split(b" ")[1]) for each in table.column("event").to_pylist())
    assert numbers == list(range(4 * PER_EPOCH))


async def test_restoring_by_keys_killed_on_the_way(config: PravegaConfig, tmp_path: Path) -> None:
    async with open_client(config) as client:
        await fill(client, "source")
        await archive_stream(client, "source", tmp_path, part_bytes=PART_BYTES)
        restoring = job(config, "restore by key", "restored", tmp_path)
        assert run({**restoring, "crash": Stage.OPENED.name, "nth": 1}) is None
        # Nothing is stored, but events of a killed process could still be on their way.
        with pytest.raises(ArchiveError, match="was begun with a key function"):
            await restore_stream(client, tmp_path, "restored")
        for stage, nth in (
            (Stage.RESTORING, 3),
            (Stage.RESTORING, 1),
            (Stage.STORED, 1),
            (Stage.RESTORED, 1),
        ):
            assert run({**restoring, "crash": stage.name, "nth": nth}) is None
        assert run({**restoring, "crash": None, "nth": 0}) == 0
        assert await by_key(client, "restored") == await by_key(client, "source")
        assert len(await client.active_segments("restored")) == 3
        with pytest.raises(ArchiveError, match="was begun with a key function"):
            await restore_stream(client, tmp_path, "restored")


async def test_a_part_of_a_stream(config: PravegaConfig, tmp_path: Path) -> None:
    """Between two cuts, of which the first is within segments of two epochs."""
    async with open_client(config) as client:
        await fill(client, "source", (2, 3))
        source = await contents(client, "source")
        layout = await client.stream_layout("source")
        # After the first event of each segment of the first epoch that has events.
        ranges = (await client.segment_ranges("source"))[:2]
        first = [len(events[0]) + 8 for events in source.values()][:2]
        start = StreamCut(
            layout.stream, {each.segment_id: at for each, at in zip(ranges, first, strict=True)}
        )
        end = await client.tail("source")
        async with client.event_writer("source") as writer:
            await writer.write_event(b"key-0 later", "key-0")
        manifest = await archive_stream(client, "source", tmp_path, start=start, end=end.to_text())
        assert manifest.events == 2 * PER_EPOCH - 2
        assert manifest.payload_bytes == layout.bytes_between(start, end) - 8 * manifest.events
        with pytest.raises(InvalidArgumentError, match="bytes from 1 to 1073741824, not 1073741825"):
            await archive_stream(client, "source", tmp_path / "huge", part_bytes=(1 << 30) + 1)
        with pytest.raises(ArchiveError, match="with another start"):
            await archive_stream(client, "source", tmp_path, start=end)
        with pytest.raises(ArchiveError, match=r"of stream .*/source, not of .*/other"):
            await archive_stream(client, "other", tmp_path)
        await client.create_stream("other", 2)
        with pytest.raises(ScaleConflictError, match="had 2 in one epoch") as caught:
            await client.create_stream("many", 5)
            await restore_stream(client, tmp_path, "many")
        assert caught.value.stream == "many"
        # It may have any segments where a function names the keys.
        restored = await restore_stream(client, tmp_path, "many", routing_key=lambda event: "key")
        assert restored.written == manifest.events
        await restore_stream(client, tmp_path, "other")
        expected = dict(source)
        for key in list(expected)[:2]:
            expected[key] = expected[key][1:]
        assert list((await contents(client, "other")).values()) == list(expected.values())
        # Appending to events that are there already has to be asked for.
        await client.create_stream("full")
        async with client.event_writer("full") as writer:
            await writer.write_event(b"key-1 first", "key-1")
        with pytest.raises(ArchiveError, match="is not empty"):
            await restore_stream(client, tmp_path, "full")
        await restore_stream(client, tmp_path, "full", append=True)
        assert (await by_key(client, "full"))["key-1"][0] == b"key-1 first"


async def test_segments_whose_last_one_ends_beside_the_key_space(
    config: PravegaConfig, tmp_path: Path
) -> None:
    """Of 49 segments the last one ends at 49 * (1/49), of one at 1; a scale must keep what is there."""
    async with open_client(config) as client:
        await client.create_stream("source", 49)
        await fill_epoch(client, "source")
        await client.create_stream("also", 49)
        await client.update_stream("also", StreamConfiguration(ScalingPolicy.by_data_rate(1 << 30, 2, 1)))
        await archive_stream(client, "source", tmp_path)
        for stream in ("restored", "also"):
            restored = await restore_stream(client, tmp_path, stream)
            assert restored.written == PER_EPOCH
            assert len(await client.active_segments(stream)) == 49
            assert await by_key(client, stream) == await by_key(client, "source")


async def test_an_empty_stream(config: PravegaConfig, tmp_path: Path) -> None:
    async with open_client(config) as client:
        await client.create_stream("source", 2)
        manifest = await archive_stream(client, "source", tmp_path)
        assert (manifest.complete, manifest.events, manifest.segments) == (True, 0, ())
        assert await compare_archive(client, tmp_path) == manifest
        assert (await restore_stream(client, tmp_path, "restored")).events == 0
        assert (await restore_stream(client, tmp_path, "by-key", routing_key=key_of)).events == 0


async def test_damage_is_named(config: PravegaConfig, tmp_path: Path) -> None:
    async with open_client(config) as client:
        await fill(client, "source", (1, 2))
        manifest = await archive_stream(client, "source", tmp_path, part_bytes=PART_BYTES)
        *_, (_, file) = manifest.files()
        path = tmp_path / "events" / file.name
        whole = path.read_bytes()
        for damaged, text in (
            (None, "is missing"),
            (whole[:-1], "bytes instead of"),
            (whole[:50] + bytes([whole[50] ^ 1]) + whole[51:], "SHA-256"),
        ):
            if damaged is None:
                path.unlink()
            else:
                path.write_bytes(damaged)
            for act in (verify_archive(tmp_path), restore_stream(client, tmp_path, "restored")):
                with pytest.raises(ArchiveDamagedError, match=text) as caught:
                    await act
                assert caught.value.path == str(path)
                assert file.name in str(caught.value)
        path.write_bytes(whole)
        await restore_stream(client, tmp_path, "restored")
        assert await contents(client, "restored") == await contents(client, "source")

        with locked(tmp_path):
            for restoring in (
                restore_stream(client, tmp_path, "restored"),
                archive_stream(client, "source", tmp_path),
            ):
                with pytest.raises(ArchiveError, match="another process"):
                    await restoring

        # A stream of this name that has events of the same lengths, as in another cluster.
        await fill(client, "twin", (1, 2), filler="y")
        text = (tmp_path / "manifest.json").read_text()
        (tmp_path / "manifest.json").write_text(text.replace("/source", "/twin"))
        with pytest.raises(ArchiveMismatchError, match="has other events than") as other:
            await compare_archive(client, tmp_path)
        assert other.value.path == str(tmp_path / "events" / next(manifest.files())[1].name)
        (tmp_path / "manifest.json").write_text(text)
        # A stream that was deleted and made again has other segments.
        await client.delete_stream("source", seal=True)
        await fill(client, "source", (1, 2))
        with pytest.raises(DataLossError):
            await compare_archive(client, tmp_path)
        with pytest.raises(ArchiveDamagedError, match=r"manifest\.json"):
            (tmp_path / "manifest.json").write_text("{}")
            await verify_archive(tmp_path)


@pytest.mark.smoke
def test_from_the_other_clients(config: PravegaConfig, tmp_path: Path) -> None:
    directory = tmp_path / "archive"
    with sync.open_client(config) as client:
        client.create_stream("source", 2)
        with client.event_writer("source") as writer:
            writer.write_events([b"%d" % number for number in range(100)], [str(n % 7) for n in range(100)])
        assert client.run(archive_stream, "source", directory).events == 100
        assert client.run(compare_archive, directory).complete
        restored = client.run(restore_stream, directory, "restored")
        assert (restored.stream, restored.written) == (
            ScopedStream(str(config.scope), "restored"),
            100,
        )

    async def again() -> None:
        async with aio.open_client(config) as client:
            assert (await client.run(compare_archive, directory)).events == 100

    asyncio.run(again())
