"""Java and Python readers in one group, and what each says of it to the other."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pravega_wire import ReaderGroupConfig, StreamCut
from pravega_wire.errors import CheckpointTimeoutError, ReaderGroupError
from pravega_wire.protocol import group_state as g
from pravega_wire.sync import PravegaClient
from tests.faults.support import assert_exactly, equal_ranges, event_of
from tests.interop.java_peer import JavaPeer, java_command, start_java_peer
from tests.java_values import decode_checkpoint, decode_event_pointer, decode_position, encode_checkpoint
from tests.property.group_simulation import STREAM
from tests.property.test_group_model import run_group
from tests.unit.test_group_golden import ordered

REPOSITORY = Path(__file__).parents[2]
REFRESH_MS = 300
WAIT_SECONDS = 90.0


@dataclass(frozen=True)
class Seen:
    """An event that a reader has printed.

    :ivar at: microseconds since 1970. :ivar position: the reader's after the event, in base64.
    """

    at: int
    segment: str
    offset: int
    payload: bytes
    position: str


class ReaderProcess:
    """A reader in a process of its own, and what it has printed.

    :param changed: told whenever any reader has printed something.
    """

    def __init__(
        self,
        command: Sequence[str],
        changed: threading.Condition,
        uri: str,
        scope: str,
        group: str,
        reader: str,
    ) -> None:
        self.reader = reader
        self.events: list[Seen] = []
        self.checkpoints: list[str] = []
        self.joined = 0
        self.changed = changed
        self.process = subprocess.Popen(
            [*command, uri, scope, group, reader],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
        )
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.endswith("\n"):
                break  # Killed while it printed: not read, as far as anybody knows.
            words = line.rstrip("\n").split("\t")
            with self.changed:
                if words[0] == "EVENT":
                    pointer = decode_event_pointer(b64decode(words[2]))
                    self.events.append(
                        Seen(
                            int(words[1]),
                            pointer.segment,
                            pointer.start_offset,
                            b64decode(words[3]),
                            words[4],
                        )
                    )
                elif words[0] == "CHECKPOINT":
                    self.checkpoints.append(words[1])
                elif words[0] == "READY":
                    self.joined += 1
                self.changed.notify_all()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Until what was printed makes the condition true; hangs end with an error."""
        with self.changed:
            assert self.changed.wait_for(condition, WAIT_SECONDS), f"{self.reader} does not come there"

    def kill(self) -> str:
        """End it at once; returns the last position that it has told."""
        self.process.kill()
        self.process.wait()
        self._thread.join()
        return self.events[-1].position

    def leave(self) -> None:
        """Let it leave the group and end."""
        assert self.process.stdin is not None
        if self.process.poll() is None:
            self.process.stdin.write("leave\n")
            self.process.stdin.close()
            assert self.process.wait(WAIT_SECONDS) == 0
        self._thread.join()


@pytest.fixture
def start(
    client: PravegaClient, pravega_scope: str, java_directory: Path
) -> Iterator[Callable[[str, str], ReaderProcess]]:
    """Starts a reader: "java" or "python", and its name."""
    started: list[ReaderProcess] = []
    changed = threading.Condition()

    def begin(language: str, reader: str) -> ReaderProcess:
        if language == "java":
            command = java_command(java_directory, "GroupReader")
        else:
            command = [sys.executable, "-m", "tests.interop.group_reader"]
        started.append(
            ReaderProcess(command, changed, client.config.controller_uri, pravega_scope, "g", reader)
        )
        return started[-1]

    yield begin
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait()


@pytest.fixture
def java_group(client: PravegaClient, pravega_scope: str, java_directory: Path) -> Iterator[JavaPeer]:
    """The Java client's view of group "g"."""
    with start_java_peer(
        client.config.controller_uri, java_directory, pravega_scope, "g", program="GroupPeer"
    ) as peer:
        yield peer


