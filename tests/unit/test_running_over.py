"""Functions over the trio client that blocking and asyncio programs run by ``client.run``. No server."""

from __future__ import annotations

import ast
import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.lowlevel

import pravega_wire
from pravega_wire import aio, sync
from pravega_wire.errors import ArgumentTypeError, ClosedError

URI = "tcp://127.0.0.1:1"
PACKAGE = Path(pravega_wire.__file__).parent

Run = Callable[..., Any]


@contextmanager
def blocking() -> Iterator[Run]:
    with sync.open_client(URI, scope="s") as client:
        yield client.run


@contextmanager
def asyncio_too() -> Iterator[Run]:
    with asyncio.Runner() as runner:
        client = runner.run(opened())
        yield lambda *args, **kwargs: runner.run(client.run(*args, **kwargs))
        runner.run(client.aclose())


async def opened() -> aio.PravegaClient:
    return await aio.open_client(URI, scope="s")


@pytest.fixture(params=[blocking, asyncio_too])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    with request.param() as run:
        yield run


def test_a_function_runs_over_the_trio_client(run: Run) -> None:
    async def work(client: pravega_wire.PravegaClient, first: int, *, second: int) -> list[object]:
        await trio.lowlevel.checkpoint()
        assert isinstance(client, pravega_wire.PravegaClient)
        return [threading.current_thread(), client.config.scope, first + second]

    thread, scope, total = run(work, 1, second=2)
    assert thread is not threading.current_thread()
    assert (scope, total) == ("s", 3)


def test_functions_that_it_passes_on_run_in_the_same_thread(run: Run) -> None:
    from pravega_wire.stream.user_functions import in_caller

    async def work(client: pravega_wire.PravegaClient) -> bool:
        return await in_caller(threading.current_thread) is threading.current_thread()

    assert run(work)


def test_an_error_of_the_function_is_raised_as_it_is(run: Run) -> None:
    async def work(client: pravega_wire.PravegaClient) -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        run(work)


def test_what_is_no_async_function_is_refused(run: Run) -> None:
    async def work(client: object = None) -> None:
        pass

    def plain(client: object) -> int:
        return 1

    with pytest.raises(ArgumentTypeError, match="plain is not one"):
        run(plain)
    with pytest.raises(ArgumentTypeError, match="not 'archive'"):
        run("archive")
    with pytest.raises(ArgumentTypeError, match=r"pass the function and its arguments, as in client\.run"):
        run(work())


def test_closing_the_client_ends_the_function() -> None:
    client = sync.open_client(URI)
    begun, ended = threading.Event(), threading.Event()

    async def work(client: pravega_wire.PravegaClient) -> None:
        begun.set()
        try:
            await trio.sleep_forever()
        finally:
            ended.set()

    def closed() -> None:
        with pytest.raises(ClosedError):
            client.run(work)

    thread = threading.Thread(target=closed)
    thread.start()
    assert begun.wait(60)
    client.close()
    thread.join(60)
    assert ended.is_set()


def test_a_cancelled_task_ends_the_function() -> None:
    async def main() -> None:
        begun, ended = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        async def work(client: pravega_wire.PravegaClient) -> None:
            loop.call_soon_threadsafe(begun.set)
            try:
                await trio.sleep_forever()
            finally:
                ended.set()

        async with aio.open_client(URI) as client:
            task = asyncio.ensure_future(client.run(work))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert ended.is_set()

    asyncio.run(main())


# --- the one way in ---------------------------------------------------------------------------------

INSIDE = {"_core", "_twin", "_portal", "_call"}
ROOMS = ("archive", "cli", "dissect", "ingest", "schemas", "testing")


def test_other_rooms_use_no_private_names_of_the_client() -> None:
    found = []
    folders = [*(PACKAGE / each for each in ROOMS), PACKAGE.parent / "spark_adapter"]
    files = [path for folder in folders for path in folder.rglob("*.py")]
    assert len(files) > 80
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Attribute)
                and node.attr in INSIDE
                and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
            ):
                found.append(f"{path.relative_to(PACKAGE.parent)}:{node.lineno}: {ast.unparse(node)}")
    assert found == []
