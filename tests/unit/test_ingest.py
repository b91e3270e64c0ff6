"""Ingestion without a server: the decision table, files done before, samples, the command line."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
import trio

from pravega_wire import PravegaConfig, TxnStatus, open_client
from pravega_wire.cli.common import Exit, exit_code
from pravega_wire.cli.main import COMMANDS, main
from pravega_wire.errors import (
    ConnectError,
    FencedError,
    IngestedSourceChangedError,
    IngestError,
    InvalidArgumentError,
    PravegaError,
    TransactionOutcomeUnknownError,
    TransactionUnknownError,
)
from pravega_wire.ingest import (
    FileSource,
    FixedCount,
    IngestRecord,
    Sample,
    SequenceSource,
    SourceIngester,
    csv_rows,
    lines,
)
from pravega_wire.ingest.files import _bytes, check_done, list_files
from pravega_wire.ingest.recovery import Action, decide
from pravega_wire.ingest.samples import SampleReader
from pravega_wire.ingest.state import FORMAT, UNKNOWN_LENGTH, Kind, Phase

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
    with pytest.raises(InvalidArgumentError, match="pattern ''"):
        list_files(tmp_path, "")


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
    assert check_done(files, record, False, "refuse") == 2
    if change in ("nothing", "later file"):
        assert check_done(files, record, True, "refuse") == 3


def test_new_file_in_the_place_of_the_open_one(tmp_path: Path) -> None:
    record = record_at(folder_of(tmp_path, "a", "b", "d"), "d")
    folder_of(tmp_path, "c")
    assert check_done(list_files(tmp_path), record, False, "refuse") == 2
    with pytest.raises(IngestedSourceChangedError, match="file c is new"):
        check_done(list_files(tmp_path), record, True, "refuse")


@pytest.mark.parametrize(
    ("change", "message", "ignored"),
    [
        ("add", "file aa is new and comes before", 4),
        ("add two", "3 files were ingested, up to c, .* added, removed or renamed", 5),
        ("remove last", "file c was ingested and is not there any more", 2),
        ("remove first", "3 files were ingested", 2),
        ("remove and add", "3 files were ingested", 3),
        ("grow last", "file c had 13 bytes when it was ingested and has 20 now", 3),
        ("grow first", "one of the 3 files up to c has another size", 3),
        ("empty", "file c was ingested and is not there", 0),
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
        check_done(files, record, True, "refuse")
    assert caught.value.item == "c"
    assert check_done(files, record, True, "ignore") == ignored


def test_nothing_recorded_means_nothing_done(tmp_path: Path) -> None:
    folder_of(tmp_path, "a")
    assert check_done(list_files(tmp_path), IngestRecord("s/t", Kind.FILES), False, "refuse") == 0


# --- samples ---------------------------------------------------------------------------------------


def test_lines(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"one\r\n\ntwo\xff\n three ")
    assert list(lines(path)) == [(None, b"one"), (None, b"two\xff"), (None, b" three ")]


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
        (b"a,b\n1\n", "line 2: 1 fields, and the header has 2"),
        (b"b,c\n1,2\n", "line 1: there is no column 'a', only b, c"),
        (b'a,b\n1,2\n1,"2', "line 3: unexpected end of data"),
        (b"a,b\n1,\xff\n", "somewhere after line 0: .* can't decode byte 0xff"),
        (b"a\n" + b"x" * (csv.field_size_limit() + 1), "line 2: field larger than field limit"),
    ],
)
def test_csv_that_is_wrong_names_file_and_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    with pytest.raises(IngestError, match=f"table.csv, {message}"):
        list(csv_rows("a")(path))


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


@pytest.mark.parametrize("sample", ["text", (1, b"x"), ("k", "x"), ("k", b"x", 1)])
def test_what_is_no_sample_is_named(sample: object) -> None:
    async def run() -> None:
        reader = SampleReader(lambda: [sample], title="file f", default_key="f")  # type: ignore[list-item]
        with pytest.raises(IngestError, match="file f: a sample is a pair"):
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
        assert [list(source.read_from(position)) for position in (0, 2, 5)] == [samples, samples[2:], []]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (iter([("k", b"x")]), "a list_iterator cannot be ingested exactly once: it has no read_from"),
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
            with pytest.raises(InvalidArgumentError, match="data stream and the sync stream at once"):
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
    assert "nowhere is not there" in run(str(tmp_path / "nowhere"), *streams)
    assert "for CSV files" in run(str(tmp_path), *streams, "--format", "lines", "--key-column", "a")
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
    assert all(command.name in capsys.readouterr().out for command in COMMANDS)


def test_exit_codes() -> None:
    unknown = TransactionOutcomeUnknownError("x")
    assert isinstance(unknown, TransactionUnknownError)
    codes: dict[Exit, list[PravegaError]] = {
        Exit.FAILED: [ConnectError("x"), PravegaError("x")],
        Exit.USAGE: [InvalidArgumentError("x"), IngestError("x")],
        Exit.FENCED: [FencedError("x")],
        Exit.UNDECIDED: [IngestedSourceChangedError("x"), unknown],
    }
    for code, errors in codes.items():
        assert [exit_code(error) for error in errors] == [code] * len(errors)


def test_titles() -> None:
    record = IngestRecord("s/t", Kind.SOURCE, position=10, length=5)
    assert record.title == "samples 10 to 14"
    assert replace(record, length=UNKNOWN_LENGTH).title == "the samples from 10 on"
    assert replace(record, kind=Kind.FILES, item="a.csv").title == "file a.csv"
