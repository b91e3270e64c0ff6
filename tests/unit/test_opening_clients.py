"""Opening and closing clients, with and without a block, and at any moment of an interrupt. No server."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import trio

from pravega_wire import PravegaClient, aio, open_client, sync
from pravega_wire.errors import ClosedError, InvalidArgumentError
from tests.inside import portal_of

ROOT = Path(__file__).resolve().parents[2]
URI = "tcp://127.0.0.1:1"


def clients_threads() -> set[threading.Thread]:
    """The threads of clients that were opened since the test began.

    Tests of the adapter that ran in this process before may have left clients for tests that follow.
    """
    found = {each for each in threading.enumerate() if each.name.startswith("pravega client")}
    return found - clients_at_first


def threads() -> int:
    """The threads that the system knows: an interrupt while one is started leaves Python's list wrong."""
    return len(os.listdir("/proc/self/task"))


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    """Every client's thread ends, and what it had open is closed."""
    files = open_files()
    # Not when this module is imported: others make threads of their own after that.
    at_first.append(threads())
    clients_at_first.clear()
    clients_at_first.update(clients_threads())
    # Each collection would go through all that this process has kept: most of the time of a test.
    gc.freeze()
    yield
    ended()
    gc.unfreeze()
    assert open_files() == files


def ended() -> None:
    """Wait until no thread of a client is left."""
    until = time.monotonic() + 60
    while threads() > at_first[-1]:
        gc.collect()
        assert time.monotonic() < until, threading.enumerate()
        time.sleep(0.0005)


def dropped(only: list[Any]) -> None:
    """Drop the only reference to an object, and wait until its client has ended."""
    only.clear()
    ended()


at_first: list[int] = []
"""The number of threads when the last test began."""
clients_at_first: set[threading.Thread] = set()
"""The threads of clients that ran then."""


# --- without a block --------------------------------------------------------------------------------


def test_a_blocking_client_is_opened_and_closed() -> None:
    client = sync.open_client(URI, scope="s")
    assert client.config.scope == "s"
    assert "open" in repr(client)
    client.close()
    client.close()
    assert clients_threads() == set()
    with pytest.raises(ClosedError):
        client.list_scopes()
    with pytest.raises(ClosedError), client:
        pass


def test_a_blocking_client_may_be_entered() -> None:
    with sync.open_client(URI) as client, client:
        assert client.metrics() is not None
    assert clients_threads() == set()
    client.close()
    with pytest.raises(ValueError, match="mine"), sync.open_client(URI):
        raise ValueError("mine")


def test_several_threads_close_a_client() -> None:
    client = sync.open_client(URI)
    closing = [threading.Thread(target=client.close) for _ in range(4)]
    for each in closing:
        each.start()
    for each in closing:
        each.join(60)
        assert not each.is_alive()
    assert clients_threads() == set()


def test_an_asyncio_client_is_opened_and_closed() -> None:
    async def main() -> None:
        client = await aio.open_client(URI, scope="s")
        assert client.config.scope == "s"
        await client.aclose()
        await client.aclose()
        assert clients_threads() == set()
        with pytest.raises(ClosedError):
            await client.list_scopes()
        with pytest.raises(ClosedError):
            async with client:
                pass
        async with aio.open_client(URI) as client, client:
            assert client.metrics() is not None
        await client.aclose()
        client = await aio.open_client(URI)
        await asyncio.gather(*[client.aclose() for _ in range(4)])
        assert clients_threads() == set()

    asyncio.run(main())


def test_a_trio_client_says_how_it_is_opened() -> None:
    async def main() -> None:
        with pytest.raises(InvalidArgumentError, match=r"async with open_client\(...\) as client"):
            await open_client(URI)
        with pytest.raises(InvalidArgumentError, match=r"used \(create_scope\)"):
            open_client(URI).create_scope("s")  # type: ignore[attr-defined]
        assert not hasattr(open_client(URI), "something")
        async with open_client(URI) as client:
            assert "open" in repr(client)

    trio.run(main)


def test_what_open_client_returns_is_entered_once() -> None:
    async def on_trio() -> None:
        opened = open_client(URI)
        async with opened:
            with pytest.raises(ClosedError, match="call open_client again"):
                await opened.__aenter__()
        with pytest.raises(ClosedError, match="call open_client again"):
            await opened.__aenter__()

    async def on_asyncio() -> None:
        opened = aio.open_client(URI)
        async with opened:
            pass
        with pytest.raises(ClosedError, match=r"what open_client\(\) returned was already opened once"):
            await opened.__aenter__()

    trio.run(on_trio)
    asyncio.run(on_asyncio())


def test_an_asyncio_client_needs_its_loop() -> None:
    loop = asyncio.new_event_loop()
    client = loop.run_until_complete(aio.open_client(URI))
    with pytest.raises(InvalidArgumentError, match="belongs to an event loop, and none is running here"):
        client.list_scopes().send(None)
    loop.run_until_complete(client.aclose())
    loop.close()


