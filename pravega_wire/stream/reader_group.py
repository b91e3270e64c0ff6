"""Reader groups; see :class:`ReaderGroup`."""

from __future__ import annotations

import logging
import math
from base64 import b64encode
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple, Self, TypeVar, overload
from uuid import UUID

import trio

from pravega_wire.controller.refusals import no_scope, no_stream
from pravega_wire.errors import (
    CheckpointError,
    CheckpointTimeoutError,
    ControllerError,
    CorruptedStateError,
    InvalidArgumentError,
    InvalidStreamCutError,
    NoSuchSegmentError,
    NotFoundError,
    PravegaError,
    ReaderGroupError,
    ReaderGroupNotFoundError,
    SealedStateError,
    StreamNotFoundError,
)
from pravega_wire.protocol.group_algorithm import (
    Change,
    Generate,
    cancel_checkpoints,
    cuts_of,
    remove_reader,
    withdraw_checkpoint,
)
from pravega_wire.protocol.group_state import (
    SILENT,
    ClearCheckpointsBefore,
    CreateCheckpoint,
    GroupInit,
    GroupState,
    GroupStateFormat,
    GroupUpdate,
    UpdatingConfig,
)
from pravega_wire.protocol.state_records import UpdateRecord
from pravega_wire.segment.handles import Waiters
from pravega_wire.segment.store import Backoff
from pravega_wire.serializers import BytesSerializer, Serializer
from pravega_wire.stream import batch
from pravega_wire.stream.core import ClientCore, not_shared
from pravega_wire.stream.event_reader import DEFAULT_BUFFERED_BYTES, EventReader
from pravega_wire.stream.group_link import (
    GroupLink,
    group_name,
    hold,
    initial_state,
    release,
    state_stream,
)
from pravega_wire.stream.revisioned import RevisionedStream
from pravega_wire.stream.synchronizer import StateSynchronizer
from pravega_wire.stream.user_functions import in_place
from pravega_wire.support.checks import check_seconds, check_text, check_type, shown
from pravega_wire.support.environment import environment
from pravega_wire.support.nurseries import lone_errors
from pravega_wire.transport.limits import AFTER_CANCELLATION, is_hurried, limited
from pravega_wire.values.cuts import OnTruncated
from pravega_wire.values.groups import (
    Cuts,
    OnlineReader,
    OnlineReaders,
    OutstandingCheckpoint,
    ReaderGroupConfig,
    ReaderGroupMetrics,
    RetentionType,
    TimeWindow,
    listed,
)
from pravega_wire.values.groups import cuts_of as given_cuts
from pravega_wire.values.naming import validate_user_name
from pravega_wire.values.positions import Checkpoint, Position
from pravega_wire.values.types import ScopedStream, StreamCut

__all__ = ["ReaderGroup"]

T = TypeVar("T")

log = logging.getLogger(__name__)

_WITHDRAW_SECONDS: Final = 10.0
"""How long a checkpoint that has failed or timed out is tried to be withdrawn."""
_UNDO_SECONDS: Final = 2.0
_FINISH_SECONDS: Final = 5.0
"""After which a group without a state counts as left by a process that has died."""

_STATE_GONE: Final = (StreamNotFoundError, NoSuchSegmentError, SealedStateError)
"""Errors of a state's stream that does not exist or is being deleted."""


class _Withdrawn(NamedTuple):
    """The result of withdrawing a checkpoint.

    :ivar sure: whether the checkpoint is known to be no longer outstanding.
    :ivar waiting_for: the readers that had not answered.
    """

    sure: bool
    waiting_for: tuple[OnlineReader, ...]


async def create(core: ClientCore, group: ScopedStream, config: ReaderGroupConfig) -> bool:
    """See :meth:`PravegaClient.create_reader_group`."""
    group_name(group)
    backoff = Backoff(longest=0.5)
    while True:
        stored = await _registered(core, group)
        if stored is None or stored == config:
            if stored is not None and (stored.generation > 0 or await _has_state(core, group)):
                return False
            created = await _begin(core, group, config)
            if created is not None:
                return created
        elif stored.generation > 0 or await _has_state(core, group, _FINISH_SECONDS):
            raise ReaderGroupError(
                f"reader group {group} already exists with another configuration: "
                f"{_differences(stored, config)}"
            )
        else:
            # Whoever has begun to create it has died.
            await _withdraw(core, group, {stored.group_id})
        await backoff.wait()


