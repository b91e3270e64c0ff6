"""Events written beside a transaction by several attempts, of which some will count."""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Any, Final, Self
from uuid import UUID

import trio

from pravega_wire.controller.types import SegmentWithRange
from pravega_wire.errors import InvalidArgumentError, UnexpectedReplyError
from pravega_wire.segment.appender import Ack, SegmentAppender
from pravega_wire.segment.handles import state_of
from pravega_wire.segment.metadata import SegmentMetadata
from pravega_wire.segment.store import SegmentTarget
from pravega_wire.stream.core import ClientCore
from pravega_wire.stream.opening import opening
from pravega_wire.stream.routing import DEFAULT_MAX_OUTSTANDING_BYTES
from pravega_wire.stream.transaction import TransactionWriter, transaction_target
from pravega_wire.support.checks import check_several, check_uuid
from pravega_wire.support.environment import environment
from pravega_wire.support.nurseries import look_up_all
from pravega_wire.transport.limits import limited, note_progress
from pravega_wire.values.types import ScopedStream, StagedBytes

__all__ = ["Staging", "StagingWriter"]

_REMEMBERED: Final = 30.0
"""Seconds for which a store surely has a new segment in memory: half of what it is left unused at most.

What it has forgotten it may merge in another order, even if it was brought back before (observed).
"""


def _checked(staging_ids: Iterable[UUID]) -> list[UUID]:
    """The ids as a list: each segment needs all of them.

    :raises InvalidArgumentError: one is not a UUID.
    """
    check_several("staging_ids", staging_ids)
    return [check_uuid("each of staging_ids", each) for each in staging_ids]


