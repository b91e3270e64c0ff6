"""The environment for the official Scala connector: PySpark 3.5 and a Java version that it supports.

PySpark 3.5 and the PySpark of this project cannot be in one environment, so this one is made on demand, once.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.peers import ROOT, ParticipantError
from pravega_wire.testing.java import version_of

__all__ = ["connector_java", "connector_python"]

REQUIREMENTS = ("pyspark==3.5.*", "setuptools")
_JAVA = range(8, 18)
# Spark 3.5 is made for Java 8, 11 and 17.


def connector_python(directory: Path = ROOT / ".venv" / "bench-connector") -> Path:
    """Python of the environment, which is made if it does not exist.

    :raises ParticipantError: pip or venv did not work; with the end of what they said.
    """
    python = directory / "bin" / "python"
    stamp = directory / "stamp"
    wanted = f"{sys.version}\n{REQUIREMENTS}\n"
    if stamp.exists() and stamp.read_text() == wanted and python.exists():
        return python
    print(f"[setup] making the virtual environment {directory} (once)", file=sys.stderr, flush=True)
    shutil.rmtree(directory, ignore_errors=True)
    _run(sys.executable, "-m", "venv", str(directory))
    _run(str(python), "-m", "pip", "install", "--disable-pip-version-check", "-q", *REQUIREMENTS)
    stamp.write_text(wanted)
    return python


def _run(*command: str) -> None:
    made = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if made.returncode != 0:
        raise ParticipantError(f"{' '.join(command[1:])} has failed: {made.stdout[-1000:]}")


def connector_java() -> Path:
    """A ``JAVA_HOME`` for Spark 3.5: ``SPARK_CONNECTOR_JAVA_HOME``, ``JAVA_HOME``, ``PATH``, or where Linux
    distributions put theirs.

    :raises ParticipantError: there is none of version 8 to 17.
    """
    homes = [
        Path(os.environ[name]) for name in ("SPARK_CONNECTOR_JAVA_HOME", "JAVA_HOME") if name in os.environ
    ]
    on_path = shutil.which("java")
    if on_path is not None:
        homes.append(Path(on_path).resolve().parent.parent)
    # the newest first
    homes += sorted(Path("/usr/lib/jvm").glob("*17*")) + sorted(Path("/usr/lib/jvm").glob("*11*"))
    for home in homes:
        java = home / "bin" / "java"
        if java.exists() and version_of(java) in _JAVA:
            return home
    raise ParticipantError(
        "the Scala connector runs in PySpark 3.5, which needs a Java of version 8 to 17, and none was found: "
        "install Java 17, or set SPARK_CONNECTOR_JAVA_HOME to where one is"
    )
