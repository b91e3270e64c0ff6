"""What mkdocs calls while it builds the site (``hooks:`` in ``mkdocs.yml``).

Adds the generated reference, Mermaid and what is in ``assets/``, points links to files outside of ``docs/``,
such as ``../examples/web``, to the repository, and changes how some things are shown (``shown.py``).
"""

from __future__ import annotations

import logging
import posixpath
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import mermaid
import reference
import shown
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
ASSETS = Path(__file__).resolve().parent / "assets"
REPOSITORY = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"].rstrip("/")

log = logging.getLogger("mkdocs.hooks.site")

_LINK = re.compile(r"(?P<before>\]\()(?P<target>[^)\s#:]+)(?P<anchor>#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """Show where the repository is, in the header of each page."""
    config.repo_url = REPOSITORY
    config.repo_name = "/".join(REPOSITORY.split("/")[-2:])
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add what is generated."""
    for path, text in reference.pages().items():
        files.append(File.generated(config, path, content=text))
    for asset in sorted(ASSETS.iterdir()):
        files.append(
            File.generated(config, f"assets/{asset.name}", content=asset.read_text(encoding="utf-8"))
        )
    files.append(File.generated(config, "assets/mermaid.min.js", content=mermaid.script()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Lead links out of ``docs/`` to the repository; a file that is not there is a warning."""
    folder = posixpath.dirname(posixpath.join("docs", page.file.src_uri))

    def outwards(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, found["target"]))
        if path.startswith("docs/"):
            return found[0]
        if path.startswith("..") or not (ROOT / path).exists():
            log.warning("%s: %s is not in the repository", page.file.src_uri, found["target"])
            return found[0]
        kind = "tree" if (ROOT / path).is_dir() else "blob"
        return f"{found['before']}{REPOSITORY}/{kind}/main/{path}{found['anchor'] or ''})"

    parts = re.split(r"(^ *```.*?^ *```[^\n]*$)", markdown, flags=re.MULTILINE | re.DOTALL)
    for number, part in enumerate(parts):
        parts[number] = shown.block(part, parts[number - 1]) if number % 2 else _LINK.sub(outwards, part)
    return "".join(parts)


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Link the errors that methods raise, which mkdocstrings shows without a link; let tables break names."""
    if page.file.src_uri.startswith(f"{reference.FOLDER}/"):
        html = _with_errors(html)
    return shown.cells(html)


def _with_errors(html: str) -> str:
    names = reference.public_names()["pravega_wire.errors"]
    return re.sub(
        r"(<td>\s*)<code>(\w+)</code>(\s*</td>)",
        lambda found: (
            f'{found[1]}<a href="../errors/#pravega_wire.errors.{found[2]}">'
            f"<code>{found[2]}</code></a>{found[3]}"
            if found[2] in names
            else found[0]
        ),
        html,
    )


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Load Mermaid, which is large, on pages with a diagram only; the theme uses it if it is there."""
    if 'class="mermaid"' not in output:
        return output
    root = posixpath.relpath(".", page.url or ".") if page.url else "."
    scripts = "".join(
        f'<script src="{root}/assets/{name}.js"></script>' for name in ("mermaid.min", "diagrams")
    )
    return output.replace("</head>", f"{scripts}</head>", 1)
