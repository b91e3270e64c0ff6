"""Ingestion without a server: the decision table, files done before, samples, the command line."""

from __future__ import annotations

import codecs
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
import trio
from trio.testing import MockClock

from pravega_wire import PravegaConfig, ScopedStream, TxnStatus, open_client
from pravega_wire.cli.common import Exit, exit_code
from pravega_wire.cli.main import main
from pravega_wire.cli.root import COMMANDS
from pravega_wire.errors import (
    ArgumentTypeError,
    ClosedError,
    ConnectError,
    CorruptedStateError,
    FencedError,
    IngestedSourceChangedError,
    IngestedStreamGoneError,
    IngestError,
    InvalidArgumentError,
    PermissionDeniedError,
    PravegaError,
    PravegaTimeoutError,
    StreamSealedError,
    TransactionAbortedError,
    TransactionOutcomeUnknownError,
    TransactionUnknownError,
)
from pravega_wire.ingest import (
    EndRecord,
    FileIngester,
    FileSource,
    FixedCount,
    IngestRecord,
    LengthBefore,
    Parse,
    Sample,
    SequenceSource,
    SourceIngester,
    byte_lines,
    csv_rows,
    lines,
)
from pravega_wire.ingest.engine import Engine, Options, Part, Stage
from pravega_wire.ingest.files import _bytes, check_done, list_files, scan
from pravega_wire.ingest.recovery import Action, decide
from pravega_wire.ingest.samples import SampleReader
from pravega_wire.ingest.sources import _Feed, _SourcePart
from pravega_wire.ingest.state import FORMAT, UNKNOWN_LENGTH, Journal, Kind, Phase
from pravega_wire.protocol.append import MAX_EVENT_BYTES
from pravega_wire.stream import transaction

ROOT = Path(__file__).resolve().parents[2]

TABLE = {
    (Phase.BEGUN, TxnStatus.OPEN): Action.ABORT_AND_REDO,
    (Phase.BEGUN, TxnStatus.ABORTING): Action.REDO,
    (Phase.BEGUN, TxnStatus.ABORTED): Action.REDO,
    (Phase.BEGUN, TxnStatus.COMMITTING): Action.GO_ON,
    (Phase.BEGUN, TxnStatus.COMMITTED): Action.GO_ON,
    (Phase.BEGUN, TxnStatus.UNKNOWN): Action.STOP,
    (Phase.ENDED, TxnStatus.OPEN): Action.COMMIT_AND_GO_ON,
    (Phase.ENDED, TxnStatus.ABORTING): Action.REDO,
    (Phase.ENDED, TxnStatus.ABORTED): Action.REDO,
    (Phase.ENDED, TxnStatus.COMMITTING): Action.GO_ON,
    (Phase.ENDED, TxnStatus.COMMITTED): Action.GO_ON,
    (Phase.ENDED, TxnStatus.UNKNOWN): Action.STOP,
    **{(Phase.NOTHING, status): Action.REDO for status in TxnStatus},
    **{(Phase.DONE, status): Action.GO_ON for status in TxnStatus},
}


def test_decision_table() -> None:
    assert {(phase, status): decide(phase, status) for phase in Phase for status in TxnStatus} == TABLE


def test_record_round_trip() -> None:
    record = IngestRecord(
        "scope/stream", Kind.FILES, Phase.ENDED, "a/ü.csv", 7, UNKNOWN_LENGTH, uuid4(), b"n" * 16, b"c" * 16
    )
    assert FORMAT.serializer.deserialize(FORMAT.serializer.serialize(record)) == record


# --- transactions that stay COMMITTING ------------------------------------------------------------------


class FakeController:
    """Transactions of one stream, with the events of those that are visible.

    :ivar stuck: commits accepted of which nothing comes, by transaction: how many more it takes.
    """

    def __init__(self) -> None:
        self.states: dict[UUID, TxnStatus] = {}
        self.events: dict[UUID, list[bytes]] = {}
        self.stuck: dict[UUID, float] = {}
        self.visible: list[bytes] = []
        self.commits: list[UUID] = []

    async def check_transaction_state(self, scope: str, stream: str, txn_id: UUID) -> TxnStatus:
        await trio.lowlevel.checkpoint()
        return self.states.get(txn_id, TxnStatus.UNKNOWN)

    async def commit_transaction(
        self, scope: str, stream: str, txn_id: UUID, *, writer_id: str = "", timestamp: int | None = None
    ) -> bool:
        await trio.lowlevel.checkpoint()
        self.commits.append(txn_id)
        state = self.states[txn_id]
        if state in (TxnStatus.OPEN, TxnStatus.COMMITTING):
            self.states[txn_id] = TxnStatus.COMMITTING
            self.stuck[txn_id] = self.stuck.get(txn_id, 0) - 1
            if self.stuck[txn_id] < 0:
                self.states[txn_id] = TxnStatus.COMMITTED
                self.visible += self.events[txn_id]
            return True
        return state is TxnStatus.COMMITTED

    async def abort_transaction(self, scope: str, stream: str, txn_id: UUID) -> bool:
        await trio.lowlevel.checkpoint()
        if self.states[txn_id] is TxnStatus.OPEN:
            self.states[txn_id] = TxnStatus.ABORTED
        return self.states[txn_id] is TxnStatus.ABORTED


