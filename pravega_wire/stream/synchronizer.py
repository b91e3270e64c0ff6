"""A state shared by many processes with optimistic concurrency; see :class:`StateSynchronizer`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, NamedTuple, Protocol, Self, TypeVar, cast

import trio

from pravega_wire.errors import (
    ArgumentTypeError,
    CorruptedStateError,
    DataLossError,
    DecodeError,
    EncodeError,
    IncompatibleVersionError,
    InvalidArgumentError,
    PravegaError,
    placed,
)
from pravega_wire.protocol.append import HEADER_BYTES
from pravega_wire.protocol.state_records import InitialRecord, UpdateRecord, decode_state_record
from pravega_wire.serializers import Serializer
from pravega_wire.stream.core import not_shared
from pravega_wire.stream.revisioned import RevisionedStream, RevisionReader, read_news
from pravega_wire.stream.user_functions import CallingThread, calling_thread, in_caller
from pravega_wire.support.checks import check_callable, check_payload, check_serializer, check_several
from pravega_wire.transport.limits import limited, note_progress
from pravega_wire.values.types import Revision

__all__ = ["StateFormat", "StateSynchronizer", "Synchronized"]

S = TypeVar("S")
I = TypeVar("I")  # noqa: E741  # initial
U = TypeVar("U")
V = TypeVar("V")


class Synchronized(Protocol[S, I, U]):
    """Defines how a state is created and updated, and how initial states and updates are serialized.

    States are values: ``create`` and ``apply`` return new ones and have no side effects. Every process that
    shares a state must apply updates in the same way.
    """

    @property
    def initial_serializer(self) -> Serializer[I]:
        """Serializer for initial states."""

    @property
    def update_serializer(self) -> Serializer[U]:
        """Serializer for updates."""

    def create(self, initial: I, revision: Revision) -> S:
        """Return the state that an initial state describes."""

    def apply(self, state: S, update: U, revision: Revision) -> S:
        """Return the state after an update."""


@dataclass(frozen=True)
class StateFormat(Generic[S, U]):
    """The simple :class:`Synchronized`: one function applies updates to a state.

    A state is its own initial state.

    Example::

        from pravega_wire import StateFormat
        from pravega_wire.serializers import JsonSerializer

        add = lambda state, update: state + update
        counter = StateFormat(JsonSerializer(), JsonSerializer(), add)

    :param serializer: serializer for states.
    :param updates: serializer for updates.
    :param step: ``(state, update) -> state``, without side effects.
    :raises ArgumentTypeError: one of them is something else.
    """

    serializer: Serializer[S]
    updates: Serializer[U]
    step: Callable[[S, U], S]

    def __post_init__(self) -> None:
        check_serializer("serializer", self.serializer)
        check_serializer("updates", self.updates)
        check_callable("step", self.step)

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


_TURN_SECONDS: Final = 5.0

_Known = tuple[S | None, Revision | None]
"""A state, and the revision up to which it includes everything."""


class _Update(NamedTuple, Generic[S, U]):
    """Updates for exactly one state.

    :ivar updates: as every process will read them.
    :ivar payload: their record.
    :ivar after: what they make of the state; None if they were not tried.
    """

    updates: Sequence[U]
    payload: bytes
    after: tuple[S, Revision] | None


class StateSynchronizer(Generic[S, I, U]):
    """A state shared by all processes that have a synchronizer on the same stream.

    Made by :meth:`PravegaClient.state_synchronizer`. Each update is appended to a stream of one segment on
    condition that its writer had seen all earlier ones, so all processes apply the same updates in the same
    order. The format and the algorithm are those of the Java class of the same name.

    Several callers may share an object; each record is applied once. Once it is closed, every method raises
    :class:`ClosedError`, also calls that are waiting at that time.

    Example::

        from pravega_wire import StateFormat
        from pravega_wire.serializers import JsonSerializer

        add = lambda state, update: state + update
        counter = StateFormat(JsonSerializer(), JsonSerializer(), add)
        async with client.state_synchronizer("demo/counter", counter) as synchronizer:
            await synchronizer.initialize(0)
            print(await synchronizer.update(lambda state: [1]))
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
        self._core = revisioned._core
        self._format = format
        self._run = run
        # The functions of a user may fail. Updates that are stored, and that they fail for, could not be
        # undone: nobody could read the state again.
        self._tries = run is in_caller
        # A state may be None: the next two tell whether there is one.
        self._state: S | None = None
        # None although there is a state: truncation has passed its revision, and the next initial state has
        # to be found.
        self._revision: Revision | None = None
        self._former: Revision | None = None
        self._reading = trio.Lock()
        self._writing = trio.Lock()
        # Numbers of the last fetch that was begun, and of the last one that is done.
        self._begun = self._done = 0
        self._reading_for: CallingThread | None = None
        # A dict, because the order of a set of objects would be that of their addresses.
        self._readers: dict[RevisionReader[bytes], None] = {}

    __reduce__ = not_shared

    def __repr__(self) -> str:
        state = "closed" if self._log._waiters.closed else "open"
        at = "not initialized" if self.revision is None else f"at offset {self.revision.offset}"
        return f"<StateSynchronizer on {self.stream}, {state}, {at}>"

    @property
    def state(self) -> S | None:
        """The state as of the last fetch or update; None before it was initialized.

        If the states of a format may be None themselves, :attr:`revision` tells whether there is one.
        """
        return self._state

    @property
    def revision(self) -> Revision | None:
        """The revision up to which :attr:`state` includes everything; None before it was initialized."""
        return self._former if self._revision is None else self._revision

    # --- reading --------------------------------------------------------------------------------

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Keep other tasks from reading."""
        thread = calling_thread.get()
        if thread is not None and self._reading_for is not None and thread.is_within(self._reading_for):
            # The call would wait for itself.
            raise InvalidArgumentError(
                f"a function of the state on {self.stream} must not use the synchronizer that called it"
            )
        async with self._reading:
            self._reading_for = thread
            try:
                yield
            finally:
                self._reading_for = None

    @limited("fetching the state of {self.stream}")
    async def fetch_updates(self) -> S | None:
        """Apply the updates of other processes. Returns the state, or None if it was never initialized.

        :raises CorruptedStateError: the stream contains something other than a state's records, or ends
            before what was read of it.
        """
        await self._fetch()
        return self._state

    async def _fetch(self) -> bool:
        """Apply the updates of other processes. Returns whether the state was ever initialized."""
        begun = self._begun
        async with self._alone():
            if self._done > begun:
                # Another caller has begun after this call, and has fetched everything.
                return self.revision is not None
            self._begun = number = self._begun + 1
            while True:
                start = self._revision
                if start is None:
                    start = await self._beginning()
                try:
                    reader = await self._reader(start)
                    self._readers[reader] = None
                    try:
                        while batch := await reader.next_values():
                            await self._take(batch)
                            # The time limit applies to each batch, because there may be any number of them.
                            note_progress()
                    finally:
                        self._readers.pop(reader, None)
                        await reader.aclose()
                except DataLossError:
                    # Another process compacted the state and truncated records that were not read here. So
                    # the stream has a newer initial state. The known state stays until that is found.
                    self._former, self._revision = self.revision, None
                    continue
                if self._revision is None and self._former is not None:
                    raise CorruptedStateError(
                        f"stream {self.stream} was truncated and contains no initial state",
                        scope=self.stream.scope,
                        stream=self.stream.name,
                    )
                self._done = number
                return self.revision is not None

    async def _reader(self, start: Revision) -> RevisionReader[bytes]:
        try:
            return await self._log.read_from(start)
        except InvalidArgumentError as error:
            # What is in the stream now does not continue the known state.
            raise CorruptedStateError(
                f"stream {self.stream} ends before offset {start.offset}, up to which its state was read: it "
                "has lost data, or was deleted and created again",
                scope=self.stream.scope,
                stream=self.stream.name,
            ) from error

    async def wait_for_updates(self) -> S | None:
        """Wait until there are records newer than the known state, and fetch them. Returns the state.

        The store holds the request until something is written, so there is no polling delay.

        :raises ClosedError: this object was closed before or during this call.
        """
        known = self._revision
        if known is None:
            # Fetched first, so that everything written from now on is beyond it.
            known = await self._log.latest_revision()
            await self.fetch_updates()
            if self.revision is not None:
                return self._state
        await self._log.wait_beyond(known)
        return await self.fetch_updates()

    async def _beginning(self) -> Revision:
        """The revision to start reading from without any prior state."""
        mark = await self._log.mark()
        oldest = await self._log.oldest_revision()
        # A truncation outside a compaction may have passed the mark.
        return oldest if mark is None or mark < oldest else mark

    async def _take(self, records: Sequence[tuple[Revision, bytes]]) -> None:
        """Apply these records to the state."""

        failures: list[Exception] = []

        def after(known: _Known[S]) -> _Known[S]:
            failures.clear()
            for revision, payload in records:
                try:
                    known = self._after_record(known, payload, revision)
                except (DecodeError, IncompatibleVersionError, CorruptedStateError) as error:
                    failures.append(self._corrupted(error, revision))
                    break
                except Exception as error:
                    failures.append(error)
                    break
            return known

        # The records before one that fails are applied.
        await self._advance(after)
        if failures:
            raise failures[0]

    def _corrupted(self, error: PravegaError, revision: Revision) -> CorruptedStateError:
        """The error for a record that no program should have written, which says where it is."""
        where = f"stream {self.stream}, record before offset {revision.offset}"
        scope, stream = self.stream.scope, self.stream.name
        if isinstance(error, CorruptedStateError):
            placed(error, where, scope=scope, stream=stream)
            return error
        found = CorruptedStateError(f"{where}: {error.message}", scope=scope, stream=stream)
        found.__cause__ = error
        return found

    async def _advance(self, step: Callable[[_Known[S]], _Known[S]]) -> None:
        """Change the state by a function of it, which runs where the user's functions run."""
        while True:
            known = self._state, self._revision
            state, revision = await self._run(step, known)
            # If another thread's call changed the state first, repeat the step with that state.
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
        """Apply those updates of a record that the state does not include yet."""
        return known if known[1] is None else self._applied(cast(S, known[0]), known[1], updates, revision)

    def _applied(
        self, state: S, last: Revision, updates: Sequence[U], revision: Revision
    ) -> tuple[S, Revision]:
        for index, update in enumerate(updates):
            each = Revision(revision.segment, revision.offset, index)
            if last < each:
                state, last = self._format.apply(state, update, each), each
        # A record without updates also advances the revision: the next write is conditional on it.
        return state, revision if last < revision else last

    # --- writing --------------------------------------------------------------------------------

    @limited("initializing the state of {self.stream}")
    async def initialize(self, initial: I) -> bool:
        """Write the first state. Returns False, with the state fetched, if it was already initialized.

        :raises CorruptedStateError: the stream contains updates without an initial state.
        :raises EncodeError: the serializer cannot read the initial state that it has written.
        """
        if await self._fetch():
            return False
        payload = await self._run(self._initial, initial)
        start = await self._log.oldest_revision()
        revision = await self._log.write_conditionally(start, payload)
        if revision is None:
            # The store rejects an append that lost the race before the winning value can be read: wait.
            await self._log.wait_beyond(start)
            if not await self._fetch():
                raise CorruptedStateError(
                    f"stream {self.stream} contains records but no initial state",
                    scope=self.stream.scope,
                    stream=self.stream.name,
                )
            return False

        await self._advance(partial(self._after_record, payload=payload, revision=revision))
        return True

    async def _current(self) -> tuple[S, Revision]:
        """The state, and the revision that a write for exactly this state is conditional on.

        They are taken together: while a function of the user runs in its own thread, a call from another
        thread may change both.
        """
        while self._revision is None:
            if not await self._fetch():
                raise InvalidArgumentError(
                    f"the state on {self.stream} has not been initialized: call initialize() first"
                )
        return cast(S, self._state), Revision(self._revision.segment, self._revision.offset, 0)

    @limited("updating the state of {self.stream}")
    async def update(self, generate: Callable[[S], Iterable[U] | None]) -> S:
        """Change the state with updates that were generated for exactly the current state.

        :param generate: returns the updates for a state, or None or no updates if there is nothing to
            do. It is called again with the newer state whenever another process was faster, so it must have
            no side effects.
        :returns: the state after the updates.
        :raises InvalidArgumentError: the state was never initialized.
        :raises EncodeError: the serializer cannot read an update that it has written. Nothing is written.
        :raises Exception: what ``generate`` raises, or the format when it applies the updates. Nothing is
            written.
        :raises RetriesExhaustedError: there was no answer. The updates may be written, or may still be after
            the next fetch. Call this again with a ``generate`` that finds in the state whether they are
            there.
        :raises ArgumentTypeError: ``generate`` is not a function.
        """
        check_callable(f"state on {self.stream}: generate", generate)
        has_turn = False
        try:
            while True:
                state, known = await self._current()
                made = await self._run(self._generated, generate, state, known)
                if not made.updates:
                    return state
                written = await self._write(made.payload, known)
                if written is not None:
                    await self._advance(
                        partial(self._after_own, known=(state, known), made=made, written=written)
                    )
                    state, _ = await self._current()
                    return state
                has_turn = has_turn or await self._take_turn()
        finally:
            if has_turn:
                self._log._turn.release()

    async def _take_turn(self) -> bool:
        """Wait for those of this client that lost as well; of hundreds at once, all but one would lose again.

        It is only polite, so nobody waits long: a function of the user may wait for another update.
        """
        with trio.move_on_after(_TURN_SECONDS):
            await self._log._turn.acquire()
            return True
        return False

    def _generated(
        self, generate: Callable[[S], Iterable[U] | None], state: S, known: Revision
    ) -> _Update[S, U]:
        updates, payload = self._record(generate(state))
        if not updates or not self._tries:
            return _Update(updates, payload, None)
        revision = Revision(known.segment, known.offset + HEADER_BYTES + len(payload), 0)
        return _Update(updates, payload, self._applied(state, known, updates, revision))

    def _after_own(
        self, now: _Known[S], *, known: tuple[S, Revision], made: _Update[S, U], written: Revision
    ) -> _Known[S]:
        """Apply updates that were written for a known state, unless another task's call has applied them."""
        unchanged = now[1] is not None and now[0] is known[0] and now[1].offset == known[1].offset
        if unchanged and made.after is not None and made.after[1].offset == written.offset:
            return made.after
        return self._after_updates(now, made.updates, written)

    def _record(self, given: Iterable[U] | None) -> tuple[Sequence[U], bytes]:
        """The updates as everybody will read them, and their record; none and no bytes if there are none."""
        if given is None:
            return (), b""
        try:
            check_several("updates", given)
            if isinstance(given, Mapping):
                # Its keys are never meant.
                raise ArgumentTypeError(
                    f"updates must be a list or another iterable, not {type(given).__name__}: "
                    "put a single one into a list"
                )
        except ArgumentTypeError as error:
            raise ArgumentTypeError(
                f"state on {self.stream}: {error.message}", scope=self.stream.scope, stream=self.stream.name
            ) from None
        # They are serialized and applied, and a generator returns them only once.
        updates: Sequence[U] = tuple(given)
        if not updates:
            return (), b""
        serializer = self._format.update_serializer
        what = f"state on {self.stream}: an update"
        data = [check_payload(what, serializer.serialize(update)) for update in updates]
        if self._tries:
            updates = [self._read_back(what, serializer, each) for each in data]
        return updates, UpdateRecord(data).encode()

    def _read_back(self, what: str, serializer: Serializer[V], data: bytes) -> V:
        """Read what is about to be written, as everybody will have to."""
        try:
            return serializer.deserialize(data)
        except DecodeError as error:
            raise EncodeError(f"{what} cannot be read back by its serializer: {error.message}") from error

    async def _write(self, payload: bytes, known: Revision) -> Revision | None:
        """Append on condition of this revision. If there are newer records, read them and return None."""
        revision = None
        async with self._writing:
            # Another caller may have written in the meantime.
            if self._revision is not None and self._revision.offset == known.offset:
                revision = await self._log.write_conditionally(known, payload)
        if revision is None:
            await self._catch_up(known)
        return revision

    async def _catch_up(self, known: Revision) -> None:
        """Read the records after ``known`` that another process has just written."""
        async with self._alone():
            if self._revision is not None and self._revision.offset > known.offset:
                # Another task has already read them.
                return
            news = await read_news(self._log, known) if self._revision is not None else None
            if news:
                await self._take(news)
        if news is None:
            await self.fetch_updates()

    @limited("updating the state of {self.stream}")
    async def update_unconditionally(self, updates: Iterable[U]) -> None:
        """Write updates that are valid for any state. They are visible after the next fetch.

        The format has to be able to apply them to any state: if it raises an exception, no process can read
        the state any more.

        :raises InvalidArgumentError: the state was never initialized.
        :raises EncodeError: the serializer cannot read an update that it has written.
        """
        _, payload = await self._run(self._record, updates)
        if payload:
            await self._current()
            async with self._writing:
                await self._log.write_unconditionally(payload)

    @limited("compacting the state of {self.stream}")
    async def compact(self, summarize: Callable[[S], I | None]) -> None:
        """Write the state as a new initial state, and delete the records that are no longer needed.

        Only records before the *previous* initial state are truncated, so that a process that is about to
        read from there still can.

        :param summarize: returns the initial state that describes this state, or None to change nothing. It
            is called again if another process writes in between.
        :raises InvalidArgumentError: the state was never initialized.
        :raises EncodeError: the serializer cannot read the initial state that it has written.
        :raises ArgumentTypeError: ``summarize`` is not a function.
        """
        check_callable(f"state on {self.stream}: summarize", summarize)
        while True:
            state, start = await self._current()
            payload = await self._run(self._summarized, summarize, state)
            if payload is None:
                return
            written = await self._write(payload, start)
            if written is not None:
                # The state is the same; only the revision to continue from has changed.
                if self._revision is not None and self._revision < written:
                    self._revision = written
                break
        before = await self._log.mark()
        if before is not None and start <= before:
            return
        if await self._log.compare_and_set_mark(before, start) and before is not None:
            await self._log.truncate_to(before)

    def _summarized(self, summarize: Callable[[S], I | None], state: S) -> bytes | None:
        initial = summarize(state)
        return None if initial is None else self._initial(initial)

    def _initial(self, initial: I) -> bytes:
        """The record of an initial state."""
        what = f"state on {self.stream}: an initial state"
        data = check_payload(what, self._format.initial_serializer.serialize(initial))
        if self._tries:
            self._read_back(what, self._format.initial_serializer, data)
        return InitialRecord(data).encode()

    @limited("fetching the length of {self.stream}")
    async def bytes_since_compaction(self) -> int:
        """Return the number of bytes that a process has to read if it joins now."""
        begin = await self._beginning()
        return (await self._log.latest_revision()).offset - begin.offset

    async def aclose(self) -> None:
        """Release the connection. Tasks that wait in a call get :class:`ClosedError`."""
        await self._log.aclose()
        for reader in list(self._readers):
            await reader.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await self.aclose()
