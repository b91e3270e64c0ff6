"""Measures this client and its peers on the same work, on the same server, in the same run.

Every participant is a process that stays warm. For each piece of work the participants take turns,
round after round, starting with another one each time; the first round warms up and does not count.
Each append goes to a stream of its own, whose length is checked afterwards and which is then deleted;
all reads of one piece of work are of the same stream, and the events and bytes read are checked.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import IO, Any
from uuid import UUID, uuid4

from benchmarks.connector_env import connector_java, connector_python
from benchmarks.peers import Participant, ParticipantError, cpu_seconds, java_command, python_command
from benchmarks.picture import draw
from benchmarks.report import latencies, pauses, scale_table, spark_notes, spark_table, table
from benchmarks.scale import ScaleBench
from benchmarks.spark_bench import APPEND, CONNECTOR, OPERATIONS, SPARK, SparkBench
from benchmarks.spark_work import KINDS
from benchmarks.work import (
    COUNTER_BYTES,
    HEADER_BYTES,
    LENGTHS,
    LENGTHS_VARIABLE,
    POOL,
    interpreter,
    total_bytes,
)
from pravega_wire import PravegaConfig
from pravega_wire.sync import PravegaClient, open_client
from pravega_wire.testing import cluster, find_java, standalone

KEYS = 1000
SIZES = (100, 1000, 100_000)
SIZE_NAMES = {"100B": 100, "1kB": 1000, "100kB": 100_000}
SEGMENTS = (1, 4)
APPEND_EVENTS = {100: 500_000, 1000: 120_000, 100_000: 2000}
READ_EVENTS = {100: 2_000_000, 1000: 250_000, 100_000: 2500}
LATENCY_EVENTS, LATENCY_RATE = 2000, 400
LOAD_SIZE, LOAD_EVENTS, LOAD_SECONDS, LOAD_SHARES = 100, 500_000, 5, (0.1, 0.5, 0.8)
ACK_EVENTS = 1000
TRANSACTIONS, TRANSACTION_EVENTS, TRANSACTION_SIZE = 30, 1000, 100
SYNCHRONIZER_UPDATES, SYNCHRONIZER_TASKS = 800, (1, 8)
REST_SECONDS, REST_LOAD = 60, 0.2
# Servers that use less than so much of a core are at rest; how long to wait for that.
GROUPS = (
    "append",
    "read",
    "group",
    "latency",
    "load",
    "acks",
    "transactions",
    "synchronizer",
    "scale",
    "spark",
)
# Their records' CPU time of the servers would be of more than what is measured.
_PARTLY = ("group", "latency", "load", "acks", "transactions", "synchronizer")


@dataclass(frozen=True, slots=True)
class Entrant:
    """A participant in one kind of work.

    :ivar share: part of the events it gets; below 1 for those that would take minutes.
    :ivar sizes: event sizes it takes part with.
    :ivar segments: numbers of segments it takes part with; none: all.
    """

    participant: str
    share: float = 1.0
    sizes: tuple[int, ...] = SIZES
    segments: tuple[int, ...] = ()


ENTRANTS = {
    "append": (
        Entrant("java"),
        Entrant("pravega_wire"),
        Entrant("pravega_wire write_event"),
        Entrant("pravega_wire sync"),
        Entrant("pravega 0.3.8", share=0.5),
        Entrant("pravega 0.3.8 default", share=0.004, sizes=(100,), segments=(1,)),
        Entrant("raw frames"),
    ),
    "read": (
        Entrant("java"),
        Entrant("pravega_wire"),
        Entrant("pravega_wire batches"),
        Entrant("pravega_wire arrow"),
        Entrant("pravega_wire sync"),
        Entrant("pravega 0.3.8"),
        Entrant("raw frames"),
    ),
    "group": (
        Entrant("java"),
        Entrant("pravega_wire"),
        Entrant("pravega_wire nowait"),
        Entrant("pravega_wire payloads"),
        Entrant("pravega_wire batches"),
        Entrant("pravega_wire sync"),
        Entrant("pravega 0.3.8"),
    ),
    "latency": (
        Entrant("java"),
        Entrant("pravega_wire"),
        # With four segments its reader waits for ever.
        Entrant("pravega 0.3.8 default", segments=(1,)),
    ),
    "load": (
        Entrant("java"),
        Entrant("pravega_wire"),
    ),
    "acks": (
        Entrant("java"),
        Entrant("pravega_wire"),
        Entrant("pravega_wire sync"),
        Entrant("pravega 0.3.8 default", share=0.25),
    ),
    "transactions": (
        Entrant("java"),
        Entrant("pravega_wire"),
        Entrant("pravega_wire write_event"),
        Entrant("pravega 0.3.8"),
    ),
    "synchronizer": (
        Entrant("java"),
        Entrant("pravega_wire"),
    ),
}


def commands(
    uri: str, scope: str, directory: Path, spark_settings: Sequence[str] = ()
) -> dict[str, Callable[[], list[str]]]:
    """Return the command that starts each participant; those that are not installed are left out."""
    found: dict[str, Callable[[], list[str]]] = {
        "java": lambda: java_command(uri, scope, directory),
        "raw frames": lambda: python_command("raw_replay", uri, "--serve", scope),
    }
    for name, mode in (
        ("pravega_wire", "bulk"),
        ("pravega_wire write_event", "each"),
        ("pravega_wire batches", "batches"),
        ("pravega_wire arrow", "arrow"),
        ("pravega_wire nowait", "nowait"),
        ("pravega_wire payloads", "payloads"),
        ("pravega_wire sync", "sync-bulk"),
    ):
        found[name] = partial(python_command, "worker_wire", uri, scope, mode)
    if find_spec("pravega_client") is not None:
        for name, mode in (("pravega 0.3.8", "window"), ("pravega 0.3.8 default", "default")):
            found[name] = partial(python_command, "worker_pravega", uri, scope, mode)
    if find_spec("pyspark") is not None and find_spec("spark_adapter") is not None:
        found[SPARK] = partial(python_command, "worker_spark", uri, scope, *spark_settings)
        found[APPEND] = partial(python_command, "worker_append", uri, scope)
    return found


@dataclass
class Bench:
    """One run: the server, the participants and the records.

    :ivar lengths: how lengths of events vary; a key of ``LENGTHS``.
    :ivar sizes: the sizes of events to append and to read.
    :ivar segments: the numbers of segments of streams, except for scale, Spark and the synchronizer.
    :ivar connector: Python, ``JAVA_HOME`` and jar of the official Spark connector.
    :ivar spark_settings: of our Spark session, each ``NAME=VALUE``.
    """

    uri: str
    scope: str
    client: PravegaClient
    server_pids: Callable[[], list[int]]
    directory: Path
    rounds: int
    scale: float
    only: Sequence[str]
    out: IO[str]
    lengths: str = "fixed"
    sizes: Sequence[int] = SIZES
    segments: Sequence[int] = SEGMENTS
    records: list[dict[str, Any]] = field(default_factory=list)
    connector: tuple[Path, Path, Path] | None = None
    spark_settings: Sequence[str] = ()
    _participants: dict[str, Participant] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._commands = commands(self.uri, self.scope, self.directory, self.spark_settings)
        self._environments: dict[str, dict[str, str]] = {}
        if self.connector is not None:
            python, home, jar = self.connector
            self._commands[CONNECTOR] = lambda: [
                str(python), "-m", "benchmarks.worker_connector", self.uri, self.scope, str(jar),
            ]  # fmt: skip
            self._environments[CONNECTOR] = {"JAVA_HOME": str(home)}
        self._started = time.monotonic()

    def say(self, text: str) -> None:
        """Print progress to standard error."""
        print(f"[bench {time.monotonic() - self._started:4.0f} s] {text}", file=sys.stderr, flush=True)

    def available(self, name: str) -> bool:
        """Return True if a participant is installed and was selected."""
        return self.installed(name) and (not self.only or name in self.only)

    def installed(self, name: str) -> bool:
        """Return True if a participant is installed."""
        return name in self._commands

    def participant(self, name: str) -> Participant:
        """Return the running participant with this name."""
        if name not in self._participants:
            self._participants[name] = Participant(
                name, self._commands[name](), self.directory, self._environments.get(name)
            )
        return self._participants[name]

    def close(self) -> None:
        """End all participants."""
        for each in self._participants.values():
            each.stop()

    # --- streams ----------------------------------------------------------------------------------

    @contextmanager
    def stream(self, segments: int) -> Iterator[str]:
        """Create a new stream, and delete it afterwards."""
        name = f"s{uuid4().hex}"
        self.client.create_stream(name, segments)
        try:
            yield name
        finally:
            self.client.delete_stream(name, seal=True)

    def stored_bytes(self, stream: str) -> int:
        """Return the number of bytes in a stream that was never truncated or scaled."""
        return sum(self.client.tail(stream).positions.values())

    # --- measuring --------------------------------------------------------------------------------

    def measure(
        self,
        operation: str,
        size: int,
        segments: int,
        name: str,
        number: int,
        participant: Participant,
        *words: object,
    ) -> dict[str, Any]:
        """Send one request, and return its record, which is not checked yet."""
        record: dict[str, Any] = {
            "operation": operation,
            "participant": name,
            "size": size,
            # A time or a state is as long as it is.
            "lengths": "fixed" if operation.startswith(("latency", "load", "synchronizer")) else self.lengths,
            "segments": segments,
            "round": number,
            "warm_up": number == 0,
        }
        try:
            participant.start()
            pids = self.server_pids()
            before = cpu_seconds(pids)
            answer = participant.request(*words)
            after = cpu_seconds(pids)
        except ParticipantError as error:
            record["error"] = str(error)
            return record
        if before is not None and after is not None and operation.partition(",")[0] not in _PARTLY:
            record["server_cpu_seconds"] = after - before
        return record | answer

    def add(
        self,
        record: dict[str, Any],
        *,
        events: int,
        stored: int | None = None,
        whole: int | None = None,
        payload: int | None = None,
    ) -> None:
        """Check a record against the expected result, and keep it.

        :param stored: bytes that are in the stream now.
        :param whole: and how many there must be; default: those of the events.
        :param payload: bytes of the events without their headers; default: those of an append.
        """
        if payload is None:
            raw = record["participant"] == "raw frames" and record["operation"] == "append"
            # It begins each block with the same event.
            payload = record["bytes"] if raw and "bytes" in record else total_bytes(record["size"], events)
        if whole is None:
            whole = payload + events * HEADER_BYTES
        if "error" not in record:
            if record["participant"] == "raw frames" and record["operation"] == "read":
                # It counts bytes as they are stored and knows no events.
                wrong = record["bytes"] != whole
                record["events"], record["bytes"] = events, payload
            else:
                wrong = (record["events"], record["bytes"]) != (events, payload)
            if wrong:
                record["error"] = f"{events} events were expected"
            elif stored is not None and stored != whole:
                record["error"] = f"{stored} bytes are stored instead of {whole}"
        if "error" not in record:
            record["events_per_second"] = record["events"] / record["seconds"]
            record["mb_per_second"] = record["bytes"] / record["seconds"] / 1e6
        else:
            self.say(f"{record['participant']}: {record['error']}")
        self.records.append(record)
        self.out.write(json.dumps(record) + "\n")
        self.out.flush()

    def turns(self, names: Sequence[str]) -> Iterator[tuple[int, str]]:
        """Iterate over rounds (0 is the warm-up) and participants; each round starts with another one."""
        for number in range(self.rounds + 1):
            shift = number % len(names)
            for name in (*names[shift:], *names[:shift]):
                yield number, name

    def scaled(self, events: float) -> int:
        """Return a number of events at the scale of this run."""
        return max(64, round(events * self.scale))

    def scaled_bytes(self, events: float) -> int:
        """As :meth:`scaled`, but fewer where lengths vary so that events are larger."""
        return self.scaled(events / max(1.0, sum(LENGTHS[self.lengths]) / (1000 * POOL)))

    # --- work -------------------------------------------------------------------------------------

    def entrants(self, operation: str, size: int, segments: int) -> dict[str, Entrant]:
        """Return the names of the participants."""
        return {
            entrant.participant: entrant
            for entrant in ENTRANTS[operation]
            if self.available(entrant.participant)
            and (size in entrant.sizes or size not in SIZES)
            and (not entrant.segments or segments in entrant.segments)
        }

    def run_append(self) -> None:
        """Run all appends."""
        for size in self.sizes:
            for segments in self.segments:
                self.say(f"append {size} B, {segments} segment(s)")
                entrants = self.entrants("append", size, segments)
                for number, name in self.turns(list(entrants)):
                    count = self.scaled_bytes(APPEND_EVENTS[size] * entrants[name].share)
                    keys = KEYS if segments > 1 else 0
                    with self.stream(segments) as stream:
                        record = self.measure(
                            "append", size, segments, name, number, self.participant(name),
                            "append", stream, size, count, keys,
                        )  # fmt: skip
                        self.add(record, events=count, stored=self.stored_bytes(stream))

    def run_read(self, operation: str = "read") -> None:
        """Run all reads, each of a stream that is filled once.

        :param operation: "read" through the batch client, "group" through a group of one reader.
        """
        for size in self.sizes:
            for segments in self.segments:
                self.say(f"{operation} {size} B, {segments} segment(s)")
                entrants = self.entrants(operation, size, segments)
                count = self.scaled_bytes(READ_EVENTS[size])
                with self.stream(segments) as stream:
                    payload = self.fill(stream, size, count)
                    for number, name in self.turns(list(entrants)):
                        record = self.measure(
                            operation, size, segments, name, number, self.participant(name),
                            operation, stream, count,
                        )  # fmt: skip
                        self.add(record, events=count, payload=payload)

    def run_latency(self) -> None:
        """Measure the time of an event from a writer to a reader, at a rate that all participants can
        sustain."""
        count = self.scaled(LATENCY_EVENTS)
        for segments in self.segments:
            for size in SIZES[:2]:
                self.say(f"latency {size} B, {segments} segment(s)")
                entrants = self.entrants("latency", size, segments)
                for number, name in self.turns(list(entrants)):
                    with self.stream(segments) as stream:
                        record = self.measure(
                            "latency", size, segments, name, number, self.participant(name),
                            "latency", stream, size, count, LATENCY_RATE,
                        )  # fmt: skip
                        self.add(record, events=count, payload=count * size)

    def run_load(self) -> None:
        """Measure the same at parts of the highest rate that every participant sustains."""
        for segments in self.segments:
            highest = self.load("load, highest", segments, self.scaled(LOAD_EVENTS), 0)
            if highest is None:
                continue
            for share in LOAD_SHARES:
                rate = max(1, round(highest * share))
                self.load(f"load, {share:.0%} ({rate}/s)", segments, self.scaled(rate * LOAD_SECONDS), rate)

    def load(self, operation: str, segments: int, count: int, rate: int) -> float | None:
        """Write and read at a rate; return the events a second of the slowest participant (median)."""
        self.say(f"{operation}, {segments} segment(s)")
        rates: dict[str, list[float]] = {}
        for number, name in self.turns(list(self.entrants("load", LOAD_SIZE, segments))):
            with self.stream(segments) as stream:
                record = self.measure(
                    operation, LOAD_SIZE, segments, name, number, self.participant(name),
                    "load", stream, LOAD_SIZE, count, rate,
                )  # fmt: skip
                self.add(record, events=count, payload=count * LOAD_SIZE)
            if number and "error" not in record:
                rates.setdefault(name, []).append(record["events_per_second"])
        return min(map(median, rates.values()), default=None)

    def run_acks(self) -> None:
        """Measure the time of one append, when each is awaited before the next."""
        for segments in self.segments:
            for size in SIZES[:2]:
                self.say(f"acks {size} B, {segments} segment(s)")
                entrants = self.entrants("acks", size, segments)
                for number, name in self.turns(list(entrants)):
                    count = self.scaled(ACK_EVENTS * entrants[name].share)
                    keys = KEYS if segments > 1 else 0
                    with self.stream(segments) as stream:
                        record = self.measure(
                            "acks", size, segments, name, number, self.participant(name),
                            "acks", stream, size, count, keys,
                        )  # fmt: skip
                        whole = total_bytes(size, POOL) + total_bytes(size, count)
                        whole += (count + POOL) * HEADER_BYTES
                        self.add(record, events=count, stored=self.stored_bytes(stream), whole=whole)

    def run_transactions(self) -> None:
        """Measure the time of a transaction, one after the other."""
        size, events = TRANSACTION_SIZE, TRANSACTION_EVENTS
        count = max(2, round(TRANSACTIONS * self.scale))
        for segments in self.segments:
            self.say(f"transactions of {events} events of {size} B, {segments} segment(s)")
            keys = KEYS if segments > 1 else 0
            for number, name in self.turns(list(self.entrants("transactions", size, segments))):
                with self.stream(segments) as stream:
                    record = self.measure(
                        "transactions", size, segments, name, number, self.participant(name),
                        "transactions", stream, size, events, count, keys,
                    )  # fmt: skip
                    for txn_id in record.pop("transactions", ()):
                        self.client.wait_committed(stream, UUID(txn_id))
                    payload = total_bytes(size, events)
                    whole = (count + 1) * (payload + events * HEADER_BYTES)
                    stored = self.stored_bytes(stream)
                    self.add(
                        record, events=count * events, stored=stored, whole=whole, payload=count * payload
                    )

    def run_synchronizer(self) -> None:
        """Measure conditional updates of one state, by one task and by several at the same time."""
        for tasks in SYNCHRONIZER_TASKS:
            operation = f"synchronizer, {tasks} task{'s' * (tasks > 1)}"
            self.say(operation)
            each = self.scaled(SYNCHRONIZER_UPDATES) // tasks
            for number, name in self.turns(list(self.entrants("synchronizer", COUNTER_BYTES, 1))):
                with self.stream(1) as stream:
                    record = self.measure(
                        operation, COUNTER_BYTES, 1, name, number, self.participant(name),
                        "synchronizer", stream, tasks, each,
                    )  # fmt: skip
                    # A record's kind, and for an update its length, come before the number.
                    start, update = (HEADER_BYTES + extra + COUNTER_BYTES for extra in (4, 8))
                    whole = start + (each + 1) * tasks * update
                    stored = self.stored_bytes(stream)
                    self.add(
                        record, events=each * tasks, stored=stored, whole=whole,
                        payload=each * tasks * COUNTER_BYTES,
                    )  # fmt: skip

    def fill(self, stream: str, size: int, count: int) -> int:
        """Append events without measuring; returns the bytes of their payloads."""
        filler = Participant("filler", self._commands["raw frames"](), self.directory)
        try:
            payload = int(filler.request("append", stream, size, count, 0)["bytes"])
        finally:
            filler.stop()
        stored = self.stored_bytes(stream)
        if stored != payload + count * HEADER_BYTES:
            raise ParticipantError(f"filling a stream stored {stored} bytes for {count} events")
        self.rest()
        return payload

    def rest(self) -> None:
        """Wait until the stores have moved appended data to long-term storage, so that they are idle."""
        pids = self.server_pids()
        end = time.monotonic() + REST_SECONDS
        before = cpu_seconds(pids)
        while before is not None and time.monotonic() < end:
            time.sleep(1)
            after = cpu_seconds(pids)
            if after is None or after - before < REST_LOAD:
                break
            before = after


def machine(kind: str) -> dict[str, Any]:
    """Describe the machine and the versions that the numbers depend on."""
    model = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    versions: dict[str, str | None] = {}
    for package in ("trio", "pravega", "pyspark", "pyarrow"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    return {
        "machine": platform.machine(),
        "processor": model,
        "cores": os.cpu_count(),
        "system": platform.platform(),
        **interpreter(),
        "java": find_java().version,
        "server": kind,
        "versions": versions,
        "date": time.strftime("%Y-%m-%d"),
    }


def tables(records: Sequence[dict[str, Any]]) -> str:
    """Return all tables that have rows."""
    has_others = any(
        "participant" in record and not {"spark", "p50_ms"} & record.keys() for record in records
    )
    parts = [table(records) if has_others else ""]
    parts += [show(records) for show in (latencies, scale_table, spark_table, pauses, spark_notes)]
    return "\n\n".join(part for part in parts if part)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--server", choices=("cluster", "standalone"), default="cluster",
        help="what to start (the standalone server holds everything in memory: only with --quick)",
    )  # fmt: skip
    parser.add_argument("--uri", help="use the Pravega server at this controller URI, and start none")
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds (default 3)")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="factor for all numbers of events (default 1)"
    )
    parser.add_argument(
        "--lengths", choices=tuple(LENGTHS), default="60-140",
        help="how the lengths of events vary, named for events of 100 B (default 60-140)",
    )  # fmt: skip
    parser.add_argument(
        "--events", nargs="+", choices=tuple(SIZE_NAMES), default=tuple(SIZE_NAMES), metavar="SIZE",
        help=f"sizes of events to append and to read: {', '.join(SIZE_NAMES)} (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--segments", type=int, nargs="+", default=SEGMENTS, metavar="N",
        help="numbers of segments of a stream, except for scale, Spark and the synchronizer (default: 1 4)",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="one round with a tenth of the events")
    parser.add_argument(
        "--work", nargs="+", choices=GROUPS, default=GROUPS, help="kinds of work (default: all)"
    )
    parser.add_argument("--only", nargs="+", default=(), help="participants (default: all)")
    parser.add_argument(
        "--spark-connector", type=Path, metavar="JAR",
        help="the official Scala connector's jar, to take part in the work of Spark",
    )  # fmt: skip
    parser.add_argument(
        "--spark-events", nargs="+", choices=tuple(KINDS), default=tuple(KINDS), metavar="KIND",
        help=f"kinds of events for the work of Spark: {', '.join(KINDS)} (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--spark-operations", nargs="+", choices=OPERATIONS, default=(), metavar="OPERATION",
        help=f"operations of the work of Spark: {', '.join(map(repr, OPERATIONS))} (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--spark-conf", action="append", default=[], metavar="NAME=VALUE",
        help="a setting of this project's Spark session, not of the connector's",
    )  # fmt: skip
    parser.add_argument(
        "--idle-seconds", type=float, default=5.0,
        help="pause before the reads that come after one (default 5; 0: none; after 60 Spark ends workers)",
    )  # fmt: skip
    parser.add_argument(
        "--output", type=Path, default=Path("bench-results.jsonl"),
        help="file for one JSON object a measurement ('-': standard output)",
    )  # fmt: skip
    parser.add_argument("--table", type=Path, metavar="FILE", help="only print the tables of a file")
    parser.add_argument(
        "--picture", type=Path, metavar="PNG",
        help="also draw the results into this file; those of scale into PNG with '-scale' before its ending",
    )  # fmt: skip
    return parser.parse_args()


def main() -> int:
    arguments = parse()
    if arguments.table is not None:
        records = [json.loads(line) for line in arguments.table.read_text().splitlines()]
        print(tables(records))
        if arguments.picture is not None:
            draw(records, arguments.picture)
        return 0
    for setting in arguments.spark_conf:
        if "=" not in setting:
            raise SystemExit(f"error: --spark-conf: {setting!r} is not NAME=VALUE")
    connector = None
    if arguments.spark_connector is not None and "spark" in arguments.work:
        jar = arguments.spark_connector.resolve()
        if not jar.is_file():
            raise SystemExit(f"error: --spark-connector: there is no file {jar}")
        try:
            connector = connector_python(), connector_java(), jar
        except ParticipantError as error:
            raise SystemExit(f"error: {error}") from None
    # Participants are processes, and read it there.
    os.environ[LENGTHS_VARIABLE] = arguments.lengths
    rounds, scale = arguments.rounds, arguments.scale
    if arguments.quick:
        rounds, scale = 1, scale / 10
    with ExitStack() as stack:
        pids: Callable[[], list[int]] = list
        if arguments.uri is not None:
            kind, uri = "address", arguments.uri
        else:
            kind = arguments.server
            server = stack.enter_context(
                cluster() if kind == "cluster" else standalone(kind="jars", memory="3g")
            )
            uri = server.controller_uri

            def pids() -> list[int]:
                return [each.pid for each in server.processes if each.pid is not None]

        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        scope = f"bench-{uuid4().hex[:8]}"
        config = PravegaConfig.from_defaults(controller_uri=uri, scope=scope, env={})
        client = stack.enter_context(open_client(config))
        client.create_scope(scope)
        out: IO[str] = (
            sys.stdout if str(arguments.output) == "-" else stack.enter_context(arguments.output.open("w"))
        )
        bench = Bench(
            uri,
            scope,
            client,
            pids,
            directory,
            rounds,
            scale,
            arguments.only,
            out,
            lengths=arguments.lengths,
            sizes=[SIZE_NAMES[each] for each in arguments.events],
            segments=arguments.segments,
            connector=connector,
            spark_settings=arguments.spark_conf,
        )
        stack.callback(bench.close)
        spark = SparkBench(
            bench, arguments.spark_events, arguments.only, arguments.idle_seconds, arguments.spark_operations
        )
        description = machine(kind) | {"rounds": rounds, "scale": scale, "lengths": arguments.lengths}
        if connector is not None:
            description["spark_connector"] = connector[2].name
        if arguments.spark_conf:
            description["spark_conf"] = arguments.spark_conf
        out.write(json.dumps(description) + "\n")
        for group, run in (
            ("append", bench.run_append),
            ("read", bench.run_read),
            ("group", partial(bench.run_read, "group")),
            ("latency", bench.run_latency),
            ("load", bench.run_load),
            ("acks", bench.run_acks),
            ("transactions", bench.run_transactions),
            ("synchronizer", bench.run_synchronizer),
            ("scale", ScaleBench(bench).run),
            ("spark", spark.run),
        ):
            if group in arguments.work:
                run()
        bench.say("done")
        print(json.dumps(description, indent=1), file=sys.stderr)
        # Where the records go to standard output, the table must not be among them.
        screen = sys.stderr if out is sys.stdout else sys.stdout
        print(tables(bench.records), file=screen)
        if arguments.picture is not None:
            draw(bench.records, arguments.picture)
    return 1 if any("error" in record for record in bench.records) else 0


if __name__ == "__main__":
    raise SystemExit(main())
