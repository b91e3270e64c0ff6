"""A web service that appends posted data to streams, and sends appended events as server-sent events.

``POST /streams/NAME?key=KEY`` appends the body as one event and responds when it is stored; the stream is
created if it does not exist. ``GET /streams/NAME`` sends every event that any writer appends from then on,
until the client disconnects. Each listener has its own reader group, which is deleted afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from uuid import uuid4

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from pravega_wire import EventBatch, PravegaConfig
from pravega_wire.aio import EventWriter, PravegaClient, open_client
from pravega_wire.errors import EventTooLargeError, InvalidArgumentError, StreamNotFoundError

__all__ = ["create_app"]


class Streams:
    """The service's client and writers, which stay open between requests."""

    def __init__(self, client: PravegaClient, stack: AsyncExitStack) -> None:
        self.client = client
        self._stack = stack
        self._writers: dict[str, EventWriter] = {}
        self._opening = asyncio.Lock()

    async def writer(self, stream: str) -> EventWriter:
        """Return the writer of a stream; create the stream if it does not exist."""
        async with self._opening:
            if stream not in self._writers:
                await self.client.create_stream(stream, 1)
                writer = self.client.event_writer(stream)
                self._writers[stream] = await self._stack.enter_async_context(writer)
        return self._writers[stream]


def create_app(config: PravegaConfig) -> Starlette:
    """Create the service. It opens its client when it starts, and closes it when it ends.

    :param config: connection settings with a default scope, which is created if it does not exist.
    """

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[dict[str, Streams]]:
        async with open_client(config) as client, AsyncExitStack() as stack:
            assert config.scope is not None
            await client.create_scope(config.scope)
            yield {"streams": Streams(client, stack)}

    routes = [
        Route("/streams/{stream}", append, methods=["POST"]),
        Route("/streams/{stream}", listen, methods=["GET"]),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


async def append(request: Request) -> Response:
    """Append the body as one event; respond with 201 when it is stored."""
    streams: Streams = request.state.streams
    try:
        writer = await streams.writer(request.path_params["stream"])
        ack = await writer.write_event(await request.body(), request.query_params.get("key"))
    except (EventTooLargeError, InvalidArgumentError) as error:
        return JSONResponse({"error": str(error)}, status_code=400)
    await ack.wait()
    return JSONResponse({"stored": True}, status_code=201)


async def listen(request: Request) -> Response:
    """Send the events that are appended from now on."""
    streams: Streams = request.state.streams
    stream = request.path_params["stream"]
    try:
        start = await streams.client.tail(stream)
    except StreamNotFoundError as error:
        return JSONResponse({"error": str(error)}, status_code=404)
    group = f"web-{uuid4().hex}"
    await streams.client.create_reader_group(group, [start])
    return EventStream(streams.client, group)


class EventStream(Response):
    """Server-sent events: the events that a reader group reads, until the client disconnects."""

    media_type = "text/event-stream"

    def __init__(self, client: PravegaClient, group: str) -> None:
        super().__init__(headers={"cache-control": "no-store"})
        # The response has no fixed length.
        del self.headers["content-length"]
        self._client = client
        self._group = group

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events, and wait for the end of the connection at the same time."""
        try:
            async with asyncio.TaskGroup() as tasks:
                sending = tasks.create_task(self._send_all(send))
                while (await receive())["type"] != "http.disconnect":
                    pass
                sending.cancel()
        finally:
            await self._client.delete_reader_group(self._group)

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": b": listening\n\n", "more_body": True})
        async with (
            await self._client.reader_group(self._group) as group,
            group.reader("listener") as reader,
        ):
            async for batch in reader.batches():
                # This waits for a slow client, so read-ahead stays bounded.
                await send({"type": "http.response.body", "body": as_messages(batch), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def as_messages(batch: EventBatch) -> bytes:
    """Convert events to messages; the id of each is its event pointer."""
    messages = []
    for pointer, payload in zip(batch.pointers(), batch, strict=True):
        lines = payload.decode(errors="replace").splitlines() or [""]
        data = "".join(f"data: {line}\n" for line in lines)
        messages.append(f"id: {pointer}\n{data}\n")
    return "".join(messages).encode()