class FakeTransaction:
    def __init__(self, client: FakeClient, txn_id: UUID) -> None:
        self.txn_id = txn_id
        self._client = client
        client.controller.states[txn_id] = TxnStatus.OPEN
        client.controller.events[txn_id] = []

    async def write_events(self, events: list[bytes], keys: list[str]) -> None:
        await trio.lowlevel.checkpoint()
        self._client.controller.events[self.txn_id] += events

    async def flush(self) -> None:
        await trio.lowlevel.checkpoint()

    async def commit(self) -> None:
        await transaction.commit_transaction(self._client.core, STREAM, self.txn_id)

    async def abort(self) -> None:
        await transaction.abort_transaction(self._client.core, STREAM, self.txn_id)

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()

    async def __aexit__(self, *exc: object) -> None:
        with trio.CancelScope(shield=True), suppress(PravegaError):
            await self.abort()


STREAM = ScopedStream("scope", "data")


class FakeClient:
    """As much of a client as ingestion uses, on the real functions for transactions."""

    def __init__(self, operation_timeout: float = 120.0) -> None:
        self.controller = FakeController()
        self.core: Any = SimpleNamespace(
            controller=self.controller, config=SimpleNamespace(operation_timeout=operation_timeout)
        )

    async def begin_transaction(self, stream: ScopedStream, *, lease: float) -> FakeTransaction:
        await trio.lowlevel.checkpoint()
        return FakeTransaction(self, UUID(int=len(self.controller.states) + 1))

    async def transaction_status(self, stream: ScopedStream, txn_id: UUID) -> TxnStatus:
        return await self.controller.check_transaction_state("scope", "data", txn_id)

    async def commit_transaction(self, stream: ScopedStream, txn_id: UUID) -> None:
        await transaction.commit_transaction(self.core, stream, txn_id)

    async def abort_transaction(self, stream: ScopedStream, txn_id: UUID) -> None:
        await transaction.abort_transaction(self.core, stream, txn_id)

    async def wait_committed(self, stream: ScopedStream, txn_id: UUID) -> None:
        await transaction.wait_committed(self.core, stream, txn_id)


class FakeJournal:
    def __init__(self) -> None:
        self.seen = IngestRecord(str(STREAM), Kind.FILES)

    async def replace(self, record: IngestRecord) -> None:
        await trio.lowlevel.checkpoint()
        self.seen = record

    async def check(self) -> None:
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


class NumberedPart(Part):
    """Two events, as from a file that is called like its position."""

    def __init__(self, position: int) -> None:
        self.title = f"file {position}"
        self._position = position

    async def begin(self) -> SampleReader:
        await trio.lowlevel.checkpoint()
        return SampleReader(
            lambda: [(None, b"%d-%d" % (self._position, number)) for number in range(2)],
            title=self.title,
            default_key="k",
        )

    def record(self) -> IngestRecord:
        return IngestRecord(str(STREAM), Kind.FILES, item=str(self._position), position=self._position)

    async def end(self, count: int) -> None:
        await trio.lowlevel.checkpoint()


async def ingest_three(client: FakeClient, journal: FakeJournal, **options: Any) -> int:
    """What an ingester of three files does; returns how many it has done."""
    async with Engine(client, STREAM, journal, Options(**options)) as engine:  # type: ignore[arg-type]
        done = await engine.settle()
        for position in range(journal.seen.position + done, 3):
            await engine.ingest(NumberedPart(position))
        await engine.finish()
        return engine.progress.done


ALL_SIX = [b"%d-%d" % (part, number) for part in range(3) for number in range(2)]


def test_owner_that_writes_its_end_record_meanwhile_has_the_work() -> None:
    """Its transaction is committed, and the record that was read before says nothing of its end."""

    class Overtaken(FakeJournal):
        async def check(self) -> None:
            await super().check()
            raise FencedError("another ingester is using")

    async def run() -> None:
        client, journal = FakeClient(), Overtaken()
        txn = FakeTransaction(client, UUID(int=1))
        journal.seen = IngestRecord(
            str(STREAM), Kind.SOURCE, transaction=txn.txn_id, phase=Phase.BEGUN, length=UNKNOWN_LENGTH
        )
        client.controller.states[txn.txn_id] = TxnStatus.COMMITTED
        async with Engine(client, STREAM, journal, Options()) as engine:  # type: ignore[arg-type]
            with pytest.raises(FencedError):
                await engine.settle()

    trio.run(run, clock=MockClock(autojump_threshold=0))


@pytest.mark.parametrize("stuck", [0, 1, 2], ids=lambda stuck: f"file {stuck}")
def test_transaction_that_stays_committing_ends_the_run(stuck: int) -> None:
    """The run names file and transaction, and nothing is recorded or visible beyond it; the next goes on."""

    async def run() -> None:
        client, journal = FakeClient(), FakeJournal()
        client.controller.stuck[UUID(int=stuck + 1)] = float("inf")
        txn_id = UUID(int=stuck + 1)
        for _ in range(2):
            began = trio.current_time()
            with pytest.raises(
                PravegaTimeoutError, match=f"^file {stuck}: transaction {txn_id} on scope/data is still comm"
            ) as caught:
                await ingest_three(client, journal)
            assert (caught.value.scope, caught.value.stream) == ("scope", "data")
            assert caught.value.transaction == txn_id
            assert exit_code(caught.value) is Exit.FAILED
            assert trio.current_time() - began == pytest.approx(120)
            assert client.controller.commits.count(txn_id) > 5
            assert (journal.seen.position, journal.seen.transaction) == (stuck, txn_id)
            assert client.controller.visible == ALL_SIX[: 2 * stuck]
            # What was begun after it is not left to its lease.
            assert TxnStatus.OPEN not in client.controller.states.values()
        client.controller.stuck[txn_id] = 1
        assert await ingest_three(client, journal) == 2 - stuck
        assert client.controller.visible == ALL_SIX
        assert await ingest_three(client, journal) == 0

    trio.run(run, clock=MockClock(autojump_threshold=0))


