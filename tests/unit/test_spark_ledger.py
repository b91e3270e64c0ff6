"""The exactly-once protocol against a model of the server: crashes, zombies, lost transactions."""

from __future__ import annotations

import contextlib
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pravega_wire import ScopedStream, StagedBytes
from pravega_wire.controller.types import SegmentWithRange
from pravega_wire.errors import (
    CorruptedStateError,
    DataLossError,
    FencedError,
    HostNotFoundError,
    InvalidArgumentError,
    InvalidStreamCutError,
    NoSuchSegmentError,
    OlderCheckpointError,
    PermissionDeniedError,
    PravegaError,
    PravegaTimeoutError,
    RetriesExhaustedError,
    ScopeNotFoundError,
    SegmentTruncatedError,
    StreamNotFoundError,
    TlsError,
    TransactionAbortedError,
    TransactionError,
    TransactionNotOpenError,
    TransactionUnknownError,
)
from spark_adapter.exactly_once.contents import AttemptResult, load_contents
from spark_adapter.exactly_once.driver import STEPS, BatchCommitter, BatchReport
from spark_adapter.exactly_once.identity import PlannedBatch, WrittenRows, checksum_of, planned_batch
from spark_adapter.exactly_once.journal import Journal, open_ledger
from spark_adapter.exactly_once.ledger import (
    AlreadyDone,
    Claim,
    CompareRows,
    Decision,
    Done,
    Forget,
    LedgerState,
    NeverHeardOf,
    Older,
    OnOlderCheckpoint,
    Prepared,
    Preparing,
    Record,
    Resume,
    SinkKey,
    SinkState,
    Snapshot,
    Staging,
    TxnOutcome,
    WriteBatch,
    decide,
    decode_record,
    encode_record,
    staging_id,
)

TXN_SEGMENT, COMMITTED_SEGMENT = 5 << 32, 7 << 32
# The model's stream has one segment; its number is the same in each epoch.


class Status(Enum):
    UNKNOWN = 0
    OPEN = 1
    COMMITTING = 2
    COMMITTED = 3
    ABORTING = 4
    ABORTED = 5


class Crash(BaseException):
    """The driver process is killed."""


@dataclass
class Txn:
    status: Status = Status.OPEN
    leased: bool = True
    looks_left: int = 0
    events: list[bytes] = field(default_factory=list)


@dataclass
class Server:
    """As much of the server as the protocol touches: one stream and one ledger.

    With ``slow_aborts``, an aborted transaction ends after so many looks at it. Keys end at ``high``.
    """

    stream: list[bytes] = field(default_factory=list)
    txns: dict[UUID, Txn] = field(default_factory=dict)
    staging: dict[tuple[UUID, UUID], list[bytes]] = field(default_factory=dict)
    ledger: list[bytes] = field(default_factory=list)
    ledger_start: int = 0
    merges_backwards: bool = False
    slow_aborts: int = 0
    high: float = 1.0


