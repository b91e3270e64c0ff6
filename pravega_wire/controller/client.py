"""The controller's calls, one typed method each (controller facts v0.13.0).

Statuses in replies become results or errors as in the reference client: "it exists already" and "there
was nothing to delete" are results, refusals are errors that name the scope or stream. Calls that fail
in a passing way are tried again, on the next address if there are several.
"""

from __future__ import annotations

import math
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar
from uuid import UUID

import trio
from google.protobuf.message import DecodeError as ProtobufDecodeError
from google.protobuf.message import Message

from pravega_wire.checks import check_count, check_event_time, check_uuid
from pravega_wire.controller.types import (
    Access,
    CreatedTransaction,
    KeyValueTableConfiguration,
    NodeUri,
    NoteTimeStatus,
    PingStatus,
    ReaderGroupConfiguration,
    RemoveWriterStatus,
    SegmentWithRange,
    Successor,
    Successors,
    TxnStatus,
)
from pravega_wire.errors import (
    AuthError,
    ClosedError,
    ConnectError,
    ConnectionLostError,
    ControllerError,
    DecodeError,
    HostNotFoundError,
    InvalidArgumentError,
    InvalidStreamCutError,
    KeyValueTableNotFoundError,
    NotFoundError,
    ReaderGroupNotFoundError,
    RetriesExhaustedError,
    ScaleConflictError,
    ScopeBrokenError,
    ScopeNotEmptyError,
    ScopeNotFoundError,
    StreamNotFoundError,
    StreamNotSealedError,
    StreamSealedError,
    TransactionUnknownError,
    TransportError,
    WrongProtocolError,
)
from pravega_wire.grpc.call import CallResult
from pravega_wire.grpc.status import StatusCode, error_for_status, is_retried
from pravega_wire.metrics import Counters
from pravega_wire.naming import TABLE_SUFFIX, validate_scope_name, validate_stream_name, validate_user_name
from pravega_wire.policies import (
    RetentionPolicy,
    RetentionType,
    ScaleType,
    ScalingPolicy,
    StreamConfiguration,
)
from pravega_wire.proto import controller_pb2 as pb
from pravega_wire.secrecy import secrets_of, without_secrets
from pravega_wire.transport.diagnosis import who_is_silent
from pravega_wire.transport.grpc_channel import GrpcChannel
from pravega_wire.transport.limits import DEFAULT_LIMITS, Limits, limit
from pravega_wire.transport.retry import RetryPolicy, retry
from pravega_wire.transport.stream import connect

__all__ = ["ControllerClient", "check_lease", "open_controller"]

Endpoint = tuple[str, int]
M = TypeVar("M", bound=Message)

_SERVICE = "/io.pravega.controller.stream.api.grpc.v1.ControllerService/"
_DISCOVERY_SECONDS = 120.0
_FIRST_CONTACT_SECONDS = 10.0
_NO_TIMESTAMP = -(2**63)
MIN_LEASE_MS = 10_000
MAX_LEASE_MS = 600_000
_NONE = pb.StreamInfo.NONE
_READ_WRITE = pb.StreamInfo.READ_WRITE


@asynccontextmanager
async def open_controller(
    endpoints: Sequence[Endpoint],
    *,
    tls: ssl.SSLContext | None = None,
    credentials: Callable[[], str | None] = lambda: None,
    discovery: bool = False,
    deadline: float = DEFAULT_LIMITS.operation,
    limits: Limits | None = None,
    policy: RetryPolicy | None = None,
    counters: Counters | None = None,
) -> AsyncIterator[ControllerClient]:
    """A client of the controller: ``async with open_controller([("localhost", 9090)]) as controller``.

    No connection is made before the first call.

    :param endpoints: addresses, tried in turn. :param tls: a context, or None for plain text.
    :param credentials: gives the ``authorization`` header for each call.
    :param discovery: the addresses only serve to ask for the list of controllers.
    :param deadline: seconds that a call may take with all its attempts.
    :param limits: the limits of one attempt; default: those that fit into ``deadline``.
    :param policy: how often a call is tried; the default as the reference client.
    :param counters: what the calls are counted in.
    """
    if not endpoints:
        raise InvalidArgumentError("no controller address was given")
    async with trio.open_nursery() as nursery:
        limits = Limits.of(deadline) if limits is None else limits
        channels = _Channels(nursery, endpoints, tls, limits)
        client = ControllerClient(
            channels,
            credentials,
            discovery=discovery,
            deadline=deadline,
            policy=policy or RetryPolicy(),
            counters=Counters() if counters is None else counters,
        )
        try:
            yield client
        finally:
            channels.closed = True
            nursery.cancel_scope.cancel()


class _Channels:
    """Connections to the controllers: one at a time, the next address after a failure."""

    def __init__(
        self,
        nursery: trio.Nursery,
        endpoints: Sequence[Endpoint],
        tls: ssl.SSLContext | None,
        limits: Limits,
    ) -> None:
        self._nursery = nursery
        self._tls = tls
        self.limits = limits
        self._lock = trio.Lock()
        self._current: GrpcChannel | None = None
        self._index = 0
        self._heard = False
        self._misfits: set[str] = set()  # addresses where trying again does not help
        self.bootstrap = tuple(endpoints)
        self.endpoints = tuple(endpoints)
        self.closed = False

    @property
    def heard(self) -> bool:
        """Whether a server has been heard that speaks HTTP/2."""
        self._heard = self._heard or (self._current is not None and self._current.greeted)
        return self._heard

    async def get(self) -> GrpcChannel:
        """A usable channel; tries each address once."""
        if self._current is not None and self._current.usable:
            return self._current
        async with self._lock:
            self._check_open()
            if self._current is not None and self._current.usable:
                return self._current
            failures: list[TransportError] = []
            for _ in range(len(self.endpoints)):
                host, port = self.endpoints[self._index % len(self.endpoints)]
                try:
                    stream = await connect(host, port, tls=self._tls, timeout=self.limits.connect)
                except TransportError as error:
                    if not error.retriable:
                        self._misfits.add(f"{host}:{port}")
                    failures.append(self._passing(error))
                    self._index += 1
                    continue
                except trio.Cancelled:
                    # A user's own limit may be shorter: the next call begins with the next address.
                    self._index += 1
                    raise
                try:
                    self._check_open()
                except ClosedError:
                    await stream.aclose()
                    raise
                channel = GrpcChannel(
                    stream,
                    f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
                    secure=self._tls is not None,
                    silence=self.limits.silence,
                )
                self._nursery.start_soon(channel.run, name=f"controller {host}:{port}")
                self._current = channel
                return channel
            raise _together(failures)

    def _passing(self, error: TransportError) -> TransportError:
        """A name that was known before will be known again."""
        if self.heard and isinstance(error, HostNotFoundError):
            return ConnectError(error.message, host=error.host)
        return error

    def _check_open(self) -> None:
        if self.closed:
            raise ClosedError("the client is closed")

    def drop(self, channel: GrpcChannel) -> None:
        """Do not use a channel for new calls; the next one goes to the next address."""
        channel.retire()
        self._heard = self._heard or channel.greeted
        if self._current is channel:
            self._current = None
            self._index += 1

    async def explained(self, channel: GrpcChannel, error: TransportError) -> TransportError:
        """What to raise where a connection ended: the reason, retriable while another address is left."""
        lost = isinstance(error, ConnectionLostError) and not channel.fell_silent
        if lost and not self.heard and not channel.heard:
            host, _, port = channel.host.rpartition(":")
            found = await who_is_silent(host, int(port), tls=self._tls is not None)
            if found is not None:
                error = WrongProtocolError(f"no controller at {channel.host}: {found}", host=channel.host)
        if isinstance(error, WrongProtocolError):
            self._misfits.add(channel.host)
            if not all(f"{host}:{port}" in self._misfits for host, port in self.endpoints):
                return ConnectError(error.message, host=error.host)
        return error


