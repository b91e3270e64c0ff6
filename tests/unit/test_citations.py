"""Citations in code and documents lead somewhere."""

from __future__ import annotations

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
