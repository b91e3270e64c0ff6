"""Metrics of a client, and observers that receive them as they occur.

:meth:`PravegaClient.metrics` returns a :class:`ClientMetrics` at any time. An *observer*, passed to
``open_client(config, observer=...)``, is any function of one argument. It is called with an
:data:`Observation` for each block, reply and call, but never for each event. :mod:`pravega_wire.telemetry`
provides one for OpenTelemetry.

Example::

    from pravega_wire.metrics import Observation, Reconnecting

    def observe(observation: Observation) -> None:
        if isinstance(observation, Reconnecting):
            print(f"{observation.stream}: reconnecting after {observation.error}")

    async with open_client(config, observer=observe) as client:
        ...

An observer is called in the client's thread, in the middle of the client's work. It must return quickly, must
not wait, and must not use the client, except for the snapshot function in :class:`ClientOpened`. Its errors
are logged (the first with a traceback), counted in :attr:`ClientMetrics.observer_errors` and otherwise
ignored; it is called again next time.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from pravega_wire.errors import InvalidArgumentError, PravegaError
from pravega_wire.values.types import ScopedStream

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
        raise InvalidArgumentError(f"quantile must be between 0 and 1, not {quantile}")
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
    """The metrics of one writer, or of all writers of a stream.

    Events of a transaction or of a staging writer count when they are stored there, regardless of how it
    ends. A byte-stream writer has no events: it counts bytes, and its latency counts blocks instead of
    events.

    :ivar name: name of the stream.
    :ivar events_written: number of events accepted for writing.
    :ivar bytes_written: number of payload bytes accepted for writing.
    :ivar events_acknowledged: number of events confirmed to be stored.
    :ivar bytes_acknowledged: number of payload bytes confirmed to be stored.
    :ivar outstanding_bytes: number of bytes accepted and not yet acknowledged, including event headers.
    :ivar reconnects: number of sessions with a segment store that had to be restarted.
    :ivar latency_buckets: bucket ``i`` counts the events that were acknowledged less than ``2**i``
        microseconds, and not less than half of that, after they were sent.
    :ivar blocks_acknowledged: number of blocks (units of sending) confirmed to be stored.
    :ivar blocks_resent: number of blocks sent again after a lost connection, because they were not confirmed.
    :ivar events_resent: number of events in these blocks.
    :ivar bytes_resent: number of bytes in these blocks, including event headers.
    :ivar segments_sealed: number of sealed segments whose successors a writer continued with.
    :ivar events_moved: number of events that were not stored when their segment was sealed, and were sent to
        its successors.
    :ivar bytes_moved: number of bytes of these events, including event headers.
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
        """Return the number of seconds within which a fraction of the events was acknowledged, up to a factor
        of 2.

        :param quantile: the fraction, from 0 to 1.
        :raises InvalidArgumentError: it is not between 0 and 1.
        """
        return _quantile(self.latency_buckets, quantile)


@dataclass(frozen=True, slots=True)
class ReaderMetrics:
    """The metrics of all readers of a stream: of ranges, reader groups, byte streams and shared states.

    :ivar name: name of the stream.
    :ivar events_read: number of events received. A reader of a group reads ahead, so it may have received
        more events than it has returned.
    :ivar bytes_read: number of payload bytes of these events; for a byte stream, the bytes returned.
    :ivar reads: number of replies of segment stores with data.
    :ivar bytes_received: number of bytes in these replies, including event headers.
    :ivar reconnects: number of times that reading was restarted on a connection after a failure.
    :ivar skips: number of times that truncated data was skipped (``on_truncated="skip_to_head"``).
    :ivar bytes_skipped: number of bytes skipped, including event headers. Bytes of segments that were deleted
        before they were read to their ends are not included, because their number is unknown.
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
    """The metrics of calls to one method of the controller.

    :ivar name: name of the method in the controller's interface ("createScope").
    :ivar calls: number of completed calls.
    :ivar errors: number of calls that ended without a reply: rejected, out of attempts, cancelled. A negative
        reply (the stream does not exist) is a reply, not an error.
    :ivar retries: number of attempts after the first.
    :ivar seconds: total duration of all calls, including pauses between attempts.
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
        """Return the number of seconds that a fraction of the calls took at most, up to a factor of 2.

        :param quantile: the fraction, from 0 to 1.
        :raises InvalidArgumentError: it is not between 0 and 1.
        """
        return _quantile(self.latency_buckets, quantile)


