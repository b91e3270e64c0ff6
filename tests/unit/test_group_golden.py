"""Records and effects of a reader group's state against what Java wrote (golden-client.jsonl)."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from pravega_wire.errors import (
    CorruptedStateError,
    DecodeError,
    IncompatibleVersionError,
    InvalidArgumentError,
    InvalidStreamCutError,
)
from pravega_wire.protocol import group_state as g
from pravega_wire.protocol.group_algorithm import cancel_checkpoints
from pravega_wire.protocol.state_records import InitialRecord, UpdateRecord, decode_state_record
from pravega_wire.values.groups import ReaderGroupConfig, RetentionType
from pravega_wire.values.naming import segment_id
from pravega_wire.values.positions import KeyRange
from pravega_wire.values.types import ScopedStream, StreamCut

GOLDEN = Path(__file__).parents[1] / "golden" / "golden-client.jsonl"
VECTORS: list[dict[str, Any]] = [json.loads(line) for line in GOLDEN.read_text().splitlines()]

ORDERS = ScopedStream("scope1", "orders")
SEG0, SEG1, SEG2 = (f"scope1/orders/{number}.#epoch.0" for number in range(3))


def vectors(*prefixes: str) -> list[Any]:
    found = [
        pytest.param(vector, id=f"{index}-{vector['what']}")
        for index, vector in enumerate(VECTORS, 1)
        if vector["what"].startswith(prefixes)
    ]
    assert found
    return found


# --- values from the vectors' JSON ----------------------------------------------------------------


def cut_of(stream: str, value: Any) -> StreamCut | None:
    if value == "UNBOUNDED":
        return None
    return StreamCut(ScopedStream.parse(stream), {g.segment_id_of(name): offset for name, offset in value})


def config_of(fields: dict[str, Any]) -> ReaderGroupConfig:
    return ReaderGroupConfig(
        starts={ScopedStream.parse(name): cut_of(name, cut) for name, cut in fields["startingStreamCuts"]},
        ends={ScopedStream.parse(name): cut_of(name, cut) for name, cut in fields["endingStreamCuts"]},
        group_refresh_interval=fields["groupRefreshTimeMillis"] / 1000,
        automatic_checkpoint_interval=fields["automaticCheckpointIntervalMillis"] / 1000,
        max_outstanding_checkpoints=fields["maxOutstandingCheckpointRequest"],
        retention=RetentionType(fields["retentionType"]),
        generation=fields["generation"],
        group_id=UUID(fields["readerGroupId"]),
    )


def identity(config: ReaderGroupConfig) -> tuple[ReaderGroupConfig, int, UUID]:
    """A configuration with what its equality leaves out."""
    return config, config.generation, config.group_id


def checkpoints_of(fields: dict[str, Any]) -> g.CheckpointState:
    return g.CheckpointState(
        checkpoints=tuple(fields["checkpoints"]),
        pending={name: tuple(readers) for name, readers in fields["uncheckpointedHosts"]},
        positions={name: dict(offsets) for name, offsets in fields["checkpointPositions"]},
        # Java writes "none yet" as an empty one.
        last=dict(fields["lastCheckpointPosition"] or {}),
        published=fields["lastCheckpointPublished"],
    )


def known_range(value: list[float] | None) -> KeyRange | None:
    return None if value is None else (value[0], value[1])


def ranged(pairs: Any) -> tuple[dict[str, Any], dict[str, KeyRange | None]]:
    return (
        {name: value for (name, _), value in pairs},
        {name: known_range(key_range) for (name, key_range), _ in pairs},
    )


def init_of(fields: dict[str, Any]) -> g.ReaderGroupStateInit:
    starts, ranges = ranged(fields["startingSegments"])
    return g.ReaderGroupStateInit(
        config_of(fields["config"]), starts, dict(fields["endSegments"]), ranges, fields["updatingConfig"]
    )


def completed_of(fields: dict[str, Any]) -> g.SegmentCompleted:
    (segment, key_range), (successors, ranges) = fields["segmentCompleted"], ranged(fields["successors"])
    every = {segment: known_range(key_range), **ranges}
    return g.SegmentCompleted(
        fields["readerId"],
        segment,
        {name: tuple(ids) for name, ids in successors.items()},
        {name: every[name] for name in fields["rangeMapOrder"]},
    )


def lag_of(fields: dict[str, Any]) -> g.UpdateDistanceToTail:
    return g.UpdateDistanceToTail(
        fields["readerId"], fields["distanceToTail"], *ranged(fields["lastReadPositions"])
    )


UPDATES: dict[str, Any] = {
    "ReaderGroupStateInit": init_of,
    "AddReader": lambda f: g.AddReader(f["readerId"]),
    "RemoveReader": lambda f: g.RemoveReader(f["readerId"], dict(f["ownedSegments"])),
    "ReleaseSegment": lambda f: g.ReleaseSegment(f["readerId"], f["segment"], f["offset"]),
    "AcquireSegment": lambda f: g.AcquireSegment(f["readerId"], f["segment"]),
    "UpdateDistanceToTail": lag_of,
    "SegmentCompleted": completed_of,
    "CheckpointReader": lambda f: g.CheckpointReader(f["checkpointId"], f["readerId"], dict(f["positions"])),
    "CreateCheckpoint": lambda f: g.CreateCheckpoint(f["checkpointId"]),
    "ClearCheckpointsBefore": lambda f: g.ClearCheckpointsBefore(f["clearUpToCheckpoint"]),
    "UpdateCheckpointPublished": lambda f: g.UpdateCheckpointPublished(f["published"]),
    "UpdatingConfig": lambda f: g.UpdatingConfig(f["updatingConfig"]),
    "RemoveOutstandingCheckpoints": lambda f: g.RemoveOutstandingCheckpoints(),
}


# --- records --------------------------------------------------------------------------------------


@pytest.mark.parametrize("vector", vectors("readerGroupConfig"))
def test_configurations(vector: dict[str, Any]) -> None:
    config = config_of(vector["fields"])
    assert g.encode_group_config(config).hex() == vector["hex"]
    assert identity(g.decode_group_config(bytes.fromhex(vector["hex"]))) == identity(config)


@pytest.mark.parametrize("vector", vectors("checkpointState"))
def test_checkpoint_states(vector: dict[str, Any]) -> None:
    state = checkpoints_of(vector["fields"])
    read = g.decode_checkpoint_state(bytes.fromhex(vector["hex"]))
    assert read == state
    assert g.encode_checkpoint_state(read).hex() == vector["hex"]


@pytest.mark.parametrize("vector", vectors("update.", "init.ReaderGroupStateInit"))
def test_updates(vector: dict[str, Any]) -> None:
    record = UPDATES[vector["what"].partition(".")[2]](vector["fields"])
    assert g.encode_group_record(record).hex() == vector["hex"]
    read = g.decode_group_record(bytes.fromhex(vector["hex"]))
    assert read == record
    assert g.encode_group_record(read).hex() == vector["hex"]
    if isinstance(read, g.ReaderGroupStateInit):
        assert identity(read.config) == identity(record.config)


@pytest.mark.parametrize("vector", vectors("synchronizer.init(ReaderGroupStateInit)"))
def test_initial_records_of_a_synchronizer(vector: dict[str, Any]) -> None:
    read = decode_state_record(bytes.fromhex(vector["hex"]))
    assert isinstance(read, InitialRecord)
    record = init_of(vector["fields"])
    assert g.GroupStateFormat.initial_serializer.deserialize(read.data) == record
    written = InitialRecord(g.encode_group_record(record)).encode()
    # The Java client leaves zero bytes behind it.
    assert vector["hex"] == written.hex() + "00" * (len(vector["hex"]) // 2 - len(written))


@pytest.mark.parametrize("vector", vectors("synchronizer.updates("))
def test_update_records_of_a_synchronizer(vector: dict[str, Any]) -> None:
    read = decode_state_record(bytes.fromhex(vector["hex"]))
    assert isinstance(read, UpdateRecord)
    assert [each.hex() for each in read.updates] == vector["fields"]["updates_hex"]
    updates = [g.decode_group_record(each) for each in read.updates]
    assert [type(each).__name__ for each in updates] == vector["what"][21:-1].split(",")
    assert UpdateRecord([g.encode_group_record(each) for each in updates]).encode().hex() == vector["hex"]


# --- effects --------------------------------------------------------------------------------------


@pytest.mark.parametrize("vector", vectors("init.CompactReaderGroupState"))
def test_states_after_updates(vector: dict[str, Any]) -> None:
    fields = vector["fields"]
    initial = g.decode_group_record(bytes.fromhex(fields["init_hex"]))
    assert isinstance(initial, g.ReaderGroupStateInit)
    state = g.GroupState.begin(initial)
    for each in fields["afterUpdates_hex"]:
        state = state.apply(g.decode_group_record(bytes.fromhex(each)))

    assert identity(state.config) == identity(config_of(fields["config"]))
    wanted = checkpoints_of(fields["checkpointState"])
    # Readers are a set in Java: in no order.
    pending = {name: tuple(sorted(readers)) for name, readers in wanted.pending.items()}
    assert state.checkpoints == replace(wanted, pending=pending)
    assert dict(state.distances) == dict(fields["distanceToTail"])
    every: dict[str, KeyRange | None] = {}
    future, ranges = ranged(fields["futureSegments"])
    assert dict(state.future) == {name: frozenset(ids) for name, ids in future.items()}
    every.update(ranges)
    assert set(state.assigned) == {reader for reader, _ in fields["assignedSegments"]}
    for reader, pairs in fields["assignedSegments"]:
        owned, ranges = ranged(pairs)
        assert dict(state.assigned[reader]) == owned
        every.update(ranges)
    unassigned, ranges = ranged(fields["unassignedSegments"])
    assert list(state.unassigned.items()) == list(unassigned.items())
    every.update(ranges)
    last_read, ranges = ranged(fields["lastReadPosition"])
    assert dict(state.last_read) == last_read
    every.update(ranges)
    assert dict(state.ends) == dict(fields["endSegments"])
    assert state.updating_config is fields["updatingConfig"]
    compacted = state.compacted()
    assert dict(compacted.ranges) == every
    assert state.relative_sizes() == pytest.approx(dict(fields["relativeSizes"]), abs=0, rel=1e-15)

    # Java's compacted record is this state, and ours makes it again.
    java = g.decode_group_record(bytes.fromhex(vector["hex"]))
    assert isinstance(java, g.CompactReaderGroupState)
    ours = g.decode_group_record(g.encode_group_record(compacted))
    assert ordered(ours) == ordered(java)
    assert len(g.encode_group_record(compacted).hex()) == len(vector["hex"])
    assert g.GroupState.begin(java).compacted() == java


def ordered(record: g.GroupUpdate) -> g.CompactReaderGroupState:
    """A state's record with the waiting readers in the order of their names."""
    assert isinstance(record, g.CompactReaderGroupState)
    pending = {name: tuple(sorted(readers)) for name, readers in record.checkpoints.pending.items()}
    return replace(record, checkpoints=replace(record.checkpoints, pending=pending))


