"""From a stream to an archive.

Not public.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

import trio

from pravega_wire.archive import manifest as manifests
from pravega_wire.archive.manifest import (
    EVENTS,
    MANIFEST,
    TEMPORARY,
    WORK,
    ArchivedLayout,
    ArchivedSegment,
    Manifest,
    Ranged,
    being_written,
    locked,
    neighbours,
    partition,
)
from pravega_wire.archive.parquet import PartWriter, check_size
from pravega_wire.archive.stages import Observer, Stage, nothing
from pravega_wire.errors import ArchiveError, ArgumentTypeError, DataLossError
from pravega_wire.protocol.events import EventBatch
from pravega_wire.stream.client import PravegaClient, StreamName
from pravega_wire.support.arrow import need_arrow
from pravega_wire.support.checks import check_callable, check_count, check_path
from pravega_wire.support.environment import environment
from pravega_wire.values.cuts import Bound, OnTruncated, StreamLayout
from pravega_wire.values.naming import epoch_of, number_of
from pravega_wire.values.types import ScopedStream, SegmentRange, StreamCut

__all__ = [
    "archive_stream",
    "begin",
    "clean",
    "clear_work",
    "file_prefix",
    "remove_work",
    "work_file",
    "write_parts",
]

log = logging.getLogger(__name__)

DEFAULT_PART_BYTES: Final = 128 * 1024 * 1024
_MAX_PART_BYTES: Final = 1024 * 1024 * 1024
"""Arrow's binary arrays, which other programs read a column into, hold 2 GiB."""


async def archive_stream(
    client: PravegaClient,
    stream: StreamName,
    directory: Path | str,
    *,
    start: Bound = "earliest",
    end: Bound = "latest",
    on_truncated: OnTruncated = "raise",
    part_bytes: int = DEFAULT_PART_BYTES,
    observer: Observer = nothing,
) -> Manifest:
    """Write the events between two cuts to Parquet files, one or more for each segment.

    The first call decides what is archived: it resolves the cuts and writes the manifest. If it fails or is
    killed, call it again with the same directory; it continues after the last whole file. Calling it for a
    complete archive only checks that its files are there, with their sizes.

    :param client: an open client.
    :param stream: the stream.
    :param directory: a directory of its own for the archive; it is created if it does not exist.
    :param start: a cut, its text, ``"earliest"`` or ``"latest"``.
    :param end: the same choices as for ``start``.
    :param on_truncated: what to do if data between the cuts was truncated when the archive was begun:
        ``"raise"`` an error, or ``"skip_to_head"`` to archive the rest.
    :param part_bytes: end a file when it holds this many bytes of the segment, from 1 to 1 GiB.
    :param observer: called at each :class:`Stage`.
    :returns: the manifest of the complete archive.
    :raises ArchiveError: the directory holds something else, another process writes to it, or a file cannot
        be written; ``path`` names the file or directory.
    :raises InvalidArgumentError: an argument is not valid.
    :raises ArchiveDamagedError: the manifest is damaged, or a file that it names is missing or has another
        size.
    :raises DataLossError: data between the cuts was truncated.
    :raises TruncatedInputError: a cut is in the middle of an event.
    :raises DecodeError: the stream does not hold events; for example, it was written as a byte stream.
    :raises InvalidStreamCutError: a cut does not belong to the stream.
    :raises MissingExtraError: pyarrow is not installed.
    """
    directory = check_path("directory", directory)
    with ExitStack() as held:
        manifest = await begin(
            client,
            stream,
            directory,
            held,
            start=start,
            end=end,
            on_truncated=on_truncated,
            part_bytes=part_bytes,
            observer=observer,
        )
        if manifest.complete:
            return manifest
        await trio.to_thread.run_sync(clean, directory, manifest)
        # Spark's tasks may have written parts that no manifest mentions; they are written again.
        await trio.to_thread.run_sync(remove_work, directory / WORK)
        for segment in manifest.segments:
            manifest = await _write_segment(client, directory, manifest, segment, observer)
        manifest = replace(manifest, complete=True)
        await trio.to_thread.run_sync(manifests.save, directory, manifest)
        observer(Stage.COMPLETE, MANIFEST)
        return manifest


