"""Configuration and state of reader groups.

All values are immutable and can be pickled.

Not public: :mod:`pravega_wire` exports the names that users need.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, Self, TypeAlias
from uuid import UUID

from pravega_wire.errors import ArgumentTypeError, InvalidArgumentError, InvalidStreamCutError
from pravega_wire.support.checks import (
    INT32_MAX,
    check_count,
    check_seconds,
    check_several,
    check_type,
    milliseconds,
    shown,
)
from pravega_wire.values.types import SEGMENT_READ, ScopedStream, StreamCut

__all__ = [
    "OnlineReader",
    "OnlineReaders",
    "OutstandingCheckpoint",
    "ReaderGroupConfig",
    "ReaderGroupMetrics",
    "RetentionType",
    "TimeWindow",
]

Start: TypeAlias = ScopedStream | StreamCut | str
"""What a reader group reads: a stream from its head, or from a cut on."""

Starts: TypeAlias = Start | Iterable[Start] | Mapping[ScopedStream, StreamCut | None]
"""One of them, several, or by stream, as the cuts of :class:`ReaderGroup` are returned."""

Cuts: TypeAlias = StreamCut | Iterable[StreamCut] | Mapping[ScopedStream, StreamCut]
"""One stream cut, several, or by stream."""

_LISTED: Final = 20
_NO_ID: Final = UUID(int=0)


class RetentionType(Enum):
    """How a group keeps the retention policy of its streams from removing unread data."""

    # The numbers are those of io.pravega.client.stream.ReaderGroupConfig.StreamDataRetention.
    NONE = 0
    """Not at all: retention may remove data before the group has read it."""

    MANUAL_RELEASE_AT_USER_STREAM_CUT = 1
    """Data is kept from the last cut that was passed to :meth:`ReaderGroup.update_retention_stream_cut`."""

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


def starts_of(given: Starts) -> Iterable[Start]:
    """What a group reads, of which there may be one, or by stream.

    :raises ArgumentTypeError: it is neither a stream or a cut nor an iterable.
    :raises InvalidStreamCutError: a cut is given for another stream than its own.
    """
    if isinstance(given, str | ScopedStream | StreamCut):
        return (given,)
    if isinstance(given, Mapping):
        _check_own("the streams of a reader group", given)
        return [stream if cut is None else cut for stream, cut in given.items()]
    check_several("the streams of a reader group", given)
    return given


def _check_own(name: str, given: Mapping[Any, object]) -> None:
    for stream, cut in given.items():
        # Its name as a string does as well, as elsewhere.
        if isinstance(cut, StreamCut) and stream not in (cut.stream, str(cut.stream), cut.stream.name):
            raise InvalidStreamCutError(
                f"{name}: the stream cut for {shown(stream)} belongs to {cut.stream}",
                scope=cut.stream.scope,
                stream=cut.stream.name,
            )


def _one_each(
    what: str, given: Iterable[tuple[ScopedStream, StreamCut | None]]
) -> dict[ScopedStream, StreamCut | None]:
    """A mapping of streams to their cuts, none of which replaces another one.

    :raises InvalidStreamCutError: a stream has different ones.
    """
    found: dict[ScopedStream, StreamCut | None] = {}
    for stream, cut in given:
        if found.setdefault(stream, cut) != cut:
            raise InvalidStreamCutError(
                f"{what}: stream {stream} is given twice, at different positions",
                scope=stream.scope,
                stream=stream.name,
            )
    return found


def cuts_of(name: str, given: Cuts) -> list[StreamCut]:
    """Stream cuts, of which there may be one, or by stream.

    :param name: name of the argument, for the message.
    :raises ArgumentTypeError: they are something else.
    :raises InvalidStreamCutError: a cut is given for another stream than its own.
    """
    if isinstance(given, StreamCut):
        return [given]
    check_several(name, given)
    cuts = list(given.values() if isinstance(given, Mapping) else given)
    for each in cuts:
        if not isinstance(each, StreamCut):
            raise ArgumentTypeError(f"{name} must be of the class StreamCut, not {type(each).__name__}")
    if isinstance(given, Mapping):
        _check_own(name, given)
    return cuts


@dataclass(frozen=True, slots=True)
class ReaderGroupConfig:
    """The configuration of a reader group: what it reads, and how its readers coordinate.

    Comparison ignores ``generation`` and ``group_id``, as in Java.

    Example::

        config = ReaderGroupConfig.of(
            [ScopedStream("demo", "readings")], automatic_checkpoint_interval=10
        )
        await client.create_reader_group("dashboards", config)

    :param starts: the group's streams, each with the cut to start at; None starts at the stream's head.
    :param ends: the cuts to end at, for some or all of the streams; None (or no entry) means no end.
    :param group_refresh_interval: seconds after which a reader fetches the group's state again, to see what
        the other readers do.
    :param automatic_checkpoint_interval: seconds between automatic checkpoints; zero or less turns them off.
        Segments move between readers, and the successors of sealed segments are started, only at
        checkpoints.
    :param max_outstanding_checkpoints: largest number of named checkpoints in progress at the same time.
    :param retention: how the group keeps the retention policy of its streams from removing unread data; by
        default it does not.
    :param generation: number of this configuration; the controller assigns it.
    :param group_id: id of the group; the controller assigns it.
    :raises InvalidArgumentError: there is no stream, or a number is out of range.
    :raises InvalidStreamCutError: a cut belongs to another stream, or an end cut is before its start cut.
    """

    starts: Mapping[ScopedStream, StreamCut | None]
    ends: Mapping[ScopedStream, StreamCut | None] = field(default_factory=dict)
    group_refresh_interval: float = 3
    automatic_checkpoint_interval: float = 30
    max_outstanding_checkpoints: int = 3
    retention: RetentionType = RetentionType.NONE
    generation: int = field(default=-1, compare=False)
    group_id: UUID = field(default=_NO_ID, compare=False)

    def __post_init__(self) -> None:
        check_type("starts", self.starts, Mapping)
        check_type("ends", self.ends, Mapping)
        object.__setattr__(self, "starts", MappingProxyType(dict(self.starts)))
        missing = {stream: None for stream in self.starts if stream not in self.ends}
        object.__setattr__(self, "ends", MappingProxyType({**self.ends, **missing}))
        if not self.starts:
            raise InvalidArgumentError("a reader group needs at least one stream")
        check_count("max_outstanding_checkpoints", self.max_outstanding_checkpoints, highest=INT32_MAX)
        for name, negative in (("group_refresh_interval", False), ("automatic_checkpoint_interval", True)):
            seconds = check_seconds(name, getattr(self, name), zero=True, negative=negative)
            # As the servers keep it, so that what comes back from them is equal.
            object.__setattr__(self, name, milliseconds(seconds) / 1000)
        if not isinstance(self.retention, RetentionType):
            raise InvalidArgumentError(f"retention must be a RetentionType, not {shown(self.retention)}")
        for cuts in (self.starts, self.ends):
            for stream, cut in cuts.items():
                if not isinstance(stream, ScopedStream) or not isinstance(cut, StreamCut | None):
                    raise ArgumentTypeError(
                        "starts and ends of a reader group map a ScopedStream to a StreamCut or None, not "
                        f"{type(stream).__name__} to {type(cut).__name__}"
                    )
                if stream not in self.starts:
                    raise InvalidArgumentError(
                        f"there is an end cut for {stream}, but it is not one of the group's streams"
                    )
                if cut is not None and cut.stream != stream:
                    raise InvalidStreamCutError(
                        f"the stream cut for {stream} belongs to {cut.stream}",
                        scope=stream.scope,
                        stream=stream.name,
                    )
        for stream, start in self.starts.items():
            end = self.ends[stream]
            if start is not None and end is not None:
                _check_order(stream, start, end)

    @classmethod
    def of(
        cls,
        streams: Starts,
        *,
        ends: Cuts = (),
        group_refresh_interval: float = 3,
        automatic_checkpoint_interval: float = 30,
        max_outstanding_checkpoints: int = 3,
        retention: RetentionType = RetentionType.NONE,
    ) -> Self:
        """Create a configuration from a list of streams.

        :param streams: streams to read from their heads, each a :class:`ScopedStream` or a full name
            ``"scope/stream"``; or stream cuts to read from. A single one needs no list; cuts may be those
            that :meth:`ReaderGroup.stream_cuts` and the like return, by stream.
        :param ends: stream cuts to end at, at most one for each stream.
        :param group_refresh_interval: as in :class:`ReaderGroupConfig`.
        :param automatic_checkpoint_interval: as in :class:`ReaderGroupConfig`.
        :param max_outstanding_checkpoints: as in :class:`ReaderGroupConfig`.
        :param retention: as in :class:`ReaderGroupConfig`.
        :raises ArgumentTypeError: one of the streams is neither of these.
        :raises InvalidArgumentError: there is no stream, or a number is out of range.
        :raises InvalidStreamCutError: an end cut is before its start cut, a cut is given for another stream
            than its own, or a stream has two positions.
        """
        return cls(
            _one_each("the streams of a reader group", map(_start, starts_of(streams))),
            _one_each("ends", map(_start, cuts_of("ends", ends))),
            group_refresh_interval,
            automatic_checkpoint_interval,
            max_outstanding_checkpoints,
            retention,
        )

    @property
    def streams(self) -> tuple[ScopedStream, ...]:
        """The streams that the group reads."""
        return tuple(self.starts)

    @property
    def automatic_checkpoints(self) -> bool:
        """True if the readers start checkpoints automatically."""
        return self.automatic_checkpoint_interval > 0

    def starting_at(self, cuts: Cuts) -> Self:
        """Return a copy that starts at other cuts.

        :param cuts: the cuts to start at; a stream without one starts at its head.
        :raises InvalidStreamCutError: a cut belongs to another stream, or a stream has two.
        """
        found = _one_each("cuts", map(_start, cuts_of("cuts", cuts)))
        for stream in found:
            if stream not in self.starts:
                raise InvalidStreamCutError(
                    f"there is a start cut for {stream}, but it is not one of the group's streams",
                    scope=stream.scope,
                    stream=stream.name,
                )
        return replace(self, starts={stream: found.get(stream) for stream in self.starts})

    def with_identity(self, generation: int, group_id: UUID) -> Self:
        """Return a copy with another generation and group id."""
        return replace(self, generation=generation, group_id=group_id)

    def __hash__(self) -> int:
        return hash((tuple(sorted(self.starts)), self.group_refresh_interval, self.retention))

    def __reduce__(self) -> tuple[Any, ...]:
        values = (getattr(self, each.name) for each in fields(self))
        return type(self), tuple(dict(value) if isinstance(value, Mapping) else value for value in values)


def _check_order(stream: ScopedStream, start: StreamCut, end: StreamCut) -> None:
    """Check that the end of a group is not before its start, by the same rules as the Java client."""
    for segment, offset in start.positions.items():
        limit = end.positions.get(segment)
        if limit is None or limit == SEGMENT_READ:
            continue
        if offset == SEGMENT_READ or offset > limit:
            raise InvalidStreamCutError(
                f"the end cut of {stream} is before its start cut: in segment {segment} it starts at offset "
                f"{offset} and ends at {limit}",
                scope=stream.scope,
                stream=stream.name,
            )
    first, last = list(start.positions), list(end.positions)
    if first and last and (min(first) > min(last) or max(first) > max(last)):
        raise InvalidStreamCutError(
            f"the end cut of {stream} is before its start cut: it starts in segments {first} and ends in the "
            f"earlier segments {last}",
            scope=stream.scope,
            stream=stream.name,
        )


@dataclass(frozen=True, slots=True)
class ReaderGroupMetrics:
    """The metrics of a reader group at one moment.

    :ivar readers: name of each online reader to the number of its segments.
    :ivar unassigned: number of segments that no reader holds.
    :ivar future: number of segments that wait until their predecessors have been read.
    :ivar unread_bytes: number of bytes from the last completed checkpoint (without one, from the readers'
        last reported positions) to the end of the streams, including 8 bytes of header for each event.
    """

    readers: Mapping[str, int]
    unassigned: int
    future: int
    unread_bytes: int

    @property
    def segments(self) -> int:
        """The number of segments that are being read or are ready to be read."""
        return sum(self.readers.values()) + self.unassigned


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """The event time that a group has reached in a stream, in the unit that its writers use.

    :ivar lower: no event still to be read is older; None near the head of the stream.
    :ivar upper: no event read so far is newer, unless its writer had not reported that time yet; None near
        the tail of the stream.
    """

    lower: int | None
    upper: int | None


@dataclass(frozen=True, slots=True)
class OnlineReader:
    """The state of one reader, as last seen by a group object.

    The group's state contains no times. ``last_moved`` is the time at which the group object read the
    reader's newest record; the reader wrote it then or earlier. A reader writes a record at least every few
    seconds, but only while its program requests events.

    :ivar name: name of the reader.
    :ivar segments: full name of each segment that the reader holds, to the offset up to which it has reported
        reading; -1 if it has read the segment to its end.
    :ivar unanswered: names of the outstanding checkpoints that the reader has not responded to, oldest first.
    :ivar last_moved: time (UTC) of the reader's last observed activity; None if there was none since
        ``watched_since``.
    :ivar watched_since: time (UTC) when the group object was opened.
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
            moved = f"no activity since the group was opened at {_utc(self.watched_since)}"
        else:
            moved = f"last active at {_utc(self.last_moved)}"
        return f"{self.name} (holds {holds}, {moved})"


