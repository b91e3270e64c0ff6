"""What a client counts, and telling somebody about it while it happens.

Every client counts: :meth:`PravegaClient.metrics` gives a :class:`ClientMetrics` at any time. An *observer*,
given to ``open_client(config, observer=...)``, is any function of one argument; it is called with an
:data:`Observation` for each block, answer and call (never for each event). :mod:`pravega_wire.telemetry`
makes one.

An observer is called in the client's thread, in the middle of the client's work: it must be quick, must not
wait and must not use the client, except for the snapshot that :class:`ClientOpened` brings. What it raises is
logged (the first time, with a traceback), counted in :attr:`ClientMetrics.observer_errors` and otherwise
ignored: it is called again the next time.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from pravega_wire.errors import InvalidArgumentError, PravegaError
from pravega_wire.types import ScopedStream

__all__ = [
    "BlockAcknowledged",
    "BlocksResent",
    "BytesReceived",
    "CallMetrics",
    "ClientClosed",
    "ClientMetrics",
    "ClientOpened",
    "ControllerCalled",
    "DataSkipped",
    "EventsRead",
    "Observation",
    "Observer",
    "ReaderMetrics",
    "Reconnecting",
    "SegmentSucceeded",
    "WriterMetrics",
]

log = logging.getLogger(__name__)

_BUCKETS: Final = 32


# --- snapshots ----------------------------------------------------------------------------------


def _quantile(buckets: Sequence[int], quantile: float) -> float:
    if not 0 <= quantile <= 1:
        raise InvalidArgumentError(f"a quantile is between 0 and 1, not {quantile}")
    wanted = quantile * sum(buckets)
    seen = 0
    for index, count in enumerate(buckets):
        seen += count
        if count and seen >= wanted:
            return float(2**index) / 1e6
    return 0.0


def _bucket(seconds: float) -> int:
    return min(int(seconds * 1e6).bit_length(), _BUCKETS - 1)


@dataclass(frozen=True, slots=True)
class WriterMetrics:
    """What a writer, or all writers of a stream, have done so far.

    Events of a transaction or of a staging writer count when they are written and stored there, whatever
    becomes of it. A byte-stream writer has no events: it counts bytes, and blocks as the latency's events.

    :ivar name: the stream. :ivar events_written, bytes_written: accepted; bytes are of payloads.
    :ivar events_acknowledged, bytes_acknowledged: known to be stored.
    :ivar outstanding_bytes: accepted and not acknowledged, with event headers.
    :ivar reconnects: sessions with a segment store that had to be begun again.
    :ivar latency_buckets: bucket ``i`` counts the events acknowledged less than ``2**i`` microseconds (and
        not less than half of that) after they were sent.
    :ivar blocks_acknowledged: blocks (what is sent at once) known to be stored.
    :ivar blocks_resent, events_resent, bytes_resent: sent once more after a lost connection, because they
        were not known to be stored; bytes with event headers.
    :ivar segments_sealed: segments whose successors a writer went on with.
    :ivar events_moved, bytes_moved: not stored when their segment was sealed, and so sent to its successors;
        bytes with event headers.
    """

    name: str
    events_written: int
    bytes_written: int
    events_acknowledged: int
    bytes_acknowledged: int
    outstanding_bytes: int
    reconnects: int
    latency_buckets: tuple[int, ...]
    blocks_acknowledged: int = 0
    blocks_resent: int = 0
    events_resent: int = 0
    bytes_resent: int = 0
    segments_sealed: int = 0
    events_moved: int = 0
    bytes_moved: int = 0

    def latency(self, quantile: float) -> float:
        """Seconds within which this part (0 to 1) of the events was acknowledged, up to a factor of 2.

        :raises InvalidArgumentError: not between 0 and 1.
        """
        return _quantile(self.latency_buckets, quantile)


@dataclass(frozen=True, slots=True)
class ReaderMetrics:
    """What all readers of a stream have done so far: of ranges, of groups, of bytes, of shared states.

    :ivar name: the stream. :ivar reads: answers of segment stores that had data.
    :ivar bytes_received: in those answers, with event headers.
    :ivar events_read, bytes_read: events found in them, and the bytes of their payloads (of a byte stream:
        the bytes given out). A reader of a group reads ahead: it may have more than it has given out.
    :ivar reconnects: connections that reading was begun again on after a failure.
    :ivar skips: times that truncated data was skipped (``on_truncated="skip_to_head"``).
    :ivar bytes_skipped: bytes skipped then, with event headers; those of segments that were deleted before
        they were read to their ends are not among them, because nobody knows how many they were.
    """

    name: str
    events_read: int
    bytes_read: int
    reads: int
    bytes_received: int
    reconnects: int
    skips: int = 0
    bytes_skipped: int = 0


@dataclass(frozen=True, slots=True)
class CallMetrics:
    """Calls of one method of the controller.

    :ivar name: the method, as in the controller's interface ("createScope"). :ivar calls: that have ended.
    :ivar errors: of them, those that ended without an answer: refused, out of attempts, cancelled. An answer
        that says no (there is no such stream) is an answer.
    :ivar retries: attempts after the first. :ivar seconds: in all, pauses between attempts included.
    :ivar latency_buckets: bucket ``i`` counts the calls that took less than ``2**i`` microseconds, and not
        less than half of that.
    """

    name: str
    calls: int
    errors: int
    retries: int
    seconds: float
    latency_buckets: tuple[int, ...]

    def latency(self, quantile: float) -> float:
        """Seconds that this part (0 to 1) of the calls took at most, up to a factor of 2.

        :raises InvalidArgumentError: not between 0 and 1.
        """
        return _quantile(self.latency_buckets, quantile)


@dataclass(frozen=True, slots=True)
class ClientMetrics:
    """What a client has done so far.

    :ivar writers: for each stream, all its writers together, those that are closed as well.
    :ivar readers: for each stream, all its readers together. Streams that the client reads for itself (states
        of reader groups) are among them. :ivar controller: for each method.
    :ivar observer_errors: calls of the observer that raised.
    """

    writers: Mapping[ScopedStream, WriterMetrics]
    readers: Mapping[ScopedStream, ReaderMetrics]
    controller: Mapping[str, CallMetrics]
    observer_errors: int


# --- observations -------------------------------------------------------------------------------

Role = Literal["writer", "reader"]


@dataclass(frozen=True, slots=True)
class ClientOpened:
    """The first observation of a client.

    :ivar metrics: its counters at the time of the call; may be called from any thread, also later.
    """

    metrics: Callable[[], ClientMetrics]


@dataclass(frozen=True, slots=True)
class ClientClosed:
    """The last observation of a client. :ivar metrics: equal to that of its :class:`ClientOpened`."""

    metrics: Callable[[], ClientMetrics]


@dataclass(frozen=True, slots=True)
class BlockAcknowledged:
    """A block, or a large event, is stored.

    :ivar events: in it; 0 in a byte stream. :ivar bytes: of their payloads.
    :ivar seconds: since it was sent for the first time.
    """

    stream: ScopedStream
    events: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class BlocksResent:
    """After a lost connection, what was not known to be stored was sent again. :ivar bytes: with headers."""

    stream: ScopedStream
    blocks: int
    events: int
    bytes: int


@dataclass(frozen=True, slots=True)
class SegmentSucceeded:
    """A segment was sealed, and the writer goes on with its successors.

    :ivar events, bytes: not stored by then, so they go to the successors (none is usual); bytes with headers.
    """

    stream: ScopedStream
    events: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Reconnecting:
    """A session with a segment store failed, and is begun again. :ivar error: what it failed with."""

    stream: ScopedStream
    role: Role
    error: PravegaError


@dataclass(frozen=True, slots=True)
class BytesReceived:
    """A segment store answered a read with data. :ivar bytes: of events their headers as well."""

    stream: ScopedStream
    bytes: int


@dataclass(frozen=True, slots=True)
class EventsRead:
    """Events were found in what was received; of a byte stream (``events`` is 0), bytes were given out."""

    stream: ScopedStream
    events: int
    bytes: int


@dataclass(frozen=True, slots=True)
class DataSkipped:
    """Data was truncated before it was read, and is skipped (``on_truncated="skip_to_head"``).

    :ivar segment: full name. :ivar offset: first byte that is skipped.
    :ivar new_offset: where reading continues, or where the range that was wanted ends; -1 when the segment
        was deleted, and what was read after it is in other segments.
    :ivar bytes: skipped, with event headers; None when the segment was deleted and its length is not known.
    """

    stream: ScopedStream
    segment: str
    offset: int
    new_offset: int
    bytes: int | None


@dataclass(frozen=True, slots=True)
class ControllerCalled:
    """A call of the controller has ended.

    :ivar method: its name. :ivar seconds: all attempts and the pauses between them.
    :ivar attempts: at least 1.
    :ivar error: why there is no answer ("RetriesExhaustedError", "Cancelled"), or None.
    """

    method: str
    seconds: float
    attempts: int
    error: str | None


Observation = (
    ClientOpened
    | ClientClosed
    | BlockAcknowledged
    | BlocksResent
    | SegmentSucceeded
    | Reconnecting
    | BytesReceived
    | EventsRead
    | DataSkipped
    | ControllerCalled
)
"""What an observer is called with; later versions may add further classes."""

Observer = Callable[[Observation], object]
"""A function; what it returns is not looked at."""


def check_observer(observer: Observer | None) -> None:
    """Refuse what cannot be called, or would have to be awaited.

    :raises InvalidArgumentError: it is that.
    """
    if observer is None:
        return
    if not callable(observer):
        raise InvalidArgumentError(f"an observer is a function, not {type(observer).__name__}")
    if inspect.iscoroutinefunction(observer) or inspect.iscoroutinefunction(
        getattr(observer, "__call__", None)  # noqa: B004
    ):
        raise InvalidArgumentError("an observer is a plain function: it is not awaited")


# --- counting -----------------------------------------------------------------------------------


class WriteCounts:
    """Counters of one writer, which are added to its stream's as well.

    :param total: the stream's; None for the stream's own.
    """

    __slots__ = (
        "_counters", "_source", "_total", "blocks_acknowledged", "blocks_resent", "bytes_acknowledged",
        "bytes_moved", "bytes_resent", "bytes_written", "events_acknowledged", "events_moved",
        "events_resent", "events_written", "latencies", "live", "reconnects", "segments_sealed", "stream",
    )  # fmt: skip

    def __init__(self, counters: Counters, stream: ScopedStream, total: WriteCounts | None = None) -> None:
        self.stream = stream
        self._counters = counters
        self._total = total
        self._source: Callable[[], tuple[int, int, int]] | None = None
        self.live: dict[WriteCounts, None] = {}
        # Of writers that have ended; those of live ones are asked for, since they change with each event.
        self.events_written = 0
        self.bytes_written = 0
        self.events_acknowledged = 0
        self.bytes_acknowledged = 0
        self.blocks_acknowledged = 0
        self.blocks_resent = 0
        self.events_resent = 0
        self.bytes_resent = 0
        self.segments_sealed = 0
        self.events_moved = 0
        self.bytes_moved = 0
        self.reconnects = 0
        self.latencies = [0] * _BUCKETS

    def begin(self, source: Callable[[], tuple[int, int, int]]) -> None:
        """The writer is at work. :param source: gives events written, bytes written, bytes outstanding."""
        assert self._total is not None
        self._source = source
        self._total.live[self] = None

    def end(self) -> None:
        """The writer has ended; calling it again changes nothing."""
        total = self._total
        assert total is not None
        if self in total.live:
            del total.live[self]
            assert self._source is not None
            events, size, _ = self._source()
            total.events_written += events
            total.bytes_written += size

    def acknowledged(self, events: int, size: int, seconds: float) -> None:
        """A block is stored; arguments as :class:`BlockAcknowledged`."""
        bucket = _bucket(seconds)
        for counts in (self, self._total):
            assert counts is not None
            counts.blocks_acknowledged += 1
            counts.events_acknowledged += events
            counts.bytes_acknowledged += size
            counts.latencies[bucket] += events or 1
        if self._counters.observer is not None:
            self._counters.tell(BlockAcknowledged(self.stream, events, size, seconds))

    def resent(self, blocks: int, events: int, size: int) -> None:
        """Blocks were sent again; arguments as :class:`BlocksResent`."""
        for counts in (self, self._total):
            assert counts is not None
            counts.blocks_resent += blocks
            counts.events_resent += events
            counts.bytes_resent += size
        if self._counters.observer is not None:
            self._counters.tell(BlocksResent(self.stream, blocks, events, size))

    def succeeded(self, events: int, size: int) -> None:
        """A segment has successors; arguments as :class:`SegmentSucceeded`."""
        for counts in (self, self._total):
            assert counts is not None
            counts.segments_sealed += 1
            counts.events_moved += events
            counts.bytes_moved += size
        if self._counters.observer is not None:
            self._counters.tell(SegmentSucceeded(self.stream, events, size))

    def reconnecting(self, error: PravegaError) -> None:
        """A session is begun again."""
        for counts in (self, self._total):
            assert counts is not None
            counts.reconnects += 1
        if self._counters.observer is not None:
            self._counters.tell(Reconnecting(self.stream, "writer", error))

    def metrics(
        self, name: str, written: int | None = None, size: int | None = None, outstanding: int = 0
    ) -> WriterMetrics:
        """A snapshot. :param written, size, outstanding: where the caller keeps them itself."""
        return WriterMetrics(
            name=name,
            events_written=self.events_written if written is None else written,
            bytes_written=self.bytes_written if size is None else size,
            events_acknowledged=self.events_acknowledged,
            bytes_acknowledged=self.bytes_acknowledged,
            outstanding_bytes=outstanding,
            reconnects=self.reconnects,
            latency_buckets=tuple(self.latencies),
            blocks_acknowledged=self.blocks_acknowledged,
            blocks_resent=self.blocks_resent,
            events_resent=self.events_resent,
            bytes_resent=self.bytes_resent,
            segments_sealed=self.segments_sealed,
            events_moved=self.events_moved,
            bytes_moved=self.bytes_moved,
        )

    def total_metrics(self) -> WriterMetrics:
        """A snapshot of a stream's counters, with those of its writers at work."""
        events, size, outstanding = self.events_written, self.bytes_written, 0
        # A list is made in one go, also while the client's thread changes the dictionary.
        for counts in list(self.live):
            assert counts._source is not None
            found = counts._source()
            events += found[0]
            size += found[1]
            outstanding += found[2]
        return self.metrics(str(self.stream), events, size, outstanding)


