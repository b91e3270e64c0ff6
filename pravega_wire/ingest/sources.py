"""Ingests sources that are not whole files, exactly once: :class:`SourceIngester`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol

from pravega_wire.errors import (
    ArgumentTypeError,
    CorruptedStateError,
    IngestedSourceChangedError,
    IngestError,
    InvalidArgumentError,
)
from pravega_wire.ingest.engine import Engine, IfUnknown, Observer, Options, Part, Progress
from pravega_wire.ingest.samples import Parse, Sample, SampleReader, samples_of
from pravega_wire.ingest.state import UNKNOWN_LENGTH, IngestRecord, Kind
from pravega_wire.stream.client import PravegaClient, StreamName
from pravega_wire.stream.transaction import DEFAULT_LEASE
from pravega_wire.support.checks import check_callable, check_count, check_several

__all__ = [
    "EndRecord",
    "FileSource",
    "FixedCount",
    "LengthBefore",
    "Method",
    "SequenceSource",
    "Source",
    "SourceIngester",
]


class Source(Protocol):
    """A source that returns the same samples again, from any position."""

    def read_from(self, position: int) -> Iterable[Sample]:
        """Return the samples after the first ``position`` samples, in order, as far as they exist now.

        It is called and iterated in a worker thread, so it may block. A later call may return more samples at
        the end.

        :param position: number of samples to skip.
        """


@dataclass(frozen=True, slots=True)
class SequenceSource:
    """A sequence of samples that is the same in every run of the program.

    :ivar samples: the samples: a list, a tuple or another sequence.
    :raises InvalidArgumentError: ``samples`` is not a sequence, so it cannot be read again.
    """

    samples: Sequence[Sample]

    def __post_init__(self) -> None:
        # What has been read of an iterator is gone: after an abort, samples would be left out silently.
        check_several("samples", self.samples)
        if not isinstance(self.samples, Sequence):
            raise ArgumentTypeError(
                f"samples must be a sequence, which can be read again from any position, not a "
                f"{type(self.samples).__name__}: make a list of it"
            )

    def read_from(self, position: int) -> Iterator[Sample]:
        """See :class:`Source`."""
        _require(position, len(self.samples), "the sequence of samples")
        return islice(self.samples, position, None)


@dataclass(frozen=True, slots=True)
class FileSource:
    """A file that only grows at its end, read with a :data:`Parse`.

    With :func:`lines`, the last line must be complete. Reading from a position also reads everything before
    it.

    :ivar path: the file.
    :ivar parse: returns the samples of the file.
    """

    path: Path
    parse: Parse

    def __post_init__(self) -> None:
        check_callable("parse", self.parse)

    def read_from(self, position: int) -> Iterator[Sample]:
        """See :class:`Source`."""
        title = f"file {self.path}"
        samples = iter(samples_of(self.parse(self.path), title))
        _require(position, sum(1 for _ in islice(samples, position)), title)
        return samples


def _require(position: int, count: int, title: str) -> None:
    """Check that a source still has the samples that were ingested.

    Otherwise it is another one, such as a new log file: as many of its samples would be left out silently.
    """
    if count < position:
        raise IngestedSourceChangedError(
            f"{title} has {count} samples, but {position} of them were ingested: it was truncated or "
            "replaced. Restore it, or ingest the new one with a sync stream of its own",
            item=title,
        )


# --- how long a transaction is ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FixedCount:
    """A fixed number of samples in each transaction.

    A smaller rest at the end of the source gets an end record.

    :ivar count: number of samples in each transaction.
    """

    count: int

    def __post_init__(self) -> None:
        check_count("setting count", self.count)


@dataclass(frozen=True, slots=True)
class LengthBefore:
    """The length of each transaction is computed before it begins.

    :ivar length: returns the number of samples in the transaction that begins at a position; 0 if there are
        no more samples. It runs in the event loop, so it must not block.
    """

    length: Callable[[int], int]

    def __post_init__(self) -> None:
        check_callable("setting length", self.length)


@dataclass(frozen=True, slots=True)
class EndRecord:
    """The data determines where a transaction ends; its length is recorded before the commit.

    :ivar last: called with ``(sample, count, size)``; returns True if this sample is the last of its
        transaction, which now has ``count`` samples with ``size`` bytes, including this one.
    """

    last: Callable[[Sample, int, int], bool]

    def __post_init__(self) -> None:
        check_callable("setting last", self.last)


Method = FixedCount | LengthBefore | EndRecord


class _SourcePart(Part):
    """The samples of one transaction."""

    def __init__(self, feed: _Feed, position: int, method: Method) -> None:
        self._feed = feed
        self._method = method
        self.position = position
        self._seen = 0
        self._size = 0
        self._length = UNKNOWN_LENGTH
        self.title = f"the samples from {position} on"
        if isinstance(method, EndRecord):
            self.last = self._is_last

    def _is_last(self, sample: tuple[str, bytes]) -> bool:
        assert isinstance(self._method, EndRecord)
        self._seen += 1
        self._size += len(sample[1])
        return self._method.last(sample, self._seen, self._size)

    async def begin(self) -> SampleReader | None:
        self._seen = self._size = 0
        if isinstance(self._method, FixedCount):
            self._length = self._method.count
        elif isinstance(self._method, LengthBefore):
            found = self._method.length(self.position)
            if isinstance(found, bool) or not isinstance(found, int):
                raise IngestError(
                    f"the length computed for position {self.position} is {found!r:.100}, which is not a "
                    "whole number",
                    item=self.title,
                )
            self._length = found
            if self._length < 0:
                raise IngestError(
                    f"the length computed for position {self.position} is {self._length}, which is negative",
                    item=self.title,
                )
            if self._length == 0:
                return None
        reader = self._feed.at(self.position)
        if await reader.more():
            return reader
        if isinstance(self._method, LengthBefore):
            raise self._short(0)
        return None

    def _short(self, count: int) -> IngestError:
        return IngestError(
            f"the length computed for position {self.position} is {self._length}, but the source has only "
            f"{count} samples from there",
            item=self.title,
        )

    def record(self) -> IngestRecord:
        return IngestRecord(self._feed.stream, Kind.SOURCE, position=self.position, length=self._length)

    def wanted(self, count: int) -> int | None:
        return None if self._length == UNKNOWN_LENGTH else self._length - count

    async def end(self, count: int) -> int | None:
        self._feed.position = self.position + count
        if count == self._length:
            return None
        if isinstance(self._method, LengthBefore):
            raise self._short(count)
        return count


class _Feed:
    """Reads the source's samples from one transaction to the next, with a single pass where possible."""

    def __init__(self, source: Source, stream: str) -> None:
        self.stream = stream
        self.position = -1
        self._source = source
        self._reader: SampleReader | None = None

    def at(self, position: int) -> SampleReader:
        """Return a reader whose next sample is the one after ``position`` samples."""
        if self._reader is None or self.position != position:
            self.close()
            self._reader = SampleReader(
                lambda: self._source.read_from(position), title="the source", default_key=self.stream
            )
        # The position is unknown until the current transaction has all of its samples.
        self.position = -1
        return self._reader

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None