class FakeRevisioned:
    """A ledger whose revision is the number of records before it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.lose_answer = False
        self.gone_after: type[Record] | None = None

    def latest_revision(self) -> int:
        return len(self.server.ledger)

    def oldest_revision(self) -> int:
        return self.server.ledger_start

    def read_from(self, revision: int) -> Iterator[tuple[int, bytes]]:
        if revision < self.server.ledger_start:
            raise SegmentTruncatedError("truncated", start_offset=self.server.ledger_start, offset=revision)
        for index in range(revision, len(self.server.ledger)):
            yield index + 1, self.server.ledger[index]

    def write_conditionally(self, revision: int, value: bytes) -> int | None:
        if revision != len(self.server.ledger):
            return None
        self.server.ledger.append(value)
        if self.gone_after is not None and isinstance(decode_record(value), self.gone_after):
            self.gone_after = None
            raise RetriesExhaustedError("it may or may not be stored")
        if self.lose_answer:
            self.lose_answer = False
            return None
        return len(self.server.ledger)

    def write_unconditionally(self, value: bytes) -> None:
        self.server.ledger.append(value)

    def wait_beyond(self, revision: int, *, timeout: float) -> None:
        if revision == len(self.server.ledger):
            raise PravegaTimeoutError("nothing came")

    def truncate_to(self, revision: int) -> None:
        self.server.ledger_start = max(self.server.ledger_start, revision)


def framed(events: Iterable[bytes]) -> bytes:
    return b"".join(len(event).to_bytes(8, "big") + event for event in events)


def contents_of(events: Sequence[bytes]) -> dict[int, StagedBytes]:
    data = framed(events)
    return {TXN_SEGMENT: StagedBytes(len(data), zlib.crc32(data))} if data else {}


@dataclass
class Range:
    """What lies between two events of the stream."""

    events: list[bytes]
    segment_id: int = COMMITTED_SEGMENT
    segment: str = "s/t/0.#epoch.7"

    @property
    def length(self) -> int:
        return len(framed(self.events))


@dataclass
class Cut:
    at: int

    def to_text(self) -> str:
        return str(self.at)


class FakeTransaction:
    def __init__(self, server: Server, txn_id: UUID) -> None:
        self.server = server
        self.txn_id = txn_id

    def _require(self, *allowed: Status) -> Txn:
        txn = self.server.txns[self.txn_id]
        if txn.status not in allowed:
            raise TransactionNotOpenError(f"{self.txn_id} is {txn.status.name}", status=txn.status.name)
        return txn

    def ping(self, lease: float | None = None) -> None:
        self._require(Status.OPEN)

    def abort(self) -> None:
        txn = self._require(Status.OPEN, Status.ABORTING, Status.ABORTED)
        txn.looks_left = self.server.slow_aborts
        txn.status = Status.ABORTING if txn.looks_left else Status.ABORTED

    def close(self) -> None:
        self.server.txns[self.txn_id].leased = False


class FakeClient:
    def __init__(self, server: Server) -> None:
        self.server = server

    def begin_transaction(self, stream: str, *, lease: float) -> FakeTransaction:
        txn_id = uuid4()
        self.server.txns[txn_id] = Txn()
        return FakeTransaction(self.server, txn_id)

    def transaction_status(self, stream: str, txn_id: UUID) -> Status:
        txn = self.server.txns[txn_id]
        if txn.status is Status.ABORTING:
            txn.looks_left -= 1
            if txn.looks_left <= 0:
                txn.status = Status.ABORTED
        return txn.status

    def commit_transaction(
        self, stream: str, txn_id: UUID, *, timestamp: int | None = None, writer_id: UUID | None = None
    ) -> None:
        txn = FakeTransaction(self.server, txn_id)._require(Status.OPEN, Status.COMMITTED)
        if txn.status is Status.OPEN:
            txn.status = Status.COMMITTED
            self.server.stream.extend(txn.events)

    def wait_committed(self, stream: str, txn_id: UUID) -> None:
        status = self.server.txns[txn_id].status
        if status is Status.COMMITTING:
            raise PravegaTimeoutError(f"{txn_id} is still committing")
        if status is Status.UNKNOWN:
            raise TransactionUnknownError(f"{txn_id} is not known")
        FakeTransaction(self.server, txn_id)._require(Status.COMMITTED)

    def abort_transaction(self, stream: str, txn_id: UUID) -> None:
        FakeTransaction(self.server, txn_id).abort()

    def staging(self, stream: Any, txn_id: UUID) -> Any:
        return FakeStaging(self, stream, txn_id)

    def merge_staging(self, stream: str, txn_id: UUID, ids: Sequence[UUID]) -> dict[int, list[int]]:
        txn = self.server.txns[txn_id]
        if txn.status is not Status.OPEN:
            raise NoSuchSegmentError("the transaction's segments are gone")
        lengths = dict.fromkeys(ids, 0)
        for each in reversed(ids) if self.server.merges_backwards else ids:
            # a missing one counts as merged, as on the real server
            txn.events.extend(self.server.staging.pop((txn_id, each), []))
            lengths[each] = len(framed(txn.events))
        return {TXN_SEGMENT: list(lengths.values())} if ids else {}

    def delete_staging(self, stream: str, txn_id: UUID, ids: Sequence[UUID]) -> None:
        # A merge may be in progress.
        assert self.server.txns[txn_id].status not in (Status.OPEN, Status.ABORTING)
        for each in ids:
            self.server.staging.pop((txn_id, each), None)

    def tail(self, stream: str) -> Cut:
        return Cut(len(self.server.stream))

    def active_segments(self, stream: Any) -> Sequence[object]:
        return [SegmentWithRange(0, 0.0, self.server.high)]

    def segment_ranges(self, stream: str, start: str = "earliest", end: str = "latest") -> list[Range]:
        return [Range([]), Range(self.server.stream[int(start) :])]

    def read_range(self, segment_range: Range) -> Iterable[list[bytes]]:
        yield segment_range.events

    def range_crc32(self, segment_range: Range) -> int:
        return zlib.crc32(framed(segment_range.events))


class FakeStaging:
    def __init__(self, client: Any, stream: Any, txn_id: UUID) -> None:
        self.merge = partial(client.merge_staging, stream, txn_id)
        self.delete = partial(client.delete_staging, stream, txn_id)


class Driver:
    """One driver process; its batch number n holds the events ``query:n:partition:i``.

    :param line: what the checkpoint's entries are like; None if they cannot be read.
    :param since: the first batch of which this is so; those before are like everybody's.
    :param counted: where its calls are counted, by name.
    """

    def __init__(
        self,
        server: Server,
        query: str = "q",
        *,
        stream: str = "s/t",
        sink: str = "",
        checkpoint: str | None = None,
        if_forgotten: str = "raise",
        new_ledger: bool = False,
        compact_after: int = 7,
        wait_visible: bool = True,
        line: str | None = "line",
        since: int = 0,
        on_older_checkpoint: OnOlderCheckpoint = "raise",
        counted: Counter[str] | None = None,
    ) -> None:
        self.server, self.query = server, query
        self.line, self.since = line, since
        self.key = SinkKey(query, stream, sink)
        self.revisioned = FakeRevisioned(server)
        client: Any = FakeClient(server)
        revisioned: Any = self.revisioned
        if counted is not None:
            client, revisioned = Counted(client, counted), Counted(revisioned, counted)
        self.at: dict[str, Callable[[], None]] = {}
        self.steps: list[str] = []
        self.journal = Journal(revisioned, self.key, name="s/ledger", compact_after=compact_after)
        self.committer = BatchCommitter(
            client,
            "s/t",
            self.journal,
            lease=60,
            checkpoint=checkpoint,
            new_ledger=new_ledger,
            wait_visible=wait_visible,
            planned=self.planned,
            on_older_checkpoint=on_older_checkpoint,
            if_forgotten=if_forgotten,  # type: ignore[arg-type]  # a plain string from the test
            hook=self._hook,
        )
        self.attempt = 0

    def _hook(self, step: str) -> None:
        self.steps.append(step)
        if step in self.at:
            self.at[step]()

    def planned(self, batch: int) -> PlannedBatch | None:
        if self.line is None:
            return None
        line = "line" if batch < self.since else self.line
        return PlannedBatch(f"{line} {batch}", None, False, line)

    def stage(self, batch: int, txn: UUID, partition: int, events: list[bytes]) -> UUID:
        self.attempt += 1
        staging = staging_id(self.query, batch, txn, partition, self.attempt)
        record = Staging(
            query=self.query,
            stream=self.key.stream,
            sink=self.key.sink,
            batch=batch,
            txn=txn,
            session=self.committer.session,
            staging=staging,
        )
        self.revisioned.write_unconditionally(encode_record(record))
        self.server.staging[txn, staging] = list(events)
        return staging

    def run(self, batch: int, failed_attempts: Sequence[int] = ()) -> BatchReport:
        def write(txn: UUID) -> list[AttemptResult]:
            results = []
            for partition, events in enumerate(batch_events(self.query, batch)):
                if partition in failed_attempts:
                    self.stage(batch, txn, partition, events[:1])
                winner = self.stage(batch, txn, partition, events)
                results.append(counted(partition, events, winner))
            return results[::-1]

        def count() -> list[AttemptResult]:
            return [counted(*each) for each in enumerate(batch_events(self.query, batch))]

        return self.committer.run(batch, write, count)


def counted(partition: int, events: list[bytes], staging: UUID | None = None) -> AttemptResult:
    return AttemptResult(
        partition, staging, len(events), 0, contents_of(events), checksum=checksum_of(events, None)
    )


def batch_events(query: str, batch: int) -> list[list[bytes]]:
    return [[f"{query}:{batch}:{p}:{i}".encode() for i in range(3)] for p in range(2)]


def whole_batch(query: str, batch: int) -> list[bytes]:
    return [event for part in batch_events(query, batch) for event in part]


def mine(server: Server, query: str = "q") -> list[bytes]:
    return [event for event in server.stream if event.startswith(query.encode() + b":")]


def crash() -> None:
    raise Crash


# --- one thing at a time --------------------------------------------------------------------------


def test_batches_become_visible_in_order_and_nothing_is_left() -> None:
    server = Server()
    driver = Driver(server)
    for batch in range(3):
        report = driver.run(batch, failed_attempts=[0, 1])
        assert (report.outcome, report.rows) == ("written", 6)
    assert server.stream == [e for b in range(3) for e in whole_batch("q", b)]
    assert server.staging == {}
    assert driver.steps == list(STEPS) * 3


class Counted:
    """Passes calls on to another object, and counts them by name."""

    def __init__(self, inner: object, calls: Counter[str]) -> None:
        self.inner, self.calls = inner, calls

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            self.calls[name] += 1
            result = found(*arguments, **named)
            return (
                Counted(result, self.calls) if isinstance(result, FakeTransaction | FakeStaging) else result
            )

        return call


def test_a_driver_asks_as_often_for_64_partitions_as_for_one() -> None:
    asked = {}
    for partitions in (1, 64):
        server, calls = Server(), Counter[str]()
        driver = Driver(server, counted=calls)
        driver.run(0)
        calls.clear()

        def write(txn: UUID, driver: Driver = driver, partitions: int = partitions) -> list[AttemptResult]:
            results = []
            for partition in range(partitions):
                events = [f"q:1:{partition}".encode()]
                winner = driver.stage(1, txn, partition, events)
                results.append(AttemptResult(partition, winner, 1, 0, contents_of(events)))
            return results

        assert driver.committer.run(1, write).rows == partitions
        assert len(server.stream) == len(whole_batch("q", 0)) + partitions
        asked[partitions] = calls
    assert asked[1]["merge"] == asked[1]["commit_transaction"] == 1
    assert asked[64] == asked[1]


@pytest.mark.parametrize(("end", "taken"), [(1.0, True), (0.9999999999999999, False)])
def test_times_are_refused_before_there_is_no_way_back(end: float, taken: bool) -> None:
    """Where the stream's keys end below 1: the commit would refuse them in each run of the batch."""
    server = Server()
    server.high = end
    driver = Driver(server)

    def write(txn: UUID) -> list[AttemptResult]:
        events = [b"q:0"]
        return [AttemptResult(0, driver.stage(0, txn, 0, events), 1, 0, contents_of(events), timestamp=1000)]

    if taken:
        assert driver.committer.run(0, write).rows == 1
        return
    with pytest.raises(InvalidArgumentError, match="its keys end at 0"):
        driver.committer.run(0, write)
    assert server.stream == []
    assert {each.status for each in server.txns.values()} <= {Status.ABORTED, Status.ABORTING}
    # Without times it is written.
    driver.run(0)
    assert server.stream == whole_batch("q", 0)


