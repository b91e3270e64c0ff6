"""Task attempts that elect a batch's transaction, in any order of steps of several runs of a query."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pravega_wire.errors import (
    ConnectionLostError,
    FencedError,
    InvalidArgumentError,
    OlderCheckpointError,
    PravegaError,
    PravegaTimeoutError,
    RetriesExhaustedError,
    TransactionAbortedError,
    TransactionError,
)
from spark_adapter.exactly_once.election import Attempted, ElectedCommitter, HeldTransaction, sweep
from spark_adapter.exactly_once.identity import PlannedBatch
from spark_adapter.exactly_once.journal import Journal
from spark_adapter.exactly_once.ledger import (
    Forget,
    Preparing,
    SinkKey,
    Staging,
    decode_record,
    encode_record,
    staging_id,
    unnamed_query,
)
from tests.unit.test_spark_ledger import (
    NEVER,
    Crash,
    Driver,
    FakeClient,
    FakeRevisioned,
    Server,
    Status,
    batch_events,
    counted,
    end_aborts,
    whole_batch,
)

QUERY = "q"
PARTITIONS = 2


class Client(FakeClient):
    """The model of a client, with the call that attempts need besides."""

    def ping_transaction(self, stream: str, txn_id: UUID, *, lease: float) -> bool:
        return self.server.txns[txn_id].status is Status.OPEN


class Steps:
    """Lets actors, one thread each, take turns: an actor waits before each call of the server."""

    def __init__(self) -> None:
        self.actors: dict[threading.Thread, Actor] = {}

    def before_each_call(self, target: Any) -> Any:
        """The target, where an actor waits for its turn before each call."""
        return _Waiting(self, target)

    def wait(self) -> None:
        """Wait for the turn of the actor whose thread this is."""
        actor = self.actors.get(threading.current_thread())
        if actor is None:
            return
        actor.waits.release()
        actor.turn.acquire()
        if actor.killed:
            raise Crash

    def start(self, run: Callable[[], None]) -> Actor:
        """A new actor, which waits before its first call."""
        actor = Actor(run)
        self.actors[actor.thread] = actor
        actor.thread.start()
        actor.waits.acquire()
        return actor


@dataclass
class _Waiting:
    steps: Steps
    target: Any

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.target, name)
        if name == "staging":
            # It asks nobody; its calls do.
            return lambda *args: _Waiting(self.steps, call(*args))

        def waiting(*args: Any, **more: Any) -> Any:
            self.steps.wait()
            found = call(*args, **more)
            # the whole answer at once
            return list(found) if name == "read_from" else found

        return waiting


class Actor:
    """Runs in a thread of its own, from turn to turn."""

    def __init__(self, run: Callable[[], None]) -> None:
        self.turn, self.waits = threading.Semaphore(0), threading.Semaphore(0)
        self.killed, self.alive = False, True
        self._run = run
        self.failure: BaseException | None = None
        self.thread = threading.Thread(target=self._main, daemon=True)

    def _main(self) -> None:
        try:
            self._run()
        except Crash:
            pass
        except BaseException as error:
            self.failure = error
        finally:
            self.alive = False
            self.waits.release()

    def step(self, *, kill: bool = False) -> None:
        """Let it take its turn, or kill it before that."""
        self.killed = self.killed or kill
        self.turn.release()
        self.waits.acquire()
        if self.failure is not None:
            raise self.failure


@dataclass
class Run:
    """One run of the query, as Spark does it: at most three tries of each task, then commit or abort."""

    world: World
    batch: int
    session: UUID = field(default_factory=uuid4)
    attempts: int = 0
    failures: dict[int, int] = field(default_factory=dict)
    messages: dict[int, Attempted] = field(default_factory=dict)
    dead: bool = False
    outcome: str = ""

    def committer(self, key: SinkKey | None = None) -> ElectedCommitter:
        steps, server = self.world.steps, self.world.server
        journal = Journal(
            steps.before_each_call(FakeRevisioned(server)),
            key or SinkKey(QUERY, "s/t"),
            compact_after=25,
        )
        return ElectedCommitter(
            steps.before_each_call(Client(server)), "s/t", journal, lease=60, session=self.session,
            planned=entry_of if self.world.readable else lambda batch: None,
        )  # fmt: skip

    def start(self) -> None:
        for partition in range(PARTITIONS):
            self.attempt(partition)

    def attempt(self, partition: int) -> None:
        self.attempts += 1
        number = self.attempts
        actor = self.world.start(lambda: self._task(partition, number))
        actor.on_kill = lambda: self._failed(partition)

    def _task(self, partition: int, number: int) -> None:
        try:
            did = stage(self.world, self.committer(), self.session, self.batch, partition, number)
            self.world.steps.wait()
        except PravegaError:
            self._failed(partition)
            return
        if self.dead or partition in self.messages:
            return
        self.messages[partition] = did
        if len(self.messages) == PARTITIONS and not self.outcome:
            self.outcome = "committing"
            self.world.start(self._commit)

    def _failed(self, partition: int) -> None:
        if self.dead or partition in self.messages or self.outcome:
            return
        self.failures[partition] = self.failures.get(partition, 0) + 1
        if self.failures[partition] < 3:
            self.world.later.append(lambda: self.attempt(partition))
        else:
            self.outcome = "aborting"
            self.world.later.append(lambda: self.world.start(self._abort))

    def _commit(self) -> None:
        try:
            self.committer().settle(self.batch, self.messages.values())
        except PravegaError:
            self._abort()
            return
        self.outcome = "committed"
        self.world.committed(self.batch)

    def _abort(self) -> None:
        for txn in {each.txn for each in self.messages.values() if each.txn is not None}:
            self.committer().withdraw(txn)
        self.outcome = "aborted"


def entry_of(batch: int, line: str = "line") -> PlannedBatch:
    """What the checkpoint has of a batch, as :class:`Driver` has it."""
    return PlannedBatch(f"{line} {batch}", None, False, line)


def stage(
    world: World, committer: ElectedCommitter, session: UUID, batch: int, partition: int, number: int
) -> Attempted:
    """What a task does."""
    txn = committer.claim(batch)
    events = batch_events(QUERY, batch)[partition]
    if not isinstance(txn, UUID):
        return Attempted("skipped") if txn == "skip" else Attempted("counted", counted(partition, events))
    with committer.hold(txn):
        staging = staging_id(QUERY + session.hex, batch, txn, partition, number)
        record = Staging(
            query=world.query, stream="s/t", batch=batch, txn=txn, session=session, staging=staging
        )
        world.steps.wait()
        world.server.ledger.append(encode_record(record))
        world.steps.wait()
        world.server.staging[txn, staging] = list(events)
        try:
            committer.require_claim(txn)
        except FencedError:
            world.steps.wait()
            world.server.staging.pop((txn, staging), None)
            raise
    return Attempted("written", counted(partition, events, staging), txn)


class World:
    """The server, and everybody who is at work on it."""

    def __init__(self, readable: bool = True, server: Server | None = None, query: str = QUERY) -> None:
        self.readable = readable
        self.server = server or Server()
        self.query = query
        self.steps = Steps()
        self.actors: list[Any] = []
        self.later: list[Callable[[], object]] = []
        self.runs: list[Run] = []
        self.next_batch = 0

    def start(self, run: Callable[[], None]) -> Any:
        actor: Any = self.steps.start(run)
        actor.on_kill = lambda: None
        self.actors.append(actor)
        return actor

    def run(self) -> Run:
        """A driver starts the query (again)."""
        run = Run(self, self.next_batch)
        self.runs.append(run)
        run.start()
        return run

    def committed(self, batch: int) -> None:
        """Spark writes its commit log; the log is one for all runs."""
        self.next_batch = max(self.next_batch, batch + 1)

    def step(self, number: int, *, kill: bool = False) -> None:
        """One of those at work takes a step, or is killed."""
        while self.later:
            self.later.pop(0)()
        alive = [actor for actor in self.actors if actor.alive]
        if alive:
            actor = alive[number % len(alive)]
            actor.step(kill=kill)
            if kill:
                actor.on_kill()
        self.check()

    def drain(self) -> None:
        """All go on until nobody has anything to do, each as fast as the others."""
        number = 0
        while self.later or any(actor.alive for actor in self.actors):
            self.step(number)
            number += 1

    def stop(self) -> None:
        """Kill whoever is still at work."""
        self.later.clear()
        for actor in self.actors:
            if actor.alive:
                actor.step(kill=True)

    def check(self) -> None:
        """Whole batches only, each once and in order, and none missing that Spark was told of."""
        events = self.server.stream
        batches = len(events) // len(whole_batch(QUERY, 0))
        assert events == [e for b in range(batches) for e in whole_batch(QUERY, b)]
        assert batches >= self.next_batch
        assert batches <= self.next_batch + 1

    def expire(self) -> None:
        """The leases of all open transactions run out."""
        for txn in self.server.txns.values():
            if txn.status is Status.OPEN:
                txn.status = Status.ABORTED

    def forget(self) -> None:
        """The server forgets what has ended."""
        for txn in self.server.txns.values():
            if txn.status is not Status.OPEN:
                txn.status = Status.UNKNOWN


def undisturbed(world: World) -> None:
    """The query runs on until a batch is committed."""
    batch = world.next_batch
    for _ in range(3):
        world.run()
        world.drain()
        if world.next_batch > batch:
            return
    raise AssertionError([run.outcome for run in world.runs])


# one in so many steps is something else than an ordinary step
EVENTS = ("kill an actor", "kill a driver", "another driver", "expire", "forget", "speculate")


@given(
    st.lists(st.integers(0, 8 * 12 * len(EVENTS) - 1), min_size=50, max_size=160),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_order_of_steps(choices: list[int], zombies: bool, readable: bool) -> None:
    world = World(readable)
    try:
        world.run()
        for choice in choices:
            number, rest = choice % 8, choice // 8
            event = EVENTS[rest] if rest < len(EVENTS) else ""
            if event == "kill an actor":
                world.step(number, kill=True)
            elif event == "kill a driver":
                world.runs[-1].dead = True
            elif event == "another driver":
                world.run()
            elif event == "expire":
                world.expire()
            elif event == "forget":
                world.forget()
            elif event == "speculate" and not world.runs[-1].outcome and not world.runs[-1].dead:
                world.runs[-1].attempt(number % PARTITIONS)
            else:
                world.step(number)
            if all(run.dead or run.outcome in ("committed", "aborted") for run in world.runs):
                world.run()
        if zombies:
            world.drain()
        else:
            world.stop()
        for _ in range(2):
            undisturbed(world)
        world.check()
        assert world.server.staging == {}
        named = {
            record.txn for record in map(decode_record, world.server.ledger) if isinstance(record, Preparing)
        }
        assert all(world.server.txns[txn].status is not Status.OPEN for txn in named)
        killed = sum(actor.killed for actor in world.actors)
        left = sum(txn.status is Status.OPEN for txn in world.server.txns.values())
        assert left <= killed  # one that no record names is left only by who was killed before it had claimed
    finally:
        world.stop()


# --- one thing at a time --------------------------------------------------------------------------


def journal_of(server: Server, query: str = QUERY, **more: Any) -> Journal:
    """A ledger, read to its end."""
    more = {"compact_after": 100, "revisioned": FakeRevisioned(server), **more}
    journal = Journal(more.pop("revisioned"), SinkKey(query, "s/t"), name="s/ledger", **more)
    journal.refresh()
    return journal


def elected(
    server: Server,
    session: UUID | None = None,
    query: str = QUERY,
    *,
    client: Client | None = None,
    journal: Journal | None = None,
    **more: Any,
) -> ElectedCommitter:
    """What an attempt, or the driver, of a run has."""
    settings = {"planned": entry_of, "lease": 60, "session": session or uuid4(), **more}
    return ElectedCommitter(client or Client(server), "s/t", journal or journal_of(server, query), **settings)


def swept(server: Server, client: Client | None = None) -> int:
    """How many jobs without a name were removed."""
    return sweep(client or Client(server), "s/t", journal_of(server))


def compact(server: Server) -> None:
    """The ledger is made short."""
    assert journal_of(server, compact_after=1).compact()


def claimed(committer: ElectedCommitter, batch: int) -> UUID:
    """The transaction of a claim."""
    txn = committer.claim(batch)
    assert isinstance(txn, UUID)
    return txn


def staged(server: Server, session: UUID, batch: int = 0, query: str = QUERY) -> list[Attempted]:
    """Both partitions of a batch, written by attempts of a run."""
    world = World(server=server, query=query)
    return [
        stage(world, elected(server, session, query), session, batch, partition, partition)
        for partition in range(PARTITIONS)
    ]


def test_attempts_of_a_run_take_the_transaction_of_the_first() -> None:
    server, session = Server(), uuid4()
    first, second = elected(server, session), elected(server, session)
    txn = claimed(first, 0)
    assert claimed(second, 0) == txn
    assert claimed(elected(server, session), 0) == txn
    assert len(server.txns) == 1


def test_a_rival_that_came_later_aborts_its_own_transaction() -> None:
    server, session = Server(), uuid4()
    winner = elected(server, session)
    found: list[UUID] = []

    class Overtaken(Client):
        def begin_transaction(self, *args: Any, **more: Any) -> Any:
            found.append(claimed(winner, 0))
            return super().begin_transaction(*args, **more)

    assert [claimed(elected(server, session, client=Overtaken(server)), 0)] == found
    statuses = {txn: state.status for txn, state in server.txns.items()}
    assert statuses.pop(found[0]) is Status.OPEN
    assert list(statuses.values()) == [Status.ABORTED]


def test_a_lost_answer_to_a_claim_is_no_defeat() -> None:
    server = Server()
    revisioned = FakeRevisioned(server)
    revisioned.lose_answer = True
    txn = claimed(elected(server, journal=journal_of(server, revisioned=revisioned)), 0)
    assert [state.status for state in server.txns.values()] == [Status.OPEN]
    assert txn in server.txns


def test_a_run_that_was_overtaken_cannot_take_back_the_batch() -> None:
    server, older, newer = Server(), uuid4(), uuid4()
    lost = claimed(elected(server, older), 0)
    kept = claimed(elected(server, newer), 0)
    assert server.txns[lost].status is Status.ABORTED
    with pytest.raises(FencedError, match="another driver has taken over"):
        elected(server, older).claim(0)
    assert not elected(server, older).withdraw(kept)
    assert not elected(server, older).withdraw(lost)
    assert server.txns[kept].status is Status.OPEN
    # also where the ledger was made short in between
    compact(server)
    with pytest.raises(FencedError):
        elected(server, older).claim(0)
    elected(server, newer).settle(0, staged(server, newer))
    assert server.stream == whole_batch(QUERY, 0)
    # nor any later one
    with pytest.raises(FencedError):
        elected(server, older).claim(1)
    assert claimed(elected(server, uuid4()), 1) in server.txns


def test_what_tasks_found_differently_is_not_committed() -> None:
    server, session = Server(), uuid4()
    first, second = staged(server, session)
    with pytest.raises(TransactionError, match="while its tasks ran"):
        elected(server, session).settle(0, [first, Attempted("skipped")])
    other = Attempted("written", second.result, uuid4())
    with pytest.raises(TransactionError, match="while its tasks ran"):
        elected(server, session).settle(0, [first, other])
    with pytest.raises(TransactionError, match="no task wrote batch 0, but it is not DONE"):
        elected(server, session).settle(0, [Attempted("skipped"), Attempted("empty")])
    assert server.stream == []


def test_settling_twice_is_harmless() -> None:
    server, session = Server(), uuid4()
    attempts = staged(server, session)
    outcomes = [elected(server, session).settle(0, attempts).outcome for _ in range(2)]
    assert outcomes == ["written", "skipped"]
    assert staged(server, uuid4()) == [Attempted("skipped")] * 2
    assert elected(server, uuid4()).settle(0, [Attempted("skipped")] * 2).outcome == "skipped"
    assert server.stream == whole_batch(QUERY, 0)


def crash_at(step: str) -> Callable[[str], None]:
    """Return a hook that kills the driver when it has reached a step."""

    def hook(reached: str) -> None:
        if reached == step:
            raise Crash

    return hook


def test_a_copy_whose_batch_had_no_rows_may_be_ahead_of_a_prepared_one() -> None:
    """The ledger has no record of a batch without rows, so both checkpoints may go on from the one before."""

    def other(batch: int) -> PlannedBatch:
        return entry_of(batch, "line" if batch < 1 else "other")

    server, session = Server(), uuid4()
    elected(server, session).settle(0, staged(server, session))
    with pytest.raises(Crash):
        elected(server, session, hook=crash_at("prepared")).settle(1, staged(server, session, 1))
    why = "batch 2 was not written: batch 1 of another checkpoint may already have been written"
    with pytest.raises(OlderCheckpointError, match=why):
        elected(server, planned=other).claim(2)
    with pytest.raises(OlderCheckpointError, match=why):
        elected(server, planned=other).settle(2, [Attempted("empty")] * PARTITIONS)
    assert server.stream == whole_batch(QUERY, 0)
    allowed: Any = {"planned": other, "on_older_checkpoint": "continue_at"}
    assert claimed(elected(server, **allowed), 2)
    # What was prepared has become visible first.
    assert server.stream == [*whole_batch(QUERY, 0), *whole_batch(QUERY, 1)]


@pytest.mark.parametrize("step", ["prepared", "committed", "visible"])
def test_a_prepared_batch_is_finished_by_the_next_runs_tasks(step: str) -> None:
    server, session = Server(), uuid4()

    attempts = staged(server, session)
    with pytest.raises(Crash):
        elected(server, session, hook=crash_at(step)).settle(0, attempts)
    txn = attempts[0].txn
    assert txn is not None
    # Spark calls abort when commit has failed
    assert not elected(server, session).withdraw(txn)
    assert elected(server, uuid4()).claim(0) == "skip"
    assert server.stream == whole_batch(QUERY, 0)
    assert elected(server, session).settle(0, attempts).outcome == "skipped"


def test_a_prepared_batch_is_finished_by_a_second_commit() -> None:
    server, session = Server(), uuid4()

    attempts = staged(server, session)
    with pytest.raises(Crash):
        elected(server, session, hook=crash_at("prepared")).settle(0, attempts)
    assert elected(server, session).settle(0, attempts).outcome == "recovered"
    assert server.stream == whole_batch(QUERY, 0)


def test_an_aborted_transaction_fails_the_batch_and_the_next_run_writes_it() -> None:
    server, session = Server(), uuid4()
    attempts = staged(server, session)
    for txn in server.txns.values():
        txn.status = Status.ABORTED
    with pytest.raises(TransactionAbortedError, match=r"its lease of 60 s \(transaction_timeout_ms\)"):
        staged(server, session)
    with pytest.raises(TransactionAbortedError):
        elected(server, session).settle(0, attempts)
    other = uuid4()
    assert elected(server, other).settle(0, staged(server, other)).outcome == "written"
    assert server.stream == whole_batch(QUERY, 0)
    assert server.staging == {}


def test_withdrawing_undoes_only_what_is_its_own_and_not_prepared() -> None:
    server, session = Server(), uuid4()
    attempts = staged(server, session)
    txn = attempts[0].txn
    assert txn is not None
    assert elected(server, session).withdraw(txn)
    assert server.staging == {}
    assert server.txns[txn].status is Status.ABORTED


def test_withdrawing_deletes_nothing_that_may_be_merging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_adapter.exactly_once.driver._END_LIMIT", 0.05)
    server, session = Server(slow_aborts=NEVER), uuid4()
    attempts = staged(server, session)
    txn = attempts[0].txn
    assert txn is not None
    assert elected(server, session).withdraw(txn)
    assert len(server.staging) == PARTITIONS
    end_aborts(server)
    other = uuid4()
    elected(server, other).settle(0, staged(server, other))
    assert server.staging == {}


def test_a_commit_that_is_not_carried_out_is_noticed_by_the_next_batch() -> None:
    server, session = Server(), uuid4()
    elected(server, session, wait_visible=False).settle(0, staged(server, session))
    (first,) = server.txns
    server.txns[first].status = Status.COMMITTING
    attempts = staged(server, session, 1)
    with pytest.raises(PravegaTimeoutError):
        elected(server, session, wait_visible=False).settle(1, attempts)
    assert server.stream == whole_batch(QUERY, 0)


def test_an_empty_first_batch_makes_the_sink_known() -> None:
    server, session = Server(), uuid4()
    empty = [Attempted("empty")] * PARTITIONS
    with pytest.raises(InvalidArgumentError, match="new_ledger"):
        elected(server, session).settle(1, empty)
    assert elected(server, session).settle(0, empty).outcome == "written"
    records = len(server.ledger)
    elected(server, session).settle(1, empty)
    assert len(server.ledger) == records
    assert elected(server, session).settle(2, staged(server, session, 2)).rows == 6


def test_a_batch_without_rows_is_recorded_where_the_checkpoint_cannot_be_read() -> None:
    """Otherwise an older checkpoint writes other rows under its number, and then the newer one goes on."""
    server, session, empty = Server(), uuid4(), [Attempted("empty")] * PARTITIONS
    unreadable: Any = {"planned": lambda batch: None, "checkpoint": "c"}
    elected(server, session, **unreadable).settle(0, staged(server, session))
    elected(server, session, **unreadable).settle(1, empty)
    restored = elected(server, **unreadable)
    assert restored.claim(1) == "count"
    with pytest.raises(OlderCheckpointError, match=r"batch 1 was already written, but .* has 0 rows"):
        restored.settle(1, [Attempted("counted", counted(0, [b"q:1:other"]))])
    # Spark may repeat it.
    assert elected(server, **unreadable).settle(1, empty).outcome == "skipped"
    elected(server, session, **unreadable).settle(2, staged(server, session, 2))
    assert server.stream == [*whole_batch(QUERY, 0), *whole_batch(QUERY, 2)]


def test_a_ledger_that_does_not_know_the_query_refuses_later_batches() -> None:
    server = Server()
    with pytest.raises(InvalidArgumentError, match="ledger s/ledger has no record of query 'q'"):
        elected(server).claim(3)
    assert server.txns == {}
    assert claimed(elected(server, new_ledger=True), 3) in server.txns


def test_a_query_moves_between_the_two_sinks() -> None:
    server = Server()
    Driver(server).run(0)
    session = uuid4()
    elected(server, session).settle(1, staged(server, session, 1))
    Driver(server).run(2)
    assert elected(server).claim(2) == "skip"
    with pytest.raises(FencedError):
        elected(server, session).claim(2)
    assert server.stream == [e for b in range(3) for e in whole_batch(QUERY, b)]


def test_jobs_without_a_name_leave_nothing_in_the_ledger() -> None:
    server = Server()
    # one whose driver died, and one that is still at work
    _, dead = unnamed_job(server)
    lost = dead[0].txn
    assert lost is not None
    server.txns[lost].status = Status.ABORTED
    _, busy = unnamed_job(server)
    committer, attempts = unnamed_job(server)
    report = committer.settle(0, attempts)
    assert report.txn is not None
    committer.forget(0, report.txn)
    assert swept(server) == 1
    (left,) = journal_of(server).state.sinks.values()
    assert left.claim is not None
    assert left.claim.txn == busy[0].txn
    assert {txn for txn, _ in server.staging} == {busy[0].txn}
    assert isinstance(decode_record(server.ledger[-1]), Forget)
    assert server.stream == whole_batch(QUERY, 0)


def unnamed_job(server: Server, **more: Any) -> tuple[ElectedCommitter, list[Attempted]]:
    """A job without a name, whose tasks have written."""
    session = uuid4()
    query = unnamed_query(session)
    return elected(server, session, query, **more), staged(server, session, 0, query)


def test_a_job_is_swept_only_when_its_segments_cannot_be_merging() -> None:
    server = Server()
    _, dead = unnamed_job(server)
    lost = dead[0].txn
    assert lost is not None
    server.txns[lost].looks_left = 2
    server.txns[lost].status = Status.ABORTING
    assert swept(server) == 0
    assert len(server.staging) == PARTITIONS
    assert swept(server) == 1
    assert server.staging == {}


@pytest.mark.parametrize("step", ["prepared", "committed", "visible"])
def test_a_job_is_swept_only_when_its_driver_cannot_be_at_work(step: str) -> None:
    server = Server()
    found: list[int] = []

    def hook(reached: str) -> None:
        if reached == step:
            other, attempts = unnamed_job(server)
            report = other.settle(0, attempts)
            assert report.txn is not None
            other.forget(0, report.txn)
            found.append(swept(server))

    committer, attempts = unnamed_job(server, hook=hook)
    assert committer.settle(0, attempts).outcome == "written"
    assert found == [0]
    assert len(server.stream) == 12


def test_a_job_whose_key_was_swept_before_it_was_done_has_succeeded(caplog: Any) -> None:
    server = Server()

    def hook(reached: str) -> None:
        if reached == "visible":
            for txn in server.txns.values():
                txn.status = Status.UNKNOWN  # the server has forgotten it: its driver stood still for long
            assert swept(server) == 1

    committer, attempts = unnamed_job(server, hook=hook)
    assert committer.settle(0, attempts).outcome == "written"
    assert server.stream == whole_batch(QUERY, 0)
    assert "was not recorded" not in caplog.text


def test_sweeping_goes_on_behind_a_job_that_cannot_be_removed() -> None:
    server = Server()
    jobs = [unnamed_job(server) for _ in range(3)]
    for txn in server.txns.values():
        txn.status = Status.ABORTED

    class Refusing(Client):
        def transaction_status(self, stream: str, txn_id: UUID) -> Status:
            if txn_id == jobs[0][1][0].txn:
                raise RetriesExhaustedError("not this one")
            return super().transaction_status(stream, txn_id)

    assert swept(server, Refusing(server)) == 2


def leave_behind(server: Server, session: UUID, attempts: list[Attempted], query: str = QUERY) -> UUID:
    """What an attempt that lost has left: its record, and its staging segment."""
    txn, loser = attempts[0].txn, uuid4()
    assert txn is not None
    record = Staging(query=query, stream="s/t", batch=0, txn=txn, session=session, staging=loser)
    server.ledger.append(encode_record(record))
    server.staging[txn, loser] = [b"x"]
    return loser


@pytest.mark.parametrize("broken", ["delete_staging", "truncate_to", "write_conditionally"])
def test_a_visible_job_does_not_fail_by_what_comes_after(broken: str, caplog: Any) -> None:
    server = Server()

    def fail(*args: Any, **more: Any) -> Any:
        raise RetriesExhaustedError("no answer")

    client, revisioned = Client(server), FakeRevisioned(server)

    def hook(reached: str) -> None:
        if reached == "visible":
            setattr(client if hasattr(client, broken) else revisioned, broken, fail)

    session = uuid4()
    query = unnamed_query(session)
    journal = journal_of(server, query, revisioned=revisioned, compact_after=1)
    committer = elected(server, session, query, client=client, journal=journal, hook=hook)
    attempts = staged(server, session, 0, query)
    loser = leave_behind(server, session, attempts, query)
    txn = attempts[0].txn
    assert committer.settle(0, attempts).outcome == "written"
    assert "visible, but" in caplog.text
    assert server.stream == whole_batch(QUERY, 0)
    # what is left is found
    if broken == "delete_staging":
        assert list(server.staging) == [(txn, loser)]
        assert swept(server) == 1
        assert server.staging == {}


def test_what_a_batch_could_not_delete_the_next_one_does(caplog: Any) -> None:
    server, session = Server(), uuid4()
    attempts = staged(server, session)
    late, txn = leave_behind(server, session, attempts), attempts[0].txn
    assert txn is not None

    class Refusing(Client):
        def delete_staging(self, *args: Any) -> None:
            raise RetriesExhaustedError("no answer")

    elected(server, session, client=Refusing(server)).settle(0, attempts)
    assert list(server.staging) == [(txn, late)]
    elected(server, session).settle(1, staged(server, session, 1))
    assert server.staging == {}
    assert server.txns[txn].status is Status.COMMITTED


@pytest.mark.parametrize("step", ["prepared", "visible"])
def test_a_rerun_without_rows_finishes_what_was_prepared(step: str) -> None:
    server, session = Server(), uuid4()

    attempts = staged(server, session)
    with pytest.raises(Crash):
        elected(server, session, hook=crash_at(step)).settle(0, attempts)
    empty = [Attempted("empty")] * PARTITIONS
    again = uuid4()
    assert elected(server, again).settle(0, empty).outcome == "recovered"
    assert server.stream == whole_batch(QUERY, 0)
    assert elected(server, again).settle(0, empty).outcome == "skipped"
    assert claimed(elected(server, again), 1)


def test_a_job_without_rows_is_done_although_an_earlier_run_died() -> None:
    server, session = Server(), uuid4()
    staged(server, session)
    empty = [Attempted("empty")] * PARTITIONS
    assert elected(server, uuid4()).settle(0, empty).outcome == "written"
    assert elected(server, uuid4()).claim(0) == "skip"
    assert (server.stream, server.staging) == ([], {})
    with pytest.raises(FencedError):
        elected(server, session).require_claim(next(iter(server.txns)))


def test_an_overtaken_driver_without_rows_takes_nothing_back() -> None:
    server, older, newer = Server(), uuid4(), uuid4()
    staged(server, older)
    attempts = staged(server, newer)
    with pytest.raises(FencedError):
        elected(server, older).settle(0, [Attempted("empty")] * PARTITIONS)
    elected(server, newer).settle(0, attempts)
    assert server.stream == whole_batch(QUERY, 0)


@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.parametrize("compacted", [False, True])
def test_a_driver_that_stood_still_between_two_batches_is_refused(finished: bool, compacted: bool) -> None:
    # Its next batch may have other rows than the one that the other driver wrote under that number.
    server, older, newer = Server(), uuid4(), uuid4()

    def stop(reached: str) -> None:
        if finished and reached == "committed":
            raise Crash

    attempts = staged(server, older)
    try:
        elected(server, older, hook=stop).settle(0, attempts)
    except Crash:
        assert elected(server, newer).claim(0) == "skip"
    elected(server, newer).settle(1, staged(server, newer, 1))
    if compacted:
        compact(server)
    for batch in (1, 2):
        with pytest.raises(FencedError):
            elected(server, older).claim(batch)
        with pytest.raises(FencedError):
            elected(server, older).settle(batch, [Attempted("empty")] * PARTITIONS)
    assert elected(server, newer).claim(1) == "skip"
    assert elected(server, uuid4()).claim(1) == "skip"
    elected(server, newer).settle(2, staged(server, newer, 2))
    assert server.stream == [event for batch in range(3) for event in whole_batch(QUERY, batch)]


def test_sessions_that_were_overtaken_are_few() -> None:
    server = Server()
    for batch in range(30):
        session = uuid4()
        elected(server, session).settle(batch, staged(server, session, batch))
    assert len(journal_of(server).sink_state.overtaken) == 8


def test_an_attempt_of_an_older_run_that_comes_late_gives_way() -> None:
    server, older, newer = Server(), uuid4(), uuid4()
    txn = claimed(elected(server, newer, began=2_000), 0)
    with pytest.raises(FencedError, match=r"started 1\.0 s after this one by their clocks"):
        elected(server, older, began=1_000).claim(0)
    # also where the ledger was made short, and whoever began later takes over
    compact(server)
    with pytest.raises(FencedError):
        elected(server, older, began=1_000).claim(0)
    assert server.txns[txn].status is Status.OPEN
    assert claimed(elected(server, newer, began=1_000), 0) == txn
    assert claimed(elected(server, uuid4(), began=2_001), 0) != txn
    assert server.txns[txn].status is Status.ABORTED


def test_a_claim_whose_fate_is_unknown_is_not_aborted() -> None:
    server, session = Server(), uuid4()
    revisioned = FakeRevisioned(server)
    revisioned.gone_after = Preparing
    with pytest.raises(RetriesExhaustedError):
        elected(server, session, journal=journal_of(server, revisioned=revisioned)).claim(0)
    elected(server, session).settle(0, staged(server, session))
    assert server.stream == whole_batch(QUERY, 0)
    assert len(server.txns) == 1


def test_a_first_wave_of_attempts_begins_one_transaction() -> None:
    server, session = Server(), uuid4()
    waiting = threading.Semaphore(0)
    append_condition = threading.Condition()

    class Patient(FakeRevisioned):
        def wait_beyond(self, revision: int, *, timeout: float) -> None:
            waiting.release()
            with append_condition:
                assert append_condition.wait_for(lambda: len(server.ledger) > revision, 60)

    def attempt(patience: float, found: list[UUID]) -> None:
        journal = journal_of(server, revisioned=Patient(server))
        txn = elected(server, session, journal=journal).claim(0, patience)
        assert isinstance(txn, UUID)
        found.append(txn)

    found: list[UUID] = []
    threads = [threading.Thread(target=attempt, args=(60, found)) for _ in range(7)]
    for each in threads:
        each.start()
    for _ in threads:
        waiting.acquire()
    attempt(0, found)
    with append_condition:
        append_condition.notify_all()
    for each in threads:
        each.join()
    assert len(found) == 8
    assert set(found) == set(server.txns)
    assert len(server.txns) == 1


def test_nobody_waits_for_ever_for_a_first_claim() -> None:
    server = Server()
    asked: list[float] = []

    class Waited(FakeRevisioned):
        def wait_beyond(self, revision: int, *, timeout: float) -> None:
            asked.append(timeout)
            super().wait_beyond(revision, timeout=timeout)

    journal = journal_of(server, revisioned=Waited(server))
    assert claimed(elected(server, journal=journal), 0) in server.txns
    assert asked == []
    assert elected(server).claim(0)
    journal = journal_of(server, revisioned=Waited(server))
    assert elected(server, journal=journal).claim(0, patience=5) in server.txns
    assert len(asked) == 1


def test_what_a_late_loser_left_is_deleted_when_the_job_is_run_again(caplog: Any) -> None:
    server, session = Server(), uuid4()
    attempts = staged(server, session)
    elected(server, session).settle(0, attempts)
    leave_behind(server, session, attempts)
    txn = attempts[0].txn
    assert txn is not None
    with pytest.raises(FencedError, match="no more data can be staged"):
        elected(server, session).require_claim(txn)
    assert elected(server, uuid4()).settle(0, [Attempted("skipped")]).outcome == "skipped"
    assert server.staging == {}
    elected(server, session).settle(1, staged(server, session, 1))
    assert elected(server).settle(0, [Attempted("skipped")]).outcome == "skipped"


def test_a_held_transaction_is_renewed_until_it_is_closed_or_lost() -> None:
    class Flaky(Client):
        pings = 0
        enough = threading.Event()

        def ping_transaction(self, stream: str, txn_id: UUID, *, lease: float) -> bool:
            self.pings += 1
            if self.pings == 3:
                raise ConnectionLostError("not now")
            if self.pings == 4:
                raise TransactionError("the lease cannot be renewed: DISCONNECTED")
            if self.pings == 6:
                self.enough.set()
            return super().ping_transaction(stream, txn_id, lease=lease)

    server = Server()
    client = Flaky(server)
    txn = client.begin_transaction("s/t", lease=0.001).txn_id
    with HeldTransaction(client, "s/t", txn, 1) as held:
        assert client.enough.wait(20)
        (thread,) = (each for each in threading.enumerate() if each.name == f"lease of {txn}")
        held.abort()
    thread.join(60)
    assert not thread.is_alive()
    with pytest.raises(TransactionAbortedError, match="is no longer open"):
        HeldTransaction(client, "s/t", txn, 1)


def test_an_older_checkpoint_is_refused_by_tasks_and_by_the_driver() -> None:
    server, session = Server(), uuid4()
    for batch in range(3):
        elected(server, session).settle(batch, staged(server, session, batch))

    def other(batch: int) -> PlannedBatch:
        return entry_of(batch, "line" if batch < 2 else "other")

    for batch in (1, 2):
        with pytest.raises(OlderCheckpointError, match=f"batch {batch} was not written"):
            elected(server, planned=other).claim(batch)
        with pytest.raises(OlderCheckpointError):
            elected(server, planned=other).settle(batch, [Attempted("empty")] * PARTITIONS)
    # The number is a new one, but the batch before is not the one that was written.
    again = uuid4()
    attempts = staged(server, again, 3)
    with pytest.raises(OlderCheckpointError, match="has another batch 2"):
        elected(server, again, planned=other).settle(3, attempts)
    assert server.stream == [e for b in range(3) for e in whole_batch(QUERY, b)]
    elected(server, again).settle(3, attempts)
    assert server.stream == [e for b in range(4) for e in whole_batch(QUERY, b)]


@pytest.mark.parametrize("readable", [True, False])
def test_tasks_write_after_what_exists_if_a_person_allows_it(readable: bool) -> None:
    def planned(batch: int) -> PlannedBatch | None:
        return entry_of(batch, "other") if readable else None

    server, session = Server(), uuid4()
    elected(server, session, planned=entry_of if readable else lambda batch: None).settle(
        0, staged(server, session)
    )
    more: Any = {"planned": planned, "on_older_checkpoint": "continue_at"}
    other, events = uuid4(), [b"q:0:other"]
    if not readable:
        assert elected(server, other, **more).claim(0) == "count"
        with pytest.raises(OlderCheckpointError, match="start the query again"):
            elected(server, other, **more).settle(0, [Attempted("counted", counted(0, events))])
        other = uuid4()
    txn = claimed(elected(server, other, **more), 0)
    assert claimed(elected(server, other, **more), 0) == txn
    staging = uuid4()
    record = Staging(query=QUERY, stream="s/t", batch=0, txn=txn, session=other, staging=staging)
    server.ledger.append(encode_record(record))
    server.staging[txn, staging] = list(events)
    did = Attempted("written", counted(0, events, staging), txn)
    assert elected(server, other, **more).settle(0, [did]).outcome == "written"
    assert server.stream == [*whole_batch(QUERY, 0), *events]
    assert elected(server, planned=planned).claim(0) == ("skip" if readable else "count")
