"""Events on their way to the client's thread, when the writer does not take them."""

from __future__ import annotations

from typing import Any, cast

import pytest
import trio

from pravega_wire import sync
from pravega_wire.errors import InvalidArgumentError
from pravega_wire.segment.appender import Ack
from pravega_wire.threads.outbox import Outbox, Promise


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


def test_a_finished_acknowledgement_needs_no_client() -> None:
    gone: Any = None
    sync.Ack(gone, Ack(0)).wait()
