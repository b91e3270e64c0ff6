"""Archives of large streams, written, checked and restored by Spark tasks.

An archive is what :mod:`pravega_wire.archive` makes, in the same files and with the same manifest
(``docs/archives.md``), so each side reads what the other has written.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from pravega_wire import Bound, OnTruncated, PravegaConfig, ScopedStream, SegmentRange
from pravega_wire.archive import Manifest, Observer, Restored, parts
from pravega_wire.errors import ArchiveError, PravegaError
from pravega_wire.support.arrow import need_arrow
from spark_adapter.clients import HeldClient, settings_of
from spark_adapter.reading.partitions import check_partitions, divided
from spark_adapter.versions import needs_classic

__all__ = ["archive_stream", "restore_stream", "verify_archive"]

T = TypeVar("T")


def archive_stream(
    spark: SparkSession,
    config: PravegaConfig | str,
    stream: str | ScopedStream,
    directory: Path | str,
    start: Bound = "earliest",
    end: Bound = "latest",
    *,
    on_truncated: OnTruncated = "raise",
    part_bytes: int = parts.DEFAULT_PART_BYTES,
    min_partitions: int | None = None,
    observer: Observer = parts.nothing,
) -> Manifest:
    """Write the events between two cuts to Parquet files, by one or more tasks for each segment.

    The directory must be on a file system that the driver and all workers share, under the same path.

    The first call resolves the cuts and writes them to the manifest. If it fails or is killed, call it again
    with the same directory: it continues with what no whole file has yet. Calling it for a complete archive
    only checks that its files are there, with their sizes. An archive that
    :func:`pravega_wire.archive.archive_stream` has begun is continued as well.

    Example::

        from spark_adapter.archives import archive_stream

        manifest = archive_stream(spark, config, "demo/readings", "/shared/archives/readings")
        print(manifest.events, "events")

    :param spark: the Spark session.
    :param config: connection settings, or the controller's URI as for ``open_client``; they are sent to the
        workers.
    :param stream: ``scope/stream``, or a name in the default scope.
    :param directory: a directory of its own for the archive; it is created if it does not exist.
    :param start: a cut, its text, ``"earliest"`` or ``"latest"``.
    :param end: the same choices as for ``start``.
    :param on_truncated: what to do if data between the cuts was truncated when the archive was begun:
        ``"raise"`` an error, or ``"skip_to_head"`` to archive the rest.
    :param part_bytes: end a file when it holds this many bytes of the segment, from 1 to 1 GiB.
    :param min_partitions: split the largest segments, between events, until there are at least this many
        tasks. This costs one pass over the segments that are split, on the driver. Default: one task for each
        segment.
    :param observer: called at each :class:`~pravega_wire.archive.Stage`, on the driver and in tasks; it is
        sent to the workers.
    :returns: the manifest of the complete archive.
    :raises ArchiveError: the directory is not shared, holds an archive of something else, or another process
        writes to it; a file cannot be written; or a task failed for another reason than an error of this
        package.
    :raises ArchiveDamagedError: the manifest is damaged, or a file that it names is missing or has another
        size.
    :raises DataLossError: data between the cuts was truncated.
    :raises InvalidStreamCutError: a cut does not belong to the stream.
    :raises InvalidArgumentError: an argument is not valid, or this is a session of Spark Connect.
    """
    config = settings_of(config)
    _check(spark)
    check_partitions(min_partitions)
    folder = _absolute(directory)
    with HeldClient(config) as client, ExitStack() as held:
        manifest = client.run(
            parts.begin,
            stream,
            folder,
            held,
            start=start,
            end=end,
            on_truncated=on_truncated,
            part_bytes=part_bytes,
            observer=observer,
        )
        parts.prepare(folder, manifest)
        if manifest.complete:
            return manifest
        left = parts.left_to_write(folder, manifest)
        tasks = divided(client, left, min_partitions)
        _run(
            spark, tasks, _WriteRange(config, folder, _without_files(manifest), observer), "archiving", folder
        )
        return parts.collect(folder, manifest, observer)


def verify_archive(
    spark: SparkSession, directory: Path | str, config: PravegaConfig | str, *, compare: bool = False
) -> Manifest:
    """Check that an archive is complete and undamaged, by one task for each file.

    Each file's size, checksum, columns, number of events and offsets are compared with the manifest.

    Example::

        from spark_adapter.archives import verify_archive

        verify_archive(spark, "/shared/archives/readings", config, compare=True)

    :param spark: the Spark session.
    :param directory: the archive's directory, on a file system that the driver and all workers share.
    :param config: connection settings, or the controller's URI as for ``open_client``; nothing is
        connected to unless ``compare`` is true.
    :param compare: also read the archived part of the stream again, and compare every event.
    :returns: the manifest.
    :raises ArchiveError: there is no archive, it is not complete, or the directory is not shared.
    :raises ArchiveDamagedError: a file is missing or damaged; ``path`` names it.
    :raises ArchiveMismatchError: the stream has other events; ``path`` names the file.
    :raises DataLossError: the archived part of the stream was truncated or deleted.
    """
    config = settings_of(config)
    _check(spark)
    folder = _absolute(directory)
    manifest = parts.complete_manifest(folder)
    files = [(segment.segment_id, file) for segment, file in manifest.files()]
    _run(spark, files, _VerifyFile(config, folder, _without_files(manifest), compare), "verifying", folder)
    return manifest


def restore_stream(
    spark: SparkSession,
    config: PravegaConfig | str,
    directory: Path | str,
    stream: str | ScopedStream,
    *,
    routing_key: Callable[[bytes], str | None] | None = None,
    append: bool = False,
    observer: Observer = parts.nothing,
) -> Restored:
    """Write the events of an archive to a stream, each exactly once, by one task for each archived segment.

    The epochs of the archived stream follow one another; the segments of an epoch are written side by side.
    The order, and what the stream must allow, are those of :func:`pravega_wire.archive.restore_stream`.

    If it fails or is killed, call it again with the same archive, stream and key function. What this function
    has begun, that of the client does not continue, nor the other way round: both refuse it.

    Example::

        from spark_adapter.archives import restore_stream

        restored = restore_stream(spark, config, "/shared/archives/readings", "demo/restored")
        print(restored.written, "events")

    :param spark: the Spark session.
    :param config: connection settings, or the controller's URI as for ``open_client``; they are sent to the
        workers.
    :param directory: the archive's directory, on a file system that the driver and all workers share.
    :param stream: the stream to write to; it is created if it does not exist.
    :param routing_key: a function from an event to its routing key, which is sent to the workers. It must
        return the same for the same event in every call, also of other processes.
    :param append: allow a stream that has events already. They come before those of the archive.
    :param observer: called at each :class:`~pravega_wire.archive.Stage`, on the driver and in tasks; it is
        sent to the workers.
    :returns: the stream, the number of events of the archive, and how many of them this call has written, as
        far as tasks have reported it: what a killed attempt has written is not counted.
    :raises ArchiveError: the archive is not complete; the directory is not shared; the stream is not empty;
        another process restores the archive; or restoring was begun in another way.
    :raises ArchiveDamagedError: a file is missing or damaged; ``path`` names it. Nothing of that file was
        written.
    :raises ScaleConflictError: the stream cannot get the segments of an epoch.
    :raises EventTooLargeError: an event has more than 8 MiB.
    """
    config = settings_of(config)
    _check(spark)
    folder = _absolute(directory)
    written = 0
    by_key = routing_key is not None
    with HeldClient(config) as client, ExitStack() as held:
        restoring, done = client.run(
            parts.begin_restoring, held, folder, stream, by_key=by_key, append=append, observer=observer
        )
        for_tasks = replace(restoring, manifest=_without_files(restoring.manifest))
        write = _RestoreSegment(config, for_tasks, routing_key, observer)
        for index in range(done, len(restoring.epochs)):
            client.run(restoring.begin_epoch, restoring.epochs[index][0].epoch, observer)
            written += sum(_run(spark, restoring.epochs[index], write, "restoring", folder))
            client.run(restoring.end_epoch, index, observer)
        return Restored(restoring.target, restoring.manifest.events, written)


# --- tasks ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _WriteRange:
    config: PravegaConfig
    directory: Path
    manifest: Manifest
    observer: Observer

    def __call__(self, left: SegmentRange) -> int:
        with HeldClient(self.config) as client:
            return client.run(parts.write_range, self.directory, self.manifest, left, self.observer)


@dataclass(frozen=True, slots=True)
class _VerifyFile:
    config: PravegaConfig
    directory: Path
    manifest: Manifest
    compare: bool

    def __call__(self, item: tuple[int, parts.ArchivedFile]) -> None:
        segment_id, file = item
        with HeldClient(self.config) as client:
            client.run(parts.verify_file, self.directory, self.manifest, segment_id, file, self.compare)


@dataclass(frozen=True, slots=True)
class _RestoreSegment:
    config: PravegaConfig
    restoring: parts.Restoring
    routing_key: Callable[[bytes], str | None] | None
    observer: Observer

    def __call__(self, segment: parts.ArchivedSegment) -> int:
        with HeldClient(self.config) as client:
            return client.run(parts.restore_segment, self.restoring, segment, self.routing_key, self.observer)


@dataclass(frozen=True, slots=True)
class _Caught:
    """Runs a task; an error of this package is its result, so that the driver raises it as it is."""

    act: Callable[[Any], Any]

    def __call__(self, items: Iterable[Any]) -> Iterable[tuple[str, Any]]:
        for item in items:
            try:
                yield "done", self.act(item)
            except PravegaError as error:
                error.add_note(f"in a Spark task on {socket.gethostname()}")
                yield "failed", error


def _run(
    spark: SparkSession, items: list[Any], act: Callable[[Any], T], doing: str, directory: Path
) -> list[T]:
    """Run one task for each item; Spark repeats a task whose process ends."""
    if not items:
        return []
    try:
        results = spark.sparkContext.parallelize(items, len(items)).mapPartitions(_Caught(act)).collect()
    except Exception as error:
        # Py4J's error; its text has what happened in the task.
        text = f"{doing} {directory}: a Spark task failed again and again, or the job was cancelled: {error}"
        raise ArchiveError(text, path=str(directory)) from error
    for kind, value in results:
        if kind == "failed":
            raise value
    return [value for _, value in results]


def _check(spark: SparkSession) -> None:
    needs_classic(spark, "an archive", "use pravega_wire.archive, or a session that is not remote")
    need_arrow("archives need")


def _absolute(directory: Path | str) -> Path:
    # A worker has another working directory.
    return Path(directory).absolute()


def _without_files(manifest: Manifest) -> Manifest:
    """What tasks need of a manifest: not the list of thousands of files."""
    return replace(manifest, segments=())
