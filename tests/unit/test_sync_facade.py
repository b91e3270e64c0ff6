"""The blocking client: what it exports, and closing it while threads are inside."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

import pravega_wire
from pravega_wire import Opening, PravegaConfig, ingest, open_client, sync
from pravega_wire.errors import ClosedError, InvalidArgumentError
from pravega_wire.schemas import blocking as schemas
from pravega_wire.stream.user_functions import calling_thread
from pravega_wire.sync import client as blocking
from pravega_wire.sync import direct, table_mapping
from pravega_wire.threads.portal import Call, Portal
from tests.threads import in_a_thread

ASYNCHRONOUS = [
    cls for module in (pravega_wire, ingest) for cls in vars(module).values() if hasattr(cls, "__aenter__")
]


@pytest.mark.parametrize("cls", ASYNCHRONOUS, ids=lambda cls: cls.__name__)
def test_what_is_entered_is_closed_by_trio_s_word(cls: type) -> None:
    """``trio.aclose_forcefully`` and ``contextlib.aclosing`` work with all of them."""
    assert not hasattr(cls, "close")
    if cls is not Opening:
        assert inspect.iscoroutinefunction(cls.aclose)  # type: ignore[attr-defined]  # that is what is tested


def test_every_blocking_class_is_exported() -> None:
    """What is public in the modules of the package is public in the package."""
    modules = (blocking, direct, schemas, table_mapping)
    assert sorted(sync.__all__) == sorted({name for module in modules for name in module.__all__})
    for cls in vars(sync).values():
        if inspect.isclass(cls):
            assert cls.__name__ in sync.__all__


@pytest.mark.parametrize("mirror", [blocking.ByteStreamReader, blocking.ByteStreamWriter])
def test_files_take_a_timeout(mirror: type) -> None:
    for name in ("close", "head", "tail"):
        assert inspect.signature(getattr(mirror, name)).parameters["timeout"].default is None


def test_under_asyncio_the_async_client_says_what_to_use() -> None:
    async def main() -> None:
        async with open_client(PravegaConfig.from_defaults(env={})):
            pass

    with pytest.raises(InvalidArgumentError, match=r"pravega_wire\.sync"):
        asyncio.run(main())


# --- closing while other threads are inside -------------------------------------------------------


async def stay(inside: threading.Event) -> None:
    """Never ends by itself; cancelled, it raises a group, as nurseries do."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        nursery.start_soon(trio.sleep_forever)
        inside.set()


@asynccontextmanager
async def never_entered(inside: threading.Event) -> AsyncIterator[None]:
    await stay(inside)
    yield


@asynccontextmanager
async def never_left(inside: threading.Event) -> AsyncIterator[None]:
    yield
    await stay(inside)


@asynccontextmanager
async def left_when(leaving: threading.Event, may_leave: trio.Event) -> AsyncIterator[None]:
    try:
        yield
    finally:
        leaving.set()
        with trio.CancelScope(shield=True):
            await may_leave.wait()


@asynccontextmanager
async def nothing() -> AsyncIterator[None]:
    yield


@pytest.mark.parametrize("what", ["calling", "entering", "leaving"])
def test_a_thread_is_not_told_of_a_cancellation(what: str) -> None:
    portal = Portal("test")
    inside = threading.Event()
    if what == "calling":
        told = in_a_thread(lambda: portal.call(stay, inside))
    elif what == "entering":
        told = in_a_thread(lambda: portal.enter(never_entered(inside)))
    else:
        told = in_a_thread(portal.enter(never_left(inside)).leave)
    assert inside.wait(60)
    portal.close()
    with pytest.raises(ClosedError):
        told.result(60)


def test_an_error_beside_a_cancellation_is_told() -> None:
    async def fails(inside: threading.Event) -> None:
        try:
            await stay(inside)
        except BaseException as error:
            raise BaseExceptionGroup("mine", [error, ValueError("one")]) from None

    portal = Portal("test")
    inside = threading.Event()
    told = in_a_thread(lambda: portal.call(fails, inside))
    assert inside.wait(60)
    portal.close()
    with pytest.raises(ExceptionGroup) as group:
        told.result(60)
    assert [str(each) for each in group.value.exceptions] == ["one"]


