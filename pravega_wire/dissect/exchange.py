"""The exchange on connections: frames with their fields, replies with their requests. No I/O.

Not public.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final
from uuid import UUID

from pravega_wire.dissect.frames import FrameSplitter, LostBytes, RawFrame
from pravega_wire.errors import DecodeError
from pravega_wire.protocol import commands as c
from pravega_wire.protocol import specs
from pravega_wire.protocol.codec import HEADER
from pravega_wire.support.secrecy import without_secrets
from pravega_wire.values.types import Endpoint, endpoint_text

__all__ = ["HIDDEN", "Connection", "Frame", "Note"]

HIDDEN: Final = "[hidden]"
"""What stands in place of a delegation token."""

_TOKEN: Final = "delegation_token"
_WITH_TOKEN: Final = frozenset(
    each for each in c.COMMANDS.values() if any(one.name == _TOKEN for one in c.field_specs(each))
)
_TOKEN_BYTES: Final = re.compile(rb"eyJ[A-Za-z0-9_=-]+(?:\.[A-Za-z0-9_=-]*)*")
# A server answers all of these; what is not here and not an append has no reply of its own.
_WITHOUT_REPLY: Final = frozenset({c.AppendBlock, c.Padding, c.PartialEvent, c.Event})
_APPENDS: Final = frozenset({c.AppendBlockEnd, c.ConditionalAppend, c.ConditionalBlockEnd})
# Requests that are remembered until their replies come; the oldest is forgotten first.
_MAX_PENDING: Final = 100_000


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a connection.

    :ivar number: number of the frame among those of all connections, from 1.
    :ivar time: when its last byte passed, in nanoseconds since 1970.
    :ivar connection: number of the connection, from 1.
    :ivar source: address and port of the sender.
    :ivar target: address and port of the receiver.
    :ivar sender: ``C`` if the client has sent it, ``S`` if the server has.
    :ivar code: its command code.
    :ivar command: name of the command; empty if there is none with this code.
    :ivar length: length of its body in bytes.
    :ivar fields: its fields in their order; of a frame that cannot be decoded, those before the damage.
        Delegation tokens are replaced by ``[hidden]``.
    :ivar error: why it cannot be decoded, or None.
    :ivar raw: the bytes of a frame that cannot be decoded, with its header, and ``*`` in place of tokens;
        otherwise empty.
    :ivar answers: numbers of the frames that this frame answers: one request, or the appends that it
        acknowledges or refuses.
    :ivar elapsed: nanoseconds since the last of them, or None.
    :ivar unknown: number of bytes after the last field that this version knows; such bytes are ignored.
    """

    number: int
    time: int
    connection: int
    source: Endpoint
    target: Endpoint
    sender: str
    code: int
    command: str
    length: int
    fields: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    raw: bytes = b""
    answers: tuple[int, ...] = ()
    elapsed: int | None = None
    unknown: int = 0


@dataclass(frozen=True, slots=True)
class Note:
    """Something else that happened.

    :ivar kind: ``opened``, ``closed``, ``lost`` (bytes without frames), ``unanswered`` (a request without a
        reply) or ``unacknowledged`` (an append without one).
    :ivar time: in nanoseconds since 1970.
    :ivar connection: number of the connection; 0 for one that could not be made.
    :ivar text: what happened.
    :ivar frame: number of the frame that it is about, or None.
    """

    kind: str
    time: int
    connection: int
    text: str
    frame: int | None = None


@dataclass(frozen=True, slots=True)
class _Request:
    """A request that waits for its reply."""

    number: int
    time: int
    command: type[c.Command]
    request_id: int
    writer_id: UUID | None
    event_number: int
    events: int


