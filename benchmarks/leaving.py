"""How long leaving takes while peers are silent: ``python -m benchmarks.leaving [--limit 6]``.

Each handle is opened and used through a proxy. Then the proxy holds everything that the segment store (or the
controller) sends and is sent, and the handle's block is left, with its client's. A row's last column is the
time from a cancellation on, which comes half a second after the store fell silent: of the scope around the
client, of the asyncio task, and for the blocking client a ``KeyboardInterrupt``. Prints a Markdown table in
seconds. The exit status is 1 if something took one and a half times the limit or 3 s after a cancellation.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import Any
from uuid import uuid4

import trio

from pravega_wire import PravegaConfig, StateFormat, aio, open_client, sync
from pravega_wire.controller.types import KeyValueTableConfiguration
from pravega_wire.errors import PravegaError
from pravega_wire.serializers import Utf8Serializer
from pravega_wire.testing import FaultProxy, standalone

CAUSES = ("silent store", "silent controller", "cancelled")
_CANCEL_AFTER = 0.5
_STATE: StateFormat[str, str] = StateFormat(
    step=lambda state, update: state + update, serializer=Utf8Serializer(), updates=Utf8Serializer()
)

Open = Callable[[Any, AsyncExitStack], Awaitable[Any]]
"""Opens a handle with a client, in a stack. Returns what to await when the peers are silent, or None."""


async def _reader(client: Any, stack: AsyncExitStack) -> None:
    await _readers(client, stack, 1)


async def _three_readers(client: Any, stack: AsyncExitStack) -> None:
    await _readers(client, stack, 3)


async def _readers(client: Any, stack: AsyncExitStack, count: int) -> None:
    group = await stack.enter_async_context(client.reader_group("g"))
    for number in range(count):
        reader = await stack.enter_async_context(group.reader(f"r{number}-{uuid4().hex}"))
        await reader.read_event(0.1)


async def _writer(client: Any, stack: AsyncExitStack) -> Any:
    writer = await stack.enter_async_context(client.event_writer("t"))
    await writer.write_event(b"before")
    await writer.flush()
    return lambda: writer.write_event(b"not acknowledged")


async def _resumable(client: Any, stack: AsyncExitStack) -> Any:
    writer = await stack.enter_async_context(client.resumable_writer("t", uuid4()))
    await writer.write_event(b"before")
    await writer.flush()
    return lambda: writer.write_event(b"not acknowledged")


async def _transaction(client: Any, stack: AsyncExitStack) -> None:
    transaction = await stack.enter_async_context(client.begin_transaction("t"))
    await transaction.write_event(b"before")
    await transaction.flush()


async def _open_transaction(client: Any, stack: AsyncExitStack) -> None:
    transaction = await client.begin_transaction("t")
    await transaction.write_event(b"before")


async def _group(client: Any, stack: AsyncExitStack) -> None:
    await stack.enter_async_context(client.reader_group("g"))


async def _synchronizer(client: Any, stack: AsyncExitStack) -> None:
    state = await stack.enter_async_context(client.state_synchronizer("state", _STATE))
    await state.initialize("")
    await state.update(lambda _: ["x"])


async def _revisioned(client: Any, stack: AsyncExitStack) -> None:
    stream = await stack.enter_async_context(client.revisioned_stream("values"))
    await stream.write_unconditionally(b"x")


async def _table(client: Any, stack: AsyncExitStack) -> None:
    table = await client.key_value_table("table")
    await table.put(b"k", b"v")


async def _byte_writer(client: Any, stack: AsyncExitStack) -> Any:
    writer = await stack.enter_async_context(client.byte_stream_writer("bytes"))
    await writer.write(b"before")
    await writer.flush()
    return lambda: writer.write(b"not acknowledged")


async def _byte_reader(client: Any, stack: AsyncExitStack) -> None:
    reader = await stack.enter_async_context(client.byte_stream_reader("bytes"))
    await reader.receive_some()


async def _ranges(client: Any, stack: AsyncExitStack) -> None:
    ranges = await client.segment_ranges("t")
    batches = await stack.enter_async_context(client.read_ranges(ranges))
    await batches.next_batch()


async def _follower(client: Any, stack: AsyncExitStack) -> None:
    events = await stack.enter_async_context(client.follow_events("t"))
    await events.__anext__()


async def _nothing(client: Any, stack: AsyncExitStack) -> None:
    await client.tail("t")


HANDLES: dict[str, Open] = {
    "reader": _reader,
    "three readers": _three_readers,
    "writer with an unacknowledged event": _writer,
    "resumable writer with an unacknowledged event": _resumable,
    "transaction": _transaction,
    "client with a transaction that was not entered": _open_transaction,
    "reader group": _group,
    "synchronizer": _synchronizer,
    "revisioned stream": _revisioned,
    "table": _table,
    "byte stream reader": _byte_reader,
    "byte stream writer with unacknowledged bytes": _byte_writer,
    "reader of ranges": _ranges,
    "follower": _follower,
    "client": _nothing,
}
FACADES = ("reader", "writer with an unacknowledged event")


class Peers:
    """A server behind two proxies, one for its controller and one for its store."""

    def __init__(self, config: PravegaConfig, limit: float, stack: ExitStack) -> None:
        self.sound = config
        self._controller = stack.enter_context(FaultProxy())
        self._store = stack.enter_context(FaultProxy())
        port = self._controller.endpoint(*config.endpoints[0])
        self.config = replace(config, controller_uri=f"tcp://127.0.0.1:{port}", operation_timeout=limit)
        self.address_map = self._store.address_map

    def silence(self, cause: str) -> None:
        """Say nothing more, and hear nothing."""
        (self._controller if cause == "silent controller" else self._store).pause()

    def resume(self) -> None:
        """End the silence, and what has waited for it."""
        for proxy in (self._controller, self._store):
            proxy.cut_all()
            proxy.resume()


async def prepare(config: PravegaConfig) -> None:
    """Make what the handles use."""
    async with open_client(config) as client:
        await client.create_scope(config.scope or "")
        for stream in ("t", "state", "values", "bytes"):
            await client.create_stream(stream)
        await client.create_key_value_table("table", KeyValueTableConfiguration(1, 1, 0))
        await client.create_reader_group("g", ["t"])
        async with client.event_writer("t") as writer:
            await writer.write_event(b"event")
        async with client.byte_stream_writer("bytes") as sink:
            await sink.write(b"bytes")


async def in_trio(peers: Peers, handle: Open, cause: str) -> float:
    """Return the seconds that leaving takes."""
    began = 0.0
    with suppress(PravegaError), trio.CancelScope() as scope:
        async with (
            open_client(peers.config, address_map=peers.address_map) as client,
            AsyncExitStack() as stack,
        ):
            last = await handle(client, stack)
            peers.silence(cause)
            if last is not None:
                await last()
            began = trio.current_time()
            if cause == "cancelled":
                began += _CANCEL_AFTER
                scope.deadline = began
                await trio.sleep_forever()
    return trio.current_time() - began


def in_asyncio(peers: Peers, handle: Open, cause: str) -> float:
    """Return the seconds that leaving takes."""

    async def main() -> float:
        silent = asyncio.Event()

        async def use() -> None:
            async with (
                aio.open_client(peers.config, address_map=peers.address_map) as client,
                AsyncExitStack() as stack,
            ):
                last = await handle(client, stack)
                peers.silence(cause)
                if last is not None:
                    await last()
                silent.set()
                if cause == "cancelled":
                    await asyncio.sleep(3600)

        task = asyncio.ensure_future(use())
        await silent.wait()
        began = time.monotonic()
        if cause == "cancelled":
            await asyncio.sleep(_CANCEL_AFTER)
            began = time.monotonic()
            task.cancel()
        await asyncio.wait([task])
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, PravegaError):
            raise error
        return time.monotonic() - began

    return asyncio.run(main())


def in_blocking(peers: Peers, name: str, cause: str) -> float:
    """Return the seconds that leaving takes."""
    began = 0.0
    with suppress(PravegaError, KeyboardInterrupt):
        with (
            sync.open_client(peers.config, address_map=peers.address_map) as client,
            ExitStack() as stack,
        ):
            if name == "reader":
                group = stack.enter_context(client.reader_group("g"))
                stack.enter_context(group.reader(f"r-{uuid4().hex}")).read_event(0.1)
                peers.silence(cause)
            else:
                writer = stack.enter_context(client.event_writer("t"))
                writer.write_event(b"before").wait()
                peers.silence(cause)
                writer.write_event(b"not acknowledged")
            if cause == "cancelled":
                time.sleep(_CANCEL_AFTER)
            began = time.monotonic()
            if cause == "cancelled":
                raise KeyboardInterrupt
    return time.monotonic() - began


@asynccontextmanager
async def resumed(peers: Peers) -> AsyncIterator[None]:
    """Let the peers answer after the block, and take the readers out that are left."""
    try:
        yield
    finally:
        peers.resume()
        async with open_client(peers.sound) as client, client.reader_group("g") as group:
            for reader in list(group.online_readers):
                await group.reader_offline(reader)


async def measure(peers: Peers) -> dict[str, list[float]]:
    """Return the times of each handle, in the order of :data:`CAUSES`."""
    rows: dict[str, list[float]] = {}
    for name, handle in HANDLES.items():
        for cause in CAUSES:
            async with resumed(peers):
                rows.setdefault(name, []).append(await in_trio(peers, handle, cause))
    for name in FACADES:
        for cause in CAUSES:
            async with resumed(peers):
                taken = await trio.to_thread.run_sync(in_blocking, peers, name, cause)
                rows.setdefault(f"{name}, blocking", []).append(taken)
    for name in FACADES:
        for cause in CAUSES:
            async with resumed(peers):
                taken = await trio.to_thread.run_sync(in_asyncio, peers, HANDLES[name], cause)
                rows.setdefault(f"{name}, asyncio", []).append(taken)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description="Measures how long leaving takes while peers are silent.")
    parser.add_argument("--limit", type=float, default=6.0, help="operation_timeout, seconds (default 6)")
    limit = parser.parse_args().limit
    with ExitStack() as stack:
        server = stack.enter_context(standalone())
        config = server.config(f"leaving-{uuid4().hex[:8]}")
        trio.run(prepare, config)
        rows = trio.run(measure, Peers(config, limit, stack))
    print(f"| `operation_timeout` {limit:g} s | {' | '.join(CAUSES)} |")
    print("|---|---:|---:|---:|")
    for name, times in rows.items():
        print(f"| {name} | {' | '.join(f'{each:.1f}' for each in times)} |")
    late = [name for name, times in rows.items() if max(times[:2]) > 1.5 * limit or times[2] > 3.0]
    if late:
        print(f"too long: {', '.join(late)}", file=sys.stderr)
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
