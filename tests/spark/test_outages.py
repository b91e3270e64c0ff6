"""The driver's side of the protocol on a server that is away at each step; without Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from uuid import UUID, uuid4

from pravega_wire import PravegaConfig
from pravega_wire.sync import PravegaClient, open_client
from pravega_wire.testing import FaultProxy
from spark_adapter import STEPS
from spark_adapter.exactly_once.contents import AttemptResult
from spark_adapter.exactly_once.driver import BatchCommitter
from spark_adapter.exactly_once.journal import Journal, open_ledger
from spark_adapter.exactly_once.ledger import SinkKey, Staging, encode_record
from tests.spark.helpers import ledger_records, outage, read_all, staging_left

EVENTS = [f"{number},{'x' * number}" for number in range(20)]


class Batch:
    """Writes batch 0 as a driver and its only task."""

    def __init__(self, client: PravegaClient, stream: str, hook: Callable[[str], None] | None = None) -> None:
        self.client = client
        self.stream = client.config.resolve(stream)
        self.ledger = client.config.resolve(f"{stream}-ledger")
        key = SinkKey("q", str(self.stream))
        revisioned = open_ledger(client, self.ledger, key, 0, new_ledger=False)
        journal = Journal(revisioned, key, name=str(self.ledger))
        self.committer = BatchCommitter(client, self.stream, journal, lease=30, named=True, hook=hook)

    def run(self) -> str:
        """Write it; the outcome."""
        return self.committer.run(0, self._write).outcome

    def _write(self, txn: UUID) -> Sequence[AttemptResult]:
        record = Staging(
            query="q",
            stream=str(self.stream),
            batch=0,
            txn=txn,
            session=self.committer.session,
            staging=uuid4(),
        )
        with self.client.revisioned_stream(self.ledger) as revisioned:
            revisioned.write_unconditionally(encode_record(record))
        with self.client.staging(self.stream, txn).writer(record.staging) as writer:
            writer.write_events(
                [each.encode() for each in EVENTS], routing_keys=[each[:1] for each in EVENTS]
            )
            contents = writer.contents()
        return [AttemptResult(0, record.staging, len(EVENTS), sum(map(len, EVENTS)), contents)]


def test_a_batch_is_written_through_an_outage_at_each_step(
    config: PravegaConfig, client: PravegaClient, stream: str
) -> None:
    reached = []
    with FaultProxy() as proxy:
        through = behind(config, proxy)
        with open_client(through, address_map=proxy.address_map) as away:

            def hook(step: str) -> None:
                reached.append(step)
                outage(proxy)

            assert Batch(away, stream, hook).run() == "written"
            assert proxy.cuts >= len(STEPS) - 1  # after the last step nothing has to be reached
    assert tuple(reached) == STEPS
    assert_written_once(client, stream)


def behind(config: PravegaConfig, proxy: FaultProxy) -> PravegaConfig:
    """The configuration of a client whose connections go through a proxy."""
    host, _, port = config.controller_uri.removeprefix("tcp://").partition(":")
    return replace(config, controller_uri=f"tcp://127.0.0.1:{proxy.endpoint(host, int(port))}")


def assert_written_once(client: PravegaClient, stream: str) -> None:
    """The batch is there, and nothing but it."""
    assert sorted(read_all(client, stream)) == sorted(EVENTS)
    assert staging_left(client, stream, f"{stream}-ledger") == []
    records = ledger_records(client, f"{stream}-ledger")
    assert [type(each).__name__ for each in records].count("Done") == 1
    assert Batch(client, stream).run() == "skipped"
