"""Byte streams keep trio's contract: trio's own suites for streams, on a real server.

A stored stream is no connection: its readers and writers come and go without each other's knowledge. What the
suites take for granted is done by the streams here, as docs/byte-streams.md says: whoever closes an end seals
the stream, so that the reader comes to its end and the writer cannot go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
import trio
import trio.testing

from pravega_wire import ByteStreamReader, ByteStreamWriter, PravegaClient, PravegaConfig, open_client
from pravega_wire.testing import FaultProxy


class _Sending(trio.abc.SendStream):
    """A writer that seals its stream when it is closed."""

    def __init__(self, client: PravegaClient, writer: ByteStreamWriter) -> None:
        self._client = client
        self._writer = writer

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._writer.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._writer.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        await self._writer.send_eof()

    async def aclose(self) -> None:
        try:
            await self._writer.aclose()
        finally:
            with trio.CancelScope(shield=True):
                await self._client.seal_stream(self._writer.stream)


class _Receiving(trio.abc.ReceiveStream):
    """A reader that seals its stream when it is closed; receiving lets the writer's bytes pass."""

    def __init__(self, client: PravegaClient, reader: ByteStreamReader, proxy: FaultProxy) -> None:
        self._client = client
        self._reader = reader
        self._proxy = proxy

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        self._proxy.resume()
        return await self._reader.receive_some(max_bytes)

    async def aclose(self) -> None:
        try:
            await self._reader.aclose()
        finally:
            with trio.CancelScope(shield=True):
                await self._client.seal_stream(self._reader.stream)
            self._proxy.resume()


class _Pairs:
    """Makes pairs of streams. The writers' connections go through the proxy, the readers' do not."""

    def __init__(self, writing: PravegaClient, reading: PravegaClient, proxy: FaultProxy) -> None:
        self._writing = writing
        self._reading = reading
        self._proxy = proxy
        self._numbers = count()

    async def one_way(self) -> tuple[_Sending, _Receiving]:
        self._proxy.resume()
        name = f"b{next(self._numbers)}"
        await self._reading.create_stream(name)
        writer = self._writing.byte_stream_writer(name, max_outstanding_bytes=1)
        reader = self._reading.byte_stream_reader(name)
        return (
            _Sending(self._reading, await writer),
            _Receiving(self._reading, await reader, self._proxy),
        )

    async def _clog(self, *senders: trio.abc.SendStream) -> None:
        """Nothing gets to the store until something is received; the writers have as much as they take."""
        self._proxy.pause()
        async with trio.open_nursery() as nursery:
            for sender in senders:
                nursery.start_soon(sender.send_all, b"clogged")
            await trio.testing.wait_all_tasks_blocked()
            # The bytes were accepted: only the waiting for room is cancelled.
            nursery.cancel_scope.cancel()

    async def one_way_clogged(self) -> tuple[_Sending, _Receiving]:
        sending, receiving = await self.one_way()
        await self._clog(sending)
        return sending, receiving

    async def half_closeable(self) -> tuple[trio.abc.HalfCloseableStream, trio.abc.HalfCloseableStream]:
        to, at = await self.one_way()
        back, here = await self.one_way()
        return trio.StapledStream(to, here), trio.StapledStream(back, at)

    async def half_closeable_clogged(
        self,
    ) -> tuple[trio.abc.HalfCloseableStream, trio.abc.HalfCloseableStream]:
        to, at = await self.one_way()
        back, here = await self.one_way()
        await self._clog(to, back)
        return trio.StapledStream(to, here), trio.StapledStream(back, at)


@pytest.fixture
def resumed(fault_proxy: FaultProxy) -> Iterator[FaultProxy]:
    """The proxy, which lets everything pass at the end."""
    yield fault_proxy
    fault_proxy.resume()


@pytest.mark.parametrize("kind", ["one_way", "half_closeable"])
async def test_trio_s_own_suite(config: PravegaConfig, resumed: FaultProxy, kind: str) -> None:
    with trio.fail_after(600):
        async with (
            open_client(config, address_map=resumed.address_map) as writing,
            open_client(config) as reading,
        ):
            pairs = _Pairs(writing, reading, resumed)
            if kind == "one_way":
                await trio.testing.check_one_way_stream(pairs.one_way, pairs.one_way_clogged)
            else:
                await trio.testing.check_half_closeable_stream(
                    pairs.half_closeable, pairs.half_closeable_clogged
                )
