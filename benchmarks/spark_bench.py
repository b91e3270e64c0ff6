"""The work of ``--work spark``: the measurements, their participants, and the checks of their results."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

from benchmarks.peers import Participant, ParticipantError, TreeWatch, cpu_seconds
from benchmarks.report import AFTER_PAUSE
from benchmarks.spark_work import CYCLE, EVENT, FILES, KEY, KEYS, KINDS, EventKind, slices
from benchmarks.work import HEADER_BYTES

__all__ = ["APPEND", "CONNECTOR", "OPERATIONS", "SMALL_ROWS", "SPARK", "Form", "SparkBench", "write_files"]

SEGMENTS = 4
SMALL_ROWS = 50_000
SMALL_KIND = "100B"
ANSWER_SECONDS = 900.0

SPARK, CONNECTOR, APPEND = "spark", "connector", "append"
"""Programs: ours in PySpark, the official connector, an append without Spark."""


@dataclass(frozen=True, slots=True)
class Form:
    """One row of the table.

    :ivar name: of the row. :ivar program: whom to ask. :ivar form: how it is called there.
    """

    name: str
    program: str
    form: str


_FLOORS = (Form("floor, data source", SPARK, "floor-source"), Form("floor, mapInArrow", SPARK, "floor-map"))
_READS = (
    *_FLOORS,
    Form("read_df", SPARK, "read_df"),
    Form("format", SPARK, "format"),
    Form("connector", CONNECTOR, "read"),
)
_WRITES = (
    Form("floor", SPARK, "floor"),
    Form("ForeachBatchSink at_least_once", SPARK, "sink-at_least_once"),
    Form("ForeachBatchSink exactly_once", SPARK, "sink-exactly_once"),
    Form("format at_least_once", SPARK, "format-at_least_once"),
    Form("format exactly_once", SPARK, "format-exactly_once"),
    Form("connector at_least_once", CONNECTOR, "at_least_once"),
    Form("connector exactly_once", CONNECTOR, "exactly_once"),
)
_APPEND = Form("pravega_wire append", APPEND, "append")

READS: dict[str, tuple[str, str, tuple[Form, ...]]] = {
    "read to no-op": ("noop", "all", _READS),
    "read to no-op, event": ("noop", "event", _READS),
    "read and count": ("count", "all", (*_READS[:-1], Form("read_rdd", SPARK, "read_rdd"), _READS[-1])),
    "read and count, event": ("count", "event", _READS),
}
WRITES: dict[str, tuple[str, tuple[Form, ...]]] = {
    "batch write": ("batch", (*_WRITES, _APPEND)),
    "stream write": ("stream", _WRITES),
}
# Both by the name of the operation in the table.

SMALL, PAUSE = "small", "pause"
OPERATIONS = (*READS, *WRITES, SMALL, PAUSE)
"""What can be chosen: the operations, the small jobs, and the read after a pause."""

_MIXED = ("read to no-op", "read to no-op, event", "batch write")
# What is done to events of different lengths.


class Host(Protocol):
    """What this work needs of the benchmark around it."""

    out: IO[str]
    rounds: int
    records: list[dict[str, Any]]
    server_pids: Callable[[], list[int]]
    directory: Path

    def say(self, text: str) -> None: ...
    def installed(self, name: str) -> bool: ...
    def participant(self, name: str) -> Participant: ...
    def scaled(self, events: float) -> int: ...
    def turns(self, names: Sequence[str]) -> Iterator[tuple[int, str]]: ...
    def rest(self) -> None: ...
    def stored_bytes(self, stream: str) -> int: ...
    def stream(self, segments: int) -> Any: ...


@dataclass
class SparkBench:
    """The work of one run.

    :ivar kinds: names of the kinds of events. :ivar only: names of rows, or none for all.
    :ivar idle_after: the pause before the last reads; 0 for none.
    :ivar operations: some of ``OPERATIONS``, or none for all.
    """

    host: Host
    kinds: Sequence[str]
    only: Sequence[str] = ()
    idle_after: float = 5.0
    operations: Sequence[str] = ()
    _lacking: set[tuple[str, str]] = field(default_factory=set)

    def run(self) -> None:
        """Everything; what fails is a record with an error."""
        for number, name in enumerate(self.kinds):
            kind = KINDS[name]
            count = self.host.scaled(kind.count)
            mixed = kind.shortest != kind.longest
            with self._files(kind, count) as folder:
                reads, writes = (
                    [op for op in work if self._wanted(op) and (not mixed or op in _MIXED)]
                    for work in (READS, WRITES)
                )
                idle = number == 0 and self.idle_after > 0 and self._wanted(PAUSE)
                if reads or idle:
                    self._read(kind, count, folder, reads, idle=idle)
                self._write(kind, count, folder, writes)
        if not self._wanted(SMALL):
            return
        kind, count = KINDS[SMALL_KIND], min(SMALL_ROWS, self.host.scaled(SMALL_ROWS))
        with self._files(kind, count) as folder:
            self._read(kind, count, folder, ["read and count"], ", small")
            self._write(kind, count, folder, list(WRITES), ", small")

    def _wanted(self, operation: str) -> bool:
        return not self.operations or operation in self.operations

    # --- work ---------------------------------------------------------------------------------------

    def _read(
        self,
        kind: EventKind,
        count: int,
        folder: Path,
        operations: Sequence[str],
        label: str = "",
        *,
        idle: bool = False,
    ) -> None:
        with self._filled(kind, count, folder) as stream:
            for operation in operations:
                work, columns, _ = READS[operation]
                self.host.say(f"spark: {operation}{label}, {count} events of {kind.name}")
                forms = self._forms(READS[operation][2])
                for number, form in self._turns(operation + label, forms):
                    words = (work, form.form, stream, columns, kind.name, count)
                    self._measure(operation + label, kind, count, number, form, words)
            if idle:
                self._idle(kind, count, stream)

    def _write(
        self, kind: EventKind, count: int, folder: Path, operations: Sequence[str], label: str = ""
    ) -> None:
        for operation in operations:
            work, every = WRITES[operation]
            self.host.say(f"spark: {operation}{label}, {count} events of {kind.name}")
            for number, form in self._turns(operation + label, self._forms(every)):
                with self.host.stream(SEGMENTS) as stream:
                    words = (work, form.form, stream, folder, kind.name, count)
                    written = None if form.form == "floor" else stream
                    self._measure(operation + label, kind, count, number, form, words, written)
                # What was written is still on its way to long-term storage; it must not disturb the next.
                self.host.rest()

    def _idle(self, kind: EventKind, count: int, stream: str) -> None:
        """The first read after a pause, once for each: the second one would not come after a pause."""
        work, columns, every = READS["read and count"]
        forms = self._forms([each for each in every if not each.form.startswith("floor")])
        for pause in (0.0, self.idle_after):
            # the first one is what the other is compared with
            operation = f"{AFTER_PAUSE}{pause:g} s"
            self.host.say(f"spark: {operation} in which nothing was asked for")
            time.sleep(pause)
            for form in forms:
                words = (work, form.form, stream, columns, kind.name, count)
                self._measure(operation, kind, count, 1, form, words)

    # --- participants -------------------------------------------------------------------------------

    def _forms(self, every: Sequence[Form]) -> list[Form]:
        return [
            each
            for each in every
            if self.host.installed(each.program)
            and (not self.only or each.name in self.only or each.program in self.only)
        ]

    def _turns(self, operation: str, forms: Sequence[Form]) -> Iterator[tuple[int, Form]]:
        """Rounds, as all work has them, without those that turned out not to be there."""
        by_name = {each.name: each for each in forms}
        for number, name in self.host.turns(list(by_name)) if by_name else ():
            if (operation, name) not in self._lacking:
                yield number, by_name[name]

    # --- streams and files --------------------------------------------------------------------------

    @contextmanager
    def _files(self, kind: EventKind, count: int) -> Iterator[Path]:
        folder = self.host.directory / f"events-{kind.name}-{count}"
        write_files(folder, kind, count)
        try:
            yield folder
        finally:
            shutil.rmtree(folder)

    @contextmanager
    def _filled(self, kind: EventKind, count: int, folder: Path) -> Iterator[str]:
        """A stream of the events; the servers are at rest."""
        with self.host.stream(SEGMENTS) as stream:
            answer = self.host.participant(APPEND).request(
                "append", "append", stream, folder, kind.name, count
            )
            stored = self.host.stored_bytes(stream)
            whole = kind.bytes_of(count) + count * HEADER_BYTES
            if stored != whole:
                raise ParticipantError(f"filling a stream stored {stored} bytes instead of {whole}: {answer}")
            self.host.rest()
            yield stream

    # --- measuring ----------------------------------------------------------------------------------

    def _measure(
        self,
        operation: str,
        kind: EventKind,
        count: int,
        number: int,
        form: Form,
        words: Sequence[object],
        written: str | None = None,
    ) -> None:
        """One request, checked and recorded.

        :param written: the stream that must hold the events afterwards, and nothing else.
        """
        record: dict[str, Any] = {
            "spark": operation,
            "participant": form.name,
            "kind": kind.name,
            "segments": SEGMENTS,
            "round": number,
            "warm_up": number == 0,
        }
        payload = kind.bytes_of(count)
        participant = self.host.participant(form.program)
        try:
            participant.start(ANSWER_SECONDS)
            assert participant.pid is not None
            pids = self.host.server_pids()
            with TreeWatch(participant.pid) as taken:
                before = cpu_seconds(pids)
                record |= participant.request(*words, timeout=ANSWER_SECONDS)
                after = cpu_seconds(pids)
        except ParticipantError as error:
            record["error"] = str(error)
        else:
            # Spark's work is in several processes, so what one of them says of itself means nothing.
            for name in ("peak_rss", "cpu_seconds"):
                record.pop(name, None)
            if taken.jvm is not None and taken.python is not None:
                record["jvm_cpu_seconds"], record["python_cpu_seconds"] = taken.jvm, taken.python
            if before is not None and after is not None:
                record["server_cpu_seconds"] = after - before
        if "unavailable" in record:
            self.host.say(f"{form.name}: not available: {record['unavailable']}")
            self._lacking.add((operation, form.name))
        elif "error" not in record:
            whole = payload + count * HEADER_BYTES
            stored = whole if written is None else self.host.stored_bytes(written)
            if (record["events"], record["bytes"]) != (count, payload):
                record["error"] = (
                    f"{record['events']} events of {record['bytes']} bytes instead of {count} of {payload}"
                )
            elif stored != whole:
                record["error"] = f"{stored} bytes are stored instead of {whole}"
        if "error" in record:
            self.host.say(f"{form.name}: {record['error']}")
        elif "unavailable" not in record:
            record["events_per_second"] = count / record["seconds"]
            record["mb_per_second"] = payload / record["seconds"] / 1e6
        self.host.records.append(record)
        self.host.out.write(json.dumps(record) + "\n")
        self.host.out.flush()


def write_files(folder: Path, kind: EventKind, count: int) -> None:
    """The first ``count`` events of a kind with their keys, as ``FILES`` Parquet files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    events = pa.array(kind.pool(), pa.binary())
    keys = pa.array([f"key-{number}" for number in range(KEYS)])
    for number, (start, share) in enumerate(slices(count, FILES)):
        every = range(start, start + share)
        table = pa.table(
            {
                EVENT: events.take(pa.array([each % CYCLE for each in every], pa.int32())),
                KEY: keys.take(pa.array([each % KEYS for each in every], pa.int32())),
            }
        )
        # A dictionary would make the repeated events cheaper to read than different ones.
        pq.write_table(table, folder / f"{number:02}.parquet", compression="none", use_dictionary=[KEY])
