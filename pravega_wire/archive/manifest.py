"""The manifest of an archive: what it holds, and which files are whole.

Not public.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from pravega_wire.errors import (
    ArchiveBusyError,
    ArchiveDamagedError,
    ArchiveError,
    InvalidArgumentError,
    PravegaError,
)
from pravega_wire.support.checks import check_text
from pravega_wire.values.naming import epoch_of, number_of
from pravega_wire.values.types import ScopedStream, StreamCut, is_key_space

try:
    import fcntl
except ImportError:  # pragma: no cover  # not on this system: two processes are not kept apart
    fcntl = None  # type: ignore[assignment]

__all__ = [
    "COLUMNS",
    "EVENTS",
    "MANIFEST",
    "TEMPORARY",
    "WORK",
    "ArchivedFile",
    "ArchivedLayout",
    "ArchivedSegment",
    "Manifest",
    "being_written",
    "file_of",
    "load",
    "locked",
    "neighbours",
    "partition",
    "save",
    "sync_to_disk",
    "write_whole",
]

MANIFEST: Final = "manifest.json"
EVENTS: Final = "events"
"""The directory of the Parquet files. Nothing else is in it, so that programs can read it as a whole."""
TEMPORARY: Final = ".tmp"
WORK: Final = "work"
"""The directory in which Spark's tasks write. It is deleted when the archive is complete."""
_FORMAT: Final = "pravega-wire archive"
_VERSION: Final = 1

COLUMNS: Final = (("segment_id", "int64"), ("offset", "int64"), ("event", "binary"))
"""Names and Arrow types of the columns of each file."""


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """One file.

    :ivar name: its name in the directory ``events``.
    :ivar start_offset: offset in the segment of its first event.
    :ivar end_offset: offset after its last event.
    :ivar events: number of events.
    :ivar payload_bytes: size of the events without their headers, in bytes.
    :ivar file_bytes: size of the file, in bytes.
    :ivar sha256: SHA-256 of the file, in hexadecimal.
    """

    name: str
    start_offset: int
    end_offset: int
    events: int
    payload_bytes: int
    file_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ArchivedSegment:
    """A segment that has events between the cuts.

    :ivar segment_id: id of the segment in the stream that was archived.
    :ivar epoch: epoch in which it was created.
    :ivar number: its number.
    :ivar low: start of its part of the key space.
    :ivar high: end of its part of the key space.
    :ivar start_offset: where the archived part begins.
    :ivar end_offset: where the archived part ends.
    :ivar predecessors: ids of the archived segments whose events come before: the nearest in each part of the
        key space.
    :ivar successors: ids of the archived segments whose events come after.
    :ivar files: the whole files, in order.
    """

    segment_id: int
    epoch: int
    number: int
    low: float
    high: float
    start_offset: int
    end_offset: int
    predecessors: tuple[int, ...]
    successors: tuple[int, ...]
    files: tuple[ArchivedFile, ...] = ()

    @property
    def archived_to(self) -> int:
        """Offset up to which the files are whole."""
        return self.files[-1].end_offset if self.files else self.start_offset

    @property
    def events(self) -> int:
        """Number of events in its files."""
        return sum(each.events for each in self.files)


