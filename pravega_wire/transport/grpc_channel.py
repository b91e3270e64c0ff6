"""One HTTP/2 connection to a controller, on trio."""

from __future__ import annotations

import math
from collections.abc import Sequence

import trio

from pravega_wire.errors import ClosedError, ConnectionLostError, PravegaError, ProtocolError
from pravega_wire.grpc.call import CallResult, GrpcConnection
from pravega_wire.transport.stream import NetworkStream

__all__ = ["GrpcChannel"]

_RECEIVE_BYTES = 64 * 1024


class _Waiter:
    __slots__ = ("done", "result")

    def __init__(self) -> None:
        self.done = trio.Event()
        self.result: CallResult | None = None


class GrpcChannel:
    """Carries calls on one connection; :meth:`run` must be running in a nursery.

    :param keepalive: seconds between pings while calls are under way (the controller's limit allows
        one in five minutes; the reference client sends one every six).
    """

    def __init__(
        self, stream: NetworkStream, authority: str, *, secure: bool, keepalive: float = 360.0
    ) -> None:
        self._stream = stream
        self._grpc = GrpcConnection(authority, secure=secure)
        self._waiters: dict[int, _Waiter] = {}
        self._keepalive = keepalive
        self._wake = trio.Event()
        self._wake.set()
        self._failure: PravegaError | None = None

    @property
    def host(self) -> str:
        """``host:port`` of the controller."""
        return self._stream.host

    @property
    def usable(self) -> bool:
        """Whether new calls may be made on it."""
        return self._failure is None and self._grpc.accepting

    async def call(
        self,
        path: str,
        message: bytes,
        *,
        timeout: float | None = None,
        metadata: Sequence[tuple[str, str]] = (),
    ) -> CallResult:
        """Make one call and wait for its end. Cancelling resets only this call.

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
        if waiter.result is None:
            assert self._failure is not None
            raise self._failure
        return waiter.result

    async def run(self) -> None:
        """Serve the connection until it ends. Cancelling this closes it."""
        error: PravegaError = ClosedError(f"connection to {self.host} was closed", host=self.host)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write_loop)
                nursery.start_soon(self._ping_loop)
                await self._read_loop()
        except* PravegaError as group:
            first: BaseException = group
            while isinstance(first, BaseExceptionGroup):
                first = first.exceptions[0]
            assert isinstance(first, PravegaError)
            error = first
            if isinstance(first, ProtocolError):
                # What breaks HTTP/2 ends this connection only; another one may be fine.
                error = ConnectionLostError(f"{self.host}: {first.message}", host=self.host)
                error.__cause__ = first
        finally:
            self._failure = error
            for waiter in self._waiters.values():
                waiter.done.set()
            with trio.CancelScope(shield=True):
                await self._stream.aclose()

    async def _read_loop(self) -> None:
        while True:
            data = await self._stream.receive(_RECEIVE_BYTES)
            if not data:
                raise ConnectionLostError(
                    f"connection to {self.host} was closed by the controller", host=self.host
                )
            for result in self._grpc.receive_data(data):
                waiter = self._waiters.get(result.call_id)
                if waiter is not None:
                    waiter.result = result
                    waiter.done.set()
            self._wake.set()

    async def _write_loop(self) -> None:
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            data = self._grpc.data_to_send()
            if data:
                await self._stream.send_all(data)

    async def _ping_loop(self) -> None:
        if not math.isfinite(self._keepalive):
            await trio.sleep_forever()
        while True:
            await trio.sleep(self._keepalive)
            if not self._grpc.calls_under_way:
                continue
            answered = self._grpc.pings_answered
            self._grpc.ping()
            self._wake.set()
            await trio.sleep(min(20.0, self._keepalive))
            if self._grpc.pings_answered == answered:
                raise ConnectionLostError(f"the controller {self.host} does not answer pings", host=self.host)
