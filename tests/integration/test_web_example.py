"""``examples/web``: a real HTTP server and client, and a real Pravega."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
import uvicorn

from examples.web.app import create_app
from pravega_wire import PravegaConfig, aio


@asynccontextmanager
async def serving(config: PravegaConfig, loop: str) -> AsyncIterator[httpx.AsyncClient]:
    """The service on a free port, and a client of it."""
    server = uvicorn.Server(
        uvicorn.Config(
            create_app(config), port=0, loop=loop, log_level="warning", timeout_graceful_shutdown=5
        )
    )
    task = asyncio.create_task(server.serve())
    while not server.started:
        assert not task.done()
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            yield client
    finally:
        server.should_exit = True
        await task


async def messages(lines: AsyncIterator[str]) -> AsyncIterator[str]:
    """The data of server-sent events."""
    data: list[str] = []
    async for line in lines:
        if line.startswith("data: "):
            data.append(line.removeprefix("data: "))
        elif not line and data:
            yield "\n".join(data)
            data.clear()


async def until_listening(lines: AsyncIterator[str]) -> None:
    assert await anext(lines) == ": listening"


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_what_is_posted_is_streamed(config: PravegaConfig, loop: str) -> None:
    async def main() -> None:
        async with asyncio.timeout(120), serving(config, loop) as http, aio.open_client(config) as client:
            assert (await http.get("/streams/notes")).status_code == 404
            assert (await http.post("/streams/notes", content=b"before")).status_code == 201
            async with http.stream("GET", "/streams/notes") as listening:
                assert listening.headers["content-type"].startswith("text/event-stream")
                lines = listening.aiter_lines()
                await until_listening(lines)
                for text in ("one", "two\nlines", "three"):
                    answer = await http.post("/streams/notes", params={"key": "k"}, content=text.encode())
                    assert answer.status_code == 201
                # Others append to the stream as well.
                async with client.event_writer("notes") as writer:
                    await writer.write_event("vier ✓".encode(), "k")
                found = messages(lines)
                assert [await anext(found) for _ in range(4)] == ["one", "two\nlines", "three", "vier ✓"]
            stored = [event async for batch in client.read_events("notes") for event in batch]
            assert stored == [b"before", b"one", b"two\nlines", b"three", "vier ✓".encode()]
            too_large = await http.post("/streams/notes", content=bytes(8 * 1024 * 1024 + 1))
            assert too_large.status_code == 400

    with asyncio.Runner(loop_factory=uvicorn.Config("", loop=loop).get_loop_factory()) as runner:
        runner.run(main())


def test_a_client_that_hangs_up_in_the_middle(config: PravegaConfig) -> None:
    async def main() -> None:
        async with (
            asyncio.timeout(120),
            serving(config, "asyncio") as http,
            aio.open_client(config) as client,
        ):
            await http.post("/streams/notes", content=b"before")
            async with http.stream("GET", "/streams/notes") as staying:
                lines = staying.aiter_lines()
                await until_listening(lines)
                for _ in range(3):
                    async with http.stream("GET", "/streams/notes") as leaving:
                        other = leaving.aiter_lines()
                        await until_listening(other)
                        assert len(await client.list_reader_groups()) == 2
                        await http.post("/streams/notes", content=b"x" * 100_000)
                        # Hangs up with an event on its way.
                    while len(await client.list_reader_groups()) > 1:
                        await asyncio.sleep(0.02)
                await http.post("/streams/notes", content=b"last")
                found = messages(lines)
                assert [len(await anext(found)) for _ in range(3)] == [100_000] * 3
                assert await anext(found) == "last"
            while await client.list_reader_groups():
                await asyncio.sleep(0.02)

    asyncio.run(main())


def test_a_service_that_ends_closes_its_client(config: PravegaConfig) -> None:
    async def main() -> None:
        async with asyncio.timeout(120), aio.open_client(config) as client:
            async with serving(config, "asyncio") as http:
                await http.post("/streams/notes", content=b"one")
                listening = http.stream("GET", "/streams/notes")
                response = await listening.__aenter__()
                await until_listening(response.aiter_lines())
            # The service has ended although somebody was listening, and has left nothing behind.
            assert await client.list_reader_groups() == []

    asyncio.run(main())