class ReadCounts:
    """Counters of all readers of a stream."""

    __slots__ = (
        "_counters", "bytes_read", "bytes_received", "bytes_skipped", "events_read", "reads", "reconnects",
        "skips", "stream",
    )  # fmt: skip

    def __init__(self, counters: Counters, stream: ScopedStream) -> None:
        self.stream = stream
        self._counters = counters
        self.events_read = 0
        self.bytes_read = 0
        self.reads = 0
        self.bytes_received = 0
        self.reconnects = 0
        self.skips = 0
        self.bytes_skipped = 0

    def received(self, size: int) -> None:
        """A store answered with so many bytes."""
        self.reads += 1
        self.bytes_received += size
        if self._counters.observer is not None:
            self._counters.tell(BytesReceived(self.stream, size))

    def read(self, events: int, size: int) -> None:
        """Events, or the bytes of a byte stream; see :class:`EventsRead`."""
        self.events_read += events
        self.bytes_read += size
        if self._counters.observer is not None:
            self._counters.tell(EventsRead(self.stream, events, size))

    def reconnecting(self, error: PravegaError) -> None:
        """Reading is begun again."""
        self.reconnects += 1
        if self._counters.observer is not None:
            self._counters.tell(Reconnecting(self.stream, "reader", error))

    def skipped(self, segment: str, offset: int, new_offset: int, size: int | None) -> None:
        """Truncated data is skipped; arguments as :class:`DataSkipped`."""
        self.skips += 1
        self.bytes_skipped += size or 0
        if self._counters.observer is not None:
            self._counters.tell(DataSkipped(self.stream, segment, offset, new_offset, size))

    def metrics(self) -> ReaderMetrics:
        """A snapshot."""
        return ReaderMetrics(
            name=str(self.stream),
            events_read=self.events_read,
            bytes_read=self.bytes_read,
            reads=self.reads,
            bytes_received=self.bytes_received,
            reconnects=self.reconnects,
            skips=self.skips,
            bytes_skipped=self.bytes_skipped,
        )


