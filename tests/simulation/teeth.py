"""Defects that are planted into the product, to see that the simulation finds them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Final
from unittest.mock import patch
from uuid import UUID

import trio

from pravega_wire.controller.types import Successor, Successors, TxnStatus
from pravega_wire.errors import (
    DataLossError,
    FencedError,
    PravegaError,
    TableKeyBadVersionError,
    TransactionNotOpenError,
)
from pravega_wire.ingest import engine
from pravega_wire.ingest import state as ingest_state
from pravega_wire.ingest.recovery import Action, decide
from pravega_wire.ingest.state import IngestRecord, Phase
from pravega_wire.protocol import append, watermarks
from pravega_wire.protocol import commands as c
from pravega_wire.protocol.append import Appends
from pravega_wire.protocol.group_algorithm import GroupMember
from pravega_wire.protocol.group_state import GroupState
from pravega_wire.segment import table
from pravega_wire.segment.conditional import ConditionalAppender
from pravega_wire.segment.metadata import SegmentMetadata
from pravega_wire.segment.table import Change, Next, Progress, TableSegment
from pravega_wire.stream import batch, follow, reader_group, routing, transaction
from pravega_wire.stream.byte_stream import ByteStreamReader, ByteStreamWriter
from pravega_wire.stream.core import ClientCore
from pravega_wire.stream.event_reader import EventReader
from pravega_wire.stream.event_writer import EventWriter
from pravega_wire.stream.follow import StreamFollower
from pravega_wire.stream.key_value_table import TableIterator
from pravega_wire.stream.reader_group import ReaderGroup
from pravega_wire.stream.resumable import ResumableWriter
from pravega_wire.stream.revisioned import RevisionedStream
from pravega_wire.stream.routing import RoutedWriter
from pravega_wire.stream.transaction import Transaction
from pravega_wire.support.nurseries import run_all
from pravega_wire.values.positions import Watermark
from pravega_wire.values.types import Revision, ScopedStream, StreamCut
from spark_adapter.exactly_once import driver, ledger
from spark_adapter.exactly_once.at_once import at_once
from spark_adapter.exactly_once.contents import AttemptResult
from spark_adapter.exactly_once.driver import BatchCommitter
from spark_adapter.exactly_once.election import ElectedCommitter
from spark_adapter.exactly_once.journal import Journal
from spark_adapter.exactly_once.ledger import Done, Prepared, Preparing, TxnOutcome, encode_record, staging_id
from tests.simulation.network import SimulatedStream

__all__ = ["TEETH", "Tooth", "planted", "tooth"]


@dataclass(frozen=True)
class Tooth:
    """A defect.

    :ivar workloads: the workloads that can find it.
    :ivar plant: plants it for the time of a block.
    :ivar seeds: those that a test tries; none if it takes too many to find it in each run of the tests.
    """

    workloads: tuple[str, ...]
    plant: Callable[[], AbstractContextManager[None]]
    seeds: tuple[int, ...]


TEETH: Final[dict[str, Tooth]] = {}


def first(seed: int) -> tuple[int, ...]:
    """The usual seeds, with one in front that has found the defect."""
    return (seed, *(each for each in range(20) if each != seed))


def tooth(
    name: str, workloads: tuple[str, ...], seeds: Iterable[int] = range(20)
) -> Callable[[Callable[[], Iterator[None]]], Callable[[], Iterator[None]]]:
    """Make a defect of a function that plants it, yields, and takes it away. A function may be several."""

    def add(plant: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
        TEETH[name] = Tooth(workloads, contextmanager(plant), tuple(seeds))
        return plant

    return add


def planted(name: str | None) -> AbstractContextManager[None]:
    """Plant a defect for the time of a block; nothing if there is no name."""
    return nullcontext() if name is None else TEETH[name].plant()


# --- cuts -----------------------------------------------------------------------------------------


@tooth("tail of the call before", ("cuts",), seeds=(1002, 1, 3))
def _old_tail() -> Iterator[None]:
    """The lengths of segments are those that were asked for last time."""
    real = batch.segment_infos
    known: dict[tuple[Any, ...], Any] = {}

    async def segment_infos(core: Any, stream: Any, ids: Any) -> Any:
        found = await real(core, stream, ids)
        before = known.get((id(core), *ids), found)
        known[id(core), *ids] = found
        return before

    with patch.object(batch, "segment_infos", segment_infos):
        yield


@tooth("merged segment too early", ("cuts",), seeds=(1000, 13))
def _merged_too_early() -> Iterator[None]:
    """A follower begins a merged segment when the first of those before it has ended."""
    real = StreamFollower._begin_waiting

    def begin_waiting(self: StreamFollower[Any], segments: Any, ended: int, following: Any) -> None:
        self._waiting.update({each: frozenset({ended}) for each in following if each in self._waiting})
        real(self, segments, ended, following)

    with patch.object(StreamFollower, "_begin_waiting", begin_waiting):
        yield


# --- writers --------------------------------------------------------------------------------------


@tooth("set-up ignored", ("writers",), seeds=first(5))
@tooth("stored blocks sent again", ("bytes",), seeds=first(8))
def _set_up_ignored() -> Iterator[None]:
    """After a lost connection everything is sent again, also what the store says it has."""
    real = Appends.set_up

    def set_up(self: Appends[Any], last: int, request_id: int, now: float) -> Any:
        return real(self, min(last, self.last_stored_number or 0), request_id, now)

    with patch.object(Appends, "set_up", set_up):
        yield


@tooth("acknowledged when sent", ("writers",), seeds=first(5))
def _acknowledged_when_sent() -> Iterator[None]:
    """Whoever waits for an event is told that it is stored when it was sent."""
    real = Appends.next_frame

    def next_frame(self: Appends[Any], *args: Any, **names: Any) -> Any:
        frame = real(self, *args, **names)
        for block in self.unacknowledged if frame else ():
            if not block.ack.done:
                block.ack._on_done()
                block.ack._pending = 0
        return frame

    with patch.object(Appends, "next_frame", next_frame):
        yield


@tooth("handed over in disorder", ("writers",), seeds=first(4))
def _disorder() -> Iterator[None]:
    """The blocks of a sealed segment go to its successors, the newest first."""
    real = append.hand_over

    def hand_over(ended: Iterable[Appends[Any]], heir_of: Any) -> None:
        ended = list(ended)
        for each in ended:
            each._in_flight.reverse()
        real(ended, heir_of)

    with patch.object(routing, "hand_over", hand_over):
        yield


@tooth("call written again after a scale", ("writers",), seeds=(50, 64))
def _call_again() -> Iterator[None]:
    """A call whose only segment is divided begins again with the segments that follow."""
    real = RoutedWriter._write_chunk

    async def write_chunk(self: RoutedWriter[Any], chunk: Any, ack: Any) -> None:
        first = 0
        while self._only is not None and first < len(chunk.events):
            first = self._fill(self._only, chunk, first, ack)
            await self._wait_for_room()
        if first < len(chunk.events):
            await real(self, chunk, ack)

    with patch.object(RoutedWriter, "_write_chunk", write_chunk):
        yield


@tooth("flush that waits for nothing", ("writers",), seeds=(0, 1))
def _flush_that_waits_for_nothing() -> Iterator[None]:
    """A flush, or leaving a writer, returns before everything is stored."""

    async def flush(self: EventWriter[Any]) -> None:
        await trio.lowlevel.checkpoint()

    with patch.object(EventWriter, "flush", flush):
        yield


@tooth("left without a flush", ("writers", "bytes"), seeds=(1, 11))
def _left_without_a_flush() -> Iterator[None]:
    """Leaving a writer drops what is not stored by then."""

    async def close_events(self: EventWriter[Any]) -> None:
        self._noting.cancel()
        self._stop()
        await trio.lowlevel.checkpoint()

    async def close_bytes(self: ByteStreamWriter) -> None:
        self._end()
        await trio.lowlevel.checkpoint()

    with (
        patch.object(EventWriter, "aclose", close_events),
        patch.object(ByteStreamWriter, "aclose", close_bytes),
    ):
        yield


@tooth("numbers not asked for", ("resumable",), seeds=first(10013))
def _numbers() -> Iterator[None]:
    """A resumed writer writes everything again, also what is stored."""
    with patch.object(ResumableWriter, "_is_stored", lambda self, number, place: False):
        yield


# --- transactions ---------------------------------------------------------------------------------


@tooth("commit before the flush", ("transactions",), seeds=first(1))
def _unflushed() -> Iterator[None]:
    """A transaction is committed before its events are stored."""

    async def flush(self: Transaction[Any]) -> None:
        await trio.lowlevel.checkpoint()

    with patch.object(Transaction, "flush", flush):
        yield


@tooth("committed by another process", ("transactions",), seeds=(59,))
def _committed_by_another_process() -> Iterator[None]:
    """Committing what another process has committed does nothing, whatever was not stored by then."""
    real = Transaction.flush

    async def flush(self: Transaction[bytes]) -> None:
        try:
            await real(self)
        except TransactionNotOpenError as error:
            if error.status not in ("COMMITTING", "COMMITTED"):
                raise

    with patch.object(Transaction, "flush", flush):
        yield


@tooth("abort of a committed transaction", ("transactions",), seeds=())
def _abort_of_a_committed_transaction() -> Iterator[None]:
    """That a transaction was committed is not told to a process that aborts it."""

    async def abort(core: ClientCore, stream: ScopedStream, txn_id: UUID) -> None:
        await core.controller.abort_transaction(stream.scope, stream.name, txn_id)

    with patch.object(transaction, "abort_transaction", abort):
        yield


@tooth("lease not renewed", ("transactions",), seeds=(0,))
def _lease_not_renewed() -> Iterator[None]:
    """A transaction ends with its lease although its process uses it."""

    async def keep_alive(self: Transaction[Any]) -> None:
        await trio.lowlevel.checkpoint()

    with patch.object(Transaction, "_keep_alive", keep_alive):
        yield


@tooth("left open", ("transactions",), seeds=(0,))
def _left_open() -> Iterator[None]:
    """Leaving a transaction's block aborts nothing: its lease has to end it."""

    async def leave(self: Transaction[Any], *error: object) -> None:
        await self.aclose()

    with patch.object(Transaction, "__aexit__", leave):
        yield


