"""One reader of a group, with a group state and a store that are only made up."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import pytest
import trio

from pravega_wire import PravegaConfig, aio, sync
from pravega_wire.aio import portal as loops
from pravega_wire.errors import ArgumentTypeError, DataLossError, InvalidArgumentError, PravegaTimeoutError
from pravega_wire.protocol import commands as c
from pravega_wire.protocol import group_algorithm
from pravega_wire.protocol.events import frame_event
from pravega_wire.protocol.group_algorithm import GroupMember
from pravega_wire.protocol.group_state import (
    AcquireSegment,
    AddReader,
    CheckpointReader,
    CreateCheckpoint,
    GroupState,
    GroupUpdate,
    ReaderGroupStateInit,
    ReleaseSegment,
)
from pravega_wire.segment.following import FollowingReader
from pravega_wire.serializers import JsonSerializer
from pravega_wire.stream.event_reader import Event, EventReader
from pravega_wire.stream.group_link import GroupLink, _Watching
from pravega_wire.threads import portal as threads
from pravega_wire.transport import limits
from pravega_wire.values.groups import ReaderGroupConfig
from pravega_wire.values.positions import Position
from pravega_wire.values.types import ScopedStream
from tests.unit import test_following_reader
from tests.unit.test_interrupted_readers import Interrupt

STREAM = ScopedStream("scope", "stream")
GROUP = ScopedStream("scope", "group")
SEGMENT = test_following_reader.Store.name
EVENT = frame_event(b"event")


class Failure(Exception):
    """Ends the block of a reader."""


class Synchronizer:
    """The state of a group, without a log.

    :ivar disturb: called before each write is stored or, if ``late``, after it.
    """

    def __init__(self, starts: dict[str, int], ends: dict[str, int]) -> None:
        config = ReaderGroupConfig(
            {STREAM: None}, automatic_checkpoint_interval=-0.001, group_refresh_interval=0
        )
        self.state = GroupState.begin(ReaderGroupStateInit(config, starts, ends, dict.fromkeys(starts)))
        self.watching = _Watching()
        # It is also what links share.
        self.synchronizer = self
        self.links = 0
        self.disturb: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
        self.late = False

    def apply(self, updates: Sequence[GroupUpdate]) -> None:
        for update in updates:
            self.state = self.watching.apply(self.state, update, None)

    async def fetch_updates(self) -> GroupState:
        await trio.lowlevel.checkpoint()
        return self.state

    async def update(self, generate: Callable[[GroupState], Sequence[GroupUpdate] | None]) -> GroupState:
        if not self.late:
            await self.disturb()
        self.apply(generate(self.state) or ())
        if self.late:
            await self.disturb()
        return self.state

    async def update_unconditionally(self, updates: Sequence[GroupUpdate]) -> None:
        await trio.lowlevel.checkpoint()
        self.apply(updates)

    async def bytes_since_compaction(self) -> int:
        await trio.lowlevel.checkpoint()
        return 0

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


class Store(test_following_reader.Store):
    """Answers reads at once, but for those at the end of its only segment.

    :ivar head: offset of the first byte that was not truncated.
    """

    def __init__(self, data: bytes = b"", *, head: int = 0) -> None:
        super().__init__()
        self.data = data
        self.head = head
        self.handler: FollowingReader | None = None

    async def flow(self, endpoint: str, handler: object) -> Store:
        self.handler = cast("FollowingReader", handler)
        return self

    def send(self, command: c.ReadSegment) -> None:
        super().send(command)
        assert self.handler is not None
        request, at = command.request_id, command.offset
        if at < self.head:
            self.handler.on_reply(c.SegmentIsTruncated(request, command.segment, self.head, "", at))
        elif at < len(self.data):
            self.handler.on_reply(
                c.SegmentRead(
                    segment=command.segment, offset=at, at_tail=True, end_of_segment=False,
                    data=self.data[at:][: command.suggested_length], request_id=request,
                )
            )  # fmt: skip


class Nursery:
    """As much of a client's nursery as a reader uses."""

    start_soon = staticmethod(trio.lowlevel.spawn_system_task)


class Core:
    """As much of a client as a reader uses."""

    nursery = Nursery()

    def __init__(self, store: Store) -> None:
        self.stores = store
        self.counters = store.counters
        self.config = PravegaConfig.from_defaults(controller_uri="tcp://127.0.0.1:1", env={})
        self.leaving = limits.Leaving(self.config.operation_timeout)
        self.group_states: dict[ScopedStream, object] = {}

    def check_open(self) -> None:
        pass

    def check_run(self) -> None:
        pass

    def target(self, *names: object) -> Store:
        return self.stores


