"""Single events on their way from the thread that writes them to the client's thread."""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Final, Generic, TypeVar

import trio

from pravega_wire.errors import ClosedError, InvalidArgumentError, PravegaError
from pravega_wire.metrics import WriterMetrics
from pravega_wire.protocol.append import BLOCK_BYTES, HEADER_BYTES, MAX_EVENT_BYTES, not_copied
from pravega_wire.segment.appender import Ack as AsyncAck
from pravega_wire.threads.portal import Portal

__all__ = [
    "Acks", "Counting", "Outbox", "Promise", "ResumableCounting", "RoutedCounting", "TransactionCounting",
    "wait_for_all",
]  # fmt: skip

A = TypeVar("A")
R = TypeVar("R")

_LINGER_SECONDS: Final = 0.002
"""The pause between two times that the client's thread takes events.

Without it each event would wake that thread, which costs fifty times as much as the event itself.
"""

_FULL_BYTES: Final = BLOCK_BYTES

_forks = 0


def _forked() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_forked)


class Promise:
    """The acknowledgement of events that cross between threads together.

    :param hurry: makes the client's thread take the events at once.
    :ivar handed: set once the writer has accepted the events, or they have failed.
    """

    __slots__ = ("_ack", "_error", "_hurry", "handed")

    def __init__(self, hurry: Callable[[], None]) -> None:
        self._hurry = hurry
        self._ack: AsyncAck | None = None
        self._error: PravegaError | None = None
        self.handed = trio.Event()

    @property
    def done(self) -> bool:
        """True once the events are stored or have failed."""
        return self._error is not None or (self._ack is not None and self._ack.done)

    @property
    def error(self) -> PravegaError | None:
        """The reason why the events were not stored, or None."""
        return self._error if self._error is not None or self._ack is None else self._ack.error

    async def wait(self) -> None:
        """Wait until the events are stored; in the client's thread."""
        if not self.handed.is_set():
            self._hurry()
            await self.handed.wait()
        if self._error is not None:
            raise self._error
        assert self._ack is not None
        await self._ack.wait()

    def keep(self, ack: AsyncAck) -> None:
        """The writer has accepted the events."""
        self._ack = ack
        self.handed.set()

    def fail(self, error: PravegaError) -> None:
        """The writer has not accepted the events."""
        self._error = error
        self.handed.set()


class Acks:
    """Several acknowledgements as one: the base of what both facades return."""

    _acks: Sequence[AsyncAck | Promise]

    def __repr__(self) -> str:
        if self.error is not None:
            return f"<Ack failed: {type(self.error).__name__}>"
        return "<Ack done>" if self.done else "<Ack pending>"

    __reduce__ = not_copied

    @property
    def done(self) -> bool:
        """True once the events are stored or have failed."""
        return all(each.done for each in self._acks)

    @property
    def error(self) -> PravegaError | None:
        """Why the events were not stored, or None."""
        return next((each.error for each in self._acks if each.error is not None), None)


async def wait_for_all(acks: Sequence[AsyncAck | Promise]) -> None:
    """Wait until all are stored; in the client's thread."""
    for each in acks:
        await each.wait()
    if not acks:
        await trio.lowlevel.checkpoint()


def _closed() -> ClosedError:
    return ClosedError("the client was closed before this event was sent")