@tooth("visible too early", ("transactions",), seeds=(0, 2))
def _visible_too_early() -> Iterator[None]:
    """Nobody waits until readers see a transaction that is committed."""

    async def wait_committed(self: Transaction[Any]) -> None:
        await trio.lowlevel.checkpoint()

    with patch.object(Transaction, "wait_committed", wait_committed):
        yield


@tooth("written beside the transaction", ("transactions",), (1, 2, 3))
def _beside() -> Iterator[None]:
    """What is written into a transaction is in the stream at once, whatever becomes of it."""
    with patch.object(transaction, "transaction_segment_name", lambda parent, suffix: parent):
        yield


# --- groups ---------------------------------------------------------------------------------------


@tooth("event of a cancelled call", ("groups",), seeds=first(0))
def _cancelled_read() -> Iterator[None]:
    """A call that is cancelled has taken an event already."""
    real = EventReader.read_event

    async def read_event(self: EventReader[Any], timeout: float | None = None) -> Any:
        event = await real(self, timeout)
        await trio.lowlevel.checkpoint()
        return event

    with patch.object(EventReader, "read_event", read_event):
        yield


@tooth("successor too early", ("groups",), seeds=first(1))
def _too_early() -> Iterator[None]:
    """A segment is read before all that come before it."""
    real = GroupState._complete

    def complete(self: GroupState, update: Any, **how: bool) -> GroupState:
        found = real(self, update, **how)
        early = dict.fromkeys(found.future, 0)
        return replace(
            found,
            future={},
            unassigned={**found.unassigned, **early},
            last_read={**early, **found.last_read},
        )

    with patch.object(GroupState, "_complete", complete):
        yield