class OnlineReaders(Set[str]):
    """The set of the names of a group's online readers; ``readers["one"]`` is the state of that reader."""

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
        """Return the state of a reader.

        :param name: name of the reader.
        :raises KeyError: the group has no online reader with this name.
        """
        return self._readers[name]

    def values(self) -> tuple[OnlineReader, ...]:
        """Return the state of each reader."""
        return tuple(self._readers.values())

    def __repr__(self) -> str:
        return f"<OnlineReaders {', '.join(map(str, self._readers.values()))}>"


@dataclass(frozen=True, slots=True)
class OutstandingCheckpoint:
    """A checkpoint that some readers have not responded to.

    :ivar name: name of the checkpoint.
    :ivar silent: True if ``generate_stream_cuts`` started it; such checkpoints do not count towards
        ``max_outstanding_checkpoints``.
    :ivar waiting_for: the readers that have not responded.
    :ivar begun: time (UTC) when the group object saw the checkpoint start; None if it had started before the
        group object was opened.
    """

    name: str
    silent: bool
    waiting_for: tuple[OnlineReader, ...]
    begun: datetime | None

    def __str__(self) -> str:
        since = "" if self.begun is None else f", started at {_utc(self.begun)}"
        return f"{self.name!r}{since}, waiting for {listed(self.waiting_for)}"


def listed(readers: Sequence[OnlineReader]) -> str:
    """Format a list of readers for a message; a long list is shortened."""
    text = ", ".join(map(str, readers[:_LISTED]))
    rest = len(readers) - _LISTED
    return f"{text} and {rest} more" if rest > 0 else text


def _utc(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
