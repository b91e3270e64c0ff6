"""Converts statuses of the controller to results or errors, and refuses bad arguments before a call.

"It exists already" and "there was nothing to delete" are results, as in the Java client. Every other status
that is not a success is an error that names the scope or stream (``docs/protocol/controller.md``, "Statuses
in replies").

Not public.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from google.protobuf.message import Message

from pravega_wire.controller.mapping import uuid_of
from pravega_wire.errors import (
    ControllerError,
    InvalidArgumentError,
    KeyValueTableNotFoundError,
    ReaderGroupNotFoundError,
    ScopeBrokenError,
    ScopeNotEmptyError,
    ScopeNotFoundError,
    StreamNotFoundError,
    StreamNotSealedError,
    StreamSealedError,
    TransactionUnknownError,
)
from pravega_wire.proto import controller_pb2 as pb
from pravega_wire.support.checks import check_count, shown

__all__ = [
    "broken_scope", "check_scale", "done", "known", "no_scope", "no_stream", "refused", "status_name",
    "subject", "txn_done",
]  # fmt: skip

V = TypeVar("V", bound=Enum)

# What each status means that is neither a success nor a result.
_ERRORS: Final[Mapping[str, tuple[type[ControllerError], str]]] = {
    "SCOPE_NOT_FOUND": (ScopeNotFoundError, "scope {scope} does not exist"),
    "SCOPE_NOT_EMPTY": (ScopeNotEmptyError, "scope {scope} is not empty"),
    "STREAM_NOT_FOUND": (StreamNotFoundError, "stream {scope}/{stream} does not exist"),
    "STREAM_SEALED": (StreamSealedError, "stream {scope}/{stream} is sealed"),
    "STREAM_NOT_SEALED": (StreamNotSealedError, "{about} must be sealed before it is deleted"),
    "RG_NOT_FOUND": (ReaderGroupNotFoundError, "{about} does not exist"),
    "TABLE_NOT_FOUND": (KeyValueTableNotFoundError, "{about} does not exist"),
}
_REFUSED_NAMES: Final[Mapping[str, str]] = {
    "INVALID_SCOPE_NAME": "the controller refuses {scope!r} as the name of a scope",
    "INVALID_STREAM_NAME": "the controller refuses {stream!r} as the name of a stream",
    "INVALID_RG_NAME": "the controller refuses the name of {about}",
    "INVALID_TABLE_NAME": "the controller refuses the name of {about}",
}


class _Subject(NamedTuple):
    """What a call is about: in words, its scope, and its stream if it has one."""

    about: str
    scope: str
    stream: str | None = None


def subject(request: Any) -> _Subject:
    """Return what a call is about, from its request; most requests have just the name of a stream."""
    match request:
        case pb.ScopeInfo(scope=scope):
            return _Subject(f"scope {scope}", scope)
        case (
            pb.ReaderGroupInfo(scope=scope, readerGroup=name)
            | pb.ReaderGroupConfiguration(scope=scope, readerGroupName=name)
        ):
            return _Subject(f"reader group {scope}/{name}", scope)
        case (
            pb.KeyValueTableInfo(scope=scope, kvtName=name)
            | pb.KeyValueTableConfig(scope=scope, kvtName=name)
        ):
            return _Subject(f"key-value table {scope}/{name}", scope)
        case pb.StreamInfo():
            what, of = "stream", request
        case pb.SegmentId(streamInfo=of, segmentId=number):
            what = f"segment {number} of"
        case pb.GetEpochSegmentsRequest(streamInfo=of, epoch=number):
            what = f"epoch {number} of stream"
        case pb.TxnRequest(streamInfo=of, txnId=txn) | pb.PingTxnRequest(streamInfo=of, txnId=txn):
            what = f"transaction {uuid_of(txn)} of"
        case (
            pb.TimestampFromWriter(writer=name, position=pb.StreamCut(streamInfo=of))
            | pb.RemoveWriterRequest(writer=name, stream=of)
        ):
            what = f"writer {name} of"
        case pb.SubscriberStreamCut(subscriber=name, streamCut=pb.StreamCut(streamInfo=of)):
            what = f"subscriber {name} of"
        case pb.ScaleStatusRequest(streamInfo=of, epoch=number):
            about = f"scale of stream {of.scope}/{of.stream} from epoch {number}"
            return _Subject(about, of.scope, of.stream)
        case _:
            what, of = "stream", request.streamInfo
    return _Subject(f"{what} {of.scope}/{of.stream}", of.scope, of.stream)


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
        pair: object = bounds
        if not isinstance(pair, Sequence) or len(pair) != 2 or {*map(type, pair)} - {int, float}:
            raise InvalidArgumentError(f"{about}: {shown(pair)} is not a range; pass (low, high)")
    before = 0.0
    for low, high in sorted(new_ranges):
        if not before <= low < high <= 1.0:
            raise InvalidArgumentError(
                f"{about}: the new ranges {list(new_ranges)} must lie between 0 and 1 and not overlap"
            )
        before = high


# --- statuses --------------------------------------------------------------------------------------


def status_name(reply: Any) -> str:
    """Return the name of a reply's status; numbers that are unknown to this version are tolerated."""
    found = reply.DESCRIPTOR.fields_by_name["status"].enum_type.values_by_number.get(reply.status)
    return f"UNRECOGNIZED_{reply.status}" if found is None else str(found.name)


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


