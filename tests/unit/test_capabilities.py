"""The capability table: the tests that it names exist, and docs/capabilities.md counts its rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs_blocks import ROOT

INDEX = ROOT / "docs" / "capabilities.md"
ROOMS = sorted((ROOT / "docs" / "capabilities").glob("*.md"))

_CODE = re.compile(r"`([^`]+)`")
_PLACES = tuple(sorted(path.name for path in (ROOT / "tests").iterdir() if path.is_dir()))


def rows(page: Path) -> Iterator[list[str]]:
    """The cells of each row whose first one is such as A1 or L7a."""
    for line in page.read_text(encoding="utf-8").splitlines():
        cells = [each.strip() for each in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells and re.fullmatch(r"[A-Z]\d+[a-z]?", cells[0]):
            yield cells


def missing(where: str, root: Path = ROOT) -> list[str]:
    """What a row's last cell names and ``tests/`` lacks: files, folders, and ``file::test``."""
    found = []
    for named in _CODE.findall(where):
        path, _, test = named.partition("::")
        if path.partition("/")[0] not in _PLACES or "/" not in path:
            continue
        file = root / "tests" / path
        if not file.exists() or (test and not re.search(rf"def {re.escape(test)}\(", file.read_text())):
            found.append(named)
    return found


@pytest.mark.parametrize("page", ROOMS, ids=lambda page: page.stem)
def test_each_row_names_tests_that_exist(page: Path) -> None:
    found = {cells[0]: missing(cells[-1]) for cells in rows(page)}
    assert found, f"{page.name} has no rows"
    assert {row: names for row, names in found.items() if names} == {}


def test_each_row_that_says_yes_names_what_shows_it() -> None:
    shown = re.compile(rf"`(benchmarks|scripts|{'|'.join(_PLACES)})/|the demo")
    assert [
        cells[0] for page in ROOMS for cells in rows(page) if cells[2] == "Y" and not shown.search(cells[-1])
    ] == []


def test_a_test_that_does_not_exist_is_found() -> None:
    assert missing("`unit/test_capabilities.py::test_each_row_names_tests_that_exist`, `faults/`") == []
    assert missing("`unit/test_nowhere.py`, `write_events`, `benchmarks/memory.py`") == [
        "unit/test_nowhere.py"
    ]
    assert missing("`unit/test_capabilities.py::test_nothing`") == ["unit/test_capabilities.py::test_nothing"]


def test_each_cell_of_a_peer_begins_with_a_letter_of_the_legend() -> None:
    assert [cells for page in ROOMS for cells in rows(page) if len(cells) != 7] == []
    letters = re.compile(r"(Py )?[YPN–](?![a-z])")
    wrong = [cells for page in ROOMS for cells in rows(page) if not all(map(letters.match, cells[2:6]))]
    assert wrong == []


def test_numbers_of_rows_are_not_used_twice() -> None:
    numbers = [cells[0] for page in ROOMS for cells in rows(page)]
    assert sorted(set(numbers)) == sorted(numbers)


def test_the_summary_counts_the_rows() -> None:
    text = INDEX.read_text(encoding="utf-8")
    for page in ROOMS:
        cells = list(rows(page))
        counts = [len(cells), *(sum(row[column].startswith("Y") for row in cells) for column in range(2, 6))]
        title = page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        line = f"| [{title}](capabilities/{page.name}) | {' | '.join(map(str, counts))} |"
        assert line in text, f"docs/capabilities.md should have: {line}"
