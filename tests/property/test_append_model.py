"""Writers under faults: each event is stored once, in order, and every caller gets an answer.

``AppendMachine`` drives the appending protocol alone, a call at a time, so that a fault comes down to few
steps. ``live`` runs the product's writers on a simulated stream (``append_simulation``). That they would
notice a fault is shown by putting some into :mod:`pravega_wire.protocol.append`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar, cast
from unittest.mock import patch
from uuid import uuid4

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from pravega_wire.errors import UnexpectedReplyError
from pravega_wire.protocol import append, codec
from pravega_wire.protocol import commands as c
from pravega_wire.protocol.append import Appends, Durable, Place, Promise, Resumed, Stored, hand_over, settle
from pravega_wire.protocol.events import frame_event
from pravega_wire.segment import appender as appender_module
from pravega_wire.segment.appender import Ack
from pravega_wire.stream import routing as routing_module
from tests.property.append_simulation import Broken, events_in, live


@settings(max_examples=400, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_each_event_is_stored_once_in_order_whatever_happens(seed: int) -> None:
    live(seed)


# --- the protocol alone ---------------------------------------------------------------------------


class Peer:
    """A segment, its store, and the connection of one writer to it.

    :ivar data: what is stored.
    :ivar number: of the last event stored.
    :ivar wire: frames on their way to the store.
    :ivar replies: acknowledgements on their way back.
    :ivar seen: the last number that the store has seen on this connection.
    """

    appends_class: ClassVar[Any] = Appends

    def __init__(self, name: str) -> None:
        self.appends: Appends[Promise] = self.appends_class(name, uuid4(), Promise)
        self.data: list[bytes] = []
        self.number = 0
        self.seen = 0
        self.wire: list[c.AppendBlockEnd] = []
        self.replies: list[c.DataAppended] = []

    def send(self, parts: Iterable[bytes | memoryview]) -> None:
        frame = b"".join(parts)
        body = memoryview(frame)[codec.HEADER.size :]
        self.wire.append(cast("c.AppendBlockEnd", codec.decode_body(c.AppendBlockEnd.CODE, body)))

    def connect(self) -> None:
        self.seen = self.number
        self.appends.connect()
        for parts in self.appends.set_up(self.number or -(2**63), 1, 0.0).frames:
            self.send(parts)

    def pump(self) -> None:
        while (sent := self.appends.next_frame(1, 0.0)) is not None:
            self.send([sent[0]])

    def arrive(self) -> None:
        block = self.wire.pop(0)
        assert block.last_event_number > self.seen, "a block goes out again that the store has"
        previous, self.seen = self.seen, block.last_event_number
        self.number = block.last_event_number
        self.data += events_in(bytes(block.data))
        self.replies.append(
            c.DataAppended(block.writer_id, block.last_event_number, previous or -(2**63), 1, 0)
        )

    def reply(self) -> None:
        reply = self.replies.pop(0)
        self.appends.acknowledge(reply, 0.0)

    def lose(self, arriving: int) -> None:
        """Lose the connection. :param arriving: frames that the store still gets."""
        while self.wire and arriving:
            self.arrive()
            arriving -= 1
        self.wire.clear()
        self.replies.clear()
        self.appends.disconnect()


class AppendMachine(RuleBasedStateMachine):
    """One writer, on a stream that is only split: each segment has the keys of one letter, or of all."""

    def __init__(self) -> None:
        super().__init__()
        self.peers: dict[str, Peer] = {"": Peer("whole")}
        self.ended: list[Peer] = []
        self.written: dict[str, list[bytes]] = {"a": [], "b": []}
        self.waiting: list[Promise] = []

    def peer(self, key: Place) -> Peer:
        return self.peers.get(str(key)) or self.peers[""]

    @rule(key=st.sampled_from("ab"), count=st.integers(1, 3), atomic=st.booleans())
    def put(self, key: str, count: int, atomic: bool) -> None:
        at = len(self.written[key])
        events = [b"%s%d" % (key.encode(), at + number) for number in range(count)]
        self.written[key] += events
        framed = list(map(frame_event, events))
        size = sum(map(len, framed))
        appends = self.peer(key).appends
        if atomic:
            block = appends.put_atomic(framed, [key] * count, size, count)
        else:
            block = appends.room(size)
            block.put(framed, [key] * count, size, count)
        self.waiting.append(block.ack)
        if block.size >= appends.due_at:
            self.peer(key).pump()

    @rule(key=st.sampled_from("ab"))
    def flush(self, key: str) -> None:
        peer = self.peer(key)
        ack = Promise()
        peer.appends.flush(ack)
        peer.pump()
        settle(ack)
        self.waiting.append(ack)

    @rule(key=st.sampled_from("ab"))
    def arrive(self, key: str) -> None:
        if self.peer(key).wire:
            self.peer(key).arrive()

    @rule(key=st.sampled_from("ab"), joined=st.booleans())
    def reply(self, key: str, joined: bool) -> None:
        peer = self.peer(key)
        if joined and len(peer.replies) > 1:
            first, second = peer.replies[:2]
            peer.replies[:2] = [replace(second, previous_event_number=first.previous_event_number)]
        if peer.replies:
            peer.reply()
            peer.pump()

    @rule(key=st.sampled_from("ab"), arriving=st.integers(0, 4))
    def lose(self, key: str, arriving: int) -> None:
        self.peer(key).lose(arriving)

    @rule(key=st.sampled_from("ab"))
    def connect(self, key: str) -> None:
        peer = self.peer(key)
        if not peer.appends.ready:
            peer.connect()
            peer.pump()

    @rule(key=st.sampled_from("ab"), beyond=st.integers(1, 9))
    def connect_wrongly(self, key: str, beyond: int) -> None:
        """The store says that more is stored than was sent: nothing must follow from that."""
        appends = self.peer(key).appends
        sent = [block.last_number for block in appends.unacknowledged if block.last_number]
        if not appends.ready and sent:
            with pytest.raises(UnexpectedReplyError):
                appends.set_up(sent[-1] + beyond, 1, 0.0)
            with pytest.raises(UnexpectedReplyError):
                appends.sealed(sent[-1] + beyond, 0.0)

    @precondition(lambda self: "" in self.peers)
    @rule(arriving=st.integers(0, 4))
    def split(self, arriving: int) -> None:
        old = self.peers[""]
        if not old.appends.ready:
            # A store that was asked says that the segment is sealed; here it refuses the set-up.
            old.appends.connect()
        while old.wire and arriving:
            old.arrive()
            arriving -= 1
        # What came before the seal is acknowledged before it is reported; or the connection was lost.
        while old.replies:
            old.reply()
        old.appends.disconnect()
        if old.appends.in_doubt:
            old.appends.sealed(old.number, 0.0)
        self.peers = {"a": Peer("first"), "b": Peer("second")}
        self.ended.append(old)
        hand_over([old.appends], lambda place: self.peer(place).appends)

    def teardown(self) -> None:
        for peer in self.peers.values():
            if not peer.appends.ready:
                peer.connect()
            peer.appends.force()
            peer.pump()
            while peer.wire or peer.replies:
                while peer.wire:
                    peer.arrive()
                peer.reply()
                peer.pump()
        assert all(each.done and each.error is None for each in self.waiting)
        for key, written in self.written.items():
            stored = [event for peer in [*self.ended, *self.peers.values()] for event in peer.data]
            assert [event for event in stored if event.startswith(key.encode())] == written


TestAppendMachine = AppendMachine.TestCase
TestAppendMachine.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)


# --- faults ---------------------------------------------------------------------------------------


class ResendsWhatIsStored(Appends[Ack]):
    """Takes the last stored number for the first that is missing."""

    def set_up(self, last: int, request_id: int, now: float) -> Resumed:
        return super().set_up(last - 1, request_id, now)


class TakesSentForStored(Appends[Ack]):
    """Believes after a reconnect that all it has sent has arrived."""

    def set_up(self, last: int, request_id: int, now: float) -> Resumed:
        return super().set_up(max(last, self._next_number), request_id, now)


class BelievesEverything(Appends[Ack]):
    """Believes that events are stored that it has not sent."""

    def _check_sent(self, last: int) -> None:
        pass


class DoesNotResend(Appends[Ack]):
    """Waits after a reconnect for what the lost connection carried."""

    def set_up(self, last: int, request_id: int, now: float) -> Resumed:
        return super().set_up(last, request_id, now)._replace(frames=[])


class RestartsNumbers(Appends[Ack]):
    """Numbers the events of each connection from 1."""

    def set_up(self, last: int, request_id: int, now: float) -> Resumed:
        resumed = super().set_up(last, request_id, now)
        self._next_number = 0
        return resumed


class ForgetsToLeaveOut(Appends[Ack]):
    """Sends numbered events that another process with the same id has stored."""

    def leave_out(self, stored: Stored) -> list[Durable]:
        return []


class SettlesOneBlock(Appends[Ack]):
    """Takes an acknowledgement for that of one block, and forgets the blocks before it."""

    def _settle_through(self, number: int, now: float) -> list[Durable]:
        for block in [each for each in self._in_flight if each.last_number < number]:
            self._in_flight.remove(block)
        return super()._settle_through(number, now)


class NeverAsksTheSealed(Appends[Ack]):
    """Moves everything unacknowledged to the successors, also what came into the sealed segment late."""

    @property
    def in_doubt(self) -> bool:
        return False


def backwards(ended: Iterable[Appends[Ack]], heir_of: Callable[[Place], Appends[Ack]]) -> None:
    """Hands newer blocks to the successors before older ones."""
    turned = [SimpleNamespace(unacknowledged=each.unacknowledged[::-1]) for each in ended]
    append.hand_over(cast("Any", turned), heir_of)


def forgetful(ended: Iterable[Appends[Ack]], heir_of: Callable[[Place], Appends[Ack]]) -> None:
    """Leaves the open block where it is."""
    left = [SimpleNamespace(unacknowledged=each.unacknowledged[:-1]) for each in ended]
    append.hand_over(cast("Any", left), heir_of)


FAULTS: list[tuple[ModuleType, str, Any]] = [
    (appender_module, "Appends", ResendsWhatIsStored),
    (appender_module, "Appends", TakesSentForStored),
    (appender_module, "Appends", DoesNotResend),
    (appender_module, "Appends", RestartsNumbers),
    (appender_module, "Appends", ForgetsToLeaveOut),
    (appender_module, "Appends", SettlesOneBlock),
    (appender_module, "Appends", NeverAsksTheSealed),
    (routing_module, "hand_over", backwards),
    (routing_module, "hand_over", forgetful),
]


@pytest.mark.parametrize(
    ("module", "name", "fault"), FAULTS, ids=lambda each: getattr(each, "__name__", None)
)
def test_a_fault_is_found(module: object, name: str, fault: object) -> None:
    with patch.object(module, name, fault), pytest.raises(Broken):
        for seed in range(400):
            live(seed)


@pytest.mark.parametrize(
    "fault",
    [
        ResendsWhatIsStored,
        TakesSentForStored,
        BelievesEverything,
        DoesNotResend,
        RestartsNumbers,
        SettlesOneBlock,
    ],
)
def test_a_fault_of_the_protocol_is_found(fault: type) -> None:
    run = settings(
        max_examples=1000, stateful_step_count=40, database=None, phases=[Phase.generate], derandomize=True
    )
    found = (AssertionError, UnexpectedReplyError, pytest.fail.Exception)
    with patch.object(Peer, "appends_class", fault), pytest.raises(found):
        run_state_machine_as_test(AppendMachine, settings=run)
