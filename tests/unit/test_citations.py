"""Citations in code and documents lead somewhere."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PRODUCT = ("pravega_wire", "spark_adapter", "tests", "scripts", "benchmarks", "examples", "docs")

_DOCUMENT = re.compile(r"\bdocs/[\w./-]+\.md\b")
_CITATION = re.compile(r'\b(docs/[\w./-]+\.md)(?:``)?, "([^"]+)"')
_DANGLING = re.compile(
    r"(?i)\b(?:facts|client formats|wire protocol|controller facts) v0\.13\.0|\bfacts, (?:section|\")"
    r"|v0\.13\.0, (?:section|sections) \d|\(see section \d"
)


# A test, below tests/.
_TEST = re.compile(r"`(\w+/test_\w+\.py)::(test_\w+)`")
_NO_TEST = re.compile(r"– \(.+\)")


def _files() -> list[Path]:
    found = [
        path
        for directory in PRODUCT
        for pattern in ("*.py", "*.md")
        for path in sorted((ROOT / directory).rglob(pattern))
    ]
    return [path for path in found if path != Path(__file__).resolve()]


@cache
def _text(path: Path) -> str:
    """The file on one line, so that a citation may be wrapped in a docstring or a comment."""
    return re.sub(r"\s*\n\s*(?:# )?", " ", path.read_text())


@cache
def _headings(document: str) -> frozenset[str]:
    text = re.sub(r"```.*?```", "", (ROOT / document).read_text(), flags=re.DOTALL)
    return frozenset(re.findall(r"^#+ +(.*?) *$", text, flags=re.MULTILINE))


def test_cited_documents_exist() -> None:
    missing = [
        f"{path.relative_to(ROOT)}: {document}"
        for path in _files()
        if path.suffix == ".py"
        for document in sorted(set(_DOCUMENT.findall(_text(path))))
        if not (ROOT / document).is_file()
    ]
    assert not missing


def test_cited_headings_exist() -> None:
    wrong = []
    count = 0
    for path in _files():
        for document, heading in _CITATION.findall(_text(path)):
            count += 1
            if not (ROOT / document).is_file() or heading not in _headings(document):
                wrong.append(f'{path.relative_to(ROOT)}: {document}, "{heading}"')
    assert not wrong
    assert count > 20, "the citations are not recognized any more"


def test_nothing_cites_what_is_in_no_document() -> None:
    dangling = {path.relative_to(ROOT).as_posix() for path in _files() if _DANGLING.search(_text(path))}
    assert dangling == set()


# --- tests that documents name --------------------------------------------------------------------


@cache
def _tests(file: str) -> frozenset[str]:
    """The tests of a file below ``tests/``, which is not imported: its tests may need Spark."""
    path = ROOT / "tests" / file
    found = ast.parse(path.read_text()).body if path.is_file() else []
    return frozenset(each.name for each in found if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))


def _shown_by(document: str) -> list[tuple[str, str]]:
    """The first and the last cell of each row of the tables whose last column is "shown by"."""
    rows: list[tuple[str, str]] = []
    inside = False
    for line in (ROOT / document).read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else [""]
        if inside and len(cells) > 1 and not set(cells[0]) <= {"-"}:
            rows.append((cells[0], cells[-1]))
        inside = len(cells) > 1 and (inside or cells[-1] == "shown by")
    return rows


def test_tests_that_documents_name_exist() -> None:
    named = [
        (page.name, *test)
        for page in (ROOT / "docs").glob("*.md")
        for test in _TEST.findall(page.read_text())
    ]
    assert [each for each in named if each[2] not in _tests(each[1])] == []
    assert len(named) > 40, "the names are not recognized any more"


def test_each_row_of_what_is_shown_has_a_test_or_a_reason() -> None:
    for document, least in (("docs/from-kafka.md", 25), ("docs/spark-checkpoints.md", 8)):
        rows = _shown_by(document)
        assert len(rows) >= least
        wrong = [
            (what, shown)
            for what, shown in rows
            if not _NO_TEST.fullmatch(shown) and not all(map(_TEST.fullmatch, shown.split(", ")))
        ]
        assert wrong == []
