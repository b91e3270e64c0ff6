"""Defects that are planted into the product, to see that the simulation finds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Final
from unittest.mock import patch
from uuid import UUID

import trio

from pravega_wire.errors import PravegaError, TableKeyBadVersionError
from pravega_wire.protocol import commands as c
from pravega_wire.protocol.append import Appends, Resumed
from pravega_wire.segment import table
from pravega_wire.segment.conditional import ConditionalAppender
from pravega_wire.segment.metadata import SegmentMetadata
from pravega_wire.segment.table import Change, Next, Progress, TableSegment
from pravega_wire.stream.byte_stream import ByteStreamReader
from pravega_wire.stream.revisioned import RevisionedStream
from pravega_wire.values.types import Revision
from tests.simulation.network import SimulatedStream

__all__ = ["TEETH", "Tooth", "planted", "tooth"]


@dataclass(frozen=True)
class Tooth:
    """A defect.

    :ivar workloads: the workloads that can find it.
    :ivar plant: plants it for the time of a block.
    """

    workloads: tuple[str, ...]
    plant: Callable[[], AbstractContextManager[None]]


TEETH: Final[dict[str, Tooth]] = {}


def tooth(
    name: str, workloads: tuple[str, ...]
) -> Callable[[Callable[[], Iterator[None]]], Callable[[], AbstractContextManager[None]]]:
    """Make a defect of a function that plants it, yields, and takes it away."""

    def add(plant: Callable[[], Iterator[None]]) -> Callable[[], AbstractContextManager[None]]:
        made = contextmanager(plant)
        TEETH[name] = Tooth(workloads, made)
        return made

    return add


def planted(name: str | None) -> AbstractContextManager[None]:
    """Plant a defect for the time of a block; nothing if there is no name."""
    return nullcontext() if name is None else TEETH[name].plant()


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


@tooth("late repetition", ("tables",))
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


@tooth("moved mark denied", ("revisions",))
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
