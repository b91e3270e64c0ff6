"""Kills a Spark driver with all processes that it has started."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

__all__ = ["descendants", "kill_all", "kill_tree"]


def descendants(pid: int) -> list[int]:
    """Return the descendants of a process, nearest first (Linux)."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # it ended meanwhile
                after_name = (entry / "stat").read_text().rpartition(")")[2].split()
                parents.setdefault(int(after_name[1]), []).append(int(entry.name))
    found, todo = [], [pid]
    while todo:
        children = parents.get(todo.pop(0), [])
        found += children
        todo += children
    return found


def kill_all(pids: Iterable[int]) -> None:
    """Kill each process that still exists with SIGKILL."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def kill_tree(process: subprocess.Popen[bytes]) -> list[int]:
    """Kill a Spark driver with its JVM and Python workers with SIGKILL; return their ids."""
    if process.poll() is not None:
        return []
    everyone = [process.pid, *descendants(process.pid)]
    kill_all(everyone)
    process.wait()
    return everyone
