"""What a reader group reads and how, and what is known about one. All immutable and picklable.

Not public: :mod:`pravega_wire` exports what users need of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, Self
from uuid import UUID

from pravega_wire.checks import INT32_MAX, INT64_MAX, check_count
from pravega_wire.errors import ArgumentTypeError, InvalidArgumentError, InvalidStreamCutError
from pravega_wire.types import SEGMENT_READ, ScopedStream, StreamCut

__all__ = [
    "OnlineReader",
    "OnlineReaders",
    "OutstandingCheckpoint",
    "ReaderGroupConfig",
    "ReaderGroupMetrics",
    "RetentionType",
    "TimeWindow",
]

_LISTED: Final = 20
_NO_ID: Final = UUID(int=0)


class RetentionType(Enum):
    """How a group holds back the retention of its streams (numbers are those of the formats)."""

    NONE = 0
    """It does not: data may be gone before the group has read it."""

    MANUAL_RELEASE_AT_USER_STREAM_CUT = 1
    """Data is kept from the cut that :meth:`ReaderGroup.update_retention_stream_cut` was last given."""

    AUTOMATIC_RELEASE_AT_LAST_CHECKPOINT = 2
    """Data is kept from the last completed checkpoint."""


def _start(given: object) -> tuple[ScopedStream, StreamCut | None]:
    if isinstance(given, StreamCut):
        return given.stream, given
    if isinstance(given, str):
        return ScopedStream.parse(given), None
    if isinstance(given, ScopedStream):
        return given, None
    raise ArgumentTypeError(
        f"a reader group reads streams or from cuts, and {type(given).__name__} is neither: "
        "give a StreamCut, a ScopedStream, or a name as 'scope/stream'"
    )


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
    :param retention: how the group holds back the retention of its streams; by default it does not.
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
                if not isinstance(stream, ScopedStream) or not isinstance(cut, StreamCut | None):
                    raise ArgumentTypeError(
                        "starts and ends of a reader group map a ScopedStream to a StreamCut or None, not "
                        f"{type(stream).__name__} to {type(cut).__name__}"
                    )
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
        streams: Iterable[ScopedStream | StreamCut | str],
        *,
        ends: Iterable[StreamCut] = (),
        group_refresh_ms: int = 3000,
        automatic_checkpoint_ms: int = 30_000,
        max_outstanding_checkpoints: int = 3,
        retention: RetentionType = RetentionType.NONE,
    ) -> Self:
        """A configuration for streams, to be read from their heads, and cuts, to be read from there on.

        :param streams: each a cut, a stream, or a stream's full name ``"scope/stream"``.
        :raises ArgumentTypeError: one of them is something else.
        """
        starts = dict(map(_start, streams))
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


@dataclass(frozen=True, slots=True)
class OnlineReader:
    """What a group object knows of one reader.

    The group's state holds no times. ``last_moved`` is the time at which the group object read the reader's
    newest record; the reader wrote it then or earlier. A reader writes at least every few seconds, but only
    while its program asks it for events.

    :ivar name: of the reader. :ivar segments: full names of the segments that it holds, each with the offset
        up to which it has reported reading; -1 when it has read the segment to its end.
    :ivar unanswered: names of the outstanding checkpoints that it has not answered, oldest first.
    :ivar last_moved: UTC; None when it has written nothing since ``watched_since``.
    :ivar watched_since: UTC; when the group object was opened.
    """

    name: str
    segments: Mapping[str, int]
    unanswered: tuple[str, ...]
    last_moved: datetime | None
    watched_since: datetime

    def __str__(self) -> str:
        count = len(self.segments)
        holds = "no segment" if not count else "1 segment" if count == 1 else f"{count} segments"
        if self.last_moved is None:
            moved = f"not seen moving since watching began at {_utc(self.watched_since)}"
        else:
            moved = f"last seen moving at {_utc(self.last_moved)}"
        return f"{self.name} (holds {holds}, {moved})"


class OnlineReaders(Set[str]):
    """The names of a group's readers, a set; ``readers["one"]`` is what is known of that reader."""

    __slots__ = ("_readers",)

    def __init__(self, readers: Iterable[OnlineReader] = ()) -> None:
        self._readers = {each.name: each for each in readers}

    @classmethod
    def _from_iterable(cls, names: Iterable[str]) -> frozenset[str]:  # type: ignore[override]  # of & and |
        return frozenset(names)

    def __contains__(self, name: object) -> bool:
        return name in self._readers

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)

    def __hash__(self) -> int:
        return self._hash()

    def __getitem__(self, name: str) -> OnlineReader:
        """What is known of a reader; ``KeyError`` when there is none of this name."""
        return self._readers[name]

    def values(self) -> tuple[OnlineReader, ...]:
        """What is known of each reader."""
        return tuple(self._readers.values())

    def __repr__(self) -> str:
        return f"<OnlineReaders {', '.join(map(str, self._readers.values()))}>"


@dataclass(frozen=True, slots=True)
class OutstandingCheckpoint:
    """A checkpoint that some readers have not answered.

    :ivar name: of the checkpoint. :ivar silent: whether it is one of ``generate_stream_cuts``; those do not
        count towards ``max_outstanding_checkpoints``.
    :ivar waiting_for: the readers that have not answered.
    :ivar begun: UTC; when the group object saw it begin, None when it was there before.
    """

    name: str
    silent: bool
    waiting_for: tuple[OnlineReader, ...]
    begun: datetime | None

    def __str__(self) -> str:
        since = "" if self.begun is None else f", begun at {_utc(self.begun)}"
        return f"{self.name!r}{since}, waits for {listed(self.waiting_for)}"


def listed(readers: Sequence[OnlineReader]) -> str:
    """Readers for a message, which names the first of very many."""
    text = ", ".join(map(str, readers[:_LISTED]))
    rest = len(readers) - _LISTED
    return f"{text} and {rest} more" if rest > 0 else text


def _utc(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
