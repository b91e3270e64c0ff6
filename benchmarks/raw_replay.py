"""Measures the limits of the server itself, with prepared frames over plain blocking sockets.

An append is a loop of one prepared ``AppendBlockEnd`` frame for each segment, with a window of
unacknowledged blocks; acknowledgements are decoded and counted, nothing else is done. A read is
``ReadSegment`` requests of up to 2 MiB (the server's limit), received into one buffer and counted.
No client can be faster than this by more than noise; how near one comes says what bounds it.

``python -m benchmarks.raw_replay URI`` prints a table over block sizes, windows and segments. As a
participant of ``scripts/bench`` it takes ``--serve SCOPE``.
"""

from __future__ import annotations

import argparse
import socket
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from uuid import UUID, uuid4

import trio

from benchmarks.work import HEADER_BYTES, measure, payload_pool, serve
from pravega_wire import PravegaConfig, open_client
from pravega_wire.controller.client import open_controller
from pravega_wire.protocol import commands as c
from pravega_wire.protocol.codec import append_block_header, encode
from pravega_wire.protocol.events import frame_event
from pravega_wire.protocol.frames import FrameDecoder
from pravega_wire.values.naming import segment_name

BLOCK_BYTES = 256 * 1024
WINDOW_BYTES = 4 * 1024 * 1024
READ_BYTES = 2 * 1024 * 1024
READ_DEPTH = 4
SOCKET_BYTES = 256 * 1024

Address = tuple[str, int]


