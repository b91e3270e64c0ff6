"""Counting, observers that misbehave, and OpenTelemetry, without a server."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, cast, get_args

import pytest

from pravega_wire import open_client, telemetry
from pravega_wire import sync as blocking
from pravega_wire.errors import ConnectionLostError, InvalidArgumentError, MissingExtraError
from pravega_wire.metrics import (
    BlockAcknowledged,
    BlocksResent,
    BytesReceived,
    ClientClosed,
    ClientMetrics,
    ClientOpened,
    ControllerCalled,
    Counters,
    DataSkipped,
    EventsRead,
    Observation,
    Reconnecting,
    SegmentSucceeded,
)
from pravega_wire.values.config import PravegaConfig
from pravega_wire.values.types import ScopedStream
from tests.otel import Collected

STREAM = ScopedStream("scope", "stream")
OTHER = ScopedStream("scope", "other")
LOST = ConnectionLostError("lost")


def test_writers_of_a_stream_add_up_while_they_live_and_after() -> None:
    counters = Counters()
    written = {"a": (0, 0, 0), "b": (0, 0, 0)}
    one, two = counters.writing(STREAM), counters.writing(STREAM)
    one.begin(lambda: written["a"])
    two.begin(lambda: written["b"])
    one.begin(lambda: written["a"])  # with each segment
    written["a"], written["b"] = (10, 100, 30), (5, 50, 7)
    one.acknowledged(7, 70, 0.000_003)
    two.acknowledged(4, 43, 0.5)
    two.resent(2, 3, 55)
    one.succeeded(3, 54)
    one.reconnecting(LOST)

    def check(outstanding: int) -> None:
        total = counters.metrics().writers[STREAM]
        assert total.name == "scope/stream"
        assert (total.events_written, total.bytes_written) == (15, 150)
        assert (total.events_acknowledged, total.bytes_acknowledged) == (11, 113)
        assert (total.blocks_acknowledged, total.reconnects) == (2, 1)
        assert (total.blocks_resent, total.events_resent, total.bytes_resent) == (2, 3, 55)
        assert (total.segments_sealed, total.events_moved, total.bytes_moved) == (1, 3, 54)
        assert total.outstanding_bytes == outstanding
        assert total.latency_buckets[2] == 7
        assert total.latency(0.5) == 4e-6
        assert 0.5 <= total.latency(1) <= 1

    check(37)
    mine = one.metrics("mine", *written["a"])
    assert (mine.name, mine.events_written, mine.events_acknowledged, mine.blocks_resent) == (
        "mine",
        10,
        7,
        0,
    )
    one.end()
    one.end()
    check(7)
    two.end()
    written["b"] = (1000, 1000, 1000)  # what ended is not asked again
    check(0)
    assert OTHER not in counters.metrics().writers


def test_calls_and_reads_are_counted_by_method_and_by_stream() -> None:
    counters = Counters()
    counters.called("createStream", 0.25, 1, None)
    counters.called("createStream", 0.5, 3, "RetriesExhaustedError")
    reading = counters.reading("scope", "stream")
    assert counters.reading("scope", "stream") is reading
    reading.received(100)
    reading.read(3, 76)
    reading.reconnecting(LOST)
    metrics = counters.metrics()
    calls = metrics.controller["createStream"]
    assert (calls.calls, calls.errors, calls.retries, calls.seconds) == (2, 1, 2, 0.75)
    assert calls.latency(1) <= 1
    with pytest.raises(InvalidArgumentError, match="between 0 and 1"):
        calls.latency(-1)
    found = metrics.readers[STREAM]
    assert (found.name, found.reads, found.bytes_received) == ("scope/stream", 1, 100)
    assert (found.events_read, found.bytes_read, found.reconnects) == (3, 76, 1)


def test_everything_counted_is_told() -> None:
    told: list[Observation] = []
    counters = Counters(told.append)
    writing = counters.writing(STREAM)
    writing.acknowledged(1, 2, 0.5)
    writing.resent(1, 2, 3)
    writing.succeeded(4, 5)
    writing.reconnecting(LOST)
    reading = counters.reading("scope", "stream")
    reading.received(6)
    reading.read(7, 8)
    reading.reconnecting(LOST)
    reading.skipped("scope/stream/0.#epoch.0", 9, 11, 2)
    reading.skipped("scope/stream/0.#epoch.0", 11, -1, None)
    counters.called("m", 0.1, 2, "Cancelled")
    assert told == [
        BlockAcknowledged(STREAM, 1, 2, 0.5),
        BlocksResent(STREAM, 1, 2, 3),
        SegmentSucceeded(STREAM, 4, 5),
        Reconnecting(STREAM, "writer", LOST),
        BytesReceived(STREAM, 6),
        EventsRead(STREAM, 7, 8),
        Reconnecting(STREAM, "reader", LOST),
        DataSkipped(STREAM, "scope/stream/0.#epoch.0", 9, 11, 2),
        DataSkipped(STREAM, "scope/stream/0.#epoch.0", 11, -1, None),
        ControllerCalled("m", 0.1, 2, "Cancelled"),
    ]
    read = counters.metrics().readers[STREAM]
    assert (read.skips, read.bytes_skipped) == (2, 2)


def test_an_observer_that_raises_is_logged_once_counted_and_called_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls = 0

    def broken(observation: Observation) -> None:
        nonlocal calls
        calls += 1
        raise ValueError("of the observer")

    counters = Counters(broken)
    writing = counters.writing(STREAM)
    with caplog.at_level(logging.DEBUG):
        for _ in range(3):
            writing.acknowledged(1, 1, 0.1)
    assert calls == 3
    assert counters.metrics().observer_errors == 3
    assert counters.metrics().writers[STREAM].events_acknowledged == 3
    [record] = caplog.records
    assert (record.name, record.levelname) == ("pravega_wire.metrics", "ERROR")
    assert "BlockAcknowledged" in record.message
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ValueError)


def test_ctrl_c_in_an_observer_is_ctrl_c() -> None:
    def interrupted(observation: Observation) -> None:
        raise KeyboardInterrupt

    counters = Counters(interrupted)
    with pytest.raises(KeyboardInterrupt):
        counters.called("m", 0.1, 1, None)
    assert counters.metrics().observer_errors == 0


async def _awaited(observation: Observation) -> None: ...


class _Awaited:
    async def __call__(self, observation: Observation) -> None: ...


@pytest.mark.parametrize("wrong", [_awaited, _Awaited(), "text"])
def test_what_cannot_be_an_observer_is_refused(wrong: object) -> None:
    config = PravegaConfig.from_defaults(env={})
    with (
        pytest.raises(InvalidArgumentError, match="the observer must be"),
        blocking.open_client(config, observer=wrong),  # type: ignore[arg-type]
    ):
        pass


async def test_a_client_tells_of_its_beginning_and_its_end() -> None:

    told: list[Observation] = []

    with pytest.raises(RuntimeError, match="of the body"):
        async with open_client(PravegaConfig.from_defaults(env={}), observer=told.append) as client:
            assert client.metrics() == ClientMetrics({}, {}, {}, 0)
            raise RuntimeError("of the body")
    opened, closed = told
    assert isinstance(opened, ClientOpened)
    assert isinstance(closed, ClientClosed)
    assert opened.metrics == closed.metrics
    assert closed.metrics() == ClientMetrics({}, {}, {}, 0)


# --- OpenTelemetry ------------------------------------------------------------------------------


@pytest.fixture
def collected() -> Iterator[Collected]:
    found = Collected()
    yield found
    found.close()


def test_instruments_have_units_and_attributes_of_few_values(collected: Collected) -> None:
    counters = Counters(telemetry.instrument(collected.meter))
    counters.tell(ClientOpened(counters.metrics))
    writing = counters.writing(STREAM)
    writing.begin(lambda: (10, 100, 33))
    for _ in range(2):
        writing.acknowledged(5, 50, 0.002)
    counters.writing(OTHER).acknowledged(0, 1000, 2.0)  # of a byte stream
    writing.resent(2, 9, 90)
    writing.succeeded(4, 40)
    writing.reconnecting(LOST)
    reading = counters.reading("scope", "stream")
    reading.received(500)
    reading.read(6, 452)
    reading.reconnecting(LOST)
    counters.called("createStream", 0.25, 1, None)
    counters.called("createStream", 0.5, 3, "RetriesExhaustedError")
    assert counters.metrics().observer_errors == 0

    stream = {"scope": "scope", "stream": "stream"}
    assert collected.value("pravega.client.events.written", **stream) == 10
    assert collected.value("pravega.client.bytes.written", **stream) == 100
    assert collected.points("pravega.client.events.written", stream="other") == []
    assert collected.value("pravega.client.bytes.written", stream="other") == 1000
    [blocks] = collected.points("pravega.client.write.duration", **stream)
    assert (blocks.count, blocks.sum) == (2, 0.004)
    # By the default bounds, which are meant for milliseconds, everything would be in one bucket.
    assert blocks.bucket_counts[blocks.explicit_bounds.index(0.0025)] == 2
    assert collected.value("pravega.client.blocks.resent", **stream) == 2
    assert collected.value("pravega.client.events.resent", **stream) == 9
    assert collected.value("pravega.client.bytes.resent", **stream) == 90
    assert collected.value("pravega.client.segments.sealed", **stream) == 1
    assert collected.value("pravega.client.events.moved", **stream) == 4
    for role in ("writer", "reader"):
        assert collected.value("pravega.client.reconnects", role=role, error="ConnectionLostError") == 1
    assert collected.value("pravega.client.reads", **stream) == 1
    assert collected.value("pravega.client.bytes.received", **stream) == 500
    assert collected.value("pravega.client.events.read", **stream) == 6
    assert collected.value("pravega.client.bytes.read", **stream) == 452
    [failed] = collected.points("pravega.client.controller.call.duration", error="RetriesExhaustedError")
    assert (failed.count, failed.sum) == (1, 0.5)
    assert sum(p.count for p in collected.points("pravega.client.controller.call.duration")) == 2
    assert collected.value("pravega.client.controller.retries", method="createStream") == 2
    assert collected.value("pravega.client.outstanding", **stream) == 33
    assert collected.units() == {
        "pravega.client.events.written": "{event}",
        "pravega.client.bytes.written": "By",
        "pravega.client.write.duration": "s",
        "pravega.client.blocks.resent": "{block}",
        "pravega.client.events.resent": "{event}",
        "pravega.client.bytes.resent": "By",
        "pravega.client.segments.sealed": "{segment}",
        "pravega.client.events.moved": "{event}",
        "pravega.client.reconnects": "{reconnect}",
        "pravega.client.reads": "{read}",
        "pravega.client.bytes.received": "By",
        "pravega.client.events.read": "{event}",
        "pravega.client.bytes.read": "By",
        "pravega.client.controller.call.duration": "s",
        "pravega.client.controller.retries": "{retry}",
        "pravega.client.outstanding": "By",
    }
    keys = {key for points in collected().values() for point in points for key, _ in point}
    assert keys == {
        "pravega.scope", "pravega.stream", "pravega.client.role", "error.type", "rpc.system", "rpc.method",
    }  # fmt: skip


def test_each_kind_of_observation_is_recorded(collected: Collected) -> None:
    observer = cast(Any, telemetry.instrument(collected.meter))
    assert observer._records.keys() == set(get_args(Observation))


def test_outstanding_bytes_of_several_clients_add_up_until_they_are_closed(collected: Collected) -> None:
    observer = telemetry.instrument(collected.meter)
    first, second = Counters(observer), Counters(observer)
    for counters in (first, second):
        counters.tell(ClientOpened(counters.metrics))
    first.writing(STREAM).begin(lambda: (1, 1, 10))
    second.writing(STREAM).begin(lambda: (1, 1, 5))
    assert collected.value("pravega.client.outstanding", stream="stream") == 15
    first.tell(ClientClosed(first.metrics))
    assert collected.value("pravega.client.outstanding", stream="stream") == 5
    second.tell(ClientClosed(second.metrics))
    assert collected.points("pravega.client.outstanding") == []


def test_the_global_meter_is_the_default() -> None:
    # Nobody has set up an SDK here: recording must be harmless.
    counters = Counters(telemetry.instrument())
    counters.writing(STREAM).acknowledged(1, 1, 0.1)
    assert counters.metrics().observer_errors == 0


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(MissingExtraError, match=r"pravega-wire\[telemetry\]") as caught:
        telemetry.instrument()
    assert isinstance(caught.value, ImportError)


def test_opentelemetry_is_not_imported_before_it_is_used() -> None:
    program = (
        "import sys, pravega_wire, pravega_wire.sync, pravega_wire.telemetry\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
        "pravega_wire.telemetry.instrument()\n"
        "assert 'opentelemetry.metrics' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