def test_transaction_that_is_released_by_committing_it_again() -> None:
    async def run() -> None:
        client, journal = FakeClient(), FakeJournal()
        client.controller.stuck = {UUID(int=1): 1, UUID(int=3): 4}
        assert await ingest_three(client, journal) == 3
        assert client.controller.visible == ALL_SIX
        assert [client.controller.commits.count(UUID(int=number)) for number in (1, 2, 3)] == [2, 1, 5]
        assert journal.seen.phase == Phase.DONE

    trio.run(run, clock=MockClock(autojump_threshold=0))


def test_next_file_is_recorded_when_the_last_one_is_visible() -> None:
    async def run() -> None:
        client, journal = FakeClient(), FakeJournal()
        client.controller.stuck = {UUID(int=number): 1 for number in (1, 2, 3)}
        recorded = []

        async def look(stage: Stage, record: IngestRecord) -> None:
            await trio.lowlevel.checkpoint()
            if stage is Stage.RECORDED:
                recorded.append(list(client.controller.visible))

        await ingest_three(client, journal, observer=look)
        assert recorded == [ALL_SIX[:0], ALL_SIX[:2], ALL_SIX[:4]]

    trio.run(run, clock=MockClock(autojump_threshold=0))


@pytest.mark.parametrize("if_unknown", ["raise", "committed"])
def test_transaction_that_is_forgotten_while_it_is_waited_for(if_unknown: str) -> None:
    async def run() -> None:
        client, journal = FakeClient(), FakeJournal()
        client.controller.stuck[UUID(int=1)] = float("inf")

        async def forget() -> None:
            while client.controller.states.get(UUID(int=1)) is not TxnStatus.COMMITTING:
                await trio.sleep(0.1)
            del client.controller.states[UUID(int=1)]
            client.controller.states[UUID(int=99)] = TxnStatus.ABORTED

        async with trio.open_nursery() as nursery:
            nursery.start_soon(forget)
            if if_unknown == "committed":
                assert await ingest_three(client, journal, if_unknown=if_unknown) == 3
            else:
                with pytest.raises(TransactionOutcomeUnknownError, match="file 0: the server has no record"):
                    await ingest_three(client, journal, if_unknown=if_unknown)

    trio.run(run, clock=MockClock(autojump_threshold=0))


def test_run_that_is_cancelled_while_it_commits_does_not_abort() -> None:
    """An abort on the heels of a commit is what leaves transactions COMMITTING."""

    async def run() -> None:
        client, journal = FakeClient(), FakeJournal()
        controller, aborts = client.controller, []

        async def slow(scope: str, stream: str, txn_id: UUID, **more: object) -> bool:
            scope_.cancel()
            await trio.sleep_forever()
            raise AssertionError

        async def abort(scope: str, stream: str, txn_id: UUID) -> bool:
            aborts.append(txn_id)
            return True

        with pytest.MonkeyPatch.context() as patch, trio.CancelScope() as scope_:
            patch.setattr(controller, "commit_transaction", slow)
            patch.setattr(controller, "abort_transaction", abort)
            await ingest_three(client, journal)
        assert scope_.cancelled_caught
        assert aborts == []
        assert await ingest_three(client, journal) == 3
        assert controller.visible == ALL_SIX
        assert controller.states[UUID(int=1)] is TxnStatus.ABORTED

    trio.run(run, clock=MockClock(autojump_threshold=0))


@pytest.mark.parametrize("ready", [TxnStatus.COMMITTED, TxnStatus.ABORTED, TxnStatus.UNKNOWN])
def test_waiting_ends_with_the_transaction(ready: TxnStatus) -> None:
    """Who may not commit may wait, and what becomes of the transaction is told."""

    async def run() -> None:
        client = FakeClient()
        txn_id = UUID(int=1)
        client.controller.states[txn_id] = TxnStatus.COMMITTING
        refused, began = 0, trio.current_time()

        async def refuse(scope: str, stream: str, txn_id: UUID) -> bool:
            nonlocal refused
            refused += 1
            raise PermissionDeniedError("may only read")

        client.controller.commit_transaction = refuse  # type: ignore[assignment,method-assign]

        async def end() -> None:
            await trio.sleep(60)
            client.controller.states[txn_id] = ready

        async with trio.open_nursery() as nursery:
            nursery.start_soon(end)
            if ready is TxnStatus.COMMITTED:
                await client.wait_committed(STREAM, txn_id)
            else:
                error = TransactionAbortedError if ready is TxnStatus.ABORTED else TransactionUnknownError
                with pytest.raises(error):
                    await client.wait_committed(STREAM, txn_id)
            assert trio.current_time() - began == pytest.approx(60, abs=1.5)
        assert refused > 3

    trio.run(run, clock=MockClock(autojump_threshold=0))


