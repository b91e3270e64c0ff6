"""A controller in memory, without I/O: requests in, answers out, and a clock that others move.

It answers as a 0.13.0 controller does, also where that one does badly (``docs/protocol/unforgiving.md``).
Scales, commits and aborts are carried out a moment after they were answered, so that clients see the states
between; everything else is done at once.
"""

from __future__ import annotations

import itertools
import logging
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random
from typing import Any, Final, NoReturn
from uuid import UUID

from google.protobuf.message import DecodeError as ProtobufDecodeError
from google.protobuf.message_factory import GetMessageClass

from pravega_wire.controller.mapping import NO_TIMESTAMP, txn_message, uuid_of
from pravega_wire.grpc.status import StatusCode
from pravega_wire.proto import controller_pb2 as pb
from pravega_wire.testing.memory.auth import Auth, BadCredentials, Permission, stream_resource
from pravega_wire.testing.memory.metadata import Tables
from pravega_wire.testing.memory.retention import cut_to_truncate_at
from pravega_wire.testing.memory.scaling import TICK, count, next_scale, watch
from pravega_wire.testing.memory.store import EVENT_COUNT, SegmentStore
from pravega_wire.testing.memory.streams import (
    Epoch,
    NotFound,
    Part,
    Stream,
    Transaction,
    even_parts,
    in_java_order,
    reduced,
)
from pravega_wire.testing.memory.watermarks import next_watermark, note
from pravega_wire.values.naming import (
    TABLE_SUFFIX,
    epoch_of,
    generalized_segment_id,
    number_of,
    segment_name,
    transaction_segment_name,
)

__all__ = ["Answer", "Controller"]

log = logging.getLogger(__name__)

_SERVICE: Final = "/io.pravega.controller.stream.api.grpc.v1.ControllerService/"
_METHODS: Final = pb.DESCRIPTOR.services_by_name["ControllerService"].methods_by_name
_NAME = re.compile(r"_?[A-Za-z0-9.\-]+\Z")
_STREAM_NAME = re.compile(r"(?:_MARK)?_?[A-Za-z0-9.\-]+\Z")
_USER_NAME = re.compile(r"[A-Za-z0-9.\-]+\Z")
_MAX_NAME: Final = 255
_MAX_USER_NAME: Final = 250
_MAX_KEY: Final = 256
"""Bytes of a key of a table."""
_MAX_TAGS: Final = 128
_MAX_TAG: Final = 256
_PAGE: Final = 1000
_RETENTION_TYPES: Final = range(3)
_UUID_DIGITS: Final = (8, 4, 4, 4, 12)

_MIN_LEASE: Final = 10_000
_MAX_LEASE: Final = 600_000
_LEASES: Final = 1000
_DAY: Final = 86_400_000
_MOST_ENDED: Final = 500

_STEPS: Final = (5, 5, 5, 5, 5, 5, 5, 200)
"""Milliseconds, one of which is drawn, after which the next step of a scale or a commit is made.

Mostly it is a few, so that tests are quick; now and then as many as with a real controller, so that programs
meet what is under way.
"""
_MARKS_EVERY: Final = 10_000
_RETENTION_EVERY: Final = 30 * 60_000
_STATE_ROLLOVER: Final = 4 << 20
_UNFINISHED: Final = 33_000
"""Milliseconds after which the sealing of a stream that was not made properly fails."""

_TXN = pb.TxnState

_STREAMS, _GROUPS, _TABLES, _TAGS = "_streamsInScope", "_readerGroupsInScope", "_kvTablesInScope", "_tags"
"""Tables of a scope."""

_PERMISSIONS: Final[dict[int, Permission]] = {
    pb.StreamInfo.UNSPECIFIED: "READ_UPDATE",
    pb.StreamInfo.NONE: "NONE",
    pb.StreamInfo.READ: "READ",
    pb.StreamInfo.WRITE: "READ_UPDATE",
    pb.StreamInfo.READ_WRITE: "READ_UPDATE",
}


@dataclass(slots=True)
class Answer:
    """The answer to a call: a message, or a status with a text.

    :ivar repeats: whether the metadata of the call comes back with it.
    """

    message: bytes = b""
    code: StatusCode = StatusCode.OK
    text: str = ""
    repeats: bool = False


class _Failed(Exception):
    def __init__(self, code: StatusCode, text: str) -> None:
        super().__init__(code, text)
        self.code, self.text = code, text


class _Never(Exception):
    """The call is never answered."""


class _Late(Exception):
    """The call is answered later. :ivar reply: the answer. :ivar after: milliseconds."""

    def __init__(self, after: int, reply: Any) -> None:
        super().__init__(after)
        self.after, self.reply = after, reply


@dataclass(slots=True, eq=False)
class _Scope:
    """A scope.

    :ivar id: id by which its tables are named.
    :ivar unfinished: names of groups whose creation does not end.
    :ivar ended: ids of groups that were deleted.
    :ivar lost: names of groups that were to be made with one of these ids.
    :ivar broken: which of its tables a refused deletion has removed.
    """

    id: UUID
    streams: dict[str, Stream] = field(default_factory=dict)
    groups: dict[str, pb.ReaderGroupConfiguration] = field(default_factory=dict)
    tables: dict[str, pb.KeyValueTableConfig] = field(default_factory=dict)
    unfinished: set[str] = field(default_factory=set)
    ended: set[UUID] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    broken: set[str] = field(default_factory=set)

    @property
    def empty(self) -> bool:
        return not (self.streams or self.groups or self.tables)