class Wire:
    """One blocking connection to a segment store."""

    def __init__(self, address: Address) -> None:
        self.socket = socket.create_connection(address, timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            self.socket.setsockopt(socket.SOL_SOCKET, option, SOCKET_BYTES)
        self._decoder = FrameDecoder()
        self._replies: deque[c.Command] = deque()
        self.socket.sendall(encode(c.Hello(high_version=16, low_version=5)))
        self.expect(c.Hello)

    def reply(self) -> c.Command:
        """The next command from the server."""
        while not self._replies:
            count = self.socket.recv_into(self._decoder.get_buffer())
            if count == 0:
                raise ConnectionError("the segment store has closed the connection")
            self._replies.extend(self._decoder.received(count))
        return self._replies.popleft()

    def expect(self, *kinds: type[c.Command]) -> c.Command:
        """The next command, which must be of one of these kinds."""
        found = self.reply()
        if not isinstance(found, kinds):
            raise ConnectionError(f"unexpected reply {found}")
        return found

    def close(self) -> None:
        self.socket.close()


@dataclass(slots=True)
class Lane:
    """One segment being appended to over a connection.

    :ivar sent, acknowledged: numbers of the last event sent and acknowledged.
    """

    segment: str
    request_id: int
    events_left: int
    writer_id: UUID = field(default_factory=uuid4)
    sent: int = 0
    acknowledged: int = 0


def look_up(uri: str, scope: str, stream: str) -> list[tuple[str, Address]]:
    """Segments of a stream and the stores that serve them."""

    async def ask() -> list[tuple[str, Address]]:
        config = PravegaConfig.from_defaults(controller_uri=uri, env={})
        async with open_controller(list(config.endpoints)) as controller:
            found = []
            for segment in await controller.get_current_segments(scope, stream):
                node = await controller.get_uri(scope, stream, segment.segment_id)
                name = segment_name(scope, stream, segment.segment_id)
                found.append((name, (node.host, node.port)))
            return found

    return trio.run(ask)


def in_threads(tasks: Iterable[Callable[[], None]]) -> None:
    """Run all, one thread for each, and raise the first error."""
    errors: list[Exception] = []

    def run(task: Callable[[], None]) -> None:
        try:
            task()
        except Exception as error:  # carried over to the caller
            errors.append(error)

    threads = [threading.Thread(target=run, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def append(
    uri: str,
    scope: str,
    stream: str,
    size: int,
    count: int,
    *,
    block_bytes: int = BLOCK_BYTES,
    window_bytes: int = WINDOW_BYTES,
) -> dict[str, float]:
    """Append ``count`` events of about ``size`` bytes, evenly over the segments.

    All blocks begin with the same event: where lengths vary, the answer says how many bytes these are.
    """
    framed = [frame_event(payload) for payload in payload_pool(size)]
    per_block = max(1, block_bytes * len(framed) // sum(map(len, framed)))
    parts = [framed[number % len(framed)] for number in range(per_block)]
    block = b"".join(parts)
    ends = list(accumulate(map(len, parts), initial=0))
    sent_bytes, counting = 0, threading.Lock()
    window = max(2, window_bytes // len(block))
    segments = look_up(uri, scope, stream)
    wires: dict[Address, Wire] = {}
    lanes: dict[Wire, list[Lane]] = defaultdict(list)
    try:
        for index, (segment, address) in enumerate(segments):
            wire = wires.get(address) or wires.setdefault(address, Wire(address))
            share = count // len(segments) + (index < count % len(segments))
            lane = Lane(segment, index + 1 << 32, share)
            wire.socket.sendall(
                encode(
                    c.SetupAppend(
                        request_id=lane.request_id,
                        writer_id=lane.writer_id,
                        segment=segment,
                        delegation_token="",
                    )
                )
            )
            wire.expect(c.AppendSetup)
            lanes[wire].append(lane)

        def run(wire: Wire, mine: list[Lane]) -> None:
            by_writer = {lane.writer_id: lane for lane in mine}
            allowed = max(1, window // len(mine)) * per_block
            view = memoryview(block)
            nonlocal sent_bytes
            while any(lane.events_left or lane.acknowledged < lane.sent for lane in mine):
                for lane in mine:
                    if lane.events_left and lane.sent - lane.acknowledged < allowed:
                        events = min(per_block, lane.events_left)
                        lane.events_left -= events
                        lane.sent += events
                        head, tail = append_block_header(
                            lane.writer_id.bytes,
                            ends[events],
                            events,
                            lane.sent,
                            lane.request_id,
                        )
                        wire.socket.sendall(head)
                        wire.socket.sendall(view[: ends[events]])
                        wire.socket.sendall(tail)
                        with counting:
                            sent_bytes += ends[events] - events * HEADER_BYTES
                if all(lane.sent - lane.acknowledged >= allowed or not lane.events_left for lane in mine):
                    reply = wire.expect(c.DataAppended)
                    assert isinstance(reply, c.DataAppended)
                    by_writer[reply.writer_id].acknowledged = reply.event_number

        with measure() as clock:
            in_threads(partial(run, wire, mine) for wire, mine in lanes.items())
    finally:
        for wire in wires.values():
            wire.close()
    return clock.answer(count, sent_bytes)


def read(
    uri: str, scope: str, stream: str, *, chunk_bytes: int = READ_BYTES, depth: int = READ_DEPTH
) -> dict[str, float]:
    """Read all bytes of all segments, one segment after the other; events are not looked at."""
    nbytes = 0
    buffer = memoryview(bytearray(chunk_bytes))
    with measure() as clock:
        for segment, address in look_up(uri, scope, stream):
            nbytes += _read_segment(segment, address, buffer, depth)
    return clock.answer(0, nbytes)


def _read_segment(segment: str, address: Address, buffer: memoryview, depth: int) -> int:
    wire = Wire(address)
    try:
        wire.socket.sendall(
            encode(c.GetStreamSegmentInfo(request_id=1, segment_name=segment, delegation_token=""))
        )
        info = wire.expect(c.StreamSegmentInfo)
        assert isinstance(info, c.StreamSegmentInfo)
        wanted: deque[tuple[int, int]] = deque()
        at = info.start_offset
        while at < info.write_offset:
            length = min(len(buffer), info.write_offset - at)
            wanted.append((at, length))
            at += length
        total = 0
        asked: dict[int, int] = {}

        def ask() -> None:
            while wanted and len(asked) < depth:
                offset, length = wanted.popleft()
                asked[offset] = length
                wire.socket.sendall(
                    encode(
                        c.ReadSegment(
                            segment=segment,
                            offset=offset,
                            suggested_length=length,
                            delegation_token="",
                            request_id=2,
                        )
                    )
                )

        ask()
        name_bytes = len(segment.encode()) + 2
        head = memoryview(bytearray(8 + name_bytes + 14))
        tail = memoryview(bytearray(8))
        while asked:
            _receive(wire.socket, head)
            code = int.from_bytes(head[:4], "big")
            if code != c.SegmentRead.CODE:
                raise ConnectionError(f"unexpected reply of code {code}")
            offset = int.from_bytes(head[8 + name_bytes : 16 + name_bytes], "big")
            length = int.from_bytes(head[18 + name_bytes : 22 + name_bytes], "big")
            _receive(wire.socket, buffer[:length])
            _receive(wire.socket, tail)
            total += length
            missing = asked.pop(offset) - length
            if missing:
                wanted.appendleft((offset + length, missing))
            ask()
        return total
    finally:
        wire.close()


def _receive(connection: socket.socket, into: memoryview) -> None:
    at = 0
    while at < len(into):
        count = connection.recv_into(into[at:])
        if count == 0:
            raise ConnectionError("the segment store has closed the connection")
        at += count


async def _with_stream(uri: str, scope: str, stream: str, segments: int | None) -> int:
    """Create (or, for None, seal and delete) a stream; returns the bytes in it."""
    config = PravegaConfig.from_defaults(controller_uri=uri, scope=scope, env={})
    async with open_client(config) as client:
        if segments is not None:
            await client.create_scope(scope)
            await client.create_stream(stream, segments)
            return 0
        tail = await client.tail(stream)
        await client.delete_stream(stream, seal=True)
        return sum(tail.positions.values())


def sweep(uri: str, megabytes: int) -> None:
    """Append and read rates over sizes, segments, blocks and windows."""
    scope = "raw-replay"
    print(f"{'event':>8} {'seg':>3} {'block':>8} {'window':>7} {'append':>13} {'':>11} {'read':>11}")
    for size in (100, 1000, 100_000):
        for segments in (1, 4):
            for block in (64 << 10, 256 << 10, 1 << 20):
                for window in (1 << 20, 4 << 20, 16 << 20):
                    if window < 2 * block:
                        continue
                    stream = f"s{uuid4().hex}"
                    count = (megabytes << 20) // (size + HEADER_BYTES)
                    trio.run(_with_stream, uri, scope, stream, segments)
                    wrote = append(uri, scope, stream, size, count, block_bytes=block, window_bytes=window)
                    got = read(uri, scope, stream)
                    stored = trio.run(_with_stream, uri, scope, stream, None)
                    if not stored == got["bytes"] == count * (size + HEADER_BYTES):
                        raise SystemExit(f"{stored} bytes stored, {got['bytes']} read")
                    print(
                        f"{size:8} {segments:3} {block >> 10:6}Ki {window >> 20:5}Mi"
                        f" {wrote['events'] / wrote['seconds']:9.0f} ev/s"
                        f" {wrote['bytes'] / wrote['seconds'] / 1e6:6.0f} MB/s"
                        f" {got['bytes'] / got['seconds'] / 1e6:6.0f} MB/s",
                        flush=True,
                    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("uri", help="controller, for instance tcp://127.0.0.1:9090")
    parser.add_argument("--serve", metavar="SCOPE", help="answer requests on standard input")
    parser.add_argument("--megabytes", type=int, default=100, help="to append each time")
    arguments = parser.parse_args()
    if arguments.serve is None:
        sweep(arguments.uri, arguments.megabytes)
        return
    uri, scope = arguments.uri, arguments.serve

    def handle(words: list[str]) -> dict[str, float]:
        if words[0] == "append":
            return append(uri, scope, words[1], int(words[2]), int(words[3]))
        return read(uri, scope, words[1])

    serve(handle)


if __name__ == "__main__":
    main()