class Setting:
    """A group with one segment, and its readers."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, store: Store, *, start: int = 0, end: int | None = None
    ) -> None:
        self.core = Core(store)
        self.synchronizer = Synchronizer({SEGMENT: start}, {} if end is None else {SEGMENT: end})
        monkeypatch.setattr(GroupLink, "open", self._open)

    async def _open(self, core: Any, group: ScopedStream, former: object) -> GroupLink:
        await trio.lowlevel.checkpoint()
        return GroupLink(core, group, cast("Any", self.synchronizer))

    def reader(self, **options: Any) -> EventReader[bytes]:
        return EventReader(cast("Any", self.core), GROUP, "a", None, **options)

    @property
    def state(self) -> GroupState:
        return self.synchronizer.state


@pytest.mark.parametrize("head", [1000, 2000])
@pytest.mark.parametrize("skip", [False, True])
async def test_data_truncated_beyond_the_groups_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, skip: bool, head: int
) -> None:
    setting = Setting(monkeypatch, Store(head=head), start=500, end=1000)
    async with setting.reader(on_truncated="skip_to_head" if skip else "raise") as reader:
        with trio.fail_after(30):
            if not skip:
                with pytest.raises(DataLossError) as caught:
                    while True:
                        assert await reader.read_event(0.1) is None
                assert caught.value.start_offset == head
            while reader.position.offsets != {SEGMENT: 1000}:
                assert await reader.read_event(0.1) is None
    assert setting.state.unassigned == {SEGMENT: 1000}
    assert ("500 bytes were truncated" in caplog.text) == skip


@dataclass
class Leaving:
    """A group with three events, whose reader leaves after them with its position after the first.

    :ivar position: this position.
    """

    setting: Setting
    position: Position | None = None

    @classmethod
    def of(cls, monkeypatch: pytest.MonkeyPatch) -> Leaving:
        return cls(Setting(monkeypatch, Store(EVENT * 3)))

    def note(self, reader: Any, event: Any) -> None:
        assert isinstance(event, Event)
        if self.position is None:
            self.position = reader.position

    def block(self) -> None:
        """From now on writes end only when they are cancelled."""
        self.setting.synchronizer.disturb = trio.sleep_forever

    def unblock(self) -> None:
        """Writes succeed again."""
        self.setting.synchronizer.disturb = trio.lowlevel.checkpoint

    def check(self) -> None:
        assert self.setting.state.assigned == {}
        assert self.setting.state.unassigned == {SEGMENT: len(EVENT)}


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("again", [False, True])
async def test_a_cancelled_call_that_leaves_at_a_position(
    monkeypatch: pytest.MonkeyPatch, fails: bool, again: bool
) -> None:
    leaving = Leaving.of(monkeypatch)
    with pytest.raises(Failure) if fails else nullcontext():
        async with leaving.setting.reader() as reader:
            for _ in range(3):
                leaving.note(reader, await reader.read_event())
            leaving.block()
            with trio.move_on_after(0) as scope:
                await reader.aclose(leaving.position)
            assert scope.cancelled_caught
            leaving.unblock()
            if again:
                await reader.aclose()
            if fails:
                raise Failure
    leaving.check()


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("timeout", [0, 0.1])
def test_a_blocking_call_that_leaves_at_a_position_times_out(
    monkeypatch: pytest.MonkeyPatch, fails: bool, timeout: float
) -> None:
    leaving = Leaving.of(monkeypatch)
    portal = threads.Portal("test")
    try:
        with (
            pytest.raises(Failure) if fails else nullcontext(),
            sync.EventReader(portal, leaving.setting.reader()) as reader,
        ):
            for _ in range(3):
                leaving.note(reader, reader.read_event())
            leaving.block()
            with pytest.raises(PravegaTimeoutError):
                reader.close(leaving.position, timeout=timeout)
            leaving.unblock()
            if fails:
                raise Failure
    finally:
        portal.close()
    leaving.check()


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("timeout", [0, 0.1])
def test_an_asyncio_call_that_leaves_at_a_position_times_out(
    monkeypatch: pytest.MonkeyPatch, fails: bool, timeout: float
) -> None:
    leaving = Leaving.of(monkeypatch)

    async def main() -> None:
        portal = loops.Portal()
        try:
            async with aio.EventReader(loops.Line(portal), leaving.setting.reader()) as reader:
                for _ in range(3):
                    leaving.note(reader, await reader.read_event())
                leaving.block()
                closing = asyncio.ensure_future(reader.aclose(leaving.position))
                await asyncio.sleep(timeout)
                closing.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await closing
                leaving.unblock()
                if fails:
                    raise Failure
        finally:
            portal.thread.close()

    with pytest.raises(Failure) if fails else nullcontext():
        asyncio.run(main())
    leaving.check()


@pytest.mark.parametrize("late", [False, True])
async def test_joining_that_timed_out_leaves_no_reader_behind(
    monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    setting = Setting(monkeypatch, Store())

    async def give_up() -> None:
        await trio.lowlevel.checkpoint()
        setting.synchronizer.disturb = trio.lowlevel.checkpoint
        raise PravegaTimeoutError("no answer")

    setting.synchronizer.late = late
    setting.synchronizer.disturb = give_up
    with pytest.raises(PravegaTimeoutError, match="no answer"):
        async with setting.reader():
            pass
    assert setting.synchronizer.watching.joined["a"] == late
    assert setting.state.assigned == {}


async def test_events_come_between_checkpoints_that_are_always_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """The way to the store takes longer than their interval."""
    monkeypatch.setattr(group_algorithm, "UNIT", 0.0)
    setting = Setting(monkeypatch, Store(EVENT * 3))
    state = setting.state
    setting.synchronizer.state = replace(
        state, config=replace(state.config, automatic_checkpoint_interval=0.001)
    )
    setting.synchronizer.disturb = partial(trio.sleep, 0.005)
    reached: list[str] = []
    async with setting.reader(on_checkpoint=reached.append) as reader:
        with trio.fail_after(60):
            assert await reader.read_event() is not None
            for _ in range(2):
                reached.clear()
                assert await reader.read_event() is not None
                assert len(reached) == 1


async def test_a_segment_that_is_lost_and_regained_in_one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """It continues where the other reader, which had it meanwhile, has read to."""
    setting = Setting(monkeypatch, Store(EVENT * 4))
    async with setting.reader() as reader:
        first = await reader.read_event()
        assert isinstance(first, Event)
        # Its own release of the segment, whose answer it did not see.
        setting.synchronizer.apply([ReleaseSegment("a", SEGMENT, 2 * len(EVENT))])
        reader._member._acquire_at = 0
        event = await reader.read_event()
        assert isinstance(event, Event)
        assert event.offset == 2 * len(EVENT)
        assert reader.position.offsets == {SEGMENT: 3 * len(EVENT)}


def test_a_checkpoint_that_was_completed_in_records_that_are_gone() -> None:
    """Its caller finds it in the state that the records were compacted to."""
    shared = Synchronizer({SEGMENT: 0}, {})
    shared.apply([AddReader("one"), AcquireSegment("one", SEGMENT), CreateCheckpoint("done")])
    found: dict[str, Mapping[str, int]] = {}
    shared.watching.watched["done"] = [found]
    after = shared.state.apply(CheckpointReader("done", "one", {SEGMENT: 13}))
    assert shared.watching.create(after.compacted(), None) == after
    assert found == {"done": {SEGMENT: 13}}


def test_a_reader_refuses_what_is_no_serializer() -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"^reader a of scope/group: serializer must be a serializer"
    ):
        EventReader(cast("Any", None), GROUP, "a", cast("Any", 5))
    with pytest.raises(ArgumentTypeError, match=r"serializer must be an instance: write JsonSerializer\(\)"):
        EventReader(cast("Any", None), GROUP, "a", cast("Any", JsonSerializer))


def test_a_reader_refuses_an_on_checkpoint_that_cannot_be_called() -> None:
    with pytest.raises(ArgumentTypeError, match=r"scope/group: on_checkpoint must be a function"):
        EventReader(cast("Any", None), GROUP, "a", None, on_checkpoint=cast("Any", "x"))


@pytest.mark.parametrize("way", ["read_event", "read_event_nowait", "next of events_nowait", "next"])
def test_ctrl_c_anywhere_in_a_call_costs_no_event(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    payloads = [b"%d" % number for number in range(600)]
    setting = Setting(monkeypatch, Store(b"".join(map(frame_event, payloads))))
    # No round becomes due meanwhile.
    monkeypatch.setattr(GroupMember, "due", property(lambda _: math.inf))
    found: list[bytes] = []
    with (
        closing(threads.Portal("test client")) as portal,
        sync.EventReader(portal, setting.reader()) as reader,
    ):
        while not found:
            found += [event.value for event in (reader.read_event(),) if event is not None]
        n, interrupted = 0, True
        while interrupted:
            call: Callable[[], Any] = {
                "read_event": reader.read_event,
                "read_event_nowait": reader.read_event_nowait,
                "next of events_nowait": reader.events_nowait().__next__,
                "next": iter(reader).__next__,
            }[way]
            event: Any = None
            interrupted = False
            sys.setprofile(Interrupt(n))
            try:
                event = call()
            except KeyboardInterrupt:
                interrupted = True
            finally:
                sys.setprofile(None)
            if event is not None:
                found.append(event.value)
            following = reader.read_event()
            assert following is not None
            found.append(following.value)
            assert found == payloads[: len(found)], f"interrupted at place {n}"
            n += 1
    assert n > 2
