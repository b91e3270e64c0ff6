"""What was recorded of the real server is sent to the store in memory, which answers and keeps the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from pravega_wire.protocol import codec
from pravega_wire.protocol import commands as c
from pravega_wire.protocol.frames import FrameDecoder
from tests.comparing import Memory, comparable

GOLDEN = Path(__file__).parent.parent / "golden"
SEGMENT = "three/dissected/0.#epoch.0"
TRANSACTION = f"{SEGMENT}#transaction.{3:032x}"
TABLE = "three/table_kvtable/0.#epoch.0"


def lines(name: str) -> list[Any]:
    return [json.loads(line) for line in (GOLDEN / name).read_text().splitlines()]


def test_an_exchange_of_many_commands() -> None:
    """The test does what the controller did."""
    memory = Memory()
    store = memory.store
    for name in (
        SEGMENT, TRANSACTION, "three/dissected/1.#epoch.1", "three/dissected/2.#epoch.1",
        "three/state/0.#epoch.0",
    ):  # fmt: skip
        store.create(name)
    store.create_table(TABLE, 8)
    meanwhile: dict[int, Callable[[], object]] = {
        15: lambda: store.merge(store.segment(SEGMENT), store.segment(TRANSACTION)),
        21: lambda: store.seal(store.segment(SEGMENT)),
    }
    expected: list[c.Command | None] = []
    recorded: list[c.Command | None] = []
    decoder = FrameDecoder(), FrameDecoder()
    for number, (connection, sender, frames) in enumerate(lines("dissect-exchange.jsonl")):
        meanwhile.get(number, lambda: None)()
        if sender == "C":
            expected += memory.answers(bytes.fromhex(frames))
        else:
            recorded += decoder[connection - 1].feed(bytes.fromhex(frames))
    assert len(recorded) == 34
    assert comparable(recorded) == comparable(expected)


def is_whole(step: dict[str, Any]) -> bool:
    return len(step.get("wire_hex", "")) == 2 * int(step["bytes_flushed"])


SCENARIOS = [
    (name, list(steps)) for name, steps in groupby(lines("append-trace.jsonl"), lambda step: step["scenario"])
]


@pytest.mark.parametrize("name", [name for name, steps in SCENARIOS if all(map(is_whole, steps))])
def test_what_the_java_encoder_sent_is_stored_as_the_java_server_saw_it(name: str) -> None:
    memory = Memory()
    seen: dict[str, list[dict[str, Any]]] = {}
    for step in dict(SCENARIOS)[name]:
        frames = bytes.fromhex(step.get("wire_hex", ""))
        for command in FrameDecoder().feed(frames):
            if isinstance(command, c.SetupAppend):
                memory.store.create(command.segment)
        assert None not in memory.answers(frames)
        for frame in step["frames"]:
            if "server_sees_append" in frame:
                found = frame["server_sees_append"]
                seen.setdefault(found["segment"], []).append(found)
    assert seen
    for segment, appends in seen.items():
        data, at = bytes(memory.store.segment(segment).data), 0
        for each in appends:
            stored = data[at : at + each["dataLength"]]
            assert hashlib.sha256(stored).hexdigest() == each["dataSha256"]
            at += len(stored)
        assert at == len(data)
        writer = UUID(appends[-1]["writerId"])
        assert memory.answers(codec.encode(c.SetupAppend(1, writer, segment, ""))) == [
            c.AppendSetup(1, segment, writer, appends[-1]["eventNumber"])
        ]


def test_most_of_the_trace_is_replayed() -> None:
    assert sum(all(map(is_whole, steps)) for _, steps in SCENARIOS) >= 6