class Controller:
    """All scopes, streams, transactions, groups and tables.

    Call :meth:`run` when the time of :meth:`next_due` has come.

    :param store: the store of all segments.
    :param clock: returns seconds since 1970.
    :param random: for ids.
    :param endpoint: host and port of the store.
    :param auth: checks credentials and issues tokens; None to let everybody in.
    """

    def __init__(
        self,
        store: SegmentStore,
        clock: Callable[[], float],
        random: Random,
        endpoint: tuple[str, int],
        auth: Auth | None = None,
    ) -> None:
        self._store = store
        self._auth = auth
        self._clock = clock
        self._random = random
        self.endpoint = endpoint
        self._tables = Tables(store)
        self._scopes: dict[str, _Scope] = {}
        self._add_scope("_system")
        # Numbers of segments go on when a stream is made again.
        self._first_numbers: dict[tuple[str, str], int] = {}
        # The transactions of the last day that have ended, and when.
        self._ended: dict[UUID, tuple[Stream, Transaction, int]] = {}
        self._jobs: list[tuple[int, int, Stream | None, Callable[[], None]]] = []
        self._order = itertools.count()

    # --- calls and time -------------------------------------------------------------------------

    def call(
        self, path: str, request: bytes, answer: Callable[[Answer], None], authorization: str = ""
    ) -> None:
        """Carry out a call.

        :param path: path of the call.
        :param request: the message.
        :param answer: called once with the answer: at once, later, or never.
        :param authorization: the metadata ``authorization`` of the call, or "".
        """
        rpc = path.removeprefix(_SERVICE)
        method = getattr(self, rpc, None) if rpc in _METHODS and path != rpc else None
        if method is None:
            answer(Answer(code=StatusCode.UNIMPLEMENTED, text=f"Method not found: {path.removeprefix('/')}"))
            return
        refusal = self._refusal(rpc, authorization)
        if refusal is not None:
            answer(refusal)
            return
        try:
            message = GetMessageClass(_METHODS[rpc].input_type).FromString(request)
            answer(Answer(method(message).SerializeToString()))
        except ProtobufDecodeError:
            answer(Answer(code=StatusCode.UNKNOWN))
        except NotFound as error:
            answer(Answer(code=StatusCode.NOT_FOUND, text=str(error)))
        except _Failed as failed:
            answer(Answer(code=failed.code, text=failed.text))
        except _Late as late:
            reply = Answer(late.reply.SerializeToString())
            self._at(self._now() + late.after, lambda: answer(reply))
        except _Never:
            pass
        except Exception as error:
            # As a controller answers what it did not expect.
            log.exception("%s failed", rpc)
            answer(Answer(code=StatusCode.INTERNAL, text=f"{type(error).__name__}: {error}"))

    def _refusal(self, rpc: str, authorization: str) -> Answer | None:
        """Return the answer to a call of somebody without the account; None if it may be made."""
        if self._auth is None:
            return None
        try:
            known = self._auth.is_known(authorization)
        except BadCredentials:
            # The credentials come back in the trailers.
            return Answer(code=StatusCode.UNAUTHENTICATED, repeats=True)
        except ValueError:
            return Answer(code=StatusCode.UNKNOWN)
        if known or rpc == "getControllerServerList":
            return None
        return Answer(code=StatusCode.UNAUTHENTICATED, text="Authentication failed")

    def _token(self, resource: str, permission: Permission = "READ_UPDATE") -> str:
        return "" if self._auth is None else self._auth.token(resource, permission)

    def _stream_token(self, info: pb.StreamInfo, permission: Permission = "READ_UPDATE") -> str:
        return self._token(stream_resource(info.scope, info.stream), permission)

    def next_due(self) -> float | None:
        """Return when :meth:`run` has something to do, in seconds since 1970; None if nothing waits."""
        return self._jobs[0][0] / 1000 if self._jobs else None

    def run(self) -> None:
        """Do what is due."""
        while self._jobs and self._jobs[0][0] <= self._now():
            job = heappop(self._jobs)[3]
            try:
                job()
            except Exception:
                log.exception("a step of a workflow failed")

    def _now(self) -> int:
        return int(self._clock() * 1000)

    def _at(self, time: int, job: Callable[[], None], stream: Stream | None = None) -> None:
        heappush(self._jobs, (time, next(self._order), stream, job))

    def _soon(self, stream: Stream, job: Callable[[], None]) -> None:
        """Do something after everything else that waits for this stream."""
        last = max((each[0] for each in self._jobs if each[2] is stream), default=0)
        self._at(max(self._now() + self._random.choice(_STEPS), last), job, stream)

    def _settle(self, stream: Stream) -> None:
        """Do everything that waits for this stream now."""
        while any(each[2] is stream for each in self._jobs):
            due = min(each for each in self._jobs if each[2] is stream)
            self._jobs.remove(due)
            self._jobs.sort()
            due[3]()

    # --- finding things -------------------------------------------------------------------------

    def _scope_of(self, name: str) -> _Scope:
        found = self._scopes.get(name)
        if found is None:
            raise NotFound(f"Scope {name} does not exist")
        return found

    def _find(self, info: Any) -> Stream | None:
        _given(info.scope, "scope")
        _given(info.stream, "stream")
        return self._known(info.scope, info.stream)

    def _known(self, scope: str, stream: str) -> Stream | None:
        found = self._scopes.get(scope)
        return None if found is None else found.streams.get(stream)

    def _stream(self, info: Any) -> Stream:
        found = self._find(info)
        if found is None:
            raise NotFound(f"Stream {info.scope}/{info.stream} does not exist")
        return found

    def _cluster(self) -> Iterable[Stream]:
        return [stream for scope in self._scopes.values() for stream in scope.streams.values()]

    # --- the cluster ----------------------------------------------------------------------------

    def getControllerServerList(self, request: pb.ServerRequest) -> pb.ServerResponse:
        # As a standalone server, which has no list.
        raise _Failed(StatusCode.UNKNOWN, "Controller cluster not initialized")

    def getURI(self, request: pb.SegmentId) -> pb.NodeUri:
        _given(request.streamInfo.scope, "scope")
        _given(request.streamInfo.stream, "stream")
        host, port = self.endpoint
        return pb.NodeUri(endpoint=host, port=port)

    def getDelegationToken(self, request: pb.StreamInfo) -> pb.DelegationToken:
        if self._auth is None:
            return pb.DelegationToken()
        _given(request.scope, "scope")
        _given(request.stream, "stream")
        asked = request.accessOperation
        if asked == pb.StreamInfo.ANY:
            raise _Failed(StatusCode.INTERNAL, "Cannot translate access operation ANY")
        permission = _PERMISSIONS[asked]
        if permission == "NONE" and request.stream.startswith("_"):
            permission = "READ"
        return pb.DelegationToken(delegationToken=self._stream_token(request, permission))

    # --- scopes ---------------------------------------------------------------------------------

    def createScope(self, request: pb.ScopeInfo) -> pb.CreateScopeStatus:
        name = _given(request.scope, "scope")
        if not _NAME.match(name) or len(name) > _MAX_NAME:
            return pb.CreateScopeStatus(status="INVALID_SCOPE_NAME")
        if name in self._scopes:
            return pb.CreateScopeStatus(status="SCOPE_EXISTS")
        self._add_scope(name)
        return pb.CreateScopeStatus()

    def _add_scope(self, name: str) -> None:
        made = self._scopes[name] = _Scope(self._new_id())
        self._tables.add_scope(name, made.id)

    def _new_id(self) -> UUID:
        return UUID(int=self._random.getrandbits(128), version=4)

    def _remove_scope(self, name: str) -> None:
        self._tables.remove_scope(name, self._scopes.pop(name).id)

    def deleteScope(self, request: pb.ScopeInfo) -> pb.DeleteScopeStatus:
        name = _given(request.scope, "scope")
        scope = self._scopes.get(name)
        if scope is None:
            return pb.DeleteScopeStatus(status="SCOPE_NOT_FOUND")
        if not scope.empty:
            # Those of its own tables that are empty are removed, and those of tags in any case.
            found = {_STREAMS: scope.streams, _GROUPS: scope.groups, _TABLES: scope.tables, _TAGS: ()}
            scope.broken |= {table for table, entries in found.items() if not entries}
            return pb.DeleteScopeStatus(status="SCOPE_NOT_EMPTY")
        self._remove_scope(name)
        return pb.DeleteScopeStatus()

    def deleteScopeRecursive(self, request: pb.ScopeInfo) -> pb.DeleteScopeStatus:
        scope = self._scopes.get(_given(request.scope, "scope"))
        if scope is None:
            return pb.DeleteScopeStatus()
        if any(each.stuck for each in scope.streams.values()):
            raise _Never
        for stream in list(scope.streams.values()):
            self._seal(stream)
            self._delete(stream)
        for group in list(scope.groups.values()):
            self._end_group(scope, group)
        for table in list(scope.tables.values()):
            self._end_table(scope, table)
        self._remove_scope(request.scope)
        return pb.DeleteScopeStatus()

    def checkScopeExists(self, request: pb.ScopeInfo) -> pb.ExistsResponse:
        return pb.ExistsResponse(exists=_given(request.scope, "scope") in self._scopes)

    def listScopes(self, request: pb.ScopesRequest) -> pb.ScopesResponse:
        names, token = _page(self._scopes, request.continuationToken)
        return pb.ScopesResponse(scopes=names, continuationToken=token)

    # --- streams --------------------------------------------------------------------------------

    def createStream(self, request: pb.StreamConfig) -> pb.CreateStreamStatus:
        info = request.streamInfo
        _check_config(request)
        _given(info.scope, "scope")
        if not _NAME.match(info.stream) or len(info.stream) > _MAX_NAME:
            return pb.CreateStreamStatus(status="INVALID_STREAM_NAME")
        _check_rollover(request.rolloverSizeBytes)
        scope = self._scopes.get(info.scope)
        if scope is None:
            return pb.CreateStreamStatus(status="SCOPE_NOT_FOUND")
        found = scope.streams.get(info.stream)
        if found is not None and not found.unfinished:
            return pb.CreateStreamStatus(status="STREAM_EXISTS")
        if request.scalingPolicy.minNumSegments < 1:
            return pb.CreateStreamStatus(status="FAILURE")
        if _STREAMS in scope.broken:
            return pb.CreateStreamStatus(status="SCOPE_NOT_FOUND")
        made = self._create(scope, request) if found is None else found
        if request.tags.tag and _TAGS in scope.broken:
            made.unfinished = True
            return pb.CreateStreamStatus(status="SCOPE_NOT_FOUND")
        return pb.CreateStreamStatus(status="SUCCESS" if found is None else "STREAM_EXISTS")

    def _new_stream(self, scope: _Scope, config: pb.StreamConfig) -> Stream:
        info = config.streamInfo
        first = self._first_numbers.get((info.scope, info.stream), 0)
        parts = even_parts(config.scalingPolicy.minNumSegments, first)
        made = Stream(self._new_id(), info.scope, info.stream, config, [Epoch(0, 0, parts)])
        scope.streams[info.stream] = made
        self._tables.add_stream(made, scope.id)
        return made

    def _create(self, scope: _Scope, config: pb.StreamConfig) -> Stream:
        """Make a stream, and the one of its watermarks."""
        made = self._new_stream(scope, config)
        made.tags = set(config.tags.tag)
        self._create_segments(made, made.epoch.parts)
        name = f"_MARK{made.name}"
        if name not in scope.streams:
            marks = _fixed(made.scope, name)
            self._create_segments(self._new_stream(scope, marks), scope.streams[name].epoch.parts)
        self._follow_policies(made)
        return made

    def _follow_policies(self, stream: Stream) -> None:
        """Begin what the policies of a stream's configuration need, unless it goes on since another one."""
        now = self._now()
        if stream.config.retentionPolicy.retentionType and not stream.retained:
            stream.retained = True
            self._at(now + _RETENTION_EVERY, lambda: self._retain(stream))
        if stream.config.scalingPolicy.scaleType and not stream.watched:
            stream.watched = True
            self._at(now, lambda: self._watch_traffic(stream))

    def _create_segments(self, stream: Stream, parts: Iterable[Part]) -> None:
        scaling = stream.config.scalingPolicy
        for part in parts:
            self._store.create(
                _name(stream, part.id),
                scale_type=scaling.scaleType,
                rate=scaling.targetRate,
                rollover=stream.config.rolloverSizeBytes,
            )

    def updateStream(self, request: pb.StreamConfig) -> pb.UpdateStreamStatus:
        _check_config(request)
        _check_rollover(request.rolloverSizeBytes)
        stream = self._find(request.streamInfo)
        if stream is None:
            return pb.UpdateStreamStatus(status="STREAM_NOT_FOUND")
        if stream.sealed:
            return pb.UpdateStreamStatus(status="STREAM_SEALED")
        if stream.unfinished:
            _stay_stuck(stream)
        if stream.updating:
            return pb.UpdateStreamStatus(status="FAILURE")
        stream.updating = True
        self._check_free(stream)
        stream.config = request
        if request.scalingPolicy.minNumSegments < 1:
            # The workflow cannot make such an epoch, and tries for ever (observed).
            _stay_stuck(stream)
        self._follow_policies(stream)
        policy = request.scalingPolicy
        active, wanted = len(stream.parts), policy.minNumSegments
        if active < wanted or (active > wanted and policy.scaleType == pb.ScalingPolicy.FIXED_NUM_SEGMENTS):
            ranges = [(each.low, each.high) for each in even_parts(wanted, 0)]
            if ranges[-1][1] != max(each.high for each in stream.parts):
                # No scale may have other ends, and the workflow of the update does not end without it.
                _stay_stuck(stream)
            self._begin_scale(stream, [each.id for each in stream.parts], ranges)
            self._settle(stream)
        for each in stream.parts:
            segment = self._store.segment(_name(stream, each.id))
            self._store.set_policy(segment, policy.scaleType, policy.targetRate)
        tags = set(request.tags.tag)
        if _TAGS in self._scopes[stream.scope].broken and tags != stream.tags:
            _stay_stuck(stream)
        stream.tags = tags
        stream.updating = False
        return pb.UpdateStreamStatus()

    def getStreamConfiguration(self, request: pb.StreamInfo) -> pb.StreamConfig:
        config = self._stream(request).config
        # There always are some, if only none.
        config.tags.SetInParent()
        return config

    def checkStreamExists(self, request: pb.StreamInfo) -> pb.ExistsResponse:
        found = self._find(request)
        return pb.ExistsResponse(exists=found is not None)

    def sealStream(self, request: pb.StreamInfo) -> pb.UpdateStreamStatus:
        stream = self._find(request)
        if stream is None:
            return pb.UpdateStreamStatus(status="STREAM_NOT_FOUND")
        if stream.unfinished:
            raise _Late(_UNFINISHED, pb.UpdateStreamStatus(status="FAILURE"))
        self._check_free(stream)
        self._seal(stream)
        return pb.UpdateStreamStatus()

    def _seal(self, stream: Stream) -> None:
        if stream.sealed or stream.unfinished:
            return
        for txn in stream.transactions.values():
            if txn.state == _TXN.OPEN:
                self._begin_abort(stream, txn)
        self._settle(stream)
        self._seal_segments(stream, (each.id for each in stream.epoch.parts))
        stream.sealed = True

    def _seal_segments(self, stream: Stream, segments: Iterable[int]) -> None:
        for each in segments:
            segment = self._store.segments.get(_name(stream, each))
            if segment is None:
                continue
            if not segment.sealed:
                self._store.seal(segment)
            stream.lengths[each] = segment.length

    def deleteStream(self, request: pb.StreamInfo) -> pb.DeleteStreamStatus:
        stream = self._find(request)
        if stream is None:
            return pb.DeleteStreamStatus(status="STREAM_NOT_FOUND")
        if not stream.sealed and (stream.stuck or not stream.unfinished):
            return pb.DeleteStreamStatus(status="STREAM_NOT_SEALED")
        self._delete(stream)
        return pb.DeleteStreamStatus()

    def _delete(self, stream: Stream) -> None:
        """Delete a stream, and the one of its watermarks."""
        scope = self._scopes[stream.scope]
        streams = scope.streams
        for each in (stream, streams.get(f"_MARK{stream.name}")):
            if each is None or streams.get(each.name) is not each:
                continue
            for part in {part.id for epoch in each.epochs for part in epoch.parts}:
                self._delete_segment(_name(each, part))
            last = max(number_of(part.id) for part in each.epoch.parts)
            self._first_numbers[each.scope, each.name] = last + 1
            self._tables.remove_stream(each, scope.id)
            del streams[each.name]

    def _delete_segment(self, name: str) -> None:
        segment = self._store.segments.get(name)
        if segment is not None:
            self._store.delete(segment)

    def listStreamsInScope(self, request: pb.StreamsInScopeRequest) -> pb.StreamsInScopeResponse:
        return self._listed_streams(request, lambda stream: True)

    def listStreamsInScopeForTag(self, request: pb.StreamsInScopeWithTagRequest) -> pb.StreamsInScopeResponse:
        _given(request.tag, "tag")

        def wanted(stream: Stream) -> bool:
            return request.tag in stream.tags and _TAGS not in self._scopes[stream.scope].broken

        return self._listed_streams(request, wanted)

    def _listed_streams(self, request: Any, wanted: Callable[[Stream], bool]) -> pb.StreamsInScopeResponse:
        scope = self._scopes.get(_given(request.scope.scope, "scope"))
        if scope is None:
            return pb.StreamsInScopeResponse(status="SCOPE_NOT_FOUND")
        found = [each.name for each in scope.streams.values() if wanted(each)]
        names, token = _page(found, request.continuationToken)
        streams = [pb.StreamInfo(scope=request.scope.scope, stream=name) for name in names]
        return pb.StreamsInScopeResponse(streams=streams, continuationToken=token)

    def _check_free(self, stream: Stream) -> None:
        """Let the stream's workflows end first; a call that waits for one that cannot is not answered."""
        if stream.stuck:
            raise _Never
        self._settle(stream)

    # --- segments and cuts ----------------------------------------------------------------------

    def getCurrentSegments(self, request: pb.StreamInfo) -> pb.SegmentRanges:
        if not request.stream:
            # Another status than for other calls (observed).
            raise _Failed(StatusCode.UNKNOWN, "stream: argument is null or empty")
        stream = self._stream(request)
        wanted = request.accessOperation != pb.StreamInfo.NONE
        token = self._token(_authorized(request)) if wanted else ""
        return pb.SegmentRanges(segmentRanges=_ranges(stream, stream.parts), delegationToken=token)

    def getEpochSegments(self, request: pb.GetEpochSegmentsRequest) -> pb.SegmentRanges:
        _check_epoch(request.epoch)
        stream = self._stream(request.streamInfo)
        found = _ranges(stream, stream.epoch_at(request.epoch).parts)
        return pb.SegmentRanges(segmentRanges=found, delegationToken=self._stream_token(request.streamInfo))

    def getSegments(self, request: pb.GetSegmentsRequest) -> pb.SegmentsAtTime:
        stream = self._stream(request.streamInfo)
        found = [
            pb.SegmentsAtTime.SegmentLocation(segmentId=_segment_id(stream, each), offset=offset)
            for each, offset in stream.head().items()
        ]
        wanted = request.streamInfo.accessOperation != pb.StreamInfo.NONE
        token = self._stream_token(request.streamInfo) if wanted else ""
        return pb.SegmentsAtTime(segments=found, delegationToken=token)

    def getSegmentsImmediatelyFollowing(self, request: pb.SegmentId) -> pb.SuccessorResponse:
        stream = self._stream(request.streamInfo)
        found = [
            pb.SuccessorResponse.SegmentEntry(segment=_ranges(stream, [part])[0], value=before)
            for part, before in stream.successors(request.segmentId)
        ]
        return pb.SuccessorResponse(segments=found)

    getSegmentsImmediatlyFollowing = getSegmentsImmediatelyFollowing

    def getSegmentsBetween(self, request: pb.StreamCutRange) -> pb.StreamCutRangeResponse:
        start, end = dict(getattr(request, "from")), dict(request.to)
        if not start and not end:
            raise _Failed(StatusCode.INTERNAL, "both cuts are empty")
        stream = self._stream(request.streamInfo)
        if min((*start, *end)) < 0:
            raise _Failed(StatusCode.UNKNOWN, "an epoch is negative")
        try:
            found = stream.between(start, end)
        except ValueError as error:
            raise _Failed(StatusCode.UNKNOWN, str(error)) from error
        segments = [_segment_id(stream, each.id) for each in found]
        token = self._stream_token(request.streamInfo, "READ")
        return pb.StreamCutRangeResponse(segments=segments, delegationToken=token)

    def isSegmentValid(self, request: pb.SegmentId) -> pb.SegmentValidityResponse:
        stream = self._stream(request.streamInfo)
        found = any(each.id == request.segmentId for each in stream.parts)
        return pb.SegmentValidityResponse(response=found)

    def isStreamCutValid(self, request: pb.StreamCut) -> pb.StreamCutValidityResponse:
        if not request.cut:
            # Another status than for other cuts that it cannot follow (observed).
            raise _Failed(StatusCode.INTERNAL, "the cut is empty")
        stream = self._stream(request.streamInfo)
        stream.epoch_at(max(min(map(epoch_of, request.cut)), 0))
        try:
            for each in request.cut:
                if stream.epoch_at(epoch_of(each)).part(each) is None:
                    # Another status than for an epoch that does not exist (observed).
                    raise ValueError(f"segment {each} of stream {stream.scope}/{stream.name}")
            return pb.StreamCutValidityResponse(response=stream.is_valid(request.cut))
        except (NotFound, IndexError, ValueError) as error:
            raise _Failed(StatusCode.UNKNOWN, str(error)) from error

    def truncateStream(self, request: pb.StreamCut) -> pb.UpdateStreamStatus:
        stream = self._find(request.streamInfo)
        if stream is None:
            return pb.UpdateStreamStatus(status="STREAM_NOT_FOUND")
        if stream.sealed:
            return pb.UpdateStreamStatus(status="STREAM_SEALED")
        self._check_free(stream)
        if request.cut and min(map(epoch_of, request.cut)) >= len(stream.epochs):
            # As if it was that what does not exist (observed).
            return pb.UpdateStreamStatus(status="STREAM_NOT_FOUND")
        done = self._truncate(stream, dict(request.cut))
        return pb.UpdateStreamStatus(status="SUCCESS" if done else "FAILURE")

    def _truncate(self, stream: Stream, cut: dict[int, int]) -> bool:
        try:
            if not stream.is_valid(cut) or (stream.cut and not stream.is_at_or_after(cut, stream.cut)):
                return False
        except (NotFound, IndexError, ValueError):
            return False
        if min(cut.values()) < 0:
            # No store truncates a segment at a negative offset, and the workflow tries for ever (observed).
            _stay_stuck(stream)
        gone = [part.id for part in stream.between(stream.cut, cut) if part.id not in cut]
        stream.cut = cut
        for each, offset in cut.items():
            segment = self._store.segments.get(_name(stream, each))
            # An offset that is not in the segment counts as truncated already.
            if segment is not None and segment.start < offset <= segment.length:
                segment.truncate(offset)
        for each in gone:
            self._delete_segment(_name(stream, each))
        return True

    # --- scaling --------------------------------------------------------------------------------

    def scale(self, request: pb.ScaleRequest) -> pb.ScaleResponse:
        stream = self._find(request.streamInfo)
        sealed = list(request.sealedSegments)
        ranges = in_java_order((each.start, each.end) for each in request.newKeyRanges)
        if len({low for low, _ in ranges}) < len(ranges):
            raise _Failed(StatusCode.INTERNAL, "Duplicate key")
        if stream is None or stream.sealed or stream.unfinished:
            return pb.ScaleResponse(status="FAILURE")
        if stream.stuck or len(stream.epochs) > stream.active + 1:
            return pb.ScaleResponse(status="PRECONDITION_FAILED")
        # A commit that waits may roll the stream, which must not happen within a scale.
        self._settle(stream)
        old = [stream.epoch.part(each) for each in sealed]
        if None in old:
            return pb.ScaleResponse(status="PRECONDITION_FAILED")
        if any(low >= high for low, high in ranges) or reduced(ranges) != reduced(
            (each.low, each.high) for each in old if each is not None
        ):
            return pb.ScaleResponse(status="FAILURE")
        left = len(stream.epoch.parts) - len(sealed) + len(ranges)
        if left < stream.config.scalingPolicy.minNumSegments:
            return pb.ScaleResponse(status="PRECONDITION_FAILED")
        before = stream.active
        if not sealed:
            stream.stuck = True
            return pb.ScaleResponse(status="STARTED", epoch=before)
        new = self._begin_scale(stream, sealed, ranges)
        return pb.ScaleResponse(status="STARTED", segments=_ranges(stream, new), epoch=before)

    def _begin_scale(
        self, stream: Stream, sealed: list[int], ranges: list[tuple[float, float]]
    ) -> tuple[Part, ...]:
        new = stream.begin_epoch(sealed, ranges)
        self._create_segments(stream, new)

        def end() -> None:
            self._seal_segments(stream, sealed)
            stream.active += 1

        self._soon(stream, end)
        return new

    def _watch_traffic(self, stream: Stream) -> None:
        """Look how much is written to a stream, scale it if its policy wants it, and come back later."""
        known = self._known(stream.scope, stream.name)
        if known is not stream or stream.sealed or not stream.config.scalingPolicy.scaleType:
            stream.watched = False
            return
        now = self._now()
        self._at(now + TICK, lambda: self._watch_traffic(stream))
        for part in stream.parts:
            total = count(stream, self._store.segment(_name(stream, part.id)))
            watch(stream, part, total, now)
        busy = stream.stuck or any(each[2] is stream for each in self._jobs)
        wanted = None if busy else next_scale(stream, now)
        if wanted is not None:
            parts, ranges = wanted
            self._begin_scale(stream, [each.id for each in parts], ranges)

    def checkScale(self, request: pb.ScaleStatusRequest) -> pb.ScaleStatusResponse:
        _check_epoch(request.epoch)
        stream = self._find(request.streamInfo)
        if stream is None or request.epoch > stream.active:
            return pb.ScaleStatusResponse(status="INVALID_INPUT")
        if request.epoch in (stream.active, stream.epoch.reference):
            return pb.ScaleStatusResponse(status="IN_PROGRESS")
        return pb.ScaleStatusResponse(status="SUCCESS")

    # --- transactions ---------------------------------------------------------------------------

    def createTransaction(self, request: pb.CreateTxnRequest) -> pb.CreateTxnResponse:
        stream = self._stream(request.streamInfo)
        lease = request.lease
        if not _MIN_LEASE <= lease <= _MAX_LEASE:
            raise _Failed(StatusCode.UNKNOWN, f"lease {lease} is not between {_MIN_LEASE} and {_MAX_LEASE}")
        if stream.sealed:
            raise _Failed(StatusCode.INTERNAL, f"Stream: {stream.name} State: SEALED")
        epoch = stream.epoch.reference
        txn_id = UUID(int=(epoch << 96) | self._random.getrandbits(96))
        now = self._now()
        latest = now + min(_LEASES * lease, _DAY)
        txn = Transaction(txn_id, epoch, _TXN.OPEN, now, now + lease, latest)
        stream.transactions[txn_id] = txn
        self._tables.add_transaction(stream, txn)
        parts = [
            Part(generalized_segment_id(each.id, txn_id), each.low, each.high) for each in stream.epoch.parts
        ]
        for each in parts:
            self._store.create(
                transaction_segment_name(_name(stream, each.id), txn_id),
                rollover=stream.config.rolloverSizeBytes,
            )
        self._watch(stream, txn)
        return pb.CreateTxnResponse(
            txnId=txn_message(txn_id),
            activeSegments=_ranges(stream, parts),
            delegationToken=self._stream_token(request.streamInfo),
        )

    def _watch(self, stream: Stream, txn: Transaction) -> None:
        """Abort the transaction when its lease has ended."""

        def look() -> None:
            if txn.state != _TXN.OPEN:
                return
            if txn.expires > self._now():
                self._at(txn.expires, look)
            else:
                self._begin_abort(stream, txn)

        self._at(txn.expires, look)

    def pingTransaction(self, request: pb.PingTxnRequest) -> pb.PingTxnStatus:
        txn = self._transaction(request)
        if txn is None:
            return pb.PingTxnStatus(status="UNKNOWN")
        if txn.state != _TXN.OPEN:
            committed = txn.state in (_TXN.COMMITTING, _TXN.COMMITTED)
            return pb.PingTxnStatus(status="COMMITTED" if committed else "ABORTED")
        if request.lease > _MAX_LEASE:
            return pb.PingTxnStatus(status="LEASE_TOO_LARGE")
        if self._now() + request.lease > txn.latest:
            return pb.PingTxnStatus(status="MAX_EXECUTION_TIME_EXCEEDED")
        # A job that comes too late for a shorter lease would keep it alive.
        sooner = self._now() + request.lease < txn.expires
        txn.expires = self._now() + request.lease
        stream = self._stream(request.streamInfo)
        self._tables.add_transaction(stream, txn)
        if sooner:
            self._watch(stream, txn)
        return pb.PingTxnStatus()

    def commitTransaction(self, request: pb.TxnRequest) -> pb.TxnStatus:
        txn = self._transaction(request)
        if txn is None or txn.state in (_TXN.ABORTING, _TXN.ABORTED):
            return pb.TxnStatus(status="FAILURE")
        if txn.state == _TXN.OPEN:
            stream = self._stream(request.streamInfo)
            txn.state = _TXN.COMMITTING
            if request.timestamp != NO_TIMESTAMP:
                txn.writer, txn.time = request.writerId, request.timestamp
            self._tables.add_transaction(stream, txn)
            # The order of commits is that of these requests.
            stream.transactions[txn.id] = stream.transactions.pop(txn.id)
            self._soon(stream, lambda: self._commit_waiting(stream))
        return pb.TxnStatus()

    def abortTransaction(self, request: pb.TxnRequest) -> pb.TxnStatus:
        txn = self._transaction(request)
        if txn is None or txn.state in (_TXN.COMMITTING, _TXN.COMMITTED):
            return pb.TxnStatus(status="FAILURE")
        if txn.state == _TXN.OPEN:
            self._begin_abort(self._stream(request.streamInfo), txn)
        return pb.TxnStatus()

    def _begin_abort(self, stream: Stream, txn: Transaction) -> None:
        txn.state = _TXN.ABORTING
        self._tables.add_transaction(stream, txn)

        def end() -> None:
            for part in stream.epochs[txn.epoch].parts:
                self._delete_segment(_txn_name(stream, part, txn.id))
            self._end_transaction(stream, txn, _TXN.ABORTED)

        self._soon(stream, end)

    def _end_transaction(self, stream: Stream, txn: Transaction, state: pb.TxnState.State) -> None:
        txn.state = state
        del stream.transactions[txn.id]
        self._forget_ended()
        self._ended[txn.id] = stream, txn, self._now()
        self._tables.remove_transaction(stream, txn)

    def _forget_ended(self) -> None:
        """Forget the transactions that ended a day ago."""
        while self._ended and next(iter(self._ended.values()))[2] <= self._now() - _DAY:
            del self._ended[next(iter(self._ended))]

    def _commit_waiting(self, stream: Stream) -> None:
        """Commit the transactions of the first one's epoch that wait."""
        waiting = [each for each in stream.transactions.values() if each.state == _TXN.COMMITTING]
        if not waiting:
            return
        epoch = waiting[0].epoch
        together = [each for each in waiting if each.epoch == epoch]
        if epoch == stream.epoch.reference:
            self._commit_into(stream, stream.epoch, together)
            return
        # Rolling: the transaction's epoch and the active one are made again, one after the other.
        active = stream.epoch
        first = stream.duplicate(stream.epochs[epoch], active)
        second = stream.duplicate(active, first)
        for each in (first, second):
            self._create_segments(stream, each.parts)
        self._commit_into(stream, first, together)
        for each in (first, active):
            self._seal_segments(stream, (part.id for part in each.parts))
        stream.active = second.number

    def _commit_into(self, stream: Stream, epoch: Epoch, together: list[Transaction]) -> None:
        for txn in together:
            position = {}
            for part in epoch.parts:
                source = self._store.segments.get(_txn_name(stream, part, txn.id))
                target = self._store.segments.get(_name(stream, part.id))
                if source is None or target is None:
                    continue
                if stream.config.scalingPolicy.scaleType == pb.ScalingPolicy.BY_RATE_IN_EVENTS_PER_SEC:
                    rates = stream.rates.get(part.id)
                    if rates is not None:
                        # A merge does not count events in the segment.
                        rates.count -= source.attributes.get(EVENT_COUNT, 0)
                position[part.id] = self._store.merge(target, source)
            self._end_transaction(stream, txn, _TXN.COMMITTED)
            if txn.writer:
                self._note(stream, txn.writer, txn.time, position)

    def checkTransactionState(self, request: pb.TxnRequest) -> pb.TxnState:
        txn = self._transaction(request)
        return pb.TxnState(state=_TXN.UNKNOWN if txn is None else txn.state)

    def listCompletedTransactions(self, request: pb.ListCompletedTxnRequest) -> pb.ListCompletedTxnResponse:
        stream = self._find(request.streamInfo)
        self._forget_ended()
        # One table has those of all streams, and nothing is found once it has those of a second one.
        if any(of is not stream for of, _, _ in self._ended.values()):
            return pb.ListCompletedTxnResponse()
        found = [
            pb.TxnResponse(
                txnId=txn_message(txn_id),
                status=pb.TxnResponse.COMMITTED if txn.state == _TXN.COMMITTED else pb.TxnResponse.ABORTED,
            )
            for txn_id, (_, txn, _) in self._ended.items()
        ]
        return pb.ListCompletedTxnResponse(response=found[:_MOST_ENDED])

    def _transaction(self, request: Any) -> Transaction | None:
        stream, txn_id = self._find(request.streamInfo), uuid_of(request.txnId)
        found = None if stream is None else stream.transactions.get(txn_id)
        self._forget_ended()
        if found is None and txn_id in self._ended:
            # Those that have ended outlive their stream, also when its name is used again (observed).
            of, txn, _ = self._ended[txn_id]
            if (of.scope, of.name) == (request.streamInfo.scope, request.streamInfo.stream):
                return txn
        return found

    # --- time -----------------------------------------------------------------------------------

    def noteTimestampFromWriter(self, request: pb.TimestampFromWriter) -> pb.TimestampResponse:
        stream = self._stream(request.position.streamInfo)
        _given(request.writer, "writer", StatusCode.UNKNOWN)
        result = self._note(stream, request.writer, request.timestamp, dict(request.position.cut))
        return pb.TimestampResponse(result=result)

    def _note(self, stream: Stream, writer: str, time: int, position: dict[int, int]) -> Any:
        if not stream.marks:
            self._at(self._now() + _MARKS_EVERY, lambda: self._mark(stream))
        return note(stream, writer, time, position)

    def removeWriter(self, request: pb.RemoveWriterRequest) -> pb.RemoveWriterResponse:
        stream = self._find(request.stream)
        if stream is not None and not request.writer:
            return pb.RemoveWriterResponse(result="INTERNAL_ERROR")
        mark = None if stream is None else stream.marks.get(request.writer)
        if mark is None:
            return pb.RemoveWriterResponse(result="UNKNOWN_WRITER")
        mark.alive = False
        return pb.RemoveWriterResponse()

    def _mark(self, stream: Stream) -> None:
        """Write a watermark if there is a new one, and look again later."""
        marks = self._known(stream.scope, f"_MARK{stream.name}")
        if self._known(stream.scope, stream.name) is not stream or marks is None or not stream.marks:
            return
        segment = self._store.segment(_name(marks, marks.epoch.parts[0].id))
        try:
            next_watermark(self._store, stream, segment, self._now())
        finally:
            # Also after a position that cannot be understood.
            if stream.marks:
                self._at(self._now() + _MARKS_EVERY, lambda: self._mark(stream))

    # --- reader groups --------------------------------------------------------------------------

    def createReaderGroup(self, request: pb.ReaderGroupConfiguration) -> pb.CreateReaderGroupResponse:
        name, group_id = request.readerGroupName, _checked(request)
        _given(request.scope, "scope")
        if not _USER_NAME.match(name) or len(name) > _MAX_USER_NAME:
            return pb.CreateReaderGroupResponse(status="INVALID_RG_NAME")
        scope = self._scopes.get(request.scope)
        if scope is None:
            return pb.CreateReaderGroupResponse(status="SCOPE_NOT_FOUND")
        self._check_table(request.scope, scope, _GROUPS)
        found = scope.groups.get(name)
        if found is not None:
            return pb.CreateReaderGroupResponse(config=found)
        if name in scope.lost or group_id in scope.ended:
            # The workflow takes it for one that it has carried out, and the name is of no use (observed).
            scope.lost.add(name)
            raise _Never
        request.generation = 0
        if group_id.int == 0:
            request.readerGroupId = str(self._new_id())
        scope.groups[name] = request
        self._subscribe(scope, request)
        if f"_RG{name}" not in scope.streams:
            self._create(scope, _fixed(request.scope, f"_RG{name}", rollover=_STATE_ROLLOVER))
        return pb.CreateReaderGroupResponse(config=request)

    def _check_table(self, name: str, scope: _Scope, table: str) -> None:
        if table in scope.broken:
            raise NotFound(f"_system/_tables/{name}/{table} does not exist")

    def _subscribe(self, scope: _Scope, group: pb.ReaderGroupConfiguration) -> None:
        """Make the streams of a group those that it subscribes to."""
        subscriber = f"{group.scope}/{group.readerGroupName}"
        wanted = {
            (each.streamInfo.scope, each.streamInfo.stream)
            for each in group.startingStreamCuts
            if group.retentionType
        }
        for stream in self._cluster():
            if (stream.scope, stream.name) not in wanted:
                stream.subscribers.pop(subscriber, None)
        for stream_scope, name in wanted:
            found = self._find(pb.StreamInfo(scope=stream_scope, stream=name))
            if found is None:
                # The creation does not end, and the group cannot be deleted either.
                scope.unfinished.add(group.readerGroupName)
                raise _Never
            found.subscribers.setdefault(subscriber, {})

    def _lost(self, group: pb.ReaderGroupConfiguration) -> list[tuple[str, str]]:
        """Return the streams of a group to which its subscription cannot be ended: they do not know of it."""
        lost = []
        for each in group.startingStreamCuts if group.retentionType else ():
            stream = self._find(each.streamInfo)
            if stream is None or f"{group.scope}/{group.readerGroupName}" not in stream.subscribers:
                lost.append((each.streamInfo.scope, each.streamInfo.stream))
        return lost

    def _group(self, scope: str, name: str) -> pb.ReaderGroupConfiguration | None:
        _given(scope, "scope")
        found = self._scope_of(scope)
        if _GROUPS in found.broken:
            return None
        _given(name, "reader group", StatusCode.UNKNOWN)
        if name in found.lost:
            raise NotFound(f"Reader group {scope}/{name} does not exist")
        return found.groups.get(name)

    def getReaderGroupConfig(self, request: pb.ReaderGroupInfo) -> pb.ReaderGroupConfigResponse:
        found = self._group(request.scope, request.readerGroup)
        if found is None:
            empty = pb.ReaderGroupConfiguration()
            return pb.ReaderGroupConfigResponse(status="RG_NOT_FOUND", config=empty)
        return pb.ReaderGroupConfigResponse(config=found)

    def updateReaderGroup(self, request: pb.ReaderGroupConfiguration) -> pb.UpdateReaderGroupResponse:
        _checked(request)
        found = self._group(request.scope, request.readerGroupName)
        scope = self._scope_of(request.scope)
        if found is None:
            return pb.UpdateReaderGroupResponse(status="RG_NOT_FOUND", generation=request.generation)
        if (request.generation, request.readerGroupId) != (found.generation, found.readerGroupId):
            return pb.UpdateReaderGroupResponse(status="INVALID_CONFIG", generation=request.generation)
        request.generation += 1
        scope.groups[request.readerGroupName] = request
        kept = [(each.streamInfo.scope, each.streamInfo.stream) for each in request.startingStreamCuts]
        lost = [each for each in self._lost(found) if not request.retentionType or each not in kept]
        self._subscribe(scope, request)
        if lost:
            raise _Never
        return pb.UpdateReaderGroupResponse(generation=request.generation)

    def deleteReaderGroup(self, request: pb.ReaderGroupInfo) -> pb.DeleteReaderGroupStatus:
        found = self._group(request.scope, request.readerGroup)
        if found is None:
            return pb.DeleteReaderGroupStatus(status="RG_NOT_FOUND")
        if not request.readerGroupId:
            raise _Never
        if _uuid(request.readerGroupId, StatusCode.UNKNOWN) != UUID(found.readerGroupId):
            return pb.DeleteReaderGroupStatus(status="RG_NOT_FOUND")
        self._end_group(self._scopes[request.scope], found)
        return pb.DeleteReaderGroupStatus()

    def _end_group(self, scope: _Scope, group: pb.ReaderGroupConfiguration) -> None:
        if group.readerGroupName in scope.unfinished or self._lost(group):
            raise _Never
        for stream in self._cluster():
            stream.subscribers.pop(f"{group.scope}/{group.readerGroupName}", None)
        state = scope.streams.get(f"_RG{group.readerGroupName}")
        if state is not None:
            self._seal(state)
            self._delete(state)
        scope.ended.add(UUID(group.readerGroupId))
        del scope.groups[group.readerGroupName]

    def listSubscribers(self, request: pb.StreamInfo) -> pb.SubscribersResponse:
        stream = self._find(request)
        self._scope_of(request.scope)
        if stream is None:
            return pb.SubscribersResponse(status="STREAM_NOT_FOUND")
        return pb.SubscribersResponse(subscribers=stream.subscribers)

    def updateSubscriberStreamCut(self, request: pb.SubscriberStreamCut) -> pb.UpdateSubscriberStatus:
        stream = self._find(request.streamCut.streamInfo)
        self._scope_of(request.streamCut.streamInfo.scope)
        if stream is None:
            return pb.UpdateSubscriberStatus(status="STREAM_NOT_FOUND")
        scope, _, name = request.subscriber.partition("/")
        known = self._scopes.get(scope)
        group = None if known is None else known.groups.get(name)
        if (
            group is None
            or UUID(group.readerGroupId) != _uuid(request.readerGroupId, StatusCode.UNKNOWN)
            or request.subscriber not in stream.subscribers
        ):
            return pb.UpdateSubscriberStatus(status="SUBSCRIBER_NOT_FOUND")
        if request.generation != group.generation:
            return pb.UpdateSubscriberStatus(status="GENERATION_MISMATCH")
        cut = dict(request.streamCut.cut)
        if not cut:
            raise _Failed(StatusCode.UNKNOWN, "the cut is empty")
        before = stream.subscribers[request.subscriber]
        try:
            valid = stream.is_valid(cut) and (not before or stream.is_at_or_after(cut, before))
        except (NotFound, IndexError, ValueError):
            return pb.UpdateSubscriberStatus(status="FAILURE")
        if not valid:
            return pb.UpdateSubscriberStatus(status="STREAM_CUT_NOT_VALID")
        stream.subscribers[request.subscriber] = cut
        return pb.UpdateSubscriberStatus()

    # --- retention ------------------------------------------------------------------------------

    def _retain(self, stream: Stream) -> None:
        """Record where the stream ends, drop what its policy does not keep, and come back later."""
        known = self._known(stream.scope, stream.name)
        if known is not stream or stream.sealed or not stream.config.retentionPolicy.retentionType:
            stream.retained = False
            return
        self._at(self._now() + _RETENTION_EVERY, lambda: self._retain(stream))
        self._apply_retention(stream)

    def _apply_retention(self, stream: Stream) -> None:
        now = self._now()
        end = {each.id: self._store.segment(_name(stream, each.id)).length for each in stream.epoch.parts}
        stream.kept_cuts.append((now, self._size_until(stream, end), end))
        cut = cut_to_truncate_at(stream, now, lambda cut: self._size_until(stream, cut))
        if cut is not None and min(cut.values()) >= 0 and not stream.stuck:
            self._settle(stream)
            if self._truncate(stream, cut):
                stream.kept_cuts = [
                    each for each in stream.kept_cuts if stream.is_at_or_after(each[2], stream.cut)
                ]

    def _size_until(self, stream: Stream, cut: dict[int, int]) -> int:
        """Return the bytes before a cut, from the very beginning of the stream."""
        return sum(
            max(cut[each.id], 0) if each.id in cut else stream.lengths.get(each.id, 0)
            for each in stream.between({}, cut)
        )

    # --- key-value tables -----------------------------------------------------------------------

    def createKeyValueTable(self, request: pb.KeyValueTableConfig) -> pb.CreateKeyValueTableStatus:
        _given(request.scope, "scope")
        if request.partitionCount < 1 or request.primaryKeyLength < 1 or request.secondaryKeyLength < 0:
            raise _Failed(StatusCode.INTERNAL, "the partition count and the key lengths must be positive")
        _check_rollover(request.rolloverSizeBytes)
        if not _USER_NAME.match(request.kvtName) or len(request.kvtName) > _MAX_USER_NAME:
            return pb.CreateKeyValueTableStatus(status="INVALID_TABLE_NAME")
        scope = self._scopes.get(request.scope)
        if scope is None:
            return pb.CreateKeyValueTableStatus(status="SCOPE_NOT_FOUND")
        self._check_table(request.scope, scope, _TABLES)
        if request.kvtName in scope.tables:
            return pb.CreateKeyValueTableStatus(status="TABLE_EXISTS")
        if request.primaryKeyLength + request.secondaryKeyLength > _MAX_KEY:
            raise _Never
        # The controller forgets it; the segments have it.
        rollover, request.rolloverSizeBytes = request.rolloverSizeBytes, 0
        scope.tables[request.kvtName] = request
        for name in self._table_names(request):
            key_length = request.primaryKeyLength + request.secondaryKeyLength
            self._store.create_table(name, key_length, rollover)
        return pb.CreateKeyValueTableStatus()

    def _table_parts(self, config: pb.KeyValueTableConfig) -> tuple[Part, ...]:
        first = self._first_numbers.get((config.scope, config.kvtName + TABLE_SUFFIX), 0)
        return even_parts(config.partitionCount, first)

    def _table_names(self, config: pb.KeyValueTableConfig) -> list[str]:
        stream = config.kvtName + TABLE_SUFFIX
        return [segment_name(config.scope, stream, each.id) for each in self._table_parts(config)]

    def _table(self, scope: str, name: str) -> pb.KeyValueTableConfig:
        _given(scope, "scope")
        _given(name, "key-value table")
        found = self._scope_of(scope).tables.get(name)
        if found is None:
            raise NotFound(f"KeyValueTable {scope}/{name} does not exist")
        return found

    def getKeyValueTableConfiguration(self, request: pb.KeyValueTableInfo) -> pb.KeyValueTableConfigResponse:
        try:
            return pb.KeyValueTableConfigResponse(config=self._table(request.scope, request.kvtName))
        except NotFound:
            return pb.KeyValueTableConfigResponse(status="TABLE_NOT_FOUND")

    def getCurrentSegmentsKeyValueTable(self, request: pb.KeyValueTableInfo) -> pb.SegmentRanges:
        config = self._table(request.scope, request.kvtName)
        info = pb.StreamInfo(scope=config.scope, stream=config.kvtName)
        found = [
            pb.SegmentRange(
                segmentId=pb.SegmentId(streamInfo=info, segmentId=each.id), minKey=each.low, maxKey=each.high
            )
            for each in self._table_parts(config)
        ]
        # No store takes it for the table's segments.
        token = self._token(f"prn::/scope:{config.scope}/key-value-table:{config.kvtName}")
        return pb.SegmentRanges(segmentRanges=found, delegationToken=token)

    def listKeyValueTablesInScope(self, request: pb.KVTablesInScopeRequest) -> pb.KVTablesInScopeResponse:
        scope = self._scopes.get(_given(request.scope.scope, "scope"))
        if scope is None:
            return pb.KVTablesInScopeResponse(status="SCOPE_NOT_FOUND")
        names, token = _page(scope.tables, request.continuationToken)
        tables = [pb.KeyValueTableInfo(scope=request.scope.scope, kvtName=name) for name in names]
        return pb.KVTablesInScopeResponse(kvtables=tables, continuationToken=token)

    def deleteKeyValueTable(self, request: pb.KeyValueTableInfo) -> pb.DeleteKVTableStatus:
        scope = self._scopes.get(_given(request.scope, "scope"))
        name = _given(request.kvtName, "key-value table")
        config = None if scope is None else scope.tables.get(name)
        if scope is None or config is None:
            return pb.DeleteKVTableStatus(status="TABLE_NOT_FOUND")
        self._end_table(scope, config)
        return pb.DeleteKVTableStatus()

    def _end_table(self, scope: _Scope, config: pb.KeyValueTableConfig) -> None:
        for name in self._table_names(config):
            self._delete_segment(name)
        last = max(number_of(each.id) for each in self._table_parts(config))
        self._first_numbers[config.scope, config.kvtName + TABLE_SUFFIX] = last + 1
        del scope.tables[config.kvtName]


