"""Participants of a benchmark: processes that keep running and process one request after the other."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from benchmarks.work import LENGTHS, LENGTHS_VARIABLE
from pravega_wire.testing import client_classpath, compile_java, find_java

__all__ = [
    "Participant", "ParticipantError", "TreeWatch", "cpu_seconds", "java_command", "python_command",
]  # fmt: skip

ROOT = Path(__file__).resolve().parent.parent
_TICKS = os.sysconf("SC_CLK_TCK")
_LOOK_SECONDS = 0.25


class ParticipantError(Exception):
    """A participant has failed, has ended, or did not reply in time."""


def python_command(module: str, *arguments: str) -> list[str]:
    """Return a participant that is a module of this package."""
    return [sys.executable, "-m", f"benchmarks.{module}", *arguments]


def java_command(uri: str, scope: str, directory: Path) -> list[str]:
    """Return the participant in ``java/BenchPeer.java``, compiled into ``directory``.

    Its shared state is that of the interoperability tests.
    """
    classpath = client_classpath()
    classes = directory / "classes"
    sources = sorted((Path(__file__).parent / "java").glob("*.java"))
    sources.append(ROOT / "tests" / "interop" / "java" / "SharedSum.java")
    compile_java(sources, classes, classpath)
    # The client logs at INFO by default, and more than it sends.
    quiet = directory / "logback.xml"
    quiet.write_text('<configuration><root level="OFF"/></configuration>')
    return [
        str(find_java().executable),
        "-Xmx1g",
        f"-Dbench.lengths={','.join(map(str, LENGTHS[os.environ.get(LENGTHS_VARIABLE, 'fixed')]))}",
        f"-Dlogback.configurationFile={quiet}",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
        "-cp",
        os.pathsep.join(map(str, [classes, *classpath])),
        "BenchPeer",
        uri,
        scope,
    ]


class Participant:
    """One process. It is started by its first request, and again after a failure."""

    def __init__(
        self, name: str, command: Sequence[str], log_dir: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self._env = None if env is None else {**os.environ, **env}
        self._command = list(command)
        self._log = log_dir / f"{name.replace(' ', '-').replace('/', '-')}.log"
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    @property
    def pid(self) -> int | None:
        """The process, if it is running."""
        return None if self._process is None else self._process.pid

    def start(self, timeout: float = 120.0) -> None:
        """Start the process if it is not running, and wait until it is ready."""
        if self._process is not None and self._process.poll() is None:
            return
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                env=self._env,
            )
        self._lines = queue.SimpleQueue()
        threading.Thread(target=_pump, args=(self._process, self._lines), daemon=True).start()
        self._answer(timeout)

    def request(self, *words: object, timeout: float = 300.0) -> dict[str, Any]:
        """Send a request and wait for its reply; this adds ``peak_rss`` (bytes) if the system reports it.

        :raises ParticipantError: it failed; the next request starts it anew.
        """
        self.start()
        assert self._process is not None
        assert self._process.stdin is not None
        _reset_peak(self._process.pid)
        self._process.stdin.write("\t".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        answer = self._answer(timeout)
        answer["peak_rss"] = _peak(self._process.pid)
        return answer

    def _answer(self, timeout: float) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=timeout)
        except queue.Empty:
            self.stop(kill=True)
            raise ParticipantError(f"{self.name} has not answered in {timeout:g} s") from None
        if line is None:
            self.stop(kill=True)
            tail = self._log.read_text(errors="replace")[-600:]
            raise ParticipantError(f"{self.name} has ended: {tail}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            self.stop(kill=True)
            raise ParticipantError(f"{self.name}: {answer['error']}")
        return answer

    def stop(self, *, kill: bool = False) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        try:
            process.stdin.close()
        except BrokenPipeError:
            pass
        if not kill:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                kill = True
        if kill:
            process.kill()
        process.wait()


def _pump(process: subprocess.Popen[str], lines: queue.SimpleQueue[str | None]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        # Libraries print to standard output now and then; answers are JSON objects.
        if line.startswith("{"):
            lines.put(line)
    lines.put(None)


def _reset_peak(pid: int) -> None:
    try:
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    except OSError:
        return


def _peak(pid: int) -> int | None:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return None


def cpu_seconds(pids: Sequence[int]) -> float | None:
    """Return the CPU time of processes so far, with all threads; None if the system does not report it."""
    total = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        total += int(fields[11]) + int(fields[12])
    return total / _TICKS if pids else None


class TreeWatch:
    """Measure the CPU seconds of a process and all its descendants while this context is entered.

    It looks every now and then, because nobody can be asked about a worker that has ended: PySpark's daemon
    ignores the end of its children. What one takes after the last look at it is lost.

    :ivar jvm: seconds of Java processes, after the end. :ivar python: of all others. Both are None where the
        system does not tell.
    """

    def __init__(self, root: int, proc: Path = Path("/proc")) -> None:
        self._root = root
        self._proc = proc
        self._first: dict[tuple[int, str], int] = {}
        self._last: dict[tuple[int, str], int] = {}
        self._java: set[tuple[int, str]] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.jvm: float | None = None
        self.python: float | None = None

    def __enter__(self) -> Self:
        self.look()
        self._first = dict(self._last)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
        self.look()
        if not self._first:
            return
        jvm = python = 0
        for process, ticks in self._last.items():
            taken = ticks - self._first.get(process, 0)
            if process in self._java:
                jvm += taken
            else:
                python += taken
        self.jvm, self.python = jvm / _TICKS, python / _TICKS

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            self.look()

    def look(self) -> None:
        """Record the CPU time of each process of the tree so far."""
        stats: dict[int, tuple[str, list[str]]] = {}
        children: dict[int, list[int]] = {}
        for path in self._proc.glob("[0-9]*/stat"):
            try:
                head, _, rest = path.read_text().rpartition(")")
            except OSError:
                continue
            pid, fields = int(path.parent.name), rest.split()
            stats[pid] = (head.partition("(")[2], fields)
            children.setdefault(int(fields[1]), []).append(pid)
        left = [self._root]
        while left:
            pid = left.pop()
            left += children.get(pid, ())
            if pid in stats:
                name, fields = stats[pid]
                # A number may be given to another process later; that one began at another time.
                process = (pid, fields[19])
                self._last[process] = int(fields[11]) + int(fields[12])
                # The shell script that starts Spark becomes Java.
                if name == "java":
                    self._java.add(process)
