"""Events written beside a transaction by several attempts, of which some will count."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

import trio

from pravega_wire.controller.types import SegmentWithRange
from pravega_wire.segment.metadata import SegmentMetadata
from pravega_wire.segment.store import SegmentTarget
from pravega_wire.stream.core import ClientCore
from pravega_wire.stream.opening import opening
from pravega_wire.stream.transaction import StagingWriter, transaction_target
from pravega_wire.support.checks import check_several, check_uuid
from pravega_wire.support.nurseries import look_up_all
from pravega_wire.transport.limits import limited, note_progress
from pravega_wire.values.types import ScopedStream

__all__ = ["Staging"]


class Staging:
    """What attempts write beside one transaction, until it is merged into it or deleted.

    Made by :meth:`PravegaClient.staging`, also in another process and for a transaction that another process
    began. Nothing has to be closed.

    :ivar stream: the stream.
    :ivar txn_id: id of the transaction.
    """

    def __init__(
        self,
        core: ClientCore,
        stream: ScopedStream,
        txn_id: UUID,
        segments: Callable[[], Awaitable[Sequence[SegmentWithRange]]],
    ) -> None:
        check_uuid("the id of a transaction", txn_id)
        core.check_open()
        self.stream = stream
        self.txn_id = txn_id
        self._core = core
        self._segments = segments

    def __repr__(self) -> str:
        return f"<Staging beside transaction {self.txn_id} on {self.stream}>"

    @opening
    @limited("preparing to stage events of stream {self.stream}")
    async def writer(self, staging_id: UUID | None = None) -> StagingWriter:
        """Create the writer of an attempt: ``async with staging.writer() as writer``.

        :param staging_id: identifies the attempt. It must not have been used before. The default is a random
            one.
        :raises InvalidArgumentError: the staging id was used before.
        """
        if staging_id is not None:
            check_uuid("staging_id", staging_id)
        return await StagingWriter(self._core, self.stream, await self._segments(), staging_id)

    @limited("merging staged events into a transaction on stream {self.stream}")
    async def merge(self, staging_ids: Sequence[UUID]) -> dict[int, tuple[int, ...]]:
        """Move staged events into the open transaction, in the order of the ids.

        Repeating the call is harmless: events that were already merged count as done. If a segment store was
        replaced by another during the call, the order may be another one. The result tells: the lengths do
        not grow by what each id has staged (:meth:`StagingWriter.contents`).

        :returns: by segment id, the length in bytes of each segment of the transaction after the events of
            each id were merged. For events that count as done it is the present length. An empty dict if no
            ids were given.
        :raises NoSuchSegmentError: the transaction is no longer open.
        """
        check_several("staging_ids", staging_ids)
        segments = await self._segments()

        async def merge(index: int) -> tuple[int, ...]:
            target = self._target(segments[index], self.txn_id)
            sources = [self._target(segments[index], each) for each in staging_ids]

            async def touch(number: int) -> None:
                await SegmentMetadata(self._core.stores, sources[number]).touch()

            if len(sources) > 1:
                await look_up_all(touch, range(len(sources)))
            merged = await SegmentMetadata(self._core.stores, target).merge_batch(
                [each.name for each in sources]
            )
            # There may be any number of them.
            note_progress()
            return merged

        if not staging_ids:
            await trio.lowlevel.checkpoint()
            return {}
        lengths = await look_up_all(merge, range(len(segments)))
        return {segments[index].segment_id: found for index, found in lengths.items()}

    @limited("deleting staged events of stream {self.stream}")
    async def delete(self, staging_ids: Sequence[UUID]) -> None:
        """Delete staged events that were not merged. Ids that do not exist are ignored."""
        check_several("staging_ids", staging_ids)
        targets = [
            self._target(segment, staging) for segment in await self._segments() for staging in staging_ids
        ]

        async def delete(index: int) -> bool:
            deleted = await SegmentMetadata(self._core.stores, targets[index]).delete()
            note_progress()
            return deleted

        if targets:
            await look_up_all(delete, range(len(targets)))

    def _target(self, segment: SegmentWithRange, txn_id: UUID) -> SegmentTarget:
        return transaction_target(self._core, self.stream, segment, txn_id)