async def _registered(core: ClientCore, group: ScopedStream) -> ReaderGroupConfig | None:
    try:
        return await core.controller.get_reader_group_config(group.scope, group.name)
    except ReaderGroupNotFoundError:
        return None


def _state_of(log: RevisionedStream[bytes]) -> StateSynchronizer[GroupState, GroupInit, GroupUpdate]:
    return StateSynchronizer(log, GroupStateFormat(), run=in_place)


async def _has_state(core: ClientCore, group: ScopedStream, patience: float = 0.0) -> bool:
    """Whether a group has a state.

    :param patience: seconds to wait for it.
    """
    try:
        async with _state_of(await _open_state(core, group)) as synchronizer:
            with trio.move_on_after(patience):
                while patience and await synchronizer.wait_for_updates() is None:
                    pass
            return await synchronizer.fetch_updates() is not None
    except _STATE_GONE:
        return False


async def _open_state(core: ClientCore, group: ScopedStream) -> RevisionedStream[bytes]:
    return await RevisionedStream.open(core, state_stream(group), BytesSerializer())


async def _begin(core: ClientCore, group: ScopedStream, config: ReaderGroupConfig) -> bool | None:
    """Register a group and write its state. On failure, undo it.

    :returns: whether this call wrote the state; None if another process stands in the way, so that the caller
        has to look again.
    """
    # First of all, because it fails if a stream does not exist.
    initial = await _first_state(core, group, config)
    # One for each attempt.
    ids: set[UUID] = set()

    def new_id() -> UUID:
        made = environment().new_id()
        ids.add(made)
        return made

    proposed = config.with_identity(0, UUID(int=0))
    register = partial(core.controller.create_reader_group, group.scope, group.name, proposed, new_id)
    answered = False
    try:
        stored = await register()
        answered = True
        if stored != config or stored.generation > 0:
            return None
        initial = replace(initial, config=stored)
        # Before there are readers, which release more.
        await hold(core, group, initial)
        try:
            async with _state_of(await _open_state(core, group)) as synchronizer:
                # If another process registered the group first, it writes a state with this configuration.
                return await synchronizer.initialize(initial)
        except (CorruptedStateError, *_STATE_GONE):
            # Another process withdraws the group, or had begun to.
            await _withdraw(core, group, {stored.group_id})
            return None
    except BaseException:
        with trio.move_on_after(_UNDO_SECONDS, shield=True):
            try:
                if not answered:
                    # The controller may register the group later than it is looked for. Once a repetition is
                    # answered, it has.
                    await register()
                await _withdraw(core, group, ids)
            except PravegaError as error:
                log.info("reader group %s was left without a state: %s", group, error)
        raise


async def _first_state(core: ClientCore, group: ScopedStream, config: ReaderGroupConfig) -> GroupInit:
    """The state of a group that is to be created.

    :raises ScopeNotFoundError: the group's scope does not exist.
    :raises StreamNotFoundError: one of the streams does not exist.
    """
    try:
        for stream, cut in config.starts.items():
            if cut is not None and not await core.controller.check_stream_exists(stream.scope, stream.name):
                raise no_stream("checkStreamExists", stream.scope, stream.name)
        return await initial_state(core, config)
    except StreamNotFoundError:
        if not await core.controller.check_scope_exists(group.scope):
            raise no_scope("createReaderGroup", group.scope) from None
        raise


async def _withdraw(core: ClientCore, group: ScopedStream, ids: Collection[UUID]) -> None:
    """Delete a group that has no state, in such a way that it can get none meanwhile.

    Does nothing if the group has a state, or none of these ids: then it is that of another process.
    """
    with suppress(*_STATE_GONE):
        # Opened before the id is compared: it is the stream of this group, or is deleted by now.
        records = await _open_state(core, group)
        async with _state_of(records) as synchronizer:
            stored = await _registered(core, group)
            if stored is None or stored.group_id not in ids or await synchronizer.fetch_updates() is not None:
                return
            start = await records.oldest_revision()
            # A first state is written on condition that nothing is before it. This record changes nothing.
            if await records.write_conditionally(start, UpdateRecord(()).encode()) is None:
                await records.wait_beyond(start)
                if await synchronizer.fetch_updates() is not None:
                    return
    for each in ids:
        with suppress(ReaderGroupNotFoundError):
            await core.controller.delete_reader_group(group.scope, group.name, each)


