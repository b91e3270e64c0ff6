"""Byte streams: as trio streams, and as files."""

from __future__ import annotations

import gc
import io
import os
import random
import zipfile
from collections.abc import Awaitable, Callable
from weakref import ref

import pytest
import trio

from pravega_wire import PravegaConfig, open_client
from pravega_wire import sync as blocking
from pravega_wire.errors import (
    ClosedError,
    DataLossError,
    InvalidArgumentError,
    PravegaError,
    StreamNotFoundError,
    StreamSealedError,
)
from pravega_wire.protocol import commands as c
from pravega_wire.testing import FaultProxy


@pytest.mark.smoke
async def test_bytes_come_back_in_any_pieces(config: PravegaConfig) -> None:
    data = random.Random(1).randbytes(5_000_000)

    async with open_client(config) as client:
        await client.create_stream("b", 1)
        async with client.byte_stream_writer("b") as writer:
            position = 0
            for size in (1, 7, 0, 1 << 20, 3_000_001, 4096):
                await writer.send_all(data[position : position + size])
                position += size
            await writer.write(memoryview(data)[position:])
            await writer.flush()
            assert (await writer.head(), await writer.tail()) == (0, len(data))
        async with client.byte_stream_reader("b", follow=False) as reader:
            found = b"".join([piece async for piece in reader])
            assert found == data
            await reader.seek(4_999_990)
            assert await reader.receive_some(3) == data[4_999_990:4_999_993]
            assert reader.offset == 4_999_993
            assert await reader.read(100) == data[4_999_993:]
            assert await reader.read(100) == b""
            for offset in (-1, len(data) + 1):
                with pytest.raises(InvalidArgumentError, match=str(offset)):
                    await reader.seek(offset)