# --- records that no ingester writes ----------------------------------------------------------------


class FakeShared:
    """A state that holds a record."""

    def __init__(self, record: IngestRecord) -> None:
        self.state = record
        self.closed = False

    async def initialize(self, first: IngestRecord) -> None:
        await trio.lowlevel.checkpoint()

    async def bytes_since_compaction(self) -> int:
        await trio.lowlevel.checkpoint()
        return 0

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()
        self.closed = True


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kind", 0), ("kind", 9), ("phase", 9), ("phase", -1), ("position", -5), ("position", 2**63 - 1),
        ("length", -7), ("names", b"short"), ("contents", b""),
    ],
)  # fmt: skip
async def test_impossible_values_of_a_record_are_named(name: str, value: Any) -> None:
    record = IngestRecord(str(STREAM), Kind.SOURCE, Phase.DONE, position=7, length=2, transaction=uuid4())
    shared, sync = FakeShared(record), ScopedStream("scope", "sync")

    async def state_synchronizer(*_: Any) -> FakeShared:
        await trio.lowlevel.checkpoint()
        return shared

    client: Any = SimpleNamespace(state_synchronizer=state_synchronizer)
    async with Journal.open(client, sync, STREAM, Kind.SOURCE) as journal:
        assert journal.seen == record
    shared.state = replace(record, **{name: value})
    with pytest.raises(
        CorruptedStateError, match=f"record on sync stream scope/sync has the {name} "
    ) as caught:
        await Journal.open(client, sync, STREAM, Kind.SOURCE)
    assert (caught.value.scope, caught.value.stream) == ("scope", "sync")
    assert shared.closed


# --- wrong arguments --------------------------------------------------------------------------------


NO_CLIENT: Any = None
WRONG: Any = 5


def test_an_iterator_is_not_a_sequence() -> None:
    """After an aborted transaction its samples would be gone."""
    samples: Any = ((None, b"%d" % number) for number in range(3))
    with pytest.raises(
        InvalidArgumentError, match=r"samples must be a sequence.* not a generator: make a list"
    ):
        SequenceSource(samples)
    assert list(SequenceSource(list(samples)).read_from(1)) == [(None, b"1"), (None, b"2")]


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: FileIngester(NO_CLIENT, "a", "b", parse=WRONG), "setting parse"),
        (lambda: FileIngester(NO_CLIENT, "a", "b", key=WRONG), "setting key"),
        (lambda: FileIngester(NO_CLIENT, "a", "b", left_out=WRONG), "setting left_out"),
        (lambda: FileIngester(NO_CLIENT, "a", "b", progress=WRONG), "setting progress"),
        (
            lambda: SourceIngester(NO_CLIENT, "a", "b", method=FixedCount(1), observer=WRONG),
            "setting observer",
        ),
        (lambda: FileSource(Path("x"), WRONG), "parse"),
        (lambda: LengthBefore(WRONG), "setting length"),
        (lambda: EndRecord(WRONG), "setting last"),
        (lambda: scan(Path("."), WRONG), "pattern"),
    ],
)
def test_arguments_of_the_wrong_type_are_named(make: Callable[[], object], name: str) -> None:
    with pytest.raises(ArgumentTypeError, match=f"^{name} must be a "):
        make()


async def test_a_folder_that_is_no_path() -> None:
    folder: Any = None
    with pytest.raises(ArgumentTypeError, match="folder must be a path, not None"):
        await FileIngester(NO_CLIENT, "a", "b").run(folder)


@pytest.mark.parametrize("key", [None, lambda event: "k"])
async def test_what_returns_no_samples_is_named(tmp_path: Path, key: Any) -> None:
    nothing: Any = lambda *_: None  # noqa: E731
    path = tmp_path / "a.csv"
    for begin in (
        nothing,
        lambda: FileIngester(NO_CLIENT, "a", "b", parse=nothing, key=key)._samples(path),
        lambda: FileSource(path, nothing).read_from(3),
    ):
        with pytest.raises(IngestError, match="samples must be an iterable, not NoneType"):
            await SampleReader(begin, title="the source", default_key="k").more()


async def test_a_source_with_fewer_samples_than_were_ingested(tmp_path: Path) -> None:
    """A log file that was replaced: its first samples would never be ingested."""
    path = tmp_path / "log"
    path.write_text("a\nb\n")
    for source, name in (
        (FileSource(path, lines), f"file {path}"),
        (SequenceSource([(None, b"a"), (None, b"b")]), "the sequence"),
    ):
        part = _SourcePart(_Feed(source, "s/t"), 3, FixedCount(1))
        with pytest.raises(IngestedSourceChangedError, match=f"^{name}.* has 2 samples, but 3 .* ingested"):
            await part.begin()
        assert await _SourcePart(_Feed(source, "s/t"), 2, FixedCount(1)).begin() is None


@pytest.mark.parametrize("length", ["x", None, 1.5, True])
async def test_a_length_that_is_no_number(length: Any) -> None:
    source = SequenceSource([(None, b"x")])
    part = _SourcePart(_Feed(source, "s/t"), 7, LengthBefore(lambda position: length))
    with pytest.raises(IngestError, match=r"computed for position 7 is .*, which is not a whole number"):
        await part.begin()


