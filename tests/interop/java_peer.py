"""The Java client as a subprocess: requests and answers of ``java/InteropPeer.java``."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Self
from zlib import crc32

from pravega_wire.testing import client_classpath, compile_java, find_java

SECONDS_UNTIL_IT_HANGS = 240
"""Unless a test says otherwise. No test's result depends on it."""

SOURCES = sorted((Path(__file__).parent / "java").glob("*.java"))


class JavaPeerError(Exception):
    """What the Java client threw.

    :ivar kind: class of the exception.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


@dataclass(frozen=True, slots=True)
class JavaEvent:
    """An event as the Java client read it."""

    segment_id: int
    offset: int
    payload: bytes


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


class JavaPeer:
    """Blocking calls into one warm virtual machine.

    :ivar patience: seconds after which a call is taken to hang, and the program is ended.
    """

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log
        self.patience = SECONDS_UNTIL_IT_HANGS

    def call(self, *words: object, lines: Iterable[str] = ()) -> list[list[str]]:
        """Send a command and the lines that follow it; returns the columns of each data line.

        :raises JavaPeerError: the Java client threw an exception.
        """
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join(map(str, words)) + "\n")
        self._process.stdin.writelines(line + "\n" for line in lines)
        self._process.stdin.flush()
        return self.answer()

    def answer(self) -> list[list[str]]:
        """The data lines up to the next "OK"."""
        assert self._process.stdout is not None
        data: list[list[str]] = []
        last: list[str] = []
        watch = threading.Timer(self.patience, self._end)
        watch.start()
        try:
            for line in self._process.stdout:
                columns = line.rstrip("\n").split("\t")
                if columns[0] == "OK":
                    return data
                if columns[0] == "ERR":
                    raise JavaPeerError(columns[1], columns[2])
                data.append(columns[1:])
                last = [*last[-400:], line]
        finally:
            watch.cancel()
        tail = "".join(last) + self._log.read_text(errors="replace")[-2000:]
        raise JavaPeerError("exit", f"the Java program has ended:\n{tail}")

    def _end(self) -> None:
        """Print what the program's threads do, and end it."""
        self._process.send_signal(signal.SIGQUIT)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        self._process.kill()

    def value(self, *words: object) -> str:
        """A command that answers with one value."""
        [[value]] = self.call(*words)
        return value

    def write(self, scope: str, stream: str, events: Sequence[tuple[str | None, bytes]]) -> None:
        """Write ``(routing key, payload)`` pairs and flush."""
        self.call("write", scope, stream, len(events), lines=_event_lines(events))

    def write_large(self, scope: str, stream: str, events: Sequence[tuple[str, int]]) -> list[str]:
        """Write events of so many bytes, ``(routing key, size)``, with a writer that takes them over 8 MiB.

        :returns: the SHA-256 of each in hexadecimal.
        """
        lines = (f"{_b64(key.encode())}\t{size}\t{number}" for number, (key, size) in enumerate(events))
        return [digest for [digest] in self.call("write-large", scope, stream, len(events), lines=lines)]

    @contextmanager
    def writer(self, scope: str, stream: str) -> Iterator[JavaWriter]:
        """A writer that does not wait for what it writes; there is one at a time."""
        self.call("writer-open", scope, stream)
        yield JavaWriter(self)
        self.call("writer-close")

    @contextmanager
    def transaction(self, scope: str, stream: str, txn_id: object) -> Iterator[JavaTransaction]:
        """Take up an open transaction by its id."""
        handle = self.value("txn-resume", scope, stream, txn_id)
        yield JavaTransaction(self, handle)
        self.call("txn-release", handle)

    def write_transaction(self, scope: str, stream: str, events: Sequence[tuple[str | None, bytes]]) -> str:
        """Begin a transaction, write events into it, leave it open; returns its id."""
        [[txn_id]] = self.call("txn-write", scope, stream, len(events), lines=_event_lines(events))
        return txn_id

    def read_batch(self, scope: str, stream: str, start: str = "", end: str = "") -> list[JavaEvent]:
        """The batch client's events between two cut texts, segment after segment."""
        return [_event(row) for row in self.call("read-batch", scope, stream, start, end)]

    def read_group(self, scope: str, stream: str, expected: int) -> list[JavaEvent]:
        """A reader group's events, in the order they were read."""
        return [_event(row) for row in self.call("read-group", scope, stream, expected)]

    def segments_for(self, scope: str, stream: str, keys: Sequence[str]) -> dict[str, int]:
        """The segment the Java client would write each key to now."""
        rows = self.call("segments-for", scope, stream, len(keys), lines=(_b64(key.encode()) for key in keys))
        return {key: int(segment_id) for key, [segment_id] in zip(keys, rows, strict=True)}

    def describe_cut(self, text: str) -> tuple[str, dict[int, int]]:
        """Stream and positions of a cut, as Java understands its text."""
        [[stream], *rows] = self.call("describe-cut", text)
        return stream, {int(segment_id): int(offset) for segment_id, offset in rows}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class JavaWriter:
    """An event writer that is held open."""

    def __init__(self, peer: JavaPeer) -> None:
        self._peer = peer

    def write(self, events: Sequence[tuple[str | None, bytes]]) -> None:
        """Write ``(routing key, payload)`` pairs, and do not wait for them to be stored."""
        self._peer.call("writer-write", len(events), lines=_event_lines(events))

    def flush(self) -> None:
        """Wait until they are."""
        self._peer.call("writer-flush")


