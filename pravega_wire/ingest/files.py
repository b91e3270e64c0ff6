"""Files of a folder into a stream, each exactly once: see :class:`FileIngester`."""

from __future__ import annotations

import hashlib
import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

import trio

from pravega_wire.errors import IngestedSourceChangedError, IngestError, InvalidArgumentError
from pravega_wire.ingest.engine import Engine, IfUnknown, Observer, Options, Part, Progress
from pravega_wire.ingest.samples import Parse, Sample, SampleReader, lines
from pravega_wire.ingest.state import IngestRecord, Kind
from pravega_wire.stream.client import PravegaClient, StreamName
from pravega_wire.stream.transaction import DEFAULT_LEASE_MS

__all__ = ["FileIngester", "Found", "LeftOut", "OnChanged", "check_done", "list_files", "scan"]

log = logging.getLogger(__name__)

OnChanged = Literal["raise", "ignore"]
"""What to do when the files that were ingested are not what lies there now."""

_MODULUS = 1 << 128


@dataclass(frozen=True, slots=True)
class Found:
    """A file of the folder.

    :ivar name: relative to the folder, with slashes. :ivar size: bytes.
    """

    name: str
    path: Path
    size: int

    @property
    def name_print(self) -> int:
        """A number for the name."""
        return _number(self.name)

    def print(self, size: int) -> int:
        """A number for the name and a size."""
        return _number(f"{self.name}\0{size}")


def _number(text: str) -> int:
    digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()
    return int.from_bytes(digest[:16], "big")


def _bytes(number: int) -> bytes:
    return (number % _MODULUS).to_bytes(16, "big")


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something that matches the pattern and is no file.

    :ivar name: relative to the folder, with slashes. :ivar why: what it is.
    """

    name: str
    why: str


def list_files(folder: Path, pattern: str = "*") -> list[Found]:
    """The files of :func:`scan`."""
    return scan(folder, pattern)[0]


def scan(folder: Path, pattern: str = "*") -> tuple[list[Found], list[LeftOut]]:
    """The files of a folder that match, ordered by name (by code points, not by language or by numbers).

    Folders, links that lead nowhere, sockets, pipes and devices that match are the second list. A folder with
    files in it that match is not among them: ``**/*`` matches it, too.

    :param pattern: as :meth:`pathlib.Path.glob` takes it; ``**/*.csv`` looks into folders as well.
    :raises InvalidArgumentError: no such folder, or a pattern that cannot be used.
    """
    if not folder.is_dir():
        raise InvalidArgumentError(f"folder {folder} is not there, or is not a folder")
    found, left_out = [], []
    try:
        for path in folder.glob(pattern):
            name = path.relative_to(folder).as_posix()
            if path.is_file():
                found.append(Found(name, path, path.stat().st_size))
            else:
                left_out.append(LeftOut(name, _kind_of(path)))
    except (ValueError, NotImplementedError) as error:
        raise InvalidArgumentError(f"pattern {pattern!r} cannot be used: {error}") from error
    except OSError as error:
        raise InvalidArgumentError(f"folder {folder} cannot be listed: {error.strerror or error}") from error
    for each in found:
        try:
            each.name.encode()
        except UnicodeEncodeError:
            raise InvalidArgumentError(f"the name of file {each.path!r} is not UTF-8") from None
    inside = {parent.as_posix() for each in found for parent in PurePosixPath(each.name).parents}
    return (
        sorted(found, key=lambda each: each.name),
        sorted((each for each in left_out if each.name not in inside), key=lambda each: each.name),
    )


def _kind_of(path: Path) -> str:
    """What something is that is no file."""
    if path.is_dir():
        return "a folder"
    if path.is_symlink() and not path.exists():
        return "a link that leads nowhere"
    return "a socket, pipe or device"


def check_done(files: Sequence[Found], record: IngestRecord, done: bool, on_changed: OnChanged) -> int:
    """How many of the files are ingested already, the first of them in order.

    The record holds how many files came before its own, and sums of hashes over their names and sizes. The
    sums tell whether the files that come first now are those, and of one file too many, which one it is.

    :param done: whether the record's own file is ingested too.
    :raises IngestedSourceChangedError: they are not: one was added before the last one ingested, removed,
        renamed, or has another size.
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
                f"{first[-1].size} now",
            )
        raise _changed(
            record,
            f"one of the {count} files up to {first[-1].name} has another size than when it was ingested",
        )

    more = files[: count + 1]
    excess = (sum(each.name_print for each in more) - names) % _MODULUS
    for each in more:
        if len(more) == count + 1 and each.name_print == excess:
            raise _changed(
                record,
                f"file {each.name} is new and comes before files that were ingested: in its place it would "
                "be out of order, and skipping it would lose it; give it a name that comes after "
                f"{record.item}, or ingest it with a sync stream of its own",
            )
    if done and all(each.name != record.item for each in files):
        raise _changed(record, f"file {record.item} was ingested and is not there any more")
    raise _changed(
        record,
        f"{count} files were ingested, up to {record.item}{'' if done else ' (without it)'}, and the first "
        f"{count} by name are not the same any more: files were added, removed or renamed",
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
        """Size in bytes and time of change."""
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
                f"{self.title} has changed while it was read: ingest it when it is complete",
                item=self._file.name,
            )

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def sums_after(self) -> tuple[int, int]:
        """The sums over the files before it and itself, as it was read."""
        names, contents = self._sums
        return names + self._file.name_print, contents + self._file.print(self._stamp[0])


