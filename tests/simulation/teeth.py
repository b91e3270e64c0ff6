"""Defects that are planted into the product, to see that the simulation finds them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Final
from unittest.mock import patch
from uuid import UUID

import trio

from pravega_wire.controller.client import ControllerClient
from pravega_wire.errors import PravegaError, TableKeyBadVersionError
from pravega_wire.protocol import append
from pravega_wire.protocol import commands as c
from pravega_wire.protocol.append import Appends, Block, Resumed
from pravega_wire.protocol.group_state import CheckpointState, GroupState
from pravega_wire.protocol.session import Session
from pravega_wire.segment import table
from pravega_wire.segment.appender import SegmentAppender
from pravega_wire.segment.conditional import ConditionalAppender
from pravega_wire.segment.metadata import SegmentMetadata
from pravega_wire.segment.store import SegmentStores
from pravega_wire.segment.table import Change, Next, Progress, TableSegment
from pravega_wire.stream import routing
from pravega_wire.stream.byte_stream import ByteStreamReader
from pravega_wire.stream.event_reader import EventReader
from pravega_wire.stream.reader_group import ReaderGroup
from pravega_wire.stream.resumable import ResumableWriter
from pravega_wire.stream.revisioned import RevisionedStream
from pravega_wire.stream.transaction import Transaction
from pravega_wire.values.types import Revision
from tests.simulation.network import SimulatedStream

__all__ = ["TEETH", "Tooth", "planted", "tooth"]


@dataclass(frozen=True)
class Tooth:
    """A defect.

    :ivar workloads: the workloads that can find it.
    :ivar plant: plants it for the time of a block.
    :ivar seeds: those that a test tries.
    """

    workloads: tuple[str, ...]
    plant: Callable[[], AbstractContextManager[None]]
    seeds: tuple[int, ...]


TEETH: Final[dict[str, Tooth]] = {}


def tooth(
    name: str, workloads: tuple[str, ...], seeds: Iterable[int] = range(20)
) -> Callable[[Callable[[], Iterator[None]]], Callable[[], AbstractContextManager[None]]]:
    """Make a defect of a function that plants it, yields, and takes it away."""

    def add(plant: Callable[[], Iterator[None]]) -> Callable[[], AbstractContextManager[None]]:
        made = contextmanager(plant)
        TEETH[name] = Tooth(workloads, made, tuple(seeds))
        return made

    return add


def planted(name: str | None) -> AbstractContextManager[None]:
    """Plant a defect for the time of a block; nothing if there is no name."""
    return nullcontext() if name is None else TEETH[name].plant()


# --- writers --------------------------------------------------------------------------------------


@tooth("late block", ("writers",))
def _late_block() -> Iterator[None]:
    """A sealed segment is not asked once more for what came from a lost connection: it is stored twice."""

    async def settle(self: SegmentAppender) -> None:
        await trio.lowlevel.checkpoint()

    with patch.object(SegmentAppender, "_settle_sealed", settle):
        yield


@tooth("set-up ignored", ("writers",))
def _set_up_ignored() -> Iterator[None]:
    """After a lost connection everything is sent again, also what the store says it has."""
    real = Appends.set_up

    def set_up(self: Appends[Any], last: int, request_id: int, now: float) -> Any:
        return real(self, min(last, self.last_stored_number or 0), request_id, now)

    with patch.object(Appends, "set_up", set_up):
        yield


@tooth("acknowledged when sent", ("writers",))
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


@tooth("handed over in disorder", ("writers",))
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


@tooth("torn batch", ("writers",))
def _torn_batch() -> Iterator[None]:
    """The events of a batch do not get a block of their own when it goes to a successor."""
    real = Block.put

    def put(self: Block[Any], *args: Any, **names: Any) -> None:
        real(self, *args, **names)
        self.atomic = False

    with (
        patch.object(Block, "put", put),
        patch.object(Block, "atomic", property(lambda self: False, lambda self, value: None)),
    ):
        yield


@tooth("silence unnoticed", ("writers", "groups"))
def _silence() -> Iterator[None]:
    """A connection on which nothing arrives is never given up."""
    with patch.object(Session, "end_tick", lambda self, queued: None):
        yield


@tooth("old address", ("writers", "groups"))
def _old_address() -> Iterator[None]:
    """The address of a segment is not asked for again when its container has moved."""
    with patch.object(SegmentStores, "forget", lambda self, target, failed=None: None):
        yield


@tooth("numbers not asked for", ("resumable",))
def _numbers() -> Iterator[None]:
    """A resumed writer writes everything again, also what is stored."""
    with patch.object(ResumableWriter, "_is_stored", lambda self, number, place: False):
        yield


@tooth("end not recorded", ("resumable",))
def _end_not_recorded() -> Iterator[None]:
    """New segments do not record up to which number everything is stored."""

    async def record(self: ResumableWriter[Any]) -> None:
        await trio.lowlevel.checkpoint()

    with patch.object(ResumableWriter, "_record_end", record):
        yield


# --- transactions ---------------------------------------------------------------------------------


@tooth("commit before the flush", ("transactions",))
def _unflushed() -> Iterator[None]:
    """A transaction is committed before its events are stored."""

    async def flush(self: Transaction[Any]) -> None:
        await trio.lowlevel.checkpoint()

    with patch.object(Transaction, "flush", flush):
        yield


@tooth("refused commit", ("transactions",))
def _refused_commit() -> Iterator[None]:
    """A commit that the controller has refused counts as done."""
    real = ControllerClient.commit_transaction

    async def commit(self: ControllerClient, *args: Any, **names: Any) -> bool:
        await real(self, *args, **names)
        return True

    with patch.object(ControllerClient, "commit_transaction", commit):
        yield


# --- groups ---------------------------------------------------------------------------------------


@tooth("event of a cancelled call", ("groups",))
def _cancelled_read() -> Iterator[None]:
    """A call that is cancelled has taken an event already."""
    real = EventReader.read_event

    async def read_event(self: EventReader[Any], timeout: float | None = None) -> Any:
        event = await real(self, timeout)
        await trio.lowlevel.checkpoint()
        return event

    with patch.object(EventReader, "read_event", read_event):
        yield


@tooth("successor too early", ("groups",))
def _too_early() -> Iterator[None]:
    """A segment is read before all that come before it."""
    real = GroupState._complete

    def complete(self: GroupState, update: Any) -> GroupState:
        found = real(self, update)
        early = dict.fromkeys(found.future, 0)
        return replace(
            found,
            future={},
            unassigned={**found.unassigned, **early},
            last_read={**early, **found.last_read},
        )

    with patch.object(GroupState, "_complete", complete):
        yield


@tooth("position of the dead", ("groups",))
def _position_of_the_dead() -> Iterator[None]:
    """What a dead reader has read is read again, though its position is known."""
    real = ReaderGroup.reader_offline

    async def offline(self: ReaderGroup, reader_id: str, position: Any = None) -> None:
        await real(self, reader_id)

    with patch.object(ReaderGroup, "reader_offline", offline):
        yield


@tooth("checkpoint of the dead", ("groups",))
def _checkpoint_of_the_dead() -> Iterator[None]:
    """A reader that leaves answers the checkpoints that it owes with what it had when they began."""

    def without(self: CheckpointState, reader: str, positions: Any) -> CheckpointState:
        result = self
        for checkpoint, waiting in self.pending.items():
            if reader in waiting:
                result = result.done(checkpoint, reader, {})
        return result

    with patch.object(CheckpointState, "without", without):
        yield


@tooth("progress kept to itself", ("groups",))
def _progress() -> Iterator[None]:
    """A reader that leaves does not say how far it has read."""
    with patch.object(EventReader, "_note", lambda self: None):
        yield


# --- tables, states and bytes -----------------------------------------------------------------------


@tooth("update repeated blindly", ("tables",))
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


@tooth("unknown update refused", ("tables",))
def _unknown_update_refused() -> Iterator[None]:
    """An update whose outcome cannot be found is reported as a conflict, in which nothing was changed."""
    real = table.settle

    def settle(*arguments: Any) -> list[int] | tuple[Change, ...]:
        outcome = real(*arguments)
        return () if outcome is None else outcome

    with patch.object(table, "settle", settle):
        yield


@tooth("compacted entries not located", ("tables",))
def _compacted_entries_not_located() -> Iterator[None]:
    """A condition on an entry that compaction has moved is refused, although it holds."""

    async def located(self: TableSegment, changes: list[Change]) -> None:
        await trio.lowlevel.checkpoint()

    with patch.object(TableSegment, "_located", located):
        yield


@tooth("late repetition", ("tables",), seeds=(8225,))
def _late_repetition() -> Iterator[None]:
    """What a lost connection has not sent arrives after it was sent again on another one."""
    with patch.object(SimulatedStream, "forget_unsent", lambda self: None):
        yield


@tooth("stored append refused", ("synchronizers", "revisions"))
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


@tooth("moved mark denied", ("revisions",), seeds=(109,))
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


@tooth("stored blocks sent again", ("bytes",))
def _stored_blocks_sent_again() -> Iterator[None]:
    """After a lost connection blocks without an acknowledgement are sent again, even if they are stored."""
    real = Appends.set_up

    def set_up(self: Appends[Any], last: int, request_id: int, now: float) -> Resumed:
        return real(self, min(last, self.last_stored_number or 0), request_id, now)

    with patch.object(Appends, "set_up", set_up):
        yield


@tooth("cancelled read loses bytes", ("bytes",))
def _cancelled_read_loses_bytes() -> Iterator[None]:
    """A read can be cancelled after it has taken its bytes."""
    real = ByteStreamReader._receive

    async def receive(self: ByteStreamReader, size: int) -> bytes:
        data = await real(self, size)
        await trio.lowlevel.checkpoint()
        return data

    with patch.object(ByteStreamReader, "_receive", receive):
        yield