def _together(failures: Sequence[TransportError]) -> TransportError:
    """One error for all addresses: one that may pass, if there is any, with the reasons of all."""
    chosen = next((each for each in failures if each.retriable), failures[-1])
    if len(failures) == 1:
        return chosen
    error = type(chosen)("; ".join(each.message for each in failures), host=chosen.host)
    error.__cause__ = chosen
    return error


class _CallFailedError(ControllerError):
    """A call that ended with a status that is tried again."""

    retriable = True


class ControllerClient:
    """Calls to the controller. Streams are named by their scope and name.

    Every method may raise :class:`AuthError` (credentials), :class:`RetriesExhaustedError` (the
    controller cannot be reached or keeps failing) and :class:`ControllerError` (it refused), besides
    what its own documentation says. After a cancelled or failed call a change may have happened.
    """

    def __init__(
        self,
        channels: _Channels,
        credentials: Callable[[], str | None],
        *,
        discovery: bool,
        deadline: float,
        policy: RetryPolicy,
        counters: Counters,
    ) -> None:
        self._counters = counters
        self._channels = channels
        self._credentials = credentials
        self._discovery = discovery
        self._deadline = deadline
        self._policy = policy
        self._discovered = -math.inf

    # --- calling --------------------------------------------------------------------------------

    async def _call(
        self,
        rpc: str,
        request: Message,
        reply_type: type[M],
        about: str,
        *,
        attempts: int | None = None,
        long: bool = False,
    ) -> M:
        """
        :param attempts: at most so many, where fewer than usual are wanted.
        :param long: it may take any time, and another controller would not be quicker.
        """
        if self._discovery:
            await self._discover()
        return await self._counted(
            rpc,
            request,
            reply_type,
            about,
            describe=f"controller call {rpc} for {about}",
            attempts=attempts,
            long=long,
        )

    async def _counted(
        self,
        rpc: str,
        request: Message,
        reply_type: type[M],
        about: str,
        *,
        describe: str,
        attempts: int | None = None,
        long: bool = False,
    ) -> M:
        policy = self._policy_now()
        if attempts is not None:
            policy = replace(policy, attempts=attempts)
        made = 0

        async def attempt() -> M:
            nonlocal made
            made += 1
            return await self._attempt(rpc, request, reply_type, about, long=long)

        started = time.perf_counter()
        failure: str | None = None
        try:
            with limit(self._deadline, describe, setting="operation_timeout or controller_deadline"):
                return await retry(
                    policy,
                    attempt,
                    retry_on=lambda error: error.retriable,
                    describe=describe,
                    at_least=min(policy.attempts, len(self._channels.endpoints)),
                )
            raise AssertionError("not reached")  # the limit raises when it ends the call
        except BaseException as error:
            failure = type(error).__name__
            raise
        finally:
            self._counters.called(rpc, time.perf_counter() - started, made, failure)

    def _policy_now(self) -> RetryPolicy:
        """Until a controller has answered once, a wrong address is likelier than a passing fault."""
        if self._channels.heard:
            return self._policy
        return replace(self._policy, total=min(self._policy.total, _FIRST_CONTACT_SECONDS))

    async def _attempt(self, rpc: str, request: Message, reply_type: type[M], about: str, *, long: bool) -> M:
        channel = await self._channels.get()
        metadata = []
        header = self._credentials()
        if header is not None:
            metadata.append(("authorization", header))
        # Another controller may be quicker. Where there is none, waiting is all that can be done with one
        # that answers pings; the channel fails when it does not.
        several = len(self._channels.endpoints) > 1
        patience = self._channels.limits.attempt if several and not long else math.inf
        result: CallResult | None = None
        try:
            with trio.move_on_after(patience):
                result = await channel.call(
                    _SERVICE + rpc,
                    request.SerializeToString(),
                    timeout=None if long else self._deadline,
                    metadata=metadata,
                )
        except TransportError as error:
            self._channels.drop(channel)
            explained = await self._channels.explained(channel, error)
            if explained is not error:
                raise explained from error
            raise
        if result is None:
            self._channels.drop(channel)
            raise error_for_status(
                StatusCode.DEADLINE_EXCEEDED,
                f"no answer about {about} within {patience:.3g} s",
                rpc=rpc,
                host=channel.host,
            )
        if result.code is StatusCode.OK:
            try:
                return reply_type.FromString(result.message)
            except ProtobufDecodeError as error:
                raise DecodeError(
                    f"controller {channel.host}, {rpc}: the reply about {about} cannot be decoded",
                    host=channel.host,
                ) from error
        if result.unprocessed and not channel.usable:
            # A single call that was refused says nothing against the connection.
            self._channels.drop(channel)
        # Controllers repeat the headers of a call that they refuse, and their own errors may quote them.
        text = without_secrets(result.text, secrets_of(header))
        said = f"{about}: {text}" if text else about
        failure = error_for_status(result.code, said, rpc=rpc, host=channel.host)
        if is_retried(result.code) and not failure.retriable:
            raise _CallFailedError(failure.message, rpc=rpc, status=result.code.name, host=channel.host)
        raise failure

    async def _discover(self) -> None:
        now = trio.current_time()
        if now - self._discovered < _DISCOVERY_SECONDS:
            return
        self._discovered = now
        reply = await self._counted(
            "getControllerServerList",
            pb.ServerRequest(),
            pb.ServerResponse,
            "the cluster",
            describe="asking for the list of controllers",
        )
        found = tuple((node.endpoint, node.port) for node in reply.nodeURI)
        if found:
            self._channels.endpoints = found

    # --- controllers ----------------------------------------------------------------------------

    async def get_controller_server_list(self) -> list[NodeUri]:
        """Addresses of all controllers."""
        reply = await self._call(
            "getControllerServerList", pb.ServerRequest(), pb.ServerResponse, "the cluster"
        )
        return [NodeUri(node.endpoint, node.port) for node in reply.nodeURI]

    # --- scopes ---------------------------------------------------------------------------------

    async def create_scope(self, scope: str) -> bool:
        """True when it was created, False when it existed."""
        validate_scope_name(scope)
        reply = await self._call(
            "createScope", pb.ScopeInfo(scope=scope), pb.CreateScopeStatus, f"scope {scope}"
        )
        status = _name(pb.CreateScopeStatus.Status, reply.status)
        if status == "INVALID_SCOPE_NAME":
            raise InvalidArgumentError(f"the controller refuses the scope name {scope!r}")
        return _result(status, "createScope", f"scope {scope}", false="SCOPE_EXISTS")

    async def _in_scope(
        self, rpc: str, scope: str, request: Message, reply_type: type[M], about: str
    ) -> tuple[str, M]:
        """Make something in a scope; returns the status, which is not SCOPE_NOT_FOUND, and the reply.

        :raises ScopeNotFoundError: no such scope. :raises ScopeBrokenError: there is, and that does not help.
        """
        for _ in range(2):
            try:
                reply: Any = await self._call(rpc, request, reply_type, about)
            except NotFoundError as error:
                if type(error) is NotFoundError and f"/_tables/{scope}/" in error.message:
                    raise _broken(rpc, "NOT_FOUND", scope) from error
                raise
            status = _name(reply_type.Status, reply.status)  # type: ignore[attr-defined]  # these replies have it
            if status != "SCOPE_NOT_FOUND":
                return status, reply
            try:
                exists = await self.check_scope_exists(scope)
            except AuthError:
                exists = False
            if not exists:
                raise _no_scope(rpc, scope)
            # Somebody may have made it just now.
        raise _broken(rpc, status, scope)

    async def delete_scope(self, scope: str) -> bool:
        """True when it was deleted, False when there was none.

        A 0.13.0 controller breaks a scope that it refuses to delete: see :class:`ScopeBrokenError`. So look
        first whether it is empty, as :meth:`PravegaClient.delete_scope` does.

        :raises ScopeNotEmptyError: it still holds something.
        """
        validate_scope_name(scope)
        reply = await self._call(
            "deleteScope", pb.ScopeInfo(scope=scope), pb.DeleteScopeStatus, f"scope {scope}"
        )
        return self._scope_deleted("deleteScope", scope, reply)

    async def delete_scope_recursive(self, scope: str) -> bool:
        """Delete a scope with all that is in it.

        True also when there was none or another such call is under way: v0.13.0 answers all alike.
        """
        validate_scope_name(scope)
        reply = await self._call(
            "deleteScopeRecursive",
            pb.ScopeInfo(scope=scope),
            pb.DeleteScopeStatus,
            f"scope {scope}",
            long=True,
        )
        return self._scope_deleted("deleteScopeRecursive", scope, reply)

    @staticmethod
    def _scope_deleted(rpc: str, scope: str, reply: pb.DeleteScopeStatus) -> bool:
        status = _name(pb.DeleteScopeStatus.Status, reply.status)
        if status == "SCOPE_NOT_EMPTY":
            raise _refused(ScopeNotEmptyError, rpc, status, f"scope {scope} is not empty", scope)
        return _result(status, rpc, f"scope {scope}", false="SCOPE_NOT_FOUND")

    async def check_scope_exists(self, scope: str) -> bool:
        """Whether it exists."""
        validate_scope_name(scope)
        reply = await self._call(
            "checkScopeExists", pb.ScopeInfo(scope=scope), pb.ExistsResponse, f"scope {scope}"
        )
        return reply.exists

    async def list_scopes(self) -> AsyncIterator[str]:
        """Names of all scopes, page by page."""
        token = pb.ContinuationToken()
        while True:
            reply = await self._call(
                "listScopes",
                pb.ScopesRequest(continuationToken=token),
                pb.ScopesResponse,
                "all scopes",
            )
            # Only an empty page is the end (facts, "Pagination").
            if not reply.scopes:
                return
            for scope in reply.scopes:
                yield scope
            token = reply.continuationToken

    # --- streams --------------------------------------------------------------------------------

    async def create_stream(self, scope: str, stream: str, configuration: StreamConfiguration) -> bool:
        """True when it was created, False when it existed.

        :raises ScopeNotFoundError: no such scope. :raises ScopeBrokenError: see there.
        """
        validate_scope_name(scope)
        validate_user_name("stream", stream)
        status, _ = await self._in_scope(
            "createStream",
            scope,
            _stream_config(scope, stream, configuration),
            pb.CreateStreamStatus,
            f"stream {scope}/{stream}",
        )
        if status == "INVALID_STREAM_NAME":
            raise InvalidArgumentError(f"the controller refuses the stream name {stream!r}")
        return _result(status, "createStream", f"stream {scope}/{stream}", false="STREAM_EXISTS")

    async def update_stream(self, scope: str, stream: str, configuration: StreamConfiguration) -> None:
        """Replace the whole configuration.

        :raises StreamNotFoundError: no such stream. :raises StreamSealedError: it is sealed.
        """
        reply = await self._call(
            "updateStream",
            _stream_config(scope, stream, configuration),
            pb.UpdateStreamStatus,
            f"stream {scope}/{stream}",
        )
        _stream_updated("updateStream", scope, stream, reply)

    async def truncate_stream(self, scope: str, stream: str, cut: Mapping[int, int]) -> None:
        """Drop what lies before a complete cut (segment id to offset).

        :raises InvalidStreamCutError: the controller does not accept the cut.
        """
        if not cut:
            raise InvalidStreamCutError(
                f"stream {scope}/{stream} cannot be truncated at a cut without segments",
                scope=scope,
                stream=stream,
            )
        reply = await self._call(
            "truncateStream",
            pb.StreamCut(streamInfo=_info(scope, stream), cut=dict(cut)),
            pb.UpdateStreamStatus,
            f"stream {scope}/{stream}",
        )
        if _name(pb.UpdateStreamStatus.Status, reply.status) == "FAILURE":
            raise InvalidStreamCutError(
                f"stream {scope}/{stream} was not truncated: the cut {dict(cut)} does not cover "
                "the key space, or lies before an earlier truncation",
                scope=scope,
                stream=stream,
            )
        _stream_updated("truncateStream", scope, stream, reply)

    async def seal_stream(self, scope: str, stream: str) -> None:
        """Seal all segments; harmless when sealed.

        :raises StreamNotFoundError: no such stream.
        """
        reply = await self._call(
            "sealStream", _info(scope, stream), pb.UpdateStreamStatus, f"stream {scope}/{stream}"
        )
        _stream_updated("sealStream", scope, stream, reply)

    async def delete_stream(self, scope: str, stream: str) -> bool:
        """True when it was deleted, False when there was none.

        :raises StreamNotSealedError: it is not sealed.
        """
        about = f"stream {scope}/{stream}"
        reply = await self._call("deleteStream", _info(scope, stream), pb.DeleteStreamStatus, about)
        status = _name(pb.DeleteStreamStatus.Status, reply.status)
        if status == "STREAM_NOT_SEALED":
            raise _refused(
                StreamNotSealedError,
                "deleteStream",
                status,
                f"{about} must be sealed before it is deleted",
                scope,
                stream,
            )
        return _result(status, "deleteStream", about, false="STREAM_NOT_FOUND")

    async def check_stream_exists(self, scope: str, stream: str) -> bool:
        """Whether it exists."""
        reply = await self._call(
            "checkStreamExists",
            _info(scope, stream),
            pb.ExistsResponse,
            f"stream {scope}/{stream}",
        )
        return reply.exists

    async def get_stream_configuration(self, scope: str, stream: str) -> StreamConfiguration:
        """Its configuration.

        :raises StreamNotFoundError: no such stream.
        """
        with _stream_names(scope, stream):
            reply = await self._call(
                "getStreamConfiguration",
                _info(scope, stream),
                pb.StreamConfig,
                f"stream {scope}/{stream}",
            )
        return _configuration(reply)

    async def list_streams(self, scope: str) -> AsyncIterator[str]:
        """Names of the streams of a scope, internal ones too, page by page.

        :raises ScopeNotFoundError: no such scope.
        """
        validate_scope_name(scope)
        token = pb.ContinuationToken()
        while True:
            reply = await self._call(
                "listStreamsInScope",
                pb.StreamsInScopeRequest(scope=pb.ScopeInfo(scope=scope), continuationToken=token),
                pb.StreamsInScopeResponse,
                f"scope {scope}",
            )
            for name in _page(reply, "listStreamsInScope", scope):
                yield name
            if not reply.streams:
                return
            token = reply.continuationToken

    async def list_streams_for_tag(self, scope: str, tag: str) -> AsyncIterator[str]:
        """Names of the streams of a scope that carry a tag, page by page.

        :raises ScopeNotFoundError: no such scope.
        """
        validate_scope_name(scope)
        token = pb.ContinuationToken()
        while True:
            reply = await self._call(
                "listStreamsInScopeForTag",
                pb.StreamsInScopeWithTagRequest(
                    scope=pb.ScopeInfo(scope=scope), tag=tag, continuationToken=token
                ),
                pb.StreamsInScopeResponse,
                f"scope {scope}, tag {tag}",
            )
            for name in _page(reply, "listStreamsInScopeForTag", scope):
                yield name
            if not reply.streams:
                return
            token = reply.continuationToken

    # --- segments -------------------------------------------------------------------------------

    async def get_current_segments(self, scope: str, stream: str) -> list[SegmentWithRange]:
        """Active segments; none of a sealed stream.

        :raises StreamNotFoundError: no such stream.
        """
        with _stream_names(scope, stream):
            reply = await self._call(
                "getCurrentSegments",
                _info(scope, stream, _NONE),
                pb.SegmentRanges,
                f"stream {scope}/{stream}",
            )
        return _ranges(reply.segmentRanges)

    async def get_epoch_segments(self, scope: str, stream: str, epoch: int) -> list[SegmentWithRange]:
        """Segments of one epoch.

        :raises StreamNotFoundError: no such stream (or no such epoch).
        """
        with _stream_names(scope, stream):
            reply = await self._call(
                "getEpochSegments",
                pb.GetEpochSegmentsRequest(streamInfo=_info(scope, stream, _READ_WRITE), epoch=epoch),
                pb.SegmentRanges,
                f"epoch {epoch} of stream {scope}/{stream}",
            )
        return _ranges(reply.segmentRanges)

    async def get_segments(self, scope: str, stream: str) -> dict[int, int]:
        """The head of the stream: segment id to first readable offset.

        (The call takes a time, which the server ignores.)

        :raises StreamNotFoundError: no such stream.
        """
        with _stream_names(scope, stream):
            reply = await self._call(
                "getSegments",
                pb.GetSegmentsRequest(streamInfo=_info(scope, stream, _NONE), timestamp=0),
                pb.SegmentsAtTime,
                f"stream {scope}/{stream}",
            )
        return {each.segmentId.segmentId: each.offset for each in reply.segments}

    async def get_successors(self, scope: str, stream: str, segment_id: int) -> Successors:
        """What follows a sealed segment; empty when the stream was sealed or it is still active."""
        with _stream_names(scope, stream):
            reply = await self._call(
                "getSegmentsImmediatelyFollowing",
                _segment(scope, stream, segment_id, _NONE),
                pb.SuccessorResponse,
                f"segment {segment_id} of {scope}/{stream}",
            )
        return Successors(
            tuple(Successor(_ranges([entry.segment])[0], tuple(entry.value)) for entry in reply.segments)
        )

    async def get_segments_between(
        self,
        scope: str,
        stream: str,
        start: Mapping[int, int],
        end: Mapping[int, int],
        *,
        unknown_attempts: int | None = None,
    ) -> list[int]:
        """Ids of all segments between two cuts, both included; one of them may be empty (open).

        :param unknown_attempts: after how many answers UNKNOWN to fail; None for as many as of any call.
            v0.13.0 also gives that answer to cuts that are impossible, or not in order.
        :raises ControllerError: with the status UNKNOWN, after so many.
        """
        if not start and not end:
            raise InvalidStreamCutError(
                f"stream {scope}/{stream}: one of the two cuts must name segments",
                scope=scope,
                stream=stream,
            )
        request = pb.StreamCutRange(streamInfo=_info(scope, stream, _NONE), to=dict(end))
        getattr(request, "from").update(dict(start))

        async def ask(attempts: int | None) -> pb.StreamCutRangeResponse:
            return await self._call(
                "getSegmentsBetween",
                request,
                pb.StreamCutRangeResponse,
                f"stream {scope}/{stream}",
                attempts=attempts,
            )

        with _stream_names(scope, stream):
            try:
                reply = await ask(unknown_attempts)
            except RetriesExhaustedError as error:
                last = error.__cause__
                if unknown_attempts is None:
                    raise
                if isinstance(last, ControllerError) and last.status == StatusCode.UNKNOWN.name:
                    raise _refused(
                        ControllerError, "getSegmentsBetween", last.status, error.message, scope, stream
                    ) from error
                # Something else that passes: that gets the usual time.
                reply = await ask(None)
        return [each.segmentId for each in reply.segments]

    async def get_uri(self, scope: str, stream: str, segment_id: int) -> NodeUri:
        """The store that serves a segment (whether the segment exists is not checked).

        :param stream: for a segment of a key-value table, the table's name and ``_kvtable``.
        """
        reply = await self._call(
            "getURI",
            pb.SegmentId(streamInfo=_owner_info(scope, stream, _NONE), segmentId=segment_id),
            pb.NodeUri,
            f"segment {segment_id} of {scope}/{stream}",
        )
        return NodeUri(reply.endpoint, reply.port)

    async def is_segment_valid(self, scope: str, stream: str, segment_id: int) -> bool:
        """Whether a segment is active now.

        :raises StreamNotFoundError: no such stream.
        """
        with _stream_names(scope, stream):
            reply = await self._call(
                "isSegmentValid",
                _segment(scope, stream, segment_id, _NONE),
                pb.SegmentValidityResponse,
                f"segment {segment_id} of {scope}/{stream}",
            )
        return reply.response

    async def is_stream_cut_valid(self, scope: str, stream: str, cut: Mapping[int, int]) -> bool:
        """Whether a cut covers the key space and is consistent.

        :raises StreamNotFoundError: no such stream.
        """
        with _stream_names(scope, stream):
            reply = await self._call(
                "isStreamCutValid",
                pb.StreamCut(streamInfo=_info(scope, stream), cut=dict(cut)),
                pb.StreamCutValidityResponse,
                f"stream {scope}/{stream}",
            )
        return reply.response

    async def scale(
        self,
        scope: str,
        stream: str,
        seal: Sequence[int],
        new_ranges: Sequence[tuple[float, float]],
    ) -> int | None:
        """Start a scale; returns the epoch before it, for :meth:`check_scale`, or None if refused.

        Refused: a segment is not active, fewer segments than the policy's minimum would be left, or
        another scale is running.

        :raises StreamNotFoundError: no such stream.
        :raises ScaleConflictError: the new ranges do not cover exactly those of the sealed segments
            (v0.13.0 answers that, and a missing stream, with a plain FAILURE).
        :raises InvalidArgumentError: no segments or no ranges are given, or ranges are empty or overlap.
        """
        about = f"stream {scope}/{stream}"
        _check_scale(about, seal, new_ranges)
        with _stream_names(scope, stream):
            reply = await self._call(
                "scale",
                pb.ScaleRequest(
                    streamInfo=_info(scope, stream),
                    sealedSegments=list(seal),
                    newKeyRanges=[
                        pb.ScaleRequest.KeyRangeEntry(start=low, end=high) for low, high in new_ranges
                    ],
                    scaleTimestamp=int(time.time() * 1000),
                ),
                pb.ScaleResponse,
                about,
            )
        status = _name(pb.ScaleResponse.ScaleStreamStatus, reply.status)
        if status == "PRECONDITION_FAILED":
            return None
        if status == "FAILURE":
            if not await self.check_stream_exists(scope, stream):
                raise _no_stream("scale", scope, stream)
            raise _refused(
                ScaleConflictError,
                "scale",
                status,
                f"{about} was not scaled: the new ranges {list(new_ranges)} must cover exactly those of "
                f"the segments {list(seal)}, which must be active",
                scope,
                stream,
            )
        _result(status, "scale", about, true="STARTED")
        return reply.epoch

    async def check_scale(self, scope: str, stream: str, epoch: int) -> bool:
        """Whether the scale that began in ``epoch`` is done."""
        about = f"scale of stream {scope}/{stream} from epoch {epoch}"
        reply = await self._call(
            "checkScale",
            pb.ScaleStatusRequest(streamInfo=_info(scope, stream), epoch=epoch),
            pb.ScaleStatusResponse,
            about,
        )
        status = _name(pb.ScaleStatusResponse.ScaleStatus, reply.status)
        return _result(status, "checkScale", about, false="IN_PROGRESS")

    async def get_delegation_token(self, scope: str, stream: str, access: Access) -> str:
        """A token for the segment stores; "" without authorization.

        :param stream: for the segments of a key-value table, the table's name and ``_kvtable``.
        """
        reply = await self._call(
            "getDelegationToken",
            _owner_info(scope, stream, access.value),
            pb.DelegationToken,
            f"stream {scope}/{stream}",
        )
        return reply.delegationToken

    # --- transactions ---------------------------------------------------------------------------

    async def create_transaction(self, scope: str, stream: str, lease_ms: int) -> CreatedTransaction:
        """Begin a transaction.

        :param lease_ms: 10 000 to 600 000, the limits of a server with default settings.
        :raises InvalidArgumentError: the lease is out of bounds (the server would answer with an
            error that looks passing, and be asked again for a minute and a half).
        :raises StreamNotFoundError: no such stream.
        :raises StreamSealedError: the stream is sealed. v0.13.0 answers INTERNAL then, as to what passes, so
            the stream's state is asked after the first such answer.
        """
        check_lease(lease_ms)

        async def ask(attempts: int | None) -> pb.CreateTxnResponse:
            return await self._call(
                "createTransaction",
                pb.CreateTxnRequest(streamInfo=_info(scope, stream, _READ_WRITE), lease=lease_ms),
                pb.CreateTxnResponse,
                f"stream {scope}/{stream}",
                attempts=attempts,
            )

        with _stream_names(scope, stream):
            try:
                reply = await ask(1)
            except RetriesExhaustedError as error:
                last = error.__cause__
                internal = isinstance(last, ControllerError) and last.status == StatusCode.INTERNAL.name
                if internal and not await self.get_current_segments(scope, stream):
                    raise StreamSealedError(
                        f"stream {scope}/{stream} is sealed: no transaction can be begun on it",
                        scope=scope,
                        stream=stream,
                    ) from error
                # Something else that passes: that gets the usual time.
                reply = await ask(None)
        return CreatedTransaction(
            _uuid(reply.txnId), tuple(_ranges(reply.activeSegments)), reply.delegationToken
        )

    async def commit_transaction(
        self,
        scope: str,
        stream: str,
        txn_id: UUID,
        *,
        writer_id: str = "",
        timestamp: int | None = None,
    ) -> bool:
        """True when it is committing or committed; False when it cannot be (aborted, unknown).

        :param timestamp: event time in milliseconds to note for ``writer_id``.
        """
        reply = await self._call(
            "commitTransaction",
            pb.TxnRequest(
                streamInfo=_info(scope, stream),
                txnId=_txn(txn_id),
                writerId=writer_id,
                timestamp=_NO_TIMESTAMP if timestamp is None else check_event_time("timestamp", timestamp),
            ),
            pb.TxnStatus,
            f"transaction {txn_id} of {scope}/{stream}",
        )
        return self._txn_done("commitTransaction", scope, stream, txn_id, reply)

    async def abort_transaction(self, scope: str, stream: str, txn_id: UUID) -> bool:
        """True when it is aborting or aborted; False when it cannot be (committed, unknown)."""
        reply = await self._call(
            "abortTransaction",
            pb.TxnRequest(streamInfo=_info(scope, stream), txnId=_txn(txn_id)),
            pb.TxnStatus,
            f"transaction {txn_id} of {scope}/{stream}",
        )
        return self._txn_done("abortTransaction", scope, stream, txn_id, reply)

    @staticmethod
    def _txn_done(rpc: str, scope: str, stream: str, txn_id: UUID, reply: pb.TxnStatus) -> bool:
        status = _name(pb.TxnStatus.Status, reply.status)
        if status == "STREAM_NOT_FOUND":
            raise _no_stream(rpc, scope, stream)
        if status == "TRANSACTION_NOT_FOUND":
            raise TransactionUnknownError(
                f"transaction {txn_id} of {scope}/{stream} is not known to the controller",
                scope=scope,
                stream=stream,
                transaction=txn_id,
            )
        # v0.13.0 answers FAILURE for everything that is not possible in the transaction's state.
        return status == "SUCCESS"

    async def ping_transaction(self, scope: str, stream: str, txn_id: UUID, lease_ms: int) -> PingStatus:
        """Let the lease end ``lease_ms`` from now."""
        check_lease(lease_ms)
        reply = await self._call(
            "pingTransaction",
            pb.PingTxnRequest(streamInfo=_info(scope, stream), txnId=_txn(txn_id), lease=lease_ms),
            pb.PingTxnStatus,
            f"transaction {txn_id} of {scope}/{stream}",
        )
        try:
            return PingStatus(reply.status)
        except ValueError:
            raise _odd("pingTransaction", reply.status) from None

    async def check_transaction_state(self, scope: str, stream: str, txn_id: UUID) -> TxnStatus:
        """Its state; UNKNOWN when the controller has no record of it."""
        try:
            reply = await self._call(
                "checkTransactionState",
                pb.TxnRequest(streamInfo=_info(scope, stream), txnId=_txn(txn_id)),
                pb.TxnState,
                f"transaction {txn_id} of {scope}/{stream}",
            )
        except NotFoundError:
            return TxnStatus.UNKNOWN
        try:
            return TxnStatus(reply.state)
        except ValueError:
            raise _odd("checkTransactionState", reply.state) from None

    async def list_completed_transactions(self, scope: str, stream: str) -> dict[UUID, TxnStatus]:
        """Transactions that have ended and are still remembered (at most 500), with their end.

        Not to be relied on with v0.13.0: it keeps the ended transactions of all streams in one table, and
        answers with nothing as soon as those of a second stream are in it.
        """
        with _stream_names(scope, stream):
            reply = await self._call(
                "listCompletedTransactions",
                pb.ListCompletedTxnRequest(streamInfo=_info(scope, stream)),
                pb.ListCompletedTxnResponse,
                f"stream {scope}/{stream}",
            )
        return {
            _uuid(each.txnId): TxnStatus.COMMITTED
            if each.status == pb.TxnResponse.COMMITTED
            else TxnStatus.ABORTED
            for each in reply.response
        }

    # --- time -----------------------------------------------------------------------------------

    async def note_timestamp_from_writer(
        self,
        scope: str,
        stream: str,
        writer_id: str,
        timestamp: int,
        position: Mapping[int, int],
    ) -> NoteTimeStatus:
        """Note that a writer has reached an event time (ms) at a position (segment id to offset).

        :raises StreamNotFoundError: no such stream.
        """
        validate_user_name("writer", writer_id)
        with _stream_names(scope, stream):
            reply = await self._call(
                "noteTimestampFromWriter",
                pb.TimestampFromWriter(
                    writer=writer_id,
                    position=pb.StreamCut(streamInfo=_info(scope, stream), cut=dict(position)),
                    timestamp=check_event_time("timestamp", timestamp),
                ),
                pb.TimestampResponse,
                f"writer {writer_id} of {scope}/{stream}",
            )
        try:
            return NoteTimeStatus(reply.result)
        except ValueError:
            raise _odd("noteTimestampFromWriter", reply.result) from None

    async def remove_writer(self, scope: str, stream: str, writer_id: str) -> RemoveWriterStatus:
        """A writer is gone: it must not hold back the watermark."""
        validate_user_name("writer", writer_id)
        reply = await self._call(
            "removeWriter",
            pb.RemoveWriterRequest(writer=writer_id, stream=_info(scope, stream)),
            pb.RemoveWriterResponse,
            f"writer {writer_id} of {scope}/{stream}",
        )
        try:
            return RemoveWriterStatus(reply.result)
        except ValueError:
            raise _odd("removeWriter", reply.result) from None

    # --- reader groups --------------------------------------------------------------------------

    async def create_reader_group(self, configuration: ReaderGroupConfiguration) -> ReaderGroupConfiguration:
        """Create a group; returns the configuration as the controller has stored it.

        A group that existed gives its own configuration, which may differ.

        :raises ScopeNotFoundError: no such scope. :raises ScopeBrokenError: see there.
        """
        about = f"reader group {configuration.scope}/{configuration.name}"
        _check_names("reader group", configuration.scope, configuration.name)
        status, reply = await self._in_scope(
            "createReaderGroup",
            configuration.scope,
            _group_config(configuration),
            pb.CreateReaderGroupResponse,
            about,
        )
        if status == "INVALID_RG_NAME":
            raise InvalidArgumentError(f"the controller refuses the name of {about}")
        _result(status, "createReaderGroup", about)
        return _group(reply.config)

    async def get_reader_group_config(self, scope: str, name: str) -> ReaderGroupConfiguration:
        """A group's configuration.

        :raises ReaderGroupNotFoundError: no such group.
        """
        _check_names("reader group", scope, name)
        reply = await self._call(
            "getReaderGroupConfig",
            pb.ReaderGroupInfo(scope=scope, readerGroup=name),
            pb.ReaderGroupConfigResponse,
            f"reader group {scope}/{name}",
        )
        status = _name(pb.ReaderGroupConfigResponse.Status, reply.status)
        self._check_group("getReaderGroupConfig", scope, name, status)
        return _group(reply.config)

    async def update_reader_group(self, configuration: ReaderGroupConfiguration) -> int:
        """Replace a group's configuration; returns the new generation.

        :raises ReaderGroupNotFoundError: no such group.
        :raises ControllerError: with status INVALID_CONFIG when id or generation are not current.
        """
        _check_names("reader group", configuration.scope, configuration.name)
        reply = await self._call(
            "updateReaderGroup",
            _group_config(configuration),
            pb.UpdateReaderGroupResponse,
            f"reader group {configuration.scope}/{configuration.name}",
        )
        status = _name(pb.UpdateReaderGroupResponse.Status, reply.status)
        self._check_group("updateReaderGroup", configuration.scope, configuration.name, status)
        return reply.generation

    async def delete_reader_group(self, scope: str, name: str, group_id: UUID) -> None:
        """Delete a group with its state.

        :raises ReaderGroupNotFoundError: no such group, or it has another id.
        """
        _check_names("reader group", scope, name)
        reply = await self._call(
            "deleteReaderGroup",
            pb.ReaderGroupInfo(scope=scope, readerGroup=name, readerGroupId=str(group_id)),
            pb.DeleteReaderGroupStatus,
            f"reader group {scope}/{name}",
        )
        status = _name(pb.DeleteReaderGroupStatus.Status, reply.status)
        self._check_group("deleteReaderGroup", scope, name, status)

    @staticmethod
    def _check_group(rpc: str, scope: str, name: str, status: str) -> None:
        if status == "RG_NOT_FOUND":
            raise _refused(
                ReaderGroupNotFoundError,
                rpc,
                status,
                f"reader group {scope}/{name} does not exist",
                scope,
            )
        _result(status, rpc, f"reader group {scope}/{name}")

    async def list_subscribers(self, scope: str, stream: str) -> list[str]:
        """Groups that hold back the stream's retention, as ``scope/group``.

        :raises StreamNotFoundError: no such stream.
        """
        reply = await self._call(
            "listSubscribers",
            _info(scope, stream),
            pb.SubscribersResponse,
            f"stream {scope}/{stream}",
        )
        status = _name(pb.SubscribersResponse.Status, reply.status)
        if status == "STREAM_NOT_FOUND":
            raise _no_stream("listSubscribers", scope, stream)
        _result(status, "listSubscribers", f"stream {scope}/{stream}")
        return list(reply.subscribers)

    async def update_subscriber_stream_cut(
        self,
        scope: str,
        stream: str,
        subscriber: str,
        group_id: UUID,
        generation: int,
        cut: Mapping[int, int],
    ) -> None:
        """Tell up to where a group (``scope/group``) has consumed a stream.

        :raises StreamNotFoundError, InvalidStreamCutError, ReaderGroupNotFoundError: as named.
        """
        about = f"subscriber {subscriber} of {scope}/{stream}"
        reply = await self._call(
            "updateSubscriberStreamCut",
            pb.SubscriberStreamCut(
                subscriber=subscriber,
                generation=generation,
                readerGroupId=str(group_id),
                streamCut=pb.StreamCut(streamInfo=_info(scope, stream), cut=dict(cut)),
            ),
            pb.UpdateSubscriberStatus,
            about,
        )
        status = _name(pb.UpdateSubscriberStatus.Status, reply.status)
        if status == "STREAM_NOT_FOUND":
            raise _no_stream("updateSubscriberStreamCut", scope, stream)
        if status == "SUBSCRIBER_NOT_FOUND":
            raise _refused(
                ReaderGroupNotFoundError,
                "updateSubscriberStreamCut",
                status,
                f"{subscriber} is not a subscriber of {scope}/{stream}",
                scope,
                stream,
            )
        if status == "STREAM_CUT_NOT_VALID":
            raise InvalidStreamCutError(
                f"{about}: the cut {dict(cut)} is not valid", scope=scope, stream=stream
            )
        _result(status, "updateSubscriberStreamCut", about)

    # --- key-value tables -----------------------------------------------------------------------

    async def create_key_value_table(
        self, scope: str, table: str, configuration: KeyValueTableConfiguration
    ) -> bool:
        """True when it was created, False when it existed.

        :raises ScopeNotFoundError: no such scope. :raises ScopeBrokenError: see there.
        """
        about = f"key-value table {scope}/{table}"
        _check_names("key-value table", scope, table)
        status, _ = await self._in_scope(
            "createKeyValueTable",
            scope,
            pb.KeyValueTableConfig(
                scope=scope,
                kvtName=table,
                partitionCount=configuration.partition_count,
                primaryKeyLength=configuration.primary_key_length,
                secondaryKeyLength=configuration.secondary_key_length,
                rolloverSizeBytes=configuration.rollover_size_bytes,
            ),
            pb.CreateKeyValueTableStatus,
            about,
        )
        if status == "INVALID_TABLE_NAME":
            raise InvalidArgumentError(f"the controller refuses the name of {about}")
        return _result(status, "createKeyValueTable", about, false="TABLE_EXISTS")

    async def get_current_segments_key_value_table(self, scope: str, table: str) -> list[SegmentWithRange]:
        """Segments of a table.

        :raises KeyValueTableNotFoundError: no such table.
        """
        _check_names("key-value table", scope, table)
        try:
            reply = await self._call(
                "getCurrentSegmentsKeyValueTable",
                pb.KeyValueTableInfo(scope=scope, kvtName=table),
                pb.SegmentRanges,
                f"key-value table {scope}/{table}",
            )
        except NotFoundError as error:
            raise _no_table("getCurrentSegmentsKeyValueTable", scope, table) from error
        return _ranges(reply.segmentRanges)

    async def list_key_value_tables(self, scope: str) -> AsyncIterator[str]:
        """Names of the tables of a scope, page by page.

        :raises ScopeNotFoundError: no such scope.
        """
        validate_scope_name(scope)
        token = pb.ContinuationToken()
        while True:
            reply = await self._call(
                "listKeyValueTablesInScope",
                pb.KVTablesInScopeRequest(scope=pb.ScopeInfo(scope=scope), continuationToken=token),
                pb.KVTablesInScopeResponse,
                f"scope {scope}",
            )
            status = _name(pb.KVTablesInScopeResponse.Status, reply.status)
            if status == "SCOPE_NOT_FOUND":
                raise _no_scope("listKeyValueTablesInScope", scope)
            _result(status, "listKeyValueTablesInScope", f"scope {scope}")
            if not reply.kvtables:
                return
            for table in reply.kvtables:
                yield table.kvtName
            token = reply.continuationToken

    async def get_key_value_table_configuration(self, scope: str, table: str) -> KeyValueTableConfiguration:
        """A table's configuration.

        :raises KeyValueTableNotFoundError: no such table.
        """
        _check_names("key-value table", scope, table)
        reply = await self._call(
            "getKeyValueTableConfiguration",
            pb.KeyValueTableInfo(scope=scope, kvtName=table),
            pb.KeyValueTableConfigResponse,
            f"key-value table {scope}/{table}",
        )
        status = _name(pb.KeyValueTableConfigResponse.Status, reply.status)
        if status == "TABLE_NOT_FOUND":
            raise _no_table("getKeyValueTableConfiguration", scope, table)
        _result(status, "getKeyValueTableConfiguration", f"key-value table {scope}/{table}")
        config = reply.config
        return KeyValueTableConfiguration(
            config.partitionCount,
            config.primaryKeyLength,
            config.secondaryKeyLength,
            config.rolloverSizeBytes,
        )

    async def delete_key_value_table(self, scope: str, table: str) -> bool:
        """True when it was deleted, False when there was none."""
        about = f"key-value table {scope}/{table}"
        _check_names("key-value table", scope, table)
        reply = await self._call(
            "deleteKeyValueTable",
            pb.KeyValueTableInfo(scope=scope, kvtName=table),
            pb.DeleteKVTableStatus,
            about,
        )
        status = _name(pb.DeleteKVTableStatus.Status, reply.status)
        return _result(status, "deleteKeyValueTable", about, false="TABLE_NOT_FOUND")


