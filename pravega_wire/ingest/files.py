"""Ingests the files of a folder, each exactly once: :class:`FileIngester`."""

from __future__ import annotations

import hashlib
import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath
from typing import Literal

import trio

from pravega_wire.errors import (
    ArgumentTypeError,
    IngestedSourceChangedError,
    IngestError,
    InvalidArgumentError,
)
from pravega_wire.ingest.engine import Engine, IfUnknown, Observer, Options, Part, Progress
from pravega_wire.ingest.samples import Parse, Sample, SampleReader, lines, samples_of
from pravega_wire.ingest.state import IngestRecord, Kind
from pravega_wire.stream.client import PravegaClient, StreamName
from pravega_wire.stream.transaction import DEFAULT_LEASE
from pravega_wire.support.checks import check_callable, check_path

__all__ = ["FileIngester", "Found", "LeftOut", "OnChanged", "check_done", "list_files", "scan"]

log = logging.getLogger(__name__)

OnChanged = Literal["raise", "ignore"]
"""What to do if ingested files have changed or no longer exist."""

_MODULUS = 1 << 128


@dataclass(frozen=True, slots=True)
class Found:
    """A file in the folder.

    :ivar name: name relative to the folder, with slashes.
    :ivar path: path of the file.
    :ivar size: size in bytes.
    """

    name: str
    path: Path
    size: int

    @property
    def name_print(self) -> int:
        """A hash of the name."""
        return _number(self.name)

    def print(self, size: int) -> int:
        """Return a hash of the name and a size."""
        return _number(f"{self.name}\0{size}")


def _number(text: str) -> int:
    digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()
    return int.from_bytes(digest[:16], "big")


