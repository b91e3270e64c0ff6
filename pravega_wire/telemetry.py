"""Records a client's metrics with OpenTelemetry.

Example::

    from pravega_wire import open_client
    from pravega_wire.telemetry import instrument

    async with open_client(config, observer=instrument()) as client:
        ...

It needs the extra ``telemetry`` (the package ``opentelemetry-api``). The OpenTelemetry SDK that the program
sets up exports the metrics. ``docs/observability.md`` lists the instruments and their attributes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from pravega_wire.errors import MissingExtraError
from pravega_wire.metrics import (
    BlockAcknowledged,
    BlocksResent,
    BytesReceived,
    ClientClosed,
    ClientMetrics,
    ClientOpened,
    ControllerCalled,
    DataSkipped,
    EventsRead,
    Observation,
    Observer,
    Reconnecting,
    SegmentSucceeded,
)
from pravega_wire.values.types import ScopedStream

if TYPE_CHECKING:
    from opentelemetry import metrics as otel

__all__ = ["instrument"]

_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the histograms' buckets, unless the SDK is configured with others."""


def instrument(meter: otel.Meter | None = None) -> Observer:
    """Return an observer that records all observations with a meter.

    Pass it to ``open_client(config, observer=...)``.

    Several clients may share one observer; their numbers are then added up.

    :param meter: the meter to use; default: the global provider's meter named ``pravega_wire``.
    :raises MissingExtraError: ``opentelemetry-api`` is not installed.
    """
    try:
        from opentelemetry import metrics as api
    except ImportError as error:
        raise MissingExtraError(
            "instrument() needs the package opentelemetry-api: pip install 'pravega-wire[telemetry]'"
        ) from error
    return _Recorder(api.get_meter("pravega_wire") if meter is None else meter, api.Observation)


