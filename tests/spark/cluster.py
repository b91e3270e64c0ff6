"""A Spark standalone cluster on this machine: a master and workers, each a process of its own.

They are started with nothing of this package on their Python path. What they say about being ready comes from
what they log, so nothing here waits for longer than it has to.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import pyspark

from examples.flights_demo.processes import descendants, kill_all
from pravega_wire.testing.processes import Guard

SPARK_HOME = Path(pyspark.__file__).parent
SECONDS_TO_START = 120


class Daemon:
    """A Java process of Spark: what it logs, and a line of the log that is waited for."""

    def __init__(
        self, log: Path, wanted: str, *arguments: str, memory: str = "256m", python_path: str = ""
    ) -> None:
        variables = {**os.environ, "PYTHONPATH": python_path, "PYSPARK_PYTHON": sys.executable}
        variables |= {
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": memory,
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -Dspark.master.rest.enabled=false",
        }
        # spark-class becomes the Java process, so that its id is the one that is started here.
        self._process = subprocess.Popen(
            [str(SPARK_HOME / "bin" / "spark-class"), *arguments],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.pid = self._process.pid
        Guard.tell(f"+{self.pid}")  # whatever becomes of the tests
        self._log = log
        self._found: Future[str] = Future()
        self._reader = threading.Thread(target=self._read, args=(re.compile(wanted),), daemon=True)
        self._reader.start()

    def ready(self) -> str:
        """Wait for the line; what its group matched."""
        return self._found.result(timeout=SECONDS_TO_START)

    def _read(self, wanted: re.Pattern[str]) -> None:
        assert self._process.stderr is not None
        with self._log.open("w") as log:
            for line in self._process.stderr:
                log.write(line)
                log.flush()
                match = wanted.search(line)
                if match and not self._found.done():
                    self._found.set_result(match[1])
        if not self._found.done():
            self._found.set_exception(RuntimeError(f"it ended early:\n{self._log.read_text()[-3000:]}"))

    def kill(self) -> None:
        """``kill -9`` of the process and of all that it has started: executors and their Python."""
        kill_all([*descendants(self.pid), self.pid])
        self._process.wait()
        Guard.tell(f"-{self.pid}")
        # What was started with its standard error is gone as well when the pipe ends.
        self._reader.join(SECONDS_TO_START)


@dataclass
class StandaloneCluster:
    """``spark://`` URI of a running master, and its workers of one core each.

    :ivar apart: each worker has an address of its own: Spark runs a speculative attempt on another host only.
    """

    directory: Path
    uri: str
    apart: bool = False
    workers: list[Daemon] = field(default_factory=list)
    _started: int = 0

    def add_workers(self, count: int) -> None:
        """Start workers; returns when the master knows them."""
        added = []
        for _ in range(count):
            self._started += 1
            place = self.directory / f"worker-{self._started}"
            added.append(
                Daemon(
                    place.with_suffix(".log"),
                    "(Successfully registered) with master",
                    "org.apache.spark.deploy.worker.Worker",
                    *("--host", f"127.0.0.{self._started if self.apart else 1}"),
                    *("--port", "0", "--webui-port", "0"),
                    *("--cores", "1", "--memory", "1g", "--work-dir", str(place), self.uri),
                )
            )
            self.workers.append(added[-1])
        for each in added:
            each.ready()

    def lose_worker_of(self, pid: int) -> None:
        """``kill -9`` of the worker that has started this process, and of all it has started."""
        lost = next(each for each in self.workers if each.pid in ancestors(pid))
        self.workers.remove(lost)
        lost.kill()


@contextmanager
def standalone_cluster(
    directory: Path, workers: int = 2, *, apart: bool = False
) -> Iterator[StandaloneCluster]:
    """A cluster that is gone when the block ends; logs are in ``directory``."""
    with ExitStack() as stack:
        master = Daemon(
            directory / "master.log",
            r"Starting Spark master at (spark://\S+)",
            "org.apache.spark.deploy.master.Master",
            *("--host", "127.0.0.1", "--port", "0", "--webui-port", "0"),
        )
        stack.callback(master.kill)
        cluster = StandaloneCluster(directory, master.ready(), apart)
        stack.callback(lambda: [each.kill() for each in cluster.workers])
        cluster.add_workers(workers)
        yield cluster


@contextmanager
def connect_server(directory: Path, python_path: str) -> Iterator[str]:
    """A Spark Connect server with two task slots; the URL for its clients."""
    server = Daemon(
        directory / "connect.log",
        r"Spark Connect server started at: \S*:(\d+)",
        "org.apache.spark.deploy.SparkSubmit",
        *("--master", "local[2]", "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *("--conf", "spark.ui.enabled=false"),
        *("--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1"),  # a short life
        *("--conf", "spark.driver.host=127.0.0.1"),
        *("--conf", "spark.connect.grpc.binding.address=127.0.0.1"),
        *("--conf", "spark.connect.grpc.binding.port=0"),
        "spark-internal",
        memory="1g",
        python_path=python_path,
    )
    try:
        yield f"sc://127.0.0.1:{server.ready()}"
    finally:
        server.kill()


# --- processes ------------------------------------------------------------------------------------


def ancestors(pid: int) -> list[int]:
    """The process itself, its parent, and so on; only those that are still there."""
    found = []
    while pid:
        try:
            # the name in parentheses may hold anything
            parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            break
        found.append(pid)
        pid = parent
    return found


def executor_of(pid: int) -> int:
    """The executor (a Java process) that a Python worker belongs to."""
    for each in ancestors(pid):
        if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{each}/cmdline").read_bytes():
            return each
    raise AssertionError(f"process {pid} belongs to no executor")


# --- tasks that wait to be killed -----------------------------------------------------------------


class Gate:
    """Where tasks stop in the middle of their work, until somebody has done something about it.

    ``stopped`` is called with the process id of the first task that comes; the task does not go on before
    it returns. Every later task passes.
    """

    def __init__(self, stopped: Callable[[int], None]) -> None:
        self._stopped = stopped
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._threads = ThreadPoolExecutor(1)
        self.passed: list[int] = []

    def __enter__(self) -> Self:
        self._future = self._threads.submit(self._serve)
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._threads.shutdown()
        self._socket.close()
        self._future.result()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return  # closed
            with connection:
                pid = int(connection.makefile().readline())
                if not self.passed:
                    self._stopped(pid)
                self.passed.append(pid)
                with suppress(ConnectionError):
                    connection.sendall(b"go")


def wait_at(port: int) -> None:
    """For a task: stop here until the gate lets it go on."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"%d\n" % os.getpid())
        connection.recv(2)
