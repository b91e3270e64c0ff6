"""Servers whose classes Java has archived."""

from __future__ import annotations

from pathlib import Path

import pytest

from pravega_wire.cli.server import main
from pravega_wire.errors import ServerStartError
from pravega_wire.testing import server_classpath, standalone
from pravega_wire.testing.java import JavaRuntime
from pravega_wire.testing.launching import class_archive
from pravega_wire.testing.server import prepare


def test_a_prepared_server_uses_the_archive(capfd: pytest.CaptureFixture[str]) -> None:
    archive = class_archive(server_classpath())
    assert archive is not None, "this Java is too old to archive classes"
    # Done before, if all tests are run.
    assert main(["fetch"]) == 0
    assert archive.exists()
    capfd.readouterr()
    assert main(["fetch"]) == 0
    assert "faster" not in capfd.readouterr().err, "it was made again"
    with standalone(kind="jars") as server:
        assert str(archive) in Path(f"/proc/{server.processes[0].pid}/maps").read_text()


def test_an_old_java_archives_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    old = JavaRuntime(Path("java"), 11)
    monkeypatch.setattr("pravega_wire.testing.launching.find_java", lambda: old)
    assert class_archive(server_classpath()) is None
    prepare()


def test_without_an_archive_there_is_a_note(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def no_server(*_: object, **__: object) -> None:
        raise ServerStartError("no port is free")

    monkeypatch.setattr("pravega_wire.testing.server.class_archive", lambda _: tmp_path / "classes.jsa")
    monkeypatch.setattr("pravega_wire.testing.server._from_jars", no_server)
    assert main(["fetch"]) == 0
    assert "servers will not start faster: no port is free" in capfd.readouterr().err
    assert not list(tmp_path.iterdir())
