"""The notebook in ``examples/notebook``, run by a Jupyter kernel on a real server."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from pravega_wire import sync
from pravega_wire.testing import PravegaServer
from tests.docs_blocks import ROOT

NOTEBOOK = ROOT / "examples" / "notebook" / "stream.ipynb"
SCOPE = "notebook-example"


def notebook() -> Any:
    return nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call,unused-ignore]


def printed(cell: Any) -> str:
    return "".join(each["text"] for each in cell["outputs"] if each["output_type"] == "stream")


def shown(cells: list[Any], kind: str) -> list[Any]:
    """What cells have displayed as one MIME type."""
    outputs = [each for cell in cells for each in cell["outputs"]]
    return [each["data"][kind] for each in outputs if kind in each.get("data", {})]


def test_the_notebook_is_kept_without_outputs() -> None:
    found = notebook()
    nbformat.validate(found)
    cells = [each for each in found.cells if each["cell_type"] == "code"]
    assert cells
    assert all(each["outputs"] == [] and each["execution_count"] is None for each in cells)


def test_the_notebook_writes_reads_and_plots(
    pravega_server: PravegaServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What an earlier run has left is not read again.
    with sync.open_client(pravega_server.config(SCOPE)) as client:
        client.create_scope(SCOPE)
        client.create_stream("temperatures", 2)
        with client.event_writer("temperatures") as writer:
            writer.write_event(b"of an earlier run, and not JSON")
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "MPLCONFIGDIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    found = notebook()
    runner = NotebookClient(found, timeout=600, kernel_name="python3", startup_timeout=600)
    runner.execute(
        cwd=str(tmp_path),
        env={
            **os.environ, "PRAVEGA_CONTROLLER_URI": pravega_server.controller_uri, "PYTHONPATH": str(ROOT)
        },
    )  # fmt: skip

    cells = [each for each in found.cells if each["cell_type"] == "code"]
    assert [each for each in map(printed, cells) if each] == [
        f"connected to {pravega_server.controller_uri}\n",
        "4320 events written\n",
        "4320 rows of sensor, minute, celsius\n",
        "72 means; warmest: roof at 14:00, 25.9 °C\n",
        '[\'{"sensor": "roof", "minute": 1440, "celsius": 9.21}\']\n',
        "closed\n",
    ]
    (summary,) = shown(cells, "text/html")
    assert all(each in summary for each in ("cellar", "kitchen", "roof", "1440.0"))
    (picture,) = shown(cells, "image/png")
    data = base64.b64decode(picture)
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = (int.from_bytes(data[at : at + 4], "big") for at in (16, 20))
    assert width > 2 * height > 400
