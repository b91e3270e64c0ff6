"""gRPC status codes, and their errors (``docs/protocol/controller.md``, "gRPC status codes")."""

from __future__ import annotations

from enum import IntEnum

from pravega_wire.errors import (
    AuthenticationError,
    ControllerError,
    NotFoundError,
    PermissionDeniedError,
    PravegaError,
    PravegaTimeoutError,
)

__all__ = ["StatusCode", "error_for_status", "is_retried", "status_from_http", "status_from_reset"]


class StatusCode(IntEnum):
    """Status codes of gRPC."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


_RETRIED = frozenset(
    {
        StatusCode.ABORTED,
        StatusCode.CANCELLED,
        StatusCode.DATA_LOSS,
        StatusCode.DEADLINE_EXCEEDED,
        StatusCode.FAILED_PRECONDITION,
        StatusCode.INTERNAL,
        StatusCode.RESOURCE_EXHAUSTED,
        StatusCode.UNAVAILABLE,
        StatusCode.UNKNOWN,
    }
)


def is_retried(code: StatusCode) -> bool:
    """Return whether a call is retried after this status, as by the Java client."""
    return code in _RETRIED


def status_from_http(status: int) -> StatusCode:
    """Return the code for an HTTP status of a reply without a gRPC status (as in gRPC's own mapping)."""
    return {
        400: StatusCode.INTERNAL,
        401: StatusCode.UNAUTHENTICATED,
        403: StatusCode.PERMISSION_DENIED,
        404: StatusCode.UNIMPLEMENTED,
        429: StatusCode.UNAVAILABLE,
        502: StatusCode.UNAVAILABLE,
        503: StatusCode.UNAVAILABLE,
        504: StatusCode.UNAVAILABLE,
    }.get(status, StatusCode.UNKNOWN)


def status_from_reset(error_code: int) -> StatusCode:
    """Return the code for a stream that the server has reset (as in gRPC's own mapping)."""
    return {
        7: StatusCode.UNAVAILABLE,  # REFUSED_STREAM
        8: StatusCode.CANCELLED,  # CANCEL
        11: StatusCode.RESOURCE_EXHAUSTED,  # ENHANCE_YOUR_CALM
        12: StatusCode.PERMISSION_DENIED,  # INADEQUATE_SECURITY
    }.get(error_code, StatusCode.INTERNAL)


def error_for_status(code: StatusCode, text: str, *, rpc: str, host: str) -> PravegaError:
    """Return the error for a call that ended with ``code``.

    :param code: gRPC status of the call.
    :param text: explanation of the server.
    :param rpc: name of the call.
    :param host: ``host:port`` of the controller.
    """
    message = f"controller {host}, {rpc}: {text or 'no message'} ({code.name})"
    if code is StatusCode.UNAUTHENTICATED:
        return AuthenticationError(f"{message}; authentication failed: check the credentials", host=host)
    if code is StatusCode.PERMISSION_DENIED:
        return PermissionDeniedError(message, host=host)
    if code is StatusCode.DEADLINE_EXCEEDED:
        return PravegaTimeoutError(message, host=host)
    kind = NotFoundError if code is StatusCode.NOT_FOUND else ControllerError
    return kind(message, rpc=rpc, status=code.name, host=host)
