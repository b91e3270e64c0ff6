"""One HTTP/2 connection to a controller, on trio."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from pravega_wire.errors import (
    ClosedError,
    ConnectionLostError,
    PravegaError,
    ProtocolError,
    WrongProtocolError,
)
from pravega_wire.grpc.call import CallResult, GrpcConnection
from pravega_wire.support.nurseries import first_of
from pravega_wire.transport.limits import DEFAULT_LIMITS
from pravega_wire.transport.stream import NetworkStream

__all__ = ["GrpcChannel"]

_RECEIVE_BYTES = 64 * 1024
_TICKS_OF_SILENCE = 3
_MOST_PINGS = 3
_PING_SECONDS = 300.0


class _Waiter:
    __slots__ = ("done", "result")

    def __init__(self) -> None:
        self.done = trio.Event()
        self.result: CallResult | None = None


class GrpcChannel:
    """Carries calls on one connection; :meth:`run` must be running in a nursery.

    :param stream: the network stream.
    :param authority: ``host:port`` for the HTTP/2 header of that name.
    :param secure: whether the stream uses TLS.
    :param silence: seconds without a byte from the controller, while a call waits, after which the connection
        counts as lost. A PING is sent after a third of it, and at most two more while no call is answered,
        because a controller closes the connection after more than three in five minutes
        (``docs/protocol/unforgiving.md``, "Too many PINGs").
    :ivar fell_silent: whether the connection ended because the controller sent nothing.
    """

    def __init__(
        self,
        stream: NetworkStream,
        authority: str,
        *,
        secure: bool,
        silence: float = DEFAULT_LIMITS.silence,
    ) -> None:
        self._stream = stream
        self._grpc = GrpcConnection(authority, secure=secure)
        self._waiters: dict[int, _Waiter] = {}
        self._silence = silence
        self._received = False
        self._data_received = False
        self._pings_sent = 0
        self._retired = False
        self._ended = trio.Event()
        self.fell_silent = False
        self._wake = trio.Event()
        self._wake.set()
        self._failure: PravegaError | None = None

    @property
    def host(self) -> str:
        """``host:port`` of the controller."""
        return self._stream.host

    @property
    def heard(self) -> bool:
        """Whether the controller has sent anything."""
        return self._grpc.heard

    @property
    def greeted(self) -> bool:
        """Whether the controller has sent its settings, which shows that it speaks HTTP/2."""
        return self._grpc.greeted

    @property
    def usable(self) -> bool:
        """Whether new calls may be made on this channel."""
        return self._failure is None and not self._retired and self._grpc.accepting

    def retire(self) -> None:
        """Take no new calls, and close when the calls in flight have ended."""
        self._retired = True
        self._end_if_unused()

    def _end_if_unused(self) -> None:
        if self._retired and not self._waiters:
            self._ended.set()

    async def call(
        self,
        path: str,
        message: bytes,
        *,
        timeout: float | None = None,
        metadata: Sequence[tuple[str, str]] = (),
    ) -> CallResult:
        """Make one call and wait for its end. Cancelling it resets only this call.

        :param path: ``/package.Service/method``.
        :param message: the serialized request.
        :param timeout: seconds, sent to the server as the call's deadline; None for no deadline.
        :param metadata: further headers, with lower-case names.
        :raises ConnectionLostError: the connection ended before the reply.
        """
        if self._failure is not None:
            raise self._failure
        call_id = self._grpc.start_call(path, message, timeout=timeout, metadata=metadata)
        waiter = self._waiters[call_id] = _Waiter()
        self._wake.set()
        try:
            await waiter.done.wait()
        finally:
            del self._waiters[call_id]
            if not waiter.done.is_set():
                self._grpc.cancel_call(call_id)
                self._wake.set()
            self._end_if_unused()
        if waiter.result is None:
            assert self._failure is not None
            raise self._failure
        return waiter.result

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Serve the connection until it ends. Cancelling this closes it."""
        error: PravegaError = ClosedError(f"connection to {self.host} was closed", host=self.host)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write_loop)
                nursery.start_soon(self._ping_loop)
                nursery.start_soon(self._read_loop)
                await self._ended.wait()
                nursery.cancel_scope.cancel()
        except* PravegaError as group:
            error = first = first_of(group)
            if isinstance(first, WrongProtocolError):
                error = WrongProtocolError(f"no controller at {self.host}: {first.message}", host=self.host)
                error.__cause__ = first
            elif isinstance(first, ProtocolError):
                # A violation of HTTP/2 ends only this connection; another one may work.
                error = ConnectionLostError(f"{self.host}: {first.message}", host=self.host)
                error.__cause__ = first
        finally:
            self._failure = error
            for waiter in self._waiters.values():
                waiter.done.set()
            if not isinstance(error, ClosedError):
                self._stream.forget_unsent()
            with trio.CancelScope(shield=True):
                await self._stream.aclose()

    @trio.lowlevel.enable_ki_protection
    async def _read_loop(self) -> None:
        while True:
            data = await self._stream.receive(_RECEIVE_BYTES)
            if not data:
                raise ConnectionLostError(
                    f"connection to {self.host} was closed by the controller", host=self.host
                )
            self._received = True
            for result in self._grpc.receive_data(data):
                self._data_received = True
                waiter = self._waiters.get(result.call_id)
                if waiter is not None:
                    waiter.result = result
                    waiter.done.set()
            self._wake.set()

    @trio.lowlevel.enable_ki_protection
    async def _write_loop(self) -> None:
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            data = self._grpc.data_to_send()
            if data:
                await self._stream.send_all(data)

    @trio.lowlevel.enable_ki_protection
    async def _ping_loop(self) -> None:
        # Ticks are counted instead of seconds: a process that was suspended for a while did not listen
        # either.
        tick = self._silence / _TICKS_OF_SILENCE
        pings: list[float] = []
        silent = waiting = 0
        while True:
            self._received = False
            await trio.sleep(tick)
            if self._data_received:
                self._data_received = False
                pings.clear()
                silent = waiting = 0
                continue
            if not self._waiters:
                silent = waiting = 0
                continue
            waiting += 1
            silent = 0 if self._received else silent + 1
            now = trio.current_time()
            pings = [at for at in pings if at > now - _PING_SECONDS]
            if self._grpc.pings_answered < self._pings_sent:
                if silent >= _TICKS_OF_SILENCE:
                    self.fell_silent = True
                    raise ConnectionLostError(
                        f"the controller {self.host} has sent nothing for {self._silence:.3g} s, not even "
                        "the answer to a PING",
                        host=self.host,
                    )
            elif len(pings) < _MOST_PINGS and (waiting == 1 or waiting >= 4 ** len(pings)):
                pings.append(now)
                self._pings_sent += 1
                self._grpc.ping()
                self._wake.set()
                silent = min(silent, 1)
