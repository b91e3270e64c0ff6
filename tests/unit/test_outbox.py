"""Events on their way to the client's thread, when the writer does not take them."""

from __future__ import annotations

import sys
from typing import Any, cast

import pytest
import trio

from pravega_wire import sync
from pravega_wire.errors import InvalidArgumentError
from pravega_wire.segment.appender import Ack
from pravega_wire.threads.outbox import Outbox, Promise
from tests.unit.test_interrupted_readers import Interrupt


class Portal:
    """The client's thread, which is this one."""

    open = True

    def __init__(self, nursery: trio.Nursery) -> None:
        self.start_soon = nursery.start_soon

    def soon(self, function: Any) -> None:
        function()


class Unhashable(str):
    """A routing key that the writer cannot look up."""

    __slots__ = ()

    __hash__ = None  # type: ignore[assignment]  # that is what is tested


class Incomparable(str):
    """A routing key that cannot be compared with others."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        raise ZeroDivisionError


@pytest.mark.parametrize(("kind", "cause"), [(Unhashable, TypeError), (Incomparable, ZeroDivisionError)])
async def test_an_error_of_the_user_s_class_fails_the_writer_and_not_the_client(
    kind: type[str], cause: type[Exception]
) -> None:
    async def write(events: list[bytes], keys: Any) -> Ack:
        await trio.lowlevel.checkpoint()
        hash(keys[0])
        return Ack(0)

    async with trio.open_nursery() as nursery:
        portal = cast("Any", Portal(nursery))
        outbox: Outbox[Promise] = Outbox(portal, "s/t", write, lambda: (0, 0), lambda promise: promise)
        promises = [outbox.put(b"1", kind("a")), outbox.put(b"2", "b")]
        for promise in promises:
            assert promise is not None
            with pytest.raises(InvalidArgumentError, match="the writer of s/t were refused") as caught:
                await promise.wait()
            assert isinstance(caught.value.__cause__, cause)
        with pytest.raises(InvalidArgumentError, match="the writer of s/t were refused"):
            outbox.put(b"3", "b")


@pytest.mark.parametrize("more", [False, True])
async def test_an_interrupt_anywhere_in_a_call_does_not_stop_the_writer(more: bool) -> None:
    """The event is written or not, with its own key, and so is every other one."""
    n, interrupted = 0, True
    while interrupted:
        written: list[tuple[bytes, str]] = []

        async def write(events: list[bytes], keys: Any, written: list[tuple[bytes, str]] = written) -> Ack:
            await trio.lowlevel.checkpoint()
            assert events
            keys = [keys] * len(events) if isinstance(keys, str) else keys
            written += zip(events, keys, strict=True)
            return Ack(0)

        async with trio.open_nursery() as nursery:
            portal = cast("Any", Portal(nursery))
            # Not at once: the client's thread is not interrupted.
            soon: list[Any] = []
            portal.soon = soon.append
            outbox: Outbox[Promise] = Outbox(portal, "s/t", write, lambda: (0, 0), lambda promise: promise)
            interrupted = False
            put = outbox.put
            sys.setprofile(Interrupt(n))
            try:
                put(b"1", "a")
            except KeyboardInterrupt:
                interrupted = True
            finally:
                sys.setprofile(None)
            if more:
                assert outbox.put(b"2", "b") is not None
            for begin in soon:
                begin()
            await outbox.settled()
        rest = [(b"2", "b")] if more else []
        assert written in ([rest, [(b"1", "a"), *rest]] if interrupted else [[(b"1", "a"), *rest]]), n
        n += 1
    assert n > 2


def test_a_finished_acknowledgement_needs_no_client() -> None:
    gone: Any = None
    sync.Ack(gone, Ack(0)).wait()
