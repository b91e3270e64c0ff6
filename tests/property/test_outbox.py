"""Single events on their way to the client's thread: none is lost or overtaken, whatever is called."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from pravega_wire.errors import StreamSealedError
from pravega_wire.protocol.append import settle
from pravega_wire.segment.appender import Ack
from pravega_wire.threads.outbox import Outbox, Promise, RoutedCounting
from pravega_wire.threads.portal import Portal

CALLS = st.lists(
    st.one_of(
        # Single events, or several in one call; ...
        st.tuples(st.just("one"), st.integers(1, 40)),
        st.tuples(st.just("many"), st.integers(1, 3)),
        # ... a call that comes after them; what is written until then is stored; or the other thread's turn.
        st.tuples(st.sampled_from(["after", "store", "turn"]), st.just(1)),
    ),
    max_size=25,
)


class Writer:
    """What events are handed to, in the client's thread. :ivar batches: the events of each call."""

    def __init__(self, refuses: int) -> None:
        self.refuses = refuses
        self.batches: list[tuple[list[bytes], Ack]] = []
        self.events = self.bytes = 0

    async def write_events(self, events: list[bytes], keys: object) -> Ack:
        await trio.lowlevel.checkpoint()
        if len(self.batches) == self.refuses:
            raise StreamSealedError("sealed")
        ack = Ack()
        self.batches.append((list(events), ack))
        for event in events:
            # Seen from the other thread, a part of a call may be counted.
            self.events += 1
            self.bytes += len(event)
            await trio.lowlevel.checkpoint()
        return ack

    async def store(self) -> None:
        for _, ack in self.batches:
            if not ack.done:
                settle(ack)
        await trio.lowlevel.checkpoint()

    @property
    def written(self) -> list[bytes]:
        return [event for events, _ in self.batches for event in events]


@contextmanager
def thread() -> Iterator[Portal]:
    portal = Portal("outbox")
    try:
        yield portal
    finally:
        portal.close()


@given(CALLS, st.integers(0, 12) | st.none())
def test_events_stay_in_the_order_of_the_calls(calls: list[tuple[str, int]], refuses: int | None) -> None:
    numbers = count()
    wanted: list[bytes] = []
    promises: list[tuple[bytes, Promise]] = []
    writer = Writer(-1 if refuses is None else refuses)
    with thread() as portal:
        outbox: Outbox[Promise] = Outbox(
            portal, "s/t", writer.write_events, lambda: (writer.events, writer.bytes), lambda promise: promise
        )

        def call(what: str, times: int) -> None:
            if what == "one":
                for _ in range(times):
                    event = b"%d" % next(numbers)
                    promise = outbox.put(event, None)
                    assert promise is not None
                    wanted.append(event)
                    promises.append((event, promise))
                    if refuses is None:
                        # Also while the other thread hands some of them over, and counts them.
                        assert outbox.total() == (len(wanted), sum(map(len, wanted)))
            elif what == "many":
                events = [b"%d" % next(numbers) for _ in range(times)]
                portal.call(outbox.writing(writer.write_events), events, None)
                wanted.extend(events)
            elif what == "after":
                portal.call(outbox.after(trio.lowlevel.checkpoint))
                assert outbox.unwritten() == (0, 0)
                assert writer.written == wanted
            else:
                portal.call(writer.store if what == "store" else trio.lowlevel.checkpoint)

        try:
            for what, times in calls:
                call(what, times)
            call("after", 1)
        except StreamSealedError:
            assert len(writer.batches) == refuses
        else:
            assert writer.written == wanted
        # What was refused is the end: nothing came after it.
        assert writer.written == wanted[: len(writer.written)]
        portal.call(writer.store)
        accepted = set(writer.written)
        for event, promise in promises:
            if event in accepted:
                portal.call(promise.wait)
                assert promise.error is None
            else:
                with pytest.raises(StreamSealedError):
                    portal.call(promise.wait)


def test_an_acknowledgement_is_that_of_its_own_events() -> None:
    writer = Writer(-1)
    with thread() as portal:
        outbox: Outbox[Promise] = Outbox(
            portal, "s/t", writer.write_events, lambda: (writer.events, writer.bytes), lambda promise: promise
        )
        promises: list[tuple[bytes, Promise]] = []
        for number in range(2000):
            event = b"%d" % number
            promise = outbox.put(event, None)
            assert promise is not None
            promises.append((event, promise))
            if number % 100 == 99:
                portal.call(outbox.settled)
        assert len(writer.batches) >= 20
        for events, ack in writer.batches:
            settle(ack)
            stored = set(events)
            for event, promise in promises:
                if event in stored:
                    assert promise.done
            promises = [each for each in promises if each[0] not in stored]
            assert not any(promise.done for _, promise in promises)


def test_what_has_to_go_another_way_is_not_taken() -> None:
    writer = Writer(-1)
    with thread() as portal:
        outbox: Outbox[Promise] = Outbox(
            portal, "s/t", writer.write_events, lambda: (writer.events, writer.bytes), lambda promise: promise
        )
        put = partial(outbox.put, key=None)
        assert put(bytearray(b"1")) is None  # type: ignore[arg-type]
        assert put(bytes(8 * 1024 * 1024 + 1)) is None
        assert outbox.put(b"1", 7) is None  # type: ignore[arg-type]
        assert put(b"1") is not None
        portal.call(outbox.settled)
    assert put(b"2") is None
    assert writer.written == [b"1"]


class Twin:
    """A writer that counts its ten events after its count was read for the second time."""

    bytes_written = 0

    def __init__(self) -> None:
        self._counts = iter([0, 0])

    @property
    def events_written(self) -> int:
        return next(self._counts, 10)


class Facade(RoutedCounting):
    def __init__(self, outbox: Outbox[Promise], twin: Twin) -> None:
        self._outbox, self._twin = outbox, twin


def test_an_event_that_is_being_counted_counts_once() -> None:
    entered, leave = trio.Event(), trio.Event()

    async def write_events(events: list[bytes], keys: object) -> Ack:
        entered.set()
        await leave.wait()
        return Ack()

    twin = Twin()
    with thread() as portal:
        outbox: Outbox[Promise] = Outbox(
            portal, "s/t", write_events, lambda: (twin.events_written, 0), lambda promise: promise
        )
        facade = Facade(outbox, twin)

        async def put_all() -> None:
            # In the client's thread, so that it takes all of them at once.
            for _ in range(10):
                outbox.put(b"", None)
            await entered.wait()

        portal.call(put_all)
        assert (facade._events_written, facade._events_written) == (10, 10)
        portal.soon(leave.set)
        portal.call(outbox.settled)
        assert facade._events_written == 10
