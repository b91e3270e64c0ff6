"""The error hierarchy: one root, typed fields, picklable (Spark ships them from workers)."""

from __future__ import annotations

import copy
import inspect
import pickle
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from google.protobuf.message import Message

from pravega_wire import errors
from pravega_wire.controller.refusals import done
from pravega_wire.grpc.status import StatusCode, error_for_status
from pravega_wire.proto import controller_pb2 as pb
from pravega_wire.protocol import commands as c
from pravega_wire.segment.failures import check_passing, data_read, error_of

CLASSES = [
    value
    for _, value in inspect.getmembers(errors, inspect.isclass)
    if issubclass(value, BaseException) and value.__module__ == errors.__name__
]
NAMES: dict[str, Any] = {
    "scope": "s",
    "stream": "t",
    "segment": "s/t/0.#epoch.0",
    "transaction": UUID(int=7),
    "host": "h:1",
}
VALUES: dict[str, Any] = {
    "path": "archive/manifest.json",
    "size": 9_000_000,
    "limit": 8_388_608,
    "length": 3,
    "expected": 4,
    "rpc": "createStream",
    "status": "COMMITTED",
    "request_id": 5,
    "server_trace": "at io.pravega.Store",
    "start_offset": 20,
    "offset": 10,
    "found": (None, b"entry"),
    "item": "trips.csv",
    "feature": "writing an event over 8 MiB to plant/presses",
    "needed": "0.11",
    "group": "readings",
    "encoding_id": 7,
    "checkpoint": "daily",
    "batch": 3,
    "waiting_for": {"r1": datetime(2026, 1, 2, tzinfo=UTC), "r2": None},
    "watched_since": datetime(2026, 1, 1, tzinfo=UTC),
    "withdrawn": True,
}


def fields_of(cls: type[errors.PravegaError]) -> set[str]:
    """The keyword arguments of a class and of those that it hands them on to, without the common names."""
    found: set[str] = set()
    for each in cls.__mro__:
        if each is not errors.PravegaError and "__init__" in vars(each) and each in CLASSES:
            parameters = inspect.signature(each.__init__).parameters.values()
            found |= {p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}
    return found


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_error(cls: type[errors.PravegaError]) -> None:
    assert issubclass(cls, errors.PravegaError)
    assert isinstance(cls.retriable, bool)
    assert cls.__doc__
    given = {name: VALUES[name] for name in fields_of(cls)}
    error = cls("what happened", **given, **NAMES)
    for found in (error, pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(found) is cls
        assert str(found) == found.message == "what happened"
        assert {name: getattr(found, name) for name in given | NAMES} == given | NAMES


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_field_is_documented_and_typed(cls: type[errors.PravegaError]) -> None:
    """A field is a constructor argument: none is left to be set, or forgotten, afterwards."""
    texts = "\n".join(each.__doc__ or "" for each in cls.__mro__ if each in CLASSES)
    for name in fields_of(cls):
        assert f":ivar {name}:" in texts, name
    annotations = vars(cls).get("__annotations__", {})
    assert set(annotations) <= {"retriable"}


def test_every_class_is_exported() -> None:
    assert sorted(errors.__all__) == sorted(cls.__name__ for cls in CLASSES)
    assert len(CLASSES) > 40


def test_errors_of_a_store_have_the_request_and_the_trace() -> None:
    gone = c.NoSuchSegment(7, "s/t/0.#epoch.0", "at io.pravega.Store", 3)
    refused = error_of(gone, segment="s/t/0.#epoch.0", host="h:1", doing="reading")
    assert isinstance(refused, errors.NoSuchSegmentError)
    assert (refused.request_id, refused.server_trace) == (7, "at io.pravega.Store")
    with pytest.raises(errors.DataLossError) as lost:
        check_passing(refused, "s/t/0.#epoch.0", 100)
    assert (lost.value.start_offset, lost.value.offset, lost.value.request_id) == (None, 100, 7)


def test_a_reply_to_something_else_is_about_the_segment_that_was_asked_for() -> None:
    reply = c.SegmentDeleted(request_id=5, segment="s/other/0.#epoch.0")
    error = error_of(reply, segment=NAMES["segment"], host="h:1", doing="reading")
    assert isinstance(error, errors.UnexpectedReplyError)
    assert error.segment == NAMES["segment"]
    assert (
        error.message
        == f"reading: h:1 answered with an unexpected SegmentDeleted about segment {error.segment}"
    )


def test_lost_data_has_its_place() -> None:
    truncated = c.SegmentIsTruncated(7, "s/t/0.#epoch.0", 50, "", 10)
    with pytest.raises(errors.SegmentTruncatedError) as refused:
        data_read(truncated, 10, 5, end=15, segment="s/t/0.#epoch.0", host="h:1")
    assert (refused.value.start_offset, refused.value.offset) == (50, 10)
    with pytest.raises(errors.DataLossError) as lost:
        check_passing(refused.value, "s/t/0.#epoch.0", 12)
    assert (lost.value.start_offset, lost.value.offset) == (50, 12)


def test_errors_of_a_controller_have_the_call_and_the_status() -> None:
    error = error_for_status(StatusCode.INTERNAL, "oops", rpc="createStream", host="h:1")
    assert isinstance(error, errors.ControllerError)
    assert (error.rpc, error.status) == ("createStream", "INTERNAL")


TABLE = pb.KeyValueTableInfo(scope="s", kvtName="t")
GROUP = pb.ReaderGroupInfo(scope="s", readerGroup="g")
CUT = pb.StreamCut(streamInfo=pb.StreamInfo(scope="s", stream="t"))


@pytest.mark.parametrize(
    ("request_", "reply", "kind", "message", "stream"),
    [
        (CUT, pb.UpdateStreamStatus(status="SCOPE_NOT_FOUND"), errors.ScopeNotFoundError,
         "scope s does not exist", None),
        (CUT, pb.UpdateStreamStatus(status="STREAM_SEALED"), errors.StreamSealedError,
         "stream s/t is sealed", "t"),
        (GROUP, pb.DeleteReaderGroupStatus(status="RG_NOT_FOUND"), errors.ReaderGroupNotFoundError,
         "reader group s/g does not exist", None),
        (TABLE, pb.CreateKeyValueTableStatus(status="INVALID_TABLE_NAME"), errors.InvalidArgumentError,
         "the controller refuses the name of key-value table s/t", None),
        (CUT, pb.UpdateStreamStatus(status=99), errors.ControllerError,  # type: ignore[arg-type]
         "the controller answered anRpc for stream s/t with status UNRECOGNIZED_99", None),
    ],
)  # fmt: skip
def test_statuses_of_a_controller_are_errors_that_name_the_subject(
    request_: Message, reply: Message, kind: type[errors.PravegaError], message: str, stream: str | None
) -> None:
    with pytest.raises(kind) as refused:
        done("anRpc", request_, reply, false="STREAM_NOT_FOUND")
    assert (type(refused.value), refused.value.message, refused.value.stream) == (kind, message, stream)


def test_statuses_of_a_controller_can_be_results() -> None:
    assert done("anRpc", CUT, pb.UpdateStreamStatus(status="SUCCESS"))
    assert not done("anRpc", CUT, pb.UpdateStreamStatus(status="STREAM_NOT_FOUND"), false="STREAM_NOT_FOUND")