class JavaTransaction:
    """A transaction that the Java client has resumed."""

    def __init__(self, peer: JavaPeer, handle: str) -> None:
        self._peer = peer
        self._handle = handle

    def write(self, events: Sequence[tuple[str | None, bytes]]) -> None:
        """Write ``(routing key, payload)`` pairs and flush."""
        self._peer.call("txn-write-on", self._handle, len(events), lines=_event_lines(events))

    def commit(self) -> None:
        """Commit it."""
        self._peer.call("txn-held-commit", self._handle)

    def abort(self) -> None:
        """Abort it."""
        self._peer.call("txn-held-abort", self._handle)

    @property
    def status(self) -> str:
        """As the Java client says."""
        return self._peer.value("txn-held-status", self._handle)


def _event_lines(events: Iterable[tuple[str | None, bytes]]) -> Iterator[str]:
    for key, payload in events:
        yield f"{'-' if key is None else _b64(key.encode())}\t{_b64(payload)}"


def _event(row: list[str]) -> JavaEvent:
    return JavaEvent(int(row[0]), int(row[1]), base64.b64decode(row[2]))


def java_command(
    directory: Path,
    program: str,
    sources: Sequence[Path] = SOURCES,
    classpath: Sequence[Path] | None = None,
) -> list[str]:
    """Compile the programs into ``directory``, unless they are there; returns the command that runs one."""
    classpath = client_classpath() if classpath is None else classpath
    # Another version of the client has other jars.
    classes = directory / f"classes-{crc32(repr((sources, classpath)).encode())}"
    if not classes.exists():
        compile_java(sources, classes, classpath)
    logback = directory / "logback.xml"
    logback.write_text('<configuration><root level="OFF"/></configuration>')
    return [
        str(find_java().executable),
        "-Xmx512m",
        # The jars bring a set-up of their own, which writes into the working directory.
        f"-Dlogback.configurationFile={logback}",
        "-cp",
        os.pathsep.join(map(str, [classes, *classpath])),
        program,
    ]


@contextmanager
def start_java_peer(
    uri: str,
    directory: Path,
    *more: str,
    program: str = "InteropPeer",
    sources: Sequence[Path] = SOURCES,
    classpath: Sequence[Path] | None = None,
) -> Iterator[JavaPeer]:
    """Run a program, and end it with the context."""
    with NamedTemporaryFile(dir=directory, prefix=program, suffix=".log", delete=False) as errors:
        process = subprocess.Popen(
            [*java_command(directory, program, sources, classpath), uri, *more],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            encoding="utf-8",
        )
    with JavaPeer(process, Path(errors.name)) as peer:
        peer.answer()
        yield peer
