"""Transactions while everything around them fails, by processes that are killed, and a check of the outcome.

``python -m tests.faults.transaction_soak URI SCOPE STREAM NAME SECONDS JOURNAL`` is one of the processes: one
transaction after the other, half of them committed and half aborted, through a proxy that cuts connections.
What it has done is in its journal, a line for each step; a process that finds one goes on where it ends: it
resumes the open transaction by its id where it is known what is in it, and aborts it by its id where it is
not. :func:`verify` compares the journals with what is stored.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import UUID

import trio

from pravega_wire import PravegaClient, PravegaConfig, Transaction, TxnStatus, open_client
from pravega_wire.errors import (
    PravegaTimeoutError,
    RetriesExhaustedError,
    TransactionAbortedError,
    TransactionUnknownError,
)
from pravega_wire.testing import FaultProxy

KEYS = 6
ENDS = ("committed", "aborted", "stuck")
HALF = 40
"""Events of one half of a transaction; it is flushed after each."""


class Journal:
    """Steps as lines ``number id step``: begun, half, second, full, and the end: committed, aborted or stuck.

    A transaction is stuck when the server has taken its commit and never carries it out. A 0.13.0 controller
    that is killed in the middle of a commit leaves it so; neither another commit nor an abort helps.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def note(self, number: int, txn_id: UUID, step: str) -> None:
        """A step is done. It survives the process, not the machine."""
        with self._path.open("a") as file:
            file.write(f"{number} {txn_id} {step}\n")
        self.lines.append([str(number), str(txn_id), step])

    def ended(self, how: str) -> list[int]:
        """Numbers of the transactions that ended like this."""
        return [int(number) for number, _, step in self.lines if step == how]

    def last(self) -> tuple[int, UUID, str] | None:
        """The last step."""
        if not self.lines:
            return None
        number, txn_id, step = self.lines[-1]
        return int(number), UUID(txn_id), step


def events(name: str, number: int, half: int) -> list[tuple[bytes, str]]:
    """Events of one half of a transaction."""
    return [
        (b"%s:%d:%d" % (key.encode(), number, index), key)
        for index in range(half * HALF, (half + 1) * HALF)
        for key in [f"{name}-{index % KEYS}"]
    ]


class Worker:
    """One process's work. Odd transactions are committed, even ones are aborted."""

    def __init__(self, client: PravegaClient, stream: str, name: str, journal: Journal) -> None:
        self.client = client
        self.stream = stream
        self.name = name
        self.journal = journal
        self.chance = random.Random(f"{name} {len(journal.lines)}")

    async def run(self, seconds: float) -> None:
        """Transactions until the time is up; first the one that the journal ends with."""
        end = trio.current_time() + seconds
        last = self.journal.last()
        number = 1
        if last is not None:
            number, txn_id, step = last
            if step not in ENDS:
                await self.go_on(number, txn_id, step)
            number += 1
        while trio.current_time() < end:
            await self.transaction(number)
            number += 1

    async def transaction(self, number: int) -> None:
        """One transaction. Where a dead controller has taken it along, the next number takes its place."""
        txn = await self.client.begin_transaction(self.stream)
        self.journal.note(number, txn.txn_id, "begun")
        try:
            await self.write(txn, number, 0)
            self.journal.note(number, txn.txn_id, "half")
            if self.chance.random() < 0.15:
                os.kill(os.getpid(), signal.SIGKILL)
            await self.second_half(txn, number)
        except TransactionAbortedError:
            await self.gone(number, txn.txn_id)

    async def second_half(self, txn: Transaction, number: int) -> None:
        self.journal.note(number, txn.txn_id, "second")
        await self.write(txn, number, 1)
        self.journal.note(number, txn.txn_id, "full")
        await self.end(txn, number)

    async def write(self, txn: Transaction, number: int, half: int) -> None:
        for event, key in events(self.name, number, half):
            await txn.write_event(event, key)
        await txn.flush()

    async def end(self, txn: Transaction, number: int) -> None:
        if number % 2:
            await txn.commit()
            await self.see_committed(number, txn.txn_id)
        else:
            await txn.abort()
            self.journal.note(number, txn.txn_id, "aborted")

    async def see_committed(self, number: int, txn_id: UUID) -> None:
        try:
            await self.client.wait_committed(self.stream, txn_id)
        except PravegaTimeoutError:
            self.journal.note(number, txn_id, "stuck")
            return
        # Asking again is harmless.
        await self.client.commit_transaction(self.stream, txn_id)
        self.journal.note(number, txn_id, "committed")

    async def go_on(self, number: int, txn_id: UUID, step: str) -> None:
        """Take over what another process has left open."""
        status = await self.client.transaction_status(self.stream, txn_id)
        if status in (TxnStatus.COMMITTING, TxnStatus.COMMITTED):
            # Killed between the commit and its line in the journal.
            assert (step, number % 2) == ("full", 1), (step, number, status)
            await self.see_committed(number, txn_id)
            return
        if status is not TxnStatus.OPEN:
            await self.gone(number, txn_id)
            return
        try:
            if step in ("half", "full"):
                txn = await self.client.resume_transaction(self.stream, txn_id)
                if step == "half":
                    await self.second_half(txn, number)
                else:
                    await self.end(txn, number)
            else:
                # Nobody knows which events of the half are in it.
                await self.client.abort_transaction(self.stream, txn_id)
                self.journal.note(number, txn_id, "aborted")
        except TransactionAbortedError:
            await self.gone(number, txn_id)

    async def gone(self, number: int, txn_id: UUID) -> None:
        """The server has aborted it: a controller that dies takes its open transactions along."""
        try:
            await self.client.abort_transaction(self.stream, txn_id)
        except TransactionUnknownError:
            # Aborted and forgotten.
            status = await self.client.transaction_status(self.stream, txn_id)
            assert status is TxnStatus.UNKNOWN
        self.journal.note(number, txn_id, "aborted")


