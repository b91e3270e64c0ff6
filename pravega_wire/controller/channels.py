"""Connections to the controllers, and calls over them: retries, time limits, the list of controllers.

A call that fails with an error that can pass is retried, on the next address if there are several.
"""

from __future__ import annotations

import logging
import math
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from threading import get_ident
from typing import Final, TypeVar

import trio
from google.protobuf.message import DecodeError as ProtobufDecodeError
from google.protobuf.message import Message

from pravega_wire.errors import (
    ClosedError,
    ConnectError,
    ConnectionLostError,
    ControllerError,
    DecodeError,
    HostNotFoundError,
    PravegaError,
    PravegaTimeoutError,
    ServerTooOldError,
    TransportError,
    WrongProtocolError,
)
from pravega_wire.grpc.call import CallResult
from pravega_wire.grpc.status import StatusCode, error_for_status, is_retried
from pravega_wire.metrics import Counters
from pravega_wire.proto import controller_pb2 as pb
from pravega_wire.support.environment import environment
from pravega_wire.support.nurseries import check_run
from pravega_wire.support.secrecy import secrets_of, without_secrets
from pravega_wire.transport.diagnosis import who_is_silent
from pravega_wire.transport.grpc_channel import GrpcChannel
from pravega_wire.transport.limits import Limits, limit
from pravega_wire.transport.retry import RetryPolicy, retry
from pravega_wire.transport.stream import connect
from pravega_wire.values.config import parse_endpoint
from pravega_wire.values.types import Endpoint, endpoint_text

__all__ = ["Channels"]

M = TypeVar("M", bound=Message)

_SERVICE = "/io.pravega.controller.stream.api.grpc.v1.ControllerService/"
# The first version of Pravega that has a call, where that is not the oldest one.
_SINCE: Final[Mapping[str, str]] = {
    "getStreamConfiguration": "0.10",
    "getKeyValueTableConfiguration": "0.10",
    "listStreamsInScopeForTag": "0.10",
    "deleteScopeRecursive": "0.11",
    "listCompletedTransactions": "0.12",
}

_DISCOVERY_SECONDS = 120.0
_FIRST_CONTACT_SECONDS = 10.0

log = logging.getLogger(__name__)


class _CallFailedError(ControllerError):
    """A call that ended with a status that is retried."""

    retriable = True