def _warn(left_out: LeftOut) -> None:
    log.warning("%s is %s, and is left out", left_out.name, left_out.why)


class FileIngester:
    """Ingests the files of a folder in the order of their names, each in one transaction, exactly once.

    ::

        ingester = FileIngester(client, "scope/events", "scope/events-sync", parse=csv_rows("station"))
        await ingester.run(Path("readings"), "*.csv")

    Before the first event of a file is written, the state on the sync stream names the file and its
    transaction. After a crash the next run asks how that transaction ended, and begins with that file again
    or with the one after it. Of several ingesters with the same sync stream one stays; the others stop with
    :class:`~pravega_wire.errors.FencedError`.

    What the caller has to see to: files do not change any more once they are in the folder (one that changes
    while it is read is not committed), and new ones have names that come after the old ones'. The ingested
    ones stay where they are; otherwise the next run refuses to go on, unless ``on_changed`` is ``"ignore"``.

    :param stream: the data stream, created with ``segments`` fixed segments if it is not there.
    :param sync_stream: the state, created with one segment. One for each folder.
    :param parse: gives the samples of a file, pairs of routing key and event; :func:`lines`,
        :func:`csv_rows`, or the caller's. It runs in a worker thread.
    :param key: the routing key of an event, instead of the one that ``parse`` gives. An event without a key
        gets the name of its file.
    :param on_changed: ``"raise"``: stop when ingested files were added to, removed, renamed or changed.
        ``"ignore"``: go on after the last one by name; what comes before it is never looked at.
    :param if_unknown: what to take the last transaction for if the server has forgotten it (a day after its
        end).
    :param create: create scopes and streams that are not there.
    :param lease_ms: of each transaction, milliseconds, renewed in the background.
    :param progress: called with a :class:`Progress` after each batch of events and each file.
    :param left_out: called for each thing in the folder that matches and is no file (a folder, a link that
        leads nowhere, a socket), before the first file is ingested. Default: a warning is logged.
    :param observer: awaited at each :class:`Stage`; what it raises ends the run.
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
        lease_ms: int = DEFAULT_LEASE_MS,
        progress: Callable[[Progress], None] | None = None,
        left_out: Callable[[LeftOut], None] | None = None,
        observer: Observer | None = None,
    ) -> None:
        if on_changed not in ("raise", "ignore"):
            raise InvalidArgumentError(f"setting on_changed: {on_changed!r} is neither raise nor ignore")
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
            lease_ms=lease_ms,
            if_unknown=if_unknown,
            progress=progress,
            observer=observer,
        )

    def _samples(self, path: Path) -> Iterable[Sample]:
        if self._key is None:
            return self._parse(path)
        key = self._key
        return ((key(event), event) for _, event in self._parse(path))

    async def run(self, folder: Path | str, pattern: str = "*") -> Progress:
        """Ingest what is there now and was not ingested before; returns when readers see all of it.

        The result's ``total`` is 0 when nothing matches, which is no error.

        :param folder, pattern: see :func:`scan`.
        :raises FencedError: another ingester is at work with this sync stream.
        :raises IngestedSourceChangedError: files that were ingested have changed, or new ones come before
            them.
        :raises IngestedStreamGoneError: the data stream was deleted after files went in.
        :raises StreamSealedError: the data stream is sealed.
        :raises TransactionOutcomeUnknownError: the server has forgotten how the last transaction ended.
        :raises IngestError: a file cannot be read, or holds something that cannot be written; it names the
            file, and the files before it are ingested.
        """
        folder = Path(folder)
        # A mistake in the folder's name is found before anything is created.
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
