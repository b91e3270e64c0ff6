"""One part after the other into a transaction of its own, with the state written before the data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Literal, Self
from uuid import UUID

import trio

from pravega_wire.checks import INT32_MAX, check_count, check_flag, check_lease
from pravega_wire.controller.types import TxnStatus
from pravega_wire.errors import (
    EventTooLargeError,
    FencedError,
    IngestedStreamGoneError,
    IngestError,
    InvalidArgumentError,
    PravegaError,
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
from pravega_wire.stream.transaction import DEFAULT_LEASE_MS, Transaction
from pravega_wire.types import ScopedStream

__all__ = ["IfUnknown", "Observer", "Options", "Progress", "Stage"]

IfUnknown = Literal["raise", "committed", "aborted"]
"""What to take a transaction for that the server has forgotten."""

_ATTEMPTS = 3
_DROP_SECONDS = 10.0


class Stage(Enum):
    """Points of the algorithm, in their order."""

    RECOVERED = "the last record is settled"
    BEGUN = "a transaction is begun, and no record says so"
    RECORDED = "the record is written, and no data"
    WRITING = "some samples are written"
    WRITTEN = "all samples are stored in the transaction"
    ENDED = "the end record is written"
    COMMITTING = "the commit is accepted"
    DONE = "the last commit is confirmed by a record"


Observer = Callable[[Stage, IngestRecord], Awaitable[None]]
"""Awaited at each :class:`Stage`, with the record that is current then (at ``BEGUN``: about to be)."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has come.

    :ivar done: files (of a source: transactions) committed in this run; while it lasts, the commit of the
        latest is accepted, and may not be visible yet. :ivar skipped: files that were done before it.
    :ivar total: files altogether; 0 of a source, which does not tell.
    :ivar events, bytes: written in this run, those of the open transaction included; bytes are of payloads.
    """

    done: int = 0
    skipped: int = 0
    total: int = 0
    events: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Options:
    """What file and source ingesters share.

    :ivar segments: of the data stream, when it is created.
    :ivar create: create the scopes and streams that are not there.
    :ivar lease_ms: of the transactions, milliseconds; renewed in the background.
    :ivar if_unknown: what to take the last transaction for when the server has forgotten it.
    """

    segments: int = 10
    create: bool = True
    lease_ms: int = DEFAULT_LEASE_MS
    if_unknown: IfUnknown = "raise"
    progress: Callable[[Progress], None] | None = None
    observer: Observer | None = None

    def __post_init__(self) -> None:
        if self.if_unknown not in ("raise", "committed", "aborted"):
            raise InvalidArgumentError(
                f"setting if_unknown: {self.if_unknown!r} is not one of fail, committed, aborted"
            )
        check_count("setting segments", self.segments, highest=INT32_MAX)
        check_flag("setting create", self.create)
        check_lease(self.lease_ms)


class Engine:
    """What both ingesters run on. Use as a context manager; :meth:`settle` comes first."""

    def __init__(
        self, client: PravegaClient, stream: ScopedStream, journal: Journal, options: Options
    ) -> None:
        self.stream = stream
        self.journal = journal
        self.progress = Progress()
        # Whether the record's part is done: its commit is accepted; readers may not see it yet.
        self._committed = False
        # The transaction whose commit was asked for last.
        self._committing: UUID | None = None
        self._client = client
        self._options = options

    @classmethod
    @opening
    async def open(
        cls, client: PravegaClient, stream: StreamName, sync_stream: StreamName, kind: Kind, options: Options
    ) -> Self:
        """Create what is missing and read the last record. Errors as :meth:`Journal.open`.

        :raises IngestedStreamGoneError: there is a record of a transaction, and the data stream is not there.
        """
        data, sync = client.config.resolve(stream), client.config.resolve(sync_stream)
        if data == sync:
            raise InvalidArgumentError(f"stream {data} cannot be the data stream and the sync stream at once")
        if options.create:
            await client.create_scope(sync.scope)
            await client.create_stream(sync, 1)
        journal = await Journal.open(client, sync, data, kind)
        try:
            record = journal.seen
            if record.phase != Phase.NOTHING:
                # Made again it would be empty, and what is recorded as done would never go in.
                if not await client.stream_exists(data):
                    raise IngestedStreamGoneError(
                        f"stream {data} is not there any more, and sync stream {sync} says that ingestion "
                        f"into it has come to {record.title}: what went in was deleted with it. To ingest "
                        f"everything again, use another sync stream (or delete {sync})",
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
        """Tell the progress."""
        self.progress = replace(self.progress, **changes)
        if self._options.progress is not None:
            self._options.progress(self.progress)

    # --- recovery -------------------------------------------------------------------------------

    async def settle(self) -> bool:
        """Find out how the last record's transaction ended, or end it; True when its part is done.

        :raises TransactionOutcomeUnknownError: the server has forgotten it.
        :raises FencedError: another ingester is at work.
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
                # Its owner, alive after all, or its lease has ended it just now. An end is final: ask again.
                continue
            except TransactionUnknownError:
                action = Action.STOP
            if action is Action.STOP:
                if self._options.if_unknown == "raise":
                    raise self._unknown(record)
                action = Action.GO_ON if self._options.if_unknown == "committed" else Action.REDO
            if action is Action.GO_ON and record.phase == Phase.BEGUN:
                # Its owner may be alive, and have written the end record since this one was read.
                await self.journal.check()
            self._committed = action in (Action.GO_ON, Action.COMMIT_AND_GO_ON)
            await self._observe(Stage.RECOVERED, record)
            return self._committed
        raise self._named(
            IngestError,
            record,
            f"{record.title}: transaction {record.transaction} on {self.stream} can be neither committed nor "
            "aborted",
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
            f"{self.stream} any more, so whether it was committed cannot be told; look into the stream, and "
            "say if_unknown 'committed' or 'aborted'",
        )

    # --- one part -------------------------------------------------------------------------------

    async def ingest(self, part: Part) -> bool:
        """Write a part in a transaction, and commit it; False when there is nothing to write.

        A transaction that was aborted under way (its lease ran out, or another ingester is about to take
        over) is done again if the record is still the one of this ingester.

        :raises FencedError: another ingester is at work.
        :raises PravegaTimeoutError: the transaction of the part before stays COMMITTING; nothing of this part
            is written.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            before = self.progress
            reader = await part.begin()
            if reader is None:
                return False
            txn = await self._client.begin_transaction(self.stream, lease_ms=self._options.lease_ms)
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
                except TransactionError:
                    await self._drop(txn)
                    await self.journal.check()
                    if await self.settle():
                        self.report(done=before.done + 1)
                        return True
                    if attempt == _ATTEMPTS:
                        raise
            except BaseException:
                await self._drop(txn)
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
        # The end record says that all is stored, so that comes first.
        await txn.flush()
        await self._observe(Stage.WRITTEN, self.journal.seen)
        length = await part.end(count)
        if length is not None:
            await self.journal.replace(replace(self.journal.seen, length=length, phase=Phase.ENDED))
            await self._observe(Stage.ENDED, self.journal.seen)
        # From here on there may be a commit on the server, even if this is cancelled or the answer is lost.
        self._committing = txn.txn_id
        await txn.commit()
        self._committed = True
        await self._observe(Stage.COMMITTING, self.journal.seen)

    async def _drop(self, txn: Transaction) -> None:
        """Abort, as far as that can be done now; its lease does the rest.

        Not when a commit was asked for: it might still be under way, and a 0.13.0 controller may leave a
        transaction COMMITTING for ever when both meet. Who settles the record later knows how it ended.
        """
        if self._committing == txn.txn_id:
            await txn.aclose()
            return
        with trio.CancelScope(shield=True), trio.move_on_after(_DROP_SECONDS):
            try:
                await txn.abort()
            except PravegaError:
                # Committed (the record's status will say so), or the server is not there.
                pass

    async def _confirm(self) -> bool:
        """Wait until readers see the part of the record, if that is done; only then may a record follow it.

        A commit that is accepted is not a commit yet: one that raced with an abort (of an ingester that took
        over) may stay COMMITTING. Whoever goes on from there would lose the part, or put it out of order.

        :returns: whether it was done.
        :raises PravegaTimeoutError: it stays COMMITTING. The record stays too: the next run waits again.
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
                f"{record.title}: {error.message}; nothing after it is ingested, and another run waits again",
                scope=self.stream.scope,
                stream=self.stream.name,
                transaction=record.transaction,
            ) from error
        return True

    async def finish(self) -> None:
        """Wait until readers see everything, and note that in the record.

        The server forgets a transaction a day after its end; with this note the next run need not ask.

        :raises PravegaTimeoutError: the last part's transaction stays COMMITTING.
        """
        record = self.journal.seen
        if not await self._confirm():
            return
        try:
            await self.journal.replace(replace(record, phase=Phase.DONE))
        except FencedError:
            # Another one has gone on from here meanwhile; there was nothing left to do here.
            return
        await self._observe(Stage.DONE, self.journal.seen)


class Part(ABC):
    """What goes into one transaction; each ingester has its own class of it.

    :ivar title: what messages call it.
    :ivar last: says of a sample that it ends the part; None when it does not depend on the samples.
    """

    title = ""
    last: Callable[[tuple[str, bytes]], bool] | None = None

    @abstractmethod
    async def begin(self) -> SampleReader | None:
        """Called before each attempt: where the samples come from; None when there are none."""

    @abstractmethod
    def record(self) -> IngestRecord:
        """The record to write before the data; transaction and phase are filled in."""

    def wanted(self, count: int) -> int | None:
        """How many more samples to take after ``count``; None for all there are."""
        return None

    @abstractmethod
    async def end(self, count: int) -> int | None:
        """Called when all is stored: the length for an end record, None for no end record.

        :raises IngestError: the part must not be committed.
        """
