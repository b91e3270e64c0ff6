"""Writers by format name against a model of the server: what they keep, refuse and leave behind."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self
from unittest.mock import MagicMock
from uuid import UUID, uuid4

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql.types import BinaryType, StructField, StructType

from pravega_wire import ScopedStream
from pravega_wire.errors import (
    FencedError,
    InvalidArgumentError,
    PravegaError,
    RetriesExhaustedError,
    ScopeNotFoundError,
    StreamNotFoundError,
)
from spark_adapter.exactly_once.contents import AttemptResult
from spark_adapter.exactly_once.election import ElectedCommitter
from spark_adapter.exactly_once.identity import PlannedBatch
from spark_adapter.exactly_once.journal import is_open_since
from spark_adapter.exactly_once.ledger import decode_record, job_query
from spark_adapter.writing import format_writer, partition
from spark_adapter.writing.format_writer import Attempt, Place, _patience, batch_sink, stream_sink
from spark_adapter.writing.partition import PartitionWriter
from tests.unit.test_spark_election import Client, elected, journal_of, leave_behind, staged
from tests.unit.test_spark_ledger import (
    Counted,
    Crash,
    Driver,
    FakeRevisioned,
    Server,
    contents_of,
    crash,
)
from tests.unit.test_spark_tasks import CONFIG

SCHEMA = StructType([StructField("event", BinaryType())])


class Ledger(FakeRevisioned):
    """Notes whether it was closed."""

    closed = False

    def close(self) -> None:
        self.closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Held:
    """Stands for a client that is held."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def close(self) -> None:
        pass

    def __enter__(self) -> Any:
        return self.client

    def __exit__(self, *error: object) -> None:
        pass


class Whole(Client):
    """A client of a server whose stream is missing, with ledgers."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.made: list[ScopedStream] = []
        self.ledgers: list[Ledger] = []

    def active_segments(self, stream: ScopedStream) -> list[object]:
        raise StreamNotFoundError(f"{stream} does not exist")

    def create_stream(self, stream: ScopedStream, configuration: object) -> bool:
        self.made.append(stream)
        return True

    def revisioned_stream(self, ledger: ScopedStream) -> Ledger:
        self.ledgers.append(Ledger(self.server))
        return self.ledgers[-1]


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Whole:
    """The client of this process, and nothing kept from other tests."""
    client = Whole(Server())
    use(monkeypatch, client)
    # Writes to another controller find nothing that this process has kept.
    monkeypatch.setenv("PRAVEGA_CONTROLLER_URI", f"tcp://{uuid4().hex}:9090")
    return client


def use(monkeypatch: pytest.MonkeyPatch, client: Any) -> None:
    """In a task, let writers use this client."""
    task = SimpleNamespace(partitionId=lambda: 0, taskAttemptId=lambda: 1, getLocalProperty=lambda name: None)
    for module in (format_writer, partition):
        monkeypatch.setattr(module, "HeldClient", lambda config: Held(client))
        monkeypatch.setattr(module, "TaskContext", SimpleNamespace(get=lambda: task))
    monkeypatch.setattr(format_writer, "client_for", lambda config: client)


def sink_of(**more: str) -> Any:
    """A writer of jobs to the model's stream."""
    return batch_sink({"stream": "s/t", **more}, SCHEMA, False)


def place_of(sink: Any) -> Place:
    """What a task without rows says it has worked for."""
    place: Place = sink.write(iter([])).place
    return place


def messages_of(server: Server, sink: Any) -> list[Attempt]:
    """What tasks that have written all rows tell the driver."""
    place = place_of(sink)
    return [Attempt(did, place) for did in staged(server, place.session, 0, place.query)]