# --- from and to messages ------------------------------------------------------------------------


class _stream_names:  # reads as a statement at its uses
    """Turns the bare "not found" of a call about a stream into one that names the stream."""

    def __init__(self, scope: str, stream: str) -> None:
        validate_scope_name(scope)
        validate_stream_name(stream)
        self._scope = scope
        self._stream = stream

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if type(error) is NotFoundError:
            found = _no_stream(error.rpc or "", self._scope, self._stream)
            found.status = error.status
            found.host = error.host
            raise found from error


def _check_names(kind: str, scope: str, name: str) -> None:
    validate_scope_name(scope)
    validate_user_name(kind, name)


def _info(scope: str, stream: str, access: Any = pb.StreamInfo.UNSPECIFIED) -> pb.StreamInfo:
    """The server takes an empty name for a fault of its own, which would be tried again for long."""
    validate_scope_name(scope)
    validate_stream_name(stream)
    return pb.StreamInfo(scope=scope, stream=stream, accessOperation=access)


def _owner_info(scope: str, stream: str, access: Any) -> pb.StreamInfo:
    """As :func:`_info`, also of what the segments of a key-value table belong to."""
    info = _info(scope, stream.removesuffix(TABLE_SUFFIX), access)
    info.stream = stream
    return info


def _segment(scope: str, stream: str, segment_id: int, access: Any) -> pb.SegmentId:
    return pb.SegmentId(streamInfo=_info(scope, stream, access), segmentId=segment_id)


