"""Reading the documents' code blocks, and running them; the pages themselves need no server to be read."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.docs_blocks import (
    Block,
    BlockError,
    DocumentError,
    Runner,
    expected,
    first_pages,
    matches,
    pages,
    parse,
    read,
)


def only(text: str) -> Block:
    (block,) = parse("page.md", text)
    return block


@pytest.mark.parametrize("page", pages())
def test_the_blocks_of_every_page_can_be_read(page: str) -> None:
    read(page)


def test_the_pages_of_start_exist() -> None:
    assert len(first_pages()) >= 4
    assert set(first_pages()) <= set(pages())


@pytest.mark.parametrize("page", pages())
def test_lines_of_code_fit_into_the_site(page: str) -> None:
    long = [
        f"{block.page}:{block.line + number}"
        for block in read(page)
        if block.language not in ("json", "mermaid", "output", "text")
        for number, line in enumerate(block.text.splitlines())
        if len(line) > 92
    ]
    assert long == [], "a page of the site shows 92 characters of a line at 1280 px"


def test_the_page_on_clusters_shows_the_image_that_is_tested() -> None:
    (shown,) = [block.text for block in read("docs/spark-clusters.md") if block.language == "dockerfile"]
    root = Path(__file__).resolve().parents[2]
    assert shown == (root / "examples" / "spark" / "image" / "Dockerfile").read_text()


# --- reading -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kind", "argument"),
    [
        ("```python\nx = 1\n```", "program", ""),
        ("<!-- file: a/b.py -->\n```python\nx = 1\n```", "file", "a/b.py"),
        ("<!-- file: conf.json -->\n```json\n{}\n```", "file", "conf.json"),
        ("```sh\ntrue\n```", "shell", ""),
        ("<!-- background: ready to use -->\n```sh\nsleep 9\n```", "background", "ready to use"),
        ("```text\nsome words\n```", "shown", ""),
        ("```java\nint a;\n```", "shown", ""),
        ('```python title="a.py"\nx = 1\n```', "program", ""),
    ],
)
def test_a_block_is_what_its_marker_says(text: str, kind: str, argument: str) -> None:
    block = only(f"# Title\n\n{text}\n\nmore\n")
    assert (block.kind, block.argument, block.reason) == (kind, argument, "")


def test_blocks_know_their_place_and_lose_their_indentation() -> None:
    block = only("* item\n\n    ```python\n    if True:\n        pass\n    ```\n")
    assert block.text == "if True:\n    pass\n"
    assert block.place == "page.md:4"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<!-- sesion -->\n```python\nx\n```", "page.md:1: unknown marker <!-- sesion -->"),
        ("<!-- not run -->\n```sh\nx\n```", "unknown marker"),
        ("<!-- not run: -->\n```sh\nx\n```", "needs a reason"),
        ("<!-- not run: slow -->\n```sh\nx\n```", "needs a reason"),
        ("<!-- walk: -->\n```sh\nx\n```", "needs a reason"),
        ("<!-- file: -->\n```python\nx\n```", "needs a name"),
        ("<!-- file: ../x -->\n```python\nx\n```", "needs a name"),
        ("<!-- background: -->\n```sh\nx\n```", "needs a text"),
        ("<!-- background: ready -->\n```python\nx\n```", "belongs before a block in sh"),
        ("<!-- session -->\n```sh\nx\n```", "belongs before a block in python"),
        ("<!-- continues -->\n```python\nx\n```", "has no Python block before it"),
        ("<!-- output -->\n```text\nx\n```", "no block directly before"),
        ("```sh\nls\n```\n<!-- output: some -->\n```text\nx\n```", "needs `the end`, or words that `vary`"),
        ("```sh\nls\n```\n<!-- output: 3 and 4 s vary -->\n```text\n4 s\n```", "a block that has '3'"),
        ("<!-- output -->\n\n```text\nx\n```", "is not on the line before a block"),
        ("<!-- session -->", "is not on the line before a block"),
        ("```\nx\n```", "no language"),
        ("```bash\nx\n```", "a block in bash"),
        ("```python\nx = 1\n", "is not closed"),
        ("```python\nx = 1\ny = (\n```", "page.md:3: '(' was never closed"),
        ("<!-- not run: the server is not there -->\n```python\ny = (\n```", "was never closed"),
        ("<!-- file: x.py -->\n```python\ny = (\n```", "was never closed"),
        ("```python\nawait x\n```", "mark it <!-- session -->"),
        ("```sh\npip install pravega-wire\n```", "would install"),
    ],
)
def test_a_mistake_is_reported(text: str, said: str) -> None:
    with pytest.raises(DocumentError, match=r"^page\.md:\d+: ") as caught:
        parse("page.md", text)
    assert said in str(caught.value)


def test_other_comments_are_left_alone() -> None:
    assert parse("page.md", "<!-- a thought -->\n\nText.\n") == []


def test_a_session_has_the_loop_that_its_blocks_need() -> None:
    def loops(text: str) -> list[tuple[str, str]]:
        return [(each.kind, each.loop) for each in parse("page.md", text)]

    plain = "```python\nx = 1\n```\n"
    waits = "```python\nawait x\n```\n"
    assert loops(f"{plain}<!-- continues -->\n{plain}") == [("session", "none"), ("continues", "none")]
    assert loops(f"<!-- session -->\n{plain}<!-- continues -->\n{waits}") == [
        ("session", "trio"),
        ("continues", "trio"),
    ]
    assert loops(f"<!-- asyncio session -->\n{waits}") == [("session", "asyncio")]
    assert loops(f"<!-- session -->\n{waits}{plain}") == [("session", "trio"), ("program", "none")]


# --- running -------------------------------------------------------------------------------------


def run(text: str, directory: Path, *, walk: bool = False) -> Runner:
    runner = Runner(directory, dict(os.environ), walking=walk, remembers=walk)
    try:
        runner.run(parse("page.md", text))
    finally:
        runner.close()
    return runner


@pytest.mark.parametrize(
    ("expected", "printed", "fits"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\nb\n", "a  \nb\n\n", True),
        ("a\nb\n", "a\nb\nc\n", False),
        ("a ... c\n", "a b c\n", True),
        ("a...\n", "a b\nmore\n", True),
        ("a ... c\n", "a b d\n", False),
        ("a\n...\nb\n", "a\nb\n", True),
        ("a\n...\nb\n", "a\n1\n2\nb\n", True),
        ("a\n...\n", "a\n1\n2\n", True),
        ("a.c\n", "abc\n", False),
    ],
)
def test_expected_output(expected: str, printed: str, fits: bool) -> None:
    assert matches(expected, printed) == fits


@pytest.mark.parametrize(
    ("marker", "text", "printed", "fits"),
    [
        ("output: the end", "25 events", "a log\nand 25 events\n", True),
        ("output: the end", "25 events", "a log\n25 events\nmore\n", False),
        ("output: 3 and 0.5 s vary", "3 of 9 in 0.5 s", "4 of 9 in 12 s\n", True),
        ("output: 3 and 0.5 s vary", "3 of 9 in 0.5 s", "4 of 8 in 12 s\n", False),
        ("output: 3 vary", "3\n...\nb", "4\nx\ny\nb\n", True),
    ],
)
def test_what_may_differ_in_an_output(marker: str, text: str, printed: str, fits: bool) -> None:
    *_, block = parse("page.md", f"```sh\nls\n```\n\n<!-- {marker} -->\n```text\n{text}\n```\n")
    assert (block.kind, matches(expected(block), printed)) == ("output", fits)


def test_a_page_is_run_in_order_in_one_directory(tmp_path: Path) -> None:
    text = """
