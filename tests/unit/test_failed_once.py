"""What the scripts that run tests decide about those that failed beside others and passed alone."""

from __future__ import annotations

import runpy
import subprocess
import sys
import tomllib
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any, TypeAlias

import pytest

ROOT = Path(__file__).resolve().parents[2]

Judged: TypeAlias = Callable[..., tuple[list[str], bool]]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(sys, "path", [str(ROOT / "scripts"), *sys.path])
    return runpy.run_path(str(ROOT / "scripts" / "_failed_once.py"))


@pytest.mark.parametrize(
    ("once", "known", "in_ci", "fails"),
    [
        ("", "", False, False),
        ("", "a b c", False, False),
        ("", "a b c d", False, True),
        ("", "a b c d", True, True),
        ("a", "a b c", False, False),
        ("a", "b", False, True),
        ("a", "b", True, False),
        ("a b c", "", True, False),
        ("a b c", "c d", True, True),
        ("b c", "a b", True, False),
    ],
)
def test_a_test_must_be_on_the_list_which_must_not_grow(
    script: dict[str, Any], once: str, known: str, in_ci: bool, fails: bool
) -> None:
    judged: Judged = script["judged"]
    words, failed = judged(once.split(), known.split(), in_ci=in_ci)
    assert failed == fails
    for each in once.split():
        [said] = [line for line in words if line.startswith(f"warning: {each} failed")]
        assert ("add it to tests/failed-once.toml" in said) == (each not in known.split())
    number = len({*once.split(), *known.split()})
    assert (f"error: {number} tests are on tests/failed-once.toml" in " ".join(words)) == (number > 3)


def test_the_reasons_of_failures_are_read_from_the_report_of_pytest(
    script: dict[str, Any], tmp_path: Path
) -> None:
    test = tmp_path / "tests" / "test_example.py"
    test.parent.mkdir()
    test.write_text(
        "import pytest\n"
        "@pytest.mark.parametrize('page', ['a.md', 'b.md'])\n"
        "def test_pages(page): assert page == 'a.md'\n"
        "@pytest.fixture\n"
        "def server(): raise OSError('no\\nserver')\n"
        "def test_server(server): pass\n"
    )
    xml = tmp_path / "report.xml"
    assert script["reasons"](xml) == []
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", f"--junitxml={xml}", "tests"],
        cwd=tmp_path, capture_output=True, check=False,
    )  # fmt: skip
    page, server = script["reasons"](xml)
    assert page.startswith("tests/test_example.py::test_pages[b.md]: AssertionError: assert 'b.md' == 'a.md'")
    assert server.startswith("tests/test_example.py::test_server: ")
    assert "OSError: no" in server
    xml.write_text("<testsuites><testsuite>")
    assert script["reasons"](xml) == []


def test_each_entry_of_the_list_names_a_test_and_a_day(script: dict[str, Any]) -> None:
    for entry in tomllib.loads((ROOT / script["FAILED_ONCE"]).read_text()).get("test", []):
        assert isinstance(entry["date"], date)
        assert len(entry["seen"].split()) > 2
        assert entry.keys() <= {"name", "date", "seen", "reason"}
        file, name = entry["name"].partition("[")[0].split("::")
        assert f"def {name}(" in (ROOT / file).read_text()