@tooth("position of the dead", ("groups",), seeds=first(1002))
def _position_of_the_dead() -> Iterator[None]:
    """What a dead reader has read is read again, though its position is known."""
    real = ReaderGroup.reader_offline

    async def offline(self: ReaderGroup, reader_id: str, position: Any = None) -> None:
        await real(self, reader_id)

    with patch.object(ReaderGroup, "reader_offline", offline):
        yield


@tooth("ids of all streams", ("groups",), seeds=(1, 22))
def _ids_of_all_streams() -> Iterator[None]:
    """A completed segment counts for what the segments of other streams wait for."""
    with patch.object(GroupState, "completion", lambda self, update: update):
        yield


@tooth("reset not noticed", ("groups",), seeds=first(0))
def _reset_not_noticed() -> Iterator[None]:
    """A reader goes on although it is no longer in the group."""
    real = GroupMember._take

    def take(self: GroupMember, state: GroupState) -> None:
        if self._is_in(state):
            real(self, state)

    with patch.object(GroupMember, "_take", take):
        yield


@tooth("start not held", ("groups",), seeds=first(5))
def _start_not_held() -> Iterator[None]:
    """A group that subscribes to its streams does not tell their controller where it begins."""

    async def hold(*arguments: Any) -> None:
        await trio.lowlevel.checkpoint()

    with patch.object(reader_group, "hold", hold):
        yield


