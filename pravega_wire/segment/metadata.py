"""Operations on one segment other than reading and appending its data."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from pravega_wire.errors import (
    NoSuchSegmentError,
    RetriesExhaustedError,
    SegmentExistsError,
    SegmentSealedError,
    UnexpectedReplyError,
)
from pravega_wire.protocol import commands as c
from pravega_wire.segment.store import Backoff, SegmentStores, SegmentTarget
from pravega_wire.transport.limits import limit

__all__ = ["NULL_ATTRIBUTE", "SegmentMetadata"]

NULL_ATTRIBUTE = -(2**63)
"""Value of an attribute that is not set (wire protocol v0.13.0, "Segment operations")."""

_NO_SCALING = 0
_REPLACE = 1
# Kind of attribute update.


class SegmentMetadata:
    """Requests about one segment. Errors are those of :meth:`SegmentStores.call`."""

    __slots__ = ("_stores", "target")

    def __init__(self, stores: SegmentStores, target: SegmentTarget) -> None:
        self._stores = stores
        self.target = target

    async def info(self) -> c.StreamSegmentInfo:
        """Start offset, length and whether the segment is sealed.

        :raises NoSuchSegmentError: it does not exist.
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
        """Create a plain segment; False when it exists already."""
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
        """Seal the segment; nothing happens when it is sealed."""
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
        """Delete the segment; False when it did not exist."""
        name = self.target.name
        try:
            # Never send a delete for a segment that was merged into another one: a 0.13.0 store says
            # that it does not exist and yet marks it as deleted, and when the merge has not reached
            # long-term storage by then, its container stops with a ReconciliationFailureException.
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
        """Make ``offset`` (bytes) the first readable one.

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
        """Value of an attribute, :data:`NULL_ATTRIBUTE` when it is not set."""
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
        """The last event number of a writer on a segment that is being sealed or is sealed; 0 for none.

        A store refuses appends already while it is sealing. What came before on a connection that was lost
        meanwhile may not be stored yet then; it is once the store says that the segment is sealed.

        :raises NoSuchSegmentError: the segment is gone.
        """
        backoff = Backoff(self._stores.operation_timeout)
        with limit(self._stores.operation_timeout, f"waiting for the seal of {self.target.name}"):
            while not (await self.info()).is_sealed:
                await backoff.wait()
            number = await self.attribute(writer_id)
        return 0 if number == NULL_ATTRIBUTE else number

    async def compare_and_set_attribute(self, attribute_id: UUID, expected: int, new: int) -> bool:
        """Set an attribute if it still has the expected value; False when it has not.

        After a lost connection the request is sent again. An attribute that has the new value then counts as
        set by this call; one that was set by it, and since by somebody else, as not set.
        """
        # A store compares with what is going to be stored, and reads what is stored: an attempt whose answer
        # was lost may lie between the two.
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
        backoff = Backoff(self._stores.operation_timeout)
        with limit(self._stores.operation_timeout, f"updating an attribute of {name}"):
            while (found := await self.attribute(attribute_id)) == expected:
                await backoff.wait()
            return found == new
        raise AssertionError("not reached")  # the limit raises when it ends the loop

    async def merge_batch(self, sources: Sequence[str]) -> int:
        """Append the source segments (at least one), in order, to this one; the sources are gone afterwards.

        Sources that are merged already, or do not exist, count as done, so this may be repeated.

        :returns: length of this segment after the last of them, bytes.
        :raises OperationUnsupportedError: a server before 0.13.
        """
        name = self.target.name
        reply = await self._stores.call(
            self.target,
            lambda request_id, token: c.MergeSegmentsBatch(
                request_id=request_id,
                target_segment_id=name,
                source_segment_ids=tuple(sources),
                delegation_token=token,
            ),
            c.SegmentsBatchMerged,
            doing="merging into",
        )
        if len(reply.sources) != len(sources):
            raise UnexpectedReplyError(
                f"{name}: {len(sources)} segments were to be merged into it, and the store answers for "
                f"{len(reply.sources)}",
                segment=name,
            )
        return reply.sources[-1].new_target_write_offset

    async def merge(self, source: str, attribute_id: UUID, value: int) -> bool:
        """Append one source segment to this one; False when that was not done, the source being gone.

        :param attribute_id: an attribute of this segment that nobody else sets. It gets ``value`` with the
            merge, and so tells, after a lost answer, whether it was done.
        :raises NoSuchSegmentError: this segment is gone; nothing was merged.
        :raises RetriesExhaustedError: this segment is gone, an answer was lost before, and whether the
            merge was done is not known.
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
            # Patient: whether a merge that is still being made was made cannot be told.
            await self._stores.call(
                self.target, merging, c.SegmentsMerged, doing="merging into", patient=True
            )
        except NoSuchSegmentError as error:
            if error.segment != source:
                raise
            # The store names the source also when it is the target that does not exist.
            try:
                return await self.attribute(attribute_id) == value
            except NoSuchSegmentError as gone:
                if attempts == 1:
                    raise
                raise RetriesExhaustedError(
                    f"merging into {name}: the answer was lost, and now the segment is gone: whether the "
                    "event was stored is not known",
                    segment=name,
                    host=gone.host,
                ) from gone
        return True