@pytest.mark.smoke
async def test_a_reader_waits_at_the_tail_and_ends_when_the_stream_is_sealed(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("t", 1)
        received = bytearray()
        first = trio.Event()

        async def read() -> None:
            async with client.byte_stream_reader("t") as reader:
                async for piece in reader:
                    received.extend(piece)
                    first.set()

        async with client.byte_stream_writer("t") as writer, trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await writer.write(b"one ")
            await writer.flush()
            await first.wait()
            await writer.write(b"two ")
            await writer.write(b"three")
            await writer.seal()
        assert bytes(received) == b"one two three"
        with pytest.raises(StreamSealedError, match="sealed"):
            async with client.byte_stream_writer("t"):
                pass


@pytest.mark.smoke
async def test_a_writer_says_what_became_of_its_segment(config: PravegaConfig) -> None:
    async with open_client(config) as client:

        async def failure_after(change: Callable[[], Awaitable[object]]) -> PravegaError:
            await client.create_stream("w", 1)
            with pytest.raises(PravegaError) as failed:
                async with client.byte_stream_writer("w") as writer:
                    await writer.write(b"before")
                    await writer.flush()
                    await change()
                    await writer.write(b"after")
                    await writer.flush()
            return failed.value

        async def create_again() -> None:
            await client.delete_stream("w", seal=True)
            await client.create_stream("w", 1)

        again = await failure_after(create_again)
        assert isinstance(again, StreamNotFoundError)
        assert "created again" in again.message
        [segment] = await client.active_segments("w")
        scaled = await failure_after(
            lambda: client.scale_stream("w", [segment.segment_id], [(0.0, 0.5), (0.5, 1.0)])
        )
        assert isinstance(scaled, StreamSealedError)
        assert "scaled" in scaled.message
        await client.delete_stream("w", seal=True)
        assert isinstance(await failure_after(lambda: client.seal_stream("w")), StreamSealedError)
        await client.delete_stream("w")
        gone = await failure_after(lambda: client.delete_stream("w", seal=True))
        assert isinstance(gone, StreamNotFoundError)
        assert "created again" not in gone.message


async def test_the_end_of_a_scaled_stream_is_no_end(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("e", 1)
        async with client.byte_stream_writer("e") as writer, client.byte_stream_reader("e") as reader:
            await writer.write(b"bytes")
            await writer.flush()
            await client.scale_stream("e", [0], [(0.0, 0.5), (0.5, 1.0)])
            assert await reader.receive_some() == b"bytes"
            for _ in range(2):
                with pytest.raises(StreamSealedError, match="scaled"):
                    await reader.receive_some()
            await reader.seek(2)
            assert await reader.receive_some() == b"tes"
        with pytest.raises(StreamSealedError, match="scaled"):
            async with client.byte_stream_writer("e"):
                pass


async def test_a_cancelled_read_loses_nothing(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("c", 1)
        async with client.byte_stream_writer("c") as writer, client.byte_stream_reader("c") as reader:
            with trio.move_on_after(0.1) as scope:
                await reader.receive_some()
            assert scope.cancelled_caught
            await writer.write(b"after")
            assert await reader.receive_some() == b"after"


async def test_truncated_bytes_are_named(config: PravegaConfig) -> None:
    async with open_client(config) as client:
        await client.create_stream("h", 1)
        async with client.byte_stream_writer("h") as writer:
            await writer.write(b"0123456789")
            await writer.flush()
            await writer.truncate(4)
            await writer.truncate(4)
            with pytest.raises(InvalidArgumentError, match="11"):
                await writer.truncate(11)
        async with client.byte_stream_reader("h", follow=False) as reader:
            with pytest.raises(DataLossError, match="h/0"):
                await reader.receive_some()
            await reader.seek(await reader.head())
            assert await reader.receive_some() == b"456789"
        with pytest.raises(ClosedError):
            await reader.receive_some()
        await client.create_stream("many", 2)
        with pytest.raises(InvalidArgumentError, match="2 segments"):
            async with client.byte_stream_writer("many"):
                pass


async def test_seeking_leaves_nothing_behind(config: PravegaConfig) -> None:
    """A program that reads here and there does not grow."""
    async with open_client(config) as client:
        await client.create_stream("b", 1)
        async with client.byte_stream_writer("b") as writer:
            await writer.write(b"0123456789")
        async with client.byte_stream_reader("b") as reader:
            left = []
            for offset in range(5):
                await reader.seek(offset)
                assert await reader.read(1) == b"%d" % offset
                left.append(ref(reader._reader))
            gc.collect()
            assert [each() for each in left] == [None] * 4 + [reader._reader]


async def test_a_released_memoryview_is_refused(config: PravegaConfig) -> None:
    view = memoryview(b"x")
    view.release()
    async with open_client(config) as client:
        await client.create_stream("released", 1)
        async with client.byte_stream_writer("released") as writer:
            with pytest.raises(InvalidArgumentError, match="a memoryview that has been released"):
                await writer.write(view)
            await writer.write(b"y")


async def test_lost_connections_neither_lose_nor_double_bytes(
    config: PravegaConfig, fault_proxy: FaultProxy
) -> None:
    data = random.Random(2).randbytes(300_000)

    with trio.fail_after(120):
        async with open_client(config, address_map=fault_proxy.address_map) as client:
            await client.create_stream("f", 1)
            fault_proxy.cut_before_reply(c.DataAppended, times=10)
            async with client.byte_stream_writer("f") as writer:
                for start in range(0, len(data), 1000):
                    await writer.write(data[start : start + 1000])
                    if start % 20_000 == 0:
                        await writer.flush()
            fault_proxy.clear()
            fault_proxy.cut_before_reply(c.SegmentRead, times=1)
            async with client.byte_stream_reader("f", follow=False) as reader:
                assert b"".join([piece async for piece in reader]) == data
            assert fault_proxy.cuts == 11


@pytest.mark.smoke
def test_files(config: PravegaConfig) -> None:
    """What other libraries do with files works: a zip archive is written, sought in and read."""
    content = os.urandom(200_000)
    with blocking.open_client(config) as client:
        client.create_stream("z", 1)
        with client.byte_stream_writer("z") as raw, io.BufferedWriter(raw) as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
                archive.writestr("a.txt", "text")
                archive.writestr("b.bin", content)
        with client.byte_stream_reader("z", follow=False) as reader:
            with zipfile.ZipFile(io.BufferedReader(reader)) as archive:
                assert archive.namelist() == ["a.txt", "b.bin"]
                assert archive.read("b.bin") == content
        with client.byte_stream_writer("z") as writer:
            tail = writer.tail()
            assert writer.write(b"more") == 4
            writer.flush()
            writer.drop_before(tail)
            assert (writer.head(), writer.tail()) == (tail, tail + 4)
            writer.seal()
        with client.byte_stream_reader("z", tail) as reader:
            assert reader.read() == b"more"
            assert reader.tell() == tail + 4
