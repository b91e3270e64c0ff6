"""The examples in the documents, run as they are printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from pravega_wire import sync
from pravega_wire.testing import PravegaServer

ROOT = Path(__file__).resolve().parents[2]


def blocks(document: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)


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


def run(server: PravegaServer, *command: str, site: Path | None = None) -> str:
    """In a process of its own, which finds the server by its address.

    :param site: the only packages there are.
    """
    done = subprocess.run(
        [sys.executable, *(() if site is None else ("-S",)), *command],
        env=os.environ | {"PRAVEGA_CONTROLLER_URI": server.controller_uri, "PYTHONPATH": str(site or ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_readme_s_first_examples(pravega_server: PravegaServer, tmp_path: Path) -> None:
    program, blocking = blocks("README.md")[:2]
    script = tmp_path / "example.py"
    script.write_text(program)
    printed = run(pravega_server, str(script)).splitlines()
    assert len(printed) == 100_001
    assert "b'21.5'" in printed
    script.write_text(blocking)
    run(pravega_server, str(script))
    with sync.open_client(pravega_server.config("demo")) as client:
        assert sum(map(len, client.read_events("readings"))) == 100_004


def test_the_pytest_example_of_testing_md(pravega_server: PravegaServer, tmp_path: Path) -> None:
    (tmp_path / "test_example.py").write_text(blocks("docs/testing.md")[0])
    printed = run(pravega_server, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path))
    assert "2 passed" in printed


def test_the_example_of_byte_streams_md(pravega_server: PravegaServer, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text(blocks("docs/byte-streams.md")[0])
    assert run(pravega_server, str(script)) == "b'some bytes'\n"


def test_the_example_of_ingestion_md(pravega_server: PravegaServer, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text(blocks("docs/ingestion.md")[0])
    assert run(pravega_server, str(script)) == "3 files, 6 events\n"
    with sync.open_client(pravega_server.config("weather")) as client:
        assert sum(map(len, client.read_events("readings"))) == 6


def test_the_examples_of_key_value_tables_md(pravega_server: PravegaServer, tmp_path: Path) -> None:
    program, mapping = blocks("docs/key-value-tables.md")
    script = tmp_path / "example.py"
    script.write_text(program)
    printed = run(pravega_server, str(script)).splitlines()
    assert printed[0] == "it is there already"
    assert [line.rsplit(" ", 1)[0] for line in printed[1:]] == ["crew ['Ann', 'Bo']", "fuel 78"]
    script.write_text(mapping)
    assert run(pravega_server, str(script)).splitlines() == [
        "b'color' b'red'", "b'depth' b'3'", "b'width' b'10'",
    ]  # fmt: skip


def test_the_example_of_reader_groups_md(pravega_server: PravegaServer, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    reading, unanswered, _ = blocks("docs/reader-groups.md")
    script.write_text(reading)
    assert run(pravega_server, str(script)) == f"{sum(range(1000))}\n"
    script.write_text(unanswered)
    said, waiting, online = run(pravega_server, str(script)).splitlines()
    assert said.startswith(
        "checkpoint 'nightly' of reader group plant/alarms was not answered within 2 s by idle (holds "
    )
    assert waiting.startswith("idle 20")
    assert online.startswith("idle {} 20")


def test_the_example_of_writers_md(pravega_server: PravegaServer, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text(blocks("docs/writers.md")[0])
    assert run(pravega_server, str(script)) == "stored up to 0\nstored up to 1000\n"
    with sync.open_client(pravega_server.config("journal")) as client:
        assert sum(map(len, client.read_events("lines"))) == 1000


def test_the_examples_of_blocking_md(pravega_server: PravegaServer, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    copying, with_asyncio = blocks("docs/blocking.md")
    script.write_text(copying)
    assert run(pravega_server, str(script)) == "3 events copied\n"
    script.write_text(with_asyncio)
    run(pravega_server, str(script))
    with sync.open_client(pravega_server.config("copies")) as client:
        assert [event for batch in client.read_events("to") for event in batch][3:] == [b"4", b"5"]


def test_the_examples_of_asyncio_md(pravega_server: PravegaServer, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    printed = ["11.5\n12.0\n12.5\n", "36.0\n", "3 events\n"]
    for program, wanted in zip(blocks("docs/asyncio.md"), printed, strict=True):
        script.write_text(program)
        assert run(pravega_server, str(script)) == wanted


def test_the_examples_of_observability_md(pravega_server: PravegaServer, tmp_path: Path) -> None:
    snapshot, observer, telemetry = blocks("docs/observability.md")
    script = tmp_path / "example.py"
    script.write_text(snapshot)
    printed = run(pravega_server, str(script)).splitlines()
    assert printed[0] == "1000 events are stored"
    assert printed[1].startswith("mill/readings 2890 bytes, ")
    assert printed[2].startswith("mill/readings 1000 events read, ")
    assert printed[3] == "1 stream created"
    script.write_text(observer)
    assert run(pravega_server, str(script)).startswith("1000 events, ")
    script.write_text(telemetry)
    # It runs with what the extra that it names installs.
    site = installed("telemetry", tmp_path / "site")
    printed = run(pravega_server, str(script), site=site).splitlines()
    assert {"pravega.client.events.written {event}", "pravega.client.write.duration s"} <= set(printed)


def test_the_examples_of_batch_md(pravega_server: PravegaServer, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    dividing, together, cuts = blocks("docs/batch.md")
    script.write_text(dividing)
    pieces, after = re.fullmatch(
        r"(\d+) pieces, (\d+) after it grew\n", run(pravega_server, str(script))
    ).groups()  # type: ignore[union-attr]
    assert int(after) > int(pieces) > 4
    script.write_text(together)
    assert run(pravega_server, str(script)) == "20000 events\n"
    script.write_text(cuts)
    # 100 times 8 bytes of header with 6 and 5 of payload
    assert re.fullmatch(r"[23] ranges, 2700 bytes\n", run(pravega_server, str(script)))
