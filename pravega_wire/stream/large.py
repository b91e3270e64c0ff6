"""Large events: each is written to a segment of its own, and merged into its stream at the end.

Large events are the option ``enableLargeEvents`` of the Java client; see ``docs/protocol/wire.md``, "Large
events".
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
from pravega_wire.segment.appender import AppenderOwner, SegmentAppender, flush
from pravega_wire.segment.metadata import SegmentMetadata
from pravega_wire.segment.store import SegmentStores, SegmentTarget
from pravega_wire.support.nurseries import lone_errors
from pravega_wire.transport.limits import AFTER_CANCELLATION

__all__ = ["MAX_LARGE_EVENT_BYTES", "append_large_event"]

MAX_LARGE_EVENT_BYTES: Final = 2**31 - 1 - EVENT_HEADER.size
"""Largest payload: readers store an event's length, header included, in 31 bits."""

_WINDOW: Final = 16


class _Owner:
    """Watches the appender of the segment that collects an event."""

    def __init__(self, counts: WriteCounts) -> None:
        self._counts = counts
        self.error: PravegaError | None = None
        self.blocks = 0
        self.room = trio.Event()

    def acknowledged(self, size: int, count: int, seconds: float) -> None:
        self.blocks -= 1
        self.room.set()

    def resent(self, blocks: int, count: int, size: int) -> None:
        # Here, blocks are pieces of one event.
        self._counts.resent(blocks, 0, size)

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
    """Append one event of any size to a segment. Returns when all of it is stored.

    Readers see all of it or nothing. If this fails or is cancelled, the server later deletes the parts it
    has. A cancellation that comes when all parts are there has its effect after a second at the latest.

    :param counts: records resent blocks and reconnections.
    :param mark: see :meth:`SegmentMetadata.merge`. Must differ for each call.
    :returns: False if the server has deleted its parts of the event, so that nothing was appended.
    :raises SegmentSealedError: the segment is sealed. Nothing was appended.
    :raises NoSuchSegmentError: the segment was deleted. Nothing was appended.
    :raises ServerTooOldError: the store is older than 0.11. Nothing was appended.
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
        doing="writing an event over 8 MiB to",
    )
    target = replace(parent, name=created.segment)
    owner = _Owner(counts)
    appender = SegmentAppender(
        stores,
        target,
        AppenderOwner(
            acknowledged=owner.acknowledged,
            resent=owner.resent,
            reconnecting=counts.reconnecting,
            failed=owner.failed,
            sealed=owner.sealed,
        ),
    )
    try:
        with lone_errors() as body:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(appender.run)
                with body:
                    try:
                        await _gather(appender, owner, payload)
                    finally:
                        appender.finish()
    except NoSuchSegmentError as error:
        if error.segment == created.segment:
            return False
        raise
    return await _merge(metadata, created.segment, mark)


async def _merge(metadata: SegmentMetadata, source: str, mark: tuple[UUID, int]) -> bool:
    """Append the gathered event. It goes on for a second after a cancellation.

    Otherwise the store might carry it out after what the writer appends next.
    """
    shielded = trio.CancelScope(shield=True)

    async def watch() -> None:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            shielded.deadline = trio.current_time() + AFTER_CANCELLATION

    stored: list[bool] = []
    with lone_errors():
        async with trio.open_nursery() as nursery:
            # Outside of the shield, to notice a cancellation.
            nursery.start_soon(watch)
            with shielded:
                stored.append(await metadata.merge(source, *mark))
            nursery.cancel_scope.cancel()
    if not stored:
        await trio.lowlevel.checkpoint_if_cancelled()
    return stored[0]


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