def _ranges(ranges: Any) -> list[SegmentWithRange]:
    return [SegmentWithRange(each.segmentId.segmentId, each.minKey, each.maxKey) for each in ranges]


def _txn(txn_id: UUID) -> pb.TxnId:
    check_uuid("the id of a transaction", txn_id)
    high, low = txn_id.int >> 64, txn_id.int & 0xFFFFFFFFFFFFFFFF
    return pb.TxnId(highBits=_signed(high), lowBits=_signed(low))


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _uuid(txn: pb.TxnId) -> UUID:
    mask = 0xFFFFFFFFFFFFFFFF
    return UUID(int=((txn.highBits & mask) << 64) | (txn.lowBits & mask))


def check_lease(lease_ms: int) -> None:
    """Refuse a transaction's lease, in milliseconds, that a server with default limits refuses."""
    check_count("lease_ms", lease_ms)
    if not MIN_LEASE_MS <= lease_ms <= MAX_LEASE_MS:
        raise InvalidArgumentError(
            f"a lease of {lease_ms} ms is not between {MIN_LEASE_MS} and {MAX_LEASE_MS} ms"
        )


def _check_scale(about: str, seal: Sequence[int], new_ranges: Sequence[tuple[float, float]]) -> None:
    """What v0.13.0 does not check, and takes badly.

    Without segments and ranges it starts, and the stream cannot be sealed any more; two ranges with the
    same beginning are answered like a passing fault.
    """
    if not seal or not new_ranges:
        raise InvalidArgumentError(f"{about}: a scale seals segments and makes new ones; name both")
    for segment_id in seal:
        check_count(f"{about}: a segment's id", segment_id, 0)
    for bounds in new_ranges:
        if len(bounds) != 2 or not all(type(each) in (int, float) for each in bounds):
            raise InvalidArgumentError(f"{about}: {bounds!r} is not a pair of numbers")
    before = 0.0
    for low, high in sorted(new_ranges):
        if not before <= low < high <= 1.0:
            raise InvalidArgumentError(
                f"{about}: the new ranges {list(new_ranges)} must lie between 0 and 1 and not overlap"
            )
        before = high


