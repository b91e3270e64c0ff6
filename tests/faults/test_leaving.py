"""Leaving what is open while its peers are silent: one limit for all, and a second after a cancellation.

As in ``test_silent_peers``, the limits are what these tests are about; the bounds are generous.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trio

from pravega_wire import PravegaClient, PravegaConfig, StreamCut, aio, open_client, sync
from pravega_wire.controller.types import TxnStatus
from pravega_wire.errors import PravegaError
from pravega_wire.testing import FaultProxy
from pravega_wire.values.types import ScopedStream

LIMIT = 6.0
TOO_LONG = 10.5
"""Less than twice the limit."""
SECOND = 4.5
"""After a cancellation: a second, and the rest for a busy machine. Less than the limit."""


def with_limit(config: PravegaConfig) -> PravegaConfig:
    return replace(config, operation_timeout=LIMIT)


def behind(config: PravegaConfig, proxy: FaultProxy) -> PravegaConfig:
    """The configuration of a client whose controller is behind the proxy, too."""
    port = proxy.endpoint(*config.endpoints[0])
    return replace(with_limit(config), controller_uri=f"tcp://127.0.0.1:{port}")


@asynccontextmanager
async def sound(config: PravegaConfig) -> AsyncIterator[PravegaClient]:
    """A client that reaches the server, of a scope with a stream and a group."""
    async with open_client(config) as client:
        await client.create_stream("t")
        await client.create_reader_group("g", ["t"])
        yield client


@pytest.mark.parametrize("cancelled", [False, True])
async def test_three_readers_have_one_limit(
    config: PravegaConfig, fault_proxy: FaultProxy, caplog: pytest.LogCaptureFixture, cancelled: bool
) -> None:
    async with sound(config) as helper:
        scope = trio.CancelScope()
        started = 0.0
        try:
            with scope:
                async with (
                    open_client(with_limit(config), address_map=fault_proxy.address_map) as client,
                    client.reader_group("g") as group,
                    group.reader("a"), group.reader("b"), group.reader("c"),
                ):  # fmt: skip
                    fault_proxy.pause()
                    started = trio.current_time()
                    if cancelled:
                        # While it is leaving.
                        scope.deadline = started + 0.5
        except PravegaError:
            assert not cancelled
        finally:
            taken = trio.current_time() - started
            fault_proxy.resume()
        assert scope.cancelled_caught == cancelled
        assert taken < (SECOND if cancelled else TOO_LONG)
        warned = [each.message for each in caplog.records if "which reader_offline does" in each.message]
        assert len(warned) == 3
        # They count as dead, until somebody says so.
        async with helper.reader_group("g") as group:
            for name in list(group.online_readers):
                await group.reader_offline(name)
            await group.refresh()
            assert not group.online_readers


async def test_a_reader_leaves_although_the_scope_around_its_client_is_cancelled(
    config: PravegaConfig,
) -> None:
    async with sound(config) as helper:
        with trio.CancelScope() as scope:
            async with (
                open_client(config) as client,
                client.reader_group("g") as group,
                group.reader("a"),
            ):
                scope.cancel()
                await trio.sleep_forever()
        async with helper.reader_group("g") as group:
            assert not group.online_readers


async def test_a_transaction_is_aborted_although_the_scope_around_its_client_is_cancelled(
    config: PravegaConfig,
) -> None:
    async with sound(config) as helper:
        with trio.CancelScope() as scope:
            async with open_client(config) as client, client.begin_transaction("t") as txn:
                await txn.write_event(b"event")
                scope.cancel()
                await trio.sleep_forever()
        assert await helper.transaction_status("t", txn.txn_id) in (TxnStatus.ABORTING, TxnStatus.ABORTED)


async def test_the_lease_ends_a_transaction_that_could_not_be_aborted(
    config: PravegaConfig, fault_proxy: FaultProxy, caplog: pytest.LogCaptureFixture
) -> None:
    async with sound(config):
        with trio.CancelScope() as scope:
            async with (
                open_client(behind(config, fault_proxy)) as client,
                client.begin_transaction("t") as txn,
            ):
                fault_proxy.pause()
                scope.cancel()
                started = trio.current_time()
        taken = trio.current_time() - started
        fault_proxy.resume()
        assert taken < SECOND
        [warned] = [each for each in caplog.records if str(txn.txn_id) in each.message]
        assert warned.levelno == logging.WARNING
        assert "its lease of" in warned.message


async def test_one_operation_has_one_clock(config: PravegaConfig, fault_proxy: FaultProxy) -> None:
    cut = StreamCut(ScopedStream(config.scope or "", "t"), {0: 0})

    async with sound(config), open_client(behind(config, fault_proxy)) as client:
        assert await client.stream_exists("t")
        fault_proxy.pause()
        started = trio.current_time()
        try:
            with pytest.raises(PravegaError):
                await client.segment_ranges("t", cut, cut)
            taken = trio.current_time() - started
        finally:
            fault_proxy.resume()
        assert taken < TOO_LONG


# --- the facades ----------------------------------------------------------------------------------


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_blocking_reader(config: PravegaConfig, fault_proxy: FaultProxy, interrupted: bool) -> None:
    trio.run(prepared, config)
    fault_proxy.clear()
    threads = set(threading.enumerate())
    started = 0.0
    with pytest.raises((PravegaError, KeyboardInterrupt)) as raised:
        with (
            sync.open_client(with_limit(config), address_map=fault_proxy.address_map) as client,
            client.reader_group("g") as group,
            group.reader("a"),
        ):
            fault_proxy.pause()
            started = time.monotonic()
            if interrupted:
                raise KeyboardInterrupt
    taken = time.monotonic() - started
    fault_proxy.resume()
    assert isinstance(raised.value, KeyboardInterrupt) == interrupted
    assert taken < (SECOND if interrupted else TOO_LONG)
    # The client has ended, too.
    assert set(threading.enumerate()) <= threads


@pytest.mark.parametrize("when", ["not", "before", "during"])
def test_an_asyncio_reader(config: PravegaConfig, fault_proxy: FaultProxy, when: str) -> None:
    trio.run(prepared, config)

    async def main() -> float:
        paused = asyncio.Event()

        async def use() -> None:
            async with (
                aio.open_client(with_limit(config), address_map=fault_proxy.address_map) as client,
                client.reader_group("g") as group,
                group.reader("a"),
            ):
                fault_proxy.pause()
                paused.set()
                if when == "before":
                    await asyncio.sleep(3600)

        task = asyncio.ensure_future(use())
        await paused.wait()
        started = time.monotonic()
        if when != "not":
            await asyncio.sleep(0.5)
            task.cancel()
        with pytest.raises((PravegaError, asyncio.CancelledError)):
            await task
        assert task.cancelled() == (when != "not")
        return time.monotonic() - started

    try:
        taken = asyncio.run(main())
    finally:
        fault_proxy.resume()
    assert taken < (TOO_LONG if when == "not" else SECOND)


async def prepared(config: PravegaConfig) -> None:
    async with sound(config):
        pass
