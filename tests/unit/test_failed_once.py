"""What the scripts that run tests decide about those that failed beside others and passed alone."""

from __future__ import annotations

import runpy
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


def test_each_entry_of_the_list_names_a_test_and_a_day(script: dict[str, Any]) -> None:
    for entry in tomllib.loads((ROOT / script["FAILED_ONCE"]).read_text()).get("test", []):
        assert isinstance(entry["date"], date)
        assert len(entry["seen"].split()) > 2
        assert entry.keys() <= {"name", "date", "seen", "reason"}
        file, name = entry["name"].partition("[")[0].split("::")
        assert f"def {name}(" in (ROOT / file).read_text()
