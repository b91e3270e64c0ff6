"""A forgotten transaction on a real server: the stream decides whether it was committed, or nobody does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest

from pravega_wire import TxnStatus
from pravega_wire.errors import TransactionUnknownError
from pravega_wire.sync import PravegaClient
from spark_adapter.exactly_once.contents import AttemptResult
from spark_adapter.exactly_once.driver import BatchCommitter
from spark_adapter.exactly_once.journal import Journal
from spark_adapter.exactly_once.ledger import SinkKey

EVENTS = [[b"%d:%d" % (partition, number) for number in range(30)] for partition in range(3)]
KEYS = [f"k{number % 7}" for number in range(30)]
BATCH = sorted(event for events in EVENTS for event in events)


class Crash(BaseException):
    """The driver is killed."""


class Forgetful:
    """A client of a server that remembers no transaction: a real one forgets after a day."""

    def __init__(self, client: PravegaClient) -> None:
        self._client = client

    def transaction_status(self, stream: Any, txn_id: UUID) -> TxnStatus:
        return TxnStatus.UNKNOWN

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


class Batch:
    """Batch 0 of a query, written without Spark, by a new driver each time."""

    def __init__(self, client: PravegaClient, stream: str, ledger: str) -> None:
        self.client, self.stream, self.ledger = client, stream, ledger
        self.txn: UUID | None = None
        client.create_stream(ledger, 1)

    def run(self, client: Any, hook: Callable[[str], None] | None = None) -> str:
        name = self.client.config.resolve(self.stream)

        def write(txn: UUID) -> Sequence[AttemptResult]:
            self.txn = txn
            results = []
            for partition, events in enumerate(EVENTS):
                staging = uuid4()
                with client.staging(name, txn).writer(staging) as writer:
                    writer.write_events(events, KEYS)
                    results.append(AttemptResult(partition, staging, len(events), 0, writer.contents()))
            return results

        with self.client.revisioned_stream(self.ledger) as revisioned:
            journal = Journal(revisioned, SinkKey("q", str(name)), name=self.ledger)
            committer = BatchCommitter(client, name, journal, lease=60, named=True, hook=hook)
            return committer.run(0, write).outcome

    def crash(self, *, committed: bool, scaled: str = "") -> None:
        """A driver that dies after the commit, or between PREPARED and a commit that never comes."""

        def hook(step: str) -> None:
            if step == scaled:
                self.scale()
            if step == ("visible" if committed else "prepared"):
                raise Crash

        with pytest.raises(Crash):
            self.run(self.client, hook)
        if scaled == "afterwards":
            self.scale()
        if not committed:
            assert self.txn is not None
            self.client.abort_transaction(self.stream, self.txn)

    def scale(self) -> None:
        sealed = [each.segment_id for each in self.client.active_segments(self.stream)]
        self.client.scale_stream(self.stream, sealed, [(0.0, 0.2), (0.2, 0.6), (0.6, 1.0)])

    def stored(self) -> list[bytes]:
        return sorted(event for events in self.client.read_events(self.stream) for event in events.to_list())


@pytest.fixture
def batch(client: PravegaClient, stream: str, ledger: str) -> Batch:
    return Batch(client, stream, ledger)


@pytest.mark.parametrize("scaled", ["", "staged", "prepared", "afterwards"])
@pytest.mark.parametrize("committed", [False, True], ids=["aborted", "committed"])
def test_the_stream_decides(batch: Batch, committed: bool, scaled: str) -> None:
    batch.crash(committed=committed, scaled=scaled)
    assert batch.stored() == (BATCH if committed else [])
    assert batch.run(Forgetful(batch.client)) == ("recovered" if committed else "written")
    assert batch.stored() == BATCH
    assert batch.run(batch.client) == "skipped"


@pytest.mark.parametrize("scaled", ["", "prepared"])
@pytest.mark.parametrize("committed", [False, True], ids=["aborted", "committed"])
def test_what_others_wrote_decides_nothing(batch: Batch, committed: bool, scaled: str) -> None:
    batch.crash(committed=committed, scaled=scaled)
    with batch.client.event_writer(batch.stream) as writer:
        writer.write_event(b"other", "k1")
    expected = sorted([*BATCH, b"other"]) if committed else [b"other"]
    for _ in range(2):
        with pytest.raises(TransactionUnknownError, match=r"\d+ bytes were written to \d segments") as caught:
            batch.run(Forgetful(batch.client))
        assert caught.value.transaction == batch.txn
        assert batch.stored() == expected


def test_as_many_bytes_of_others_decide_nothing(batch: Batch) -> None:
    batch.crash(committed=False)
    with batch.client.event_writer(batch.stream) as writer:
        for events in EVENTS:
            writer.write_events([event.replace(b":", b";") for event in events], KEYS)
    with pytest.raises(TransactionUnknownError, match="as many bytes as the batch has"):
        batch.run(Forgetful(batch.client))


def test_what_was_truncated_decides_nothing(batch: Batch) -> None:
    batch.crash(committed=True)
    batch.client.truncate_stream(batch.stream, batch.client.tail(batch.stream))
    with pytest.raises(TransactionUnknownError, match="cannot be read"):
        batch.run(Forgetful(batch.client))
