"""Appending to a segment on the condition that it has a certain length."""

from __future__ import annotations

from collections.abc import Callable

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
from pravega_wire.segment.failures import error_of, named
from pravega_wire.segment.handles import Waiters
from pravega_wire.segment.metadata import SegmentMetadata
from pravega_wire.segment.store import Backoff, SegmentStores, SegmentTarget
from pravega_wire.support.environment import environment
from pravega_wire.transport.connection import Flow
from pravega_wire.transport.limits import limit, note_failure
from pravega_wire.values.config import parse_endpoint

__all__ = ["ConditionalAppender"]


class ConditionalAppender:
    """Conditional appends to one segment, one at a time (``docs/protocol/wire.md``, "Conditional appends").

    A lost connection does not make the outcome unknown: after the next set-up, the writer id and the event
    number tell whether the append was stored.

    :param stores: the segment stores.
    :param target: the segment.
    """

    def __init__(self, stores: SegmentStores, target: SegmentTarget) -> None:
        self.target = target
        self._stores = stores
        self._writer_id = environment().new_id()
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
            f"the writer of {target.name} is closed; an event that was being written then may be stored",
            stores.thread,
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

        :param payload: payload of the event, at most 8 MiB.
        :param expected_offset: length in bytes that the segment must have.
        :returns: the segment's new length in bytes, or None if the condition did not hold.
        :raises EventTooLargeError: the payload is too large.
        :raises SegmentSealedError: the segment is sealed.
        :raises NoSuchSegmentError: the segment is gone.
        :raises RetriesExhaustedError: there was no answer within ``operation_timeout``; it is not known
            whether the event is stored.
        :raises PravegaTimeoutError: the same, and no attempt had failed.
        :raises ClosedError: the writer is closed. If it was closed during the call, the event may be stored.
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
        backoff = Backoff()
        lost = refused = False
        while True:
            try:
                stored = await self._attempt(payload, expected_offset, number, lost=lost, only_ask=refused)
            except ConditionalCheckError:
                if not lost:
                    return None
                # The attempt whose answer was lost may have been stored after the last set-up, and may be the
                # reason why the condition fails now. The number tells.
                self._drop()
                refused = True
            except SegmentSealedError:
                self._drop()
                if not lost:
                    raise
                # It may also have been stored just before the seal.
                if await SegmentMetadata(self._stores, self.target).final_number(self._writer_id) < number:
                    raise
                return expected_offset + len(payload) + HEADER_BYTES
            except PravegaError as error:
                lost = lost or self._sent
                note_failure(error)
                self._failed(error)
                await backoff.wait()
            except BaseException:
                # Cancelled with a request in flight: its reply must not be taken for another one.
                self._drop()
                raise
            else:
                return expected_offset + len(payload) + HEADER_BYTES if stored else None

    def _failed(self, error: PravegaError) -> None:
        """Prepare another attempt; raise the error if another attempt cannot help."""
        self._drop()
        self._stores.forget(self.target)
        self.target.check_token(error, set_up=self._set_up_done)
        if not (error.retriable or isinstance(error, InvalidEventNumberError)):
            raise named(error, self.target.name, "conditional append to")

    async def _attempt(
        self, payload: bytes, expected_offset: int, number: int, *, lost: bool, only_ask: bool
    ) -> bool:
        """Make one attempt; return whether the event is stored.

        :param lost: whether the event was sent before, and the answer did not arrive.
        :param only_ask: do not send the event; ask for the number only.
        """
        self._sent = False
        if self._flow is None and (stored := await self._set_up()) >= number:
            if not lost:
                raise UnexpectedReplyError(
                    f"{self.target.name}: the store reports event {stored} of a writer that has sent "
                    f"{number - 1}",
                    segment=self.target.name,
                )
            # The server had stored it before the connection was lost.
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
        """Set up a session; return the last event number that the server holds for this writer."""
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
        endpoint = parse_endpoint(flow.connection.host, "the segment store")
        about = f"an answer about {self.target.name}"
        with self._stores.attempt_limit(about, endpoint) as attempt:
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
                f"{self.target.name}: the store acknowledged event {reply.event_number} instead of "
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
        """Close the session. Calls in progress raise :class:`ClosedError`; what they sent may be stored."""
        self._waiters.close()
        self._drop()
