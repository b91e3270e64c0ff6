"""All the errors that this package raises, under one root.

Catch :class:`PravegaError` for any failure of this package, or one of its subclasses for a specific reason.
Typed attributes name the scope, stream, segment, transaction or host that an error is about, so a handler
never has to parse a message. The class attribute ``retriable`` tells whether the same call, unchanged, may
succeed later.

Example::

    from pravega_wire import errors

    try:
        await client.create_stream("readings", 4)
    except errors.ScopeNotFoundError as error:
        await client.create_scope(error.scope)
    except errors.PravegaError as error:
        print(error.message, "- retriable" if error.retriable else "- not retriable")

Runtime errors (``OSError``, ``ssl``, ``h2``, ``trio`` resource errors) are mapped to these classes in
``pravega_wire.transport`` and nowhere else. ``trio.Cancelled`` always passes through unchanged.

:class:`ClosedError`, :class:`ConcurrentUseError` and :class:`BrokenStreamError` are also subclasses of the
corresponding trio errors, so code written for trio alone can handle them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, TypedDict, Unpack
from uuid import UUID

if TYPE_CHECKING:
    from pravega_wire._trio_errors import BrokenStreamError, ClosedError, ConcurrentUseError

__all__ = [
    "ArchiveBusyError",
    "ArchiveDamagedError",
    "ArchiveError",
    "ArchiveMismatchError",
    "ArgumentTypeError",
    "AuthError",
    "AuthenticationError",
    "BrokenStreamError",
    "CheckpointError",
    "CheckpointTimeoutError",
    "ClosedError",
    "CodecNotRegisteredError",
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
    "OlderCheckpointError",
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
    "SchemaFormatError",
    "SchemaIncompatibleError",
    "SchemaMalformedError",
    "SchemaNotFoundError",
    "SchemaRegistryError",
    "SchemaRegistryReplyError",
    "SchemaRegistryUnreachableError",
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
    "ServerTooOldError",
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
    "TransactionsUnlistableError",
    "TransportError",
    "TruncatedInputError",
    "UndecidableCutError",
    "UnexpectedReplyError",
    "UnknownCommandError",
    "UnknownEncodingError",
    "WriterHistoryLostError",
    "WrongHostError",
    "WrongProtocolError",
]

_OF_TRIO = frozenset({"BrokenStreamError", "ClosedError", "ConcurrentUseError"})


def __getattr__(name: str) -> Any:
    # Importing trio takes long, and what shows a help text or parses an argument does without it.
    if name not in _OF_TRIO:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pravega_wire import _trio_errors

    globals().update({each: getattr(_trio_errors, each) for each in _OF_TRIO})
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *_OF_TRIO})


class Names(TypedDict, total=False):
    """The keyword arguments that every error accepts besides its message and its own fields."""

    scope: str | None
    stream: str | None
    segment: str | None
    transaction: UUID | None
    host: str | None


class PravegaError(Exception):
    """Root of all errors of this package.

    Errors can be pickled; pickling drops ``__cause__``.

    :ivar scope: scope name, if the error is about a scope; otherwise None.
    :ivar stream: stream name without its scope, if the error is about a stream; otherwise None.
    :ivar segment: full segment name (``scope/stream/0.#epoch.0``), if the error is about a segment; otherwise
        None.
    :ivar transaction: transaction id, if the error is about a transaction; otherwise None.
    :ivar host: ``host:port`` of the peer, if the error is about a connection; otherwise None.
    :ivar retriable: True if the same call, unchanged, may succeed later (a class attribute).
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
        """The message, for a person to read."""
        return str(self.args[0])

    def __reduce__(self) -> tuple[Any, ...]:
        # The class is not called: constructors differ, and the fields are restored with the other attributes.
        return _restored, (type(self), self.args), self.__dict__


def _restored(kind: type[PravegaError], args: tuple[str, ...]) -> PravegaError:
    """Rebuild a pickled error, before its attributes are restored."""
    error = kind.__new__(kind, *args)
    PravegaError.__init__(error, *args)
    return error


def placed(error: PravegaError, where: str, **names: Unpack[Names]) -> None:
    """Put the place of what an error is about into it; not public.

    A serializer does not know whose bytes it is given.
    """
    error.args = (f"{where}: {error.message}", *error.args[1:])
    for name, value in names.items():
        if getattr(error, name) is None:
            setattr(error, name, value)


# --- the caller's own mistakes, found before any I/O ---------------------------------------------


class InvalidArgumentError(PravegaError, ValueError):
    """An argument or setting has a value that is not allowed, and nothing was changed.

    One exception: ``write_events`` may have written the events before the wrong one.
    """


class ArgumentTypeError(InvalidArgumentError, TypeError):
    """An argument has the wrong type."""


class EventTooLargeError(InvalidArgumentError):
    """An event, or an atomic batch of events, exceeds the size limit; nothing of it was sent.

    :ivar size: its size in bytes.
    :ivar limit: the largest size allowed, in bytes.
    """

    def __init__(self, message: str, *, size: int, limit: int, **names: Unpack[Names]) -> None:
        super().__init__(message, **names)
        self.size = size
        self.limit = limit


class TableKeyLengthError(InvalidArgumentError):
    """A key's length differs from the key length that its table was created with.

    :ivar length: length of the key in bytes.
    :ivar expected: length that the table requires, in bytes.
    """

    def __init__(self, message: str, *, length: int, expected: int, **names: Unpack[Names]) -> None:
        super().__init__(message, **names)
        self.length = length
        self.expected = expected


class TableValueTooLargeError(InvalidArgumentError):
    """A value, or an atomic update as a whole, exceeds the size limit of key-value tables.

    :ivar size: its size in bytes.
    :ivar limit: the largest size allowed, in bytes.
    """

    def __init__(self, message: str, *, size: int, limit: int, **names: Unpack[Names]) -> None:
        super().__init__(message, **names)
        self.size = size
        self.limit = limit


class MixedPrimaryKeysError(InvalidArgumentError):
    """The keys of an atomic table update have different primary keys; they must all share one."""


class InvalidStreamCutError(InvalidArgumentError):
    """A stream cut is malformed, belongs to another stream, or does not match the stream's segments."""


class UndecidableCutError(PravegaError):
    """A stream layout does not know enough about ``segment`` to answer a question about stream cuts.

    Fetch the layout again: a newer one may know more.
    """


class StreamChangingError(PravegaError):
    """The stream was scaled or truncated during every attempt to look up its segments; try again later."""

    retriable = True


class MissingExtraError(PravegaError, ImportError):
    """A required package is not installed; the message names the extra that installs it."""


# --- bytes that make no sense ---------------------------------------------------------------------


class ProtocolError(PravegaError):
    """The peer violated the protocol, or a value cannot be expressed in it."""


class DecodeError(ProtocolError):
    """Received or stored bytes cannot be decoded."""


class TruncatedInputError(DecodeError):
    """The bytes end in the middle of a frame, record or event."""


class FrameTooLargeError(DecodeError):
    """A frame's length field is negative or exceeds the protocol's limit."""


class UnknownCommandError(DecodeError):
    """A frame has a command code that does not exist in this version of the protocol."""


class EncodeError(ProtocolError):
    """A value does not fit its wire format (for example, a string longer than 65535 bytes)."""


class IncompatibleVersionError(ProtocolError):
    """The client and the peer support no common version of the wire protocol."""


class UnexpectedReplyError(ProtocolError):
    """The peer sent a reply that does not match the request."""


class ServerTooOldError(PravegaError):
    """The server does not have what was asked for; nothing was done.

    :ivar feature: what was asked for (str).
    :ivar needed: the first version of Pravega that has it (str), such as ``"0.11"``.
    :ivar found: the version of the server (str), as far as it tells; None if it does not.
    """

    def __init__(
        self, message: str, *, feature: str, needed: str, found: str | None, **names: Unpack[Names]
    ) -> None:
        super().__init__(message, **names)
        self.feature = feature
        self.needed = needed
        self.found = found


# --- the network ----------------------------------------------------------------------------------


class TransportError(PravegaError):
    """A connection could not be made or was lost."""

    retriable = True


class ConnectError(TransportError):
    """The client could not connect to the host."""


class HostNotFoundError(ConnectError):
    """The host name cannot be resolved: it is misspelt, or it belongs to another network."""

    retriable = False


class WrongProtocolError(ConnectError, ProtocolError):
    """The server at the address speaks another protocol than expected; the message names it."""

    retriable = False


class ConnectionLostError(TransportError):
    """An established connection ended while it was in use."""


class TlsError(TransportError):
    """The TLS handshake or certificate check failed."""

    retriable = False


class PravegaTimeoutError(PravegaError, TimeoutError):
    """An operation exceeded its own time limit (never raised for a trio cancellation)."""

    retriable = True


class RetriesExhaustedError(PravegaError):
    """Every attempt of a retried operation failed; ``__cause__`` is the last failure."""


# --- authentication and permissions ---------------------------------------------------------------


class AuthError(PravegaError):
    """The server rejected the credentials or the delegation token."""


class AuthenticationError(AuthError):
    """The credentials are missing or wrong."""


class PermissionDeniedError(AuthError):
    """The credentials are valid but do not permit this operation."""


class TokenExpiredError(AuthError):
    """The delegation token has expired.

    The client fetches a new token and retries; this error is raised only if that fails until the time limit.
    """

    retriable = True


# --- the controller -------------------------------------------------------------------------------


class ControllerError(PravegaError):
    """The controller rejected a call, or the call failed.

    :ivar rpc: name of the controller's RPC (str), or None if the error is about more than one call.
    :ivar status: the gRPC status name, or the status in the reply (str); None if the error is about more than
        one call.
    """

    def __init__(
        self, message: str, *, rpc: str | None = None, status: str | None = None, **names: Unpack[Names]
    ) -> None:
        super().__init__(message, **names)
        self.rpc = rpc
        self.status = status


class NotFoundError(ControllerError):
    """The requested item does not exist."""


class WriterHistoryLostError(ControllerError):
    """The last stored event number of a resumable writer is unknown: its segments were truncated away.

    Pass ``first_event_number`` to the writer (1 for a new writer) if you know it from elsewhere.
    """


class ScopeNotFoundError(NotFoundError):
    """The scope does not exist."""


class ScopeNotEmptyError(ControllerError):
    """The scope cannot be deleted because it still contains streams, reader groups or key-value tables."""


class ScopeBrokenError(ControllerError):
    """The scope exists, but the controller has lost some of its internal tables for it, or is deleting it.

    A 0.13.0 controller loses these tables when it receives a request to delete a scope that is not empty.
    Streams without tags still work. The tables cannot be restored: copy the data you need to another scope,
    then delete this one with ``delete_scope(recursive=True)``.
    """


class StreamNotFoundError(NotFoundError):
    """The stream does not exist."""


class StreamSealedError(ControllerError):
    """The stream is sealed: it accepts no more events or configuration changes."""


class StreamNotSealedError(ControllerError):
    """The stream cannot be deleted because it is not sealed."""


class ScaleConflictError(ControllerError):
    """The controller rejected a scale: wrong key ranges, inactive segments, or another scale in progress."""


class ReaderGroupNotFoundError(NotFoundError):
    """The reader group does not exist."""


class KeyValueTableNotFoundError(NotFoundError):
    """The key-value table does not exist."""


# --- one segment ----------------------------------------------------------------------------------


class SegmentError(PravegaError):
    """A segment store rejected a request.

    :ivar request_id: id of the request (int), or -1 if no single request failed.
    :ivar server_trace: the server's stack trace (str), or "" if the server sent none.
    """

    def __init__(
        self, message: str, *, request_id: int = -1, server_trace: str = "", **names: Unpack[Names]
    ) -> None:
        super().__init__(message, **names)
        self.request_id = request_id
        self.server_trace = server_trace


class NoSuchSegmentError(SegmentError):
    """The segment does not exist, or no longer exists."""


class SegmentExistsError(SegmentError):
    """The segment already exists."""


class SegmentSealedError(SegmentError):
    """The segment is sealed: it accepts no more appends."""


class SegmentTruncatedError(SegmentError):
    """The requested offset is before the segment's first readable byte: the data was truncated.

    :ivar start_offset: first readable offset in bytes (int), or None if nothing is left to read or several
        segments lost data.
    :ivar offset: first requested offset that no longer exists, in bytes (int), or None if the lost data is
        not at one place in one segment.
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
    """Data in the requested range no longer exists: it was truncated, or its segments were deleted."""


class WrongHostError(SegmentError):
    """The segment has moved to another segment store.

    The client looks up the new store and retries; this error is raised only if that fails until the time
    limit.
    """

    retriable = True


class InvalidEventNumberError(SegmentError):
    """The segment store rejected a block: the writer's event numbers do not match its record of them."""


class OperationUnsupportedError(SegmentError):
    """The server does not support this operation, or not for this kind of segment."""


class ConditionalCheckError(SegmentError):
    """A conditional append was rejected: the segment does not end at the expected offset.

    Usually another writer has appended since. Read its data, then decide whether to append again.
    """


class TableError(SegmentError):
    """A segment store rejected an operation on a key-value table's segment."""


class TableKeyDoesNotExistError(TableError):
    """A conditional update named a key that does not exist."""


class TableKeyBadVersionError(TableError):
    """A conditional update named a version that is not the current one."""


class TableOutcomeUnknownError(TableError):
    """The reply to an update was lost, and the table's contents do not show whether the update was applied.

    ``__cause__`` is the error that ended the connection.

    :ivar found: the entry that each key of the update had afterwards (tuple), in the update's order; None for
        a key without an entry. Empty if reading the keys back, or deserializing them, failed too. Use it to
        decide whether the update was applied, if your values identify their writer.
    """

    def __init__(
        self, message: str, *, found: tuple[object | None, ...] = (), **names: Unpack[Names]
    ) -> None:
        super().__init__(message, **names)
        self.found = found


class TableSegmentNotEmptyError(TableError):
    """The table segment was to be deleted only if empty, and it has entries."""


# --- transactions, groups, state ------------------------------------------------------------------


class TransactionError(PravegaError):
    """An operation on the transaction ``transaction`` failed."""


class TransactionNotOpenError(TransactionError):
    """The transaction is no longer open: it is committing, committed, aborting or aborted.

    :ivar status: name of its state (str), a member of :class:`TxnStatus`. None if the controller was not
        queried, because this object had been closed or had itself ended the transaction.
    """

    def __init__(self, message: str, *, status: str | None, **names: Unpack[Names]) -> None:
        super().__init__(message, **names)
        self.status = status


class TransactionAbortedError(TransactionNotOpenError):
    """The transaction was aborted: its events will never become visible."""


class TransactionExpiredError(TransactionAbortedError):
    """The transaction was aborted: its lease or its maximum lifetime ended, or another process aborted it.

    The server does not tell which.
    """


class TransactionUnknownError(TransactionError):
    """The server has no record of the transaction: it never existed, or its record expired (after a day)."""


class TransactionsUnlistableError(PravegaError):
    """The open transactions of a stream cannot be listed: the server's own tables cannot be read."""


class FencedError(PravegaError):
    """Another process has taken over this work, so this one must stop; none of its work became visible."""


class OlderCheckpointError(PravegaError):
    """A streaming query asks for a batch that is not the one its sink has written under that number.

    Its checkpoint is older than what was written, or a copy that has gone another way: the rows would be lost
    if the batch were skipped, and perhaps stored twice if it were written. Nothing was written.

    :ivar batch: Spark's number of the batch.
    """

    def __init__(self, message: str, *, batch: int, **names: Unpack[Names]) -> None:
        super().__init__(message, **names)
        self.batch = batch


class IngestError(PravegaError):
    """Ingestion cannot continue; nothing of ``item`` is visible to readers.

    :ivar item: the file, or the part of the source, that the error is about (str); "" if it is about the
        whole source.
    """

    def __init__(self, message: str, *, item: str = "", **names: Unpack[Names]) -> None:
        super().__init__(message, **names)
        self.item = item


class IngestedSourceChangedError(IngestError):
    """A source that was partly ingested has changed since: continuing would skip or repeat data."""


class IngestedStreamGoneError(IngestError):
    """The data stream was deleted after files or samples were ingested; that data is lost with it."""


class TransactionOutcomeUnknownError(IngestError, TransactionUnknownError):
    """The server has no record of the transaction for ``item``: whether it was committed is unknown."""


class ArchiveError(PravegaError):
    """An archive of a stream cannot be written, read or restored.

    :ivar path: the file or directory that the error is about.
    """

    def __init__(self, message: str, *, path: str, **names: Unpack[Names]) -> None:
        super().__init__(message, **names)
        self.path = path


class ArchiveBusyError(ArchiveError):
    """Another process writes or restores the archive; try again when it has ended."""

    retriable = True


class ArchiveDamagedError(ArchiveError):
    """A file of an archive is missing, or is not what the manifest says; ``path`` names it."""


class ArchiveMismatchError(ArchiveError):
    """The stream has other events than the archive of it; ``path`` names the archive's file."""


class CorruptedStateError(PravegaError):
    """A shared state, ledger, sync stream or checkpoint holds what this version cannot use.

    It is damaged, a newer version wrote it, or its stream has lost data.
    """


class SealedStateError(CorruptedStateError):
    """The stream that holds a shared state was sealed: the state can no longer be changed."""


class ReaderGroupError(PravegaError):
    """An operation on a reader group failed."""


class ReinitializationRequiredError(ReaderGroupError):
    """The group was reset, or this reader was declared offline: close the reader and create a new one."""


class CheckpointError(ReaderGroupError):
    """A checkpoint could not be taken, or no longer exists."""


class CheckpointTimeoutError(CheckpointError, PravegaTimeoutError):
    """Not all readers of a group responded to a checkpoint within the time limit.

    :ivar checkpoint: name of the checkpoint.
    :ivar waiting_for: names of the readers that had not responded, each with the time (UTC) of its last
        observed activity, or None if none was observed since ``watched_since``. Empty if the checkpoint could
        not even be started in time.
    :ivar watched_since: when the group object was opened (UTC).
    :ivar withdrawn: True if the checkpoint was withdrawn. If False, it may still be outstanding; end it with
        :meth:`ReaderGroup.cancel_outstanding_checkpoints`.
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


# --- the schema registry --------------------------------------------------------------------------


class SchemaRegistryError(PravegaError):
    """The schema registry refused a request, could not be reached, or failed.

    :ivar group: the group that the error is about (str), or None.
    :ivar status: the HTTP status of the answer (int), or None if there was none.
    """

    def __init__(
        self, message: str, *, group: str | None = None, status: int | None = None, **names: Unpack[Names]
    ) -> None:
        super().__init__(message, **names)
        self.group = group
        self.status = status


class SchemaRegistryUnreachableError(SchemaRegistryError):
    """The schema registry could not be reached, or did not answer in time."""

    retriable = True


class SchemaRegistryReplyError(SchemaRegistryError):
    """The schema registry failed, or something else answers at its address."""


class SchemaNotFoundError(SchemaRegistryError):
    """The registry has no such group, schema, version or encoding id."""


class SchemaIncompatibleError(SchemaRegistryError):
    """The compatibility policy of the group does not permit the schema."""


class SchemaFormatError(SchemaRegistryError):
    """The group does not accept schemas of this serialization format, or of another type."""


class SchemaMalformedError(SchemaRegistryError):
    """The registry cannot parse the schema, or its type is not the name of what the schema describes."""


class CodecNotRegisteredError(SchemaRegistryError):
    """The codec is not registered in the group."""


class UnknownEncodingError(DecodeError):
    """The encoding id of an event has not been fetched from the schema registry.

    :ivar encoding_id: the id in the event's header (int).
    """

    def __init__(self, message: str, *, encoding_id: int, **names: Unpack[Names]) -> None:
        super().__init__(message, **names)
        self.encoding_id = encoding_id


# --- test servers ---------------------------------------------------------------------------------


class ServerStartError(PravegaError):
    """A test server could not be found, downloaded or started; the message says what to do."""


class ServerEndedError(PravegaError):
    """A test server started by this process has exited on its own; the message gives the reason."""
