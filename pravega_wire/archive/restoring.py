"""From an archive back to a stream, exactly once.

Events have no routing keys in a segment, so what is known of an event's key is the key range of its segment.
Two events may have the same key only if they are in the same segment, or in one and its successors. So the
stream to restore into gets the same segments one epoch after the other, by scaling, and each event goes to
the segment with the key range of the one it came from. Then whatever was certainly before an event still is.

The events are numbered in the order of the archive (ascending segment ids, then offsets) and written by a
:class:`ResumableWriter`, whose writer id is made from the archive's id and the stream's name.

Not public.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final
from uuid import UUID, uuid5

import trio

from pravega_wire.archive.manifest import EVENTS, ArchivedFile, ArchivedSegment, Manifest, locked
from pravega_wire.archive.parquet import RowGroup, checked_file, row_groups
from pravega_wire.archive.stages import Observer, Stage, nothing
from pravega_wire.archive.verifying import complete_manifest, next_group
from pravega_wire.controller.tokens import Access
from pravega_wire.controller.types import SegmentWithRange
from pravega_wire.errors import (
    ArchiveBusyError,
    ArchiveError,
    ScaleConflictError,
    WriterHistoryLostError,
)
from pravega_wire.segment.metadata import NULL_ATTRIBUTE, SegmentMetadata
from pravega_wire.segment.store import Backoff
from pravega_wire.stream.client import PravegaClient, StreamName
from pravega_wire.stream.inside import core_of
from pravega_wire.stream.resumable import ResumableWriter
from pravega_wire.support.arrow import need_arrow
from pravega_wire.support.checks import check_callable, check_flag, check_path
from pravega_wire.values.hashing import routing_key_position
from pravega_wire.values.types import ROUNDING, ScopedStream

__all__ = ["KeyFunction", "Restored", "Restoring", "restore_stream"]

KeyFunction = Callable[[bytes], str | None]

_BY_KEY: Final = "by key"
_BY_RANGE: Final = "by range"
_PARTS_BY_KEY: Final = "by key in parts"
_PARTS_BY_RANGE: Final = "by range in parts"

_MODES: Final = {
    _BY_KEY: "with a key function",
    _BY_RANGE: "without a key function",
    _PARTS_BY_KEY: "with a key function on Spark",
    _PARTS_BY_RANGE: "without a key function on Spark",
}
"""How an archive may be restored. Each has writer ids of its own, so none can continue another. The stream's
segments hold the number of the one that was begun, from 1 on."""


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of restoring an archive.

    :ivar stream: the stream.
    :ivar events: number of events of the archive, all of which are stored.
    :ivar written: number of events that this call has written; the others were stored before.
    """

    stream: ScopedStream
    events: int
    written: int


@dataclass(frozen=True, slots=True)
class _Numbered:
    """A file of the archive.

    :ivar before: number of the last event before it.
    """

    segment: ArchivedSegment
    file: ArchivedFile
    before: int

    @property
    def last(self) -> int:
        return self.before + self.file.events


async def restore_stream(
    client: PravegaClient,
    directory: Path | str,
    stream: StreamName,
    *,
    routing_key: KeyFunction | None = None,
    append: bool = False,
    observer: Observer = nothing,
) -> Restored:
    """Write the events of an archive to a stream, each exactly once.

    If it fails or is killed, call it again with the same archive, stream and key function: it continues after
    what is stored. Calling it for an archive that is restored does nothing.

    Without ``routing_key``, the stream is scaled to the key ranges that the archived one had in each epoch.
    Events of one archived segment are in one segment, in their order, and after those of its predecessors.
    The stream must allow that: nobody else may scale it meanwhile, and the minimum number of segments in its
    scaling policy must not be higher than the archived stream's smallest number of segments.

    With ``routing_key``, the stream is not scaled. The order of each key is kept if the function returns the
    key that the event was written with.

    :param client: an open client.
    :param directory: the archive's directory.
    :param stream: the stream to write to; it is created if it does not exist.
    :param routing_key: a function from an event to its routing key. It must return the same for the same
        event in every call, also of other processes.
    :param append: allow a stream that has events already. They come before those of the archive.
    :param observer: called at each :class:`Stage`.
    :raises ArchiveError: the archive is not complete; the stream is not empty; another process writes or
        restores the archive; or restoring was begun with a key function and is continued without one, or the
        other way round.
    :raises ArchiveDamagedError: a file is missing or damaged; ``path`` names it. Nothing of that file was
        written.
    :raises ScaleConflictError: the stream cannot get the segments of an epoch.
    :raises EventTooLargeError: an event has more than 8 MiB.
    :raises InvalidArgumentError: an argument is not valid.
    :raises MissingExtraError: pyarrow is not installed.
    """
    need_arrow("archives need")
    directory = check_path("directory", directory)
    check_callable("observer", observer)
    if routing_key is not None:
        check_callable("routing_key", routing_key)
    check_flag("append", append)
    target = client.config.resolve(stream)
    manifest = await trio.to_thread.run_sync(complete_manifest, directory)
    with locked(directory):
        segments = 1
        if routing_key is not None and manifest.layouts:
            segments = len(manifest.layouts[-1].ranges)
        await client.create_stream(target, segments)
        mode = _BY_RANGE if routing_key is None else _BY_KEY
        await _begin(client, manifest, directory, target, mode, append)
        observer(Stage.OPENED, str(target))
        restoring = _Restoring(client, directory, manifest, target, observer)
        if routing_key is None:
            await restoring.by_range()
        else:
            await restoring.by_key(routing_key)
        return Restored(target, manifest.events, restoring.written)


