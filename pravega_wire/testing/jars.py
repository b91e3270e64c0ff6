"""The published jars of the server, its Java client and a compiler, fetched once into a cache.

``jars.lock`` names each file exactly, with its checksum; nothing is resolved at run time. Ivy (PySpark
ships it) or Maven brings the files: both find the central repository, or the mirror a user has set up
for them, by themselves.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from xml.sax.saxutils import quoteattr

from pravega_wire.errors import ServerStartError
from pravega_wire.testing.java import find_java

__all__ = ["cache_directory", "client_classpath", "compiler_jar", "fetch", "server_classpath"]

_LOCK_FILE = Path(__file__).with_name("jars.lock")
_PARALLEL = 4


@dataclass(frozen=True, slots=True)
class Jar:
    """One published file.

    :ivar uses: who needs it: ``server``, ``client``, ``compiler``.
    """

    group: str
    artifact: str
    version: str
    classifier: str
    sha256: str
    uses: frozenset[str]

    @property
    def file_name(self) -> str:
        """Name in the cache."""
        tail = f"-{self.classifier}" if self.classifier else ""
        return f"{self.artifact}-{self.version}{tail}.jar"


@lru_cache(maxsize=1)
def locked_jars() -> tuple[Jar, ...]:
    """The lines of ``jars.lock``: ``group:artifact:version[:classifier] sha256 uses``."""
    jars = []
    for line in _LOCK_FILE.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        coordinates, sha256, uses = line.split()
        group, artifact, version, *classifier = coordinates.split(":")
        jars.append(
            Jar(
                group,
                artifact,
                version,
                classifier[0] if classifier else "",
                sha256,
                frozenset(uses.split(",")),
            )
        )
    return tuple(jars)


def cache_directory() -> Path:
    """``PRAVEGA_WIRE_CACHE``, else the user's cache directory."""
    chosen = os.environ.get("PRAVEGA_WIRE_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "pravega-wire"


def server_classpath() -> list[Path]:
    """Jars of the server; fetches them if need be. ``PRAVEGA_WIRE_JARS`` (a directory) overrides.

    :raises ServerStartError: they cannot be fetched.
    """
    override = os.environ.get("PRAVEGA_WIRE_JARS")
    if override:
        found = sorted(Path(override).glob("*.jar"))
        if not found:
            raise ServerStartError(f"PRAVEGA_WIRE_JARS={override} holds no jars")
        return found
    return _paths("server")


def client_classpath() -> list[Path]:
    """Jars of the Java client, for programs that talk to the same server."""
    return _paths("client")


def compiler_jar() -> Path:
    """The Eclipse compiler for Java."""
    return _paths("compiler")[0]


def _paths(use: str) -> list[Path]:
    directory = fetch()
    return [directory / jar.file_name for jar in locked_jars() if use in jar.uses]


@lru_cache(maxsize=1)
def fetch() -> Path:
    """Make sure that every locked jar is in the cache, and whole; returns the directory.

    :raises ServerStartError: a file could not be fetched, or is not the one that was locked.
    """
    directory = cache_directory() / "jars-0.13.0"
    directory.mkdir(parents=True, exist_ok=True)
    missing = _missing(directory)
    if not missing:
        return directory
    with _locked(directory):
        missing = _missing(directory)  # another process may have fetched them meanwhile
        if missing:
            _fetch_missing(directory, missing)
    return directory


def _missing(directory: Path) -> list[Jar]:
    """Jars that are not there, or not whole: a server with half a jar fails in ways nobody understands."""
    return [jar for jar in locked_jars() if _sum(directory / jar.file_name) != jar.sha256]


def _sum(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    with (directory / ".lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _say(text: str) -> None:
    print(f"[pravega jars] {text}", file=sys.stderr, flush=True)


def _fetch_missing(directory: Path, missing: Sequence[Jar]) -> None:
    started = time.monotonic()
    ivy = _ivy_jar()
    tool = "Ivy" if ivy is not None else "Maven"
    if ivy is None and shutil.which("mvn") is None:
        raise ServerStartError(
            "fetching the server's jars needs PySpark (pip install 'pravega-wire[testing]') or "
            "Maven on PATH; or set PRAVEGA_WIRE_JARS to a directory that holds them"
        )
    _say(f"fetching {len(missing)} files with {tool} into {directory} (once)")
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=directory) as work_text:
        work = Path(work_text)
        groups = [list(missing[index::_PARALLEL]) for index in range(_PARALLEL)]
        running = []
        for index, group in enumerate(each for each in groups if each):
            part = work / str(index)
            part.mkdir()
            command = _maven_command(part, group) if ivy is None else _ivy_command(ivy, part, group)
            log = (part / "log.txt").open("wb")
            running.append((part, subprocess.Popen(command, stdout=log, stderr=log, cwd=part), log))
        try:
            _wait(running, len(missing), started)
        finally:
            for _, process, log in running:
                if process.poll() is None:
                    process.kill()
                    process.wait()
                log.close()
        fetched = {path.name: path for path in work.glob("*/lib/*.jar")}
        for jar in missing:
            path = fetched.get(jar.file_name)
            if path is None:
                tails = "\n".join(
                    (part / "log.txt").read_text(errors="replace")[-1500:] for part, _, _ in running
                )
                raise ServerStartError(
                    f"{tool} could not fetch {jar.file_name}; check the network and run this "
                    f"again (what is there is kept). Its last words:\n{tails}"
                )
            found = _sum(path)
            if found != jar.sha256:
                raise ServerStartError(
                    f"{jar.file_name} is not the published file: its checksum is {found}, "
                    f"{jar.sha256} is expected"
                )
            os.replace(path, directory / jar.file_name)
    _say(f"done in {time.monotonic() - started:.0f} s")


def _wait(
    running: Sequence[tuple[Path, subprocess.Popen[bytes], object]], total: int, started: float
) -> None:
    shown = -1
    while any(process.poll() is None for _, process, _ in running):
        # Progress is counted in files that have arrived; the tools print nothing machine-readable.
        for _, process, _ in running:
            try:
                process.wait(timeout=1)
            except subprocess.TimeoutExpired:
                continue
        count = sum(1 for part, _, _ in running for path in part.rglob("*.jar") if path.parent.name != "lib")
        if count != shown:
            shown = count
            _say(f"{min(count, total)} of {total} files, {time.monotonic() - started:.0f} s")


def _ivy_jar() -> Path | None:
    from importlib.util import find_spec

    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    return next(iter((Path(spec.origin).parent / "jars").glob("ivy-*.jar")), None)


def _ivy_command(ivy: Path, part: Path, jars: Sequence[Jar]) -> list[str]:
    lines = [
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">',
        '<info organisation="local" module="jars"/>',
        '<configurations><conf name="default"/></configurations><dependencies>',
    ]
    for jar in jars:
        classifier = f" m:classifier={quoteattr(jar.classifier)}" if jar.classifier else ""
        lines.append(
            f"<dependency org={quoteattr(jar.group)} name={quoteattr(jar.artifact)} "
            f'rev={quoteattr(jar.version)} transitive="false" conf="default->master">'
            f'<artifact name={quoteattr(jar.artifact)} type="jar" ext="jar"{classifier}/>'
            "</dependency>"
        )
    lines.append("</dependencies></ivy-module>")
    (part / "ivy.xml").write_text("\n".join(lines))
    return [
        str(find_java().executable), "-jar", str(ivy), "-ivy", "ivy.xml", "-cache",
        str(part / "cache"), "-retrieve", "lib/[artifact]-[revision](-[classifier]).[ext]",
    ]  # fmt: skip


def _maven_command(part: Path, jars: Sequence[Jar]) -> list[str]:
    lines = [
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>',
        "<groupId>local</groupId><artifactId>jars</artifactId><version>1</version><dependencies>",
    ]
    for jar in jars:
        classifier = f"<classifier>{jar.classifier}</classifier>" if jar.classifier else ""
        lines.append(
            f"<dependency><groupId>{jar.group}</groupId><artifactId>{jar.artifact}</artifactId>"
            f"<version>{jar.version}</version>{classifier}<exclusions><exclusion>"
            "<groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>"
        )
    lines.append("</dependencies></project>")
    (part / "pom.xml").write_text("\n".join(lines))
    return ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"]