class Deleting(Whole):
    """A client of a server whose stream is deleted in between."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.there = False
        self.written: list[bytes] = []
        self.broken_after = 0

    def _require(self, stream: ScopedStream) -> None:
        if not self.there:
            raise StreamNotFoundError(f"{stream} does not exist")

    def active_segments(self, stream: ScopedStream) -> list[object]:
        self._require(stream)
        return []

    def create_stream(self, stream: ScopedStream, configuration: object) -> bool:
        self.there = True
        return super().create_stream(stream, configuration)

    def begin_transaction(self, stream: Any, *, lease: float) -> Any:
        self._require(stream)
        return super().begin_transaction(stream, lease=lease)

    def event_writer(self, stream: ScopedStream) -> Any:
        self._require(stream)
        before = len(self.written)
        writer = MagicMock()
        writer.__enter__.return_value = writer
        writer.__exit__.return_value = None
        writer.write_events.side_effect = self._put
        writer.metrics.side_effect = lambda: SimpleNamespace(
            events_acknowledged=len(self.written) - before, bytes_acknowledged=0
        )
        return writer

    def staging(self, stream: Any, txn_id: UUID) -> Any:
        return SimpleNamespace(
            writer=lambda staging: self.staging_writer(stream, txn_id, staging),
            delete=lambda ids: self.delete_staging(stream, txn_id, ids),
        )

    @contextmanager
    def staging_writer(self, stream: ScopedStream, txn: UUID, staging: UUID) -> Iterator[Any]:
        events: list[bytes] = []
        self.server.staging[txn, staging] = events
        yield SimpleNamespace(
            write_events=lambda batch, routing_keys: events.extend(batch.to_pylist()),
            contents=lambda: contents_of(events),
        )

    def delete_staging(self, stream: Any, txn_id: UUID, ids: Sequence[UUID]) -> None:
        # An attempt's own segments, which it has not reported: nobody merges them.
        for each in ids:
            self.server.staging.pop((txn_id, each), None)

    def _put(self, events: Any, *, routing_keys: object) -> None:
        if self.broken_after and len(self.written) >= self.broken_after:
            self.there = False
        self._require(ScopedStream("s", "t"))
        self.written += events if isinstance(events, list) else events.to_pylist()


@pytest.fixture
def deleting(monkeypatch: pytest.MonkeyPatch, client: Whole) -> Deleting:
    """The client of a worker process in a task."""
    found = Deleting(Server())
    use(monkeypatch, found)
    return found


def rows_of(*batches: list[bytes]) -> Iterator[pa.RecordBatch]:
    """A partition, as Spark passes it."""
    return iter([pa.RecordBatch.from_pydict({"event": pa.array(each, pa.binary())}) for each in batches])


@pytest.mark.parametrize("semantic", ["exactly_once", "at_least_once"])
def test_a_reused_worker_creates_a_deleted_stream_again(deleting: Deleting, semantic: str) -> None:
    for number in range(2):
        deleting.there = False
        attempt = sink_of(semantic=semantic).write(rows_of([b"a"], [b"b"]))
        assert attempt.did.result.rows == 2
        assert deleting.made.count(ScopedStream("s", "t")) == number + 1


def test_a_reused_worker_creates_a_stream_that_it_could_not_write_to(deleting: Deleting) -> None:
    sink_of(semantic="best_effort").write(rows_of([b"a"]))
    deleting.there = False
    attempt = sink_of(semantic="best_effort").write(rows_of([b"b"]))
    assert attempt.did.result.dropped == 1
    attempt = sink_of(semantic="best_effort").write(rows_of([b"c"]))
    assert attempt.did.result.dropped == 0
    assert deleting.written == [b"a", b"c"]


def test_a_deleted_stream_is_not_written_to_again_when_rows_were_used(deleting: Deleting) -> None:
    deleting.broken_after = 1
    with pytest.raises(StreamNotFoundError):
        sink_of(semantic="at_least_once").write(rows_of([b"a"], [b"b"]))
    assert deleting.written == [b"a"]
    deleting.broken_after = 0
    sink_of(semantic="at_least_once").write(rows_of([b"a"], [b"b"]))
    assert deleting.written == [b"a", b"a", b"b"]


@pytest.mark.parametrize("step", ["done", "prepared", "claimed", ""])
def test_a_stream_is_not_made_anew_under_a_ledger_that_knows_its_batches(
    deleting: Deleting, step: str
) -> None:
    server, session, query = deleting.server, uuid4(), job_query("j")

    def stop(reached: str) -> None:
        if reached == step:
            raise KeyboardInterrupt

    if step:
        attempts = staged(server, session, 0, query)
        if step != "claimed":
            with pytest.raises(KeyboardInterrupt):
                elected(server, session, query, hook=stop).settle(0, attempts)
    sink = sink_of(job_id="j")
    if step in ("done", "prepared"):
        # each attempt is refused, and the second try of one as well
        for _ in range(2):
            with pytest.raises(InvalidArgumentError, match="stream s/t does not exist, but ledger s/t-s"):
                sink.write(rows_of([b"a"]))
        assert deleting.made == []
    else:
        assert sink.write(rows_of([b"a"])).did.outcome == "written"
        assert deleting.made == [ScopedStream("s", "t")]


@pytest.mark.parametrize("ledger", ["typo/ledger", "s/ledger"])
def test_a_stream_is_not_made_for_a_ledger_whose_scope_does_not_exist(
    deleting: Deleting, ledger: str
) -> None:
    """The scope is made with the stream."""
    create, find = deleting.create_stream, deleting.revisioned_stream

    def missing(ledger: ScopedStream) -> Ledger:
        if ledger.scope == "s" and deleting.there:
            return find(ledger)
        raise StreamNotFoundError(f"{ledger} does not exist")

    def refuse(stream: ScopedStream, configuration: object) -> bool:
        if stream.name == "ledger":
            raise ScopeNotFoundError(f"scope {stream.scope} does not exist", scope=stream.scope)
        return create(stream, configuration)

    deleting.revisioned_stream = missing  # type: ignore[method-assign]
    deleting.create_stream = refuse  # type: ignore[method-assign]
    sink = sink_of(job_id="j", ledger_stream=ledger)
    if ledger.startswith("typo"):
        with pytest.raises(ScopeNotFoundError, match="ledger typo/ledger"):
            sink.write(rows_of([b"a"]))
        assert deleting.made == []
    else:
        sink.write(rows_of([b"a"]))
        assert deleting.made == [ScopedStream("s", "t")]


def test_journals_are_few_and_those_that_are_dropped_are_closed(deleting: Deleting) -> None:
    begin = deleting.begin_transaction

    def left_open() -> list[Ledger]:
        return [each for each in deleting.ledgers if not each.closed]

    for number in range(20):
        sink_of(job_id=str(number)).write(rows_of([b"a"]))
    assert len(left_open()) == 1
    for number in range(20):
        sink_of(ledger_stream=f"s/l{number}").write(rows_of([b"a"]))
    assert len(left_open()) == 8
    last = left_open()[-1]

    # two at the same time, and one that failed
    def meanwhile(stream: Any, *, lease: float) -> Any:
        deleting.begin_transaction = begin  # type: ignore[method-assign]
        sink_of(ledger_stream="s/l19").write(rows_of([b"a"]))
        return begin(stream, lease=lease)

    def fail(stream: Any, *, lease: float) -> Any:
        raise FencedError("no")

    deleting.begin_transaction = meanwhile  # type: ignore[method-assign]
    sink_of(ledger_stream="s/l19").write(rows_of([b"a"]))
    assert len(left_open()) == 8
    deleting.begin_transaction = fail  # type: ignore[method-assign]
    with pytest.raises(FencedError):
        sink_of(ledger_stream="s/l19").write(rows_of([b"a"]))
    assert len(left_open()) == 7
    assert last.closed


def test_a_job_does_not_fail_when_its_record_cannot_be_taken_out(client: Whole, caplog: Any) -> None:
    sink = sink_of()
    messages = messages_of(client.server, sink)

    def fail(self: Ledger, value: bytes) -> None:
        raise RetriesExhaustedError("no answer")

    monkeypatch = pytest.MonkeyPatch()
    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "write_unconditionally", fail)
        sink.commit(messages)
    assert "not all of its leftovers are removed" in caplog.text
    assert len(client.server.stream) == 6
    # the next job does it
    again = sink_of()
    again.commit(messages_of(client.server, again))
    assert journal_of(client.server).state.sinks == {}


def test_segments_that_could_not_be_deleted_outlive_their_job_until_the_next_one(
    client: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, server = sink_of(), client.server
    messages, place = messages_of(server, sink), place_of(sink)
    txn = messages[0].did.txn
    loser = leave_behind(server, place.session, [each.did for each in messages], place.query)

    def fail(*args: object) -> None:
        raise RetriesExhaustedError("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(Client, "delete_staging", fail)
        sink.commit(messages)
    assert list(server.staging) == [(txn, loser)]
    again = sink_of()
    again.commit(messages_of(server, again))
    assert server.staging == {}
    assert journal_of(server).state.sinks == {}


@pytest.mark.parametrize(
    ("broken", "options", "said"),
    [
        ("wait_committed", {}, "is COMMITTED. A job without job_id that is run again writes all"),
        ("commit_transaction", {}, "is OPEN. A job without job_id"),
        ("wait_committed", {"job_id": "j"}, None),
        ("merge_staging", {}, None),
    ],
)
def test_a_job_that_may_be_visible_when_it_fails_says_what_to_do(
    client: Whole, monkeypatch: pytest.MonkeyPatch, broken: str, options: dict[str, str], said: str | None
) -> None:
    sink = sink_of(**options)
    messages = messages_of(client.server, sink)

    def fail(*args: object, **more: object) -> None:
        raise RetriesExhaustedError("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(Client, broken, fail)
        with pytest.raises(RetriesExhaustedError, match="no answer") as failed:
            sink.commit(messages)
        sink.abort(messages)
    notes = "".join(getattr(failed.value, "__notes__", []))
    if said is None:
        assert notes == ""
    else:
        assert said in notes
        assert f"transaction {messages[0].did.txn} on stream s/t" in notes
    # what is PREPARED is left alone by Spark's abort, what is not is undone
    assert messages[0].did.txn is not None
    assert (client.server.txns[messages[0].did.txn].status.name == "ABORTED") == (broken == "merge_staging")


@pytest.mark.parametrize("ledger_works", [True, False])
def test_an_attempt_leaves_no_segments_that_the_ledger_does_not_know(
    monkeypatch: pytest.MonkeyPatch, ledger_works: bool
) -> None:
    done: list[object] = []

    class Stages:
        def staging(self, stream: object, txn: object) -> Any:
            return SimpleNamespace(writer=self._made, delete=lambda ids: done.append(("deleted", *ids)))

        def _made(self, staging: object) -> Any:
            done.append("made")
            return self.writing()

        @contextmanager
        def writing(self) -> Iterator[object]:
            yield None
            done.append("closed")

        @contextmanager
        def revisioned_stream(self, ledger: object) -> Iterator[Any]:
            yield SimpleNamespace(write_unconditionally=self.register)

        def register(self, data: bytes) -> None:
            if not ledger_works:
                raise RetriesExhaustedError("the ledger does not answer")
            done.append(decode_record(data).staging)  # type: ignore[union-attr]

    use(monkeypatch, Stages())

    def gone() -> None:
        raise FencedError("its batch is finished")

    writer = PartitionWriter(
        config=CONFIG,
        stream=ScopedStream("s", "t"),
        mode="exactly_once",
        ledger=ScopedStream("s", "ledger"),
        txn=uuid4(),
        session=uuid4(),
        staging_made=gone,
    )
    wanted = "its batch is finished" if ledger_works else "does not answer"
    with pytest.raises(PravegaError, match=wanted):
        list(writer.write_arrow(iter([pa.RecordBatch.from_pydict({"event": [b"x"]})])))
    staging = done[0] if done else None
    assert done == ([staging, "made", "closed", ("deleted", staging)] if ledger_works else [])


@pytest.mark.parametrize(
    ("meanwhile", "compacted"),
    [("nothing", False), ("nothing", True), ("done", False), ("prepared", True), ("taken over", False)],
)
def test_an_attempt_that_comes_late_leaves_no_segments(
    deleting: Deleting, meanwhile: str, compacted: bool
) -> None:
    # The driver of ForeachBatchSink passes where it claimed the batch. Another attempt wins while this one
    # stands between its record in the ledger and its segments.
    server = deleting.server
    deleting.there = True
    driver = Driver(server, compact_after=1000)
    made = deleting.staging_writer
    found: list[Any] = []

    def stall(stream: Any, txn: UUID, staging: UUID) -> Any:
        if meanwhile == "taken over":
            Driver(server).run(0)
        elif meanwhile != "nothing":
            winner = driver.stage(0, txn, 0, [b"x"])
            result = AttemptResult(0, winner, 1, 0, contents_of([b"x"]))
            committer = elected(server, driver.committer.session, hook=stop)
            with pytest.raises(KeyboardInterrupt):
                committer.complete(0, txn, [result])
        Driver(server, "other").run(0)
        if compacted:
            other = Driver(server, "third", compact_after=1)
            other.run(0)
        return made(stream, txn, staging)

    def stop(reached: str) -> None:
        if reached == meanwhile:
            raise KeyboardInterrupt

    def write(txn: UUID) -> list[AttemptResult]:
        writer = PartitionWriter(
            config=CONFIG,
            stream=ScopedStream("s", "t"),
            mode="exactly_once",
            ledger=ScopedStream("s", "ledger"),
            query="q",
            txn=txn,
            session=driver.committer.session,
            claimed_at=driver.committer.revision,
        )
        try:
            found.extend(writer.write_arrow(rows_of([b"x"])))
        except FencedError as error:
            found.append(error)
        raise KeyboardInterrupt

    deleting.staging_writer = stall  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        driver.committer.run(0, write)
    if meanwhile == "nothing":
        assert len(server.staging) == 1
        assert isinstance(found[0], pa.RecordBatch)
    else:
        assert server.staging == {}
        assert "no more data can be staged" in str(found[0])


def test_a_task_reads_only_what_was_recorded_since_its_claim() -> None:
    server = Server()
    Driver(server).run(0)
    driver = Driver(server)
    driver.at["tidied"] = crash
    with pytest.raises(Crash):
        driver.run(1)
    txn = driver.journal.sink_state.claim.txn  # type: ignore[union-attr]
    driver.stage(1, txn, 0, [b"x"])
    calls = Counter[str]()
    counted: Any = Counted(driver.revisioned, calls)
    since = driver.committer.revision
    assert since == len(server.ledger) - 1
    assert is_open_since(counted, since, driver.key, txn)
    assert calls == {"read_from": 1}


def test_a_claim_says_when_the_write_was_planned(deleting: Deleting, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = []
    for at in (5_000_000, 6_000_000):
        with monkeypatch.context() as patched:
            patched.setattr("time.time_ns", lambda at=at: at)
            planned.append(sink_of(job_id="j"))
    older, newer = planned
    again = pickle.loads(pickle.dumps(older))
    assert place_of(again) == place_of(older)
    assert newer.write(rows_of([b"a"])).did.outcome == "written"
    with pytest.raises(FencedError, match=r"started 0\.001 s after this one"):
        # whichever plan commits: the tasks' counts
        newer.commit([again.write(iter([]))])


@pytest.mark.parametrize(("stateful", "taken"), [(True, 3), (False, 1)])
def test_a_task_of_a_batch_that_is_done_takes_all_rows_if_the_query_has_state(
    deleting: Deleting, monkeypatch: pytest.MonkeyPatch, stateful: bool, taken: int
) -> None:
    monkeypatch.setattr(ElectedCommitter, "claim", lambda *arguments: "skip")
    place = Place("q", str(uuid4()), 0, uuid4(), planned=PlannedBatch("entry", None, stateful))
    rows = rows_of([b"a"], [b"b"], [b"c"])
    assert sink_of()._plan.write(rows, lambda task: place).did.outcome == "skipped"
    assert len(list(rows)) == 3 - taken


def test_a_task_of_a_job_that_is_done_takes_all_rows_as_the_job_may_be_of_a_query_with_state(
    deleting: Deleting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ElectedCommitter, "claim", lambda *arguments: "skip")
    rows = rows_of([b"a"], [b"b"], [b"c"])
    assert sink_of(job_id="j").write(rows).did.outcome == "skipped"
    assert list(rows) == []


def test_the_first_partition_begins_and_the_others_follow_one_by_one() -> None:
    waits = [_patience(partition) for partition in range(14)]
    assert waits[0] == 0
    assert waits == sorted(waits)
    assert len(set(waits)) == 13
    assert 0.5 < waits[1] < waits[13] < 1.2


@pytest.mark.parametrize(
    ("inner", "outer", "query", "refused"),
    [
        ("3", "3", None, False),
        ("3", "2", None, True),
        ("3", "2", "of a streaming batch", False),
        ("3", None, None, False),
        (None, None, None, False),
    ],
)
def test_a_write_inside_of_another_command_is_that_of_a_table(
    client: Whole,
    monkeypatch: pytest.MonkeyPatch,
    inner: str | None,
    outer: str | None,
    query: str | None,
    refused: bool,
) -> None:
    properties = {
        "spark.sql.execution.id": inner,
        "spark.sql.execution.root.id": outer,
        "sql.streaming.queryId": query,
    }
    task = SimpleNamespace(partitionId=lambda: 0, taskAttemptId=lambda: 1, getLocalProperty=properties.get)
    monkeypatch.setattr(format_writer, "TaskContext", SimpleNamespace(get=lambda: task))
    if refused:
        with pytest.raises(InvalidArgumentError, match=r"cannot be a table .* save\(\).*Nothing was written"):
            place_of(sink_of())
    else:
        place_of(sink_of())


def test_a_query_does_not_write_to_a_stream_that_it_reads(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    other, own = (json.dumps({"v": 1, "cuts": {f"s/{name}": "x"}}) for name in ("other", "t"))
    given = {"stream": "s/t", "checkpointLocation": str(tmp_path)}
    entry = tmp_path / "offsets" / "0"
    for offsets in (f"-\n{other}", '{"logOffset":5}\n"s/t"\n5', '{"t":{"0":5}}'):
        entry.write_text(f'v1\n{{"batchWatermarkMs":0}}\n{offsets}')
        stream_sink(given, SCHEMA, False)
    entry.write_text(f'v1\n{{"batchWatermarkMs":0}}\n{other}\n{own}')
    with pytest.raises(InvalidArgumentError, match=r"the query reads stream s/t, .* set allow_same"):
        stream_sink(given, SCHEMA, False)
    stream_sink({**given, "allow_same_stream": "true"}, SCHEMA, False)
    # What cannot be read is not known.
    stream_sink({**given, "checkpointLocation": "hdfs://nowhere/place"}, SCHEMA, False)


def test_a_task_checks_what_a_query_reads_if_only_the_session_has_the_place_of_its_checkpoint(
    client: Whole, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    offsets = tmp_path / "all#" / "copy" / "offsets"
    offsets.mkdir(parents=True)
    properties = {
        "spark.sql.streaming.checkpointLocation": f"file:{tmp_path}/all#",
        "streaming.sql.batchId": "7",
    }
    task = SimpleNamespace(partitionId=lambda: 0, taskAttemptId=lambda: 1, getLocalProperty=properties.get)
    monkeypatch.setattr(format_writer, "TaskContext", SimpleNamespace(get=lambda: task))
    given = {"stream": "s/t", "semantic": "at_least_once", "queryName": "copy"}
    written: list[str] = []
    monkeypatch.setattr(
        format_writer._Plan, "_append", lambda self, rows: written.append(self.options.stream.name)
    )

    def write(reads: str) -> None:
        (offsets / "7").write_text(f'v1\n{{}}\n{{"v":1,"cuts":{{"s/{reads}":"x"}}}}')
        stream_sink(given, SCHEMA, False).write(rows_of([b"a"]))

    write("other")
    with pytest.raises(InvalidArgumentError, match="the query reads stream s/t"):
        write("t")
    assert written == ["t"]
    del properties["spark.sql.streaming.checkpointLocation"]
    write("t")
    assert written == ["t", "t"]