def write(client: PravegaClient, start: int, end: int) -> None:
    with client.event_writer("s") as writer:
        for number in range(start, end):
            writer.write_event(*event_of(number))
        writer.flush()


def scale(client: PravegaClient, segments: int) -> None:
    active = [each.segment_id for each in client.active_segments("s")]
    client.scale_stream("s", active, equal_ranges(segments))


def all_events(readers: Sequence[ReaderProcess]) -> list[Seen]:
    return sorted((each for reader in readers for each in reader.events), key=lambda each: each.at)


def wait_for_all(readers: Sequence[ReaderProcess], count: int) -> None:
    """Until the readers have read so many events together."""
    readers[0].wait_for(lambda: sum(len(each.events) for each in readers) >= count)


@pytest.mark.parametrize("creator", ["java", "python"])
def test_one_group(
    client: PravegaClient,
    java_group: JavaPeer,
    start: Callable[[str, str], ReaderProcess],
    creator: str,
) -> None:
    """The stream scales while they read, and a reader of each language is killed: each event is read once."""
    client.create_stream("s", 1)
    scale(client, 2)
    if creator == "java":
        java_group.call("create", REFRESH_MS, 1000, "s")
    else:
        config = ReaderGroupConfig.of(
            [client.config.resolve("s")],
            group_refresh_interval=REFRESH_MS / 1000,
            automatic_checkpoint_interval=1,
        )
        assert client.create_reader_group("g", config) is True
        java_group.call("open")
    with client.reader_group("g") as group:
        readers = [start("java", "j1"), start("python", "p1"), start("python", "p2")]
        for each in readers:
            each.wait_for(lambda each=each: each.joined == 1)
        write(client, 0, 1000)
        scale(client, 4)
        written = 1000
        # All of them are at work, however late they came.
        while not all(each.events for each in readers):
            write(client, written, written + 200)
            written += 200
            wait_for_all(readers, written)
        group.refresh()
        assert group.online_readers == {"j1", "p1", "p2"}
        assert [row[0] for row in java_group.call("online")] == ["j1", "p1", "p2"]

        write(client, written, written + 1000)
        written += 1000
        # The record of this says that a reader leaves that is not there; Java readers apply it, too.
        with pytest.raises(ReaderGroupError, match="nobody is not in"):
            group.reader_offline("nobody")
        killed_java = readers[0].kill()
        scale(client, 3)
        write(client, written, written + 1000)
        written += 1000
        group.reader_offline("j1", decode_position(b64decode(killed_java)))
        readers.append(start("java", "j2"))
        readers[-1].wait_for(lambda: readers[-1].joined == 1)

        killed_python = readers[1].kill()
        scale(client, 1)
        write(client, written, written + 1000)
        written += 1000
        java_group.call("offline", "p1", killed_python)
        wait_for_all(readers, written)

        group.checkpoint("end")
        assert int(java_group.value("unread")) == group.unread_bytes() == 0
        for each in readers[2:]:
            each.leave()
        events = all_events(readers)
        assert len({(each.segment, each.offset) for each in events}) == len(events)
        assert_exactly([each.payload for each in events], written)
        group.refresh()
        assert group.online_readers == frozenset()
        assert java_group.call("online") == []


