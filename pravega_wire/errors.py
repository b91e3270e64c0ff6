"""Every error this package raises, under one root.

A caller catches :class:`PravegaError` for "anything went wrong with Pravega", or one of the
branches below for a reason. Each error carries typed attributes that name what it is about, so
nobody has to parse a message, and a class attribute ``retriable`` that says whether the same call
may succeed later without a change by the caller.

Runtime errors (``OSError``, ``ssl``, ``h2``, ``trio`` resource errors) are mapped to these in
``pravega_wire.transport`` and nowhere else; ``trio.Cancelled`` always passes through.

Where trio has an error of its own for the same thing, ours is that one as well: :class:`ClosedError`,
:class:`ConcurrentUseError` and :class:`BrokenStreamError`. Code that knows trio only can handle them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar, TypedDict, Unpack
from uuid import UUID

import trio

__all__ = [
    "ArgumentTypeError",
    "AuthError",
    "AuthenticationError",
    "BrokenStreamError",
    "CheckpointError",
    "CheckpointTimeoutError",
    "ClosedError",
    "ConcurrentUseError",
    "ConditionalCheckError",
    "ConnectError",
    "ConnectionLostError",
    "ControllerError",
    "CorruptedStateError",
    "DataLossError",
    "DecodeError",
    "EncodeError",
    "EventTooLargeError",
    "FencedError",
    "FrameTooLargeError",
    "HostNotFoundError",
    "IncompatibleVersionError",
    "IngestError",
    "IngestedSourceChangedError",
    "IngestedStreamGoneError",
    "InvalidArgumentError",
    "InvalidEventNumberError",
    "InvalidStreamCutError",
    "KeyValueTableNotFoundError",
    "MissingExtraError",
    "MixedPrimaryKeysError",
    "NoSuchSegmentError",
    "NotFoundError",
    "OperationUnsupportedError",
    "PermissionDeniedError",
    "PravegaError",
    "PravegaTimeoutError",
    "ProtocolError",
    "ReaderGroupError",
    "ReaderGroupNotFoundError",
    "ReinitializationRequiredError",
    "RetriesExhaustedError",
    "ScaleConflictError",
    "ScopeBrokenError",
    "ScopeNotEmptyError",
    "ScopeNotFoundError",
    "SealedStateError",
    "SegmentError",
    "SegmentExistsError",
    "SegmentSealedError",
    "SegmentTruncatedError",
    "ServerEndedError",
    "ServerStartError",
    "StreamChangingError",
    "StreamNotFoundError",
    "StreamNotSealedError",
    "StreamSealedError",
    "TableError",
    "TableKeyBadVersionError",
    "TableKeyDoesNotExistError",
    "TableKeyLengthError",
    "TableOutcomeUnknownError",
    "TableSegmentNotEmptyError",
    "TableValueTooLargeError",
    "TlsError",
    "TokenExpiredError",
    "TransactionAbortedError",
    "TransactionError",
    "TransactionExpiredError",
    "TransactionNotOpenError",
    "TransactionOutcomeUnknownError",
    "TransactionUnknownError",
    "TransportError",
    "TruncatedInputError",
    "UndecidableCutError",
    "UnexpectedReplyError",
    "UnknownCommandError",
    "WriterHistoryLostError",
    "WrongHostError",
    "WrongProtocolError",
]


class Names(TypedDict, total=False):
    """What every error takes besides its message and its own fields."""

    scope: str | None
    stream: str | None
    segment: str | None
    transaction: UUID | None
    host: str | None


class PravegaError(Exception):
    """Root of every error of this package. Errors can be pickled, without their cause.

    :ivar scope: scope name, where the error is about one.
    :ivar stream: stream name without its scope, where the error is about one.
    :ivar segment: full segment name (``scope/stream/0.#epoch.0``), where the error is about one.
    :ivar transaction: transaction id, where the error is about one.
    :ivar host: ``host:port`` of the peer, where the error is about a connection.
    """

    retriable: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        scope: str | None = None,
        stream: str | None = None,
        segment: str | None = None,
        transaction: UUID | None = None,
        host: str | None = None,
    ) -> None:
        super().__init__(message)
        self.scope = scope
        self.stream = stream
        self.segment = segment
        self.transaction = transaction
        self.host = host

    @property
    def message(self) -> str:
        """The sentence a person reads (str)."""
        return str(self.args[0])

    def __reduce__(self) -> tuple[Any, ...]:
        # Not by calling the class: each has other fields, which come with the attributes.
        return _restored, (type(self), self.args), self.__dict__


def _restored(kind: type[PravegaError], args: tuple[str, ...]) -> PravegaError:
    """An error as it was pickled, before its attributes are put back."""
    error = kind.__new__(kind, *args)
    PravegaError.__init__(error, *args)
    return error


# --- the caller's own mistakes, found before any I/O ---------------------------------------------


class InvalidArgumentError(PravegaError, ValueError):
    """An argument or setting is not acceptable; nothing was sent."""


class ArgumentTypeError(InvalidArgumentError, TypeError):
    """An argument is of a type that is not acceptable; nothing was sent."""


class EventTooLargeError(InvalidArgumentError):
    """An event, or an atomic batch of events, is over the size limit.

    :ivar size: bytes asked for.
    :ivar limit: bytes allowed.
    """

    def __init__(self, message: str, *, size: int, limit: int, **names: Unpack[Names]) -> None:
        super().__init__(message, **names)
        self.size = size
        self.limit = limit


class TableKeyLengthError(InvalidArgumentError):
    """A key does not have the length that its table was created with.

    :ivar length: bytes it has.
    :ivar expected: bytes it must have.
    """

    def __init__(self, message: str, *, length: int, expected: int, **names: Unpack[Names]) -> None:
        super().__init__(message, **names)
        self.length = length
        self.expected = expected


class TableValueTooLargeError(InvalidArgumentError):
    """A value, or an atomic update as a whole, is over the limit of key-value tables.

    :ivar size: bytes asked for.
    :ivar limit: bytes allowed.
    """

    def __init__(self, message: str, *, size: int, limit: int, **names: Unpack[Names]) -> None:
        super().__init__(message, **names)
        self.size = size
        self.limit = limit


class MixedPrimaryKeysError(InvalidArgumentError):
    """An atomic update names several primary keys; those of one update share theirs."""


class InvalidStreamCutError(InvalidArgumentError):
    """A stream cut is malformed, of another stream, or does not fit the stream's segments."""


class UndecidableCutError(PravegaError):
    """What is known of a stream's segments does not answer a question about its cuts; ``segment`` names the
    one of which too little is known. A layout that is fetched anew may know more."""


class StreamChangingError(PravegaError):
    """A stream was scaled or truncated each time while its segments were asked for; a later call may do."""

    retriable = True


class ClosedError(PravegaError, trio.ClosedResourceError):
    """The client, writer, reader or transaction was used after it was closed, or closed during the call."""


class ConcurrentUseError(PravegaError, trio.BusyResourceError):
    """Two tasks used something at the same time that is for one task at a time.

    The call that raises this has done nothing, and the other one is not disturbed.
    """


class BrokenStreamError(PravegaError, trio.BrokenResourceError):
    """The writer of a byte stream has failed and takes no more bytes; ``__cause__`` says why."""


class MissingExtraError(PravegaError, ImportError):
    """What was called needs a package that is not installed; the message names the extra that brings it."""


# --- bytes that make no sense ---------------------------------------------------------------------


class ProtocolError(PravegaError):
    """The peer broke the protocol, or we were asked to."""


class DecodeError(ProtocolError):
    """Received or stored bytes cannot be decoded."""


class TruncatedInputError(DecodeError):
    """The bytes end in the middle of a frame, record or event."""


class FrameTooLargeError(DecodeError):
    """A frame's length field is negative or over the protocol's limit."""


class UnknownCommandError(DecodeError):
    """A frame has a command code that this protocol version does not know."""


class EncodeError(ProtocolError):
    """A value does not fit its wire format (for instance a string over 65535 bytes)."""


class IncompatibleVersionError(ProtocolError):
    """The peer's range of wire versions does not overlap ours."""


class UnexpectedReplyError(ProtocolError):
    """The peer answered a request with a reply that cannot belong to it."""


# --- the network ----------------------------------------------------------------------------------


class TransportError(PravegaError):
    """A connection could not be made or was lost."""

    retriable = True


class ConnectError(TransportError):
    """No connection to the host could be made."""


class HostNotFoundError(ConnectError):
    """Nobody knows the host by this name: it is misspelt, or of another network."""

    retriable = False


class WrongProtocolError(ConnectError, ProtocolError):
    """What listens at the address is something else than what was looked for; the message says what."""

    retriable = False


class ConnectionLostError(TransportError):
    """An established connection ended while it was in use."""


class TlsError(TransportError):
    """The TLS handshake or certificate check failed."""

    retriable = False


class PravegaTimeoutError(PravegaError, TimeoutError):
    """An operation's own deadline passed (never raised for a trio cancellation)."""

    retriable = True


class RetriesExhaustedError(PravegaError):
    """Every attempt of a retried operation failed; ``__cause__`` is the last failure."""


# --- who may do what ------------------------------------------------------------------------------


class AuthError(PravegaError):
    """Credentials or tokens were refused."""


class AuthenticationError(AuthError):
    """No credentials, or wrong ones."""


class PermissionDeniedError(AuthError):
    """The credentials are good but do not allow this operation."""


class TokenExpiredError(AuthError):
    """The delegation token is too old; a fresh one is fetched before the user sees this."""

    retriable = True


# --- the controller -------------------------------------------------------------------------------


class ControllerError(PravegaError):
    """The controller refused or failed a call.

    :ivar rpc: name of the rpc (str), or None where the error is about more than one call.
    :ivar status: the gRPC status name or the status in the reply (str), or None like ``rpc``.
    """

    def __init__(
        self, message: str, *, rpc: str | None = None, status: str | None = None, **names: Unpack[Names]
    ) -> None:
        super().__init__(message, **names)
        self.rpc = rpc
        self.status = status


class NotFoundError(ControllerError):
    """The thing asked for does not exist."""


class WriterHistoryLostError(ControllerError):
    """What a resumable writer has stored cannot be found out: the segments that knew were truncated away."""


class ScopeNotFoundError(NotFoundError):
    """The scope does not exist."""


class ScopeNotEmptyError(ControllerError):
    """The scope still holds streams, reader groups or tables."""


class ScopeBrokenError(ControllerError):
    """The scope exists, but the controller has lost tables that it keeps of the scope, or is deleting it.

    A 0.13.0 controller loses them when it is asked to delete a scope that is not empty. Streams without tags
    still work. Nothing brings the tables back: copy what is needed to another scope, and delete this one with
    ``delete_scope(recursive=True)``.
    """


class StreamNotFoundError(NotFoundError):
    """The stream does not exist."""


class StreamSealedError(ControllerError):
    """The stream is sealed: nothing can be appended or changed any more."""


class StreamNotSealedError(ControllerError):
    """The stream must be sealed before it can be deleted."""


class ScaleConflictError(ControllerError):
    """A scale was refused: wrong ranges, segments not active, or another scale is running."""


class ReaderGroupNotFoundError(NotFoundError):
    """The reader group does not exist."""


class KeyValueTableNotFoundError(NotFoundError):
    """The key-value table does not exist."""


# --- one segment ----------------------------------------------------------------------------------


class SegmentError(PravegaError):
    """A segment store refused a request.

    :ivar request_id: id of the request (int), or -1 where no single request failed.
    :ivar server_trace: the server's stack trace (str), or "".
    """

    def __init__(
        self, message: str, *, request_id: int = -1, server_trace: str = "", **names: Unpack[Names]
    ) -> None:
        super().__init__(message, **names)
        self.request_id = request_id
        self.server_trace = server_trace


class NoSuchSegmentError(SegmentError):
    """The segment does not exist (any more)."""


class SegmentExistsError(SegmentError):
    """The segment exists already."""


class SegmentSealedError(SegmentError):
    """The segment is sealed: appends fail."""


class SegmentTruncatedError(SegmentError):
    """The offset lies before the segment's first readable byte.

    :ivar start_offset: first readable offset in bytes (int), or None where nothing is left to read or
        several segments lost data.
    :ivar offset: first offset that was asked for and is gone (int), or None where that is not one place in
        one segment.
    """

    def __init__(
        self,
        message: str,
        *,
        start_offset: int | None,
        offset: int | None,
        request_id: int = -1,
        server_trace: str = "",
        **names: Unpack[Names],
    ) -> None:
        super().__init__(message, request_id=request_id, server_trace=server_trace, **names)
        self.start_offset = start_offset
        self.offset = offset


class DataLossError(SegmentTruncatedError):
    """Data between two positions that the caller named is gone (truncated or deleted)."""


class WrongHostError(SegmentError):
    """The segment's container lives on another store now; a fresh lookup helps."""

    retriable = True


class InvalidEventNumberError(SegmentError):
    """The server's record of a writer's event number does not match ours."""


class OperationUnsupportedError(SegmentError):
    """The server does not know this operation, or not for this kind of segment."""


class ConditionalCheckError(SegmentError):
    """A conditional append was refused: the segment's end is not where the caller expected it."""


class TableError(SegmentError):
    """A table segment refused an operation."""


class TableKeyDoesNotExistError(TableError):
    """A conditional update named a key that does not exist."""


class TableKeyBadVersionError(TableError):
    """A conditional update named a version that is not the current one."""


class TableOutcomeUnknownError(TableError):
    """The answer to an update was lost, and what the table holds does not tell whether it was made.

    ``__cause__`` is how the connection was lost.

    :ivar found: what each of the update's keys held afterwards (tuple), in order, None where it held nothing;
        empty when reading back failed too. Use it to decide, if your values identify their writer.
    """

    def __init__(
        self, message: str, *, found: tuple[object | None, ...] = (), **names: Unpack[Names]
    ) -> None:
        super().__init__(message, **names)
        self.found = found


class TableSegmentNotEmptyError(TableError):
    """The table segment holds entries and was to be deleted only if empty."""


# --- transactions, groups, state ------------------------------------------------------------------


class TransactionError(PravegaError):
    """A transaction cannot do what was asked; ``transaction`` names it."""


class TransactionNotOpenError(TransactionError):
    """The transaction is committing, committed, aborting or aborted already.

    :ivar status: name of its state (str): a member of :class:`TxnStatus`. None where the controller was not
        asked, as the object was closed or the transaction ended through it.
    """

    def __init__(self, message: str, *, status: str | None, **names: Unpack[Names]) -> None:
        super().__init__(message, **names)
        self.status = status


class TransactionAbortedError(TransactionNotOpenError):
    """The transaction was aborted: none of its events will ever be visible."""


class TransactionExpiredError(TransactionAbortedError):
    """The transaction's lease or life ran out, so the server aborted it."""


class TransactionUnknownError(TransactionError):
    """The server has no record of the transaction (never existed, or forgotten after a day)."""


class FencedError(PravegaError):
    """Another process took over the work; this one must stop. Nothing of it became visible."""


class IngestError(PravegaError):
    """Ingestion cannot continue from here; nothing of the part it names is visible.

    :ivar item: the file, or the part of the source, that it is about (str); "" where it is about the whole.
    """

    def __init__(self, message: str, *, item: str = "", **names: Unpack[Names]) -> None:
        super().__init__(message, **names)
        self.item = item


class IngestedSourceChangedError(IngestError):
    """What was ingested before is not what lies there now: going on would skip or repeat something."""


class IngestedStreamGoneError(IngestError):
    """The data stream was deleted after files or samples went in: what went in is gone with it."""


class TransactionOutcomeUnknownError(IngestError, TransactionUnknownError):
    """The server has forgotten the transaction of ``item``: nobody can tell whether it was committed."""


class CorruptedStateError(PravegaError):
    """Stored state (a ledger, a synchronizer record) cannot be what a correct program wrote."""


class SealedStateError(CorruptedStateError):
    """The stream that holds a shared state was sealed: nothing can be written to it any more."""


class ReaderGroupError(PravegaError):
    """A reader group cannot do what was asked."""


class ReinitializationRequiredError(ReaderGroupError):
    """The group was reset or this reader declared offline: close it and make a new one."""


class CheckpointError(ReaderGroupError):
    """A checkpoint could not be taken or is no longer known."""


class CheckpointTimeoutError(CheckpointError, PravegaTimeoutError):
    """Not all readers of a group answered a checkpoint in time.

    :ivar checkpoint: its name.
    :ivar waiting_for: names of the readers that had not answered, each with
        the time (UTC) when it was last seen moving, None when it was not since ``watched_since``. Empty when
        the checkpoint could not even be begun in time.
    :ivar watched_since: when the group object was opened, UTC.
    :ivar withdrawn: whether the checkpoint was withdrawn. Otherwise it may still be outstanding:
        :meth:`ReaderGroup.cancel_outstanding_checkpoints` ends it.
    """

    def __init__(
        self,
        message: str,
        *,
        checkpoint: str,
        waiting_for: Mapping[str, datetime | None],
        watched_since: datetime,
        withdrawn: bool,
        **names: Unpack[Names],
    ) -> None:
        super().__init__(message, **names)
        self.checkpoint = checkpoint
        self.waiting_for = waiting_for
        self.watched_since = watched_since
        self.withdrawn = withdrawn


# --- test servers ---------------------------------------------------------------------------------


class ServerStartError(PravegaError):
    """A test server could not be found, fetched or started; the message says what to do."""


class ServerEndedError(PravegaError):
    """A test server that this process has started has ended by itself; the message says why."""
