"""The reader that receives in its caller's thread, against stores of a few lines on real sockets."""

from __future__ import annotations

import linecache
import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, SimpleNamespace
from typing import Any, cast

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from pravega_wire import EventPointer, ScopedStream, SegmentRange
from pravega_wire.errors import (
    ArgumentTypeError,
    AuthenticationError,
    ClosedError,
    ConcurrentUseError,
    DataLossError,
    DecodeError,
    IncompatibleVersionError,
    InvalidArgumentError,
    PravegaError,
    RetriesExhaustedError,
    TruncatedInputError,
    UnexpectedReplyError,
    UnknownCommandError,
)
from pravega_wire.protocol import codec
from pravega_wire.protocol import commands as c
from pravega_wire.protocol.events import EventBatch, frame_event
from pravega_wire.protocol.frames import FrameDecoder
from pravega_wire.protocol.session import GREETING as HELLO
from pravega_wire.segment.store import SegmentStores, SegmentTarget
from pravega_wire.sync import DirectReader, PravegaClient, direct
from pravega_wire.threads.portal import Line, Portal
from pravega_wire.transport.limits import Limits
from pravega_wire.transport.pool import ConnectionPool
from tests.inside import surroundings

NAME = "scope/stream/0.#epoch.0"
EVENTS = [b"%d:" % n + b"x" * (n * 37 % 300) for n in range(3000)]
DATA = b"".join(map(frame_event, EVENTS))

Serve = Callable[["Peer"], None]


class Peer:
    """A store's end of one connection."""

    def __init__(self, sock: socket.socket, number: int) -> None:
        self.sock = sock
        self.number = number
        self._decoder = FrameDecoder()
        self._commands: list[c.Command] = []

    def next_read(self) -> c.ReadSegment | None:
        """The next read; None at the end. Greetings, keep-alives and requests for the length are answered."""
        while True:
            for _ in range(len(self._commands)):
                command = self._commands.pop(0)
                if isinstance(command, c.ReadSegment):
                    return command
                if isinstance(command, c.GetStreamSegmentInfo):
                    self.send(
                        c.StreamSegmentInfo(
                            request_id=command.request_id, segment_name=NAME, exists=True, is_sealed=False,
                            is_deleted=False, last_modified=0, write_offset=len(DATA), start_offset=0,
                        )
                    )  # fmt: skip
                    continue
                self.send(command)
            data = self.sock.recv(65536)
            if not data:
                return None
            self._commands += self._decoder.feed(data)

    def send(self, *commands: c.Command) -> None:
        self.sock.sendall(b"".join(map(codec.encode, commands)))

    def drain(self) -> None:
        """Wait for the reader to hang up: closing before would take back what was sent."""
        while self.next_read() is not None:
            pass

    def serve(self, data: bytes = DATA, most: int = 1 << 20) -> None:
        """Answer until the end."""
        while (asked := self.next_read()) is not None:
            self.send(answer(asked, data, most))


def answer(asked: c.ReadSegment, data: bytes = DATA, most: int = 1 << 20) -> c.SegmentRead:
    end = min(asked.offset + asked.suggested_length, asked.offset + most, len(data))
    return c.SegmentRead(
        asked.segment, asked.offset, False, end >= len(data), data[asked.offset : end], asked.request_id
    )


class Tokens:
    """Gives a new token after each that has expired."""

    def __init__(self) -> None:
        self.number = 0

    async def __call__(self) -> str:
        await trio.lowlevel.checkpoint()
        return f"token {self.number}"

    def expire(self) -> None:
        self.number += 1