class Channels:
    """Makes calls to the controllers. Its settings are those of ``open_controller``."""

    def __init__(
        self,
        nursery: trio.Nursery,
        endpoints: Sequence[Endpoint],
        *,
        tls: ssl.SSLContext | None,
        credentials: Callable[[], str | None],
        discovery: bool,
        deadline: float,
        limits: Limits,
        policy: RetryPolicy,
        counters: Counters,
    ) -> None:
        self._connections = _Connections(nursery, endpoints, tls, limits)
        self._counters = counters
        self._credentials = credentials
        self._discovery = discovery
        self._deadline = deadline
        self._policy = policy
        self._discovered = -math.inf
        self._discovering = False
        self._undiscovered = False  # whether the log has the last failure to discover

    def close(self) -> None:
        """Make no more connections; the nursery ends those that there are."""
        self._connections.closed = True

    def limit(self, about: str) -> AbstractContextManager[None]:
        """Limit the time that one or several calls may take together.

        :param about: what they do, for the error.
        """
        return limit(self._deadline, about, setting="operation_timeout or controller_deadline")

    async def call(
        self,
        rpc: str,
        request: Message,
        reply_type: type[M],
        about: str,
        *,
        attempts: int | None = None,
        long: bool = False,
        renew: Callable[[], object] | None = None,
    ) -> M:
        """Make a call, with retries.

        :param rpc: name of the call.
        :param request: the request.
        :param reply_type: class of the reply.
        :param about: what the call is about, for messages.
        :param attempts: largest number of attempts, if fewer than usual are wanted.
        :param long: whether the call may take any time, so that another controller would not be faster.
        :param renew: called before each attempt; it may change the request.
        """
        describe = f"controller call {rpc} for {about}"
        made = 0

        async def attempt() -> M:
            nonlocal made
            made += 1
            if renew is not None:
                renew()
            return await self._attempt(rpc, request, reply_type, about, long=long)

        started = environment().monotonic()
        failure: str | None = None
        try:
            with self.limit(describe):
                if self._discovery:
                    await self._discover()
                    started = environment().monotonic()
                policy = self._policy_now()
                setting: str | None = "operation_timeout"
                if policy.total != self._policy.total:
                    setting = "first contact with a controller"
                if attempts is not None:
                    # The caller goes on without an answer: a warning would name a time that nobody waits for.
                    policy, setting = replace(policy, attempts=attempts), None
                return await retry(
                    policy,
                    attempt,
                    retry_on=lambda error: error.retriable,
                    describe=describe,
                    at_least=min(policy.attempts, len(self._connections.endpoints)),
                    setting=setting,
                )
            raise AssertionError("not reached")  # the limit raises when it ends the call
        except BaseException as error:
            failure = type(error).__name__
            raise
        finally:
            self._counters.called(rpc, environment().monotonic() - started, made, failure)

    def _policy_now(self) -> RetryPolicy:
        """Return the policy; shorter until a controller has answered, because the address may be wrong."""
        if self._connections.heard:
            return self._policy
        return replace(self._policy, total=min(self._policy.total, _FIRST_CONTACT_SECONDS))

    async def _attempt(self, rpc: str, request: Message, reply_type: type[M], about: str, *, long: bool) -> M:
        channel = await self._connections.get()
        metadata = []
        header = self._credentials()
        if header is not None:
            metadata.append(("authorization", header))
        # Another controller may be faster. With a single one that answers PINGs there is nothing to do but
        # wait; the channel fails if it does not answer them.
        several = len(self._connections.endpoints) > 1
        patience = self._connections.limits.attempt if several and not long else math.inf
        result: CallResult | None = None
        began = trio.current_time()
        try:
            with trio.move_on_after(patience):
                result = await channel.call(
                    _SERVICE + rpc,
                    request.SerializeToString(),
                    timeout=None if long else self._deadline,
                    metadata=metadata,
                )
        except TransportError as error:
            self._connections.drop(channel)
            explained = await self._connections.explained(channel, error)
            if explained is not error:
                raise explained from error
            raise
        except trio.Cancelled:
            # PINGs may be answered by something in between, and what is behind it be gone.
            if trio.current_time() - began >= self._connections.limits.attempt:
                self._connections.drop(channel)
            raise
        if result is None:
            self._connections.drop(channel)
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
            # A single refused call does not mean that the connection is unusable.
            self._connections.drop(channel)
        if result.code is StatusCode.UNIMPLEMENTED and rpc in _SINCE:
            raise ServerTooOldError(
                f"controller call {rpc} for {about} needs Pravega {_SINCE[rpc]} or newer: {channel.host} "
                "does not know it",
                feature=rpc,
                needed=_SINCE[rpc],
                found=None,
                host=channel.host,
            )
        # Controllers repeat the headers of a call that they refuse, and their error texts may quote them.
        text = without_secrets(result.text, secrets_of(header))
        said = f"{about}: {text}" if text else about
        failure = error_for_status(result.code, said, rpc=rpc, host=channel.host)
        if is_retried(result.code) and not failure.retriable:
            raise _CallFailedError(failure.message, rpc=rpc, status=result.code.name, host=channel.host)
        raise failure

    async def _discover(self) -> None:
        """Ask for the list of controllers if it is due. A call does not depend on the answer.

        A standalone server, for example, has no list, and answers with a status that other calls retry.
        """
        # Other calls go on with the addresses that are known while one of them asks.
        if self._discovering or trio.current_time() - self._discovered < _DISCOVERY_SECONDS:
            return
        # What is left of the call's limit, and of those around it.
        left = trio.current_effective_deadline() - trio.current_time()
        patience = max(0.0, min(_FIRST_CONTACT_SECONDS, left / 4))
        rpc = "getControllerServerList"
        self._discovering = True
        started = environment().monotonic()
        failure: str | None = PravegaTimeoutError.__name__
        why = f"no answer within {patience:.3g} s"
        try:
            with trio.move_on_after(patience):
                reply = await self._attempt(
                    rpc, pb.ServerRequest(), pb.ServerResponse, "the cluster", long=False
                )
                failure = None
                self._connections.discovered([(node.endpoint, node.port) for node in reply.nodeURI])
        except ClosedError:
            raise
        except PravegaError as error:
            failure, why = type(error).__name__, error.message
        except BaseException as error:
            failure = type(error).__name__
            raise
        finally:
            self._counters.called(rpc, environment().monotonic() - started, 1, failure)
            self._discovering = False
            # Also after a failure and for a caller that gave up: the next call is not delayed as well.
            self._discovered = trio.current_time()
        if failure is None:
            self._undiscovered = False
        elif not self._undiscovered:
            self._undiscovered = True
            log.warning(
                "the list of controllers is not available, so the addresses that are known are used, and the "
                "list is asked for again every %g s: %s", _DISCOVERY_SECONDS, why,
            )  # fmt: skip


