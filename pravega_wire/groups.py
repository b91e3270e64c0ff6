"""What a reader group reads and how, and what is known about one. All immutable and picklable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, Self
from uuid import UUID

from pravega_wire.checks import INT32_MAX, INT64_MAX, check_count
from pravega_wire.errors import InvalidArgumentError, InvalidStreamCutError
from pravega_wire.types import SEGMENT_READ, ScopedStream, StreamCut

__all__ = ["ReaderGroupConfig", "ReaderGroupMetrics", "RetentionType", "TimeWindow"]

_NO_ID: Final = UUID(int=0)


class RetentionType(Enum):
    """How a group holds back the retention of its streams (numbers are those of the formats)."""

    NONE = 0
    """It does not: data may be gone before the group has read it."""

    MANUAL_RELEASE_AT_USER_STREAM_CUT = 1
    """Data is kept from the cut that :meth:`ReaderGroup.update_retention_stream_cut` was last given."""

    AUTOMATIC_RELEASE_AT_LAST_CHECKPOINT = 2
    """Data is kept from the last completed checkpoint."""


@dataclass(frozen=True, slots=True)
class ReaderGroupConfig:
    """What a group reads, and how its readers work together.

    Two are equal whatever generation and id they have, as Java's.

    :param starts: streams of the group, each with the cut to begin at; None is the stream's head.
    :param ends: for some or all of them the cut to end at; None (or no entry) is no end.
    :param group_refresh_ms: milliseconds after which a reader looks what the others do.
    :param automatic_checkpoint_ms: milliseconds between checkpoints that the readers begin by themselves;
        zero or less: never. Segments change hands, and the successors of sealed ones begin, only at
        checkpoints.
    :param max_outstanding_checkpoints: how many named checkpoints may be under way at a time.
    :param generation: number of the configuration; the controller counts it.
    :param group_id: of the group; the controller gives it.
    :raises InvalidArgumentError: no stream, or a number out of its range.
    :raises InvalidStreamCutError: a cut is of another stream, or ends before its start.
    """

    starts: Mapping[ScopedStream, StreamCut | None]
    ends: Mapping[ScopedStream, StreamCut | None] = field(default_factory=dict)
    group_refresh_ms: int = 3000
    automatic_checkpoint_ms: int = 30_000
    max_outstanding_checkpoints: int = 3
    retention: RetentionType = RetentionType.NONE
    generation: int = field(default=-1, compare=False)
    group_id: UUID = field(default=_NO_ID, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "starts", MappingProxyType(dict(self.starts)))
        missing = {stream: None for stream in self.starts if stream not in self.ends}
        object.__setattr__(self, "ends", MappingProxyType({**self.ends, **missing}))
        if not self.starts:
            raise InvalidArgumentError("a reader group reads at least one stream")
        check_count("max_outstanding_checkpoints", self.max_outstanding_checkpoints, highest=INT32_MAX)
        check_count("group_refresh_ms", self.group_refresh_ms, 0)
        check_count("automatic_checkpoint_ms", self.automatic_checkpoint_ms, -INT64_MAX)
        if not isinstance(self.retention, RetentionType):
            raise InvalidArgumentError(f"retention must be a RetentionType, not {self.retention!r}")
        for cuts in (self.starts, self.ends):
            for stream, cut in cuts.items():
                if stream not in self.starts:
                    raise InvalidArgumentError(f"the group ends in {stream}, and does not read it")
                if cut is not None and cut.stream != stream:
                    raise InvalidStreamCutError(
                        f"the cut for {stream} is of {cut.stream}", scope=stream.scope, stream=stream.name
                    )
        for stream, start in self.starts.items():
            end = self.ends[stream]
            if start is not None and end is not None:
                _check_order(stream, start, end)

    @classmethod
    def of(
        cls,
        streams: Iterable[ScopedStream | StreamCut],
        *,
        ends: Iterable[StreamCut] = (),
        group_refresh_ms: int = 3000,
        automatic_checkpoint_ms: int = 30_000,
        max_outstanding_checkpoints: int = 3,
        retention: RetentionType = RetentionType.NONE,
    ) -> Self:
        """From streams (to read from their heads) and cuts (to read from there on)."""
        starts = {
            each.stream if isinstance(each, StreamCut) else each: each
            if isinstance(each, StreamCut)
            else None
            for each in streams
        }
        return cls(
            starts,
            {cut.stream: cut for cut in ends},
            group_refresh_ms,
            automatic_checkpoint_ms,
            max_outstanding_checkpoints,
            retention,
        )

    @property
    def streams(self) -> tuple[ScopedStream, ...]:
        """The streams of the group."""
        return tuple(self.starts)

    @property
    def automatic_checkpoints(self) -> bool:
        """Whether the readers begin checkpoints by themselves."""
        return self.automatic_checkpoint_ms > 0

    def starting_at(self, cuts: Iterable[StreamCut]) -> Self:
        """A copy that begins at these cuts, and at the stream's head where there is none."""
        found = {cut.stream: cut for cut in cuts}
        return replace(self, starts={stream: found.get(stream) for stream in self.starts})

    def with_identity(self, generation: int, group_id: UUID) -> Self:
        """A copy with another generation and id."""
        return replace(self, generation=generation, group_id=group_id)

    def __hash__(self) -> int:
        return hash((tuple(sorted(self.starts)), self.group_refresh_ms, self.retention))

    def __reduce__(self) -> tuple[Any, ...]:
        values = (getattr(self, each.name) for each in fields(self))
        return type(self), tuple(dict(value) if isinstance(value, Mapping) else value for value in values)


def _check_order(stream: ScopedStream, start: StreamCut, end: StreamCut) -> None:
    """What Java asks of the two ends of a group."""
    for segment, offset in start.positions.items():
        limit = end.positions.get(segment)
        if limit is None or limit == SEGMENT_READ:
            continue
        if offset == SEGMENT_READ or offset > limit:
            raise InvalidStreamCutError(
                f"the cuts of {stream} begin at {offset} in segment {segment} and end at {limit}",
                scope=stream.scope,
                stream=stream.name,
            )
    first, last = list(start.positions), list(end.positions)
    if first and last and (min(first) > min(last) or max(first) > max(last)):
        raise InvalidStreamCutError(
            f"the cuts of {stream} begin in segments {first} and end before them, in {last}",
            scope=stream.scope,
            stream=stream.name,
        )


@dataclass(frozen=True, slots=True)
class ReaderGroupMetrics:
    """How a group does at one moment.

    :ivar readers: segments of each reader that is online. :ivar unassigned: segments that nobody reads now.
    :ivar future: segments that wait for their predecessors to be read.
    :ivar unread_bytes: from the last completed checkpoint (without one: from what is known of the readers) to
        the end, with 8 bytes for each event.
    """

    readers: Mapping[str, int]
    unassigned: int
    future: int
    unread_bytes: int

    @property
    def segments(self) -> int:
        """Segments that are being read or may be."""
        return sum(self.readers.values()) + self.unassigned


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """Which time a group is at, in its writers' unit.

    :ivar lower: no event that follows is older; None near the head of the stream.
    :ivar upper: no event read so far is newer; None near its tail.
    """

    lower: int | None
    upper: int | None