class World:
    """A client's parts that the reader uses, and stores that serve by a function.

    :ivar located: how often the controller was asked where the segment is.
    """

    def __init__(self, serve: Serve, timeout: float) -> None:
        self.located = 0
        self.connections = 0
        self.tokens = Tokens()
        self.failures: list[BaseException] = []
        self._serve = serve
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._peers: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()
        self.portal = Portal("test client")
        stores = self.portal.call(self._stores, timeout)
        self.core = SimpleNamespace(
            check_open=lambda: None,
            stores=stores,
            target=lambda *_: SegmentTarget(NAME, "scope", "stream", 0, self.tokens),
        )
        self.client = cast(
            "PravegaClient",
            SimpleNamespace(_twin=SimpleNamespace(_core=self.core), _portal=Line(self.portal)),
        )

    async def _stores(self, timeout: float) -> SegmentStores:
        async def locate(*_: object) -> tuple[str, int]:
            self.located += 1
            await trio.lowlevel.checkpoint()
            host, port = self._listener.getsockname()
            return host, port

        nursery = self.portal._nursery
        assert nursery is not None
        await trio.lowlevel.checkpoint()
        pool = ConnectionPool(nursery, limits=Limits.of(timeout))
        return SegmentStores(pool, locate, operation_timeout=timeout)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self._peers.append(sock)
            self.connections += 1
            threading.Thread(target=self._run, args=(Peer(sock, self.connections),), daemon=True).start()

    def _run(self, peer: Peer) -> None:
        try:
            self._serve(peer)
        except OSError:
            pass  # the reader has hung up
        except BaseException as error:
            self.failures.append(error)
            raise
        finally:
            peer.sock.close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._peers:
            each.close()
        self.portal.close()
        assert not self.failures

    def reader(self, start: int = 0, end: int = len(DATA), **settings: Any) -> DirectReader:
        part = SegmentRange(ScopedStream("scope", "stream"), 0, start, end)
        return DirectReader(self.client, part, **settings)


@contextmanager
def world(serve: Serve, timeout: float = 60.0) -> Iterator[World]:
    made = World(serve, timeout)
    try:
        yield made
    finally:
        made.close()


def read(reader: DirectReader) -> list[bytes]:
    with reader:
        return [event for batch in reader for event in batch.to_list()]


def test_everything_comes_in_order_and_is_counted() -> None:
    with world(Peer.serve) as made:
        found: list[bytes] = []
        places: list[int] = []
        with made.reader(chunk_bytes=100_000) as reader:
            for batch in reader:
                found += batch.to_list()
                places += batch.offsets()
        assert found == EVENTS
        assert places == [sum(8 + len(each) for each in EVENTS[:n]) for n in range(len(EVENTS))]
        assert made.connections == made.located == 1
        counted = made.portal.call(counted_of, made)
        assert (counted.events_read, counted.bytes_received) == (len(EVENTS), len(DATA))
        assert counted.bytes_read == sum(map(len, EVENTS))
        assert made.reader(0, 0).next_batch() is None
        assert made.connections == 1


def test_a_range_beyond_the_end_is_no_fault_of_the_store() -> None:
    """It waits for what the range has more."""

    def serve(peer: Peer) -> None:
        while (asked := peer.next_read()) is not None:
            if asked.offset < len(DATA):
                peer.send(answer(asked))

    with world(serve, 9.0) as made:
        message = f"beyond the end of segment {NAME}, offset {len(DATA)}"
        with pytest.raises(InvalidArgumentError, match=message):
            read(made.reader(0, len(DATA) + 10))


@pytest.mark.parametrize("name", ["chunk_bytes", "depth"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "4", 2**63])
def test_sizes_that_are_no_positive_numbers_are_refused(name: str, value: Any) -> None:
    """With a depth of 0, nothing was ever asked for."""
    with world(Peer.serve, 0.1) as made:
        with pytest.raises(InvalidArgumentError, match=rf"{NAME}: {name} must be a whole number"):
            read(made.reader(**{name: value}))
        with pytest.raises(ArgumentTypeError, match="segment_range must be of the class SegmentRange"):
            DirectReader(made.client, "scope/stream")  # type: ignore[arg-type]
        assert not made.connections


async def counted_of(made: World) -> Any:
    await trio.lowlevel.checkpoint()
    return made.core.stores.counters.reading("scope", "stream")