def _given(name: str, what: str, code: StatusCode = StatusCode.INTERNAL) -> str:
    if not name:
        raise _Failed(code, f"{what}: argument is null or empty")
    return name


def _stay_stuck(stream: Stream) -> NoReturn:
    """Let a workflow of a stream never end; the call that began it is not answered."""
    stream.stuck = True
    raise _Never


def _check_epoch(number: int) -> None:
    if number < 0:
        raise _Failed(StatusCode.INTERNAL, f"epoch {number} is negative")


def _check_config(config: pb.StreamConfig) -> None:
    """Refuse what the Java classes of a configuration do not take, and drop what they do not keep."""
    scaling, retention = config.scalingPolicy.scaleType, config.retentionPolicy.retentionType
    if (
        scaling not in pb.ScalingPolicy.ScalingPolicyType.values()
        or retention not in pb.RetentionPolicy.RetentionPolicyType.values()
    ):
        raise _Failed(StatusCode.INTERNAL, "the kind of a policy is not known")
    if not retention:
        config.ClearField("retentionPolicy")
    tags = config.tags.tag
    if len(tags) >= _MAX_TAGS or any(len(each) >= _MAX_TAG for each in tags):
        raise _Failed(StatusCode.INTERNAL, "there are too many tags, or one is too long")
    if len(set(tags)) < len(tags):
        tags[:] = dict.fromkeys(tags)