def _middle(segment: ArchivedSegment | SegmentWithRange) -> str:
    """A position in the segment's key range, for a writer whose "keys" are positions in the key space."""
    return repr((segment.low + segment.high) / 2)


def _writer_id(manifest: Manifest, target: ScopedStream, mode: str) -> UUID:
    return uuid5(manifest.id, f"{target} {mode}")


async def _begin(
    client: PravegaClient, manifest: Manifest, directory: Path, target: ScopedStream, mode: str, append: bool
) -> None:
    """Check the stream, and record on its segments how it is restored.

    The record comes before the first event. Without it, what a killed process had sent could still be stored
    after a look at the stream, beside the events of another mode.
    """

    def refused(text: str) -> ArchiveError:
        return ArchiveError(text, path=str(directory), scope=target.scope, stream=target.name)

    modes = list(_MODES)
    number = modes.index(mode) + 1
    marker = _writer_id(manifest, target, "how")
    try:
        async with client.resumable_writer(target, marker, partitioner=float) as writer:
            active = await client.active_segments(target)
            found = {writer.last_stored_of(_middle(each)) for each in active}
    except WriterHistoryLostError as error:
        raise refused(
            f"segments of stream {target} were truncated away, so nothing says whether {directory} was "
            "restored to it before: restore to another stream"
        ) from error
    others = found - {0, number}
    if others:
        raise refused(
            f"restoring {directory} to {target} was begun {_MODES[modes[min(others) - 1]]}: continue in the "
            "same way, or restore to another stream"
        )
    if number not in found and not append and await client.segment_ranges(target):
        raise refused(
            f"stream {target} is not empty: restore to another stream, or pass append=True, or --append"
        )
    if mode in (_BY_RANGE, _PARTS_BY_RANGE):
        # Before the record: a stream that is refused can still be restored to with a key function.
        await _check_policy(client, manifest, target)
    if 0 in found:
        await _mark(client, directory, target, marker, number, replace=False)


async def _mark(
    client: PravegaClient, directory: Path, target: ScopedStream, marker: UUID, number: int, *, replace: bool
) -> None:
    """Record a number on the stream's segments, as the last one of a writer that writes nothing.

    :param replace: whether it may replace a smaller number.
    :raises ArchiveBusyError: another process recorded something at the same time.
    """
    core = core_of(client)
    for each in await client.active_segments(target):
        segment = core.target(target, each.segment_id, Access.WRITE)
        metadata, attribute = SegmentMetadata(core.stores, segment), uuid5(marker, segment.name)
        known = await metadata.attribute(attribute)
        if known == number or (replace and known > number):
            continue
        unset = known == NULL_ATTRIBUTE
        if not (unset or replace) or not await metadata.compare_and_set_attribute(attribute, known, number):
            raise ArchiveBusyError(
                f"another process restores {directory} to {target}: wait until it has ended",
                path=str(directory),
                scope=target.scope,
                stream=target.name,
            )


