"""Checks the files of an archive, and compares them with the stream.

Not public.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import trio

from pravega_wire.archive.manifest import EVENTS, MANIFEST, ArchivedFile, Manifest, load
from pravega_wire.archive.parquet import RowGroup, checked_file, row_groups
from pravega_wire.errors import ArchiveDamagedError, ArchiveError, ArchiveMismatchError
from pravega_wire.stream.client import PravegaClient
from pravega_wire.support.arrow import need_arrow
from pravega_wire.support.checks import check_path
from pravega_wire.values.types import ScopedStream, SegmentRange

__all__ = ["compare_archive", "complete_manifest", "next_group", "verify_archive", "verify_file"]


async def verify_archive(directory: Path | str) -> Manifest:
    """Check that an archive is complete and undamaged.

    Each file's size, checksum, columns, number of events and offsets are compared with the manifest.

    :param directory: the archive's directory.
    :returns: the manifest.
    :raises ArchiveError: there is no archive, or it is not complete.
    :raises ArchiveDamagedError: a file is missing or damaged; ``path`` names it.
    :raises InvalidArgumentError: ``directory`` is not a path.
    :raises MissingExtraError: pyarrow is not installed.
    """
    return await _verify(directory, None)


async def compare_archive(client: PravegaClient, directory: Path | str) -> Manifest:
    """Do what :func:`verify_archive` does, read the archived part of the stream, and compare each event.

    :param client: an open client.
    :param directory: the archive's directory.
    :returns: the manifest.
    :raises ArchiveError: there is no archive, or it is not complete.
    :raises ArchiveDamagedError: a file is missing or damaged; ``path`` names it.
    :raises ArchiveMismatchError: the stream has other events; ``path`` names the file.
    :raises DataLossError: the archived part of the stream was truncated or deleted.
    :raises InvalidArgumentError: ``directory`` is not a path.
    :raises MissingExtraError: pyarrow is not installed.
    """
    return await _verify(directory, client)


async def _verify(directory: Path | str, client: PravegaClient | None) -> Manifest:
    need_arrow("archives need")
    directory = check_path("directory", directory)
    manifest = await trio.to_thread.run_sync(complete_manifest, directory)
    for segment, file in manifest.files():
        await verify_file(directory, manifest.stream, segment.segment_id, file, client)
    return manifest


async def verify_file(
    directory: Path, stream: ScopedStream, segment_id: int, file: ArchivedFile, client: PravegaClient | None
) -> None:
    """Check one file, and compare it with the stream if there is a client; see :func:`verify_archive`."""
    await trio.to_thread.run_sync(checked_file, directory / EVENTS, file)
    groups = row_groups(directory / EVENTS, segment_id, file)
    while (group := await trio.to_thread.run_sync(next_group, groups)) is not None:
        if client is not None:
            await _compare(client, directory, stream, segment_id, file, group)


def complete_manifest(directory: Path) -> Manifest:
    """Read the manifest of a complete archive."""
    manifest = load(directory)
    if manifest is None:
        raise ArchiveDamagedError(
            f"{directory / MANIFEST} is missing: {directory} holds no archive", path=str(directory / MANIFEST)
        )
    if not manifest.complete:
        raise ArchiveError(
            f"the archive {directory} of {manifest.stream} is not complete: archive it again to continue",
            path=str(directory),
        )
    return manifest


def next_group(groups: Iterator[RowGroup]) -> RowGroup | None:
    """The next row group, or None; ``StopIteration`` cannot leave a thread."""
    return next(groups, None)


async def _compare(
    client: PravegaClient,
    directory: Path,
    stream: ScopedStream,
    segment_id: int,
    file: ArchivedFile,
    group: RowGroup,
) -> None:
    import pyarrow as pa

    part = SegmentRange(stream, segment_id, group.start_offset, group.end_offset)
    async with client.read_range(part) as batches:
        arrays = [each.to_arrow() async for each in batches]
    if not pa.chunked_array(arrays, pa.binary()).equals(group.events):
        path = directory / EVENTS / file.name
        raise ArchiveMismatchError(
            f"segment {segment_id} of {stream} has other events than {path} from offset "
            f"{group.start_offset} to {group.end_offset}: is this the cluster that was archived?",
            path=str(path),
            scope=stream.scope,
            stream=stream.name,
        )