def test_all_steps_were_replayed() -> None:
    steps = [
        len(v["fields"]["afterUpdates_hex"]) for v in VECTORS if v["what"] == "init.CompactReaderGroupState"
    ]
    assert steps == list(range(1, 13))


def state_of(**owned: dict[str, int]) -> g.GroupState:
    """A state of three segments, with these assigned to readers."""
    config = ReaderGroupConfig({ORDERS: None})
    state = g.GroupState.begin(g.ReaderGroupStateInit(config, {SEG0: 5, SEG1: 6, SEG2: 7}))
    for reader, segments in owned.items():
        state = state.apply(g.AddReader(reader))
        for segment in segments:
            state = state.apply(g.AcquireSegment(reader, segment))
    return state


@pytest.mark.parametrize(
    "update",
    [
        g.AddReader("a"),
        g.ReleaseSegment("b", SEG0, 1),
        g.ReleaseSegment("a", SEG1, 1),
        g.AcquireSegment("a", SEG0),
        g.AcquireSegment("b", SEG1),
        g.SegmentCompleted("a", SEG1),
        g.SegmentCompleted("b", SEG0),
    ],
    ids=lambda update: f"{type(update).__name__}-{update.reader}",
)
def test_updates_that_nobody_writes(update: g.GroupUpdate) -> None:
    state = state_of(a={SEG0: 0})
    with pytest.raises(CorruptedStateError):
        state.apply(update)
    assert state == state_of(a={SEG0: 0})


