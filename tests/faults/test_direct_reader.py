"""A thread that reads by a connection of its own, from a real server, while connections break."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from pravega_wire import PravegaConfig, SegmentRange, StreamCut
from pravega_wire.errors import ClosedError, DataLossError, RetriesExhaustedError, TruncatedInputError
from pravega_wire.protocol import commands as c
from pravega_wire.sync import DirectReader, PravegaClient, open_client
from pravega_wire.testing import FaultProxy, PravegaServer
from tests.faults.support import assert_exactly, event_of

COUNT = 60_000


@pytest.fixture
def config(pravega_server: PravegaServer, pravega_scope: str) -> PravegaConfig:
    return PravegaConfig.from_defaults(
        controller_uri=pravega_server.controller_uri, scope=pravega_scope, env={}
    )


@contextmanager
def written(
    config: PravegaConfig, proxy: FaultProxy, name: str
) -> Iterator[tuple[PravegaClient, SegmentRange]]:
    """A stream of one segment with numbered events, and its range."""
    with open_client(config, address_map=proxy.address_map) as client:
        client.create_stream(name, 1)
        with client.event_writer(name) as writer:
            pairs = [event_of(number) for number in range(COUNT)]
            writer.write_events([event for event, _ in pairs], routing_keys=[key for _, key in pairs])
        [part] = client.segment_ranges(name)
        yield client, part


@pytest.mark.smoke
def test_it_goes_on_where_it_was(config: PravegaConfig, fault_proxy: FaultProxy) -> None:
    with written(config, fault_proxy, "cut") as (client, part):
        fault_proxy.cut_before_reply(c.SegmentRead, times=4, after=2)
        with DirectReader(client, part, chunk_bytes=150_000) as batches:
            assert_exactly((event for batch in batches for event in batch), COUNT)
        assert fault_proxy.cuts == 4

        found: list[bytes] = []
        with DirectReader(client, part, chunk_bytes=150_000) as batches:
            for number, batch in enumerate(batches):
                found += batch
                if number % 10 == 3:
                    fault_proxy.cut_all()
        assert_exactly(found, COUNT)
        assert fault_proxy.cuts > 6
        # The other reader says the same.
        assert found == [event for batch in client.read_range(part) for event in batch]

        metrics = client.metrics().readers[part.stream]
        assert metrics.events_read >= 3 * COUNT
        assert metrics.reconnects >= 6


def test_what_cannot_be_read_is_said(config: PravegaConfig, fault_proxy: FaultProxy) -> None:
    with (
        written(config, fault_proxy, "lost") as (client, part),
        open_client(replace(config, operation_timeout=2), address_map=fault_proxy.address_map) as impatient,
    ):
        inside = replace(part, end_offset=part.end_offset - 1)
        with DirectReader(client, inside) as batches, pytest.raises(TruncatedInputError, match="ends at"):
            while batches.next_batch() is not None:
                pass

        fault_proxy.refuse()
        with DirectReader(impatient, part) as batches, pytest.raises(RetriesExhaustedError, match="reading"):
            batches.next_batch()
        fault_proxy.refuse(False)
        fault_proxy.pause(up=False)
        with (
            DirectReader(impatient, part) as batches,
            pytest.raises(RetriesExhaustedError, match="has sent no"),
        ):
            batches.next_batch()
        fault_proxy.resume()

        with DirectReader(client, part, chunk_bytes=100_000, depth=1) as batches:
            first = batches.next_batch()
            assert first is not None
            places = first.offsets()
            client.truncate_stream("lost", client.tail("lost"))
            with pytest.raises(DataLossError, match="are gone"):
                while batches.next_batch() is not None:
                    pass
        with DirectReader(client, part) as batches, pytest.raises(DataLossError, match="is truncated"):
            batches.next_batch()
        assert places[0] == 0

        client.seal_stream("lost")
        client.delete_stream("lost")
        with DirectReader(client, part) as batches, pytest.raises(DataLossError, match="does not exist"):
            batches.next_batch()
    with pytest.raises(ClosedError, match="the client is closed"):
        DirectReader(client, part)


def test_it_ends_with_its_client(config: PravegaConfig, fault_proxy: FaultProxy) -> None:
    with written(config, fault_proxy, "closed") as (client, part):
        assert StreamCut(part.stream, {0: part.end_offset}) == client.tail("closed")
        batches = DirectReader(client, part, chunk_bytes=100_000)
        assert batches.next_batch() is not None
    with pytest.raises(ClosedError, match="the client is closed"):
        while batches.next_batch() is not None:
            pass
    batches.close()