def _check_rollover(size: int) -> None:
    if size < 0:
        raise _Failed(StatusCode.INTERNAL, f"rolloverSizeBytes {size} is negative")


def _authorized(info: pb.StreamInfo) -> str:
    """Return the resource in whose name a call may ask for a stream."""
    if info.stream.startswith("_RG"):
        return f"prn::/scope:{info.scope}/reader-group:{info.stream.removeprefix('_RG')}"
    return stream_resource(info.scope, info.stream.removeprefix("_MARK"))


def _checked(group: pb.ReaderGroupConfiguration) -> UUID:
    """Check a configuration of a group as the Java class of one does; return the id."""
    starts, ends = _by_stream(group.startingStreamCuts), _by_stream(group.endingStreamCuts)
    if (
        group.maxOutstandingCheckpointRequest < 1
        or group.retentionType not in _RETENTION_TYPES
        or not starts
        or not all(_may_end(starts.get(stream), end) for stream, end in ends.items() if end)
    ):
        raise _Failed(StatusCode.INTERNAL, "the configuration of the reader group is not valid")
    found = _uuid(group.readerGroupId, StatusCode.INTERNAL)
    group.readerGroupId = str(found)
    # A controller forgets it.
    group.rolloverSizeBytes = 0
    return found


def _by_stream(cuts: Iterable[pb.StreamCut]) -> dict[tuple[str, str], dict[int, int]]:
    found: dict[tuple[str, str], dict[int, int]] = {}
    for each in cuts:
        stream = each.streamInfo.scope, each.streamInfo.stream
        if stream in found:
            raise _Failed(StatusCode.INTERNAL, f"Duplicate key {'/'.join(stream)}")
        if not all(_STREAM_NAME.match(name) for name in stream):
            raise _Failed(StatusCode.INTERNAL, f"Name must be of valid characters: {'/'.join(stream)}")
        found[stream] = dict(each.cut)
    return found


