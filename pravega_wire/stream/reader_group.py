"""Reader groups: see :class:`ReaderGroup`."""

from __future__ import annotations

import logging
import math
import secrets
from base64 import b64encode
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final, NamedTuple, Self, TypeVar, overload
from uuid import uuid4

import trio

from pravega_wire.cuts import OnTruncated
from pravega_wire.errors import (
    CheckpointError,
    CheckpointTimeoutError,
    ControllerError,
    InvalidArgumentError,
    InvalidStreamCutError,
    PravegaError,
    ReaderGroupError,
    ReaderGroupNotFoundError,
    StreamNotFoundError,
)
from pravega_wire.groups import (
    OnlineReader,
    OnlineReaders,
    OutstandingCheckpoint,
    ReaderGroupConfig,
    ReaderGroupMetrics,
    RetentionType,
    TimeWindow,
    listed,
)
from pravega_wire.naming import validate_user_name
from pravega_wire.positions import Checkpoint, Position
from pravega_wire.protocol.group_algorithm import (
    Change,
    Generate,
    cuts_of,
    remove_reader,
    withdraw_checkpoint,
)
from pravega_wire.protocol.group_state import (
    SILENT,
    ClearCheckpointsBefore,
    CreateCheckpoint,
    GroupState,
    GroupStateFormat,
    GroupUpdate,
    RemoveOutstandingCheckpoints,
    UpdatingConfig,
)
from pravega_wire.serializers import BytesSerializer, Serializer
from pravega_wire.stream import batch
from pravega_wire.stream.callers import in_place
from pravega_wire.stream.core import ClientCore
from pravega_wire.stream.event_reader import DEFAULT_BUFFERED_BYTES, EventReader
from pravega_wire.stream.group_link import (
    GroupLink,
    from_controller,
    group_name,
    initial_state,
    load_config,
    state_stream,
    to_controller,
)
from pravega_wire.stream.revisioned import RevisionedStream
from pravega_wire.stream.synchronizer import StateSynchronizer
from pravega_wire.transport.limits import limited
from pravega_wire.types import ScopedStream, StreamCut

__all__ = ["ReaderGroup"]

T = TypeVar("T")

log = logging.getLogger(__name__)

_WITHDRAW_SECONDS: Final = 10.0


class _Withdrawn(NamedTuple):
    """What became of taking a checkpoint back.

    :ivar sure: whether it is not outstanding any more. :ivar waiting_for: readers that had not answered.
    """

    sure: bool
    waiting_for: tuple[OnlineReader, ...]


async def create(core: ClientCore, group: ScopedStream, config: ReaderGroupConfig) -> bool:
    """See :meth:`PravegaClient.create_reader_group`."""
    group_name(group)
    stored = from_controller(
        await core.controller.create_reader_group(to_controller(group, config.with_identity(0, uuid4())))
    )
    if stored != config:
        raise ReaderGroupError(
            f"reader group {group} exists already, with another configuration: {_differences(stored, config)}"
        )
    if stored.generation > 0:
        return False
    log = await RevisionedStream.open(core, state_stream(group), BytesSerializer())
    async with StateSynchronizer(log, GroupStateFormat(), run=in_place) as synchronizer:
        # Whoever comes second finds the state written, by the same configuration.
        return await synchronizer.initialize(await initial_state(core, stored))