def _stream_config(scope: str, stream: str, configuration: StreamConfiguration) -> pb.StreamConfig:
    scaling = configuration.scaling
    message = pb.StreamConfig(
        streamInfo=_info(scope, stream),
        scalingPolicy=pb.ScalingPolicy(
            scaleType=scaling.scale_type.name,
            targetRate=scaling.target_rate,
            scaleFactor=scaling.scale_factor,
            minNumSegments=scaling.min_segments,
        ),
        tags=pb.Tags(tag=sorted(configuration.tags)),
        timestampAggregationTimeout=configuration.timestamp_aggregation_timeout_ms,
        rolloverSizeBytes=configuration.rollover_size_bytes,
    )
    if configuration.retention is not None:
        message.retentionPolicy.CopyFrom(
            pb.RetentionPolicy(
                retentionType=configuration.retention.retention_type.name,
                retentionParam=configuration.retention.minimum,
                retentionMax=configuration.retention.maximum,
            )
        )
    return message


def _configuration(message: pb.StreamConfig) -> StreamConfiguration:
    scaling = message.scalingPolicy
    retention = message.retentionPolicy
    return StreamConfiguration(
        scaling=ScalingPolicy(
            ScaleType(scaling.scaleType),
            scaling.targetRate,
            scaling.scaleFactor,
            scaling.minNumSegments,
        ),
        retention=None
        if retention.retentionType == pb.RetentionPolicy.UNKNOWN
        else RetentionPolicy(
            RetentionType(retention.retentionType),
            retention.retentionParam,
            retention.retentionMax,
        ),
        tags=frozenset(message.tags.tag),
        timestamp_aggregation_timeout_ms=message.timestampAggregationTimeout,
        rollover_size_bytes=message.rolloverSizeBytes,
    )


