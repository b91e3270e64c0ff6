"""The real server and the one in memory, side by side: what each answers to the same commands and calls."""

from __future__ import annotations

import re
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import fields
from random import Random
from typing import Any

import trio
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from pravega_wire.errors import DecodeError
from pravega_wire.grpc.status import StatusCode
from pravega_wire.proto import controller_pb2 as pb
from pravega_wire.protocol import codec
from pravega_wire.protocol import commands as c
from pravega_wire.protocol.frames import FrameDecoder
from pravega_wire.testing import PravegaServer
from pravega_wire.testing.memory.controller import Answer, Controller
from pravega_wire.testing.memory.store import SegmentStore
from pravega_wire.transport.grpc_channel import GrpcChannel
from pravega_wire.transport.stream import connect

SECONDS_UNTIL_IT_HANGS = 120
SERVICE = "/io.pravega.controller.stream.api.grpc.v1.ControllerService/"
METHODS = pb.DESCRIPTOR.services_by_name["ControllerService"].methods_by_name

# Fields whose values nobody depends on.
_OF_REPLIES = {"server_stack_trace", "last_modified", "message"}
_OF_ANSWERS = {"continuationToken", "delegationToken"}

Replies = list[c.Command | None]
"""Replies of a store; None at the end if it has closed the connection."""


class Foretold(Random):
    """Randomness whose next number a test may choose. :ivar next: that number, or None."""

    next: int | None = None

    def getrandbits(self, k: int) -> int:
        found, self.next = self.next, None
        return super().getrandbits(k) if found is None else found


class Memory:
    """The server in memory, without sockets, and with one connection to its store.

    :ivar random: where its ids come from.
    """

    def __init__(self) -> None:
        self._now = 1_800_000_000.0
        self.random = Foretold(0)
        self.store = SegmentStore(lambda: self._now, self.random)
        self._controller = Controller(self.store, lambda: self._now, self.random, ("127.0.0.1", 1))
        self._replies: Replies = []
        self._connect()

    def _connect(self) -> None:
        replies = self._replies = []
        self._connection = self.store.connect(replies.append, lambda: replies.append(None))
        self._decoder = FrameDecoder()

    def answers(self, frames: bytes) -> Replies:
        """Send frames; return the replies."""
        self._replies.clear()
        commands: list[c.Command] = []
        malformed = False
        try:
            self._decoder.feed(frames, commands)
        except DecodeError:
            malformed = True
        for each in commands:
            self._connection.receive(each)
        if malformed:
            self._connection.lost()
            self._replies.append(None)
        found = list(self._replies)
        if None in found:
            self._connect()
        return found

    def call(self, rpc: str, request: Message) -> Answer | None:
        """Make a call; return the answer, or None if it is never answered."""
        found: list[Answer] = []
        self._controller.call(SERVICE + rpc, request.SerializeToString(), found.append)
        return found[0] if found else None

    def settle(self) -> None:
        """Let what was begun be carried out."""
        end = self._now + 1
        while (due := self._controller.next_due()) is not None and due <= end:
            self._now = max(self._now, due)
            self._controller.run()


