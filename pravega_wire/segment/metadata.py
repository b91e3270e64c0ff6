"""Operations on one segment, other than reading and appending its data."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from uuid import UUID

from pravega_wire.errors import (
    NoSuchSegmentError,
    RetriesExhaustedError,
    SegmentExistsError,
    SegmentSealedError,
    ServerTooOldError,
    UnexpectedReplyError,
)
from pravega_wire.protocol import commands as c
from pravega_wire.segment.store import Backoff, SegmentStores, SegmentTarget
from pravega_wire.support.environment import environment
from pravega_wire.transport.limits import limit, note_progress

__all__ = ["NULL_ATTRIBUTE", "SegmentMetadata"]

NULL_ATTRIBUTE = -(2**63)
"""Value of an attribute that is not set (``docs/protocol/wire.md``, "Segment attributes")."""

_NO_SCALING = 0
# An attribute that no segment has.
_TOUCHED = UUID("00000000-0000-4000-8000-746f75636865")
# An attribute that is only changed in order to wait for what the store does before.
_SETTLED = UUID("00000000-0000-4000-8000-736574746c65")
_CREATED = UUID(int=1 << 127)
"""Of the store: milliseconds since 1970 (``io.pravega.segmentstore.contracts.Attributes.CREATION_TIME``)."""
# Type of an attribute update that replaces the value, whatever it is.
_REPLACE = 1


class SegmentMetadata:
    """Requests about one segment. They raise the errors of :meth:`SegmentStores.call`.

    :param stores: the segment stores.
    :param target: the segment.
    """

    __slots__ = ("_stores", "target")

    def __init__(self, stores: SegmentStores, target: SegmentTarget) -> None:
        self._stores = stores
        self.target = target

    async def info(self) -> c.StreamSegmentInfo:
        """Return the start offset, the length, and whether the segment is sealed.

        :raises NoSuchSegmentError: the segment does not exist.
        """
        name = self.target.name
        reply = await self._stores.call(
            self.target,
            lambda request_id, token: c.GetStreamSegmentInfo(
                request_id=request_id, segment_name=name, delegation_token=token
            ),
            c.StreamSegmentInfo,
            doing="asking for the length of",
        )
        if not reply.exists or reply.is_deleted:
            raise NoSuchSegmentError(f"segment {name} does not exist", segment=name)
        return reply

    async def create(self) -> bool:
        """Create a plain segment; return False if it exists already."""
        name = self.target.name
        try:
            await self._stores.call(
                self.target,
                lambda request_id, token: c.CreateSegment(
                    request_id=request_id,
                    segment=name,
                    target_rate=0,
                    scale_type=_NO_SCALING,
                    delegation_token=token,
                ),
                c.SegmentCreated,
                doing="creating",
            )
        except SegmentExistsError:
            return False
        return True

    async def seal(self) -> None:
        """Seal the segment; sealing a sealed segment does nothing."""
        name = self.target.name
        try:
            await self._stores.call(
                self.target,
                lambda request_id, token: c.SealSegment(
                    request_id=request_id, segment=name, delegation_token=token
                ),
                c.SegmentSealed,
                doing="sealing",
            )
        except SegmentSealedError:
            return

    async def delete(self) -> bool:
        """Delete the segment; return False if it did not exist."""
        name = self.target.name
        try:
            # Never send a delete for a segment that was merged into another one: it may stop the container of
            # a 0.13.0 store (docs/protocol/unforgiving.md, "Deleting a segment that was merged").
            await self.info()
            await self._stores.call(
                self.target,
                lambda request_id, token: c.DeleteSegment(
                    request_id=request_id, segment=name, delegation_token=token
                ),
                c.SegmentDeleted,
                doing="deleting",
            )
        except NoSuchSegmentError:
            return False
        return True

    async def truncate(self, offset: int) -> None:
        """Drop the data before an offset.

        :param offset: the first offset that stays readable, bytes.
        :raises SegmentTruncatedError: the offset is before the present start or after the end.
        """
        name = self.target.name
        await self._stores.call(
            self.target,
            lambda request_id, token: c.TruncateSegment(
                request_id=request_id,
                segment=name,
                truncation_offset=offset,
                delegation_token=token,
            ),
            c.SegmentTruncated,
            doing="truncating",
        )

    async def attribute(self, attribute_id: UUID) -> int:
        """Return the value of an attribute; :data:`NULL_ATTRIBUTE` if it is not set."""
        name = self.target.name
        reply = await self._stores.call(
            self.target,
            lambda request_id, token: c.GetSegmentAttribute(
                request_id=request_id,
                segment_name=name,
                attribute_id=attribute_id,
                delegation_token=token,
            ),
            c.SegmentAttribute,
            doing="reading an attribute of",
        )
        return reply.value

    async def final_number(self, writer_id: UUID) -> int:
        """Return the last event number of a writer on a segment that is or is being sealed; 0 for none.

        A store refuses appends while a seal is in progress. At that time, blocks that it received earlier, on
        a connection that was lost, may not be stored yet. They are once the segment's information says that
        it is sealed, so this waits for that (``docs/protocol/unforgiving.md``, "Moving on from a segment
        while it is being sealed").

        :raises NoSuchSegmentError: the segment is gone.
        """
        backoff = Backoff()
        with limit(self._stores.operation_timeout, f"waiting for the seal of {self.target.name}"):
            while not (await self.info()).is_sealed:
                await backoff.wait()
            number = await self.attribute(writer_id)
        return 0 if number == NULL_ATTRIBUTE else number

    async def compare_and_set_attribute(self, attribute_id: UUID, expected: int, new: int) -> bool:
        """Set an attribute if it has the expected value; return whether it was set.

        After a lost connection the request is sent again. If the attribute has the new value then, it counts
        as set by this call. If this call has set it and another client has changed it since, it counts as not
        set.

        :param attribute_id: id of the attribute.
        :param expected: value that the attribute must have.
        :param new: value to set.
        """
        # A store compares with values that are about to be stored, but returns stored ones. The attempt whose
        # answer was lost may be between the two.
        name = self.target.name
        attempts = 0

        def updating(request_id: int, token: str) -> c.Command:
            nonlocal attempts
            attempts += 1
            return c.UpdateSegmentAttribute(
                request_id=request_id,
                segment_name=name,
                attribute_id=attribute_id,
                new_value=new,
                expected_value=expected,
                delegation_token=token,
            )

        reply = await self._stores.call(
            self.target,
            updating,
            c.SegmentAttributeUpdated,
            doing="updating an attribute of",
            patient=True,
        )
        if reply.success or attempts == 1:
            return reply.success
        backoff = Backoff()
        with limit(self._stores.operation_timeout, f"updating an attribute of {name}"):
            while (found := await self.attribute(attribute_id)) == expected:
                await backoff.wait()
            return found == new
        raise AssertionError("not reached")  # the limit raises when it ends the loop

    async def touch(self) -> None:
        """Make the store keep the segment in memory for the next request; no segment is no error.

        A store forgets a segment that was not used for about a minute. Only some requests bring it back, and
        they do that one after the other, each when it is its turn.
        """
        with suppress(NoSuchSegmentError):
            await self.attribute(_TOUCHED)

    async def merge_batch(self, sources: Sequence[str]) -> tuple[int, ...]:
        """Append source segments to this one; the sources are gone afterwards.

        The order is that of the sources if they are new to the store, and it has all of them in memory
        (:meth:`touch`; ``docs/protocol/wire.md``, "Merges"). Sources that were merged already, or do not
        exist, count as done, so this may be repeated.

        :param sources: full names of the sources, at least one.
        :returns: length of this segment in bytes after the merge of each source. For one that counts as done
            it is the present length.
        """
        name = self.target.name
        sent = False

        def merging(request_id: int, token: str) -> c.Command:
            nonlocal sent
            sent = True
            return c.MergeSegmentsBatch(
                request_id=request_id,
                target_segment_id=name,
                source_segment_ids=tuple(sources),
                delegation_token=token,
            )

        async def attempt() -> c.SegmentsBatchMerged:
            # A source whose merge was only begun counts as done, and the present length is without it. So the
            # store is given time for the request whose answer was lost.
            if sent:
                await self._settle()
            return await self._stores.once(
                self.target,
                merging,
                c.SegmentsBatchMerged,
                doing="merging several segments into",
                patient=True,
            )

        try:
            reply = await self._stores.retrying(attempt, name, "merging several segments into")
        except ServerTooOldError:
            return await self.merge_each(sources)
        if len(reply.sources) != len(sources):
            raise UnexpectedReplyError(
                f"merging into {name}: {len(sources)} segments were sent, but the store's reply has "
                f"{len(reply.sources)}",
                segment=name,
            )
        return tuple(each.new_target_write_offset for each in reply.sources)

    async def _settle(self) -> None:
        """Wait until the store has done what it has begun on this segment, which it does in order."""
        changed = False
        while not changed:
            value = await self.attribute(_SETTLED)
            changed = await self.compare_and_set_attribute(_SETTLED, value, value + 1)

    async def age(self) -> float:
        """Seconds since the segment was created, by the clocks of its store then and of this machine now."""
        return environment().wall() - await self.attribute(_CREATED) / 1000

    async def merge_each(self, sources: Sequence[str]) -> tuple[int, ...]:
        """Append source segments one after the other, each with a request of its own, in any case in order.

        Otherwise as :meth:`merge_batch`.
        """
        lengths = []
        for source in sources:
            lengths.append(await self._merge_next(source))
            # There may be any number of them.
            note_progress()
        return tuple(lengths)

    async def _merge_next(self, source: str) -> int:
        """Append one source segment; one that was merged already, or does not exist, counts as done."""
        name = self.target.name
        try:
            # Patient, because the next one is merged when this one is.
            reply = await self._stores.call(
                self.target,
                lambda request_id, token: c.MergeSegments(
                    request_id=request_id, target=name, source=source, delegation_token=token
                ),
                c.SegmentsMerged,
                doing="merging into",
                patient=True,
            )
        except NoSuchSegmentError as error:
            if error.segment != source:
                raise
            # It was merged before. The store also names the source if it is the target that does not exist.
            return (await self.info()).write_offset
        return reply.new_target_write_offset

    async def merge(self, source: str, attribute_id: UUID, value: int) -> bool:
        """Append one source segment to this one; return False if the source is gone and was not merged.

        :param source: full name of the source.
        :param attribute_id: an attribute of this segment that no other client sets. It gets ``value`` in the
            same step, so that it tells after a lost answer whether the merge was done.
        :param value: another value for each merge.
        :raises NoSuchSegmentError: this segment is gone; nothing was merged.
        :raises RetriesExhaustedError: this segment is gone after an answer was lost, and it is not known
            whether the merge was done.
        """
        name = self.target.name
        update = c.AttributeUpdate(attribute_id, _REPLACE, value, NULL_ATTRIBUTE)
        attempts = 0

        def merging(request_id: int, token: str) -> c.Command:
            nonlocal attempts
            attempts += 1
            return c.MergeSegments(
                request_id=request_id,
                target=name,
                source=source,
                delegation_token=token,
                attribute_updates=(update,),
            )

        try:
            # Patient, because the attribute does not tell about a merge that is still in progress.
            await self._stores.call(
                self.target, merging, c.SegmentsMerged, doing="merging into", patient=True
            )
        except NoSuchSegmentError as error:
            if error.segment != source:
                raise
            # The store also names the source if it is the target that does not exist.
            try:
                return await self.attribute(attribute_id) == value
            except NoSuchSegmentError as gone:
                if attempts == 1:
                    raise
                raise RetriesExhaustedError(
                    f"merging into {name}: the answer was lost, and now the segment is gone. It is not known "
                    "whether the event was stored",
                    segment=name,
                    host=gone.host,
                ) from gone
        return True
