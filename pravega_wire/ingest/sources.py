"""Sources that are not whole files, exactly once: see :class:`SourceIngester`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol

from pravega_wire.checks import check_count
from pravega_wire.errors import CorruptedStateError, IngestError, InvalidArgumentError
from pravega_wire.ingest.engine import Engine, IfUnknown, Observer, Options, Part, Progress
from pravega_wire.ingest.samples import Parse, Sample, SampleReader
from pravega_wire.ingest.state import UNKNOWN_LENGTH, IngestRecord, Kind
from pravega_wire.stream.client import PravegaClient, StreamName
from pravega_wire.stream.transaction import DEFAULT_LEASE_MS

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
    """Something that gives the same samples again, from any position."""

    def read_from(self, position: int) -> Iterable[Sample]:
        """The samples after the first ``position`` ones, in order, as far as there are any now.

        Called and read in a worker thread, so it may block. A later call may give more at the end.
        """


@dataclass(frozen=True, slots=True)
class SequenceSource:
    """A sequence of samples that every run of the program makes anew in the same way."""

    samples: Sequence[Sample]

    def read_from(self, position: int) -> Iterator[Sample]:
        """See :class:`Source`."""
        return islice(self.samples, position, None)


@dataclass(frozen=True, slots=True)
class FileSource:
    """A file that only grows at its end, read as samples by a :data:`Parse`.

    With :func:`lines` the last line must be complete. Reading from a position reads what is before it, too.
    """

    path: Path
    parse: Parse

    def read_from(self, position: int) -> Iterator[Sample]:
        """See :class:`Source`."""
        return islice(self.parse(self.path), position, None)


# --- how long a transaction is ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FixedCount:
    """So many samples in each transaction. What is left at the source's end gets an end record."""

    count: int

    def __post_init__(self) -> None:
        check_count("setting count", self.count)


@dataclass(frozen=True, slots=True)
class LengthBefore:
    """The length of a transaction is computed before it begins.

    :param length: from a position to the number of samples in the transaction that begins there; 0 when there
        is nothing more. It runs in the event loop, so it does not block.
    """

    length: Callable[[int], int]


@dataclass(frozen=True, slots=True)
class EndRecord:
    """The data decide where a transaction ends: its length is written into the state before the commit.

    :param last: ``(sample, count, size)``: whether this sample is the last of its transaction, where
        ``count`` samples of ``size`` bytes are in it, this one included.
    """

    last: Callable[[Sample, int, int], bool]


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
            self._length = self._method.length(self.position)
            if self._length < 0:
                raise IngestError(
                    f"the length computed for position {self.position} is {self._length}", item=self.title
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
            f"the length computed for position {self.position} is {self._length}, and the source gives "
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
    """The source's samples from one transaction to the next, without reading anew where that can be."""

    def __init__(self, source: Source, stream: str) -> None:
        self.stream = stream
        self.position = -1
        self._source = source
        self._reader: SampleReader | None = None

    def at(self, position: int) -> SampleReader:
        """A reader whose next sample is the one after ``position`` samples."""
        if self._reader is None or self.position != position:
            self.close()
            self._reader = SampleReader(
                lambda: self._source.read_from(position), title="the source", default_key=self.stream
            )
        # Where it stands is known again when the transaction that takes from it has all of its samples.
        self.position = -1
        return self._reader

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None


def _after(record: IngestRecord, done: bool) -> int:
    """The position that a record leads to."""
    if record.transaction.int == 0 or not done:
        return record.position
    if record.length == UNKNOWN_LENGTH:
        raise CorruptedStateError(
            f"{record.title}: transaction {record.transaction} on {record.stream} is committed, and there is "
            "no end record: somebody else has committed it, and where to go on cannot be told",
            transaction=record.transaction,
        )
    return record.position + record.length


class SourceIngester:
    """Ingests a source that can be read again from a position, in transactions of some samples, exactly once.

    ::

        ingester = SourceIngester(client, "scope/events", "scope/events-sync", method=FixedCount(10_000))
        await ingester.run(source)

    Positions count samples. The state names position and length of the last transaction, so a run after a
    crash knows where the next one begins. ``method`` says how long a transaction is:

    - :class:`FixedCount`: always the same number, which is in the state from the beginning;
    - :class:`LengthBefore`: computed before the transaction begins, and then in the state, too;
    - :class:`EndRecord`: the data decide. The length is put into the state when all samples are stored in the
      transaction and before it is committed. If that record is there after a crash and the transaction is
      open, it is committed: it is complete.

    A source without memory, such as a plain iterator or a socket, cannot be ingested exactly once across a
    crash: what was read from it and not committed is gone. Put it into files first, or write it as it comes
    with an event writer.

    The other parameters are those of :class:`FileIngester`.
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
        lease_ms: int = DEFAULT_LEASE_MS,
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
            lease_ms=lease_ms,
            if_unknown=if_unknown,
            progress=progress,
            observer=observer,
        )

    async def run(self, source: Source) -> Progress:
        """Ingest what the source has beyond the last run; returns when readers see all of it.

        :raises InvalidArgumentError: the source cannot be read again from a position.
        :raises FencedError: another ingester is at work with this sync stream.
        :raises IngestedStreamGoneError: the data stream was deleted after samples went in.
        :raises StreamSealedError: the data stream is sealed.
        :raises TransactionOutcomeUnknownError: the server has forgotten how the last transaction ended.
        :raises IngestError: the source gives something that is no sample, or fewer than were computed.
        """
        if not callable(getattr(source, "read_from", None)):
            memory = (
                "; wrap it in a SequenceSource if every run makes the same one"
                if isinstance(source, Sequence)
                else ""
            )
            raise InvalidArgumentError(
                f"a {type(source).__name__} cannot be ingested exactly once: it has no read_from(position), "
                f"so what was read from it and not committed would be lost in a crash{memory}"
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
