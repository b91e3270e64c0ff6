"""Converts statuses of the controller to results or errors, and refuses bad arguments before a call.

"It exists already" and "there was nothing to delete" are results, as in the Java client. Every other status
that is not a success is an error that names the scope or stream (``docs/protocol/controller.md``, "Statuses
in replies").

Not public.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, TypeVar
from uuid import UUID

from pravega_wire.errors import (
    ControllerError,
    InvalidArgumentError,
    KeyValueTableNotFoundError,
    NotFoundError,
    ReaderGroupNotFoundError,
    ScopeBrokenError,
    ScopeNotEmptyError,
    ScopeNotFoundError,
    StreamNotFoundError,
    StreamSealedError,
    TransactionUnknownError,
)
from pravega_wire.proto import controller_pb2 as pb
from pravega_wire.support.checks import check_count
from pravega_wire.values.naming import validate_scope_name, validate_stream_name, validate_user_name

__all__ = [
    "broken_scope", "check_names", "check_scale", "done", "group_done", "known", "naming_stream", "no_group",
    "no_scope", "no_stream", "no_table", "refused", "scope_deleted", "status_name", "stream_updated",
    "txn_done",
]  # fmt: skip

E = TypeVar("E", bound=ControllerError)
V = TypeVar("V", bound=Enum)


# --- before a call ---------------------------------------------------------------------------------


def check_names(kind: str, scope: str, name: str) -> None:
    validate_scope_name(scope)
    validate_user_name(kind, name)


def check_scale(about: str, seal: Sequence[int], new_ranges: Sequence[tuple[float, float]]) -> None:
    """Check what a 0.13.0 controller does not check.

    A scale without segments or ranges starts, and the stream cannot be sealed any more. Two ranges with the
    same beginning are answered like a failure that can pass (``docs/protocol/unforgiving.md``, "Scaling with
    nothing to seal").

    :raises InvalidArgumentError: the arguments cannot be right.
    """
    if not seal or not new_ranges:
        raise InvalidArgumentError(
            f"{about}: a scale needs the segments to seal and the ranges of the new ones; pass both"
        )
    for segment_id in seal:
        check_count(f"{about}: a segment's id", segment_id, 0)
    for bounds in new_ranges:
        if len(bounds) != 2 or not all(type(each) in (int, float) for each in bounds):
            raise InvalidArgumentError(f"{about}: {bounds!r} is not a range; pass (low, high)")
    before = 0.0
    for low, high in sorted(new_ranges):
        if not before <= low < high <= 1.0:
            raise InvalidArgumentError(
                f"{about}: the new ranges {list(new_ranges)} must lie between 0 and 1 and not overlap"
            )
        before = high


# --- statuses --------------------------------------------------------------------------------------


def status_name(enum: Any, value: int) -> str:
    """Return the name of an enum value; numbers that are unknown to this version are tolerated."""
    try:
        return str(enum.Name(value))
    except ValueError:
        return f"UNRECOGNIZED_{value}"


def known(kind: type[V], rpc: str, status: int) -> V:
    """Return the value of a status.

    :raises ControllerError: the status is unknown to this version.
    """
    try:
        return kind(status)
    except ValueError:
        raise ControllerError(
            f"the controller answered {rpc} with the unknown status {status}", rpc=rpc, status=str(status)
        ) from None


def done(status: str, rpc: str, about: str, *, true: str = "SUCCESS", false: str | None = None) -> bool:
    """Return True for one status and False for another.

    :param status: name of the status.
    :param rpc: name of the call, for the message.
    :param about: what the call was about, for the message.
    :param true: status that means True.
    :param false: status that means False, or None.
    :raises ControllerError: it is any other status.
    """
    if status == true:
        return True
    if status == false:
        return False
    raise ControllerError(
        f"the controller answered {rpc} for {about} with status {status}", rpc=rpc, status=status
    )


def scope_deleted(rpc: str, scope: str, reply: pb.DeleteScopeStatus) -> bool:
    status = status_name(pb.DeleteScopeStatus.Status, reply.status)
    if status == "SCOPE_NOT_EMPTY":
        raise refused(ScopeNotEmptyError, rpc, status, f"scope {scope} is not empty", scope)
    return done(status, rpc, f"scope {scope}", false="SCOPE_NOT_FOUND")


def stream_updated(rpc: str, scope: str, stream: str, reply: pb.UpdateStreamStatus) -> None:
    status = status_name(pb.UpdateStreamStatus.Status, reply.status)
    if status == "STREAM_NOT_FOUND":
        raise no_stream(rpc, scope, stream)
    if status == "SCOPE_NOT_FOUND":
        raise no_scope(rpc, scope)
    if status == "STREAM_SEALED":
        raise refused(
            StreamSealedError,
            rpc,
            status,
            f"stream {scope}/{stream} is sealed",
            scope,
            stream,
        )
    done(status, rpc, f"stream {scope}/{stream}")


def txn_done(rpc: str, scope: str, stream: str, txn_id: UUID, reply: pb.TxnStatus) -> bool:
    status = status_name(pb.TxnStatus.Status, reply.status)
    if status == "STREAM_NOT_FOUND":
        raise no_stream(rpc, scope, stream)
    if status == "TRANSACTION_NOT_FOUND":
        raise TransactionUnknownError(
            f"the controller has no record of transaction {txn_id} of {scope}/{stream}",
            scope=scope,
            stream=stream,
            transaction=txn_id,
        )
    # A 0.13.0 controller answers FAILURE for everything that is not possible in the transaction's state.
    return status == "SUCCESS"


def group_done(rpc: str, scope: str, name: str, status: str) -> None:
    if status == "RG_NOT_FOUND":
        raise no_group(rpc, scope, name)
    done(status, rpc, f"reader group {scope}/{name}")


# --- errors ----------------------------------------------------------------------------------------


class naming_stream:  # reads as a statement where it is used
    """Context manager that replaces a plain NOT_FOUND of a call by an error that names the stream."""

    def __init__(self, scope: str, stream: str) -> None:
        validate_scope_name(scope)
        validate_stream_name(stream)
        self._scope = scope
        self._stream = stream

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if type(error) is NotFoundError:
            found = no_stream(error.rpc or "", self._scope, self._stream)
            found.status = error.status
            found.host = error.host
            raise found from error


def refused(kind: type[E], rpc: str, status: str, message: str, scope: str, stream: str | None = None) -> E:
    return kind(message, rpc=rpc, status=status, scope=scope, stream=stream)


def no_scope(rpc: str, scope: str) -> ScopeNotFoundError:
    return refused(ScopeNotFoundError, rpc, "SCOPE_NOT_FOUND", f"scope {scope} does not exist", scope)


def broken_scope(rpc: str, status: str, scope: str) -> ScopeBrokenError:
    return refused(
        ScopeBrokenError,
        rpc,
        status,
        f"scope {scope} exists, but the controller answers {rpc} as if it did not: it is being deleted, or "
        "an earlier attempt to delete it has removed internal tables that it needs. Copy what you need to "
        "another scope, and delete this one with delete_scope(recursive=True)",
        scope,
    )


def no_stream(rpc: str, scope: str, stream: str) -> StreamNotFoundError:
    return refused(
        StreamNotFoundError,
        rpc,
        "STREAM_NOT_FOUND",
        f"stream {scope}/{stream} does not exist",
        scope,
        stream,
    )


def no_group(rpc: str, scope: str, name: str) -> ReaderGroupNotFoundError:
    return refused(
        ReaderGroupNotFoundError,
        rpc,
        "RG_NOT_FOUND",
        f"reader group {scope}/{name} does not exist",
        scope,
    )


def no_table(rpc: str, scope: str, table: str) -> KeyValueTableNotFoundError:
    return refused(
        KeyValueTableNotFoundError,
        rpc,
        "TABLE_NOT_FOUND",
        f"key-value table {scope}/{table} does not exist",
        scope,
    )