async def begin(
    client: PravegaClient,
    stream: StreamName,
    directory: Path,
    held: ExitStack,
    *,
    start: Bound,
    end: Bound,
    on_truncated: OnTruncated,
    part_bytes: int,
    observer: Observer,
) -> Manifest:
    """Decide what is archived, or find what an earlier call has decided; see :func:`archive_stream`.

    :param held: gets the lock on the directory.
    """
    need_arrow("archives need")
    check_callable("observer", observer)
    for argument, bound in (("start", start), ("end", end)):
        if bound is not None and not isinstance(bound, str | StreamCut):
            raise ArgumentTypeError(
                f"{argument} must be a stream cut, its text, 'earliest' or 'latest', not {bound!r:.60}"
            )
    check_count("part_bytes", part_bytes, highest=_MAX_PART_BYTES, unit="bytes")
    name = client.config.resolve(stream)
    planned = None
    if not await trio.to_thread.run_sync(os.path.lexists, directory / MANIFEST):
        # Before the directory is made: a wrong name of a stream, for example, leaves none behind.
        planned = await _plan(client, name, directory, start, end, on_truncated, part_bytes)
    await trio.to_thread.run_sync(_make, directory / EVENTS)
    held.enter_context(locked(directory))
    manifest = manifests.load(directory)
    if manifest is None:
        manifest = planned or await _plan(client, name, directory, start, end, on_truncated, part_bytes)
        await trio.to_thread.run_sync(manifests.save, directory, manifest)
        observer(Stage.PLANNED, MANIFEST)
    else:
        _check_same(manifest, name, directory, start, end)
        await trio.to_thread.run_sync(_check_files, directory, manifest)
    return manifest


def _make(directory: Path) -> None:
    try:
        with being_written(directory):
            directory.mkdir(parents=True, exist_ok=True)
    except ValueError as error:
        # A null character is not allowed in paths.
        raise ArchiveError(f"{directory} cannot be made: {error}", path=str(directory)) from error


async def _plan(
    client: PravegaClient,
    stream: ScopedStream,
    directory: Path,
    start: Bound,
    end: Bound,
    on_truncated: OnTruncated,
    part_bytes: int,
) -> Manifest:
    other = await trio.to_thread.run_sync(_foreign, directory)
    if other is not None:
        raise ArchiveError(
            f"{directory} has no {MANIFEST} but {other}: give the archive its own directory",
            path=str(directory),
        )
    first = await _resolved(client, stream, start, "earliest")
    last = await _resolved(client, stream, end, "latest")
    ranges = await client.segment_ranges(stream, first, last, on_truncated=on_truncated)
    layout = await client.stream_layout(stream)
    return Manifest(
        environment().new_id(),
        stream,
        first,
        last,
        part_bytes,
        False,
        _layouts(layout, ranges),
        _segments(layout, ranges),
    )


def _foreign(directory: Path) -> str | None:
    """What is where the files of an archive would be, before there is an archive; None if nothing is."""
    for each in (directory / EVENTS).glob("*"):
        return f"{EVENTS}/{each.name}"
    # An archive makes this directory only after its manifest.
    return WORK if os.path.lexists(directory / WORK) else None


async def _resolved(client: PravegaClient, stream: ScopedStream, bound: Bound, default: str) -> StreamCut:
    if isinstance(bound, StreamCut):
        return bound
    word = (bound or default).strip()
    if word == "earliest":
        return await client.head(stream)
    if word == "latest":
        return await client.tail(stream)
    return StreamCut.from_text(word)


def _ranged(layout: StreamLayout) -> list[Ranged]:
    return [Ranged(each.segment_id, each.low, each.high) for each in layout.segments]


def _layouts(layout: StreamLayout, ranges: list[SegmentRange]) -> tuple[ArchivedLayout, ...]:
    every = _ranged(layout)
    epochs = sorted({epoch_of(each.segment_id) for each in ranges})
    return tuple(ArchivedLayout(each, partition(every, each)) for each in epochs)


def _segments(layout: StreamLayout, ranges: list[SegmentRange]) -> tuple[ArchivedSegment, ...]:
    ids = {each.segment_id for each in ranges}
    before, after = neighbours([each for each in _ranged(layout) if each.segment_id in ids])
    found = []
    for each in sorted(ranges, key=lambda one: one.segment_id):
        known = layout.segment(each.segment_id)
        found.append(
            ArchivedSegment(
                each.segment_id,
                epoch_of(each.segment_id),
                number_of(each.segment_id),
                known.low,
                known.high,
                each.start_offset,
                each.end_offset,
                before[each.segment_id],
                after[each.segment_id],
            )
        )
    return tuple(found)


def _check_same(manifest: Manifest, stream: ScopedStream, directory: Path, start: Bound, end: Bound) -> None:
    """Words mean what they meant when the archive was begun; cuts have to be the same."""
    asked = {"start": (start, manifest.start), "end": (end, manifest.end)}
    wrong = None if manifest.stream == stream else f"of stream {manifest.stream}, not of {stream}"
    for name, (bound, known) in asked.items():
        if isinstance(bound, str) and bound.strip() not in ("earliest", "latest"):
            bound = StreamCut.from_text(bound.strip())
        if isinstance(bound, StreamCut) and bound != known:
            wrong = f"with another {name}: {known}, not {bound}"
    if wrong is not None:
        raise ArchiveError(f"{directory} holds an archive {wrong}", path=str(directory))