class Connection:
    """One connection: the frames of both sides. It is given their bytes and does no I/O.

    :param client: address of the client.
    :param server: address of the segment store.
    :param number: its number.
    :param frames: the numbers of its frames, where several connections share them; default: from 1.
    """

    def __init__(
        self, client: Endpoint, server: Endpoint, number: int = 1, *, frames: Iterator[int] | None = None
    ) -> None:
        self.number = number
        self.client = client
        self.server = server
        self._numbers = count(1) if frames is None else frames
        self._sides = {each: FrameSplitter() for each in (client, server)}
        self._pending: OrderedDict[int, _Request] = OrderedDict()
        self._by_id: dict[int, dict[int, _Request]] = {}

    def feed(self, source: Endpoint, data: bytes, time: int) -> Iterator[Frame | Note]:
        """Return what is complete with these bytes from one side.

        :param source: the client's address, or the server's.
        :param data: what it has sent after its bytes before.
        :param time: when, in nanoseconds since 1970.
        """
        for each in self._sides[source].feed(data):
            yield self._found(source, each, time)

    def end(self, time: int, how: str) -> Iterator[Frame | Note]:
        """The connection has ended: report what is left over, and requests without replies.

        :param time: when, in nanoseconds since 1970.
        :param how: how it ended, in words.
        """
        for address, side in self._sides.items():
            for each in side.end():
                yield self._found(address, each, time)
        for request in self._pending.values():
            append = request.command in _APPENDS
            yield Note(
                "unacknowledged" if append else "unanswered",
                time,
                self.number,
                f"{request.command.__name__} in frame {request.number}"
                + (
                    f" (writer {request.writer_id}, event number {request.event_number}, {request.events} "
                    f"events) was not acknowledged before {how}"
                    if append
                    else f" was not answered before {how}"
                ),
                request.number,
            )
        self._pending.clear()
        self._by_id.clear()

    # --- frames ---------------------------------------------------------------------------------

    def _found(self, source: Endpoint, found: RawFrame | LostBytes, time: int) -> Frame | Note:
        if isinstance(found, RawFrame):
            return self._frame(source, found, time)
        text = f"{endpoint_text(source)} to {endpoint_text(self._other(source))}: {found.reason}"
        return Note("lost", time, self.number, text)

    @property
    def name(self) -> str:
        """Both addresses, for a message."""
        return f"{endpoint_text(self.client)} to {endpoint_text(self.server)}"

    def _other(self, address: Endpoint) -> Endpoint:
        return self.server if address == self.client else self.client

    def _frame(self, source: Endpoint, raw: RawFrame, time: int) -> Frame:
        command = c.COMMANDS.get(raw.code)
        sender = "C" if source == self.client else "S"
        number = next(self._numbers)
        fields, end, error, shown = decode(raw)
        unknown = 0 if error else len(raw.body) - end
        answers: tuple[int, ...] = ()
        elapsed = None
        if error is None and command is not None:
            if sender == "C" and command.DIRECTION != "S":
                self._remember(number, time, command, fields)
            elif sender == "S" and command.DIRECTION != "C":
                answered = self._answered(command, fields)
                answers = tuple(each.number for each in answered)
                elapsed = time - answered[-1].time if answered else None
            else:
                error = f"{command.__name__} came from the {'client' if sender == 'C' else 'server'}"
        return Frame(
            number,
            time,
            self.number,
            source,
            self._other(source),
            sender,
            raw.code,
            command.__name__ if command else "",
            len(raw.body),
            fields,
            error,
            shown,
            answers,
            elapsed,
            unknown,
        )

    # --- requests and replies -------------------------------------------------------------------

    def _remember(self, number: int, time: int, command: type[c.Command], fields: dict[str, Any]) -> None:
        if command in _WITHOUT_REPLY:
            return
        request_id = _id_of(command, fields)
        request = _Request(
            number,
            time,
            command,
            request_id,
            fields.get("writer_id"),
            fields.get("last_event_number", fields.get("event_number", 0)),
            fields.get("num_events", 1),
        )
        self._pending[number] = request
        self._by_id.setdefault(request_id, {})[number] = request
        if len(self._pending) > _MAX_PENDING:
            self._forget([next(iter(self._pending.values()))])

    def _answered(self, reply: type[c.Command], fields: dict[str, Any]) -> list[_Request]:
        """Return the requests that a reply answers, and forget them."""
        waiting = self._by_id.get(_id_of(reply, fields), {}).values()
        if fields.get("request_id") == -1 and "writer_id" in fields:
            # A peer that leaves out this optional field: writer id and event number tell as much.
            waiting = self._pending.values()
        if reply is c.DataAppended:
            # One reply acknowledges everything of its writer up to its number.
            found = [
                each
                for each in waiting
                if each.command in _APPENDS
                and each.writer_id == fields["writer_id"]
                and each.event_number <= fields["event_number"]
            ]
        elif reply is c.ConditionalCheckFailed:
            found = [
                each
                for each in waiting
                if each.writer_id == fields["writer_id"] and each.event_number == fields["event_number"]
            ][:1]
        else:
            # A refusal of an append session refuses everything that is under way in it.
            found = [each for each in waiting if each.command not in _APPENDS][:1]
            if not found and reply in c.FAILURES:
                found = list(waiting)
        self._forget(found)
        return found

    def _forget(self, requests: list[_Request]) -> None:
        for each in requests:
            del self._pending[each.number]
            waiting = self._by_id[each.request_id]
            del waiting[each.number]
            if not waiting:
                del self._by_id[each.request_id]


def _id_of(command: type[c.Command], fields: dict[str, Any]) -> int:
    if command in (c.Hello, c.KeepAlive):
        # Not request ids: those are not negative.
        return -1000 - command.CODE
    found: int = fields.get("request_id", -1)
    return found


# --- fields --------------------------------------------------------------------------------------


def decode(raw: RawFrame) -> tuple[dict[str, Any], int, str | None, bytes]:
    """Decode a frame.

    :returns: its fields; the end of the last of them; why the rest cannot be decoded, and then the whole
        frame's bytes. Tokens are hidden in all of them.
    """
    command = c.COMMANDS.get(raw.code)
    header = HEADER.pack(raw.code, len(raw.body))
    if command is None:
        reason = f"command code {raw.code} does not exist in wire version {c.WIRE_VERSION_HIGH}"
        return {}, 0, reason, header + _TOKEN_BYTES.sub(HIDDEN.encode(), raw.body)
    fields: dict[str, Any] = {}
    error: str | None = None
    end = 0
    token: tuple[int, int] | None = None
    try:
        for each in specs.fields_of(command, raw.body):
            end = each.end
            if each.name == _TOKEN:
                token = (each.start, each.end)
                fields[each.name] = HIDDEN if each.value else ""
            elif isinstance(each.value, str):
                fields[each.name] = without_secrets(each.value)
            else:
                fields[each.name] = each.value
    except DecodeError as failure:
        error = without_secrets(str(failure))
    if error is None:
        return fields, end, None, b""
    body = raw.body
    if token is not None:
        at = min(token[0] + 2, token[1])
        body = body[:at] + b"*" * (token[1] - at) + body[token[1] :]
    elif command in _WITH_TOKEN:
        # Where the token is cannot be told any more: what may hold it is not shown.
        body = body[:end]
    return fields, end, error, header + _TOKEN_BYTES.sub(HIDDEN.encode(), body)