async def first_contact(client: PravegaClient, stream: str) -> None:
    """Wait for a controller: a client that has never reached one gives up after some seconds."""
    with trio.fail_after(120):
        while True:
            try:
                await client.active_segments(stream)
            except RetriesExhaustedError:
                continue
            return


async def work(uri: str, scope: str, stream: str, name: str, seconds: float, journal: Path) -> None:
    """What one process does."""
    config = PravegaConfig.from_defaults(controller_uri=uri, scope=scope, env={})
    chance = random.Random(name)
    with FaultProxy() as proxy:
        async with (
            open_client(config, address_map=proxy.address_map) as client,
            trio.open_nursery() as nursery,
        ):

            async def cut() -> None:
                while True:
                    await trio.sleep(chance.uniform(0.2, 2.0))
                    proxy.cut_all()

            nursery.start_soon(cut)
            await first_contact(client, stream)
            await Worker(client, stream, name, Journal(journal)).run(seconds)
            nursery.cancel_scope.cancel()


async def verify(client: PravegaClient, stream: str, journals: Mapping[str, Journal]) -> int:
    """Check that the events of committed transactions are stored once, in order per key, and no others.

    :returns: the number of committed transactions.
    """
    found: dict[str, list[tuple[int, int]]] = {}
    async for batch in client.read_events(stream):
        for event in batch:
            key, number, index = event.decode().split(":")
            found.setdefault(key, []).append((int(number), int(index)))
    committed = 0
    for name, journal in journals.items():
        numbers = journal.ended("committed")
        committed += len(numbers)
        stuck = set(journal.ended("stuck"))
        visible = {
            number
            for residue in range(KEYS)
            for number, _ in found.get(f"{name}-{residue}", ())
            if number in stuck
        }
        for residue in range(KEYS):
            indexes = range(residue, 2 * HALF, KEYS)
            due = [(each, index) for each in numbers for index in indexes]
            everything = found.pop(f"{name}-{residue}", [])
            got = [each for each in everything if each[0] not in stuck]
            # Carried out late after all, a commit is whole.
            late = [each for each in everything if each[0] in stuck]
            if sorted(late) != [(each, index) for each in sorted(visible) for index in indexes]:
                raise AssertionError(f"key {name}-{residue}: parts of stuck transactions {late[:5]}")
            if got != due:
                raise AssertionError(f"key {name}-{residue}: {_difference(got, due)}")
    if found:
        raise AssertionError(f"keys that nobody has written: {sorted(found)}")
    return committed


def _difference(got: Sequence[tuple[int, int]], expected: Sequence[tuple[int, int]]) -> str:
    missing, more = sorted(set(expected) - set(got)), sorted(set(got) - set(expected))
    return f"missing {missing[:5]}, of no committed one {more[:5]}, {len(got)} instead of {len(expected)}"


if __name__ == "__main__":
    _, uri, scope, stream, name, seconds, journal = sys.argv
    trio.run(work, uri, scope, stream, name, float(seconds), Path(journal))