@tooth("reader of the same name", ("groups",), seeds=(228, 194))
def _reader_of_the_same_name() -> Iterator[None]:
    """A reader that was declared dead takes another one, which has its name now, for itself."""
    with patch.object(GroupMember, "_is_in", lambda self, state: state.is_online(self.reader)):
        yield


@tooth("time before the events", ("groups",), seeds=(7, 414))
def _time_before_the_events() -> Iterator[None]:
    """A writer reports its time although it has not stored all that it was given before."""
    note, flush = EventWriter._note, EventWriter.flush
    # Several writers do it at the same time, so the method is not replaced for the time of a call.
    noting = ContextVar("noting", default=False)

    async def hasty(self: EventWriter[Any], timestamp: int) -> None:
        token = noting.set(True)
        try:
            await note(self, timestamp)
        finally:
            noting.reset(token)

    async def flush_or_not(self: EventWriter[Any]) -> None:
        if noting.get():
            await trio.lowlevel.checkpoint()
        else:
            await flush(self)

    with patch.object(EventWriter, "_note", hasty), patch.object(EventWriter, "flush", flush_or_not):
        yield


@tooth("time of the fastest reader", ("groups",), seeds=(37, 168))
def _time_of_the_fastest_reader() -> Iterator[None]:
    """A group has reached a watermark when one of its segments has."""
    real = watermarks.compare

    def compare(place: watermarks.Place, mark: Watermark) -> int:
        return real(place, mark) or 1

    with patch.object(watermarks, "compare", compare):
        yield


@tooth("on into the next stream", ("cuts",), seeds=(91, 26))
def _on_into_the_next_stream() -> Iterator[None]:
    """A follower whose stream was deleted and created again goes on with the segments of the new one."""

    async def successors(
        core: ClientCore, stream: ScopedStream, segment_id: int, waiting: object = None
    ) -> Successors:
        found = await batch.recorded_successors(core, stream, segment_id)
        if found.successors:
            return found
        now = await core.controller.get_current_segments(stream.scope, stream.name)
        return Successors(tuple(Successor(each, (segment_id,)) for each in now))

    with patch.object(follow, "successors", successors):
        yield


@tooth("follower that stands still", ("transactions",), seeds=(9,))
def _follower_that_stands_still() -> Iterator[None]:
    """A follower does not begin a merged segment before all that come before it have ended at once."""
    real = StreamFollower._begin_waiting

    def begin_waiting(self: StreamFollower[Any], segments: Any, ended: int, following: Any) -> None:
        real(self, segments, ended, [each for each in following if len(self._waiting.get(each, ())) < 2])

    with patch.object(StreamFollower, "_begin_waiting", begin_waiting):
        yield


@tooth("cut of another stream", ("cuts",), seeds=(10,))
def _cut_of_another_stream() -> Iterator[None]:
    """Nobody looks whether a cut has segments that the stream has not."""

    async def check_cut(core: ClientCore, cut: StreamCut) -> None:
        await trio.lowlevel.checkpoint()

    with patch.object(batch, "check_cut", check_cut):
        yield


@tooth("rest of a truncated segment", ("groups", "cuts"), seeds=())
def _rest_of_a_truncated_segment() -> Iterator[None]:
    """Of a segment that was truncated, the rest is left out as well."""
    real = DataLossError.__init__

    def init(self: DataLossError, *arguments: Any, **names: Any) -> None:
        real(self, *arguments, **{**names, "start_offset": None})

    with patch.object(DataLossError, "__init__", init):
        yield


