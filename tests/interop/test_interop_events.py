"""Events written by one client and read by the other: content, order per key, segment, offset."""

from __future__ import annotations

import hashlib
import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from pravega_wire import ReaderGroupConfig
from pravega_wire.protocol.append import MAX_EVENT_BYTES
from pravega_wire.sync import PravegaClient
from pravega_wire.testing import PravegaServer
from pravega_wire.values.hashing import routing_key_position
from tests.interop.java_peer import JavaEvent, JavaPeer, JavaPeerError, start_java_peer

EVENTS = 10_000
# A combining accent, characters of two and four bytes, the length of a whole hash block.
KEYS = [
    "", "a", "é", "e\u0301", "\u4f60\u597d", "\U0001f600\U0001f680", "0123456789abcdef", "x" * 1000,
    *(f"sensor-{number}" for number in range(92)),
]  # fmt: skip


def keyed_events(count: int, start: int = 0) -> list[tuple[str, bytes]]:
    """Events number ``start`` to ``start + count``, each naming its key and its number."""
    events = []
    for number in range(start, start + count):
        index = number * 7 % len(KEYS)
        # Lengths vary, so that events and blocks end anywhere.
        payload = f"{index}:{number}:".encode() + b"." * (number * 13 % 257)
        events.append((KEYS[index], payload))
    return events


def parse(payload: bytes) -> tuple[str, int]:
    """Key and number that a payload names."""
    index, number, _ = payload.split(b":")
    return KEYS[int(index)], int(number)


def check_complete(payloads: Iterable[bytes], expected: Sequence[tuple[str, bytes]]) -> None:
    """Every event once, and for each key in the order in which it was written."""
    read = defaultdict(list)
    for payload in payloads:
        read[parse(payload)[0]].append(payload)
    written = defaultdict(list)
    for key, payload in expected:
        written[key].append(payload)
    # Key by key and first by their numbers: what is missing or out of order can be read.
    assert read.keys() == written.keys()
    for key, whole in written.items():
        assert [parse(each)[1] for each in read[key]] == [parse(each)[1] for each in whole], key
        assert read[key] == whole


def check_segments(events: Iterable[JavaEvent], chosen: dict[str, int]) -> None:
    """Each event lies in the segment chosen for its key."""
    wrong = [
        (parse(event.payload), event.segment_id)
        for event in events
        if event.segment_id != chosen[parse(event.payload)[0]]
    ]
    assert wrong == []


def read_in_python(client: PravegaClient, stream: str) -> list[JavaEvent]:
    """All events of a stream in our client's order, in the form of Java's."""
    found = []
    for segment_range in client.segment_ranges(stream):
        for batch in client.read_range(segment_range):
            found += [
                JavaEvent(segment_range.segment_id, offset, payload)
                for offset, payload in zip(batch.offsets(), batch, strict=True)
            ]
    return found


def write_in_python(client: PravegaClient, stream: str, events: Sequence[tuple[str, bytes]]) -> None:
    """Some one by one, the rest many in a call."""
    with client.event_writer(stream) as writer:
        for key, payload in events[:500]:
            writer.write_event(payload, key)
        rest = events[500:]
        writer.write_events([payload for _, payload in rest], routing_keys=[key for key, _ in rest])


@pytest.mark.smoke
@pytest.mark.parametrize("segments", [1, 3, 4])
def test_python_writes_java_reads(
    client: PravegaClient, pravega_scope: str, java_peer: JavaPeer, segments: int
) -> None:
    client.create_stream("s", segments)
    expected = keyed_events(EVENTS)

    write_in_python(client, "s", expected)

    events = java_peer.read_batch(pravega_scope, "s")
    check_complete((event.payload for event in events), expected)
    check_segments(events, java_peer.segments_for(pravega_scope, "s", KEYS))
    assert len({event.segment_id for event in events}) == segments


@pytest.mark.smoke
@pytest.mark.parametrize("segments", [1, 3, 4])
def test_java_writes_python_reads(
    client: PravegaClient, pravega_scope: str, java_peer: JavaPeer, segments: int
) -> None:
    client.create_stream("s", segments)
    expected = keyed_events(EVENTS)

    java_peer.write(pravega_scope, "s", expected)

    events = read_in_python(client, "s")
    check_complete((event.payload for event in events), expected)
    ours = {}
    for key in KEYS:
        position = routing_key_position(key)
        [ours[key]] = [
            segment.segment_id
            for segment in client.active_segments("s")
            if segment.low < position <= segment.high
        ]
    check_segments(events, ours)
    assert sorted(events, key=lambda event: (event.segment_id, event.offset)) == sorted(
        java_peer.read_batch(pravega_scope, "s"),
        key=lambda event: (event.segment_id, event.offset),
    )


