"""Converts failure replies of a segment store to errors (``docs/protocol/wire.md``, "Refusals")."""

from __future__ import annotations

from typing import Any

from pravega_wire.errors import (
    AuthenticationError,
    ConditionalCheckError,
    ConnectionLostError,
    DataLossError,
    InvalidArgumentError,
    InvalidEventNumberError,
    NoSuchSegmentError,
    OperationUnsupportedError,
    PravegaError,
    ProtocolError,
    RetriesExhaustedError,
    SegmentError,
    SegmentExistsError,
    SegmentSealedError,
    SegmentTruncatedError,
    TableKeyBadVersionError,
    TableKeyDoesNotExistError,
    TableSegmentNotEmptyError,
    TokenExpiredError,
    UnexpectedReplyError,
    WrongHostError,
)
from pravega_wire.protocol import commands as c
from pravega_wire.support.secrecy import without_secrets

__all__ = ["beyond_end", "check_passing", "data_read", "error_of", "named", "reading_given_up"]

_TOKEN_EXPIRED = 1
_ILLEGAL_ARGUMENT = 0
_REFUSED = "{host} refused the request for {segment}: {message}"

_Failure = type[c.Command] | tuple[type[c.Command], int]
"""A reply, or one with this error code."""

_ERRORS: dict[_Failure, tuple[type[PravegaError], str]] = {
    c.WrongHost: (WrongHostError, "segment {segment} is not served by {host}"),
    c.SegmentIsSealed: (SegmentSealedError, "segment {segment} is sealed on {host}"),
    c.SegmentAlreadyExists: (SegmentExistsError, "segment {segment} already exists on {host}"),
    c.NoSuchSegment: (NoSuchSegmentError, "segment {segment} does not exist on {host}"),
    c.SegmentIsTruncated: (
        SegmentTruncatedError,
        "segment {segment} is truncated, its first readable offset is {reply.start_offset} (requested: "
        "{reply.offset})",
    ),
    c.TableSegmentNotEmpty: (TableSegmentNotEmptyError, "segment {segment} still has entries on {host}"),
    c.TableKeyDoesNotExist: (TableKeyDoesNotExistError, "segment {segment} does not have the key on {host}"),
    c.TableKeyBadVersion: (
        TableKeyBadVersionError,
        "segment {segment} has another version of the key on {host}",
    ),
    (c.AuthTokenCheckFailed, _TOKEN_EXPIRED): (
        TokenExpiredError,
        "{host} reports that the delegation token for {segment} has expired",
    ),
    c.AuthTokenCheckFailed: (
        AuthenticationError,
        "{host} refused the delegation token for {segment}; check the client's permissions",
    ),
    c.OperationUnsupported: (
        OperationUnsupportedError,
        "{host} does not support {reply.operation_name} on {segment}",
    ),
    c.InvalidEventNumber: (
        InvalidEventNumberError,
        "{host} refused event {reply.event_number} of writer {reply.writer_id} on {segment}: the stored "
        "event number is not the one that this session expects",
    ),
    c.ConditionalCheckFailed: (ConditionalCheckError, "the condition on {segment} does not hold"),
    (c.ErrorMessage, _ILLEGAL_ARGUMENT): (InvalidArgumentError, _REFUSED),
    c.ErrorMessage: (SegmentError, _REFUSED),
}


def error_of(reply: c.Command, *, segment: str, host: str, doing: str) -> PravegaError:
    """Return the error for a failure reply, or an :class:`UnexpectedReplyError` for any other reply.

    :param reply: the reply of the store.
    :param segment: full name of the segment that the request was about.
    :param host: ``host:port`` of the store.
    :param doing: what was being done, for the message.
    """
    known = _ERRORS.get((type(reply), getattr(reply, "error_code", -1))) or _ERRORS.get(type(reply))
    if known is not None:
        segment = getattr(reply, "segment", None) or segment
    kind, text = known or (
        UnexpectedReplyError,
        "{host} answered with an unexpected {reply.__class__.__name__} about segment {segment}",
    )
    message = without_secrets(getattr(reply, "message", ""))
    about: dict[str, Any] = {"segment": segment, "host": host}
    if issubclass(kind, SegmentError):
        about["request_id"] = c.reply_request_id(reply)
        about["server_trace"] = getattr(reply, "server_stack_trace", "")
    if isinstance(reply, c.SegmentIsTruncated):
        about["start_offset"], about["offset"] = reply.start_offset, reply.offset
    said = text.format(segment=segment, host=host, reply=reply, message=message)
    return kind(f"{doing}: {said}", **about)


