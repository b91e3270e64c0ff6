"""The command line on a real server."""

from __future__ import annotations

import io
import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
import trio

from pravega_wire import PravegaClient, PravegaConfig, ScopedStream, TxnStatus, open_client
from pravega_wire.cli.common import Exit
from pravega_wire.cli.main import main
from pravega_wire.proto import controller_pb2 as pb
from pravega_wire.protocol.group_state import CreateCheckpoint
from pravega_wire.schemas import (
    AvroSchema,
    EventSchema,
    GroupProperties,
    JsonSchema,
    ProtobufSchema,
)
from pravega_wire.sync import SchemaRegistry
from pravega_wire.testing import SchemaRegistryServer

SECONDS = 120


class Wire:
    """Runs commands in this process, with the scope of the test as the default.

    :ivar error: what the last command printed on standard error.
    """

    def __init__(
        self, config: PravegaConfig, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.config = config
        self.scope = str(config.scope)
        self.error = ""
        self._capfd = capfd
        self._monkeypatch = monkeypatch

    def __call__(self, *words: str, code: Exit = Exit.DONE, given: bytes | None = None) -> str:
        if given is not None:
            self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        found = main(words)
        out, self.error = self._capfd.readouterr()
        assert found == code, self.error
        assert "Traceback" not in self.error
        return out

    def json(self, *words: str, **more: Any) -> list[dict[str, Any]]:
        return [json.loads(each) for each in self(*words, "--json", **more).splitlines()]

    def lines(self, *words: str, **more: Any) -> list[str]:
        return self(*words, **more).splitlines()

    def client(self, work: Callable[[PravegaClient], Any]) -> Any:
        async def run() -> Any:
            async with open_client(self.config) as client:
                return await work(client)

        return trio.run(run)


@pytest.fixture
def wire(
    config: PravegaConfig,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Wire:
    monkeypatch.setenv("PRAVEGA_CONTROLLER_URI", config.controller_uri)
    monkeypatch.setenv("PRAVEGA_SCOPE", str(config.scope))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.chdir(tmp_path)
    return Wire(config, capfd, monkeypatch)


@pytest.mark.smoke
def test_scopes(wire: Wire) -> None:
    name = f"{wire.scope}-more"
    assert wire("scope", "create", name) == f"scope {name} was created\n"
    assert wire("scope", "create", name) == f"scope {name} exists already\n"
    assert {name, wire.scope} <= {each["scope"] for each in wire.json("scope", "list")}
    wire("stream", "create", f"{name}/t")
    wire("scope", "delete", name, "--yes", code=Exit.USAGE)
    assert "is not empty" in wire.error
    wire("scope", "delete", name, "--recursive", "--yes")
    wire("scope", "delete", name, "--yes", code=Exit.NOTHING)
    assert name not in wire("scope", "list")


@pytest.mark.smoke
def test_streams(wire: Wire) -> None:
    wire("stream", "create", "one", "two", "--segments", "2", "--tag", "a", "--keep-time", "7d")
    (row,) = wire.json("stream", "list", "--pattern", "o*", "--tag", "a")
    assert row == {
        "stream": f"{wire.scope}/one", "segments": 2, "bytes": 0,
        "scaling": {"by": "fixed", "min_segments": 2},
        "retention": {"min_seconds": 604_800, "max_seconds": None},
        "tags": ["a"], "sealed": False,
    }  # fmt: skip
    assert wire.lines("stream", "list", wire.scope, "--names")[1:] == [
        f"{wire.scope}/one", f"{wire.scope}/two",
    ]  # fmt: skip
    wire("stream", "alter", "one", "--keep-all", "--remove-tag", "a", "--add-tag", "b")
    found = wire.client(lambda client: client.stream_config("one"))
    assert (found.retention, found.tags, found.scaling.min_segments) == (None, {"b"}, 2)

    assert wire("stream", "scale", "one", "3") == f"stream {wire.scope}/one: 2 -> 3 segments\n"
    assert wire.json("stream", "scale", "one", "3")[0]["sealed"] == []
    wire("append", "one", given=b"a\nb\n")
    (about,) = wire.json("stream", "describe", "one")
    assert (about["epoch"], about["active"], about["bytes"], about["written"]) == (1, 3, 18, 18)
    assert [len(each["segments"]) for each in about["epochs"]] == [2, 3]
    shown = wire("stream", "describe", "one", "--epochs")
    assert "2.#epoch.1,3.#epoch.1,4.#epoch.1" in shown

    wire("stream", "truncate", "one", "--older-than", "1h", "--yes", code=Exit.USAGE)
    assert "has no watermarks" in wire.error
    assert wire("stream", "truncate", "one", "--to", "tail", "--yes").startswith("18 B were removed")
    assert wire("stream", "truncate", "one", "--to", "tail", "--yes").startswith("0 B were removed")
    assert wire("read", "one") == ""

    wire("stream", "seal", "two", "--yes")
    wire("append", "two", given=b"x\n", code=Exit.USAGE)
    assert "is sealed" in wire.error
    wire("stream", "delete", "one", "two", "--yes")
    wire("stream", "delete", "one", "--yes", code=Exit.NOTHING)
    wire("stream", "describe", "one", code=Exit.NOTHING)
    assert wire.json("stream", "list") == []


def test_a_dash_is_standard_input(wire: Wire, tmp_path: Path) -> None:
    wire("stream", "create", "t")
    file = tmp_path / "file"
    file.write_bytes(b"from a file\n")
    assert wire("append", "t", "-", given=b"one\n").startswith("1 event, 3 bytes appended")
    wire("append", "t", str(file), "-", given=b"two\n")
    assert wire.lines("read", "t") == ["one", "from a file", "two"]
    wire("append", "t", "-", "--whole-files", given=b"three\n", code=Exit.USAGE)
    assert "--whole-files takes files, not standard input" in wire.error


@pytest.mark.smoke
def test_appending_and_reading(wire: Wire, tmp_path: Path) -> None:
    wire("stream", "create", "t")
    lines = b'{"k": "a", "n": 1}\r\n\n{"k": "b", "n": 2}\n'
    assert wire("append", "t", "--key-field", "k", given=lines).startswith("2 events, 36 bytes appended")
    wire("append", "t", "--key-field", "k", given=b'{"k": 1}\n{"n": 1}\n', code=Exit.USAGE)
    assert "standard input, line 2: it has no field 'k'" in wire.error
    assert "1 event before it was appended" in wire.error
    assert wire.lines("read", "t") == ['{"k": "a", "n": 1}', '{"k": "b", "n": 2}', '{"k": 1}']
    whole = tmp_path / "whole"
    whole.write_bytes(b"\xff\r\n\0")
    (done,) = wire.json("append", "t", str(whole), "--whole-files")
    assert (done["events"], done["bytes"]) == (1, 4)
    pairs = tmp_path / "pairs"
    pairs.write_bytes(b"k:one\nk:two")
    wire("append", "t", str(pairs), "--key-delimiter", ":", "--transaction", "--rate", "1000")

    rows = wire.json("read", "t")
    assert [each.get("event") for each in rows[-2:]] == ["one", "two"]
    assert rows[3]["event_base64"] == "/w0KAA=="
    from_third = f"0={rows[2]['offset']}"
    assert wire.lines("read", "t", "--from", from_third, "--limit", "1") == ['{"k": 1}']
    assert wire("read", "t", "--from", f"0={rows[4]['offset']}", "--format", "hex") == "6f6e65\n74776f\n"
    assert wire("read", "t", "--to", f"0={rows[1]['offset']}") == '{"k": "a", "n": 1}\n'
    assert wire("read", "t", "--from", f"0={rows[4]['offset']}", "--no-newline") == "onetwo"

    (done,) = wire.json("read", "t", "--output", "events.parquet")
    assert done["events"] == 6
    import pyarrow.parquet as pq

    assert pq.read_table("events.parquet")["event"].to_pylist()[3:] == [b"\xff\r\n\0", b"one", b"two"]
    wire("read", "t", "-o", "events.jsonl", "-n", "2")
    assert len(Path("events.jsonl").read_text().splitlines()) == 2

    wire("stream", "truncate", "t", "--to", f"0={rows[4]['offset']}", "--yes")
    wire("read", "t", "--from", "0=0", code=Exit.USAGE)
    assert "truncated" in wire.error
    assert wire.lines("read", "t", "--from", "0=0", "--skip-truncated") == ["one", "two"]


def test_truncated_bytes_are_reported_only_where_they_are_read(wire: Wire) -> None:
    """Measuring a lag, or checking where an event begins, skips nothing."""
    wire("stream", "create", "t")
    wire("append", "t", given=b"a\nb\n")
    wire("group", "create", "g", "t")
    wire("stream", "truncate", "t", "--to", "tail", "--yes")
    (group,) = wire.json("group", "list")
    assert (group["lag"], wire.error) == (0, "")
    for words in (
        ("group", "describe", "g"),
        ("group", "create", "other", "t", "--from", "0=0"),
        ("stream", "truncate", "t", "--to", "0=9", "--yes"),
        ("top", "--count", "2", "--interval", "1ms", "--json"),
    ):
        wire(*words)
        assert "truncated" not in wire.error, words
    wire("read", "t", "--from", "0=0", code=Exit.USAGE)
    assert wire.error.count("truncated") == 1
    wire("read", "t", "--from", "0=0", "--skip-truncated")
    assert wire.error.count("18 bytes were truncated") == 1


def test_files_that_cannot_be_events(wire: Wire, tmp_path: Path) -> None:
    wire("stream", "create", "t")
    Path("one").write_bytes(b"\n")
    wire("append", "t", "one", str(tmp_path), "--whole-files", code=Exit.USAGE)
    assert f"{tmp_path}: Is a directory; 1 event before it was appended" in wire.error
    assert wire("read", "t", "--format", "hex") == "0a\n"
    wire("append", "t", "one", str(tmp_path), "--whole-files", "--transaction", code=Exit.USAGE)
    Path("large").write_bytes(bytes((8 << 20) + 1))
    wire("append", "t", "large", "--whole-files", "--transaction", code=Exit.USAGE)
    assert "error: large: an event of 8388609 bytes is over the limit" in wire.error
    assert wire("read", "t", "--format", "hex") == "0a\n"
    assert wire("append", "t", "large", "--whole-files").startswith("1 event, 8388609 bytes appended")


def test_times_by_watermarks(wire: Wire) -> None:
    wire("stream", "create", "t")

    async def write(client: PravegaClient) -> None:
        async with client.event_writer("t") as writer:
            for time in range(1, 100):
                await writer.write_event(b"%d" % time)
                await writer.note_time(time * 1_000_000)
                # The controller makes a watermark every few seconds.
                if await client.watermarks("t"):
                    return
                await trio.sleep(0.5)

    wire.client(write)
    (mark, *_) = wire.client(lambda client: client.watermarks("t"))
    (cut,) = wire.json("cut", "at", "t", str(mark.upper + 1))
    assert cut["positions"] == {"0": mark.positions[0].offset}
    assert wire("cut", "at", "t", "1970-01-01T00:00:00Z") == wire("cut", "now", "t", "--head")
    after = wire.lines("read", "t", "--from", f"time:{mark.upper + 1}")
    before = wire.lines("read", "t", "--to", f"time:{mark.upper + 1}")
    assert before
    assert before + after == wire.lines("read", "t")
    # All these times are long ago.
    newest = wire.client(lambda client: client.watermarks("t"))[-1]
    wire("stream", "truncate", "t", "--older-than", "1h", "--yes")
    (head,) = wire.json("cut", "now", "t", "--head")
    assert head["positions"]["0"] >= newest.positions[0].offset
    assert wire("cut", "at", "t", str(mark.upper + 1)) == wire("cut", "now", "t", "--head")


@pytest.mark.smoke
def test_cuts(wire: Wire) -> None:
    wire("stream", "create", "t")
    wire("append", "t", given=b"a\n")
    text = wire("cut", "now", "t").strip()
    Path("noon.cut").write_text(text)
    wire("append", "t", given=b"bc\n")
    assert wire("cut", "distance", "t", "@noon.cut") == "10\n"
    assert wire("cut", "distance", "t", "tail", text) == "-10\n"
    assert wire("cut", "distance", "t", "head", "tail") == "19\n"
    assert wire("cut", "compare", "t", "head", "@noon.cut") == "before\n"
    assert wire.json("cut", "compare", "t", text, "0=9")[0]["order"] == "equal"
    assert wire.lines("cut", "show", "t", text)[1].split() == [f"{wire.scope}/t", "0", "9"]
    assert wire("read", "t", "--from", text) == "bc\n"
    wire("cut", "show", "other", text, code=Exit.USAGE)
    wire("read", "other", "--from", text, code=Exit.USAGE)


@pytest.mark.smoke
def test_groups(wire: Wire) -> None:
    wire("stream", "create", "t", "u")
    wire("append", "t", given=b"a\nb\nc\n")
    assert wire("read", "t", "--group", "g", "-n", "2") == "a\nb\n"
    assert "reader group" in wire.error
    assert wire.lines("read", "t", "--group", "g", "-n", "1") == ["c"]
    assert wire("read", "t", "--group", "g", "--idle", "500ms") == ""
    (row,) = wire.json("group", "list")
    assert (row["group"], row["readers"], row["lag"]) == (f"{wire.scope}/g", 0, 0)
    wire("read", "u", "--group", "g", code=Exit.USAGE)
    wire("read", "t", "--group", "g", "--from", "head", code=Exit.USAGE)

    wire("group", "reset", "g", "--to", "head", "--yes")
    (about,) = wire.json("group", "describe", "g")
    assert (about["lag"], about["readers"]) == (27, [])
    assert about["segments"] == [{"reader": None, "segment": f"{wire.scope}/t/0", "offset": None}]

    async def die(client: PravegaClient) -> None:
        """Leave a reader behind, and a checkpoint that waits for it."""
        async with client.reader_group("g") as group:
            reader = group.reader("dead")
            await reader.__aenter__()
            await reader.read_event()
            # Only the reader's program could answer.
            await group._change(lambda state: [CreateCheckpoint("stuck")])
            reader._left = True
            await reader._end_tasks()

    wire.client(die)
    (about,) = wire.json("group", "describe", "g")
    assert about["readers"] == ["dead"]
    assert {"name": "stuck", "silent": False, "waiting_for": ["dead"]} in about["checkpoints"]
    shown = wire("group", "describe", "g")
    assert "stuck" in shown
    wire("group", "offline", "g", "nobody", "--yes", code=Exit.NOTHING)
    assert "it has: dead" in wire.error
    wire("group", "offline", "g", "dead", "--yes")
    assert wire.json("group", "describe", "g")[0]["readers"] == []
    wire("group", "create", "h", "t", "u", "--from", "tail")
    assert {each["group"]: each["lag"] for each in wire.json("group", "list")}[f"{wire.scope}/h"] == 0
    wire("group", "delete", "g", "h", "--yes")
    wire("group", "delete", "g", "--yes", code=Exit.NOTHING)
    wire("group", "describe", "g", code=Exit.NOTHING)


@pytest.mark.smoke
def test_transactions_and_doctor(wire: Wire) -> None:
    wire("stream", "create", "t")
    assert wire.json("txn", "list", "t") == []

    async def begin(client: PravegaClient) -> UUID:
        transaction = await client.begin_transaction("t", lease=20)
        await transaction.write_event(b"x")
        return transaction.txn_id

    txn = wire.client(begin)
    (row,) = wire.json("txn", "list", "t")
    assert (row["transaction"], row["status"]) == (str(txn), "open")
    assert row["lease_until"] - row["began"] >= 20_000
    assert wire("txn", "status", "t", str(txn)) == "open\n"
    doctor = {each["check"]: each for each in wire.json("doctor")}
    assert doctor["controller"]["state"] == "ok"
    assert doctor[f"transactions of {wire.scope}/t"]["finding"].startswith("1 open, the oldest for ")
    (store,) = [each for check, each in doctor.items() if check.startswith("store ")]
    assert "it speaks wire versions" in store["finding"]
    wire("txn", "abort", "t", str(txn), "--yes")
    ended = wire("txn", "status", "t", str(txn)).strip()
    assert ended in ("aborting", "aborted")
    wire("txn", "status", "t", str(UUID(int=77)), code=Exit.NOTHING)
    wire("txn", "list", "none", code=Exit.NOTHING)
    wire("append", "t", "--transaction", given=b"y\n")
    # The server lists an outcome only some time after it, and may have forgotten it by then.
    outcomes = wire.client(lambda client: client.completed_transactions("t"))
    shown = {each["transaction"]: each["status"] for each in wire.json("txn", "list", "t", "--completed")}
    assert {str(each): status.name.lower() for each, status in outcomes.items()}.items() <= shown.items()
    wire("doctor", "--controller", "tcp://127.0.0.1:1", "--wait", "200ms", code=Exit.FAILED)


def test_the_ledger_of_a_sink(wire: Wire) -> None:
    from spark_adapter.exactly_once.ledger import Done, Prepared, Preparing, encode_record

    wire("stream", "create", "t", "t-spark-ledger")

    async def record(client: PravegaClient) -> UUID:
        transaction = await client.begin_transaction("t", lease=20)
        key: dict[str, Any] = {
            "query": "q", "stream": f"{wire.scope}/t", "session": UUID(int=5), "txn": transaction.txn_id,
        }  # fmt: skip
        cut = (await client.tail("t")).to_text()
        first = {**key, "txn": UUID(int=9)}
        async with client.revisioned_stream("t-spark-ledger") as log:
            for each in (
                Preparing(batch=0, **first),
                Prepared(batch=0, rows=0, cut=cut, contents={}, **first),
                Done(batch=0, **first),
                Preparing(batch=1, **key),
                Prepared(batch=1, rows=0, cut=cut, contents={}, **key),
            ):
                await log.write_unconditionally(encode_record(each))
        return transaction.txn_id

    txn = wire.client(record)
    found = {each["check"]: each for each in wire.json("doctor")}
    ledger = found[f"ledger {wire.scope}/t-spark-ledger"]
    assert ledger["state"] == "warning"
    assert (
        f"batch 0 is done, batch 1 is complete in transaction {txn}: the next run commits it"
        in (ledger["finding"])
    )
    assert wire.client(lambda client: client.transaction_status("t", txn)) is TxnStatus.OPEN


@pytest.mark.smoke
def test_tables(wire: Wire) -> None:
    wire("table", "create", "limits", "--key-length", "8", "--partitions", "2")
    wire("table", "put", "limits", "a", "1")
    wire("table", "put", "limits", "b", "-", given=b"\xff")
    assert wire("table", "get", "limits", "a") == "1\n"
    assert wire("table", "get", "limits", "b", "--values", "hex") == "ff\n"
    (entry,) = wire.json("table", "get", "limits", "a")
    wire("table", "put", "limits", "a", "2", "--version", entry["version"])
    wire("table", "put", "limits", "a", "3", "--version", entry["version"], code=Exit.USAGE)
    assert "has another version" in wire.error
    wire("table", "put", "limits", "a", "3", "--new", code=Exit.USAGE)
    assert "exists already" in wire.error
    assert wire.lines("table", "scan", "limits") == ["a\t2", "b\tbase64:/w=="]
    assert len(wire.json("table", "scan", "limits", "--limit", "1")) == 1
    assert wire("table", "remove", "limits", "a", "c") == "a was removed\nc does not exist\n"
    assert wire.json("table", "remove", "limits", "a") == [{"key": "a", "removed": False}]
    wire("table", "get", "limits", "a", code=Exit.NOTHING)
    (row,) = wire.json("table", "list")
    assert (row["table"], row["partitions"], row["key_length"]) == (f"{wire.scope}/limits", 2, 8)
    wire("table", "create", "pairs", "--key-length", "4", "--secondary-key-length", "8")
    wire("table", "put", "pairs", "k", "v", "--secondary", "7", "--keys", "int", code=Exit.USAGE)
    wire("table", "put", "pairs", "1", "v", "--secondary", "7", "--keys", "int")
    assert wire("table", "get", "pairs", "1", "--secondary", "7", "--keys", "int") == "v\n"
    wire("table", "delete", "limits", "pairs", "--yes")
    wire("table", "delete", "limits", "--yes", code=Exit.NOTHING)


def test_the_last_events(wire: Wire) -> None:
    wire("stream", "create", "t", "--segments", "2")
    for key in ("a", "b"):
        wire("append", "t", "--key", key, given=b"".join(b"%s%d\n" % (key.encode(), n) for n in range(20)))
    assert wire.lines("read", "t", "--last", "100") == wire.lines("read", "t")
    found = wire.lines("read", "t", "--last", "3")
    assert len(found) == 3
    assert found[-1] in ("a19", "b19")
    assert wire.lines("read", "t", "--last", "2", "--to", "head") == []
    wire("stream", "seal", "t", "--yes")
    assert len(wire.lines("read", "t", "--last", "5", "--follow")) == 5


AVRO = AvroSchema(
    {
        "type": "record",
        "name": "Reading",
        "fields": [{"name": "device", "type": "string"}, {"name": "celsius", "type": ["null", "double"]}],
    }
)


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("schema", "field"),
    [
        (AVRO, "celsius"),
        (JsonSchema("reading", {"type": "object"}), "celsius"),
        (ProtobufSchema(pb.ScopeInfo), "scope"),
    ],
    ids=["avro", "json", "protobuf"],
)
def test_events_of_the_schema_registry(
    wire: Wire, pravega_schema_registry: SchemaRegistryServer, schema: EventSchema, field: str
) -> None:
    name = uuid4().hex
    with SchemaRegistry(pravega_schema_registry.uri) as registry:
        registry.create_group(name, GroupProperties())
        registry.add_schema(name, schema)
    words = ("--schema-group", name, "--schema-registry", pravega_schema_registry.uri)
    value: dict[str, Any] = {"scope": "a"} if field == "scope" else {"device": "é", "celsius": 21.5}
    wire("stream", "create", "t")
    wire("append", "t", *words, given=json.dumps(value).encode())
    assert [json.loads(each) for each in wire.lines("read", "t", *words)] == [value]
    (row,) = wire.json("read", "t", *words)
    assert (row["value"], row["offset"], "event" in row) == (value, 0, False)
    assert wire.json("read", "t", "--group", "g", "--limit", "1", *words)[0]["value"] == value
    wire("append", "t", *words, given=b'{"nothing": []}\n' if field == "scope" else b"{", code=Exit.USAGE)
    assert "standard input, line 1: " in wire.error
    assert len(wire.json("read", "t")) == 1
    wire("append", "t", given=b"plain")
    wire("read", "t", *words, code=Exit.USAGE)
    assert f"event {wire.scope}/t/0.#epoch.0:" in wire.error
    wire("read", "t", "--format", "hex", *words, code=Exit.USAGE)
    assert "not with --format hex" in wire.error
    wire("read", "t", *words[2:], "--schema-group", "nowhere", code=Exit.NOTHING)


def test_typed_offsets_are_those_of_events(wire: Wire) -> None:
    wire("stream", "create", "t")
    wire("append", "t", given=b"abc\ndef\nghi\n")
    wire("group", "create", "g", "t")
    for words in (
        ("stream", "truncate", "t", "--to", "0=3", "--yes"),
        ("group", "create", "other", "t", "--from", "0=12"),
        ("group", "reset", "g", "--to", "0=9", "--yes"),
        ("read", "t", "--group", "other", "--from", "0=9"),
        ("read", "t", "--from", "0=12"),
        ("read", "t", "--to", "0=12"),
        ("read", "t", "--from", "0=31", "--follow"),
        ("archive", "create", "t", "archived", "--start", "0=12"),
    ):
        wire(*words, code=Exit.USAGE)
        assert f"no event of stream {wire.scope}/t begins at offset" in wire.error
        assert "; the nearest event begins at " in wire.error
    wire("read", "t", "--from", "0=12", code=Exit.USAGE)
    assert "at offset 12 of segment 0; the nearest event begins at 11 (" in wire.error
    wire("read", "t", "--from", "0=20", code=Exit.USAGE)
    assert "begins at 22 (" in wire.error
    assert [each["group"] for each in wire.json("group", "list")] == [f"{wire.scope}/g"]
    wire("group", "reset", "g", "--to", "0=22", "--yes")
    assert wire("read", "t", "--group", "g", "--limit", "1") == "ghi\n"
    wire("stream", "truncate", "t", "--to", "0=11", "--yes")
    assert wire("read", "t") == "def\nghi\n"
    wire("stream", "truncate", "t", "--to", "0=23", "--yes", "--bytes")
    assert wire.json("cut", "now", "t", "--head")[0]["positions"] == {"0": 23}


def test_a_table_that_is_deleted_while_tables_are_listed(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    wire("table", "create", "a", "--key-length", "8")
    listed = PravegaClient.list_key_value_tables

    async def before(client: PravegaClient, scope: str | None = None) -> Any:
        return [*await listed(client, scope), ScopedStream(wire.scope, "b")]

    monkeypatch.setattr(PravegaClient, "list_key_value_tables", before)
    assert [each["table"] for each in wire.json("table", "list")] == [f"{wire.scope}/a"]


def test_watching_and_drawing(wire: Wire) -> None:
    wire("stream", "create", "t", "--segments", "2")
    wire("append", "t", given=b"x\n" * 10)
    wire("group", "create", "g", "t")
    (once,) = wire.json("top", "t", f"{wire.scope}/t", "--group", "g", "--group", "g", "--count", "1")
    assert [len(once[each]) for each in ("streams", "groups")] == [1, 1]
    first, second = wire.json("top", "--interval", "100ms", "--count", "2")
    assert first["streams"] == [
        {"stream": f"{wire.scope}/t", "segments": 2, "bytes_per_second": None, "error": None}
    ]
    assert second["streams"][0]["bytes_per_second"] == 0
    assert second["groups"][0]["lag"] == 90
    assert wire("top", "none", "-n", "1", "--interval", "1ms").count("does not exist") == 1
    wire("stream", "scale", "t", "3")
    rows = wire.json("heatmap", "t")
    assert [each["last"] for each in rows] == [0, 0, 1, 1, 1]
    assert sum(each["bytes"] for each in rows) == 90
    assert wire.lines("heatmap", "t", "--height", "6")[-1].split() == ["0", "1"]
    wire("heatmap", "t", "-o", "t.svg")
    assert Path("t.svg").read_text().count("<rect") == 5
    wire("heatmap", "t", "-o", "t.png")
    assert Path("t.png").read_bytes().startswith(b"\x89PNG")
    wire("heatmap", "t", "-o", "t.gif", code=Exit.USAGE)


def test_the_shell_completes_names(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    wire("stream", "create", "pressure", "pumps")
    wire("group", "create", "archive", "pumps")
    wire("table", "create", "limits", "--key-length", "8")

    def completed(*words: str) -> list[str]:
        monkeypatch.setenv("COMP_WORDS", " ".join(("pravega-wire", *words)))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        with monkeypatch.context() as patch:
            patch.setenv("_PRAVEGA_WIRE_COMPLETE", "bash_complete")
            with pytest.raises(SystemExit):
                main([])
        return [each.removeprefix("plain,") for each in wire._capfd.readouterr().out.splitlines()]

    assert completed("stream", "describe", "pu") == ["pumps"]
    assert completed("read", f"{wire.scope}/p") == [f"{wire.scope}/pressure", f"{wire.scope}/pumps"]
    assert completed("group", "describe", "a") == ["archive"]
    assert completed("table", "scan", "l") == ["limits"]
    assert f"{wire.scope}/" in completed("append", wire.scope[:6])
    assert completed("read", "--controller", "tcp://127.0.0.1:1", "--operation-timeout", "0.1", "p") in (
        [],
        [""],
    )


# --- what only a process of its own shows -----------------------------------------------------------


def started(wire: Wire, *words: str, **pipes: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "pravega_wire", *words],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(each for each in sys.path if each)},
        # Where the tests run in the background of a shell, it would be ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **pipes},
    )


@pytest.mark.parametrize(("answer", "left"), [(b"n\n", 1), (b"y\n", 0)])
def test_a_question_on_a_terminal(wire: Wire, answer: bytes, left: int) -> None:
    wire("stream", "create", "t")
    ours, theirs = os.openpty()
    asked = started(wire, "stream", "delete", "t", stdin=theirs)
    os.write(ours, answer)
    _, error = asked.communicate(timeout=SECONDS)
    os.close(theirs)
    os.close(ours)
    assert error.startswith(b"Delete stream t and its data? [y/N]: ")
    assert asked.returncode == (Exit.USAGE if left else Exit.DONE)
    assert len(wire.json("stream", "list", "--names")) == left


def test_ingestion_shows_a_bar_on_a_terminal(
    wire: Wire, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.txt").write_text("a\nb\n")
    monkeypatch.setenv("TERM", "xterm")
    ours, theirs = os.openpty()
    words = ("ingest", str(folder), "--stream", f"{wire.scope}/t", "--sync", f"{wire.scope}/s")
    ingesting = started(wire, *words, stderr=theirs)
    os.close(theirs)
    shown = b""
    while True:
        try:
            shown += os.read(ours, 4096)
        except OSError:
            # The other end is closed.
            break
    os.close(ours)
    out, _ = ingesting.communicate(timeout=SECONDS)
    assert (ingesting.returncode, out) == (
        Exit.DONE,
        b"3 of 3 files done, 3 in this run: 6 events, 6 bytes\n",
    )
    assert b"3/3 files 6 events, 6 B" in re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", shown)


def test_following_through_a_scale_until_ctrl_c(wire: Wire) -> None:
    wire("stream", "create", "t", "--segments", "2")
    reader = started(wire, "read", "t", "--follow", "--from", "tail", "--format", "raw")
    assert reader.stdout is not None

    # The reader's tail is somewhere: it shows what is written after it has begun.
    number, found = 0, b""
    os.set_blocking(reader.stdout.fileno(), False)
    while not found:
        wire("append", "t", "--key", "k", given=b"%d\n" % number)
        number += 1
        found = reader.stdout.read() or b""
    os.set_blocking(reader.stdout.fileno(), True)
    wire("stream", "scale", "t", "1", code=Exit.USAGE)
    assert "demands at least 2 segments" in wire.error
    wire("stream", "alter", "t", "--segments", "1")
    wire("stream", "scale", "t", "1")
    wire("append", "t", "--key", "k", given=b"merged\n")
    wire("stream", "scale", "t", "3")
    wire("append", "t", "--key", "k", given=b"split\n")
    for line in iter(reader.stdout.readline, b"split\n"):
        assert line
        found += line
    reader.send_signal(signal.SIGINT)
    out, error = reader.communicate(timeout=SECONDS)
    assert (reader.returncode, out, error) == (Exit.INTERRUPTED, b"", b"interrupted\n")
    numbers = [int(each) for each in found.split()[:-1]]
    assert numbers == list(range(numbers[0], number))
    assert found.endswith(b"merged\n")


def test_a_member_of_a_group_says_that_it_waits_for_a_segment(wire: Wire) -> None:
    wire("stream", "create", "t")
    wire("append", "t", given=b"a\nb\n")

    async def beside(client: PravegaClient) -> bytes:
        await client.create_reader_group("g", ["t"])
        async with client.reader_group("g") as group, group.reader("first") as reader:
            assert await reader.read_event() is not None
            waiting = started(wire, "read", "t", "--group", "g", "--follow")
            assert waiting.stderr is not None
            said = b""
            with trio.move_on_after(SECONDS):
                said = await trio.to_thread.run_sync(waiting.stderr.readline, abandon_on_cancel=True)
            waiting.send_signal(signal.SIGINT)
            assert await trio.to_thread.run_sync(waiting.wait) == Exit.INTERRUPTED
            return said

    assert wire.client(beside).startswith(
        f"this reader waits for a segment of reader group {wire.scope}/g; the group's other readers: first "
        "(remove one that has died with: ".encode()
    )


def test_ctrl_c_while_input_is_awaited(wire: Wire) -> None:
    wire("stream", "create", "t")
    writer = started(wire, "append", "t", stdin=subprocess.PIPE)
    assert writer.stdin is not None
    writer.stdin.write(b"typed\n")
    writer.stdin.flush()
    while wire("read", "t") != "typed\n":
        pass
    writer.send_signal(signal.SIGINT)
    assert writer.wait(timeout=SECONDS) == Exit.INTERRUPTED
    out, error = writer.communicate(timeout=SECONDS)
    assert (out, error) == (b"", b"interrupted\n")


def test_what_is_terminated_leaves_nothing_behind(wire: Wire) -> None:
    wire("stream", "create", "t")
    wire("append", "t", given=b"one\ntwo\n")
    reader = started(wire, "read", "t", "--group", "g", "--follow")
    assert reader.stdout is not None
    assert reader.stdout.readline() == b"one\n"
    assert reader.stdout.readline() == b"two\n"
    writer = started(wire, "append", "t", "--transaction", stdin=subprocess.PIPE)
    while not wire.json("txn", "list", "t"):
        pass
    # Under nohup the command ignores the hangup, as it should.
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    endings = {reader: signal.SIGTERM, writer: signal.SIGTERM if ignored else signal.SIGHUP}
    for each, ending in endings.items():
        each.send_signal(ending)
    for each, ending in endings.items():
        out, error = each.communicate(timeout=SECONDS)
        assert (each.returncode, out) == (128 + ending, b"")
        assert error.endswith(b"terminated\n")
    assert wire.json("group", "describe", "g")[0]["readers"] == []
    assert wire("read", "t", "--group", "g", "--idle", "1ms") == ""
    assert wire.json("txn", "list", "t") == []


def test_a_reader_without_segments_says_who_has_them(wire: Wire) -> None:
    wire("stream", "create", "t")
    wire("append", "t", given=b"one\n")
    dead = started(wire, "read", "t", "--group", "g", "--reader", "dead", "--follow")
    assert dead.stdout is not None
    assert dead.stdout.readline() == b"one\n"
    dead.kill()
    dead.communicate(timeout=SECONDS)
    wire("append", "t", given=b"two\n")
    assert wire("read", "t", "--group", "g", "--idle", "1s") == ""
    assert f"given no segment of reader group {wire.scope}/g; the group's other readers: dead" in wire.error
    wire("group", "offline", "g", "dead", "--yes")
    assert wire.lines("read", "t", "--group", "g", "--idle", "1s")[-1] == "two"
    assert wire.error == ""


def test_a_sealed_stream_ends_following(wire: Wire) -> None:
    wire("stream", "create", "t")
    wire("append", "t", given=b"a\nb\n")
    wire("stream", "scale", "t", "2")
    wire("stream", "seal", "t", "--yes")
    assert wire.lines("read", "t", "--follow") == ["a", "b"]


@pytest.mark.smoke
def test_mistakes_say_what_to_do_and_leave_nothing_behind(wire: Wire) -> None:
    wire("stream", "create", "t")
    wire("append", "t", given=b"one\ntwo\n")
    wire("group", "create", "g", "t", "nowhere", code=Exit.NOTHING)
    wire("read", "t", "--group", "g", "--reader", "a reader", code=Exit.USAGE)
    assert "the reader name 'a reader' has illegal characters" in wire.error
    wire("txn", "list", "nowhere", "--completed", code=Exit.NOTHING)
    wire("read", "nowhere", "--group", "g", code=Exit.NOTHING)
    assert wire.error == f"error: stream {wire.scope}/nowhere does not exist\n"
    assert wire.json("group", "list") == []
    wire("read", "t", "--from", "0=3", code=Exit.USAGE)
    assert "no event of stream" in wire.error
    assert "begins at offset 3 of segment 0; the nearest event begins at 0" in wire.error
    wire("txn", "abort", "t", str(UUID(int=1)), "--yes", code=Exit.NOTHING)
    wire("scope", "delete", wire.scope, "--yes", code=Exit.USAGE)
    assert wire.error == (
        f"error: scope {wire.scope} is not empty: it has stream t: delete them first, or add --recursive\n"
    )
    (found,) = (
        each for each in wire.json("doctor", "nowhere", code=Exit.FAILED) if each["state"] == "problem"
    )
    assert found["finding"] == f"stream {wire.scope}/nowhere does not exist"


def test_nobody_reads_the_events_any_more(wire: Wire) -> None:
    wire("stream", "create", "t")
    wire("append", "t", given=b"".join(b"%d\n" % each for each in range(100_000)))
    reader = started(wire, "read", "t", "--follow")
    assert reader.stdout is not None
    assert reader.stderr is not None
    assert reader.stdout.readline() == b"0\n"
    reader.stdout.close()
    assert reader.wait(timeout=SECONDS) == Exit.DONE
    assert reader.stderr.read() == b""
    reader.stderr.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("form", ["raw", "json", "arrow"])
def test_a_full_disk_is_named(wire: Wire, form: str) -> None:
    wire("stream", "create", "t")
    wire("append", "t", given=b"event\n")
    wire("read", "t", "--format", form, "--output", "/dev/full", code=Exit.USAGE)
    (error,) = wire.error.splitlines()
    assert error.startswith("error: /dev/full: ")
    assert "No space left on device" in error


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_what_a_full_disk_has_not_taken_from_a_group(wire: Wire) -> None:
    wire("stream", "create", "t")
    events = [each.hex() for each in map(random.Random(1).randbytes, [30] * 200)]
    wire("append", "t", given="\n".join(events).encode())
    wire("read", "t", "--group", "text", "--output", "/dev/full", code=Exit.USAGE)
    assert wire.lines("read", "t", "--group", "text") == events
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, limits[1]))
    try:
        wire("read", "t", "--group", "rows", "--output", "events.parquet", code=Exit.USAGE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "error: events.parquet: " in wire.error
    (reset,) = (each for each in wire.error.splitlines() if "pravega-wire group reset" in each)
    wire(*reset.partition(": pravega-wire ")[2].split(), "--yes")
    assert wire.lines("read", "t", "--group", "rows") == events


def test_nobody_reads_what_was_done(wire: Wire) -> None:
    wire("stream", "create", "a", "b", "c", "kept")
    reading, writing = os.pipe()
    os.close(reading)
    deleting = started(wire, "stream", "delete", "a", "b", "c", "--yes", stdout=writing)
    os.close(writing)
    _, error = deleting.communicate(timeout=SECONDS)
    assert (deleting.returncode, error) == (Exit.DONE, b"")
    assert [each["stream"] for each in wire.json("stream", "list", "--names")] == [f"{wire.scope}/kept"]


@pytest.mark.smoke
def test_archives(wire: Wire, tmp_path: Path) -> None:
    wire("stream", "create", "source", "--segments", "2")
    wire("append", "source", given=b"".join(b"line %d\n" % number for number in range(50)))
    folder = tmp_path / "kept"
    (made,) = wire.json("archive", "create", "source", str(folder), "--part-size", "64KiB")
    assert made == {"directory": str(folder), "stream": f"{wire.scope}/source", "events": 50}
    assert wire("archive", "verify", str(folder), "--compare").endswith("have the same 50 events\n")
    wire("archive", "restore", str(folder), "again")
    lines = wire.lines("read", "again")
    assert sorted(lines) == sorted(wire.lines("read", "source"))
    assert len(lines) == 50
    next(folder.rglob("*.parquet")).unlink()
    wire("archive", "verify", str(folder), code=Exit.USAGE)
    assert "error: " in wire.error
    assert ".parquet" in wire.error
    wire("archive", "create", "nothing-there", str(tmp_path / "other"), code=Exit.NOTHING)


def test_an_archive_between_positions(wire: Wire, tmp_path: Path) -> None:
    wire("stream", "create", "t")
    wire("append", "t", given=b"a\nb\n")
    Path("middle.cut").write_text(wire("cut", "now", "t"))
    wire("append", "t", given=b"c\n")
    later = ("archive", "create", "t", str(tmp_path / "later"), "--start", "@middle.cut", "--end", "tail")
    assert wire.json(*later)[0]["events"] == 1
    wire("append", "t", given=b"d\n")
    assert wire.json(*later)[0]["events"] == 1
    wire(*later[:4], "--start", "0=0", code=Exit.USAGE)
    assert "with another start" in wire.error
    earlier = ("archive", "create", "t", str(tmp_path / "earlier"), "--start", "head", "--end", "0=9")
    assert wire.json(*earlier)[0]["events"] == 1