def _cuts(cuts: Mapping[tuple[str, str], Mapping[int, int]]) -> list[pb.StreamCut]:
    return [
        pb.StreamCut(streamInfo=_info(scope, stream), cut=dict(cut)) for (scope, stream), cut in cuts.items()
    ]


def _group_config(configuration: ReaderGroupConfiguration) -> pb.ReaderGroupConfiguration:
    return pb.ReaderGroupConfiguration(
        scope=configuration.scope,
        readerGroupName=configuration.name,
        groupRefreshTimeMillis=configuration.group_refresh_ms,
        automaticCheckpointIntervalMillis=configuration.automatic_checkpoint_ms,
        maxOutstandingCheckpointRequest=configuration.max_outstanding_checkpoints,
        retentionType=configuration.retention_type,
        generation=configuration.generation,
        readerGroupId=str(configuration.group_id),
        startingStreamCuts=_cuts(configuration.starts),
        endingStreamCuts=_cuts(configuration.ends),
    )


def _group(message: pb.ReaderGroupConfiguration) -> ReaderGroupConfiguration:
    def cuts(found: Any) -> dict[tuple[str, str], dict[int, int]]:
        return {(each.streamInfo.scope, each.streamInfo.stream): dict(each.cut) for each in found}

    return ReaderGroupConfiguration(
        scope=message.scope,
        name=message.readerGroupName,
        starts=cuts(message.startingStreamCuts),
        ends=cuts(message.endingStreamCuts),
        group_refresh_ms=message.groupRefreshTimeMillis,
        automatic_checkpoint_ms=message.automaticCheckpointIntervalMillis,
        max_outstanding_checkpoints=message.maxOutstandingCheckpointRequest,
        retention_type=message.retentionType,
        generation=message.generation,
        group_id=UUID(message.readerGroupId) if message.readerGroupId else UUID(int=0),
    )