@pytest.mark.parametrize("taker", ["java", "python"])
def test_checkpoints_of_one_reset_the_other(
    client: PravegaClient,
    java_group: JavaPeer,
    start: Callable[[str, str], ReaderProcess],
    taker: str,
) -> None:
    client.create_stream("s", 2)
    write(client, 0, 500)
    if taker == "python":
        java_group.call("create", REFRESH_MS, -1, "s")
    else:
        client.create_reader_group(
            "g",
            ReaderGroupConfig.of(
                [client.config.resolve("s")],
                group_refresh_interval=REFRESH_MS / 1000,
                automatic_checkpoint_interval=-0.001,
            ),
        )
        java_group.call("open")
    with client.reader_group("g") as group:
        readers = [start("java", "j"), start("python", "p")]
        for each in readers:
            each.wait_for(lambda each=each: each.joined == 1)
        wait_for_all(readers, 500)
        if taker == "java":
            java_group.call("checkpoint", "middle")
            taken = decode_checkpoint(b64decode(java_group.value("checkpointed")))
        else:
            taken = group.checkpoint("middle")
        for each in readers:
            each.wait_for(lambda each=each: each.checkpoints == ["middle"])
        assert taken.name == "middle"
        [cut] = taken.cuts
        assert cut == client.tail("s")
        [[text]] = java_group.call("cuts")
        assert StreamCut.from_text(text) == cut
        assert [row[0] for row in java_group.call("distribution")] == ["j", "p", ""]

        write(client, 500, 1000)
        wait_for_all(readers, 1000)
        if taker == "java":
            assert group.reset(taken).generation == 1
        else:
            java_group.call("reset", b64encode(encode_checkpoint(taken)).decode())
        for each in readers:
            each.wait_for(lambda each=each: each.joined == 2)
        wait_for_all(readers, 1500)
        for each in readers:
            each.leave()
        group.refresh()
        assert group.config.generation == 1
        events = all_events(readers)
        assert_exactly([each.payload for each in events[:1000]], 1000)
        # The second half again.
        again = sorted(each.payload for each in events[1000:])
        assert again == sorted(event_of(number)[0] for number in range(500, 1000))
        java_group.call("delete")
        assert client.list_reader_groups() == []


@pytest.mark.parametrize(("stopped", "taker"), [("java", "python"), ("python", "java")])
def test_a_checkpoint_that_one_reader_holds_up(
    client: PravegaClient,
    java_group: JavaPeer,
    start: Callable[[str, str], ReaderProcess],
    stopped: str,
    taker: str,
) -> None:
    """It is withdrawn; the reader that has answered it continues, and both answer the next one."""
    client.create_stream("s", 2)
    write(client, 0, 200)
    java_group.call("create", REFRESH_MS, -1, "s")
    with client.reader_group("g") as group:
        readers = {"java": start("java", "j"), "python": start("python", "p")}
        both = list(readers.values())
        for each in both:
            each.wait_for(lambda each=each: each.joined == 1)
        # Each has a segment.
        group.checkpoint("begin", timeout=WAIT_SECONDS)
        written = 200
        while not all(len(owned) == 1 for owned in group.segment_distribution.values()):
            group.checkpoint(timeout=WAIT_SECONDS)
            group.refresh()
        wait_for_all(both, written)

        still = readers.pop(stopped)
        [moving] = readers.values()
        still.process.send_signal(signal.SIGSTOP)
        with pytest.raises(CheckpointTimeoutError, match=still.reader) as caught:
            group.checkpoint("held", timeout=5)
        assert list(caught.value.waiting_for) == [still.reader]
        assert caught.value.withdrawn
        moving.wait_for(lambda: "held" in moving.checkpoints)
        with pytest.raises(CheckpointTimeoutError, match=still.reader):
            group.generate_stream_cuts(timeout=2)
        group.refresh()
        assert group.outstanding_checkpoints == ()
        # The other reads on meanwhile.
        before = len(moving.events)
        write(client, written, written + 200)
        written += 200
        moving.wait_for(lambda: len(moving.events) > before)

        still.process.send_signal(signal.SIGCONT)
        wait_for_all(both, written)
        if taker == "java":
            java_group.call("checkpoint", "after")
            after = decode_checkpoint(b64decode(java_group.value("checkpointed")))
        else:
            after = group.checkpoint("after", timeout=WAIT_SECONDS)
        for each in both:
            each.wait_for(lambda each=each: each.checkpoints[-1] == "after")
        assert after.cuts == (client.tail("s"),)
        assert [row[0] for row in java_group.call("online")] == ["j", "p"]
        for each in both:
            each.leave()
        assert_exactly([each.payload for each in all_events(both)], written)