@dataclass(frozen=True, slots=True)
class ClientMetrics:
    """The metrics of a client.

    Example::

        written = client.metrics().writers[client.config.resolve("readings")]
        print(written.events_acknowledged, written.latency(0.99))

    :ivar writers: for each stream, the metrics of all its writers, including closed ones.
    :ivar readers: for each stream, the metrics of all its readers. Internal streams that the client reads
        (states of reader groups) are included.
    :ivar controller: for each controller method, the metrics of its calls.
    :ivar observer_errors: number of calls of the observer that raised an error.
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

    :ivar metrics: returns the client's current metrics; it may be called later and from any thread.
    """

    metrics: Callable[[], ClientMetrics]


@dataclass(frozen=True, slots=True)
class ClientClosed:
    """The last observation of a client.

    :ivar metrics: the same function as in its :class:`ClientOpened`.
    """

    metrics: Callable[[], ClientMetrics]


@dataclass(frozen=True, slots=True)
class BlockAcknowledged:
    """A block, or a large event, was stored.

    :ivar stream: the stream.
    :ivar events: number of events in the block; 0 for a byte stream.
    :ivar bytes: number of their payload bytes.
    :ivar seconds: time since the block was first sent.
    """

    stream: ScopedStream
    events: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class BlocksResent:
    """Blocks that were not confirmed to be stored were sent again after a lost connection.

    :ivar stream: the stream.
    :ivar blocks: number of blocks.
    :ivar events: number of events in them.
    :ivar bytes: number of bytes in them, including event headers.
    """

    stream: ScopedStream
    blocks: int
    events: int
    bytes: int


@dataclass(frozen=True, slots=True)
class SegmentSucceeded:
    """A segment was sealed, and the writer continues with its successors.

    :ivar stream: the stream.
    :ivar events: number of events that were not stored by then and are sent to the successors; usually 0.
    :ivar bytes: number of bytes of these events, including event headers.
    """

    stream: ScopedStream
    events: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Reconnecting:
    """A session with a segment store failed, and is restarted.

    :ivar stream: the stream.
    :ivar role: ``"writer"`` or ``"reader"``.
    :ivar error: the error.
    """

    stream: ScopedStream
    role: Role
    error: PravegaError


@dataclass(frozen=True, slots=True)
class BytesReceived:
    """A segment store replied to a read with data.

    :ivar stream: the stream.
    :ivar bytes: number of bytes, including event headers.
    """

    stream: ScopedStream
    bytes: int


@dataclass(frozen=True, slots=True)
class EventsRead:
    """Events were found in received data; for a byte stream, bytes were returned.

    :ivar stream: the stream.
    :ivar events: number of events; 0 for a byte stream.
    :ivar bytes: number of payload bytes.
    """

    stream: ScopedStream
    events: int
    bytes: int


@dataclass(frozen=True, slots=True)
class DataSkipped:
    """Data was skipped because it was truncated before it was read (``on_truncated="skip_to_head"``).

    :ivar stream: the stream.
    :ivar segment: full name of the segment.
    :ivar offset: offset of the first skipped byte.
    :ivar new_offset: offset at which reading continues, or at which the requested range ends; -1 if the
        segment was deleted, and reading continues in other segments.
    :ivar bytes: number of skipped bytes, including event headers; None if the segment was deleted and its
        length is unknown.
    """

    stream: ScopedStream
    segment: str
    offset: int
    new_offset: int
    bytes: int | None


