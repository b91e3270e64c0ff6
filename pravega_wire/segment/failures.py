"""Converts failure replies of a segment store to errors (``docs/protocol/wire.md``, "Refusals")."""

from __future__ import annotations

from typing import TypedDict

from pravega_wire.errors import (
    AuthenticationError,
    ConditionalCheckError,
    DataLossError,
    InvalidArgumentError,
    InvalidEventNumberError,
    NoSuchSegmentError,
    OperationUnsupportedError,
    PravegaError,
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

__all__ = ["check_passing", "data_read", "error_of", "reading_given_up"]

_TOKEN_EXPIRED = 1
_ILLEGAL_ARGUMENT = 0

_SIMPLE: dict[type[c.Command], tuple[type[SegmentError], str]] = {
    c.WrongHost: (WrongHostError, "is not served by"),
    c.SegmentIsSealed: (SegmentSealedError, "is sealed on"),
    c.SegmentAlreadyExists: (SegmentExistsError, "already exists on"),
    c.NoSuchSegment: (NoSuchSegmentError, "does not exist on"),
    c.TableSegmentNotEmpty: (TableSegmentNotEmptyError, "still has entries on"),
    c.TableKeyDoesNotExist: (TableKeyDoesNotExistError, "does not have the key on"),
    c.TableKeyBadVersion: (TableKeyBadVersionError, "has another version of the key on"),
}


class _Request(TypedDict):
    """Fields that errors of requests have in common."""

    request_id: int
    server_trace: str


def error_of(reply: c.Command, *, segment: str, host: str, doing: str) -> PravegaError:
    """Return the error for a failure reply, or an :class:`UnexpectedReplyError` for any other reply.

    :param reply: the reply of the store.
    :param segment: full name of the segment that the request was about.
    :param host: ``host:port`` of the store.
    :param doing: what was being done, for the message.
    """
    named = getattr(reply, "segment", None) or segment
    request = _Request(
        request_id=c.reply_request_id(reply), server_trace=getattr(reply, "server_stack_trace", "")
    )
    simple = _SIMPLE.get(type(reply))
    error: PravegaError
    if simple is not None:
        kind, text = simple
        error = kind(f"{doing}: segment {named} {text} {host}", segment=named, host=host, **request)
    elif isinstance(reply, c.SegmentIsTruncated):
        error = SegmentTruncatedError(
            f"{doing}: segment {named} is truncated, its first readable offset is "
            f"{reply.start_offset} (requested: {reply.offset})",
            start_offset=reply.start_offset,
            offset=reply.offset,
            segment=named,
            host=host,
            **request,
        )
    elif isinstance(reply, c.AuthTokenCheckFailed):
        if reply.error_code == _TOKEN_EXPIRED:
            error = TokenExpiredError(
                f"{doing}: {host} reports that the delegation token for {named} has expired",
                segment=named,
                host=host,
            )
        else:
            error = AuthenticationError(
                f"{doing}: {host} refused the delegation token for {named}; check the client's permissions",
                segment=named,
                host=host,
            )
    elif isinstance(reply, c.OperationUnsupported):
        error = OperationUnsupportedError(
            f"{doing}: {host} does not support {reply.operation_name} on {named}",
            segment=named,
            host=host,
            **request,
        )
    elif isinstance(reply, c.InvalidEventNumber):
        error = InvalidEventNumberError(
            f"{doing}: {host} refused event {reply.event_number} of writer {reply.writer_id} on {named}: the "
            "stored event number is not the one that this session expects",
            segment=named,
            host=host,
            **request,
        )
    elif isinstance(reply, c.ConditionalCheckFailed):
        error = ConditionalCheckError(
            f"{doing}: the condition on {named} does not hold", segment=named, host=host, **request
        )
    elif isinstance(reply, c.ErrorMessage):
        text = f"{doing}: {host} refused the request for {named}: {without_secrets(reply.message)}"
        if reply.error_code == _ILLEGAL_ARGUMENT:
            error = InvalidArgumentError(text, segment=named, host=host)
        else:
            error = SegmentError(text, segment=named, host=host, **request)
    else:
        error = UnexpectedReplyError(
            f"{doing}: {host} answered with an unexpected {type(reply).__name__}", segment=named, host=host
        )
    return error


# --- reading --------------------------------------------------------------------------------------


def data_read(reply: c.Command, offset: int, length: int, *, end: int, segment: str, host: str) -> memoryview:
    """Return the bytes in the reply to a read; there may be fewer than were requested.

    :param reply: the reply of the store.
    :param offset: offset that was requested.
    :param length: number of bytes that were requested.
    :param end: end of the range that is being read.
    :param segment: full name of the segment.
    :param host: ``host:port`` of the store.
    :raises SegmentError: the store refused the read.
    :raises UnexpectedReplyError: the bytes are from another offset, or it is another reply.
    :raises DataLossError: the segment ends at ``offset``.
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
    return data


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
        raise error


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
