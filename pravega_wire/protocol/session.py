"""One connection to a segment store, without I/O: versions, flows and their request ids, keep-alives.

A flow is one user of the connection: an append session, a segment reader, or a client of single requests. The
high 32 bits of a request id name the flow that a reply belongs to (``docs/protocol/wire.md``, "Request ids
and flows"). Bytes go in, replies come out. The caller owns the socket and the clock, so a blocking socket, an
event loop, a record of bytes or a fuzzer can drive it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Generic, NoReturn, TypeVar

from pravega_wire.errors import (
    ConnectionLostError,
    IncompatibleVersionError,
    PravegaError,
    ServerTooOldError,
    TokenExpiredError,
    TruncatedInputError,
    UnexpectedReplyError,
)
from pravega_wire.protocol import codec
from pravega_wire.protocol.commands import (
    RELEASES,
    WIRE_VERSION_HIGH,
    WIRE_VERSION_LOW,
    AuthTokenCheckFailed,
    Command,
    Hello,
    InvalidEventNumber,
    KeepAlive,
    reply_request_id,
)
from pravega_wire.protocol.frames import FrameDecoder

__all__ = ["GREETING", "KEEPALIVE", "TICKS_OF_SILENCE", "Features", "RequestIds", "Session", "senseless"]

GREETING: Final = codec.encode(Hello(high_version=WIRE_VERSION_HIGH, low_version=WIRE_VERSION_LOW))
"""The first bytes of a connection, from either side."""

KEEPALIVE: Final = codec.encode(KeepAlive())

TICKS_OF_SILENCE: Final = 3
"""Number of ticks without a byte in either direction after which a connection is lost.

A store echoes each keep-alive, so a store that sends nothing at all for that long is gone. The first
keep-alive is sent after one tick.
"""

_EVENT_NUMBER_LAST: Final = 16
# The wire version since which InvalidEventNumber has a request id, in the place of the event number.

_SEQUENCE_MASK: Final = 0x0FFFFFFF
_MAX_FLOW_ID: Final = 0x7FFFFFFF

F = TypeVar("F")


@dataclass(frozen=True, slots=True)
class Features:
    """What a store can do, as its greeting tells.

    Stores accept clients of every version, and close the connection on a command that they do not know.

    :ivar host: ``host:port`` of the store.
    :ivar low: the lowest wire version that it accepts.
    :ivar high: the highest wire version that it speaks.
    """

    host: str
    low: int
    high: int

    @property
    def release(self) -> str:
        """The version of Pravega, such as ``"0.11 or 0.12"``."""
        known = RELEASES.get(self.high)
        return " or ".join(known) if known else f"unknown (wire version {self.high})"

    def check(self, command: type[Command], doing: str) -> None:
        """Check that the store knows a command.

        :param doing: what is being done by it, for the message ("writing an event over 8 MiB to s/t").
        :raises ServerTooOldError: it does not.
        """
        if self.high < command.SINCE:
            needed = RELEASES[command.SINCE][0]
            raise ServerTooOldError(
                f"{doing} needs Pravega {needed} or newer: {self.host} is {self.release}",
                feature=doing,
                needed=needed,
                found=self.release,
                host=self.host,
            )


class RequestIds:
    """The request ids of one flow.

    :param flow_id: number of the flow.
    """

    __slots__ = ("_sequence", "flow_id")

    def __init__(self, flow_id: int) -> None:
        self.flow_id = flow_id
        self._sequence = 0

    @property
    def base_request_id(self) -> int:
        """The flow's request id with sequence number 0; append sessions use only this one."""
        return self.flow_id << 32

    def next_request_id(self) -> int:
        """Return a request id that this flow has not used for its last 2^28 requests."""
        self._sequence = (self._sequence + 1) & _SEQUENCE_MASK
        return (self.flow_id << 32) | self._sequence