class Outbox(Generic[A]):
    """Collects single events in the thread that writes them. The client's thread takes many at once.

    :param stream: what is written, for messages.
    :param write: the writer's ``write_events``.
    :param counts: the writer's number of events and of bytes so far, the bytes without headers.
    :param acknowledgement: turns a promise into the acknowledgement that callers get.
    :ivar full: a promise to wait for before the next event, or None as long as there is room.
    """

    def __init__(
        self,
        portal: Portal,
        stream: str,
        write: Callable[[list[bytes], list[str | None]], Awaitable[AsyncAck]],
        counts: Callable[[], tuple[int, int]],
        acknowledgement: Callable[[Promise], A],
    ) -> None:
        self._portal = portal
        self._stream = stream
        self._write = write
        self._counts = counts
        self._acknowledgement = acknowledgement
        self._lock = threading.Lock()
        self._forks = _forks
        self._events: list[bytes] = []
        self._keys: list[str | None] = []
        self._bytes = 0
        self.full: Promise | None = None
        self._promise = Promise(self._hurry)
        self._ack = acknowledgement(self._promise)
        # The events being handed to the writer: their number and bytes, and the writer's counts before them.
        self._given: tuple[int, int, int, int] | None = None
        self._flying: Promise | None = None
        self._scheduled = False
        self._urgent = trio.Event()
        self._turn = trio.Lock()
        self._failure: PravegaError | None = None
        self._reported = False

    # --- in the threads that write --------------------------------------------------------------

    def put(self, event: bytes, key: str | None) -> A | None:
        """Accept an event. If :attr:`full` is set afterwards, the caller waits for it.

        :returns: its acknowledgement. None if the writer has to be called instead, because of the kind of
            event or the state of the client.
        :raises PravegaError: the writer has not accepted earlier events.
        """
        # No calls of functions in Python: each would be a twentieth of what an event costs.
        if self._failure is not None:
            self._check()
        if (
            type(event) is not bytes
            or (size := len(event)) > MAX_EVENT_BYTES
            or not (key is None or isinstance(key, str))
            or self._forks != _forks
            or not self._portal.open
        ):
            return None
        try:
            with self._lock:
                # Nothing is called here, so that no signal's handler finds half of this done.
                self._events += (event,)
                self._keys += (key,)
                self._bytes = held = self._bytes + size + HEADER_BYTES
                ack = self._ack
                if held > _FULL_BYTES:
                    self.full = self._promise
                if self._scheduled:
                    return ack
                self._scheduled = True
            self._portal.soon(self._begin)
        except BaseException:
            # An interrupt, perhaps before the client's thread was told: the next call tells it. It does not
            # matter if it is told twice.
            self._scheduled = False
            raise
        return ack

    def _check(self) -> None:
        if self._failure is not None:
            self._reported = True
            raise self._failure

    def unwritten(self) -> tuple[int, int]:
        """The number of events that the writer has not counted yet, and their bytes without headers."""
        count, size, written, written_bytes = self._sums()
        return count - written, size - written_bytes

    def total(self) -> tuple[int, int]:
        """The number of all events that were put here or written, and their bytes without headers."""
        return self._sums()[:2]

    def _sums(self) -> tuple[int, int, int, int]:
        """The total, and what of it the writer has counted."""
        with self._lock:
            events = len(self._events)
            size = self._bytes - HEADER_BYTES * events
            # Read once: the client's thread counts at the same time.
            count, counted = written, written_bytes = self._counts()
            if self._given is not None:
                given, given_bytes, before, before_bytes = self._given
                count, counted = max(count, before + given), max(counted, before_bytes + given_bytes)
        return count + events, counted + size, written, written_bytes

    def counted(self, metrics: WriterMetrics) -> WriterMetrics:
        """A writer's metrics, including the events that it has not counted yet."""
        events, size = self.unwritten()
        if not events:
            return metrics
        return replace(
            metrics,
            events_written=metrics.events_written + events,
            bytes_written=metrics.bytes_written + size,
            outstanding_bytes=metrics.outstanding_bytes + size + HEADER_BYTES * events,
        )

    def forgo(self) -> None:
        """Keep quiet on leaving about events that the writer does not accept: nobody wants them any more."""
        self._reported = True

    # --- in the client's thread -----------------------------------------------------------------

    def _begin(self) -> None:
        self._portal.start_soon(self._drain)

    async def _drain(self) -> None:
        """Hand events to the writer until no more arrive."""
        try:
            while True:
                async with self._turn:
                    with self._lock:
                        if not self._events:
                            self._scheduled = False
                            return
                    await self._take()
                with trio.move_on_after(_LINGER_SECONDS):
                    await self._urgent.wait()
        except BaseException:
            error = _closed()
            with self._lock:
                if self._events:
                    self._failure = self._failure or error
                self._events, self._keys, self._bytes, self.full = [], [], 0, None
                self._scheduled = False
            self._promise.fail(error)
            raise

    async def _take(self) -> None:
        with self._lock:
            events, keys, promise = self._events, self._keys, self._promise
            size = self._bytes - HEADER_BYTES * len(events)
            self._events, self._keys, self._bytes, self.full = [], [], 0, None
            self._promise = Promise(self._hurry)
            self._ack = self._acknowledgement(self._promise)
            self._given = (len(events), size, *self._counts())
            self._flying = promise
        self._urgent = trio.Event()
        try:
            one_key = keys[0] if keys and keys.count(keys[0]) == len(keys) else keys
            promise.keep(await self._write(events, one_key))  # type: ignore[arg-type]  # one key for all
        except PravegaError as error:
            self._failure = self._failure or error
            promise.fail(error)
        except Exception as error:
            # The keys may be of a class of the user's, which fails. That must not end the client.
            failure = InvalidArgumentError(f"events for the writer of {self._stream} were refused: {error!r}")
            failure.__cause__ = error
            self._failure = self._failure or failure
            promise.fail(failure)
        except BaseException:
            closed = _closed()
            self._failure = self._failure or closed
            promise.fail(closed)
            raise
        finally:
            with self._lock:
                self._given = None
                self._flying = None

    def _hurry(self) -> None:
        self._urgent.set()
        with self._lock:
            if self._scheduled or not self._events:
                return
            # Whoever has put the last event here was interrupted.
            self._scheduled = True
        self._begin()

    async def handed(self, promise: Promise) -> None:
        """Wait until the writer has accepted these events, which means that it has had room for them.

        :raises PravegaError: the writer has not accepted them.
        """
        self._hurry()
        await promise.handed.wait()
        self._check()

    async def settled(self) -> None:
        """Wait until the writer has accepted all events that were put here so far.

        :raises PravegaError: the writer has not accepted them.
        """
        with self._lock:
            promise = self._promise if self._events else self._flying
        if promise is not None:
            await self.handed(promise)
        self._check()

    def after(self, function: Callable[..., Awaitable[R]]) -> Callable[..., Awaitable[R]]:
        """The same function, called after the writer has all events that were put here before."""

        async def ordered(*args: Any, **kwargs: Any) -> R:
            await self.settled()
            return await function(*args, **kwargs)

        return ordered

    def writing(self, function: Callable[..., Awaitable[R]]) -> Callable[..., Awaitable[R]]:
        """The same function, which writes. Events that are put here during the call come after its events."""

        async def ordered(*args: Any, **kwargs: Any) -> R:
            await self.settled()
            async with self._turn:
                return await function(*args, **kwargs)

        return ordered

    def ending(self, function: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        """The same function, which closes the writer in any case."""

        async def ordered(*args: Any, **kwargs: Any) -> None:
            known, failure = self._reported, None
            try:
                await self.settled()
            except PravegaError as error:
                failure = None if known else error
            finally:
                # Called even if this is cancelled. Then it closes without flushing.
                await function(*args, **kwargs)
            if failure is not None:
                raise failure

        return ordered


# --- the counts of both facades' writers ----------------------------------------------------------


class Counting:
    """The counts of a facade's writer: those of the writer in the client's thread, and the outbox's."""

    _twin: Any
    _outbox: Outbox[Any]

    def _counted(self) -> tuple[int, int]:
        """The writer's counts of the events that it was given."""
        return self._twin.events_written, self._twin.bytes_written

    def _metrics(self) -> WriterMetrics:
        return self._outbox.counted(self._twin.metrics())


class RoutedCounting(Counting):
    """The counts of event writers and staging writers."""

    @property
    def _events_written(self) -> int:
        return self._outbox.total()[0]

    @property
    def _bytes_written(self) -> int:
        return self._outbox.total()[1]

    @property
    def _outstanding_bytes(self) -> int:
        events, size = self._outbox.unwritten()
        return HEADER_BYTES * events + size + int(self._twin.outstanding_bytes)


class ResumableCounting(RoutedCounting):
    """The counts of resumable writers."""

    def _counted(self) -> tuple[int, int]:
        # Events that are already stored are not written, but they have numbers.
        return self._twin.next_event_number, self._twin.bytes_written

    @property
    def _events_written(self) -> int:
        return self._outbox.unwritten()[0] + int(self._twin.events_written)

    @property
    def _next_event_number(self) -> int:
        return self._outbox.total()[0]


class TransactionCounting(Counting):
    """The counts of transactions."""

    def _counted(self) -> tuple[int, int]:
        writer = self._twin._writer
        return (0, 0) if writer is None else (writer.events_written, writer.bytes_written)