def _bytes(number: int) -> bytes:
    return (number % _MODULUS).to_bytes(16, "big")


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An item that matches the pattern but is not a file.

    :ivar name: name relative to the folder, with slashes.
    :ivar why: what the item is ("a folder").
    """

    name: str
    why: str


def list_files(folder: Path, pattern: str = "*") -> list[Found]:
    """Return the files that :func:`scan` finds."""
    return scan(folder, pattern)[0]


def scan(folder: Path, pattern: str = "*") -> tuple[list[Found], list[LeftOut]]:
    """Return the matching files of a folder, ordered by name, and the matching items that are not files.

    Names are ordered by code points, regardless of language and numbers. The second list has folders, broken
    links, sockets, pipes and devices. It does not have folders with matching files, which ``**/*`` matches
    too.

    :param folder: the folder.
    :param pattern: a pattern for :meth:`pathlib.Path.glob`; ``**/*.csv`` includes files in subfolders.
    :raises InvalidArgumentError: the folder does not exist, or the pattern is not valid.
    """
    if not isinstance(pattern, str):
        raise ArgumentTypeError(f"pattern must be a string, not {type(pattern).__name__}")
    if PurePath(pattern).is_absolute() or ".." in PurePath(pattern).parts:
        raise InvalidArgumentError(
            f"pattern {pattern!r} leaves the folder: it must be relative, without '..'"
        )
    if not folder.is_dir():
        raise InvalidArgumentError(f"folder {folder} does not exist, or is not a folder")
    found, left_out = [], []
    try:
        for path in folder.glob(pattern):
            name = path.relative_to(folder).as_posix()
            if path.is_file():
                found.append(Found(name, path, path.stat().st_size))
            else:
                left_out.append(LeftOut(name, _kind_of(path)))
    except (ValueError, NotImplementedError) as error:
        raise InvalidArgumentError(f"pattern {pattern!r} is not valid: {error}") from error
    except OSError as error:
        raise InvalidArgumentError(f"folder {folder} cannot be listed: {error.strerror or error}") from error
    for each in found:
        try:
            each.name.encode()
        except UnicodeEncodeError:
            raise InvalidArgumentError(
                f"the name of file {each.path!r} is not UTF-8; rename the file"
            ) from None
    inside = {parent.as_posix() for each in found for parent in PurePosixPath(each.name).parents}
    return (
        sorted(found, key=lambda each: each.name),
        sorted((each for each in left_out if each.name not in inside), key=lambda each: each.name),
    )


def _kind_of(path: Path) -> str:
    """Describe an item that is not a file."""
    if path.is_dir():
        return "a folder"
    if path.is_symlink() and not path.exists():
        return "a broken link"
    return "a socket, pipe or device"


def check_done(files: Sequence[Found], record: IngestRecord, done: bool, on_changed: OnChanged) -> int:
    """Return how many of the files, from the first one on, have already been ingested.

    The record contains the number of files before its own, and sums of hashes of their names and sizes. The
    sums show whether the first files are still the same; if there is one additional file, they identify it.

    :param files: all files, in order.
    :param record: the last record.
    :param done: whether the record's own file has been ingested too.
    :param on_changed: what to do if the first files are not the same.
    :raises IngestedSourceChangedError: a file was added before the last ingested one, or an ingested file was
        removed, renamed, or has another size.
    """
    if not record.item:
        return 0
    names = int.from_bytes(record.names, "big")
    contents = int.from_bytes(record.contents, "big")
    count = record.position
    if done:
        names += _number(record.item)
        contents += _number(f"{record.item}\0{record.length}")
        count += 1
    names, contents = names % _MODULUS, contents % _MODULUS
    if on_changed == "ignore":
        order = [each.name for each in files]
        start = bisect_left(order, record.item)
        return start + 1 if done and start < len(order) and order[start] == record.item else start

    first = files[:count]
    if len(first) == count and sum(each.name_print for each in first) % _MODULUS == names:
        if sum(each.print(each.size) for each in first) % _MODULUS == contents:
            return count
        if done and first and first[-1].name == record.item and first[-1].size != record.length:
            raise _changed(
                record,
                f"file {record.item} had {record.length} bytes when it was ingested and has "
                f"{first[-1].size} now: restore it, or continue without this check (on_changed='ignore', or "
                "--ignore-changes)",
            )
        raise _changed(
            record,
            f"the size of one of the {count} files up to {first[-1].name} has changed since it was ingested: "
            "restore it, or continue without this check (on_changed='ignore', or --ignore-changes)",
        )

    more = files[: count + 1]
    excess = (sum(each.name_print for each in more) - names) % _MODULUS
    for each in more:
        if len(more) == count + 1 and each.name_print == excess:
            raise _changed(
                record,
                f"file {each.name} is new and comes before files that were already ingested, so its events "
                f"would be out of order: rename it to a name after {record.item}, or ingest it with a "
                "different sync stream",
            )
    if done and all(each.name != record.item for each in files):
        raise _changed(
            record,
            f"file {record.item} was ingested, and no longer exists or does not match the pattern: restore "
            "it, use the pattern that it was ingested with, or continue without this check "
            "(on_changed='ignore', or --ignore-changes)",
        )
    raise _changed(
        record,
        f"{count} files were ingested, up to {record.item}{'' if done else ' (without it)'}, but the first "
        f"{count} by name are no longer the same: files were added, removed or renamed. Restore them, or "
        "continue without this check (on_changed='ignore', or --ignore-changes)",
    )


def _changed(record: IngestRecord, message: str) -> IngestedSourceChangedError:
    return IngestedSourceChangedError(message, item=record.item)


class _FilePart(Part):
    """One file."""

    def __init__(
        self,
        file: Found,
        position: int,
        sums: tuple[int, int],
        samples: Callable[[Path], Iterable[Sample]],
        stream: str,
    ) -> None:
        self.title = f"file {file.name}"
        self._file = file
        self._position = position
        self._sums = sums
        self._samples = samples
        self._stream = stream
        self._reader: SampleReader | None = None
        self._stamp: tuple[int, int] = (0, 0)

    async def _now(self) -> tuple[int, int]:
        """Return the file's size in bytes and modification time."""
        try:
            found = await trio.to_thread.run_sync(self._file.path.stat, abandon_on_cancel=True)
        except OSError as error:
            raise IngestError(
                f"{self.title} cannot be read: {error.strerror or error}", item=self._file.name
            ) from error
        return found.st_size, found.st_mtime_ns

    async def begin(self) -> SampleReader:
        self.close()
        self._stamp = await self._now()
        self._reader = SampleReader(
            lambda: self._samples(self._file.path), title=self.title, default_key=self._file.name
        )
        return self._reader

    def record(self) -> IngestRecord:
        names, contents = self._sums
        return IngestRecord(
            self._stream,
            Kind.FILES,
            item=self._file.name,
            position=self._position,
            length=self._stamp[0],
            names=_bytes(names),
            contents=_bytes(contents),
        )

    async def end(self, count: int) -> None:
        if await self._now() != self._stamp:
            raise IngestError(
                f"{self.title} changed while it was being read: run the ingestion again when it is complete",
                item=self._file.name,
            )

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def sums_after(self) -> tuple[int, int]:
        """Return the sums over the previous files and this one, as it was read."""
        names, contents = self._sums
        return names + self._file.name_print, contents + self._file.print(self._stamp[0])


def _warn(left_out: LeftOut) -> None:
    log.warning("%s is %s and was skipped", left_out.name, left_out.why)