def _check_files(directory: Path, manifest: Manifest) -> None:
    """Find out before anything is continued that files have gone; what is in them is for verifying."""
    for _, each in manifest.files():
        check_size(directory / EVENTS, each)


def clean(directory: Path, manifest: Manifest) -> None:
    """Remove what the manifest does not mention: what an earlier process has not finished."""
    whole = {each.name for _, each in manifest.files()}
    with being_written(directory / EVENTS):
        for each in (directory / EVENTS).iterdir():
            if each.name.endswith(TEMPORARY) or (each.suffix == ".parquet" and each.name not in whole):
                each.unlink()


async def _write_segment(
    client: PravegaClient,
    directory: Path,
    manifest: Manifest,
    segment: ArchivedSegment,
    observer: Observer,
) -> Manifest:
    at = segment.archived_to
    if at >= segment.end_offset:
        return manifest
    count = len(segment.files)

    def new_part(at: int) -> PartWriter:
        name = f"{file_prefix(segment.segment_id)}-part-{count:05}.parquet"
        return PartWriter(directory / EVENTS, name, segment.segment_id, str(manifest.id), at)

    async def finished(part: PartWriter) -> None:
        nonlocal manifest, count
        manifest = await _finish(directory, manifest, segment.segment_id, part, observer)
        count += 1

    left = SegmentRange(manifest.stream, segment.segment_id, at, segment.end_offset)
    try:
        await write_parts(client, left, manifest.part_bytes, new_part, finished, observer)
    except DataLossError as error:
        error.add_note(
            f"the archive {directory} was begun before that: to archive what is left, begin one in an empty "
            "directory with on_truncated='skip_to_head'"
        )
        raise
    return manifest


def file_prefix(segment_id: int) -> str:
    """The beginning of the names of a segment's files."""
    return f"segment-{number_of(segment_id)}-epoch-{epoch_of(segment_id)}"


_WORK_FILE: Final = re.compile(
    r"\.?segment-\d+-epoch-\d+-offset-\d{19}-[0-9a-f]{12}\.parquet(\.json)?(\.tmp)?"
)


def work_file(segment_id: int, at: int) -> str:
    """A name that nobody else uses, in the directory ``work``, for the events from an offset on."""
    return f"{file_prefix(segment_id)}-offset-{at:019}-{environment().new_id().hex[:12]}.parquet"


def clear_work(work: Path, *, unfinished: bool = False) -> None:
    """Delete the files that tasks have written to ``work``, and nothing that somebody else has put there.

    :param unfinished: delete only the files that are not whole.
    """
    for each in work.glob("*"):
        if _WORK_FILE.fullmatch(each.name) and (each.suffix == TEMPORARY or not unfinished):
            each.unlink(missing_ok=True)


def remove_work(work: Path) -> None:
    """Remove ``work`` with the files of tasks. If anything else is in it, it stays."""
    if not os.path.lexists(work):
        return
    try:
        clear_work(work)
        work.rmdir()
    except FileNotFoundError:
        return
    except OSError as error:
        # A task that was given up may still be writing: what it leaves is removed by the next call.
        log.warning("%s could not be removed; it is not part of the archive: %s", work, error)


async def write_parts(
    client: PravegaClient,
    left: SegmentRange,
    part_bytes: int,
    new_part: Callable[[int], PartWriter],
    finished: Callable[[PartWriter], Awaitable[None]],
    observer: Observer,
) -> None:
    """Write the events of a range to files, one after the other.

    :param new_part: begins a file at an offset; called in a thread.
    :param finished: called when all events of a file are in it, to make it whole.
    """
    part: PartWriter | None = None
    at = left.start_offset
    try:
        async with client.read_range(left) as batches:
            async for batch in batches:
                rest: EventBatch | None = batch if len(batch) else None
                while rest is not None:
                    if part is None:
                        part = await trio.to_thread.run_sync(new_part, at)
                    rest = await trio.to_thread.run_sync(part.add, rest, part_bytes)
                    observer(Stage.WRITING, part.name)
                    at = part.end_offset
                    # What is left of the batch did not fit.
                    if rest is not None or at == left.end_offset:
                        await finished(part)
                        part = None
    finally:
        if part is not None:
            part.abandon()


async def _finish(
    directory: Path, manifest: Manifest, segment_id: int, part: PartWriter, observer: Observer
) -> Manifest:
    file = await trio.to_thread.run_sync(part.finish)
    observer(Stage.WRITTEN, file.name)
    await trio.to_thread.run_sync(part.rename)
    observer(Stage.RENAMED, file.name)
    manifest = manifest.with_file(segment_id, file)
    await trio.to_thread.run_sync(manifests.save, directory, manifest)
    observer(Stage.RECORDED, file.name)
    return manifest