class StagingWriter(TransactionWriter):
    """Writes events beside a transaction. They can be merged into it later, or deleted.

    Made by :meth:`Staging.writer`. Its segments are named like those of a separate transaction,
    ``<segment>#transaction.<staging id>``, but the controller has no record of them. Use it where several
    attempts may write the same data and only one of them may count.

    Example::

        async with client.begin_transaction("demo/readings") as transaction:
            staging = client.staging("demo/readings", transaction.txn_id)
            async with staging.writer() as attempt:
                await attempt.write_event(b"21.5", "sensor-7")
            await staging.merge([attempt.staging_id])
            await transaction.commit()

    :ivar staging_id: identifies the attempt.
    """

    def __init__(
        self,
        core: ClientCore,
        stream: ScopedStream,
        segments: Sequence[SegmentWithRange],
        staging_id: UUID | None = None,
    ) -> None:
        self.staging_id: UUID = staging_id or environment().new_id()
        super().__init__(
            core, stream, segments, self.staging_id, max_outstanding_bytes=DEFAULT_MAX_OUTSTANDING_BYTES
        )
        self._opened = False
        self._sent = {appender: StagedBytes(0, 0) for appender in self._appenders()}
        for appender in self._sent:
            appender.on_first_send = partial(self._count, appender)
            # Latency does not matter until somebody waits, because nothing is visible yet. Large blocks cost
            # the least.
            appender.appends.patient = True

    def _new_ack(self) -> Ack:
        return Ack(hurry=self._force)

    def _force(self) -> None:
        for appender in self._appenders():
            appender.force()

    def _count(self, appender: SegmentAppender, framed: memoryview) -> None:
        length, crc32 = self._sent[appender]
        self._sent[appender] = StagedBytes(length + len(framed), zlib.crc32(framed, crc32))

    async def __aenter__(self) -> Self:
        """Create the segments.

        :raises InvalidArgumentError: the staging id was used before, so its segments hold events of another
            attempt.
        """
        if self._opened:
            return self
        appenders = self._appenders()

        async def create(index: int) -> None:
            appender = appenders[index]
            metadata = SegmentMetadata(self._core.stores, appender.target)
            if not await metadata.create():
                info = await metadata.info()
                if info.write_offset > 0 or info.is_sealed:
                    raise InvalidArgumentError(
                        f"staging segment {appender.target.name} already exists and is not empty: use a new "
                        "staging id for each attempt",
                        segment=appender.target.name,
                    )

        await look_up_all(create, range(len(appenders)))
        self._opened = True
        self._start_all()
        return self

    async def contents(self) -> dict[int, StagedBytes]:
        """Flush, then return what each segment holds, without empty segments.

        The keys are the segment ids of :attr:`Transaction.segments`: the epoch in them is the transaction's.

        :raises PravegaError: the flush failed.
        :raises UnexpectedReplyError: a store reports another length for a segment.
        """
        await self.flush()
        for appender, sent in self._sent.items():
            # It is unknown (-1) until something is acknowledged after a set-up.
            if appender.appends.segment_length not in (-1, sent.length):
                raise UnexpectedReplyError(
                    f"{appender.target.name}: {sent.length} bytes were staged, but the store reports a "
                    f"segment of {appender.appends.segment_length} bytes",
                    segment=appender.target.name,
                )
        return {appender.target.segment_id: sent for appender, sent in self._sent.items() if sent.length}

    async def aclose(self) -> None:
        """Flush and close. If the flush fails, the writer is closed all the same.

        If this call is cancelled, the writer is closed all the same. It is then unknown whether the events
        without an acknowledgement are stored.

        :raises PravegaError: the flush failed.
        """
        try:
            if self._error is None and self._opened:
                with self._core.leaving.noted():
                    await self.flush()
        finally:
            self._stop()

    def __repr__(self) -> str:
        return (
            f"<StagingWriter {self.staging_id} of {self.stream}, {state_of(self._opened, self._error)}, "
            f"{self.events_acknowledged} of {self.events_written} events stored>"
        )

    def __await__(self) -> Generator[Any, Any, Self]:
        return self.__aenter__().__await__()

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            await self.aclose()
        else:
            self._stop()
            await trio.lowlevel.checkpoint()


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
    async def merge(self, staging_ids: Iterable[UUID]) -> dict[int, tuple[int, ...]]:
        """Move staged events into the open transaction, in the order of the ids.

        Repeating the call is harmless: events that were already merged count as done. If a segment store was
        replaced by another during the call, the order may be another one. The result tells: the lengths do
        not grow by what each id has staged (:meth:`StagingWriter.contents`).

        :returns: by segment id, the length in bytes of each segment of the transaction after the events of
            each id were merged. For events that count as done it is the present length. An empty dict if no
            ids were given.
        :raises NoSuchSegmentError: the transaction is no longer open.
        """
        ids = _checked(staging_ids)
        segments = await self._segments()

        async def merge(index: int) -> tuple[int, ...]:
            target = self._target(segments[index], self.txn_id)
            sources = [self._target(segments[index], each) for each in ids]

            async def touch(number: int) -> None:
                await SegmentMetadata(self._core.stores, sources[number]).touch()

            metadata, names = SegmentMetadata(self._core.stores, target), [each.name for each in sources]
            if together:
                if len(sources) > 1:
                    await look_up_all(touch, range(len(sources)))
                merged = await metadata.merge_batch(names)
            else:
                merged = await metadata.merge_each(names)
            # There may be any number of them.
            note_progress()
            return merged

        if not ids:
            await trio.lowlevel.checkpoint()
            return {}
        # The segments of a transaction are created together.
        first = SegmentMetadata(self._core.stores, self._target(segments[0], self.txn_id))
        together = len(ids) == 1 or 0 <= await first.age() < _REMEMBERED
        lengths = await look_up_all(merge, range(len(segments)))
        return {segments[index].segment_id: found for index, found in lengths.items()}

    @limited("deleting staged events of stream {self.stream}")
    async def delete(self, staging_ids: Iterable[UUID]) -> None:
        """Delete staged events that were not merged. Ids that do not exist are ignored."""
        ids = _checked(staging_ids)
        targets = [self._target(segment, staging) for segment in await self._segments() for staging in ids]

        async def delete(index: int) -> bool:
            deleted = await SegmentMetadata(self._core.stores, targets[index]).delete()
            note_progress()
            return deleted

        if targets:
            await look_up_all(delete, range(len(targets)))

    def _target(self, segment: SegmentWithRange, txn_id: UUID) -> SegmentTarget:
        return transaction_target(self._core, self.stream, segment, txn_id)
