"""Appending to a segment on the condition that nobody appended meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import trio

from pravega_wire.errors import (
    ConditionalCheckError,
    InvalidEventNumberError,
    PravegaError,
    SegmentSealedError,
    UnexpectedReplyError,
)
from pravega_wire.protocol import commands as c
from pravega_wire.protocol.append import HEADER_BYTES, MAX_EVENT_BYTES, too_large
from pravega_wire.segment.failures import error_of
from pravega_wire.segment.handles import Waiters
from pravega_wire.segment.metadata import SegmentMetadata
from pravega_wire.segment.store import Backoff, SegmentStores, SegmentTarget
from pravega_wire.transport.connection import Flow
from pravega_wire.transport.limits import limit, note_failure

__all__ = ["ConditionalAppender"]


class ConditionalAppender:
    """Conditional appends to one segment, one at a time (wire protocol v0.13.0, section 6.6).

    A lost connection does not make the outcome unknown: the writer id and event number tell, after
    the next set-up, whether the append was stored.
    """

    def __init__(self, stores: SegmentStores, target: SegmentTarget) -> None:
        self.target = target
        self._stores = stores
        self._writer_id = uuid4()
        self._number = 0
        self._lock = trio.Lock()
        self._flow: Flow | None = None
        self._waiting_for = -1
        self._reply: c.Command | None = None
        self._failure: PravegaError | None = None
        self._answered = trio.Event()
        self._set_up_done = False
        self._sent = False
        self._waiters = Waiters(
            f"the writer of {target.name} is closed; what a call was writing at that time may be stored"
        )

    # --- replies --------------------------------------------------------------------------------

    def on_reply(self, reply: c.Command) -> bool:
        """See :class:`FlowHandler`."""
        if c.reply_request_id(reply) != self._waiting_for:
            return False
        self._reply = reply
        self._answered.set()
        return True

    def on_lost(self, error: PravegaError) -> None:
        """See :class:`FlowHandler`."""
        self._flow = None
        self._failure = error
        self._answered.set()

    # --- appending ------------------------------------------------------------------------------

    async def append(self, payload: bytes, expected_offset: int) -> int | None:
        """Append one event if the segment's length is ``expected_offset``.

        :returns: the segment's new length in bytes, or None when the condition did not hold.
        :raises SegmentSealedError: the segment is sealed.
        :raises NoSuchSegmentError: it is gone.
        :raises RetriesExhaustedError: no answer within ``operation_timeout``; whether the event is stored is
            not known.
        :raises PravegaTimeoutError: likewise, and no attempt has failed.
        :raises ClosedError: the writer is closed, or was closed meanwhile; then the event may be stored.
        """
        if len(payload) > MAX_EVENT_BYTES:
            raise too_large(len(payload))
        with (
            self._waiters.waiting(),
            limit(self._stores.operation_timeout, f"conditional append to {self.target.name}"),
        ):
            async with self._lock:
                return await self._append(payload, expected_offset)
        raise AssertionError("not reached")  # the limit raises when it ends the call

    async def _append(self, payload: bytes, expected_offset: int) -> int | None:
        self._number += 1
        number = self._number
        backoff = Backoff(self._stores.operation_timeout)
        lost = refused = False
        while True:
            try:
                stored = await self._attempt(payload, expected_offset, number, only_ask=refused)
            except ConditionalCheckError:
                if not lost:
                    return None
                # The attempt whose answer was lost may have been stored after the set-up asked for its
                # number, and be what has made the condition fail now: the number tells.
                self._drop()
                refused = True
            except SegmentSealedError:
                self._drop()
                if not lost:
                    raise
                # Likewise, before the seal.
                if await SegmentMetadata(self._stores, self.target).final_number(self._writer_id) < number:
                    raise
                return expected_offset + len(payload) + HEADER_BYTES
            except PravegaError as error:
                lost = lost or self._sent
                note_failure(error)
                self._failed(error)
                await backoff.wait()
            except BaseException:
                # Cancelled with a request under way: its reply must not be taken for another.
                self._drop()
                raise
            else:
                return expected_offset + len(payload) + HEADER_BYTES if stored else None

    def _failed(self, error: PravegaError) -> None:
        """Clear the way for another attempt; raises what another one cannot cure."""
        self._drop()
        self._stores.forget(self.target)
        self.target.check_token(error, set_up=self._set_up_done)
        if not (error.retriable or isinstance(error, InvalidEventNumberError)):
            raise error

    async def _attempt(self, payload: bytes, expected_offset: int, number: int, *, only_ask: bool) -> bool:
        """Whether it is stored; False only when it is not to be sent (again)."""
        self._sent = False
        if self._flow is None and await self._set_up() >= number:
            # The connection was lost after the server stored it.
            return True
        if only_ask:
            return False
        flow = self._flow
        if flow is None:
            assert self._failure is not None
            raise self._failure
        self._sent = True
        reply = await self._ask(
            flow,
            lambda request_id: c.ConditionalAppend(
                writer_id=self._writer_id,
                event_number=number,
                expected_offset=expected_offset,
                event=payload,
                request_id=request_id,
            ),
        )
        if isinstance(reply, c.DataAppended) and reply.event_number == number:
            return True
        raise self._error(reply, flow)

    async def _set_up(self) -> int:
        """Open a session; returns the last event number that the server holds for this writer."""
        self._set_up_done = False
        endpoint = await self._stores.endpoint(self.target)
        token = await self.target.token()
        with self._stores.attempt_limit("a connection", endpoint):
            self._flow = flow = await self._stores.pool.flow(endpoint, self)
        reply = await self._ask(
            flow,
            lambda request_id: c.SetupAppend(
                request_id=request_id,
                writer_id=self._writer_id,
                segment=self.target.name,
                delegation_token=token,
            ),
        )
        if not isinstance(reply, c.AppendSetup):
            raise self._error(reply, flow)
        self._set_up_done = True
        return reply.last_event_number

    async def _ask(self, flow: Flow, build: Callable[[int], c.Command]) -> c.Command:
        self._begin(flow.next_request_id())
        host, _, port = flow.connection.host.rpartition(":")
        with self._stores.attempt_limit(f"an answer about {self.target.name}", (host, int(port))) as attempt:
            attempt.flow = flow
            flow.send(build(self._waiting_for))
            await self._answered.wait()
        if self._reply is None:
            assert self._failure is not None
            raise self._failure
        return self._reply

    def _begin(self, request_id: int) -> None:
        self._reply = None
        self._failure = None
        self._answered = trio.Event()
        self._waiting_for = request_id

    def _error(self, reply: c.Command, flow: Flow) -> PravegaError:
        if isinstance(reply, c.DataAppended):
            return UnexpectedReplyError(
                f"{self.target.name}: acknowledgement of event {reply.event_number} instead of "
                f"{self._number}",
                segment=self.target.name,
            )
        return error_of(
            reply,
            segment=self.target.name,
            host=flow.connection.host,
            doing="conditional append",
        )

    def _drop(self) -> None:
        if self._flow is not None:
            self._flow.close()
            self._flow = None

    def close(self) -> None:
        """Give the connection back. Whoever waits for an answer is told; what was sent may be stored."""
        self._waiters.close()
        self._drop()
