"""What happens to a Spark driver in the middle of its work, in whatever process of it that is.

Spark runs parts of a query in Python processes of their own: planning a source, tasks, the commit of a sink.
All of them belong to the session (of the operating system) of the driver that a harness has started; that is
how they find each other, and how a harness finds them. Executors of a cluster do not: they get the driver's
session by an environment variable.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

__all__ = ["PLAN", "SESSION", "Notes", "Plan", "Scene", "Victim", "command_of", "end", "session_members"]

PLAN, SESSION = "SPARK_KILLS_PLAN", "SPARK_KILLS_SESSION"
"""Environment variables of a driver's processes: the plan's file, and the operating system's session."""

Victim = Literal["self", "python", "jvm", "group"]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a driver does, and what becomes of it.

    :ivar form: ``foreachBatch`` or ``writeStream`` from files to the stream, or ``source``: from the stream
        to files.
    :ivar archive: file with Java's shared archive of Spark's classes, which halves the CPU time of a driver's
        start.
    :ivar step: where something is done, once: one of :data:`spark_adapter.STEPS`, or the name of a call of
        the source. :ivar at_batch: only in this batch.
    :ivar act: what: kill the process it happens in (``self``), the driver's ``python``, its ``jvm`` or all
        (``group``); ``stop`` the process it happens in by SIGSTOP; ``pause`` until somebody opens the pipe
        ``go`` for writing.
    :ivar stall: what a partition does in its middle, in the first attempt of the first batch: "" for nothing,
        ``wait`` until the file ``marker`` is there, ``exit`` for the end of its Python worker.
    :ivar more_streams: others that a ``source`` reads together with ``stream``.
    :ivar target: folder for the rows that a ``source`` gives. :ivar trigger: "" for all that there is now, or
        an interval.
    :ivar max_bytes: limit of a batch of a ``source``. :ivar max_events: the same, 0 for none.
    """

    controller: str
    scope: str
    stream: str
    ledger: str
    files: str
    checkpoint: str
    events: str
    go: str
    marker: str
    target: str = ""
    trigger: str = ""
    max_bytes: int = 0
    max_events: int = 0
    more_streams: tuple[str, ...] = ()
    form: str = "foreachBatch"
    query: str = "kills"
    master: str = "local[2,4]"
    settings: dict[str, str] = field(default_factory=dict)
    partitions: int = 2
    lease_ms: int = 30_000
    by_rows: bool = False
    archive: str = ""
    step: str | None = None
    at_batch: int | None = None
    act: str = ""
    stall: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, path: str) -> Self:
        return cls(**json.loads(Path(path).read_text()))

    @classmethod
    def of_this_process(cls) -> Self | None:
        """The plan of the driver that this process belongs to."""
        path = os.environ.get(PLAN)
        return None if path is None else cls.read(path)


class Notes:
    """Lines into the named pipe of a harness that listens.

    :ivar batch: the batch that is at work, -1 before the first.
    """

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY)
        self.batch = -1

    def __call__(self, what: str, **more: Any) -> None:
        line = {"what": what, "batch": self.batch, "time": time.time(), "pid": os.getpid(), **more}
        # one write below PIPE_BUF: lines of several processes do not mix
        os.write(self._file, (json.dumps(line) + "\n").encode())


class Scene:
    """One process of a driver, where the plan's step may come."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.notes = Notes(plan.events)

    def reached(self, step: str) -> None:
        """Tell of a step, and do what the plan says if it is this one."""
        self.notes("step", step=step)
        plan = self.plan
        if step != plan.step or plan.at_batch not in (None, self.notes.batch) or not once(f"{plan.go}.done"):
            return
        match plan.act:
            case "pause":
                self.notes("paused", step=step)
                with open(plan.go, encoding="ascii"):  # opens when the harness opens it
                    pass
            case "stop":
                self.notes("stopping", step=step)
                # to this thread: it would run on for a while if another one had to take the signal first
                signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
            case "self" | "python" | "jvm" | "group":
                self.notes("killed", step=step)
                # an executor of a cluster is in another session than its driver
                end(plan.act, int(os.environ.get(SESSION) or os.getsid(0)))

    def note_transactions(self) -> None:
        """Tell which transactions this process begins: some never get into a ledger."""
        from pravega_wire.sync import PravegaClient

        begin = PravegaClient.begin_transaction

        def noted(client: PravegaClient, *args: Any, **options: Any) -> Any:
            txn = begin(client, *args, **options)
            self.notes("begun", txn=txn.txn_id.hex)
            return txn

        PravegaClient.begin_transaction = noted  # type: ignore[method-assign, assignment]


def once(path: str) -> bool:
    """Whether this is the first call of all processes with this path."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def command_of(pid: int) -> str:
    """Command line of a process; "" if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def session_members(session: int) -> list[int]:
    """Processes of a session (Linux): also those whose parent is gone or that lead a group of their own."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # it ended meanwhile
                state, _, _, its_session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
                if int(its_session) == session and state != "Z":
                    found.append(int(entry.name))
    return found


def jvm_of(session: int) -> list[int]:
    """The driver's JVM in a session; not those of executors."""
    return [
        each
        for each in session_members(session)
        if "org.apache.spark.deploy.SparkSubmit" in command_of(each)
        and "java" in command_of(each).split(" ")[0]
    ]


def end(victim: Victim, session: int) -> None:
    """``kill -9`` a part of a driver, this process last if it is one of them."""
    who: Iterable[int]
    match victim:
        case "self":
            who = [os.getpid()]
        case "python":
            who = [session]
        case "jvm":
            who = jvm_of(session)
        case "group":
            who = session_members(session)
    for pid in sorted(who, key=lambda each: each == os.getpid()):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
