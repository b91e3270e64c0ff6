"""What the doctor says about ledgers."""

from __future__ import annotations

import tomllib
from collections.abc import AsyncIterator
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from pravega_wire import ScopedStream
from pravega_wire.errors import TransactionError
from spark_adapter.exactly_once import doctor
from spark_adapter.exactly_once.ledger import (
    Done,
    Prepared,
    Preparing,
    Record,
    TxnOutcome,
    encode_record,
)
from spark_adapter.options.streams import LEDGER_SUFFIX

LEDGER = ScopedStream("s", "t-spark-ledger")
OF: dict[str, Any] = {"query": "q", "stream": "s/t", "session": UUID(int=5), "txn": UUID(int=9)}
DONE: tuple[Record, ...] = (
    Preparing(batch=3, **OF),
    Prepared(batch=3, rows=1, cut="", contents={}, **OF),
    Done(batch=3, rows=1, **OF),
)
NEXT: dict[str, Any] = {**OF, "txn": UUID(int=10)}
CLAIM = Preparing(batch=4, **NEXT)
PREPARED = Prepared(batch=4, rows=1, cut="", contents={}, **NEXT)


class Log:
    """A ledger with some events."""

    def __init__(self, events: list[bytes]) -> None:
        self.events = events

    async def __aenter__(self) -> Log:
        return self

    async def __aexit__(self, *error: object) -> None: ...

    async def oldest_revision(self) -> int:
        return 0

    async def read_from(self, revision: int) -> Log:
        return self

    async def __aiter__(self) -> AsyncIterator[tuple[int, bytes]]:
        for number, each in enumerate(self.events):
            yield number, each


async def examined(events: list[bytes], status: str | None = None) -> list[tuple[str, str]]:
    async def transaction_status(stream: str, txn: UUID) -> SimpleNamespace:
        assert (stream, txn) == ("s/t", NEXT["txn"])
        if status is None:
            raise TransactionError("no answer")
        return SimpleNamespace(name=status)

    client: Any = SimpleNamespace(
        revisioned_stream=lambda ledger: Log(events), transaction_status=transaction_status
    )
    return [each async for each in doctor.examine(client, LEDGER)]


@pytest.mark.parametrize(
    ("records", "status", "verdict", "text"),
    [
        ((), None, "ok", "it has no records"),
        (DONE, None, "ok", "batch 3 is done, none is being written"),
        ((CLAIM,), None, "ok", "no batch is done, batch 4 is being written"),
        ((*DONE, CLAIM), None, "ok", "the next run writes it again"),
        ((*DONE, CLAIM, PREPARED), "OPEN", "warning", "the next run commits it"),
        ((*DONE, CLAIM, PREPARED), "COMMITTING", "ok", "only waits"),
        ((*DONE, CLAIM, PREPARED), "ABORTED", "warning", "writes the batch again"),
        ((*DONE, CLAIM, PREPARED), "UNKNOWN", "warning", "by what the stream contains"),
        ((*DONE, CLAIM, PREPARED), "NEW", "problem", "unknown transaction status 'NEW'"),
        ((*DONE, CLAIM, PREPARED), None, "problem", "no answer"),
    ],
)
async def test_what_a_sink_does_next(
    records: tuple[Record, ...], status: str | None, verdict: str, text: str
) -> None:
    ((found, said),) = await examined([encode_record(each) for each in records], status)
    assert found == verdict
    assert text in said


async def test_each_sink_has_a_verdict() -> None:
    other = Preparing(batch=0, **{**OF, "query": "r"})
    found = await examined([encode_record(each) for each in (*DONE, other)])
    assert [verdict for verdict, _ in found] == ["ok", "ok"]
    assert "none is being written" in found[0][1]
    assert "batch 0 is being written" in found[1][1]


async def test_a_sink_whose_transaction_cannot_be_asked_for_hides_no_other() -> None:
    other = Preparing(batch=0, **{**OF, "query": "r"})
    first, second = await examined([encode_record(each) for each in (*DONE, CLAIM, PREPARED, other)])
    assert first[0] == "problem"
    assert first[1].startswith("query 'q'")
    assert first[1].endswith("no answer")
    assert second[0] == "ok"
    assert "batch 0 is being written" in second[1]


async def test_what_is_no_ledger_is_a_problem() -> None:
    ((verdict, text),) = await examined([b"no record"])
    assert verdict == "problem"
    assert "not a ledger record" in text


def test_every_decision_has_a_text() -> None:
    assert {*TxnOutcome} == {*doctor._OUTCOMES}


def test_the_command_finds_it() -> None:
    project = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())["project"]
    group = "pravega_wire.doctor"
    ((name, value),) = project["entry-points"][group].items()
    assert name == LEDGER_SUFFIX
    assert EntryPoint(name, value, group).load() is doctor.examine
