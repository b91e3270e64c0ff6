"""State that many processes share by optimistic concurrency: see :class:`StateSynchronizer`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, Self, TypeVar

import trio

from pravega_wire.errors import CorruptedStateError, DataLossError, DecodeError, InvalidArgumentError
from pravega_wire.protocol.state_records import InitialRecord, UpdateRecord, decode_state_record
from pravega_wire.serializers import Serializer
from pravega_wire.stream.callers import CallingThread, calling_thread, in_caller
from pravega_wire.stream.revisioned import RevisionedStream, RevisionReader
from pravega_wire.transport.limits import limited, note_progress
from pravega_wire.types import Revision

__all__ = ["StateFormat", "StateSynchronizer", "Synchronized"]

S = TypeVar("S")
I = TypeVar("I")  # noqa: E741  # initial
U = TypeVar("U")


class Synchronized(Protocol[S, I, U]):
    """How a state is made and changed, and how the changes are written.

    States are values: ``create`` and ``apply`` return new ones and have no side effects. Every process that
    shares a state must apply an update in the same way.
    """

    @property
    def initial_serializer(self) -> Serializer[I]:
        """Of initial states."""

    @property
    def update_serializer(self) -> Serializer[U]:
        """Of updates."""

    def create(self, initial: I, revision: Revision) -> S:
        """The state that an initial state describes."""

    def apply(self, state: S, update: U, revision: Revision) -> S:
        """The state after an update."""


@dataclass(frozen=True, slots=True)
class StateFormat(Generic[S, U]):
    """The simple way: a state is its own initial state, and one function applies updates.

    :param serializer: of states.
    :param updates: serializer of updates.
    :param step: ``(state, update) -> state``, without side effects.
    """

    serializer: Serializer[S]
    updates: Serializer[U]
    step: Callable[[S, U], S]

    @property
    def initial_serializer(self) -> Serializer[S]:
        """See :class:`Synchronized`."""
        return self.serializer

    @property
    def update_serializer(self) -> Serializer[U]:
        """See :class:`Synchronized`."""
        return self.updates

    def create(self, initial: S, revision: Revision) -> S:
        """See :class:`Synchronized`."""
        return initial

    def apply(self, state: S, update: U, revision: Revision) -> S:
        """See :class:`Synchronized`."""
        return self.step(state, update)


_Known = tuple[S | None, Revision | None]
"""A state, and up to where it has everything."""


class StateSynchronizer(Generic[S, I, U]):
    """A state, known to every process that has a synchronizer on the same stream.

    Updates are appended to a stream of one segment on condition that the writer had seen all earlier ones,
    so all processes apply the same updates in the same order. Made by
    :meth:`PravegaClient.state_synchronizer`; the same format and algorithm as the Java class of that name.

    Several tasks may use one: each record is applied once, whoever reads it first. Once it is closed every
    method raises :class:`ClosedError`, also in tasks that are waiting at that time.
    """

    def __init__(
        self,
        revisioned: RevisionedStream[bytes],
        format: Synchronized[S, I, U],
        *,
        run: Callable[..., Awaitable[Any]] = in_caller,
    ) -> None:
        self.stream = revisioned.stream
        self._log = revisioned
        self._format = format
        self._run = run
        self._state: S | None = None
        # None with a state known: truncation has passed the place, and the next initial state is looked for.
        self._revision: Revision | None = None
        self._reading = trio.Lock()
        self._reading_for: CallingThread | None = None
        self._readers: set[RevisionReader[bytes]] = set()

    def __repr__(self) -> str:
        state = "closed" if self._log._waiters.closed else "open"
        at = "not initialized" if self._revision is None else f"at offset {self._revision.offset}"
        return f"<StateSynchronizer on {self.stream}, {state}, {at}>"

    @property
    def _operation_timeout(self) -> float:
        return self._log._operation_timeout

    @property
    def state(self) -> S | None:
        """The state as of the last fetch or update; None before anybody has initialized it."""
        return self._state

    @property
    def revision(self) -> Revision | None:
        """Up to where :attr:`state` has everything."""
        return self._revision

    # --- reading --------------------------------------------------------------------------------

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """While no other task reads."""
        thread = calling_thread.get()
        if thread is not None and self._reading_for is not None and thread.is_within(self._reading_for):
            # It would wait for itself.
            raise InvalidArgumentError(
                f"a function of the state on {self.stream} uses the synchronizer that it is called by"
            )
        async with self._reading:
            self._reading_for = thread
            try:
                yield
            finally:
                self._reading_for = None

    @limited("fetching the state of {self.stream}")
    async def fetch_updates(self) -> S | None:
        """Apply what others wrote; returns the state, None when nobody has initialized it.

        :raises CorruptedStateError: the stream holds something else than a state's records.
        """
        async with self._alone():
            while True:
                start = self._revision
                if start is None or self._state is None:
                    start = await self._beginning()
                try:
                    reader = await self._log.read_from(start)
                    self._readers.add(reader)
                    try:
                        while batch := await reader.next_values():
                            await self._take(batch)
                            # There may be any number of them.
                            note_progress()
                    finally:
                        self._readers.discard(reader)
                        await reader.aclose()
                except DataLossError:
                    # Somebody compacted and cut off what this one has not read: a newer initial state is
                    # there. What is known meanwhile stays until it is found.
                    self._revision = None
                    continue
                if self._state is not None and self._revision is None:
                    raise CorruptedStateError(
                        f"stream {self.stream} was truncated, and no initial state is left in it",
                        scope=self.stream.scope,
                        stream=self.stream.name,
                    )
                return self._state

    async def wait_for_updates(self) -> S | None:
        """Wait until there is more than was fetched, and fetch it; returns the state.

        The store holds the question until something is written, so it comes at once.

        :raises ClosedError: this object is closed, or was closed meanwhile.
        """
        known = self._revision
        if known is None:
            # Asked for first: what is written from now on is beyond it.
            known = await self._log.fetch_latest_revision()
            if await self.fetch_updates() is not None:
                return self._state
        await self._log.wait_beyond(known)
        return await self.fetch_updates()

    async def _beginning(self) -> Revision:
        """Where one who knows nothing starts to read."""
        mark = await self._log.get_mark()
        oldest = await self._log.fetch_oldest_revision()
        # Truncation that was not a compaction's may have passed the mark.
        return oldest if mark is None or mark < oldest else mark

    async def _take(self, records: Sequence[tuple[Revision, bytes]]) -> None:
        """Make the state what it is after these records as well."""

        failures: list[Exception] = []

        def after(known: _Known[S]) -> _Known[S]:
            failures.clear()
            for revision, payload in records:
                try:
                    known = self._after_record(known, payload, revision)
                except DecodeError as error:
                    failures.append(
                        CorruptedStateError(
                            f"stream {self.stream}, record before offset {revision.offset}: {error.message}",
                            scope=self.stream.scope,
                            stream=self.stream.name,
                        )
                    )
                    failures[0].__cause__ = error
                    break
                except Exception as error:
                    failures.append(error)
                    break
            return known

        # What comes before a record that fails counts.
        await self._advance(after)
        if failures:
            raise failures[0]

    async def _advance(self, step: Callable[[_Known[S]], _Known[S]]) -> None:
        """Change the state by a function of it, which runs where functions of the user do."""
        while True:
            known = self._state, self._revision
            state, revision = await self._run(step, known)
            # Another thread's call may have been faster. Then from what that has made of it.
            if self._state is known[0] and self._revision is known[1]:
                self._state, self._revision = state, revision
                return

    def _after_record(self, known: _Known[S], payload: bytes, revision: Revision) -> _Known[S]:
        record = decode_state_record(payload)
        if isinstance(record, InitialRecord):
            if known[1] is None or known[1] < revision:
                initial = self._format.initial_serializer.deserialize(record.data)
                return self._format.create(initial, revision), revision
        elif known[1] is not None:
            updates = [self._format.update_serializer.deserialize(data) for data in record.updates]
            return self._after_updates(known, updates, revision)
        return known

    def _after_updates(self, known: _Known[S], updates: Sequence[U], revision: Revision) -> _Known[S]:
        """Apply those of a record's updates that the state does not have yet."""
        state, last = known
        if state is None or last is None:
            return known
        for index, update in enumerate(updates):
            each = Revision(revision.segment, revision.offset, index)
            if last < each:
                state, last = self._format.apply(state, update, each), each
        # A record without updates moves the state on as well: the next write comes after it.
        return state, revision if last < revision else last

    # --- writing --------------------------------------------------------------------------------

    @limited("initializing the state of {self.stream}")
    async def initialize(self, initial: I) -> bool:
        """Write the first state; False, with the state fetched, when somebody has done that before.

        :raises CorruptedStateError: the stream holds updates, and no state that they are for.
        """
        if await self.fetch_updates() is not None:
            return False
        record = InitialRecord(await self._run(self._format.initial_serializer.serialize, initial))
        start = await self._log.fetch_oldest_revision()
        revision = await self._log.write_conditionally(start, record.encode())
        if revision is None:
            # The store refuses what came too late before the faster value can be read: this waits for it.
            await self._log.wait_beyond(start)
            if await self.fetch_updates() is None:
                raise CorruptedStateError(
                    f"stream {self.stream} holds records and no initial state",
                    scope=self.stream.scope,
                    stream=self.stream.name,
                )
            return False

        def created(known: _Known[S]) -> _Known[S]:
            if known[1] is None or known[1] < revision:
                return self._format.create(initial, revision), revision
            return known

        await self._advance(created)
        return True

    async def _current(self) -> tuple[S, Revision]:
        """The state, and the revision that a write for exactly this state is conditional on.

        They belong together: while a function of the user runs in its own thread, another thread's call may
        move both on.
        """
        while self._state is None or self._revision is None:
            if await self.fetch_updates() is None:
                raise InvalidArgumentError(f"the state on {self.stream} has not been initialized")
        return self._state, Revision(self._revision.segment, self._revision.offset, 0)

    @limited("updating the state of {self.stream}")
    async def update(self, generate: Callable[[S], Sequence[U] | None]) -> S:
        """Change the state by updates that were made for exactly this state.

        :param generate: gives the updates for a state, or nothing (None, empty) when there is nothing to do.
            Called again with the newer state whenever somebody else was faster, so it has no side effects.
        :returns: the state after the updates.
        :raises InvalidArgumentError: nobody has initialized the state.
        :raises RetriesExhaustedError: no answer; whether the updates are written shows the next fetch.
        """
        while True:
            state, known = await self._current()
            updates, payload = await self._run(self._generated, generate, state)
            if not updates:
                return state
            written = await self._write(payload, known)
            if written is not None:
                await self._advance(partial(self._after_updates, updates=updates, revision=written))
                state, _ = await self._current()
                return state

    def _generated(
        self, generate: Callable[[S], Sequence[U] | None], state: S
    ) -> tuple[Sequence[U] | None, bytes]:
        updates = generate(state)
        return updates, self._record(updates) if updates else b""

    def _record(self, updates: Sequence[U]) -> bytes:
        serializer = self._format.update_serializer
        return UpdateRecord([serializer.serialize(update) for update in updates]).encode()

    async def _write(self, payload: bytes, known: Revision) -> Revision | None:
        """Append to exactly this revision's state; None, with newer records read, when there are some."""
        revision = await self._log.write_conditionally(known, payload)
        if revision is None:
            await self._catch_up(known)
        return revision

    async def _catch_up(self, known: Revision) -> None:
        """Read what somebody else has written, or is about to have written, after ``known``."""
        async with self._alone():
            if self._revision is not None and self._revision.offset > known.offset:
                # Another task has read it meanwhile.
                return
            news = await self._log.read_news(known) if self._revision is not None else None
            if news:
                await self._take(news)
        if news is None:
            await self.fetch_updates()

    @limited("updating the state of {self.stream}")
    async def update_unconditionally(self, updates: Sequence[U]) -> None:
        """Write updates that are right for any state; they show with the next fetch."""
        if updates:
            await self._log.write_unconditionally(await self._run(self._record, updates))

    @limited("compacting the state of {self.stream}")
    async def compact(self, summarize: Callable[[S], I | None]) -> None:
        """Write the state as a new beginning, and drop what nobody needs any more.

        What is before the *previous* beginning is truncated, so that a process that is about to read
        from there is not cut off.

        :param summarize: the initial state that makes this state, or None to leave things as they are; called
            again when others write meanwhile.
        :raises InvalidArgumentError: nobody has initialized the state.
        """
        while True:
            state, start = await self._current()
            payload = await self._run(self._summarized, summarize, state)
            if payload is None:
                return
            written = await self._write(payload, start)
            if written is not None:
                # The state itself is the same: only the place to read on from has moved.
                if self._revision is not None and self._revision < written:
                    self._revision = written
                break
        before = await self._log.get_mark()
        if before is not None and start <= before:
            return
        if await self._log.compare_and_set_mark(before, start) and before is not None:
            await self._log.truncate_to(before)

    def _summarized(self, summarize: Callable[[S], I | None], state: S) -> bytes | None:
        initial = summarize(state)
        if initial is None:
            return None
        return InitialRecord(self._format.initial_serializer.serialize(initial)).encode()

    @limited("asking for the length of {self.stream}")
    async def bytes_since_compaction(self) -> int:
        """Bytes a process that joins now has to read."""
        begin = await self._beginning()
        return (await self._log.fetch_latest_revision()).offset - begin.offset

    async def aclose(self) -> None:
        """Give the connection back; tasks that wait in a call get :class:`ClosedError`."""
        await self._log.aclose()
        for reader in list(self._readers):
            await reader.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await self.aclose()