def scale(client: PravegaClient, stream: str) -> None:
    """Of four equal segments: split the first, merge the next two, leave the last."""
    ids = sorted(segment.segment_id for segment in client.active_segments(stream))
    client.scale_stream(stream, ids[:3], [(0.0, 0.1), (0.1, 0.25), (0.25, 0.75)])


def test_java_follows_a_python_writer_over_a_scale(
    client: PravegaClient, pravega_scope: str, java_peer: JavaPeer
) -> None:
    client.create_stream("s", 4)
    expected = keyed_events(EVENTS)
    half = EVENTS // 2
    with client.event_writer("s") as writer:
        for part in (expected[:half], expected[half:]):
            writer.write_events([payload for _, payload in part], routing_keys=[key for key, _ in part])
            writer.flush()
            if part[0] is expected[0]:
                before = java_peer.segments_for(pravega_scope, "s", KEYS)
                scale(client, "s")

    after = java_peer.segments_for(pravega_scope, "s", KEYS)
    assert before != after
    events = java_peer.read_batch(pravega_scope, "s")
    check_segments((event for event in events if parse(event.payload)[1] < half), before)
    check_segments((event for event in events if parse(event.payload)[1] >= half), after)
    events.sort(key=lambda event: (event.segment_id, event.offset))
    check_complete((event.payload for event in events), expected)
    # A reader group sees the successors only after their predecessors: its own order is the order.
    group = java_peer.read_group(pravega_scope, "s", EVENTS)
    check_complete((event.payload for event in group), expected)


def test_python_follows_a_java_writer_over_a_scale(
    client: PravegaClient, pravega_scope: str, java_peer: JavaPeer
) -> None:
    client.create_stream("s", 4)
    expected = keyed_events(EVENTS)
    half = EVENTS // 2

    java_peer.write(pravega_scope, "s", expected[:half])
    scale(client, "s")
    java_peer.write(pravega_scope, "s", expected[half:])

    events = read_in_python(client, "s")
    assert len({event.segment_id for event in events}) == 7
    check_complete((event.payload for event in events), expected)


def test_both_write_one_stream(client: PravegaClient, pravega_scope: str, java_peer: JavaPeer) -> None:
    client.create_stream("s", 4)
    expected = keyed_events(4000)
    for start in range(0, 4000, 1000):
        part = expected[start : start + 1000]
        if start % 2000:
            java_peer.write(pravega_scope, "s", part)
        else:
            write_in_python(client, "s", part)

    events = read_in_python(client, "s")
    check_complete((event.payload for event in events), expected)
    assert events == sorted(
        java_peer.read_batch(pravega_scope, "s"),
        key=lambda event: (event.segment_id, event.offset),
    )


def test_events_without_a_key_reach_every_segment(
    client: PravegaClient, pravega_scope: str, java_peer: JavaPeer
) -> None:
    client.create_stream("s", 4)
    payloads = [b"%d" % number for number in range(2000)]
    with client.event_writer("s") as writer:
        writer.write_events(payloads[:1000])
        for payload in payloads[1000:1010]:
            writer.write_event(payload)
    java_peer.write(pravega_scope, "s", [(None, payload) for payload in payloads[1010:]])

    events = java_peer.read_batch(pravega_scope, "s")
    assert sorted(event.payload for event in events) == sorted(payloads)
    assert sorted(event.payload for event in read_in_python(client, "s")) == sorted(payloads)
    by_python = {event.segment_id for event in events if int(event.payload) < 1000}
    assert by_python == {0, 1, 2, 3}


@pytest.mark.parametrize("size", [1, 1 << 20, 8 << 20])
def test_sizes_up_to_the_limit(
    client: PravegaClient, pravega_scope: str, java_peer: JavaPeer, size: int
) -> None:
    client.create_stream("s", 1)
    ours = b"p" * (size - 1) + b"!"
    theirs = b"j" * (size - 1) + b"!"
    with client.event_writer("s") as writer:
        writer.write_event(ours, "k")
    java_peer.write(pravega_scope, "s", [("k", theirs)])

    expected = [JavaEvent(0, 0, ours), JavaEvent(0, 8 + size, theirs)]
    assert java_peer.read_batch(pravega_scope, "s") == expected
    assert read_in_python(client, "s") == expected


@pytest.mark.needs("0.11", "large events")
def test_java_reads_events_over_the_limit(
    client: PravegaClient, pravega_scope: str, java_peer: JavaPeer
) -> None:
    large = bytes(range(256)) * 50_000
    client.create_stream("large", 1)
    with client.event_writer("large", large_events=True) as writer:
        for event in (b"before", large, b"after"):
            writer.write_event(event, "key")
    read = java_peer.read_batch(pravega_scope, "large")
    assert [each.payload for each in read] == [b"before", large, b"after"]


