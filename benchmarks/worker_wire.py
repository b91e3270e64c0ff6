"""``pravega_wire`` as a benchmark participant: ``python -m benchmarks.worker_wire URI SCOPE MODE``.

Modes: ``bulk`` (``write_events``; each event read becomes ``bytes``), ``each`` (one ``write_event`` for
each event), ``batches`` (events stay in their batches), ``sync-bulk`` and ``sync-each`` (the blocking
facade).
"""

from __future__ import annotations

import sys

import trio

from benchmarks.work import keys_of, measure, payload_pool, payloads, serve
from pravega_wire import PravegaClient, PravegaConfig, open_client
from pravega_wire import sync as blocking


async def append(
    client: PravegaClient, stream: str, size: int, count: int, keys: int, *, each: bool
) -> dict[str, float]:
    """Append and flush; connecting is part of it only as far as the writer puts it off."""
    async with client.event_writer(stream) as writer:
        if each:
            pool = payload_pool(size)
            names = list(keys_of(keys, keys) or [None])
            with measure() as clock:
                for number in range(count):
                    await writer.write_event(pool[number & 63], names[number % len(names)])
                await writer.flush()
        else:
            with measure() as clock:
                await writer.write_events(payloads(size, count), keys_of(keys, count))
                await writer.flush()
    return clock.answer(count, count * size)


async def read(client: PravegaClient, stream: str, *, batches: bool) -> dict[str, float]:
    """Read everything."""
    events = nbytes = 0
    with measure() as clock:
        async for batch in await client.read_events(stream):
            if batches:
                events += len(batch)
                nbytes += batch.nbytes
            else:
                for payload in batch:
                    events += 1
                    nbytes += len(payload)
    return clock.answer(events, nbytes)


def append_blocking(
    client: blocking.PravegaClient, stream: str, size: int, count: int, keys: int, *, each: bool
) -> dict[str, float]:
    """As :func:`append`, through the facade."""
    with client.event_writer(stream) as writer:
        if each:
            pool = payload_pool(size)
            names = list(keys_of(keys, keys) or [None])
            with measure() as clock:
                for number in range(count):
                    writer.write_event(pool[number & 63], names[number % len(names)])
                writer.flush()
        else:
            with measure() as clock:
                writer.write_events(payloads(size, count), keys_of(keys, count))
                writer.flush()
    return clock.answer(count, count * size)


def read_blocking(client: blocking.PravegaClient, stream: str) -> dict[str, float]:
    """As :func:`read`, through the facade."""
    events = nbytes = 0
    with measure() as clock:
        for batch in client.read_events(stream):
            for payload in batch:
                events += 1
                nbytes += len(payload)
    return clock.answer(events, nbytes)


def main() -> None:
    uri, scope, mode = sys.argv[1:]
    config = PravegaConfig.from_defaults(controller_uri=uri, scope=scope, env={})

    async def run(words: list[str]) -> dict[str, float]:
        # A client for each request, as the other participants have a new writer or reader.
        async with open_client(config) as client:
            if words[0] == "append":
                size, count, keys = map(int, words[2:])
                return await append(client, words[1], size, count, keys, each=mode == "each")
            return await read(client, words[1], batches=mode == "batches")

    def handle(words: list[str]) -> dict[str, float]:
        if not mode.startswith("sync-"):
            return trio.run(run, words)
        with blocking.open_client(config) as client:
            if words[0] == "append":
                size, count, keys = map(int, words[2:])
                return append_blocking(client, words[1], size, count, keys, each=mode == "sync-each")
            return read_blocking(client, words[1])

    serve(handle)


if __name__ == "__main__":
    main()