def named(error: PravegaError, segment: str, doing: str) -> PravegaError:
    """Return the error of a connection as one of a request that was made on it.

    What ends a connection because of the bytes that came names only the store.

    :param error: what ended the request.
    :param segment: full name of the segment that the request was about.
    :param doing: what was being done, for the message ("truncating").
    """
    if not isinstance(error, ProtocolError) or error.segment is not None:
        return error
    found = type(error)(f"{doing} {segment}: {error.message}", segment=segment, host=error.host)
    found.__cause__ = error
    return found


# --- reading --------------------------------------------------------------------------------------


def data_read(reply: c.Command, offset: int, length: int, *, end: int, segment: str, host: str) -> memoryview:
    """Return the bytes in the reply to a read (not empty); there may be fewer than were requested.

    :param reply: the reply of the store.
    :param offset: offset that was requested.
    :param length: number of bytes that were requested.
    :param end: end of the range that is being read.
    :param segment: full name of the segment.
    :param host: ``host:port`` of the store.
    :raises SegmentError: the store refused the read.
    :raises UnexpectedReplyError: the bytes are from another offset, or it is another reply.
    :raises DataLossError: the segment ends at ``offset``.
    :raises ConnectionLostError: there are no bytes.
    """
    if not isinstance(reply, c.SegmentRead):
        raise error_of(reply, segment=segment, host=host, doing="reading")
    data = memoryview(reply.data)[:length]
    if reply.offset != offset:
        raise UnexpectedReplyError(
            f"{segment}: requested bytes from {offset}, received them from {reply.offset}", segment=segment
        )
    if not data and reply.end_of_segment:
        raise DataLossError(
            f"{segment} ends at {offset}, before the end of the range ({end})",
            segment=segment,
            host=host,
            start_offset=None,
            offset=offset,
        )
    if not data:
        # A store that unloads a segment answers so (docs/protocol/wire.md, "Tail reads"). Asking again at
        # once may go on for ever.
        raise ConnectionLostError(
            f"{host} has answered a read of {segment} at {offset} without data", segment=segment, host=host
        )
    return data


def beyond_end(segment: str, start: int, end: int, length: int) -> InvalidArgumentError:
    """Return the error for a range that ends after its segment.

    :param length: length of the segment.
    """
    return InvalidArgumentError(
        f"the range {start}..{end} reaches beyond the end of segment {segment}, offset {length}",
        segment=segment,
    )


def check_passing(error: PravegaError, segment: str, offset: int) -> None:
    """Check that reading may be retried at ``offset`` after ``error``.

    :param error: what ended the last attempt.
    :param segment: full name of the segment.
    :param offset: offset to read from.
    :raises DataLossError: the data at ``offset`` is gone.
    :raises PravegaError: ``error``, if it is not retriable.
    """
    if isinstance(error, SegmentTruncatedError | NoSuchSegmentError):
        raise DataLossError(
            f"{segment}: bytes from {offset} are gone ({error.message})",
            segment=segment,
            host=error.host,
            start_offset=error.start_offset if isinstance(error, SegmentTruncatedError) else None,
            offset=offset,
            request_id=error.request_id,
            server_trace=error.server_trace,
        ) from error
    if not error.retriable:
        raise named(error, segment, "reading")


def reading_given_up(error: PravegaError, segment: str, taken: float) -> RetriesExhaustedError:
    """Return the error for a reader that had no success for some time.

    :param error: what ended the last attempt.
    :param segment: full name of the segment.
    :param taken: seconds without success.
    """
    return RetriesExhaustedError(
        f"reading {segment}: no success in {taken:.1f} s "
        f"(operation_timeout), the last attempt failed with: {error.message}",
        segment=segment,
        host=error.host,
    )