# --- tables, states and bytes -----------------------------------------------------------------------


@tooth("update repeated blindly", ("tables",), seeds=first(60))
def _update_repeated_blindly() -> Iterator[None]:
    """A table update whose answer was lost is sent again, without a look at its keys."""
    real = Progress.failed

    def failed(self: Progress, error: PravegaError) -> Next:
        following = real(self, error)
        if following is Next.READ_BACK:
            return Next.LOCATE if isinstance(error, TableKeyBadVersionError) else Next.SEND
        return following

    with patch.object(Progress, "failed", failed):
        yield


@tooth("unknown update refused", ("tables",), seeds=first(10))
def _unknown_update_refused() -> Iterator[None]:
    """An update whose outcome cannot be found is reported as a conflict, in which nothing was changed."""
    real = table.settle

    def settle(*arguments: Any) -> list[int] | tuple[Change, ...]:
        outcome = real(*arguments)
        return () if outcome is None else outcome

    with patch.object(table, "settle", settle):
        yield


@tooth("page of a partition", ("tables",), seeds=())
def _page_of_a_partition() -> Iterator[None]:
    """An iteration returns what it has of each partition, and not only what no other one can come before."""

    async def load(self: TableIterator[Any]) -> bool:
        await run_all([self._filling(each) for each in self._cursors if not each.items], 4)
        self._cursors = [each for each in self._cursors if each.items]
        items = [item for each in self._cursors for item in each.items]
        for each in self._cursors:
            each.items = []
        self._page = sorted(items, key=lambda item: item[0], reverse=True)
        return bool(items)

    with patch.object(TableIterator, "_load", load):
        yield


@tooth("compacted entries not located", ("tables",))
def _compacted_entries_not_located() -> Iterator[None]:
    """A condition on an entry that compaction has moved is refused, although it holds."""

    async def located(self: TableSegment, changes: list[Change]) -> None:
        await trio.lowlevel.checkpoint()

    with patch.object(TableSegment, "_located", located):
        yield


@tooth("late repetition", ("tables",), seeds=())
def _late_repetition() -> Iterator[None]:
    """What a lost connection has not sent arrives after it was sent again on another one."""
    with patch.object(SimulatedStream, "forget_unsent", lambda self: None):
        yield


@tooth("stored append refused", ("synchronizers", "revisions"), seeds=first(2))
def _stored_append_refused() -> Iterator[None]:
    """After a lost answer, a conditional append that was stored is reported as refused."""
    real = ConditionalAppender._set_up

    async def set_up(self: ConditionalAppender) -> int:
        await real(self)
        return -1

    with patch.object(ConditionalAppender, "_set_up", set_up):
        yield


@tooth("update of a stale state", ("synchronizers",))
def _update_of_a_stale_state() -> Iterator[None]:
    """An update is written after whatever is there, and not only after the state it was made for."""
    real = RevisionedStream.write_conditionally

    async def write(self: RevisionedStream[bytes], latest: Revision, value: bytes) -> Revision | None:
        return await real(self, await self.latest_revision(), value)

    with patch.object(RevisionedStream, "write_conditionally", write):
        yield


@tooth("moved mark denied", ("revisions",), seeds=(518, 1322))
def _moved_mark_denied() -> Iterator[None]:
    """After a lost answer, the repetition's refusal is taken for that of the whole call."""

    async def compare_and_set(self: SegmentMetadata, attribute_id: UUID, expected: int, new: int) -> bool:
        name = self.target.name
        reply = await self._stores.call(
            self.target,
            lambda request_id, token: c.UpdateSegmentAttribute(
                request_id, name, attribute_id, new, expected, token
            ),
            c.SegmentAttributeUpdated,
            doing="updating an attribute of",
        )
        return reply.success

    with patch.object(SegmentMetadata, "compare_and_set_attribute", compare_and_set):
        yield