@pytest.mark.parametrize("step", STEPS)
def test_crash_after_each_step_then_replay(step: str) -> None:
    server = Server()
    first = Driver(server)
    first.run(0)
    first.at[step] = crash
    with pytest.raises(Crash):
        first.run(1, failed_attempts=[1])
    replay = Driver(server).run(1)
    prepared = STEPS.index(step) >= STEPS.index("prepared")
    expected = "skipped" if step == "done" else "recovered" if prepared else "written"
    assert replay.outcome == expected
    Driver(server).run(2)
    assert server.stream == [e for b in range(3) for e in whole_batch("q", b)]
    assert server.staging == {}
    if step != "begin":  # a transaction that no record names ends by its lease
        assert all(txn.status is not Status.OPEN for txn in server.txns.values())


def refused(driver: Driver, batch: int) -> str:
    """What an older checkpoint is told; nothing has changed."""
    before = list(driver.server.stream)
    with pytest.raises(OlderCheckpointError, match="is older than what was written") as caught:
        driver.run(batch)
    assert caught.value.batch == batch
    assert driver.server.stream == before
    return str(caught.value)


@pytest.mark.parametrize("step", [None, *STEPS])
def test_another_batch_of_the_same_number_is_refused_whatever_happened_to_the_first(step: str | None) -> None:
    server = Server()
    first = Driver(server)
    first.run(0)
    if step is not None:
        first.at[step] = crash
        with pytest.raises(Crash):
            first.run(1)
    else:
        first.run(1)
    # The newest entries of the checkpoint were lost, and batch 1 was planned again.
    other = Driver(server, line="other", since=1)
    if step is not None and STEPS.index(step) < STEPS.index("prepared"):
        # Nothing of it is or will be visible.
        assert other.run(1).outcome == "written"
    else:
        with pytest.raises(OlderCheckpointError, match="batch 1 was already written, but the one"):
            other.run(1)
        assert Driver(server).run(1).outcome == "skipped"
    assert mine(server) == whole_batch("q", 0) + whole_batch("q", 1)


@pytest.mark.parametrize("step", STEPS)
def test_another_checkpoint_is_refused_whatever_happened_to_its_next_batch(step: str) -> None:
    server = Server()
    first = Driver(server)
    first.run(0)
    first.at[step] = crash
    with pytest.raises(Crash):
        first.run(1)
    refused(Driver(server, line="other"), 1)
    assert Driver(server).run(1).outcome in ("written", "recovered", "skipped")
    assert mine(server) == whole_batch("q", 0) + whole_batch("q", 1)


def test_rows_decide_where_the_checkpoint_cannot_be_read() -> None:
    server = Server()
    Driver(server, line=None).run(0)
    assert Driver(server, line=None).run(0).outcome == "skipped"
    other = Driver(server, line=None)
    result = counted(0, [b"q:0:other"])
    with pytest.raises(OlderCheckpointError, match=r"has 6 rows with .*, this one 1 with"):
        other.committer.run(0, lambda txn: [result], lambda: [result])
    # In one run the entry could be read, in the other not.
    assert "cannot be compared" in refused(Driver(server), 0)
    assert mine(server) == whole_batch("q", 0)


def test_a_person_may_write_after_what_exists() -> None:
    server = Server()
    for batch in range(3):
        Driver(server).run(batch)
    refused(Driver(server, line="other"), 1)
    went_on = Driver(server, line="other", on_older_checkpoint="continue_at")
    assert went_on.run(1).outcome == "written"
    assert mine(server) == [e for b in (0, 1, 2, 1) for e in whole_batch("q", b)]
    # From here on this checkpoint is the right one, with the option and without.
    assert Driver(server, line="other", on_older_checkpoint="continue_at").run(1).outcome == "skipped"
    assert Driver(server, line="other").run(1).outcome == "skipped"
    assert Driver(server, line="other").run(2).outcome == "written"
    assert "has another batch 2" in refused(Driver(server), 3)
    assert "batch 2 was already written, but" in refused(Driver(server), 2)
    assert mine(server) == [e for b in (0, 1, 2, 1, 2) for e in whole_batch("q", b)]


@pytest.mark.parametrize("step", STEPS)
def test_a_driver_that_writes_after_what_exists_crashes_at_each_step(step: str) -> None:
    server = Server()
    for batch in range(2):
        Driver(server).run(batch)
    went_on = Driver(server, line="other", on_older_checkpoint="continue_at")
    went_on.at[step] = crash
    with pytest.raises(Crash):
        went_on.run(1)
    replay = Driver(server, line="other", on_older_checkpoint="continue_at")
    assert replay.run(1).outcome in ("written", "recovered", "skipped")
    assert mine(server) == [e for b in (0, 1, 1) for e in whole_batch("q", b)]
    assert Driver(server, line="other").run(2).outcome == "written"
    assert server.staging == {}


def test_what_was_prepared_ends_before_another_batch_is_written_after_it() -> None:
    server = Server()
    first = Driver(server)
    for batch in range(2):
        first.run(batch)
    first.at["prepared"] = crash
    with pytest.raises(Crash):
        first.run(2)
    refused(Driver(server, line="other"), 1)
    went_on = Driver(server, line="other", on_older_checkpoint="continue_at")
    assert went_on.run(1).outcome == "written"
    assert mine(server) == [e for b in (0, 1, 2, 1) for e in whole_batch("q", b)]


@pytest.mark.parametrize("step", STEPS)
def test_a_second_driver_takes_over_at_each_step(step: str) -> None:
    server = Server()
    older, newer = Driver(server), Driver(server)
    older.run(0)
    outcomes = []
    older.at[step] = lambda: outcomes.append(newer.run(1).outcome)
    if STEPS.index(step) < STEPS.index("prepared"):
        with pytest.raises(FencedError):
            older.run(1)
        assert outcomes == ["written"]
    else:
        older.run(1)
        assert outcomes == ["skipped" if step == "done" else "recovered"]
    older.at.clear()
    if step == "done":  # the newer one had nothing to do, so it has not taken over
        older.run(2)
    else:
        with pytest.raises(FencedError):
            older.run(2)
        newer.run(2)
    assert server.stream == [e for b in range(3) for e in whole_batch("q", b)]
    assert server.staging == {}


