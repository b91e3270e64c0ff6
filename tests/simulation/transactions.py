"""Transactions that are committed, aborted, left to their lease, and resumed by other processes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from random import Random
from typing import ClassVar
from uuid import UUID

import trio

from pravega_wire.controller.types import TxnStatus
from pravega_wire.errors import TransactionAbortedError, TransactionError, TransactionNotOpenError
from pravega_wire.stream.client import PravegaClient
from pravega_wire.stream.transaction import Transaction
from tests.simulation.events import Followers, limited_to, maybe_scale
from tests.simulation.machine import Failure
from tests.simulation.world import Process, Workload, World

STREAM = "events"
_LEASE = 30.0
_SHORT_LEASE = 10.0


@dataclass
class Written:
    """A transaction, as far as its writers know it.

    :ivar keys: what was written, by key in order; each key is that of one process.
    :ivar unsure: those whose call has not returned.
    :ivar stored: those that are known to be stored, or None if nobody else ends the transaction: then all are
        that a commit has waited for.
    :ivar committing: whether a commit was asked for.
    :ivar outcome: what the client has said: "committed", "aborted", or nothing.
    """

    keys: dict[str, list[bytes]] = field(default_factory=dict)
    unsure: set[bytes] = field(default_factory=set)
    stored: set[bytes] | None = None
    committing: bool = False
    outcome: str = ""


class Transactions(Workload):
    """Processes with transactions on one stream."""

    name: ClassVar[str] = "transactions"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.written: dict[UUID, Written] = {}
        self.left: list[UUID] = []
        # Whether several processes use a transaction at once; its own source of chance, so that it changes
        # nothing where they do not.
        self.sharing = Random(f"{world.settings.seed} {world.settings.workload} sharing")
        self.shares = self.sharing.random() < 0.3
        self.lease = self.sharing.choice((10.0, 30.0, 600.0)) if self.shares else _LEASE
        self.time = count(1)
        self.followers = Followers(self, STREAM, self.seen)

    async def prepare(self, client: PravegaClient) -> None:
        await client.create_stream(STREAM, self.random.randint(1, 3))

    async def work(self) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(max(self.random.randint(1, 3), 2 * self.shares)):
                nursery.start_soon(self.keep_alive, "writer", self.write)
            nursery.start_soon(self.followers.run)
            maybe_scale(self, nursery, STREAM)

    async def write(self, process: Process) -> None:
        world, rng = self.world, process.random
        async with process.client() as client:
            for _ in range(rng.randint(1, 40)):
                if world.quiet:
                    return
                await trio.sleep(10 * world.pause(rng) * rng.random())
                # A transaction that was left may have ended with its lease.
                with world.bearing(), suppress(TransactionError):
                    if self.left and rng.random() < (0.6 if self.shares else 0.3):
                        txn_id = self.left.pop(rng.randrange(len(self.left)))
                        if self.written[txn_id].stored is not None and self.sharing.random() < 0.7:
                            self.left.append(txn_id)
                        async with client.resume_transaction(STREAM, txn_id, lease=self.lease) as txn:
                            await self.use(process, client, txn)
                    else:
                        async with client.begin_transaction(STREAM, lease=self.lease) as txn:
                            self.written[txn.txn_id] = Written()
                            if self.shares and self.sharing.random() < 0.6:
                                self.written[txn.txn_id].stored = set()
                                self.left.append(txn.txn_id)
                            await self.use(process, client, txn)

    async def use(self, process: Process, client: PravegaClient, txn: Transaction[bytes]) -> None:
        """Write into a transaction, and end it in one of several ways."""
        rng = process.random
        written = self.written[txn.txn_id]
        if written.stored is not None:
            # Nobody knows the order of what two processes write with one key.
            keys = [f"{process.name}:{next(self.numbers)}"]
            written.keys[keys[0]] = []
        elif not written.keys:
            written.keys = {f"k{number}": [] for number in range(rng.randint(1, 4))}
        if written.stored is None:
            keys = list(written.keys)
        pause = self.world.pause(rng)
        for _ in range(rng.randint(0, 12)):
            await trio.sleep(pause * rng.random())
            await process.attempt(partial(self.one_call, process, txn, written, keys))
        ending = rng.randrange(10)
        try:
            if ending < 6:
                written.committing = True
                await process.attempt(partial(self.commit, process, txn, written, keys))
            elif ending < 8:
                async with limited_to(process, "abort"):
                    await txn.abort()
                self.told(txn.txn_id, "aborted")
            elif ending == 8:
                await txn.flush()
                self.are_stored(written, keys)
                await txn.aclose()
                self.left.append(txn.txn_id)
        except TransactionError as error:
            if isinstance(error, TransactionAbortedError):
                self.told(txn.txn_id, "aborted")
            elif written.stored is None and isinstance(error, TransactionNotOpenError) and error.status:
                raise Failure(f"nobody else has ended the transaction, but {error}") from error
            status = await client.transaction_status(STREAM, txn.txn_id)
            if status is TxnStatus.ABORTED:
                self.told(txn.txn_id, "aborted")
            raise

    async def one_call(
        self, process: Process, txn: Transaction[bytes], written: Written, keys: list[str]
    ) -> None:
        rng = process.random
        many = [rng.choice(keys) for _ in range(rng.choice((1, 1, 5)))]
        events = []
        for key in many:
            event = b"%s|%s|%d|%s" % (
                txn.txn_id.hex.encode(), key.encode(), len(written.keys[key]), b"x" * rng.randint(0, 2000),
            )  # fmt: skip
            written.keys[key].append(event)
            events.append(event)
        written.unsure.update(events)
        if len(many) == 1:
            ack = await txn.write_event(events[0], many[0])
        else:
            ack = await txn.write_events(events, many)
        written.unsure.difference_update(events)
        if rng.random() < 0.3:
            await ack.wait()
            if written.stored is not None:
                written.stored.update(events)

    @staticmethod
    def are_stored(written: Written, keys: list[str]) -> None:
        """What was written with these keys is in the transaction."""
        if written.stored is not None:
            for key in keys:
                written.stored.update(each for each in written.keys[key] if each not in written.unsure)

    async def commit(
        self, process: Process, txn: Transaction[bytes], written: Written, keys: list[str]
    ) -> None:
        async with limited_to(process, "commit", 3 * process.operation_timeout):
            await txn.commit(next(self.time) if self.shares else None)
        self.are_stored(written, keys)
        self.told(txn.txn_id, "committed")
        if process.random.random() < 0.5:
            async with limited_to(process, "wait_committed"):
                await txn.wait_committed()
            if left := [each for each in self.world.cluster.store.segments if txn.txn_id.hex in each]:
                raise Failure(f"transaction {txn.txn_id} is said to be visible, and there are {left}")

    def told(self, txn_id: UUID, outcome: str) -> None:
        written = self.written[txn_id]
        if written.outcome not in ("", outcome):
            raise Failure(
                f"transaction {txn_id} is said to be {outcome}, and was said to be {written.outcome}"
            )
        written.outcome = outcome

    def seen(self, event: bytes) -> None:
        """An event is read: its transaction was to be committed by then, and has not ended otherwise."""
        written = self.written[UUID(event[:32].decode())]
        if not written.committing or written.outcome == "aborted":
            state = written.outcome or "open"
            self.world.problem(f"a follower read {event[:40].decode()} of a transaction that is {state}")

    async def hold(self, client: PravegaClient) -> None:
        """A transaction lasts as long as its block: its lease does not end it before, nor after."""
        async with client.begin_transaction(STREAM, lease=_SHORT_LEASE) as txn:
            await trio.sleep(3 * _SHORT_LEASE)
            if (status := await txn.status()) is not TxnStatus.OPEN:
                raise Failure(f"a transaction is {status.name} while its process uses it")
        if (status := await txn.status()) not in (TxnStatus.ABORTING, TxnStatus.ABORTED):
            raise Failure(f"a transaction is {status.name} after its block")

    async def check(self, client: PravegaClient) -> None:
        await self.hold(client)
        # Leases end what was left, and what was asked for is carried out.
        await trio.sleep(3 * self.lease + 20)
        left = await client.open_transactions(STREAM)
        if left:
            raise Failure(f"transactions are open for ever: {left}")
        found: dict[str, list[bytes]] = {}
        for event in await self.followers.finish(client):
            found.setdefault(event[:32].decode(), []).append(event)
        for txn_id, written in self.written.items():
            events = found.pop(txn_id.hex, [])
            if events and written.outcome == "aborted":
                raise Failure(f"transaction {txn_id} was aborted, and {len(events)} events are visible")
            if events and not written.committing:
                raise Failure(f"nobody has committed transaction {txn_id}, and its events are visible")
            if not events and written.outcome != "committed":
                continue
            for key, accepted in written.keys.items():
                mine = [each for each in events if each.split(b"|")[1] == key.encode()]
                unsure = written.unsure
                if written.stored is not None:
                    unsure = {*accepted} - written.stored
                expected = [each for each in accepted if each not in unsure or each in mine]
                if mine != expected:
                    raise Failure(
                        f"transaction {txn_id}, key {key}: {len(mine)} events are visible, "
                        f"{len(expected)} were written ({written.outcome or 'outcome unknown'})"
                    )
        if found:
            raise Failure(f"events of transactions that nobody has begun: {list(found)}")
        segments = [name for name in self.world.cluster.store.segments if "#transaction" in name]
        if segments:
            raise Failure(f"segments of transactions are left: {segments}")
