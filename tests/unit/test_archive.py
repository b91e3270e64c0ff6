"""Manifests, key ranges and files of archives, without a server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from pravega_wire import ScopedStream, SegmentRange, StreamCut
from pravega_wire.archive import (
    ArchivedFile,
    ArchivedLayout,
    ArchivedSegment,
    Manifest,
    archive_stream,
    restore_stream,
    verify_archive,
)
from pravega_wire.archive.manifest import Ranged, load, locked, neighbours, partition, save
from pravega_wire.archive.parquet import PartWriter, checked_file, row_groups
from pravega_wire.errors import (
    ArchiveDamagedError,
    ArchiveError,
    DataLossError,
    InvalidArgumentError,
    StreamNotFoundError,
)
from pravega_wire.protocol.events import EventBatch, frame_event, parse_events
from pravega_wire.values.naming import segment_id

STREAM = ScopedStream("s", "t")


def part(directory: Path, events: list[bytes], start: int = 0, limit: int = 2**30) -> list[ArchivedFile]:
    """The files that these events are written to."""
    data = b"".join(map(frame_event, events))
    batch, end, _ = parse_events(memoryview(data), start)
    assert end == len(data)
    files: list[ArchivedFile] = []
    rest: EventBatch | None = batch
    while rest is not None:
        at = files[-1].end_offset if files else start
        writer = PartWriter(directory, f"part-{len(files)}.parquet", 0, "id", at)
        rest = writer.add(rest, limit)
        files.append(writer.finish())
        writer.rename()
    return files


def manifest_of(files: tuple[ArchivedFile, ...], end: int, *, complete: bool = True) -> Manifest:
    segment = ArchivedSegment(0, 0, 0, 0.0, 1.0, 0, end, (), (), files)
    return Manifest(
        UUID(int=5),
        STREAM,
        StreamCut(STREAM, {0: 0}),
        StreamCut(STREAM, {0: end}),
        100,
        complete,
        (ArchivedLayout(0, ((0.0, 1.0),)),),
        (segment,),
    )


EVENTS = [b"", b"one", b"x" * 70, b"\0\xff"] * 5


def archive(directory: Path, *, complete: bool = True) -> Manifest:
    (directory / "events").mkdir(exist_ok=True)
    files = part(directory / "events", EVENTS, limit=150)
    assert len(files) > 2
    manifest = manifest_of(tuple(files), files[-1].end_offset, complete=complete)
    save(directory, manifest)
    return manifest


def test_files_hold_the_events(tmp_path: Path) -> None:
    files = part(tmp_path, EVENTS, start=1000, limit=150)
    found = []
    for each in files:
        assert each.end_offset - each.start_offset <= 150
        assert checked_file(tmp_path, each).is_file()
        for group in row_groups(tmp_path, 0, each):
            found += group.events.to_pylist()
    assert found == EVENTS
    assert sum(each.payload_bytes for each in files) == sum(map(len, EVENTS))
    assert (files[0].start_offset, files[-1].end_offset) == (1000, 1000 + sum(map(len, EVENTS)) + 8 * 20)


def test_an_event_above_the_limit_has_a_file_of_its_own(tmp_path: Path) -> None:
    assert [each.events for each in part(tmp_path, [b"a", b"b" * 500, b"c"], limit=100)] == [1, 1, 1]


def test_the_manifest_is_its_text(tmp_path: Path) -> None:
    manifest = archive(tmp_path)
    assert load(tmp_path) == manifest
    assert Manifest.from_json(manifest.to_json()) == manifest
    values = json.loads(manifest.to_json())
    assert (values["state"], values["stream"], values["events"]) == ("complete", "s/t", len(EVENTS))
    assert StreamCut.from_text(values["end"]["text"]) == manifest.end


@pytest.mark.parametrize("wrong", [0, -1, True, "100", 1.5])
def test_a_size_of_files_that_no_archive_has(tmp_path: Path, wrong: object) -> None:
    values = json.loads(archive(tmp_path).to_json())
    with pytest.raises(InvalidArgumentError, match=r"part_bytes is .*, not a whole number from 1"):
        Manifest.from_json(json.dumps(values | {"part_bytes": wrong}))


@pytest.mark.parametrize("name", ["hdfs:old", "a:b", os.fsdecode(b"\xff")])
def test_any_name_of_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).mkdir()
    archive(Path(name))
    assert trio.run(verify_archive, Path(name)).events == len(EVENTS)


async def test_verifying(tmp_path: Path) -> None:
    with pytest.raises(ArchiveDamagedError, match=r"manifest\.json is missing"):
        await verify_archive(tmp_path)
    archive(tmp_path, complete=False)
    with pytest.raises(ArchiveError, match="is not complete"):
        await verify_archive(tmp_path)
    archive(tmp_path)
    assert (await verify_archive(tmp_path)).events == len(EVENTS)


def client_of(stream: ScopedStream) -> Any:
    """A client that knows the name of its stream, and answers nothing else."""
    return SimpleNamespace(config=SimpleNamespace(resolve=lambda _: stream))


@pytest.mark.parametrize("complete", [True, False])
async def test_archiving_again_misses_files(tmp_path: Path, complete: bool) -> None:
    first, *_, last = archive(tmp_path, complete=complete).segments[0].files
    with (tmp_path / "events" / last.name).open("ab") as file:
        file.write(b"x")
    with pytest.raises(ArchiveDamagedError, match=rf"{last.name} .*{last.file_bytes + 1} bytes instead of"):
        await archive_stream(client_of(STREAM), STREAM, tmp_path)
    (tmp_path / "events" / first.name).unlink()
    with pytest.raises(ArchiveDamagedError, match=f"{first.name} .*is missing"):
        await archive_stream(client_of(STREAM), STREAM, tmp_path)


@pytest.mark.parametrize("name", ["work", "events/mine.parquet"])
async def test_a_directory_with_something_else_is_refused(tmp_path: Path, name: str) -> None:
    mine = tmp_path / name / "thesis.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("years")
    with pytest.raises(
        ArchiveError, match=f"no manifest.json but {name}: give the archive its own"
    ) as caught:
        await archive_stream(client_of(STREAM), "t", tmp_path)
    assert caught.value.path == str(tmp_path)
    assert mine.read_text() == "years"


async def test_the_work_of_tasks_is_removed_and_nothing_else(tmp_path: Path) -> None:
    """Their files are written again; what somebody else has put there stays, also in an archive begun."""
    done = archive(tmp_path)
    save(tmp_path, replace(done, complete=False))
    work = tmp_path / "work"
    work.mkdir()
    name = "segment-0-epoch-0-offset-0000000000000000000-0123456789ab.parquet"
    for each in (name, f".{name}.tmp", f"{name}.json", f"{name}.json.tmp"):
        (work / each).touch()
    (work / "thesis.txt").write_text("years")
    assert await archive_stream(client_of(STREAM), "t", tmp_path) == done
    assert [each.name for each in work.iterdir()] == ["thesis.txt"]
    (work / "thesis.txt").unlink()
    save(tmp_path, replace(done, complete=False))
    await archive_stream(client_of(STREAM), "t", tmp_path)
    assert not work.exists()


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ("events", 7),
        ("end_offset", 7),
        ("payload_bytes", 7),
        ("name", "../x"),
        ("name", "x\0"),
        ("name", "\ud800"),
        ("sha256", "00"),
        ("file_bytes", 7),
    ],
)
async def test_a_manifest_that_does_not_fit_its_files(tmp_path: Path, change: str, value: object) -> None:
    manifest = archive(tmp_path)
    values = json.loads(manifest.to_json())
    file = values["segments"][0]["files"][1]
    file[change] = value
    (tmp_path / "manifest.json").write_text(json.dumps(values))
    with pytest.raises(ArchiveDamagedError):
        await verify_archive(tmp_path)


WRONG_PLACES: list[Any] = [None, "x", [], float("nan"), 5.0, -3, True]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"layouts": []}, "not in the layout of epoch 0"),
        ({"layouts": [{"epoch": 5, "ranges": [[0.0, 1.0]]}]}, "not in the layout of epoch 0"),
        ({"layouts": [{"epoch": 0, "ranges": [[0.0, 0.5], [0.5, 1.0]]}]}, "not in the layout of epoch 0"),
        ({"layouts": [{"epoch": 0, "ranges": []}]}, "do not follow each other"),
        ({"layouts": [{"epoch": 0, "ranges": [[0.0, 0.5]]}]}, "do not follow each other"),
        ({"layouts": [{"epoch": 0, "ranges": [[0.0, 1.0], [1.0, 1.0]]}]}, "do not follow each other"),
        ({"layouts": [{"epoch": 0, "ranges": [[float("nan"), 1.0]]}]}, "not a number from 0 to 1"),
        ({"layouts": [{"epoch": "x", "ranges": [[0.0, 1.0]]}]}, "epoch of a layout"),
        *(({"low": value}, "a key range has") for value in WRONG_PLACES),
        ({"low": 0.9}, "not in the layout of epoch 0"),
        ({"high": float("inf")}, "a key range has"),
        ({"segment_id": 0.0}, "segment_id is 0.0"),
        ({"twice": True}, "ids of its segments do not ascend"),
    ],
)
async def test_what_restoring_relies_on_is_checked(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    """With wrong key ranges, events would get into a segment that has others."""
    values = json.loads(archive(tmp_path).to_json())
    if "layouts" in change:
        values |= change
    elif "twice" in change:
        values["segments"] *= 2
        values["events"] *= 2
        values["payload_bytes"] *= 2
    else:
        values["segments"][0] |= change
    (tmp_path / "manifest.json").write_text(json.dumps(values))
    with pytest.raises(ArchiveDamagedError, match=words) as caught:
        await verify_archive(tmp_path)
    assert caught.value.path == str(tmp_path / "manifest.json")


@given(st.integers(1, 200))
def test_layouts_of_any_number_of_segments_are_read(count: int) -> None:
    """The server multiplies 1 / count, so the last segment may end a little before 1."""
    chunk = 1 / count
    ranges = tuple((number * chunk, (number + 1) * chunk) for number in range(count))
    manifest = manifest_of((), 0)
    segment = replace(manifest.segments[0], low=ranges[0][0], high=ranges[0][1])
    manifest = replace(manifest, layouts=(ArchivedLayout(0, ranges),), segments=(segment,))
    assert Manifest.from_json(manifest.to_json()) == manifest


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "[" * 100_000, '{"format": "other"}', '{"format": "pravega-wire archive"}', "\0"]
)
def test_what_is_no_manifest(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(ArchiveDamagedError, match=r"manifest\.json cannot be read") as caught:
        load(tmp_path)
    assert caught.value.path == str(tmp_path / "manifest.json")


@given(st.data())
def test_a_damaged_manifest_never_raises_anything_else(data: st.DataObject) -> None:
    text = manifest_of((ArchivedFile("a", 0, 9, 1, 1, 3, "x"),), 9).to_json()
    at = data.draw(st.integers(0, len(text) - 1))
    changed = text[:at] + data.draw(st.text(max_size=3)) + text[at + data.draw(st.integers(0, 40)) :]
    with TemporaryDirectory() as directory:
        (Path(directory) / "manifest.json").write_text(changed)
        try:
            load(Path(directory))
        except ArchiveDamagedError:
            pass


@pytest.mark.parametrize("columns", [{"event": [b"a"]}, None])
def test_files_that_are_something_else(tmp_path: Path, columns: dict[str, list[bytes]] | None) -> None:
    path = tmp_path / "a.parquet"
    if columns is None:
        path.write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    else:
        pq.write_table(pa.table(columns), path)
    with pytest.raises(ArchiveDamagedError, match=r"a\.parquet"):
        list(row_groups(tmp_path, 0, ArchivedFile("a.parquet", 0, 9, 1, 1, 3, "x")))


def test_events_that_do_not_follow_each_other(tmp_path: Path) -> None:
    (file,) = part(tmp_path, [b"a", b"b"])
    for wrong in (replace(file, start_offset=5), replace(file, events=1), replace(file, end_offset=1)):
        with pytest.raises(ArchiveDamagedError):
            list(row_groups(tmp_path, 0, wrong))
    with pytest.raises(ArchiveDamagedError, match="other segments"):
        list(row_groups(tmp_path, 1, file))


def test_one_process_at_a_time(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from pravega_wire.archive.manifest import locked\n"
        "with locked(Path(sys.argv[1])): pass"
    )
    with locked(tmp_path):
        with pytest.raises(ArchiveError, match="another process"):
            with locked(tmp_path):
                raise AssertionError
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path)], capture_output=True, check=False
        )
        assert b"another process writes or restores" in done.stderr
    assert subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False).returncode == 0


async def test_data_truncated_after_the_archive_was_begun(tmp_path: Path) -> None:
    """What to do is said, because the option that skips such data does not help any more."""
    (tmp_path / "events").mkdir()
    save(tmp_path, manifest_of((), 9, complete=False))
    client = client_of(STREAM)

    def read_range(_: SegmentRange) -> None:
        raise DataLossError("truncated", segment="s/t/0.#epoch.0", start_offset=9, offset=0)

    client.read_range = read_range
    with pytest.raises(DataLossError) as caught:
        await archive_stream(client, "t", tmp_path, on_truncated="skip_to_head")
    assert "begin one in an empty directory" in caught.value.__notes__[0]


# --- what cannot be written, and wrong arguments ------------------------------------------------------


def test_a_full_disk_names_the_file(tmp_path: Path) -> None:
    (tmp_path / ".a.parquet.tmp").symlink_to("/dev/full")
    with pytest.raises(ArchiveError, match=r"a\.parquet cannot be written: .*No space left") as caught:
        PartWriter(tmp_path, "a.parquet", 0, "id", 0)
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.path == str(tmp_path / "a.parquet")

    class Full:
        def close(self) -> None:
            raise OSError(28, "No space left on device")

    writer = PartWriter(tmp_path, "b.parquet", 0, "id", 0)
    writer._writer.close()
    writer._writer = Full()
    with pytest.raises(ArchiveError, match=r"b\.parquet cannot be written: No space left"):
        writer.finish()
    writer.abandon()
    assert not (tmp_path / ".b.parquet.tmp").exists()

    (tmp_path / "manifest.json.tmp").symlink_to("/dev/full")
    with pytest.raises(ArchiveError, match=r"manifest\.json cannot be written: No space left"):
        save(tmp_path, manifest_of((), 0))


class Empty:
    """A client of an empty stream."""

    config = client_of(STREAM).config

    async def head(self, stream: ScopedStream) -> StreamCut:
        return StreamCut(stream, {0: 0})

    tail = head

    async def segment_ranges(self, *arguments: Any, **options: Any) -> list[SegmentRange]:
        return []

    async def stream_layout(self, stream: ScopedStream) -> Any:
        return SimpleNamespace(segments=())


async def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    client: Any = Empty()
    (tmp_path / "file").touch()
    for directory in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / "a\0b"):
        with pytest.raises(ArchiveError, match="cannot be") as caught:
            await archive_stream(client, "t", directory)
        assert caught.value.path.startswith(str(directory))
        assert isinstance(caught.value.__cause__, OSError | ValueError)


async def test_what_cannot_be_planned_leaves_no_directory(tmp_path: Path) -> None:
    class Missing(Empty):
        async def head(self, stream: ScopedStream) -> StreamCut:
            raise StreamNotFoundError(f"{stream} does not exist")

    client: Any = Missing()
    with pytest.raises(StreamNotFoundError):
        await archive_stream(client, "t", tmp_path / "new" / "archive")
    assert not os.listdir(tmp_path)


async def test_wrong_arguments_are_named(tmp_path: Path) -> None:
    wrong: Any
    client = client_of(STREAM)
    for wrong in (None, 5):
        for call in (
            archive_stream(client, "t", wrong),
            restore_stream(client, wrong, "t"),
            verify_archive(wrong),
        ):
            with pytest.raises(InvalidArgumentError, match=f"directory must be a path, not {wrong}"):
                await call
    for name in ("start", "end"):
        wrong = {name: 5}
        with pytest.raises(InvalidArgumentError, match=f"{name} must be a stream cut, its text"):
            await archive_stream(client, "t", tmp_path, **wrong)
    wrong = None
    with pytest.raises(InvalidArgumentError, match="observer must be a function"):
        await archive_stream(client, "t", tmp_path, observer=wrong)
    for wrong in ({"observer": None}, {"routing_key": 5}, {"append": "false"}):
        with pytest.raises(InvalidArgumentError, match=f"{next(iter(wrong))} must be"):
            await restore_stream(client, tmp_path, "t", **wrong)


# --- key ranges ----------------------------------------------------------------------------------


@st.composite
def histories(draw: st.DrawFn) -> list[list[Ranged]]:
    """The segments of each epoch of a stream, split and merged at random."""
    number = 0
    epochs: list[list[Ranged]] = []
    for epoch in range(draw(st.integers(1, 6))):
        last = epochs[-1] if epochs else []
        if not last:
            new = [(0.0, 1.0)]
            kept: list[Ranged] = []
        else:
            first = draw(st.integers(0, len(last) - 1))
            count = draw(st.integers(1, len(last) - first))
            low, high = last[first].low, last[first + count - 1].high
            cuts = sorted({low, high, *(low + (high - low) * draw(st.integers(1, 7)) / 8 for _ in range(2))})
            new = list(pairwise(cuts))
            kept = last[:first] + last[first + count :]
        made = []
        for one, other in new:
            made.append(Ranged(segment_id(epoch, number), one, other))
            number += 1
        epochs.append(sorted(kept + made, key=lambda each: each.low))
    return epochs


@given(histories())
def test_partitions_are_the_epochs(history: list[list[Ranged]]) -> None:
    every = {each.segment_id: each for epoch in history for each in epoch}
    for number, epoch in enumerate(history):
        assert partition(every.values(), number) == tuple((each.low, each.high) for each in epoch)


@given(histories(), st.data())
def test_neighbours_keep_the_order(history: list[list[Ranged]], data: st.DataObject) -> None:
    """Whatever segments have events: of two that overlap, the older is before the other on a chain."""
    every = sorted({each for epoch in history for each in epoch}, key=lambda each: each.segment_id)
    chosen = [each for each in every if data.draw(st.booleans())]
    before, after = neighbours(chosen)
    by_id = {each.segment_id: each for each in chosen}
    for each in chosen:
        reached, waiting = set(), [each.segment_id]
        while waiting:
            for one in before[waiting.pop()]:
                assert one < each.segment_id
                if one not in reached:
                    reached.add(one)
                    waiting.append(one)
        overlapping = {
            one.segment_id
            for one in chosen
            if one.segment_id < each.segment_id and one.low < each.high and each.low < one.high
        }
        assert overlapping <= reached
        for one in after[each.segment_id]:
            assert each.segment_id in before[one]
            assert by_id[one].low < each.high
            assert each.low < by_id[one].high