@dataclass(frozen=True, slots=True)
class ArchivedLayout:
    """The key ranges of all segments that the stream had in one epoch.

    :ivar epoch: number of the epoch.
    :ivar ranges: pairs of the start and the end of a range, ascending.
    """

    epoch: int
    ranges: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an archive holds.

    :ivar id: identifies the archive.
    :ivar stream: the stream that was archived.
    :ivar start: where the archive begins.
    :ivar end: where it ends.
    :ivar part_bytes: the size at which a file is ended, in bytes of the segment.
    :ivar complete: whether all files are whole.
    :ivar layouts: the key ranges in each epoch in which an archived segment was created.
    :ivar segments: the segments, in ascending order of ids; this order keeps the order of each routing key.
    """

    id: UUID
    stream: ScopedStream
    start: StreamCut
    end: StreamCut
    part_bytes: int
    complete: bool
    layouts: tuple[ArchivedLayout, ...]
    segments: tuple[ArchivedSegment, ...]

    @property
    def events(self) -> int:
        """Number of events in all files."""
        return sum(each.events for each in self.segments)

    @property
    def payload_bytes(self) -> int:
        """Size of the events in all files without their headers, in bytes."""
        return sum(each.payload_bytes for _, each in self.files())

    def files(self) -> Iterator[tuple[ArchivedSegment, ArchivedFile]]:
        """All files with their segments, in order."""
        for segment in self.segments:
            for each in segment.files:
                yield segment, each

    def with_file(self, segment_id: int, file: ArchivedFile) -> Manifest:
        """The manifest with one more file."""
        return replace(
            self,
            segments=tuple(
                replace(each, files=(*each.files, file)) if each.segment_id == segment_id else each
                for each in self.segments
            ),
        )

    def to_json(self) -> str:
        """The text of the manifest's file."""
        segments = [asdict(each) for each in self.segments]
        values = {
            "format": _FORMAT,
            "version": _VERSION,
            "id": str(self.id),
            "state": "complete" if self.complete else "incomplete",
            "stream": str(self.stream),
            "start": _cut(self.start),
            "end": _cut(self.end),
            "schema": [{"name": name, "type": kind} for name, kind in COLUMNS],
            "part_bytes": self.part_bytes,
            "events": self.events,
            "payload_bytes": self.payload_bytes,
            "layouts": [asdict(each) for each in self.layouts],
            "segments": segments,
        }
        return json.dumps(values, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Read the text of a manifest's file.

        :raises InvalidArgumentError: it is not a manifest, or not of a version that is known.
        """
        try:
            return cls._from_json(text)
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise InvalidArgumentError(f"this is not the text of a manifest: {error}") from error

    @classmethod
    def _from_json(cls, text: str) -> Manifest:
        values = json.loads(check_text("the text of a manifest", text))
        if not isinstance(values, dict) or values.get("format") != _FORMAT:
            raise ValueError("it is not the manifest of an archive")
        if values["version"] != _VERSION:
            raise ValueError(f"its version is {values['version']}, and only version {_VERSION} is known")
        if values["schema"] != [{"name": name, "type": kind} for name, kind in COLUMNS]:
            raise ValueError("its schema is not known")
        stream = ScopedStream.parse(values["stream"])
        found = cls(
            UUID(values["id"]),
            stream,
            _cut_of(stream, values["start"]),
            _cut_of(stream, values["end"]),
            _number("part_bytes", values["part_bytes"], 1),
            values["state"] == "complete",
            tuple(_layout_of(each) for each in values["layouts"]),
            tuple(_segment_of(each) for each in values["segments"]),
        )
        found._check(values)
        return found

    def _check(self, values: dict[str, Any]) -> None:
        if (self.events, self.payload_bytes) != (values["events"], values["payload_bytes"]):
            raise ValueError("its totals are not those of its files")
        ids = [each.segment_id for each in self.segments]
        if ids != sorted(set(ids)):
            raise ValueError("the ids of its segments do not ascend")
        # Restoring makes the segments of these layouts, and finds those of the events by their key ranges.
        layouts = {each.epoch: each.ranges for each in self.layouts}
        for segment in self.segments:
            if (segment.low, segment.high) not in layouts.get(segment.epoch, ()):
                raise ValueError(
                    f"segment {segment.segment_id} has the key range {segment.low} to {segment.high}, which "
                    f"is not in the layout of epoch {segment.epoch}"
                )
        for segment in self.segments:
            at = segment.start_offset
            for each in segment.files:
                if each.start_offset != at:
                    raise ValueError(f"the files of segment {segment.segment_id} do not follow each other")
                at = each.end_offset
            if at != segment.end_offset and (self.complete or at > segment.end_offset):
                raise ValueError(f"the files of segment {segment.segment_id} do not cover its range")


def _cut(cut: StreamCut) -> dict[str, Any]:
    # As an object for people and other programs; the ids are texts, as keys of JSON objects are.
    return {"text": cut.to_text(), "positions": {str(key): value for key, value in cut.positions.items()}}


def _cut_of(stream: ScopedStream, value: dict[str, Any]) -> StreamCut:
    return StreamCut(stream, {int(key): int(offset) for key, offset in value["positions"].items()})


def _number(name: str, value: object, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} is {value!r:.60}, not a whole number from {least}")
    return value


def _position(value: object) -> float:
    """Return a place in the key space."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(f"a key range has {value!r:.60}, not a number from 0 to 1")
    return float(value)


def _layout_of(value: dict[str, Any]) -> ArchivedLayout:
    epoch = _number("the epoch of a layout", value["epoch"])
    ranges = tuple((_position(low), _position(high)) for low, high in value["ranges"])
    if not is_key_space(ranges) or any(low >= high for low, high in ranges):
        raise ValueError(f"the key ranges of epoch {epoch} do not follow each other from 0 to 1")
    return ArchivedLayout(epoch, ranges)


def file_of(value: dict[str, Any]) -> ArchivedFile:
    """Return what a manifest or a record of a task says of a file.

    :raises ValueError: a value is not what it must be.
    :raises TypeError: there are other fields.
    """
    found = ArchivedFile(**value)
    name = found.name
    # What is not printable, such as half of a surrogate pair, may not be a name for the system either.
    is_name = isinstance(name, str) and Path(name).name == name and name not in ("", "..")
    if not is_name or not name.isprintable():
        raise ValueError(f"{name!r:.60} is not the name of a file")
    for each in ("start_offset", "end_offset", "events", "payload_bytes", "file_bytes"):
        _number(f"{each} of {name}", getattr(found, each))
    if found.start_offset >= found.end_offset or not isinstance(found.sha256, str):
        raise ValueError(f"{name} ends before it begins, or has no checksum")
    return found


def _segment_of(value: dict[str, Any]) -> ArchivedSegment:
    value = dict(value)
    for name in ("segment_id", "start_offset", "end_offset"):
        value[name] = _number(name, value[name])
    for name in ("low", "high"):
        value[name] = _position(value[name])
    value["files"] = tuple(file_of(each) for each in value["files"])
    for name in ("predecessors", "successors"):
        value[name] = tuple(map(int, value[name]))
    found = ArchivedSegment(**value)
    if (found.epoch, found.number) != (epoch_of(found.segment_id), number_of(found.segment_id)):
        raise ValueError(f"segment {found.segment_id} has another epoch or number")
    return found


# --- the file ------------------------------------------------------------------------------------


def load(directory: Path) -> Manifest | None:
    """Read the manifest of an archive; None if there is none.

    :raises ArchiveDamagedError: the file is malformed.
    """
    path = directory / MANIFEST
    try:
        return Manifest.from_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (ValueError, OSError, PravegaError) as error:
        raise ArchiveDamagedError(f"{path} cannot be read: {error}", path=str(path)) from error


def save(directory: Path, manifest: Manifest) -> None:
    """Replace the manifest; after a crash either the old or the new one is there, whole."""
    write_whole(directory / MANIFEST, manifest.to_json())


def write_whole(path: Path, text: str) -> None:
    """Replace a file; after a crash either the old or the new one is there, whole."""
    temporary = path.with_name(path.name + TEMPORARY)
    with being_written(path):
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_to_disk(path.parent)


@contextmanager
def being_written(path: Path) -> Iterator[None]:
    """Name the file or directory that cannot be written.

    :raises ArchiveError: it cannot be written, for example because the disk is full.
    """
    try:
        yield
    except OSError as error:
        raise ArchiveError(
            f"{path} cannot be written: {error.strerror or error}; archive again to continue", path=str(path)
        ) from error


def sync_to_disk(path: Path) -> None:
    """Make a file durable, or the new names in a directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Keep other processes from writing or restoring the archive; the lock ends with the process.

    :raises ArchiveBusyError: another process holds the lock.
    """
    path = directory / ".lock"
    with ExitStack() as held:
        file = None
        try:
            file = held.enter_context(path.open("a"))
        except OSError:
            # It may be a copy that cannot be changed. If the file is there, it can be locked all the same.
            if path.exists():
                file = held.enter_context(path.open("r"))
        if fcntl is not None and file is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                text = f"another process writes or restores the archive {directory}: wait until it has ended"
                raise ArchiveBusyError(text, path=str(directory)) from error
        yield


# --- key ranges ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ranged:
    """A segment and its key range."""

    segment_id: int
    low: float
    high: float


def _rows(segments: Iterable[Ranged]) -> list[tuple[float, float, list[Ranged]]]:
    """The segments of each part of the key space, in the order of their epochs."""
    ordered = sorted(segments, key=lambda each: each.segment_id)
    borders = sorted({each.low for each in ordered} | {each.high for each in ordered})
    return [
        (low, high, [each for each in ordered if each.low < high and low < each.high])
        for low, high in pairwise(borders)
    ]


def partition(segments: Iterable[Ranged], epoch: int) -> tuple[tuple[float, float], ...]:
    """The key ranges of the segments that were active in an epoch, from all segments of the stream."""
    found = set()
    for _, _, row in _rows(segments):
        then = [each for each in row if epoch_of(each.segment_id) <= epoch]
        if then:
            found.add((then[-1].low, then[-1].high))
    return tuple(sorted(found))


def neighbours(
    segments: Sequence[Ranged],
) -> tuple[dict[int, tuple[int, ...]], dict[int, tuple[int, ...]]]:
    """The nearest earlier and the nearest later segments of each segment, by id."""
    before: dict[int, set[int]] = {each.segment_id: set() for each in segments}
    after: dict[int, set[int]] = {each.segment_id: set() for each in segments}
    for _, _, row in _rows(segments):
        for one, other in pairwise(row):
            before[other.segment_id].add(one.segment_id)
            after[one.segment_id].add(other.segment_id)
    return (
        {key: tuple(sorted(value)) for key, value in before.items()},
        {key: tuple(sorted(value)) for key, value in after.items()},
    )