def _may_end(start: dict[int, int] | None, end: dict[int, int]) -> bool:
    """Return whether a group that begins at one cut may end at another one; an empty one is any."""
    if not start:
        return start is not None
    last = {segment: math.inf if at < 0 else at for segment, at in end.items()}
    return (
        all((math.inf if at < 0 else at) <= last[each] for each, at in start.items() if each in last)
        and min(start) <= min(end)
        and max(start) <= max(end)
    )


def _uuid(text: str, code: StatusCode) -> UUID:
    """Take the text of an id as Java does: five hexadecimal numbers."""
    parts = text.split("-")
    if len(parts) != len(_UUID_DIGITS) or not all(re.fullmatch("[0-9A-Fa-f]{1,16}", each) for each in parts):
        raise _Failed(code, f"Invalid UUID string: {text}")
    return UUID("".join(each[-most:].zfill(most) for each, most in zip(parts, _UUID_DIGITS, strict=True)))


def _page(names: Iterable[str], token: pb.ContinuationToken) -> tuple[list[str], pb.ContinuationToken]:
    """Return a page of names, and the token of the next one."""
    found = sorted(each for each in names if each > token.token)[:_PAGE]
    return found, pb.ContinuationToken(token=found[-1] if found else token.token)


def _fixed(scope: str, stream: str, rollover: int = 0) -> pb.StreamConfig:
    """The configuration of an internal stream."""
    return pb.StreamConfig(
        streamInfo=pb.StreamInfo(scope=scope, stream=stream),
        scalingPolicy=pb.ScalingPolicy(minNumSegments=1),
        rolloverSizeBytes=rollover,
    )


def _name(stream: Stream, segment: int) -> str:
    return segment_name(stream.scope, stream.name, segment)


def _txn_name(stream: Stream, part: Part, txn_id: UUID) -> str:
    return transaction_segment_name(_name(stream, generalized_segment_id(part.id, txn_id)), txn_id)


def _segment_id(stream: Stream, segment: int) -> pb.SegmentId:
    info = pb.StreamInfo(scope=stream.scope, stream=stream.name)
    return pb.SegmentId(streamInfo=info, segmentId=segment)


def _ranges(stream: Stream, parts: Iterable[Part]) -> list[pb.SegmentRange]:
    return [
        pb.SegmentRange(segmentId=_segment_id(stream, each.id), minKey=each.low, maxKey=each.high)
        for each in sorted(parts, key=lambda each: each.low)
    ]
