"""The controller's calls, one typed method each (controller facts v0.13.0).

Statuses in replies become results or errors (``refusals``). Calls that fail in a passing way are tried again,
on the next address if there are several.
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

from pravega_wire.checks import check_event_time, check_lease
from pravega_wire.controller.mapping import (
    ACCESS_NONE,
    ACCESS_READ_WRITE,
    NO_TIMESTAMP,
    group_config,
    group_configuration,
    owner_info,
    ranges,
    segment_message,
    stream_config,
    stream_configuration,
    stream_info,
    table_config,
    table_configuration,
    txn_message,
    uuid_of,
)
from pravega_wire.controller.refusals import (
    broken_scope,
    check_names,
    check_scale,
    done,
    group_done,
    known,
    naming_stream,
    no_scope,
    no_stream,
    no_table,
    refused,
    scope_deleted,
    status_name,
    stream_updated,
    txn_done,
)
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
    NotFoundError,
    ReaderGroupNotFoundError,
    RetriesExhaustedError,
    ScaleConflictError,
    StreamNotSealedError,
    StreamSealedError,
    TransportError,
    WrongProtocolError,
)
from pravega_wire.grpc.call import CallResult
from pravega_wire.grpc.status import StatusCode, error_for_status, is_retried
from pravega_wire.metrics import Counters
from pravega_wire.naming import validate_scope_name, validate_user_name
from pravega_wire.policies import (
    StreamConfiguration,
)
from pravega_wire.proto import controller_pb2 as pb
from pravega_wire.secrecy import secrets_of, without_secrets
from pravega_wire.transport.diagnosis import who_is_silent
from pravega_wire.transport.grpc_channel import GrpcChannel
from pravega_wire.transport.limits import DEFAULT_LIMITS, Limits, limit
from pravega_wire.transport.retry import RetryPolicy, retry
from pravega_wire.transport.stream import connect
from pravega_wire.types import Endpoint

__all__ = ["ControllerClient", "open_controller"]

M = TypeVar("M", bound=Message)

_SERVICE = "/io.pravega.controller.stream.api.grpc.v1.ControllerService/"
_DISCOVERY_SECONDS = 120.0
_FIRST_CONTACT_SECONDS = 10.0


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

    :param endpoints: addresses, tried in turn.
    :param tls: a context, or None for plain text.
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

    async def _pages(
        self,
        rpc: str,
        request: Callable[[pb.ContinuationToken], Message],
        reply_type: type[M],
        about: str,
        names: Callable[[M], Sequence[str]],
        *,
        scope: str | None = None,
    ) -> AsyncIterator[str]:
        """The names in a list, page by page.

        :param request: for the page that a token stands for.
        :param names: in a reply.
        :param scope: that the list is of; None if it is of no scope, and its replies have no status.
        """
        if scope is not None:
            validate_scope_name(scope)
        token = pb.ContinuationToken()
        while True:
            reply: Any = await self._call(rpc, request(token), reply_type, about)
            if scope is not None:
                status = status_name(reply.Status, reply.status)
                if status == "SCOPE_NOT_FOUND":
                    raise no_scope(rpc, scope)
                done(status, rpc, f"scope {scope}")
            found = names(reply)
            # Only an empty page is the end (facts, "Pagination").
            if not found:
                return
            for name in found:
                yield name
            token = reply.continuationToken

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
        status = status_name(pb.CreateScopeStatus.Status, reply.status)
        if status == "INVALID_SCOPE_NAME":
            raise InvalidArgumentError(f"the controller refuses the scope name {scope!r}")
        return done(status, "createScope", f"scope {scope}", false="SCOPE_EXISTS")

    async def _in_scope(
        self, rpc: str, scope: str, request: Message, reply_type: type[M], about: str
    ) -> tuple[str, M]:
        """Make something in a scope; returns the status, which is not SCOPE_NOT_FOUND, and the reply.

        :raises ScopeNotFoundError: no such scope.
        :raises ScopeBrokenError: there is, and that does not help.
        """
        for _ in range(2):
            try:
                reply: Any = await self._call(rpc, request, reply_type, about)
            except NotFoundError as error:
                if type(error) is NotFoundError and f"/_tables/{scope}/" in error.message:
                    raise broken_scope(rpc, "NOT_FOUND", scope) from error
                raise
            status = status_name(reply_type.Status, reply.status)  # type: ignore[attr-defined]  # these replies have it
            if status != "SCOPE_NOT_FOUND":
                return status, reply
            try:
                exists = await self.check_scope_exists(scope)
            except AuthError:
                exists = False
            if not exists:
                raise no_scope(rpc, scope)
            # Somebody may have made it just now.
        raise broken_scope(rpc, status, scope)

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
        return scope_deleted("deleteScope", scope, reply)

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
        return scope_deleted("deleteScopeRecursive", scope, reply)

    async def check_scope_exists(self, scope: str) -> bool:
        """Whether it exists."""
        validate_scope_name(scope)
        reply = await self._call(
            "checkScopeExists", pb.ScopeInfo(scope=scope), pb.ExistsResponse, f"scope {scope}"
        )
        return reply.exists

    def list_scopes(self) -> AsyncIterator[str]:
        """Names of all scopes, page by page."""
        return self._pages(
            "listScopes",
            lambda token: pb.ScopesRequest(continuationToken=token),
            pb.ScopesResponse,
            "all scopes",
            lambda reply: reply.scopes,
        )

    # --- streams --------------------------------------------------------------------------------

    async def create_stream(self, scope: str, stream: str, configuration: StreamConfiguration) -> bool:
        """True when it was created, False when it existed.

        :raises ScopeNotFoundError: no such scope.
        :raises ScopeBrokenError: see there.
        """
        validate_scope_name(scope)
        validate_user_name("stream", stream)
        status, _ = await self._in_scope(
            "createStream",
            scope,
            stream_config(scope, stream, configuration),
            pb.CreateStreamStatus,
            f"stream {scope}/{stream}",
        )
        if status == "INVALID_STREAM_NAME":
            raise InvalidArgumentError(f"the controller refuses the stream name {stream!r}")
        return done(status, "createStream", f"stream {scope}/{stream}", false="STREAM_EXISTS")

    async def update_stream(self, scope: str, stream: str, configuration: StreamConfiguration) -> None:
        """Replace the whole configuration.

        :raises StreamNotFoundError: no such stream.
        :raises StreamSealedError: it is sealed.
        """
        reply = await self._call(
            "updateStream",
            stream_config(scope, stream, configuration),
            pb.UpdateStreamStatus,
            f"stream {scope}/{stream}",
        )
        stream_updated("updateStream", scope, stream, reply)

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
            pb.StreamCut(streamInfo=stream_info(scope, stream), cut=dict(cut)),
            pb.UpdateStreamStatus,
            f"stream {scope}/{stream}",
        )
        if status_name(pb.UpdateStreamStatus.Status, reply.status) == "FAILURE":
            raise InvalidStreamCutError(
                f"stream {scope}/{stream} was not truncated: the cut {dict(cut)} does not cover "
                "the key space, or lies before an earlier truncation",
                scope=scope,
                stream=stream,
            )
        stream_updated("truncateStream", scope, stream, reply)

    async def seal_stream(self, scope: str, stream: str) -> None:
        """Seal all segments; harmless when sealed.

        :raises StreamNotFoundError: no such stream.
        """
        reply = await self._call(
            "sealStream", stream_info(scope, stream), pb.UpdateStreamStatus, f"stream {scope}/{stream}"
        )
        stream_updated("sealStream", scope, stream, reply)

    async def delete_stream(self, scope: str, stream: str) -> bool:
        """True when it was deleted, False when there was none.

        :raises StreamNotSealedError: it is not sealed.
        """
        about = f"stream {scope}/{stream}"
        reply = await self._call("deleteStream", stream_info(scope, stream), pb.DeleteStreamStatus, about)
        status = status_name(pb.DeleteStreamStatus.Status, reply.status)
        if status == "STREAM_NOT_SEALED":
            raise refused(
                StreamNotSealedError,
                "deleteStream",
                status,
                f"{about} must be sealed before it is deleted",
                scope,
                stream,
            )
        return done(status, "deleteStream", about, false="STREAM_NOT_FOUND")

    async def check_stream_exists(self, scope: str, stream: str) -> bool:
        """Whether it exists."""
        reply = await self._call(
            "checkStreamExists",
            stream_info(scope, stream),
            pb.ExistsResponse,
            f"stream {scope}/{stream}",
        )
        return reply.exists

    async def get_stream_configuration(self, scope: str, stream: str) -> StreamConfiguration:
        """Its configuration.

        :raises StreamNotFoundError: no such stream.
        """
        with naming_stream(scope, stream):
            reply = await self._call(
                "getStreamConfiguration",
                stream_info(scope, stream),
                pb.StreamConfig,
                f"stream {scope}/{stream}",
            )
        return stream_configuration(reply)

    def list_streams(self, scope: str) -> AsyncIterator[str]:
        """Names of the streams of a scope, internal ones too, page by page.

        :raises ScopeNotFoundError: no such scope.
        """
        return self._pages(
            "listStreamsInScope",
            lambda token: pb.StreamsInScopeRequest(scope=pb.ScopeInfo(scope=scope), continuationToken=token),
            pb.StreamsInScopeResponse,
            f"scope {scope}",
            lambda reply: [each.stream for each in reply.streams],
            scope=scope,
        )

    def list_streams_for_tag(self, scope: str, tag: str) -> AsyncIterator[str]:
        """Names of the streams of a scope that carry a tag, page by page.

        :raises ScopeNotFoundError: no such scope.
        """
        return self._pages(
            "listStreamsInScopeForTag",
            lambda token: pb.StreamsInScopeWithTagRequest(
                scope=pb.ScopeInfo(scope=scope), tag=tag, continuationToken=token
            ),
            pb.StreamsInScopeResponse,
            f"scope {scope}, tag {tag}",
            lambda reply: [each.stream for each in reply.streams],
            scope=scope,
        )

    # --- segments -------------------------------------------------------------------------------

    async def get_current_segments(self, scope: str, stream: str) -> list[SegmentWithRange]:
        """Active segments; none of a sealed stream.

        :raises StreamNotFoundError: no such stream.
        """
        with naming_stream(scope, stream):
            reply = await self._call(
                "getCurrentSegments",
                stream_info(scope, stream, ACCESS_NONE),
                pb.SegmentRanges,
                f"stream {scope}/{stream}",
            )
        return ranges(reply.segmentRanges)

    async def get_epoch_segments(self, scope: str, stream: str, epoch: int) -> list[SegmentWithRange]:
        """Segments of one epoch.

        :raises StreamNotFoundError: no such stream (or no such epoch).
        """
        with naming_stream(scope, stream):
            reply = await self._call(
                "getEpochSegments",
                pb.GetEpochSegmentsRequest(
                    streamInfo=stream_info(scope, stream, ACCESS_READ_WRITE), epoch=epoch
                ),
                pb.SegmentRanges,
                f"epoch {epoch} of stream {scope}/{stream}",
            )
        return ranges(reply.segmentRanges)

    async def get_segments(self, scope: str, stream: str) -> dict[int, int]:
        """The head of the stream: segment id to first readable offset.

        (The call takes a time, which the server ignores.)

        :raises StreamNotFoundError: no such stream.
        """
        with naming_stream(scope, stream):
            reply = await self._call(
                "getSegments",
                pb.GetSegmentsRequest(streamInfo=stream_info(scope, stream, ACCESS_NONE), timestamp=0),
                pb.SegmentsAtTime,
                f"stream {scope}/{stream}",
            )
        return {each.segmentId.segmentId: each.offset for each in reply.segments}

    async def get_successors(self, scope: str, stream: str, segment_id: int) -> Successors:
        """What follows a sealed segment; empty when the stream was sealed or it is still active."""
        with naming_stream(scope, stream):
            reply = await self._call(
                "getSegmentsImmediatelyFollowing",
                segment_message(scope, stream, segment_id, ACCESS_NONE),
                pb.SuccessorResponse,
                f"segment {segment_id} of {scope}/{stream}",
            )
        return Successors(
            tuple(Successor(ranges([entry.segment])[0], tuple(entry.value)) for entry in reply.segments)
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
        request = pb.StreamCutRange(streamInfo=stream_info(scope, stream, ACCESS_NONE), to=dict(end))
        getattr(request, "from").update(dict(start))

        async def ask(attempts: int | None) -> pb.StreamCutRangeResponse:
            return await self._call(
                "getSegmentsBetween",
                request,
                pb.StreamCutRangeResponse,
                f"stream {scope}/{stream}",
                attempts=attempts,
            )

        with naming_stream(scope, stream):
            try:
                reply = await ask(unknown_attempts)
            except RetriesExhaustedError as error:
                last = error.__cause__
                if unknown_attempts is None:
                    raise
                if isinstance(last, ControllerError) and last.status == StatusCode.UNKNOWN.name:
                    raise refused(
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
            pb.SegmentId(streamInfo=owner_info(scope, stream, ACCESS_NONE), segmentId=segment_id),
            pb.NodeUri,
            f"segment {segment_id} of {scope}/{stream}",
        )
        return NodeUri(reply.endpoint, reply.port)

    async def is_segment_valid(self, scope: str, stream: str, segment_id: int) -> bool:
        """Whether a segment is active now.

        :raises StreamNotFoundError: no such stream.
        """
        with naming_stream(scope, stream):
            reply = await self._call(
                "isSegmentValid",
                segment_message(scope, stream, segment_id, ACCESS_NONE),
                pb.SegmentValidityResponse,
                f"segment {segment_id} of {scope}/{stream}",
            )
        return reply.response

    async def is_stream_cut_valid(self, scope: str, stream: str, cut: Mapping[int, int]) -> bool:
        """Whether a cut covers the key space and is consistent.

        :raises StreamNotFoundError: no such stream.
        """
        with naming_stream(scope, stream):
            reply = await self._call(
                "isStreamCutValid",
                pb.StreamCut(streamInfo=stream_info(scope, stream), cut=dict(cut)),
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
        check_scale(about, seal, new_ranges)
        with naming_stream(scope, stream):
            reply = await self._call(
                "scale",
                pb.ScaleRequest(
                    streamInfo=stream_info(scope, stream),
                    sealedSegments=list(seal),
                    newKeyRanges=[
                        pb.ScaleRequest.KeyRangeEntry(start=low, end=high) for low, high in new_ranges
                    ],
                    scaleTimestamp=int(time.time() * 1000),
                ),
                pb.ScaleResponse,
                about,
            )
        status = status_name(pb.ScaleResponse.ScaleStreamStatus, reply.status)
        if status == "PRECONDITION_FAILED":
            return None
        if status == "FAILURE":
            if not await self.check_stream_exists(scope, stream):
                raise no_stream("scale", scope, stream)
            raise refused(
                ScaleConflictError,
                "scale",
                status,
                f"{about} was not scaled: the new ranges {list(new_ranges)} must cover exactly those of "
                f"the segments {list(seal)}, which must be active",
                scope,
                stream,
            )
        done(status, "scale", about, true="STARTED")
        return reply.epoch

    async def check_scale(self, scope: str, stream: str, epoch: int) -> bool:
        """Whether the scale that began in ``epoch`` is done."""
        about = f"scale of stream {scope}/{stream} from epoch {epoch}"
        reply = await self._call(
            "checkScale",
            pb.ScaleStatusRequest(streamInfo=stream_info(scope, stream), epoch=epoch),
            pb.ScaleStatusResponse,
            about,
        )
        status = status_name(pb.ScaleStatusResponse.ScaleStatus, reply.status)
        return done(status, "checkScale", about, false="IN_PROGRESS")

    async def get_delegation_token(self, scope: str, stream: str, access: Access) -> str:
        """A token for the segment stores; "" without authorization.

        :param stream: for the segments of a key-value table, the table's name and ``_kvtable``.
        """
        reply = await self._call(
            "getDelegationToken",
            owner_info(scope, stream, access.value),
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
                pb.CreateTxnRequest(streamInfo=stream_info(scope, stream, ACCESS_READ_WRITE), lease=lease_ms),
                pb.CreateTxnResponse,
                f"stream {scope}/{stream}",
                attempts=attempts,
            )

        with naming_stream(scope, stream):
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
            uuid_of(reply.txnId), tuple(ranges(reply.activeSegments)), reply.delegationToken
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
                streamInfo=stream_info(scope, stream),
                txnId=txn_message(txn_id),
                writerId=writer_id,
                timestamp=NO_TIMESTAMP if timestamp is None else check_event_time("timestamp", timestamp),
            ),
            pb.TxnStatus,
            f"transaction {txn_id} of {scope}/{stream}",
        )
        return txn_done("commitTransaction", scope, stream, txn_id, reply)

    async def abort_transaction(self, scope: str, stream: str, txn_id: UUID) -> bool:
        """True when it is aborting or aborted; False when it cannot be (committed, unknown)."""
        reply = await self._call(
            "abortTransaction",
            pb.TxnRequest(streamInfo=stream_info(scope, stream), txnId=txn_message(txn_id)),
            pb.TxnStatus,
            f"transaction {txn_id} of {scope}/{stream}",
        )
        return txn_done("abortTransaction", scope, stream, txn_id, reply)

    async def ping_transaction(self, scope: str, stream: str, txn_id: UUID, lease_ms: int) -> PingStatus:
        """Let the lease end ``lease_ms`` from now."""
        check_lease(lease_ms)
        reply = await self._call(
            "pingTransaction",
            pb.PingTxnRequest(
                streamInfo=stream_info(scope, stream), txnId=txn_message(txn_id), lease=lease_ms
            ),
            pb.PingTxnStatus,
            f"transaction {txn_id} of {scope}/{stream}",
        )
        return known(PingStatus, "pingTransaction", reply.status)

    async def check_transaction_state(self, scope: str, stream: str, txn_id: UUID) -> TxnStatus:
        """Its state; UNKNOWN when the controller has no record of it."""
        try:
            reply = await self._call(
                "checkTransactionState",
                pb.TxnRequest(streamInfo=stream_info(scope, stream), txnId=txn_message(txn_id)),
                pb.TxnState,
                f"transaction {txn_id} of {scope}/{stream}",
            )
        except NotFoundError:
            return TxnStatus.UNKNOWN
        return known(TxnStatus, "checkTransactionState", reply.state)

    async def list_completed_transactions(self, scope: str, stream: str) -> dict[UUID, TxnStatus]:
        """Transactions that have ended and are still remembered (at most 500), with their end.

        Not to be relied on with v0.13.0: it keeps the ended transactions of all streams in one table, and
        answers with nothing as soon as those of a second stream are in it.
        """
        with naming_stream(scope, stream):
            reply = await self._call(
                "listCompletedTransactions",
                pb.ListCompletedTxnRequest(streamInfo=stream_info(scope, stream)),
                pb.ListCompletedTxnResponse,
                f"stream {scope}/{stream}",
            )
        return {
            uuid_of(each.txnId): TxnStatus.COMMITTED
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
        with naming_stream(scope, stream):
            reply = await self._call(
                "noteTimestampFromWriter",
                pb.TimestampFromWriter(
                    writer=writer_id,
                    position=pb.StreamCut(streamInfo=stream_info(scope, stream), cut=dict(position)),
                    timestamp=check_event_time("timestamp", timestamp),
                ),
                pb.TimestampResponse,
                f"writer {writer_id} of {scope}/{stream}",
            )
        return known(NoteTimeStatus, "noteTimestampFromWriter", reply.result)

    async def remove_writer(self, scope: str, stream: str, writer_id: str) -> RemoveWriterStatus:
        """A writer is gone: it must not hold back the watermark."""
        validate_user_name("writer", writer_id)
        reply = await self._call(
            "removeWriter",
            pb.RemoveWriterRequest(writer=writer_id, stream=stream_info(scope, stream)),
            pb.RemoveWriterResponse,
            f"writer {writer_id} of {scope}/{stream}",
        )
        return known(RemoveWriterStatus, "removeWriter", reply.result)

    # --- reader groups --------------------------------------------------------------------------

    async def create_reader_group(self, configuration: ReaderGroupConfiguration) -> ReaderGroupConfiguration:
        """Create a group; returns the configuration as the controller has stored it.

        A group that existed gives its own configuration, which may differ.

        :raises ScopeNotFoundError: no such scope.
        :raises ScopeBrokenError: see there.
        """
        about = f"reader group {configuration.scope}/{configuration.name}"
        check_names("reader group", configuration.scope, configuration.name)
        status, reply = await self._in_scope(
            "createReaderGroup",
            configuration.scope,
            group_config(configuration),
            pb.CreateReaderGroupResponse,
            about,
        )
        if status == "INVALID_RG_NAME":
            raise InvalidArgumentError(f"the controller refuses the name of {about}")
        done(status, "createReaderGroup", about)
        return group_configuration(reply.config)

    async def get_reader_group_config(self, scope: str, name: str) -> ReaderGroupConfiguration:
        """A group's configuration.

        :raises ReaderGroupNotFoundError: no such group.
        """
        check_names("reader group", scope, name)
        reply = await self._call(
            "getReaderGroupConfig",
            pb.ReaderGroupInfo(scope=scope, readerGroup=name),
            pb.ReaderGroupConfigResponse,
            f"reader group {scope}/{name}",
        )
        status = status_name(pb.ReaderGroupConfigResponse.Status, reply.status)
        group_done("getReaderGroupConfig", scope, name, status)
        return group_configuration(reply.config)

    async def update_reader_group(self, configuration: ReaderGroupConfiguration) -> int:
        """Replace a group's configuration; returns the new generation.

        :raises ReaderGroupNotFoundError: no such group.
        :raises ControllerError: with status INVALID_CONFIG when id or generation are not current.
        """
        check_names("reader group", configuration.scope, configuration.name)
        reply = await self._call(
            "updateReaderGroup",
            group_config(configuration),
            pb.UpdateReaderGroupResponse,
            f"reader group {configuration.scope}/{configuration.name}",
        )
        status = status_name(pb.UpdateReaderGroupResponse.Status, reply.status)
        group_done("updateReaderGroup", configuration.scope, configuration.name, status)
        return reply.generation

    async def delete_reader_group(self, scope: str, name: str, group_id: UUID) -> None:
        """Delete a group with its state.

        :raises ReaderGroupNotFoundError: no such group, or it has another id.
        """
        check_names("reader group", scope, name)
        reply = await self._call(
            "deleteReaderGroup",
            pb.ReaderGroupInfo(scope=scope, readerGroup=name, readerGroupId=str(group_id)),
            pb.DeleteReaderGroupStatus,
            f"reader group {scope}/{name}",
        )
        status = status_name(pb.DeleteReaderGroupStatus.Status, reply.status)
        group_done("deleteReaderGroup", scope, name, status)

    async def list_subscribers(self, scope: str, stream: str) -> list[str]:
        """Groups that hold back the stream's retention, as ``scope/group``.

        :raises StreamNotFoundError: no such stream.
        """
        reply = await self._call(
            "listSubscribers",
            stream_info(scope, stream),
            pb.SubscribersResponse,
            f"stream {scope}/{stream}",
        )
        status = status_name(pb.SubscribersResponse.Status, reply.status)
        if status == "STREAM_NOT_FOUND":
            raise no_stream("listSubscribers", scope, stream)
        done(status, "listSubscribers", f"stream {scope}/{stream}")
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
                streamCut=pb.StreamCut(streamInfo=stream_info(scope, stream), cut=dict(cut)),
            ),
            pb.UpdateSubscriberStatus,
            about,
        )
        status = status_name(pb.UpdateSubscriberStatus.Status, reply.status)
        if status == "STREAM_NOT_FOUND":
            raise no_stream("updateSubscriberStreamCut", scope, stream)
        if status == "SUBSCRIBER_NOT_FOUND":
            raise refused(
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
        done(status, "updateSubscriberStreamCut", about)

    # --- key-value tables -----------------------------------------------------------------------

    async def create_key_value_table(
        self, scope: str, table: str, configuration: KeyValueTableConfiguration
    ) -> bool:
        """True when it was created, False when it existed.

        :raises ScopeNotFoundError: no such scope.
        :raises ScopeBrokenError: see there.
        """
        about = f"key-value table {scope}/{table}"
        check_names("key-value table", scope, table)
        status, _ = await self._in_scope(
            "createKeyValueTable",
            scope,
            table_config(scope, table, configuration),
            pb.CreateKeyValueTableStatus,
            about,
        )
        if status == "INVALID_TABLE_NAME":
            raise InvalidArgumentError(f"the controller refuses the name of {about}")
        return done(status, "createKeyValueTable", about, false="TABLE_EXISTS")

    async def get_current_segments_key_value_table(self, scope: str, table: str) -> list[SegmentWithRange]:
        """Segments of a table.

        :raises KeyValueTableNotFoundError: no such table.
        """
        check_names("key-value table", scope, table)
        try:
            reply = await self._call(
                "getCurrentSegmentsKeyValueTable",
                pb.KeyValueTableInfo(scope=scope, kvtName=table),
                pb.SegmentRanges,
                f"key-value table {scope}/{table}",
            )
        except NotFoundError as error:
            raise no_table("getCurrentSegmentsKeyValueTable", scope, table) from error
        return ranges(reply.segmentRanges)

    def list_key_value_tables(self, scope: str) -> AsyncIterator[str]:
        """Names of the tables of a scope, page by page.

        :raises ScopeNotFoundError: no such scope.
        """
        return self._pages(
            "listKeyValueTablesInScope",
            lambda token: pb.KVTablesInScopeRequest(scope=pb.ScopeInfo(scope=scope), continuationToken=token),
            pb.KVTablesInScopeResponse,
            f"scope {scope}",
            lambda reply: [each.kvtName for each in reply.kvtables],
            scope=scope,
        )

    async def get_key_value_table_configuration(self, scope: str, table: str) -> KeyValueTableConfiguration:
        """A table's configuration.

        :raises KeyValueTableNotFoundError: no such table.
        """
        check_names("key-value table", scope, table)
        reply = await self._call(
            "getKeyValueTableConfiguration",
            pb.KeyValueTableInfo(scope=scope, kvtName=table),
            pb.KeyValueTableConfigResponse,
            f"key-value table {scope}/{table}",
        )
        status = status_name(pb.KeyValueTableConfigResponse.Status, reply.status)
        if status == "TABLE_NOT_FOUND":
            raise no_table("getKeyValueTableConfiguration", scope, table)
        done(status, "getKeyValueTableConfiguration", f"key-value table {scope}/{table}")
        return table_configuration(reply.config)

    async def delete_key_value_table(self, scope: str, table: str) -> bool:
        """True when it was deleted, False when there was none."""
        about = f"key-value table {scope}/{table}"
        check_names("key-value table", scope, table)
        reply = await self._call(
            "deleteKeyValueTable",
            pb.KeyValueTableInfo(scope=scope, kvtName=table),
            pb.DeleteKVTableStatus,
            about,
        )
        status = status_name(pb.DeleteKVTableStatus.Status, reply.status)
        return done(status, "deleteKeyValueTable", about, false="TABLE_NOT_FOUND")
