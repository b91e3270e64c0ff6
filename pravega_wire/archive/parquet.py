"""Writing and reading the Parquet files of an archive.

Not public.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pravega_wire.archive.manifest import (
    COLUMNS,
    TEMPORARY,
    ArchivedFile,
    being_written,
    sync_to_disk,
)
from pravega_wire.errors import ArchiveDamagedError, ArchiveError
from pravega_wire.protocol.append import HEADER_BYTES
from pravega_wire.support.arrow import arrow_file

if TYPE_CHECKING:
    import pyarrow

    from pravega_wire.protocol.events import EventBatch

__all__ = ["PartWriter", "RowGroup", "check_size", "checked_file", "row_groups"]

log = logging.getLogger(__name__)

_ROW_GROUP_BYTES: Final = 8 * 1024 * 1024


def _schema(segment_id: int, archive_id: str) -> pyarrow.Schema:
    import pyarrow as pa

    kinds = {"int64": pa.int64(), "binary": pa.binary()}
    return pa.schema(
        [pa.field(name, kinds[kind], nullable=False) for name, kind in COLUMNS],
        {"pravega_wire.archive": archive_id, "pravega_wire.segment_id": str(segment_id)},
    )


class PartWriter:
    """Writes one file under a temporary name. Its methods block: call them in a thread.

    :param directory: directory of the files.
    :param name: name of the file.
    :param segment_id: id of the segment whose events it holds.
    :param archive_id: id of the archive.
    :param start_offset: offset of the first event.
    """

    def __init__(
        self, directory: Path, name: str, segment_id: int, archive_id: str, start_offset: int
    ) -> None:
        import pyarrow.parquet as pq

        self.name = name
        self.start_offset = self.end_offset = start_offset
        self._directory = directory
        self._path = directory / name
        self._segment_id = segment_id
        # Programs that read the directory leave out names with a dot.
        self._temporary = directory / f".{name}{TEMPORARY}"
        self._schema = _schema(segment_id, archive_id)
        with being_written(self._path):
            self._file = arrow_file(self._temporary, "wb")
            self._writer: Any = pq.ParquetWriter(self._file, self._schema, compression="zstd")
        self._arrays: list[tuple[Any, Any]] = []
        self._held = 0
        self._events = 0
        self._payload_bytes = 0

    @property
    def stored_bytes(self) -> int:
        """How much of the segment it holds, in bytes."""
        return self.end_offset - self.start_offset

    def add(self, batch: EventBatch, limit: int) -> EventBatch | None:
        """Add events of a batch until the file holds ``limit`` bytes of the segment, but at least one.

        :returns: the rest of the batch, or None if there is none.
        """
        count = len(batch)
        room = max(0, limit - self.stored_bytes)
        if len(batch.buffer) > room:
            count = bisect_right(batch.begins, room) - 1
            if count == 0 and not self._events:
                count = 1
        rest = batch.after(count) if count < len(batch) else None
        if count:
            try:
                self._arrays.append((batch.offsets_arrow().slice(0, count), batch.to_arrow().slice(0, count)))
            except OverflowError as error:
                text = (
                    f"segment {self._segment_id} has an event of 2 GiB at offset {batch.base_offset}: {error}"
                )
                raise ArchiveError(text, path=str(self._path)) from error
            self.end_offset = batch.next_offset if rest is None else rest.base_offset
            stored = self.end_offset - batch.base_offset
            self._held += stored
            self._events += count
            self._payload_bytes += stored - HEADER_BYTES * count
        if self._held >= _ROW_GROUP_BYTES:
            self._flush()
        return rest

    def _flush(self) -> None:
        import pyarrow as pa

        if not self._arrays:
            return
        offsets = pa.chunked_array([each for each, _ in self._arrays], pa.int64())
        events = pa.chunked_array([each for _, each in self._arrays], pa.binary())
        ids = pa.chunked_array([pa.repeat(pa.scalar(self._segment_id, pa.int64()), len(offsets))])
        table = pa.Table.from_arrays([ids, offsets, events], schema=self._schema)
        with being_written(self._path):
            self._writer.write_table(table, row_group_size=len(offsets))
        self._arrays.clear()
        self._held = 0

    def finish(self) -> ArchivedFile:
        """Make the temporary file whole and durable."""
        self._flush()
        with being_written(self._path):
            self._close()
            sync_to_disk(self._temporary)
            return ArchivedFile(
                self.name,
                self.start_offset,
                self.end_offset,
                self._events,
                self._payload_bytes,
                self._temporary.stat().st_size,
                _sha256(self._temporary),
            )

    def _close(self) -> None:
        try:
            self._writer.close()
        finally:
            self._file.close()

    def rename(self) -> None:
        """Give the file its name."""
        with being_written(self._path):
            self._temporary.replace(self._path)
            sync_to_disk(self._directory)

    def abandon(self) -> None:
        """Close the temporary file, which is not whole."""
        import pyarrow as pa

        try:
            self._close()
        except (OSError, pa.ArrowException) as error:
            # What could not be written is why the file is given up; that error is raised.
            log.debug("%s could not be closed: %s", self._temporary, error)
        with being_written(self._path):
            self._temporary.unlink(missing_ok=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


# --- reading -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Consecutive events of a file.

    :ivar first: index in the file of the first event.
    :ivar start_offset: offset in the segment of the first event.
    :ivar end_offset: offset after the last event.
    :ivar events: the events, as an Arrow chunked array.
    """

    first: int
    start_offset: int
    end_offset: int
    events: Any