# --- statuses ------------------------------------------------------------------------------------


def _name(enum: Any, value: int) -> str:
    """Name of an enum value; numbers that this version does not know are tolerated."""
    try:
        return str(enum.Name(value))
    except ValueError:
        return f"UNRECOGNIZED_{value}"


def _result(status: str, rpc: str, about: str, *, true: str = "SUCCESS", false: str | None = None) -> bool:
    if status == true:
        return True
    if status == false:
        return False
    raise ControllerError(f"the controller failed {rpc} for {about}: {status}", rpc=rpc, status=status)


E = TypeVar("E", bound=ControllerError)


def _refused(kind: type[E], rpc: str, status: str, message: str, scope: str, stream: str | None = None) -> E:
    return kind(message, rpc=rpc, status=status, scope=scope, stream=stream)


def _no_scope(rpc: str, scope: str) -> ScopeNotFoundError:
    return _refused(ScopeNotFoundError, rpc, "SCOPE_NOT_FOUND", f"scope {scope} does not exist", scope)


def _broken(rpc: str, status: str, scope: str) -> ScopeBrokenError:
    return _refused(
        ScopeBrokenError,
        rpc,
        status,
        f"scope {scope} exists, but the controller answers {rpc} as if it did not: it is being deleted, or "
        "an earlier attempt to delete it has removed tables that it needs. Copy what is needed to another "
        "scope, and delete this one with delete_scope(recursive=True)",
        scope,
    )


