"""A stream against a model: writers, transactions, scaling, truncation, broken connections at random.

Each example is a stream of its own on the real server, and some 25 random acts; Hypothesis finds the shortest
series of acts that fails. Acts run one after the other, but what they set off does not: writers' events are
under way while the stream is scaled, transactions commit while somebody reads.

For a long run set ``PRAVEGA_MODEL_EXAMPLES`` (number of streams, 20 otherwise) and ``PRAVEGA_MODEL_STEPS``
(acts on each at most, 25 otherwise)::

    PRAVEGA_MODEL_EXAMPLES=1000 PRAVEGA_MODEL_STEPS=60 python -m pytest tests/integration/test_stream_model.py

A failure prints a blob for ``@reproduce_failure``. The server's part is not repeatable, so an example may be
found to be flaky; what it says about the first failure is no less true.
"""

from __future__ import annotations

import math
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ParamSpec, TypeVar
from uuid import UUID, uuid4

import pyarrow as pa
import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from pravega_wire import (
    Ack,
    EventWriter,
    PravegaClient,
    PravegaConfig,
    StreamCut,
    Transaction,
    TxnStatus,
    open_client,
)
from pravega_wire.errors import (
    ClosedError,
    DataLossError,
    PravegaError,
    ScaleConflictError,
    StreamSealedError,
    TransactionAbortedError,
    TransactionNotOpenError,
)
from pravega_wire.protocol import commands as c
from pravega_wire.testing import FaultProxy, PravegaServer
from pravega_wire.threads.portal import Held, Portal
from tests.integration.stream_model import Event, Fate, StreamModel

P = ParamSpec("P")
R = TypeVar("R")
_Call = tuple[Callable[..., Awaitable[Any]], tuple[Any, ...]]

EXAMPLES = int(os.environ.get("PRAVEGA_MODEL_EXAMPLES", "20"))
STEPS = int(os.environ.get("PRAVEGA_MODEL_STEPS", "25"))
MANY = EXAMPLES > 50

HANG = 240
"""Seconds after which something hangs."""

KEYS = [f"key-{number}" for number in range(6)]
MAX_SEGMENTS = 8
MAX_WRITERS = 3
MAX_TRANSACTIONS = 3
STEPS_OF_REFUSING = 2

keys = st.sampled_from([*KEYS, None])
picks = st.integers(0, 2)
sizes = st.sampled_from([0, 1, 30, 3000])
whiles = st.sampled_from(["quiet", "writing", "held", "lost"])
"""What the writers do while something else is done: see :meth:`StreamMachine.do`."""

bulks = st.sampled_from([2, 30, 400, 3000])


@dataclass(eq=False)
class Writer:
    """An open event writer and what it was given."""

    name: str
    held: Held[EventWriter]
    proxied: bool
    tight: bool
    waiting: list[tuple[Ack, list[Event]]] = field(default_factory=list)

    @property
    def twin(self) -> EventWriter:
        return self.held.value


@dataclass(eq=False)
class Txn:
    """A transaction and what was written to it."""

    txn_id: UUID
    handle: Transaction
    proxied: bool
    events: list[Event] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"transaction {self.txn_id}"


@dataclass(eq=False)
class Cut:
    """A cut of a moment when nothing was under way, and what had to be before it."""

    cut: StreamCut
    before: frozenset[int]