LARGE_SIZES = [10, 9_000_000, 100, MAX_EVENT_BYTES + 1, MAX_EVENT_BYTES, 1, 20_000_000, 9_000_000, 5000, 0]
"""Bytes of events, those over the limit among those that are not."""

JAVA_ATTEMPTS = 6


def digest(payload: bytes) -> tuple[int, str]:
    """What an event over the limit is compared by: its length, and its SHA-256."""
    return len(payload), hashlib.sha256(payload).hexdigest()


def write_large(
    client: PravegaClient, server: PravegaServer, scope: str, segments: int, directory: Path
) -> tuple[str, list[str]]:
    """Write large events with the Java client; return the name of the stream, and the events' digests.

    On a busy machine the Java client sometimes waits for ever for the acknowledgement of a block
    (``LargeEventWriter.write``). Then another process writes another stream.
    """
    events = [("key", size) for size in LARGE_SIZES]
    for attempt in range(JAVA_ATTEMPTS):
        stream = f"large-{attempt}"
        client.create_stream(stream, segments)
        with start_java_peer(server.controller_uri, directory) as peer:
            peer.patience = 30
            try:
                return stream, peer.write_large(scope, stream, events)
            except JavaPeerError as error:
                if "LargeEventWriter.write(" not in str(error):
                    raise
    pytest.fail(f"the Java client has not written large events in {JAVA_ATTEMPTS} attempts")


@pytest.mark.needs("0.11", "large events")
@pytest.mark.parametrize("segments", [1, 3])
def test_python_reads_java_s_events_over_the_limit(
    client: PravegaClient,
    pravega_scope: str,
    pravega_server: PravegaServer,
    java_directory: Path,
    segments: int,
) -> None:
    large, digests = write_large(client, pravega_server, pravega_scope, segments, java_directory)

    expected = list(zip(LARGE_SIZES, digests, strict=True))
    assert len(set(digests)) == len(LARGE_SIZES)
    found = [digest(payload) for batch in client.read_events(large) for payload in batch]
    assert found == expected
    pointers = []
    client.seal_stream(large)
    client.create_reader_group("group", ReaderGroupConfig.of([client.config.resolve(large)]))
    with client.reader_group("group") as group, group.reader("one") as reader:
        found = []
        for event in reader:
            found.append(digest(event.value))
            pointers.append(event.pointer)
    assert found == expected
    assert [digest(client.fetch_event(pointer)) for pointer in pointers] == expected


def by_writer_and_key(payloads: Iterable[bytes]) -> dict[str, list[int]]:
    """Numbers of the events of each writer and key, in the order of reading."""
    found: dict[str, list[int]] = defaultdict(list)
    for payload in payloads:
        name, _, number = payload.decode().rpartition(":")
        found[name].append(int(number))
    return found


def test_both_write_at_the_same_time_while_the_stream_scales(
    client: PravegaClient, pravega_scope: str, java_peer: JavaPeer
) -> None:
    """What each of them has written of a key is in its order, whoever else writes that key."""
    client.create_stream("s", 4)
    written: dict[str, list[int]] = defaultdict(list)
    total = 0

    def some(writer: str) -> list[tuple[str | None, bytes]]:
        nonlocal total
        events: list[tuple[str | None, bytes]] = []
        for _ in range(200):
            key = f"shared-{total % 13}" if total % 2 else f"{writer}-{total % 22}"
            written[f"{writer}:{key}"].append(total)
            events.append((key, f"{writer}:{key}:{total}".encode()))
            total += 1
        return events

    scaling = threading.Thread(target=scale, args=(client, "s"))
    rounds_after = 0
    with client.event_writer("s") as python, java_peer.writer(pravega_scope, "s") as java:
        while rounds_after < 10:
            java.write(some("java"))
            ours = some("python")
            python.write_events([payload for _, payload in ours], [key for key, _ in ours])
            if total == 4000:
                # Something of both is in segments that will be sealed, and then neither waits again.
                java.flush()
                python.flush()
                scaling.start()
            elif total > 4000 and not scaling.is_alive():
                rounds_after += 1
            elif total > 60_000:
                # Enough to read; a slow machine may still be at it.
                scaling.join()
        scaling.join()
        python.flush()
        assert python.metrics().segments_sealed == 3

    events = read_in_python(client, "s")
    assert len(events) == total
    assert by_writer_and_key(event.payload for event in events) == written
    epochs = {(event.payload.partition(b":")[0], event.segment_id >> 32) for event in events}
    assert epochs == {(b"java", 0), (b"java", 1), (b"python", 0), (b"python", 1)}
    assert events == sorted(
        java_peer.read_batch(pravega_scope, "s"), key=lambda event: (event.segment_id, event.offset)
    )
    group = java_peer.read_group(pravega_scope, "s", total)
    assert by_writer_and_key(event.payload for event in group) == written