@dataclass(frozen=True, slots=True)
class ControllerCalled:
    """A call to the controller has ended.

    :ivar method: name of the method.
    :ivar seconds: duration, including all attempts and the pauses between them.
    :ivar attempts: number of attempts, at least 1.
    :ivar error: name of the error if there was no reply ("RetriesExhaustedError", "Cancelled"); otherwise
        None.
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
"""The argument of an observer; later versions may add further classes."""

Observer = Callable[[Observation], object]
"""A function that receives observations; its result is ignored."""


def check_observer(observer: Observer | None) -> None:
    """Check that an observer is a plain function.

    :raises InvalidArgumentError: it cannot be called, or would have to be awaited.
    """
    if observer is None:
        return
    if not callable(observer):
        raise InvalidArgumentError(f"the observer must be a function, not {type(observer).__name__}")
    if inspect.iscoroutinefunction(observer) or inspect.iscoroutinefunction(
        getattr(observer, "__call__", None)  # noqa: B004
    ):
        raise InvalidArgumentError("the observer must be a plain function: an async function is not awaited")


# --- counting -----------------------------------------------------------------------------------


class WriteCounts:
    """The counters of one writer, which also adds to the counters of its stream.

    :param counters: the client's counters.
    :param stream: the stream.
    :param total: the stream's counters; None for the stream's own.
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
        # Counts of ended writers; those of active ones are read on demand, because they change with each
        # event.
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
        """Record the start of a writer.

        :param source: returns the numbers of events written, bytes written and bytes outstanding.
        """
        assert self._total is not None
        self._source = source
        self._total.live[self] = None

    def end(self) -> None:
        """Record the end of a writer; calling it again has no effect."""
        total = self._total
        assert total is not None
        if self in total.live:
            del total.live[self]
            assert self._source is not None
            events, size, _ = self._source()
            total.events_written += events
            total.bytes_written += size

    def acknowledged(self, events: int, size: int, seconds: float) -> None:
        """Record a stored block; arguments as for :class:`BlockAcknowledged`."""
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
        """Record resent blocks; arguments as for :class:`BlocksResent`."""
        for counts in (self, self._total):
            assert counts is not None
            counts.blocks_resent += blocks
            counts.events_resent += events
            counts.bytes_resent += size
        if self._counters.observer is not None:
            self._counters.tell(BlocksResent(self.stream, blocks, events, size))

    def succeeded(self, events: int, size: int) -> None:
        """Record a segment with successors; arguments as for :class:`SegmentSucceeded`."""
        for counts in (self, self._total):
            assert counts is not None
            counts.segments_sealed += 1
            counts.events_moved += events
            counts.bytes_moved += size
        if self._counters.observer is not None:
            self._counters.tell(SegmentSucceeded(self.stream, events, size))

    def reconnecting(self, error: PravegaError) -> None:
        """Record the restart of a session."""
        for counts in (self, self._total):
            assert counts is not None
            counts.reconnects += 1
        if self._counters.observer is not None:
            self._counters.tell(Reconnecting(self.stream, "writer", error))

    def metrics(
        self, name: str, written: int | None = None, size: int | None = None, outstanding: int = 0
    ) -> WriterMetrics:
        """Return a snapshot.

        :param name: name of the stream.
        :param written: number of events written, if the caller counts them itself.
        :param size: number of bytes written, if the caller counts them itself.
        :param outstanding: number of outstanding bytes.
        """
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
        """Return a snapshot of a stream's counters, including those of its active writers."""
        events, size, outstanding = self.events_written, self.bytes_written, 0
        # Creating a list is atomic, even if the client's thread changes the dictionary at the same time.
        for counts in list(self.live):
            assert counts._source is not None
            found = counts._source()
            events += found[0]
            size += found[1]
            outstanding += found[2]
        return self.metrics(str(self.stream), events, size, outstanding)


class ReadCounts:
    """The counters of all readers of a stream."""

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
        """Record a reply with ``size`` bytes."""
        self.reads += 1
        self.bytes_received += size
        if self._counters.observer is not None:
            self._counters.tell(BytesReceived(self.stream, size))

    def read(self, events: int, size: int) -> None:
        """Record events, or bytes of a byte stream; see :class:`EventsRead`."""
        self.events_read += events
        self.bytes_read += size
        if self._counters.observer is not None:
            self._counters.tell(EventsRead(self.stream, events, size))

    def reconnecting(self, error: PravegaError) -> None:
        """Record the restart of reading."""
        self.reconnects += 1
        if self._counters.observer is not None:
            self._counters.tell(Reconnecting(self.stream, "reader", error))

    def skipped(self, segment: str, offset: int, new_offset: int, size: int | None) -> None:
        """Record skipped data; arguments as for :class:`DataSkipped`."""
        self.skips += 1
        self.bytes_skipped += size or 0
        if self._counters.observer is not None:
            self._counters.tell(DataSkipped(self.stream, segment, offset, new_offset, size))

    def metrics(self) -> ReaderMetrics:
        """Return a snapshot."""
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
    """All counters of a client.

    They are changed only in its thread; :meth:`metrics` may be called in any thread.

    :ivar observer: the observer, or None; callers check it before they create an observation.
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
            # An error in the observer must not stop the operation that it observes.
            self._observer_errors += 1
            if self._observer_errors == 1:
                log.exception(
                    "the observer of a Pravega client failed at %s; further failures are only counted",
                    type(observation).__name__,
                )

    def writing(self, stream: ScopedStream) -> WriteCounts:
        """Return the counters for a new writer of a stream."""
        total = self._writers.get(stream)
        if total is None:
            total = self._writers[stream] = WriteCounts(self, stream)
        return WriteCounts(self, stream, total)

    def reading(self, scope: str, stream: str) -> ReadCounts:
        """Return the counters of a stream's readers."""
        name = ScopedStream(scope, stream)
        counts = self._readers.get(name)
        if counts is None:
            counts = self._readers[name] = ReadCounts(self, name)
        return counts

    def called(self, method: str, seconds: float, attempts: int, error: str | None) -> None:
        """Record a call to the controller; arguments as for :class:`ControllerCalled`."""
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
        """Return a snapshot."""
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