def _no_stream(rpc: str, scope: str, stream: str) -> StreamNotFoundError:
    return _refused(
        StreamNotFoundError,
        rpc,
        "STREAM_NOT_FOUND",
        f"stream {scope}/{stream} does not exist",
        scope,
        stream,
    )


def _no_table(rpc: str, scope: str, table: str) -> KeyValueTableNotFoundError:
    return _refused(
        KeyValueTableNotFoundError,
        rpc,
        "TABLE_NOT_FOUND",
        f"key-value table {scope}/{table} does not exist",
        scope,
    )


def _odd(rpc: str, value: int) -> ControllerError:
    return ControllerError(
        f"the controller answered {rpc} with the unknown status {value}", rpc=rpc, status=str(value)
    )


def _page(reply: pb.StreamsInScopeResponse, rpc: str, scope: str) -> list[str]:
    status = _name(pb.StreamsInScopeResponse.Status, reply.status)
    if status == "SCOPE_NOT_FOUND":
        raise _no_scope(rpc, scope)
    _result(status, rpc, f"scope {scope}")
    return [each.stream for each in reply.streams]


def _stream_updated(rpc: str, scope: str, stream: str, reply: pb.UpdateStreamStatus) -> None:
    status = _name(pb.UpdateStreamStatus.Status, reply.status)
    if status == "STREAM_NOT_FOUND":
        raise _no_stream(rpc, scope, stream)
    if status == "SCOPE_NOT_FOUND":
        raise _no_scope(rpc, scope)
    if status == "STREAM_SEALED":
        raise _refused(
            StreamSealedError,
            rpc,
            status,
            f"stream {scope}/{stream} is sealed",
            scope,
            stream,
        )
    _result(status, rpc, f"stream {scope}/{stream}")