class StoreLink:
    """A connection to a store; a new one if it is closed.

    :param tls: how to secure it, None for plain TCP.
    """

    def __init__(self, address: tuple[str, int], tls: ssl.SSLContext | None = None) -> None:
        self._address = address
        self._tls = tls

    async def open(self) -> None:
        stream = await trio.open_tcp_stream(*self._address)
        self._stream: trio.abc.Stream = stream
        if self._tls is not None:
            self._stream = trio.SSLStream(stream, self._tls, server_hostname=self._address[0])
        self._decoder = FrameDecoder()
        self._waiting: Replies = []

    async def close(self) -> None:
        await self._stream.aclose()

    async def renew(self) -> None:
        """Give up the connection, and what is left of it."""
        await self.close()
        await self.open()

    async def answers(self, frames: bytes, wanted: int) -> Replies:
        """Send frames; return a number of replies, fewer if the connection is closed.

        :raises trio.TooSlowError: there are not as many.
        """
        try:
            await self._stream.send_all(frames)
        except trio.BrokenResourceError:
            self._waiting.append(None)
        with trio.fail_after(SECONDS_UNTIL_IT_HANGS):
            while len(self._waiting) < wanted and None not in self._waiting:
                try:
                    data = await self._stream.receive_some(1 << 20)
                except trio.BrokenResourceError:
                    data = b""
                self._waiting += self._decoder.feed(data) if data else [None]
        found, self._waiting = self._waiting, []
        if None in found:
            await self.renew()
        return found

    async def content(self, name: str, start: int, end: int) -> bytes:
        """Read a part of a segment, in as many pieces as the store likes."""
        found = b""
        while start + len(found) < end:
            (reply,) = await self.answers(
                encoded([c.ReadSegment(name, start + len(found), 1 << 20, "", 1)]), 1
            )
            if not isinstance(reply, c.SegmentRead):
                break
            found += reply.data
        return found


class Channel:
    """Calls of a real controller."""

    def __init__(self, channel: GrpcChannel) -> None:
        self._channel = channel

    async def call(self, rpc: str, request: Message) -> Answer:
        with trio.fail_after(SECONDS_UNTIL_IT_HANGS):
            result = await self._channel.call(
                SERVICE + rpc, request.SerializeToString(), timeout=SECONDS_UNTIL_IT_HANGS
            )
        return Answer(result.message, result.code)


@asynccontextmanager
async def open_channel(server: PravegaServer) -> AsyncIterator[Channel]:
    """Connect to a server's controller."""
    host, port = server.controller_address
    async with trio.open_nursery() as nursery:
        stream = await connect(host, port, tls=None, timeout=60)
        channel = GrpcChannel(stream, f"{host}:{port}", secure=False)
        nursery.start_soon(channel.run)
        yield Channel(channel)
        nursery.cancel_scope.cancel()


def encoded(commands: Sequence[c.Command]) -> bytes:
    """Return commands as frames."""
    return b"".join(map(codec.encode, commands))


def comparable(replies: Replies) -> Counter[tuple[object, ...]]:
    """What must be the same; replies to several commands may come in any order."""

    def plain(reply: Any, name: str) -> object:
        value = getattr(reply, name)
        if isinstance(value, memoryview):
            return bytes(value)
        if isinstance(reply, c.TableRead) and name == "entries":
            # The key of an entry that is missing may be of another request.
            return [each if each.key.version >= 0 else None for each in value]
        if isinstance(reply, c.TableEntriesDeltaRead) and name == "entries":
            return sorted(value, key=repr)
        if name == "entry_count" or (name == "continuation_token" and "/h_kvtable/" in reply.segment):
            # They depend on when the store comes to what was changed.
            return None
        return re.sub("#transient.*", "", value) if name == "segment" else value

    def comparable_one(reply: Any) -> tuple[object, ...]:
        if reply is None:
            return ()
        names = [each.name for each in fields(reply) if each.name not in _OF_REPLIES]
        return (type(reply).__name__, *(repr(plain(reply, each)) for each in names))

    return Counter(map(comparable_one, replies))


def message_of(rpc: str, answer: Answer) -> Any:
    """Return the message of an answer; an empty one if the call has failed."""
    return GetMessageClass(METHODS[rpc].output_type).FromString(answer.message)


def plain(rpc: str, answer: Answer | None) -> object:
    """What must be the same of an answer."""
    if answer is None:
        return None
    if answer.code is not StatusCode.OK:
        return answer.code.name
    found = MessageToDict(message_of(rpc, answer), always_print_fields_with_no_presence=True)
    return _plain(found)


def _plain(value: Any) -> Any:
    """Without tokens; lists have no order."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items() if key not in _OF_ANSWERS}
    return sorted(map(_plain, value), key=str) if isinstance(value, list) else value