def _differences(stored: ReaderGroupConfig, wanted: ReaderGroupConfig) -> str:
    names = (
        "starts", "ends", "group_refresh_interval", "automatic_checkpoint_interval",
        "max_outstanding_checkpoints", "retention",
    )  # fmt: skip
    return "; ".join(
        f"{name} is {_shown(getattr(stored, name))}, not {_shown(getattr(wanted, name))}"
        for name in names
        if getattr(stored, name) != getattr(wanted, name)
    )


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {cut or 'unbounded'}" for key, cut in value.items()) + "}"
    return str(value)


async def delete(core: ClientCore, group: ScopedStream) -> bool:
    """See :meth:`PravegaClient.delete_reader_group`."""
    try:
        group_name(group)
        config = await core.controller.get_reader_group_config(group.scope, group.name)
        await _drop_lost_subscriptions(core, group, config)
        await core.controller.delete_reader_group(group.scope, group.name, config.group_id)
    except ReaderGroupNotFoundError:
        return False
    return True


async def _lost_subscriptions(
    core: ClientCore, group: ScopedStream, config: ReaderGroupConfig, kept: Collection[ScopedStream] = ()
) -> set[ScopedStream]:
    """The streams that do not know of a group that subscribes to them: they were deleted since.

    They may have been created again. See ``docs/protocol/unforgiving.md``, "Deleting a stream before its
    subscribers".

    :param kept: streams that do not matter, because the group stays subscribed to them.
    """
    if config.retention is RetentionType.NONE:
        return set()
    looked_at = [each for each in config.starts if each not in kept]
    lost = set(looked_at)
    for stream in looked_at:
        with suppress(NotFoundError):
            if str(group) in await core.controller.list_subscribers(stream.scope, stream.name):
                lost.remove(stream)
    return lost


async def _drop_lost_subscriptions(core: ClientCore, group: ScopedStream, config: ReaderGroupConfig) -> None:
    """Prepare the deletion of a group, which the controller could not carry out otherwise."""
    lost = await _lost_subscriptions(core, group, config)
    if not lost:
        return
    starts = {stream: cut for stream, cut in config.starts.items() if stream not in lost}
    kept = replace(config, retention=RetentionType.NONE)
    if starts:
        kept = replace(config, starts=starts, ends={})
    update = partial(core.controller.update_reader_group, group.scope, group.name, kept)
    backoff = Backoff(longest=0.5)
    with lone_errors():
        async with trio.open_nursery() as nursery:
            # It is not answered, but stored.
            nursery.start_soon(update)
            while (
                await core.controller.get_reader_group_config(group.scope, group.name)
            ).generation == config.generation:
                await backoff.wait()
            nursery.cancel_scope.cancel()


async def exists(core: ClientCore, group: ScopedStream) -> bool:
    """See :meth:`PravegaClient.reader_group_exists`."""
    return await _registered(core, group_name(group)) is not None


