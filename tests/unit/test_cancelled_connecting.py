"""Calls that are cancelled while their connection is opened.

trio opens a connection with several tasks and puts even a cancellation into a group, which must not reach the
code that handles a cancellation. Peers are made up and answer nothing, and time is a mock clock's.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

import pytest
import trio
import trio.testing

from pravega_wire.controller.client import open_controller
from pravega_wire.errors import ClosedError, PravegaError
from pravega_wire.metrics import ControllerCalled, Counters
from pravega_wire.protocol import commands as c
from pravega_wire.segment.appender import SegmentAppender, flush
from pravega_wire.segment.store import SegmentStores, SegmentTarget
from pravega_wire.stream.large import append_large_event
from pravega_wire.support.nurseries import look_up_all
from pravega_wire.transport.diagnosis import who_is_silent
from pravega_wire.transport.limits import DEFAULT_LIMITS
from pravega_wire.transport.pool import ConnectionPool
from pravega_wire.transport.stream import connect
from pravega_wire.values.types import ScopedStream

NAME = "scope/stream/0.#epoch.0"
SILENT = "silent.example"


class Hole:
    """A network in which nothing answers. :ivar dialed: the addresses that were tried."""

    def __init__(self) -> None:
        self.dialed: list[tuple[str, int]] = []
        self.dialing = trio.Event()

    def socket(self, *kind: object) -> trio.socket.SocketType:
        hole = self

        class Socket:
            def setsockopt(self, *option: object) -> None:
                pass

            async def connect(self, address: tuple[str, int]) -> None:
                hole.dialed.append(address[:2])
                hole.dialing.set()
                await trio.sleep_forever()

            def close(self) -> None:
                pass

        return cast("trio.socket.SocketType", Socket())

    async def getaddrinfo(self, host: object, port: int, *kind: object) -> list[Any]:
        # Two addresses are tried at the same time, so there are two cancellations.
        addresses = ["192.0.2.1", "192.0.2.2"] if host == SILENT.encode() else [host]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in addresses]

    async def getnameinfo(self, *address: object) -> tuple[str, str]:
        raise AssertionError(address)


def run(main: Callable[[Hole], Awaitable[None]]) -> None:
    async def inside() -> None:
        hole = Hole()
        trio.socket.set_custom_socket_factory(cast("Any", hole))
        trio.socket.set_custom_hostname_resolver(cast("Any", hole))
        with trio.fail_after(1000.0):
            await main(hole)

    trio.run(inside, clock=trio.testing.MockClock(autojump_threshold=0))


async def locate(*names: object) -> tuple[str, int]:
    return SILENT, 1


async def connecting(number: int = 0) -> None:
    await connect(SILENT, 1, timeout=60.0)


async def asking() -> None:
    await who_is_silent(SILENT, 1, tls=False)


async def looking_up() -> None:
    await look_up_all(connecting, range(3))


class CreatingStores(SegmentStores):
    """Answers the first request of a large event, so that its events are appended next."""

    async def call(self, *request: Any, **options: Any) -> Any:
        return c.SegmentCreated(request_id=1, segment=NAME + "#transient")


async def appending_a_large_event() -> None:
    # No connection is made, so the pool starts no task.
    stores = CreatingStores(ConnectionPool(cast("Any", None)), locate, operation_timeout=120.0)
    counts = Counters().writing(ScopedStream("scope", "stream"))
    await append_large_event(stores, SegmentTarget.of(NAME), UUID(int=1), bytes(10), counts, (UUID(int=2), 0))


@pytest.mark.parametrize("call", [connecting, asking, looking_up, appending_a_large_event])
def test_a_cancellation_is_no_group(call: Callable[[], Awaitable[None]]) -> None:
    raised: list[type[BaseException]] = []

    async def main(hole: Hole) -> None:
        with trio.move_on_after(1.0) as scope:
            try:
                await call()
            except BaseException as error:
                raised.append(type(error))
                raise
        assert scope.cancelled_caught
        assert len(hole.dialed) >= 2

    run(main)
    assert raised == [trio.Cancelled]


def test_a_cancelled_call_goes_on_with_the_next_address() -> None:
    observed: list[object] = []

    async def main(hole: Hole) -> None:
        addresses = [("192.0.2.1", 1), ("192.0.2.2", 2)]
        async with open_controller(addresses, counters=Counters(observed.append)) as controller:
            for _ in range(3):
                with trio.move_on_after(1.0) as scope:
                    await controller.create_scope("scope")
                assert scope.cancelled_caught
        assert hole.dialed == [addresses[0], addresses[1], addresses[0]]

    run(main)
    calls = [each for each in observed if isinstance(each, ControllerCalled)]
    assert [each.error for each in calls] == ["Cancelled"] * 3


class Owner:
    def failed(self, appender: SegmentAppender, error: PravegaError) -> None:
        appender.fail(error)


def test_leaving_the_client_fails_what_waits_for_a_connection() -> None:
    """The tasks that wait are outside of the client, so its end does not cancel them."""
    failures: list[PravegaError] = []

    async def main(hole: Hole) -> None:
        async def wait(done: Awaitable[None]) -> None:
            with pytest.raises(ClosedError) as caught:
                await done
            failures.append(caught.value)

        async with trio.open_nursery() as outside:
            async with trio.open_nursery() as client:
                limits = replace(DEFAULT_LIMITS, connect=60.0)
                stores = SegmentStores(ConnectionPool(client, limits=limits), locate, operation_timeout=120.0)
                appender = SegmentAppender(stores, SegmentTarget.of(NAME), cast("Any", Owner()))
                client.start_soon(appender.run)
                appender.appends.open.put([bytes(16)], [None], 16, 1)
                flushed = flush([appender])
                outside.start_soon(wait, flushed.wait())
                await hole.dialing.wait()
                client.cancel_scope.cancel()

    run(main)
    assert [type(each) for each in failures] == [ClosedError]