def test_a_merge_waits_for_all_its_predecessors() -> None:
    merged = "scope1/orders/3.#epoch.1"
    state = state_of(a={SEG0: 0, SEG1: 0}, b={SEG2: 0})
    state = state.apply(g.SegmentCompleted("a", SEG0, {merged: [0, 1]}, {merged: (0.0, 0.5)}))
    assert dict(state.future) == {merged: frozenset({1})}
    assert state.unassigned == {}
    assert not state.end_of_data
    state = state.apply(g.SegmentCompleted("a", SEG1, {merged: [0, 1]}, {merged: (0.0, 0.5)}))
    assert (state.future, state.unassigned, state.last_read) == ({}, {merged: 0}, {SEG2: 7, merged: 0})
    assert state.ranges[merged] == (0.0, 0.5)


def test_a_reader_that_goes_answers_its_checkpoints() -> None:
    state = state_of(a={SEG0: 0}, b={SEG1: 0}).apply(g.CreateCheckpoint("c"))
    assert state.checkpoints.of_reader("a") == "c"
    state = state.apply(g.CheckpointReader("c", "a", {SEG0: 50}))
    assert state.assigned["a"] == {SEG0: 50}
    assert state.checkpoints.outstanding == ("c",)
    state = state.apply(g.RemoveReader("b", {SEG1: 60}))
    assert state.checkpoints.completed("c") == state.checkpoints.last == {SEG0: 50, SEG1: 60, SEG2: 7}
    assert state.unassigned == {SEG2: 7, SEG1: 60}
    assert not state.checkpoints.published
    # Without a position: from where it was last recorded.
    state = state.apply(g.RemoveReader("a"))
    assert state.unassigned == {SEG2: 7, SEG1: 60, SEG0: 50}
    assert state.apply(g.RemoveReader("a")) == state