class ReaderGroup:
    """A group of readers that share the segments of some streams. One reader at a time reads each segment.

    Made by :meth:`PravegaClient.reader_group`; close it (``aclose`` or ``async with``). The readers may be in
    any number of processes, in Python and in Java. Properties return the group's state as of the last
    :meth:`refresh`, or of the last method that fetched it, also of another group or reader of the client.

    Example::

        await client.create_reader_group("demo/dashboard", ["demo/readings"])
        async with client.reader_group("demo/dashboard") as group:
            async with group.reader("reader-1") as reader:
                async for event in reader:
                    print(event.value)
                    break
    """

    def __init__(self, link: GroupLink) -> None:
        self._link = link
        self._core = link.core
        self._waiters = Waiters(f"reader group {link.group} is closed", link.core.stores.thread)

    __reduce__ = not_shared

    def __repr__(self) -> str:
        state = "closed" if self._waiters.closed else f"open, {self._link.reader_count} readers"
        return f"<ReaderGroup {self.name}, {state}>"

    @property
    def name(self) -> str:
        """The full name, ``scope/group``."""
        return str(self._link.group)

    @limited("fetching the state of reader group {self.name}")
    async def refresh(self) -> None:
        """Refresh the cached group state."""
        await self._link.fetch()

    async def _change(self, generate: Generate) -> None:
        """Fetch the state, then write the updates for it.

        For an outdated state there may seem to be nothing to do.
        """
        await self._link.fetch()
        await self._link.change(Change(generate))

    # --- state ----------------------------------------------------------------------------------

    @property
    def config(self) -> ReaderGroupConfig:
        """The group's configuration."""
        return self._link.state.config

    @property
    def streams(self) -> tuple[ScopedStream, ...]:
        """The streams that the group reads."""
        return self.config.streams

    @property
    def online_readers(self) -> OnlineReaders:
        """Names of the readers in the group, with the segments of each and when it last moved."""
        return self._link.online_readers()

    @property
    def outstanding_checkpoints(self) -> tuple[OutstandingCheckpoint, ...]:
        """The checkpoints that are not complete, oldest first, with the readers that have not answered.

        They include automatic checkpoints and those of :meth:`generate_stream_cuts`.
        """
        return self._link.outstanding_checkpoints()

    @property
    def segment_distribution(self) -> dict[str, tuple[str, ...]]:
        """The full names of each reader's segments, by reader."""
        return {reader: tuple(owned) for reader, owned in self._link.state.assigned.items()}

    @property
    def unassigned_segments(self) -> tuple[str, ...]:
        """Full names of the segments that no reader has at the moment."""
        return tuple(self._link.state.unassigned)

    @limited("fetching the metrics of reader group {self.name}")
    async def metrics(self) -> ReaderGroupMetrics:
        """Return the group's current metrics."""
        state = await self._link.fetch()
        return ReaderGroupMetrics(
            {reader: len(owned) for reader, owned in state.assigned.items()},
            len(state.unassigned),
            len(state.future),
            await self._unread(state),
        )

    @limited("computing the unread bytes of reader group {self.name}")
    async def unread_bytes(self) -> int:
        """Return the number of bytes from the last complete checkpoint to the end.

        Without a checkpoint it counts from the known positions. The end is that of the configuration, or of
        the data stored now. Each event counts with 8 bytes of header.
        """
        return await self._unread(await self._link.fetch())

    async def _unread(self, state: GroupState) -> int:
        core = self._core
        total = 0
        for cut in await self._link.complete(cuts_of(state.checkpoints.newest or state.positions())):
            end = state.config.ends.get(cut.stream)
            try:
                ranges = await batch.segment_ranges(core, cut.stream, cut, end, "skip_to_head", reader=None)
            except StreamNotFoundError:
                # The stream was deleted: nothing of it will be read.
                continue
            except InvalidStreamCutError:
                # If the stream was deleted and created again, none of the segments that were read is left.
                infos = await batch.segment_infos(core, cut.stream, list(cut.positions))
                if any(info is not None for info in infos.values()):
                    raise
                continue
            total += sum(each.length for each in ranges)
        return total

    @limited("fetching the stream cuts of reader group {self.name}")
    async def stream_cuts(self) -> dict[ScopedStream, StreamCut]:
        """Return the group's position in each stream, as last reported by its readers.

        It may be as old as the last checkpoint of a reader plus the refresh interval.
        """
        state = await self._link.fetch()
        return {cut.stream: cut for cut in await self._link.complete(cuts_of(state.positions()))}

    @limited("fetching the last checkpoint of reader group {self.name}")
    async def last_checkpoint(self) -> dict[ScopedStream, StreamCut] | None:
        """Return the cuts of the last complete checkpoint, automatic ones included; None before the first."""
        last = (await self._link.fetch()).checkpoints.newest
        return {cut.stream: cut for cut in await self._link.complete(cuts_of(last))} if last else None

    @limited("fetching the time window of stream {} in reader group {self.name}")
    async def time_window(self, stream: ScopedStream | str) -> TimeWindow:
        """Return the event times that the group has reached in a stream, by watermarks.

        Watermarks come from the times that writers report; see :meth:`EventWriter.note_time`.

        :raises InvalidArgumentError: the group does not read the stream.
        """
        name = self._core.config.resolve(stream)
        return await self._link.time_window(name, await self._link.fetch())

    # --- readers --------------------------------------------------------------------------------

    @overload
    def reader(
        self,
        reader_id: str,
        *,
        initial_delay: float = 0.0,
        on_truncated: OnTruncated = "raise",
        on_checkpoint: Callable[[str], Awaitable[object] | object] | None = None,
        max_buffered_bytes: int = DEFAULT_BUFFERED_BYTES,
    ) -> EventReader[bytes]: ...

    @overload
    def reader(
        self,
        reader_id: str,
        serializer: Serializer[T],
        *,
        initial_delay: float = 0.0,
        on_truncated: OnTruncated = "raise",
        on_checkpoint: Callable[[str], Awaitable[object] | object] | None = None,
        max_buffered_bytes: int = DEFAULT_BUFFERED_BYTES,
    ) -> EventReader[T]: ...

    def reader(
        self,
        reader_id: str,
        serializer: Serializer[Any] | None = None,
        *,
        initial_delay: float = 0.0,
        on_truncated: OnTruncated = "raise",
        on_checkpoint: Callable[[str], Awaitable[object] | object] | None = None,
        max_buffered_bytes: int = DEFAULT_BUFFERED_BYTES,
    ) -> EventReader[Any]:
        """Create a reader of the group: ``async with group.reader("one") as reader``.

        See :class:`EventReader` for the parameters that are not listed here.

        :param reader_id: the reader's name, unique in the group.
        :param serializer: deserializes the events. By default they are bytes.
        :raises InvalidArgumentError: the name is invalid, or a number is out of range.
        """
        validate_user_name("reader", reader_id)
        return EventReader(
            self._core,
            self._link.group,
            reader_id,
            serializer,
            initial_delay=initial_delay,
            on_truncated=on_truncated,
            on_checkpoint=on_checkpoint,
            max_buffered_bytes=max_buffered_bytes,
            former=self._link,
        )

    @limited("taking reader {} of {self.name} offline")
    async def reader_offline(self, reader_id: str, position: Position | None = None) -> None:
        """Declare a reader dead. The other readers take over its segments.

        It does not join later either, if it died while it joined: also after :class:`ReaderGroupError`, a
        request to join that was sent before this call is refused or has been undone.

        :param position: the position it has read to, if known: :attr:`EventReader.position`, stored with what
            its last event or batch led to. Otherwise the others continue from its last checkpoint, or from
            where it acquired its segments, so some events are read again. So they do where that is further on
            than the position: then other readers have read a segment since, and the reader got it back.
        :raises ReaderGroupError: the group has no reader of this name.
        :raises InvalidArgumentError: the name is empty, or the position is not a :class:`Position`.
        """
        check_text("reader_id", reader_id)
        if position is not None:
            check_type("position", position, Position)
        remove = remove_reader(reader_id, {} if position is None else position.offsets)
        present = False

        def generate(state: GroupState) -> Sequence[GroupUpdate] | None:
            nonlocal present
            # The reader was in the group even if another process removes it at the same time.
            present = present or state.is_online(reader_id)
            return remove(state)

        await self._change(generate)
        if not present:
            online = ", ".join(sorted(self.online_readers)) or "none"
            raise ReaderGroupError(
                f"reader {reader_id} is not in reader group {self.name}, whose readers are: {online}"
            )

    # --- checkpoints ----------------------------------------------------------------------------

    async def checkpoint(self, name: str | None = None, *, timeout: float | None = None) -> Checkpoint:
        """Ask every reader for its position, and wait for all answers.

        A reader hands the checkpoint to its user between two events. It counts as having reached the
        checkpoint when it is asked for the next event. A reader that is not asked for events never answers.
        If this call is cancelled or times out, the checkpoint is withdrawn: readers that wait for the others
        continue, and other checkpoints are not affected.

        :param name: the checkpoint's name. The default is a random one.
        :param timeout: seconds. The default is no limit.
        :raises CheckpointTimeoutError: not all readers answered in time; the error names those that did not.
        :raises CheckpointError: too many checkpoints are outstanding, the name is taken, or the checkpoint
            was cancelled.
        :raises InvalidArgumentError: the name or the timeout is invalid.
        """
        if name is None:
            name = str(environment().new_id())
        if not isinstance(name, str) or not name or SILENT in name:
            raise InvalidArgumentError(
                f"{shown(name)} is not a valid checkpoint name: a string that is not empty and does not "
                f"contain {SILENT!r}"
            )

        def begin(state: GroupState) -> Sequence[GroupUpdate]:
            outstanding, limit = len(state.checkpoints.outstanding), state.config.max_outstanding_checkpoints
            if name in state.checkpoints.checkpoints or name in state.checkpoints.positions:
                raise CheckpointError(f"reader group {self.name} already has a checkpoint {name!r}")
            if outstanding >= limit:
                which = "; ".join(str(each) for each in self.outstanding_checkpoints if not each.silent)
                raise CheckpointError(
                    f"reader group {self.name} has {outstanding} outstanding checkpoints, and the limit is "
                    f"{limit}: {which}. Wait for them, cancel them (cancel_outstanding_checkpoints), or "
                    "remove a dead reader (reader_offline)"
                )
            return [CreateCheckpoint(name)]

        positions = await self._answers(name, begin, timeout)
        return Checkpoint(name, tuple(await self._link.complete(cuts_of(positions))))

    async def _answers(self, name: str, begin: Generate, timeout: float | None) -> Mapping[str, int]:
        """Begin a checkpoint and wait until all readers have answered. Withdraw it on any failure."""
        if timeout is not None:
            check_seconds("timeout", timeout, infinite=True)
        asked = begun = False

        def generate(state: GroupState) -> Sequence[GroupUpdate] | None:
            nonlocal asked
            updates = begin(state)
            asked = True
            # What was recorded so far was another one of this name.
            found.clear()
            return updates

        with self._link.watch(name) as found:
            try:
                with trio.move_on_after(math.inf if timeout is None else timeout):
                    await self._change(generate)
                    begun = True
                    await self._completed(name, found)
            except CheckpointError:
                # It was refused, or another process cancelled it: it is not outstanding.
                raise
            except BaseException as error:
                if asked and name not in found:
                    seconds = AFTER_CANCELLATION if is_hurried(error) else _WITHDRAW_SECONDS
                    await self._withdraw(name, begun=begun, seconds=seconds)
                raise
            if name not in found:
                assert timeout is not None
                await self._time_out(name, found, timeout, asked=asked, begun=begun)
            positions = found[name]
        await self._link.announce([ClearCheckpointsBefore(name)])
        return positions

    async def _time_out(
        self, name: str, found: Mapping[str, object], timeout: float, *, asked: bool, begun: bool
    ) -> None:
        """Withdraw a checkpoint that was not complete in time, and raise the error for it.

        Does nothing if the checkpoint is complete now.
        """
        withdrawn = await self._withdraw(name, begun=begun) if asked else _Withdrawn(True, ())
        if name in found:
            # The last answer has just arrived.
            return
        what = "the request for stream cuts" if SILENT in name else f"checkpoint {name!r}"
        if begun:
            why = f"was not answered within {timeout:g} s by {listed(withdrawn.waiting_for)}"
        else:
            why = f"could not be written within {timeout:g} s"
        now = "It was withdrawn" if withdrawn.sure else "It may still be outstanding"
        raise CheckpointTimeoutError(
            f"{what} of reader group {self.name} {why}. {now}. A reader answers only while its program asks "
            "it for events. Remove a dead reader with reader_offline",
            scope=self._link.group.scope,
            checkpoint=name,
            waiting_for={each.name: each.last_moved for each in withdrawn.waiting_for},
            watched_since=self._link.watched_since,
            withdrawn=withdrawn.sure,
        )

    async def _withdraw(self, name: str, *, begun: bool, seconds: float = _WITHDRAW_SECONDS) -> _Withdrawn:
        """Withdraw a checkpoint of this object, even if the caller was cancelled.

        :param begun: whether the checkpoint is known to be in the state.
        :param seconds: how long to try.
        """
        waiting: tuple[OnlineReader, ...] = ()
        withdraw = withdraw_checkpoint(name)

        def generate(state: GroupState) -> Sequence[GroupUpdate] | None:
            nonlocal waiting
            found = [each for each in self.outstanding_checkpoints if each.name == name]
            waiting = found[0].waiting_for if found else waiting
            return withdraw(state)

        reason: object = f"no answer within {seconds:g} s"
        with trio.move_on_after(seconds, shield=True):
            try:
                if not begun:
                    # The checkpoint's record may be stored, or not, or be stored after the state was fetched
                    # here. Its write is conditional on the former end of the state's stream: once anything
                    # else is written there, the record is in the state or never will be. So write an update
                    # that clears nothing.
                    await self._link.announce([ClearCheckpointsBefore(str(environment().new_id()))])
                await self._change(generate)
                return _Withdrawn(True, waiting)
            except PravegaError as error:
                reason = error
        log.warning(
            "checkpoint %s of reader group %s could not be withdrawn and may still be outstanding; cancel it "
            "with cancel_outstanding_checkpoints. The reason: %s", name, self.name, reason,
        )  # fmt: skip
        return _Withdrawn(False, waiting)

    async def _completed(self, name: str, found: Mapping[str, Mapping[str, int]]) -> None:
        """Wait until a checkpoint is complete.

        :param found: the positions recorded as updates arrive; see :meth:`GroupLink.watch`.
        """
        state = await self._link.fetch()
        while name not in found:
            if state.checkpoints.is_complete(name):
                raise CheckpointError(
                    f"checkpoint {name!r} of reader group {self.name} was not completed: it was cancelled, "
                    "or the group was reset"
                )
            state = await self._link.wait_for_updates()

    async def generate_stream_cuts(self, *, timeout: float | None = None) -> dict[ScopedStream, StreamCut]:
        """Ask every reader for its present position, without involving the readers' users.

        Each reader answers when it is asked for its next event. Waiting, time limits and cancellation work as
        for :meth:`checkpoint`.

        :param timeout: seconds. The default is no limit.
        :raises CheckpointTimeoutError: not all readers answered in time; the error names those that did not.
        :raises CheckpointError: the request was cancelled, or the group was reset.
        """
        name = b64encode(environment().new_id().bytes + environment().new_id().bytes).decode("ascii") + SILENT
        positions = await self._answers(name, lambda state: [CreateCheckpoint(name)], timeout)
        return {cut.stream: cut for cut in await self._link.complete(cuts_of(positions))}

    @limited("cancelling the checkpoints of reader group {self.name}")
    async def cancel_outstanding_checkpoints(self) -> None:
        """Cancel all incomplete checkpoints. Callers that wait for one get :class:`CheckpointError`."""
        await self._change(cancel_checkpoints)

    # --- configuration --------------------------------------------------------------------------

    @limited("resetting reader group {self.name}")
    async def reset(
        self,
        to: Checkpoint
        | ReaderGroupConfig
        | StreamCut
        | Iterable[StreamCut]
        | Mapping[ScopedStream, StreamCut]
        | None = None,
    ) -> ReaderGroupConfig:
        """Restart the group from another position, or with another configuration.

        Its readers fail with :class:`ReinitializationRequiredError` and have to be created again.

        What the group has released to the retention policies of its streams stays released, so data after an
        earlier position may be deleted before it is read again.

        :param to: a checkpoint; or cuts, also by stream as :meth:`last_checkpoint` returns them (streams
            without one begin at their heads); or a configuration that replaces the present one; or None for
            the last complete checkpoint (before the first: the same start).
        :returns: the new configuration.
        :raises InvalidStreamCutError: a cut belongs to a stream that the group does not read or is not a
            position in it, or a stream has two.
        :raises InvalidArgumentError: the checkpoint has no cuts.
        :raises StreamNotFoundError: a stream of the new configuration does not exist.
        :raises ReaderGroupError: a stream whose retention the group holds back was deleted. The group can
            only be deleted.
        """
        while True:
            state = await self._link.fetch()
            current = state.config
            config = await self._new_config(state, to)
            # Before anything is written, because it fails if a stream does not exist. The controller would
            # accept such a configuration, and the group would have no state for it.
            initial = await initial_state(self._core, config)
            await self._check_subscriptions(current, config)
            begun = False

            def announce(now: GroupState, before: GroupState = state) -> Sequence[GroupUpdate]:
                nonlocal begun
                # A checkpoint may be completed meanwhile, and what is before it released.
                begun = now.config.generation == before.config.generation and (
                    to is not None or now.checkpoints.newest == before.checkpoints.newest
                )
                return [UpdatingConfig(True)] if begun and not now.updating_config else []

            await self._link.change(Change(announce))
            if not begun:
                continue
            if await self._replace(config.with_identity(current.generation, current.group_id), initial):
                return self.config

    async def _check_subscriptions(self, current: ReaderGroupConfig, config: ReaderGroupConfig) -> None:
        """Refuse a change of the configuration that the controller would begin and never end."""
        kept = () if config.retention is RetentionType.NONE else config.starts
        lost = await _lost_subscriptions(self._core, self._link.group, current, kept)
        if lost:
            raise ReaderGroupError(
                f"reader group {self.name} cannot be reset: it keeps the data of "
                f"{', '.join(map(str, sorted(lost)))}, which was deleted, and a controller cannot end that. "
                "Delete the group and create it again"
            )

    async def _new_config(
        self, state: GroupState, to: Checkpoint | ReaderGroupConfig | Cuts | None
    ) -> ReaderGroupConfig:
        if isinstance(to, ReaderGroupConfig):
            return to
        if to is None:
            last = state.checkpoints.newest
            if not last:
                return state.config
            cuts: list[StreamCut] = await self._link.complete(cuts_of(last))
        elif isinstance(to, Checkpoint):
            cuts = list(to.cuts)
            if not cuts:
                # All streams would begin at their heads.
                raise InvalidArgumentError(f"checkpoint {to.name!r} has no stream cut to restart from")
        else:
            cuts = given_cuts("to", to)
        return state.config.starting_at(cuts)

    async def _replace(self, config: ReaderGroupConfig, initial: GroupInit) -> bool:
        """The second half of a reset. Returns False if another process changed the configuration first.

        :param config: the new configuration, with the generation before it.
        :param initial: the state for it.
        """
        core, group = self._core, self._link.group
        accepted = True
        try:
            generation = await core.controller.update_reader_group(group.scope, group.name, config)
            stored = config.with_identity(generation, config.group_id)
        except ControllerError as error:
            if error.status != "INVALID_CONFIG":
                raise
            # The generation is outdated: another process changed the configuration, or this call did in an
            # attempt whose answer was lost.
            stored = await core.controller.get_reader_group_config(group.scope, group.name)
            accepted = stored == config and stored.generation == config.generation + 1
            if not accepted:
                try:
                    found = await initial_state(core, stored)
                except StreamNotFoundError:
                    return await self._replace(
                        config.with_identity(stored.generation, stored.group_id), initial
                    )
                initial = found
        initial = replace(initial, config=stored)
        await hold(core, group, initial, self.config)

        def write(state: GroupState) -> Sequence[GroupUpdate]:
            return [initial] if stored.generation > state.config.generation else []

        await self._link.change(Change(write))
        return accepted

    @limited("updating the retention of reader group {self.name}")
    async def update_retention_stream_cut(
        self, cuts: StreamCut | Iterable[StreamCut] | Mapping[ScopedStream, StreamCut]
    ) -> None:
        """Allow the streams to delete everything before these cuts.

        :raises ReaderGroupError: the group's retention is not ``MANUAL_RELEASE_AT_USER_STREAM_CUT``, or it
            was reset during the call.
        :raises InvalidStreamCutError: a cut is not valid for its stream.
        """
        given = given_cuts("cuts", cuts)
        config = await self._manual()
        exact = []
        for cut in given:
            await batch.check_cut(self._core, cut)
            exact.append(await batch.exact_cut(self._core, cut))
        for cut in exact:
            try:
                await release(self._core, self._link.group, config, cut)
            except ControllerError as error:
                if error.status != "GENERATION_MISMATCH":
                    raise
                # With the new generation this might remove what the group is about to read again.
                raise ReaderGroupError(
                    f"reader group {self.name} was reset meanwhile, and may begin before {cut}: that is not "
                    "released"
                ) from error

    async def _manual(self) -> ReaderGroupConfig:
        """Return the present configuration, which has to leave the release of data to a person."""
        config = (await self._link.fetch()).config
        if config.retention is not RetentionType.MANUAL_RELEASE_AT_USER_STREAM_CUT:
            raise ReaderGroupError(
                f"reader group {self.name} has retention {config.retention.name}; its cuts can be set only "
                "with MANUAL_RELEASE_AT_USER_STREAM_CUT"
            )
        return config

    # --- notifications --------------------------------------------------------------------------

    async def segment_counts(self) -> AsyncGenerator[int, None]:
        """Yield the number of segments that the group reads or will read: now, and after each change.

        :raises ClosedError: the group was closed before or during this call.
        """
        with self._waiters.waiting():
            link = await GroupLink.open(self._core, self._link.group, self._link)
        try:
            last = -1
            while True:
                count = link.state.segment_count
                if count != last:
                    last = count
                    yield count
                    # Others may have fetched newer states in the meantime.
                    continue
                with self._waiters.waiting():
                    await link.wait_for_updates()
        finally:
            with trio.CancelScope(shield=True):
                await link.aclose()

    async def wait_for_end_of_data(self) -> None:
        """Wait until the group has read everything it will ever read (up to end cuts, or sealed streams).

        :raises ClosedError: the group was closed before or during this call.
        """
        async with aclosing(self.segment_counts()) as counts:
            async for count in counts:
                if count == 0 and (await self._link.fetch()).end_of_data:
                    return

    # --- closing --------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Release the connections. Readers have their own and stay open."""
        self._waiters.close()
        await self._link.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()


async def open_group(core: ClientCore, group: ScopedStream) -> ReaderGroup:
    """See :meth:`PravegaClient.reader_group`."""
    return ReaderGroup(await GroupLink.open(core, group_name(group)))
