"""Writes each part of the input in its own transaction, and records the state before it writes the data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Literal, Self
from uuid import UUID

from pravega_wire.controller.types import TxnStatus
from pravega_wire.errors import (
    EventTooLargeError,
    FencedError,
    IngestedStreamGoneError,
    IngestError,
    InvalidArgumentError,
    PravegaTimeoutError,
    TransactionError,
    TransactionNotOpenError,
    TransactionOutcomeUnknownError,
    TransactionUnknownError,
)
from pravega_wire.ingest.recovery import Action, decide
from pravega_wire.ingest.samples import SampleReader
from pravega_wire.ingest.state import IngestRecord, Journal, Kind, Phase
from pravega_wire.stream.client import PravegaClient, StreamName
from pravega_wire.stream.opening import opening
from pravega_wire.stream.transaction import DEFAULT_LEASE, Transaction
from pravega_wire.support.checks import INT32_MAX, check_callable, check_count, check_flag, check_lease
from pravega_wire.values.types import ScopedStream

__all__ = ["IfUnknown", "Observer", "Options", "Progress", "Stage"]

IfUnknown = Literal["raise", "committed", "aborted"]
"""What to assume about a transaction that the server has no record of; ``"raise"`` assumes nothing and
fails."""

_ATTEMPTS = 3


class Stage(Enum):
    """The points of the algorithm, in order. The values describe what has been done."""

    RECOVERED = "the last record is settled"
    BEGUN = "a transaction is begun, and no record says so"
    RECORDED = "the record is written, and no data"
    WRITING = "some samples are written"
    WRITTEN = "all samples are stored in the transaction"
    ENDED = "the end record is written"
    COMMITTING = "the commit is accepted"
    DONE = "the last commit is confirmed by a record"


Observer = Callable[[Stage, IngestRecord], Awaitable[None]]
"""Awaited at each :class:`Stage` with the current record (at ``BEGUN``, with the record about to be
written)."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a run.

    :ivar done: number of files (for a source: transactions) committed in this run. During the run, the latest
        commit has been accepted but may not be visible yet.
    :ivar skipped: number of files that were ingested before this run.
    :ivar total: number of all files; 0 for a source, whose length is unknown.
    :ivar events: number of events written in this run, including those of the open transaction.
    :ivar bytes: number of payload bytes of these events.
    """

    done: int = 0
    skipped: int = 0
    total: int = 0
    events: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Options:
    """The options of both file and source ingesters.

    :ivar segments: number of segments of the data stream, if it is created.
    :ivar create: whether to create missing scopes and streams.
    :ivar lease: lease of the transactions in seconds; it is renewed in the background.
    :ivar if_unknown: what to assume about the last transaction if the server has no record of it.
    :ivar progress: called with the progress, or None.
    :ivar observer: awaited at each stage, or None.
    """

    segments: int = 10
    create: bool = True
    lease: float = DEFAULT_LEASE
    if_unknown: IfUnknown = "raise"
    progress: Callable[[Progress], None] | None = None
    observer: Observer | None = None

    def __post_init__(self) -> None:
        if self.if_unknown not in ("raise", "committed", "aborted"):
            raise InvalidArgumentError(
                f"setting if_unknown: {self.if_unknown!r} is not one of raise, committed, aborted"
            )
        check_count("setting segments", self.segments, highest=INT32_MAX)
        check_flag("setting create", self.create)
        check_lease(self.lease)
        for name in ("progress", "observer"):
            if getattr(self, name) is not None:
                check_callable(f"setting {name}", getattr(self, name))


class Engine:
    """The algorithm of both ingesters. Use it as a context manager, and call :meth:`settle` first."""

    def __init__(
        self, client: PravegaClient, stream: ScopedStream, journal: Journal, options: Options
    ) -> None:
        self.stream = stream
        self.journal = journal
        self.progress = Progress()
        # Whether the record's part is done: its commit was accepted, but readers may not see it yet.
        self._committed = False
        # The transaction of the last commit request.
        self._committing: UUID | None = None
        self._client = client
        self._options = options

    @classmethod
    @opening
    async def open(
        cls, client: PravegaClient, stream: StreamName, sync_stream: StreamName, kind: Kind, options: Options
    ) -> Self:
        """Create missing streams and read the last record.

        :raises InvalidArgumentError: as for :meth:`Journal.open`.
        :raises IngestedStreamGoneError: there is a record of a transaction, but the data stream does not
            exist.
        """
        data, sync = client.config.resolve(stream), client.config.resolve(sync_stream)
        if data == sync:
            raise InvalidArgumentError(
                f"stream {data} cannot be both the data stream and the sync stream; use another sync stream"
            )
        if options.create:
            await client.create_scope(sync.scope)
            await client.create_stream(sync, 1)
        journal = await Journal.open(client, sync, data, kind)
        try:
            record = journal.seen
            if record.phase != Phase.NOTHING:
                # A new stream would be empty, and data recorded as done would never be written to it.
                if not await client.stream_exists(data):
                    raise IngestedStreamGoneError(
                        f"stream {data} no longer exists, but sync stream {sync} records its ingestion up to "
                        f"{record.title}: the ingested data was deleted with the stream. To ingest "
                        f"everything again, use another sync stream or delete {sync}",
                        scope=data.scope,
                        stream=data.name,
                        item=record.item or record.title,
                    )
            elif options.create:
                await client.create_scope(data.scope)
                await client.create_stream(data, options.segments)
        except BaseException:
            await journal.aclose()
            raise
        return cls(client, data, journal, options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await self.journal.aclose()

    async def _observe(self, stage: Stage, record: IngestRecord) -> None:
        if self._options.observer is not None:
            await self._options.observer(stage, record)

    def report(self, **changes: int) -> None:
        """Update and report the progress."""
        self.progress = replace(self.progress, **changes)
        if self._options.progress is not None:
            self._options.progress(self.progress)

    # --- recovery -------------------------------------------------------------------------------

    async def settle(self) -> bool:
        """Find out how the last record's transaction ended, or end it. Return True if its part is done.

        :raises TransactionOutcomeUnknownError: the server has no record of the transaction.
        :raises FencedError: another ingester is using the sync stream.
        """
        for _ in range(_ATTEMPTS):
            record = self.journal.seen
            status = TxnStatus.UNKNOWN
            if record.phase in (Phase.BEGUN, Phase.ENDED):
                status = await self._client.transaction_status(self.stream, record.transaction)
            action = decide(Phase(record.phase), status)
            try:
                if action is Action.ABORT_AND_REDO:
                    await self._client.abort_transaction(self.stream, record.transaction)
                elif action is Action.COMMIT_AND_GO_ON:
                    await self._client.commit_transaction(self.stream, record.transaction)
            except TransactionNotOpenError:
                # Its owner, which is still alive, or its lease has just ended it. That is final: check again.
                continue
            except TransactionUnknownError:
                action = Action.STOP
            if action is Action.STOP:
                if self._options.if_unknown == "raise":
                    raise self._unknown(record)
                action = Action.GO_ON if self._options.if_unknown == "committed" else Action.REDO
            if action is Action.GO_ON and record.phase == Phase.BEGUN:
                # Its owner may be alive, and may have written the end record since this one was read.
                await self.journal.check()
            self._committed = action in (Action.GO_ON, Action.COMMIT_AND_GO_ON)
            await self._observe(Stage.RECOVERED, record)
            return self._committed
        raise self._named(
            IngestError,
            record,
            f"{record.title}: transaction {record.transaction} on {self.stream} can be neither committed nor "
            f"aborted ({_ATTEMPTS} attempts); run the ingestion again",
        )

    def _named(self, kind: type[IngestError], record: IngestRecord, message: str) -> IngestError:
        return kind(
            message,
            scope=self.stream.scope,
            stream=self.stream.name,
            transaction=record.transaction,
            item=record.item or record.title,
        )

    def _unknown(self, record: IngestRecord) -> IngestError:
        return self._named(
            TransactionOutcomeUnknownError,
            record,
            f"{record.title}: the server has no record of its transaction {record.transaction} on "
            f"{self.stream}, so whether it was committed is unknown; inspect the stream, then run the "
            "ingestion with if_unknown 'committed' or 'aborted'",
        )

    # --- one part -------------------------------------------------------------------------------

    async def ingest(self, part: Part) -> bool:
        """Write a part in a transaction and commit it. Return False if there is nothing to write.

        If the transaction is aborted before its commit (its lease expired, or another ingester is about to
        take over), the part is written again, provided that the record is still this ingester's.

        :raises FencedError: another ingester is using the sync stream.
        :raises PravegaTimeoutError: the transaction of the previous part stays COMMITTING; nothing of this
            part was written.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            before = self.progress
            reader = await part.begin()
            if reader is None:
                return False
            txn = await self._client.begin_transaction(self.stream, lease=self._options.lease)
            try:
                record = replace(part.record(), transaction=txn.txn_id, phase=Phase.BEGUN)
                await self._observe(Stage.BEGUN, record)
                await self._confirm()
                await self.journal.replace(record)
                self._committed = False
                try:
                    await self._write(txn, part, reader)
                    self.report(done=before.done + 1)
                    return True
                except TransactionError as error:
                    await self._drop(txn, error)
                    await self.journal.check()
                    if await self.settle():
                        self.report(done=before.done + 1)
                        return True
                    if attempt == _ATTEMPTS:
                        raise
            except BaseException as error:
                await self._drop(txn, error)
                raise
            self.report(events=before.events, bytes=before.bytes)
        raise AssertionError("the last attempt returns or raises")

    async def _write(self, txn: Transaction, part: Part, reader: SampleReader) -> None:
        await self._observe(Stage.RECORDED, self.journal.seen)
        count = 0
        while (wanted := part.wanted(count)) != 0 and await reader.more():
            samples, ended = reader.take(wanted, part.last)
            try:
                await txn.write_events(
                    [event for _, event in samples],
                    [key for key, _ in samples],
                )
            except InvalidArgumentError as error:
                message = f"{part.title}: {error.message}"
                if isinstance(error, EventTooLargeError):
                    sizes = [len(event) for _, event in samples]
                    large = next((i for i, size in enumerate(sizes, 1) if size > error.limit), 0)
                    message = f"{part.title}, event {count + large}: {error.message}"
                raise self._named(IngestError, self.journal.seen, message) from error
            count += len(samples)
            self.report(
                events=self.progress.events + len(samples),
                bytes=self.progress.bytes + sum(len(event) for _, event in samples),
            )
            await self._observe(Stage.WRITING, self.journal.seen)
            if ended:
                break
        # The end record states that everything is stored, so flush first.
        await txn.flush()
        await self._observe(Stage.WRITTEN, self.journal.seen)
        length = await part.end(count)
        if length is not None:
            await self.journal.replace(replace(self.journal.seen, length=length, phase=Phase.ENDED))
            await self._observe(Stage.ENDED, self.journal.seen)
        # From here on the server may commit, even if this is cancelled or the reply is lost.
        self._committing = txn.txn_id
        await txn.commit()
        self._committed = True
        await self._observe(Stage.COMMITTING, self.journal.seen)

    async def _drop(self, txn: Transaction, error: BaseException) -> None:
        """Abort the transaction if that is possible now; otherwise its lease will end it.

        After a commit request it is not aborted: the commit may still be in progress, and a 0.13.0 controller
        may leave a transaction COMMITTING forever if it receives both. A later run finds out how it ended.
        """
        if self._committing == txn.txn_id:
            await txn.aclose()
            return
        await txn.__aexit__(type(error), error, error.__traceback__)

    async def _confirm(self) -> bool:
        """If the record's part is done, wait until readers see it; only then may the next record be written.

        An accepted commit is not yet final: one that raced with an abort (by an ingester that took over) may
        stay COMMITTING. Continuing from there would lose the part, or store it out of order.

        :returns: True if the part was done.
        :raises PravegaTimeoutError: the transaction stays COMMITTING. The record is kept, so the next run
            waits again.
        """
        record = self.journal.seen
        if not self._committed or record.phase not in (Phase.BEGUN, Phase.ENDED):
            return False
        try:
            await self._client.wait_committed(self.stream, record.transaction)
        except TransactionUnknownError as error:
            if self._options.if_unknown != "committed":
                raise self._unknown(record) from error
        except PravegaTimeoutError as error:
            raise PravegaTimeoutError(
                f"{record.title}: {error.message}; nothing after it was ingested. Run the ingestion again to "
                "wait for it",
                scope=self.stream.scope,
                stream=self.stream.name,
                transaction=record.transaction,
            ) from error
        return True

    async def finish(self) -> None:
        """Wait until readers see everything, and record that.

        The server removes its record of a transaction a day after its end; the next run does not need it
        then.

        :raises PravegaTimeoutError: the last part's transaction stays COMMITTING.
        """
        record = self.journal.seen
        if not await self._confirm():
            return
        try:
            await self.journal.replace(replace(record, phase=Phase.DONE))
        except FencedError:
            # Another ingester has already continued from here; nothing is left to do.
            return
        await self._observe(Stage.DONE, self.journal.seen)


class Part(ABC):
    """The data of one transaction; each ingester has its own subclass.

    :ivar title: the part's name in messages.
    :ivar last: returns True for the sample that ends the part; None if the end does not depend on the
        samples.
    """

    title = ""
    last: Callable[[tuple[str, bytes]], bool] | None = None

    @abstractmethod
    async def begin(self) -> SampleReader | None:
        """Return the reader of the samples, or None if there are none; called before each attempt."""

    @abstractmethod
    def record(self) -> IngestRecord:
        """Return the record to write before the data, without transaction and phase."""

    def wanted(self, count: int) -> int | None:
        """Return how many more samples to take after ``count``; None for all."""
        return None

    @abstractmethod
    async def end(self, count: int) -> int | None:
        """Return the length for an end record, or None for no end record; called when everything is stored.

        :raises IngestError: the part must not be committed.
        """