def act(
    when: Callable[[StreamMachine], object] | None = None, **arguments: st.SearchStrategy[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A rule. Time goes on with it, and what comes after a failure knows of that.

    :param when: whether it is possible. :param arguments: where its arguments are drawn from.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        def one(self: StreamMachine, *, what: str = "", **drawn: Any) -> None:
            try:
                self.begin()
                function(self, **drawn)
            except BaseException:
                self.broken = True
                raise

        # Hypothesis leaves out about half of the rules in each example, by the names of their functions.
        # That is for many cheap examples: of these few, each shall have all rules, so they share a name.
        made: Callable[..., None] = rule(what=st.just(function.__name__), **arguments)(one)  # type: ignore[call-overload]
        return made if when is None else precondition(lambda self: bool(when(self)))(made)

    return decorate


class StreamMachine(RuleBasedStateMachine):
    """One stream, two clients of it (one behind a proxy that breaks connections), and the model."""

    def __init__(self, config: PravegaConfig) -> None:
        super().__init__()
        self.broken = False
        self.model = StreamModel()
        self.stream = f"model-{uuid4().hex[:12]}"
        self.portal = Portal("stream model")
        self.proxy = FaultProxy()
        self.sound_client = self.portal.enter(open_client(config))
        self.proxied_client = self.portal.enter(open_client(config, address_map=self.proxy.address_map))
        self.writers: list[Writer] = []
        self.names = 0
        self.open: list[Txn] = []
        self.committing: list[Txn] = []
        self.committed: list[Txn] = []
        self.aborted: list[Txn] = []
        self.head = Cut(StreamCut(config.resolve(self.stream), {}), frozenset())
        self.cuts: list[Cut] = []
        self.ranges: dict[int, tuple[float, float]] = {}
        self.minimum = 1
        self.ending = ""
        self.trouble = 0

    # --- tools ----------------------------------------------------------------------------------

    def call(self, function: Callable[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run something in the loop's thread."""

        async def guarded() -> R:
            with trio.fail_after(HANG):
                return await function(*args, **kwargs)

        return self.portal.call(guarded)

    def client(self, proxied: bool) -> PravegaClient:
        return (self.proxied_client if proxied else self.sound_client).value

    def name(self, what: str) -> str:
        self.names += 1
        return f"{what} {self.names}"

    def begin(self) -> None:
        """A moment later: what was acknowledged until now was so before what comes."""
        self.harvest()
        self.model.tick()
        if self.trouble:
            self.trouble -= 1
            if not self.trouble:
                self.heal()

    def harvest(self) -> None:
        """Note what was acknowledged."""
        moment = self.model.tick()
        for writer in self.writers:
            left = []
            for ack, events in writer.waiting:
                if not ack.done:
                    left.append((ack, events))
                    continue
                assert ack.error is None, f"{writer.name} failed: {ack.error!r}"
                for event in events:
                    event.fate = Fate.STORED
                    event.done = moment
            writer.waiting = left

    def heal(self) -> None:
        """Connections can be made and used; cuts that were ordered are still to come."""
        self.trouble = 0
        self.proxy.refuse(False)
        self.proxy.resume()

    def flush(self, writer: Writer) -> None:
        self.heal()
        self.call(writer.twin.flush)
        self.harvest()
        assert not writer.waiting, f"{writer.name} was flushed and not all of it was acknowledged"

    def settle(self) -> None:
        """Nothing is under way."""
        for writer in self.writers:
            self.flush(writer)
        for txn in list(self.committing):
            self.await_committed(txn)

    def await_committed(self, txn: Txn) -> None:
        self.call(self.client(False).wait_committed, self.stream, txn.txn_id)
        moment = self.model.tick()
        for event in txn.events:
            event.fate = Fate.STORED
            event.done = moment
        self.committing.remove(txn)
        self.committed.append(txn)

    def keep(self, writer: Writer, ack: Ack, events: list[Event]) -> None:
        writer.waiting.append((ack, events))

    def before_writing(self, writer: Writer) -> None:
        if writer.tight:
            # It may wait for room, and so for the acknowledgements.
            self.heal()

    def read(
        self,
        start: StreamCut | str = "earliest",
        end: StreamCut | str = "latest",
        *,
        proxied: bool,
        **options: Any,
    ) -> list[list[int]]:
        """Numbers of the events in a range, for each segment."""
        if proxied:
            self.heal()
        client = self.client(proxied)

        async def read() -> list[tuple[int, list[bytes]]]:
            parts = []
            for each in await client.segment_ranges(self.stream, start, end, **options):
                part: list[bytes] = []
                async with client.read_range(each) as reader:
                    async for batch in reader:
                        part += batch
                parts.append((each.segment_id, part))
            return parts

        found = []
        for segment_id, payloads in self.call(read):
            part = [self.model.number_of(payload) for payload in payloads]
            self.model.check_places(part, *self.range_of(segment_id))
            found.append(part)
        return found

    def range_of(self, segment_id: int) -> tuple[float, float]:
        """The keys that go to a segment."""
        if segment_id not in self.ranges:
            for each in self.call(self.client(False).epoch_segments, self.stream, segment_id >> 32):
                self.ranges[each.segment_id] = each.low, each.high
        return self.ranges[segment_id]

    # --- the beginning --------------------------------------------------------------------------

    @initialize(
        segments=st.integers(1, 4),
        transactions=st.integers(0, 2),
        ending=st.sampled_from(["flush", "abandon", "quiet", "held", "lost"]),
    )
    def create(self, segments: int, transactions: int, ending: str) -> None:
        self.call(self.client(False).create_stream, self.stream, segments)
        self.minimum = segments
        self.open_writer(proxied=True, tight=False)
        for number in range(transactions):
            self.begin_transaction(proxied=True, key=KEYS[number])
        self.ending = ending

    # --- writers --------------------------------------------------------------------------------

    @act(lambda self: len(self.writers) < MAX_WRITERS, proxied=st.booleans(), tight=st.booleans())
    def open_writer(self, proxied: bool, tight: bool) -> None:
        limit = 100_000 if tight else 64 << 20
        writer = self.client(proxied).event_writer(self.stream, max_outstanding_bytes=limit)
        self.writers.append(Writer(self.name("writer"), self.portal.enter(writer), proxied, tight))

    @act(lambda self: self.writers, pick=picks, how=st.sampled_from(["left", "abandoned"]))
    def end_writer(self, pick: int, how: str) -> None:
        """Leaving it flushes; of one that is abandoned nobody learns what was under way."""
        writer = self.writers[pick % len(self.writers)]
        if how == "abandoned":
            self.abandon(writer)
            return
        self.heal()
        writer.held.leave()
        self.harvest()
        assert not writer.waiting, f"{writer.name} was left and not all of it was acknowledged"
        self.writers.remove(writer)

    def abandon(self, writer: Writer) -> None:
        writer.held.break_off()
        self.let_go(writer, ClosedError)

    def let_go(self, writer: Writer, kind: type[Exception]) -> None:
        """Of a writer that ended each event is stored, or its acknowledgement has the reason."""
        moment = self.model.tick()
        for ack, events in writer.waiting:
            assert ack.done, f"{writer.name} has ended and somebody would wait for it forever"
            assert ack.error is None or isinstance(ack.error, kind), repr(ack.error)
            for event in events:
                event.fate = Fate.STORED if ack.error is None else Fate.UNCERTAIN
                if ack.error is None:
                    event.done = moment
        self.writers.remove(writer)

    @act(lambda self: self.writers, pick=picks, key=keys, size=sizes)
    def write_event(self, pick: int, key: str | None, size: int) -> None:
        writer = self.writers[pick % len(self.writers)]
        self.before_writing(writer)
        event = self.model.new(writer.name, key, size)
        self.keep(writer, self.call(writer.twin.write_event, event.payload, key), [event])

    @act(
        lambda self: self.writers,
        pick=picks,
        key=keys,
        many_keys=st.booleans(),
        count=bulks,
        size=sizes,
        arrow=st.booleans(),
    )
    def write_bulk(
        self, pick: int, key: str | None, many_keys: bool, count: int, size: int, arrow: bool
    ) -> None:
        writer = self.writers[pick % len(self.writers)]
        self.before_writing(writer)
        size = min(size, 3_000_000 // count)
        chosen: list[str | None] = [key] * count
        if many_keys:
            # The one that was drawn as well, and there is none with some of the events.
            chosen = [[key, *KEYS[:3], None][number % 5] for number in range(count)]
        events = [self.model.new(writer.name, each, size + number % 3) for number, each in enumerate(chosen)]
        payloads: Any = [event.payload for event in events]
        if arrow:
            payloads = pa.array(payloads, pa.binary())
        ack = self.call(writer.twin.write_events, payloads, chosen if many_keys else key)
        self.keep(writer, ack, events)

    @act(lambda self: self.writers, pick=picks, key=keys, count=st.integers(1, 20), size=sizes)
    def write_batch(self, pick: int, key: str | None, count: int, size: int) -> None:
        writer = self.writers[pick % len(self.writers)]
        self.before_writing(writer)
        batch = self.name("batch")
        events = [self.model.new(writer.name, key, size, batch=batch) for _ in range(count)]
        self.keep(writer, self.call(writer.twin.write_batch, [each.payload for each in events], key), events)

    @act(lambda self: self.writers, pick=picks)
    def flush_writer(self, pick: int) -> None:
        self.flush(self.writers[pick % len(self.writers)])

    # --- broken connections ---------------------------------------------------------------------

    @act(trouble=st.sampled_from(["cut", "refuse", "pause", "resume"]))
    def break_connections(self, trouble: str) -> None:
        """What is refused stays so for the next acts, and what is paused until somebody waits for it."""
        if trouble == "pause":
            self.proxy.pause()
        elif trouble == "resume":
            self.heal()
        else:
            if trouble == "refuse":
                self.proxy.refuse()
                self.trouble = STEPS_OF_REFUSING + 1
            self.proxy.cut_all()

    @act(
        reply=st.sampled_from(
            [c.DataAppended, c.DataAppended, c.AppendSetup, c.SegmentIsSealed, c.SegmentRead]
        ),
        times=st.integers(1, 3),
        after=st.integers(0, 2),
    )
    def lose_replies(self, reply: type[c.Command], times: int, after: int) -> None:
        """The server has done it, and the client does not learn of it."""
        if self.proxy.cuts_due < 10:
            self.proxy.cut_before_reply(reply, times=times, after=after)
        self.stir()

    # --- scaling --------------------------------------------------------------------------------

    @act(
        how=st.sampled_from(["split", "merge", "replace all"]),
        pick=st.integers(0, MAX_SEGMENTS - 1),
        meanwhile=whiles,
    )
    def scale(self, how: str, pick: int, meanwhile: str) -> None:
        segments = self.segments()
        if how == "split" and len(segments) < MAX_SEGMENTS:
            pick %= len(segments)
            _, low, high = segments[pick]
            middle = (low + high) / 2
            self.replace([pick], [(low, middle), (middle, high)], meanwhile)
        elif how == "merge" and len(segments) > 1:
            pick %= len(segments) - 1
            ranges = [(segments[pick][1], segments[pick + 1][2])]
            if len(segments) > self.minimum:
                self.replace([pick, pick + 1], ranges, meanwhile)
            else:
                with pytest.raises(ScaleConflictError, match=self.stream):
                    self.replace([pick, pick + 1], ranges, "quiet")
        elif how == "replace all":
            count = min(self.minimum + pick % 3, MAX_SEGMENTS)
            ranges = [(each / count, (each + 1) / count) for each in range(count)]
            self.replace(range(len(segments)), ranges, meanwhile)

    def segments(self) -> list[tuple[int, float, float]]:
        """The active segments in the order of their ranges; commits change them as well."""
        for txn in list(self.committing):
            self.await_committed(txn)
        active = self.call(self.client(False).active_segments, self.stream)
        found = sorted((each.low, each.high, each.segment_id) for each in active)
        assert found[0][0] == 0
        assert math.isclose(found[-1][1], 1)
        for (_, high, _), (low, _, _) in pairwise(found):
            assert high == low, f"the segments do not cover the keys once: {found}"
        return [(segment_id, low, high) for low, high, segment_id in found]

    def replace(self, places: Sequence[int], ranges: list[tuple[float, float]], meanwhile: str) -> None:
        active = self.segments()
        seal = [active[place][0] for place in places]
        client = self.client(False)

        async def scale() -> None:
            await client.scale_stream(self.stream, seal, ranges)

        self.do(scale, meanwhile)
        after = self.segments()
        assert len(after) == len(active) - len(seal) + len(ranges)
        assert {(low, high) for _, low, high in after} >= set(ranges)

    def stir(self) -> None:
        """Each writer has something under way: an event, a batch that may go anywhere, several keys."""
        for number, writer in enumerate(self.writers):
            if writer.tight:
                # It might wait for room, and so for what is held.
                continue
            key = KEYS[number % len(KEYS)]
            event = self.model.new(writer.name, key, 5)
            self.keep(writer, self.call(writer.twin.write_event, event.payload, key), [event])
            batch = self.name("batch")
            events = [self.model.new(writer.name, None, 5, batch=batch) for _ in range(6)]
            payloads = [event.payload for event in events]
            self.keep(writer, self.call(writer.twin.write_batch, payloads), events)
            events = [self.model.new(writer.name, each, 5) for each in KEYS]
            payloads = [event.payload for event in events]
            self.keep(writer, self.call(writer.twin.write_events, payloads, KEYS), events)

    def lose(self) -> None:
        """What the writers write now is stored, and they do not learn of it before this is healed."""
        proxied = [writer for writer in self.writers if writer.proxied and not writer.tight]
        if not proxied:
            return
        # A writer whose connection was lost when it had nothing to send connects only when it has again.
        self.proxy.clear()
        self.stir()
        for writer in proxied:
            self.flush(writer)
        self.proxy.cut_before_reply(c.DataAppended)
        self.proxy.refuse()
        self.stir()

        async def lost() -> None:
            # If it was lost nevertheless, nothing will be stored: that is as good an example.
            with trio.move_on_after(5):
                while self.proxy.cuts_due:
                    await trio.sleep(0.001)

        self.call(lost)
        self.proxy.cut_all()

    def do(self, action: Callable[[], Awaitable[None]], meanwhile: str) -> None:
        """Do something.

        :param meanwhile: the writers write at the same time; or what they wrote before is on its way until it
            is done; or that is stored, and its acknowledgement was lost.
        """
        if meanwhile == "held":
            self.proxy.pause()
            self.stir()
        elif meanwhile == "lost":
            self.lose()
        if meanwhile != "writing" or not self.writers:
            self.call(action)
            if meanwhile in ("held", "lost"):
                self.heal()
            return
        self.heal()

        async def both() -> None:
            async with trio.open_nursery() as nursery:
                done = False

                async def write() -> None:
                    number = 0
                    # Not cancelled, so that every event is either written or not in the model.
                    while not done:
                        number += 1
                        writer = self.writers[number % len(self.writers)]
                        event = self.model.new(writer.name, KEYS[number % len(KEYS)], 100)
                        ack = await writer.twin.write_event(event.payload, event.key)
                        self.keep(writer, ack, [event])
                        if number % 20 == 19:
                            await trio.sleep(0.002)

                nursery.start_soon(write)
                await action()
                done = True

        self.call(both)

    # --- transactions ---------------------------------------------------------------------------

    @act(lambda self: len(self.open) < MAX_TRANSACTIONS, proxied=st.booleans(), key=keys)
    def begin_transaction(self, proxied: bool, key: str | None) -> None:
        handle = self.call(self.client(proxied).begin_transaction, self.stream)
        txn = Txn(handle.txn_id, handle, proxied)
        self.open.append(txn)
        self.write_staged(txn, key, 3, 10, bulk=False)

    @act(
        lambda self: self.open,
        pick=picks,
        key=keys,
        count=st.sampled_from([1, 5, 300]),
        size=sizes,
        bulk=st.booleans(),
    )
    def write_to_transaction(self, pick: int, key: str | None, count: int, size: int, bulk: bool) -> None:
        self.write_staged(self.open[pick % len(self.open)], key, count, size, bulk=bulk)

    def write_staged(self, txn: Txn, key: str | None, count: int, size: int, *, bulk: bool) -> None:
        # Without a key they all go to the same segment, in their order.
        shown = key or str(txn.txn_id)
        events = [self.model.new(txn.name, shown, size, Fate.PENDING, txn=txn.name) for _ in range(count)]
        txn.events += events
        if bulk:
            self.call(txn.handle.write_events, [event.payload for event in events], key)
        else:
            for event in events:
                self.call(txn.handle.write_event, event.payload, key)

    @act(lambda self: self.open, pick=picks, proxied=st.booleans())
    def resume_transaction(self, pick: int, proxied: bool) -> None:
        """Somebody else takes it up by its id."""
        txn = self.open[pick % len(self.open)]
        self.heal()
        self.call(txn.handle.flush)
        self.call(txn.handle.aclose)
        txn.handle = self.call(self.client(proxied).resume_transaction, self.stream, txn.txn_id)
        txn.proxied = proxied

    @act(
        lambda self: self.open,
        pick=picks,
        end=st.sampled_from(["commit", "commit", "commit", "abort"]),
        by_id=st.booleans(),
        wait=st.booleans(),
        meanwhile=whiles,
    )
    def end_transaction(self, pick: int, end: str, by_id: bool, wait: bool, meanwhile: str) -> None:
        txn = self.open.pop(pick % len(self.open))
        if end == "abort":
            self.abort(txn, by_id)
        else:
            self.commit(txn, by_id, wait, meanwhile)

    def commit(self, txn: Txn, by_id: bool, wait: bool, meanwhile: str) -> None:
        client = self.client(False)
        self.heal()
        if by_id or meanwhile in ("held", "lost"):
            self.call(txn.handle.flush)
        late = txn.proxied and not by_id and meanwhile == "quiet"
        if late:
            # On its way when the commit is asked for, which must wait for it.
            self.proxy.pause()
            self.write_staged(txn, KEYS[0], 5, 5, bulk=True)
        moment = self.model.tick()
        for event in txn.events:
            event.begun = moment
            event.fate = Fate.COMMITTING
        self.committing.append(txn)

        async def commit() -> None:
            if by_id:
                await client.commit_transaction(self.stream, txn.txn_id)
                await txn.handle.aclose()
            else:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(txn.handle.commit)
                    if late:
                        await trio.testing.wait_all_tasks_blocked(0.02)
                    self.proxy.resume()
            if wait:
                await client.wait_committed(self.stream, txn.txn_id)
                assert await txn.handle.status() is TxnStatus.COMMITTED

        self.do(commit, meanwhile)
        if wait:
            self.await_committed(txn)

    def abort(self, txn: Txn, by_id: bool) -> None:
        for event in txn.events:
            event.fate = Fate.DROPPED
        self.aborted.append(txn)
        if by_id:
            self.call(self.client(False).abort_transaction, self.stream, txn.txn_id)
            self.call(txn.handle.aclose)
        else:
            self.call(txn.handle.abort)
        assert self.call(txn.handle.status) in (TxnStatus.ABORTING, TxnStatus.ABORTED)

    @act(lambda self: self.committed or self.committing or self.aborted, pick=st.integers(0, 5))
    def misuse_an_ended_transaction(self, pick: int) -> None:
        """Ending it again in the same way changes nothing; all else is refused."""
        ended = [*self.committed, *self.committing, *self.aborted]
        txn = ended[pick % len(ended)]
        named = (self.stream, txn.txn_id)
        client = self.client(False)
        commits: list[_Call] = [(txn.handle.commit, ()), (client.commit_transaction, named)]
        aborts: list[_Call] = [(txn.handle.abort, ()), (client.abort_transaction, named)]
        refused: list[_Call] = [(client.resume_transaction, named)]
        if txn in self.aborted:
            harmless = aborts
            refused += [*commits, (client.wait_committed, named)]
        else:
            harmless = commits
            refused += aborts
        for function, arguments in harmless:
            self.call(function, *arguments)
        for function, arguments in refused:
            with pytest.raises(TransactionNotOpenError, match=str(txn.txn_id)) as caught:
                self.call(function, *arguments)
            assert isinstance(caught.value, TransactionAbortedError) == (txn in self.aborted)
        with pytest.raises(TransactionNotOpenError, match=str(txn.txn_id)):
            self.call(txn.handle.write_event, b"never", KEYS[0])

    # --- reading and truncation -----------------------------------------------------------------

    @act(proxied=st.booleans(), flush=st.booleans())
    def read_everything(self, proxied: bool, flush: bool) -> None:
        """Either nothing is under way, or anything may be."""
        if flush:
            self.settle()
        required = self.model.stored() - self.head.before
        check = self.model.check_only if flush else self.model.check
        check(self.read(proxied=proxied), required, whole=not self.head.before)

    @act(lambda self: len(self.cuts) < 6)
    def note_cut(self) -> None:
        self.settle()
        self.cuts.append(Cut(self.call(self.client(False).tail, self.stream), self.model.stored()))

    @act(
        lambda self: self.cuts,
        first=st.integers(0, 5),
        more=st.integers(0, 5),
        proxied=st.booleans(),
        as_text=st.booleans(),
    )
    def read_between(self, first: int, more: int, proxied: bool, as_text: bool) -> None:
        """From one cut to a later one, the same one, or the end; also from one that is cut off."""
        start = self.cuts[first % len(self.cuts)]
        following = self.cuts[first % len(self.cuts) :]
        end = following[min(more, len(following) - 1)]
        self.check_between(start, end, proxied=proxied, as_text=as_text)

    def check_between(self, start: Cut, end: Cut, *, proxied: bool, as_text: bool = False) -> None:
        """What lies between two cuts is read; what was there and is cut off is skipped, or an error."""
        bounds: list[StreamCut | str] = [start.cut, end.cut]
        if as_text:
            bounds = [each.cut.to_text() for each in (start, end)]
        lost = self.head.before - start.before
        required = end.before - start.before - lost
        skipped = self.read(*bounds, proxied=proxied, on_truncated="skip_to_head")
        self.model.check_only(skipped, required)
        if self.position(start) >= self.position(self.head):
            self.model.check_only(self.read(*bounds, proxied=proxied), required)
        elif lost & end.before:
            with pytest.raises(DataLossError, match=self.stream):
                self.read(*bounds, proxied=proxied)

    def position(self, cut: Cut) -> int:
        """Later cuts have higher ones."""
        return -1 if cut not in self.cuts else self.cuts.index(cut)

    @act(lambda self: self.cuts, pick=st.integers(0, 5))
    def truncate(self, pick: int) -> None:
        later = self.cuts[self.position(self.head) + 1 :]
        if not later:
            return
        cut = later[pick % len(later)]
        self.call(self.client(False).truncate_stream, self.stream, cut.cut)
        self.head = cut
        assert self.call(self.client(False).head, self.stream) == cut.cut
        for earlier in self.cuts[: self.position(cut)]:
            self.check_between(earlier, cut, proxied=False)

    # What most can go wrong with is twice as likely as the rest.
    scale_again, write_again, end_again, read_again = scale, write_bulk, end_transaction, read_between

    # --- the end --------------------------------------------------------------------------------

    def teardown(self) -> None:
        try:
            if not self.broken and self.ending:
                self.finish()
        finally:
            self.proxy.clear()
            if MANY:
                # They would fill the server's memory; and what is left of this one must not hide why.
                with suppress(PravegaError):
                    self.call(self.client(False).delete_stream, self.stream, seal=True)
            for client in (self.proxied_client, self.sound_client):
                client.break_off()
            self.portal.close()
            self.proxy.close()

    def finish(self) -> None:
        """Everything is read once more, and again when the stream is sealed."""
        self.begin()
        if self.ending == "abandon":
            for writer in list(self.writers):
                self.abandon(writer)
        if self.ending in ("flush", "abandon"):
            self.read_everything(proxied=False, flush=True)
        else:
            self.seal(self.ending)

    def seal(self, meanwhile: str) -> None:
        client = self.client(False)
        for txn in list(self.committing):
            self.await_committed(txn)

        async def seal() -> None:
            await client.seal_stream(self.stream)

        self.do(seal, meanwhile)
        self.heal()
        for writer in list(self.writers):

            async def write(writer: Writer = writer) -> None:
                event = self.model.new(writer.name, KEYS[0], 1, Fate.DROPPED)
                await writer.twin.write_event(event.payload, event.key)
                await writer.twin.flush()

            with pytest.raises(StreamSealedError, match=self.stream):
                self.call(write)
            writer.held.break_off()
            self.let_go(writer, StreamSealedError)
        info = self.call(client.stream_info, self.stream)
        assert info.sealed
        for txn in self.open:
            with pytest.raises(TransactionAbortedError, match=str(txn.txn_id)):
                self.call(client.commit_transaction, self.stream, txn.txn_id)
        self.read_everything(proxied=False, flush=not self.model.of({Fate.COMMITTING}))
        with pytest.raises(StreamSealedError, match=self.stream):
            self.portal.enter(client.event_writer(self.stream))


def test_a_stream_is_what_the_model_says(pravega_server: PravegaServer, pravega_scope: str) -> None:
    config = PravegaConfig.from_defaults(
        controller_uri=pravega_server.controller_uri, scope=pravega_scope, env={}
    )
    run_state_machine_as_test(
        lambda: StreamMachine(config),  # type: ignore[arg-type]
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
