"""``pravega_wire`` as a benchmark participant: ``python -m benchmarks.worker_wire URI SCOPE MODE``.

Modes: ``bulk`` (``write_events``; each event read becomes ``bytes``), ``each`` (one ``write_event`` for
each event), ``batches`` (events stay in their batches), ``arrow`` (a batch becomes an Arrow array),
``payloads`` (of a group: the ``bytes`` of events that stay in their batches), ``nowait`` (of a group:
event by event, those at hand without an ``await`` for each), ``sync-bulk`` and ``sync-each`` (the
blocking facade).
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from time import perf_counter_ns
from uuid import uuid4

import trio

from benchmarks.work import (
    COUNTER_BYTES,
    POOL,
    Latencies,
    keys_of,
    measure,
    payload_pool,
    payloads,
    serve,
    times,
    total_bytes,
)
from pravega_wire import (
    EventReader,
    PravegaClient,
    PravegaConfig,
    ReaderGroupConfig,
    StateFormat,
    StateSynchronizer,
    VersionedSerializer,
    open_client,
)
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
    return clock.answer(count, total_bytes(size, count))


async def read(client: PravegaClient, stream: str, mode: str) -> dict[str, float]:
    """Read everything."""
    events = nbytes = 0
    with measure() as clock:
        async for batch in client.read_events(stream):
            if mode == "batches":
                events += len(batch)
                nbytes += batch.nbytes
            elif mode == "arrow":
                array = batch.to_arrow()
                events += len(array)
                nbytes += batch.nbytes
            else:
                for payload in batch:
                    events += 1
                    nbytes += len(payload)
    return clock.answer(events, nbytes)


@asynccontextmanager
async def group_reader(client: PravegaClient, stream: str) -> AsyncIterator[EventReader[bytes]]:
    """A reader in a group of its own, which is deleted afterwards."""
    name = f"g{uuid4().hex}"
    await client.create_reader_group(name, ReaderGroupConfig.of([client.config.resolve(stream)]))
    async with client.reader_group(name) as group, group.reader("reader") as reader:
        yield reader
    await client.delete_reader_group(name)


async def read_group(client: PravegaClient, stream: str, count: int, mode: str) -> dict[str, float]:
    """Read so many events through a reader group."""
    events = nbytes = 0
    async with group_reader(client, stream) as reader:
        with measure() as clock:
            if mode in ("batches", "payloads"):
                while events < count:
                    batch = await reader.next_batch()
                    assert batch is not None
                    if mode == "batches":
                        events += len(batch)
                        nbytes += batch.nbytes
                    else:
                        for payload in batch:
                            events += 1
                            nbytes += len(payload)
            elif mode == "nowait":
                while events < count:
                    found = await reader.read_event()
                    assert found is not None
                    events += 1
                    nbytes += len(found.value)
                    for event in reader.events_nowait():
                        events += 1
                        nbytes += len(event.value)
            else:
                async for event in reader:
                    events += 1
                    nbytes += len(event.value)
                    if events == count:
                        break
    return clock.answer(events, nbytes)


async def latency(client: PravegaClient, stream: str, size: int, count: int, rate: int) -> dict[str, float]:
    """Write at a rate, and read at the same time."""
    latencies = Latencies(size)
    async with (
        group_reader(client, stream) as reader,
        client.event_writer(stream) as writer,
        trio.open_nursery() as nursery,
    ):

        async def write() -> None:
            start = trio.current_time()
            for number in range(count):
                await trio.sleep_until(start + number / rate)
                await writer.write_event(latencies.event())

        # The reader has its segment when the first event has come.
        await (await writer.write_event(bytes(size))).wait()
        await reader.read_event()
        with measure() as clock:
            nursery.start_soon(write)
            found = 0
            while found < count:
                event = await reader.read_event()
                assert event is not None
                latencies.read(event.value)
                found += 1
    return latencies.answer(clock)


async def load(client: PravegaClient, stream: str, size: int, count: int, rate: int) -> dict[str, float]:
    """Write at a high rate, or as fast as possible, and read at the same time."""
    latencies = Latencies(size)
    async with (
        group_reader(client, stream) as reader,
        client.event_writer(stream) as writer,
        trio.open_nursery() as nursery,
    ):

        async def write() -> None:
            # Waiting for each event of a high rate would cost more than the events.
            begun, written = perf_counter_ns(), 0
            while written < count:
                if rate:
                    ready = min(count, (perf_counter_ns() - begun) * rate // 1_000_000_000 + 1)
                else:
                    ready = min(count, written + 256)
                for number in range(written, ready):
                    due = begun + number * 1_000_000_000 // rate if rate else None
                    await writer.write_event(latencies.event(due))
                written = ready
                await trio.sleep(0.001 if rate else 0)

        await (await writer.write_event(bytes(size))).wait()
        await reader.read_event()
        with measure() as clock:
            nursery.start_soon(write)
            found = 0
            async for event in reader:
                latencies.read(event.value)
                found += 1
                if found == count:
                    break
    return latencies.answer(clock)


async def acks(client: PravegaClient, stream: str, size: int, count: int, keys: int) -> dict[str, float]:
    """Append one event after the other, each when the one before it is stored."""
    pool = payload_pool(size)
    names = list(keys_of(keys, keys) or [None])
    taken = []
    async with client.event_writer(stream) as writer:
        for number in range(POOL):
            await (await writer.write_event(pool[number], names[number % len(names)])).wait()
        with measure() as clock:
            for number in range(count):
                start = perf_counter_ns()
                await (await writer.write_event(pool[number & 63], names[number % len(names)])).wait()
                taken.append(perf_counter_ns() - start)
    return clock.answer(count, total_bytes(size, count)) | times(taken)


async def transactions(
    client: PravegaClient, stream: str, size: int, events: int, count: int, keys: int, *, each: bool
) -> dict[str, float]:
    """Begin, write, commit, and wait until it is committed; one transaction after the other."""
    content = list(payloads(size, events))
    names = list(keys_of(keys, events) or [None] * events)
    returned, committed = [], []

    async def one() -> None:
        start = perf_counter_ns()
        transaction = await client.begin_transaction(stream)
        if each:
            for event, name in zip(content, names, strict=True):
                await transaction.write_event(event, name)
        else:
            await transaction.write_events(content, names if keys else None)
        await transaction.commit()
        returned.append(perf_counter_ns() - start)
        await transaction.wait_committed()
        committed.append(perf_counter_ns() - start)

    await one()
    returned.clear()
    committed.clear()
    with measure() as clock:
        for _ in range(count):
            await one()
    nbytes = count * total_bytes(size, events)
    return clock.answer(count * events, nbytes) | times(returned) | times(committed, "done_")


@dataclass(frozen=True, slots=True)
class Counter:
    """The state of the synchronizer; as an update, what to add to it."""

    value: int


_LONG = VersionedSerializer(Counter, [[("value", "int64")]])
COUNTER: StateFormat[Counter, Counter] = StateFormat(
    _LONG, _LONG, lambda state, update: Counter(state.value + update.value)
)


async def synchronizer(client: PravegaClient, stream: str, tasks: int, count: int) -> dict[str, float]:
    """Add 1 in several tasks at once, each with a synchronizer of its own."""
    taken = []

    async def add(shared: StateSynchronizer[Counter, Counter, Counter]) -> None:
        for _ in range(count):
            start = perf_counter_ns()
            await shared.update(lambda state: [Counter(1)])
            taken.append(perf_counter_ns() - start)

    async with AsyncExitStack() as stack:
        every = [
            await stack.enter_async_context(await client.state_synchronizer(stream, COUNTER))
            for _ in range(tasks)
        ]
        for shared in every:
            await shared.initialize(Counter(0))
        # They connect.
        for shared in every:
            await shared.fetch_updates()
            await shared.update(lambda state: [Counter(1)])
        with measure() as clock:
            async with trio.open_nursery() as nursery:
                for shared in every:
                    nursery.start_soon(add, shared)
        state = await every[0].fetch_updates()
    total = 0 if state is None else state.value - tasks
    return clock.answer(total, total * COUNTER_BYTES) | times(taken)


@contextmanager
def group_reader_blocking(
    client: blocking.PravegaClient, stream: str
) -> Iterator[blocking.EventReader[bytes]]:
    """As :func:`group_reader`, through the facade."""
    name = f"g{uuid4().hex}"
    client.create_reader_group(name, ReaderGroupConfig.of([client.config.resolve(stream)]))
    with client.reader_group(name) as group, group.reader("reader") as reader:
        yield reader
    client.delete_reader_group(name)


def read_group_blocking(client: blocking.PravegaClient, stream: str, count: int) -> dict[str, float]:
    """As :func:`read_group`, through the facade."""
    events = nbytes = 0
    with group_reader_blocking(client, stream) as reader, measure() as clock:
        for event in reader:
            events += 1
            nbytes += len(event.value)
            if events == count:
                break
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
    return clock.answer(count, total_bytes(size, count))


def acks_blocking(
    client: blocking.PravegaClient, stream: str, size: int, count: int, keys: int
) -> dict[str, float]:
    """As :func:`acks`, through the facade."""
    pool = payload_pool(size)
    names = list(keys_of(keys, keys) or [None])
    taken = []
    with client.event_writer(stream) as writer:
        for number in range(POOL):
            writer.write_event(pool[number], names[number % len(names)]).wait()
        with measure() as clock:
            for number in range(count):
                start = perf_counter_ns()
                writer.write_event(pool[number & 63], names[number % len(names)]).wait()
                taken.append(perf_counter_ns() - start)
    return clock.answer(count, total_bytes(size, count)) | times(taken)


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
            if words[0] == "group":
                return await read_group(client, words[1], int(words[2]), mode)
            if words[0] == "load":
                return await load(client, words[1], *map(int, words[2:]))
            if words[0] == "latency":
                size, count, rate = map(int, words[2:])
                return await latency(client, words[1], size, count, rate)
            if words[0] == "acks":
                size, count, keys = map(int, words[2:])
                return await acks(client, words[1], size, count, keys)
            if words[0] == "transactions":
                size, events, count, keys = map(int, words[2:])
                return await transactions(client, words[1], size, events, count, keys, each=mode == "each")
            if words[0] == "synchronizer":
                return await synchronizer(client, words[1], *map(int, words[2:]))
            return await read(client, words[1], mode)

    def handle(words: list[str]) -> dict[str, float]:
        if not mode.startswith("sync-"):
            return trio.run(run, words)
        with blocking.open_client(config) as client:
            if words[0] == "append":
                size, count, keys = map(int, words[2:])
                return append_blocking(client, words[1], size, count, keys, each=mode == "sync-each")
            if words[0] == "group":
                return read_group_blocking(client, words[1], int(words[2]))
            if words[0] == "acks":
                return acks_blocking(client, words[1], *map(int, words[2:]))
            return read_blocking(client, words[1])

    serve(handle)


if __name__ == "__main__":
    main()