@pytest.mark.parametrize("encoding", ["base64", "rot13", "nonesuch", None])
def test_an_encoding_that_is_not_one_of_text(encoding: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="csv_rows: encoding"):
        csv_rows(encoding=encoding)


# --- what was done before --------------------------------------------------------------------------


def folder_of(path: Path, *names: str) -> Path:
    for name in names:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(f"content of {name}\n")
    return path


def record_at(folder: Path, name: str) -> IngestRecord:
    """The record that an ingester writes when it begins a file."""
    files = list_files(folder)
    index = [each.name for each in files].index(name)
    before = files[:index]
    return IngestRecord(
        "s/t",
        Kind.FILES,
        Phase.BEGUN,
        name,
        index,
        files[index].size,
        uuid4(),
        _bytes(sum(each.name_print for each in before)),
        _bytes(sum(each.print(each.size) for each in before)),
    )


def test_files_in_the_order_of_their_names(tmp_path: Path) -> None:
    folder_of(tmp_path, "b", "a/z.csv", "a.csv", "a/b.csv", "é")
    (tmp_path / "folder.csv").mkdir()
    assert [each.name for each in list_files(tmp_path)] == ["a.csv", "b", "é"]
    assert [each.name for each in list_files(tmp_path, "**/*.csv")] == ["a.csv", "a/b.csv", "a/z.csv"]
    with pytest.raises(InvalidArgumentError, match="nowhere"):
        list_files(tmp_path / "nowhere")
    with pytest.raises(InvalidArgumentError, match="pattern '/x'"):
        list_files(tmp_path, "/x")
    for leaving in ("../*", "a/../../*", str(tmp_path / "*")):
        with pytest.raises(InvalidArgumentError, match=r"pattern .* leaves the folder: it must be relative"):
            list_files(tmp_path / "a", leaving)
    with pytest.raises(InvalidArgumentError, match="pattern ''"):
        list_files(tmp_path, "")


@pytest.mark.skipif(os.name != "posix", reason="there are no such things there")
def test_what_is_no_file_is_left_out_and_said(tmp_path: Path) -> None:
    folder_of(tmp_path, "b.csv", "in/a.csv", "empty.csv/other", "kept")
    (tmp_path / "gone.csv").symlink_to(tmp_path / "nowhere")
    (tmp_path / "round.csv").symlink_to(tmp_path / "round.csv")
    (tmp_path / "linked.csv").symlink_to(tmp_path / "b.csv")
    os.mkfifo(tmp_path / "pipe.csv")
    files, left_out = scan(tmp_path, "**/*.csv")
    assert [each.name for each in files] == ["b.csv", "in/a.csv", "linked.csv"]
    assert [(each.name, each.why) for each in left_out] == [
        ("empty.csv", "a folder"),
        ("gone.csv", "a broken link"),
        ("pipe.csv", "a socket, pipe or device"),
        ("round.csv", "a broken link"),
    ]
    # folders with files in them that match are not left out
    assert [each.name for each in scan(tmp_path, "**/*")[1]] == ["gone.csv", "pipe.csv", "round.csv"]
    assert [each.name for each in scan(tmp_path)[1] if each.why == "a folder"] == ["empty.csv", "in"]


@pytest.mark.skipif(os.name != "posix", reason="names are text there")
def test_name_that_is_no_text(tmp_path: Path) -> None:
    with open(os.fsencode(tmp_path) + b"/a\xff", "wb"):
        pass
    with pytest.raises(InvalidArgumentError, match="not UTF-8"):
        list_files(tmp_path)


@pytest.mark.parametrize("change", ["nothing", "later file", "open file changed", "open file removed"])
def test_changes_that_are_fine(tmp_path: Path, change: str) -> None:
    record = record_at(folder_of(tmp_path, "a", "b", "c", "d"), "c")
    if change == "later file":
        folder_of(tmp_path, "cc", "e")
    elif change == "open file changed":
        (tmp_path / "c").write_text("longer than it was before\n")
    elif change == "open file removed":
        (tmp_path / "c").unlink()
    files = list_files(tmp_path)
    # Nothing of c is visible, so whatever comes after a and b now comes next.
    assert check_done(files, record, False, "raise") == 2
    if change in ("nothing", "later file"):
        assert check_done(files, record, True, "raise") == 3


def test_new_file_in_the_place_of_the_open_one(tmp_path: Path) -> None:
    record = record_at(folder_of(tmp_path, "a", "b", "d"), "d")
    folder_of(tmp_path, "c")
    assert check_done(list_files(tmp_path), record, False, "raise") == 2
    with pytest.raises(IngestedSourceChangedError, match="file c is new"):
        check_done(list_files(tmp_path), record, True, "raise")


