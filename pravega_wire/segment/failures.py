"""Failure replies of a segment store, as errors.

The table is "Error replies" and "Server mapping" of wire protocol v0.13.0.
"""

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
from pravega_wire.secrecy import without_secrets

__all__ = ["check_passing", "data_read", "error_of", "reading_given_up"]

_TOKEN_EXPIRED = 1
_ILLEGAL_ARGUMENT = 0

_SIMPLE: dict[type[c.Command], tuple[type[SegmentError], str]] = {
    c.WrongHost: (WrongHostError, "is not served by"),
    c.SegmentIsSealed: (SegmentSealedError, "is sealed on"),
    c.SegmentAlreadyExists: (SegmentExistsError, "exists already on"),
    c.NoSuchSegment: (NoSuchSegmentError, "does not exist on"),
    c.TableSegmentNotEmpty: (TableSegmentNotEmptyError, "still holds entries on"),
    c.TableKeyDoesNotExist: (TableKeyDoesNotExistError, "has no such key on"),
    c.TableKeyBadVersion: (TableKeyBadVersionError, "holds another version of the key on"),
}


class _Request(TypedDict):
    """What errors of requests have in common."""

    request_id: int
    server_trace: str


def error_of(reply: c.Command, *, segment: str, host: str, doing: str) -> PravegaError:
    """The error that a failure reply means, or :class:`UnexpectedReplyError` for any other reply.

    :param segment: full name of the segment the request was about.
    :param host: ``host:port`` of the store.
    :param doing: what was asked, for the message.
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
            f"{reply.start_offset} (asked for {reply.offset})",
            start_offset=reply.start_offset,
            offset=reply.offset,
            segment=named,
            host=host,
            **request,
        )
    elif isinstance(reply, c.AuthTokenCheckFailed):
        if reply.error_code == _TOKEN_EXPIRED:
            error = TokenExpiredError(
                f"{doing}: {host} says the delegation token for {named} has expired",
                segment=named,
                host=host,
            )
        else:
            error = AuthenticationError(
                f"{doing}: {host} refused the delegation token for {named}",
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
            f"{doing}: {host} holds another event number than {reply.event_number} for writer "
            f"{reply.writer_id} on {named}",
            segment=named,
            host=host,
            **request,
        )
    elif isinstance(reply, c.ConditionalCheckFailed):
        error = ConditionalCheckError(
            f"{doing}: the condition on {named} no longer holds", segment=named, host=host, **request
        )
    elif isinstance(reply, c.ErrorMessage):
        text = f"{doing}: {host} answered for {named}: {without_secrets(reply.message)}"
        if reply.error_code == _ILLEGAL_ARGUMENT:
            error = InvalidArgumentError(text, segment=named, host=host)
        else:
            error = SegmentError(text, segment=named, host=host, **request)
    else:
        error = UnexpectedReplyError(
            f"{doing}: {host} answered with {type(reply).__name__}", segment=named, host=host
        )
    return error


# --- reading --------------------------------------------------------------------------------------


def data_read(reply: c.Command, offset: int, length: int, *, end: int, segment: str, host: str) -> memoryview:
    """The bytes that answer a request for ``length`` bytes from ``offset``: all, or the first of them.

    :param end: of the range that is read.
    :param segment: full name.
    :param host: ``host:port`` of the store.
    :raises SegmentError: a refusal.
    :raises UnexpectedReplyError: bytes of another place, or another reply.
    :raises DataLossError: the segment ends there.
    """
    if not isinstance(reply, c.SegmentRead):
        raise error_of(reply, segment=segment, host=host, doing="reading")
    data = memoryview(reply.data)[:length]
    if reply.offset != offset:
        raise UnexpectedReplyError(
            f"{segment}: asked for bytes from {offset}, got them from {reply.offset}", segment=segment
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
    """Whether reading may go on after ``error``, at ``offset``.

    :raises DataLossError: what is there is gone.
    :raises PravegaError: ``error``; trying again is no use.
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
    """The error for a reader that had no success for ``taken`` seconds; ``error`` ended the last attempt."""
    return RetriesExhaustedError(
        f"reading {segment}: no success in {taken:.1f} s "
        f"(operation_timeout), the last attempt failed with: {error.message}",
        segment=segment,
        host=error.host,
    )