class Session(Generic[F]):
    """The state of one connection to a segment store.

    Send :data:`GREETING` first. Write what arrives to :meth:`get_buffer`, then iterate over
    :meth:`received`. Call :meth:`begin_tick` and, a third of the longest silence later, :meth:`end_tick`.

    :param host: ``host:port`` of the store, for messages.
    :param silence: seconds without any byte in either direction after which the connection is lost.
    :param decoder: decodes the store's bytes; default: a new one.
    :ivar flows: the object of each open flow, by the flow's number.
    :ivar moved: whether bytes were received, or accepted by the peer, in this tick. The caller sets it for
        the latter.
    :ivar features: what the store can do; None before its greeting.
    """

    __slots__ = (
        "_decoder", "_host", "_next_flow_id", "_silence", "_silent_ticks", "features", "flows", "moved",
    )  # fmt: skip

    def __init__(self, host: str, silence: float, decoder: FrameDecoder | None = None) -> None:
        self._host = host
        self._silence = silence
        self._decoder = FrameDecoder() if decoder is None else decoder
        self._next_flow_id = 1
        self._silent_ticks = 0
        self.flows: dict[int, F] = {}
        self.moved = True
        self.features: Features | None = None

    # --- flows ----------------------------------------------------------------------------------

    def new_flow_id(self) -> int:
        """Return a number for a new flow. The caller adds the flow to :attr:`flows` before the next call."""
        flow_id = self._next_flow_id
        while flow_id in self.flows:
            flow_id = 1 if flow_id >= _MAX_FLOW_ID else flow_id + 1
        self._next_flow_id = 1 if flow_id >= _MAX_FLOW_ID else flow_id + 1
        return flow_id

    def flow_of(self, reply: Command) -> F | None:
        """Return the flow whose request this reply names, or None if there is none (any more)."""
        return self.flows.get(reply_request_id(reply) >> 32)

    # --- receiving ------------------------------------------------------------------------------

    def get_buffer(self) -> memoryview:
        """Return the memory for the next bytes (never empty)."""
        return self._decoder.get_buffer()

    @property
    def in_body(self) -> bool:
        """Whether :meth:`get_buffer` is exactly the missing part of a large body."""
        return self._decoder.in_body

    def received(self, count: int) -> Iterator[Command]:
        """Return the replies completed by ``count`` bytes written to the last :meth:`get_buffer`.

        Greetings are checked, and keep-alives dropped.

        :raises ProtocolError: the bytes are malformed, or a command that only clients send. (Zeros, for
            example, are empty events. What they stand in the place of would never come.)
        :raises IncompatibleVersionError: the store and this client support no common wire version.
        """
        self.moved = True
        self._silent_ticks = 0
        for reply in self._decoder.received(count):
            kind = type(reply)
            if kind is KeepAlive:
                continue
            if kind is Hello:
                self._check_version(reply)
                continue
            if kind.DIRECTION == "C":
                raise UnexpectedReplyError(
                    f"{self._host} sent {kind.__name__}, which only clients send", host=self._host
                )
            if kind is InvalidEventNumber and self.features and self.features.high < _EVENT_NUMBER_LAST:
                reply = _before_13(reply)
            yield reply

    def _check_version(self, hello: Command) -> None:
        assert isinstance(hello, Hello)
        self.features = Features(self._host, hello.low_version, hello.high_version)
        if hello.low_version > WIRE_VERSION_HIGH or hello.high_version < WIRE_VERSION_LOW:
            raise IncompatibleVersionError(
                f"{self._host} supports wire versions {hello.low_version} to {hello.high_version}, and "
                f"this client {WIRE_VERSION_LOW} to {WIRE_VERSION_HIGH}",
                host=self._host,
            )

    def check_unclaimed(self, reply: Command) -> None:
        """Check a reply that matches no request: a late reply to a cancelled request, or a refused read.

        :raises TokenExpiredError: a read was refused because of its token.
        :raises ConnectionLostError: a store before 0.13 refused an append, without saying which request's.
        """
        if type(reply) is InvalidEventNumber and reply.request_id < 0:
            # It closes the connection now, and another session finds out what is stored.
            raise ConnectionLostError(
                f"{self._host} refused event {reply.event_number} of writer {reply.writer_id}: the stored "
                "event number is not the one that its session expects",
                host=self._host,
            )
        if type(reply) is AuthTokenCheckFailed:
            # The server puts a refused read's *offset* in place of the request id (docs/protocol/wire.md,
            # "Reading with a token that is refused"). The flow cannot be found, so every flow of this
            # connection starts again with a fresh token.
            raise TokenExpiredError(
                f"{self._host} refused a read because of its delegation token", host=self._host
            )

    def ended(self) -> NoReturn:
        """Report that the store has closed the connection.

        :raises ConnectionLostError: always.
        """
        try:
            self._decoder.eof()
        except TruncatedInputError as cause:
            # Not a ProtocolError: the peer has died, and another connection may work.
            raise ConnectionLostError(
                f"connection to {self._host} ended in the middle of a message", host=self._host
            ) from cause
        raise ConnectionLostError(f"connection to {self._host} was closed by the server", host=self._host)

    # --- silence --------------------------------------------------------------------------------

    @property
    def tick(self) -> float:
        """Seconds between :meth:`begin_tick` and :meth:`end_tick`."""
        return self._silence / TICKS_OF_SILENCE

    def begin_tick(self) -> None:
        """Begin to watch whether bytes move."""
        self.moved = False

    def end_tick(self, *, queued: bool = False) -> bytes:
        """Return what to send after a tick: a keep-alive, or nothing.

        Ticks are counted instead of seconds: a process that was suspended for a while did not listen either.

        :param queued: whether other bytes are waiting to be sent, which tell as much as a keep-alive.
        :raises ConnectionLostError: nothing was received or accepted for all ticks.
        """
        self._decoder.trim()
        if self.moved:
            self._silent_ticks = 0
            return b""
        self._silent_ticks += 1
        if self._silent_ticks >= TICKS_OF_SILENCE:
            raise self.fell_silent(self._silence)
        return b"" if queued else KEEPALIVE

    def fell_silent(self, seconds: float) -> ConnectionLostError:
        """Return the error for a connection on which nothing was received or sent for ``seconds``."""
        return ConnectionLostError(
            f"{self._host} has sent nothing for {seconds:.3g} s, not even the answer to a "
            "keep-alive, and has accepted no bytes",
            host=self._host,
        )


def _before_13(reply: Command) -> Command:
    """Return an InvalidEventNumber of a store before 0.13, read as if it were of 0.13, as what it says."""
    assert isinstance(reply, InvalidEventNumber)
    return replace(reply, request_id=-1, event_number=reply.request_id)


def senseless(found: PravegaError, host: str) -> PravegaError:
    """Return the error for malformed bytes, with the name of the host that sent them."""
    if found.host is not None:
        return found
    error = type(found)(f"{host}: {found.message}", host=host)
    error.__cause__ = found
    return error