@settings(max_examples=40)
@given(
    payloads=st.lists(st.binary(max_size=400), min_size=1, max_size=60),
    chunk=st.integers(1, 900),
    depth=st.integers(1, 5),
    most=st.integers(1, 900),
    seed=st.integers(0, 1000),
)
def test_any_chunks_in_any_order(payloads: list[bytes], chunk: int, depth: int, most: int, seed: int) -> None:
    """The store answers with less than was asked for, late, and in another order than it was asked."""
    data = b"".join(map(frame_event, payloads * 20))
    order = random.Random(seed)

    def serve(peer: Peer) -> None:
        peer.sock.settimeout(0.001)
        waiting: list[c.ReadSegment] = []
        while True:
            try:
                asked = peer.next_read()
            except TimeoutError:
                asked = None
                if not waiting:
                    continue
            else:
                if asked is None:
                    return
                waiting.append(asked)
                if len(waiting) < depth and order.random() < 0.7:
                    continue
            peer.send(answer(waiting.pop(order.randrange(len(waiting))), data, most))

    with shared_world(serve) as made:
        found = read(made.reader(0, len(data), chunk_bytes=max(chunk, len(data) // 40), depth=depth))
        assert found == payloads * 20


_shared: list[World] = []


@contextmanager
def shared_world(serve: Serve) -> Iterator[World]:
    """One client for many examples."""
    if not _shared:
        _shared.append(World(serve, 60.0))
    _shared[0]._serve = serve
    yield _shared[0]
    assert not _shared[0].failures


@pytest.mark.parametrize("size", [10, 5_000, 60_000, 70_000, 400_000])
def test_events_across_chunks_of_reused_memory(size: int) -> None:
    """Small beginnings of events go before the next chunk, large ones are put together elsewhere."""
    events = [bytes([n % 251]) * (size + n % 7) for n in range(max(12, 3_000_000 // size // 4))]
    data = b"".join(map(frame_event, events))

    with world(lambda peer: peer.serve(data)) as made:
        assert read(made.reader(0, len(data), chunk_bytes=90_001)) == events


def test_a_batch_is_good_until_the_next_one() -> None:
    """What the class says of its memory: a chunk's buffer is used for a later chunk, and not for the next."""
    with world(Peer.serve) as made, made.reader(chunk_bytes=20_000, depth=2) as reader:
        first = cast("EventBatch", reader.next_batch())
        expected = first.to_list()
        assert first.to_list() == expected == EVENTS[: len(expected)]
        assert first.segment == reader.target.name
        assert first.pointers()[0] == EventPointer(reader.target.name, 0, 8 + len(expected[0]))
        buffers = set()
        while (batch := reader.next_batch()) is not None:
            buffers.add(id(batch.buffer.obj))
        assert len(buffers) <= 4 < len(DATA) // 20_000


def test_small_pieces_out_of_order_hold_no_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first request is answered last, and the others in small pieces."""
    chunk, piece = 400_000, 20_000
    events = EVENTS * 4
    data = b"".join(map(frame_event, events))
    buffers: list[int] = []

    class Counted(direct._Buffer):
        def __init__(self, size: int) -> None:
            super().__init__(size)
            buffers.append(size)

    monkeypatch.setattr(direct, "_Buffer", Counted)

    def serve(peer: Peer) -> None:
        held = None
        while (asked := peer.next_read()) is not None:
            if asked.offset == 0:
                held = asked
                continue
            peer.send(answer(asked, data, piece))
            if held is not None and asked.offset + piece >= 4 * chunk:
                peer.send(answer(held, data))
                held = None

    with world(serve) as made:
        assert read(made.reader(0, len(data), chunk_bytes=chunk, depth=4)) == events
    assert len(buffers) <= 6


def test_memory_of_others_is_not_used_again() -> None:
    """A reply that is too long for a buffer may be just as long as one with the room before it."""
    buffers = direct._Buffers(1000)
    usual = buffers.allocate(500)
    length = len(cast("bytearray", usual.obj))
    long = buffers.allocate(length)
    assert len(cast("bytearray", long.obj)) == length
    buffers.free(long)
    assert buffers.allocate(500).obj is not long.obj
    buffers.free(usual)
    assert buffers.allocate(500).obj is usual.obj


# --- refusals -------------------------------------------------------------------------------------

STORE = "127.0.0.1"


@pytest.mark.parametrize(
    ("refusal", "error", "message"),
    [
        (lambda a: c.NoSuchSegment(a.request_id, NAME, "", -1), DataLossError, "are gone .*does not exist"),
        (
            lambda a: c.SegmentIsTruncated(a.request_id, NAME, 4000, "", a.offset),
            DataLossError,
            "first readable offset is 4000",
        ),
        (
            lambda a: c.SegmentRead(NAME, a.offset, True, True, b"", a.request_id),
            DataLossError,
            "before the end of the range",
        ),
        (
            lambda a: c.SegmentRead(NAME, a.offset + 1, False, False, b"x" * 50, a.request_id),
            UnexpectedReplyError,
            "received them from",
        ),
        (lambda a: c.SegmentSealed(a.request_id, NAME), UnexpectedReplyError, "SegmentSealed"),
        (
            lambda a: c.AuthTokenCheckFailed(a.request_id, "", 0),
            AuthenticationError,
            "refused the delegation token",
        ),
        (
            # As a 0.13.0 store says it, with the offset for the request's id.
            lambda a: c.AuthTokenCheckFailed(a.offset + 2**40, "", 0),
            AuthenticationError,
            "refused the delegation token",
        ),
        (
            lambda a: c.ErrorMessage(a.request_id, NAME, "no such thing", 0),
            InvalidArgumentError,
            "no such thing",
        ),
    ],
)
def test_refusals_are_the_errors_of_the_other_reader(
    refusal: Callable[[c.ReadSegment], c.Command], error: type[PravegaError], message: str
) -> None:
    def serve(peer: Peer) -> None:
        first = peer.next_read()
        assert first is not None
        peer.send(answer(first, most=1000))
        while (asked := peer.next_read()) is not None:
            if asked.offset >= 1000:
                peer.send(refusal(asked))

    with world(serve) as made, made.reader() as reader:
        with pytest.raises(error, match=message) as raised:
            while reader.next_batch() is not None:
                pass
        assert raised.value.segment == NAME
        assert made.connections == 1


def flaky(trouble: Callable[[Peer, c.ReadSegment], object]) -> Serve:
    """Two answers on each connection, then trouble; the fifth connection is sound."""

    def serve(peer: Peer) -> None:
        for number in range(10**6):
            asked = peer.next_read()
            if asked is None:
                return
            if number >= 2 and peer.number < 5:
                trouble(peer, asked)
                return
            peer.send(answer(asked, most=30_000))

    return serve


TROUBLE: dict[str, Callable[[Peer, c.ReadSegment], object]] = {
    "cut": lambda peer, asked: None,
    "cut in a header": lambda peer, asked: peer.sock.sendall(codec.encode(answer(asked))[:5]),
    "cut in the data": lambda peer, asked: peer.sock.sendall(codec.encode(answer(asked))[:-100]),
    "another host": lambda peer, asked: (
        peer.send(c.WrongHost(asked.request_id, NAME, "elsewhere:1", "")),
        peer.drain(),
    ),
    "token expired": lambda peer, asked: (
        peer.send(c.AuthTokenCheckFailed(asked.request_id, "", 1)),
        peer.drain(),
    ),
    "token expired, as a 0.13.0 store says it": lambda peer, asked: (
        peer.send(c.AuthTokenCheckFailed(asked.offset + 2**40, "", 1)),
        peer.drain(),
    ),
    "an answer without data": lambda peer, asked: (
        peer.send(c.SegmentRead(NAME, asked.offset, True, False, b"", asked.request_id)),
        peer.drain(),
    ),
}


@pytest.mark.parametrize("trouble", TROUBLE.values(), ids=list(TROUBLE))
def test_passing_trouble_is_got_over(trouble: Callable[[Peer, c.ReadSegment], object]) -> None:
    with world(flaky(trouble)) as made:
        assert read(made.reader(chunk_bytes=50_000)) == EVENTS
        assert made.connections == made.located == 5
        expiring = trouble in (TROUBLE["token expired"], TROUBLE["token expired, as a 0.13.0 store says it"])
        assert made.tokens.number == (4 if expiring else 0)
        assert made.portal.call(counted_of, made).reconnects == 4


def test_bytes_that_make_no_sense() -> None:
    def garbage(peer: Peer) -> None:
        peer.next_read()
        peer.sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        peer.drain()

    with world(garbage) as made, pytest.raises(UnknownCommandError, match=r"127.0.0.1:\d+: command code"):
        read(made.reader())

    def old(peer: Peer) -> None:
        peer.send(c.Hello(high_version=99, low_version=98))
        peer.drain()

    with world(old) as made, pytest.raises(IncompatibleVersionError, match="98 to 99"):
        read(made.reader())


def test_bytes_that_are_no_events() -> None:
    with world(Peer.serve) as made:
        with made.reader(7) as reader:
            for _ in range(2):
                with pytest.raises(DecodeError, match="no event begins at offset 7 "):
                    reader.next_batch()
        with made.reader(0, 20) as reader:
            assert (reader.next_batch() or [])[:] == EVENTS[:1]
            for _ in range(2):
                with pytest.raises(TruncatedInputError, match="ends at 20, in the middle of the event"):
                    reader.next_batch()

    # A later chunk goes bad; what comes before is given out.
    bad = b"".join(map(frame_event, EVENTS[:1250])) + b"\xff" * 100_000
    with world(lambda peer: peer.serve(bad)) as made, made.reader(0, len(bad), chunk_bytes=100_000) as reader:
        found: list[bytes] = []
        with pytest.raises(DecodeError, match="no event begins at"):
            for batch in reader:
                found += batch.to_list()
        assert found == EVENTS[:1250]


# --- time -----------------------------------------------------------------------------------------


def echo_only(peer: Peer) -> None:
    """Alive, as its keep-alives say, and never answers."""
    peer.drain()


def mute(greeting: bytes) -> Serve:
    def serve(peer: Peer) -> None:
        peer.sock.sendall(greeting)
        while peer.sock.recv(65536):
            pass

    return serve


def half_of_each(peer: Peer) -> None:
    """On each of many connections a part of the answer that counts as progress, and no more."""
    if peer.number > 30:
        peer.serve()
    else:
        mute(HELLO + (10).to_bytes(4, "big") + (1 << 20).to_bytes(4, "big") + b"x" * 100_000)(peer)


SILENT = "has sent nothing for 0.2 s, not even|has sent no data of"
# Whichever is noticed first: both limits are a third of the operation's.


@pytest.mark.parametrize(
    ("serve", "message"),
    [
        (mute(b""), SILENT),
        (mute(HELLO), SILENT),
        (
            mute(HELLO + (10).to_bytes(4, "big") + (1 << 20).to_bytes(4, "big") + b"x" * 999),
            SILENT,
        ),
        (half_of_each, SILENT),
        (echo_only, "has sent no data of scope/stream/0.#epoch.0 for"),
    ],
    ids=[
        "silent",
        "silent after its hello",
        "silent in a reply",
        "silent in each long reply",
        "alive and without an answer",
    ],
)
def test_silent_stores_are_given_up_and_others_tried(serve: Serve, message: str) -> None:
    with world(serve, timeout=0.6) as made:
        with pytest.raises(RetriesExhaustedError, match=message) as raised:
            read(made.reader())
        assert "operation_timeout" in str(raised.value)
        assert made.connections > 1

    def second_is_sound(peer: Peer) -> None:
        if peer.number == 1:
            serve(peer)
        else:
            peer.serve()

    with world(second_is_sound, timeout=6) as made:
        assert read(made.reader()) == EVENTS
        assert made.connections >= 2


def test_a_slow_store_is_waited_for_as_long_as_bytes_come() -> None:
    """Each answer takes longer than an attempt may; the whole longer than an operation may."""
    stopped = threading.Event()
    data = DATA * 3

    def serve(peer: Peer) -> None:
        while (asked := peer.next_read()) is not None:
            reply = codec.encode(answer(asked, data))
            for at in range(0, len(reply), 70_000):
                peer.sock.sendall(reply[at : at + 70_000])
                stopped.wait(0.08)

    with world(serve, timeout=0.6) as made:
        assert read(made.reader(0, len(data), chunk_bytes=len(data))) == EVENTS * 3
        assert made.connections == 1


def test_nobody_listens() -> None:
    with world(Peer.serve, timeout=0.5) as made:
        made._listener.close()
        made._listener = socket.create_server(("127.0.0.1", 0))
        made.portal.call(closed_port, made)
        with pytest.raises(RetriesExhaustedError, match=r"no success in .*connection refused"):
            read(made.reader())
        assert made.located > 1


async def closed_port(made: World) -> None:
    async def locate(*_: object) -> tuple[str, int]:
        made.located += 1
        await trio.lowlevel.checkpoint()
        with socket.create_server(("127.0.0.1", 0)) as gone:
            port: int = gone.getsockname()[1]
        return "127.0.0.1", port

    made.core.stores._locate = locate
    await trio.lowlevel.checkpoint()


# --- Ctrl-C ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("twice", [False, True])
def test_an_interrupt_at_any_line_loses_and_repeats_nothing(twice: bool) -> None:
    """Every second call is interrupted. Chunks end within events, and answers are shorter than was asked for.

    :param twice: another interrupt comes while the first one is dealt with.
    """
    events = [bytes([n]) * (n * 37 % 120) for n in range(40)]
    starts = [sum(8 + len(each) for each in events[:n]) for n in range(len(events))]
    data = b"".join(map(frame_event, events))
    with world(lambda peer: peer.serve(data, most=700)) as made:
        line = 0
        while True:
            found: list[tuple[int, bytes]] = []
            interrupts = 0
            with made.reader(0, len(data), chunk_bytes=len(data) // 2, depth=2) as reader:
                interrupt = Interrupt(line, reader if twice else None)
                while True:
                    try:
                        batch = interrupt.during(reader.next_batch)
                    except KeyboardInterrupt:
                        interrupts += 1
                        batch = reader.next_batch()
                    if batch is None:
                        break
                    found += zip(batch.offsets(), batch.to_list(), strict=True)
                assert reader.offset == len(data)
            assert found == list(zip(starts, events, strict=True)), line
            if not interrupts:
                break
            line += 1
        assert line > 50


class Interrupt:
    """Ctrl-C before the n-th line of the reader that runs in a call.

    :param twice: in this reader's :meth:`DirectReader._disconnect` it comes once more.
    """

    def __init__(self, line: int, twice: DirectReader | None) -> None:
        self._line = line
        self._left = -1
        self._again = False
        if twice is not None:
            disconnect = twice._disconnect

            def interrupted() -> None:
                if self._left < 0 and self._again:
                    self._again = False
                    raise KeyboardInterrupt
                disconnect()

            twice._disconnect = interrupted  # type: ignore[method-assign]

    def during(self, function: Callable[[], EventBatch | None]) -> EventBatch | None:
        self._left = self._line
        self._again = True
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            return function()
        finally:
            self._again = False
            sys.settrace(before)

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename != direct.__file__:
            return None
        # Python looks for signals when it calls a function or repeats a loop: not in the first two. What ends
        # a ``with`` is not the reader's.
        source = linecache.getline(direct.__file__, frame.f_lineno).strip()
        if event == "line" and source not in ("try:", "return batch", "with self._alone:"):
            self._left -= 1
            if self._left == -1:
                raise KeyboardInterrupt
        return self._trace


# --- closing --------------------------------------------------------------------------------------


def test_closing_ends_a_thread_that_waits() -> None:
    asked = threading.Event()
    ended = threading.Event()

    def serve(peer: Peer) -> None:
        peer.next_read()
        asked.set()
        while peer.next_read() is not None:
            pass
        ended.set()

    with world(serve) as made:
        reader = made.reader()
        raised: list[BaseException] = []

        def wait() -> None:
            try:
                reader.next_batch()
            except PravegaError as error:
                raised.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        assert asked.wait(30)
        with pytest.raises(ConcurrentUseError, match="another thread is reading"):
            reader.next_batch()
        reader.close()
        thread.join(30)
        assert [type(each) for each in raised] == [ClosedError]
        assert ended.wait(30)
        with pytest.raises(ClosedError, match=r"the reader of .* is closed"):
            reader.next_batch()
        reader.close()


def test_a_reader_that_is_closed_while_it_looks_for_the_store() -> None:
    with world(Peer.serve) as made:
        looking = threading.Event()

        async def locate(*_: object) -> str:
            looking.set()
            await trio.sleep_forever()
            raise AssertionError

        made.core.stores.endpoint = locate
        reader = made.reader()
        raised: list[BaseException] = []

        def wait() -> None:
            try:
                reader.next_batch()
            except PravegaError as error:
                raised.append(error)

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        assert looking.wait(30)
        reader.close()
        # An attempt to reach the store would go on for longer.
        thread.join(5)
        assert [type(each) for each in raised] == [ClosedError]
        assert made.connections == 0


def test_a_generator_that_is_left_hangs_up() -> None:
    ended = threading.Event()

    def serve(peer: Peer) -> None:
        try:
            peer.serve()
        finally:
            ended.set()

    def events(made: World) -> Iterator[bytes]:
        with made.reader(chunk_bytes=50_000) as reader:
            for batch in reader:
                yield from batch.to_list()

    with world(serve) as made:
        found = events(made)
        assert next(found) == EVENTS[0]
        cast("Any", found).close()
        assert ended.wait(30)


def test_a_client_that_is_closed_ends_its_readers() -> None:
    with world(Peer.serve) as made:
        reader = made.reader(chunk_bytes=50_000)
        assert reader.next_batch() is not None

        def closed() -> None:
            raise ClosedError("the client is closed")

        made.core.check_open = closed
        with pytest.raises(ClosedError, match="the client is closed"):
            while reader.next_batch() is not None:
                pass


def test_a_process_that_is_stopped_does_not_blame_its_peer() -> None:
    """The clock jumps by an hour between two batches and within one wait."""
    jump = [0.0]
    real = time.monotonic

    def serve(peer: Peer) -> None:
        while (asked := peer.next_read()) is not None:
            jump[0] += 3600
            peer.send(answer(asked))

    with surroundings(monotonic=lambda: real() + jump[0]), world(serve) as made:
        assert read(made.reader(chunk_bytes=50_000)) == EVENTS
        assert made.connections == 1