@pytest.mark.parametrize(
    ("change", "message", "ignored"),
    [
        ("add", "file aa is new and comes before", 4),
        ("add two", "3 files were ingested, up to c, .* added, removed or renamed", 5),
        ("remove last", "file c was ingested, and no longer exists or does not match the pattern", 2),
        ("remove first", "3 files were ingested", 2),
        ("remove and add", "3 files were ingested", 3),
        ("grow last", "file c had 13 bytes when it was ingested and has 20 now", 3),
        ("grow first", "the size of one of the 3 files up to c has changed", 3),
        ("empty", "file c was ingested, and no longer", 0),
    ],
)
def test_changes_that_are_refused(tmp_path: Path, change: str, message: str, ignored: int) -> None:
    record = record_at(folder_of(tmp_path, "a", "b", "c", "d"), "c")
    match change:
        case "add":
            folder_of(tmp_path, "aa")
        case "add two":
            folder_of(tmp_path, "aa", "bb")
        case "remove last":
            (tmp_path / "c").unlink()
        case "remove first":
            (tmp_path / "a").unlink()
        case "remove and add":
            (tmp_path / "a").rename(tmp_path / "aa")
        case "grow last":
            (tmp_path / "c").write_text("x" * 20)
        case "grow first":
            (tmp_path / "a").write_text("x" * 20)
        case "empty":
            for path in tmp_path.iterdir():
                path.unlink()
    files = list_files(tmp_path)
    with pytest.raises(IngestedSourceChangedError, match=message) as caught:
        check_done(files, record, True, "raise")
    assert caught.value.item == "c"
    assert check_done(files, record, True, "ignore") == ignored


def test_nothing_recorded_means_nothing_done(tmp_path: Path) -> None:
    folder_of(tmp_path, "a")
    assert check_done(list_files(tmp_path), IngestRecord("s/t", Kind.FILES), False, "raise") == 0


# --- samples ---------------------------------------------------------------------------------------


def test_lines(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"one\r\n\ntwo\xff\n three ")
    assert list(lines(path)) == [(None, b"one"), (None, b"two\xff"), (None, b" three ")]


def events_of(parse: Parse, path: Path) -> list[bytes]:
    return [event for _, event in parse(path)]


def test_lines_keep_their_bytes(tmp_path: Path) -> None:
    path = tmp_path / "text"
    mark = b"\xef\xbb\xbf"
    path.write_bytes(mark + b"a\r\r\nb\rc\n\n\r\n" + mark + b"\0\n \r")
    assert events_of(lines, path) == [b"a\r", b"b\rc", mark + b"\0", b" \r"]
    assert events_of(byte_lines(), path) == events_of(lines, path)
    kept = events_of(byte_lines(keep_empty=True), path)
    assert kept == [b"a\r", b"b\rc", b"", b"", mark + b"\0", b" \r"]
    exact = byte_lines(keep_empty=True, exact=True)
    assert b"\n".join(events_of(exact, path)) == path.read_bytes()
    assert events_of(byte_lines(exact=True), path)[2] == b"\r"
    path.write_bytes(mark + b"\n")
    assert events_of(lines, path) == []
    assert events_of(byte_lines(keep_empty=True), path) == [b""]


def test_line_and_row_over_the_largest_event_are_named(tmp_path: Path) -> None:
    path = tmp_path / "big"
    largest = b"x" * MAX_EVENT_BYTES
    for end in (b"\r\n", b""):
        path.write_bytes(codecs.BOM_UTF8 + largest + end)
        assert events_of(lines, path) == [largest]
    for parse in (lines, byte_lines(exact=True)):
        path.write_bytes(b"one\n\n" + largest + b"y\nmore\n")
        with pytest.raises(IngestError, match="big, line 3: the line has more than the 8388608 bytes"):
            events_of(parse, path)
    path.write_bytes(b'n,t\n1,"a\n' + largest[:-9] + b'"\n2,"\n' + largest[:-4] + b'"\n')
    parsed = csv_rows("n")(path)
    assert len(next(iter(parsed))[1]) == MAX_EVENT_BYTES - 3
    with pytest.raises(IngestError, match="big, line 5: the row that ends here has 8388609 bytes, more than"):
        list(csv_rows("n")(path))


def test_csv_fields_over_128_KiB(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    wide = "x" * (1 << 20)
    path.write_text(f'key,text\na,{wide}\nb,"{wide}\n{wide}"\n')
    code = (
        "import sys; from pathlib import Path; from pravega_wire.ingest import csv_rows; "
        "print([len(event) for _, event in csv_rows('key', as_json=True)(Path(sys.argv[1]))])"
    )
    # in a process of its own: the limit is one of the process, and raised from then on
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], check=True, capture_output=True, text=True, cwd=ROOT
    )
    assert done.stdout == f"[{len(wide) + 24}, {2 * len(wide) + 26}]\n"


def test_csv_rows_are_what_the_file_says(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes('\ufeffname,text\r\n a ,"line 1\nline ""2"""\r\n\r\nü,\n"b",last'.encode())
    assert list(csv_rows("name")(path)) == [
        (" a ", b' a ,"line 1\nline ""2"""'),
        ("ü", "ü,".encode()),
        ("b", b'"b",last'),
    ]
    assert next(iter(csv_rows(as_json=True)(path))) == (
        None,
        b'{"name": " a ", "text": "line 1\\nline \\"2\\""}',
    )
    path.write_bytes(b"")
    assert list(csv_rows("name")(path)) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a,b\n1\n", "line 2: the row has 1 fields, but the header has 2"),
        (b"b,c\n1,2\n", "line 1: there is no column 'a'; the columns are b, c"),
        (b'a,b\n1,2\n1,"2', "line 3: unexpected end of data"),
        (b"a,b\n1,\xff\n", "line 2: byte 0xff is not utf-8-sig"),
        (b"\xef\xbb\xbfa,b\n" + b"1,2\n" * 200_000 + b"3,\xff\n", "line 200002: byte 0xff is not utf-8-sig"),
        (b"a\n" + b"x" * (MAX_EVENT_BYTES + 1), "line 2: field larger than field limit"),
    ],
)
def test_csv_that_is_wrong_names_file_and_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    with pytest.raises(IngestError, match=f"table.csv, {message}"):
        list(csv_rows("a")(path))


