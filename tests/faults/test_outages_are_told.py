"""While a segment store is away, whatever waits for it says so in the log."""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress

import pytest
import trio

from pravega_wire import KeyValueTableConfiguration, PravegaClient, PravegaConfig, open_client, sync
from pravega_wire.errors import TableOutcomeUnknownError
from pravega_wire.testing import FaultProxy
from tests.faults.support import event_of
from tests.inside import forget_told

SECONDS = 60


class Listening(logging.Handler):
    """Collects warnings. :ivar heard: set by the first one."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self.heard = threading.Event()

    def begin(self) -> None:
        """Forget what was heard, and let it be told again."""
        self.lines.clear()
        self.heard.clear()
        forget_told()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        self.heard.set()


@pytest.fixture
def log() -> Iterator[Listening]:
    forget_told()
    handler = Listening()
    logger = logging.getLogger("pravega_wire")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


@asynccontextmanager
async def away(proxy: FaultProxy, log: Listening) -> AsyncIterator[None]:
    """The store is away during the block, and comes back once the log says that it is."""
    # A server that was just started may have been away before.
    log.begin()
    proxy.refuse()
    proxy.cut_all()

    async def come_back() -> None:
        assert await trio.to_thread.run_sync(log.heard.wait, SECONDS), "nobody says so"
        proxy.refuse(False)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(come_back)
        yield


async def written(client: PravegaClient) -> None:
    await client.create_stream("s", 1)
    async with client.event_writer("s") as writer:
        await writer.write_events(*zip(*map(event_of, range(100)), strict=True))


async def a_writer(client: PravegaClient, proxy: FaultProxy, log: Listening) -> str:
    await client.create_stream("s", 1)
    async with client.event_writer("s") as writer:
        await writer.write_event(b"before")
        await writer.flush()
        async with away(proxy, log):
            await writer.write_event(b"while")
            await writer.flush()
    return "appending to "


async def a_request(client: PravegaClient, proxy: FaultProxy, log: Listening) -> str:
    await written(client)
    async with away(proxy, log):
        await client.tail("s")
    return f"fetching the tail of stream {client.config.scope}/s: "


async def a_reader_at_the_tail(client: PravegaClient, proxy: FaultProxy, log: Listening) -> str:
    await written(client)
    [segment] = await client.segment_ranges("s")
    async with client.read_range(segment) as reader:
        async with away(proxy, log):
            assert await reader.next_batch() is not None
    return "reading "


async def a_group(client: PravegaClient, proxy: FaultProxy, log: Listening) -> str:
    await written(client)
    await client.create_reader_group("g", "s")
    async with client.reader_group("g") as group, group.reader("r") as reader:
        async with away(proxy, log):
            assert await reader.read_event(timeout=SECONDS) is not None
    return ""


async def a_table(client: PravegaClient, proxy: FaultProxy, log: Listening) -> str:
    await client.create_key_value_table("t", KeyValueTableConfiguration(1, 4))
    table = await client.key_value_table("t")
    await table.put(b"0001", b"before")
    async with away(proxy, log):
        # Its answer may be lost before the store is away.
        with suppress(TableOutcomeUnknownError):
            await table.put(b"0002", b"while")
    return "updating table segment "


Does = Callable[[PravegaClient, FaultProxy, Listening], Awaitable[str]]


@pytest.mark.parametrize("does", [a_writer, a_request, a_reader_at_the_tail, a_group, a_table])
async def test_it_is_told(does: Does, config: PravegaConfig, fault_proxy: FaultProxy, log: Listening) -> None:
    with trio.fail_after(2 * SECONDS):
        async with open_client(config, address_map=fault_proxy.address_map) as client:
            doing = await does(client, fault_proxy, log)
    assert log.lines[0].startswith(doing)
    assert log.lines[0].endswith(
        f"trying until {config.operation_timeout:g} s have passed (operation_timeout)"
    )
    # Not one for each attempt.
    assert len(log.lines) <= 3


def test_a_direct_reader_tells_it(config: PravegaConfig, fault_proxy: FaultProxy, log: Listening) -> None:
    with sync.open_client(config, address_map=fault_proxy.address_map) as client:
        client.create_stream("s", 1)
        with client.event_writer("s") as writer:
            writer.write_events([event_of(n)[0] for n in range(100)], [event_of(n)[1] for n in range(100)])
        [part] = client.segment_ranges("s")
        log.begin()
        fault_proxy.refuse()
        back = threading.Thread(target=lambda: log.heard.wait(SECONDS) and fault_proxy.refuse(False))
        back.start()
        assert sum(map(len, sync.DirectReader(client, part))) == 100
        back.join()
    assert log.lines[0].startswith("reading ")
    assert len(log.lines) == 1
