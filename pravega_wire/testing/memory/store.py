"""A segment store in memory, without I/O: commands in, replies out.

It answers as a 0.13.0 store does, also where that store does badly (``docs/protocol/unforgiving.md``). Each
command is carried out before the next one is taken; but blocks, which a real store keeps for a while, may be
stored when whoever drives it says so.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random
from typing import Any, Final
from uuid import UUID

from pravega_wire.errors import DecodeError
from pravega_wire.protocol import codec
from pravega_wire.protocol import commands as c
from pravega_wire.testing.memory.auth import Auth, BadToken, ExpiredToken
from pravega_wire.testing.memory.tables import (
    MAX_FIXED_KEY,
    BadArgument,
    BadOffset,
    BadVersion,
    Illegal,
    MissingKey,
    NotEmpty,
    Refused,
    Sealed,
    Table,
    Unsupported,
)

__all__ = [
    "EVENT_COUNT",
    "NULL",
    "ROLLOVER",
    "Exists",
    "Missing",
    "Sealed",
    "Segment",
    "SegmentStore",
    "StoreConnection",
]

log = logging.getLogger(__name__)

NULL: Final = -(2**63)
"""Value of an attribute that is not set."""

_MAX_READ: Final = 2 << 20
_UPDATE_TYPES: Final = range(5)
_MIN_READ: Final = 8
_UNUSED_AFTER: Final = 60
"""Seconds after which a store no longer has a segment in memory that nobody uses."""

_FORGOTTEN_AFTER: Final = 5.0
"""Seconds until a store has forgotten a segment that was merged or deleted: until its writer comes to it."""

# These may not come between a block and its end; the decoder of other commands knows nothing of blocks.
_BETWEEN = (
    c.SetupAppend, c.AppendBlock, c.ConditionalAppend, c.ConditionalBlockEnd, c.Padding, c.PartialEvent,
)  # fmt: skip


def _well_known(number: int) -> UUID:
    return UUID(int=(1 << 127) | number)


_CORE: Final = 1 << 63
"""The upper half of the ids of attributes that the store itself uses."""

CREATED: Final = _well_known(0)
EVENT_COUNT: Final = _well_known(1)
SCALE_TYPE: Final = _well_known(2)
SCALE_RATE: Final = _well_known(3)
ROLLOVER: Final = _well_known(4)
SEGMENT_TYPE: Final = _well_known(9)
_TRANSIENT: Final = 128
_HASH_TABLE: Final = 1
_FIXED_TABLE: Final = 5
_TABLE_ROLLOVER: Final = 16 << 20


class Missing(Refused):
    """The segment does not exist."""


class Exists(Refused):
    """The segment exists."""


class BadAttribute(Refused):
    """An attribute has not the value that was demanded."""


class _Cut(Exception):
    """The connection is closed without a reply."""


@dataclass(slots=True, eq=False)
class Segment:
    """A segment.

    :ivar name: full name.
    :ivar modified: time of the last change, in milliseconds since 1970.
    :ivar data: the bytes from ``start`` on.
    :ivar start: first readable offset.
    :ivar attributes: attributes that are set; :data:`NULL` for one that is known not to be.
    :ivar table: the entries, if it is a table segment.
    :ivar waiting: reads at its end.
    :ivar pending: blocks that were received and not stored so far.
    :ivar sealing: whether it takes nothing new; it is sealed when what came before is stored.
    :ivar used: time of the last use, in milliseconds since 1970; 0 for one that its host does not know.
    :ivar transient: whether it is for a large event.
    :ivar known: whether its container has it at hand. Where it has not, some refusals are answers that
        otherwise end the connection (observed).
    """

    name: str
    modified: int
    data: bytearray = field(default_factory=bytearray, repr=False)
    start: int = 0
    sealed: bool = False
    attributes: dict[UUID, int] = field(default_factory=dict)
    table: Table | None = None
    waiting: list[tuple[StoreConnection, c.ReadSegment]] = field(default_factory=list, repr=False)
    pending: deque[_Block] = field(default_factory=deque, repr=False)
    sealing: bool = False
    used: int = 0
    transient: bool = False
    known: bool = False

    @property
    def length(self) -> int:
        """Offset of the next append."""
        return self.start + len(self.data)

    @property
    def has_keys_for_attributes(self) -> bool:
        """Whether it is a table whose keys have one length: they are its attributes, and the only ones."""
        return self.table is not None and self.table.key_length > 0

    def truncate(self, offset: int) -> None:
        """Drop the bytes before an offset."""
        if not self.start <= offset <= self.length:
            raise BadOffset(self.start)
        del self.data[: offset - self.start]
        self.start = offset


class SegmentStore:
    """All segments.

    :param clock: returns seconds since 1970.
    :param random: for the names of transient segments.
    :param received: called when a block was received, which :meth:`store_next` is to store; default: it is
        stored at once.
    :param auth: checks the tokens of requests; None to take all. With it, call :meth:`run` when the time of
        :meth:`next_due` has come.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        random: Random,
        received: Callable[[Segment], object] | None = None,
        auth: Auth | None = None,
    ) -> None:
        self.received = received or self.store_next
        self.auth = auth
        self._clock = clock
        self._random = random
        self.segments: dict[str, Segment] = {}
        # Names that are not free so far: until when, and the segment if it was merged.
        self._gone: dict[str, tuple[float, Segment | None]] = {}
        # When tokens of set-ups expire: the time, a number for the order, and whose session it is.
        self._expiries: list[tuple[float, int, StoreConnection, tuple[str, UUID]]] = []
        self._order = itertools.count()

    def connect(
        self,
        send: Callable[[c.Command], None],
        close: Callable[[], None],
        serves: Callable[[str], bool] = lambda name: True,
    ) -> StoreConnection:
        """Begin a connection.

        :param send: called with each reply.
        :param close: called when the store closes the connection.
        :param serves: whether a segment of this name belongs to the host that the connection leads to.
        """
        return StoreConnection(self, send, close, serves)

    def next_due(self) -> float | None:
        """Return when :meth:`run` has something to do, in seconds since 1970; None if nothing waits."""
        return self._expiries[0][0] if self._expiries else None

    def run(self) -> None:
        """Close the connections of writers whose tokens have expired."""
        while self._expiries and self._expiries[0][0] <= self._clock():
            _, _, connection, session = heappop(self._expiries)
            connection.expire(session)

    def close_at(self, time: float, connection: StoreConnection, session: tuple[str, UUID]) -> None:
        """Close a connection at a time, in seconds since 1970, if it has this session then."""
        heappush(self._expiries, (time, next(self._order), connection, session))

    def move(self, segment: Segment, stored: int) -> None:
        """Another host takes a segment over.

        :param segment: the segment.
        :param stored: how many of the blocks that were received are stored; the others are lost.
        """
        # A store whose container has stopped closes the connections with unanswered blocks.
        for block in segment.pending:
            block.connection.cut()
        for _ in range(stored):
            self.store_next(segment)
        segment.pending.clear()
        segment.used = 0
        self._ask_again(segment)

    def segment(self, name: str) -> Segment:
        """Return a segment."""
        found = self.segments.get(name)
        if found is None:
            raise Missing
        return found

    def merged(self, name: str) -> Segment:
        """Return a segment that was merged and is not forgotten so far."""
        self._forget_old()
        found = self._gone.get(name, (0.0, None))[1]
        if found is None:
            raise Missing
        return found

    def is_free(self, name: str) -> bool:
        """Whether a segment with this name could be created."""
        self._forget_old()
        return name not in self.segments and name not in self._gone

    def create(self, name: str, *, scale_type: int = 0, rate: int = 0, rollover: int = 0) -> Segment:
        """Create a segment."""
        made = self._add(name)
        made.attributes |= {
            SCALE_TYPE: scale_type,
            SCALE_RATE: rate,
            ROLLOVER: max(rollover, 0),
            SEGMENT_TYPE: 0,
        }
        return made

    def create_table(self, name: str, key_length: int, rollover: int = 0) -> Segment:
        """Create a table segment."""
        made = self._add(name)
        made.table = Table(made, max(key_length, 0))
        made.attributes |= {
            ROLLOVER: rollover if rollover > 0 else _TABLE_ROLLOVER,
            SEGMENT_TYPE: _FIXED_TABLE if key_length > 0 else _HASH_TABLE,
        }
        return made

    def create_transient(self, parent: str, writer_id: UUID) -> Segment:
        """Create a segment for a large event."""
        made = self._add(f"{parent}#transient.{writer_id.hex}.{self._random.getrandbits(128):032x}")
        made.attributes[SEGMENT_TYPE] = _TRANSIENT
        made.transient = made.known = True
        return made

    def _add(self, name: str) -> Segment:
        if name in self.segments:
            raise Exists
        now = self._now()
        made = self.segments[name] = Segment(name, now, attributes={CREATED: now}, used=now)
        return made

    def use(self, segment: Segment) -> None:
        """Note that a segment is used, so that its host knows it for a while."""
        segment.used = self._now()

    def knows(self, segment: Segment) -> bool:
        """Whether its host has a segment in memory; otherwise it looks it up first."""
        return self._now() < segment.used + 1000 * _UNUSED_AFTER

    def _now(self) -> int:
        return int(self._clock() * 1000)

    def append(
        self,
        segment: Segment,
        data: bytes | bytearray,
        *,
        attributes: Collection[c.AttributeUpdate] = (),
        at: int | None = None,
    ) -> None:
        """Append bytes and change attributes, both or neither.

        :param segment: the segment.
        :param data: the bytes.
        :param attributes: changes of attributes.
        :param at: length that the segment must have; None or a negative number for any.
        """
        if segment.sealed:
            raise Sealed
        changed = self._changed(segment, attributes)
        if at is not None and 0 <= at != segment.length:
            raise BadOffset(segment.length)
        segment.attributes |= changed
        segment.data += data
        segment.modified = segment.used = self._now()
        if data:
            self._wake(segment)

    def store_next(self, segment: Segment) -> None:
        """Come to the next block that was received for a segment."""
        block = segment.pending.popleft()
        block.connection.store(segment, block)

    def set_attributes(self, segment: Segment, updates: Collection[c.AttributeUpdate]) -> None:
        """Change attributes, all or none."""
        if segment.sealing:
            raise Sealed
        segment.attributes |= self._changed(segment, updates)

    def set_policy(self, segment: Segment, scale_type: int, rate: int) -> None:
        """Change a segment's scaling policy."""
        updates = [c.AttributeUpdate(SCALE_TYPE, 1, scale_type, 0), c.AttributeUpdate(SCALE_RATE, 1, rate, 0)]
        self.set_attributes(segment, updates)

    def _changed(self, segment: Segment, updates: Collection[c.AttributeUpdate]) -> dict[UUID, int]:
        """Return the new values of attributes. Each update is compared with what was before all of them."""
        new: dict[UUID, int] = {}
        for each in updates:
            key, value = each.attribute_id, each.new_value
            old = segment.attributes.get(key)
            match each.update_type:
                case 4 if old is None and key.int >> 64 == _CORE:
                    # It looks for others only.
                    raise BadAttribute
                case 4 if old is None:
                    # The store looks which of them are set, remembers those that are not, and begins again.
                    segment.attributes |= {
                        one.attribute_id: NULL
                        for one in updates
                        if one.attribute_id not in segment.attributes
                    }
                    return self._changed(segment, updates)
                case 0 if old is not None:
                    raise BadAttribute
                case 2 if old is not None and value <= old:
                    raise BadAttribute
                case 3 if old is not None:
                    # With one that is known not to be set, the sum runs over, as in Java.
                    value = (old + value + 2**63) % 2**64 - 2**63
                case 4 if old != each.old_value:
                    raise BadAttribute
            new[key] = value
        return new

    def seal(self, segment: Segment) -> None:
        """Seal a segment when what was received for it is stored; that ends the reads at its end."""
        if segment.sealed:
            raise Sealed
        segment.sealing = True
        while segment.pending:
            self.store_next(segment)
        segment.sealed = True
        segment.modified = self._now()
        for connection, read in segment.waiting:
            connection.send(c.SegmentIsSealed(read.request_id, segment.name, offset=read.offset))
        segment.waiting.clear()

    def merge(
        self, target: Segment, source: Segment, updates: Sequence[c.AttributeUpdate] | None = None
    ) -> int:
        """Append a segment to another one, and remove it; return the length of the target.

        The source is sealed even if the rest is refused, and events are not counted (observed). An empty one
        is only deleted.
        """
        if not source.sealed:
            self.seal(source)
        if source.start:
            # A truncated one cannot be merged.
            raise _Cut
        if source.data:
            self.append(target, source.data, attributes=updates or ())
            self._forget(source, merged=True)
        else:
            if updates is not None:
                self.set_attributes(target, updates)
            self.delete(source)
        return target.length

    def delete(self, segment: Segment) -> None:
        """Delete a segment."""
        self._forget(segment, merged=False)
        self._ask_again(segment)
        if segment.transient:
            # It is gone, and yet this is the answer (observed).
            raise Missing

    def _ask_again(self, segment: Segment) -> None:
        """Answer those who wait at the end of a segment that its host unloads."""
        waiting, segment.waiting = segment.waiting, []
        for connection, read in waiting:
            connection.send(c.SegmentRead(segment.name, read.offset, True, False, b"", read.request_id))

    def _forget_old(self) -> None:
        while self._gone and next(iter(self._gone.values()))[0] <= self._clock():
            del self._gone[next(iter(self._gone))]

    def _forget(self, segment: Segment, *, merged: bool) -> None:
        self._forget_old()
        del self.segments[segment.name]
        segment.start, segment.data = segment.length, bytearray()
        self._gone.pop(segment.name, None)
        self._gone[segment.name] = self._clock() + _FORGOTTEN_AFTER, segment if merged else None

    def _wake(self, segment: Segment) -> None:
        waiting, segment.waiting = segment.waiting, []
        for connection, read in waiting:
            connection.read(segment, read, waited=True)