@pytest.mark.parametrize("step", ["merged", "prepared"])
def test_lost_lease_before_the_commit_is_loud_and_written_again(step: str) -> None:
    server = Server()
    driver = Driver(server)

    def expire() -> None:
        for txn in server.txns.values():
            txn.status = Status.ABORTED

    driver.at[step] = expire
    with pytest.raises(TransactionNotOpenError):
        driver.run(0)
    assert server.stream == []
    driver.at.clear()
    assert driver.run(0).outcome == "written"
    assert server.stream == whole_batch("q", 0)


@pytest.mark.parametrize("step", ["begin", "claimed", "tidied", "staged"])
def test_lost_lease_before_prepared_leaves_no_prepared_record(step: str) -> None:
    server = Server()
    driver = Driver(server)

    def expire() -> None:
        for txn in server.txns.values():
            txn.status = Status.ABORTED

    driver.at[step] = expire
    with pytest.raises(TransactionAbortedError):  # whatever the server said
        driver.run(0)
    assert not any(isinstance(decode_record(each), Prepared) for each in server.ledger)
    assert server.staging == {}


def test_lost_answer_to_a_ledger_append_does_not_fence() -> None:
    server = Server()
    driver = Driver(server)

    def lose() -> None:
        driver.revisioned.lose_answer = True

    driver.at = dict.fromkeys(("begin", "lease-renewed", "visible"), lose)
    driver.run(0)
    assert server.stream == whole_batch("q", 0)
    phases = [type(decode_record(each)) for each in server.ledger]
    assert phases == [Preparing, Staging, Staging, Prepared, Done, Snapshot][: len(phases)]


@pytest.mark.parametrize("kind", [Preparing, Prepared, Done])
def test_an_append_that_ends_in_an_error_but_is_stored_does_not_fence(kind: type[Record]) -> None:
    server = Server()
    driver = Driver(server)
    driver.run(0)
    driver.revisioned.gone_after = kind
    with pytest.raises(RetriesExhaustedError):
        driver.run(1)
    assert driver.run(1).outcome == ("skipped" if kind is Done else "written")
    assert mine(server) == whole_batch("q", 0) + whole_batch("q", 1)
    assert server.staging == {}
    # What another driver does is still noticed.
    Driver(server).run(2)
    with pytest.raises(FencedError):
        driver.run(3)


def test_ctrl_c_ends_the_lease_of_the_transaction() -> None:
    server = Server()
    driver = Driver(server)

    def write(txn: UUID) -> list[AttemptResult]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        driver.committer.run(0, write)
    assert [txn.leased for txn in server.txns.values()] == [False]
    assert driver.run(0).outcome == "written"
    assert mine(server) == whole_batch("q", 0)


def test_failed_tasks_leave_nothing_behind() -> None:
    server = Server()
    driver = Driver(server)

    def write(txn: UUID) -> list[AttemptResult]:
        driver.stage(0, txn, 0, [b"half"])
        raise RuntimeError("task failed four times")

    with pytest.raises(RuntimeError, match="four times"):
        driver.committer.run(0, write)
    assert server.staging == {}
    assert [txn.status for txn in server.txns.values()] == [Status.ABORTED]
    assert driver.run(0).outcome == "written"


