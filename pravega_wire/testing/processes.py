"""Server processes on this machine, and their ports and directories for data and logs."""

from __future__ import annotations

import atexit
import fcntl
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain, repeat
from pathlib import Path
from random import SystemRandom
from typing import IO

from pravega_wire.errors import InvalidArgumentError, ServerEndedError, ServerStartError
from pravega_wire.support.checks import check_count
from pravega_wire.testing.jars import cache_directory

__all__ = [
    "Guard",
    "ServerProcess",
    "check_port",
    "data_directory",
    "free_ports",
    "is_free",
    "log_directory",
    "new_log_dir",
    "release_log_dir",
]

_KEPT_LOGS = 20


class Guard:
    """The child process that kills this process's servers if it dies; one for all servers."""

    _lock = threading.Lock()
    _process: subprocess.Popen[str] | None = None

    @classmethod
    def tell(cls, word: str) -> None:
        with cls._lock:
            if cls._process is None or cls._process.poll() is not None:
                cls._process = subprocess.Popen(
                    [sys.executable, "-I", str(Path(__file__).with_name("_guard.py"))],
                    stdin=subprocess.PIPE,
                    text=True,
                    start_new_session=True,
                )
                atexit.register(cls.close)
            assert cls._process.stdin is not None
            cls._process.stdin.write(word + "\n")
            cls._process.stdin.flush()

    @classmethod
    def close(cls) -> None:
        with cls._lock:
            if cls._process is not None and cls._process.stdin is not None:
                cls._process.stdin.close()
                cls._process.wait()
                cls._process = None

    @classmethod
    def forked(cls) -> None:
        """Let go of the parent's guard, which would otherwise wait until this process has ended, too."""
        cls._lock = threading.Lock()
        process, cls._process = cls._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()


os.register_at_fork(after_in_child=Guard.forked)


@dataclass(slots=True)
class ServerProcess:
    """One server process that a test may kill and restart.

    :ivar name: name for messages and the log file.
    :ivar command: the command line.
    :ivar address: the server's ``(host, port)``.
    :ivar log: the log file.
    :ivar environment: variables in addition to this process's.
    """

    name: str
    command: list[str]
    address: tuple[str, int]
    log: Path
    environment: dict[str, str] = field(default_factory=dict, repr=False)
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def pid(self) -> int | None:
        """The process id, or None if the process is not running."""
        return self._process.pid if self._process is not None and self.alive else None

    @property
    def alive(self) -> bool:
        """True if the process is running."""
        return self._process is not None and self._process.poll() is None

    def ending(self) -> ServerEndedError | None:
        """Return the error for a process that has run out of memory and ended; None if that did not
        happen."""
        if self._process is None or self.alive:
            return None
        out = self.log.with_suffix(".out").read_text(errors="replace")
        found = re.search(r"java\.lang\.OutOfMemoryError.*", out[out.rfind("Terminating due to ") :])
        if "Terminating due to " not in out or found is None:
            return None
        heap = next((each.removeprefix("-Xmx") for each in self.command if each.startswith("-Xmx")), "")
        return ServerEndedError(
            f"the test server {self.name} has ended: it ran out of memory ({found[0].strip()}, with "
            f"memory={heap}); give it more (memory=, or --memory of pravega-wire-server), or use cluster(), "
            f"which keeps data on disk; its logs are in {self.log.parent}"
        )

    def start(self) -> None:
        """Start the process, without waiting until it is ready; no effect if it is running."""
        if self.alive:
            return
        # One that has ended by itself: its id may be another program's by now, which the guard must not kill.
        self._gone()
        out: IO[bytes]
        with self.log.with_suffix(".out").open("ab") as out:
            try:
                self._process = subprocess.Popen(
                    self.command,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    cwd=self.log.parent,
                    env=os.environ | self.environment,
                )
            except OSError as error:
                raise ServerStartError(f"{self.name} cannot be started: {error}") from error
        Guard.tell(f"+{self._process.pid}")

    def _signal(self, number: int) -> None:
        if self._process is not None and self.alive:
            self._process.send_signal(number)

    def kill(self) -> None:
        """Kill the process with SIGKILL, and wait until it has ended."""
        self._signal(signal.SIGCONT)
        self._signal(signal.SIGKILL)
        self._gone()

    def stop(self, timeout: float = 15.0) -> None:
        """End the process with SIGTERM; kill it if it has not ended after ``timeout`` seconds.

        :param timeout: seconds to wait before killing it.
        """
        self._signal(signal.SIGCONT)
        self._signal(signal.SIGTERM)
        if self._process is not None:
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                self._signal(signal.SIGKILL)
        self._gone()

    def _gone(self) -> None:
        if self._process is not None:
            pid = self._process.pid
            self._process.wait()
            self._process = None
            Guard.tell(f"-{pid}")

    def restart(self) -> None:
        """Kill the process and start it again."""
        self.kill()
        self.start()

    def suspend(self) -> None:
        """Suspend the process with SIGSTOP: its connections stay open, and it does not respond."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue a suspended process."""
        self._signal(signal.SIGCONT)

    def explain(self) -> str:
        """Return the end of the process's logs, for an error message."""
        lines: list[str] = []
        for path in (self.log, self.log.with_suffix(".out")):
            if path.exists():
                lines += path.read_text(errors="replace").splitlines()[-8:]
        return "\n".join(lines)


_LAST_PORT = 65535
_FIRST_CANDIDATE = 10_000
_CONNECTIONS_FROM = 49152  # where the system does not tell: RFC 6335