def two_streams() -> g.GroupState:
    """A group of streams ``s/a`` and ``s/b``, in which ``s/b/3`` still waits for ``s/b/2``."""
    names = [f"s/{stream}/{number}.#epoch.1" for stream in "ab" for number in (1, 2)]
    config = ReaderGroupConfig.of(["s/a", "s/b"])
    state = g.GroupState.begin(g.ReaderGroupStateInit(config, dict.fromkeys(names, 0)))
    state = state.apply(g.AddReader("r"))
    for name in names:
        state = state.apply(g.AcquireSegment("r", name))
    ids = [segment_id(1, number) for number in (1, 2)]
    return state.apply(g.SegmentCompleted("r", "s/b/1.#epoch.1", {"s/b/3.#epoch.2": ids}))


def test_a_completed_segment_counts_for_its_own_stream_only() -> None:
    state = two_streams()
    other = g.SegmentCompleted("r", "s/a/2.#epoch.1", {"s/a/3.#epoch.2": [segment_id(1, 2)]})
    # As in Java, it would.
    assert "s/b/3.#epoch.2" in state.apply(other).unassigned
    update = state.completion(other)
    assert isinstance(update, g.CompactReaderGroupState)
    after = state.apply(g.decode_group_record(g.encode_group_record(update)))
    assert after.future == {"s/b/3.#epoch.2": {segment_id(1, 2)}} == state.future
    assert after.unassigned == {"s/a/3.#epoch.2": 0}
    assert after.assigned == {"r": {"s/a/1.#epoch.1": 0, "s/b/2.#epoch.1": 0}}
    assert after.last_read == {**dict.fromkeys(after.assigned["r"], 0), "s/a/3.#epoch.2": 0}
    own = g.SegmentCompleted("r", "s/b/2.#epoch.1", {"s/b/3.#epoch.2": [segment_id(1, 1), segment_id(1, 2)]})
    assert after.completion(own) == own
    last = after.apply(own)
    assert (last.future, last.unassigned) == ({}, {"s/a/3.#epoch.2": 0, "s/b/3.#epoch.2": 0})


def test_a_successor_that_was_given_out_early_is_not_waited_for_again() -> None:
    """As after a Java reader has completed a segment of another stream."""
    state = two_streams().apply(g.SegmentCompleted("r", "s/a/2.#epoch.1"))
    state = state.apply(g.AcquireSegment("r", "s/b/3.#epoch.2"))
    ids = [segment_id(1, number) for number in (1, 2)]
    own = g.SegmentCompleted("r", "s/b/2.#epoch.1", {"s/b/3.#epoch.2": ids})
    assert state.apply(own).future
    after = state.apply(state.completion(own))
    assert (after.future, after.unassigned) == ({}, {})
    assert after.assigned == {"r": {"s/a/1.#epoch.1": 0, "s/b/3.#epoch.2": 0}}