def check_size(directory: Path, file: ArchivedFile) -> Path:
    """Return the path of a file whose size is right. Blocks.

    :raises ArchiveDamagedError: it is missing or has changed.
    """
    path = directory / file.name
    try:
        size = path.stat().st_size
    except OSError as error:
        text = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read: {error}"
        raise damaged(path, text) from error
    if size != file.file_bytes:
        raise damaged(path, f"has {size} bytes instead of {file.file_bytes}")
    return path


def checked_file(directory: Path, file: ArchivedFile) -> Path:
    """Return the path of a file whose size and checksum are right. Blocks.

    :raises ArchiveDamagedError: it is missing or has changed.
    """
    path = check_size(directory, file)
    try:
        digest = _sha256(path)
    except OSError as error:
        raise damaged(path, f"cannot be read: {error}") from error
    if digest != file.sha256:
        raise damaged(path, f"has the SHA-256 {digest} instead of {file.sha256}")
    return path


def damaged(path: Path, text: str) -> ArchiveDamagedError:
    """The error for a file."""
    return ArchiveDamagedError(
        f"{path} {text}: bring back the file, or make the archive again in an empty directory", path=str(path)
    )


def row_groups(directory: Path, segment_id: int, file: ArchivedFile) -> Iterator[RowGroup]:
    """Return the events of a file in parts of limited size, and check that they are what the manifest says.

    Blocks.

    :raises ArchiveDamagedError: the file is not what the manifest says.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    path = directory / file.name
    first, at, payload_bytes = 0, file.start_offset, 0
    try:
        with arrow_file(path, "rb") as source, pq.ParquetFile(source) as opened:
            if [(each.name, str(each.type)) for each in opened.schema_arrow] != list(COLUMNS):
                raise damaged(path, f"has other columns than {', '.join(name for name, _ in COLUMNS)}")
            for number in range(opened.num_row_groups):
                table = opened.read_row_group(number)
                events, offsets = table.column("event"), table.column("offset").combine_chunks()
                if table.column("segment_id").unique().to_pylist() != [segment_id]:
                    raise damaged(path, f"has events of other segments than {segment_id}")
                lengths = pc.add(pc.binary_length(events).cast(pa.int64()), HEADER_BYTES)
                ends = pc.cumulative_sum(lengths, at).combine_chunks()
                starts = pc.subtract(ends, lengths)
                if not pa.chunked_array([offsets]).equals(starts):
                    raise damaged(path, "has events that do not follow each other")
                end = ends[-1].as_py()
                payload_bytes += end - at - HEADER_BYTES * len(events)
                yield RowGroup(first, at, end, events)
                first, at = first + len(events), end
    except (pa.ArrowException, OSError) as error:
        raise damaged(path, f"cannot be read as Parquet: {error}") from error
    found = (first, at, payload_bytes)
    if found != (file.events, file.end_offset, file.payload_bytes):
        raise damaged(
            path,
            f"has {first} events up to offset {at} instead of {file.events} up to {file.end_offset}",
        )