def _differences(stored: ReaderGroupConfig, wanted: ReaderGroupConfig) -> str:
    names = (
        "starts", "ends", "group_refresh_ms", "automatic_checkpoint_ms", "max_outstanding_checkpoints",
        "retention",
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
        config = await load_config(core, group_name(group))
        await core.controller.delete_reader_group(group.scope, group.name, config.group_id)
    except ReaderGroupNotFoundError:
        return False
    return True


async def exists(core: ClientCore, group: ScopedStream) -> bool:
    """See :meth:`PravegaClient.reader_group_exists`."""
    try:
        await load_config(core, group_name(group))
    except ReaderGroupNotFoundError:
        return False
    return True


class ReaderGroup:
    """Readers that share the segments of some streams, each segment read by one of them.

    Readers may be in any number of processes, in Python and in Java. Made by
    :meth:`PravegaClient.reader_group`; close it (``aclose`` or ``async with``). Properties tell what was
    known at the last :meth:`refresh`, or the last call that had to ask.
    """

    def __init__(self, link: GroupLink) -> None:
        self._link = link
        self._closed = False

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"open, {self._link.reader_count} readers"
        return f"<ReaderGroup {self.name}, {state}>"

    @property
    def _operation_timeout(self) -> float:
        return self._link.core.config.operation_timeout

    @property
    def name(self) -> str:
        """Full name, ``scope/group``."""
        return str(self._link.group)

    @limited("fetching the state of reader group {self.name}")
    async def refresh(self) -> None:
        """Look what the readers have done."""
        await self._link.fetch()

    async def _change(self, generate: Generate) -> None:
        """Write what the present state asks for: on an old one there may seem to be nothing to do."""
        await self._link.fetch()
        await self._link.change(Change(generate))

    # --- what is known --------------------------------------------------------------------------

    @property
    def config(self) -> ReaderGroupConfig:
        """The group's configuration."""
        return self._link.state.config

    @property
    def streams(self) -> tuple[ScopedStream, ...]:
        """The streams that are read."""
        return self.config.streams

    @property
    def online_readers(self) -> OnlineReaders:
        """Names of the readers that are in the group, with what each holds and when it last moved."""
        return self._link.online_readers()

    @property
    def outstanding_checkpoints(self) -> tuple[OutstandingCheckpoint, ...]:
        """The checkpoints that are not complete, oldest first, with the readers that have not answered.

        Those that readers begin by themselves and those of :meth:`generate_stream_cuts` are among them.
        """
        return self._link.outstanding_checkpoints()

    @property
    def segment_distribution(self) -> dict[str, tuple[str, ...]]:
        """Reader to the full names of its segments."""
        return {reader: tuple(owned) for reader, owned in self._link.state.assigned.items()}

    @property
    def unassigned_segments(self) -> tuple[str, ...]:
        """Full names of the segments that no reader has at the moment."""
        return tuple(self._link.state.unassigned)

    @limited("asking for the metrics of reader group {self.name}")
    async def metrics(self) -> ReaderGroupMetrics:
        """How the group does now."""
        state = await self._link.fetch()
        return ReaderGroupMetrics(
            {reader: len(owned) for reader, owned in state.assigned.items()},
            len(state.unassigned),
            len(state.future),
            await self._unread(state),
        )

    @limited("asking for the unread bytes of reader group {self.name}")
    async def unread_bytes(self) -> int:
        """Bytes from the last complete checkpoint (without one: from the known positions) to the end.

        The end is that of the configuration, or what is stored now; 8 bytes of header count for each event.
        """
        return await self._unread(await self._link.fetch())

    async def _unread(self, state: GroupState) -> int:
        core = self._link.core
        total = 0
        for cut in await self._link.complete(cuts_of(state.checkpoints.last or state.positions())):
            end = state.config.ends.get(cut.stream)
            try:
                ranges = await batch.segment_ranges(core, cut.stream, cut, end, "skip_to_head", reader=None)
            except StreamNotFoundError:
                # Deleted since: nothing of it will be read.
                continue
            except InvalidStreamCutError:
                # Perhaps deleted and created again: then nothing is left of the segments that were read.
                infos = await batch.segment_infos(core, cut.stream, list(cut.positions))
                if any(info is not None for info in infos.values()):
                    raise
                continue
            total += sum(each.length for each in ranges)
        return total

    @limited("asking for the stream cuts of reader group {self.name}")
    async def stream_cuts(self) -> dict[ScopedStream, StreamCut]:
        """Where the group is, by what the readers have told: up to a refresh and a checkpoint old."""
        state = await self._link.fetch()
        return {cut.stream: cut for cut in await self._link.complete(cuts_of(state.positions()))}

    @limited("asking for the last checkpoint of reader group {self.name}")
    async def last_checkpoint(self) -> dict[ScopedStream, StreamCut] | None:
        """The cuts of the last complete checkpoint, automatic ones too; None before the first."""
        last = (await self._link.fetch()).checkpoints.last
        return {cut.stream: cut for cut in await self._link.complete(cuts_of(last))} if last else None

    @limited("asking for the time window of {} in {self.name}")
    async def time_window(self, stream: ScopedStream | str) -> TimeWindow:
        """The event times the group is at in a stream, by watermarks (:meth:`EventWriter.note_time`).

        :raises InvalidArgumentError: the group does not read the stream.
        """
        name = self._link.core.config.resolve(stream)
        await self._link.fetch()
        return await self._link.time_window(name)

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
        """A reader of the group: ``async with group.reader("one") as reader``.

        :param reader_id: unique in the group. :param serializer: of the events; default: they are bytes.
            For the others see :class:`EventReader`.
        :raises InvalidArgumentError: illegal name, or a number out of its range.
        """
        validate_user_name("reader", reader_id)
        return EventReader(
            self._link.core,
            self._link.group,
            reader_id,
            serializer,
            initial_delay=initial_delay,
            on_truncated=on_truncated,
            on_checkpoint=on_checkpoint,
            max_buffered_bytes=max_buffered_bytes,
        )

    @limited("taking reader {} of {self.name} offline")
    async def reader_offline(self, reader_id: str, position: Position | None = None) -> None:
        """Declare a reader dead: others take its segments.

        :param position: where it has read to, if that is known. Without it the others read on from its last
            checkpoint, or from where it took its segments: some events are then read again.
        :raises ReaderGroupError: no reader of this name is in the group.
        """
        remove = remove_reader(reader_id, {} if position is None else position.offsets)
        present = False

        def generate(state: GroupState) -> Sequence[GroupUpdate] | None:
            nonlocal present
            # One that somebody else takes out at the same time was there.
            present = present or state.is_online(reader_id)
            if not present:
                online = ", ".join(sorted(state.assigned)) or "none"
                raise ReaderGroupError(
                    f"reader {reader_id} is not in reader group {self.name}; its readers: {online}"
                )
            return remove(state)

        await self._change(generate)

    # --- checkpoints ----------------------------------------------------------------------------

    async def checkpoint(self, name: str | None = None, *, timeout: float | None = None) -> Checkpoint:
        """Ask every reader where it is, and wait for their answers.

        A reader gives the checkpoint to its user between two events, and counts as having reached it when it
        is asked for the next one. A reader that is not asked for events never answers. When this call is
        cancelled or out of time the checkpoint is withdrawn: readers that wait for the others continue, and
        other checkpoints are not affected.

        :param name: default: a random one. :param timeout: seconds; default: as long as it takes.
        :raises CheckpointTimeoutError: not all readers have answered in time; it names those.
        :raises CheckpointError: too many are outstanding, the name is taken, or it was cancelled.
        """
        if name is None:
            name = str(uuid4())
        if not name or SILENT in name:
            raise InvalidArgumentError(f"{name!r} is no name for a checkpoint")

        def begin(state: GroupState) -> Sequence[GroupUpdate]:
            outstanding, limit = len(state.checkpoints.outstanding), state.config.max_outstanding_checkpoints
            if name in state.checkpoints.checkpoints or name in state.checkpoints.positions:
                raise CheckpointError(f"reader group {self.name} has a checkpoint {name!r} already")
            if outstanding >= limit:
                which = "; ".join(str(each) for each in self.outstanding_checkpoints if not each.silent)
                raise CheckpointError(
                    f"reader group {self.name} has {outstanding} outstanding checkpoints of at most {limit}: "
                    f"{which}. Wait for them, cancel them (cancel_outstanding_checkpoints), or take out a "
                    "reader that is dead (reader_offline)"
                )
            return [CreateCheckpoint(name)]

        positions = await self._answers(name, begin, timeout)
        return Checkpoint(name, tuple(await self._link.complete(cuts_of(positions))))

    async def _answers(self, name: str, begin: Generate, timeout: float | None) -> Mapping[str, int]:
        """Begin a checkpoint and wait until all readers have answered; withdraw it if that is broken off."""
        if timeout is not None and not timeout > 0:
            raise InvalidArgumentError(f"timeout is a positive number of seconds or None, not {timeout}")
        asked = begun = False

        def generate(state: GroupState) -> Sequence[GroupUpdate] | None:
            nonlocal asked
            updates = begin(state)
            asked = True
            return updates

        with self._link.watch(name) as found:
            try:
                with trio.move_on_after(math.inf if timeout is None else timeout):
                    await self._change(generate)
                    begun = True
                    await self._completed(name, found)
            except CheckpointError:
                # Refused, or given up by somebody else: it is not outstanding.
                raise
            except BaseException:
                if asked and name not in found:
                    await self._withdraw(name, begun=begun)
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
        """Withdraw a checkpoint that was not complete in time, and say why; nothing if it is complete now."""
        withdrawn = await self._withdraw(name, begun=begun) if asked else _Withdrawn(True, ())
        if name in found:
            # The last answer came meanwhile.
            return
        what = "a request for stream cuts" if SILENT in name else f"checkpoint {name!r}"
        if begun:
            why = f"was not answered in {timeout:g} s by {listed(withdrawn.waiting_for)}"
        else:
            why = f"could not be written in {timeout:g} s"
        now = "it is withdrawn" if withdrawn.sure else "it may still be outstanding"
        raise CheckpointTimeoutError(
            f"{what} of reader group {self.name} {why}; {now}. A reader answers only while its program asks "
            "it for events; reader_offline takes out one that is dead",
            scope=self._link.group.scope,
            checkpoint=name,
            waiting_for={each.name: each.last_moved for each in withdrawn.waiting_for},
            watched_since=self._link.watched_since,
            withdrawn=withdrawn.sure,
        )

    async def _withdraw(self, name: str, *, begun: bool) -> _Withdrawn:
        """Take back a checkpoint of ours, also when the caller was cancelled.

        :param begun: whether it is known to be in the state.
        """
        waiting: tuple[OnlineReader, ...] = ()
        withdraw = withdraw_checkpoint(name)

        def generate(state: GroupState) -> Sequence[GroupUpdate] | None:
            nonlocal waiting
            found = [each for each in self.outstanding_checkpoints if each.name == name]
            waiting = found[0].waiting_for if found else waiting
            return withdraw(state)

        reason: object = f"no answer in {_WITHDRAW_SECONDS:g} s"
        with trio.move_on_after(_WITHDRAW_SECONDS, shield=True):
            try:
                if not begun:
                    # Its record may be stored or not, or come to be stored after this has looked. It was made
                    # for the end of the state's stream as it was: once anything else is written there, it is
                    # in the state or never will be. What is written here clears nothing.
                    await self._link.announce([ClearCheckpointsBefore(str(uuid4()))])
                await self._change(generate)
                return _Withdrawn(True, waiting)
            except PravegaError as error:
                reason = error
        log.warning(
            "checkpoint %s of reader group %s may have stayed outstanding, which "
            "cancel_outstanding_checkpoints ends: %s", name, self.name, reason,
        )  # fmt: skip
        return _Withdrawn(False, waiting)

    async def _completed(self, name: str, found: Mapping[str, Mapping[str, int]]) -> None:
        """Wait until a checkpoint is complete.

        :param found: what is noted as updates arrive: see :meth:`GroupLink.watch`.
        """
        state = await self._link.fetch()
        while name not in found:
            if state.checkpoints.is_complete(name):
                raise CheckpointError(
                    f"checkpoint {name!r} of reader group {self.name} was given up: it was cancelled, or the "
                    "group was reset"
                )
            state = await self._link.wait_for_updates()

    async def generate_stream_cuts(self, *, timeout: float | None = None) -> dict[ScopedStream, StreamCut]:
        """Ask every reader where it is now, without their users noticing.

        Each answers when it is asked for its next event. What is said of waiting, time and cancellation at
        :meth:`checkpoint` holds here as well.

        :param timeout: seconds; default: as long as it takes.
        :raises CheckpointTimeoutError: not all readers have answered in time; it names those.
        :raises CheckpointError: the group was reset meanwhile.
        """
        name = b64encode(secrets.token_bytes(32)).decode("ascii") + SILENT
        positions = await self._answers(name, lambda state: [CreateCheckpoint(name)], timeout)
        return {cut.stream: cut for cut in await self._link.complete(cuts_of(positions))}

    @limited("cancelling the checkpoints of reader group {self.name}")
    async def cancel_outstanding_checkpoints(self) -> None:
        """Give up the checkpoints that are not complete: who waits for one gets :class:`CheckpointError`."""

        def cancel(state: GroupState) -> Sequence[GroupUpdate]:
            return [RemoveOutstandingCheckpoints()] if state.checkpoints.outstanding else []

        await self._change(cancel)

    # --- configuration --------------------------------------------------------------------------

    @limited("resetting reader group {self.name}")
    async def reset(
        self, to: Checkpoint | ReaderGroupConfig | Iterable[StreamCut] | None = None
    ) -> ReaderGroupConfig:
        """Begin again: readers fail with :class:`ReinitializationRequiredError`, and are to be made anew.

        :param to: a checkpoint; cuts (streams without one begin at their heads); a configuration that
            replaces the present one; or None for the last complete checkpoint (before the first: the same
            start).
        :returns: the new configuration.
        :raises InvalidStreamCutError: a cut of a stream that the group does not read.
        :raises StreamNotFoundError: a stream of the new configuration does not exist.
        """
        while True:
            state = await self._link.fetch()
            current = state.config
            config = await self._new_config(state, to)
            begun = False

            def announce(now: GroupState, current: ReaderGroupConfig = current) -> Sequence[GroupUpdate]:
                nonlocal begun
                begun = now.config.generation == current.generation
                return [UpdatingConfig(True)] if begun and not now.updating_config else []

            await self._link.change(Change(announce))
            if not begun:
                continue
            if await self._replace(config.with_identity(current.generation, current.group_id)):
                return self.config

    async def _new_config(
        self, state: GroupState, to: Checkpoint | ReaderGroupConfig | Iterable[StreamCut] | None
    ) -> ReaderGroupConfig:
        if isinstance(to, ReaderGroupConfig):
            return to
        if to is None:
            last = state.checkpoints.last
            if not last:
                return state.config
            cuts: list[StreamCut] = await self._link.complete(cuts_of(last))
        else:
            cuts = list(to.cuts if isinstance(to, Checkpoint) else to)
        for cut in cuts:
            if cut.stream not in state.config.starts:
                raise InvalidStreamCutError(
                    f"reader group {self.name} does not read stream {cut.stream}",
                    scope=cut.stream.scope,
                    stream=cut.stream.name,
                )
        return state.config.starting_at(cuts)

    async def _replace(self, config: ReaderGroupConfig) -> bool:
        """The second half of a reset; False when somebody else has changed the configuration meanwhile."""
        core, group = self._link.core, self._link.group
        # First, because the controller takes a configuration with streams that do not exist, and then the
        # group has no state that fits it.
        initial = await initial_state(core, config)
        accepted = True
        try:
            generation = await core.controller.update_reader_group(to_controller(group, config))
            stored = config.with_identity(generation, config.group_id)
        except ControllerError as error:
            if error.status != "INVALID_CONFIG":
                raise
            # Not the current generation: somebody else's is the configuration, or our own of an attempt whose
            # answer was lost.
            stored = await load_config(core, group)
            accepted = stored == config and stored.generation == config.generation + 1
            if not accepted:
                try:
                    initial = await initial_state(core, stored)
                except StreamNotFoundError:
                    return await self._replace(config.with_identity(stored.generation, stored.group_id))
        initial = replace(initial, config=stored)

        def write(state: GroupState) -> Sequence[GroupUpdate]:
            return [initial] if stored.generation > state.config.generation else []

        await self._link.change(Change(write))
        return accepted

    @limited("updating the retention of reader group {self.name}")
    async def update_retention_stream_cut(self, cuts: Iterable[StreamCut]) -> None:
        """Allow the streams to drop what is before these cuts.

        :raises ReaderGroupError: the group's retention is not ``MANUAL_RELEASE_AT_USER_STREAM_CUT``.
        :raises InvalidStreamCutError: a cut that is not one of the stream.
        """
        config = self.config
        if config.retention is not RetentionType.MANUAL_RELEASE_AT_USER_STREAM_CUT:
            raise ReaderGroupError(
                f"reader group {self.name} has retention {config.retention.name}; only with "
                "MANUAL_RELEASE_AT_USER_STREAM_CUT its cuts are set by hand"
            )
        for cut in cuts:
            await self._link.core.controller.update_subscriber_stream_cut(
                cut.stream.scope,
                cut.stream.name,
                self.name,
                config.group_id,
                config.generation,
                cut.positions,
            )

    # --- notifications --------------------------------------------------------------------------

    async def segment_counts(self) -> AsyncGenerator[int, None]:
        """The number of segments that are being read or may be: now, and whenever it changes."""
        link = await GroupLink.open(self._link.core, self._link.group)
        try:
            last = -1
            while True:
                count = link.state.segment_count
                if count != last:
                    last = count
                    yield count
                await link.wait_for_updates()
        finally:
            with trio.CancelScope(shield=True):
                await link.aclose()

    async def wait_for_end_of_data(self) -> None:
        """Wait until everything was read that the group will ever read (end cuts, sealed streams)."""
        async with aclosing(self.segment_counts()) as counts:
            async for count in counts:
                if count == 0 and (await self._link.fetch()).end_of_data:
                    return

    # --- the end --------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Give the connections back. Readers have their own."""
        self._closed = True
        await self._link.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()


async def open_group(core: ClientCore, group: ScopedStream) -> ReaderGroup:
    """See :meth:`PravegaClient.reader_group`."""
    return ReaderGroup(await GroupLink.open(core, group_name(group)))