def test_silent_checkpoints_move_nothing() -> None:
    silent = "abc" + g.SILENT
    state = state_of(a={SEG0: 0}).apply(g.CreateCheckpoint(silent))
    state = state.apply(g.CheckpointReader(silent, "a", {SEG0: 50}))
    assert state.assigned["a"] == {SEG0: 5}
    assert state.checkpoints.completed(silent) == {SEG0: 50, SEG1: 6, SEG2: 7}
    assert state.checkpoints.last == {}
    assert state.checkpoints.published


def test_checkpoints_are_given_up_and_forgotten() -> None:
    state = state_of(a={SEG0: 0})
    for name in ("one", "two", "x" + g.SILENT):
        state = state.apply(g.CreateCheckpoint(name))
    assert state.checkpoints.outstanding == ("one", "two")
    again = state.apply(g.CreateCheckpoint("two"))
    assert again == state
    given_up = state.apply(g.RemoveOutstandingCheckpoints())
    assert given_up.checkpoints.checkpoints == state.checkpoints.checkpoints
    assert list(given_up.checkpoints.pending) == list(given_up.checkpoints.positions) == ["x" + g.SILENT]
    assert given_up.checkpoints.is_complete("one")
    assert given_up.checkpoints.completed("one") is None
    cleared = state.apply(g.ClearCheckpointsBefore("two"))
    assert cleared.checkpoints.checkpoints == ("two", "x" + g.SILENT)
    assert "one" not in cleared.checkpoints.pending
    assert state.apply(g.ClearCheckpointsBefore("three")) == state
    # Nobody is there to answer it: complete at once.
    assert state_of().apply(g.CreateCheckpoint("c")).checkpoints.completed("c") == {SEG0: 5, SEG1: 6, SEG2: 7}


def test_checkpoints_are_cancelled_in_a_way_that_every_java_client_reads() -> None:
    """A Java client before 0.13 fails when it finds a RemoveOutstandingCheckpoints."""
    state = state_of(a={SEG0: 0})
    assert cancel_checkpoints(state) == []
    for name in ("one", "two", "x" + g.SILENT):
        state = state.apply(g.CreateCheckpoint(name))
    [update] = cancel_checkpoints(state)
    assert isinstance(update, g.CompactReaderGroupState)
    assert update == state.apply(g.RemoveOutstandingCheckpoints()).compacted()


def test_a_lag_of_a_reader_that_is_gone_is_harmless() -> None:
    before = state_of(a={SEG0: 0})
    state = before.apply(g.UpdateDistanceToTail("gone", 99_000, {SEG0: 8, "scope1/x/9": 1}))
    assert state.distances["gone"] == 99_000
    # After a reset its places may be ahead of where the group begins, and so would be the group's time.
    assert state.last_read == before.last_read
    lag = g.UpdateDistanceToTail("a", 99_000, {SEG0: 8, SEG1: 9, "scope1/x/9": 1})
    assert state.apply(lag).last_read == {**before.last_read, SEG0: 8}
    assert state.relative_sizes() == {"a": 1.0}
    assert state.ranking("a") == 0
    assert state.ranking("gone") == -1


def test_sizes_overflow_as_java_does() -> None:
    # A reader that has not told its distance counts with the largest number there is, times its segments.
    state = state_of(a={SEG0: 0, SEG1: 0}, b={SEG2: 0})
    assert state.relative_sizes() == {"a": -2 / float(2**63 - 1), "b": 1.0}
    assert (state.ranking("b"), state.ranking("a")) == (0, 1)


# --- bytes and values that make no sense ----------------------------------------------------------


