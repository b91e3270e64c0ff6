"""The controller's calls, one typed method for each (``docs/protocol/controller.md``).

Statuses in replies become results or errors (``refusals``). How a call is made, and made again, is in
``channels``.

Defined by ``io.pravega.controller.server.rpc.grpc.v1.ControllerServiceImpl``, 0.13.0.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from google.protobuf.message import Message

from pravega_wire.controller.channels import Channels
from pravega_wire.controller.mapping import (
    ACCESS_NONE,
    ACCESS_READ_WRITE,
    NO_TIMESTAMP,
    covering,
    group_config,
    group_configuration,
    group_info,
    node_uri,
    owner_info,
    ranges,
    scope_info,
    segment_message,
    stream_config,
    stream_configuration,
    stream_cut,
    stream_info,
    table_config,
    table_configuration,
    table_info,
    txn_message,
    uuid_of,
)
from pravega_wire.controller.refusals import (
    broken_scope,
    check_scale,
    done,
    known,
    no_scope,
    refused,
    status_name,
    subject,
    txn_done,
)
from pravega_wire.controller.types import (
    Access,
    CreatedTransaction,
    KeyValueTableConfiguration,
    NodeUri,
    NoteTimeStatus,
    PingStatus,
    RemoveWriterStatus,
    SegmentWithRange,
    Successor,
    Successors,
    TxnStatus,
)
from pravega_wire.errors import (
    AuthError,
    ControllerError,
    InvalidArgumentError,
    InvalidStreamCutError,
    NotFoundError,
    ReaderGroupNotFoundError,
    RetriesExhaustedError,
    ScaleConflictError,
    StreamSealedError,
    UnexpectedReplyError,
)
from pravega_wire.grpc.status import StatusCode
from pravega_wire.metrics import Counters
from pravega_wire.proto import controller_pb2 as pb
from pravega_wire.support.checks import check_event_time, check_lease
from pravega_wire.support.environment import environment
from pravega_wire.support.nurseries import open_lasting_nursery
from pravega_wire.transport.limits import DEFAULT_LIMITS, Limits
from pravega_wire.transport.retry import RetryPolicy
from pravega_wire.values.groups import ReaderGroupConfig
from pravega_wire.values.naming import validate_scope_name, validate_user_name
from pravega_wire.values.policies import StreamConfiguration
from pravega_wire.values.types import Endpoint

__all__ = ["ControllerClient", "open_controller"]

M = TypeVar("M", bound=Message)


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
    """Open a client of the controller. No connection is made before the first call.

    Example::

        async with open_controller([("localhost", 9090)]) as controller:
            async for scope in controller.list_scopes():
                print(scope)

    :param endpoints: addresses, which are tried in turn.
    :param tls: how to secure connections, None for plain TCP.
    :param credentials: returns the ``authorization`` header for each call, None for no header.
    :param discovery: whether to ask for the list of controllers; these are then used before ``endpoints``.
    :param deadline: seconds that a call may take with all its attempts.
    :param limits: limits of one attempt; by default those that fit into ``deadline``.
    :param policy: how often and when a call is retried; by default like the Java client.
    :param counters: where the calls are counted.
    :raises InvalidArgumentError: no address was given.
    """
    if not endpoints:
        raise InvalidArgumentError("no controller address was given; pass at least one (host, port)")
    async with open_lasting_nursery() as nursery:
        channels = Channels(
            nursery,
            endpoints,
            tls=tls,
            credentials=credentials,
            discovery=discovery,
            deadline=deadline,
            limits=Limits.of(deadline) if limits is None else limits,
            policy=policy or RetryPolicy(),
            counters=Counters() if counters is None else counters,
        )
        try:
            yield ControllerClient(channels)
        finally:
            channels.close()


class ControllerClient:
    """Calls to the controller. Streams are named by their scope and name.

    Besides the errors that are documented for it, every method may raise :class:`AuthError` (wrong
    credentials or missing permissions), :class:`RetriesExhaustedError` (the controller cannot be reached or
    keeps failing), :class:`PravegaTimeoutError` (no answer in time) and :class:`ControllerError` (the
    controller refused the call). After a cancelled or failed call the change may have been made.
    """

    def __init__(self, channels: Channels) -> None:
        self._channels = channels

    # --- calls by what their replies mean -------------------------------------------------------

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
        """Yield the names in a list, page by page.

        :param rpc: name of the call.
        :param request: makes the request for the page of a token.
        :param reply_type: class of the reply.
        :param about: what the call is about, for messages.
        :param names: returns the names in a reply.
        :param scope: scope of the list; None if the list has no scope, so that replies have no status.
        """
        if scope is not None:
            validate_scope_name(scope)
        token = pb.ContinuationToken()
        while True:
            reply: Any = await self._channels.call(rpc, request(token), reply_type, about)
            if scope is not None:
                done(rpc, pb.ScopeInfo(scope=scope), reply)
            found = names(reply)
            # Only an empty page is the end (docs/protocol/controller.md, "Paged lists").
            if not found:
                return
            for name in found:
                yield name
            if reply.continuationToken == token:
                raise UnexpectedReplyError(
                    f"listing {about}: the controller answered {rpc} with the token that it was sent, so the "
                    "list would not end",
                    scope=scope,
                )
            token = reply.continuationToken

    async def _ask(
        self,
        rpc: str,
        request: Message,
        reply_type: type[M],
        *,
        attempts: int | None = None,
        long: bool = False,
        renew: Callable[[], object] | None = None,
    ) -> M:
        """Make a call whose reply is the result."""
        about = subject(request).about
        return await self._channels.call(
            rpc, request, reply_type, about, attempts=attempts, long=long, renew=renew
        )

    async def _of_stream(
        self, rpc: str, request: Message, reply_type: type[M], *, attempts: int | None = None
    ) -> M:
        """Make a call whose reply is the result. NOT_FOUND means that the stream does not exist."""
        try:
            return await self._ask(rpc, request, reply_type, attempts=attempts)
        except NotFoundError as error:
            found = refused(rpc, "STREAM_NOT_FOUND", request)
            found.status, found.host = error.status, error.host
            raise found from error

    async def _done(
        self,
        rpc: str,
        request: Message,
        reply_type: type[Message],
        *,
        false: str | None = None,
        long: bool = False,
    ) -> bool:
        """Make a call whose reply is a status. SUCCESS is True, ``false`` is False, others are errors."""
        reply = await self._ask(rpc, request, reply_type, long=long)
        return done(rpc, request, reply, false=false)

    async def _deleted(
        self, rpc: str, request: Message, reply_type: type[Message], *, false: str | None = None
    ) -> bool:
        """As :meth:`_done`, to delete something.

        If another request deletes it meanwhile (a client's, or the first one of this call, whose answer was
        lost), the controller may fail in the middle. Asked again, it knows that it is gone.
        """
        try:
            return await self._done(rpc, request, reply_type, false=false)
        except NotFoundError as error:
            if error.status != "NOT_FOUND":
                raise
        return await self._done(rpc, request, reply_type, false=false)

    async def _in_scope(
        self, rpc: str, request: Message, reply_type: type[M], *, renew: Callable[[], object] | None = None
    ) -> M:
        """Make a call that creates something in a scope.

        :returns: the reply, whose status is not SCOPE_NOT_FOUND.
        :raises ScopeNotFoundError: the scope does not exist.
        :raises ScopeBrokenError: the scope exists, but an earlier attempt to delete it has damaged it.
        """
        scope = subject(request).scope
        for _ in range(2):
            try:
                reply = await self._ask(rpc, request, reply_type, renew=renew)
            except NotFoundError as error:
                if f"/_tables/{scope}/" in error.message:
                    raise broken_scope(rpc, "NOT_FOUND", scope) from error
                raise
            if status_name(reply) != "SCOPE_NOT_FOUND":
                return reply
            try:
                exists = await self.check_scope_exists(scope)
            except AuthError:
                exists = False
            if not exists:
                raise no_scope(rpc, scope)
            # Another client may have created it just now, so try once more.
        raise broken_scope(rpc, "SCOPE_NOT_FOUND", scope)

    # --- controllers ----------------------------------------------------------------------------

    async def get_controller_server_list(self) -> list[NodeUri]:
        """Return the addresses of all controllers.

        It asks once, because a standalone server, which has no list, answers with a status that is retried.
        """
        reply = await self._channels.call(
            "getControllerServerList", pb.ServerRequest(), pb.ServerResponse, "the cluster", attempts=1
        )
        return [NodeUri(node.endpoint, node.port) for node in reply.nodeURI]

    # --- scopes ---------------------------------------------------------------------------------

    async def create_scope(self, scope: str) -> bool:
        """Create a scope; return False if it exists already."""
        validate_scope_name(scope, new=True)
        return await self._done("createScope", scope_info(scope), pb.CreateScopeStatus, false="SCOPE_EXISTS")

    async def delete_scope(self, scope: str) -> bool:
        """Delete an empty scope; return False if it did not exist.

        A 0.13.0 controller damages a scope that it refuses to delete: see :class:`ScopeBrokenError`. Check
        first that it is empty, as :meth:`PravegaClient.delete_scope` does (``docs/protocol/unforgiving.md``,
        "Deleting a scope that is not empty").

        :raises ScopeNotEmptyError: the scope is not empty.
        """
        return await self._done(
            "deleteScope", scope_info(scope), pb.DeleteScopeStatus, false="SCOPE_NOT_FOUND"
        )

    async def delete_scope_recursive(self, scope: str) -> bool:
        """Delete a scope with everything in it.

        :returns: True if it was deleted. A 0.13.0 controller also answers so if the scope does not exist or
            another such call is in progress.
        """
        return await self._done(
            "deleteScopeRecursive",
            scope_info(scope),
            pb.DeleteScopeStatus,
            false="SCOPE_NOT_FOUND",
            long=True,
        )

    async def check_scope_exists(self, scope: str) -> bool:
        """Return whether a scope exists."""
        return (await self._ask("checkScopeExists", scope_info(scope), pb.ExistsResponse)).exists

    def list_scopes(self) -> AsyncIterator[str]:
        """Yield the names of all scopes, page by page."""
        return self._pages(
            "listScopes",
            lambda token: pb.ScopesRequest(continuationToken=token),
            pb.ScopesResponse,
            "all scopes",
            lambda reply: reply.scopes,
        )

    # --- streams --------------------------------------------------------------------------------

    async def create_stream(self, scope: str, stream: str, configuration: StreamConfiguration) -> bool:
        """Create a stream; return False if it exists already.

        :raises ScopeNotFoundError: the scope does not exist.
        :raises ScopeBrokenError: an earlier attempt to delete the scope has damaged it.
        """
        validate_scope_name(scope)
        validate_user_name("stream", stream)
        request = stream_config(scope, stream, configuration)
        reply = await self._in_scope("createStream", request, pb.CreateStreamStatus)
        return done("createStream", request, reply, false="STREAM_EXISTS")

    async def update_stream(self, scope: str, stream: str, configuration: StreamConfiguration) -> None:
        """Replace a stream's whole configuration, including its tags and retention.

        :raises StreamNotFoundError: the stream does not exist.
        :raises StreamSealedError: the stream is sealed.
        """
        await self._done("updateStream", stream_config(scope, stream, configuration), pb.UpdateStreamStatus)

    async def truncate_stream(self, scope: str, stream: str, cut: Mapping[int, int]) -> None:
        """Drop the data before a cut.

        :param scope: scope of the stream.
        :param stream: name of the stream.
        :param cut: segment id to offset, covering the whole key space.
        :raises InvalidStreamCutError: the controller does not accept the cut, or another truncation is in
            progress.
        :raises StreamNotFoundError: the stream does not exist.
        :raises StreamSealedError: the stream is sealed.
        """
        if not cut:
            raise InvalidStreamCutError(
                f"stream {scope}/{stream} cannot be truncated at a cut without segments",
                scope=scope,
                stream=stream,
            )
        request = stream_cut(scope, stream, cut)
        reply = await self._ask("truncateStream", request, pb.UpdateStreamStatus)
        if reply.status == pb.UpdateStreamStatus.FAILURE:
            raise InvalidStreamCutError(
                f"stream {scope}/{stream} was not truncated: the controller does not accept the cut "
                f"{dict(cut)}, or another truncation is in progress",
                scope=scope,
                stream=stream,
            )
        done("truncateStream", request, reply)

    async def seal_stream(self, scope: str, stream: str) -> None:
        """Seal all segments of a stream; sealing a sealed stream does nothing.

        :raises StreamNotFoundError: the stream does not exist.
        """
        await self._done("sealStream", stream_info(scope, stream), pb.UpdateStreamStatus)

    async def delete_stream(self, scope: str, stream: str) -> bool:
        """Delete a sealed stream; return False if it did not exist.

        :raises StreamNotSealedError: the stream is not sealed.
        """
        return await self._done(
            "deleteStream", stream_info(scope, stream), pb.DeleteStreamStatus, false="STREAM_NOT_FOUND"
        )

    async def check_stream_exists(self, scope: str, stream: str) -> bool:
        """Return whether a stream exists."""
        return (await self._ask("checkStreamExists", stream_info(scope, stream), pb.ExistsResponse)).exists

    async def get_stream_configuration(self, scope: str, stream: str) -> StreamConfiguration:
        """Return the configuration of a stream.

        :raises StreamNotFoundError: the stream does not exist.
        """
        request = stream_info(scope, stream)
        return stream_configuration(await self._of_stream("getStreamConfiguration", request, pb.StreamConfig))

    def list_streams(self, scope: str) -> AsyncIterator[str]:
        """Yield the names of the streams of a scope, including internal ones, page by page.

        :raises ScopeNotFoundError: the scope does not exist.
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
        """Yield the names of the streams of a scope that have a tag, page by page.

        :raises ScopeNotFoundError: the scope does not exist.
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
        """Return the active segments of a stream; a sealed stream has none.

        :raises StreamNotFoundError: the stream does not exist.
        """
        request = stream_info(scope, stream, ACCESS_NONE)
        reply = await self._of_stream("getCurrentSegments", request, pb.SegmentRanges)
        return covering(reply.segmentRanges, request, or_none=True)

    async def get_epoch_segments(self, scope: str, stream: str, epoch: int) -> list[SegmentWithRange]:
        """Return the segments of one epoch of a stream.

        :raises StreamNotFoundError: the stream or the epoch does not exist.
        """
        info = stream_info(scope, stream, ACCESS_READ_WRITE)
        request = pb.GetEpochSegmentsRequest(streamInfo=info, epoch=epoch)
        reply = await self._of_stream("getEpochSegments", request, pb.SegmentRanges)
        return covering(reply.segmentRanges, info)

    async def get_segments(self, scope: str, stream: str) -> dict[int, int]:
        """Return the head of a stream: segment id to first readable offset.

        The call also has a time, which the server ignores.

        :raises StreamNotFoundError: the stream does not exist.
        """
        request = pb.GetSegmentsRequest(streamInfo=stream_info(scope, stream, ACCESS_NONE), timestamp=0)
        reply = await self._of_stream("getSegments", request, pb.SegmentsAtTime)
        return {each.segmentId.segmentId: each.offset for each in reply.segments}

    async def get_successors(self, scope: str, stream: str, segment_id: int) -> Successors:
        """Return what follows a sealed segment; empty if the stream was sealed or the segment is active.

        :raises StreamNotFoundError: the stream does not exist.
        """
        request = segment_message(scope, stream, segment_id, ACCESS_NONE)
        reply = await self._of_stream("getSegmentsImmediatelyFollowing", request, pb.SuccessorResponse)
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
        """Return the ids of all segments between two cuts, both included. One of them may be empty (open).

        :param scope: scope of the stream.
        :param stream: name of the stream.
        :param start: segment id to offset of the first cut; empty for the beginning of the stream's history.
        :param end: segment id to offset of the second cut; empty for the active epoch.
        :param unknown_attempts: number of UNKNOWN answers after which to fail, because a 0.13.0 controller
            gives that answer also for cuts that are impossible or in the wrong order. None for the usual
            number.
        :raises InvalidStreamCutError: both cuts are empty.
        :raises StreamNotFoundError: the stream does not exist.
        :raises ControllerError: with status UNKNOWN, after ``unknown_attempts`` such answers.
        """
        if not start and not end:
            raise InvalidStreamCutError(
                f"stream {scope}/{stream}: one of the two cuts must name segments",
                scope=scope,
                stream=stream,
            )
        request = pb.StreamCutRange(streamInfo=stream_info(scope, stream, ACCESS_NONE), to=dict(end))
        getattr(request, "from").update(dict(start))
        ask = partial(self._of_stream, "getSegmentsBetween", request, pb.StreamCutRangeResponse)
        about = f"finding the segments between two cuts of stream {scope}/{stream}"
        with self._channels.limit(about):
            try:
                reply = await ask(attempts=unknown_attempts)
            except RetriesExhaustedError as error:
                last = error.__cause__
                if unknown_attempts is None:
                    raise
                if isinstance(last, ControllerError) and last.status == StatusCode.UNKNOWN.name:
                    raise ControllerError(
                        error.message,
                        rpc="getSegmentsBetween",
                        status=last.status,
                        scope=scope,
                        stream=stream,
                    ) from error
                # Another failure that can pass: retry it for the usual time.
                reply = await ask()
        return [each.segmentId for each in reply.segments]

    async def get_uri(self, scope: str, stream: str, segment_id: int) -> NodeUri:
        """Return the store that serves a segment; it is not checked whether the segment exists.

        :param scope: scope of the stream.
        :param stream: name of the stream; for a segment of a key-value table, the table's name and
            ``_kvtable``.
        :param segment_id: id of the segment; for a transaction's segment, of its parent.
        """
        request = pb.SegmentId(streamInfo=owner_info(scope, stream, ACCESS_NONE), segmentId=segment_id)
        return node_uri(await self._ask("getURI", request, pb.NodeUri), request)

    async def is_segment_valid(self, scope: str, stream: str, segment_id: int) -> bool:
        """Return whether a segment is active.

        :raises StreamNotFoundError: the stream does not exist.
        """
        request = segment_message(scope, stream, segment_id, ACCESS_NONE)
        return (await self._of_stream("isSegmentValid", request, pb.SegmentValidityResponse)).response

    async def is_stream_cut_valid(self, scope: str, stream: str, cut: Mapping[int, int]) -> bool:
        """Return whether a cut covers the key space and is consistent.

        A 0.13.0 controller fails on cuts of sealed streams (``docs/protocol/unforgiving.md``, "Validating the
        cut of a sealed stream").

        :raises StreamNotFoundError: the stream does not exist.
        """
        request = stream_cut(scope, stream, cut)
        return (await self._of_stream("isStreamCutValid", request, pb.StreamCutValidityResponse)).response

    async def scale(
        self,
        scope: str,
        stream: str,
        seal: Sequence[int],
        new_ranges: Sequence[tuple[float, float]],
    ) -> int | None:
        """Start a scale.

        :param scope: scope of the stream.
        :param stream: name of the stream.
        :param seal: ids of the active segments to seal.
        :param new_ranges: ranges (low, high) of the new segments, which cover exactly those of the sealed
            ones.
        :returns: the epoch before the scale, for :meth:`check_scale`. None if the scale is refused because a
            segment is not active, fewer segments than the policy's minimum would be left, or another scale is
            in progress.
        :raises StreamNotFoundError: the stream does not exist.
        :raises ScaleConflictError: the new ranges do not cover exactly those of the sealed segments. (A
            0.13.0 controller answers FAILURE in both cases.)
        :raises InvalidArgumentError: there are no segments or no ranges, or ranges are empty or overlap.
        """
        about = f"stream {scope}/{stream}"
        check_scale(about, seal, new_ranges)
        request = pb.ScaleRequest(
            streamInfo=stream_info(scope, stream),
            sealedSegments=list(seal),
            newKeyRanges=[pb.ScaleRequest.KeyRangeEntry(start=low, end=high) for low, high in new_ranges],
            scaleTimestamp=int(environment().wall() * 1000),
        )
        reply = await self._of_stream("scale", request, pb.ScaleResponse)
        if reply.status == pb.ScaleResponse.FAILURE:
            if not await self.check_stream_exists(scope, stream):
                raise refused("scale", "STREAM_NOT_FOUND", request)
            raise ScaleConflictError(
                f"{about} was not scaled: the new ranges {list(new_ranges)} must cover exactly those of "
                f"the segments {list(seal)}, which must be active",
                rpc="scale",
                status="FAILURE",
                scope=scope,
                stream=stream,
            )
        started = done("scale", request, reply, true="STARTED", false="PRECONDITION_FAILED")
        return reply.epoch if started else None

    async def check_scale(self, scope: str, stream: str, epoch: int) -> bool:
        """Return whether the scale that began in ``epoch`` is complete."""
        request = pb.ScaleStatusRequest(streamInfo=stream_info(scope, stream), epoch=epoch)
        return await self._done("checkScale", request, pb.ScaleStatusResponse, false="IN_PROGRESS")

    async def get_delegation_token(self, scope: str, stream: str, access: Access) -> str:
        """Return a token for the segment stores; "" without authorization.

        :param scope: scope of the stream.
        :param stream: name of the stream; for the segments of a key-value table, the table's name and
            ``_kvtable``.
        :param access: what the token has to allow.
        """
        request = owner_info(scope, stream, access.value)
        return (await self._ask("getDelegationToken", request, pb.DelegationToken)).delegationToken

    # --- transactions ---------------------------------------------------------------------------

    async def create_transaction(self, scope: str, stream: str, lease: float) -> CreatedTransaction:
        """Begin a transaction.

        :param scope: scope of the stream.
        :param stream: name of the stream.
        :param lease: lease in seconds, 10 to 600 (the limits of a server with default
            settings).
        :raises InvalidArgumentError: the lease is out of bounds. (The server would answer like for a failure
            that can pass, and the call would be retried until its deadline.)
        :raises StreamNotFoundError: the stream does not exist.
        :raises StreamSealedError: the stream is sealed. A 0.13.0 controller answers INTERNAL, like for a
            failure that can pass, so the state of the stream is checked after such answers.
        """
        request = pb.CreateTxnRequest(
            streamInfo=stream_info(scope, stream, ACCESS_READ_WRITE), lease=check_lease(lease)
        )
        ask = partial(self._of_stream, "createTransaction", request, pb.CreateTxnResponse)
        reply: pb.CreateTxnResponse | None = None
        attempts: int | None = 1
        with self._channels.limit(f"creating a transaction on stream {scope}/{stream}"):
            while reply is None:
                try:
                    reply = await ask(attempts=attempts)
                except RetriesExhaustedError as error:
                    last = error.__cause__
                    internal = isinstance(last, ControllerError) and last.status == StatusCode.INTERNAL.name
                    if internal and not await self.get_current_segments(scope, stream):
                        raise StreamSealedError(
                            f"stream {scope}/{stream} is sealed: no transaction can be started on it",
                            scope=scope,
                            stream=stream,
                        ) from error
                    if attempts is None:
                        raise
                    # A stream that is being sealed has segments until it is sealed, so look again after a
                    # second. Retry another failure that can pass for the usual time.
                    attempts = attempts + 5 if internal else None
        return CreatedTransaction(
            uuid_of(reply.txnId),
            tuple(covering(reply.activeSegments, request.streamInfo)),
            reply.delegationToken,
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
        """Commit a transaction.

        :param scope: scope of the stream.
        :param stream: name of the stream.
        :param txn_id: id of the transaction.
        :param writer_id: name of the writer, for ``timestamp``.
        :param timestamp: event time in milliseconds to note for ``writer_id``.
        :returns: True if it is committing or committed; False if that is impossible (aborted, or unknown).
        """
        request = pb.TxnRequest(
            streamInfo=stream_info(scope, stream),
            txnId=txn_message(txn_id),
            writerId=writer_id,
            timestamp=NO_TIMESTAMP if timestamp is None else check_event_time(timestamp),
        )
        reply = await self._ask("commitTransaction", request, pb.TxnStatus)
        return txn_done("commitTransaction", request, reply, txn_id)

    async def abort_transaction(self, scope: str, stream: str, txn_id: UUID) -> bool:
        """Abort a transaction.

        :returns: True if it is aborting or aborted; False if that is impossible (committed, or unknown).
        """
        request = pb.TxnRequest(streamInfo=stream_info(scope, stream), txnId=txn_message(txn_id))
        reply = await self._ask("abortTransaction", request, pb.TxnStatus)
        return txn_done("abortTransaction", request, reply, txn_id)

    async def ping_transaction(self, scope: str, stream: str, txn_id: UUID, lease: float) -> PingStatus:
        """Extend a transaction's lease, so that it ends ``lease`` seconds from now."""
        request = pb.PingTxnRequest(
            streamInfo=stream_info(scope, stream), txnId=txn_message(txn_id), lease=check_lease(lease)
        )
        reply = await self._ask("pingTransaction", request, pb.PingTxnStatus)
        return known(PingStatus, "pingTransaction", reply.status)

    async def check_transaction_state(self, scope: str, stream: str, txn_id: UUID) -> TxnStatus:
        """Return the state of a transaction; UNKNOWN if the controller has no record of it."""
        request = pb.TxnRequest(streamInfo=stream_info(scope, stream), txnId=txn_message(txn_id))
        try:
            reply = await self._ask("checkTransactionState", request, pb.TxnState)
        except NotFoundError:
            return TxnStatus.UNKNOWN
        return known(TxnStatus, "checkTransactionState", reply.state)

    async def list_completed_transactions(self, scope: str, stream: str) -> dict[UUID, TxnStatus]:
        """Return recorded transactions that have ended (at most 500), and how they have ended.

        Do not rely on this with a 0.13.0 controller: it keeps the ended transactions of all streams in one
        table, and returns nothing once the table has those of a second stream.
        """
        request = pb.ListCompletedTxnRequest(streamInfo=stream_info(scope, stream))
        reply = await self._of_stream("listCompletedTransactions", request, pb.ListCompletedTxnResponse)
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
        """Note that a writer has reached an event time at a position.

        :param scope: scope of the stream.
        :param stream: name of the stream.
        :param writer_id: name of the writer.
        :param timestamp: event time, milliseconds.
        :param position: segment id to offset.
        :raises StreamNotFoundError: the stream does not exist.
        """
        validate_user_name("writer", writer_id)
        request = pb.TimestampFromWriter(
            writer=writer_id,
            position=stream_cut(scope, stream, position),
            timestamp=check_event_time(timestamp),
        )
        reply = await self._of_stream("noteTimestampFromWriter", request, pb.TimestampResponse)
        return known(NoteTimeStatus, "noteTimestampFromWriter", reply.result)

    async def remove_writer(self, scope: str, stream: str, writer_id: str) -> RemoveWriterStatus:
        """Report that a writer has shut down, so that it does not hold back the watermark."""
        validate_user_name("writer", writer_id)
        request = pb.RemoveWriterRequest(writer=writer_id, stream=stream_info(scope, stream))
        reply = await self._ask("removeWriter", request, pb.RemoveWriterResponse)
        return known(RemoveWriterStatus, "removeWriter", reply.result)

    # --- reader groups --------------------------------------------------------------------------

    async def create_reader_group(
        self, scope: str, name: str, config: ReaderGroupConfig, new_id: Callable[[], UUID] | None = None
    ) -> ReaderGroupConfig:
        """Create a reader group.

        :param scope: scope of the group.
        :param name: name of the group.
        :param config: its configuration.
        :param new_id: makes an id for each attempt; default: that of the configuration. A group may be made
            and deleted before an attempt is repeated, and its id must not be used again
            (``docs/protocol/unforgiving.md``, "Using the id of a reader group again").
        :returns: the configuration that the controller has stored. If the group existed, it is the
            configuration of that group, which may be different.
        :raises ScopeNotFoundError: the scope does not exist.
        :raises ScopeBrokenError: an earlier attempt to delete the scope has damaged it.
        """
        request = group_config(scope, name, config)

        def renew() -> None:
            if new_id is not None:
                request.readerGroupId = str(new_id())

        reply = await self._in_scope("createReaderGroup", request, pb.CreateReaderGroupResponse, renew=renew)
        done("createReaderGroup", request, reply)
        return group_configuration(reply.config)

    async def get_reader_group_config(self, scope: str, name: str) -> ReaderGroupConfig:
        """Return the configuration of a reader group.

        :raises ReaderGroupNotFoundError: the group does not exist.
        """
        request = group_info(scope, name)
        try:
            reply = await self._ask("getReaderGroupConfig", request, pb.ReaderGroupConfigResponse)
        except NotFoundError as error:
            # The scope does not exist, or has lost its table of groups.
            raise refused("getReaderGroupConfig", "RG_NOT_FOUND", request) from error
        done("getReaderGroupConfig", request, reply)
        return group_configuration(reply.config)

    async def update_reader_group(self, scope: str, name: str, config: ReaderGroupConfig) -> int:
        """Replace the configuration of a reader group; return the new generation.

        :raises ReaderGroupNotFoundError: the group does not exist.
        :raises ControllerError: with status INVALID_CONFIG if the id or the generation is not the current
            one.
        """
        request = group_config(scope, name, config)
        reply = await self._ask("updateReaderGroup", request, pb.UpdateReaderGroupResponse)
        done("updateReaderGroup", request, reply)
        return reply.generation

    async def delete_reader_group(self, scope: str, name: str, group_id: UUID) -> None:
        """Delete a reader group with its state.

        :raises ReaderGroupNotFoundError: the group does not exist, or has another id.
        """
        request = group_info(scope, name, group_id)
        await self._deleted("deleteReaderGroup", request, pb.DeleteReaderGroupStatus)

    async def list_subscribers(self, scope: str, stream: str) -> list[str]:
        """Return the reader groups that hold back the stream's retention, as ``scope/group``.

        :raises StreamNotFoundError: the stream does not exist.
        """
        request = stream_info(scope, stream)
        reply = await self._ask("listSubscribers", request, pb.SubscribersResponse)
        done("listSubscribers", request, reply)
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
        """Report up to which cut a reader group has consumed a stream.

        :param scope: scope of the stream.
        :param stream: name of the stream.
        :param subscriber: the group, as ``scope/group``.
        :param group_id: id of the group.
        :param generation: generation of the group's configuration.
        :param cut: segment id to offset.
        :raises StreamNotFoundError: the stream does not exist.
        :raises InvalidStreamCutError: the cut is not valid.
        :raises ReaderGroupNotFoundError: the group is not a subscriber of the stream.
        """
        request = pb.SubscriberStreamCut(
            subscriber=subscriber,
            generation=generation,
            readerGroupId=str(group_id),
            streamCut=stream_cut(scope, stream, cut),
        )
        reply = await self._ask("updateSubscriberStreamCut", request, pb.UpdateSubscriberStatus)
        if reply.status == pb.UpdateSubscriberStatus.SUBSCRIBER_NOT_FOUND:
            raise ReaderGroupNotFoundError(
                f"{subscriber} is not a subscriber of {scope}/{stream}",
                rpc="updateSubscriberStreamCut",
                status="SUBSCRIBER_NOT_FOUND",
                scope=scope,
                stream=stream,
            )
        if reply.status == pb.UpdateSubscriberStatus.STREAM_CUT_NOT_VALID:
            raise InvalidStreamCutError(
                f"subscriber {subscriber} of {scope}/{stream}: the cut {dict(cut)} is not valid "
                "for the stream",
                scope=scope,
                stream=stream,
            )
        done("updateSubscriberStreamCut", request, reply)

    # --- key-value tables -----------------------------------------------------------------------

    async def create_key_value_table(
        self, scope: str, table: str, configuration: KeyValueTableConfiguration
    ) -> bool:
        """Create a key-value table; return False if it exists already.

        :raises ScopeNotFoundError: the scope does not exist.
        :raises ScopeBrokenError: an earlier attempt to delete the scope has damaged it.
        """
        request = table_config(scope, table, configuration)
        reply = await self._in_scope("createKeyValueTable", request, pb.CreateKeyValueTableStatus)
        return done("createKeyValueTable", request, reply, false="TABLE_EXISTS")

    async def get_current_segments_key_value_table(self, scope: str, table: str) -> list[SegmentWithRange]:
        """Return the segments of a key-value table.

        :raises KeyValueTableNotFoundError: the table does not exist.
        """
        request = table_info(scope, table)
        try:
            reply = await self._ask("getCurrentSegmentsKeyValueTable", request, pb.SegmentRanges)
        except NotFoundError as error:
            raise refused("getCurrentSegmentsKeyValueTable", "TABLE_NOT_FOUND", request) from error
        return covering(reply.segmentRanges, pb.StreamInfo(scope=scope, stream=table))

    def list_key_value_tables(self, scope: str) -> AsyncIterator[str]:
        """Yield the names of the key-value tables of a scope, page by page.

        :raises ScopeNotFoundError: the scope does not exist.
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
        """Return the configuration of a key-value table.

        :raises KeyValueTableNotFoundError: the table does not exist.
        """
        request = table_info(scope, table)
        reply = await self._ask("getKeyValueTableConfiguration", request, pb.KeyValueTableConfigResponse)
        done("getKeyValueTableConfiguration", request, reply)
        return table_configuration(reply.config)

    async def delete_key_value_table(self, scope: str, table: str) -> bool:
        """Delete a key-value table; return False if it did not exist."""
        request = table_info(scope, table)
        return await self._deleted(
            "deleteKeyValueTable", request, pb.DeleteKVTableStatus, false="TABLE_NOT_FOUND"
        )
