"""The documents' code blocks, run as they are printed: see tests/README.md, "Examples in the documents"."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from pravega_wire import sync
from pravega_wire.testing import PravegaServer, find_java
from tests.docs_blocks import ROOT, BlockError, Runner, first_pages, pages, read

START = first_pages()

UNITS = [
    pytest.param(unit, id=unit[0] if len(unit) == 1 else "start")
    for unit in (START, *([page] for page in pages() if page not in START))
    if any(re.search(r"^ *```(?:python|sh)\b", (ROOT / page).read_text(), re.MULTILINE) for page in unit)
]
"""What is run in one directory: a page, or all pages of Start, which build on one another."""


def variables(server: PravegaServer) -> dict[str, str]:
    """The environment of a reader who has installed the package and started a server."""
    found = {
        **os.environ,
        "PRAVEGA_CONTROLLER_URI": server.controller_uri,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
    }
    found.setdefault("JAVA_HOME", str(find_java(17).home))
    # Spark's Java processes live for seconds: compiling their code well costs more than it saves.
    found.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    return found


@pytest.mark.parametrize("unit", UNITS)
def test_blocks_do_what_the_pages_say(
    unit: list[str], pravega_server: PravegaServer, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    found = variables(pravega_server)
    if any("PRAVEGA_SCHEMA_REGISTRY_URI" in each.text for page in unit for each in read(page)):
        found["PRAVEGA_SCHEMA_REGISTRY_URI"] = request.getfixturevalue("pravega_schema_registry").uri
    runner = Runner(tmp_path, found)
    try:
        for page in unit:
            runner.run(read(page))
    except BlockError as error:
        pytest.fail(str(error), pytrace=False)
    finally:
        runner.close()


# --- what the extra brings is enough --------------------------------------------------------------


def installed(extra: str, site: Path) -> Path:
    """A directory with what ``pip install 'pravega-wire[extra]'`` installs, and nothing else."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    waiting = [*project["dependencies"], *project["optional-dependencies"][extra]]
    done = set()
    while waiting:
        requirement = Requirement(waiting.pop())
        if requirement.name in done or not (requirement.marker is None or requirement.marker.evaluate()):
            continue
        done.add(requirement.name)
        found = metadata.distribution(requirement.name)
        waiting += found.requires or []
        for file in found.files or ():
            if ".." not in file.parts and file.suffix != ".pyc":
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                (site / file).symlink_to(str(found.locate_file(file)))
    (site / "pravega_wire").symlink_to(ROOT / "pravega_wire")
    return site


def test_the_example_of_telemetry_runs_with_what_its_extra_installs(
    pravega_server: PravegaServer, tmp_path: Path
) -> None:
    blocks = [each for each in read("docs/observability.md") if "telemetry.instrument(" in each.text]
    assert blocks
    assert all(each.kind == "program" for each in blocks)
    with sync.open_client(pravega_server.config("mill")) as client:  # as the page's first program does
        client.create_scope("mill")
        client.create_stream("readings", 2)
    site = installed("telemetry", tmp_path / "site")
    for block in blocks:
        done = subprocess.run(
            [sys.executable, "-S", "-c", block.text],
            env={**variables(pravega_server), "PYTHONPATH": str(site)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        assert {"pravega.client.events.written {event}", "pravega.client.write.duration s"} <= set(
            done.stdout.splitlines()
        )