@tooth("cancelled read loses bytes", ("bytes",), seeds=first(3))
def _cancelled_read_loses_bytes() -> Iterator[None]:
    """A read can be cancelled after it has taken its bytes."""
    real = ByteStreamReader._receive

    async def receive(self: ByteStreamReader, size: int) -> bytes:
        data = await real(self, size)
        await trio.lowlevel.checkpoint()
        return data

    with patch.object(ByteStreamReader, "_receive", receive):
        yield


# --- the sink of Spark ------------------------------------------------------------------------------


_PARTITIONS = "spark_adapter.writing.partition.PartitionWriter"
# By its name, because importing it needs PySpark.


@tooth("ledger of two", ("sink",), seeds=first(5))
def _ledger_of_two() -> Iterator[None]:
    """A driver whose record is refused appends it after what another driver has recorded meanwhile."""
    append = Journal.append

    def insist(
        self: Journal, record: Preparing | Prepared | Done, before: Callable[[], Done] | None = None
    ) -> bool:
        while True:
            try:
                return append(self, record, before)
            except FencedError:
                self.refresh()

    with patch.object(Journal, "append", insist):
        yield


def _stage_unrecorded(self: Any, client: Any, chunks: Iterable[Any]) -> AttemptResult:
    from spark_adapter.writing import partition

    task, rows, nbytes, found = partition._task(), 0, 0, {}
    staging = staging_id(self.query, self.batch, self.txn, task.partitionId(), task.taskAttemptId())
    record = ledger.Staging(
        query=self.query, stream=str(self.stream), batch=self.batch, txn=self.txn,
        session=self.session, staging=staging,
    )  # fmt: skip
    with client.staging(self.stream, self.txn).writer(staging) as writer:
        for chunk in chunks:
            writer.write_events(chunk.events, routing_keys=chunk.keys)
            rows, nbytes = rows + len(chunk.events), nbytes + chunk.nbytes
        found = writer.contents()
        with client.revisioned_stream(self.ledger) as revisioned:
            revisioned.write_unconditionally(encode_record(record))
    return AttemptResult(task.partitionId(), staging, rows, nbytes, found)


@tooth("staging recorded too late", ("sink",), seeds=first(4))
def _staging_too_late() -> Iterator[None]:
    """An attempt records its staging segments when it has written them: a killed one leaves them behind."""
    with patch(f"{_PARTITIONS}._stage", _stage_unrecorded):
        yield


@tooth("claim not checked", ("sink",), seeds=(15, 167))
def _claim_not_checked() -> Iterator[None]:
    """An attempt does not look whether its batch was finished while it created its segments."""
    with patch(f"{_PARTITIONS}._require_claim", lambda self, revisioned, record: None):
        yield


@tooth("prepared before merged", ("sink",), seeds=())
def _prepared_before_merged() -> Iterator[None]:
    """PREPARED is recorded before the merge: a driver that finishes the batch commits nothing."""
    merges: dict[int, Callable[[], Any]] = {}
    commit = BatchCommitter._commit

    def put_off(merge: Callable[[], Any], *others: Callable[[], Any]) -> list[Any]:
        merges[threading.get_ident()] = merge
        return [{}, *at_once(*others)]

    def merge_and_commit(self: BatchCommitter, prepared: Prepared) -> None:
        merges.pop(threading.get_ident(), dict)()
        commit(self, prepared)

    with (
        patch.object(driver, "at_once", put_off),
        patch.object(BatchCommitter, "_check_merged", lambda self, txn, parts, merged: None),
        patch.object(BatchCommitter, "_commit", merge_and_commit),
    ):
        yield


@tooth("done before committed", ("sink",), seeds=first(2))
def _done_before_committed() -> Iterator[None]:
    """DONE is recorded before the commit: a driver that is killed in between loses the batch."""
    finish, commit = BatchCommitter._finish, BatchCommitter._commit

    def finish_first(self: BatchCommitter, prepared: Prepared, *, wait: bool) -> None:
        finish(self, prepared, wait=False)
        commit(self, prepared)

    with (
        patch.object(BatchCommitter, "_finish", finish_first),
        patch.object(BatchCommitter, "_commit", lambda self, prepared: None),
    ):
        yield