<!-- file: helper.py -->
```python
VALUE = 20
```

```python
from helper import VALUE
print(VALUE + 1)
```

<!-- output -->
```text
21
```

<!-- session -->
```python
total = 1
await trio.sleep(0)
```

```sh
cat helper.py > copy.py
```

<!-- continues -->
```python
import copy, os
total += len([each for each in os.listdir() if each == "copy.py"])
print("total", total)
```

<!-- output -->
```text
total ...
```

<!-- asyncio session -->
```python
await asyncio.sleep(0)
print("asyncio")
```

<!-- not run: it would fail here -->
```sh
false
```
"""
    runner = run(text, tmp_path)
    assert list(runner.outputs.values()) == ["21\n", "", "", "total 2\n", "asyncio\n"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("```python\nx = 1\nraise ValueError(5)\n```", "ValueError: 5"),
        ("```sh\nfalse\ntrue\n```", "exit status 1"),
        ("```python\nprint(1)\n```\n<!-- output -->\n```text\n2\n```", "page.md:6: the output is not this"),
        (
            "<!-- session -->\n```python\nx = 1\n\nawait trio.sleep(0)\nmissing\n```",
            'File "page.md", line 6',
        ),
        ("```python\nx = 1\n```\n<!-- continues -->\n```python\nmissing\n```", 'File "page.md", line 6'),
        ("<!-- background: ready -->\n```sh\necho no\n```", "ended without printing 'ready'\nno"),
    ],
)
def test_a_block_that_fails_is_reported(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(BlockError, match=r"^page\.md:\d+: ") as caught:
        run(text, tmp_path)
    assert said in str(caught.value)


def test_what_runs_in_the_background_ends_with_the_page(tmp_path: Path) -> None:
    run("<!-- background: up -->\n```sh\necho $$ > pid; echo up; sleep 500\n```\n", tmp_path)
    assert subprocess.run(["kill", "-0", (tmp_path / "pid").read_text().strip()], check=False).returncode != 0


WALK = """
<!-- walk: it needs an environment of its own -->
```sh
mkdir below
cd below
export WALKED=yes
```

```sh
echo "$WALKED" > found
```
"""


def test_a_walk_runs_more_and_remembers_it(tmp_path: Path) -> None:
    run(WALK, tmp_path, walk=True)
    assert (tmp_path / "below" / "found").read_text() == "yes\n"


def test_a_walk_exports_what_a_server_says(tmp_path: Path) -> None:
    server = "echo 'ready; use it with'; echo '  export WHERE=there'; sleep 500"
    text = f"<!-- background: ready -->\n```sh\n{server}\n```\n"
    run(f'{text}\n```sh\necho "$WHERE" > found\n```\n', tmp_path, walk=True)
    assert (tmp_path / "found").read_text() == "there\n"


def test_a_page_alone_does_not_walk(tmp_path: Path) -> None:
    run(WALK, tmp_path)
    assert (tmp_path / "found").read_text() == "\n"
