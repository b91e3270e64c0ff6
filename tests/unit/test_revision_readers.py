"""Reading values of a revisioned stream, in the three clients: what errors and interrupts leave."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
import trio

from pravega_wire import aio, sync
from pravega_wire.aio.portal import Portal as LoopPortal
from pravega_wire.errors import ClosedError, PravegaTimeoutError
from pravega_wire.protocol.events import EventBatch, frame_event, parse_events
from pravega_wire.serializers import BytesSerializer
from pravega_wire.stream.revisioned import RevisionReader
from pravega_wire.threads.portal import Portal

SEGMENT = "scope/stream/0.#epoch.0"


class Numbers:
    """A serializer of numbers as decimal text. Other bytes are no values."""

    def serialize(self, value: int) -> bytes:
        return b"%d" % value

    def deserialize(self, payload: bytes) -> int:
        if payload in (b"StopIteration", b"StopAsyncIteration"):
            raise getattr(builtins, payload.decode())
        return int(payload)


class Batches:
    """Gives out batches as a range's reader does.

    :param batches: payloads of each; None for one that does not arrive while the caller waits.
    """

    def __init__(self, *batches: list[bytes] | None) -> None:
        self.batches = list(batches)
        self.closed = trio.Event()

    async def next_batch(self) -> EventBatch | None:
        await trio.lowlevel.checkpoint()
        if not self.batches:
            return None
        payloads = self.batches.pop(0)
        if payloads is None:
            await trio.sleep_forever()
            raise AssertionError
        return parse_events(b"".join(map(frame_event, payloads)))[0]

    def close_nowait(self) -> None:
        self.closed.set()

    async def aclose(self) -> None:
        self.close_nowait()
        await trio.lowlevel.checkpoint()


@contextmanager
def blocking(source: Batches, timeout: float | None = None) -> Iterator[sync.RevisionReader[int]]:
    portal = Portal("test client")
    try:
        twin = RevisionReader(cast("Any", source), SEGMENT, BytesSerializer())
        yield sync.RevisionReader(portal, twin, Numbers(), timeout)
    finally:
        portal.close()


def test_a_blocking_iterator_goes_on_after_a_time_limit() -> None:
    with blocking(Batches([b"1"], None, [b"2", b"3"], None, [b"4"]), 0.05) as reader:
        found: list[int | None] = []
        while len(found) < 6:
            try:
                found.append(next(reader)[1])
            except PravegaTimeoutError:
                found.append(None)
        assert found == [1, None, 2, 3, None, 4]
        assert list(reader) == list(reader) == []
        assert reader.next_value() is None


def test_a_blocking_iterator_goes_on_after_a_bad_value() -> None:
    with blocking(Batches([b"1", b"bad", b"3"])) as reader:
        assert next(reader)[1] == 1
        with pytest.raises(ValueError, match="bad"):
            next(reader)
        assert [value for _, value in reader] == [3]


def test_a_closed_blocking_iterator_is_not_at_its_end() -> None:
    with blocking(Batches([b"1", b"2"])) as reader:
        assert next(reader)[1] == 1
        reader.close()
        for _ in range(2):
            with pytest.raises(ClosedError):
                next(reader)


def test_a_blocking_loop_that_is_left_closes_the_reader() -> None:
    source = Batches([b"1", b"2"])
    portal = Portal("test client")

    def first() -> int:
        twin = RevisionReader(cast("Any", source), SEGMENT, BytesSerializer())
        for _, value in sync.RevisionReader(portal, twin, Numbers()):
            return value
        raise AssertionError

    async def closed() -> None:
        with trio.fail_after(30):
            await source.closed.wait()

    assert first() == 1
    portal.call(closed)
    portal.close()


# --- several values at once -----------------------------------------------------------------------


def results_with_trio(source: Batches, calls: list[str]) -> list[object]:
    reader = RevisionReader(cast("Any", source), SEGMENT, Numbers())
    return trio.run(results, reader, calls)


def results_with_asyncio(source: Batches, calls: list[str]) -> list[object]:
    async def main() -> list[object]:
        portal = LoopPortal()
        try:
            twin = RevisionReader(cast("Any", source), SEGMENT, BytesSerializer())
            return await results(aio.RevisionReader(portal, twin, Numbers()), calls)
        finally:
            await portal.stop()

    return asyncio.run(main())


def results_of_blocking(source: Batches, calls: list[str]) -> list[object]:
    found: list[object] = []
    with blocking(source) as reader:
        for name in calls:
            try:
                found.append(values_of(getattr(reader, name)()))
            except (ValueError, RuntimeError) as error:
                found.append(type(error))
    return found


async def results(reader: Any, calls: list[str]) -> list[object]:
    """What calls of these names give; of an error the type."""
    found: list[object] = []
    for name in calls:
        try:
            found.append(values_of(await getattr(reader, name)()))
        except (ValueError, RuntimeError) as error:
            found.append(type(error))
    return found


def values_of(found: Any) -> object:
    """Values without their revisions."""
    if isinstance(found, list):
        return [value for _, value in found]
    return None if found is None else found[1]


@pytest.mark.parametrize("client", [results_with_trio, results_with_asyncio, results_of_blocking])
def test_a_bad_value_costs_no_others(client: Callable[[Batches, list[str]], list[object]]) -> None:
    batches = [b"1", b"2", b"bad", b"4", b"5"], [b"bad", b"7"]
    assert client(Batches(*batches), ["next_values"] * 6) == [[1, 2], ValueError, [4, 5], ValueError, [7], []]
    one, many = "next_value", "next_values"
    assert client(Batches(*batches), [one, many, one, one, one, one, many, one, many]) == [
        1, [2], ValueError, 4, 5, ValueError, [7], None, [],
    ]  # fmt: skip


@pytest.mark.parametrize("client", [results_with_trio, results_with_asyncio, results_of_blocking])
@pytest.mark.parametrize("error", ["StopIteration", "StopAsyncIteration"])
def test_a_deserializer_cannot_end_an_iteration(
    client: Callable[[Batches, list[str]], list[object]], error: str
) -> None:
    batch = [b"1", error.encode(), b"3"]
    assert client(Batches(batch), ["next_value"] * 4) == [1, RuntimeError, 3, None]


def test_an_interrupted_deserializer_costs_no_values() -> None:
    class Interrupted(Numbers):
        left = 2

        def deserialize(self, payload: bytes) -> int:
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
            return super().deserialize(payload)

    with blocking(Batches([b"1", b"2", b"3"])) as reader:
        reader._serializer = Interrupted()
        with pytest.raises(KeyboardInterrupt):
            reader.next_values()
        assert values_of(reader.next_values()) == [1, 2, 3]


def test_values_that_have_arrived_are_not_given_out_by_a_closed_reader() -> None:
    with blocking(Batches([b"1", b"bad", b"3"])) as reader:
        assert values_of(reader.next_values()) == [1]
        reader.close()
        for call in (reader.next_value, reader.next_values, lambda: next(reader)):
            with pytest.raises(ClosedError):
                call()