@tooth("replayed batch", ("sink",), seeds=())
def _replayed_batch() -> Iterator[None]:
    """A batch that is PREPARED and committed is written again."""
    outcomes: Mapping[str, TxnOutcome] = {"COMMITTED": TxnOutcome.REWRITE}
    with patch.dict(ledger._OUTCOMES, outcomes):
        yield


@tooth("order of tasks", ("sink",), seeds=())
def _order_of_tasks() -> Iterator[None]:
    """Partitions are merged in the order in which their tasks have ended."""

    def unsorted(items: Iterable[Any], key: object = None) -> list[Any]:
        return list(items) if key is not None else sorted(items)

    with patch.object(driver, "sorted", unsorted, create=True):
        yield


@tooth("order of merges", ("sink",), seeds=())
def _order_of_merges() -> Iterator[None]:
    """Nobody looks whether a store that was replaced has merged the partitions in another order."""

    async def touch(self: SegmentMetadata) -> None:
        await trio.lowlevel.checkpoint()

    with (
        patch.object(SegmentMetadata, "touch", touch),
        patch.object(BatchCommitter, "_check_merged", lambda self, txn, parts, merged: None),
    ):
        yield


@tooth("number of a batch", ("sink",), seeds=())
def _number_of_a_batch() -> Iterator[None]:
    """A batch with the number of the last one counts as the same: rows of an older checkpoint are lost."""
    with patch.object(ledger, "difference", lambda written, asked: None):
        yield


@tooth("lease of a killed driver", ("sink",), seeds=first(2))
def _lease_of_a_killed_driver() -> Iterator[None]:
    """A transaction whose claim is void is not ended, and what was staged for it is not deleted."""
    with patch.object(BatchCommitter, "_end", lambda self, txn, until: False):
        yield


@tooth("each attempt claims", ("election",), seeds=(32, 43))
def _each_attempt_claims() -> Iterator[None]:
    """A claim is appended after whatever is there: attempts of one job write for several transactions."""

    def insist(self: Journal, record: Preparing) -> bool:
        self.refresh()
        return offer(self, record)

    offer = Journal.offer
    with patch.object(Journal, "offer", insist):
        yield


@tooth("staged after the end", ("election",), seeds=(63, 120))
def _staged_after_the_end() -> Iterator[None]:
    """An attempt does not look whether its batch was finished while it created its segments."""
    with patch.object(ElectedCommitter, "require_claim", lambda self, txn: None):
        yield


# --- ingestion --------------------------------------------------------------------------------------


def _deciding(
    phases: tuple[Phase, ...], statuses: tuple[TxnStatus, ...], action: Action
) -> AbstractContextManager[Any]:
    def wrong(phase: Phase, status: TxnStatus) -> Action:
        return action if phase in phases and status in statuses else decide(phase, status)

    return patch.object(engine, "decide", wrong)


@tooth("half a part", ("ingest",), seeds=first(2))
def _half_a_part() -> Iterator[None]:
    """An open transaction is committed although no end record says that it is complete."""
    with _deciding((Phase.BEGUN,), (TxnStatus.OPEN,), Action.COMMIT_AND_GO_ON):
        yield


@tooth("committing counts as open", ("ingest",), seeds=())
def _committing_counts_as_open() -> Iterator[None]:
    """A part whose transaction is still COMMITTING is ingested again."""
    with _deciding((Phase.BEGUN, Phase.ENDED), (TxnStatus.COMMITTING,), Action.REDO):
        yield


@tooth("two ingesters", ("ingest",), seeds=first(10))
def _two_ingesters() -> Iterator[None]:
    """An ingester records its part although another one has taken over."""

    async def replace_record(self: ingest_state.Journal, record: IngestRecord) -> None:
        await self._shared.update(lambda state: [record])
        self.seen = record

    async def check(self: ingest_state.Journal) -> None:
        await self._shared.fetch_updates()

    with (
        patch.object(ingest_state.Journal, "replace", replace_record),
        patch.object(ingest_state.Journal, "check", check),
    ):
        yield


@tooth("end record left out", ("ingest",), seeds=())
def _end_record_left_out() -> Iterator[None]:
    """An aborted transaction with an end record counts as committed."""
    with _deciding((Phase.ENDED,), (TxnStatus.ABORTED, TxnStatus.ABORTING), Action.GO_ON):
        yield