# --- the state's bytes ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def state_peer(java_directory: Path) -> Iterator[JavaPeer]:
    program = "io.pravega.client.stream.impl.GroupStatePeer"
    with start_java_peer("", java_directory, program=program) as peer:
        yield peer


def replayed(peer: JavaPeer, records: Sequence[g.GroupUpdate]) -> tuple[list[g.GroupUpdate], Any]:
    """Records as Java writes them again, and its compacted state after them."""
    encoded = [b64encode(g.encode_group_record(each)).decode() for each in records]
    rows = peer.call(len(records), lines=encoded)
    *again, compacted = [g.decode_group_record(b64decode(row)) for [row] in rows]
    return again, compacted


def plain(record: g.GroupUpdate) -> g.GroupUpdate:
    """As read again; readers that wait for a checkpoint, a set in Java, in the order of their names."""
    again = g.decode_group_record(g.encode_group_record(record))
    return ordered(again) if isinstance(again, g.CompactReaderGroupState) else again


def check_same(peer: JavaPeer, records: Sequence[g.GroupUpdate]) -> None:
    again, compacted = replayed(peer, records)
    assert [plain(each) for each in again] == [plain(each) for each in records]
    assert plain(compacted) == plain(group_state_after(records).compacted())


seen_types: set[type] = set()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), data=st.data())
@pytest.mark.needs("0.13", "the update RemoveOutstandingCheckpoints in its Java client")
def test_java_makes_the_same_state_of_whole_lives(
    state_peer: JavaPeer, seed: int, data: st.DataObject
) -> None:
    """What a group's readers wrote in their lives, and then what its owner may write."""
    group = run_group(seed, steps=120)
    records = [update for updates in group.log for update in updates]
    cut = data.draw(st.integers(0, len(records) - 1))
    if cut:
        # Somebody who joins late begins with a compacted state.
        check_same(state_peer, [group_state_after(records[:cut]).compacted(), *records[cut:]])
    last = group.state.config
    start, end = sorted(data.draw(st.tuples(st.integers(0, 2**60), st.integers(0, 2**60))))
    other = ReaderGroupConfig(
        {STREAM: StreamCut(STREAM, {0: start})},
        {STREAM: StreamCut(STREAM, {0: end})},
        group_refresh_interval=data.draw(st.integers(0, 2**40)),
    ).with_identity(last.generation + 1, last.group_id)
    extra: list[g.GroupUpdate] = [
        g.UpdateCheckpointPublished(data.draw(st.booleans())),
        g.UpdatingConfig(data.draw(st.booleans())),
        g.CreateCheckpoint(data.draw(st.text(min_size=1, max_size=20))),
        g.RemoveOutstandingCheckpoints(),
        g.ReaderGroupStateInit(other, {f"{STREAM}/0.#epoch.0": 5}, {}, {f"{STREAM}/0.#epoch.0": (0.0, 1.0)}),
    ]
    extra = data.draw(st.permutations(extra))
    check_same(state_peer, [*records, *extra])
    seen_types.update(map(type, [*records, *extra]))


def group_state_after(records: Sequence[g.GroupUpdate]) -> g.GroupState:
    first = records[0]
    assert isinstance(first, g.ReaderGroupStateInit | g.CompactReaderGroupState)
    state = g.GroupState.begin(first)
    for each in records[1:]:
        state = state.apply(each)
    return state


@pytest.mark.needs("0.13", "the update RemoveOutstandingCheckpoints in its Java client")
def test_all_kinds_of_records_were_replayed() -> None:
    assert {each.__name__ for each in seen_types} == {
        "ReaderGroupStateInit", "CompactReaderGroupState", "AddReader", "RemoveReader",
        "ReleaseSegment", "AcquireSegment",
        "UpdateDistanceToTail", "SegmentCompleted", "CheckpointReader", "CreateCheckpoint",
        "ClearCheckpointsBefore", "UpdateCheckpointPublished", "UpdatingConfig",
        "RemoveOutstandingCheckpoints",
    }  # fmt: skip
