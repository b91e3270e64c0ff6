"""Archives that several processes write and restore: what one of them does, and what begins and ends it all.

:mod:`spark_adapter.archives` calls this, on the driver and in tasks.

A process that writes events of an archive does so in the directory ``work``, under names that nobody else
uses, and then writes a record of each whole file there. The process that began the archive moves the files
that cover all segments to the directory ``events``, and writes the manifest. What is left in ``work`` does
not matter.

Not public.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

import trio

from pravega_wire.archive import manifest as manifests
from pravega_wire.archive import verifying, writing
from pravega_wire.archive.manifest import (
    EVENTS,
    MANIFEST,
    WORK,
    ArchivedFile,
    ArchivedSegment,
    Manifest,
    being_written,
    file_of,
    load,
    locked,
    sync_to_disk,
    write_whole,
)
from pravega_wire.archive.parquet import PartWriter
from pravega_wire.archive.restoring import KeyFunction, Restored, Restoring
from pravega_wire.archive.stages import Observer, Stage, nothing
from pravega_wire.archive.verifying import complete_manifest
from pravega_wire.archive.writing import DEFAULT_PART_BYTES, begin
from pravega_wire.errors import ArchiveError
from pravega_wire.stream.client import PravegaClient, StreamName
from pravega_wire.support.checks import check_flag
from pravega_wire.values.types import SegmentRange

__all__ = [
    "DEFAULT_PART_BYTES",
    "ArchivedFile",
    "ArchivedSegment",
    "KeyFunction",
    "Manifest",
    "Observer",
    "Restored",
    "Restoring",
    "Stage",
    "begin",
    "begin_restoring",
    "check_shared",
    "collect",
    "complete_manifest",
    "left_to_write",
    "nothing",
    "prepare",
    "restore_segment",
    "verify_file",
    "write_range",
]

log = logging.getLogger(__name__)

_RECORD: Final = ".json"


def check_shared(directory: Path, archive: Manifest) -> None:
    """Check that this process sees the directory of the archive.

    :raises ArchiveError: it does not: the directory is not shared.
    """
    found = load(directory)
    if found is None or found.id != archive.id:
        what = f"no {MANIFEST}" if found is None else "another archive"
        raise ArchiveError(
            f"a worker sees {what} in {directory}: archives on Spark need a directory on a file system that "
            "the driver and all workers share under the same path",
            path=str(directory),
        )


# --- archiving -----------------------------------------------------------------------------------


def prepare(directory: Path, archive: Manifest) -> None:
    """Make the directory ``work`` ready for tasks; a complete archive needs none."""
    work = directory / WORK
    if archive.complete:
        writing.remove_work(work)
        return
    with being_written(work):
        work.mkdir(exist_ok=True)
        writing.clear_work(work, unfinished=True)


def left_to_write(directory: Path, archive: Manifest) -> list[SegmentRange]:
    """Return what no whole file has yet, in the order of segments and offsets."""
    return _covered(directory, archive)[1]


async def write_range(
    client: PravegaClient, directory: Path, archive: Manifest, left: SegmentRange, observer: Observer
) -> int:
    """Write the events of a range to files in ``work``, with a record of each. Returns the number of files.

    :raises ArchiveError: the directory is not shared, or the archive was completed meanwhile.
    :raises DataLossError: the range was truncated.
    """
    await trio.to_thread.run_sync(check_shared, directory, archive)
    work = directory / WORK
    count = 0

    def new_part(at: int) -> PartWriter:
        # Another attempt at the same task may write the same events now: it must not touch this file.
        return PartWriter(work, writing.work_file(left.segment_id, at), left.segment_id, str(archive.id), at)

    async def finished(part: PartWriter) -> None:
        nonlocal count
        file = await trio.to_thread.run_sync(part.finish)
        observer(Stage.WRITTEN, file.name)
        await trio.to_thread.run_sync(part.rename)
        observer(Stage.RENAMED, file.name)
        record = json.dumps({"segment_id": left.segment_id, **asdict(file)})
        await trio.to_thread.run_sync(write_whole, work / (file.name + _RECORD), record)
        observer(Stage.RECORDED, file.name)
        count += 1

    try:
        await writing.write_parts(client, left, archive.part_bytes, new_part, finished, observer)
    except ArchiveError as error:
        if not isinstance(error.__cause__, FileNotFoundError) or work.exists():
            raise
        raise ArchiveError(
            f"{work} is gone: another process has completed the archive, or has removed the directory",
            path=str(work),
        ) from error
    return count


def collect(directory: Path, archive: Manifest, observer: Observer) -> Manifest:
    """Make the archive complete with the files in ``work``.

    :raises ArchiveError: files are missing that tasks have written: the directory is not shared.
    """
    covered, left = _covered(directory, archive)
    if left:
        raise ArchiveError(
            f"{directory} lacks files that tasks have written, for example of {left[0]}: archives on Spark "
            "need a directory on a file system that the driver and all workers share under the same path",
            path=str(directory),
        )
    with being_written(directory / EVENTS):
        for files in covered.values():
            for each in files:
                path = directory / WORK / each.name
                if path.exists():
                    path.replace(directory / EVENTS / each.name)
        sync_to_disk(directory / EVENTS)
    archive = replace(
        archive,
        complete=True,
        segments=tuple(
            replace(each, files=(*each.files, *covered.get(each.segment_id, ()))) for each in archive.segments
        ),
    )
    observer(Stage.COLLECTED, EVENTS)
    writing.clean(directory, archive)
    manifests.save(directory, archive)
    observer(Stage.COMPLETE, MANIFEST)
    writing.remove_work(directory / WORK)
    return archive


def _covered(directory: Path, archive: Manifest) -> tuple[dict[int, list[ArchivedFile]], list[SegmentRange]]:
    """The whole files that follow those of the manifest, by segment, and what they leave out."""
    records: dict[int, list[ArchivedFile]] = {}
    for path in (directory / WORK).glob(f"*{_RECORD}"):
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            segment_id = int(values.pop("segment_id"))
            file = file_of(values)
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError,
                OSError) as error:  # fmt: skip
            log.warning("%s is not the record of a file, and is left out: %s", path, error)
            continue
        if _is_there(directory, file):
            records.setdefault(segment_id, []).append(file)
    covered: dict[int, list[ArchivedFile]] = {}
    left = []
    for segment in archive.segments:
        at = segment.archived_to
        chosen = covered.setdefault(segment.segment_id, [])
        for file in _ordered(records.get(segment.segment_id, ())):
            # Attempts at the same task write the same events to different files.
            if file.start_offset < at or file.end_offset > segment.end_offset:
                continue
            if file.start_offset > at:
                left.append(SegmentRange(archive.stream, segment.segment_id, at, file.start_offset))
            chosen.append(file)
            at = file.end_offset
        if at < segment.end_offset:
            left.append(SegmentRange(archive.stream, segment.segment_id, at, segment.end_offset))
    return covered, left


def _ordered(files: Iterable[ArchivedFile]) -> list[ArchivedFile]:
    return sorted(files, key=lambda each: (each.start_offset, -each.end_offset, each.name))


def _is_there(directory: Path, file: ArchivedFile) -> bool:
    # A process that was killed may have moved it already.
    for folder in (WORK, EVENTS):
        try:
            return (directory / folder / file.name).stat().st_size == file.file_bytes
        except OSError:
            continue
    return False


# --- verifying and restoring ---------------------------------------------------------------------


async def verify_file(
    client: PravegaClient,
    directory: Path,
    archive: Manifest,
    segment_id: int,
    file: ArchivedFile,
    compare: bool,
) -> None:
    """Check one file, and compare it with the stream if ``compare``; see :mod:`pravega_wire.archive`."""
    await trio.to_thread.run_sync(check_shared, directory, archive)
    await verifying.verify_file(directory, archive.stream, segment_id, file, client if compare else None)


async def begin_restoring(
    client: PravegaClient,
    held: ExitStack,
    directory: Path,
    stream: StreamName,
    *,
    by_key: bool,
    append: bool,
    observer: Observer,
) -> tuple[Restoring, int]:
    """Begin to restore an archive, or continue; see :func:`pravega_wire.archive.restore_stream` for errors.

    :param held: holds the archive's lock from here on.
    :returns: what is restored, and the number of epochs that are complete.
    """
    check_flag("append", append)
    archive = await trio.to_thread.run_sync(complete_manifest, directory)
    held.enter_context(locked(directory))
    found = Restoring(archive, directory, client.config.resolve(stream), by_key)
    return found, await found.begin(client, append, observer)


async def restore_segment(
    client: PravegaClient,
    found: Restoring,
    segment: ArchivedSegment,
    routing_key: KeyFunction | None,
    observer: Observer,
) -> int:
    """Write the events of a segment that are not stored; return their number."""
    await trio.to_thread.run_sync(check_shared, found.directory, found.manifest)
    return await found.write(client, segment, routing_key, observer)
