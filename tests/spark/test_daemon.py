"""The daemon that forks Python workers which have imported what they need."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = str(Path(__file__).resolve().parents[2])


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": ROOT, "SPARK_REUSE_WORKER": "1", "PYTHON_UNIX_DOMAIN_ENABLED": "false"}


@contextmanager
def worker(module: str) -> Iterator[int]:
    """A worker of a daemon, started as Spark starts it; its process id."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, "pyspark.worker"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(),
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        # Numbers have four bytes, the first one is the port.
        port = int.from_bytes(process.stdout.read(4), "big")
        with (
            socket.create_connection(("127.0.0.1", port)) as connection,
            connection.makefile("rb") as answers,
        ):
            yield int.from_bytes(answers.read(4), "big")
    finally:
        # Spark asks it to end like this; it ends its workers.
        process.stdin.close()
        process.wait()
        process.stdout.close()


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_its_workers_begin_with_pyarrow_and_others_do_not() -> None:
    loaded = {}
    for module in ("pyspark.daemon", "spark_adapter.daemon"):
        with worker(module) as pid:
            status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
            assert Path(f"/proc/{status['PPid'].strip()}/cmdline").read_text().split("\0")[2] == module
            loaded[module] = "libarrow" in Path(f"/proc/{pid}/maps").read_text()
    assert loaded == {"pyspark.daemon": False, "spark_adapter.daemon": True}


def test_it_imports_everything_before_it_forks_and_starts_no_thread() -> None:
    program = """
import gc, runpy, sys, threading
import pyspark.daemon
def manager():
    print(*sys.modules, threading.active_count(), len(gc.get_objects()))
pyspark.daemon.manager = manager
runpy.run_module("spark_adapter.daemon", run_name="__main__", alter_sys=True)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True, env=environment()
    )
    *modules, threads, objects = ran.stdout.split()
    assert {
        "pyarrow",
        "pravega_wire.sync",
        "spark_adapter.writing.partition",
        "spark_adapter.bounded",
    } <= set(modules)
    # A fork copies one thread only, and the locks that the others hold.
    assert threads == "1"
    # What a worker's collection after each task looks at; with all that was imported, it is 100 000.
    assert int(objects) < 1000