class _CallCounts:
    __slots__ = ("calls", "errors", "latencies", "retries", "seconds")

    def __init__(self) -> None:
        self.calls = 0
        self.errors = 0
        self.retries = 0
        self.seconds = 0.0
        self.latencies = [0] * _BUCKETS


class Counters:
    """All counters of a client. They change in its thread only; :meth:`metrics` may be called in others.

    :ivar observer: None if there is none: whoever counts looks before it makes an observation.
    """

    def __init__(self, observer: Observer | None = None) -> None:
        check_observer(observer)
        self.observer = observer
        self._observer_errors = 0
        self._writers: dict[ScopedStream, WriteCounts] = {}
        self._readers: dict[ScopedStream, ReadCounts] = {}
        self._calls: dict[str, _CallCounts] = {}

    def tell(self, observation: Observation) -> None:
        """Call the observer, if there is one."""
        if self.observer is None:
            return
        try:
            self.observer(observation)
        except Exception:
            # Whatever is wrong with the observer: what it observes goes on.
            self._observer_errors += 1
            if self._observer_errors == 1:
                log.exception(
                    "the observer of a Pravega client failed at %s; further failures are only counted",
                    type(observation).__name__,
                )

    def writing(self, stream: ScopedStream) -> WriteCounts:
        """Counters for one more writer of a stream."""
        total = self._writers.get(stream)
        if total is None:
            total = self._writers[stream] = WriteCounts(self, stream)
        return WriteCounts(self, stream, total)

    def reading(self, scope: str, stream: str) -> ReadCounts:
        """The counters of a stream's readers."""
        name = ScopedStream(scope, stream)
        counts = self._readers.get(name)
        if counts is None:
            counts = self._readers[name] = ReadCounts(self, name)
        return counts

    def called(self, method: str, seconds: float, attempts: int, error: str | None) -> None:
        """A call of the controller has ended; arguments as :class:`ControllerCalled`."""
        counts = self._calls.get(method)
        if counts is None:
            counts = self._calls[method] = _CallCounts()
        counts.calls += 1
        counts.errors += error is not None
        counts.retries += attempts - 1
        counts.seconds += seconds
        counts.latencies[_bucket(seconds)] += 1
        if self.observer is not None:
            self.tell(ControllerCalled(method, seconds, attempts, error))

    def metrics(self) -> ClientMetrics:
        """A snapshot."""
        return ClientMetrics(
            writers={stream: counts.total_metrics() for stream, counts in list(self._writers.items())},
            readers={stream: counts.metrics() for stream, counts in list(self._readers.items())},
            controller={
                method: CallMetrics(
                    method,
                    counts.calls,
                    counts.errors,
                    counts.retries,
                    counts.seconds,
                    tuple(counts.latencies),
                )
                for method, counts in list(self._calls.items())
            },
            observer_errors=self._observer_errors,
        )