def check_port(port: int | None) -> None:
    """Check the port that a server is to listen on; None and 0 are any.

    :raises ServerStartError: it is not a port.
    """
    if port is not None:
        try:
            check_count("a port", port, 0, _LAST_PORT)
        except InvalidArgumentError as error:
            raise ServerStartError(str(error)) from error


def free_ports(count: int, *, first: int | None = None) -> list[int]:
    """Return different ports that are currently free.

    :param count: how many.
    :param first: the first port of the list; None for any.
    :raises ServerStartError: another program listens on ``first``, or it is not a port.
    """
    check_port(first)
    with ExitStack() as stack:
        ports: list[int] = []
        wanted = chain([first] if first else [], (each for each in _candidates() if each != first), repeat(0))
        while len(ports) < count:
            port = next(wanted)
            try:
                listener = stack.enter_context(_listening(port, again=port == first))
            except OSError as error:
                if port not in (first, 0):
                    continue
                raise ServerStartError(
                    f"port {port} of 127.0.0.1 is not free ({error.strerror}): "
                    "choose another one, or none to have a free one found"
                ) from error
            ports.append(listener.getsockname()[1])
        return ports


@contextmanager
def _listening(port: int, *, again: bool = False) -> Iterator[socket.socket]:
    with socket.socket() as listener:
        if again:
            # A server that has just ended leaves connections behind, which do not matter to the next one.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        # Two sockets may be bound to one address with that option; only one of them can listen.
        listener.listen()
        yield listener


def _candidates() -> Iterator[int]:
    """Ports that the system gives to no connection, which could take one before the server does."""
    try:
        limit = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError):
        limit = _CONNECTIONS_FROM
    ports = range(_FIRST_CANDIDATE, limit)
    if ports:
        # Not the module's own numbers: processes that test with the same seed would look for the same ports.
        begin = SystemRandom().randrange(len(ports))
        yield from ports[begin:]
        yield from ports[:begin]


def is_free(port: int) -> bool:
    """Whether a server could listen on this port of 127.0.0.1 now."""
    try:
        free_ports(1, first=port)
    except ServerStartError:
        return False
    return True


_MARK = "in-use"
_NEEDED_BYTES = 1 << 16  # more than settings, certificates and keys take
_NEEDED_DATA_BYTES = 1 << 22  # more than a server writes until it is ready
_marks: dict[Path, IO[bytes]] = {}
"""Open files that mark log directories in use; each is locked until it is released or this process ends."""


def new_log_dir(name: str) -> Path:
    """Create a directory for one server's logs, and delete the oldest ones.

    The directory is not deleted before :func:`release_log_dir` is called or this process has ended.

    :param name: name of the server.
    :raises ServerStartError: the cache directory cannot be written to.
    """
    base = cache_directory() / "logs"
    try:
        base.mkdir(parents=True, exist_ok=True)
        _prune(base)
        made = Path(tempfile.mkdtemp(prefix=f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-", dir=base))
        # So that a full disk is told here, and not by one of the files that a server needs to start.
        (made / _MARK).write_bytes(bytes(_NEEDED_BYTES))
        _marks[made] = (made / _MARK).open("r+b")
    except OSError as error:
        raise ServerStartError(
            f"the directory for logs {base} cannot be written to ({error.strerror or error}): set "
            "PRAVEGA_WIRE_CACHE to a directory that can"
        ) from error
    fcntl.flock(_marks[made], fcntl.LOCK_EX)
    return made


def release_log_dir(directory: Path) -> None:
    """Mark the logs of a server that has ended; they are kept as long as they are among the newest."""
    mark = _marks.pop(directory, None)
    if mark is not None:
        (directory / _MARK).unlink(missing_ok=True)
        mark.close()


@contextmanager
def log_directory(name: str) -> Iterator[Path]:
    """Create a directory for one server's logs; it is released when the context ends."""
    made = new_log_dir(name)
    try:
        yield made
    finally:
        release_log_dir(made)


def _in_use(directory: Path) -> bool:
    try:
        with (directory / _MARK).open("rb") as mark:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _changed_at(directory: Path) -> float:
    try:
        return os.path.getmtime(directory)
    except FileNotFoundError:
        return 0.0  # another process deletes old logs, too


def _prune(base: Path) -> None:
    """Delete the oldest logs, except those of running servers."""
    directories = sorted((each for each in base.iterdir() if each.is_dir()), key=_changed_at)
    for old in directories[:-_KEPT_LOGS]:
        if not _in_use(old):
            shutil.rmtree(old, ignore_errors=True)


def _no_place(error: OSError, directory: Path | None = None) -> ServerStartError:
    where = "" if directory is None else f" in {directory.parent}"
    return ServerStartError(
        f"the server's data cannot be stored{where} ({error.strerror or error}): set TMPDIR to a directory "
        "with room for it"
    )


@contextmanager
def data_directory(name: str) -> Iterator[Path]:
    """Create a directory for a server's data; it is deleted when the context or this process ends.

    :raises ServerStartError: it cannot be created, or has no room.
    """
    owner = os.getpid()
    try:
        directory = Path(tempfile.mkdtemp(prefix=f"pravega-{name}-"))
    except OSError as error:
        raise _no_place(error) from error
    Guard.tell(f"+{directory}")
    try:
        # A server without room would neither become ready nor end.
        room = directory / "room"
        try:
            room.write_bytes(bytes(_NEEDED_DATA_BYTES))
            room.unlink()
        except OSError as error:
            raise _no_place(error, directory) from error
        yield directory
    finally:
        # A process that was forked within the context may leave it while the server runs.
        if os.getpid() == owner:
            shutil.rmtree(directory, ignore_errors=True)
            Guard.tell(f"-{directory}")