@pytest.mark.parametrize("broken", ["transaction_status", "abort"])
def test_a_failed_batch_renews_its_lease_no_more(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    server = Server()
    driver = Driver(server)

    def fail(*args: object) -> None:
        raise RetriesExhaustedError("the controller is away")

    monkeypatch.setattr(FakeClient if broken == "transaction_status" else FakeTransaction, broken, fail)
    driver.at["staged"] = fail
    with pytest.raises(RetriesExhaustedError, match="the controller is away"):
        driver.run(0)
    assert [(txn.status, txn.leased) for txn in server.txns.values()] == [(Status.OPEN, False)]


@pytest.mark.parametrize("others", [0, 1], ids=["alone", "with another writer"])
@pytest.mark.parametrize("committed", [False, True])
def test_forgotten_transaction_is_decided_by_the_stream(committed: bool, others: int) -> None:
    server = Server()
    first = Driver(server)
    first.at["committed" if committed else "prepared"] = crash
    with pytest.raises(Crash):
        first.run(0)
    for txn in server.txns.values():
        txn.status = Status.UNKNOWN
    server.stream.extend([b"other:1"] * others)
    if not others:
        assert Driver(server).run(0).outcome == ("recovered" if committed else "written")
    else:
        with pytest.raises(TransactionUnknownError) as caught:
            Driver(server).run(0)
        assert caught.value.transaction in server.txns
        answer = "committed" if committed else "aborted"
        report = Driver(server, if_forgotten=answer).run(0)
        assert report.outcome == ("recovered" if committed else "written")
    assert mine(server) == whole_batch("q", 0)


def test_as_many_bytes_of_somebody_else_do_not_decide() -> None:
    server = Server()
    first = Driver(server)
    first.at["prepared"] = crash
    with pytest.raises(Crash):
        first.run(0)
    for txn in server.txns.values():
        txn.status = Status.UNKNOWN
    server.stream += [event.replace(b"q", b"x") for event in whole_batch("q", 0)]
    with pytest.raises(TransactionUnknownError, match=r"but they differ from it in segment s/t/0"):
        Driver(server).run(0)


@pytest.mark.parametrize("answer", ["raise", "committed", "aborted"])
@pytest.mark.parametrize("call", ["segment_ranges", "range_crc32"])
@pytest.mark.parametrize(
    ("error", "decides"),
    [
        (RetriesExhaustedError("the store is away"), False),
        (PermissionDeniedError("read is not allowed"), False),
        (TlsError("the certificate has expired"), False),
        (HostNotFoundError("no such host"), False),
        (DataLossError("truncated", start_offset=5, offset=1), True),
        (NoSuchSegmentError("the segment is gone"), True),
        (InvalidStreamCutError("the cut is beyond the end"), True),
        (StreamNotFoundError("the stream is gone"), True),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, PravegaError) else str(each),
)
def test_only_data_that_is_gone_leaves_a_forgotten_transaction_undecided(
    monkeypatch: pytest.MonkeyPatch, error: PravegaError, decides: bool, call: str, answer: str
) -> None:
    server = Server()
    first = Driver(server)
    first.at["committed"] = crash
    with pytest.raises(Crash):
        first.run(0)
    for txn in server.txns.values():
        txn.status = Status.UNKNOWN

    def fail(*args: object, **more: object) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(FakeClient, call, fail)
        if not decides or answer == "raise":
            with pytest.raises(TransactionUnknownError if decides else type(error)):
                Driver(server, if_forgotten=answer).run(0)
            assert mine(server) == whole_batch("q", 0)
            return
        report = Driver(server, if_forgotten=answer).run(0)
    assert report.outcome == ("recovered" if answer == "committed" else "written")


@pytest.mark.parametrize("again", [False, True], ids=["same driver", "started again"])
def test_a_commit_that_nobody_waited_for_is_noticed_if_it_is_not_carried_out(again: bool) -> None:
    server = Server()
    driver = Driver(server, wait_visible=False)
    driver.run(0)
    (first,) = server.txns
    server.txns[first].status = Status.COMMITTING
    if again:
        driver = Driver(server, wait_visible=False)
    with pytest.raises(PravegaTimeoutError, match="still committing") as caught:
        driver.run(1)
    assert "about batch 0 of query 'q'" in caught.value.__notes__[0]
    assert [txn.status for txn in server.txns.values()] == [Status.COMMITTING, Status.ABORTED]
    assert mine(server) == whole_batch("q", 0)
    server.txns[first].status = Status.COMMITTED
    assert driver.run(1).outcome == "written"
    for txn in server.txns.values():
        txn.status = Status.UNKNOWN
    assert driver.run(2).outcome == "written"
    assert mine(server) == [e for b in range(3) for e in whole_batch("q", b)]


def test_staged_data_that_is_gone_is_not_committed() -> None:
    server = Server()
    driver = Driver(server)

    def lose() -> None:
        server.staging.popitem()

    driver.at["staged"] = lose
    with pytest.raises(TransactionError, match="have staged 90 for it") as caught:
        driver.run(0)
    assert "has 45 bytes in segment 21474836480" in str(caught.value)
    assert server.stream == []
    driver.at.clear()
    assert driver.run(0).outcome == "written"


def test_partitions_that_were_merged_in_another_order_are_not_committed() -> None:
    """A store may do that if it was replaced in the meantime; the length alone does not tell."""
    server = Server(merges_backwards=True)
    with pytest.raises(TransactionError, match="may not have the partitions in their order"):
        Driver(server).run(0)
    assert server.stream == []
    server.merges_backwards = False
    assert Driver(server).run(0).outcome == "written"
    assert server.stream == whole_batch("q", 0)


def test_attempt_that_outlives_its_batch_is_tidied_by_the_next() -> None:
    server = Server()
    driver = Driver(server)
    driver.run(0)
    (txn,) = server.txns
    driver.stage(0, txn, 1, [b"late"])
    driver.run(1)
    assert server.staging == {}
    assert server.txns[txn].status is Status.COMMITTED


NEVER = 10**9


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long for the end of a transaction."""
    monkeypatch.setattr("spark_adapter.exactly_once.driver._END_LIMIT", 0.05)


def end_aborts(server: Server) -> None:
    server.slow_aborts = 0
    for txn in server.txns.values():
        if txn.status is Status.ABORTING:
            txn.status = Status.ABORTED


@pytest.mark.parametrize("step", ["claimed", "tidied", "staged"])
def test_segments_that_may_be_merging_are_left_to_a_later_batch(short_waits: None, step: str) -> None:
    server = Server()
    first = Driver(server)
    first.at[step] = crash
    with pytest.raises(Crash):
        first.run(0)
    (old,) = server.txns
    first.stage(0, old, 1, [b"late"])
    left = {each for each in server.staging if each[0] == old}
    server.slow_aborts = NEVER
    driver = Driver(server)
    for batch in range(2):
        assert driver.run(batch).outcome == "written"
        assert server.staging.keys() == left
        assert server.txns[old].status is Status.ABORTING
    assert list(driver.journal.sink_state.leftovers) == [old]
    end_aborts(server)
    assert driver.run(2).outcome == "written"
    assert (server.staging, driver.journal.sink_state.leftovers) == ({}, {})
    assert mine(server) == [e for b in range(3) for e in whole_batch("q", b)]


def test_a_transaction_that_is_about_to_end_is_waited_for() -> None:
    server = Server(slow_aborts=4)
    first = Driver(server)
    first.at["staged"] = crash
    with pytest.raises(Crash):
        first.run(0)
    driver = Driver(server)
    deleted: list[int] = []
    driver.at["tidied"] = lambda: deleted.append(len(server.staging))
    driver.run(0)
    assert deleted == [0]


def test_a_repeated_batch_deletes_nothing_of_a_prepared_one() -> None:
    server = Server()
    Driver(server).run(0)
    driver = Driver(server)
    driver.at["prepared"] = crash
    with pytest.raises(Crash):
        driver.run(1, [0])
    left = set(server.staging)
    assert len(left) == 1
    # The transaction is open.
    assert Driver(server).run(0).outcome == "skipped"
    assert set(server.staging) == left
    assert Driver(server).run(1).outcome == "recovered"
    assert server.staging == {}


@pytest.mark.parametrize("looks", [4, NEVER])
def test_a_failed_batch_deletes_nothing_that_may_be_merging(
    request: pytest.FixtureRequest, looks: int
) -> None:
    if looks == NEVER:
        request.getfixturevalue("short_waits")
    server = Server(slow_aborts=looks)
    driver = Driver(server)

    def give_up() -> None:
        raise RetriesExhaustedError("no answer to a merge")

    driver.at["staged"] = give_up
    with pytest.raises(RetriesExhaustedError, match="to a merge"):
        driver.run(0)
    assert len(server.staging) == (2 if looks == NEVER else 0)
    driver.at.clear()
    end_aborts(server)
    assert driver.run(0).outcome == "written"
    assert server.staging == {}


def test_queries_share_a_ledger_and_survive_each_others_compaction() -> None:
    server = Server()
    left, right = Driver(server, "left"), Driver(server, "right")
    for batch in range(6):
        left.at = {step: lambda b=batch: right.run(b) for step in ("staged",)}
        left.run(batch)
    assert server.ledger_start > 0
    for query in ("left", "right"):
        assert mine(server, query) == [e for b in range(6) for e in whole_batch(query, b)]
        assert Driver(server, query).run(5).outcome == "skipped"


def test_ledger_is_bounded() -> None:
    server = Server()
    driver = Driver(server, compact_after=10)
    sizes = []
    for batch in range(40):
        driver.run(batch)
        sizes.append(len(server.ledger) - server.ledger_start)
    assert max(sizes) <= 10 + 5


# --- any order of anything ------------------------------------------------------------------------


def test_a_large_ledger_is_compacted_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    names = [f"job {number}" for number in range(40)]
    for name in names:
        Driver(server, name, compact_after=10**6).run(0)
    monkeypatch.setattr("spark_adapter.exactly_once.journal._SNAPSHOT_BYTES", 1000)
    # a rival's record between two parts: they say nothing, and nothing is truncated
    driver = Driver(server, "a", compact_after=1)
    driver.journal.refresh()
    before = driver.journal.state.sinks
    append = driver.revisioned.write_conditionally
    tries: list[int] = []

    def disturbed(revision: int, value: bytes) -> int | None:
        tries.append(revision)
        if len(tries) == 3:
            rival = Staging(query="b", stream="s/t", batch=0, txn=uuid4(), session=uuid4(), staging=uuid4())
            server.ledger.append(encode_record(rival))
        return append(revision, value)

    with monkeypatch.context() as patched:
        patched.setattr(driver.revisioned, "write_conditionally", disturbed)
        assert not driver.journal.compact()
    assert server.ledger_start == 0
    for journal in (driver.journal, Driver(server, "a").journal):
        journal.refresh()
        assert {key: state for key, state in journal.state.sinks.items() if key.query != "b"} == before
    # without one
    assert driver.journal.compact()
    parts = server.ledger[server.ledger_start :]
    assert len(parts) > 3
    assert max(map(len, parts)) < 2000
    fresh = Driver(server, "a").journal
    fresh.refresh()
    assert fresh.state == driver.journal.state
    assert fresh.state.records == 0
    assert {key.query for key in fresh.state.sinks} == {*names, "b"}
    assert Driver(server, names[3]).run(0).outcome == "skipped"
    # read one by one, as they come
    state = LedgerState()
    for data in parts:
        state = state.after(decode_record(data))
    assert state == fresh.state


def test_a_job_that_is_done_takes_little_of_a_snapshot() -> None:
    done = SinkState(last_done=0, last_txn=UUID(int=1), last_session=UUID(int=2))
    small = encode_record(Snapshot(sinks={SinkKey("j", "s/t"): done}))
    two = encode_record(Snapshot(sinks={SinkKey("j", "s/t"): done, SinkKey("k", "s/t"): done}))
    assert len(two) - len(small) < 180


class Protocol(RuleBasedStateMachine):
    """Any sequence of crashes, expiries, forgetting, zombies and neighbours."""

    @initialize()
    def start(self) -> None:
        self.server = Server()
        self.driver = Driver(self.server)
        self.next_batch = 0
        self.foreign = 0

    def _succeeded(self) -> None:
        self.next_batch += 1
        assert mine(self.server) == [e for b in range(self.next_batch) for e in whole_batch("q", b)]

    def _run(self, driver: Driver, failed: list[int]) -> None:
        try:
            driver.run(self.next_batch, failed)
        except TransactionUnknownError:
            assert self.foreign  # alone on the stream, the evidence always decides
            batch = whole_batch("q", self.next_batch)
            answer = "committed" if set(batch) <= set(self.server.stream) else "aborted"
            self.driver = Driver(self.server, if_forgotten=answer)
            self.driver.run(self.next_batch)
        self._succeeded()

    @rule(failed=st.lists(st.integers(0, 1), max_size=2))
    def batch(self, failed: list[int]) -> None:
        self.driver.at.clear()
        self._run(self.driver, failed)
        assert self.server.staging == {}

    @rule(step=st.sampled_from(STEPS), failed=st.lists(st.integers(0, 1), max_size=2))
    def crash_in_batch(self, step: str, failed: list[int]) -> None:
        self.driver.at = {step: crash}
        with contextlib.suppress(Crash):
            self._run(self.driver, failed)
        self.driver = Driver(self.server)

    @rule(data=st.data())
    def older_checkpoint(self, data: st.DataObject) -> None:
        self.driver.journal.refresh()
        last = self.driver.journal.sink_state.last_done
        if last is None:
            return
        batch = data.draw(st.integers(0, last))
        before = list(self.server.stream)
        other = Driver(self.server, line=data.draw(st.sampled_from(["line", "other"])))
        if other.line == "line" and batch == last:
            assert other.run(batch).outcome == "skipped"
        else:
            with pytest.raises(OlderCheckpointError, match=f"batch {batch} was not written"):
                other.run(batch)
        assert self.server.stream == before

    @rule(step=st.sampled_from(STEPS), die=st.booleans())
    def taken_over(self, step: str, die: bool) -> None:
        old, new = self.driver, Driver(self.server)

        def take_over() -> None:
            old.at.clear()
            if die:
                new.at["merged"] = crash
            with contextlib.suppress(Crash):
                self._run(new, [0])

        old.at = {step: take_over}
        before = self.next_batch
        try:
            old.run(before)
        except (FencedError, TransactionNotOpenError, TransactionUnknownError):
            pass
        else:
            # whoever finished it: it is there once, and the engine is told so
            self.next_batch = before
            self._succeeded()
        self.driver = Driver(self.server)

    @rule()
    def lost_answer(self) -> None:
        self.driver.revisioned.lose_answer = True

    @rule()
    def leases_run_out(self) -> None:
        for txn in self.server.txns.values():
            if txn.status is Status.OPEN:
                txn.status = Status.ABORTED

    @rule()
    def server_forgets(self) -> None:
        for txn in self.server.txns.values():
            if txn.status is not Status.OPEN:
                txn.status = Status.UNKNOWN

    @rule()
    def somebody_else_writes(self) -> None:
        self.server.stream.append(b"other:1")
        self.foreign += 1

    @rule(data=st.data())
    def late_attempt(self, data: st.DataObject) -> None:
        if self.server.txns:
            txn = data.draw(st.sampled_from(list(self.server.txns)))
            self.driver.stage(0, txn, 0, [b"late"])

    @rule()
    def neighbour(self) -> None:
        driver = Driver(self.server, "n", compact_after=2)
        driver.journal.refresh()
        last = driver.journal.sink_state.last_done
        driver.run(0 if last is None else last + 1)
        self.foreign += 1  # its events are on the same stream

    @invariant()
    def at_most_one_batch_ahead(self) -> None:
        got = mine(self.server)
        certain = [e for b in range(self.next_batch) for e in whole_batch("q", b)]
        assert got in (certain, certain + whole_batch("q", self.next_batch))

    @invariant()
    def neighbours_are_whole(self) -> None:
        got = mine(self.server, "n")
        assert got == [e for b in range(len(got) // 6) for e in whole_batch("n", b)]


TestProtocol = Protocol.TestCase
TestProtocol.settings = settings(
    max_examples=150,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


# --- records and decisions ------------------------------------------------------------------------

names = st.text(max_size=20)
uuids = st.uuids()
numbers = st.integers(0, 2**63 - 1)
common = {
    "query": names,
    "stream": names,
    "sink": names,
    "batch": numbers,
    "txn": uuids,
    "session": uuids,
    "id": uuids,
}


def built(kind: type[Record], **more: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(lambda fields: kind(**fields), st.fixed_dictionaries({**common, **more}))


identities = st.one_of(
    st.none(),
    st.builds(PlannedBatch, names, st.none() | names, st.booleans(), names),
    st.builds(WrittenRows, numbers, numbers, numbers),
)
about_prepared: dict[str, st.SearchStrategy[Any]] = {
    "rows": numbers,
    "cut": names,
    "winners": st.lists(uuids, max_size=3).map(tuple),
    "timestamp": st.none() | st.integers(-(2**63), 2**63 - 1),
}
contents = st.dictionaries(
    numbers, st.builds(StagedBytes, st.integers(1, 2**63 - 1), st.integers(0, 2**32 - 1)), max_size=3
)
prepared_records = built(Prepared, contents=contents, identity=identities, **about_prepared)
id_sets = st.frozensets(uuids, max_size=3)
sink_states = st.builds(
    SinkState,
    last_done=st.none() | numbers,
    last_txn=st.none() | uuids,
    last_session=st.none() | uuids,
    last_identity=identities,
    last_generation=numbers,
    claim=st.none()
    | st.builds(
        Claim,
        batch=numbers,
        txn=uuids,
        session=uuids,
        staging=id_sets,
        prepared=st.none() | prepared_records,
        void=id_sets,
        began=st.none() | numbers,
        generation=numbers,
    ),
    leftovers=st.dictionaries(uuids, id_sets, max_size=3),
    checkpoint=st.none() | names,
)
sink_keys = st.builds(SinkKey, names, names, names)
records = st.one_of(
    built(Preparing, checkpoint=st.none() | names, began=st.none() | numbers, generation=numbers),
    built(Staging, staging=uuids),
    prepared_records,
    built(Done, rows=numbers, tidied=st.booleans()),
    built(Forget),
    st.builds(Snapshot, sinks=st.dictionaries(sink_keys, sink_states, max_size=3), id=uuids),
    st.builds(
        Snapshot,
        sinks=st.dictionaries(sink_keys, sink_states, max_size=3),
        id=uuids,
        snapshot=uuids,
        part=numbers,
        parts=numbers,
    ),
)


@given(records)
def test_records_round_trip(record: Record) -> None:
    assert decode_record(encode_record(record)) == record


@example(b"[" * 100_000)
@example(
    encode_record(Done(query="q", stream="s/t", batch=4, txn=UUID(int=1), session=UUID(int=2))).replace(
        b'"batch":4', b'"batch":1e999'
    )
)
@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_garbage_is_named(data: bytes) -> None:
    with pytest.raises(CorruptedStateError):
        decode_record(data)


@given(record=records, data=st.data())
def test_damaged_records_are_refused_or_read(record: Record, data: st.DataObject) -> None:
    encoded = encode_record(record)
    at = data.draw(st.integers(0, len(encoded) - 1))
    damaged = encoded[:at] + data.draw(st.binary(max_size=2)) + encoded[at + 1 :]
    with contextlib.suppress(CorruptedStateError):  # the only error there is
        decode_record(damaged)


def test_documented_record_bytes() -> None:
    record = Preparing(
        query="flights",
        stream="demo/flights",
        batch=4,
        txn=UUID(int=1),
        session=UUID(int=2),
        id=UUID(int=3),
    )
    assert encode_record(record) == (
        b'{"batch":4,"checkpoint":null,"id":"00000000000000000000000000000003",'
        b'"phase":"PREPARING","query":"flights","session":"00000000000000000000000000000002","sink":"",'
        b'"stream":"demo/flights","txn":"00000000000000000000000000000001","v":1}'
    )
    prepared = Prepared(
        query="flights",
        stream="demo/flights",
        batch=4,
        txn=UUID(int=1),
        session=UUID(int=2),
        id=UUID(int=3),
        rows=3,
        contents={4294967297: StagedBytes(20, 7), 4294967296: StagedBytes(40, 4294967295)},
        cut="H4sIAA==",
        winners=(UUID(int=5),),
        identity=WrittenRows(3, 60, 8),
    )
    assert encode_record(prepared) == (
        b'{"batch":4,"contents":[[4294967296,40,4294967295],[4294967297,20,7]],"cut":"H4sIAA==",'
        b'"id":"00000000000000000000000000000003","identity":{"bytes":60,"checksum":8,"rows":3},'
        b'"phase":"PREPARED","query":"flights","rows":3,'
        b'"session":"00000000000000000000000000000002","sink":"","stream":"demo/flights","timestamp":null,'
        b'"txn":"00000000000000000000000000000001","v":1,"winners":["00000000000000000000000000000005"]}'
    )


@pytest.mark.parametrize("row", [[1, 0, 5], [1, 5, 2**32], [1, 5, -1], [-1, 5, 5], [1, 5], [0, 1, 1]])
def test_damaged_contents_are_refused(row: list[int]) -> None:
    with pytest.raises((CorruptedStateError, ValueError)):
        load_contents([[0, 1, 1], row])


@pytest.mark.parametrize("other", [{"stream": "s/u"}, {"sink": "second"}], ids=["stream", "name"])
@pytest.mark.parametrize("step", STEPS)
def test_sinks_of_one_query_have_histories_of_their_own(other: dict[str, str], step: str) -> None:
    server = Server()
    first, second = Driver(server), Driver(server, **other)  # type: ignore[arg-type]
    for driver in (first, second):
        assert driver.run(0).outcome == "written"
    assert first.run(1).outcome == "written"
    second.at[step] = crash
    with pytest.raises(Crash):
        second.run(1)
    first, second = Driver(server), Driver(server, **other)  # type: ignore[arg-type]
    assert first.run(1).outcome == "skipped"
    prepared = STEPS.index(step) >= STEPS.index("prepared")
    expected = "skipped" if step == "done" else "recovered" if prepared else "written"
    assert second.run(1).outcome == expected
    assert server.stream == [e for b in (0, 0, 1, 1) for e in whole_batch("q", b)]
    assert server.staging == {}


def test_ledger_that_does_not_know_the_sink_refuses_later_batches() -> None:
    server = Server()
    Driver(server, "other").run(0)
    Driver(server, stream="s/u").run(0)
    before = list(server.ledger)
    with pytest.raises(
        InvalidArgumentError,
        match=r"s/ledger has no record of query 'q' to stream s/t, .*"
        r"It has records of query 'q' to stream s/u \(batch 0\).*new_ledger=True",
    ):
        Driver(server).run(1)
    assert server.ledger == before
    assert server.txns.keys() == {decode_record(each).txn for each in before if b'"DONE"' in each}  # type: ignore[union-attr]
    added = Driver(server, new_ledger=True)
    assert added.run(1).outcome == "written"
    assert Driver(server).run(2).outcome == "written"


def test_another_version_is_refused() -> None:
    data = encode_record(Done(query="q", stream="s/t", batch=0, txn=uuid4(), session=uuid4()))
    with pytest.raises(CorruptedStateError, match="version 2"):
        decode_record(data.replace(b'"v":1', b'"v":2'))


def test_decisions() -> None:
    txn, session = uuid4(), uuid4()
    prepared = Prepared(
        query="q", batch=3, txn=txn, session=session, stream="s/t", rows=1, contents={}, cut="0"
    )
    claim = Claim(3, txn, session)
    ready = Claim(3, txn, session, prepared=prepared)
    assert decide(SinkState(), 0) == WriteBatch()
    assert decide(SinkState(), 1) == NeverHeardOf()
    assert decide(SinkState(), 1, new_ledger=True) == WriteBatch()
    assert decide(SinkState(leftovers={txn: frozenset()}), 1) == NeverHeardOf()
    assert decide(SinkState(claim=claim), 3) == WriteBatch()
    same, other = PlannedBatch("a", None, False, "a"), PlannedBatch("b", None, False, "b")
    done = SinkState(last_done=3, last_identity=same)
    assert decide(done, 3, identity=same) == AlreadyDone()
    assert decide(done, 3) == CompareRows()
    assert isinstance(decide(done, 3, identity=other), Older)
    assert decide(done, 3, identity=other, named=True) == AlreadyDone()
    assert isinstance(decide(done, 2, identity=same), Older)
    assert isinstance(decide(replace(done, claim=replace(ready, batch=5)), 4, identity=same), Older)
    assert decide(replace(done, claim=Claim(1, txn, session, generation=1)), 1) == WriteBatch()
    assert decide(replace(done, claim=Claim(1, txn, session, generation=1)), 3) == WriteBatch()
    assert isinstance(decide(replace(done, last_generation=1), 2, identity=same), Older)
    assert decide(SinkState(last_done=2, claim=claim), 3) == WriteBatch()
    assert decide(SinkState(last_done=2, claim=ready), 3) == Resume(prepared, ready)
    assert decide(SinkState(last_done=2, claim=ready), 4) == Older(
        "batch 3 of another checkpoint may already have been written"
    )
    with pytest.raises(InvalidArgumentError, match="checkpoint with id old"):
        decide(SinkState(checkpoint="old"), 0, "new")
    assert decide(SinkState(checkpoint="old"), 0, "old") == WriteBatch()


def test_a_batch_that_spark_has_planned_again() -> None:
    """Its entry in the checkpoint has another time; the end offsets say whether it has the same rows."""

    def again(offsets: str, *, stateful: bool = False, then: str = "") -> Decision:
        written, asked = (
            planned_batch(f'v1\n{{"batchTimestampMs":{time}}}\n{text}', stateful)
            for time, text in ((5, offsets), (7, then or offsets))
        )
        return decide(SinkState(last_done=3, last_identity=written), 3, identity=asked)

    pravega, kafka = '{"v":1,"cuts":{"a/b":"cut"}}', '{"topic":{"0":5}}'
    for positions in (pravega, kafka, f"{pravega}\n-\n{kafka}"):
        assert again(positions) == AlreadyDone()
        assert isinstance(again(positions, stateful=True), Older)
        assert isinstance(again(positions, then=positions.replace("5", "6").replace("cut", "on")), Older)
    # The number of a log that the checkpoint keeps as well, as a source of files has it.
    for number in ('{"logOffset":5}', f'{pravega}\n{{"logOffset":5}}', "5"):
        assert isinstance(again(number), Older)


def test_the_entries_of_a_checkpoint_with_named_sources() -> None:
    def planned(version: str, *lines: str) -> PlannedBatch:
        found = planned_batch("\n".join((version, "{}", *lines)), False)
        assert found is not None
        return found

    pravega, other = (f'{{"v": 1, "cuts": {{"a/b": "{cut}"}}}}' for cut in ("cut", "other"))
    kafka, files = '{"topic":{"0":5}}', '{"logOffset":5}'
    found = planned("v2", f"0:{pravega}", f"orders:{kafka}", "2:-")
    assert found.streams == {"a/b"}
    assert found.offsets is not None
    assert found.offsets != planned("v2", f"0:{pravega}", f"refunds:{kafka}", "2:-").offsets
    assert found.offsets != planned("v2", f"0:{other}", f"orders:{kafka}", "2:-").offsets
    assert planned("v2", f"0:{pravega}", f"1:{files}").offsets is None


def test_the_entries_of_a_checkpoint_of_an_unknown_version(caplog: pytest.LogCaptureFixture) -> None:
    found = planned_batch('v3\n{}\n{"v": 1, "cuts": {"a/b": "cut"}}', False)
    assert found is not None
    assert found.offsets is None
    assert not found.streams
    assert "version v3, which this version of the adapter does not know" in caplog.text


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        ("OPEN", TxnOutcome.COMMIT),
        ("COMMITTING", TxnOutcome.WAIT),
        ("COMMITTED", TxnOutcome.WAIT),
        ("ABORTING", TxnOutcome.REWRITE),
        ("ABORTED", TxnOutcome.REWRITE),
        ("UNKNOWN", TxnOutcome.EVIDENCE),
    ],
)
def test_status_decides(status: str, outcome: TxnOutcome) -> None:
    assert TxnOutcome.of(status) is outcome


def test_impossible_records_are_corruption() -> None:
    txn, session = uuid4(), uuid4()
    state = LedgerState()
    of: Any = {"query": "q", "stream": "s/t", "session": session}
    done = Done(**of, batch=0, txn=txn)
    prepared = Prepared(**of, batch=0, txn=txn, rows=0, contents={}, cut="")
    with pytest.raises(CorruptedStateError, match="DONE"):
        state.after(done)
    with pytest.raises(CorruptedStateError, match="PREPARED"):
        state.after(prepared)
    claimed = state.after(Preparing(**of, batch=0, txn=txn))
    ended = claimed.after(prepared).after(done)
    with pytest.raises(CorruptedStateError, match="batch 0 is already DONE"):
        ended.after(Preparing(**of, batch=0, txn=uuid4()))
    again = ended.after(Preparing(**of, batch=0, txn=uuid4(), generation=1))
    assert again.sink(SinkKey("q", "s/t")).last_of_generation is None


@pytest.mark.parametrize("event", [b"a reading", b'{"v": 99}', b"\xff"])
def test_an_error_about_a_record_names_its_ledger(event: bytes) -> None:
    revisioned = FakeRevisioned(Server())
    revisioned.write_unconditionally(event)
    journal = Journal(revisioned, SinkKey("q", "s/t"), name="s/readings")
    with pytest.raises(CorruptedStateError, match=r"^ledger s/readings, after 0: the ledger has"):
        journal.refresh()


@given(st.lists(st.tuples(st.binary(max_size=20), st.none() | st.text(max_size=3))), st.randoms())
def test_checksum_ignores_order_and_notices_change(rows: list[tuple[bytes, str | None]], random: Any) -> None:
    def checksum(rows: list[tuple[bytes, str | None]]) -> int:
        return checksum_of([event for event, _ in rows], [key for _, key in rows])

    shuffled = list(rows)
    random.shuffle(shuffled)
    assert checksum(shuffled) == checksum(rows)
    assert checksum([*rows, (b"one more", None)]) != checksum(rows)
    if rows:
        event, key = rows[0]
        assert checksum([(event, f"{key}x"), *rows[1:]]) != checksum(rows)


@given(
    st.tuples(names, numbers, uuids, st.integers(0, 9), st.integers(0, 9)),
    st.tuples(names, numbers, uuids, st.integers(0, 9), st.integers(0, 9)),
)
def test_staging_ids_differ_with_what_they_name(
    one: tuple[str, int, UUID, int, int], other: tuple[str, int, UUID, int, int]
) -> None:
    assert (staging_id(*one) == staging_id(*other)) == (one == other)


class LedgerClient:
    """Has one ledger; at the first look another task is about to create it."""

    def __init__(self, created_meanwhile: bool, sealed: bool = False) -> None:
        self.exists = self.sealed = sealed
        self._created_meanwhile = created_meanwhile

    def revisioned_stream(self, stream: ScopedStream) -> object:
        usable = self.exists and not self.sealed
        self.exists = self.exists or self._created_meanwhile
        if not usable:
            raise StreamNotFoundError("not found", scope=stream.scope, stream=stream.name)
        return self

    def stream_exists(self, stream: ScopedStream) -> bool:
        return self.exists

    def create_stream(self, stream: ScopedStream, configuration: int) -> bool:
        created, self.exists = not self.exists, True
        return created


@pytest.mark.parametrize("created_meanwhile", [False, True])
def test_tasks_that_open_a_new_ledger_together_find_it(created_meanwhile: bool) -> None:
    client: Any = LedgerClient(created_meanwhile)
    ledger, key = ScopedStream("s", "t-ledger"), SinkKey("q", "s/t")
    assert open_ledger(client, ledger, key, 0, new_ledger=False) is client


def test_a_sealed_ledger_is_refused() -> None:
    client: Any = LedgerClient(False, sealed=True)
    ledger, key = ScopedStream("s", "t-ledger"), SinkKey("q", "s/t")
    with pytest.raises(InvalidArgumentError, match="ledger s/t-ledger is sealed"):
        open_ledger(client, ledger, key, 0, new_ledger=False)


def test_a_ledger_in_a_scope_that_does_not_exist_is_named() -> None:
    class Scopeless(LedgerClient):
        def create_stream(self, stream: ScopedStream, configuration: int) -> bool:
            raise ScopeNotFoundError(f"scope {stream.scope} does not exist", scope=stream.scope)

    client: Any = Scopeless(False)
    ledger, key = ScopedStream("typo", "ledger"), SinkKey("q", "s/t")
    with pytest.raises(ScopeNotFoundError, match=r"ledger typo/ledger of .* s/t cannot .* ledger_stream"):
        open_ledger(client, ledger, key, 0, new_ledger=False)