def _after(record: IngestRecord, done: bool) -> int:
    """Return the position at which ingestion continues after a record."""
    if record.transaction.int == 0 or not done:
        return record.position
    if record.length == UNKNOWN_LENGTH:
        raise CorruptedStateError(
            f"{record.title}: transaction {record.transaction} on {record.stream} is committed without an "
            "end record: another program has committed it, so the position to continue from is unknown. To "
            "start over, use another sync stream and another data stream",
            transaction=record.transaction,
        )
    return record.position + record.length


class SourceIngester:
    """Ingests a source in transactions of several samples, exactly once.

    The source must be readable again from any position.

    Example::

        ingester = SourceIngester(
            client, "scope/events", "scope/events-sync", method=FixedCount(10_000)
        )
        await ingester.run(source)

    Positions count samples. The state contains the position and length of the last transaction, so a run
    after a crash continues where the next one begins. ``method`` determines the length of a transaction:

    - :class:`FixedCount`: always the same number, recorded before the data;
    - :class:`LengthBefore`: computed before the transaction begins, and recorded before the data;
    - :class:`EndRecord`: the data determines it. The length is recorded when all samples are stored in the
      transaction and before it is committed. If a crash leaves that record and an open transaction, the next
      run commits the transaction, because it is complete.

    A source that cannot be read again, such as a plain iterator or a socket, cannot be ingested exactly once:
    samples that were read but not committed are lost in a crash. Save its data to files first, or write it
    with an event writer.

    :param client: the client to use.
    :param stream: the data stream; it is created with ``segments`` fixed segments if it does not exist.
    :param sync_stream: the stream for the state; it is created with one segment if it does not exist. Use a
        different one for each source.
    :param method: how the length of a transaction is determined.
    :param if_unknown: as for :class:`FileIngester`.
    :param segments: as for :class:`FileIngester`.
    :param create: as for :class:`FileIngester`.
    :param lease: as for :class:`FileIngester`.
    :param progress: called with a :class:`Progress` after each batch of events and each transaction.
    :param observer: as for :class:`FileIngester`.
    :raises InvalidArgumentError: an option has a value that is not allowed.
    """

    def __init__(
        self,
        client: PravegaClient,
        stream: StreamName,
        sync_stream: StreamName,
        *,
        method: Method,
        if_unknown: IfUnknown = "raise",
        segments: int = 10,
        create: bool = True,
        lease: float = DEFAULT_LEASE,
        progress: Callable[[Progress], None] | None = None,
        observer: Observer | None = None,
    ) -> None:
        if not isinstance(method, FixedCount | LengthBefore | EndRecord):
            raise InvalidArgumentError(
                f"setting method: {method!r} is not one of FixedCount, LengthBefore, EndRecord"
            )
        self._client = client
        self._stream = stream
        self._sync_stream = sync_stream
        self._method: Method = method
        self._options = Options(
            segments=segments,
            create=create,
            lease=lease,
            if_unknown=if_unknown,
            progress=progress,
            observer=observer,
        )

    async def run(self, source: Source) -> Progress:
        """Ingest the samples that have not been ingested yet; return when readers see all of them.

        :param source: the source.
        :returns: the progress of this run.
        :raises InvalidArgumentError: the source cannot be read from a position, or the sync stream belongs to
            another ingestion.
        :raises FencedError: another ingester is using this sync stream.
        :raises IngestedSourceChangedError: a :class:`FileSource` or :class:`SequenceSource` has fewer samples
            than were ingested.
        :raises IngestedStreamGoneError: the data stream was deleted after samples were ingested.
        :raises StreamSealedError: the data stream is sealed.
        :raises TransactionOutcomeUnknownError: the server has no record of the last transaction.
        :raises IngestError: the source returns something other than samples, or fewer samples than were
            computed.
        """
        if not callable(getattr(source, "read_from", None)):
            memory = (
                "; wrap it in a SequenceSource if it is the same in every run"
                if isinstance(source, Sequence)
                else ""
            )
            raise InvalidArgumentError(
                f"a {type(source).__name__} cannot be ingested exactly once: it has no method "
                "read_from(position), so samples that were read but not committed would be lost in a "
                f"crash{memory}"
            )
        async with Engine.open(
            self._client, self._stream, self._sync_stream, Kind.SOURCE, self._options
        ) as engine:
            done = await engine.settle()
            feed = _Feed(source, str(engine.stream))
            try:
                while await engine.ingest(_SourcePart(feed, _after(engine.journal.seen, done), self._method)):
                    done = True
            finally:
                feed.close()
            await engine.finish()
            return engine.progress
