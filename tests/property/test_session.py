"""A connection's session, driven without a socket: chunks, flows, greetings, ticks and ends."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pravega_wire.errors import (
    ConnectionLostError,
    DecodeError,
    IncompatibleVersionError,
    ProtocolError,
    TokenExpiredError,
    UnexpectedReplyError,
)
from pravega_wire.protocol import codec
from pravega_wire.protocol.commands import (
    WIRE_VERSION_HIGH,
    WIRE_VERSION_LOW,
    AuthTokenCheckFailed,
    Command,
    DataAppended,
    GetStreamSegmentInfo,
    Hello,
    KeepAlive,
    PartialEvent,
    SegmentRead,
)
from pravega_wire.protocol.session import (
    GREETING,
    KEEPALIVE,
    TICKS_OF_SILENCE,
    RequestIds,
    Session,
    senseless,
)

HOST = "store:12345"
WRITER = UUID(int=7)
ASKING = GetStreamSegmentInfo(request_id=1 << 32, segment_name="s/t/0.#epoch.0", delegation_token="")
HELLO = Hello(high_version=WIRE_VERSION_HIGH, low_version=WIRE_VERSION_LOW)


def session() -> Session[str]:
    return Session(HOST, 9.0)


def fed(made: Session[str], data: bytes, sizes: Iterable[int] = ()) -> list[Command]:
    """What comes out when this arrives in pieces of these sizes, and then the rest."""
    replies: list[Command] = []
    cuts = iter(sizes)
    while data:
        buffer = made.get_buffer()
        count = min(len(data), len(buffer), next(cuts, len(data)))
        buffer[:count] = data[:count]
        data = data[count:]
        # A view of the buffer is good until the next bytes.
        for reply in made.received(count):
            replies.append(
                replace(reply, data=bytes(reply.data)) if isinstance(reply, SegmentRead) else reply
            )
    return replies


def appended(flow: int, number: int) -> DataAppended:
    return DataAppended(
        request_id=flow << 32, writer_id=WRITER, event_number=number, previous_event_number=number - 1,
        current_segment_write_offset=-1,
    )  # fmt: skip


def read(flow: int, data: bytes) -> SegmentRead:
    return SegmentRead(
        segment="s/t/0.#epoch.0",
        offset=0,
        at_tail=False,
        end_of_segment=False,
        data=data,
        request_id=flow << 32,
    )


replies = st.one_of(
    st.builds(appended, st.integers(1, 5), st.integers(1, 1 << 40)),
    st.builds(read, st.integers(1, 5), st.binary(max_size=3000)),
    st.builds(read, st.integers(1, 5), st.integers(100_000, 300_000).map(bytes)),
    st.just(HELLO),
    st.just(KeepAlive()),
)


@given(st.lists(replies, max_size=12), st.lists(st.integers(1, 70_000), max_size=60))
def test_replies_do_not_depend_on_the_pieces_they_arrive_in(sent: list[Command], sizes: list[int]) -> None:
    made = session()
    for flow in (1, 3):
        made.flows[flow] = f"flow {flow}"
    found = fed(made, b"".join(map(codec.encode, sent)), sizes)
    assert found == [each for each in sent if not isinstance(each, Hello | KeepAlive)]
    for reply in found:
        assert isinstance(reply, DataAppended | SegmentRead)
        flow = reply.request_id >> 32
        assert made.flow_of(reply) == (f"flow {flow}" if flow in (1, 3) else None)


@given(st.binary(max_size=200), st.lists(st.integers(1, 50), max_size=10))
def test_any_bytes_are_replies_or_an_error(data: bytes, sizes: list[int]) -> None:
    # Any other error fails.
    with suppress(ProtocolError):
        fed(session(), data, sizes)


@pytest.mark.parametrize(
    ("low", "high", "accepted"),
    [
        (WIRE_VERSION_LOW, WIRE_VERSION_HIGH, True),
        (WIRE_VERSION_HIGH, WIRE_VERSION_HIGH + 5, True),
        (1, WIRE_VERSION_LOW, True),
        (WIRE_VERSION_HIGH + 1, WIRE_VERSION_HIGH + 5, False),
        (1, WIRE_VERSION_LOW - 1, False),
    ],
)
def test_versions_have_to_overlap(low: int, high: int, accepted: bool) -> None:
    greeting = codec.encode(Hello(high_version=high, low_version=low))
    if accepted:
        assert fed(session(), greeting) == []
        return
    with pytest.raises(
        IncompatibleVersionError, match=f"{HOST} supports wire versions {low} to {high}"
    ) as raised:
        fed(session(), greeting)
    assert senseless(raised.value, HOST) is raised.value


def test_malformed_bytes_are_those_of_a_host() -> None:
    found = DecodeError("no such thing")
    named = senseless(found, HOST)
    assert type(named) is DecodeError
    assert named.host == HOST
    assert named.message == f"{HOST}: no such thing"
    assert named.__cause__ is found


@pytest.mark.parametrize(
    "sent",
    [bytes(50), codec.encode(PartialEvent(b"x")), codec.encode(ASKING)],
    ids=["zeros", "part of an event", "request"],
)
def test_a_store_sends_nothing_that_only_clients_send(sent: bytes) -> None:
    """Zeros are empty events: nobody waits for one, and what they stand for would never come."""
    with pytest.raises(UnexpectedReplyError, match=f"{HOST} sent .*, which only clients send"):
        fed(session(), sent)


def test_what_nobody_asked_for_is_dropped_or_the_end_of_the_token() -> None:
    made = session()
    made.check_unclaimed(appended(7, 1))
    refused = AuthTokenCheckFailed(request_id=4711, server_stack_trace="", error_code=0)
    with pytest.raises(TokenExpiredError, match=HOST):
        made.check_unclaimed(refused)


@given(st.lists(st.booleans(), max_size=20), st.booleans())
def test_a_silent_store_is_asked_and_then_lost(moves: list[bool], queued: bool) -> None:
    made = session()
    assert made.tick * TICKS_OF_SILENCE == 9.0
    silent = 0
    for moved in moves:
        made.begin_tick()
        if moved:
            fed(made, GREETING)
        silent = 0 if moved else silent + 1
        if silent == TICKS_OF_SILENCE:
            with pytest.raises(ConnectionLostError, match="has sent nothing for 9 s"):
                made.end_tick(queued=queued)
            return
        assert made.end_tick(queued=queued) == (b"" if moved or queued else KEEPALIVE)


def test_the_end_says_whether_a_message_was_cut_off() -> None:
    made = session()
    with pytest.raises(ConnectionLostError, match="closed by the server"):
        made.ended()
    fed(made, codec.encode(appended(1, 1))[:-1])
    with pytest.raises(ConnectionLostError, match="in the middle of a message"):
        made.ended()


def test_request_ids_are_those_of_the_flow_and_come_round() -> None:
    ids = RequestIds(5)
    assert ids.base_request_id == 5 << 32
    assert [ids.next_request_id() - ids.base_request_id for _ in range(3)] == [1, 2, 3]
    ids._sequence = 0x0FFFFFFF
    assert ids.next_request_id() == ids.base_request_id


class Flows(RuleBasedStateMachine):
    """Flows that are opened and closed, near the end of the numbers as well."""

    def __init__(self) -> None:
        super().__init__()
        self.session = session()
        self.opened = 0

    @rule()
    def open(self) -> None:
        flow_id = self.session.new_flow_id()
        assert 1 <= flow_id <= 0x7FFFFFFF
        assert flow_id not in self.session.flows
        self.opened += 1
        self.session.flows[flow_id] = f"user {self.opened}"

    @rule(choice=st.randoms(use_true_random=False))
    def close(self, choice: object) -> None:
        if self.session.flows:
            self.session.flows.pop(choice.choice(sorted(self.session.flows)))  # type: ignore[attr-defined]

    @rule()
    def go_to_the_last_numbers(self) -> None:
        self.session._next_flow_id = 0x7FFFFFFE

    @invariant()
    def replies_find_their_flow(self) -> None:
        for flow_id, user in self.session.flows.items():
            assert self.session.flow_of(appended(flow_id, 1)) == user


TestFlows = Flows.TestCase
