"""Servers before 0.13: what they lack, and how a client learns that before it sends anything."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import trio
import trio.testing

from pravega_wire import PravegaConfig, open_client
from pravega_wire.errors import ConnectionLostError, ServerTooOldError
from pravega_wire.protocol import codec
from pravega_wire.protocol import commands as c
from pravega_wire.protocol.session import Features, Session
from pravega_wire.testing import standalone
from pravega_wire.testing.memory import controller, store
from pravega_wire.transport.connection import Connection
from pravega_wire.transport.stream import NetworkStream

HOST = "somewhere:12345"
WRITER = uuid.UUID(int=7)


# --- what a greeting tells ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("high", "release"),
    [(14, "0.10"), (15, "0.11 or 0.12"), (16, "0.13"), (99, "unknown (wire version 99)")],
)
def test_the_release_of_a_store(high: int, release: str) -> None:
    assert Features(HOST, 5, high).release == release


def test_a_command_that_a_store_does_not_know() -> None:
    Features(HOST, 5, 15).check(c.MergeSegmentsBatch, "merging into s")
    Features(HOST, 5, 5).check(c.MergeSegments, "merging into s")
    with pytest.raises(ServerTooOldError) as raised:
        Features(HOST, 5, 14).check(c.MergeSegmentsBatch, "merging into s")
    error = raised.value
    assert error.message == f"merging into s needs Pravega 0.11 or newer: {HOST} is 0.10"
    assert (error.feature, error.needed, error.found) == ("merging into s", "0.11", "0.10")
    assert (error.host, error.retriable) == (HOST, False)


def test_every_command_with_a_version_has_a_release() -> None:
    newer = {command for command in c.COMMANDS.values() if command.SINCE}
    assert {c.MergeSegmentsBatch, c.CreateTransientSegment, c.GetTableSegmentInfo} <= newer
    assert all(c.RELEASES[command.SINCE] for command in newer)


def told(high: int, body: bytes) -> tuple[Session[str], list[c.Command]]:
    """A session with a store of this version, and what it made of an InvalidEventNumber."""
    session: Session[str] = Session(HOST, 9.0)
    data = codec.encode(c.Hello(high_version=high, low_version=5))
    data += codec.HEADER.pack(c.InvalidEventNumber.CODE, len(body)) + body
    session.get_buffer()[: len(data)] = data
    return session, list(session.received(len(data)))


def test_an_event_number_of_a_store_before_0_13() -> None:
    """It has no request id, so the number must not be taken for one: it may be that of any flow."""
    number = 3 << 32 | 4
    body = WRITER.bytes + number.to_bytes(8, "big") + b"\0\5trace"
    session, replies = told(15, body)
    assert replies == [c.InvalidEventNumber(WRITER, -1, "trace", number)]
    session.flows[3] = "another's"
    assert session.flow_of(replies[0]) is None
    with pytest.raises(ConnectionLostError, match=f"refused event {number} of writer {WRITER}"):
        session.check_unclaimed(replies[0])
    session, replies = told(16, body + (9).to_bytes(8, "big"))
    assert replies == [c.InvalidEventNumber(WRITER, number, "trace", 9)]
    session.check_unclaimed(replies[0])


async def test_a_connection_waits_for_the_greeting() -> None:
    here, there = trio.socket.socketpair()
    connection = Connection(NetworkStream(trio.SocketStream(here), HOST), lambda _: None)
    found: list[Features] = []

    async def ask() -> None:
        found.append(await connection.features())

    async with trio.open_nursery() as nursery, trio.SocketStream(there) as peer:
        nursery.start_soon(connection.run)
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        assert found == []
        await peer.send_all(codec.encode(c.Hello(high_version=14, low_version=5)))
        while not found:
            await trio.testing.wait_all_tasks_blocked()
        assert found == [await connection.features()] == [Features(HOST, 5, 14)]
        connection.close()


async def test_a_connection_that_ends_without_a_greeting() -> None:
    here, there = trio.socket.socketpair()
    connection = Connection(NetworkStream(trio.SocketStream(here), HOST), lambda _: None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.run)
        there.close()
        with pytest.raises(ConnectionLostError):
            await connection.features()


# --- a store and a controller of 0.10 -------------------------------------------------------------


class Older:
    """A server in memory that does what 0.10 does with commands that it does not know."""

    def __init__(self, config: PravegaConfig) -> None:
        self.config = config
        self.cut_by: list[c.Command] = []
        self.merged: list[str] = []


@pytest.fixture
def older(monkeypatch: pytest.MonkeyPatch) -> Iterator[Older]:
    with standalone(kind="memory") as server:
        made = Older(server.config("plant"))
        carry_out = store.StoreConnection._carry_out

        def receive(self: Any, command: c.Command) -> None:
            if command.SINCE > 14:
                made.cut_by.append(command)
                raise store._Cut
            if isinstance(command, c.MergeSegments):
                made.merged.append(command.source)
            carry_out(self, command)

        monkeypatch.setattr(store.StoreConnection, "_carry_out", receive)
        monkeypatch.setattr(c, "WIRE_VERSION_HIGH", 14)
        known = {name: each for name, each in controller._METHODS.items() if name != "deleteScopeRecursive"}
        monkeypatch.setattr(controller, "_METHODS", known)
        yield made


async def test_segments_are_merged_one_after_the_other(older: Older) -> None:
    async with open_client(older.config) as client:
        await client.create_scope("plant")
        await client.create_stream("presses", 1)
        transaction = await client.begin_transaction("presses")
        staging = client.staging("presses", transaction.txn_id)
        ids = [uuid.uuid4() for _ in range(3)]
        for number, each in enumerate(ids):
            async with staging.writer(each) as writer:
                await writer.write_events([b"%d" % number] * (number + 1), "key")
        order = [ids[2], ids[0], ids[1]]
        assert list((await staging.merge(order)).values()) == [(27, 36, 54)]
        assert [name.rpartition(".")[2] for name in older.merged] == [each.hex for each in order]
        # Again, as after a lost answer.
        assert list((await staging.merge(order)).values()) == [(54, 54, 54)]
        await transaction.commit()
        await transaction.wait_committed()
        events = [event async for batch in client.read_events("presses") for event in batch]
        assert events == [b"2", b"2", b"2", b"0", b"1", b"1"]
    assert older.cut_by == []


async def test_a_large_event_is_refused_before_anything_is_sent(older: Older) -> None:
    async with open_client(older.config) as client:
        await client.create_scope("plant")
        await client.create_stream("presses", 1)
        async with client.event_writer("presses", large_events=True) as writer:
            with pytest.raises(
                ServerTooOldError,
                match=r"^writing an event over 8 MiB to plant/presses/0\.#epoch\.0 needs Pravega 0\.11 or ",
            ):
                await (await writer.write_event(bytes(9 << 20), "key")).wait()
            await (await writer.write_event(b"small", "key")).wait()
        events = [event async for batch in client.read_events("presses") for event in batch]
        assert events == [b"small"]
    assert older.cut_by == []


async def test_a_call_that_the_controller_does_not_know(older: Older) -> None:
    async with open_client(older.config) as client:
        await client.create_scope("plant")
        with pytest.raises(ServerTooOldError) as raised:
            await client.delete_scope("plant", recursive=True)
    assert "deleteScopeRecursive for scope plant needs Pravega 0.11 or newer" in raised.value.message
    assert (raised.value.needed, raised.value.found) == ("0.11", None)