def test_an_asyncio_client_under_trio_says_which_one_to_use() -> None:
    async def main() -> None:
        with pytest.raises(InvalidArgumentError, match=r"In a trio program use pravega_wire\.open_client"):
            await aio.open_client(URI)
        with pytest.raises(InvalidArgumentError, match=r"outside asyncio"):
            async with aio.open_client(URI):
                pass

    trio.run(main)


def test_a_trio_client_under_asyncio_says_which_one_to_use() -> None:
    async def main() -> None:
        with pytest.raises(InvalidArgumentError, match=r"use pravega_wire\.aio\.open_client"):
            async with open_client(URI):
                pass

    asyncio.run(main())


# --- clients that were not closed -------------------------------------------------------------------


def test_a_blocking_client_that_is_dropped_says_so() -> None:
    refs = [sync.open_client(URI)]
    line = sys._getframe().f_lineno - 1
    with pytest.warns(ResourceWarning, match=rf"the client of {URI} was not closed") as warned:
        dropped(refs)
    assert [(each.filename, each.lineno) for each in warned] == [(__file__, line)]


def test_an_asyncio_client_that_is_dropped_says_so() -> None:
    async def main() -> None:
        refs = [await aio.open_client(URI)]
        line = sys._getframe().f_lineno - 1
        with pytest.warns(ResourceWarning, match=rf"the client of {URI} was not closed") as warned:
            dropped(refs)
        assert [(each.filename, each.lineno) for each in warned] == [(__file__, line)]

    asyncio.run(main())


@pytest.mark.parametrize(
    "make", [lambda client: client.read_events("s/t"), lambda client: client.follow_events("s/t")]
)
def test_what_was_made_with_a_client_keeps_it_open(make: Callable[[Any], Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        refs = [make(sync.open_client(URI))]
        gc.collect()
        assert portal_of(refs[0]).portal.open
    with pytest.warns(ResourceWarning, match="was not closed"):
        dropped(refs)


@pytest.mark.parametrize(
    ("option", "said"),
    [("-Wignore", ""), ("-Wdefault", "ResourceWarning: the client of tcp://127.0.0.1:1 was not closed")],
)
@pytest.mark.parametrize("facade", ["sync", "aio"])
def test_a_program_ends_with_a_client_open(facade: str, option: str, said: str) -> None:
    program = {
        "sync": f"from pravega_wire import sync\nclient = sync.open_client({URI!r})\n",
        "aio": "import asyncio\nfrom pravega_wire import aio\nkept = []\n"
        f"async def main(): kept.append(await aio.open_client({URI!r}))\nasyncio.run(main())\n",
    }[facade]
    done = subprocess.run(
        [sys.executable, option, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        check=True,
    )
    assert done.stderr.startswith("<string>:") if said else done.stderr == ""
    assert said in done.stderr


# --- interrupts -------------------------------------------------------------------------------------


class Interrupted(BaseException):
    pass


def use_blocking() -> None:
    with sync.open_client(URI) as client:
        assert client.config is not None


class InterruptAt:
    """Raises in this thread at the n-th line that the package runs, with what it calls.

    :ivar raised: whether there were as many lines.
    """

    def __init__(self, number: int) -> None:
        self._left = number
        self.raised = False

    def trace(self, frame: FrameType, event: str, _: object) -> Any:
        file = frame.f_code.co_filename
        # Not in threading: Python itself loses a thread that is interrupted while it starts.
        if self.raised or not ("pravega_wire" in file or file == __file__):
            return None
        if event == "line":
            self._left -= 1
            if self._left == 0:
                self.raised = True
                raise Interrupted
        return self.trace


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_an_interrupt_at_each_line_of_opening_and_closing() -> None:
    number = 0
    while True:
        number += 1
        at = InterruptAt(number)
        before = sys.gettrace()
        sys.settrace(at.trace)
        try:
            use_blocking()
        except Interrupted:
            pass
        finally:
            sys.settrace(before)
        ended()
        if not at.raised:
            break
    # Fewer would mean that the lines are no longer seen.
    assert number > 100


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_an_asyncio_task_is_cancelled_at_each_step_of_opening_and_closing() -> None:
    steps = 0

    async def use() -> None:
        async with aio.open_client(URI) as client:
            await asyncio.sleep(0)
            assert client.config is not None

    async def main(after: int) -> bool:
        """Cancel after as many turns of the loop. Return whether it was still running."""
        task = asyncio.ensure_future(use())
        for _ in range(after):
            if task.done():
                break
            await asyncio.sleep(0)
        running = not task.done()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() or task.exception() is None
        return running

    while asyncio.run(main(steps)):
        ended()
        steps += 1 if steps < 50 else 50
    assert steps > 3


@pytest.mark.parametrize("kind", [PravegaClient, sync.PravegaClient, aio.PravegaClient])
def test_a_client_is_not_made_by_its_class(kind: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"made by open_client\(\)"):
        kind(URI)