@dataclass(slots=True, eq=False)
class _Session:
    """What a connection knows of a writer on a segment.

    :ivar last: number of the last block that was received.
    :ivar acked: the number acknowledged last.
    :ivar failed: whether a block was refused; those after it are not stored.
    """

    last: int
    acked: int
    failed: bool = False


@dataclass(slots=True, eq=False)
class _Block:
    """A block that was received.

    :ivar before: the number that has to be stored when it is.
    :ivar number: its number.
    :ivar count: how many events it has.
    :ivar at: length that the segment must have, or None.
    :ivar refused: whether it came too late.
    """

    connection: StoreConnection
    session: _Session
    writer_id: UUID
    request: int
    before: int
    number: int
    count: int
    data: bytes
    at: int | None
    refused: bool


class StoreConnection:
    """The store's side of one connection; see :meth:`SegmentStore.connect`."""

    def __init__(
        self,
        store: SegmentStore,
        send: Callable[[c.Command], None],
        close: Callable[[], None],
        serves: Callable[[str], bool],
    ) -> None:
        self._serves = serves
        self._store = store
        self._send = send
        self._close = close
        self._sessions: dict[tuple[str, UUID], _Session] = {}
        # The segment of a writer's latest set-up, and its last number. Blocks name only the writer.
        self._writers: dict[UUID, tuple[str, int]] = {}
        self._block: c.AppendBlock | None = None
        self._transient: set[str] = set()
        self._closed = False

    def send(self, reply: c.Command) -> None:
        """Send a reply, unless the connection was closed."""
        if not self._closed:
            self._send(reply)

    def lost(self) -> None:
        """The connection has ended: nothing is sent any more, and its transient segments are deleted."""
        if self._closed:
            return
        self._closed = True
        for segment in self._store.segments.values():
            segment.waiting = [each for each in segment.waiting if each[0] is not self]
        for name in self._transient:
            self._store.segments.pop(name, None)

    def receive(self, command: c.Command) -> None:
        """Carry out a command."""
        if self._closed:
            return
        try:
            self._carry_out(command)
        except (_Cut, DecodeError, Illegal):
            self.cut()
        except Exception:
            # As a store answers what it did not expect.
            log.exception("a %s failed", type(command).__name__)
            self.cut()

    def cut(self) -> None:
        """Close the connection."""
        if not self._closed:
            self.lost()
            self._close()

    def expire(self, session: tuple[str, UUID]) -> None:
        """The token of a session has expired: everything on the connection ends."""
        if session in self._sessions:
            self.cut()

    def _carry_out(self, command: Any) -> None:
        if self._block is not None and isinstance(command, _BETWEEN):
            raise _Cut
        match command:
            case c.Hello():
                self.send(c.Hello(c.WIRE_VERSION_HIGH, c.WIRE_VERSION_LOW))
                if command.low_version > c.WIRE_VERSION_HIGH or command.high_version < c.WIRE_VERSION_LOW:
                    raise _Cut
            case c.KeepAlive():
                self.send(command)
            case c.Padding():
                pass
            case c.SetupAppend():
                # Also if it is refused: then the blocks that follow break the connection (observed).
                self._writers[command.writer_id] = command.segment, 0
                self._answer(command)
            case c.AppendBlock():
                if command.writer_id not in self._writers:
                    raise _Cut
                self._block = command
            case c.AppendBlockEnd():
                block, self._block = self._block, None
                data = codec.appended_data(block, command)
                self._append(command, data, command.last_event_number, command.num_events, None)
            case c.ConditionalAppend():
                event = bytes(command.event)
                data = codec.HEADER.pack(c.Event.CODE, len(event)) + event
                self._append(command, data, command.event_number, 1, command.expected_offset)
            case c.ConditionalBlockEnd():
                at = command.expected_offset
                self._append(command, bytes(command.data), command.event_number, 1, at)
            case c.FlushToStorage() | c.ListStorageChunks() | c.PartialEvent() | c.Event():
                # The first two are taken at another port.
                raise _Cut
            case _ if "C" not in command.DIRECTION:
                raise _Cut
            case _:
                self._answer(command)

    def _append(self, command: Any, data: bytes, number: int, count: int, at: int | None) -> None:
        writer_id = command.writer_id
        name, last = self._writers.get(writer_id, ("", 0))
        session = self._sessions.get((name, writer_id))
        if session is None or count < 1 or number < max(last, session.last):
            raise _Cut
        self._writers[writer_id] = name, number
        if not self._serves(name):
            del self._sessions[name, writer_id]
            self.send(c.WrongHost(command.request_id, name, ""))
            return
        segment = self._store.segments.get(name)
        if segment is None:
            with suppress(Missing):
                self._store.merged(name)
                raise _Cut
            del self._sessions[name, writer_id]
            self.send(c.NoSuchSegment(command.request_id, name))
            return
        block = _Block(
            self, session, writer_id, command.request_id, session.last, number, count, data, at,
            segment.sealing,
        )  # fmt: skip
        session.last = number
        segment.pending.append(block)
        self._store.received(segment)

    def store(self, segment: Segment, block: _Block) -> None:
        """Store a block, and say so, unless one before it was refused."""
        session, writer_id, number, request = block.session, block.writer_id, block.number, block.request
        if session.failed:
            return
        updates = [
            # The same number again is stored again, and not acknowledged.
            c.AttributeUpdate(writer_id, 4, number, block.before),
            c.AttributeUpdate(EVENT_COUNT, 3, block.count, 0),
        ]
        try:
            if block.refused:
                raise Sealed
            self._store.append(segment, block.data, attributes=updates, at=block.at)
        except BadOffset:
            session.last = block.before
            self.send(c.ConditionalCheckFailed(writer_id, number, request))
        except Sealed:
            session.failed = True
            if self._sessions.get((segment.name, writer_id)) is session:
                # Another block would break the connection.
                del self._sessions[segment.name, writer_id]
            self.send(c.SegmentIsSealed(request, segment.name, offset=number))
        except BadAttribute:
            session.failed = True
            self.send(c.InvalidEventNumber(writer_id, request, event_number=number))
            self.cut()
        else:
            before, session.acked = session.acked, number
            if before < number:
                self.send(c.DataAppended(writer_id, number, before, request, segment.length))

    def read(self, segment: Segment, command: c.ReadSegment, *, waited: bool = False) -> None:
        """Answer a read, or keep it until there is something to answer.

        :param waited: whether it was kept before; then the answer says that it is at the end (observed).
        """
        offset, length = command.offset, segment.length
        if offset < 0:
            raise BadArgument("startOffset must be a non-negative number.")
        if offset < segment.start:
            reply: c.Command = c.SegmentIsTruncated(
                command.request_id, segment.name, segment.start, offset=offset
            )
        elif offset >= length and not segment.sealed:
            segment.waiting.append((self, command))
            return
        elif offset > length:
            raise _Cut
        else:
            wanted = min(_MAX_READ, max(_MIN_READ, command.suggested_length))
            at = offset - segment.start
            data = bytes(memoryview(segment.data)[at : at + wanted])
            # It does not look behind the bytes that were wanted.
            to_end = len(data) < wanted
            at_tail, ended = waited or (to_end and not segment.sealed), to_end and segment.sealed
            reply = c.SegmentRead(segment.name, offset, at_tail, ended, data, command.request_id)
        self.send(reply)

    def _answer(self, command: Any) -> None:
        """Answer a request; a refusal names the segment of the request."""
        request = getattr(command, "request_id", -1)
        name: str = getattr(command, "segment", "") or getattr(command, "segment_name", "")
        offset = -1
        match command:
            case c.MergeSegments():
                # Whichever of the two is missing (observed).
                name = command.source
            case c.MergeSegmentsBatch():
                name = command.target_segment_id
            case c.CreateTransientSegment():
                name = command.parent_segment
            case c.ReadSegment():
                offset = command.offset
            case c.TruncateSegment():
                offset = command.truncation_offset
            case c.UpdateTableEntries() | c.RemoveTableKeys():
                offset = command.table_segment_offset
        try:
            self._check_token(command, name)
        except BadToken as error:
            expired = isinstance(error, ExpiredToken)
            if expired and isinstance(command, c.SetupAppend):
                raise _Cut from error
            # A read's offset takes the place of its id (observed).
            about = offset if isinstance(command, c.ReadSegment) else request
            self.send(c.AuthTokenCheckFailed(about, "", int(expired)))
            return
        if not self._serves(name):
            self.send(c.WrongHost(request, name, ""))
            return
        try:
            reply = self._reply(command, request, name)
        except Missing:
            reply = c.NoSuchSegment(request, name, offset=offset)
        except Exists:
            reply = c.SegmentAlreadyExists(request, name)
        except Sealed:
            reply = c.SegmentIsSealed(request, name, offset=offset)
        except BadOffset as error:
            reply = c.SegmentIsTruncated(request, name, error.expected, offset=offset)
        except BadAttribute:
            reply = c.SegmentAttributeUpdated(request, False)
        except BadArgument as error:
            reply = c.ErrorMessage(request, name, str(error), 0)
        except MissingKey:
            reply = c.TableKeyDoesNotExist(request, name, "")
        except BadVersion:
            reply = c.TableKeyBadVersion(request, name, "")
        except NotEmpty:
            reply = c.TableSegmentNotEmpty(request, name, "")
        except Unsupported:
            operation = type(command).__name__
            reply = c.OperationUnsupported(request, operation[0].lower() + operation[1:])
        if reply is not None:
            self.send(reply)

    def _check_token(self, command: Any, name: str) -> None:
        """Check that a request's token allows it: mostly, reading suffices to change something as well.

        :raises BadToken: it does not.
        """
        auth = self._store.auth
        match command:
            case _ if auth is None:
                pass
            case c.CreateTransientSegment():
                # Its token is not looked at.
                pass
            case c.SetupAppend():
                expiry = auth.verify(command.delegation_token, name, "READ_UPDATE")
                self._store.close_at(expiry, self, (name, command.writer_id))
            case c.MergeSegmentsBatch():
                auth.verify(command.delegation_token, name, "READ_UPDATE")
                for source in command.source_segment_ids:
                    auth.verify(command.delegation_token, source, "READ")
            case _:
                auth.verify(command.delegation_token, name, "READ")

    def _reply(self, command: Any, request: int, name: str) -> c.Command | None:
        store = self._store
        if isinstance(command, c.CreateSegment | c.CreateTableSegment):
            if not name:
                raise _Cut
            if not store.is_free(name):
                raise Exists
        match command:
            case c.CreateSegment():
                store.create(
                    name,
                    scale_type=command.scale_type,
                    rate=command.target_rate,
                    rollover=command.rollover_size_bytes,
                )
                return c.SegmentCreated(request, name)
            case c.CreateTransientSegment():
                made = store.create_transient(command.parent_segment, command.writer_id)
                self._transient.add(made.name)
                return c.SegmentCreated(request, made.name)
            case c.CreateTableSegment():
                if command.key_length > MAX_FIXED_KEY:
                    raise _Cut
                store.create_table(name, command.key_length, command.rollover_size_bytes)
                return c.SegmentCreated(request, name)
            case c.MergeSegmentsBatch():
                return self._merge_batch(command)
            case c.MergeSegments():
                return self._merge(command)
        if name in store.segments:
            segment = store.segments[name]
            if not isinstance(command, c.GetStreamSegmentInfo):
                store.use(segment)
            return self._reply_about(segment, command, request)
        return self._reply_about_merged(store.merged(name), command, request)

    def _merge(self, command: c.MergeSegments) -> c.Command:
        store = self._store
        if any(each.update_type not in _UPDATE_TYPES for each in command.attribute_updates):
            raise _Cut
        target = store.segments.get(command.target)
        if target is not None:
            target.known = True
        source = store.segments.get(command.source)
        if source is None:
            store.merged(command.source)
        if target is None:
            store.merged(command.target)
            if source is not None and not source.sealed:
                store.seal(source)
            raise Sealed
        length = target.length if source is None else store.merge(target, source, command.attribute_updates)
        return c.SegmentsMerged(command.request_id, target.name, command.source, length)

    def _reply_about_merged(self, segment: Segment, command: Any, request: int) -> c.Command | None:
        """Answer a request about a segment that was merged a moment ago (observed)."""
        match command:
            case c.SetupAppend():
                return self._reply_about(segment, command, request)
            case c.TruncateSegment():
                if not 0 <= command.truncation_offset <= segment.length:
                    raise BadOffset(0)
                return c.SegmentTruncated(request, segment.name)
            case c.ReadSegment() | c.UpdateSegmentAttribute() | c.UpdateSegmentPolicy():
                raise _Cut
        raise Missing

    def _merge_batch(self, command: c.MergeSegmentsBatch) -> c.Command:
        if not command.source_segment_ids:
            return c.SegmentsBatchMerged(command.request_id, command.target_segment_id, ())
        target = self._store.segments.get(command.target_segment_id)
        if target is None:
            self._store.merged(command.target_segment_id)
            for name in command.source_segment_ids:
                # For one that is not there the store asks how long the target is.
                unsealed = self._store.segment(name)
                if not unsealed.sealed:
                    self._store.seal(unsealed)
            raise Sealed
        target.known = True
        segments, names = self._store.segments, command.source_segment_ids
        merged = [c.MergedSource(name, 0) for name in names]

        def is_later(index: int) -> bool:
            source = segments.get(names[index])
            return source is not None and not self._store.knows(source)

        # What has to be looked up comes after the rest.
        for index in sorted(range(len(names)), key=is_later):
            source = segments.get(names[index])
            # One that is not there counts as merged.
            length = target.length
            with suppress(Missing):
                length = length if source is None else self._store.merge(target, source)
            merged[index] = c.MergedSource(names[index], length)
        return c.SegmentsBatchMerged(command.request_id, target.name, tuple(merged))

    def _reply_about(self, segment: Segment, command: Any, request: int) -> c.Command | None:
        known, segment.known = (
            segment.known,
            segment.known or not isinstance(command, c.GetStreamSegmentInfo | c.GetSegmentAttribute),
        )
        try:
            return self._reply_if_legal(segment, command, request)
        except BadArgument:
            if known and isinstance(command, c.ReadSegment | c.TruncateSegment):
                raise _Cut from None
            raise

    def _reply_if_legal(self, segment: Segment, command: Any, request: int) -> c.Command | None:
        store, name = self._store, segment.name
        match command:
            case c.SetupAppend() | c.UpdateSegmentAttribute() if segment.has_keys_for_attributes:
                raise _Cut
            case c.SetupAppend():
                last = segment.attributes.setdefault(command.writer_id, NULL)
                self._sessions[name, command.writer_id] = _Session(last, last)
                return c.AppendSetup(request, name, command.writer_id, last)
            case c.ReadSegment():
                self.read(segment, command)
                return None
            case c.GetStreamSegmentInfo():
                return c.StreamSegmentInfo(
                    request, name, True, segment.sealed, False, segment.modified, segment.length,
                    segment.start,
                )  # fmt: skip
            case c.SealSegment():
                store.seal(segment)
                return c.SegmentSealed(request, name)
            case c.TruncateSegment():
                if command.truncation_offset < 0:
                    raise BadArgument("offset must be a non-negative number.")
                segment.truncate(command.truncation_offset)
                return c.SegmentTruncated(request, name)
            case c.DeleteSegment():
                store.delete(segment)
                return c.SegmentDeleted(request, name)
            case c.GetSegmentAttribute():
                return c.SegmentAttribute(request, segment.attributes.get(command.attribute_id, NULL))
            case c.UpdateSegmentAttribute():
                update = c.AttributeUpdate(command.attribute_id, 4, command.new_value, command.expected_value)
                store.set_attributes(segment, [update])
                return c.SegmentAttributeUpdated(request, True)
            case c.UpdateSegmentPolicy():
                store.set_policy(segment, command.scale_type, command.target_rate)
                return c.SegmentPolicyUpdated(request, name)
        if segment.table is None:
            raise _Cut
        return self._reply_about_table(segment, segment.table, command, request)

    def _reply_about_table(self, segment: Segment, table: Table, command: Any, request: int) -> c.Command:
        name = segment.name
        match command:
            case c.GetTableSegmentInfo():
                return c.TableSegmentInfo(
                    request, name, segment.start, segment.length, len(table), table.key_length
                )
            case c.DeleteTableSegment():
                if command.must_be_empty:
                    if table.key_length:
                        raise Unsupported
                    if len(table):
                        raise NotEmpty
                self._store.delete(segment)
                return c.SegmentDeleted(request, name)
            case c.UpdateTableEntries():
                versions = table.put(
                    command.table_entries, command.table_segment_offset, sealed=segment.sealed
                )
                return c.TableEntriesUpdated(request, tuple(versions))
            case c.RemoveTableKeys():
                table.remove(command.keys, command.table_segment_offset, sealed=segment.sealed)
                return c.TableKeysRemoved(request, name)
            case c.ReadTable():
                return c.TableRead(request, name, tuple(table.get(each.data) for each in command.keys))
            case c.ReadTableKeys() | c.ReadTableEntries():
                args = command.args
                keys, token = table.listed(
                    args.continuation_token, args.from_key, args.to_key,
                    command.suggested_key_count
                    if isinstance(command, c.ReadTableKeys)
                    else command.suggested_entry_count,
                    values=isinstance(command, c.ReadTableEntries),
                )  # fmt: skip
                if isinstance(command, c.ReadTableKeys):
                    return c.TableKeysRead(request, name, tuple(keys), token)
                entries = tuple(table.get(each.data) for each in keys)
                return c.TableEntriesRead(request, name, entries, token)
            case c.ReadTableEntriesDelta():
                found, clear, end, position = table.changes(
                    command.from_position, command.suggested_entry_count
                )
                return c.TableEntriesDeltaRead(request, name, tuple(found), clear, end, position)
        raise _Cut