@pytest.mark.parametrize(
    ("key", "as_json", "doubled"),
    [(None, True, "b"), ("a", True, "b"), ("b", True, "b"), ("b", False, "b"), ("a", False, None)],
)
def test_csv_with_two_columns_of_one_name(
    tmp_path: Path, key: str | None, as_json: bool, doubled: str | None
) -> None:
    path = tmp_path / "table.csv"
    path.write_text("a,b,b\n1,2,3\n")
    parse = csv_rows(key, as_json=as_json)
    if doubled is None:
        # The row is written as it is, and the key is told for certain: nothing is lost.
        assert list(parse(path)) == [("1", b"1,2,3")]
        return
    with pytest.raises(IngestError, match=r"table\.csv, line 1: 2 columns have the name 'b'") as caught:
        list(parse(path))
    assert caught.value.item == str(path)


def test_bytes_that_are_no_text_are_found_in_other_encodings(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes("a,b\n1,2\n3,\u00e9\n".encode("utf-16") + b"\x00\xd8\n\0")
    with pytest.raises(IngestError, match=r"table.csv, line 4: byte 0x00 is not utf-16 \(illegal"):
        list(csv_rows(encoding="utf-16")(path))


def test_csv_settings_are_checked_at_once() -> None:
    with pytest.raises(InvalidArgumentError, match="klingon"):
        csv_rows(encoding="klingon")
    with pytest.raises(InvalidArgumentError, match="delimiter"):
        csv_rows(delimiter="")


def test_reader_takes_parts_without_loss() -> None:
    closed = []

    def samples() -> Iterator[Sample]:
        try:
            for number in range(5000):
                yield (None if number % 2 else "even"), b"%d" % number
        finally:
            closed.append(True)

    async def run() -> None:
        reader = SampleReader(samples, title="numbers", default_key="odd")
        found: list[tuple[str, bytes]] = []
        while len(found) < 1500 and await reader.more():
            found += reader.take(1500 - len(found))[0]
        assert len(found) == 1500
        assert await reader.more()
        part, ended = reader.take(None, lambda sample: sample[1] == b"1600")
        assert ended
        assert len(part) == 101
        found += part
        while len(found) < 3000 and await reader.more():
            found += reader.take(3000 - len(found))[0]
        assert found == [("odd" if n % 2 else "even", b"%d" % n) for n in range(3000)]
        assert not closed
        reader.close()
        assert closed

    trio.run(run)


@pytest.mark.parametrize("blocked", ["begin", "samples"])
def test_blocked_source_is_cancelled_and_ends_in_its_thread(blocked: str) -> None:
    waiting, go, ended = threading.Event(), threading.Event(), threading.Event()
    ends: list[threading.Thread] = []

    def block() -> None:
        waiting.set()
        assert go.wait(60)

    def samples() -> Iterator[Sample]:
        try:
            yield None, b"1"
            if blocked == "samples":
                block()
            yield None, b"2"
            raise AssertionError("nobody asks for more than the sample that was waited for")
        finally:
            ends.append(threading.current_thread())
            ended.set()

    def begin() -> Iterator[Sample]:
        found = samples()
        if blocked == "begin":
            # A generator that has not begun has nothing to end.
            next(found)
            block()
        return found

    async def run() -> None:
        reader = SampleReader(begin, title="the source", default_key="k")
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(reader.more)
                assert await trio.to_thread.run_sync(waiting.wait, 60)
                scope.cancel()
        assert scope.cancelled_caught
        # A generator that is closed while it runs raises ValueError.
        reader.close()
        assert not ends
        go.set()
        assert await trio.to_thread.run_sync(ended.wait, 60)
        reader.close()
        assert len(ends) == 1
        assert ends[0] is not threading.current_thread()
        with pytest.raises(ClosedError, match="the reader of the source is closed"):
            await reader.more()

    trio.run(run)


@pytest.mark.parametrize("sample", ["text", (1, b"x"), ("k", "x"), ("k", b"x", 1)])
def test_what_is_no_sample_is_named(sample: object) -> None:
    async def run() -> None:
        reader = SampleReader(lambda: [sample], title="file f", default_key="f")  # type: ignore[list-item]
        with pytest.raises(IngestError, match="file f, sample 1: a sample must be a pair"):
            await reader.more()

    trio.run(run)


def test_unreadable_file_is_named(tmp_path: Path) -> None:
    async def run() -> None:
        reader = SampleReader(lambda: lines(tmp_path / "gone"), title="file gone", default_key="")
        with pytest.raises(IngestError, match="file gone cannot be read: No such file"):
            await reader.more()

    trio.run(run)


# --- sources ---------------------------------------------------------------------------------------


def test_sources_read_from_a_position(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a\nb\nc\n")
    samples = [(None, b"a"), (None, b"b"), (None, b"c")]
    for source in (FileSource(tmp_path / "log", lines), SequenceSource(samples)):
        assert [list(source.read_from(position)) for position in (0, 2, 3)] == [samples, samples[2:], []]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (iter([("k", b"x")]), "a list_iterator cannot be ingested exactly once: it has no method read_from"),
        ([("k", b"x")], "lost in a crash; wrap it in a SequenceSource"),
    ],
)
def test_source_without_memory_is_refused(source: object, reason: str) -> None:
    async def run() -> None:
        # Nobody listens there: the refusal comes before anything is sent.
        async with open_client(PravegaConfig(controller_uri="tcp://127.0.0.1:1")) as client:
            ingester = SourceIngester(client, "s/t", "s/sync", method=FixedCount(1))
            with pytest.raises(InvalidArgumentError, match=reason):
                await ingester.run(source)  # type: ignore[arg-type]
            with pytest.raises(InvalidArgumentError, match="both the data stream and the sync stream"):
                await SourceIngester(client, "s/t", "s/t", method=FixedCount(1)).run(SequenceSource([]))

    trio.run(run)
    with pytest.raises(InvalidArgumentError, match="count"):
        FixedCount(0)


