"""Checks every link of the built site, of README.md and of the other documents at the repository's top.

mkdocs checks what is written in Markdown. This also sees what docstrings and generated tables become, and
that no page loads anything from another host.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "site"
DOCUMENTS = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "tests/README.md")

_LOADS = {"script": "src", "img": "src", "link": "href", "iframe": "src"}
_MARKDOWN_LINK = re.compile(r"\]\(([^)\s]+)\)")
_CODE = re.compile(r"^ *```.*?^ *```[^\n]*$|``.*?``|`[^`\n]*`", re.MULTILINE | re.DOTALL)


class Page(HTMLParser):
    """What a page links to, what it loads, and the anchors it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value for name, value in attrs if value is not None}
        if "id" in found:
            self.anchors.add(found["id"])
        if tag == "a":
            if "name" in found:
                self.anchors.add(found["name"])
            if "href" in found:
                self.links.add(found["href"])
        elif tag in _LOADS and _LOADS[tag] in found and found.get("rel") not in ("canonical", "next", "prev"):
            self.loads.add(found[_LOADS[tag]])


def problems_of_site(site: Path) -> list[str]:
    """A sentence for each link that leads nowhere, and each thing loaded from another host."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        name = path.relative_to(site)
        if name == Path("404.html"):
            continue  # its addresses are those of a site at the root of a host
        for link in sorted(page.links | page.loads):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.loads and parts.scheme != "data":
                    found.append(f"{name}: {link} is loaded from another host")
                continue
            target = path if not parts.path else (path.parent / unquote(parts.path)).resolve()
            if target.is_dir():
                target = target / "index.html"
            if not target.exists():
                found.append(f"{name}: {link} leads nowhere")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                found.append(f"{name}: {link}: no such place on that page")
    return found


def slug(heading: str) -> str:
    """The anchor that repository browsers give a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def problems_of_document(document: Path) -> list[str]:
    """The same for a document that is read where it lies: links are to files of the repository."""
    found = []
    for link in _MARKDOWN_LINK.findall(_CODE.sub("", document.read_text(encoding="utf-8"))):
        parts = urlsplit(link)
        if parts.scheme:
            continue
        target = (document.parent / unquote(parts.path)).resolve() if parts.path else document
        generated = ROOT / "docs" / "reference" in target.parents
        if not target.exists() and not generated:
            found.append(f"{document.name}: {link} leads nowhere")
        elif parts.fragment and target.suffix == ".md" and target.exists():
            headings = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            if parts.fragment not in map(slug, headings):
                found.append(f"{document.name}: {link}: no such heading")
    return found


def main() -> int:
    if not (SITE / "index.html").exists():
        print("error: the site is not built: run scripts/docs", file=sys.stderr)
        return 1
    found = problems_of_site(SITE)
    for name in DOCUMENTS:
        if (ROOT / name).exists():
            found += problems_of_document(ROOT / name)
    for each in found:
        print(each, file=sys.stderr)
    if found:
        print(f"error: {len(found)} links of the documents do not work", file=sys.stderr)
        return 1
    print("[docs] every link leads somewhere")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