async def _check_policy(client: PravegaClient, manifest: Manifest, target: ScopedStream) -> None:
    fewest = min((len(each.ranges) for each in manifest.layouts), default=0)
    scaling = (await client.stream_config(target)).scaling
    if manifest.events and scaling.min_segments > fewest:
        raise ScaleConflictError(
            f"stream {target} has at least {scaling.min_segments} segments by its scaling policy, "
            f"and stream {manifest.stream} had {fewest} in one epoch: restore to a stream with a "
            "lower minimum, or to one that does not exist",
            scope=target.scope,
            stream=target.name,
        )


async def _scale(client: PravegaClient, target: ScopedStream, ranges: Sequence[tuple[float, float]]) -> None:
    """Give the stream these segments, if it does not have them."""
    backoff = Backoff(client.config.operation_timeout, longest=0.5)
    while True:
        active = await client.active_segments(target)
        now = {(each.low, each.high): each.segment_id for each in active}
        # A server compares exactly, and the ends of the two streams may be rounded differently.
        top = max((high for _, high in now), default=1.0)
        wanted = [(low, top if abs(1.0 - high) < ROUNDING else high) for low, high in ranges]
        ended = [segment_id for each, segment_id in now.items() if each not in wanted]
        if not ended:
            return
        try:
            await client.scale_stream(target, ended, [each for each in wanted if each not in now])
        except ScaleConflictError:
            # A process that was killed may have begun to scale; that goes on without it.
            changed = await client.active_segments(target) != active
            if not changed and not await backoff.wait():
                raise


class _Restoring:
    """One call of :func:`restore_stream`."""

    def __init__(
        self,
        client: PravegaClient,
        directory: Path,
        manifest: Manifest,
        target: ScopedStream,
        observer: Observer,
    ) -> None:
        self._client = client
        self._files_in = directory / EVENTS
        self._target = target
        self._observer = observer
        self._manifest = manifest
        self.written = 0
        self._files: list[_Numbered] = []
        before = 0
        for segment, file in manifest.files():
            self._files.append(_Numbered(segment, file, before))
            before += file.events

    # --- by key ranges --------------------------------------------------------------------------

    async def by_range(self) -> None:
        layouts = {each.epoch: each.ranges for each in self._manifest.layouts}
        async with self._by_range() as writer:
            stored = writer.last_stored
        for epoch, found in groupby(self._files, key=lambda each: each.segment.epoch):
            files = list(found)
            # The segments of an epoch are complete before the stream is scaled to those of the next one.
            if files[-1].last <= stored:
                continue
            await _scale(self._client, self._target, layouts[epoch])
            self._observer(Stage.SCALED, f"epoch {epoch}")
            async with self._by_range() as writer:
                for each in files:
                    middle = _middle(each.segment)
                    await self._write(writer, each, writer.last_stored_of(middle), middle)
                # What was skipped counts as well: closing records how far the stream has got.
                writer.next_event_number = files[-1].last + 1
                await writer.flush()
                self._observer(Stage.STORED, f"epoch {epoch}")
            self._observer(Stage.RESTORED, f"epoch {epoch}")

    def _by_range(self) -> ResumableWriter:
        return self._client.resumable_writer(
            self._target, _writer_id(self._manifest, self._target, _BY_RANGE), partitioner=float
        )

    # --- by keys --------------------------------------------------------------------------------

    async def by_key(self, routing_key: KeyFunction) -> None:
        writer_id = _writer_id(self._manifest, self._target, _BY_KEY)
        async with self._client.resumable_writer(self._target, writer_id) as writer:
            for each in self._files:
                await self._write(writer, each, writer.last_stored, routing_key)
            writer.next_event_number = max(writer.next_event_number, self._manifest.events + 1)
            await writer.flush()
            self._observer(Stage.STORED, "all")
        self._observer(Stage.RESTORED, "all")

    # --- files ----------------------------------------------------------------------------------

    async def _write(
        self, writer: ResumableWriter, each: _Numbered, stored: int, key: str | KeyFunction
    ) -> None:
        self.written += await _write_file(writer, self._files_in, each, stored, key, self._observer)


