"""Ingestion killed at every point, on a real server: each row is in the stream once, in order per key."""

from __future__ import annotations

import json
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from pravega_wire import PravegaConfig
from pravega_wire.ingest import Stage
from tests.integration.conftest import guarded
from tests.integration.ingesting import AFTER_COMMIT, MODES, Job, start, verify, write_folder

SECONDS = 120


def job_of(config: PravegaConfig, folder: Path, mode: str = "files") -> Job:
    return Job(config.controller_uri, str(config.default_scope), str(folder), mode)


def finished(process: subprocess.Popen[str]) -> dict[str, object]:
    """What the process said at its end."""
    try:
        out, _ = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
        process.wait()
    last = out.strip().splitlines()[-1]
    return {} if process.returncode == -signal.SIGKILL else dict(json.loads(last))


def check(config: PravegaConfig, expected: dict[str, list[int]]) -> int:
    async def main() -> int:
        async with guarded(config) as client:
            return await verify(client, expected)

    return trio.run(main)


POINTS = [
    (Stage.BEGUN.name, 2),
    (Stage.RECORDED.name, 2),
    (Stage.WRITING.name, 5),
    (Stage.WRITTEN.name, 2),
    (Stage.COMMITTING.name, 2),
    (AFTER_COMMIT, 2),
]
"""Where the process kills itself, always around the second transaction: the first one must survive, too."""


@pytest.mark.parametrize(
    ("mode", "stage", "nth"),
    [(mode, *point) for mode in MODES for point in POINTS] + [("end", Stage.ENDED.name, 2)],
)
def test_killed_at_each_point(config: PravegaConfig, tmp_path: Path, mode: str, stage: str, nth: int) -> None:
    expected = write_folder(tmp_path / "in", 3, 2500)
    job = job_of(config, tmp_path / "in", mode)
    assert finished(start(replace(job, crash=stage, nth=nth))) == {}
    again = finished(start(job))
    assert "error" not in again, again
    assert check(config, expected) == 7500
    # The record of the last commit lets a run with nothing to do find that out.
    assert finished(start(job))["events"] == 0
    assert check(config, expected) == 7500
