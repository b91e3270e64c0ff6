"""A process that archives or restores, and kills itself at a named point: for ``test_archive.py``."""

from __future__ import annotations

import os
import signal
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import trio

from pravega_wire import open_client
from pravega_wire.archive import Stage, archive_stream, restore_stream

PART_BYTES = 4000


def key_of(event: bytes) -> str:
    """The routing key of an event: its first word."""
    return event.split(b" ")[0].decode()


async def work(job: dict[str, Any]) -> int:
    times = 0

    def observer(stage: Stage, about: str) -> None:
        nonlocal times
        if stage.name == job["crash"]:
            times += 1
            if times == job["nth"]:
                os.kill(os.getpid(), signal.SIGKILL)

    directory = Path(job["directory"])
    async with open_client(job["uri"], scope=job["scope"]) as client:
        if job["what"] == "archive":
            manifest = await archive_stream(
                client, job["stream"], directory, part_bytes=PART_BYTES, observer=observer
            )
            return manifest.events
        restored = await restore_stream(
            client,
            directory,
            job["stream"],
            routing_key=key_of if job["what"] == "restore by key" else None,
            observer=observer,
        )
        return restored.written


def answer(job: dict[str, Any], answers: Connection) -> None:
    answers.send(trio.run(work, job))


def run(job: dict[str, Any]) -> int | None:
    """Run a job in a process; return what it counts, or None if it killed itself."""
    # Of a server of processes, which imports all of this once.
    processes = get_context("forkserver")
    processes.set_forkserver_preload([__name__])
    receiving, sending = processes.Pipe(duplex=False)
    process = processes.Process(target=answer, args=(job, sending))
    process.start()
    sending.close()
    process.join()
    if process.exitcode == -signal.SIGKILL:
        return None
    assert process.exitcode == 0
    counted: int = receiving.recv()
    return counted
