"""Which files of several processes make an archive, without a server."""

from __future__ import annotations

import json
import random
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pravega_wire.archive.manifest import (
    EVENTS,
    WORK,
    ArchivedFile,
    ArchivedLayout,
    ArchivedSegment,
    Manifest,
    save,
)
from pravega_wire.archive.parts import check_shared, collect, left_to_write
from pravega_wire.archive.stages import nothing
from pravega_wire.archive.writing import work_file
from pravega_wire.errors import ArchiveError
from pravega_wire.values.types import ScopedStream, SegmentRange, StreamCut

STREAM = ScopedStream("a", "b")
END = 100


def manifest_in(directory: Path, *files: ArchivedFile) -> Manifest:
    """The manifest of an archive of one segment, of which these files are known."""
    for name in (EVENTS, WORK):
        (directory / name).mkdir(parents=True, exist_ok=True)
    segment = ArchivedSegment(0, 0, 0, 0.0, 1.0, 0, END, (), (), files)
    start, end = StreamCut(STREAM, {0: 0}), StreamCut(STREAM, {0: END})
    found = Manifest(uuid4(), STREAM, start, end, 50, False, (ArchivedLayout(0, ((0.0, 1.0),)),), (segment,))
    save(directory, found)
    return found


def wrote(directory: Path, start: int, end: int, folder: str = WORK, *, size: int = 3) -> ArchivedFile:
    """What a task leaves that has written a range."""
    file = ArchivedFile(work_file(0, start), start, end, 1, end - start - 8, size, "0")
    (directory / folder / file.name).write_bytes(b"xyz")
    record = {"segment_id": 0, **asdict(file)}
    (directory / WORK / f"{file.name}.json").write_text(json.dumps(record))
    return file


BOUNDS = st.integers(0, END // 10).map(lambda n: n * 10)


@given(st.lists(st.tuples(BOUNDS, BOUNDS).filter(lambda each: each[0] < each[1]), max_size=12), st.randoms())
def test_whatever_tasks_have_written_the_rest_completes_it(
    ranges: list[tuple[int, int]], order: random.Random
) -> None:
    """Of overlapping and repeated ranges some are chosen, and together with what is missing they are all."""
    with TemporaryDirectory() as name:
        directory = Path(name)
        manifest = manifest_in(directory)
        for start, end in ranges:
            wrote(directory, start, end, order.choice((WORK, EVENTS)))
        left = left_to_write(directory, manifest)
        if left:
            with pytest.raises(ArchiveError, match="need a directory on a file system"):
                collect(directory, manifest, nothing)
        for each in left:
            wrote(directory, each.start_offset, each.end_offset)
        assert left_to_write(directory, manifest) == []
        complete = collect(directory, manifest, nothing)
        at = 0
        for _, file in complete.files():
            assert file.start_offset == at
            at = file.end_offset
        assert at == END
        assert {each.name for _, each in complete.files()} == {
            each.name for each in (directory / EVENTS).iterdir()
        }
        assert not (directory / WORK).exists()


def test_what_is_not_whole_does_not_count(tmp_path: Path) -> None:
    before = ArchivedFile("before.parquet", 0, 20, 1, 12, 3, "0")
    manifest = manifest_in(tmp_path, before)
    all_of_it = [SegmentRange(STREAM, 0, 20, END)]
    assert left_to_write(tmp_path, manifest) == all_of_it
    wrote(tmp_path, 20, 40, size=4)  # it was cut off
    (tmp_path / WORK / wrote(tmp_path, 20, 40).name).unlink()
    wrote(tmp_path, 0, 40)  # the manifest has some of it
    wrote(tmp_path, 90, 120)  # beyond the end
    for text in ("", "[]", "{}", '{"segment_id": 0}', '{"segment_id": null}', "\x00"):
        (tmp_path / WORK / f"{uuid4().hex}.json").write_text(text)
    assert left_to_write(tmp_path, manifest) == all_of_it
    whole = asdict(wrote(tmp_path, 40, 60))
    for change in (
        {"name": 5}, {"name": ["a"]}, {"name": "x\0y"}, {"name": "../events/x.parquet"}, {"name": ".."},
        {"start_offset": "x"}, {"start_offset": None}, {"start_offset": float("nan")}, {"end_offset": "x"},
        {"end_offset": -5}, {"end_offset": 0}, {"file_bytes": "3"}, {"segment_id": float("inf")},
    ):  # fmt: skip
        record = {"segment_id": 0, **whole, **change}
        (tmp_path / WORK / f"{uuid4().hex}.json").write_text(json.dumps(record))
    assert left_to_write(tmp_path, manifest) == [
        SegmentRange(STREAM, 0, 20, 40),
        SegmentRange(STREAM, 0, 60, END),
    ]


def test_a_worker_that_sees_another_directory_says_so(tmp_path: Path) -> None:
    manifest = manifest_in(tmp_path / "one")
    check_shared(tmp_path / "one", manifest)
    with pytest.raises(ArchiveError, match=r"sees no manifest\.json in .*/absent: .* share"):
        check_shared(tmp_path / "absent", manifest)
    with pytest.raises(ArchiveError, match="sees another archive in") as caught:
        check_shared(tmp_path / "one", replace(manifest, id=uuid4()))
    assert caught.value.path == str(tmp_path / "one")