# --- the command line ------------------------------------------------------------------------------


def test_one_sentence_and_a_code_for_each_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PRAVEGA_CONTROLLER_URI", "PRAVEGA_SCOPE"):
        monkeypatch.delenv(name, raising=False)

    def run(*words: str) -> str:
        assert main(["ingest", *words]) == Exit.USAGE
        out, error = capsys.readouterr()
        assert out == ""
        assert error.startswith("error: ")
        assert error.count("\n") == 1
        return error

    streams = ("--stream", "s/t", "--sync", "s/sync")
    assert "nowhere does not exist" in run(str(tmp_path / "nowhere"), *streams)
    assert "need --format csv" in run(str(tmp_path), *streams, "--format", "lines", "--key-column", "a")
    for more in (["--delimiter", ";"], ["--encoding", "latin-1"], ["--delimiter", ","]):
        assert "need --format csv" in run(str(tmp_path), *streams, *more)
        assert "need --format csv" in run(str(tmp_path), *streams, *more, "--format", "lines")
    assert "delimiter" in run(str(tmp_path), *streams, "--format", "csv", "--delimiter", "")
    assert "need --format lines" in run(str(tmp_path), *streams, "--format", "csv", "--keep-empty")
    assert "delimiter" in run(str(tmp_path), *streams, "--format", "csv", "--delimiter", "ab")
    assert "stream 't' has no scope" in run(str(tmp_path), "--stream", "t", "--sync", "s/sync")
    assert "scheme 'http'" in run(str(tmp_path), *streams, "--controller", "http://x:1")
    assert "segments" in run(str(tmp_path), *streams, "--segments", "0")
    with pytest.raises(SystemExit) as caught:
        main(["ingest"])
    assert caught.value.code == Exit.USAGE
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    assert all(f"\n  {name} " in shown for name in COMMANDS)


LATER = "import sys; sys.stdin.readline(); from pravega_wire.cli.main import main; raise SystemExit(main())"


@pytest.mark.parametrize("words", [["--help"], ["ingest", "nowhere", "--stream", "s/t", "--sync", "s/s"]])
def test_closed_pipe_is_no_traceback(words: list[str], tmp_path: Path) -> None:
    """Nobody reads the output any more, of both kinds; the exit code stays what it is."""
    open_code = subprocess.run(
        [sys.executable, "-m", "pravega_wire", *words], cwd=ROOT, capture_output=True
    ).returncode
    for closed in ("stdout", "stderr"):
        ends: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": (tmp_path / "err").open("wb")}
        process = subprocess.Popen(
            [sys.executable, "-c", LATER, *words],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            **(ends | {closed: subprocess.PIPE}),
        )
        pipe = getattr(process, closed)
        pipe.close()
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.close()
        assert process.wait(timeout=120) == open_code
        ends["stderr"].close()
        assert b"Traceback" not in (tmp_path / "err").read_bytes()
        assert b"BrokenPipe" not in (tmp_path / "err").read_bytes()


def test_exit_codes() -> None:
    unknown = TransactionOutcomeUnknownError("x")
    assert isinstance(unknown, TransactionUnknownError)
    codes: dict[Exit, list[PravegaError]] = {
        Exit.FAILED: [ConnectError("x"), PravegaError("x")],
        Exit.USAGE: [InvalidArgumentError("x"), IngestError("x"), StreamSealedError("x")],
        Exit.FENCED: [FencedError("x")],
        Exit.UNDECIDED: [IngestedSourceChangedError("x"), IngestedStreamGoneError("x"), unknown],
    }
    for code, errors in codes.items():
        assert [exit_code(error) for error in errors] == [code] * len(errors)


def test_titles() -> None:
    record = IngestRecord("s/t", Kind.SOURCE, position=10, length=5)
    assert record.title == "samples 10 to 14"
    assert replace(record, length=UNKNOWN_LENGTH).title == "the samples from 10 on"
    assert replace(record, kind=Kind.FILES, item="a.csv").title == "file a.csv"