def test_nothing_is_entered_once_closing_has_begun() -> None:
    portal = Portal("test")
    client = portal.enter(nothing())
    leaving, may_leave, inside = threading.Event(), trio.Event(), threading.Event()
    held = portal.enter(left_when(leaving, may_leave))
    calling = in_a_thread(lambda: portal.call(stay, inside))
    assert inside.wait(60)
    closing = in_a_thread(lambda: portal.break_off(but=client))
    assert leaving.wait(60)
    for _ in range(3):
        with pytest.raises(ClosedError):
            portal.enter(nothing())
        with pytest.raises(ClosedError):
            portal.call(trio.sleep, 0)
    with pytest.raises(ClosedError):
        calling.result(60)
    assert not closing.done()
    portal.soon(may_leave.set)
    assert closing.result(60) is None
    held.leave()
    assert portal.held == [client]
    client.leave()
    assert portal.held == []
    portal.close()
    with pytest.raises(ClosedError):
        portal.enter(nothing())


def test_many_threads_enter_while_one_closes() -> None:
    """Each is held and left, or refused; none hangs, and nothing stays entered."""
    for _ in range(20):
        portal = Portal("test")
        client = portal.enter(nothing())
        entered: list[str] = []
        begun = threading.Semaphore(0)

        @asynccontextmanager
        async def counted(entered: list[str] = entered) -> AsyncIterator[None]:
            entered.append("in")
            try:
                yield
            finally:
                entered.append("out")

        def enter_on(
            portal: Portal = portal, begun: threading.Semaphore = begun, make: Callable[[], object] = counted
        ) -> None:
            while True:
                held: Any = portal.enter(make())  # type: ignore[arg-type]
                begun.release()
                held.leave()

        threads = [in_a_thread(enter_on) for _ in range(4)]
        for _ in range(8):
            assert begun.acquire(timeout=60)
        portal.break_off(but=client)
        assert portal.held == [client]
        client.leave()
        portal.close()
        for thread in threads:
            with pytest.raises(ClosedError):
                thread.result(60)
        assert entered.count("in") == entered.count("out") > 0


class InterruptedPortal(Portal):
    """Ctrl-C comes as soon as a call has ended, while :attr:`comes` is True."""

    comes = False

    def call(self, *args: Any, **kwargs: Any) -> Any:
        result = super().call(*args, **kwargs)
        if self.comes:
            raise KeyboardInterrupt
        return result


@pytest.mark.parametrize("what", ["entering", "entered", "leaving fails"])
def test_what_was_being_entered_at_ctrl_c_is_left(what: str) -> None:
    left = threading.Event()

    @asynccontextmanager
    async def manager() -> AsyncIterator[None]:
        try:
            if what == "entering":
                await trio.sleep_forever()
            yield
        finally:
            left.set()
            if what == "leaving fails":
                raise ValueError("another error")

    portal = InterruptedPortal("test")
    portal.comes = True
    with pytest.raises(KeyboardInterrupt):
        portal.enter(manager())
    portal.comes = False
    assert left.wait(60)
    # It has said so in its last step.
    while portal.held:
        portal.call(trio.sleep, 0)
    held = portal.enter(nothing())
    held.leave()
    portal.close()


def test_a_result_is_taken_although_the_thread_comes_for_it_late() -> None:
    """As when a process is stopped: the call has ended in time, and its thread looks up much later."""
    portal = Portal("test")

    async def ends_before_its_function() -> str:
        call = calling_thread.get()
        assert isinstance(call, Call)
        begun = trio.Event()

        def late() -> None:
            portal.soon(begun.set)
            while not call.ended:
                portal.call(trio.sleep, 0)
            # Longer than the calling thread waits after the time limit.
            time.sleep(3)

        with trio.CancelScope(shield=True):
            call.ask(late)
            await begun.wait()
        return "in time"

    assert portal.carry_out(None, 0, ends_before_its_function) == "in time"
    portal.close()