def done(rpc: str, request: Message, reply: Any, *, true: str = "SUCCESS", false: str | None = None) -> bool:
    """Return True for one status of a reply and False for another.

    :param rpc: name of the call.
    :param request: its request.
    :param reply: its reply.
    :param true: status that means True.
    :param false: status that means False, or None.
    :raises InvalidArgumentError: the controller refuses a name.
    :raises ControllerError: it is any other status.
    """
    status = status_name(reply)
    if status in _REFUSED_NAMES:
        raise InvalidArgumentError(_REFUSED_NAMES[status].format(**subject(request)._asdict()))
    if status not in (true, false):
        raise refused(rpc, status, request)
    return status == true


def txn_done(rpc: str, request: pb.TxnRequest, reply: pb.TxnStatus, txn_id: UUID) -> bool:
    if reply.status == pb.TxnStatus.STREAM_NOT_FOUND:
        raise refused(rpc, "STREAM_NOT_FOUND", request)
    if reply.status == pb.TxnStatus.TRANSACTION_NOT_FOUND:
        of = subject(request)
        raise TransactionUnknownError(
            f"the controller has no record of {of.about}",
            scope=of.scope,
            stream=of.stream,
            transaction=txn_id,
        )
    # A 0.13.0 controller answers FAILURE for everything that is not possible in the transaction's state.
    return reply.status == pb.TxnStatus.SUCCESS


# --- errors ----------------------------------------------------------------------------------------


def refused(rpc: str, status: str, request: Message) -> ControllerError:
    """Return the error for a status that is neither a success nor a result."""
    of = subject(request)
    if status not in _ERRORS:
        message = f"the controller answered {rpc} for {of.about} with status {status}"
        if status == "FAILURE":
            message += ", without a reason; for a moment after a segment store has ended, calling again helps"
        return ControllerError(message, rpc=rpc, status=status)
    kind, text = _ERRORS[status]
    if isinstance(request, pb.GetEpochSegmentsRequest):
        # The controller does not say which of the two is missing.
        text = "{about} does not exist"
    stream = None if kind is ScopeNotFoundError else of.stream
    return kind(text.format(**of._asdict()), rpc=rpc, status=status, scope=of.scope, stream=stream)


def no_scope(rpc: str, scope: str) -> ControllerError:
    return refused(rpc, "SCOPE_NOT_FOUND", pb.ScopeInfo(scope=scope))


def no_stream(rpc: str, scope: str, stream: str) -> ControllerError:
    return refused(rpc, "STREAM_NOT_FOUND", pb.StreamInfo(scope=scope, stream=stream))


def broken_scope(rpc: str, status: str, scope: str) -> ScopeBrokenError:
    return ScopeBrokenError(
        f"scope {scope} exists, but the controller answers {rpc} as if it did not: it is being deleted, or "
        "an earlier attempt to delete it has removed internal tables that it needs. Copy what you need to "
        "another scope, and delete this one with delete_scope(recursive=True)",
        rpc=rpc,
        status=status,
        scope=scope,
    )