class _Connections:
    """Connections to the controllers: one at a time, and the next address after a failure."""

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
        self._misfits: set[str] = set()  # addresses where another attempt does not help
        self._configured = tuple(endpoints)
        self.endpoints = tuple(endpoints)
        self.closed = False
        self._thread = get_ident()

    @property
    def heard(self) -> bool:
        """Whether a server that speaks HTTP/2 has answered so far."""
        self._heard = self._heard or (self._current is not None and self._current.greeted)
        return self._heard

    def discovered(self, found: Sequence[Endpoint]) -> None:
        """Use the addresses that a controller has listed, and the configured ones after them.

        The listed ones may be replaced at any time, and then only the configured ones lead to the new ones.
        """
        endpoints = tuple(dict.fromkeys((*found, *self._configured)))
        if found and endpoints != self.endpoints:
            current = self.endpoints[self._index % len(self.endpoints)]
            self.endpoints = endpoints
            self._index = endpoints.index(current) if current in endpoints else 0

    async def get(self) -> GrpcChannel:
        """Return a usable channel; try each address once.

        :raises InvalidArgumentError: this is not the trio run that opened the client.
        """
        check_run(self._thread)
        if self._current is not None and self._current.usable:
            return self._current
        async with self._lock:
            self._check_open()
            if self._current is not None and self._current.usable:
                return self._current
            if self._current is not None:
                # After GOAWAY: calls in flight on it may end, and then it is closed.
                self._heard = self.heard
                self._current.retire()
                self._current = None
            failures: list[TransportError] = []
            for _ in range(len(self.endpoints)):
                host, port = self.endpoints[self._index % len(self.endpoints)]
                try:
                    stream = await connect(host, port, tls=self._tls, timeout=self.limits.connect)
                except TransportError as error:
                    if not error.retriable:
                        self._misfits.add(endpoint_text((host, port)))
                    failures.append(self._passing(error))
                    self._index += 1
                    continue
                except trio.Cancelled:
                    # The user's own time limit may be shorter, so the next call begins with the next address.
                    self._index += 1
                    raise
                try:
                    self._check_open()
                except ClosedError:
                    await stream.aclose()
                    raise
                channel = GrpcChannel(
                    stream,
                    endpoint_text((host, port)),
                    secure=self._tls is not None,
                    silence=self.limits.silence,
                )
                self._nursery.start_soon(channel.run, name=f"controller {channel.host}")
                self._current = channel
                return channel
            raise _together(failures)

    def _passing(self, error: TransportError) -> TransportError:
        """Make an unknown host name retriable if a controller has answered before."""
        if self.heard and isinstance(error, HostNotFoundError):
            return ConnectError(error.message, host=error.host)
        return error

    def _check_open(self) -> None:
        if self.closed:
            raise ClosedError("the client is closed")

    def drop(self, channel: GrpcChannel) -> None:
        """Stop using a channel for new calls; the next call uses the next address."""
        channel.retire()
        self._heard = self._heard or channel.greeted
        if self._current is channel:
            self._current = None
            self._index += 1

    async def explained(self, channel: GrpcChannel, error: TransportError) -> TransportError:
        """Return the error to raise for a lost connection: its reason, retriable while an address is left."""
        lost = isinstance(error, ConnectionLostError) and not channel.fell_silent
        if lost and not self.heard and not channel.heard:
            host, port = parse_endpoint(channel.host, "the controller")
            found = await who_is_silent(host, port, tls=self._tls is not None)
            if found is not None:
                error = WrongProtocolError(f"no controller at {channel.host}: {found}", host=channel.host)
        if isinstance(error, WrongProtocolError):
            self._misfits.add(channel.host)
            if not set(map(endpoint_text, self.endpoints)) <= self._misfits:
                return ConnectError(error.message, host=error.host)
        return error


def _together(failures: Sequence[TransportError]) -> TransportError:
    """Combine the errors of all addresses into one, which is retriable if any of them is."""
    chosen = next((each for each in failures if each.retriable), failures[-1])
    if len(failures) == 1:
        return chosen
    error = type(chosen)("; ".join(each.message for each in failures), host=chosen.host)
    error.__cause__ = chosen
    return error