def test_records_that_make_no_sense() -> None:
    with pytest.raises(IncompatibleVersionError):
        g.decode_group_record(bytes.fromhex("000e00010000000000"))
    with pytest.raises(DecodeError):
        g.decode_group_record(bytes.fromhex("0002000100000000"))
    with pytest.raises(DecodeError, match="lacks fields"):
        g.decode_group_record(bytes.fromhex("00020000"))
    with pytest.raises(DecodeError, match="not an initial state"):
        g.GroupStateFormat.initial_serializer.deserialize(g.encode_group_record(g.AddReader("a")))
    whole = bytearray(g.encode_group_config(ReaderGroupConfig({ORDERS: None})))
    whole[-25] = 9  # the ordinal of the retention type
    with pytest.raises(DecodeError, match="9"):
        g.decode_group_config(bytes(whole))
    for size in range(len(whole)):
        with pytest.raises(DecodeError):
            g.decode_group_config(bytes(whole[:size]))


def test_configurations_are_checked() -> None:
    other = ScopedStream("scope1", "other")
    config = ReaderGroupConfig.of([ORDERS])
    with pytest.raises(InvalidArgumentError, match="at least one stream"):
        ReaderGroupConfig({})
    with pytest.raises(InvalidArgumentError, match="not one of the group"):
        ReaderGroupConfig({ORDERS: None}, {other: None})
    with pytest.raises(InvalidStreamCutError, match=r"belongs to scope1/other"):
        ReaderGroupConfig({ORDERS: StreamCut(other, {0: 0})})
    with pytest.raises(InvalidArgumentError, match="max_outstanding"):
        ReaderGroupConfig({ORDERS: None}, max_outstanding_checkpoints=0)
    with pytest.raises(InvalidArgumentError, match="group_refresh_interval"):
        ReaderGroupConfig({ORDERS: None}, group_refresh_interval=-0.001)
    for start, end in [({0: 5}, {0: 4}), ({0: -1}, {0: 4}), ({2: 0}, {1: 4}), ({0: 1, 2: 0}, {0: 3, 1: 4})]:
        with pytest.raises(InvalidStreamCutError):
            ReaderGroupConfig.of([StreamCut(ORDERS, start)], ends=[StreamCut(ORDERS, end)])
    wrong = {other: StreamCut(ORDERS, {0: 5})}
    for give in (
        ReaderGroupConfig.of,
        config.starting_at,
        lambda cuts: ReaderGroupConfig.of(other, ends=cuts),
    ):
        with pytest.raises(InvalidStreamCutError, match=r"cut for .*other.* belongs to scope1/orders"):
            give(wrong)
    for named in (str(ORDERS), ORDERS.name):
        by_name: Any = {named: StreamCut(ORDERS, {0: 5})}
        assert ReaderGroupConfig.of(by_name).starts == {ORDERS: StreamCut(ORDERS, {0: 5})}
    whole = ReaderGroupConfig.of([StreamCut(ORDERS, {0: -1, 1: 3})], ends=[StreamCut(ORDERS, {0: -1, 1: 3})])
    assert whole.starts[ORDERS] == whole.ends[ORDERS]


def test_configurations_are_values() -> None:
    config = ReaderGroupConfig.of([ORDERS], automatic_checkpoint_interval=-0.001).with_identity(
        3, UUID(int=5)
    )
    copy = pickle.loads(pickle.dumps(config))
    assert identity(copy) == identity(config)
    assert hash(copy) == hash(config)
    assert config == config.with_identity(4, UUID(int=6))
    assert not config.automatic_checkpoints
    cut = StreamCut(ORDERS, {0: 9})
    assert config.starting_at([cut]).starts == {ORDERS: cut}
    # by stream, as a group's cuts are returned
    assert config.starting_at({ORDERS: cut}).starts == {ORDERS: cut}
    both = ReaderGroupConfig.of({ORDERS: cut}, ends={ORDERS: cut})
    assert (both.starts, both.ends) == ({ORDERS: cut}, {ORDERS: cut})
    assert ReaderGroupConfig.of(config.starts).starts == config.starts
    assert config.streams == (ORDERS,)
    with pytest.raises(TypeError):
        config.starts[ORDERS] = cut  # type: ignore[index]  # read-only


def test_a_group_that_is_to_be_fetched_in_less_than_no_time_can_be_read() -> None:
    """Java creates one."""
    config = ReaderGroupConfig.of("s/t")
    object.__setattr__(config, "group_refresh_interval", -0.005)
    assert g.decode_group_config(g.encode_group_config(config)).group_refresh_interval == 0
