"""Ingestion killed at every point, on a real server: each row is in the stream once, in order per key."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
import trio

from pravega_wire import PravegaClient, PravegaConfig, ScopedStream, TxnStatus, open_client
from pravega_wire.cli.common import Exit
from pravega_wire.errors import (
    CorruptedStateError,
    FencedError,
    IngestedSourceChangedError,
    IngestedStreamGoneError,
    IngestError,
    InvalidArgumentError,
    PravegaTimeoutError,
    StreamSealedError,
    TransactionAbortedError,
    TransactionOutcomeUnknownError,
)
from pravega_wire.ingest import (
    EndRecord,
    FileIngester,
    FixedCount,
    IngestRecord,
    LengthBefore,
    Observer,
    Progress,
    Sample,
    SequenceSource,
    SourceIngester,
    Stage,
    csv_rows,
    lines,
)
from pravega_wire.ingest import state as state_module
from pravega_wire.ingest.files import _bytes, list_files
from pravega_wire.ingest.state import Journal, Kind, Phase
from tests.inside import core_of
from tests.integration.ingesting import AFTER_COMMIT, MODES, Job, ingest, start, verify, write_folder

SECONDS = 120


def job_of(config: PravegaConfig, folder: Path, mode: str = "files") -> Job:
    return Job(config.controller_uri, str(config.scope), str(folder), mode)


def finished(process: subprocess.Popen[str]) -> dict[str, object]:
    """What the process said at its end."""
    try:
        out, _ = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
        process.wait()
    last = out.strip().splitlines()[-1]
    return {} if process.returncode == -signal.SIGKILL else dict(json.loads(last))


def check(config: PravegaConfig, expected: dict[str, list[int]]) -> int:
    async def main() -> int:
        async with open_client(config) as client:
            return await verify(client, expected)

    return trio.run(main)


POINTS = [
    (Stage.BEGUN.name, 2),
    (Stage.RECORDED.name, 2),
    (Stage.WRITING.name, 5),
    (Stage.WRITTEN.name, 2),
    (Stage.COMMITTING.name, 2),
    (AFTER_COMMIT, 2),
]
"""Where the process kills itself, always around the second transaction: the first one must survive, too."""

CASES = [
    *(("files", *point) for point in POINTS),
    # The methods differ in how a run finds where the last transaction began and ended.
    *((mode, stage, 2) for mode in MODES[1:] for stage in (Stage.RECORDED.name, AFTER_COMMIT)),
    ("end", Stage.ENDED.name, 2),
]


@pytest.mark.parametrize(("mode", "stage", "nth"), CASES)
def test_killed_at_each_point(config: PravegaConfig, tmp_path: Path, mode: str, stage: str, nth: int) -> None:
    expected = write_folder(tmp_path / "in", 3, 2500)
    job = job_of(config, tmp_path / "in", mode)
    assert finished(start(replace(job, crash=stage, nth=nth))) == {}

    async def again() -> dict[str, int]:
        async with open_client(config) as client:
            return await ingest(client, job)

    trio.run(again)
    assert check(config, expected) == 7500
    # The record of the last commit lets a run with nothing to do find that out.
    assert trio.run(again)["events"] == 0
    assert check(config, expected) == 7500


@pytest.mark.parametrize("mode", ["files", "end"])
def test_killed_at_random(config: PravegaConfig, tmp_path: Path, mode: str) -> None:
    expected = write_folder(tmp_path / "in", 12, 2500)
    job = job_of(config, tmp_path / "in", mode)
    chance = random.Random(mode)
    for _ in range(6):
        process = start(job)
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        # Not a wait for something: the moment of death is the test's input.
        time.sleep(chance.uniform(0, 0.4))
        process.kill()
        process.communicate()
    assert "error" not in finished(start(job))
    assert check(config, expected) == 30_000


def test_two_at_once_from_the_same_record(config: PravegaConfig, tmp_path: Path) -> None:
    expected = write_folder(tmp_path / "in", 5, 2500)
    job = replace(job_of(config, tmp_path / "in"), pause=Stage.RECOVERED.name)
    both = [start(job), start(job)]
    for process in both:
        assert process.stdout is not None
        while process.stdout.readline() != "paused\n":
            assert process.poll() is None
    for process in both:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    ends = [finished(process) for process in both]
    assert sorted(process.returncode for process in both) == [0, 1], ends
    assert [end["error"] for end in ends if "error" in end] == ["FencedError"]
    assert check(config, expected) == 12_500


# --- in this process: everything else ------------------------------------------------------------


def rows(count: int, start: int = 0) -> list[Sample]:
    return [(f"k{number % 5}", b"%d" % number) for number in range(start, start + count)]


async def nothing(record: IngestRecord) -> None:
    await trio.lowlevel.checkpoint()


async def stored(client: PravegaClient, stream: str = "data") -> list[int]:
    """The numbers in the stream; fails if those of a key are out of order."""
    found: list[int] = []
    async for batch in client.read_events(stream):
        found += [int(event) for event in batch]
    for key in range(5):
        numbers = [number for number in found if number % 5 == key]
        assert numbers == sorted(numbers)
    return sorted(found)


def write_numbers(folder: Path, name: str, count: int, start: int = 0) -> None:
    folder.mkdir(exist_ok=True)
    text = "".join(f"{number}\n" for number in range(start, start + count))
    (folder / name).write_text(text)


def key_of(event: bytes) -> str:
    return f"k{int(event) % 5}"


class Watch:
    """An observer that does something the first time a stage is reached, and remembers everything."""

    def __init__(
        self, stage: Stage, act: Callable[[IngestRecord], Awaitable[object]], times: int = 1
    ) -> None:
        self.seen: list[tuple[Stage, IngestRecord]] = []
        self._stage = stage
        self._act = act
        self._times = times

    async def __call__(self, stage: Stage, record: IngestRecord) -> None:
        self.seen.append((stage, record))
        if stage is self._stage and self._times > 0:
            self._times -= 1
            await self._act(record)

    def transactions(self) -> list[UUID]:
        return [record.transaction for stage, record in self.seen if stage is Stage.BEGUN]


ZOMBIES = [
    ("files", Stage.BEGUN),
    ("files", Stage.RECORDED),
    ("files", Stage.WRITING),
    ("files", Stage.WRITTEN),
    ("files", Stage.COMMITTING),
    ("end", Stage.WRITTEN),
    ("end", Stage.ENDED),
]


@pytest.mark.parametrize(("mode", "stage"), ZOMBIES)
async def test_one_that_wakes_up_after_another_did_the_work(
    config: PravegaConfig, tmp_path: Path, mode: str, stage: Stage
) -> None:
    """The first stops in the middle of its work; the second does all of it; then the first goes on."""
    for number in range(3):
        write_numbers(tmp_path / "in", f"{number}.txt", 2000, number * 2000)

    async def ingest(client: PravegaClient, watch: Watch | None) -> Progress:
        if mode == "files":
            return await FileIngester(client, "data", "sync", key=key_of, observer=watch).run(tmp_path / "in")
        method = EndRecord(lambda sample, count, size: count == 2000)
        ingester = SourceIngester(client, "data", "sync", method=method, observer=watch)
        return await ingester.run(SequenceSource(rows(6000)))

    async with open_client(config) as client:

        async def overtake(record: IngestRecord) -> None:
            progress = await ingest(client, None)
            # What was committed, or can be, counts as the first one's.
            assert progress.done == (2 if stage in (Stage.COMMITTING, Stage.ENDED) else 3)

        zombie = Watch(stage, overtake)
        with pytest.raises(FencedError, match="another ingester is using sync stream"):
            await ingest(client, zombie)
        assert await stored(client) == list(range(6000))
        states = [await client.transaction_status("data", each) for each in zombie.transactions()]
        assert TxnStatus.OPEN not in states
        if stage is not Stage.COMMITTING:
            wanted = TxnStatus.COMMITTED if stage is Stage.ENDED else TxnStatus.ABORTED
            assert states[0] in (wanted, TxnStatus.ABORTING)


@pytest.mark.parametrize("stage", [Stage.RECORDED, Stage.WRITING, Stage.WRITTEN])
async def test_transaction_aborted_under_way_is_done_again(
    config: PravegaConfig, tmp_path: Path, stage: Stage
) -> None:
    """As when the lease runs out in a process that was suspended."""
    write_numbers(tmp_path / "in", "0.txt", 4000)
    write_numbers(tmp_path / "in", "1.txt", 4000, 4000)

    async with open_client(config) as client:

        async def abort(record: IngestRecord) -> None:
            await client.abort_transaction("data", record.transaction)

        watch = Watch(stage, abort)
        progress = await FileIngester(client, "data", "sync", key=key_of, observer=watch).run(tmp_path / "in")
        assert len(watch.transactions()) == 3
        assert (progress.done, progress.events) == (2, 8000)
        assert await stored(client) == list(range(8000))
        # Not for ever.
        write_numbers(tmp_path / "in", "2.txt", 1000, 8000)
        with pytest.raises(TransactionAbortedError):
            await FileIngester(
                client, "data", "sync", key=key_of, observer=Watch(stage, abort, times=10)
            ).run(tmp_path / "in")
        assert await stored(client) == list(range(8000))
        await FileIngester(client, "data", "sync", key=key_of).run(tmp_path / "in")
        assert await stored(client) == list(range(9000))


async def test_recovery_while_the_transaction_is_committing(config: PravegaConfig, tmp_path: Path) -> None:
    """The next ingester comes right after a commit was accepted, which takes the server a while.

    At least eight times, and until it has come early enough once; each time into a stream of its own, whose
    first commit takes the longest. The next file goes after the first one meanwhile.
    """

    class Stop(Exception):
        pass

    states: list[TxnStatus] = []
    async with open_client(config) as client:

        async def ingest(data: str, observer: Observer) -> Progress:
            ingester = FileIngester(client, data, f"{data}-sync", key=key_of, create=False, observer=observer)
            return await ingester.run(tmp_path / data)

        while len(states) < 8 or TxnStatus.COMMITTING not in states:
            data = f"data{len(states)}"
            await client.create_stream(data, 10)
            await client.create_stream(f"{data}-sync", 1)
            write_numbers(tmp_path / data, "1.txt", 500)
            write_numbers(tmp_path / data, "2.txt", 500, 500)

            async def look(stage: Stage, record: IngestRecord, data: str = data) -> None:
                if stage is Stage.RECOVERED:
                    # If it is committing now it was when ingestion decided.
                    states.append(await client.transaction_status(data, record.transaction))

            async def next_one(
                stage: Stage,
                record: IngestRecord,
                data: str = data,
                look: Observer = look,
            ) -> None:
                if stage is Stage.COMMITTING:
                    progress = await ingest(data, look)
                    assert (progress.skipped, progress.done, progress.total) == (1, 1, 2)
                    raise Stop

            with pytest.raises(Stop):
                await ingest(data, next_one)
            assert await stored(client, data) == list(range(1000))
        assert set(states) <= {TxnStatus.COMMITTING, TxnStatus.COMMITTED}


@pytest.mark.parametrize("stuck", [1, 2])
async def test_transaction_that_stays_committing(
    config: PravegaConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stuck: int
) -> None:
    """As a 0.13.0 controller leaves it when a commit races with an abort; here by what it answers."""
    for number in range(3):
        write_numbers(tmp_path / "in", f"{number}.txt", 500, number * 500)

    async with open_client(replace(config, operation_timeout=3.0)) as client:
        controller = core_of(client).controller
        asked, commits = controller.check_transaction_state, controller.commit_transaction
        again: list[UUID] = []

        async def ask(scope: str, stream: str, txn_id: UUID) -> TxnStatus:
            status = await asked(scope, stream, txn_id)
            named = txn_id == watch.transactions()[stuck - 1]
            return TxnStatus.COMMITTING if named and status is TxnStatus.COMMITTED else status

        async def commit(scope: str, stream: str, txn_id: UUID, **more: int | None) -> bool:
            again.append(txn_id)
            return bool(await commits(scope, stream, txn_id, **more))  # type: ignore[arg-type]

        watch = Watch(Stage.RECORDED, nothing)
        ingester = FileIngester(client, "data", "sync", key=key_of, observer=watch)
        with monkeypatch.context() as patch:
            patch.setattr(controller, "check_transaction_state", ask)
            patch.setattr(controller, "commit_transaction", commit)
            for _ in range(2):
                message = f"file {stuck - 1}.txt: transaction .* is still committing after 3 s"
                with pytest.raises(PravegaTimeoutError, match=message) as caught:
                    await ingester.run(tmp_path / "in")
                assert caught.value.transaction == watch.transactions()[stuck - 1]
                # The next file's transaction is begun, and nothing is in it.
                assert await stored(client) == list(range(500 * stuck))
            assert again.count(watch.transactions()[stuck - 1]) > 2
            assert len({*again}) == stuck
        assert await client.transaction_status("data", watch.transactions()[stuck]) in (
            TxnStatus.ABORTING,
            TxnStatus.ABORTED,
        )
        progress = await ingester.run(tmp_path / "in")
        assert (progress.skipped, progress.done) == (stuck, 3 - stuck)
        assert await stored(client) == list(range(1500))


@asynccontextmanager
async def forgotten(config: PravegaConfig, folder: Path, phase: Phase) -> AsyncIterator[PravegaClient]:
    """A record of file b whose transaction the server does not know, with a ingested for real."""
    write_numbers(folder, "a", 10)
    async with open_client(config) as client:
        await FileIngester(client, "data", "sync", key=key_of).run(folder)
        write_numbers(folder, "b", 10, 10)
        write_numbers(folder, "c", 10, 20)
        scope = str(config.scope)
        async with Journal.open(
            client, ScopedStream(scope, "sync"), ScopedStream(scope, "data"), Kind.FILES
        ) as journal:
            a, b, _ = list_files(folder)
            record = replace(
                journal.seen, item="b", position=1, length=b.size, transaction=uuid4(), phase=phase
            )
            await journal.replace(
                replace(record, names=_bytes(a.name_print), contents=_bytes(a.print(a.size)))
            )
        yield client


@pytest.mark.parametrize("phase", [Phase.BEGUN, Phase.ENDED])
async def test_forgotten_transaction_stops_and_names_the_file(
    config: PravegaConfig, tmp_path: Path, phase: Phase
) -> None:
    async with forgotten(config, tmp_path / "in", phase) as client:
        with pytest.raises(
            TransactionOutcomeUnknownError, match="file b: the server has no record"
        ) as caught:
            await FileIngester(client, "data", "sync", key=key_of).run(tmp_path / "in")
        assert caught.value.item == "b"
        assert await stored(client) == list(range(10))


@pytest.mark.parametrize(("if_unknown", "more"), [("committed", range(20, 30)), ("aborted", range(10, 30))])
async def test_forgotten_transaction_decided_by_a_person(
    config: PravegaConfig, tmp_path: Path, if_unknown: str, more: Sequence[int]
) -> None:
    async with forgotten(config, tmp_path / "in", Phase.BEGUN) as client:
        ingester = FileIngester(client, "data", "sync", key=key_of, if_unknown=if_unknown)  # type: ignore[arg-type]
        await ingester.run(tmp_path / "in")
        assert await stored(client) == [*range(10), *more]


async def test_record_of_the_last_commit_decides(config: PravegaConfig, tmp_path: Path) -> None:
    async with forgotten(config, tmp_path / "in", Phase.DONE) as client:
        await FileIngester(client, "data", "sync", key=key_of).run(tmp_path / "in")
        assert await stored(client) == [*range(10), *range(20, 30)]


async def test_last_file_forgotten_and_taken_for_committed(config: PravegaConfig, tmp_path: Path) -> None:
    """With nothing left to do, the decision is put into the record: it need not be made again."""

    async with forgotten(config, tmp_path / "in", Phase.BEGUN) as client:
        (tmp_path / "in" / "c").unlink()
        ingester = FileIngester(client, "data", "sync", if_unknown="committed")
        assert (await ingester.run(tmp_path / "in")).done == 0
        assert (await FileIngester(client, "data", "sync").run(tmp_path / "in")).skipped == 2


async def test_folder_that_changed(config: PravegaConfig, tmp_path: Path) -> None:
    folder = tmp_path / "in"

    async with open_client(config) as client:

        async def run(**settings: str) -> Progress:
            ingester = FileIngester(client, "data", "sync", key=key_of, **settings)  # type: ignore[arg-type]
            return await ingester.run(folder)

        write_numbers(folder, "b", 10)
        write_numbers(folder, "c", 10, 10)
        assert (await run()).done == 2
        # The ordinary case: what comes later by name is next.
        write_numbers(folder, "d", 10, 20)
        progress = await run()
        assert (progress.skipped, progress.done, progress.total, progress.events) == (2, 1, 3, 10)
        write_numbers(folder, "a", 10, 90)
        with pytest.raises(IngestedSourceChangedError, match="file a is new and comes before"):
            await run()
        assert await stored(client) == list(range(30))
        write_numbers(folder, "e", 10, 30)
        assert (await run(on_changed="ignore")).done == 1
        assert await stored(client) == list(range(40))


async def test_file_that_cannot_be_ingested(config: PravegaConfig, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_text("n\n0\n1\n")
    (folder / "b.csv").write_text("n\n" + "".join(f"{n}\n" for n in range(2, 3000)) + "3000,1\n")

    async with open_client(config) as client:
        watch = Watch(Stage.BEGUN, nothing)
        ingester = FileIngester(client, "data", "sync", parse=csv_rows("n"), observer=watch)
        with pytest.raises(IngestError, match=r"b.csv, line 3000: the row has 2 fields"):
            await ingester.run(folder)
        assert await stored(client) == [0, 1]
        assert await client.transaction_status("data", watch.transactions()[-1]) in (
            TxnStatus.ABORTING,
            TxnStatus.ABORTED,
        )
        # Mended, it comes next.
        (folder / "b.csv").write_text("n\n" + "".join(f"{n}\n" for n in range(2, 3000)))

        async def grow(record: IngestRecord) -> None:
            with (folder / "b.csv").open("a") as file:
                file.write("3000\n")

        growing = FileIngester(
            client, "data", "sync", parse=csv_rows("n"), observer=Watch(Stage.WRITING, grow)
        )
        with pytest.raises(IngestError, match=r"file b.csv changed while it was being read") as caught:
            await growing.run(folder)
        assert caught.value.item == "b.csv"
        assert await stored(client) == [0, 1]
        await ingester.run(folder)
        found: list[int] = []
        async for batch in client.read_events("data"):
            found += [int(event) for event in batch]
        assert sorted(found) == list(range(3001))
        (folder / "c.txt").write_bytes(b"x" * (9 << 20))
        with pytest.raises(IngestError, match=r"c.txt, line 1: the line has more than the 8388608 b"):
            await FileIngester(client, "data", "sync", parse=lines).run(folder)


async def test_event_of_a_parse_of_ones_own_that_is_too_large(config: PravegaConfig, tmp_path: Path) -> None:
    write_numbers(tmp_path / "in", "a.txt", 1)

    def parse(path: Path) -> list[Sample]:
        return [*[(None, b"0")] * 1500, (None, b"x" * (9 << 20))]

    async with open_client(config) as client:
        with pytest.raises(IngestError, match=r"file a.txt, event 1501: an event of 9437184 bytes"):
            await FileIngester(client, "data", "sync", parse=parse).run(tmp_path / "in")
        assert await stored(client) == []


async def test_sealed_stream_is_named_at_once(config: PravegaConfig, tmp_path: Path) -> None:
    write_numbers(tmp_path / "in", "a", 10)

    async with open_client(config) as client:
        ingester = FileIngester(client, "data", "sync", key=key_of)
        await ingester.run(tmp_path / "in")
        await client.seal_stream("data")
        asked: list[int] = []
        channels = core_of(client).controller._channels
        call = channels._attempt

        async def count(rpc: str, *more: Any, **named: Any) -> Any:
            asked.append(rpc == "createTransaction")
            return await call(rpc, *more, **named)

        channels._attempt = count  # type: ignore[method-assign]
        with pytest.raises(
            StreamSealedError, match=r"/data is sealed: no transaction can be started"
        ) as caught:
            await client.begin_transaction("data")
        assert sum(asked) == 1
        assert caught.value.stream == "data"
        # With nothing to do there is nothing to complain about.
        assert (await ingester.run(tmp_path / "in")).done == 0
        write_numbers(tmp_path / "in", "b", 10, 10)
        with pytest.raises(StreamSealedError):
            await ingester.run(tmp_path / "in")
        assert await stored(client) == list(range(10))


@pytest.mark.parametrize("kind", ["files", "source"])
async def test_data_stream_that_was_deleted_is_not_made_again(
    config: PravegaConfig, tmp_path: Path, kind: str
) -> None:
    write_numbers(tmp_path / "in", "a", 10)

    async with open_client(config) as client:

        async def run(sync: str = "sync", create: bool = True) -> Progress:
            if kind == "files":
                ingester = FileIngester(client, "data", sync, key=key_of, create=create)
                return await ingester.run(tmp_path / "in")
            method = FixedCount(10)
            source = SourceIngester(client, "data", sync, method=method, create=create)
            return await source.run(SequenceSource(rows(10)))

        await run()
        await client.delete_stream("data", seal=True)
        for create in (True, False):
            with pytest.raises(IngestedStreamGoneError, match=r"/data no longer exists.*/sync records"):
                await run(create=create)
            assert not await client.stream_exists("data")
        await run("another")
        assert await stored(client) == list(range(10))


async def test_streams_that_do_not_fit(config: PravegaConfig, tmp_path: Path) -> None:
    write_numbers(tmp_path / "in", "a", 10)

    async with open_client(config) as client:
        await FileIngester(client, "data", "sync").run(tmp_path / "in")
        assert len(await client.active_segments("data")) == 10
        assert len(await client.active_segments("sync")) == 1
        with pytest.raises(InvalidArgumentError, match=r"belongs to the ingestion of files into .*/data"):
            await FileIngester(client, "other", "sync").run(tmp_path / "in")
        with pytest.raises(InvalidArgumentError, match="belongs to the ingestion of files"):
            await SourceIngester(client, "data", "sync", method=FixedCount(1)).run(SequenceSource([]))
        with pytest.raises(InvalidArgumentError, match="segments"):
            await FileIngester(client, "more", "data").run(tmp_path / "in")
        async with client.event_writer("sync") as writer:
            await writer.write_event(b"something else")
        with pytest.raises(CorruptedStateError, match="sync"):
            await FileIngester(client, "data", "sync").run(tmp_path / "in")


async def test_stream_scaled_in_the_middle_of_a_transaction(config: PravegaConfig, tmp_path: Path) -> None:
    for number in range(3):
        write_numbers(tmp_path / "in", f"{number}.txt", 3000, number * 3000)

    async with open_client(config) as client:

        async def scale(record: IngestRecord) -> None:
            active = [each.segment_id for each in await client.active_segments("data")]
            await client.scale_stream("data", active, [(0.0, 0.3), (0.3, 0.6), (0.6, 1.0)])

        ingester = FileIngester(
            client, "data", "sync", key=key_of, segments=2, observer=Watch(Stage.WRITING, scale)
        )
        await ingester.run(tmp_path / "in")
        assert len(await client.active_segments("data")) == 3
        assert await stored(client) == list(range(9000))


async def test_state_is_compacted(config: PravegaConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "_COMPACT_UPDATES", 4)

    async with open_client(config) as client:
        ingester = SourceIngester(client, "data", "sync", method=FixedCount(2))
        await ingester.run(SequenceSource(rows(24)))
        async with client.revisioned_stream("sync") as log:
            assert (await log.oldest_revision()).offset > 0
        await ingester.run(SequenceSource(rows(26)))
        assert await stored(client) == list(range(26))


async def test_cancelled_run_leaves_nothing_open(config: PravegaConfig, tmp_path: Path) -> None:
    write_numbers(tmp_path / "in", "a", 5000)

    async with open_client(config) as client:
        with trio.CancelScope() as scope:

            async def cancel(record: IngestRecord) -> None:
                scope.cancel()

            watch = Watch(Stage.WRITING, cancel)
            await FileIngester(client, "data", "sync", key=key_of, observer=watch).run(tmp_path / "in")
        assert scope.cancelled_caught
        assert await client.transaction_status("data", watch.transactions()[0]) in (
            TxnStatus.ABORTING,
            TxnStatus.ABORTED,
        )
        await FileIngester(client, "data", "sync", key=key_of).run(tmp_path / "in")
        assert await stored(client) == list(range(5000))


@pytest.mark.smoke
async def test_source_that_grows(config: PravegaConfig) -> None:
    """The last transaction of fixed count is shorter, and the next run goes on behind it."""

    async with open_client(config) as client:
        for total, done in ((25, 3), (25, 0), (40, 2), (60, 2)):
            ingester = SourceIngester(client, "data", "sync", method=FixedCount(10))
            progress = await ingester.run(SequenceSource(rows(total)))
            assert progress.done == done
            assert await stored(client) == list(range(total))
        # The method may change from run to run.
        ends = SourceIngester(
            client, "data", "sync", method=EndRecord(lambda sample, count, size: size >= 30)
        )
        assert (await ends.run(SequenceSource(rows(90)))).done == 2
        assert await stored(client) == list(range(90))
        short = SourceIngester(client, "data", "sync", method=LengthBefore(lambda position: 20))
        with pytest.raises(IngestError, match="computed for position 90 is 20, but the source has only 5"):
            await short.run(SequenceSource(rows(95)))
        with pytest.raises(IngestError, match="but the source has only 0"):
            await short.run(SequenceSource(rows(90)))
        assert await stored(client) == list(range(90))
        wrong = SourceIngester(client, "data", "sync", method=LengthBefore(lambda position: -1))
        with pytest.raises(IngestError, match="position 90 is -1"):
            await wrong.run(SequenceSource(rows(95)))
        with pytest.raises(IngestedSourceChangedError, match="89 samples, but 90 of them were ingested"):
            await ends.run(SequenceSource(rows(89)))


async def test_transaction_without_end_record_that_somebody_committed(config: PravegaConfig) -> None:
    class Stop(Exception):
        pass

    async with open_client(config) as client:

        async def commit(record: IngestRecord) -> None:
            await client.commit_transaction("data", record.transaction)
            raise Stop

        method = EndRecord(lambda sample, count, size: False)
        first = SourceIngester(client, "data", "sync", method=method, observer=Watch(Stage.WRITTEN, commit))
        with pytest.raises(Stop):
            await first.run(SequenceSource(rows(10)))
        with pytest.raises(CorruptedStateError, match="another program has committed it"):
            await SourceIngester(client, "data", "sync", method=method).run(SequenceSource(rows(10)))


# --- the command line ------------------------------------------------------------------------------


def command(config: PravegaConfig, folder: Path, *more: str) -> subprocess.Popen[str]:
    scope = str(config.scope)
    return subprocess.Popen(
        [
            sys.executable, "-m", "pravega_wire", "ingest", str(folder), "--stream", f"{scope}/data",
            "--sync", f"{scope}/sync", "--glob", "*.csv", "--key-column", "sensor", *more,
        ],
        env=os.environ | {"PRAVEGA_CONTROLLER_URI": config.controller_uri},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Where the tests run in the background of a shell, it would be ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip


@pytest.mark.smoke
def test_command(config: PravegaConfig, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    expected = write_folder(folder, 60, 1000)
    first = command(config, folder)
    # It ends in the middle, as soon as it says that the first file is done.
    assert first.stderr is not None
    line = ""
    while "1 of 60 files done" not in line:
        assert select.select([first.stderr], [], [], SECONDS)[0]
        line = first.stderr.readline()
        assert line
    first.send_signal(signal.SIGINT)
    out, error = first.communicate(timeout=SECONDS)
    assert first.returncode == Exit.INTERRUPTED, error
    assert out == ""
    assert error.endswith("interrupted\n")
    assert "Traceback" not in error

    again = command(config, folder, "--quiet")
    out, error = again.communicate(timeout=SECONDS)
    assert (again.returncode, error) == (Exit.DONE, "")
    assert out.startswith("60 of 60 files done, ")
    assert check(config, expected) == 60_000

    (folder / "a.csv").write_text("sensor\n")
    refused = command(config, folder)
    out, error = refused.communicate(timeout=SECONDS)
    assert (refused.returncode, out) == (Exit.UNDECIDED, "")
    assert error.startswith("error: file a.csv is new")
    assert error.count("\n") == 1


def test_command_says_what_is_left_out_and_that_nothing_matches(
    config: PravegaConfig, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    (folder / "b.csv").mkdir(parents=True)
    (folder / "c.csv").symlink_to(folder / "nowhere")
    nothing_there = command(config, folder)
    out, error = nothing_there.communicate(timeout=SECONDS)
    left_out = "skipped: b.csv is a folder\nskipped: c.csv is a broken link\n"
    assert (nothing_there.returncode, out) == (Exit.NOTHING, ""), error
    assert error == f"{left_out}error: no file in {folder} matches '*.csv'\n"
    (folder / "a.csv").write_text("sensor,number,filler\ns0,0,\n")
    one = command(config, folder, "--quiet")
    out, error = one.communicate(timeout=SECONDS)
    assert (one.returncode, error) == (Exit.DONE, left_out)
    assert out.startswith("1 of 1 files done, ")


def test_command_goes_on_when_nobody_reads_its_progress(config: PravegaConfig, tmp_path: Path) -> None:
    expected = write_folder(tmp_path / "in", 5, 100)
    process = command(config, tmp_path / "in")
    assert process.stderr is not None
    assert process.stdout is not None
    process.stderr.close()
    process.stdout.close()
    assert process.wait(timeout=SECONDS) == Exit.DONE
    assert check(config, expected) == 500
