"""Events over the limit of an ordinary one: written to a segment of their own, and merged in at the end.

(Client formats v0.13.0, "Event framing": the reference client's option ``enableLargeEvents``.)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final
from uuid import UUID

import trio

from pravega_wire.errors import NoSuchSegmentError, PravegaError
from pravega_wire.metrics import WriteCounts
from pravega_wire.protocol import commands as c
from pravega_wire.protocol.append import BLOCK_BYTES
from pravega_wire.protocol.events import EVENT_HEADER
from pravega_wire.segment.appender import SegmentAppender, flush
from pravega_wire.segment.metadata import SegmentMetadata
from pravega_wire.segment.store import SegmentStores, SegmentTarget

__all__ = ["MAX_LARGE_EVENT_BYTES", "append_large_event"]

MAX_LARGE_EVENT_BYTES: Final = 2**31 - 1 - EVENT_HEADER.size
"""Largest payload: readers keep an event's length, with its header, in 31 bits."""

_WINDOW: Final = 16


class _Owner:
    """Watches the appender of the segment that an event is gathered in."""

    def __init__(self, counts: WriteCounts) -> None:
        self._counts = counts
        self.error: PravegaError | None = None
        self.blocks = 0
        self.room = trio.Event()

    def acknowledged(self, size: int, count: int, seconds: float) -> None:
        self.blocks -= 1
        self.room.set()

    def resent(self, blocks: int, count: int, size: int) -> None:
        # Blocks are pieces of one event here.
        self._counts.resent(blocks, 0, size)

    def reconnecting(self, error: PravegaError) -> None:
        self._counts.reconnecting(error)

    def failed(self, appender: SegmentAppender, error: PravegaError) -> None:
        self.error = error
        appender.appends.fail(error)
        self.room.set()

    async def sealed(self, appender: SegmentAppender, error: PravegaError) -> None:
        self.failed(appender, error)
        await trio.lowlevel.checkpoint()


async def append_large_event(
    stores: SegmentStores,
    parent: SegmentTarget,
    writer_id: UUID,
    payload: bytes,
    counts: WriteCounts,
    mark: tuple[UUID, int],
) -> bool:
    """Append one event of any size to a segment; returns when it is stored, whole.

    Readers see all of it or nothing. Where this fails or is cancelled, the server drops what
    there is later.

    :param counts: told what had to be done again. :param mark: see :meth:`SegmentMetadata.merge`; another
        value for each call.
    :returns: False when the server has dropped what it had of the event, so that nothing was appended.
    :raises SegmentSealedError: the segment takes no more; nothing was appended.
    :raises NoSuchSegmentError: it is gone; nothing was appended.
    """
    metadata = SegmentMetadata(stores, parent)
    created = await stores.call(
        parent,
        lambda request_id, token: c.CreateTransientSegment(
            request_id=request_id,
            writer_id=writer_id,
            parent_segment=parent.name,
            delegation_token=token,
        ),
        c.SegmentCreated,
        doing="creating a transient segment of",
    )
    target = replace(parent, name=created.segment)
    owner = _Owner(counts)
    appender = SegmentAppender(stores, target, owner)
    failure: PravegaError | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(appender.run)
        try:
            await _gather(appender, owner, payload)
        except PravegaError as error:
            # It leaves the nursery as it was raised: the caller goes by its kind.
            failure = error
        finally:
            appender.finish()
    if failure is not None:
        if isinstance(failure, NoSuchSegmentError) and failure.segment == created.segment:
            return False
        raise failure
    return await metadata.merge(created.segment, *mark)


async def _gather(appender: SegmentAppender, owner: _Owner, payload: bytes) -> None:
    view = memoryview(payload)
    pieces: list[bytes | memoryview] = [EVENT_HEADER.pack(0, len(payload))]
    pieces += [view[start : start + BLOCK_BYTES] for start in range(0, len(view), BLOCK_BYTES)]
    for piece in pieces:
        appender.appends.put_atomic([piece], (), len(piece), 1)
        owner.blocks += 1
        appender.pump()
        while owner.blocks >= _WINDOW and owner.error is None:
            owner.room = trio.Event()
            await owner.room.wait()
        if owner.error is not None:
            raise owner.error
    await flush([appender]).wait()