class _Recorder:
    """The observer.

    :param meter: the meter to use.
    :param observed: creates the observations that callbacks of observable instruments return.
    """

    def __init__(self, meter: otel.Meter, observed: Callable[[int, Any], otel.Observation]) -> None:
        self._observed = observed
        # Set in the clients' threads and read in the exporter's: it is replaced, never modified.
        self._clients: tuple[Callable[[], ClientMetrics], ...] = ()
        self._attributes: dict[ScopedStream, dict[str, str]] = {}
        counter = meter.create_counter
        self._events_written = counter(
            "pravega.client.events.written", "{event}", "Events that segment stores have acknowledged."
        )
        self._bytes_written = counter(
            "pravega.client.bytes.written", "By", "Payload bytes that segment stores have acknowledged."
        )
        self._write_seconds = meter.create_histogram(
            "pravega.client.write.duration",
            "s",
            "Time from first sending a block of events to its acknowledgement.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._blocks_resent = counter(
            "pravega.client.blocks.resent", "{block}", "Blocks sent again after a lost connection."
        )
        self._events_resent = counter("pravega.client.events.resent", "{event}", "Events in those blocks.")
        self._bytes_resent = counter(
            "pravega.client.bytes.resent", "By", "Bytes in those blocks, with event headers."
        )
        self._segments_sealed = counter(
            "pravega.client.segments.sealed",
            "{segment}",
            "Sealed segments whose successors a writer continued with.",
        )
        self._events_moved = counter(
            "pravega.client.events.moved", "{event}", "Events sent to the successors of their sealed segment."
        )
        self._reconnects = counter(
            "pravega.client.reconnects", "{reconnect}", "Restarted sessions with segment stores."
        )
        self._reads = counter(
            "pravega.client.reads", "{read}", "Replies of segment stores to reads, if they had data."
        )
        self._bytes_received = counter(
            "pravega.client.bytes.received", "By", "Bytes in these replies, including event headers."
        )
        self._events_read = counter("pravega.client.events.read", "{event}", "Events found in these bytes.")
        self._bytes_read = counter("pravega.client.bytes.read", "By", "Payload bytes of those events.")
        self._skips = counter(
            "pravega.client.skips",
            "{skip}",
            "Times that data was skipped because it was truncated before it was read.",
        )
        self._bytes_skipped = counter(
            "pravega.client.bytes.skipped",
            "By",
            "Skipped bytes, including event headers, if their number is known.",
        )
        self._call_seconds = meter.create_histogram(
            "pravega.client.controller.call.duration",
            "s",
            "Duration of calls to the controller, including all attempts.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._call_retries = counter(
            "pravega.client.controller.retries", "{retry}", "Attempts of these calls after the first."
        )
        meter.create_observable_up_down_counter(
            "pravega.client.outstanding",
            [self._outstanding],
            "By",
            "Bytes that writers have accepted and segment stores have not acknowledged yet.",
        )

        self._records: dict[type[Observation], Callable[[Any], None]] = {
            BlockAcknowledged: self._acknowledged,
            BytesReceived: self._received,
            EventsRead: self._read,
            ControllerCalled: self._called,
            BlocksResent: self._resent,
            SegmentSucceeded: self._succeeded,
            DataSkipped: self._skipped,
            Reconnecting: self._reconnecting,
            ClientOpened: self._opened,
            ClientClosed: self._closed,
        }

    def __call__(self, observation: Observation) -> None:
        self._records[type(observation)](observation)

    def _acknowledged(self, seen: BlockAcknowledged) -> None:
        of = self._of(seen.stream)
        if seen.events:
            self._events_written.add(seen.events, of)
        self._bytes_written.add(seen.bytes, of)
        self._write_seconds.record(seen.seconds, of)

    def _received(self, seen: BytesReceived) -> None:
        of = self._of(seen.stream)
        self._reads.add(1, of)
        self._bytes_received.add(seen.bytes, of)

    def _read(self, seen: EventsRead) -> None:
        of = self._of(seen.stream)
        if seen.events:
            self._events_read.add(seen.events, of)
        self._bytes_read.add(seen.bytes, of)

    def _called(self, seen: ControllerCalled) -> None:
        call = {"rpc.system": "grpc", "rpc.method": seen.method}
        if seen.attempts > 1:
            self._call_retries.add(seen.attempts - 1, call)
        if seen.error is not None:
            call = {**call, "error.type": seen.error}
        self._call_seconds.record(seen.seconds, call)

    def _resent(self, seen: BlocksResent) -> None:
        of = self._of(seen.stream)
        self._blocks_resent.add(seen.blocks, of)
        self._events_resent.add(seen.events, of)
        self._bytes_resent.add(seen.bytes, of)

    def _succeeded(self, seen: SegmentSucceeded) -> None:
        of = self._of(seen.stream)
        self._segments_sealed.add(1, of)
        self._events_moved.add(seen.events, of)

    def _skipped(self, seen: DataSkipped) -> None:
        of = self._of(seen.stream)
        self._skips.add(1, of)
        if seen.bytes is not None:
            self._bytes_skipped.add(seen.bytes, of)

    def _reconnecting(self, seen: Reconnecting) -> None:
        why = {"pravega.client.role": seen.role, "error.type": type(seen.error).__name__}
        self._reconnects.add(1, {**self._of(seen.stream), **why})

    def _opened(self, seen: ClientOpened) -> None:
        self._clients = (*self._clients, seen.metrics)

    def _closed(self, seen: ClientClosed) -> None:
        self._clients = tuple(each for each in self._clients if each != seen.metrics)

    def _of(self, stream: ScopedStream) -> dict[str, str]:
        """Return the attributes of a stream, without segments and writers, whose cardinality is unbounded."""
        found = self._attributes.get(stream)
        if found is None:
            found = self._attributes[stream] = {
                "pravega.scope": stream.scope,
                "pravega.stream": stream.name,
            }
        return found

    def _outstanding(self, options: otel.CallbackOptions) -> Iterable[otel.Observation]:
        total: Counter[ScopedStream] = Counter()
        for metrics in self._clients:
            for stream, written in metrics().writers.items():
                total[stream] += written.outstanding_bytes
        return [self._observed(size, self._of(stream)) for stream, size in total.items()]