async def _write_file(
    writer: ResumableWriter,
    files_in: Path,
    each: _Numbered,
    stored: int,
    key: str | KeyFunction,
    observer: Observer,
) -> int:
    """Write the events of a file that are not stored; return their number."""
    if each.last <= stored:
        return 0
    written = 0
    await trio.to_thread.run_sync(checked_file, files_in, each.file)
    groups = row_groups(files_in, each.segment.segment_id, each.file)
    while (group := await trio.to_thread.run_sync(next_group, groups)) is not None:
        first = each.before + group.first + 1
        skipped = max(0, stored + 1 - first)
        events = await trio.to_thread.run_sync(_events, group, skipped)
        if not events:
            continue
        keys = key if isinstance(key, str) else [key(event) for event in events]
        writer.next_event_number = first + skipped
        before = writer.events_written
        await writer.write_events(events, keys)
        written += writer.events_written - before
        observer(Stage.RESTORING, each.file.name)
    return written


def _events(group: RowGroup, skipped: int) -> list[bytes]:
    found: list[bytes] = group.events[skipped:].to_pylist()
    return found


# --- in parts: the segments of an epoch side by side, by processes of their own -------------------


@dataclass(frozen=True, slots=True)
class Restoring:
    """A restore whose segments are written by several processes; can be pickled.

    Each archived segment has a writer id and numbers of its own, so that processes do not need to know how
    far others are. All segments of an epoch are complete before the next epoch begins.

    :ivar manifest: what is restored.
    :ivar directory: the archive's directory.
    :ivar target: the stream to write to.
    :ivar by_key: whether a key function chooses the segment of an event.
    """

    manifest: Manifest
    directory: Path
    target: ScopedStream
    by_key: bool

    @property
    def _mode(self) -> str:
        return _PARTS_BY_KEY if self.by_key else _PARTS_BY_RANGE

    @property
    def _complete(self) -> UUID:
        """A writer that writes nothing: its number on the segments is that of the complete epochs."""
        return _writer_id(self.manifest, self.target, self._mode)

    @property
    def epochs(self) -> list[list[ArchivedSegment]]:
        """The segments that were created in each epoch, in order."""
        return [list(found) for _, found in groupby(self.manifest.segments, key=lambda each: each.epoch)]

    async def begin(self, client: PravegaClient, append: bool, observer: Observer) -> int:
        """Create and check the stream; return the number of epochs that are complete."""
        segments = 1
        if self.by_key and self.manifest.layouts:
            segments = len(self.manifest.layouts[-1].ranges)
        await client.create_stream(self.target, segments)
        await _begin(client, self.manifest, self.directory, self.target, self._mode, append)
        async with client.resumable_writer(self.target, self._complete) as writer:
            done = writer.last_stored
        observer(Stage.OPENED, str(self.target))
        return done

    async def begin_epoch(self, client: PravegaClient, epoch: int, observer: Observer) -> None:
        """Give the stream the segments of an epoch, all of whose predecessors are complete."""
        if not self.by_key:
            layouts = {each.epoch: each.ranges for each in self.manifest.layouts}
            await _scale(client, self.target, layouts[epoch])
            observer(Stage.SCALED, f"epoch {epoch}")

    async def write(
        self,
        client: PravegaClient,
        segment: ArchivedSegment,
        routing_key: KeyFunction | None,
        observer: Observer,
    ) -> int:
        """Write the events of a segment that are not stored; return their number."""
        middle = _middle(segment)
        writer_id = uuid5(self.manifest.id, f"{self.target} {self._mode} {segment.segment_id}")
        written = before = 0
        position = routing_key_position if self.by_key else float
        async with client.resumable_writer(self.target, writer_id, partitioner=position) as writer:
            stored = writer.last_stored if self.by_key else writer.last_stored_of(middle)
            for file in segment.files:
                each = _Numbered(segment, file, before)
                key = middle if routing_key is None else routing_key
                written += await _write_file(writer, self.directory / EVENTS, each, stored, key, observer)
                before = each.last
            # What was skipped counts as well: closing records how far the segment has got.
            writer.next_event_number = max(writer.next_event_number, before + 1)
            await writer.flush()
            observer(Stage.STORED, f"segment {segment.segment_id}")
        return written

    async def end_epoch(self, client: PravegaClient, index: int, observer: Observer) -> None:
        """Record that all events of an epoch are stored.

        :param index: index into :attr:`epochs`.
        """
        await _mark(client, self.directory, self.target, self._complete, index + 1, replace=True)
        observer(Stage.RESTORED, f"epoch {self.epochs[index][0].epoch}")
