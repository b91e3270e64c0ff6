"""The documentation site's machinery: what the reference has, and which links work."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def loaded(path: str) -> ModuleType:
    """A script that is no module of a package."""
    name = f"site_{Path(path).stem}"
    spec = importlib.util.spec_from_file_location(name, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


reference = loaded("scripts/site/reference.py")
links = loaded("scripts/site/links.py")
shown = loaded("scripts/site/shown.py")
PAGES: dict[str, str] = reference.pages()


# --- the reference -------------------------------------------------------------------------------


@pytest.mark.parametrize("module", reference.public_names())
def test_every_public_name_has_an_entry_in_the_reference(module: str) -> None:
    entries = re.findall(r"^::: (\S+)$", "\n".join(PAGES.values()), re.MULTILINE)
    assert len(entries) == len(set(entries))
    left_out = reference.ELSEWHERE if module == "pravega_wire" else ()
    assert {f"{module}.{name}" for name in reference.public_names()[module] if name not in left_out} <= set(
        entries
    )


def test_names_that_are_elsewhere_are_there() -> None:
    assert set(reference.ELSEWHERE) <= set(reference.public_names()["pravega_wire.metrics"])


def test_the_public_modules_are_those_of_the_page() -> None:
    page = (ROOT / "docs" / "public.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^## `([\w.]+)`$", page, re.MULTILINE))
    # The commands of the protocol have a page of their own, and fixtures are not imported.
    assert listed - {"pravega_wire.protocol.commands"} == set(reference.public_names()) - {
        "pravega_wire.pytest_plugin"
    }


def test_the_tree_of_errors_has_each_error_below_its_bases() -> None:
    from pravega_wire import errors

    tree = PAGES["reference/errors.md"].partition("## Each error")[0]
    found = re.findall(r"^( *)- \[`(\w+)`\]", tree, re.MULTILINE)
    assert {name for _, name in found} == set(errors.__all__)
    above: list[str] = []
    for indent, name in found:
        depth = len(indent) // 4
        del above[depth:]
        if above:
            assert getattr(errors, above[-1]) in getattr(errors, name).__bases__
        above.append(name)


def test_the_tree_of_errors_has_whole_sentences() -> None:
    tree = PAGES["reference/errors.md"].partition("## The tree")[2].partition("## Each error")[0]
    lines = [line for line in tree.splitlines() if line.strip()]
    assert [line for line in lines if not line.endswith(".")] == []


def test_settings_options_and_arguments_are_all_there() -> None:
    from pravega_wire.values.config import SETTINGS
    from spark_adapter.options.read import OPTIONS

    for setting in SETTINGS:
        assert f"`{setting.variable}`" in PAGES["reference/settings.md"]
    for option in OPTIONS:
        assert (f"`{option.name}`" in PAGES["reference/spark-options.md"]) == option.shown
    for argument in (
        "--key-column NAME",
        "--version",
        "--memory MEMORY",
        "standalone",
        "stream truncate",
        "--key-field",
    ):
        assert argument in PAGES["reference/command-line.md"]


def test_the_navigation_has_every_generated_page() -> None:
    listed = re.findall(r"- (reference/[\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(PAGES)


# --- links ---------------------------------------------------------------------------------------


def test_links_of_a_site_are_followed(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(
        '<h1 id="top">x</h1><a href="#top">1</a><a href="other/#here">2</a><a href="other/#gone">3</a>'
        '<a href="missing/">4</a><a href="https://elsewhere.example/">5</a>'
        '<script src="https://elsewhere.example/x.js"></script>'
    )
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "index.html").write_text('<p id="here"><a href="..">up</a></p>')
    assert links.problems_of_site(tmp_path) == [
        "index.html: https://elsewhere.example/x.js is loaded from another host",
        "index.html: missing/ leads nowhere",
        "index.html: other/#gone: no such place on that page",
    ]


def test_links_of_a_document_are_followed(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# A `heading`, and more\n")
    document = tmp_path / "README.md"
    document.write_text(
        "[1](there.md#a-heading-and-more) [2](there.md#other) [3](gone.md) [4](https://elsewhere.example)\n"
        "```\n[5](not-a-link.md)\n```\n"
    )
    assert links.problems_of_document(document) == [
        "README.md: there.md#other: no such heading",
        "README.md: gone.md leads nowhere",
    ]


@pytest.mark.parametrize("name", links.DOCUMENTS)
def test_links_of_the_documents_at_the_top_work(name: str) -> None:
    assert links.problems_of_document(ROOT / name) == []


# --- how things are shown ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("a\nb", "a\nb"),
        ("...\na", "a"),
        ("a\n...\n...", "a"),
        ("a\n  ...\nb", "a\n  ⋮\nb"),
        ("answered in ...; ok", "answered in …; ok"),
    ],
)
def test_the_marks_of_the_tests_are_not_shown_as_output(text: str, seen: str) -> None:
    made = shown.block(f"  ```text\n{text}\n  ```", "Some words.\n\n<!-- output: 3 vary -->\n")
    assert made == f"  ```{{.text .output .no-copy}}\n{seen}\n  ```"


def test_a_session_is_known_by_its_prompt_and_other_blocks_stay() -> None:
    assert shown.block("```text\n$ ls\na\n```", "\n") == "```console\n$ ls\na\n```"
    for text in ("```text\na ...\n```", "```sh\nls\n```"):
        assert shown.block(text, "<!-- a thought -->\n\n") == text


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("--scope", ["--scope"]),
        ("unit/test_config.py", ["unit/", "test_", "config.py"]),
        ("PRAVEGA_SCOPE", ["PRAVEGA_", "SCOPE"]),
        ("tcp://localhost:9090", ["tcp://localhost:", "9090"]),
        ("write(x, y)", ["write", "(x,", " ", "y)"]),
        ("_RG...", ["_RG..."]),
    ],
)
def test_names_in_tables_break_between_words(name: str, parts: list[str]) -> None:
    made = "".join(part if part == " " else f"<wbr><span>{part}</span>" for part in parts)
    made = made.removeprefix("<wbr>").replace(" <wbr>", " ")
    assert shown.breakable(name) == made
    page = f"<p><code>{name}</code></p><table><tr><td class='x'>is <code>{{}}</code></td></tr></table>"
    assert shown.cells(page.format(name)) == page.format(made)