class FileIngester:
    """Ingests the files of a folder in the order of their names, each in one transaction, exactly once.

    Example::

        ingester = FileIngester(
            client, "scope/events", "scope/events-sync", parse=csv_rows("station")
        )
        await ingester.run(Path("readings"), "*.csv")

    Before the first event of a file is written, the state on the sync stream names the file and its
    transaction. After a crash, the next run finds out how that transaction ended, and starts with that file
    again or with the next one. If several ingesters use the same sync stream, one continues and the others
    stop with
    :class:`~pravega_wire.errors.FencedError`.

    The caller has to ensure three things. Files in the folder do not change (a file that changes while it is
    read is not committed). New files have names after those of the old ones. Ingested files stay where they
    are; otherwise the next run fails, unless ``on_changed`` is ``"ignore"``.

    :param client: the client to use.
    :param stream: the data stream; it is created with ``segments`` fixed segments if it does not exist.
    :param sync_stream: the stream for the state; it is created with one segment if it does not exist. Use a
        different one for each folder.
    :param parse: returns the samples of a file, pairs of routing key and event: :func:`lines`,
        :func:`csv_rows` or your own function. It runs in a worker thread.
    :param key: returns the routing key of an event, instead of the one from ``parse``. An event without a key
        gets the name of its file as its key.
    :param on_changed: ``"raise"`` stops if files were added before ingested ones, or ingested files were
        removed, renamed or changed. ``"ignore"`` continues after the last ingested name, and never reads the
        files before it.
    :param if_unknown: what to assume about the last transaction if the server has no record of it, which is
        the case a day after its end.
    :param segments: number of segments of the data stream, if it is created.
    :param create: whether to create missing scopes and streams.
    :param lease: lease of each transaction in seconds; it is renewed in the background.
    :param progress: called with a :class:`Progress` after each batch of events and each file.
    :param left_out: called for each matching item that is not a file (a folder, a broken link, a socket),
        before the first file is ingested. By default a warning is logged.
    :param observer: awaited at each :class:`Stage`; an error that it raises ends the run.
    :raises InvalidArgumentError: an option has a value that is not allowed.
    """

    def __init__(
        self,
        client: PravegaClient,
        stream: StreamName,
        sync_stream: StreamName,
        *,
        parse: Parse = lines,
        key: Callable[[bytes], str] | None = None,
        on_changed: OnChanged = "raise",
        if_unknown: IfUnknown = "raise",
        segments: int = 10,
        create: bool = True,
        lease: float = DEFAULT_LEASE,
        progress: Callable[[Progress], None] | None = None,
        left_out: Callable[[LeftOut], None] | None = None,
        observer: Observer | None = None,
    ) -> None:
        if on_changed not in ("raise", "ignore"):
            raise InvalidArgumentError(f"setting on_changed: {on_changed!r} is not one of raise, ignore")
        check_callable("setting parse", parse)
        for name, function in (("key", key), ("left_out", left_out)):
            if function is not None:
                check_callable(f"setting {name}", function)
        self._client = client
        self._stream = stream
        self._sync_stream = sync_stream
        self._parse = parse
        self._key = key
        self._on_changed: OnChanged = on_changed
        self._left_out = _warn if left_out is None else left_out
        self._options = Options(
            segments=segments,
            create=create,
            lease=lease,
            if_unknown=if_unknown,
            progress=progress,
            observer=observer,
        )

    def _samples(self, path: Path) -> Iterable[Sample]:
        found = samples_of(self._parse(path), f"file {path}")
        if self._key is None:
            return found
        key = self._key
        return ((key(event), event) for _, event in found)

    async def run(self, folder: Path | str, pattern: str = "*") -> Progress:
        """Ingest the files that have not been ingested yet; return when readers see all their events.

        If no file matches, the ``total`` of the result is 0; that is not an error.

        :param folder: the folder.
        :param pattern: a pattern for :meth:`pathlib.Path.glob`; ``**/*.csv`` includes files in subfolders.
        :returns: the progress of this run.
        :raises InvalidArgumentError: the folder does not exist, the pattern is not valid, or the sync stream
            belongs to another ingestion.
        :raises FencedError: another ingester is using this sync stream.
        :raises IngestedSourceChangedError: ingested files have changed, or new files come before them.
        :raises IngestedStreamGoneError: the data stream was deleted after files were ingested.
        :raises StreamSealedError: the data stream is sealed.
        :raises TransactionOutcomeUnknownError: the server has no record of the last transaction.
        :raises IngestError: a file cannot be read, or contains something that cannot be written. The error
            names the file; the files before it have been ingested.
        """
        folder = check_path("folder", folder)
        # First of all, so that a wrong folder name is found before any stream is created.
        await trio.to_thread.run_sync(list_files, folder, pattern, abandon_on_cancel=True)
        async with Engine.open(
            self._client, self._stream, self._sync_stream, Kind.FILES, self._options
        ) as engine:
            done = await engine.settle()
            files, others = await trio.to_thread.run_sync(scan, folder, pattern, abandon_on_cancel=True)
            for other in others:
                self._left_out(other)
            start = check_done(files, engine.journal.seen, done, self._on_changed)
            sums = (
                sum(each.name_print for each in files[:start]),
                sum(each.print(each.size) for each in files[:start]),
            )
            engine.report(skipped=start, total=len(files))
            for position in range(start, len(files)):
                part = _FilePart(files[position], position, sums, self._samples, str(engine.stream))
                try:
                    await engine.ingest(part)
                finally:
                    part.close()
                sums = part.sums_after()
            await engine.finish()
            return engine.progress
